//! Depthwise convolution: a block of outputs in registers, every tap a vector load and a multiply-add.
//!
//! In NCHW the lanes are pixels of a row and a task is one channel; in NHWC and blocked layouts the lanes are channels. All
//! taps are unrolled, so that a row loaded for one output row serves the next as well. In NCHW with strides of 1 and 2 no
//! padded copy is made: masked loads leave the padding out, and with stride 2 shuffles of two registers pick every other
//! column. Otherwise a strip of rows is copied with its padding into a private tile first.

use super::steps::{pack_param, pieces, vectorize, vectorize_block, vectorize_rows};
use super::tile::{ceil_div, cycles_to_us, even_tiles};
use crate::ir::{DType, Scope};
use crate::schedule::transform_layout::LayoutDim;
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Workload, naive};

/// See the module's text. Knobs: `oh_tile` output rows and `ow_tile` output pixels of a register block (with lanes of
/// pixels `ow_tile` counts vectors).
pub struct DepthwiseRows;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if c.multiplier() != Some(1) {
        return Err("for depthwise convolutions with multiplier 1".into());
    }
    if c.layout == ConvLayout::Hwcn || c.kh * c.kw > 49 {
        return Err("for NCHW, NHWC and NCHW16c, up to 7x7".into());
    }
    Ok((c, cpu))
}

/// Whether the lanes are pixels.
fn lanes_are_pixels(c: &Conv2d) -> bool {
    c.layout == ConvLayout::Nchw
}

/// Whether the padding is left out by masked loads. 16-bit elements have none, and wider strides no shuffles.
fn masks_padding(w: &Workload, c: &Conv2d) -> bool {
    lanes_are_pixels(c) && c.stride[1] <= 2 && w.dtype == DType::F32
}

/// Units of `ow_tile` along an output row.
fn columns(c: &Conv2d, cpu: &Cpu) -> i64 {
    if lanes_are_pixels(c) { ceil_div(c.ow(), cpu.f32_lanes()) } else { c.ow() }
}

impl Template for DepthwiseRows {
    fn name(&self) -> &str {
        "depthwise_rows"
    }

