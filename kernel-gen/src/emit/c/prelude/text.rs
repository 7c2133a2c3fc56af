//! The texts of those helpers that are functions of vectors. Many differ between instruction sets.

use crate::emit::c::Isa;
use crate::emit::c::types::{Vector, c_type};
use crate::emit::clike::prelude;
use crate::ir::{DType, UnOp};
use std::fmt::{Display, Write};

/// The definition of a function.
pub(super) fn function(result: impl Display, name: &str, parameters: &str, body: &str) -> String {
    format!("KG_FN {result} {name}({parameters}) {{\n{body}}}\n")
}

/// The definition of a function that reads a vector from memory of a type.
fn reads(v: Vector, name: &str, d: DType, parameters: &str, body: &str) -> String {
    function(v, name, &format!("const {} *p{parameters}", c_type(d)), body)
}

/// The definition of a function that writes a vector to memory of a type.
fn writes(v: Vector, name: &str, d: DType, parameters: [&str; 2], body: &str) -> String {
    let [before, behind] = parameters;
    function("void", name, &format!("{} *p{before}, {v} v{behind}", c_type(d)), body)
}

/// The number that `of` gives each lane, separated by commas.
fn list(lanes: usize, of: impl Fn(usize) -> usize) -> String {
    (0..lanes).map(|i| of(i).to_string()).collect::<Vec<_>>().join(", ")
}

/// The intrinsic prefix and type suffix of a vector: `("_mm512", "ps")`.
fn intrinsic(v: Vector) -> Option<(&'static str, &'static str)> {
    let suffix = match v.dtype {
        DType::F32 => "ps",
        DType::F64 => "pd",
        _ => return None,
    };
    prefix(8 * v.bytes()).map(|prefix| (prefix, suffix))
}

/// How intrinsics of a register of that many bits begin.
fn prefix(bits: usize) -> Option<&'static str> {
    match bits {
        512 => Some("_mm512"),
        256 => Some("_mm256"),
        128 => Some("_mm"),
        _ => None,
    }
}

/// For a vector that one instruction converts from or to 16-bit floats: its bits, and the prefixes of intrinsics for as many
/// bits and for half as many.
fn converted(v: Vector, isa: Isa) -> Option<(usize, &'static str, &'static str)> {
    let bits = match (isa, v.width) {
        (Isa::X86_64V4, 16) => 512,
        (Isa::X86_64V3 | Isa::X86_64V4, 8) => 256,
        _ => return None,
    };
    Some((bits, prefix(bits)?, prefix(bits / 2)?))
}

/// Whether floats of 16 bits become a vector of `f32`, and it them, as a whole also where they are only some: part of a vector is copied
/// to a whole one first. Where no instruction converts them, code for each lane is long, and compilers take a minute for a loop of many.
pub(super) fn converts_whole(v: Vector, d: DType, isa: Isa) -> bool {
    v.dtype == DType::F32
        && matches!(d, DType::F16 | DType::Bf16)
        && (matches!(isa, Isa::Portable | Isa::X86_64) || is_arm(isa) && v.width == 4)
}

/// Whether that takes a function, for there is no instruction.
pub(super) fn converts_in_steps(v: Vector, d: DType, isa: Isa) -> bool {
    converts_whole(v, d, isa) && !(is_arm(isa) && d == DType::F16)
}

fn is_arm(isa: Isa) -> bool {
    matches!(isa, Isa::Aarch64 | Isa::Aarch64Dotprod | Isa::Aarch64I8mm)
}

/// The declaration of floats of 16 bits as the integers that memory holds.
fn halves_of(v: Vector) -> String {
    format!("  typedef uint16_t halves __attribute__((vector_size({}), aligned(2), may_alias));\n", 2 * v.width)
}

/// A vector of floats of 16 bits at `p`, widened.
fn widened_whole(v: Vector, d: DType, isa: Isa, p: &str) -> String {
    let m = v.mask();
    let integers = match (isa, v.width) {
        (Isa::X86_64, 4) => format!("_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *){p}), _mm_setzero_si128())"),
        _ if is_arm(isa) && d == DType::F16 => {
            return format!(
                "  const float16x4_t h = vld1_f16((const float16_t *){p});\n  return ({v})vcvt_f32_f16(h);\n"
            );
        }
        _ if is_arm(isa) => format!("vmovl_u16(vld1_u16({p}))"),
        _ => {
            let integers = format!("__builtin_convertvector(*(const halves *){p}, {m})");
            return format!("{}  return {d}_to_{v}({integers});\n", halves_of(v));
        }
    };
    format!("  return {d}_to_{v}(({m}){integers});\n")
}

/// A vector that becomes floats of 16 bits at `p`.
fn narrowed_whole(v: Vector, d: DType, isa: Isa, p: &str) -> String {
    let m = v.mask();
    match (isa, v.width) {
        // The instruction saturates integers with a sign.
        (Isa::X86_64, 4) => format!(
            "  const __m128i h = (__m128i)({v}_to_{d}(v) << 16 >> 16);\n  \
             _mm_storel_epi64((__m128i *){p}, _mm_packs_epi32(h, h));\n"
        ),
        _ if is_arm(isa) && d == DType::F16 => {
            format!("  vst1_f16((float16_t *){p}, vcvt_f16_f32((float32x4_t)v));\n")
        }
        _ if is_arm(isa) => format!("  vst1_u16({p}, vmovn_u32((uint32x4_t){v}_to_{d}(v)));\n"),
        _ => format!(
            "{}  const {m} h = {v}_to_{d}(v);\n  *(halves *){p} = __builtin_convertvector(h, halves);\n",
            halves_of(v)
        ),
    }
}

/// Floats of 16 bits in the low halves of integers as floats of 32. Subnormal numbers take a sum in place of a product, which a
/// processor that is told to flush them to zero leaves alone (F. Giesen, "half to float done quick", 2012).
pub(super) fn widen_vector(name: &str, v: Vector, d: DType) -> String {
    let m = v.mask();
    let body = match d {
        DType::Bf16 => format!("  return ({v})(h << 16);\n"),
        _ => format!(
            "  const {m} magnitude = (h & 0x7fff) << 13, exponent = magnitude & 0x0f800000;\n  \
             const {m} special = ({m})(exponent == 0x0f800000) & 0x38000000, small = ({m})(exponent == 0);\n  \
             const {v} subnormal = ({v})(magnitude + 0x38800000) - 0x1p-14f;\n  \
             const {m} normal = magnitude + 0x38000000 + special;\n  \
             return ({v})((h & 0x8000) << 16 | (small & ({m})subnormal) | (~small & normal));\n"
        ),
    };
    conversion(d, v, name, &format!("{m} h"), &body)
}

