//! What is used for each workload, timed again beside what would be used without its record.
//!
//! A record is a claim that was measured once. [`Bench::run`] holds it against the device of today: the config that the lookup
//! chooses is compiled, checked and timed once more, interleaved with the config that would be used if there were no record
//! at all, and with the one that would be used if there were records of other shapes only (the leave-one-out of what the
//! records teach). Where two of them are the same config they are one candidate, which is timed once.
//!
//! Nothing is written: a record changes by [`session`](super::session) only.

mod options;
mod report;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod ways;

pub use options::Options;
pub use report::{Candidate, Column, Measured, Report, Row};
pub use summary::{Again, CONFIRMED, Mean, Summary, Sums};
pub use table::table;
pub use ways::{Ways, without_shape};

use super::measure::{Comparison, Measurer, Peer, Provenance, Rounds};
use super::session::Stop;
use super::{MadeFor, Task};
use crate::generate::rungs;
use crate::lower::Units;
use crate::model::{self, Rung, choose};
use crate::records::{BestRecords, Choice};
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::{Epilogue, Op, Range, Workload};
use std::collections::BTreeMap;
use std::time::Instant;
use ways::is_same;

/// A workload to be timed.
#[derive(Clone, PartialEq, Debug)]
pub struct Subject {
    /// What people call it.
    pub name: String,
    /// How often it occurs in the network.
    pub weight: f64,
    /// The workload.
    pub workload: Workload,
    /// Present if it is one size of a range.
    pub ranged: Option<Ranged>,
}

/// A range that a workload is one size of.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranged {
    /// The workload of the most units.
    pub workload: Workload,
    /// All sizes.
    pub range: Range,
    /// Which one it is.
    pub units: i64,
}

/// What everything is timed with.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'r, 'a> {
    /// The templates.
    pub registry: &'r Registry,
    /// The target of all workloads.
    pub target: &'r Target,
    /// The records that are held against the device.
    pub records: &'a BestRecords,
    /// What to time.
    pub options: &'a Options,
    /// The device.
    pub provenance: &'a Provenance,
}

