//! Operators on integers of eight bits, as quantised networks have them.
//!
//! An integer `q` stands for the number `s (q - z)`: `s` is the scale of its tensor, `z` the integer that stands for 0, its zero point
//! (ONNX, `QuantizeLinear`). An operator adds up `(x - z_x)(w - z_w)` as an `i32`, which is exact; padding stands for 0. Scales are a
//! matter of the epilogue: `dequantize` makes an `f32` of the sum, `requantize` an integer of eight bits, `quantize` makes one of an
//! `f32`.

use super::error::WorkloadError;
use super::operator::{FLOATS, OfBytes, OfI32};
use super::param::Role;
use super::products::Sums;
use super::reference::channel_of_element;
use super::{Epilogue, Op, Workload};
use crate::ir::DType;

/// What a workload on integers of eight bits has beside them. Of other workloads it is the default and means nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Quant {
    /// Type of the weights: `i8` or `u8`.
    pub weight: DType,
    /// Whether the input has a zero point that need not be 0: a parameter of one element.
    pub input_zero: bool,
    /// Which zero points the weights have.
    pub weight_zero: WeightZero,
}

impl Default for Quant {
    fn default() -> Quant {
        Quant { weight: DType::I8, input_zero: false, weight_zero: WeightZero::None }
    }
}

/// The zero points of weights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WeightZero {
    /// It is 0.
    None,
    /// One for all: a parameter of one element.
    Tensor,
    /// One for each output channel.
    Channel,
}

impl Quant {
    /// The zero points that there are, as specs call them.
    pub fn zero_points(&self) -> impl Iterator<Item = &'static str> {
        let weight = match self.weight_zero {
            WeightZero::None => None,
            WeightZero::Tensor => Some("weight"),
            WeightZero::Channel => Some("weight_per_channel"),
        };
        self.input_zero.then_some("input").into_iter().chain(weight)
    }
}

/// The types that a workload on integers of eight bits may give.
const OUTPUTS: [DType; 6] = [DType::I32, DType::I8, DType::U8, DType::F32, DType::F16, DType::Bf16];

impl Workload {
    /// Whether it computes with integers of eight bits.
    pub fn is_quantised(&self) -> bool {
        self.dtype.is_byte()
    }

    /// The type of its sums.
    pub(crate) fn sums(&self) -> DType {
        let moves = self.dtype == DType::I32 && self.op.get().of_i32() == OfI32::Moves;
        if self.is_quantised() || moves { DType::I32 } else { DType::F32 }
    }

    /// The types of the input and of the weights.
    pub(crate) fn operand_types(&self) -> [DType; 2] {
        [self.dtype, if self.is_quantised() { self.quant.weight } else { self.dtype }]
    }

    /// Whether the operator has weights of [`Quant::weight`]'s type; a table has the output's.
    pub(crate) fn has_weight(&self) -> bool {
        self.op.get().of_bytes() != OfBytes::Bytes
            && self.op.get().inputs().iter().any(|operand| operand.role == Role::Weight)
    }
}

/// Refuses a padding of integers with a number that is none of them.
pub(super) fn check_padding(w: &Workload) -> Result<(), WorkloadError> {
    let Op::Movement(movement) = w.op else { return Ok(()) };
    let (Some((least, most)), Some(number)) = (w.dtype.limits(), movement.around()) else { return Ok(()) };
    if number.fract() == 0.0 && (least as f64..=most as f64).contains(&number) {
        return Ok(());
    }
    let help = "pad with an integer of the input's type";
    Err(WorkloadError::Quantised { cause: format!("the padding is {number}, which is no {}", w.dtype), help })
}

/// Refuses floats of eight bits where an operator does not take them, and beside integers.
pub(super) fn check_f8(w: &Workload) -> Result<(), WorkloadError> {
    let error = |cause: String, help| Err(WorkloadError::Quantised { cause, help });
    let (operator, f8) = (w.op.get(), if w.dtype.is_f8() { w.dtype } else { w.out_dtype });
    if !matches!(operator.of_bytes(), OfBytes::Sums | OfBytes::Floats) || operator.kind().outputs != FLOATS {
        let help = "use f32, f16 or bf16, or an operator that takes floats of eight bits: conv2d, depthwise_conv2d, conv1d, conv3d, \
                    conv_transpose1d to 3d, matmul, batch_matmul, scaled_matmul, identity";
        return error(format!("{} has no {f8}", w.op_name()), help);
    }
    if w.is_quantised() {
        let help = "use out_dtype i32, i8, u8, f32, f16 or bf16";
        return error(format!("sums of integers become no {f8}"), help);
    }
    Ok(())
}

