//! A Gaussian process: what is expected between few points, and how far off that may be.
//!
//! Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), chapters 2 and 5. The kernel is Matern's with
//! smoothness 5/2 on distances in which each group of columns has a weight of its own (automatic relevance
//! determination); weights, and the share of noise, are those that make the points likeliest, found one after the other
//! from a few values each. What is said of points is relative to a mean that the caller takes off first.

use super::trees::Matrix;

/// What a process expects of a point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Belief {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// A fitted process.
#[derive(Clone, Debug)]
pub struct Process {
    /// What each column is multiplied with: its weight over its width.
    scales: Vec<f32>,
    points: Vec<Vec<f32>>,
    signal: f64,
    /// The lower triangle of the Cholesky factor of the covariance of the points, row by row.
    factor: Vec<f64>,
    /// The inverse covariance times the values.
    solved: Vec<f64>,
}

/// Weights that a group may have.
const WEIGHTS: [f64; 5] = [0.0, 0.1, 0.4, 1.6, 6.4];

/// Shares of the variance that may be noise.
const NOISES: [f64; 3] = [0.003, 0.03, 0.2];

impl Process {
    /// Fits the rows with these numbers to values. `groups` has a number for each column; columns of one group share a
    /// weight. None without points, or if all values are the same.
    pub fn fit(rows: &Matrix, chosen: &[usize], values: &[f64], groups: &[usize]) -> Option<Process> {
        let count = chosen.len();
        if count < 2 || values.iter().all(|v| *v == values[0]) {
            return None;
        }
        let widths = widths(rows, chosen);
        let total = groups.iter().max().map_or(0, |g| g + 1);
        // Squared distances of all pairs in each group.
        let mut apart = vec![vec![0.0f64; count * count]; total];
        let mut sizes = vec![0.0f64; total];
        for (column, group) in groups.iter().enumerate() {
            if widths[column] > 0.0 {
                sizes[*group] += 1.0;
                for i in 0..count {
                    for j in 0..i {
                        let d = f64::from((rows.row(chosen[i])[column] - rows.row(chosen[j])[column]) * widths[column]);
                        apart[*group][i * count + j] += d * d;
                    }
                }
            }
        }
        let used: Vec<usize> = (0..total).filter(|g| sizes[*g] > 0.0).collect();
        for g in &used {
            apart[*g].iter_mut().for_each(|d| *d /= sizes[*g]);
        }
        let mut weights = vec![0.0; total];
        used.iter().for_each(|g| weights[*g] = 0.4);
        let mut noise = NOISES[1];
        let mut sums: Vec<f64> = vec![0.0; count * count];
        let add = |sums: &mut [f64], group: usize, weight: f64| {
            sums.iter_mut().zip(&apart[group]).for_each(|(s, d)| *s += weight * d);
        };
        used.iter().for_each(|g| add(&mut sums, *g, weights[*g]));
        let mut best = likelihood(&sums, noise, values);
        for _ in 0..2 {
            for g in &used {
                let before = weights[*g];
                for weight in WEIGHTS {
                    if weight == weights[*g] {
                        continue;
                    }
                    let mut tried = sums.clone();
                    add(&mut tried, *g, weight - weights[*g]);
                    // One weight more at work must earn its place.
                    let found = likelihood(&tried, noise, values) - if weight > before { 0.5 } else { 0.0 };
                    if found > best {
                        best = found;
                        sums = tried;
                        weights[*g] = weight;
                    }
                }
            }
            for other in NOISES {
                let found = likelihood(&sums, other, values);
                if found > best {
                    (best, noise) = (found, other);
                }
            }
        }
        let factor = cholesky(&sums, noise)?;
        let half = forward(&factor, values);
        let signal = half.iter().map(|h| h * h).sum::<f64>() / count as f64;
        let solved = backward(&factor, &half);
        let scale = |(c, g): (usize, &usize)| widths[c] * (weights[*g] / sizes[*g].max(1.0)).sqrt() as f32;
        let scales: Vec<f32> = groups.iter().enumerate().map(scale).collect();
        let points = chosen.iter().map(|r| scaled(rows.row(*r), &scales)).collect();
        Some(Process { scales, points, signal, factor, solved })
    }

    /// The covariances of a point with those of the fit.
    fn covariances(&self, row: &[f32]) -> Vec<f64> {
        let row = scaled(row, &self.scales);
        self.points.iter().map(|p| matern(distance(&row, p))).collect()
    }

    /// The mean that is expected of a point; much cheaper than [`believe`](Process::believe).
    pub fn mean(&self, row: &[f32]) -> f64 {
        self.covariances(row).iter().zip(&self.solved).map(|(c, s)| c * s).sum()
    }

