//! Networks: a model file becomes steps, each a workload, with a plan of the memory between them.
//!
//! ```text
//! onnx -> translate -> passes -> memory, tasks
//! ```
//!
//! [`Network::load`] reads the file, `translate` makes steps of its nodes, the passes of `passes` change them, and [`Memory`] says
//! where their results lie. The distinct workloads are its [`Task`]s: a spec has them beside its own.

mod apart;
mod constants;
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

pub use apart::Apart;
pub use form::{Batch, Form, Wanted};
pub use memory::{Memory, Place, Slot};
use problem::Fault;
pub use problem::Problem;
pub use program::{Program, Said, Source, Step, Value, ValueId};
pub use tasks::Task;
pub use tensor::{Data, Tensor};
pub use translate::operators;
pub use units::Units;

use crate::diagnostic::Size;
use crate::workload::ConvLayout;
use apart::Images;
use model::Model;
use std::cell::LazyCell;
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
    /// Present if the number of images is known when it runs and they run together; the program is that of the most.
    pub units: Option<Units>,
    /// Present if images run one by one; the program is that of one.
    pub apart: Option<Apart>,
    /// Where the values lie.
    pub memory: Memory,
    /// The task of each step.
    pub step_tasks: Vec<usize>,
    /// What each pass left, in one line each.
    pub passes: Vec<String>,
}

impl Network {
    /// Reads a model's file and makes a network of it. `shapes` are those of inputs by name, where the file leaves them open, one
    /// map a plan; the first number of a shape may be a range, the same in all of a map. An input that `wanted` gives a value is
    /// none of the network's.
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
        model.fix(&wanted.constants)?;
        recognise(&mut model);
        let usual = Form::of(wanted.dtype.unwrap_or(model.dtype()));
        // Words of channels are what integers are multiplied in.
        let usual = if model.is_quantised() { Form { layout: ConvLayout::Nhwc, ..usual } } else { usual };
        let form = Form { layout: wanted.layout.unwrap_or(usual.layout), ..usual };
        let mut network = Network { plans: vec![], tasks: vec![], form, files: BTreeSet::new() };
        for inputs in shapes {
            network.add_model(name, &model, inputs, wanted.images)?;
        }
        Ok(Network { files: model.files, ..network })
    }

    /// Makes a network of steps: runs the passes, and plans memory and tasks.
    pub fn of(name: &str, mut program: Program, form: Form) -> Network {
        let mut network = Network { plans: vec![], tasks: vec![], form, files: BTreeSet::new() };
        let passes = passes::run(&mut program, form);
        network.add(name, program, passes, Runs::default());
        network
    }

    /// Adds the plan for inputs of these shapes.
    fn add_model(
        &mut self,
        name: &str,
        model: &Model,
        inputs: &BTreeMap<String, Vec<Size>>,
        batch: Batch,
    ) -> Result<(), Vec<Problem>> {
        let images = Images::of(inputs);
        let translated = |number: Option<i64>| match (images, number) {
            (Some(images), Some(number)) => translate::translate(model, &images.replaced(inputs, number)),
            _ => translate::translate(model, &most_of(inputs)),
        };
        let whole = translated(None)?;
        let mut program = whole.clone();
        let mut passes = passes::run(&mut program, self.form);
        // What varies behind the passes: a range wants it, and so may images one by one before.
        let behind = LazyCell::new(|| {
            let pass = |other: &mut Program| drop(passes::run(other, self.form));
            images.map(|images| vary(images, (&whole, &program), &translated, &pass)).transpose()
        });
        if batch != Batch::Together {
            let of_all = (&whole, &program, &passes[..]);
            match self.one_by_one(images, of_all, &translated, &|| LazyCell::force(&behind).clone(), batch) {
                Ok(Some((apart, passes, one))) => {
                    self.add(name, one, passes, Runs { units: None, apart: Some(apart) });
                    return Ok(());
                }
                Ok(None) => {}
                Err(reason) if batch == Batch::Apart => {
                    return Err(vec![Problem::of_file(
                        format!("its images cannot run one by one: {reason}"),
                        "leave `images` out: they run together",
                    )]);
                }
                Err(reason) => passes.push(format!("images stay together: {reason}")),
            }
        }
        let units = if images.is_some_and(Images::is_range) { LazyCell::force(&behind).clone()? } else { None };
        drop(behind);
        self.add(name, program, passes, Runs { units, apart: None });
        Ok(())
    }

    /// How images run one by one, what the passes left, and the program of one image: none if there is only one. `whole` is the program of
    /// all in front of the passes, `program` that behind them, and `behind` says what of it varies.
    ///
    /// # Errors
    /// Why they stay together.
    fn one_by_one(
        &self,
        images: Option<Images>,
        (whole, program, passes): (&Program, &Program, &[String]),
        translated: &dyn Fn(Option<i64>) -> Result<Program, Vec<Problem>>,
        behind: &dyn Fn() -> Result<Option<Units>, Vec<Problem>>,
        batch: Batch,
    ) -> Result<Option<(Apart, Vec<String>, Program)>, String> {
        let Some(images) = images else {
            let several = |(_, id): &(String, ValueId)| whole.values[*id].shape.first().is_some_and(|n| *n > 1);
            return match whole.inputs.iter().any(several) {
                true => Err("the spec gives its inputs no number of images, one for all of them".into()),
                false => Ok(None),
            };
        };
        // One image may have fewer steps than several, so the passes run on the program of one. What only they put in order, images
        // are taken out of behind them.
        let before = vary(images, (whole, whole), translated, &|_| ()).map_err(depend);
        let before = before.and_then(|units| Apart::of(images, &units, whole));
        let found =
            before.map(|(apart, mut one)| (apart, passes::run(&mut one, self.form), one)).or_else(|reason| {
                let units = behind().ok().flatten().ok_or(reason.clone())?;
                Apart::of(images, &units, program).map(|(apart, one)| (apart, passes.to_vec(), one)).map_err(|_| reason)
            })?;
        match apart::slower(&found.2).filter(|_| batch == Batch::Faster) {
            Some(reason) => Err(reason),
            None => Ok(Some(found)),
        }
    }

    /// Plans memory and tasks of a program that went through the passes.
    fn add(&mut self, name: &str, program: Program, passes: Vec<String>, Runs { units, apart }: Runs) {
        let memory = Memory::plan(&program);
        let times = apart.as_ref().map_or(1, |apart| apart.most);
        let step_tasks = tasks::extract(name, &program, (units.as_ref(), times), &mut self.tasks);
        self.plans.push(Plan { program, units, apart, memory, step_tasks, passes });
    }
}

