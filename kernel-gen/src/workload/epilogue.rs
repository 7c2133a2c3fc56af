//! What is done to each output element after the reduction, in the same kernel.

use super::error::WorkloadError;
pub use super::number::Number;
use super::param::Role;
use crate::ir::{BinOp, DType, Expr, UnOp};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use std::fmt;

/// One step of an epilogue. The steps apply in the order of the list, in `f32`, to the finished sum; the result is
/// converted to the output type once, at the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Epilogue {
    /// `v + bias[c]`, c being the output channel (the column of a matmul).
    Bias,
    /// `max(v, 0)`; NaN stays NaN.
    Relu,
    /// `min(max(v, 0), 6)`; NaN stays NaN.
    Relu6,
    /// The Gaussian error linear unit in its exact form, `0.5 * v * (1 + erf(v / sqrt(2)))`; not the tanh
    /// approximation.
    Gelu,
    /// `v + residual[..]`, a tensor of the output's shape and type.
    ResidualAdd,
    /// `v * scale[c] + shift[c]`: a batch normalisation folded into one factor and one summand a channel.
    Scale,
    /// `v * factor[..]`, a tensor of the output's shape and type.
    Multiply,
    /// `v * gate[n][c]`, n being the image and c the output channel: squeeze-and-excite.
    Gate,
    /// `v + image_bias[n][c]`.
    ImageBias,
    /// The logistic function, `1 / (1 + exp(-v))`.
    Sigmoid,
    /// `v / (1 + exp(-v))`, also called swish; NaN of minus infinity.
    Silu,
    /// `min(max(v / 6 + 0.5, 0), 1)`.
    HardSigmoid,
    /// `v * min(max(v + 3, 0), 6) / 6`; NaN of minus infinity.
    HardSwish,
    /// The hyperbolic tangent.
    Tanh,
    /// The approximation of GELU by a hyperbolic tangent, `0.5 * v * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 * v^3)))`.
    GeluTanh,
    /// `v` where it is positive, else `alpha * (exp(v) - 1)`: `elu(alpha)`.
    Elu(Number),
    /// `v` where it is positive, else `alpha * v`: `leaky_relu(alpha)`.
    LeakyRelu(Number),
    /// `min(max(v, low), high)`; NaN stays NaN: `clip(low, high)`.
    Clip(Number, Number),
    /// [`Epilogue::HardSigmoid`] with another slope and summand, `min(max(alpha * v + beta, 0), 1)`: `hard_sigmoid(alpha, beta)`.
    HardSigmoidOf(Number, Number),
    /// `gamma * v` where it is positive, else `gamma * alpha * (exp(v) - 1)`: `selu(alpha, gamma)`.
    Selu(Number, Number),
    /// `v` where it is positive, else `alpha * (exp(v / alpha) - 1)`: `celu(alpha)` of a positive `alpha`.
    Celu(Number),
    /// `v` where it is above `alpha`, else 0; NaN stays NaN: `thresholded_relu(alpha)`.
    ThresholdedRelu(Number),
    /// `v + bias` below `-lambda`, `v - bias` above `lambda`, and 0 between; NaN stays NaN: `shrink(lambda, bias)`, soft where both are
    /// equal and hard where `bias` is 0.
    Shrink(Number, Number),
    /// `v * multiplier[c]` of a sum of integers of eight bits, as an `f32`: the multiplier is the product of the scales of input and
    /// weights.
    Dequantize,
    /// `round(v * multiplier[c]) + out_zero` of a sum of integers of eight bits, held to the limits of the output's type, ties to
    /// even: the multiplier is the product of the scales of input and weights, divided by that of the output. Nothing follows.
    Requantize,
    /// `round(v * multiplier[c] + (residual[..] - residual_zero) * residual_multiplier) + out_zero` of a sum of integers of eight bits,
    /// held to the limits of the output's type, ties to even; both products are rounded to `f32`. `residual` is a tensor of the
    /// output's shape and type, its multiplier its scale divided by that of the output. Nothing follows.
    RequantizeAdd,
    /// `round(v / out_scale) + out_zero`, held to the limits of the output's type, ties to even. Nothing follows.
    Quantize,
}

