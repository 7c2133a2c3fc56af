//! Direct convolution with output channels along the lanes.
//!
//! Weights are packed once as `[co / co_tile][ci][kh][kw][co_tile]`, so that every step of the reduction loads one
//! contiguous row of vectors; the input stays as it is, one scalar broadcast per output pixel of the tile. Padding is
//! copied into a private tile of the rows that a task needs, in the order in which they are read. Accumulators of
//! `ow_tile` pixels times `co_tile` channels live in registers over a block of `ci_tile` input channels; between blocks
//! (and before the epilogue) they wait in a private tile, from where the epilogue stores them in the output's layout: in
//! NCHW through register transposes.
//!
//! The scheme is that of the direct convolutions of Georganas et al., "Anatomy of High-Performance Deep Learning
//! Convolutions on SIMD Architectures" (SC 2018), without the blocked activation layout: broadcasts do not care.

use super::tile::{
    MAX_VECTORS, RegisterTile, best_whole_tile, ceil_div, cover_cycles, cycles_to_us, even_tiles, largest,
};
use super::{pack_param, pieces, vectorize, vectorize_block, vectorize_rows};
use crate::ir::{BufferId, Scope, VarId};
use crate::schedule::transform_layout::LayoutDim;
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Workload, naive};

/// See the module's text. Knobs: `nv` vectors of output channels, `ow_tile` pixels of the register tile, `oh_tile` output
/// rows of a task, `ci_tile` input channels of one block of the reduction.
pub struct Conv2dDirect;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if c.groups != 1 {
        return Err("for convolutions without groups".into());
    }
    match c.layout {
        ConvLayout::Nchw | ConvLayout::Nhwc => {}
        ConvLayout::NchwC(block) if block % cpu.f32_lanes() == 0 => {}
        ConvLayout::NchwC(_) => return Err("the channel block must hold whole vectors".into()),
        ConvLayout::Hwcn | ConvLayout::NhwcNc(_) => return Err("for NCHW, NHWC and NCHW16c".into()),
    }
    Ok((c, cpu))
}

/// Bytes of the input rows that a task of `oh_tile` output rows keeps.
fn input_rows_bytes(c: &Conv2d, oh_tile: i64) -> i64 {
    let rows = (oh_tile - 1) * c.stride[0] + (c.kh - 1) * c.dilation[0] + 1;
    4 * c.ci * rows * (c.w + c.padding[1] + c.padding[3])
}

/// Lengths of a block of input channels worth offering: whole blocks of a blocked layout.
fn ci_tiles(c: &Conv2d) -> Vec<i64> {
    let unit = if let ConvLayout::NchwC(block) = c.layout { block } else { 1 };
    even_tiles(c.ci / unit, i64::MAX).into_iter().map(|t| t * unit).filter(|t| *t >= c.ci.min(16)).collect()
}

