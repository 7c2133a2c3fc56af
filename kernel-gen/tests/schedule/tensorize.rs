//! Tensor cores by schedule: scalar loops, fragments as caches, and intrinsics in the place of nests.

use crate::random::same;
use kernel_gen::analysis::verify::{FaultKind, Limits, check};
use kernel_gen::emit::cuda::{Arch, CudaOptions, emit};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::{Access, Axis, DType, Expr, Kernel, LoopKind, Scope, Unit};
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::lower_for;
use kernel_gen::schedule::{Schedule, ScheduleError, Tail, wmma};
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
    load_a: kernel_gen::ir::VarId,
    load_b: kernel_gen::ir::VarId,
    multiply: kernel_gen::ir::VarId,
    store: kernel_gen::ir::VarId,
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
    let target = Target::find(target).unwrap();
    let lowered = lower_for(kernel, target).map_err(|e| e.to_string())?;
    let arch = Arch::of(target).unwrap();
    let options = CudaOptions { arch, symbol: "product".into(), comment: "A test.".into(), min_blocks: None };
    Ok(emit(&lowered, &options).map_err(|e| e.to_string())?.source)
}

#[test]
fn a_product_is_the_same_after_each_of_its_intrinsics() {
    for (size, tile) in [([32, 32, 16], [16, 16, 16]), ([32, 64, 32], [16, 16, 16]), ([32, 32, 32], [16, 8, 16])] {
        for dtype in [DType::F16, DType::Bf16] {
            let s = tensorized(size, tile, dtype, DType::F32);
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
