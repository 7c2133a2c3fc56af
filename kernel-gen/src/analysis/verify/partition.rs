//! Outputs that are written tile by tile: a proof that every element is written exactly once.
//!
//! A persistent kernel goes through tiles of its output in an order that no linear form shows: rows and columns of a tile
//! follow from its number by divisions and remainders. But what one tile writes is a box, and there are few tiles. So an
//! index is taken apart into a part that depends on the blocks of the grid (and what is mixed with them) and a part that
//! does not: the first gives the origin of a box, the second its elements. If the elements fill a box with no element twice,
//! and the origins are all multiples of its extents in the output, each once, then every element of the output has one
//! writer. The elements are enumerated. Of the origins it follows from their form at any size where they are digits of one
//! number; others are enumerated, too.
//!
//! At the edge of an output a simplified index may have lost the part that says which tile it is of, because only one
//! tile gets there. Where there are few points, all of them are enumerated.

use super::access::{Pseudo, Site};
use super::equal::{Same, Side, same_element};
use super::facts::Facts;
use super::{enumerate, reach};
use crate::analysis::range::Ranges;
use crate::analysis::simplify::{Sum, simplify};
use crate::integer::ceil_div;
use crate::ir::{BinOp, Expr, For, Kernel, LoopKind, Scope, Stmt, Unit, VarId};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Most origins, and most elements of a box, that are enumerated.
const MOST: i64 = 1 << 21;

/// Whether the writes, which are all that touch a buffer of this shape, write each of its elements exactly once.
pub(super) fn writes_each_once(kernel: &Kernel, writes: &[&Site], shape: &[i64]) -> bool {
    prove(kernel, writes, shape).or_else(|| enumerate_all(kernel, writes, shape)).is_some()
}

