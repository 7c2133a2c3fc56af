//! The table of a report.

use super::report::{Candidate, Column, Measured, Report, Row};
use super::ways::is_same;
use crate::records::{Origin, Outcome};
use crate::tune::measure::PeerTiming;
use crate::tune::progress::{short, us};
use crate::workload::bound::Accuracy;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Characters of a workload's name that are shown.
const NAME: usize = 40;

/// A line a workload: the recorded time, the time now, how far off the result is, and the time of each alternative with how many
/// times as long it takes. Below a line whatever failed, with its reason; at the end the summary.
pub fn table(report: &Report) -> String {
    let known = |of: fn(&Measured) -> bool| report.rows.iter().filter_map(|r| r.result.as_ref().ok()).any(of);
    let clock = known(|m| m.clock().is_some());
    let floor = known(|m| m.floor_again().is_some());
    let cold = known(|m| m.chosen.cold_us().is_some());
    let apart = known(|m| m.chosen.apart_us()[0].is_some());
    let error = known(|m| m.chosen.accuracy().is_some());
    let ranged = known(|m| m.ranged.is_some());
    let mut head = vec!["workload", "recorded us", "now us", "now/recorded"];
    if clock {
        head.push("at its clock");
    }
    if floor {
        head.extend(["floor us", "now/recorded"]);
    }
    if cold {
        head.push("cold us");
    }
    if apart {
        head.extend(["apart us", "apart cold us"]);
    }
    if error {
        head.push("error max / rms");
    }
    head.extend(["default us", "/now"]);
    if report.others {
        head.extend(["others us", "/now"]);
    }
    if ranged {
        head.extend(["range us", "/now"]);
    }
    if !report.peers.is_empty() {
        head.extend(["peer us", "/now"]);
        if apart {
            head.push("/apart");
        }
        if cold {
            head.extend(["peer cold us", "/cold"]);
        }
        if apart {
            head.push("/apart cold");
        }
        head.extend(["peer error", "peer"]);
    }
    head.push("chosen by");
    let mut rows: Vec<Vec<String>> = vec![head.iter().map(|h| h.to_string()).collect()];
    rows.extend(report.rows.iter().map(|row| cells(row, [clock, floor, cold, apart, error, ranged], report)));
    let widths: Vec<usize> = (0..head.len())
        .map(|i| rows.iter().filter_map(|r| Some(r.get(i)?.chars().count())).max().unwrap_or(0))
        .collect();
    // Writing to a string cannot fail.
    let mut text = format!("{}\n", report.provenance);
    for (at, row) in rows.iter().enumerate() {
        let line = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| {
            if ["workload", "peer", "chosen by"].contains(&head[i]) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        let _ = writeln!(text, "{}", line.collect::<Vec<_>>().join("  ").trim_end());
        let of_row = at.checked_sub(1).and_then(|at| report.rows.get(at));
        for note in of_row.map(notes).unwrap_or_default() {
            let _ = writeln!(text, "  {note}");
        }
    }
    for (why, count) in missing(report) {
        let _ = writeln!(text, "no peer for {count} of {} workloads: {why}", report.rows.len());
    }
    let measured = report.rows.iter().filter_map(|row| row.result.as_ref().ok());
    let bare = measured.filter(|m| m.peer_leaves_out_residual()).count();
    if bare > 0 {
        let _ = writeln!(
            text,
            "the peer of {bare} of {} workloads leaves out the residual that they add: compare with cudnn-fused",
            report.rows.len()
        );
    }
    let _ = writeln!(text, "{}", report.summary());
    text
}

/// Why libraries were not timed, and for how many workloads: mostly one reason for all.
fn missing(report: &Report) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    let measured = report.rows.iter().filter_map(|row| row.result.as_ref().ok());
    for (peer, result) in measured.flat_map(|m| &m.peers) {
        if let Err(why) = result {
            *reasons.entry(format!("{}: {why}", peer.name())).or_insert(0) += 1;
        }
    }
    reasons
}

