//! What a person sees of a session: bars on a terminal, a line every few seconds elsewhere, and a table at the end.

mod bars;
mod lines;
mod table;
#[cfg(test)]
mod tests;

pub use table::table;

use super::session::{Board, Event};
use bars::Bars;
use lines::Lines;
use std::io::{IsTerminal, Write};

/// How much is shown while a session runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Bars, redrawn in place.
    Bars,
    /// A line every few seconds.
    Lines,
    /// Nothing.
    Quiet,
}

impl Style {
    /// Bars if standard error is a terminal, and lines if it is not.
    pub fn of_stderr() -> Style {
        if std::io::stderr().is_terminal() { Style::Bars } else { Style::Lines }
    }
}

/// Shows the progress of a session on standard error.
pub struct Progress(Kind);

enum Kind {
    Bars(Bars),
    Lines(Lines<Box<dyn Write>>),
    Quiet,
}

impl Progress {
    /// Progress in that style.
    pub fn new(style: Style) -> Progress {
        Progress(match style {
            Style::Bars => Kind::Bars(Bars::new()),
            Style::Lines => Kind::Lines(Lines::new(Box::new(std::io::stderr()))),
            Style::Quiet => Kind::Quiet,
        })
    }

    /// Takes what happened. What cannot be shown is not worth ending a session for.
    pub fn event(&mut self, board: &Board, event: Event<'_>) {
        match &mut self.0 {
            Kind::Bars(bars) => bars.event(board, event),
            Kind::Lines(lines) => lines.event(board, event),
            Kind::Quiet => {}
        }
    }

    /// Shows a line of text above whatever else there is.
    pub fn say(&mut self, text: &str) {
        match &mut self.0 {
            Kind::Bars(bars) => bars.say(text),
            Kind::Lines(lines) => lines.say(text),
            Kind::Quiet => {}
        }
    }

    /// Takes away what is redrawn in place.
    pub fn finish(&mut self) {
        if let Kind::Bars(bars) = &mut self.0 {
            bars.finish();
        }
    }
}

/// A number of things: `1 trial`, `2 trials`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Microseconds with about four digits.
pub(in crate::tune) fn us(us: f64) -> String {
    match us {
        us if !us.is_finite() => "-".to_string(),
        us if us < 10.0 => format!("{us:.3}"),
        us if us < 100.0 => format!("{us:.2}"),
        us if us < 1000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// Billions of operations a second with about three digits.
pub(in crate::tune) fn rate(gflops: f64) -> String {
    match gflops {
        r if !r.is_finite() => "-".to_string(),
        r if r < 10.0 => format!("{r:.2}"),
        r if r < 100.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

/// A share as whole per cent.
pub(in crate::tune) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", share * 100.0) } else { "-".to_string() }
}

/// A duration as `0.3 s`, `7 s`, `3 min 20 s` or `2 h 5 min`.
pub(in crate::tune) fn span(duration: std::time::Duration) -> String {
    let s = duration.as_secs_f64().round() as u64;
    match s {
        0..3 => format!("{:.1} s", duration.as_secs_f64()),
        3..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// A name that is no longer than so many characters; the middle of a longer one is left out.
pub(in crate::tune) fn short(name: &str, most: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= most {
        return name.to_string();
    }
    let head = (most - 1) / 2;
    let tail = most - 1 - head;
    let start: String = chars[..head].iter().collect();
    let end: String = chars[chars.len() - tail..].iter().collect();
    format!("{start}…{end}")
}

/// The best of a workload: its time, its rate, and how much of the roofline that is.
fn best(board: &Board, group: usize) -> Option<String> {
    let (_, _, best_us) = board.best_of(group)?;
    let workload = &board.groups[group];
    let gflops = rate(workload.flops / best_us / 1e3);
    Some(format!("{} us, {gflops} GFLOP/s, {} of the roofline", us(best_us), percent(workload.floor_us / best_us)))
}
