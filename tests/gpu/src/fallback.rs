//! How good the choice without a record is: for every workload of a spec the defaults of all templates beside the best of
//! a small search.
//!
//! The search is a few rounds over all workloads together, so that the compilers always have enough to do: random
//! configs and those that the cost function likes best among many more, then neighbours of the fastest so far. Every
//! kernel is checked before it is timed. With `--out` each is a line of JSON, written as soon as it is known.

use crate::families::{buffers, target_of};
use crate::gpu::{Gpu, Guarded, median};
use crate::kernel::Kernel;
use crate::{Options, prepare};
use anyhow::{Context, Result, anyhow};
use kernel_gen::emit::cuda::CudaSource;
use kernel_gen::model;
use kernel_gen::records::BestRecords;
use kernel_gen::space::{Config, Space};
use kernel_gen::spec::Spec;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::toolchain::cuda::Artifact;
use kernel_gen::toolchain::values;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::special::Reach;
use kernel_gen::workload::{Reference, Workload, reference_with_bounds};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Launches in a graph that is timed.
const LAUNCHES: usize = 20;
/// Configs whose cost is looked at for each that is tried because of it.
const RANKED: usize = 64;
/// A kernel that takes longer to compile is left out.
const COMPILE_LIMIT: Duration = Duration::from_secs(12);

/// A template that could run a workload.
struct Way<'r> {
    template: &'r dyn Template,
    space: Space,
    default: Config,
    /// Configs that were proposed.
    seen: BTreeSet<String>,
}

/// A workload, the ways to run it, and what is known so far.
struct Case<'r> {
    name: String,
    workload: Workload,
    count: u32,
    ways: Vec<Way<'r>>,
    /// The choice of the model without records: template and config.
    chosen: (String, Config),
    /// Seeded inputs, and what comes of them.
    inputs: Vec<Vec<f64>>,
    reference: Reference,
    results: Vec<Found>,
}

/// A config that was timed.
#[derive(Clone)]
struct Found {
    template: String,
    config: Config,
    us: f64,
}

impl Case<'_> {
    fn best(&self) -> Option<&Found> {
        self.results.iter().min_by(|a, b| a.us.total_cmp(&b.us))
    }

    /// The time of the choice without records.
    fn chosen_us(&self) -> Option<f64> {
        let (template, config) = &self.chosen;
        self.results.iter().find(|f| f.template == *template && f.config == *config).map(|f| f.us)
    }
}

/// A config to try: the case, the way, and why.
struct Proposal {
    case: usize,
    way: usize,
    config: Config,
    kind: &'static str,
}

/// Compares and prints; whether every choice without a record ran and was right.
pub(crate) fn run(gpu: &Gpu, options: &Options) -> Result<bool> {
    let target = target_of(gpu)?;
    let compiler = prepare::compiler(target)?;
    let registry = Registry::builtin();
    let file = options.text("--spec").context("fallback wants --spec FILE")?;
    let spec = Spec::load(Path::new(file)).map_err(|faults| anyhow!("{}", faults[0]))?;
    let (trials, rounds) = (options.number("--trials", 16)? as usize, options.number("--rounds", 3)?);
    let (seed, seconds) = (options.number("--seed", 1)?, options.number("--seconds", 80)?);
    let mut out = options.text("--out").map(File::create).transpose()?;
    let begun = Instant::now();
    let mut cases = cases(&registry, &spec, target, options)?;
    println!("{} workloads of {file} on {}", cases.len(), target.name);
    for round in 0..rounds {
        if begun.elapsed().as_secs() >= seconds {
            println!("{seconds} s are over after {round} rounds");
            break;
        }
        let proposals = propose(&mut cases, target, round, trials, seed);
        let sources = sources(&cases, target, &proposals);
        let (kept, texts): (Vec<Proposal>, Vec<CudaSource>) =
            proposals.into_iter().zip(sources).filter_map(|(p, s)| s.ok().map(|s| (p, s))).unzip();
        let artifacts = prepare::compile_within(&compiler, target, &texts, COMPILE_LIMIT);
        let mut data: Option<(usize, Data)> = None;
        for ((proposal, source), artifact) in kept.iter().zip(&texts).zip(artifacts) {
            if begun.elapsed().as_secs() >= seconds + 8 {
                break;
            }
            let case = &mut cases[proposal.case];
            if data.as_ref().is_none_or(|d| d.0 != proposal.case) {
                data = Some((proposal.case, Data::new(gpu, case)?));
            }
            let Some((_, data)) = &mut data else { continue };
            let way = &case.ways[proposal.way];
            let reach = way.template.reach(&case.workload, &proposal.config);
            let outcome = artifact.and_then(|a| time(gpu, case, data, source, &a, reach));
            let text = outcome.as_ref().err().map(|e| format!("{e:#}").lines().next().unwrap_or_default().to_string());
            if let Some(out) = &mut out {
                let predicted = way.template.cost(&case.workload, target, &proposal.config);
                writeln!(
                    out,
                    "{{\"workload\":\"{}\",\"target\":\"{}\",\"template\":\"{}\",\"kind\":\"{}\",\"config\":\"{}\",\
                     \"predicted_us\":{predicted:.4},\"us\":{},\"error\":{:?}}}",
                    case.workload.key(),
                    target.name,
                    way.template.name(),
                    proposal.kind,
                    proposal.config,
                    outcome.as_ref().map_or("null".to_string(), |us| format!("{us:.4}")),
                    text.as_deref().unwrap_or_default(),
                )?;
            }
            match outcome {
                Ok(us) => {
                    let template = way.template.name().to_string();
                    case.results.push(Found { template, config: proposal.config.clone(), us });
                }
                Err(error) => {
                    if gpu.stream.synchronize().is_err() {
                        println!("the context is lost by {} {}", way.template.name(), proposal.config);
                        print(&cases);
                        return Err(error);
                    }
                    if proposal.kind == "default" {
                        let what = text.unwrap_or_default();
                        println!("FAILED {}: {} {}: {what}", case.name, way.template.name(), proposal.config);
                    }
                }
            }
        }
    }
    print(&cases);
    Ok(cases.iter().all(|c| c.chosen_us().is_some()))
}

