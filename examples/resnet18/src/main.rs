//! ResNet-18 on generated kernels: an image in, a table of every layer out, checked against plain Rust in `f64`.

mod options;

use kernel_gen_runtime::Cpu;
use kernel_gen_runtime::report::Row;
use options::{Kind, Options, USAGE};
use picture::Picture;
#[cfg(feature = "cuda")]
use resnet18::gpu;
use resnet18::network::{self, Step};
use resnet18::place::{Measured, Place};
use resnet18::program::{self, relative_error, worse};
use resnet18::safetensors::Safetensors;
use resnet18::table::{self, Align};
use resnet18::weights::Weights;
use resnet18::{forward, kernels, preprocess, reference};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

/// Largest error that counts as correct, relative to the largest value of a layer.
const TOLERANCE: f64 = 1e-4;

fn main() -> ExitCode {
    program::main("resnet18", USAGE, Options::parse(std::env::args().skip(1)), run)
}

/// Runs on the device that is asked for, or on the CPU where that is not to be had; whether the outputs are correct.
fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let threads = options.threads;
    let cpu = || threads.map_or_else(Cpu::new, Cpu::with_threads);
    match options.device {
        Kind::Cpu => run_on(&cpu(), options),
        #[cfg(feature = "cuda")]
        Kind::Cuda => match gpu::open() {
            Ok(dev) => run_on(&dev, options),
            Err(why) => {
                println!("no GPU, so this runs on the CPU: {why}");
                run_on(&cpu(), options)
            }
        },
        #[cfg(not(feature = "cuda"))]
        Kind::Cuda => {
            println!("built without GPUs, so this runs on the CPU: build it with `--features cuda`");
            run_on(&cpu(), options)
        }
    }
}

/// Runs everything on a device; whether the outputs are correct.
fn run_on<Dev: Place + Clone>(dev: &Dev, options: &Options) -> Result<bool, Box<dyn Error>> {
    let steps = network::resnet18();
    let picture = Picture::read(&options.image)?;
    let image = preprocess::preprocess(&picture);
    let weights = match &options.weights {
        Some(path) => Weights::load(&Safetensors::read(path)?, &steps)?,
        None => Weights::seeded(18, &steps),
    };
    let start = Instant::now();
    let network = forward::Network::new(dev, &weights, &image)?;
    dev.finish()?;
    let packing_ms = start.elapsed().as_secs_f64() * 1e3;
    let (network, measured) = dev.measure(network, options.repeat)?;
    let expected = reference::forward(&steps, &weights, &image, Cpu::new().threads());
    let outputs = network.outputs()?;
    let errors: Vec<f64> = outputs.iter().zip(&expected[1..]).map(|(y, e)| relative_error(y, &e.data)).collect();

    let path = options.image.canonicalize().unwrap_or_else(|_| options.image.clone());
    println!("image    {} ({} x {})", path.display(), picture.width, picture.height);
    match &options.weights {
        Some(path) => println!("weights  {}", path.display()),
        None => println!("weights  random, seeded (name a safetensors file with --weights)"),
    }
    println!("device   {}, weights packed in {packing_ms:.1} ms", dev.describe());
    if let Some(peak) = measured.peak_gflops {
        println!("peak     {peak:.0} GFLOP/s by a multiply-add loop on the same threads, measured between the passes");
    }
    println!();
    print_table(dev, &steps, &measured, &errors);
    print_classes(&outputs[steps.len() - 1]);
    println!("The error of a layer is the largest difference from the f64 reference, relative to its largest value.");
    let worst = errors.iter().copied().fold(0.0, worse);
    println!("max error {worst:.2e} (relative)");
    Ok(worst < TOLERANCE)
}

fn print_table<Dev: Place>(dev: &Dev, steps: &[Step], measured: &Measured, errors: &[f64]) {
    let report = kernels::report().for_device(dev);
    let find = |name: &str| report.rows().iter().find(|r: &&Row| r.workload == name);
    let rate = |flops: Option<f64>, us: f64| {
        let gflops = flops.map(|f| f / us / 1e3);
        let share = gflops.zip(measured.peak_gflops).map(|(g, peak)| 100.0 * g / peak);
        let cell = |v: Option<f64>, unit: &str| v.map_or("-".to_string(), |v| format!("{v:.0}{unit}"));
        [cell(gflops, ""), cell(share, " %")]
    };
    let mut rows = vec![];
    for ((step, us), error) in steps.iter().zip(&measured.steps_us).zip(errors) {
        let choice = step.workload().and_then(find);
        let [gflops, share] = rate(step.flops(), *us);
        rows.push([
            step.name().to_string(),
            step.shape(),
            choice.map_or(Dev::POOLS, |r| r.template).to_string(),
            choice.map_or("-", |r| r.origin).to_string(),
            format!("{us:.1}"),
            gflops,
            share,
            format!("{error:.1e}"),
        ]);
    }
    let total_us: f64 = measured.steps_us.iter().sum();
    let [gflops, share] = rate(Some(steps.iter().filter_map(Step::flops).sum()), total_us);
    let none = String::new;
    rows.push(["total".into(), none(), none(), none(), format!("{total_us:.1}"), gflops, share, none()]);
    let columns = [
        ("layer", Align::Left),
        ("shape", Align::Left),
        ("template", Align::Left),
        ("origin", Align::Left),
        ("us", Align::Right),
        ("GFLOP/s", Align::Right),
        ("of peak", Align::Right),
        ("error", Align::Right),
    ];
    print!("{}", table::render(columns, &rows));
    let [median, least] = measured.pass_us;
    println!("\n{} A whole pass: {median:.0} us median, {least:.0} us at best.", measured.method);
}

/// The five likeliest classes, by their number in ImageNet's list.
fn print_classes(logits: &[f32]) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let largest = f64::from(logits[order[0]]);
    let weight = |i: usize| (f64::from(logits[i]) - largest).exp();
    let sum: f64 = (0..logits.len()).map(weight).sum();
    let classes: Vec<String> = order[..5].iter().map(|i| format!("{i} ({:.1} %)", 100.0 * weight(*i) / sum)).collect();
    println!("classes  {}", classes.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_kernel_in_the_spec() {
        let report = kernels::report();
        for name in network::resnet18().iter().filter_map(Step::workload) {
            assert!(report.rows().iter().any(|r| r.workload == name), "{name}");
        }
    }
}
