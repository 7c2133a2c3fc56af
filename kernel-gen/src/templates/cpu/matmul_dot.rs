//! Matrix products with few columns: lanes along the reduction.
//!
//! Where c is narrow, `matmul_packed` has nothing to put into its lanes, and broadcasting A element by element costs more
//! than reading it. Here both operands are read in vectors along k, as rows of A and columns of B, and a tile of `mr x nr`
//! dot products keeps a vector of partial sums each; what is in the lanes is added up once, at the end. A is read exactly
//! once, which is what such products cost: a multiple of the time that memory takes is arithmetic that is done badly.
//!
//! B's columns must be runs. With `trans_b` they are, so B stays where it is and nothing is packed.

use super::steps::{pack_param, pieces, vectorize_block};
use super::tile::{ceil_div, cycles_to_us, even_tiles};
use crate::ir::Scope;
use crate::schedule::transform_layout::LayoutDim;
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Matmul, Op, Workload, naive};

/// See the module's text. Knobs: `mr` rows of A and `nr` columns of B of the tile of sums; `m_tile` rows and `n_tile`
/// columns of a task.
pub struct MatmulDot;

/// Narrowest side of c up to which dot products are offered.
const NARROW: i64 = 32;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Matmul, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Matmul(m) = w.op else { return Err("for matrix products".into()) };
    if m.trans_a {
        return Err("for products whose left side is stored row by row".into());
    }
    if m.n > NARROW && !(m.trans_b && m.m <= NARROW) {
        return Err(format!("for products with at most {NARROW} columns, or rows where the right side is transposed"));
    }
    if m.k % cpu.f32_lanes() != 0 {
        return Err(format!("for reductions of whole vectors, a multiple of {}", cpu.f32_lanes()));
    }
    Ok((m, cpu))
}

/// Whether the sums of a tile and what they multiply fit in the vector registers.
fn fits(mr: i64, nr: i64, cpu: &Cpu) -> bool {
    mr * nr + mr.min(nr) < cpu.vector_registers
}

