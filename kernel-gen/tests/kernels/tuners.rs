//! Tuners on a landscape that was measured on an H100, so that what they find can be compared with the best there is: all
//! 4096 configs of a part of `conv2d_no_batching`'s space for the convolution of AutoTVM's tutorial.

use kernel_gen::records::{Failure, FailureKind, Outcome, Timing, Trial};
use kernel_gen::space::{Config, Space, Value};
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Scheduled, Template, TemplateError};
use kernel_gen::tune::Task;
use kernel_gen::tune::landscape::Landscape;
use kernel_gen::tune::tuner::{Kind, Options, Tuner, make};
use kernel_gen::workload::{Conv2d, Workload};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

const SEEDS: u64 = 20;

/// A share of the best speed that is good enough.
const GOOD: f64 = 0.95;

static H100: LazyLock<Landscape> = LazyLock::new(|| {
    let file = "../specs/landscapes/h100-conv2d_no_batching-n1c512h7w7.txt.gz";
    Landscape::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("the checked-in landscape reads")
});

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

fn best() -> f64 {
    H100.best().expect("something was timed").1
}

fn task() -> Task<'static> {
    H100.task(&REGISTRY).expect("the landscape is a part of a template's space")
}

/// Trials of the next batch, as they were measured.
fn step(tuner: &mut dyn Tuner, most: usize, outcome: impl Fn(u64, &Config) -> Outcome) -> Vec<Trial> {
    let trial = |(index, config): (u64, Config)| Trial { index, outcome: outcome(index, &config), config };
    let trials: Vec<Trial> = tuner.propose(most).into_iter().map(trial).collect();
    tuner.observe(&trials);
    trials
}

/// All trials of a search on the recorded landscape.
fn search(task: &Task<'_>, kind: Kind, seed: u64, threads: usize, most: usize) -> Vec<Trial> {
    let mut tuner = make(kind, task, &Options { seed, threads, ..Options::default() });
    let mut trials = vec![];
    while trials.len() < most {
        let batch = step(&mut *tuner, most - trials.len(), |index, _| H100.outcomes[&index].clone());
        if batch.is_empty() {
            break;
        }
        trials.extend(batch);
    }
    trials
}

fn fastest(trials: &[Trial]) -> f64 {
    trials.iter().filter_map(|t| t.outcome.time_us()).fold(f64::INFINITY, f64::min)
}

/// Seeds with which a search of so many trials finds something faster than a random one, or the best there is.
fn wins(kind: Kind) -> usize {
    let task = task();
    let won = |seed: &u64| {
        let [found, random] = [kind, Kind::Random].map(|kind| fastest(&search(&task, kind, *seed, 1, 128)));
        found < random || found == best()
    };
    (0..SEEDS).filter(won).count()
}

#[test]
fn auto_is_within_five_per_cent_of_the_best_after_64_trials() {
    let task = task();
    let good = |seed: &u64| fastest(&search(&task, Kind::Auto, *seed, 2, 64)) <= best() / GOOD;
    let seeds: Vec<u64> = (0..SEEDS).filter(good).collect();
    println!("auto: within 5 % after 64 trials with {} of {SEEDS} seeds", seeds.len());
    assert!(seeds.len() >= 18, "only with the seeds {seeds:?}");
}

#[test]
fn the_model_beats_chance() {
    let won = wins(Kind::Model);
    println!("model: faster than random after 128 trials with {won} of {SEEDS} seeds");
    assert!(won >= 18, "{won}");
}

#[test]
fn the_genetic_algorithm_beats_chance() {
    let won = wins(Kind::Ga);
    println!("ga: faster than random after 128 trials with {won} of {SEEDS} seeds");
    assert!(won >= 18, "{won}");
}

#[test]
fn descent_ends_in_something_good() {
    let task = task();
    let found: Vec<f64> = (0..5).map(|seed| best() / fastest(&search(&task, Kind::Descent, seed, 1, 128))).collect();
    assert!(found.iter().all(|share| *share > 0.85), "{found:?}");
}

#[test]
fn nothing_is_proposed_twice_and_threads_change_nothing() {
    let task = task();
    for kind in Kind::ALL {
        let indices =
            |threads, seed| -> Vec<u64> { search(&task, kind, seed, threads, 72).iter().map(|t| t.index).collect() };
        let one = indices(1, 3);
        assert_eq!(one, indices(16, 3), "{kind}");
        assert_eq!(one.iter().collect::<BTreeSet<_>>().len(), 72, "{kind}");
        assert!(one.iter().all(|i| task.space.is_valid(*i)), "{kind}");
        if kind != Kind::Grid && kind != Kind::Descent {
            assert_ne!(one, indices(1, 4), "{kind}");
        }
    }
}

