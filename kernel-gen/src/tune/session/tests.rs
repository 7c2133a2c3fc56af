use super::*;
use crate::records::{Failure, FailureKind, Outcome, Timing, Trial};
use crate::space::{Config, Rng, Space};
use crate::target::Target;
use crate::templates::testing::Rows;
use crate::tune::Task;
use crate::tune::measure::JobId;
use crate::tune::replay::{Recording, Replay};
use crate::tune::tuner::Tuner;
use crate::workload::{Matmul, Workload};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod of_fleets;

/// 240 divisors: as many configs.
const ROWS: i64 = 720_720;

const TEMPLATE: Rows = Rows { name: "rows", version: 1, cost: 50_000.0 };
const SLOW: Rows = Rows { name: "slow", version: 1, cost: 60_000.0 };

fn workload(columns: i64) -> Workload {
    Workload::f32(Matmul::new(ROWS, columns, 1))
}

fn task(columns: i64, template: &Rows) -> Task<'_> {
    Task::new(workload(columns), Target::find("x86-64-v3").unwrap(), template).unwrap()
}

fn timing(us: f64) -> Outcome {
    // Three samples that differ by a tenth of a per cent.
    Outcome::Timed(Timing { samples_us: vec![us, us * 1.001, us * 0.999], ..Timing::default() })
}

fn failure(kind: FailureKind) -> Outcome {
    Outcome::Failed(Failure { kind, detail: "planted".to_string() })
}

/// What a config measures: its own time, spread over all configs in no order that a tuner could guess. The best takes
/// 10 ms, which is well above the roofline.
fn synthetic_us(index: u64) -> f64 {
    10_000.0 + ((index * 97 + 60) % 240) as f64 * 250.0
}

/// All configs of a task, `scale` times as slow, every tenth a failure.
fn record(recording: &mut Recording, task: &Task<'_>, scale: f64) {
    for index in 0..task.space.range_len() {
        let config = task.space.get(index).unwrap();
        let outcome = match index % 10 {
            9 => failure(FailureKind::Build),
            _ => timing(synthetic_us(index) * scale),
        };
        recording.add(&task.workload.key(), &task.target.name, task.template.name(), &config, outcome);
    }
}

/// Goes on from the best that it was told of, so that what it proposes depends on what it was told and when.
struct Walker<'t> {
    space: &'t Space,
    rng: Rng,
    seen: BTreeSet<u64>,
    best: Option<(u64, f64)>,
    proposed: Proposed,
    waits: bool,
}

/// What a tuner proposed, in order.
type Proposed = Arc<Mutex<Vec<u64>>>;

impl<'t> Walker<'t> {
    fn boxed(space: &'t Space, seed: u64, waits: bool) -> Box<dyn Tuner + 't> {
        Walker::watched(space, seed, waits, &Proposed::default())
    }

    fn watched(space: &'t Space, seed: u64, waits: bool, proposed: &Proposed) -> Box<dyn Tuner + 't> {
        let (seen, proposed) = (BTreeSet::new(), proposed.clone());
        Box::new(Walker { space, rng: Rng::new(seed), seen, best: None, proposed, waits })
    }
}

impl Tuner for Walker<'_> {
    fn name(&self) -> &'static str {
        "walker"
    }

    fn propose(&mut self, most: usize) -> Vec<(u64, Config)> {
        let most = if self.waits { most.min(7) } else { most };
        let mut out = vec![];
        while out.len() < most && (self.seen.len() as u64) < self.space.range_len() {
            let from = self.best.map_or(0, |(index, _)| index);
            let index = (from + self.rng.below(self.space.range_len())) % self.space.range_len();
            if self.seen.insert(index) {
                out.push((index, self.space.get(index).unwrap()));
            }
        }
        self.proposed.lock().unwrap().extend(out.iter().map(|(index, _)| *index));
        out
    }

    fn observe(&mut self, trials: &[Trial]) {
        for trial in trials {
            self.seen.insert(trial.index);
            if let Some(us) = trial.outcome.time_us().filter(|us| self.best.is_none_or(|(_, best)| *us < best)) {
                self.best = Some((trial.index, us));
            }
        }
    }
}

