//! A workload on a target: what is chosen, and what comes next where that cannot be carried out.

use super::chosen::{Chosen, Picked, Place};
use super::error::{Cause, GenerateError};
use super::made::{Made, make};
use super::memo::{Asked, Digests, Memo};
use super::ranges::rungs;
use super::report::Row;
use super::task::{Rung, Task};
use crate::model;
use crate::records::{BestRecords, Choice, Unusable};
use crate::target::Target;
use crate::templates::Registry;

/// Chooses for a workload and makes code of the choice: of several where callers say how many units there are, that for the fewest
/// first. A kernel that takes weights in another form than that for the most is left out: one packed weight serves all.
pub(super) fn carry_out_all(task: &Task<'_>, target: &Target, with: &With<'_>) -> Result<Vec<Outcome>, GenerateError> {
    let Some(Rung { range, largest, .. }) = task.rung else { return Ok(vec![carry_out(task, target, with)?]) };
    let mut candidates = vec![];
    for units in model::ladder(range, target) {
        let workload = range.at(task.workload, units);
        candidates.push((units, choose(&Task { workload: &workload, ..task.clone() }, target, with)?));
    }
    let mut rungs = rungs(with.registry, task.workload, range, target, &candidates);
    let none_fits = rungs.is_empty();
    if none_fits {
        // None of the candidates can run fewer than it is made for; what takes the place of that for the most does.
        let of_most = candidates.pop().map(|(_, choice)| choice);
        let units = (range.least, range.most);
        rungs.extend(of_most.map(|choice| model::Rung { units, choice, worst: (1.0, range.most) }));
    }
    let mut all: Vec<Outcome> = vec![];
    for rung in rungs.into_iter().rev() {
        let (least, most) = rung.units;
        let workload = range.at(task.workload, most);
        let task = Task { workload: &workload, rung: Some(Rung { range, largest, least, most }), ..task.clone() };
        let made = carry(&task, target, with, rung.choice.clone());
        match all.last() {
            None => all.push(made?.of_rung(&rung, none_fits)),
            Some(more) => {
                let made = made.ok().filter(|made| made.made.forms() == more.made.forms());
                all.extend(made.map(|made| made.of_rung(&rung, none_fits)));
            }
        }
    }
    all.reverse();
    Ok(all)
}

/// Chooses for a workload and makes code of the choice.
fn carry_out(task: &Task<'_>, target: &Target, with: &With<'_>) -> Result<Outcome, GenerateError> {
    carry(task, target, with, choose(task, target, with)?)
}

/// Chooses for a workload, or finds what an earlier run chose.
fn choose(
    task: &Task<'_>,
    target: &Target,
    With { records, registry, options, memo, .. }: &With<'_>,
) -> Result<Choice, GenerateError> {
    let workload = task.workload;
    let choose = || model::choose(registry, workload, target, records, options);
    let choice = match memo {
        Some((memo, digests)) => {
            let records = digests.of(workload);
            memo.choice(&Asked { registry, workload, target, records, options }, choose)
        }
        None => choose(),
    };
    choice.map_err(|error| Place { task, choice: None }.fault(Cause::Choose(error)))
}

/// Makes code of a choice. Where that fails, what comes next takes its place: a choice that the
/// verifier or a later step refuses is a defect of its template, and ends no build as long as another one works. Without
/// fallback there is no other one, since none was measured.
fn carry(
    task: &Task<'_>,
    target: &Target,
    With { registry, options, prefix, memo, .. }: &With<'_>,
    first: Choice,
) -> Result<Outcome, GenerateError> {
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
                return Ok(Outcome { made, choice, most: task.rung.map_or(1, |rung| rung.most), row, warnings });
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

impl Outcome {
    /// The same, with what is expected of it as one of the kernels of a range; nothing if none of the candidates could be one.
    fn of_rung(mut self, rung: &model::Rung, none_fits: bool) -> Outcome {
        let ((least, most), (worst, at)) = (rung.units, rung.worst);
        let expected = match none_fits {
            true => "since no candidate runs fewer than it is made for".to_string(),
            false => format!("expected to take at most {worst:.2} times what others would, at {at}"),
        };
        let text = format!("; for {least} to {most}, {expected}");
        self.row.origin_detail.push_str(&text);
        self.made.choice_mut().origin_detail.push_str(&text);
        self
    }
}

/// What came of a workload on a target.
pub(super) struct Outcome {
    pub(super) made: Made,
    /// The choice that was carried out.
    pub(super) choice: Choice,
    /// Of a range, how many units the kernel is for at most.
    pub(super) most: i64,
    pub(super) row: Row,
    /// What was passed over, in sentences.
    pub(super) warnings: Vec<String>,
}
