//! Functions of elements: of one tensor, of two, of a choice between two; activations.

use super::builder::{Builder, Call};
use super::operands::{broadcast, required};
use crate::ir::DType;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::{Epilogue, Number, Quant};

/// Operators of one tensor that are operators here.
const UNARY: &[(&str, &str)] = &[
    ("Abs", "abs"),
    ("Neg", "negate"),
    ("Sign", "sign"),
    ("Floor", "floor"),
    ("Ceil", "ceil"),
    ("Round", "round"),
    ("Reciprocal", "reciprocal"),
    ("Sqrt", "sqrt"),
    ("Exp", "exp"),
    ("Log", "log"),
    ("Sin", "sin"),
    ("Cos", "cos"),
    ("Erf", "erf"),
    ("Softplus", "softplus"),
    ("Softsign", "softsign"),
    ("Mish", "mish"),
    ("Tan", "tan"),
    ("Asin", "asin"),
    ("Acos", "acos"),
    ("Atan", "atan"),
    ("Sinh", "sinh"),
    ("Cosh", "cosh"),
    ("Asinh", "asinh"),
    ("Acosh", "acosh"),
    ("Atanh", "atanh"),
    ("Not", "logical_not"),
    ("IsNaN", "is_nan"),
    ("IsInf", "is_inf"),
];

/// Operators of two tensors.
const BINARY: &[(&str, &str)] = &[
    ("Add", "add"),
    ("Sum", "add"),
    ("Sub", "subtract"),
    ("Mul", "multiply"),
    ("Div", "divide"),
    ("Min", "minimum"),
    ("Max", "maximum"),
    ("PRelu", "prelu"),
    ("Pow", "pow"),
    ("Mod", "mod"),
    ("Equal", "equal"),
    ("Less", "less"),
    ("LessOrEqual", "less_or_equal"),
    ("Greater", "greater"),
    ("GreaterOrEqual", "greater_or_equal"),
    ("And", "logical_and"),
    ("Or", "logical_or"),
    ("Xor", "logical_xor"),
];

/// Operators that integers have as well: of constants they are shape arithmetic, and stay integers.
const OF_INTEGERS: [&str; 6] = ["Abs", "Neg", "Sign", "Not", "Relu", "Clip"];

/// The operand of a node: integers as numbers, unless its operator has integers.
fn number_or_integer(b: &mut Builder, node: &Node, x: ValueId) -> ValueId {
    if OF_INTEGERS.contains(&node.op.as_str()) { x } else { b.numbers(x) }
}

/// A function of each element, an activation included.
pub(super) fn unary(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    if node.op == "Relu" && b.is_integer(x) {
        let zero = b.add_constant(Tensor::integers(&[], [0]));
        return binary(b, "maximum", x, zero);
    }
    if node.op == "IsInf" {
        // What is beyond the largest number is infinite, of one sign if only that is asked for.
        let (kind, bound) = match (node.flag_or("detect_positive", true), node.flag_or("detect_negative", true)) {
            (true, true) => ("is_inf", 0.0),
            (true, false) => ("greater", f32::MAX),
            (false, true) => ("less", -f32::MAX),
            (false, false) => return Err(Fault::new("it detects no infinities", "leave it out")),
        };
        if kind != "is_inf" {
            let bound = b.add_constant(Tensor::floats(&[], [bound]));
            return binary(b, kind, x, bound);
        }
    }
    let (x, shape) = (number_or_integer(b, node, x), b.extents(x));
    let call = match UNARY.iter().find(|(op, _)| *op == node.op) {
        Some((_, kind)) => Call::new(kind, &[x]),
        None => Call::new("identity", &[x]).then(activation(node)?, &[]),
    };
    let y = b.compute(call.key("input", &shape))?;
    keep_scalar(b, y, &[x])
}

