//! The local response normalisation of AlexNet and GoogLeNet.

use super::number::Number;
use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Combine, Padded, Stage, axis, input, planes, result};
use super::{Op, Role, Workload, WorkloadError, reference_rows};
use crate::ir::{BinOp, DType, Expr};

/// Each element by a power of the squares of the same pixel in neighbouring channels:
///
/// ```text
/// y[n, c, p] = x[n, c, p] / (bias + alpha / size * sum over k < size of x[n, c + k - (size - 1) / 2, p]^2)^beta
///     where x is 0 beyond its channels
/// ```
///
/// Input and output are `[n, c, pixels]`, pixels of several dimensions being one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lrn {
    /// Images.
    pub n: i64,
    /// Channels.
    pub c: i64,
    /// Pixels.
    pub pixels: i64,
    /// Channels that are summed up.
    pub size: i64,
    /// The factor of their mean square, not below 0.
    pub alpha: Number,
    /// The exponent.
    pub beta: Number,
    /// The summand, above 0.
    pub bias: Number,
}

/// `lrn` in specs and keys.
pub(crate) static LRN: Kind = Kind {
    name: "lrn",
    pattern: "n{}c{}p{}-k{}-a{f}-e{f}-b{f}",
    sizes: &[
        Size::new("n", "n (the batch)", SizeRole::Images),
        Size::new("c", "c (the channels)", SizeRole::Channels),
        Size::new("pixels", "the pixels", SizeRole::Extent),
        Size::new("size", "size", SizeRole::Taps),
        Size::new("alpha", "alpha", SizeRole::Number),
        Size::new("beta", "beta", SizeRole::Number),
        Size::new("bias", "bias", SizeRole::Number),
    ],
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| {
        let numbers = ["alpha", "beta", "bias"].map(|key| SpecKey::number(key, None));
        let sizes = [SpecKey::required("input", &[3], "[n, c, pixels]"), SpecKey::required("size", &[], "5")];
        [sizes.to_vec(), numbers.to_vec()].concat()
    },
    read: |_, values| {
        let [n, c, pixels] = values.shape("input");
        let size = values.get("size").expect("it must be there")[0];
        let number = |key, usual| values.number(key).unwrap_or(Number::of(usual));
        // As ONNX and PyTorch have them.
        let (alpha, beta, bias) = (number("alpha", 1e-4), number("beta", 0.75), number("bias", 1.0));
        Ok(Op::Lrn(Lrn { n, c, pixels, size, alpha, beta, bias }))
    },
    of_sizes: |_, sizes| {
        let [n, c, pixels, size, alpha, beta, bias] = *sizes else { return None };
        let [alpha, beta, bias] = [Number::of_size(alpha)?, Number::of_size(beta)?, Number::of_size(bias)?];
        Some(Op::Lrn(Lrn { n, c, pixels, size, alpha, beta, bias }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "size", .. } => "size",
        WorkloadError::Sizes { cause, .. } if cause.starts_with("alpha") => "alpha",
        WorkloadError::Sizes { cause, .. } if cause.starts_with("beta") => "beta",
        WorkloadError::Sizes { .. } => "bias",
        _ => "input",
    },
};

impl Lrn {
    /// Channels before an element's own that are summed up.
    pub(super) fn before(&self) -> i64 {
        (self.size - 1) / 2
    }
}

impl Operator for Lrn {
    fn kind(&self) -> &'static Kind {
        &LRN
    }

    fn sizes(&self) -> Vec<i64> {
        let sizes = vec![self.n, self.c, self.pixels, self.size];
        sizes.into_iter().chain([self.alpha, self.beta, self.bias].map(Number::to_size)).collect()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        let refuse = |name, number: Number, help| {
            let cause = format!("{name} is {number:?}");
            Err(WorkloadError::Sizes { cause, help })
        };
        match [self.alpha, self.beta, self.bias].map(Number::get) {
            [alpha, ..] if !alpha.is_finite() || alpha < 0.0 => refuse("alpha", self.alpha, "it must not be below 0"),
            [_, beta, _] if !beta.is_finite() => refuse("beta", self.beta, "it must be finite"),
            [.., bias] if !bias.is_finite() || bias <= 0.0 => refuse("bias", self.bias, "it must be above 0"),
            _ => Ok(()),
        }
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, vec![self.n, self.c, self.pixels])]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", planes([self.n, self.c, self.pixels]))
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![("the padded input", vec![self.n, self.c.saturating_add(self.size), self.pixels])]
    }

    fn terms(&self) -> i64 {
        self.size
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        let f = |value: f64| Expr::Float(value, sums.compute());
        let (before, after) = (self.before(), self.size - 1 - self.before());
        let padded = [
            Padded { name: "n_pad", extent: self.n, padding: [0; 2] },
            Padded { name: "c_pad", extent: self.c + before + after, padding: [before, after] },
            Padded { name: "p_pad", extent: self.pixels, padding: [0; 2] },
        ];
        let mut stages = vec![];
        if self.size > 1 {
            stages.push(Stage::pad(dtype, input(0), &padded, 0.0));
        }
        let x = if stages.is_empty() { input(0) } else { result(0) };
        let (here, loops) =
            (|| (0..3).map(|i| axis(i).into()).collect(), [("n", self.n), ("c", self.c), ("p", self.pixels)]);
        let term = || Expr::load(x, vec![axis(0).into(), axis(1) + axis(3), axis(2).into()]);
        let total = result(stages.len());
        let mean = Expr::load(total, here()) * f(self.alpha.get() / self.size as f64);
        let norm = (mean + f(self.bias.get())).pow(f(self.beta.get()));
        let stage = |name, reduce: usize, combine, value| Stage {
            name,
            dtype: sums,
            shape: vec![self.n, self.c, self.pixels],
            loops: loops.into_iter().chain([("k", self.size)]).take(3 + reduce).collect(),
            reduce,
            combine,
            index: here(),
            value,
        };
        stages.push(stage("total", 1, Combine::Sum, term() * term()));
        let value = Expr::bin(BinOp::Div, Expr::load(input(0), here()), norm);
        stages.push(stage("acc", 0, Combine::One, value));
        stages
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_rows::of_neighbours(self, inputs[0])
    }
}
