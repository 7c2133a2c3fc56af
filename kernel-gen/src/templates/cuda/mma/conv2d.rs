//! Convolutions in NHWC.

use super::kernel::kernel;
use super::{Plan, SMALLEST, Sizes, device, knobs, model};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, Axis, Expr, Kernel, LoopKind};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cuda, Target};
use crate::templates::cuda::product::{Element, Layout, Piece, Product};
use crate::templates::cuda::{descend_from_many, share};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Param, Role, Workload};

/// Convolutions in NHWC of f16 and bf16, with one group and an even number of input channels. See the module's text for
/// the form and for the knobs.
pub struct MmaConv2d;

/// Columns of packed weights that are copied at a time: 16 bytes.
const WEIGHTS: i64 = 8;

/// The convolution and the device, or why it is none for this template.
fn problem<'t>(w: &Workload, t: &'t Target) -> Result<(Conv2d, &'t Cuda), String> {
    let gpu = device(w, t)?;
    let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
    if c.groups != 1 || c.layout != ConvLayout::Nhwc {
        return Err("for NHWC with one group".into());
    }
    if c.ci % 2 != 0 {
        return Err(format!("copies whole words, and pixels have {} channels", c.ci));
    }
    Ok((c, gpu))
}

/// Channels of a pixel that are copied at a time: up to 16 bytes.
fn unit(c: &Conv2d) -> i64 {
    [8, 4].into_iter().find(|n| c.ci % n == 0).unwrap_or(2)
}

fn plan(w: &Workload, c: &Conv2d, sizes: Sizes) -> Plan {
    Plan {
        batch: 1,
        m: c.n * c.oh() * c.ow(),
        n: c.co,
        k: c.kh * c.kw * c.ci,
        layouts: [Layout::ReductionFast, Layout::ReductionSlow],
        taps: c.kh * c.kw,
        unit: unit(c),
        out_bytes: w.out_dtype.bytes() as i64,
        sizes,
    }
}

impl Template for MmaConv2d {
    fn name(&self) -> &str {
        "mma_conv2d"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        let (c, gpu) = problem(w, t)?;
        plan(w, &c, SMALLEST).fits(gpu).then_some(()).ok_or_else(|| format!("{} images are too many tiles", c.n))
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let w = w.clone();
        Ok(knobs(move |sizes| plan(&w, &c, sizes), gpu).build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        Ok(descend_from_many(&self.space(w, t)?, &SMALLEST.config(), |config| self.cost(w, t, config))?)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Sizes::of(config)) {
            (Ok((c, gpu)), Ok(sizes)) => model::us(&plan(w, &c, sizes), w, gpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let plan = plan(w, &c, Sizes::of(config)?);
        if !plan.fits(gpu) {
            return Err(TemplateError::Limit(format!("{config} does not fit {}", t.name)));
        }
        let product = Convolution { workload: w, c, plan };
        let pack = Pack { param: "w".into(), kernel: product.pack() };
        Ok(Scheduled { schedule: Schedule::new(kernel(&product, &plan)), packs: vec![pack] })
    }
}

struct Convolution<'w> {
    workload: &'w Workload,
    c: Conv2d,
    plan: Plan,
}

impl Convolution<'_> {
    /// The shape of the packed weights: tiles of output channels, the reduction, channels of a tile.
    fn packed_shape(&self) -> [i64; 3] {
        [self.plan.tiles()[1], self.plan.padded_k(), self.plan.sizes.tile_n]
    }

    /// Brings the weights into the order in which blocks copy them; zeros stand beyond the last channel and tap.
    fn pack(&self) -> Kernel {
        let (c, [tiles, depth, columns]) = (&self.c, self.packed_shape());
        let mut b = KernelBuilder::new("pack_w");
        let w = b.param("w", self.workload.dtype, &c.weight_shape(), Access::Read);
        let packed = b.param("packed", self.workload.dtype, &self.packed_shape(), Access::Write);
        b.loop_("tile", tiles, LoopKind::Grid(Axis::Y), |b, tile| {
            b.loop_("k", depth, LoopKind::Grid(Axis::X), |b, k| {
                b.loop_("thread", Cuda::WARP, LoopKind::Thread(Axis::X), |b, thread| {
                    share(b, Cuda::WARP, thread.into(), columns, |b, column| {
                        let (tap, ci) = (Expr::from(k).floor_div(c.ci), Expr::from(k).floor_mod(c.ci));
                        let co = tile * columns + column.clone();
                        let (kh, kw) = (tap.clone().floor_div(c.kw), tap.floor_mod(c.kw));
                        let exists =
                            [(kh.clone(), c.kh, depth == self.plan.k), (co.clone(), c.co, c.co % columns == 0)];
                        let exists = exists.into_iter().filter(|(.., always)| !always);
                        let exists = Expr::all(exists.map(|(index, size, _)| index.lt(size)));
                        let value = Expr::load(w, vec![kh, kw, ci, co]);
                        let value = match exists {
                            Some(exists) => exists.select(value, Expr::f32(0.0)),
                            None => value,
                        };
                        b.store(packed, vec![tile.into(), k.into(), column], value);
                    });
                });
            });
        });
        b.finish()
    }

