//! Schedules by rules, for kernels that a user declares: with the default and with random configs of the space that the rules
//! derive, the scheduled and the lowered kernel pass the verifier and compute what the declared kernel does. The defaults for
//! CPUs are compiled and run as well. (Kernels of workloads: `cpu_templates.rs`, `cuda_templates.rs`.)

use crate::compiled;
use kernel_gen::analysis::verify::{Fault, check, verify};
use kernel_gen::emit::c::{self, COptions, Isa};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::{Access, BinOp, BufferId, DType, Expr, Kernel, ReduceOp, Scope, Stmt, UnOp, VarId};
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::{LowerOptions, Lowered, lower};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::sketch::Sketch;
use kernel_gen::toolchain::harness::RunOptions;
use kernel_gen::workload::sample::Rng;

/// Random configs of each kernel on each target.
fn configs() -> usize {
    std::env::var("KERNEL_GEN_CONFIGS").ok().and_then(|n| n.parse().ok()).unwrap_or(4)
}

fn f32(b: &mut KernelBuilder, name: &str, shape: &[i64], access: Access) -> BufferId {
    b.param(name, DType::F32, shape, access)
}

/// The largest of the values over some loops.
fn largest(b: &mut KernelBuilder, buffer: BufferId, indices: Vec<Expr>, value: Expr, over: &[VarId]) {
    let (op, init) = (ReduceOp::Max, Expr::f32(f64::NEG_INFINITY));
    b.push(Stmt::Reduce { buffer, indices, op, init, value, over: over.to_vec() });
}

/// A product that sums straight into its result.
fn product() -> Kernel {
    let mut b = KernelBuilder::new("product");
    let (x, w) = (f32(&mut b, "a", &[37, 48], Access::Read), f32(&mut b, "b", &[48, 50], Access::Read));
    let c = f32(&mut b, "c", &[37, 50], Access::Write);
    b.nest(&[("i", 37), ("j", 50), ("k", 48)], |b, v| {
        let [i, j, k] = [v[0], v[1], v[2]].map(Expr::from);
        let value = Expr::load(x, vec![i.clone(), k.clone()]) * Expr::load(w, vec![k, j.clone()]);
        b.sum(c, [i, j], value, &[v[2]]);
    });
    b.finish()
}

/// A product with a transposed operand, a scale and a lower bound: lanes read the second operand far apart.
fn scaled_rows() -> Kernel {
    let mut b = KernelBuilder::new("scaled_rows");
    let (x, w) = (f32(&mut b, "a", &[24, 40], Access::Read), f32(&mut b, "b", &[33, 40], Access::Read));
    let scale = f32(&mut b, "scale", &[24], Access::Read);
    let y = f32(&mut b, "y", &[24, 33], Access::Write);
    let acc = b.alloc("acc", DType::F32, &[24, 33], Scope::Global);
    b.nest(&[("i", 24), ("j", 33), ("k", 40)], |b, v| {
        let [i, j, k] = [v[0], v[1], v[2]].map(Expr::from);
        let value = Expr::load(x, vec![i.clone(), k.clone()]) * Expr::load(w, vec![j.clone(), k]);
        b.sum(acc, [i, j], value, &[v[2]]);
    });
    b.nest(&[("i_out", 24), ("j_out", 33)], |b, v| {
        let [i, j] = [v[0], v[1]].map(Expr::from);
        let value = Expr::load(acc, vec![i.clone(), j.clone()]) * Expr::load(scale, vec![i.clone()]);
        b.store(y, [i, j], value.max(Expr::f32(0.0)));
    });
    b.finish()
}

/// The largest of each window of 3 x 3 pixels, by steps of two.
fn max_pool() -> Kernel {
    let mut b = KernelBuilder::new("max_pool");
    let x = f32(&mut b, "x", &[2, 5, 21, 19], Access::Read);
    let y = f32(&mut b, "y", &[2, 5, 10, 9], Access::Write);
    b.nest(&[("n", 2), ("c", 5), ("oh", 10), ("ow", 9), ("kh", 3), ("kw", 3)], |b, v| {
        let [n, c, oh, ow] = [v[0], v[1], v[2], v[3]].map(Expr::from);
        let value = Expr::load(x, vec![n.clone(), c.clone(), v[2] * 2 + v[4], v[3] * 2 + v[5]]);
        largest(b, y, vec![n, c, oh, ow], value, &[v[4], v[5]]);
    });
    b.finish()
}

