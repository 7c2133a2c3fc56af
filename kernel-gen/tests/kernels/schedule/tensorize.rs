//! Tensor cores by schedule: scalar loops, fragments as caches, and intrinsics in the place of nests.

use super::random::same;
use crate::cuda_on_cpu;
use kernel_gen::analysis::verify::{FaultKind, Limits, check};
use kernel_gen::emit::c::{self, COptions, Isa};
use kernel_gen::emit::cuda::{Arch, CudaOptions, CudaSource, emit};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::parse::parse;
use kernel_gen::ir::{Access, Axis, DType, Expr, Kernel, LoopKind, Scope, Unit, VarId};
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::lower_for;
use kernel_gen::schedule::{Intrinsic, Schedule, ScheduleError, Tail, wmma};
use kernel_gen::target::Target;

const WARP: Scope = Scope::Fragment(Unit::Warp);

/// `acc = a b` in the type of `sums`, then `c = acc`.
fn product([m, n, k]: [i64; 3], dtype: DType, sums: DType) -> Kernel {
    let mut b = KernelBuilder::new("product");
    let x = b.param("a", dtype, &[m, k], Access::Read);
    let w = b.param("b", dtype, &[k, n], Access::Read);
    let c = b.param("c", sums, &[m, n], Access::Write);
    let acc = b.alloc("acc", sums, &[m, n], Scope::Global);
    b.nest(&[("i", m), ("j", n), ("k", k)], |b, v| {
        let [i, j, k] = [v[0], v[1], v[2]];
        let product = Expr::load(x, vec![i.into(), k.into()]) * Expr::load(w, vec![k.into(), j.into()]);
        b.sum(acc, [i.into(), j.into()], product, &[k]);
    });
    b.nest(&[("i_out", m), ("j_out", n)], |b, v| {
        let at: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        b.store(c, at.clone(), Expr::load(acc, at));
    });
    b.finish()
}

/// A product whose warps have two tiles of sums each, up to the last step: the loops to tensorize.
#[allow(non_snake_case)]
struct Placed {
    s: Schedule,
    load_a: VarId,
    load_b: VarId,
    multiply: VarId,
    store: VarId,
}

fn placed(kernel: Kernel, [m, n, k]: [i64; 3]) -> Result<Placed, ScheduleError> {
    let mut s = Schedule::new(kernel);
    let [a, b, acc, c] = [s.stage("a")?, s.stage("b")?, s.stage("acc")?, s.stage("c")?];
    let a_shared = s.cache_read(a, Scope::Shared, &[acc])?;
    let b_shared = s.cache_read(b, Scope::Shared, &[acc])?;
    let a_fragment = s.cache_read(a_shared, WARP, &[acc])?;
    let b_fragment = s.cache_read(b_shared, WARP, &[acc])?;
    s.set_scope(acc, WARP)?;

    let [i, j] = s.axes(c)?;
    let [i, ii] = s.split(i, m, Tail::Perfect)?;
    let [j, jj] = s.split(j, n, Tail::Perfect)?;
    let [block, i] = s.split(i, 2, Tail::Perfect)?;
    let warps = s.kernel.buffer(c).shape[1] / (2 * n);
    let [warp, j] = s.split(j, 2, Tail::Perfect)?;
    s.reorder(&[block, warp, i, j, ii, jj])?;
    s.bind(block, LoopKind::Grid(Axis::X))?;
    s.bind(warp, LoopKind::Thread(Axis::Y))?;
    s.unroll(i)?;
    s.unroll(j)?;

    s.compute_at(acc, warp)?;
    let [ai, aj, ak] = s.axes(acc)?;
    let [ai, aii] = s.split(ai, m, Tail::Perfect)?;
    let [aj, ajj] = s.split(aj, n, Tail::Perfect)?;
    let [ko, ki] = s.split(ak, k, Tail::Perfect)?;
    s.reorder(&[ko, ai, aj, aii, ajj, ki])?;
    s.unroll(ai)?;
    s.unroll(aj)?;
    s.compute_at(a_fragment, ko)?;
    s.compute_at(b_fragment, ko)?;
    s.compute_at(a_shared, ko)?;
    s.compute_at(b_shared, ko)?;
    for load in [a_shared, b_shared] {
        let [r, col] = s.axes(load)?;
        let fused = s.fuse(r, col)?;
        let [rest, lane] = s.split(fused, 32, Tail::Perfect)?;
        let [_, by] = s.split(rest, warps, Tail::Perfect)?;
        s.bind(by, LoopKind::Thread(Axis::Y))?;
        s.bind(lane, LoopKind::Thread(Axis::X))?;
    }
    // A fragment's tiles are the registers that one instruction takes.
    let [fi, load_a] = s.axes(a_fragment)?;
    let [fi, load_row] = s.split(fi, m, Tail::Perfect)?;
    s.unroll(fi)?;
    let [_, fj] = s.axes(b_fragment)?;
    let [fj, load_column] = s.split(fj, n, Tail::Perfect)?;
    let [row, ..] = s.axes::<3>(b_fragment)?;
    s.reorder(&[fj, row, load_column])?;
    s.unroll(fj)?;
    let _ = load_a;
    Ok(Placed { s, load_a: load_row, load_b: row, multiply: aii, store: ii })
}