fn print(cases: &[Case<'_>]) {
    println!("\n| layer | count | chosen us | best us | ratio | tried | chosen | best |");
    println!("|---|--:|--:|--:|--:|--:|---|---|");
    let (mut logs, mut sums) = (vec![], [0.0; 2]);
    for case in cases {
        let (Some(chosen), Some(best)) = (case.chosen_us(), case.best()) else {
            println!("| {} | {} | failed |", case.name, case.count);
            continue;
        };
        let ratio = chosen / best.us;
        logs.push(ratio.ln());
        sums[0] += f64::from(case.count) * chosen;
        sums[1] += f64::from(case.count) * best.us;
        println!(
            "| {} | {} | {chosen:.1} | {:.1} | {ratio:.2} | {} | {} {} | {} {} |",
            case.name,
            case.count,
            best.us,
            case.results.len(),
            case.chosen.0,
            case.chosen.1,
            best.template,
            best.config
        );
    }
    let mean = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
    println!("\ngeometric mean {mean:.3}; the network {:.1} us chosen, {:.1} us best", sums[0], sums[1]);
}

/// The workloads of a spec with all that could run them.
fn cases<'r>(registry: &'r Registry, spec: &Spec, target: &Target, options: &Options) -> Result<Vec<Case<'r>>> {
    let mut cases: Vec<Case<'r>> = vec![];
    for (_, w) in spec.workloads() {
        let name = w.name.clone().unwrap_or_else(|| w.workload.key());
        if options.text("--only").is_some_and(|part| !name.contains(part)) {
            continue;
        }
        let chosen = model::choose(registry, &w.workload, target, &BestRecords::new(), &model::Options::default());
        let chosen = chosen.map_err(|e| anyhow!("{e}"))?;
        let mut ways = vec![];
        for template in registry.iter().filter(|t| t.applies(&w.workload, target).is_ok()) {
            let space = template.space(&w.workload, target).map_err(|e| anyhow!("{e}"))?;
            let default = template.default_config(&w.workload, target).map_err(|e| anyhow!("{e}"))?;
            let default = space.normalise(&default).map_err(|e| anyhow!("{e}"))?;
            ways.push(Way { template, space, default, seen: BTreeSet::new() });
        }
        let (workload, chosen) = (w.workload.clone(), (chosen.template, chosen.config));
        let (inputs, reference) = (vec![], Reference { values: vec![], bounds: vec![], or_nan: vec![] });
        cases.push(Case { name, workload, count: w.count, ways, chosen, inputs, reference, results: vec![] });
    }
    // A reference takes seconds, so all cores make them.
    std::thread::scope(|scope| {
        for case in &mut cases {
            scope.spawn(|| {
                case.inputs = sample::inputs(&case.workload, &mut Rng::new(1));
                let views: Vec<&[f64]> = case.inputs.iter().map(Vec::as_slice).collect();
                case.reference = reference_with_bounds(&case.workload, &views);
            });
        }
    });
    Ok(cases)
}

