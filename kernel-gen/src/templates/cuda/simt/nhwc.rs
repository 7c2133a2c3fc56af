//! Convolutions in NHWC: one product of output pixels and output channels.

use super::{Plan, Sizes};
use crate::ir::Expr;
use crate::ir::builder::KernelBuilder;
use crate::templates::cuda::pixels::PixelRows;
use crate::templates::cuda::product::{Element, Layout, Piece, Product, widest};
use crate::workload::{Conv2d, Param, Role, Workload};

/// Registers of a thread for each pixel that it copies from.
const ROW_REGISTERS: i64 = 4;
/// Instructions of a step beside terms and copies, and to find a pixel's tap and whether it lies in the padding: as
/// `ptxas` makes them for sm_90a of the first, of pointwise and of 3x3 layers of ResNet-50.
const STEP_ISSUES: f64 = 50.0;
const FIND_ISSUES: f64 = 11.0;

/// The convolution cut up as a config says.
pub(super) fn plan(c: &Conv2d, sizes: Sizes) -> Plan {
    let plan = Plan {
        batch: 1,
        m: PixelRows::count(c),
        n: c.co,
        k: PixelRows::depth(c),
        layouts: [Layout::ReductionFast, Layout::ReductionSlow],
        units: [1, widest(c.co, 4)],
        row_registers: ROW_REGISTERS,
        skipped: 0.0,
        step_issues: STEP_ISSUES,
        sizes,
    };
    // Taps that change within a step are found for each piece, others for each pixel, unless it always has all.
    let found = match (rows(c, &plan).one_tap(), c.has_padding()) {
        (false, _) => plan.pieces(0),
        (true, true) => plan.copied_rows(),
        (true, false) => 0,
    };
    Plan { step_issues: STEP_ISSUES + FIND_ISSUES * found as f64, ..plan }
}

/// The left operand.
fn rows(c: &Conv2d, plan: &Plan) -> PixelRows {
    let Sizes { tile, tile_k, .. } = plan.sizes;
    PixelRows { c: *c, tile: tile[0], step: tile_k, padded_depth: plan.padded_k() }
}

/// The product.
pub(super) struct Pixels<'w> {
    workload: &'w Workload,
    plan: Plan,
    rows: PixelRows,
}

impl<'w> Pixels<'w> {
    /// The convolution `c` of a workload as its plan cuts it up.
    pub(super) fn new(workload: &'w Workload, c: Conv2d, plan: Plan) -> Pixels<'w> {
        Pixels { workload, plan, rows: rows(&c, &plan) }
    }
}

impl Product for Pixels<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn shape(&self, param: &Param) -> Vec<i64> {
        match param.role {
            // Taps and input channels are the reduction, as they lie.
            Role::Weight => vec![self.plan.k, self.plan.n],
            // Pixels are rows, whichever image they are of.
            Role::Output | Role::Residual => vec![self.plan.m, self.plan.n],
            _ => param.shape.clone(),
        }
    }

    fn layouts(&self) -> [Layout; 2] {
        self.plan.layouts
    }

    fn units(&self) -> [i64; 2] {
        self.plan.units
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
        let plan = &self.plan;
        let (k, co) = (step[step.len() - 1].clone() + within, tile.clone() * plan.sizes.tile[1] + column);
        let mut exists = vec![];
        if plan.padded_k() != plan.k {
            exists.push(k.clone().lt(plan.k));
        }
        if plan.n % plan.sizes.tile[1] != 0 {
            exists.push(co.clone().lt(plan.n));
        }
        Piece { index: vec![k, co], exists: Expr::all(exists) }
    }

    fn element(&self, _: &Expr, row: Expr, column: Expr) -> Element {
        Element { index: vec![row, column.clone()], channel: column }
    }
}
