//! Types of the emitted C.

use super::Isa;
use crate::emit::clike::prelude::math_fn;
use crate::ir::{DType, UnOp};
use std::fmt;

/// The C type of an element in memory.
pub(super) fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 | DType::Bf16 => "uint16_t",
        DType::I64 => "int64_t",
        DType::I32 => "int32_t",
        DType::I8 => "int8_t",
        DType::U8 | DType::E4m3 | DType::E5m2 => "uint8_t",
        DType::I8x4 | DType::U8x4 | DType::I16x2 => WORD,
        DType::Bool => "uint8_t",
    }
}

/// A word of four bytes, which may begin at any of them: tensors of bytes are read in words.
const WORD: &str = "kg_word";

/// The declaration of [`WORD`], if a text has words: what stands in front of prototypes of several kernels.
pub(crate) fn declared_words(text: &str) -> String {
    match text.contains(WORD) {
        true => format!("typedef uint32_t {WORD} __attribute__((aligned(1), may_alias));\n"),
        false => String::new(),
    }
}

/// Lanes of the widest vector of floats.
pub(super) const MOST_LANES: usize = 16;

/// A vector type of the emitted C: `f32x16` is sixteen floats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Vector {
    /// Element type: `F32`, `F64`, `I32` or `I64`.
    pub(super) dtype: DType,
    /// Elements, a power of two.
    pub(super) width: usize,
}

impl Vector {
    /// The smallest vector that holds `lanes` elements: registers are at least 16 bytes.
    pub(super) fn holding(dtype: DType, lanes: usize) -> Vector {
        Vector { dtype, width: lanes.next_power_of_two().max(16 / dtype.bytes()) }
    }

    /// The vector that so many elements are loaded into: words of bytes are taken for integers of their size. None if there is no
    /// such.
    pub(super) fn of(dtype: DType, lanes: usize) -> Option<Vector> {
        match dtype {
            DType::I8x4 | DType::U8x4 | DType::I16x2 => Some(Vector::holding(DType::I32, lanes)),
            DType::Bool | DType::I64 => None,
            _ => Some(Vector::holding(dtype.compute(), lanes)),
        }
    }

    pub(super) fn bytes(self) -> usize {
        self.width * self.dtype.bytes()
    }

    /// The integer vector that comparisons of this one give.
    pub(super) fn mask(self) -> Vector {
        Vector { dtype: if self.dtype.bytes() == 8 { DType::I64 } else { DType::I32 }, width: self.width }
    }

    /// The function of `<math.h>` that is called lane by lane for an operator.
    pub(super) fn lane_fn(self, op: UnOp) -> String {
        math_fn(op, self.dtype).unwrap_or_default()
    }

    /// The vector of twice as many elements.
    pub(super) fn twice(self) -> Vector {
        Vector { width: 2 * self.width, ..self }
    }

    /// Whether masked stores of AVX-512 bring its lanes to every other element.
    pub(super) fn stores_even(self, isa: Isa) -> bool {
        isa == Isa::X86_64V4 && self.dtype == DType::F32
    }

    /// Whether one instruction gives a half of it.
    pub(super) fn halves_at_once(self, isa: Isa) -> bool {
        matches!(isa, Isa::X86_64V3 | Isa::X86_64V4) && self.dtype == DType::F32 && self.width >= 8
    }

    /// The vector of half as many elements.
    pub(super) fn half(self) -> Vector {
        Vector { width: self.width / 2, ..self }
    }

    /// Whether a window of two such vectors is one register: AVX-512 picks lanes from anywhere in it at once.
    pub(super) fn picks_from_one(self, isa: Isa) -> bool {
        isa == Isa::X86_64V4 && self.dtype == DType::F32 && self.width <= 8
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.dtype, self.width)
    }
}
