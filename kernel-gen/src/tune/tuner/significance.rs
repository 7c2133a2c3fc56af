//! Whether one kernel is faster than another, or was only lucky.
//!
//! Welch's t-test (Welch, "The generalization of Student's problem when several different population variances are
//! involved", 1947) on the logarithms of the samples: it needs neither equal variances nor equally many samples, and a
//! ratio means the same for fast and slow kernels. Two samples a side are enough for it, which a rank test is not. A
//! difference below half a per cent is never significant here, however small the variance within a measurement is:
//! clocks and the placement of buffers differ between measurements by as much.
//!
//! AutoTVM's Droplet tuner has the same test, but its default keeps one sample of each measurement, with which it cannot
//! be done; then, as here, the margin decides alone.

/// What a comparison says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The first is faster.
    Faster,
    /// The first is slower.
    Slower,
    /// Nobody can tell.
    Same,
}

/// Probability below which a difference is no accident.
const LEVEL: f64 = 0.05;

/// Logarithm of the smallest ratio that counts.
const LEAST: f64 = 0.005;

/// Logarithm of the smallest ratio that counts where there are too few samples for a test.
const LEAST_UNTESTED: f64 = 0.02;

/// Compares samples of two times.
pub fn compare(first: &[f64], second: &[f64]) -> Verdict {
    let (Some(a), Some(b)) = (Moments::of(first), Moments::of(second)) else { return Verdict::Same };
    let difference = a.mean - b.mean;
    let significant = if a.count < 2.0 || b.count < 2.0 {
        difference.abs() >= LEAST_UNTESTED
    } else {
        difference.abs() >= LEAST && welch(&a, &b) < LEVEL
    };
    match (significant, difference < 0.0) {
        (false, _) => Verdict::Same,
        (true, true) => Verdict::Faster,
        (true, false) => Verdict::Slower,
    }
}

/// Number, mean and variance of logarithms.
struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(samples: &[f64]) -> Option<Moments> {
        if samples.is_empty() || samples.iter().any(|s| !s.is_finite() || *s <= 0.0) {
            return None;
        }
        let count = samples.len() as f64;
        let mean = samples.iter().map(|s| s.ln()).sum::<f64>() / count;
        let squares = samples.iter().map(|s| (s.ln() - mean).powi(2)).sum::<f64>();
        Some(Moments { count, mean, variance: squares / (count - 1.0).max(1.0) })
    }
}

/// Probability of so large a difference of the means between samples of one distribution.
fn welch(a: &Moments, b: &Moments) -> f64 {
    let (va, vb) = (a.variance / a.count, b.variance / b.count);
    let variance = va + vb;
    if variance <= 0.0 {
        return 0.0;
    }
    let t2 = (a.mean - b.mean).powi(2) / variance;
    let freedom = variance.powi(2) / (va.powi(2) / (a.count - 1.0) + vb.powi(2) / (b.count - 1.0));
    // Two tails of Student's distribution.
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t2))
}

/// The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22) in Lentz's form.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let tiny = 1e-300;
    let away = |v: f64| if v.abs() < tiny { tiny } else { v };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..200 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction - before).abs() < 1e-14 * fraction.abs() {
            break;
        }
    }
    front * fraction
}

/// Logarithm of the gamma function for positive numbers, by Lanczos's approximation (g = 7, nine terms).
fn log_gamma(x: f64) -> f64 {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - log_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let t = x + 7.5;
    let sum = TERMS.iter().enumerate().skip(1).fold(TERMS[0], |sum, (i, term)| sum + term / (x + i as f64));
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stable::Rng;

    #[test]
    fn students_distribution_is_that_of_the_tables() {
        // Two-tailed 5 % points: t = 12.706, 2.228, 1.960 with 1, 10 and a million degrees of freedom.
        for (freedom, t) in [(1.0, 12.706_204_736), (10.0, 2.228_138_852), (1e6, 1.959_966)] {
            let p = incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t));
            assert!((p - 0.05).abs() < 1e-6, "{freedom}: {p}");
        }
        assert!(
            (log_gamma(5.0) - 24f64.ln()).abs() < 1e-12
                && (log_gamma(0.5).exp().powi(2) - std::f64::consts::PI).abs() < 1e-12
        );
    }

    #[test]
    fn noise_is_not_taken_for_speed() {
        let mut rng = Rng::new(1);
        // About normal: the mean of a few uniform numbers.
        let mut sample = |mean: f64, noise: f64| -> Vec<f64> {
            (0..7).map(|_| mean * (1.0 + noise * ((0..6).map(|_| rng.unit()).sum::<f64>() - 3.0))).collect()
        };
        let mut count = |ratio: f64| {
            let verdicts: Vec<Verdict> =
                (0..400).map(|_| compare(&sample(100.0 * ratio, 0.03), &sample(100.0, 0.03))).collect();
            [Verdict::Faster, Verdict::Slower].map(|v| verdicts.iter().filter(|f| **f == v).count())
        };
        let [faster, slower] = count(1.0);
        assert!(faster + slower < 400 * 8 / 100, "{faster} {slower}");
        assert!(count(0.9)[0] > 390);
        assert!(count(1.1)[1] > 390);
    }

    #[test]
    fn a_margin_decides_where_no_test_can() {
        assert_eq!(compare(&[100.0], &[101.0]), Verdict::Same);
        assert_eq!(compare(&[97.0], &[100.0]), Verdict::Faster);
        assert_eq!(compare(&[103.0, 103.1], &[100.0]), Verdict::Slower);
        assert_eq!(compare(&[], &[100.0]), Verdict::Same);
        // Samples without variance are still not different by a hair.
        assert_eq!(compare(&[100.0, 100.0], &[100.1, 100.1]), Verdict::Same);
        assert_eq!(compare(&[98.0, 98.0], &[100.0, 100.0]), Verdict::Faster);
    }
}
