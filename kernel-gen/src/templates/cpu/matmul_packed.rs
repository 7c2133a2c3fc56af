//! Matrix products with B packed in panels.
//!
//! B is packed once as `[n / nr][k][nr]`, so that a step of the reduction loads one contiguous row of a panel; A is read
//! in place, one broadcast scalar per row of the tile. The register tile is `mr x nr`; a panel stays in L1 or L2 while
//! the rows of A pass by. With `k_tile` below k, partial sums of a panel's column wait in memory between blocks of k.

use super::tile::{MAX_VECTORS, RegisterTile, best_tile, ceil_div, cover_cycles, cycles_to_us, even_tiles};
use super::{pack_param, pieces, vectorize, vectorize_block};
use crate::ir::Scope;
use crate::schedule::Schedule;
use crate::schedule::transform_layout::LayoutDim;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Matmul, Op, Workload, naive};

/// See the module's text. Knobs: `mr` rows of A, `nv` vectors of B's columns, `k_tile` the length of one block of the
/// reduction, `m_tile` the rows of A that one task takes.
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
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let registers = cpu.clone();
        Ok(Space::builder()
            .knob("mr", even_tiles(m.m, 24))
            .knob("nv", 1..=ceil_div(m.n, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("k_tile", k_tiles(m.k))
            .knob("m_tile", even_tiles(m.m, i64::MAX).into_iter().filter(|t| *t >= m.m.min(32)).collect::<Vec<_>>())
            .filter("accumulators fit in the vector registers", move |c| {
                matches!((c.int("mr"), c.int("nv")), (Ok(rows), Ok(vectors)) if RegisterTile { rows, vectors }.fits(&registers))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let tile = best_tile(m.m, m.n, 24, cpu);
        // A panel should leave most of L2 to the rows of A.
        let panel_rows = (cpu.l2_bytes / 4 / (tile.vectors * cpu.vector_bytes)).max(64);
        let k_tile = k_tiles(m.k).into_iter().filter(|k| *k <= panel_rows).max().unwrap_or(m.k);
        // Enough tasks for many cores, each with whole register tiles.
        let m_tile = even_tiles(m.m, i64::MAX)
            .into_iter()
            .filter(|rows| *rows >= m.m.min(32))
            .min_by_key(|rows| (rows - 128).abs())
            .unwrap_or(m.m);
        Ok(Config::new().with("mr", tile.rows).with("nv", tile.vectors).with("k_tile", k_tile).with("m_tile", m_tile))
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

        // One task: a panel of B against m_tile rows of A.
        let loops = s.loops_of(c);
        let (i, j) = (loops[batched], loops[batched + 1]);
        let [it, ii] = pieces(&mut s, i, m_tile)?;
        let [jt, ji] = pieces(&mut s, j, nr)?;
        s.reorder(&[jt, it, ii, ji])?;
        let mut task = s.fuse(jt, it)?;
        if batched == 1 {
            task = s.fuse(loops[0], task)?;
        }
        s.parallel(task)?;

        let blocked = k_tile < m.k;
        if blocked {
            // Partial sums of m_tile x nr wait in private memory.
            s.set_scope(acc, Scope::Local)?;
            s.compute_at(acc, task)?;
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
        Ok(Scheduled { schedule: s, packs: vec![pack] })
    }
}

/// Lengths of a block of the reduction worth offering.
fn k_tiles(k: i64) -> Vec<i64> {
    even_tiles(k, i64::MAX).into_iter().filter(|t| *t >= k.min(128)).collect()
}

/// Predicted microseconds on one core.
fn estimate(w: &Workload, t: &Target, config: &Config) -> Result<f64, TemplateError> {
    let (m, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let tile = RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? };
    let compute = cover_cycles(m.m, m.n, tile, cpu) * (m.batch * m.k) as f64;
    let blocks = ceil_div(m.k, config.int("k_tile")?);
    let partial_sums = if blocks > 1 { (m.batch * m.m * m.n * blocks) as f64 / cpu.f32_lanes() as f64 } else { 0.0 };
    Ok(cycles_to_us(compute + partial_sums, cpu))
}
