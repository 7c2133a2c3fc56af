//! The command.
//!
//! A binary with templates of its own is three lines:
//!
//! ```no_run
//! use kernel_gen::templates::Registry;
//!
//! fn main() -> std::process::ExitCode {
//!     let registry = Registry::builtin(); // .with(MyTemplate)
//!     kernel_gen::cli::main(&registry)
//! }
//! ```
//!
//! [`main_with`] gives it a fleet as well, as the crate `kernel-gen-fleet` does.
//!
//! Results go to standard output. No command uses the network but those that are given `--fleet`, and none but `tune`, `bench` and
//! `worker` asks a device. `tune` appends
//! to a log and writes records, `spec`, `bench`, `report` and `package` write what they are told to; the others write
//! into caches at most. What is wrong goes to standard error, one line each, and the exit status is 1, or 2 if it is the arguments.

mod bench;
mod capture;
mod changes;
mod check;
mod completions;
mod doctor;
mod explain;
mod export;
mod extract;
mod fleet;
mod health;
mod import;
mod interrupt;
mod lower;
mod measuring;
mod merge;
mod output;
mod package;
mod plan;
mod project;
mod prune;
mod replay;
mod report;
mod show;
mod space;
mod spec;
mod tune;
mod worker;

pub use output::Output;

use crate::templates::Registry;
use crate::tune::fleet::Fleet;
use clap::{CommandFactory, Parser, Subcommand};
use output::Failure;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Ahead-of-time kernel generator: what is generated for a spec, why, and from what.
#[derive(Parser, Debug)]
#[command(name = "kernel-gen", version, max_term_width = 100, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Spec(spec::Arguments),
    Extract(extract::Arguments),
    Check(check::Arguments),
    Explain(explain::Arguments),
    Space(space::Arguments),
    Lower(lower::Arguments),
    Show(show::Arguments),
    Tune(tune::Arguments),
    Bench(bench::Arguments),
    Report(report::Arguments),
    Package(package::Arguments),
    Prune(prune::Arguments),
    Merge(merge::Arguments),
    Import(import::Arguments),
    Export(export::Arguments),
    Replay(replay::Arguments),
    Capture(capture::Arguments),
    Doctor(doctor::Arguments),
    Completions(completions::Arguments),
    Worker(worker::Arguments),
    Fleet(fleet::Arguments),
}

/// Runs the command on the process's arguments.
pub fn main(registry: &Registry) -> ExitCode {
    of_process(registry, None)
}

/// As [`main`], with a fleet for `tune --fleet` and `worker --fleet`.
pub fn main_with(registry: &Registry, fleet: &dyn Fleet) -> ExitCode {
    of_process(registry, Some(fleet))
}

fn of_process(registry: &Registry, fleet: Option<&dyn Fleet>) -> ExitCode {
    let (output, failure) = match parse(std::env::args_os()) {
        Ok(arguments) => (carry_out(registry, &arguments, fleet), ExitCode::FAILURE),
        Err(output) => (output, ExitCode::from(USAGE)),
    };
    // A reader that closes the pipe early has read what it wanted.
    let _ = std::io::stdout().lock().write_all(output.text.as_bytes());
    for line in &output.errors {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
    if output.success { ExitCode::SUCCESS } else { failure }
}

/// Runs the command on arguments, the first of which is the program's name.
pub fn run(registry: &Registry, arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Output {
    parse(arguments).map_or_else(|output| output, |arguments| carry_out(registry, &arguments, None))
}

/// The exit status where the arguments are wrong.
const USAGE: u8 = 2;

/// Parses the arguments. The error is the output in their place: the help text, or one line about a wrong argument.
fn parse(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Arguments, Output> {
    Arguments::try_parse_from(arguments).map_err(|error| match error.use_stderr() {
        true => Output { text: String::new(), errors: vec![usage_error(&error)], success: false },
        false => Output::success(error.to_string()),
    })
}

fn carry_out(registry: &Registry, arguments: &Arguments, fleet: Option<&dyn Fleet>) -> Output {
    let result = match &arguments.command {
        Command::Spec(arguments) => spec::run(arguments),
        Command::Extract(arguments) => extract::run(arguments),
        Command::Check(arguments) => check::run(registry, arguments),
        Command::Explain(arguments) => explain::run(registry, arguments),
        Command::Space(arguments) => space::run(registry, arguments),
        Command::Lower(arguments) => lower::run(registry, arguments),
        Command::Show(arguments) => show::run(registry, arguments),
        Command::Tune(arguments) => tune::run(registry, arguments, fleet),
        Command::Bench(arguments) => bench::run(registry, arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Package(arguments) => package::run(registry, arguments),
        Command::Prune(arguments) => prune::run(registry, arguments),
        Command::Merge(arguments) => merge::run(arguments),
        Command::Import(arguments) => import::run(registry, arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Replay(arguments) => replay::run(registry, arguments),
        Command::Capture(arguments) => capture::run(arguments),
        Command::Doctor(arguments) => doctor::run(registry, arguments),
        Command::Completions(arguments) => completions::run(arguments, Arguments::command()),
        Command::Worker(arguments) => worker::run(registry, arguments, fleet),
        Command::Fleet(arguments) => fleet::run(arguments, fleet),
    };
    result.unwrap_or_else(|failure| {
        let prefix = if matches!(failure, Failure::Message(_)) { "error: " } else { "" };
        let errors = failure.to_string().lines().map(|line| format!("{prefix}{line}")).collect();
        Output { text: String::new(), errors, success: false }
    })
}

/// The parser's complaint in one line.
fn usage_error(error: &clap::Error) -> String {
    let text = error.to_string();
    let parts: Vec<&str> =
        text.lines().map(str::trim).take_while(|l| !l.starts_with("Usage:")).filter(|l| !l.is_empty()).collect();
    if parts.is_empty() || text.starts_with("Ahead-of-time") {
        return "error: no command is given; see kernel-gen --help".to_string();
    }
    format!("{}; see kernel-gen --help", parts.join(" "))
}

#[cfg(test)]
mod tests;
