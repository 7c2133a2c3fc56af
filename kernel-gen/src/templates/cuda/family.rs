//! The form that families of kernels share: problem, knobs, plan, fits, cost, kernel.
//!
//! A [`Family`] says each of these steps once. One [`Template`] for all families makes the rest of them: which workloads it
//! applies to, the space, the default config, and the checks before a kernel is built. Knobs are declared once, by [`knobs!`]:
//! the space, the reading of a config and its writing follow.

use super::requires::device;
use super::search::{descend, descend_from, fastest, least, with_costs};
use crate::ir::Kernel;
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, Space, SpaceBuilder, Value};
use crate::target::{Cuda, Target};
use crate::templates::{Pack, Scheduled, Template, TemplateError};
use crate::workload::Workload;
use crate::workload::special::Reach;

/// A workload on a device, with what a family reads of it.
#[derive(Clone, Copy)]
pub struct Case<'a, P> {
    /// The workload.
    pub w: &'a Workload,
    /// The device's data.
    pub gpu: &'a Cuda,
    /// What [`Family::problem`] made of the workload.
    pub problem: P,
}

/// How a default config is chosen.
pub enum Search<K> {
    /// The cheapest config of the whole space.
    All,
    /// The cheapest config that coordinate descent finds from these knobs and from as many of the cheapest drawn configs.
    Descent(K, usize),
    /// The cheapest of these knobs.
    Among(Vec<K>),
    /// These knobs, where no others of a small space cost clearly less.
    Near(K),
}

impl<K> Search<K> {
    /// Descents from `start` and from as many drawn configs as find what a space of few valleys has.
    pub fn from(start: K) -> Search<K> {
        Search::Descent(start, 4)
    }
}

/// What a block takes of a multiprocessor, as far as it can be told beforehand: for limits and for the predicted time.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Threads of a block.
    pub threads: i64,
    /// Registers of a thread, above which it spills; 0 where threads share them out themselves, or where few are enough.
    pub registers: i64,
    /// Bytes of shared memory of a block.
    pub shared_bytes: i64,
}

impl Needs {
    /// Whether a device has them.
    fn fit(&self, gpu: &Cuda) -> bool {
        self.threads <= gpu.threads_per_block
            && self.shared_bytes <= gpu.shared_per_block_optin
            && self.registers <= gpu.registers_per_thread
            && self.registers * self.threads <= gpu.registers_per_block
    }

    /// Blocks that a multiprocessor holds at the same time.
    pub fn resident(&self, gpu: &Cuda) -> i64 {
        gpu.blocks_resident(self.threads, self.registers, self.shared_bytes)
    }
}

/// A problem cut up as a config says.
pub trait Plan {
    /// What a block needs.
    fn needs(&self) -> Needs;

    /// Whether the knobs suit each other, the problem and the device, and no part of the plan is for nothing.
    fn suits(&self, gpu: &Cuda) -> bool;

    /// Whether a device can run it without spilling, and no part of it is for nothing.
    fn fits(&self, gpu: &Cuda) -> bool {
        self.suits(gpu) && self.needs().fit(gpu)
    }

    /// Predicted microseconds; infinite where not even one block fits.
    fn us(&self, w: &Workload, gpu: &Cuda) -> f64;

    /// Leaves the values of a knob that are of use, where this is the plan of [`Family::smallest`].
    fn narrow(&self, gpu: &Cuda, knob: &str, values: &mut Vec<Value>) {
        let _ = (gpu, knob, values);
    }
}

