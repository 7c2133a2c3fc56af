//! How much of a kernel's work is left where there are fewer units.

use super::narrow;
use super::pass::{LowerError, Units};
use crate::analysis::verify::eval_by;
use crate::ir::{Expr, Gpu, Kernel, LoopKind, Stmt, VarId, visit};
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
    pub fn of(kernel: Kernel, units: Units) -> Result<Work, LowerError> {
        let most = units.most;
        // As it is: one whose lanes have to run one by one is another kernel than its template takes it for.
        let kernel = narrow::narrowed(kernel, &units)?;
        let lets = visit::lets(&kernel.body).into_iter().map(|(var, value)| (var, value.clone())).collect();
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

    /// The variables that an expression depends on.
    fn depends(&self, e: &Expr) -> BTreeSet<VarId> {
        narrow::reached(e, &self.lets)
    }

    /// Its work for `units` units as a share of its work for the largest number: statements that run are counted, products by their size.
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
        eval_by(e, 0, &|e| match e {
            Expr::Var(v) => values.get(v).copied().or_else(|| self.value(self.lets.get(v)?, values)),
            _ => None,
        })
    }
}

/// Iterations that a condition is tried for, at most.
const SAMPLE: i64 = 512;
/// Blocks that may all be there at the same time.
const MOST_STAYING: i64 = 320;
/// Multiplications of a product of tiles that take as long as another statement of a thread.
const PRODUCTS: f64 = 256.0;
