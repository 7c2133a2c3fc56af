//! Which kernels serve a workload of any number of units (images, rows) in a range.
//!
//! A kernel for the most units runs fewer by doing less, tile by tile; what a tile holds it cannot change, and what is best for
//! many units is not what is best for one. So a range has a few kernels, each for the numbers above those of the one before. What is
//! chosen for a few sizes of the range are the candidates; the cost functions of their templates say how each would do at every
//! size, and where one kernel should end and the next begin.

use super::roofline::Roofline;
use crate::records::Choice;
use crate::target::{CudaFeature, Target};
use crate::templates::{Registry, Template};
use crate::workload::{Range, Workload};
use std::collections::BTreeMap;

/// One of the kernels of a range.
#[derive(Clone, Debug)]
pub struct Rung {
    /// The fewest units that it is for, and the most.
    pub units: (i64, i64),
    /// Template and config.
    pub choice: Choice,
    /// How many times as long as the best candidate it is expected to take at worst, and for how many units that is.
    pub worst: (f64, i64),
}

/// Sizes that choices are made for, the largest last, each the same part of the next.
pub fn ladder(range: &Range, target: &Target) -> Vec<i64> {
    sizes(range, if target.cpu().is_some() { 3 } else { 9 })
}

/// Most kernels of a range.
fn kernels(target: &Target) -> usize {
    if target.cpu().is_some() { 3 } else { 5 }
}

/// Sizes at which kernels are compared: all of a short range.
const COMPARED: i64 = 64;
/// Sizes at which kernels may end.
const ENDS: i64 = 13;
/// Microseconds that a launch on a GPU takes longer where it waits for the one in front to end. On an H100 0.2 to 0.9 in 43 layers that
/// were measured both ways; `generate/early.rs` says which kernels do not wait.
const WAITS_US: f64 = 0.5;
/// How much worse a range may do with one kernel less.
const WORTH_A_KERNEL: f64 = 1.02;

/// What share of a choice's work, made for the most of the units, is left for each of the numbers of them; none if no kernel can be made.
pub type Shares<'a> = dyn FnMut(&Choice, i64, &[i64]) -> Option<Vec<f64>> + 'a;

/// The kernels of a range, that for the fewest units first. `candidates` are choices and the sizes that they were made for.
pub fn rungs(
    registry: &Registry,
    workload: &Workload,
    range: &Range,
    target: &Target,
    candidates: &[(i64, Choice)],
    shares: &mut Shares<'_>,
) -> Vec<Rung> {
    let ends = self::sizes(range, ENDS);
    let mut sizes = self::sizes(range, COMPARED);
    sizes.extend(candidates.iter().map(|(size, _)| *size).chain(ends.iter().copied()));
    sizes.sort_unstable();
    sizes.dedup();
    let prices = prices(registry, workload, range, target, candidates, &sizes);
    let ends: Vec<usize> = ends.iter().filter_map(|end| sizes.iter().position(|s| s == end)).collect();
    let early = |(_, choice): &(i64, Choice)| {
        let template = registry.find(&choice.template);
        template.map_or(0, |template| most_early(template, target, range.most, |units| range.at(workload, units)))
    };
    let early = candidates.iter().map(early).collect();
    let mut offers = Offers { known: BTreeMap::new(), prices, early, sizes: &sizes };
    // How a kernel does for fewer units than it is made for is found out where that decides.
    while let Some(cover) = offers.cover(&ends, kernels(target)) {
        let unknown: Vec<(usize, usize)> =
            cover.parts.iter().filter(|part| !offers.known.contains_key(part)).copied().collect();
        if unknown.is_empty() {
            return offers.rungs(&cover, range, candidates);
        }
        for (candidate, to) in unknown {
            let shares = shares(&candidates[candidate].1, sizes[to], &sizes[..=to]);
            offers.known.insert((candidate, to), shares);
        }
    }
    vec![]
}

