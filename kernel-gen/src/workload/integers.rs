//! Integers of 32 bits: indices, sizes and truth values that a network computes beside its numbers.
//!
//! Operators that move elements keep them to the bit. Others compute with them as `f32`: exact as long as all that is computed stays
//! within 2^24 of 0, which indices of tensors do.

use super::operator::{INDICES, OfI32};
use super::stage::Stage;
use super::{Quant, Role, Workload, WorkloadError};
use crate::ir::{DType, Expr};

/// The largest `f32` that an `i32` holds, and the smallest.
const LIMITS: (f64, f64) = (-2_147_483_648.0, 2_147_483_520.0);

/// Integers up to here have all their neighbours in `f32`.
const EXACT: f64 = (1 << 24) as f64;

impl Workload {
    /// Whether it takes integers of 32 bits as numbers, or gives them as such.
    pub(crate) fn has_i32(&self) -> bool {
        self.dtype == DType::I32 || self.rounds_to_i32()
    }

    /// An operand of a test: integers that are computed with as `f32` are held to where that is exact.
    pub(super) fn within_exact(&self, number: f64) -> f64 {
        if self.dtype == DType::I32 && self.sums() == DType::F32 { number.clamp(-EXACT, EXACT) } else { number }
    }

    /// Whether an `f32` becomes an `i32` at the end, beside sums of integers of eight bits and indices.
    pub(crate) fn rounds_to_i32(&self) -> bool {
        self.out_dtype == DType::I32 && self.sums() == DType::F32 && self.op.get().kind().outputs != INDICES
    }
}

/// Holds the types of a workload that has integers of 32 bits against each other; says whether it is one.
pub(super) fn check(w: &Workload) -> Result<bool, WorkloadError> {
    let operator = w.op.get();
    let gives_indices = operator.kind().outputs == INDICES;
    if w.dtype != DType::I32 && (w.is_quantised() || gives_indices || w.out_dtype != DType::I32) {
        return Ok(false);
    }
    let error = |cause: String, help| Err(WorkloadError::Quantised { cause, help });
    let (is_float, of_i32) = (w.out_dtype.is_float() && !w.out_dtype.is_f8(), operator.of_i32());
    let fits = match (of_i32, w.dtype) {
        (OfI32::Nothing, DType::I32) => {
            let help = "use f32, f16 or bf16, or an operator that takes i32: identity, abs, negate, sign, comparisons, add and its like, \
                        where, reduce_sum, _prod, _max and _min, arg_max, arg_min, gather, permute and its like";
            return error(format!("{} does not take inputs of type i32", w.op_name()), help);
        }
        (OfI32::Moves, DType::I32) => w.out_dtype == DType::I32,
        (_, DType::I32) if gives_indices => operator.kind().outputs.contains(&w.out_dtype),
        (_, DType::I32) => is_float || w.out_dtype == DType::I32,
        (OfI32::Converts, dtype) => dtype.is_float() && !dtype.is_f8(),
        _ => false,
    };
    if !fits {
        let help = "leave out_dtype out, or convert with `identity`";
        return error(format!("{} of {} gives no {}", w.op_name(), w.dtype, w.out_dtype), help);
    }
    if w.quant != Quant::default() {
        return error(
            "integers of 32 bits have no zero points".into(),
            "leave zero points and the type of weights out",
        );
    }
    if !w.epilogue.is_empty() && !gives_indices {
        return error("integers of 32 bits have no epilogue".into(), "leave it out, or convert with `identity`");
    }
    Ok(true)
}

/// A stage that computes with `f32`, of operands that are integers.
pub(super) fn as_numbers(w: &Workload, stage: Stage) -> Stage {
    if w.dtype != DType::I32 || w.sums() != DType::F32 {
        return stage;
    }
    let operands = w.op.get().inputs();
    let number = |e: Expr| match &e {
        Expr::Load(buffer, _)
            if operands.get(buffer.0 as usize).is_some_and(|o| matches!(o.role, Role::Input | Role::Mask)) =>
        {
            e.cast(DType::F32)
        }
        _ => e,
    };
    Stage { value: stage.value.map(&mut |e| number(e)), ..stage }
}

/// An `f32` as an `i32`: cut off towards zero, held to what there is; NaN is 0.
pub(super) fn rounded(value: Expr) -> Expr {
    let f = |value| Expr::Float(value, DType::F32);
    let held = value.clone().max(f(LIMITS.0)).min(f(LIMITS.1));
    value.clone().eq(value).select(held, f(0.0)).cast(DType::I32)
}

/// The same of a number in `f64`.
pub(super) fn rounded_reference(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.trunc().clamp(LIMITS.0, LIMITS.1) }
}

/// The error of an integer whose number has this one.
pub(super) fn error_of(value: f64, error: f64) -> f64 {
    if value.abs() + error < EXACT { 0.0 } else { 1.0 + error + value.abs() / EXACT }
}
