//! What is emitted for the workloads of known networks and tutorials compiles, without a header and for every
//! architecture, and what is chosen for them does not spill registers. (`cuda_templates.rs` compiles random ones.)
//!
//! The compiler is a real one: NVRTC where there is one (`tests/run.sh` fetches it), else whatever the lookup finds, else
//! the tests are skipped and say so.

use crate::kinds;
use crate::kinds::KNOWN;
use kernel_gen::emit::cuda::{Arch, CudaOptions, emit};
use kernel_gen::lower::lower_for;
use kernel_gen::model;
use kernel_gen::records::BestRecords;
use kernel_gen::space::Config;
use kernel_gen::spec::Spec;
use kernel_gen::target::Target;
use kernel_gen::templates::cuda::split::SplitBf16;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::toolchain::cuda::{
    Artifact, CudaCompiler, CudaError, Environment, Found, Missing, Options, Request, find,
};
use kernel_gen::workload::Workload;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// One target of each generation, and each that has instructions of its own.
const TARGETS: [&str; 8] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"];

/// What the tutorial of AutoTVM found best for its layer, the first of [`KNOWN`].
const TUTORIAL: &str = "tile_f=[-1,2,64,1] tile_y=[-1,1,1,7] tile_x=[-1,1,7,1] tile_rc=[-1,2,2] tile_ry=[-1,3,1] \
                        tile_rx=[-1,1,3] auto_unroll_max_step=1500 unroll_explicit=0";

fn target(name: &str) -> &'static Target {
    Target::find(name).expect("a built-in target")
}