/// One thing after the other, each of which leaves the result as it is.
fn tensorized(size: [i64; 3], tile: [i64; 3], dtype: DType, sums: DType) -> Schedule {
    let before = product(size, dtype, sums);
    let Placed { mut s, load_a, load_b, multiply, store } =
        placed(before.clone(), tile).unwrap_or_else(|e| panic!("{e}"));
    let [m, n, k] = tile;
    let same = |s: &Schedule, what: &str| {
        same(&before, &insert_barriers(s.kernel.clone())).unwrap_or_else(|e| panic!("{what}: {e}"))
    };
    same(&s, "scalar loops");
    s.tensorize(load_a, &wmma::load([m, k], dtype, Scope::Shared).unwrap())
        .unwrap_or_else(|e| panic!("{e}\n{}", s.kernel));
    same(&s, "the left operand");
    s.tensorize(multiply, &wmma::mma(tile, dtype, sums).unwrap()).unwrap_or_else(|e| panic!("{e}\n{}", s.kernel));
    same(&s, "products");
    s.tensorize(load_b, &wmma::load([k, n], dtype, Scope::Shared).unwrap())
        .unwrap_or_else(|e| panic!("{e}\n{}", s.kernel));
    same(&s, "the right operand");
    s.tensorize(store, &wmma::store([m, n], sums, sums, Scope::Global).unwrap())
        .unwrap_or_else(|e| panic!("{e}\n{}", s.kernel));
    same(&s, "the store");
    s
}

fn emitted(kernel: Kernel, target: &str) -> Result<String, String> {
    Ok(source(kernel, target)?.source)
}

fn source(kernel: Kernel, target: &str) -> Result<CudaSource, String> {
    let target = Target::find(target).unwrap();
    let lowered = lower_for(kernel, target).map_err(|e| e.to_string())?;
    let arch = Arch::of(target).unwrap();
    let options = CudaOptions { arch, symbol: "product".into(), comment: "A test.".into(), min_blocks: None };
    emit(&lowered, &options).map_err(|e| e.to_string())
}

#[test]
fn a_product_is_the_same_after_each_of_its_intrinsics() {
    for (size, tile) in [([32, 32, 16], [16, 16, 16]), ([32, 64, 32], [16, 16, 16]), ([32, 32, 32], [16, 8, 16])] {
        for (dtype, sums) in [(DType::F16, DType::F32), (DType::F16, DType::F16), (DType::Bf16, DType::F32)] {
            let s = tensorized(size, tile, dtype, sums);
            let text = s.kernel.to_string();
            for line in ["fill acc[", "move a_shared_frag[", "mma.warp acc[", "move c["] {
                assert!(text.contains(line), "{line}\n{text}");
            }
            emitted(s.kernel, "sm_80").unwrap_or_else(|e| panic!("{e}\n{text}"));
        }
    }
}

#[test]
fn scalar_loops_over_fragments_are_no_kernel_yet() {
    let Placed { s, .. } = placed(product([32, 32, 16], DType::F16, DType::F32), [16, 16, 16]).unwrap();
    let faults = check(&insert_barriers(s.kernel), &Limits::cuda());
    assert_eq!(faults[0].kind, FaultKind::WrongScope, "{}", faults[0]);
    assert!(faults[0].to_string().contains("tensorize the loops"), "{}", faults[0]);
}

