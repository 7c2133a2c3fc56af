//! `tensorize`: a nest of scalar loops becomes a tensor intrinsic.
//!
//! ```text
//! tensorize(i, wmma::mma(M16N16K16, F16, F32))
//! for k0 { for i in 0..16 { for j in 0..16 { for k in 0..16 {
//!   c[0, i, j] += a[i, k0 * 16 + k] * b[k0 * 16 + k, j] init 0 over (k0, k) } } } }
//!   ->
//! fill c[0: 1, 0: 16, 0: 16] = 0
//! for k0 { mma.warp c[0: 1, 0: 16, 0: 16] += a[0: 16, k0 * 16: 16] * b[k0 * 16: 16, 0: 16] }
//! ```
//! The nest must be what the [`Intrinsic`] says it means: the same statement, with operands of the same types and scopes,
//! and loops of the same lengths. Each loop must walk one dimension of each of its operands with step 1, in the order of the
//! intrinsic's dimensions; other dimensions do not move within the nest. The loops may stand in any order, and the factors
//! of a product, too.
//!
//! An intrinsic only adds. Where the nest begins a sum, its start goes before the outermost of the sum's reduce loops, in
//! copies of the loops between the two.
//!
//! A warp runs the statements on its fragments together, so they are not put inside a loop over the threads of a warp.
//!
//! Refuses nests that compute something else, and says which part differs.

use super::error::{Reason, ScheduleError, refuse_loop};
use super::intrinsic::{Intrinsic, Meaning};
use super::nest::{Path, all_ranges, fresh_copy, nest, path_to_loop, perfect_nest, replace_loop, tidy};
use crate::analysis::range::Ranges;
use crate::analysis::simplify::simplify;
use crate::ir::{Axis, BinOp, BufferId, Expr, For, Kernel, LoopKind, ReduceOp, Stmt, Tile, VarId, print};
use std::collections::BTreeMap;

const NAME: &str = "tensorize";

/// Replaces the nest of loop `var` by the intrinsic.
pub fn tensorize(k: &Kernel, var: VarId, with: &Intrinsic) -> Result<Kernel, ScheduleError> {
    let (path, l) = path_to_loop(k, NAME, var)?;
    let refuse = |why: String| {
        let intrinsic = with.name().to_string();
        refuse_loop(k, NAME, var, Reason::NotTheIntrinsic { intrinsic, why })
    };
    let meaning = with.meaning().ok_or_else(|| refuse("it has no meaning".to_string()))?;
    let top = Stmt::For(l.clone());
    let found = Match::of(k, &top, with, &meaning).map_err(refuse)?;
    if let Some(lanes) = around(&path).find(|l| l.kind == LoopKind::Thread(Axis::X) && l.extent > 1 && collective(with))
    {
        return Err(refuse(format!(
            "it stands in the thread.x loop `{}`, and the threads of a warp run the intrinsic together; keep that loop to \
             the copies into shared memory",
            k.var(lanes.var).name
        )));
    }
    let mut out = k.clone();
    let emitted = found.instantiate(&mut out, with.emitted());
    let start = found.start(&mut out, with, &path).map_err(refuse)?;
    match start {
        None => replace_loop(&mut out, var, |_| emitted),
        Some(Start { before: None, body: start }) => {
            replace_loop(&mut out, var, |_| start.into_iter().chain(emitted).collect())
        }
        Some(Start { before: Some(before), body: start }) => {
            replace_loop(&mut out, var, |_| emitted);
            replace_loop(&mut out, before, |l| start.into_iter().chain([Stmt::For(l)]).collect());
        }
    }
    tidy(&mut out);
    Ok(out)
}

/// The loops around the last statement of a path, outermost first.
fn around<'a>(path: &'a Path<'a>) -> impl DoubleEndedIterator<Item = &'a For> {
    path.iter().take(path.len() - 1).filter_map(|s| if let Stmt::For(l) = s { Some(l) } else { None })
}

