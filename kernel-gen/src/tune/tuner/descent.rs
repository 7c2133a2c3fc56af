//! Coordinate descent: from the best known config, all values of one knob, then a step to the best of them, then the next
//! knob.
//!
//! Droplet Search (Canesche et al., "The Droplet Search Algorithm for Kernel Scheduling", 2024) found such a descent from
//! a good start to be worth ten times the trials of a genetic search. A step is taken only if the new config is faster
//! beyond doubt (see [`compare`](super::compare)): a walk along noise ends nowhere.
//!
//! AutoTVM's Droplet tuner starts at the first value of every knob; this one starts at what the template predicts to be
//! fast (corrected by earlier tasks), or at the best of an earlier run. A knob with very many values shows the sixteen
//! that are expected to be fastest and the sixteen that are nearest first; when no knob has a better value any more, twice
//! as many, until all were seen. Then the walk starts again from the best place far from all of its ends.

use super::driver::{Known, Method};
use super::pool::{Pool, Scope};
use crate::space::Space;

pub(super) struct Descent<'t> {
    scope: Scope<'t>,
    pool: Option<Pool>,
    /// Where it stands.
    at: Option<u64>,
    /// The knob that is looked at.
    knob: usize,
    /// Knobs in a row that gave no step.
    idle: usize,
    /// Values of a knob that are looked at, by either order.
    reach: usize,
    /// Where walks have ended.
    ends: Vec<u64>,
}

/// Values of a knob that are looked at, by either order, at first.
const REACH: usize = 8;

impl<'t> Descent<'t> {
    pub(super) fn new(scope: Scope<'t>) -> Descent<'t> {
        Descent { scope, pool: None, at: None, knob: 0, idle: 0, reach: REACH, ends: vec![] }
    }

    /// Configs that differ in one knob only, those that are expected to be fast and those that are near.
    fn around(&self, at: u64, knob: usize) -> Vec<u64> {
        let space = self.scope.space();
        let mut all = values_of(space, at, knob);
        if all.len() <= 2 * self.reach {
            return all;
        }
        let rank = space.point_of(at)[knob];
        let distance = |index: &u64| space.point_of(*index)[knob].abs_diff(rank);
        let priors = self.scope.priors(&all);
        let mut by_prior: Vec<usize> = (0..all.len()).collect();
        by_prior.sort_by(|a, b| priors[*a].total_cmp(&priors[*b]));
        let mut out: Vec<u64> = by_prior.iter().take(self.reach).map(|i| all[*i]).collect();
        all.retain(|i| !out.contains(i));
        all.sort_by_key(distance);
        out.extend(all.iter().take(self.reach));
        out
    }

    /// Where to begin: at the best that is known on the first walk, and far from the ends of all walks later.
    fn start(&mut self, known: &Known<'_>) -> Option<u64> {
        if let (true, Some(best)) = (self.ends.is_empty(), known.fastest()) {
            return Some(best.index);
        }
        let mut pool = self.pool.take().unwrap_or_else(|| Pool::new(&self.scope));
        pool.add(&self.scope, self.ends.iter().copied());
        let start = pool.best_unlike(&self.ends, &pool.priors, |i| !known.is_seen(i));
        self.pool = Some(pool);
        start
    }
}

/// All configs that differ from one in the value of one knob.
fn values_of(space: &Space, at: u64, knob: usize) -> Vec<u64> {
    let mut point = space.point_of(at);
    let (rank, len) = (point[knob], space.dims()[knob]);
    let mut out = vec![];
    for other in (0..len).filter(|other| *other != rank) {
        point[knob] = other;
        let index = space.index_of_point(&point);
        if space.is_valid(index) {
            out.push(index);
        }
    }
    out
}

impl Method for Descent<'_> {
    fn name(&self) -> &'static str {
        "descent"
    }

    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64> {
        let knobs = known.space.dims().len();
        loop {
            let Some(at) = self.at else {
                let Some(start) = self.start(known) else { return vec![] };
                (self.at, self.idle, self.reach) = (Some(start), 0, REACH);
                if known.is_seen(start) { continue } else { return vec![start] }
            };
            if knobs == 0 || self.idle == knobs {
                let all_seen = self.reach as u64 >= known.space.dims().into_iter().max().unwrap_or(0);
                // Twice as far is worth it at the best end only.
                if all_seen || known.fastest().is_none_or(|best| best.index != at) {
                    self.ends.push(at);
                    self.at = None;
                } else {
                    self.idle = 0;
                    self.reach *= 2;
                }
                continue;
            }
            // The outcomes of the batch before are known: a step first.
            let around = self.around(at, self.knob);
            let fresh: Vec<u64> = around.iter().copied().filter(|i| !known.is_seen(*i)).collect();
            if !fresh.is_empty() {
                return fresh;
            }
            let time = |i: &u64| known.log_us(*i).unwrap_or(f64::INFINITY);
            let best = around.iter().copied().min_by(|a, b| time(a).total_cmp(&time(b)));
            self.knob = (self.knob + 1) % knobs;
            self.idle += 1;
            if let Some(best) = best.filter(|b| known.beats(*b, at)) {
                (self.at, self.idle) = (Some(best), 1);
            }
        }
    }
}