#[test]
fn what_is_no_such_intrinsic_is_refused_by_the_part_that_differs() {
    let tile = [16, 16, 16];
    let Placed { mut s, load_a, load_b, multiply, store } =
        placed(product([32, 32, 32], DType::F16, DType::F32), tile).unwrap();
    let name = |v: VarId| s.kernel.var(v).name.clone();
    let (rows, lane) = (name(multiply), s.kernel.find_var("i_a_k_i").unwrap());
    let mut refused = |loop_: VarId, intrinsic: Result<Intrinsic, ScheduleError>, parts: &[&str]| {
        let before = s.kernel.clone();
        let error = s.tensorize(loop_, &intrinsic.unwrap()).expect_err(&parts.join(" ")).to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "{part}: {error}"));
        assert_eq!(s.kernel, before);
    };
    let mma = |shape, dtype, sums| wmma::mma(shape, dtype, sums);
    let (f16, f32) = (DType::F16, DType::F32);
    let of_rows = format!("loop `{rows}` has 16 iterations, and the intrinsic's `i` 32; split first");
    refused(multiply, mma([32, 16, 16], f16, f32), &["tensorize of loop", "mma_sync_m32n16k16_f16_f32", &of_rows]);
    refused(multiply, mma([16, 8, 16], f16, f32), &["has 16 iterations, and the intrinsic's `j` 8"]);
    refused(multiply, mma([16, 16, 8], f16, f32), &["has 16 iterations, and the intrinsic's `k` 8"]);
    refused(multiply, mma(tile, DType::Bf16, f32), &["holds f16, and the intrinsic's `a` bf16"]);
    refused(multiply, mma(tile, f16, f16), &["`acc` holds f32, and the intrinsic's `c` f16"]);
    refused(multiply, wmma::load([16, 16], f16, Scope::Shared), &["its statement is a sum, the intrinsic's a store"]);
    refused(load_a, mma(tile, f16, f32), &["its statement is a store, the intrinsic's a sum"]);
    refused(load_a, wmma::load([16, 16], f16, Scope::Global), &["`a_shared` is shared", "`src` global", "cache_read"]);
    refused(store, wmma::load([16, 16], f16, Scope::Shared), &["`c` holds f32"]);
    refused(load_b, wmma::fill([16, 16], f16), &["computes `b_shared"]);
    refused(lane, wmma::load([16, 16], f16, Scope::Shared), &["is thread.x already"]);
}

/// A product of one tile whose nest of scalar loops is `body`.
fn tile_product(body: &str) -> Kernel {
    let text = format!(
        "kernel k {{\n  param a: f16[16, 16] global read\n  param b: f16[16, 16] global read\n  param c: f32[16, 16] global \
         write\n  for lane in 0..1 grid.x {{\n    alloc x: f16[16, 16] fragment.warp\n    alloc w: f16[16, 16] \
         fragment.warp\n    alloc acc: f32[16, 16] fragment.warp\n    {body}\n  }}\n}}\n"
    );
    parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn layouts_guards_and_starting_values_are_compared_too() {
    let nest = |statement: &str| format!("for i in 0..16 {{ for j in 0..16 {{ for k in 0..16 {{ {statement} }} }} }}");
    let cases = [
        ("acc[i, j] += x[k, i] * w[k, j] init 0.0f32 over (k)", "`x` has its dimensions the other way round"),
        ("acc[i, j] += x[i, k] * w[j, k] init 0.0f32 over (k)", "`w` has its dimensions the other way round"),
        ("acc[i, j] += x[i, k] * w[k, j] init 1.0f32 over (k)", "starts from 1.0f32, the intrinsic's from 0.0f32"),
        ("acc[i, j] += x[i, k] + w[k, j] init 0.0f32 over (k)", "it computes `x[i, k] + w[k, j]`"),
        ("acc[i, j] max= x[i, k] * w[k, j] init 0.0f32 over (k)", "combines by maximum, the intrinsic's by addition"),
        ("acc[i, j] += x[i, 15 - k] * w[k, j] init 0.0f32 over (k)", "does not walk dimension 1 of `x` with step 1"),
        ("acc[i, j] += x[i, k] * x[k, j] init 0.0f32 over (k)", "`x` is used twice"),
        ("if i < 9 { acc[i, j] += x[i, k] * w[k, j] init 0.0f32 over (k) }", "`if i < 9` stands in it"),
    ];
    let mma = wmma::mma(wmma::M16N16K16, DType::F16, DType::F32).unwrap();
    for (statement, why) in cases {
        let mut s = Schedule::new(tile_product(&nest(statement)));
        let i = s.kernel.find_var("i").unwrap();
        let error = s.tensorize(i, &mma).expect_err(why).to_string();
        assert!(error.contains(why), "{statement}: {error}");
    }
    // Loops in any order, and the factors too.
    let turned = "for k in 0..16 { for i in 0..16 { for j in 0..16 {
        acc[i, j] += w[k, j] * x[i, k] init 0.0f32 over (k) } } }";
    let mut s = Schedule::new(tile_product(turned));
    let k = s.kernel.find_var("k").unwrap();
    s.tensorize(k, &mma).unwrap_or_else(|e| panic!("{e}"));
    let text = s.kernel.to_string();
    assert!(text.contains("mma.warp acc[0: 16, 0: 16] += x[0: 16, 0: 16] * w[0: 16, 0: 16]"), "{text}");
    // Inside of a loop over the lanes of a warp each of them would do it.
    let in_lanes =
        format!("for t in 0..32 thread.x {{ {} }}", nest("acc[i, j] += x[i, k] * w[k, j] init 0.0f32 over (k)"));
    let mut s = Schedule::new(tile_product(&in_lanes));
    let i = s.kernel.find_var("i").unwrap();
    let error = s.tensorize(i, &mma).unwrap_err().to_string();
    assert!(error.contains("it stands in the thread.x loop `t`"), "{error}");
}

