//! Removes steps whose results nobody reads.

use crate::network::program::Program;

/// Removes them, and what only they read.
pub(super) fn remove(program: &mut Program) {
    loop {
        let uses = program.uses();
        let before = program.steps.len();
        program.steps.retain(|step| uses[step.output] > 0);
        if program.steps.len() == before {
            return;
        }
    }
}
