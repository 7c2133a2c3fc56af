//! Random sequences of primitives on random kernels: whatever is not refused computes the same.

use super::random::{Random, kernel, same};
use kernel_gen::ir::parse::parse;
use kernel_gen::ir::{Axis, BufferId, LoopKind, Pragma, Scope, Stmt, VarId, visit};
use kernel_gen::schedule::{Intrinsic, LayoutDim, Schedule, ScheduleError, Tail};

/// One random application of a primitive, to a loop or buffer that it may or may not suit.
type Apply = fn(&mut Schedule, &mut Random) -> Result<(), ScheduleError>;

/// All primitives.
pub(crate) const PRIMITIVES: [(&str, Apply); 26] = [
    ("split", |s, r| {
        let tails = [Tail::Perfect, Tail::Guard, Tail::Cut, Tail::Shift];
        s.split(any_loop(s, r), r.range(1, 5), r.pick(&tails)).map(drop)
    }),
    ("split_nparts", |s, r| s.split_nparts(any_loop(s, r), r.range(1, 4)).map(drop)),
    ("tile", tile),
    ("fuse", fuse),
    ("reorder", reorder),
    ("bind", bind),
    ("parallel", |s, r| {
        let l = any_loop(s, r);
        if reads_private_root(s, l) { Ok(()) } else { s.parallel(l) }
    }),
    ("vectorize", |s, r| s.vectorize(any_loop(s, r))),
    ("unroll", |s, r| s.unroll(any_loop(s, r))),
    ("vthread", |s, r| s.vthread(any_loop(s, r))),
    ("pragma", |s, r| s.pragma(any_loop(s, r), Pragma::AutoUnrollMaxStep(r.range(1, 64)))),
    ("pad", |s, r| s.pad(any_loop(s, r), r.range(2, 4))),
    ("peel", |s, r| s.peel(any_loop(s, r), r.range(1, 3)).map(drop)),
    ("cache_read", cache_read),
    ("cache_write", |s, r| s.cache_write(any_buffer(s, r), Scope::Global).map(drop)),
    ("cache_read_at", |s, r| {
        let (b, l) = (any_buffer(s, r), any_loop(s, r));
        s.cache_read_at(b, l, r.pick(&PRIVATE)).map(drop)
    }),
    ("cache_write_at", |s, r| {
        let (b, l) = (any_buffer(s, r), any_loop(s, r));
        s.cache_write_at(b, l, r.pick(&PRIVATE)).map(drop)
    }),
    ("compute_at", |s, r| s.compute_at(any_buffer(s, r), any_loop(s, r))),
    ("compute_inline", |s, r| s.compute_inline(any_buffer(s, r))),
    ("set_scope", set_scope),
    ("transform_layout", transform_layout),
    ("storage_align", |s, r| {
        let factor = r.range(2, 8);
        let (dim, offset) = (r.below(2) as usize, r.below(factor as u64) as i64);
        s.storage_align(any_buffer(s, r), dim, factor, offset)
    }),
    ("rfactor", |s, r| s.rfactor(any_buffer(s, r), any_loop(s, r)).map(drop)),
    ("pipeline", pipeline),
    ("tensorize", tensorize),
    ("branch", |s, r| s.branch(any_buffer(s, r))),
];

const PRIVATE: [Scope; 2] = [Scope::Local, Scope::Register];

fn any_loop(s: &Schedule, r: &mut Random) -> VarId {
    let loops = visit::loops(&s.kernel.body);
    // A kernel may have lost all of its loops; any id then serves to be refused.
    if loops.is_empty() { VarId(0) } else { loops[r.below(loops.len() as u64) as usize].var }
}

fn any_buffer(s: &Schedule, r: &mut Random) -> BufferId {
    BufferId(r.below(s.kernel.buffers.len() as u64) as u32)
}

fn tile(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    match s.loops_of(any_buffer(s, r)).get(..2) {
        Some(&[x, y]) => s.tile([x, y], [r.range(1, 4), r.range(1, 4)], r.pick(&[Tail::Guard, Tail::Cut])).map(drop),
        _ => Ok(()),
    }
}

