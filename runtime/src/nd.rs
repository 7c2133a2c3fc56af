//! `ndarray` arrays as arguments. Only arrays in standard (row-major, contiguous) layout are taken: nothing is copied.
//!
//! Each supported version of `ndarray` is a crate of its own to the compiler, so a macro writes the same impls for each.

use crate::{DynView, DynViewMut, Element, Error, Result, Shape, View, ViewMut};

/// The error for an array whose shape is not the one that the type says.
fn check_shape<S: Shape>(shape: &[usize]) -> Result<()> {
    if shape == S::DIMS {
        return Ok(());
    }
    Err(Error::ArrayShape { expected: S::DIMS.to_vec(), got: shape.to_vec() })
}

/// Conversions from arrays of one version of `ndarray`: its crate, the name of the method on [`DynViewMut`], and a module
/// name for the tests.
macro_rules! arrays {
    ($ndarray:ident, $from_ndarray:ident, $tests:ident) => {
        impl<'a, A: Element, S: Shape, D: $ndarray::Data<Elem = A>, I: $ndarray::Dimension>
            TryFrom<&'a $ndarray::ArrayBase<D, I>> for View<'a, A, S>
        {
            type Error = Error;
            fn try_from(array: &'a $ndarray::ArrayBase<D, I>) -> Result<Self> {
                check_shape::<S>(array.shape())?;
                View::new(array.as_slice().ok_or(Error::NotContiguous)?)
            }
        }

        impl<'a, A: Element, S: Shape, D: $ndarray::DataMut<Elem = A>, I: $ndarray::Dimension>
            TryFrom<&'a mut $ndarray::ArrayBase<D, I>> for ViewMut<'a, A, S>
        {
            type Error = Error;
            fn try_from(array: &'a mut $ndarray::ArrayBase<D, I>) -> Result<Self> {
                check_shape::<S>(array.shape())?;
                ViewMut::new(array.as_slice_mut().ok_or(Error::NotContiguous)?)
            }
        }

        impl<'a, A: Element, D: $ndarray::Data<Elem = A>, I: $ndarray::Dimension> TryFrom<&'a $ndarray::ArrayBase<D, I>>
            for DynView<'a, A>
        {
            type Error = Error;
            fn try_from(array: &'a $ndarray::ArrayBase<D, I>) -> Result<Self> {
                Ok(DynView { data: array.as_slice().ok_or(Error::NotContiguous)?, shape: array.shape() })
            }
        }

        /// An array cannot lend its elements to write and its shape at the same time, so the caller names the shape.
        impl<'a, A: Element> DynViewMut<'a, A> {
            /// Views an array of the crate
            #[doc = concat!("`", stringify!($ndarray), "`")]
            /// whose shape is `shape`.
            ///
            /// # Errors
            /// [`Error::ArrayShape`] if the array has another shape, [`Error::NotContiguous`] if it is not row-major.
            pub fn $from_ndarray<D: $ndarray::DataMut<Elem = A>, I: $ndarray::Dimension>(
                array: &'a mut $ndarray::ArrayBase<D, I>,
                shape: &'a [usize],
            ) -> Result<Self> {
                if array.shape() != shape {
                    return Err(Error::ArrayShape { expected: shape.to_vec(), got: array.shape().to_vec() });
                }
                Ok(DynViewMut { data: array.as_slice_mut().ok_or(Error::NotContiguous)?, shape })
            }
        }

        #[cfg(test)]
        mod $tests {
            use super::*;
            use crate::D2;
            use $ndarray::Array2;

            #[test]
            fn standard_arrays_are_viewed_and_others_refused() {
                let mut a = Array2::<f32>::zeros((2, 3));
                assert!(View::<f32, D2<2, 3>>::try_from(&a).is_ok());
                assert!(View::<f32, D2<2, 3>>::try_from(&a.view()).is_ok());
                assert!(ViewMut::<f32, D2<2, 3>>::try_from(&mut a).is_ok());
                assert!(matches!(View::<f32, D2<3, 2>>::try_from(&a), Err(Error::ArrayShape { .. })));
                assert!(matches!(View::<f32, D2<3, 2>>::try_from(&a.t()), Err(Error::NotContiguous)));
                assert_eq!(DynView::try_from(&a).unwrap().shape, [2, 3]);
                assert!(matches!(DynView::try_from(&a.t()), Err(Error::NotContiguous)));
                DynViewMut::$from_ndarray(&mut a, &[2, 3]).unwrap().data[4] = 5.0;
                assert_eq!(a[(1, 1)], 5.0);
                assert!(matches!(DynViewMut::$from_ndarray(&mut a, &[3, 2]), Err(Error::ArrayShape { .. })));
            }
        }
    };
}

#[cfg(feature = "ndarray")]
arrays!(ndarray, from_ndarray, tests);
#[cfg(feature = "ndarray-0_16")]
arrays!(ndarray_0_16, from_ndarray_0_16, tests_0_16);
