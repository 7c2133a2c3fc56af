//! A depthwise convolution and the pointwise one that follows it, in NCHW.
//!
//! A task is a block of whole output rows. Its depthwise results, all channels of them, are computed into a private
//! matrix `[c][pixels]` that stays in the second-level cache, as [`super::depthwise_rows`] computes them; the pointwise
//! convolution is then a product with that matrix. Nothing of what lies between the two is written to memory that
//! others see.
//!
//! The product has pixels along its lanes, as [`super::conv2d_pointwise`] has, where few channels are summed up; or output
//! channels, as [`super::conv2d_direct`] has: then a tile is some pixels high, which fit the rows of small maps better
//! than vectors of pixels do, but its sums are transposed on their way out.
//!
//! Small maps are one block. There the output channels are shared out instead, and each share computes the depthwise
//! results again, which costs `kh * kw` multiply-adds where the product costs as many as the share has channels.

use super::steps::{extent, pack_param, pieces, vectorize, vectorize_block, vectorize_rows};
use super::tile::{MAX_VECTORS, RegisterTile, ceil_div, cover_cycles, cycles_to_us, even_tiles};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, Scope, VarId};
use crate::schedule::Schedule;
use crate::schedule::transform_layout::LayoutDim;
use crate::space::{Config, Space, divisors};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::{DepthwisePointwise, Op, Param, Role, Workload, naive};

/// See the module's text. Knobs: `rows` output rows of a block, a divisor of all; `parts` shares of the output channels;
/// `lanes` what runs along them, `pixels` or `channels`; and the register tile, `mr` of the other by `nv` vectors.
pub struct DepthwisePointwiseBlock;

/// Most shares of the output channels.
const MAX_PARTS: i64 = 8;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(DepthwisePointwise, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::DepthwisePointwise(p) = w.op else {
        return Err("for pairs of a depthwise and a pointwise convolution".into());
    };
    if p.depthwise.kh * p.depthwise.kw > 49 {
        return Err("for kernels up to 7x7".into());
    }
    Ok((p, cpu))
}

/// Rows of a block: the divisors of the output's rows.
fn row_blocks(p: &DepthwisePointwise) -> Vec<i64> {
    divisors(p.depthwise.oh())
}

/// What runs along the lanes of the product.
const LANES: [&str; 2] = ["pixels", "channels"];

/// Sizes of register tiles across the lanes.
fn tile_rows(p: &DepthwisePointwise, rows: i64, lanes: &str) -> Vec<i64> {
    even_tiles(if lanes == "pixels" { p.co } else { rows * p.depthwise.ow() }, 24)
}

/// Bytes of a block's depthwise results.
fn block_bytes(p: &DepthwisePointwise, rows: i64) -> i64 {
    4 * p.depthwise.ci * rows * p.depthwise.ow()
}

/// Whether a block's depthwise results leave half of the second-level cache to weights and input; one row is taken even
/// where it does not.
fn stays_in_cache(p: &DepthwisePointwise, rows: i64, cpu: &Cpu) -> bool {
    rows == 1 || block_bytes(p, rows) <= cpu.l2_bytes / 2
}

