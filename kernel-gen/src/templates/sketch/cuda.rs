//! The rules for CUDA devices: Ansor's structure SSSRRSRS.
//!
//! The spatial loops of a sum become blocks of a grid, virtual threads, threads and a block of sums in each thread's registers.
//! The longest reduce loop is cut in passes; at each pass the threads of a block copy what they share into shared memory, all
//! together. Neighbouring threads have neighbouring outputs. Stages without a sum have one thread an element.

use super::nest::{Group, Groups, Loop, Nest, Sum};
use crate::ir::{Axis, BufferId, LoopKind, Pragma, Scope, VarId};
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, ConfigError, Space, SpaceBuilder, Split};
use crate::target::Cuda;
use crate::templates::cuda::model::{Launch, Unit, ceil_div, whole_sectors};
use crate::templates::cuda::{descend_from, pieces, strided_fetch};
use crate::templates::{Scheduled, TemplateError};
use std::sync::Arc;

/// Most threads of a block along one loop, virtual threads along one loop, and sums of a thread along one loop.
const MOST_THREADS: i64 = 64;
const MOST_PLACES: i64 = 4;
const MOST_NEIGHBOURS: i64 = 8;
/// Most sums of a thread.
const MOST_SUMS: i64 = 64;
/// Registers for addresses and what is loaded.
const OTHER_REGISTERS: i64 = 48;
/// Clocks of a multiprocessor that a step takes beside its arithmetic, for each warp.
const STEP_CLOCKS_PER_WARP: f64 = 25.0;
/// Times as long as the launch's model says that such kernels take. The same scheme by hand (`cuda::block`) takes 1.3; here
/// threads fetch and read single elements, and the factor has a margin, so that a plain template gives way only to what is
/// expected to be clearly faster.
const BY_RULES: f64 = 2.0;
/// What each halving or doubling costs that a block has fewer than 128 or more than 256 threads.
const UNUSUAL: f64 = 0.1;
/// How much longer a thread waits for what it loads through the caches than for shared memory.
const THROUGH_CACHES: f64 = 2.5;
/// Clocks that a thread waits for a load through the caches where a condition stands before it, so that no compiler asks for it ahead.
/// Measured on an H200: a product of 20 terms, its tiles longer than the output, takes 3.5 us; the model said 1.1.
const GUARDED_CLOCKS: f64 = 300.0;

/// The rules applied to one kernel.
pub(super) struct Rules {
    prepared: Schedule,
    groups: Arc<Groups>,
    gpu: Cuda,
    /// Bytes that have to move at least.
    bytes: f64,
}

/// What a config says of one sum.
struct Tiling {
    /// Places (virtual threads), threads and neighbours (sums of a thread in one place), for each spatial loop.
    tiles: Vec<[i64; 3]>,
    /// Steps in a pass of the longest reduce loop.
    step: i64,
    /// Whether what threads share is copied to shared memory.
    shared: bool,
    /// Steps up to which loops are unrolled.
    unroll: i64,
}

fn tile_knob(l: &Loop) -> String {
    format!("tile_{}", l.name)
}

fn shared_knob(sum: &Sum) -> String {
    format!("shared_{}", sum.name)
}

fn unroll_knob(sum: &Sum) -> String {
    format!("unroll_{}", sum.name)
}

impl Tiling {
    fn of(config: &Config, group: &Group, sum: &Sum) -> Result<Tiling, ConfigError> {
        let tile = |l: &Loop| match l.extent {
            1 => Ok([1, 1, 1]),
            _ => config.split(&tile_knob(l)).map(|sizes| [sizes[1], sizes[2], sizes[3]]),
        };
        Ok(Tiling {
            tiles: group.out.spatial.iter().map(tile).collect::<Result<_, _>>()?,
            step: sum.nest.longest().map_or(Ok(1), |l| config.split(&tile_knob(l)).map(|sizes| sizes[1]))?,
            shared: config.int(&shared_knob(sum))? != 0,
            unroll: config.int(&unroll_knob(sum))?,
        })
    }

    fn threads(&self) -> i64 {
        self.tiles.iter().map(|t| t[1]).product()
    }

    /// Sums of a thread.
    fn sums(&self) -> i64 {
        self.tiles.iter().map(|t| t[0] * t[2]).product()
    }

    fn blocks(&self, group: &Group) -> i64 {
        let along = group.out.spatial.iter().zip(&self.tiles);
        along.map(|(l, t)| ceil_div(l.extent, t.iter().product())).fold(1, i64::saturating_mul)
    }

