//! Candidates that do what a candidate must not do, and workers that are killed: each is recorded by name, and the run
//! goes on.

use crate::Options;
use anyhow::{Result, anyhow};
use kernel_gen::emit::cuda::CudaSource;
use kernel_gen::records::{FailureKind, Outcome};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::Task;
use kernel_gen::tune::measure::{self, Emitted, JobId};
use kernel_gen::workload::sample::Rng;
use kernel_gen::workload::{Conv2d, Workload};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A fault, and what it is recorded as. `{in}` is the first input, `{out}` the output.
const FAULTS: [(&str, FailureKind); 9] = [
    ("for (;;) ((volatile float *){out})[0] = 1.0f;", FailureKind::RunTimeout),
    ("if (((volatile const float *){in})[1ll << 36] == 1.0f) return;", FailureKind::IllegalAccess),
    ("((volatile float *){out})[1ll << 36] = 1.0f;", FailureKind::IllegalAccess),
    ("((volatile float *){out})[-1] = 1.0f;", FailureKind::OutsideWrite),
    ("((volatile float *){in})[1] = 7.0f;", FailureKind::OutsideWrite),
    (
        "if (blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x == 0) ((volatile float *){out})[5] = 0.0f;\n  if (threadIdx.x < 2000) return;",
        FailureKind::WrongAnswer,
    ),
    ("asm volatile(\"trap;\");", FailureKind::Crash),
    ("((volatile double *)((char *){out} + 4))[0] = 1.0;", FailureKind::IllegalAccess),
    ("nonsense;", FailureKind::Build),
];

/// Puts a statement at the beginning of the kernel.
fn insert(source: &mut CudaSource, statement: &str) {
    let head = format!(" {}(", source.launches[0].symbol);
    let Some(at) = source.source.find(&head) else { return };
    let Some(brace) = source.source[at..].find('{').map(|b| at + b + 1) else { return };
    let params = &source.source[at + head.len()..brace];
    let names: Vec<String> = params
        .split(',')
        .filter_map(|p| p.trim_end_matches([')', ' ', '{', '\n']).split_whitespace().last())
        .map(|name| name.trim_start_matches('*').to_string())
        .collect();
    let (Some(first), Some(last)) = (names.first(), names.last()) else { return };
    let statement = statement.replace("{in}", first).replace("{out}", last);
    source.source.insert_str(brace, &format!("\n  {statement}\n"));
}

/// Runs the planted faults, then kills the worker at random moments; whether everything came out as it must.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let target = Target::find("sm_90a").ok_or_else(|| anyhow!("there is no target sm_90a"))?;
    let registry = Registry::builtin();
    let template = registry.find("conv2d_no_batching").ok_or_else(|| anyhow!("there is no such template"))?;
    let workload = Workload::f32(Conv2d::nchw(1, 32, 14, 14, 64, 3, 1, 1));
    let task = Task::new(workload, target, template).map_err(|e| anyhow!("{e}"))?;
    let planted = plant(target, &task)?;
    Ok(killed(target, &task, options.number("--kills", 20)? as usize)? && planted)
}