impl Template for DepthwisePointwiseBlock {
    fn name(&self) -> &str {
        "depthwise_pointwise"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let (registers, vector) = (cpu.clone(), cpu.f32_lanes());
        let rows: Vec<i64> = row_blocks(&p).into_iter().filter(|r| stays_in_cache(&p, *r, cpu)).collect();
        Ok(Space::builder()
            .knob("rows", rows)
            .knob("parts", even_tiles(p.co, MAX_PARTS))
            .knob("lanes", LANES)
            .knob("mr", 1..=24)
            .knob("nv", 1..=MAX_VECTORS)
            .filter("tiles cut what they cut evenly and are no longer than it", move |config| {
                let (Ok(rows), Ok(lanes)) = (config.int("rows"), config.str("lanes")) else { return false };
                let along = if lanes == "pixels" { rows * p.depthwise.ow() } else { p.co };
                matches!((config.int("mr"), config.int("nv")), (Ok(mr), Ok(nv))
                    if tile_rows(&p, rows, lanes).contains(&mr) && nv <= ceil_div(along, vector))
            })
            .filter("accumulators fit in the vector registers", move |config| {
                matches!((config.int("mr"), config.int("nv")),
                    (Ok(rows), Ok(vectors)) if RegisterTile { rows, vectors }.fits(&registers))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let space = self.space(w, t)?;
        let mut best: Option<(f64, Config)> = None;
        let blocks = row_blocks(&p).into_iter().filter(|r| stays_in_cache(&p, *r, cpu));
        for (rows, lanes) in blocks.flat_map(|rows| LANES.map(|lanes| (rows, lanes))) {
            let pixels = rows * p.depthwise.ow();
            // Two tasks at least, so that a second thread is of use.
            let parts = if p.depthwise.n * p.depthwise.oh() == rows { 2.min(p.co) } else { 1 };
            let along = if lanes == "pixels" { pixels } else { p.co };
            let tiles = (1..=MAX_VECTORS.min(ceil_div(along, cpu.f32_lanes()))).flat_map(|vectors| {
                tile_rows(&p, rows, lanes).into_iter().map(move |rows| RegisterTile { rows, vectors })
            });
            let config = Config::new().with("rows", rows).with("parts", parts).with("lanes", lanes);
            let configs =
                tiles.filter(|tile| tile.fits(cpu)).map(|t| config.clone().with("mr", t.rows).with("nv", t.vectors));
            let costs = configs.map(|config| (self.cost(w, t, &config), config));
            let Some((cost, config)) = costs.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            let Ok(config) = space.normalise(&config) else { continue };
            // Of two threads none should wait for the other's last block.
            let tasks = p.depthwise.n * (p.depthwise.oh() / rows) * parts;
            let cost = cost * (2 * ceil_div(tasks, 2)) as f64 / tasks as f64;
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, config));
            }
        }
        let none = || TemplateError::Limit("no block of rows has a register tile".into());
        best.map(|(_, config)| config).ok_or_else(none)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        estimate(w, t, config).unwrap_or(f64::INFINITY)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let rows = config.int("rows")?;
        if rows < 1 || p.depthwise.oh() % rows != 0 {
            return Err(TemplateError::Limit(format!(
                "{rows} rows do not divide the {} of the output",
                p.depthwise.oh()
            )));
        }
        let (mr, nr) = (config.int("mr")?, config.int("nv")? * lanes);
        let channels = config.str("lanes")? == "channels";
        let tile = if channels { nr } else { mr }.min(p.co);
        let share = ceil_div(ceil_div(p.co, config.int("parts")?.max(1)), tile) * tile;
        let mut s = Schedule::new(blocked(w, &p, rows));
        let (weight, acc, mid, y) = (s.stage("w")?, s.stage("acc")?, s.stage("mid")?, s.stage("y")?);
        let layout = [
            LayoutDim::outer(0, tile),
            LayoutDim::whole(1),
            LayoutDim::whole(2),
            LayoutDim::whole(3),
            LayoutDim::inner(0, tile),
        ];
        let pack = pack_param(&mut s, weight, &layout)?;
        // A task: a block of rows, a share of the output channels.
        let [n, block, co, q] = s.axes(y)?;
        let [part, co] = pieces(&mut s, co, share)?;
        let [cot, coi] = pieces(&mut s, co, tile)?;
        let task = if channels {
            s.reorder(&[n, block, part, cot, coi, q])?;
            let task = s.fuse_all(&[n, block, part])?;
            product_of_channels(&mut s, acc, [cot, coi, q], [mr, lanes])?;
            task
        } else {
            let [qt, qi] = pieces(&mut s, q, nr)?;
            let [qv, ql] = pieces(&mut s, qi, lanes)?;
            // A strip of pixels stays in L1 while the weights pass by.
            s.reorder(&[n, block, part, qt, cot, coi, qv, ql])?;
            let task = s.fuse_all(&[n, block, part])?;
            s.unroll(coi)?;
            s.unroll(qv)?;
            vectorize(&mut s, ql)?;
            s.set_scope(acc, Scope::Register)?;
            s.compute_at(acc, cot)?;
            let loops = s.loops_of(acc);
            vectorize_block(&mut s, acc, &loops, lanes)?;
            task
        };
        s.parallel(task)?;
        // The depthwise results of the task, row by row in registers.
        s.set_scope(mid, Scope::Local)?;
        s.compute_at(mid, task)?;
        if !channels {
            // Rows of whole vectors, which the tensor of a small map has not.
            s.storage_align(mid, 2, lanes, 0)?;
        }
        depthwise(&mut s, w, &p, mid, cpu)?;
        Ok(Scheduled { schedule: s, packs: vec![pack] })
    }
}

/// The product with output channels along the lanes: the sums of a tile of channels, pixels outside, then its epilogue,
/// which lowering transposes by shuffles.
fn product_of_channels(
    s: &mut Schedule,
    acc: BufferId,
    [cot, coi, q]: [VarId; 3],
    [pixels, lanes]: [i64; 2],
) -> Result<(), TemplateError> {
    s.set_scope(acc, Scope::Local)?;
    s.compute_at(acc, cot)?;
    s.transform_layout(acc, &[LayoutDim::whole(0), LayoutDim::whole(1), LayoutDim::whole(3), LayoutDim::whole(2)])?;
    let [n, block, co, pixel, ci] = s.axes(acc)?;
    let [pt, pi] = pieces(s, pixel, pixels)?;
    s.reorder(&[n, block, pt, ci, pi, co])?;
    let (tile, copy) = s.cache_write_at(acc, pt, Scope::Register)?;
    let loops = s.loops_of(tile);
    vectorize_block(s, tile, &loops, lanes)?;
    vectorize_block(s, acc, &copy, lanes)?;
    let [ct, cl] = pieces(s, coi, lanes)?;
    let [qt, ql] = pieces(s, q, lanes)?;
    s.reorder(&[ct, qt, cl, ql])?;
    s.unroll(cl)?;
    vectorize(s, ql)
}

