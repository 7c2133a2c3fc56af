//! Templates for CUDA devices.
//!
//! All of them cut the output into blocks of a grid and those into threads, and keep a thread's sums in registers. They
//! differ in what the threads of a block share:
//!
//! | template | from | shared memory holds | for |
//! |---|---|---|---|
//! | [`conv2d_no_batching`] | the tutorial `tune_conv2d_cuda` | the input's tile and the weights | NCHW |
//! | [`conv2d_hwcn`] | the tutorial `opt_conv_cuda` | slices of both operands | HWCN |
//! | [`conv2d_tensorcore`] | the tutorial `opt_conv_tensorcore` | tiles for one row of taps | NHWC16n16c; f16 from sm_70 on, bf16 from sm_80 |
//! | [`depthwise`] | the article on depthwise convolutions | the input's piece and the filter | NCHW, depthwise |
//! | [`depthwise_direct`] | - | nothing | NCHW and NHWC, depthwise, of many images |
//! | [`matmul_blocked`] | the same scheme | slices of both operands | products |
//! | [`gemv`] | - | what lanes have added up | products with few rows |
//! | [`matmul_notes`] | AutoTVM's introduction | nothing | products, to compare with |
//! | [`wgmma`] | - | a ring of tiles that the TMA fills | Hopper's `wgmma`, products and NHWC convolutions |
//! | [`mma`] | - | a ring of tiles that `cp.async` fills | 16-bit products and NHWC convolutions from sm_80 on |
//! | [`split`] | - | a ring of pixels and of weights in parts | `f32` on Hopper's `wgmma`, in parts of tf32, bf16 or f16 |
//! | [`simt`] | - | a ring of tiles that `cp.async` fills | `f32` without tensor cores: products, NHWC, HWCN |
//! | [`splitk`] | - | a ring for each warp, then sums | any layout, of few images; in NCHW, depthwise with the 1x1 behind it |
//! | [`via_nhwc`] | - | tiles that are turned | 16-bit convolutions in NCHW and HWCN, by templates for NHWC |
//! | [`stem`] | - | pixels in cells of 16 bytes, and all weights | 16-bit images of few channels |
//! | [`pointwise`] | - | all weights; rows go to registers | 16-bit products with few columns, 1x1 in NHWC |
//! | [`winograd`] | - | a ring of transformed tiles and weights | 3x3 in NCHW, `f32`, of many images, in three launches or [one](winograd::fused) |
//! | [`plain`] | - | nothing | everything, correctly |
//! | [`sketch`](super::sketch) | - | what its threads share | any kernel, by rules |
//!
//! Nearly all of them are a `Family` (`family.rs`): problem, knobs, plan, fits, cost, kernel. One [`Template`](super::Template) for
//! all families makes space, default and checks from these steps. `pipeline.rs` is the engine of [`mma`] and [`simt`]: a ring
//! of `cp.async`, with a product (where operands and outputs lie) and fragments (what multiplies) as parts. `ring.rs` has the
//! barriers of the kernels whose producers and consumers are different warps.
//!
//! Kernels come without barriers: [`insert_barriers`](crate::lower::insert_barriers::insert_barriers()) puts them where
//! shared memory changes hands, before `verify`.

mod block;
mod conv2d_cost;
pub mod conv2d_hwcn;
pub mod conv2d_no_batching;
pub mod conv2d_tensorcore;
pub mod depthwise;
pub mod depthwise_direct;
mod exchange;
mod family;
pub mod gemv;
mod guards;
mod instructions;
mod launch;
pub mod matmul_blocked;
pub mod matmul_notes;
pub mod mma;
pub(super) mod model;
mod outer;
mod pipeline;
mod pixels;
pub mod plain;
pub mod pointwise;
mod product;
mod ring;
pub mod simt;
mod source;
pub mod split;
pub mod splitk;
pub mod stem;
mod taps;
pub mod via_nhwc;
mod warp_sums;
mod warpgroups;
pub mod wgmma;
pub mod winograd;

use super::TemplateError;
use crate::ir::builder::KernelBuilder;
use crate::ir::visit::find_loop;
use crate::ir::{Axis, BufferId, DType, Expr, LoopKind, VarId};
use crate::schedule::{Schedule, ScheduleError, Tail};
use crate::space::{Config, ConfigError, Space};
use crate::target::{Cuda, CudaFeature, Target};
use crate::workload::{Param, Role, Workload};
use guards::below;
use instructions::copy_async;
use model::ceil_div;
use std::collections::BTreeMap;

/// Blocks of a grid along an axis, as the tutorials call it.
const BLOCK: fn(Axis) -> LoopKind = LoopKind::Grid;

