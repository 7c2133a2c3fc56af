//! Direct convolution with output channels along the lanes.
//!
//! Weights are packed once as `[co / co_tile][ci][kh][kw][co_tile]`, so that every step of the reduction loads one
//! contiguous row of vectors; the input stays as it is, one scalar broadcast per output pixel of the tile. Padding is
//! copied, either once for the whole image in a phase of its own, or by each task for the rows that it needs.
//! Accumulators of `rows x ow_tile` pixels times `co_tile` channels live in registers over a block of `ci_tile` input
//! channels; between blocks (and before the epilogue) they wait in a private tile, from where the epilogue stores them in
//! the output's layout: in NCHW through register transposes.
//!
//! Groups are convolutions beside each other: a tile of channels lies in one group.
//!
//! The scheme is that of the direct convolutions of Georganas et al., "Anatomy of High-Performance Deep Learning
//! Convolutions on SIMD Architectures" (SC 2018), without the blocked activation layout: broadcasts do not care.

mod choice;
mod cost;
mod knobs;

use self::cost::estimate;
use self::knobs::{Knobs, Pad};
use super::steps::{pack_param, pieces, vectorize, vectorize_block, vectorize_rows};
use crate::ir::{BufferId, Scope, VarId};
use crate::schedule::transform_layout::LayoutDim;
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Workload, naive};

/// See the module's text. Knobs:
///
/// * `nv` vectors of output channels, `ow_tile` pixels and `rows` output rows of the register tile: several rows where one
///   is short, so that each load of weights serves more pixels.
/// * `oh_tile` output rows of a task, `ci_tile` input channels of one block of the reduction.
/// * `tiles`: how many tiles of `nv` vectors of channels a task makes of its rows, one after the other.
/// * `pad`: who copies what is padded, each `task` for itself, or a phase beforehand, the whole `image` once. The copy
///   costs a tenth of a 3x3 layer where every tile of channels makes it again; but what one thread has padded is far away
///   for another, so several threads do better with their own copies and several `tiles`.
pub struct Conv2dDirect;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if c.is_depthwise() {
        return Err("for convolutions that sum over channels".into());
    }
    match c.layout {
        ConvLayout::Nchw | ConvLayout::Nhwc => {}
        ConvLayout::NchwC(block) if block % cpu.f32_lanes() == 0 => {
            if c.groups > 1 && (c.ci_per_group() % block != 0 || c.co_per_group() % block != 0) {
                return Err("blocks of channels may not span groups".into());
            }
        }
        ConvLayout::NchwC(_) => return Err("the channel block must hold whole vectors".into()),
        ConvLayout::Hwcn | ConvLayout::NhwcNc(_) => return Err("for NCHW, NHWC and NCHW16c".into()),
    }
    if !choice::is_possible(&c, cpu) {
        return Err("a group's channels must be whole tiles of vectors".into());
    }
    Ok((c, cpu))
}

impl Template for Conv2dDirect {
    fn name(&self) -> &str {
        "conv2d_direct"
    }

