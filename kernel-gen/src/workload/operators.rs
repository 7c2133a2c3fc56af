//! The list of operators. What a line here has is known everywhere.
//!
//! An operator's file gives and takes this list's [`Op`], which is of all operators: that circle is what a list is.

use super::arg::{self, ArgExtreme};
use super::attention::{self, Attention};
use super::avg_pool2d::{self, AvgPool2d};
use super::binary::{self, Binary};
use super::broadcast_matmul::{self, BroadcastMatmul};
use super::channel_softmax::{self, ChannelSoftmax};
use super::concat::{self, Concat};
use super::conv_nd::{self, ConvNd};
use super::conv1d::{self, Conv1d};
use super::conv2d::{self, Conv2d};
use super::depthwise_pointwise::{self, DepthwisePointwise};
use super::dims::ABSENT;
use super::gather::{self, Gather};
use super::grid_sample::{self, GridSample};
use super::group_norm::{self, GroupNorm};
use super::layout::ConvLayout;
use super::lookup::{self, Lookup};
use super::lrn::{self, Lrn};
use super::matmul::{self, Matmul};
use super::matmul_nbits::{self, MatmulNbits};
use super::max_pool2d::{self, MaxPool2d};
use super::movement::{self, Movement};
use super::number::Number;
use super::operator::{INDICES, Kind, OfBytes, Operator, SizeRole};
use super::pool_nd::{self, PoolNd};
use super::recurrent::{self, Recurrent};
use super::reduce::{self, Reduce};
use super::resize::{self, Resize};
use super::row_wise::{self, RowWise};
use super::scaled_matmul::{self, ScaledMatmul};
use super::select::{self, Where};
use super::top_k::{self, TopK};
use super::unary::{self, Unary};
use crate::ir::DType;
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
    /// The type of the output where nobody says, if that of the inputs is this one.
    pub(crate) fn output_type(&self, dtype: DType) -> DType {
        let outputs = self.get().kind().outputs;
        match self.get().of_bytes() {
            OfBytes::Sums if dtype.is_byte() => return DType::I32,
            OfBytes::Moves | OfBytes::Bytes if dtype.is_byte() => return dtype,
            _ if outputs == INDICES => return outputs[0],
            _ if dtype == DType::I32 => return dtype,
            _ => {}
        }
        if outputs.contains(&dtype) { dtype } else { outputs[0] }
    }

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
    /// Matrix products of batches that differ in shape.
    BroadcastMatmul { broadcast_matmul::BROADCAST_MATMUL },
    /// A matrix product with scales of blocks.
    ScaledMatmul { scaled_matmul::SCALED_MATMUL },
    /// A matrix product with weights of few bits.
    MatmulNbits { matmul_nbits::MATMUL_NBITS },
    /// Attention of several heads.
    Attention { attention::ATTENTION },
    /// A depthwise convolution and the pointwise convolution of its result.
    DepthwisePointwise { depthwise_pointwise::DEPTHWISE_POINTWISE },
    /// A one-dimensional convolution.
    Conv1d { conv1d::CONV1D },
    /// A convolution over three dimensions, or a transposed one.
    ConvNd { conv_nd::CONV3D, conv_nd::CONV_TRANSPOSE1D, conv_nd::CONV_TRANSPOSE2D, conv_nd::CONV_TRANSPOSE3D },
    /// The maximum of each window.
    MaxPool2d { max_pool2d::MAX_POOL2D },
    /// The average of each window.
    AvgPool2d { avg_pool2d::AVG_POOL2D },
    /// Pooling over one dimension and over three.
    PoolNd { pool_nd::MAX_POOL1D, pool_nd::MAX_POOL3D, pool_nd::AVG_POOL1D, pool_nd::AVG_POOL3D },
    /// A step of time of a recurrent layer.
    Recurrent { recurrent::LSTM_CELL, recurrent::LSTM_OUTPUT, recurrent::GRU_CELL },
    /// A norm or a softmax of each row.
    RowWise { row_wise::SOFTMAX, row_wise::LOG_SOFTMAX, row_wise::LAYER_NORM, row_wise::RMS_NORM },
    /// The softmax of the channels of each pixel.
    ChannelSoftmax { channel_softmax::CHANNEL_SOFTMAX, channel_softmax::CHANNEL_LOG_SOFTMAX },
    /// The norm of groups of channels.
    GroupNorm { group_norm::GROUP_NORM },
    /// The norm of neighbouring channels.
    Lrn { lrn::LRN },
    /// A movement of elements.
    Movement {
        movement::PERMUTE, movement::SLICE, movement::TILE, movement::PAD, movement::PAD_CONSTANT, movement::PAD_EDGE, movement::PAD_REFLECT, movement::DEPTH_TO_SPACE,
        movement::PIXEL_SHUFFLE, movement::SPACE_TO_DEPTH, movement::PIXEL_UNSHUFFLE, movement::CHANNEL_SHUFFLE
    },
    /// Tensors side by side.
    Concat { concat::CONCAT },
    /// Elements that indices name.
    Gather { gather::GATHER },
    /// A function of integers of eight bits, as a table.
    Lookup { lookup::LOOKUP },
    /// Images of another size.
    Resize { resize::RESIZE_NEAREST, resize::RESIZE_BILINEAR, resize::RESIZE_BICUBIC },
    /// Images read at given places.
    GridSample { grid_sample::GRID_SAMPLE_BILINEAR, grid_sample::GRID_SAMPLE_NEAREST },
    /// Elements combined over dimensions.
    Reduce {
        reduce::REDUCE_SUM, reduce::REDUCE_MEAN, reduce::REDUCE_PROD, reduce::REDUCE_MAX, reduce::REDUCE_MIN, reduce::REDUCE_L1, reduce::REDUCE_L2,
        reduce::REDUCE_SUM_SQUARE, reduce::REDUCE_LOG_SUM, reduce::REDUCE_LOG_SUM_EXP
    },
    /// Where the extreme elements along a dimension are.
    ArgExtreme { arg::ARG_MAX, arg::ARG_MIN },
    /// Where the first of all elements along a dimension are.
    TopK { top_k::TOP_K },
    /// A function of two tensors, element by element.
    Binary {
        binary::ADD, binary::SUBTRACT, binary::MULTIPLY, binary::DIVIDE, binary::MINIMUM, binary::MAXIMUM, binary::PRELU,
        binary::POW, binary::FMOD, binary::MOD, binary::EQUAL, binary::LESS, binary::LESS_OR_EQUAL, binary::GREATER, binary::GREATER_OR_EQUAL,
        binary::LOGICAL_AND, binary::LOGICAL_OR, binary::LOGICAL_XOR
    },
    /// Elements of two tensors, chosen by a mask.
    Where { select::WHERE },
    /// A function of each element.
    Unary {
        unary::IDENTITY, unary::ABS, unary::NEGATE, unary::SIGN, unary::FLOOR, unary::CEIL, unary::ROUND, unary::RECIPROCAL,
        unary::SQRT, unary::EXP, unary::LOG, unary::SIN, unary::COS, unary::ERF, unary::SOFTPLUS, unary::SOFTSIGN, unary::MISH,
        unary::TAN, unary::ASIN, unary::ACOS, unary::ATAN, unary::SINH, unary::COSH, unary::ASINH, unary::ACOSH, unary::ATANH,
        unary::LOGICAL_NOT, unary::IS_NAN, unary::IS_INF
    },
}

