//! What elements are taken apart into, and which of the parts are multiplied.

use crate::ir::DType;

/// Terms of the reduction in one step: 128 bytes of `f32`, the widest swizzle.
pub(super) const DEPTH: i64 = 32;

/// The parts of each element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parts {
    /// The element rounded to tf32.
    Tf32,
    /// That, and what it leaves over.
    TwoTf32,
    /// Three numbers in bf16, whose sum is the element.
    ThreeBf16,
}

impl Parts {
    /// How many there are.
    pub(super) fn count(self) -> i64 {
        match self {
            Parts::Tf32 => 1,
            Parts::TwoTf32 => 2,
            Parts::ThreeBf16 => 3,
        }
    }

    /// Their type; tensor cores take `f32` as tf32.
    pub(super) fn dtype(self) -> DType {
        match self {
            Parts::Tf32 | Parts::TwoTf32 => DType::F32,
            Parts::ThreeBf16 => DType::Bf16,
        }
    }

    /// Bytes of one of them.
    pub(super) fn bytes(self) -> i64 {
        self.dtype().bytes() as i64
    }

    /// Registers in which a thread holds all parts of 64 rows of a step.
    pub(super) fn registers(self) -> i64 {
        self.count() * DEPTH * self.bytes() / 8
    }

    /// The parts of the left and the right operand that are multiplied, the smallest product first. The others are below
    /// what `f32` sums of these keep.
    pub(super) fn products(self) -> &'static [[i64; 2]] {
        match self {
            Parts::Tf32 => &[[0, 0]],
            Parts::TwoTf32 => &[[1, 0], [0, 1], [0, 0]],
            Parts::ThreeBf16 => &[[2, 0], [1, 1], [0, 2], [1, 0], [0, 1], [0, 0]],
        }
    }

    /// The time of the products in tensor cores, as so many of tf32: they take twice as much of bf16.
    pub(super) fn products_of_tf32(self) -> f64 {
        (self.products().len() as i64 * self.bytes()) as f64 / 4.0
    }

    /// Terms that a sum has at least. What is left out must be less than what the class allows for one term, which in `fp32`
    /// is eight roundings of `f32`, or 2^-21 of it.
    /// * Two parts in tf32 may take all of that: what is cut off the second ones and their product, up to 2^-22 each.
    /// * Three parts in bf16 are the whole element. The first leaves over at most 2^-8 of it, the second 2^-17, so
    ///   `x1 w2 + x2 w1` is at most 2^-24 of a product and `x2 w2` 2^-34: one rounding (of random elements 2^-27, as the root
    ///   of the mean square). That and the cut-off last bits of tensor cores fit into a sum of one term.
    pub(super) fn shortest_sum(self) -> i64 {
        match self {
            Parts::Tf32 | Parts::ThreeBf16 => 1,
            Parts::TwoTf32 => SHORTEST_SUM,
        }
    }
}

/// Terms that a sum in two parts, of tf32 or of `f16`, has at least: what a product leaves out is up to eight roundings of
/// `f32`, which is all that the class allows for one term.
pub(super) const SHORTEST_SUM: i64 = 4;
