//! What is printed: markdown tables whose columns also line up in a terminal.

use crate::layers::Layer;
use crate::measure::Samples;
use crate::peers::{Peers, Times};
use crate::reference::Comparison;
use kernel_gen_runtime::Cpu;
use kernel_gen_runtime::report::Row;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Everything about one layer with one number of threads.
pub(crate) struct Result<'a> {
    /// The layer.
    pub(crate) layer: &'a Layer,
    /// Its times.
    pub(crate) samples: Samples,
    /// Its values against the reference.
    pub(crate) comparison: Comparison,
}

/// A group of layers that are summed up together: its name, and which layers belong to it.
type Family = (&'static str, fn(&str) -> bool);

/// The groups, in the order of the spec.
const FAMILIES: [Family; 5] = [
    ("3x3 convolutions", |layer| layer.starts_with("r18") && layer.contains("k3")),
    ("1x1 convolutions", |layer| layer.starts_with("r18") && layer.contains("k1")),
    ("the stem", |layer| layer.contains("k7")),
    ("depthwise", |layer| layer.starts_with("dw")),
    ("matrix products", |layer| layer.starts_with("mm")),
];

/// The table of all layers.
pub(crate) fn layers(dev: &Cpu, report: &[Row], results: &[Result], peers: Option<&Peers>) -> String {
    let mut rows = vec![cells(&["layer", "us", "80 % of samples", "disturbed", "GFLOP/s", "of peak"])];
    if peers.is_some() {
        rows[0].extend(cells(&["ONNX Runtime us", "ratio", "oneDNN us", "ratio"]));
    }
    rows[0].extend(cells(&["max error", "template", "origin", "config"]));
    for r in results {
        let (us, (low, high)) = (r.samples.us(), r.samples.spread_us());
        let (disturbed, all) = r.samples.disturbed();
        let share = r.samples.share_of_peak(r.layer.flops);
        let mut row = vec![
            r.layer.name.to_string(),
            format!("{us:.1}"),
            format!("{low:.1} to {high:.1}"),
            format!("{disturbed} of {all}"),
            format!("{:.1}", r.layer.flops as f64 / us * 1e-3),
            share.map_or("-".into(), |s| format!("{:.1} %", 100.0 * s)),
        ];
        if let Some(peers) = peers {
            let Times { ort_us, onednn_us } = peers.times(r.layer.name, dev.threads());
            for theirs in [ort_us, onednn_us] {
                row.push(theirs.map_or("-".into(), |t| format!("{t:.1}")));
                row.push(theirs.map_or("-".into(), |t| format!("{:.2}", t / us)));
            }
        }
        row.push(if r.comparison.share_of_bound > 1.0 {
            format!("WRONG {:.1e}", r.comparison.relative_error)
        } else {
            format!("{:.1e}", r.comparison.relative_error)
        });
        let choice = report.iter().find(|row| row.workload == r.layer.name);
        row.extend(choice.map_or(cells(&["-"; 3]), |c| cells(&[c.template, c.origin, c.config])));
        rows.push(row);
    }
    markdown(&rows)
}

/// What a call with plain NCHW tensors takes more than one in the blocked layout that the kernel likes.
pub(crate) fn plain_against_blocked(results: &[Result]) -> String {
    let times: BTreeMap<&str, f64> = results.iter().map(|r| (r.layer.name, r.samples.us())).collect();
    let mut rows = vec![cells(&["layer", "NCHW us", "NCHW16c us", "plain NCHW adds us", "which is"])];
    for r in results {
        let plain = r.samples.us();
        let Some(blocked) = times.get(format!("{}_nchw16c", r.layer.name).as_str()) else { continue };
        rows.push(vec![
            r.layer.name.to_string(),
            format!("{plain:.1}"),
            format!("{blocked:.1}"),
            format!("{:+.1}", plain - blocked),
            format!("{:+.0} %", 100.0 * (plain / blocked - 1.0)),
        ]);
    }
    if rows.len() > 1 { markdown(&rows) } else { String::new() }
}

/// Least and mean share of the peak, and mean ratios with the peers, for each family of layers.
pub(crate) fn summary(results: &[Result], peers: Option<&Peers>, threads: usize) -> String {
    let mut rows = vec![cells(&["layers", "number", "of peak: least", "geometric mean"])];
    if peers.is_some() {
        rows[0].extend(cells(&["ONNX Runtime / ours: least", "geometric mean"]));
        rows[0].extend(cells(&["oneDNN / ours: least", "geometric mean"]));
    }
    for blocked in [false, true] {
        for (family, belongs) in FAMILIES {
            let members: Vec<&Result> = results
                .iter()
                .filter(|r| belongs(r.layer.name) && r.layer.name.ends_with("_nchw16c") == blocked)
                .collect();
            if members.is_empty() {
                continue;
            }
            let name = if blocked { format!("{family}, NCHW16c") } else { family.to_string() };
            let mut row = vec![name, members.len().to_string()];
            let shares = members.iter().filter_map(|r| r.samples.share_of_peak(r.layer.flops)).map(|s| 100.0 * s);
            row.extend(least_and_mean(shares.collect(), " %", 1));
            if let Some(peers) = peers {
                let ratios = |time: fn(Times) -> Option<f64>| {
                    let ratio = |r: &&&Result| Some(time(peers.times(r.layer.name, threads))? / r.samples.us());
                    members.iter().filter_map(|r| ratio(&r)).collect()
                };
                row.extend(least_and_mean(ratios(|t| t.ort_us), "", 2));
                row.extend(least_and_mean(ratios(|t| t.onednn_us), "", 2));
            }
            rows.push(row);
        }
    }
    markdown(&rows)
}

/// The least value and the geometric mean, or dashes.
fn least_and_mean(values: Vec<f64>, unit: &str, digits: usize) -> [String; 2] {
    if values.is_empty() {
        return ["-".into(), "-".into()];
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp();
    [least, mean].map(|v| format!("{v:.digits$}{unit}"))
}

fn cells(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| t.to_string()).collect()
}

/// A markdown table of rows, the first its header: the first column to the left, numbers to the right.
fn markdown(rows: &[Vec<String>]) -> String {
    let columns = rows[0].len();
    let numeric: Vec<bool> = (0..columns)
        .map(|c| {
            c > 0 && rows[1..].iter().all(|r| r[c].starts_with(|ch: char| ch.is_ascii_digit() || "+-W".contains(ch)))
        })
        .collect();
    let widths: Vec<usize> =
        (0..columns).map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0).max(3)).collect();
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        for ((cell, width), right) in row.iter().zip(&widths).zip(&numeric) {
            // Writing to a string cannot fail.
            let _ = if *right { write!(text, "| {cell:>width$} ") } else { write!(text, "| {cell:<width$} ") };
        }
        text += "|\n";
        if i == 0 {
            for (width, right) in widths.iter().zip(&numeric) {
                let dashes = "-".repeat(width + 1);
                text += &if *right { format!("|{dashes}:") } else { format!("|{dashes}-") };
            }
            text += "|\n";
        }
    }
    text
}
