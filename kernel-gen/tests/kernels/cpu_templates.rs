//! Every CPU template on random workloads with random configs: the scheduled kernel, run by the interpreter in the
//! declared precision, and the compiled C stay within the derived bound of the f64 reference.
//!
//! CI takes a sample. `KERNEL_GEN_WORKLOADS=300 cargo test --release -p kernel-gen --test kernels cpu_templates::` runs the whole;
//! `KERNEL_GEN_SEED` moves on to other workloads.

use crate::checked::{self, in_f32};
use crate::compiled;
use crate::drawn;
use crate::kinds;
use crate::sweep;
use kernel_gen::analysis::verify::{Fault, verify};
use kernel_gen::emit::c::{self, COptions, Isa};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::bits::f16_value;
use kernel_gen::ir::{BufferId, DType, Kernel};
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::{Registry, Scheduled, Template};
use kernel_gen::toolchain::harness::RunOptions;
use kernel_gen::toolchain::values::words;
use kernel_gen::workload::epilogue::Number;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, Epilogue, Math, Matmul, Param, Role, Workload};
use std::collections::BTreeMap;

/// Runs a scheduled kernel, packing what it wants packed, and gives its output.
fn interpret(scheduled: &Scheduled, workload: &Workload, inputs: &[Vec<f64>]) -> Result<Vec<f64>, String> {
    let params = workload.params();
    let mut values: Values = params.iter().zip(inputs).map(|(p, data)| (p.name.to_string(), data.clone())).collect();
    for pack in &scheduled.packs {
        let kernel = &pack.kernel;
        let [from, to] = kernel.params[..] else { return Err("a pack kernel has two parameters".into()) };
        let original = values.remove(&pack.param).ok_or("a pack names a parameter")?;
        let given = Values::from([(kernel.buffer(from).name.clone(), original)]);
        let mut packed = interp::run(kernel, &given, Mode::Declared).map_err(|e| format!("pack: {e}\n{kernel}"))?;
        let packed = packed.remove(&kernel.buffer(to).name).ok_or("the packed tensor")?;
        values.insert(pack.param.clone(), packed);
    }
    let kernel = &scheduled.schedule.kernel;
    checked::in_words(workload, kernel, &mut values);
    let mut outputs = interp::run(kernel, &values, Mode::Declared).map_err(|e| format!("{e}\n{kernel}"))?;
    let output = params.iter().find(|p| p.role == Role::Output).ok_or("an output")?;
    outputs.remove(output.name).ok_or("the output".into())
}

/// Whether a kernel reads a parameter's bytes in words.
fn takes_words(kernel: &Kernel, place: BufferId, p: &Param) -> bool {
    p.role == Role::Input && kernel.buffer(place).dtype.is_word()
}

/// Compiles a scheduled kernel and its pack kernels, runs them in a checked process, and gives the output. Inputs may end with what
/// an output holds that is not written everywhere.
pub(crate) fn execute(
    scheduled: &Scheduled,
    workload: &Workload,
    target: &Target,
    inputs: &[Vec<f64>],
) -> Result<Vec<f64>, String> {
    let isa = Isa::from_name(&target.name).ok_or("a CPU target")?;
    let run = |kernel: &Kernel, inputs: &[Vec<f64>]| -> Result<Vec<f64>, String> {
        let faults = |faults: Vec<Fault>| faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n");
        let verified = verify(kernel.clone(), &target.limits()).map_err(|f| format!("{}\n{kernel}", faults(f)))?;
        let lowered = lower(verified, &LowerOptions::cpu()).map_err(|e| e.to_string())?;
        let options = COptions { isa, symbol: "kernel".into(), comment: String::new() };
        let source = c::emit(&lowered, &options).map_err(|e| format!("{e}\n{}", lowered.kernel()))?;
        let program = compiled::program(&source, lowered.kernel()).map_err(|e| e.to_string())?;
        let outputs = program.run(inputs, &RunOptions::default()).map_err(|e| format!("{e}\n{}", source.source))?;
        outputs.last().cloned().ok_or_else(|| "an output".into())
    };
    let mut values = inputs.to_vec();
    for pack in &scheduled.packs {
        let i = workload.params().iter().position(|p| p.name == pack.param).ok_or("a pack names a parameter")?;
        values[i] = run(&pack.kernel, &[values[i].clone(), vec![]]).map_err(|e| format!("pack: {e}"))?;
    }
    let kernel = &scheduled.schedule.kernel;
    for (i, p) in workload.params().iter().enumerate().filter(|(i, p)| takes_words(kernel, kernel.params[*i], p)) {
        values[i] = words(p.dtype, &values[i]);
    }
    values.resize(workload.params().len(), vec![]);
    run(&scheduled.schedule.kernel, &values)
}

