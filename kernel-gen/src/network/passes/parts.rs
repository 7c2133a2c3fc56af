//! Slices whose elements lie side by side are parts of the tensor that they are taken of, and nothing is copied.

use super::permutations::{ALIGNED, contiguous};
use crate::network::program::{Program, Source};

/// Removes the steps that only take such slices.
pub(super) fn take(program: &mut Program) {
    let results: Vec<_> = program.outputs.iter().map(|(_, id)| program.root(*id)).collect();
    let mut at = 0;
    while at < program.steps.len() {
        let step = &program.steps[at];
        // What lies in a larger tensor already must be copied there.
        let is_alone = matches!(program.values[step.output].source, Source::Step) && !results.contains(&step.output);
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
