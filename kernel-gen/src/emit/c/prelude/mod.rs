//! The helpers that emitted C calls: vector types, loads and stores of a part of a vector, conversions.
//!
//! A source contains the helpers it uses and no others, in a fixed order, so that it stays readable and deterministic.

mod text;

use super::Isa;
use super::rows::picks_from_one;
use crate::ir::DType;
use std::collections::BTreeSet;
use std::fmt::Write;
use text::{
    NARROW_F16, WIDEN_F16, load_between, load_converted, load_even, load_even_between, load_part, map, min_max,
    narrowed, pick_from, store_converted, store_part, transpose, widened,
};

/// A vector type of the emitted C: `f32x16` is sixteen floats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Vector {
    /// Element type: `F32`, `F64`, `I32` or `I64`.
    pub(super) dtype: DType,
    /// Elements, a power of two.
    pub(super) width: usize,
}

impl Vector {
    pub(super) fn name(self) -> String {
        format!("{}x{}", self.dtype, self.width)
    }

    fn bytes(self) -> usize {
        self.width * self.dtype.bytes()
    }

    /// The integer vector that comparisons of this one give.
    fn mask(self) -> Vector {
        Vector { dtype: if self.dtype.bytes() == 8 { DType::I64 } else { DType::I32 }, width: self.width }
    }
}

/// A function of the prelude. The order of the variants is the order in the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Helper {
    /// The type itself.
    Type(Vector),
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
    /// A whole vector to memory.
    Store(Vector, DType),
    /// The first `n` lanes to memory; writes no more than that.
    StorePart(Vector, DType),
    /// Lanes to elements `stride` apart.
    Scatter(Vector, DType),
    /// Lane-wise smaller; NaN where either is.
    VectorMin(Vector),
    /// Lane-wise larger; NaN where either is.
    VectorMax(Vector),
    /// A square of registers, in place.
    Transpose(Vector),
    /// Lane-wise call of a function of `<math.h>`.
    Map(Vector, MathFn),
}

/// Functions of `<math.h>` that vectors call lane by lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum MathFn {
    Abs,
    Sqrt,
    Exp,
    Tanh,
    Erf,
}

impl MathFn {
    /// The C function for scalars of a type.
    pub(super) fn c_name(self, dtype: DType) -> String {
        let base = match self {
            MathFn::Abs => "fabs",
            MathFn::Sqrt => "sqrt",
            MathFn::Exp => "exp",
            MathFn::Tanh => "tanh",
            MathFn::Erf => "erf",
        };
        if dtype == DType::F64 { base.to_string() } else { format!("{base}f") }
    }
}

/// The C type of an element in memory.
pub(super) fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 | DType::Bf16 => "uint16_t",
        DType::I64 => "int64_t",
        DType::I32 => "int32_t",
        DType::Bool => "uint8_t",
    }
}

impl Helper {
    /// What the emitted code calls it.
    pub(super) fn name(self) -> String {
        // A conversion shows in the name: `load_f16_f32x8`.
        let from = |v: Vector, d: DType| if d == v.dtype { v.name() } else { format!("{d}_{}", v.name()) };
        match self {
            Helper::Type(v) => v.name(),
            Helper::FloorDiv => "floor_div".into(),
            Helper::FloorMod => "floor_mod".into(),
            Helper::MinMax(d) => d.name().into(),
            Helper::Widen(d) => format!("{d}_to_f32"),
            Helper::Narrow(d) => format!("f32_to_{d}"),
            Helper::Splat(v) => format!("splat_{}", v.name()),
            Helper::Load(v, d) => format!("load_{}", from(v, d)),
            Helper::LoadPart(v, d) => format!("load_part_{}", from(v, d)),
            Helper::LoadBetween(v) => format!("load_between_{}", v.name()),
            Helper::LoadEvenBetween(v) => format!("load_even_between_{}", v.name()),
            Helper::Gather(v, d) => format!("gather_{}", from(v, d)),
            Helper::LoadEven(v) => format!("load_even_{}", v.name()),
            Helper::PickFrom(v, first) => format!("pick_from{first}_{}", v.name()),
            Helper::Store(v, d) => format!("store_{}", from(v, d)),
            Helper::StorePart(v, d) => format!("store_part_{}", from(v, d)),
            Helper::Scatter(v, d) => format!("scatter_{}", from(v, d)),
            Helper::VectorMin(v) => format!("min_{}", v.name()),
            Helper::VectorMax(v) => format!("max_{}", v.name()),
            Helper::Transpose(v) => format!("transpose_{}", v.name()),
            Helper::Map(v, f) => format!("{}_{}", f.c_name(v.dtype), v.name()),
        }
    }

