//! Timing by events.

use super::{Begin, Bench, Bound};
use crate::cuda::CudaError;
use crate::cuda::driver::Driver;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use std::marker::PhantomData;

/// Launches that were recorded, to be replayed at once.
pub struct Graph<'a> {
    graph: CudaGraph,
    calls: usize,
    _held: PhantomData<&'a ()>,
}

impl Bench {
    /// Queues the launches `calls` times, and waits; gives the microseconds that they took. The time that it takes to queue
    /// them is in it where the kernels are faster.
    pub fn time_launches(&self, bound: &Bound<'_>, calls: usize) -> Result<f64, CudaError> {
        self.between_events(|| (0..calls).try_for_each(|_| self.launch(bound)))
    }

    /// Records `calls` calls of candidates, of each in turn, each of which begins as said. All have been launched before.
    pub fn graph<'a>(&self, bounds: &[&'a Bound<'a>], calls: usize, begin: Begin) -> Result<Graph<'a>, CudaError> {
        self.recorded(calls, || {
            bounds.iter().cycle().take(calls).enumerate().try_for_each(|(i, bound)| {
                // The first has nothing in front of it.
                self.queue(bound, if i == 0 { Begin::Behind } else { begin })
            })
        })
    }

    /// Records what `queue` queues on the [stream](Bench::raw_stream): `calls` calls of a library, say. The graph borrows
    /// what `queue` borrows.
    ///
    /// # Errors
    /// Those of `queue`, and what the driver says of the capture.
    ///
    /// # Safety
    /// The memory that the recorded calls use must live as long as what `queue` borrows: a graph replays them by address.
    pub unsafe fn record<'a, E: From<CudaError>>(
        &self,
        calls: usize,
        queue: impl FnOnce() -> Result<(), E> + 'a,
    ) -> Result<Graph<'a>, E> {
        self.recorded(calls, queue)
    }

    /// Records what is queued.
    fn recorded<'a, E: From<CudaError>>(
        &self,
        calls: usize,
        queue: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph<'a>, E> {
        let failed = |call| move |error| Driver::of_cudarc(call, error);
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(failed("cuStreamBeginCapture"))?;
        let queued = queue();
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        // The capture ends whether it went well or not.
        let graph = self.stream.end_capture(flags).map_err(failed("cuGraphInstantiate"));
        queued?;
        let empty = || CudaError::Driver { call: "cuStreamEndCapture", code: 1, name: "nothing was recorded".into() };
        Ok(Graph { graph: graph?.ok_or_else(empty)?, calls: calls.max(1), _held: PhantomData })
    }

    /// Replays the graph and waits; gives the microseconds of a call.
    pub fn replay(&self, graph: &Graph<'_>) -> Result<f64, CudaError> {
        let us = self.between_events(|| graph.graph.launch().map_err(|e| Driver::of_cudarc("cuGraphLaunch", e)))?;
        Ok(us / graph.calls as f64)
    }

    fn between_events<E: From<CudaError>>(&self, queue: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
        let failed = |call| move |error| Driver::of_cudarc(call, error);
        self.begin.record(&self.stream).map_err(failed("cuEventRecord"))?;
        queue()?;
        self.end.record(&self.stream).map_err(failed("cuEventRecord"))?;
        self.end.synchronize().map_err(failed("cuEventSynchronize"))?;
        let mut ms = 0.0;
        let (begin, end) = (self.begin.cu_event().cast(), self.end.cu_event().cast());
        // SAFETY: both events have been recorded on this stream and live as long as `self`; the pointer is to a local.
        let code = unsafe { (self.context.driver.event_elapsed)(&mut ms, begin, end) };
        self.context.driver.check("cuEventElapsedTime", code)?;
        Ok(f64::from(ms) * 1e3)
    }
}
