//! Launches on a GPU. After a workload's first launch nothing here allocates or waits for the GPU.

use super::context::Loaded;
use super::device::{Cuda, Inner};
use super::driver::{self, Driver, LaunchAttribute, LaunchConfig, TensorMap};
use super::owned::{Claimed, Owned};
use super::recording::{Queued, Starts, Turn};
use super::table::{KernelArg, MAX_KERNEL_ARGS, MAX_TENSOR_MAPS, Pack, Program, Variant};
use super::tensor::{DeviceDynView, DeviceDynViewMut, DeviceTensor};
use super::{CudaError, arch::Arch};
use crate::device::{Device, sealed};
use crate::dispatch::{Arg, Checked, CheckedWeight, DynArg, Entry, MAX_PARAMS, check_elements};
use crate::report::Row;
use crate::{AsView, Element, Error, Result, Shape, Tensor};
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtrMut, DeviceSlice, SyncOnDrop, result};
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// A buffer's address, and what orders its use.
pub struct Pointer<'a> {
    pub(super) address: u64,
    /// The context that it belongs to, as a number.
    pub(super) context: usize,
    /// What a graph keeps; none where the memory belongs to a slice of the caller's.
    memory: Option<&'a dyn Claimed>,
    /// Dropped when the launch is queued: then cudarc records the use, if it keeps account.
    _ordered: SyncOnDrop<'a>,
}

/// A weight in the layout that one workload's kernel wants, in a GPU's memory.
pub struct Packed {
    entry: &'static Entry,
    variant: &'static Variant,
    data: Arc<Owned<CudaSlice<u8>>>,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedWeight({} for {}, {} bytes)", self.entry.about.name, self.variant.arch, self.data.get().len())
    }
}

/// The next multiple of 256, where the next buffer can start.
fn align(bytes: usize) -> Result<usize> {
    bytes.checked_next_multiple_of(256).ok_or(Error::OutOfMemory { bytes })
}

impl sealed::Sealed for Cuda {}

impl Device for Cuda {
    type Tensor<T: Element, S: Shape> = DeviceTensor<T, S>;
    type DynView<'a, T: Element> = DeviceDynView<'a, T>;
    type DynViewMut<'a, T: Element> = DeviceDynViewMut<'a, T>;
    type Pointer<'a> = Pointer<'a>;
    type Packed = Packed;

    fn zeros<T: Element, S: Shape>(&self) -> Result<DeviceTensor<T, S>> {
        DeviceTensor::zeros(self)
    }

    fn upload<T: Element, S: Shape>(&self, host: &impl AsView<Elem = T, Shape = S>) -> Result<DeviceTensor<T, S>> {
        DeviceTensor::from_host(self, host)
    }

    fn take<T: Element, S: Shape>(&self, host: Tensor<T, S>) -> Result<DeviceTensor<T, S>> {
        self.upload(&host)
    }

    fn download<T: Element, S: Shape>(&self, tensor: &DeviceTensor<T, S>) -> Result<Tensor<T, S>> {
        tensor.to_host(self)
    }

