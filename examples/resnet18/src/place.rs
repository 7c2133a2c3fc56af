//! What a pass needs of a device beyond the generated kernels: the pooling layers, and a way to be timed.

use crate::forward::Network;
use crate::kernels::{fc, layer1_conv1, layer4_conv2, stem};
use crate::pool;
use crate::table::median;
use kernel_gen_runtime::{Cpu, Device};
use std::error::Error;
use std::time::Instant;

/// Whatever goes wrong, in words.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Passes before the timed ones.
pub const WARM_UP: usize = 3;

/// An array of `f32` in a device's memory.
pub type Array<Dev, S> = <Dev as Device>::Tensor<f32, S>;

/// A device that the network runs on.
pub trait Place: Device {
    /// What the pooling layers are, for the table.
    const POOLS: &'static str;

    /// The device in one line.
    fn describe(&self) -> String;

    /// The layer `maxpool`.
    fn max_pool(
        &self,
        x: &Array<Self, stem::Y>,
        y: &mut Array<Self, layer1_conv1::X>,
    ) -> kernel_gen_runtime::Result<()>;

    /// The layer `avgpool`.
    fn average_pool(
        &self,
        x: &Array<Self, layer4_conv2::Y>,
        y: &mut Array<Self, fc::A>,
    ) -> kernel_gen_runtime::Result<()>;

    /// Times `repeat` passes.
    fn measure(&self, network: Network<Self>, repeat: usize) -> Result<(Network<Self>, Measured)>;
}

/// What the timed passes gave.
pub struct Measured {
    /// The median time of each step.
    pub steps_us: Vec<f64>,
    /// The median and the least time of a whole pass.
    pub pass_us: [f64; 2],
    /// The median of the peaks measured between the passes, where that can be done.
    pub peak_gflops: Option<f64>,
    /// How the times came about.
    pub method: &'static str,
}

/// Runs the steps of a pass, one after the other.
pub trait Clock {
    /// Runs a step as often as it wants to, or not at all: running it again changes nothing.
    fn step(&mut self, run: impl FnMut() -> kernel_gen_runtime::Result<()>) -> kernel_gen_runtime::Result<()>;
}

/// Only runs the steps.
pub struct Untimed;

impl Clock for Untimed {
    fn step(&mut self, mut run: impl FnMut() -> kernel_gen_runtime::Result<()>) -> kernel_gen_runtime::Result<()> {
        run()
    }
}

/// Takes the time of each step with the machine's clock.
struct Wall {
    times_us: Vec<f64>,
}

impl Clock for Wall {
    fn step(&mut self, mut run: impl FnMut() -> kernel_gen_runtime::Result<()>) -> kernel_gen_runtime::Result<()> {
        let start = Instant::now();
        run()?;
        self.times_us.push(start.elapsed().as_secs_f64() * 1e6);
        Ok(())
    }
}

impl Place for Cpu {
    const POOLS: &'static str = "plain Rust";

    fn describe(&self) -> String {
        format!("{}, {} threads", self.isa(), self.threads())
    }

    fn max_pool(
        &self,
        x: &Array<Self, stem::Y>,
        y: &mut Array<Self, layer1_conv1::X>,
    ) -> kernel_gen_runtime::Result<()> {
        pool::max_pool(self, x, y);
        Ok(())
    }

    fn average_pool(
        &self,
        x: &Array<Self, layer4_conv2::Y>,
        y: &mut Array<Self, fc::A>,
    ) -> kernel_gen_runtime::Result<()> {
        pool::average_pool(x, y);
        Ok(())
    }

    fn measure(&self, mut network: Network<Self>, repeat: usize) -> Result<(Network<Self>, Measured)> {
        for _ in 0..WARM_UP {
            network.forward(&mut Untimed)?;
        }
        let (mut passes, mut peaks) = (vec![], vec![]);
        for _ in 0..repeat {
            let mut clock = Wall { times_us: vec![] };
            network.forward(&mut clock)?;
            passes.push(clock.times_us);
            peaks.extend(self.measure_peak_gflops());
        }
        let steps_us = (0..passes[0].len()).map(|i| median(passes.iter().map(|p| p[i]).collect())).collect();
        let totals: Vec<f64> = passes.iter().map(|p| p.iter().sum()).collect();
        let least = totals.iter().copied().fold(f64::INFINITY, f64::min);
        let measured = Measured {
            steps_us,
            pass_us: [median(totals), least],
            peak_gflops: (!peaks.is_empty()).then(|| median(peaks)),
            // On a machine with other work the median of the passes is above the sum of the layers' medians: hardly any
            // pass goes by without an interruption somewhere.
            method: "Times are medians.",
        };
        Ok((network, measured))
    }
}