/// A parameter that a step reads.
pub(crate) struct StepOperand {
    /// Its name in the naive kernel and in generated code.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) role: Role,
    /// What it has a number for.
    pub(crate) per: Per,
}

/// What the operand of a step has a number for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Per {
    /// Each output channel.
    Channel,
    /// Each output channel of each image.
    Image,
    /// Each element of the output.
    Element,
    /// All of it.
    Tensor,
}

impl StepOperand {
    const fn new(name: &'static str, role: Role, per: Per) -> StepOperand {
        StepOperand { name, role, per }
    }
}

/// As specs write it: `leaky_relu(0.1)`.
impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers().iter().map(|n| format!("{n:?}")).collect();
        match numbers.is_empty() {
            true => f.write_str(self.name()),
            false => write!(f, "{}({})", self.name(), numbers.join(", ")),
        }
    }
}

impl Epilogue {
    /// All of them; those that hold numbers with their usual ones.
    pub const ALL: [Epilogue; 23] = [
        Epilogue::Bias,
        Epilogue::Relu,
        Epilogue::Relu6,
        Epilogue::Gelu,
        Epilogue::ResidualAdd,
        Epilogue::Scale,
        Epilogue::Multiply,
        Epilogue::Gate,
        Epilogue::ImageBias,
        Epilogue::Sigmoid,
        Epilogue::Silu,
        Epilogue::HardSigmoid,
        Epilogue::HardSwish,
        Epilogue::Tanh,
        Epilogue::GeluTanh,
        Epilogue::Elu(Number::of(1.0)),
        Epilogue::LeakyRelu(Number::of(0.01)),
        Epilogue::Clip(Number::of(-1.0), Number::of(1.0)),
        Epilogue::HardSigmoidOf(Number::of(0.2), Number::of(0.5)),
        Epilogue::Selu(Number::of(1.673_263_2), Number::of(1.050_701)),
        Epilogue::Celu(Number::of(1.0)),
        Epilogue::ThresholdedRelu(Number::of(1.0)),
        Epilogue::Shrink(Number::of(0.5), Number::of(0.5)),
    ];

    /// Those that make numbers of integers, or integers of numbers.
    pub const QUANTISED: [Epilogue; 4] =
        [Epilogue::Dequantize, Epilogue::Requantize, Epilogue::RequantizeAdd, Epilogue::Quantize];

