//! A GPU's stream as a device.

use super::context::Context;
use super::driver::Driver;
use super::table::{Program, Variant};
use super::{CudaError, context::Loaded, recording::Recording, recording::Turn};
use crate::dispatch::Entry;
use crate::{Error, Result};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A GPU: a stream that kernels are launched on, in a context of cudarc's.
///
/// A clone shares the stream and the workspace. Launches return when they are queued; [`synchronize`](Cuda::synchronize)
/// waits for them. A device may be used from several threads: their launches come one after the other on its stream.
/// Work on several streams at a time takes a device for each ([`from_stream`](Cuda::from_stream)).
///
/// # Costs
/// The first launch of a workload loads its code and may allocate workspace; [`preload`] does that
/// beforehand. Later launches allocate nothing and do not wait for the GPU; kernels that need workspace take a lock, which
/// only waits for other threads that are queuing such kernels on the same device. When a program has several streams, cudarc orders their use of buffers by events, which cost about a microsecond a buffer;
/// [`CudaContext::disable_event_tracking`] turns that off for programs that order their streams themselves.
///
/// # Graphs
/// [`capture`](Cuda::capture) records launches for replays, once their code is loaded, and keeps the memory that they use. Who
/// captures the stream by cudarc's functions keeps in mind that cudarc's graphs refer to the arguments' memory and to this device's
/// workspace and keep neither: keep them as long as the graph, and do not let two graphs of one device run at the same time.
///
/// [`preload`]: crate::dispatch::preload
#[derive(Clone)]
pub struct Cuda {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    // The order matters: the workspace is freed before the context goes.
    workspaces: [OnceLock<Workspace>; CLASSES],
    /// Held while the launches of a program that uses workspace are queued, so that those of another thread's do not
    /// come between them.
    queuing: Mutex<()>,
    pub(super) stream: Arc<CudaStream>,
    /// What is remembered of launches while they are captured, and who may use the stream meanwhile.
    pub(super) recording: Arc<Recording>,
    /// A stream that is never captured, to ask cudarc for addresses while `stream` is.
    aside: Arc<CudaStream>,
    pub(super) context: Arc<Context>,
}

/// Workspace of one size; it is kept until the device goes, so a graph can refer to it.
struct Workspace {
    address: u64,
    _memory: CudaSlice<u8>,
}

/// Sizes of workspace: 2 to the power of each.
const CLASSES: usize = 48;

impl Cuda {
    /// The default stream of a GPU, in its primary context, which the program's other users of the GPU share.
    ///
    /// # Errors
    /// As [`probe`](Cuda::probe), and if there is no device of this number. Never panics.
    pub fn new(ordinal: usize) -> Result<Cuda, CudaError> {
        let count = Cuda::probe()?.devices.len();
        if ordinal >= count {
            return Err(CudaError::NoSuchDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).map_err(|e| Driver::of_cudarc("cuDevicePrimaryCtxRetain", e))?;
        Cuda::from_stream(context.default_stream())
    }

    /// A GPU on a new stream, in its primary context. Launches on several such devices can run at the same time, and
    /// be captured in graphs ([`capture`](Cuda::capture)).
    ///
    /// # Errors
    /// As [`new`](Cuda::new).
    pub fn on_new_stream(ordinal: usize) -> Result<Cuda, CudaError> {
        let dev = Cuda::new(ordinal)?;
        let stream = dev.stream().context().new_stream().map_err(|e| Driver::of_cudarc("cuStreamCreate", e))?;
        Cuda::from_stream(stream)
    }

    /// A stream that the program has already: candle's, say, or one that is to be captured in a graph.
    pub fn from_stream(stream: Arc<CudaStream>) -> Result<Cuda, CudaError> {
        let context = Context::of(stream.context())?;
        let aside = context.cuda.per_thread_stream();
        let workspaces = [const { OnceLock::new() }; CLASSES];
        let (queuing, recording) = (Mutex::new(()), context.recording(&stream));
        Ok(Cuda { inner: Arc::new(Inner { workspaces, queuing, stream, recording, aside, context }) })
    }

    /// The stream that kernels are launched on.
    ///
    /// What else is queued on it is run in its turn. A [`capture`](Cuda::capture) refuses it. By
    /// [`capture_unowned`](Cuda::capture_unowned) it becomes a part of the graph, and the launch behind it does not begin early,
    /// since nobody knows what it writes.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.inner.stream
    }

    /// The compute capability: major, minor.
    pub fn compute_capability(&self) -> (i32, i32) {
        self.inner.context.capability
    }

    /// Waits until everything that was launched has ended, and reports what failed on the way.
    ///
    /// # Errors
    /// What failed, and [`CudaError::Captured`] or [`CudaError::NotCapturable`] while the stream is being captured.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _turn = self.outside("Cuda::synchronize")?;
        self.wait()
    }

    /// Leave to do on the stream what no graph can hold.
    pub(super) fn outside(&self, call: &'static str) -> Result<Turn<'_>, CudaError> {
        self.inner.recording.outside(self.inner.id(), call)
    }

    /// [`synchronize`](Cuda::synchronize) for who has leave.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        self.inner.stream.synchronize().map_err(|e| Driver::of_cudarc("cuStreamSynchronize", e))
    }

    /// Bytes of workspace that the device keeps for later launches.
    pub fn workspace_bytes(&self) -> usize {
        let bytes =
            self.inner.workspaces.iter().enumerate().filter(|(_, w)| w.get().is_some()).map(|(class, _)| 1 << class);
        bytes.sum()
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Whether a buffer in this context can be used here.
    pub(super) fn shares(&self, context: usize) -> bool {
        context == self.inner.context.cuda.cu_ctx().addr()
    }

    /// The stream to ask cudarc for a buffer's address with. Asking orders the stream behind other streams' use of the
    /// buffer, by events; a captured stream cannot wait for what happened outside of the capture, and who launches
    /// the graph orders it. So while capturing, another stream is ordered, which nothing runs on.
    pub(super) fn ordered_stream(&self) -> &CudaStream {
        let inner = &*self.inner;
        match inner.context.cuda.is_managing_stream_synchronization() && inner.is_capturing().unwrap_or(false) {
            true => &inner.aside,
            false => &inner.stream,
        }
    }
}

