//! What a network's numbers and images look like in memory.

use crate::diagnostic::Array;
use crate::ir::DType;
use crate::workload::ConvLayout;
use std::collections::BTreeMap;

/// How a network's numbers and images are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// The type of the numbers: `f32`, `f16` or `bf16`.
    pub dtype: DType,
    /// The order of the dimensions of images between steps: `NCHW` or `NHWC`. Inputs and results have the model's.
    pub layout: ConvLayout,
}

impl Form {
    /// The form with this type of numbers that suits most networks: tensor cores multiply `f16` and `bf16`, and want the channels
    /// last.
    pub fn of(dtype: DType) -> Form {
        Form { dtype, layout: if dtype == DType::F32 { ConvLayout::Nchw } else { ConvLayout::Nhwc } }
    }
}

/// What is asked of a network's form.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wanted {
    /// The type of the numbers; the model's if nobody says.
    pub dtype: Option<DType>,
    /// The order of the dimensions of images; [`Form::of`] the type if nobody says.
    pub layout: Option<ConvLayout>,
    /// How several images run.
    pub images: Batch,
    /// The values of inputs that are always the same, by name.
    pub constants: BTreeMap<String, Array>,
}

/// How several images run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Batch {
    /// Each launch computes all of them.
    #[default]
    Together,
    /// One by one, if they do not depend on each other and CPUs are faster so.
    Faster,
    /// One by one; a model of which they depend on each other is refused.
    Apart,
}