    /// What it calls itself.
    fn needs(self) -> Vec<Helper> {
        match self {
            Helper::Type(_) | Helper::FloorDiv | Helper::FloorMod | Helper::MinMax(_) => vec![],
            Helper::Widen(_) | Helper::Narrow(_) => vec![],
            Helper::Load(v, d) | Helper::LoadPart(v, d) | Helper::Gather(v, d) => {
                let mut all = vec![Helper::Type(v)];
                all.extend((d != v.dtype).then_some(Helper::Widen(d)));
                all
            }
            Helper::Store(v, d) | Helper::StorePart(v, d) | Helper::Scatter(v, d) => {
                let mut all = vec![Helper::Type(v)];
                all.extend((d != v.dtype).then_some(Helper::Narrow(d)));
                all
            }
            Helper::LoadBetween(v) => vec![Helper::Type(v), Helper::Type(v.mask())],
            Helper::LoadEvenBetween(v) => vec![Helper::Type(v), Helper::Type(v.mask()), Helper::LoadBetween(v)],
            Helper::LoadEven(v) => vec![Helper::Type(v), Helper::Load(v, v.dtype)],
            Helper::PickFrom(v, _) => {
                let twice = Vector { width: 2 * v.width, ..v };
                vec![Helper::Type(v), Helper::Type(v.mask()), Helper::Type(twice)]
            }
            Helper::VectorMin(v) | Helper::VectorMax(v) => vec![Helper::Type(v), Helper::Type(v.mask())],
            Helper::Transpose(v) => vec![Helper::Type(v), Helper::Type(v.mask())],
            Helper::Splat(v) | Helper::Map(v, _) => vec![Helper::Type(v)],
        }
    }

    fn text(self, isa: Isa) -> String {
        let name = self.name();
        match self {
            Helper::Type(v) => format!(
                "typedef {t} {name} __attribute__((vector_size({bytes})));\n\
                 typedef {t} {name}_u __attribute__((vector_size({bytes}), aligned({align}), may_alias));\n",
                t = c_type(v.dtype),
                bytes = v.bytes(),
                align = v.dtype.bytes(),
            ),
            Helper::FloorDiv => "KG_FN int64_t floor_div(int64_t a, int64_t b) {\n  \
                 int64_t q = a / b;\n  return q - (a % b != 0 && (a < 0) != (b < 0));\n}\n"
                .into(),
            Helper::FloorMod => "KG_FN int64_t floor_mod(int64_t a, int64_t b) {\n  \
                 int64_t r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n}\n"
                .into(),
            Helper::MinMax(d) => {
                // Both are NaN if either operand is. Where `b` is a literal no more than one comparison is left.
                let b = if d.is_float() { " || b != b" } else { "" };
                format!(
                    "KG_FN {t} min_{d}({t} a, {t} b) {{\n  return b < a{b} ? b : a;\n}}\n\
                     KG_FN {t} max_{d}({t} a, {t} b) {{\n  return b > a{b} ? b : a;\n}}\n",
                    t = c_type(d),
                )
            }
            Helper::Widen(DType::Bf16) => "KG_FN float bf16_to_f32(uint16_t h) {\n  \
                 uint32_t u = (uint32_t)h << 16;\n  float f;\n  __builtin_memcpy(&f, &u, 4);\n  return f;\n}\n"
                .into(),
            Helper::Narrow(DType::Bf16) => "KG_FN uint16_t f32_to_bf16(float f) {\n  \
                 uint32_t u;\n  __builtin_memcpy(&u, &f, 4);\n  \
                 if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);\n  \
                 return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);\n}\n"
                .into(),
            Helper::Widen(_) => WIDEN_F16.into(),
            Helper::Narrow(_) => NARROW_F16.into(),
            Helper::Splat(v) => {
                let lanes = vec!["x"; v.width].join(", ");
                format!(
                    "KG_FN {v} {name}({t} x) {{\n  return ({v}){{{lanes}}};\n}}\n",
                    v = v.name(),
                    t = c_type(v.dtype)
                )
            }
            Helper::Load(v, d) if d == v.dtype => format!(
                "KG_FN {v} {name}(const {t} *p) {{\n  return *(const {v}_u *)p;\n}}\n",
                v = v.name(),
                t = c_type(d)
            ),
            Helper::Load(v, d) => load_converted(&name, v, d, isa),
            Helper::LoadPart(v, d) => load_part(&name, v, d, isa),
            Helper::LoadBetween(v) => load_between(&name, v, isa),
            Helper::LoadEvenBetween(v) => load_even_between(&name, v, isa),
            Helper::Gather(v, d) => format!(
                "KG_FN {v} {name}(const {t} *p, int64_t stride, int n) {{\n  {v} v = {{0}};\n  \
                 for (int i = 0; i < n; i++) v[i] = {x};\n  return v;\n}}\n",
                v = v.name(),
                t = c_type(d),
                x = widened(d, v.dtype, "p[i * stride]"),
            ),
            Helper::LoadEven(v) => load_even(&name, v),
            Helper::PickFrom(v, first) => pick_from(&name, v, first, picks_from_one(v, isa)),
            Helper::Store(v, d) if d == v.dtype => {
                format!("KG_FN void {name}({t} *p, {v} v) {{\n  *({v}_u *)p = v;\n}}\n", v = v.name(), t = c_type(d))
            }
            Helper::Store(v, d) => store_converted(&name, v, d, isa),
            Helper::StorePart(v, d) => store_part(&name, v, d, isa),
            Helper::Scatter(v, d) => format!(
                "KG_FN void {name}({t} *p, int64_t stride, {v} v, int n) {{\n  \
                 for (int i = 0; i < n; i++) p[i * stride] = {x};\n}}\n",
                v = v.name(),
                t = c_type(d),
                x = narrowed(d, v.dtype, "v[i]"),
            ),
            Helper::VectorMin(v) => min_max(&name, v, isa, "min", '<'),
            Helper::VectorMax(v) => min_max(&name, v, isa, "max", '>'),
            Helper::Transpose(v) => transpose(&name, v),
            Helper::Map(v, f) => map(&name, v, f, isa),
        }
    }
}

