//! What single operations compute.

use super::round::{erf, nearest_tf32};
use crate::ir::{DType, float_max, float_min};

/// Integer operations; comparisons give 0 or 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IntOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Min,
    Max,
    Lt,
    Le,
    Eq,
    Ne,
    And,
    Or,
    Neg,
    Not,
    Abs,
    /// The sum of the products of the integers of two words of these types.
    Dot {
        words: [DType; 2],
    },
    /// A word shifted up by `bits` bits, and the lowest `bits` of an integer below.
    Push {
        bits: u32,
    },
    /// Sums of both integers of two words.
    AddPairs,
    /// Their differences.
    SubPairs,
    /// A word with the upper bit of each byte turned.
    Flip,
    /// The byte `first` of a word, and the one after the next, as a word of two integers.
    Halves {
        of: DType,
        first: usize,
    },
}

/// Floating operations; those with one operand ignore `b`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    Pow,
    Fmod,
    Neg,
    Abs,
    Sqrt,
    Exp,
    Exp2,
    Log,
    Sin,
    Cos,
    Floor,
    Ceil,
    Round,
    Tanh,
    Erf,
    Atan,
    Tf32,
    /// The operand: values are rounded as they are computed.
    Rounded,
}

/// Comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CompareOp {
    Lt,
    Le,
    Eq,
    Ne,
}

/// An integer operation; `None` when it divides by zero.
#[inline]
pub(super) fn int_op(op: IntOp, x: i64, y: i64) -> Option<i64> {
    Some(match op {
        IntOp::Add => x.wrapping_add(y),
        IntOp::Sub => x.wrapping_sub(y),
        IntOp::Mul => x.wrapping_mul(y),
        IntOp::Div => {
            if y == 0 {
                return None;
            }
            let q = x.wrapping_div(y);
            if x.wrapping_rem(y) != 0 && (x < 0) != (y < 0) { q - 1 } else { q }
        }
        IntOp::Mod => {
            if y == 0 {
                return None;
            }
            let r = x.wrapping_rem(y);
            if r != 0 && (r < 0) != (y < 0) { r + y } else { r }
        }
        IntOp::Min => x.min(y),
        IntOp::Max => x.max(y),
        IntOp::Lt => i64::from(x < y),
        IntOp::Le => i64::from(x <= y),
        IntOp::Eq => i64::from(x == y),
        IntOp::Ne => i64::from(x != y),
        IntOp::And => x & y,
        IntOp::Or => x | y,
        IntOp::Neg => x.wrapping_neg(),
        IntOp::Not => i64::from(x == 0),
        IntOp::Abs => x.wrapping_abs(),
        IntOp::Dot { words } => dot(words, x, y),
        IntOp::Push { bits } => i64::from(((x as i32) << bits) | (y as i32 & ((1 << bits) - 1))),
        IntOp::Flip => i64::from(x as i32 ^ 0x8080_8080_u32 as i32),
        IntOp::AddPairs => pair([0, 1].map(|i| integers(DType::I16x2, x)[i] + integers(DType::I16x2, y)[i])),
        IntOp::SubPairs => pair([0, 1].map(|i| integers(DType::I16x2, x)[i] - integers(DType::I16x2, y)[i])),
        IntOp::Halves { of, first } => pair([first, first + 2].map(|i| integers(of, x)[i])),
    })
}

/// The integers of a word; two have zeros behind them.
fn integers(of: DType, word: i64) -> [i64; 4] {
    let bytes = (word as u32).to_le_bytes();
    match of {
        DType::I8x4 => bytes.map(|byte| i64::from(byte as i8)),
        DType::U8x4 => bytes.map(i64::from),
        _ => [i64::from(word as i16), i64::from((word >> 16) as i16), 0, 0],
    }
}

/// A word of the lower halves of two integers.
fn pair(integers: [i64; 2]) -> i64 {
    let [low, high] = integers.map(|i| i as u32 & 0xffff);
    i64::from((high << 16 | low) as i32)
}

/// The sum of the products of the integers of two words.
fn dot(words: [DType; 2], x: i64, y: i64) -> i64 {
    integers(words[0], x).iter().zip(integers(words[1], y)).map(|(x, y)| x * y).sum()
}

/// A floating operation in full precision.
#[inline]
pub(super) fn float_op(op: FloatOp, x: f64, y: f64) -> f64 {
    match op {
        FloatOp::Add => x + y,
        FloatOp::Sub => x - y,
        FloatOp::Mul => x * y,
        FloatOp::Div => x / y,
        FloatOp::Min => float_min(x, y),
        FloatOp::Max => float_max(x, y),
        FloatOp::Pow => x.powf(y),
        FloatOp::Fmod => x % y,
        FloatOp::Neg => -x,
        FloatOp::Abs => x.abs(),
        FloatOp::Sqrt => x.sqrt(),
        FloatOp::Exp => x.exp(),
        FloatOp::Exp2 => x.exp2(),
        FloatOp::Log => x.ln(),
        FloatOp::Sin => x.sin(),
        FloatOp::Cos => x.cos(),
        FloatOp::Floor => x.floor(),
        FloatOp::Ceil => x.ceil(),
        FloatOp::Round => x.round_ties_even(),
        FloatOp::Tanh => x.tanh(),
        FloatOp::Erf => erf(x),
        FloatOp::Atan => x.atan(),
        FloatOp::Tf32 => nearest_tf32(x),
        FloatOp::Rounded => x,
    }
}

/// A float as an integer: toward zero, saturating.
pub(super) fn to_int(v: f64, dtype: DType) -> i64 {
    match dtype {
        DType::I32 => i64::from(v as i32),
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::Bool => i64::from(v != 0.0),
        _ => v as i64,
    }
}

/// An integer in a narrower type, wrapping.
pub(super) fn narrow(v: i64, dtype: DType) -> i64 {
    match dtype {
        // A word is held as the number that its bits are.
        DType::I32 | DType::I8x4 | DType::U8x4 | DType::I16x2 => i64::from(v as i32),
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::Bool => i64::from(v != 0),
        _ => v,
    }
}
