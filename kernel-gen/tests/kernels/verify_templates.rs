//! The verifier passes what the templates make, at the sizes of real networks, before and after lowering.

use crate::sweep::number;
use kernel_gen::analysis::verify::{Fault, check, verify};
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::space::Config;
use kernel_gen::spec::Spec;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::Workload;
use kernel_gen::workload::sample::{self, Rng};
use std::path::Path;
use std::time::{Duration, Instant};

/// Kernels seen, and the time that the verifier took.
#[derive(Default)]
struct Seen {
    kernels: u32,
    unscheduled: u32,
    total: Duration,
    slowest: (Duration, String),
}

impl Seen {
    fn check(&mut self, template: &dyn Template, workload: &Workload, target: &Target, config: &Config) {
        let what = format!("{} on {} for {} with {config}", template.name(), workload.key(), target.name);
        // Whether a template can be scheduled at all is for its own test.
        let Ok(made) = template.schedule(workload, target, config) else {
            self.unscheduled += 1;
            return;
        };
        let packs = made.packs.iter().map(|p| p.kernel.clone());
        for kernel in std::iter::once(made.schedule.kernel).chain(packs) {
            let start = Instant::now();
            let verified = verify(kernel.clone(), &target.limits())
                .unwrap_or_else(|faults| panic!("{what}\n{}\n{kernel}", text(&faults)));
            let mut took = start.elapsed();
            let lowered = lower(verified, &LowerOptions::cpu()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let start = Instant::now();
            let faults = check(lowered.kernel(), &target.limits());
            took = took.max(start.elapsed());
            assert!(faults.is_empty(), "{what}, lowered\n{}\n{}", text(&faults), lowered.kernel());
            self.kernels += 1;
            self.total += took;
            if took > self.slowest.0 {
                self.slowest = (took, what.clone());
            }
        }
    }

    fn print(&self) {
        let (time, what) = &self.slowest;
        let (n, average) = (self.kernels, self.total / self.kernels);
        println!("{n} kernels pass, {average:?} each, at most {time:?} ({what}); {} unscheduled", self.unscheduled);
    }
}

fn text(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Sampled configs of each space.
fn configs(default: usize) -> usize {
    number("KERNEL_GEN_CONFIGS", default as u64) as usize
}

fn check_all(seen: &mut Seen, workload: &Workload, target: &Target, seed: u64, samples: usize) {
    for template in Registry::builtin().applicable(workload, target) {
        let space = template.space(workload, target).expect("it applies");
        let default = template.default_config(workload, target).expect("it applies");
        let sampled = space.sample(seed).take(samples).map(|(_, config)| config);
        for config in std::iter::once(default).chain(sampled) {
            seen.check(template, workload, target, &config);
        }
    }
}

#[test]
fn templates_pass_on_the_layers_of_networks() {
    let mut seen = Seen::default();
    for name in ["resnet18.toml", "mobilenet_v1.toml", "matmul.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs").join(name);
        let spec = Spec::load(&path).unwrap_or_else(|faults| panic!("{}", faults[0]));
        for (i, (_, w)) in spec.workloads().enumerate() {
            let target = Target::find(["x86-64-v3", "x86-64-v4"][i % 2]).expect("a built-in target");
            check_all(&mut seen, &w.workload, target, i as u64, configs(2));
        }
    }
    seen.print();
}

#[test]
fn templates_pass_on_random_workloads() {
    let mut seen = Seen::default();
    let (first, workloads) = (number("KERNEL_GEN_SEED", 0), number("KERNEL_GEN_WORKLOADS", 60));
    for seed in first..first + workloads {
        let mut rng = Rng::new(seed);
        let workload = sample::workload(&mut rng);
        let level = rng.pick(&["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"]);
        let target = Target::find(level).expect("a built-in target");
        check_all(&mut seen, &workload, target, seed, configs(2));
    }
    seen.print();
}
