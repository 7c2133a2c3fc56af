//! Types and helper functions of emitted CUDA.

use super::arch::Arch;
use super::ptx::Ptx;
use crate::emit::clike::prelude::{self, Prelude, dot2, floor_div, floor_mod, narrow_f8, of_two, widen_f8};
use crate::emit::clike::text::has_word;
use crate::ir::DType;
use std::collections::BTreeMap;

/// The CUDA type of an element in memory.
pub(super) fn cuda_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 | DType::Bf16 => "unsigned short",
        DType::I64 => "long long",
        DType::I32 => "int",
        DType::I8 => "signed char",
        DType::U8 | DType::E4m3 | DType::E5m2 => "unsigned char",
        DType::I8x4 | DType::U8x4 | DType::I16x2 => "unsigned",
        DType::Bool => "unsigned char",
    }
}

/// A function of the prelude. The order of the variants is the order in the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Helper {
    /// Floor division, of `long long` if so asked.
    FloorDiv { wide: bool },
    /// Its remainder.
    FloorMod { wide: bool },
    /// The smaller of two integers.
    Min { wide: bool },
    /// The larger of two integers.
    Max { wide: bool },
    /// The smaller of two floats of a type, NaN if either is.
    FloatMin(DType),
    /// The larger of two floats of a type, NaN if either is.
    FloatMax(DType),
    /// The first of two packed 16-bit values.
    Low,
    /// The second of two packed 16-bit values.
    High,
    /// A float of 16 or 8 bits to `float`.
    Widen(DType),
    /// `float` to a float of 16 or 8 bits, rounding to nearest even.
    Narrow(DType),
    /// Two `float`s to two packed floats of 16 or 8 bits.
    NarrowPair(DType),
    /// The sum of the products of the bytes of two words, added to an `int`; whether those of each have signs.
    Dot4([bool; 2]),
    /// The sum of the products of the integers of two words of two, added to an `int`.
    Dot2,
    /// The place of an element under an address map of so many bytes a row.
    Swizzle { row: u32, element: u32 },
    /// An instruction.
    Ptx(Ptx),
}

impl prelude::Helper for Helper {
    type Target = Arch;

    fn name(self) -> String {
        let suffix = |wide| if wide { "i64" } else { "i32" };
        match self {
            Helper::FloorDiv { wide } => format!("floor_div_{}", suffix(wide)),
            Helper::FloorMod { wide } => format!("floor_mod_{}", suffix(wide)),
            Helper::Min { wide } => format!("min_{}", suffix(wide)),
            Helper::Max { wide } => format!("max_{}", suffix(wide)),
            Helper::FloatMin(d) => format!("min_{d}"),
            Helper::FloatMax(d) => format!("max_{d}"),
            Helper::Low => "lo16".into(),
            Helper::High => "hi16".into(),
            Helper::Widen(d) => format!("{d}_to_f32"),
            Helper::Narrow(d) => format!("f32_to_{d}"),
            Helper::NarrowPair(d) => format!("f32_to_{d}x2"),
            Helper::Swizzle { row, element } => format!("swizzle_{row}_{element}"),
            Helper::Dot4(signed) => format!("dot4_{}", prelude::signs(signed)),
            Helper::Dot2 => "dot2".into(),
            Helper::Ptx(p) => p.name(),
        }
    }