    fn version(&self) -> u32 {
        2
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let budget = cpu.vector_registers / 2;
        Ok(Space::builder()
            .knob("oh_tile", even_tiles(c.oh(), 16))
            .knob("ow_tile", even_tiles(columns(&c, cpu), 8))
            .filter("sums take at most half of the registers", move |config| {
                matches!((config.int("oh_tile"), config.int("ow_tile")), (Ok(rows), Ok(cols)) if rows * cols <= budget)
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let largest = |extent, limit| even_tiles(extent, limit).into_iter().max().unwrap_or(1);
        let budget = cpu.vector_registers / 2;
        // Rows reuse loaded rows, pixels of a row only save loop overhead.
        let (oh_tile, ow_tile) = if masks_padding(w, &c) && c.stride[1] == 2 {
            // Each operand is shuffled from two registers: half as many sums leave room for those.
            let rows = largest(c.oh(), (budget / 2 / columns(&c, cpu).min(4)).max(1));
            (rows, largest(columns(&c, cpu), 2.min(budget / rows)))
        } else if lanes_are_pixels(&c) {
            // Whole maps of small layers, otherwise four rows: more rows spill, since GCC keeps what they share.
            let rows = if c.oh() <= budget / columns(&c, cpu).min(budget) { c.oh() } else { largest(c.oh(), 4) };
            (rows, largest(columns(&c, cpu), (budget / rows).clamp(1, 4)))
        } else {
            (1, largest(c.ow(), budget.min(8)))
        };
        Ok(Config::new().with("oh_tile", oh_tile).with("ow_tile", ow_tile))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        estimate(w, t, config).unwrap_or(f64::INFINITY)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let (oh_tile, ow_tile) = (config.int("oh_tile")?.min(c.oh()), config.int("ow_tile")?);
        let mut s = Schedule::new(naive(w));
        let (weight, acc, y) = (s.stage("w")?, s.stage("acc")?, s.stage("y")?);
        let mut packs = vec![];
        // A task, a strip of rows in it that is padded at once, the block, and the loops of the block.
        let (task, strip, block, rows) = match c.layout {
            ConvLayout::Nhwc => {
                let [n, oh, ow, ch] = s.axes(y)?;
                let [oht, ohi] = pieces(&mut s, oh, oh_tile)?;
                let [owt, owi] = pieces(&mut s, ow, ow_tile)?;
                let [ct, cl] = pieces(&mut s, ch, lanes)?;
                s.reorder(&[n, oht, ct, owt, ohi, owi, cl])?;
                vectorize(&mut s, cl)?;
                (s.fuse_all(&[n, oht])?, None, owt, vec![ohi, owi])
            }
            ConvLayout::NchwC(size) => {
                let pack = pack_param(
                    &mut s,
                    weight,
                    &[
                        LayoutDim::outer(0, size),
                        LayoutDim::whole(1),
                        LayoutDim::whole(2),
                        LayoutDim::whole(3),
                        LayoutDim::inner(0, size),
                    ],
                )?;
                packs.push(pack);
                let [n, ch, oh, ow, lane] = s.axes(y)?;
                let [oht, ohi] = pieces(&mut s, oh, oh_tile)?;
                let [owt, owi] = pieces(&mut s, ow, ow_tile)?;
                let [lv, ll] = pieces(&mut s, lane, lanes)?;
                s.reorder(&[n, ch, oht, lv, owt, ohi, owi, ll])?;
                vectorize(&mut s, ll)?;
                (s.fuse_all(&[n, ch])?, None, owt, vec![ohi, owi])
            }
            _ => {
                let [n, ch, oh, ow] = s.axes(y)?;
                let [oht, ohi] = pieces(&mut s, oh, oh_tile)?;
                let [owt, owi] = pieces(&mut s, ow, ow_tile * lanes)?;
                let [ov, ol] = pieces(&mut s, owi, lanes)?;
                s.reorder(&[n, ch, oht, owt, ohi, ov, ol])?;
                vectorize(&mut s, ol)?;
                (s.fuse_all(&[n, ch])?, Some(oht), owt, vec![ohi, ov])
            }
        };
        s.parallel(task)?;
        for row in rows {
            s.unroll(row)?;
        }
        s.set_scope(acc, Scope::Register)?;
        s.compute_at(acc, block)?;
        let loops = s.loops_of(acc);
        vectorize_block(&mut s, acc, &loops, lanes)?;
        for tap in &loops[loops.len() - 2..] {
            s.unroll(*tap)?;
        }
        if c.has_padding() {
            let pad = s.stage("pad")?;
            if masks_padding(w, &c) {
                // Masked loads cost less than a copy with the padding.
                s.compute_inline(pad)?;
            } else {
                s.set_scope(pad, Scope::Local)?;
                // A whole map may not fit in L1.
                s.compute_at(pad, strip.unwrap_or(task))?;
                if lanes_are_pixels(&c) && c.stride[1] == 2 {
                    // Even and odd columns apart, once, so that every tap reads its row without gaps.
                    let rows = [LayoutDim::whole(0), LayoutDim::whole(1), LayoutDim::whole(2)];
                    let columns = [LayoutDim::inner(3, 2), LayoutDim::outer(3, 2)];
                    s.transform_layout(pad, &[&rows[..], &columns[..]].concat())?;
                    if let Some(along) = s.loops_of(pad).last().copied() {
                        let [pair, parity] = s.split(along, 2, Tail::Guard)?;
                        let [strip, lane] = pieces(&mut s, pair, lanes)?;
                        s.reorder(&[parity, strip, lane])?;
                        vectorize(&mut s, lane)?;
                    }
                } else {
                    vectorize_rows(&mut s, pad, lanes)?;
                }
            }
        }
        Ok(Scheduled { schedule: s, packs })
    }
}

/// Predicted microseconds on one core.
fn estimate(w: &Workload, t: &Target, config: &Config) -> Result<f64, TemplateError> {
    let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let lanes = cpu.f32_lanes();
    let (oh_tile, ow_tile) = (config.int("oh_tile")?, config.int("ow_tile")?);
    let vectors = if lanes_are_pixels(&c) {
        c.n * c.co * c.oh() * ceil_div(c.ow(), lanes)
    } else {
        c.n * ceil_div(c.co, lanes) * c.oh() * c.ow()
    } as f64;
    // A row of taps loaded once serves the output rows of a block; each load also pays for its multiply-adds.
    let rows_loaded = ((oh_tile - 1) * c.stride[0] + (c.kh - 1) * c.dilation[0] + 1).min(oh_tile * c.kh) as f64;
    let shuffled = masks_padding(w, &c) && c.stride[1] == 2;
    // Shuffles take two loads each, and what does not fit beside the sums is loaded again.
    let operands = match (shuffled, 2 * oh_tile * ow_tile * 2 > cpu.vector_registers) {
        (false, _) => 1.0,
        (true, false) => 2.0,
        (true, true) => 2.5,
    };
    let loads = vectors * rows_loaded / oh_tile as f64 * c.kw as f64 * operands / 2.0;
    let multiply_adds = vectors * (c.kh * c.kw) as f64 / cpu.fma_units as f64;
    let overhead = vectors * (2.0 + 6.0 / (oh_tile * ow_tile) as f64);
    let padding =
        if c.has_padding() && !masks_padding(w, &c) { 2.0 * vectors * (c.stride[0] * c.stride[1]) as f64 } else { 0.0 };
    Ok(cycles_to_us(loads.max(multiply_adds) + overhead + padding, cpu))
}
