//! The tables that generated code is made of, and the launch that reads them.
//!
//! A *function* of the spec has *entries*, one a workload; an entry has *variants*, one an instruction set level; a
//! variant is a *program*: phases that run one after the other, each split over the workers of the device. These
//! types are public for generated code; everything that could make a launch unsound is said by `unsafe`
//! constructors, so launching is safe.

use crate::arena::AlignedBytes;
use crate::{Cpu, DType, DynView, DynViewMut, Element, Error, Isa, Result};
use std::fmt;
use std::marker::PhantomData;

/// Most parameters that a kernel can have.
pub const MAX_PARAMS: usize = 12;

/// What a phase calls: the arguments in kernel order, the workspace, the worker's number and the range of the phase's
/// parallel loop to run.
pub type PhaseFn = unsafe fn(args: *const *mut u8, workspace: *mut u8, worker: i64, begin: i64, end: i64);

/// One C function and the extent of its parallel loop.
pub struct Phase {
    func: PhaseFn,
    extent: usize,
}

impl Phase {
    /// A phase.
    ///
    /// # Safety
    /// `func`, in a program whose sizes are stated in its [`Program`] and with the arguments that its [`Entry`]
    /// (or [`Pack`]) states, must access only these arguments (writing only those that are not read-only), the
    /// `workspace_bytes` at the start of the workspace and its own worker's `worker_bytes` behind them; and calls for
    /// disjoint parts of `0..extent` with different workers must not race.
    pub const unsafe fn new(func: PhaseFn, extent: usize) -> Phase {
        Phase { func, extent }
    }
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
    pub phases: &'static [Phase],
    /// Bytes that all workers share.
    pub workspace_bytes: usize,
    /// Bytes that each worker has to itself.
    pub worker_bytes: usize,
}

impl Program {
    /// Workspace of a launch on so many workers.
    fn bytes(&self, workers: usize) -> Result<usize> {
        self.worker_bytes
            .checked_mul(workers)
            .and_then(|b| b.checked_add(self.workspace_bytes))
            .ok_or(Error::Workspace { bytes: usize::MAX })
    }

    /// Runs all phases.
    ///
    /// # Safety
    /// `args` and `workspace` must be what [`Phase::new`] promises the functions, for the whole call.
    unsafe fn run(&self, dev: &Cpu, args: &[*mut u8; MAX_PARAMS], workspace: *mut u8) {
        let (args, workspace) = (Pointer(args.as_ptr().cast_mut()), Pointer(workspace));
        for phase in self.phases {
            let func = phase.func;
            dev.split(phase.extent, &|worker, range| {
                let (begin, end) = (range.start as i64, range.end as i64);
                // SAFETY: the caller's promise; `split` gives disjoint ranges to different workers.
                unsafe { func(args.get(), workspace.get(), worker as i64, begin, end) }
            });
        }
    }
}

/// How a kernel wants one of its parameters: rearranged by a program of two arguments, original and packed.
pub struct Pack {
    /// Which parameter.
    pub param: usize,
    /// Size of the packed form.
    pub bytes: usize,
    /// What packs.
    pub program: Program,
}

/// The code of a workload for one instruction set level, and where it came from.
pub struct Variant {
    /// The level.
    pub isa: Isa,
    /// The kernel.
    pub program: Program,
    /// Parameters that it takes in packed form.
    pub packs: &'static [Pack],
    /// The template that made it.
    pub template: &'static str,
    /// The config of the template.
    pub config: &'static str,
    /// Where the config came from, in one word: a record, a model, the analytic fallback.
    pub origin: &'static str,
    /// The same in a sentence: which record, say.
    pub origin_detail: &'static str,
    /// What the record measured or the model expects, in microseconds.
    pub cost_us: Option<f64>,
    /// The C symbol, which profilers show.
    pub symbol: &'static str,
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
    /// Its name.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: &'static [usize],
    /// Whether it is written.
    pub access: Access,
}

