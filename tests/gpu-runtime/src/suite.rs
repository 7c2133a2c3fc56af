//! Runs checks and prints what came of them.

use crate::checks;
use kernel_gen_runtime::{Cpu, Cuda};
use std::process::ExitCode;

/// How a check ended, when it did not fail.
pub(crate) enum Outcome {
    /// It passed; what it measured, or nothing.
    Passed(String),
    /// It could not run here, and why.
    Skipped(String),
}

/// What a check gives.
pub(crate) type Checked = Result<Outcome, Box<dyn std::error::Error>>;

/// The outcome of a check that measures nothing.
pub(crate) fn passed(result: Result<(), Box<dyn std::error::Error>>) -> Checked {
    result.map(|()| Outcome::Passed(String::new()))
}

/// A check on a GPU.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Cuda) -> Checked,
}

/// An error with this text, unless the condition holds.
pub(crate) fn ensure(condition: bool, text: impl FnOnce() -> String) -> Result<(), Box<dyn std::error::Error>> {
    if condition { Ok(()) } else { Err(text().into()) }
}

/// Runs the checks whose names contain one of these texts.
pub(crate) fn run(wanted: Vec<String>) -> ExitCode {
    let info = match Cuda::probe() {
        Ok(info) => info,
        Err(error) => {
            println!("[SKIP] no GPU: {error}");
            return on_cpu();
        }
    };
    println!("{info}");
    let dev = match Cuda::new(0) {
        Ok(dev) => dev,
        Err(error) => {
            println!("FAILED: the probe found a device, but: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    for check in checks::all().into_iter().filter(|c| runs(c.name)) {
        // An error of an earlier kernel belongs to the check that launched it.
        let outcome = (check.run)(&dev).and_then(|outcome| dev.synchronize().map(|()| outcome).map_err(Into::into));
        match outcome {
            Ok(Outcome::Passed(detail)) => {
                passed += 1;
                println!("ok      {:<44} {detail}", check.name);
            }
            Ok(Outcome::Skipped(why)) => {
                skipped += 1;
                println!("[SKIP]  {:<44} {why}", check.name);
            }
            Err(error) => {
                failed += 1;
                println!("FAILED  {:<44} {error}", check.name);
            }
        }
    }
    print!("\n{}", crate::kernels::report().for_device(&dev));
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is left to do without a GPU: the same functions on the CPU.
fn on_cpu() -> ExitCode {
    let dev = Cpu::new();
    let done = checks::generated::all(&dev);
    #[cfg(feature = "own")]
    let done = done.and_then(|()| checks::own::on_cpu(&dev));
    match done {
        Ok(()) => {
            println!("ok: the generated functions compute on the CPU");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED on the CPU: {error}");
            ExitCode::FAILURE
        }
    }
}
