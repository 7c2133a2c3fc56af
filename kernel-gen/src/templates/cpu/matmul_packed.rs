//! Matrix products with B packed in panels.
//!
//! B is packed once as `[n / nr][k][nr]`, so that a step of the reduction loads one contiguous row of a panel; A is read
//! in place, one broadcast scalar per row of the tile. The register tile is `mr x nr`; a panel stays in L1 or L2 while
//! the rows of A pass by. With `k_tile` below k, partial sums of a panel's column wait in memory between blocks of k.
//!
//! Rows of A that lie a multiple of 4 KiB apart fall on the same lines of L1 and evict each other. A task that takes all
//! panels for its rows (`task = rows`) therefore copies them first, one line apart; panels then stream past.
//!
//! Where few rows pass a panel, what counts is how fast B comes. Processors fetch ahead by themselves, but begin anew at
//! each page of 4 KiB; `fetch = ahead` asks for a page's length ahead.

mod choice;

use self::choice::{Knobs, MAX_ROWS, best_knobs, estimate, k_tiles, m_tiles};
use super::steps::{pack_param, pieces, vectorize, vectorize_block, vectorize_rows};
use super::tile::{MAX_VECTORS, RegisterTile, ceil_div, even_tiles};
use crate::ir::{Pragma, Scope};
use crate::schedule::Schedule;
use crate::schedule::transform_layout::LayoutDim;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Matmul, Op, Workload, naive};

/// See the module's text. Knobs: `mr` rows of A, `nv` vectors of B's columns, `k_tile` the length of one block of the
/// reduction, `m_tile` the rows of A that one task takes, `task` whether it takes one `panel` of B for them or copies the
/// `rows` and takes all panels, `fetch` whether B is asked for on `demand` or `ahead`.
pub struct MatmulPacked;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Matmul, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    match w.op {
        Op::Matmul(m) => Ok((m, cpu)),
        _ => Err("for matrix products".to_string()),
    }
}

impl Template for MatmulPacked {
    fn name(&self) -> &str {
        "matmul_packed"
    }

    fn version(&self) -> u32 {
        3
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let registers = cpu.clone();
        let lanes = cpu.f32_lanes();
        Ok(Space::builder()
            .knob("mr", even_tiles(m.m, MAX_ROWS))
            .knob("nv", 1..=ceil_div(m.n, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("k_tile", k_tiles(m.k))
            .knob("m_tile", m_tiles(m.m))
            .knob("task", ["panel", "rows"])
            .knob("fetch", ["demand", "ahead"])
            .filter("accumulators fit in the vector registers", move |c| {
                matches!((c.int("mr"), c.int("nv")), (Ok(rows), Ok(vectors)) if RegisterTile { rows, vectors }.fits(&registers))
            })
            .filter("several panels where a task takes them all, of rows that are one run each", move |c| {
                c.str("task") == Ok("panel") || (!m.trans_a && c.int("nv").is_ok_and(|nv| nv * lanes < m.n))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        best_knobs(&m, cpu).map(Knobs::config).ok_or_else(|| TemplateError::Limit("a product without rows".into()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Knobs::read(config)) {
            (Ok((m, cpu)), Ok(knobs)) => estimate(&m, cpu, knobs),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let knobs = Knobs::read(config)?;
        let (mr, nr) = (knobs.tile.rows.min(m.m), (knobs.tile.vectors * lanes).min(m.n));
        // Tasks of whole register tiles: only the last one has a tail.
        let m_tile = knobs.task_rows(&m);
        let k_tile = knobs.k_tile.min(m.k);
        let mut s = Schedule::new(naive(w));
        let (b, acc, c) = (s.stage("b")?, s.stage("acc")?, s.stage("c")?);
        let batched = usize::from(m.batch > 1);

        // B in panels: [bt] [n / nr] [k] [nr].
        let (k_dim, n_dim) = if m.trans_b { (batched + 1, batched) } else { (batched, batched + 1) };
        let mut layout = vec![LayoutDim::outer(n_dim, nr), LayoutDim::whole(k_dim), LayoutDim::inner(n_dim, nr)];
        if batched == 1 {
            layout.insert(0, LayoutDim::whole(0));
        }
        let pack = pack_param(&mut s, b, &layout)?;

        // One task: a panel of B, or all of them one after the other, against m_tile rows of A.
        let loops = s.loops_of(c);
        let (i, j) = (loops[batched], loops[batched + 1]);
        let [it, ii] = pieces(&mut s, i, m_tile)?;
        let [jt, ji] = pieces(&mut s, j, nr)?;
        let (mut task, panel) = if knobs.by_rows {
            s.reorder(&[it, jt, ii, ji])?;
            (it, Some(jt))
        } else {
            s.reorder(&[jt, it, ii, ji])?;
            (s.fuse(jt, it)?, None)
        };
        if batched == 1 {
            task = s.fuse(loops[0], task)?;
        }
        s.parallel(task)?;
        let panel = panel.unwrap_or(task);

        let blocked = k_tile < m.k;
        let steps = knobs.ahead.then_some((FETCH_AHEAD_BYTES / (4 * nr)).max(1));
        let ahead = |s: &mut Schedule, k| steps.map_or(Ok(()), |steps| s.pragma(k, Pragma::FetchAhead(steps)));
        if blocked {
            // Partial sums of m_tile x nr wait in private memory.
            s.set_scope(acc, Scope::Local)?;
            s.compute_at(acc, panel)?;
            let loops = s.loops_of(acc);
            let [i, j, k] = loops[loops.len() - 3..] else { unreachable!("a product has three loops") };
            let [ir, ri] = pieces(&mut s, i, mr)?;
            let [ko, ki] = pieces(&mut s, k, k_tile)?;
            s.reorder(&[ko, ir, ki, ri, j])?;
            ahead(&mut s, ki)?;
            let (tile, copy) = s.cache_write_at(acc, ir, Scope::Register)?;
            let sums = s.loops_of(tile);
            vectorize_block(&mut s, tile, &sums, lanes)?;
            vectorize_block(&mut s, acc, &copy, lanes)?;
            // The epilogue, row by row.
            let [jv, jl] = pieces(&mut s, ji, lanes)?;
            vectorize(&mut s, jl)?;
            s.unroll(jv)?;
        } else {
            // The whole reduction in registers, and the epilogue on them.
            let [ir, ri] = pieces(&mut s, ii, mr)?;
            let [jv, jl] = pieces(&mut s, ji, lanes)?;
            s.reorder(&[ir, ri, jv, jl])?;
            s.set_scope(acc, Scope::Register)?;
            s.compute_at(acc, ir)?;
            let sums = s.loops_of(acc);
            if let Some(k) = sums.last() {
                ahead(&mut s, *k)?;
            }
            vectorize_block(&mut s, acc, &sums, lanes)?;
            s.unroll(ri)?;
            s.unroll(jv)?;
            vectorize(&mut s, jl)?;
        }
        if panel != task {
            // Rows an odd number of lines apart fall on all sets of L1.
            let a = s.stage("a")?;
            let rows = s.cache_read_at(a, task, Scope::Local)?;
            let line = cpu.cache_line_bytes / 4;
            s.storage_align(rows, batched, 2 * line, line)?;
            vectorize_rows(&mut s, rows, lanes)?;
        }
        Ok(Scheduled { schedule: s, packs: vec![pack] })
    }
}

/// How far B is asked for ahead: what processors fetch ahead by themselves ends with the page.
const FETCH_AHEAD_BYTES: i64 = 4096;
