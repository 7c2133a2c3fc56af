//! The little that drawings need: text that is safe in HTML, scales, and axes.

use std::fmt::Write;

/// Text as HTML shows it.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// From values to coordinates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Scale {
    /// Values from `from` to `to` lie from `start` to `end`, evenly.
    pub(super) fn linear(from: f64, to: f64, start: f64, end: f64) -> Scale {
        let to = if to > from { to } else { from + 1.0 };
        Scale { from, to, start, end, log: false }
    }

    /// The same by their logarithms. All values are above 0.
    pub(super) fn log(from: f64, to: f64, start: f64, end: f64) -> Scale {
        let from = from.max(f64::MIN_POSITIVE);
        let to = if to > from { to } else { from * 10.0 };
        Scale { from, to, start, end, log: true }
    }

    /// The coordinate of the largest value.
    pub(super) fn end(&self) -> f64 {
        self.end
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + share * (self.end - self.start)
    }

    /// Values to label: about `count` round ones.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        // Within a decade or so, even steps have rounder numbers than even ratios.
        if !self.log || self.to / self.from <= 12.0 {
            let step = round_up((self.to - self.from) / count.max(1) as f64);
            let first = (self.from / step - 1e-9).ceil() as i64;
            let all = (first..).map(|i| i as f64 * step).take_while(|v| *v <= self.to * (1.0 + 1e-9));
            return all.take(4 * count).collect();
        }
        let (low, high) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let inside = |v: &f64| *v >= self.from * (1.0 - 1e-9) && *v <= self.to * (1.0 + 1e-9);
        let of = |steps: &[f64]| -> Vec<f64> {
            let all = (low..=high).flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)));
            all.filter(inside).collect()
        };
        // As many as are asked for, or else the next finer steps.
        let candidates = [of(&[1.0]), of(&[1.0, 3.0]), of(&[1.0, 2.0, 5.0])];
        let every = candidates[0].len().div_ceil(count.max(1)).max(1);
        if every > 1 {
            return candidates[0].iter().copied().step_by(every).collect();
        }
        candidates.iter().find(|c| c.len() >= count.min(3)).unwrap_or(&candidates[2]).clone()
    }
}

/// The next of 1, 2, 5, 10, 20 …
fn round_up(value: f64) -> f64 {
    let base = 10f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|s| s * base).find(|s| *s >= value * (1.0 - 1e-9)).unwrap_or(10.0 * base)
}

/// A number as an axis shows it.
pub(super) fn tick_label(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{}M", short(value / 1e6)),
        v if v >= 1e4 => format!("{}k", short(value / 1e3)),
        _ => short(value),
    }
}

/// At most three digits, without zeros at the end.
fn short(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// A coordinate: tenths of a pixel are enough.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_string)
}

/// The frame of a drawing: grid lines with their labels below and on the left.
pub(super) fn axes(x: &Scale, y: &Scale, x_ticks: &[f64], y_ticks: &[f64]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for &tick in y_ticks {
        let at = px(y.at(tick));
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\"/><text class=\"tick\" x=\"{}\" y=\"{}\" \
             text-anchor=\"end\">{}</text>",
            px(x.start),
            px(x.end),
            px(x.start - 6.0),
            px(y.at(tick) + 4.0),
            tick_label(tick)
        );
    }
    for &tick in x_ticks {
        let at = px(x.at(tick));
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{at}\" x2=\"{at}\" y1=\"{}\" y2=\"{}\"/><text class=\"tick\" x=\"{at}\" y=\"{}\" \
             text-anchor=\"middle\">{}</text>",
            px(y.start),
            px(y.end),
            px(y.start + 16.0),
            tick_label(tick)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_in_names_stays_text() {
        assert_eq!(escaped("<b a='1'>\"&\n"), "&lt;b a=&#39;1&#39;&gt;&quot;&amp; ");
    }

    #[test]
    fn scales_reach_their_ends() {
        let linear = Scale::linear(0.0, 10.0, 100.0, 0.0);
        assert_eq!([linear.at(0.0), linear.at(5.0), linear.at(10.0)], [100.0, 50.0, 0.0]);
        let log = Scale::log(1.0, 100.0, 0.0, 50.0);
        assert_eq!([log.at(1.0), log.at(10.0), log.at(100.0)], [0.0, 25.0, 50.0]);
        assert!(Scale::log(5.0, 5.0, 0.0, 1.0).at(5.0).is_finite() && Scale::linear(5.0, 5.0, 0.0, 1.0).at(5.0) == 0.0);
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Scale::linear(0.0, 128.0, 0.0, 1.0).ticks(4), [0.0, 50.0, 100.0]);
        assert_eq!(Scale::log(1.0, 1000.0, 0.0, 1.0).ticks(4), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(Scale::log(80.0, 460.0, 0.0, 1.0).ticks(4), [100.0, 200.0, 300.0, 400.0]);
        for (from, to) in [(0.1, 1e7), (1.0, 1.1), (37.0, 38.0), (1e-3, 1e9)] {
            let ticks = Scale::log(from, to, 0.0, 1.0).ticks(4);
            assert!(ticks.len() <= 9, "{from} to {to}: {ticks:?}");
        }
    }

    #[test]
    fn labels_are_short() {
        let all = [0.0, 0.5, 1.5, 20.0, 1500.0, 61_800.0, 2.5e6].map(tick_label);
        assert_eq!(all, ["0", "0.5", "1.5", "20", "1500", "61.8k", "2.5M"]);
    }
}
