//! How sums become outputs.

use crate::ir::builder::KernelBuilder;
use crate::ir::{Expr, LoopKind};
use crate::workload::Workload;
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;

/// Stores what the epilogue makes of a sum: of the output at `index`, whose channel is `channel`.
pub(super) fn finish(
    b: &mut KernelBuilder,
    (w, params): (&Workload, &Operands),
    channel: &Expr,
    index: impl Into<Vec<Expr>>,
    sum: Expr,
) {
    let index = index.into();
    let value = epilogue(w, sum, channel, &index, params);
    b.store(params.output(), index, value);
}

/// Does something with each of `count` neighbours: a vector's elements, where there are several.
pub(super) fn each_element(b: &mut KernelBuilder, count: i64, one: impl FnOnce(&mut KernelBuilder, Expr)) {
    match count {
        1 => one(b, 0.into()),
        n => b.loop_("element", n, LoopKind::Vectorized, |b, element| one(b, element.into())),
    }
}
