//! Times generated kernels and what users would pick instead on the same layers, in one process, in turns, after it has
//! compared their results. `README.md` says how to run it and what the figures mean.

mod check;
mod contest;
#[cfg(target_arch = "x86_64")]
mod cpuid;
mod crates;
mod layers;
mod line_up;
mod measure;
#[cfg(feature = "network")]
mod network;
mod onednn;
mod onnx;
mod options;
mod ort;
mod pin;
mod table;
mod torch;

use contest::Contest;
use kernel_gen_runtime::{Cpu, Isa};
use line_up::Peers;
use measure::Rule;
use options::{Options, USAGE};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use table::Row;

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

/// Whether all results were right.
fn run(options: &Options) -> Result<bool, String> {
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
    dev.on_each_thread(&|worker| {
        pin::pin(cores[worker]);
    });

    let data = line_up::Data::new(options)?;
    let mut contests = data.contests(&dev, &cores, &peers)?;
    let rule = Rule {
        budget: options.budget,
        least_rounds: 5,
        most_rounds: 60,
        samples: 3,
        sample: Duration::from_millis(2),
        settled: 0.006,
    };
    let times = measure::measure(&dev, &mut contests, &rule)?;
    let rows: Vec<Row> = contests
        .into_iter()
        .zip(times)
        .map(|(contest, times)| {
            let Contest { name, shape, count, flops, entries, .. } = contest;
            Row { name, shape, count, flops, entries, times }
        })
        .collect();

    println!("{}\n", header(&dev, options, &peers, &rows));
    println!("{}\n{}", table::markdown(&rows), table::summary(&rows));
    #[cfg(feature = "network")]
    if let line_up::Data::Network(task) = &data {
        println!("{}", network::steps(&dev, task)?);
    }
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
    #[cfg(target_arch = "x86_64")]
    if options.isa.is_some_and(|isa| !isa.runs(Isa::X86_64V4)) {
        // oneDNN has a setting, and `run.sh` names a copy of ONNX Runtime that asks here.
        // SAFETY: the program has one thread as yet.
        unsafe {
            std::env::set_var("ONEDNN_MAX_CPU_ISA", "AVX2");
            std::env::set_var("ATEN_CPU_CAPABILITY", "avx2"); // PyTorch's own loops.
        }
        cpuid::answer_without_avx512();
    }
    // Before OpenMP is loaded here: it leaves this thread one core, and a child starts with what its parent has.
    let torch = options.torch.as_deref().map(|python| torch::Torch::start(python, options.threads, cores));
    let torch = torch.transpose()?;
    if options.crates.is_some() && options.isa.is_some() {
        return Err("--crates and --isa do not go together: AVX-512 cannot be hidden from the crates".into());
    }
    // Before there are other threads: it sets variables.
    let crates = options.crates.as_deref().map(|library| crates::Library::open(library, &cores[..options.threads]));
    let crates = crates.transpose()?;
    let ort = options.ort.as_deref().map(ort::Runtime::open).transpose()?;
    let onednn = options.onednn.as_deref().map(onednn::Library::open).transpose()?;
    Ok(Peers { ort, onednn, torch, crates })
}

/// What was compared, where and how.
fn header(dev: &Cpu, options: &Options, peers: &Peers, rows: &[Row]) -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let peaks: Vec<f64> = rows.iter().flat_map(|r| r.times.peak.iter().copied()).collect();
    let rounds: Vec<usize> = rows.iter().map(|r| r.times.us[0].len()).collect();
    let ort = peers.ort.as_ref().map_or(String::new(), |r| format!(", ONNX Runtime {}", r.version));
    let onednn = peers.onednn.as_ref().map_or(String::new(), |l| format!(", oneDNN {}", l.version));
    let torch = peers.torch.as_ref().map_or(String::new(), |t| format!(", PyTorch {}", t.version));
    let crates = peers.crates.as_ref().map_or(String::new(), |_| format!(", {}", crates::VERSIONS));
    format!(
        "{}, {} thread{}: {}, our kernels {}{ort}{onednn}{torch}{crates}; {} to {} rounds; multiply-add loop {:.0} GFLOP/s ({:.0} to {:.0})",
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
