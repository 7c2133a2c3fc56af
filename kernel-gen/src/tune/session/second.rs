//! Second opinions: what one worker of a fleet found, another one finds again, or it is not believed.
//!
//! A worker may be slow, broken or lie. Wrong results it cannot sell, because whoever compares its candidates checks them; wrong times
//! show where another worker times the same config. So a workload whose candidates one worker compared is compared again by
//! another one, and where the two disagree, by a third one, whose opinion decides. Machines of one kind differ a little, and that is
//! the record's spread; they do not differ by half.

use super::event::SessionError;
use super::finish::Picked;
use super::search::Session;
use super::verdict::Verdict;
use crate::records::{Outcome, median};
use crate::tune::measure::{Judged, Measurer, Repeated, Rounds, Worker};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Times of one config on two machines of one kind that differ by more than this factor cannot both be true.
const APART: f64 = 1.5;

/// A worker is doubted if others repeated at least so many of its times.
const CHECKS: usize = 3;

/// A worker whose times others could not repeat.
#[derive(Clone, PartialEq, Debug)]
pub struct Doubt {
    /// Its name.
    pub worker: String,
    /// How many of its times others repeated.
    pub checks: usize,
    /// How many of these differ by more than half.
    pub apart: usize,
    /// Its time divided by that of others, in the median.
    pub ratio: f64,
}

impl<'t> Session<'t, '_, '_> {
    /// Has what was decided of workloads confirmed by other workers, where there are any.
    pub(super) fn confirm(
        &mut self,
        measurer: &mut dyn Measurer<'t>,
        picked: &[Option<Vec<Picked>>],
        judges: &[Option<Arc<Worker>>],
        part: Range<usize>,
        decided: &mut [Verdict],
    ) -> Result<(), SessionError> {
        let judge = |group: usize| judges[group].as_ref().map(|worker| worker.name.clone());
        for (group, verdict) in part.clone().zip(decided.iter()) {
            if let Some(judge) = judge(group) {
                self.check_trials(verdict, &judge);
            }
        }
        let has_choice = |group: usize| decided[group - part.start].choice().is_some();
        let open: Vec<usize> = part.clone().filter(|g| judge(*g).is_some() && has_choice(*g)).collect();
        if open.is_empty() || measurer.workers() < 2 || self.stop.is_asked() {
            return Ok(());
        }
        let candidates = |groups: &[usize]| -> Vec<(usize, &[Picked])> {
            groups.iter().map(|g| (*g, picked[*g].as_deref().unwrap_or_default())).collect()
        };
        let first = |group: usize| judge(group).into_iter().collect::<Vec<String>>();
        let seconds = self.compare(measurer, &candidates(&open), &first)?;
        let mut torn: BTreeMap<usize, (Verdict, Vec<String>)> = BTreeMap::new();
        for (group, second) in open.iter().copied().zip(seconds) {
            let Some((again, by)) = self.opinion(group, picked, second) else { continue };
            let verdict = &mut decided[group - part.start];
            let mut judges = first(group);
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
            return Ok(());
        }
        let groups: Vec<usize> = torn.keys().copied().collect();
        let thirds = self.compare(measurer, &candidates(&groups), &|group| torn[&group].1.clone())?;
        for (third, (group, (second, judges))) in thirds.into_iter().zip(&torn) {
            let verdict = &mut decided[group - part.start];
            let first = std::mem::replace(verdict, Verdict::NotDecided);
            let Some((third, by)) = self.opinion(*group, picked, third) else { continue };
            for (opinion, judge) in [&first, second].into_iter().zip(judges) {
                self.check_opinions(opinion, &third, judge, &by);
            }
            *verdict = agreed(&third, &first).or_else(|| agreed(&third, second)).unwrap_or(Verdict::NotDecided);
        }
        Ok(())
    }

    /// The verdict of another worker, and its name.
    fn opinion(&self, group: usize, picked: &[Option<Vec<Picked>>], judged: Option<Judged>) -> Option<(Verdict, String)> {
        let Judged { comparison, worker } = judged?;
        let mut rounds = Rounds::default();
        rounds.add(comparison);
        let by = worker?.name.clone();
        Some((self.decided(group, picked[group].as_deref(), &rounds), by))
    }