fn reorder(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    let mut order = s.loops_of(any_buffer(s, r));
    for i in (1..order.len()).rev() {
        order.swap(i, r.below(i as u64 + 1) as usize);
    }
    order.truncate(r.range(2, 8) as usize);
    s.reorder(&order)
}

/// Gives a loop a place in a grid or a block, if all of its nest's memory is visible there.
fn bind(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    let l = any_loop(s, r);
    let private = s.kernel.buffers.iter().any(|b| b.scope.is_private());
    let top = s.kernel.body.iter().any(|s| matches!(s, Stmt::For(top) if top.var == l));
    if private || !top {
        return Ok(());
    }
    s.bind(l, r.pick(&[LoopKind::Grid(Axis::X), LoopKind::Grid(Axis::Y)]))
}

fn pipeline(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    // A loop that holds a buffer, if there is one.
    let loops = visit::loops(&s.kernel.body);
    let holds = loops.iter().find(|l| l.body.iter().any(|s| matches!(s, Stmt::Alloc(_)))).map(|l| l.var);
    s.pipeline(holds.unwrap_or(any_loop(s, r)), r.range(2, 3))
}

/// A product, of the size that the last three loops of a stage have, with its reduce loop outermost.
fn tensorize(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    let loops = s.loops_of(any_buffer(s, r));
    let extent = |v: &VarId| visit::find_loop(&s.kernel.body, *v).map_or(1, |l| l.extent);
    let Some([m, n, k]) = loops.len().checked_sub(3).map(|n| &loops[n..]) else { return Ok(()) };
    let [rows, columns, depth] = [extent(m), extent(n), extent(k)];
    let kernel = |body: &str| {
        let operands = format!(
            "param c: f32[{rows}, {columns}] global readwrite\n  param a: f32[{rows}, {depth}] global read\n  param b: \
             f32[{depth}, {columns}] global read"
        );
        parse(&format!("kernel tile {{\n  {operands}\n{body}\n}}\n")).unwrap_or_else(|e| panic!("{e}"))
    };
    let [i, j, k] = [rows, columns, depth].map(|n| format!("0..{n}"));
    let add = "c[i, j] += a[i, k] * b[k, j] init 0.0f32";
    let meaning = kernel(&format!("for i in {i} {{ for j in {j} {{ for k in {k} {{ {add} over (k) }} }} }}"));
    let emitted =
        kernel(&format!("for k in {k} {{ for i in {i} unrolled {{ for j in {j} vectorized {{ {add} over () }} }} }}"));
    let intrinsic = Intrinsic::new(meaning, emitted)?;
    s.tensorize(*m, &intrinsic)
}

/// Whether a loop reads private memory of the root. That is allowed as long as the memory is attached inside the loop later
/// on, which a random sequence would not think of.
fn reads_private_root(s: &Schedule, l: VarId) -> bool {
    let root = |b: &BufferId| s.kernel.body.contains(&Stmt::Alloc(*b)) && s.kernel.buffer(*b).scope.is_private();
    let Some(l) = visit::find_loop(&s.kernel.body, l) else { return false };
    (0..s.kernel.buffers.len() as u32).map(BufferId).filter(root).any(|b| l.body.iter().any(|s| s.reads(b)))
}

/// Fuses a loop with the one directly inside, if there is one.
fn fuse(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    let l = any_loop(s, r);
    let inner = visit::find_loop(&s.kernel.body, l).and_then(|l| match &l.body[..] {
        [Stmt::For(inner)] => Some(inner.var),
        _ => None,
    });
    match inner {
        Some(inner) => s.fuse(l, inner).map(|_| ()),
        None => Ok(()),
    }
}

