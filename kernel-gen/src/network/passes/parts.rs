//! Slices whose elements lie side by side are parts of the tensor that they are taken of, and nothing is copied.

use super::permutations::{ALIGNED, contiguous};
use crate::network::program::{Program, Source, Step};

/// Removes the steps that only take such slices.
pub(super) fn take(program: &mut Program) {
    let results: Vec<_> = program.outputs.iter().map(|(_, id)| program.root(*id)).collect();
    let mut at = 0;
    while at < program.steps.len() {
        let step = &program.steps[at];
        // What lies in a larger tensor already must be copied there, and a launch does not write to what it reads.
        let whole = program.root(step.operands[0]);
        let reads = |other: &&Step| other.operands.iter().any(|id| program.root(*id) == step.output);
        let is_alone = matches!(program.values[step.output].source, Source::Step)
            && !results.contains(&step.output)
            && !program.steps.iter().filter(reads).any(|other| program.root(other.output) == whole);
        match contiguous(step) {
            Some((start, _)) if start % ALIGNED == 0 && is_alone => {
                let (output, of) = (step.output, step.operands[0]);
                program.values[output].source = Source::Part { of, at: start };
                program.steps.remove(at);
            }
            _ => at += 1,
        }
    }
}