/// Whether the threads of a unit run what is emitted together.
fn collective(with: &Intrinsic) -> bool {
    let mut found = false;
    with.emitted().body.iter().for_each(|s| s.walk(&mut |s| found |= matches!(s, Stmt::Gpu(_))));
    found
}

/// What an operand of the intrinsic is in the kernel.
struct Operand {
    buffer: BufferId,
    /// Index of the tile's first element.
    origin: Vec<Expr>,
    /// The dimension that each of the operand's dimensions is; none for those of one element.
    dims: Vec<Option<usize>>,
}

/// A sum that begins in the nest.
struct Begins {
    buffer: BufferId,
    indices: Vec<Expr>,
    init: Expr,
    /// Its reduce loops outside of the nest.
    outer: Vec<VarId>,
}

/// What begins a sum.
struct Start {
    /// The loop that it goes before; right before the product if there is none.
    before: Option<VarId>,
    body: Vec<Stmt>,
}

/// How a nest is an intrinsic.
struct Match<'a> {
    k: &'a Kernel,
    intrinsic: &'a Kernel,
    ranges: Ranges,
    /// Loops of the nest.
    frames: Vec<&'a For>,
    /// Its loop for each loop of the meaning.
    loops: BTreeMap<VarId, VarId>,
    operands: BTreeMap<BufferId, Operand>,
    begins: Option<Begins>,
}

