//! The device, memory with canaries around it, and graphs for timing.

use anyhow::{Context, Result, bail, ensure};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaSlice, CudaStream, DevicePtr};
use std::sync::Arc;

/// Bytes of canary before and behind each buffer: a multiple of what any access is aligned to.
const GUARD: usize = 4096;
/// What canaries hold; as floats of any type it is a large number, so that a sum that reads it is off.
const CANARY: u8 = 0x7b;
/// What outputs hold before a run: NaN in every floating type.
pub(crate) const POISON: u8 = 0xff;

/// An open device and the stream that everything runs on.
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) name: String,
    pub(crate) capability: (i32, i32),
}

impl Gpu {
    /// The first device; none if the machine has none, which is said, not hidden.
    pub(crate) fn open() -> Result<Option<Gpu>> {
        // SAFETY: it only tries to load the driver's library.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            println!("[SKIP] no GPU: there is no CUDA driver on this machine");
            return Ok(None);
        }
        if CudaContext::device_count().unwrap_or(0) == 0 {
            println!("[SKIP] no GPU: the CUDA driver lists no device");
            return Ok(None);
        }
        let context = CudaContext::new(0)?;
        // One stream, and every use of a buffer is on it.
        // SAFETY: nothing is shared between streams here.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let (name, capability) = (context.name()?, context.compute_capability()?);
        Ok(Some(Gpu { context, stream, name, capability }))
    }

    /// Memory that holds `data`, with canaries around.
    pub(crate) fn upload(&self, data: &[u8]) -> Result<Guarded> {
        let mut host = vec![CANARY; GUARD];
        host.extend_from_slice(data);
        // The canary begins at the very next byte.
        host.resize(host.len() + GUARD, CANARY);
        Ok(Guarded { memory: self.stream.clone_htod(&host)?, bytes: data.len() })
    }

    /// Poisoned memory for an output.
    pub(crate) fn poisoned(&self, bytes: usize) -> Result<Guarded> {
        self.upload(&vec![POISON; bytes])
    }

    /// What the memory holds, after a look at its canaries.
    pub(crate) fn download(&self, buffer: &Guarded) -> Result<Vec<u8>> {
        let host = self.stream.clone_dtoh(&buffer.memory)?;
        let (before, rest) = host.split_at(GUARD);
        let (data, behind) = rest.split_at(buffer.bytes);
        if let Some(at) = before.iter().position(|b| *b != CANARY) {
            bail!("the kernel wrote {} bytes before a buffer", GUARD - at);
        }
        if let Some(at) = behind.iter().position(|b| *b != CANARY) {
            bail!("the kernel wrote {at} bytes behind the end of a buffer of {}", buffer.bytes);
        }
        Ok(data.to_vec())
    }

    /// Captures what `launch` queues, `repeats` times.
    pub(crate) fn graph(&self, repeats: usize, mut launch: impl FnMut() -> Result<()>) -> Result<CudaGraph> {
        launch()?; // Lazy loading must not happen during the capture.
        self.stream.synchronize()?;
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let queued = (0..repeats).try_for_each(|_| launch());
        let graph =
            self.stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)?;
        queued?;
        graph.context("the capture recorded nothing")
    }

    /// Medians in microseconds a launch of several graphs of `repeats` launches each, replayed in turn, so that a change
    /// of the clock meets all of them.
    pub(crate) fn time(&self, graphs: &[&CudaGraph], repeats: usize) -> Result<Vec<f64>> {
        Ok(self.samples(graphs, repeats, 15)?.into_iter().map(median).collect())
    }

    /// The samples of which [`Gpu::time`] gives the medians: `rounds` of each graph.
    pub(crate) fn samples(&self, graphs: &[&CudaGraph], repeats: usize, rounds: usize) -> Result<Vec<Vec<f64>>> {
        let mut samples = vec![vec![]; graphs.len()];
        for graph in graphs {
            graph.launch()?;
        }
        let event = || self.context.new_event(Some(cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT));
        let (begin, end) = (event()?, event()?);
        for _ in 0..rounds {
            for (graph, samples) in graphs.iter().zip(&mut samples) {
                begin.record(&self.stream)?;
                graph.launch()?;
                end.record(&self.stream)?;
                end.synchronize()?;
                samples.push(f64::from(begin.elapsed_ms(&end)?) * 1e3 / repeats as f64);
            }
        }
        Ok(samples)
    }
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Memory with canaries on both sides.
pub(crate) struct Guarded {
    memory: CudaSlice<u8>,
    bytes: usize,
}

impl Guarded {
    /// Where its data starts.
    pub(crate) fn address(&self, gpu: &Gpu) -> u64 {
        self.memory.device_ptr(&gpu.stream).0 + GUARD as u64
    }

    /// Poisons it again.
    pub(crate) fn poison(&mut self, gpu: &Gpu) -> Result<()> {
        let bytes = self.bytes;
        ensure!(self.memory.len() == bytes + 2 * GUARD, "a guarded buffer has two canaries");
        gpu.stream.memcpy_htod(&vec![POISON; bytes], &mut self.memory.slice_mut(GUARD..GUARD + bytes))?;
        Ok(())
    }
}