/// A softmax along rows: a maximum, a sum and three stages without one.
fn softmax() -> Kernel {
    let (rows, columns) = (13, 45);
    let mut b = KernelBuilder::new("softmax");
    let x = f32(&mut b, "x", &[rows, columns], Access::Read);
    let y = f32(&mut b, "y", &[rows, columns], Access::Write);
    let most = b.alloc("most", DType::F32, &[rows], Scope::Global);
    let power = b.alloc("power", DType::F32, &[rows, columns], Scope::Global);
    let sum = b.alloc("sum", DType::F32, &[rows], Scope::Global);
    b.nest(&[("i", rows), ("j", columns)], |b, v| {
        let value = Expr::load(x, vec![v[0].into(), v[1].into()]);
        largest(b, most, vec![v[0].into()], value, &[v[1]]);
    });
    b.nest(&[("i_p", rows), ("j_p", columns)], |b, v| {
        let [i, j] = [v[0], v[1]].map(Expr::from);
        let value = Expr::load(x, vec![i.clone(), j.clone()]) - Expr::load(most, vec![i.clone()]);
        b.store(power, [i, j], Expr::un(UnOp::Exp, value));
    });
    b.nest(&[("i_s", rows), ("j_s", columns)], |b, v| {
        let value = Expr::load(power, vec![v[0].into(), v[1].into()]);
        b.sum(sum, [Expr::from(v[0])], value, &[v[1]]);
    });
    b.nest(&[("i_y", rows), ("j_y", columns)], |b, v| {
        let [i, j] = [v[0], v[1]].map(Expr::from);
        let value =
            Expr::bin(BinOp::Div, Expr::load(power, vec![i.clone(), j.clone()]), Expr::load(sum, vec![i.clone()]));
        b.store(y, [i, j], value);
    });
    b.finish()
}

/// Two steps without a sum, of which the first vanishes into the second.
fn elementwise() -> Kernel {
    let mut b = KernelBuilder::new("elementwise");
    let x = f32(&mut b, "x", &[7, 130], Access::Read);
    let y = f32(&mut b, "y", &[7, 130], Access::Write);
    let t = b.alloc("t", DType::F32, &[7, 130], Scope::Global);
    b.nest(&[("i", 7), ("j", 130)], |b, v| {
        let [i, j] = [v[0], v[1]].map(Expr::from);
        b.store(t, [i.clone(), j.clone()], Expr::load(x, vec![i, j]) * Expr::f32(3.0));
    });
    b.nest(&[("i_y", 7), ("j_y", 130)], |b, v| {
        let [i, j] = [v[0], v[1]].map(Expr::from);
        b.store(y, [i.clone(), j.clone()], Expr::load(t, vec![i, j]).max(Expr::f32(-0.5)));
    });
    b.finish()
}

/// A filter along rows whose edges are read as zeros, in 16-bit storage.
fn filter() -> Kernel {
    let mut b = KernelBuilder::new("filter");
    let x = b.param("x", DType::F16, &[6, 70], Access::Read);
    let w = b.param("w", DType::F16, &[6, 5], Access::Read);
    let y = b.param("y", DType::F16, &[6, 70], Access::Write);
    let padded = b.alloc("padded", DType::F16, &[6, 74], Scope::Global);
    let acc = b.alloc("acc", DType::F32, &[6, 70], Scope::Global);
    b.nest(&[("c_pad", 6), ("i_pad", 74)], |b, v| {
        let inside = Expr::Int(2).le(v[1]).and(Expr::from(v[1]).lt(72));
        let value = inside.select(Expr::load(x, vec![v[0].into(), v[1] - 2]), Expr::f32(0.0));
        b.store(padded, [v[0], v[1]].map(Expr::from), value);
    });
    b.nest(&[("c", 6), ("i", 70), ("k", 5)], |b, v| {
        let value = Expr::load(padded, vec![v[0].into(), v[1] + v[2]]) * Expr::load(w, vec![v[0].into(), v[2].into()]);
        b.sum(acc, [v[0], v[1]].map(Expr::from), value, &[v[2]]);
    });
    b.nest(&[("c_y", 6), ("i_y", 70)], |b, v| {
        let at = [v[0], v[1]].map(Expr::from);
        b.store(y, at.clone(), Expr::load(acc, at.to_vec()));
    });
    b.finish()
}

fn kernels() -> Vec<Kernel> {
    vec![product(), scaled_rows(), max_pool(), softmax(), elementwise(), filter()]
}

/// Values of a kernel's parameters that are read, in their order.
fn inputs(k: &Kernel) -> Vec<(String, Vec<f64>)> {
    let mut rng = Rng::new(3);
    let read = k.params[..k.params.len() - 1].iter();
    read.map(|p| {
        let buffer = k.buffer(*p);
        // Quarters are numbers of every type.
        let values = (0..buffer.extent_elements()).map(|_| (rng.below(33) as f64 - 16.0) / 4.0).collect();
        (buffer.name.clone(), values)
    })
    .collect()
}

