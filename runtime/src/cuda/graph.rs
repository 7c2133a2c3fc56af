//! Launches that are recorded once and then run by the driver, one behind the other.

use super::driver::{self, Driver};
use super::owned::Claim;
use super::recording::{Allowed, Capture};
use super::{Cuda, CudaError, DeviceTensor};
use crate::{AsView, Element, Error, Result, Shape};
use cudarc::driver::{CudaGraph, CudaStream, result, sys};
use std::ffi::c_int;
use std::fmt;

/// Whether a captured launch may begin before the one in front of it has ended.
///
/// Kernels of a few microseconds that are generated for compute capability 9.0 and newer can be started early: they set themselves
/// up, fetch weights, and wait by themselves for what is in front of them before they touch anything else (*programmatic
/// dependent launch*). Longer ones would lose by it, and those with more blocks than there are multiprocessors cannot. Results
/// are the same bit for bit. A launch whose weight is written by the launch in front of it is started behind it, as is every kernel that does not wait by itself, and every one that has something else in front
/// than a launch of this crate's: a copy, or a kernel that was queued on [`Cuda::stream`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Overlap {
    /// It may, where its kernel can and the driver has graphs with such edges (CUDA 12.3).
    #[default]
    Allowed,
    /// Each launch begins when the one in front of it has ended.
    Never,
}

/// Launches on a [`Cuda`] device, recorded by [`capture`](Cuda::capture), with the buffers that they use.
///
/// A replay costs the CPU a few microseconds, however many launches there are, and leaves less than a microsecond
/// between two of them on the GPU.
///
/// ```no_run
/// # use kernel_gen_runtime::cuda::{Cuda, DeviceTensor};
/// # use kernel_gen_runtime::{D1, Device, Error, Tensor};
/// # mod kernels {
/// #     use kernel_gen_runtime::cuda::{Cuda, DeviceTensor};
/// #     use kernel_gen_runtime::{D1, Result};
/// #     pub fn preload(_: &Cuda) -> Result<()> { Ok(()) }
/// #     pub fn scale(_: &Cuda, _: &DeviceTensor<f32, D1<8>>, _: &mut DeviceTensor<f32, D1<8>>) -> Result<()> { Ok(()) }
/// # }
/// struct Buffers {
///     x: DeviceTensor<f32, D1<8>>,
///     half: DeviceTensor<f32, D1<8>>,
///     y: DeviceTensor<f32, D1<8>>,
/// }
/// // Only a stream of its own can be captured, and only launches of code that is loaded.
/// let dev = Cuda::on_new_stream(0)?;
/// kernels::preload(&dev)?;
/// let buffers = Buffers { x: dev.zeros()?, half: dev.zeros()?, y: dev.zeros()? };
/// let mut graph = dev.capture(buffers, |dev, b| {
///     kernels::scale(dev, &b.x, &mut b.half)?;
///     kernels::scale(dev, &b.half, &mut b.y)
/// })?;
/// for image in [Tensor::zeros(), Tensor::from_fn(|i| i as f32)] {
///     graph.write(|b| &b.x, &image)?;
///     graph.launch()?;
///     let y = dev.download(&graph.buffers().y)?;
/// }
/// # Ok::<(), Error>(())
/// ```
///
/// # Buffers
/// The recorded launches refer to the memory of their arguments, and the graph keeps that memory: of every
/// [`DeviceTensor`] and packed weight that the closure launches with, wherever it lies. A tensor that is dropped while the
/// graph lives frees nothing. Views of cudarc's slices have no memory that a graph could keep, so they are refused
/// ([`CudaError::Unowned`]), as are copies and kernels that are queued by other means ([`CudaError::ForeignNodes`]);
/// [`capture_unowned`](Cuda::capture_unowned) takes both.
///
/// The graph owns `T` besides, and lends it for reading only. New inputs are copied into the same memory
/// ([`write`](Graph::write)); another shape, or another buffer, is another graph.
///
/// What the graph does not do is keep others from memory that it uses. Tensors that lie outside of `T`, or come out of it by way
/// of a `RefCell` or `Mutex`, can be used while a replay runs. Launches, copies and replays by way of one device run in the order
/// in which they are queued, so that is well defined. On another stream nothing orders them, since cudarc does not
/// know what a replay uses: synchronize in between, else values are undetermined. No other memory is touched by that.
pub struct Graph<T> {
    graph: CudaGraph,
    dev: Cuda,
    launches: usize,
    overlapped: usize,
    /// What keeps the memory that the launches use.
    memory: Vec<Claim>,
    /// None once they have been given back.
    buffers: Option<T>,
}

