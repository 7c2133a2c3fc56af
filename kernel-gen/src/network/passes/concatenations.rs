//! Lets steps write where a concatenation has their results, so that nothing is copied.

use crate::network::program::{Program, Step, ValueId};
use crate::workload::{Op, Slice, Slices};

/// Removes the concatenations whose operands are all results of steps that nothing else reads.
pub(super) fn slice(program: &mut Program) {
    let mut at = 0;
    while at < program.steps.len() {
        match parts(program, at) {
            Some(parts) => {
                let output = program.steps[at].output;
                for (step, into) in parts {
                    program.steps[step].slices.into = Some(into);
                    program.steps[step].output = output;
                }
                program.steps.remove(at);
            }
            None => at += 1,
        }
    }
}

/// The steps that write the operands of a concatenation, and where each would write.
fn parts(program: &Program, at: usize) -> Option<Vec<(usize, Slice)>> {
    let step = &program.steps[at];
    let Op::Concat(concat) = &step.workload.op else { return None };
    if !step.workload.epilogue.is_empty() || !step.slices.is_empty() {
        return None;
    }
    let (uses, writers) = (program.uses(), program.writers());
    let axis = usize::try_from(concat.axis).ok()?;
    let whole = &program.values[step.output].shape;
    let of = whole[axis];
    let mut start = 0;
    let mut found: Vec<(usize, Slice)> = vec![];
    for id in &step.operands {
        let root: ValueId = program.root(*id);
        let writer = writers[root].filter(|_| uses[root] == 1)?;
        let (width, before) = (program.values[*id].shape[axis], start);
        start += width;
        let into = Slice { of, at: before };
        // Only in the shape that the writer gives it is the slice one of the writer's own axis.
        let own = program.values[*id].shape == program.steps[writer].workload.output_shape();
        let fits = own && fits(&program.steps[writer], into, whole) && found.iter().all(|(other, _)| *other != writer);
        found.push(fits.then_some((writer, into))?);
    }
    Some(found)
}

/// Whether a step can write a slice of a tensor of that shape.
fn fits(step: &Step, into: Slice, whole: &[i64]) -> bool {
    let slices = Slices { into: Some(into), ..step.slices };
    let written = slices.params(&step.workload).pop().is_some_and(|output| output.shape == whole);
    step.slices.into.is_none() && written && slices.check(&step.workload).is_ok()
}