/// The definition of a function that converts floats of 16 bits. That of binary16 is called: a kernel that is copied out may convert
/// hundreds of vectors, and GCC takes a minute for as many copies (measured: 41 s, called 7 s; a sum of two tensors takes 1.17 times
/// as long).
fn conversion(d: DType, result: Vector, name: &str, parameters: &str, body: &str) -> String {
    let inline = function(result, name, parameters, body);
    if d == DType::F16 { inline.replacen("KG_FN", "KG_CALLED", 1) } else { inline }
}

/// Floats of 32 bits as floats of 16 in the low halves of integers, rounded to nearest even: what a sum with a number of the right
/// exponent does to numbers that become subnormal.
pub(super) fn narrow_vector(name: &str, v: Vector, d: DType) -> String {
    let m = v.mask();
    let body = match d {
        DType::Bf16 => format!(
            "  const {m} u = ({m})v, nan = ({m})((u & 0x7fffffff) > 0x7f800000);\n  \
             const {m} rounded = (~nan & u) + 0x7fff + (u >> 16 & 1);\n  \
             return ((nan & (u | 0x400000)) | (~nan & rounded)) >> 16 & 0xffff;\n"
        ),
        _ => format!(
            "  const {m} u = ({m})v, magnitude = u & 0x7fffffff;\n  \
             const {m} large = ({m})(magnitude >= 0x47800000), small = ({m})(magnitude < 0x38800000);\n  \
             const {m} limit = 0x7c00 + (({m})(magnitude > 0x7f800000) & 0x200);\n  \
             const {m} normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;\n  \
             const {m} subnormal = ({m})(({v})magnitude + 0.5f) - 0x3f000000;\n  \
             return (u >> 16 & 0x8000) | (large & limit) | (small & subnormal) | (~(large | small) & normal);\n"
        ),
    };
    conversion(d, m, name, &format!("{v} v"), &body)
}

fn widened(from: DType, to: DType, x: &str) -> String {
    if from == to || !from.is_float() { x.to_string() } else { format!("{from}_to_f32({x})") }
}

fn narrowed(to: DType, from: DType, x: &str) -> String {
    match to {
        to if to == from => x.to_string(),
        to if to.is_float() => format!("f32_to_{to}({x})"),
        to => format!("({}){x}", c_type(to)),
    }
}

/// Bytes as integers of 32 bits. GCC 12 makes scalar code of the conversion of vectors, so that instructions are named where there are some.
fn load_bytes(v: Vector, d: DType, isa: Isa) -> String {
    let kind = if d == DType::U8 { "epu8" } else { "epi8" };
    let from = match v.width {
        16 => "_mm_loadu_si128((const __m128i *)p)",
        8 => "_mm_loadl_epi64((const __m128i *)p)",
        _ => "_mm_cvtsi32_si128(four)",
    };
    let four = if v.width == 4 { "  int four;\n  __builtin_memcpy(&four, p, 4);\n" } else { "" };
    match (prefix(8 * v.bytes()), isa) {
        (Some(mm), Isa::X86_64V4) | (Some(mm @ ("_mm" | "_mm256")), Isa::X86_64V3) => {
            format!("{four}  return ({v}){mm}_cvt{kind}_epi32({from});\n")
        }
        _ => format!("{}  return __builtin_convertvector(*(const bytes *)p, {v});\n", bytes_of(v, d)),
    }
}

/// The lowest bytes of integers of 32 bits.
fn store_bytes(v: Vector, d: DType, isa: Isa) -> String {
    let store = match v.width {
        16 => "  _mm_storeu_si128((__m128i *)p, low);\n",
        8 => "  _mm_storel_epi64((__m128i *)p, low);\n",
        _ => "  const int four = _mm_cvtsi128_si32(low);\n  __builtin_memcpy(p, &four, 4);\n",
    };
    match (prefix(8 * v.bytes()), isa) {
        (Some(mm), Isa::X86_64V4) => {
            format!("  const __m128i low = {mm}_cvtepi32_epi8((__m{}i)v);\n{store}", 8 * v.bytes())
        }
        (Some("_mm256"), Isa::X86_64V3) => format!(
            "  const __m256i all = _mm256_and_si256((__m256i)v, _mm256_set1_epi32(255));\n  \
             const __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));\n  \
             const __m128i low = _mm_packus_epi16(half, half);\n{store}"
        ),
        (Some("_mm"), Isa::X86_64V3) => format!(
            "  const __m128i all = _mm_and_si128((__m128i)v, _mm_set1_epi32(255));\n  \
             const __m128i half = _mm_packus_epi32(all, all), low = _mm_packus_epi16(half, half);\n{store}"
        ),
        _ => format!("{}  *(bytes *)p = __builtin_convertvector(v, bytes);\n", bytes_of(v, d)),
    }
}

/// The declaration of a vector of bytes with as many lanes, as memory holds it.
fn bytes_of(v: Vector, d: DType) -> String {
    let attributes = format!("vector_size({}), aligned(1), may_alias", v.width);
    format!("  typedef {} bytes __attribute__(({attributes}));\n", c_type(d))
}

pub(super) fn splat(name: &str, v: Vector) -> String {
    let lanes = vec!["x"; v.width].join(", ");
    function(v, name, &format!("{} x", c_type(v.dtype)), &format!("  return ({v}){{{lanes}}};\n"))
}

/// The head of a loop over lanes, to be copied out: compilers put up with a register that is indexed by a variable only if they
/// are told so.
fn each(v: Vector) -> String {
    format!("KG_UNROLL({n})\n  for (int i = 0; i < {n}; i++)", n = v.width)
}

/// Nothing, said so that compilers take the result for something else.
pub(super) fn hold(name: &str, v: Vector, isa: Isa) -> String {
    let register = match isa {
        Isa::Portable => "",
        Isa::X86_64 | Isa::X86_64V3 | Isa::X86_64V3Vnni => "x",
        Isa::X86_64V4 | Isa::X86_64V4Vnni | Isa::X86_64V4Amx => "v",
        Isa::Aarch64 | Isa::Aarch64Dotprod | Isa::Aarch64I8mm => "w",
    };
    let body = match register {
        "" => "  return v;\n".to_string(),
        register => format!("  __asm__(\"\" : \"+{register}\"(v));\n  return v;\n"),
    };
    function(v, name, &format!("{v} v"), &body)
}