fn entry<'t>(name: &str, task: &'t Task<'t>, tuner: Box<dyn Tuner + 't>) -> Entry<'t> {
    let default = task.space.normalise(&Config::new().with_split("rows", &[-1, 1])).unwrap();
    Entry { name: name.into(), task, threads: 1, weight: 1.0, tuner, default, hints: vec![], history: vec![] }
}

/// Runs a session and gives, beside its summary, the trials of each entry in the order in which they became known.
fn run_on<'t>(
    measurer: &mut dyn Measurer<'t>,
    entries: Vec<Entry<'t>>,
    incumbents: &[Incumbent],
    options: &Options,
) -> (Summary, Vec<Vec<Trial>>) {
    let mut trials = vec![vec![]; entries.len()];
    let summary = run(entries, incumbents, measurer, options, &Stop::new(), &mut |_, event| {
        if let Event::Trial { entry, trial, .. } = event {
            trials[entry].push(trial.clone());
        }
        Ok(())
    });
    (summary.unwrap(), trials)
}

/// So many trials, however little they gain.
fn options(trials: u64) -> Options {
    Options { trials, patience: 10_000, ..Options::default() }
}

#[test]
fn the_same_outcomes_give_the_same_proposals_whatever_comes_back_first() {
    let (a, b) = (task(1, &TEMPLATE), task(2, &TEMPLATE));
    let mut recording = Recording::new();
    record(&mut recording, &a, 1.0);
    record(&mut recording, &b, 3.0);
    let proposals = |mut replay: Replay, seed: u64, waits: bool| -> [Vec<u64>; 2] {
        let proposed = [Proposed::default(), Proposed::default()];
        let entries = [&a, &b].into_iter().enumerate().map(|(at, task)| {
            entry("layer", task, Walker::watched(&task.space, seed + at as u64, waits, &proposed[at]))
        });
        run_on(&mut replay, entries.collect(), &[], &options(240));
        proposed.map(|p| p.lock().unwrap().clone())
    };
    for waits in [false, true] {
        let in_order = proposals(Replay::new(recording.clone()), 5, waits);
        for order in 0..4 {
            let shuffled = proposals(Replay::shuffled(recording.clone(), order), 5, waits);
            for (expected, got) in in_order.iter().zip(&shuffled) {
                // How many trials a task gets may depend on timing; which ones they are may not.
                let both = expected.len().min(got.len());
                assert!(both > AHEAD * MOST, "too few trials for the test to say anything: {both}");
                assert_eq!(expected[..both], got[..both], "order {order}, waits {waits}");
            }
        }
        let other = proposals(Replay::new(recording.clone()), 6, waits);
        assert_ne!(in_order[0][..20], other[0][..20], "the seed decides");
    }
}

#[test]
fn a_continued_session_repeats_nothing_and_ends_where_an_unbroken_one_does() {
    let a = task(1, &TEMPLATE);
    let mut recording = Recording::new();
    record(&mut recording, &a, 1.0);
    let all = options(1000);
    let unbroken = {
        let tuner = Walker::boxed(&a.space, 1, true);
        run_on(&mut Replay::new(recording.clone()), vec![entry("a", &a, tuner)], &[], &all)
    };
    assert_eq!(unbroken.0.ended, Ended::Exhausted);
    for cut in [0, 1, 17, 100, 239, 240] {
        let history: Vec<Trial> = unbroken.1[0][..cut].to_vec();
        let mut again = entry("a", &a, Walker::boxed(&a.space, 2, true));
        again.history.clone_from(&history);
        let (summary, trials) = run_on(&mut Replay::shuffled(recording.clone(), 3), vec![again], &[], &all);
        let repeated = trials[0].iter().filter(|t| history.iter().any(|h| h.index == t.index)).count();
        assert_eq!((repeated, history.len() + trials[0].len()), (0, 240), "cut at {cut}");
        assert_eq!(summary.board.standings[0].best, unbroken.0.board.standings[0].best);
        assert_eq!((summary.board.made(), summary.board.trials()), (240 - cut as u64, 240));
        assert_eq!(summary.verdicts[0].choice().map(|c| &c.config), unbroken.0.verdicts[0].choice().map(|c| &c.config));
    }
}