fn cache_read(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    let b = any_buffer(s, r);
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
fn transform_layout(s: &mut Schedule, r: &mut Random) -> Result<(), ScheduleError> {
    let b = any_buffer(s, r);
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

/// Applies a primitive and compares; whether it changed anything.
fn step(s: &mut Schedule, r: &mut Random, (name, apply): (&str, Apply), seed: u64) -> bool {
    let before = s.kernel.clone();
    match apply(s, r) {
        Ok(()) if s.kernel != before => {
            let last = s.trace.last().map(|t| format!("{}({})", t.name, t.args.join(", ")));
            if let Err(why) = same(&before, &s.kernel) {
                panic!("seed {seed}, {}: {why}", last.unwrap_or_default());
            }
            true
        }
        Ok(()) => false,
        Err(e) => {
            assert_eq!(s.kernel, before, "a refusal changed the kernel");
            let text = e.to_string();
            assert!(text.len() > 30 && text.contains(" of "), "{name} refuses without a reason: {text}");
            false
        }
    }
}

/// More seeds than a normal run takes can be asked for when a primitive changes.
fn times(normal: u64) -> u64 {
    let asked = std::env::var("KERNEL_GEN_SCHEDULES").ok().and_then(|s| s.parse().ok());
    asked.map_or(normal, |n: u64| n.max(normal))
}

#[test]
fn random_sequences_of_primitives_keep_the_result() {
    for seed in 0..times(2000) {
        let mut r = Random(seed);
        let mut s = Schedule::new(kernel(&mut r));
        for _ in 0..8 {
            let primitive = PRIMITIVES[r.below(PRIMITIVES.len() as u64) as usize];
            step(&mut s, &mut r, primitive, seed);
        }
    }
}

/// The primitive on random kernels, after up to three random steps, until it was applied often enough.
fn holds(name: &str) {
    let primitive = PRIMITIVES.into_iter().find(|(n, _)| *n == name).expect("it is in the list");
    let (wanted, mut applied) = (40, 0);
    for seed in 0..20_000 {
        let mut r = Random(seed ^ 0xabcd);
        let mut s = Schedule::new(kernel(&mut r));
        for _ in 0..r.below(4) {
            let before = PRIMITIVES[r.below(PRIMITIVES.len() as u64) as usize];
            step(&mut s, &mut r, before, seed);
        }
        applied += usize::from(step(&mut s, &mut r, primitive, seed));
        if applied == wanted {
            return;
        }
    }
    panic!("{name} was applied {applied} times only");
}

#[test]
fn split_keeps_the_result() {
    holds("split");
}

#[test]
fn split_nparts_keeps_the_result() {
    holds("split_nparts");
}

#[test]
fn tile_keeps_the_result() {
    holds("tile");
}

#[test]
fn fuse_keeps_the_result() {
    holds("fuse");
}

#[test]
fn reorder_keeps_the_result() {
    holds("reorder");
}

#[test]
fn bind_keeps_the_result() {
    holds("bind");
}

#[test]
fn parallel_keeps_the_result() {
    holds("parallel");
}

#[test]
fn vectorize_keeps_the_result() {
    holds("vectorize");
}

#[test]
fn unroll_keeps_the_result() {
    holds("unroll");
}

#[test]
fn vthread_keeps_the_result() {
    holds("vthread");
}

#[test]
fn pragma_keeps_the_result() {
    holds("pragma");
}

#[test]
fn pad_keeps_the_result() {
    holds("pad");
}

#[test]
fn peel_keeps_the_result() {
    holds("peel");
}

#[test]
fn cache_read_keeps_the_result() {
    holds("cache_read");
}

#[test]
fn cache_write_keeps_the_result() {
    holds("cache_write");
}

#[test]
fn cache_read_at_keeps_the_result() {
    holds("cache_read_at");
}

#[test]
fn cache_write_at_keeps_the_result() {
    holds("cache_write_at");
}

#[test]
fn compute_at_keeps_the_result() {
    holds("compute_at");
}

#[test]
fn compute_inline_keeps_the_result() {
    holds("compute_inline");
}

#[test]
fn set_scope_keeps_the_result() {
    holds("set_scope");
}

#[test]
fn transform_layout_keeps_the_result() {
    holds("transform_layout");
}

#[test]
fn storage_align_keeps_the_result() {
    holds("storage_align");
}

#[test]
fn rfactor_keeps_the_result() {
    holds("rfactor");
}

#[test]
fn pipeline_keeps_the_result() {
    holds("pipeline");
}

#[test]
fn tensorize_keeps_the_result() {
    holds("tensorize");
}

#[test]
fn branch_keeps_the_result() {
    holds("branch");
}