/// A family of kernels: see the module's text. Its steps are pure functions.
pub trait Family: Send + Sync + 'static {
    /// [`Template::name`].
    const NAME: &'static str;
    /// [`Template::version`].
    const VERSION: u32 = 1;
    /// What [`Plan::fits`] requires, as a refused config is told; empty where every config fits.
    const LIMITS: &'static str = "tiles divide; registers and shared memory suffice, and all have something to do";
    /// [`Template::takes_integers`].
    const TAKES_INTEGERS: bool = false;
    /// [`Template::takes_f8`].
    const TAKES_F8: bool = false;
    /// [`Template::longest_early_us`].
    const LONGEST_EARLY_US: f64 = 4.0;
    /// What [`smallest`](Family::smallest) is for every problem, if it does not depend on that.
    const SMALLEST: Option<Self::Knobs> = None;

    /// What the family reads of a workload.
    type Problem: Copy + Send + Sync + 'static;
    /// A config with a type.
    type Knobs: Knobs;
    /// The problem cut up by the knobs.
    type Plan<'a>: Plan;

    /// The problem, or the reason why the family does not take the workload, as half a sentence.
    fn problem(w: &Workload, t: &Target) -> Result<Self::Problem, String>;

    /// Knobs that fit if any do; none where the family has its own [`check`](Family::check).
    fn smallest(case: &Case<'_, Self::Problem>) -> Option<Self::Knobs> {
        let _ = case;
        Self::SMALLEST
    }

    /// Whether some config may fit; otherwise the reason, as half a sentence.
    fn check(case: &Case<'_, Self::Problem>) -> Result<(), String> {
        let fits = |knobs| Self::plan(case, knobs).is_ok_and(|plan| plan.fits(case.gpu));
        if Self::smallest(case).is_none_or(fits) { Ok(()) } else { Err(Self::too_large(case)) }
    }

    /// Why not even [`smallest`](Family::smallest) fits, as half a sentence.
    fn too_large(case: &Case<'_, Self::Problem>) -> String {
        let _ = case;
        "no tile fits the device".into()
    }

    /// Narrows the declared values of a knob to those that are of use for the problem. A knob without values is left out.
    fn narrow(case: &Case<'_, Self::Problem>, knob: &str, values: &mut Vec<Value>) {
        let smallest = Self::smallest(case).and_then(|knobs| Self::plan(case, knobs).ok());
        smallest.into_iter().for_each(|plan| plan.narrow(case.gpu, knob, values));
    }

    /// The knobs with their values.
    fn space(case: &Case<'_, Self::Problem>, space: SpaceBuilder) -> SpaceBuilder {
        Self::Knobs::space(space, &|knob, values| Self::narrow(case, knob, values))
    }

    /// The problem cut up by the knobs, or why they cannot cut it.
    fn plan<'a>(case: &Case<'a, Self::Problem>, knobs: Self::Knobs) -> Result<Self::Plan<'a>, TemplateError>;

    /// How the default config is chosen.
    fn search(case: &Case<'_, Self::Problem>) -> Search<Self::Knobs> {
        Self::smallest(case).map_or(Search::All, Search::from)
    }

    /// [`Template::reach`].
    fn beside(w: &Workload, config: &Config) -> Reach {
        let _ = (w, config);
        Reach::Own
    }

    /// The kernel of a plan that fits.
    fn kernel<'a>(case: &Case<'a, Self::Problem>, plan: &Self::Plan<'a>) -> Result<Scheduled, TemplateError>;
}

/// The workload as the family reads it.
fn case<'a, F: Family>(w: &'a Workload, t: &'a Target) -> Result<Case<'a, F::Problem>, TemplateError> {
    let problem = F::problem(w, t).map_err(TemplateError::Limit)?;
    Ok(Case { w, gpu: device(t).map_err(TemplateError::Limit)?, problem })
}

/// The plan of a config.
fn plan<'a, F: Family>(case: &Case<'a, F::Problem>, config: &Config) -> Result<F::Plan<'a>, TemplateError> {
    F::plan(case, F::Knobs::of(config)?)
}

