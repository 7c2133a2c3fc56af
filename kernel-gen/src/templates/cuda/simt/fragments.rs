//! The registers of threads: outer products of multiply-adds, and the way of the sums.

use super::plan::{MultiplyAdds, TURNED};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, LoopKind, Scope, VarId};
use crate::templates::cuda::cut::Layout;
use crate::templates::cuda::launch::unrolled;
use crate::templates::cuda::outer::{LANES, VECTOR, lanes_of, there_and_back};
use crate::templates::cuda::pipeline::{Block, Copied, Fragments};

/// The ring of tiles, and the registers of a thread.
pub(in crate::templates::cuda) struct Memory {
    ring: [BufferId; 2],
    /// Operands of two terms.
    operands: [BufferId; 2],
    sums: BufferId,
    /// The thread's number among those of the block down and across.
    own: [VarId; 2],
}

impl MultiplyAdds {
    /// The first row (0) or column (1) in the tile of a thread's group of four.
    fn within(&self, memory: &Memory, side: usize, quad: i64) -> Expr {
        memory.own[side] * VECTOR + quad * (self.sizes.tile[side] / self.sizes.quads(side))
    }

    /// Visits the thread's rows of each group of four columns: where it is in the tile, and where its sums are.
    fn each_row(
        &self,
        b: &mut KernelBuilder,
        memory: &Memory,
        body: impl Fn(&mut KernelBuilder, [Expr; 2], [Expr; 2]),
    ) {
        for above in 0..self.sizes.quads(0) {
            unrolled(b, "i", VECTOR, |b, i| {
                for beside in 0..self.sizes.quads(1) {
                    let at = [self.within(memory, 0, above) + i, self.within(memory, 1, beside)];
                    body(b, at, [i + above * VECTOR, Expr::Int(beside * VECTOR)]);
                }
            });
        }
    }

    /// Stores the sums of rows that are woven, of which a thread's groups of four have whole ones.
    fn store_woven(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory, place: [VarId; 2]) {
        let woven = block.product.woven();
        let piece = b.alloc("piece", DType::F32, &[VECTOR], Scope::Register);
        for above in 0..self.sizes.quads(0) {
            for i in (0..VECTOR).step_by(woven as usize) {
                for beside in 0..self.sizes.quads(1) {
                    let at = [self.within(memory, 0, above) + i, self.within(memory, 1, beside)];
                    for first in (0..VECTOR * woven).step_by(VECTOR as usize) {
                        for element in 0..VECTOR {
                            let number = first + element;
                            let [row, column] = [above * VECTOR + i + number % woven, beside * VECTOR + number / woven];
                            let sum = Expr::load(memory.sums, vec![row.into(), column.into()]);
                            b.store(piece, [element.into()], sum);
                        }
                        let value = |element: &Expr| Expr::load(piece, vec![element.clone()]);
                        block.write_woven(b, place, at.clone(), first, &value);
                    }
                }
            }
        }
    }
}

impl Fragments for MultiplyAdds {
    type Memory = Memory;

    fn parts(&self) -> i64 {
        self.sizes.tile_k
    }

    fn lines(&self) -> [[i64; 2]; 2] {
        [0, 1].map(|side| [self.sizes.tile_k, self.pitch(side)])
    }

    fn memory(&self, b: &mut KernelBuilder, block: &Block<'_>, ring: [BufferId; 2]) -> Memory {
        let (sizes, names) = (self.sizes, ["left", "right"]);
        let types = block.product.operand_types();
        let operands = [0, 1].map(|side| b.alloc(names[side], types[side], &[2, sizes.own[side]], Scope::Register));
        let sums = b.alloc("sum", block.product.sums(), &sizes.own, Scope::Register);
        let warp = Expr::from(block.warp);
        let [down, across] = [warp.clone().floor_div(sizes.warps(1)), warp.floor_mod(sizes.warps(1))];
        let [row, column] = lanes_of(block.lane);
        let own = [b.let_("own_rows", down * LANES[0] + row), b.let_("own_columns", across * LANES[1] + column)];
        Memory { ring, operands, sums, own }
    }

