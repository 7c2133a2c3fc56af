//! Schedules: kernels rewritten step by step.
//!
//! A schedule turns the naive kernel of a workload into a fast one by small rewrites, each of which leaves the result as
//! it is (sums may change their order). Every primitive is a plain function from a kernel to a new kernel in a file of its
//! own; it checks first, and refuses with a [`ScheduleError`] that says what stood in the way and what to do instead.
//! [`Schedule`] holds a kernel, calls them by methods of the same names, and keeps a trace for printing.
//!
//! ```
//! use kernel_gen::ir::{builder::KernelBuilder, Access, DType, Expr, Scope};
//! use kernel_gen::schedule::{Schedule, Tail};
//! let mut b = KernelBuilder::new("matmul");
//! let x = b.param("a", DType::F32, &[64, 64], Access::Read);
//! let w = b.param("b", DType::F32, &[64, 64], Access::Read);
//! let c = b.param("c", DType::F32, &[64, 64], Access::Write);
//! b.nest(&[("i", 64), ("j", 64), ("k", 64)], |b, v| {
//!     let [i, j, k] = [v[0], v[1], v[2]];
//!     let product = Expr::load(x, vec![i.into(), k.into()]) * Expr::load(w, vec![k.into(), j.into()]);
//!     b.sum(c, [i.into(), j.into()], product, &[k]);
//! });
//! let mut s = Schedule::new(b.finish());
//! let [i, j, k] = s.axes(c)?;
//! let [io, jo, ii, ji] = s.tile([i, j], [4, 16], Tail::Perfect)?;
//! s.reorder(&[io, jo, k, ii, ji])?;
//! let (_acc, copy_out) = s.cache_write_at(c, jo, Scope::Register)?;
//! s.parallel(io)?;
//! s.unroll(ii)?;
//! s.vectorize(ji)?;
//! s.vectorize(copy_out[1])?;
//! println!("{}", s.kernel);
//! # Ok::<(), kernel_gen::schedule::ScheduleError>(())
//! ```
//!
//! # Words
//! A **stage** is a statement that writes a buffer, with its loops; the buffer names it. A **loop** is named by its
//! variable. The loops of a stage's *own nest* ([`Schedule::loops_of`], [`Schedule::axes`]) are those around its statement
//! that do not enclose all of its readers too: for a stage at the root all of them, for one that was attached to a loop of
//! its consumer those below the attach point.
//!
//! # The primitives
//!
//! | loops | what it does |
//! |---|---|
//! | [`split`](split::split), [`split_nparts`](split::split_nparts) | one loop becomes two; [`Tail`] says what happens to a rest |
//! | [`tile`](tile::tile) | two loops become four |
//! | [`fuse`](fuse::fuse), [`fuse_all`](fuse::fuse_all) | nested loops become one |
//! | [`reorder`](reorder::reorder) | nested loops change places |
//! | [`pad`](pad::pad) | a loop gets a rounder number of iterations, the surplus idle |
//! | [`peel`](peel::peel) | the last iterations get a nest of their own |
//! | [`bind`](bind::bind) | iterations go to the blocks of a grid or the threads of a block |
//! | [`vthread`](vthread::vthread) | iterations are interleaved within a thread |
//! | [`parallel`](parallel::parallel) | iterations go to the threads of a CPU |
//! | [`vectorize`](vectorize::vectorize) | iterations become lanes |
//! | [`unroll`](unroll::unroll) | iterations are copied out |
//! | [`pragma`](pragma::pragma) | advice for lowering |
//!
//! | stages and buffers | what it does |
//! |---|---|
//! | [`cache_read`](cache_read::cache_read) | readers read a copy of a whole buffer, made by a stage of its own |
//! | [`cache_write`](cache_write::cache_write) | a stage computes into a cache, which is copied out by a stage of its own |
//! | [`cache_read_at`](cache_read_at::cache_read_at) | a loop's body reads a tile, copied at its start |
//! | [`cache_write_at`](cache_write_at::cache_write_at) | a loop's body writes a tile, copied (or added) out at its end: register accumulators |
//! | [`compute_at`](compute_at::compute_at) | a stage is computed inside a consumer's loop, as much as is needed there |
//! | [`compute_inline`](compute_inline::compute_inline) | a stage vanishes into its readers |
//! | [`branch`](branch::branch) | a select becomes a conditional around two stores |
//! | [`rfactor`](rfactor::rfactor) | a reduce loop becomes a dimension of partial results |
//! | [`set_scope`](set_scope::set_scope) | a buffer moves to another kind of memory |
//! | [`transform_layout`](transform_layout::transform_layout) | dimensions are blocked and reordered; parameters get a packing kernel |
//! | [`storage_align`](storage_align::storage_align) | rows are spaced out |
//! | [`pipeline`](pipeline::pipeline) | copies for later iterations overlap with the present one |
//! | [`tensorize`](tensorize::tensorize) | a nest of scalar loops becomes a tensor [`Intrinsic`] |
//!
//! # What a cache covers
//! A cache inside a loop holds the box that one iteration of the loop touches. Loops further out count as varying too if
//! their iterations share the cache: for `shared` memory the thread and vthread loops around, for private memory (`local`,
//! `register`) none. A `global` cache may not stand under concurrent loops, because all of their iterations would write it.
//! Where a box reaches past the end of what it covers, statements are guarded, unless it is certain that computing there
//! harms nobody: then they are not, and a micro-kernel stays free of branches.
//!
//! # Orders that work
//! Stages can be attached in any order, consumers first or last: `compute_at` moves what stands between a stage and the
//! loop along. A stage that was just inlined can still be given to `cache_read`, which then copies the inlined values. Loops
//! that threads share with others (shared memory) get their kinds before something is attached in them. Private memory may
//! wait at the root for its place; `verify` finds what was forgotten there.

