//! Gives each result of the network a step that writes it: one that is an input, a constant or another result is copied.

use super::permutations;
use crate::ir::DType;
use crate::network::program::{Program, Said, Source, Step, ValueId};
use crate::workload::unary::Function;
use crate::workload::{Dims, Slices, Unary, Workload};

/// Adds the copies.
pub(super) fn separate(program: &mut Program) {
    let mut taken = vec![];
    for i in 0..program.outputs.len() {
        let id = program.outputs[i].1;
        let root = program.root(id);
        let is_step = matches!(program.values[root].source, Source::Step);
        if is_step && !taken.contains(&root) {
            taken.push(root);
            continue;
        }
        let shape = program.values[id].shape.clone();
        let output = program.add(&shape, copied(program.values[id].dtype), Source::Step);
        let copy = step(program, format!("result {}", program.outputs[i].0), id, output);
        program.steps.push(copy);
        program.outputs[i].1 = output;
        taken.push(output);
    }
}

/// The type of a copy: integers are what they are, but constants of 64 bits, all else is numbers.
fn copied(dtype: DType) -> DType {
    if dtype.is_byte() || dtype == DType::I32 { dtype } else { DType::F32 }
}

/// A step that copies a value as elements of the type that the copy has.
pub(super) fn step(program: &Program, node: String, of: ValueId, output: ValueId) -> Step {
    let (elements, dtype) = ([program.elements(of)], program.values[output].dtype);
    // The identity of integers takes zero points away; what moves elements does not.
    if dtype.is_int() {
        return permutations::step(vec![node], &elements, &[0], (of, dtype), output);
    }
    let input = Dims::new(&elements).expect("one dimension is not too many");
    Step {
        nodes: vec![node],
        workload: Workload::f32(Unary { input, function: Function::Identity }),
        said: Said { flags: vec![], keys: vec![("input", format!("{elements:?}"))] },
        slices: Slices::default(),
        operands: vec![of],
        output,
    }
}
