//! Products of a warp before compute capability 7.5, as `wmma` in PTX.
//!
//! `mma.sync` on the shapes that the other files emit is not there. `wmma` is, on tiles of 16 x 16: it fills, loads,
//! multiplies and stores fragments whose layout only the hardware knows. So each statement is one instruction a tile, and
//! what would touch single elements is refused. Later architectures run the same instructions.

use super::body::Body;
use super::fragment::extents;
use super::ptx::{Ptx, WmmaOperand, WmmaTile};
use super::role::{Role, WMMA_TILE as TILE};
use crate::emit::EmitError;
use crate::ir::{BufferId, Expr, Scope, Tile};

impl Body<'_> {
    /// Loads a fragment from memory, or stores one of sums.
    pub(super) fn wmma_move(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let dtypes = [dst, src].map(|t| self.kernel.buffer(t.buffer).dtype);
        if dtypes[0] != dtypes[1] {
            let what = format!("a move of {} into {} on {}", dtypes[1], dtypes[0], self.own.arch);
            return Err(EmitError::in_cuda(what));
        }
        let loads = self.is_fragment(dst.buffer);
        let (fragment, memory) = if loads { (dst, src) } else { (src, dst) };
        let (operand, transposed) = match self.role(fragment.buffer)? {
            Role::Sums => (WmmaOperand::Sums, false),
            Role::Left { transposed } => (WmmaOperand::Left, transposed),
            Role::Right { transposed } => (WmmaOperand::Right, transposed),
        };
        let (rows, columns) = self.whole(fragment)?;
        let place = self.place(memory);
        let refuse = |what: &str| {
            let name = &self.kernel.buffer(memory.buffer).name;
            Err(EmitError::in_cuda(format!("{what} of `{name}` on {}", self.own.arch)))
        };
        if place.strides[1] != 1 || self.kernel.buffer(memory.buffer).swizzle != 0 {
            return refuse("rows of a tile that do not lie side by side");
        }
        if !loads && operand != WmmaOperand::Sums {
            return refuse("an operand that is stored into a tile");
        }
        let shared = self.kernel.buffer(memory.buffer).scope == Scope::Shared;
        let tile = WmmaTile { operand, dtype: dtypes[0], transposed, shared };
        let helper = self.ptx(if loads { Ptx::WmmaLoad(tile) } else { Ptx::WmmaStore(tile) });
        for row in (0..rows).step_by(TILE as usize) {
            for column in (0..columns).step_by(TILE as usize) {
                let at = self.address(&place, Expr::Int(row), Expr::Int(column))?;
                let held = self.registers_at(fragment, row, column)?;
                let [to, from] = if loads { [held, at] } else { [at, held] };
                self.line(&format!("{helper}({to}, {from}, {});", place.strides[0]));
            }
        }
        Ok(())
    }

    /// Rows and columns of a fragment's tile, multiples of 16.
    pub(super) fn whole(&self, t: &Tile) -> Result<(i64, i64), EmitError> {
        let (rows, columns) = extents(t);
        if rows % TILE == 0 && columns % TILE == 0 {
            return Ok((rows, columns));
        }
        let name = &self.kernel.buffer(t.buffer).name;
        let what = format!("a tile of {rows} x {columns} of the fragment `{name}` on {}; use 16 x 16", self.own.arch);
        Err(EmitError::in_cuda(what))
    }

    fn is_fragment(&self, b: BufferId) -> bool {
        matches!(self.kernel.buffer(b).scope, Scope::Fragment(_))
    }
}
