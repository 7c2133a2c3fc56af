//! Operands of nodes: which are there, and how their shapes go together.

use crate::network::problem::Fault;
use crate::network::program::ValueId;

/// An operand that must be there.
pub(super) fn required(x: &[Option<ValueId>], at: usize) -> Result<ValueId, Fault> {
    x.get(at).copied().flatten().ok_or_else(|| missing(at))
}

/// An axis that may count from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, Fault> {
    let found = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(found)
        .ok()
        .filter(|a| *a < rank)
        .ok_or_else(|| Fault::attribute("axis", axis, &format!("an axis of the {rank} that there are")))
}

/// The shape that two shapes have together.
pub(super) fn broadcast(a: &[i64], b: &[i64]) -> Result<Vec<i64>, Fault> {
    let rank = a.len().max(b.len());
    let at = |shape: &[i64], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let extent = |i| match (at(a, i), at(b, i)) {
        (m, n) if m == n || n == 1 => Ok(m),
        (1, n) => Ok(n),
        _ => Err(Fault::new(
            format!("{a:?} and {b:?} do not broadcast"),
            "check the extents that the spec gives the inputs",
        )),
    };
    (0..rank).map(extent).collect()
}

/// What a name of the model stands for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Bound {
    /// A tensor.
    Tensor(ValueId),
    /// Tensors in order.
    Sequence(Vec<ValueId>),
}

impl Bound {
    /// The tensor that it is.
    pub(super) fn tensor(&self) -> Result<ValueId, Fault> {
        match self {
            Bound::Tensor(id) => Ok(*id),
            Bound::Sequence(_) => {
                Err(Fault::new("it takes a sequence of tensors", "put them side by side, by ConcatFromSequence"))
            }
        }
    }
}

/// An operand that must be there and is not.
pub(super) fn missing(at: usize) -> Fault {
    Fault::new(format!("operand {at} is missing"), "export the model again")
}

/// The tensor in a place of the operands; none if it is left out.
pub(super) fn optional(x: &[Option<Bound>], at: usize) -> Result<Option<ValueId>, Fault> {
    x.get(at).and_then(Option::as_ref).map(Bound::tensor).transpose()
}

/// The tensor in a place of the operands.
pub(super) fn tensor(x: &[Option<Bound>], at: usize) -> Result<ValueId, Fault> {
    optional(x, at)?.ok_or_else(|| missing(at))
}
