//! The functions that emitted code calls. A source contains those it uses and no others, in a fixed order, so that it stays
//! readable and deterministic.

use crate::ir::bits::f8_bits;
use crate::ir::{DType, FloatFormat, UnOp};
use std::collections::BTreeSet;

/// A function of a prelude. The order of a language's helpers is their order in the source.
pub(crate) trait Helper: Copy + Ord {
    /// What code is emitted for.
    type Target: Copy;

    /// What the emitted code calls it.
    fn name(self) -> String;

    /// What it calls itself.
    fn needs(self, _: Self::Target) -> Vec<Self> {
        vec![]
    }

    /// Its definition.
    fn text(self, target: Self::Target) -> String;
}

/// What every language has a helper for.
pub(crate) enum Common {
    /// Floor division of integers, of 64 bits if `wide`.
    FloorDiv { wide: bool },
    /// Its remainder.
    FloorMod { wide: bool },
    /// The smaller of two numbers, NaN if either is; it is called `min_` and the type.
    Min(DType),
    /// The larger of two numbers, NaN if either is; it is called `max_` and the type.
    Max(DType),
    /// A float of 16 or 8 bits to `float`.
    Widen(DType),
    /// `float` to a float of 16 or 8 bits, rounding to nearest even.
    Narrow(DType),
    /// The sum of the products of the bytes of two words, added to an `int`; whether those of each have signs.
    Dot4([bool; 2]),
    /// The sum of the products of the integers of two words of two, added to an `int`.
    Dot2,
}

/// The letters of operands with and without signs, as names of functions have them.
pub(crate) fn signs(signed: [bool; 2]) -> String {
    signed.map(|signed| if signed { 's' } else { 'u' }).iter().collect()
}

/// The body of a function that adds the products of the integers of two words of two to a sum, which wraps around; the languages' names
/// of their types.
pub(crate) fn dot2(short: &str, unsigned: &str, int: &str) -> String {
    let product = |shift: &str| format!("({unsigned})(({short})(a{shift}) * ({short})(b{shift}))");
    format!("  return ({int})(({unsigned})sum + {} + {});\n", product(""), product(" >> 16"))
}

/// The helpers that a source uses so far.
#[derive(Clone)]
pub(crate) struct Prelude<H: Helper> {
    target: H::Target,
    used: BTreeSet<H>,
}

impl<H: Helper> Prelude<H> {
    /// Nothing is used.
    pub(crate) fn new(target: H::Target) -> Prelude<H> {
        Prelude { target, used: BTreeSet::new() }
    }

    /// Notes the helper, and what it calls, and gives its name.
    pub(crate) fn call(&mut self, helper: H) -> String {
        if self.used.insert(helper) {
            for needed in helper.needs(self.target) {
                self.call(needed);
            }
        }
        helper.name()
    }

    /// The helpers with their definitions, in the order of the source.
    pub(crate) fn used(&self) -> impl Iterator<Item = (H, String)> + '_ {
        self.used.iter().map(|&helper| (helper, helper.text(self.target)))
    }
}

/// The definition of a function of two numbers.
pub(crate) fn of_two(name: &str, ty: &str, body: &str) -> String {
    format!("KG_FN {ty} {name}({ty} a, {ty} b) {{\n  {body}\n}}\n")
}

/// The definition of floor division: both languages truncate.
pub(crate) fn floor_div(name: &str, ty: &str) -> String {
    of_two(name, ty, &format!("{ty} q = a / b;\n  return q - (a % b != 0 && (a < 0) != (b < 0));"))
}

/// The definition of its remainder.
pub(crate) fn floor_mod(name: &str, ty: &str) -> String {
    of_two(name, ty, &format!("{ty} r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;"))
}

/// Fraction bits of a float of eight bits, the bias of its exponent, and the bits of its largest finite number.
fn format_of(dtype: DType) -> (u32, u32, u32) {
    let FloatFormat { fraction_bits, bias, largest } = dtype.format().expect("a float of eight bits");
    (fraction_bits, bias, f8_bits(dtype, largest as f32).into())
}

/// The definition of the conversion of a float of eight bits to `float`; `ty` is the type of its bits.
pub(crate) fn widen_f8(dtype: DType, ty: &str) -> String {
    let (fraction, bias, _) = format_of(dtype);
    let special = match dtype {
        DType::E4m3 => "if (size == 0x7fu) v.u = 0x7fc00000u;".to_string(),
        _ => format!("if (size >= 0x7cu) v.u = 0x7f800000u | size << {};", 23 - fraction),
    };
    let step = 2f64.powi(1 - bias as i32 - fraction as i32);
    format!(
        "KG_FN float {dtype}_to_f32({ty} h) {{\n  union {{ unsigned u; float f; }} v;\n  const unsigned size = h & 0x7fu;\n  \
         v.u = (size << {}) + {:#x}u;\n  if (size < {}u) v.f = (float)size * {step:e}f;\n  {special}\n  \
         v.u |= (h & 0x80u) << 24;\n  return v.f;\n}}\n",
        23 - fraction,
        (127 - bias) << 23,
        1 << fraction,
    )
}

/// The definition of the conversion of a `float` to one of eight bits: to nearest even, and to the largest finite number beyond it.
pub(crate) fn narrow_f8(dtype: DType, ty: &str) -> String {
    let (fraction, bias, largest) = format_of(dtype);
    let drop = 23 - fraction;
    let rebias = (127 - bias) << 23;
    // Adding a number whose last place is that of a subnormal rounds to it.
    let shift = 1 << (1 + drop - bias);
    format!(
        "KG_FN {ty} f32_to_{dtype}(float f) {{\n  union {{ float f; unsigned u; }} v;\n  v.f = f;\n  \
         const unsigned sign = v.u >> 24 & 0x80u, size = v.u & 0x7fffffffu;\n  \
         if (size > 0x7f800000u) return ({ty})(sign | 0x7fu);\n  \
         if (size >= {:#x}u) return ({ty})(sign | {largest:#x}u);\n  \
         if (size >= {:#x}u) return ({ty})(sign | (size - {rebias:#x}u + {:#x}u + (size >> {drop} & 1u)) >> {drop});\n  \
         v.u = size;\n  v.f += {shift}.0f;\n  return ({ty})(sign | (v.u - {:#x}u));\n}}\n",
        (largest << drop) + rebias,
        (128 - bias) << 23,
        (1u32 << (drop - 1)) - 1,
        (128 + drop - bias) << 23,
    )
}

/// The function for a unary operator on floats that is one.
pub(crate) fn math_fn(op: UnOp, dtype: DType) -> Option<String> {
    let base = match op {
        UnOp::Neg | UnOp::Not | UnOp::Tf32 | UnOp::Flip | UnOp::Even | UnOp::Odd | UnOp::Rounded => return None,
        UnOp::Abs => "fabs",
        UnOp::Sqrt => "sqrt",
        UnOp::Exp => "exp",
        UnOp::Exp2 => "exp2",
        UnOp::Log => "log",
        UnOp::Sin => "sin",
        UnOp::Cos => "cos",
        UnOp::Floor => "floor",
        UnOp::Ceil => "ceil",
        // To even in the only rounding mode that there is here.
        UnOp::Round => "rint",
        UnOp::Tanh => "tanh",
        UnOp::Erf => "erf",
        UnOp::Atan => "atan",
    };
    Some(if dtype == DType::F64 { base.to_string() } else { format!("{base}f") })
}
