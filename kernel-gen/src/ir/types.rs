//! Element types and vector types.

use crate::stored::Stored;
use std::fmt;

/// An element type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub enum DType {
    /// IEEE binary64; the interpreter's reference precision.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16: storage only, computed as `f32`.
    F16,
    /// bfloat16: storage only, computed as `f32`.
    Bf16,
    /// A float of 8 bits with 4 of exponent and 3 of fraction, no infinities, and 448 as its largest number (the E4M3 of "FP8 Formats
    /// for Deep Learning", arXiv:2209.05433; ONNX's `FLOAT8E4M3FN`): storage only, computed as `f32`. What is larger becomes 448.
    E4m3,
    /// A float of 8 bits with 5 of exponent and 2 of fraction (the E5M2 of the same; ONNX's `FLOAT8E5M2`): storage only, computed as
    /// `f32`. What is larger than its largest finite number, 57344, becomes that.
    E5m2,
    /// 64-bit signed integer: indices and loop variables.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 8-bit signed integer: storage only, computed as `i32`.
    I8,
    /// 8-bit unsigned integer: storage only, computed as `i32`.
    U8,
    /// Four `i8` in a word of 32 bits, the first in its lowest byte: an operand of [`Dot`](super::BinOp::Dot).
    I8x4,
    /// Four `u8` in a word of 32 bits, the first in its lowest byte: an operand of [`Dot`](super::BinOp::Dot).
    U8x4,
    /// Two integers of 16 bits with signs in a word of 32 bits, the first in its lower half: an operand of [`Dot`](super::BinOp::Dot).
    I16x2,
    /// Truth value of comparisons.
    Bool,
}

/// How the bits of a float are divided: a sign, an exponent, which is more by a bias, and a fraction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FloatFormat {
    /// Bits of the fraction.
    pub fraction_bits: u32,
    /// What is added to exponents.
    pub bias: u32,
    /// The largest finite number.
    pub largest: f64,
}

impl FloatFormat {
    /// The exponent of the smallest number with all fraction bits.
    pub fn least_exponent(self) -> i32 {
        1 - self.bias as i32
    }

    /// The smallest number above zero.
    pub fn smallest(self) -> f64 {
        2f64.powi(self.least_exponent() - self.fraction_bits as i32)
    }
}

impl Stored for DType {
    fn put(&self, out: &mut Vec<u8>) {
        self.name().to_string().put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        DType::from_name(&String::get(from)?)
    }
}

impl DType {
    /// All of them, for parsers and tests.
    pub const ALL: [DType; 14] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::E4m3,
        DType::E5m2,
        DType::I64,
        DType::I32,
        DType::I8,
        DType::U8,
        DType::I8x4,
        DType::U8x4,
        DType::I16x2,
        DType::Bool,
    ];

    /// The name used in the text form, in specs and in records.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::E4m3 => "e4m3",
            DType::E5m2 => "e5m2",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I8x4 => "i8x4",
            DType::U8x4 => "u8x4",
            DType::I16x2 => "i16x2",
            DType::Bool => "bool",
        }
    }

    /// The type with that name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Size of one element in memory.
    pub fn bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 | DType::I8x4 | DType::U8x4 | DType::I16x2 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::E4m3 | DType::E5m2 | DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Whether it is a floating type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32) || self.is_narrow_float()
    }

    /// Whether it is a float that is storage only: one of 16 or 8 bits.
    pub fn is_narrow_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16) || self.is_f8()
    }

    /// Whether it is a float of eight bits.
    pub fn is_f8(self) -> bool {
        matches!(self, DType::E4m3 | DType::E5m2)
    }

    /// How it is divided, if it is a float with fewer bits of exponent than an `f32` has.
    pub fn format(self) -> Option<FloatFormat> {
        let (fraction_bits, bias, largest) = match self {
            DType::F16 => (10, 15, 65504.0),
            DType::E4m3 => (3, 7, 448.0),
            DType::E5m2 => (2, 15, 57344.0),
            _ => return None,
        };
        Some(FloatFormat { fraction_bits, bias, largest })
    }

    /// Whether it is an integer type. Words are none, although `dot` and what else is for words computes with them.
    pub fn is_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::I8 | DType::U8)
    }

    /// Whether it is an integer of eight bits.
    pub fn is_byte(self) -> bool {
        matches!(self, DType::I8 | DType::U8)
    }

    /// Whether tiles of a GPU may hold it: a float, or an integer of 8 or 32 bits.
    pub fn is_in_tiles(self) -> bool {
        self.is_float() || self.is_byte() || self == DType::I32
    }

    /// The word of four such bytes.
    pub fn word(self) -> Option<DType> {
        match self {
            DType::I8 => Some(DType::I8x4),
            DType::U8 => Some(DType::U8x4),
            _ => None,
        }
    }

    /// The word of bytes with signs if it is one without, and the other way round.
    pub fn flipped(self) -> Option<DType> {
        match self {
            DType::I8x4 => Some(DType::U8x4),
            DType::U8x4 => Some(DType::I8x4),
            _ => None,
        }
    }

    /// Whether it is a word of several integers.
    pub fn is_word(self) -> bool {
        self.word_parts().is_some()
    }

    /// How many integers a word holds.
    pub fn word_parts(self) -> Option<i64> {
        match self {
            DType::I8x4 | DType::U8x4 => Some(4),
            DType::I16x2 => Some(2),
            _ => None,
        }
    }

    /// The smallest and the largest number of an integer type.
    pub fn limits(self) -> Option<(i64, i64)> {
        match self {
            DType::I64 => Some((i64::MIN, i64::MAX)),
            DType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
            DType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
            DType::U8 => Some((0, u8::MAX.into())),
            _ => None,
        }
    }

    /// The type that arithmetic on it happens in: `f32` for floats of 16 and 8 bits, `i32` for bytes, itself otherwise.
    pub fn compute(self) -> DType {
        match self {
            narrow if narrow.is_narrow_float() => DType::F32,
            DType::I8 | DType::U8 => DType::I32,
            other => other,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of an expression: an element type and a number of lanes (1 is a scalar).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    /// Type of one lane.
    pub dtype: DType,
    /// Number of lanes; any number is allowed, emitters round up to what the target has.
    pub lanes: u16,
}

impl Type {
    /// A scalar type.
    pub fn scalar(dtype: DType) -> Type {
        Type { dtype, lanes: 1 }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lanes == 1 { write!(f, "{}", self.dtype) } else { write!(f, "{}x{}", self.dtype, self.lanes) }
    }
}

/// A loop variable or a `let`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VarId(pub u32);

/// A buffer: a parameter or something allocated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferId(pub u32);

/// The threads that act as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// 32 threads.
    Warp,
    /// Four warps, the first of which has a number divisible by four.
    Warpgroup,
}

impl Unit {
    /// The word in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Warp => "warp",
            Unit::Warpgroup => "warpgroup",
        }
    }

    /// How many threads it has.
    pub fn threads(self) -> i64 {
        match self {
            Unit::Warp => 32,
            Unit::Warpgroup => 128,
        }
    }

    /// Warps that act together.
    pub fn warps(self) -> i64 {
        self.threads() / 32
    }
}