/// The same of a scalar.
pub(super) fn hold_float(isa: Isa) -> String {
    let register = match isa {
        Isa::Portable => return "KG_FN float hold_f32(float x) {\n  return x;\n}\n".into(),
        Isa::Aarch64 | Isa::Aarch64Dotprod | Isa::Aarch64I8mm => "w",
        _ => "x",
    };
    format!("KG_FN float hold_f32(float x) {{\n  __asm__(\"\" : \"+{register}\"(x));\n  return x;\n}}\n")
}

pub(super) fn load(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let body = match (d, converted(v, isa)) {
        (d, _) if d == v.dtype || d.is_word() => format!("  return *(const {v}_u *)p;\n"),
        (d, _) if d.is_byte() => load_bytes(v, d, isa),
        (DType::F16, Some((bits, whole, half))) => {
            let bits = bits / 2;
            format!("  return ({v}){whole}_cvtph_ps({half}_loadu_si{bits}((const __m{bits}i *)p));\n")
        }
        (DType::Bf16, Some((bits, whole, half))) => format!(
            "  __m{bits}i wide = {whole}_cvtepu16_epi32({half}_loadu_si{n}((const __m{n}i *)p));\n  \
             return ({v}){whole}_slli_epi32(wide, 16);\n",
            n = bits / 2
        ),
        (d, _) if converts_whole(v, d, isa) => widened_whole(v, d, isa, "p"),
        _ => format!("  {v} v;\n  {} v[i] = {d}_to_f32(p[i]);\n  return v;\n", each(v)),
    };
    reads(v, name, d, "", &body)
}

pub(super) fn store(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let body = match (d, converted(v, isa)) {
        (d, _) if d == v.dtype || d.is_word() => format!("  *({v}_u *)p = v;\n"),
        (d, _) if d.is_byte() => store_bytes(v, d, isa),
        (DType::F16, Some((bits, whole, half))) => format!(
            "  {half}_storeu_si{n}((__m{n}i *)p, {whole}_cvtps_ph((__m{bits})v, _MM_FROUND_TO_NEAREST_INT));\n",
            n = bits / 2
        ),
        (d, _) if converts_whole(v, d, isa) => narrowed_whole(v, d, isa, "p"),
        _ => format!("  {} p[i] = f32_to_{d}(v[i]);\n", each(v)),
    };
    writes(v, name, d, ["", ""], &body)
}

pub(super) fn load_part(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let body = match (isa, intrinsic(v)) {
        _ if converts_whole(v, d, isa) => {
            let part = format!("  uint16_t part[{}] = {{0}};\n  __builtin_memcpy(part, p, (size_t)n * 2);\n", v.width);
            part + &widened_whole(v, d, isa, "part")
        }
        _ if d != v.dtype && !d.is_word() => {
            let x = widened(d, v.dtype, "p[i]");
            format!("  {v} v = {{0}};\n  for (int i = 0; i < n; i++) v[i] = {x};\n  return v;\n")
        }
        (Isa::X86_64V4, Some(intrinsic)) => masked_load(v, intrinsic, "(1u << n) - 1u"),
        (Isa::X86_64V3, Some((prefix, suffix))) => {
            format!("  return ({v}){prefix}_maskload_{suffix}(p, {});\n", lane_mask(v))
        }
        _ => {
            format!("  {v} v = {{0}};\n  __builtin_memcpy(&v, p, (size_t)n * {});\n  return v;\n", d.bytes())
        }
    };
    reads(v, name, d, ", int n", &body)
}

/// A load of the lanes of a mask in AVX-512, the others zero. GCC takes all of its memory to be there: where it sees that only lanes of
/// the mask are used, as by a shuffle, it loads the whole vector (GCC 12: `vmovups (%rdi), %xmm0`), which may lie outside of the
/// buffer. What is empty to the assembler hides from GCC what becomes of the vector.
fn masked_load(v: Vector, (prefix, suffix): (&str, &str), mask: &str) -> String {
    let bits = v.width.max(8);
    format!(
        "  {v} v = ({v}){prefix}_maskz_loadu_{suffix}((__mmask{bits})({mask}), p);\n  \
         __asm__(\"\" : \"+v\"(v));\n  \
         return v;\n"
    )
}

pub(super) fn store_part(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let body = match (isa, intrinsic(v)) {
        _ if converts_whole(v, d, isa) => {
            let whole = narrowed_whole(v, d, isa, "part");
            format!("  uint16_t part[{}];\n{whole}  __builtin_memcpy(p, part, (size_t)n * 2);\n", v.width)
        }
        _ if d != v.dtype && !d.is_word() => {
            format!("  for (int i = 0; i < n; i++) p[i] = {};\n", narrowed(d, v.dtype, "v[i]"))
        }
        // GCC joins a masked store with what takes its vector out of a longer one to `vextractf32x8 .. {k}`. That writes
        // the same, but of all masked stores it alone faults for lanes that are not stored, where a buffer ends with its
        // page. What is empty to the assembler hides from GCC where the vector comes from.
        (Isa::X86_64V4, Some((prefix, suffix))) => format!(
            "{apart}  {prefix}_mask_storeu_{suffix}(p, (__mmask{bits})((1u << n) - 1u), ({raw})v);\n",
            apart = if v.bytes() < 64 { "  __asm__(\"\" : \"+v\"(v));\n" } else { "" },
            bits = v.width.max(8),
            raw = raw(v),
        ),
        (Isa::X86_64V3, Some((prefix, suffix))) => {
            let masked = format!("  {prefix}_maskstore_{suffix}(p, {}, ({})v);\n", lane_mask(v), raw(v));
            if v.dtype == DType::F32 { store_pieces(v) + &masked } else { masked }
        }
        _ => format!("  __builtin_memcpy(p, &v, (size_t)n * {});\n", d.bytes()),
    };
    writes(v, name, d, ["", ", int n"], &body)
}

/// Where the compiler knows how many lanes are stored: 4, 2 and 1 at once. Measured on a Zen 3, a masked store of AVX2 takes 12
/// cycles and these take 2; a picture has one a row.
fn store_pieces(v: Vector) -> String {
    let (first, four) = match v.width {
        8 => (
            "_mm256_castps256_ps128((__m256)v)",
            "    if (n & 4) {\n      _mm_storeu_ps(p, part);\n      part = _mm256_extractf128_ps((__m256)v, 1);\n      \
             p += 4;\n    }\n",
        ),
        _ => ("(__m128)v", ""),
    };
    format!(
        "  if (__builtin_constant_p(n) && n < {w}) {{\n    __m128 part = {first};\n{four}    \
         if (n & 2) {{\n      _mm_storel_pi((__m64 *)p, part);\n      part = _mm_movehl_ps(part, part);\n      \
         p += 2;\n    }}\n    if (n & 1) _mm_store_ss(p, part);\n    return;\n  }}\n",
        w = v.width,
    )
}

