//! Timing in turns.
//!
//! The clock of a machine moves and other programs come and go, so what is to be compared is timed in turns: in each
//! round every contestant of a layer has a slice of a few milliseconds right behind the others', and a ratio is the
//! median over the rounds of the ratios within a round. Rounds go on until the ratios have settled or the time is up.
//!
//! Threads of a library that has just run may go on spinning for some milliseconds, in case that more work comes. Before a
//! slice begins, [`settle`] waits until they sleep.

use crate::contest::{Contest, Contestant};
use crate::pin;
use kernel_gen_runtime::Cpu;
use std::time::{Duration, Instant};

/// How much is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Time for all layers of a list.
    pub(crate) budget: Duration,
    /// Rounds that every layer gets, whatever the time.
    pub(crate) least_rounds: usize,
    /// Rounds after which no layer goes on.
    pub(crate) most_rounds: usize,
    /// Samples of a contestant in a round; their median counts.
    pub(crate) samples: usize,
    /// As many runs as take this long are one sample.
    pub(crate) sample: Duration,
    /// A ratio has settled when the standard error of its median is below this share of it.
    pub(crate) settled: f64,
}

/// The times of a layer's contestants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// For each contestant the microseconds of a run, one figure a round.
    pub(crate) us: Vec<Vec<f64>>,
    /// GFLOP/s of the multiply-add loop on the same threads, one figure a round.
    pub(crate) peak: Vec<f64>,
    /// Runs in a sample of each contestant.
    runs: Vec<usize>,
}

impl Times {
    /// Median time of a contestant.
    pub(crate) fn us(&self, contestant: usize) -> f64 {
        quantile(self.us[contestant].clone(), 0.5)
    }

    /// The ratios of two contestants' times, round by round.
    fn ratios(&self, of: usize, to: usize) -> Vec<f64> {
        self.us[of].iter().zip(&self.us[to]).map(|(a, b)| a / b).collect()
    }

    /// Median over the rounds of the time of one contestant over that of another.
    pub(crate) fn ratio(&self, of: usize, to: usize) -> f64 {
        quantile(self.ratios(of, to), 0.5)
    }

    /// Standard error of [`Times::ratio`], relative to it. A median's standard error is 1.25 times that of a mean where
    /// values scatter normally, and 0.74 of the distance of the quartiles is their standard deviation.
    pub(crate) fn uncertainty(&self, of: usize, to: usize) -> f64 {
        let ratios = self.ratios(of, to);
        let quartiles = quantile(ratios.clone(), 0.75) - quantile(ratios.clone(), 0.25);
        1.25 * 0.74 * quartiles / (ratios.len() as f64).sqrt() / quantile(ratios, 0.5)
    }

    /// Median over the rounds of the first contestant's rate over the peak measured in the same round.
    pub(crate) fn share_of_peak(&self, flops: f64) -> Option<f64> {
        let shares: Vec<f64> = self.us[0].iter().zip(&self.peak).map(|(us, peak)| flops / us * 1e-3 / peak).collect();
        (!shares.is_empty()).then(|| quantile(shares, 0.5))
    }

    fn settled(&self, rule: &Rule) -> bool {
        (1..self.us.len()).all(|i| self.uncertainty(i, 0) < rule.settled)
    }
}

/// Times the contestants of every layer in turns.
pub(crate) fn measure(dev: &Cpu, contests: &mut [Contest<'_>], rule: &Rule) -> Result<Vec<Times>, String> {
    let start = Instant::now();
    let mut times: Vec<Times> = contests
        .iter()
        .map(|c| c.contestants.len())
        .map(|n| Times { us: vec![vec![]; n], peak: vec![], runs: vec![0; n] })
        .collect();
    for round in 0..rule.most_rounds {
        for (Contest { contestants, .. }, times) in contests.iter_mut().zip(&mut times) {
            let in_time = start.elapsed() < rule.budget;
            if round >= rule.least_rounds && (!in_time || times.settled(rule)) {
                continue;
            }
            settle();
            times.peak.extend(dev.measure_peak_gflops());
            // Who comes first changes from round to round.
            for turn in 0..contestants.len() {
                let who = (turn + round) % contestants.len();
                let us = slice(contestants[who].as_mut(), &mut times.runs[who], rule)?;
                times.us[who].push(us);
            }
        }
    }
    Ok(times)
}

/// One slice of a contestant: microseconds of a run.
fn slice(contestant: &mut dyn Contestant, runs: &mut usize, rule: &Rule) -> Result<f64, String> {
    let mut timed = |runs: usize| contestant.time(runs).map(|time| time.as_secs_f64());
    settle();
    let sample = rule.sample.as_secs_f64();
    if *runs == 0 {
        timed(2)?;
        *runs = 1;
        let mut seconds = timed(1)?;
        while seconds < sample {
            let growth = (1.2 * sample / seconds.max(1e-7)).min(8.0);
            *runs = (*runs + 1).max((*runs as f64 * growth) as usize);
            seconds = timed(*runs)?;
        }
    }
    // Its data into the caches and its threads awake.
    timed((*runs / 4).max(1))?;
    let mut samples = vec![];
    for _ in 0..rule.samples {
        // A sample during which a thread lost its core says more about other programs than about this one.
        for _ in 0..4 {
            let before = pin::preemptions();
            let us = timed(*runs)? / *runs as f64 * 1e6;
            if pin::preemptions() == before {
                samples.push(us);
                break;
            }
        }
    }
    if samples.is_empty() {
        samples.push(timed(*runs)? / *runs as f64 * 1e6);
    }
    Ok(quantile(samples, 0.5))
}

/// Waits until no other thread of this process is on a core or waits for one, for a tenth of a second at most.
fn settle() {
    let start = Instant::now();
    let mut quiet = 0;
    while quiet < 2 && start.elapsed() < Duration::from_millis(100) {
        quiet = if pin::others_run() { 0 } else { quiet + 1 };
        std::thread::sleep(Duration::from_micros(100));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_rounds() {
        // The clock halves from round to round; the first contestant takes twice the second's time in each.
        let times = Times { us: vec![vec![2.0, 4.0, 8.0], vec![1.0, 2.0, 4.0]], peak: vec![], runs: vec![] };
        assert_eq!((times.ratio(0, 1), times.uncertainty(0, 1), times.us(0)), (2.0, 0.0, 4.0));
    }

    #[test]
    fn every_contestant_has_a_figure_in_every_round() {
        struct Busy(u32);
        impl Contestant for Busy {
            fn run(&mut self) -> Result<(), String> {
                self.0 = (0..1000).fold(self.0, |a, i| std::hint::black_box(a ^ i));
                Ok(())
            }
            fn result(&mut self) -> Result<Vec<f32>, String> {
                Ok(vec![])
            }
        }
        let rule = Rule {
            budget: Duration::ZERO,
            least_rounds: 3,
            most_rounds: 9,
            samples: 2,
            sample: Duration::from_micros(50),
            settled: 0.0,
        };
        let contest = Contest {
            name: "busy".into(),
            shape: String::new(),
            count: 1,
            flops: 1.0,
            contestants: vec![Box::new(Busy(1)), Box::new(Busy(2))],
            entries: vec![],
        };
        let times = measure(&Cpu::with_threads(1), &mut [contest], &rule).unwrap();
        assert_eq!(times[0].us.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert!(times[0].us(0) > 0.0 && times[0].ratio(0, 1) > 0.0);
    }
}
