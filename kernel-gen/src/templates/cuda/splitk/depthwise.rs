//! The first half of a pair: lanes compute the depthwise results of the channels that their warp multiplies next.

use super::block::Block;
use super::plan::{Plan, WARP, Work, filter_width, halves, row_channels, step_channels, taps};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Scope, VarId};
use crate::templates::cuda::guards::below;
use crate::templates::cuda::instructions::copy_async;
use crate::templates::cuda::launch::{share, unrolled};
use crate::templates::cuda::model::ceil_div;
use crate::workload::DepthwisePointwise;

/// What a warp has of the first half in shared memory. Its channels of a step, those of all groups, stand side by side.
pub(super) struct Depthwise {
    pair: DepthwisePointwise,
    /// `[warp, slot, taps of a step's channels]`.
    filters: BufferId,
    /// `[warp, slot, channel of a step]`, if there are any.
    biases: Option<BufferId>,
    /// `[warp, half, channel of a group, place in the window]`: what the second half takes. While it takes one half, the
    /// results of the next step come into the other; without a step ahead there is only one.
    results: BufferId,
}

/// What lanes have computed and not yet stored.
pub(super) struct Results {
    /// `[turn, row of a run]`.
    values: BufferId,
    /// Of each turn the channel of a group and the first place in the window, and whether there are such results.
    places: Vec<([Expr; 2], Option<Expr>)>,
}

impl Depthwise {
    pub(super) fn alloc(b: &mut KernelBuilder, plan: &Plan, pair: DepthwisePointwise) -> Depthwise {
        let (sizes, together) = (plan.sizes, step_channels(plan));
        let mut shared = |name: &str, shape: &[i64]| b.alloc(name, DType::F32, shape, Scope::Shared);
        Depthwise {
            pair,
            filters: shared("filters", &[sizes.warps, sizes.stages, together * taps(&pair)]),
            biases: pair.bias.then(|| shared("biases", &[sizes.warps, sizes.stages, together])),
            results: shared("mid", &[sizes.warps, halves(plan), sizes.step, plan.multiplied().elements()]),
        }
    }

    /// Sets the places between the results' rows to zero, which vectors of results bring along.
    pub(super) fn clear(&self, b: &mut KernelBuilder, block: &Block) {
        let window = block.plan.multiplied();
        if window.reach(1) == window.pitch() {
            return;
        }
        let elements = block.plan.sizes.step * window.elements();
        share(b, WARP, block.lane.into(), halves(block.plan) * elements, |b, at| {
            let half = at.clone().floor_div(elements);
            let part = at.clone().floor_mod(elements).floor_div(window.elements());
            b.store(self.results, vec![block.warp.into(), half, part, at.floor_mod(window.elements())], Expr::f32(0.0));
        });
    }

    /// Has the filters and biases of step `k` brought to a slot.
    pub(super) fn fetch(&self, b: &mut KernelBuilder, block: &Block, k: &Expr, slot: &Expr) {
        let (plan, ci) = (block.plan, self.pair.depthwise.ci);
        let (together, taps, row) = (step_channels(plan), taps(&self.pair), row_channels(plan, &self.pair));
        // Which of the steps of all warps this is.
        let number = (block.rank.clone() * plan.sizes.warps + block.warp) * plan.steps() + k.clone();
        let exists = |channel: Expr, size: i64| (plan.padded_channels() > ci).then(|| channel.lt(size));
        let width = filter_width(plan, &self.pair);
        let mut copy = |count: i64, width: i64, to: BufferId, from: &dyn Fn(Expr) -> (BufferId, Vec<Expr>, i64)| {
            unrolled(b, "turn", ceil_div(count, WARP * width), |b, turn| {
                let at = (turn * WARP + block.lane) * width;
                let (source, index, rows) = from(at.clone());
                let one = |b: &mut KernelBuilder| {
                    let guard = exists(index[0].clone(), rows);
                    let at = [block.warp.into(), slot.clone(), at.clone()];
                    copy_async(b, (to, at), (source, index), width, guard);
                };
                b.when(below(at.clone(), count, WARP * width), one);
            });
        };
        copy(together * taps, width, self.filters, &|at| {
            let index = if row == together {
                vec![number.clone(), at]
            } else {
                vec![number.clone() * together + at.clone().floor_div(taps), at.floor_mod(taps)]
            };
            (block.params.get("dw"), index, ci / row)
        });
        if let Some(biases) = self.biases {
            copy(together, 1, biases, &|at| (block.params.get("dw_bias"), vec![number.clone() * together + at], ci));
        }
    }

