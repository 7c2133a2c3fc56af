//! How much of a kernel's work is left where there are fewer units.

use super::narrow::{self, Units};
use super::pass::{LowerError, LowerOptions};
use crate::ir::{BinOp, Expr, Gpu, Kernel, Stmt, UnOp, VarId};
use crate::stable::Rng;
use std::collections::BTreeMap;

/// A kernel for several numbers of units, to be asked how much it does for each.
#[derive(Clone, Debug)]
pub struct Work {
    kernel: Kernel,
    lets: BTreeMap<VarId, Expr>,
    most: i64,
}

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
        Ok(Work { kernel, lets, most })
    }

    /// The share of the work of the most units that it does for so many, by the statements that run, products by their size.
    pub fn share(&self, units: i64) -> f64 {
        let of = |units: i64| {
            let mut loops = vec![];
            self.kernel.body.iter().map(|s| self.stmt(s, units, &mut loops)).sum::<f64>()
        };
        of(units) / of(self.most).max(f64::MIN_POSITIVE)
    }

    fn block(&self, block: &[Stmt], units: i64, loops: &mut Vec<(VarId, i64)>) -> f64 {
        block.iter().map(|s| self.stmt(s, units, loops)).sum()
    }

    fn stmt(&self, s: &Stmt, units: i64, loops: &mut Vec<(VarId, i64)>) -> f64 {
        match s {
            Stmt::For(l) => {
                let extent = self.kernel.first_of(l.var).map_or(l.extent, |f| f.iterations(units).min(l.extent));
                loops.push((l.var, extent));
                let inner = self.block(&l.body, units, loops);
                loops.pop();
                extent as f64 * inner
            }
            Stmt::If { cond, then, otherwise } => {
                let size = self.kernel.size.as_ref().map(|size| size.var);
                let holds = match size.filter(|var| cond.mentions(*var)) {
                    Some(_) => self.holds(cond, units, loops),
                    None => 1.0,
                };
                let inner = holds * self.block(then, units, loops);
                inner + self.block(otherwise, units, loops)
            }
            Stmt::Gpu(Gpu::Mma { acc, a, .. }) => {
                let product = |extents: &[i64]| extents.iter().product::<i64>() as f64;
                product(&acc.extents) * a.tile.extents.last().copied().unwrap_or(1) as f64 / PRODUCTS
            }
            Stmt::Gpu(_) | Stmt::Store { .. } | Stmt::Reduce { .. } | Stmt::Transpose { .. } => 1.0,
            Stmt::Let { .. } | Stmt::Alloc(_) | Stmt::Barrier(_) => 0.0,
        }
    }

    /// How often a condition holds, by a sample of the iterations.
    fn holds(&self, cond: &Expr, units: i64, loops: &[(VarId, i64)]) -> f64 {
        let mut rng = Rng::new(1);
        let size = self.kernel.size.as_ref().map(|size| size.var);
        let mut count = 0;
        for _ in 0..SAMPLE {
            let draw = |(var, extent): &(VarId, i64)| (*var, rng.below((*extent).max(1) as u64) as i64);
            let mut values: BTreeMap<VarId, i64> = loops.iter().map(draw).collect();
            values.extend(size.map(|var| (var, units)));
            // What memory decides is not known here.
            count += usize::from(self.value(cond, &values) != Some(0));
        }
        count as f64 / SAMPLE as f64
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

/// Iterations that a condition is tried for.
const SAMPLE: usize = 512;
/// Multiplications of a product of tiles that take as long as another statement of a thread.
const PRODUCTS: f64 = 256.0;