    fn version(&self) -> u32 {
        2
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        choice::space(&c, cpu)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        choice::default_config(&c, cpu).ok_or_else(|| TemplateError::Limit("no config fits".into()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Knobs::read(config)) {
            (Ok((c, cpu)), Ok(knobs)) => estimate(&c, cpu, knobs),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let knobs = Knobs::read(config)?;
        let co_tile = knobs.channels(&c, cpu);
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

        // Sums of pixels outside and channels inside, whatever the output's layout; a private copy of each task.
        let nest = output_nest(&mut s, &c, y, knobs, co_tile)?;
        s.parallel(nest.task)?;
        s.set_scope(acc, Scope::Local)?;
        s.compute_at(acc, nest.channels)?;
        if c.layout == ConvLayout::Nchw {
            s.transform_layout(
                acc,
                &[LayoutDim::whole(0), LayoutDim::whole(2), LayoutDim::whole(3), LayoutDim::whole(1)],
            )?;
        }
        if c.has_padding() {
            let pad = s.stage("pad")?;
            match knobs.pad {
                Pad::Task => {
                    s.set_scope(pad, Scope::Local)?;
                    s.compute_at(pad, nest.task)?;
                }
                Pad::Image => {
                    // Maps of channels (rows, where channels are innermost) for the threads to share.
                    let loops = s.loops_of(pad);
                    let maps = s.fuse_all(&loops[..2])?;
                    s.parallel(maps)?;
                }
            }
            vectorize_rows(&mut s, pad, lanes)?;
        }
        sums(&mut s, &c, acc, knobs, lanes)?;
        epilogue(&mut s, &c, nest.inner, lanes)?;
        Ok(Scheduled { schedule: s, packs: vec![pack] })
    }
}

/// Loops of the output stage.
struct OutputNest {
    /// The parallel loop.
    task: VarId,
    /// One tile of channels; the same loop, where that is a task.
    channels: VarId,
    /// The two innermost loops, left to the epilogue.
    inner: [VarId; 2],
}

/// Cuts the output into tiles of channels and of rows.
fn output_nest(
    s: &mut Schedule,
    c: &Conv2d,
    y: BufferId,
    knobs: Knobs,
    co_tile: i64,
) -> Result<OutputNest, TemplateError> {
    let block = if let ConvLayout::NchwC(block) = c.layout { block } else { 1 };
    let (n, co, oh, rest) = match c.layout {
        ConvLayout::Nhwc => {
            let [n, oh, ow, co] = s.axes(y)?;
            (n, co, oh, vec![ow])
        }
        ConvLayout::NchwC(_) => {
            let [n, co, oh, ow, lane] = s.axes(y)?;
            (n, co, oh, vec![ow, lane])
        }
        _ => {
            let [n, co, oh, ow] = s.axes(y)?;
            (n, co, oh, vec![ow])
        }
    };
    let mut outer = vec![];
    let co = if c.groups > 1 {
        let [g, co] = s.split(co, c.co_per_group() / block, Tail::Perfect)?;
        outer.push(g);
        co
    } else {
        co
    };
    let [cot, coi] = pieces(s, co, (co_tile / block).max(1))?;
    let [oht, ohi] = pieces(s, oh, knobs.oh_tile)?;
    // Tiles of a task: the task itself, where it has one.
    let (parts, tile) = if knobs.tiles > 1 {
        let [parts, tile] = pieces(s, cot, knobs.tiles)?;
        (parts, Some(tile))
    } else {
        (cot, None)
    };
    let outer = [&[n], &outer[..], &[parts, oht]].concat();
    let inner = match c.layout {
        ConvLayout::Nhwc => vec![ohi, rest[0], coi],
        ConvLayout::NchwC(_) => vec![coi, ohi, rest[0], rest[1]],
        _ => vec![ohi, coi, rest[0]],
    };
    let tiles: Vec<VarId> = tile.into_iter().collect();
    s.reorder(&[&outer[..], &tiles, &inner].concat())?;
    let task = s.fuse_all(&outer)?;
    let channels = tile.unwrap_or(task);
    Ok(OutputNest { task, channels, inner: [inner[inner.len() - 2], inner[inner.len() - 1]] })
}

/// Orders the loops of `acc` and puts its innermost part into registers.
fn sums(s: &mut Schedule, c: &Conv2d, acc: BufferId, knobs: Knobs, lanes: i64) -> Result<(), TemplateError> {
    let loops = s.loops_of(acc);
    let named = |name: &str| loops.iter().copied().find(|v| s.kernel.var(*v).name == name);
    let loop_of = |name: &str| {
        named(name).ok_or_else(|| TemplateError::Limit(format!("the sums of a convolution have no loop `{name}`")))
    };
    let (n, oh, ow) = (loop_of("n")?, loop_of("oh")?, loop_of("ow")?);
    let (ci, kh, kw) = (loop_of("ci")?, loop_of("kh")?, loop_of("kw")?);
    // Channels last in the tile, whatever the output's layout; blocked layouts have the lanes in a loop of their own. A
    // tile within a group has one loop for group and channel, with a name of its own.
    let known = ["n", "oh", "ow", "ci", "kh", "kw", "co_in"];
    let (group, channel) = match named("co") {
        Some(co) => (named("g"), co),
        None => {
            let other = loops.iter().copied().find(|v| !known.contains(&s.kernel.var(*v).name.as_str()));
            (None, other.map_or_else(|| loop_of("co"), Ok)?)
        }
    };
    let channels: Vec<VarId> = [Some(channel), named("co_in")].into_iter().flatten().collect();
    let [oho, ohi] = pieces(s, oh, knobs.rows)?;
    let [owt, owi] = pieces(s, ow, knobs.ow_tile)?;
    // Blocked inputs are indexed by block and lane, so the reduction follows them.
    let (ci_outer, reduce) = match c.layout {
        ConvLayout::NchwC(block) => {
            let [cb, cl] = s.split(ci, block, Tail::Perfect)?;
            let [cbo, cbi] = pieces(s, cb, (knobs.ci_tile / block).max(1))?;
            (cbo, vec![cbi, kh, kw, cl])
        }
        _ => {
            let [cio, cii] = pieces(s, ci, knobs.ci_tile)?;
            (cio, vec![cii, kh, kw])
        }
    };
    let mut order: Vec<VarId> = [Some(n), group].into_iter().flatten().collect();
    order.extend([ci_outer, oho, owt]);
    order.extend(reduce);
    order.extend([ohi, owi]);
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
