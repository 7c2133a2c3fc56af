//! What the module of a network is made of.

use crate::ir::DType;

/// A network.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkModule {
    /// The module's name.
    pub name: String,
    /// The model's file, for documentation.
    pub model: String,
    /// What is launched, one plan for each list of the inputs' shapes. All have ports of the same names and types.
    pub plans: Vec<PlanItem>,
    /// Memory between steps: types and numbers of elements.
    pub slots: Vec<(DType, i64)>,
    /// The same of plans whose images run one by one, for each that runs at the same time.
    pub lane: Vec<(DType, i64)>,
    /// Constants that steps read as they are, one array for each type.
    pub constants: Vec<Section>,
    /// Constants that are packed: the workload's module, and where each is.
    pub weights: Vec<(String, Section)>,
    /// The file of constants, and the folder that it lies in below the build script's `OUT_DIR`.
    pub file: String,
    /// The folder of that file.
    pub folder: String,
    /// Bytes of that file.
    pub bytes: u64,
    /// What the file must be marked with.
    pub mark: u64,
}

/// The launches for inputs of some shapes.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanItem {
    /// What the caller gives: names and shapes.
    pub inputs: Vec<Port>,
    /// The results.
    pub outputs: Vec<Port>,
    /// The least and the most images, if their number is known when it runs; shapes are those of the most.
    pub units: Option<(i64, i64)>,
    /// The most images, if the launches are those of one, and run for each.
    pub apart: Option<i64>,
    /// The launches in order.
    pub steps: Vec<StepItem>,
}

impl Port {
    /// How many elements a launch sees: those of one image, if images run one by one.
    pub(super) fn elements(&self) -> i64 {
        self.shape[usize::from(self.apart)..].iter().product()
    }
}

impl PlanItem {
    /// Inputs, then results.
    pub(super) fn ports(&self) -> impl Iterator<Item = &Port> {
        self.inputs.iter().chain(&self.outputs)
    }
}

/// An input or a result.
#[derive(Clone, PartialEq, Debug)]
pub struct Port {
    /// What the model calls it.
    pub name: String,
    /// Its extents.
    pub shape: Vec<i64>,
    /// Whether the first of them is the number of images, which is known when it runs.
    pub varies: bool,
    /// Whether it has a part for each image that runs by itself.
    pub apart: bool,
    /// The type of its elements.
    pub dtype: DType,
}

/// A part of the file of constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// The type of its elements.
    pub dtype: DType,
    /// Its first byte.
    pub offset: u64,
    /// How many elements it has.
    pub elements: i64,
}

/// A launch.
#[derive(Clone, PartialEq, Debug)]
pub struct StepItem {
    /// The nodes that it computes, for documentation.
    pub nodes: Vec<String>,
    /// What it computes, for documentation.
    pub key: String,
    /// The workload's module.
    pub module: String,
    /// The arguments.
    pub args: Vec<ArgItem>,
}

/// An argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArgItem {
    /// Where it is.
    pub from: ArgPlace,
    /// The first element there that the kernel takes.
    pub at: i64,
    /// How many elements the kernel takes, of each image if it varies.
    pub elements: i64,
    /// Whether it has as many as there are images.
    pub varies: bool,
    /// Whether it is written.
    pub written: bool,
}

/// Where an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgPlace {
    /// The caller's input of this number.
    Input(usize),
    /// The caller's result of this number.
    Output(usize),
    /// The slot of this number.
    Slot(usize),
    /// The array of constants of this number, from this element on.
    Constant(usize, i64),
    /// The packed constant of this number.
    Packed(usize),
}
