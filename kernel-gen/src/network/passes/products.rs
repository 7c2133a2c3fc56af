//! Makes one product of those of queries, keys and values, whose columns attention then reads where they are.

use super::head_order::are_alike;
use super::patterns::writer;
use super::permutations::permutation;
use crate::network::program::{Program, Said, Source, Step, ValueId};
use crate::network::tensor::Tensor;
use crate::workload::movement::{Move, Movement};
use crate::workload::{Dims, Epilogue, Matmul, Op, Slices, Workload};

/// Joins the products in front of each attention that has three of one tensor.
pub(super) fn join(program: &mut Program) {
    let mut at = 0;
    while at < program.steps.len() {
        if let Some(found) = find(program, at) {
            replace(program, &found);
            // Three products became one and three slices.
            at += 1;
        }
        at += 1;
    }
}

/// Three products of one tensor.
struct Found {
    /// Each of them, but for its weights.
    of: Matmul,
    /// The steps, in the order in which attention reads their results.
    steps: [usize; 3],
    x: ValueId,
}

/// The products in front of step `at`, if it is such an attention.
fn find(program: &Program, at: usize) -> Option<Found> {
    let step = &program.steps[at];
    let Op::Attention(of) = step.workload.op else { return None };
    let operands: &[ValueId; 3] = step.operands.first_chunk().filter(|_| are_alike(&of))?;
    let mut steps = [0; 3];
    for (found, id) in steps.iter_mut().zip(operands) {
        let behind = whole(program, *id)?;
        let product = permutation(behind).map_or(Some(behind), |_| whole(program, behind.operands[0]))?;
        *found = program.steps.iter().position(|step| step.output == product.output)?;
    }
    let first = &program.steps[steps[0]];
    let Op::Matmul(product) = first.workload.op else { return None };
    let is_like = |at: &usize| {
        let step = &program.steps[*at];
        let bias = match (&step.workload.epilogue[..], &step.operands[..]) {
            ([], [_, _]) => true,
            ([Epilogue::Bias], [_, _, bias]) => program.constant(*bias).is_some(),
            _ => false,
        };
        let same = step.workload.op == first.workload.op && step.slices.is_empty();
        let weights = |step: &Step| program.constant(step.operands[1]).is_some();
        same && bias && weights(step) && program.place(step.operands[0]) == program.place(first.operands[0])
    };
    let apart = steps[0] != steps[1] && steps[1] != steps[2] && steps[0] != steps[2];
    let fits = (product.batch, product.trans_a, product.n) == (1, false, of.heads * of.d);
    (apart && fits && !first.workload.is_quantised() && steps.iter().all(is_like)).then(|| Found {
        of: product,
        steps,
        x: first.operands[0],
    })
}

/// The step whose whole result a value is.
fn whole(program: &Program, id: ValueId) -> Option<&Step> {
    let step = writer(program, id)?;
    let is_whole = program.place(id) == (step.output, 0) && program.elements(id) == program.elements(step.output);
    is_whole.then_some(step)
}

/// Puts one product in the place of the first of the three, and slices of it in those of their results.
fn replace(program: &mut Program, found: &Found) {
    let Found { of: Matmul { m, n, k, trans_b, .. }, steps, x } = *found;
    let parts = steps.map(|at| program.steps[at].clone());
    let all: Vec<Tensor> = parts.iter().filter_map(|step| program.constant(step.operands[1])).collect();
    let weights = all.iter().map(Tensor::to_floats);
    // Rows of weights follow each other; columns follow each other in each row.
    let shape = if trans_b { [3 * n, k] } else { [k, 3 * n] };
    let numbers: Vec<f32> = if trans_b {
        weights.flat_map(|part| part.to_vec()).collect()
    } else {
        let weights: Vec<_> = weights.collect();
        let row = |at: usize| weights.iter().flat_map(move |part| part[at * n as usize..][..n as usize].to_vec());
        (0..k as usize).flat_map(row).collect()
    };
    let mut operands = vec![x, program.add_constant(Tensor::floats(&shape, numbers))];
    let biases = parts.each_ref().map(|step| step.operands.get(2).and_then(|id| program.constant(*id)));
    let mut epilogue = vec![];
    if biases.iter().any(Option::is_some) {
        let zeros = || vec![0.0; n as usize];
        let each = |bias: &Option<Tensor>| bias.as_ref().map_or_else(zeros, |bias| bias.to_floats().to_vec());
        let numbers: Vec<f32> = biases.iter().flat_map(each).collect();
        operands.push(program.add_constant(Tensor::floats(&[3 * n], numbers)));
        epilogue.push(Epilogue::Bias);
    }
    let product = Matmul { n: 3 * n, ..found.of };
    let output = program.add(&[m, 3 * n], parts[0].workload.out_dtype, Source::Step);
    let mut made = vec![Step {
        nodes: parts.iter().flat_map(|step| step.nodes.clone()).collect(),
        workload: Workload { op: product.into(), epilogue, ..parts[0].workload.clone() },
        said: Said {
            flags: parts[0].said.flags.clone(),
            keys: vec![("a", format!("{:?}", [m, k])), ("b", format!("{shape:?}"))],
        },
        slices: Slices::default(),
        operands,
        output,
    }];
    for (part, i) in parts.iter().zip(0..) {
        let [input, start, size] = [[m, 3 * n], [0, i * n], [m, n]];
        let dims = |list: [i64; 2]| Dims::new(&list).expect("two dimensions");
        let function = Move::Slice { start: dims(start), size: dims(size), step: dims([1, 1]) };
        let keys = [("input", input), ("start", start), ("size", size), ("step", [1, 1])];
        made.push(Step {
            nodes: part.nodes.clone(),
            workload: Workload::f32(Movement { input: dims(input), function }).with_dtype(part.workload.out_dtype),
            said: Said { flags: vec![], keys: keys.map(|(key, list)| (key, format!("{list:?}"))).to_vec() },
            slices: Slices::default(),
            operands: vec![output],
            output: part.output,
        });
    }
    let mut places = steps;
    places.sort_unstable();
    places.iter().rev().for_each(|at| drop(program.steps.remove(*at)));
    program.steps.splice(places[0]..places[0], made);
}
