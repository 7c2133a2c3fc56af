//! Borrowed dense arrays whose shape is a type, and what can be borrowed as one.

use crate::{Element, Error, Result, Shape};
use std::marker::PhantomData;

/// A borrowed dense row-major array of shape `S`. The length of the data is checked once, when the view is made.
///
/// ```
/// use kernel_gen_runtime::{View, D2};
/// let data = [0.0f32; 6];
/// let m = View::<_, D2<2, 3>>::new(&data)?;
/// assert!(View::<_, D2<2, 4>>::new(&data).is_err());
/// # Ok::<(), kernel_gen_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct View<'a, T, S> {
    data: &'a [T],
    shape: PhantomData<S>,
}

/// A mutably borrowed dense row-major array of shape `S`.
#[derive(Debug)]
pub struct ViewMut<'a, T, S> {
    data: &'a mut [T],
    shape: PhantomData<S>,
}

impl<T, S> Clone for View<'_, T, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, S> Copy for View<'_, T, S> {}

/// The length that shape `S` needs, or what is wrong with `elements`.
fn check_length<S: Shape>(elements: usize) -> Result<()> {
    if elements == S::ELEMENTS { Ok(()) } else { Err(Error::Length { shape: S::DIMS.to_vec(), elements }) }
}

impl<'a, T: Element, S: Shape> View<'a, T, S> {
    /// Views a slice, which must hold exactly the elements of the shape.
    pub fn new(data: &'a [T]) -> Result<Self> {
        check_length::<S>(data.len())?;
        Ok(View { data, shape: PhantomData })
    }

    /// The elements, row-major.
    pub fn as_slice(&self) -> &'a [T] {
        self.data
    }
}

impl<'a, T: Element, S: Shape> ViewMut<'a, T, S> {
    /// Views a slice, which must hold exactly the elements of the shape.
    pub fn new(data: &'a mut [T]) -> Result<Self> {
        check_length::<S>(data.len())?;
        Ok(ViewMut { data, shape: PhantomData })
    }

    /// The elements, row-major.
    pub fn as_slice(&self) -> &[T] {
        self.data
    }

    /// The elements, row-major.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.data
    }

    /// The elements, row-major, for as long as they are borrowed.
    pub fn into_mut_slice(self) -> &'a mut [T] {
        self.data
    }
}

impl<'a, T: Element, S: Shape> TryFrom<&'a [T]> for View<'a, T, S> {
    type Error = Error;
    fn try_from(data: &'a [T]) -> Result<Self> {
        View::new(data)
    }
}

impl<'a, T: Element, S: Shape> TryFrom<&'a mut [T]> for ViewMut<'a, T, S> {
    type Error = Error;
    fn try_from(data: &'a mut [T]) -> Result<Self> {
        ViewMut::new(data)
    }
}

/// Something that can be read as a dense array of known element type and shape: an argument of a generated function on
/// the CPU.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dense array in the CPU's memory",
    note = "on `Cpu`, an argument is a `View` of a slice, a `Tensor`, or a nested array; `View::try_from(&array)` views an \
            `ndarray` array (feature `ndarray` for version 0.17, `ndarray-0_16` for 0.16); buffers of a GPU go with its \
            own device"
)]
pub trait AsView {
    /// Element type.
    type Elem: Element;
    /// Shape.
    type Shape: Shape;
    /// Borrows it.
    fn view(&self) -> View<'_, Self::Elem, Self::Shape>;
}

/// Something that can be written as a dense array of known element type and shape.
pub trait AsViewMut: AsView {
    /// Borrows it.
    fn view_mut(&mut self) -> ViewMut<'_, Self::Elem, Self::Shape>;
}

impl<T: Element, S: Shape> AsView for View<'_, T, S> {
    type Elem = T;
    type Shape = S;
    fn view(&self) -> View<'_, T, S> {
        *self
    }
}

impl<T: Element, S: Shape> AsView for ViewMut<'_, T, S> {
    type Elem = T;
    type Shape = S;
    fn view(&self) -> View<'_, T, S> {
        View { data: self.data, shape: PhantomData }
    }
}