/// How a kernel is run.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Way {
    Interpreted,
    Compiled,
}

pub(crate) fn check(
    template: &dyn Template,
    workload: &Workload,
    target: &Target,
    config: &Config,
    seed: u64,
    way: Way,
) {
    let inputs = sample::uneven_inputs(workload, &mut Rng::new(seed));
    check_on(template, workload, target, config, &inputs, way);
}

fn check_on(
    template: &dyn Template,
    workload: &Workload,
    target: &Target,
    config: &Config,
    inputs: &[Vec<f64>],
    way: Way,
) {
    let what = || format!("{} on {} for {} with {config}", template.name(), workload.key(), target.name);
    let scheduled = template.schedule(workload, target, config).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let output = match way {
        Way::Interpreted => interpret(&scheduled, workload, inputs),
        Way::Compiled => execute(&scheduled, workload, target, inputs),
    };
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", what()));
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    if let Err(mismatch) = template.reach(workload, config).reference(&in_f32(workload), &views).check(output) {
        panic!("{}: {mismatch}\n{}", what(), scheduled.schedule.kernel);
    }
}

/// Every template that applies, with its default and a few random configs, on `count` workloads, on all processors.
fn sweep_templates(count: u64, configs: usize, way: Way, targets: &[&str]) {
    let count = sweep::number("KERNEL_GEN_WORKLOADS", count);
    let first = sweep::number("KERNEL_GEN_SEED", 1);
    let last = first + count;
    let registry = Registry::builtin();
    let sweep_every = &|processors: usize, first: u64| {
        let mut checked = BTreeMap::<String, usize>::new();
        for seed in (first..last).step_by(processors) {
            let workload = drawn::workload(seed);
            let target = Target::find(targets[seed as usize % targets.len()]).expect("a built-in target");
            for template in registry.applicable(&workload, target) {
                // Half of the workloads have operands that differ in magnitude, as far as the template has a class for them.
                let local = Workload { math: Math::Local, ..workload.clone() };
                let takes = seed.is_multiple_of(2) && template.admits(&local, target).is_ok();
                let workload = if takes { local } else { workload.clone() };
                let space = template.space(&workload, target).expect("it applies");
                let default = template.default_config(&workload, target).expect("it applies");
                let default = space
                    .normalise(&default)
                    .unwrap_or_else(|e| panic!("{} {} {}: {e}", template.name(), workload.key(), target.name));
                check(template, &workload, target, &default, seed, way);
                for (_, config) in space.sample(seed).take(configs) {
                    check(template, &workload, target, &config, seed, way);
                }
                *checked.entry(template.name().to_string()).or_default() += 1;
            }
        }
        checked
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut checked = BTreeMap::<String, usize>::new();
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (first..).take(processors).map(|first| scope.spawn(move || sweep_every(processors, first))).collect();
        for (name, count) in running.into_iter().flat_map(|thread| thread.join().expect("all kernels are right")) {
            *checked.entry(name).or_default() += count;
        }
    });
    println!("workloads by template: {checked:?}");
    let [cpu, _] = kinds::by_kind(&registry);
    // `quantised` looks at what levels for integers alone have.
    let here = cpu.iter().map(|t| t.name()).filter(|name| *name != "integers_tiles");
    let missed: Vec<&str> = here.clone().filter(|name| !checked.contains_key(*name)).collect();
    assert!(missed.is_empty(), "no workload reached {missed:?}");
    assert_eq!(checked.len(), here.count(), "{checked:?}");
}

/// Nothing is run here, so it looks at more workloads than the tests below.
#[test]
fn defaults_are_configs_of_their_space() {
    let registry = Registry::builtin();
    let targets = ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"].map(|t| Target::find(t).expect("a built-in target"));
    for seed in 1..=250 {
        let workload = drawn::workload(seed);
        for target in targets {
            for template in registry.applicable(&workload, target) {
                let what = || format!("{} {} {} (seed {seed})", template.name(), workload.key(), target.name);
                let space = template.space(&workload, target).unwrap_or_else(|e| panic!("{}: {e}", what()));
                let default = template.default_config(&workload, target).unwrap_or_else(|e| panic!("{}: {e}", what()));
                if let Err(e) = space.normalise(&default) {
                    panic!("{}: {e}", what());
                }
            }
        }
    }
}