/// The space of a case, of configs that fit.
fn space<F: Family>(case: &Case<'_, F::Problem>) -> Result<Space, TemplateError> {
    let (w, gpu, problem) = (case.w.clone(), case.gpu.clone(), case.problem);
    let fits = move |config: &Config| {
        let case = Case { w: &w, gpu: &gpu, problem };
        plan::<F>(&case, config).is_ok_and(|plan| plan.fits(&gpu))
    };
    let space = F::space(case, Space::builder());
    Ok(if F::LIMITS.is_empty() { space } else { space.filter(F::LIMITS, fits) }.build()?)
}

/// A config without the knobs that a space left out.
fn written(space: &Space, config: Config) -> Config {
    let known = config.entries().filter(|(knob, _)| space.find_knob(knob).is_some());
    known.fold(Config::new(), |config, (knob, value)| config.with(knob, value.clone()))
}

/// What a config of a case costs.
fn cost<F: Family>(case: &Case<'_, F::Problem>, config: &Config) -> f64 {
    plan::<F>(case, config).map_or(f64::INFINITY, |plan| plan.us(case.w, case.gpu))
}

impl<F: Family> Template for F {
    fn name(&self) -> &str {
        F::NAME
    }

    fn version(&self) -> u32 {
        F::VERSION
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        let (problem, gpu) = (F::problem(w, t)?, device(t)?);
        F::check(&Case { w, gpu, problem })
    }

    fn takes_integers(&self) -> bool {
        F::TAKES_INTEGERS
    }

    fn takes_f8(&self) -> bool {
        F::TAKES_F8
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        space::<F>(&case::<F>(w, t)?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let case = case::<F>(w, t)?;
        let cost = |config: &Config| {
            let plan = plan::<F>(&case, config).ok();
            let fits = F::LIMITS.is_empty() || plan.as_ref().is_some_and(|plan| plan.fits(case.gpu));
            fits.then(|| plan.map_or(f64::INFINITY, |plan| plan.us(w, case.gpu)))
        };
        match F::search(&case) {
            Search::All => fastest(with_costs(&space::<F>(&case)?, &cost)),
            Search::Near(start) => Ok(least(&space::<F>(&case)?, &start.config(), &cost)?),
            Search::Descent(start, 0) => Ok(descend(&space::<F>(&case)?, &start.config(), &cost)?),
            Search::Descent(start, descents) => {
                Ok(descend_from(&space::<F>(&case)?, &start.config(), descents, &cost)?)
            }
            Search::Among(knobs) => {
                let space = space::<F>(&case)?;
                let configs = knobs.iter().map(|knobs| written(&space, knobs.config()));
                let known = configs.filter(|config| space.index_of(config).is_ok());
                fastest(known.filter_map(|config| Some((cost(&config)?, config))))
            }
        }
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        case::<F>(w, t).map_or(f64::INFINITY, |case| cost::<F>(&case, config))
    }

    fn longest_early_us(&self) -> f64 {
        F::LONGEST_EARLY_US
    }

    fn reach(&self, w: &Workload, config: &Config) -> Reach {
        F::beside(w, config)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let case = case::<F>(w, t)?;
        // A value that no knob has is an error that names the knob and its values. Only then is anything computed with it.
        F::space(&case, Space::builder()).build()?.index_of(config)?;
        let plan = plan::<F>(&case, config)?;
        if !F::LIMITS.is_empty() && !plan.fits(case.gpu) {
            return Err(TemplateError::Limit(format!("{config} does not fit {}", t.name)));
        }
        F::kernel(&case, &plan)
    }
}

/// A kernel that is built, not scheduled, with what packs its parameters.
pub fn built(kernel: Kernel, packs: impl IntoIterator<Item = Pack>) -> Result<Scheduled, TemplateError> {
    Ok(Scheduled { schedule: Schedule::new(kernel), packs: packs.into_iter().collect() })
}

/// A config with a type; [`knobs!`] makes them.
pub trait Knobs: Clone + 'static {
    /// Reads a config. An error names the knob and, for words and switches, the values that it takes.
    fn of(config: &Config) -> Result<Self, ConfigError>;

