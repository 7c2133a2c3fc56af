//! Operators that share numbers along a row: which stages these are, and where a schedule computes them. And operators as matrices
//! whose rows lie in memory one after the other: what a stage says of an element of one.

use crate::ir::{BinOp, BufferId, DType, Expr, Scope, UnOp, VarId};
use crate::schedule::{Schedule, ScheduleError};
use crate::workload::stage::{AxisRole, Stage, input, result};
use crate::workload::{Op, Workload};

/// The stages with one element a row, and the last one, whose elements are those of the output; `None` of an operator that has no
/// such stages.
pub(super) fn row_stages(w: &Workload) -> Option<Vec<&'static str>> {
    let stages = w.op.get().stages(w.dtype, DType::F32);
    let rank = w.output_shape().len();
    stages.iter().any(|stage| stage.shape.len() < rank).then(|| stages.iter().map(|stage| stage.name).collect())
}

/// Whether the elements of a row lie side by side.
pub(super) fn rows_are_contiguous(w: &Workload) -> bool {
    !matches!(w.op, Op::ChannelSoftmax(_))
}

/// The loops of an output whose rows share numbers: over rows, those within a row, and the last of these. A row of three dimensions is a
/// group of channels, or the channels of a pixel.
pub(super) fn row_loops(s: &mut Schedule, w: &Workload, out: BufferId) -> Result<[VarId; 2], ScheduleError> {
    let loops = s.loops_of(out);
    let [image, channel, column] = loops[..] else { return s.axes(out) };
    if !rows_are_contiguous(w) {
        s.reorder(&[column, channel])?;
        return Ok([s.fuse_all(&[image, column])?, channel]);
    }
    let Op::GroupNorm(norm) = w.op else { return s.axes(out) };
    let [group, _] = s.split_nparts(channel, norm.groups)?;
    Ok([s.fuse_all(&[image, group])?, column])
}

/// Computes the stages in registers: the last one with each element of the output, the others with each row.
pub(super) fn at_rows(s: &mut Schedule, stages: &[&str], row: VarId, column: VarId) -> Result<(), ScheduleError> {
    for (i, name) in stages.iter().enumerate().rev() {
        let stage = s.stage(name)?;
        s.set_scope(stage, Scope::Register)?;
        s.compute_at(stage, if i + 1 == stages.len() { column } else { row })?;
    }
    Ok(())
}

/// The rows and the columns of an operator's input as a matrix, if each of its rows lies in one piece and is made an output by itself: a
/// norm or a softmax of rows, the norm of groups of channels, a reduction over the last dimensions.
pub(super) fn matrix(w: &Workload) -> Option<[i64; 2]> {
    match w.op {
        Op::RowWise(of) => Some([of.rows, of.columns]),
        Op::GroupNorm(of) => Some([of.n * of.groups, of.c / of.groups * of.pixels]),
        Op::Reduce(of) if of.combined.is_sorted() => Some([w.output_shape().iter().product(), w.reduction_length()]),
        _ => None,
    }
}

/// The channel of the output at a place of that matrix.
pub(super) fn matrix_channel(w: &Workload, row: &Expr, column: &Expr) -> Expr {
    match w.op {
        Op::GroupNorm(of) => {
            row.clone().floor_mod(of.groups) * (of.c / of.groups) + column.clone().floor_div(of.pixels)
        }
        Op::Reduce(_) => {
            let axes = w.op.get().output().1;
            let at = axes.iter().position(|axis| axis.role == AxisRole::Channel).expect("every output has channels");
            let inner: i64 = axes[at + 1..].iter().map(|axis| axis.extent).product();
            row.clone().floor_div(inner).floor_mod(axes[at].extent)
        }
        _ => column.clone(),
    }
}

/// What a stage says of an element of a row. `number` gives the number that a stage before has for the row.
pub(super) fn matrix_value(stage: &Stage, element: Option<Expr>, number: &dyn Fn(usize) -> Expr) -> Expr {
    stage.value.clone().map(&mut |e| match (e, &element) {
        (Expr::Load(from, _), Some(element)) if from == input(0) => element.clone(),
        (Expr::Load(from, index), _) => match (0..MOST_STAGES).find(|i| result(*i) == from) {
            Some(i) => number(i),
            None => Expr::Load(from, index),
        },
        (other, _) => other,
    })
}

/// More stages than any operator has.
const MOST_STAGES: usize = 16;

/// Cycles of a vector of a stage's elements, if a core begins about two operations at a time.
pub(super) fn element_cycles(stage: &Stage) -> f64 {
    let mut cycles = 0.5;
    stage.value.walk(&mut |e| {
        cycles += match e {
            Expr::Unary(UnOp::Neg | UnOp::Abs, _) => 0.5,
            Expr::Unary(UnOp::Sqrt, _) | Expr::Binary(BinOp::Div, ..) => 8.0,
            Expr::Unary(..) => 10.0,
            Expr::Binary(BinOp::Max | BinOp::Min, ..) => 2.0,
            Expr::Binary(..) | Expr::Load(..) => 0.5,
            _ => 0.0,
        }
    });
    cycles
}
