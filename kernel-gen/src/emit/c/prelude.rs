//! The helpers that emitted C calls: vector types, loads and stores of a part of a vector, conversions.
//!
//! A source contains the helpers it uses and no others, in a fixed order, so that it stays readable and deterministic.

use super::Isa;
use crate::ir::DType;
use std::collections::BTreeSet;
use std::fmt::Write;

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
    /// Smaller and larger of two scalars.
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
    /// A whole vector to memory.
    Store(Vector, DType),
    /// The first `n` lanes to memory; writes no more than that.
    StorePart(Vector, DType),
    /// Lanes to elements `stride` apart.
    Scatter(Vector, DType),
    /// Lane-wise smaller.
    VectorMin(Vector),
    /// Lane-wise larger.
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
            Helper::MinMax(d) => format!(
                "KG_FN {t} min_{d}({t} a, {t} b) {{\n  return a < b ? a : b;\n}}\n\
                 KG_FN {t} max_{d}({t} a, {t} b) {{\n  return a > b ? a : b;\n}}\n",
                t = c_type(d),
            ),
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
            Helper::LoadEvenBetween(v) => load_even_between(&name, v),
            Helper::Gather(v, d) => format!(
                "KG_FN {v} {name}(const {t} *p, int64_t stride, int n) {{\n  {v} v = {{0}};\n  \
                 for (int i = 0; i < n; i++) v[i] = {x};\n  return v;\n}}\n",
                v = v.name(),
                t = c_type(d),
                x = widened(d, v.dtype, "p[i * stride]"),
            ),
            Helper::LoadEven(v) => load_even(&name, v),
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

/// The intrinsic prefix and type suffix of a vector: `("_mm512", "ps")`.
fn intrinsic(v: Vector) -> Option<(&'static str, &'static str)> {
    let prefix = match v.bytes() {
        64 => "_mm512",
        32 => "_mm256",
        16 => "_mm",
        _ => return None,
    };
    match v.dtype {
        DType::F32 => Some((prefix, "ps")),
        DType::F64 => Some((prefix, "pd")),
        _ => None,
    }
}

fn widened(from: DType, to: DType, x: &str) -> String {
    if from == to { x.to_string() } else { format!("{from}_to_f32({x})") }
}

fn narrowed(to: DType, from: DType, x: &str) -> String {
    if from == to { x.to_string() } else { format!("f32_to_{to}({x})") }
}

fn load_converted(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let head = format!("KG_FN {} {name}(const uint16_t *p) {{\n", v.name());
    let body = match (d, isa, v.width) {
        (DType::F16, Isa::X86_64V4, 16) => {
            "  return (f32x16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));\n".to_string()
        }
        (DType::F16, Isa::X86_64V3 | Isa::X86_64V4, 8) => {
            "  return (f32x8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));\n".to_string()
        }
        (DType::Bf16, Isa::X86_64V4, 16) => {
            "  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));\n  \
             return (f32x16)_mm512_slli_epi32(wide, 16);\n"
                .to_string()
        }
        (DType::Bf16, Isa::X86_64V3 | Isa::X86_64V4, 8) => {
            "  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));\n  \
             return (f32x8)_mm256_slli_epi32(wide, 16);\n"
                .to_string()
        }
        _ => format!(
            "  {v} v;\n  for (int i = 0; i < {w}; i++) v[i] = {d}_to_f32(p[i]);\n  return v;\n",
            v = v.name(),
            w = v.width
        ),
    };
    format!("{head}{body}}}\n")
}

fn store_converted(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let head = format!("KG_FN void {name}(uint16_t *p, {} v) {{\n", v.name());
    let body = match (d, isa, v.width) {
        (DType::F16, Isa::X86_64V4, 16) => {
            "  _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));\n".to_string()
        }
        (DType::F16, Isa::X86_64V3 | Isa::X86_64V4, 8) => {
            "  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));\n".to_string()
        }
        _ => format!("  for (int i = 0; i < {}; i++) p[i] = f32_to_{d}(v[i]);\n", v.width),
    };
    format!("{head}{body}}}\n")
}

