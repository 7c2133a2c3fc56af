//! How much of a kernel's work is left where there are fewer units.

use super::narrow;
use super::pass::{LowerError, LowerOptions, Units};
use crate::ir::{BinOp, Expr, Gpu, Kernel, LoopKind, Stmt, UnOp, VarId, visit};
use crate::stable::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// A kernel for several numbers of units, to be asked how much it does for each.
#[derive(Clone, Debug)]
pub struct Work {
    kernel: Kernel,
    lets: BTreeMap<VarId, Expr>,
    /// Loops over blocks that stay for several rounds: the block with the most of them is the one that counts.
    staying: BTreeSet<VarId>,
    most: i64,
}

/// A loop and the iterations of it that are looked at.
type Span = (VarId, i64, i64);

impl Work {
    /// Of a kernel that is made for the most units.
    ///
    /// # Errors
    ///
    /// Why it cannot run fewer.
    pub fn of(kernel: Kernel, units: Units, options: LowerOptions) -> Result<Work, LowerError> {
        let most = units.most;
        let kernel = narrow::run(kernel, &LowerOptions { units: Some(units), ..options })?;
        let mut lets = BTreeMap::new();
        kernel.body.iter().for_each(|s| {
            s.walk(&mut |s| {
                if let Stmt::Let { var, value } = s {
                    lets.insert(*var, value.clone());
                }
            });
        });
        let mut work = Work { kernel, lets, staying: BTreeSet::new(), most };
        let loops: BTreeMap<VarId, LoopKind> =
            visit::loops(&work.kernel.body).into_iter().map(|l| (l.var, l.kind)).collect();
        let mut staying = BTreeSet::new();
        work.kernel.body.iter().for_each(|s| {
            s.walk(&mut |s| {
                let Stmt::If { cond, .. } = s else { return };
                let of: Vec<VarId> = work.depends(cond).into_iter().filter(|v| loops.contains_key(v)).collect();
                let is_of = |v: &&VarId, kind: fn(&LoopKind) -> bool| loops.get(v).is_some_and(kind);
                let block = of.iter().find(|v| is_of(v, |kind| matches!(kind, LoopKind::Grid(_))));
                let round = of.iter().any(|v| is_of(&v, |kind| *kind == LoopKind::Serial));
                staying.extend(block.filter(|_| of.len() == 2 && round && work.mentions_units(cond)));
            });
        });
        work.staying = staying;
        Ok(work)
    }

    fn mentions_units(&self, cond: &Expr) -> bool {
        self.kernel.size.as_ref().is_some_and(|size| cond.mentions(size.var))
    }

    /// The variables that an expression depends on, by way of `let`s, too.
    fn depends(&self, e: &Expr) -> BTreeSet<VarId> {
        let mut all = BTreeSet::new();
        e.walk(&mut |e| {
            let Expr::Var(v) = e else { return };
            match self.lets.get(v) {
                Some(value) => all.extend(self.depends(value)),
                None => drop(all.insert(*v)),
            }
        });
        all
    }

    /// The share of the work of the most units that it does for so many, by the statements that run, products by their size.
    pub fn share(&self, units: i64) -> f64 {
        let of = |units: i64| {
            let mut loops = vec![];
            self.kernel.body.iter().map(|s| self.stmt(s, units, &mut loops)).sum::<f64>()
        };
        of(units) / of(self.most).max(f64::MIN_POSITIVE)
    }

    fn block(&self, block: &[Stmt], units: i64, loops: &mut Vec<Span>) -> f64 {
        block.iter().map(|s| self.stmt(s, units, loops)).sum()
    }