fn cells(row: &Row, [clock, floor, cold, apart, error, ranged]: [bool; 6], report: &Report) -> Vec<String> {
    let time = |us_: Option<f64>| us_.map_or("-".to_string(), us);
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_string(), |r| format!("{r:.2}x"));
    let name = short(&row.name, NAME);
    let Ok(m) = &row.result else { return vec![name] };
    let now = |c: &Candidate| c.us().map_or("failed".to_string(), us);
    let mut all = vec![name, time(m.recorded_us()), now(&m.chosen), ratio(m.again())];
    if clock {
        all.push(ratio(m.again_at_clock()));
    }
    if floor {
        all.extend([time(m.chosen.floor_us), ratio(m.floor_again())]);
    }
    if cold {
        all.push(time(m.chosen.cold_us()));
    }
    if apart {
        all.extend(m.chosen.apart_us().map(time));
    }
    let off = |accuracy: Option<Accuracy>| accuracy.map_or("-".to_string(), |a| a.to_string());
    if error {
        all.push(off(m.chosen.accuracy()));
    }
    all.extend([now(&m.default), ratio(m.relative(&m.default))]);
    if report.others {
        all.push(m.others.as_ref().map_or("-".to_string(), now));
        all.push(ratio(m.others.as_ref().and_then(|c| m.relative(c))));
    }
    if ranged {
        all.push(m.ranged.as_ref().map_or("-".to_string(), now));
        all.push(ratio(m.ranged.as_ref().and_then(|c| m.relative(c))));
    }
    if !report.peers.is_empty() {
        let peer = m.peer();
        let [warm_apart, cold_apart] = m.apart_peer_ratios();
        all.extend([time(peer.map(PeerTiming::median_us)), ratio(m.peer_ratio())]);
        if apart {
            all.push(ratio(warm_apart));
        }
        if cold {
            all.extend([time(peer.map(PeerTiming::cold_median_us)), ratio(m.cold_peer_ratio())]);
        }
        if apart {
            all.push(ratio(cold_apart));
        }
        all.push(off(peer.map(|p| p.accuracy)));
        all.push(peer.map_or("-", |p| p.way.as_str()).to_string());
    }
    all.push(chosen_by(m));
    all
}

/// What stands behind the choice.
fn chosen_by(m: &Measured) -> String {
    let template = &m.chosen.choice.template;
    match &m.chosen.choice.origin {
        Origin::Exact(_) | Origin::SameTarget(_) => format!("record, {template}"),
        Origin::SameCapability(m) => format!("record of {}, {template}", m.device),
        Origin::OtherTarget(m) => format!("record of {}, {template}", m.target),
        Origin::Model { .. } => format!("no record: by records of other shapes, {template}"),
        Origin::Analytic { .. } => format!("no record: the default, {template}"),
    }
}

/// What is wrong with a row, a line each.
fn notes(row: &Row) -> Vec<String> {
    let measured = match &row.result {
        Err(why) => return vec![format!("not measured: {why}")],
        Ok(measured) => measured,
    };
    let mut notes: Vec<String> =
        measured.chosen.choice.refusals.iter().map(|refusal| format!("refused: {refusal}")).collect();
    let mut told: Vec<&Candidate> = vec![];
    for (column, candidate) in measured.candidates() {
        let Outcome::Failed(failure) = &candidate.outcome else { continue };
        // What is two things fails once.
        if column != Column::Ranged && told.iter().any(|c| is_same(&c.choice, &candidate.choice)) {
            continue;
        }
        told.push(candidate);
        let what = match column {
            Column::Chosen => "what is chosen",
            Column::Default => "the default",
            Column::Others => "the choice by other records",
            Column::Ranged => "the kernel of the range",
        };
        let choice = &candidate.choice;
        notes.push(format!(
            "{what} failed: {}: {} ({} {})",
            failure.kind, failure.detail, choice.template, choice.config
        ));
    }
    notes
}