fn load_part(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let head = format!("KG_FN {v} {name}(const {t} *p, int n) {{\n", v = v.name(), t = c_type(d));
    let same = d == v.dtype;
    let body = match (isa, intrinsic(v)) {
        (Isa::X86_64V4, Some((prefix, suffix))) if same => format!(
            "  return ({v}){prefix}_maskz_loadu_{suffix}((__mmask{bits})((1u << n) - 1u), p);\n",
            v = v.name(),
            bits = v.width.max(8),
        ),
        (Isa::X86_64V3, Some((prefix, suffix))) if same => {
            format!("  return ({v}){prefix}_maskload_{suffix}(p, {m});\n", v = v.name(), m = lane_mask(v))
        }
        _ if same => format!(
            "  {v} v = {{0}};\n  __builtin_memcpy(&v, p, (size_t)n * {b});\n  return v;\n",
            v = v.name(),
            b = d.bytes()
        ),
        _ => format!(
            "  {v} v = {{0}};\n  for (int i = 0; i < n; i++) v[i] = {d}_to_f32(p[i]);\n  return v;\n",
            v = v.name()
        ),
    };
    format!("{head}{body}}}\n")
}

fn load_between(name: &str, v: Vector, isa: Isa) -> String {
    let (t, w, bytes) = (c_type(v.dtype), v.width, v.dtype.bytes());
    let head = format!(
        "KG_FN {v} {name}(const {t} *p, int64_t low, int64_t high) {{\n  \
         low = low < 0 ? 0 : low > {w} ? {w} : low;\n  \
         high = high < low ? low : high > {w} ? {w} : high;\n",
        v = v.name()
    );
    let body = match (isa, intrinsic(v)) {
        (Isa::X86_64V4, Some((prefix, suffix))) => format!(
            "  return ({v}){prefix}_maskz_loadu_{suffix}((__mmask{bits})((1u << high) - (1u << low)), p);\n",
            v = v.name(),
            bits = w.max(8),
        ),
        (Isa::X86_64V3, Some((prefix, suffix))) => {
            let lanes: Vec<String> = (0..w).map(|i| i.to_string()).collect();
            let integer = if bytes == 8 { "int64_t" } else { "int32_t" };
            let raw = if v.bytes() == 32 { "__m256i" } else { "__m128i" };
            format!(
                "  {m} lane = {{{lanes}}};\n  \
                 {m} mask = (lane >= ({integer})low) & (lane < ({integer})high);\n  \
                 return ({v}){prefix}_maskload_{suffix}(p, ({raw})mask);\n",
                m = v.mask().name(),
                lanes = lanes.join(", "),
                v = v.name(),
            )
        }
        _ => format!(
            "  {v} v = {{0}};\n  for (int64_t i = low; i < high; i++) v[i] = p[i];\n  return v;\n",
            v = v.name()
        ),
    };
    format!("{head}{body}}}\n")
}

fn store_part(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let head = format!("KG_FN void {name}({t} *p, {v} v, int n) {{\n", v = v.name(), t = c_type(d));
    let same = d == v.dtype;
    let body = match (isa, intrinsic(v)) {
        (Isa::X86_64V4, Some((prefix, suffix))) if same => format!(
            "  {prefix}_mask_storeu_{suffix}(p, (__mmask{bits})((1u << n) - 1u), ({raw})v);\n",
            bits = v.width.max(8),
            raw = raw(v),
        ),
        (Isa::X86_64V3, Some((prefix, suffix))) if same => {
            format!("  {prefix}_maskstore_{suffix}(p, {m}, ({raw})v);\n", m = lane_mask(v), raw = raw(v))
        }
        _ if same => format!("  __builtin_memcpy(p, &v, (size_t)n * {});\n", d.bytes()),
        _ => format!("  for (int i = 0; i < n; i++) p[i] = f32_to_{d}(v[i]);\n"),
    };
    format!("{head}{body}}}\n")
}

/// The intrinsic type of a vector.
fn raw(v: Vector) -> String {
    format!("__m{}{}", v.bytes() * 8, if v.dtype == DType::F64 { "d" } else { "" })
}

