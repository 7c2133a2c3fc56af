//! What is done to the steps of a network, in this order.

mod attention;
mod concatenations;
mod copies;
mod dead;
mod epilogues;
mod layouts;
mod parts;
mod patterns;
mod permutations;
mod storage;

use super::Form;
use super::program::Program;
use crate::ir::DType;
use crate::workload::ConvLayout;

/// A pass: its name, and what makes it.
type Pass = (&'static str, fn(&mut Program, Form));

/// All passes, in order.
const PASSES: &[Pass] = &[
    ("activations from their parts", |program, _| patterns::recognise(program)),
    ("attention from its parts", |program, _| attention::recognise(program)),
    ("dead steps", |program, _| dead::remove(program)),
    ("channels last", |program, form| {
        if form.layout == ConvLayout::Nhwc {
            layouts::channels_last(program);
        }
    }),
    ("permutations joined", |program, _| {
        permutations::join(program);
        dead::remove(program);
    }),
    ("epilogues", |program, _| epilogues::fuse(program)),
    ("results of their own", |program, _| copies::separate(program)),
    ("concatenations without copies", |program, _| concatenations::remove(program)),
    ("slices without copies", |program, _| parts::take(program)),
    ("numbers as f16 or bf16", |program, form| {
        if form.dtype != DType::F32 {
            storage::store(program, form.dtype);
        }
    }),
];

/// Runs all passes; gives what each left, in one line.
pub(super) fn run(program: &mut Program, form: Form) -> Vec<String> {
    let mut lines = vec![format!("nodes as workloads: {} steps", program.steps.len())];
    for (name, pass) in PASSES {
        let before = program.clone();
        pass(program, form);
        if *program != before {
            lines.push(format!("{name}: {} steps", program.steps.len()));
        }
    }
    lines
}
