//! Kernels of as many images or rows as a launch says: for several numbers of them, the kernels of all templates, narrowed and lowered,
//! compute what they compute of the most, from tensors that have no more than that many, and the verifier passes it.
//!
//! CI takes a sample. `KERNEL_GEN_WORKLOADS=50 cargo test --release -p kernel-gen --test kernels narrow:: -- --nocapture` runs more.

use crate::{checked, cuda_templates, drawn, kinds, sweep};
use kernel_gen::analysis::verify::{Fault, verify};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::{DType, Kernel, visit};
use kernel_gen::lower::{Lowered, Units, Unlowered, lower_for, lower_units};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Matmul, Range, Role, Workload, operator_names};
use std::collections::{BTreeMap, BTreeSet};

/// What came of a template's kernels.
#[derive(Default, Debug)]
struct Seen {
    /// Those that were checked, and those of them that do less where there is less to do.
    checked: usize,
    shorter: usize,
    refused: BTreeMap<String, usize>,
}

fn output(kernel: &Kernel, workload: &Workload, values: &Values) -> Result<Vec<f64>, String> {
    let params = workload.params();
    let name = params.iter().find(|p| p.role == Role::Output).expect("every workload has an output").name;
    let mut outputs = interp::run(kernel, values, Mode::Declared).map_err(|e| e.to_string())?;
    outputs.remove(name).ok_or_else(|| "the output".into())
}

/// Checks a config for several numbers of units.
fn check(
    template: &dyn Template,
    (workload, range): &(Workload, Range),
    target: &Target,
    config: &Config,
    seed: u64,
    seen: &mut Seen,
) {
    let what = || format!("{} on {} for {} with {config} (seed {seed})", template.name(), workload.key(), target.name);
    let scheduled = template.schedule(workload, target, config).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let units = Units { most: range.most, params: range.params.clone() };
    let kernel = scheduled.schedule.kernel;
    let narrowed = match lower_units(kernel.clone(), target, Some(units)) {
        Ok(narrowed) => narrowed,
        Err(Unlowered::Pass(error)) => {
            *seen.refused.entry(error.to_string()).or_default() += 1;
            return;
        }
        Err(error) => panic!("{}: {error}", what()),
    };
    let inputs = sample::uneven_inputs(workload, &mut Rng::new(seed));
    let params = workload.params();
    let mut values: Values = params.iter().zip(&inputs).map(|(p, data)| (p.name.to_string(), data.clone())).collect();
    for pack in scheduled.packs {
        let own = pack.kernel.buffer(pack.kernel.params[0]).name.to_string();
        let given = Values::from([(own, values[&pack.param].clone())]);
        let packs = lower_for(pack.kernel, target).unwrap_or_else(|e| panic!("{}: {e}", what()));
        let mut packed = interp::run(packs.kernel(), &given, Mode::Declared).expect("it packs");
        values.insert(pack.param, packed.pop_first().expect("a kernel that packs has an output").1);
    }
    checked::in_words(workload, &kernel, &mut values);
    let all = lower_for(kernel, target).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let wanted = output(all.kernel(), workload, &values).unwrap_or_else(|e| panic!("{}: {e}", what()));
    // Two of four numbers in turn: a template's configs see them all.
    let two = [[1, range.most - 1], [range.most / 2, range.most]][seen.checked % 2];
    for units in two {
        let small = narrowed.kernel().clone().of_units(units);
        let part = |elements: usize| elements / range.most as usize * units as usize;
        let mut given = values.clone();
        for i in &range.params {
            if let Some(data) = given.get_mut(params[*i].name) {
                data.truncate(part(data.len()));
            }
        }
        let got = output(&small, workload, &given)
            .unwrap_or_else(|e| panic!("{}, {units} units: {e}\n{}", what(), narrow(&narrowed)));
        let same = got.iter().zip(&wanted).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
        assert!(
            got.len() == part(wanted.len()) && same,
            "{}: {units} units differ from the first of all\n{}",
            what(),
            narrow(&narrowed)
        );
        // As it is scheduled, which is what is verified of a kernel of one size.
        let scheduled = narrow(&narrowed).of_units(units);
        if let Err(faults) = verify(scheduled.clone(), &target.limits()) {
            let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
            panic!("{}, {units} units: {}\n{scheduled}", what(), faults.join("\n"));
        }
    }
    seen.checked += 1;
    let size = narrowed.kernel().size.as_ref().expect("it is narrowed");
    seen.shorter += usize::from(!size.first.is_empty());
}

/// The kernel behind the pass `narrow`.
fn narrow(lowered: &Lowered) -> Kernel {
    lowered.trace().swap_remove(0).kernel
}

fn report(seen: &BTreeMap<String, Seen>) {
    for (name, Seen { checked, shorter, refused }) in seen {
        println!("{name}: {checked} checked, {shorter} of them shorter, refused {refused:?}");
    }
}

