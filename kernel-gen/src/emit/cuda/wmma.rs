//! Products of a warp before compute capability 7.5, as `wmma` in PTX.
//!
//! `mma.sync` on the shapes that the other files emit is not there. `wmma` is, on tiles of 16 x 16: it fills, loads,
//! multiplies and stores fragments whose layout only the hardware knows. So each statement is one instruction a tile, and
//! what would touch single elements is refused. Later architectures run the same instructions.

use super::fragment::{Role, extents};
use super::ptx::{Ptx, WmmaOperand, WmmaTile};
use super::{Body, EmitError};
use crate::ir::{BufferId, DType, Expr, Operand, Scope, Tile};

/// Rows, columns and depth of a product: `m16n16k16`.
const TILE: i64 = 16;

/// What the first element of a tile in memory is aligned to, in bytes. *(PTX ISA, "Matrix Storage" of `wmma`.)*
pub(super) const ALIGNMENT: i64 = 32;

/// A tile, and registers that a thread has of it. *(PTX ISA, "Matrix Fragments for WMMA".)*
pub(super) fn base(role: Role, dtype: DType) -> (i64, i64, i64) {
    (TILE, TILE, if role == Role::Sums && dtype == DType::F16 { 4 } else { 8 })
}

impl Body<'_> {
    /// Loads a fragment from memory, or stores one of sums.
    pub(super) fn wmma_move(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let dtypes = [dst, src].map(|t| self.kernel.buffer(t.buffer).dtype);
        if dtypes[0] != dtypes[1] {
            let what = format!("a move of {} into {} on {}", dtypes[1], dtypes[0], self.arch);
            return Err(EmitError::Unsupported { what });
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
            Err(EmitError::Unsupported { what: format!("{what} of `{name}` on {}", self.arch) })
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

    /// `sums += a * b`.
    pub(super) fn wmma(&mut self, acc: &Tile, a: &Operand, b: &Operand) -> Result<(), EmitError> {
        self.need_operands(self.kernel.buffer(a.tile.buffer).dtype)?;
        let (m, n) = self.whole(acc)?;
        let (first, second) = self.whole(&a.tile)?;
        self.whole(&b.tile)?;
        let depth = if a.transposed { first } else { second };
        let sums = self.kernel.buffer(acc.buffer).dtype;
        let wmma = self.ptx(Ptx::Wmma { sums, transposed: [a.transposed, b.transposed] });
        let order = |transposed: bool, i: i64, j: i64| if transposed { (j, i) } else { (i, j) };
        for k in (0..depth).step_by(TILE as usize) {
            for i in (0..m).step_by(TILE as usize) {
                let (row, column) = order(a.transposed, i, k);
                let left = self.registers_at(&a.tile, row, column)?;
                for j in (0..n).step_by(TILE as usize) {
                    let (row, column) = order(b.transposed, k, j);
                    let right = self.registers_at(&b.tile, row, column)?;
                    let to = self.registers_at(acc, i, j)?;
                    self.line(&format!("{wmma}({to}, {left}, {right});"));
                }
            }
        }
        Ok(())
    }

    /// Rows and columns of a fragment's tile, multiples of 16.
    fn whole(&self, t: &Tile) -> Result<(i64, i64), EmitError> {
        let (rows, columns) = extents(t);
        if rows % TILE == 0 && columns % TILE == 0 {
            return Ok((rows, columns));
        }
        let name = &self.kernel.buffer(t.buffer).name;
        let what = format!("a tile of {rows} x {columns} of the fragment `{name}` on {}; use 16 x 16", self.arch);
        Err(EmitError::Unsupported { what })
    }

    fn is_fragment(&self, b: BufferId) -> bool {
        matches!(self.kernel.buffer(b).scope, Scope::Fragment(_))
    }
}
