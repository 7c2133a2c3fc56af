//! Integer arithmetic that the standard library does not have.

/// The greatest common divisor, not negative; 0 of two zeros.
pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    // 2^63 alone does not fit, and 1 is a common divisor, too.
    i64::try_from(a).unwrap_or(1)
}

/// `a / b`, rounded up, for a positive `b`.
pub fn ceil_div(a: i64, b: i64) -> i64 {
    let b = b.max(1);
    a.div_euclid(b) + i64::from(a.rem_euclid(b) != 0)
}

/// The least multiple of a positive `unit` that is not below `a`.
pub(crate) fn round_up(a: i64, unit: i64) -> i64 {
    ceil_div(a, unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_common_divisor_is_never_negative() {
        let cases = [(12, 18, 6), (-12, 18, 6), (0, -5, 5), (0, 0, 0), (7, 1, 1), (i64::MIN, 6, 2)];
        for (a, b, wanted) in cases {
            assert_eq!((gcd(a, b), gcd(b, a)), (wanted, wanted), "{a} {b}");
        }
        assert_eq!(gcd(i64::MIN, i64::MIN), 1);
    }

    #[test]
    fn quotients_are_rounded_up() {
        assert_eq!([0, 1, 7, 8, 9].map(|a| ceil_div(a, 8)), [0, 1, 1, 1, 2]);
        assert_eq!([0, 1, 7, 8, 9].map(|a| round_up(a, 8)), [0, 8, 8, 8, 16]);
    }
}
