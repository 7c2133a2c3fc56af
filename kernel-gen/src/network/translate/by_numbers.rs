//! Operators of ONNX Runtime on integers of eight bits that are computed by numbers: they take apart what their integers stand for, do what
//! the operator on numbers does, and give integers again.

use super::builder::{Builder, Call};
use super::operands::required;
use super::quantised::{as_it_is, bytes, dequantized, quantized, scale, zero, zero_of_output};
use super::{element, movement, row, window};
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;

/// Makes the result of a node.
type One = fn(&mut Builder, &Node, &[Option<ValueId>]) -> Result<ValueId, Fault>;

/// An operator by the one on numbers.
struct ByNumbers {
    /// Its name.
    name: &'static str,
    /// That of the operator on numbers, and what makes that.
    of: (&'static str, One),
    /// Operands that are no integers of eight bits: they come first.
    others: usize,
    /// Operands with a scale and a zero point behind each.
    operands: usize,
    /// Whether it is a function of each element, which a table is for.
    is_function: bool,
}

const BY_NUMBERS: [ByNumbers; 8] = [
    ByNumbers { name: "QLinearMul", of: ("Mul", element::elementwise), others: 0, operands: 2, is_function: false },
    ByNumbers { name: "QLinearSigmoid", of: ("Sigmoid", element::unary), others: 0, operands: 1, is_function: true },
    ByNumbers {
        name: "QLinearLeakyRelu",
        of: ("LeakyRelu", element::unary),
        others: 0,
        operands: 1,
        is_function: true,
    },
    ByNumbers { name: "QLinearSoftmax", of: ("Softmax", row::softmax), others: 0, operands: 1, is_function: false },
    ByNumbers {
        name: "QLinearAveragePool",
        of: ("AveragePool", window::pool),
        others: 0,
        operands: 1,
        is_function: false,
    },
    ByNumbers {
        name: "QLinearGlobalAveragePool",
        of: ("GlobalAveragePool", window::pool),
        others: 0,
        operands: 1,
        is_function: false,
    },
    ByNumbers {
        name: "QLinearReduceMean",
        of: ("ReduceMean", row::reduce),
        others: 0,
        operands: 1,
        is_function: false,
    },
    ByNumbers { name: "QLinearWhere", of: ("Where", element::choose), others: 1, operands: 2, is_function: false },
];

/// The names of these operators.
pub(in crate::network) const NAMES: [&str; BY_NUMBERS.len()] = {
    let (mut names, mut i) = ([""; BY_NUMBERS.len()], 0);
    while i < names.len() {
        names[i] = BY_NUMBERS[i].name;
        i += 1;
    }
    names
};

/// An operator that is in the list.
pub(super) fn by_numbers(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let found = BY_NUMBERS.iter().find(|found| found.name == node.op);
    let ByNumbers { of: (name, make), others, operands, is_function, .. } =
        found.ok_or_else(|| Fault::new(format!("there is no {} by numbers", node.op), "report it"))?;
    if node.flag("channels_last") {
        return Err(Fault::attribute("channels_last", 1, "0"));
    }
    let input = required(x, 0)?;
    let mut numbers: Vec<Option<ValueId>> = (0..*others).map(|at| x.get(at).copied().flatten()).collect();
    for at in (0..*operands).map(|at| others + 3 * at) {
        let of = if *is_function { every_integer(b, input)? } else { required(x, at)? };
        let zero = zero(b, x, at + 2);
        numbers.push(Some(dequantized(b, of, required(x, at + 1)?, zero)?));
    }
    // The operator on numbers is that of the version that the attribute says.
    let opset = b.opset;
    b.opset = node.integer("opset", opset);
    let made = make(b, &Node { op: (*name).into(), ..node.clone() }, &numbers);
    b.opset = opset;
    let at = others + 3 * operands;
    let output = zero_of_output(b, x.get(at + 1).copied().flatten())?;
    let made = made?;
    let y = quantized(b, made, required(x, at)?, output)?;
    if *is_function { looked_up(b, input, y) } else { Ok(y) }
}

/// All integers of the type of a value, in the order of a table.
fn every_integer(b: &mut Builder, of: ValueId) -> Result<ValueId, Fault> {
    let dtype = bytes(b, of)?;
    Ok(b.add_constant(Tensor::every_byte(dtype)))
}

/// The entries of a table that integers stand for.
fn looked_up(b: &mut Builder, of: ValueId, table: ValueId) -> Result<ValueId, Fault> {
    let (shape, dtype) = (b.shape(of), bytes(b, table)?);
    bytes(b, of)?;
    let elements = as_it_is(&shape);
    let of = b.view(of, &elements)?;
    let y = b.compute(Call::new("lookup", &[of, table]).key("input", &elements).gives(dtype))?;
    b.view(y, &shape)
}

/// [`TABLE`](crate::network::qdq::TABLE): integers, and a table of what they become.
pub(super) fn lookup(b: &mut Builder, _: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    looked_up(b, required(x, 0)?, required(x, 1)?)
}

/// `QLinearConcat`: scale and zero point of the result, and operands with theirs. What has those of the result is moved as it is.
pub(super) fn concat(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let to = required(x, 0)?;
    let (out_zero, dtype) = zero_of_output(b, x.get(1).copied().flatten())?;
    let of_output = (scale(b, "scale of its output", to)?, b.integers("zero points", out_zero)?[0]);
    let mut operands = vec![];
    for at in (2..x.len()).step_by(3) {
        let (of, own) = (required(x, at)?, scale(b, "scale of an operand", required(x, at + 1)?)?);
        let own_zero = zero(b, x, at + 2);
        let known = own_zero.map_or(Ok(0), |id| b.integers("zero points", id).map(|all| all[0]))?;
        if (own, known) == of_output && b.program.values[of].dtype == dtype {
            operands.push(Some(of));
            continue;
        }
        let (all, scale) = (every_integer(b, of)?, required(x, at + 1)?);
        let numbers = dequantized(b, all, scale, own_zero)?;
        let table = quantized(b, numbers, to, (out_zero, dtype))?;
        operands.push(Some(looked_up(b, of, table)?));
    }
    movement::concat(b, node, &operands)
}