#[test]
fn what_was_fast_elsewhere_is_tried_right_after_the_default() {
    let a = task(1, &TEMPLATE);
    let mut recording = Recording::new();
    record(&mut recording, &a, 1.0);
    let hints = [7, 90, 30].map(|index| a.space.get(index).unwrap());
    let tuner = Walker::boxed(&a.space, 1, true);
    let entries = vec![Entry { hints: hints.to_vec(), ..entry("a", &a, tuner) }];
    let (_, trials) = run_on(&mut Replay::new(recording), entries, &[], &options(20));
    let default = a.space.index_of(&Config::new().with_split("rows", &[-1, 1])).unwrap();
    let first: Vec<u64> = trials[0].iter().map(|t| t.index).take(4).collect();
    assert_eq!(first, [default, 7, 90, 30]);
    assert_eq!(trials[0].len(), 20);
}

#[test]
fn trials_of_earlier_runs_count_towards_the_budget() {
    let a = task(1, &TEMPLATE);
    let mut recording = Recording::new();
    record(&mut recording, &a, 1.0);
    let first = run_on(
        &mut Replay::new(recording.clone()),
        vec![entry("a", &a, Walker::boxed(&a.space, 1, false))],
        &[],
        &options(50),
    );
    assert_eq!((first.0.ended, first.1[0].len()), (Ended::Trials, 50));
    let mut again = entry("a", &a, Walker::boxed(&a.space, 1, false));
    again.history.clone_from(&first.1[0]);
    let second = run_on(&mut Replay::new(recording), vec![again], &[], &options(60));
    assert_eq!(second.1[0].len(), 10);
}

#[test]
fn ties_keep_the_incumbent() {
    let a = task(1, &TEMPLATE);
    let incumbent = a.space.get(120).unwrap();
    let verdict_at = |incumbent_us: f64| {
        let mut recording = Recording::new();
        record(&mut recording, &a, 1.0);
        recording.add(&a.workload.key(), &a.target.name, "rows", &incumbent, timing(incumbent_us));
        let known = [Incumbent { entry: 0, config: incumbent.clone(), recorded_us: incumbent_us, floor_us: None }];
        let tuner = Walker::boxed(&a.space, 1, false);
        let all = options(1000);
        let (summary, _) = run_on(&mut Replay::new(recording), vec![entry("a", &a, tuner)], &known, &all);
        summary.verdicts.into_iter().next().unwrap()
    };
    // The fastest of the recording takes 10 ms.
    for tie in [9_000.0, 10_000.0, 10_050.0, 10_100.0] {
        let verdict = verdict_at(tie);
        assert!(matches!(verdict, Verdict::Kept { .. }), "{tie} us");
        assert_eq!(verdict.choice().unwrap().config, incumbent);
    }
    for beaten in [10_300.0, 12_000.0] {
        let verdict = verdict_at(beaten);
        assert!(matches!(verdict, Verdict::Won { incumbent: Some(_), .. }), "{beaten} us");
        assert_eq!(verdict.choice().unwrap().outcome.time_us(), Some(10_000.0));
        assert_eq!(verdict.incumbent().unwrap().outcome.time_us(), Some(beaten));
    }
}

#[test]
fn no_trials_time_the_records_again() {
    let (a, b) = (task(1, &TEMPLATE), task(2, &TEMPLATE));
    let mut recording = Recording::new();
    record(&mut recording, &a, 1.0);
    record(&mut recording, &b, 1.0);
    let config = a.space.get(120).unwrap();
    recording.add(&a.workload.key(), &a.target.name, "rows", &config, timing(9_000.0));
    let known = [Incumbent { entry: 0, config: config.clone(), recorded_us: 12_000.0, floor_us: None }];
    let entries =
        vec![entry("a", &a, Walker::boxed(&a.space, 1, false)), entry("b", &b, Walker::boxed(&b.space, 2, false))];
    let (summary, trials) = run_on(&mut Replay::new(recording), entries, &known, &options(0));
    assert!(trials.iter().all(Vec::is_empty) && summary.ended == Ended::Trials);
    assert!(matches!(summary.verdicts[0], Verdict::Kept { .. }), "{:?}", summary.verdicts[0]);
    assert_eq!(
        (
            summary.verdicts[0].choice().unwrap().config.clone(),
            summary.verdicts[0].incumbent().and_then(|c| c.outcome.time_us())
        ),
        (config, Some(9_000.0))
    );
    // The other one has no record: its default is measured, and becomes one.
    let choice = summary.verdicts[1].choice().unwrap();
    assert!(choice.is_default && choice.outcome.time_us().is_some(), "{choice:?}");
}

