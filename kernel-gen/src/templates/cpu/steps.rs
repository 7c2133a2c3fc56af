//! Steps of a schedule that several templates for the CPU take.

use crate::analysis::affine::Affine;
use crate::ir::builder::KernelBuilder;
use crate::ir::visit::find_loop;
use crate::ir::{BufferId, Expr, LoopKind, Stmt, VarId};
use crate::schedule::transform_layout::LayoutDim;
use crate::schedule::{Schedule, Tail};
use crate::templates::{Pack, TemplateError};

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
pub(in crate::templates) fn extent(s: &Schedule, v: VarId) -> i64 {
    find_loop(&s.kernel.body, v).map_or(0, |l| l.extent)
}

/// Splits a loop by a piece size, or by its length where that is shorter: pieces are never mostly empty.
pub(in crate::templates) fn pieces(s: &mut Schedule, v: VarId, size: i64) -> Result<[VarId; 2], TemplateError> {
    let size = size.min(extent(s, v));
    Ok(s.split(v, size, Tail::Guard)?)
}

/// Makes a loop the lanes of a vector, unless it has one iteration only.
pub(in crate::templates) fn vectorize(s: &mut Schedule, v: VarId) -> Result<(), TemplateError> {
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

/// Neighbours that a vector holds.
pub(super) struct Piece {
    /// The first.
    pub(super) first: Expr,
    /// How many there are; fewer than lanes at the end.
    pub(super) lanes: i64,
}

/// Goes through `all` rows of a plane in blocks of `rows`, with fewer in the last one. In each block `down` makes one line after the
/// other, then `along` goes along each; both get the number of the row within its block, and in the plane.
pub(super) fn each_block(
    b: &mut KernelBuilder,
    [all, rows]: [i64; 2],
    down: impl Fn(&mut KernelBuilder, VarId, VarId),
    along: impl Fn(&mut KernelBuilder, VarId, VarId),
) {
    let block = |b: &mut KernelBuilder, first: Expr, rows: i64| {
        b.for_("r", rows, |b, r| {
            let oh = b.let_("oh", first.clone() + r);
            down(b, r, oh);
        });
        b.for_("r", rows, |b, r| {
            let oh = b.let_("oh", first + r);
            along(b, r, oh);
        });
    };
    if all >= rows {
        b.for_("block", all / rows, |b, number| block(b, number * rows, rows));
    }
    if all % rows > 0 {
        block(b, Expr::Int(all / rows * rows), all % rows);
    }
}

/// Visits `count` neighbours in vectors of `lanes`, `several` vectors in a step and those that are left one by one: `body` gets the number
/// of the vector within its step. With a fetch distance, a step prefetches what a later step reads, that many steps ahead.
pub(super) fn each_piece(
    b: &mut KernelBuilder,
    [count, lanes, several]: [i64; 3],
    ahead: Option<i64>,
    body: impl Fn(&mut KernelBuilder, VarId, Piece),
) {
    let (vectors, tail) = (count / lanes, count % lanes);
    let (steps, rest) = (vectors / several, vectors % several);
    if steps > 0 {
        let all = |b: &mut KernelBuilder, step: VarId| {
            b.loop_("vector", several, LoopKind::Unrolled, |b, v| {
                body(b, v, Piece { first: (step * several + v) * lanes, lanes });
            });
        };
        match ahead {
            Some(steps_ahead) => b.for_fetching("step", steps, steps_ahead, all),
            None => b.for_("step", steps, all),
        }
    }
    if rest > 0 {
        b.loop_("vector", rest, LoopKind::Unrolled, |b, v| {
            body(b, v, Piece { first: (v + steps * several) * lanes, lanes });
        });
    }
    if tail > 0 {
        b.loop_("vector", 1, LoopKind::Unrolled, |b, v| {
            body(b, v, Piece { first: Expr::Int(vectors * lanes), lanes: tail });
        });
    }
}

/// The last index of the statement that writes `stage` inside the first of `loops`, and its reduce loops.
fn written_index(body: &[Stmt], stage: BufferId, loops: &[VarId]) -> Option<(Expr, Vec<VarId>)> {
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
