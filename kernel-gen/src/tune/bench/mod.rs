//! What is used for each workload, timed again beside what would be used without its record.
//!
//! A record is a claim that was measured once. [`Bench::run`] holds it against the device of today: the config that the lookup
//! chooses is compiled, checked and timed once more, interleaved with the config that would be used if there were no record
//! at all, and with the one that would be used if there were records of other shapes only (the leave-one-out of what the
//! records teach). Where two of them are the same config they are one candidate, which is timed once.
//!
//! Nothing is written: a record changes by [`session`](super::session) only.

mod summary;
mod table;
#[cfg(test)]
mod tests;
mod ways;

pub use summary::{Again, Mean, Summary};
pub use table::table;
pub use ways::{Ways, without_shape};

use super::Task;
use super::measure::{Comparison, Measurer, Peer, PeerTiming, Provenance, Rounds};
use super::session::Stop;
use crate::model;
use crate::records::{BestRecords, Choice, Origin, Outcome};
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::bound::Accuracy;
use crate::workload::{Epilogue, Op, Workload};
use std::time::{Duration, Instant};

/// A re-timed record counts as confirmed within this share of the time that it states.
pub const CONFIRMED: f64 = 0.05;

/// A workload to be timed.
#[derive(Clone, PartialEq, Debug)]
pub struct Subject {
    /// What people call it.
    pub name: String,
    /// How often it occurs in the network.
    pub weight: f64,
    /// The workload.
    pub workload: Workload,
}

/// What to time and for how long.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// How templates are chosen. Records of as many threads as are measured with are preferred, and, where no device is
    /// named, those of the one that measures.
    pub model: model::Options,
    /// Whether the choice by records of other shapes is timed as well.
    pub others: bool,
    /// Libraries of the GPU's vendor that are timed as well, each on the operators that it has.
    pub peers: Vec<Peer>,
    /// No workload is begun after this time.
    pub limit: Option<Duration>,
    /// How often the whole list is timed; each row is of the round that was disturbed least, see [`Comparison::calmer`].
    /// 0 counts as 1.
    pub rounds: usize,
}

/// A choice and what became of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// Template, config, and where they come from.
    pub choice: Choice,
    /// Its times, all taken in turn with those of the row's other candidates, or why it has none.
    pub outcome: Outcome,
    /// What it takes where nothing disturbs it, in microseconds, if it ran, see [`Rounds::floor_us`].
    pub floor_us: Option<f64>,
}

impl Candidate {
    /// The median time of a call in microseconds, see [`Timing::samples_us`](crate::records::Timing::samples_us).
    pub fn us(&self) -> Option<f64> {
        self.outcome.time_us().filter(|us| us.is_finite())
    }

    /// The same of cold calls.
    pub fn cold_us(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Timed(timing) => Some(timing.cold_median_us()).filter(|us| us.is_finite()),
            Outcome::Failed(_) => None,
        }
    }

    /// A warm and a cold call that begins when the one in front has ended; none where that was not timed apart, because its
    /// kernels never begin before.
    pub fn apart_us(&self) -> [Option<f64>; 2] {
        match &self.outcome {
            Outcome::Timed(timing) if !timing.apart_us.is_empty() => {
                timing.apart_medians_us().map(|us| Some(us).filter(|us| us.is_finite()))
            }
            _ => [None; 2],
        }
    }

    /// How far its result is from the exact one, if it ran.
    pub fn accuracy(&self) -> Option<Accuracy> {
        match &self.outcome {
            Outcome::Timed(timing) => timing.accuracy,
            Outcome::Failed(_) => None,
        }
    }
}

/// A workload's candidates.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// What the lookup chooses.
    pub chosen: Candidate,
    /// What is used without any record.
    pub default: Candidate,
    /// What is used with records of other shapes only, if that was asked for.
    pub others: Option<Candidate>,
    /// The libraries that were asked for and have such an operator: their times, or why there are none.
    pub peers: Vec<(Peer, Result<PeerTiming, String>)>,
    /// Whether the workload reads one more tensor than its operator and adds it to the result.
    pub adds_residual: bool,
}

impl Measured {
    /// The time that the chosen record states, in microseconds; none where there is no record.
    pub fn recorded_us(&self) -> Option<f64> {
        let origin = &self.chosen.choice.origin;
        origin.is_measured().then(|| origin.time_us())
    }

    /// The record's config now / its recorded time.
    pub fn again(&self) -> Option<f64> {
        Some(self.chosen.us()? / self.recorded_us()?)
    }

    /// How fast a core is now / how fast it was when the record was measured, where both are known.
    pub fn clock(&self) -> Option<f64> {
        let (Origin::Exact { core_gflops: Some(then), .. } | Origin::SameTarget { core_gflops: Some(then), .. }) =
            &self.chosen.choice.origin
        else {
            return None;
        };
        let Outcome::Timed(timing) = &self.chosen.outcome else { return None };
        Some(timing.core_median_gflops()? / then)
    }

    /// [`Measured::again`] at the clock of the record, where both are known: by how much the kernel itself differs from
    /// what was recorded. The whole time is taken to follow the clock, which that of the caches and the cores does.
    pub fn again_at_clock(&self) -> Option<f64> {
        Some(self.again()? * self.clock().unwrap_or(1.0))
    }

    /// What the record's config takes now where nothing disturbs it / what it took then, where both are known: of a machine
    /// that is shared with others, the times that come back.
    pub fn floor_again(&self) -> Option<f64> {
        let (Origin::Exact { floor_us: Some(then), .. } | Origin::SameTarget { floor_us: Some(then), .. }) =
            &self.chosen.choice.origin
        else {
            return None;
        };
        Some(self.chosen.floor_us? / then)
    }