/// What each candidate is expected to take at each size, as it is made for that, in microseconds.
///
/// Cost functions are compared with what was measured: a candidate with a record takes what its cost function says times the ratio of both
/// at the nearest size that it has a record of, one without takes the mean ratio of all records. Where a size has a record, no candidate
/// is taken to be faster than that, which is the fastest that was measured there.
fn prices(
    registry: &Registry,
    workload: &Workload,
    range: &Range,
    target: &Target,
    candidates: &[(i64, Choice)],
    sizes: &[i64],
) -> Vec<Vec<f64>> {
    let at: Vec<Workload> = sizes.iter().map(|units| range.at(workload, *units)).collect();
    let price = |choice: &Choice, workload: &Workload| {
        let template = registry.find(&choice.template).filter(|t| t.admits(workload, target).is_ok());
        template.map_or(f64::INFINITY, |t| t.cost(workload, target, &choice.config)).max(f64::MIN_POSITIVE)
    };
    let of = |(_, choice): &(i64, Choice)| at.iter().map(|w| price(choice, w)).collect();
    let mut prices: Vec<Vec<f64>> = candidates.iter().map(of).collect();
    // Of each record its candidate, the position of its size, its time, and that beside the cost function's.
    let record = |(c, (size, choice)): (usize, &(i64, Choice))| {
        let (at, time) = (sizes.iter().position(|s| s == size)?, choice.origin.measured_here()?.time_us);
        let ratio = time / prices[c][at];
        (ratio.is_finite() && ratio > 0.0).then_some((c, at, time, ratio))
    };
    let records: Vec<(usize, usize, f64, f64)> = candidates.iter().enumerate().filter_map(record).collect();
    let mean = (records.iter().map(|(.., ratio)| ratio.ln()).sum::<f64>() / records.len().max(1) as f64).exp();
    let fastest = |i: usize| records.iter().find(|(_, at, ..)| *at == i).map_or(0.0, |(_, _, time, _)| *time);
    for (prices, (_, choice)) in prices.iter_mut().zip(candidates) {
        let same =
            |c: usize| (&candidates[c].1.template, &candidates[c].1.config) == (&choice.template, &choice.config);
        let own: Vec<&(usize, usize, f64, f64)> = records.iter().filter(|(c, ..)| same(*c)).collect();
        for (i, price) in prices.iter_mut().enumerate() {
            let apart = |at: usize| (sizes[at] as f64 / sizes[i] as f64).ln().abs();
            let nearest = own.iter().min_by(|a, b| apart(a.1).total_cmp(&apart(b.1)));
            *price *= nearest.map_or(mean, |(.., ratio)| *ratio);
            *price = price.max(fastest(i));
        }
    }
    // What the models choose for a size is no worse there than others are by their cost functions.
    for (c, (size, _)) in candidates.iter().enumerate() {
        let Some(at) = sizes.iter().position(|s| s == size) else { continue };
        if records.iter().any(|(record, ..)| *record == c) {
            continue;
        }
        let least = prices.iter().map(|p| p[at]).fold(f64::INFINITY, f64::min);
        let factor = least / prices[c][at];
        if factor.is_finite() && factor < 1.0 {
            prices[c].iter_mut().enumerate().for_each(|(i, price)| *price = (*price * factor).max(fastest(i)));
        }
    }
    prices
}

/// The most units, up to `most`, with which a template's launches begin before those in front of them have ended; 0 if they never do. `at`
/// gives the workload with a number of units.
pub(crate) fn most_early(template: &dyn Template, target: &Target, most: i64, at: impl Fn(i64) -> Workload) -> i64 {
    if !target.cuda().is_some_and(|cuda| cuda.has(CudaFeature::Cluster)) {
        return 0;
    }
    let is_short = |units: i64| {
        let workload = at(units);
        Roofline::new(&workload, target, 1).floor_us(&workload) <= template.longest_early_us()
    };
    // More units take longer.
    let (mut short, mut long) = (0, most + 1);
    while long - short > 1 {
        let middle = short + (long - short) / 2;
        if is_short(middle) { short = middle } else { long = middle }
    }
    short
}

