//! What is expected of configs that were not measured, and how sure that is.
//!
//! The template's prediction is a straight line away from the truth, as far as the measurements show: its slope starts
//! at 1 and is pulled towards what they say, down to 0 where the prediction means nothing. Boosted trees fit what is
//! left. Several of them see different parts of the rows and columns (Breiman, "Bagging predictors", 1996); where they
//! disagree, nobody knows.

use super::trees::{Labels, Loss, Matrix, Parameters, Trees};
use std::thread;

/// What a model is to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Objective {
    /// Times: logarithms of microseconds.
    Time,
    /// Only which config is faster; larger is slower, and the numbers mean nothing else.
    Order,
}

/// An opinion on one config.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The mean of the members: a logarithm of microseconds, or an order.
    pub mean: f64,
    /// Their standard deviation.
    pub spread: f64,
}

/// Boosted trees on top of a prediction. See the module's text.
#[derive(Clone, Debug)]
pub struct Surrogate {
    intercept: f64,
    slope: f64,
    /// Predictions above it count as this one.
    most_prior: f64,
    members: Vec<Trees>,
}

/// Number of fits that differ in the rows and columns they see.
const MEMBERS: usize = 6;

/// Logarithm of how much slower than the best a config may be before it does not matter any more: 10 times.
const FAR: f64 = 2.3;

/// Measurements that the template's prediction is worth.
const PRIOR_WEIGHT: f64 = 6.0;

impl Surrogate {
    /// Fits the configs that were tried: their rows, what is predicted of them (logarithms of microseconds) and what was
    /// measured (likewise, none for a config that failed). None as long as nothing was timed.
    pub fn fit(
        rows: &Matrix,
        priors: &[f64],
        measured: &[Option<f64>],
        objective: Objective,
        seed: u64,
        threads: usize,
    ) -> Option<Surrogate> {
        let best = measured.iter().flatten().copied().min_by(f64::total_cmp)?;
        // How slow slow configs are is of no interest, and neither is it how often a config failed.
        let slow = |time: f64| best + (time - best).min(FAR);
        let worst = measured.iter().flatten().copied().map(slow).fold(best + 1.0, f64::max);
        let targets: Vec<f64> = measured.iter().map(|time| time.map_or(worst, slow)).collect();
        let least_prior = priors.iter().copied().fold(f64::INFINITY, f64::min);
        let most_prior = least_prior + 2.0 * FAR;
        let priors: Vec<f64> = priors.iter().map(|p| p.min(most_prior)).collect();
        let (intercept, slope) = line(&priors, &targets);
        let margins: Vec<f64> = priors.iter().map(|p| intercept + slope * p).collect();
        let parameters = |member: usize| Parameters {
            loss: match objective {
                Objective::Time => Loss::Squared,
                Objective::Order => Loss::Rank,
            },
            rounds: 40,
            depth: if targets.len() < 40 { 3 } else { 4 },
            learning_rate: 0.2,
            l2: if objective == Objective::Time { 1.0 } else { 0.2 },
            row_share: 0.8,
            column_share: 0.5,
            seed: seed.wrapping_add(member as u64),
            ..Parameters::default()
        };
        let labels = Labels { targets: &targets, margins: &margins, groups: &[] };
        let members = in_parallel(MEMBERS, threads, |member| Trees::fit(rows, labels, &parameters(member)));
        Some(Surrogate { intercept, slope, most_prior, members })
    }

    /// What the members say of a config, one after the other.
    pub fn opinions(&self, row: &[f32], prior: f64) -> impl ExactSizeIterator<Item = f64> {
        let margin = self.intercept + self.slope * prior.min(self.most_prior);
        self.members.iter().map(move |member| margin + member.predict(row))
    }

    /// Their mean and spread.
    pub fn estimate(&self, row: &[f32], prior: f64) -> Estimate {
        let count = self.members.len() as f64;
        let mean = self.opinions(row, prior).sum::<f64>() / count;
        let squares = self.opinions(row, prior).map(|o| (o - mean).powi(2)).sum::<f64>();
        Estimate { mean, spread: (squares / count).sqrt() }
    }

