//! What primitives refuse, and what they say.

use super::random::{chain, matmul, stencil};
use kernel_gen::ir::builder::KernelBuilder;
use kernel_gen::ir::{Access, Axis, DType, Expr, Kernel, LoopKind, Pragma, Scope, Stmt, VarId};
use kernel_gen::schedule::{LayoutDim, Schedule, ScheduleError, Tail};
use std::fmt::Debug;

/// The message of a refusal.
#[track_caller]
fn refused<T: Debug>(r: Result<T, ScheduleError>, parts: &[&str]) {
    let text = r.expect_err("it must be refused").to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing from: {text}");
    }
}

/// `acc = a b` and its epilogue, with the loops of `acc`.
fn product() -> (Schedule, [VarId; 3]) {
    let s = Schedule::new(matmul(6, 8, 10));
    let acc = s.stage("acc").unwrap();
    let axes = s.axes(acc).unwrap();
    (s, axes)
}

/// `y[i] = y[i - 1] + x[i]`, and a loop around.
fn recurrence() -> Kernel {
    let mut b = KernelBuilder::new("scan");
    let x = b.param("x", DType::F32, &[8], Access::Read);
    let y = b.param("y", DType::F32, &[9], Access::ReadWrite);
    b.nest(&[("r", 2), ("i", 8)], |b, v| {
        let value = Expr::load(y, vec![v[1].into()]) + Expr::load(x, vec![v[1].into()]);
        b.store(y, [v[1] + 1], value);
    });
    b.finish()
}

#[test]
fn split_refuses_a_factor_that_does_not_divide_and_lists_those_that_do() {
    let (mut s, [i, _, k]) = product();
    refused(s.split(i, 4, Tail::Perfect), &["split of loop `i`", "6 iterations", "1, 2, 3, 6", "Tail::Guard"]);
    refused(s.split(i, 0, Tail::Guard), &["factor 0", "1 or more"]);
    refused(s.split(i, 7, Tail::Cut), &["factor 7", "at most 6"]);
    refused(s.split(k, 4, Tail::Shift), &["carries the reduction into `acc`"]);
    refused(s.split_nparts(i, 0), &["split_nparts of loop `i`", "nparts 0"]);
    refused(s.split_sizes(i, [2, 2]), &["factors whose product is 6"]);
    s.vectorize(i).unwrap();
    refused(s.split(i, 2, Tail::Guard), &["vectorized already", "before giving the loop a kind"]);
}

#[test]
fn a_loop_that_is_gone_is_refused_with_a_hint() {
    let (mut s, [i, j, _]) = product();
    s.split(i, 2, Tail::Perfect).unwrap();
    refused(s.split(i, 2, Tail::Perfect), &["loop `i`", "no such loop", "loops_of"]);
    refused(s.unroll(VarId(999)), &["unroll of loop #999", "no such loop"]);
    refused(s.pragma(i, Pragma::UnrollExplicit(true)), &["no such loop"]);
    refused(s.fuse(i, j), &["no such loop"]);
}

#[test]
fn fuse_refuses_loops_that_are_not_directly_nested() {
    let (mut s, [i, j, k]) = product();
    refused(s.fuse(i, k), &["fuse of loop `i`", "`k` is not perfectly nested", "the loop inside is `j`"]);
    refused(s.fuse(j, k), &["carries the reduction into `acc`"]);
    refused(s.fuse_all(&[]), &["no loop was given"]);
}

/// A shifted tail computes some elements twice, each from its own beginning. With the reduce loop outside of the tail's
/// loop, both computations would add to the same element.
#[test]
fn reorder_keeps_a_reduction_inside_of_a_shifted_tail() {
    let (mut s, [i, j, k]) = product();
    let [io, _] = s.split(i, 4, Tail::Shift).unwrap();
    refused(s.reorder(&[k, io]), &["acc"]);
    // Inside of it, the order is free.
    s.reorder(&[k, j]).unwrap();
}

#[test]
fn reorder_refuses_other_nests_and_orders_that_matter() {
    let (mut s, [i, j, _]) = product();
    let c = s.stage("c").unwrap();
    let [i_out, _] = s.axes(c).unwrap();
    refused(s.reorder(&[i, i_out]), &["different nests"]);
    refused(s.reorder(&[i, j, i]), &["the loop twice"]);
    let mut s = Schedule::new(recurrence());
    let y = s.stage("y").unwrap();
    let [r, i] = s.axes(y).unwrap();
    refused(s.reorder(&[i, r]), &["depend on each other through `y`"]);
    refused(s.tile([r, i], [1, 2], Tail::Perfect), &["reorder of loop", "depend on each other"]);
}