impl Template for Conv2dDirect {
    fn name(&self) -> &str {
        "conv2d_direct"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let registers = cpu.clone();
        Ok(Space::builder()
            .knob("nv", 1..=ceil_div(c.co, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("ow_tile", even_tiles(c.ow(), 30))
            .knob("oh_tile", even_tiles(c.oh(), i64::MAX))
            .knob("ci_tile", ci_tiles(&c))
            .filter("accumulators fit in the vector registers", move |config| {
                matches!((config.int("ow_tile"), config.int("nv")),
                    (Ok(rows), Ok(vectors)) if RegisterTile { rows, vectors }.fits(&registers))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let tile = best_whole_tile(c.ow(), c.co, 30, cpu);
        // Weights of a block and the input rows share L2 with what streams through.
        let weights = |ci: i64| 4 * ci * c.kh * c.kw * tile.vectors * cpu.f32_lanes();
        let tiles = ci_tiles(&c);
        let ci_tile = largest(c.ci, &tiles, |ci| weights(ci) <= cpu.l2_bytes / 5);
        let ci_tile = ci_tile.or(tiles.into_iter().min()).unwrap_or(c.ci);
        let column_tiles = c.n * ceil_div(c.co, tile.vectors * cpu.f32_lanes());
        // Rows of a task: enough tasks for a few cores, and of those the number that costs least.
        let wanted_tasks = 8;
        let config = |oh_tile: i64| {
            Config::new()
                .with("nv", tile.vectors)
                .with("ow_tile", tile.rows)
                .with("oh_tile", oh_tile)
                .with("ci_tile", ci_tile)
        };
        let mut best: Option<(f64, i64)> = None;
        for oh_tile in even_tiles(c.oh(), i64::MAX) {
            let tasks = column_tiles * ceil_div(c.oh(), oh_tile);
            if tasks < wanted_tasks.min(column_tiles * c.oh()) {
                continue;
            }
            let cost = estimate(w, t, &config(oh_tile))?;
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, oh_tile));
            }
        }
        Ok(config(best.map_or(1, |b| b.1)))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        estimate(w, t, config).unwrap_or(f64::INFINITY)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let co_tile = whole_blocks(&c, config.int("nv")? * lanes).min(c.co);
        let ow_tile = config.int("ow_tile")?.min(c.ow());
        let oh_tile = config.int("oh_tile")?.min(c.oh());
        let ci_tile = config.int("ci_tile")?.min(c.ci);
        let mut s = Schedule::new(naive(w));
        let (weight, acc, y) = (s.stage("w")?, s.stage("acc")?, s.stage("y")?);

        // Weights: [co / co_tile] [ci] [kh] [kw] [co_tile].
        let (co_dim, ci_dim, kh_dim, kw_dim) = match c.layout {
            ConvLayout::Nchw | ConvLayout::NchwC(_) => (0, 1, 2, 3),
            ConvLayout::Nhwc | ConvLayout::Hwcn | ConvLayout::NhwcNc(_) => (3, 2, 0, 1),
        };
        let pack = pack_param(
            &mut s,
            weight,
            &[
                LayoutDim::outer(co_dim, co_tile),
                LayoutDim::whole(ci_dim),
                LayoutDim::whole(kh_dim),
                LayoutDim::whole(kw_dim),
                LayoutDim::inner(co_dim, co_tile),
            ],
        )?;

        // One task: co_tile channels of oh_tile rows. The two innermost loops are left to the epilogue.
        let (task, inner) = match c.layout {
            ConvLayout::Nhwc => {
                let [n, oh, ow, co] = s.axes(y)?;
                let [cot, coi] = pieces(&mut s, co, co_tile)?;
                let [oht, ohi] = pieces(&mut s, oh, oh_tile)?;
                s.reorder(&[n, cot, oht, ohi, ow, coi])?;
                (s.fuse_all(&[n, cot, oht])?, [ow, coi])
            }
            ConvLayout::NchwC(block) => {
                let [n, co, oh, ow, lane] = s.axes(y)?;
                let [cot, coi] = pieces(&mut s, co, (co_tile / block).max(1))?;
                let [oht, ohi] = pieces(&mut s, oh, oh_tile)?;
                s.reorder(&[n, cot, oht, coi, ohi, ow, lane])?;
                (s.fuse_all(&[n, cot, oht])?, [ow, lane])
            }
            _ => {
                let [n, co, oh, ow] = s.axes(y)?;
                let [cot, coi] = pieces(&mut s, co, co_tile)?;
                let [oht, ohi] = pieces(&mut s, oh, oh_tile)?;
                s.reorder(&[n, cot, oht, ohi, coi, ow])?;
                (s.fuse_all(&[n, cot, oht])?, [coi, ow])
            }
        };
        s.parallel(task)?;

        // The sums of a task, pixels outside and channels inside whatever the output's layout.
        s.set_scope(acc, Scope::Local)?;
        s.compute_at(acc, task)?;
        if c.layout == ConvLayout::Nchw {
            s.transform_layout(
                acc,
                &[LayoutDim::whole(0), LayoutDim::whole(2), LayoutDim::whole(3), LayoutDim::whole(1)],
            )?;
        }
        if c.has_padding() {
            let pad = s.stage("pad")?;
            s.set_scope(pad, Scope::Local)?;
            s.compute_at(pad, task)?;
            vectorize_rows(&mut s, pad, lanes)?;
        }
        sums(&mut s, &c, acc, [ow_tile, ci_tile, lanes])?;
        epilogue(&mut s, &c, inner, lanes)?;
        Ok(Scheduled { schedule: s, packs: vec![pack] })
    }
}

/// Channels of a register tile: whole blocks where the layout has them.
fn whole_blocks(c: &Conv2d, channels: i64) -> i64 {
    match c.layout {
        ConvLayout::NchwC(block) => ceil_div(channels, block) * block,
        _ => channels,
    }
}

/// How much vectors of pixels are wasted on rows of `ow`.
fn ragged(ow: i64, cpu: &Cpu) -> f64 {
    (ceil_div(ow, cpu.f32_lanes()) * cpu.f32_lanes()) as f64 / ow as f64
}

/// Orders the loops of `acc` and puts its innermost part into registers.
fn sums(s: &mut Schedule, c: &Conv2d, acc: BufferId, sizes: [i64; 3]) -> Result<(), TemplateError> {
    let [ow_tile, ci_tile, lanes] = sizes;
    // Channels last in the tile, whatever the output's layout; blocked layouts have the lanes in a loop of their own.
    let (n, oh, ow, [ci, kh, kw], channels) = match c.layout {
        ConvLayout::NchwC(_) => {
            let [n, co, oh, ow, lane, ci, kh, kw] = s.axes(acc)?;
            (n, oh, ow, [ci, kh, kw], vec![co, lane])
        }
        ConvLayout::Nhwc => {
            let [n, oh, ow, co, ci, kh, kw] = s.axes(acc)?;
            (n, oh, ow, [ci, kh, kw], vec![co])
        }
        _ => {
            let [n, co, oh, ow, ci, kh, kw] = s.axes(acc)?;
            (n, oh, ow, [ci, kh, kw], vec![co])
        }
    };
    let [owt, owi] = pieces(s, ow, ow_tile)?;
    // Blocked inputs are indexed by block and lane, so the reduction follows them.
    let (ci_outer, reduce) = match c.layout {
        ConvLayout::NchwC(block) => {
            let [cb, cl] = s.split(ci, block, Tail::Perfect)?;
            let [cbo, cbi] = pieces(s, cb, (ci_tile / block).max(1))?;
            (cbo, vec![cbi, kh, kw, cl])
        }
        _ => {
            let [cio, cii] = pieces(s, ci, ci_tile)?;
            (cio, vec![cii, kh, kw])
        }
    };
    let mut order = vec![n, ci_outer, oh, owt];
    order.extend(reduce);
    order.push(owi);
    order.extend(channels);
    s.reorder(&order)?;
    let (tile, copy) = s.cache_write_at(acc, owt, Scope::Register)?;
    let loops = s.loops_of(tile);
    vectorize_block(s, tile, &loops, lanes)?;
    vectorize_block(s, acc, &copy, lanes)
}

/// The epilogue on a task's sums, stored in the output's layout.
fn epilogue(s: &mut Schedule, c: &Conv2d, inner: [VarId; 2], lanes: i64) -> Result<(), TemplateError> {
    let [first, second] = inner;
    if c.layout != ConvLayout::Nchw {
        // Channels are contiguous on both sides.
        let [_, lane] = pieces(s, second, lanes)?;
        vectorize(s, lane)?;
        return Ok(());
    }
    // Channels x pixels, in blocks that lowering transposes by shuffles.
    let (co, ow) = (first, second);
    let [cot, coi] = pieces(s, co, lanes)?;
    let [owt, owi] = pieces(s, ow, lanes)?;
    s.reorder(&[cot, owt, coi, owi])?;
    s.unroll(coi)?;
    vectorize(s, owi)?;
    Ok(())
}

/// Predicted microseconds on one core.
fn estimate(w: &Workload, t: &Target, config: &Config) -> Result<f64, TemplateError> {
    let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let tile = RegisterTile { rows: config.int("ow_tile")?, vectors: config.int("nv")? };
    let steps = (c.n * c.oh() * c.ci * c.kh * c.kw) as f64;
    let compute = cover_cycles(c.ow(), c.co, tile, cpu) * steps;
    let lanes = cpu.f32_lanes() as f64;
    // A vector that stays in L1 costs a cycle to store and load again, one that does not two or three.
    let per_vector = |bytes: i64| if bytes <= cpu.l1_bytes { 1.0 } else { 2.5 };
    // Each output goes through memory once a block, and once more for the epilogue.
    let outputs = (c.n * c.co * c.oh() * c.ow()) as f64;
    let (oh_tile, channels) = (config.int("oh_tile")?, tile.vectors * cpu.f32_lanes());
    let blocks = ceil_div(c.ci, config.int("ci_tile")?) as f64;
    let sums_bytes = 4 * channels * oh_tile * c.ow();
    let copies = outputs * (2.0 * blocks + 2.0) / lanes * ragged(c.ow(), cpu) * per_vector(sums_bytes);
    // Padding copies the rows of a task, again for each tile of channels.
    let rows = ceil_div(c.oh(), oh_tile);
    let input = (c.n * ceil_div(c.co, channels) * rows * input_rows_bytes(&c, oh_tile)) as f64 / 4.0;
    let spilled = if input_rows_bytes(&c, oh_tile) > cpu.l2_bytes / 2 { 3.0 } else { 1.0 };
    let padding = if c.has_padding() { input * 3.0 * spilled / lanes } else { 0.0 };
    Ok(cycles_to_us(compute + copies + padding, cpu))
}
