//! Random sequences of primitives on random kernels: whatever is not refused computes the same.

use crate::random::{Random, kernel, same};
use kernel_gen::ir::{BufferId, Pragma, Scope, Stmt, VarId, visit};
use kernel_gen::schedule::{LayoutDim, Schedule, ScheduleError, Tail};
use std::collections::BTreeMap;

/// One random application; the name of the primitive, and what it said.
fn step(s: &mut Schedule, r: &mut Random) -> (&'static str, Result<(), ScheduleError>) {
    let loops: Vec<VarId> = visit::loops(&s.kernel.body).iter().map(|l| l.var).collect();
    let buffers: Vec<BufferId> = (0..s.kernel.buffers.len() as u32).map(BufferId).collect();
    if loops.is_empty() {
        return ("nothing", Ok(()));
    }
    let (l, b) = (r.pick(&loops), r.pick(&buffers));
    let private = [Scope::Local, Scope::Register];
    let tails = [Tail::Perfect, Tail::Guard, Tail::Cut, Tail::Shift];
    match r.below(30) {
        0 | 1 => ("split", s.split(l, r.range(1, 5), r.pick(&tails)).map(|_| ())),
        2 => ("split_nparts", s.split_nparts(l, r.range(1, 4)).map(|_| ())),
        3 => ("fuse", fuse(s, l)),
        4 | 5 => {
            let mut order = s.loops_of(b);
            for i in (1..order.len()).rev() {
                order.swap(i, r.below(i as u64 + 1) as usize);
            }
            order.truncate(r.range(2, 8) as usize);
            ("reorder", s.reorder(&order))
        }
        6 if reads_private_root(s, l) => ("nothing", Ok(())),
        6 => ("parallel", s.parallel(l)),
        7 => ("vectorize", s.vectorize(l)),
        8 => ("unroll", s.unroll(l)),
        9 => ("vthread", s.vthread(l)),
        10 => ("cache_read", cache_read(s, r, b)),
        11 => ("cache_write", s.cache_write(b, Scope::Global).map(|_| ())),
        12 | 13 => ("cache_read_at", s.cache_read_at(b, l, r.pick(&private)).map(|_| ())),
        14 | 15 => ("cache_write_at", s.cache_write_at(b, l, r.pick(&private)).map(|_| ())),
        16 | 17 => ("compute_at", s.compute_at(b, l)),
        18 => ("compute_inline", s.compute_inline(b)),
        19 => ("transform_layout", transform(s, r, b)),
        20 => ("pad", s.pad(l, r.range(2, 4))),
        21 => ("peel", s.peel(l, r.range(1, 3)).map(|_| ())),
        22 => ("tile", {
            let chain = s.loops_of(b);
            match chain.get(..2) {
                Some(&[x, y]) => s.tile([x, y], [r.range(1, 4), r.range(1, 4)], r.pick(&tails)).map(|_| ()),
                _ => Ok(()),
            }
        }),
        23 => ("storage_align", {
            let factor = r.range(2, 8);
            let (dim, offset) = (r.below(2) as usize, r.below(factor as u64) as i64);
            s.storage_align(b, dim, factor, offset)
        }),
        24 | 25 => ("rfactor", s.rfactor(b, l).map(|_| ())),
        26 => {
            // A loop that holds a buffer, if there is one.
            let holds = |l: &VarId| {
                visit::find_loop(&s.kernel.body, *l).is_some_and(|l| l.body.iter().any(|s| matches!(s, Stmt::Alloc(_))))
            };
            let l = loops.iter().copied().find(holds).unwrap_or(l);
            ("pipeline", s.pipeline(l, r.range(2, 3)))
        }
        27 => ("pragma", s.pragma(l, Pragma::AutoUnrollMaxStep(r.range(1, 64)))),
        28 => ("tensorize", {
            let extent = |v: &VarId| visit::find_loop(&s.kernel.body, *v).map_or(1, |l| l.extent);
            let size: Vec<i64> = s.loops_of(b).iter().rev().take(3).rev().map(extent).collect();
            match (s.loops_of(b).iter().rev().nth(2), size.get(..3)) {
                (Some(top), Some(&[m, n, k])) => s.tensorize(*top, [m, n, k]),
                _ => Ok(()),
            }
        }),
        _ => ("set_scope", set_scope(s, r)),
    }
}

