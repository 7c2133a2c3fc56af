//! Joins permutations that follow each other, and has one in place of several that are the same.

use crate::ir::DType;
use crate::network::program::{Program, Said, Source, Step, ValueId};
use crate::workload::dims::MAX_RANK;
use crate::workload::movement::{Move, Movement};
use crate::workload::{Dims, Op, Slices, Workload};

/// Elements whose bytes are a multiple of what kernels want of their arguments' places, whatever the type.
pub(super) const ALIGNED: i64 = 32;

/// Does both.
pub(super) fn join(program: &mut Program) {
    let mut at = 0;
    while at < program.steps.len() {
        at = gather(program, at).unwrap_or(at + 1);
    }
    let mut at = 0;
    while at < program.steps.len() {
        if follow(program, at) {
            program.steps.remove(at);
        } else {
            at += 1;
        }
    }
}

/// The extents and the order of a step that only permutes.
pub(super) fn permutation(step: &Step) -> Option<(&[i64], &[i64])> {
    match &step.workload.op {
        Op::Movement(Movement { input, function: Move::Permute { order } }) if is_bare(step) => Some((input, order)),
        _ => None,
    }
}

/// Whether a step has neither an epilogue nor slices.
pub(super) fn is_bare(step: &Step) -> bool {
    step.workload.epilogue.is_empty() && step.slices.is_empty()
}

/// Neighbours that a slice takes of each row of what it reads, a row being all that lies within the dimension that it cuts.
pub(super) struct Cut {
    pub(super) rows: i64,
    /// Elements of a row, and of the part; where that begins.
    pub(super) of: i64,
    pub(super) size: i64,
    pub(super) start: i64,
}

/// What a step takes of each row, if it only cuts one dimension.
pub(super) fn cut(step: &Step) -> Option<Cut> {
    let Op::Movement(Movement { input, function: Move::Slice { start, size, step: distance } }) = &step.workload.op
    else {
        return None;
    };
    let at = (0..input.len()).find(|i| size[*i] != input[*i])?;
    let inner: i64 = input[at + 1..].iter().product();
    let is_one = size[at + 1..] == input[at + 1..];
    // The distance of elements counts where there are several.
    let forward = distance.iter().zip(size.iter()).all(|(distance, size)| *distance == 1 || *size == 1);
    let [of, size, start] = [input[at], size[at], start[at]].map(|n| n * inner);
    (is_one && forward && is_bare(step)).then(|| Cut { rows: input[..at].iter().product(), of, size, start })
}

/// The part that a step takes of what it reads, if its elements lie side by side: the first, and how many they are.
pub(super) fn contiguous(step: &Step) -> Option<(i64, i64)> {
    cut(step).filter(|cut| cut.rows == 1).map(|cut| (cut.start, cut.size))
}

/// A step that permutes.
pub(super) fn step(
    nodes: Vec<String>,
    input: &[i64],
    order: &[i64],
    (operand, dtype): (ValueId, DType),
    output: ValueId,
) -> Step {
    let dims = |list: &[i64]| Dims::new(list).expect("one to six dimensions");
    let op = Movement { input: dims(input), function: Move::Permute { order: dims(order) } };
    let keys = vec![("input", format!("{input:?}")), ("order", format!("{order:?}"))];
    let (workload, said) = (Workload::f32(op).with_dtype(dtype), Said { flags: vec![], keys });
    Step { nodes, workload, said, slices: Slices::default(), operands: vec![operand], output }
}