    fn advance<'a>(pointer: Pointer<'a>, bytes: usize) -> Pointer<'a>
    where
        Self: 'a,
    {
        Pointer { address: pointer.address + bytes as u64, ..pointer }
    }

    fn lend<'a: 'b, 'b>(pointer: &'b Pointer<'a>) -> Pointer<'b>
    where
        Self: 'a,
    {
        // The use is recorded when what is lent ends, after all launches that it is lent to.
        Pointer { _ordered: SyncOnDrop::Record(None), ..*pointer }
    }

    fn finish(&self) -> Result<()> {
        Ok(self.synchronize()?)
    }

    fn launch(&self, Checked { entry, args, scalars, units }: Checked<'_, '_, Cuda>) -> Result<()> {
        let inner = self.inner();
        let turn = inner.recording.launch(inner.id(), entry.about.name)?;
        let variant = inner.variant(entry, units)?;
        let mut addresses = [0; MAX_PARAMS];
        for (i, arg) in args.iter().enumerate() {
            self.check_arg(entry, variant, i, arg)?;
            addresses[i] = arg.pointer.address;
            if turn.captured() {
                let (workload, param) = (entry.about.name, entry.params[i].name);
                turn.keep(arg.pointer.memory, || CudaError::Unowned { workload, param })?;
            }
        }
        // Workspace: packed parameters, then what the programs need, which run one after the other.
        let mut pack_bytes = 0;
        let mut program_bytes = variant.program.workspace_bytes;
        let to_pack = || variant.packs.iter().filter(|p| args[p.param].packed.is_none());
        for pack in to_pack() {
            pack_bytes += align(pack.bytes)?;
            program_bytes = program_bytes.max(pack.program.workspace_bytes);
        }
        let start = inner.workspace(entry, pack_bytes + program_bytes)?;
        let _queue = inner.queue(pack_bytes + program_bytes);
        let scratch = start + pack_bytes as u64;
        let loaded = inner.loaded(entry, &variant.program)?;
        inner.context.bind()?;
        let mut next = start;
        for pack in to_pack() {
            let loaded = inner.loaded(entry, &pack.program)?;
            let behind = next + align(pack.bytes)? as u64;
            let starts = starts(inner, &turn, None, std::iter::once(start..behind));
            // SAFETY: `check` has compared type, length and access of the argument with the entry's parameter, and
            // `check_arg` its place; the packed form and the scratch have the sizes that the tables state, within the
            // workspace, which launches on this stream use one after the other.
            unsafe {
                run(
                    inner,
                    &turn,
                    &pack.program,
                    loaded,
                    Values::of_pack(&[addresses[pack.param], next], scratch),
                    starts,
                )?
            };
            addresses[pack.param] = next;
            next = behind;
        }
        let starts = starts_of(inner, &turn, &variant.program, args, &addresses, units);
        // SAFETY: as above; packed arguments were made by this entry for this variant (`check_arg`).
        unsafe {
            let values = Values { addresses: &addresses, scratch, scalars, units };
            run(inner, &turn, &variant.program, loaded, values, starts)?
        };
        Ok(())
    }

    fn pack(&self, CheckedWeight { entry, param, weight }: CheckedWeight<'_, Cuda>) -> Result<Packed> {
        let inner = self.inner();
        let turn = self.outside("pack_weight")?;
        let variant = inner.variant(entry, entry.most_units())?;
        self.check_arg(entry, variant, param, &weight)?;
        let pack = variant.packs.iter().find(|p| p.param == param);
        let bytes = pack.map_or(weight.elements * weight.dtype.bytes(), |p| p.bytes);
        // SAFETY: all of it is written below, before anything reads it.
        let data = unsafe { inner.stream.alloc::<u8>(bytes.max(1)) };
        let mut data = data.map_err(|e| Driver::not_allocated(bytes, e))?;
        if bytes > 0 {
            self.fill(entry, pack, weight.pointer.address, &mut data, &turn)?;
        }
        Ok(Packed { entry, variant, data: Arc::new(Owned::new(data)) })
    }

    fn share(&self, packed: &Packed, entry: &'static Entry) -> Option<Packed> {
        let variant = self.inner().variant(entry, entry.most_units()).ok()?;
        let pack = |entry: &Entry, variant: &'static Variant| {
            variant.packs.iter().find(|pack| Some(pack.param) == entry.weight)
        };
        let same = match (pack(entry, variant), pack(packed.entry, packed.variant)) {
            (None, None) => true,
            (Some(a), Some(b)) => a.bytes == b.bytes && a.program.is(&b.program),
            _ => false,
        };
        let same = same && variant.arch == packed.variant.arch && entry.same_weight(packed.entry);
        same.then(|| Packed { entry, variant, data: Arc::clone(&packed.data) })
    }

    fn packed_arg<'a>(&'a self, packed: &'a Packed) -> Arg<'a, Cuda> {
        let view = packed.data.get().as_view();
        Arg { packed: Some(packed), ..Arg::of_view(self, view, Some(&*packed.data)) }
    }

    fn read_arg<'a, T: Element>(&'a self, view: DeviceDynView<'a, T>) -> Result<DynArg<'a, Cuda>> {
        check_elements(view.shape, view.data.len())?;
        Ok(DynArg { shape: view.shape, arg: Arg::of_view(self, view.data, None) })
    }

    fn write_arg<'a, T: Element>(&'a self, view: DeviceDynViewMut<'a, T>) -> Result<DynArg<'a, Cuda>> {
        check_elements(view.shape, view.data.len())?;
        Ok(DynArg { shape: view.shape, arg: Arg::of_view_mut(self, view.data, None) })
    }

    fn preload(&self, entry: &'static Entry) -> Result<()> {
        let inner = self.inner();
        let best = inner.variant(entry, entry.most_units())?;
        for variant in entry.cuda.iter().filter(|v| v.arch == best.arch) {
            inner.loaded(entry, &variant.program)?;
            let (mut packs, mut scratch) = (0, variant.program.workspace_bytes);
            for pack in variant.packs {
                inner.loaded(entry, &pack.program)?;
                packs += align(pack.bytes)?;
                scratch = scratch.max(pack.program.workspace_bytes);
            }
            // With and without the weight packed.
            inner.workspace(entry, packs + scratch)?;
            inner.workspace(entry, variant.program.workspace_bytes)?;
        }
        Ok(())
    }

    fn runs(&self, row: &Row) -> bool {
        row.cuda.and_then(Arch::parse).is_some_and(|arch| arch.runs_on(self.compute_capability()))
    }
}