/// A replay on a machine that somebody else uses in its first comparisons: configs with odd places in a comparison take
/// three times as long then, the others twice.
struct Shared(Replay, usize);

impl<'r> Measurer<'r> for Shared {
    fn capacity(&self) -> usize {
        Measurer::capacity(&self.0)
    }

    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config) {
        self.0.submit(id, task, config);
    }

    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)> {
        Measurer::next(&mut self.0, wait)
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        let mut outcomes = self.0.compare(candidates);
        let disturbed = self.1 > 0;
        self.1 = self.1.saturating_sub(1);
        for (at, outcome) in outcomes.iter_mut().enumerate().filter(|_| disturbed) {
            if let Outcome::Timed(timing) = outcome {
                timing.samples_us.iter_mut().for_each(|us| *us *= 2.0 + (at % 2) as f64);
            }
        }
        outcomes
    }
}

#[test]
fn rounds_outlast_what_disturbs_the_machine() {
    let (a, b) = (task(1, &TEMPLATE), task(2, &TEMPLATE));
    let verdicts = |rounds: usize| {
        let mut recording = Recording::new();
        record(&mut recording, &a, 1.0);
        record(&mut recording, &b, 1.0);
        // The records are the best there is, and stand at an even place; then nothing beats them.
        let best = |t: &Task<'_>| {
            let at = (0..240).filter(|i| i % 10 != 9).min_by(|i, j| synthetic_us(*i).total_cmp(&synthetic_us(*j)));
            t.space.get(at.unwrap()).unwrap()
        };
        let known: Vec<Incumbent> = [&a, &b]
            .into_iter()
            .enumerate()
            .map(|(entry, t)| Incumbent { entry, config: best(t), recorded_us: 10_000.0, floor_us: None })
            .collect();
        let entries =
            vec![entry("a", &a, Walker::boxed(&a.space, 1, false)), entry("b", &b, Walker::boxed(&b.space, 2, false))];
        let options = Options { rounds, ..options(100) };
        run_on(&mut Shared(Replay::new(recording), 2), entries, &known, &options).0.verdicts
    };
    for verdict in verdicts(1) {
        assert_eq!(verdict.choice().unwrap().outcome.time_us(), Some(20_000.0));
    }
    for verdict in verdicts(2) {
        assert!(matches!(verdict, Verdict::Kept { .. }));
        assert_eq!(verdict.choice().unwrap().outcome.time_us(), Some(10_000.0));
        assert_eq!(verdict.candidates().len(), verdict.candidates().iter().filter_map(|c| c.outcome.time_us()).count());
    }
}

#[test]
fn failures_never_win() {
    let a = task(1, &TEMPLATE);
    let key = a.workload.key();
    let mut recording = Recording::new();
    for index in 0..240 {
        let kinds = FailureKind::ALL.iter().filter(|k| **k != FailureKind::Worker).collect::<Vec<_>>();
        let kind = *kinds[index as usize % kinds.len()];
        recording.add(&key, &a.target.name, "rows", &a.space.get(index).unwrap(), failure(kind));
    }
    let all = options(1000);
    let tuner = || Walker::boxed(&a.space, 1, false);
    let (summary, _) = run_on(&mut Replay::new(recording.clone()), vec![entry("a", &a, tuner())], &[], &all);
    assert!(matches!(summary.verdicts[0], Verdict::Nothing { .. }));
    assert_eq!(summary.board.failures().iter().map(|(_, n)| n).sum::<u64>(), 240);
    assert_eq!(summary.verdicts[0].choice(), None);
    // One slow config that runs beats them all.
    recording.add(&key, &a.target.name, "rows", &a.space.get(33).unwrap(), timing(1e9));
    let (summary, _) = run_on(&mut Replay::new(recording), vec![entry("a", &a, tuner())], &[], &all);
    assert_eq!(summary.verdicts[0].choice().map(|c| a.space.index_of(&c.config)), Some(Ok(33)));
}

