//! Winograd convolutions on small and ragged shapes, with every tile size, register tile and way of cutting: the
//! interpreter and the compiled C against the f64 reference.

use crate::compiled;
use kernel_gen::analysis::verify::{Fault, verify};
use kernel_gen::emit::c::{self, COptions, Isa};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::Kernel;
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::cpu::winograd::Conv2dWinograd;
use kernel_gen::templates::{Scheduled, Template};
use kernel_gen::toolchain::harness::RunOptions;
use kernel_gen::workload::reference_with_bounds;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Epilogue, Math, Workload};

/// Runs a kernel on the values of its parameters but the last, and gives the last.
type Run<'a> = &'a dyn Fn(&Kernel, &[Vec<f64>]) -> Vec<f64>;

fn faults(faults: Vec<Fault>) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}

/// Runs the pack kernel and the kernel, each by `run`, which gives the last parameter.
fn with_packs(scheduled: &Scheduled, workload: &Workload, inputs: &[Vec<f64>], run: Run<'_>) -> Vec<f64> {
    let mut values = inputs.to_vec();
    for pack in &scheduled.packs {
        let i = workload.params().iter().position(|p| p.name == pack.param).expect("a parameter to pack");
        values[i] = run(&pack.kernel, &[values[i].clone()]);
    }
    run(&scheduled.schedule.kernel, &values)
}

fn interpreted(kernel: &Kernel, inputs: &[Vec<f64>]) -> Vec<f64> {
    let named = kernel.params.iter().zip(inputs).map(|(p, data)| (kernel.buffer(*p).name.clone(), data.clone()));
    let given: Values = named.collect();
    let output = &kernel.buffer(*kernel.params.last().expect("an output")).name;
    let mut outputs = interp::run(kernel, &given, Mode::Declared).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    outputs.remove(output).expect("the output")
}

fn executed(target: &Target, kernel: &Kernel, inputs: &[Vec<f64>]) -> Vec<f64> {
    let verified = verify(kernel.clone(), &target.limits()).unwrap_or_else(|f| panic!("{}\n{kernel}", faults(f)));
    let lowered = lower(verified, &LowerOptions::cpu()).expect("a kernel to lower");
    let isa = Isa::from_name(&target.name).expect("a CPU target");
    let options = COptions { isa, symbol: "kernel".into(), comment: String::new() };
    let source = c::emit(&lowered, &options).unwrap_or_else(|e| panic!("{e}\n{}", lowered.kernel()));
    let program = compiled::program(&source, lowered.kernel()).unwrap_or_else(|e| panic!("{e}"));
    let mut inputs = inputs.to_vec();
    inputs.push(vec![]);
    let outputs = program.run(&inputs, &RunOptions::default()).unwrap_or_else(|e| panic!("{e}\n{}", source.source));
    outputs.last().expect("the output").clone()
}

fn target(name: &str) -> &'static Target {
    Target::find(name).expect("a built-in target")
}

/// Small shapes: odd sizes, few and many channels, padding on some sides only, several images.
fn shapes() -> Vec<Workload> {
    let conv = |n, ci, h, w, co, padding: [i64; 4]| {
        Workload::f32(Conv2d { padding, ..Conv2d::nchw(n, ci, h, w, co, 3, 1, 1) })
    };
    vec![
        conv(1, 1, 5, 5, 1, [1; 4]),
        conv(2, 4, 7, 9, 5, [1; 4]).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]),
        conv(1, 3, 6, 13, 19, [0, 2, 1, 0]).with_epilogue(&[Epilogue::Bias, Epilogue::ResidualAdd, Epilogue::Relu]),
        conv(1, 20, 11, 4, 8, [2, 0, 2, 1]).with_epilogue(&[Epilogue::Scale]),
        conv(1, 5, 3, 3, 33, [0; 4]),
    ]
}

