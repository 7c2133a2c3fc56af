//! The reorder knob: in which order loops are nested.
//!
//! Orders are ranked, never listed: permutations lexicographically, interleavings by multinomial coefficients.

use super::error::SpaceError;
use super::value::Value;
use std::fmt;

/// Which orders of the axes are tried.
#[derive(Clone, Debug)]
pub enum Reorder {
    /// As they are.
    Identity,
    /// All permutations.
    All,
    /// Permutations of the axes from the first index to before the second; the others stay.
    IntervalAll(usize, usize),
    /// Exactly these orders, each a list of all axes.
    Candidate(Vec<Vec<String>>),
    /// All ways to interleave the spatial chains without their last loops, followed by all ways to interleave
    /// those last loops with the reduce chains; a chain keeps its order. The first value is the one order that
    /// AutoTVM has: it advances the chain that has most loops left.
    Interleave {
        /// Loops of each spatial axis, outermost first.
        spatial: Vec<Vec<String>>,
        /// Loops of each reduction axis, outermost first.
        reduce: Vec<Vec<String>>,
    },
}

impl Reorder {
    /// The name that spaces print.
    pub fn name(&self) -> &'static str {
        match self {
            Reorder::Identity => "identity",
            Reorder::All => "all",
            Reorder::IntervalAll(..) => "interval_all",
            Reorder::Candidate(_) => "candidate",
            Reorder::Interleave { .. } => "interleave",
        }
    }

    /// [`Reorder::Candidate`] from borrowed names.
    pub fn candidates(orders: &[&[&str]]) -> Reorder {
        Reorder::Candidate(owned(orders))
    }

    /// [`Reorder::Interleave`] from borrowed names.
    pub fn interleave(spatial: &[&[&str]], reduce: &[&[&str]]) -> Reorder {
        Reorder::Interleave { spatial: owned(spatial), reduce: owned(reduce) }
    }

    pub(super) fn resolve(self, knob: &str, axes: &[&str]) -> Result<ReorderKnob, SpaceError> {
        let bad = |cause: String| SpaceError::BadKnob { knob: knob.to_string(), cause };
        let n = axes.len();
        if let Some(twice) = axes.iter().enumerate().find_map(|(i, a)| axes[..i].contains(a).then_some(a)) {
            return Err(bad(format!("the axis `{twice}` is named twice")));
        }
        let position = |name: &String| {
            let found = axes.iter().position(|a| a == name);
            found.ok_or_else(|| bad(format!("`{name}` is not one of the axes {}", axes.join(", "))))
        };
        let positions = |chain: &Vec<String>| chain.iter().map(position).collect::<Result<Vec<usize>, SpaceError>>();
        let orders = match &self {
            Reorder::Identity => Orders::Permute(0, 0),
            Reorder::All => Orders::Permute(0, n),
            Reorder::IntervalAll(begin, end) => {
                if begin > end || *end > n {
                    return Err(bad(format!("the interval {begin}..{end} is outside the {n} axes")));
                }
                Orders::Permute(*begin, *end)
            }
            Reorder::Candidate(list) => {
                let list = list.iter().map(positions).collect::<Result<Vec<_>, _>>()?;
                if let Some(short) = list.iter().find(|order| !is_permutation(order, n)) {
                    return Err(bad(format!("the order {short:?} does not name each of the {n} axes once")));
                }
                if list.is_empty() {
                    return Err(bad("the list of orders is empty".to_string()));
                }
                Orders::Listed(list)
            }
            Reorder::Interleave { spatial, reduce } => {
                let spatial = spatial.iter().map(positions).collect::<Result<Vec<_>, _>>()?;
                let reduce = reduce.iter().map(positions).collect::<Result<Vec<_>, _>>()?;
                let all: Vec<usize> = spatial.iter().chain(&reduce).flatten().copied().collect();
                if !is_permutation(&all, n) {
                    return Err(bad(format!("the chains do not name each of the {n} axes once")));
                }
                let split_at = |chain: &Vec<usize>| chain.len().saturating_sub(1);
                let outer = spatial.iter().map(|c| c[..split_at(c)].to_vec()).collect();
                let inner = spatial.iter().map(|c| c[split_at(c)..].to_vec()).chain(reduce).collect();
                Orders::Interleave(outer, inner)
            }
        };
        let too_many = || bad("too many orders".to_string());
        let len = match &orders {
            Orders::Permute(begin, end) => factorial(end - begin).ok_or_else(too_many)?,
            Orders::Listed(list) => list.len() as u64,
            Orders::Interleave(outer, inner) => {
                let count = |chains: &[Vec<usize>]| merges(&chains.iter().map(Vec::len).collect::<Vec<_>>());
                let both = count(outer).and_then(|o| count(inner)?.checked_mul(o));
                both.ok_or_else(too_many)?
            }
        };
        Ok(ReorderKnob { policy: self.name(), axes: axes.iter().map(|a| a.to_string()).collect(), orders, len })
    }
}

