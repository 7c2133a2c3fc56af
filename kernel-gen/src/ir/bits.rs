//! Numbers of 16 and 8 bits.

use super::{DType, FloatFormat};

/// binary16 of a float, rounded to nearest even.
pub fn f16_bits(v: f32) -> u16 {
    let bits = v.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Adding one half puts the last place of a subnormal at the last place of the sum.
        return sign | ((f32::from_bits(magnitude) + 0.5).to_bits() - 0x3f00_0000) as u16;
    }
    let rounded = magnitude - (112 << 23) + 0xfff + (magnitude >> 13 & 1);
    sign | (rounded >> 13) as u16
}

/// The value of a binary16.
pub fn f16_value(h: u16) -> f32 {
    let sign = if h & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (u32::from(h >> 10 & 31), u32::from(h & 0x3ff));
    match exponent {
        0 => sign * mantissa as f32 * 2f32.powi(-24),
        31 => sign * f32::from_bits(0x7f80_0000 | mantissa << 13),
        _ => sign * f32::from_bits((exponent + 112) << 23 | mantissa << 13),
    }
}

/// The value of a bfloat16.
pub fn bf16_value(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// bfloat16 of a float, rounded to nearest even.
pub fn bf16_bits(v: f32) -> u16 {
    let bits = v.to_bits();
    if v.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The format of a float of eight bits.
fn of_f8(dtype: DType) -> FloatFormat {
    dtype.format().filter(|_| dtype.is_f8()).expect("a float of eight bits")
}

/// The value of the bits of an `e4m3` or `e5m2`.
pub fn f8_value(dtype: DType, h: u8) -> f32 {
    let FloatFormat { fraction_bits, bias, .. } = of_f8(dtype);
    let sign = if h & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (u32::from(h & 0x7f) >> fraction_bits, u32::from(h) & ((1 << fraction_bits) - 1));
    match (dtype, exponent, fraction) {
        (DType::E4m3, 15, 7) => f32::NAN,
        (DType::E5m2, 31, 0) => sign * f32::INFINITY,
        (DType::E5m2, 31, _) => f32::NAN,
        (_, 0, _) => sign * fraction as f32 * 2f32.powi(1 - bias as i32 - fraction_bits as i32),
        _ => sign * f32::from_bits((exponent + 127 - bias) << 23 | fraction << (23 - fraction_bits)),
    }
}

/// The bits of an `e4m3` or `e5m2` of a float, rounded to nearest even; what is beyond the largest finite number becomes that.
pub fn f8_bits(dtype: DType, v: f32) -> u8 {
    let FloatFormat { fraction_bits, bias, largest } = of_f8(dtype);
    let sign = if v.is_sign_negative() { 0x80 } else { 0 };
    if v.is_nan() {
        return sign | 0x7f;
    }
    let magnitude = v.abs().min(largest as f32).to_bits();
    let drop = 23 - fraction_bits;
    if magnitude < (128 - bias) << 23 {
        // Adding a number whose last place is that of a subnormal rounds to it.
        let shift = f32::from_bits((127 + 1 + drop - bias) << 23);
        return sign | ((f32::from_bits(magnitude) + shift).to_bits() - shift.to_bits()) as u8;
    }
    let rounded = magnitude - ((127 - bias) << 23) + (1 << (drop - 1)) - 1 + (magnitude >> drop & 1);
    sign | (rounded >> drop) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_of_eight_bits_round_trip_and_round_to_the_nearest() {
        for dtype in [DType::E4m3, DType::E5m2] {
            let finite: Vec<(u8, f32)> =
                (0..0x80).map(|h| (h, f8_value(dtype, h))).filter(|(_, v)| v.is_finite()).collect();
            assert_eq!(finite.len(), if dtype == DType::E4m3 { 127 } else { 124 });
            for (h, v) in &finite {
                assert_eq!([f8_bits(dtype, *v), f8_bits(dtype, -*v)], [*h, *h | 0x80], "{dtype} {v}");
            }
            for pair in finite.windows(2) {
                let [(a, low), (b, high)] = [pair[0], pair[1]];
                assert!(low < high);
                let middle = (low + high) / 2.0;
                let even = if a & 1 == 0 { a } else { b };
                assert_eq!(f8_bits(dtype, middle), even, "{dtype} {middle}");
                assert_eq!([f8_bits(dtype, middle.next_down()), f8_bits(dtype, middle.next_up())], [a, b]);
            }
            let largest = finite[finite.len() - 1];
            assert_eq!([f8_bits(dtype, 1e30), f8_bits(dtype, f32::INFINITY)], [largest.0; 2]);
            assert!(f8_value(dtype, f8_bits(dtype, f32::NAN)).is_nan());
        }
        assert!(f8_value(DType::E5m2, 0xfc) == f32::NEG_INFINITY);
    }

    #[test]
    fn every_binary16_round_trips() {
        for h in 0..=u16::MAX {
            let v = f16_value(h);
            if v.is_nan() {
                assert!(f16_value(f16_bits(v)).is_nan());
            } else {
                assert_eq!(f16_bits(v), h, "{v}");
            }
        }
    }

    #[test]
    fn halves_between_neighbours_round_to_even() {
        for h in (0..0x7bfeu16).step_by(7) {
            let middle = (f64::from(f16_value(h)) + f64::from(f16_value(h + 1))) / 2.0;
            assert_eq!(f16_bits(middle as f32) & 1, 0, "{h:#x}");
        }
        assert_eq!(f16_bits(65519.0), 0x7bff);
        assert_eq!(f16_bits(65520.0), 0x7c00);
        assert_eq!(bf16_bits(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(bf16_bits(f32::from_bits(0x3f81_8000)), 0x3f82);
    }
}
