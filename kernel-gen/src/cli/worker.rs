//! `kernel-gen worker`: the process that holds a GPU for a measurer. It is started by the tuner and by nobody else.

use super::output::{Failure, Output};
use crate::tune::measure::serve;
use clap::Args;
use std::io::{BufReader, stdin, stdout};
use std::time::Duration;

/// Holds a GPU and measures what it is sent on standard input
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// Which GPU, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    end_with_parent();
    let mut input = BufReader::with_capacity(1 << 20, stdin().lock());
    serve(&mut input, &mut stdout().lock(), arguments.device).map_err(|e| format!("the measurer is gone: {e}"))?;
    Ok(Output::success(String::new()))
}

/// Ends the process soon after the one that started it. Where nothing runs, the end of the input says the same; but a
/// kernel that hangs keeps this process from its input, and with it the GPU from everybody.
fn end_with_parent() {
    #[cfg(unix)]
    std::thread::spawn(|| {
        let parent = std::os::unix::process::parent_id();
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(Duration::from_millis(500));
        }
        // What a driver would do at an orderly exit waits for the kernel.
        std::process::abort();
    });
}