/// How many trials a caller asks for, and how it cuts the outcomes, is no part of a search.
#[test]
fn the_callers_batches_change_nothing() {
    let task = task();
    for kind in [Kind::Auto, Kind::Model, Kind::Ga] {
        let whole: Vec<u64> = search(&task, kind, 5, 1, 48).iter().map(|t| t.index).collect();
        let mut tuner = make(kind, &task, &Options { seed: 5, ..Options::default() });
        let mut single = vec![];
        while single.len() < 48 {
            single.extend(step(&mut *tuner, 1, |index, _| H100.outcomes[&index].clone()).iter().map(|t| t.index));
        }
        assert_eq!(single, whole, "{kind}");
    }
}

/// Sixty-odd configs: some fail, some are refused by the space.
fn small() -> Task<'static> {
    let mut task = task();
    let few = |name: &'static str, count: usize| {
        let values = H100.knobs.iter().find(|(n, _)| n == name).map(|(_, v)| v[..count].to_vec());
        (name, values.expect("the landscape has the knob"))
    };
    let [f, y, rc, rx] = [few("tile_f", 4), few("tile_y", 2), few("tile_rc", 4), few("tile_rx", 1)];
    let listed: Vec<(&str, Vec<Value>)> = vec![f, y, rc, rx, few("tile_x", 2), few("tile_ry", 1)];
    task.space = task.space.part(&listed).expect("a part of the landscape");
    task
}

fn timed(us: f64) -> Outcome {
    Outcome::Timed(Timing { samples_us: vec![us, us * 1.001, us * 0.999], ..Timing::default() })
}

fn failed(kind: FailureKind) -> Outcome {
    Outcome::Failed(Failure { kind, detail: "for a test".into() })
}

#[test]
fn a_small_space_is_tried_to_its_end_whatever_fails() {
    let task = small();
    let total = task.space.len() as usize;
    let mixed = |index: u64, _: &Config| match index % 5 {
        0 => failed(FailureKind::WrongAnswer),
        1 => failed(FailureKind::Worker),
        _ => timed(10.0 + index as f64),
    };
    let hopeless = |_: u64, _: &Config| failed(FailureKind::Build);
    for kind in Kind::ALL {
        for outcome in [&mixed as &dyn Fn(u64, &Config) -> Outcome, &hopeless] {
            let mut tuner = make(kind, &task, &Options::default());
            let mut seen = BTreeSet::new();
            while let batch @ [_, ..] = &*step(&mut *tuner, 7, outcome) {
                assert!(batch.iter().all(|t| seen.insert(t.index)), "{kind} repeats itself");
            }
            assert_eq!(seen.len(), total, "{kind}");
            assert!(tuner.propose(7).is_empty(), "{kind}");
        }
    }
}

#[test]
fn what_an_earlier_run_tried_is_not_proposed_again() {
    let task = small();
    let total = task.space.len() as usize;
    for kind in Kind::ALL {
        let history: Vec<Trial> = {
            let mut tuner = make(Kind::Random, &task, &Options { seed: 9, ..Options::default() });
            step(&mut *tuner, total / 2, |index, _| timed(10.0 + index as f64))
        };
        let mut tuner = make(kind, &task, &Options::default());
        tuner.observe(&history);
        let mut seen: BTreeSet<u64> = history.iter().map(|t| t.index).collect();
        while let batch @ [_, ..] = &*step(&mut *tuner, 16, |index, _| timed(10.0 + index as f64)) {
            assert!(batch.iter().all(|t| seen.insert(t.index)), "{kind} repeats what is known");
        }
        assert_eq!(seen.len(), total, "{kind}");
    }
}

/// What a batch is expected to bring while the best config is still to be found, and once it was found: means over
/// searches, because a single batch says little.
#[test]
fn the_expected_gain_goes_down_as_the_best_is_found() {
    let task = task();
    let (mut before, mut after) = (vec![], vec![]);
    for seed in 0..5 {
        let mut tuner = make(Kind::Auto, &task, &Options { seed, threads: 2, ..Options::default() });
        assert_eq!(tuner.expected_gain(), None);
        let mut trials = vec![];
        while trials.len() < 256 {
            let gains = if fastest(&trials) > best() { &mut before } else { &mut after };
            trials.extend(step(&mut *tuner, 64, |index, _| H100.outcomes[&index].clone()));
            gains.extend(tuner.expected_gain());
        }
    }
    assert!(before.iter().chain(&after).all(|g| (0.0..1.0).contains(g)), "{before:?} {after:?}");
    assert!(before.len() >= 30 && after.len() >= 30, "{} batches before, {} after", before.len(), after.len());
    let [early, late] = [before, after].map(|gains| gains.iter().sum::<f64>() / gains.len() as f64);
    println!("auto: a batch is expected to bring {early:.4} before the best is found and {late:.4} after");
    assert!(late < early / 1.5, "{early} before the best is found, {late} after");
}

