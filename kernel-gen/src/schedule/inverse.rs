//! Which iteration of a stage's nest writes a given element.
//!
//! A stage writes `b[v]`, or `b[g * 8 + co]` with `co` in `0..8`: the index of a dimension is a number whose digits are
//! loops. Reading it backwards gives each loop as a function of the element: `g = e / 8`, `co = e % 8`.

use crate::analysis::affine::Affine;
use crate::analysis::range::Ranges;
use crate::analysis::simplify::simplify;
use crate::ir::{Expr, For, VarId};

/// A loop as a digit of a dimension's index: `v = index / weight % extent`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Digit {
    pub(super) var: VarId,
    pub(super) dim: usize,
    weight: i64,
    /// `None` for the leading digit, whose quotient is in range as it is.
    extent: Option<i64>,
}

impl Digit {
    /// The digit of an index.
    pub(super) fn of(&self, index: Expr) -> Expr {
        let quotient = index.floor_div(self.weight);
        match self.extent {
            Some(n) => quotient.floor_mod(n),
            None => quotient,
        }
    }
}

/// The digits of each dimension, leading one first; `loops` are the stage's own loops without the reduce loops. Loops
/// of one iteration need not occur. `Err` says which dimension or loop does not fit.
pub(super) fn digits(
    indices: &[Expr],
    shape: &[i64],
    loops: &[&For],
    ranges: &Ranges,
) -> Result<Vec<Vec<Digit>>, String> {
    let mut out: Vec<Vec<Digit>> = vec![];
    for (dim, index) in indices.iter().enumerate() {
        let index = simplify(index, ranges);
        let unfit = || format!("the index of dimension {dim} is not made of its loops alone");
        let a = Affine::of(&index).ok_or_else(unfit)?;
        let mut terms: Vec<(i64, &For)> = vec![];
        for (v, c) in &a.terms {
            let l = loops.iter().find(|l| l.var == *v).ok_or_else(unfit)?;
            terms.push((*c, l));
        }
        terms.sort_by_key(|(c, l)| (std::cmp::Reverse(*c), l.var));
        let mut weight = 1;
        let mut of_dim = vec![];
        for (i, (c, l)) in terms.iter().enumerate().rev() {
            if *c != weight || a.constant != 0 {
                return Err(unfit());
            }
            of_dim.push(Digit { var: l.var, dim, weight, extent: (i > 0).then_some(l.extent) });
            weight *= l.extent;
        }
        if a.constant != 0 || weight < shape[dim] {
            return Err(format!("dimension {dim} is written in part only"));
        }
        of_dim.reverse();
        out.push(of_dim);
    }
    for l in loops {
        let times = out.iter().flatten().filter(|d| d.var == l.var).count();
        if times > 1 || times == 0 && l.extent > 1 {
            return Err(format!("a loop of {} iterations stands for {times} dimensions", l.extent));
        }
    }
    Ok(out)
}
