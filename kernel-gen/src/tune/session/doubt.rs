//! Whom to doubt: workers whose times others could not repeat.

use crate::records::median;
use crate::tune::measure::Repeated;
use std::collections::BTreeMap;

/// Times of one config on two machines of one kind that differ by more than this factor cannot both be true.
pub(super) const APART: f64 = 1.5;

/// The fewest of its times that others must have repeated before a worker is doubted.
const CHECKS: usize = 3;

/// A worker whose times others could not repeat.
#[derive(Clone, PartialEq, Debug)]
pub struct Doubt {
    /// Its name.
    pub worker: String,
    /// How many of its times others repeated.
    pub checks: usize,
    /// How many of these differ by more than half.
    pub apart: usize,
    /// Its time divided by that of others, in the median.
    pub ratio: f64,
}

/// The workers whose times others could not repeat. The one that most of its checks speak against comes first, and what it says
/// of others counts no more then; of two of whom nobody else says anything, both are doubted.
pub(super) fn doubts(repeated: &[Repeated]) -> Vec<Doubt> {
    let mut left: Vec<&Repeated> = repeated.iter().collect();
    let mut all = vec![];
    loop {
        let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for Repeated { worker, other, ratio } in &left {
            ratios.entry(worker).or_default().push(*ratio);
            ratios.entry(other).or_default().push(1.0 / ratio);
        }
        let apart = |ratios: &[f64]| ratios.iter().filter(|r| !(1.0 / APART..=APART).contains(*r)).count();
        let share = |ratios: &[f64]| apart(ratios) as f64 / ratios.len() as f64;
        let doubted = ratios.iter().filter(|(_, r)| r.len() >= CHECKS && share(r) > 0.5);
        let Some(worst) = doubted.clone().map(|(_, r)| share(r)).max_by(f64::total_cmp) else { return all };
        let worst: Vec<&str> = doubted.filter(|(_, r)| share(r) >= worst).map(|(worker, _)| *worker).collect();
        all.extend(worst.iter().map(|worker| Doubt {
            worker: worker.to_string(),
            checks: ratios[worker].len(),
            apart: apart(&ratios[worker]),
            ratio: median(&ratios[worker]),
        }));
        left.retain(|r| !worst.contains(&&*r.worker) && !worst.contains(&&*r.other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(pairs: &[(&str, &str, f64)]) -> Vec<Repeated> {
        let one = |(worker, other, ratio): &(&str, &str, f64)| Repeated {
            worker: worker.to_string(),
            other: other.to_string(),
            ratio: *ratio,
        };
        pairs.iter().flat_map(|pair| std::iter::repeat_n(one(pair), CHECKS)).collect()
    }

    fn doubted(pairs: &[(&str, &str, f64)]) -> Vec<String> {
        doubts(&repeated(pairs)).into_iter().map(|d| d.worker).collect()
    }

    #[test]
    fn whom_the_others_contradict_is_doubted() {
        let none: [&str; 0] = [];
        assert_eq!(doubted(&[("a", "b", 1.1), ("b", "c", 0.9), ("a", "c", 1.0)]), none);
        assert_eq!(doubted(&[("liar", "b", 0.3), ("b", "c", 0.9), ("liar", "c", 0.4)]), ["liar"]);
        // Most of what is known of `b` comes from the liar.
        assert_eq!(doubted(&[("liar", "b", 0.3), ("b", "liar", 4.0), ("b", "c", 1.0), ("liar", "c", 0.4)]), ["liar"]);
        assert_eq!(doubted(&[("a", "b", 0.3)]), ["a", "b"]);
        assert_eq!(doubts(&repeated(&[("liar", "b", 0.25), ("b", "c", 1.0), ("liar", "c", 0.25)]))[0].ratio, 0.25);
        assert!(doubts(&repeated(&[("a", "b", 0.3)])[..CHECKS - 1]).is_empty(), "two may be chance");
    }
}
