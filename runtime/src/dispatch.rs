//! The tables that generated code is made of, and the launch that reads them.
//!
//! A *function* of the spec has *entries*, one a workload; an entry has *variants*, one an instruction set level; a
//! variant is a *program*: phases that run one after the other, each split over the workers of the device.
//!
//! Launching is safe because a table cannot be made, changed or taken apart in safe code: the fields are private, and
//! generated code builds tables with the `unsafe` constructors in the hidden module `generated`. A launch compares its
//! arguments with the table once, and devices take nothing but a launch that was compared ([`Checked`]).

mod arg;
mod cpu;
mod function;
mod scalar;

#[cfg(feature = "cuda")]
pub(crate) use arg::check_elements;
pub use arg::{Arg, DynArg};
pub use cpu::Packed;
pub use scalar::Scalar;

use crate::{DType, Device, Error, Isa, Result};
use std::fmt;

/// Most parameters that a kernel can have.
pub const MAX_PARAMS: usize = 12;

/// What a phase calls: the arguments in kernel order, the workspace, the worker's number and the range of the phase's
/// parallel loop to run. Behind [`MAX_PARAMS`] arguments stands how many units the launch has, as an address.
pub type PhaseFn = unsafe fn(args: *const *mut u8, workspace: *mut u8, worker: i64, begin: i64, end: i64);

/// One C function and the extent of its parallel loop.
pub struct Phase {
    pub(crate) func: PhaseFn,
    pub(crate) extent: usize,
    /// How much of that is run, if it depends on the number of units.
    pub(crate) first: Option<First>,
}

impl Phase {
    fn iterations(&self, units: usize) -> usize {
        self.first.map_or(self.extent, |first| first.iterations(units).min(self.extent))
    }
}

/// How many iterations, or clusters of a grid's axis, a launch of `n` units has: `ceil(n * per / of) * times`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct First {
    /// Rows of a unit.
    pub per: usize,
    /// Rows of a tile, not 0.
    pub of: usize,
    /// Iterations of a tile of rows.
    pub times: usize,
}

impl First {
    /// The number for `units` units. The generator's numbers are far from where this would overflow.
    pub(crate) fn iterations(self, units: usize) -> usize {
        (units * self.per).div_ceil(self.of) * self.times
    }
}

/// Of a workload whose arguments say how many *units* a launch has: images, rows, what the first dimension of some parameters
/// holds. The shapes of these are those of the most units.
#[derive(Debug)]
pub struct Units {
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// The parameters, by place.
    pub(crate) params: &'static [usize],
}

/// A pointer that workers may share; who dereferences it answers for the access.
pub struct Pointer<T>(pub *mut T);

// SAFETY: the pointer is plain data; dereferencing it is unsafe wherever it happens.
unsafe impl<T> Sync for Pointer<T> {}

impl<T> Pointer<T> {
    /// The pointer. A method, so that a closure captures the whole and not the bare pointer in it.
    pub fn get(&self) -> *mut T {
        self.0
    }
}

/// Phases with a barrier between each two, and the workspace that they need.
pub struct Program {
    /// Run in this order.
    pub(crate) phases: &'static [Phase],
    /// Bytes that all workers share.
    pub(crate) workspace_bytes: usize,
    /// Bytes that each worker has to itself.
    pub(crate) worker_bytes: usize,
}

/// How a kernel wants one of its parameters: rearranged by a program of two arguments, original and packed.
pub struct Pack {
    /// Which parameter.
    pub(crate) param: usize,
    /// Size of the packed form.
    pub(crate) bytes: usize,
    /// What packs.
    pub(crate) program: Program,
    /// What all that pack in the same way are called; nothing if it is not told.
    pub(crate) name: &'static str,
}

/// Which kernel was chosen, and why. It is for reports: nothing depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The template that made the kernel.
    pub template: &'static str,
    /// The config of the template.
    pub config: &'static str,
    /// Where the config came from, in one word: a record, a model, the analytic fallback.
    pub origin: &'static str,
    /// The same in a sentence: which record, say.
    pub origin_detail: &'static str,
    /// What the record measured or the model expects, in microseconds.
    pub cost_us: Option<f64>,
}

/// The code of a workload for one instruction set level, and where it came from.
pub struct Variant {
    /// The level.
    pub(crate) isa: Isa,
    /// The most units that the kernel is for; 1 where their number does not vary.
    pub(crate) most: usize,
    /// The kernel.
    pub(crate) program: Program,
    /// Parameters that it takes in packed form.
    pub(crate) packs: &'static [Pack],
    /// Why it is this kernel.
    pub(crate) choice: Choice,
    /// The C symbol, which profilers show.
    pub(crate) symbol: &'static str,
}

impl Variant {
    /// The level that it is compiled for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The most units (images, rows) that it is for, where the number of a launch is not known before; else 1.
    pub fn most_units(&self) -> usize {
        self.most
    }

