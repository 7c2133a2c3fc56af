//! The helpers that emitted C calls: vector types, loads and stores of a part of a vector, conversions.

mod text;

use super::Isa;
use super::types::{MOST_LANES, Vector, c_type};
use crate::emit::clike::prelude::{self, Prelude, floor_div, floor_mod, narrow_f8, of_two, signs, widen_f8};
use crate::ir::{DType, UnOp};
use text::{
    NARROW_F16, WIDEN_F16, choose, converts_in_steps, converts_whole, dot2, dot4, gather, half, hold, hold_float,
    larger, load, load_between, load_even, load_even_between, load_part, map, min_max, min_max_of, narrow_vector,
    of_pairs, pick_between, pick_from, rounded, scatter, splat, spread, store, store_even, store_part, transpose,
    vector_dot2, vector_dot4, widen_vector,
};

/// A function of the prelude. The order of the variants is the order in the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Helper {
    /// The header of mathematical functions.
    Math,
    /// The header of the processor's instructions, for those on tiles.
    Tiles,
    /// The advice to copy a loop's body out.
    Unroll,
    /// The request for a line of memory.
    Fetch,
    /// The type itself.
    Type(Vector),
    /// A `float` of which a compiler does not know how it was made.
    HoldFloat,
    /// Floor division of integers.
    FloorDiv,
    /// Its remainder.
    FloorMod,
    /// Smaller and larger of two scalars; of floats NaN if either is.
    MinMax(DType),
    /// `uint16_t` to `float`, binary16 or bfloat16.
    Widen(DType),
    /// `float` to `uint16_t`, rounding to nearest even.
    Narrow(DType),
    /// Floats of 16 bits, each in an integer of 32, to floats of 32.
    WidenVector(Vector, DType),
    /// The reverse, rounding to nearest even.
    NarrowVector(Vector, DType),
    /// The sum of the products of the bytes of two words, added to an `int`; whether those of each have signs.
    Dot4([bool; 2]),
    /// The sum of the products of the integers of two words of two, added to an `int`.
    Dot2,
    /// A vector of equal lanes.
    Splat(Vector),
    /// A whole vector from memory of a type.
    Load(Vector, DType),
    /// The first `n` lanes from memory, zeros above; reads no more than that.
    LoadPart(Vector, DType),
    /// The lanes from `low` to before `high`, zeros elsewhere; reads no more than that.
    LoadBetween(Vector),
    /// The same, two elements apart.
    LoadEvenBetween(Vector),
    /// Lanes `stride` elements apart.
    Gather(Vector, DType),
    /// All lanes, two elements apart.
    LoadEven(Vector),
    /// Every other element of a window of two vectors, from the one of that number on; numbers wrap around.
    PickFrom(Vector, usize),
    /// The lanes of those numbers of one vector, or of two that follow one another.
    Spread(Vector, [u8; MOST_LANES], bool),
    /// The lower or the upper half of a vector.
    Half(Vector, bool),
    /// A whole vector to memory.
    Store(Vector, DType),
    /// The first `n` lanes to memory; writes no more than that.
    StorePart(Vector, DType),
    /// Lanes to elements `stride` apart.
    Scatter(Vector, DType),
    /// The first `n` lanes to elements two apart.
    StoreEven(Vector),
    /// The lanes from `low` to before `high` of one vector, the others of another.
    PickBetween(Vector),
    /// Lane-wise the sum of the products of the bytes of two words, added to an `int`; whether those of each have signs, and
    /// whether the level has the instruction.
    VectorDot4(Vector, [bool; 2], bool),
    /// Lane-wise the sum of the products of the integers of two words of two, added to an `int`.
    VectorDot2(Vector),
    /// Lane-wise the sums of both integers of two words.
    AddPairs(Vector),
    /// Lane-wise their differences.
    SubPairs(Vector),
    /// The lanes of one vector where all bits of a mask are set, and those of another where none is.
    Choose(Vector),
    /// Lane-wise smaller; NaN where either is.
    VectorMin(Vector),
    /// Lane-wise larger; NaN where either is.
    VectorMax(Vector),
    /// Lane-wise smaller of a vector and another that is not NaN.
    VectorMinOf(Vector),
    /// Lane-wise larger of a vector and another that is not NaN.
    VectorMaxOf(Vector),
    /// The nearest integers of a vector of floats, ties to even.
    Rounded(Vector),
    /// Lane-wise the first if it is larger than the second, otherwise the second, as where either is NaN.
    VectorLarger(Vector),
    /// A square of registers, in place.
    Transpose(Vector),
    /// The same vector, of which a compiler does not know that it lies in memory as well.
    Hold(Vector),
    /// Lane-wise call of a function of `<math.h>`.
    Map(Vector, UnOp),
}