#[test]
fn a_record_that_fails_now_is_replaced_but_one_that_could_not_be_asked_stays() {
    let a = task(1, &TEMPLATE);
    let incumbent = a.space.get(120).unwrap();
    let verdict_of = |outcome: Outcome| {
        let timed = |at: usize| Candidate {
            entry: 0,
            config: a.space.get(at as u64).unwrap(),
            source: Source::Search,
            is_default: false,
            outcome: timing(20.0 + at as f64),
            floor_us: None,
            spread: None,
        };
        let old = Candidate { config: incumbent.clone(), source: Source::Incumbent, outcome, ..timed(0) };
        verdict::verdict(vec![old, timed(1), timed(2)])
    };
    assert!(matches!(verdict_of(failure(FailureKind::WrongAnswer)), Verdict::Won { winner: 1, incumbent: None, .. }));
    assert!(matches!(verdict_of(failure(FailureKind::Worker)), Verdict::Kept { incumbent: 0, .. }));
    assert!(matches!(verdict_of(timing(30.0)), Verdict::Won { winner: 1, incumbent: Some(0), .. }));
}

#[test]
fn what_gains_less_warm_than_it_loses_cold_is_no_gain() {
    let a = task(1, &TEMPLATE);
    let candidate = |at: u64, source, warm: f64, cold: f64| Candidate {
        entry: 0,
        config: a.space.get(at).unwrap(),
        source,
        is_default: false,
        outcome: Outcome::Timed(Timing { samples_us: vec![warm; 8], cold_us: vec![cold; 8], ..Timing::default() }),
        floor_us: None,
        spread: None,
    };
    let record = || candidate(0, Source::Incumbent, 10.0, 20.0);
    let verdict = |others: &[Candidate]| verdict::verdict([&[record()], others].concat());
    // 2.5 % faster in a row, and 15 % slower with weights from memory.
    let warm = candidate(1, Source::Search, 9.75, 23.0);
    assert!(matches!(verdict(std::slice::from_ref(&warm)), Verdict::Kept { incumbent: 0, .. }));
    // The other way around, though it is not the fastest warm.
    let cold = candidate(2, Source::Search, 10.0, 16.2);
    let won = verdict(&[warm, cold]);
    assert!(matches!(won, Verdict::Won { winner: 2, incumbent: Some(0), .. }));
    let gain = won.times_choice(won.incumbent()).unwrap();
    assert!((gain - (20.0_f64 / 16.2).sqrt()).abs() < 1e-9, "{gain}");
}

#[test]
fn pairs_of_samples_cancel_what_slowed_both_down() {
    let timing = |samples: &[f64]| Timing { samples_us: samples.to_vec(), ..Timing::default() };
    let drift = [1.0, 1.3, 0.9, 1.6, 1.1, 1.4, 1.0, 1.2];
    let old = timing(&drift);
    let faster = timing(&drift.map(|d| d * 0.95));
    assert!(beats(&faster, &old) && !beats(&old, &faster));
    // Without pairs the drift hides it.
    assert!(!beats(&timing(&faster.samples_us[..7]), &old));
    assert!(!beats(&old, &old));
    assert!(!beats(&timing(&drift.map(|d| d * 0.995)), &old), "less than counts");
    // One lucky sample is no win.
    assert!(!beats(&timing(&[0.1, 1.3, 0.9, 1.6, 1.1, 1.4, 1.0, 1.2]), &old));
    assert!(!beats(&timing(&[]), &old) && !beats(&timing(&[f64::NAN; 8]), &old));
}