/// Small shapes of every other filter: of one row, of one column, larger, with stride 2, with unequal taps and strides.
fn other_filters() -> Vec<Workload> {
    let conv = |[n, ci, h, w, co]: [i64; 5], [kh, kw]: [i64; 2], stride, padding: [i64; 4]| {
        Workload::f32(Conv2d { kh, kw, stride, padding, ..Conv2d::nchw(n, ci, h, w, co, 3, 1, 1) })
    };
    vec![
        conv([1, 3, 9, 11, 5], [3, 3], [2, 2], [1; 4]).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]),
        conv([2, 17, 8, 7, 18], [3, 3], [2, 2], [0; 4]).with_epilogue(&[Epilogue::ResidualAdd]),
        conv([1, 4, 10, 12, 9], [3, 3], [1, 2], [0, 2, 1, 0]),
        conv([1, 6, 5, 17, 19], [1, 7], [1, 1], [0, 3, 0, 3]).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]),
        conv([1, 18, 13, 5, 7], [7, 1], [1, 1], [3, 0, 2, 0]).with_epilogue(&[Epilogue::Bias]),
        conv([1, 5, 11, 9, 17], [5, 5], [1, 1], [2; 4]).with_epilogue(&[Epilogue::Bias, Epilogue::Relu]),
        conv([1, 7, 8, 8, 20], [1, 3], [1, 1], [0, 1, 0, 1]),
        conv([1, 16, 8, 8, 16], [3, 1], [1, 1], [1, 0, 1, 0]).with_epilogue(&[Epilogue::ResidualAdd, Epilogue::Relu]),
        conv([1, 2, 9, 14, 6], [3, 7], [2, 1], [1, 3, 0, 2]),
    ]
}

/// The default and some random configs of a space, in the default class and in one that has all tile sizes.
fn check(workload: &Workload, target: &Target, seed: u64, configs: usize, compile: bool) {
    for math in [Math::Fp32, Math::Tf32] {
        let workload = &Workload { math, ..workload.clone() };
        let space = Conv2dWinograd.space(workload, target).expect("it applies");
        let default = Conv2dWinograd.default_config(workload, target).expect("it applies");
        let sampled = space.sample(seed).map(|(_, config)| config).take(configs);
        for config in std::iter::once(default).chain(sampled) {
            check_config(workload, target, &config, seed, compile);
        }
    }
}

fn check_config(workload: &Workload, target: &Target, config: &Config, seed: u64, compile: bool) {
    let what = || format!("{} for {} with {config}", workload.key(), target.name);
    let scheduled = Conv2dWinograd.schedule(workload, target, config).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let inputs = sample::inputs(workload, &mut Rng::new(seed));
    let compile_and_run = |kernel: &Kernel, inputs: &[Vec<f64>]| executed(target, kernel, inputs);
    let run: Run<'_> = if compile { &compile_and_run } else { &interpreted };
    let output = with_packs(&scheduled, workload, &inputs, run);
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    match Conv2dWinograd.reach(workload, config).reference(workload, &views).check(output) {
        Ok(share) => println!("{}: {share:.3} of the bound", what()),
        Err(mismatch) => panic!("{}: {mismatch}", what()),
    }
}

#[test]
fn every_cut_is_right_on_ragged_shapes() {
    for (seed, workload) in (1..).zip(shapes()) {
        for name in ["x86-64-v4", "x86-64-v3", "x86-64", "aarch64"] {
            check(&workload, target(name), seed, 2, false);
        }
    }
}

#[test]
fn every_filter_is_right_on_ragged_shapes() {
    for (seed, workload) in (1..).zip(other_filters()) {
        for name in ["x86-64-v4", "x86-64-v3", "aarch64"] {
            check(&workload, target(name), seed, 2, false);
        }
    }
}

#[test]
fn blocked_and_channels_last_layouts_are_right() {
    for layout in [ConvLayout::Nhwc, ConvLayout::NchwC(16)] {
        for (kh, kw, stride) in [(3, 3, 1), (3, 3, 2), (1, 7, 1)] {
            let padding = [kh / 2, kw / 2, kh / 2, kw / 2];
            let conv = Conv2d { layout, kh, kw, padding, ..Conv2d::nchw(1, 16, 6, 5, 32, 3, stride, 1) };
            let workload = Workload::f32(conv).with_epilogue(&[Epilogue::Bias, Epilogue::ResidualAdd]);
            for name in ["x86-64-v4", "x86-64-v3"] {
                check(&workload, target(name), 3, 1, false);
            }
        }
    }
}

