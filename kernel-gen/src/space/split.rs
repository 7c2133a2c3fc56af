//! The split knob: into which sizes a loop is cut.
//!
//! Nothing is enumerated. The number of ways to choose the remaining sizes depends only on how many are left and on
//! the quotient that is left, so a small table of counts over (sizes left, quotient) lets a rank be turned into
//! sizes, and sizes into a rank, by walking the factors once per size. Only a knob with a filter of its own keeps a
//! list: the ranks that pass.
//!
//! The order is AutoTVM's: the second size varies fastest and the last slowest.

use super::error::SpaceError;
use super::value::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Which sizes a split may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitPolicy {
    /// All divisors of the extent.
    Factors,
    /// All powers of two up to the extent.
    Power2,
    /// Both of them.
    Verbose,
    /// Exactly the splits that are listed.
    Candidate,
}

impl SplitPolicy {
    /// The name that spaces print.
    pub fn name(self) -> &'static str {
        match self {
            SplitPolicy::Factors => "factors",
            SplitPolicy::Power2 => "power2",
            SplitPolicy::Verbose => "verbose",
            SplitPolicy::Candidate => "candidate",
        }
    }
}

type SizesFilter = Arc<dyn Fn(&[i64]) -> bool + Send + Sync>;

/// How to define a split knob.
///
/// A value is a list of `num_outputs` sizes, outermost first; the first is -1, "the rest".
#[derive(Clone)]
pub struct Split {
    product: i64,
    num_outputs: usize,
    policy: SplitPolicy,
    candidates: Vec<Vec<i64>>,
    max_factor: i64,
    no_tail: bool,
    filter: Option<SizesFilter>,
}

impl Split {
    fn new(product: i64, num_outputs: usize, policy: SplitPolicy) -> Split {
        Split {
            product,
            num_outputs,
            policy,
            candidates: vec![],
            max_factor: i64::MAX,
            no_tail: policy == SplitPolicy::Factors,
            filter: None,
        }
    }

    /// All ways to write the extent as a product of `num_outputs` divisors.
    pub fn factors(extent: i64, num_outputs: usize) -> Split {
        Split::new(extent, num_outputs, SplitPolicy::Factors)
    }

    /// Inner sizes are powers of two; their product may leave a tail.
    pub fn power2(extent: i64, num_outputs: usize) -> Split {
        Split::new(extent, num_outputs, SplitPolicy::Power2)
    }

    /// Inner sizes are divisors or powers of two; their product may leave a tail.
    pub fn verbose(extent: i64, num_outputs: usize) -> Split {
        Split::new(extent, num_outputs, SplitPolicy::Verbose)
    }

    /// Exactly these splits, in this order. The first size of each may be -1 or what is left.
    pub fn candidates(extent: i64, num_outputs: usize, candidates: &[&[i64]]) -> Split {
        let mut split = Split::new(extent, num_outputs, SplitPolicy::Candidate);
        split.candidates = candidates.iter().map(|c| c.to_vec()).collect();
        split
    }

    /// No inner size is above `max`.
    pub fn max_factor(mut self, max: i64) -> Split {
        self.max_factor = max;
        self
    }

    /// Whether the product of the inner sizes must divide the extent. That is the default of [`Split::factors`] only.
    pub fn no_tail(mut self, yes: bool) -> Split {
        self.no_tail = yes;
        self
    }

    /// Keeps only the splits whose sizes (outermost first, the first is -1) pass. A knob with a filter holds a list of
    /// what passes, so this is for thousands of splits, not for billions.
    pub fn filter(mut self, keep: impl Fn(&[i64]) -> bool + Send + Sync + 'static) -> Split {
        self.filter = Some(Arc::new(keep));
        self
    }

