//! What holds for every operator of the list, without a line that names one: its definition computes what its reference does, every
//! template that takes it does too, and keys read back.
//!
//! CI takes a sample. `KERNEL_GEN_WORKLOADS=1000 cargo test --release -p kernel-gen --test kernels operators::` draws as many of each.

use crate::checked;
use crate::cpu_templates::{self, Way};
use crate::naive_kernels;
use crate::sweep::{for_each, number};
use kernel_gen::emit::c::Isa;
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Workload, naive, operator_names, reference_with_bounds};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The random workload of that number of an operator.
fn drawn(name: &str, i: u64) -> Workload {
    sample::of_operator(
        name,
        &mut Rng::new(name.bytes().fold(i, |seed, byte| seed.wrapping_mul(257) + u64::from(byte))),
    )
}

/// `count` random workloads of each operator, or as many as are asked for, numbered through, on all processors.
fn of_each_operator(count: u64, job: impl Fn(u64, &str, Workload) + Sync) {
    let names: Vec<&str> = operator_names().collect();
    let of_all = names.len() as u64;
    let (first, count) = (of_all * number("KERNEL_GEN_SEED", 0), of_all * number("KERNEL_GEN_WORKLOADS", count));
    for_each(count as usize, |i| {
        let i = first + i as u64;
        let name = names[(i % of_all) as usize];
        job(i, name, drawn(name, i / of_all));
    });
}

#[test]
fn definitions_compute_what_references_do() {
    of_each_operator(24, |i, name, workload| {
        naive_kernels::check(&workload, i);
        assert_eq!(Workload::from_key(&workload.key()).as_ref(), Ok(&workload));
        assert_eq!(workload.op_name(), name);
    });
}

/// Every template that takes a workload, with its default, for one target after the other: what was seen of each operator.
fn on_templates(
    count: u64,
    targets: &[&str],
    plain: &str,
    check: impl Fn(u64, &dyn Template, &Workload, &Target, &Config) + Sync,
) {
    let (registry, seen) = (Registry::builtin(), Mutex::new(BTreeMap::<String, BTreeMap<String, usize>>::new()));
    of_each_operator(count, |i, name, workload| {
        let target = Target::find(targets[i as usize % targets.len()]).expect("a built-in target");
        for template in registry.applicable(&workload, target) {
            let config = template.default_config(&workload, target).expect("it applies");
            check(i, template, &workload, target, &config);
            let mut seen = seen.lock().unwrap();
            *seen.entry(name.into()).or_default().entry(template.name().into()).or_default() += 1;
        }
    });
    let seen = seen.into_inner().unwrap();
    seen.iter().for_each(|(name, templates)| println!("{name}: {templates:?}"));
    println!("{} kernels", seen.values().flat_map(BTreeMap::values).sum::<usize>());
    assert!(operator_names().all(|name| seen[name].contains_key(plain)), "{seen:?}");
}

/// The interpreter runs all of them, and this machine's compiler one workload in fifteen.
#[test]
fn every_operator_is_right_on_cpus() {
    on_templates(
        4,
        &["x86-64-v3", "x86-64", "aarch64", "x86-64-v4"],
        "plain",
        |i, template, workload, target, config| {
            cpu_templates::check(template, workload, target, config, i, Way::Interpreted);
            let here = Isa::from_name(&target.name).is_some_and(Isa::runs_here);
            if i.is_multiple_of(15) && here {
                cpu_templates::check(template, workload, target, config, i, Way::Compiled);
            }
        },
    );
}

#[test]
fn every_operator_is_right_on_gpus() {
    on_templates(4, &["sm_80", "sm_90a"], "plain_cuda", |_, template, workload, target, config| {
        checked::check(template, workload, &target.name, &config.to_string());
    });
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

/// Kernels that once read memory in front of a tensor or behind it, in lanes that were not taken.
const ONCE_OUTSIDE: [(&str, &str, &str, &str); 4] = [
    // The other arm of a choice by lanes.
    ("x86-64-v3", "concat-f32-1x5-7x7-a1", "sketch", "vectors=1"),
    ("x86-64-v3", "concat-f32-2x3-9x4-a1", "sketch", "vectors=1"),
    // A row of pixels that several taps share, of a line that only some blocks have above them.
    (
        "x86-64-v3",
        "depthwise_pointwise-nchw-f32-n3c5h13w23-o19k2x5-s2x2-p1.2.2.1-d1x1-dw.bias-selu_1p6732632_1p050701.multiply.scale",
        "depthwise_pointwise",
        "rows=2 parts=1 lanes=pixels mr=4 nv=3",
    ),
    // A masked load that the compiler made one of all lanes.
    ("x86-64-v4", "pad_reflect-f32-11x17-b0x2-a2x1-gelu.multiply.silu", "sketch", "vectors=1"),
];

#[test]
fn vectors_read_nothing_outside_of_their_tensors() {
    let registry = Registry::builtin();
    for (target, key, template, config) in ONCE_OUTSIDE {
        let target = Target::find(target).expect("a built-in target");
        if !Isa::from_name(&target.name).is_some_and(Isa::runs_here) {
            println!("[SKIP] no {}", target.name);
            continue;
        }
        let workload = Workload::from_key(key).unwrap_or_else(|e| panic!("{key}: {e}"));
        let template = registry.find(template).expect("a built-in template");
        let config = Config::parse(config).expect("a config");
        cpu_templates::check(template, &workload, target, &config, 1, Way::Compiled);
    }
}
