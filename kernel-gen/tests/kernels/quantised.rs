//! Workloads on numbers of eight bits. Of integers interpreter, compiled C and reference are equal to the bit, wherever the result is an
//! integer; of floats they keep the bounds of sums in `f32`.
//!
//! CI takes a sample. `KERNEL_GEN_WORKLOADS=2000 cargo test --release -p kernel-gen --test kernels quantised::` runs the whole;
//! `KERNEL_GEN_SEED` moves on to other workloads.

use crate::checked::{self, in_f32};
use crate::cpu_templates::{self, Way};
use crate::drawn;
use crate::sweep::{for_each, number};
use kernel_gen::analysis::verify::verify;
use kernel_gen::emit::c::{COptions, Isa, emit};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::space::Config;
use kernel_gen::spec::Spec;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Template};
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Workload, naive, reference_with_bounds};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `count` random workloads on integers, or as many as are asked for, a third as many on floats, and a
/// quarter as many under 3x3 taps, on all processors.
fn of_each(count: u64, job: impl Fn(u64, Workload) + Sync) {
    let (first, count) = (number("KERNEL_GEN_SEED", 0), number("KERNEL_GEN_WORKLOADS", count));
    for_each(count as usize, |i| {
        let seed = first * count + i as u64;
        job(seed, sample::quantised(&mut Rng::new(seed)));
        if seed.is_multiple_of(3) {
            job(seed, sample::f8(&mut Rng::new(seed)));
        }
        if seed.is_multiple_of(4) {
            // A kind of its own, which few of the others are.
            job(seed, drawn::workload(24 * seed + 14));
        }
    });
}

#[test]
fn definitions_on_integers_are_exact_and_those_on_floats_keep_their_bounds() {
    of_each(200, |seed, workload| {
        assert_eq!(Workload::from_key(&workload.key()).as_ref(), Ok(&workload));
        let kernel = naive(&workload);
        let (inputs, params) = (sample::inputs(&workload, &mut Rng::new(seed)), workload.params());
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let expected = reference_with_bounds(&in_f32(&workload), &views);
        let values: Values = params.iter().zip(&inputs).map(|(p, values)| (p.name.into(), values.clone())).collect();
        let mut out = interp::run(&kernel, &values, Mode::Declared)
            .unwrap_or_else(|e| panic!("{}: {e}\n{kernel}", workload.key()));
        let out = out.remove(params.last().expect("the output").name).expect("the output");
        expected.check(out).unwrap_or_else(|m| panic!("{}: {m}\n{kernel}", workload.key()));
        let whole = expected.values.iter().all(|v| v.fract() == 0.0);
        assert!(whole || !workload.is_quantised() || workload.out_dtype.is_float(), "{}", workload.key());
    });
}

#[test]
fn every_template_on_eight_bits_is_right_on_cpus() {
    let (registry, seen) = (Registry::builtin(), Mutex::new(BTreeMap::<String, usize>::new()));
    let targets: Vec<&Target> = Target::all().iter().filter(|t| t.cpu().is_some()).collect();
    of_each(60, |seed, workload| {
        let target = targets[seed as usize % targets.len()];
        for template in registry.applicable(&workload, target) {
            let here = Isa::from_name(&target.name).is_some_and(Isa::runs_here);
            let default = template.default_config(&workload, target).expect("it applies");
            let space = template.space(&workload, target).expect("it applies");
            let another = space.sample(seed).map(|(_, config)| config).take(1);
            for config in [default].into_iter().chain(another) {
                cpu_templates::check(template, &workload, target, &config, seed, Way::Interpreted);
                if here {
                    cpu_templates::check(template, &workload, target, &config, seed, Way::Compiled);
                }
            }
            let way = if here { "compiled" } else { "interpreted" };
            *seen.lock().unwrap().entry(format!("{} {} {way}", target.name, template.name())).or_default() += 1;
        }
    });
    seen.into_inner().unwrap().iter().for_each(|(what, count)| println!("{count:5} {what}"));
}

