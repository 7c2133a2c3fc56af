//! Times generated kernels and what users would pick instead on the same layers, in one process, in turns, after it has
//! compared their results. `README.md` says how to run it and what the figures mean.

mod check;
mod contest;
mod layers;
mod measure;
mod onednn;
mod onnx;
mod options;
mod ort;
mod pin;
mod table;

use contest::{Contestant, Ours};
use kernel_gen_runtime::{Cpu, Isa, Report};
use layers::{Data, Layer};
use measure::Rule;
use onednn::Variant;
use options::{Options, USAGE};
use serde_json::json;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use table::{Entry, Row};

/// Largest error that counts as correct, relative to the largest output.
const TOLERANCE: f64 = 1e-4;

fn main() -> ExitCode {
    let result = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            print!("{USAGE}");
            Ok(true)
        }
        Err(message) => Err(message),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("peers: results differ by more than {TOLERANCE:e}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The libraries that were found.
struct Peers {
    ort: Option<Rc<ort::Runtime>>,
    onednn: Option<Rc<onednn::Library>>,
}

/// Whether all results were right.
fn run(options: &Options) -> Result<bool, String> {
    let (fp32, strict) = layers::find(&options.list);
    let fp32 = fp32.ok_or_else(|| {
        let built = layers::names().join(", ");
        format!("the list `{}` was not built (those that were: {built}); build with `--features {0}`", options.list)
    })?;
    let cores = pin::cores();
    if cores.len() < options.threads {
        return Err(format!(
            "{} threads are asked for, and this process may use {} cores",
            options.threads,
            cores.len()
        ));
    }
    let peers = open(options, &cores)?;
    let dev = Cpu::with_threads(options.threads);
    let dev = options.isa.map_or(Ok(dev.clone()), |isa| dev.with_isa(isa)).map_err(|e| e.to_string())?;
    // From here on every thread has a core of its own. Libraries that are opened later would take this thread's core for
    // the whole machine.
    dev.split(options.threads, &|worker, _| {
        pin::pin(cores[worker]);
    });

    let wanted = |l: &Layer| options.only.is_empty() || options.only.iter().any(|part| l.name.contains(part.as_str()));
    let chosen: Vec<&Layer> = fp32.layers.iter().filter(|l| wanted(l)).collect();
    if chosen.is_empty() {
        return Err(format!("no layer of `{}` has a name with {}", options.list, options.only.join(" or ")));
    }
    let data: Vec<Data> = chosen.iter().map(|l| Data::new(&l.problem)).collect();
    let (mut contestants, mut entries) = (vec![], vec![]);
    for (layer, data) in chosen.iter().zip(&data) {
        let mut ours = vec![("ours", *layer, choice(&fp32.report, layer.name, dev.isa()))];
        if let Some(strict) = &strict {
            let twin = strict.layers.iter().find(|l| l.name == layer.name).expect("both classes have the same layers");
            let kernel = choice(&strict.report, layer.name, dev.isa());
            if kernel != ours[0].2 {
                ours.push(("ours strict", twin, kernel));
            }
        }
        let (who, what) = line_up(&dev, &cores, &peers, ours, data)?;
        contestants.push(who);
        entries.push(what);
    }
    let rule = Rule {
        budget: options.budget,
        least_rounds: 5,
        most_rounds: 60,
        samples: 3,
        sample: Duration::from_millis(2),
        settled: 0.006,
    };
    let times = measure::measure(&dev, &mut contestants, &rule)?;
    let rows: Vec<Row> = chosen
        .iter()
        .zip(entries)
        .zip(times)
        .map(|((layer, entries), times)| Row {
            name: layer.name.into(),
            shape: layer.problem.op.describe(),
            count: layer.count,
            flops: layer.problem.flops(),
            entries,
            times,
        })
        .collect();

    println!("{}\n", header(&dev, options, &peers, &rows));
    println!("{}\n{}", table::markdown(&rows), table::summary(&rows));
    if let Some(path) = &options.json {
        let all = json!({
            "list": options.list, "threads": options.threads, "isa": dev.isa().name(), "layers": table::json(&rows),
        });
        std::fs::write(path, format!("{all:#}\n")).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(rows.iter().flat_map(|r| &r.entries).all(|e| e.error < TOLERANCE && e.difference < TOLERANCE))
}

/// Opens the libraries. Those with OpenMP read how many threads they are to have, and where, as they are opened.
fn open(options: &Options, cores: &[usize]) -> Result<Peers, String> {
    let places: Vec<String> = cores[..options.threads].iter().map(|c| format!("{{{c}}}")).collect();
    let variables = [
        ("OMP_NUM_THREADS", options.threads.to_string()),
        ("OMP_PROC_BIND", "true".into()),
        ("OMP_PLACES", places.join(",")),
    ];
    for (name, value) in variables {
        // SAFETY: the program has one thread as yet.
        unsafe { std::env::set_var(name, value) };
    }
    let ort = options.ort.as_deref().map(ort::Runtime::open).transpose()?;
    let onednn = options.onednn.as_deref().map(onednn::Library::open).transpose()?;
    Ok(Peers { ort, onednn })
}

/// Those who compute a layer, and what they are called, with their errors; ours is the first.
type LineUp<'a> = (Vec<Box<dyn Contestant + 'a>>, Vec<Entry>);

/// Makes everybody ready for a layer and compares their results.
fn line_up<'a>(
    dev: &Cpu,
    cores: &[usize],
    peers: &Peers,
    ours: Vec<(&str, &Layer, Choice)>,
    data: &'a Data,
) -> Result<LineUp<'a>, String> {
    let layer = ours[0].1;
    let problem = &layer.problem;
    let mut all: Vec<(Box<dyn Contestant + 'a>, String, String, bool)> = vec![];
    for (label, layer, (kernel, _)) in ours {
        all.push((Box::new(Ours::new(dev, layer, data)?), label.into(), kernel, true));
    }
    if let Some(runtime) = &peers.ort {
        let (input, output) = (problem.op.input(), problem.op.output());
        let mut inputs: Vec<(&str, &[usize], &[f32])> = vec![("x", &input, &data.input)];
        if problem.residual {
            inputs.push(("residual", &output, &data.residual));
        }
        let model = onnx::layer(problem, data);
        let session = ort::Session::new(runtime, &model, &inputs, ("y", &output), dev.threads(), cores)?;
        all.push((Box::new(session), "ONNX Runtime".into(), runtime.version.clone(), true));
    }
    if let Some(library) = &peers.onednn {
        // With plain tensors at the call it may be faster to reorder them around a blocked convolution.
        let lines: &[(&str, &[Variant])] = match problem.op {
            layers::Op::Product(_) => &[("oneDNN", &[Variant::Plain])],
            layers::Op::Conv(_) => {
                &[("oneDNN blocked", &[Variant::Blocked]), ("oneDNN plain", &[Variant::Plain, Variant::Reordered])]
            }
        };
        for (label, variants) in lines {
            match fastest(library, problem, data, variants) {
                Ok(peer) => {
                    let implementation = peer.implementation.clone();
                    all.push((Box::new(peer), label.to_string(), implementation, *label != "oneDNN blocked"));
                }
                Err(why) => eprintln!("{}: {label} does not take part: {why}", layer.name),
            }
        }
    }
    let (mut contestants, mut entries, mut first) = (vec![], vec![], vec![]);
    for (mut contestant, label, implementation, plain) in all {
        let result = contestant.result()?;
        if entries.is_empty() {
            first.clone_from(&result);
        }
        let (error, difference) = (check::error(problem, data, &result), check::difference(&result, &first));
        entries.push(Entry { label, error, difference, implementation, plain });
        contestants.push(contestant);
    }
    Ok((contestants, entries))
}