    fn copied(&self, b: &mut KernelBuilder, block: &Block<'_>, side: usize, at: VarId) -> Vec<Copied> {
        let (threads, unit, length) = (self.cut.threads(), self.units[side], self.sizes.tile[side]);
        let count = length * self.sizes.tile_k / unit;
        let mut all: Vec<Copied> = vec![];
        for turn in 0..self.pieces(side) {
            let piece = block.thread() + turn * threads;
            let within = ((turn + 1) * threads > count).then(|| piece.clone().lt(count));
            let (outer, term) = match self.cut.whole.layouts[side] {
                Layout::ReductionSlow => {
                    (piece.clone().floor_mod(length / unit) * unit, piece.floor_div(length / unit))
                }
                // Eight lanes have neighbours of the reduction, and all rows of these come before the next.
                Layout::ReductionFast => (
                    piece.clone().floor_div(TURNED).floor_mod(length),
                    piece.clone().floor_div(TURNED * length) * TURNED + piece.floor_mod(TURNED),
                ),
            };
            let outer = Expr::from(b.let_("copy_outer", outer));
            let term = Expr::from(b.let_("copy_term", term));
            let named = match (side, all.first()) {
                (0, _) => block.product.left_row(b, at * length + outer.clone()),
                (_, Some(first)) if self.one_column() => first.named.clone(),
                _ => block.product.right_column(b, at * length + outer.clone()),
            };
            all.push(Copied { at: [term.clone(), outer.clone()], outer, term, named, within });
        }
        all
    }

    fn clear(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory) {
        let [m, n] = self.sizes.own;
        let zero = Expr::zero(block.product.sums());
        unrolled(b, "i", m, |b, i| {
            unrolled(b, "j", n, |b, j| b.store(memory.sums, [i.into(), j.into()], zero.clone()));
        });
    }

    fn bring(&self, b: &mut KernelBuilder, _: &Block<'_>, memory: &Memory, slot: &Expr, k: i64) {
        for side in 0..2 {
            for quad in 0..self.sizes.quads(side) {
                b.loop_("element", VECTOR, LoopKind::Vectorized, |b, element| {
                    let from = self.within(memory, side, quad) + element;
                    let value = Expr::load(memory.ring[side], vec![slot.clone(), k.into(), from]);
                    b.store(memory.operands[side], [(k % 2).into(), Expr::from(element) + quad * VECTOR], value);
                });
            }
        }
    }

    fn multiply(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory, k: i64) {
        let words = block.product.operand_types()[0].is_word();
        for [i, j] in there_and_back(self.sizes.own) {
            let operand = |side: usize, at: i64| Expr::load(memory.operands[side], vec![(k % 2).into(), at.into()]);
            let [left, right] = [operand(0, i), operand(1, j)];
            let product = if words { left.dot(right) } else { left * right };
            b.sum(memory.sums, [i.into(), j.into()], product, &[]);
        }
    }

    fn store(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory, place: [VarId; 2]) {
        let piece = self.cut.stored;
        if block.product.woven() > 1 {
            return self.store_woven(b, block, memory, place);
        }
        self.each_row(b, memory, |b, [row, column], [i, j]| {
            for first in (0..VECTOR).step_by(piece as usize) {
                block.write(b, place, [row.clone(), column.clone() + first], piece, &|element| {
                    Expr::load(memory.sums, vec![i.clone(), j.clone() + first + element.clone()])
                });
            }
        });
    }

    fn give(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Memory, place: [VarId; 2]) {
        self.each_row(b, memory, |b, at, [i, j]| {
            block.give(b, place, at, |b, partial, [rank, batch, row, column]| {
                b.loop_("element", VECTOR, LoopKind::Vectorized, |b, element| {
                    let to = vec![rank, batch, row, column + element];
                    b.store(partial, to, Expr::load(memory.sums, vec![i, j + element]));
                });
            });
        });
    }
}
