//! Templates for the CPU.
//!
//! All of them end in the same micro-kernel shape: a tile of accumulators in vector registers, a loop over the
//! reduction that loads one row of vectors and broadcasts one scalar per accumulator row, and an epilogue on the tile
//! before it leaves for memory. They differ in which operator dimension runs along the lanes:
//!
//! | template | lanes | rows of the tile | for |
//! |---|---|---|---|
//! | [`conv2d_direct`] | output channels | pixels of an output row | any convolution that sums over channels |
//! | [`conv2d_pixels`] | pixels of a row | output channels | few input channels, NCHW, f32 |
//! | [`conv2d_skip`] | output channels | pixels of output rows | padding on small maps, NCHW, f32 |
//! | [`winograd`] | output channels | tiles of pixels | 3, 5 or 7 taps a side, 3 with stride 2, f32 |
//! | [`conv2d_pointwise`] | pixels | output channels | 1x1, stride 1, NCHW |
//! | [`matmul_packed`] | columns of B | rows of A | products |
//! | [`matmul_dot`] | the reduction | rows of A and columns of B | products with few columns |
//! | [`depthwise_rows`] | pixels (NCHW) or channels | output rows | depthwise |
//! | [`depthwise_pointwise`] | pixels | output channels | a depthwise convolution and the 1x1 after it, NCHW |
//! | [`plain`] | - | - | everything, correctly |
//!
//! [`sketch`](super::sketch) derives such a schedule for any kernel by rules.

pub mod conv2d_direct;
pub mod conv2d_pixels;
pub mod conv2d_pointwise;
pub mod conv2d_skip;
pub mod depthwise_pointwise;
pub mod depthwise_rows;
pub mod matmul_dot;
pub mod matmul_packed;
mod pack_weights;
pub mod plain;
pub mod tile;
pub mod winograd;

use super::{Pack, TemplateError};
use crate::analysis::affine::Affine;
use crate::ir::visit::find_loop;
use crate::ir::{BufferId, Stmt, VarId};
use crate::schedule::transform_layout::LayoutDim;
use crate::schedule::{Schedule, Tail};

/// Makes a block of `loops`, a perfect nest around the one statement that writes `stage`, into straight vector code:
/// reduce loops outside, then the spatial loops unrolled, and innermost the lanes along the dimension that is contiguous
/// in `stage`.
pub(super) fn vectorize_block(
    s: &mut Schedule,
    stage: BufferId,
    loops: &[VarId],
    lanes: i64,
) -> Result<(), TemplateError> {
    let limit = |text: &str| TemplateError::Limit(format!("{text} `{}`", s.kernel.buffer(stage).name));
    let (last_index, reduce) = written_index(&s.kernel.body, stage, loops).ok_or_else(|| limit("no block writes"))?;
    let (over, spatial): (Vec<VarId>, Vec<VarId>) = loops.iter().copied().partition(|v| reduce.contains(v));
    let affine = Affine::of(&last_index);
    // A dimension of one element has no loop to speak of; the block is then scalar code.
    let contiguous = spatial.iter().copied().find(|v| affine.as_ref().is_some_and(|a| a.coefficient(*v) == 1));
    let mut order = over;
    let mut unrolled: Vec<VarId> = spatial.into_iter().filter(|v| Some(*v) != contiguous).collect();
    order.extend(&unrolled);
    let mut lane = contiguous;
    if let Some(along) = contiguous
        && extent(s, along) > lanes
    {
        let [vector, rest] = s.split(along, lanes, Tail::Guard)?;
        order.push(vector);
        unrolled.push(vector);
        lane = Some(rest);
    }
    order.extend(lane);
    s.reorder(&order)?;
    for v in unrolled {
        s.unroll(v)?;
    }
    if let Some(lane) = lane {
        vectorize(s, lane)?;
    }
    Ok(())
}

/// Iterations of a loop.
pub(super) fn extent(s: &Schedule, v: VarId) -> i64 {
    find_loop(&s.kernel.body, v).map_or(0, |l| l.extent)
}

/// Splits a loop by a piece size, or by its length where that is shorter: pieces are never mostly empty.
pub(super) fn pieces(s: &mut Schedule, v: VarId, size: i64) -> Result<[VarId; 2], TemplateError> {
    let size = size.min(extent(s, v));
    Ok(s.split(v, size, Tail::Guard)?)
}