    pub(super) fn resolve(self, knob: &str) -> Result<SplitKnob, SpaceError> {
        let bad = |cause: String| SpaceError::BadKnob { knob: knob.to_string(), cause };
        if self.product < 1 {
            return Err(bad(format!("the extent to split is {}; it must be at least 1", self.product)));
        }
        if self.num_outputs < 1 {
            return Err(bad("a split has at least one output".to_string()));
        }
        if self.max_factor < 1 {
            return Err(bad(format!("max_factor is {}; it must be at least 1", self.max_factor)));
        }
        let n = self.product;
        let mut factors = match self.policy {
            SplitPolicy::Factors => divisors(n),
            SplitPolicy::Power2 => powers_of_two(n),
            SplitPolicy::Verbose => {
                let mut both = [divisors(n), powers_of_two(n)].concat();
                both.sort_unstable();
                both.dedup();
                both
            }
            SplitPolicy::Candidate => vec![],
        };
        factors.retain(|f| *f <= self.max_factor);
        let mut resolved = SplitKnob {
            product: n,
            num_outputs: self.num_outputs,
            policy: self.policy,
            no_tail: self.no_tail,
            max_factor: self.max_factor,
            factors,
            counts: vec![BTreeMap::new(); self.num_outputs],
            listed: None,
            kept: None,
        };
        if self.policy == SplitPolicy::Candidate {
            let mut listed: Vec<Vec<i64>> = vec![];
            for candidate in &self.candidates {
                let sizes = resolved.canonical(candidate).map_err(|cause| bad(format!("{candidate:?}: {cause}")))?;
                if listed.contains(&sizes) {
                    return Err(bad(format!("{candidate:?} is listed twice")));
                }
                listed.push(sizes);
            }
            listed.retain(|sizes| self.filter.as_ref().is_none_or(|keep| keep(sizes)));
            resolved.listed = Some(listed);
        } else {
            let total = resolved.fill_counts(self.num_outputs - 1, n).ok_or_else(|| bad("too many splits".into()))?;
            if let Some(keep) = &self.filter {
                resolved.kept = Some((0..total).filter(|rank| keep(&resolved.sizes_at(*rank))).collect());
            }
        }
        if resolved.len() == 0 {
            return Err(bad(format!("no split of {n} into {} outputs passes its filter", self.num_outputs)));
        }
        Ok(resolved)
    }
}

/// A split knob of a space.
#[derive(Clone, Debug)]
pub struct SplitKnob {
    product: i64,
    num_outputs: usize,
    policy: SplitPolicy,
    no_tail: bool,
    max_factor: i64,
    /// Allowed inner sizes, ascending.
    factors: Vec<i64>,
    /// `counts[left][quotient]`: ways to choose `left` more sizes when `quotient` is what the extent still holds.
    counts: Vec<BTreeMap<i64, u64>>,
    /// The splits of the candidate policy.
    listed: Option<Vec<Vec<i64>>>,
    /// Ranks that pass the knob's filter, ascending.
    kept: Option<Vec<u64>>,
}

impl SplitKnob {
    /// The extent that is cut.
    pub fn extent(&self) -> i64 {
        self.product
    }

    /// What is left of `quotient` after another inner size, or `None` where the size does not fit. With a tail,
    /// floor(floor(n / a) / b) = floor(n / (a b)), so one number is all the state there is.
    fn take(&self, quotient: i64, factor: i64) -> Option<i64> {
        let fits = if self.no_tail { quotient % factor == 0 } else { factor <= quotient };
        fits.then(|| quotient / factor)
    }

    fn fill_counts(&mut self, left: usize, quotient: i64) -> Option<u64> {
        if left == 0 {
            return Some(1);
        }
        if let Some(known) = self.counts[left].get(&quotient) {
            return Some(*known);
        }
        let mut total = 0u64;
        for i in 0..self.factors.len() {
            if let Some(rest) = self.take(quotient, self.factors[i]) {
                total = total.checked_add(self.fill_counts(left - 1, rest)?)?;
            }
        }
        self.counts[left].insert(quotient, total);
        Some(total)
    }

    fn count(&self, left: usize, quotient: i64) -> u64 {
        if left == 0 { 1 } else { self.counts[left].get(&quotient).copied().unwrap_or(0) }
    }

    /// Sizes at a rank of the unfiltered order.
    fn sizes_at(&self, mut rank: u64) -> Vec<i64> {
        let mut sizes = vec![-1; self.num_outputs];
        let mut quotient = self.product;
        for position in (1..self.num_outputs).rev() {
            for &factor in &self.factors {
                let Some(rest) = self.take(quotient, factor) else { continue };
                let count = self.count(position - 1, rest);
                if rank < count {
                    sizes[position] = factor;
                    quotient = rest;
                    break;
                }
                rank -= count;
            }
        }
        sizes
    }

    fn rank_of_sizes(&self, sizes: &[i64]) -> Option<u64> {
        let mut rank = 0;
        let mut quotient = self.product;
        for position in (1..self.num_outputs).rev() {
            let size = sizes[position];
            self.factors.binary_search(&size).ok()?;
            for &smaller in self.factors.iter().take_while(|f| **f < size) {
                if let Some(rest) = self.take(quotient, smaller) {
                    rank += self.count(position - 1, rest);
                }
            }
            quotient = self.take(quotient, size)?;
        }
        Some(rank)
    }

