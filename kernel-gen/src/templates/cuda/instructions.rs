//! Instructions of a GPU, as kernels say them: tiles, copies, boxes that the copy engine brings, and products of the tensor cores.

use super::launch::share;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, Gpu, Operand, Slot, Tile, Unit, VarId};

/// A tile that spans so many elements of the last dimensions, and one of each before.
pub(super) fn tile(buffer: BufferId, origin: impl Into<Vec<Expr>>, last: &[i64]) -> Tile {
    let origin = origin.into();
    let ones = origin.len() - last.len();
    let extents = (0..ones).map(|_| 1).chain(last.iter().copied()).collect();
    Tile { buffer, origin, extents }
}

/// Has `width` neighbours copied from an element of global memory to one of shared memory by `cp.async`; where `guard` does not
/// hold, zeros come.
pub(super) fn copy_async(
    b: &mut KernelBuilder,
    to: (BufferId, impl Into<Vec<Expr>>),
    from: (BufferId, impl Into<Vec<Expr>>),
    width: i64,
    guard: Option<Expr>,
) {
    b.gpu(Gpu::CopyAsync { dst: tile(to.0, to.1, &[width]), src: tile(from.0, from.1, &[width]), guard });
}

/// Has the copy engine bring a box of a tensor to shared memory, which the barrier `on` counts.
pub(super) fn load_box(b: &mut KernelBuilder, dst: Tile, src: Tile, on: Slot) {
    b.gpu(Gpu::TensorLoad { dst, src, steps: vec![], on, multicast: None });
}

/// Sets the sums of a fragment to zero.
pub(super) fn clear(b: &mut KernelBuilder, sums: Tile) {
    b.gpu(Gpu::Fill { dst: sums, value: Expr::f32(0.0) });
}

/// `sums += left * right` by the tensor cores. Of each operand comes whether it lies transposed.
pub(super) fn multiply(b: &mut KernelBuilder, unit: Unit, sums: Tile, left: (Tile, bool), right: (Tile, bool)) {
    let [left, right] = [left, right].map(|(tile, transposed)| Operand { tile, transposed });
    b.gpu(Gpu::Mma { unit, acc: sums, a: left, b: right });
}

/// Has the threads of a block bring a tile of packed 16-bit weights by `cp.async`: rows lie in shared memory as they do
/// in `from`, whose first index is the tile.
pub(super) fn fetch_image(
    b: &mut KernelBuilder,
    (thread, threads): (Expr, i64),
    [rows, pitch]: [i64; 2],
    (from, number): (BufferId, VarId),
    to: BufferId,
) {
    const VECTOR: i64 = 8;
    let per_row = pitch / VECTOR;
    share(b, threads, thread, rows * per_row, |b, piece| {
        let (row, at) = (piece.clone().floor_div(per_row), piece.floor_mod(per_row) * VECTOR);
        copy_async(b, (to, [row.clone(), at.clone()]), (from, [number.into(), row, at]), VECTOR, None);
    });
}