    /// Holds the trials of candidates against the comparison by another worker.
    fn check_trials(&mut self, verdict: &Verdict, judge: &str) {
        for candidate in verdict.candidates() {
            let tried = self.tried[candidate.entry].iter().zip(&self.by[candidate.entry]);
            let same = tried.filter(|(trial, _)| trial.config == candidate.config);
            let trial = same.filter_map(|(trial, by)| Some((calm_us(&trial.outcome)?, by.as_ref()?))).last();
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
        Outcome::Timed(timing) => timing.floor_us().or(Some(timing.median_us())).filter(|us| us.is_finite() && *us > 0.0),
        Outcome::Failed(_) => None,
    }
}

/// The first verdict, if the second one bears it out: what it chose ran there as well, in about the same time, and nothing was much
/// faster. What is faster than the record in one of them only does not replace it.
fn agreed(first: &Verdict, second: &Verdict) -> Option<Verdict> {
    let at = first.candidates().iter().position(|c| Some(c) == first.choice())?;
    let (one, other) = (first.candidates().get(at)?, second.candidates().get(at)?);
    let ratio = calm_us(&one.outcome)? / calm_us(&other.outcome)?;
    let best = second.candidates().iter().filter_map(|c| c.compared_us()).min_by(f64::total_cmp)?;
    if !(1.0 / APART..=APART).contains(&ratio) || other.compared_us()? > APART * best {
        return None;
    }
    let mut candidates = first.candidates().to_vec();
    candidates[at].spread = Some(ratio.max(1.0 / ratio));
    Some(match (first, second) {
        (Verdict::Won { incumbent: Some(incumbent), .. }, Verdict::Kept { .. }) => {
            Verdict::Kept { candidates, incumbent: *incumbent }
        }
        (Verdict::Won { winner, incumbent, .. }, _) => {
            Verdict::Won { candidates, winner: *winner, incumbent: *incumbent }
        }
        (Verdict::Kept { incumbent, .. }, _) => Verdict::Kept { candidates, incumbent: *incumbent },
        (Verdict::Nothing { .. } | Verdict::NotDecided, _) => return None,
    })
}

/// The workers whose times others could not repeat. The one that most of its checks speak against comes first, and what it says
/// of others counts no more then; of two of whom nobody else says anything, both are doubted.
pub(super) fn doubts(repeated: &[Repeated]) -> Vec<Doubt> {
    let mut left: Vec<&Repeated> = repeated.iter().collect();
    let mut all = vec![];
    loop {
        let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for Repeated { worker, other, ratio } in &left {
            ratios.entry(worker).or_default().push(*ratio);
            ratios.entry(other).or_default().push(1.0 / ratio);
        }
        let apart = |ratios: &[f64]| ratios.iter().filter(|r| !(1.0 / APART..=APART).contains(*r)).count();
        let share = |ratios: &[f64]| apart(ratios) as f64 / ratios.len() as f64;
        let doubted = ratios.iter().filter(|(_, r)| r.len() >= CHECKS && share(r) > 0.5);
        let Some(worst) = doubted.clone().map(|(_, r)| share(r)).max_by(f64::total_cmp) else { return all };
        let worst: Vec<&str> = doubted.filter(|(_, r)| share(r) >= worst).map(|(worker, _)| *worker).collect();
        all.extend(worst.iter().map(|worker| Doubt {
            worker: worker.to_string(),
            checks: ratios[worker].len(),
            apart: apart(&ratios[worker]),
            ratio: median(&ratios[worker]),
        }));
        left.retain(|r| !worst.contains(&&*r.worker) && !worst.contains(&&*r.other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(pairs: &[(&str, &str, f64)]) -> Vec<Repeated> {
        let one = |(worker, other, ratio): &(&str, &str, f64)| Repeated {
            worker: worker.to_string(),
            other: other.to_string(),
            ratio: *ratio,
        };
        pairs.iter().flat_map(|pair| std::iter::repeat_n(one(pair), CHECKS)).collect()
    }

    fn doubted(pairs: &[(&str, &str, f64)]) -> Vec<String> {
        doubts(&repeated(pairs)).into_iter().map(|d| d.worker).collect()
    }

    #[test]
    fn whom_the_others_contradict_is_doubted() {
        let none: [&str; 0] = [];
        assert_eq!(doubted(&[("a", "b", 1.1), ("b", "c", 0.9), ("a", "c", 1.0)]), none);
        assert_eq!(doubted(&[("liar", "b", 0.3), ("b", "c", 0.9), ("liar", "c", 0.4)]), ["liar"]);
        // Most of what is known of `b` comes from the liar.
        assert_eq!(doubted(&[("liar", "b", 0.3), ("b", "liar", 4.0), ("b", "c", 1.0), ("liar", "c", 0.4)]), ["liar"]);
        assert_eq!(doubted(&[("a", "b", 0.3)]), ["a", "b"]);
        assert_eq!(doubts(&repeated(&[("liar", "b", 0.25), ("b", "c", 1.0), ("liar", "c", 0.25)]))[0].ratio, 0.25);
        assert!(doubts(&repeated(&[("a", "b", 0.3)])[..CHECKS - 1]).is_empty(), "two may be chance");
    }
}
