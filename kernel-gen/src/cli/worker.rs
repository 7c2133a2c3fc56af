//! `kernel-gen worker`: the process that holds a GPU for a measurer. It is started by the tuner and by nobody else.

use super::{Failure, Output};
use crate::tune::measure::serve;
use clap::Args;
use std::io::{BufReader, stdin, stdout};

/// Holds a GPU and measures what it is sent on standard input
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// Which GPU, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let mut input = BufReader::with_capacity(1 << 20, stdin().lock());
    serve(&mut input, &mut stdout().lock(), arguments.device).map_err(|e| format!("the measurer is gone: {e}"))?;
    Ok(Output::success(String::new()))
}