impl Param {
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

/// A workload: what it takes, and the code that there is for it.
pub struct Entry {
    /// The workload's name, which is its module's.
    pub name: &'static str,
    /// The operator in one line.
    pub workload: &'static str,
    /// Parameters in kernel order.
    pub params: &'static [Param],
    /// The parameter that `pack_weight` packs.
    pub weight: Option<usize>,
    /// Floating-point operations of one launch.
    pub flops: u64,
    /// Bytes that one launch must move at least.
    pub bytes: u64,
    /// The code, best level first. Empty when none was compiled.
    pub variants: &'static [Variant],
    /// Why `variants` is empty, if it is.
    pub no_code: &'static str,
}

/// A function of the spec with its workloads.
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its workloads, in the spec's order.
    pub entries: &'static [&'static Entry],
}

/// An argument of a launch: a borrowed slice, or a packed weight.
pub struct Arg<'a> {
    pointer: *mut u8,
    dtype: DType,
    elements: usize,
    writable: bool,
    packed: Option<&'a Packed>,
    borrow: PhantomData<&'a mut ()>,
}

impl<'a> Arg<'a> {
    /// Something to read.
    pub fn read<T: Element>(data: &'a [T]) -> Arg<'a> {
        Arg {
            pointer: data.as_ptr().cast_mut().cast(),
            dtype: T::DTYPE,
            elements: data.len(),
            writable: false,
            packed: None,
            borrow: PhantomData,
        }
    }

    /// Something to write.
    pub fn write<T: Element>(data: &'a mut [T]) -> Arg<'a> {
        Arg {
            pointer: data.as_mut_ptr().cast(),
            dtype: T::DTYPE,
            elements: data.len(),
            writable: true,
            packed: None,
            borrow: PhantomData,
        }
    }

    /// A packed weight.
    pub fn packed(packed: &'a Packed) -> Arg<'a> {
        Arg {
            pointer: packed.data.as_ptr(),
            dtype: DType::U8,
            elements: packed.data.len(),
            writable: false,
            packed: Some(packed),
            borrow: PhantomData,
        }
    }
}

/// A weight in the layout that one workload's kernel wants. Made once, used in many launches.
pub struct Packed {
    entry: &'static Entry,
    isa: Isa,
    data: AlignedBytes,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedWeight({} for {}, {} bytes)", self.entry.name, self.isa, self.data.len())
    }
}

/// The next multiple of 64, where the next buffer can start.
fn align(bytes: usize) -> Result<usize> {
    bytes.checked_next_multiple_of(64).ok_or(Error::Workspace { bytes })
}

impl Entry {
    /// The code that a device of this level runs.
    pub fn variant(&self, isa: Isa) -> Result<&'static Variant> {
        self.variants.iter().find(|v| isa.runs(v.isa)).ok_or_else(|| self.no_variant(isa))
    }

    #[cold]
    fn no_variant(&self, device: Isa) -> Error {
        if self.variants.is_empty() {
            return Error::NoCode { workload: self.name, reason: self.no_code };
        }
        Error::NoVariant { workload: self.name, device, built: self.variants.iter().map(|v| v.isa).collect() }
    }

    /// Runs the workload. Arguments come in kernel order; parameters that the kernel wants packed and that are not
    /// are packed into the workspace first.
    pub fn launch(&'static self, dev: &Cpu, args: &[Arg<'_>]) -> Result<()> {
        self.check(args)?;
        let variant = match args.iter().find_map(|a| a.packed) {
            Some(packed) => self.variant_of(packed, dev)?,
            None => self.variant(dev.isa())?,
        };
        if self.params.iter().any(|p| p.access == Access::Write && p.elements() == 0) {
            return Ok(());
        }
        // Workspace: packed parameters, then what the programs need, which run one after the other.
        let workers = dev.threads();
        let mut pack_bytes = 0;
        let mut program_bytes = variant.program.bytes(workers)?;
        let to_pack = || variant.packs.iter().filter(|p| args[p.param].packed.is_none());
        for pack in to_pack() {
            pack_bytes = align(pack.bytes)
                .ok()
                .and_then(|b| b.checked_add(pack_bytes))
                .ok_or(Error::Workspace { bytes: usize::MAX })?;
            program_bytes = program_bytes.max(pack.program.bytes(workers)?);
        }
        let total = pack_bytes.checked_add(program_bytes).ok_or(Error::Workspace { bytes: usize::MAX })?;
        let lease = dev.lease(total)?;
        let mut pointers = [std::ptr::null_mut(); MAX_PARAMS];
        for (pointer, arg) in pointers.iter_mut().zip(args) {
            *pointer = arg.pointer;
        }
        let scratch = lease.as_ptr().wrapping_add(pack_bytes);
        let mut next = lease.as_ptr();
        for pack in to_pack() {
            let mut two = [std::ptr::null_mut(); MAX_PARAMS];
            (two[0], two[1]) = (pointers[pack.param], next);
            // SAFETY: `check` has compared type, length and access of the argument with the entry's parameter; the
            // packed form and the scratch have the sizes that the tables state, within the lease.
            unsafe { pack.program.run(dev, &two, scratch) };
            pointers[pack.param] = next;
            next = next.wrapping_add(align(pack.bytes)?);
        }
        // SAFETY: as above; packed arguments were made by this entry for this variant (`variant_of`).
        unsafe { variant.program.run(dev, &pointers, scratch) };
        Ok(())
    }