/// Whether kernels made for `most` units begin early where they have few, if those of up to `early` units do: what begins early asks for
/// its weights first, which costs the long ones more than the short ones gain.
pub(crate) fn begins_early(early: i64, most: i64) -> bool {
    early * 2 >= most
}

/// So many sizes of a range at most, each about the same part of the next, the first and the last among them.
pub fn sizes(range: &Range, most: i64) -> Vec<i64> {
    if range.most - range.least < most {
        return (range.least..=range.most).collect();
    }
    let ratio = range.most as f64 / range.least as f64;
    let size = |i: i64| (range.least as f64 * ratio.powf(i as f64 / (most - 1) as f64)).round() as i64;
    let mut sizes: Vec<i64> = (0..most).map(size).collect();
    sizes.dedup();
    sizes
}

/// What is known of candidates as kernels for several sizes.
struct Offers<'a> {
    sizes: &'a [i64],
    /// Of each candidate at each size.
    prices: Vec<Vec<f64>>,
    /// The most units with which each candidate's launches begin early.
    early: Vec<i64>,
    /// The share of its work that a candidate made for one size does for each up to that.
    known: BTreeMap<(usize, usize), Option<Vec<f64>>>,
}

/// A range in parts: of each the candidate and its last size.
#[derive(Clone)]
struct Cover {
    worst: f64,
    mean: f64,
    parts: Vec<(usize, usize)>,
}

