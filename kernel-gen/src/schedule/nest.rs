//! Finding one's way in the tree: paths, nests, fresh copies, simplification of whole blocks.

use super::error::{Reason, ScheduleError, refuse_loop, refuse_stage};
use crate::analysis::range::Ranges;
use crate::analysis::simplify::{simplify, truth};
use crate::ir::visit::{find_loop, map_exprs, rewrite};
use crate::ir::{BinOp, BufferId, Expr, For, Gpu, Kernel, Stmt, Tile, VarId};
use std::collections::BTreeMap;

/// The statements from the outermost to one that `wanted` accepts, that one included.
pub(super) type Path<'a> = Vec<&'a Stmt>;

/// Paths to all statements that `wanted` accepts, in the order in which they stand.
pub(super) fn paths<'a>(block: &'a [Stmt], wanted: &dyn Fn(&Stmt) -> bool) -> Vec<Path<'a>> {
    fn go<'a>(block: &'a [Stmt], wanted: &dyn Fn(&Stmt) -> bool, above: &mut Path<'a>, out: &mut Vec<Path<'a>>) {
        for s in block {
            above.push(s);
            if wanted(s) {
                out.push(above.clone());
            }
            match s {
                Stmt::For(l) => go(&l.body, wanted, above, out),
                Stmt::If { then, otherwise, .. } => {
                    go(then, wanted, above, out);
                    go(otherwise, wanted, above, out);
                }
                _ => {}
            }
            above.pop();
        }
    }
    let mut out = vec![];
    go(block, wanted, &mut vec![], &mut out);
    out
}

/// The loops on a path, outermost first.
pub(super) fn loops_on<'a>(path: &[&'a Stmt]) -> Vec<&'a For> {
    path.iter().filter_map(|s| if let Stmt::For(l) = s { Some(l) } else { None }).collect()
}

/// The loop of a variable, or a refusal.
pub(super) fn the_loop<'a>(k: &'a Kernel, primitive: &'static str, v: VarId) -> Result<&'a For, ScheduleError> {
    find_loop(&k.body, v).ok_or_else(|| refuse_loop(k, primitive, v, Reason::UnknownLoop))
}

/// The path to a loop, the loop last.
pub(super) fn path_to_loop<'a>(
    k: &'a Kernel,
    primitive: &'static str,
    v: VarId,
) -> Result<(Path<'a>, &'a For), ScheduleError> {
    let l = the_loop(k, primitive, v)?;
    let path = paths(&k.body, &|s| matches!(s, Stmt::For(l) if l.var == v)).swap_remove(0);
    Ok((path, l))
}

/// The path to the one statement that writes a buffer, or a refusal.
pub(super) fn the_writer<'a>(
    k: &'a Kernel,
    primitive: &'static str,
    stage: BufferId,
) -> Result<Path<'a>, ScheduleError> {
    let mut found = paths(&k.body, &|s| s.written() == Some(stage));
    match found.len() {
        0 => Err(refuse_stage(k, primitive, stage, Reason::NotAStage)),
        1 => Ok(found.swap_remove(0)),
        n => Err(refuse_stage(k, primitive, stage, Reason::SeveralWriters(n))),
    }
}

/// Whether this very statement loads from the buffer; a reduction's own destination does not count.
pub(super) fn loads(s: &Stmt, buffer: BufferId) -> bool {
    let mut found = false;
    s.own_exprs(&mut |e| found |= e.reads(buffer));
    found || tiles_read(s).iter().any(|t| t.buffer == buffer)
}

/// The tiles that a tile intrinsic reads and does not write.
pub(super) fn tiles_read(s: &Stmt) -> Vec<&Tile> {
    match s {
        Stmt::Transpose { src, .. } => vec![src],
        // An accumulator counts as written.
        Stmt::Gpu(Gpu::Mma { a, b, .. }) => vec![&a.tile, &b.tile],
        Stmt::Gpu(g) => g.tiles().read,
        _ => vec![],
    }
}

/// Rewrites the tiles of a tile intrinsic: the written one with `true`.
pub(super) fn map_tiles(s: Stmt, f: &mut dyn FnMut(Tile, bool) -> Tile) -> Stmt {
    match s {
        Stmt::Transpose { dst, src } => Stmt::Transpose { dst: f(dst, true), src: f(src, false) },
        Stmt::Gpu(g) => Stmt::Gpu(g.map_tiles(f)),
        other => other,
    }
}

/// Whether a tile intrinsic in the block uses the buffer.
pub(super) fn tile_uses(block: &[Stmt], buffer: BufferId) -> bool {
    let mut found = false;
    for s in block {
        s.walk(&mut |s| {
            let written = matches!(s, Stmt::Transpose { .. } | Stmt::Gpu(_)) && s.written() == Some(buffer);
            found |= written || tiles_read(s).iter().any(|t| t.buffer == buffer);
        });
    }
    found
}