    /// Why it is this kernel.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The C symbol of its first phase, without the phase's number: what profilers show.
    pub fn symbol(&self) -> &'static str {
        self.symbol
    }
}

/// What a kernel does with a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Only reads it.
    Read,
    /// Writes it, and may read what was there.
    Write,
}

/// A parameter of a workload.
#[derive(Debug)]
pub struct Param {
    pub(crate) name: &'static str,
    pub(crate) dtype: DType,
    pub(crate) shape: &'static [usize],
    pub(crate) access: Access,
}

impl Param {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Element type.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub const fn shape(&self) -> &'static [usize] {
        self.shape
    }

    /// Whether it is written.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Number of elements.
    pub const fn elements(&self) -> usize {
        let (mut n, mut i) = (1, 0);
        while i < self.shape.len() {
            n *= self.shape[i];
            i += 1;
        }
        n
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.shape)
    }
}

/// What is said of a workload. It is for messages and reports: nothing depends on it.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The workload's name, which is its module's.
    pub name: &'static str,
    /// The operator in one line.
    pub workload: &'static str,
    /// Floating-point operations of one launch.
    pub flops: u64,
    /// Bytes that one launch must move at least.
    pub bytes: u64,
    /// Why there is no code, if there is none.
    pub no_code: &'static str,
}

/// A workload: what it takes, and the code that there is for it.
pub struct Entry {
    pub(crate) about: About,
    /// Parameters in kernel order.
    pub(crate) params: &'static [Param],
    /// The parameter that `pack_weight` packs.
    pub(crate) weight: Option<usize>,
    /// Present if the number of units varies.
    pub(crate) units: Option<Units>,
    /// The code, best level first, and of one level that for the fewest units first. Empty when none was compiled.
    pub(crate) variants: &'static [Variant],
    /// The code for GPUs, best architecture first; made by `cuda_table!`, so that without the feature `cuda` nothing
    /// of it is compiled in.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "there is none without the feature"))]
    pub(crate) cuda: CudaTable,
}

/// The code of a workload for GPUs.
#[cfg(feature = "cuda")]
pub type CudaTable = &'static [crate::cuda::Variant];
/// The code of a workload for GPUs: none without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
pub type CudaTable = ();

/// A function of the spec with its workloads.
pub struct Function {
    pub(crate) name: &'static str,
    pub(crate) entries: &'static [&'static Entry],
}

impl Function {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its workloads, in the spec's order.
    pub const fn entries(&self) -> &'static [&'static Entry] {
        self.entries
    }
}

/// A launch whose arguments were compared with the entry's parameters: what a device runs. Only [`Entry::launch`] makes it.
pub struct Checked<'a, 'b, D: Device> {
    pub(crate) entry: &'static Entry,
    pub(crate) args: &'a [Arg<'b, D>],
    /// What the kernel takes by value, as [`Scalar::bits`]. Only code for GPUs does.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "CPU kernels take none"))]
    pub(crate) scalars: &'a [u64],
    /// How many units there are; 1 where that does not vary.
    pub(crate) units: usize,
}

/// A weight that was compared with the entry's parameter: what a device packs. Only [`Entry::pack_weight`] makes it.
pub struct CheckedWeight<'b, D: Device> {
    pub(crate) entry: &'static Entry,
    pub(crate) param: usize,
    pub(crate) weight: Arg<'b, D>,
}

