//! `kernel-gen merge`: of logs, of folders of records, and for git.

use super::output::{Failure, Output};
use crate::files;
use crate::records::merge::{Side, is_log, merge_folders, merge_logs, merge_records};
use crate::records::{BestRecords, write_records};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// Merges trial logs, or folders of best records, by their content
///
/// The result does not depend on the order of the files, and merging again changes nothing. Logs are put together line by
/// line; of two records of the same workload and device the faster one stays. Do not merge into a log while a run appends
/// to it.
///
/// As git's merge driver: `git config merge.kernel-gen.driver "kernel-gen merge --driver %O %A %B %P"`, and in
/// .gitattributes the lines `tuned/**/*.toml merge=kernel-gen` and `*.jsonl merge=kernel-gen`.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// The logs, or the folders; with --driver the ancestor, our file, their file, and the name of all of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Where the result goes; without it a log is printed
    #[arg(long, short, value_name = "PATH", conflicts_with = "driver")]
    out: Option<PathBuf>,
    /// Work for git: the result goes into our file
    #[arg(long)]
    driver: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    if arguments.driver {
        return driver(&arguments.paths);
    }
    let folders = arguments.paths.iter().filter(|p| p.is_dir()).count();
    match (folders, &arguments.out) {
        (0, out) => logs(&arguments.paths, out.as_deref()),
        (n, Some(out)) if n == arguments.paths.len() => records(&arguments.paths, out),
        (n, None) if n == arguments.paths.len() => Err("name the folder for the result with --out".to_string().into()),
        _ => Err("some of these are folders of records and some are logs; merge them by themselves".to_string().into()),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string().replace('\\', "/")
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| format!("{}: cannot be read: {error}; name a file that is there", shown(path)).into())
}

/// Replaces a file in one step.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    files::write_whole(path, text.as_bytes())
        .map_err(|error| format!("{}: cannot be written: {error}; name another file", shown(path)).into())
}

fn logs(paths: &[PathBuf], out: Option<&Path>) -> Result<Output, Failure> {
    let texts: Vec<(String, Vec<u8>)> =
        paths.iter().map(|p| Ok((shown(p), read(p)?))).collect::<Result<_, Failure>>()?;
    let sides: Vec<Side<'_>> = texts.iter().map(|(file, bytes)| Side { file, bytes }).collect();
    let (text, told) = merge_logs(None, &sides);
    let errors = told.iter().map(|d| d.to_string()).collect();
    match out {
        None => Ok(Output { text, errors, success: true }),
        Some(out) => {
            write(out, &text)?;
            let lines = text.lines().count();
            Ok(Output { text: format!("{}: {lines} lines\n", shown(out)), errors, success: true })
        }
    }
}

fn records(paths: &[PathBuf], out: &Path) -> Result<Output, Failure> {
    let sides = paths.iter().map(|p| BestRecords::load(p)).collect::<Result<Vec<_>, _>>()?;
    let merged = merge_folders(&sides);
    write_records(out, merged.iter())
        .map_err(|error| format!("{}: the records cannot be written: {error}", shown(out)))?;
    let n = merged.len();
    Ok(Output::success(format!("{}: {n} record{}\n", shown(out), if n == 1 { "" } else { "s" })))
}

fn driver(paths: &[PathBuf]) -> Result<Output, Failure> {
    let (base, ours, theirs, name) = match paths {
        [base, ours, theirs] => (base, ours, theirs, shown(ours)),
        [base, ours, theirs, name] => (base, ours, theirs, shown(name)),
        _ => return Err("--driver takes three files and their name: %O %A %B %P".to_string().into()),
    };
    let (base, a, b) = (read(base)?, read(ours)?, read(theirs)?);
    // Both sides have one name for a person; the words say which it is.
    let (name_a, name_b) = (format!("{name} (ours)"), format!("{name} (theirs)"));
    let (side_a, side_b) = (Side { file: &name_a, bytes: &a }, Side { file: &name_b, bytes: &b });
    // Git gives an empty file where there was no ancestor.
    let base = Some(Side { file: &name, bytes: &base }).filter(|s| !s.bytes.trim_ascii().is_empty());
    let (text, told) = if is_log(&a) || is_log(&b) {
        merge_logs(base, &[side_a, side_b])
    } else {
        (merge_records(base, side_a, side_b)?, vec![])
    };
    write(ours, &text)?;
    Ok(Output { text: String::new(), errors: told.iter().map(|d| d.to_string()).collect(), success: true })
}
