//! Where every choice came from, as a table.

use crate::dispatch::{Entry, Function, Variant};
use crate::{Device, Isa};
use std::fmt;

/// All choices that a build made: one row a workload and target. Printing it prints the table.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
}

/// One choice.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The function of the spec.
    pub function: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// The operator in one line.
    pub operator: &'static str,
    /// The instruction set level, if it is code for the CPU.
    pub isa: Option<Isa>,
    /// The architecture, if it is code for a GPU: `sm_90a`, say.
    pub cuda: Option<&'static str>,
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
    /// A row of code for the CPU, or of no code at all.
    fn new(function: &Function, entry: &Entry, variant: Option<&Variant>) -> Row {
        Row {
            function: function.name,
            workload: entry.about.name,
            operator: entry.about.workload,
            isa: variant.map(|v| v.isa),
            cuda: None,
            template: variant.map_or(entry.about.no_code, |v| v.choice.template),
            config: variant.map_or("", |v| v.choice.config),
            origin: variant.map_or("", |v| v.choice.origin),
            origin_detail: variant.map_or("", |v| v.choice.origin_detail),
            cost_us: variant.and_then(|v| v.choice.cost_us),
            flops: entry.about.flops,
        }
    }

    /// A row of code for a GPU.
    #[cfg(feature = "cuda")]
    fn cuda(function: &Function, entry: &Entry, variant: &crate::cuda::Variant) -> Row {
        Row {
            cuda: Some(variant.arch.name),
            template: variant.choice.template,
            config: variant.choice.config,
            origin: variant.choice.origin,
            origin_detail: variant.choice.origin_detail,
            cost_us: variant.choice.cost_us,
            ..Row::new(function, entry, None)
        }
    }

    /// What it is code for, as specs write it; `-` if there is no code.
    pub fn target(&self) -> &'static str {
        self.cuda.or(self.isa.map(Isa::name)).unwrap_or("-")
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
                #[cfg(feature = "cuda")]
                rows.extend(entry.cuda.iter().map(|v| Row::cuda(function, entry, v)));
                rows.extend(entry.variants.iter().map(|v| Row::new(function, entry, Some(v))));
            }
        }
        Report { rows }
    }

    /// All rows, in the spec's order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Only what this device would run: the best code of each workload.
    pub fn for_device<D: Device>(&self, dev: &D) -> Report {
        let mut rows: Vec<Row> = vec![];
        for row in &self.rows {
            let runs = row.target() == "-" || dev.runs(row);
            if runs && rows.last().is_none_or(|last| last.workload != row.workload) {
                rows.push(row.clone());
            }
        }
        Report { rows }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.iter().map(|r| {
            [
                r.workload.to_string(),
                r.operator.to_string(),
                r.target().to_string(),
                r.template.to_string(),
                r.config.to_string(),
                r.origin.to_string(),
                r.cost_us.map_or("-".to_string(), |us| format!("{us:.1}")),
            ]
        });
        table(f, ["workload", "operator", "target", "template", "config", "origin", "us"], rows)
    }
}

/// Writes lines in columns as wide as their widest cell.
pub(crate) fn table<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> fmt::Result {
    let table: Vec<_> = std::iter::once(header.map(String::from)).chain(rows).collect();
    let widths: Vec<usize> =
        (0..N).map(|c| table.iter().map(|row| row[c].chars().count()).max().unwrap_or(0)).collect();
    for row in &table {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}")).collect();
        writeln!(f, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}
