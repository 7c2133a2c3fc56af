//! The rules for CPUs: Ansor's structure SSRSRS.
//!
//! The outer spatial loops become one parallel loop over tasks. Within a task come tiles, and in each tile a block of sums in
//! vector registers, with lanes along the loop whose neighbours are neighbours in memory. Where the longest reduce loop is cut
//! in passes, a task keeps its sums in a private buffer, and each pass goes over all blocks of the task: what a pass reads is
//! then small enough for the first cache. Stages without a sum are phases of their own.

use super::nest::{Group, Groups, Load, Loop, Nest, Sum, lane_of};
use crate::ir::{BufferId, Scope, VarId};
use crate::schedule::{LayoutDim, Schedule, Tail};
use crate::space::{Config, ConfigError, Space, SpaceBuilder, Split, Value};
use crate::target::Cpu;
use crate::templates::cpu::tile::{WANTED_TASKS, ceil_div, cycles_to_us};
use crate::templates::cpu::{extent, pieces, vectorize};
use crate::templates::cuda::descend;
use crate::templates::{Scheduled, TemplateError};
use std::sync::Arc;

/// Largest tile of a loop that spaces offer.
const LARGEST_TILE: i64 = 128;
/// Most multiply-adds that are written out for one block of sums.
const LONGEST_BODY: i64 = 512;
/// Cycles that a step of the reduction costs beside its arithmetic where none is written out.
const STEP: f64 = 1.0;
/// The share of the loads' time that arithmetic does not hide.
const BESIDE: f64 = 0.3;
/// Multiply-adds in a row above which code is fetched slower than it runs.
const LONG_BODY: f64 = 128.0;
/// Cycles for a line from the second cache, and from beyond it.
const L2_LINE: f64 = 2.0;
const L3_LINE: f64 = 8.0;
/// Cycles to move a vector that nothing is added to.
const COPIED_VECTOR: f64 = 4.0;
/// Cycles of an element that is written under a condition of its own, or far from its neighbour.
const LONE_ELEMENT: f64 = 2.0;
/// Microseconds between two phases.
const PHASE_US: f64 = 1.0;

/// The rules applied to one kernel.
pub(super) struct Rules {
    prepared: Schedule,
    groups: Arc<[Group]>,
    cpu: Cpu,
}

/// What a config says of one sum.
struct Tiling {
    /// Blocks in a tile of a task, and elements of a block, for each spatial loop.
    tiles: Vec<[i64; 2]>,
    /// Steps in a pass of the longest reduce loop.
    step: i64,
    /// Reduce steps that are written out.
    unroll: i64,
    /// Whether each of the loads that lanes find [far apart](far) reads a tile that was turned first.
    turned: Vec<bool>,
}

/// The loads whose neighbours along the lanes are no neighbours in memory, and that are made again and again: with the
/// dimension that the lanes walk.
fn far<'a>(group: &Group, sum: &'a Sum) -> impl Iterator<Item = (&'a Load, usize)> {
    let lane = group.out.lane().map(|i| sum.along[i].0);
    sum.reused().filter_map(move |l| {
        let lane = lane?;
        let dim = l.dimension_of(lane)?;
        (!matches!(l.stride(lane), Some(0 | 1))).then_some((l, dim))
    })
}

fn turn_knob(sum: &Sum, load: &Load) -> String {
    format!("turn_{}_{}", load.name, sum.name)
}

/// The name of a loop's knob.
fn tile_knob(l: &Loop) -> String {
    format!("tile_{}", l.name)
}

/// The name of the knob for how many reduce steps are written out.
fn unroll_knob(sum: &Sum) -> String {
    format!("unroll_{}", sum.name)
}

impl Tiling {
    fn of(config: &Config, group: &Group, sum: &Sum) -> Result<Tiling, ConfigError> {
        let tile = |l: &Loop| match l.extent {
            1 => Ok([1, 1]),
            _ => config.split(&tile_knob(l)).map(|sizes| [sizes[1], sizes[2]]),
        };
        Ok(Tiling {
            tiles: group.out.spatial.iter().map(tile).collect::<Result<_, _>>()?,
            step: sum.nest.longest().map_or(Ok(1), |l| config.split(&tile_knob(l)).map(|sizes| sizes[1]))?,
            unroll: config.int(&unroll_knob(sum))?,
            turned: far(group, sum).map(|(l, _)| Ok(config.int(&turn_knob(sum, l))? != 0)).collect::<Result<_, _>>()?,
        })
    }

