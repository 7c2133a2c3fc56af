//! Second opinions: what one worker of a fleet found, another one finds again, or it is not believed.
//!
//! A worker may be slow, broken or lie. Wrong results it cannot sell, because whoever compares its candidates checks them; wrong times
//! show where another worker times the same config. So a workload whose candidates one worker compared is compared again by
//! another one, and where the two disagree, by a third one, whose opinion decides. Machines of one kind differ a little, and that is
//! the record's spread; they do not differ by half.

use super::doubt::APART;
use super::event::SessionError;
use super::finish::Picked;
use super::search::Session;
use super::verdict::Verdict;
use crate::records::{FailureKind, Outcome};
use crate::tune::measure::{Judged, Measurer, Repeated, Rounds, Worker};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

impl<'t> Session<'t, '_, '_> {
    /// Has what was decided of workloads confirmed by other workers. False where there is none to be asked.
    pub(super) fn confirm(
        &mut self,
        measurer: &mut dyn Measurer<'t>,
        picked: &[Option<Vec<Picked>>],
        judges: &[Option<Arc<Worker>>],
        part: Range<usize>,
        decided: &mut [Verdict],
    ) -> Result<bool, SessionError> {
        let judge = |group: usize| judges[group].as_ref().map(|worker| worker.name.clone());
        for (group, verdict) in part.clone().zip(decided.iter()) {
            if let Some(judge) = judge(group) {
                self.check_trials(verdict, &judge);
            }
        }
        // That nothing runs is no better known than that something does.
        let is_decided = |group: usize| !decided[group - part.start].candidates().is_empty();
        let open: Vec<usize> = part.clone().filter(|g| judge(*g).is_some() && is_decided(*g)).collect();
        if open.is_empty() || measurer.workers() < 2 || self.stop.is_asked() {
            return Ok(false);
        }
        let candidates = |groups: &[usize]| -> Vec<(usize, &[Picked])> {
            groups.iter().map(|g| (*g, picked[*g].as_deref().unwrap_or_default())).collect()
        };
        let first = |group: usize| judge(group).into_iter().collect::<Vec<String>>();
        let seconds = self.compare(measurer, &candidates(&open), &first)?;
        let mut torn: BTreeMap<usize, (Verdict, Vec<String>)> = BTreeMap::new();
        for (group, second) in open.iter().copied().zip(seconds) {
            let mut judges = first(group);
            let Some((again, by)) = self.opinion(group, picked, second, &judges) else { continue };
            let verdict = &mut decided[group - part.start];
            self.check_opinions(verdict, &again, &judges[0], &by);
            match agreed(verdict, &again) {
                Some(both) => *verdict = both,
                None => {
                    judges.push(by);
                    torn.insert(group, (again, judges));
                }
            }
        }
        if torn.is_empty() {
            return Ok(true);
        }
        let groups: Vec<usize> = torn.keys().copied().collect();
        let thirds = self.compare(measurer, &candidates(&groups), &|group| torn[&group].1.clone())?;
        for (third, (group, (second, judges))) in thirds.into_iter().zip(&torn) {
            let verdict = &mut decided[group - part.start];
            let first = std::mem::replace(verdict, Verdict::NotDecided);
            let Some((third, by)) = self.opinion(*group, picked, third, judges) else { continue };
            for (opinion, judge) in [&first, second].into_iter().zip(judges) {
                self.check_opinions(opinion, &third, judge, &by);
            }
            *verdict = agreed(&third, &first).or_else(|| agreed(&third, second)).unwrap_or(Verdict::NotDecided);
        }
        Ok(true)
    }