/// Lanes to every other element, by masked stores of registers that have each lane twice.
pub(super) fn store_even(name: &str, v: Vector) -> String {
    let twice = |first: usize| (0..8).rev().map(|i| format!("{0}, {0}", first + i)).collect::<Vec<_>>().join(", ");
    let register = match v.bytes() {
        64 => format!("({})v", raw(v)),
        bytes => format!("_mm512_castps{}_ps512(({})v)", 8 * bytes, raw(v)),
    };
    let part = |first: usize, mask: &str, p: &str| {
        let lanes = format!("_mm512_set_epi32({})", twice(first));
        format!("_mm512_mask_storeu_ps({p}, (__mmask16)({mask}), _mm512_permutexvar_ps({lanes}, {register}));\n")
    };
    let mut body = "  const uint64_t even = (((uint64_t)1 << 2 * n) - 1u) & 0x55555555u;\n".to_string();
    body += &format!("  {}", part(0, "even", "p"));
    if v.width > 8 {
        body += &format!("  if (n > 8) {}", part(8, "even >> 16", "p + 16"));
    }
    writes(v, name, v.dtype, ["", ", int n"], &body)
}

/// The intrinsic type of a vector.
fn raw(v: Vector) -> String {
    format!("__m{}{}", v.bytes() * 8, if v.dtype == DType::F64 { "d" } else { "" })
}

/// An integer vector whose first `n` lanes are all ones.
fn lane_mask(v: Vector) -> String {
    let lanes = list(v.width, |i| i);
    match (v.dtype.bytes(), v.bytes()) {
        (4, 32) => format!("_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32({lanes}))"),
        (4, _) => format!("_mm_cmpgt_epi32(_mm_set1_epi32(n), _mm_setr_epi32({lanes}))"),
        (_, 32) => format!("_mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x({lanes}))"),
        _ => "(__m128i)_mm_cmpgt_epi64(_mm_set1_epi64x(n), _mm_set_epi64x(1, 0))".to_string(),
    }
}

/// The parameters behind the address, and the first lines, of a function that loads the lanes `low..high`.
fn between(v: Vector) -> (&'static str, String) {
    let w = v.width;
    let clamp =
        format!("  low = low < 0 ? 0 : low > {w} ? {w} : low;\n  high = high < low ? low : high > {w} ? {w} : high;\n");
    (", int64_t low, int64_t high", clamp)
}

pub(super) fn load_between(name: &str, v: Vector, isa: Isa) -> String {
    let (parameters, clamp) = between(v);
    let body = match (isa, intrinsic(v)) {
        (Isa::X86_64V4, Some(intrinsic)) => masked_load(v, intrinsic, "(1u << high) - (1u << low)"),
        (Isa::X86_64V3, Some((prefix, suffix))) => format!(
            "  {m} lane = {{{lanes}}};\n  \
             {m} mask = (lane >= ({integer})low) & (lane < ({integer})high);\n  \
             return ({v}){prefix}_maskload_{suffix}(p, (__m{bits}i)mask);\n",
            m = v.mask(),
            lanes = list(v.width, |i| i),
            integer = c_type(v.mask().dtype),
            bits = 8 * v.bytes(),
        ),
        _ => format!("  {v} v = {{0}};\n  for (int64_t i = low; i < high; i++) v[i] = p[i];\n  return v;\n"),
    };
    reads(v, name, v.dtype, parameters, &format!("{clamp}{body}"))
}

pub(super) fn gather(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let body = if converts_whole(v, d, isa) {
        let part = format!("  uint16_t part[{}] = {{0}};\n", v.width);
        part + "  for (int i = 0; i < n; i++) part[i] = p[i * stride];\n" + &widened_whole(v, d, isa, "part")
    } else {
        let x = widened(d, v.dtype, "p[i * stride]");
        format!("  {v} v = {{0}};\n  for (int i = 0; i < n; i++) v[i] = {x};\n  return v;\n")
    };
    reads(v, name, d, ", int64_t stride, int n", &body)
}

pub(super) fn scatter(name: &str, v: Vector, d: DType, isa: Isa) -> String {
    let body = if converts_whole(v, d, isa) {
        let whole = narrowed_whole(v, d, isa, "part");
        format!("  uint16_t part[{}];\n{whole}  for (int i = 0; i < n; i++) p[i * stride] = part[i];\n", v.width)
    } else {
        format!("  for (int i = 0; i < n; i++) p[i * stride] = {};\n", narrowed(d, v.dtype, "v[i]"))
    };
    writes(v, name, d, [", int64_t stride", ", int n"], &body)
}

/// A statement that picks lanes of two vectors, in the form of Clang and in that of GCC; `to` says what becomes of them.
fn shuffle(v: Vector, to: &str, [a, b]: [&str; 2], picks: &str) -> [String; 2] {
    let mask = v.mask();
    [
        format!("  {to} __builtin_shufflevector({a}, {b}, {picks});\n"),
        format!("  {to} __builtin_shuffle({a}, {b}, ({mask}){{{picks}}});\n"),
    ]
}

/// Statements of which a compiler sees its own form.
fn by_compiler([clang, gcc]: [String; 2]) -> String {
    format!("#ifdef __clang__\n{clang}#else\n{gcc}#endif\n")
}

/// The lanes of every other element, if the second vector begins with the last element of the first.
fn every_other(v: Vector) -> String {
    list(v.width, |i| if i < v.width / 2 { 2 * i } else { 2 * i + 1 })
}

/// Whether lanes cross the halves of a vector only by instructions of their own, as in AVX2. Compilers make two permutations
/// and a blend of any shuffle of two vectors then.
fn has_halves(v: Vector, isa: Isa) -> bool {
    isa == Isa::X86_64V3 && v.dtype == DType::F32 && v.width == 8
}

/// [`every_other`] in AVX2: picked within the halves, then put in order.
fn every_other_of_halves(v: Vector, a: &str, b: &str) -> String {
    let picked = format!("_mm256_castps_pd(_mm256_shuffle_ps((__m256){a}, (__m256){b}, 0xd8))");
    format!("  return ({v})_mm256_castpd_ps(_mm256_permute4x64_pd({picked}, 0xd8));\n")
}

