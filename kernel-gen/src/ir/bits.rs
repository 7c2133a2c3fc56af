//! Numbers of 16 bits.

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

#[cfg(test)]
mod tests {
    use super::*;

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
