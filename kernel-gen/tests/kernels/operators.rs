//! What holds for every operator of the list, without a line that names one: its definition computes what its reference does, every
//! template that takes it does too, and keys read back.

use crate::checked;
use crate::cpu_templates::{self, Way};
use crate::naive_kernels;
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Workload, naive, operator_names, reference_with_bounds};
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

/// Numbers of all magnitudes and both signs, with those where functions turn, overflow or end.
fn numbers() -> Vec<f64> {
    let sizes = [
        0.0,
        1e-38,
        1e-20,
        1e-7,
        1e-3,
        0.1,
        0.5,
        0.9,
        0.999_999,
        1.0,
        1.000_001,
        1.5,
        2.0,
        3.0,
        10.0,
        87.0,
        89.0,
        1e4,
        9e9,
        1e11,
        3e19,
        3e38,
        f64::INFINITY,
    ];
    let rounded = sizes.into_iter().map(|size| f64::from(size as f32));
    rounded.flat_map(|size| [size, -size]).chain([f64::NAN]).collect()
}

#[test]
fn functions_of_elements_keep_their_bounds_at_numbers_of_all_magnitudes() {
    let all = numbers();
    let n = all.len();
    let each: Vec<f64> = all.iter().flat_map(|a| vec![*a; n]).collect();
    let mut checked = 0;
    for name in operator_names() {
        // What is a function of one tensor or of two.
        let of_one = Workload::from_key(&format!("{name}-f32-strict-{n}")).map(|w| (w, vec![all.clone()]));
        let of_two = || {
            let key = format!("{name}-f32-strict-a{n}x{n}-b{n}");
            Workload::from_key(&key).map(|w| (w, vec![each.clone(), all.clone()]))
        };
        let Ok((workload, inputs)) = of_one.or_else(|_| of_two()) else { continue };
        let params = workload.params();
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let values: Values = params.iter().zip(&inputs).map(|(p, v)| (p.name.to_string(), v.clone())).collect();
        let mut out = interp::run(&naive(&workload), &values, Mode::Declared).expect("a naive kernel runs");
        let y = out.remove("y").expect("the output is a parameter");
        let expected = reference_with_bounds(&workload, &views);
        if let Err(wrong) = expected.check(y) {
            let at: Vec<f64> = inputs.iter().map(|v| v[wrong.index % v.len()]).collect();
            panic!("{name} of {at:?}: {wrong}");
        }
        checked += 1;
    }
    assert!(checked > 40, "{checked} functions");
}