    /// The config that says these knobs.
    fn config(&self) -> Config;

    /// The knobs in the order of their declaration, with what `narrow` leaves of their values.
    fn space(space: SpaceBuilder, narrow: &dyn Fn(&str, &mut Vec<Value>)) -> SpaceBuilder;
}

/// Knobs that are splits of a problem's extents: [`Family::space`] declares them, and [`Family::plan`] reads them.
impl Knobs for Config {
    fn of(config: &Config) -> Result<Config, ConfigError> {
        Ok(config.clone())
    }

    fn config(&self) -> Config {
        self.clone()
    }

    fn space(space: SpaceBuilder, _: &dyn Fn(&str, &mut Vec<Value>)) -> SpaceBuilder {
        space
    }
}

/// The knobs of one, and behind them those of the other.
impl<A: Knobs, B: Knobs> Knobs for (A, B) {
    fn of(config: &Config) -> Result<(A, B), ConfigError> {
        Ok((A::of(config)?, B::of(config)?))
    }

    fn config(&self) -> Config {
        self.1.config().entries().fold(self.0.config(), |config, (knob, value)| config.with(knob, value.clone()))
    }

    fn space(space: SpaceBuilder, narrow: &dyn Fn(&str, &mut Vec<Value>)) -> SpaceBuilder {
        B::space(A::space(space, narrow), narrow)
    }
}

/// What a field of [`knobs!`] may be: one knob, or one knob for each element of an array.
pub trait Field: Copy {
    /// Reads the knobs of the field. An error names the knob and its values.
    fn read(config: &Config, knobs: &[&str]) -> Result<Self, ConfigError>;

    /// The config with the knobs of the field.
    fn write(&self, config: Config, knobs: &[&str]) -> Config;
}

impl Field for i64 {
    fn read(config: &Config, knobs: &[&str]) -> Result<i64, ConfigError> {
        config.int(knobs[0])
    }

    fn write(&self, config: Config, knobs: &[&str]) -> Config {
        config.with(knobs[0], *self)
    }
}

impl<const N: usize> Field for [i64; N] {
    fn read(config: &Config, knobs: &[&str]) -> Result<[i64; N], ConfigError> {
        let mut out = [0; N];
        for (value, knob) in out.iter_mut().zip(knobs) {
            *value = config.int(knob)?;
        }
        Ok(out)
    }

    fn write(&self, config: Config, knobs: &[&str]) -> Config {
        knobs.iter().zip(self).fold(config, |config, (knob, value)| config.with(knob, *value))
    }
}

/// A switch is 0 or 1.
impl Field for bool {
    fn read(config: &Config, knobs: &[&str]) -> Result<bool, ConfigError> {
        match config.int(knobs[0])? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(unknown(config, knobs[0], &["0", "1"])),
        }
    }

    fn write(&self, config: Config, knobs: &[&str]) -> Config {
        config.with(knobs[0], i64::from(*self))
    }
}

/// The error that a knob has none of its values.
pub fn unknown(config: &Config, knob: &str, known: &[&str]) -> ConfigError {
    let (allowed, value) = (format!("one of {}", known.join(", ")), config.value(knob).cloned());
    value.map_or_else(|missing| missing, |value| ConfigError::NotInSpace { knob: knob.into(), value, allowed })
}

