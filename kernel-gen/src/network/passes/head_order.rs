//! Lets attention read and write tensors in the order in which the products around it have them, so that nothing is permuted.

use super::patterns::writer;
use super::permutations::{Cut, cut, is_bare, joined, permutation};
use crate::network::program::{Program, Said, ValueId};
use crate::workload::attention::{HeadOrder, Mask};
use crate::workload::{Attention, Op};

/// Changes the order of each attention whose operands are permuted, and whose result is permuted for nothing else.
pub(super) fn keep(program: &mut Program) {
    let mut at = 0;
    while at < program.steps.len() {
        if let Some(Found { of, operands, permuted }) = find(program, at) {
            let behind = permuted.map(|permuted| program.steps.remove(permuted));
            let step = &mut program.steps[at];
            let before: Vec<ValueId> = step.operands.splice(..3, operands).collect();
            step.workload.op = of.into();
            step.said = said(&of, std::mem::take(&mut step.said));
            if let Some(behind) = behind {
                step.output = behind.output;
                step.nodes.extend(behind.nodes);
            }
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

/// How a spec says an attention that has rows first, and was said in another way.
fn said(of: &Attention, before: Said) -> Said {
    let [heads, kv_heads] = [of.heads, of.kv_heads];
    let shape = |heads, rows, width| format!("{:?}", of.in_order([of.b, heads, rows, width]));
    let (flag, mut keys) = if of.order == HeadOrder::Packed {
        ("packed", vec![("qkv", shape(heads + 2 * kv_heads, of.m, of.d))])
    } else {
        let keys = [shape(heads, of.m, of.d), shape(kv_heads, of.n, of.d), shape(kv_heads, of.n, of.dv)];
        ("rows_first", ["q", "k", "v"].into_iter().zip(keys).collect())
    };
    keys.extend(of.mask_shape().map(|shape| ("mask", format!("{shape:?}"))));
    let others = before.flags.into_iter().filter(|flag| *flag != "rows_first");
    Said { flags: others.chain([flag]).collect(), keys }
}

/// What an attention becomes that can do without permutations and copies.
struct Found {
    of: Attention,
    /// What it reads in the place of its first three operands.
    operands: Vec<ValueId>,
    /// The step that permutes its result.
    permuted: Option<usize>,
}

/// What step `at` becomes, if it is such an attention.
fn find(program: &Program, at: usize) -> Option<Found> {
    let step = &program.steps[at];
    let Op::Attention(of) = step.workload.op else { return None };
    let found = match of.order {
        HeadOrder::Packed => return None,
        HeadOrder::RowsFirst => {
            let operands = vec![columns_of_one(program, &of, &step.operands[..3])?];
            Found { of: Attention { order: HeadOrder::Packed, ..of }, operands, permuted: None }
        }
        HeadOrder::HeadsFirst => of_heads_first(program, at, of)?,
    };
    // A launch does not write to what it reads.
    let written = found.permuted.map_or(step.output, |permuted| program.steps[permuted].output);
    let mut read = found.operands.iter().chain(&step.operands[3..]);
    let apart = read.all(|id| program.root(*id) != program.root(written));
    apart.then_some(found)
}

/// What an attention with heads first becomes.
fn of_heads_first(program: &Program, at: usize, of: Attention) -> Option<Found> {
    let step = &program.steps[at];
    if !is_bare(step) || program.uses()[step.output] != 1 {
        return None;
    }
    let reads = |id: &ValueId| program.place(*id) == (step.output, 0);
    let permuted = (at + 1..program.steps.len()).find(|i| program.steps[*i].operands.iter().any(reads))?;
    let (input, order) = permutation(&program.steps[permuted])?;
    // Exporters count the heads of all images as those of one.
    let splits = of.b == 1 && of.mask != Mask::Heads;
    let images = [1, input[0]].into_iter().filter(|images| *images == 1 || splits && of.kv_heads % images == 0);
    images.into_iter().find_map(|images| {
        let [heads, kv_heads] = [of.heads, of.kv_heads].map(|heads| heads / images);
        let of = Attention { b: of.b * images, heads, kv_heads, ..of };
        is_nothing(joined(&[of.b, of.m, of.heads, of.dv], &[0, 2, 1, 3], input, order))?;
        let (order, operands) = rows_first(program, &of, &step.operands[..3])?;
        Some(Found { of: Attention { order, ..of }, operands, permuted: Some(permuted) })
    })
}

/// What an attention with these operands reads instead, and in which order that is.
fn rows_first(program: &Program, of: &Attention, operands: &[ValueId]) -> Option<(HeadOrder, Vec<ValueId>)> {
    if let Some(qkv) = packed(program, of, operands) {
        return Some((HeadOrder::Packed, vec![qkv]));
    }
    let shapes = [(of.heads, of.m, of.d), (of.kv_heads, of.n, of.d), (of.kv_heads, of.n, of.dv)];
    let rows = operands.iter().zip(shapes).map(|(id, (heads, rows, width))| {
        let permuted = [of.b, heads, rows, width];
        let (root, first) = program.place(*id);
        let is_whole = first == 0 && program.elements(root) == permuted.iter().product::<i64>();
        is_whole.then(|| before(program, root, &permuted, &[0, 2, 1, 3]))?
    });
    let rows = rows.collect::<Option<Vec<ValueId>>>()?;
    Some(match columns_of_one(program, of, &rows) {
        Some(qkv) => (HeadOrder::Packed, vec![qkv]),
        None => (HeadOrder::RowsFirst, rows),
    })
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
pub(super) fn are_alike(of: &Attention) -> bool {
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
    let part = |(i, id): (i64, &ValueId)| {
        let step = writer(program, *id)?;
        let Cut { rows, of: whole, size, start } = cut(step)?;
        let is_part = [rows, whole, size, start] == [of.b * of.m, 3 * columns, columns, i * columns];
        let is_whole = program.place(*id) == (step.output, 0) && program.elements(*id) == program.elements(step.output);
        (is_part && is_whole).then_some(step.operands[0])
    };
    let all = (0..).zip(rows).map(part).collect::<Option<Vec<ValueId>>>()?;
    let same = all.iter().all(|id| program.place(*id) == program.place(all[0]));
    (are_alike(of) && same).then_some(all[0])
}