    /// Vectors of a block.
    fn vectors(&self, group: &Group, lanes: i64) -> i64 {
        let lane = group.out.lane();
        let of = |(i, t): (usize, &[i64; 2])| if lane == Some(i) { vectors_of(t[1], lanes) } else { t[1] };
        self.tiles.iter().enumerate().map(of).product()
    }

    /// Passes over the longest reduce loop.
    fn passes(&self, sum: &Sum) -> i64 {
        sum.nest.longest().map_or(1, |l| ceil_div(l.extent, self.step))
    }

    /// Elements of a task's tile.
    fn elements(&self) -> i64 {
        self.tiles.iter().map(|t| t[0] * t[1]).product()
    }

    /// How far a loop of the sum runs in a pass of a task.
    fn in_task(&self, sum: &Sum, v: VarId) -> i64 {
        match sum.along.iter().position(|(along, _)| *along == v) {
            Some(i) => self.tiles[i][0] * self.tiles[i][1],
            None => self.in_pass(sum, v),
        }
    }

    /// How far a reduce loop runs in a pass.
    fn in_pass(&self, sum: &Sum, v: VarId) -> i64 {
        match sum.nest.reduce.iter().find(|l| l.var == v) {
            Some(l) if sum.nest.longest().is_some_and(|c| c.var == v) => self.step.min(l.extent),
            Some(l) => l.extent,
            None => 1,
        }
    }

    /// The loads whose tiles are turned, with the elements of a tile.
    fn turns<'a>(&self, group: &Group, sum: &'a Sum) -> Vec<(&'a Load, usize, i64)> {
        let elements = |l: &Load| l.reaches(&|v| self.in_task(sum, v)).into_iter().fold(1, i64::saturating_mul);
        let turned = far(group, sum).zip(&self.turned).filter(|(_, turned)| **turned);
        turned.map(|((l, dim), _)| (l, dim, elements(l))).collect()
    }

    fn fits(&self, group: &Group, sum: &Sum, cpu: &Cpu) -> bool {
        let vectors = self.vectors(group, cpu.f32_lanes());
        let turned = self.turns(group, sum).iter().map(|(.., n)| 4 * n).fold(0, i64::saturating_add);
        let private = if self.passes(sum) > 1 { 4 * self.elements() } else { 0 };
        vectors <= cpu.vector_registers * 7 / 8
            && vectors * self.unroll.min(sum.nest.terms()) <= LONGEST_BODY
            && private <= cpu.l1_bytes
            && turned <= cpu.l2_bytes / 4
    }
}

impl Rules {
    pub(super) fn new(prepared: Schedule, groups: Groups, cpu: &Cpu) -> Rules {
        Rules { prepared, groups: groups.all.into(), cpu: cpu.clone() }
    }

    /// The stages with sums.
    fn sums(&self) -> impl Iterator<Item = (&Group, &Sum)> {
        self.groups.iter().filter_map(|g| g.sum.as_ref().map(|sum| (g, sum)))
    }

    pub(super) fn space(&self) -> Result<Space, TemplateError> {
        let mut space = Space::builder().knob("vectors", [1, 2, 4]);
        for (group, sum) in self.sums() {
            space = self.knobs(space, group, sum);
        }
        let (groups, cpu) = (self.groups.clone(), self.cpu.clone());
        let fits = move |config: &Config| {
            groups.iter().all(|group| match &group.sum {
                Some(sum) => Tiling::of(config, group, sum).is_ok_and(|tiling| tiling.fits(group, sum, &cpu)),
                None => true,
            })
        };
        Ok(space.filter("blocks fit the registers, and the sums of a task the first cache", fits).build()?)
    }