/// Every element that is written, one by one.
fn enumerate_all(kernel: &Kernel, writes: &[&Site], shape: &[i64]) -> Option<()> {
    let volume = shape.iter().try_fold(1i64, |a, n| a.checked_mul(*n))?;
    if volume > MOST {
        return None;
    }
    let mut written = vec![false; volume as usize];
    let mut left = MOST;
    for site in writes {
        let site = by_units(kernel, site)?;
        let ranges = &site.facts.ranges;
        let guards = site.facts.guards.iter().map(|(g, _)| g);
        let used = enumerate::variables(site.index.iter().chain(guards))?;
        let idle = |l: &&For| !used.contains(&l.var) && ranges.get(l.var).is_none_or(|(lo, hi)| lo < hi);
        if site.loops.iter().any(idle) {
            return None;
        }
        let space = enumerate::space(&used, ranges, left)?;
        left -= space.iter().map(|(_, lo, hi)| hi - lo + 1).product::<i64>();
        let once = enumerate::for_each(&space, |values| {
            if !holds(&site.facts.guards, values) {
                return ControlFlow::Continue(());
            }
            let at = site.index.iter().zip(shape).try_fold(0i64, |at, (e, n)| {
                let i = enumerate::eval(e, values).filter(|i| (0..*n).contains(i))?;
                Some(at * n + i)
            });
            match at {
                Some(at) if !std::mem::replace(&mut written[at as usize], true) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        if once.is_break() {
            return None;
        }
    }
    written.iter().all(|w| *w).then_some(())
}

/// An access taken apart.
struct Parts {
    /// One expression a dimension, over `outer`.
    origin: Vec<Expr>,
    /// One expression a dimension, over `inner`.
    element: Vec<Expr>,
    outer: BTreeSet<VarId>,
    inner: BTreeSet<VarId>,
    outer_guards: Vec<(Expr, bool)>,
    inner_guards: Vec<(Expr, bool)>,
}

impl Parts {
    /// The number of a box along each dimension, where each origin is a multiple of the box's size by its form.
    fn number_boxes(&self, sizes: &[i64], ranges: &Ranges) -> Option<Side> {
        let number = |(origin, size): (&Expr, &i64)| {
            let mut sum = Sum::of(origin.clone());
            let whole = sum.constant % size == 0 && sum.terms.iter().all(|(_, factor)| factor % size == 0);
            sum.constant /= size;
            sum.terms.iter_mut().for_each(|(_, factor)| *factor /= size);
            whole.then(|| sum.to_expr())
        };
        let index = self.origin.iter().zip(sizes).map(number).collect::<Option<Vec<Expr>>>()?;
        let mut facts = Facts::default();
        for v in &self.outer {
            let (lo, hi) = ranges.get(*v)?;
            facts.ranges.insert(*v, lo, hi);
        }
        self.outer_guards.iter().for_each(|(g, truth)| facts.assume(g, *truth));
        Some(Side { index, facts })
    }
}

impl Side {
    /// Whether the loops take each place of this shape once, shown by the form of the indices: at any size, where they are digits
    /// of one number. Places beyond the shape do not count.
    fn takes_each_once(&self, shape: &[i64], fresh: u32) -> bool {
        let several = |v: &VarId| self.facts.ranges.get(*v).is_none_or(|(lo, hi)| lo < hi);
        let all: Vec<VarId> = self.facts.ranges.iter().map(|(v, _)| v).filter(several).collect();
        let negative = |e: &Expr| !self.facts.proves_at_most_zero(&(Expr::Int(0) - e.clone()));
        reach::covers(self, shape, fresh)
            && !self.index.iter().any(negative)
            && !matches!(same_element(self, self, &all, &BTreeSet::new(), fresh), Same::Differs(_))
    }
}

fn prove(kernel: &Kernel, writes: &[&Site], shape: &[i64]) -> Option<()> {
    let mut boxed: BTreeSet<Vec<i64>> = BTreeSet::new();
    let mut first: Option<(Parts, Site)> = None;
    let mut sizes = vec![0; shape.len()];
    for site in writes {
        let site_of_units = by_units(kernel, site)?;
        let parts = take_apart(&site_of_units, shape)?;
        if let Some((known, _)) = &first
            && (known.origin != parts.origin || known.outer_guards != parts.outer_guards)
        {
            return None;
        }
        let space = enumerate::space(&parts.inner, &site_of_units.facts.ranges, MOST)?;
        let filled = enumerate::for_each(&space, |values| {
            if !holds(&parts.inner_guards, values) {
                return ControlFlow::Continue(());
            }
            let element: Option<Vec<i64>> = parts.element.iter().map(|e| enumerate::eval(e, values)).collect();
            match element {
                // Origins are not negative: an element beyond the extent is beyond it in every box.
                Some(element) if element.iter().zip(shape).any(|(i, n)| i >= n) => ControlFlow::Continue(()),
                Some(element) if element.iter().all(|i| *i >= 0) => {
                    for (size, i) in sizes.iter_mut().zip(&element) {
                        *size = (*size).max(i + 1);
                    }
                    if boxed.insert(element) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                }
                _ => ControlFlow::Break(()),
            }
        });
        if filled.is_break() {
            return None;
        }
        first.get_or_insert((parts, site_of_units));
    }
    let volume = sizes.iter().try_fold(1i64, |a, n| a.checked_mul(*n))?;
    if boxed.is_empty() || boxed.len() as i64 != volume {
        return None;
    }
    let (parts, site) = first?;
    let counts: Vec<i64> = shape.iter().zip(&sizes).map(|(n, size)| ceil_div(*n, *size)).collect();
    let fresh = Pseudo::new(kernel).free(shape.len()) + 1;
    if parts.number_boxes(&sizes, &site.facts.ranges).is_some_and(|side| side.takes_each_once(&counts, fresh)) {
        return Some(());
    }
    let space = enumerate::space(&parts.outer, &site.facts.ranges, MOST)?;
    let mut origins = BTreeSet::new();
    let outcome = enumerate::for_each(&space, |values| {
        if !holds(&parts.outer_guards, values) {
            return ControlFlow::Continue(());
        }
        let origin: Option<Vec<i64>> = parts.origin.iter().map(|e| enumerate::eval(e, values)).collect();
        let Some(origin) = origin else { return ControlFlow::Break(()) };
        if origin.iter().any(|at| *at < 0) {
            return ControlFlow::Break(());
        }
        // A box that begins beyond the edge is cut away whole: nothing is written outside of the buffer.
        if origin.iter().zip(shape).any(|(at, extent)| at >= extent) {
            return ControlFlow::Continue(());
        }
        let aligned = origin
            .iter()
            .zip(&sizes)
            .zip(shape)
            .all(|((at, size), extent)| at % size == 0 && (0..*extent).contains(at));
        if aligned && origins.insert(origin) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if outcome.is_break() {
        return None;
    }
    let wanted = counts.iter().try_fold(1i64, |a, n| a.checked_mul(*n))?;
    (origins.len() as i64 == wanted).then_some(())
}

fn holds(guards: &[(Expr, bool)], values: &[i64]) -> bool {
    guards.iter().all(|(g, truth)| enumerate::eval(g, values) == Some(i64::from(*truth)))
}

/// The access as a unit of threads makes it. In loops over a fragment's elements one thread of the unit writes each, so
/// the unit as a whole does; fails where its threads write different elements. Elsewhere a thread's number becomes that of
/// its warpgroup and its own in there: what a warpgroup works on may follow from the grid's blocks, as where each has
/// tiles of its own, and what its threads do in a tile not.
fn by_units<'k>(kernel: &Kernel, site: &Site<'k>) -> Option<Site<'k>> {
    let mut out = site.clone();
    // Conditions have narrowed the ranges; here those that cut boxes at the edge are to count for nothing.
    for l in &site.loops {
        out.facts.ranges.insert(l.var, 0, l.extent - 1);
    }
    let site = &out.clone();
    let together = site.loops.iter().any(|l| l.kind == LoopKind::FragmentCol);
    let unit = if together { unit_of(kernel, site.stmt)? } else { Unit::Warpgroup }.threads();
    let thread = |l: &&&For| matches!(l.kind, LoopKind::Thread(_));
    let threads: Vec<&&For> = site.loops.iter().filter(thread).collect();
    let l = match threads[..] {
        [l] if together || l.extent % unit == 0 => l,
        _ if together => return None,
        _ => return Some(out),
    };
    let (lo, hi) = site.facts.ranges.get(l.var)?;
    // `t = unit * number + lane`.
    let lane = VarId(Pseudo::new(kernel).free(site.index.len()));
    let mut ranges = site.facts.ranges.clone();
    ranges.insert(l.var, lo.div_euclid(unit), hi.div_euclid(unit));
    ranges.insert(lane, 0, unit - 1);
    let by = l.var * unit + lane;
    let mut mentioned = false;
    let mut rewrite = |e: &Expr| -> Option<Expr> {
        let e = simplify(&e.clone().subst(l.var, &by), &ranges);
        mentioned |= e.mentions(lane);
        (!together || !e.mentions(lane)).then_some(e)
    };
    out.index = site.index.iter().map(&mut rewrite).collect::<Option<_>>()?;
    out.facts.guards = site
        .facts
        .guards
        .iter()
        .map(|(g, t)| Some((by_unit_guard(g, l.var, unit, &mut rewrite)?, *t)))
        .collect::<Option<_>>()?;
    if !together && !mentioned {
        // All threads of a warpgroup write the same.
        return None;
    }
    if together {
        ranges.remove(lane);
    }
    out.facts.ranges = ranges;
    Some(out)
}

/// A condition on a thread's number as one on its unit's: `t < 128` is `unit < 1`.
fn by_unit_guard(g: &Expr, t: VarId, unit: i64, rewrite: &mut impl FnMut(&Expr) -> Option<Expr>) -> Option<Expr> {
    match g {
        Expr::Binary(BinOp::Lt, a, b) if **a == Expr::Var(t) => match b.as_int()? {
            n if n % unit == 0 => Some(Expr::Var(t).lt(n / unit)),
            _ => None,
        },
        _ => rewrite(g),
    }
}

/// The unit whose fragment the statement reads.
fn unit_of(kernel: &Kernel, s: &Stmt) -> Option<Unit> {
    let mut unit = None;
    s.accesses(&mut |a| {
        if let (false, None, Scope::Fragment(u)) = (a.writes, a.extents, kernel.buffer(a.buffer).scope) {
            unit = Some(u);
        }
    });
    unit
}

/// Splits each index into what follows from the blocks of the grid and what does not.
fn take_apart(site: &Site, shape: &[i64]) -> Option<Parts> {
    let ranges = &site.facts.ranges;
    let variables = |e: &Expr| enumerate::variables([e]);
    let sums: Vec<Sum> = site.index.iter().map(|e| Sum::of(simplify(e, ranges))).collect();
    // That an index is inside of its dimension only cuts the boxes at the edge.
    let inside = |g: &(Expr, bool)| {
        site.index.iter().zip(shape).any(|(index, n)| {
            let Expr::Binary(BinOp::Lt, a, b) = &g.0 else { return false };
            let room = (*b.clone() - *a.clone()) - (Expr::Int(*n) - index.clone());
            // Of `2 * tile + 1 < 35` a simplified condition says `tile < 17`.
            let same = || simplify(&index.clone().lt(*n), ranges) == simplify(&g.0, ranges);
            g.1 && (simplify(&room, ranges) == Expr::Int(0) || same())
        })
    };
    let guards: Vec<&(Expr, bool)> = site.facts.guards.iter().filter(|g| !inside(g)).collect();
    // Variables that occur together belong together.
    let mut outer: BTreeSet<VarId> = site
        .loops
        .iter()
        .filter(|l| matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_)))
        .map(|l| l.var)
        .collect();
    let mut together: Vec<BTreeSet<VarId>> = vec![];
    for sum in &sums {
        for (term, _) in &sum.terms {
            together.push(variables(term)?);
        }
    }
    for (g, _) in &guards {
        together.push(variables(g)?);
    }
    loop {
        let before = outer.len();
        for set in &together {
            if !set.is_disjoint(&outer) {
                outer.extend(set);
            }
        }
        if outer.len() == before {
            break;
        }
    }
    let inner: BTreeSet<VarId> = together.iter().flatten().filter(|v| !outer.contains(v)).copied().collect();
    // A loop that says nothing about the place would write it again and again.
    let idle = |l: &&For| {
        let repeats = ranges.get(l.var).is_none_or(|(lo, hi)| lo < hi);
        repeats && !outer.contains(&l.var) && !inner.contains(&l.var)
    };
    if site.loops.iter().any(idle) {
        return None;
    }
    let (mut origin, mut element) = (vec![], vec![]);
    for sum in &sums {
        let (mut o, mut i) = (Expr::Int(0), Expr::Int(sum.constant));
        for (term, factor) in &sum.terms {
            let part = term.clone() * *factor;
            if variables(term)?.is_disjoint(&outer) { i = i + part } else { o = o + part }
        }
        origin.push(o);
        element.push(i);
    }
    let (mut outer_guards, mut inner_guards) = (vec![], vec![]);
    for (g, truth) in guards {
        let side = if variables(g)?.is_disjoint(&outer) { &mut inner_guards } else { &mut outer_guards };
        side.push((g.clone(), *truth));
    }
    // Only variables that are really used are enumerated: an index of the grid that is not would write everything again.
    let used: BTreeSet<VarId> = together.into_iter().flatten().collect();
    if outer.iter().any(|v| !used.contains(v) && ranges.get(*v).is_none_or(|(lo, hi)| lo < hi)) {
        return None;
    }
    outer.retain(|v| used.contains(v));
    Some(Parts { origin, element, outer, inner, outer_guards, inner_guards })
}

#[cfg(test)]
mod tests {
    use crate::analysis::verify::{Limits, check};
    use crate::ir::parse::parse;

    /// 15 tiles of 4 x 4, four at a time, in an order that only divisions show.
    const TILES: &str = "\
kernel tiles {
  param y: f32[12, 20] global write
  for block in 0..4 grid.x {
    for t in 0..8 thread.x {
      for round in 0..4 {
        let tile: i64 = round * 4 + block
        if tile < 15 {
          for c in 0..2 {
            y[(tile / 5 * 5 % 15 / 5) * 4 + t / 2, tile % 5 * 4 + t % 2 * 2 + c] = 1.0f32
          }
        }
      }
    }
  }
}
";

    fn faults(text: &str) -> String {
        let kernel = parse(text).expect("a kernel");
        check(&kernel, &Limits::cuda()).iter().map(|f| f.to_string() + "\n").collect()
    }

    #[test]
    fn tiles_in_any_order_cover_an_output_once() {
        assert_eq!(faults(TILES), "");
        // At the edge, tiles are cut.
        let cut = TILES.replace("y: f32[12, 20]", "y: f32[11, 19]").replace(
            "y[(tile / 5 * 5 % 15 / 5) * 4 + t / 2, tile % 5 * 4 + t % 2 * 2 + c] = 1.0f32",
            "if (tile / 5 * 5 % 15 / 5) * 4 + t / 2 < 11 && tile % 5 * 4 + t % 2 * 2 + c < 19 {
              y[(tile / 5 * 5 % 15 / 5) * 4 + t / 2, tile % 5 * 4 + t % 2 * 2 + c] = 1.0f32
            }",
        );
        assert_eq!(faults(&cut), "");
    }

    /// The two rows of a tile one by one, as unrolling leaves them; the output has too many elements to go through.
    #[test]
    fn a_row_that_a_condition_on_tiles_cuts_is_cut_at_the_edge() {
        let rows = "\
kernel rows {
  param y: f32[2047, 2048] global write
  for block in 0..132 grid.x {
    for t in 0..128 thread.x {
      for round in 0..125 {
        let tile: i64 = round * 132 + block
        if tile < 16384 {
          y[tile / 16 % 1024 * 2, tile % 16 * 128 + t] = 1.0f32
          if tile / 16 % 1024 * 2 + 1 < 2047 {
            y[tile / 16 % 1024 * 2 + 1, tile % 16 * 128 + t] = 1.0f32
          }
        }
      }
    }
  }
}
";
        assert_eq!(faults(rows), "");
        let short = rows.replace("* 2 + 1 < 2047", "* 2 + 1 < 2045");
        assert!(
            faults(&short).contains("nothing writes y[2045, 0]"),
            "the last row but one is missing: {}",
            faults(&short)
        );
    }

    #[test]
    fn tiles_that_are_left_out_or_meet_are_reported() {
        for (from, to, fault) in [
            ("tile < 15", "tile < 14", "unwritten output"),
            ("for round in 0..4", "for round in 0..3", "unwritten output"),
            ("tile % 5 * 4", "tile % 4 * 4", "unwritten output"),
            ("tile / 5 * 5 % 15 / 5", "tile / 6 * 5 % 15 / 5", "unwritten output"),
            ("t % 2 * 2 + c", "t % 2 + c", "unwritten output"),
            ("for c in 0..2", "for c in 0..1", "unwritten output"),
        ] {
            let text = faults(&TILES.replace(from, to));
            assert!(text.contains(fault), "{from} -> {to}: `{text}`");
        }
    }

    /// Five million tiles of 4 x 4: none is looked at.
    #[test]
    fn more_tiles_than_are_gone_through_are_told_apart_by_their_form() {
        let tiles = |end: i64, rows: i64, rounds: i64, column: &str| {
            format!(
                "kernel tiles {{\n param y: f32[4000012, 20] global write\n for block in 0..4 grid.x {{\n for t in 0..8 thread.x {{\n \
                 for round in 0..{rounds} {{\n let tile: i64 = round * 4 + block\n if tile < {end} {{\n for c in 0..2 {{\n \
                 y[tile / 5 % {rows} * 4 + t / 2, {column} * 4 + t % 2 * 2 + c] = 1.0f32\n }}\n }}\n }}\n }}\n }}\n}}\n"
            )
        };
        assert_eq!(faults(&tiles(5_000_015, 1_000_003, 1_250_004, "tile % 5")), "");
        for (end, rows, rounds, column) in [
            // The last tile is left out, by the condition and by the loop.
            (5_000_014, 1_000_003, 1_250_004, "tile % 5"),
            (5_000_015, 1_000_003, 1_250_003, "tile % 5"),
            // The last row of tiles is the first again, and columns are.
            (5_000_015, 1_000_002, 1_250_004, "tile % 5"),
            (5_000_015, 1_000_003, 1_250_004, "tile % 5 / 2"),
        ] {
            assert_ne!(faults(&tiles(end, rows, rounds, column)), "", "{end} {rows} {rounds} {column}");
        }
    }
}
