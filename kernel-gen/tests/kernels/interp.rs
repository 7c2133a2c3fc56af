//! What the interpreter computes, and what it reports.

use kernel_gen::interp::{self, Cause, InterpError, Mode, Values};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::{Access, Axis, Barrier, BufferId, DType, Expr, For, Kernel, LoopKind, Scope, Stmt, VarId};

fn loop_of(kind: LoopKind, var: VarId, extent: i64, body: Vec<Stmt>) -> Stmt {
    Stmt::For(For { var, extent, kind, pragmas: vec![], body })
}

/// `x: f32[n]` to `y: f32[n]`, and what `body` makes of them.
fn one_dim(n: i64, body: impl FnOnce(&mut Kernel, BufferId, BufferId) -> Vec<Stmt>) -> Kernel {
    let mut b = KernelBuilder::new("t");
    let x = b.param("x", DType::F32, &[n], Access::Read);
    let y = b.param("y", DType::F32, &[n], Access::Write);
    let mut k = b.finish();
    k.body = body(&mut k, x, y);
    k
}

fn run(k: &Kernel) -> Result<Values, InterpError> {
    interp::run(k, &interp::seeded_inputs(k, 1), Mode::F64)
}

fn cause(k: &Kernel) -> Cause {
    run(k).expect_err("the kernel is wrong").cause
}

fn matmul(m: i64, n: i64, k: i64) -> Kernel {
    let mut b = KernelBuilder::new("matmul");
    let a = b.param("a", DType::F32, &[m, k], Access::Read);
    let w = b.param("b", DType::F32, &[k, n], Access::Read);
    let c = b.param("c", DType::F32, &[m, n], Access::Write);
    b.nest(&[("i", m), ("j", n), ("k", k)], |b, v| {
        let [i, j, k] = [v[0], v[1], v[2]];
        let product = Expr::load(a, vec![i.into(), k.into()]) * Expr::load(w, vec![k.into(), j.into()]);
        b.sum(c, [i.into(), j.into()], product, &[k]);
    });
    b.finish()
}

#[test]
fn a_reduction_starts_anew_for_each_element() {
    let k = matmul(3, 5, 7);
    let inputs = interp::seeded_inputs(&k, 3);
    let out = interp::run(&k, &inputs, Mode::Declared).unwrap();
    for i in 0..3 {
        for j in 0..5 {
            let want: f64 = (0..7).map(|k| inputs["a"][i * 7 + k] * inputs["b"][k * 5 + j]).sum();
            assert_eq!(out["c"][i * 5 + j], want);
        }
    }
}