    /// The verdict of another worker than these, and its name; none where it could not measure.
    fn opinion(
        &self,
        group: usize,
        picked: &[Option<Vec<Picked>>],
        judged: Option<Judged>,
        before: &[String],
    ) -> Option<(Verdict, String)> {
        let Judged { comparison, worker } = judged?;
        let by = worker?.name.clone();
        let lost = |o: &Outcome| matches!(o, Outcome::Failed(failure) if failure.kind == FailureKind::Worker);
        if before.contains(&by) || comparison.outcomes.iter().any(lost) {
            return None;
        }
        let mut rounds = Rounds::default();
        rounds.add(comparison);
        Some((self.decided(group, picked[group].as_deref(), &rounds), by))
    }

    /// Holds the trials of candidates against the comparison by another worker.
    fn check_trials(&mut self, verdict: &Verdict, judge: &str) {
        for candidate in verdict.candidates() {
            let tried = self.tried[candidate.entry].iter().zip(&self.by[candidate.entry]);
            let same = tried.filter(|(trial, _)| trial.config == candidate.config);
            let trial = same.filter_map(|(trial, by)| Some((calm_us(&trial.outcome)?, by.as_ref()?))).next_back();
            let (Some((us, by)), Some(compared_us)) = (trial, calm_us(&candidate.outcome)) else { continue };
            if by.name != judge {
                let (worker, other) = (by.name.clone(), judge.to_string());
                self.repeated.push(Repeated { worker, other, ratio: us / compared_us });
            }
        }
    }

    /// Holds the times of one comparison against those of another one.
    fn check_opinions(&mut self, one: &Verdict, other: &Verdict, judge: &str, by: &str) {
        for (a, b) in one.candidates().iter().zip(other.candidates()) {
            if let (Some(a), Some(b)) = (calm_us(&a.outcome), calm_us(&b.outcome)) {
                self.repeated.push(Repeated { worker: judge.to_string(), other: by.to_string(), ratio: a / b });
            }
        }
    }
}

/// The time of an outcome where nothing disturbed it.
fn calm_us(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Timed(timing) => {
            timing.floor_us().or(Some(timing.median_us())).filter(|us| us.is_finite() && *us > 0.0)
        }
        Outcome::Failed(_) => None,
    }
}

/// The first verdict, if the second one bears it out: what it chose ran there as well, in about the same time, and nothing was much
/// faster. What is faster than the record in one of them only does not replace it.
fn agreed(first: &Verdict, second: &Verdict) -> Option<Verdict> {
    if let (Verdict::Nothing { .. }, Verdict::Nothing { .. }) = (first, second) {
        return Some(first.clone());
    }
    let times = |at: usize| {
        let (one, other) = (first.candidates().get(at)?, second.candidates().get(at)?);
        Some((calm_us(&one.outcome)? / calm_us(&other.outcome)?, other.compared_us()?))
    };
    let chosen = first.candidates().iter().position(|c| Some(c) == first.choice())?;
    let (ratio, us) = times(chosen)?;
    let best = second.candidates().iter().filter_map(|c| c.compared_us()).min_by(f64::total_cmp)?;
    if !(1.0 / APART..=APART).contains(&ratio) || us > APART * best {
        return None;
    }
    let mut candidates = first.candidates().to_vec();
    let mut spread = |at: usize, ratio: f64| candidates[at].spread = Some(ratio.max(1.0 / ratio));
    match (first, second) {
        (Verdict::Won { incumbent: Some(incumbent), .. }, Verdict::Kept { .. }) => {
            spread(*incumbent, times(*incumbent)?.0);
            Some(Verdict::Kept { candidates, incumbent: *incumbent })
        }
        // The record that does not run for one of them does so for the other.
        (Verdict::Won { incumbent: None, .. }, Verdict::Kept { .. }) => None,
        (Verdict::Won { winner, incumbent, .. }, _) => {
            spread(*winner, ratio);
            Some(Verdict::Won { candidates, winner: *winner, incumbent: *incumbent })
        }
        (Verdict::Kept { incumbent, .. }, _) => {
            spread(*incumbent, ratio);
            Some(Verdict::Kept { candidates, incumbent: *incumbent })
        }
        (Verdict::Nothing { .. } | Verdict::NotDecided, _) => None,
    }
}
