//! "Writing Tunable Templates and Using the Auto-tuner" (Lianmin Zheng, Apache TVM), on this machine's CPU: its three
//! templates, and a grid search through the space of each.
//!
//! `matmul` is the same tutorial on a GPU.

use kernel_gen::emit::c::Isa;
use kernel_gen::model;
use kernel_gen::records::{BestRecords, Outcome, Trial};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::tune::measure::{self, JobId, Measurer, Sampling};
use kernel_gen::tune::tuner::{self, Kind};
use kernel_gen::tune::{Task, gflops};
use kernel_gen::workload::{Matmul, Workload};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tutorials::blocked::{Blocked, schedule};
use tutorials::{Result, argument, show_c};

/// What the tutorial's `LocalBuilder` and `LocalRunner` wait for a candidate.
const LIMIT: Duration = Duration::from_secs(10);
/// Samples of each of the best configs, which are timed in turn at the end.
const COMPARED: usize = 9;

fn main() -> ExitCode {
    tutorials::main(|| {
        let n = argument("--size", 512)?;
        let workload = Workload::f32(Matmul::new(n, n, n));
        workload.validate()?;
        let target = Target::find(Isa::best_here().name()).ok_or("the library knows the target")?;
        show_c("matmul_v0", schedule(&workload, [8, 8])?, target)?;

        // There are two steps for measuring a config: build and run. All processors compile; candidates then run one after the
        // other, each five times on one thread, and the mean counts.
        let number = usize::try_from(argument("--number", 5)?)?.max(1);
        let sampling = Sampling { number, ..Sampling::default() }.with_repeat(1);
        let sampling = Sampling { compare: COMPARED, ..sampling };
        let options =
            measure::Options { build_limit: Some(LIMIT), run_limit: LIMIT, sampling, ..measure::Options::default() };

        let (templates, library) = (Blocked::ALL, Registry::builtin());
        let tasks: Vec<Task<'_>> = (templates.iter().map(|template| template as &dyn Template))
            .map(|template| Task::new(workload.clone(), target, template))
            .collect::<std::result::Result<_, _>>()?;
        let records = BestRecords::default();
        let chosen = model::choose(&library, &workload, target, &records, &model::Options::default())?;
        let template = library.find(&chosen.template).ok_or("a template that was chosen is registered")?;
        let chosen_task = Task::new(workload.clone(), target, template)?;
        std::thread::scope(|scope| {
            let mut attached = measure::for_target(scope, target, options)?;
            println!("{}", attached.provenance);
            let mut best = vec![];
            for task in &tasks {
                println!("\n# {}\n{}", task.template.name(), task.space);
                let trials = grid_search(task, &mut *attached.measurer);
                let timed = trials.iter().filter_map(|trial| Some((trial.outcome.time_us()?, &trial.config)));
                let fastest = timed.min_by(|a, b| a.0.total_cmp(&b.0)).ok_or("no config could be timed")?;
                println!("Best config: {}", shown(fastest.1));
                best.push((task, fastest.1.clone()));
            }
            best.push((&chosen_task, chosen.config.clone()));
            compare(&best, &mut *attached.measurer)
        })
    })
}

/// Measures every config of a task's space in the order of their indices, and prints what became of each; that is
/// `GridSearchTuner(task).tune(n_trial=len(space), …)`.
fn grid_search<'t>(task: &'t Task<'t>, measurer: &mut dyn Measurer<'t>) -> Vec<Trial> {
    let mut tuner = tuner::make(Kind::Grid, task, &tuner::Options::default());
    let (mut under_way, mut known, mut trials) = (BTreeMap::new(), BTreeMap::new(), vec![]);
    let (mut next, mut fastest) = (0, f64::INFINITY);
    loop {
        // Some are compiled while one is timed.
        while under_way.len() < measurer.capacity().max(1) {
            let Some((index, config)) = tuner.propose(1).pop() else { break };
            measurer.submit(JobId(next), task, &config);
            under_way.insert(next, (index, config));
            next += 1;
        }
        if under_way.is_empty() {
            return trials;
        }
        let Some((JobId(job), outcome)) = measurer.next(LIMIT) else { continue };
        if let Some((index, config)) = under_way.remove(&job) {
            known.insert(job, Trial { index, config, outcome });
        }
        // Builds end in any order.
        while let Some(trial) = known.remove(&(trials.len() as u64)) {
            fastest = trial.outcome.time_us().unwrap_or(f64::INFINITY).min(fastest);
            println!("No: {:<4}{}", trials.len() + 1, result(task, &trial, fastest));
            tuner.observe(std::slice::from_ref(&trial));
            trials.push(trial);
        }
    }
}

/// A line of the tutorial's log: throughput and the best so far, the time or what is wrong, the config and its index.
fn result(task: &Task<'_>, trial: &Trial, fastest_us: f64) -> String {
    let rate = |us: f64| gflops(&task.workload, us);
    let (us, what) = match &trial.outcome {
        Outcome::Timed(timing) => (timing.median_us(), format!("{:.3} ms", timing.median_us() / 1e3)),
        Outcome::Failed(failure) => (f64::INFINITY, format!("{}: {}", failure.kind, failure.detail)),
    };
    let config = shown(&trial.config);
    format!("GFLOPS: {:>6.2}/{:<6.2}  result: {what:<12}  {config},{}", rate(us), rate(fastest_us), trial.index)
}

fn shown(config: &Config) -> String {
    format!("[{}]", config.to_string().replace(' ', ", "))
}

/// Times the best configs again, in turn, beside what the library chooses without any record. Every result was checked
/// against the product in `f64`.
fn compare<'t>(best: &[(&Task<'t>, Config)], measurer: &mut dyn Measurer<'t>) -> Result<()> {
    let candidates: Vec<(&Task<'t>, &Config)> = best.iter().map(|(task, config)| (*task, config)).collect();
    println!("\n{:14} {:>10} {:>8} {:>11}", "template", "ms", "GFLOPS", "error/bound");
    for ((task, config), outcome) in candidates.iter().zip(measurer.compare(&candidates)) {
        let name = task.template.name();
        match outcome {
            Outcome::Timed(timing) => {
                let (us, error) = (timing.median_us(), timing.max_error);
                let rate = gflops(&task.workload, us);
                println!("{name:14} {:>10.3} {rate:>8.2} {error:>11.1e}  {}", us / 1e3, shown(config));
            }
            Outcome::Failed(failure) => return Err(format!("{name}: {}: {}", failure.kind, failure.detail).into()),
        }
    }
    Ok(())
}
