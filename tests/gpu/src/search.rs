//! A random search over a template's space for the bench's workloads: what the best of some hundred configs reaches.
//! `--key WORKLOAD --template NAME` searches for another workload. `--file PATH` tries the configs of a file instead, one a
//! line; what a line leaves out is the default's.

use crate::bench::{Data, repeats, rows_asked};
use crate::families::target_of;
use crate::gpu::Gpu;
use crate::kernel::Kernel;
use crate::{Options, prepare};
use anyhow::{Context, Result, anyhow};
use kernel_gen::emit::cuda::CudaSource;
use kernel_gen::space::Config;
use kernel_gen::templates::Registry;

/// Searches for every row that is asked for; prints the best configs of each.
pub(crate) fn run(gpu: &Gpu, options: &Options) -> Result<bool> {
    let target = target_of(gpu)?;
    let compiler = prepare::compiler(target)?;
    let registry = Registry::builtin();
    let trials = options.number("--trials", 200)? as usize;
    let seed = options.number("--seed", 1)?;
    let listed: Option<Vec<String>> = match options.text("--file") {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
            Some(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_string).collect())
        }
        None => None,
    };
    for row in rows_asked(options)? {
        if options.text("--only").is_some_and(|part| !row.name.contains(part)) {
            continue;
        }
        let w = &row.workload;
        let template =
            registry.find(&row.template).with_context(|| format!("there is no template {}", row.template))?;
        let space = template.space(w, target).map_err(|e| anyhow!("{e}"))?;
        let default = template.default_config(w, target).map_err(|e| anyhow!("{e}"))?;
        let mut configs: Vec<(Option<u64>, Config)> = match &listed {
            None => space.sample(seed).take(trials).map(|(index, config)| (Some(index), config)).collect(),
            Some(lines) => {
                let with = |line: &str| -> Result<Option<(Option<u64>, Config)>> {
                    let mut config = default.clone();
                    for (knob, value) in Config::parse(line).map_err(|e| anyhow!("{line}: {e}"))?.entries() {
                        config.set(knob, value.clone());
                    }
                    // A row for which the line is no config goes without it.
                    Ok(space.normalise(&config).ok().map(|config| (space.index_of(&config).ok(), config)))
                };
                let all: Result<Vec<_>> = lines.iter().map(|line| with(line)).collect();
                all?.into_iter().flatten().collect()
            }
        };
        let best = listed.as_ref().map_or(5, Vec::len);
        configs.push((None, default));
        let (mut tried, mut sources) = (vec![], vec![]);
        let mut refused = 0;
        let only: Vec<Config> = configs.iter().map(|c| c.1.clone()).collect();
        for ((index, config), source) in configs.into_iter().zip(prepare::sources(template, w, target, &only)) {
            match source {
                Ok(source) => {
                    tried.push((index, config));
                    sources.push(source);
                }
                Err(_) => refused += 1,
            }
        }
        let artifacts = prepare::compile(&compiler, target, &sources);
        let mut data = Data::new(gpu, w)?;
        let mut results: Vec<(f64, String)> = vec![];
        let mut failed = 0;
        for (((index, config), source), artifact) in tried.into_iter().zip(&sources).zip(artifacts) {
            let time = |source: &CudaSource| -> Result<f64> {
                let artifact = artifact?;
                let kernel = Kernel::load(gpu, source, &artifact)?;
                data.check(gpu, w, &kernel)?;
                let bound = kernel.bind(gpu, &data.memory)?;
                let repeats = repeats(w);
                let graph = gpu.graph(repeats, || bound.launch(gpu))?;
                Ok(gpu.time(&[&graph], repeats)?[0])
            };
            match time(source) {
                Ok(us) => {
                    let index = index.map_or("default".to_string(), |i| i.to_string());
                    results.push((us, format!("{index}: {config}")));
                }
                Err(error) => {
                    failed += 1;
                    println!("FAILED {config}: {error:#}");
                    gpu.stream.synchronize().context("the context is lost")?;
                }
            }
        }
        results.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!(
            "\n{} with {}: {} configs timed, {refused} refused, {failed} failed",
            row.name,
            row.template,
            results.len()
        );
        for (us, text) in results.iter().take(best).chain(results.iter().filter(|r| r.1.starts_with("default"))) {
            println!("{us:9.2} us {:7.1} TFLOP/s  {text}", w.flops() as f64 / us * 1e-6);
        }
    }
    Ok(true)
}
