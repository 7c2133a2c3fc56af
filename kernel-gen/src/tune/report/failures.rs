//! Failures by reason, with what the first of each said.

use super::contents::Bench;
use super::svg::escaped;
use crate::records::FailureKind;
use crate::tune::progress::percent;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The table of a machine.
pub(super) fn table(bench: &Bench) -> String {
    let mut reasons: BTreeMap<(FailureKind, &str), (usize, &str)> = BTreeMap::new();
    let mut trials: BTreeMap<&str, usize> = BTreeMap::new();
    for task in bench.layers.iter().flat_map(|l| &l.tasks) {
        *trials.entry(&task.template).or_default() += task.trials;
        for (kind, (count, detail)) in &task.failures {
            reasons.entry((*kind, &task.template)).or_insert((0, detail)).0 += count;
        }
    }
    let all: usize = trials.values().sum();
    let failed: usize = reasons.values().map(|(n, _)| n).sum();
    let mut out = format!("<p>{failed} of {all} trials failed ({}).</p>", percent(failed as f64 / all.max(1) as f64));
    if reasons.is_empty() {
        return out;
    }
    out.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>reason</th><th>template</th><th class=\"n\">trials</th><th \
         class=\"n\">of its trials</th><th>what the first said</th></tr></thead><tbody>",
    );
    for ((kind, template), (count, detail)) in reasons {
        let of = count as f64 / trials.get(template).copied().unwrap_or(1).max(1) as f64;
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<tr><td>{kind}</td><td>{}</td><td class=\"n\">{count}</td><td class=\"n\">{}</td><td \
             class=\"detail\">{}</td></tr>",
            escaped(template),
            percent(of),
            escaped(detail),
        );
    }
    out.push_str("</tbody></table></div>");
    out
}
