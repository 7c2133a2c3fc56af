//! Gives each thread its own elements of the accumulators that a warp or warpgroup holds.
//!
//! ```text
//! for i in 0..64 fragment.row { for j in 0..n fragment.col { y[i, j] = acc[i, j] } }
//!   ->
//! let warp = t / 32 % 4   let quad = t % 32 / 4   let pair = t % 4
//! for upper in 0..2 { for octet in 0..n / 8 { for element in 0..2 vectorized {
//!   y[warp * 16 + quad + upper * 8, octet * 8 + pair * 2 + element] = acc[...the same...] } } }
//! ```
//! That is the layout in which tensor cores leave a product (see [`crate::ir::gpu`]): a thread's elements lie in two rows,
//! eight apart, as pairs of neighbours, eight columns apart. A `move` between an accumulator and memory is such a nest
//! too.
//!
//! Before compute capability 7.5 only the hardware knows the layout. There such a `move` stays what it is, one instruction,
//! and the verifier has refused loops over a fragment's elements.

use super::pass::{LowerError, LowerOptions};
use crate::ir::{Axis, BufferId, Expr, For, Gpu, Kernel, LoopKind, Scope, Stmt, Tile, Unit, VarId, visit};
use std::collections::BTreeSet;

/// The pass.
pub fn run(mut kernel: Kernel, options: &LowerOptions) -> Result<Kernel, LowerError> {
    if options.opaque_fragments || !kernel.buffers.iter().any(|b| matches!(b.scope, Scope::Fragment(_))) {
        return Ok(kernel);
    }
    let accumulators = accumulators(&kernel);
    let body = std::mem::take(&mut kernel.body);
    let mut d = Distribute { kernel, accumulators, in_launch: false, threads: [1; 3], vars: [None; 3] };
    let body = d.block(body);
    d.kernel.body = body;
    Ok(d.kernel)
}

/// The fragments that products are added to.
fn accumulators(kernel: &Kernel) -> BTreeSet<BufferId> {
    let mut found = BTreeSet::new();
    for s in &kernel.body {
        s.walk(&mut |s| {
            if let Stmt::Gpu(Gpu::Mma { acc, .. }) = s {
                found.insert(acc.buffer);
            }
        });
    }
    found
}

struct Distribute {
    kernel: Kernel,
    accumulators: BTreeSet<BufferId>,
    in_launch: bool,
    /// Threads of a block along each axis.
    threads: [i64; 3],
    /// The loops around that are this thread's indices.
    vars: [Option<VarId>; 3],
}

impl Distribute {
    fn block(&mut self, stmts: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(stmts.len());
        for s in stmts {
            self.stmt(s, &mut out);
        }
        out
    }