fn owned(chains: &[&[&str]]) -> Vec<Vec<String>> {
    chains.iter().map(|c| c.iter().map(|a| a.to_string()).collect()).collect()
}

fn is_permutation(order: &[usize], n: usize) -> bool {
    order.len() == n && (0..n).all(|i| order.contains(&i))
}

fn factorial(n: usize) -> Option<u64> {
    (1..=n as u64).try_fold(1u64, u64::checked_mul)
}

/// Ways to interleave chains of these lengths: the multinomial coefficient, as a product of binomials.
fn merges(lens: &[usize]) -> Option<u64> {
    let mut total = 0u128;
    let mut count = 1u128;
    for &len in lens {
        for k in 1..=len as u128 {
            total += 1;
            count = count.checked_mul(total)? / k;
        }
    }
    u64::try_from(count).ok()
}

#[derive(Clone, Debug)]
enum Orders {
    /// Permutations of the axes in the half-open interval.
    Permute(usize, usize),
    Listed(Vec<Vec<usize>>),
    /// Chains of the outer and of the inner part; the inner part varies fastest.
    Interleave(Vec<Vec<usize>>, Vec<Vec<usize>>),
}

/// A reorder knob of a space.
#[derive(Clone, Debug)]
pub struct ReorderKnob {
    policy: &'static str,
    axes: Vec<String>,
    orders: Orders,
    len: u64,
}

/// The chains that may be advanced, the one with most loops left first.
fn by_remaining(remaining: &[usize]) -> Vec<usize> {
    let mut chains: Vec<usize> = (0..remaining.len()).filter(|c| remaining[*c] > 0).collect();
    chains.sort_by_key(|c| std::cmp::Reverse(remaining[*c]));
    chains
}

/// Interleavings once `chain` has been advanced. The whole count was checked to fit, so a part of it does.
fn merges_after(remaining: &[usize], chain: usize) -> u64 {
    let mut rest = remaining.to_vec();
    rest[chain] -= 1;
    merges(&rest).unwrap_or(u64::MAX)
}

fn merge_at(chains: &[Vec<usize>], mut rank: u64) -> Vec<usize> {
    let mut remaining: Vec<usize> = chains.iter().map(Vec::len).collect();
    let mut order = vec![];
    while remaining.iter().any(|r| *r > 0) {
        for chain in by_remaining(&remaining) {
            let count = merges_after(&remaining, chain);
            if rank < count {
                order.push(chains[chain][chains[chain].len() - remaining[chain]]);
                remaining[chain] -= 1;
                break;
            }
            rank -= count;
        }
    }
    order
}

fn rank_of_merge(chains: &[Vec<usize>], order: &[usize]) -> Option<u64> {
    let mut remaining: Vec<usize> = chains.iter().map(Vec::len).collect();
    let mut rank = 0;
    for axis in order {
        let next = |c: usize| chains[c][chains[c].len() - remaining[c]];
        let candidates = by_remaining(&remaining);
        let wanted = *candidates.iter().find(|c| next(**c) == *axis)?;
        for &chain in candidates.iter().take_while(|c| **c != wanted) {
            rank += merges_after(&remaining, chain);
        }
        remaining[wanted] -= 1;
    }
    Some(rank)
}

