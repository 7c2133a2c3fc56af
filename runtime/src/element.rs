//! Element types, and the floats of 16 and 8 bits that Rust does not have.

use std::fmt;

/// An element type as data, for tables and messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// A float of 8 bits, 4 of them exponent: see [`E4m3`](struct@E4m3).
    E4m3,
    /// A float of 8 bits, 5 of them exponent: see [`E5m2`](struct@E5m2).
    E5m2,
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer; what packed buffers and C's `unsigned char` are.
    U8,
}

impl DType {
    /// Size of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::E4m3 | DType::E5m2 | DType::I8 | DType::U8 => 1,
        }
    }

    /// The name that specs use.
    pub const fn name(self) -> &'static str {
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
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    /// What cudarc copies to and from devices.
    #[cfg(feature = "cuda")]
    pub trait Sealed: cudarc::driver::DeviceRepr + cudarc::driver::ValidAsZeroBits {}
    #[cfg(not(feature = "cuda"))]
    pub trait Sealed {}
}

/// A type that a buffer can hold. Sealed: all bit patterns of an element are valid values, and all bits zero is 0.
pub trait Element: Copy + Default + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// The type as data.
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
        }
    )*};
}
element!(f64 => F64, f32 => F32, F16 => F16, Bf16 => Bf16, E4m3 => E4m3, E5m2 => E5m2, i64 => I64, i32 => I32, i8 => I8, u8 => U8);

/// IEEE binary16: 1 sign, 5 exponent and 10 fraction bits. Storage only; arithmetic happens in `f32`.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct F16(u16);

/// bfloat16: the upper half of an `f32`. Storage only; arithmetic happens in `f32`.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bf16(u16);

impl F16 {
    /// The value with these bits.
    pub const fn from_bits(bits: u16) -> F16 {
        F16(bits)
    }

    /// Its bits.
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// The nearest value, ties to even; too large becomes infinite, NaN stays NaN.
    pub const fn from_f32(value: f32) -> F16 {
        let bits = value.to_bits();
        let sign = ((bits >> 16) & 0x8000) as u16;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            // Keep the top of the payload and make it quiet, so that it cannot turn into an infinity.
            return F16(sign | 0x7e00 | ((magnitude >> 13) & 0x03ff) as u16);
        }
        // 65520 is halfway between the largest finite value, 65504, and the next power of two; it rounds to even: up.
        if magnitude >= 0x477f_f000 {
            return F16(sign | 0x7c00);
        }
        // Normal from 2^-14 on: move the exponent's bias from 127 to 15 and round off 13 bits of fraction. A carry out
        // of the fraction raises the exponent, which is right.
        if magnitude >= 0x3880_0000 {
            let rebased = magnitude - 0x3800_0000;
            return F16(sign | round_off(rebased, 13) as u16);
        }
        // Subnormal: the fraction with its hidden bit, in units of 2^-24. Below half of that unit it is zero.
        let exponent = magnitude >> 23;
        if exponent < 102 {
            return F16(sign);
        }
        let fraction = (magnitude & 0x007f_ffff) | 0x0080_0000;
        F16(sign | round_off(fraction, 126 - exponent) as u16)
    }

    /// The same value as an `f32`; exact.
    pub const fn to_f32(self) -> f32 {
        let sign = ((self.0 & 0x8000) as u32) << 16;
        let exponent = ((self.0 >> 10) & 0x1f) as u32;
        let fraction = (self.0 & 0x03ff) as u32;
        let bits = match exponent {
            0 if fraction == 0 => sign,
            0 => {
                // Normalise: the leading one moves to the hidden bit.
                let shift = fraction.leading_zeros() - 21;
                sign | ((113 - shift) << 23) | (((fraction << shift) & 0x03ff) << 13)
            }
            31 => sign | 0x7f80_0000 | (fraction << 13),
            _ => sign | ((exponent + 112) << 23) | (fraction << 13),
        };
        f32::from_bits(bits)
    }
}