    /// Packs the weight for the code that this device runs. A kernel that wants its weight as it is gets a copy.
    pub fn pack_weight(&'static self, dev: &Cpu, weight: Arg<'_>) -> Result<Packed> {
        let param = self.weight.expect("only entries with a weight have a function that packs it");
        self.check_one(param, &weight)?;
        let variant = self.variant(dev.isa())?;
        let bytes = weight.elements * weight.dtype.bytes();
        let data = match variant.packs.iter().find(|p| p.param == param) {
            Some(pack) => {
                let data = AlignedBytes::zeroed(pack.bytes)?;
                let lease = dev.lease(pack.program.bytes(dev.threads())?)?;
                let mut two = [std::ptr::null_mut(); MAX_PARAMS];
                (two[0], two[1]) = (weight.pointer, data.as_ptr());
                // SAFETY: the argument was checked against the parameter; data and lease have the stated sizes.
                unsafe { pack.program.run(dev, &two, lease.as_ptr()) };
                data
            }
            None => {
                let data = AlignedBytes::zeroed(bytes)?;
                // SAFETY: both hold `bytes` bytes, and the new allocation overlaps nothing.
                unsafe { std::ptr::copy_nonoverlapping(weight.pointer, data.as_ptr(), bytes) };
                data
            }
        };
        Ok(Packed { entry: self, isa: variant.isa, data })
    }