/// Whether this statement or one below loads from the buffer.
pub(super) fn contains_load(s: &Stmt, b: BufferId) -> bool {
    let mut found = false;
    s.walk(&mut |s| found |= loads(s, b));
    found
}

/// Paths to all statements that load from the buffer.
pub(super) fn readers<'a>(block: &'a [Stmt], buffer: BufferId) -> Vec<Path<'a>> {
    paths(block, &|s| loads(s, buffer))
}

/// The loops of a stage's own nest, outermost first: those around the statement that writes it that do not hold all
/// of its readers too. A stage at the root has its loops to itself; one that was attached shares the loops at and
/// above its attach point with its consumers, and those are not its own.
pub(super) fn own_loops(k: &Kernel, stage: BufferId) -> Option<Vec<VarId>> {
    let writer = paths(&k.body, &|s| s.written() == Some(stage)).into_iter().next()?;
    let leaf: *const Stmt = *writer.last()?;
    let uses: Vec<Vec<VarId>> = readers(&k.body, stage)
        .into_iter()
        .filter(|p| !p.last().is_some_and(|s| std::ptr::eq(*s, leaf)))
        .map(|p| loops_on(&p).iter().map(|l| l.var).collect())
        .collect();
    let own = loops_on(&writer)
        .into_iter()
        .map(|l| l.var)
        .filter(|v| uses.is_empty() || !uses.iter().all(|u| u.contains(v)))
        .collect();
    Some(own)
}

/// Where in the path to its statement a stage's own nest begins: below the last loop that it shares.
pub(super) fn top_of_nest(writer: &Path, own: &[VarId]) -> usize {
    writer.iter().rposition(|s| matches!(s, Stmt::For(l) if !own.contains(&l.var))).map_or(0, |i| i + 1)
}

/// The loops, conditions and leaf of a nest without side branches.
pub(super) fn perfect_nest(top: &Stmt) -> Option<(Vec<&For>, Vec<&Expr>, &Stmt)> {
    let (mut frames, mut conditions, mut s) = (vec![], vec![], top);
    loop {
        let block = match s {
            Stmt::For(l) => {
                frames.push(l);
                &l.body
            }
            Stmt::If { cond, then, otherwise } if otherwise.is_empty() => {
                conditions.push(cond);
                then
            }
            Stmt::If { .. } => return None,
            leaf => return Some((frames, conditions, leaf)),
        };
        match &block[..] {
            [only] => s = only,
            _ => return None,
        }
    }
}

/// Every loop's range.
pub(super) fn all_ranges(k: &Kernel) -> Ranges {
    Ranges::of_block(&k.body)
}

/// Replaces the loop of a variable by what `f` makes of it.
pub(super) fn replace_loop(k: &mut Kernel, v: VarId, f: impl FnOnce(For) -> Vec<Stmt>) {
    let mut f = Some(f);
    let body = std::mem::take(&mut k.body);
    k.body = rewrite(body, &mut |s| match s {
        Stmt::For(l) if l.var == v => match f.take() {
            Some(f) => f(l),
            None => vec![Stmt::For(l)],
        },
        other => vec![other],
    });
}

/// Puts `new` in the place of `old` in the reduce lists of a block.
pub(super) fn replace_over(block: Vec<Stmt>, old: VarId, new: &[VarId]) -> Vec<Stmt> {
    rewrite(block, &mut |s| {
        vec![match s {
            Stmt::Reduce { buffer, indices, op, init, value, over } => {
                let over =
                    over.into_iter().flat_map(|v| if v == old { new.to_vec() } else { vec![v] }).collect::<Vec<_>>();
                Stmt::Reduce { buffer, indices, op, init, value, over }
            }
            other => other,
        }]
    })
}

/// Whether a reduction below the loop counts it among its own reduce loops; into which buffer.
pub(super) fn reduced_by(l: &For) -> Option<BufferId> {
    let mut found = None;
    for s in &l.body {
        s.walk(&mut |s| {
            if let Stmt::Reduce { buffer, over, .. } = s
                && over.contains(&l.var)
            {
                found = Some(*buffer);
            }
        });
    }
    found
}

/// Replaces a variable throughout a block.
pub(super) fn subst(block: Vec<Stmt>, v: VarId, by: &Expr) -> Vec<Stmt> {
    map_exprs(block, &mut |e| e.subst(v, by))
}

/// Simplifies all expressions of the kernel, drops what can never run and merges nested conditionals.
pub(super) fn tidy(k: &mut Kernel) {
    let ranges = all_ranges(k);
    k.body = tidy_block(std::mem::take(&mut k.body), &ranges);
}