    fn stmt(&self, s: &Stmt, units: i64, loops: &mut Vec<Span>) -> f64 {
        match s {
            Stmt::For(l) => {
                let extent = self.kernel.first_of(l.var).map_or(l.extent, |f| f.iterations(units).min(l.extent));
                let mut of = |from: i64, to: i64| {
                    loops.push((l.var, from, to));
                    let inner = self.block(&l.body, units, loops);
                    loops.pop();
                    inner
                };
                if self.staying.contains(&l.var) && l.extent <= MOST_STAYING {
                    // All blocks are there at the same time.
                    return l.extent as f64 * (0..extent).map(|block| of(block, block + 1)).fold(0.0, f64::max);
                }
                extent as f64 * of(0, extent)
            }
            Stmt::If { cond, then, otherwise } => {
                let holds = if self.mentions_units(cond) { self.holds(cond, units, loops) } else { 1.0 };
                holds * self.block(then, units, loops) + self.block(otherwise, units, loops)
            }
            Stmt::Gpu(Gpu::Mma { acc, a, .. }) => {
                let product = |extents: &[i64]| extents.iter().product::<i64>() as f64;
                product(&acc.extents) * a.tile.extents.last().copied().unwrap_or(1) as f64 / PRODUCTS
            }
            Stmt::Gpu(_) | Stmt::Store { .. } | Stmt::Reduce { .. } | Stmt::Transpose { .. } => 1.0,
            Stmt::Let { .. } | Stmt::Alloc(_) | Stmt::Barrier(_) => 0.0,
        }
    }

    /// How often a condition holds: of all iterations that decide about it, or of a sample of them.
    fn holds(&self, cond: &Expr, units: i64, loops: &[Span]) -> f64 {
        let of = self.depends(cond);
        let spans: Vec<Span> = loops.iter().filter(|(var, ..)| of.contains(var)).copied().collect();
        let all = spans.iter().fold(1i64, |all, (_, from, to)| all.saturating_mul(to - from));
        let exact = all <= SAMPLE;
        let (mut rng, mut count) = (Rng::new(1), 0);
        for number in 0..all.min(SAMPLE) {
            let mut rest = number;
            let mut values: BTreeMap<VarId, i64> = BTreeMap::new();
            for (var, from, to) in &spans {
                let extent = (to - from).max(1);
                let at = if exact { rest % extent } else { rng.below(extent as u64) as i64 };
                rest /= extent;
                values.insert(*var, from + at);
            }
            values.extend(self.kernel.size.as_ref().map(|size| (size.var, units)));
            // What memory decides is not known here.
            count += i64::from(self.value(cond, &values) != Some(0));
        }
        count as f64 / all.clamp(1, SAMPLE) as f64
    }

    /// The value of an integer or of a condition, which is 0 or 1.
    fn value(&self, e: &Expr, values: &BTreeMap<VarId, i64>) -> Option<i64> {
        let of = |e: &Expr| self.value(e, values);
        Some(match e {
            Expr::Int(n) => *n,
            Expr::Var(v) => match values.get(v) {
                Some(value) => *value,
                None => of(self.lets.get(v)?)?,
            },
            Expr::Binary(op, a, b) => {
                let (a, b) = (of(a), of(b));
                match op {
                    BinOp::And if a == Some(0) || b == Some(0) => 0,
                    BinOp::Or if a == Some(1) || b == Some(1) => 1,
                    _ => binary(*op, a?, b?)?,
                }
            }
            Expr::Unary(UnOp::Not, a) => 1 - of(a)?,
            Expr::Unary(UnOp::Neg, a) => of(a)?.checked_neg()?,
            Expr::Select(cond, a, b) => of(if of(cond)? != 0 { a } else { b })?,
            Expr::Cast(_, a) | Expr::Broadcast(a, _) => of(a)?,
            _ => return None,
        })
    }
}

fn binary(op: BinOp, a: i64, b: i64) -> Option<i64> {
    match op {
        BinOp::Add => a.checked_add(b),
        BinOp::Sub => a.checked_sub(b),
        BinOp::Mul => a.checked_mul(b),
        BinOp::Div => a.checked_div_euclid(b),
        BinOp::Mod => a.checked_rem_euclid(b),
        BinOp::Min => Some(a.min(b)),
        BinOp::Max => Some(a.max(b)),
        BinOp::Lt => Some(i64::from(a < b)),
        BinOp::Le => Some(i64::from(a <= b)),
        BinOp::Eq => Some(i64::from(a == b)),
        BinOp::Ne => Some(i64::from(a != b)),
        BinOp::And => Some(i64::from(a != 0 && b != 0)),
        BinOp::Or => Some(i64::from(a != 0 || b != 0)),
        BinOp::Pow | BinOp::Fmod => None,
    }
}

/// Iterations that a condition is tried for, at most.
const SAMPLE: i64 = 512;
/// Blocks that may all be there at the same time.
const MOST_STAYING: i64 = 320;
/// Multiplications of a product of tiles that take as long as another statement of a thread.
const PRODUCTS: f64 = 256.0;
