//! Arguments of kernels that are passed by value.

mod sealed {
    pub trait Sealed {}
}

/// A number that a kernel can take by value. Sealed: each has the size and the bits of the type of C with its name.
pub trait Scalar: Copy + sealed::Sealed {
    /// The value's bytes at the start of 8, as a launch passes them.
    fn bits(self) -> u64;
}

macro_rules! scalar {
    ($($t:ty),*) => {$(
        impl sealed::Sealed for $t {}
        impl Scalar for $t {
            fn bits(self) -> u64 {
                let mut bytes = [0; 8];
                let own = self.to_ne_bytes();
                bytes[..own.len()].copy_from_slice(&own);
                u64::from_ne_bytes(bytes)
            }
        }
    )*};
}
scalar!(f32, f64, i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);

impl sealed::Sealed for bool {}
impl Scalar for bool {
    fn bits(self) -> u64 {
        u8::from(self).bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_are_those_of_the_value() {
        fn starts_with<T: Scalar>(value: T, own: &[u8]) {
            let bytes = value.bits().to_ne_bytes();
            assert_eq!(&bytes[..own.len()], own);
            assert!(bytes[own.len()..].iter().all(|b| *b == 0));
        }
        starts_with(-1.5f32, &(-1.5f32).to_ne_bytes());
        starts_with(2.5e300f64, &2.5e300f64.to_ne_bytes());
        starts_with(-7i32, &(-7i32).to_ne_bytes());
        starts_with(i64::MIN, &i64::MIN.to_ne_bytes());
        starts_with(0xabcdu16, &0xabcdu16.to_ne_bytes());
        starts_with(true, &[1]);
    }
}
