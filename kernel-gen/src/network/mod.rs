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
mod units;
mod wire;

pub use form::{Form, Wanted};
pub use memory::{Memory, Place, Slot};
pub use problem::Problem;
pub use program::{Program, Said, Source, Step, Value, ValueId};
pub use tasks::Task;
pub use tensor::{Data, Tensor};
pub use translate::operators;
pub use units::Units;

use crate::diagnostic::Size;
use crate::workload::ConvLayout;
use model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A network that can be generated.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    /// What it runs: one plan for each list of its inputs' shapes.
    pub plans: Vec<Plan>,
    /// The distinct workloads of all plans.
    pub tasks: Vec<Task>,
    /// How it stores numbers and images.
    pub form: Form,
    /// The files that it was read from.
    pub files: BTreeSet<PathBuf>,
}

/// How a network runs for inputs of some shapes.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Its steps, and the values between them.
    pub program: Program,
    /// Present if the number of images is known when it runs; the program is that of the most.
    pub units: Option<Units>,
    /// Where the values lie.
    pub memory: Memory,
    /// The task of each step.
    pub step_tasks: Vec<usize>,
    /// What each pass left, in one line each.
    pub passes: Vec<String>,
}

impl Network {
    /// Reads a model's file and makes a network of it. `shapes` are those of inputs by name, where the file leaves them open, one
    /// map a plan; the first number of a shape may be a range, the same in all of a map.
    ///
    /// # Errors
    /// All that keeps the model from being compiled.
    pub fn load(
        name: &str,
        model: &Path,
        shapes: &[BTreeMap<String, Vec<Size>>],
        wanted: Wanted,
    ) -> Result<Network, Vec<Problem>> {
        let mut model = onnx::read(model)?;
        recognise(&mut model);
        let usual = Form::of(wanted.dtype.unwrap_or(model.dtype()));
        // Words of channels are what integers are multiplied in.
        let usual = if model.is_quantised() { Form { layout: ConvLayout::Nhwc, ..usual } } else { usual };
        let form = Form { layout: wanted.layout.unwrap_or(usual.layout), ..usual };
        let mut network = Network { plans: vec![], tasks: vec![], form, files: BTreeSet::new() };
        for inputs in shapes {
            network.add_model(name, &model, inputs)?;
        }
        Ok(Network { files: model.files, ..network })
    }

    /// Makes a network of steps: runs the passes, and plans memory and tasks.
    pub fn of(name: &str, mut program: Program, form: Form) -> Network {
        let mut network = Network { plans: vec![], tasks: vec![], form, files: BTreeSet::new() };
        let passes = passes::run(&mut program, form);
        network.add(name, program, passes, None);
        network
    }

    /// Adds the plan for inputs of these shapes.
    fn add_model(
        &mut self,
        name: &str,
        model: &Model,
        inputs: &BTreeMap<String, Vec<Size>>,
    ) -> Result<(), Vec<Problem>> {
        let translated = |units: Option<i64>| {
            let number = |size: &Size| units.filter(|_| size.is_range()).unwrap_or(size.most);
            let shapes = inputs.iter().map(|(name, shape)| (name.clone(), shape.iter().map(number).collect()));
            translate::translate(model, &shapes.collect())
        };
        let whole = translated(None)?;
        let mut program = whole.clone();
        let passes = passes::run(&mut program, self.form);
        let units = match inputs.values().flatten().find(|size| size.is_range()) {
            None => None,
            Some(Size { least, most }) => {
                let of = |number: i64| translated(Some(number)).map_err(|all| units::of_number(number, all));
                // Two at least: what one image is computed in may be fewer steps, and it is computed in these.
                let numbers = BTreeSet::from([most - 1, *least.max(&2)]);
                let numbers = numbers.into_iter().filter(|number| *number > 1 && number != most);
                let mut others = numbers
                    .map(|number| Ok::<_, Vec<Problem>>((number, of(number)?)))
                    .collect::<Result<Vec<_>, _>>()?;
                if others.is_empty() {
                    others.push(match of(most + 1) {
                        Ok(program) => (most + 1, program),
                        Err(_) => (1, of(1)?),
                    });
                }
                let known = others.iter().find(|(number, _)| number == least).map(|(_, program)| program.clone());
                let smallest = known.map_or_else(|| of(*least), Ok)?;
                others.iter_mut().for_each(|(_, program)| drop(passes::run(program, self.form)));
                let ends = units::Ends { largest: &whole, smallest: &smallest };
                Some(Units::of((*least, *most), &program, &others, &ends)?)
            }
        };
        self.add(name, program, passes, units);
        Ok(())
    }

    /// Plans memory and tasks of a program that went through the passes.
    fn add(&mut self, name: &str, program: Program, passes: Vec<String>, units: Option<Units>) {
        let memory = Memory::plan(&program);
        let step_tasks = tasks::extract(name, &program, units.as_ref(), &mut self.tasks);
        self.plans.push(Plan { program, units, memory, step_tasks, passes });
    }
}

/// Puts one node where a model says one operator by several.
fn recognise(model: &mut Model) {
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