/// The names of all operators, as specs and keys write them.
pub fn operator_names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// The numbers of random operators.
const NUMBERS: [f32; 6] = [0.0, 0.001, 0.75, 2.0, -1.5, f32::NEG_INFINITY];

/// Random sizes of a kind, by their roles; they may be invalid together. `extent` draws pixels and channels.
pub(super) fn draw(kind: &Kind, rng: &mut Rng, extent: fn(&mut Rng) -> i64) -> Option<Op> {
    // Lists have one length, and each number its place.
    let rank = rng.between(1, 4) as usize;
    let mut order: Vec<i64> = (0..rank as i64).collect();
    (1..rank).for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
    let (mut sizes, mut first): (Vec<i64>, Option<usize>) = (vec![], None);
    // The last of the words that the pattern's end has.
    let alternatives = kind.pattern.rsplit('{').next().map_or(1, |end| end.matches('|').count().max(1)) as i64;
    for (i, size) in kind.sizes.iter().enumerate() {
        let place = i - kind.sizes.iter().position(|other| other.name == size.name).unwrap_or(i);
        if size.role == SizeRole::Dimension {
            first.get_or_insert(i - place);
        }
        let value = match size.role {
            SizeRole::Images if rng.one_in(2) => 1,
            SizeRole::Images => rng.between(2, 5),
            SizeRole::Channels | SizeRole::Extent => extent(rng),
            SizeRole::Taps if rng.one_in(3) => 3,
            SizeRole::Taps => rng.between(1, 7),
            SizeRole::Stride => rng.between(1, 3),
            SizeRole::Padding => rng.between(0, 3),
            SizeRole::Dilation | SizeRole::Groups if rng.one_in(3) => rng.between(1, 3),
            SizeRole::Dilation | SizeRole::Groups => 1,
            SizeRole::Choice if i + 1 == kind.sizes.len() => rng.between(0, alternatives),
            SizeRole::Choice => rng.between(0, 1),
            SizeRole::Digits => rng.between(1, 12),
            SizeRole::Number => rng.pick(&NUMBERS.map(Number::of)).to_size(),
            SizeRole::Dimension
            | SizeRole::Broadcast
            | SizeRole::Factor
            | SizeRole::Order
            | SizeRole::Offset
            | SizeRole::Step
            | SizeRole::Repeats
            | SizeRole::Mark
                if place >= rank =>
            {
                ABSENT
            }
            SizeRole::Dimension => extent(rng),
            // As many rows as the other factor has columns, and any number of columns.
            SizeRole::Factor if place + 1 == rank => extent(rng),
            SizeRole::Factor if place + 2 == rank => sizes[first.unwrap_or(i) + place + 1],
            SizeRole::Broadcast | SizeRole::Factor => match sizes[first.unwrap_or(i) + place] {
                1 => extent(rng),
                _ if rng.one_in(3) => 1,
                same => same,
            },
            SizeRole::Order => order[place],
            SizeRole::Offset => rng.between(0, 2),
            SizeRole::Step if rng.one_in(4) => -rng.between(1, 2),
            SizeRole::Step => rng.between(1, 2),
            SizeRole::Repeats => rng.between(1, 3),
            SizeRole::Mark => rng.between(0, 1),
        };
        sizes.push(value);
    }
    if let Some(at) = kind.sizes.iter().position(|size| size.role == SizeRole::Groups) {
        let groups = sizes[at];
        for (i, (size, value)) in kind.sizes.iter().zip(&mut sizes).enumerate() {
            match size.role {
                SizeRole::Channels => *value *= groups,
                // Channels, height and width are cut by blocks, channels by both sides of one.
                SizeRole::Dimension if *value != ABSENT => *value *= [1, groups * groups, groups, groups, 1, 1][i],
                _ => {}
            }
        }
    }
    // What goes backwards begins so far behind that all of its elements exist.
    let list = |name| kind.sizes.iter().position(|size| size.name == name);
    if let (Some(start), Some(size), Some(step)) = (list("start"), list("size"), list("step")) {
        for i in 0..rank {
            sizes[start + i] -= (sizes[size + i] - 1) * sizes[step + i].min(0);
        }
    }
    let layout = if kind.layouts.is_empty() { ConvLayout::Nchw } else { *rng.pick(kind.layouts) };
    (kind.of_sizes)(layout, &sizes)
}