pub(super) fn load_even(name: &str, v: Vector, isa: Isa) -> String {
    // The second load ends at the last element needed, so nothing past it is read.
    let loads = format!("  {v} lo = load_{v}(p), hi = load_{v}(p + {});\n", v.width - 1);
    if has_halves(v, isa) {
        return reads(v, name, v.dtype, "", &(loads + &every_other_of_halves(v, "lo", "hi")));
    }
    let picks = every_other(v);
    let [clang, _] = shuffle(v, "return", ["lo", "hi"], &picks);
    let gcc = format!(
        "  typedef int{}_t picks __attribute__((vector_size({})));\n  \
         return __builtin_shuffle(lo, hi, (picks){{{picks}}});\n",
        v.dtype.bytes() * 8,
        v.bytes(),
    );
    reads(v, name, v.dtype, "", &format!("{loads}{}", by_compiler([clang, gcc])))
}

/// Returns lanes of a register of twice the size. `picks` names as many as it has; the upper half is cut off.
fn permute(v: Vector, picks: &str, from: &str) -> String {
    let (bits, half) = (16 * v.bytes(), 8 * v.bytes());
    let mm = if bits == 512 { "_mm512" } else { "_mm256" };
    format!("  return ({v}){mm}_castps{bits}_ps{half}({mm}_permutexvar_ps({mm}_setr_epi32({picks}), {from}));\n")
}

/// Lane `i` is element `2 i`, so whole lanes `low..high` are elements `2 low..2 high - 1`: two loads, as for all lanes, or
/// one where a register holds twice as many.
pub(super) fn load_even_between(name: &str, v: Vector, isa: Isa) -> String {
    let (parameters, clamp) = between(v);
    let (w, last) = (v.width, v.width - 1);
    let body = if v.picks_from_one(isa) {
        let bits = 16 * v.bytes();
        let load = format!(
            "  uint32_t lanes = high > low ? (1u << (2 * high - 1)) - (1u << 2 * low) : 0u;\n  \
             __m{bits} both = {}_maskz_loadu_ps((__mmask{})lanes, p);\n",
            if bits == 512 { "_mm512" } else { "_mm256" },
            2 * w,
        );
        clamp + &load + &permute(v, &list(2 * w, |i| 2 * i % (2 * w)), "both")
    } else {
        let loads = format!(
            "  {v} a = load_between_{v}(p, 2 * low, 2 * high - 1);\n  \
             {v} b = load_between_{v}(p + {last}, 2 * low - {last}, 2 * high - 1 - {last});\n"
        );
        let picked = match has_halves(v, isa) {
            true => every_other_of_halves(v, "a", "b"),
            false => by_compiler(shuffle(v, "return", ["a", "b"], &every_other(v))),
        };
        loads + &picked
    };
    reads(v, name, v.dtype, parameters, &body)
}

/// Lane `i` is element `first + 2 i` of a window, counted around its end: of one register, or of two.
pub(super) fn pick_from(name: &str, v: Vector, first: usize, isa: Isa) -> String {
    let picks = |lanes: usize| list(lanes, |i| (first + 2 * i) % (2 * v.width));
    if v.picks_from_one(isa) {
        return function(v, name, &format!("{} window", v.twice()), &permute(v, &picks(2 * v.width), "window"));
    }
    let body = if has_halves(v, isa) && first < 2 {
        // The halves in order are the same for even and for odd lanes, of which a window mostly needs both.
        let halves = |which: &str| format!("_mm256_permute2f128_ps((__m256)a, (__m256)b, {which})");
        let lanes = ["0x88", "0xdd"][first];
        format!("  return ({v})_mm256_shuffle_ps({}, {}, {lanes});\n", halves("0x20"), halves("0x31"))
    } else {
        by_compiler(shuffle(v, "return", ["a", "b"], &picks(v.width)))
    };
    function(v, name, &format!("{v} a, {v} b"), &body)
}

/// Picks lanes of a vector, or of two.
pub(super) fn spread(name: &str, v: Vector, picks: &[u8], two: bool) -> String {
    let picks = list(v.width, |i| picks[i].into());
    let (operands, parameters) =
        if two { (["a", "b"], format!("{v} a, {v} b")) } else { (["a", "a"], format!("{v} a")) };
    function(v, name, &parameters, &by_compiler(shuffle(v, "return", operands, &picks)))
}

/// A half of a vector, by the instruction that x86 has for it.
pub(super) fn half(name: &str, v: Vector, upper: bool) -> String {
    let (h, raw) = (v.half(), raw(v));
    let body = match (v.width, upper) {
        (16, false) => format!("  return ({h})_mm512_castps512_ps256(({raw})v);\n"),
        (16, true) => format!("  return ({h})_mm512_extractf32x8_ps(({raw})v, 1);\n"),
        (_, false) => format!("  return ({h})_mm256_castps256_ps128(({raw})v);\n"),
        (_, true) => format!("  return ({h})_mm256_extractf128_ps(({raw})v, 1);\n"),
    };
    function(h, name, &format!("{v} v"), &body)
}

/// The lanes `low..high` of `a`, the others of `b`.
pub(super) fn pick_between(name: &str, v: Vector, isa: Isa) -> String {
    let (parameters, clamp) = between(v);
    let body = match (isa, intrinsic(v)) {
        (Isa::X86_64V4, Some((prefix, suffix))) => format!(
            "  return ({v}){prefix}_mask_blend_{suffix}((__mmask{bits})((1u << high) - (1u << low)), ({raw})b, ({raw})a);\n",
            bits = v.width.max(8),
            raw = raw(v),
        ),
        _ => {
            let (m, integer) = (v.mask(), c_type(v.mask().dtype));
            format!(
                "  {m} lane = {{{lanes}}};\n  \
                 {m} mask = (lane >= ({integer})low) & (lane < ({integer})high);\n  \
                 return ({v})((mask & ({m})a) | (~mask & ({m})b));\n",
                lanes = list(v.width, |i| i),
            )
        }
    };
    function(v, name, &format!("{v} a, {v} b{parameters}"), &format!("{clamp}{body}"))
}

