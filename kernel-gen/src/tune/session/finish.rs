//! The end of a session: the fastest configs of a workload once more, side by side, and what follows from that.

use super::{Event, Incumbent, MIN_GAIN, Session, SessionError, Subject};
use crate::records::{FailureKind, Outcome, Timing, median};
use crate::space::Config;
use crate::tune::measure::{Comparison, Measurer, Rounds};
use std::time::Instant;

/// Where a candidate comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The record that there is.
    Incumbent,
    /// The config that is used without any record.
    Default,
    /// The search.
    Search,
}

/// A config that ran in the final comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// The entry whose template it is of.
    pub entry: usize,
    /// The config.
    pub config: Config,
    /// Where it comes from. A config that is several things is the first of [`Source`]'s that holds.
    pub source: Source,
    /// Whether it is the config that is used without any record, wherever else it comes from.
    pub is_default: bool,
    /// What became of it in the comparison.
    pub outcome: Outcome,
    /// What it takes where nothing disturbs it, in microseconds, if it ran, see [`Rounds::floor_us`].
    pub floor_us: Option<f64>,
}

/// What became of a workload.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// The session was ended before its end, or before the workload had its turn.
    NotDecided,
    /// No config ran.
    Nothing {
        /// All candidates: of earlier trials that were valid then, if there are any.
        candidates: Vec<Candidate>,
    },
    /// The record stays: nothing was faster by more than the noise.
    Kept {
        /// All candidates.
        candidates: Vec<Candidate>,
        /// The place of the record among them.
        incumbent: usize,
    },
    /// There is a new record.
    Won {
        /// All candidates.
        candidates: Vec<Candidate>,
        /// The place of the winner among them.
        winner: usize,
        /// The place of the record that it beat, if there was one that ran.
        incumbent: Option<usize>,
    },
}

impl Verdict {
    /// All candidates of the comparison.
    pub fn candidates(&self) -> &[Candidate] {
        match self {
            Verdict::NotDecided => &[],
            Verdict::Nothing { candidates } | Verdict::Kept { candidates, .. } | Verdict::Won { candidates, .. } => {
                candidates
            }
        }
    }

    /// The config to use from now on, if there is one.
    pub fn choice(&self) -> Option<&Candidate> {
        match self {
            Verdict::NotDecided | Verdict::Nothing { .. } => None,
            Verdict::Kept { candidates, incumbent } => candidates.get(*incumbent),
            Verdict::Won { candidates, winner, .. } => candidates.get(*winner),
        }
    }

    /// The config that is used without any record, if it was compared.
    pub fn default(&self) -> Option<&Candidate> {
        self.candidates().iter().find(|c| c.is_default)
    }

    /// The record that there was, if it was compared.
    pub fn incumbent(&self) -> Option<&Candidate> {
        self.candidates().iter().find(|c| c.source == Source::Incumbent)
    }

    /// How many times as long as the choice another candidate took, by what they are compared by, if both ran.
    pub fn times_choice(&self, other: Option<&Candidate>) -> Option<f64> {
        Some(other?.compared_us()? / self.choice()?.compared_us()?)
    }
}

impl Candidate {
    /// The median of what it is compared by, in microseconds, if it ran, see [`Timing::compared_us`].
    pub fn compared_us(&self) -> Option<f64> {
        self.timing().map(|t| median(&t.compared_us()))
    }

    /// How long it took, if it ran.
    fn timing(&self) -> Option<&Timing> {
        match &self.outcome {
            Outcome::Timed(timing) => Some(timing),
            Outcome::Failed(_) => None,
        }
    }
}

/// Whether one timing is better than another by more than the noise of both.
///
/// Both by [`Timing::compared_us`]. Samples that were taken alternately are compared in pairs, so that what slowed both down does not count: the median of
/// the ratios must be below 1 by two standard errors of that median, and by [`MIN_GAIN`] in any case. The standard error
/// comes from the median absolute deviation, which a few disturbed samples do not move.
pub fn beats(challenger: &Timing, incumbent: &Timing) -> bool {
    let (a, b) = (&challenger.compared_us(), &incumbent.compared_us());
    let (ratio, error) = if a.len() == b.len() && a.len() >= 3 {
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        middle_and_error(&ratios)
    } else {
        let (a, b) = (middle_and_error(a), middle_and_error(b));
        let relative = (a.1 / a.0).hypot(b.1 / b.0);
        (a.0 / b.0, a.0 / b.0 * relative)
    };
    // A comparison with what is no number is never won.
    ratio < 1.0 - MIN_GAIN.max(2.0 * error)
}

