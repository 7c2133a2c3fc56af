//! A random search over a template's space for the bench's workloads: what the best of some hundred configs reaches.

use crate::bench::{Data, repeats, rows};
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
    for row in rows() {
        if options.text("--only").is_some_and(|part| !row.name.contains(part)) {
            continue;
        }
        let w = &row.workload;
        let template = registry.find(row.template).with_context(|| format!("there is no template {}", row.template))?;
        let space = template.space(w, target).map_err(|e| anyhow!("{e}"))?;
        let mut configs: Vec<(Option<u64>, Config)> =
            space.sample(seed).take(trials).map(|(index, config)| (Some(index), config)).collect();
        configs.push((None, template.default_config(w, target).map_err(|e| anyhow!("{e}"))?));
        let (mut tried, mut sources) = (vec![], vec![]);
        let mut refused = 0;
        for (index, config) in configs {
            match prepare::source(template, w, target, &config) {
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
        for (us, text) in results.iter().take(5).chain(results.iter().filter(|r| r.1.starts_with("default"))) {
            println!("{us:9.1} us {:7.1} TFLOP/s  {text}", w.flops() as f64 / us * 1e-6);
        }
    }
    Ok(true)
}
