//! The sums that a warp's tensor-core products leave in its registers, and their way to memory.

use super::instructions::{clear, tile};
use super::launch::share;
use super::outputs::{each_element, finish};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, LoopKind, Scope, Stmt, VarId};
use crate::target::Cuda;
use crate::workload::Workload;
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;

/// Rows of a product of a warp.
const TILE: i64 = 16;

/// Sums of one warp: a fragment of `[count, 16, columns]`.
pub(super) struct WarpSums {
    pub(super) buffer: BufferId,
    /// How many times sixteen rows there are.
    pub(super) count: i64,
    pub(super) columns: i64,
    /// What rows and columns are called.
    pub(super) names: [&'static str; 2],
}

/// Rows of sums in shared memory, sixteen of each warp.
pub(super) struct Rows {
    pub(super) warps: i64,
    pub(super) warp: VarId,
    pub(super) lane: VarId,
    pub(super) dtype: DType,
    /// Elements from one row to the next.
    pub(super) pitch: i64,
    /// Neighbours of a row that a lane takes at a time.
    pub(super) piece: i64,
}

/// Where the sums of a warp go: to elements of the output with `N` coordinates, the last of which is the channel.
pub(super) struct Destination<'a, const N: usize> {
    pub(super) w: &'a Workload,
    pub(super) params: &'a Operands,
    /// How many there are along each coordinate.
    pub(super) sizes: [i64; N],
    /// The coordinates of a row and a column of the sixteen rows of a number, and the condition that the element exists.
    pub(super) at: &'a dyn Fn(i64, [Expr; 2]) -> ([Expr; N], Option<Expr>),
    /// The index of an element.
    pub(super) index: &'a dyn Fn([Expr; N]) -> Vec<Expr>,
}

impl<const N: usize> Destination<'_, N> {
    /// What the epilogue makes of a sum.
    fn value(&self, sum: Expr, at: [Expr; N]) -> Expr {
        epilogue(self.w, sum, &at[N - 1], &(self.index)(at.clone()), self.params)
    }
}

impl WarpSums {
    /// Sets all of them to zero.
    pub(super) fn clear(&self, b: &mut KernelBuilder) {
        for i in 0..self.count {
            clear(b, tile(self.buffer, [i.into(), 0.into(), 0.into()], &[TILE, self.columns]));
        }
    }

    /// Visits the sums of the sixteen rows from `i * 16` on, each in the lane that has it.
    pub(super) fn each(&self, b: &mut KernelBuilder, i: i64, body: impl FnOnce(&mut KernelBuilder, [VarId; 2], Expr)) {
        let [row, column] = self.names;
        b.loop_(row, TILE, LoopKind::FragmentRow, |b, row| {
            b.loop_(column, self.columns, LoopKind::FragmentCol, |b, column| {
                body(b, [row, column], Expr::load(self.buffer, vec![i.into(), row.into(), column.into()]));
            });
        });
    }

    /// Stores the sixteen rows of number `i` from the registers.
    pub(super) fn store<const N: usize>(&self, b: &mut KernelBuilder, i: i64, to: &Destination<'_, N>) {
        self.each(b, i, |b, [row, column], sum| {
            let (at, exists) = (to.at)(i, [row.into(), column.into()]);
            b.when(exists, |b| finish(b, (to.w, to.params), &at[N - 1], (to.index)(at.clone()), sum));
        });
    }

    /// Stores all rows by way of shared memory, so that a lane stores up to 16 bytes at a time.
    pub(super) fn store_rows<const N: usize>(&self, b: &mut KernelBuilder, rows: &Rows, to: &Destination<'_, N>) {
        let value = |i: i64, [row, column]: [VarId; 2], sum: Expr| {
            // What does not exist takes the epilogue of the nearest that does, so that nothing has to be asked.
            let (at, exists) = (to.at)(i, [row.into(), column.into()]);
            let mut sizes = to.sizes.into_iter();
            let clamp = |at: Expr| match (sizes.next(), &exists) {
                (Some(size), Some(_)) => at.min(size - 1),
                _ => at,
            };
            to.value(sum, at.map(clamp))
        };
        self.by_rows(b, rows, value, |b, i, at, load| {
            let (mut at, exists) = (to.at)(i, at);
            b.when(exists, |b| {
                each_element(b, rows.piece, |b, element| {
                    let value = load(&element);
                    at[N - 1] = at[N - 1].clone() + element;
                    b.store(to.params.output(), (to.index)(at), value);
                });
            });
        });
    }

    /// Puts what `value` makes of the sums into shared memory, sixteen rows at a time, and visits it in pieces of neighbours,
    /// which lanes that are neighbours have: `body` gets the number of the sixteen rows, the piece's first element, and what
    /// loads the element so far behind it.
    pub(super) fn by_rows(
        &self,
        b: &mut KernelBuilder,
        rows: &Rows,
        value: impl Fn(i64, [VarId; 2], Expr) -> Expr,
        body: impl Fn(&mut KernelBuilder, i64, [Expr; 2], &dyn Fn(&Expr) -> Expr),
    ) {
        let warp = rows.warp;
        let shared = b.alloc("rows", rows.dtype, &[rows.warps, TILE, rows.pitch], Scope::Shared);
        let per_row = self.columns / rows.piece;
        for i in 0..self.count {
            if i > 0 {
                b.push(Stmt::Barrier(Barrier::Warp));
            }
            self.each(b, i, |b, [row, column], sum| {
                let value = value(i, [row, column], sum);
                b.store(shared, vec![warp.into(), row.into(), column.into()], value);
            });
            b.push(Stmt::Barrier(Barrier::Warp));
            share(b, Cuda::WARP, rows.lane.into(), TILE * per_row, |b, at| {
                let (row, column) = (at.clone().floor_div(per_row), at.floor_mod(per_row) * rows.piece);
                body(b, i, [row.clone(), column.clone()], &|element| {
                    Expr::load(shared, vec![warp.into(), row.clone(), column.clone() + element.clone()])
                });
            });
        }
    }
}
