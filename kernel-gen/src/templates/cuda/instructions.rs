//! Instructions of a GPU, as kernels say them: tiles, copies, boxes that the copy engine brings, and products of the tensor cores.

use super::launch::share;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, Gpu, Operand, Slot, Tile, Unit, VarId};

/// A tile with the extents `last` along the last dimensions, and 1 along those before.
pub(super) fn tile(buffer: BufferId, origin: impl Into<Vec<Expr>>, last: &[i64]) -> Tile {
    let origin = origin.into();
    let ones = origin.len() - last.len();
    let extents = (0..ones).map(|_| 1).chain(last.iter().copied()).collect();
    Tile { buffer, origin, extents }
}

/// Copies `width` neighbours from global to shared memory by `cp.async`. Each side is a buffer and the index of its first element.
/// Where `guard` does not hold, zeros arrive.
pub(super) fn copy_async(
    b: &mut KernelBuilder,
    to: (BufferId, impl Into<Vec<Expr>>),
    from: (BufferId, impl Into<Vec<Expr>>),
    width: i64,
    guard: Option<Expr>,
) {
    b.gpu(Gpu::CopyAsync { dst: tile(to.0, to.1, &[width]), src: tile(from.0, from.1, &[width]), guard });
}

/// Loads a box of a tensor into shared memory by the copy engine (TMA). The barrier `on` counts its bytes.
pub(super) fn load_box(b: &mut KernelBuilder, dst: Tile, src: Tile, on: Slot) {
    b.gpu(Gpu::TensorLoad { dst, src, steps: vec![], on, multicast: None });
}

/// Sets the sums of a fragment to zero.
pub(super) fn clear(b: &mut KernelBuilder, sums: Tile) {
    let value = Expr::zero(b.dtype(sums.buffer));
    b.gpu(Gpu::Fill { dst: sums, value });
}

/// `sums += left * right` by the tensor cores. Each operand comes with whether it is transposed.
pub(super) fn multiply(b: &mut KernelBuilder, unit: Unit, sums: Tile, left: (Tile, bool), right: (Tile, bool)) {
    let [left, right] = [left, right].map(|(tile, transposed)| Operand { tile, transposed });
    b.gpu(Gpu::Mma { unit, acc: sums, a: left, b: right });
}

/// Copies a tile of packed 16-bit weights by `cp.async`, with all threads of a block. Rows lie in shared memory as they do in `from`,
/// whose first index is the tile.
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
