//! Import of what other tuners measured.
//!
//! What comes in are seeds: configs with which a tuner here may begin. Nobody here has checked their results, and their
//! times are of other devices and other code, so no record is ever made of them before they are measured again.

mod arguments;
pub mod autotvm;
mod error;
mod tasks;

use super::Mismatch;
use super::log::{BYTE_ORDER_MARK, Place, Seed, TaskKey};
use crate::diagnostic::Diagnostic;
use crate::target::Target;
use crate::templates::Registry;
use autotvm::{Line, LineError};
use std::sync::Arc;

/// How lines are to be taken.
#[derive(Clone, Copy, Default, Debug)]
pub struct ImportOptions<'a> {
    /// The target that the seeds are for; without one, that of a line's own `-arch`.
    pub target: Option<&'a Target>,
    /// Exchange the knobs `tile_ry` and `tile_rx` of the tutorial's lines: its schedule applies each to the other's axis,
    /// so that this gives the kernels that were measured, and without it the configs have the names that were written.
    pub exchange_ry_rx: bool,
}

/// What an import gives.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Imported {
    /// The seeds, in the order of the lines.
    pub seeds: Vec<Seed>,
    /// Lines that cannot be taken, each with its reason.
    pub refused: Vec<Diagnostic>,
    /// Lines that say that their config failed there.
    pub failed: usize,
    /// Lines whose index stands for another config here; their entities were taken.
    pub renumbered: usize,
    /// Lines of the tutorial, whose schedule exchanges two knobs.
    pub tutorial: usize,
}

/// Imports the lines of an AutoTVM log.
pub fn import_autotvm(bytes: &[u8], file: &str, registry: &Registry, options: &ImportOptions<'_>) -> Imported {
    let mut all = Imported::default();
    let file: Arc<str> = file.into();
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut offset = 0;
    for (i, bytes) in bytes.split(|b| *b == b'\n').enumerate() {
        let place = Place { file: file.clone(), line: i + 1, offset };
        offset += bytes.len() as u64 + 1;
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Err(diagnostic) = take(text, &place, registry, options, &mut all) {
            all.refused.push(diagnostic);
        }
    }
    all
}

fn take(
    text: &str,
    place: &Place,
    registry: &Registry,
    options: &ImportOptions<'_>,
    all: &mut Imported,
) -> Result<(), Diagnostic> {
    let wrong = |error: LineError| Diagnostic {
        file: place.file.to_string(),
        line: place.line,
        cause: error.to_string(),
        help: error.help().to_string(),
    };
    let mut line = Line::parse(text).map_err(wrong)?;
    if line.tutorial && options.exchange_ry_rx {
        line.exchange_ry_rx();
    }
    let refuse = |mismatch: Mismatch| Diagnostic {
        file: place.file.to_string(),
        line: place.line,
        cause: format!("the line is not taken: {mismatch}"),
        help: "tune the workload here, or delete the line".into(),
    };
    let target = match (options.target, line.arch()) {
        (Some(target), _) => target,
        (None, Some(arch)) => {
            Target::find(arch).ok_or_else(|| refuse(Mismatch::Unknown { what: format!("the target `{arch}`") }))?
        }
        (None, None) => return Err(wrong(LineError::NoTarget)),
    };
    let named = line.templates.iter().filter_map(|name| registry.find(name));
    let template = named.into_iter().find(|t| t.admits(&line.workload, target).is_ok());
    let space = template.and_then(|t| t.space(&line.workload, target).ok().map(|space| (t, space)));
    let Some((template, space)) = space else {
        let offered = registry.applicable(&line.workload, target).map(|t| t.name().to_string()).collect();
        let template = line.templates.last().copied().unwrap_or_default().to_string();
        return Err(refuse(Mismatch::NoTemplate { template, offered }));
    };
    if line.failed {
        all.failed += 1;
        return Ok(());
    }
    let index = space.index_of(&line.config).map_err(|error| refuse(Mismatch::of_config(error)))?;
    let config = space.get(index).unwrap_or_else(|| line.config.clone());
    all.tutorial += usize::from(line.tutorial);
    let exchanged = line.tutorial && options.exchange_ry_rx;
    all.renumbered += usize::from(line.numbered && !exchanged && line.index.is_some_and(|i| i != index));
    all.seeds.push(Seed {
        task: TaskKey {
            workload: line.workload.key(),
            target: target.name.clone(),
            template: template.name().to_string(),
            template_version: template.version(),
            space: space.fingerprint(),
        },
        index,
        config,
        reported_us: line.time_us,
        source: format!("AutoTVM, {}, {}", line.task, line.target),
        place: place.clone(),
    });
    Ok(())
}

#[cfg(test)]
mod tests;
