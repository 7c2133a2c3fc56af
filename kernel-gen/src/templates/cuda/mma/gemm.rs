//! Matrix products.

use super::kernel::kernel;
use super::{Plan, SMALLEST, Sizes, device, knobs, model};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cuda, Target};
use crate::templates::cuda::descend_from_many;
use crate::templates::cuda::product::Gemm;
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
    match Gemm::rows_of(&m).into_iter().find(|n| unit(*n).is_none()) {
        Some(n) => Err(format!("copies whole words, and rows have {n} elements in memory")),
        None => Ok((m, gpu)),
    }
}

fn plan(w: &Workload, m: &Matmul, sizes: Sizes) -> Plan {
    Plan {
        batch: m.batch,
        m: m.m,
        n: m.n,
        k: m.k,
        layouts: Gemm::layouts_of(m),
        taps: 1,
        unit: unit(Gemm::rows_of(m)[0]).unwrap_or(1),
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
        Ok(descend_from_many(&self.space(w, t)?, &SMALLEST.config(), &|config| self.cost(w, t, config))?)
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
        let product = Gemm {
            workload: w,
            m,
            tile: [plan.sizes.tile_m, plan.sizes.tile_n],
            units: Gemm::rows_of(&m).map(|n| unit(n).unwrap_or(1)),
            padded_k: plan.padded_k(),
        };
        Ok(Scheduled { schedule: Schedule::new(kernel(&product, &plan)), packs: vec![] })
    }
}