    /// Whether sums of one thread lie outside of the output, others not, as far as places go: such a load has a condition of its own. Neighbours
    /// at the end of a row have one as well, which the measured costs did not show.
    fn is_guarded(&self, group: &Group) -> bool {
        let along = group.out.spatial.iter().zip(&self.tiles);
        along.into_iter().any(|(l, t)| t[0] > 1 && l.extent % t.iter().product::<i64>() != 0)
    }

    /// How far a loop of the sum runs in one pass of a block.
    fn in_block(&self, sum: &Sum, v: VarId) -> i64 {
        if let Some(i) = sum.along.iter().position(|(along, _)| *along == v) {
            return self.tiles[i].iter().product();
        }
        match sum.nest.reduce.iter().find(|l| l.var == v) {
            Some(l) if sum.nest.longest().is_some_and(|c| c.var == v) => self.step.min(l.extent),
            Some(l) => l.extent,
            None => 1,
        }
    }

    /// Terms of a sum in one pass.
    fn terms(&self, sum: &Sum) -> i64 {
        sum.nest.reduce.iter().map(|l| self.in_block(sum, l.var)).product()
    }

    /// Bytes of shared memory.
    fn shared_bytes(&self, sum: &Sum) -> i64 {
        if !self.shared {
            return 0;
        }
        sum.copied
            .iter()
            .map(|l| l.reaches(&|v| self.in_block(sum, v)).into_iter().fold(l.bytes, i64::saturating_mul))
            .fold(0, i64::saturating_add)
    }

    fn registers(&self) -> i64 {
        self.sums() + OTHER_REGISTERS
    }

    fn fits(&self, group: &Group, sum: &Sum, gpu: &Cuda) -> bool {
        let threads = self.threads();
        threads <= gpu.threads_per_block
            && threads >= Cuda::WARP.min(first_threads(group, sum).iter().product())
            && self.sums() <= MOST_SUMS
            && self.tiles.iter().map(|t| t[0]).product::<i64>() <= 2 * MOST_PLACES
            && threads * self.registers() <= gpu.registers_per_block
            && self.shared_bytes(sum) <= gpu.shared_per_block
            && self.blocks(group) <= gpu.grid_dim[0]
    }
}

impl Rules {
    pub(super) fn new(prepared: Schedule, groups: Groups, gpu: &Cuda) -> Result<Rules, String> {
        if groups.all.iter().any(|g| g.out.spatial.is_empty()) {
            return Err("a single number is no work for a grid".to_string());
        }
        let k = &prepared.kernel;
        let bytes = k.params.iter().map(|p| k.buffer(*p).extent_bytes() as f64).sum();
        Ok(Rules { groups: Arc::new(groups), gpu: gpu.clone(), bytes, prepared })
    }

    fn sums(&self) -> impl Iterator<Item = (&Group, &Sum)> {
        self.groups.all.iter().filter_map(|g| g.sum.as_ref().map(|sum| (g, sum)))
    }

    pub(super) fn space(&self) -> Result<Space, TemplateError> {
        let mut space = Space::builder().knob("threads", [64, 128, 256, 512]);
        for (group, sum) in self.sums() {
            space = knobs(space, group, sum);
        }
        let (groups, gpu) = (self.groups.clone(), self.gpu.clone());
        let fits = move |config: &Config| {
            groups.all.iter().all(|group| match &group.sum {
                Some(sum) => Tiling::of(config, group, sum).is_ok_and(|tiling| tiling.fits(group, sum, &gpu)),
                None => true,
            })
        };
        Ok(space.filter("threads, sums, shared memory and grid within the device's limits", fits).build()?)
    }

    pub(super) fn default_config(&self) -> Result<Config, TemplateError> {
        let space = self.space()?;
        let mut start = Config::new().with("threads", 256);
        for (group, sum) in self.sums() {
            for (l, threads) in group.out.spatial.iter().zip(first_threads(group, sum)).filter(|(l, _)| l.extent > 1) {
                start = start.with_split(&tile_knob(l), &[-1, 1, threads, 1]);
            }
            if let Some(l) = sum.nest.longest() {
                start = start.with_split(&tile_knob(l), &[-1, 1]);
            }
            start = start.with(&shared_knob(sum), 0).with(&unroll_knob(sum), 64);
        }
        let cost = |config: &Config| space.takes(config).then(|| self.cost(config));
        Ok(descend_from(&space, &start, 1, &cost)?)
    }

    pub(super) fn cost(&self, config: &Config) -> f64 {
        let mut us = 0.0;
        for group in &self.groups.all {
            us += match &group.sum {
                Some(sum) => match Tiling::of(config, group, sum) {
                    Ok(tiling) => self.sum_us(group, sum, &tiling),
                    Err(_) => return f64::INFINITY,
                },
                None => self.elementwise_us(&group.out, config),
            };
        }
        us
    }

