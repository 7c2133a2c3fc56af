//! What is done to the steps of a network, in this order.

mod concatenations;
mod copies;
mod dead;
mod epilogues;
mod patterns;

use super::program::Program;

/// A pass: its name, and what makes it.
type Pass = (&'static str, fn(&mut Program));

/// All passes, in order.
const PASSES: &[Pass] = &[
    ("activations from their parts", patterns::recognise),
    ("results of their own", copies::separate),
    ("dead steps", dead::remove),
    ("epilogues", epilogues::fuse),
    ("concatenations without copies", concatenations::slice),
];

/// Runs all passes; gives what each left, in one line.
pub(super) fn run(program: &mut Program) -> Vec<String> {
    let mut lines = vec![format!("nodes as workloads: {} steps", program.steps.len())];
    for (name, pass) in PASSES {
        let before = program.clone();
        pass(program);
        if *program != before {
            lines.push(format!("{name}: {} steps", program.steps.len()));
        }
    }
    lines
}