pub mod bind;
pub mod branch;
pub mod cache_read;
pub mod cache_read_at;
pub mod cache_write;
pub mod cache_write_at;
pub mod compute_at;
pub mod compute_inline;
mod depend;
mod error;
pub mod fuse;
pub mod intrinsic;
mod inverse;
mod nest;
pub mod pad;
pub mod parallel;
pub mod peel;
pub mod pipeline;
mod place;
pub mod pragma;
mod radix;
pub mod reorder;
pub mod rfactor;
mod safety;
pub mod set_scope;
pub mod split;
pub mod storage_align;
pub mod tensorize;
pub mod tile;
pub mod transform_layout;
pub mod unroll;
pub mod vectorize;
pub mod vthread;

pub use error::{Reason, ScheduleError};
pub use intrinsic::{Intrinsic, wmma};
pub use split::Tail;
pub use transform_layout::LayoutDim;

use crate::ir::{BufferId, Kernel, LoopKind, Pragma, Scope, VarId};

/// One step of a schedule, for printing.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The primitive.
    pub name: &'static str,
    /// Its arguments, with the names that loops and buffers had before the step.
    pub args: Vec<String>,
    /// The kernel after the step.
    pub kernel: Kernel,
}

/// A kernel and the steps that made it.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The kernel as it stands. Change it through the methods, so that the trace stays true.
    pub kernel: Kernel,
    /// Every step so far.
    pub trace: Vec<Step>,
    uninlined: Option<Uninlined>,
}

/// The kernel as it would be if the stages inlined by the last steps were still there.
#[derive(Clone, Debug)]
struct Uninlined {
    kernel: Kernel,
    stages: Vec<BufferId>,
}

impl Schedule {
    /// A schedule without steps.
    pub fn new(kernel: Kernel) -> Schedule {
        Schedule { kernel, trace: vec![], uninlined: None }
    }

    /// The buffer of that name, written by a stage or passed by the caller.
    pub fn stage(&self, name: &str) -> Result<BufferId, ScheduleError> {
        self.kernel.find_buffer(name).ok_or_else(|| ScheduleError {
            primitive: "stage",
            subject: format!("stage `{name}`"),
            reason: Reason::NotAStage,
        })
    }

    /// The loops of a stage's own nest, outermost first: those around the statement that writes it, without the loops
    /// that it shares with all of its readers because it was attached there. Empty if nothing writes the buffer.
    pub fn loops_of(&self, stage: BufferId) -> Vec<VarId> {
        nest::own_loops(&self.kernel, stage).unwrap_or_default()
    }

    /// The loops of a stage, when their number is known: `let [n, co, oh, ow] = s.axes(y)?`.
    pub fn axes<const N: usize>(&self, stage: BufferId) -> Result<[VarId; N], ScheduleError> {
        let loops = self.loops_of(stage);
        <[VarId; N]>::try_from(&loops[..]).map_err(|_| {
            let given = format!("{N} loops");
            let names: Vec<&str> = loops.iter().map(|v| self.kernel.var(*v).name.as_str()).collect();
            let allowed = format!("{}: {}", loops.len(), names.join(", "));
            error::refuse_stage(&self.kernel, "axes", stage, Reason::BadArgument { given, allowed })
        })
    }

