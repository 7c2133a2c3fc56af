//! The end of a session: the fastest configs of each workload once more, side by side.

use super::entry::Incumbent;
use super::event::{Event, SessionError};
use super::search::{Session, Subject};
use super::verdict::{Candidate, Source, Verdict, verdict};
use crate::records::Trial;
use crate::space::Config;
use crate::tune::Task;
use crate::tune::measure::{Contest, Judged, Measurer, Rounds, Worker};
use std::sync::Arc;
use std::time::Instant;

/// Leaves the slower finalists out until only `most` candidates are left; the record, the default and one finalist stay.
fn shorten(picked: &mut Vec<Picked>, most: usize) {
    let others = picked.iter().filter(|(_, _, source)| *source != Source::Search).count();
    picked.truncate(most.max(others + 1));
}

/// What is compared: the entry, its config, and where that comes from.
pub(super) type Picked = (usize, Config, Source);

impl<'t> Session<'t, '_, '_> {
    /// Compares the best of each workload with the record and the default.
    pub(super) fn decide(
        &mut self,
        incumbents: &[Incumbent],
        measurer: &mut dyn Measurer<'t>,
    ) -> Result<(Vec<Verdict>, usize), SessionError> {
        self.decides = true;
        let mut picked = vec![];
        let tried: Vec<usize> = self.tried_groups().collect();
        for group in 0..self.board.groups.len() {
            // A workload whose turn never came has nothing to show beside its default, unless no turns were asked for.
            let decided = tried.contains(&group) || self.options.trials == 0;
            picked.push(decided.then(|| self.candidates(group, incumbents)));
        }
        let mut compared = vec![Rounds::default(); picked.len()];
        // Who compared last; none for this process.
        let mut judges: Vec<Option<Arc<Worker>>> = vec![None; picked.len()];
        let mut verdicts = vec![];
        let mut uncompared = 0;
        let rounds = self.options.rounds.max(1);
        let is_compared = |p: &Option<Vec<Picked>>| p.as_ref().is_some_and(|p| !p.is_empty());
        // In a fleet each is confirmed by a second worker.
        let times = rounds + usize::from(measurer.workers() > 1);
        let mut left = times * picked.iter().filter(|p| is_compared(p)).count();
        // Seconds of comparisons, and the candidates in them.
        let mut spent = (0.0, 0);
        for round in 1..=rounds {
            let mut next = 0;
            while next < picked.len() {
                // One after the other on this machine; in a fleet so many that none waits for the slowest.
                let at_a_time = if measurer.workers() > 1 { 4 * measurer.workers() } else { 1 };
                let part = next..picked.len().min(next + at_a_time);
                next = part.end;
                let mut asked: Vec<(usize, &[Picked])> = vec![];
                let left_s = self.left_s();
                for (group, picked) in part.clone().zip(&mut picked[part.clone()]) {
                    if let Some(picked) = picked.as_mut().filter(|picked| !picked.is_empty() && !self.stop.is_asked()) {
                        if left_s.is_none_or(|s| s > 0.0) {
                            // Where all of them would take too long, each has fewer finalists; all rounds have the same ones.
                            if let (1, Some(left_s)) = (round, left_s) {
                                let one = if spent.1 == 0 { self.candidate_s() } else { spent.0 / spent.1 as f64 };
                                let fit = (left_s / (left as f64 * one)).max(0.0) as usize;
                                shorten(picked, fit);
                            }
                            self.tell(Event::Comparing { group, candidates: picked.len() })?;
                            asked.push((group, picked));
                        } else if round == rounds && compared[group].calmest().is_none() {
                            uncompared += 1;
                        }
                    }
                }
                let count = asked.iter().map(|(_, picked)| picked.len()).sum::<usize>();
                let began = Instant::now();
                let judged = self.compare(measurer, &asked, &|_| vec![])?;
                spent = (spent.0 + began.elapsed().as_secs_f64(), spent.1 + count);
                left = left.saturating_sub(asked.len()).max(1);
                for ((group, _), judged) in asked.iter().zip(judged) {
                    let Some(Judged { comparison, worker }) = judged else { continue };
                    // Times of two machines are no rounds of one.
                    if judges[*group] != worker {
                        compared[*group] = Rounds::default();
                    }
                    compared[*group].add(comparison);
                    judges[*group] = worker;
                }
                if round == rounds {
                    let of = |group: usize| self.decided(group, picked[group].as_deref(), &compared[group]);
                    let mut decided: Vec<Verdict> = part.clone().map(of).collect();
                    let began = Instant::now();
                    if self.confirm(measurer, &picked, &judges, part.clone(), &mut decided)? {
                        spent = (spent.0 + began.elapsed().as_secs_f64(), spent.1 + count);
                        left = left.saturating_sub(part.len()).max(1);
                    }
                    for (group, verdict) in part.zip(decided) {
                        self.tell(Event::Decided { group, verdict: &verdict })?;
                        verdicts.push(verdict);
                    }
                }
            }
        }
        Ok((verdicts, uncompared))
    }

    /// Has several workloads compared; `not_by` says which workers are not to do a workload's.
    pub(super) fn compare(
        &mut self,
        measurer: &mut dyn Measurer<'t>,
        asked: &[(usize, &[Picked])],
        not_by: &dyn Fn(usize) -> Vec<String>,
    ) -> Result<Vec<Option<Judged>>, SessionError> {
        let tasks: Vec<&'t Task<'t>> = self.subjects.iter().map(|subject| subject.task).collect();
        let all: Vec<Contest<'_, 't>> = asked
            .iter()
            .map(|(group, picked)| Contest {
                candidates: picked.iter().map(|(entry, config, _)| (tasks[*entry], config)).collect(),
                not_by: not_by(*group),
            })
            .collect();
        let mut failed = None;
        let mut goes_on = || {
            failed = failed.take().or(self.tell(Event::Waiting).err());
            failed.is_none() && !self.stop.is_asked()
        };
        let judged = measurer.compare_all(&all, &mut goes_on);
        failed.map_or(Ok(judged), Err)
    }

    /// What follows for a workload from what was picked for it, if its turn came, and how that did, if it ran.
    pub(super) fn decided(&self, group: usize, picked: Option<&[Picked]>, compared: &Rounds) -> Verdict {
        match (picked, compared.calmest()) {
            (Some(picked), Some(calmest)) => {
                let default = default_entry(&self.subjects, &self.board.groups[group].entries);
                let all = picked.iter().cloned().zip(&calmest.outcomes).enumerate();
                let all = all.map(|(at, ((entry, config, source), outcome))| {
                    let is_default = default == Some(entry) && self.subjects[entry].default == config;
                    let (outcome, floor_us) = (outcome.clone(), compared.floor_us(at));
                    Candidate { entry, config, source, is_default, outcome, floor_us, spread: None }
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
            let failed = |t: &Trial| t.config == *default && t.outcome.time_us().is_none();
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
