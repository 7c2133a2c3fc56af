//! Lets attention read and write tensors in the order in which the products around it have them, so that nothing is permuted.

use super::patterns::writer;
use super::permutations::{is_bare, joined, permutation};
use crate::network::program::{Program, Said, ValueId};
use crate::workload::attention::HeadOrder;
use crate::workload::movement::{Move, Movement};
use crate::workload::{Attention, Op};

/// Changes the order of each attention whose operands and result are all permuted for it alone.
pub(super) fn keep(program: &mut Program) {
    let mut at = 0;
    while at < program.steps.len() {
        if let Some((of, operands, permuted)) = find(program, at) {
            let output = program.steps[permuted].output;
            let nodes = program.steps[permuted].nodes.clone();
            let step = &mut program.steps[at];
            let before: Vec<ValueId> = step.operands.splice(..3, operands).collect();
            step.workload.op = of.into();
            step.output = output;
            step.nodes.extend(nodes);
            step.said = said(&of, std::mem::take(&mut step.said));
            program.steps.remove(permuted);
            let steps = program.steps.len();
            before.into_iter().for_each(|id| remove_unread(program, id));
            at -= steps - program.steps.len();
        }
        at += 1;
    }
}

/// Removes the step that makes a value, and those in front of it that only it reads, if nothing reads the value. The steps that write parts of
/// a larger one are left alone, so that this is no work for [`dead`](super::dead).
fn remove_unread(program: &mut Program, id: ValueId) {
    let root = program.root(id);
    if program.uses()[root] == 0
        && let Some(at) = program.steps.iter().position(|step| step.output == root)
    {
        program.steps.remove(at).operands.into_iter().for_each(|id| remove_unread(program, id));
    }
}

/// How a spec says an attention that was said with heads first.
fn said(of: &Attention, before: Said) -> Said {
    let [heads, kv_heads] = [of.heads, of.kv_heads];
    let shape = |heads, rows, width| format!("{:?}", of.in_order([of.b, heads, rows, width]));
    let (flag, mut keys) = match of.order {
        HeadOrder::HeadsFirst => return before,
        HeadOrder::RowsFirst => {
            let keys = [shape(heads, of.m, of.d), shape(kv_heads, of.n, of.d), shape(kv_heads, of.n, of.dv)];
            ("rows_first", ["q", "k", "v"].into_iter().zip(keys).collect::<Vec<_>>())
        }
        HeadOrder::Packed => ("packed", vec![("qkv", shape(heads + 2 * kv_heads, of.m, of.d))]),
    };
    keys.extend(before.keys.into_iter().filter(|(key, _)| *key == "mask"));
    Said { flags: [before.flags, vec![flag]].concat(), keys }
}

/// What step `at` becomes, if it is an attention that can do without permutations: the operator, what it reads in the place of its first
/// three operands, and the step that permutes its result.
fn find(program: &Program, at: usize) -> Option<(Attention, Vec<ValueId>, usize)> {
    let step = &program.steps[at];
    let Op::Attention(of) = step.workload.op else { return None };
    if of.order != HeadOrder::HeadsFirst || !is_bare(step) || program.uses()[step.output] != 1 {
        return None;
    }
    let reads = |id: &ValueId| program.place(*id) == (step.output, 0);
    let permuted = (at + 1..program.steps.len()).find(|i| program.steps[*i].operands.iter().any(reads))?;
    let (input, order) = permutation(&program.steps[permuted])?;
    is_nothing(joined(&[of.b, of.m, of.heads, of.dv], &[0, 2, 1, 3], input, order))?;
    if let Some(qkv) = packed(program, &of, &step.operands[..3]) {
        return Some((Attention { order: HeadOrder::Packed, ..of }, vec![qkv], permuted));
    }
    let shapes = [(of.heads, of.m, of.d), (of.kv_heads, of.n, of.d), (of.kv_heads, of.n, of.dv)];
    let rows = step.operands.iter().zip(shapes).map(|(id, (heads, rows, width))| {
        let permuted = [of.b, heads, rows, width];
        let (root, first) = program.place(*id);
        let is_whole = first == 0 && program.elements(root) == permuted.iter().product::<i64>();
        is_whole.then(|| before(program, root, &permuted, &[0, 2, 1, 3]))?
    });
    let rows = rows.collect::<Option<Vec<ValueId>>>()?;
    match columns_of_one(program, &of, &rows) {
        Some(qkv) => Some((Attention { order: HeadOrder::Packed, ..of }, vec![qkv], permuted)),
        None => Some((Attention { order: HeadOrder::RowsFirst, ..of }, rows, permuted)),
    }
}

/// Whether a permutation leaves all as it is.
fn is_nothing(permutation: Option<(Vec<i64>, Vec<i64>)>) -> Option<()> {
    permutation.filter(|(_, order)| order.is_sorted()).map(drop)
}

/// The value that a value permutes, if permuting the latter by `order`, in whose shape it is seen, gives it back.
fn before(program: &Program, id: ValueId, shape: &[i64], order: &[i64]) -> Option<ValueId> {
    let step = writer(program, id)?;
    let (input, own) = permutation(step)?;
    is_nothing(joined(input, own, shape, order))?;
    Some(step.operands[0])
}

/// Whether queries, keys and values can be one tensor.
fn are_alike(of: &Attention) -> bool {
    (of.kv_heads, of.n, of.dv) == (of.heads, of.m, of.d)
}

/// The tensor of queries, keys and values that was permuted as a whole, and then cut.
fn packed(program: &Program, of: &Attention, operands: &[ValueId]) -> Option<ValueId> {
    let each = of.b * of.heads * of.m * of.d;
    let root = program.root(operands[0]);
    let follow = operands.iter().zip(0..).all(|(id, i)| program.place(*id) == (root, i * each));
    let is_one = are_alike(of) && follow && program.elements(root) == 3 * each;
    is_one.then(|| before(program, root, &[3, of.b, of.heads, of.m, of.d], &[1, 3, 0, 2, 4]))?
}

/// The tensor of which queries, keys and values, with rows first, are the columns.
fn columns_of_one(program: &Program, of: &Attention, rows: &[ValueId]) -> Option<ValueId> {
    let columns = of.heads * of.d;
    let cut = |(i, id): (i64, &ValueId)| {
        let step = writer(program, *id).filter(|step| is_bare(step))?;
        let Op::Movement(Movement { input, function: Move::Slice { start, size, step: distance } }) = &step.workload.op
        else {
            return None;
        };
        let at = (0..input.len()).find(|at| size[*at] != input[*at])?;
        let (outer, inner) = (input[..at].iter().product::<i64>(), input[at + 1..].iter().product::<i64>());
        let is_part = size[at + 1..] == input[at + 1..]
            && (distance[at] == 1 || size[at] == 1)
            && [outer, input[at] * inner, size[at] * inner, start[at] * inner]
                == [of.b * of.m, 3 * columns, columns, i * columns];
        (is_part && program.elements(*id) == program.elements(step.output)).then_some(step.operands[0])
    };
    let all = (0..).zip(rows).map(cut).collect::<Option<Vec<ValueId>>>()?;
    let same = all.iter().all(|id| program.place(*id) == program.place(all[0]));
    (are_alike(of) && same).then_some(all[0])
}