    /// [`split`](split::split).
    pub fn split(&mut self, var: VarId, factor: i64, tail: Tail) -> Result<[VarId; 2], ScheduleError> {
        let args = vec![self.v(var), factor.to_string(), format!("{tail:?}")];
        let (kernel, out) = split::split(&self.kernel, var, factor, tail)?;
        self.done("split", args, kernel, out)
    }

    /// [`split_nparts`](split::split_nparts).
    pub fn split_nparts(&mut self, var: VarId, nparts: i64) -> Result<[VarId; 2], ScheduleError> {
        let args = vec![self.v(var), nparts.to_string()];
        let (kernel, out) = split::split_nparts(&self.kernel, var, nparts)?;
        self.done("split_nparts", args, kernel, out)
    }

    /// Splits a loop into as many as there are sizes, outermost first: `split_sizes(f, [2, 2, 16, 1])` is `f` as 2 times 2
    /// times 16 times 1. Their product must be the loop's extent.
    pub fn split_sizes<const N: usize>(&mut self, var: VarId, sizes: [i64; N]) -> Result<[VarId; N], ScheduleError> {
        let extent = nest::the_loop(&self.kernel, "split_sizes", var)?.extent;
        if sizes.iter().product::<i64>() != extent || sizes.contains(&0) {
            let given = format!("{sizes:?}");
            let reason = Reason::BadArgument { given, allowed: format!("factors whose product is {extent}") };
            return Err(error::refuse_loop(&self.kernel, "split_sizes", var, reason));
        }
        let mut out = [var; N];
        for i in 1..N {
            let factor = sizes[i..].iter().product();
            [out[i - 1], out[i]] = self.split(out[i - 1], factor, Tail::Perfect)?;
        }
        Ok(out)
    }

    /// [`tile`](tile::tile).
    pub fn tile(&mut self, loops: [VarId; 2], factors: [i64; 2], tail: Tail) -> Result<[VarId; 4], ScheduleError> {
        let args = vec![self.vs(&loops), format!("{factors:?}"), format!("{tail:?}")];
        let (kernel, out) = tile::tile(&self.kernel, loops, factors, tail)?;
        self.done("tile", args, kernel, out)
    }

    /// [`fuse`](fuse::fuse).
    pub fn fuse(&mut self, outer: VarId, inner: VarId) -> Result<VarId, ScheduleError> {
        self.fuse_all(&[outer, inner])
    }

    /// [`fuse_all`](fuse::fuse_all).
    pub fn fuse_all(&mut self, loops: &[VarId]) -> Result<VarId, ScheduleError> {
        let args = loops.iter().map(|l| self.v(*l)).collect();
        let (kernel, out) = fuse::fuse_all(&self.kernel, loops)?;
        self.done("fuse", args, kernel, out)
    }

    /// [`reorder`](reorder::reorder).
    pub fn reorder(&mut self, order: &[VarId]) -> Result<(), ScheduleError> {
        let args = vec![self.vs(order)];
        let kernel = reorder::reorder(&self.kernel, order)?;
        self.done("reorder", args, kernel, ())
    }

    /// [`bind`](bind::bind).
    pub fn bind(&mut self, var: VarId, kind: LoopKind) -> Result<(), ScheduleError> {
        let args = vec![self.v(var), kind.name().to_string()];
        let kernel = bind::bind(&self.kernel, var, kind)?;
        self.done("bind", args, kernel, ())
    }

    /// [`vthread`](vthread::vthread).
    pub fn vthread(&mut self, var: VarId) -> Result<(), ScheduleError> {
        let (args, kernel) = (vec![self.v(var)], vthread::vthread(&self.kernel, var)?);
        self.done("vthread", args, kernel, ())
    }

    /// [`vectorize`](vectorize::vectorize).
    pub fn vectorize(&mut self, var: VarId) -> Result<(), ScheduleError> {
        let (args, kernel) = (vec![self.v(var)], vectorize::vectorize(&self.kernel, var)?);
        self.done("vectorize", args, kernel, ())
    }

    /// [`unroll`](unroll::unroll).
    pub fn unroll(&mut self, var: VarId) -> Result<(), ScheduleError> {
        let (args, kernel) = (vec![self.v(var)], unroll::unroll(&self.kernel, var)?);
        self.done("unroll", args, kernel, ())
    }

    /// [`parallel`](parallel::parallel).
    pub fn parallel(&mut self, var: VarId) -> Result<(), ScheduleError> {
        let (args, kernel) = (vec![self.v(var)], parallel::parallel(&self.kernel, var)?);
        self.done("parallel", args, kernel, ())
    }

