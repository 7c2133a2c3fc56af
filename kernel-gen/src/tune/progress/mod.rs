//! What a person sees of a session: bars on a terminal, a line every few seconds elsewhere, and a table at the end.

mod bars;
mod lines;
mod numbers;
mod table;
#[cfg(test)]
mod tests;

#[cfg(feature = "cli")]
pub(crate) use numbers::counted;
pub(super) use numbers::{percent, rate, short, span, us};
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
            Style::Lines => Kind::Lines(Lines::new(Box::new(std::io::stderr()), "")),
            Style::Quiet => Kind::Quiet,
        })
    }

    /// Progress of one of several sessions that run at the same time: lines that begin with its name, where anything is shown.
    pub fn of_several(style: Style, name: &str) -> Progress {
        Progress(match style {
            Style::Quiet => Kind::Quiet,
            Style::Bars | Style::Lines => Kind::Lines(Lines::new(Box::new(std::io::stderr()), name)),
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