/// Holds types, zero points and the steps that need integers, or make them, against each other.
pub(super) fn check(w: &Workload) -> Result<(), WorkloadError> {
    let error = |cause: String, help| Err(WorkloadError::Quantised { cause, help });
    let quant = w.quant;
    if w.op.get().of_bytes() == OfBytes::Bytes {
        return match (w.is_quantised() && w.out_dtype.is_byte(), w.epilogue.is_empty() && quant == Quant::default()) {
            (true, true) => Ok(()),
            (false, _) => error(
                format!("{} takes {} and gives {}", w.op_name(), w.dtype, w.out_dtype),
                "use dtype and out_dtype i8 or u8",
            ),
            (_, false) => error(
                format!("the table of {} holds all that it does", w.op_name()),
                "leave the epilogue, zero points and the type of weights out",
            ),
        };
    }
    if !w.is_quantised() {
        if quant != Quant::default() {
            let help = "leave zero points and the type of the weights out, or use dtype i8 or u8";
            return error(format!("the input is {}, which has no zero point", w.dtype), help);
        }
        if let Some(step) = w
            .epilogue
            .iter()
            .find(|s| matches!(s, Epilogue::Dequantize | Epilogue::Requantize | Epilogue::RequantizeAdd))
        {
            let help = "use dtype i8 or u8, or `quantize` for a result in f32";
            return error(format!("`{step}` takes sums of integers, but the input is {}", w.dtype), help);
        }
        let quantizes = w.epilogue.last() == Some(&Epilogue::Quantize);
        return match (quantizes, w.out_dtype.is_byte()) {
            (true, false) => error(
                format!("`quantize` gives integers of eight bits, but the output is {}", w.out_dtype),
                "use out_dtype i8 or u8",
            ),
            (true, true) if w.op.get().kind().outputs != FLOATS => {
                error("the output holds indices, which are not quantised".into(), "leave `quantize` out")
            }
            _ => Ok(()),
        };
    }
    if matches!(w.op.get().of_bytes(), OfBytes::Nothing | OfBytes::Floats) {
        let help = "use f32, f16 or bf16, or an operator that takes integers: conv2d, depthwise_conv2d, conv1d, conv3d, \
                    conv_transpose1d to 3d, matmul, batch_matmul, identity, max_pool2d, permute and its like";
        return error(format!("{} does not take inputs of type {}", w.op_name(), w.dtype), help);
    }
    if w.op.get().of_bytes() == OfBytes::Moves {
        return match (w.out_dtype == w.dtype, w.epilogue.is_empty() && quant == Quant::default()) {
            (true, true) => Ok(()),
            (false, _) => error(
                format!("{} gives what it takes, {}, not {}", w.op_name(), w.dtype, w.out_dtype),
                "leave out_dtype out",
            ),
            (_, false) => {
                error(format!("{} only moves integers", w.op_name()), "leave the epilogue and zero points out")
            }
        };
    }
    if !quant.weight.is_byte() {
        return error(format!("the weights have type {}", quant.weight), "use i8 or u8");
    }
    if !w.has_weight() && (quant.weight, quant.weight_zero) != (DType::I8, WeightZero::None) {
        return error(format!("{} has no weights", w.op_name()), "leave the type and zero point of weights out");
    }
    if !OUTPUTS.contains(&w.out_dtype) {
        let help = "use i32, i8, u8, f32, f16 or bf16";
        return error(format!("the output type {} is none for integers", w.out_dtype), help);
    }
    let position = |steps: &[Epilogue]| w.epilogue.iter().position(|s| steps.contains(s));
    let becomes = position(&[Epilogue::Dequantize, Epilogue::Requantize, Epilogue::RequantizeAdd]);
    let of_integers = &w.epilogue[..becomes.unwrap_or(w.epilogue.len())];
    if let Some(step) = of_integers.iter().find(|s| **s != Epilogue::Bias) {
        return error(format!("`{step}` takes a number, but the sum is an integer"), "put `dequantize` in front of it");
    }
    match (becomes.map(|at| w.epilogue[at]), w.epilogue.last() == Some(&Epilogue::Quantize), w.out_dtype) {
        (None, _, DType::I32)
        | (Some(Epilogue::Requantize | Epilogue::RequantizeAdd), _, DType::I8 | DType::U8)
        | (Some(Epilogue::Dequantize), true, DType::I8 | DType::U8)
        | (Some(Epilogue::Dequantize), false, DType::F32 | DType::F16 | DType::Bf16) => {}
        (None, _, out) => {
            let help =
                "use out_dtype i32, or end the epilogue with `requantize` (i8, u8) or `dequantize` (f32, f16, bf16)";
            return error(format!("the output is {out}, but sums are i32"), help);
        }
        (Some(_), true, out) => {
            return error(format!("`quantize` gives integers of eight bits, but the output is {out}"), "use i8 or u8");
        }
        (Some(step), _, out) => {
            let help = "`dequantize` gives f32, f16 or bf16, `requantize` i8 or u8";
            return error(format!("the output is {out} behind `{step}`"), help);
        }
    }
    let terms = w.reduction_length();
    let weights = w.has_weight().then_some((quant.weight, quant.weight_zero != WeightZero::None));
    let largest = largest_sum(terms, weights);
    if largest > i64::from(i32::MAX) {
        let help = "a sum must fit an i32, whatever the operands: cut the reduction into parts";
        return error(format!("a sum of {terms} products may be as large as {largest}"), help);
    }
    Ok(())
}

