//! Operators of ONNX as workloads.
//!
//! One walk over the nodes does what other compilers do in three passes, since each needs the others: the shapes that a node
//! takes are known from those before, the operands that are constant are computed here and now, and what is left becomes a
//! workload whose output has the shape that comes next.

mod attention;
mod builder;
mod by_numbers;
mod bytes;
mod composed;
mod contraction;
mod control_flow;
mod einsum;
mod element;
mod few_bits;
mod integers;
mod movement;
mod nodes;
mod operands;
mod quantised;
mod recurrent;
mod resize;
mod row;
mod sequences;
mod shape;
mod window;

pub(super) use by_numbers::NAMES as BY_NUMBERS;
pub use nodes::operators;

use super::model::{Extent, Model};
use super::problem::{Fault, Problem};
use super::program::{Program, Source};
use super::tensor::is_shape;
use crate::ir::DType;
use builder::Builder;
use nodes::walk;
use operands::Bound;
use std::collections::{BTreeMap, BTreeSet};

/// Makes steps of a model. `extents` are the shapes that the spec gives inputs, by name.
///
/// # Errors
/// All nodes that cannot be compiled. What only follows from these is not among them.
pub(super) fn translate(model: &Model, extents: &BTreeMap<String, Vec<i64>>) -> Result<Program, Vec<Problem>> {
    let mut b = Builder::new(model.opset);
    let mut problems = vec![];
    for (name, shape) in input_shapes(model, extents, &mut problems) {
        if !is_shape(&shape) || shape.contains(&0) {
            let fault = Fault::new(format!("its shape is {shape:?}"), "give it extents from 1 on, and fewer elements");
            problems.push(Problem::at(format!("input `{name}`"), fault));
            continue;
        }
        let found = model.inputs.iter().find(|input| input.name == name);
        let dtype = found.map(|input| input.dtype).filter(|dtype| dtype.is_int()).unwrap_or(DType::F32);
        let id = b.program.add(&shape, dtype, Source::Input);
        b.truths.extend(found.filter(|input| input.truth).map(|_| id));
        b.program.inputs.push((name.clone(), id));
        b.names.insert(name, Bound::Tensor(id));
    }
    for (name, tensor) in &model.constants {
        let id = b.add_constant(tensor.clone());
        b.names.insert(name.clone(), Bound::Tensor(id));
    }
    // Inputs without a shape and values of nodes that failed: what takes them says nothing of its own.
    let inputs = model.inputs.iter().map(|input| input.name.clone());
    let mut lost: BTreeSet<String> = inputs.filter(|name| !b.names.contains_key(name)).collect();
    problems.extend(walk(&mut b, &model.nodes, &mut lost));
    for name in &model.outputs {
        match b.names.get(name) {
            Some(Bound::Sequence(_)) => {
                let fault = Fault::new("it is a sequence of tensors", "give each of them as an output");
                problems.push(Problem::at(format!("output `{name}`"), fault));
            }
            Some(Bound::Tensor(id))
                if b.program.values[*id].dtype == DType::I64
                    && b.program.outputs.iter().any(|(_, other)| b.program.root(*other) == b.program.root(*id)) =>
            {
                let fault = Fault::new("its indices are another output, too", "leave one of them out");
                problems.push(Problem::at(format!("output `{name}`"), fault));
            }
            Some(Bound::Tensor(id)) if b.constant(*id).is_some_and(|constant| constant.is_integer()) => {
                let fault = Fault::new("it is the same integers whatever the inputs are", "leave it out");
                problems.push(Problem::at(format!("output `{name}`"), fault));
            }
            Some(Bound::Tensor(id)) => b.program.outputs.push((name.clone(), *id)),
            None if lost.contains(name) || !problems.is_empty() => {}
            None => problems.push(Problem::at(
                format!("output `{name}`"),
                Fault::new("no node gives it", "export the model again"),
            )),
        }
    }
    if problems.is_empty() { Ok(b.program) } else { Err(problems) }
}

/// The shapes of all inputs.
fn input_shapes(
    model: &Model,
    extents: &BTreeMap<String, Vec<i64>>,
    problems: &mut Vec<Problem>,
) -> Vec<(String, Vec<i64>)> {
    let mut found = vec![];
    for input in &model.inputs {
        let place = format!("input `{}`", input.name);
        let mut wrong = |cause: String, help: String| problems.push(Problem::at(&place, Fault::new(cause, help)));
        let example = |shape: &[Extent]| {
            let extents = shape.iter().map(|e| match e {
                Extent::Known(n) => n.to_string(),
                Extent::Named(_) => "1".into(),
            });
            format!("write inputs = {{ \"{}\" = [{}] }}", input.name, extents.collect::<Vec<_>>().join(", "))
        };
        match (&input.shape, extents.get(&input.name)) {
            (None, None) => wrong("its shape is not in the file".into(), example(&[])),
            (Some(shape), None) => {
                let known = shape.iter().map(|e| if let Extent::Known(n) = e { Some(*n) } else { None });
                match known.collect::<Option<Vec<i64>>>() {
                    Some(shape) => found.push((input.name.clone(), shape)),
                    None => {
                        let named = |e: &Extent| match e {
                            Extent::Named(name) if !name.is_empty() => Some(format!("`{name}`")),
                            Extent::Named(_) => Some("an extent without a name".into()),
                            Extent::Known(_) => None,
                        };
                        let names: Vec<String> = shape.iter().filter_map(named).collect();
                        wrong(format!("{} is not known", names.join(", ")), example(shape));
                    }
                }
            }
            (None, Some(given)) => found.push((input.name.clone(), given.clone())),
            (Some(shape), Some(given)) => {
                let fits = |(e, n): (&Extent, &i64)| !matches!(e, Extent::Known(known) if known != n);
                if shape.len() == given.len() && shape.iter().zip(given).all(fits) {
                    found.push((input.name.clone(), given.clone()));
                } else {
                    wrong(format!("the spec says {given:?}, which the model does not take"), example(shape));
                }
            }
        }
    }
    for name in extents.keys().filter(|name| !model.inputs.iter().any(|input| input.name == **name)) {
        problems.push(model.no_input(name));
    }
    found
}