#[test]
fn declarations_that_contradict_themselves_are_refused() {
    let kernel = |params: &str, body: &str| parse(&format!("kernel x {{\n{params}\n{body}\n}}\n")).unwrap();
    let params = "param d: f32[4, 4] global write param s: f32[4, 4] global read";
    let copy = |at: &str| kernel(params, &format!("for i in 0..4 {{ for j in 0..4 {{ d[i, j] = s[{at}] }} }}"));
    let good = copy("i, j");
    assert!(Intrinsic::new(good.clone(), good.clone()).is_ok());
    assert!(Intrinsic::new(copy("j, i"), good.clone()).is_ok(), "a transposition is an intrinsic, too");
    let refused = |made: Result<Intrinsic, ScheduleError>, why: &str| {
        let error = made.expect_err(why).to_string();
        assert!(error.contains(why) && error.starts_with("intrinsic of `x`"), "{error}");
    };
    refused(Intrinsic::new(copy("i, 0"), good.clone()), "dimension 1 of operand `s` is not walked");
    refused(Intrinsic::new(kernel(params, "d[0, 0] = 1.0f32"), good.clone()), "is not walked");
    refused(
        Intrinsic::new(kernel(params, "for i in 0..4 { for j in 0..4 { d[i, j] = 1.0f32 } }"), good.clone()),
        "does not use operand `s` exactly once",
    );
    let other = "param d: f32[4, 8] global write param s: f32[4, 4] global read";
    refused(Intrinsic::new(good.clone(), kernel(other, "d[0, 0] = 1.0f32")), "and what is emitted has (d: f32[4, 8]");
    let made = Intrinsic::new(good.clone(), good.clone()).unwrap();
    refused(made.with_start(good), "it has a start, but its meaning is not a sum");
}

/// One declared by a user: a tile of two instructions, the way a template outside of the library would.
#[test]
fn an_intrinsic_of_a_users_own_is_checked_by_running_it() {
    let operands = "param c: f32[16, 16] fragment.warp readwrite
      param a: f16[16, 32] fragment.warp read
      param b: f16[32, 16] fragment.warp read";
    let kernel = |body: &str| parse(&format!("kernel pair_mma {{\n{operands}\n{body}\n}}\n")).unwrap();
    let meaning = kernel(
        "for i in 0..16 { for j in 0..16 { for k in 0..32 { c[i, j] += a[i, k] * b[k, j] init 0.0f32 over (k) } } }",
    );
    let half = |k: i64| format!("mma.warp c[0: 16, 0: 16] += a[0: 16, {k}: 16] * b[{k}: 16, 0: 16]");
    let start = kernel("fill c[0: 16, 0: 16] = 0.0f32");
    let tensorized = |emitted: &str| {
        let before = product([32, 32, 64], DType::F16, DType::F32);
        let tile = [16, 16, 32];
        let Placed { mut s, load_a, load_b, multiply, store } = placed(before.clone(), tile).unwrap();
        let own = Intrinsic::new(meaning.clone(), kernel(emitted)).and_then(|i| i.with_start(start.clone())).unwrap();
        s.tensorize(multiply, &own).unwrap_or_else(|e| panic!("{e}"));
        s.tensorize(load_a, &wmma::load([16, 32], DType::F16, Scope::Shared).unwrap()).unwrap();
        s.tensorize(load_b, &wmma::load([32, 16], DType::F16, Scope::Shared).unwrap()).unwrap();
        s.tensorize(store, &wmma::store([16, 16], DType::F32, DType::F32, Scope::Global).unwrap()).unwrap();
        (same(&before, &insert_barriers(s.kernel.clone())), s.kernel)
    };
    let (right, kernel_) = tensorized(&format!("{}\n{}", half(0), half(16)));
    right.unwrap_or_else(|e| panic!("{e}"));
    emitted(kernel_, "sm_80").unwrap_or_else(|e| panic!("{e}"));
    // One that does not do what it means computes something else, like any wrong kernel.
    let (wrong, _) = tensorized(&format!("{}\n{}", half(0), half(0)));
    assert!(wrong.unwrap_err().contains("differs by"));
}

