//! Launches on the CPU.

use super::{Arg, Checked, CheckedWeight, DynArg, Entry, MAX_PARAMS, Pointer, Program, Variant};
use crate::arena::AlignedBytes;
use crate::device::{Device, sealed};
use crate::report::Row;
use crate::{AsView, Cpu, DynView, DynViewMut, Element, Error, Isa, Result, Shape, Tensor};
use std::fmt;
use std::sync::Arc;

/// Addresses of arguments, and the place behind them.
type Pointers = [*mut u8; MAX_PARAMS + 1];

impl Program {
    /// Workspace of a launch on so many workers.
    fn bytes(&self, workers: usize) -> Result<usize> {
        self.worker_bytes
            .checked_mul(workers)
            .and_then(|b| b.checked_add(self.workspace_bytes))
            .ok_or(Error::OutOfMemory { bytes: usize::MAX })
    }

    /// Runs all phases on at most `workers` workers, for arguments with `units` units.
    ///
    /// # Safety
    /// For the whole call `args` must be arguments as the table states them, and `workspace` must hold [`Program::bytes`]
    /// for this number of workers.
    unsafe fn run(&self, dev: &Cpu, workers: usize, (args, units): (&Pointers, usize), workspace: *mut u8) {
        let mut args = *args;
        args[MAX_PARAMS] = std::ptr::without_provenance_mut(units);
        let (args, workspace) = (Pointer(args.as_mut_ptr()), Pointer(workspace));
        for phase in self.phases {
            let func = phase.func;
            dev.split_over(workers, phase.iterations(units), &|worker, range| {
                let (begin, end) = (range.start as i64, range.end as i64);
                // SAFETY: the caller's promise; `split_over` gives disjoint ranges, and those that run at the same time to
                // different workers, which are numbered below `workers`.
                unsafe { func(args.get(), workspace.get(), worker as i64, begin, end) }
            });
        }
    }
}

/// A weight in the layout that one workload's kernel wants. Made once, used in many launches.
pub struct Packed {
    pub(super) entry: &'static Entry,
    pub(super) isa: Isa,
    pub(super) data: Arc<AlignedBytes>,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedWeight({} for {}, {} bytes)", self.entry.about.name, self.isa, self.data.len())
    }
}

/// The next multiple of 64, where the next buffer can start.
fn align(bytes: usize) -> Result<usize> {
    bytes.checked_next_multiple_of(64).ok_or(Error::OutOfMemory { bytes })
}

impl Entry {
    /// The code that a device of this level runs for the most units.
    pub fn variant(&self, isa: Isa) -> Result<&'static Variant> {
        self.variant_of(isa, self.most_units())
    }

    /// The code that a device of this level runs for `units` units.
    fn variant_of(&self, isa: Isa, units: usize) -> Result<&'static Variant> {
        let fits = |v: &&Variant| isa.runs(v.isa) && units <= v.most;
        self.variants.iter().find(fits).ok_or_else(|| self.no_variant(isa))
    }

    #[cold]
    fn no_variant(&self, device: Isa) -> Error {
        if self.variants.is_empty() {
            return Error::NoCode { workload: self.about.name, reason: self.about.no_code };
        }
        Error::NoVariant { workload: self.about.name, device, built: self.variants.iter().map(|v| v.isa).collect() }
    }
}

impl sealed::Sealed for Cpu {}

impl Device for Cpu {
    type Tensor<T: Element, S: Shape> = Tensor<T, S>;
    type DynView<'a, T: Element> = DynView<'a, T>;
    type DynViewMut<'a, T: Element> = DynViewMut<'a, T>;
    type Pointer<'a> = *mut u8;
    type Packed = Packed;

    fn zeros<T: Element, S: Shape>(&self) -> Result<Tensor<T, S>> {
        Tensor::try_zeros()
    }

    fn upload<T: Element, S: Shape>(&self, host: &impl AsView<Elem = T, Shape = S>) -> Result<Tensor<T, S>> {
        Tensor::from_slice(host.view().as_slice())
    }

    fn take<T: Element, S: Shape>(&self, host: Tensor<T, S>) -> Result<Tensor<T, S>> {
        Ok(host)
    }

    fn download<T: Element, S: Shape>(&self, tensor: &Tensor<T, S>) -> Result<Tensor<T, S>> {
        Tensor::from_slice(tensor.as_slice())
    }

    fn advance<'a>(pointer: *mut u8, bytes: usize) -> *mut u8
    where
        Self: 'a,
    {
        pointer.wrapping_add(bytes)
    }