fn tidy_block(block: Vec<Stmt>, ranges: &Ranges) -> Vec<Stmt> {
    let mut out = vec![];
    for s in block {
        match s {
            Stmt::For(l) => out.push(Stmt::For(For { body: tidy_block(l.body, ranges), ..l })),
            Stmt::If { cond, then, otherwise } => {
                let cond = simplify(&cond, ranges);
                let mut not = ranges.clone();
                not.assume(&cond, false);
                match truth(&cond) {
                    Some(true) => out.extend(tidy_block(then, ranges)),
                    Some(false) => out.extend(tidy_block(otherwise, ranges)),
                    None => {
                        let then = tidy_block(then, &ranges.assuming(&cond));
                        let otherwise = tidy_block(otherwise, &not);
                        out.push(merge_if(cond, then, otherwise));
                    }
                }
            }
            other => out.push(other.map_exprs(&mut |e| simplify(&e, ranges))),
        }
    }
    out
}

/// `if a { if b { s } }` reads better as `if a && b { s }`.
fn merge_if(cond: Expr, mut then: Vec<Stmt>, otherwise: Vec<Stmt>) -> Stmt {
    if otherwise.is_empty() && then.len() == 1 {
        match then.pop() {
            Some(Stmt::If { cond: inner, then: body, otherwise }) if otherwise.is_empty() => {
                return Stmt::If { cond: cond.and(inner), then: body, otherwise };
            }
            Some(other) => then.push(other),
            None => {}
        }
    }
    Stmt::If { cond, then, otherwise }
}

/// Puts `if cond` around every statement of the block that computes something; loops, allocations and barriers stay
/// where they are.
pub(super) fn guard_leaves(block: Vec<Stmt>, cond: &Expr) -> Vec<Stmt> {
    // A name that later statements use cannot go under a conditional alone.
    if block.iter().any(|s| matches!(s, Stmt::Let { .. })) {
        return vec![Stmt::if_(cond.clone(), block)];
    }
    let mut out: Vec<Stmt> = vec![];
    for s in block {
        match s {
            Stmt::For(l) => out.push(Stmt::For(For { body: guard_leaves(l.body, cond), ..l })),
            Stmt::If { cond: c, then, otherwise } => {
                out.push(Stmt::If { cond: c, then: guard_leaves(then, cond), otherwise: guard_leaves(otherwise, cond) })
            }
            s @ (Stmt::Alloc(_) | Stmt::Barrier(_) | Stmt::Let { .. }) => out.push(s),
            leaf => match out.last_mut() {
                Some(Stmt::If { cond: c, then, otherwise }) if c == cond && otherwise.is_empty() => then.push(leaf),
                _ => out.push(Stmt::if_(cond.clone(), vec![leaf])),
            },
        }
    }
    out
}

/// A copy of a block in which every loop, every `let` and every allocation has a name of its own. Also returns the new
/// variable of each old one.
pub(super) fn fresh_copy(k: &mut Kernel, block: &[Stmt]) -> (Vec<Stmt>, BTreeMap<VarId, VarId>) {
    let (mut vars, mut buffers) = (BTreeMap::new(), BTreeMap::new());
    for s in block {
        s.walk(&mut |s| match s {
            Stmt::For(l) => {
                vars.insert(l.var, l.var);
            }
            Stmt::Let { var, .. } => {
                vars.insert(*var, *var);
            }
            Stmt::Alloc(b) => {
                buffers.insert(*b, *b);
            }
            _ => {}
        });
    }
    for (old, new) in &mut vars {
        let var = k.var(*old).clone();
        *new = k.fresh_typed_var(stem(&var.name), var.dtype);
    }
    for (old, new) in &mut buffers {
        let mut buffer = k.buffer(*old).clone();
        buffer.name = stem(&buffer.name).to_string();
        *new = k.add_buffer(buffer);
    }
    (rename(block.to_vec(), &vars, &buffers), vars)
}

/// A name without the number that made it unique.
fn stem(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((head, digits))
            if !head.is_empty() && !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()) =>
        {
            head
        }
        _ => name,
    }
}

/// The axis that a loop belongs to, for naming its descendants: `co` of `co_o_i`.
pub(super) fn axis_name(name: &str) -> &str {
    name.split('_').next().filter(|s| !s.is_empty()).unwrap_or(name)
}

