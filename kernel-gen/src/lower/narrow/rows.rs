//! What is known of rows: which a statement writes, the least of them, and how many there are.

use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::simplify;
use crate::integer::gcd;
use crate::ir::{BinOp, BufferId, Expr, First, Kernel, Scope, Size, Stmt, VarId, visit};
use crate::lower::pass::LowerError;
use std::collections::{BTreeMap, BTreeSet};

/// That `row < n * rows` for the number `n` of units.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Fact {
    pub(super) row: Expr,
    pub(super) rows: i64,
}

impl Fact {
    /// The same without a division: `row / 7 < n * rows` is `row < n * 7 * rows`.
    pub(super) fn undivided(mut self) -> Fact {
        while let Expr::Binary(BinOp::Div, row, by) = &self.row
            && let Some(by @ 1..) = by.as_int()
        {
            self = Fact { row: (**row).clone(), rows: self.rows.saturating_mul(by) };
        }
        self
    }
}

pub(super) struct Narrow {
    pub(super) kernel: Kernel,
    pub(super) lets: BTreeMap<VarId, Expr>,
    /// Of all loops, and of the number of units.
    pub(super) ranges: Ranges,
    pub(super) vectorized: BTreeSet<VarId>,
}

/// A place where a statement writes a tensor that varies.
pub(super) struct Written {
    pub(super) row: Expr,
    /// Rows of a unit of the tensor.
    pub(super) rows: i64,
    /// What the conditions around it say of variables.
    pub(super) ranges: Ranges,
}

impl Narrow {
    pub(super) fn refuse<T>(&self, b: BufferId, why: impl Into<String>) -> Result<T, LowerError> {
        Err(LowerError::NotNarrow { buffer: self.kernel.buffer(b).name.clone(), why: why.into() })
    }

    /// The expression in terms of loops, and of what is to be kept.
    pub(super) fn inline(&self, e: Expr, keep: &BTreeSet<VarId>) -> Expr {
        e.map(&mut |e| match e {
            Expr::Var(v) if !keep.contains(&v) => match self.lets.get(&v) {
                Some(value) => self.inline(value.clone(), keep),
                None => e,
            },
            other => other,
        })
    }

    /// The same in terms of loops only, in normal form.
    pub(super) fn plain(&self, e: &Expr) -> Expr {
        simplify(&self.inline(e.clone(), &BTreeSet::new()), &self.ranges)
    }

    /// Whether an expression depends on a variable, by way of `let`s or not.
    pub(super) fn depends(&self, e: &Expr, var: VarId) -> bool {
        self.inline(e.clone(), &BTreeSet::new()).mentions(var)
    }

    pub(super) fn rows(&self, b: BufferId) -> Option<i64> {
        self.kernel.rows_a_unit(b)
    }

    /// The number of rows that there are.
    pub(super) fn limit(&self, rows: i64) -> Expr {
        let units = self.kernel.size.as_ref().expect("the pass has made it").var;
        Expr::Var(units) * rows
    }

    /// What a statement at the top writes of tensors that vary; none if it writes other memory that the caller or other launches see,
    /// or nothing.
    pub(super) fn written(&self, s: &Stmt, keep: &BTreeSet<VarId>) -> Option<Vec<Written>> {
        let (mut all, inside) = (vec![], visit::allocated(std::slice::from_ref(s)));
        let is_other = |b: &BufferId| self.kernel.buffer(*b).scope == Scope::Global && !inside.contains(b);
        let only = self.collect_written(s, (&self.ranges, keep), &is_other, &mut all);
        (only && !all.is_empty()).then_some(all)
    }

    /// Adds what a statement writes of tensors that vary; false if it writes other memory.
    pub(super) fn collect_written(
        &self,
        s: &Stmt,
        (ranges, keep): (&Ranges, &BTreeSet<VarId>),
        is_other: &dyn Fn(&BufferId) -> bool,
        all: &mut Vec<Written>,
    ) -> bool {
        let mut each = |block: &[Stmt], ranges: &Ranges| {
            block.iter().all(|s| self.collect_written(s, (ranges, keep), is_other, all))
        };
        match s {
            Stmt::For(l) => each(&l.body, ranges),
            Stmt::If { cond, then, otherwise } => {
                each(then, &self.assuming(ranges, cond, true)) && each(otherwise, &self.assuming(ranges, cond, false))
            }
            _ => {
                let mut only = true;
                s.accesses(&mut |a| match self.rows(a.buffer) {
                    _ if !a.writes => {}
                    Some(rows) => {
                        let row =
                            simplify(&self.inline(a.index[self.kernel.units_dim(a.buffer)].clone(), keep), ranges);
                        all.push(Written { row, rows, ranges: ranges.clone() });
                    }
                    None => only &= !is_other(&a.buffer),
                });
                only
            }
        }
    }

