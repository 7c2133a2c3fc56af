//! Operators whose output is one expression of its index, as movement and functions of elements are: a thread computes neighbours
//! along the last dimension, whose loads and stores are vectors where they lie side by side.
//!
//! | knob | values | |
//! |---|---|---|
//! | `threads` | 64 to 512 | of a block |
//! | `vector` | 1, 2, 4, 8 | neighbours of a thread |

use super::family::{Case, Family, Needs, Plan, Search, knobs};
use super::model::{LAUNCH_US, ceil_div, memory_us};
use super::requires::device;
use super::schedules::{BLOCK, THREAD, pieces};
use crate::analysis::affine::Affine;
use crate::ir::{Axis, DType, Expr, Scope, VarId};
use crate::schedule::{Schedule, Tail};
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::stage::axis;
use crate::workload::{Workload, naive};

/// See the module's text.
pub struct ElementsCuda;

/// Most bytes of a load or store.
const VECTOR_BYTES: i64 = 16;

/// Instructions of a warp for a vector, and for each of its elements; fitted to sums of 51 million elements on an H100.
const VECTOR: f64 = 80.0;
const ELEMENT: f64 = 16.0;

/// Clocks that a multiprocessor takes to begin a block, likewise.
const BLOCK_CLOCKS: f64 = 140.0;

/// Instructions that a multiprocessor issues in a clock.
const ISSUED: f64 = 4.0;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Threads of a block.
        threads: i64 = "threads" in [64, 128, 256, 512];
        /// Neighbours of a thread.
        vector: i64 = "vector" in [1, 2, 4, 8];
    }
}

/// What a config comes to.
pub struct Elements {
    sizes: Sizes,
    /// Elements of the output, and of its last dimension.
    outputs: i64,
    last: i64,
    /// Bytes of the narrowest element.
    bytes: i64,
}

impl Plan for Elements {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads, registers: 0, shared_bytes: 0 }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { vector, .. } = self.sizes;
        self.last % vector == 0 && vector * self.bytes <= VECTOR_BYTES && self.blocks() <= gpu.grid_dim[0]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let Sizes { threads, vector } = self.sizes;
        let blocks = ceil_div(self.blocks(), gpu.sm_count) as f64;
        let warps = blocks * ceil_div(threads, Cuda::WARP) as f64;
        let clocks = (warps * (VECTOR + ELEMENT * vector as f64) / ISSUED).max(blocks * BLOCK_CLOCKS);
        let own = clocks / gpu.clock_mhz.max(1) as f64;
        // What hides behind memory is not for nothing.
        LAUNCH_US + memory_us(w.bytes() as f64, gpu).max(own) + own / 10.0
    }
}

impl Elements {
    fn blocks(&self) -> i64 {
        ceil_div(self.outputs / self.sizes.vector, self.sizes.threads)
    }
}

impl Family for ElementsCuda {
    const NAME: &'static str = "elements_cuda";
    const LIMITS: &'static str = "vectors divide the last dimension and have at most 16 bytes";
    type Problem = ();
    type Knobs = Sizes;
    type Plan<'a> = Elements;

    fn problem(w: &Workload, t: &Target) -> Result<(), String> {
        device(t)?;
        match &w.op.get().stages(w.dtype, DType::F32)[..] {
            [one] if one.reduce == 0 => Ok(()),
            _ => Err("for operators whose output is one expression of its index".into()),
        }
    }

    fn plan(case: &Case<'_, ()>, sizes: Sizes) -> Result<Elements, TemplateError> {
        let shape = case.w.output_shape();
        let bytes = case.w.dtype.bytes().min(case.w.out_dtype.bytes()) as i64;
        Ok(Elements { sizes, outputs: shape.iter().product(), last: shape[shape.len() - 1], bytes })
    }

    fn search(_: &Case<'_, ()>) -> Search<Sizes> {
        Search::All
    }

    fn kernel(case: &Case<'_, ()>, plan: &Elements) -> Result<Scheduled, TemplateError> {
        let mut s = Schedule::new(naive(case.w));
        let out = *s.kernel.params.last().expect("every workload has an output");
        let acc = s.stage("acc")?;
        let mut loops = s.loops_of(out);
        let last = loops.pop().expect("an output has a dimension");
        let [strip, lane] = s.split(last, plan.sizes.vector, Tail::Perfect)?;
        loops.push(strip);
        let all = s.fuse_all(&loops)?;
        let [block, thread] = pieces(&mut s, all, plan.sizes.threads)?;
        s.bind(block, BLOCK(Axis::X))?;
        s.bind(thread, THREAD(Axis::X))?;
        s.set_scope(acc, Scope::Register)?;
        s.compute_at(acc, thread)?;
        s.vectorize(lane)?;
        let own = *s.loops_of(acc).last().expect("an output has a dimension");
        match loads_are_vectors(case.w, plan.sizes.vector) {
            true => s.vectorize(own)?,
            false => s.unroll(own)?,
        }
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}

/// Whether the neighbours of a thread are neighbours in each operand, at whole vectors, or one element.
fn loads_are_vectors(w: &Workload, vector: i64) -> bool {
    let stages = w.op.get().stages(w.dtype, DType::F32);
    let (Some(stage), inputs) = (stages.last(), w.op.get().inputs()) else { return false };
    let along = axis(stage.shape.len() - 1);
    let mentions = |e: &Expr| {
        let mut found = false;
        e.walk(&mut |e| found |= *e == Expr::Var(along));
        found
    };
    let whole = |index: &Expr| {
        Affine::of(index).is_some_and(|affine| {
            let multiple = |(v, k): (&VarId, &i64)| if *v == along { *k == 1 } else { k % vector == 0 };
            affine.constant % vector == 0 && affine.terms.iter().all(multiple)
        })
    };
    let mut all = true;
    stage.value.walk(&mut |e| match e {
        Expr::Load(buffer, indices) => {
            let (last, outer) = indices.split_last().expect("a tensor has a dimension");
            let rows = inputs[buffer.0 as usize].shape.last().is_some_and(|extent| extent % vector == 0);
            all &= !outer.iter().any(mentions) && (!mentions(last) || rows && whole(last));
        }
        // A condition on the index may hold for some of the neighbours only.
        Expr::Select(condition, ..) => all &= !reads_index(condition, along),
        _ => {}
    });
    all
}

/// Whether a condition compares the index itself, rather than what is loaded.
fn reads_index(condition: &Expr, along: VarId) -> bool {
    match condition {
        Expr::Load(..) => false,
        Expr::Var(v) => *v == along,
        Expr::Binary(_, a, b) => reads_index(a, along) || reads_index(b, along),
        Expr::Unary(_, a) | Expr::Cast(_, a) => reads_index(a, along),
        _ => false,
    }
}
