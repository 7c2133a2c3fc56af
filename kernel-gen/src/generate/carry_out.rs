//! A workload on a target: what is chosen, and what comes next where that cannot be carried out.

use super::chosen::{Chosen, Picked, Place};
use super::error::{Cause, GenerateError};
use super::made::{Made, make};
use super::memo::{Asked, Digests, Memo};
use super::report::Row;
use super::task::{Rung, Task};
use crate::model;
use crate::records::{BestRecords, Choice, Unusable};
use crate::target::Target;
use crate::templates::Registry;

/// Does so with a workload for each of the kernels that it has on the target: one, or several where callers say how many units
/// there are, that for the fewest first. A kernel that would be the one for more units is left out, and so is one that takes weights in
/// another form than that for the most: one packed weight serves all.
pub(super) fn carry_out_all(task: &Task<'_>, target: &Target, with: &With<'_>) -> Result<Vec<Outcome>, GenerateError> {
    let mut all = vec![carry_out(task, target, with)?];
    let Some(Rung { range, most }) = task.rung else { return Ok(all) };
    for units in rungs(range.least, most, target) {
        let workload = range.at(task.workload, units);
        let task = Task { workload: &workload, rung: Some(Rung { range, most: units }), ..task.clone() };
        let Ok(outcome) = carry_out(&task, target, with) else { continue };
        let more = all.last().expect("there is one for the most units");
        let is_other = (&outcome.row.template, &outcome.row.config) != (&more.row.template, &more.row.config);
        if is_other && outcome.made.forms() == more.made.forms() {
            all.push(outcome);
        }
    }
    all.reverse();
    Ok(all)
}

/// The numbers of units that kernels are made for besides the most, the largest first: each a fixed part of the one before.
fn rungs(least: i64, most: i64, target: &Target) -> Vec<i64> {
    let kernels = if target.cpu().is_some() { CPU_KERNELS } else { CUDA_KERNELS };
    let part = (least as f64 / most as f64).powf(1.0 / f64::from(kernels - 1));
    let mut all: Vec<i64> = (1..kernels).map(|i| (most as f64 * part.powi(i)).round() as i64).collect();
    all.retain(|units| (least..most).contains(units));
    all.dedup();
    all
}

/// Most kernels of a range.
const CUDA_KERNELS: i32 = 5;
const CPU_KERNELS: i32 = 2;

/// Chooses for a workload and makes code of the choice. Where that fails, what comes next takes its place: a choice that the
/// verifier or a later step refuses is a defect of its template, and ends no build as long as another one works. Without
/// fallback there is no other one, since none was measured.
pub(super) fn carry_out(
    task: &Task<'_>,
    target: &Target,
    With { records, registry, options, prefix, memo }: &With<'_>,
) -> Result<Outcome, GenerateError> {
    let workload = task.workload;
    let choose = || model::choose(registry, workload, target, records, options);
    let first = match memo {
        Some((memo, digests)) => {
            let records = digests.of(workload);
            memo.choice(&Asked { registry, workload, target, records, options }, choose)
        }
        None => choose(),
    };
    let first = first.map_err(|error| Place { task, choice: None }.fault(Cause::Choose(error)))?;
    let (refusals, mut unusable) = (first.refusals.clone(), first.unusable.clone());
    let attempt = |choice: Choice| {
        let picked = Picked::new(task, target, registry, choice);
        let make = || make(&Chosen::new(&picked, registry)?, prefix);
        let made = match memo {
            Some((memo, _)) => memo.made(&picked, registry, prefix, make),
            None => make(),
        };
        made.map(|made| (made, picked))
    };
    let mut first_error = None;
    let mut next = std::iter::once(first.clone());
    let mut others = (!options.deny_fallback).then(|| {
        std::iter::once_with(|| model::instead_of(&first, registry, task.workload, target, options)).flatten()
    });
    while let Some(choice) = next.next().or_else(|| others.as_mut()?.next()) {
        let name = choice_name(registry, &choice);
        match attempt(choice) {
            Ok((made, picked)) => {
                let warnings = unusable.iter().map(|over| picked.instead_of(over)).collect();
                let (row, choice) = (picked.row(), Choice { refusals, unusable, ..picked.choice });
                return Ok(Outcome { made, choice, row, warnings });
            }
            Err(error) => {
                let reason = match &error {
                    GenerateError::Workload(fault) => fault.cause.to_string(),
                    other => other.to_string(),
                };
                unusable.push(Unusable { choice: name, reason });
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.expect("the first choice was tried"))
}

/// Template, version and config of a choice, and where it was measured.
fn choice_name(registry: &Registry, choice: &Choice) -> String {
    let version = registry.find(&choice.template).map_or(0, |t| t.version());
    let name = format!("{} v{version} with {}", choice.template, choice.config);
    if choice.origin.measured().is_some() { format!("{name} ({})", choice.origin) } else { name }
}

/// What choices are carried out with.
pub(super) struct With<'a> {
    pub(super) records: &'a BestRecords,
    pub(super) registry: &'a Registry,
    pub(super) options: &'a model::Options,
    /// What C symbols start with.
    pub(super) prefix: &'a str,
    /// Earlier results, and what tells which of them hold.
    pub(super) memo: Option<(&'a Memo, &'a Digests)>,
}

/// What came of a workload on a target.
pub(super) struct Outcome {
    pub(super) made: Made,
    /// The choice that was carried out.
    pub(super) choice: Choice,
    pub(super) row: Row,
    /// What was passed over, in sentences.
    pub(super) warnings: Vec<String>,
}
