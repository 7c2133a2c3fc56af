//! Shapes as types.

use std::fmt;

mod sealed {
    pub trait Sealed {}
}

/// A shape that is known at compile time: one of [`D1`] to [`D6`].
pub trait Shape: sealed::Sealed + Copy + Default + fmt::Debug + Send + Sync + 'static {
    /// Extents, outermost first.
    const DIMS: &'static [usize];
    /// Product of the extents.
    const ELEMENTS: usize;
}

macro_rules! shape {
    ($(#[$doc:meta])* $name:ident, $($n:ident),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
        pub struct $name<$(const $n: usize),+>;
        impl<$(const $n: usize),+> sealed::Sealed for $name<$($n),+> {}
        impl<$(const $n: usize),+> Shape for $name<$($n),+> {
            const DIMS: &'static [usize] = &[$($n),+];
            const ELEMENTS: usize = 1 $(* $n)+;
        }
        impl<$(const $n: usize),+> fmt::Debug for $name<$($n),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(Self::DIMS, f)
            }
        }
    };
}
shape!(
    /// One dimension: a vector, a bias.
    D1, A);
shape!(
    /// Two dimensions: a matrix, rows first.
    D2, A, B);
shape!(
    /// Three dimensions: a batch of matrices.
    D3, A, B, C);
shape!(
    /// Four dimensions: images (`D4<n, c, h, w>` in NCHW) or convolution weights.
    D4, A, B, C, D);
shape!(
    /// Five dimensions: blocked images and weights.
    D5, A, B, C, D, E);
shape!(
    /// Six dimensions: images and weights in tiles.
    D6, A, B, C, D, E, F);
