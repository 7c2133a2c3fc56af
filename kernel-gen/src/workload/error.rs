//! Why a workload is refused.

use super::param::MAX_ELEMENTS;
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
    /// A size that must be at least 0 is not.
    Negative {
        /// Which size.
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
    /// Sizes of an operator that do not go together.
    Sizes {
        /// What is wrong.
        cause: String,
        /// What to write instead.
        help: &'static str,
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
    /// A blocked layout whose block does not divide the batch.
    BlockDoesNotDivideBatch {
        /// Images in a block.
        block: i64,
        /// Number of images.
        batch: i64,
    },
    /// Groups in a layout that has none.
    LayoutWithGroups {
        /// The layout.
        layout: String,
        /// Number of groups.
        groups: i64,
    },
    /// A pair of a depthwise and a pointwise convolution in a layout that has none.
    PairLayout {
        /// The layout.
        layout: String,
    },
    /// The first convolution of a pair is not depthwise with one output channel per input channel.
    PairNotDepthwise {
        /// Number of groups.
        groups: i64,
        /// Input channels.
        ci: i64,
        /// Output channels of the first convolution.
        co: i64,
    },
    /// A step between the two convolutions of a pair that is neither a bias nor an activation.
    PairStep {
        /// Its name.
        step: &'static str,
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
        /// Whether it should be one of indices.
        indices: bool,
    },
    /// Numbers of eight bits where they do not fit.
    Quantised {
        /// What is wrong.
        cause: String,
        /// What to write instead.
        help: &'static str,
    },
    /// An epilogue of an output that holds indices.
    IndexEpilogue,
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
        /// Why.
        reason: &'static str,
        /// What to write instead.
        help: &'static str,
    },
}

impl WorkloadError {
    /// What is wrong.
    pub fn cause(&self) -> String {
        use WorkloadError::*;
        match self {
            NotPositive { size, value } | Negative { size, value } => format!("{size} is {value}"),
            NegativePadding { side, value } => format!("the {side} padding is {value}"),
            KernelTooLarge { axis, kernel, padded } => format!(
                "the kernel's {axis} with its dilation is {kernel} but the padded input's is only {padded}, so there \
                 is no output"
            ),
            Sizes { cause, .. } | Quantised { cause, .. } => cause.clone(),
            GroupsDoNotDivide { groups, which, channels } => {
                format!("{groups} groups do not divide the {channels} {which} channels")
            }
            BlockDoesNotDivide { block, which, channels } => {
                format!("blocks of {block} do not divide the {channels} {which} channels")
            }
            BlockDoesNotDivideBatch { block, batch } => format!("blocks of {block} do not divide the batch of {batch}"),
            LayoutWithGroups { layout, groups } => format!("the layout {layout} has no groups, but there are {groups}"),
            PairLayout { layout } => format!("the layout is {layout}"),
            PairNotDepthwise { groups, ci, co } => {
                format!("the first convolution has {groups} groups, {ci} input and {co} output channels")
            }
            PairStep { step } => format!("there is `{step}` between the two convolutions"),
            TooLarge { what } => format!("{what} is too large"),
            IndexEpilogue => "the output holds indices, and there is an epilogue".into(),
            UnsupportedType { which, dtype, .. } => format!("the {which} type {dtype} is not supported"),
            Tf32NeedsF32 { dtype } => format!("math tf32 rounds f32 inputs, but the inputs are {dtype}"),
            EpilogueRepeated { step } => format!("the epilogue has `{step}` more than once"),
            EpilogueOrder { step, after, reason, .. } => format!("the epilogue has `{step}` after `{after}`: {reason}"),
        }
    }

    /// What to do instead.
    pub fn help(&self) -> String {
        use WorkloadError::*;
        match self {
            NotPositive { .. } => "it must be at least 1".into(),
            Negative { .. } => "it must be at least 0".into(),
            NegativePadding { .. } => "it must be at least 0; to crop the input, pass a slice of it".into(),
            KernelTooLarge { .. } => "use a smaller kernel or dilation, or more padding".into(),
            Sizes { help, .. } | Quantised { help, .. } => (*help).into(),
            GroupsDoNotDivide { .. } => "the groups must divide both channel counts".into(),
            BlockDoesNotDivide { block, .. } => {
                format!("use the layout NCHW, or make the channels a multiple of {block}")
            }
            BlockDoesNotDivideBatch { block, .. } => {
                format!("pad the batch to a multiple of {block}, or use the layout NHWC")
            }
            LayoutWithGroups { .. } => "use the layout NCHW or NHWC".into(),
            PairLayout { .. } => "a depthwise_pointwise takes NCHW".into(),
            PairNotDepthwise { ci, .. } => {
                format!("a depthwise convolution of {ci} channels has {ci} groups and {ci} output channels")
            }
            PairStep { .. } => "only a bias and one activation fit there: put it into weights and bias".into(),
            TooLarge { .. } => {
                format!("a tensor has at most {MAX_ELEMENTS} elements, a call at most 2^61 multiplications")
            }
            IndexEpilogue => "leave the epilogue out".into(),
            UnsupportedType { indices: true, .. } => "use i64 or i32: the output holds indices".into(),
            UnsupportedType { .. } => "use f32, f16 or bf16".into(),
            Tf32NeedsF32 { .. } => "use math fp32: inputs of fewer bits accumulate in f32 anyway".into(),
            EpilogueRepeated { .. } => "leave one out: its operand is passed once".into(),
            EpilogueOrder { help, .. } => (*help).into(),
        }
    }
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause(), self.help())
    }
}

impl std::error::Error for WorkloadError {}