    /// The variant that a weight was packed for.
    fn variant_of(&'static self, packed: &Packed, dev: &Cpu) -> Result<&'static Variant> {
        if !std::ptr::eq(packed.entry, self) {
            return Err(Error::ForeignPack { workload: self.name, packed_by: packed.entry.name });
        }
        let variant = self.variants.iter().find(|v| v.isa == packed.isa).filter(|v| dev.isa().runs(v.isa));
        variant.ok_or(Error::PackedFor { workload: self.name, packed: packed.isa, device: dev.isa() })
    }

    /// Holds the arguments against the parameters; what the phases rely on.
    fn check(&self, args: &[Arg<'_>]) -> Result<()> {
        assert!(
            args.len() == self.params.len() && args.len() <= MAX_PARAMS,
            "generated code passes one argument a parameter"
        );
        (0..args.len()).try_for_each(|i| self.check_one(i, &args[i]))
    }

    fn check_one(&self, index: usize, arg: &Arg<'_>) -> Result<()> {
        let param = &self.params[index];
        assert!(arg.writable || param.access == Access::Read, "generated code lends outputs mutably");
        if arg.packed.is_some() {
            assert!(self.weight == Some(index), "generated code passes a packed weight where the weight goes");
            return Ok(());
        }
        let (expected, got) = ((param.dtype, param.elements()), (arg.dtype, arg.elements));
        if expected == got {
            Ok(())
        } else {
            Err(Error::Argument { workload: self.name, param: param.name, expected, got })
        }
    }

    /// Name and shapes, for messages.
    pub fn signature(&self) -> String {
        let params: Vec<String> = self.params.iter().map(Param::to_string).collect();
        format!("{}: {}", self.name, params.join(", "))
    }
}

/// A shape and its data as an argument whose shape has yet to be compared.
pub struct DynArg<'a> {
    shape: &'a [usize],
    arg: Arg<'a>,
}

impl<'a> DynArg<'a> {
    /// Something to read. Data and shape must fit.
    pub fn read<T: Element>(view: DynView<'a, T>) -> Result<DynArg<'a>> {
        check_elements(view.shape, view.data.len())?;
        Ok(DynArg { shape: view.shape, arg: Arg::read(view.data) })
    }

    /// Something to write. Data and shape must fit.
    pub fn write<T: Element>(view: DynViewMut<'a, T>) -> Result<DynArg<'a>> {
        check_elements(view.shape, view.data.len())?;
        Ok(DynArg { shape: view.shape, arg: Arg::write(view.data) })
    }
}

fn check_elements(shape: &[usize], elements: usize) -> Result<()> {
    match shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)) {
        Some(n) if n == elements => Ok(()),
        _ => Err(Error::Length { shape: shape.to_vec(), elements }),
    }
}

impl Function {
    /// Runs the one workload that has the shapes of the arguments. A call whose output has no elements and whose
    /// other extents are declared (an empty batch) does nothing.
    pub fn launch_dyn<const N: usize>(&self, dev: &Cpu, args: [DynArg<'_>; N]) -> Result<()> {
        let fits =
            |entry: &Entry| entry.params.len() == N && entry.params.iter().zip(&args).all(|(p, a)| p.shape == a.shape);
        let mut fitting = self.entries.iter().filter(|e| fits(e));
        match (fitting.next(), fitting.next()) {
            (Some(entry), None) => entry.launch(dev, &args.map(|a| a.arg)),
            (None, _) if self.is_empty_batch(&args) => Ok(()),
            (None, _) => Err(self.no_workload(&args)),
            (Some(_), Some(_)) => {
                let workloads = self.entries.iter().filter(|e| fits(e)).map(|e| e.name).collect();
                Err(Error::Ambiguous { function: self.name, workloads })
            }
        }
    }

    /// Whether the arguments are those of a declared workload but for a leading extent of 0 in the output and in
    /// what goes with it.
    fn is_empty_batch(&self, args: &[DynArg<'_>]) -> bool {
        let empty = |a: &DynArg<'_>| a.shape.first() == Some(&0);
        let batch_of_none =
            |p: &Param, a: &DynArg<'_>| p.shape == a.shape || (empty(a) && p.shape.get(1..) == a.shape.get(1..));
        args.iter().filter(|a| a.arg.writable).all(empty)
            && args.iter().any(|a| a.arg.writable)
            && self
                .entries
                .iter()
                .any(|e| e.params.len() == args.len() && e.params.iter().zip(args).all(|(p, a)| batch_of_none(p, a)))
    }

    #[cold]
    fn no_workload(&self, args: &[DynArg<'_>]) -> Error {
        let names = self.entries.first().map_or(&[][..], |e| e.params);
        Error::NoWorkload {
            function: self.name,
            got: args
                .iter()
                .enumerate()
                .map(|(i, a)| (names.get(i).map_or("?", |p| p.name), a.shape.to_vec()))
                .collect(),
            declared: self.entries.iter().map(|e| e.signature()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
