//! A GPU as a place: times of replayed graphs.

use crate::forward::Network;
use crate::kernels::{fc, layer1_conv1, layer4_conv2, stem};
use crate::network::resnet18;
use crate::place::{Array, Clock, Measured, Place, Result, Untimed, WARM_UP};
use crate::pools::pool;
use crate::table::median;
use kernel_gen_runtime::Cuda;
use kernel_gen_runtime::cuda::Graph;
use kernel_gen_runtime::cuda::cudarc::driver::sys::CUevent_flags;
use std::sync::Arc;

/// Launches of a step in the graph that is timed for it, so that a graph's start does not count.
const LAUNCHES: usize = 20;
/// Passes in the graph that is timed for the whole network, for the same reason.
const PASSES: usize = 4;

/// The first GPU, on a stream of its own, because the default stream cannot be captured in a graph. The error is the
/// reason why there is none, in one line.
pub fn open() -> Result<Cuda> {
    Ok(Cuda::on_new_stream(0)?)
}

/// Microseconds of each of `repeat` replays of a graph.
fn replay<T>(graph: &mut Graph<T>, repeat: usize) -> Result<Vec<f64>> {
    let stream = &Arc::clone(graph.device().stream());
    let event = || stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
    let (begin, end) = (event()?, event()?);
    for _ in 0..WARM_UP {
        graph.launch()?;
    }
    let mut times = vec![];
    for _ in 0..repeat {
        begin.record(stream)?;
        graph.launch()?;
        end.record(stream)?;
        end.synchronize()?;
        times.push(f64::from(begin.elapsed_ms(&end)?) * 1e3);
    }
    Ok(times)
}

/// Runs one step, so often that a graph's start does not count, and no other.
struct Only {
    step: usize,
    at: usize,
}

impl Clock for Only {
    fn step(&mut self, mut run: impl FnMut() -> kernel_gen_runtime::Result<()>) -> kernel_gen_runtime::Result<()> {
        self.at += 1;
        if self.at - 1 == self.step { (0..LAUNCHES).try_for_each(|_| run()) } else { Ok(()) }
    }
}

impl Place for Cuda {
    const POOLS: &'static str = "CUDA by hand";

    fn describe(&self) -> String {
        let ordinal = self.stream().context().ordinal();
        let device = Cuda::probe().ok().and_then(|info| info.devices.into_iter().nth(ordinal));
        device.map_or("a GPU".to_string(), |d| {
            let (major, minor) = d.compute_capability;
            format!("{}, compute capability {major}.{minor}, {} multiprocessors", d.name, d.multiprocessors)
        })
    }

    fn max_pool(
        &self,
        x: &Array<Self, stem::Y>,
        y: &mut Array<Self, layer1_conv1::X>,
    ) -> kernel_gen_runtime::Result<()> {
        pool(self, x, y)
    }

    fn average_pool(
        &self,
        x: &Array<Self, layer4_conv2::Y>,
        y: &mut Array<Self, fc::A>,
    ) -> kernel_gen_runtime::Result<()> {
        pool(self, x, y)
    }

    fn measure(&self, mut network: Network<Self>, repeat: usize) -> Result<(Network<Self>, Measured)> {
        // The first pass loads the code, which cannot be done while a graph is captured.
        network.forward(&mut Untimed)?;
        self.synchronize()?;
        let mut steps_us = vec![];
        for step in 0..resnet18().len() {
            let mut graph =
                self.capture((network, step), |_, (network, step)| network.forward(&mut Only { step: *step, at: 0 }))?;
            steps_us.push(median(replay(&mut graph, repeat)?) / LAUNCHES as f64);
            (network, _) = graph.into_buffers()?;
        }
        let mut graph = self.capture(network, |_, n| (0..PASSES).try_for_each(|_| n.forward(&mut Untimed)))?;
        let passes: Vec<f64> = replay(&mut graph, repeat)?.iter().map(|us| us / PASSES as f64).collect();
        let least = passes.iter().copied().fold(f64::INFINITY, f64::min);
        let measured = Measured {
            steps_us,
            pass_us: [median(passes), least],
            peak_gflops: None,
            method: "Times are medians over replays of CUDA graphs: of one step's launches, and of whole passes.",
        };
        Ok((graph.into_buffers()?, measured))
    }
}