/// How often a program runs, and for how many images.
#[derive(Default)]
struct Runs {
    units: Option<Units>,
    apart: Option<Apart>,
}

/// The shapes of inputs with the most images.
fn most_of(inputs: &BTreeMap<String, Vec<Size>>) -> BTreeMap<String, Vec<i64>> {
    inputs.iter().map(|(name, shape)| (name.clone(), shape.iter().map(|size| size.most).collect())).collect()
}

/// Why images depend on each other, of all that keeps a program from being one for any number of them.
fn depend(problems: Vec<Problem>) -> String {
    problems.first().map_or_else(String::new, |first| format!("{}: {}", first.place, first.cause))
}

/// Most numbers of images of a range where each is looked at.
const MOST_NUMBERS: i64 = 64;

/// What varies of a program of the most images, whose form before the passes is `whole`. `translated` makes the model's
/// with another number of them, and `passes` a program of that in this one's form. A model with branches, loops or sequences, of which
/// the number may decide, is looked at with each one, others with a few.
fn vary(
    Images { least, most }: Images,
    (whole, program): (&Program, &Program),
    translated: &dyn Fn(Option<i64>) -> Result<Program, Vec<Problem>>,
    passes: &dyn Fn(&mut Program),
) -> Result<Units, Vec<Problem>> {
    let of = |number: i64| translated(Some(number)).map_err(|all| units::of_number(number, all));
    let every = !whole.decisions.is_empty() && least < most;
    if every && most - least >= MOST_NUMBERS {
        let cause =
            format!("it has branches, loops or sequences, and a range of more than {MOST_NUMBERS} numbers of images");
        return Err(vec![Problem::of_file(cause, units::INSTEAD)]);
    }
    for number in (least..most).filter(|_| every) {
        let other = of(number)?.decisions;
        let differs = whole.decisions.iter().zip(&other).find(|(a, b)| a != b);
        if differs.is_some() || other.len() != whole.decisions.len() {
            let cause = format!("its branches, rounds or sequences are others for {number} images than for {most}");
            let place = differs.map_or_else(|| "the network".into(), |((node, _), _)| node.clone());
            return Err(vec![Problem::at(place, Fault::new(cause, units::INSTEAD))]);
        }
    }
    // Two at least: what one image is computed in may be fewer steps, and it is computed in these.
    let numbers = [most - 1, least.max(2)].into_iter().filter(|number| *number > 1 && *number != most);
    let numbers: BTreeSet<i64> = numbers.collect();
    let mut others = numbers
        .into_iter()
        .map(|number| Ok::<_, Vec<Problem>>((number, of(number)?)))
        .collect::<Result<Vec<_>, _>>()?;
    if others.is_empty() {
        others.push(match of(most + 1) {
            Ok(program) => (most + 1, program),
            Err(_) => (1, of(1)?),
        });
    }
    let known = others.iter().find(|(number, _)| *number == least).map(|(_, program)| program);
    let known = known.or((least == most).then_some(whole)).cloned();
    let smallest = known.map_or_else(|| of(least), Ok)?;
    others.iter_mut().for_each(|(_, program)| passes(program));
    Units::of((least, most), program, &others, &units::Ends { largest: whole, smallest: &smallest })
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