impl<'r> Bench<'r, '_> {
    /// Times every subject, one after the other, and again in each further round; `told` hears of each row as soon as it is
    /// known. What fails is a row with its reason: the next one is measured all the same.
    pub fn run(
        &self,
        subjects: &[Subject],
        measurer: &mut dyn Measurer<'r>,
        stop: &Stop,
        told: &mut dyn FnMut(&Row),
    ) -> Report {
        let begun = Instant::now();
        let mut compared = vec![Rounds::default(); subjects.len()];
        let mut ranges = BTreeMap::new();
        let mut rows = vec![];
        let rounds = self.options.rounds.max(1);
        for round in 1..=rounds {
            for (Subject { name, weight, workload, ranged }, compared) in subjects.iter().zip(&mut compared) {
                let ranged = ranged.as_ref().and_then(|of| {
                    let rungs = ranges.entry(of.workload.key()).or_insert_with(|| self.rungs(of));
                    let rung = rungs.iter().find(|rung| of.units <= rung.units.1)?;
                    Some((of, rung.clone()))
                });
                let over = if stop.is_asked() {
                    Some("stopped by the user")
                } else {
                    let late = self.options.limit.is_some_and(|limit| begun.elapsed() >= limit);
                    late.then_some("the time is over; --seconds gives more")
                };
                let result = match over {
                    Some(why) if compared.calmest().is_none() => Err(why.to_string()),
                    // What earlier rounds found stays.
                    over => self.measured(workload, ranged, over.is_none().then_some(&mut *measurer), compared),
                };
                if round == rounds {
                    let row = Row { name: name.clone(), weight: *weight, workload: workload.key(), result };
                    told(&row);
                    rows.push(row);
                }
            }
        }
        Report {
            provenance: self.provenance.clone(),
            rows,
            others: self.options.others,
            peers: self.options.peers.clone(),
        }
    }

    /// How choices are made here.
    fn model(&self) -> model::Options {
        let mut options = self.options.model.clone();
        options.device.get_or_insert_with(|| self.provenance.device.clone());
        options.threads = Some(self.provenance.threads);
        options
    }

    /// The kernels of a range; none if there is none for some size, which its rows say.
    fn rungs(&self, Ranged { workload, range, .. }: &Ranged) -> Vec<Rung> {
        let options = model::Options { deny_fallback: false, ..self.model() };
        let choose = |units: i64| {
            let choice = choose(self.registry, &range.at(workload, units), self.target, self.records, &options);
            choice.map(|choice| (units, choice))
        };
        let candidates = model::ladder(range, self.target).into_iter().map(choose).collect::<Result<Vec<_>, _>>();
        candidates.map_or(vec![], |all| rungs(self.registry, workload, range, self.target, &all))
    }

    /// The candidates of a workload, each different config timed once by the measurer, if there is one, or as they were
    /// compared before; `compared` is what is known from then on.
    fn measured(
        &self,
        workload: &Workload,
        ranged: Option<(&Ranged, Rung)>,
        measurer: Option<&mut dyn Measurer<'r>>,
        compared: &mut Rounds,
    ) -> Result<Measured, String> {
        let options = Options { model: self.model(), ..self.options.clone() };
        let ways = Ways::of(self.registry, workload, self.target, self.records, &options).map_err(|e| e.to_string())?;
        let mut different: Vec<&Choice> = vec![];
        for choice in ways.all() {
            if !different.iter().any(|d| is_same(d, choice)) {
                different.push(choice);
            }
        }
        let mut tasks = vec![];
        for choice in &different {
            let template = self.registry.find(&choice.template).ok_or("the template is not registered")?;
            tasks.push(Task::new(workload.clone(), self.target, template).map_err(|e| e.to_string())?);
        }
        let mut asked = different.clone();
        if let Some((Ranged { workload: largest, range, units }, Rung { units: (least, most), choice, .. })) = &ranged {
            let template = self.registry.find(&choice.template).ok_or("the template is not registered")?;
            let of = Units { most: *most, params: range.params.clone() };
            let (workload_of_most, range) = (range.at(largest, *most), (largest.clone(), range.clone()));
            let made_for = MadeFor { workload: workload_of_most, units: of, least: *least, range, count: *units };
            let task = Task::of_range(workload.clone(), made_for, self.target, template);
            tasks.push(task.map_err(|e| e.to_string())?);
            asked.push(choice);
        }
        let asked: Vec<_> = tasks.iter().zip(&asked).map(|(task, choice)| (task, &choice.config)).collect();
        let peers: Vec<Peer> = self.options.peers.iter().copied().filter(|peer| has(*peer, &workload.op)).collect();
        if let Some(measurer) = measurer {
            compared.add(measurer.compare_with(&asked, &peers));
        }
        let Comparison { outcomes, peers: timed } = compared.calmest().ok_or("it was not measured")?;
        let candidate = |choice: &Choice| -> Result<Candidate, String> {
            let at = different.iter().position(|d| is_same(d, choice)).ok_or("it was not asked for")?;
            let outcome = outcomes.get(at).ok_or("the measurer left it out")?;
            Ok(Candidate { choice: choice.clone(), outcome: outcome.clone(), floor_us: compared.floor_us(at) })
        };
        Ok(Measured {
            chosen: candidate(&ways.chosen)?,
            default: candidate(&ways.default)?,
            others: ways.others.as_ref().map(candidate).transpose()?,
            ranged: ranged.as_ref().and_then(|(_, rung)| {
                let at = different.len();
                let (choice, outcome) = (rung.choice.clone(), outcomes.get(at)?.clone());
                Some(Candidate { choice, outcome, floor_us: compared.floor_us(at) })
            }),
            peers: peers.into_iter().zip(timed.iter().cloned()).collect(),
            adds_residual: workload.epilogue.contains(&Epilogue::ResidualAdd),
        })
    }
}

/// Whether a library has an operator.
fn has(peer: Peer, op: &Op) -> bool {
    match op {
        Op::Conv2d(_) => matches!(peer, Peer::Cudnn | Peer::CudnnFused),
        Op::Matmul(_) => peer == Peer::Cublas,
        _ => false,
    }
}