impl prelude::Helper for Helper {
    type Target = Isa;

    fn name(self) -> String {
        // A conversion shows in the name: `load_f16_f32x8`.
        let from = |v: Vector, d: DType| if d == v.dtype { v.to_string() } else { format!("{d}_{v}") };
        match self {
            Helper::Math => "math.h".into(),
            Helper::Tiles => "immintrin.h".into(),
            Helper::Unroll => "KG_UNROLL".into(),
            Helper::Fetch => "KG_FETCH".into(),
            Helper::Type(v) => v.to_string(),
            Helper::HoldFloat => "hold_f32".into(),
            Helper::FloorDiv => "floor_div".into(),
            Helper::FloorMod => "floor_mod".into(),
            Helper::MinMax(d) => d.name().into(),
            Helper::Widen(d) => format!("{d}_to_f32"),
            Helper::Narrow(d) => format!("f32_to_{d}"),
            Helper::WidenVector(v, d) => format!("{d}_to_{v}"),
            Helper::NarrowVector(v, d) => format!("{v}_to_{d}"),
            Helper::Dot4(signed) => format!("dot4_{}", signs(signed)),
            Helper::VectorDot4(v, signed, _) => format!("dot4_{}_{v}", signs(signed)),
            Helper::Dot2 => "dot2".into(),
            Helper::VectorDot2(v) => format!("dot2_{v}"),
            Helper::AddPairs(v) => format!("add_pairs_{v}"),
            Helper::SubPairs(v) => format!("sub_pairs_{v}"),
            Helper::Splat(v) => format!("splat_{v}"),
            Helper::Load(v, d) => format!("load_{}", from(v, d)),
            Helper::LoadPart(v, d) => format!("load_part_{}", from(v, d)),
            Helper::LoadBetween(v) => format!("load_between_{v}"),
            Helper::LoadEvenBetween(v) => format!("load_even_between_{v}"),
            Helper::Gather(v, d) => format!("gather_{}", from(v, d)),
            Helper::LoadEven(v) => format!("load_even_{v}"),
            Helper::PickFrom(v, first) => format!("pick_from{first}_{v}"),
            Helper::Spread(v, picks, _) => {
                let picks: Vec<String> = picks[..v.width].iter().map(u8::to_string).collect();
                format!("lanes_{}_{v}", picks.join("_"))
            }
            Helper::Half(v, upper) => format!("{}_half_{v}", if upper { "upper" } else { "lower" }),
            Helper::Store(v, d) => format!("store_{}", from(v, d)),
            Helper::StorePart(v, d) => format!("store_part_{}", from(v, d)),
            Helper::Scatter(v, d) => format!("scatter_{}", from(v, d)),
            Helper::StoreEven(v) => format!("store_even_{v}"),
            Helper::PickBetween(v) => format!("pick_between_{v}"),
            Helper::Choose(v) => format!("choose_{v}"),
            Helper::VectorMin(v) => format!("min_{v}"),
            Helper::VectorMax(v) => format!("max_{v}"),
            Helper::VectorMinOf(v) => format!("min_of_{v}"),
            Helper::VectorMaxOf(v) => format!("max_of_{v}"),
            Helper::Rounded(v) => format!("rounded_{v}"),
            Helper::VectorLarger(v) => format!("larger_{v}"),
            Helper::Transpose(v) => format!("transpose_{v}"),
            Helper::Hold(v) => format!("hold_{v}"),
            Helper::Map(v, op) => format!("{}_{v}", v.lane_fn(op)),
        }
    }

