//! Matrix products with B packed in panels.
//!
//! B is packed once as `[n / nr][k][nr]`, so that a step of the reduction loads one contiguous row of a panel; A is read
//! in place, one broadcast scalar per row of the tile. The register tile is `mr x nr`; a panel stays in L1 or L2 while
//! the rows of A pass by. With `k_tile` below k, partial sums of a panel's column wait in memory between blocks of k.
//!
//! Rows of A that lie a multiple of 4 KiB apart fall on the same lines of L1 and evict each other. A task that takes all
//! panels for its rows (`task = rows`) therefore copies them first, one line apart; panels then stream past.

use super::tile::{MAX_VECTORS, RegisterTile, best_tile, ceil_div, cover_cycles, cycles_to_us, even_tiles};
use super::{pack_param, pieces, vectorize, vectorize_block, vectorize_rows};
use crate::ir::Scope;
use crate::schedule::Schedule;
use crate::schedule::transform_layout::LayoutDim;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Matmul, Op, Workload, naive};

/// See the module's text. Knobs: `mr` rows of A, `nv` vectors of B's columns, `k_tile` the length of one block of the
/// reduction, `m_tile` the rows of A that one task takes, `task` whether it takes one `panel` of B for them or copies the
/// `rows` and takes all panels.
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
        2
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let registers = cpu.clone();
        let lanes = cpu.f32_lanes();
        Ok(Space::builder()
            .knob("mr", even_tiles(m.m, 24))
            .knob("nv", 1..=ceil_div(m.n, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("k_tile", k_tiles(m.k))
            .knob("m_tile", m_tiles(m.m))
            .knob("task", ["panel", "rows"])
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
        // Enough tasks for a few cores; of those the config that is predicted to be fastest. Rows of A that evict each
        // other from L1 ask for fewer of them in a tile.
        let mut m_tiles = m_tiles(m.m);
        m_tiles.sort_by_key(|rows| (rows - USUAL_ROWS).abs());
        let mut best: Option<((bool, f64), Config)> = None;
        for tile in [best_tile(m.m, m.n, 24, cpu), best_tile(m.m, m.n, WAYS, cpu)] {
            let panels = ceil_div(m.n, tile.vectors * cpu.f32_lanes());
            let wanted_tasks = WANTED_TASKS.min(ceil_div(m.m, tile.rows) * panels);
            for k_tile in k_tiles(m.k) {
                for m_tile in m_tiles.iter().copied() {
                    for task in ["panel", "rows"] {
                        if task == "rows" && (m.trans_a || panels < 2) {
                            continue;
                        }
                        let config = Config::new()
                            .with("mr", tile.rows)
                            .with("nv", tile.vectors)
                            .with("k_tile", k_tile)
                            .with("m_tile", m_tile)
                            .with("task", task);
                        let tasks = m.batch * ceil_div(m.m, m_tile) * if task == "rows" { 1 } else { panels };
                        let rank = (tasks < wanted_tasks, estimate(w, t, &config)?);
                        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                            best = Some((rank, config));
                        }
                    }
                }
            }
        }
        best.map(|b| b.1).ok_or_else(|| TemplateError::Limit("a product without rows".into()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        estimate(w, t, config).unwrap_or(f64::INFINITY)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let (mr, nr) = (config.int("mr")?.min(m.m), (config.int("nv")? * lanes).min(m.n));
        // Tasks of whole register tiles: only the last one has a tail.
        let m_tile = (ceil_div(config.int("m_tile")?, mr) * mr).min(m.m);
        let k_tile = config.int("k_tile")?.min(m.k);
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
        let (mut task, panel) = if config.str("task")? == "rows" {
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
        if blocked {
            // Partial sums of m_tile x nr wait in private memory.
            s.set_scope(acc, Scope::Local)?;
            s.compute_at(acc, panel)?;
            let loops = s.loops_of(acc);
            let [i, j, k] = loops[loops.len() - 3..] else { unreachable!("a product has three loops") };
            let [ir, ri] = pieces(&mut s, i, mr)?;
            let [ko, ki] = pieces(&mut s, k, k_tile)?;
            s.reorder(&[ko, ir, ki, ri, j])?;
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

/// Tasks that a default should have, if the product is large enough: some for each of a few cores.
const WANTED_TASKS: i64 = 8;

/// Rows of a task where nothing speaks for more or fewer.
const USUAL_ROWS: i64 = 128;

/// Rows of a task worth offering.
fn m_tiles(m: i64) -> Vec<i64> {
    even_tiles(m, i64::MAX).into_iter().filter(|t| *t >= m.min(32)).collect()
}

/// Lengths of a block of the reduction worth offering.
fn k_tiles(k: i64) -> Vec<i64> {
    even_tiles(k, i64::MAX).into_iter().filter(|t| *t >= k.min(128)).collect()
}

/// Cycles that a step of the reduction costs beside its multiply-adds and loads.
const STEP: f64 = 0.4;
/// Cycles that a line from L2 and from L3 delays what is computed meanwhile.
const L2_LINE: f64 = 0.2;
const L3_LINE: f64 = 0.5;
/// Rows of A that L1 holds where all of them fall on the same set.
const WAYS: i64 = 8;

/// Predicted microseconds on one core: the arithmetic, and what the lines of both operands cost where they come from.
fn estimate(w: &Workload, t: &Target, config: &Config) -> Result<f64, TemplateError> {
    let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let tile = RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? };
    let (k_tile, m_tile, by_rows) = (config.int("k_tile")?, config.int("m_tile")?, config.str("task")? == "rows");
    let (lanes, line) = (cpu.f32_lanes() as f64, cpu.cache_line_bytes.max(1) as f64);
    let nr = (tile.vectors * cpu.f32_lanes()).min(m.n);
    let batch = m.batch as f64;
    let compute = cover_cycles(m.m, m.n, tile, cpu) * (m.batch * m.k) as f64;
    let row_tiles = ceil_div(m.m, tile.rows) as f64;
    let panels = ceil_div(m.n, nr) as f64;
    let steps = row_tiles * panels * m.k as f64;
    let blocks = ceil_div(m.k, k_tile);
    let partial_sums = if blocks > 1 { (3 * m.m * m.n * blocks) as f64 / lanes } else { 0.0 };

    // Half of what memory takes is hidden behind arithmetic. Other cores leave some of their L3.
    let memory_line = 0.5 * line / cpu.bandwidth_gb_s.max(1.0) * cpu.clock_mhz as f64 / 1000.0;
    let level = |bytes: i64| {
        if bytes <= cpu.l1_bytes / 2 {
            0.0
        } else if bytes <= cpu.l2_bytes * 3 / 4 {
            L2_LINE
        } else if bytes <= 4 * cpu.l3_bytes_per_core {
            L3_LINE
        } else {
            memory_line
        }
    };
    // B: each task brings a panel, and each of its row tiles reads a block of it again. Several lines a step are in each
    // other's way.
    let b_lines = panels * (4 * nr * m.k) as f64 / line;
    let fetches = if by_rows { ceil_div(m.m, m_tile) as f64 } else { 1.0 };
    let crowded = tile.vectors as f64 / 2.0;
    let b =
        b_lines * (fetches * level(4 * m.n * m.k) + (row_tiles - fetches).max(0.0) * crowded * level(4 * nr * k_tile));
    // A: every panel passes the rows of a task, or all rows. Rows a multiple of 4 KiB apart evict each other in place.
    let a_lines = (4 * m.m * m.k) as f64 / line;
    let again = level(if by_rows { 4 * m_tile * m.k } else { 4 * m.m * m.k });
    let conflict = if by_rows || m.trans_a || (4 * m.k) % 4096 != 0 || tile.rows <= WAYS {
        0.0
    } else if tile.rows > 2 * WAYS {
        1.4 * tile.rows as f64
    } else {
        0.7
    };
    let copied = if by_rows { (m.m * m.k) as f64 / lanes * 3.0 } else { 0.0 };
    let a = a_lines * panels * again + steps * conflict + copied;
    Ok(cycles_to_us(compute + batch * (steps * STEP + partial_sums + a + b), cpu))
}