impl Entry {
    /// What is said of the workload.
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// Its parameters, in kernel order.
    pub const fn params(&self) -> &'static [Param] {
        self.params
    }

    /// Runs the workload. Arguments come in kernel order; parameters that the kernel wants packed and that are not
    /// are packed into the workspace first. A workload whose output has no elements does nothing.
    pub fn launch<D: Device>(&'static self, dev: &D, args: &[Arg<'_, D>]) -> Result<()> {
        self.launch_with(dev, args, &[])
    }

    /// The same with what the kernel takes by value, as [`Scalar::bits`].
    pub fn launch_with<D: Device>(&'static self, dev: &D, args: &[Arg<'_, D>], scalars: &[u64]) -> Result<()> {
        let units = self.check(args)?;
        if units == 0 || self.params.iter().any(|p| p.access == Access::Write && p.elements() == 0) {
            return Ok(());
        }
        dev.launch(Checked { entry: self, args, scalars, units })
    }

    /// Packs the weight for the code that this device runs. A kernel that wants its weight as it is gets a copy.
    pub fn pack_weight<D: Device>(&'static self, dev: &D, weight: Arg<'_, D>) -> Result<D::Packed> {
        let param = self.weight.expect("only entries with a weight have a function that packs it");
        // Also a packed weight is compared: it is no weight, whoever packed it.
        self.check_buffer(param, &weight, self.most_units())?;
        dev.pack(CheckedWeight { entry: self, param, weight })
    }

    /// The weight in the form that this device's code for this workload takes, if one of these has that: what was packed of the same
    /// weight for other workloads.
    pub fn share_weight<D: Device>(&'static self, dev: &D, packed: &[&D::Packed]) -> Option<D::Packed> {
        packed.iter().find_map(|packed| dev.share(packed, self))
    }

    /// Whether two workloads have weights of one type and size.
    pub(crate) fn same_weight(&self, other: &Entry) -> bool {
        let [own, other] = [self, other].map(|entry| entry.weight.map(|at| &entry.params[at]));
        own.zip(other).is_some_and(|(a, b)| (a.dtype, a.elements()) == (b.dtype, b.elements()))
    }

    /// Holds the arguments against the parameters; what the phases rely on. Gives the number of units.
    fn check<D: Device>(&self, args: &[Arg<'_, D>]) -> Result<usize> {
        assert!(
            args.len() == self.params.len() && args.len() <= MAX_PARAMS,
            "generated code passes one argument a parameter"
        );
        let units = self.count_units(args)?;
        (0..args.len()).try_for_each(|i| self.check_one(i, &args[i], units)).map(|()| units)
    }

    /// The most units of a launch; 1 where their number does not vary.
    pub(crate) fn most_units(&self) -> usize {
        self.units.as_ref().map_or(1, |units| units.most)
    }

    /// How many units the first argument has whose number of them varies.
    fn count_units<D: Device>(&self, args: &[Arg<'_, D>]) -> Result<usize> {
        let Some(Units { least, most, params }) = self.units else { return Ok(1) };
        let Some(&first) = params.first() else { return Ok(most) };
        let (param, elements) = (&self.params[first], args[first].elements);
        let a_unit = param.elements() / most;
        if a_unit == 0 || !elements.is_multiple_of(a_unit) {
            let expected = (param.dtype, param.elements());
            let got = (args[first].dtype, elements);
            return Err(Error::Argument { workload: self.about.name, param: param.name, expected, got });
        }
        match elements / a_unit {
            0 => Ok(0),
            got if (least..=most).contains(&got) => Ok(got),
            got => Err(Error::Units { workload: self.about.name, got, least, most }),
        }
    }

    /// How many elements a parameter has in a launch with `units` units.
    fn elements_of(&self, index: usize, units: usize) -> usize {
        let all = self.params[index].elements();
        match &self.units {
            Some(of) if of.params.contains(&index) => all / of.most * units,
            _ => all,
        }
    }

    fn check_one<D: Device>(&self, index: usize, arg: &Arg<'_, D>, units: usize) -> Result<()> {
        let param = &self.params[index];
        assert!(arg.writable || param.access == Access::Read, "generated code lends outputs mutably");
        if arg.packed.is_some() {
            // Whether it was packed for this entry, the device says.
            assert!(self.weight == Some(index), "generated code passes a packed weight where the weight goes");
            return Ok(());
        }
        self.check_buffer(index, arg, units)
    }

    fn check_buffer<D: Device>(&self, index: usize, arg: &Arg<'_, D>, units: usize) -> Result<()> {
        let param = &self.params[index];
        let (expected, got) = ((param.dtype, self.elements_of(index, units)), (arg.dtype, arg.elements));
        if expected == got {
            Ok(())
        } else {
            Err(Error::Argument { workload: self.about.name, param: param.name, expected, got })
        }
    }

    /// Whether the arguments have the shapes of a launch.
    pub(crate) fn has_shapes<D: Device>(&self, args: &[DynArg<'_, D>]) -> bool {
        let units = self.units.as_ref();
        let varies = |i: usize| units.is_some_and(|units| units.params.contains(&i));
        let number = |i: usize| args[i].shape.first().copied().unwrap_or(0);
        let first = units.and_then(|units| units.params.first()).map(|i| number(*i));
        let in_range = units.is_none_or(|u| first.is_none_or(|n| (u.least..=u.most).contains(&n)));
        let same = |(i, p): (usize, &Param)| match varies(i) {
            true => Some(number(i)) == first && args[i].shape.get(1..) == p.shape.get(1..),
            false => args[i].shape == p.shape,
        };
        in_range && self.params.iter().enumerate().all(same)
    }

    /// Name and shapes, for messages.
    pub fn signature(&self) -> String {
        let shape = |(i, p): (usize, &Param)| match &self.units {
            Some(Units { least, most, params }) if params.contains(&i) => {
                let rest: String = p.shape.iter().skip(1).map(|n| format!(", {n}")).collect();
                format!("{} [{least}..{most}{rest}]", p.name)
            }
            _ => p.to_string(),
        };
        let params: Vec<String> = self.params.iter().enumerate().map(shape).collect();
        format!("{}: {}", self.about.name, params.join(", "))
    }
}

/// Does what the first launch of each entry would do once. Generated code calls it.
pub fn preload<D: Device>(dev: &D, functions: &[&Function]) -> Result<()> {
    functions.iter().flat_map(|f| f.entries).try_for_each(|entry| dev.preload(entry))
}

#[cfg(test)]
mod tests;
