//! Numbers that are no sizes: what steps of an epilogue and some operators hold.

use std::fmt;

/// A number that is not NaN, an `f32`. Specs write it as any number; keys and names of files write `p` for the point and `m` for a
/// minus: `m0p5`, `1em7`, `minf`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(u32);

impl Number {
    /// A number, unless it is infinite or NaN. Minus zero is zero.
    pub fn new(value: f32) -> Option<Number> {
        Number::or_infinite(value).filter(|_| value.is_finite())
    }

    /// A number that may be infinite, unless it is NaN. Minus zero is zero.
    pub fn or_infinite(value: f32) -> Option<Number> {
        (!value.is_nan()).then(|| Number((value + 0.0).to_bits()))
    }

    /// Its value.
    pub fn get(self) -> f64 {
        f64::from(f32::from_bits(self.0))
    }

    pub(super) const fn of(value: f32) -> Number {
        Number(value.to_bits())
    }

    /// As it stands among the sizes of an operator.
    pub(crate) fn to_size(self) -> i64 {
        self.0.into()
    }

    /// The number that stands so among the sizes.
    pub(crate) fn of_size(size: i64) -> Option<Number> {
        let bits = u32::try_from(size).ok()?;
        Number::or_infinite(f32::from_bits(bits)).filter(|number| number.0 == bits)
    }

    /// As keys write it.
    pub(super) fn key(self) -> String {
        format!("{self:?}").replace('.', "p").replace('-', "m")
    }

    /// The number that a key writes so.
    pub(super) fn from_key(text: &str) -> Option<Number> {
        text.replace('p', ".").replace('m', "-").parse().ok().and_then(Number::or_infinite)
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f32::from_bits(self.0))
    }
}