#[test]
fn kinds_refuse_reductions_and_dependences() {
    let (mut s, [i, j, k]) = product();
    refused(s.parallel(k), &["parallel of loop `k`", "reduction into `acc`", "rfactor"]);
    refused(s.vectorize(k), &["vectorize of loop `k`", "reduction into `acc`"]);
    refused(s.bind(k, LoopKind::Thread(Axis::X)), &["bind of loop `k`", "reduction into `acc`"]);
    refused(s.vthread(k), &["vthread of loop `k`", "reduction into `acc`"]);
    s.parallel(i).unwrap();
    refused(s.parallel(j), &["`i`", "parallel already", "fuse the two"]);
    refused(s.unroll(i), &["parallel already"]);
    let mut s = Schedule::new(recurrence());
    let y = s.stage("y").unwrap();
    let [_, i] = s.axes(y).unwrap();
    refused(s.vectorize(i), &["depend on each other through `y`"]);
}

#[test]
fn bind_refuses_an_axis_twice_unless_threads_share_a_copy() {
    let (mut s, [i, j, _]) = product();
    s.bind(i, LoopKind::Thread(Axis::X)).unwrap();
    refused(s.bind(j, LoopKind::Thread(Axis::X)), &["thread.x too", "use another axis"]);
    refused(s.bind(j, LoopKind::Grid(Axis::X)), &["inside the thread loop `i`"]);
}

#[test]
fn pad_and_peel_refuse_counts_that_make_no_sense() {
    let (mut s, [i, ..]) = product();
    refused(s.pad(i, 0), &["pad of loop `i`", "multiple 0"]);
    refused(s.peel(i, 6), &["peel of loop `i`", "1 to 5 of its 6"]);
    s.parallel(i).unwrap();
    refused(s.peel(i, 1), &["parallel already"]);
    refused(s.pad(i, 4), &["parallel already"]);
}

#[test]
fn caches_refuse_readers_that_do_not_read_and_buffers_that_change() {
    let (mut s, [i, ..]) = product();
    let [a, bias, acc, c] = ["a", "bias", "acc", "c"].map(|n| s.stage(n).unwrap());
    refused(s.cache_read(a, Scope::Shared, &[c]), &["cache_read of stage `a`", "reader `c`", "stages that read it"]);
    refused(s.cache_read(a, Scope::Shared, &[]), &["no reader"]);
    refused(s.cache_write(a, Scope::Local), &["no statement writes it"]);
    refused(s.cache_read_at(bias, i, Scope::Local), &["nothing inside of loop `i` reads it"]);
    refused(s.cache_write_at(c, i, Scope::Local), &["nothing inside of loop `i` writes it"]);
    let mut s = Schedule::new(recurrence());
    let y = s.stage("y").unwrap();
    let [r, _] = s.axes(y).unwrap();
    refused(s.cache_read_at(y, r, Scope::Local), &["`y`", "is written again"]);
    refused(s.cache_write_at(y, r, Scope::Local), &["it reads itself"]);
    refused(s.cache_write(y, Scope::Local), &["it reads itself"]);
    let _ = acc;
}

#[test]
fn compute_at_refuses_parameters_other_users_and_its_own_loops() {
    let (mut s, [i, ..]) = product();
    let [a, acc, c] = ["a", "acc", "c"].map(|n| s.stage(n).unwrap());
    let [i_out, j_out] = s.axes(c).unwrap();
    refused(s.compute_at(a, i), &["compute_at of stage `a`", "parameter", "cache_read"]);
    refused(s.compute_at(acc, i), &["`i` is a loop of the stage itself"]);
    s.set_scope(acc, Scope::Local).unwrap();
    s.compute_at(acc, j_out).unwrap();
    refused(s.compute_at(acc, i_out), &["attached at loop `j_out` already", "inwards only"]);

    let mut s = Schedule::new(chain(4, 4));
    let [t, y] = ["t", "y"].map(|n| s.stage(n).unwrap());
    let u = s.stage("u").unwrap();
    let [i_u, _] = s.axes(u).unwrap();
    s.cache_read(t, Scope::Global, &[u]).unwrap();
    let [p, _] = s.axes(y).unwrap();
    s.parallel(p).unwrap();
    refused(s.compute_at(u, p), &["scope is global", "parallel loop `p`", "set_scope"]);
    let [i_t, _] = s.axes(t).unwrap();
    let _ = (i_u, i_t);
}