/// The median and its standard error.
fn middle_and_error(samples: &[f64]) -> (f64, f64) {
    let middle = median(samples);
    let deviations: Vec<f64> = samples.iter().map(|s| (s - middle).abs()).collect();
    // 1.4826 makes the deviation that of a normal distribution; its median scatters 1.2533 times as much as its mean.
    (middle, 1.2533 * 1.4826 * median(&deviations) / (samples.len() as f64).sqrt())
}

/// Leaves the slower finalists out until only `most` candidates are left; the record, the default and one finalist stay.
fn shorten(picked: &mut Vec<Picked>, most: usize) {
    let others = picked.iter().filter(|(_, _, source)| *source != Source::Search).count();
    picked.truncate(most.max(others + 1));
}

/// What follows from the outcomes of a comparison.
pub(super) fn verdict(candidates: Vec<Candidate>) -> Verdict {
    let fastest = candidates
        .iter()
        .enumerate()
        .filter_map(|(at, c)| Some((at, median(&c.timing()?.compared_us()))))
        .filter(|(_, us)| us.is_finite())
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(at, _)| at);
    let incumbent = candidates.iter().position(|c| c.source == Source::Incumbent);
    // A record that could not be asked for reasons that are not its own is not beaten.
    let unasked = |at: usize| match &candidates[at].outcome {
        Outcome::Failed(failure) => failure.kind == FailureKind::Worker,
        Outcome::Timed(_) => false,
    };
    let stays = incumbent.filter(|at| {
        unasked(*at)
            || match (candidates[*at].timing(), fastest.and_then(|at| candidates[at].timing())) {
                (Some(old), Some(new)) => !beats(new, old),
                _ => false,
            }
    });
    match (stays, fastest) {
        (Some(incumbent), _) => Verdict::Kept { candidates, incumbent },
        (None, Some(winner)) => {
            let incumbent = incumbent.filter(|at| candidates[*at].timing().is_some());
            Verdict::Won { candidates, winner, incumbent }
        }
        (None, None) => Verdict::Nothing { candidates },
    }
}

/// What is compared: the entry, its config, and where that comes from.
type Picked = (usize, Config, Source);

impl<'t> Session<'t, '_, '_> {
    /// Compares the best of each workload with the record and the default.
    pub(super) fn decide(
        &mut self,
        incumbents: &[Incumbent],
        measurer: &mut dyn Measurer<'t>,
    ) -> Result<(Vec<Verdict>, usize), SessionError> {
        let mut picked = vec![];
        let tried: Vec<usize> = self.tried_groups().collect();
        for group in 0..self.board.groups.len() {
            // A workload whose turn never came has nothing to show beside its default, unless no turns were asked for.
            let decided = tried.contains(&group) || self.options.trials == 0;
            picked.push(decided.then(|| self.candidates(group, incumbents)));
        }
        let mut compared = vec![Rounds::default(); picked.len()];
        let mut verdicts = vec![];
        let mut uncompared = 0;
        let rounds = self.options.rounds.max(1);
        let is_compared = |p: &Option<Vec<Picked>>| p.as_ref().is_some_and(|p| !p.is_empty());
        let mut left = rounds * picked.iter().filter(|p| is_compared(p)).count();
        // Seconds of comparisons, and the candidates in them.
        let mut spent = (0.0, 0);
        for round in 1..=rounds {
            for (group, picked) in picked.iter_mut().enumerate() {
                if let Some(picked) = picked.as_mut().filter(|picked| !picked.is_empty() && !self.stop.is_asked()) {
                    let left_s = self.left_s();
                    if left_s.is_none_or(|s| s > 0.0) {
                        // Where all of them would take too long, each has fewer finalists; all rounds have the same ones.
                        if let (1, Some(left_s)) = (round, left_s) {
                            let one = if spent.1 == 0 { self.candidate_s() } else { spent.0 / spent.1 as f64 };
                            let fit = (left_s / (left as f64 * one)).max(0.0) as usize;
                            shorten(picked, fit);
                        }
                        self.tell(Event::Comparing { group, candidates: picked.len() })?;
                        let asked: Vec<_> =
                            picked.iter().map(|(e, config, _)| (self.subjects[*e].task, config)).collect();
                        let began = Instant::now();
                        compared[group].add(Comparison { outcomes: measurer.compare(&asked), peers: vec![] });
                        spent = (spent.0 + began.elapsed().as_secs_f64(), spent.1 + picked.len());
                    } else if round == rounds && compared[group].calmest().is_none() {
                        uncompared += 1;
                    }
                    left = left.saturating_sub(1).max(1);
                }
                if round == rounds {
                    let verdict = self.decided(group, picked.as_deref(), &compared[group]);
                    self.tell(Event::Decided { group, verdict: &verdict })?;
                    verdicts.push(verdict);
                }
            }
        }
        Ok((verdicts, uncompared))
    }