/// What to try in a round: in the first all defaults, half random configs and half cheap ones; later neighbours of the
/// fastest three, the cheap ones of their neighbours first.
fn propose(cases: &mut [Case<'_>], target: &Target, round: u64, trials: usize, seed: u64) -> Vec<Proposal> {
    let mut all = vec![];
    for (index, case) in cases.iter_mut().enumerate() {
        let workload = case.workload.clone();
        let mut fastest: Vec<Found> = case.results.clone();
        fastest.sort_by(|a, b| a.us.total_cmp(&b.us));
        fastest.truncate(3);
        let searched = case.ways.iter().filter(|w| w.space.range_len() > 1).count().max(1);
        for (i, way) in case.ways.iter_mut().enumerate() {
            let mut wanted: Vec<(Config, &'static str)> = vec![];
            let cost = |c: &Config| way.template.cost(&workload, target, c);
            if round == 0 {
                wanted.push((way.default.clone(), "default"));
                let share = trials.div_ceil(2 * searched);
                let sampled = |n: usize| way.space.sample(seed + index as u64).take(n).map(|s| s.1);
                wanted.extend(sampled(share).map(|c| (c, "random")));
                let mut ranked: Vec<Config> = sampled(share * RANKED).collect();
                ranked.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
                wanted.extend(ranked.into_iter().take(share).map(|c| (c, "cheap")));
            } else {
                for found in fastest.iter().filter(|f| f.template == way.template.name()) {
                    let Ok(at) = way.space.index_of(&found.config) else { continue };
                    let mut near: Vec<Config> = way.space.neighbours(at).filter_map(|n| way.space.get(n)).collect();
                    near.retain(|c| !way.seen.contains(&c.to_string()));
                    near.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
                    wanted.extend(near.into_iter().take(trials / 3 + 1).map(|c| (c, "neighbour")));
                }
            }
            for (config, kind) in wanted {
                if way.seen.insert(config.to_string()) {
                    all.push(Proposal { case: index, way: i, config, kind });
                }
            }
        }
    }
    all
}

/// The sources of all proposals, made on all cores.
fn sources(cases: &[Case<'_>], target: &Target, proposals: &[Proposal]) -> Vec<Result<CudaSource>> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = vec![];
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(p) = proposals.get(i) else { return done };
            let case = &cases[p.case];
            done.push((i, prepare::source(case.ways[p.way].template, &case.workload, target, &p.config)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut all: Vec<(usize, Result<CudaSource>)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        running.into_iter().flat_map(|t| t.join().expect("making a source does not panic")).collect()
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, source)| source).collect()
}

/// A workload's data on the device.
struct Data {
    memory: Vec<Guarded>,
}

impl Data {
    fn new(gpu: &Gpu, case: &Case<'_>) -> Result<Data> {
        Ok(Data { memory: buffers(gpu, &case.workload.params(), &prepare::plain(&case.workload, &case.inputs))? })
    }

    /// Runs a kernel of this reach once and holds its whole output against the reference.
    fn check(&mut self, gpu: &Gpu, case: &Case<'_>, kernel: &Kernel, reach: Reach) -> Result<()> {
        let last = self.memory.len() - 1;
        self.memory[last].poison(gpu)?;
        kernel.bind(gpu, &self.memory)?.launch(gpu)?;
        gpu.stream.synchronize()?;
        let output = values::decode(case.workload.out_dtype, &gpu.download(&self.memory[last])?);
        let checked = match case.reference.check(output.iter().copied()) {
            // Few results are outside of the bounds of an output's own operands, and a reference takes seconds.
            Err(_) if reach != Reach::Own => {
                let views: Vec<&[f64]> = case.inputs.iter().map(Vec::as_slice).collect();
                reach.reference(&case.workload, &views).check(output)
            }
            checked => checked,
        };
        checked.map(drop).map_err(|mismatch| anyhow!("{mismatch}"))
    }
}

/// Microseconds of a launch; roughly only where it is nowhere near the best.
fn time(
    gpu: &Gpu,
    case: &Case<'_>,
    data: &mut Data,
    source: &CudaSource,
    artifact: &Artifact,
    reach: Reach,
) -> Result<f64> {
    let best = case.best().map_or(f64::INFINITY, |f| f.us);
    let kernel = Kernel::load(gpu, source, artifact)?;
    data.check(gpu, case, &kernel, reach)?;
    let bound = kernel.bind(gpu, &data.memory)?;
    let rough = gpu.graph(2, || bound.launch(gpu))?;
    let us = median(gpu.samples(&[&rough], 2, 3)?.remove(0));
    if us > 1.5 * best + 5.0 {
        return Ok(us);
    }
    let graph = gpu.graph(LAUNCHES, || bound.launch(gpu))?;
    Ok(median(gpu.samples(&[&graph], LAUNCHES, 9)?.remove(0)))
}
