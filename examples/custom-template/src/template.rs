//! A template of one's own: `c[1, n] = a[1, k] * b[k, n]` with `b` read where it is.
//!
//! The library's template for products packs `b` into panels first. That pays when `b` is a weight that serves many
//! calls, and when each element of `b` meets many rows of `a`. Here `a` is a single row: every element of `b` is used
//! once, so packing it would cost more than the product itself.
//!
//! The schedule: a task takes `vectors` vectors of neighbouring columns, keeps their sums in registers, and walks down
//! all rows of `b`. A step of that walk loads one contiguous piece of a row and one scalar of `a`.
//!
//! ```text
//! for task in 0..n / (vectors * lanes)            parallel
//!     sums[vectors][lanes] = 0                    registers
//!     for k in 0..K                               unrolled by `unroll`
//!         sums += a[k] * b[k, columns of the task]
//!     c[columns of the task] = epilogue(sums)
//! ```

use kernel_gen::ir::Scope;
use kernel_gen::schedule::{Schedule, Tail};
use kernel_gen::space::{Config, Space};
use kernel_gen::target::{Cpu, Target};
use kernel_gen::templates::{Scheduled, Template, TemplateError};
use kernel_gen::workload::{Matmul, Workload, naive};

/// The template. It has no fields: everything that it needs to know comes as an argument.
pub(crate) struct MatvecInPlace;

/// The workload as a product and the target as a CPU, or why this template is not for them.
///
/// Everything below begins with this, so each part can rely on what `applies` promised.
fn problem<'a>(workload: &Workload, target: &'a Target) -> Result<(Matmul, &'a Cpu), String> {
    let cpu = target.cpu().ok_or("for CPUs")?;
    match workload.matmul() {
        Some(m) if m.batch == 1 && m.m == 1 && !m.trans_b => Ok((*m, cpu)),
        _ => Err("for products of one row with a matrix that is not transposed".to_string()),
    }
}

impl Template for MatvecInPlace {
    /// Records and reports name the template by this.
    fn name(&self) -> &str {
        "matvec_in_place"
    }

    /// Count this up when you change `schedule` so that an old config gives another kernel: measurements of the old
    /// one are then no longer used.
    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, workload: &Workload, target: &Target) -> Result<(), String> {
        problem(workload, target).map(drop)
    }

    /// The choices. What cannot work is filtered out here, before any kernel is made: a tuner that draws from the space
    /// should hardly ever meet an invalid config.
    fn space(&self, workload: &Workload, target: &Target) -> Result<Space, TemplateError> {
        let (m, cpu) = problem(workload, target).map_err(TemplateError::Limit)?;
        let most = m.n.div_euclid(cpu.f32_lanes()).max(1);
        // Two registers stay free for the scalar and the vector that is being loaded.
        let registers = cpu.vector_registers - 2;
        Ok(Space::builder()
            .knob("vectors", 1..=most.min(registers))
            .knob("unroll", [1, 2, 4, 8])
            .filter(
                "a step of the walk stays short",
                |c| matches!((c.int("vectors"), c.int("unroll")), (Ok(v), Ok(u)) if v * u <= 64),
            )
            .build()?)
    }

    /// The config without any measurement. It must be in the space.
    fn default_config(&self, workload: &Workload, target: &Target) -> Result<Config, TemplateError> {
        let (m, cpu) = problem(workload, target).map_err(TemplateError::Limit)?;
        // A sum is updated once a step, and a multiply-add takes some cycles: enough sums to keep the units busy
        // meanwhile, and twice as many, so that the scalar's load weighs less.
        let busy = cpu.fma_latency * cpu.fma_units;
        let most = m.n.div_euclid(cpu.f32_lanes()).max(1);
        let vectors = (2 * busy).min(cpu.vector_registers - 2).min(most);
        Ok(Config::new().with("vectors", vectors).with("unroll", 2))
    }

    /// The expected time on one thread. It decides between templates that apply, so it is an estimate in earnest: here
    /// whatever is slower of multiply-adds, loads, and waiting for the sums.
    fn cost(&self, workload: &Workload, target: &Target, config: &Config) -> f64 {
        let (Ok((m, cpu)), Ok(vectors)) = (problem(workload, target), config.int("vectors")) else {
            return f64::INFINITY;
        };
        let multiply_adds = vectors as f64 / cpu.fma_units as f64 * if cpu.fma { 1.0 } else { 2.0 };
        let loads = (vectors + 1) as f64 / 2.0;
        let step = multiply_adds.max(loads).max(cpu.fma_latency as f64);
        let tasks = (m.n + vectors * cpu.f32_lanes() - 1) / (vectors * cpu.f32_lanes());
        (tasks * m.k) as f64 * step / cpu.clock_mhz as f64
    }

    /// The kernel of a config: the naive kernel, rewritten step by step. Each step checks that it is legal; what a step
    /// refuses comes back as an error with a reason. `command lower kernels.toml wide` prints the kernel after each.
    fn schedule(&self, workload: &Workload, target: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (m, cpu) = problem(workload, target).map_err(TemplateError::Limit)?;
        let lanes = cpu.f32_lanes();
        let columns = (config.int("vectors")? * lanes).min(m.n);

        // The naive kernel has two stages: `acc`, the sums, and `c`, the epilogue applied to them.
        let mut s = Schedule::new(naive(workload));
        let (acc, c) = (s.stage("acc")?, s.stage("c")?);

        // Tasks: pieces of the columns of `c`. Where they do not come out even, the last one is guarded.
        let [i, j] = s.axes(c)?;
        let [task, column] = s.split(j, columns, Tail::Guard)?;
        s.reorder(&[task, i, column])?;
        s.parallel(task)?;

        // Each task makes its own sums, in registers.
        s.set_scope(acc, Scope::Register)?;
        s.compute_at(acc, task)?;

        // Rows of `b` outside, columns inside; the columns become vectors.
        let [i, j, k] = s.axes(acc)?;
        let [step, within] = s.split(k, config.int("unroll")?, Tail::Guard)?;
        let [vector, lane] = s.split(j, lanes, Tail::Guard)?;
        s.reorder(&[step, within, i, vector, lane])?;
        s.unroll(within)?;
        s.unroll(vector)?;
        s.vectorize(lane)?;

        // The epilogue, in vectors of the same width.
        let [vector, lane] = s.split(column, lanes, Tail::Guard)?;
        s.unroll(vector)?;
        s.vectorize(lane)?;

        // `b` stays as it is, so there is nothing to pack.
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}