/// Asserts that a config becomes C whose sums are all in tiles of registers.
fn sums_in_tiles(template: &dyn Template, workload: &Workload, target: &Target, config: &Config) {
    let of_config = format!("{} {config}", workload.key());
    let scheduled = template.schedule(workload, target, config).expect("a config of its space");
    let verified = verify(scheduled.schedule.kernel, &target.limits());
    let verified = verified.unwrap_or_else(|faults| panic!("{of_config}: {}", faults[0]));
    let lowered = lower(verified, &LowerOptions::cpu()).expect("a verified kernel");
    let options = COptions { isa: Isa::X86_64V4Amx, symbol: "kernel".into(), comment: String::new() };
    let source = emit(&lowered, &options).unwrap_or_else(|e| panic!("{of_config}: {e}")).source;
    assert!(source.contains("_tile_dpb") && !source.contains("dot4"), "{of_config}\n{source}");
}

/// Whatever the config, sums are tiles of registers; and they are right, on machines that have tiles in C as well.
#[test]
fn sums_in_tiles_of_registers_are_right() {
    let (registry, counts) = (Registry::builtin(), Mutex::new([0; 2]));
    let target = Target::find("x86-64-v4-amx").expect("a built-in target");
    let template = registry.find("integers_tiles").expect("a built-in template");
    let here = Isa::X86_64V4Amx.runs_here();
    of_each(120, |seed, workload| {
        if template.applies(&workload, target).is_err() {
            return;
        }
        let default = template.default_config(&workload, target).expect("it applies");
        let space = template.space(&workload, target).expect("it applies");
        for config in [default].into_iter().chain(space.sample(seed).map(|(_, config)| config).take(2)) {
            cpu_templates::check(template, &workload, target, &config, seed, Way::Interpreted);
            if here {
                cpu_templates::check(template, &workload, target, &config, seed, Way::Compiled);
            }
            sums_in_tiles(template, &workload, target, &config);
            counts.lock().unwrap()[usize::from(here)] += 1;
        }
    });
    let [interpreted, compiled] = counts.into_inner().unwrap();
    assert!(interpreted + compiled > 20, "hardly any workload was one for tiles");
    if !here {
        println!("[SKIP] this machine has no tiles of bytes: kernels were interpreted, not run");
    }
}

/// Of small kernels the verifier looks at each write; those of whole layers have to be shown by their form, and have ragged ends of whole
/// tiles.
#[test]
fn whole_layers_in_tiles_are_kernels_whatever_the_config() {
    let registry = Registry::builtin();
    let target = Target::find("x86-64-v4-amx").expect("a built-in target");
    let template = registry.find("integers_tiles").expect("a built-in template");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/int8_networks.toml");
    let spec = Spec::load(&path).unwrap_or_else(|faults| panic!("{}", faults[0]));
    let applies = |w: &Workload| template.applies(w, target).is_ok();
    let layers: Vec<_> = spec.workloads().map(|(_, w)| w.workload.clone()).filter(applies).collect();
    assert!(layers.len() > 50, "of {} layers hardly any is one for tiles", layers.len());
    let with_most = AtomicUsize::new(0);
    for_each(layers.len(), |i| {
        let space = template.space(&layers[i], target).expect("it applies");
        let mut configs = vec![template.default_config(&layers[i], target).expect("it applies")];
        configs.extend(space.sample(i as u64).map(|(_, config)| config).take(number("KERNEL_GEN_CONFIGS", 4) as usize));
        // Six sums, a whole tile of either operand, and fewer rows at the end.
        let most =
            Config::new().with("rows", 16).with("down", 6).with("vectors", 1).with("block", 1).with("run", "image");
        if space.index_of(&most).is_ok() {
            with_most.fetch_add(1, Ordering::Relaxed);
            configs.push(most);
        }
        for config in configs {
            sums_in_tiles(template, &layers[i], target, &config);
        }
    });
    assert!(with_most.into_inner() > 1, "no layer has a run of several rows");
}

#[test]
fn every_template_on_eight_bits_is_right_on_gpus() {
    let registry = Registry::builtin();
    of_each(30, |seed, workload| {
        let target = Target::find(["sm_75", "sm_80", "sm_90a"][seed as usize % 3]).expect("a built-in target");
        for template in registry.applicable(&workload, target) {
            let config = template.default_config(&workload, target).expect("it applies");
            checked::check(template, &workload, &target.name, &config.to_string());
        }
    });
}
