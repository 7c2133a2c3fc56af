//! 1x1 convolution in NCHW with pixels along the lanes.
//!
//! With stride 1 and no padding the input of an image is a matrix `[ci][h * w]` as it stands, and so is the output: the
//! convolution is a product whose left side, the weights, is packed as `[co / mr][ci][mr]`. Nothing of the activations is
//! copied or transposed, and bias, activation and residual are applied to the accumulators.

use super::steps::{pack_param, pieces, vectorize, vectorize_block, vectorize_rows};
use super::tile::{MAX_VECTORS, RegisterTile, best_tile, ceil_div, cover_cycles, cycles_to_us, even_tiles};
use crate::integer::gcd;
use crate::ir::Scope;
use crate::schedule::Schedule;
use crate::schedule::transform_layout::LayoutDim;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Workload, naive};

/// See the module's text. Knobs: `mr` output channels and `nv` vectors of pixels of the register tile.
pub struct Conv2dPointwise;

pub(super) fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Conv2d, &'a Cpu), String> {
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
        let tile = RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? };
        scheduled(w, t, tile, None)
    }
}

/// A product of weights and pixels. With `strips`, a task takes so many strips of pixels, as wide as the tile, and copies them
/// first, one behind the other.
pub(super) fn scheduled(
    w: &Workload,
    t: &Target,
    tile: RegisterTile,
    strips: Option<i64>,
) -> Result<Scheduled, TemplateError> {
    let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let lanes = cpu.f32_lanes();
    let (mr, nr) = (tile.rows.min(c.co), tile.vectors * lanes);
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
    // A task: strips of pixels, all channels.
    let [n, co, oh, ow] = s.axes(y)?;
    let [owt, ows] = pieces(&mut s, ow, strips.unwrap_or(1) * nr)?;
    let [strip, owi] = if strips.is_some() { pieces(&mut s, ows, nr)? } else { [ows, ows] };
    let [cot, coi] = pieces(&mut s, co, mr)?;
    let [owv, owl] = pieces(&mut s, owi, lanes)?;
    let mut order = vec![n, oh, owt, cot, strip, coi, owv, owl];
    order.retain(|loop_var| strips.is_some() || *loop_var != strip);
    s.reorder(&order)?;
    let task = s.fuse_all(&[n, oh, owt])?;
    s.parallel(task)?;
    s.unroll(coi)?;
    s.unroll(owv)?;
    vectorize(&mut s, owl)?;
    // The sums of a tile, whole in registers.
    s.set_scope(acc, Scope::Register)?;
    s.compute_at(acc, if strips.is_some() { strip } else { cot })?;
    let sums = s.loops_of(acc);
    vectorize_block(&mut s, acc, &sums, lanes)?;
    if strips.is_some() {
        let x = s.stage("x")?;
        let copy = s.cache_read_at(x, task, Scope::Local)?;
        let [image, channel, row] = [0, 1, 2].map(LayoutDim::whole);
        s.transform_layout(copy, &[image, LayoutDim::outer(3, nr), channel, row, LayoutDim::inner(3, nr)])?;
        vectorize_rows(&mut s, copy, lanes)?;
    }
    Ok(Scheduled { schedule: s, packs: vec![pack] })
}

/// What the address of an element says of its place in the first cache: x86 has 64 sets of lines of 64 bytes there.
const WAY_BYTES: i64 = 4096;

/// Arithmetic that hides one line from the second cache.
const CYCLES_OF_A_LINE: f64 = 4.0;

/// Predicted microseconds on one core.
fn estimate(w: &Workload, t: &Target, config: &Config) -> Result<f64, TemplateError> {
    let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let tile = RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? };
    let compute = cover_cycles(c.co, c.h * c.w, tile, cpu) * (c.n * c.ci) as f64;
    let stores = (c.n * c.co * c.h * c.w) as f64 / cpu.f32_lanes() as f64;
    Ok(cycles_to_us(compute + stores + misses(&c, tile, cpu), cpu))
}

/// Cycles for the lines of a strip that are not in the first cache when the next block of channels reads them.
fn misses(c: &Conv2d, tile: RegisterTile, cpu: &Cpu) -> f64 {
    // Zen 5 reads as fast from its second cache: 92 to 97 % of the peak at such layers, where Zen 3 has 55 to 70 %.
    let line = cpu.cache_line_bytes;
    if cpu.vector_bytes >= line {
        return 0.0;
    }
    // A row of a strip begins anywhere in a line, and rows begin at so many different places of the cache only.
    let lines = ceil_div(tile.vectors * cpu.vector_bytes, line) + 1;
    // With vectors of 16 bytes the arithmetic of a step hides them: copies cost 5 to 10 % there.
    if tile.cycles_per_step(cpu) > CYCLES_OF_A_LINE * lines as f64 {
        return 0.0;
    }
    let places = WAY_BYTES / gcd(c.h * c.w % WAY_BYTES * 4, WAY_BYTES);
    let sets = (places * lines).min(WAY_BYTES / line);
    // Weights and outputs want a place, too.
    if ceil_div(c.ci, sets).saturating_mul(lines) < cpu.l1_bytes / WAY_BYTES {
        return 0.0;
    }
    let strips = c.n * ceil_div(c.h * c.w, tile.vectors * cpu.f32_lanes());
    let read_again = ceil_div(c.co, tile.rows) - 1;
    strips as f64 * read_again as f64 * c.ci as f64 * lines as f64
}
