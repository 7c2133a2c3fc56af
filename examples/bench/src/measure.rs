//! Timing: repeated samples, a reading of the peak beside each, medians.

use crate::layers::Launch;
use kernel_gen_runtime::{Cpu, Result};
use std::time::Instant;

/// How much is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// How often all layers are gone through. Rounds are far apart in time, so a disturbance meets few samples of each.
    pub(crate) rounds: usize,
    /// Samples of a layer in a round.
    pub(crate) samples: usize,
    /// As many launches as take this long are one sample.
    pub(crate) min_sample_s: f64,
}

impl Rule {
    /// For figures to show.
    pub(crate) const FULL: Rule = Rule { rounds: 5, samples: 9, min_sample_s: 3e-3 };
    /// To see that everything works.
    pub(crate) const QUICK: Rule = Rule { rounds: 1, samples: 3, min_sample_s: 1e-3 };
}

/// The samples of one layer with one number of threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Time of a launch, by sample.
    us: Vec<f64>,
    /// GFLOP/s of the multiply-add loop on the same threads right before the sample; empty if there is no loop.
    peak_gflops: Vec<f64>,
    /// Launches in a sample.
    launches: usize,
}

impl Samples {
    /// Adds one round of samples.
    pub(crate) fn round(&mut self, dev: &Cpu, layer: &mut dyn Launch, rule: Rule) -> Result<()> {
        let mut timed = |launches: usize| -> Result<f64> {
            let start = Instant::now();
            for _ in 0..launches {
                layer.launch(dev)?;
            }
            Ok(start.elapsed().as_secs_f64())
        };
        timed(1)?; // Its data back into the caches, after the other layers.
        if self.launches == 0 {
            self.launches = 1;
            let mut seconds = timed(1)?;
            while seconds < rule.min_sample_s {
                let growth = (1.2 * rule.min_sample_s / seconds.max(1e-7)).min(8.0);
                self.launches = (self.launches + 1).max((self.launches as f64 * growth) as usize);
                seconds = timed(self.launches)?;
            }
        }
        for _ in 0..rule.samples {
            self.peak_gflops.extend(dev.measure_peak_gflops());
            timed(1)?; // Wakes the pool's threads.
            self.us.push(timed(self.launches)? / self.launches as f64 * 1e6);
        }
        Ok(())
    }

    /// Median time of a launch.
    pub(crate) fn us(&self) -> f64 {
        quantile(self.us.clone(), 0.5)
    }

    /// The middle 80 % of the samples.
    pub(crate) fn spread_us(&self) -> (f64, f64) {
        (quantile(self.us.clone(), 0.1), quantile(self.us.clone(), 0.9))
    }

    /// Median over the samples of the layer's rate over the peak measured right before it.
    pub(crate) fn share_of_peak(&self, flops: u64) -> Option<f64> {
        let shares = self.us.iter().zip(&self.peak_gflops).map(|(us, peak)| flops as f64 / us * 1e-3 / peak);
        (!self.peak_gflops.is_empty()).then(|| quantile(shares.collect(), 0.5))
    }

    /// The peak readings.
    pub(crate) fn peak_gflops(&self) -> &[f64] {
        &self.peak_gflops
    }
}

/// A quantile, between neighbours by proportion; of no values, not a number.
pub(crate) fn quantile(mut values: Vec<f64>, q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let at = q * last as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    low + (high - low) * at.fract()
}
