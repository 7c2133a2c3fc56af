//! What functions of elements compute, in plain Rust and `f64`. The magnitudes are errors in units of roundoff of `f32`; those of the
//! functions of C's library and CUDA's are at most [`LIBRARY`].

use super::arg::{ArgExtreme, Extreme};
use super::binary::Function2;
use super::products::Sums;
use super::recurrent::{Recurrent, RecurrentPart};
use super::reference::{erf, repeated_places};
use super::unary::Function;
use super::{Binary, Gather, TopK, Where};
use crate::ir::{float_max, float_min};

/// The error of a function of a library, relative to its result.
const LIBRARY: f64 = 8.0;

/// 1 or 0.
fn truth(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

/// Where the extreme elements along a dimension are. Nothing is rounded.
pub(super) fn extreme(op: &ArgExtreme, x: &[f64]) -> Sums {
    let along = op.axis as usize;
    let (extent, inner) = (op.input[along] as usize, op.input[along + 1..].iter().product::<i64>() as usize);
    let mut values = vec![];
    for (outer, inner_at) in (0..x.len() / extent / inner).flat_map(|outer| (0..inner).map(move |at| (outer, at))) {
        let at = |k: usize| x[(outer * extent + k) * inner + inner_at];
        let mut best = 0;
        for k in 1..extent {
            let (here, before) = (at(k), at(best));
            let beyond = match op.extreme {
                Extreme::Largest => here > before,
                Extreme::Smallest => here < before,
            };
            let same = here == before || here.is_nan() && before.is_nan();
            if beyond && !before.is_nan() || here.is_nan() && !before.is_nan() || op.last && same {
                best = k;
            }
        }
        values.push(best as f64);
    }
    Sums { magnitudes: vec![0.0; values.len()], values, or_nan: vec![] }
}

/// The indices of the first elements along a dimension in their order. NaN is larger than all numbers.
pub(super) fn first_of_all(op: &TopK, x: &[f64]) -> Sums {
    let along = op.axis as usize;
    let (extent, inner) = (op.input[along] as usize, op.input[along + 1..].iter().product::<i64>() as usize);
    let (outer, k) = (x.len() / extent / inner, op.k as usize);
    let mut values = vec![0.0; outer * k * inner];
    for (block, column) in (0..outer).flat_map(|block| (0..inner).map(move |column| (block, column))) {
        let at = |i: usize| x[(block * extent + i) * inner + column];
        let ascending = |a: &usize, b: &usize| {
            let (a, b) = (at(*a), at(*b));
            a.partial_cmp(&b).unwrap_or(a.is_nan().cmp(&b.is_nan()))
        };
        let mut order: Vec<usize> = (0..extent).collect();
        // Both are stable: of equal elements the first comes first.
        match op.extreme {
            Extreme::Largest => order.sort_by(|a, b| ascending(b, a)),
            Extreme::Smallest => order.sort_by(ascending),
        }
        for (place, index) in order.iter().take(k).enumerate() {
            values[(block * k + place) * inner + column] = *index as f64;
        }
    }
    Sums { magnitudes: vec![0.0; values.len()], values, or_nan: vec![] }
}

/// The elements that indices name along a dimension, each counted from the end where it is below 0.
pub(super) fn gathered(op: &Gather, x: &[f64], chosen: &[f64]) -> Sums {
    let (axis, extent) = (op.axis as usize, op.extent());
    let inner = op.input[axis + 1..].iter().product::<i64>() as usize;
    let mut values = vec![];
    for outer in x.chunks(extent as usize * inner) {
        for index in chosen {
            let place = (*index as i64).rem_euclid(extent) as usize;
            values.extend(&outer[place * inner..][..inner]);
        }
    }
    Sums { magnitudes: vec![0.0; values.len()], values, or_nan: vec![] }
}

/// The elements of one tensor where those of a mask are not 0, and those of the other one where they are.
pub(super) fn selected(op: &Where, condition: &[f64], a: &[f64], b: &[f64]) -> Sums {
    let shape = op.output_shape();
    let [of_condition, of_a, of_b] = [op.condition, op.a, op.b].map(|own| repeated_places(&shape, &own));
    let places = of_condition.into_iter().zip(of_a).zip(of_b);
    let values: Vec<f64> =
        places.map(|((c, in_a), in_b)| if condition[c] != 0.0 { a[in_a] } else { b[in_b] }).collect();
    Sums { magnitudes: vec![0.0; values.len()], values, or_nan: vec![] }
}

/// A function of the elements of two tensors, the shapes aligned at their last dimensions.
pub(super) fn of_pairs(op: &Binary, a: &[f64], b: &[f64]) -> Sums {
    let shape = op.output_shape();
    let (mut values, mut magnitudes) = (vec![], vec![]);
    for (in_a, in_b) in repeated_places(&shape, &op.a).into_iter().zip(repeated_places(&shape, &op.b)) {
        let (a, b) = (a[in_a], b[in_b]);
        let y = match op.function {
            Function2::Add => a + b,
            Function2::Subtract => a - b,
            Function2::Multiply => a * b,
            Function2::Divide => a / b,
            Function2::Minimum => float_min(a, b),
            Function2::Maximum => float_max(a, b),
            Function2::Prelu if a < 0.0 => a * b,
            Function2::Prelu => a,
            Function2::Pow => a.powf(b),
            Function2::Fmod => a % b,
            Function2::Mod if a % b != 0.0 && (a % b < 0.0) != (b < 0.0) => a % b + b,
            Function2::Mod if a % b == 0.0 => 0f64.copysign(b),
            Function2::Mod => a % b,
            Function2::Equal => truth(a == b),
            Function2::Less => truth(a < b),
            Function2::LessOrEqual => truth(a <= b),
            Function2::Greater => truth(a > b),
            Function2::GreaterOrEqual => truth(a >= b),
            Function2::LogicalAnd => truth(a != 0.0 && b != 0.0),
            Function2::LogicalOr => truth(a != 0.0 || b != 0.0),
            Function2::LogicalXor => truth((a != 0.0) != (b != 0.0)),
        };
        let roundings = match op.function {
            Function2::Add | Function2::Subtract | Function2::Multiply | Function2::Divide => 1.0,
            Function2::Prelu if a < 0.0 => 1.0,
            Function2::Mod => 1.0,
            Function2::Pow => 2.0 * LIBRARY,
            _ => 0.0,
        };
        values.push(y);
        magnitudes.push(roundings * y.abs());
    }
    Sums { values, magnitudes, or_nan: vec![] }
}

/// A function of each element.
pub(super) fn of_elements(function: Function, x: &[f64]) -> Sums {
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let relative = |error: f64, y: f64| (y, error * y.abs());
    let one = |x: f64| match function {
        Function::Identity => (x, 0.0),
        Function::Abs => (x.abs(), 0.0),
        Function::Negate => (-x, 0.0),
        Function::Sign if x == 0.0 || x.is_nan() => (x, 0.0),
        Function::Sign => (x.signum(), 0.0),
        Function::Floor => (x.floor(), 0.0),
        Function::Ceil => (x.ceil(), 0.0),
        Function::Round => (x.round_ties_even(), 0.0),
        Function::Reciprocal => (1.0 / x, (1.0 / x).abs()),
        Function::Sqrt => (x.sqrt(), x.sqrt()),
        Function::Exp => (x.exp(), LIBRARY * x.exp()),
        Function::Log => (x.ln(), LIBRARY * x.ln().abs()),
        Function::Sin => (x.sin(), LIBRARY * x.sin().abs()),
        Function::Cos => (x.cos(), LIBRARY * x.cos().abs()),
        Function::Erf => (erf(x), LIBRARY),
        // The exponential, which is at most 1, its sum with 1, the logarithm, and the last sum.
        Function::Softplus if x.is_nan() => (x, 0.0),
        Function::Softplus => (softplus(x), 2.0 * LIBRARY + 2.0 + softplus(x)),
        Function::Softsign => (x / (1.0 + x.abs()), 3.0),
        Function::Mish if x.is_nan() => (x, 0.0),
        // The slope of tanh is at most 1, and falls as the square of what is left to 1 does.
        Function::Mish => {
            // Where the exponential is lost beside 1, it is the error.
            let of_softplus = (2.0 * LIBRARY + 2.0 + softplus(x)).min(4.0 * x.exp() * f64::from(1 << 24));
            let of_argument = of_softplus * (1.0 - softplus(x).tanh().powi(2));
            (x * softplus(x).tanh(), x.abs() * (of_argument + (LIBRARY + 2.0) * softplus(x).tanh()))
        }
        Function::Tan => relative(2.0 * LIBRARY + 1.0, x.tan()),
        // Of an arc tangent and its argument, which has up to four roundings.
        Function::Asin => relative(LIBRARY + 4.0, x.asin()),
        Function::Acos => relative(LIBRARY + 4.0, x.acos()),
        Function::Atan => relative(LIBRARY, x.atan()),
        // The difference of the exponentials from 1 on, or a quotient by what is above 0.78.
        Function::Sinh => relative(2.0 * LIBRARY, x.sinh()),
        Function::Cosh => relative(LIBRARY + 2.0, x.cosh()),
        // Of a logarithm and its argument, of which it has at most the relative error.
        Function::Asinh => relative(2.0 * LIBRARY + 8.0, x.asinh()),
        Function::Acosh => relative(2.0 * LIBRARY + 8.0, x.acosh()),
        Function::Atanh => relative(2.0 * LIBRARY + 8.0, x.atanh()),
        Function::LogicalNot => (truth(x == 0.0), 0.0),
        Function::IsNan => (truth(x.is_nan()), 0.0),
        Function::IsInf => (truth(x.is_infinite()), 0.0),
    };
    let (values, magnitudes) = x.iter().map(|x| one(*x)).unzip();
    Sums { values, magnitudes, or_nan: vec![] }
}

/// A step of time of a recurrent layer.
pub(super) fn of_states(op: &Recurrent, inputs: &[&[f64]]) -> Sums {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (mut values, mut magnitudes) = (vec![], vec![]);
    for (row, column) in (0..op.n as usize).flat_map(|row| (0..op.h as usize).map(move |column| (row, column))) {
        let h = op.h as usize;
        let gate = |operand: usize, gates: usize, gate: usize| inputs[operand][(row * gates + gate) * h + column];
        let state = |operand: usize| inputs[operand][row * h + column];
        // A sigmoid has the relative error of an exponential, a sum and a quotient; a tanh, which is at most 1, that of the library.
        let (value, error) = match op.part {
            RecurrentPart::LstmCell => {
                let (kept, new) = (sigmoid(gate(0, 4, 2)) * state(1), sigmoid(gate(0, 4, 0)) * gate(0, 4, 3).tanh());
                (kept + new, (LIBRARY + 4.0) * kept.abs() + (2.0 * LIBRARY + 4.0) * sigmoid(gate(0, 4, 0)))
            }
            RecurrentPart::LstmOutput => {
                let open = sigmoid(gate(0, 4, 1));
                (open * state(1).tanh(), (2.0 * LIBRARY + 3.0) * open)
            }
            RecurrentPart::GruCell => {
                let sum = |gate_at: usize| gate(0, 3, gate_at) + gate(1, 3, gate_at);
                // The slope of a sigmoid is its value times what is left to 1, by which the rounding of its argument counts.
                let of_sigmoid =
                    |x: f64| LIBRARY + 3.0 + if x.is_finite() { x.abs() * (1.0 - sigmoid(x)) } else { 0.0 };
                let (update, reset) = (sigmoid(sum(0)), sigmoid(sum(1)));
                let of_reset = reset * gate(1, 3, 2);
                let argument = gate(0, 3, 2) + of_reset;
                let new = argument.tanh();
                let of_argument = (of_sigmoid(sum(1)) + 1.0) * of_reset.abs() + argument.abs();
                let of_new = LIBRARY + if of_argument.is_finite() { of_argument * (1.0 - new * new) } else { 0.0 };
                let of_update = of_sigmoid(sum(0)) * update;
                let value = (1.0 - update) * new + update * state(2);
                let kept = (of_update + 2.0 * update) * state(2).abs();
                (value, (1.0 - update) * (of_new + 2.0) + of_update + 2.0 + kept + value.abs())
            }
        };
        values.push(value);
        magnitudes.push(error);
    }
    Sums { values, magnitudes, or_nan: vec![] }
}