/// Threads of a block along an axis.
const THREAD: fn(Axis) -> LoopKind = LoopKind::Thread;

/// The device, or why not.
fn device(t: &Target) -> Result<&Cuda, String> {
    t.cuda().ok_or_else(|| "for CUDA devices".to_string())
}

/// Refuses a device without `cp.async`.
fn needs_cp_async(gpu: &Cuda) -> Result<(), String> {
    if gpu.has(CudaFeature::CpAsync) { Ok(()) } else { Err("needs cp.async (sm_80)".into()) }
}

/// Refuses a device without `wgmma`.
fn needs_wgmma(gpu: &Cuda) -> Result<(), String> {
    if gpu.has(CudaFeature::Wgmma) { Ok(()) } else { Err("needs wgmma (sm_90a)".into()) }
}

/// Refuses operands or outputs that are no `f32`.
fn needs_f32(w: &Workload) -> Result<(), String> {
    match (w.dtype, w.out_dtype) {
        (DType::F32, DType::F32) => Ok(()),
        (from, to) => Err(format!("multiplies f32 into f32, not {from} into {to}")),
    }
}

/// Refuses operands that tensor cores do not take in 16 bits.
fn needs_16_bits(w: &Workload) -> Result<(), String> {
    match w.dtype {
        DType::F16 | DType::Bf16 => Ok(()),
        other => Err(format!("tensor cores multiply f16 and bf16, not {other}")),
    }
}

/// Iterations of a loop.
fn extent(s: &Schedule, v: VarId) -> i64 {
    find_loop(&s.kernel.body, v).map_or(0, |l| l.extent)
}

/// Splits a loop by a piece size, guarding what is too much; the inner loop is never longer than the loop itself.
pub(super) fn pieces(s: &mut Schedule, v: VarId, size: i64) -> Result<[VarId; 2], TemplateError> {
    let size = size.min(extent(s, v));
    Ok(s.split(v, size, Tail::Guard)?)
}

/// Inlines the padded copy of the input, if there is one: padding is then a condition of the loads. Returns the buffer
/// that holds the input as the sums read it, to be given to `cache_read`.
fn inline_padding(s: &mut Schedule) -> Result<BufferId, ScheduleError> {
    match s.stage("pad") {
        Ok(pad) => s.compute_inline(pad).map(|()| pad),
        Err(_) => s.stage("x"),
    }
}

/// Lets the threads of a block copy together, as the tutorials do: the loops of a copy become one, which is cut into as
/// many parts as there are threads along each axis, from the slowest axis to the fastest. A thread copies neighbours.
///
/// Where threads and elements divide so badly that the guards of three uneven cuts hide from the checks that parts are
/// disjoint, the threads walk over the elements together instead, as [`strided_fetch`] has it.
fn cooperative_fetch(s: &mut Schedule, loops: &[VarId], threads: &[(Axis, i64)]) -> Result<(), ScheduleError> {
    let mut cut = s.clone();
    let in_parts = |s: &mut Schedule| -> Result<(), ScheduleError> {
        let mut rest = s.fuse_all(loops)?;
        for (axis, n) in threads {
            let [bound, inside] = s.split_nparts(rest, *n)?;
            s.bind(bound, THREAD(*axis))?;
            rest = inside;
        }
        Ok(())
    };
    match in_parts(&mut cut) {
        Ok(()) => {
            *s = cut;
            Ok(())
        }
        Err(_) => strided_fetch(s, loops, threads),
    }
}

/// Lets the threads of a block copy together: in each round all of them take one element each, neighbouring threads
/// neighbouring elements, so that accesses of a warp fall together.
pub(super) fn strided_fetch(s: &mut Schedule, loops: &[VarId], threads: &[(Axis, i64)]) -> Result<(), ScheduleError> {
    let all = s.fuse_all(loops)?;
    // Of fewer elements than threads, each is one thread's: the fastest axes are used up first.
    let mut left = extent(s, all);
    let mut used: Vec<(Axis, i64)> = threads.to_vec();
    for (_, n) in used.iter_mut().rev() {
        *n = left.min(*n);
        left = ceil_div(left, *n);
    }
    let [_, mut rest] = s.split(all, used.iter().map(|t| t.1).product(), Tail::Guard)?;
    for (axis, n) in used {
        let inner = extent(s, rest) / n;
        let [bound, inside] = s.split(rest, inner, Tail::Perfect)?;
        s.bind(bound, THREAD(axis))?;
        rest = inside;
    }
    Ok(())
}