#[test]
fn each_generation_has_its_own_instructions() {
    let parts = |sums: &str| {
        let volta = [
            "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;".to_string(),
            "wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 ".to_string(),
            format!("wmma.mma.sync.aligned.row.row.m16n16k16.{sums}.{sums} "),
            format!("wmma.store.d.sync.aligned.row.m16n16k16.{sums} [%0], "),
        ];
        let turing = vec![format!("mma.sync.aligned.m16n8k8.row.col.{sums}.f16.f16.{sums} "), "ldmatrix".to_string()];
        let ampere = vec![format!("mma.sync.aligned.m16n8k16.row.col.{sums}.f16.f16.{sums} "), "ldmatrix".to_string()];
        [("sm_70", volta.to_vec()), ("sm_75", turing), ("sm_80", ampere)]
    };
    for sums in [DType::F32, DType::F16] {
        let s = tensorized([32, 32, 16], [16, 16, 16], DType::F16, sums);
        for (target, parts) in parts(sums.name()) {
            let source = source(s.kernel.clone(), target).unwrap_or_else(|e| panic!("{target}: {e}"));
            // The store goes right to a parameter.
            assert_eq!(source.alignment, if target == "sm_70" { 32 } else { 16 });
            let source = source.source;
            parts.iter().for_each(|part| assert!(source.contains(part.as_str()), "{target}: {part}\n{source}"));
            let others = if target == "sm_70" { ["ldmatrix", "m16n8"] } else { ["wmma", "wmma"] };
            others.iter().for_each(|part| assert!(!source.contains(part), "{target}: {part}\n{source}"));
        }
    }
}

#[test]
fn a_cpu_has_no_fragments() {
    let s = tensorized([32, 32, 16], [16, 16, 16], DType::F16, DType::F32);
    let why = match lower_for(s.kernel, Target::find("x86-64-v3").unwrap()) {
        Err(e) => e.to_string(),
        Ok(lowered) => {
            c::emit(&lowered, &COptions { isa: Isa::Portable, symbol: "product".into(), comment: "A test.".into() })
                .expect_err("no CPU has fragments")
                .to_string()
        }
    };
    assert!(why.contains("grid") || why.contains("GPU") || why.contains("fragment"), "{why}");
}

/// Runs what is emitted for a target as C++, with one thread of the system for each of the GPU.
fn run_emitted(kernel: &Kernel, target: &str, inputs: &Values) -> Values {
    let source = source(kernel.clone(), target).unwrap_or_else(|e| panic!("{target}: {e}"));
    cuda_on_cpu::build(&insert_barriers(kernel.clone()), &source)
        .and_then(|program| program.run(inputs))
        .unwrap_or_else(|e| panic!("{target}: {e}"))
}

/// Rows times columns that make one element of the output, at row 3 and column 5: `terms` down the reduction.
fn one_element(kernel: &Kernel, terms: &[(f64, f64)]) -> Values {
    let mut inputs = Values::new();
    for p in &kernel.params {
        let b = kernel.buffer(*p);
        if b.access != Access::Read {
            continue;
        }
        let mut values = vec![0.0; b.shape.iter().product::<i64>() as usize];
        for (k, (left, right)) in terms.iter().enumerate() {
            match b.name.as_str() {
                "a" => values[3 * b.shape[1] as usize + k] = *left,
                _ => values[k * b.shape[1] as usize + 5] = *right,
            }
        }
        inputs.insert(b.name.clone(), values);
    }
    inputs
}