    fn knobs(&self, mut space: SpaceBuilder, group: &Group, sum: &Sum) -> SpaceBuilder {
        let lanes = self.cpu.f32_lanes();
        for (i, l) in group.out.spatial.iter().enumerate().filter(|(_, l)| l.extent > 1) {
            let (extent, within) = (l.extent, sum.along[i].1);
            let is_lane = group.out.lane() == Some(i);
            let split = if within == extent { Split::verbose(extent, 3) } else { Split::factors(extent, 3) };
            // Whole vectors, or a part of one that is not mostly empty; within one loop of the sum.
            let keep = move |sizes: &[i64]| {
                let (tiles, block) = (sizes[1], sizes[2]);
                let vectors =
                    block % lanes == 0 || block <= lanes && (within < extent || 2 * block >= lanes.min(extent));
                (!is_lane || vectors) && (within == extent || within % (tiles * block) == 0)
            };
            space = space.split(&tile_knob(l), split.max_factor(LARGEST_TILE).filter(keep));
        }
        if let Some(l) = sum.nest.longest() {
            space = space.split(&tile_knob(l), Split::factors(l.extent, 2));
        }
        for (load, _) in far(group, sum) {
            space = space.knob(&turn_knob(sum, load), [0, 1]);
        }
        space.knob(&unroll_knob(sum), [1, 4, 16])
    }

