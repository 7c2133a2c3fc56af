//! How many samples are enough.

use serde::{Deserialize, Serialize};

/// When to stop taking samples of a candidate.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sampling {
    /// Samples that every candidate gets that is not slow.
    pub least: usize,
    /// Samples at which it ends in any case.
    pub most: usize,
    /// It ends earlier where half of the median's interval is below this share of the median.
    pub interval: f64,
    /// A candidate that is so many times slower than the best gets [`Sampling::FEW`] samples only: nobody will ask how
    /// slow it is exactly.
    pub screen: f64,
    /// A sample repeats the call until it takes at least this long.
    pub sample_us: f64,
    /// It ends with [`Sampling::LEAST_LONG`] samples where calls are so long that they add up to this.
    pub most_us: f64,
    /// Samples of each candidate where candidates are compared; [`Sampling::LEAST_COMPARED`] where they take long.
    pub compare: usize,
    /// Calls of a sample, at the least, however long they take.
    pub number: usize,
}

impl Default for Sampling {
    /// Five to 15 samples, until the interval is within 1 %, or three where they add up to 15 ms; one where twice as
    /// slow; 31 in comparisons.
    fn default() -> Sampling {
        Sampling {
            least: 5,
            most: 15,
            interval: 0.01,
            screen: 2.0,
            sample_us: 1500.0,
            most_us: 15_000.0,
            compare: 31,
            number: 1,
        }
    }
}

impl Sampling {
    /// So many samples of every config, in comparisons too: no more for one that scatters, no fewer for one that is slow.
    /// AutoTVM's `repeat`.
    pub fn with_repeat(self, repeat: usize) -> Sampling {
        let repeat = repeat.max(1);
        // Times that nothing reaches: nobody is slow, and no sum of samples is long.
        let never = f64::MAX;
        Sampling { least: repeat, most: repeat, compare: repeat, screen: never, most_us: never / 8.0, ..self }
    }

    /// Calls that a sample may need for its time, however short they are.
    pub(super) fn most_calls(&self) -> f64 {
        if self.sample_us > Sampling::default().sample_us { 65_536.0 } else { 256.0 }
    }

    /// Samples of a candidate that is slow.
    pub const FEW: usize = 1;

    /// Samples of a candidate whose calls are long: they scatter little, and who is among the fastest is compared again.
    pub const LEAST_LONG: usize = 3;

    /// Samples of each candidate where candidates are compared whose samples add up to eight times [`Sampling::most_us`].
    pub const LEAST_COMPARED: usize = 11;

    /// Whether a candidate of which one call takes `us` is too slow to look at closely.
    pub fn is_slow(&self, us: f64, best_us: Option<f64>) -> bool {
        best_us.is_some_and(|best| us > self.screen * best)
    }

    /// Microseconds of one call between two events, of which a launch by itself takes up to `launch_us`: the least of calls
    /// that are repeated while they look slow, for as long as a sample takes. A host that is held up between the events makes
    /// a call look slow, never fast: of 5600 candidates of two runs on an H100, 93 were sampled in one and refused for one call in
    /// the other.
    pub fn one_call<E>(
        &self,
        best_us: Option<f64>,
        launch_us: f64,
        mut call: impl FnMut() -> Result<f64, E>,
    ) -> Result<f64, E> {
        let mut least = call()?;
        let mut spent = least;
        while self.is_slow(least - launch_us, best_us) && spent < self.sample_us {
            let us = call()?;
            spent += us;
            least = least.min(us);
        }
        Ok(least)
    }

    /// Whether these are enough.
    pub fn is_enough(&self, samples: &[f64]) -> bool {
        let long = || samples.iter().sum::<f64>() >= self.most_us;
        samples.len() >= self.most
            || samples.len() >= Sampling::LEAST_LONG && long()
            || samples.len() >= self.least && half_interval(samples) <= self.interval
    }

    /// Whether these are enough of a candidate that is compared with others.
    pub fn is_compared(&self, samples: &[f64]) -> bool {
        let long = || samples.iter().sum::<f64>() >= 8.0 * self.most_us;
        samples.len() >= self.compare || samples.len() >= Sampling::LEAST_COMPARED && long()
    }
}