/// Renames bound variables and buffers throughout a block.
pub(super) fn rename(
    block: Vec<Stmt>,
    vars: &BTreeMap<VarId, VarId>,
    buffers: &BTreeMap<BufferId, BufferId>,
) -> Vec<Stmt> {
    let var = |v: VarId| vars.get(&v).copied().unwrap_or(v);
    let buf = |b: BufferId| buffers.get(&b).copied().unwrap_or(b);
    let block = map_exprs(block, &mut |e| {
        e.map(&mut |e| match e {
            Expr::Var(v) => Expr::Var(var(v)),
            Expr::Load(b, idx) => Expr::Load(buf(b), idx),
            other => other,
        })
    });
    rewrite(block, &mut |s| {
        vec![match s {
            Stmt::For(l) => Stmt::For(For { var: var(l.var), ..l }),
            Stmt::Let { var: v, value } => Stmt::Let { var: var(v), value },
            Stmt::Alloc(b) => Stmt::Alloc(buf(b)),
            Stmt::Store { buffer, indices, value } => Stmt::Store { buffer: buf(buffer), indices, value },
            Stmt::Reduce { buffer, indices, op, init, value, over } => Stmt::Reduce {
                buffer: buf(buffer),
                indices,
                op,
                init,
                value,
                over: over.into_iter().map(var).collect(),
            },
            other => map_tiles(other, &mut |t, _| Tile { buffer: buf(t.buffer), ..t }),
        }]
    })
}

/// An element of this kernel for one of another kernel's.
pub(super) type Place<'a> = &'a dyn Fn(BufferId, &[Expr]) -> Option<(BufferId, Vec<Expr>)>;

/// Statements of another kernel in this one: loops, names and allocations as the maps say, elements and tiles of its
/// parameters as `element` and `tile` do.
pub(super) fn transplant(
    block: Vec<Stmt>,
    vars: &BTreeMap<VarId, VarId>,
    buffers: &BTreeMap<BufferId, BufferId>,
    element: Place,
    tile: &dyn Fn(&Tile) -> Option<Tile>,
) -> Vec<Stmt> {
    // Names first: what operands bring along are variables of this kernel already.
    let var = |v: VarId| vars.get(&v).copied().unwrap_or(v);
    let place =
        |b: BufferId, at: Vec<Expr>| element(b, &at).unwrap_or_else(|| (buffers.get(&b).copied().unwrap_or(b), at));
    let expr = |e: Expr| {
        e.map(&mut |e| match e {
            Expr::Var(v) => Expr::Var(var(v)),
            other => other,
        })
    };
    let block = map_exprs(block, &mut |e| expr(e));
    let block = map_exprs(block, &mut |e| {
        e.map(&mut |e| match e {
            Expr::Load(b, at) => {
                let (b, at) = place(b, at);
                Expr::Load(b, at)
            }
            other => other,
        })
    });
    rewrite(block, &mut |s| {
        vec![match s {
            Stmt::For(l) => Stmt::For(For { var: var(l.var), ..l }),
            Stmt::Let { var: v, value } => Stmt::Let { var: var(v), value },
            Stmt::Alloc(b) => Stmt::Alloc(buffers.get(&b).copied().unwrap_or(b)),
            Stmt::Store { buffer, indices, value } => {
                let (buffer, indices) = place(buffer, indices);
                Stmt::Store { buffer, indices, value }
            }
            Stmt::Reduce { buffer, indices, op, init, value, over } => {
                let (buffer, indices) = place(buffer, indices);
                Stmt::Reduce { buffer, indices, op, init, value, over: over.into_iter().map(var).collect() }
            }
            other => map_tiles(other, &mut |t, _| match tile(&t) {
                Some(t) => t,
                None => Tile { buffer: buffers.get(&t.buffer).copied().unwrap_or(t.buffer), ..t },
            }),
        }]
    })
}

/// Wraps a body in serial loops, outermost first.
pub(super) fn nest(loops: &[(VarId, i64)], body: Vec<Stmt>) -> Vec<Stmt> {
    loops.iter().rev().fold(body, |body, (v, n)| vec![Stmt::for_(*v, *n, body)])
}

/// Redirects every load and tile operand of `from`: `f` gives the new buffer and indices.
pub(super) fn redirect_loads(
    block: Vec<Stmt>,
    from: BufferId,
    f: &dyn Fn(Vec<Expr>) -> (BufferId, Vec<Expr>),
) -> Vec<Stmt> {
    let block = map_exprs(block, &mut |e| {
        e.map(&mut |e| match e {
            Expr::Load(b, idx) if b == from => {
                let (b, idx) = f(idx);
                Expr::Load(b, idx)
            }
            other => other,
        })
    });
    rewrite(block, &mut |s| {
        vec![map_tiles(s, &mut |t, written| {
            if written || t.buffer != from {
                return t;
            }
            let (buffer, origin) = f(t.origin);
            Tile { buffer, origin, extents: t.extents }
        })]
    })
}

/// The parts of `a && b && c`.
pub(super) fn conjuncts(e: &Expr, out: &mut Vec<Expr>) {
    match e {
        Expr::Binary(BinOp::And, a, b) => {
            conjuncts(a, out);
            conjuncts(b, out);
        }
        other => out.push(other.clone()),
    }
}