/// An integer vector whose first `n` lanes are all ones.
fn lane_mask(v: Vector) -> String {
    let cast = if v.bytes() == 32 { "__m256i" } else { "__m128i" };
    let lanes: Vec<String> = (0..v.width).map(|i| i.to_string()).collect();
    let lanes = lanes.join(", ");
    match (v.dtype.bytes(), v.bytes()) {
        (4, 32) => format!("_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32({lanes}))"),
        (4, _) => format!("_mm_cmpgt_epi32(_mm_set1_epi32(n), _mm_setr_epi32({lanes}))"),
        (_, 32) => format!("_mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x({lanes}))"),
        _ => format!("({cast})_mm_cmpgt_epi64(_mm_set1_epi64x(n), _mm_set_epi64x(1, 0))"),
    }
}

fn load_even(name: &str, v: Vector) -> String {
    let w = v.width;
    // The second load ends at the last element needed, so nothing past it is read.
    let picks: Vec<String> =
        (0..w / 2).map(|i| (2 * i).to_string()).chain((0..w / 2).map(|i| (w + 2 * i + 1).to_string())).collect();
    let picks = picks.join(", ");
    let v_name = v.name();
    format!(
        "KG_FN {v_name} {name}(const {t} *p) {{\n  {v_name} lo = load_{v_name}(p), hi = load_{v_name}(p + {last});\n\
         #ifdef __clang__\n  return __builtin_shufflevector(lo, hi, {picks});\n#else\n  \
         typedef int{bits}_t picks __attribute__((vector_size({bytes})));\n  \
         return __builtin_shuffle(lo, hi, (picks){{{picks}}});\n#endif\n}}\n",
        t = c_type(v.dtype),
        last = w - 1,
        bits = v.dtype.bytes() * 8,
        bytes = v.bytes(),
    )
}

/// Lane `i` is element `2 i`, so whole lanes `low..high` are elements `2 low..2 high - 1`: two loads, as for all lanes.
fn load_even_between(name: &str, v: Vector) -> String {
    let (w, vector, mask) = (v.width, v.name(), v.mask().name());
    let lanes = |from: usize, second: usize| -> String {
        let pick = |i: usize| if i < w / 2 { from + 2 * i } else { second + 2 * i - (w - 1) };
        (0..w).map(|i| pick(i).to_string()).collect::<Vec<_>>().join(", ")
    };
    let lanes = lanes(0, w);
    format!(
        "KG_FN {vector} {name}(const {t} *p, int64_t low, int64_t high) {{\n  \
         {vector} a = load_between_{vector}(p, 2 * low, 2 * high - 1);\n  \
         {vector} b = load_between_{vector}(p + {last}, 2 * low - {last}, 2 * high - 1 - {last});\n\
         #ifdef __clang__\n  return __builtin_shufflevector(a, b, {lanes});\n\
         #else\n  return __builtin_shuffle(a, b, ({mask}){{{lanes}}});\n#endif\n}}\n",
        t = c_type(v.dtype),
        last = w - 1,
    )
}

/// Swaps ever smaller off-diagonal blocks: after the step of distance `d`, the bits `d` of row and lane are exchanged.
fn transpose(name: &str, v: Vector) -> String {
    let (w, vector, mask) = (v.width, v.name(), v.mask().name());
    let mut out = String::new();
    let distances: Vec<usize> = std::iter::successors(Some(w / 2), |d| (*d > 1).then_some(d / 2)).collect();
    for d in &distances {
        let picks =
            |f: &dyn Fn(usize) -> usize| -> String { (0..w).map(|l| f(l).to_string()).collect::<Vec<_>>().join(", ") };
        let upper = picks(&|l| if l & d == 0 { l } else { w + l - d });
        let lower = picks(&|l| if l & d == 0 { l + d } else { w + l });
        let _ = write!(
            out,
            "KG_FN void swap{d}_{vector}({vector} *a, {vector} *b) {{\n  const {vector} x = *a, y = *b;\n\
             #ifdef __clang__\n  *a = __builtin_shufflevector(x, y, {upper});\n  \
             *b = __builtin_shufflevector(x, y, {lower});\n#else\n  \
             *a = __builtin_shuffle(x, y, ({mask}){{{upper}}});\n  \
             *b = __builtin_shuffle(x, y, ({mask}){{{lower}}});\n#endif\n}}\n"
        );
    }
    let _ = writeln!(out, "KG_FN void {name}({vector} *r) {{");
    for d in &distances {
        let pairs: Vec<String> =
            (0..w).filter(|i| i & d == 0).map(|i| format!("swap{d}_{vector}(r + {i}, r + {});", i + d)).collect();
        for some in pairs.chunks(4) {
            let _ = writeln!(out, "  {}", some.join(" "));
        }
    }
    out.push_str("}\n");
    out
}

