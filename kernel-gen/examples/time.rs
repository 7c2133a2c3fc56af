//! Times one workload with one config: `time KEY TARGET TEMPLATE [CONFIG] [THREADS]`; config `default` or `knob=value ...`.

use kernel_gen::emit::c::{self, COptions, Isa};
use kernel_gen::lower::{self, LowerOptions};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::toolchain::Compiler;
use kernel_gen::toolchain::harness::{Program, RunOptions, TimeOptions};
use kernel_gen::workload::Workload;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let workload = Workload::from_key(&args[0])?;
    let target = Target::find(&args[1]).ok_or("no such target")?;
    let registry = Registry::builtin();
    let template = registry.find(&args[2]).ok_or("no such template")?;
    let config = match args.get(3).map(String::as_str) {
        None | Some("default") => template.default_config(&workload, target)?,
        Some(text) => Config::parse(text)?,
    };
    let threads = args.get(4).map_or(Ok(1), |n| n.parse())?;
    let scheduled = template.schedule(&workload, target, &config)?;
    if std::env::var_os("SHOW").is_some() {
        println!("{}", scheduled.schedule.kernel);
    }
    let kernel = scheduled.schedule.kernel;
    let verified = kernel_gen::analysis::verify::verify(kernel, &target.limits())
        .map_err(|faults| faults.iter().map(|f| f.to_string()).collect::<Vec<_>>().join("\n"))?;
    let lowered = lower::lower(verified, &LowerOptions::cpu())?;
    let isa = Isa::from_name(&target.name).ok_or("not a CPU")?;
    let source = c::emit(&lowered, &COptions { isa, symbol: "kernel".into(), comment: String::new() })?;
    if let Some(path) = std::env::var_os("C") {
        std::fs::write(path, &source.source)?;
    }
    let program = Program::build(&Compiler::host()?, &source, lowered.kernel())?;
    let inputs: Vec<Vec<f64>> = program
        .params()
        .iter()
        .map(|p| (0..p.elements).map(|i| ((i * 37 % 101) as f64 - 50.0) / 50.0).collect())
        .collect();
    program.run(&inputs, &RunOptions::default())?;
    let timing = program.time(&inputs, &TimeOptions { threads, ..TimeOptions::default() })?;
    let gflops = workload.flops() as f64 / timing.median_ns();
    let share = 100.0 * gflops / (timing.peak_gflops() * threads as f64);
    println!(
        "{} {config}: {:.1} us, {gflops:.0} GFLOP/s, {share:.1} % of peak",
        template.name(),
        timing.median_ns() / 1e3
    );
    Ok(())
}