impl Cuda {
    /// Whether an argument lies where this device reaches it, and as the code wants it.
    #[inline]
    fn check_arg(&self, entry: &'static Entry, variant: &Variant, index: usize, arg: &Arg<'_, Cuda>) -> Result<()> {
        let param = || entry.params[index].name;
        if !self.shares(arg.pointer.context) {
            return Err(match arg.packed {
                Some(_) => CudaError::ForeignPack { workload: entry.about.name }.into(),
                None => CudaError::ForeignBuffer { workload: entry.about.name, param: param() }.into(),
            });
        }
        if let Some(packed) = arg.packed {
            if !std::ptr::eq(packed.entry, entry) {
                return Err(Error::ForeignPack { workload: entry.about.name, packed_by: packed.entry.about.name });
            }
            // All variants of an architecture take a weight in one form.
            if packed.variant.arch != variant.arch {
                return Err(CudaError::ForeignPack { workload: entry.about.name }.into());
            }
        }
        if !arg.pointer.address.is_multiple_of(variant.align) {
            let (workload, align) = (entry.about.name, variant.align);
            return Err(CudaError::Misaligned { workload, param: param(), align }.into());
        }
        Ok(())
    }

    /// Fills the memory of a packed weight: by its program, or by a copy.
    fn fill(
        &self,
        entry: &'static Entry,
        pack: Option<&Pack>,
        weight: u64,
        data: &mut CudaSlice<u8>,
        turn: &Turn<'_>,
    ) -> Result<()> {
        let inner = self.inner();
        let bytes = data.len();
        let (address, _ordered) = data.device_ptr_mut(self.ordered_stream());
        match pack {
            Some(pack) => {
                let scratch = inner.workspace(entry, pack.program.workspace_bytes)?;
                let loaded = inner.loaded(entry, &pack.program)?;
                let _queue = inner.queue(pack.program.workspace_bytes);
                inner.context.bind()?;
                // SAFETY: the argument was checked against the parameter; data and workspace have the stated sizes.
                unsafe {
                    run(
                        inner,
                        turn,
                        &pack.program,
                        loaded,
                        Values::of_pack(&[weight, address], scratch),
                        Starts::BY_ITSELF,
                    )?
                };
            }
            None => {
                inner.context.bind()?;
                // SAFETY: both hold `bytes` bytes, and the new allocation overlaps nothing.
                let copied = unsafe { result::memcpy_dtod_async(address, weight, bytes, inner.stream.cu_stream()) };
                copied.map_err(|e| Driver::of_cudarc("cuMemcpyDtoDAsync", e))?;
            }
        }
        Ok(())
    }
}