#[test]
fn trials_go_where_the_networks_time_is() {
    let tasks = [task(1, &TEMPLATE), task(2, &TEMPLATE), task(3, &TEMPLATE)];
    let mut recording = Recording::new();
    // The second takes ten times as long as the others; the third occurs five times.
    for (task, scale) in tasks.iter().zip([1.0, 10.0, 1.0]) {
        record(&mut recording, task, scale);
    }
    let entries: Vec<Entry<'_>> = tasks
        .iter()
        .zip([1.0, 1.0, 5.0])
        .map(|(t, weight)| Entry { weight, ..entry("layer", t, Walker::boxed(&t.space, 1, true)) })
        .collect();
    let (summary, _) = run_on(&mut Replay::new(recording), entries, &[], &options(240));
    let spent: Vec<u64> = summary.board.standings.iter().map(|s| s.trials).collect();
    assert!(spent[1] > spent[2] && spent[2] > spent[0] && spent[0] > 0, "{spent:?}");
    assert!(2 * spent[1] > 3 * spent[0], "{spent:?}");
    assert!(spent[0] >= MOST as u64, "every layer gets a batch first: {spent:?}");
}

/// A roofline is no bound: Winograd's kernels and operands in caches are beyond it. Where such a layer has most of the time, it gets
/// most of the trials all the same.
#[test]
fn the_share_of_trials_is_that_of_the_time_beyond_the_roofline_too() {
    let tasks: Vec<Task<'_>> = (1..6).map(|columns| task(columns, &TEMPLATE)).collect();
    let mut recording = Recording::new();
    // The first takes a fiftieth of the others, less than its roofline says, and occurs three hundred times.
    let (scales, weights) = ([0.02, 1.0, 1.0, 1.0, 1.0], [300.0, 1.0, 1.0, 1.0, 1.0]);
    tasks.iter().zip(scales).for_each(|(task, scale)| record(&mut recording, task, scale));
    let layers = tasks.iter().zip(weights);
    let entries =
        layers.map(|(t, weight)| Entry { weight, ..entry("layer", t, Walker::boxed(&t.space, 1, true)) }).collect();
    let (summary, _) = run_on(&mut Replay::new(recording), entries, &[], &options(200));
    let Board { standings, groups, .. } = &summary.board;
    assert!(standings[0].best_us() < groups[0].floor_us && standings[1].best_us() > 10.0 * groups[1].floor_us);
    let time = |at: usize| groups[at].weight * standings[at].best_us();
    let share_of_time = time(0) / (0..5).map(time).sum::<f64>();
    let share_of_trials = standings[0].trials as f64 / 200.0;
    assert!(share_of_time > 0.55, "{share_of_time}");
    assert!(
        (share_of_trials - share_of_time).abs() < 0.1,
        "{share_of_trials} of the trials, {share_of_time} of the time"
    );
}

#[test]
fn every_workload_is_tried_before_another_template_for_one() {
    let tasks: Vec<Task<'_>> = (1..4).flat_map(|columns| [task(columns, &TEMPLATE), task(columns, &SLOW)]).collect();
    let mut recording = Recording::new();
    tasks.iter().for_each(|t| record(&mut recording, t, 1.0));
    let entries = tasks.iter().map(|t| entry("layer", t, Walker::boxed(&t.space, 1, true))).collect();
    let (summary, _) = run_on(&mut Replay::new(recording), entries, &[], &options(3));
    let spent: Vec<u64> = summary.board.standings.iter().map(|s| s.trials).collect();
    assert!(spent.chunks(2).all(|of_workload| of_workload.iter().sum::<u64>() == 1), "{spent:?}");
}

#[test]
fn a_template_that_is_far_behind_gets_little() {
    let (fast, slow) = (task(1, &TEMPLATE), task(1, &SLOW));
    let mut recording = Recording::new();
    record(&mut recording, &fast, 1.0);
    record(&mut recording, &slow, 8.0);
    let entries = vec![
        entry("layer", &fast, Walker::boxed(&fast.space, 1, true)),
        entry("layer", &slow, Walker::boxed(&slow.space, 1, true)),
    ];
    let (summary, _) = run_on(&mut Replay::new(recording), entries, &[], &options(150));
    assert_eq!(summary.board.groups.len(), 1, "they compete");
    let spent: Vec<u64> = summary.board.standings.iter().map(|s| s.trials).collect();
    assert!(spent[1] >= 1 && spent[0] > 4 * spent[1], "{spent:?}");
    assert_eq!(summary.verdicts[0].choice().map(|c| c.entry), Some(0));
}