/// `a` in the lanes of which all bits of a mask are set, `b` in those of which none is.
pub(super) fn choose(name: &str, v: Vector, isa: Isa) -> String {
    let m = v.mask();
    let body = match (isa, prefix(8 * v.bytes())) {
        (Isa::X86_64V3, Some(prefix)) => {
            let (suffix, raw) = match intrinsic(v) {
                Some((_, suffix)) => (suffix, raw(v)),
                None => ("epi8", format!("__m{}i", 8 * v.bytes())),
            };
            format!("  return ({v}){prefix}_blendv_{suffix}(({raw})b, ({raw})a, ({raw})mask);\n")
        }
        _ => format!("  return ({v})((mask & ({m})a) | (~mask & ({m})b));\n"),
    };
    function(v, name, &format!("{m} mask, {v} a, {v} b"), &body)
}

/// Swaps ever smaller off-diagonal blocks: after the step of distance `d`, the bits `d` of row and lane are exchanged.
pub(super) fn transpose(name: &str, v: Vector) -> String {
    let w = v.width;
    let (mut out, mut steps) = (String::new(), String::new());
    for d in std::iter::successors(Some(w / 2), |d| (*d > 1).then_some(d / 2)) {
        let upper = shuffle(v, "*a =", ["x", "y"], &list(w, |l| if l & d == 0 { l } else { w + l - d }));
        let lower = shuffle(v, "*b =", ["x", "y"], &list(w, |l| if l & d == 0 { l + d } else { w + l }));
        let both = std::array::from_fn(|compiler| upper[compiler].clone() + &lower[compiler]);
        let body = format!("  const {v} x = *a, y = *b;\n{}", by_compiler(both));
        out += &function("void", &format!("swap{d}_{v}"), &format!("{v} *a, {v} *b"), &body);
        let pairs = (0..w).filter(|i| i & d == 0).map(|i| format!("swap{d}_{v}(r + {i}, r + {});", i + d));
        for some in pairs.collect::<Vec<_>>().chunks(4) {
            let _ = writeln!(steps, "  {}", some.join(" "));
        }
    }
    out + &function("void", name, &format!("{v} *r"), &steps)
}

/// Lane-wise smaller or larger; NaN where either operand is. The instructions of x86 give their second operand where one is
/// NaN, so `a` is the second, and lanes of `b` that are NaN get all their bits set. Where `b` is constant that costs nothing.
pub(super) fn min_max(name: &str, v: Vector, isa: Isa, word: &str, sign: char) -> String {
    let (m, bits) = (v.mask(), 8 * v.bytes());
    let body = match intrinsic(v) {
        _ if v.dtype == DType::I32 && matches!(isa, Isa::X86_64V3 | Isa::X86_64V4) => {
            let mm = prefix(bits).unwrap_or_default();
            format!("  return ({v}){mm}_{word}_epi32((__m{bits}i)a, (__m{bits}i)b);\n")
        }
        Some((prefix, suffix)) if isa.is_x86() => {
            let raw = raw(v);
            format!("  return ({v})(({m}){prefix}_{word}_{suffix}(({raw})b, ({raw})a) | ({m})(b != b));\n")
        }
        _ => {
            let nan = if v.dtype.is_float() { format!(" | ({m})(b != b)") } else { String::new() };
            format!("  {m} pick = ({m})(b {sign} a){nan};\n  return ({v})((pick & ({m})b) | (~pick & ({m})a));\n")
        }
    };
    function(v, name, &format!("{v} a, {v} b"), &body)
}

/// Lane-wise smaller or larger, NaN where `a` is: `b` is not. The instructions of x86 give their second operand where one is NaN.
pub(super) fn min_max_of(name: &str, v: Vector, isa: Isa, word: &str, sign: char) -> String {
    let m = v.mask();
    let body = match intrinsic(v) {
        Some((prefix, suffix)) if isa.is_x86() => {
            format!("  return ({v}){prefix}_{word}_{suffix}(({raw})b, ({raw})a);\n", raw = raw(v))
        }
        _ => format!("  {m} pick = ({m})(b {sign} a);\n  return ({v})((pick & ({m})b) | (~pick & ({m})a));\n"),
    };
    function(v, name, &format!("{v} a, {v} b"), &body)
}

/// The nearest integers, ties to even, of numbers that are integers of 32 bits then.
pub(super) fn rounded(name: &str, v: Vector, isa: Isa) -> String {
    let m = v.mask();
    let body = match intrinsic(v) {
        Some((prefix, suffix)) if isa.is_x86() => {
            format!("  return ({m}){prefix}_cvt{suffix}_epi32(({})x);\n", raw(v))
        }
        _ => format!(
            "  {m} r = {{0}};\n  for (int i = 0; i < {}; i++) r[i] = (int32_t)rintf(x[i]);\n  return r;\n",
            v.width
        ),
    };
    function(m, name, &format!("{v} x"), &body)
}

/// Lane-wise `a` if it is larger than `b`, otherwise `b`: what the instruction of x86 gives.
pub(super) fn larger(name: &str, v: Vector, isa: Isa) -> String {
    let m = v.mask();
    let body = match intrinsic(v) {
        Some((prefix, suffix)) if isa.is_x86() => {
            format!("  return ({v}){prefix}_max_{suffix}(({raw})a, ({raw})b);\n", raw = raw(v))
        }
        _ => format!("  {m} pick = ({m})(a > b);\n  return ({v})((pick & ({m})a) | (~pick & ({m})b));\n"),
    };
    function(v, name, &format!("{v} a, {v} b"), &body)
}

/// [`Dot`](crate::ir::BinOp::Dot) of two words of bytes, and a sum.
pub(super) fn dot4(name: &str, signed: [bool; 2]) -> String {
    let [a, b] = signed.map(|signed| if signed { "int8_t" } else { "uint8_t" });
    let term = |i: u32| format!("({a})(a >> {s}) * ({b})(b >> {s})", s = 8 * i);
    let terms = (0..4).map(term).collect::<Vec<_>>().join(" +\n    ");
    function("int32_t", name, "int32_t sum, uint32_t a, uint32_t b", &format!("  return sum + {terms};\n"))
}

/// The same of words of two integers.
pub(super) fn dot2(name: &str) -> String {
    let body = prelude::dot2("int16_t", "uint32_t", "int32_t");
    function("int32_t", name, "int32_t sum, uint32_t a, uint32_t b", &body)
}

/// Whether a level has instructions on integers for vectors of `bits` bits.
fn has_integers(bits: usize, isa: Isa) -> bool {
    isa.is_x86() && (bits == 128 || isa == Isa::X86_64V3 && bits == 256 || isa == Isa::X86_64V4)
}