    /// The sizes with -1 in front, or what is wrong with them.
    fn canonical(&self, sizes: &[i64]) -> Result<Vec<i64>, String> {
        if sizes.len() != self.num_outputs {
            return Err(format!("it has {} sizes, not {}", sizes.len(), self.num_outputs));
        }
        if sizes[1..].iter().any(|s| *s < 1) {
            return Err("every size but the first must be at least 1".to_string());
        }
        let inner = sizes[1..].iter().try_fold(1i64, |p, s| p.checked_mul(*s)).filter(|p| *p <= self.product);
        let Some(inner) = inner else {
            return Err(format!("its inner sizes multiply to more than {}", self.product));
        };
        if self.no_tail && self.product % inner != 0 {
            return Err(format!("its inner sizes multiply to {inner}, which does not divide {}", self.product));
        }
        let rest = (self.product - 1) / inner + 1;
        if sizes[0] != -1 && sizes[0] != rest {
            return Err(format!("its first size must be -1 or {rest}, not {}", sizes[0]));
        }
        let mut canonical = sizes.to_vec();
        canonical[0] = -1;
        Ok(canonical)
    }

    /// Number of splits.
    pub(super) fn len(&self) -> u64 {
        match (&self.listed, &self.kept) {
            (Some(listed), _) => listed.len() as u64,
            (None, Some(kept)) => kept.len() as u64,
            (None, None) => self.count(self.num_outputs - 1, self.product),
        }
    }

    pub(super) fn get(&self, rank: u64) -> Value {
        Value::Split(match (&self.listed, &self.kept) {
            (Some(listed), _) => listed[rank as usize].clone(),
            (None, Some(kept)) => self.sizes_at(kept[rank as usize]),
            (None, None) => self.sizes_at(rank),
        })
    }

    pub(super) fn rank_of(&self, sizes: &[i64]) -> Option<u64> {
        let sizes = self.canonical(sizes).ok()?;
        match (&self.listed, &self.kept) {
            (Some(listed), _) => listed.iter().position(|l| *l == sizes).map(|i| i as u64),
            (None, Some(kept)) => kept.binary_search(&self.rank_of_sizes(&sizes)?).ok().map(|i| i as u64),
            (None, None) => self.rank_of_sizes(&sizes),
        }
    }

    /// What the fingerprint covers. The filter is a function and cannot be covered; a config that it refuses is
    /// found when the config is checked.
    pub(super) fn parameters(&self) -> String {
        let mut text = format!("{self} no_tail={} max_factor={}", self.no_tail, self.max_factor);
        if let Some(listed) = &self.listed {
            text += &format!(" {listed:?}");
        }
        text
    }
}

impl fmt::Display for SplitKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, product, outputs) = (self.policy.name(), self.product, self.num_outputs);
        write!(f, "Split(policy={policy}, product={product}, num_outputs={outputs}) len={}", self.len())
    }
}

/// All divisors of `n`, ascending.
pub fn divisors(n: i64) -> Vec<i64> {
    let mut small = vec![];
    let mut large = vec![];
    let mut d = 1;
    while d <= n / d {
        if n % d == 0 {
            small.push(d);
            if d != n / d {
                large.push(n / d);
            }
        }
        d += 1;
    }
    small.extend(large.into_iter().rev());
    small
}

/// All powers of two up to `n`, ascending.
fn powers_of_two(n: i64) -> Vec<i64> {
    (0..63).map(|e| 1i64 << e).take_while(|p| *p <= n).collect()
}