/// Declares the knobs of a family as a type: for each field its meaning and, for each knob of it, the name and the values.
/// Gives the type [`Knobs`]. A field behind `or` has that value where a space left its knob out; fields below `beside` are no
/// knobs: what cuts up the problem sets them.
#[macro_export]
macro_rules! knobs {
    (
        $(#[$meta:meta])* struct $name:ident {
            $( $(#[$doc:meta])* $seen:vis $field:ident: $type:ty = $( $knob:literal in $values:expr ),+ $(, or $absent:expr)?; )*
        }
        $( beside { $( $(#[$beside_doc:meta])* $beside_seen:vis $beside:ident: $beside_type:ty = $beside_value:expr; )+ } )?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $name {
            $( $(#[$doc])* $seen $field: $type, )*
            $( $( $(#[$beside_doc])* $beside_seen $beside: $beside_type, )+ )?
        }

        impl $crate::templates::cuda::blocks::Knobs for $name {
            fn of(config: &$crate::space::Config) -> Result<$name, $crate::space::ConfigError> {
                use $crate::templates::cuda::blocks::Field;
                $(
                    let absent: &[$type] = &[$($absent)?];
                    let $field = match absent {
                        [absent, ..] if config.find([$($knob),+][0]).is_none() => *absent,
                        _ => Field::read(config, &[$($knob),+])?,
                    };
                )*
                Ok($name { $( $field, )* $( $( $beside: $beside_value, )+ )? })
            }

            fn config(&self) -> $crate::space::Config {
                use $crate::templates::cuda::blocks::Field;
                let config = $crate::space::Config::new();
                $( let config = self.$field.write(config, &[$($knob),+]); )*
                config
            }

            fn space(
                space: $crate::space::SpaceBuilder,
                narrow: &dyn Fn(&str, &mut Vec<$crate::space::Value>),
            ) -> $crate::space::SpaceBuilder {
                $( $(
                    let mut values = $values.into_iter().map($crate::space::Value::from).collect();
                    narrow($knob, &mut values);
                    let space = if values.is_empty() { space } else { space.knob($knob, values) };
                )+ )*
                space
            }
        }
    };
}

/// Declares the words that a knob takes.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])* enum $name:ident { $( $(#[$doc:meta])* $variant:ident = $word:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name {
            $( $(#[$doc])* $variant, )+
        }

        impl $name {
            pub(crate) const ALL: &'static [$name] = &[$( $name::$variant ),+];

            /// The word in a config.
            pub(crate) fn name(self) -> &'static str {
                match self { $( $name::$variant => $word, )+ }
            }
        }

        impl From<&$name> for $crate::space::Value {
            fn from(choice: &$name) -> $crate::space::Value {
                choice.name().into()
            }
        }

        impl $crate::templates::cuda::blocks::Field for $name {
            fn read(
                config: &$crate::space::Config,
                knobs: &[&str],
            ) -> Result<$name, $crate::space::ConfigError> {
                match config.str(knobs[0])? {
                    $( $word => Ok($name::$variant), )+
                    _ => Err($crate::templates::cuda::blocks::unknown(config, knobs[0], &[$($word),+])),
                }
            }

            fn write(&self, config: $crate::space::Config, knobs: &[&str]) -> $crate::space::Config {
                config.with(knobs[0], self.name())
            }
        }
    };
}

pub(super) use crate::{knobs, words};

words! {
    /// How sums get to the output.
    enum Store {
        /// Pairs, from the registers.
        Direct = "direct",
        /// Rows by way of shared memory, 16 bytes at a time where they divide.
        Rows = "rows",
    }
}

/// Numbers as the values of a knob.
pub(super) fn numbers(numbers: impl IntoIterator<Item = i64>) -> Vec<Value> {
    numbers.into_iter().map(Value::from).collect()
}

/// Leaves the values of a knob that are at most `most`.
pub(super) fn up_to(values: &mut Vec<Value>, most: i64) {
    values.retain(|value| matches!(value, Value::Int(n) if *n <= most));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Axis, DType, LoopKind, Scope, Stmt};
    use crate::templates::Registry;
    use crate::templates::cuda::{
        attention, columns, depthwise_direct, elements, gemv, mma, pointwise, rows, simt, split, splitk, stem, wgmma,
        winograd,
    };
    use crate::workload::row_wise::RowFunction;
    use crate::workload::{Conv2d, ConvLayout, DepthwisePointwise, Matmul, RowWise};
    use std::collections::BTreeSet;

    /// The template for CUDA that is no family: its knobs are splits of the loops that a kernel has.
    const OTHER: &str = "sketch_cuda";

    /// Workloads of which every family takes one.
    fn workloads() -> Vec<Workload> {
        let conv = |layout, n, ci, co| Conv2d { layout, ..Conv2d::nchw(n, ci, 16, 16, co, 3, 1, 1) };
        let pointwise = |layout| Conv2d { kh: 1, kw: 1, padding: [0; 4], ..conv(layout, 16, 64, 64) };
        let depthwise = Conv2d::nchw(1, 32, 16, 16, 32, 3, 1, 1).depthwise(1);
        let (nchw, nhwc, hwcn) = (ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn);
        let f32 =
            [conv(nchw, 64, 64, 64), conv(nhwc, 16, 64, 64), conv(hwcn, 16, 64, 64), depthwise].map(Workload::f32);
        let tiled = conv(ConvLayout::NhwcNc(16), 16, 64, 64);
        let f16 = [
            conv(nchw, 64, 64, 64),
            conv(nhwc, 1, 64, 64),
            conv(nhwc, 1, 4, 64),
            pointwise(nhwc),
            pointwise(nchw),
            tiled,
        ];
        let f16 = f16.map(|c| Workload::f32(c).with_dtype(DType::F16));
        let products = [Matmul::new(1, 64, 256), Matmul::new(256, 256, 256)].map(Workload::f32);
        let half = Workload::f32(Matmul::new(256, 64, 256)).with_dtype(DType::F16);
        let pair = Workload::f32(DepthwisePointwise::new(depthwise, 64));
        let rows = Workload::f32(RowWise { rows: 100, columns: 384, function: RowFunction::Softmax });
        let heads = Workload::from_key("attention-f16-b1h12m197n197d64v64-g12-full").expect("a key");
        let heads = [heads.clone(), heads.with_dtype(DType::F32)];
        let sums = Workload::from_key("add-f32-a4x64x56x56-b1x64x1x1").expect("a key");
        let mean = Workload::from_key("reduce_mean-f16-1x3136x144-r0x1x0").expect("a key");
        let transposed = Workload::from_key("conv_transpose2d-f32-n4c64o64-16x16-k4x4-s2x2-p1.1.1.1-d1x1-e0x0-g1");
        let transposed = transposed.expect("a key");
        let both = [transposed.clone(), transposed.with_dtype(DType::F16)];
        [
            f32.to_vec(),
            f16.to_vec(),
            products.to_vec(),
            vec![half, pair, rows, sums, mean],
            heads.to_vec(),
            both.to_vec(),
            vec![Workload::from_key("matmul-i8i8.i32-m256n256k256-nt").expect("a key")],
        ]
        .concat()
    }

    #[test]
    fn an_unknown_value_is_refused_by_every_family() {
        let target = Target::find("sm_90a").expect("a built-in target");
        let registry = Registry::builtin();
        let mut seen = BTreeSet::new();
        for w in workloads() {
            for template in registry.applicable(&w, target).filter(|t| t.name() != OTHER) {
                if !seen.insert(template.name().to_string()) {
                    continue;
                }
                let default = template.default_config(&w, target).expect("it applies");
                let space = template.space(&w, target).expect("it applies");
                for (knob, value) in default.entries() {
                    for unknown in [Value::Int(0), Value::Int(-7), "no_such_word".into()] {
                        let config = default.clone().with(knob, unknown.clone());
                        if space.find_knob(knob).is_some_and(|knob| knob.rank_of(&unknown).is_some()) {
                            continue;
                        }
                        let error = template.schedule(&w, target, &config).expect_err("it is refused").to_string();
                        assert!(error.contains(&format!("`{knob}`")), "{} {config}: {error}", template.name());
                        // Values of another kind are told which kind it is.
                        if unknown.kind() == value.kind() {
                            assert!(error.contains(&value.to_string()), "{} {config}: {error}", template.name());
                        }
                    }
                }
                let more = default.clone().with("no_such_knob", 1);
                assert!(template.schedule(&w, target, &more).is_err(), "{}", template.name());
            }
        }
        let cuda = registry.iter().map(|t| t.name()).skip_while(|name| *name != "wgmma_gemm");
        let missing: Vec<&str> = cuda.filter(|name| !seen.contains(*name) && *name != OTHER).collect();
        assert!(missing.is_empty(), "no workload for {missing:?}");
    }

    /// Threads of a block, and bytes of its shared memory, in each launch of a kernel.
    fn launches(kernel: &Kernel) -> Vec<[i64; 2]> {
        let launches = kernel.body.iter().map(|launch| {
            let (mut extents, mut bytes) = ([1; 3], 0);
            launch.walk(&mut |s| match s {
                Stmt::For(l) => {
                    if let LoopKind::Thread(axis) = l.kind {
                        let axis = [Axis::X, Axis::Y, Axis::Z].iter().position(|a| *a == axis).expect("three axes");
                        extents[axis] = l.extent.max(extents[axis]);
                    }
                }
                Stmt::Alloc(b) if matches!(kernel.buffer(*b).scope, Scope::Shared | Scope::Mbarrier) => {
                    bytes += kernel.buffer(*b).extent_bytes();
                }
                _ => {}
            });
            [extents.iter().product::<i64>(), bytes]
        });
        launches.collect()
    }

    /// Checks configs of the family for the workloads that it takes, and says for how many.
    fn check_needs<F: Family>(template: &F) -> usize {
        let target = Target::find("sm_90a").expect("a built-in target");
        let mut checked = 0;
        let admitting: &dyn Template = template;
        for w in workloads().iter().filter(|w| admitting.admits(w, target).is_ok()) {
            let case = case::<F>(w, target).expect("it applies");
            let space = space::<F>(&case).expect("it applies");
            for (_, config) in space.sample(7).within(20_000).take(8) {
                let made = template.schedule(w, target, &config).expect("it is in the space");
                let needs = plan::<F>(&case, &config).expect("it is in the space").needs();
                let launches = launches(&made.schedule.kernel);
                let same = launches.iter().any(|[threads, _]| *threads == needs.threads);
                let enough = launches.iter().all(|[_, bytes]| *bytes <= needs.shared_bytes);
                assert!(same && enough, "{} {config}: {launches:?} {needs:?}", F::NAME);
                checked += 1;
            }
        }
        checked
    }

    #[test]
    fn plans_need_what_their_kernels_have() {
        let checked = [
            check_needs(&wgmma::WgmmaGemm),
            check_needs(&wgmma::WgmmaConv2d),
            check_needs(&wgmma::WgmmaWindow),
            check_needs(&mma::MmaGemm),
            check_needs(&mma::MmaConv2d),
            check_needs(&mma::MmaPlanes),
            check_needs(&split::SplitProduct),
            check_needs(&split::SplitBf16),
            check_needs(&splitk::SplitkDirect),
            check_needs(&splitk::SplitkPair),
            check_needs(&winograd::fused::WinogradFused),
            check_needs(&pointwise::PointwiseRows),
            check_needs(&stem::Conv2dStem),
            check_needs(&simt::SimtGemm),
            check_needs(&simt::SimtIntegers),
            check_needs(&simt::SimtConv2d),
            check_needs(&simt::SimtPlanes),
            check_needs(&gemv::Gemv),
            check_needs(&attention::AttentionMma),
            check_needs(&attention::AttentionSimt),
            check_needs(&attention::AttentionWgmma),
            check_needs(&rows::Rows),
            check_needs(&columns::Columns),
            check_needs(&elements::ElementsCuda),
            check_needs(&depthwise_direct::DepthwiseDirect),
        ];
        assert!(checked.iter().all(|n| *n >= 5), "{checked:?}");
    }
}