impl Template for MatmulDot {
    fn name(&self) -> &str {
        "matmul_dot"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let registers = cpu.clone();
        Ok(Space::builder()
            .knob("mr", even_tiles(m.m, 16))
            .knob("nr", even_tiles(m.n, 16))
            .knob("m_tile", even_tiles(m.m, i64::MAX))
            .knob("n_tile", even_tiles(m.n, i64::MAX))
            .filter(
                "sums and operands fit in the vector registers",
                move |c| matches!((c.int("mr"), c.int("nr")), (Ok(mr), Ok(nr)) if fits(mr, nr, &registers)),
            )
            .filter("a task holds whole tiles", |c| {
                let holds = |tile, task| matches!((c.int(tile), c.int(task)), (Ok(tile), Ok(task)) if tile <= task);
                holds("mr", "m_tile") && holds("nr", "n_tile")
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        // The least arithmetic, from few streams of rows; then tasks for some cores, the longer side cut.
        let mut best: Option<(f64, i64, i64)> = None;
        for mr in even_tiles(m.m, STREAMS) {
            for nr in even_tiles(m.n, STREAMS).into_iter().filter(|nr| fits(mr, *nr, cpu)) {
                // Square tiles win ties: they load least.
                let cycles = step_cycles(&m, cpu, mr, nr) * (1.0 + 1e-3 * (mr + nr) as f64);
                if best.is_none_or(|(least, ..)| cycles < least) {
                    best = Some((cycles, mr, nr));
                }
            }
        }
        let (_, mr, nr) = best.ok_or_else(|| TemplateError::Limit("a product of nothing".into()))?;
        let wanted_tasks = 8;
        let cut = |extent: i64, tile: i64| {
            let tiles = even_tiles(extent, i64::MAX).into_iter().filter(|t| *t >= tile);
            let (mut few, mut enough) = (extent, None);
            for size in tiles {
                few = few.min(size);
                if ceil_div(extent, size) >= wanted_tasks {
                    enough = Some(size);
                }
            }
            enough.unwrap_or(few)
        };
        let (m_tile, n_tile) = if m.m >= m.n { (cut(m.m, mr), m.n) } else { (m.m, cut(m.n, nr)) };
        Ok(Config::new().with("mr", mr).with("nr", nr).with("m_tile", m_tile).with("n_tile", n_tile))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), config.int("mr"), config.int("nr")) {
            (Ok((m, cpu)), Ok(mr), Ok(nr)) => cycles_to_us(tile_cycles(&m, cpu, mr, nr), cpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let [mr, nr, m_tile, n_tile] =
            [config.int("mr")?, config.int("nr")?, config.int("m_tile")?, config.int("n_tile")?];
        let batched = usize::from(m.batch > 1);
        let mut s = Schedule::new(naive(w));
        let (b, acc, c) = (s.stage("b")?, s.stage("acc")?, s.stage("c")?);
        let mut packs = vec![];
        if !m.trans_b {
            // Columns become rows.
            let mut layout = vec![LayoutDim::whole(batched + 1), LayoutDim::whole(batched)];
            if batched == 1 {
                layout.insert(0, LayoutDim::whole(0));
            }
            packs.push(pack_param(&mut s, b, &layout)?);
        }

        // One task: m_tile rows and n_tile columns of c, tile by tile.
        let loops = s.loops_of(c);
        let (i, j) = (loops[batched], loops[batched + 1]);
        let [it, ii] = pieces(&mut s, i, m_tile)?;
        let [jt, jj] = pieces(&mut s, j, n_tile)?;
        let [ir, ri] = pieces(&mut s, ii, mr)?;
        let [jr, rj] = pieces(&mut s, jj, nr)?;
        s.reorder(&[it, jt, ir, jr, ri, rj])?;
        let outer: Vec<_> = loops[..batched].iter().copied().chain([it, jt]).collect();
        let task = s.fuse_all(&outer)?;
        s.parallel(task)?;

        // acc = sum over lanes of (vectors of partial sums); lanes are added up in quarters first.
        let k = s.loops_of(acc).last().copied().ok_or_else(|| TemplateError::Limit("a product without k".into()))?;
        let [_, lane] = s.split(k, lanes, Tail::Perfect)?;
        let partial = s.rfactor(acc, lane)?;
        let last = |s: &mut Schedule, stage| {
            let dims: Vec<LayoutDim> = (1..=batched + 2).chain([0]).map(LayoutDim::whole).collect();
            s.transform_layout(stage, &dims)
        };
        last(&mut s, partial)?;
        let mut stages = vec![partial];
        if lanes > QUARTER {
            let all = s.loops_of(acc);
            let lane = all[all.len() - 1];
            let [_, within] = s.split(lane, QUARTER, Tail::Perfect)?;
            let quarter = s.rfactor(acc, within)?;
            last(&mut s, quarter)?;
            stages.push(quarter);
        }
        for stage in [acc].into_iter().chain(stages.iter().rev().copied()) {
            s.set_scope(stage, Scope::Local)?;
            s.compute_at(stage, jr)?;
        }
        let (sums, _) = s.cache_write_at(partial, jr, Scope::Register)?;
        let loops = s.loops_of(sums);
        vectorize_block(&mut s, sums, &loops, lanes)?;
        for stage in stages {
            let loops = s.loops_of(stage);
            vectorize_block(&mut s, stage, &loops, lanes)?;
        }
        Ok(Scheduled { schedule: s, packs })
    }
}

/// Lanes that are added up one by one.
const QUARTER: i64 = 4;
/// Cycles to add up the lanes of one sum.
const LANES: f64 = 12.0;
/// Cycles for a line of the operand that is read once.
const LINE: f64 = 1.8;

/// Rows or columns that a default reads at the same time.
const STREAMS: i64 = 8;

/// Predicted cycles of the whole product.
fn tile_cycles(m: &Matmul, cpu: &Cpu, mr: i64, nr: i64) -> f64 {
    let memory = (4 * m.batch * (m.m * m.k + m.n * m.k)) as f64 / cpu.cache_line_bytes.max(1) as f64 * LINE;
    step_cycles(m, cpu, mr, nr).max(memory) + (m.batch * m.m * m.n) as f64 * LANES
}

/// Cycles of all multiply-adds.
fn step_cycles(m: &Matmul, cpu: &Cpu, mr: i64, nr: i64) -> f64 {
    let (mr, nr) = (mr.min(m.m), nr.min(m.n));
    let steps = (m.k / cpu.f32_lanes()) as f64;
    let tiles = (m.batch * ceil_div(m.m, mr) * ceil_div(m.n, nr)) as f64;
    let multiply_adds = (mr * nr) as f64 / cpu.fma_units.max(1) as f64 * if cpu.fma { 1.0 } else { 2.0 };
    let loads = (mr + nr) as f64 / 2.0;
    let step = multiply_adds.max(loads).max(cpu.fma_latency as f64) + 0.4;
    tiles * steps * step
}
