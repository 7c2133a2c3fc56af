//! `kernel-gen show`: the C or the CUDA C++ that is emitted for a workload.

use super::lower::{Selected, Selection, lowered};
use super::output::{Failure, Output, json_text};
use crate::emit::c::{self, COptions, CSource, Isa};
use crate::emit::cuda::{self, Arch, CudaOptions, CudaSource, Launch};
use crate::generate::Early;
use crate::ir::Kernel;
use crate::lower::Units;
use crate::templates::Registry;
use clap::Args;
use serde_json::{Value, json};

/// Prints the C or the CUDA C++ that is emitted for a workload: the kernel, and what packs its weights
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    /// Print the prototypes instead of the functions; for C only
    #[arg(long)]
    header: bool,
    /// Print JSON: sources, headers, phases or launches, and workspace
    #[arg(long)]
    json: bool,
}

/// What is emitted for one kernel.
enum Source {
    C(CSource),
    Cuda(CudaSource),
}

impl Source {
    fn text(&self) -> &str {
        match self {
            Source::C(c) => &c.source,
            Source::Cuda(cuda) => &cuda.source,
        }
    }

    fn json(&self, packs: &str) -> Value {
        let mut value = match self {
            Source::C(c) => json!({
                "symbol": c.symbol,
                "header": c.header,
                "workspace_bytes": c.workspace_bytes,
                "worker_bytes": c.worker_bytes,
                "phases": c.phases.iter().map(|p| json!({
                    "symbol": p.symbol, "extent": p.extent, "parallel": p.parallel,
                })).collect::<Vec<_>>(),
            }),
            Source::Cuda(cuda) => json!({
                "symbol": cuda.symbol,
                "workspace_bytes": cuda.workspace_bytes,
                "launches": cuda.launches.iter().map(launch).collect::<Vec<_>>(),
            }),
        };
        value["packs"] = if packs.is_empty() { Value::Null } else { packs.into() };
        value["source"] = self.text().into();
        value
    }
}

fn launch(launch: &Launch) -> Value {
    json!({
        "symbol": launch.symbol,
        "grid": launch.grid,
        "block": launch.block,
        "cluster": launch.cluster,
        "dynamic_shared_bytes": launch.dynamic_shared_bytes,
    })
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let selected = arguments.selection.resolve_as_built(registry)?;
    let scheduled = selected.schedule()?;
    let symbol = format!("{}_{}", selected.template.name(), selected.config.id());
    // As a build has it: what packs runs by itself, the kernel in a network.
    let early = Early::of(selected.template, &selected.workload, selected.target);
    let (units, kernel) = (selected.units.clone(), &scheduled.schedule.kernel);
    let kernel = source(&selected, (kernel, units), symbol.clone(), "kernel", &early)?;
    let mut sources = vec![(String::new(), kernel)];
    for (i, pack) in scheduled.packs.iter().enumerate() {
        let what = format!("packs `{}`", pack.param);
        sources.push((
            pack.param.clone(),
            source(&selected, (&pack.kernel, None), format!("{symbol}_pack{i}"), &what, &Early::NEVER)?,
        ));
    }
    if arguments.json {
        let flags = match selected.target.cpu() {
            Some(_) => Some([&crate::toolchain::FLAGS, isa(&selected)?.flags()].concat()),
            None => None,
        };
        return Ok(Output::success(json_text(&json!({
            "workload": selected.workload.key(),
            "target": selected.target.name,
            "template": selected.template.name(),
            "config": selected.config.to_string(),
            "flags": flags,
            "sources": sources.iter().map(|(packs, source)| source.json(packs)).collect::<Vec<_>>(),
        }))));
    }
    let mut texts = vec![];
    for (_, source) in &sources {
        texts.push(match source {
            Source::C(c) if arguments.header => c.header.as_str(),
            Source::Cuda(_) if arguments.header => {
                return Err("CUDA sources have no header; wrappers launch their functions by name".to_string().into());
            }
            source => source.text(),
        });
    }
    Ok(Output::success(texts.join("\n")))
}

fn isa(selected: &Selected<'_>) -> Result<Isa, String> {
    Isa::of_target(&selected.target.name).map_err(|e| e.to_string())
}

fn source(
    selected: &Selected<'_>,
    (kernel, units): (&Kernel, Option<Units>),
    symbol: String,
    what: &str,
    early: &Early,
) -> Result<Source, Failure> {
    let comment = format!(
        "{what}\nworkload: {}\ntemplate: {} v{}\nconfig: {}\norigin: {}\nPrinted by kernel-gen {}.",
        selected.workload.key(),
        selected.template.name(),
        selected.template.version(),
        selected.config,
        selected.origin,
        env!("CARGO_PKG_VERSION"),
    );
    let lowered = early.apply(lowered(kernel, selected.target, units).map_err(Failure::Lines)?);
    Ok(match Arch::of(selected.target) {
        Some(arch) => {
            let options = CudaOptions { arch, symbol, comment, min_blocks: None };
            Source::Cuda(cuda::emit(&lowered, &options).map_err(|e| e.to_string())?)
        }
        None => {
            let options = COptions { isa: isa(selected)?, symbol, comment };
            Source::C(c::emit(&lowered, &options).map_err(|e| e.to_string())?)
        }
    })
}