    fn stmt(&mut self, s: Stmt, out: &mut Vec<Stmt>) {
        match s {
            Stmt::For(l) if l.kind == LoopKind::FragmentRow => self.rows(l, out),
            Stmt::For(l) => {
                let outer = (self.in_launch, self.threads, self.vars);
                if !self.in_launch && matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_)) {
                    (self.in_launch, self.threads) = (true, threads(&l));
                }
                if let LoopKind::Thread(axis) = l.kind {
                    self.vars[index(axis)] = Some(l.var);
                }
                let body = self.block(l.body);
                out.push(Stmt::For(For { body, ..l }));
                (self.in_launch, self.threads, self.vars) = outer;
            }
            Stmt::If { cond, then, otherwise } => {
                let (then, otherwise) = (self.block(then), self.block(otherwise));
                out.push(Stmt::If { cond, then, otherwise });
            }
            Stmt::Gpu(Gpu::Move { dst, src })
                if [&dst, &src].iter().any(|t| self.accumulators.contains(&t.buffer))
                    && [&dst, &src]
                        .iter()
                        .any(|t| !matches!(self.kernel.buffer(t.buffer).scope, Scope::Fragment(_))) =>
            {
                let nest = self.copy(dst, src);
                self.rows(nest, out);
            }
            other => out.push(other),
        }
    }

    /// The nest that copies between an accumulator and memory.
    fn copy(&mut self, dst: Tile, src: Tile) -> For {
        let (i, j) = (self.kernel.fresh_var("i"), self.kernel.fresh_var("j"));
        let fragment = if self.accumulators.contains(&dst.buffer) { &dst } else { &src };
        let [rows, columns] = spanned(fragment).map(|d| fragment.extents[d]);
        let at = |t: &Tile| {
            let mut indices = t.origin.clone();
            for (d, v) in spanned(t).into_iter().zip([i, j]) {
                indices[d] = indices[d].clone() + v;
            }
            indices
        };
        let body = vec![Stmt::store(dst.buffer, at(&dst), Expr::load(src.buffer, at(&src)))];
        let columns = For { var: j, extent: columns, kind: LoopKind::FragmentCol, pragmas: vec![], body };
        For { var: i, extent: rows, kind: LoopKind::FragmentRow, pragmas: vec![], body: vec![Stmt::For(columns)] }
    }

    /// A nest over rows, and the loops over columns in it. All threads of the block run it; where no loop around says an
    /// index of theirs, one is put around it.
    fn rows(&mut self, l: For, out: &mut Vec<Stmt>) {
        let outer = self.vars;
        let mut added = vec![];
        for (i, axis) in [Axis::X, Axis::Y, Axis::Z].into_iter().enumerate() {
            if self.vars[i].is_none() && self.threads[i] > 1 {
                let var = self.kernel.fresh_var(["lane", "ty", "tz"][i]);
                self.vars[i] = Some(var);
                added.push((var, self.threads[i], LoopKind::Thread(axis)));
            }
        }
        let mut nest = vec![];
        self.rows_of(l, &mut nest);
        self.vars = outer;
        out.extend(
            added.into_iter().fold(nest, |body, (var, extent, kind)| {
                vec![Stmt::For(For { var, extent, kind, pragmas: vec![], body })]
            }),
        );
    }

    fn rows_of(&mut self, l: For, out: &mut Vec<Stmt>) {
        let unit = self.unit(&l.body);
        let rows_held = if unit == Unit::Warpgroup { 64 } else { 16 };
        let Some(thread) = self.thread().filter(|_| l.extent % rows_held == 0) else {
            // The emitter says what is wrong with it.
            out.push(Stmt::For(l));
            return;
        };
        let mut name = |hint: &str, value: Expr, out: &mut Vec<Stmt>| {
            let var = self.kernel.fresh_var(hint);
            out.push(Stmt::Let { var, value });
            var
        };
        let first = match unit {
            Unit::Warpgroup => name("warp", thread.clone().floor_div(32).floor_mod(4), out) * 16,
            Unit::Warp => Expr::Int(0),
        };
        let quad = name("quad", thread.clone().floor_mod(32).floor_div(4), out);
        let pair = name("pair", thread.floor_mod(4), out);
        let upper = self.kernel.fresh_var("upper");
        let blocks = (l.extent > rows_held).then(|| self.kernel.fresh_var("rows"));
        let first = blocks.map_or(first.clone(), |blocks| first + blocks * rows_held);
        let row = first + quad + upper * 8;
        // Which half of sixteen rows a row is in is the same for all threads.
        let own = Expr::from(l.var);
        let half = own.clone().floor_mod(16).floor_div(8);
        let half = if l.extent == 16 { [half, own.floor_div(8)].to_vec() } else { vec![half] };
        let body = half.iter().fold(l.body, |body, half| replace(body, half, upper));
        let body: Vec<Stmt> = body.into_iter().map(|s| s.subst(l.var, &row)).collect();
        let body = visit::rewrite(body, &mut |s| match s {
            Stmt::For(l) if l.kind == LoopKind::FragmentCol => vec![self.columns(l, pair)],
            other => vec![other],
        });
        // Unrolled even where no register's index depends on it: what does not change in a loop, compilers compute before
        // it, and ptxas then even before the wait for the products.
        let upper = For { var: upper, extent: 2, kind: LoopKind::Unrolled, pragmas: vec![], body };
        let body = vec![Stmt::For(upper)];
        match blocks {
            Some(blocks) => out.push(Stmt::for_(blocks, l.extent / rows_held, body)),
            None => out.extend(body),
        }
    }

    fn columns(&mut self, l: For, pair: VarId) -> Stmt {
        let (octet, element) = (self.kernel.fresh_var("octet"), self.kernel.fresh_var("element"));
        let column = octet * 8 + pair * 2 + element;
        let body = replace(l.body, &Expr::from(l.var).floor_mod(2), element);
        let body: Vec<Stmt> = body.into_iter().map(|s| s.subst(l.var, &column)).collect();
        let kind = if self.has_odd_rows(&body, element) { LoopKind::Unrolled } else { LoopKind::Vectorized };
        let pairs = For { var: element, extent: 2, kind, pragmas: vec![], body };
        Stmt::for_(octet, l.extent / 8, vec![Stmt::For(pairs)])
    }

    /// Whether the two elements that a variable counts are neighbours in memory whose rows have an odd number of elements, so that such
    /// pairs are not aligned.
    fn has_odd_rows(&self, body: &[Stmt], element: VarId) -> bool {
        let mut odd = false;
        for s in body {
            s.walk(&mut |s| {
                s.accesses(&mut |a| {
                    let b = self.kernel.buffer(a.buffer);
                    let in_memory = matches!(b.scope, Scope::Global | Scope::Shared);
                    let along = a.index.last().is_some_and(|last| last.mentions(element));
                    odd |= in_memory && along && b.strides.iter().rev().skip(1).any(|stride| stride % 2 != 0);
                });
            });
        }
        odd
    }

    /// Who holds the fragments that the statements use. Statements that use none any more, because what they would
    /// compute is known, belong to who holds those of the kernel.
    fn unit(&self, block: &[Stmt]) -> Unit {
        let (mut unit, mut used) = (Unit::Warp, false);
        let mut see = |b: BufferId| {
            if let Scope::Fragment(u) = self.kernel.buffer(b).scope {
                (unit, used) = (unit.max(u), true);
            }
        };
        for s in block {
            s.walk(&mut |s| s.accesses(&mut |a| see(a.buffer)));
        }
        let of_kernel = || {
            let scopes = self.accumulators.iter().map(|b| self.kernel.buffer(*b).scope);
            scopes.filter_map(|s| if let Scope::Fragment(u) = s { Some(u) } else { None }).max()
        };
        if used { unit } else { of_kernel().unwrap_or(unit) }
    }

    /// The number of this thread in its block, if a loop says each of its coordinates.
    fn thread(&self) -> Option<Expr> {
        let mut number = Expr::Int(0);
        for axis in [2, 1, 0] {
            let own = match (self.vars[axis], self.threads[axis]) {
                (Some(v), _) => Expr::Var(v),
                (None, 1) => Expr::Int(0),
                (None, _) => return None,
            };
            number = number * self.threads[axis] + own;
        }
        Some(number)
    }
}