#[test]
fn vector_statements_read_all_lanes_before_they_write_any() {
    let ramp = |base: i64| Expr::Ramp { base: Box::new(base.into()), stride: 1, lanes: 4 };
    let mut b = KernelBuilder::new("t");
    let y = b.param("y", DType::F32, &[5], Access::ReadWrite);
    let v = {
        let mut k = b.finish();
        let v = k.fresh_typed_var("v", DType::F32);
        k.body = vec![
            Stmt::Let { var: v, value: Expr::load(y, vec![ramp(0)]) + Expr::Broadcast(Box::new(Expr::f32(1.0)), 4) },
            Stmt::store(y, vec![ramp(1)], v.into()),
        ];
        k
    };
    let inputs = [("y".to_string(), vec![1.0, 2.0, 3.0, 4.0, 5.0])].into();
    assert_eq!(interp::run(&v, &inputs, Mode::Declared).unwrap()["y"], [1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn an_access_out_of_bounds_is_reported_with_its_index() {
    let k = one_dim(4, |k, x, y| {
        let i = k.fresh_var("i");
        vec![Stmt::for_(i, 4, vec![Stmt::store(y, vec![i.into()], Expr::load(x, vec![i + 1]))])]
    });
    let e = run(&k).unwrap_err();
    assert_eq!(
        e.to_string(),
        "out-of-bounds read: reads x[4], but the shape of x is [4]; at `y[i] = x[i + 1]` with i = 3"
    );
}

#[test]
fn a_select_reads_only_the_side_that_it_takes() {
    let k = one_dim(4, |k, x, y| {
        let i = k.fresh_var("i");
        let value = Expr::from(i).lt(3).select(Expr::load(x, vec![i + 1]), Expr::f32(0.0));
        vec![Stmt::for_(i, 4, vec![Stmt::store(y, vec![i.into()], value)])]
    });
    run(&k).unwrap();
}

#[test]
fn an_element_left_out_is_reported() {
    let k = one_dim(4, |k, x, y| {
        let i = k.fresh_var("i");
        vec![Stmt::for_(i, 3, vec![Stmt::store(y, vec![i.into()], Expr::load(x, vec![i.into()]))])]
    });
    assert_eq!(cause(&k), Cause::UnwrittenOutput { buffer: "y".into(), index: vec![3] });
}

#[test]
fn two_parallel_iterations_that_write_one_element_race() {
    let k = one_dim(4, |k, x, y| {
        let i = k.fresh_var("i");
        let body = vec![Stmt::store(y, vec![Expr::from(i).floor_div(2)], Expr::load(x, vec![i.into()]))];
        vec![loop_of(LoopKind::Parallel, i, 4, body)]
    });
    let text = cause(&k).to_string();
    assert!(text.contains("y[0] is written by parallel iteration 0 and written by parallel iteration 1"), "{text}");
}

#[test]
fn statements_around_an_inner_parallel_loop_are_ordered_with_it() {
    let k = one_dim(4, |k, x, y| {
        let (i, j) = (k.fresh_var("i"), k.fresh_var("j"));
        let t = k.add_buffer(kernel_gen::ir::Buffer::new("t", DType::F32, &[4], Scope::Global));
        let inner = vec![Stmt::store(y, vec![i * 2 + j], Expr::load(t, vec![i * 2]) + Expr::load(x, vec![i * 2 + j]))];
        let body = vec![Stmt::store(t, vec![i * 2], Expr::f32(1.0)), loop_of(LoopKind::Parallel, j, 2, inner)];
        vec![Stmt::Alloc(t), loop_of(LoopKind::Parallel, i, 2, body)]
    });
    run(&k).unwrap();
}

#[test]
fn private_memory_does_not_cross_parallel_iterations() {
    let k = one_dim(4, |k, x, y| {
        let (i, j) = (k.fresh_var("i"), k.fresh_var("j"));
        let t = k.add_buffer(kernel_gen::ir::Buffer::new("t", DType::F32, &[4], Scope::Local));
        vec![
            Stmt::Alloc(t),
            loop_of(LoopKind::Parallel, i, 4, vec![Stmt::store(t, vec![i.into()], Expr::load(x, vec![i.into()]))]),
            loop_of(LoopKind::Parallel, j, 4, vec![Stmt::store(y, vec![j.into()], Expr::load(t, vec![j.into()]))]),
        ]
    });
    assert_eq!(cause(&k), Cause::Unwritten { buffer: "t".into(), index: vec![0] });
}

/// Each block of four threads writes its elements to shared memory, and thread `u` stores the one at `from(u)`.
fn exchange(with_barrier: bool, from: impl Fn(Expr) -> Expr) -> Kernel {
    one_dim(8, |k, x, y| {
        let (g, t, u) = (k.fresh_var("g"), k.fresh_var("t"), k.fresh_var("u"));
        let s = k.add_buffer(kernel_gen::ir::Buffer::new("s", DType::F32, &[4], Scope::Shared));
        let mut body = vec![
            Stmt::Alloc(s),
            loop_of(
                LoopKind::Thread(Axis::X),
                t,
                4,
                vec![Stmt::store(s, vec![t.into()], Expr::load(x, vec![g * 4 + t]))],
            ),
        ];
        if with_barrier {
            body.push(Stmt::Barrier(Barrier::Block));
        }
        let load = Expr::load(s, vec![from(u.into())]);
        body.push(loop_of(LoopKind::Thread(Axis::X), u, 4, vec![Stmt::store(y, vec![g * 4 + u], load)]));
        vec![loop_of(LoopKind::Grid(Axis::X), g, 2, body)]
    })
}

#[test]
fn threads_exchange_data_through_shared_memory() {
    let k = exchange(true, |u| Expr::Int(3) - u);
    let inputs: Values = [("x".to_string(), (0..8).map(f64::from).collect())].into();
    let out = interp::run(&k, &inputs, Mode::Declared).unwrap();
    assert_eq!(out["y"], [3.0, 2.0, 1.0, 0.0, 7.0, 6.0, 5.0, 4.0]);
}

#[test]
fn a_missing_barrier_is_a_race_of_two_threads() {
    // Threads run one after the other, so the element of the thread before has been written when it is read.
    let before = |u: Expr| Expr::bin(kernel_gen::ir::BinOp::Max, u - 1, 0.into());
    run(&exchange(true, before)).unwrap();
    let race = Cause::Race {
        buffer: "s".into(),
        index: vec![0],
        first: "written by thread (0, 0, 0) of block 0".into(),
        second: "read by thread (1, 0, 0) of block 0".into(),
    };
    assert_eq!(cause(&exchange(false, before)), race);
    // The element of a thread behind has not been written then.
    let behind = cause(&exchange(false, |u| Expr::Int(3) - u));
    assert_eq!(behind, Cause::Unwritten { buffer: "s".into(), index: vec![3] });
}

#[test]
fn a_barrier_that_some_threads_skip_diverges() {
    let k = one_dim(4, |k, x, y| {
        let t = k.fresh_var("t");
        let body = vec![
            Stmt::if_(Expr::from(t).lt(2), vec![Stmt::Barrier(Barrier::Block)]),
            Stmt::store(y, vec![t.into()], Expr::load(x, vec![t.into()])),
        ];
        vec![loop_of(LoopKind::Thread(Axis::X), t, 4, body)]
    });
    let Cause::DivergentBarrier { waiting, other } = cause(&k) else { panic!("{:?}", cause(&k)) };
    assert_eq!(
        (waiting.as_str(), other.as_str()),
        ("thread (0, 0, 0) of block 0", "thread (2, 0, 0) of block 0 has ended")
    );
}

#[test]
fn lanes_may_not_depend_on_each_other() {
    let k = one_dim(4, |k, x, y| {
        let i = k.fresh_var("i");
        let shifted = vec![
            Stmt::store(y, vec![i.into()], Expr::load(x, vec![i.into()])),
            Stmt::if_(Expr::Int(1).le(i), vec![Stmt::store(y, vec![i.into()], Expr::load(y, vec![i + (-1)]))]),
        ];
        vec![loop_of(LoopKind::Vectorized, i, 4, shifted)]
    });
    assert_eq!(cause(&k).kind(), "lane conflict");
}

#[test]
fn sixteen_bit_parameters_round_in_declared_mode_only() {
    let mut b = KernelBuilder::new("t");
    let x = b.param("x", DType::F16, &[1], Access::Read);
    let y = b.param("y", DType::F16, &[1], Access::Write);
    b.store(y, [0.into()], Expr::load(x, vec![0.into()]) * Expr::f32(1.0 + 1.0 / 4096.0));
    let k = b.finish();
    let inputs = [("x".to_string(), vec![1.0])].into();
    assert_eq!(interp::run(&k, &inputs, Mode::Declared).unwrap()["y"], [1.0]);
    assert_eq!(interp::run(&k, &inputs, Mode::F64).unwrap()["y"], [1.0 + 1.0 / 4096.0]);
}

/// Prints the speed; `cargo test --release -p kernel-gen --test kernels interp:: -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let k = matmul(128, 128, 128);
    let inputs = interp::seeded_inputs(&k, 3);
    let start = std::time::Instant::now();
    interp::run(&k, &inputs, Mode::Declared).unwrap();
    let s = start.elapsed().as_secs_f64();
    println!("{:.1} M statements/s", 128f64.powi(3) / s / 1e6);
}

#[test]
fn a_transpose_tile_swaps_the_last_two_dimensions_and_is_checked_like_any_access() {
    let kernel = |origin: i64| {
        let text = format!(
            "kernel t {{\n  param x: f32[2, 4, 8] global read\n  param y: f32[2, 8, 3] global write\n  \
             for i in 0..2 {{\n    transpose y[i: 1, 0: 8, 0: 3] = x[i: 1, {origin}: 3, 0: 8]\n  }}\n}}\n"
        );
        kernel_gen::ir::parse::parse(&text).unwrap()
    };
    let k = kernel(1);
    let inputs = interp::seeded_inputs(&k, 4);
    let out = interp::run(&k, &inputs, Mode::F64).unwrap();
    for i in 0..2 {
        for (row, col) in (0..3).flat_map(|row| (0..8).map(move |col| (row, col))) {
            assert_eq!(out["y"][i * 24 + col * 3 + row], inputs["x"][i * 32 + (row + 1) * 8 + col]);
        }
    }
    assert!(matches!(cause(&kernel(2)), Cause::OutOfBounds { .. }), "{:?}", cause(&kernel(2)));
}
