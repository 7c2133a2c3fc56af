//! The schedule of "How to optimize convolution using TensorCores" (Siyuan Feng, Apache TVM), call by call.

use kernel_gen::ir::{Axis, DType, LoopKind, Scope, Unit};
use kernel_gen::schedule::{Intrinsic, Schedule, ScheduleError, Tail, wmma};
use kernel_gen::workload::{Workload, naive_with_sums};

const BLOCK: fn(Axis) -> LoopKind = LoopKind::Grid;
const THREAD: fn(Axis) -> LoopKind = LoopKind::Thread;

/// The registers of a warp: the tutorial's `wmma.matrix_a`, `wmma.matrix_b` and `wmma.accumulator`.
const FRAGMENT: Scope = Scope::Fragment(Unit::Warp);

/// The tutorial's schedule of a convolution in NHWC16n16c with a stride of 1 and operands in `f16`. Sums are in the output's
/// type: those in `f16` take half the registers of those in `f32`, and keep 11 bits.
///
/// Devices of compute capability 7.0 and later run it; the statements are the same for all of them.
#[allow(non_snake_case, reason = "the tutorial's names")]
pub(crate) fn opt_conv_tensorcore(workload: &Workload) -> Result<Schedule, ScheduleError> {
    let sums = workload.out_dtype;
    let mut s = Schedule::new(naive_with_sums(workload, sums));
    let [Apad, W, ConvF, Conv] = [s.stage("pad")?, s.stage("w")?, s.stage("acc")?, s.stage("y")?];
    s.compute_inline(Apad)?;

    // Designate the memory hierarchy
    let AS = s.cache_read(Apad, Scope::Shared, &[ConvF])?;
    let WS = s.cache_read(W, Scope::Shared, &[ConvF])?;
    let AF = s.cache_read(AS, FRAGMENT, &[ConvF])?;
    let WF = s.cache_read(WS, FRAGMENT, &[ConvF])?;
    s.set_scope(ConvF, FRAGMENT)?;

    // Define tiling sizes
    let (block_row_warps, block_col_warps) = (4, 2);
    let (warp_row_tiles, warp_col_tiles) = (2, 4);
    let (warp_size, chunk) = (32, 2);

    let [nc, hc, wc, oc, nnc, ooc] = s.axes(Conv)?;
    let block_k = s.fuse(hc, wc)?;
    s.bind(block_k, BLOCK(Axis::Z))?;
    let [nc, nci] = s.split(nc, warp_row_tiles, Tail::Perfect)?;
    let [block_i, nc] = s.split(nc, block_row_warps, Tail::Perfect)?;
    let [oc, oci] = s.split(oc, warp_col_tiles, Tail::Perfect)?;
    let [block_j, oc] = s.split(oc, block_col_warps, Tail::Perfect)?;
    s.reorder(&[block_k, block_i, block_j, nc, oc, nci, oci, nnc, ooc])?;
    s.bind(block_i, BLOCK(Axis::X))?;
    s.bind(block_j, BLOCK(Axis::Y))?;
    s.bind(nc, THREAD(Axis::Y))?;
    s.bind(oc, THREAD(Axis::Z))?;

    // Schedule local computation
    s.compute_at(ConvF, oc)?;
    let [n, _h, _w, o, nnf, oof, ic, kh, kw, ii] = s.axes(ConvF)?;
    let [ko, ki] = s.split(ic, chunk, Tail::Perfect)?;
    s.reorder(&[ko, kh, ki, kw, n, o, nnf, oof, ii])?;

    // Move intermediate computation into each output compute tile
    s.compute_at(AF, kw)?;
    s.compute_at(WF, kw)?;

    // Schedule for A's shared memory
    s.compute_at(AS, kh)?;
    let [na, _h, wa, ia, nn, iia] = s.axes(AS)?;
    let [tx, xo] = s.split_nparts(na, block_row_warps)?;
    let [ty, _yo] = s.split_nparts(xo, block_col_warps)?;
    let t = s.fuse(nn, iia)?;
    let [to, ti] = s.split(t, warp_size, Tail::Perfect)?;
    s.reorder(&[wa, ia, tx, ty, to, ti])?;
    s.bind(tx, THREAD(Axis::Y))?;
    s.bind(ty, THREAD(Axis::Z))?;
    s.bind(ti, THREAD(Axis::X))?;
    s.unroll(to)?;
    // Whether a tap meets the padding is the same for all threads: a branch around plain copies
    s.branch(AS)?;

    // Schedule for W's shared memory
    s.compute_at(WS, kh)?;
    let [_kh, _kw, _ic, ow, iiw, oow] = s.axes(WS)?;
    let [tx, xo] = s.split_nparts(ow, block_row_warps)?;
    let [ty, _yo] = s.split_nparts(xo, block_col_warps)?;
    let t = s.fuse(iiw, oow)?;
    let [to, ti] = s.split_nparts(t, warp_size)?;
    s.bind(tx, THREAD(Axis::Y))?;
    s.bind(ty, THREAD(Axis::Z))?;
    s.bind(to, THREAD(Axis::X))?;
    s.vectorize(ti)?;

    // Lowering computation to intrinsics
    let load: Intrinsic = wmma::load([16, 16], DType::F16, Scope::Shared)?;
    let [na, _, _, _, nna, _] = s.axes(AF)?;
    s.unroll(na)?;
    s.tensorize(nna, &load)?;
    let [_, _, _, ow, iiw, _] = s.axes(WF)?;
    s.unroll(ow)?;
    s.tensorize(iiw, &load)?;
    for tiles in [n, o, nci, oci] {
        s.unroll(tiles)?;
    }
    s.tensorize(nnc, &wmma::store([16, 16], sums, sums, Scope::Global)?)?;
    s.tensorize(nnf, &wmma::mma(wmma::M16N16K16, DType::F16, sums)?)?;
    Ok(s)
}
