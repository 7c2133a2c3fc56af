//! A landscape: every config of a part of `conv2d_no_batching`'s space for the tutorial's layer, checked and timed.

use crate::bench::Data;
use crate::families::target_of;
use crate::gpu::Gpu;
use crate::kernel::Kernel;
use crate::{Options, prepare};
use anyhow::{Context, Result, anyhow};
use kernel_gen::emit::cuda::CudaSource;
use kernel_gen::records::{Failure, FailureKind, Outcome, Timing};
use kernel_gen::space::{Config, Value};
use kernel_gen::templates::Registry;
use kernel_gen::toolchain::cuda::Artifact;
use kernel_gen::tune::landscape::Landscape;
use kernel_gen::workload::{Conv2d, Op, Workload};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Launches of a sample, and samples of a config.
const REPEATS: usize = 8;
const SAMPLES: usize = 5;

/// The neighbourhood: the axes of a thread's and a block's tile in the sizes that matter, and both ends of unrolling.
fn knobs() -> Vec<(String, Vec<Value>)> {
    let splits = |name: &str, sizes: &[&[i64]]| {
        let values = sizes.iter().map(|s| Value::Split([&[-1], *s].concat())).collect();
        (name.to_string(), values)
    };
    let rows: &[&[i64]] = &[&[1, 7, 1], &[1, 1, 7], &[1, 1, 1]];
    let mut filters = vec![];
    for threads in [4, 8, 16, 32, 64] {
        filters.extend([[1, threads, 1], [2, threads, 1], [1, threads, 2]]);
    }
    let filters: Vec<&[i64]> = filters.iter().map(|s| s.as_slice()).collect();
    let numbers = |name: &str, all: &[i64]| (name.to_string(), all.iter().map(|n| Value::Int(*n)).collect());
    vec![
        splits("tile_f", &filters),
        splits("tile_y", rows),
        splits("tile_x", rows),
        splits("tile_rc", &[&[1, 2], &[1, 8], &[4, 1], &[8, 2]]),
        splits("tile_ry", &[&[1, 1], &[1, 3]]),
        splits("tile_rx", &[&[1, 1], &[1, 3]]),
        numbers("auto_unroll_max_step", &[0, 1500]),
        numbers("unroll_explicit", &[0]),
    ]
}

/// Measures all of it and writes it to `--out`.
pub(crate) fn run(gpu: &Gpu, options: &Options) -> Result<bool> {
    let out = options.text("--out").context("landscape wants --out FILE")?;
    let deadline = Instant::now() + Duration::from_secs(options.number("--seconds", 420)?);
    let target = target_of(gpu)?;
    let compiler = prepare::compiler(target)?;
    let registry = Registry::builtin();
    let template = registry.find("conv2d_no_batching").context("a template of that name")?;
    let w = Workload::f32(Op::Conv2d(Conv2d::nchw(1, 512, 7, 7, 512, 3, 1, 1)));
    let mut landscape = Landscape::new(&gpu.name, &w, target, template);
    landscape.knobs = knobs();
    let space = landscape.part_of(&template.space(&w, target).map_err(|e| anyhow!("{e}"))?).map_err(|e| anyhow!(e))?;
    let configs: Vec<(u64, Config)> = space.sample(1).collect();
    println!("{} configs of {}", configs.len(), space.range_len());

    let mut data = Data::new(gpu, &w)?;
    let jobs = std::thread::available_parallelism().map_or(1, |n| n.get());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let (sender, receiver) = mpsc::sync_channel::<(usize, Result<(CudaSource, Artifact), Failure>)>(4 * jobs);
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..jobs {
            let (sender, next, configs, compiler, w) = (sender.clone(), &next, &configs, &compiler, &w);
            scope.spawn(move || {
                loop {
                    let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some((_, config)) = configs.get(i).filter(|_| Instant::now() < deadline) else { return };
                    let made = prepare::source(template, w, target, config)
                        .map_err(|e| Failure { kind: FailureKind::Refused, detail: format!("{e:#}") })
                        .and_then(|source| {
                            let artifact = prepare::compile(compiler, target, std::slice::from_ref(&source)).pop();
                            let artifact = artifact.context("one source").and_then(|a| a);
                            let failed = |e| Failure { kind: FailureKind::Build, detail: format!("{e:#}") };
                            artifact.map_err(failed).map(|artifact| (source, artifact))
                        });
                    if sender.send((i, made)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (i, made) in receiver {
            let outcome = match made {
                Ok((source, artifact)) => time(gpu, &w, &mut data, &source, &artifact)
                    .map(Outcome::Timed)
                    .unwrap_or_else(|e| wrong(&configs[i].1, FailureKind::WrongAnswer, &format!("{e:#}"))),
                Err(Failure { kind, detail }) => wrong(&configs[i].1, kind, &detail),
            };
            landscape.outcomes.insert(configs[i].0, outcome);
            if landscape.outcomes.len().is_multiple_of(500) {
                println!("{} done, best {:?}", landscape.outcomes.len(), landscape.best());
                std::fs::write(out, landscape.to_text())?;
            }
        }
        Ok(())
    })?;
    std::fs::write(out, landscape.to_text())?;
    let mut times: Vec<f64> = landscape.outcomes.values().filter_map(Outcome::time_us).collect();
    times.sort_by(f64::total_cmp);
    println!("{} of {} measured, {} timed", landscape.outcomes.len(), configs.len(), times.len());
    for share in [0, 1, 5, 20, 50, 80, 99] {
        println!("{share:3} %: {:9.1} us", times[(times.len() - 1) * share / 100]);
    }
    if let Some((index, us)) = landscape.best() {
        println!("best {us:.1} us: {}", space.get(index).map(|c| c.to_string()).unwrap_or_default());
    }
    Ok(landscape.outcomes.len() == configs.len())
}

fn wrong(config: &Config, kind: FailureKind, detail: &str) -> Outcome {
    println!("{kind} {config}: {}", detail.lines().next().unwrap_or_default());
    Outcome::Failed(Failure { kind, detail: detail.to_string() })
}

fn time(gpu: &Gpu, w: &Workload, data: &mut Data, source: &CudaSource, artifact: &Artifact) -> Result<Timing> {
    let kernel = Kernel::load(gpu, source, artifact)?;
    let max_error = data.check(gpu, w, &kernel)?;
    let bound = kernel.bind(gpu, &data.memory)?;
    let graph = gpu.graph(REPEATS, || bound.launch(gpu))?;
    let samples_us = gpu.samples(&[&graph], REPEATS, SAMPLES)?.pop().context("samples of one graph")?;
    Ok(Timing { samples_us, max_error, ..Timing::default() })
}
