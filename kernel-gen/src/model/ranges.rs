//! Which kernels serve a workload of any number of units (images, rows) in a range.
//!
//! A kernel for the most units runs fewer by doing less, tile by tile; what a tile holds it cannot change, and what is best for
//! many units is not what is best for one. So a range has a few kernels, each for the numbers above those of the one before. What is
//! chosen for a few sizes of the range are the candidates; the cost functions of their templates say how each would do at every
//! size, and where one kernel should end and the next begin.

use crate::records::{Choice, Origin};
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::{Range, Workload};

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
    let steps = kernels(target) as i32 - 1;
    let part = (range.least as f64 / range.most as f64).powf(1.0 / f64::from(steps));
    let mut all: Vec<i64> = (0..=steps).rev().map(|i| (range.most as f64 * part.powi(i)).round() as i64).collect();
    all.dedup();
    all
}

/// Most kernels of a range.
fn kernels(target: &Target) -> usize {
    if target.cpu().is_some() { 3 } else { 5 }
}

/// Sizes at which kernels are compared: all of a short range.
const COMPARED: i64 = 64;
/// How much worse a range may do with one kernel less.
const WORTH_A_KERNEL: f64 = 1.03;

/// The kernels of a range, that for the fewest units first. `candidates` are choices and the sizes that they were made for, the
/// last for the most units.
pub fn rungs(
    registry: &Registry,
    workload: &Workload,
    range: &Range,
    target: &Target,
    candidates: &[(i64, Choice)],
) -> Vec<Rung> {
    let sizes = sizes(range);
    let at: Vec<Workload> = sizes.iter().map(|units| range.at(workload, *units)).collect();
    let price = |choice: &Choice, workload: &Workload| {
        let template = registry.find(&choice.template);
        template.map_or(f64::INFINITY, |t| t.cost(workload, target, &choice.config)).max(f64::MIN_POSITIVE)
    };
    let mut prices: Vec<Vec<f64>> =
        candidates.iter().map(|(_, choice)| at.iter().map(|w| price(choice, w)).collect()).collect();
    trust_what_was_measured(candidates, &sizes, &mut prices);
    let best: Vec<f64> = (0..sizes.len()).map(|i| prices.iter().map(|p| p[i]).fold(f64::INFINITY, f64::min)).collect();
    // How many times as long as the best each candidate takes; none where it cannot be made for so many units.
    let takes = |choice: &Choice, workload: &Workload| {
        let space = registry.find(&choice.template).and_then(|t| t.space(workload, target).ok());
        space.is_some_and(|space| space.normalise(&choice.config).is_ok())
    };
    let ratios: Vec<Vec<f64>> = prices
        .iter()
        .map(|prices| {
            prices.iter().zip(&best).map(|(price, best)| if best.is_finite() { price / best } else { 1.0 }).collect()
        })
        .collect();
    let mut able = vec![vec![None; sizes.len()]; candidates.len()];
    let mut is_able = |c: usize, i: usize| *able[c][i].get_or_insert_with(|| takes(&candidates[c].1, &at[i]));
    let mut best_cover: Option<Cover> = None;
    for count in 1..=kernels(target) {
        let Some(cover) = cover(&ratios, count, &mut is_able) else { continue };
        if best_cover.as_ref().is_none_or(|best| cover.worst * WORTH_A_KERNEL < best.worst) {
            best_cover = Some(cover);
        }
    }
    let mut all: Vec<Rung> = vec![];
    let mut from = 0;
    for (candidate, to) in best_cover.map_or(vec![], |cover| cover.parts) {
        let part = (from..=to).map(|i| (ratios[candidate][i], sizes[i]));
        let worst = part.fold((1.0, sizes[to]), |worst, this| if this.0 > worst.0 { this } else { worst });
        let least = all.last().map_or(range.least, |rung| rung.units.1 + 1);
        all.push(Rung { units: (least, sizes[to]), choice: candidates[candidate].1.clone(), worst });
        from = to + 1;
    }
    all
}

/// The sizes of a range that are looked at.
fn sizes(range: &Range) -> Vec<i64> {
    let all = range.most - range.least + 1;
    if all <= COMPARED {
        return (range.least..=range.most).collect();
    }
    let ratio = range.most as f64 / range.least as f64;
    let size = |i: i64| (range.least as f64 * ratio.powf(i as f64 / (COMPARED - 1) as f64)).round() as i64;
    let mut sizes: Vec<i64> = (0..COMPARED).map(size).collect();
    sizes.dedup();
    sizes
}

/// What was measured to be the best for a size is no worse there than what the cost function holds to be the best.
fn trust_what_was_measured(candidates: &[(i64, Choice)], sizes: &[i64], prices: &mut [Vec<f64>]) {
    for (c, (size, choice)) in candidates.iter().enumerate() {
        let Some(at) = sizes.iter().position(|s| s == size) else { continue };
        if !matches!(choice.origin, Origin::Exact(_) | Origin::SameTarget(_) | Origin::SameCapability(_)) {
            continue;
        }
        let least = prices.iter().map(|p| p[at]).fold(f64::INFINITY, f64::min);
        let factor = least / prices[c][at];
        if factor.is_finite() && factor < 1.0 {
            prices[c].iter_mut().for_each(|price| *price *= factor);
        }
    }
}

/// A range in parts: of each the candidate and its last size.
struct Cover {
    worst: f64,
    parts: Vec<(usize, usize)>,
}

/// The best division of all sizes into at most `count` parts, by the worst ratio of any size, then by their sum.
fn cover(ratios: &[Vec<f64>], count: usize, is_able: &mut dyn FnMut(usize, usize) -> bool) -> Option<Cover> {
    let sizes = ratios.first()?.len();
    // Of the sizes before each: worst ratio, sum, and the parts.
    let mut known: Vec<Option<(f64, f64, Vec<(usize, usize)>)>> = vec![None; sizes + 1];
    known[0] = Some((1.0, 0.0, vec![]));
    for _ in 0..count {
        let mut next = known.clone();
        for to in 0..sizes {
            for (candidate, ratios) in ratios.iter().enumerate() {
                if !is_able(candidate, to) {
                    continue;
                }
                let (mut worst, mut sum) = (1.0f64, 0.0);
                for from in (0..=to).rev() {
                    worst = worst.max(ratios[from]);
                    sum += ratios[from];
                    let Some((before, before_sum, parts)) = &known[from] else { continue };
                    let this = (worst.max(*before), sum + before_sum);
                    let better = |old: &(f64, f64, Vec<_>)| this.0 < old.0 || this.0 == old.0 && this.1 < old.1;
                    if this.0.is_finite() && next[to + 1].as_ref().is_none_or(better) {
                        let mut parts = parts.clone();
                        parts.push((candidate, to));
                        next[to + 1] = Some((this.0, this.1, parts));
                    }
                }
            }
        }
        known = next;
    }
    let (worst, _, parts) = known.pop()??;
    Some(Cover { worst, parts })
}
