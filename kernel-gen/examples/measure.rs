//! Measures configs of a workload, and counts what became of them: `measure KEY TARGET TEMPLATE [COUNT] [SEED] [SECONDS]`.
//!
//! Prints the rate, the outcomes by kind, and the best configs, compared with each other at the end.

use kernel_gen::records::Outcome;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::Task;
use kernel_gen::tune::measure::{self, JobId, Options};
use kernel_gen::workload::Workload;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let registry = Registry::builtin();
    let args: Vec<String> = std::env::args().skip(1).collect();
    // The process that holds a GPU is this program, too.
    if args.first().is_some_and(|a| a == "worker") {
        return kernel_gen::cli::main(&registry);
    }
    match run(&registry, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(registry: &Registry, args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [key, target, template, rest @ ..] = args else {
        return Err("measure KEY TARGET TEMPLATE [COUNT] [SEED]".into());
    };
    let number = |at: usize, otherwise: u64| rest.get(at).map_or(Ok(otherwise), |n| n.parse());
    let (count, seed, seconds) = (number(0, 60)? as usize, number(1, 1)?, number(2, 3600)?);
    let target = Target::find(target).ok_or("no such target")?;
    let template = registry.find(template).ok_or("no such template")?;
    let task = Task::new(Workload::from_key(key)?, target, template)?;
    let mut options = Options::default();
    if let Ok(limit) = std::env::var("BUILD_LIMIT_MS") {
        options.build_limit = Some(Duration::from_millis(limit.parse()?));
    }
    if let Ok(threads) = std::env::var("THREADS") {
        options.threads = threads.parse()?;
    }
    if let Ok(jobs) = std::env::var("JOBS") {
        options.build_jobs = Some(jobs.parse()?);
    }
    std::thread::scope(|scope| {
        let mut attached = measure::for_target(scope, target, options)?;
        println!("{}", attached.provenance);
        let mut configs = task.space.sample(seed).take(count);
        let (mut known, mut counts) = (BTreeMap::new(), BTreeMap::new());
        let mut timed: Vec<(f64, usize, Config)> = vec![];
        let begun = Instant::now();
        let (mut under_way, mut done) = (0, 0);
        loop {
            while under_way < attached.measurer.capacity() && begun.elapsed() < Duration::from_secs(seconds) {
                let Some((index, config)) = configs.next() else { break };
                attached.measurer.submit(JobId(index), &task, &config);
                known.insert(index, config);
                under_way += 1;
            }
            let Some((JobId(index), outcome)) = attached.measurer.next(Duration::from_secs(120)) else { break };
            under_way -= 1;
            done += 1;
            match outcome {
                Outcome::Timed(timing) => {
                    *counts.entry("timed".to_string()).or_insert(0) += 1;
                    timed.push((timing.median_us(), timing.samples_us.len(), known[&index].clone()));
                }
                Outcome::Failed(failure) => {
                    let seen = counts.entry(failure.kind.to_string()).or_insert(0);
                    *seen += 1;
                    if *seen <= 2 {
                        println!("{}: {} ({})", failure.kind, failure.detail, known[&index]);
                    }
                }
            }
        }
        let s = begun.elapsed().as_secs_f64();
        let samples: usize = timed.iter().map(|t| t.1).sum();
        println!(
            "{done} trials in {s:.1} s: {:.0} a minute, {:.0} timed a minute, {:.1} samples each; {counts:?}",
            done as f64 * 60.0 / s,
            timed.len() as f64 * 60.0 / s,
            samples as f64 / timed.len().max(1) as f64
        );
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let best: Vec<&Config> = timed.iter().take(4).map(|t| &t.2).collect();
        let pairs: Vec<_> = best.iter().map(|c| (&task, *c)).collect();
        let begun = Instant::now();
        for ((us, _, config), outcome) in timed.iter().zip(attached.measurer.compare(&pairs)) {
            match outcome {
                Outcome::Timed(t) => println!(
                    "{us:10.2} us, compared {:10.2}, {:10.2} cold, error {:.3}: {config}",
                    t.median_us(),
                    t.cold_median_us(),
                    t.max_error
                ),
                Outcome::Failed(failure) => println!("{us:10.2} us, compared {failure:?}: {config}"),
            }
        }
        println!("compared in {:.1} s", begun.elapsed().as_secs_f64());
        Ok(())
    })
}
