//! What holds for every operator of the list, without a line that names one: its definition computes what its reference does, every
//! template that takes it does too, and keys read back.

use crate::checked;
use crate::cpu_templates::{self, Way};
use crate::naive_kernels;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Workload, operator_names};
use std::collections::BTreeSet;

/// Some workloads of an operator, and a generator that drew them.
fn some(name: &str, count: usize) -> (Vec<Workload>, Rng) {
    let mut rng = Rng::new(name.bytes().map(u64::from).sum());
    ((0..count).map(|_| sample::of_operator(name, &mut rng)).collect(), rng)
}

#[test]
fn definitions_compute_what_references_do() {
    for name in operator_names() {
        for (seed, workload) in some(name, 24).0.iter().enumerate() {
            naive_kernels::check(workload, seed as u64);
            assert_eq!(Workload::from_key(&workload.key()).as_ref(), Ok(workload));
            assert_eq!(workload.op_name(), name);
        }
    }
}

#[test]
fn every_operator_runs_on_every_device() {
    let registry = Registry::builtin();
    for name in operator_names() {
        let (workloads, _) = some(name, 6);
        let mut templates = BTreeSet::new();
        for (seed, workload) in workloads.iter().enumerate() {
            for target in ["x86-64-v3", "sm_80"].map(|name| Target::find(name).expect("a built-in target")) {
                for template in registry.applicable(workload, target) {
                    let config = template.default_config(workload, target).expect("it applies");
                    match target.cpu() {
                        Some(_) => {
                            cpu_templates::check(template, workload, target, &config, seed as u64, Way::Interpreted)
                        }
                        None => drop(checked::check(template, workload, &target.name, &config.to_string())),
                    }
                    templates.insert(template.name().to_string());
                }
            }
        }
        for plain in ["plain", "plain_cuda"] {
            assert!(templates.contains(plain), "{name}: {templates:?}");
        }
        println!("{name}: {templates:?}");
    }
}
