//! A session: many tasks tuned at once, each by its own tuner, on one measurer.
//!
//! The measurer is kept as full as it wants to be, from whichever tasks the scheduler thinks worth
//! it, while each tuner sees a sequence of calls that does not depend on timing. Every outcome is told to the caller the
//! moment it is known, who writes it to a log; a session that was ended is continued by giving it the log's trials as
//! history. At the end the fastest configs of each workload run once more against the record that there is, and the
//! [`Verdict`] says whether there is a better one.

mod board;
mod doubt;
mod entry;
mod event;
mod feed;
mod finish;
mod search;
mod second;
mod stop;
#[cfg(test)]
mod tests;
mod thinking;
mod verdict;

pub use board::{Board, Group, MIN_GAIN, Standing};
pub use doubt::Doubt;
pub use entry::{Entry, Incumbent, Options};
pub use event::{Ended, Event, Listener, SessionError, Summary};
pub use feed::{AHEAD, MOST};
pub use stop::Stop;
pub use verdict::{Candidate, Source, Verdict, beats};

use super::measure::Measurer;
use crate::records::Trial;
use feed::Feed;
use search::{Session, Subject};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;
use thinking::Thinkers;

/// Tunes the entries. `incumbents` are the records that there are, at most one a workload.
pub fn run<'t>(
    entries: Vec<Entry<'t>>,
    incumbents: &[Incumbent],
    measurer: &mut dyn Measurer<'t>,
    options: &Options,
    stop: &Stop,
    listener: &mut Listener<'_>,
) -> Result<Summary, SessionError> {
    let board = Board::new(&entries, options.trials, options.seconds);
    let (mut feeds, mut tried, mut subjects) = (vec![], vec![], vec![]);
    for (at, entry) in entries.into_iter().enumerate() {
        let known = incumbents.iter().filter(|i| i.entry == at).map(|i| &i.config);
        // Where the task is a part of the template's space, neither need be in it.
        let seeds = std::iter::once(&entry.default).chain(known).chain(&entry.hints);
        let seeds = seeds.filter_map(|c| Some((entry.task.space.index_of(c).ok()?, c.clone()))).collect();
        subjects.push(Subject { task: entry.task, predicted_us: entry.predicted_us(), default: entry.default });
        tried.push(entry.history.clone());
        feeds.push(Feed::new(entry.tuner, seeds, entry.history));
    }
    std::thread::scope(|scope| {
        let thinkers = (options.thinkers > 0).then(|| Thinkers::start(scope, options.thinkers));
        let mut session = Session {
            board,
            subjects,
            feeds,
            by: tried.iter().map(|trials: &Vec<Trial>| vec![None; trials.len()]).collect(),
            tried,
            repeated: vec![],
            ready: VecDeque::new(),
            under_way: BTreeMap::new(),
            thinkers,
            next_job: 0,
            worker_failures: 0,
            decides: false,
            workers: 1,
            began: Instant::now(),
            options,
            stop,
            listener,
        };
        session.tell(Event::Started)?;
        let ended = session.search(measurer)?;
        // What tuners still think of is not asked for any more.
        session.thinkers = None;
        let (verdicts, uncompared) = if ended == Ended::Stopped {
            (session.board.groups.iter().map(|_| Verdict::NotDecided).collect(), 0)
        } else {
            session.decide(incumbents, measurer)?
        };
        session.repeated.extend(measurer.repeated());
        let doubts = doubt::doubts(&session.repeated);
        Ok(Summary { board: session.board, verdicts, ended, uncompared, doubts })
    })
}
