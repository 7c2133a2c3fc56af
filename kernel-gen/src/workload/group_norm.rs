//! The norm of groups of channels.

use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::row_wise::{self, Epsilon, RowFunction, RowWise};
use super::stage::{Axis, Combine, Stage, axis, input, planes, result};
use super::{Op, Role, Workload, WorkloadError, reference_rows};
use crate::ir::{BinOp, DType, Expr, UnOp};

/// The channels of each group of each image with mean 0 and variance 1:
///
/// ```text
/// y[n, c, p] = (x[n, c, p] - mean) / sqrt(variance + epsilon)
///     of all channels of the group of c and all pixels
/// ```
///
/// Input and output are `[n, c, pixels]`, pixels of several dimensions being one. As many groups as channels make it an instance norm.
/// The factor and the summand of each channel that networks have behind it are the epilogue's `scale`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupNorm {
    /// Images.
    pub n: i64,
    /// Channels.
    pub c: i64,
    /// Pixels.
    pub pixels: i64,
    /// Groups of channels, which divide them.
    pub groups: i64,
    /// What is added to a variance.
    pub epsilon: Epsilon,
}

/// `group_norm` in specs and keys.
pub(crate) static GROUP_NORM: Kind = Kind {
    name: "group_norm",
    pattern: "n{}c{}p{}-g{}-e{}",
    sizes: &[
        Size::new("n", "n (the batch)", SizeRole::Images),
        Size::new("c", "c (the channels)", SizeRole::Channels),
        Size::new("pixels", "the pixels", SizeRole::Extent),
        Size::new("groups", "groups", SizeRole::Groups),
        row_wise::DIGITS,
    ],
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| {
        vec![
            SpecKey::required("input", &[3], "[n, c, pixels]"),
            SpecKey::required("groups", &[], "32"),
            SpecKey::optional("epsilon_digits", &[]),
        ]
    },
    read: |_, values| {
        let [n, c, pixels] = values.shape("input");
        let groups = values.get("groups").expect("it must be there")[0];
        let digits = values.get("epsilon_digits").map_or(row_wise::USUAL_DIGITS, |digits| digits[0]);
        Ok(Op::GroupNorm(GroupNorm { n, c, pixels, groups, epsilon: Epsilon { digits } }))
    },
    of_sizes: |_, sizes| {
        let [n, c, pixels, groups, digits] = *sizes else { return None };
        Some(Op::GroupNorm(GroupNorm { n, c, pixels, groups, epsilon: Epsilon { digits } }))
    },
    guilty: |error| match error {
        WorkloadError::Sizes { .. } => "epsilon_digits",
        WorkloadError::GroupsDoNotDivide { .. } | WorkloadError::NotPositive { size: "groups", .. } => "groups",
        _ => "input",
    },
};

impl GroupNorm {
    /// What it is of a matrix with a row for each group.
    pub(super) fn rows(&self) -> RowWise {
        let function = RowFunction::LayerNorm(self.epsilon);
        RowWise { rows: self.n * self.groups, columns: self.c / self.groups * self.pixels, function }
    }

    /// A stage with one element a group.
    fn of_groups(&self, name: &'static str, dtype: DType, combine: Combine, value: Expr) -> Stage {
        let reduce = if combine == Combine::One { 0 } else { 2 };
        let loops = [("n", self.n), ("g", self.groups), ("k", self.c / self.groups), ("p", self.pixels)];
        let (shape, index) = (vec![self.n, self.groups], vec![axis(0).into(), axis(1).into()]);
        Stage { name, dtype, shape, loops: loops[..2 + reduce].to_vec(), reduce, combine, index, value }
    }
}

impl Operator for GroupNorm {
    fn kind(&self) -> &'static Kind {
        &GROUP_NORM
    }

    fn sizes(&self) -> Vec<i64> {
        vec![self.n, self.c, self.pixels, self.groups, self.epsilon.digits]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        if self.c % self.groups != 0 {
            return Err(WorkloadError::GroupsDoNotDivide { groups: self.groups, which: "input", channels: self.c });
        }
        self.epsilon.check()
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, vec![self.n, self.c, self.pixels])]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", planes([self.n, self.c, self.pixels]))
    }

    fn terms(&self) -> i64 {
        self.rows().columns
    }

    /// As many an element as of a layer norm.
    fn flops(&self) -> Option<i64> {
        self.rows().flops()
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let each = self.c / self.groups;
        let x = || Expr::load(input(0), vec![axis(0).into(), axis(1) * each + axis(2), axis(3).into()]);
        let of_group = |stage: usize| Expr::load(result(stage), vec![axis(0).into(), axis(1).into()]);
        let f = |value: f64| Expr::Float(value, sums.compute());
        let mean = |stage: usize| Expr::bin(BinOp::Div, of_group(stage), f(self.terms() as f64));
        let apart = || x() - of_group(1);
        let variance = mean(2) + f(self.epsilon.get());
        let factor = Expr::bin(BinOp::Div, f(1.0), Expr::un(UnOp::Sqrt, variance));
        let here = || vec![axis(0).into(), axis(1).into(), axis(2).into()];
        let of_channel =
            |stage: usize| Expr::load(result(stage), vec![axis(0).into(), Expr::from(axis(1)).floor_div(each)]);
        vec![
            self.of_groups("total", sums, Combine::Sum, x()),
            self.of_groups("mean", sums, Combine::One, mean(0)),
            self.of_groups("squares", sums, Combine::Sum, apart() * apart()),
            self.of_groups("inverse", sums, Combine::One, factor),
            Stage {
                name: "acc",
                dtype: sums,
                shape: vec![self.n, self.c, self.pixels],
                loops: vec![("n", self.n), ("c", self.c), ("p", self.pixels)],
                reduce: 0,
                combine: Combine::One,
                value: (Expr::load(input(0), here()) - of_channel(1)) * of_channel(3),
                index: here(),
            },
        ]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_rows::of_rows(&self.rows(), inputs[0])
    }
}
