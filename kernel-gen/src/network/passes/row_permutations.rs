//! Joins permutations that have steps between them which compute each row by itself, so that the rows may as well be in another order.
//!
//! Attention of several images is exported so: images behind words, a product, heads before words, attention, and back again (PyTorch's
//! `MultiheadAttention` with `batch_first`).

use super::permutations::{joined, permutation, step};
use crate::network::program::{Program, Source, Step, ValueId};
use crate::workload::epilogue::Per;
use crate::workload::{Binary, Matmul, Op, RowWise};

/// Joins all that can be.
pub(super) fn join(program: &mut Program) {
    let mut at = 0;
    while at < program.steps.len() {
        match find(program, at) {
            Some(chain) => replace(program, at, &chain),
            None => at += 1,
        }
    }
}

/// A permutation behind steps of rows, and what it becomes together with the one in front of them.
struct Chain {
    last: usize,
    /// Extents and order.
    one: (Vec<i64>, Vec<i64>),
    /// Whether it stands in the first one's place, and not in the last one's.
    in_front: bool,
}

/// Columns of the rows that steps take first and give last.
#[derive(Clone, Copy)]
struct Columns {
    first: i64,
    last: i64,
}

/// What follows the permutation that step `at` is, if it can be joined with a later one.
fn find(program: &Program, at: usize) -> Option<Chain> {
    let (input, order) = permutation(&program.steps[at])?;
    let uses = program.uses();
    let (mut id, mut behind, mut columns) = (program.steps[at].output, at, None);
    loop {
        // A result of the network that is used once has no reader.
        if uses[id] != 1 || !matches!(program.values[id].source, Source::Step) {
            return None;
        }
        let reads = |of: &ValueId| program.root(*of) == id;
        behind = (behind + 1..program.steps.len()).find(|i| program.steps[*i].operands.iter().any(reads))?;
        let found = &program.steps[behind];
        let operand = found.operands.iter().position(reads)?;
        let whole = found.operands[operand];
        if program.elements(whole) != program.elements(id) || !found.slices.is_empty() {
            return None;
        }
        match (permutation(found), columns) {
            (Some(second), Some(columns)) => {
                return together((at, input, order), (behind, second.0, second.1), columns);
            }
            _ => columns = Some(through(found, operand, columns)?),
        }
        id = found.output;
    }
}

/// A permutation: its step, extents and order.
type Permutation<'a> = (usize, &'a [i64], &'a [i64]);

/// One permutation in the place of two, at least one of which only moves rows.
fn together(first: Permutation<'_>, second: Permutation<'_>, columns: Columns) -> Option<Chain> {
    let moves_rows = |(_, extents, order): Permutation<'_>, columns: i64| {
        extents.last() == Some(&columns) && order.last() == Some(&(order.len() as i64 - 1))
    };
    let of = |extents: &[i64], columns: i64| [&extents[..extents.len() - 1], &[columns]].concat();
    let (one, in_front) = if moves_rows(first, columns.first) {
        (joined(&of(first.1, columns.last), first.2, second.1, second.2)?, false)
    } else if moves_rows(second, columns.last) {
        (joined(first.1, first.2, &of(second.1, columns.first), second.2)?, true)
    } else {
        return None;
    };
    Some(Chain { last: second.0, one, in_front })
}

/// The columns behind a step that computes each row of its operand with this number by itself, behind steps that have these columns.
fn through(step: &Step, operand: usize, columns: Option<Columns>) -> Option<Columns> {
    let mut epilogue = step.workload.epilogue.iter().flat_map(|step| step.operands()).peekable();
    let of_elements = epilogue.peek().is_none();
    let of_channels = epilogue.all(|operand| operand.per == Per::Channel);
    let [own, last] = match &step.workload.op {
        Op::Matmul(Matmul { batch: 1, trans_a: false, k, n, .. }) if operand == 0 && of_channels => [*k, *n],
        Op::RowWise(RowWise { columns, .. }) if operand == 0 && of_channels => [*columns; 2],
        Op::Binary(Binary { a, b, .. }) if of_elements => {
            let (own, other) = if operand == 0 { (a, b) } else { (b, a) };
            // The other operand is the same for all rows, or for all elements.
            let one = other.iter().all(|n| *n == 1);
            let fits = other.iter().rev().skip(1).all(|n| *n == 1) && (one || other.last() == own.last());
            let known = columns.filter(|_| one).map(|columns| columns.last);
            (operand < 2 && fits).then_some([known.or(own.last().copied())?; 2])?
        }
        Op::Unary(_) if of_elements => [columns?.last; 2],
        _ => return None,
    };
    let fits = columns.is_none_or(|columns| columns.last == own) && !step.workload.is_quantised();
    fits.then_some(Columns { first: columns.map_or(own, |columns| columns.first), last })
}

/// Puts one permutation in the place of two.
fn replace(program: &mut Program, at: usize, chain: &Chain) {
    let (input, order) = &chain.one;
    let (kept, other) = if chain.in_front { (at, chain.last) } else { (chain.last, at) };
    let from = |program: &Program, at: usize| (program.steps[at].operands[0], program.steps[at].output);
    let mut gone = vec![other];
    let (x, y) = from(program, other);
    program.values[y].source = Source::View(x);
    let (x, y) = from(program, kept);
    if order.is_sorted() {
        program.values[y].source = Source::View(x);
        gone.push(kept);
    } else {
        let nodes = [at, chain.last].iter().flat_map(|at| program.steps[*at].nodes.clone()).collect();
        program.steps[kept] = step(nodes, input, order, (x, program.values[x].dtype), y);
    }
    gone.sort_unstable();
    gone.into_iter().rev().for_each(|at| drop(program.steps.remove(at)));
}