impl Bf16 {
    /// The value with these bits.
    pub const fn from_bits(bits: u16) -> Bf16 {
        Bf16(bits)
    }

    /// Its bits.
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// The nearest value, ties to even; NaN stays NaN.
    pub const fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        if bits & 0x7fff_ffff > 0x7f80_0000 {
            return Bf16((bits >> 16) as u16 | 0x0040);
        }
        Bf16(((bits as u64 + 0x7fff + ((bits >> 16) & 1) as u64) >> 16) as u16)
    }

    /// The same value as an `f32`; exact.
    pub const fn to_f32(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
}

/// A float of 1 sign, 4 exponent and 3 fraction bits, with numbers up to 448, NaN and no infinities (ONNX's `FLOAT8E4M3FN`). Storage only;
/// arithmetic happens in `f32`.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct E4m3(u8);

/// A float of 1 sign, 5 exponent and 2 fraction bits, with numbers up to 57344, infinities and NaN (ONNX's `FLOAT8E5M2`). Storage only;
/// arithmetic happens in `f32`.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct E5m2(u8);

macro_rules! eight_bits {
    ($t:ident, $fraction:literal, $bias:literal, $largest:literal) => {
        impl $t {
            /// Its largest finite number.
            pub const MAX: $t = $t($largest);

            /// The value with these bits.
            pub const fn from_bits(bits: u8) -> $t {
                $t(bits)
            }

            /// Its bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest value, ties to even; what is larger than [`MAX`](Self::MAX), infinities too, becomes that, and NaN stays NaN.
            pub const fn from_f32(value: f32) -> $t {
                let bits = value.to_bits();
                let (sign, magnitude) = ((bits >> 24 & 0x80) as u8, bits & 0x7fff_ffff);
                let drop = 23 - $fraction;
                if magnitude > 0x7f80_0000 {
                    return $t(sign | 0x7f);
                }
                if magnitude >= $t::MAX.to_f32().to_bits() {
                    return $t(sign | $largest);
                }
                // Normal numbers: the exponent's bias moves, and bits of fraction are rounded off.
                if magnitude >= (128 - $bias) << 23 {
                    return $t(sign | round_off(magnitude - ((127 - $bias) << 23), drop) as u8);
                }
                // Subnormal: the fraction with its hidden bit, in units of the last place.
                let exponent = magnitude >> 23;
                let shift = 128 - $bias + drop - exponent;
                if shift > 24 {
                    return $t(sign);
                }
                $t(sign | round_off((magnitude & 0x007f_ffff) | 0x0080_0000, shift) as u8)
            }

            /// The same value as an `f32`; exact.
            pub const fn to_f32(self) -> f32 {
                let sign = ((self.0 & 0x80) as u32) << 24;
                let size = (self.0 & 0x7f) as u32;
                let drop = 23 - $fraction;
                let bits = match size {
                    _ if size > $largest && $fraction == 3 => 0x7fc0_0000,
                    _ if size > $largest => 0x7f80_0000 | size << drop,
                    0 => 0,
                    _ if size < 1 << $fraction => {
                        // Normalise: the leading one moves to the hidden bit.
                        let shift = size.leading_zeros() - (31 - $fraction);
                        (128 - $bias - shift) << 23 | ((size << shift) & ((1 << $fraction) - 1)) << drop
                    }
                    _ => (size << drop) + ((127 - $bias) << 23),
                };
                f32::from_bits(sign | bits)
            }
        }
    };
}
eight_bits!(E4m3, 3, 7, 0x7e);
eight_bits!(E5m2, 2, 15, 0x7b);

/// `value` without its lowest `bits` bits, rounded to nearest, ties to even.
const fn round_off(value: u32, bits: u32) -> u32 {
    let half = 1u32 << (bits - 1);
    let rest = value & ((1u32 << bits) - 1);
    let kept = value >> bits;
    if rest > half || (rest == half && kept & 1 == 1) { kept + 1 } else { kept }
}

