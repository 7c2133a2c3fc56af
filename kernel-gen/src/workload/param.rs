//! The parameters of a workload's kernel: tensors, and what they are to the operator.

use crate::ir::{Access, DType};

/// No tensor of a workload has more elements than this, so that index arithmetic and byte counts cannot overflow.
pub const MAX_ELEMENTS: i64 = 1 << 36;

/// What a parameter is to the operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// The activations of a convolution, the left matrix of a product.
    Input,
    /// What chooses: an element that is 0, or one that is not.
    Mask,
    /// What names elements of the input: integers.
    Index,
    /// The weights of a convolution, the right matrix of a product: what is packed once.
    Weight,
    /// The weights of the depthwise convolution of a pair, which are used as they are.
    DepthwiseWeight,
    /// One summand a channel.
    Bias,
    /// One factor a channel.
    Scale,
    /// The summand that goes with the factor.
    Shift,
    /// A tensor like the output that is added to it or multiplies it.
    Residual,
    /// One number for each image and channel.
    Gate,
    /// What makes a number of an integer or the other way round: a factor, or the scale of the output.
    Multiplier,
    /// The integer that stands for 0.
    ZeroPoint,
    /// The result.
    Output,
}

/// A parameter of a workload's kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name in the naive kernel and in generated code.
    pub name: &'static str,
    /// Element type in memory.
    pub dtype: DType,
    /// Shape as stored, row-major.
    pub shape: Vec<i64>,
    /// Read or written.
    pub access: Access,
    /// What it is.
    pub role: Role,
}

impl Param {
    /// Number of elements.
    pub fn elements(&self) -> i64 {
        product(&self.shape)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> i64 {
        self.elements().saturating_mul(self.dtype.bytes() as i64)
    }
}

/// The product of extents, at most `i64::MAX`.
pub(super) fn product(extents: &[i64]) -> i64 {
    extents.iter().fold(1, |p: i64, n| p.saturating_mul(*n))
}