    fn lend<'a: 'b, 'b>(pointer: &'b *mut u8) -> *mut u8
    where
        Self: 'a,
    {
        *pointer
    }

    fn finish(&self) -> Result<()> {
        // Launches return when they have run.
        Ok(())
    }

    fn launch(&self, Checked { entry, args, units, .. }: Checked<'_, '_, Cpu>) -> Result<()> {
        let variant = match args.iter().find_map(|a| a.packed) {
            Some(packed) => packed.variant(entry, units, self)?,
            None => entry.variant_of(self.isa(), units)?,
        };
        // Workspace: packed parameters, then what the programs need, which run one after the other.
        // Asked once: an executor may answer differently the next time, and the workspace is sized by this answer.
        let workers = self.threads();
        let mut pack_bytes = 0;
        let mut program_bytes = variant.program.bytes(workers)?;
        let to_pack = || variant.packs.iter().filter(|p| args[p.param].packed.is_none());
        for pack in to_pack() {
            pack_bytes = align(pack.bytes)
                .ok()
                .and_then(|b| b.checked_add(pack_bytes))
                .ok_or(Error::OutOfMemory { bytes: usize::MAX })?;
            program_bytes = program_bytes.max(pack.program.bytes(workers)?);
        }
        let total = pack_bytes.checked_add(program_bytes).ok_or(Error::OutOfMemory { bytes: usize::MAX })?;
        let lease = self.lease(total)?;
        let mut pointers = [std::ptr::null_mut(); MAX_PARAMS + 1];
        for (pointer, arg) in pointers.iter_mut().zip(args) {
            *pointer = arg.pointer;
        }
        let scratch = lease.as_ptr().wrapping_add(pack_bytes);
        let mut next = lease.as_ptr();
        for pack in to_pack() {
            let mut two = [std::ptr::null_mut(); MAX_PARAMS + 1];
            (two[0], two[1]) = (pointers[pack.param], next);
            // SAFETY: `check` has compared type, length and access of the argument with the entry's parameter; the
            // packed form and the scratch have the sizes that the tables state, within the lease.
            unsafe { pack.program.run(self, workers, (&two, 1), scratch) };
            pointers[pack.param] = next;
            next = next.wrapping_add(align(pack.bytes)?);
        }
        // SAFETY: as above; packed arguments were made by this entry for this variant (`variant_of`).
        unsafe { variant.program.run(self, workers, (&pointers, units), scratch) };
        Ok(())
    }

    fn pack(&self, CheckedWeight { entry, param, weight }: CheckedWeight<'_, Cpu>) -> Result<Packed> {
        let variant = entry.variant(self.isa())?;
        let bytes = weight.elements * weight.dtype.bytes();
        let data = match variant.packs.iter().find(|p| p.param == param) {
            Some(pack) => {
                let data = AlignedBytes::zeroed(pack.bytes)?;
                let workers = self.threads();
                let lease = self.lease(pack.program.bytes(workers)?)?;
                let mut two = [std::ptr::null_mut(); MAX_PARAMS + 1];
                (two[0], two[1]) = (weight.pointer, data.as_ptr());
                // SAFETY: the argument was checked against the parameter; data and lease have the stated sizes.
                unsafe { pack.program.run(self, workers, (&two, 1), lease.as_ptr()) };
                data
            }
            None => {
                let data = AlignedBytes::zeroed(bytes)?;
                // SAFETY: both hold `bytes` bytes, and the new allocation overlaps nothing.
                unsafe { std::ptr::copy_nonoverlapping(weight.pointer, data.as_ptr(), bytes) };
                data
            }
        };
        Ok(Packed { entry, isa: variant.isa, data: Arc::new(data) })
    }

    fn share(&self, packed: &Packed, entry: &'static Entry) -> Option<Packed> {
        let form = |entry: &'static Entry| {
            let variant = entry.variant(self.isa()).ok()?;
            let pack = variant.packs.iter().find(|pack| Some(pack.param) == entry.weight);
            // As it is, or as all of one name pack it.
            pack.is_none_or(|pack| !pack.name.is_empty())
                .then(|| (variant.isa, pack.map(|pack| (pack.name, pack.bytes))))
        };
        let own = form(entry)?;
        let same = packed.isa == own.0 && form(packed.entry) == Some(own) && entry.same_weight(packed.entry);
        same.then(|| Packed { entry, isa: packed.isa, data: Arc::clone(&packed.data) })
    }

    fn packed_arg<'a>(&'a self, packed: &'a Packed) -> Arg<'a> {
        Arg::packed(packed)
    }

    fn read_arg<'a, T: Element>(&'a self, view: DynView<'a, T>) -> Result<DynArg<'a>> {
        DynArg::read(view)
    }

    fn write_arg<'a, T: Element>(&'a self, view: DynViewMut<'a, T>) -> Result<DynArg<'a>> {
        DynArg::write(view)
    }

    fn apart(&self, most: usize) -> Vec<Cpu> {
        let count = self.threads();
        if (2..=most).contains(&count) { self.alone(count) } else { vec![] }
    }

    fn run_apart(&self, apart: &[Cpu], images: usize, body: &(dyn Fn(usize, &Cpu, usize) + Sync)) -> usize {
        // A device with more threads than the one that the memory was made for has use for all of them.
        let workers = self.threads();
        if !(2..=apart.len()).contains(&workers) {
            return 0;
        }
        let images = images / workers * workers;
        self.split_over(workers, images, &|worker, range| {
            let alone = apart[worker].like(self);
            range.for_each(|image| body(worker, &alone, image));
        });
        images
    }

    fn preload(&self, entry: &'static Entry) -> Result<()> {
        entry.variant(self.isa()).map(|_| ())
    }

    fn runs(&self, row: &Row) -> bool {
        row.isa.is_some_and(|isa| self.isa().runs(isa))
    }
}

impl Packed {
    /// The variant of the level that a weight was packed for which serves `units` units: all of one level take it in one form.
    fn variant(&self, entry: &'static Entry, units: usize, dev: &Cpu) -> Result<&'static Variant> {
        if !std::ptr::eq(self.entry, entry) {
            return Err(Error::ForeignPack { workload: entry.about.name, packed_by: self.entry.about.name });
        }
        let fits = |v: &&Variant| v.isa == self.isa && units <= v.most && dev.isa().runs(v.isa);
        let variant = entry.variants.iter().find(fits);
        variant.ok_or(Error::PackedFor { workload: entry.about.name, packed: self.isa, device: dev.isa() })
    }
}