/// The statements with a variable in place of an expression.
fn replace(body: Vec<Stmt>, expression: &Expr, by: VarId) -> Vec<Stmt> {
    visit::map_exprs(body, &mut |e| e.map(&mut |e| if e == *expression { by.into() } else { e }))
}

/// The two dimensions that a tile spans: those longer than 1 if there are two, the last two otherwise.
fn spanned(t: &Tile) -> [usize; 2] {
    let long: Vec<usize> = (0..t.extents.len()).filter(|d| t.extents[*d] > 1).collect();
    match long[..] {
        [a, b] => [a, b],
        _ => [t.extents.len().saturating_sub(2), t.extents.len().saturating_sub(1)],
    }
}

fn index(axis: Axis) -> usize {
    match axis {
        Axis::X => 0,
        Axis::Y => 1,
        Axis::Z => 2,
    }
}

/// Threads of a block along each axis: the longest loops in the nest.
fn threads(nest: &For) -> [i64; 3] {
    let mut out = [1; 3];
    let mut see = |l: &For| {
        if let LoopKind::Thread(axis) = l.kind {
            out[index(axis)] = out[index(axis)].max(l.extent);
        }
    };
    see(nest);
    visit::loops(&nest.body).into_iter().for_each(see);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse::parse;

    /// What is stored may turn out to be known, and the loops no longer mention the sums that they are over.
    #[test]
    fn statements_without_a_fragment_stay_with_who_holds_those_of_the_kernel() {
        let text = "\
kernel k {
  param y: f32[64, 8] global write
  for t in 0..128 thread.x {
    alloc a: f16[64, 64] shared swizzle 128
    alloc b: f16[8, 64] shared swizzle 128
    alloc acc: f32[64, 8] fragment.warpgroup
    mma.warpgroup acc[0: 64, 0: 8] += a[0: 64, 0: 64] * b[0: 8, 0: 64] transposed
    for i in 0..64 fragment.row {
      for j in 0..8 fragment.col {
        y[i, j] = 0.0f32
      }
    }
  }
}
";
        let kernel = parse(text).unwrap_or_else(|e| panic!("{e}"));
        let lowered = run(kernel, &LowerOptions::cuda()).unwrap_or_else(|e| panic!("{e}")).to_string();
        assert!(lowered.contains("let warp: i64 = t / 32 % 4"), "{lowered}");
        assert!(lowered.contains("y[warp * 16 + quad + upper * 8, "), "{lowered}");
    }
}
