//! `kernel-gen export`: measurements in AutoTVM's benchmark-log format.

use super::output::{Failure, Output};
use crate::records::BestRecords;
use crate::records::export::{of_log, of_records};
use crate::records::log::Log;
use crate::records::merge::is_log;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// Prints measurements in AutoTVM's benchmark-log format (schema 0.1), one JSON object a line
///
/// Of a log: every trial that was timed. Of a folder of best records: every record; those keep no spread and no date, so
/// that runtime_ms_std and timestamp are null.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// Trial logs and folders of best records
    #[arg(value_name = "PATH", default_value = "tuned")]
    paths: Vec<PathBuf>,
    /// Write to this file instead
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let (mut objects, mut errors) = (vec![], vec![]);
    for path in &arguments.paths {
        if path.is_dir() {
            objects.extend(of_records(&BestRecords::load(path)?));
            continue;
        }
        let log = Log::read(&[path]).map_err(|e| Failure::Lines(vec![e.to_string()]))?;
        errors.extend(log.told().iter().map(|d| d.to_string()));
        objects.extend(of_log(&log));
    }
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    let Some(out) = &arguments.out else { return Ok(Output { text, errors, success: true }) };
    let shown = |path: &Path| path.display().to_string().replace('\\', "/");
    if fs::read(out).is_ok_and(|bytes| is_log(&bytes) && bytes.windows(7).take(8).any(|w| w == b"{\"log\":")) {
        return Err(format!("{} is a trial log and is not written over; name another file", shown(out)).into());
    }
    fs::write(out, &text).map_err(|e| format!("{}: cannot be written: {e}; name another file", shown(out)))?;
    let n = objects.len();
    Ok(Output {
        text: format!("{}: {n} measurement{}\n", shown(out), if n == 1 { "" } else { "s" }),
        errors,
        success: true,
    })
}
