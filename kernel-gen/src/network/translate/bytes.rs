//! Integers of eight bits that no scale belongs to: images of a camera, masks, and what models do with integers between their pairs.
//!
//! What moves elements moves these as they are. A function of one of them is a table of 256. Everything else computes with them as with
//! integers of 32 bits, and what does not fit the type at the end wraps, as in numpy and ONNX Runtime.

use super::builder::{Builder, One};
use super::by_numbers;
use super::element::binary;
use super::operands::required;
use super::quantised::{dequantized, quantized};
use crate::ir::DType;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::{Tensor, number_of};
use crate::workload::Epilogue;

/// Operators that compute with elements, and what their results are.
const COMPUTED: [(&str, Gives); 24] = [
    ("Abs", Gives::Wraps),
    ("Neg", Gives::Wraps),
    ("Sign", Gives::Same),
    ("Relu", Gives::Same),
    ("Clip", Gives::Same),
    ("Add", Gives::Wraps),
    ("Sub", Gives::Wraps),
    ("Mul", Gives::Wraps),
    ("Div", Gives::Wraps),
    ("Mod", Gives::Same),
    ("Pow", Gives::Other),
    ("Min", Gives::Same),
    ("Max", Gives::Same),
    ("ReduceMin", Gives::Same),
    ("ReduceMax", Gives::Same),
    ("Where", Gives::Same),
    ("Equal", Gives::Other),
    ("Less", Gives::Other),
    ("LessOrEqual", Gives::Other),
    ("Greater", Gives::Other),
    ("GreaterOrEqual", Gives::Other),
    ("ArgMax", Gives::Other),
    ("ArgMin", Gives::Other),
    ("TopK", Gives::First),
];

/// What an operator makes of integers of eight bits.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Gives {
    /// Integers of their type, among those that it takes or between them.
    Same,
    /// Integers that may be beyond the type's.
    Wraps,
    /// Integers of their type first, and indices behind them.
    First,
    /// Truth values, indices, or powers of what is not among them.
    Other,
}

/// What a node makes of operands among which are integers of eight bits, and their type; none if it takes them as they are, or has none.
pub(super) fn computed(b: &Builder, node: &Node, operands: &[Option<ValueId>]) -> Option<(DType, Gives)> {
    let (_, gives) = COMPUTED.iter().find(|(op, _)| *op == node.op)?;
    let dtype = operands.iter().flatten().find_map(|id| b.byte(*id))?;
    Some((dtype, *gives))
}

/// Operands with integers of 32 bits in the place of those of eight.
pub(super) fn widened(b: &mut Builder, operands: &[Option<ValueId>]) -> Result<Vec<Option<ValueId>>, Fault> {
    let wide = |id: &Option<ValueId>| match id {
        Some(id) if b.byte(*id).is_some() => b.as_integers(*id).map(Some),
        id => Ok(*id),
    };
    operands.iter().map(wide).collect()
}

/// The result of an operator on integers of eight bits.
pub(super) fn result(
    b: &mut Builder,
    node: &Node,
    operands: &[Option<ValueId>],
    make: One,
    (dtype, gives): (DType, Gives),
) -> Result<ValueId, Fault> {
    if gives == Gives::Other {
        let wide = widened(b, operands)?;
        return make(b, node, &wide);
    }
    if let Some(of) = only_one(b, node, operands) {
        let every = b.add_constant(Tensor::every_byte(dtype));
        let all: Vec<Option<ValueId>> =
            operands.iter().map(|id| if *id == Some(of) { Some(every) } else { *id }).collect();
        let made = make(b, node, &all)?;
        let table = b.as_byte(made, dtype, true)?;
        return by_numbers::looked_up(b, of, table);
    }
    let wide = widened(b, operands)?;
    let made = make(b, node, &wide)?;
    b.as_byte(made, dtype, gives == Gives::Wraps)
}

