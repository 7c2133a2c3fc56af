//! The figures as a table in Markdown and as JSON.

use crate::measure::Times;
use serde_json::{Value, json};
use std::fmt::Write;

/// Somebody who took part in a layer.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The column: `ours`, `ours strict`, or a peer.
    pub(crate) label: String,
    /// Largest error against sums in `f64`, relative to the largest output.
    pub(crate) error: f64,
    /// Largest difference from our result, relative to its largest value.
    pub(crate) difference: f64,
    /// What it says that it ran.
    pub(crate) implementation: String,
    /// Our kernel's config; a peer has none that it says.
    pub(crate) config: String,
    /// Whether it takes and gives plain tensors, as we do.
    pub(crate) plain: bool,
}

/// A layer's figures.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) shape: String,
    pub(crate) count: u32,
    pub(crate) flops: f64,
    /// In the order of the times; ours is the first.
    pub(crate) entries: Vec<Entry>,
    pub(crate) times: Times,
}

impl Row {
    fn find(&self, label: &str) -> Option<usize> {
        self.entries.iter().position(|e| e.label == label)
    }

    /// Time of the fastest peer over ours, its label, and whether it is one of those asked for.
    fn best(&self, plain_only: bool) -> Option<(f64, &str)> {
        let peers = (1..self.entries.len()).filter(|i| is_peer(&self.entries[*i].label));
        let of = peers.filter(|i| !plain_only || self.entries[*i].plain);
        of.map(|i| (self.times.ratio(i, 0), self.entries[i].label.as_str())).min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

fn is_peer(label: &str) -> bool {
    !label.starts_with("ours")
}

/// Labels in the order in which they first occur, ours left out.
fn labels(rows: &[Row]) -> Vec<&str> {
    let mut labels: Vec<&str> = vec![];
    for entry in rows.iter().flat_map(|r| &r.entries[1..]) {
        if !labels.contains(&entry.label.as_str()) {
            labels.push(&entry.label);
        }
    }
    labels
}

fn microseconds(us: f64) -> String {
    if us < 100.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

/// The table, and below it the geometric means and the worst layers.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let labels = labels(rows);
    let mut text = String::from("| layer | shape | kernel | ours us | of peak | error |");
    let mut rule = String::from("|---|---|---|--:|--:|--:|");
    for label in &labels {
        write!(text, " {label} us | ratio |").expect("a string takes everything");
        rule.push_str("--:|--:|");
    }
    let mut line = |cells: String| {
        text.push('\n');
        text.push_str(&cells);
    };
    line(rule);
    for row in rows {
        let share = row.times.share_of_peak(row.flops).map_or("-".into(), |s| format!("{:.0} %", 100.0 * s));
        let ours = &row.entries[0];
        let mut cells = format!(
            "| {} | {} | {} | {} | {share} | {:.1e} |",
            row.name,
            row.shape,
            ours.implementation,
            microseconds(row.times.us(0)),
            ours.error
        );
        for label in &labels {
            match row.find(label) {
                Some(i) => {
                    let uncertainty = 100.0 * row.times.uncertainty(i, 0);
                    let loose = if uncertainty > 3.0 { format!(" ±{uncertainty:.0} %") } else { String::new() };
                    let (us, ratio) = (microseconds(row.times.us(i)), row.times.ratio(i, 0));
                    write!(cells, " {us} | {ratio:.2}{loose} |").expect("a string takes everything");
                }
                None => cells.push_str(" - | - |"),
            }
        }
        line(cells);
    }
    text.push('\n');
    text
}

/// Geometric means and worst layers, one line each.
pub(crate) fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    for label in labels(rows) {
        let of: Vec<(&Row, usize)> = rows.iter().filter_map(|r| Some((r, r.find(label)?))).collect();
        let mean = geometric_mean(of.iter().map(|(r, i)| r.times.ratio(*i, 0)));
        let weighted = |i: Option<usize>| -> f64 {
            of.iter().map(|(r, at)| f64::from(r.count) * r.times.us(i.unwrap_or(*at))).sum()
        };
        let whole = weighted(None) / weighted(Some(0));
        let worst = of.iter().min_by(|a, b| a.0.times.ratio(a.1, 0).total_cmp(&b.0.times.ratio(b.1, 0)));
        let Some((row, i)) = worst else { continue };
        let worst = format!("{:.2} ({})", row.times.ratio(*i, 0), row.name);
        let layers = of.len();
        line(format!(
            "- {label}: geometric mean {mean:.2} over {layers} layers, all of them as often as the network runs them \
             {whole:.2}, worst {worst}"
        ));
    }
    for (plain_only, what) in [(true, "the fastest peer with plain tensors"), (false, "the fastest peer in any layout")]
    {
        let best: Vec<(&Row, (f64, &str))> = rows.iter().filter_map(|r| Some((r, r.best(plain_only)?))).collect();
        let Some((row, (ratio, label))) = best.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0)) else { continue };
        let mean = geometric_mean(best.iter().map(|(_, (r, _))| *r));
        let below = best.iter().filter(|(_, (r, _))| *r < 0.9).count();
        line(format!(
            "- {what}: geometric mean {mean:.2}, worst {ratio:.2} ({}, {label}), {below} of {} layers below 0.9",
            row.name,
            best.len()
        ));
    }
    let errors = |ours: bool| {
        let of = rows.iter().flat_map(|r| &r.entries).filter(|e| is_peer(&e.label) != ours);
        of.map(|e| e.error).fold(0.0, f64::max)
    };
    line(format!("- largest error: ours {:.1e}, peers {:.1e}", errors(true), errors(false)));
    text
}

pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// Everything about a layer, for programs to read.
pub(crate) fn json(rows: &[Row]) -> Value {
    let contestant = |row: &Row, i: usize| {
        let entry = &row.entries[i];
        json!({
            "label": entry.label,
            "implementation": entry.implementation,
            "config": entry.config,
            "plain_tensors": entry.plain,
            "us": row.times.us(i),
            "over_ours": row.times.ratio(i, 0),
            "uncertainty": row.times.uncertainty(i, 0),
            "error": entry.error,
            "difference_from_ours": entry.difference,
            "rounds_us": row.times.us[i],
        })
    };
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "layer": row.name,
                "shape": row.shape,
                "count": row.count,
                "flops": row.flops,
                "share_of_peak": row.times.share_of_peak(row.flops),
                "contestants": (0..row.entries.len()).map(|i| contestant(row, i)).collect::<Vec<_>>(),
            })
        })
        .collect();
    Value::Array(rows)
}
