//! The list of operators. What a line here has is known everywhere.
//!
//! An operator's file gives and takes this list's [`Op`], which is of all operators: that circle is what a list is.

use super::avg_pool2d::{self, AvgPool2d};
use super::conv1d::{self, Conv1d};
use super::conv2d::{self, Conv2d};
use super::depthwise_pointwise::{self, DepthwisePointwise};
use super::layout::ConvLayout;
use super::matmul::{self, Matmul};
use super::max_pool2d::{self, MaxPool2d};
use super::operator::{Kind, Operator, Size, SizeRole};
use super::row_wise::{self, RowWise};
use crate::stable::Rng;

/// Makes the enum of all operators of their structs, and the list of all kinds.
macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident { $($kind:expr),* },)*) => {
        /// The operator and its shape.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Op {
            $($(#[$doc])* $name($name),)*
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        })*

        impl Op {
            /// What is asked of all operators.
            pub(crate) fn get(&self) -> &dyn Operator {
                match self {
                    $(Op::$name(op) => op,)*
                }
            }
        }

        /// All kinds of operators, in the order of their documentation.
        pub(crate) static KINDS: &[&Kind] = &[$($(&$kind),*),*];
    };
}

impl Op {
    /// The same with one of its sizes changed, if a key may hold that.
    #[cfg(feature = "cli")]
    pub(crate) fn with_size(&self, role: SizeRole, change: impl FnOnce(i64) -> i64) -> Option<Op> {
        let (op, kind) = (self.get(), self.get().kind());
        let mut sizes = op.sizes();
        let at = kind.sizes.iter().position(|size| size.role == role)?;
        sizes[at] = change(sizes[at]);
        (kind.of_sizes)(op.layout().unwrap_or(ConvLayout::Nchw), &sizes)
    }
}

/// The kind of that name.
pub(crate) fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}

operators! {
    /// A two-dimensional convolution.
    Conv2d { conv2d::CONV2D, conv2d::DEPTHWISE_CONV2D },
    /// A matrix product or a batch of them.
    Matmul { matmul::MATMUL, matmul::BATCH_MATMUL },
    /// A depthwise convolution and the pointwise convolution of its result.
    DepthwisePointwise { depthwise_pointwise::DEPTHWISE_POINTWISE },
    /// A one-dimensional convolution.
    Conv1d { conv1d::CONV1D },
    /// The maximum of each window.
    MaxPool2d { max_pool2d::MAX_POOL2D },
    /// The average of each window.
    AvgPool2d { avg_pool2d::AVG_POOL2D },
    /// A norm or a softmax of each row.
    RowWise { row_wise::SOFTMAX, row_wise::LAYER_NORM, row_wise::RMS_NORM },
}

/// The names of all operators, as specs and keys write them.
pub fn operator_names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// Random sizes of a kind, by their roles; they may be invalid together. `extent` draws pixels and channels.
pub(super) fn draw(kind: &Kind, rng: &mut Rng, extent: fn(&mut Rng) -> i64) -> Option<Op> {
    let draw = |size: &Size| match size.role {
        SizeRole::Images if rng.one_in(2) => 1,
        SizeRole::Images => rng.between(2, 5),
        SizeRole::Channels | SizeRole::Extent => extent(rng),
        SizeRole::Taps if rng.one_in(3) => 3,
        SizeRole::Taps => rng.between(1, 7),
        SizeRole::Stride => rng.between(1, 3),
        SizeRole::Padding => rng.between(0, 3),
        SizeRole::Dilation | SizeRole::Groups if rng.one_in(3) => rng.between(1, 3),
        SizeRole::Dilation | SizeRole::Groups => 1,
        SizeRole::Choice => rng.between(0, 1),
        SizeRole::Digits => rng.between(1, 12),
    };
    let mut sizes: Vec<i64> = kind.sizes.iter().map(draw).collect();
    if let Some(at) = kind.sizes.iter().position(|size| size.role == SizeRole::Groups) {
        let groups = sizes[at];
        let channels = kind.sizes.iter().zip(&mut sizes).filter(|(size, _)| size.role == SizeRole::Channels);
        channels.for_each(|(_, value)| *value *= groups);
    }
    let layout = if kind.layouts.is_empty() { ConvLayout::Nchw } else { *rng.pick(kind.layouts) };
    (kind.of_sizes)(layout, &sizes)
}
