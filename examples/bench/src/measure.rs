//! Timing: repeated samples, a reading of the peak beside each, medians.
//!
//! A sample during which the system took a core away from one of the threads says more about the other programs on the
//! machine than about the kernel. Such a sample is taken again, some times over; where the machine is too busy for that it
//! is kept, counted, and left out of the medians as long as enough others remain.

use crate::layers::Launch;
use crate::pin;
use kernel_gen_runtime::{Cpu, Result};
use std::time::Instant;

/// How often a disturbed sample is taken again before it is kept.
const RETRIES: usize = 8;
/// Undisturbed samples that suffice for a median.
const ENOUGH: usize = 5;

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
    pub(crate) const FULL: Rule = Rule { rounds: 5, samples: 15, min_sample_s: 1e-3 };
    /// To see that everything works.
    pub(crate) const QUICK: Rule = Rule { rounds: 1, samples: 3, min_sample_s: 5e-4 };
}

/// One sample.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Time of a launch.
    us: f64,
    /// GFLOP/s of the multiply-add loop on the same threads right before; none if there is no loop.
    peak_gflops: Option<f64>,
    /// Whether a thread lost its core meanwhile.
    disturbed: bool,
}

/// The samples of one layer with one number of threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    samples: Vec<Sample>,
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
            for attempt in 0..=RETRIES {
                let peak_gflops = dev.measure_peak_gflops();
                timed(1)?; // Wakes the pool's threads.
                let before = pin::preemptions();
                let us = timed(self.launches)? / self.launches as f64 * 1e6;
                let disturbed = pin::preemptions() != before;
                if !disturbed || attempt == RETRIES {
                    self.samples.push(Sample { us, peak_gflops, disturbed });
                    break;
                }
            }
        }
        Ok(())
    }

    /// The samples that count: the undisturbed ones, or all if there are too few of them.
    fn counted(&self) -> Vec<Sample> {
        let calm: Vec<Sample> = self.samples.iter().copied().filter(|s| !s.disturbed).collect();
        if calm.len() >= ENOUGH { calm } else { self.samples.clone() }
    }

    /// Median time of a launch.
    pub(crate) fn us(&self) -> f64 {
        self.quantile_us(0.5)
    }

    /// The middle 80 % of the samples.
    pub(crate) fn spread_us(&self) -> (f64, f64) {
        (self.quantile_us(0.1), self.quantile_us(0.9))
    }

    fn quantile_us(&self, q: f64) -> f64 {
        quantile(self.counted().iter().map(|s| s.us).collect(), q)
    }

    /// Median over the samples of the layer's rate over the peak measured right before it.
    pub(crate) fn share_of_peak(&self, flops: u64) -> Option<f64> {
        let share = |s: &Sample| Some(flops as f64 / s.us * 1e-3 / s.peak_gflops?);
        let shares: Vec<f64> = self.counted().iter().filter_map(share).collect();
        (!shares.is_empty()).then(|| quantile(shares, 0.5))
    }

    /// The peak readings.
    pub(crate) fn peak_gflops(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().filter_map(|s| s.peak_gflops)
    }

    /// How many samples were disturbed to the last attempt, of how many.
    pub(crate) fn disturbed(&self) -> (usize, usize) {
        (self.samples.iter().filter(|s| s.disturbed).count(), self.samples.len())
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
