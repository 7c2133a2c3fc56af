//! The task scheduler: trials go where they are expected to save the most time of the whole network.
//!
//! As in Ansor (Zheng et al. 2020, section 6), the value of a task's next batch is a derivative of the network's time: how
//! often the layer occurs, times by how much the batch is expected to lower its time. The expectation has two parts, each
//! in microseconds:
//!
//! * *momentum*: what the task's last batches gained, on average;
//! * *hope*: what is left above the target's roofline, times the chance `k / (n + k)` that the best of `n + k` equal draws
//!   is among the last `k`. It makes every task worth a try, and fades as trials bring nothing.
//!
//! Before that every workload gets a few trials ([`warm_up`]): what a layer has to give is not known before something but
//! its default was tried.
//!
//! Templates of one workload compete: only what goes below the best of all of them counts, and a template that is behind
//! by a factor is worth less by its square.

use super::session::{Board, Standing};

/// Trials of a batch in the formulas; the same as what a tuner is asked for.
const BATCH: f64 = super::session::MOST as f64;

/// How much of the expectation is momentum.
const MOMENTUM: f64 = 0.5;

/// However close to its roofline a task is, this share of its time may still be won: the roofline of a CPU knows nothing
/// of caches.
const LEAST_HOPE: f64 = 0.1;

/// A task is worth trials if it is worth at least this share of the best one. Where all that are wait for outcomes, the
/// device would rather idle than spend the budget on what saves nothing.
const WORTH: f64 = 0.5;

/// What a task of a workload that is not warm yet is worth at least: more than any time in microseconds.
const FIRST: f64 = 1e250;

/// What a task that was never tried is worth: more than that. Only a workload that was never tried comes before.
const UNTRIED: f64 = f64::MAX;

/// Trials that every workload gets before the network's time decides: a batch, but no more than a quarter of all trials.
fn warm_up(board: &Board) -> u64 {
    (board.budget / (4 * board.groups.len().max(1) as u64)).min(super::session::MOST as u64)
}

/// The task to spend the next batch on, among those that are able to propose. The first of equals. None where all that
/// are worth it wait for outcomes.
pub(super) fn next(board: &Board, able: &[usize]) -> Option<usize> {
    let values: Vec<f64> = (0..board.standings.len()).map(|entry| value(board, entry)).collect();
    let open = values.iter().zip(&board.standings).filter(|(_, s)| !s.done && s.begun > s.trials);
    let waiting = open.map(|(value, _)| *value).filter(|v| *v < FIRST).fold(0.0, f64::max);
    let mut best: Option<usize> = None;
    for &entry in able {
        if best.is_none_or(|b| values[entry] > values[b]) {
            best = Some(entry);
        }
    }
    best.filter(|entry| values[*entry] >= WORTH * waiting)
}

/// The time of the network, in microseconds, that the next batch of a task is expected to save. Infinite for the template
/// that promises most for a workload that was never tried: with few trials, a result for each workload comes before
/// another template for one.
pub(super) fn value(board: &Board, entry: usize) -> f64 {
    let standing = &board.standings[entry];
    let group = &board.groups[standing.group];
    if standing.begun == 0 {
        let mut rivals = group.entries.iter().map(|e| &board.standings[*e]);
        let leads = rivals.all(|r| r.begun == 0 && standing.predicted_us.total_cmp(&r.predicted_us).is_le());
        return if leads { f64::INFINITY } else { UNTRIED };
    }
    let rivals = group.entries.iter().map(|e| board.standings[*e].best_us());
    let mut best_us = rivals.fold(f64::INFINITY, f64::min);
    if best_us.is_infinite() {
        // Nothing ran yet: models say what there is to win.
        best_us = group.entries.iter().map(|e| board.standings[*e].predicted_us).fold(f64::INFINITY, f64::min);
    }
    // What has not run yet is taken for what its model says, but not for better than what runs.
    let own_us = if standing.best.is_some() { standing.best_us() } else { standing.predicted_us.max(best_us) };
    let behind = best_us / own_us;
    let chance = BATCH / (standing.begun as f64 + BATCH);
    let hope = (best_us - group.floor_us).max(LEAST_HOPE * best_us) * chance;
    let gain = MOMENTUM * momentum(standing) + (1.0 - MOMENTUM) * hope;
    // Where no model says how long anything takes, that is no number.
    let value = (group.weight * gain * behind * behind).max(0.0);
    let begun: u64 = group.entries.iter().map(|e| board.standings[*e].begun).sum();
    // Among those that are not warm, the one that saves most comes first.
    if begun < warm_up(board) { FIRST * (1.0 + value) } else { value }
}

/// What a batch gained, on average over the last two; what a first success was worth is not known.
fn momentum(standing: &Standing) -> f64 {
    let window = 2.0 * BATCH;
    let before = standing.best_after(standing.trials.saturating_sub(window as u64));
    let before = if before.is_finite() { before } else { standing.curve.first().map_or(0.0, |(_, us)| *us) };
    if standing.best.is_none() { 0.0 } else { (before - standing.best_us()).max(0.0) / window * BATCH }
}