impl<'a> Arg<'a, Cuda> {
    /// Something to read. `memory` is what a graph keeps of it, if it can.
    pub(super) fn of_view<T: Element>(
        dev: &'a Cuda,
        view: CudaView<'a, T>,
        memory: Option<&'a dyn Claimed>,
    ) -> Arg<'a, Cuda> {
        let (elements, context) = (view.len(), context_of(&view));
        let pointer = Pointer::new(dev, context, memory, |stream| view.view_ptr(stream));
        Arg { pointer, dtype: T::DTYPE, elements, writable: false, packed: None, borrow: PhantomData }
    }

    /// Something to write. `memory` is what a graph keeps of it, if it can.
    pub(super) fn of_view_mut<T: Element>(
        dev: &'a Cuda,
        view: CudaViewMut<'a, T>,
        memory: Option<&'a dyn Claimed>,
    ) -> Arg<'a, Cuda> {
        let (elements, context) = (view.len(), context_of(&view));
        let pointer = Pointer::new(dev, context, memory, |stream| view.view_ptr_mut(stream));
        Arg { pointer, dtype: T::DTYPE, elements, writable: true, packed: None, borrow: PhantomData }
    }
}

impl<'a> Pointer<'a> {
    fn new(
        dev: &'a Cuda,
        context: usize,
        memory: Option<&'a dyn Claimed>,
        address: impl FnOnce(&'a CudaStream) -> (u64, SyncOnDrop<'a>),
    ) -> Pointer<'a> {
        // Streams of another context cannot be ordered with this one's; the launch refuses such a buffer.
        let foreign = !dev.shares(context);
        let (address, ordered) = if foreign { (0, SyncOnDrop::Record(None)) } else { address(dev.ordered_stream()) };
        Pointer { address, context, memory, _ordered: ordered }
    }
}

/// The context that a buffer belongs to, as a number.
fn context_of<T>(buffer: &impl DeviceSlice<T>) -> usize {
    buffer.stream().context().cu_ctx().addr()
}

/// Which launches of a program begin before the one in front has ended; see [`starts`].
#[inline]
fn starts_of(
    inner: &Inner,
    turn: &Turn<'_>,
    program: &Program,
    args: &[Arg<'_, Cuda>],
    addresses: &[u64],
    units: usize,
) -> Starts {
    let range = |i: usize| addresses[i]..addresses[i] + (args[i].elements * args[i].dtype.bytes()) as u64;
    let mut early = [const { 0..0 }; MAX_PARAMS];
    let first = program.launches.first().filter(|l| inner.context.alone(l, units).is_some());
    let reads = first.and_then(|l| l.overlap);
    for (range_of, i) in early.iter_mut().zip(reads.unwrap_or(&[])) {
        *range_of = match (&args[*i].packed, addresses[*i] == args[*i].pointer.address) {
            // Packed into the workspace a moment ago, by the launch in front.
            (None, false) => 0..u64::MAX,
            _ => range(*i),
        };
    }
    let early = reads.map(|reads| &early[..reads.len()]);
    let written = args.iter().enumerate().filter(|(_, a)| a.writable).map(|(i, _)| range(i));
    starts(inner, turn, early, written)
}

/// Which launches of a program begin before the one in front of them has ended. For the first that depends on what is captured:
/// `early` is what it reads by then, none if it cannot; `written` is all that the program writes.
#[inline]
fn starts(
    inner: &Inner,
    turn: &Turn<'_>,
    early: Option<&[Range<u64>]>,
    written: impl Iterator<Item = Range<u64>>,
) -> Starts {
    if !turn.captured() {
        return Starts::BY_ITSELF;
    }
    turn.record(&Queued { early, front: inner.end_of_capture() }, written)
}

/// What the kernels of a program are given.
#[derive(Clone, Copy)]
struct Values<'a> {
    /// The arguments' addresses.
    addresses: &'a [u64],
    /// Where the workspace starts.
    scratch: u64,
    /// What is passed by value.
    scalars: &'a [u64],
    /// How many units there are.
    units: usize,
}