#[test]
fn scheduled_kernels_equal_the_reference() {
    sweep_templates(32, 2, Way::Interpreted, &["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"]);
}

#[test]
fn compiled_kernels_equal_the_reference() {
    let here: Vec<&str> = ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"]
        .into_iter()
        .filter(|t| Isa::from_name(t).is_some_and(Isa::runs_here))
        .collect();
    println!("levels that run here: {here:?}");
    sweep_templates(16, 1, Way::Compiled, &here);
}

/// Few channels, padding on some sides only, strides, dilation, tails of rows, of pixels and of channels.
fn ragged() -> Vec<Workload> {
    let conv = |[n, ci, h, w, co]: [i64; 5], [kh, kw]: [i64; 2], stride, padding: [i64; 4], dilation| {
        Workload::f32(Conv2d { kh, kw, stride, padding, dilation, ..Conv2d::nchw(n, ci, h, w, co, 3, 1, 1) })
    };
    let all = [Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu];
    vec![
        conv([1, 3, 7, 7, 17], [3, 3], [1, 1], [1; 4], [1, 1]).with_epilogue(&all),
        conv([2, 5, 14, 14, 20], [3, 3], [2, 2], [1; 4], [1, 1]).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]),
        conv([1, 3, 23, 37, 10], [7, 7], [2, 2], [3; 4], [1, 1]).with_epilogue(&[Epilogue::Bias, Epilogue::Relu6]),
        conv([1, 2, 9, 35, 16], [3, 3], [1, 1], [0, 1, 2, 0], [1, 1]).with_epilogue(&all),
        conv([1, 4, 11, 21, 9], [3, 2], [1, 1], [2, 0, 1, 3], [2, 3]),
        conv([2, 1, 8, 50, 5], [5, 3], [2, 3], [1, 2, 0, 1], [1, 2]).with_epilogue(&[Epilogue::Scale]),
        // Farther out there is nothing but padding.
        conv([1, 3, 4, 5, 6], [2, 2], [1, 1], [3, 0, 0, 3], [1, 1]).with_epilogue(&[Epilogue::Bias]),
    ]
}

fn on_ragged_shapes(way: Way, configs: usize, targets: &[&str]) {
    let registry = Registry::builtin();
    let mut checked = 0;
    for (seed, workload) in (1..).zip(ragged()) {
        for (name, target) in ["conv2d_skip", "conv2d_pixels"].iter().flat_map(|n| targets.iter().map(move |t| (n, t)))
        {
            let target = Target::find(target).expect("a built-in target");
            let template = registry.find(name).expect("a built-in template");
            if template.admits(&workload, target).is_err() {
                continue;
            }
            let space = template.space(&workload, target).expect("it applies");
            let default = template.default_config(&workload, target).expect("it applies");
            let sampled = space.sample(seed).map(|(_, config)| config).take(configs);
            for config in std::iter::once(default).chain(sampled) {
                check(template, &workload, target, &config, seed, way);
                checked += 1;
            }
        }
    }
    // All of the shapes have padding; most have rows of a vector.
    assert!(checked > 7 * targets.len() * configs, "{checked} configs were checked");
}

#[test]
fn skipped_taps_and_rows_of_pixels_are_right_on_ragged_shapes() {
    on_ragged_shapes(Way::Interpreted, 3, &["x86-64", "x86-64-v3", "x86-64-v4"]);
    let here = Isa::from_name("x86-64-v4").filter(|isa| isa.runs_here()).map_or("x86-64", |_| "x86-64-v4");
    if Isa::from_name(here).is_some_and(Isa::runs_here) {
        on_ragged_shapes(Way::Compiled, 1, &[here]);
    }
}