/// [`Dot`](crate::ir::BinOp::Dot) of vectors of words of two integers, and sums: `vpmaddwd`.
pub(super) fn vector_dot2(name: &str, v: Vector, isa: Isa) -> String {
    let bits = 8 * v.bytes();
    let body = match prefix(bits) {
        Some(mm) if has_integers(bits, isa) => {
            format!("  return sum + ({v}){mm}_madd_epi16((__m{bits}i)a, (__m{bits}i)b);\n")
        }
        _ => format!(
            "  typedef uint32_t integers __attribute__((vector_size({})));\n  \
             return ({v})((integers)sum + (integers)((a << 16 >> 16) * (b << 16 >> 16)) +\n    \
             (integers)((a >> 16) * (b >> 16)));\n",
            v.bytes()
        ),
    };
    function(v, name, &format!("{v} sum, {v} a, {v} b"), &body)
}

/// Sums or differences of the integers of vectors of words of two, which wrap around.
pub(super) fn of_pairs(name: &str, v: Vector, sign: char) -> String {
    let bytes = v.bytes();
    let body = format!(
        "  typedef uint16_t integers __attribute__((vector_size({bytes})));\n  \
         return ({v})((integers)a {sign} (integers)b);\n"
    );
    function(v, name, &format!("{v} a, {v} b"), &body)
}

/// The same of vectors of words of four bytes. `vpdpbusd` takes bytes without signs times bytes with signs, `sdot` and `udot` of Arm bytes
/// of one kind, `usdot` of both. Without these, pairs of products are added in 16-bit
/// lanes by `vpmaddwd`, which has room for them: even and odd bytes apart, as 16-bit numbers. (`vpmaddubsw` would saturate.)
pub(super) fn vector_dot4(name: &str, v: Vector, signed: [bool; 2], isa: Isa, at_once: bool) -> String {
    let bits = 8 * v.bytes();
    let body = match (prefix(bits), signed) {
        (_, signed) if at_once && isa == Isa::Aarch64 => {
            let (function, a, b) = match signed {
                [true, true] => ("vdotq_s32", "(int8x16_t)a", "(int8x16_t)b"),
                [false, false] => ("vdotq_u32", "(uint8x16_t)a", "(uint8x16_t)b"),
                [false, true] => ("vusdotq_s32", "(uint8x16_t)a", "(int8x16_t)b"),
                [true, false] => ("vusdotq_s32", "(uint8x16_t)b", "(int8x16_t)a"),
            };
            let sums = if signed == [false; 2] { "uint32x4_t" } else { "int32x4_t" };
            format!("  return ({v}){function}(({sums})sum, {a}, {b});\n")
        }
        (Some(mm), [false, true]) if at_once => {
            let encoded = if isa == Isa::X86_64V3 { "dpbusd_avx_epi32" } else { "dpbusd_epi32" };
            format!("  return ({v}){mm}_{encoded}((__m{bits}i)sum, (__m{bits}i)a, (__m{bits}i)b);\n")
        }
        (Some(mm), _) if has_integers(bits, isa) => {
            let halves = |x: &str, signed: bool| match signed {
                true => format!(
                    "  const __m{bits}i {x}0 = {mm}_srai_epi16({mm}_slli_epi16((__m{bits}i){x}, 8), 8);\n  \
                     const __m{bits}i {x}1 = {mm}_srai_epi16((__m{bits}i){x}, 8);\n"
                ),
                false => format!(
                    "  const __m{bits}i {x}0 = (__m{bits}i)({x} & 0x00ff00ff);\n  \
                     const __m{bits}i {x}1 = {mm}_srli_epi16((__m{bits}i){x}, 8);\n"
                ),
            };
            format!(
                "{}{}  return sum + ({v}){mm}_madd_epi16(a0, b0) + ({v}){mm}_madd_epi16(a1, b1);\n",
                halves("a", signed[0]),
                halves("b", signed[1])
            )
        }
        _ => {
            let byte = |x: &str, i: u32, signed: bool| match (signed, i) {
                (true, i) => format!("({x} << {} >> 24)", 24 - 8 * i),
                (false, i) => format!("({x} >> {} & 255)", 8 * i),
            };
            let term = |i: u32| format!("{} * {}", byte("a", i, signed[0]), byte("b", i, signed[1]));
            format!("  return sum + {};\n", (0..4).map(term).collect::<Vec<_>>().join(" +\n    "))
        }
    };
    function(v, name, &format!("{v} sum, {v} a, {v} b"), &body)
}

pub(super) fn map(name: &str, v: Vector, op: UnOp, isa: Isa) -> String {
    let body = match (op, intrinsic(v)) {
        (UnOp::Sqrt, Some((prefix, suffix))) if isa.is_x86() => {
            format!("  return ({v}){prefix}_sqrt_{suffix}(({})x);\n", raw(v))
        }
        (UnOp::Round, Some((prefix, suffix))) if matches!(isa, Isa::X86_64V3 | Isa::X86_64V4) => {
            let (word, end) = if v.bytes() == 64 { ("roundscale", "") } else { ("round", " | _MM_FROUND_NO_EXC") };
            format!("  return ({v}){prefix}_{word}_{suffix}(({})x, _MM_FROUND_TO_NEAREST_INT{end});\n", raw(v))
        }
        (UnOp::Exp, _) if v.dtype == DType::F32 => exp(v, isa),
        (UnOp::Log, _) if v.dtype == DType::F32 => log(v),
        (UnOp::Tanh, _) if v.dtype == DType::F32 => tanh(v),
        (UnOp::Erf, _) if v.dtype == DType::F32 => erf(v, isa),
        _ => format!("  {} x[i] = {}(x[i]);\n  return x;\n", each(v), v.lane_fn(op)),
    };
    function(v, name, &format!("{v} x"), &body)
}