/// Half of the interval of the median, as a share of it: `1.57 (q3 - q1) / sqrt(n)`, which holds the median of a normal
/// distribution with about 95 % (McGill, Tukey, Larsen: "Variations of box plots", 1978).
fn half_interval(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (sorted.len() - 1) as f64;
        let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        low + (high - low) * place.fract()
    };
    match sorted.len() {
        0 => f64::INFINITY,
        n => 1.57 * (at(0.75) - at(0.25)) / (n as f64).sqrt() / at(0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_samples_are_enough_early_and_noisy_ones_late() {
        let sampling = Sampling::default();
        assert!(!sampling.is_enough(&[1.0; 4]));
        assert!(sampling.is_enough(&[1.0; 5]));
        let noisy: Vec<f64> = (0..15).map(|i| 1.0 + f64::from(i % 5) * 0.1).collect();
        assert!(!sampling.is_enough(&noisy[..14]));
        assert!(sampling.is_enough(&noisy));
        // Whoever takes 30 ms a call is not called 25 times.
        let long: Vec<f64> = noisy.iter().map(|us| us * 3e4).collect();
        assert!(!sampling.is_enough(&long[..2]) && sampling.is_enough(&long[..3]));
        // One sample that was disturbed does not count.
        assert!(sampling.is_enough(&[1.0, 1.0, 7.0, 1.0, 1.001]));
    }

    #[test]
    fn long_calls_are_compared_less_often() {
        let sampling = Sampling::default();
        assert!(!sampling.is_compared(&[1.0; 30]) && sampling.is_compared(&[1.0; 31]));
        assert!(!sampling.is_compared(&[2e4; 10]) && sampling.is_compared(&[2e4; 11]));
        assert!(!sampling.is_compared(&[6e3; 19]) && sampling.is_compared(&[6e3; 20]));
    }

    #[test]
    fn whoever_names_a_number_of_samples_gets_it() {
        let sampling = Sampling::default().with_repeat(7);
        assert!(!sampling.is_slow(1e9, Some(1.0)));
        for us in [1.0, 1e6] {
            assert!(!sampling.is_enough(&[us; 6]) && sampling.is_enough(&[us; 7]));
            assert!(!sampling.is_compared(&[us; 6]) && sampling.is_compared(&[us; 7]));
        }
        // It goes to the worker as JSON.
        let text = serde_json::to_string(&sampling).unwrap();
        assert_eq!(serde_json::from_str::<Sampling>(&text).unwrap(), sampling);
    }

    #[test]
    fn the_interval_is_that_of_the_box_plot() {
        // Quartiles 2 and 4 around 3.
        let half = half_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((half - 1.57 * 2.0 / 5f64.sqrt() / 3.0).abs() < 1e-12);
        assert_eq!(half_interval(&[]), f64::INFINITY);
    }

    #[test]
    fn a_call_that_was_held_up_is_made_again() {
        let sampling = Sampling::default();
        let one = |best_us, calls: &[f64]| {
            let mut calls = calls.iter();
            let us = sampling.one_call(best_us, 10.0, || calls.next().copied().ok_or(()));
            us.map(|us| (us, calls.len()))
        };
        assert_eq!(one(Some(7.0), &[12.0, 1.0]), Ok((12.0, 1)));
        assert_eq!(one(Some(7.0), &[190.0, 25.0, 14.0, 1.0]), Ok((14.0, 1)));
        assert_eq!(one(None, &[190.0, 1.0]), Ok((190.0, 1)));
        // What is slow each time takes no longer than a sample.
        assert_eq!(one(Some(7.0), &[600.0, 500.0, 700.0, 1.0]), Ok((500.0, 1)));
        assert_eq!(one(Some(7.0), &[190.0]), Err(()));
    }

    #[test]
    fn slow_is_relative_to_the_best() {
        let sampling = Sampling::default();
        assert!(sampling.is_slow(21.0, Some(10.0)) && !sampling.is_slow(19.0, Some(10.0)));
        assert!(!sampling.is_slow(1e9, None));
    }
}
