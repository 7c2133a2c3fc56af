//! Times every layer of `kernels.toml` through its typed launch, with packed weights, beside a loop of multiply-adds, and
//! checks its values against sums in `f64`.
//!
//! ```sh
//! cargo run --release -p bench                          # both thread counts, a minute or two
//! cargo run --release -p bench -- --peers peers.json    # with ratios; peers/peers.py writes the file
//! ```

mod layers;
mod measure;
mod peers;
mod pin;
mod reference;
mod spec;
mod table;

use kernel_gen_runtime::Cpu;
use layers::{Launch, Layer, kernels};
use measure::{Rule, Samples, quantile};
use peers::Peers;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use table::Result as LayerResult;

const USAGE: &str = "usage: bench [--peers FILE] [--threads N,N] [--only PART]... [--quick] [--unpinned]

  --peers FILE    the file that peers/peers.py wrote: adds the ratios with ONNX Runtime and oneDNN
  --threads N,N   numbers of threads to measure with; 1,2 if left out
  --only PART     only layers whose name contains PART
  --quick         one short round, to see that everything works; not for figures
  --unpinned      leave the threads to the operating system instead of pinning each to a core";

struct Options {
    peers: Option<PathBuf>,
    threads: Vec<usize>,
    only: Vec<String>,
    rule: Rule,
    pinned: bool,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: a layer computed wrong values");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { peers: None, threads: vec![1, 2], only: vec![], rule: Rule::FULL, pinned: true };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--peers" => options.peers = Some(value()?.into()),
            "--threads" => {
                let list = value()?;
                let numbers: Result<Vec<usize>, _> = list.split(',').map(str::parse).collect();
                let valid = numbers.ok().filter(|n| n.iter().all(|n| (1..=1024).contains(n)));
                options.threads = valid.ok_or(format!("`--threads {list}` is not a list like 1,2"))?;
            }
            "--only" => options.only.push(value()?),
            "--quick" => options.rule = Rule::QUICK,
            "--unpinned" => options.pinned = false,
            _ => return Err(format!("`{arg}` is not known")),
        }
    }
    Ok(options)
}

/// Whether all values were right.
fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let layers = selected(options)?;
    let peers = options.peers.as_deref().map(Peers::read).transpose()?;
    println!("processor: {}, {} cores", processor(), std::thread::available_parallelism()?);
    println!("kernels: {}, weights packed beforehand, the same buffers in every launch", Cpu::with_threads(1).isa());
    println!("load before: {}", load());
    if let Some(peers) = &peers {
        print!("{}", peers.describe());
    }
    // Asked, and the pools made, before any thread is pinned: a thread that is kept on one core sees a machine of one
    // core, where a pool must not spin.
    let cores = pin::cores();
    let devices: Vec<(usize, Cpu)> = options.threads.iter().map(|n| (*n, Cpu::with_threads(*n))).collect();
    let mut right = true;
    for (threads, dev) in &devices {
        let pinning = if options.pinned { pin_all(dev, &cores) } else { "not pinned".to_string() };
        let results = measure(dev, &layers, options.rule)?;
        right &= results.iter().all(|r| r.comparison.share_of_bound <= 1.0);
        println!("\n## {threads} thread{}, {pinning}\n", if *threads == 1 { "" } else { "s" });
        print!("{}", table::layers(dev, kernels::report().for_device(dev).rows(), &results, peers.as_ref()));
        println!();
        print!("{}", table::summary(&results, peers.as_ref(), *threads));
        let plain = table::plain_against_blocked(&results);
        if !plain.is_empty() {
            print!("\n{plain}");
        }
        let peaks: Vec<f64> = results.iter().flat_map(|r| r.samples.peak_gflops()).collect();
        println!(
            "\npeak of {threads} thread(s), read before each of {} samples: median {:.1} GFLOP/s, 80 % within {:.1} to {:.1}",
            peaks.len(),
            quantile(peaks.clone(), 0.5),
            quantile(peaks.clone(), 0.1),
            quantile(peaks, 0.9),
        );
        let (disturbed, all) =
            results.iter().map(|r| r.samples.disturbed()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        println!("samples during which a thread lost its core, after retries: {disturbed} of {all}");
    }
    println!("load after: {}", load());
    Ok(right)
}

/// The layers that were asked for. Those of the spec and those of the program must be the same.
fn selected(options: &Options) -> Result<Vec<(Layer, spec::Operator)>, Box<dyn Error>> {
    let (layers, operators) = (layers::all(), spec::operators()?);
    if let Some((l, o)) = layers.iter().zip(&operators).find(|(l, o)| l.name != o.name) {
        return Err(format!("src/layers.rs lists `{}` where kernels.toml has `{}`", l.name, o.name).into());
    }
    if layers.len() != operators.len() {
        let (listed, declared) = (layers.len(), operators.len());
        return Err(format!("src/layers.rs lists {listed} layers and kernels.toml {declared}").into());
    }
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|part| name.contains(part.as_str()));
    Ok(layers.into_iter().zip(operators).filter(|(layer, _)| wanted(layer.name)).collect())
}

/// Checks all layers, then times them, round by round.
fn measure<'a>(
    dev: &Cpu,
    layers: &'a [(Layer, spec::Operator)],
    rule: Rule,
) -> Result<Vec<LayerResult<'a>>, Box<dyn Error>> {
    let mut ready: Vec<Box<dyn Launch>> = vec![];
    let mut results = vec![];
    for (layer, operator) in layers {
        let mut launch = (layer.prepare)(dev)?;
        launch.poison();
        launch.launch(dev)?;
        let comparison = reference::compare(operator.kind, &launch.tensors());
        results.push(LayerResult { layer, samples: Samples::default(), comparison });
        ready.push(launch);
    }
    for _ in 0..rule.rounds {
        for (result, launch) in results.iter_mut().zip(&mut ready) {
            result.samples.round(dev, launch.as_mut(), rule)?;
        }
    }
    Ok(results)
}

/// Keeps each worker of the device on a core of its own; says what came of it.
fn pin_all(dev: &Cpu, cores: &[usize]) -> String {
    if dev.threads() > cores.len() {
        return format!("not pinned: only {} cores", cores.len());
    }
    let failures = std::sync::atomic::AtomicUsize::new(0);
    dev.on_each_thread(&|worker| {
        if !pin::pin(cores[worker]) {
            failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    if failures.into_inner() == 0 { "each pinned to a core".into() } else { "not pinned: the system refuses".into() }
}

fn processor() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH.to_string(), |(_, name)| name.trim().to_string())
}

fn load() -> String {
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split(' ').next().filter(|l| !l.is_empty()).unwrap_or("unknown").to_string()
}
