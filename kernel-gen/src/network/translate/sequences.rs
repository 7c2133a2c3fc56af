//! Sequences of tensors, as exporters write them for lists: how long each is, and what it holds, is known when the model is compiled.

use super::builder::Builder;
use super::movement::{along, parts};
use super::operands::{Bound, axis, optional, tensor};
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;

/// Makes the result of a node.
type Make = fn(&mut Builder, &Node, &[Option<Bound>]) -> Result<Bound, Fault>;

/// Most parts of a tensor: each is a step, and passes look through all steps for each.
const MOST_PARTS: i64 = 1024;

/// The operators that take or give sequences.
const OPERATORS: [(&str, Make); 8] = [
    ("ConcatFromSequence", join),
    ("SequenceAt", at),
    ("SequenceConstruct", of_tensors),
    ("SequenceEmpty", of_tensors),
    ("SequenceErase", erase),
    ("SequenceInsert", insert),
    ("SequenceLength", length),
    ("SplitToSequence", split),
];

/// Their names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|(name, _)| *name)
}

/// What makes the result of a node that takes or gives a sequence; none of other nodes.
pub(super) fn of(node: &Node, x: &[Option<Bound>]) -> Option<Make> {
    let same: Make = |_, _, x| first(x).map(Bound::Sequence);
    let is_same = node.op == "Identity" && matches!(x.first(), Some(Some(Bound::Sequence(_))));
    OPERATORS.iter().find(|(name, _)| *name == node.op).map(|(_, make)| *make).or(is_same.then_some(same))
}

/// The sequence that is the first operand.
fn first(x: &[Option<Bound>]) -> Result<Vec<ValueId>, Fault> {
    match x.first() {
        Some(Some(Bound::Sequence(all))) => Ok(all.clone()),
        _ => Err(Fault::new("its first operand is no sequence of tensors", "export the model again")),
    }
}

/// The index into a sequence of `count` tensors that a constant holds, below `end`; a negative one counts from the end of the sequence.
fn place(b: &mut Builder, node: &Node, id: ValueId, [count, end]: [usize; 2]) -> Result<usize, Fault> {
    let at = b.integers("places", id)?.first().copied().unwrap_or(0);
    let found = usize::try_from(if at < 0 { at.saturating_add(count as i64) } else { at }).ok();
    let cause = || Fault::new(format!("the place {at} of {count}"), "export the model again");
    let found = found.filter(|at| *at < end).ok_or_else(cause)?;
    b.decide(node, found as i64);
    Ok(found)
}

/// `SequenceConstruct`, and `SequenceEmpty` of none.
fn of_tensors(_: &mut Builder, _: &Node, x: &[Option<Bound>]) -> Result<Bound, Fault> {
    Ok(Bound::Sequence((0..x.len()).map(|at| tensor(x, at)).collect::<Result<_, _>>()?))
}

/// `SequenceAt`.
fn at(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Bound, Fault> {
    let all = first(x)?;
    let at = place(b, node, tensor(x, 1)?, [all.len(); 2])?;
    Ok(Bound::Tensor(all[at]))
}

/// `SequenceInsert`, at the end if no place is given.
fn insert(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Bound, Fault> {
    let (mut all, new) = (first(x)?, tensor(x, 1)?);
    let at = optional(x, 2)?.map_or(Ok(all.len()), |id| place(b, node, id, [all.len(), all.len() + 1]))?;
    all.insert(at, new);
    Ok(Bound::Sequence(all))
}

/// `SequenceErase`, of the last if no place is given.
fn erase(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Bound, Fault> {
    let mut all = first(x)?;
    let last = all.len().checked_sub(1).ok_or_else(|| Fault::new("its sequence is empty", "export the model again"))?;
    all.remove(optional(x, 1)?.map_or(Ok(last), |id| place(b, node, id, [all.len(); 2]))?);
    Ok(Bound::Sequence(all))
}

/// `SequenceLength`.
fn length(b: &mut Builder, _: &Node, x: &[Option<Bound>]) -> Result<Bound, Fault> {
    let length = first(x)?.len() as i64;
    Ok(Bound::Tensor(b.add_constant(Tensor::integers(&[], [length]))))
}

/// `SplitToSequence`: parts of one, of as many as a number says, or of the lengths of a list.
fn split(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Bound, Fault> {
    let input = tensor(x, 0)?;
    let shape = b.shape(input);
    let at = axis(node.integer("axis", 0), shape.len())?;
    let given = optional(x, 1)?;
    let lengths = given.map(|id| b.integers("lengths", id)).transpose()?;
    // One number is the length of all parts but the last, which may be shorter.
    let each = match (given, &lengths) {
        (Some(id), Some(list)) => list.first().copied().filter(|n| *n > 0 && b.shape(id).is_empty()),
        _ => Some(1),
    };
    let count = match (each, &lengths) {
        (Some(n), _) => shape[at].div_euclid(n) + i64::from(shape[at] % n != 0),
        (None, list) => list.as_ref().map_or(0, Vec::len) as i64,
    };
    if count > MOST_PARTS {
        let help = format!("export the model with at most {MOST_PARTS} of a tensor");
        return Err(Fault::new(format!("it makes {count} parts"), help));
    }
    b.decide(node, count);
    let sizes: Vec<i64> = match each {
        Some(n) => (0..shape[at]).step_by(n as usize).map(|i| n.min(shape[at] - i)).collect(),
        None => lengths.unwrap_or_default(),
    };
    if sizes.iter().any(|n| *n < 1) || sizes.iter().fold(0i64, |sum, n| sum.saturating_add(*n)) != shape[at] {
        return Err(Fault::new(format!("parts of {sizes:?} along {}", shape[at]), "export the model again"));
    }
    let mut all = parts(b, input, at, &sizes)?;
    if given.is_none() && !node.flag_or("keepdims", true) {
        for id in &mut all {
            *id = b.view(*id, &[&shape[..at], &shape[at + 1..]].concat())?;
        }
    }
    Ok(Bound::Sequence(all))
}

/// `ConcatFromSequence`, along a dimension that there is or a new one.
fn join(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Bound, Fault> {
    let mut all = first(x)?;
    let Some(element) = all.first() else {
        return Err(Fault::new("its sequence is empty", "leave it out"));
    };
    let (shape, is_new) = (b.shape(*element), node.flag("new_axis"));
    let at = axis(node.integer("axis", 0), shape.len() + usize::from(is_new))?;
    if is_new {
        for id in &mut all {
            let shape = b.shape(*id);
            let at = at.min(shape.len());
            *id = b.view(*id, &[&shape[..at], &[1], &shape[at..]].concat())?;
        }
    }
    all.retain(|id| b.program.elements(*id) != 0);
    if all.is_empty() {
        return Err(Fault::new("its tensors have no elements", "leave it out"));
    }
    Ok(Bound::Tensor(along(b, all, at)?))
}