impl<T> Drop for Graph<T> {
    /// Waits for the last replay: a buffer that was made on another stream of the device would be freed while it runs.
    ///
    /// Where nobody can wait for it, because the stream is being captured for another graph, memory is never freed; nor does the
    /// driver free a graph then, so it refuses that capture if it is this thread's.
    fn drop(&mut self) {
        let wait = |_| self.dev.synchronize();
        // The first call may report what failed earlier elsewhere, and does not wait then.
        if wait(()).or_else(|_| wait(())).is_err() {
            std::mem::forget((self.buffers.take(), std::mem::take(&mut self.memory), self.dev.clone()));
        }
    }
}

// SAFETY: a graph may be used from one thread at a time, which is what exclusive access and `Send` without `Sync` say; the
// driver's handles belong to no thread, as each call binds the context first.
unsafe impl<T: Send> Send for Graph<T> {}

impl Cuda {
    /// Records what `launch` launches on this device, for replays. Nothing of it runs by now.
    ///
    /// `launch` gets the device and `buffers`, and captures nothing else: a function, or a closure that is one. It makes
    /// no tensors, copies nothing to the host, does not synchronize, launches on no other device, and replays and drops no
    /// graph.
    ///
    /// Meanwhile other threads, and other devices made of the same stream ([`from_stream`](Cuda::from_stream)), are
    /// refused what they would queue on it ([`CudaError::Captured`]). What they queue by other means, with cudarc, becomes a
    /// part of what is captured, and the capture fails, as it does if they free buffers.
    ///
    /// Replays come behind what was queued before the capture on other streams that writes `buffers`, if cudarc keeps
    /// account of that.
    ///
    /// # Errors
    /// [`CudaError::CaptureDefaultStream`] on a device of [`Cuda::new`], [`CudaError::ColdCapture`] where a workload has
    /// never been launched nor preloaded, [`CudaError::EmptyCapture`] if nothing was launched on this device,
    /// [`CudaError::Unowned`] for an argument that is a view of a slice of cudarc's, [`CudaError::ForeignNodes`] if something
    /// was queued by other means, [`CudaError::LaunchElsewhere`] if something was launched on another, [`CudaError::NotCapturable`] if memory was
    /// allocated or freed meanwhile, and within another capture of this thread's, [`CudaError::Captured`] if another
    /// thread captures the stream, what `launch` returns, and what the driver says.
    pub fn capture<T>(&self, buffers: T, launch: fn(&Cuda, &mut T) -> Result<()>) -> Result<Graph<T>> {
        self.capture_with(Overlap::default(), buffers, launch)
    }

    /// [`capture`](Cuda::capture), with a say in whether launches may overlap.
    ///
    /// # Errors
    /// As `capture`.
    pub fn capture_with<T>(
        &self,
        overlap: Overlap,
        buffers: T,
        launch: fn(&Cuda, &mut T) -> Result<()>,
    ) -> Result<Graph<T>> {
        self.capture_as(overlap, false, buffers, launch)
    }

    /// [`capture_with`](Cuda::capture_with), for launches with memory that no graph can keep: views of slices of cudarc's
    /// ([`DeviceView`](super::DeviceView) and the `_dyn` forms), and for what else is queued on the stream.
    ///
    /// # Safety
    /// What is queued meanwhile refers to memory of the GPU's, and of the CPU's where it copies. Until the graph is dropped, or has
    /// given its buffers back, that memory is neither freed nor moved; slices within `T` are safe there, if nobody takes them out.
    /// It is read and written by every replay, as the borrow rules would have it if a replay were a call with these arguments. Memory of
    /// [`DeviceTensor`]s and packed weights is kept as by `capture`.
    ///
    /// ```compile_fail,E0133
    /// # use kernel_gen_runtime::cuda::{Cuda, Graph, Overlap};
    /// # use kernel_gen_runtime::Result;
    /// fn captured(dev: &Cuda) -> Result<Graph<()>> {
    ///     dev.capture_unowned(Overlap::Allowed, (), |_, _| Ok(()))
    /// }
    /// ```
    ///
    /// # Errors
    /// As `capture`, but for `Unowned` and `ForeignNodes`.
    pub unsafe fn capture_unowned<T>(
        &self,
        overlap: Overlap,
        buffers: T,
        launch: fn(&Cuda, &mut T) -> Result<()>,
    ) -> Result<Graph<T>> {
        self.capture_as(overlap, true, buffers, launch)
    }

