//! Writes the records of what was found.

use super::bench::Bench;
use super::plan::Plan;
use crate::cli::output::Failure;
use crate::files;
use crate::records::{self, Outcome, Record};
use crate::target::Device;
use crate::tune::gflops;
use crate::tune::session::{self, Summary, Verdict};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Says before hours of tuning, and not after, that no record can be written to a folder.
pub(super) fn can_be_written(folder: &Path) -> Result<(), Failure> {
    let probe = folder.join(format!(".kernel-gen-{}", files::random_name()));
    let tried = fs::create_dir_all(folder)
        .and_then(|()| files::create_new(&probe))
        .and_then(|_| fs::remove_file(&probe))
        .map(|()| remove_drafts(folder));
    tried.map_err(|error| {
        let folder = folder.display().to_string().replace('\\', "/");
        format!("{folder}: no record can be written here: {error}; name another folder with --tuned").into()
    })
}

/// Removes what a run that was killed left in the folders of the targets.
fn remove_drafts(folder: &Path) {
    for target in fs::read_dir(folder).into_iter().flatten().flatten() {
        if target.file_type().is_ok_and(|t| t.is_dir()) {
            files::sweep_drafts(&target.path(), files::YOUNG);
        }
    }
}

/// Relative error of a recorded time above which a record that is kept gets today's time: readers compare the times of
/// records with each other, so a time from another machine or another method would mislead them.
const STALE: f64 = 0.03;

/// Whether a record does not say what its config takes now: where nothing disturbs it, on a CPU, and else as it is. A record
/// of a CPU that is older than that is written again.
fn is_stale(record: &session::Incumbent, now: &session::Candidate, of_a_cpu: bool) -> bool {
    let ratio = match (record.floor_us, now.floor_us.filter(|_| of_a_cpu)) {
        (Some(then), Some(now)) => now / then,
        (None, Some(_)) => return true,
        (_, None) => now.outcome.time_us().map_or(1.0, |us| us / record.recorded_us),
    };
    ratio.ln().abs() > STALE
}

/// What became of what was found.
#[derive(Default)]
pub(super) struct Written {
    /// The files that have new records, and how many each.
    pub(super) files: BTreeMap<PathBuf, usize>,
    /// Which records stay although they were not tuned.
    pub(super) kept: Vec<String>,
    pub(super) errors: Vec<String>,
}

/// Writes a record for each workload that has a new one, or whose record says a time that no longer holds. A record of a
/// template that was not tuned stays where its time is below what was found.
pub(super) fn write_records(
    plan: &Plan<'_>,
    bench: &Bench,
    summary: &Summary,
    (incumbents, standing): (&[session::Incumbent], &[Record]),
    folder: &Path,
) -> Written {
    let of_a_cpu = matches!(plan.target.device, Device::Cpu(_));
    let stale = |candidate: &session::Candidate| {
        let same = |i: &&session::Incumbent| i.entry == candidate.entry && i.config == candidate.config;
        incumbents.iter().find(same).is_some_and(|record| is_stale(record, candidate, of_a_cpu))
    };
    let mut written = Written::default();
    for verdict in &summary.verdicts {
        let winner = match verdict {
            Verdict::Won { candidates, winner, .. } => &candidates[*winner],
            Verdict::Kept { candidates, incumbent } if stale(&candidates[*incumbent]) => &candidates[*incumbent],
            _ => continue,
        };
        let Outcome::Timed(timing) = &winner.outcome else { continue };
        let (item, task) = (&plan.items[winner.entry], &plan.tasks[winner.entry]);
        let time_us = timing.median_us();
        let faster = |s: &&Record| s.workload == item.key.workload && s.time_us <= time_us;
        if let Some(Record { template, time_us: us, .. }) = standing.iter().find(faster) {
            let (name, found) = (&item.name, &item.key.template);
            written.kept.push(format!(
                "{name}: the record of {template} stays, {us:.4} us; {found} takes {time_us:.4}. Both are compared with \
                 --template {template} --template {found}"
            ));
            continue;
        }
        let record = Record {
            workload: item.key.workload.clone(),
            target: item.key.target.clone(),
            device: bench.device.clone(),
            threads: bench.threads,
            template: item.key.template.clone(),
            template_version: item.key.template_version,
            space: item.key.space,
            config: winner.config.clone(),
            time_us,
            gflops: gflops(&task.workload, time_us),
            core_gflops: timing.core_median_gflops(),
            floor_us: winner.floor_us.filter(|_| of_a_cpu),
            spread: winner.spread,
            max_error: timing.max_error,
            // A measurer times what passed the check against the reference, and nothing else.
            verified: true,
            generator: env!("CARGO_PKG_VERSION").to_string(),
        };
        match records::write_records(folder, [&record]) {
            Ok(files) => files.into_iter().for_each(|file| *written.files.entry(file).or_default() += 1),
            Err(error) => {
                let file = folder.join(record.slot().relative_path()).display().to_string().replace('\\', "/");
                let help = "the trials are in the log, and the same command decides again";
                written.errors.push(format!("error: {file}: the record cannot be written: {error}; {help}"));
            }
        }
    }
    written
}
