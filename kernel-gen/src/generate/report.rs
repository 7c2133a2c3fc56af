//! Where every choice came from, as the build says it.

use crate::records::is_word_of_target;
use std::collections::BTreeMap;
use std::fmt;

/// What a generation decided.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Report {
    /// One row a workload and level, in the order of the spec, best level first.
    pub rows: Vec<Row>,
    /// What a user should know although nothing failed: records that were not used, a compiler that is missing.
    pub warnings: Vec<String>,
}

/// One choice.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The function.
    pub kernel: String,
    /// The workload's module.
    pub name: String,
    /// What is computed.
    pub workload: String,
    /// The level.
    pub target: String,
    /// Template and version.
    pub template: String,
    /// The config.
    pub config: String,
    /// Where the config came from, in one word.
    pub origin: String,
    /// The device of the record; empty where there is none.
    pub device: String,
    /// The same in a sentence.
    pub origin_detail: String,
    /// Measured or predicted time.
    pub time_us: f64,
}

impl Report {
    /// One line that counts the origins, records by their devices:
    /// `12 workloads for x86-64-v4, sm_90a: 20 shipped-same-target (NVIDIA H100 80GB HBM3), 4 analytic`.
    pub fn summary(&self) -> String {
        let mut origins: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let (mut names, mut targets) = (vec![], vec![]);
        for row in &self.rows {
            *origins.entry((&row.origin, &row.device)).or_default() += 1;
            if !names.contains(&&row.name) {
                names.push(&row.name);
            }
            if !targets.contains(&row.target.as_str()) {
                targets.push(&row.target);
            }
        }
        let counts = origins.iter().map(|((origin, device), n)| match device.is_empty() {
            true => format!("{n} {origin}"),
            false => format!("{n} {origin} ({device})"),
        });
        let counts: Vec<String> = counts.collect();
        let s = if names.len() == 1 { "" } else { "s" };
        match names.len() {
            0 => "no code was generated".to_string(),
            n => format!("{n} workload{s} for {}: {}", targets.join(", "), counts.join(", ")),
        }
    }

    /// Whether every choice stands on a measurement of its very workload.
    pub fn is_tuned(&self) -> bool {
        self.rows.iter().all(|row| is_word_of_target(&row.origin))
    }

    /// As lines that [`Report::parse`] reads back: fields between tabs.
    pub fn to_lines(&self) -> String {
        let mut out = String::new();
        for r in &self.rows {
            let time = format!("{:?}", r.time_us);
            let fields = [
                &r.kernel,
                &r.name,
                &r.workload,
                &r.target,
                &r.template,
                &r.config,
                &r.origin,
                &r.device,
                &r.origin_detail,
                &time,
            ];
            out += &format!("row\t{}\n", fields.map(|f| one_field(f)).join("\t"));
        }
        for w in &self.warnings {
            out += &format!("warning\t{}\n", one_field(w));
        }
        out
    }

    /// Reads what [`Report::to_lines`] wrote.
    pub fn parse(text: &str) -> Option<Report> {
        let mut report = Report::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["row", kernel, name, workload, target, template, config, origin, device, detail, time] => {
                    report.rows.push(Row {
                        kernel: kernel.into(),
                        name: name.into(),
                        workload: workload.into(),
                        target: target.into(),
                        template: template.into(),
                        config: config.into(),
                        origin: origin.into(),
                        device: device.into(),
                        origin_detail: detail.into(),
                        time_us: time.parse().ok()?,
                    });
                }
                ["warning", text] => report.warnings.push(text.into()),
                _ => return None,
            }
        }
        Some(report)
    }
}

fn one_field(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

impl fmt::Display for Report {
    /// One line a row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for r in &self.rows {
            writeln!(f, "{} on {}: {} {} ({})", r.name, r.target, r.template, r.config, r.origin_detail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_lines() {
        let row = Row {
            kernel: "mm".into(),
            name: "mm_64".into(),
            workload: "matmul-f32-m64n64k64-nn".into(),
            target: "x86-64-v3".into(),
            template: "gemm v2".into(),
            config: "rows=[-1,8]".into(),
            origin: "shipped-exact".into(),
            device: "Some CPU".into(),
            origin_detail: "shipped exact record, 12.0 us on Some CPU with 1 thread".into(),
            time_us: 12.03,
        };
        let (origin, device) = ("analytic".into(), String::new());
        let other = Row { target: "x86-64".into(), origin, device, ..row.clone() };
        assert!(Report { rows: vec![row.clone()], warnings: vec![] }.is_tuned());
        let report = Report { rows: vec![row, other], warnings: vec!["one".into()] };
        assert_eq!(Report::parse(&report.to_lines()), Some(report.clone()));
        assert_eq!(report.summary(), "1 workload for x86-64-v3, x86-64: 1 analytic, 1 shipped-exact (Some CPU)");
        assert!(!report.is_tuned());
        assert_eq!(Report::parse("nonsense"), None);
    }
}