    /// What is expected of a point.
    pub fn believe(&self, row: &[f32]) -> Belief {
        let covariances = self.covariances(row);
        let mean = covariances.iter().zip(&self.solved).map(|(c, s)| c * s).sum();
        let explained: f64 = forward(&self.factor, &covariances).iter().map(|h| h * h).sum();
        Belief { mean, deviation: (self.signal * (1.0 - explained).max(0.0)).sqrt() }
    }
}

fn widths(rows: &Matrix, chosen: &[usize]) -> Vec<f32> {
    let width = |column: usize| {
        let values = chosen.iter().map(|r| rows.row(*r)[column]);
        let low = values.clone().fold(f32::INFINITY, f32::min);
        let high = values.fold(f32::NEG_INFINITY, f32::max);
        if high > low { 2.0 / (high - low) } else { 0.0 }
    };
    (0..rows.columns()).map(width).collect()
}

fn scaled(row: &[f32], scales: &[f32]) -> Vec<f32> {
    row.iter().zip(scales).filter(|(_, s)| **s > 0.0).map(|(v, s)| v * s).collect()
}

/// Squared.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    f64::from(a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f32>())
}

fn matern(squared: f64) -> f64 {
    let d = (5.0 * squared).sqrt();
    (1.0 + d + d * d / 3.0) * (-d).exp()
}

/// The logarithm of the likelihood of the values, the signal's variance being the likeliest; without constants.
fn likelihood(squared: &[f64], noise: f64, values: &[f64]) -> f64 {
    let Some(factor) = cholesky(squared, noise) else { return f64::NEG_INFINITY };
    let count = values.len();
    let fit = forward(&factor, values).iter().map(|h| h * h).sum::<f64>() / count as f64;
    let volume: f64 = (0..count).map(|i| factor[i * (i + 1) / 2 + i].ln()).sum();
    -0.5 * count as f64 * fit.max(1e-12).ln() - volume
}

/// The factor of the covariance at these squared distances (lower triangle of a full matrix).
fn cholesky(squared: &[f64], noise: f64) -> Option<Vec<f64>> {
    let count = squared.len().isqrt();
    let mut factor = vec![0.0; count * (count + 1) / 2];
    for i in 0..count {
        let row = i * (i + 1) / 2;
        for j in 0..=i {
            let other = j * (j + 1) / 2;
            let known: f64 = (0..j).map(|k| factor[row + k] * factor[other + k]).sum();
            let value = if i == j { 1.0 + noise } else { matern(squared[i * count + j]) } - known;
            if i == j {
                if value <= 1e-10 {
                    return None;
                }
                factor[row + i] = value.sqrt();
            } else {
                factor[row + j] = value / factor[other + j];
            }
        }
    }
    Some(factor)
}

fn forward(factor: &[f64], values: &[f64]) -> Vec<f64> {
    let mut out: Vec<f64> = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let row = i * (i + 1) / 2;
        let known: f64 = out.iter().zip(&factor[row..row + i]).map(|(o, f)| o * f).sum();
        out.push((value - known) / factor[row + i]);
    }
    out
}

fn backward(factor: &[f64], values: &[f64]) -> Vec<f64> {
    let mut out = values.to_vec();
    for i in (0..values.len()).rev() {
        out[i] /= factor[i * (i + 1) / 2 + i];
        for j in 0..i {
            out[j] -= out[i] * factor[i * (i + 1) / 2 + j];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points on a grid of which only the first column means something.
    fn wave(count: usize) -> (Matrix, Vec<f64>) {
        let mut rows = Matrix::new(2);
        for i in 0..count {
            rows.push(&[i as f32 / 10.0, (i * 7 % 5) as f32]);
        }
        let values = (0..count).map(|i| (i as f64 / 10.0).sin()).collect();
        (rows, values)
    }

    #[test]
    fn it_fills_in_what_was_left_out_and_is_unsure_far_away() {
        let (rows, values) = wave(40);
        let chosen: Vec<usize> = (0..40).filter(|i| i % 3 != 1).collect();
        let known: Vec<f64> = chosen.iter().map(|i| values[*i]).collect();
        let process = Process::fit(&rows, &chosen, &known, &[0, 1]).unwrap();
        for i in (1..39).step_by(3) {
            let belief = process.believe(rows.row(i));
            assert!((belief.mean - values[i]).abs() < 0.1, "{i}: {belief:?}, not {}", values[i]);
            assert!((belief.mean - process.mean(rows.row(i))).abs() < 1e-12);
        }
        let [near, far] = [2.0, 20.0].map(|x| process.believe(&[x, 0.0]).deviation);
        assert!(far > 3.0 * near, "{near} {far}");
    }

    #[test]
    fn nothing_to_learn_gives_no_process() {
        let (rows, _) = wave(3);
        assert!(Process::fit(&rows, &[], &[], &[0, 1]).is_none());
        assert!(Process::fit(&rows, &[0, 1, 2], &[1.0; 3], &[0, 1]).is_none());
    }
}