/// The helpers that a source uses so far.
#[derive(Clone, Default)]
pub(super) struct Prelude {
    used: BTreeSet<Helper>,
    math: bool,
    unroll: bool,
    fetch: bool,
}

impl Prelude {
    /// Notes the helper and gives its name.
    pub(super) fn call(&mut self, h: Helper) -> String {
        self.add(h);
        h.name()
    }

    fn add(&mut self, h: Helper) {
        self.math |= matches!(h, Helper::Map(..));
        if self.used.insert(h) {
            h.needs().into_iter().for_each(|n| self.add(n));
        }
    }

    /// Notes that loops are advised to be unrolled.
    pub(super) fn use_unroll(&mut self) {
        self.unroll = true;
    }

    /// Notes that lines of memory are asked for ahead.
    pub(super) fn use_fetch(&mut self) {
        self.fetch = true;
    }

    /// Notes that `<math.h>` is needed.
    pub(super) fn use_math(&mut self) {
        self.math = true;
    }

    /// Includes and helpers.
    pub(super) fn text(&self, isa: Isa) -> String {
        let mut out = String::from("#include <stddef.h>\n#include <stdint.h>\n");
        if self.math {
            out.push_str("#include <math.h>\n");
        }
        let helpers: String = self.used.iter().map(|h| h.text(isa)).collect();
        if helpers.contains("_mm") {
            out.push_str("#include <immintrin.h>\n");
        }
        out.push('\n');
        if helpers.contains("KG_FN") {
            let _ = writeln!(out, "#define KG_FN static inline __attribute__((always_inline, unused))\n");
        }
        if self.unroll {
            out.push_str(
                "#define KG_PRAGMA(x) _Pragma(#x)\n#ifdef __clang__\n#define KG_UNROLL(n) KG_PRAGMA(unroll n)\n\
                 #else\n#define KG_UNROLL(n) KG_PRAGMA(GCC unroll n)\n#endif\n\n",
            );
        }
        if self.fetch {
            // The address may lie behind the buffer's end, where a pointer must not point.
            out.push_str(
                "#define KG_FETCH(p, i) __builtin_prefetch((const void *)((uintptr_t)(p) + sizeof *(p) * (size_t)(i)))\n\n",
            );
        }
        out.push_str(&helpers);
        if !helpers.is_empty() {
            out.push('\n');
        }
        out
    }
}