/// The weights of a workload.
fn weights(w: &Workload) -> Result<Param, TemplateError> {
    let found = w.params().into_iter().find(|p| p.role == Role::Weight);
    found.ok_or_else(|| TemplateError::Limit("a product without weights".into()))
}

/// Has the threads of a block bring a tile of packed 16-bit weights by `cp.async`: rows lie in shared memory as they do
/// in `from`, whose first index is the tile.
fn fetch_image(
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

/// A loop that is written out.
fn unrolled(b: &mut KernelBuilder, name: &str, extent: i64, body: impl FnOnce(&mut KernelBuilder, VarId)) {
    b.loop_(name, extent, LoopKind::Unrolled, body);
}

/// Visits the elements `0..count` with the threads of a block, of which this is `thread` of `threads`.
fn share(b: &mut KernelBuilder, threads: i64, thread: Expr, count: i64, body: impl FnOnce(&mut KernelBuilder, Expr)) {
    b.for_("turn", ceil_div(count, threads), |b, turn| {
        let element = turn * threads + thread;
        b.when(below(element.clone(), count, threads), |b| body(b, element));
    });
}

/// The extent that an axis is cut by: the axis itself, or the next number without a prime factor above 7, so that there
/// are always pieces of a useful size.
fn tiled_extent(n: i64) -> i64 {
    let n = n.max(1);
    // Of each product of odd factors the least multiple by a power of two that is enough. Above it, larger products do not help.
    let powers = |p: i64| std::iter::successors(Some(1), move |q: &i64| (*q < n).then(|| q.saturating_mul(p)));
    let odd = powers(3)
        .flat_map(|a| powers(5).map(move |b| a.saturating_mul(b)).take_while(move |m| *m < n.saturating_mul(5)));
    let odd =
        odd.flat_map(|m| powers(7).map(move |c| m.saturating_mul(c)).take_while(move |m| *m < n.saturating_mul(7)));
    odd.map(|m| m.saturating_mul(ceil_div(n, m).unsigned_abs().next_power_of_two() as i64)).min().unwrap_or(n)
}

/// What a config costs by a template's model. Not a parameter of the functions that call it: they would be compiled once for
/// each template, which every consumer's build would wait for.
pub(super) type Cost<'a> = &'a dyn Fn(&Config) -> f64;

/// The config that coordinate descent finds: one knob after the other takes the value that costs least, until a round
/// changes nothing. Deterministic, and cheap because costs are closed forms.
pub(super) fn descend(space: &Space, start: &Config, cost: Cost<'_>) -> Result<Config, ConfigError> {
    let start = space.index_of(start)?;
    let (best, _) = Costs { space, cost, known: BTreeMap::new() }.descend(start);
    Ok(space.at(best))
}

/// What the configs of a space cost, each computed once: the rounds of a descent, and several descents, meet many again.
struct Costs<'a> {
    space: &'a Space,
    cost: Cost<'a>,
    known: BTreeMap<u64, f64>,
}

impl Costs<'_> {
    /// The cost of the config at an index; infinite where a constraint refuses it.
    fn of(&mut self, index: u64) -> f64 {
        let Costs { space, cost, known } = self;
        *known.entry(index).or_insert_with(|| space.get(index).map_or(f64::INFINITY, |config| cost(&config)))
    }

    /// The index where [`descend`] ends, and its cost.
    fn descend(&mut self, start: u64) -> (u64, f64) {
        let (mut best_index, mut best) = (start, self.of(start));
        for _ in 0..8 {
            let before = best_index;
            for (knob, len) in self.space.dims().into_iter().enumerate() {
                let mut point = self.space.point_of(best_index);
                for rank in 0..len {
                    point[knob] = rank;
                    let index = self.space.index_of_point(&point);
                    let found = self.of(index);
                    if found < best {
                        (best, best_index) = (found, index);
                    }
                }
            }
            if best_index == before {
                break;
            }
        }
        (best_index, best)
    }
}

/// The config with the shortest time, the first of several; an error where there is none.
fn fastest(candidates: impl IntoIterator<Item = (f64, Config)>) -> Result<Config, TemplateError> {
    let best = candidates.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, config)| config).ok_or_else(|| TemplateError::Limit("no tile fits the device".into()))
}

/// All configs of a small space with what they cost.
fn with_costs<'a>(space: &'a Space, cost: Cost<'a>) -> impl Iterator<Item = (f64, Config)> + 'a {
    (0..space.range_len()).filter_map(|index| space.get(index)).map(move |config| (cost(&config), config))
}

