//! `kernel-gen import`: configs that other tuners found, as seeds for this one.

use super::output::{Failure, Output, json_text};
use crate::diagnostic::closest;
use crate::records::import::{ImportOptions, Imported, import_autotvm};
use crate::records::log::{Log, Seed, append_seeds};
use crate::records::validate::summarised;
use crate::target::Target;
use crate::templates::Registry;
use clap::Args;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Takes configs from AutoTVM's logs (format 0.2, TopHub's files too) into a trial log
///
/// They become seeds: a tuner begins with them, and no record is made of them before they are measured here. Lines of
/// tutorial/conv2d_no_batching, tutorial/matmul_v1, tutorial/matmul, conv2d_nchw.cuda, conv2d_hwcn.cuda,
/// depthwise_conv2d_nchw.cuda, dense_large_batch.gpu and batch_matmul.cuda are taken, into the templates that have their knobs. Any
/// other line is answered with the template that comes nearest. Knobs count by their values and not by the line's index, and a first
/// size of -1 is resolved.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// AutoTVM's logs
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The trial log that the seeds are appended to
    #[arg(long, value_name = "LOG")]
    log: PathBuf,
    /// The target that they are for [default: the -arch of each line]
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Exchange tile_ry and tile_rx in the tutorial's lines, as its schedule does: gives the kernels that were measured
    #[arg(long)]
    exchange_ry_rx: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let target = arguments.target.as_deref().map(find).transpose()?;
    let options = ImportOptions { target, exchange_ry_rx: arguments.exchange_ry_rx };
    let mut all = Imported::default();
    for path in &arguments.files {
        let file = path.display().to_string().replace('\\', "/");
        let bytes = fs::read(path)
            .map_err(|e| Failure::Lines(vec![format!("{file}: cannot be read: {e}; name another file")]))?;
        let one = import_autotvm(&bytes, &file, registry, &options);
        all.seeds.extend(one.seeds);
        all.refused.extend(one.refused);
        all.failed += one.failed;
        all.renumbered += one.renumbered;
        all.tutorial += one.tutorial;
    }
    let failed = |e: crate::records::log::LogError| Failure::Lines(vec![e.to_string()]);
    // What is there already is not appended again, so that an import may be repeated.
    let known = if arguments.log.exists() { Log::read(&[&arguments.log]).map_err(failed)?.seeds } else { vec![] };
    let name = |s: &Seed| (s.task.clone(), s.config.to_string(), s.source.clone());
    let mut seen: BTreeSet<_> = known.iter().map(name).collect();
    let new: Vec<Seed> = all.seeds.iter().filter(|s| seen.insert(name(s))).cloned().collect();
    if !new.is_empty() {
        append_seeds(&arguments.log, &new).map_err(failed)?;
    }
    Ok(described(&all, new.len(), arguments))
}

fn find(name: &str) -> Result<&'static Target, Failure> {
    Target::find(name).ok_or_else(|| {
        let all = || Target::all().iter().map(|t| t.name.as_str());
        let hint = closest(name, all()).map(|close| format!("did you mean `{close}`? ")).unwrap_or_default();
        format!("there is no target `{name}`; {hint}the targets are {}", all().collect::<Vec<_>>().join(", ")).into()
    })
}

fn described(all: &Imported, new: usize, arguments: &Arguments) -> Output {
    let log = arguments.log.display().to_string().replace('\\', "/");
    let refused = all.refused.len();
    let errors: Vec<String> = summarised(all.refused.clone()).iter().map(|d| d.to_string()).collect();
    let success = refused == 0 || !all.seeds.is_empty();
    if arguments.json {
        let json = json!({
            "log": log,
            "taken": all.seeds.len(),
            "new": new,
            "failed": all.failed,
            "refused": refused,
            "renumbered": all.renumbered,
            "told": errors,
            "success": success,
        });
        return Output { text: json_text(&json), errors: vec![], success };
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} lines taken, {new} of them new in {log}; {} had failed there, {refused} cannot be taken",
        all.seeds.len(),
        all.failed,
    );
    if all.renumbered > 0 {
        let _ = writeln!(
            text,
            "{} lines have an index that is another config here: their knobs were taken",
            all.renumbered
        );
    }
    if all.tutorial > 0 && !arguments.exchange_ry_rx {
        let _ = writeln!(
            text,
            "{} lines are the tutorial's, whose schedule applies tile_rx to ry and tile_ry to rx: the knobs are taken by \
             name; --exchange-ry-rx gives the kernels that were measured",
            all.tutorial
        );
    }
    Output { text, errors, success }
}
