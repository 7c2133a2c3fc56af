//! Where every choice came from, as a table.

use crate::dispatch::{Entry, Function, Variant};
use crate::{Cpu, Isa};
use std::fmt;

/// All choices that a build made: one row a workload and instruction set level. Printing it prints the table.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
}

/// One choice.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The function of the spec.
    pub function: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// The operator in one line.
    pub operator: &'static str,
    /// The instruction set level; none if there is no code.
    pub isa: Option<Isa>,
    /// The template, or why there is no code.
    pub template: &'static str,
    /// Its config.
    pub config: &'static str,
    /// Where the config came from, in one word.
    pub origin: &'static str,
    /// The same in a sentence.
    pub origin_detail: &'static str,
    /// What the record measured or the model expects, in microseconds.
    pub cost_us: Option<f64>,
    /// Floating-point operations of one launch.
    pub flops: u64,
}

impl Row {
    fn new(function: &Function, entry: &Entry, variant: Option<&Variant>) -> Row {
        Row {
            function: function.name,
            workload: entry.name,
            operator: entry.workload,
            isa: variant.map(|v| v.isa),
            template: variant.map_or(entry.no_code, |v| v.template),
            config: variant.map_or("", |v| v.config),
            origin: variant.map_or("", |v| v.origin),
            origin_detail: variant.map_or("", |v| v.origin_detail),
            cost_us: variant.and_then(|v| v.cost_us),
            flops: entry.flops,
        }
    }
}

impl Report {
    /// The report of these functions. Generated code calls it.
    pub fn of(functions: &[&Function]) -> Report {
        let mut rows = vec![];
        for function in functions {
            for entry in function.entries {
                if entry.variants.is_empty() {
                    rows.push(Row::new(function, entry, None));
                }
                rows.extend(entry.variants.iter().map(|v| Row::new(function, entry, Some(v))));
            }
        }
        Report { rows }
    }

    /// All rows, in the spec's order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Only what this device would run: the best level of each workload.
    pub fn for_device(&self, dev: &Cpu) -> Report {
        let mut rows: Vec<Row> = vec![];
        for row in &self.rows {
            let runs = row.isa.is_none_or(|isa| dev.isa().runs(isa));
            if runs && rows.last().is_none_or(|last| last.workload != row.workload) {
                rows.push(row.clone());
            }
        }
        Report { rows }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["workload", "operator", "isa", "template", "config", "origin", "us"].map(String::from);
        let rows = self.rows.iter().map(|r| {
            [
                r.workload.to_string(),
                r.operator.to_string(),
                r.isa.map_or("-", Isa::name).to_string(),
                r.template.to_string(),
                r.config.to_string(),
                r.origin.to_string(),
                r.cost_us.map_or("-".to_string(), |us| format!("{us:.1}")),
            ]
        });
        let table: Vec<_> = std::iter::once(header).chain(rows).collect();
        let widths: Vec<usize> =
            (0..7).map(|c| table.iter().map(|row| row[c].chars().count()).max().unwrap_or(0)).collect();
        for row in &table {
            let line: Vec<String> = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}")).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}