fn plant<'r>(target: &Target, task: &Task<'r>) -> Result<bool> {
    const GOOD: usize = 6;
    let configs: Vec<Config> = task.space.sample(3).map(|(_, c)| c).take(FAULTS.len() + 2 + GOOD).collect();
    let faulty: BTreeMap<String, &str> =
        configs.iter().zip(FAULTS).map(|(c, (fault, _))| (c.to_string(), fault)).collect();
    let (greedy, wide) = (configs[FAULTS.len()].to_string(), configs[FAULTS.len() + 1].to_string());
    let edit = move |config: &Config, emitted: Emitted<'_>| {
        let (Emitted::Cuda(source), text) = (emitted, config.to_string()) else { return };
        if let Some(fault) = faulty.get(&text) {
            insert(source, fault);
        }
        if text == greedy {
            source.workspace_bytes = 1 << 45;
        }
        if text == wide {
            source.launches[0].block = [2048, 1, 1];
        }
    };
    // Each is to fail for what was planted in it, however long a slow machine compiles a config that unrolls much.
    let build_limit = Some(Duration::from_secs(60));
    let options = measure::Options { edit: Some(Arc::new(edit)), build_limit, ..measure::Options::default() };
    let mut outcomes: BTreeMap<u64, Outcome> = BTreeMap::new();
    let begun = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let mut attached = measure::for_target(scope, target, options).map_err(|e| anyhow!("{e}"))?;
        println!("{}", attached.provenance);
        for (i, config) in configs.iter().enumerate() {
            attached.measurer.submit(JobId(i as u64), task, config);
        }
        while let Some((JobId(i), outcome)) = attached.measurer.next(Duration::from_secs(120)) {
            outcomes.insert(i, outcome);
        }
        Ok(())
    })?;
    println!("| planted | recorded as | what was seen | as it must be |\n|---|---|---|---|");
    let mut all_right = outcomes.len() == configs.len();
    let more = [("2^45 bytes of workspace", FailureKind::Resource), ("2048 threads a block", FailureKind::Resource)];
    for (i, (fault, kind)) in FAULTS.into_iter().chain(more).enumerate() {
        let (seen, detail) = match outcomes.get(&(i as u64)) {
            Some(Outcome::Failed(why)) => (why.kind.name(), why.detail.as_str()),
            Some(Outcome::Timed(_)) => ("timed", ""),
            None => ("nothing", ""),
        };
        all_right &= seen == kind.name();
        println!("| `{}` | {seen} | {detail} | {} |", fault.replace('\n', " "), seen == kind.name());
    }
    let good = outcomes.range(configs.len() as u64 - GOOD as u64..).filter(|(_, o)| o.time_us().is_some()).count();
    println!("{good} of {GOOD} good ones were timed; {:.1} s", begun.elapsed().as_secs_f64());
    for (_, outcome) in outcomes.range(configs.len() as u64 - GOOD as u64..) {
        if let Outcome::Failed(why) = outcome {
            println!("a good one: {}: {}", why.kind, why.detail);
        }
    }
    Ok(all_right && good == GOOD)
}

/// The processes that this one has started as workers.
fn workers() -> Vec<String> {
    let ids = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children: String = threads.map(|t| ids(t.path().join("children"))).collect();
    let is_worker =
        |id: &&str| std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|c| c.windows(7).any(|w| w == b"worker\0"));
    children.split_whitespace().filter(is_worker).map(String::from).collect()
}

/// Kills the worker at random moments while configs are measured.
fn killed<'r>(target: &Target, task: &Task<'r>, kills: usize) -> Result<bool> {
    let configs: Vec<Config> = task.space.sample(4).map(|(_, c)| c).take(40).collect();
    let (done, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut submitted = 0;
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            let mut rng = Rng::new(9);
            while !done.load(Ordering::Relaxed) && count.load(Ordering::Relaxed) < kills {
                std::thread::sleep(Duration::from_millis(rng.below(1200)));
                for id in workers() {
                    let killed = Command::new("kill").args(["-9", &id]).status().is_ok_and(|s| s.success());
                    count.fetch_add(usize::from(killed), Ordering::Relaxed);
                }
            }
        });
        let options = measure::Options::default();
        // The killer may be faster than the first worker.
        let attached = (0..20).find_map(|_| measure::for_target(scope, target, options.clone()).ok());
        let Some(mut attached) = attached else {
            done.store(true, Ordering::Relaxed);
            anyhow::bail!("no worker lives long enough to begin");
        };
        let begun = Instant::now();
        let mut next = configs.iter().cycle();
        let mut under_way = 0;
        loop {
            let go_on = count.load(Ordering::Relaxed) < kills && begun.elapsed() < Duration::from_secs(60);
            while go_on && under_way < attached.measurer.capacity() {
                let Some(config) = next.next() else { break };
                attached.measurer.submit(JobId(submitted), task, config);
                submitted += 1;
                under_way += 1;
            }
            let Some((_, outcome)) = attached.measurer.next(Duration::from_secs(120)) else { break };
            under_way -= 1;
            let name = match outcome {
                Outcome::Timed(_) => "timed".to_string(),
                Outcome::Failed(why) => why.kind.to_string(),
            };
            *counts.entry(name).or_default() += 1;
        }
        done.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    let kills = count.load(Ordering::Relaxed);
    println!("the worker was killed {kills} times during {submitted} trials: {counts:?}");
    let lost: usize =
        counts.iter().filter(|(name, _)| !matches!(name.as_str(), "timed" | "build_timeout")).map(|(_, n)| n).sum();
    Ok(counts.values().sum::<usize>() as u64 == submitted && lost <= kills)
}