#[test]
fn kernels_for_cuda_compute_the_units_that_there_are() {
    let count = sweep::number("KERNEL_GEN_WORKLOADS", 1);
    let first = sweep::number("KERNEL_GEN_SEED", 1);
    let registry = Registry::builtin();
    let [_, templates] = kinds::by_kind(&registry);
    let only = std::env::var("KERNEL_GEN_TEMPLATE").ok();
    let mut seen = BTreeMap::<String, Seen>::new();
    for template in templates {
        if only.as_ref().is_some_and(|name| name != template.name()) {
            continue;
        }
        let seen = seen.entry(template.name().to_string()).or_default();
        let mut taken = 0;
        for seed in first..first + 400 * count {
            let target = cuda_templates::target(seed);
            let workload = cuda_templates::workload_for(template.name(), seed);
            let Some(ranged) = Range::up_to(&workload, 3 + seed as i64 % 4) else { continue };
            if ranged.0.macs() > 400_000 || template.admits(&ranged.0, target).is_err() {
                continue;
            }
            let space = template.space(&ranged.0, target).expect("it applies");
            let default = template.default_config(&ranged.0, target).expect("it applies");
            let default = space.normalise(&default).expect("the default is in the space");
            check(template, &ranged, target, &default, seed, seen);
            for (_, config) in space.sample(seed).take(1) {
                check(template, &ranged, target, &config, seed, seen);
            }
            taken += 1;
            if taken == count {
                break;
            }
        }
    }
    report(&seen);
}

#[test]
fn kernels_for_cpus_compute_the_units_that_there_are() {
    let count = sweep::number("KERNEL_GEN_WORKLOADS", 40);
    let first = sweep::number("KERNEL_GEN_SEED", 1);
    let registry = Registry::builtin();
    let mut seen = BTreeMap::<String, Seen>::new();
    for seed in first..first + count {
        let target = Target::find(["x86-64-v3", "x86-64", "aarch64"][seed as usize % 3]).expect("a built-in target");
        let Some(ranged) = Range::up_to(&drawn::workload(seed), 3 + seed as i64 % 4) else { continue };
        if ranged.0.macs() > 400_000 {
            continue;
        }
        for template in registry.applicable(&ranged.0, target) {
            let space = template.space(&ranged.0, target).expect("it applies");
            let default = template.default_config(&ranged.0, target).expect("it applies");
            let default = space.normalise(&default).expect("the default is in the space");
            let seen = seen.entry(template.name().to_string()).or_default();
            check(template, &ranged, target, &default, seed, seen);
            for (_, config) in space.sample(seed).take(1) {
                check(template, &ranged, target, &config, seed, seen);
            }
        }
    }
    report(&seen);
}

/// Which operators have a number of images or rows that may vary.
#[test]
fn operators_that_have_units() {
    let none: Vec<&str> = operator_names()
        .filter(|name| (0..20).all(|seed| Range::up_to(&sample::of_operator(name, &mut Rng::new(seed)), 4).is_none()))
        .collect();
    println!("without units: {none:?}");
    assert!(none.len() < 10, "{none:?}");
}

/// Blocks that stay run only the rounds that have units.
#[test]
fn rounds_end_with_the_units() {
    let registry = Registry::builtin();
    let (template, target) = (registry.find("wgmma_gemm").unwrap(), Target::find("sm_90a").unwrap());
    let product = Workload { dtype: DType::F16, ..Workload::f32(Matmul::new(64, 2048, 512)) };
    // Strips of seven rows of tiles, of which the last may be in part; and 49 rows of tiles, column by column.
    for group in [8, 1] {
        let (workload, range) = Range::up_to(&product, 3136).expect("rows vary");
        let config = Config::parse(&format!(
            "consumers=2 row_blocks=1 bn=128 stages=4 group={group} cluster=none schedule=pingpong store=tma pending=1"
        ));
        let config = config.unwrap();
        let scheduled = template.schedule(&workload, target, &config).unwrap_or_else(|e| panic!("{config}: {e}"));
        let units = Units { most: range.most, params: range.params.clone() };
        let narrowed = lower_units(scheduled.schedule.kernel, target, Some(units)).expect("it is narrowed");
        let kernel = narrow(&narrowed);
        let size = kernel.size.as_ref().unwrap();
        let rounds = size.first.iter().filter(|(_, first)| first.by == 132).count();
        assert_eq!(rounds, 2, "each role has a loop over rounds\n{kernel}");
        for (rows, expected) in [(1, 1), (64, 1), (65 + 448, 2), (1000, 2), (3136, 6)] {
            let of = kernel.clone().of_units(rows);
            let found: BTreeSet<i64> = visit::loops(&of.body)
                .into_iter()
                .filter(|l| size.first.iter().any(|(var, first)| *var == l.var && first.by == 132))
                .map(|l| l.extent)
                .collect();
            assert_eq!(found, BTreeSet::from([expected]), "{rows} rows");
        }
    }
}