    /// Whether all threads of a step are at the same tap.
    fn one_tap(&self) -> bool {
        self.c.ci % self.plan.sizes.tile_k == 0
    }

    /// What a tap adds to the row and column of a pixel, and its first channel.
    fn tap(&self, k: Expr) -> [Expr; 3] {
        let c = &self.c;
        let (tap, ci) = (k.clone().floor_div(c.ci), k.floor_mod(c.ci));
        [tap.clone().floor_div(c.kw) * c.dilation[0], tap.floor_mod(c.kw) * c.dilation[1], ci]
    }
}

impl Product for Convolution<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn shape(&self, param: &Param) -> Vec<i64> {
        match param.role {
            Role::Weight => self.packed_shape().to_vec(),
            // Pixels are rows, whichever image they are of.
            Role::Output | Role::Residual => vec![self.plan.m, self.plan.n],
            _ => param.shape.clone(),
        }
    }

    fn layouts(&self) -> [Layout; 2] {
        self.plan.layouts
    }

    fn units(&self) -> [i64; 2] {
        [self.plan.unit, WEIGHTS]
    }

    /// The pixel's image, and the row and column of its first tap. Rows beyond the last pixel are copied from that one and
    /// not stored.
    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        let (c, plan) = (&self.c, &self.plan);
        let (oh, ow) = (c.oh(), c.ow());
        let row = if plan.m % plan.sizes.tile_m == 0 { row } else { row.min(plan.m - 1) };
        let pixel = b.let_("pixel", row);
        let within = Expr::from(pixel).floor_mod(oh * ow);
        vec![
            b.let_("image", Expr::from(pixel).floor_div(oh * ow)).into(),
            b.let_("top", within.clone().floor_div(ow) * c.stride[0] - c.padding[0]).into(),
            b.let_("left_edge", within.floor_mod(ow) * c.stride[1] - c.padding[1]).into(),
        ]
    }

    fn step(&self, b: &mut KernelBuilder, _: &[Expr], k: &Expr) -> Vec<Expr> {
        if !self.one_tap() {
            return vec![k.clone()];
        }
        let [down, along, ci] = self.tap(k.clone());
        vec![b.let_("down", down).into(), b.let_("along", along).into(), b.let_("first_channel", ci).into(), k.clone()]
    }

    fn left(&self, _: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        let c = &self.c;
        let (tap, k) = match step {
            [down, along, ci, k] => ([down.clone(), along.clone(), ci.clone() + within], k.clone()),
            _ => (self.tap(step[0].clone() + within.clone()), step[0].clone() + within),
        };
        let [down, along, ci] = tap;
        let (h, w) = (row[1].clone() + down, row[2].clone() + along);
        let beyond = self.plan.padded_k() != self.plan.k;
        let mut exists = vec![];
        if beyond {
            exists.push(k.lt(self.plan.k));
        }
        if beyond || c.padding[0] > 0 || c.padding[2] > 0 {
            exists.push(KernelBuilder::between(&h, 0, c.h));
        }
        if beyond || c.padding[1] > 0 || c.padding[3] > 0 {
            exists.push(KernelBuilder::between(&w, 0, c.w));
        }
        Piece { index: vec![row[0].clone(), h, w, ci], exists: Expr::all(exists) }
    }

    fn right(&self, _: &Expr, tile: &Expr, step: &[Expr], column: Expr, within: Expr) -> Piece {
        let k = step[step.len() - 1].clone();
        Piece { index: vec![tile.clone(), k + within, column], exists: None }
    }

    fn element(&self, _: &Expr, row: Expr, column: Expr) -> Element {
        Element { index: vec![row, column.clone()], channel: column }
    }
}
