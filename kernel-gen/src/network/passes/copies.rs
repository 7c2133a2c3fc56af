//! Gives each result of the network a step that writes it: one that is an input, a constant or another result is copied.

use crate::ir::DType;
use crate::network::program::{Program, Said, Source, Step};
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
        let elements = [program.elements(id)];
        let workload = Workload::f32(Unary {
            input: Dims::new(&elements).expect("one dimension is not too many"),
            function: Function::Identity,
        });
        let output = program.add(&shape, DType::F32, Source::Step);
        let nodes = vec![format!("result {}", program.outputs[i].0)];
        let said = Said { flags: vec![], keys: vec![("input", format!("{elements:?}"))] };
        program.steps.push(Step { nodes, workload, said, slices: Slices::default(), operands: vec![id], output });
        program.outputs[i].1 = output;
        taken.push(output);
    }
}