    fn needs(self, isa: Isa) -> Vec<Helper> {
        let converting = |v: Vector, d: DType, whole: Helper, lane: Helper| match d {
            _ if d == v.dtype || !d.is_float() => vec![],
            _ if converts_in_steps(v, d, isa) => vec![whole],
            _ if converts_whole(v, d, isa) => vec![],
            _ => vec![Helper::Unroll, lane],
        };
        let mut all = match self {
            Helper::Load(v, d) | Helper::LoadPart(v, d) | Helper::Gather(v, d) => {
                converting(v, d, Helper::WidenVector(v, d), Helper::Widen(d))
            }
            Helper::Store(v, d) | Helper::StorePart(v, d) | Helper::Scatter(v, d) => {
                converting(v, d, Helper::NarrowVector(v, d), Helper::Narrow(d))
            }
            Helper::WidenVector(v, _) | Helper::NarrowVector(v, _) => vec![Helper::Type(v.mask())],
            Helper::LoadEvenBetween(v) => vec![Helper::LoadBetween(v)],
            Helper::LoadEven(v) => vec![Helper::Load(v, v.dtype)],
            Helper::Spread(v, ..) => vec![Helper::Type(v.mask())],
            Helper::Half(v, _) => vec![Helper::Type(v.half())],
            Helper::PickFrom(v, _) => vec![Helper::Type(v.mask()), Helper::Type(v.twice())],
            Helper::Rounded(v) => vec![Helper::Math, Helper::Type(v.mask())],
            Helper::LoadBetween(v)
            | Helper::VectorMinOf(v)
            | Helper::VectorMaxOf(v)
            | Helper::PickBetween(v)
            | Helper::Choose(v)
            | Helper::VectorMin(v)
            | Helper::VectorMax(v)
            | Helper::Transpose(v) => {
                vec![Helper::Type(v.mask())]
            }
            Helper::Map(v, UnOp::Exp | UnOp::Log | UnOp::Erf) if v.dtype == DType::F32 => vec![Helper::Type(v.mask())],
            Helper::Map(v, UnOp::Tanh) if v.dtype == DType::F32 => {
                vec![Helper::Map(v, UnOp::Exp), Helper::Type(v.mask())]
            }
            Helper::Map(..) => vec![Helper::Unroll, Helper::Math],
            _ => vec![],
        };
        all.extend(self.vector().map(Helper::Type));
        all
    }

    fn text(self, isa: Isa) -> String {
        let name = self.name();
        match self {
            Helper::Math => "#include <math.h>\n".into(),
            Helper::Tiles => "#include <immintrin.h>\n".into(),
            Helper::Unroll => "#define KG_PRAGMA(x) _Pragma(#x)\n#ifdef __clang__\n\
                 #define KG_UNROLL(n) KG_PRAGMA(unroll n)\n\
                 #else\n#define KG_UNROLL(n) KG_PRAGMA(GCC unroll n)\n#endif\n\n"
                .into(),
            // The address may lie behind the buffer's end, where a pointer must not point.
            Helper::Fetch => "#define KG_FETCH(p, i) \
                 __builtin_prefetch((const void *)((uintptr_t)(p) + sizeof *(p) * (size_t)(i)))\n\n"
                .into(),
            Helper::Type(v) => format!(
                "typedef {t} {v} __attribute__((vector_size({bytes})));\n\
                 typedef {t} {v}_u __attribute__((vector_size({bytes}), aligned({align}), may_alias));\n",
                t = c_type(v.dtype),
                bytes = v.bytes(),
                align = v.dtype.bytes(),
            ),
            Helper::HoldFloat => hold_float(isa),
            Helper::FloorDiv => floor_div(&name, c_type(DType::I64)),
            Helper::FloorMod => floor_mod(&name, c_type(DType::I64)),
            Helper::MinMax(d) => {
                // Both are NaN if either operand is. Where `b` is a literal no more than one comparison is left.
                let b = if d.is_float() { " || b != b" } else { "" };
                let one =
                    |word, sign| of_two(&format!("{word}_{d}"), c_type(d), &format!("return b {sign} a{b} ? b : a;"));
                one("min", '<') + &one("max", '>')
            }
            Helper::Widen(DType::Bf16) => "KG_FN float bf16_to_f32(uint16_t h) {\n  \
                 uint32_t u = (uint32_t)h << 16;\n  float f;\n  __builtin_memcpy(&f, &u, 4);\n  return f;\n}\n"
                .into(),
            Helper::Narrow(DType::Bf16) => "KG_FN uint16_t f32_to_bf16(float f) {\n  \
                 uint32_t u;\n  __builtin_memcpy(&u, &f, 4);\n  \
                 if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);\n  \
                 return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);\n}\n"
                .into(),
            Helper::Widen(d) if d.is_f8() => widen_f8(d, c_type(d)),
            Helper::Narrow(d) if d.is_f8() => narrow_f8(d, c_type(d)),
            Helper::Widen(_) => WIDEN_F16.into(),
            Helper::Narrow(_) => NARROW_F16.into(),
            Helper::WidenVector(v, d) => widen_vector(&name, v, d),
            Helper::NarrowVector(v, d) => narrow_vector(&name, v, d),
            Helper::Dot4(signed) => dot4(&name, signed),
            Helper::VectorDot4(v, signed, at_once) => vector_dot4(&name, v, signed, isa, at_once),
            Helper::Dot2 => dot2(&name),
            Helper::VectorDot2(v) => vector_dot2(&name, v, isa),
            Helper::AddPairs(v) => of_pairs(&name, v, '+'),
            Helper::SubPairs(v) => of_pairs(&name, v, '-'),
            Helper::Splat(v) => splat(&name, v),
            Helper::Load(v, d) => load(&name, v, d, isa),
            Helper::LoadPart(v, d) => load_part(&name, v, d, isa),
            Helper::LoadBetween(v) => load_between(&name, v, isa),
            Helper::LoadEvenBetween(v) => load_even_between(&name, v, isa),
            Helper::Gather(v, d) => gather(&name, v, d, isa),
            Helper::LoadEven(v) => load_even(&name, v, isa),
            Helper::PickFrom(v, first) => pick_from(&name, v, first, isa),
            Helper::Spread(v, picks, two) => spread(&name, v, &picks[..v.width], two),
            Helper::Half(v, upper) => half(&name, v, upper),
            Helper::Store(v, d) => store(&name, v, d, isa),
            Helper::StorePart(v, d) => store_part(&name, v, d, isa),
            Helper::Scatter(v, d) => scatter(&name, v, d, isa),
            Helper::StoreEven(v) => store_even(&name, v),
            Helper::PickBetween(v) => pick_between(&name, v, isa),
            Helper::Choose(v) => choose(&name, v, isa),
            Helper::VectorMin(v) => min_max(&name, v, isa, "min", '<'),
            Helper::VectorMax(v) => min_max(&name, v, isa, "max", '>'),
            Helper::VectorMinOf(v) => min_max_of(&name, v, isa, "min", '<'),
            Helper::VectorMaxOf(v) => min_max_of(&name, v, isa, "max", '>'),
            Helper::Rounded(v) => rounded(&name, v, isa),
            Helper::VectorLarger(v) => larger(&name, v, isa),
            Helper::Transpose(v) => transpose(&name, v),
            Helper::Hold(v) => hold(&name, v, isa),
            Helper::Map(v, op) => map(&name, v, op, isa),
        }
    }
}

