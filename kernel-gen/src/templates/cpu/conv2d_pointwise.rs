//! 1x1 convolution in NCHW with pixels along the lanes.
//!
//! With stride 1 and no padding the input of an image is a matrix `[ci][h * w]` as it stands, and so is the output: the
//! convolution is a product whose left side, the weights, is packed as `[co / mr][ci][mr]`. Nothing of the activations is
//! copied or transposed, and bias, activation and residual are applied to the accumulators.

use super::steps::{pack_param, pieces, vectorize, vectorize_block};
use super::tile::{MAX_VECTORS, RegisterTile, best_tile, ceil_div, cover_cycles, cycles_to_us, even_tiles};
use crate::ir::Scope;
use crate::schedule::Schedule;
use crate::schedule::transform_layout::LayoutDim;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Workload, naive};

/// See the module's text. Knobs: `mr` output channels and `nv` vectors of pixels of the register tile.
pub struct Conv2dPointwise;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    let pointwise = c.kh == 1 && c.kw == 1 && c.stride == [1, 1] && !c.has_padding();
    if !pointwise || c.groups != 1 || c.layout != ConvLayout::Nchw {
        return Err("for 1x1 convolutions in NCHW with stride 1, no padding and no groups".into());
    }
    Ok((c, cpu))
}

impl Template for Conv2dPointwise {
    fn name(&self) -> &str {
        "conv2d_pointwise"
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
            .knob("mr", even_tiles(c.co, 24))
            .knob("nv", 1..=ceil_div(c.h * c.w, cpu.f32_lanes()).min(MAX_VECTORS))
            .filter("accumulators fit in the vector registers", move |config| {
                matches!((config.int("mr"), config.int("nv")),
                    (Ok(rows), Ok(vectors)) if RegisterTile { rows, vectors }.fits(&registers))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let tile = best_tile(c.co, c.h * c.w, 24, cpu);
        Ok(Config::new().with("mr", tile.rows).with("nv", tile.vectors))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        estimate(w, t, config).unwrap_or(f64::INFINITY)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let (mr, nr) = (config.int("mr")?.min(c.co), config.int("nv")? * lanes);
        // The same operation with all pixels in one row: its tensors lie in memory exactly as the originals.
        let flat = Workload { op: Op::Conv2d(Conv2d { h: 1, w: c.h * c.w, ..c }), ..w.clone() };
        let mut s = Schedule::new(naive(&flat));
        let (weight, acc, y) = (s.stage("w")?, s.stage("acc")?, s.stage("y")?);
        let pack = pack_param(
            &mut s,
            weight,
            &[
                LayoutDim::outer(0, mr),
                LayoutDim::whole(1),
                LayoutDim::whole(2),
                LayoutDim::whole(3),
                LayoutDim::inner(0, mr),
            ],
        )?;
        // A task: one strip of pixels, all channels.
        let [n, co, oh, ow] = s.axes(y)?;
        let [owt, owi] = pieces(&mut s, ow, nr)?;
        let [cot, coi] = pieces(&mut s, co, mr)?;
        let [owv, owl] = pieces(&mut s, owi, lanes)?;
        s.reorder(&[n, oh, owt, cot, coi, owv, owl])?;
        let task = s.fuse_all(&[n, oh, owt])?;
        s.parallel(task)?;
        s.unroll(coi)?;
        s.unroll(owv)?;
        vectorize(&mut s, owl)?;
        // The sums of a tile, whole in registers.
        s.set_scope(acc, Scope::Register)?;
        s.compute_at(acc, cot)?;
        let sums = s.loops_of(acc);
        vectorize_block(&mut s, acc, &sums, lanes)?;
        Ok(Scheduled { schedule: s, packs: vec![pack] })
    }
}

/// Predicted microseconds on one core.
fn estimate(w: &Workload, t: &Target, config: &Config) -> Result<f64, TemplateError> {
    let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let tile = RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? };
    let compute = cover_cycles(c.co, c.h * c.w, tile, cpu) * (c.n * c.ci) as f64;
    let stores = (c.n * c.co * c.h * c.w) as f64 / cpu.f32_lanes() as f64;
    Ok(cycles_to_us(compute + stores, cpu))
}
