//! Progress where nothing can be redrawn: in a file, in CI.

use super::numbers::{counted, percent, rate, short, span, us};
use crate::tune::session::{Board, Event, Verdict};
use std::io::Write;
use std::time::Duration;

/// Time between lines.
const EVERY: Duration = Duration::from_secs(5);

/// Writes lines.
pub(super) struct Lines<W> {
    out: W,
    /// What each line begins with.
    name: String,
    /// When the last line was written, as the session's time.
    last: Duration,
    /// The workload that got faster last, since that line.
    improved: Option<usize>,
}

impl<W: Write> Lines<W> {
    pub(super) fn new(out: W, name: &str) -> Lines<W> {
        let name = if name.is_empty() { String::new() } else { format!("[{name}] ") };
        Lines { out, name, last: Duration::ZERO, improved: None }
    }

    pub(super) fn say(&mut self, text: &str) {
        // Standard error may be closed; the session goes on.
        let _ = writeln!(self.out, "{}{text}", self.name);
    }

    pub(super) fn event(&mut self, board: &Board, event: Event<'_>) {
        match event {
            Event::Started => self.say(&started(board)),
            Event::Trial { entry, best, .. } => {
                if best {
                    self.improved = Some(board.standings[entry].group);
                }
                self.tick(board);
            }
            Event::Waiting => self.tick(board),
            Event::Comparing { group, candidates } => {
                self.say(&format!("{}: the best {candidates} once more, side by side", board.groups[group].name));
            }
            Event::Decided { group, verdict } => self.say(&decided(board, group, verdict)),
        }
    }

    fn tick(&mut self, board: &Board) {
        if board.elapsed < self.last + EVERY {
            return;
        }
        self.last = board.elapsed;
        let mut text = standing(board);
        if let Some(group) = self.improved.take()
            && let Some(best) = best(board, group)
        {
            text.push_str(&format!("; {}: {best}", short(&board.groups[group].name, 40)));
        }
        self.say(&text);
    }

    #[cfg(test)]
    pub(super) fn into_text(self) -> W {
        self.out
    }
}

fn started(board: &Board) -> String {
    let groups = counted(board.groups.len() as u64, "workload");
    let (tasks, trials) = (counted(board.standings.len() as u64, "task"), counted(board.budget, "trial"));
    let earlier: u64 = board.standings.iter().map(|x| x.earlier).sum();
    let earlier = if earlier == 0 { String::new() } else { format!(", {earlier} of them made by earlier runs") };
    format!("{groups}, {tasks}, {trials}{earlier}")
}

/// Trials, failures, pace and time left, in one line.
pub(super) fn standing(board: &Board) -> String {
    let failed: u64 = board.failures().iter().map(|(_, n)| n).sum();
    let left = board.left().map(|left| format!(", {} left", span(left))).unwrap_or_default();
    let fleet = board.fleet.as_ref().map(|fleet| format!("; {fleet}")).unwrap_or_default();
    format!(
        "{}: {} of {} trials, {failed} failed, {:.0} a minute{left}{fleet}",
        span(board.elapsed),
        board.trials(),
        board.budget,
        board.trials_per_minute(),
    )
}

/// What became of a workload, in one line.
pub(super) fn decided(board: &Board, group: usize, verdict: &Verdict) -> String {
    let what = match verdict {
        Verdict::NotDecided => "not decided",
        Verdict::Nothing { .. } => "no config ran",
        Verdict::Kept { .. } => "the record stays",
        Verdict::Won { incumbent: Some(_), .. } => "faster than the record",
        Verdict::Won { incumbent: None, .. } => "the fastest",
    };
    let time = verdict.choice().and_then(|c| c.outcome.time_us());
    let time = time.map(|t| format!(", {} us", us(t))).unwrap_or_default();
    format!("{}: {what}{time}", board.groups[group].name)
}

/// The best of a workload: its time, its rate, and how much of the roofline that is.
pub(super) fn best(board: &Board, group: usize) -> Option<String> {
    let (_, _, best_us) = board.best_of(group)?;
    let workload = &board.groups[group];
    let gflops = rate(workload.flops / best_us / 1e3);
    Some(format!("{} us, {gflops} GFLOP/s, {} of the roofline", us(best_us), percent(workload.floor_us / best_us)))
}