    fn capture_as<T>(
        &self,
        overlap: Overlap,
        unowned: bool,
        mut buffers: T,
        launch: fn(&Cuda, &mut T) -> Result<()>,
    ) -> Result<Graph<T>> {
        let inner = self.inner();
        let stream = self.stream();
        if stream.cu_stream().is_null() {
            return Err(CudaError::CaptureDefaultStream.into());
        }
        let driver = inner.context.driver;
        let overlap = overlap == Overlap::Allowed && driver.version >= driver::GRAPHS_WITH_EARLY_STARTS;
        let allowed = Allowed { overlap, unowned };
        inner.recording.begin(inner.id(), allowed, || {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            stream.begin_capture(mode).map_err(|e| Driver::of_cudarc("cuStreamBeginCapture", e))
        })?;
        let capturing = Capturing { stream, dev: self };
        let launched = launch(self, &mut buffers);
        // Also where a launch failed: the stream is of no use else.
        let (graph, capture) = capturing.end();
        let graph = graph.map_err(|e| Driver::of_cudarc("cuStreamEndCapture", e));
        if launched.is_err() || graph.is_err() {
            // cudarc keeps what failed where nothing could be returned, in a `drop`, and would report it later.
            let _ = inner.context.cuda.check_err();
        }
        let invalid = |e: &CudaError| matches!(e, CudaError::Driver { code, .. } if CAPTURE_ERRORS.contains(code));
        match (launched, graph) {
            (Err(Error::Cuda(e)), _) | (Ok(()), Err(e)) if invalid(&e) => Err(CudaError::NotCapturable.into()),
            (Err(e), _) => Err(e),
            (Ok(()), Err(e)) => Err(e.into()),
            (Ok(()), Ok(graph)) => self.recorded(graph, allowed, capture, buffers),
        }
    }

    /// The graph of a capture in which nothing failed.
    fn recorded<T>(
        &self,
        graph: Option<CudaGraph>,
        allowed: Allowed,
        capture: Capture,
        buffers: T,
    ) -> Result<Graph<T>> {
        let graph = graph.filter(|_| capture.launches > 0).ok_or(CudaError::EmptyCapture)?;
        capture.check(&self.nodes(&graph)?, allowed)?;
        self.inner().order_behind_others()?;
        let (launches, overlapped) = (capture.launches, capture.overlapped);
        let memory = capture.into_claims();
        Ok(Graph { graph, dev: self.clone(), launches, overlapped, memory, buffers: Some(buffers) })
    }

