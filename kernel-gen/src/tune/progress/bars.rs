//! Progress on a terminal.

use super::lines::{best, decided, standing};
use super::numbers::short;
use crate::tune::session::{Board, Event};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar for all trials, and a line for each workload below it.
pub(super) struct Bars {
    screen: MultiProgress,
    total: ProgressBar,
    groups: Vec<ProgressBar>,
    /// When they were drawn last, as the session's time.
    drawn: Duration,
}

/// Between two drawings. Reading the board for each of a thousand trials a minute would be no use to anyone's eyes.
const EVERY: Duration = Duration::from_millis(100);

impl Bars {
    pub(super) fn new() -> Bars {
        let screen = MultiProgress::new();
        let total = screen.add(ProgressBar::new(0));
        // The templates are constants that a test reads.
        total.set_style(style(TOTAL));
        Bars { screen, total, groups: vec![], drawn: Duration::ZERO }
    }

    pub(super) fn say(&self, text: &str) {
        let _ = self.screen.println(text);
    }

    pub(super) fn finish(&self) {
        self.groups.iter().for_each(ProgressBar::finish_and_clear);
        self.total.finish_and_clear();
    }

    pub(super) fn event(&mut self, board: &Board, event: Event<'_>) {
        match event {
            Event::Started => {
                let width = board.groups.iter().map(|g| g.name.chars().count()).max().unwrap_or(0).min(32);
                for group in &board.groups {
                    let bar = self.screen.add(ProgressBar::new(0));
                    bar.set_style(style(GROUP));
                    bar.set_prefix(format!("{:width$}", short(&group.name, width)));
                    self.groups.push(bar);
                }
                self.draw(board);
            }
            Event::Trial { .. } | Event::Waiting => {
                if board.elapsed >= self.drawn + EVERY {
                    self.draw(board);
                }
            }
            Event::Comparing { group, candidates } => {
                self.draw(board);
                if let Some(bar) = self.groups.get(group) {
                    bar.set_message(format!("the best {candidates} once more, side by side"));
                }
            }
            Event::Decided { group, verdict } => {
                self.say(&decided(board, group, verdict));
                self.draw(board);
            }
        }
    }

    fn draw(&mut self, board: &Board) {
        self.drawn = board.elapsed;
        self.total.set_length(board.budget);
        self.total.set_position(board.trials());
        self.total.set_message(standing(board));
        for (group, bar) in self.groups.iter().enumerate() {
            let (trials, failed) = board.trials_of(group);
            let best = best(board, group).unwrap_or_else(|| "nothing ran yet".to_string());
            let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
            bar.set_message(format!("{trials:4} trials{failed}  {best}"));
        }
    }
}

const TOTAL: &str = "[{bar:30}] {msg}";
const GROUP: &str = "  {prefix}  {msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_sound() {
        for template in [TOTAL, GROUP] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