    /// The name in specs and keys, without its numbers.
    pub fn name(self) -> &'static str {
        match self {
            Epilogue::Bias => "bias",
            Epilogue::Relu => "relu",
            Epilogue::Relu6 => "relu6",
            Epilogue::Gelu => "gelu",
            Epilogue::ResidualAdd => "residual_add",
            Epilogue::Scale => "scale",
            Epilogue::Multiply => "multiply",
            Epilogue::Gate => "gate",
            Epilogue::ImageBias => "image_bias",
            Epilogue::Sigmoid => "sigmoid",
            Epilogue::Silu => "silu",
            Epilogue::HardSigmoid | Epilogue::HardSigmoidOf(..) => "hard_sigmoid",
            Epilogue::HardSwish => "hard_swish",
            Epilogue::Tanh => "tanh",
            Epilogue::GeluTanh => "gelu_tanh",
            Epilogue::Elu(_) => "elu",
            Epilogue::LeakyRelu(_) => "leaky_relu",
            Epilogue::Clip(..) => "clip",
            Epilogue::Selu(..) => "selu",
            Epilogue::Celu(_) => "celu",
            Epilogue::ThresholdedRelu(_) => "thresholded_relu",
            Epilogue::Shrink(..) => "shrink",
            Epilogue::Dequantize => "dequantize",
            Epilogue::Requantize => "requantize",
            Epilogue::RequantizeAdd => "requantize_add",
            Epilogue::Quantize => "quantize",
        }
    }

    /// The numbers that it holds.
    pub fn numbers(self) -> Vec<Number> {
        match self {
            Epilogue::Elu(alpha)
            | Epilogue::LeakyRelu(alpha)
            | Epilogue::Celu(alpha)
            | Epilogue::ThresholdedRelu(alpha) => vec![alpha],
            Epilogue::Clip(first, second)
            | Epilogue::HardSigmoidOf(first, second)
            | Epilogue::Selu(first, second)
            | Epilogue::Shrink(first, second) => vec![first, second],
            _ => vec![],
        }
    }

    /// The same with other numbers.
    fn with_numbers(self, numbers: &[Number]) -> Option<Epilogue> {
        match (self, numbers) {
            (Epilogue::Elu(_), [alpha]) => Some(Epilogue::Elu(*alpha)),
            (Epilogue::LeakyRelu(_), [alpha]) => Some(Epilogue::LeakyRelu(*alpha)),
            (Epilogue::Clip(..), [low, high]) if low.get() <= high.get() => Some(Epilogue::Clip(*low, *high)),
            (Epilogue::HardSigmoid | Epilogue::HardSigmoidOf(..), [alpha, beta]) => {
                Some(Epilogue::HardSigmoidOf(*alpha, *beta))
            }
            (Epilogue::Selu(..), [alpha, gamma]) => Some(Epilogue::Selu(*alpha, *gamma)),
            (Epilogue::Celu(_), [alpha]) if alpha.get() > 0.0 => Some(Epilogue::Celu(*alpha)),
            (Epilogue::ThresholdedRelu(_), [alpha]) => Some(Epilogue::ThresholdedRelu(*alpha)),
            (Epilogue::Shrink(..), [lambda, bias]) if lambda.get() >= 0.0 => Some(Epilogue::Shrink(*lambda, *bias)),
            (step, []) if step.numbers().is_empty() => Some(step),
            _ => None,
        }
    }

    /// The step with that name; one that holds numbers with its usual ones.
    pub fn from_name(name: &str) -> Option<Epilogue> {
        Epilogue::ALL.into_iter().chain(Epilogue::QUANTISED).find(|e| e.name() == name)
    }

    /// The step of a text as [`Display`](fmt::Display) writes it. Numbers that have a usual value may be left out: `leaky_relu` is
    /// `leaky_relu(0.01)`.
    ///
    /// # Errors
    /// What is wrong with its numbers, and what to write; `None` if no step has the name.
    pub(crate) fn read(text: &str) -> Result<Epilogue, Option<(String, String)>> {
        let (name, numbers) = match text.split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')').map(|n| n.split(',').map(str::trim).collect())),
            None => (text, Some(vec![])),
        };
        let usual = Epilogue::from_name(name.trim()).ok_or(None)?;
        let number = |text: &str| text.parse().ok().and_then(Number::new);
        let numbers: Option<Vec<Number>> = numbers.and_then(|n| n.into_iter().map(number).collect());
        let step = numbers.and_then(|numbers| match (numbers.is_empty(), usual) {
            // There are no usual bounds.
            (true, Epilogue::Clip(..)) => None,
            (true, usual) if !text.contains('(') => Some(usual),
            _ => usual.with_numbers(&numbers),
        });
        step.ok_or_else(|| {
            let what = match usual {
                Epilogue::HardSigmoid => "no number, or two",
                Epilogue::Celu(_) => "one number above 0",
                Epilogue::Clip(..) => "two numbers, the lower bound first",
                Epilogue::Shrink(..) => "two numbers, the first not below 0",
                _ => ["no number", "one number", "two numbers"][usual.numbers().len().min(2)],
            };
            Some((format!("`{}` holds {what}, not as in `{text}`", usual.name()), format!("write {usual}")))
        })
    }

    /// As keys write it, in letters that every file's name may hold: `leaky_relu_0p1`.
    pub(crate) fn key(self) -> String {
        self.numbers().into_iter().fold(self.name().to_string(), |key, n| key + "_" + &n.key())
    }

    /// The step of a key.
    pub(crate) fn from_key(key: &str) -> Option<Epilogue> {
        let fits = |usual: &Epilogue| {
            let rest = key.strip_prefix(usual.name())?;
            let number = |n: &str| Number::from_key(n).filter(|n| n.get().is_finite());
            let numbers: Option<Vec<Number>> = match rest.strip_prefix('_') {
                Some(rest) => rest.split('_').map(number).collect(),
                None => rest.is_empty().then(Vec::new),
            };
            usual.with_numbers(&numbers?)
        };
        Epilogue::ALL.iter().chain(&Epilogue::QUANTISED).find_map(fits)
    }

    /// Whether it is a function of the element alone.
    pub fn is_activation(self) -> bool {
        self.operands().is_empty()
    }

    /// The parameters that it reads, in the order of the kernel's parameters.
    pub(crate) fn operands(self) -> &'static [StepOperand] {
        const BIAS: &[StepOperand] = &[StepOperand::new("bias", Role::Bias, Per::Channel)];
        const SCALE: &[StepOperand] = &[
            StepOperand::new("scale", Role::Scale, Per::Channel),
            StepOperand::new("shift", Role::Shift, Per::Channel),
        ];
        const RESIDUAL: &[StepOperand] = &[StepOperand::new("residual", Role::Residual, Per::Element)];
        const FACTOR: &[StepOperand] = &[StepOperand::new("factor", Role::Residual, Per::Element)];
        const GATE: &[StepOperand] = &[StepOperand::new("gate", Role::Gate, Per::Image)];
        const IMAGE_BIAS: &[StepOperand] = &[StepOperand::new("image_bias", Role::Gate, Per::Image)];
        const MULTIPLIER: StepOperand = StepOperand::new("multiplier", Role::Multiplier, Per::Channel);
        const OUT_ZERO: StepOperand = StepOperand::new("out_zero", Role::ZeroPoint, Per::Tensor);
        const DEQUANTIZE: &[StepOperand] = &[MULTIPLIER];
        const REQUANTIZE: &[StepOperand] = &[MULTIPLIER, OUT_ZERO];
        const REQUANTIZE_ADD: &[StepOperand] = &[
            MULTIPLIER,
            StepOperand::new("residual", Role::Residual, Per::Element),
            StepOperand::new("residual_zero", Role::ZeroPoint, Per::Tensor),
            StepOperand::new("residual_multiplier", Role::Multiplier, Per::Tensor),
            OUT_ZERO,
        ];
        const QUANTIZE: &[StepOperand] = &[StepOperand::new("out_scale", Role::Multiplier, Per::Tensor), OUT_ZERO];
        match self {
            Epilogue::Dequantize => DEQUANTIZE,
            Epilogue::Requantize => REQUANTIZE,
            Epilogue::RequantizeAdd => REQUANTIZE_ADD,
            Epilogue::Quantize => QUANTIZE,
            Epilogue::Bias => BIAS,
            Epilogue::Scale => SCALE,
            Epilogue::ResidualAdd => RESIDUAL,
            Epilogue::Multiply => FACTOR,
            Epilogue::Gate => GATE,
            Epilogue::ImageBias => IMAGE_BIAS,
            _ => &[],
        }
    }

    /// Floating-point operations an element; an `erf`, an `exp`, a `tanh` and a division are one.
    pub fn flops(self) -> i64 {
        match self {
            Epilogue::Bias | Epilogue::ResidualAdd | Epilogue::Multiply | Epilogue::Gate | Epilogue::ImageBias => 1,
            Epilogue::Relu | Epilogue::Tanh | Epilogue::Dequantize => 1,
            Epilogue::Requantize | Epilogue::Quantize => 5,
            Epilogue::RequantizeAdd => 8,
            Epilogue::Relu6 | Epilogue::Scale | Epilogue::Clip(..) | Epilogue::ThresholdedRelu(_) => 2,
            Epilogue::Gelu | Epilogue::HardSwish => 5,
            Epilogue::HardSigmoid | Epilogue::LeakyRelu(_) | Epilogue::Sigmoid | Epilogue::Silu => 4,
            Epilogue::HardSigmoidOf(..) | Epilogue::Shrink(..) => 4,
            Epilogue::Elu(_) => 6,
            Epilogue::Selu(..) | Epilogue::Celu(_) => 7,
            Epilogue::GeluTanh => 9,
        }
    }

    /// An activation of a value.
    fn activation(self, v: Expr) -> Expr {
        let f = Expr::f32;
        let logistic = |v: Expr| f(1.0) + Expr::un(UnOp::Exp, Expr::un(UnOp::Neg, v));
        let half = |v: Expr, one: Expr| f(0.5) * v * (f(1.0) + one);
        match self {
            Epilogue::Relu => v.max(f(0.0)),
            Epilogue::Relu6 => v.max(f(0.0)).min(f(6.0)),
            Epilogue::Gelu => half(v.clone(), Expr::un(UnOp::Erf, v * f(FRAC_1_SQRT_2))),
            Epilogue::Sigmoid => Expr::bin(BinOp::Div, f(1.0), logistic(v)),
            Epilogue::Silu => Expr::bin(BinOp::Div, v.clone(), logistic(v)),
            Epilogue::HardSigmoid => (v * f(1.0 / 6.0) + f(0.5)).max(f(0.0)).min(f(1.0)),
            Epilogue::HardSwish => v.clone() * (v + f(3.0)).max(f(0.0)).min(f(6.0)) * f(1.0 / 6.0),
            Epilogue::Tanh => Expr::un(UnOp::Tanh, v),
            Epilogue::GeluTanh => {
                let cubic = v.clone() + f(0.044_715) * v.clone() * v.clone() * v.clone();
                half(v, Expr::un(UnOp::Tanh, f(FRAC_2_PI.sqrt()) * cubic))
            }
            Epilogue::Elu(alpha) => {
                let below = Expr::un(UnOp::Exp, v.clone().min(f(0.0))) - f(1.0);
                v.max(f(0.0)) + f(alpha.get()) * below
            }
            Epilogue::LeakyRelu(alpha) => v.clone().max(f(0.0)) + f(alpha.get()) * v.min(f(0.0)),
            Epilogue::Clip(low, high) => v.max(f(low.get())).min(f(high.get())),
            Epilogue::HardSigmoidOf(alpha, beta) => (v * f(alpha.get()) + f(beta.get())).max(f(0.0)).min(f(1.0)),
            Epilogue::Selu(alpha, gamma) => {
                let below = Expr::un(UnOp::Exp, v.clone().min(f(0.0))) - f(1.0);
                f(gamma.get()) * v.max(f(0.0)) + f(alpha.get() * gamma.get()) * below
            }
            Epilogue::Celu(alpha) => {
                let below = Expr::bin(BinOp::Div, v.clone().min(f(0.0)), f(alpha.get()));
                v.max(f(0.0)) + f(alpha.get()) * (Expr::un(UnOp::Exp, below) - f(1.0))
            }
            // What is neither above nor below is NaN, which stays.
            Epilogue::ThresholdedRelu(alpha) => v.clone().le(f(alpha.get())).select(f(0.0), v),
            Epilogue::Shrink(lambda, bias) => {
                let [low, high, bias] = [-lambda.get(), lambda.get(), bias.get()].map(f);
                let inside = v.clone().le(high).select(f(0.0), v.clone() - bias.clone());
                v.clone().lt(low).select(v + bias, inside)
            }
            step => {
                debug_assert!(!step.is_activation(), "{step} has a formula");
                v
            }
        }
    }
}

