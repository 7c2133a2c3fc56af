//! NaN, infinities, subnormal numbers and outliers at single positions, in every CUDA template, on the device.
//!
//! A template is asked for small random workloads; the first of each type and class that it takes run with its default config,
//! each special value once in each operand, and are held against the reference.

use crate::families::{buffers, target_of};
use crate::gpu::Gpu;
use crate::kernel::Kernel;
use crate::{Options, prepare};
use anyhow::{Context, Result, anyhow};
use kernel_gen::ir::DType;
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::toolchain::values;
use kernel_gen::workload::sample::Rng;
use kernel_gen::workload::special::{self, Case};
use kernel_gen::workload::{Math, Slices, Workload};
use std::collections::BTreeMap;

/// Random workloads that each template is asked for.
const DRAWS: u64 = 20_000;

/// Workloads that a template takes: `each` of every type and class.
fn workloads(template: &dyn Template, target: &Target, seed: u64, each: usize) -> Vec<Workload> {
    let mut found = BTreeMap::<(DType, Math), Vec<Workload>>::new();
    for draw in 0..DRAWS {
        let workload = special::small(&mut Rng::new(seed << 32 | draw));
        let same = found.entry((workload.dtype, workload.math)).or_default();
        if same.len() < each && workload.macs() >= 2000 && template.applies(&workload, target).is_ok() {
            same.push(workload);
        }
    }
    found.into_values().flatten().collect()
}

/// What came of a template.
#[derive(Default)]
struct Row {
    workloads: usize,
    runs: usize,
    /// Wrong results by value, in the order in which they were met.
    wrong: BTreeMap<&'static str, usize>,
    failed: usize,
}

/// Runs the suite; whether everything was right.
pub(crate) fn run(gpu: &Gpu, options: &Options) -> Result<bool> {
    let target = target_of(gpu)?;
    let compiler = prepare::compiler(target)?;
    println!("kernels for {}, compiled by {}\n", target.name, compiler.name());
    let (seed, each) = (options.number("--seed", 1)?, options.number("--workloads", 4)? as usize);
    let registry = Registry::builtin();
    if let Some(only) = options.text("--only").filter(|only| registry.find(only).is_none()) {
        anyhow::bail!("there is no template `{only}` in this build");
    }
    let mut rows = vec![];
    // Integers have no special values; the plain templates take numbers as well.
    let takes_numbers = |t: &&dyn Template| !t.takes_integers() || t.name().starts_with("plain");
    for template in
        registry.iter().filter(takes_numbers).filter(|t| options.text("--only").is_none_or(|only| only == t.name()))
    {
        let workloads = workloads(template, target, seed, each);
        let mut row = Row { workloads: workloads.len(), ..Row::default() };
        let mut sources = vec![];
        let mut cases = vec![];
        for workload in workloads {
            let made = default_of(template, &workload, target).and_then(|config| {
                Ok((prepare::source_and_packs(template, &workload, Slices::default(), target, &config)?, config))
            });
            match made {
                Ok(((source, packs), config)) => {
                    sources.push(source);
                    cases.push((workload, config, packs));
                }
                Err(error) => {
                    println!("FAILED {} {}: {error:#}", template.name(), workload.key());
                    row.failed += 1;
                }
            }
        }
        let artifacts = prepare::compile(&compiler, target, &sources);
        for (((workload, config, packs), source), artifact) in cases.iter().zip(&sources).zip(artifacts) {
            let what = format!("{} {} with {config}", template.name(), workload.key());
            let kernel = artifact.and_then(|artifact| Kernel::load(gpu, source, &artifact));
            let kernel = match kernel {
                Ok(kernel) => kernel,
                Err(error) => {
                    println!("FAILED {what}: {error:#}");
                    row.failed += 1;
                    continue;
                }
            };
            let reach = template.reach(workload, config);
            for case in special::cases(workload, &mut Rng::new(seed)) {
                row.runs += 1;
                let Case { operand, value, position, inputs } = &case;
                let checked = || -> Result<()> {
                    let inputs_bytes = prepare::packed(workload, target, inputs, packs)?;
                    let buffers = buffers(gpu, &workload.params(), &inputs_bytes)?;
                    let bound = kernel.bind(gpu, &buffers)?;
                    bound.launch(gpu)?;
                    gpu.stream.synchronize()?;
                    let output = gpu.download(buffers.last().context("an output")?)?;
                    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
                    let output = values::decode(workload.out_dtype, &output);
                    let checked = reach.reference(workload, &views).check(output);
                    checked.map(drop).map_err(|mismatch| anyhow!("{mismatch}"))
                };
                if let Err(error) = checked() {
                    let count = row.wrong.entry(*value).or_default();
                    *count += 1;
                    if *count <= 3 {
                        println!("FAILED {what}: {value} at {position} of {operand}: {error:#}");
                    }
                    if gpu.stream.synchronize().is_err() {
                        println!("the context is lost; what follows cannot be checked\nFAILED");
                        return Ok(false);
                    }
                }
            }
        }
        if row.workloads == 0 && is_for(template, target) {
            println!("FAILED {}: it takes none of {DRAWS} small workloads", template.name());
            row.failed += 1;
        }
        if row.workloads > 0 || row.failed > 0 {
            rows.push((template.name().to_string(), row));
        }
    }
    Ok(print(&rows))
}

/// Whether a template is for devices of this target at all: one that takes some workload on another CUDA target alone is not,
/// and those for CPUs are not.
fn is_for(template: &dyn Template, target: &Target) -> bool {
    let takes = |t: &Target| (0..2000).any(|draw| template.applies(&special::small(&mut Rng::new(draw)), t).is_ok());
    !Target::all().iter().filter(|t| t.name != target.name).any(takes)
}

fn default_of(template: &dyn Template, workload: &Workload, target: &Target) -> Result<Config> {
    let space = template.space(workload, target).map_err(|e| anyhow!("{e}"))?;
    let default = template.default_config(workload, target).map_err(|e| anyhow!("{e}"))?;
    space.normalise(&default).map_err(|e| anyhow!("{e}"))
}

/// The table, and whether all was right.
fn print(rows: &[(String, Row)]) -> bool {
    let names = special::values(DType::F32).map(|(name, _)| name);
    println!("\n| template | workloads | runs | failed | wrong: {} |", names.join(" | "));
    println!("|---|--:|--:|--:|{}", "--:|".repeat(names.len()));
    let (mut runs, mut bad) = (0, 0);
    for (name, row) in rows {
        let wrong = names.map(|value| row.wrong.get(value).copied().unwrap_or(0));
        let columns = wrong.map(|count| count.to_string()).join(" | ");
        println!("| {name} | {} | {} | {} | {columns} |", row.workloads, row.runs, row.failed);
        runs += row.runs;
        bad += row.failed + wrong.iter().sum::<usize>();
    }
    println!(
        "{} templates, {runs} runs, {bad} wrong or failed: {}",
        rows.len(),
        if bad == 0 { "all right" } else { "FAILED" }
    );
    bad == 0 && runs > 0
}