    /// What follows for a workload from what was picked for it, if its turn came, and how that did, if it ran.
    fn decided(&self, group: usize, picked: Option<&[Picked]>, compared: &Rounds) -> Verdict {
        match (picked, compared.calmest()) {
            (Some(picked), Some(calmest)) => {
                let default = default_entry(&self.subjects, &self.board.groups[group].entries);
                let all = picked.iter().cloned().zip(&calmest.outcomes).enumerate();
                let all = all.map(|(at, ((entry, config, source), outcome))| {
                    let is_default = default == Some(entry) && self.subjects[entry].default == config;
                    let (outcome, floor_us) = (outcome.clone(), compared.floor_us(at));
                    Candidate { entry, config, source, is_default, outcome, floor_us }
                });
                verdict(all.collect())
            }
            // Nothing ran in any trial, and there is no record: nothing to compare.
            (Some([]), None) if !self.stop.is_asked() => Verdict::Nothing { candidates: vec![] },
            _ => Verdict::NotDecided,
        }
    }

    /// The record, the default, and the fastest of the search, each once.
    fn candidates(&self, group: usize, incumbents: &[Incumbent]) -> Vec<Picked> {
        let members = &self.board.groups[group].entries;
        let mut picked: Vec<Picked> = vec![];
        let mut add = |entry: usize, config: &Config, source| {
            let new = !picked.iter().any(|(e, c, _)| *e == entry && c == config);
            if new {
                picked.push((entry, config.clone(), source));
            }
            new
        };
        for incumbent in incumbents.iter().filter(|i| members.contains(&i.entry)) {
            add(incumbent.entry, &incumbent.config, Source::Incumbent);
        }
        if let Some(entry) = default_entry(&self.subjects, members) {
            let default = &self.subjects[entry].default;
            // A default that was tried and failed is not tried again, nor one outside of the part that is searched.
            let failed = |t: &crate::records::Trial| t.config == *default && t.outcome.time_us().is_none();
            let known = self.subjects[entry].task.space.index_of(default).is_ok();
            if known && !self.tried[entry].iter().any(failed) {
                add(entry, default, Source::Default);
            }
        }
        let mut timed: Vec<(f64, usize, &Config)> = vec![];
        for &entry in members {
            let valid = self.tried[entry].iter().filter_map(|t| Some((t.outcome.time_us()?, entry, &t.config)));
            timed.extend(valid.filter(|(us, ..)| us.is_finite()));
        }
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut wanted = self.options.finalists;
        for (_, entry, config) in timed {
            if wanted == 0 {
                break;
            }
            // A finalist that is there already, as the record or the default, takes a place too.
            add(entry, config, Source::Search);
            wanted -= 1;
        }
        picked
    }
}

/// The entry whose default is used for the workload without any record: the one with the least predicted time.
fn default_entry(subjects: &[Subject<'_>], members: &[usize]) -> Option<usize> {
    members.iter().copied().min_by(|a, b| subjects[*a].predicted_us.total_cmp(&subjects[*b].predicted_us))
}