/// Whether the steps make sense in this order.
///
/// * A step with operands appears at most once: its operand is one parameter.
/// * `bias` comes before every activation and before `scale`: after an activation it is no bias of the operator, and
///   `scale` has a shift of its own.
/// * No activation follows another directly: `relu` after `relu` does nothing, and other pairs are never meant.
pub fn check_order(steps: &[Epilogue]) -> Result<(), WorkloadError> {
    for (i, step) in steps.iter().copied().enumerate() {
        let before = &steps[..i];
        if !step.is_activation() && before.contains(&step) {
            return Err(WorkloadError::EpilogueRepeated { step: step.name() });
        }
        let order = |after: Epilogue, reason, help| {
            Err(WorkloadError::EpilogueOrder { step: step.name(), after: after.name(), reason, help })
        };
        if let Some(last) = before
            .iter()
            .copied()
            .find(|e| matches!(e, Epilogue::Requantize | Epilogue::RequantizeAdd | Epilogue::Quantize))
        {
            return order(last, "it gives the integers of the output", "put it at the end");
        }
        if step == Epilogue::Dequantize
            && let Some(after) = before.iter().copied().find(|e| *e != Epilogue::Bias)
        {
            return order(after, "sums of integers become numbers first", "put it behind the bias, or in front");
        }
        if matches!(step, Epilogue::Requantize | Epilogue::RequantizeAdd)
            && let Some(after) = before.iter().copied().find(|e| *e != Epilogue::Bias)
        {
            return order(after, "it takes sums of integers", "use `quantize`, which takes numbers");
        }
        if step == Epilogue::Bias && before.contains(&Epilogue::Dequantize) {
            let help = "put it before `dequantize`, as an i32";
            return order(Epilogue::Dequantize, "the bias is added to sums of integers", help);
        }
        if step == Epilogue::Bias {
            if let Some(after) = before.iter().copied().find(|e| e.is_activation()) {
                return order(after, "a bias belongs to the sum", "put it before the activation, or use `scale`");
            }
            if before.contains(&Epilogue::Scale) {
                let help = "put `bias` before `scale`, or add it to the shift";
                return order(Epilogue::Scale, "`scale` has a shift already", help);
            }
        }
        if let Some(last) = before.last().copied().filter(|e| e.is_activation() && step.is_activation()) {
            return order(last, "two activations in a row", "leave one of them out");
        }
    }
    Ok(())
}

