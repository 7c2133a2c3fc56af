//! Workloads: an operator at one shape, with its types, layout and epilogue.
//!
//! A [`Workload`] says *what* is computed and nothing about how. Its meaning is given twice, independently: as the
//! naive loop kernel ([`naive()`]) that schedules start from and the interpreter runs, and as a few lines of plain Rust
//! in `f64` ([`reference()`]) that the naive kernel itself is held against. [`bound`] says how far a correct
//! implementation in `f32` may be from the exact value.

pub mod arg;
pub mod attention;
pub mod avg_pool2d;
pub mod binary;
pub mod bound;
pub mod broadcast_matmul;
pub mod channel_softmax;
pub mod concat;
pub mod conv1d;
pub mod conv2d;
pub mod conv_nd;
mod definition;
pub mod depthwise_pointwise;
pub mod dims;
pub mod epilogue;
pub mod error;
pub mod gather;
pub mod group_norm;
mod key;
pub mod layout;
pub mod lrn;
mod math;
pub mod matmul;
pub mod max_pool2d;
pub mod movement;
pub mod naive;
mod number;
pub(crate) mod operands;
pub(crate) mod operator;
pub(crate) mod operators;
mod param;
#[cfg(feature = "tune")]
pub(crate) mod plain;
pub mod pool_nd;
pub(crate) mod pooled;
mod products;
pub(crate) mod quant;
mod range;
pub mod reduce;
pub mod reference;
mod reference_attention;
mod reference_elements;
mod reference_rows;
pub mod resize;
pub mod row_wise;
pub mod sample;
pub mod select;
mod slice;
pub mod special;
pub(crate) mod stage;
pub mod unary;
pub mod windows;

pub use arg::ArgExtreme;
pub use attention::Attention;
pub use avg_pool2d::AvgPool2d;
pub use binary::Binary;
pub use bound::{Mismatch, Reference, error_bound, reference_with_bounds};
pub use broadcast_matmul::BroadcastMatmul;
pub use channel_softmax::ChannelSoftmax;
pub use concat::Concat;
pub use conv_nd::ConvNd;
pub use conv1d::Conv1d;
pub use conv2d::Conv2d;
pub use definition::Workload;
pub use depthwise_pointwise::DepthwisePointwise;
pub use dims::Dims;
pub use epilogue::Epilogue;
pub use error::WorkloadError;
pub use gather::Gather;
pub use group_norm::GroupNorm;
pub use layout::ConvLayout;
pub use lrn::Lrn;
pub use math::Math;
pub use matmul::Matmul;
pub use max_pool2d::MaxPool2d;
pub use movement::Movement;
pub use naive::{naive, naive_with_sums};
pub use number::Number;
pub use operators::{Op, operator_names};
pub use param::{MAX_ELEMENTS, Param, Role};
pub use pool_nd::PoolNd;
pub use quant::{Quant, WeightZero};
pub use range::Range;
pub use reduce::Reduce;
pub use reference::reference;
pub use resize::Resize;
pub use row_wise::RowWise;
pub use select::Where;
pub use slice::{Slice, Slices};
pub use unary::Unary;
