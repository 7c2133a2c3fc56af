//! What was measured of each workload.

use crate::records::{Choice, Outcome};
use crate::tune::measure::{Peer, PeerTiming, Provenance};
use crate::workload::bound::Accuracy;

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

/// A choice and what became of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// Template, config, and where they come from.
    pub choice: Choice,
    /// Its times, all taken in turn with those of the row's other candidates, or why it has none.
    pub outcome: Outcome,
    /// What it takes where nothing disturbs it, in microseconds, if it ran, see [`Rounds::floor_us`](crate::tune::measure::Rounds::floor_us).
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
    /// The kernel of a range that serves this size, if it is one of a range's.
    pub ranged: Option<Candidate>,
    /// The libraries that were asked for and have such an operator: their times, or why there are none.
    pub peers: Vec<(Peer, Result<PeerTiming, String>)>,
    /// Whether the workload reads one more tensor than its operator and adds it to the result.
    pub adds_residual: bool,
}

impl Measured {
    /// The time that the chosen record states, in microseconds; none where there is no record.
    pub fn recorded_us(&self) -> Option<f64> {
        Some(self.chosen.choice.origin.measured()?.time_us)
    }

    /// The record's config now / its recorded time.
    pub fn again(&self) -> Option<f64> {
        Some(self.chosen.us()? / self.recorded_us()?)
    }

    /// How fast a core is now / how fast it was when the record was measured, where both are known.
    pub fn clock(&self) -> Option<f64> {
        let then = self.chosen.choice.origin.measured_here()?.core_gflops?;
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
        let then = self.chosen.choice.origin.measured_here()?.floor_us?;
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
        let others = self.others.as_ref().map(|c| (Column::Others, c));
        both.into_iter().chain(others).chain(self.ranged.as_ref().map(|c| (Column::Ranged, c)))
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
    /// What serves a range of sizes.
    Ranged,
}

impl Column {
    /// One word: `chosen`, `default`, `others`, `ranged`.
    pub fn name(self) -> &'static str {
        match self {
            Column::Chosen => "chosen",
            Column::Default => "default",
            Column::Others => "others",
            Column::Ranged => "ranged",
        }
    }
}