#[test]
fn what_is_emitted_for_each_generation_computes_the_product() {
    let size = [32, 64, 32];
    for sums in [DType::F32, DType::F16] {
        let before = product(size, DType::F16, sums);
        let inputs = interp::seeded_inputs(&before, 11);
        let want = interp::run(&before, &inputs, Mode::Declared).unwrap();
        let most = want["c"].iter().fold(0.0f64, |m, v| m.max(v.abs()));
        // Sums in f16 are rounded at most eight times, to 11 bits.
        let allowed = if sums == DType::F16 { 8.0 * most * f64::powi(2.0, -11) } else { 1e-4 };
        for (tile, targets) in
            [(wmma::M16N16K16, &["sm_70", "sm_75", "sm_80"][..]), ([16, 8, 16], &["sm_75", "sm_80"][..])]
        {
            let scheduled = tensorized(size, tile, DType::F16, sums).kernel;
            for target in targets {
                let off = interp::max_difference(&want, &run_emitted(&scheduled, target, &inputs)).unwrap();
                assert!(off <= allowed, "{target}, {tile:?} with sums in {sums}: {off} of {most}");
            }
        }
    }
    // Volta has no such shape, and the fault names the one that it has.
    let narrow = tensorized(size, [16, 8, 16], DType::F16, DType::F32).kernel;
    let error = emitted(narrow, "sm_70").unwrap_err();
    assert!(error.contains("is no whole number of 16 x 16") && error.contains("m16n16k16 of wmma"), "{error}");
}

/// Each tile of 16 products is added up in f32 and rounded once: 2048 and sixteen halves are 2056, and still 2048 where each
/// product is rounded by itself.
#[test]
fn sums_in_f16_are_rounded_once_a_tile() {
    let before = product([32, 32, 32], DType::F16, DType::F16);
    let after = tensorized([32, 32, 32], [16, 16, 16], DType::F16, DType::F16).kernel;
    let terms: Vec<(f64, f64)> = [(64.0, 2.0); 16].into_iter().chain([(0.5, 1.0); 16]).collect();
    let inputs = one_element(&before, &terms);
    let at = |values: &Values| values["c"][3 * 32 + 5];
    assert_eq!(at(&interp::run(&before, &inputs, Mode::Declared).unwrap()), 2048.0);
    assert_eq!(at(&interp::run(&insert_barriers(after.clone()), &inputs, Mode::Declared).unwrap()), 2056.0);
    for target in ["sm_70", "sm_80"] {
        assert_eq!(at(&run_emitted(&after, target, &inputs)), 2056.0, "{target}");
    }
    // What does not fit into f16 is infinite there, and not in f32.
    let large = one_element(&before, &[(1000.0, 100.0)]);
    assert_eq!(at(&run_emitted(&after, "sm_70", &large)), f64::INFINITY);
    let wide = tensorized([32, 32, 32], [16, 16, 16], DType::F16, DType::F32).kernel;
    assert_eq!(at(&run_emitted(&wide, "sm_70", &large)), 100_000.0);
}

