//! Reads the arguments of AutoTVM's tasks: numbers, pairs, types, tensors.

use super::error::LineError;
use crate::ir::DType;
use serde_json::Value as Json;

pub(super) fn form(what: &str) -> LineError {
    LineError::Form(what.to_string())
}

/// A text of the line in a message, on one line and not too long.
pub(super) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{}`", short.escape_debug())
}

/// A list of numbers.
pub(super) fn numbers<const N: usize>(json: &Json, what: &str) -> Result<[i64; N], LineError> {
    let list = json.as_array().filter(|l| l.len() == N);
    let read = list.and_then(|l| l.iter().map(Json::as_i64).collect::<Option<Vec<_>>>());
    read.and_then(|l| l.try_into().ok()).ok_or_else(|| LineError::Form(format!("{what} is not a list of {N} numbers")))
}

/// One number for both axes, or two.
pub(super) fn pair(json: &Json, what: &str) -> Result<[i64; 2], LineError> {
    match json.as_i64() {
        Some(both) => Ok([both, both]),
        None => numbers(json, what),
    }
}

/// One number for all sides, two for the axes, or four: top, left, bottom, right.
pub(super) fn padding(json: &Json) -> Result<[i64; 4], LineError> {
    match json.as_array().map(Vec::len) {
        Some(4) => numbers(json, "the padding"),
        _ => pair(json, "the padding").map(|[y, x]| [y, x, y, x]),
    }
}

pub(super) fn dtype(json: &Json) -> Result<DType, LineError> {
    match json.as_str() {
        Some("float32") => Ok(DType::F32),
        Some("float16") => Ok(DType::F16),
        Some("bfloat16") => Ok(DType::Bf16),
        Some(other) => Err(LineError::Workload(format!("its type is {}", shown(other)))),
        None => Err(form("a type is not text")),
    }
}

/// `["TENSOR", [1, 512, 7, 7], "float32"]`.
pub(super) fn tensor<const N: usize>(json: &Json) -> Result<([i64; N], DType), LineError> {
    match json.as_array().map(Vec::as_slice) {
        Some([tag, shape, kind]) if tag == "TENSOR" => Ok((numbers(shape, "a tensor's shape")?, dtype(kind)?)),
        _ => Err(form("a tensor is not [\"TENSOR\", shape, type]")),
    }
}