    fn elementwise_us(&self, n: &Nest, config: &Config) -> f64 {
        let threads = config.int("threads").unwrap_or(256);
        // Around 256 threads are best by a little.
        let off = (threads as f64 / 256.0).log2().abs();
        let bytes = 4.0 * n.elements() as f64 * (1 + n.loads.len()) as f64;
        2.0 + bytes / (self.gpu.bandwidth_gb_s.max(1.0) * 1e3) * (1.0 + 0.01 * off)
    }

    fn sum_us(&self, group: &Group, sum: &Sum, tiling: &Tiling) -> f64 {
        let threads = tiling.threads();
        let terms = tiling.terms(sum) as f64;
        let lane = group.out.lane();
        let in_block = |v: VarId| tiling.in_block(sum, v);
        let (mut read, mut fetched) = (0.0, 0.0);
        for load in &sum.nest.loads {
            let instances: i64 = sum
                .along
                .iter()
                .zip(&tiling.tiles)
                .filter(|((v, _), _)| load.depends_on(*v))
                .map(|(_, t)| t[0] * t[2])
                .product();
            // Threads whose elements lie apart fall into the same banks, or touch more sectors.
            let apart = lane.map_or(1, |i| match load.stride(sum.along[i].0) {
                Some(0) => 1,
                Some(stride) => (stride.abs() * tiling.tiles[i][2]).min(8),
                None => 8,
            });
            read += (instances * apart) as f64;
            let reaches = load.reaches(&in_block);
            let row = reaches.last().copied().unwrap_or(1);
            let rows: f64 = reaches[..reaches.len().saturating_sub(1)].iter().map(|n| *n as f64).product();
            fetched += rows * whole_sectors(row * load.bytes);
        }
        let launch = Launch {
            blocks: tiling.blocks(group),
            threads,
            registers: tiling.registers().min(self.gpu.registers_per_thread),
            shared_bytes: tiling.shared_bytes(sum),
            unit: Unit::Fma,
            sums: tiling.sums(),
            steps: sum.nest.terms() as f64 / terms,
            step_flops: (threads * tiling.sums() * sum.nest.operations.max(1)) as f64 * terms,
            step_shared_bytes: threads as f64 * read * 4.0 * terms,
            step_fetched_bytes: fetched,
            bytes: self.bytes,
        };
        let warps = ceil_div(threads, Cuda::WARP) as f64;
        let clocks = launch.step_flops / self.gpu.f32_flops_per_sm_clock.max(1) as f64;
        // Without a copy there is nothing to wait for together, but each load is one through the caches.
        let way = if tiling.shared { 1.0 + STEP_CLOCKS_PER_WARP * warps / clocks.max(1.0) } else { THROUGH_CACHES };
        let octaves = (128.0 / threads as f64).log2().max((threads as f64 / 256.0).log2()).max(0.0);
        let unusual = 1.0 + UNUSUAL * octaves;
        let rolled = if tiling.unroll as f64 >= terms { 1.0 } else { 1.1 };
        let scattered = lane.map_or(1.2, |i| 1.0 + 0.02 * (tiling.tiles[i][2] - 1) as f64);
        let copied = if tiling.shared { sum.copied.len() } else { 0 };
        let waits = if tiling.is_guarded(group) && copied < sum.nest.loads.len() { sum.nest.terms() } else { 0 };
        let waited = waits as f64 * GUARDED_CLOCKS / self.gpu.clock_mhz.max(1) as f64;
        BY_RULES * launch.microseconds(&self.gpu) * way * rolled * scattered * unusual + waited
    }

