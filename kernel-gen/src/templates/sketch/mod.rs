//! Schedules by rules: a template for any kernel, derived from its loops and not from its operator's name.
//!
//! The stages of a kernel are taken as they stand in the IR. Rules over their loops and loads, in the manner of Ansor's
//! sketches (Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020), make the
//! structure; what is left open becomes knobs, and a search fills them in as it does for every other template.
//!
//! | rule | applies to | what it does |
//! |---|---|---|
//! | inline | a stage without a sum, read by such stages (on CUDA by any, if it only reads parameters) | it vanishes into its readers |
//! | cache stage | a sum that no stage reads element by element | it is computed into a cache, which is copied out |
//! | multi-level tiling | every sum | its loops are cut into tasks, tiles and a block of registers; the longest reduce loop in two |
//! | fusion | the stage that reads a sum element by element | both are computed in one tile |
//! | cached reads | loads that lanes find far apart (CPU); that threads share (CUDA) | a tile is copied first |
//! | vectors, unrolling | the loop along which neighbours are written; short reduce loops | lanes; written out |
//!
//! [`Sketch`] does this for one kernel and one target: that is how a kernel of your own gets a space and a schedule.
//! [`SketchCpu`] and [`SketchCuda`] are the templates that do it for the naive kernel of a workload. Without a record they
//! are chosen only in the place of a [plain](super::cpu::plain) template: see [`crate::model`].
//!
//! ```
//! use kernel_gen::ir::{Access, DType, Expr, ReduceOp, builder::KernelBuilder};
//! use kernel_gen::{target::Target, templates::sketch::Sketch};
//! let mut b = KernelBuilder::new("row_sums");
//! let x = b.param("x", DType::F32, &[64, 1000], Access::Read);
//! let y = b.param("y", DType::F32, &[64], Access::Write);
//! b.nest(&[("i", 64), ("j", 1000)], |b, v| {
//!     b.sum(y, [v[0].into()], Expr::load(x, vec![v[0].into(), v[1].into()]), &[v[1]]);
//! });
//! let sketch = Sketch::of(b.finish(), Target::find("x86-64-v3").expect("a built-in target"))?;
//! let config = sketch.default_config()?;
//! let scheduled = sketch.schedule(&config)?;
//! println!("{}\n{}", sketch.space()?, scheduled.schedule.kernel);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cpu;
mod cuda;
mod nest;

use super::{Scheduled, Template, TemplateError};
use crate::ir::Kernel;
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Device, Target};
use crate::workload::{Workload, naive};
use std::cell::RefCell;
use std::rc::Rc;

/// The rules applied to one kernel for one target. See the module's text.
pub struct Sketch {
    rules: Rules,
}

enum Rules {
    Cpu(cpu::Rules),
    Cuda(cuda::Rules),
}

impl Sketch {
    /// Derives the structure of a kernel's schedule, or says in half a sentence which part of the kernel the rules do not
    /// cover. The kernel is one that nothing has scheduled yet: stages at the root, each a nest of serial loops around one
    /// statement.
    pub fn of(kernel: Kernel, target: &Target) -> Result<Sketch, String> {
        let mut prepared = Schedule::new(kernel);
        let rules = match &target.device {
            Device::Cpu(cpu) => {
                let groups = nest::groups(&mut prepared, false)?;
                Rules::Cpu(cpu::Rules::new(prepared, groups, cpu))
            }
            Device::Cuda(gpu) => {
                let groups = nest::groups(&mut prepared, true)?;
                Rules::Cuda(cuda::Rules::new(prepared, groups, gpu)?)
            }
        };
        Ok(Sketch { rules })
    }

    /// What the rules leave open.
    pub fn space(&self) -> Result<Space, TemplateError> {
        match &self.rules {
            Rules::Cpu(rules) => rules.space(),
            Rules::Cuda(rules) => rules.space(),
        }
    }

    /// The config that [`cost`](Sketch::cost) finds best, by descent.
    pub fn default_config(&self) -> Result<Config, TemplateError> {
        match &self.rules {
            Rules::Cpu(rules) => rules.default_config(),
            Rules::Cuda(rules) => rules.default_config(),
        }
    }

    /// Expected microseconds; see [`Template::cost`].
    pub fn cost(&self, config: &Config) -> f64 {
        match &self.rules {
            Rules::Cpu(rules) => rules.cost(config),
            Rules::Cuda(rules) => rules.cost(config),
        }
    }

    /// The kernel of a config.
    pub fn schedule(&self, config: &Config) -> Result<Scheduled, TemplateError> {
        match &self.rules {
            Rules::Cpu(rules) => rules.schedule(config),
            Rules::Cuda(rules) => rules.schedule(config),
        }
    }
}

/// [`Sketch`] as a template for CPUs. Knobs: `tile_LOOP` for each loop of a sum, as tasks, tiles and registers; of its
/// longest reduce loop, as passes and steps; `unroll_SUM`, the reduce steps that are written out; `turn_BUFFER_SUM`, whether what
/// lanes would gather is turned first. `vectors` of stages without a sum.
pub struct SketchCpu;

/// [`Sketch`] as a template for CUDA devices. Knobs: `tile_LOOP` for each loop of a sum, as blocks, virtual threads, threads and
/// registers; of its longest reduce loop, as passes and steps; `shared_SUM`, whether
/// operands are copied to shared memory; `unroll_SUM`. `threads` of stages without a sum.
pub struct SketchCuda;

thread_local! {
    /// The sketch that was derived last on this thread: tuners ask for the costs of thousands of configs of one workload.
    static LAST: RefCell<Option<(Workload, Target, Rc<Sketch>)>> = const { RefCell::new(None) };
}

fn of_workload(w: &Workload, t: &Target) -> Result<Rc<Sketch>, TemplateError> {
    let same = |last: &(Workload, Target, Rc<Sketch>)| (last.0 == *w && last.1 == *t).then(|| Rc::clone(&last.2));
    if let Some(sketch) = LAST.with_borrow(|last| last.as_ref().and_then(same)) {
        return Ok(sketch);
    }
    let sketch = Rc::new(Sketch::of(naive(w), t).map_err(TemplateError::Limit)?);
    LAST.set(Some((w.clone(), t.clone(), Rc::clone(&sketch))));
    Ok(sketch)
}

macro_rules! template {
    ($type:ty, $name:literal, $device:ident, $other:literal) => {
        impl Template for $type {
            fn name(&self) -> &str {
                $name
            }

            fn version(&self) -> u32 {
                1
            }

            fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
                t.$device().ok_or($other)?;
                // Two sums of many loops each may leave more open than a space can number.
                Sketch::of(naive(w), t)?.space().map(drop).map_err(|e| e.to_string())
            }

            fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
                of_workload(w, t)?.space()
            }

            fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
                of_workload(w, t)?.default_config()
            }

            fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
                of_workload(w, t).map_or(f64::INFINITY, |sketch| sketch.cost(config))
            }

            fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
                of_workload(w, t)?.schedule(config)
            }
        }
    };
}

template!(SketchCpu, "sketch", cpu, "for CPUs");
template!(SketchCuda, "sketch_cuda", cuda, "for CUDA devices");
