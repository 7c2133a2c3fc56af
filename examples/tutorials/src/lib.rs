//! What the tutorials' programs share: printing a schedule step by step, and timing generated kernels.

use kernel_gen::emit::c::{self, COptions, Isa};
use kernel_gen::emit::cuda::{Arch, CudaOptions, emit};
use kernel_gen::lower::{Lowered, lower_for};
use kernel_gen::schedule::Schedule;
use kernel_gen::target::Target;
use kernel_gen_runtime::cuda::DeviceTensor;
use kernel_gen_runtime::cuda::cudarc::driver::sys::CUevent_flags;
use kernel_gen_runtime::{Cuda, Device, Element, Shape, Tensor};
use std::process::ExitCode;

pub mod blocked;

// The kernels as the tutorials write them, one as a template of the library writes it, and those that the library chooses.
kernel_gen_runtime::include_kernels!(as_written);
kernel_gen_runtime::include_kernels!(template);
kernel_gen_runtime::include_kernels!(chosen);

/// Whatever goes wrong, in words.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The device that sources are printed for without `--target`; any of this generation or a later one runs them.
const TARGET: &str = "sm_80";

/// Launches of one measurement.
const LAUNCHES: usize = 50;
/// Measurements, of which the median counts.
const ROUNDS: usize = 15;

/// Prints a schedule for a GPU: every step, the loops after every pass of lowering that changes them, and the CUDA. With the
/// argument `--steps`, the loops after every step as well; with `--time`, nothing of all this. `--target sm_70` prints what
/// another device gets.
pub fn show(name: &str, schedule: Schedule) -> Result<()> {
    let name_of_target = match std::env::args().skip_while(|a| a != "--target").nth(1) {
        Some(name) => name,
        None if asked("--target") => return Err("--target: write a CUDA device behind it, such as sm_70".into()),
        None => TARGET.to_string(),
    };
    let target = Target::find(&name_of_target).filter(|t| t.cuda().is_some());
    let target =
        target.ok_or_else(|| format!("--target {name_of_target}: write a CUDA device, such as sm_70 or sm_80"))?;
    let Some(lowered) = show_loops(schedule, target)? else { return Ok(()) };
    let arch = Arch::of(target).ok_or("a CUDA target has an architecture")?;
    let options = CudaOptions { arch, symbol: name.into(), comment: comment(name), min_blocks: None };
    println!("# CUDA\n{}", emit(&lowered, &options)?.source);
    Ok(())
}

/// The same of a schedule for a CPU, with the C.
pub fn show_c(name: &str, schedule: Schedule, target: &Target) -> Result<()> {
    let Some(lowered) = show_loops(schedule, target)? else { return Ok(()) };
    let options = COptions { isa: Isa::of_target(&target.name)?, symbol: name.into(), comment: comment(name) };
    println!("# C\n{}", c::emit(&lowered, &options)?.source);
    Ok(())
}

fn comment(name: &str) -> String {
    format!("The tutorial {name}.")
}

/// Whether the program was given a word on its command line.
pub fn asked(word: &str) -> bool {
    std::env::args().any(|a| a == word)
}

/// The number behind an argument such as `--size`, or what it is without one.
pub fn argument(name: &str, default: i64) -> Result<i64> {
    let mut rest = std::env::args().skip_while(|a| a != name).skip(1);
    match rest.next() {
        Some(text) => text.parse().map_err(|_| format!("{name} {text}: write a number").into()),
        None if asked(name) => Err(format!("{name}: write a number behind it").into()),
        None => Ok(default),
    }
}

/// The steps and the loops, and what is to be emitted; none with `--time`.
fn show_loops(schedule: Schedule, target: &Target) -> Result<Option<Lowered>> {
    if asked("--time") {
        return Ok(None);
    }
    println!("# The schedule");
    for (i, step) in schedule.trace.iter().enumerate() {
        println!("{:3}  {}({})", i + 1, step.name, step.args.join(", "));
        if asked("--steps") {
            println!("{}", step.kernel);
        }
    }
    println!("\n# As scheduled\n{}", schedule.kernel);
    let lowered = lower_for(schedule.kernel, target)?;
    for pass in lowered.trace().iter().filter(|pass| pass.changed) {
        println!("# After {}\n{}", pass.pass, pass.kernel);
    }
    Ok(Some(lowered))
}

/// Runs `timed` on the first GPU; without one it says so.
pub fn on_gpu(timed: impl FnOnce(&Cuda) -> Result<()>) -> Result<()> {
    match Cuda::new(0) {
        Ok(dev) => timed(&dev),
        Err(why) => {
            println!("[SKIP] no GPU: {why}");
            Ok(())
        }
    }
}

/// A tensor of small numbers of both signs in the GPU's memory.
pub fn numbers<T: Element, S: Shape>(dev: &Cuda, of: impl Fn(f32) -> T) -> Result<DeviceTensor<T, S>> {
    let host = Tensor::<T, S>::from_fn(|i| of(((i * 37 + 11) % 29) as f32 / 29.0 - 0.5));
    Ok(dev.upload(&host)?)
}

/// Prints the median time of a launch, and how much arithmetic that is. `macs` are its multiply-adds.
pub fn time(
    dev: &Cuda,
    what: &str,
    macs: usize,
    mut launch: impl FnMut() -> kernel_gen_runtime::Result<()>,
) -> Result<()> {
    let stream = dev.stream();
    let event = || stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
    let (begin, end) = (event()?, event()?);
    // Loading the code is not part of the time.
    launch()?;
    let mut times = vec![];
    for _ in 0..ROUNDS {
        begin.record(stream)?;
        for _ in 0..LAUNCHES {
            launch()?;
        }
        end.record(stream)?;
        end.synchronize()?;
        times.push(f64::from(begin.elapsed_ms(&end)?) * 1e3 / LAUNCHES as f64);
    }
    times.sort_by(f64::total_cmp);
    let us = times[ROUNDS / 2];
    println!("{what:12} {us:10.2} us {:9.2} TFLOP/s", 2.0 * macs as f64 / us / 1e6);
    Ok(())
}

/// Runs a tutorial; errors go to standard error.
pub fn main(run: impl FnOnce() -> Result<()>) -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
