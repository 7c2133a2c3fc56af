//! Answers of a recording in the place of a device's.

use super::arguments::Arguments;
use crate::cli::output::Failure;
use crate::cli::project::{Project, target, target_here};
use crate::records::log::{Log, LogReader};
use crate::target::Target;
use crate::templates::Registry;
use crate::tune::landscape::Landscape;
use crate::tune::replay::Recording;
use std::fs;
use std::path::Path;

/// The target that is asked for; without one that of the recording, if it is of one only, or the best that this machine
/// executes.
pub(super) fn target_of(
    project: &Project,
    arguments: &Arguments,
    recording: Option<&Recording>,
) -> Result<&'static Target, Failure> {
    if let (None, Some(recording)) = (&arguments.measured.target, recording) {
        let mut names: Vec<&str> = recording.tasks().map(|(_, target, _)| target).collect();
        names.sort_unstable();
        names.dedup();
        return match &names[..] {
            [only] => target(project, Some(only)),
            [] => Err("the recording holds no trials".to_string().into()),
            several => {
                Err(format!("the recording is of several targets; name one with --target: {}", several.join(", "))
                    .into())
            }
        };
    }
    target_here(project, arguments.measured.target.as_deref())
}

/// Reads a landscape or a log.
pub(super) fn recording(file: &Path, registry: &Registry) -> Result<Recording, Failure> {
    let shown = file.display().to_string().replace('\\', "/");
    let bytes = fs::read(file).map_err(|e| format!("{shown}: cannot be read: {e}; name a landscape or a log"))?;
    let mut recording = Recording::new();
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    if text.starts_with(b"kernel-gen landscape") || file.extension().is_some_and(|e| e == "gz") {
        let landscape = Landscape::load(file)?;
        recording.add_landscape(&landscape, registry).map_err(|cause| format!("{shown}: {cause}"))?;
        return Ok(recording);
    }
    let mut log = Log::default();
    log.extend(LogReader::new(&bytes[..], &shown));
    for entry in &log.entries {
        let (task, trial) = (&entry.task, &entry.trial);
        recording.add(&task.workload, &task.target, &task.template, &trial.config, trial.outcome.clone());
        recording.device.get_or_insert(entry.device.clone());
    }
    if recording.is_empty() {
        let why = log.skipped.first().map(|d| format!(" ({d})")).unwrap_or_default();
        return Err(format!("{shown}: neither a landscape nor a log with trials{why}").into());
    }
    Ok(recording)
}
