//! How weights are packed: scaled, split, and in the order of steps.

use super::plan::{DEPTH, Plan, REST};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BinOp, BufferId, DType, Expr, Scope, UnOp, VarId};
use crate::templates::Pack;
use crate::templates::cuda::guards::below;
use crate::templates::cuda::launch;
use crate::templates::cuda::launch::unrolled;
use crate::templates::cuda::model::ceil_div;
use crate::workload::Param;

/// Threads of a block: two steps of a column.
const THREADS: i64 = 2 * DEPTH;

/// What a column's weights are scaled by is a power of two between these, and so that the largest is below `CEILING` and not
/// below half of it.
const DOUBLINGS: i64 = 120;
const CEILING: f64 = 16384.0;

/// The inverse of that is the product of so many factors, each a power of two that `f16` holds.
pub(super) const FACTORS: i64 = 8;
const LARGEST_FACTOR: f64 = 32768.0;

/// The shape of the packed weights: for each tile of columns and each step the parts, each `columns x DEPTH`. Behind the last
/// step is one whose first part begins with the factors of each column.
pub(super) fn shape(plan: &Plan) -> Vec<i64> {
    plan.cut().packed_shape(plan.cut().steps() + 1)
}

/// The kernel that packs: a block for each column, also for those that only fill the last tile, whose weights are zeros.
pub(super) fn pack(plan: &Plan, weight: &Param) -> Pack {
    let (from, to) = ((weight.name, DType::F32, &weight.shape[..]), (DType::F16, &shape(plan)[..]));
    let loops = [("tile", plan.cut().column_tiles()), ("within", plan.sizes.bn)];
    launch::pack(from, to, loops, [("t", THREADS)], |b, [weights, packed], [tile, within], [t]| {
        let column = Column { plan, weights, packed, tile, within, t };
        let scale = column.scale(b);
        column.weights(b, scale);
        column.factors(b, scale);
    })
}

/// A thread of a column's block.
struct Column<'a> {
    plan: &'a Plan,
    weights: BufferId,
    packed: BufferId,
    tile: VarId,
    within: VarId,
    t: VarId,
}

impl Column<'_> {
    /// Visits this thread's weights: their step, their place in it, and what they are.
    fn each(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, VarId, Expr, Expr)) {
        let (cut, at_once) = (self.plan.cut(), THREADS / DEPTH);
        b.for_("turn", ceil_div(cut.steps(), at_once), |b, turn| {
            let step = b.let_("step", turn * at_once + Expr::from(self.t).floor_div(DEPTH));
            let place = Expr::from(self.t).floor_mod(DEPTH);
            let visit = |b: &mut KernelBuilder| {
                let column = self.tile * cut.bn + self.within;
                let value = cut.weight(b, self.weights, step, place.clone(), column);
                body(b, step, place, value);
            };
            b.when(below(step, cut.steps(), at_once), visit);
        });
    }

    /// What the column's weights are multiplied by, in a register.
    fn scale(&self, b: &mut KernelBuilder) -> BufferId {
        let largest = b.alloc("largest", DType::F32, &[1], Scope::Register);
        let of = |buffer| Expr::load(buffer, vec![0.into()]);
        b.store(largest, [0.into()], Expr::f32(0.0));
        self.each(b, |b, _, _, value| {
            b.store(largest, [0.into()], of(largest).max(Expr::un(UnOp::Abs, value)));
        });
        let all = b.alloc("all", DType::F32, &[THREADS], Scope::Shared);
        b.store(all, [self.t.into()], of(largest));
        b.for_("thread", THREADS, |b, other| {
            b.store(largest, [0.into()], of(largest).max(Expr::load(all, vec![other.into()])));
        });
        let scale = b.alloc("scale", DType::F32, &[1], Scope::Register);
        b.store(scale, [0.into()], Expr::f32(1.0));
        let scaled = || of(largest) * of(scale);
        b.for_("doubling", DOUBLINGS, |b, _| {
            b.if_(scaled().lt(Expr::f32(CEILING / 2.0)), |b| {
                b.store(scale, [0.into()], of(scale) * Expr::f32(2.0));
            });
        });
        b.for_("halving", DOUBLINGS, |b, _| {
            b.if_(Expr::f32(CEILING).le(scaled()), |b| {
                b.store(scale, [0.into()], of(scale) * Expr::f32(0.5));
            });
        });
        scale
    }

    /// Splits this thread's weights.
    fn weights(&self, b: &mut KernelBuilder, scale: BufferId) {
        let of = |buffer| Expr::load(buffer, vec![0.into()]);
        let scale = || of(scale);
        let whole = b.alloc("whole", DType::F32, &[1], Scope::Register);
        let first = b.alloc("first", DType::F16, &[1], Scope::Register);
        self.each(b, |b, step, place, value| {
            b.store(whole, [0.into()], value * scale());
            b.store(first, [0.into()], of(whole));
            let to = |part: i64| [self.tile.into(), step.into(), part.into(), self.within.into(), place.clone()];
            b.store(self.packed, to(0), of(first));
            b.store(self.packed, to(1), (of(whole) - of(first)) * Expr::f32(REST));
        });
    }

    /// Stores the factors of one over the scale, and zeros behind them.
    fn factors(&self, b: &mut KernelBuilder, scale: BufferId) {
        let [rest, power, own] = ["rest", "power", "own"].map(|name| b.alloc(name, DType::F32, &[1], Scope::Register));
        let of = |buffer| Expr::load(buffer, vec![0.into()]);
        let part = Expr::from(self.t).floor_div(DEPTH);
        let place = Expr::from(self.t).floor_mod(DEPTH);
        b.store(rest, [0.into()], Expr::bin(BinOp::Div, Expr::f32(1.0), of(scale)));
        b.store(own, [0.into()], Expr::f32(0.0));
        unrolled(b, "factor", FACTORS, |b, factor| {
            let value = of(rest).max(Expr::f32(1.0 / LARGEST_FACTOR)).min(Expr::f32(LARGEST_FACTOR));
            b.store(power, [0.into()], value);
            b.if_(part.clone().eq(0).and(place.clone().eq(factor)), |b| b.store(own, [0.into()], of(power)));
            b.store(rest, [0.into()], Expr::bin(BinOp::Div, of(rest), of(power)));
        });
        let to = [self.tile.into(), self.plan.cut().steps().into(), part, self.within.into(), place];
        b.store(self.packed, to, of(own));
    }
}
