//! Matrix products.

use super::kernel::{Element, Layout, Piece, Product, kernel};
use super::{Plan, SMALLEST, Sizes, device, knobs, model};
use crate::ir::Expr;
use crate::ir::builder::KernelBuilder;
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cuda, Target};
use crate::templates::cuda::descend_from_many;
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Matmul, Workload};

/// Matrix products of f16 and bf16, batched or not, in all four orders of storage. See the module's text for the form
/// and for the knobs.
pub struct MmaGemm;

/// Elements that are copied at a time, 16 bytes at most: of rows of so many elements.
fn unit(row: i64) -> Option<i64> {
    [8, 4, 2].into_iter().find(|n| row % n == 0)
}

/// The product and the device, or why it is none for this template.
fn problem<'t>(w: &Workload, t: &'t Target) -> Result<(Matmul, &'t Cuda), String> {
    let gpu = device(w, t)?;
    let m = *w.matmul().ok_or("for matrix products")?;
    match rows(&m).into_iter().find(|n| unit(*n).is_none()) {
        Some(n) => Err(format!("copies whole words, and rows have {n} elements in memory")),
        None => Ok((m, gpu)),
    }
}

/// Elements of a row of each operand in memory.
fn rows(m: &Matmul) -> [i64; 2] {
    [if m.trans_a { m.m } else { m.k }, if m.trans_b { m.k } else { m.n }]
}

fn plan(w: &Workload, m: &Matmul, sizes: Sizes) -> Plan {
    let layout = |fast| if fast { Layout::ReductionFast } else { Layout::ReductionSlow };
    Plan {
        batch: m.batch,
        m: m.m,
        n: m.n,
        k: m.k,
        layouts: [layout(!m.trans_a), layout(m.trans_b)],
        taps: 1,
        unit: unit(rows(m)[0]).unwrap_or(1),
        out_bytes: w.out_dtype.bytes() as i64,
        sizes,
    }
}

impl Template for MmaGemm {
    fn name(&self) -> &str {
        "mma_gemm"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        let (m, gpu) = problem(w, t)?;
        plan(w, &m, SMALLEST).fits(gpu).then_some(()).ok_or_else(|| format!("a batch of {} is too large", m.batch))
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (m, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let w = w.clone();
        Ok(knobs(move |sizes| plan(&w, &m, sizes), gpu).build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        Ok(descend_from_many(&self.space(w, t)?, &SMALLEST.config(), |config| self.cost(w, t, config))?)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Sizes::of(config)) {
            (Ok((m, gpu)), Ok(sizes)) => model::us(&plan(w, &m, sizes), w, gpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (m, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let plan = plan(w, &m, Sizes::of(config)?);
        if !plan.fits(gpu) {
            return Err(TemplateError::Limit(format!("{config} does not fit {}", t.name)));
        }
        let product = Gemm { workload: w, m, plan };
        Ok(Scheduled { schedule: Schedule::new(kernel(&product, &plan)), packs: vec![] })
    }
}

struct Gemm<'w> {
    workload: &'w Workload,
    m: Matmul,
    plan: Plan,
}

impl Gemm<'_> {
    /// An index with that of the batch before it.
    fn batched(&self, batch: &Expr, index: [Expr; 2]) -> Vec<Expr> {
        (self.m.batch > 1).then(|| batch.clone()).into_iter().chain(index).collect()
    }

    /// An element of an operand: `outer` along the output, of `size` in tiles of `tile`, and `k` along the reduction.
    fn operand(&self, side: usize, batch: &Expr, [outer, k]: [Expr; 2], size: i64, tile: i64) -> Piece {
        let mut exists = vec![];
        if size % tile != 0 {
            exists.push(outer.clone().lt(size));
        }
        if self.plan.padded_k() != self.m.k {
            exists.push(k.clone().lt(self.m.k));
        }
        let index = match self.plan.layouts[side] {
            Layout::ReductionFast => [outer, k],
            Layout::ReductionSlow => [k, outer],
        };
        Piece { index: self.batched(batch, index), exists: Expr::all(exists) }
    }
}

impl Product for Gemm<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn layouts(&self) -> [Layout; 2] {
        self.plan.layouts
    }

    fn units(&self) -> [i64; 2] {
        rows(&self.m).map(|n| unit(n).unwrap_or(1))
    }

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        vec![b.let_("left_row", row).into()]
    }

    fn step(&self, _: &mut KernelBuilder, k: &Expr) -> Vec<Expr> {
        vec![k.clone()]
    }

    fn left(&self, batch: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        let at = [row[0].clone(), step[0].clone() + within];
        self.operand(0, batch, at, self.m.m, self.plan.sizes.tile_m)
    }

    fn right(&self, batch: &Expr, tile: &Expr, step: &[Expr], column: Expr, within: Expr) -> Piece {
        let at = [tile.clone() * self.plan.sizes.tile_n + column, step[0].clone() + within];
        self.operand(1, batch, at, self.m.n, self.plan.sizes.tile_n)
    }

    fn element(&self, batch: &Expr, row: Expr, column: Expr) -> Element {
        Element { channel: column.clone(), index: self.batched(batch, [row, column]) }
    }
}