impl Helper {
    /// The vector that it is about.
    fn vector(self) -> Option<Vector> {
        match self {
            Helper::Load(v, _) | Helper::LoadPart(v, _) | Helper::Gather(v, _) => Some(v),
            Helper::Store(v, _) | Helper::StorePart(v, _) | Helper::Scatter(v, _) => Some(v),
            Helper::LoadBetween(v) | Helper::LoadEvenBetween(v) | Helper::LoadEven(v) => Some(v),
            Helper::StoreEven(v) => Some(v),
            Helper::PickBetween(v)
            | Helper::Choose(v)
            | Helper::VectorMin(v)
            | Helper::VectorMax(v)
            | Helper::VectorMinOf(v)
            | Helper::VectorMaxOf(v)
            | Helper::Rounded(v)
            | Helper::VectorLarger(v)
            | Helper::Transpose(v) => Some(v),
            Helper::Spread(v, ..) | Helper::Hold(v) | Helper::VectorDot4(v, ..) | Helper::VectorDot2(v) => Some(v),
            Helper::AddPairs(v) | Helper::SubPairs(v) | Helper::WidenVector(v, _) | Helper::NarrowVector(v, _) => {
                Some(v)
            }
            Helper::Splat(v) | Helper::PickFrom(v, _) | Helper::Half(v, _) | Helper::Map(v, _) => Some(v),
            _ => None,
        }
    }
}

/// The definitions of functions in [`text`]: what two sources may both hold, and one file only once.
pub(super) fn functions(prelude: &Prelude<Helper>) -> Vec<String> {
    prelude.used().map(|(_, text)| text).filter(|text| text.starts_with("KG_")).collect()
}

/// Includes and helpers, with the declaration of words of bytes in front of these.
pub(super) fn text(prelude: &Prelude<Helper>, words: &str) -> String {
    let all = |wanted: fn(&Helper) -> bool| -> String {
        prelude.used().filter(|(helper, _)| wanted(helper)).map(|(_, text)| text).collect()
    };
    let (includes, functions) = (all(|h| *h < Helper::Unroll), all(|h| *h > Helper::Fetch));
    let mut out = format!("#include <stddef.h>\n#include <stdint.h>\n{includes}");
    if functions.contains("_mm") && !includes.contains("immintrin") {
        out.push_str("#include <immintrin.h>\n");
    }
    if ["x16_t", "vld1_", "vst1_"].iter().any(|name| functions.contains(name)) {
        out.push_str("#include <arm_neon.h>\n");
    }
    out.push('\n');
    out.push_str(words);
    if functions.contains("KG_FN") {
        out.push_str("#define KG_FN static inline __attribute__((always_inline, unused))\n\n");
    }
    if functions.contains("KG_CALLED") {
        out.push_str("#define KG_CALLED static __attribute__((noinline, const, unused))\n\n");
    }
    out.push_str(&all(|h| matches!(h, Helper::Unroll | Helper::Fetch)));
    out.push_str(&functions);
    if !functions.is_empty() {
        out.push('\n');
    }
    out
}
