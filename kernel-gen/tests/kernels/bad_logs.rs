//! Every log of `specs/filetests/bad-logs` gets exactly the diagnostics beside it: lines that cannot be read, and trials
//! that do not belong to what is tuned here, which is the template `rows` on an H100.
//!
//! `KERNEL_GEN_BLESS=1 cargo test --test kernels bad_logs::` writes what came out; read the difference before you commit it.
#![cfg(feature = "tune")]

use crate::told;
use kernel_gen::diagnostic::Diagnostic;
use kernel_gen::records::Purpose;
use kernel_gen::records::import::{ImportOptions, import_autotvm};
use kernel_gen::records::log::{Log, LogReader};
use kernel_gen::records::validate::Validator;
use kernel_gen::schedule::Schedule;
use kernel_gen::space::{Config, Space, Split};
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Scheduled, Template, TemplateError};
use kernel_gen::workload::{Workload, naive};

/// The template of the logs: one knob, for products.
struct Rows;

impl Template for Rows {
    fn name(&self) -> &str {
        "rows"
    }

    fn version(&self) -> u32 {
        2
    }

    fn applies(&self, workload: &Workload, _: &Target) -> Result<(), String> {
        workload.matmul().map(drop).ok_or_else(|| "for products".to_string())
    }

    fn space(&self, workload: &Workload, _: &Target) -> Result<Space, TemplateError> {
        let rows = workload.matmul().map_or(1, |m| m.m);
        Ok(Space::builder().split("rows", Split::factors(rows, 2)).build()?)
    }

    fn default_config(&self, _: &Workload, _: &Target) -> Result<Config, TemplateError> {
        Ok(Config::new().with_split("rows", &[-1, 1]))
    }

    fn cost(&self, _: &Workload, _: &Target, _: &Config) -> f64 {
        1.0
    }

    fn schedule(&self, workload: &Workload, _: &Target, _: &Config) -> Result<Scheduled, TemplateError> {
        Ok(Scheduled { schedule: Schedule::new(naive(workload)), packs: vec![] })
    }
}

/// What is said of a log when tuning goes on from it.
fn told_of_log(bytes: &[u8], file: &str) -> Vec<Diagnostic> {
    let mut log = Log::default();
    log.extend(LogReader::new(bytes, file));
    let registry = Registry::empty().with(Rows);
    let mut judge = Validator::new(&registry, Purpose::Tune).on("sm_90a", "NVIDIA H100 80GB HBM3");
    let mut told: Vec<Diagnostic> = log.skipped.iter().chain(&log.warnings).cloned().collect();
    for entry in &log.entries {
        let judgement = judge.entry(entry);
        // Nothing that is refused is used, and nothing that is used only as a hint counts.
        assert!(judgement.config.is_some() || !judgement.counts && !judgement.told.is_empty(), "{file}");
        told.extend(judgement.told);
    }
    for seed in &log.seeds {
        let judgement = judge.seed(seed);
        assert!(!judgement.counts, "{file}: a seed counts");
        told.extend(judgement.told);
    }
    told.sort();
    told
}

fn told_of_import(bytes: &[u8], file: &str) -> Vec<Diagnostic> {
    let options = ImportOptions { target: Target::find("sm_90a"), ..ImportOptions::default() };
    import_autotvm(bytes, file, &Registry::builtin(), &options).refused
}

#[test]
fn malformed_logs_are_told_with_their_lines_causes_and_help() {
    told::as_expected("bad-logs", &["jsonl", "log"], 60, |bytes, file| match file.ends_with(".log") {
        true => told_of_import(bytes, file),
        false => told_of_log(bytes, file),
    });
}