/// e to the power of each lane: `2^k e^r` with a whole `k` and `|r| <= ln(2)/2`, by the polynomial of Cephes' `expf` (S. Moshier), whose
/// error is below two units in the last place. A sum with 1.5 * 2^23 rounds to a whole number, which its low bits are. Beyond -104 and 89
/// the result is 0 or infinite. NaN stays: the instructions of x86 give their second operand where one is NaN, and elsewhere it fails
/// both comparisons; the constants of their results are the bits of 89 and -104. Where no instruction multiplies by a power of two, that
/// comes in halves, so that results below the smallest normal number and infinities come out as they are.
fn exp(v: Vector, isa: Isa) -> String {
    let m = v.mask();
    let within = match intrinsic(v) {
        Some((mm, _)) if isa.is_x86() => {
            format!("  x = ({v}){mm}_max_ps({mm}_set1_ps(-104.0f), {mm}_min_ps({mm}_set1_ps(89.0f), ({})x));\n", raw(v))
        }
        _ => format!(
            "  {m} above = ({m})(x > 89.0f), below = ({m})(x < -104.0f);\n  \
             x = ({v})((above & 0x42b20000) | (below & (int32_t)0xc2d00000) | (~(above | below) & ({m})x));\n"
        ),
    };
    let scaled = match (isa, intrinsic(v)) {
        (Isa::X86_64V4, Some((mm, _))) => format!("  return ({v}){mm}_scalef_ps(({raw})p, ({raw})k);\n", raw = raw(v)),
        _ => format!(
            "  const {m} power = ({m})t - 0x4b400000, half = power >> 1;\n  \
             return p * ({v})((half + 127) << 23) * ({v})((power - half + 127) << 23);\n"
        ),
    };
    format!(
        "{within}  const {v} t = x * 1.44269504f + 12582912.0f, k = t - 12582912.0f;\n  \
         const {v} r = x - k * 0.693359375f - k * -2.12194440e-4f;\n  \
         {v} p = r * 1.9875691500e-4f + 1.3981999507e-3f;\n  \
         p = p * r + 8.3334519073e-3f;\n  p = p * r + 4.1665795894e-2f;\n  p = p * r + 1.6666665459e-1f;\n  \
         p = p * r + 5.0000001201e-1f;\n  p = p * r + 1.0f;\n  p = p * r + 1.0f;\n{scaled}"
    )
}

/// The natural logarithm of each lane: `k ln(2) + ln(m)` with a whole `k` and `m` between the square roots of a half and of two, by the
/// polynomial of Cephes' `logf` (S. Moshier). Numbers below the smallest normal one are multiplied by 2^23 before; what is none of the
/// positive finite ones gets its result at the end: all bits set are a NaN.
fn log(v: Vector) -> String {
    let m = v.mask();
    format!(
        "  const {m} tiny = ({m})(x < 1.17549435e-38f), scaled = (tiny & ({m})(x * 8388608.0f)) | (~tiny & ({m})x);\n  \
         const {m} above = scaled - 0x3f3504f3;\n  \
         const {v} k = __builtin_convertvector((above >> 23) - (tiny & 23), {v});\n  \
         const {v} f = ({v})((above & 0x7fffff) + 0x3f3504f3) - 1.0f, z = f * f;\n  \
         {v} p = f * 7.0376836292e-2f - 1.1514610310e-1f;\n  \
         p = p * f + 1.1676998740e-1f;\n  p = p * f - 1.2420140846e-1f;\n  p = p * f + 1.4249322787e-1f;\n  \
         p = p * f - 1.6668057665e-1f;\n  p = p * f + 2.0000714765e-1f;\n  p = p * f - 2.4999993993e-1f;\n  \
         p = p * f + 3.3333331174e-1f;\n  \
         p = p * f * z + k * -2.12194440e-4f - 0.5f * z;\n  p = f + p + k * 0.693359375f;\n  \
         const {m} infinite = ({m})(x == (float)(1.0f / 0.0f)), none = ({m})(x == 0.0f);\n  \
         const {m} odd = infinite | none | ~({m})(x >= 0.0f);\n  \
         return ({v})((~odd & ({m})p) | (infinite & 0x7f800000) | (none & (int32_t)0xff800000) | ~({m})(x >= 0.0f));\n"
    )
}

/// The hyperbolic tangent of each lane: by the polynomial of Cephes' `tanhf` near 0, by the exponential elsewhere.
fn tanh(v: Vector) -> String {
    let m = v.mask();
    let exp = format!("{}_{v}", v.lane_fn(UnOp::Exp));
    format!(
        "  const {m} sign = ({m})x & (int32_t)0x80000000;\n  \
         const {v} a = ({v})(({m})x & 0x7fffffff), z = x * x;\n  \
         {v} p = z * -5.70498872745e-3f + 2.06390887954e-2f;\n  \
         p = p * z - 5.37397155531e-2f;\n  p = p * z + 1.33314422036e-1f;\n  p = p * z - 3.33332819422e-1f;\n  \
         p = p * z * x + x;\n  \
         const {v} far = 1.0f - 2.0f / ({exp}(a + a) + 1.0f);\n  \
         const {m} near = ({m})(a < 0.625f);\n  \
         return ({v})((near & ({m})p) | (~near & (({m})far | sign)));\n"
    )
}

/// The error function of each lane: `x` times a quotient of two polynomials of `x^2`, fitted to the smallest largest relative error
/// (1.4e-8) up to 3.83 by Remez' exchange; rounded, at most six units in the last place are lost, just below 1. From 3.9 on the quotient
/// is above 1, and by 50 units where `x` is held, so that what lies beyond is 1 exactly, as GELU needs. It takes a third of the time of
/// an exponential and a polynomial that are blended. NaN stays, as in `exp`.
fn erf(v: Vector, isa: Isa) -> String {
    let within = |most: &str| clamped(v, isa, most);
    let step = |p: &str, q: &str| format!("  p = p * z + {p}f; q = q * z + {q}f;\n");
    format!(
        "{}  const {v} z = x * x;\n  \
         {v} p = z * 2.1230761e-06f + 2.8594125e-04f, q = z * 3.8897598e-05f + 1.1417147e-03f;\n{}{}{}{}  \
         x = x * p / q;\n{}  return x;\n",
        within("4.2f"),
        step("3.6528092e-03", "1.4742610e-02"),
        step("5.2418688e-02", "1.1290115e-01"),
        step("1.8731004e-01", "4.9933210e-01"),
        step("1.1283792e+00", "1.0"),
        within("1.0f"),
    )
}

/// A statement that holds the lanes of `x` between a number and its negative; NaN stays.
fn clamped(v: Vector, isa: Isa, most: &str) -> String {
    match intrinsic(v) {
        Some((mm, _)) if isa.is_x86() => format!(
            "  x = ({v}){mm}_max_ps({mm}_set1_ps(-{most}), {mm}_min_ps({mm}_set1_ps({most}), ({})x));\n",
            raw(v)
        ),
        _ => {
            let m = v.mask();
            format!(
                "  {{\n    const {v} most = ({v}){{0}} + {most};\n    \
                 const {m} above = ({m})(x > most), below = ({m})(x < -most);\n    \
                 x = ({v})((above & ({m})most) | (below & ({m})-most) | (~(above | below) & ({m})x));\n  }}\n"
            )
        }
    }
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