impl Offers<'_> {
    /// How many times as long as the best candidate one that is made for a size takes for one up to that.
    fn ratio(&self, best: &[f64], candidate: usize, to: usize, at: usize) -> f64 {
        let prices = &self.prices[candidate];
        let price = match self.known.get(&(candidate, to)) {
            None => prices[at],
            Some(None) => f64::INFINITY,
            Some(Some(shares)) => prices[at].max(prices[to] * shares[at]),
        };
        let waits = self.early[candidate] >= self.sizes[at] && !begins_early(self.early[candidate], self.sizes[to]);
        let price = if waits { price + WAITS_US } else { price };
        if best[at].is_finite() { price / best[at] } else { 1.0 }
    }

    fn best(&self) -> Vec<f64> {
        let least = |i: usize| self.prices.iter().map(|p| p[i]).fold(f64::INFINITY, f64::min);
        (0..self.sizes.len()).map(least).collect()
    }

    /// The division of all sizes into parts that end at some of them, by the worst ratio of any size, then by their mean; with
    /// fewer kernels where more are not worth it.
    fn cover(&self, ends: &[usize], kernels: usize) -> Option<Cover> {
        let (best, candidates) = (self.best(), self.prices.len());
        // Of the parts that end before each end: worst ratio, sum, and which they are.
        let mut known = vec![None; ends.len() + 1];
        known[0] = Some(Cover { worst: 1.0, mean: 0.0, parts: vec![] });
        let mut found: Option<Cover> = None;
        for _ in 0..kernels {
            let mut next: Vec<Option<Cover>> = vec![None; ends.len() + 1];
            for (e, to) in ends.iter().enumerate() {
                for candidate in 0..candidates {
                    let (mut worst, mut sum, mut at) = (1.0f64, 0.0, *to as i64);
                    for before in (0..=e).rev() {
                        let from = if before == 0 { 0 } else { ends[before - 1] + 1 };
                        while at >= from as i64 {
                            let ratio = self.ratio(&best, candidate, *to, at as usize);
                            (worst, sum, at) = (worst.max(ratio), sum + ratio, at - 1);
                        }
                        let Some(cover) = &known[before] else { continue };
                        let this = (worst.max(cover.worst), sum + cover.mean);
                        let better = |old: &Cover| (this.0, this.1) < (old.worst, old.mean);
                        if this.0.is_finite() && next[e + 1].as_ref().is_none_or(better) {
                            let parts = cover.parts.iter().copied().chain([(candidate, *to)]).collect();
                            next[e + 1] = Some(Cover { worst: this.0, mean: this.1, parts });
                        }
                    }
                }
            }
            if let Some(Some(cover)) = next.last() {
                let better =
                    |old: &Cover| cover.worst * WORTH_A_KERNEL < old.worst || cover.mean * WORTH_A_KERNEL < old.mean;
                if found.as_ref().is_none_or(better) {
                    found = Some(cover.clone());
                }
            }
            // The next round adds one part to these covers.
            known = next;
        }
        found
    }

    fn rungs(&self, cover: &Cover, range: &Range, candidates: &[(i64, Choice)]) -> Vec<Rung> {
        let best = self.best();
        let mut all: Vec<Rung> = vec![];
        let mut from = 0;
        for (candidate, to) in &cover.parts {
            let part = (from..=*to).map(|i| (self.ratio(&best, *candidate, *to, i), self.sizes[i]));
            let worst = part.fold((1.0, self.sizes[*to]), |worst, this| if this.0 > worst.0 { this } else { worst });
            let least = all.last().map_or(range.least, |rung| rung.units.1 + 1);
            let choice = candidates[*candidate].1.clone();
            all.push(Rung { units: (least, self.sizes[*to]), choice, worst });
            from = to + 1;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Measurement, Origin};
    use crate::space::Config;
    use crate::templates::testing::Rows;
    use crate::workload::Matmul;

    /// The templates of the kernels of 1 to 64 rows. A candidate is its size, its template and what was measured of it.
    fn divided(candidates: &[(i64, &str, Option<f64>)]) -> Vec<String> {
        let rows = |name, cost| Rows { name, version: 1, cost };
        let registry = Registry::empty().with(rows("slow", 9.0)).with(rows("fast", 2.0));
        let (workload, range) = Range::up_to(&Workload::f32(Matmul::new(64, 32, 16)), 64).unwrap();
        let choice = |(size, template, measured): &(i64, &str, Option<f64>)| {
            let measurement = |time_us| Measurement {
                target: "x86-64-v3".into(),
                device: "CPU".into(),
                threads: 1,
                time_us,
                core_gflops: None,
                floor_us: None,
                is_shipped: false,
            };
            let origin = match measured {
                Some(time_us) => Origin::Exact(measurement(*time_us)),
                None => Origin::Analytic { predicted_us: 1.0 },
            };
            let config = Config::new().with_split("rows", &[-1, 1]);
            let (refusals, passed_over, unusable) = (vec![], None, vec![]);
            (*size, Choice { template: template.to_string(), config, origin, refusals, passed_over, unusable })
        };
        let candidates: Vec<(i64, Choice)> = candidates.iter().map(choice).collect();
        let target = Target::find("x86-64-v3").unwrap();
        let mut shares = |_: &Choice, _: i64, sizes: &[i64]| Some(vec![1.0; sizes.len()]);
        let all = rungs(&registry, &workload, &range, target, &candidates, &mut shares);
        let mut templates: Vec<String> = all.into_iter().map(|rung| rung.choice.template).collect();
        templates.dedup();
        templates
    }

    #[test]
    fn what_was_measured_counts_more_than_cost_functions() {
        // Without records the choice for one row is taken to be as good there as the other, and does not change with the rows.
        assert_eq!(divided(&[(1, "slow", None), (64, "fast", None)]), ["slow"]);
        assert_eq!(divided(&[(1, "slow", Some(9.0)), (64, "fast", Some(3.0))]), ["fast"]);
        assert_eq!(divided(&[(1, "slow", Some(3.0)), (64, "fast", Some(8.0))]), ["slow"]);
        // One without a record is as far from its cost function as those with one: 2 us become 20.
        assert_eq!(divided(&[(1, "slow", Some(90.0)), (64, "fast", None)]), ["fast"]);
        // The nearest record of a candidate counts.
        assert_eq!(divided(&[(1, "slow", Some(3.0)), (16, "slow", Some(4.5)), (64, "fast", Some(8.0))]), ["slow"]);
    }
}