/// Every activation at numbers of all magnitudes and of both signs, in every template that takes a product of one term: what C's
/// functions and the interpreter's `f32` make of them stays within the derived bound.
#[test]
fn activations_keep_their_bounds_at_every_magnitude() {
    let number = |n: f32| Number::new(n).expect("finite");
    let held =
        [Epilogue::Elu(number(-0.3)), Epilogue::LeakyRelu(number(1.5)), Epilogue::Clip(number(0.5), number(0.5))];
    let target = Target::find("x86-64").expect("built in");
    let registry = Registry::builtin();
    let near = (-400..=400).map(|i| f64::from(i) / 16.0);
    let far = (-126..=127).flat_map(|e| [1.25, -1.75].map(|m: f64| m * f64::from(e).exp2()));
    let column: Vec<f64> = near.chain(far).map(|x| f64::from(x as f32)).collect();
    let inputs = [vec![1.0], column.clone()];
    for step in Epilogue::ALL.into_iter().chain(held).filter(|step| step.is_activation()) {
        let workload = Workload::f32(Matmul::new(1, column.len() as i64, 1)).with_epilogue(&[step]);
        for template in registry.applicable(&workload, target) {
            let config = template.default_config(&workload, target).expect("it applies");
            for way in [Way::Interpreted, Way::Compiled] {
                check_on(template, &workload, target, &config, &inputs, way);
            }
        }
    }
}

#[test]
fn the_error_function_ends_at_one() {
    let registry = Registry::builtin();
    let template = registry.find("plain").expect("built in");
    let far = [4.2f32, 4.3, 5.0, 27.0, 1e4, 3e38, f32::INFINITY, 1e9].map(f64::from);
    for target in ["x86-64", "x86-64-v3", "x86-64-v4"] {
        if !Isa::from_name(target).is_some_and(Isa::runs_here) {
            println!("[SKIP] no {target}");
            continue;
        }
        let target = Target::find(target).expect("built in");
        let of = |key: &str, numbers: &[f64]| {
            let workload = Workload::from_key(key).unwrap_or_else(|e| panic!("{key}: {e}"));
            let config = template.default_config(&workload, target).expect("it applies");
            let scheduled = template.schedule(&workload, target, &config).expect("its default");
            execute(&scheduled, &workload, target, &[numbers.to_vec()]).expect("it runs")
        };
        let both: Vec<f64> = far.iter().flat_map(|x| [*x, -x]).collect();
        let erf = of("erf-f32-16", &both);
        assert!(erf.iter().zip(&both).all(|(y, x)| *y == x.signum()), "{}: {erf:?}", target.name);
        // What GELU leaves of a large negative number is nothing.
        let finite: Vec<f64> =
            both.iter().copied().filter(|x| (6.0..1e10).contains(&x.abs())).chain([-6.5, -7.5, -8.0, 8.0]).collect();
        let negated: Vec<f64> = finite.iter().map(|x| -x).collect();
        let gelu = of(&format!("negate-f32-{}-gelu", finite.len()), &negated);
        assert!(gelu.iter().zip(&finite).all(|(y, x)| *y == x.max(0.0)), "{}: {gelu:?}", target.name);
    }
}