impl<'a> Match<'a> {
    fn of(k: &'a Kernel, top: &'a Stmt, with: &'a Intrinsic, meaning: &Meaning<'a>) -> Result<Match<'a>, String> {
        let (frames, conditions, leaf) = perfect_nest(top).ok_or("it holds more than one statement")?;
        if let Some(c) = conditions.first() {
            let cond = print::expr(k, c);
            return Err(format!("`if {cond}` stands in it; use factors that divide, or pad the operands' layout"));
        }
        if let Some(l) =
            frames.iter().find(|l| l.extent > 1 && !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled))
        {
            return Err(format!("loop `{}` is {} already", k.var(l.var).name, l.kind.name()));
        }
        let mut m = Match {
            k,
            intrinsic: with.meaning_kernel(),
            ranges: all_ranges(k),
            frames,
            loops: BTreeMap::new(),
            operands: BTreeMap::new(),
            begins: None,
        };
        let (written, value) = match (leaf, meaning.sum) {
            (Stmt::Store { buffer, indices, value }, None) => ((*buffer, indices), value),
            (Stmt::Reduce { buffer, indices, op, init, value, over }, Some((wanted, first, inner))) => {
                if *op != wanted {
                    return Err(format!(
                        "its statement combines by {}, the intrinsic's by {}",
                        sign(*op),
                        sign(wanted)
                    ));
                }
                if !over.is_empty() && init != first {
                    let (own, wanted) = (print::expr(k, init), print::expr(m.intrinsic, first));
                    return Err(format!("its sum starts from {own}, the intrinsic's from {wanted}"));
                }
                m.access(meaning.written, (*buffer, indices))?;
                m.value(meaning.value, value)?;
                return m.summed(over, inner, (*buffer, indices), init);
            }
            (Stmt::Store { .. }, Some(_)) => return Err("its statement is a store, the intrinsic's a sum".to_string()),
            (Stmt::Reduce { .. }, None) => return Err("its statement is a sum, the intrinsic's a store".to_string()),
            _ => return Err("its statement is not scalar any more".to_string()),
        };
        m.access(meaning.written, written_as(written))?;
        m.value(meaning.value, value)?;
        m.all_loops()?;
        Ok(m)
    }

    /// Checks the reduce loops of a sum.
    fn summed(
        mut self,
        over: &[VarId],
        inner: &[VarId],
        (buffer, indices): (BufferId, &[Expr]),
        init: &Expr,
    ) -> Result<Match<'a>, String> {
        self.all_loops()?;
        if over.is_empty() {
            return Ok(self);
        }
        let counterpart: Vec<VarId> = inner.iter().filter_map(|v| self.loops.get(v)).copied().collect();
        for l in self.frames.iter().filter(|l| l.extent > 1) {
            let (is, wanted) = (over.contains(&l.var), counterpart.contains(&l.var));
            if is != wanted {
                let name = &self.k.var(l.var).name;
                let (own, other) = if is { ("a reduce loop", "none") } else { ("no reduce loop", "one") };
                return Err(format!("loop `{name}` is {own}, and the intrinsic's is {other}"));
            }
        }
        let outer = over.iter().copied().filter(|v| !self.frames.iter().any(|l| l.var == *v)).collect();
        self.begins = Some(Begins { buffer, indices: indices.to_vec(), init: init.clone(), outer });
        Ok(self)
    }

    /// Every loop of the nest that runs more than once must be one of the intrinsic's.
    fn all_loops(&self) -> Result<(), String> {
        match self.frames.iter().find(|l| l.extent > 1 && !self.loops.values().any(|v| *v == l.var)) {
            Some(l) => Err(format!(
                "loop `{}` of {} iterations is none of the intrinsic's; tensorize further in, or split",
                self.k.var(l.var).name,
                l.extent
            )),
            None => Ok(()),
        }
    }

    /// An operand of the intrinsic against an access of the nest.
    fn access(
        &mut self,
        (operand, wanted): (BufferId, &[Expr]),
        (buffer, indices): (BufferId, &[Expr]),
    ) -> Result<(), String> {
        let (o, b) = (self.intrinsic.buffer(operand), self.k.buffer(buffer));
        let (own, its) = (&b.name, &o.name);
        if b.dtype != o.dtype {
            return Err(format!("`{own}` holds {}, and the intrinsic's `{its}` {}", b.dtype, o.dtype));
        }
        if b.scope != o.scope {
            return Err(format!(
                "`{own}` is {}, and the intrinsic's `{its}` {}; use cache_read, cache_write or set_scope",
                b.scope, o.scope
            ));
        }
        if self.operands.values().any(|o| o.buffer == buffer) {
            return Err(format!("`{own}` is used twice, and the intrinsic's operands are different ones"));
        }
        let (mut origin, mut walked) = (vec![], vec![]);
        for (d, e) in indices.iter().enumerate() {
            let e = simplify(e, &self.ranges);
            let inner: Vec<&For> = self.frames.iter().copied().filter(|l| e.mentions(l.var)).collect();
            let fixed = match inner[..] {
                [] => e,
                [l] if l.extent == 1 => e.subst(l.var, &Expr::Int(0)),
                [l] => {
                    let rest = simplify(&(e.clone() - l.var), &self.ranges);
                    if rest.mentions(l.var) {
                        let name = &self.k.var(l.var).name;
                        return Err(format!("loop `{name}` does not walk dimension {d} of `{own}` with step 1"));
                    }
                    walked.push((d, l));
                    rest
                }
                _ => {
                    let names: Vec<String> = inner.iter().map(|l| format!("`{}`", self.k.var(l.var).name)).collect();
                    return Err(format!("loops {} walk dimension {d} of `{own}` together", names.join(" and ")));
                }
            };
            origin.push(simplify(&fixed, &self.ranges));
        }
        let long: Vec<(usize, VarId, i64)> = wanted
            .iter()
            .enumerate()
            .filter_map(|(d, e)| if let Expr::Var(v) = e { Some((d, *v, o.shape[d])) } else { None })
            .filter(|(_, _, extent)| *extent > 1)
            .collect();
        if walked.len() != long.len() {
            return Err(format!(
                "`{own}` is walked along {} of its dimensions, and the intrinsic's `{its}` along {}",
                walked.len(),
                long.len()
            ));
        }
        let mut dims = vec![None; o.shape.len()];
        for ((d, l), (od, v, extent)) in walked.iter().zip(&long) {
            let name = &self.k.var(l.var).name;
            let other = &self.intrinsic.var(*v).name;
            match self.loops.get(v) {
                Some(known) if *known == l.var => {}
                None if !self.loops.values().any(|known| *known == l.var) => {}
                _ => {
                    let turned = walked.len() == 2
                        && self.loops.get(v) == Some(&walked[1].1.var)
                        && self.loops.get(&long[1].1).is_none_or(|known| *known == walked[0].1.var);
                    return Err(match turned {
                        true => format!("`{own}` has its dimensions the other way round; use transform_layout"),
                        false => format!(
                            "loop `{name}` walks dimension {d} of `{own}`, where the intrinsic's loop `{other}` walks `{its}`"
                        ),
                    });
                }
            }
            if l.extent != *extent {
                return Err(format!(
                    "loop `{name}` has {} iterations, and the intrinsic's `{other}` {extent}; split first",
                    l.extent
                ));
            }
            self.loops.insert(*v, l.var);
            dims[*od] = Some(*d);
        }
        self.operands.insert(operand, Operand { buffer, origin, dims });
        Ok(())
    }

    /// What the intrinsic stores or adds against what the nest does.
    fn value(&mut self, wanted: &Expr, own: &Expr) -> Result<(), String> {
        let differs = |m: &Match| {
            let (own, wanted) = (print::expr(m.k, own), print::expr(m.intrinsic, wanted));
            Err(format!("it computes `{own}`, where the intrinsic computes `{wanted}`"))
        };
        match (wanted, own) {
            (Expr::Load(p, at), Expr::Load(b, indices)) => self.access((*p, at), (*b, indices)),
            (Expr::Cast(d, x), Expr::Cast(e, y)) if d == e => self.value(x, y),
            // A load has its computing type already.
            (_, Expr::Cast(d, y)) if own_type(self.k, y) == Some(*d) => self.value(wanted, y),
            (Expr::Unary(op, x), Expr::Unary(other, y)) if op == other => self.value(x, y),
            (Expr::Binary(op, x, y), Expr::Binary(other, v, w)) if op == other => {
                let before = (self.loops.clone(), self.operands.keys().copied().collect::<Vec<_>>());
                let straight = self.value(x, v).and_then(|()| self.value(y, w));
                if straight.is_ok() || !matches!(op, BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max) {
                    return straight;
                }
                self.loops = before.0;
                self.operands.retain(|p, _| before.1.contains(p));
                // Which order was meant is not known; the one as it stands is the likelier.
                self.value(x, w).and_then(|()| self.value(y, v)).or(straight)
            }
            (Expr::Int(a), Expr::Int(b)) if a == b => Ok(()),
            (Expr::Float(a, d), Expr::Float(b, e)) if a.to_bits() == b.to_bits() && d == e => Ok(()),
            _ => differs(self),
        }
    }

    /// Statements of the intrinsic on the nest's operands.
    fn instantiate(&self, out: &mut Kernel, of: &Kernel) -> Vec<Stmt> {
        // Ids of the intrinsic's own loops and buffers are those of another kernel.
        let mut vars = BTreeMap::new();
        let mut buffers = BTreeMap::new();
        for s in &of.body {
            s.walk(&mut |s| match s {
                Stmt::For(l) => {
                    vars.insert(l.var, out.fresh_var(&of.var(l.var).name));
                }
                Stmt::Let { var, .. } => {
                    let var_of = of.var(*var);
                    vars.insert(*var, out.fresh_typed_var(&var_of.name, var_of.dtype));
                }
                Stmt::Alloc(b) => {
                    buffers.insert(*b, out.add_buffer(of.buffer(*b).clone()));
                }
                _ => {}
            });
        }
        let places = of.params.iter().zip(&self.intrinsic.params);
        let operands: BTreeMap<BufferId, &Operand> =
            places.filter_map(|(p, own)| Some((*p, self.operands.get(own)?))).collect();
        super::nest::transplant(
            of.body.clone(),
            &vars,
            &buffers,
            &|b, at| {
                let o = operands.get(&b)?;
                let mut indices = o.origin.clone();
                for (d, index) in o.dims.iter().zip(at) {
                    if let Some(d) = d {
                        indices[*d] = simplify(&(indices[*d].clone() + index.clone()), &self.ranges);
                    }
                }
                Some((o.buffer, indices))
            },
            &|t| {
                let o = operands.get(&t.buffer)?;
                let (mut origin, mut extents) = (o.origin.clone(), vec![1; o.origin.len()]);
                for ((d, first), extent) in o.dims.iter().zip(&t.origin).zip(&t.extents) {
                    if let Some(d) = d {
                        origin[*d] = simplify(&(origin[*d].clone() + first.clone()), &self.ranges);
                        extents[*d] = *extent;
                    }
                }
                Some(Tile { buffer: o.buffer, origin, extents })
            },
        )
    }

    /// What begins the sum, if it begins in the nest.
    fn start(&self, out: &mut Kernel, with: &Intrinsic, path: &Path) -> Result<Option<Start>, String> {
        let Some(Begins { buffer, indices, init, outer }) = &self.begins else { return Ok(None) };
        let start = match with.start() {
            Some(start) => self.instantiate(out, start),
            None => self.scalar_start(out, *buffer, indices, init),
        };
        let Some(first) = path.iter().position(|s| matches!(s, Stmt::For(l) if outer.contains(&l.var))) else {
            return Ok(Some(Start { before: None, body: start }));
        };
        let Stmt::For(before) = path[first] else {
            return Ok(Some(Start { before: None, body: start }));
        };
        let between = &path[first..path.len() - 1];
        if let Some(Stmt::If { cond, .. }) = between.iter().find(|s| matches!(s, Stmt::If { .. })) {
            let (cond, name) = (print::expr(self.k, cond), &self.k.var(before.var).name);
            return Err(format!("`if {cond}` stands between it and loop `{name}`, where its sum begins"));
        }
        let mentioned = |v: VarId| {
            let mut found = false;
            start.iter().for_each(|s| s.exprs(&mut |e| found |= e.mentions(v)));
            found
        };
        let wraps = between.iter().filter_map(|s| if let Stmt::For(l) = s { Some(l) } else { None });
        let wraps: Vec<&For> = wraps.filter(|l| mentioned(l.var)).collect();
        if let Some(l) = wraps.iter().find(|l| outer.contains(&l.var)) {
            return Err(format!("its sum's place depends on the reduce loop `{}`", self.k.var(l.var).name));
        }
        let nest = wraps.into_iter().rev().fold(start, |body, l| {
            vec![Stmt::For(For { body, var: l.var, extent: l.extent, kind: l.kind, pragmas: l.pragmas.clone() })]
        });
        let (nest, _) = fresh_copy(out, &nest);
        Ok(Some(Start { before: Some(before.var), body: nest }))
    }

    /// A start in single elements, for an intrinsic that says none.
    fn scalar_start(&self, out: &mut Kernel, buffer: BufferId, indices: &[Expr], init: &Expr) -> Vec<Stmt> {
        let (mut at, mut loops) = (indices.to_vec(), vec![]);
        for l in &self.frames {
            if !at.iter().any(|e| simplify(e, &self.ranges).mentions(l.var)) {
                continue;
            }
            let name = out.var(l.var).name.clone();
            let fresh = out.fresh_var(&format!("{name}_z"));
            at = at.into_iter().map(|e| e.subst(l.var, &Expr::Var(fresh))).collect();
            loops.push((fresh, l.extent));
        }
        // What is left of the nest's loops does not matter to the place.
        let at = at.into_iter().map(|e| self.frames.iter().fold(e, |e, l| e.subst(l.var, &Expr::Int(0)))).collect();
        nest(&loops, vec![Stmt::store(buffer, at, init.clone())])
    }
}

fn written_as((b, indices): (BufferId, &Vec<Expr>)) -> (BufferId, &[Expr]) {
    (b, indices)
}

fn own_type(k: &Kernel, e: &Expr) -> Option<crate::ir::DType> {
    match e {
        Expr::Load(b, _) => Some(k.buffer(*b).dtype.compute()),
        _ => None,
    }
}

fn sign(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Add => "addition",
        ReduceOp::Mul => "multiplication",
        ReduceOp::Max => "maximum",
        ReduceOp::Min => "minimum",
    }
}