/// Compiling takes its time: each shape at one of the levels that run here.
fn check_compiled(workloads: Vec<Workload>) {
    let levels = ["x86-64-v4", "x86-64-v3", "x86-64", "aarch64"];
    let here: Vec<&str> = levels.into_iter().filter(|n| Isa::from_name(n).is_some_and(Isa::runs_here)).collect();
    assert!(!here.is_empty(), "no level of {levels:?} runs here");
    for (seed, workload) in (1..).zip(workloads) {
        check(&workload, target(here[seed as usize % here.len()]), seed, 1, true);
    }
}

#[test]
fn compiled_kernels_are_right() {
    check_compiled(shapes());
}

#[test]
fn compiled_kernels_of_every_other_filter_are_right() {
    check_compiled(other_filters());
}

/// A corner's own window has few pixels, its tile many, and with few channels nothing else makes up for that: rounding of the
/// tile's other pixels is more than the bound of a sum of the output's own products.
#[test]
fn outputs_of_few_terms_have_the_error_of_their_tile() {
    for (key, level, config, seed) in [
        (
            "conv2d-nchw-f32-n1c1h14w2-o8k3x3-s1x1-p1.2.1.2-d1x1-g1",
            "x86-64",
            "m=4 tile_rows=2 rows=2 nv=2 groups=1",
            7_000_100_032,
        ),
        (
            "conv2d-nchw-f32-n3c1h13w3-o19k3x3-s1x1-p2.2.2.2-d1x1-g1-gelu",
            "x86-64",
            "m=4 tile_rows=1 rows=2 nv=5 groups=1",
            7_000_300_012,
        ),
        (
            "conv2d-nchw-f32-n3c1h13w3-o19k3x3-s1x1-p2.2.2.2-d1x1-g1-gelu",
            "x86-64-v3",
            "m=4 tile_rows=2 rows=4 nv=3 groups=1",
            7_000_300_012,
        ),
    ] {
        let workload = Workload::from_key(key).expect("a workload");
        let config = Config::parse(config).expect("a config");
        let scheduled = Conv2dWinograd.schedule(&workload, target(level), &config).expect("a config of the space");
        let inputs = sample::inputs(&workload, &mut Rng::new(seed));
        let output = with_packs(&scheduled, &workload, &inputs, &interpreted);
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let own = reference_with_bounds(&workload, &views);
        assert!(
            own.check(output.iter().copied()).is_err(),
            "{key}: its own products bound the error, which shows nothing"
        );
        let reach = Conv2dWinograd.reach(&workload, &config);
        reach.reference(&workload, &views).check(output).unwrap_or_else(|mismatch| panic!("{key}: {mismatch}"));
    }
}

#[test]
fn a_config_of_another_class_or_cut_is_refused_by_name() {
    let fp32 = Workload::f32(Conv2d::nchw(1, 8, 8, 8, 16, 3, 1, 1));
    let refused = |text: &str| {
        let config = Config::parse(text).expect("a config");
        Conv2dWinograd.schedule(&fp32, target("x86-64-v4"), &config).expect_err("not of the space").to_string()
    };
    assert_eq!(
        refused("m=6 tile_rows=1 rows=2 nv=1 groups=1"),
        "F(6x6, 3x3) is not of the class `fp32`; there are m = [2, 4]"
    );
    assert!(refused("m=2 tile_rows=3 rows=2 nv=1 groups=1").contains("tile_rows=3"));
}

#[test]
fn the_precision_class_decides_the_tile_sizes() {
    let fp32 = Workload::f32(Conv2d::nchw(1, 64, 56, 56, 64, 3, 1, 1));
    let v4 = target("x86-64-v4");
    let sizes = |w: &Workload| {
        let space = Conv2dWinograd.space(w, v4).expect("it applies");
        let mut sizes: Vec<i64> = space.sample(1).take(200).map(|(_, c)| c.int("m").expect("a knob")).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    };
    for math in [Math::Strict, Math::Local] {
        let why = Conv2dWinograd.applies(&Workload { math, ..fp32.clone() }, v4).expect_err("it is not local");
        assert!(why.contains("depends on operands of its neighbours"), "{why}");
    }
    assert_eq!(sizes(&fp32), [2, 4]);
    assert_eq!(sizes(&Workload { math: Math::Tf32, ..fp32 }), [2, 4, 6]);
}
