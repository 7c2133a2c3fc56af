//! Values as bytes, for files that the same generator reads back: results that are kept from one build to the next.
//!
//! There is no schema: whoever keeps such a file puts what wrote it into its name.

/// A value that can be kept.
pub(crate) trait Stored: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes the value from the front; none if it is not one.
    fn get(from: &mut &[u8]) -> Option<Self>;
}

/// Makes a structure [`Stored`], field by field.
macro_rules! stored {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl $crate::stored::Stored for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let $name { $($field),* } = self;
                $($crate::stored::Stored::put($field, out);)*
            }

            fn get(from: &mut &[u8]) -> Option<Self> {
                $(let $field = $crate::stored::Stored::get(from)?;)*
                Some($name { $($field),* })
            }
        }
    )*};
}
pub(crate) use stored;

macro_rules! stored_numbers {
    ($($number:ty),*) => {$(
        impl Stored for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn get(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(<$number>::from_le_bytes(*bytes))
            }
        }
    )*};
}
stored_numbers!(u8, u32, u64, i64, f64, usize);

impl Stored for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(u8::get(from)? != 0)
    }
}

impl Stored for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend(self.as_bytes());
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        let length = usize::get(from)?;
        let (text, rest) = from.split_at_checked(length)?;
        *from = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        (0..usize::get(from)?).map(|_| T::get(from)).collect()
    }
}

impl<T: Stored> Stored for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::get(from)? { Some(T::get(from)?) } else { None })
    }
}

impl<T: Stored + Copy + Default, const N: usize> Stored for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        let mut all = [T::default(); N];
        for item in &mut all {
            *item = T::get(from)?;
        }
        Some(all)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some((A::get(from)?, B::get(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Debug)]
    struct Kept {
        name: String,
        sizes: Vec<(usize, Option<i64>)>,
        grid: [u32; 3],
        time: f64,
        is_new: bool,
    }
    stored!(Kept { name, sizes, grid, time, is_new });

    #[test]
    fn what_is_put_is_got_and_what_is_cut_is_nothing() {
        let kept = Kept {
            name: "a\n\u{e9}".into(),
            sizes: vec![(1, None), (usize::MAX, Some(-1))],
            grid: [1, 2, 3],
            time: -0.1,
            is_new: true,
        };
        let mut bytes = vec![];
        kept.put(&mut bytes);
        let mut from = &bytes[..];
        assert_eq!((Kept::get(&mut from), from.len()), (Some(kept), 0));
        for length in 0..bytes.len() {
            assert_eq!(Kept::get(&mut &bytes[..length]), None, "{length}");
        }
    }
}
