//! Rounding to the declared types, and the error function.

use crate::ir::DType;

/// Rounds to nearest even in the given type. Integers pass through: they are exact here.
#[inline]
pub(super) fn round_to(v: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => v,
        DType::F32 => f64::from(v as f32),
        // A value of the compute type `f32` first, as on every target.
        DType::F16 => {
            let rounded = to_few_bits(v as f32, 10, -14);
            if rounded.abs() > 65504.0 { f64::INFINITY.copysign(rounded) } else { rounded }
        }
        DType::Bf16 => to_bf16(v as f32),
        _ => match dtype.format() {
            Some(of) => {
                to_few_bits(v as f32, of.fraction_bits as i32, of.least_exponent()).clamp(-of.largest, of.largest)
            }
            None => v,
        },
    }
}

/// The nearest number of 10 fraction bits and an `f32`'s exponent, ties away from zero; NaN stays NaN.
pub(super) fn nearest_tf32(v: f64) -> f64 {
    if v.is_nan() {
        return v;
    }
    let bits = (v as f32).to_bits().wrapping_add(0x1000) & 0xffff_e000;
    f64::from(f32::from_bits(bits))
}

/// What tensor cores take of an `f32`: its first 10 fraction bits.
pub(super) fn truncated_tf32(v: f64) -> f64 {
    let v = v as f32;
    if v.is_nan() { f64::NAN } else { f64::from(f32::from_bits(v.to_bits() & 0xffff_e000)) }
}

/// The nearest bfloat16.
fn to_bf16(v: f32) -> f64 {
    if v.is_nan() {
        return f64::NAN;
    }
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    f64::from(f32::from_bits(rounded))
}

/// Rounds to `fraction` fraction bits, ties to even. Below the exponent `least` numbers are subnormal: multiples of `2^(least - fraction)`.
fn to_few_bits(v: f32, fraction: i32, least: i32) -> f64 {
    let x = f64::from(v);
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    // The exponent of an f32 converted to f64 is always that of a normal number.
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let step = f64::powi(2.0, exponent.max(least) - fraction);
    (x / step).round_ties_even() * step
}

/// The error function, to a few units in the last place of `f64`: the series
/// `2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!!`, whose terms are all of one sign (Abramowitz and Stegun 7.1.6).
pub(super) fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() >= 6.0 {
        return 1f64.copysign(x);
    }
    let mut term = x;
    let mut sum = x;
    let mut n = 0.0;
    while term.abs() > sum.abs() * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_floats_round_to_nearest_even() {
        assert_eq!(round_to(1.0 + 1.0 / 2048.0, DType::F16), 1.0);
        assert_eq!(round_to(1.0 + 3.0 / 2048.0, DType::F16), 1.0 + 2.0 / 1024.0);
        assert_eq!(round_to(65519.0, DType::F16), 65504.0);
        assert_eq!(round_to(65520.0, DType::F16), f64::INFINITY);
        assert_eq!(round_to(2f64.powi(-24), DType::F16), 2f64.powi(-24));
        assert_eq!(round_to(2f64.powi(-26), DType::F16), 0.0);
        assert_eq!(round_to(1.0 + 1.0 / 256.0, DType::Bf16), 1.0);
        assert_eq!(round_to(1.0 + 3.0 / 256.0, DType::Bf16), 1.0 + 2.0 / 128.0);
    }

    #[test]
    fn eight_bit_floats_round_to_nearest_even_and_saturate() {
        for (x, e4m3, e5m2) in [
            (1.0 + 1.0 / 16.0, 1.0, 1.0),
            (1.0 + 3.0 / 16.0, 1.25, 1.25),
            (1.375, 1.375, 1.5),
            (464.0, 448.0, 448.0),
            (1e5, 448.0, 57344.0),
            (f64::NEG_INFINITY, -448.0, -57344.0),
            (2f64.powi(-9), 2f64.powi(-9), 2f64.powi(-9)),
            (1.5 * 2f64.powi(-9), 2f64.powi(-8), 1.5 * 2f64.powi(-9)),
            (2f64.powi(-17), 0.0, 0.0),
            (1.5 * 2f64.powi(-17), 0.0, 2f64.powi(-16)),
        ] {
            assert_eq!([round_to(x, DType::E4m3), round_to(x, DType::E5m2)], [e4m3, e5m2], "{x}");
        }
        assert!(round_to(f64::NAN, DType::E4m3).is_nan());
    }

    #[test]
    fn erf_agrees_with_known_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, want) in
            [(0.0, 0.0), (0.5, 0.5204998778), (1.0, 0.8427007929), (2.0, 0.9953222650), (-1.0, -0.8427007929)]
        {
            assert!((erf(x) - want).abs() < 1e-10, "{x}");
        }
        assert_eq!(erf(7.0), 1.0);
    }
}