/// The activation that a node is.
fn activation(node: &Node) -> Result<Epilogue, Fault> {
    let value = |name: &str, otherwise| {
        let value = node.float(name, otherwise);
        Number::new(value).ok_or_else(|| Fault::attribute(name, value, "a finite number"))
    };
    Ok(match node.op.as_str() {
        "Relu" => Epilogue::Relu,
        "Sigmoid" => Epilogue::Sigmoid,
        "Tanh" => Epilogue::Tanh,
        "HardSwish" => Epilogue::HardSwish,
        "HardSigmoid" => match (node.float("alpha", 0.2), node.float("beta", 0.5)) {
            (alpha, 0.5) if (alpha - 1.0 / 6.0).abs() < 1e-6 => Epilogue::HardSigmoid,
            _ => Epilogue::HardSigmoidOf(value("alpha", 0.2)?, value("beta", 0.5)?),
        },
        "Swish" if node.float("alpha", 1.0) == 1.0 => Epilogue::Silu,
        "Swish" => return Err(Fault::attribute("alpha", node.float("alpha", 1.0), "an alpha of 1")),
        "Celu" if node.float("alpha", 1.0) <= 0.0 => {
            return Err(Fault::attribute("alpha", node.float("alpha", 1.0), "an alpha above 0"));
        }
        "Celu" => Epilogue::Celu(value("alpha", 1.0)?),
        "Elu" => Epilogue::Elu(value("alpha", 1.0)?),
        "LeakyRelu" => Epilogue::LeakyRelu(value("alpha", 0.01)?),
        "Gelu" if node.text("approximate", "none") == "tanh" => Epilogue::GeluTanh,
        "Gelu" => Epilogue::Gelu,
        "Selu" => Epilogue::Selu(value("alpha", 1.673_263_2)?, value("gamma", 1.050_701)?),
        "ThresholdedRelu" => Epilogue::ThresholdedRelu(value("alpha", 1.0)?),
        "Shrink" if node.float("lambd", 0.5) < 0.0 => {
            return Err(Fault::attribute("lambd", node.float("lambd", 0.5), "a lambd that is not below 0"));
        }
        "Shrink" => Epilogue::Shrink(value("lambd", 0.5)?, value("bias", 0.0)?),
        other => return Err(Fault::new(format!("{other} is no activation"), "report it")),
    })
}

/// `Clip`, whose bounds are attributes before version 11 and operands from then on.
pub(super) fn clip(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let mut bounds = [node.float("min", -f32::MAX), node.float("max", f32::MAX)];
    for (i, what) in ["lower bound", "upper bound"].iter().enumerate() {
        if let Some(id) = x.get(i + 1).copied().flatten() {
            bounds[i] = b.floats(what, id)?.first().copied().unwrap_or(bounds[i]);
        }
    }
    if b.is_integer(required(x, 0)?) {
        let mut y = required(x, 0)?;
        for (i, kind) in ["maximum", "minimum"].into_iter().enumerate() {
            if let Some(bound) = x.get(i + 1).copied().flatten() {
                y = binary(b, kind, y, bound)?;
            }
        }
        return Ok(y);
    }
    // Infinite bounds are none, and so are missing ones.
    let [low, high] = bounds.map(|bound| if bound.is_nan() { bound } else { bound.clamp(-f32::MAX, f32::MAX) });
    let x = required(x, 0)?;
    let finite = |name: &str, value| Number::new(value).ok_or_else(|| Fault::attribute(name, value, "a number"));
    let (least, most) = (finite("min", low)?, finite("max", high)?);
    if low > high {
        return Err(Fault::new(format!("its lower bound {low} is above its upper bound {high}"), "swap them"));
    }
    let step = match [low, high] {
        [0.0, 6.0] => Epilogue::Relu6,
        [0.0, f32::MAX] => Epilogue::Relu,
        [low, f32::MAX] if low == -f32::MAX => return Ok(x),
        _ => Epilogue::Clip(least, most),
    };
    let (x, shape) = (number_or_integer(b, node, x), b.extents(x));
    let y = b.compute(Call::new("identity", &[x]).key("input", &shape).then(step, &[]))?;
    keep_scalar(b, y, &[x])
}

/// A function of two tensors that broadcast; of more, one after the other.
pub(super) fn elementwise(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let kind = BINARY.iter().find(|(op, _)| *op == node.op).map_or("add", |(_, kind)| *kind);
    let kind = if node.op == "Mod" && node.flag("fmod") { "fmod" } else { kind };
    let mut y = required(x, 0)?;
    for (i, _) in x.iter().enumerate().skip(1) {
        let other = required(x, i)?;
        y = binary(b, kind, y, other)?;
    }
    if node.op == "Mean" {
        let parts = b.add_constant(Tensor::floats(&[1], [1.0 / x.len() as f32]));
        y = binary(b, "multiply", y, parts)?;
    }
    Ok(y)
}