    /// What is known where a condition holds, or does not: of the variables in it, and of what they are made of.
    pub(super) fn assuming(&self, ranges: &Ranges, cond: &Expr, truth: bool) -> Ranges {
        let mut ranges = ranges.clone();
        ranges.assume(cond, truth);
        ranges.assume(&self.inline(cond.clone(), &BTreeSet::new()), truth);
        ranges
    }

    pub(super) fn size_mut(&mut self) -> &mut Size {
        self.kernel.size.as_mut().expect("the pass has made it")
    }

    /// What holds of the least row that is written where only what is `outer` is decided, if any row that is written exists; none
    /// if that cannot be said in one.
    pub(super) fn least_of(&self, written: &[Written], outer: &Outer) -> Option<Fact> {
        let mut facts = written.iter().map(|w| self.least(w, outer));
        let mut least = facts.next()??;
        for other in facts {
            let other = other?;
            let more = simplify(&(other.row.clone() - least.row.clone()), &self.ranges).as_int()?;
            if other.rows != least.rows {
                return None;
            }
            if more < 0 {
                least = other;
            }
        }
        // A condition on less holds as well.
        if let Expr::Binary(BinOp::Add, row, more) = &least.row
            && more.as_int().is_some_and(|more| more > 0)
        {
            least.row = (**row).clone();
        }
        Some(least)
    }

    /// What holds of the least row that is written where only what is `outer` is decided, if anything is written.
    fn least(&self, of: &Written, outer: &Outer) -> Option<Fact> {
        let row = simplify(&least(&of.row, outer, &of.ranges)?, &self.ranges);
        Some(Fact { row, rows: of.rows })
    }
}

/// Variables that are decided where others may be anything.
pub(super) struct Outer {
    /// Where they are larger, what is asked of them must not be less.
    pub(super) rising: BTreeSet<VarId>,
    pub(super) fixed: BTreeSet<VarId>,
}

/// The least value of an expression where variables that are not decided may have any value of theirs, or something less; none if it
/// is not known.
fn least(e: &Expr, outer: &Outer, ranges: &Ranges) -> Option<Expr> {
    let constant = || bounds(e, ranges).map(|(lo, _)| Expr::Int(lo));
    if e.variables().iter().all(|v| outer.fixed.contains(v)) {
        return (!e.reads_memory()).then(|| e.clone());
    }
    match e {
        Expr::Var(v) if outer.rising.contains(v) => Some(e.clone()),
        Expr::Binary(op @ (BinOp::Add | BinOp::Min | BinOp::Max), a, b) => {
            Some(Expr::bin(*op, least(a, outer, ranges)?, least(b, outer, ranges)?))
        }
        Expr::Binary(BinOp::Sub, a, b) => {
            let (_, most) = bounds(b, ranges)?;
            Some(least(a, outer, ranges)? - most)
        }
        Expr::Binary(op @ (BinOp::Mul | BinOp::Div), a, b) if b.as_int().is_some_and(|n| n > 0) => {
            Some(Expr::bin(*op, least(a, outer, ranges)?, (**b).clone()))
        }
        Expr::Ramp { base, stride: 0.., .. } | Expr::Broadcast(base, _) => least(base, outer, ranges),
        _ => constant(),
    }
}

/// How many values of the variable, from 0 on, have `row < n * rows`, for each `n`; none if that is not of the form.
pub(super) fn first_of(row: &Expr, var: VarId, rows: i64) -> Option<First> {
    // `row < limit`, with a limit of the same form, is solved from the outside to the inside.
    let (mut row, mut limit) = (row, First { per: rows, of: 1, times: 1, by: 1 });
    loop {
        let (op, inner, by) = match row {
            Expr::Var(v) if *v == var => return Some(limit),
            Expr::Binary(op @ (BinOp::Mul | BinOp::Div), inner, by) => (op, &**inner, by.as_int().filter(|n| *n > 0)?),
            _ => return None,
        };
        let First { per, of, times, .. } = limit;
        limit = match op {
            // `x / by < limit` where `x < limit * by`.
            BinOp::Div if of == 1 => First { per: per.checked_mul(by)?, ..limit },
            BinOp::Div => First { times: times.checked_mul(by)?, ..limit },
            // `x * by < limit` where `x < ceil(limit / by)`.
            _ if times % by == 0 => First { times: times / by, ..limit },
            _ if by % times == 0 => {
                let by = by / times;
                let common = gcd(per, of.checked_mul(by)?);
                First { per: per / common, of: of * by / common, times: 1, by: 1 }
            }
            _ => return None,
        };
        row = inner;
    }
}

/// A number that divides an expression whatever its variables are; 0 of zero.
pub(super) fn divisor(e: &Expr) -> i64 {
    match e {
        Expr::Int(n) => n.saturating_abs(),
        Expr::Binary(BinOp::Add | BinOp::Sub, a, b) => gcd(divisor(a), divisor(b)),
        Expr::Binary(BinOp::Mul, a, b) => divisor(a).saturating_mul(divisor(b)).max(1),
        _ => 1,
    }
}
