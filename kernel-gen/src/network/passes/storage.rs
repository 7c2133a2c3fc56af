//! What numbers are stored as, in memory and in the file of weights. Kernels add in `f32` all the same.

use crate::ir::DType;
use crate::network::program::{Program, Said, Source, Step, ValueId};
use crate::workload::unary::Function;
use crate::workload::{Dims, Epilogue, Op, Slices, Unary, Workload};
use std::collections::BTreeSet;

/// Most elements of what is computed in `f32` because its result is wanted so.
const FEW: i64 = 1 << 12;

/// Stores all numbers as a type, but what kernels take as `f32` alone: scales of integers of eight bits, factors of channels beside these.
pub(super) fn store(program: &mut Program, dtype: DType) {
    let stored = |found: DType| if found == DType::F32 { dtype } else { found };
    let Kept { values, steps } = kept(program, dtype);
    let is_kept = |program: &Program, id: ValueId| values.contains(&program.root(id));
    for at in 0..program.steps.len() {
        let result_is_kept = is_kept(program, program.steps[at].output);
        let workload = &mut program.steps[at].workload;
        if !steps.contains(&at) {
            workload.dtype = stored(workload.dtype);
        }
        if !result_is_kept {
            workload.out_dtype = stored(workload.out_dtype);
        }
    }
    for id in (0..program.values.len()).filter(|id| !is_kept(program, *id)).collect::<Vec<_>>() {
        program.values[id].dtype = stored(program.values[id].dtype);
    }
    convert(program);
}

/// What stays `f32`.
struct Kept {
    /// Values that are no part of others.
    values: BTreeSet<ValueId>,
    /// Places of steps that compute with `f32`.
    steps: BTreeSet<usize>,
}

/// Values that are taken as `f32` however others are stored, and the steps of few elements that make them. Sums of integers that became
/// numbers as they are outgrow 16 bits until a scale follows, so steps that take them are `f32`, too.
fn kept(program: &Program, dtype: DType) -> Kept {
    let sums = program.steps.iter().filter(|step| is_unscaled(program, step));
    let sums: BTreeSet<ValueId> = sums.map(|step| program.root(step.output)).collect();
    let takes = |step: &Step, of: &BTreeSet<ValueId>| step.operands.iter().any(|id| of.contains(&program.root(*id)));
    let mut kept = Kept { values: sums.clone(), steps: BTreeSet::new() };
    loop {
        let before = kept.steps.len();
        // Who takes a value stands behind who makes it.
        for (at, step) in program.steps.iter().enumerate().rev() {
            let few = step.operands.iter().all(|id| program.elements(*id) <= FEW);
            let gives = kept.values.contains(&program.root(step.output));
            let mut workload = step.workload.clone();
            let wanted =
                few && (gives && workload.dtype == DType::F32 || of_elements(step) && takes(step, &kept.values));
            if wanted || of_elements(step) && takes(step, &sums) {
                kept.steps.insert(at);
            }
            if workload.dtype == DType::F32 && !kept.steps.contains(&at) {
                workload.dtype = dtype;
            }
            if workload.out_dtype == DType::F32 && !gives {
                workload.out_dtype = dtype;
            }
            for (param, id) in workload.params().iter().zip(&step.operands) {
                let root = program.root(*id);
                if param.dtype == DType::F32 && matches!(program.values[root].source, Source::Step) {
                    kept.values.insert(root);
                }
            }
        }
        if kept.steps.len() == before {
            return kept;
        }
    }
}

/// Whether a step is a function of elements that are numbers.
fn of_elements(step: &Step) -> bool {
    matches!(step.workload.op, Op::Unary(_) | Op::Binary(_)) && step.workload.dtype == DType::F32
}

/// Whether a step gives sums of integers as numbers, with a scale of 1.
fn is_unscaled(program: &Program, step: &Step) -> bool {
    let workload = &step.workload;
    if !workload.is_quantised() || workload.epilogue.last() != Some(&Epilogue::Dequantize) {
        return false;
    }
    let scales = step.operands.last().and_then(|id| program.constant(*id));
    workload.reduction_length() > 1 && scales.is_some_and(|all| all.to_floats().iter().all(|s| *s == 1.0))
}

/// Puts a step in front of each that takes what is computed, or given, as another type than that which it has.
fn convert(program: &mut Program) {
    let mut at = 0;
    while at < program.steps.len() {
        let params = program.steps[at].workload.params();
        for (i, param) in params.iter().enumerate().take(program.steps[at].operands.len()) {
            let id = program.steps[at].operands[i];
            let (found, shape) = (program.values[id].dtype, program.values[id].shape.clone());
            if program.constant(id).is_some() || found == param.dtype || !found.is_float() || !param.dtype.is_float() {
                continue;
            }
            let input = Dims::new(&shape).or_else(|| Dims::new(&[program.elements(id)])).expect("one dimension");
            let identity = Workload::f32(Unary { input, function: Function::Identity }).with_dtype(found);
            let output = program.add(&shape, param.dtype, Source::Step);
            let step = Step {
                nodes: program.steps[at].nodes.clone(),
                workload: Workload { out_dtype: param.dtype, ..identity },
                said: Said { flags: vec![], keys: vec![("input", format!("{:?}", &input[..]))] },
                slices: Slices::default(),
                operands: vec![id],
                output,
            };
            program.steps[at].operands[i] = output;
            program.steps.insert(at, step);
            at += 1;
        }
        at += 1;
    }
}
