//! Networks whose number of images is known when they run.
//!
//! The program is that of the most images. A value that *varies* has as many elements for each image, one image behind the other, so
//! that a run with fewer reads and writes the beginnings of all arrays. That this computes what the model computes with fewer images
//! follows from three things that are checked here: with other numbers of images the model becomes the same steps, each step's
//! workload is then the one of a [`Range`], and in a range no image depends on another.

use super::problem::{Fault, Problem};
use super::program::{Program, Source, Step, ValueId};
use super::tensor::Tensor;
use crate::workload::Range;
use std::collections::BTreeMap;

/// What of a network varies.
#[derive(Clone, PartialEq, Debug)]
pub struct Units {
    /// The fewest images, 1 at least.
    pub least: i64,
    /// The most, which the program has.
    pub most: i64,
    /// Whether each value varies.
    pub varies: Vec<bool>,
    /// The range of each step; none if nothing that it touches varies.
    pub ranges: Vec<Option<Range>>,
}

/// The programs of the most and of the fewest images, before any pass.
pub(super) struct Ends<'a> {
    pub(super) largest: &'a Program,
    pub(super) smallest: &'a Program,
}

impl Ends<'_> {
    /// Constants by name that are other numbers for the fewest images: those of one image are looked at nowhere else.
    fn wrong_numbers(&self, least: i64, most: i64) -> Vec<Problem> {
        let constant = |program: &Program, id: ValueId| match &program.values[id].source {
            Source::Constant(tensor) => Some(tensor.clone()),
            _ => None,
        };
        let small = &self.smallest.values;
        let named: BTreeMap<&str, ValueId> = (0..small.len()).map(|id| (small[id].name.as_str(), id)).collect();
        let wrong = |id: &ValueId| {
            let name = self.largest.values[*id].name.as_str();
            let (all, some) = (constant(self.largest, *id)?, constant(self.smallest, *named.get(name)?)?);
            (!name.is_empty() && !begins(&all, &some)).then(|| {
                let cause = format!("it is a constant whose elements are others for {most} images than for {least}");
                Problem::at(format!("`{name}`"), Fault::new(cause, INSTEAD))
            })
        };
        touched(self.largest).iter().filter_map(wrong).collect()
    }
}

/// Problems that a model has with a number of images which the spec does not name.
pub(super) fn of_number(number: i64, problems: Vec<Problem>) -> Vec<Problem> {
    let of = |problem: Problem| {
        let cause = format!("with {number} images {}", problem.cause);
        Problem { cause, help: INSTEAD.into(), ..problem }
    };
    problems.into_iter().map(of).collect()
}

/// What would do instead of a range.
pub(super) const INSTEAD: &str = "write a list of shapes in the place of the range: a network is made for each";

impl Units {
    /// What of a program varies, which is that of the most images. `others` are those of some other numbers, made in the same way.
    ///
    /// # Errors
    /// All that keeps the program from being one for any number of images.
    pub(super) fn of(
        (least, most): (i64, i64),
        program: &Program,
        others: &[(i64, Program)],
        ends: &Ends<'_>,
    ) -> Result<Units, Vec<Problem>> {
        for (number, other) in others {
            same_steps(program, other).map_err(|place| {
                let fault =
                    Fault::new(format!("it is computed in other steps for {number} images than for {most}"), INSTEAD);
                vec![Problem::at(place, fault)]
            })?;
        }
        let mut problems = vec![];
        let mut units = Units { least, most, varies: vec![false; program.values.len()], ranges: vec![] };
        for id in touched(program) {
            units.varies[id] = others.iter().any(|(_, other)| other.elements(id) != program.elements(id));
            let faults = others.iter().filter_map(|(number, other)| units.fault(id, program, *number, other));
            problems.extend(faults.take(1).map(|cause| Problem::at(place_of(program, id), Fault::new(cause, INSTEAD))));
        }
        for (i, step) in program.steps.iter().enumerate() {
            let range = range(least, most, step, others.iter().map(|(number, other)| (*number, &other.steps[i])));
            match range {
                Ok(range) => units.ranges.push(range),
                Err(cause) => {
                    let place = format!("node `{}` ({})", step.nodes.join(", "), step.workload.op_name());
                    problems.push(Problem::at(place, Fault::new(cause, INSTEAD)));
                }
            }
        }
        problems.extend(units.wrong_results(program, ends.smallest));
        problems.extend(ends.wrong_numbers(least, most));
        if problems.is_empty() { Ok(units) } else { Err(problems) }
    }

