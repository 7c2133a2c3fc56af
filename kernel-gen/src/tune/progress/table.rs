//! The table at the end of a session.

use super::numbers::{counted, percent, rate, short, span, us};
use crate::records::Outcome;
use crate::tune::session::{Board, Candidate, Source, Summary, Verdict};
use std::fmt::Write;

/// Columns that hold numbers stand on the right.
const HEAD: [&str; 9] =
    ["workload", "trials", "valid", "best us", "GFLOP/s", "roofline", "vs default", "vs record", "chosen"];

/// Characters of a workload's name that are shown.
const NAME: usize = 48;

/// What a session found: a line a workload, what failed and why, and how fast the search went.
pub fn table(summary: &Summary) -> String {
    let board = &summary.board;
    let mut rows = vec![HEAD.map(str::to_string)];
    rows.extend((0..board.groups.len()).map(|group| row(board, group, &summary.verdicts[group])));
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| {
            // The first and the last column are words.
            if i == 0 || i == HEAD.len() - 1 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    let failures: Vec<String> = board.failures().iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    if !failures.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "failed: {}", failures.join(", "));
    }
    let made = board.made();
    let earlier = board.trials() - made;
    let earlier = if earlier == 0 { String::new() } else { format!(", and {earlier} of earlier runs") };
    let _ = writeln!(
        text,
        "{} in {}, {:.0} a minute{earlier}; {}",
        counted(made, "trial"),
        span(board.searched),
        board.trials_per_minute(),
        summary.ended
    );
    text
}

fn row(board: &Board, group: usize, verdict: &Verdict) -> [String; HEAD.len()] {
    let workload = &board.groups[group];
    let (trials, failed) = board.trials_of(group);
    let valid = if trials == 0 { f64::NAN } else { (trials - failed) as f64 / trials as f64 };
    // What was timed side by side counts for more than single trials.
    let searched = board.best_of(group).map(|(_, _, us)| us);
    let best = verdict.choice().and_then(|c| c.outcome.time_us()).or(searched).unwrap_or(f64::NAN);
    let times = |other: Option<&Candidate>| match verdict.times_choice(other) {
        Some(times) if times.is_finite() => format!("{times:.2}x"),
        _ => "-".to_string(),
    };
    [
        short(&workload.name, NAME),
        trials.to_string(),
        percent(valid),
        us(best),
        rate(workload.flops / best / 1e3),
        percent(workload.floor_us / best),
        times(verdict.default()),
        times(verdict.incumbent()),
        chosen(board, verdict),
    ]
}

/// The template that is used from now on, and why.
fn chosen(board: &Board, verdict: &Verdict) -> String {
    let template = |v: &Verdict| v.choice().map(|c| board.standings[c.entry].template.clone()).unwrap_or_default();
    match verdict {
        Verdict::NotDecided => "not decided".to_string(),
        Verdict::Nothing { candidates } => match candidates.iter().find_map(|c| match &c.outcome {
            Outcome::Failed(failure) => Some(failure.kind),
            Outcome::Timed(_) => None,
        }) {
            Some(kind) => format!("nothing: {kind}"),
            None => "nothing ran".to_string(),
        },
        Verdict::Kept { .. } => format!("{}: the record stays", template(verdict)),
        Verdict::Won { candidates, winner, .. } => {
            let origin = match candidates[*winner].source {
                Source::Search if !candidates[*winner].is_default => "found",
                _ => "its default",
            };
            format!("{}: {origin}", template(verdict))
        }
    }
}