    /// How much of the template's prediction the measurements bear out: 1 for all of it, 0 if it means nothing.
    pub fn slope(&self) -> f64 {
        self.slope
    }
}

/// Intercept and slope of the straight line through the points, as if some more of them had shown the slope 1.
fn line(x: &[f64], y: &[f64]) -> (f64, f64) {
    let count = x.len() as f64;
    let mean = |v: &[f64]| v.iter().sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let variance = x.iter().map(|a| (a - mean_x).powi(2)).sum::<f64>() / count;
    let covariance = x.iter().zip(y).map(|(a, b)| (a - mean_x) * (b - mean_y)).sum::<f64>() / count;
    // Points that are all at one place say nothing of the slope.
    let slope =
        if variance < 1e-12 { 1.0 } else { (count * covariance / variance + PRIOR_WEIGHT) / (count + PRIOR_WEIGHT) };
    let slope = slope.clamp(0.0, 1.5);
    (mean_y - slope * mean_x, slope)
}

/// The results for the numbers below `count`, in their order, by at most so many threads.
pub(crate) fn in_parallel<T: Send>(count: usize, threads: usize, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = threads.clamp(1, count.max(1));
    if threads == 1 {
        return (0..count).map(make).collect();
    }
    let each = count.div_ceil(threads);
    thread::scope(|scope| {
        let make = &make;
        let workers: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || (t * each..((t + 1) * each).min(count)).map(make).collect::<Vec<T>>()))
            .collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Vec<T>>| match worker.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().flat_map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stable::Rng;

    #[test]
    fn a_prediction_counts_as_far_as_it_is_true() {
        let x: Vec<f64> = (0..60).map(f64::from).collect();
        let same: Vec<f64> = x.iter().map(|v| v + 3.0).collect();
        assert!((line(&x, &same).1 - 1.0).abs() < 1e-9 && (line(&x, &same).0 - 3.0).abs() < 1e-9);
        let against: Vec<f64> = x.iter().map(|v| -v).collect();
        assert_eq!(line(&x, &against).1, 0.0);
        // Two points against it are not enough.
        assert!(line(&x[..2], &against[..2]).1 > 0.4);
        assert_eq!(line(&[1.0, 1.0], &[4.0, 6.0]), (4.0, 1.0));
    }

    #[test]
    fn it_corrects_a_prediction_and_knows_where_it_does_not_know() {
        let mut rng = Rng::new(1);
        let (mut rows, mut priors, mut measured) = (Matrix::new(2), vec![], vec![]);
        // The prediction misses that the second column doubles the time; the half above 0.5 was never seen.
        for _ in 0..120 {
            let (a, b) = (rng.unit() * 0.5, f64::from(u8::from(rng.one_in(2))));
            rows.push(&[a as f32, b as f32]);
            priors.push(a);
            measured.push(Some(a + b * 2f64.ln()));
        }
        let model = Surrogate::fit(&rows, &priors, &measured, Objective::Time, 1, 2).unwrap();
        let [fast, slow] = [0.0, 1.0].map(|b| model.estimate(&[0.2, b], 0.2).mean);
        assert!((fast - 0.2).abs() < 0.1 && (slow - 0.2 - 2f64.ln()).abs() < 0.1, "{fast} {slow}");
        let order = Surrogate::fit(&rows, &priors, &measured, Objective::Order, 1, 1).unwrap();
        assert!(order.estimate(&[0.2, 0.0], 0.2).mean < order.estimate(&[0.2, 1.0], 0.2).mean);
        assert!(Surrogate::fit(&rows, &priors, &vec![None; 120], Objective::Time, 1, 1).is_none());
    }

    #[test]
    fn work_is_shared_out_in_order() {
        for threads in [1, 2, 3, 16, 100] {
            assert_eq!(in_parallel(10, threads, |i| i * i), (0..10).map(|i| i * i).collect::<Vec<_>>());
        }
        assert!(in_parallel(0, 4, |i| i).is_empty());
    }
}
