//! Operators that share numbers along a row: which stages these are, and where a schedule computes them.

use crate::ir::{BufferId, DType, Scope, VarId};
use crate::schedule::{Schedule, ScheduleError};
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