/// Whether a loop reads private memory of the root. That is allowed as long as the memory is attached inside the loop later
/// on, which a random sequence would not think of.
fn reads_private_root(s: &Schedule, l: VarId) -> bool {
    let root = |b: &BufferId| s.kernel.body.contains(&Stmt::Alloc(*b)) && s.kernel.buffer(*b).scope.is_private();
    let Some(l) = visit::find_loop(&s.kernel.body, l) else { return false };
    (0..s.kernel.buffers.len() as u32).map(BufferId).filter(root).any(|b| l.body.iter().any(|s| s.reads(b)))
}

/// Fuses a loop with the one directly inside, if there is one.
fn fuse(s: &mut Schedule, l: VarId) -> Result<(), ScheduleError> {
    let inner = visit::find_loop(&s.kernel.body, l).and_then(|l| match &l.body[..] {
        [Stmt::For(inner)] => Some(inner.var),
        _ => None,
    });
    match inner {
        Some(inner) => s.fuse(l, inner).map(|_| ()),
        None => Ok(()),
    }
}

fn cache_read(s: &mut Schedule, r: &mut Random, b: BufferId) -> Result<(), ScheduleError> {
    let mut readers = vec![];
    s.kernel.body.iter().for_each(|st| {
        st.walk(&mut |st| {
            if let Stmt::Store { buffer, value, .. } | Stmt::Reduce { buffer, value, .. } = st
                && value.reads(b)
            {
                readers.push(*buffer);
            }
        });
    });
    if readers.is_empty() {
        return Ok(());
    }
    let reader = r.pick(&readers);
    s.cache_read(b, Scope::Global, &[reader]).map(|_| ())
}

/// Blocks one dimension of an allocated buffer, and swaps two.
fn transform(s: &mut Schedule, r: &mut Random, b: BufferId) -> Result<(), ScheduleError> {
    if s.kernel.is_param(b) {
        return Ok(());
    }
    let rank = s.kernel.buffer(b).shape.len();
    let (dim, block) = (r.below(rank as u64) as usize, r.range(2, 4));
    let mut layout: Vec<LayoutDim> = (0..rank).map(LayoutDim::whole).collect();
    layout[dim] = LayoutDim::outer(dim, block);
    layout.push(LayoutDim::inner(dim, block));
    let other = r.below(rank as u64) as usize;
    layout.swap(dim, other);
    s.transform_layout(b, &layout).map(|_| ())
}

/// Makes a buffer that lives inside a loop private, or less so.
fn set_scope(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    let inside = |b: &BufferId| !s.kernel.body.contains(&Stmt::Alloc(*b)) && !s.kernel.is_param(*b);
    let found = (0..s.kernel.buffers.len() as u32).map(BufferId).find(inside);
    found.map_or(Ok(()), |b| s.set_scope(b, r.pick(&[Scope::Local, Scope::Register, Scope::Global])))
}

fn run(seeds: std::ops::Range<u64>, steps: usize) -> BTreeMap<&'static str, usize> {
    let mut applied = BTreeMap::new();
    for seed in seeds {
        let mut r = Random(seed);
        let mut s = Schedule::new(kernel(&mut r));
        for _ in 0..steps {
            let before = s.kernel.clone();
            let (name, result) = step(&mut s, &mut r);
            match result {
                Ok(()) if s.kernel != before => {
                    *applied.entry(name).or_insert(0) += 1;
                    if let Err(why) = same(&before, &s.kernel) {
                        let last = s.trace.last().map(|t| format!("{}({})", t.name, t.args.join(", ")));
                        panic!("seed {seed}, {}: {why}", last.unwrap_or_default());
                    }
                }
                Ok(()) => {}
                Err(e) => {
                    assert_eq!(s.kernel, before, "a refusal changed the kernel");
                    assert!(e.to_string().len() > 20, "a refusal gives its reason: {e}");
                }
            }
        }
    }
    applied
}

#[test]
fn random_sequences_of_primitives_keep_the_result() {
    // More seeds than a normal run takes can be asked for when a primitive changes.
    let seeds = std::env::var("SCHEDULE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3000);
    let applied = run(0..seeds, 8);
    for name in [
        "split",
        "split_nparts",
        "fuse",
        "reorder",
        "parallel",
        "vectorize",
        "unroll",
        "vthread",
        "cache_read",
        "cache_write",
        "cache_read_at",
        "cache_write_at",
        "compute_at",
        "compute_inline",
        "transform_layout",
        "pad",
        "peel",
        "tile",
        "set_scope",
        "storage_align",
        "rfactor",
        "pipeline",
        "pragma",
        "tensorize",
    ] {
        let n = applied.get(name).copied().unwrap_or(0);
        assert!(n >= 10, "{name} was applied {n} times only: {applied:?}");
    }
}