    pub(super) fn schedule(&self, config: &Config) -> Result<Scheduled, TemplateError> {
        let mut s = self.prepared.clone();
        // Copies of what was inlined are made first: no other step may come between.
        let mut plans = vec![];
        for group in &self.groups.all {
            let mut copies: Vec<BufferId> = vec![];
            let tiling = group.sum.as_ref().map(|sum| Tiling::of(config, group, sum)).transpose()?;
            if let (Some(sum), Some(Tiling { shared: true, .. })) = (&group.sum, &tiling) {
                for load in &sum.copied {
                    copies.push(s.cache_read(load.buffer, Scope::Shared, &[sum.nest.stage])?);
                }
            }
            plans.push((group, tiling, copies));
        }
        for (group, tiling, copies) in plans {
            match (&group.sum, tiling) {
                (Some(sum), Some(tiling)) => schedule_sum(&mut s, group, sum, &tiling, &copies)?,
                _ => {
                    let all = s.fuse_all(&s.loops_of(group.out.stage))?;
                    let [block, thread] = pieces(&mut s, all, config.int("threads")?)?;
                    s.bind(block, LoopKind::Grid(Axis::X))?;
                    s.bind(thread, LoopKind::Thread(Axis::X))?;
                }
            }
        }
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}

/// One warp along the innermost loops, as far as they allow: the threads along each loop that a descent begins with, and of
/// which no config has fewer.
fn first_threads(group: &Group, sum: &Sum) -> Vec<i64> {
    let mut left = Cuda::WARP;
    let mut threads: Vec<i64> = vec![];
    for (l, (_, within)) in group.out.spatial.iter().zip(&sum.along).rev() {
        // What the knob has: divisors, and powers of two where they need not divide.
        let has = |n: &i64| within % n == 0 || *within == l.extent && n.count_ones() == 1;
        let n = (1..=left.min(*within)).rev().find(has).unwrap_or(1);
        left = ceil_div(left, n);
        threads.push(n);
    }
    threads.reverse();
    threads
}

fn knobs(mut space: SpaceBuilder, group: &Group, sum: &Sum) -> SpaceBuilder {
    for (i, l) in group.out.spatial.iter().enumerate().filter(|(_, l)| l.extent > 1) {
        let (extent, within) = (l.extent, sum.along[i].1);
        let split = if within == extent { Split::verbose(extent, 4) } else { Split::factors(extent, 4) };
        let keep = move |sizes: &[i64]| {
            let whole: i64 = sizes[1..].iter().product();
            sizes[1] <= MOST_PLACES && sizes[3] <= MOST_NEIGHBOURS && (within == extent || within % whole == 0)
        };
        space = space.split(&tile_knob(l), split.max_factor(MOST_THREADS).filter(keep));
    }
    if let Some(l) = sum.nest.longest() {
        space = space.split(&tile_knob(l), Split::factors(l.extent, 2));
    }
    let shared: &[i64] = if sum.copied.is_empty() { &[0] } else { &[0, 1] };
    space.knob(&shared_knob(sum), shared.iter().copied()).knob(&unroll_knob(sum), [0, 64, 512])
}

fn schedule_sum(
    s: &mut Schedule,
    group: &Group,
    sum: &Sum,
    tiling: &Tiling,
    copies: &[BufferId],
) -> Result<(), TemplateError> {
    let acc = sum.nest.stage;
    let (mut blocks, mut places, mut threads, mut own) = (vec![], vec![], vec![], vec![]);
    for (l, [place, thread, neighbours]) in group.out.spatial.iter().zip(&tiling.tiles) {
        let [block, rest] = s.split(l.var, place * thread * neighbours, Tail::Guard)?;
        let [v, rest] = s.split(rest, thread * neighbours, Tail::Perfect)?;
        let [t, inner] = s.split(rest, *neighbours, Tail::Perfect)?;
        blocks.push(block);
        places.push(v);
        threads.push(t);
        own.push(inner);
    }
    s.reorder(&[&blocks[..], &places, &threads, &own].concat())?;
    let block = s.fuse_all(&blocks)?;
    s.bind(block, LoopKind::Grid(Axis::X))?;
    for v in places {
        s.vthread(v)?;
    }
    let thread = s.fuse_all(&threads)?;
    s.bind(thread, LoopKind::Thread(Axis::X))?;
    s.set_scope(acc, Scope::Register)?;
    s.compute_at(acc, thread)?;

    // Passes outside, a thread's sums inside.
    let loops = s.loops_of(acc);
    let is_reduce = |v: &VarId| sum.nest.reduce.iter().any(|l| l.var == *v);
    let (reduce, spatial): (Vec<VarId>, Vec<VarId>) = loops.iter().partition(|v| is_reduce(v));
    let (mut pass, mut steps) = (None, vec![]);
    for v in reduce {
        if sum.nest.longest().is_some_and(|l| l.var == v) {
            let [outer, inner] = s.split(v, tiling.step, Tail::Perfect)?;
            pass = Some(outer);
            steps.push(inner);
        } else {
            steps.push(v);
        }
    }
    let order = [&pass.iter().copied().collect::<Vec<_>>()[..], &steps, &spatial].concat();
    if order.len() > 1 {
        s.reorder(&order)?;
    }
    if let Some(pass) = pass {
        for copy in copies {
            s.compute_at(*copy, pass)?;
        }
        for copy in copies {
            let loops = s.loops_of(*copy);
            strided_fetch(s, &loops, &[(Axis::X, tiling.threads())])?;
        }
        s.pragma(pass, Pragma::AutoUnrollMaxStep(tiling.unroll))?;
        s.pragma(pass, Pragma::UnrollExplicit(false))?;
    }
    for v in spatial.into_iter().chain(own) {
        s.unroll(v)?;
    }
    Ok(())
}