#[test]
fn a_task_that_gains_nothing_is_left_alone() {
    let a = task(1, &TEMPLATE);
    let mut recording = Recording::new();
    for index in 0..240 {
        // Half a per cent between the best and the worst: noise.
        let us = 10_000.0 + index as f64 / 5.0;
        recording.add(&a.workload.key(), &a.target.name, "rows", &a.space.get(index).unwrap(), timing(us));
    }
    let tuner = Walker::boxed(&a.space, 1, true);
    let (summary, trials) = run_on(
        &mut Replay::new(recording),
        vec![entry("a", &a, tuner)],
        &[],
        &Options { patience: 40, ..options(1000) },
    );
    assert_eq!(summary.ended, Ended::Converged);
    assert_eq!(trials[0].len(), 41, "the first trial, and 40 without a gain");
}

#[test]
fn patience_counts_the_trials_after_the_last_gain() {
    let a = task(1, &TEMPLATE);
    let mut recording = Recording::new();
    record(&mut recording, &a, 1.0);
    for (patience, waits, seed) in [(1, false, 1), (7, false, 2), (7, true, 3), (30, false, 4), (100, false, 5)] {
        let tuner = Walker::boxed(&a.space, seed, waits);
        let patient = Options { patience, ..options(1000) };
        let mut replay = Replay::shuffled(recording.clone(), seed);
        let (summary, trials) = run_on(&mut replay, vec![entry("a", &a, tuner)], &[], &patient);
        let (mut best, mut after) = (f64::INFINITY, 0);
        for trial in &trials[0] {
            after += 1;
            if let Some(us) = trial.outcome.time_us().filter(|us| *us < best * (1.0 - MIN_GAIN)) {
                (best, after) = (us, 0);
            }
        }
        let exhausted = summary.ended == Ended::Exhausted;
        assert!(after == patience || exhausted && after < patience, "{after} of {patience}: {}", summary.ended);
    }
}

#[test]
fn trials_that_could_not_be_measured_try_nobodys_patience() {
    let a = task(1, &TEMPLATE);
    let mut standing = Standing::new(0, "rows", 1.0);
    let mut take = |outcome| {
        standing.take(&Trial { index: 0, config: a.space.get(0).unwrap(), outcome });
        standing.since
    };
    assert_eq!(take(timing(10.0)), 0);
    assert_eq!(take(failure(FailureKind::Worker)), 0);
    assert_eq!(take(failure(FailureKind::Build)), 1);
    assert_eq!(take(timing(9.9)), 2);
}

/// A replay that takes its time.
struct Slow {
    replay: Replay,
    trial: Duration,
    candidate: Duration,
    compared: Vec<usize>,
}

impl<'r> Measurer<'r> for Slow {
    fn capacity(&self) -> usize {
        1
    }

    fn submit(&mut self, id: JobId, task: &Task<'r>, config: &Config) {
        self.replay.submit(id, task, config);
    }

    fn next(&mut self, wait: Duration) -> Option<(JobId, Outcome)> {
        std::thread::sleep(self.trial);
        Measurer::next(&mut self.replay, wait)
    }