/// The one tensor that a function of each element is of: all other operands are known numbers, which leave its shape as it is.
fn only_one(b: &Builder, node: &Node, operands: &[Option<ValueId>]) -> Option<ValueId> {
    if node.op.starts_with("Reduce") || node.op == "Where" {
        return None;
    }
    let mut computed = operands.iter().flatten().filter(|id| b.constant(**id).is_none());
    let of = *computed.next()?;
    let rank = b.shape(of).len();
    let known = |id: &ValueId| b.constant(*id).is_some_and(|c| c.data.len() == 1 && c.shape.len() <= rank);
    let fits = operands.iter().flatten().all(|id| *id == of || known(id));
    (fits && b.byte(of).is_some()).then_some(of)
}

/// An operator that computes with numbers alone, such as a resize by lines: on integers of any width, cut off in the end.
pub(super) fn by_numbers_of(b: &mut Builder, node: &Node, x: &[Option<ValueId>], make: One) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let byte = b.byte(input);
    let mut operands = x.to_vec();
    operands[0] = Some(b.as_floats(input)?);
    let made = make(b, node, &operands)?;
    match byte {
        Some(dtype) => b.as_byte(made, dtype, false),
        None => b.as_integers(made),
    }
}

impl Builder {
    /// The type of eight bits of a tensor that is computed or given.
    pub(super) fn byte(&self, id: ValueId) -> Option<DType> {
        let dtype = self.program.values[id].dtype;
        (self.constant(id).is_none() && dtype.is_byte()).then_some(dtype)
    }

    /// Integers of eight bits as numbers.
    pub(super) fn bytes_as_floats(&mut self, id: ValueId) -> Result<ValueId, Fault> {
        let one = self.add_constant(Tensor::floats(&[], [1.0]));
        dequantized(self, id, one, None)
    }

    /// A value as integers of eight bits: numbers are cut off towards zero. What may be beyond the type's wraps.
    pub(super) fn as_byte(&mut self, id: ValueId, dtype: DType, wraps: bool) -> Result<ValueId, Fault> {
        if let Some(tensor) = self.constant(id) {
            let cast = number_of(dtype).and_then(|number| tensor.cast(number)).unwrap_or(tensor);
            return Ok(self.add_constant(cast));
        }
        let mut id = id;
        match self.byte(id) {
            Some(of) if of == dtype => return Ok(id),
            Some(of) => {
                let every = self.add_constant(Tensor::every_byte(of));
                let table = self.as_byte(every, dtype, wraps)?;
                return by_numbers::looked_up(self, id, table);
            }
            None => {}
        }
        if !self.is_truth(id) {
            let wraps = wraps && !self.is_within(id, dtype);
            id = self.as_integers(id)?;
            id = if wraps { self.wrapped(id, dtype)? } else { id };
            id = self.as_floats(id)?;
        }
        let one = self.add_constant(Tensor::floats(&[], [1.0]));
        let zero = self.add_constant(Tensor::bytes(&[1], dtype, [0]));
        quantized(self, id, one, (zero, dtype))
    }

    /// Whether a value is held to numbers of a type of eight bits by the last thing that is done to it.
    fn is_within(&self, id: ValueId, dtype: DType) -> bool {
        let (least, most) = dtype.limits().unwrap_or_default();
        let inside = |low: f64, high: f64| low >= least as f64 && high <= most as f64;
        match self.origin(id).1.and_then(|step| step.workload.epilogue.last()) {
            Some(Epilogue::Clip(low, high)) => inside(low.get(), high.get()),
            Some(Epilogue::Relu6) => inside(0.0, 6.0),
            _ => false,
        }
    }

    /// Integers of 32 bits as far as eight bits of them go.
    fn wrapped(&mut self, id: ValueId, dtype: DType) -> Result<ValueId, Fault> {
        let (least, most) = dtype.limits().unwrap_or_default();
        let [least_of, count] = [least, most - least + 1].map(|n| self.add_constant(Tensor::integers(&[], [n])));
        if least == 0 {
            return binary(self, "mod", id, count);
        }
        let above = binary(self, "subtract", id, least_of)?;
        let within = binary(self, "mod", above, count)?;
        binary(self, "add", within, least_of)
    }
}