/// Makes a loop the lanes of a vector, unless it has one iteration only.
pub(super) fn vectorize(s: &mut Schedule, v: VarId) -> Result<(), TemplateError> {
    if extent(s, v) > 1 {
        s.vectorize(v)?;
    }
    Ok(())
}

/// Gives a parameter a layout of the kernel's own.
pub(super) fn pack_param(s: &mut Schedule, param: BufferId, layout: &[LayoutDim]) -> Result<Pack, TemplateError> {
    let name = s.kernel.buffer(param).name.clone();
    // A block of one is the dimension itself.
    let inner_of_one = |d: &LayoutDim| *d == LayoutDim::inner(d.dim, 1);
    let layout: Vec<LayoutDim> = layout.iter().copied().filter(|d| !inner_of_one(d)).collect();
    let kernel = s.transform_layout(param, &layout)?;
    let kernel = kernel.ok_or_else(|| TemplateError::Limit(format!("`{name}` is not a parameter to pack")))?;
    Ok(Pack { param: name, kernel })
}

/// Copies a stage's innermost dimension in vectors.
pub(super) fn vectorize_rows(s: &mut Schedule, stage: BufferId, lanes: i64) -> Result<(), TemplateError> {
    if let Some(along) = s.loops_of(stage).last().copied() {
        let [_, lane] = pieces(s, along, lanes)?;
        vectorize(s, lane)?;
    }
    Ok(())
}

/// The last index of the statement that writes `stage` inside the first of `loops`, and its reduce loops.
fn written_index(body: &[Stmt], stage: BufferId, loops: &[VarId]) -> Option<(crate::ir::Expr, Vec<VarId>)> {
    let nest = find_loop(body, *loops.first()?)?;
    let mut found = None;
    for s in &nest.body {
        s.walk(&mut |s| match s {
            Stmt::Store { buffer, indices, .. } if *buffer == stage => {
                found = indices.last().map(|i| (i.clone(), vec![]));
            }
            Stmt::Reduce { buffer, indices, over, .. } if *buffer == stage => {
                found = indices.last().map(|i| (i.clone(), over.clone()));
            }
            _ => {}
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::target::Target;
    use crate::templates::Registry;
    use crate::workload::{Conv2d, ConvLayout, Matmul, Workload};

    #[test]
    fn of_the_products_those_with_few_columns_are_expected_to_do_best_with_lanes_along_the_reduction() {
        let registry = Registry::builtin();
        let target = Target::find("x86-64-v4").expect("a built-in target");
        let us = |m: Matmul, name: &str| {
            let (w, t) = (Workload::f32(m), registry.find(name).expect("a built-in template"));
            t.cost(&w, target, &t.default_config(&w, target).unwrap())
        };
        let transposed = Matmul { trans_b: true, ..Matmul::new(8, 1000, 2048) };
        for (m, packed) in
            [(transposed, true), (Matmul::new(1024, 1, 1024), false), (Matmul::new(1024, 4, 1024), false)]
        {
            assert_eq!(us(m, "matmul_packed") < us(m, "matmul_dot"), packed, "{m:?}");
        }
    }

    #[test]
    fn the_default_of_every_template_is_in_its_space() {
        let layouts = [ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::NchwC(16)];
        let convs = [
            Conv2d::nchw(1, 64, 56, 56, 64, 3, 1, 1),
            Conv2d::nchw(1, 32, 1, 1, 512, 1, 1, 0),
            Conv2d::nchw(1, 32, 7, 7, 1024, 1, 1, 0),
            Conv2d::nchw(2, 48, 13, 9, 48, 3, 2, 1).depthwise(1),
        ];
        let products = [[1, 1000, 512], [1, 4096, 512], [2, 7, 3], [512, 512, 512]];
        let mut workloads: Vec<Workload> =
            products.iter().map(|&[m, n, k]| Workload::f32(Matmul::new(m, n, k))).collect();
        for layout in layouts {
            workloads.extend(convs.iter().map(|c| Workload::f32(Conv2d { layout, ..*c })));
        }
        let registry = Registry::builtin();
        for target in Target::all().iter().filter(|t| t.cpu().is_some()) {
            for w in &workloads {
                for t in registry.applicable(w, target) {
                    let config = t.default_config(w, target).unwrap();
                    let index = t.space(w, target).unwrap().index_of(&config);
                    assert!(index.is_ok(), "{} of {} on {}: {config}: {index:?}", t.name(), w.key(), target.name);
                }
            }
        }
    }
}