    /// How many times as long a candidate takes as what the lookup chooses.
    pub fn relative(&self, candidate: &Candidate) -> Option<f64> {
        Some(candidate.us()? / self.chosen.us()?)
    }

    /// The fastest library. Where a residual is added, one that adds it goes before those that leave it out: these read and
    /// write a third less.
    pub fn peer(&self) -> Option<&PeerTiming> {
        self.peer_and_timing().map(|(_, timing)| timing)
    }

    /// Whether what [`Measured::peer`] timed leaves out the residual that the workload adds.
    pub fn peer_leaves_out_residual(&self) -> bool {
        self.peer_and_timing().is_some_and(|(peer, _)| self.leaves_out_residual(peer))
    }

    fn leaves_out_residual(&self, peer: Peer) -> bool {
        self.adds_residual && peer != Peer::CudnnFused
    }

    fn peer_and_timing(&self) -> Option<(Peer, &PeerTiming)> {
        let timed = self.peers.iter().filter_map(|(peer, result)| Some((*peer, result.as_ref().ok()?)));
        let timed = timed.filter(|(_, timing)| timing.median_us().is_finite());
        timed.min_by(|(a, at), (b, bt)| {
            let less = self.leaves_out_residual(*a).cmp(&self.leaves_out_residual(*b));
            less.then(at.median_us().total_cmp(&bt.median_us()))
        })
    }

    /// How many times as long the fastest library takes as what the lookup chooses.
    pub fn peer_ratio(&self) -> Option<f64> {
        Some(self.peer()?.median_us() / self.chosen.us()?)
    }

    /// The same with operands that are not in a cache.
    pub fn cold_peer_ratio(&self) -> Option<f64> {
        Some(self.peer()?.cold_median_us() / self.chosen.cold_us()?).filter(|ratio| ratio.is_finite())
    }

    /// How many times as long the fastest library takes as what the lookup chooses does where no call begins before the one in
    /// front has ended: warm and cold.
    pub fn apart_peer_ratios(&self) -> [Option<f64>; 2] {
        let (Some(peer), Outcome::Timed(timing)) = (self.peer(), &self.chosen.outcome) else { return [None; 2] };
        let [warm, cold] = timing.apart_medians_us();
        [peer.median_us() / warm, peer.cold_median_us() / cold].map(|ratio| Some(ratio).filter(|r| r.is_finite()))
    }

    /// The candidates with what each is, in the order of the table.
    pub fn candidates(&self) -> impl Iterator<Item = (Column, &Candidate)> {
        let both = [(Column::Chosen, &self.chosen), (Column::Default, &self.default)];
        both.into_iter().chain(self.others.as_ref().map(|c| (Column::Others, c)))
    }
}

/// What a candidate is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// What the lookup chooses.
    Chosen,
    /// What is used without any record.
    Default,
    /// What is used with records of other shapes only.
    Others,
}

impl Column {
    /// One word: `chosen`, `default`, `others`.
    pub fn name(self) -> &'static str {
        match self {
            Column::Chosen => "chosen",
            Column::Default => "default",
            Column::Others => "others",
        }
    }
}

/// What became of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What people call it.
    pub name: String,
    /// How often it occurs in the network.
    pub weight: f64,
    /// Its key.
    pub workload: String,
    /// Its candidates, or why there are none.
    pub result: Result<Measured, String>,
}

/// All rows, and where they were measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The device and the tools.
    pub provenance: Provenance,
    /// A row a workload, in the order of the subjects.
    pub rows: Vec<Row>,
    /// Whether choices by records of other shapes were timed.
    pub others: bool,
    /// The libraries that were asked for.
    pub peers: Vec<Peer>,
}

impl Report {
    /// Means and counts over the rows.
    pub fn summary(&self) -> Summary {
        Summary::of(self)
    }
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
        let mut rows = vec![];
        let rounds = self.options.rounds.max(1);
        for round in 1..=rounds {
            for (Subject { name, weight, workload }, compared) in subjects.iter().zip(&mut compared) {
                let over = if stop.is_asked() {
                    Some("stopped by the user")
                } else {
                    let late = self.options.limit.is_some_and(|limit| begun.elapsed() >= limit);
                    late.then_some("the time is over; --seconds gives more")
                };
                let result = match over {
                    Some(why) if compared.calmest().is_none() => Err(why.to_string()),
                    // What earlier rounds found stays.
                    over => self.measured(workload, over.is_none().then_some(&mut *measurer), compared),
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

    /// The candidates of a workload, each different config timed once by the measurer, if there is one, or as they were
    /// compared before; `compared` is what is known from then on.
    fn measured(
        &self,
        workload: &Workload,
        measurer: Option<&mut dyn Measurer<'r>>,
        compared: &mut Rounds,
    ) -> Result<Measured, String> {
        let mut options = self.options.clone();
        options.model.device.get_or_insert_with(|| self.provenance.device.clone());
        options.model.threads = Some(self.provenance.threads);
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
        let asked: Vec<_> = tasks.iter().zip(&different).map(|(task, choice)| (task, &choice.config)).collect();
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

/// Whether two choices are the same kernel, wherever they come from.
fn is_same(a: &Choice, b: &Choice) -> bool {
    a.template == b.template && a.config == b.config
}

/// Whether a choice's record was measured as this machine measures: on this device, with as many threads.
fn is_of_here(origin: &Origin, provenance: &Provenance) -> bool {
    match origin {
        Origin::Exact { device, threads, .. } | Origin::SameTarget { device, threads, .. } => {
            *device == provenance.device && *threads == provenance.threads
        }
        _ => false,
    }
}