    /// Results that have not one row, or image, for each image.
    fn wrong_results(&self, program: &Program, smallest: &Program) -> Vec<Problem> {
        let wrong = |((name, id), (_, small)): (&(String, ValueId), &(String, ValueId))| {
            let (shape, small) = (&program.values[*id].shape, &smallest.values[*small].shape);
            let fits = match self.varies[*id] {
                true => {
                    shape.first() == Some(&self.most) && small.first() == Some(&self.least) && shape[1..] == small[1..]
                }
                false => shape == small,
            };
            let cause = format!("it is {shape:?} for {} images and {small:?} for {}", self.most, self.least);
            (!fits).then(|| Problem::at(format!("output `{name}`"), Fault::new(cause, INSTEAD)))
        };
        program.outputs.iter().zip(&smallest.outputs).filter_map(wrong).collect()
    }

    /// Elements of a value that each image has, if it varies.
    pub fn per_unit(&self, program: &Program, id: ValueId) -> Option<i64> {
        self.varies[id].then(|| program.elements(id) / self.most)
    }

    /// What is wrong with a value, beside what it is with `number` images.
    fn fault(&self, id: ValueId, program: &Program, number: i64, other: &Program) -> Option<String> {
        let (own, fewer) = (&program.values[id], &other.values[id]);
        let (all, some) = (program.elements(id), other.elements(id));
        let shapes = format!("it is {:?} for {} images and {:?} for {number}", own.shape, self.most, fewer.shape);
        if own.dtype != fewer.dtype || all != some && all * number != some * self.most {
            return Some(shapes);
        }
        match (&own.source, &fewer.source) {
            (Source::Constant(a), Source::Constant(b)) => (!begins(a, b)).then(|| {
                format!("it is a constant whose elements are others for {} images than for {number}", self.most)
            }),
            (Source::Part { of, at }, Source::Part { .. }) => {
                let held = |units: i64, id: ValueId| match self.varies[id] {
                    true => program.elements(id) / self.most * units,
                    false => program.elements(id),
                };
                (at + held(self.least, id) > held(self.least, *of)).then_some(shapes)
            }
            _ => None,
        }
    }
}

/// Whether both are the same steps but for sizes; else what the first is that differs.
fn same_steps(program: &Program, other: &Program) -> Result<(), String> {
    let whole = || "the network".to_string();
    let form = |step: &Step| (step.nodes.clone(), step.operands.clone(), step.output, step.slices);
    for (a, b) in program.steps.iter().zip(&other.steps) {
        if form(a) != form(b) {
            return Err(format!("node `{}`", a.nodes.join(", ")));
        }
    }
    let source = |program: &Program, id: ValueId| match program.values[id].source {
        Source::View(of) => (3, of, 0),
        Source::Part { of, at } => (4, of, at),
        Source::Input => (0, 0, 0),
        Source::Constant(_) => (1, 0, 0),
        Source::Step => (2, 0, 0),
    };
    if program.steps.len() != other.steps.len()
        || program.values.len() != other.values.len()
        || (&program.inputs, &program.outputs) != (&other.inputs, &other.outputs)
    {
        return Err(whole());
    }
    match touched(program).into_iter().find(|id| source(program, *id) != source(other, *id)) {
        Some(id) => Err(place_of(program, id)),
        None => Ok(()),
    }
}

/// The values that a run touches: roots before their views and parts.
pub(super) fn touched(program: &Program) -> Vec<ValueId> {
    let steps = program.steps.iter().flat_map(|step| step.operands.iter().chain([&step.output]));
    let ports = program.inputs.iter().chain(&program.outputs).map(|(_, id)| id);
    let mut all = vec![];
    for id in steps.chain(ports) {
        let mut id = *id;
        let mut chain = vec![id];
        while let Source::View(of) | Source::Part { of, .. } = program.values[id].source {
            id = of;
            chain.push(id);
        }
        all.extend(chain.into_iter().rev());
    }
    let mut seen = vec![false; program.values.len()];
    all.retain(|id| !std::mem::replace(&mut seen[*id], true));
    all
}

/// What a value is called in messages.
fn place_of(program: &Program, id: ValueId) -> String {
    match program.values[id].name.as_str() {
        "" => "a value without a name".into(),
        name => format!("`{name}`"),
    }
}

/// Whether one of two constants begins with the elements of the other.
fn begins(a: &Tensor, b: &Tensor) -> bool {
    if a.data.len() < b.data.len() { b.data.starts_with(&a.data) } else { a.data.starts_with(&b.data) }
}

/// The range of a step, beside what it is with other numbers of images.
fn range<'a>(
    least: i64,
    most: i64,
    step: &Step,
    others: impl Iterator<Item = (i64, &'a Step)>,
) -> Result<Option<Range>, String> {
    let mut found: Option<Range> = None;
    for (number, other) in others {
        if other.workload == step.workload {
            continue;
        }
        let range = Range::through(least, (most, &step.workload), (number, &other.workload))?;
        if found.get_or_insert(range.clone()) != &range {
            return Err("its sizes do not grow evenly".into());
        }
    }
    Ok(found)
}