/// The largest absolute value that a sum of `terms` products can have. `weights` is the type of the weights and whether they have zero
/// points; none if the operator has no weights.
pub(crate) fn largest_sum(terms: i64, weights: Option<(DType, bool)>) -> i64 {
    // What a weight's distance from its zero point may be.
    let weight = match weights {
        None => 1,
        Some((DType::U8, _) | (_, true)) => 255,
        Some(_) => 128,
    };
    // Kernels may take signed inputs as unsigned ones that are 128 larger, so that their sums, too, must fit.
    terms.saturating_mul(255 * weight)
}

/// The parameters of zero points: their names, types, elements.
pub(super) fn zero_points(w: &Workload, channels: i64) -> Vec<(&'static str, DType, i64)> {
    if !w.is_quantised() {
        return vec![];
    }
    let input = w.quant.input_zero.then_some(("input_zero", w.dtype, 1));
    let weight = match w.quant.weight_zero {
        WeightZero::None => None,
        WeightZero::Tensor => Some(("weight_zero", w.quant.weight, 1)),
        WeightZero::Channel => Some(("weight_zero", w.quant.weight, channels)),
    };
    input.into_iter().chain(weight).collect()
}

/// An `f32` as an integer of eight bits around a zero point, by its definition in plain Rust: rounded to the nearest, ties to even, and
/// held to the limits of the type.
pub(super) fn saturate(value: f32, zero: f64, dtype: DType) -> f64 {
    let (low, high) = dtype.limits().unwrap_or((i64::MIN, i64::MAX));
    (f64::from(value.round_ties_even()) + zero).clamp(low as f64, high as f64)
}

/// The sums of a workload on integers, which are exact.
pub(super) fn sums(w: &Workload, inputs: &[&[f64]]) -> Sums {
    let operator = w.op.get();
    let (own, zeros) = (operator.inputs(), zero_points(w, w.channels()));
    let zero = |name: &str| zeros.iter().position(|z| z.0 == name).map(|at| inputs[own.len() + at]);
    let mut operands: Vec<Vec<f64>> = inputs[..own.len()].iter().map(|x| x.to_vec()).collect();
    let weight = own.iter().position(|operand| operand.role == Role::Weight);
    if let Some(zero) = zero("input_zero") {
        operands
            .iter_mut()
            .zip(&own)
            .filter(|(_, o)| o.role == Role::Input)
            .flat_map(|(x, _)| x)
            .for_each(|x| *x -= zero[0]);
    }
    let views = |operands: &[Vec<f64>]| {
        let views: Vec<&[f64]> = operands.iter().map(Vec::as_slice).collect();
        operator.reference(w, &views)
    };
    let mut sums = views(&operands);
    if let (Some(zeros), Some(weight)) = (zero("weight_zero"), weight) {
        operands[weight].fill(1.0);
        let channel = channel_of_element(w);
        for (i, (sum, ones)) in sums.values.iter_mut().zip(views(&operands).values).enumerate() {
            *sum -= zeros[if zeros.len() == 1 { 0 } else { channel(i) }] * ones;
        }
    }
    sums.magnitudes.fill(0.0);
    sums
}