/// A sane split without any search: from the innermost size outwards, the largest divisor of what is left that is
/// within the limit (-1 is no limit). `None` where a limit is below 1 and not -1.
///
/// ```
/// use kernel_gen::space::fallback_split;
/// assert_eq!(fallback_split(128, &[-1, 8, 4]), Some(vec![4, 8, 4]));
/// assert_eq!(fallback_split(49, &[-1, 8, 4]), Some(vec![7, 7, 1]));
/// assert_eq!(fallback_split(49, &[-1, 0]), None);
/// ```
pub fn fallback_split(extent: i64, limits: &[i64]) -> Option<Vec<i64>> {
    let mut rest = extent;
    let mut sizes = vec![1; limits.len()];
    for (size, &limit) in sizes.iter_mut().zip(limits).rev() {
        let limit = if limit == -1 { i64::MAX } else { limit };
        *size = divisors(rest).into_iter().rev().find(|d| *d <= limit)?;
        rest /= *size;
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(split: Split) -> u64 {
        split.resolve("t").unwrap().len()
    }

    #[test]
    fn lengths_are_autotvms() {
        for make in [Split::factors, Split::power2, Split::verbose] {
            assert_eq!(len(make(256, 3)), 45);
        }
        assert_eq!(len(Split::factors(224, 3)), 63);
        assert_eq!(len(Split::power2(224, 3)), 36);
        assert_eq!(len(Split::verbose(224, 3)), 84);
        assert_eq!(len(Split::factors(1 << 25, 4)), 3276);
        assert_eq!(len(Split::factors(512, 4)), 220);
        assert_eq!(len(Split::factors(7, 4)), 4);
        assert_eq!(len(Split::factors(512, 3)), 55);
        assert_eq!(len(Split::factors(3, 3)), 3);
        assert_eq!(len(Split::factors(12, 1)), 1);
    }

    #[test]
    fn the_second_size_varies_fastest() {
        let knob = Split::factors(512, 4).resolve("t").unwrap();
        let sizes = |r| knob.sizes_at(r);
        assert_eq!(sizes(0), [-1, 1, 1, 1]);
        assert_eq!(sizes(1), [-1, 2, 1, 1]);
        assert_eq!(sizes(9), [-1, 512, 1, 1]);
        assert_eq!(sizes(10), [-1, 1, 2, 1]);
    }

    #[test]
    fn rank_inverts_get_for_every_policy_and_filter() {
        let splits = [
            Split::factors(360, 4),
            Split::power2(100, 3),
            Split::verbose(224, 3),
            Split::factors(360, 3).max_factor(12),
            Split::factors(360, 3).no_tail(false),
            Split::verbose(224, 3).no_tail(true),
            Split::factors(512, 4).filter(|s| s[2] * s[3] >= 8 && s[2] * s[3] < 42),
            Split::candidates(16, 2, &[&[-1, 4], &[2, 8], &[6, 3]]),
        ];
        for split in splits {
            let knob = split.resolve("t").unwrap();
            for rank in 0..knob.len() {
                let Value::Split(sizes) = knob.get(rank) else { panic!("not a split") };
                assert_eq!(knob.rank_of(&sizes), Some(rank), "{knob} {sizes:?}");
            }
        }
    }

    #[test]
    fn lazy_order_equals_depth_first_enumeration() {
        // The enumeration as AutoTVM does it: the last size in the outermost loop.
        fn enumerate(n: i64, factors: &[i64], left: usize, stack: &mut Vec<i64>, out: &mut Vec<Vec<i64>>) {
            if left == 0 {
                if stack.iter().product::<i64>() <= n {
                    let mut sizes = vec![-1];
                    sizes.extend(stack.iter().rev());
                    out.push(sizes);
                }
                return;
            }
            for f in factors {
                stack.push(*f);
                enumerate(n, factors, left - 1, stack, out);
                stack.pop();
            }
        }
        let knob = Split::verbose(224, 4).resolve("t").unwrap();
        let mut expected = vec![];
        enumerate(224, &knob.factors, 3, &mut vec![], &mut expected);
        let lazy: Vec<_> = (0..knob.len()).map(|r| knob.sizes_at(r)).collect();
        assert_eq!(lazy, expected);
    }

    #[test]
    fn a_first_size_that_is_the_rest_is_the_same_split() {
        let knob = Split::factors(128, 3).resolve("t").unwrap();
        assert_eq!(knob.rank_of(&[4, 8, 4]), knob.rank_of(&[-1, 8, 4]));
        assert_eq!(knob.rank_of(&[5, 8, 4]), None);
        assert_eq!(knob.rank_of(&[-1, 8, 3]), None);
        assert_eq!(knob.rank_of(&[-1, 8]), None);
        assert_eq!(knob.rank_of(&[-1, 0, 4]), None);
        assert_eq!(knob.rank_of(&[-1, i64::MAX, i64::MAX]), None);
    }

    #[test]
    fn what_cannot_be_split_is_an_error_that_names_the_knob() {
        let message = |s: Split| s.resolve("tile_x").unwrap_err().to_string();
        assert_eq!(message(Split::factors(0, 2)), "knob `tile_x`: the extent to split is 0; it must be at least 1");
        assert_eq!(
            message(Split::factors(7, 2).filter(|s| s[1] == 2)),
            "knob `tile_x`: no split of 7 into 2 outputs passes its filter"
        );
        assert_eq!(
            message(Split::candidates(16, 2, &[&[3, 5]])),
            "knob `tile_x`: [3, 5]: its first size must be -1 or 4, not 3"
        );
        assert_eq!(message(Split::candidates(16, 2, &[&[4]])), "knob `tile_x`: [4]: it has 1 sizes, not 2");
    }

    #[test]
    fn fallback_takes_the_largest_divisor_within_each_limit() {
        assert_eq!(fallback_split(128, &[-1, 8, 4]), Some(vec![4, 8, 4]));
        assert_eq!(fallback_split(49, &[-1, 8, 4]), Some(vec![7, 7, 1]));
        assert_eq!(fallback_split(128, &[0, 8, 4]), None);
    }
}