/// Schedules the depthwise half, whose results are computed in each task already.
fn depthwise(
    s: &mut Schedule,
    w: &Workload,
    p: &DepthwisePointwise,
    mid: BufferId,
    cpu: &Cpu,
) -> Result<(), TemplateError> {
    let (c, lanes, sums) = (&p.depthwise, cpu.f32_lanes(), s.stage("dw_acc")?);
    let [.., channel, r, ow] = s.loops_of(mid)[..] else {
        return Err(TemplateError::Limit("the depthwise results have no rows".into()));
    };
    let columns = ceil_div(extent(s, ow), lanes);
    // As in `depthwise_rows`: rows reuse loaded rows, and operands that are shuffled from two registers need room.
    let budget = if c.stride[1] == 2 { cpu.vector_registers / 4 } else { cpu.vector_registers / 2 };
    let vectors = columns.min(if c.stride[1] == 2 { 2 } else { 4 }).min(budget);
    let ri = even_tiles(extent(s, r), (budget / vectors).clamp(1, 8)).into_iter().max().unwrap_or(1);
    let [rt, ri] = pieces(s, r, ri)?;
    let [owt, owi] = pieces(s, ow, vectors * lanes)?;
    let [ov, ol] = pieces(s, owi, lanes)?;
    s.reorder(&[channel, rt, owt, ri, ov, ol])?;
    s.unroll(ri)?;
    s.unroll(ov)?;
    vectorize(s, ol)?;
    s.set_scope(sums, Scope::Register)?;
    s.compute_at(sums, owt)?;
    let loops = s.loops_of(sums);
    vectorize_block(s, sums, &loops, lanes)?;
    for tap in &loops[loops.len() - 2..] {
        s.unroll(*tap)?;
    }
    if c.has_padding() {
        let pad = s.stage("pad")?;
        if c.stride[1] <= 2 && w.dtype == DType::F32 {
            s.compute_inline(pad)?;
        } else {
            s.set_scope(pad, Scope::Local)?;
            s.compute_at(pad, rt)?;
            vectorize_rows(s, pad, lanes)?;
        }
    }
    Ok(())
}

/// The pair with its output rows in blocks: what lies between the two convolutions is a matrix of channels by pixels for
/// each block, and the output has the pixels of a block in one row. Memory holds the same as by the definition.
fn blocked(w: &Workload, p: &DepthwisePointwise, rows: i64) -> Kernel {
    let c = &p.depthwise;
    let (blocks, pixels) = (c.oh() / rows, rows * c.ow());
    let mut b = KernelBuilder::new(w.kernel_name());
    let flat = [c.n, p.co, blocks, pixels];
    let block = |q: &Param| match q.role {
        Role::Output | Role::Residual => flat.to_vec(),
        _ => q.shape.clone(),
    };
    let params = Operands::shaped(&mut b, w, block);
    let buffer = |name: &str| params.get(name);
    let x = if c.has_padding() {
        c.pad(w.dtype, 0.0).build(&mut b, &[buffer("x")], &[], &|_, _| None)
    } else {
        buffer("x")
    };
    let (dw, weight) = (buffer("dw"), buffer("w"));
    let sums = b.alloc("dw_acc", DType::F32, &[c.n, blocks, c.ci, rows, c.ow()], Scope::Global);
    let space = [("n_dw", c.n), ("block_dw", blocks), ("c", c.ci), ("r", rows), ("ow", c.ow())];
    b.nest(&[&space[..], &[("kh", c.kh), ("kw", c.kw)]].concat(), |b, v| {
        let (ch, kh, kw) = (v[2], v[5], v[6]);
        let h = (v[1] * rows + v[3]) * c.stride[0] + kh * c.dilation[0];
        let input = Expr::load(x, vec![v[0].into(), ch.into(), h, v[4] * c.stride[1] + kw * c.dilation[1]]);
        let tap = Expr::load(dw, vec![ch.into(), Expr::Int(0), kh.into(), kw.into()]);
        b.sum(sums, v[..5].iter().map(|v| Expr::from(*v)).collect::<Vec<_>>(), input * tap, &[kh, kw]);
    });
    let mid = b.alloc("mid", DType::F32, &[c.n, blocks, c.ci, pixels], Scope::Global);
    let space = space.map(|(name, extent)| (if name == "c" { "c_mid" } else { name }, extent));
    b.nest(&space, |b, v| {
        let sum = Expr::load(sums, v.iter().map(|v| Expr::from(*v)).collect::<Vec<_>>());
        let value = p.finished(sum, &v[2].into(), &buffer);
        b.store(mid, vec![v[0].into(), v[1].into(), v[2].into(), v[3] * c.ow() + v[4]], value);
    });
    let acc = b.alloc("acc", DType::F32, &[c.n, blocks, p.co, pixels], Scope::Global);
    b.nest(&[("n", c.n), ("block", blocks), ("co", p.co), ("q", pixels), ("ci", c.ci)], |b, v| {
        let [n, block, co, q, ci] = [v[0], v[1], v[2], v[3], v[4]];
        let input = Expr::load(mid, [n, block, ci, q].map(Expr::from).to_vec());
        let weight = Expr::load(weight, vec![co.into(), ci.into(), Expr::Int(0), Expr::Int(0)]);
        b.sum(acc, [n, block, co, q].map(Expr::from), input * weight, &[ci]);
    });
    b.nest(&[("n_out", c.n), ("block_out", blocks), ("co_out", p.co), ("q_out", pixels)], |b, v| {
        let sum = Expr::load(acc, v.iter().map(|v| Expr::from(*v)).collect::<Vec<_>>());
        let index = [v[0], v[2], v[1], v[3]].map(Expr::from).to_vec();
        let value = naive::epilogue(w, sum, &v[2].into(), &index, &params);
        b.store(buffer("y"), index, value);
    });
    b.finish()
}

