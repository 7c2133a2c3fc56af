//! The softmax of the channels of each pixel.

use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::row_wise::{RowFunction, RowWise};
use super::stage::{Axis, Combine, Stage, axis, input, planes, result};
use super::{Op, Role, Workload, WorkloadError, reference_rows};
use crate::ir::{BinOp, DType, Expr, UnOp};

/// The softmax along a dimension that is not the last one, or its logarithm:
///
/// ```text
/// y[n, c, p] = exp(x[n, c, p] - largest) / sum over k of exp(x[n, k, p] - largest)
///     where largest is the largest x[n, k, p]
/// ```
///
/// Input and output are `[n, c, pixels]`: the dimensions before are one, and so are those behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelSoftmax {
    /// Images.
    pub n: i64,
    /// Channels.
    pub c: i64,
    /// Pixels.
    pub pixels: i64,
    /// Whether it is the logarithm.
    pub log: bool,
}

/// A kind of softmax.
macro_rules! kind {
    ($name:literal, $log:literal) => {
        Kind {
            name: $name,
            pattern: "n{}c{}p{}",
            sizes: &[
                Size::new("n", "n (the batch)", SizeRole::Images),
                Size::new("c", "c (the channels)", SizeRole::Channels),
                Size::new("pixels", "the pixels", SizeRole::Extent),
            ],
            layouts: &[],
            flags: &[],
            between: &[],
            outputs: FLOATS,
            keys: |_| vec![SpecKey::required("input", &[3], "[n, c, pixels]")],
            read: |_, values| {
                let [n, c, pixels] = values.shape("input");
                Ok(Op::ChannelSoftmax(ChannelSoftmax { n, c, pixels, log: $log }))
            },
            of_sizes: |_, sizes| {
                let [n, c, pixels] = *sizes else { return None };
                Some(Op::ChannelSoftmax(ChannelSoftmax { n, c, pixels, log: $log }))
            },
            guilty: |_| "input",
        }
    };
}

/// `channel_softmax` in specs and keys.
pub(crate) static CHANNEL_SOFTMAX: Kind = kind!("channel_softmax", false);

/// `channel_log_softmax`.
pub(crate) static CHANNEL_LOG_SOFTMAX: Kind = kind!("channel_log_softmax", true);

impl ChannelSoftmax {
    /// What it is of a matrix with a row for each pixel.
    pub(super) fn rows(&self) -> RowWise {
        let function = if self.log { RowFunction::LogSoftmax } else { RowFunction::Softmax };
        RowWise { rows: self.n.saturating_mul(self.pixels), columns: self.c, function }
    }

    /// A stage with one element a pixel.
    fn of_pixels(&self, name: &'static str, dtype: DType, combine: Combine, value: Expr) -> Stage {
        let reduce = usize::from(combine != Combine::One);
        let loops = [("n", self.n), ("p", self.pixels), ("k", self.c)];
        let (shape, index) = (vec![self.n, self.pixels], vec![axis(0).into(), axis(1).into()]);
        Stage { name, dtype, shape, loops: loops[..2 + reduce].to_vec(), reduce, combine, index, value }
    }
}

impl Operator for ChannelSoftmax {
    fn kind(&self) -> &'static Kind {
        if self.log { &CHANNEL_LOG_SOFTMAX } else { &CHANNEL_SOFTMAX }
    }

    fn sizes(&self) -> Vec<i64> {
        vec![self.n, self.c, self.pixels]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, vec![self.n, self.c, self.pixels])]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", planes([self.n, self.c, self.pixels]))
    }

    fn terms(&self) -> i64 {
        self.c
    }

    /// As many an element as of the softmax of a row.
    fn flops(&self) -> Option<i64> {
        self.rows().flops()
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let x = |n: usize, c: usize, p: usize| Expr::load(input(0), [n, c, p].map(|i| axis(i).into()).to_vec());
        let of_pixel = |stage: usize, p: usize| Expr::load(result(stage), vec![axis(0).into(), axis(p).into()]);
        let term = |x: Expr, p: usize| Expr::un(UnOp::Exp, x - of_pixel(0, p));
        let mut stages = vec![
            self.of_pixels("largest", sums, Combine::Max, x(0, 2, 1)),
            self.of_pixels("total", sums, Combine::Sum, term(x(0, 2, 1), 1)),
        ];
        let here = || x(0, 1, 2);
        let value = if self.log {
            stages.push(self.of_pixels("log", sums, Combine::One, Expr::un(UnOp::Log, of_pixel(1, 1))));
            here() - of_pixel(0, 2) - of_pixel(2, 2)
        } else {
            Expr::bin(BinOp::Div, term(here(), 2), of_pixel(1, 2))
        };
        stages.push(Stage {
            name: "acc",
            dtype: sums,
            shape: vec![self.n, self.c, self.pixels],
            loops: vec![("n", self.n), ("c", self.c), ("p", self.pixels)],
            reduce: 0,
            combine: Combine::One,
            index: (0..3).map(|i| axis(i).into()).collect(),
            value,
        });
        stages
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_rows::of_channels(self, inputs[0])
    }
}