impl<'a> Values<'a> {
    /// Those of a program that packs: it takes nothing by value.
    fn of_pack(addresses: &'a [u64], scratch: u64) -> Values<'a> {
        Values { addresses, scratch, scalars: &[], units: 1 }
    }
}

/// Launches a program. `starts` says which of its launches may begin before what is in front of them has ended.
///
/// # Safety
/// `given` must be what the table promises the kernels, until they have run; the context is
/// bound, and `loaded` is the program in it. If its first launch may begin early, what that reads by then is not written by
/// the launch in front of it.
#[inline]
unsafe fn run(
    inner: &Inner,
    turn: &Turn<'_>,
    program: &Program,
    loaded: &Loaded,
    given: Values<'_>,
    starts: Starts,
) -> Result<(), CudaError> {
    let driver = inner.context.driver;
    let address = |arg: KernelArg| match arg {
        KernelArg::Param(i) => given.addresses[i],
        KernelArg::Within(i, offset) => given.addresses[i] + offset,
        KernelArg::Workspace(offset) => given.scratch + offset,
        KernelArg::Map(_) | KernelArg::Scalar(_) | KernelArg::Int(_) | KernelArg::Units => 0,
    };
    let mut maps = [const { MaybeUninit::<TensorMap>::uninit() }; MAX_TENSOR_MAPS];
    for ((map, spec), cache) in maps.iter_mut().zip(program.maps).zip(&loaded.maps) {
        map.write(cache.get(driver, spec, address(spec.base), given.units as u64)?);
    }
    for (i, (launch, function)) in program.launches.iter().zip(&loaded.functions).enumerate() {
        let mut values = [0u64; MAX_KERNEL_ARGS];
        let mut pointers = [std::ptr::null_mut::<c_void>(); MAX_KERNEL_ARGS];
        for (i, arg) in launch.args.iter().enumerate() {
            pointers[i] = match arg {
                KernelArg::Map(m) => maps[*m].as_mut_ptr().cast(),
                other => {
                    values[i] = match other {
                        KernelArg::Scalar(s) => given.scalars[*s],
                        KernelArg::Units => given.units as u64,
                        // Its first bytes are the number.
                        KernelArg::Int(n) => u64::from(*n as u32),
                        other => address(*other),
                    };
                    std::ptr::from_mut(&mut values[i]).cast()
                }
            };
        }
        let early = if i == 0 { starts.first } else { starts.others };
        let alone = if early { inner.context.alone(launch, given.units) } else { None };
        let (mut attributes, attribute_count) = attributes(launch.cluster, alone.is_some());
        let config = LaunchConfig {
            grid: launch.grid_of(given.units),
            block: launch.block,
            shared_bytes: alone.unwrap_or(launch.shared_bytes),
            stream: inner.stream.cu_stream().cast(),
            attributes: attributes.as_mut_ptr(),
            attribute_count,
        };
        // SAFETY: the kernel takes these parameters (the table says so); the driver copies them before it returns.
        let code = unsafe { (driver.launch)(&config, *function, pointers.as_mut_ptr(), std::ptr::null_mut()) };
        driver.check("cuLaunchKernelEx", code)?;
        if turn.captured() {
            turn.count(alone.is_some());
        }
    }
    if turn.captured() {
        turn.recorded(inner.end_of_capture());
    }
    Ok(())
}

/// The attributes of a launch, and how many there are.
#[inline]
pub(super) fn attributes(cluster: [u32; 3], programmatic: bool) -> ([LaunchAttribute; 2], u32) {
    let mut all = [LaunchAttribute { id: 0, pad: 0, value: [0; 16] }; 2];
    let mut count = 0;
    if cluster != [1, 1, 1] {
        all[count].id = driver::CLUSTER_DIMENSION;
        all[count].value[..3].copy_from_slice(&cluster);
        count += 1;
    }
    if programmatic {
        all[count].id = driver::PROGRAMMATIC_STREAM_SERIALIZATION;
        all[count].value[0] = 1;
        count += 1;
    }
    (all, count as u32)
}
