//! What earlier runs and records say of the workloads.

use super::arguments::Arguments;
use super::bench::Bench;
use super::plan::{Earlier, Incumbents, Plan};
use crate::cli::output::Failure;
use crate::cli::project::Project;
use crate::records::log::Log;
use crate::records::{BestRecords, Record, Trial};
use crate::space::Config;
use crate::templates::Registry;
use crate::tune::session;
use std::path::{Path, PathBuf};

/// What is known before a session begins, and where what it finds goes.
pub(super) struct Known {
    /// Trials of earlier runs, for each task.
    pub(super) histories: Vec<Vec<Trial>>,
    /// Configs that were fast elsewhere, for each task: on other devices and threads, for other workloads.
    pub(super) hints: Vec<Vec<Config>>,
    /// The records that there are.
    pub(super) incumbents: Vec<session::Incumbent>,
    /// Those of templates that are not tuned.
    pub(super) standing: Vec<Record>,
    /// What people should know before it begins.
    pub(super) notes: Vec<String>,
    /// The log, unless none is written.
    pub(super) log: Option<PathBuf>,
    /// The folder of records, unless none are written.
    pub(super) tuned: Option<PathBuf>,
}

impl Known {
    /// Without a bench, of all devices.
    pub(super) fn new(
        registry: &Registry,
        project: &Project,
        arguments: &Arguments,
        plan: &Plan<'_>,
        bench: Option<&Bench>,
    ) -> Result<Known, Failure> {
        // What a recording says is not measured now: it is written where that is asked for, and nowhere else.
        let measured = arguments.replay.is_none();
        let beside =
            arguments.measured.spec.given().map(PathBuf::as_path).and_then(Path::parent).unwrap_or(Path::new(""));
        let log_file = arguments.log.clone().or_else(|| measured.then(|| beside.join("tuning.jsonl")));
        let tuned = arguments.tuned.clone().or_else(|| measured.then(|| project.tuned.clone()));
        let log = match &log_file {
            Some(file) if file.exists() => Log::read(&[file]).map_err(|e| e.to_string())?,
            _ => Log::default(),
        };
        let Incumbents { usable: incumbents, standing, mut notes } = match &tuned {
            Some(_) => plan.incumbents(registry, project, bench),
            None => Incumbents::default(),
        };
        notes.extend(plan.left_out.iter().cloned());
        if arguments.replay.is_none() {
            notes.extend(arguments.measured.threads_of_programs(project, plan.target));
        }
        notes.extend(log.told().iter().map(|d| d.to_string()));
        let Earlier { histories, mut hints, notes: told } = plan.earlier(registry, &log, bench);
        notes.extend(told);
        let none = BestRecords::new();
        let records = if tuned.is_some() { &project.records } else { &none };
        for (hints, near) in hints.iter_mut().zip(plan.neighbours(registry, records, &log, bench)) {
            hints.extend(near);
        }
        Ok(Known { histories, hints, incumbents, standing, notes, log: log_file, tuned })
    }
}