fn min_max(name: &str, v: Vector, isa: Isa, word: &str, sign: char) -> String {
    let head = format!("KG_FN {v} {name}({v} a, {v} b) {{\n", v = v.name());
    let body = match intrinsic(v) {
        Some((prefix, suffix)) if isa.is_x86() => {
            format!("  return ({v}){prefix}_{word}_{suffix}(({raw})a, ({raw})b);\n", v = v.name(), raw = raw(v))
        }
        _ => format!(
            "  {m} pick = ({m})(a {sign} b);\n  return ({v})((pick & ({m})a) | (~pick & ({m})b));\n",
            m = v.mask().name(),
            v = v.name()
        ),
    };
    format!("{head}{body}}}\n")
}

fn map(name: &str, v: Vector, f: MathFn, isa: Isa) -> String {
    let head = format!("KG_FN {v} {name}({v} x) {{\n", v = v.name());
    let body = match (f, intrinsic(v)) {
        (MathFn::Sqrt, Some((prefix, suffix))) if isa.is_x86() => {
            format!("  return ({v}){prefix}_sqrt_{suffix}(({raw})x);\n", v = v.name(), raw = raw(v))
        }
        _ => format!(
            "  for (int i = 0; i < {w}; i++) x[i] = {f}(x[i]);\n  return x;\n",
            w = v.width,
            f = f.c_name(v.dtype)
        ),
    };
    format!("{head}{body}}}\n")
}

const WIDEN_F16: &str = "KG_FN float f16_to_f32(uint16_t h) {
#if defined(__FLT16_MANT_DIG__) && (defined(__F16C__) || defined(__aarch64__))
  _Float16 x;
  __builtin_memcpy(&x, &h, 2);
  return (float)x;
#else
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3ffu, u;
  float f;
  if (exponent == 0) {
    f = (float)mantissa * 0x1p-24f;
    return sign ? -f : f;
  }
  u = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | mantissa << 13;
  __builtin_memcpy(&f, &u, 4);
  return f;
#endif
}
";

const NARROW_F16: &str = "KG_FN uint16_t f32_to_f16(float f) {
#if defined(__FLT16_MANT_DIG__) && (defined(__F16C__) || defined(__aarch64__))
  _Float16 x = (_Float16)f;
  uint16_t h;
  __builtin_memcpy(&h, &x, 2);
  return h;
#else
  uint32_t u, sign, magnitude, rounded;
  __builtin_memcpy(&u, &f, 4);
  sign = u >> 16 & 0x8000u;
  magnitude = u & 0x7fffffffu;
  if (magnitude >= 0x47800000u) return (uint16_t)(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u));
  if (magnitude < 0x38800000u) {
    float scaled;
    __builtin_memcpy(&scaled, &magnitude, 4);
    scaled += 0.5f;
    __builtin_memcpy(&rounded, &scaled, 4);
    return (uint16_t)(sign | (rounded - 0x3f000000u));
  }
  rounded = magnitude + 0xc8000fffu + (magnitude >> 13 & 1u);
  return (uint16_t)(sign | rounded >> 13);
#endif
}
";

/// The helpers that a source uses so far.
#[derive(Default)]
pub(super) struct Prelude {
    used: BTreeSet<Helper>,
    math: bool,
    unroll: bool,
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
        out.push_str(&helpers);
        if !helpers.is_empty() {
            out.push('\n');
        }
        out
    }
}