    /// [`pragma`](pragma::pragma).
    pub fn pragma(&mut self, var: VarId, pragma: Pragma) -> Result<(), ScheduleError> {
        let args = vec![self.v(var), format!("{pragma:?}")];
        let kernel = pragma::pragma(&self.kernel, var, pragma)?;
        self.done("pragma", args, kernel, ())
    }

    /// [`pad`](pad::pad).
    pub fn pad(&mut self, var: VarId, multiple: i64) -> Result<(), ScheduleError> {
        let args = vec![self.v(var), multiple.to_string()];
        let kernel = pad::pad(&self.kernel, var, multiple)?;
        self.done("pad", args, kernel, ())
    }

    /// [`peel`](peel::peel).
    pub fn peel(&mut self, var: VarId, iterations: i64) -> Result<Option<VarId>, ScheduleError> {
        let args = vec![self.v(var), iterations.to_string()];
        let (kernel, out) = peel::peel(&self.kernel, var, iterations)?;
        self.done("peel", args, kernel, out)
    }

    /// [`cache_read`](cache_read::cache_read).
    pub fn cache_read(
        &mut self,
        buffer: BufferId,
        scope: Scope,
        readers: &[BufferId],
    ) -> Result<BufferId, ScheduleError> {
        let readers_text: Vec<String> = readers.iter().map(|r| self.b(*r)).collect();
        let args = vec![self.b(buffer), scope.name().to_string(), format!("[{}]", readers_text.join(", "))];
        self.apply_uninlined("cache_read", args, |k| cache_read::cache_read(k, buffer, scope, readers))
    }

    /// [`cache_write`](cache_write::cache_write).
    pub fn cache_write(&mut self, stage: BufferId, scope: Scope) -> Result<BufferId, ScheduleError> {
        let args = vec![self.b(stage), scope.name().to_string()];
        self.apply_uninlined("cache_write", args, |k| cache_write::cache_write(k, stage, scope))
    }

    /// [`cache_read_at`](cache_read_at::cache_read_at).
    pub fn cache_read_at(&mut self, buffer: BufferId, at: VarId, scope: Scope) -> Result<BufferId, ScheduleError> {
        let args = vec![self.b(buffer), self.v(at), scope.name().to_string()];
        let (kernel, out) = cache_read_at::cache_read_at(&self.kernel, buffer, at, scope)?;
        self.done("cache_read_at", args, kernel, out)
    }

    /// [`cache_write_at`](cache_write_at::cache_write_at).
    pub fn cache_write_at(
        &mut self,
        stage: BufferId,
        at: VarId,
        scope: Scope,
    ) -> Result<(BufferId, Vec<VarId>), ScheduleError> {
        let args = vec![self.b(stage), self.v(at), scope.name().to_string()];
        let (kernel, buffer, loops) = cache_write_at::cache_write_at(&self.kernel, stage, at, scope)?;
        self.done("cache_write_at", args, kernel, (buffer, loops))
    }

    /// [`compute_at`](compute_at::compute_at).
    pub fn compute_at(&mut self, stage: BufferId, at: VarId) -> Result<(), ScheduleError> {
        let args = vec![self.b(stage), self.v(at)];
        let kernel = compute_at::compute_at(&self.kernel, stage, at)?;
        self.done("compute_at", args, kernel, ())
    }

    /// [`compute_inline`](compute_inline::compute_inline). As in a schedule language, a stage that was inlined can still
    /// be cached by the next `cache_read`s, which then copy the inlined values: they are read from the stage as it was.
    pub fn compute_inline(&mut self, stage: BufferId) -> Result<(), ScheduleError> {
        let args = vec![self.b(stage)];
        let kernel = compute_inline::compute_inline(&self.kernel, stage)?;
        let (before, mut inlined) = match self.uninlined.take() {
            Some(u) => (u.kernel, u.stages),
            None => (self.kernel.clone(), vec![]),
        };
        inlined.push(stage);
        self.done("compute_inline", args, kernel, ())?;
        self.uninlined = Some(Uninlined { kernel: before, stages: inlined });
        Ok(())
    }

    /// [`set_scope`](set_scope::set_scope).
    pub fn set_scope(&mut self, buffer: BufferId, scope: Scope) -> Result<(), ScheduleError> {
        let args = vec![self.b(buffer), scope.name().to_string()];
        let kernel = set_scope::set_scope(&self.kernel, buffer, scope)?;
        self.done("set_scope", args, kernel, ())
    }