/// A type whose bits are those of an element: the element itself, or (feature `half`) its namesake in the crate `half`.
///
/// # Safety
/// Every value must be a valid `T` of the same size, and every `T` a valid value.
pub unsafe trait BitsOf<T: Element>: Copy {}

// SAFETY: it is the same type.
unsafe impl<T: Element> BitsOf<T> for T {}
// SAFETY: both are IEEE binary16 in 16 transparent bits.
#[cfg(feature = "half")]
unsafe impl BitsOf<F16> for half::f16 {}
// SAFETY: both are bfloat16 in 16 transparent bits.
#[cfg(feature = "half")]
unsafe impl BitsOf<Bf16> for half::bf16 {}

/// A slice of such values as a slice of elements.
pub fn elements<T: Element, U: BitsOf<T>>(slice: &[U]) -> &[T] {
    // SAFETY: `BitsOf` promises that the values are valid elements of the same size; alignment is that of the size.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), slice.len()) }
}

/// A slice of such values as a slice of elements to write.
pub fn elements_mut<T: Element, U: BitsOf<T>>(slice: &mut [U]) -> &mut [T] {
    // SAFETY: as in `elements`, and every element is a valid value.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), slice.len()) }
}

macro_rules! half_traits {
    ($t:ident) => {
        impl From<f32> for $t {
            fn from(value: f32) -> $t {
                $t::from_f32(value)
            }
        }
        impl From<$t> for f32 {
            fn from(value: $t) -> f32 {
                value.to_f32()
            }
        }
        impl PartialEq for $t {
            fn eq(&self, other: &$t) -> bool {
                self.to_f32() == other.to_f32()
            }
        }
        impl PartialOrd for $t {
            fn partial_cmp(&self, other: &$t) -> Option<std::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    };
}
half_traits!(F16);
half_traits!(Bf16);
half_traits!(E4m3);
half_traits!(E5m2);

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a half from its definition, in f64.
    fn f16_value(bits: u16) -> f64 {
        let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
        let exponent = ((bits >> 10) & 31) as i32;
        let fraction = (bits & 0x3ff) as f64;
        match exponent {
            0 => sign * fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => sign * f64::INFINITY,
            31 => f64::NAN,
            e => sign * (1.0 + fraction / 1024.0) * 2f64.powi(e - 15),
        }
    }

    #[cfg(feature = "half")]
    #[test]
    fn halves_of_another_crate_are_seen_without_a_copy() {
        let mut theirs = [half::f16::from_f32(1.5), half::f16::from_f32(-2.0)];
        assert_eq!(elements::<F16, _>(&theirs), [F16::from_f32(1.5), F16::from_f32(-2.0)]);
        elements_mut::<F16, _>(&mut theirs)[1] = F16::from_f32(0.25);
        assert_eq!(theirs[1].to_f32(), 0.25);
        let theirs = [half::bf16::from_f32(3.0)];
        assert_eq!(elements::<Bf16, _>(&theirs)[0].to_f32(), 3.0);
    }

    #[test]
    fn every_half_widens_exactly_and_comes_back() {
        for bits in 0..=u16::MAX {
            let (wide, defined) = (F16::from_bits(bits).to_f32(), f16_value(bits));
            if defined.is_nan() {
                assert!(wide.is_nan());
                assert!(F16::from_f32(wide).to_f32().is_nan());
            } else {
                assert_eq!(wide as f64, defined, "{bits:#06x}");
                assert_eq!(F16::from_f32(wide).to_bits(), bits);
            }
        }
    }

    #[test]
    fn halves_round_to_nearest_even() {
        // Between each pair of neighbouring finite halves: the midpoint goes to the even one, anything else to the nearer.
        for bits in 0..0x7bff_u16 {
            let (a, b) = (f16_value(bits), f16_value(bits + 1));
            let middle = ((a + b) / 2.0) as f32;
            let even = if bits & 1 == 0 { bits } else { bits + 1 };
            assert_eq!(F16::from_f32(middle).to_bits(), even);
            assert_eq!(F16::from_f32(middle.next_down()).to_bits(), bits);
            assert_eq!(F16::from_f32(middle.next_up()).to_bits(), bits + 1);
            assert_eq!(F16::from_f32(-middle).to_bits(), even | 0x8000);
        }
        assert_eq!(F16::from_f32(65519.996).to_bits(), 0x7bff);
        assert_eq!(F16::from_f32(65520.0).to_bits(), 0x7c00);
        assert_eq!(F16::from_f32(f32::MAX).to_bits(), 0x7c00);
        assert_eq!(F16::from_f32(f32::from_bits(1)).to_bits(), 0);
        assert_eq!(F16::from_f32(-0.0).to_bits(), 0x8000);
    }

    /// A float of eight bits from its definition: its bits of fraction, and the bias of its exponent.
    fn f8_value(bits: u8, fraction: i32, bias: i32) -> f64 {
        let (exponent, rest) = (i32::from(bits & 0x7f) >> fraction, f64::from(bits & ((1 << fraction) - 1)));
        let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
        match (fraction, exponent) {
            (3, 15) if rest == 7.0 => f64::NAN,
            (2, 31) if rest == 0.0 => sign * f64::INFINITY,
            (2, 31) => f64::NAN,
            (_, 0) => sign * rest * 2f64.powi(1 - bias - fraction),
            _ => sign * (1.0 + rest / f64::from(1 << fraction)) * 2f64.powi(exponent - bias),
        }
    }

    #[test]
    fn floats_of_eight_bits_widen_exactly_and_round_to_nearest_even() {
        let e4m3 = |bits| (E4m3::from_bits(bits).to_f32(), f8_value(bits, 3, 7));
        let e5m2 = |bits| (E5m2::from_bits(bits).to_f32(), f8_value(bits, 2, 15));
        for bits in 0..=u8::MAX {
            for (wide, defined) in [e4m3(bits), e5m2(bits)] {
                assert!(f64::from(wide) == defined || wide.is_nan() && defined.is_nan(), "{bits:#x}");
            }
        }
        let of = |v: f32| [E4m3::from_f32(v).to_bits(), E5m2::from_f32(v).to_bits()];
        for (kind, largest, value) in [(0, 0x7e, &e4m3 as &dyn Fn(u8) -> (f32, f64)), (1, 0x7b, &e5m2)] {
            for bits in 0..largest {
                let middle = ((value(bits).1 + value(bits + 1).1) / 2.0) as f32;
                let even = if bits & 1 == 0 { bits } else { bits + 1 };
                let got = [value(bits).0, middle.next_down(), middle, middle.next_up(), -middle].map(|v| of(v)[kind]);
                assert_eq!(got, [bits, bits, even, bits + 1, even | 0x80], "{bits:#x}");
            }
            assert_eq!(
                [1e6, f32::INFINITY, f32::NEG_INFINITY].map(|v| of(v)[kind]),
                [largest, largest, largest | 0x80]
            );
            assert_eq!(of(f32::NAN)[kind], 0x7f);
            assert_eq!(of(f32::from_bits(1))[kind], 0);
        }
    }

    #[test]
    fn bfloats_round_to_nearest_even() {
        for bits in (0..=u16::MAX).filter(|b| b & 0x7fff <= 0x7f80) {
            assert_eq!(Bf16::from_f32(Bf16::from_bits(bits).to_f32()).to_bits(), bits);
        }
        for bits in 0..0x7f7f_u16 {
            let middle = f32::from_bits((bits as u32) << 16 | 0x8000);
            assert_eq!(Bf16::from_f32(middle).to_bits(), if bits & 1 == 0 { bits } else { bits + 1 });
            assert_eq!(Bf16::from_f32(middle.next_down()).to_bits(), bits);
            assert_eq!(Bf16::from_f32(middle.next_up()).to_bits(), bits + 1);
        }
        assert!(Bf16::from_f32(f32::from_bits(0x7f80_0001)).to_f32().is_nan());
        assert_eq!(Bf16::from_f32(f32::MAX).to_f32(), f32::INFINITY);
    }
}
