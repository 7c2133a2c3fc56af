//! What is done with tiles of registers, as instructions.

use super::body::Body;
use super::matrix::{Act, Plan, Rows, act};
use super::prelude::Helper;
use crate::emit::EmitError;
use crate::ir::{BufferId, Stmt};

impl Body<'_> {
    /// The variable that says which configuration is loaded, before anything is done in a function with tiles.
    pub(super) fn begin_tiles(&mut self) {
        if !self.own.matrix.plans.is_empty() {
            self.prelude.call(Helper::Tiles);
            let name = self.names.fresh("tiles");
            self.line(&format!("const unsigned char *{name} = 0;"));
            self.own.matrix.configuration = name;
        }
    }

    /// Gives the registers back: a thread whose tiles are in use takes longer to leave a processor.
    pub(super) fn end_tiles(&mut self) {
        if !self.own.matrix.plans.is_empty() {
            self.line("_tile_release();");
        }
    }

    /// The declaration of a tile: with the first one of its block their configuration.
    pub(super) fn alloc_tile(&mut self, b: BufferId) {
        let Some(plan) = self.own.matrix.plans.get(&b).filter(|plan| plan.sums[0] == b) else { return };
        let text = plan.configuration();
        let (name, loaded) = (self.names.fresh("shapes"), self.own.matrix.configuration.clone());
        self.line(&format!("static const unsigned char {name}[64] __attribute__((aligned(64))) = {{{text}}};"));
        self.line(&format!("if ({loaded} != {name}) _tile_loadconfig({loaded} = {name});"));
    }

    /// Emits the act on a tile that statements begin with, if they do: how many of them that was.
    pub(super) fn tile_act(&mut self, stmts: &[Stmt]) -> Result<Option<usize>, EmitError> {
        if self.own.matrix.plans.is_empty() {
            return Ok(None);
        }
        let Some((sums, act, count)) = act(self.kernel, stmts).filter(|(sums, ..)| self.own.matrix.has(*sums)) else {
            self.own.matrix.loaded.clear();
            return Ok(None);
        };
        let plan = self.own.matrix.plans[&sums].clone();
        let register = plan.sums.iter().position(|b| *b == sums).unwrap_or(0);
        match act {
            Act::Zero => self.line(&format!("_tile_zero({register});")),
            Act::Copy(to) => {
                let address = self.rows_address(&to)?;
                self.line(&format!("_tile_stored({register}, {address}, {});", 4 * to.pitch));
            }
            Act::Products(both, signed) => {
                let [x, w] = &both;
                let x = self.tile_operand(&plan, x)?;
                let w = self.tile_operand(&plan, w)?;
                if x == w {
                    return Err(EmitError::in_c("a product of tiles whose operands share a register"));
                }
                let signs = signed.map(|signed| if signed { 's' } else { 'u' });
                self.line(&format!("_tile_dpb{}{}d({register}, {x}, {w});", signs[0], signs[1]));
            }
        }
        Ok(Some(count))
    }

    /// Forgets what tiles hold, at the end of a block.
    pub(super) fn forget_tiles(&mut self) {
        self.own.matrix.loaded.clear();
    }

    /// The register that holds an operand, loaded if none does.
    fn tile_operand(&mut self, plan: &Plan, rows: &Rows) -> Result<usize, EmitError> {
        let loaded = &mut self.own.matrix.loaded;
        if let Some(at) = loaded.iter().position(|(_, held)| held == rows) {
            let held = loaded.remove(at);
            loaded.push(held.clone());
            return Ok(held.0);
        }
        let of_shape = plan.operands.iter().find(|(shape, _)| *shape == [rows.rows, rows.words]);
        let registers = of_shape.map(|(_, registers)| registers.clone()).unwrap_or_default();
        let free = registers.iter().copied().find(|r| loaded.iter().all(|(held, _)| held != r));
        let oldest = || loaded.iter().map(|(held, _)| *held).find(|held| registers.contains(held));
        let register = free.or_else(oldest).ok_or_else(|| EmitError::in_c("a tile of a shape that none has"))?;
        loaded.retain(|(held, _)| *held != register);
        loaded.push((register, rows.clone()));
        let address = self.rows_address(rows)?;
        self.line(&format!("_tile_loadd({register}, {address}, {});", 4 * rows.pitch));
        Ok(register)
    }

    /// The address of the first row.
    fn rows_address(&mut self, rows: &Rows) -> Result<String, EmitError> {
        let name = self.names.buffer(rows.buffer).to_string();
        let offset = self.index(&rows.first.to_expr())?;
        Ok(if offset == "0" { name } else { format!("{name} + {offset}") })
    }
}