/// The fastest of oneDNN's variants, by a few runs of each.
fn fastest(
    library: &Rc<onednn::Library>,
    problem: &layers::Problem,
    data: &Data,
    variants: &[Variant],
) -> Result<onednn::Layer, String> {
    let mut best: Option<(Duration, onednn::Layer)> = None;
    for variant in variants {
        let mut peer = onednn::Layer::new(library, problem, data, *variant)?;
        let mut time = Duration::MAX;
        for _ in 0..if variants.len() > 1 { 6 } else { 0 } {
            let start = Instant::now();
            peer.run()?;
            time = time.min(start.elapsed());
        }
        if best.as_ref().is_none_or(|(least, _)| time < *least) {
            best = Some((time, peer));
        }
    }
    best.map(|(_, peer)| peer).ok_or_else(|| "no variant".into())
}

/// A template and where its config came from, and the config.
type Choice = (String, String);

/// What a build chose for a layer.
fn choice(report: &Report, layer: &str, isa: Isa) -> Choice {
    let row = report.rows().iter().find(|r| r.workload == layer && r.isa == Some(isa));
    row.map_or_else(Default::default, |r| {
        let template = r.template.split(' ').next().unwrap_or_default();
        (format!("{template} ({})", r.origin), r.config.to_string())
    })
}

/// What was compared, where and how.
fn header(dev: &Cpu, options: &Options, peers: &Peers, rows: &[Row]) -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let peaks: Vec<f64> = rows.iter().flat_map(|r| r.times.peak.iter().copied()).collect();
    let rounds: Vec<usize> = rows.iter().map(|r| r.times.us[0].len()).collect();
    let ort = peers.ort.as_ref().map_or(String::new(), |r| format!(", ONNX Runtime {}", r.version));
    let onednn = peers.onednn.as_ref().map_or(String::new(), |l| format!(", oneDNN {}", l.version));
    format!(
        "{}, {} thread{}: {}, our kernels {}{ort}{onednn}; {} to {} rounds; multiply-add loop {:.0} GFLOP/s ({:.0} to {:.0})",
        options.list,
        options.threads,
        if options.threads == 1 { "" } else { "s" },
        model.map_or("unknown processor", |(_, name)| name.trim()),
        dev.isa(),
        rounds.iter().min().copied().unwrap_or(0),
        rounds.iter().max().copied().unwrap_or(0),
        measure::quantile(peaks.clone(), 0.5),
        measure::quantile(peaks.clone(), 0.1),
        measure::quantile(peaks, 0.9),
    )
}