/// Predicted microseconds on one core.
fn estimate(w: &Workload, t: &Target, config: &Config) -> Result<f64, TemplateError> {
    let (p, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let c = &p.depthwise;
    let (rows, parts) = (config.int("rows")?.max(1), config.int("parts")?.max(1));
    let tile = RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? };
    let (lanes, pixels) = (cpu.f32_lanes(), rows * c.ow());
    let channels = config.str("lanes")? == "channels";
    let unit = if channels { tile.vectors * lanes } else { tile.rows };
    let share = (ceil_div(ceil_div(p.co, parts), unit) * unit).min(p.co);
    let tasks = (c.n * ceil_div(c.oh(), rows) * ceil_div(p.co, share)) as f64;
    let cover = if channels { [pixels, share] } else { [share, pixels] };
    // Operands that come from the second-level cache hold the multiply-adds up a little: the strip of pixels that each
    // tile of channels reads again, and what is read of the block at all.
    let strip = if channels { 0 } else { 4 * c.ci * tile.vectors * lanes };
    let strip = if strip > cpu.l1_bytes / 2 { 0.04 } else { 0.0 };
    let block = 0.24 * block_bytes(&p, rows) as f64 / cpu.l2_bytes as f64;
    // Small tiles load more for each multiply-add; vectors are loads of their own, scalars part of it.
    let operands = 0.08 * (tile.rows + 4 * tile.vectors) as f64 / (tile.rows * tile.vectors) as f64;
    // A ragged last tile of channels has conditions on each lane.
    let ragged = if channels && p.co % unit != 0 { 8.0 } else { 1.0 };
    let compute = ragged * cover_cycles(cover[0], cover[1], tile, cpu) * c.ci as f64 * (1.0 + strip + block + operands);
    // Rows at the edge of a block are read by its neighbour, too.
    let read = ((rows - 1) * c.stride[0] + c.span_h()) as f64 / (rows * c.stride[0]) as f64;
    let vectors = (c.ci * rows * ceil_div(c.ow(), lanes)) as f64;
    let depthwise = vectors * ((c.kh * c.kw) as f64 / cpu.fma_units as f64 + 4.0 * read);
    // Where lanes are pixels, weights pass by for each strip of them, from beyond the second-level cache if they are many.
    let beyond = if 4 * share * c.ci > cpu.l2_bytes / 4 { 1.0 } else { 0.0 };
    let passes = if channels { 1.0 } else { ceil_div(pixels, tile.vectors * lanes) as f64 };
    let weights = beyond * passes * (share * c.ci) as f64 * 4.0 / 32.0;
    // Sums go through memory and are transposed where lanes are channels.
    let out = (share * ceil_div(pixels, lanes)) as f64;
    let sums_in_l1 = 4 * unit * pixels <= cpu.l1_bytes / 2;
    let stores = out * if channels { if sums_in_l1 { 5.0 } else { 8.0 } } else { 1.0 };
    Ok(cycles_to_us(tasks * (compute + depthwise + weights + stores), cpu))
}