    /// What the nodes of a graph do: `CUgraphNodeType`.
    fn nodes(&self, graph: &CudaGraph) -> Result<Vec<c_int>, CudaError> {
        let driver = self.inner().context.driver;
        let handle = graph.cu_graph().cast();
        let mut count = 0;
        // SAFETY: the graph is alive; without a list the driver writes the number of nodes only.
        let code = unsafe { (driver.graph_nodes)(handle, std::ptr::null_mut(), &mut count) };
        driver.check("cuGraphGetNodes", code)?;
        let mut nodes = vec![std::ptr::null_mut(); count];
        // SAFETY: the list has as many places as is said.
        let code = unsafe { (driver.graph_nodes)(handle, nodes.as_mut_ptr(), &mut count) };
        driver.check("cuGraphGetNodes", code)?;
        let kind_of = |node| {
            let mut kind = 0;
            // SAFETY: the node is of a graph that is alive, and the pointer is to a local.
            driver.check("cuGraphNodeGetType", unsafe { (driver.node_type)(node, &mut kind) })?;
            Ok(kind)
        };
        nodes.into_iter().map(kind_of).collect()
    }
}

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` and the codes behind it, which only captures have.
const CAPTURE_ERRORS: std::ops::RangeInclusive<u32> = 900..=908;

/// A stream that is being captured: the capture ends with this, however the closure is left.
struct Capturing<'a> {
    stream: &'a std::sync::Arc<CudaStream>,
    dev: &'a Cuda,
}

impl Capturing<'_> {
    fn end(self) -> (std::result::Result<Option<CudaGraph>, cudarc::driver::DriverError>, Capture) {
        let inner = self.dev.inner();
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        // cudarc reports what failed in a `drop` by the next call, and would leave the stream in its capture.
        let failed = inner.context.cuda.check_err();
        let (graph, capture) = inner.recording.end(|| {
            let graph = self.stream.end_capture(flags);
            if graph.is_err() {
                // Where the graph could not be made the capture has ended, else it has not; to end it twice does no harm.
                self.give_up();
            }
            graph
        });
        std::mem::forget(self);
        (failed.and(graph), capture)
    }

    /// Ends the capture and throws away what was captured.
    fn give_up(&self) {
        // SAFETY: whether or not the stream is still being captured, the driver says; nobody else has the graph that this
        // gives.
        let graph = unsafe { result::stream::end_capture(self.stream.cu_stream()) };
        if let Ok(graph) = graph
            && !graph.is_null()
        {
            // SAFETY: as above. There is nobody to return an error to.
            let _ = unsafe { result::graph::destroy(graph) };
        }
    }
}

impl Drop for Capturing<'_> {
    /// The closure has panicked: what it captured is thrown away.
    fn drop(&mut self) {
        self.dev.inner().recording.end(|| self.give_up());
    }
}

impl<T> Graph<T> {
    /// Queues all launches, as one, on the device's stream; [`synchronize`](Cuda::synchronize) waits for them.
    ///
    /// # Errors
    /// [`CudaError::Captured`] or [`CudaError::NotCapturable`] while the stream is being captured for another graph, and
    /// what the driver says.
    pub fn launch(&mut self) -> Result<()> {
        let inner = self.dev.inner();
        let _turn = inner.recording.outside(inner.id(), "Graph::launch")?;
        // Another thread's program, with its weights packed into the workspace that replays use, too, is queued as a whole.
        let _queue = inner.queue(1);
        Ok(self.graph.launch().map_err(|e| Driver::of_cudarc("cuGraphLaunch", e))?)
    }

    /// Copies an array from the CPU's memory into one of the buffers, for the next replay.
    ///
    /// # Errors
    /// As [`launch`](Graph::launch); [`CudaError::ForeignBuffer`] if the buffer is another GPU's.
    pub fn write<E: Element, S: Shape>(
        &mut self,
        to: impl FnOnce(&T) -> &DeviceTensor<E, S>,
        host: &impl AsView<Elem = E, Shape = S>,
    ) -> Result<()> {
        let dev = self.dev.clone();
        let to = to(self.buffers());
        if !dev.shares(to.as_slice().context().cu_ctx().addr()) {
            return Err(Error::Cuda(CudaError::ForeignBuffer { workload: "Graph::write", param: "to" }));
        }
        to.overwrite(&dev, host)
    }

    /// The buffers. What the replays write is read by way of the graph's device, behind them.
    pub fn buffers(&self) -> &T {
        self.buffers.as_ref().expect("`into_buffers` alone takes them, and the graph with them")
    }

    /// Gives the buffers back, once the last replay has ended. Their memory is theirs alone again.
    ///
    /// # Errors
    /// What failed while it ran. Also, while the stream is being captured for another graph, that one cannot wait for it;
    /// memory is never freed then.
    pub fn into_buffers(mut self) -> Result<T> {
        self.dev.synchronize()?;
        Ok(self.buffers.take().expect("they are taken once, and the graph with them"))
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Cuda {
        &self.dev
    }

    /// Kernels that a replay runs.
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// How many of them may begin before the one in front of them has ended.
    pub fn overlapped(&self) -> usize {
        self.overlapped
    }
}

impl<T> fmt::Debug for Graph<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} launches, {} of them early, on {:?})", self.launches, self.overlapped, self.dev)
    }
}
