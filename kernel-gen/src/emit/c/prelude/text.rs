//! The texts of those helpers that differ between instruction sets.

use super::{Isa, MathFn, Vector, c_type};
use crate::ir::DType;
use std::fmt::Write;

/// The intrinsic prefix and type suffix of a vector: `("_mm512", "ps")`.
pub(super) fn intrinsic(v: Vector) -> Option<(&'static str, &'static str)> {
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

pub(super) fn widened(from: DType, to: DType, x: &str) -> String {
    if from == to { x.to_string() } else { format!("{from}_to_f32({x})") }
}

pub(super) fn narrowed(to: DType, from: DType, x: &str) -> String {
    if from == to { x.to_string() } else { format!("f32_to_{to}({x})") }
}

pub(super) fn load_converted(name: &str, v: Vector, d: DType, isa: Isa) -> String {
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

pub(super) fn store_converted(name: &str, v: Vector, d: DType, isa: Isa) -> String {
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

pub(super) fn load_part(name: &str, v: Vector, d: DType, isa: Isa) -> String {
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

pub(super) fn load_between(name: &str, v: Vector, isa: Isa) -> String {
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

pub(super) fn store_part(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let head = format!("KG_FN void {name}({t} *p, {v} v, int n) {{\n", v = v.name(), t = c_type(d));
    let same = d == v.dtype;
    let body = match (isa, intrinsic(v)) {
        // GCC joins a masked store with what takes its vector out of a longer one to `vextractf32x8 .. {k}`. That writes
        // the same, but of all masked stores it alone faults for lanes that are not stored, where a buffer ends with its
        // page. What is empty to the assembler hides from GCC where the vector comes from.
        (Isa::X86_64V4, Some((prefix, suffix))) if same => format!(
            "{apart}  {prefix}_mask_storeu_{suffix}(p, (__mmask{bits})((1u << n) - 1u), ({raw})v);\n",
            apart = if v.bytes() < 64 { "  __asm__(\"\" : \"+v\"(v));\n" } else { "" },
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
pub(super) fn raw(v: Vector) -> String {
    format!("__m{}{}", v.bytes() * 8, if v.dtype == DType::F64 { "d" } else { "" })
}

/// An integer vector whose first `n` lanes are all ones.
pub(super) fn lane_mask(v: Vector) -> String {
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

pub(super) fn load_even(name: &str, v: Vector) -> String {
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

/// Lane `i` is element `2 i`, so whole lanes `low..high` are elements `2 low..2 high - 1`: two loads, as for all lanes, or
/// one where a register holds twice as many.
pub(super) fn load_even_between(name: &str, v: Vector, isa: Isa) -> String {
    let (w, vector, mask) = (v.width, v.name(), v.mask().name());
    if isa == Isa::X86_64V4 && v.dtype == DType::F32 && w <= 8 {
        let bits = 2 * v.bytes() * 8;
        let raw = if bits == 512 { "_mm512" } else { "_mm256" };
        // Of lanes that are cut off, any will do.
        let picks: Vec<String> = (0..2 * w).map(|i| (2 * i % (2 * w)).to_string()).collect();
        return format!(
            "KG_FN {vector} {name}(const float *p, int64_t low, int64_t high) {{\n  \
             low = low < 0 ? 0 : low > {w} ? {w} : low;\n  \
             high = high < low ? low : high > {w} ? {w} : high;\n  \
             uint32_t lanes = high > low ? (1u << (2 * high - 1)) - (1u << 2 * low) : 0u;\n  \
             __m{bits} both = {raw}_maskz_loadu_ps((__mmask{ways})lanes, p);\n  \
             return ({vector}){raw}_castps{bits}_ps{half}({raw}_permutexvar_ps({raw}_setr_epi32({picks}), both));\n}}\n",
            ways = 2 * w,
            half = bits / 2,
            picks = picks.join(", "),
        );
    }
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

/// Lane `i` is element `first + 2 i` of a window, counted around its end: of one register, or of two.
pub(super) fn pick_from(name: &str, v: Vector, first: usize, one: bool) -> String {
    let (w, vector, mask) = (v.width, v.name(), v.mask().name());
    let element = |i: usize| ((first + 2 * i) % (2 * w)).to_string();
    let picks = |lanes: usize| (0..lanes).map(element).collect::<Vec<_>>().join(", ");
    if one {
        let bits = 2 * v.bytes() * 8;
        let raw = if bits == 512 { "_mm512" } else { "_mm256" };
        return format!(
            "KG_FN {vector} {name}(f32x{twice} window) {{\n  \
             return ({vector}){raw}_castps{bits}_ps{half}({raw}_permutexvar_ps({raw}_setr_epi32({picks}), window));\n}}\n",
            twice = 2 * w,
            half = bits / 2,
            picks = picks(2 * w),
        );
    }
    let picks = picks(w);
    format!(
        "KG_FN {vector} {name}({vector} a, {vector} b) {{\n\
         #ifdef __clang__\n  return __builtin_shufflevector(a, b, {picks});\n\
         #else\n  return __builtin_shuffle(a, b, ({mask}){{{picks}}});\n#endif\n}}\n"
    )
}

/// Swaps ever smaller off-diagonal blocks: after the step of distance `d`, the bits `d` of row and lane are exchanged.
pub(super) fn transpose(name: &str, v: Vector) -> String {
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

/// Lane-wise smaller or larger; NaN where either operand is. The instructions of x86 give their second operand where one is
/// NaN, so `a` is the second, and lanes of `b` that are NaN get all their bits set. Where `b` is constant that costs nothing.
pub(super) fn min_max(name: &str, v: Vector, isa: Isa, word: &str, sign: char) -> String {
    let head = format!("KG_FN {v} {name}({v} a, {v} b) {{\n", v = v.name());
    let (vector, m) = (v.name(), v.mask().name());
    let body = match intrinsic(v) {
        Some((prefix, suffix)) if isa.is_x86() => {
            let raw = raw(v);
            format!("  return ({vector})(({m}){prefix}_{word}_{suffix}(({raw})b, ({raw})a) | ({m})(b != b));\n")
        }
        _ => {
            let nan = if v.dtype.is_float() { format!(" | ({m})(b != b)") } else { String::new() };
            format!("  {m} pick = ({m})(b {sign} a){nan};\n  return ({vector})((pick & ({m})b) | (~pick & ({m})a));\n")
        }
    };
    format!("{head}{body}}}\n")
}

pub(super) fn map(name: &str, v: Vector, f: MathFn, isa: Isa) -> String {
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

pub(super) const WIDEN_F16: &str = "KG_FN float f16_to_f32(uint16_t h) {
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

pub(super) const NARROW_F16: &str = "KG_FN uint16_t f32_to_f16(float f) {
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