/// A number as an integer of eight bits around a zero point, which is an `i32`: rounded to the nearest, ties to even, and held to the
/// limits of the type. It is held to them first: whole numbers stay what they are, and no conversion is out of range. The result is
/// an `i32`.
fn saturated(value: Expr, zero: Expr, dtype: DType) -> Expr {
    let (low, high) = dtype.limits().unwrap_or((i64::MIN, i64::MAX));
    let bound = |limit: i64| (Expr::Int(limit).cast(DType::I32) - zero.clone()).cast(DType::F32);
    Expr::un(UnOp::Round, value.max(bound(low)).min(bound(high))).cast(DType::I32) + zero
}

/// A sum with steps applied, of which the last may give integers of the type `out`; `read` gives the number that an operand has for it.
pub(crate) fn applied(steps: &[Epilogue], out: DType, sum: Expr, read: &dyn Fn(&StepOperand) -> Expr) -> Expr {
    steps.iter().fold(sum, |value, step| {
        let operand = |number: usize| read(&step.operands()[number]);
        match step {
            Epilogue::Bias | Epilogue::ResidualAdd | Epilogue::ImageBias => value + operand(0),
            Epilogue::Multiply | Epilogue::Gate => value * operand(0),
            Epilogue::Scale => value * operand(0) + operand(1),
            Epilogue::Dequantize => value.cast(DType::F32) * operand(0),
            Epilogue::Requantize => saturated(value.cast(DType::F32) * operand(0), operand(1), out),
            Epilogue::RequantizeAdd => {
                let number = |e: Expr| e.cast(DType::F32);
                let sum = Expr::un(UnOp::Rounded, number(value) * operand(0));
                let residual = Expr::un(UnOp::Rounded, number(operand(1) - operand(2)) * operand(3));
                saturated(sum + residual, operand(4), out)
            }
            Epilogue::Quantize => saturated(Expr::bin(BinOp::Div, value, operand(0)), operand(1), out),
            activation => activation.activation(value),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::Epilogue::*;
    use super::*;

    #[test]
    fn sensible_orders_pass() {
        for steps in [
            &[][..],
            &[Bias],
            &[Bias, Relu],
            &[Bias, ResidualAdd, Relu],
            &[Scale, Relu6],
            &[Bias, Relu, Scale],
            &[Bias, Scale, Gelu],
            &[Bias, Relu, ResidualAdd, Relu],
            &[ResidualAdd, Bias, Relu],
            &[Bias, Relu, Gate, ResidualAdd, Relu],
            &[ImageBias, Scale, ResidualAdd, Gate],
        ] {
            assert_eq!(check_order(steps), Ok(()), "{steps:?}");
        }
    }

    #[test]
    fn steps_are_read_as_they_are_written_in_specs_and_in_keys() {
        let numbers = [-1e30, -0.5, 0.0, 1e-7, 0.1, 6.0, f32::MAX].map(|n| Number::new(n).expect("finite"));
        let with_numbers = numbers.iter().flat_map(|n| [Elu(*n), LeakyRelu(*n), Clip(numbers[0], *n)]);
        for step in Epilogue::ALL.into_iter().chain(with_numbers) {
            assert_eq!(Epilogue::read(&step.to_string()), Ok(step));
            let key = step.key();
            assert_eq!(Epilogue::from_key(&key), Some(step), "{key}");
            assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{key}");
        }
        assert_eq!(Epilogue::read("leaky_relu"), Ok(LeakyRelu(Number::of(0.01))));
        for (text, help) in [
            ("clip", "write clip(-1, 1)"),
            ("clip(6, 0)", "write clip(-1, 1)"),
            ("clip(0, 1, 2)", "write clip(-1, 1)"),
            ("elu(inf)", "write elu(1)"),
            ("elu()", "write elu(1)"),
            ("relu(1)", "write relu"),
            ("leaky_relu(0.1", "write leaky_relu(0.01)"),
        ] {
            let Err(Some((cause, told))) = Epilogue::read(text) else { panic!("{text} is read") };
            assert!(told == help && cause.contains(text), "{text}: {cause}; {told}");
        }
        assert_eq!(Epilogue::read("swish"), Err(None));
        assert_eq!(Epilogue::from_key("clip_1_0"), None);
    }

    #[test]
    fn nonsense_orders_are_refused_with_a_reason() {
        for (steps, text) in [
            (&[Bias, Bias][..], "`bias` more than once"),
            (&[Relu, Bias], "`bias` after `relu`: a bias belongs to the sum"),
            (&[Scale, Bias], "`bias` after `scale`: `scale` has a shift already"),
            (&[Bias, Relu, Relu6], "`relu6` after `relu`: two activations in a row"),
            (&[ResidualAdd, Relu, ResidualAdd], "`residual_add` more than once"),
            (&[Silu, HardSwish], "`hard_swish` after `silu`: two activations in a row"),
            (&[Multiply, Sigmoid, Multiply], "`multiply` more than once"),
            (&[Gate, Sigmoid, Gate], "`gate` more than once"),
            (&[Sigmoid, ImageBias, Bias], "`bias` after `sigmoid`"),
        ] {
            let message = check_order(steps).unwrap_err().to_string();
            assert!(message.contains(text), "{steps:?}: {message}");
        }
    }
}