    fn compare(&mut self, candidates: &[(&Task<'r>, &Config)]) -> Vec<Outcome> {
        std::thread::sleep(self.candidate * candidates.len() as u32);
        self.compared.push(candidates.len());
        self.replay.compare(candidates)
    }
}

#[test]
fn the_comparison_is_part_of_the_time() {
    let all: Vec<Task<'_>> = (1..=8).map(|columns| task(columns, &TEMPLATE)).collect();
    let mut recording = Recording::new();
    all.iter().for_each(|task| record(&mut recording, task, 1.0));
    let session = |candidate: u64, rounds: usize| {
        let entries = all.iter().map(|t| entry("layer", t, Walker::boxed(&t.space, 1, false))).collect();
        let (trial, candidate) = (Duration::from_millis(5), Duration::from_millis(candidate));
        let mut slow = Slow { replay: Replay::new(recording.clone()), trial, candidate, compared: vec![] };
        let options = Options { seconds: Some(1.0), rounds, ..options(100_000) };
        let began = Instant::now();
        let (summary, _) = run_on(&mut slow, entries, &[], &options);
        (summary, slow.compared, began.elapsed().as_secs_f64())
    };
    // There is time for all finalists of all workloads: the search leaves it.
    let (summary, compared, took) = session(5, 1);
    assert_eq!((summary.ended, summary.uncompared), (Ended::Seconds, 0));
    assert!(compared.len() == 8 && compared.iter().sum::<usize>() >= 24, "{compared:?}");
    assert!(took < 1.8, "{took}");
    // There is time for some finalists of each.
    let (_, compared, took) = session(20, 1);
    assert!(compared.len() > 4 && compared[1..5].iter().any(|n| *n < 4), "{compared:?}");
    assert!(took < 1.8, "{took}");
    // There is none for some of them, which is said. What was begun is finished.
    let (summary, compared, took) = session(150, 1);
    assert!(summary.uncompared > 0 && compared.len() + summary.uncompared == 8, "{compared:?}");
    assert_eq!(summary.verdicts.iter().filter(|v| **v == Verdict::NotDecided).count(), summary.uncompared);
    assert!(took < 2.5, "{took}");
    // Rounds that do not fit are left out, and the first one decides.
    let (summary, compared, took) = session(15, 9);
    assert_eq!(summary.uncompared, 0);
    assert!((8..72).contains(&compared.len()), "{compared:?}");
    assert!(took < 1.8, "{took}");
}

#[test]
fn a_stopped_session_keeps_what_is_under_way() {
    let a = task(1, &TEMPLATE);
    let mut recording = Recording::new();
    record(&mut recording, &a, 1.0);
    let stop = Stop::new();
    let mut known = 0;
    let entries = vec![entry("a", &a, Walker::boxed(&a.space, 1, false))];
    let mut replay = Replay::shuffled(recording, 1);
    let summary = run(entries, &[], &mut replay, &options(1000), &stop, &mut |_, event| {
        if matches!(event, Event::Trial { .. }) {
            known += 1;
            if known == 20 {
                stop.ask();
            }
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(summary.ended, Ended::Stopped);
    assert_eq!(summary.board.begun(), summary.board.trials(), "nothing that was begun is lost");
    assert!(known > 20 && known < 20 + 64, "{known}");
    assert_eq!(summary.verdicts, [Verdict::NotDecided]);
}

#[test]
fn a_worker_that_cannot_be_asked_ends_the_session_with_the_reason() {
    let a = task(1, &TEMPLATE);
    let entries = vec![entry("a", &a, Walker::boxed(&a.space, 1, false))];
    let mut replay = Replay::new(Recording::new());
    let error = run(entries, &[], &mut replay, &options(100), &Stop::new(), &mut |_, _| Ok(())).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("16 trials in a row could not be measured; the last one: the recording has no"), "{text}");
}

#[test]
fn a_listener_that_fails_ends_the_session() {
    let a = task(1, &TEMPLATE);
    let mut recording = Recording::new();
    record(&mut recording, &a, 1.0);
    let entries = vec![entry("a", &a, Walker::boxed(&a.space, 1, false))];
    let error = run(entries, &[], &mut Replay::new(recording), &options(100), &Stop::new(), &mut |_, event| {
        if matches!(event, Event::Trial { .. }) { Err("the disk is full".to_string()) } else { Ok(()) }
    });
    assert_eq!(error, Err(SessionError::Listener("the disk is full".to_string())));
}

#[test]
fn a_recording_holds_a_search_to_what_it_knows() {
    let a = task(1, &TEMPLATE);
    let mut recording = Recording::new();
    let known = [3, 7, 11, 200];
    for index in known {
        recording.add(&a.workload.key(), &a.target.name, "rows", &a.space.get(index).unwrap(), timing(index as f64));
    }
    let part = recording.part_of(&a).unwrap();
    let configs: Vec<u64> = (0..part.range_len()).map(|i| a.space.index_of(&part.get(i).unwrap()).unwrap()).collect();
    assert_eq!(configs, known);
    assert_eq!(recording.best(&a).map(|(_, us)| us), Some(3.0));
    assert!(recording.part_of(&task(2, &TEMPLATE)).is_none());
}
