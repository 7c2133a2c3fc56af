//! The loops of a launch, and the kernels that pack weights ahead of time.
//!
//! Loops of a grid or of a block are given from the outermost to the innermost, which is along x; the one around it is along
//! y, the third along z.

use super::guards::below;
use super::model::ceil_div;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, Axis, BufferId, DType, Expr, LoopKind, VarId};
use crate::target::Cuda;
use crate::templates::Pack;

/// The name of a loop, and the number of its iterations.
pub(super) type Loop<'a> = (&'a str, i64);

/// The loop over the lanes of a warp.
pub(super) const LANE: Loop<'static> = ("lane", Cuda::WARP);

/// Loops over the blocks of a grid.
pub(super) fn grid<const N: usize>(
    b: &mut KernelBuilder,
    loops: [Loop<'_>; N],
    body: impl FnOnce(&mut KernelBuilder, [VarId; N]),
) {
    nest(b, LoopKind::Grid, loops, body);
}

/// Loops over the threads of a block.
pub(super) fn threads<const N: usize>(
    b: &mut KernelBuilder,
    loops: [Loop<'_>; N],
    body: impl FnOnce(&mut KernelBuilder, [VarId; N]),
) {
    nest(b, LoopKind::Thread, loops, body);
}

/// The blocks of a grid, and the threads of each.
pub(super) fn launch<const G: usize, const T: usize>(
    b: &mut KernelBuilder,
    blocks: [Loop<'_>; G],
    block: [Loop<'_>; T],
    body: impl FnOnce(&mut KernelBuilder, [VarId; G], [VarId; T]),
) {
    grid(b, blocks, |b, blocks| threads(b, block, |b, block| body(b, blocks, block)));
}

/// The blocks of a cluster: `body` gets their rank, which is 0 where a cluster is one block.
pub(super) fn cluster(b: &mut KernelBuilder, blocks: i64, body: impl FnOnce(&mut KernelBuilder, Expr)) {
    match blocks {
        1 => body(b, Expr::Int(0)),
        n => b.loop_("rank", n, LoopKind::Cluster(Axis::X), |b, rank| body(b, rank.into())),
    }
}

fn nest<const N: usize>(
    b: &mut KernelBuilder,
    kind: fn(Axis) -> LoopKind,
    loops: [Loop<'_>; N],
    body: impl FnOnce(&mut KernelBuilder, [VarId; N]),
) {
    let (mut body, mut vars) = (Some(body), vec![]);
    inside(b, kind, &loops, &mut vars, &mut |b, vars| {
        let body = body.take().expect("a nest has one body");
        body(b, std::array::from_fn(|i| vars[i]));
    });
}

/// The loops, and what is inside of the innermost.
fn inside(
    b: &mut KernelBuilder,
    kind: fn(Axis) -> LoopKind,
    loops: &[Loop<'_>],
    vars: &mut Vec<VarId>,
    body: &mut dyn FnMut(&mut KernelBuilder, &[VarId]),
) {
    let [(name, extent), inner @ ..] = loops else { return body(b, vars) };
    let axis = [Axis::X, Axis::Y, Axis::Z][inner.len()];
    b.loop_(name, *extent, kind(axis), |b, var| {
        vars.push(var);
        inside(b, kind, inner, vars, body);
    });
}

/// A loop that is written out.
pub(super) fn unrolled(b: &mut KernelBuilder, name: &str, extent: i64, body: impl FnOnce(&mut KernelBuilder, VarId)) {
    b.loop_(name, extent, LoopKind::Unrolled, body);
}

/// Visits the elements `0..count` with the threads of a block, of which this is `thread` of `threads`.
pub(super) fn share(
    b: &mut KernelBuilder,
    threads: i64,
    thread: Expr,
    count: i64,
    body: impl FnOnce(&mut KernelBuilder, Expr),
) {
    b.for_("turn", ceil_div(count, threads), |b, turn| {
        let element = turn * threads + thread;
        b.when(below(element.clone(), count, threads), |b| body(b, element));
    });
}

/// A parameter of a kernel that packs: its name, type and shape.
pub(super) type Original<'a> = (&'a str, DType, &'a [i64]);

/// What packs a parameter: the kernel from the original to a tensor of the type and shape `to`. `body` gets both, and the loops.
pub(super) fn pack<const G: usize, const T: usize>(
    (name, dtype, shape): Original<'_>,
    to: (DType, &[i64]),
    blocks: [Loop<'_>; G],
    block: [Loop<'_>; T],
    body: impl FnOnce(&mut KernelBuilder, [BufferId; 2], [VarId; G], [VarId; T]),
) -> Pack {
    let mut b = KernelBuilder::new(format!("pack_{name}"));
    let original = b.param(name, dtype, shape, Access::Read);
    let packed = b.param("packed", to.0, to.1, Access::Write);
    launch(&mut b, blocks, block, |b, blocks, block| body(b, [original, packed], blocks, block));
    Pack { param: name.into(), kernel: b.finish() }
}

/// As [`pack`], with a block for each row of the packed tensor, whose elements its threads share: `body` gets the element's place
/// in the row.
pub(super) fn pack_rows<const G: usize>(
    original: Original<'_>,
    to: (DType, &[i64]),
    rows: [Loop<'_>; G],
    thread: Loop<'_>,
    body: impl FnOnce(&mut KernelBuilder, [BufferId; 2], [VarId; G], Expr),
) -> Pack {
    let length = to.1.last().copied().unwrap_or(1);
    pack(original, to, rows, [thread], |b, buffers, row, [t]| {
        share(b, thread.1, t.into(), length, |b, place| body(b, buffers, row, place));
    })
}