    fn text(self, arch: Arch) -> String {
        let name = prelude::Helper::name(self);
        let int = |wide| if wide { "long long" } else { "int" };
        match self {
            Helper::FloorDiv { wide } => floor_div(&name, int(wide)),
            Helper::FloorMod { wide } => floor_mod(&name, int(wide)),
            Helper::Min { wide } => of_two(&name, int(wide), "return a < b ? a : b;"),
            Helper::Max { wide } => of_two(&name, int(wide), "return a > b ? a : b;"),
            // `fminf` and `fmaxf` would give the operand that is a number. PTX ISA 8.7, section 9.7.3, has instructions that do
            // not, and that cost no more.
            Helper::FloatMin(DType::F32) | Helper::FloatMax(DType::F32) if arch.capability >= 80 => format!(
                "KG_FN float {name}(float a, float b) {{\n  float r;\n  \
                 asm(\"{word}.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));\n  return r;\n}}\n",
                word = if matches!(self, Helper::FloatMin(_)) { "min" } else { "max" },
            ),
            Helper::FloatMin(d) => of_two(&name, cuda_type(d), "return b < a || b != b ? b : a;"),
            Helper::FloatMax(d) => of_two(&name, cuda_type(d), "return b > a || b != b ? b : a;"),
            Helper::Low => {
                format!("KG_FN unsigned short {name}(unsigned pair) {{\n  return (unsigned short)pair;\n}}\n")
            }
            Helper::High => {
                format!("KG_FN unsigned short {name}(unsigned pair) {{\n  return (unsigned short)(pair >> 16);\n}}\n")
            }
            Helper::Widen(DType::Bf16) => {
                format!("KG_FN float {name}(unsigned short h) {{\n  return __uint_as_float((unsigned)h << 16);\n}}\n")
            }
            Helper::Widen(d) if d.is_f8() => widen_f8(d, cuda_type(d)),
            Helper::Narrow(d) if d.is_f8() => narrow_f8(d, cuda_type(d)),
            // PTX ISA 8.7, section 9.7.9, "cvt": from sm_89 on.
            Helper::NarrowPair(d) if d.is_f8() && arch.capability >= 89 => format!(
                "KG_FN unsigned short {name}(float low, float high) {{\n  unsigned short pair;\n  \
                 asm(\"cvt.rn.satfinite.{d}x2.f32 %0, %1, %2;\" : \"=h\"(pair) : \"f\"(high), \"f\"(low));\n  \
                 return pair;\n}}\n"
            ),
            Helper::NarrowPair(d) if d.is_f8() => format!(
                "KG_FN unsigned short {name}(float low, float high) {{\n  \
                 return (unsigned short)(f32_to_{d}(high) << 8 | f32_to_{d}(low));\n}}\n"
            ),
            Helper::Widen(_) => format!(
                "KG_FN float {name}(unsigned short h) {{\n  float f;\n  \
                 asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h));\n  return f;\n}}\n"
            ),
            Helper::Narrow(DType::Bf16) if arch.capability < 80 => format!(
                "KG_FN unsigned short {name}(float f) {{\n  const unsigned u = __float_as_uint(f);\n  \
                 if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(u >> 16 | 0x40u);\n  \
                 return (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);\n}}\n"
            ),
            Helper::Narrow(d) => format!(
                "KG_FN unsigned short {name}(float f) {{\n  unsigned short h;\n  \
                 asm(\"cvt.rn.{d}.f32 %0, %1;\" : \"=h\"(h) : \"f\"(f));\n  return h;\n}}\n"
            ),
            Helper::NarrowPair(d) if arch.capability < 80 => format!(
                "KG_FN unsigned {name}(float low, float high) {{\n  \
                 return (unsigned)f32_to_{d}(high) << 16 | f32_to_{d}(low);\n}}\n"
            ),
            // 16-byte units of a row are exchanged by the row's number, which is in the address bits three higher.
            Helper::Swizzle { row, element } => {
                format!("KG_FN int {name}(int i) {{\n  return i ^ (i >> 3 & {:#x});\n}}\n", (row - 16) / element)
            }
            // PTX ISA 8.7, section 9.7.1, "dp4a": from sm_61 on.
            Helper::Dot4(signed) => {
                let [a, b] = signed.map(|signed| if signed { "s32" } else { "u32" });
                let sum = if signed == [false; 2] { "unsigned" } else { "int" };
                format!(
                    "KG_FN int {name}(int sum, unsigned a, unsigned b) {{\n  {sum} r;\n  \
                     asm(\"dp4a.{a}.{b} %0, %1, %2, %3;\" : \"=r\"(r) : \"r\"(a), \"r\"(b), \"r\"(sum));\n  \
                     return (int)r;\n}}\n"
                )
            }
            Helper::Dot2 => format!(
                "KG_FN int {name}(int sum, unsigned a, unsigned b) {{\n{}}}\n",
                dot2("short", "unsigned", "int")
            ),
            Helper::Ptx(p) => p.text(arch),
            Helper::NarrowPair(d) => format!(
                "KG_FN unsigned {name}(float low, float high) {{\n  unsigned pair;\n  \
                 asm(\"cvt.rn.{d}x2.f32 %0, %1, %2;\" : \"=r\"(pair) : \"f\"(high), \"f\"(low));\n  return pair;\n}}\n"
            ),
        }
    }
}

/// The definitions: of the helpers that are used, and of those that these call, which their texts name.
pub(super) fn text(prelude: &Prelude<Helper>, arch: Arch) -> String {
    let mut all: BTreeMap<Helper, String> = prelude.used().collect();
    let callable = [Ptx::SharedAddress, Ptx::TensorMap, Ptx::HalfPair].map(Helper::Ptx).into_iter();
    let narrow = [DType::F16, DType::Bf16, DType::E4m3, DType::E5m2]
        .into_iter()
        .flat_map(|d| [Helper::NarrowPair(d), Helper::Narrow(d)]);
    // Pairs first: they may call the function for one.
    for helper in narrow.chain(callable) {
        let name = prelude::Helper::name(helper);
        if all.values().any(|text| has_word(text, &name)) {
            all.entry(helper).or_insert_with(|| prelude::Helper::text(helper, arch));
        }
    }
    let define = if all.is_empty() { "" } else { "#define KG_FN static __device__ __forceinline__\n\n" };
    all.values().fold(define.to_string(), |out, text| out + text)
}