/// Where step `at` is the first of slices of one tensor that are all permuted in the same way: permutes the whole once, and takes the
/// slices of that. Gives the step to go on with.
fn gather(program: &mut Program, at: usize) -> Option<usize> {
    let (_, elements) = contiguous(&program.steps[at])?;
    let whole = program.root(program.steps[at].operands[0]);
    let uses = program.uses();
    let is_one = |step: &Step| program.root(step.operands[0]) == whole && contiguous(step).is_some();
    let slices: Vec<usize> = (at..program.steps.len()).filter(|i| is_one(&program.steps[*i])).collect();
    let count = program.elements(whole) / elements;
    if slices.len() < 2
        || uses[whole] != slices.len()
        || program.elements(whole) % elements != 0
        || elements % ALIGNED != 0
    {
        return None;
    }
    let reader = |of: ValueId| {
        (0..program.steps.len()).find(|i| program.steps[*i].operands.iter().any(|id| program.root(*id) == of))
    };
    let mut found: Vec<(usize, usize, i64)> = vec![];
    for slice in slices {
        let (start, of) = contiguous(&program.steps[slice])?;
        let output = program.steps[slice].output;
        let permuted = reader(output).filter(|_| uses[output] == 1)?;
        let first = found.first().map_or(permuted, |(_, first, _)| *first);
        let same = permutation(&program.steps[permuted])? == permutation(&program.steps[first])?;
        if !same || of != elements || start % elements != 0 || found.iter().any(|(_, _, other)| *other == start) {
            return None;
        }
        found.push((slice, permuted, start));
    }
    let (input, order) = permutation(&program.steps[found[0].1])?;
    if input.len() == MAX_RANK {
        return None;
    }
    let input = [&[count], input].concat();
    let order: Vec<i64> = [0].into_iter().chain(order.iter().map(|i| i + 1)).collect();
    let nodes = found.iter().flat_map(|(_, permuted, _)| program.steps[*permuted].nodes.clone()).collect();
    let dtype = program.values[whole].dtype;
    let shape: Vec<i64> = order.iter().map(|i| input[*i as usize]).collect();
    let output = program.add(&shape, dtype, Source::Step);
    for (slice, permuted, start) in &found {
        let dims = |list: [i64; 2]| Dims::new(&list).expect("two dimensions");
        let (input, size) = ([count, elements], [1, elements]);
        let begin = [start / elements, 0];
        let function = Move::Slice { start: dims(begin), size: dims(size), step: dims([1, 1]) };
        let keys = vec![
            ("input", format!("{input:?}")),
            ("start", format!("{begin:?}")),
            ("size", format!("{size:?}")),
            ("step", "[1, 1]".into()),
        ];
        let result = program.steps[*permuted].output;
        let slice = &mut program.steps[*slice];
        slice.workload = Workload::f32(Movement { input: dims(input), function }).with_dtype(slice.workload.dtype);
        (slice.said, slice.operands, slice.output) = (Said { flags: vec![], keys }, vec![output], result);
    }
    let mut permuted: Vec<usize> = found.iter().map(|(_, permuted, _)| *permuted).collect();
    permuted.sort_unstable();
    for i in permuted.into_iter().rev() {
        program.steps.remove(i);
    }
    // A permuted slice was read behind all slices, which are behind the whole.
    program.steps.insert(at, step(nodes, &input, &order, (whole, program.values[whole].dtype), output));
    Some(at + 2)
}

/// Lets a permutation of a permuted tensor permute that tensor itself; whether nothing is left of it.
fn follow(program: &mut Program, at: usize) -> bool {
    let Some((input, order)) = permutation(&program.steps[at]) else { return false };
    let of = program.root(program.steps[at].operands[0]);
    let Some(before) = program.steps[..at].iter().find(|step| step.output == of) else { return false };
    let Some((first_input, first_order)) = permutation(before) else { return false };
    let (from, output) = (before.operands[0], program.steps[at].output);
    let Some((input, order)) = joined(first_input, first_order, input, order) else { return false };
    if order.is_sorted() {
        program.values[output].source = Source::View(from);
        return true;
    }
    let nodes = program.steps[at].nodes.clone();
    program.steps[at] = step(nodes, &input, &order, (from, program.values[from].dtype), output);
    false
}

