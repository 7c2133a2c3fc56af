//! The task scheduler: trials go where they are expected to save the most time of the whole network.
//!
//! As in Ansor (Zheng et al. 2020, section 6), the value of a task's next batch is a derivative of the network's time: how
//! often the layer occurs, times by how much the batch is expected to lower its time. The expectation has two parts, each
//! in microseconds:
//!
//! * *momentum*: what the task's last two batches gained, on average. As in Ansor it is 0 before there were two: the way from a
//!   default to something sane says nothing of what comes, and would be most of the value of each task that has few trials;
//! * *hope*: the workload's best time divided by the number of batches so far. It makes every task worth a try, and fades as trials
//!   bring nothing.
//!
//! Without momentum, the trials of a workload are in proportion to its time in the network. The roofline is no part of hope: it is no
//! bound. Winograd's kernels need fewer operations than are counted, operands may lie in a cache, and clocks differ. Layers beyond
//! their roofline would get hardly any trials, however much of the time is theirs.
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

/// A task is worth trials if it is worth at least this share of the best one. Where all that are wait for outcomes, the
/// device would rather idle than spend the budget on what saves little. A tuner that has most of the time waits in between all its
/// batches: what is less worth gets up to `1 / WORTH` times its share of the trials meanwhile.
const WORTH: f64 = 0.8;

/// What a task of a workload that is not warm yet is worth at least: more than any time in microseconds.
const FIRST: f64 = 1e250;

/// What a task that was never tried is worth: more than that. Only a workload that was never tried comes before.
const UNTRIED: f64 = f64::MAX;

/// Trials that every workload gets before the network's time decides: a batch, but no more than a quarter of all trials that
/// there will be.
fn warm_up(board: &Board) -> u64 {
    (board.expected_trials() / (4 * board.groups.len().max(1) as u64)).min(super::session::MOST as u64)
}

/// The task to spend the next batch on, among those that are able to propose. The first of equals. None where all that
/// are worth it wait for outcomes, or think.
///
/// `idle` is the share of the workers of a fleet that have nothing to do. What is less worth is tried all the same then: machines
/// that are there anyway are not saved by waiting.
pub(super) fn next(board: &Board, able: &[usize], thinks: &dyn Fn(usize) -> bool, idle: f64) -> Option<usize> {
    let values: Vec<f64> = (0..board.standings.len()).map(|entry| value(board, entry)).collect();
    let waits = |(entry, s): (usize, &Standing)| !s.done && (s.begun > s.trials || thinks(entry));
    let open = (0..values.len()).filter(|entry| waits((*entry, &board.standings[*entry])));
    let waiting = open.map(|entry| values[entry]).filter(|v| *v < FIRST).fold(0.0, f64::max);
    let mut best: Option<usize> = None;
    for &entry in able {
        if best.is_none_or(|b| values[entry] > values[b]) {
            best = Some(entry);
        }
    }
    best.filter(|entry| values[*entry] >= WORTH * (1.0 - idle) * waiting)
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
    let hope = best_us * BATCH / (standing.begun as f64).max(BATCH);
    let gain = MOMENTUM * momentum(standing) + (1.0 - MOMENTUM) * hope;
    // Where no model says how long anything takes, that is no number.
    let value = (group.weight * gain * behind * behind).max(0.0);
    let begun: u64 = group.entries.iter().map(|e| board.standings[*e].begun).sum();
    // Among those that are not warm, the one that saves most comes first.
    if begun < warm_up(board) { FIRST * (1.0 + value) } else { value }
}

/// What a batch gained, on average over the last two; 0 before there were two, and where nothing ran before them.
fn momentum(standing: &Standing) -> f64 {
    let Some(before) = standing.trials.checked_sub(2 * BATCH as u64) else { return 0.0 };
    let gained = standing.best_after(before) - standing.best_us();
    if gained.is_finite() { gained / 2.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::session::Group;
    use super::*;
    use std::time::Duration;

    fn board(workloads: usize, budget: u64, seconds: Option<f64>) -> Board {
        let group =
            |at| Group { name: format!("layer {at}"), weight: 1.0, flops: 1.0, floor_us: 1.0, entries: vec![at] };
        Board {
            groups: (0..workloads).map(group).collect(),
            standings: (0..workloads).map(|at| Standing::new(at, "rows", 100.0)).collect(),
            elapsed: Duration::ZERO,
            searched: Duration::ZERO,
            budget,
            seconds,
            fleet: None,
        }
    }

    #[test]
    fn a_batch_for_each_workload_is_a_quarter_of_the_trials_at_most() {
        assert_eq!(warm_up(&board(5, 5 * 128, None)), 16);
        assert_eq!(warm_up(&board(5, 5 * 32, None)), 8);
        assert_eq!(warm_up(&board(5, 3, None)), 0);
    }

    /// The warm-up alone must not take all of the time that there is.
    #[test]
    fn where_the_time_ends_before_the_trials_do_the_warm_up_is_shorter() {
        let mut board = board(6, 6 * 128, Some(60.0));
        assert_eq!(warm_up(&board), 16, "nothing is known of the pace");
        board.standings[0].begun = 10;
        board.standings[0].trials = 10;
        (board.elapsed, board.searched) = (Duration::from_secs(5), Duration::from_secs(5));
        // Two trials a second: 120 in all.
        assert_eq!(board.expected_trials(), 120);
        assert_eq!(warm_up(&board), 5);
        board.seconds = Some(6000.0);
        assert_eq!(warm_up(&board), 16);
    }
}
