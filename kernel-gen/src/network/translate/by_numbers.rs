//! Operators of ONNX Runtime on integers of eight bits that are computed by numbers: they take apart what their integers stand for, do what
//! the operator on numbers does, and give integers again.

use super::builder::{Builder, Call, One};
use super::operands::required;
use super::quantised::{as_it_is, bytes, dequantized, of_windows, quantized, scale, zero, zero_of_output};
use super::window::Window;
use super::{element, movement, row, window};
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::Epilogue;

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
    if let Some(made) = in_integers(b, node, x)? {
        return Ok(made);
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

/// Multiplication by a factor for each channel, and average pooling of windows that all have the same number of elements: on the integers,
/// without a floating-point tensor in memory. None of anything else.
fn in_integers(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<Option<ValueId>, Fault> {
    let images = |b: &Builder, at: usize| {
        let id = x.get(at).copied().flatten()?;
        let shape = b.shape(id);
        (b.byte(id).is_some() && shape.len() == 4 && shape[1] > 1).then_some((id, shape))
    };
    match node.op.as_str() {
        "QLinearMul" => {
            for (of, by) in [(0, 3), (3, 0)] {
                let (Some((image, shape)), Some((gate, factors))) = (images(b, of), images(b, by)) else { continue };
                if factors == [shape[0], shape[1], 1, 1] && shape != factors {
                    return gated(b, x, (of, image), (by, gate)).map(Some);
                }
            }
            Ok(None)
        }
        "QLinearAveragePool" | "QLinearGlobalAveragePool" => match images(b, 0) {
            Some((image, shape)) => averaged(b, node, x, image, &shape),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Images by a factor for each of their channels. `of` and `by` are where they stand among the operands.
fn gated(
    b: &mut Builder,
    x: &[Option<ValueId>],
    (of, image): (usize, ValueId),
    (by, gate): (usize, ValueId),
) -> Result<ValueId, Fault> {
    let shape = b.shape(image);
    let zero_of_gate = zero(b, x, by + 2);
    let factors = dequantized(b, gate, required(x, by + 1)?, zero_of_gate)?;
    let factors = b.view(factors, &shape[..2])?;
    let own = scale(b, "scale of a factor", required(x, of + 1)?)?;
    let own = b.add_constant(Tensor::floats(&shape[1..2], vec![own; shape[1] as usize]));
    let zero_of_image = zero(b, x, of + 2);
    let call = of_windows(b, image, zero_of_image, &[1, 1], |call| call)?;
    let to = required(x, 6)?;
    let to = b.view(to, &[1])?;
    let (out_zero, dtype) = zero_of_output(b, x.get(7).copied().flatten())?;
    let call = call.then(Epilogue::Dequantize, &[own]).then(Epilogue::Gate, &[factors]);
    b.compute(call.then(Epilogue::Quantize, &[to, out_zero]).gives(dtype))
}

/// Most elements of a window whose sum is one of products by 1.
const MOST_TAPS: i64 = 64;

/// Means of windows that all have as many elements.
fn averaged(
    b: &mut Builder,
    node: &Node,
    x: &[Option<ValueId>],
    image: ValueId,
    shape: &[i64],
) -> Result<Option<ValueId>, Fault> {
    let global = node.op.contains("Global");
    let taps = if global { shape[2..].to_vec() } else { node.integers("kernel_shape").unwrap_or_default() };
    let count = taps.iter().try_fold(1i64, |n, extent| n.checked_mul(*extent));
    let Some(count) = count.filter(|count| taps.len() == 2 && (1..=MOST_TAPS).contains(count)) else { return Ok(None) };
    let plain = Node::default();
    let window = Window::of(if global { &plain } else { node }, &shape[2..], &taps)?;
    let pads = window.padding.iter().any(|n| *n != 0);
    if node.flag("ceil_mode") || pads && !node.flag("count_include_pad") {
        return Ok(None);
    }
    let own = scale(b, "scale of its input", required(x, 1)?)?;
    let to = scale(b, "scale of its output", required(x, 3)?)?;
    let multiplier = vec![own / to / count as f32; shape[1] as usize];
    let multiplier = b.add_constant(Tensor::floats(&shape[1..2], multiplier));
    let own_zero = zero(b, x, 2);
    let call = of_windows(b, image, own_zero, &taps, |call| window.keys(call))?;
    let (out_zero, dtype) = zero_of_output(b, x.get(4).copied().flatten())?;
    b.compute(call.then(Epilogue::Requantize, &[multiplier, out_zero]).gives(dtype)).map(Some)
}

/// All integers of the type of a value, in the order of a table.
fn every_integer(b: &mut Builder, of: ValueId) -> Result<ValueId, Fault> {
    let dtype = bytes(b, of)?;
    Ok(b.add_constant(Tensor::every_byte(dtype)))
}

/// The entries of a table that integers stand for.
pub(super) fn looked_up(b: &mut Builder, of: ValueId, table: ValueId) -> Result<ValueId, Fault> {
    let (shape, dtype) = (b.shape(of), bytes(b, table)?);
    bytes(b, of)?;
    let elements = as_it_is(&shape);
    let of = b.view(of, &elements)?;
    let y = b.compute(Call::new("lookup", &[of, table]).key("input", &elements).gives(dtype))?;
    b.view(y, &shape)
}

/// [`TABLE`](crate::network::model::TABLE): integers, and a table of what they become.
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