/// One permutation in place of two, the second of which sees the first's result in a shape of its own.
pub(super) fn joined(
    first: &[i64],
    first_order: &[i64],
    second: &[i64],
    second_order: &[i64],
) -> Option<(Vec<i64>, Vec<i64>)> {
    // The dimensions of the first's result and those that the second sees, cut where either has a border.
    struct Piece {
        first: usize,
        second: usize,
        extent: i64,
    }
    let result: Vec<i64> = first_order.iter().map(|i| first[*i as usize]).collect();
    if first.iter().product::<i64>() != second.iter().product::<i64>() {
        return None;
    }
    let mut pieces = vec![];
    let (mut i, mut j, mut a, mut b) = (0, 0, *result.first()?, *second.first()?);
    loop {
        let extent = a.min(b);
        if a % extent != 0 || b % extent != 0 {
            return None;
        }
        pieces.push(Piece { first: i, second: j, extent });
        (a, b) = (a / extent, b / extent);
        while a == 1 && i + 1 < result.len() {
            i += 1;
            a = result[i];
        }
        while b == 1 && j + 1 < second.len() {
            j += 1;
            b = second[j];
        }
        if a == 1 && b == 1 {
            break;
        }
    }
    pieces.retain(|piece| piece.extent != 1);
    // The pieces in the order of the tensor that is read, and in that of the last result.
    let of_first = |dimension: i64| {
        let at = first_order.iter().position(|i| *i == dimension);
        (0..pieces.len()).filter(|p| Some(pieces[*p].first) == at).collect::<Vec<_>>()
    };
    let of_second =
        |dimension: &i64| (0..pieces.len()).filter(|p| pieces[*p].second as i64 == *dimension).collect::<Vec<_>>();
    let source: Vec<usize> = (0..first.len() as i64).flat_map(of_first).collect();
    let target: Vec<usize> = second_order.iter().flat_map(of_second).collect();
    // Neighbours in both are one dimension.
    let mut runs: Vec<Vec<usize>> = vec![];
    for piece in &source {
        let previous = runs.last().and_then(|run| run.last()).copied();
        let follows = previous.is_some_and(|previous| {
            let at = target.iter().position(|p| *p == previous);
            at.and_then(|at| target.get(at + 1)) == Some(piece)
        });
        match runs.last_mut().filter(|_| follows) {
            Some(run) => run.push(*piece),
            None => runs.push(vec![*piece]),
        }
    }
    let input: Vec<i64> = runs.iter().map(|run| run.iter().map(|p| pieces[*p].extent).product()).collect();
    let mut order: Vec<i64> = vec![];
    for piece in &target {
        order.extend(runs.iter().position(|run| run[0] == *piece).map(|run| run as i64));
    }
    if input.is_empty() {
        return Some((vec![1], vec![0]));
    }
    (input.len() <= MAX_RANK).then_some((input, order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stable::Rng;
    use crate::workload::reference;

    fn permuted(x: &[f64], input: &[i64], order: &[i64]) -> Vec<f64> {
        reference(&step(vec![], input, order, (0, DType::F32), 0).workload, &[x])
    }

    #[test]
    fn one_permutation_does_what_two_do() {
        let mut rng = Rng::new(7);
        let mut shuffled = |rank: usize| {
            let mut order: Vec<i64> = (0..rank as i64).collect();
            (1..rank).for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
            order
        };
        // Shapes of 24 elements.
        let shapes: [&[i64]; 7] = [&[24], &[2, 12], &[4, 6], &[2, 3, 4], &[1, 4, 1, 6], &[2, 2, 3, 2], &[3, 8]];
        let x: Vec<f64> = (0..24).map(f64::from).collect();
        let (mut joins, mut identities) = (0, 0);
        for _ in 0..40 {
            for a in shapes {
                for b in shapes {
                    let (first, second) = (shuffled(a.len()), shuffled(b.len()));
                    let Some((input, order)) = joined(a, &first, b, &second) else { continue };
                    let expected = permuted(&permuted(&x, a, &first), b, &second);
                    assert_eq!(permuted(&x, &input, &order), expected, "{a:?} {first:?}, {b:?} {second:?}");
                    joins += 1;
                    identities += usize::from(order.is_sorted());
                }
            }
        }
        assert!(joins > 600 && identities > 50, "{joins} of which {identities}");
    }
}