/// Each float of 16 bits to one of 32 and back, with what lies between it and the next: in the middle, and beside the middle.
#[test]
fn every_float_of_16_bits_is_converted_exactly() {
    let registry = Registry::builtin();
    let template = registry.find("plain").expect("built in");
    let bf16 = |bits: u16| f32::from_bits(u32::from(bits) << 16);
    let widened = [(DType::F16, f16_value as fn(u16) -> f32), (DType::Bf16, bf16)];
    for target in ["portable", "x86-64", "x86-64-v3", "x86-64-v4", "aarch64"] {
        let Some(target) = Target::find(target).filter(|t| Isa::from_name(&t.name).is_some_and(Isa::runs_here)) else {
            println!("[SKIP] no {target}");
            continue;
        };
        // An odd number, for a part of a vector at the end.
        let of = |from: DType, to: DType, numbers: &[f32]| {
            let key = format!("identity-{from}.{to}-{}", numbers.len());
            let workload = Workload::from_key(&key).unwrap_or_else(|e| panic!("{key}: {e}"));
            let config = template.default_config(&workload, target).expect("it applies");
            let scheduled = template.schedule(&workload, target, &config).expect("its default");
            let numbers: Vec<f64> = numbers.iter().map(|&x| x.into()).collect();
            let converted = execute(&scheduled, &workload, target, &[numbers]).expect("it runs");
            converted.into_iter().map(|x| x as f32).collect::<Vec<_>>()
        };
        for (dtype, value) in widened {
            let all: Vec<f32> = (0..=u16::MAX).chain([1]).map(value).filter(|x| !x.is_nan()).collect();
            let same =
                |a: &[f32], b: &[f32]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
            let wide = of(dtype, DType::F32, &all);
            assert!(same(&wide, &all), "{} {dtype}", target.name);
            assert!(same(&of(DType::F32, dtype, &all), &all), "{} {dtype}", target.name);
            // Neighbours in size are neighbours as bits. The middle goes to the one whose last bit is 0.
            let largest = (0..i16::MAX as u16).rev().find(|&bits| value(bits).is_finite()).expect("a number");
            let middle = |bits: u16| ((f64::from(value(bits)) + f64::from(value(bits + 1))) / 2.0) as f32;
            let (mut numbers, mut expected) = (vec![], vec![]);
            for bits in 0..largest {
                let (low, high, middle) = (value(bits), value(bits + 1), middle(bits));
                let even = if bits % 2 == 0 { low } else { high };
                let around = [(middle.next_down(), low), (middle, even), (middle.next_up(), high)];
                for (x, rounded) in around {
                    numbers.extend([x, -x]);
                    expected.extend([rounded, -rounded]);
                }
            }
            let narrowed = of(DType::F32, dtype, &numbers);
            for ((x, is), expected) in numbers.iter().zip(&narrowed).zip(&expected) {
                assert_eq!(is.to_bits(), expected.to_bits(), "{} {dtype}: {x:e} is {is:e}", target.name);
            }
            // Around the middle between the largest and what would come next, which is infinite.
            let step = f64::from(value(largest)) - f64::from(value(largest - 1));
            let end = (f64::from(value(largest)) + step / 2.0) as f32;
            let ends = of(DType::F32, dtype, &[end.next_down(), end, -end.next_down(), -end]);
            let last = value(largest);
            assert_eq!(ends, [last, f32::INFINITY, -last, f32::NEG_INFINITY], "{} {dtype}", target.name);
            // Beyond the largest, and NaN of all kinds.
            let infinite = of(DType::F32, dtype, &[f32::MAX, -f32::MAX, f32::INFINITY, f32::NEG_INFINITY]);
            assert!(infinite.iter().all(|x| x.is_infinite()), "{}: {infinite:?}", target.name);
            let nans =
                [0x7fc0_0000, 0x7f80_0001, 0x7fff_ffff, 0xffc0_0000, 0xff80_0001, 0xffff_ffff].map(f32::from_bits);
            let nan = of(DType::F32, dtype, &nans);
            assert!(nan.iter().all(|x| x.is_nan()), "{} {dtype}: {nan:?}", target.name);
        }
    }
}

/// Rows shorter and longer than the vectors that are summed up at a time, and windows of all strides beside the padding, in all types.
fn on_operators_without_products(way: Way, count: u64, targets: &[&str]) {
    const NAMES: [&str; 14] = [
        "softmax",
        "log_softmax",
        "layer_norm",
        "rms_norm",
        "group_norm",
        "reduce_sum",
        "reduce_mean",
        "reduce_max",
        "reduce_log_sum_exp",
        "max_pool2d",
        "avg_pool2d",
        "max_pool1d",
        "avg_pool1d",
        "resize_bilinear",
    ];
    let registry = Registry::builtin();
    let mut checked = BTreeMap::<&str, usize>::new();
    for (name, seed) in NAMES.iter().flat_map(|name| (1..=count).map(move |seed| (name, seed))) {
        let workload = sample::of_operator(name, &mut Rng::new(1000 + seed));
        let target = Target::find(targets[seed as usize % targets.len()]).expect("a built-in target");
        for template in ["rows_cpu", "windows_cpu", "resize_cpu"] {
            let found = registry.find(template).expect("a built-in template");
            if found.admits(&workload, target).is_ok() {
                let space = found.space(&workload, target).expect("it applies");
                let default = found.default_config(&workload, target).expect("it applies");
                let sampled = space.sample(seed).map(|(_, config)| config).take(1);
                for config in std::iter::once(default).chain(sampled) {
                    check(found, &workload, target, &config, seed, way);
                }
                *checked.entry(template).or_default() += 1;
            }
        }
    }
    assert!(checked.len() == 3 && checked.values().all(|n| *n > count as usize / 3), "{checked:?}");
}

#[test]
fn operators_without_products_are_right_at_tails_and_edges() {
    on_operators_without_products(Way::Interpreted, 12, &["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"]);
    let here: Vec<&str> = ["x86-64", "x86-64-v3", "x86-64-v4"]
        .into_iter()
        .filter(|t| Isa::from_name(t).is_some_and(Isa::runs_here))
        .collect();
    if !here.is_empty() {
        on_operators_without_products(Way::Compiled, 4, &here);
    }
}
