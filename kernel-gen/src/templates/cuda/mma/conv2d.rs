//! Convolutions in NHWC.

use super::kernel::kernel;
use super::{Plan, SMALLEST, Sizes, device, narrow};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, Axis, Expr, Kernel, LoopKind};
use crate::space::Value;
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{self, Family, Plan as _, Search, built};
use crate::templates::cuda::pixels::PixelRows;
use crate::templates::cuda::product::{Element, Layout, Piece, Product};
use crate::templates::cuda::share;
use crate::templates::{Pack, Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Param, Role, Workload};

/// Convolutions in NHWC of f16 and bf16, with one group and an even number of input channels. See the module's text for
/// the form and for the knobs.
pub struct MmaConv2d;

/// Columns of packed weights that are copied at a time: 16 bytes.
const WEIGHTS: i64 = 8;

/// Channels of a pixel that are copied at a time: up to 16 bytes.
fn unit(c: &Conv2d) -> i64 {
    [8, 4].into_iter().find(|n| c.ci % n == 0).unwrap_or(2)
}

type Case<'a> = family::Case<'a, Conv2d>;

fn plan(case: &Case<'_>, sizes: Sizes) -> Plan {
    let c = &case.problem;
    Plan {
        batch: 1,
        m: PixelRows::count(c),
        n: c.co,
        k: PixelRows::depth(c),
        layouts: [Layout::ReductionFast, Layout::ReductionSlow],
        taps: c.kh * c.kw,
        unit: unit(c),
        out_bytes: case.w.out_dtype.bytes() as i64,
        sizes,
    }
}

impl Family for MmaConv2d {
    const NAME: &'static str = "mma_conv2d";
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let gpu = device(w, t)?;
        let Op::Conv2d(c) = w.op else { return Err("for convolutions".into()) };
        if c.groups != 1 || c.layout != ConvLayout::Nhwc {
            return Err("for NHWC with one group".into());
        }
        if c.ci % 2 != 0 {
            return Err(format!("copies whole words, and pixels have {} channels", c.ci));
        }
        // Blocks that pack the weights, with those of the last step's zeros.
        if w.reduction_length() > gpu.grid_dim[0] / 2 {
            return Err(format!("for sums of at most {} terms", gpu.grid_dim[0] / 2));
        }
        Ok(c)
    }

    fn check(case: &Case<'_>) -> Result<(), String> {
        let fits = plan(case, SMALLEST).fits(case.gpu);
        fits.then_some(()).ok_or_else(|| format!("{} images are too many tiles", case.problem.n))
    }

    fn narrow(case: &Case<'_>, knob: &str, values: &mut Vec<Value>) {
        narrow(&plan(case, SMALLEST), case.gpu, knob, values);
    }

    fn plan(case: &Case<'_>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(plan(case, sizes))
    }

    fn search(_: &Case<'_>) -> Search<Sizes> {
        Search::from(SMALLEST)
    }

    fn kernel(case: &Case<'_>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let (c, Sizes { tile, tile_k, .. }) = (case.problem, plan.sizes);
        let rows = PixelRows { c, tile: tile[0], step: tile_k, padded_depth: plan.padded_k() };
        let product = Convolution { workload: case.w, c, plan: *plan, rows };
        let pack = Pack { param: "w".into(), kernel: product.pack() };
        built(kernel(&product, plan), [pack])
    }
}

struct Convolution<'w> {
    workload: &'w Workload,
    c: Conv2d,
    plan: Plan,
    rows: PixelRows,
}

impl Convolution<'_> {
    /// The shape of the packed weights: tiles of output channels, the reduction, channels of a tile.
    fn packed_shape(&self) -> [i64; 3] {
        [self.plan.tiles()[1], self.plan.padded_k(), self.plan.sizes.tile[1]]
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

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        self.rows.row(b, row)
    }

    fn step(&self, b: &mut KernelBuilder, _: &[Expr], k: &Expr) -> Vec<Expr> {
        self.rows.step(b, k)
    }

    fn left(&self, _: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        self.rows.piece(row, step, within)
    }

    fn right(&self, _: &Expr, tile: &Expr, step: &[Expr], column: Expr, within: Expr) -> Piece {
        let k = step[step.len() - 1].clone();
        Piece { index: vec![tile.clone(), k + within, column], exists: None }
    }

    fn element(&self, _: &Expr, row: Expr, column: Expr) -> Element {
        Element { index: vec![row, column.clone()], channel: column }
    }
}