/// A function of two tensors.
pub(super) fn binary(b: &mut Builder, kind: &'static str, x: ValueId, y: ValueId) -> Result<ValueId, Fault> {
    let (mut x, mut y) = (x, y);
    // Integers beside numbers are exponents and the like; among themselves they stay integers.
    let all_integer = [x, y].iter().all(|id| b.constant(*id).is_some_and(|c| c.is_integer()));
    if kind == "pow" && [x, y].iter().any(|id| b.is_integer(*id)) {
        return power_of_integers(b, x, y);
    }
    if [x, y].iter().any(|id| b.is_integer(*id)) {
        (x, y) = (b.as_integers(x)?, b.as_integers(y)?);
    } else if !all_integer {
        (x, y) = (b.numbers(x), b.numbers(y));
    }
    let (shape_x, shape_y) = (b.extents(x), b.extents(y));
    broadcast(&shape_x, &shape_y)?;
    let z = b.compute(Call::new(kind, &[x, y]).key("a", &shape_x).key("b", &shape_y))?;
    keep_scalar(b, z, &[x, y])
}

/// A power of which one operand or both are computed integers: an integer, if the base is.
fn power_of_integers(b: &mut Builder, x: ValueId, y: ValueId) -> Result<ValueId, Fault> {
    let [of_integers, by_integers] = [x, y].map(|id| b.holds_integers(id));
    let (base, exponent) = (b.as_floats(x)?, b.as_floats(y)?);
    let mut power = binary(b, "pow", base, exponent)?;
    if of_integers && by_integers {
        // It is whole, but for the last bit of an `f32`.
        let (shape, extents) = (b.shape(power), b.extents(power));
        power = b.compute(Call::new("round", &[power]).key("input", &extents))?;
        power = b.view(power, &shape)?;
    }
    if of_integers { b.as_integers(power) } else { Ok(power) }
}

/// `Where`.
pub(super) fn choose(b: &mut Builder, _: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let all = [required(x, 0)?, required(x, 1)?, required(x, 2)?];
    let is_integer = |b: &Builder, id: ValueId| b.constant(id).is_some_and(|c| c.is_integer());
    let constants = is_integer(b, all[1]) && is_integer(b, all[2]);
    let computed = b.constant(all[0]).is_none() || all[1..].iter().any(|id| b.constant(*id).is_none());
    let integers = constants || all[1..].iter().any(|id| b.is_integer(*id));
    let all = match (integers, computed) {
        (true, true) => [b.as_integers(all[0])?, b.as_integers(all[1])?, b.as_integers(all[2])?],
        (true, false) => all,
        (false, _) => [b.as_floats(all[0])?, b.numbers(all[1]), b.numbers(all[2])],
    };
    let [condition, x, y] = all.map(|id| b.extents(id));
    let call = Call::new("where", &all).key("condition", &condition).key("a", &x).key("b", &y);
    let call = if integers && computed { call.integers(DType::I32, Quant::default(), []) } else { call };
    let z = b.compute(call)?;
    keep_scalar(b, z, &all)
}

/// A result of scalars alone is a scalar; operators see one extent of 1.
fn keep_scalar(b: &mut Builder, y: ValueId, operands: &[ValueId]) -> Result<ValueId, Fault> {
    if operands.iter().all(|id| b.shape(*id).is_empty()) { b.view(y, &[]) } else { Ok(y) }
}

/// `BatchNormalization` at inference: a factor and a summand for each channel.
pub(super) fn batch_norm(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let image = required(x, 0)?;
    let mut numbers = vec![];
    for (i, what) in ["scale", "shift", "mean", "variance"].iter().enumerate() {
        numbers.push(b.floats(what, required(x, i + 1)?)?);
    }
    let [scale, shift, mean, variance] = &numbers[..] else { unreachable!("four were read") };
    let shape = b.shape(image);
    let channels = shape.get(1).copied().unwrap_or(0) as usize;
    if numbers.iter().any(|list| list.len() != channels) {
        return Err(Fault::new(format!("{channels} channels, and not as many numbers"), "export the model again"));
    }
    let epsilon = f64::from(node.float("epsilon", 1e-5));
    let factor = |c: usize| f64::from(scale[c]) / (f64::from(variance[c]) + epsilon).sqrt();
    let factors: Vec<f32> = (0..channels).map(|c| factor(c) as f32).collect();
    let summands = (0..channels).map(|c| (f64::from(shift[c]) - f64::from(mean[c]) * factor(c)) as f32);
    let summands: Vec<f32> = summands.collect();
    let of_channels = [channels as i64];
    let scale = b.add_constant(Tensor::floats(&of_channels, factors));
    let shift = b.add_constant(Tensor::floats(&of_channels, summands));
    b.compute(Call::new("identity", &[image]).key("input", &shape).then(Epilogue::Scale, &[scale, shift]))
}
