//! Networks: a model file becomes steps, each a workload, with a plan of the memory between them.
//!
//! ```text
//! onnx -> translate -> passes -> memory, tasks
//! ```
//!
//! [`Network::load`] reads the file, `translate` makes steps of its nodes, the passes of `passes` change them, and [`Memory`] says
//! where their results lie. The distinct workloads are its [`Task`]s: a spec has them beside its own.

mod few_bits;
mod form;
mod memory;
mod model;
mod onnx;
mod passes;
mod problem;
mod program;
mod qdq;
mod tasks;
mod tensor;
mod translate;
mod wire;

pub use form::{Form, Wanted};
pub use memory::{Memory, Place, Slot};
pub use problem::Problem;
pub use program::{Program, Said, Source, Step, Value, ValueId};
pub use tasks::Task;
pub use tensor::{Data, Tensor};
pub use translate::operators;

use crate::workload::ConvLayout;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A network that can be generated.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    /// Its steps, and the values between them.
    pub program: Program,
    /// Where the values lie.
    pub memory: Memory,
    /// Its distinct workloads.
    pub tasks: Vec<Task>,
    /// The task of each step.
    pub step_tasks: Vec<usize>,
    /// What each pass left, in one line each.
    pub passes: Vec<String>,
    /// How it stores numbers and images.
    pub form: Form,
    /// The files that it was read from.
    pub files: BTreeSet<PathBuf>,
}

impl Network {
    /// Reads a model's file and makes a network of it. `inputs` are the shapes of inputs by name, where the file leaves them
    /// open.
    ///
    /// # Errors
    /// All that keeps the model from being compiled.
    pub fn load(
        name: &str,
        model: &Path,
        inputs: &BTreeMap<String, Vec<i64>>,
        wanted: Wanted,
    ) -> Result<Network, Vec<Problem>> {
        let mut model = onnx::read(model)?;
        recognise(&mut model);
        let usual = Form::of(wanted.dtype.unwrap_or(model.dtype()));
        // Words of channels are what integers are multiplied in.
        let usual = if model.is_quantised() { Form { layout: ConvLayout::Nhwc, ..usual } } else { usual };
        let form = Form { layout: wanted.layout.unwrap_or(usual.layout), ..usual };
        let network = Network::of(name, translate::translate(&model, inputs)?, form);
        Ok(Network { files: model.files, ..network })
    }

    /// Makes a network of steps: runs the passes, and plans memory and tasks.
    pub fn of(name: &str, mut program: Program, form: Form) -> Network {
        let passes = passes::run(&mut program, form);
        let memory = Memory::plan(&program);
        let (tasks, step_tasks) = tasks::extract(name, &program);
        Network { program, memory, tasks, step_tasks, passes, form, files: BTreeSet::new() }
    }
}

/// Puts one node where a model says one operator by several.
fn recognise(model: &mut model::Model) {
    qdq::join(model);
    few_bits::join(model);
}

/// The steps of a model that a file's bytes hold, as its nodes are, before any pass. External data lies in `folder`.
///
/// # Errors
/// All that keeps the model from being compiled.
pub fn parse(bytes: &[u8], folder: &Path, inputs: &BTreeMap<String, Vec<i64>>) -> Result<Program, Vec<Problem>> {
    let mut model = onnx::parse(bytes, folder)?;
    recognise(&mut model);
    translate::translate(&model, inputs)
}