impl<T: Element, S: Shape> AsViewMut for ViewMut<'_, T, S> {
    fn view_mut(&mut self) -> ViewMut<'_, T, S> {
        ViewMut { data: self.data, shape: PhantomData }
    }
}

impl<V: AsView + ?Sized> AsView for &V {
    type Elem = V::Elem;
    type Shape = V::Shape;
    fn view(&self) -> View<'_, V::Elem, V::Shape> {
        (**self).view()
    }
}

impl<V: AsView + ?Sized> AsView for &mut V {
    type Elem = V::Elem;
    type Shape = V::Shape;
    fn view(&self) -> View<'_, V::Elem, V::Shape> {
        (**self).view()
    }
}

impl<V: AsViewMut + ?Sized> AsViewMut for &mut V {
    fn view_mut(&mut self) -> ViewMut<'_, V::Elem, V::Shape> {
        (**self).view_mut()
    }
}

impl<V: AsView + ?Sized> AsView for Box<V> {
    type Elem = V::Elem;
    type Shape = V::Shape;
    fn view(&self) -> View<'_, V::Elem, V::Shape> {
        (**self).view()
    }
}

impl<V: AsViewMut + ?Sized> AsViewMut for Box<V> {
    fn view_mut(&mut self) -> ViewMut<'_, V::Elem, V::Shape> {
        (**self).view_mut()
    }
}

macro_rules! nested_array {
    ($array:ty, $shape:ident, $($n:ident),+) => {
        impl<T: Element, $(const $n: usize),+> AsView for $array {
            type Elem = T;
            type Shape = crate::$shape<$($n),+>;
            fn view(&self) -> View<'_, T, Self::Shape> {
                // SAFETY: nested arrays of `T` are `ELEMENTS` values of type `T` in a row, without padding, and the
                // borrow of `self` lasts as long as the slice.
                let data = unsafe {
                    std::slice::from_raw_parts(std::ptr::from_ref(self).cast::<T>(), <Self::Shape as Shape>::ELEMENTS)
                };
                View { data, shape: PhantomData }
            }
        }
        impl<T: Element, $(const $n: usize),+> AsViewMut for $array {
            fn view_mut(&mut self) -> ViewMut<'_, T, Self::Shape> {
                // SAFETY: as in `view`, and the borrow is unique.
                let data = unsafe {
                    std::slice::from_raw_parts_mut(
                        std::ptr::from_mut(self).cast::<T>(),
                        <Self::Shape as Shape>::ELEMENTS,
                    )
                };
                ViewMut { data, shape: PhantomData }
            }
        }
    };
}
nested_array!([T; A], D1, A);
nested_array!([[T; B]; A], D2, A, B);
nested_array!([[[T; C]; B]; A], D3, A, B, C);
nested_array!([[[[T; D]; C]; B]; A], D4, A, B, C, D);
nested_array!([[[[[T; E]; D]; C]; B]; A], D5, A, B, C, D, E);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{D1, D3};

    #[test]
    fn a_view_of_the_wrong_length_is_refused_and_says_what_it_needs() {
        let error = View::<f32, D3<2, 3, 4>>::new(&[0.0; 23]).unwrap_err();
        assert_eq!(error.to_string(), "a view of shape [2, 3, 4] needs 24 elements, but the slice has 23");
    }

    #[test]
    fn nested_arrays_are_views_in_row_major_order() {
        let mut a = [[[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]];
        assert_eq!(a.view().as_slice(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        a.view_mut().as_mut_slice()[3] = 40.0;
        assert_eq!(a[0][1][1], 40.0);
        fn shape<V: AsView>(_: &V) -> &'static [usize] {
            V::Shape::DIMS
        }
        assert_eq!(shape(&a), [1, 3, 2]);
        assert_eq!(shape(&View::<f32, D1<0>>::new(&[]).unwrap()), [0]);
    }
}
