//! What a change of records does to the kernels of a build.

use super::project::{choice_json, row_text, word};
use crate::generate::{GenerateError, Tried};
use crate::spec::WorkloadSpec;
use crate::target::Target;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// Choices by records of before beside those of today.
pub(super) struct Changes {
    /// How many choices there are.
    choices: usize,
    /// Those whose kernel differs, each what was chosen `before` and the row of `now`.
    kernels: Vec<Json>,
    /// How many have the same kernel from a record with another time or of another origin.
    origins: usize,
}

impl Changes {
    /// `before` and `rows` are of the same workloads and targets, in the same order.
    pub(super) fn of(before: Vec<(&WorkloadSpec, &Target, Result<Tried, GenerateError>)>, rows: &[Json]) -> Changes {
        let mut changes = Changes { choices: rows.len(), kernels: vec![], origins: 0 };
        for ((_, _, before), row) in before.into_iter().zip(rows) {
            let before = match before {
                Ok(tried) => json!({ "choice": choice_json(&tried.choice) }),
                Err(error) => json!({ "error": error.to_string() }),
            };
            let (then, now) = (&before["choice"], &row["choice"]);
            if ["template", "config"].iter().any(|key| then[key] != now[key]) {
                changes.kernels.push(json!({ "before": before, "now": row }));
            } else if then["origin_text"] != now["origin_text"] {
                changes.origins += 1;
            }
        }
        changes
    }

    pub(super) fn json(&self) -> Json {
        json!({ "kernels": self.kernels, "other_origins": self.origins })
    }

    /// A count, and two lines for each kernel that differs.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "changes: {} of {} choices have another kernel, {} the same from another record",
            self.kernels.len(),
            self.choices,
            self.origins
        );
        for kernel in &self.kernels {
            let (before, now) = (&kernel["before"], &kernel["now"]);
            let _ = writeln!(text, "  {} on {}", word(&now["name"]), word(&now["target"]));
            let _ = writeln!(text, "  - {}\n  + {}", row_text(before), row_text(now));
        }
        text
    }
}