    /// Computes the results of the step whose pixels are in a slot. What results of a run have in common is loaded once by
    /// compilers, as nothing is stored in between. There is no branch, so that compilers can mix this with
    /// the products of the step before: lanes without a result compute the last one, too.
    pub(super) fn compute(&self, b: &mut KernelBuilder, block: &Block, pixels: BufferId, slot: &Expr) -> Results {
        let (plan, c) = (block.plan, &self.pair.depthwise);
        let (taken, given, sizes, taps) = (plan.fetched(), plan.multiplied(), plan.sizes, taps(&self.pair));
        let Work { run, turns, .. } = Work::of(plan, &self.pair);
        let (columns, runs) = (sizes.tile[1], sizes.pixels() / run);
        let count = step_channels(plan) * runs;
        let values = b.alloc("mid_value", DType::F32, &[turns, run], Scope::Register);
        let one = |b: &mut KernelBuilder, turn: i64| {
            let item = Expr::from(block.lane) + turn * WARP;
            let exists = ((turn + 1) * WARP > count).then(|| item.clone().lt(count));
            let item = if exists.is_some() { item.min(count - 1) } else { item };
            let channel = b.let_("mid_channel", item.clone().floor_div(runs));
            let row = b.let_("mid_row", item.clone().floor_mod(runs).floor_div(columns) * run);
            let column = b.let_("mid_column", item.floor_mod(columns));
            let part = Expr::from(channel).floor_div(sizes.groups());
            let group = Expr::from(channel).floor_mod(sizes.groups());
            let first = row * (c.stride[0] * taken.pitch()) + Expr::from(column) * c.stride[1] + taken.lead();
            let first = b.let_("mid_first", group.clone() * taken.plane() + first);
            let own = |buffer: BufferId, rest: Vec<Expr>| {
                Expr::load(buffer, [block.warp.into(), slot.clone()].into_iter().chain(rest).collect())
            };
            let bias = self.biases.map_or(Expr::f32(0.0), |biases| own(biases, vec![channel.into()]));
            for y in 0..run {
                let at = vec![Expr::Int(turn), Expr::Int(y)];
                b.store(values, at.clone(), bias.clone());
                for tap in 0..taps {
                    let below = y * c.stride[0] + tap / c.kw * c.dilation[0];
                    let away = below * taken.pitch() + tap % c.kw * c.dilation[1];
                    let filter = own(self.filters, vec![channel * taps + tap]);
                    let pixel = own(pixels, vec![part.clone(), first + away]);
                    b.sum(values, at.clone(), filter * pixel, &[]);
                }
                let sum = Expr::load(values, at.clone());
                let rest = DepthwisePointwise { bias: false, ..self.pair };
                let value = rest.finished(sum, &channel.into(), &|name| block.params.get(name));
                b.store(values, at, value);
            }
            ([part, group * given.plane() + row * given.pitch() + column], exists)
        };
        let places = (0..turns).map(|turn| one(b, turn)).collect();
        Results { values, places }
    }

    /// Stores what was computed for step `k`.
    pub(super) fn keep(&self, b: &mut KernelBuilder, block: &Block, results: Results, k: &Expr) {
        let (plan, half) = (block.plan, k.clone().floor_mod(halves(block.plan)));
        let (run, pitch) = (Work::of(plan, &self.pair).run, plan.multiplied().pitch());
        for (turn, ([part, place], exists)) in (0..).zip(results.places) {
            let store = |b: &mut KernelBuilder| {
                for y in 0..run {
                    let to = vec![block.warp.into(), half.clone(), part.clone(), place.clone() + y * pitch];
                    b.store(self.results, to, Expr::load(results.values, vec![Expr::Int(turn), Expr::Int(y)]));
                }
            };
            b.when(exists, store);
        }
    }

    /// A result of step `k`: of channel `part` of a group.
    pub(super) fn result(&self, block: &Block, k: VarId, part: VarId, place: Expr) -> Expr {
        let half = Expr::from(k).floor_mod(halves(block.plan));
        Expr::load(self.results, vec![block.warp.into(), half, part.into(), place])
    }
}