/// The config of a small space that costs least; `otherwise` where none costs clearly less.
fn least(space: &Space, otherwise: &Config, cost: Cost<'_>) -> Result<Config, ConfigError> {
    let otherwise = space.normalise(otherwise)?;
    let mut best = (cost(&otherwise), otherwise);
    for config in (0..space.range_len()).filter_map(|index| space.get(index)) {
        let found = cost(&config);
        if found < 0.95 * best.0 {
            best = (found, config);
        }
    }
    Ok(best.1)
}

/// The best that [`descend`] finds from `start` and from the `descents` cheapest of configs drawn from all over the space,
/// always the same ones: one descent alone is caught where the first knobs lead it.
pub(super) fn descend_from(
    space: &Space,
    start: &Config,
    descents: usize,
    cost: Cost<'_>,
) -> Result<Config, ConfigError> {
    const DRAWN: usize = 600;
    // Tiles of several sums that must agree in threads leave one config of ten thousand.
    const LOOKED_AT: u64 = 100 * DRAWN as u64;
    let drawn = space.sample(1).within(LOOKED_AT).take(DRAWN);
    let mut starts: Vec<(f64, u64)> = drawn.map(|(index, config)| (cost(&config), index)).collect();
    let mut costs = Costs { space, cost, known: starts.iter().map(|(cost, index)| (*index, *cost)).collect() };
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    starts.truncate(descents);
    let mut starts: Vec<u64> = starts.into_iter().map(|(_, index)| index).collect();
    // A start that is beyond the device's limits, as the smallest tiles of many images are, is none.
    let refused = space.index_of(start).map(|index| starts.push(index)).err();
    let mut best: Option<(f64, u64)> = None;
    for from in starts {
        let (index, found) = costs.descend(from);
        if best.is_none_or(|(least, _)| found < least) {
            best = Some((found, index));
        }
    }
    match (best, refused) {
        (Some((_, index)), _) => Ok(space.at(index)),
        (None, Some(refused)) => Err(refused),
        (None, None) => Ok(start.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::Template;
    use crate::workload::Conv2d;

    #[test]
    fn awkward_extents_are_cut_as_the_next_round_number() {
        assert_eq!([1, 7, 13, 23, 56, 113, 512].map(tiled_extent), [1, 7, 14, 24, 56, 120, 512]);
        let smooth = |n: i64| {
            [2, 3, 5, 7].iter().fold(n, |n, p| (0..14).fold(n, |n, _| if n % p == 0 { n / p } else { n })) == 1
        };
        for n in 1..3000 {
            assert_eq!(Some(tiled_extent(n)), (n..).find(|n| smooth(*n)), "{n}");
        }
        // Round numbers are rare among large ones: they are not looked for one by one.
        let large = tiled_extent((1 << 34) + 1);
        assert!(large > 1 << 34 && large < (1 << 34) + (1 << 28), "{large}");
    }

    #[test]
    fn a_start_beyond_the_limits_is_left_out() {
        let space = |least: i64| {
            let space = Space::builder().knob("a", 0..20).knob("b", 0..20);
            space.filter("many", move |c| c.int("a").is_ok_and(|a| a >= least)).build().unwrap()
        };
        let cost = |c: &Config| (c.int("a").unwrap() + (c.int("b").unwrap() - 7).abs()) as f64;
        let start = Config::new().with("a", 0).with("b", 0);
        let found = descend_from(&space(5), &start, 4, &cost).unwrap();
        assert_eq!((found.int("a"), found.int("b")), (Ok(5), Ok(7)));
        // 256 images make more blocks of the smallest tiles than a grid has.
        let many = Workload::f32(Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1));
        let (target, template) = (Target::find("sm_90a").unwrap(), conv2d_no_batching::Conv2dNoBatching);
        let config = template.default_config(&many, target).unwrap();
        assert!(template.space(&many, target).unwrap().normalise(&config).is_ok());
    }

    #[test]
    fn descent_finds_the_bottom_of_a_bowl() {
        let space = Space::builder()
            .knob("a", 0..20)
            .knob("b", 0..20)
            .filter("a + b < 30", |c| matches!((c.int("a"), c.int("b")), (Ok(a), Ok(b)) if a + b < 30));
        let space = space.build().unwrap();
        let bowl = |c: &Config| {
            let (a, b) = (c.int("a").unwrap() as f64, c.int("b").unwrap() as f64);
            (a - 13.0).powi(2) + (b - 4.0).powi(2) + 0.5 * (a - 13.0) * (b - 4.0)
        };
        let found = descend(&space, &Config::new().with("a", 0).with("b", 0), &bowl).unwrap();
        assert_eq!(found.to_string(), "a=13 b=4");
    }
}
