//! Operators and steps by the names of other libraries, or in each other's place.

use crate::diagnostic::suggest;
use crate::workload::Epilogue;
use crate::workload::operators::KINDS;

/// Operators of other libraries, and what they are here.
const OPERATORS: &[(&str, &str)] = &[
    ("gemm", "matmul"),
    ("linear", "matmul"),
    ("dense", "matmul"),
    ("bmm", "batch_matmul"),
    ("sub", "subtract"),
    ("mul", "multiply"),
    ("div", "divide"),
    ("max", "maximum"),
    ("min", "minimum"),
    ("neg", "negate"),
];

/// Steps of other libraries, and what they are here.
const STEPS: &[(&str, &str)] = &[
    ("swish", "silu"),
    ("logistic", "sigmoid"),
    ("clamp", "clip(low, high)"),
    ("hardtanh", "clip(-1, 1)"),
    ("softshrink", "shrink(0.5, 0.5)"),
    ("hardshrink", "shrink(0.5, 0)"),
    ("add", "residual_add"),
    ("mul", "multiply"),
    ("batch_norm", "scale"),
];

/// What to write in place of an operator that is none of `known`.
pub(super) fn operator_help(name: &str, known: &[&str]) -> String {
    let same = |(other, _): &&(&str, &str)| plain(other) == plain(name);
    if let Some((_, operator)) = OPERATORS.iter().find(same) {
        return format!("write op = \"{operator}\"");
    }
    let step = Epilogue::ALL.iter().map(|step| step.name()).find(|step| plain(step) == plain(name));
    match step.or(STEPS.iter().find(same).map(|(_, step)| *step)) {
        Some(step) => format!(
            "it is a step of an epilogue: write epilogue = [\"{step}\"] with the operator before it, or with op = \"identity\""
        ),
        None => suggest(name, known),
    }
}

/// What to write in place of a step of an epilogue that is none of `known`.
pub(super) fn step_help(name: &str, known: &[&str]) -> String {
    if let Some((_, step)) = STEPS.iter().find(|(other, _)| plain(other) == plain(name)) {
        return format!("write \"{step}\"");
    }
    match KINDS.iter().find(|kind| plain(kind.name) == plain(name)) {
        Some(kind) => format!("it is an operator of its own: write a [[kernel]] with op = \"{}\"", kind.name),
        None => suggest(name, known),
    }
}

/// A name without what libraries write differently.
fn plain(name: &str) -> String {
    name.replace(['_', '-'], "").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_libraries_call_otherwise_is_known_and_what_is_promised_exists() {
        for (_, operator) in OPERATORS {
            assert!(KINDS.iter().any(|kind| kind.name == *operator), "{operator}");
        }
        for (_, step) in STEPS.iter().filter(|(_, step)| !step.contains("low")) {
            assert!(Epilogue::read(step).is_ok(), "{step}");
        }
        assert_eq!(operator_help("Linear", &[]), "write op = \"matmul\"");
        let silu = "it is a step of an epilogue: write epilogue = [\"silu\"] with the operator before it, or with op = \"identity\"";
        assert_eq!((operator_help("silu", &["relu"]), operator_help("Swish", &["relu"])), (silu.into(), silu.into()));
        assert_eq!(operator_help("conv2", &["conv3d"]), "use one of conv3d");
        assert_eq!(step_help("swish", &["relu"]), "write \"silu\"");
        assert_eq!(
            step_help("soft_plus", &["relu"]),
            "it is an operator of its own: write a [[kernel]] with op = \"softplus\""
        );
        assert_eq!(step_help("rleu", &["relu"]), "did you mean `relu`? Allowed: relu");
    }
}