/// A compiler for all targets, or a line that says that there is none.
fn compiler() -> Option<CudaCompiler> {
    let archs: Vec<Arch> = TARGETS.iter().filter_map(|name| name.parse().ok()).collect();
    assert_eq!(archs.len(), TARGETS.len());
    match find(&Environment::of_process(), &archs, Missing::Refuse) {
        Ok(Found::Compiler(compiler)) => Some(*compiler),
        Ok(_) | Err(CudaError::NoCompiler { .. }) => {
            println!("[SKIP] no NVRTC: emitted CUDA is not compiled");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The source of a config, as a build would emit it.
fn source(template: &dyn Template, workload: &Workload, target: &Target, config: &Config) -> Result<Request, String> {
    let what = format!("{} {} with {config} on {}", template.name(), workload.key(), target.name);
    let say = |e: &dyn std::fmt::Display| format!("{what}: {e}");
    let scheduled = template.schedule(workload, target, config).map_err(|e| say(&e))?;
    let lowered = lower_for(scheduled.schedule.kernel, target).map_err(|e| say(&e))?;
    let arch = Arch::of(target).ok_or("a CUDA target")?;
    let options = CudaOptions { arch, symbol: "kernel".into(), comment: what.clone(), min_blocks: None };
    let emitted = emit(&lowered, &options).map_err(|e| say(&e))?;
    assert!(!emitted.source.contains("#include"), "{}", emitted.source);
    Ok(Request::new(what, emitted.source, arch))
}

fn compile(compiler: &CudaCompiler, requests: &[Request]) -> Vec<Artifact> {
    let options = Options { lowest_ptx: false, limit: Duration::from_secs(300), ..Options::default() };
    let made = compiler.compile_each(requests, &options, None);
    let errors: Vec<String> = made.iter().filter_map(|r| r.as_ref().err().map(ToString::to_string)).collect();
    assert!(errors.is_empty(), "{} of {} do not compile; the first:\n{}", errors.len(), made.len(), errors[0]);
    made.into_iter().flatten().collect()
}

#[test]
fn every_template_and_every_architecture_compiles() {
    let Some(compiler) = compiler() else { return };
    let registry = Registry::builtin();
    let (mut compiled, mut all) = (BTreeMap::new(), BTreeSet::<Arch>::new());
    let [_, cuda] = kinds::by_kind(&registry);
    for (number, template) in cuda.into_iter().enumerate() {
        let fitting = |name: &str| -> Vec<Workload> {
            let known = KNOWN.iter().map(|key| Workload::from_key(key).expect("a key"));
            known.filter(|w| template.admits(w, target(name)).is_ok()).collect()
        };
        let runs: Vec<&str> = TARGETS.into_iter().filter(|name| !fitting(name).is_empty()).collect();
        // The oldest, which has the fewest instructions, Hopper, which has the most of its own, and of the others, between which a source
        // differs in limits at most, another for each template.
        let others: Vec<&str> = runs.iter().skip(1).copied().filter(|name| *name != "sm_90a").collect();
        let other = others.get(number % others.len().max(1)).copied();
        let is_asked = |name: &str| name == runs[0] || name == "sm_90a" || Some(name) == other;
        let asked: Vec<(&str, Vec<Workload>)> =
            runs.iter().filter(|name| is_asked(name)).map(|name| (*name, fitting(name))).collect();
        let mut requests = vec![];
        // Each workload for one of those that have it, in turn, and one at least for each of them.
        let mut left: BTreeSet<String> = asked.iter().flat_map(|(_, fitting)| fitting).map(Workload::key).collect();
        for round in 0.. {
            if left.is_empty() {
                break;
            }
            for (name, fitting) in &asked {
                let new = fitting.iter().find(|w| left.contains(&w.key()));
                let Some(workload) = new.or(fitting.first().filter(|_| round == 0)) else { continue };
                left.remove(&workload.key());
                let target = target(name);
                let config = template.default_config(workload, target).expect("it applies");
                let config = template.space(workload, target).and_then(|s| Ok(s.normalise(&config)?)).expect("inside");
                requests.push(source(template, workload, target, &config).unwrap_or_else(|e| panic!("{e}")));
            }
        }
        let archs: BTreeSet<Arch> = requests.iter().map(|r| r.arch).collect();
        all.extend(&archs);
        let archs: Vec<String> = archs.iter().map(Arch::to_string).collect();
        println!("{:20} {:3} sources: {}", template.name(), requests.len(), archs.join(" "));
        compiled.insert(template.name(), compile(&compiler, &requests).len());
    }
    assert!(compiled.values().all(|n| *n > 0), "the workloads leave a template out: {compiled:?}");
    assert_eq!(all, TARGETS.iter().filter_map(|name| name.parse().ok()).collect(), "an architecture is left out");
}

#[test]
fn what_is_chosen_does_not_spill() {
    let Some(compiler) = compiler() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs");
    let mut workloads: Vec<Workload> = KNOWN.iter().map(|key| Workload::from_key(key).expect("a key")).collect();
    for spec in ["resnet18.toml", "mobilenet_v1_fused.toml", "matmul.toml"] {
        let spec = Spec::load(&folder.join(spec)).unwrap_or_else(|faults| panic!("{}", faults[0]));
        workloads.extend(spec.workloads().map(|(_, w)| w.workload.clone()));
    }
    let records = BestRecords::load(&folder.join("tuned")).unwrap_or_else(|faults| panic!("{}", faults[0]));
    let registry = Registry::builtin();
    let (mut requests, mut allowed) = (vec![], vec![]);
    for name in ["sm_80", "sm_90a"] {
        let (tutorial, config) = (registry.find("conv2d_no_batching"), Config::parse(TUTORIAL).expect("a config"));
        let tutorial = tutorial.expect("a built-in template");
        allowed.push(0);
        requests.push(source(tutorial, &workloads[0], target(name), &config).unwrap_or_else(|e| panic!("{e}")));
        // An H100's choices are those that are measured; of the others a half.
        for workload in workloads.iter().step_by(if name == "sm_90a" { 1 } else { 2 }) {
            let options = model::Options::default();
            let choice = model::choose(&registry, workload, target(name), &records, &options)
                .unwrap_or_else(|e| panic!("{}: {e}", workload.key()));
            let template = registry.find(&choice.template).expect("a choice names a template");
            // The predictions are fitted to an H100; on older devices one that nobody has measured may be off.
            allowed.push(if choice.origin.measured().is_some() || name == "sm_90a" { 0 } else { 128 });
            requests.push(source(template, workload, target(name), &choice.config).unwrap_or_else(|e| panic!("{e}")));
        }
    }
    let mut spilling = vec![];
    for ((request, artifact), allowed) in requests.iter().zip(compile(&compiler, &requests)).zip(allowed) {
        let log = &artifact.log;
        for kernel in &log.kernels {
            println!("{:3} registers, {:5} bytes shared: {}", kernel.registers, kernel.shared_bytes, request.kernel);
            let bytes = kernel.spill_store_bytes + kernel.spill_load_bytes;
            if bytes > 0 {
                println!("{bytes:3} bytes of spills in the one above");
            }
            if bytes > allowed {
                spilling.push(format!("{bytes} bytes of spills: {}", request.kernel));
            }
        }
        // Matrix instructions one after the other, registers that cannot be moved between warps, and the like.
        if !log.remarks.is_empty() {
            spilling.push(format!("{}: {}", log.remarks.join("; "), request.kernel));
        }
    }
    assert!(spilling.is_empty(), "{} of {}:\n{}", spilling.len(), requests.len(), spilling.join("\n"));
}

/// Consumers hold sums and parts in most of their registers, and producers have few.
#[test]
fn parts_of_bf16_do_not_spill() {
    let Some(compiler) = compiler() else { return };
    let (template, target) = (SplitBf16, target("sm_90a"));
    let mut requests = vec![];
    for key in [
        "conv2d-nchw-f32-n64c128h28w28-o128k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.residual_add.relu",
        "conv2d-nhwc-f32-n64c128h28w28-o128k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.residual_add.relu",
        "conv2d-hwcn-f32-n256c256h14w14-o512k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "matmul-f32-m4000n4000k4096-nn-bias",
        "matmul-f32-m4000n4000k4096-tn-bias",
    ] {
        let workload = Workload::from_key(key).expect("a key");
        let space = template.space(&workload, target).expect("it applies");
        let largest = ["consumers=1 bn=128", "consumers=2 bn=128", "consumers=3 bn=80"]
            .map(|tile| Config::parse(&format!("{tile} row_blocks=1 stages=3 lag=1")).expect("a config"));
        let default = template.default_config(&workload, target).expect("it applies");
        // Of the largest tiles in turn one, which three consumers are not for in NCHW and HWCN, where they do not share out the rows.
        let fitting: Vec<Config> = largest.into_iter().filter(|config| space.index_of(config).is_ok()).collect();
        for config in [&fitting[requests.len() / 2 % fitting.len()], &default] {
            requests.push(source(&template, &workload, target, config).unwrap_or_else(|e| panic!("{e}")));
        }
    }
    for (request, artifact) in requests.iter().zip(compile(&compiler, &requests)) {
        println!("{:3} registers: {}", artifact.log.kernels[0].registers, request.kernel);
        assert!(!artifact.log.kernels.iter().any(|k| k.spills()), "it spills: {}", request.kernel);
        assert!(artifact.log.remarks.is_empty(), "{}: {}", artifact.log.remarks.join("; "), request.kernel);
    }
}
