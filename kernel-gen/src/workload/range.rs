//! Workloads whose number of images or rows is known at run time only.

use super::Workload;
use super::layout::ConvLayout;
use super::naive::naive;
use super::param::Role;
use crate::ir::{BufferId, Expr, Kernel, Stmt, VarId, visit};
use std::collections::{BTreeMap, BTreeSet};

/// How many *units* a workload may have: images, rows, what the first dimension of its input holds. The workload itself is
/// that of the most.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The fewest, 1 at least.
    pub least: i64,
    /// The most.
    pub most: i64,
    /// Positions of the parameters whose first dimension holds the units.
    pub params: Vec<usize>,
    /// What a unit adds to each size of the operator.
    steps: Vec<i64>,
}

impl Range {
    /// The range of a workload of the most units; `fewer` has one less.
    ///
    /// # Errors
    ///
    /// Why the workload cannot be of any number of units.
    pub fn of(least: i64, most: i64, workload: &Workload, fewer: &Workload) -> Result<Range, String> {
        let sizes = workload.op.get().sizes().into_iter().zip(fewer.op.get().sizes());
        let steps = sizes.map(|(more, fewer)| more - fewer).collect();
        let mut params = vec![];
        for (i, (p, q)) in workload.params().into_iter().zip(fewer.params()).enumerate() {
            if p.shape == q.shape {
                continue;
            }
            if p.shape.first() != Some(&most) || p.shape.get(1..) != q.shape.get(1..) {
                return Err(format!("`{}` would be {:?} of {most} and {:?} of {}", p.name, p.shape, q.shape, most - 1));
            }
            if p.role == Role::Weight {
                return Err(format!("`{}` is a weight, which does not change from call to call", p.name));
            }
            params.push(i);
        }
        let range = Range { least, most, params, steps };
        range.check(&naive(workload))?;
        Ok(range)
    }

    /// The range of a workload whose rows are a multiple of some units, from the workloads of `most` units and of `others`: each unit
    /// has the same number of rows, and a range of this has units that are rows.
    ///
    /// # Errors
    ///
    /// Why the workload cannot be of any number of units.
    pub fn through(
        least: i64,
        (most, workload): (i64, &Workload),
        (others, other): (i64, &Workload),
    ) -> Result<Range, String> {
        let shapes = workload.params().into_iter().zip(other.params());
        let Some((p, q)) = shapes.into_iter().find(|(p, q)| p.shape != q.shape) else {
            return Err(format!("it is `{}` of {most} and `{}` of {others}", workload.key(), other.key()));
        };
        let [rows, other_rows] = [&p, &q].map(|param| param.shape.first().copied().unwrap_or(0));
        let per = rows / most;
        if (rows, other_rows) != (per * most, per * others) {
            return Err(format!("`{}` is {:?} of {most} and {:?} of {others}", p.name, p.shape, q.shape));
        }
        let (own, rows_between) = (workload.op.get().sizes(), per * (most - others));
        let steps: Vec<i64> = own.iter().zip(other.op.get().sizes()).map(|(a, b)| (a - b) / rows_between).collect();
        let with_fewer = |rows: i64| {
            of_sizes(workload, &own.iter().zip(&steps).map(|(size, step)| size - rows * step).collect::<Vec<i64>>())
        };
        match (with_fewer(1), with_fewer(rows_between)) {
            (Some(one_less), Some(same)) if same == *other => Range::of(least * per, rows, workload, &one_less),
            _ => Err(format!(
                "its sizes do not grow evenly: it is `{}` of {most} and `{}` of {others}",
                workload.key(),
                other.key()
            )),
        }
    }

    /// The workload with 1 to `most` units (`most` at least 2), if its number of units may vary: what a spec says by a range in the
    /// place of the first dimensions.
    pub fn up_to(workload: &Workload, most: i64) -> Option<(Workload, Range)> {
        let sizes = workload.op.get().sizes();
        let of = |at: &[usize], units: i64| {
            let mut sizes = sizes.clone();
            at.iter().for_each(|i| sizes[*i] = units);
            of_sizes(workload, &sizes).filter(|workload| workload.validate().is_ok())
        };
        // The dimension of one operand, or of two that share it.
        let alone = (0..sizes.len()).map(|i| vec![i]);
        let both = (0..sizes.len()).flat_map(|i| (i + 1..sizes.len()).map(move |j| vec![i, j]));
        alone.chain(both).find_map(|at| {
            let largest = of(&at, most)?;
            let range = Range::of(1, most, &largest, &of(&at, most - 1)?).ok()?;
            Some((largest, range))
        })
    }

    /// The workload with `units` units.
    ///
    /// # Panics
    ///
    /// If the range has no such number.
    pub fn at(&self, workload: &Workload, units: i64) -> Workload {
        assert!((1..=self.most).contains(&units), "there are 1 to {} units, and not {units}", self.most);
        let (own, fewer) = (workload.op.get().sizes(), self.most - units);
        let sizes: Vec<i64> = own.iter().zip(&self.steps).map(|(size, step)| size - fewer * step).collect();
        of_sizes(workload, &sizes).expect("the operator has such a size where it has a larger one")
    }

    /// Whether no output depends on another unit than its own: in the definition, whatever is read or written of what holds units is
    /// that of one loop.
    fn check(&self, kernel: &Kernel) -> Result<(), String> {
        let varying: Vec<BufferId> = self.params.iter().map(|i| kernel.params[*i]).collect();
        let writes = |b: &BufferId| kernel.body.iter().any(|s| s.writes(*b));
        if !varying.iter().any(writes) {
            return Err("no output has them".into());
        }
        // What is allocated at the top a statement leaves for another; it holds units, too.
        let nests = kernel.body.iter().filter(|s| matches!(s, Stmt::For(_) | Stmt::If { .. }));
        let own: BTreeSet<BufferId> = nests.flat_map(|s| visit::allocated(std::slice::from_ref(s))).collect();
        for s in &kernel.body {
            let lets = visit::lets(std::slice::from_ref(s));
            let (mut unit, mut fault): (Option<VarId>, Option<BufferId>) = (None, None);
            s.walk(&mut |s| {
                s.accesses(&mut |a| {
                    let is_param = kernel.params.contains(&a.buffer);
                    let holds = if is_param { varying.contains(&a.buffer) } else { !own.contains(&a.buffer) };
                    let matters = holds || is_param && a.writes;
                    if !matters {
                        return;
                    }
                    match of_loop(&a.index[0], &lets) {
                        Some(var) if *unit.get_or_insert(var) == var => {}
                        _ => fault = Some(a.buffer),
                    }
                });
            });
            let extent = unit.and_then(|var| visit::find_loop(std::slice::from_ref(s), var)).map(|l| l.extent);
            if fault.is_none() && unit.is_some() && extent != Some(self.most) {
                fault = varying.first().copied();
            }
            if let Some(b) = fault {
                return Err(format!("an output of one depends on `{}` of another", kernel.buffer(b).name));
            }
        }
        Ok(())
    }
}

/// The workload with other sizes of its operator, if it can have these.
fn of_sizes(workload: &Workload, sizes: &[i64]) -> Option<Workload> {
    let op = workload.op.get();
    let op = (op.kind().of_sizes)(op.layout().unwrap_or(ConvLayout::Nchw), sizes)?;
    Some(Workload { op, ..workload.clone() })
}

/// The loop whose variable an index is.
fn of_loop(index: &Expr, lets: &BTreeMap<VarId, &Expr>) -> Option<VarId> {
    match index {
        Expr::Var(v) => lets.get(v).map_or(Some(*v), |value| of_loop(value, lets)),
        _ => None,
    }
}
