//! `kernel-gen show`: the C that is emitted for a workload.

use super::lower::{Selected, Selection, lowered};
use super::{Failure, Output, json_text};
use crate::emit::c::{COptions, CSource, Isa, emit};
use crate::ir::Kernel;
use crate::templates::Registry;
use clap::Args;
use serde_json::json;

/// Prints the C that is emitted for a workload: the kernel, and what packs its weights
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    /// Print the prototypes instead of the functions
    #[arg(long)]
    header: bool,
    /// Print JSON: sources, headers, phases and workspace
    #[arg(long)]
    json: bool,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let selected = arguments.selection.resolve(registry)?;
    if selected.target.cpu().is_none() {
        return Err(format!("no C is emitted for {}, which is not a CPU", selected.target.name).into());
    }
    let scheduled = selected.schedule()?;
    let symbol = format!("{}_{}", selected.template.name(), selected.config.id());
    let mut sources = vec![(String::new(), c(&selected, &scheduled.schedule.kernel, symbol.clone(), "kernel")?)];
    for (i, pack) in scheduled.packs.iter().enumerate() {
        let what = format!("packs `{}`", pack.param);
        sources.push((pack.param.clone(), c(&selected, &pack.kernel, format!("{symbol}_pack{i}"), &what)?));
    }
    if arguments.json {
        let source = |(packs, c): &(String, CSource)| {
            json!({
                "packs": if packs.is_empty() { None } else { Some(packs) },
                "symbol": c.symbol,
                "source": c.source,
                "header": c.header,
                "workspace_bytes": c.workspace_bytes,
                "worker_bytes": c.worker_bytes,
                "phases": c.phases.iter().map(|p| json!({
                    "symbol": p.symbol, "extent": p.extent, "parallel": p.parallel,
                })).collect::<Vec<_>>(),
            })
        };
        let flags: Vec<&str> =
            crate::toolchain::FLAGS.into_iter().chain(isa(&selected).flags().iter().copied()).collect();
        return Ok(Output::success(json_text(&json!({
            "workload": selected.workload.key(),
            "target": selected.target.name,
            "template": selected.template.name(),
            "config": selected.config.to_string(),
            "flags": flags,
            "sources": sources.iter().map(source).collect::<Vec<_>>(),
        }))));
    }
    let texts = sources.iter().map(|(_, c)| if arguments.header { c.header.as_str() } else { c.source.as_str() });
    Ok(Output::success(texts.collect::<Vec<_>>().join("\n")))
}

fn isa(selected: &Selected<'_>) -> Isa {
    Isa::from_name(&selected.target.name).unwrap_or(Isa::Portable)
}

fn c(selected: &Selected<'_>, kernel: &Kernel, symbol: String, what: &str) -> Result<CSource, Failure> {
    let comment = format!(
        "{what}\nworkload: {}\ntemplate: {} v{}\nconfig: {}\norigin: {}\nPrinted by kernel-gen {}.",
        selected.workload.key(),
        selected.template.name(),
        selected.template.version(),
        selected.config,
        selected.origin,
        env!("CARGO_PKG_VERSION"),
    );
    let lowered = lowered(kernel, selected.target).map_err(Failure::Lines)?;
    Ok(emit(&lowered, &COptions { isa: isa(selected), symbol, comment }).map_err(|e| e.to_string())?)
}
