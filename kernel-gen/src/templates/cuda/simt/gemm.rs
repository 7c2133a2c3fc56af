//! Matrix products.

use super::kernel::kernel;
use super::{Plan, SMALLEST, Sizes, device, knobs, model};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cuda, Target};
use crate::templates::cuda::descend_from_many;
use crate::templates::cuda::product::{Gemm, Layout, widest};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Matmul, Workload};

/// Matrix products of `f32`, batched or not, in all four orders of storage. See the module's text for the form and for the
/// knobs.
pub struct SimtGemm;

/// The product and the device, or why it is none for this template.
fn problem<'t>(w: &Workload, t: &'t Target) -> Result<(Matmul, &'t Cuda), String> {
    let gpu = device(w, t)?;
    Ok((*w.matmul().ok_or("for matrix products")?, gpu))
}

/// Elements of each operand that are copied at a time: single ones, where they are turned around.
fn units(m: &Matmul) -> [i64; 2] {
    let rows = Gemm::rows_of(m);
    let layouts = Gemm::layouts_of(m);
    [0, 1].map(|side| match layouts[side] {
        Layout::ReductionFast => 1,
        Layout::ReductionSlow => widest(rows[side], 4),
    })
}

fn plan(m: &Matmul, sizes: Sizes) -> Plan {
    Plan {
        batch: m.batch,
        m: m.m,
        n: m.n,
        k: m.k,
        layouts: Gemm::layouts_of(m),
        units: units(m),
        row_registers: 0,
        skipped: 0.0,
        step_issues: 40.0,
        sizes,
    }
}

impl Template for SimtGemm {
    fn name(&self) -> &str {
        "simt_gemm"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        let (m, gpu) = problem(w, t)?;
        plan(&m, SMALLEST).fits(gpu).then_some(()).ok_or_else(|| format!("a batch of {} is too large", m.batch))
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (m, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        Ok(knobs(move |sizes| plan(&m, sizes), gpu).build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        Ok(descend_from_many(&self.space(w, t)?, &SMALLEST.config(), &|config| self.cost(w, t, config))?)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Sizes::of(config)) {
            (Ok((m, gpu)), Ok(sizes)) => model::us(&plan(&m, sizes), w, gpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (m, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let plan = plan(&m, Sizes::of(config)?);
        if !plan.fits(gpu) {
            return Err(TemplateError::Limit(format!("{config} does not fit {}", t.name)));
        }
        let product = Gemm { workload: w, m, tile: plan.sizes.tile, units: plan.units, padded_k: plan.padded_k() };
        Ok(Scheduled { schedule: Schedule::new(kernel(&product, &plan)), packs: vec![] })
    }
}