    /// [`transform_layout`](transform_layout::transform_layout).
    pub fn transform_layout(
        &mut self,
        buffer: BufferId,
        layout: &[LayoutDim],
    ) -> Result<Option<Kernel>, ScheduleError> {
        let dims: Vec<String> = layout
            .iter()
            .map(|d| match (d.weight, d.extent) {
                (1, None) => format!("{}", d.dim),
                (w, None) => format!("{}/{w}", d.dim),
                (1, Some(n)) => format!("{}%{n}", d.dim),
                (w, Some(n)) => format!("{}/{w}%{n}", d.dim),
            })
            .collect();
        let args = vec![self.b(buffer), format!("[{}]", dims.join(", "))];
        let (kernel, out) = transform_layout::transform_layout(&self.kernel, buffer, layout)?;
        self.done("transform_layout", args, kernel, out)
    }

    /// [`branch`](branch::branch).
    pub fn branch(&mut self, stage: BufferId) -> Result<(), ScheduleError> {
        let (args, kernel) = (vec![self.b(stage)], branch::branch(&self.kernel, stage)?);
        self.done("branch", args, kernel, ())
    }

    /// [`rfactor`](rfactor::rfactor).
    pub fn rfactor(&mut self, stage: BufferId, reduce_loop: VarId) -> Result<BufferId, ScheduleError> {
        let args = vec![self.b(stage), self.v(reduce_loop)];
        let (kernel, out) = rfactor::rfactor(&self.kernel, stage, reduce_loop)?;
        self.done("rfactor", args, kernel, out)
    }

    /// [`tensorize`](tensorize::tensorize).
    pub fn tensorize(&mut self, var: VarId, intrinsic: &Intrinsic) -> Result<(), ScheduleError> {
        let args = vec![self.v(var), intrinsic.name().to_string()];
        let kernel = tensorize::tensorize(&self.kernel, var, intrinsic)?;
        self.done("tensorize", args, kernel, ())
    }

    /// [`storage_align`](storage_align::storage_align).
    pub fn storage_align(
        &mut self,
        buffer: BufferId,
        dim: usize,
        factor: i64,
        offset: i64,
    ) -> Result<(), ScheduleError> {
        let args = vec![self.b(buffer), dim.to_string(), factor.to_string(), offset.to_string()];
        let kernel = storage_align::storage_align(&self.kernel, buffer, dim, factor, offset)?;
        self.done("storage_align", args, kernel, ())
    }

    /// [`pipeline`](pipeline::pipeline).
    pub fn pipeline(&mut self, var: VarId, stages: i64) -> Result<(), ScheduleError> {
        let args = vec![self.v(var), stages.to_string()];
        let kernel = pipeline::pipeline(&self.kernel, var, stages)?;
        self.done("pipeline", args, kernel, ())
    }

    /// Applies a step that only adds a cache to the kernel as it was before the last inlined stages vanished, and
    /// inlines them again: so a stage that was just inlined can be cached.
    fn apply_uninlined<T>(
        &mut self,
        name: &'static str,
        args: Vec<String>,
        step: impl Fn(&Kernel) -> Result<(Kernel, T), ScheduleError>,
    ) -> Result<T, ScheduleError> {
        let Some(Uninlined { kernel, stages }) = self.uninlined.take() else {
            let (kernel, out) = step(&self.kernel)?;
            return self.done(name, args, kernel, out);
        };
        let (before, out) = match step(&kernel) {
            Ok(done) => done,
            Err(e) => {
                self.uninlined = Some(Uninlined { kernel, stages });
                return Err(e);
            }
        };
        let mut after = before.clone();
        for stage in &stages {
            after = compute_inline::compute_inline(&after, *stage)?;
        }
        let out = self.done(name, args, after, out)?;
        self.uninlined = Some(Uninlined { kernel: before, stages });
        Ok(out)
    }

    fn b(&self, buffer: BufferId) -> String {
        self.kernel.buffers.get(buffer.0 as usize).map_or_else(|| format!("#{}", buffer.0), |b| b.name.clone())
    }

    fn v(&self, var: VarId) -> String {
        self.kernel.vars.get(var.0 as usize).map_or_else(|| format!("#{}", var.0), |v| v.name.clone())
    }

    fn vs(&self, vars: &[VarId]) -> String {
        let names: Vec<String> = vars.iter().map(|v| self.v(*v)).collect();
        format!("[{}]", names.join(", "))
    }

    fn done<T>(&mut self, name: &'static str, args: Vec<String>, kernel: Kernel, out: T) -> Result<T, ScheduleError> {
        // Any step but those that restore it makes the kernel before inlining a thing of the past.
        self.uninlined = None;
        self.trace.push(Step { name, args, kernel: kernel.clone() });
        self.kernel = kernel;
        Ok(out)
    }
}
