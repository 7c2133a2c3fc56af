//! Why a workload is refused.

use super::MAX_ELEMENTS;
use std::fmt;

/// What is wrong with a workload. The text says what was found and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkloadError {
    /// A size that must be at least 1 is not.
    NotPositive {
        /// Which size: `n`, `ci`, `kh`, ...
        size: &'static str,
        /// Its value.
        value: i64,
    },
    /// A padding is negative.
    NegativePadding {
        /// Which side.
        side: &'static str,
        /// Its value.
        value: i64,
    },
    /// The dilated kernel does not fit into the padded input, so there is no output.
    KernelTooLarge {
        /// `height` or `width`.
        axis: &'static str,
        /// Extent of the kernel with its dilation.
        kernel: i64,
        /// Extent of the input with its padding.
        padded: i64,
    },
    /// The groups do not divide the channels.
    GroupsDoNotDivide {
        /// Number of groups.
        groups: i64,
        /// `input` or `output`.
        which: &'static str,
        /// Number of channels.
        channels: i64,
    },
    /// A blocked layout whose block does not divide the channels.
    BlockDoesNotDivide {
        /// Channels in a block.
        block: i64,
        /// `input` or `output`.
        which: &'static str,
        /// Number of channels.
        channels: i64,
    },
    /// A tensor, the padded input included, or the amount of arithmetic is beyond what makes sense.
    TooLarge {
        /// What is too large.
        what: &'static str,
    },
    /// An element type that operators do not take.
    UnsupportedType {
        /// `input` or `output`.
        which: &'static str,
        /// Its name.
        dtype: &'static str,
    },
    /// `tf32` with something other than `f32` inputs.
    Tf32NeedsF32 {
        /// The input type.
        dtype: &'static str,
    },
    /// An epilogue step appears more often than once.
    EpilogueRepeated {
        /// Its name.
        step: &'static str,
    },
    /// An epilogue step that makes no sense after another.
    EpilogueOrder {
        /// The step that is out of place.
        step: &'static str,
        /// The step before it that rules it out.
        after: &'static str,
        /// Why, and what to write instead.
        reason: &'static str,
    },
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use WorkloadError::*;
        match self {
            NotPositive { size, value } => write!(f, "{size} is {value}; it must be at least 1"),
            NegativePadding { side, value } => {
                write!(f, "the {side} padding is {value}; a padding must be at least 0 (slice the input to crop it)")
            }
            KernelTooLarge { axis, kernel, padded } => write!(
                f,
                "the kernel's {axis} with its dilation is {kernel} but the padded input's is only {padded}, so there is \
                 no output; use a smaller kernel or dilation, or more padding"
            ),
            GroupsDoNotDivide { groups, which, channels } => write!(
                f,
                "{groups} groups do not divide the {channels} {which} channels; groups must divide both channel counts"
            ),
            BlockDoesNotDivide { block, which, channels } => write!(
                f,
                "blocks of {block} do not divide the {channels} {which} channels; use the layout NCHW, or pad the \
                 channels to a multiple of {block}"
            ),
            TooLarge { what } => {
                write!(
                    f,
                    "{what} is too large: the limit is {MAX_ELEMENTS} elements a tensor and 2^62 operations a call"
                )
            }
            UnsupportedType { which, dtype } => {
                write!(f, "the {which} type {dtype} is not supported; use f32, f16 or bf16")
            }
            Tf32NeedsF32 { dtype } => write!(
                f,
                "math tf32 rounds f32 inputs, but the inputs are {dtype}; use math fp32 (16-bit inputs accumulate in f32)"
            ),
            EpilogueRepeated { step } => {
                write!(f, "the epilogue has `{step}` more than once; its operand can be passed only once")
            }
            EpilogueOrder { step, after, reason } => write!(f, "the epilogue has `{step}` after `{after}`: {reason}"),
        }
    }
}

impl std::error::Error for WorkloadError {}
