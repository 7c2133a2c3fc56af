//! `ndarray` arrays as arguments. Only arrays in standard (row-major, contiguous) layout are taken: nothing is copied.

use crate::{DynView, DynViewMut, Element, Error, Result, Shape, View, ViewMut};
use ndarray::{ArrayBase, Data, DataMut, Dimension};

/// The error for an array whose shape is not the one that the type says.
fn check_shape<S: Shape>(shape: &[usize]) -> Result<()> {
    if shape == S::DIMS {
        return Ok(());
    }
    Err(Error::ArrayShape { expected: S::DIMS.to_vec(), got: shape.to_vec() })
}

impl<'a, A: Element, S: Shape, D: Data<Elem = A>, I: Dimension> TryFrom<&'a ArrayBase<D, I>> for View<'a, A, S> {
    type Error = Error;
    fn try_from(array: &'a ArrayBase<D, I>) -> Result<Self> {
        check_shape::<S>(array.shape())?;
        View::new(array.as_slice().ok_or(Error::NotContiguous)?)
    }
}

impl<'a, A: Element, S: Shape, D: DataMut<Elem = A>, I: Dimension> TryFrom<&'a mut ArrayBase<D, I>>
    for ViewMut<'a, A, S>
{
    type Error = Error;
    fn try_from(array: &'a mut ArrayBase<D, I>) -> Result<Self> {
        check_shape::<S>(array.shape())?;
        ViewMut::new(array.as_slice_mut().ok_or(Error::NotContiguous)?)
    }
}

impl<'a, A: Element, D: Data<Elem = A>, I: Dimension> TryFrom<&'a ArrayBase<D, I>> for DynView<'a, A> {
    type Error = Error;
    fn try_from(array: &'a ArrayBase<D, I>) -> Result<Self> {
        Ok(DynView { data: array.as_slice().ok_or(Error::NotContiguous)?, shape: array.shape() })
    }
}

/// A mutable array lends its data and its shape at the same time, which `ndarray` cannot; the caller names the shape.
impl<'a, A: Element> DynViewMut<'a, A> {
    /// Views an array whose shape is `shape`.
    pub fn from_ndarray<D: DataMut<Elem = A>, I: Dimension>(
        array: &'a mut ArrayBase<D, I>,
        shape: &'a [usize],
    ) -> Result<Self> {
        if array.shape() != shape {
            return Err(Error::ArrayShape { expected: shape.to_vec(), got: array.shape().to_vec() });
        }
        Ok(DynViewMut { data: array.as_slice_mut().ok_or(Error::NotContiguous)?, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::D2;
    use ndarray::Array2;

    #[test]
    fn standard_arrays_are_viewed_and_others_refused() {
        let mut a = Array2::<f32>::zeros((2, 3));
        assert!(View::<f32, D2<2, 3>>::try_from(&a).is_ok());
        assert!(ViewMut::<f32, D2<2, 3>>::try_from(&mut a).is_ok());
        assert!(matches!(View::<f32, D2<3, 2>>::try_from(&a), Err(Error::ArrayShape { .. })));
        assert!(matches!(View::<f32, D2<3, 2>>::try_from(&a.t()), Err(Error::NotContiguous)));
        assert_eq!(DynView::try_from(&a).unwrap().shape, [2, 3]);
    }
}