/// A template that says something else of each config's time than it should.
struct Misled(&'static dyn Template, fn(f64) -> f64);

impl Template for Misled {
    fn name(&self) -> &str {
        "misled"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        self.0.applies(w, t)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        self.0.space(w, t)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        self.0.default_config(w, t)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        (self.1)(self.0.cost(w, t, config))
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        self.0.schedule(w, t, config)
    }
}

#[test]
fn a_prediction_that_is_wrong_does_no_lasting_harm() {
    let right = task();
    // The opposite of what is right.
    let misled = Misled(right.template, |us| 1e4 / us);
    let task = Task {
        template: &misled,
        workload: right.workload.clone(),
        target: right.target,
        space: right.space,
        made_for: None,
    };
    let won = |seed: &u64| {
        let [found, random] = [Kind::Auto, Kind::Random].map(|kind| fastest(&search(&task, kind, *seed, 2, 96)));
        found < random
    };
    let count = (0..5).filter(won).count();
    assert!(count >= 4, "{count} of 5");
}

/// The author of a template may say anything of a config.
#[test]
fn a_prediction_that_is_no_time_is_survived() {
    let right = small();
    let total = right.space.len() as usize;
    let all: [fn(f64) -> f64; 5] =
        [|_| f64::NAN, |_| f64::INFINITY, |_| 0.0, |us| -us, |us| if us > 60.0 { f64::NAN } else { us }];
    for (at, cost) in all.into_iter().enumerate() {
        let misled = Misled(right.template, cost);
        let (workload, space) = (right.workload.clone(), right.space.clone());
        let task = Task { template: &misled, workload, target: right.target, space, made_for: None };
        for kind in Kind::ALL {
            let mut tuner = make(kind, &task, &Options::default());
            let mut seen = BTreeSet::new();
            while seen.len() < total / 2 {
                let batch = step(&mut *tuner, 16, |index, _| timed(10.0 + index as f64));
                assert!(!batch.is_empty() && batch.iter().all(|t| seen.insert(t.index)), "{kind}, prediction {at}");
            }
        }
    }
}

/// Ten million points: the whole space of the tutorial's layer, of which only chosen ones are ever looked at. Times are
/// the template's own prediction, off by a factor that a model can learn.
#[test]
fn a_large_space_costs_little_and_transfer_helps() {
    let target = Target::find("sm_90a").expect("a built-in target");
    let template = REGISTRY.find("conv2d_no_batching").expect("a built-in template");
    let conv = |size: i64, channels: i64| Workload::f32(Conv2d::nchw(1, channels, size, size, channels, 3, 1, 1));
    let task = |w: Workload| Task::new(w, target, template).expect("the template takes it");
    let [earlier, now] = [task(conv(14, 256)), task(conv(7, 512))];
    let time = |task: &Task<'_>, config: &Config| {
        // The prediction believes in many threads, the machine in few.
        let threads: i64 = ["tile_f", "tile_y", "tile_x"].iter().map(|k| config.split(k).map_or(1, |s| s[2])).product();
        timed(task.predicted_us(config) * (threads as f64 / 32.0))
    };
    let run = |task: &Task<'_>, options: &Options<'_>, most: usize| {
        let mut tuner = make(Kind::Auto, task, options);
        let mut trials = vec![];
        while trials.len() < most {
            trials.extend(step(&mut *tuner, most - trials.len(), |_, config| time(task, config)));
        }
        trials
    };
    // A cold start learns the factor too, from its first batch on: what earlier trials can save is that batch.
    let (mut won, mut over_cold, mut over_chance) = (0, 0.0, 0.0);
    for seed in 0..5 {
        let cold = Options { seed, threads: 2, ..Options::default() };
        let before = run(&earlier, &cold, 48);
        let warm = Options { earlier: vec![(&earlier, &before)], ..cold.clone() };
        let [cold, warm] = [cold, warm].map(|options| run(&now, &options, 16));
        let [first_cold, first_warm] = [&cold, &warm].map(|trials| fastest(&trials[..8]));
        println!("auto: first batch {first_cold:.1} us, {first_warm:.1} us with earlier trials");
        won += usize::from(first_warm < first_cold);
        over_cold += (first_cold / first_warm).ln() / 5.0;
        // As many trials as both runs had.
        let random = make(Kind::Random, &now, &Options { seed, ..Options::default() }).propose(64);
        let chance = random.iter().filter_map(|(_, config)| time(&now, config).time_us()).fold(f64::INFINITY, f64::min);
        let found = fastest(&warm);
        println!("auto: {found:.1} us after 16 trials, random {chance:.1} us after 64");
        over_chance += (chance / found).ln() / 5.0;
    }
    assert!(over_chance > 0.0, "16 trials: {} times as fast as 64 random ones", over_chance.exp());
    assert!(won >= 4, "first batch: better with earlier trials for {won} of 5 seeds");
    assert!(over_cold.exp() > 1.3, "first batch: {} times as fast with earlier trials", over_cold.exp());
}