    pub(super) fn default_config(&self) -> Result<Config, TemplateError> {
        let space = self.space()?;
        let lanes = self.cpu.f32_lanes();
        let mut start = Config::new().with("vectors", 1);
        for (group, sum) in self.sums() {
            for (i, l) in group.out.spatial.iter().enumerate().filter(|(_, l)| l.extent > 1) {
                let block = if group.out.lane() == Some(i) { first_block(l.extent, sum.along[i].1, lanes) } else { 1 };
                start = start.with_split(&tile_knob(l), &[-1, 1, block]);
            }
            if let Some(l) = sum.nest.longest() {
                start = start.with_split(&tile_knob(l), &[-1, l.extent]);
            }
            for (load, _) in far(group, sum) {
                start = start.with(&turn_knob(sum, load), 0);
            }
            start = start.with(&unroll_knob(sum), 1);
        }
        // A descent cannot trade the extent of a block along one loop for that along another, so it begins at several.
        let mut starts = vec![start.clone()];
        for (group, sum) in self.sums() {
            for (i, l) in group.out.spatial.iter().enumerate() {
                let sizes = if group.out.lane() == Some(i) { [2 * lanes, 4 * lanes] } else { [2, 4] };
                starts.extend(sizes.map(|size| {
                    let mut other = start.clone();
                    other.set(&tile_knob(l), Value::Split(vec![-1, 1, size.min(sum.along[i].1)]));
                    other
                }));
            }
        }
        let cost = |config: &Config| space.takes(config).then(|| self.cost(config));
        let mut best: Option<(f64, Config)> = None;
        for start in starts.iter().filter(|start| space.index_of(start).is_ok()) {
            let config = descend(&space, start, &cost)?;
            let cost = self.cost(&config);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, config));
            }
        }
        best.map_or_else(|| Ok(space.normalise(&start)?), |(_, config)| Ok(config))
    }

    pub(super) fn cost(&self, config: &Config) -> f64 {
        let Ok(vectors) = config.int("vectors") else { return f64::INFINITY };
        let mut cycles = 0.0;
        for group in self.groups.iter() {
            cycles += match &group.sum {
                Some(sum) => match Tiling::of(config, group, sum) {
                    Ok(tiling) => self.sum_cycles(group, sum, &tiling),
                    Err(_) => return f64::INFINITY,
                },
                None => self.elementwise_cycles(&group.out) * (1.0 + 0.01 * vectors as f64),
            };
        }
        cycles_to_us(cycles, &self.cpu) + PHASE_US * self.groups.len() as f64
    }

    fn elementwise_cycles(&self, n: &Nest) -> f64 {
        let lanes = self.cpu.f32_lanes();
        let elements = n.elements() as f64;
        match n.lane() {
            // What several loads find by quotients of an index is computed element by element.
            Some(lane) if n.scattered_along(lane) > 1 => elements * LONE_ELEMENT * n.scattered_along(lane) as f64 / 2.0,
            Some(lane) => {
                let row = n.spatial[lane].extent;
                // What is chosen lane by lane takes a mask.
                let masks = if n.selects { 2.0 } else { 1.0 };
                elements / row as f64 * ceil_div(row, lanes) as f64 * COPIED_VECTOR * masks
            }
            None => elements * LONE_ELEMENT,
        }
    }

    fn sum_cycles(&self, group: &Group, sum: &Sum, tiling: &Tiling) -> f64 {
        let (cpu, lanes) = (&self.cpu, self.cpu.f32_lanes());
        let lane = group.out.lane();
        // How far a spatial loop of the sum runs in a block.
        let block = |v: VarId| sum.along.iter().position(|(along, _)| *along == v).map_or(1, |i| tiling.tiles[i][1]);
        let turns = tiling.turns(group, sum);
        let tasks: f64 =
            group.out.spatial.iter().zip(&tiling.tiles).map(|(l, t)| ceil_div(l.extent, t[0] * t[1]) as f64).product();
        let blocks: f64 = tiling.tiles.iter().map(|t| t[0] as f64).product();
        let vectors = tiling.vectors(group, lanes) as f64;
        let lane_var = lane.map(|i| sum.along[i].0);

        // One step: arithmetic against loads, and each sum waits for itself. What several of the steps that are written out
        // read is loaded once.
        let (written_out, steps) = self.written_out(sum, tiling);
        let held = |v: VarId| if Some(v) == lane_var { 1 } else { block(v) * written_out(v) };
        let mut loads = 0.0;
        for load in &sum.nest.loads {
            let others = load.distinct(&held) / steps as f64;
            let turned = turns.iter().any(|(l, ..)| l.buffer == load.buffer);
            let along = lane_var.map_or(0.5, |v| match load.stride(v) {
                Some(0) => 0.5,
                Some(1) => 0.5 * vectors_of(block(v), lanes) as f64,
                _ if turned => 0.5 * vectors_of(block(v), lanes) as f64,
                _ => 1.5 * block(v) as f64,
            });
            loads += others * along;
        }
        let arithmetic = vectors * sum.nest.operations as f64 / if cpu.fma { 2.0 } else { 1.0 };
        let rate = arithmetic / cpu.fma_units.max(1) as f64;
        // Loads are never quite hidden; a loop that is not written out has a jump, and a long body misses the front end's cache.
        let body = vectors * steps as f64;
        let front = 1.0 + 0.1 * (body / LONG_BODY).log2().max(0.0);
        let step = (rate.max(loads).max(cpu.fma_latency as f64) + BESIDE * loads) * front + STEP / steps as f64;
        let terms = sum.nest.terms() as f64;
        let compute = tasks * blocks * terms * step;

        // Lines: a block's come from where a task's tile fits in one pass.
        let line = cpu.cache_line_bytes.max(1);
        let passes = tiling.passes(sum) as f64;
        let (mut bytes, mut first, mut again) = (0.0, 0.0, 0.0);
        for load in &sum.nest.loads {
            let in_task = load.lines(&|v| tiling.in_task(sum, v), line);
            bytes += in_task * line as f64;
            first += in_task;
            again += blocks * load.lines(&|v| block(v) * tiling.in_pass(sum, v), line);
        }
        let per_line = if bytes <= cpu.l1_bytes as f64 * 0.75 {
            0.0
        } else if bytes <= cpu.l2_bytes as f64 * 0.5 {
            L2_LINE
        } else {
            L3_LINE
        };
        let lines = tasks * passes * (first * L2_LINE + (again - first).max(0.0) * per_line);

        // Sums that wait between passes, and what is written at the end.
        let waits = if passes > 1.0 { tasks * blocks * vectors * (passes + 1.0) * 2.0 } else { 0.0 };
        let written = match lane {
            Some(i) if group.out.spatial[i].extent % tiling.tiles[i][1] == 0 => {
                tasks * blocks * vectors * COPIED_VECTOR
            }
            _ => tasks * tiling.elements() as f64 * LONE_ELEMENT,
        };
        // Tasks are what threads share.
        let few = 1.0 + 0.1 * (1.0 - tasks / WANTED_TASKS as f64).max(0.0);
        let turning = tasks * passes * turns.iter().map(|(.., n)| *n as f64 * LONE_ELEMENT).sum::<f64>();
        (compute + lines + waits + written + turning) * few
    }

    /// How far each reduce loop is written out, and the steps that this makes: the innermost ones as long as they fit.
    fn written_out(&self, sum: &Sum, tiling: &Tiling) -> (impl Fn(VarId) -> i64, i64) {
        let (mut steps, mut loops) = (1, vec![]);
        for l in sum.nest.reduce.iter().rev() {
            let n = tiling.in_pass(sum, l.var);
            if steps * n > tiling.unroll {
                break;
            }
            steps *= n;
            loops.push((l.var, n));
        }
        (move |v| loops.iter().find(|(l, _)| *l == v).map_or(1, |(_, n)| *n), steps)
    }

    pub(super) fn schedule(&self, config: &Config) -> Result<Scheduled, TemplateError> {
        let mut s = self.prepared.clone();
        for group in self.groups.iter() {
            match &group.sum {
                Some(sum) => self.schedule_sum(&mut s, group, sum, &Tiling::of(config, group, sum)?)?,
                None => self.schedule_elementwise(&mut s, &group.out, config.int("vectors")?)?,
            }
        }
        Ok(Scheduled { schedule: s, packs: vec![] })
    }

    fn schedule_elementwise(&self, s: &mut Schedule, n: &Nest, vectors: i64) -> Result<(), TemplateError> {
        let loops = s.loops_of(n.stage);
        let Some((last, outer)) = loops.split_last() else { return Ok(()) };
        if n.lane().is_some_and(|i| n.spatial[i].var == *last) {
            let lanes = self.cpu.f32_lanes();
            let [_, piece] = pieces(s, *last, lanes * vectors)?;
            let [vector, lane] = pieces(s, piece, lanes)?;
            s.unroll(vector)?;
            vectorize(s, lane)?;
        }
        // What is alone is shared out by its pieces.
        let tasks =
            if outer.is_empty() { s.loops_of(n.stage)[..1].to_vec() } else { outer[..outer.len().min(2)].to_vec() };
        let tasks = s.fuse_all(&tasks)?;
        Ok(s.parallel(tasks)?)
    }

    fn schedule_sum(&self, s: &mut Schedule, group: &Group, sum: &Sum, tiling: &Tiling) -> Result<(), TemplateError> {
        let (out, acc) = (group.out.stage, sum.nest.stage);
        let (mut tasks, mut tiles, mut block) = (vec![], vec![], vec![]);
        for (l, [count, size]) in group.out.spatial.iter().zip(&tiling.tiles) {
            let [task, rest] = s.split(l.var, count * size, Tail::Guard)?;
            let [tile, within] = s.split(rest, *size, Tail::Perfect)?;
            tasks.push(task);
            tiles.push(tile);
            block.push(within);
        }
        let Some(innermost) = tiles.last().copied() else { return Ok(()) };
        s.reorder(&[&tasks[..], &tiles, &block].concat())?;
        let task = s.fuse_all(&tasks)?;
        s.parallel(task)?;

        if tiling.passes(sum) > 1 {
            s.set_scope(acc, Scope::Local)?;
            s.compute_at(acc, task)?;
            self.schedule_passes(s, group, sum, tiling)?;
        } else {
            s.set_scope(acc, Scope::Register)?;
            s.compute_at(acc, innermost)?;
            turn(s, task, &tiling.turns(group, sum))?;
            self.block(s, acc, &s.loops_of(acc), tiling.unroll)?;
        }
        self.block(s, out, &block, 1)
    }

    /// The sums of a task, which wait in a private buffer between passes.
    fn schedule_passes(
        &self,
        s: &mut Schedule,
        group: &Group,
        sum: &Sum,
        tiling: &Tiling,
    ) -> Result<(), TemplateError> {
        let acc = sum.nest.stage;
        let loops = s.loops_of(acc);
        let (_, over) = lane_of(&s.kernel, acc, &loops);
        let (reduce, spatial): (Vec<VarId>, Vec<VarId>) = loops.iter().partition(|v| over.contains(v));
        let (mut blocks, mut within, mut steps) = (vec![], vec![], vec![]);
        for v in spatial {
            let size = sum.reader_of(&s.kernel, &loops, v).map_or(1, |i| tiling.tiles[i][1]);
            let [outer, inner] = pieces(s, v, size)?;
            blocks.push(outer);
            within.push(inner);
        }
        let mut pass = None;
        for v in reduce {
            if sum.nest.longest().is_some_and(|l| l.var == v) {
                let [outer, inner] = s.split(v, tiling.step, Tail::Perfect)?;
                pass = Some(outer);
                steps.push(inner);
            } else {
                steps.push(v);
            }
        }
        let Some(pass) = pass else { return Ok(()) };
        s.reorder(&[&[pass][..], &blocks, &steps, &within].concat())?;
        turn(s, pass, &tiling.turns(group, sum))?;
        let (registers, copy) = s.cache_write_at(acc, blocks.last().copied().unwrap_or(pass), Scope::Register)?;
        self.block(s, registers, &s.loops_of(registers), tiling.unroll)?;
        self.block(s, acc, &copy, 1)
    }

    /// Makes a perfect nest around the statement that writes `stage` into straight vector code: reduce loops outside, the
    /// innermost of them written out as far as `unroll` steps, then the other loops written out, and innermost the lanes.
    fn block(&self, s: &mut Schedule, stage: BufferId, loops: &[VarId], unroll: i64) -> Result<(), TemplateError> {
        let lanes = self.cpu.f32_lanes();
        let (lane, reduce) = lane_of(&s.kernel, stage, loops);
        let (over, mut straight): (Vec<VarId>, Vec<VarId>) = loops.iter().partition(|v| reduce.contains(v));
        straight.retain(|v| Some(*v) != lane);
        let mut order: Vec<VarId> = over.iter().chain(&straight).copied().collect();
        let mut vector = None;
        if let Some(lane) = lane {
            let [outer, inner] = s.split(lane, lanes.min(extent(s, lane)), Tail::Guard)?;
            order.extend([outer, inner]);
            straight.push(outer);
            vector = Some(inner);
        }
        if order.len() > 1 {
            s.reorder(&order)?;
        }
        let mut steps = 1;
        for v in over.iter().rev() {
            steps *= extent(s, *v);
            if steps > unroll {
                break;
            }
            s.unroll(*v)?;
        }
        for v in straight {
            s.unroll(v)?;
        }
        vector.map_or(Ok(()), |v| vectorize(s, v))
    }
}

/// Copies the tiles that a loop's body reads, with the dimension that lanes walk last.
fn turn(s: &mut Schedule, at: VarId, turns: &[(&Load, usize, i64)]) -> Result<(), TemplateError> {
    for (load, dim, _) in turns {
        let tile = s.cache_read_at(load.buffer, at, Scope::Local)?;
        let others = (0..load.indices.len()).filter(|d| d != dim);
        let layout: Vec<LayoutDim> = others.chain([*dim]).map(LayoutDim::whole).collect();
        s.transform_layout(tile, &layout)?;
    }
    Ok(())
}

/// The vectors that hold a row of elements: what is left of whole ones is cut in powers of two.
fn vectors_of(elements: i64, lanes: i64) -> i64 {
    elements / lanes + i64::from((elements % lanes).count_ones())
}

/// The block along the lanes that a descent begins with: one vector, or what divides where it must.
fn first_block(extent: i64, within: i64, lanes: i64) -> i64 {
    let most = lanes.min(within);
    if within == extent {
        // A power of two or all of it: what `Split::verbose` has.
        if most == extent || most == lanes { most } else { 1 }
    } else {
        (1..=most).rev().find(|n| within % n == 0).unwrap_or(1)
    }
}
