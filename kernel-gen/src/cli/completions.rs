//! `kernel-gen completions`: what a shell reads to complete the command's words.

use super::output::{Failure, Output};
use clap::{Args, Command};
use clap_complete::{Shell, generate};

/// Prints a script by which a shell completes this command's words
///
///   kernel-gen completions bash > ~/.local/share/bash-completion/completions/kernel-gen
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments, mut command: Command) -> Result<Output, Failure> {
    let mut script = vec![];
    generate(arguments.shell, &mut command, "kernel-gen", &mut script);
    Ok(Output::success(String::from_utf8_lossy(&script).into_owned()))
}