impl ReorderKnob {
    /// Number of orders.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn get(&self, mut rank: u64) -> Value {
        Value::Perm(match &self.orders {
            Orders::Listed(list) => list[rank as usize].clone(),
            Orders::Permute(begin, end) => {
                let mut left: Vec<usize> = (*begin..*end).collect();
                let mut order: Vec<usize> = (0..*begin).collect();
                while !left.is_empty() {
                    let block = factorial(left.len() - 1).unwrap_or(u64::MAX);
                    order.push(left.remove((rank / block) as usize));
                    rank %= block;
                }
                order.extend(*end..self.axes.len());
                order
            }
            Orders::Interleave(outer, inner) => {
                let inner_len = merges(&inner.iter().map(Vec::len).collect::<Vec<_>>()).unwrap_or(u64::MAX);
                let mut order = merge_at(outer, rank / inner_len);
                order.extend(merge_at(inner, rank % inner_len));
                order
            }
        })
    }

    pub(super) fn rank_of(&self, order: &[usize]) -> Option<u64> {
        if !is_permutation(order, self.axes.len()) {
            return None;
        }
        match &self.orders {
            Orders::Listed(list) => list.iter().position(|o| o == order).map(|i| i as u64),
            Orders::Permute(begin, end) => {
                let fixed = |i: &usize| order[*i] == *i;
                if !(0..*begin).chain(*end..order.len()).all(|i| fixed(&i)) {
                    return None;
                }
                let mut left: Vec<usize> = (*begin..*end).collect();
                let mut rank = 0;
                for axis in &order[*begin..*end] {
                    let place = left.iter().position(|l| l == axis)?;
                    left.remove(place);
                    rank += place as u64 * factorial(left.len())?;
                }
                Some(rank)
            }
            Orders::Interleave(outer, inner) => {
                let cut = outer.iter().map(Vec::len).sum();
                let inner_len = merges(&inner.iter().map(Vec::len).collect::<Vec<_>>())?;
                Some(rank_of_merge(outer, &order[..cut])? * inner_len + rank_of_merge(inner, &order[cut..])?)
            }
        }
    }

    pub(super) fn parameters(&self) -> String {
        format!("{self} axes={} {:?}", self.axes.join(","), self.orders)
    }
}

impl fmt::Display for ReorderKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reorder(policy={}) len={}", self.policy, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(knob: &ReorderKnob) -> Vec<Vec<usize>> {
        let all: Vec<Vec<usize>> = (0..knob.len())
            .map(|rank| {
                let Value::Perm(order) = knob.get(rank) else { panic!("not an order") };
                assert_eq!(knob.rank_of(&order), Some(rank), "{order:?}");
                order
            })
            .collect();
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
        all
    }

    #[test]
    fn permutations_are_ranked_lexicographically() {
        let axes = ["a", "b", "c", "d"];
        assert_eq!(round_trip(&Reorder::Identity.resolve("t", &axes).unwrap()), [[0, 1, 2, 3]]);
        let all = round_trip(&Reorder::All.resolve("t", &axes).unwrap());
        assert_eq!((all.len(), &all[1]), (24, &vec![0, 1, 3, 2]));
        let some = round_trip(&Reorder::IntervalAll(1, 3).resolve("t", &axes).unwrap());
        assert_eq!(some, [[0, 1, 2, 3], [0, 2, 1, 3]]);
        let knob = Reorder::IntervalAll(1, 3).resolve("t", &axes).unwrap();
        assert_eq!(knob.rank_of(&[1, 0, 2, 3]), None);
        assert_eq!(knob.rank_of(&[0, 1, 2]), None);
    }

    #[test]
    fn interleave_starts_with_autotvms_order_and_has_the_others() {
        let policy = Reorder::interleave(&[&["y", "yi"], &["x", "xi"]], &[&["k", "ki"]]);
        let orders = round_trip(&policy.resolve("t", &["y", "yi", "x", "xi", "k", "ki"]).unwrap());
        assert_eq!(orders[0], [0, 2, 4, 1, 3, 5]);
        // Two orders of y and x, and 4!/2! interleavings of yi, xi and the chain k ki.
        assert_eq!(orders.len(), 24);
    }

    #[test]
    fn mistakes_name_the_axis() {
        let message = |r: Reorder| r.resolve("order", &["a", "b"]).unwrap_err().to_string();
        assert_eq!(message(Reorder::candidates(&[&["a", "c"]])), "knob `order`: `c` is not one of the axes a, b");
        assert_eq!(
            message(Reorder::candidates(&[&["a"]])),
            "knob `order`: the order [0] does not name each of the 2 axes once"
        );
        assert_eq!(message(Reorder::IntervalAll(1, 3)), "knob `order`: the interval 1..3 is outside the 2 axes");
        let axes: Vec<String> = (0..40).map(|i| format!("a{i}")).collect();
        let axes: Vec<&str> = axes.iter().map(String::as_str).collect();
        assert_eq!(Reorder::All.resolve("o", &axes).unwrap_err().to_string(), "knob `o`: too many orders");
    }
}
