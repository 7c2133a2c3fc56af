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
    /// 64-bit signed integer: indices and loop variables.
    I64,
    /// 32-bit signed integer.
    I32,
    /// Truth value of comparisons.
    Bool,
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
    pub const ALL: [DType; 7] = [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I64, DType::I32, DType::Bool];

    /// The name used in the text form, in specs and in records.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
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
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::Bool => 1,
        }
    }

    /// Whether it is a floating type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::Bf16)
    }

    /// Whether it is an integer type.
    pub fn is_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32)
    }

    /// The type that arithmetic on it happens in: `f32` for the 16-bit floats, itself otherwise.
    pub fn compute(self) -> DType {
        match self {
            DType::F16 | DType::Bf16 => DType::F32,
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