#[test]
fn compute_at_refuses_a_stage_that_is_used_elsewhere() {
    let mut b = KernelBuilder::new("two_users");
    let x = b.param("x", DType::F32, &[4], Access::Read);
    let y = b.param("y", DType::F32, &[4], Access::Write);
    let z = b.param("z", DType::F32, &[4], Access::Write);
    let t = b.alloc("t", DType::F32, &[4], Scope::Global);
    b.for_("i", 4, |b, i| b.store(t, [i.into()], Expr::load(x, vec![i.into()])));
    b.for_("j", 4, |b, j| b.store(y, [j.into()], Expr::load(t, vec![j.into()])));
    b.for_("k", 4, |b, k| b.store(z, [k.into()], Expr::load(t, vec![k.into()])));
    let mut s = Schedule::new(b.finish());
    let [j] = s.axes(y).unwrap();
    refused(s.compute_at(t, j), &["`z` uses it outside of loop `j`"]);
}

#[test]
fn compute_inline_refuses_reductions_and_parameters() {
    let (mut s, _) = product();
    let [acc, c] = ["acc", "c"].map(|n| s.stage(n).unwrap());
    refused(s.compute_inline(acc), &["compute_inline of stage `acc`", "it is a reduction"]);
    refused(s.compute_inline(c), &["parameter"]);
    refused(s.stage("nothing"), &["stage `nothing`"]);
}

#[test]
fn set_scope_and_storage_align_refuse_what_the_caller_owns() {
    let (mut s, _) = product();
    let [a, acc, bias] = ["a", "acc", "bias"].map(|n| s.stage(n).unwrap());
    refused(s.set_scope(a, Scope::Shared), &["set_scope of stage `a`", "parameter"]);
    refused(s.storage_align(a, 0, 8, 0), &["storage_align of stage `a`", "parameter"]);
    refused(s.storage_align(acc, 1, 8, 0), &["dimension 1", "all but the innermost"]);
    refused(s.storage_align(acc, 0, 8, 8), &["0 <= offset < factor"]);
    refused(s.storage_align(bias, 0, 8, 0), &["parameter"]);
}

#[test]
fn transform_layout_refuses_layouts_that_lose_something() {
    let (mut s, _) = product();
    let a = s.stage("a").unwrap();
    let whole = LayoutDim::whole;
    refused(s.transform_layout(a, &[whole(0)]), &["transform_layout of stage `a`", "dimension 1 is missing"]);
    refused(s.transform_layout(a, &[whole(0), whole(0), whole(1)]), &["dimension 0"]);
    refused(s.transform_layout(a, &[LayoutDim::inner(0, 4), whole(1)]), &["dimension 0"]);
    refused(s.transform_layout(a, &[LayoutDim::outer(0, 4), LayoutDim::inner(0, 2), whole(1)]), &["dimension 0"]);
    refused(s.transform_layout(a, &[whole(0), whole(1), whole(2)]), &["there is no dimension 2"]);
}

#[test]
fn rfactor_refuses_stages_and_loops_without_a_reduction() {
    let (mut s, [i, _, k]) = product();
    let [acc, c] = ["acc", "c"].map(|n| s.stage(n).unwrap());
    refused(s.rfactor(c, i), &["rfactor of stage `c`", "not a reduction"]);
    refused(s.rfactor(acc, i), &["loop `i`", "a reduce loop of the stage (k)"]);
    s.parallel(i).unwrap();
    refused(s.rfactor(acc, k), &["loop `i` is parallel"]);
}

#[test]
fn pipeline_refuses_loops_without_a_copy() {
    let (mut s, [i, ..]) = product();
    let a = s.stage("a").unwrap();
    refused(s.pipeline(i, 2), &["pipeline of loop `i`", "cache_read"]);
    refused(s.pipeline(i, 1), &["1 stages", "2 to 7"]);
    s.cache_read_at(a, i, Scope::Local).unwrap();
    s.pipeline(i, 2).unwrap();
}

#[test]
fn a_refusal_leaves_the_kernel_and_the_trace_alone() {
    let mut s = Schedule::new(stencil(4, 4));
    let y = s.stage("y").unwrap();
    let [i, _] = s.axes(y).unwrap();
    let before = s.kernel.clone();
    assert!(s.split(i, 3, Tail::Perfect).is_err());
    assert_eq!(s.kernel, before);
    assert!(s.trace.is_empty());
    s.split(i, 2, Tail::Perfect).unwrap();
    assert_eq!(s.trace.len(), 1);
    assert_eq!((s.trace[0].name, &s.trace[0].args[..]), ("split", &["i".into(), "2".into(), "Perfect".into()][..]));
    assert_eq!(s.trace[0].kernel, s.kernel);
    assert!(matches!(s.kernel.body[1], Stmt::For(_)));
}
