//! Lets steps write where a concatenation has their results, so that nothing is copied.
//!
//! Where one tensor follows the other as a whole, each is a part of their concatenation's memory, and so is a concatenation of some
//! of them: the blocks of a DenseNet grow in one tensor. Where rows of both take turns, steps write slices.

use super::copies;
use super::permutations::ALIGNED;
use crate::network::program::{Program, Source, Step, ValueId};
use crate::workload::{Op, Slice, Slices};

/// Removes the concatenations that need not be steps.
pub(super) fn remove(program: &mut Program) {
    join(program);
    slice(program);
}

/// What a concatenation of whole tensors consists of, in order: those that are no such concatenations.
type Leaves = Vec<ValueId>;

/// Most leaves of a concatenation that is looked at: of one that doubles itself thirty times nobody wants all.
const MOST_LEAVES: usize = 4096;

/// Has tensors that follow each other as a whole lie in one.
fn join(program: &mut Program) {
    loop {
        let mut all: Vec<(ValueId, Leaves)> = vec![];
        for step in &program.steps {
            if let Some(operands) = whole(program, step) {
                let inner =
                    |id: &ValueId| all.iter().find(|(output, _)| output == id).map(|(_, leaves)| leaves.clone());
                let leaves: Leaves = operands.iter().flat_map(|id| inner(id).unwrap_or(vec![*id])).collect();
                if leaves.len() <= MOST_LEAVES {
                    all.push((step.output, leaves));
                }
            }
        }
        // The largest first: others may be parts of it.
        all.sort_by_key(|(_, leaves)| std::cmp::Reverse(leaves.len()));
        if !all.iter().any(|(output, leaves)| grow(program, *output, leaves, &all)) {
            return;
        }
    }
}

/// The operands of a concatenation of whole tensors, by their roots.
fn whole(program: &Program, step: &Step) -> Option<Leaves> {
    let Op::Concat(concat) = &step.workload.op else { return None };
    let axis = usize::try_from(concat.axis).ok()?;
    let is_whole = concat.input[..axis].iter().all(|n| *n == 1);
    if !is_whole || !step.workload.epilogue.is_empty() || !step.slices.is_empty() {
        return None;
    }
    // A part is no whole value.
    let root = |id: &ValueId| Some(program.root(*id)).filter(|root| program.elements(*root) == program.elements(*id));
    step.operands.iter().map(root).collect()
}

/// Has the leaves of a concatenation lie in its memory; whether they do.
fn grow(program: &mut Program, whole: ValueId, leaves: &Leaves, all: &[(ValueId, Leaves)]) -> bool {
    let results: Vec<ValueId> = program.outputs.iter().map(|(_, id)| program.root(*id)).collect();
    let mut first = vec![0];
    first.extend(leaves.iter().scan(0, |sum, id| {
        *sum += program.elements(*id);
        Some(*sum)
    }));
    let twice = (1..leaves.len()).any(|i| leaves[..i].contains(&leaves[i]));
    if twice || first[..leaves.len()].iter().any(|at| at % ALIGNED != 0) {
        return false;
    }
    // Parts of it are the leaves, and other concatenations of some of them.
    let is_part = |root: ValueId| {
        let some = all.iter().find(|(output, _)| *output == root).map(|(_, some)| some);
        root == whole || leaves.contains(&root) || some.is_some_and(|some| some.iter().all(|id| leaves.contains(id)))
    };
    let writers = program.writers();
    let is_written = |id: &ValueId| {
        let free = matches!(program.values[*id].source, Source::Step) && !results.contains(id);
        // A launch does not write to what it reads.
        let apart = |step: &Step| !step.operands.iter().any(|operand| is_part(program.root(*operand)));
        free && writers[*id].is_some_and(|at| program.steps[at].slices.is_empty() && apart(&program.steps[at]))
    };
    let written: Vec<bool> = leaves.iter().map(is_written).collect();
    if !written.contains(&true) {
        return false;
    }
    // Concatenations of leaves that are neighbours.
    for (output, some) in all.iter().filter(|(output, _)| *output != whole && !results.contains(output)) {
        if let Some(at) = leaves.windows(some.len()).position(|part| part == some) {
            program.values[*output].source = Source::Part { of: whole, at: first[at] };
            program.steps.retain(|step| step.output != *output);
        }
    }
    program.steps.retain(|step| step.output != whole);
    for ((leaf, is_written), at) in leaves.iter().zip(written).zip(first) {
        let part = Source::Part { of: whole, at };
        if is_written {
            program.values[*leaf].source = part;
            continue;
        }
        // A constant of integers has the type that the whole has.
        let dtype = program.values[whole].dtype;
        let (shape, name) = {
            let value = &program.values[*leaf];
            (value.shape.clone(), value.name.clone())
        };
        let output = program.add(&shape, dtype, part);
        let step = copies::step(program, format!("copy of {name}"), *leaf, output);
        let writers = program.steps.iter().rposition(|step| program.root(step.output) == program.root(*leaf));
        program.steps.insert(writers.map_or(0, |at| at + 1), step);
    }
    true
}

/// Removes the concatenations whose operands are all results of steps that nothing else reads.
fn slice(program: &mut Program) {
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