#[test]
fn types_that_tensor_cores_do_not_have_are_refused_where_they_are_declared() {
    let tile = [16, 16, 16];
    let refused = |made: Result<Intrinsic, ScheduleError>, why: &str| {
        let error = made.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(wmma::mma(tile, DType::F32, DType::F32), "tensor cores have no operands in f32; use f16 or bf16");
    refused(wmma::mma(tile, DType::Bf16, DType::F16), "tensor cores have no sums of bf16 in f16; use f32");
    refused(wmma::mma(tile, DType::F16, DType::Bf16), "tensor cores have no sums of f16 in bf16; use f32 or f16");
    refused(wmma::load([16, 16], DType::F64, Scope::Shared), "tensor cores have no fragments in f64");
    refused(wmma::store([16, 16], DType::Bf16, DType::Bf16, Scope::Global), "tensor cores have no sums in bf16");
    refused(wmma::fill([16, 16], DType::I32), "tensor cores have no sums in i32; use f32 or f16");
    // A user's own declaration is looked at by the verifier.
    let s = Schedule::new(tile_statements(
        "mma.warp acc[0: 16, 0: 16] += x[0: 16, 0: 16] * w[0: 16, 0: 16]",
        "bf16",
        "f16",
    ));
    let faults = check(&s.kernel, &Limits::cuda());
    assert!(faults[0].to_string().contains("tensor cores do not compute f16 += bf16 * bf16"), "{}", faults[0]);
}

/// Statements on tiles of one warp, with operands and sums of these types. Shared `s` and `r` are of those types, too, and
/// rows of `r` lie 24 elements apart.
fn tile_statements(body: &str, operands: &str, sums: &str) -> Kernel {
    let text = format!(
        "kernel k {{\n  param c: {sums}[32, 32] global write\n  param d: f16[32, 32] global write\n  for block in 0..1 grid.x \
         {{\n    for lane in 0..32 thread.x {{\n    alloc s: {operands}[32, 32] shared\n    alloc r: {operands}[32, 24] \
         shared\n    alloc x: {operands}[16, 16] fragment.warp\n    alloc w: {operands}[16, 16] fragment.warp\n    alloc acc: \
         {sums}[32, 32] fragment.warp\n    {body}\n  }} }}\n}}\n"
    );
    parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn volta_is_refused_what_needs_to_know_where_elements_are() {
    let limits = Target::find("sm_70").unwrap().limits();
    let refused = |body: &str, [operands, sums]: [&str; 2], why: &str| {
        let kernel = tile_statements(body, operands, sums);
        let named = |limits: &Limits| check(&kernel, limits).iter().any(|f| f.to_string().contains(why));
        let all: Vec<String> = check(&kernel, &limits).iter().map(ToString::to_string).collect();
        assert!(named(&limits), "{body}: no `{why}` in\n{}", all.join("\n"));
        assert!(!named(&Limits::cuda()), "{body}: 7.5 has it");
    };
    let halves = ["f16", "f32"];
    let fill = "fill acc[0: 32, 0: 32] = 0.0f32\n";
    refused(
        &format!("{fill} for i in 0..32 fragment.row {{ for j in 0..32 fragment.col {{ c[i, j] = acc[i, j] }} }}"),
        halves,
        "loop i visits the elements of a fragment, whose places no thread knows",
    );
    refused("fill acc[0: 16, 0: 8] = 0.0f32", halves, "a tile of [16, 8] of acc is no whole number of 16 x 16");
    refused(
        "for u in 0..3 unrolled { fill acc[0: 16, u * 8: 16] = 0.0f32 }",
        halves,
        "a tile of acc moves by 8 elements, no multiple of 16",
    );
    let multiply = "mma.warp acc[0: 16, 0: 16] += x[0: 16, 0: 16] * w[0: 16, 0: 16]";
    refused(multiply, ["bf16", "f32"], "tensor cores multiply bf16 from compute capability 8.0 on");
    refused("move d[0: 16, 0: 16] = acc[0: 16, 0: 16]", halves, "a move of f32 into f16 converts elements");
    refused("move x[0: 16, 0: 16] = s[0: 16, 8: 16]", halves, "moves by 8 elements, so it is not aligned to 32 bytes");
    refused(
        "move x[0: 16, 0: 16] = r[0: 16, 0: 16]",
        halves,
        "rows of the tile of r are 48 bytes apart, no multiple of 32",
    );
    refused(
        "move_rows x[0: 16, 0: 32] = d[0: 16, 0: 32]",
        halves,
        "it puts elements into places of a fragment that no thread knows",
    );
    // Sums in f16 begin at 16 bytes.
    let kernel = tile_statements(&format!("{fill} move c[0: 16, 8: 16] = acc[0: 16, 0: 16]"), "f16", "f16");
    let faults: Vec<String> = check(&kernel, &limits).iter().map(ToString::to_string).collect();
    assert!(!faults.iter().any(|f| f.contains("aligned")), "{}", faults.join("\n"));
}

#[test]
fn the_emitter_refuses_what_was_lowered_for_later_devices() {
    let s = tensorized([32, 32, 16], [16, 16, 16], DType::F16, DType::F32);
    let lowered = lower_for(s.kernel, Target::find("sm_75").unwrap()).unwrap();
    let arch = Arch::parse("sm_70").unwrap();
    let options = CudaOptions { arch, symbol: "product".into(), comment: "A test.".into(), min_blocks: None };
    let error = emit(&lowered, &options).unwrap_err().to_string();
    assert!(error.contains("single elements of the fragment `acc` on sm_70"), "{error}");
}
