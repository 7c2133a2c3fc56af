//! What is done to each output element after the reduction, in the same kernel.

use super::error::WorkloadError;
use crate::ir::{BufferId, Expr, UnOp};

/// One step of an epilogue. The steps apply in the order of the list, in `f32`, to the finished sum; the result is
/// converted to the output type once, at the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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
}

impl Epilogue {
    /// All of them.
    pub const ALL: [Epilogue; 6] =
        [Epilogue::Bias, Epilogue::Relu, Epilogue::Relu6, Epilogue::Gelu, Epilogue::ResidualAdd, Epilogue::Scale];

    /// The name in specs and keys.
    pub fn name(self) -> &'static str {
        match self {
            Epilogue::Bias => "bias",
            Epilogue::Relu => "relu",
            Epilogue::Relu6 => "relu6",
            Epilogue::Gelu => "gelu",
            Epilogue::ResidualAdd => "residual_add",
            Epilogue::Scale => "scale",
        }
    }

    /// The step with that name.
    pub fn from_name(name: &str) -> Option<Epilogue> {
        Epilogue::ALL.into_iter().find(|e| e.name() == name)
    }

    /// Whether it is a non-linear function of the element alone.
    pub fn is_activation(self) -> bool {
        matches!(self, Epilogue::Relu | Epilogue::Relu6 | Epilogue::Gelu)
    }

    /// Floating-point operations an element, an `erf` counted as one.
    pub fn flops(self) -> i64 {
        match self {
            Epilogue::Bias | Epilogue::Relu | Epilogue::ResidualAdd => 1,
            Epilogue::Relu6 | Epilogue::Scale => 2,
            Epilogue::Gelu => 5,
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

/// A sum with steps applied: `channel` is its output channel, `index` its place in the output, and
/// `operand` gives the buffer of a parameter's name.
pub(crate) fn applied(
    steps: &[Epilogue],
    sum: Expr,
    channel: &Expr,
    index: &[Expr],
    operand: &dyn Fn(&str) -> BufferId,
) -> Expr {
    let per_channel = |name: &str| Expr::load(operand(name), vec![channel.clone()]);
    steps.iter().fold(sum, |value, step| match step {
        Epilogue::Bias => value + per_channel("bias"),
        Epilogue::Relu => value.max(Expr::f32(0.0)),
        Epilogue::Relu6 => value.max(Expr::f32(0.0)).min(Expr::f32(6.0)),
        Epilogue::Gelu => {
            let erf = Expr::un(UnOp::Erf, value.clone() * Expr::f32(std::f64::consts::FRAC_1_SQRT_2));
            Expr::f32(0.5) * value * (Expr::f32(1.0) + erf)
        }
        Epilogue::ResidualAdd => value + Expr::load(operand("residual"), index.to_vec()),
        Epilogue::Scale => value * per_channel("scale") + per_channel("shift"),
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
        ] {
            assert_eq!(check_order(steps), Ok(()), "{steps:?}");
        }
    }

    #[test]
    fn nonsense_orders_are_refused_with_a_reason() {
        for (steps, text) in [
            (&[Bias, Bias][..], "`bias` more than once"),
            (&[Relu, Bias], "`bias` after `relu`: a bias belongs to the sum"),
            (&[Scale, Bias], "`bias` after `scale`: `scale` has a shift already"),
            (&[Bias, Relu, Relu6], "`relu6` after `relu`: two activations in a row"),
            (&[ResidualAdd, Relu, ResidualAdd], "`residual_add` more than once"),
        ] {
            let message = check_order(steps).unwrap_err().to_string();
            assert!(message.contains(text), "{steps:?}: {message}");
        }
    }
}
