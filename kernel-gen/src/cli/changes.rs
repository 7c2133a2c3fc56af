//! What a change of records does to the kernels of a build.

use super::project::{row_text, word};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// The differences between the choices by two sets of records.
pub(super) struct Changes {
    /// How many workloads were compared, each on each target.
    compared: usize,
    /// Those with another kernel: the row of `before`, and that of `now`.
    kernels: Vec<Json>,
    /// How many have the same kernels by a record with another time, or by one where there was none.
    records: usize,
}

impl Changes {
    /// Rows of the same workloads and targets, in the same order.
    pub(super) fn of(before: Vec<Json>, now: &[Json]) -> Changes {
        let mut changes = Changes { compared: now.len(), kernels: vec![], records: 0 };
        for (before, now) in before.into_iter().zip(now) {
            debug_assert_eq!((&before["workload"], &before["target"]), (&now["workload"], &now["target"]));
            let (then, today) = (kernels(&before), kernels(now));
            let same = |keys: &[&str]| {
                let pairs = || then.iter().zip(&today);
                then.len() == today.len() && pairs().all(|((m, a), (n, b))| m == n && keys.iter().all(|k| a[k] == b[k]))
            };
            if !same(&["template", "config"]) {
                changes.kernels.push(json!({ "before": before, "now": now }));
            } else if !same(&["origin", "time_us"]) && then.iter().chain(&today).any(|(_, choice)| is_measured(choice))
            {
                changes.records += 1;
            }
        }
        changes
    }

    pub(super) fn json(&self) -> Json {
        json!({ "kernels": self.kernels, "other_records": self.records })
    }

    /// A count, and for each workload that has another kernel those of before and those of now.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "changes: {} of {} choices have another kernel, {} the same by another record",
            self.kernels.len(),
            self.compared,
            self.records
        );
        for kernel in &self.kernels {
            let (before, now) = (&kernel["before"], &kernel["now"]);
            let _ = writeln!(text, "  {} on {}", word(&now["name"]), word(&now["target"]));
            for (sign, row) in [('-', before), ('+', now)] {
                for smaller in row["smaller"].as_array().into_iter().flatten() {
                    let _ = writeln!(text, "  {sign} up to {}: {}", smaller["units"], row_text(smaller));
                }
                let _ = writeln!(text, "  {sign} {}", row_text(row));
            }
        }
        text
    }
}

/// The choices of a row, each with the most units that it is for, where there are several. A row with an error has one that is empty.
fn kernels(row: &Json) -> Vec<(&Json, &Json)> {
    let smaller = row["smaller"].as_array().into_iter().flatten();
    smaller.map(|smaller| (&smaller["units"], &smaller["choice"])).chain([(&Json::Null, &row["choice"])]).collect()
}

fn is_measured(choice: &Json) -> bool {
    choice.is_object() && !["model", "analytic"].contains(&word(&choice["origin"]))
}