impl Inner {
    /// A number that the clones of a device have and nobody else; not 0.
    #[inline]
    pub(super) fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Where the capture of the stream ends: the node that all that is captured next depends on, if there is just one.
    #[cold]
    pub(super) fn end_of_capture(&self) -> Option<usize> {
        let ask = self.context.driver.capture_info?;
        let (mut status, mut id, mut graph, mut count) = (0, 0, std::ptr::null_mut(), 0);
        let (mut nodes, mut edges) = (std::ptr::null(), std::ptr::null());
        let stream = self.stream.cu_stream().cast();
        // SAFETY: the stream lives as long as `self`, and all pointers are to locals.
        let code = unsafe { ask(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count) };
        // SAFETY: the driver's list has as many nodes as it says, until something else is captured.
        (code == 0 && count == 1 && !nodes.is_null()).then(|| unsafe { *nodes }.addr())
    }

    /// Has what is queued next come behind what was ordered with `aside` during a capture: what other streams did with
    /// buffers before it.
    pub(super) fn order_behind_others(&self) -> Result<(), CudaError> {
        if !self.context.cuda.is_managing_stream_synchronization() {
            return Ok(());
        }
        self.stream.join(&self.aside).map_err(|e| Driver::of_cudarc("cuStreamWaitEvent", e))
    }

    /// Whether the stream is being captured.
    fn is_capturing(&self) -> Result<bool, CudaError> {
        let stream = self.stream.cu_stream();
        if stream.is_null() {
            // The default stream cannot be captured.
            return Ok(false);
        }
        let driver = self.context.driver;
        let mut status = 0;
        self.context.bind()?;
        // SAFETY: the stream lives as long as `self`, and the pointer is to a local.
        let code = unsafe { (driver.is_capturing)(stream.cast(), &mut status) };
        driver.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// The code that this device runs for `units` units: the best of the workload's variants.
    #[inline]
    pub(super) fn variant(&self, entry: &'static Entry, units: usize) -> Result<&'static Variant> {
        let capability = self.context.capability;
        let fits = |v: &&Variant| v.arch.runs_on(capability) && units <= v.most;
        entry.cuda.iter().find(fits).ok_or_else(|| self.no_variant(entry))
    }

    #[cold]
    fn no_variant(&self, entry: &'static Entry) -> Error {
        if entry.cuda.is_empty() && !entry.about.no_code.is_empty() {
            return Error::NoCode { workload: entry.about.name, reason: entry.about.no_code };
        }
        let built = entry.cuda.iter().map(|v| v.arch.name).collect();
        CudaError::NoVariant { workload: entry.about.name, device: self.context.capability, built }.into()
    }

    /// A program in this device's context.
    #[inline]
    pub(super) fn loaded(&self, entry: &'static Entry, program: &Program) -> Result<&Loaded, CudaError> {
        match self.context.loaded(program) {
            Some(loaded) => Ok(loaded),
            None => {
                self.refuse_capture(entry)?;
                self.context.load(program)
            }
        }
    }

    /// What cannot happen while a stream is captured.
    #[cold]
    fn refuse_capture(&self, entry: &'static Entry) -> Result<(), CudaError> {
        if self.is_capturing()? { Err(CudaError::ColdCapture { workload: entry.about.name }) } else { Ok(()) }
    }

    /// Keeps other threads' programs out of the workspace while one is queued, if it uses any.
    #[inline]
    pub(super) fn queue(&self, workspace_bytes: usize) -> Option<MutexGuard<'_, ()>> {
        (workspace_bytes > 0).then(|| self.queuing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The address of at least so many bytes of workspace, aligned to 256.
    #[inline]
    pub(super) fn workspace(&self, entry: &'static Entry, bytes: usize) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let class = bytes.checked_next_power_of_two().map_or(CLASSES, |size| size.ilog2() as usize);
        let slot = self.workspaces.get(class).ok_or(Error::OutOfMemory { bytes })?;
        match slot.get() {
            Some(workspace) => Ok(workspace.address),
            None => self.allocate(entry, slot, 1 << class),
        }
    }

    #[cold]
    fn allocate(&self, entry: &'static Entry, slot: &OnceLock<Workspace>, bytes: usize) -> Result<u64> {
        self.refuse_capture(entry)?;
        // SAFETY: kernels write workspace before they read it: the verifier refuses those that do not.
        let memory = unsafe { self.stream.alloc::<u8>(bytes) };
        let memory = memory.map_err(|e| Driver::not_allocated(bytes, e))?;
        let (address, ordered) = memory.device_ptr(&self.stream);
        drop(ordered);
        // Another thread may have been faster; then this memory is freed.
        Ok(slot.get_or_init(|| Workspace { address, _memory: memory }).address)
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability();
        f.debug_struct("Cuda")
            .field("ordinal", &self.inner.context.cuda.ordinal())
            .field("compute_capability", &format_args!("{major}.{minor}"))
            .finish()
    }
}