fn output(k: &Kernel) -> &str {
    &k.buffer(*k.params.last().expect("an output")).name
}

fn interpret(k: &Kernel, values: &Values, mode: Mode) -> Vec<f64> {
    let mut out = interp::run(k, values, mode).unwrap_or_else(|e| panic!("{e}\n{k}"));
    out.remove(output(k)).expect("an output")
}

fn assert_close(got: &[f64], expected: &[f64], of: DType, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let unit = if of == DType::F16 { 1e-3 } else { 1e-5 };
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= unit * (1.0 + e.abs()), "{what}: element {i} is {g}, not {e}");
    }
}

/// The scheduled and the lowered kernel of a config.
fn made(sketch: &Sketch, config: &Config, target: &Target, what: &str) -> (Kernel, Lowered) {
    let text = |faults: Vec<Fault>| faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n");
    let scheduled = sketch.schedule(config).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut kernel = scheduled.schedule.kernel;
    let mut options = LowerOptions::cpu();
    if target.cuda().is_some() {
        kernel = insert_barriers(kernel);
        options = LowerOptions::cuda();
    }
    let verified = verify(kernel.clone(), &target.limits()).unwrap_or_else(|f| panic!("{what}\n{}\n{kernel}", text(f)));
    let lowered = lower(verified, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
    let faults = check(lowered.kernel(), &target.limits());
    assert!(faults.is_empty(), "{what}, lowered\n{}\n{}", text(faults), lowered.kernel());
    (kernel, lowered)
}

fn check_kernel(kernel: &Kernel, target: &Target) {
    let values: Values = inputs(kernel).into_iter().collect();
    let expected = interpret(kernel, &values, Mode::F64);
    let dtype = kernel.buffer(*kernel.params.last().expect("an output")).dtype;
    let sketch = Sketch::of(kernel.clone(), target).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    let space = sketch.space().expect("a space");
    let default = space.normalise(&sketch.default_config().expect("a default")).expect("in its space");
    let random = space.sample(9).take(configs()).map(|(_, config)| config);
    for config in std::iter::once(default).chain(random) {
        let what = format!("{} on {} with {config}", kernel.name, target.name);
        let cost = sketch.cost(&config);
        assert!(cost.is_finite() && cost > 0.0, "{what}: cost {cost}");
        let (scheduled, lowered) = made(&sketch, &config, target, &what);
        for (stage, k) in [("scheduled", &scheduled), ("lowered", lowered.kernel())] {
            assert_close(&interpret(k, &values, Mode::Declared), &expected, dtype, &format!("{what}, {stage}\n{k}"));
        }
    }
}

#[test]
fn kernels_that_a_user_declares_compute_what_they_say_on_cpus() {
    for kernel in kernels() {
        for name in ["x86-64", "x86-64-v3", "x86-64-v4"] {
            check_kernel(&kernel, Target::find(name).expect("a built-in target"));
        }
    }
}

#[test]
fn kernels_that_a_user_declares_compute_what_they_say_on_gpus() {
    for kernel in kernels() {
        for name in ["sm_75", "sm_90a"] {
            check_kernel(&kernel, Target::find(name).expect("a built-in target"));
        }
    }
}

#[test]
fn the_defaults_run_on_this_cpu() {
    let levels = ["x86-64-v4", "x86-64-v3", "x86-64", "aarch64"];
    let isa = levels.into_iter().filter_map(Isa::from_name).find(|isa| isa.runs_here()).expect("a level");
    let target = Target::find(isa.name()).expect("a level has a target");
    for kernel in kernels() {
        let given = inputs(&kernel);
        let expected = interpret(&kernel, &given.iter().cloned().collect(), Mode::F64);
        let sketch = Sketch::of(kernel.clone(), target).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        let config = sketch.default_config().expect("a default");
        let what = format!("{} with {config}", kernel.name);
        let (_, lowered) = made(&sketch, &config, target, &what);
        let options = COptions { isa, symbol: "kernel".into(), comment: String::new() };
        let source = c::emit(&lowered, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
        let program = compiled::program(&source, lowered.kernel()).unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut values: Vec<Vec<f64>> = given.into_iter().map(|(_, v)| v).collect();
        values.push(vec![]);
        let out =
            program.run(&values, &RunOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}\n{}", source.source));
        let dtype = kernel.buffer(*kernel.params.last().expect("an output")).dtype;
        assert_close(out.last().expect("an output"), &expected, dtype, &format!("{what}\n{}", source.source));
    }
}
