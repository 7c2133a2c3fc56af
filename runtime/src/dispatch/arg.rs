//! Arguments of launches.

use super::cpu::Packed;
use crate::{Cpu, DType, Device, DynView, DynViewMut, Element, Error, Result};
use std::marker::PhantomData;

/// An argument of a launch: a borrowed buffer, or a packed weight.
pub struct Arg<'a, D: Device = Cpu> {
    pub(crate) pointer: D::Pointer<'a>,
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
    pub(crate) writable: bool,
    pub(crate) packed: Option<&'a D::Packed>,
    pub(crate) borrow: PhantomData<&'a mut ()>,
}

impl<'a> Arg<'a> {
    /// Something to read.
    pub fn read<T: Element>(data: &'a [T]) -> Arg<'a> {
        Arg {
            pointer: data.as_ptr().cast_mut().cast(),
            dtype: T::DTYPE,
            elements: data.len(),
            writable: false,
            packed: None,
            borrow: PhantomData,
        }
    }

    /// Something to write.
    pub fn write<T: Element>(data: &'a mut [T]) -> Arg<'a> {
        Arg {
            pointer: data.as_mut_ptr().cast(),
            dtype: T::DTYPE,
            elements: data.len(),
            writable: true,
            packed: None,
            borrow: PhantomData,
        }
    }

    /// A packed weight.
    pub fn packed(packed: &'a Packed) -> Arg<'a> {
        Arg {
            pointer: packed.data.as_ptr(),
            dtype: DType::U8,
            elements: packed.data.len(),
            writable: false,
            packed: Some(packed),
            borrow: PhantomData,
        }
    }
}

impl<'a, D: Device> Arg<'a, D> {
    /// The subrange of `elements` elements that starts at element `from`: generated networks keep several arrays in one buffer.
    ///
    /// # Panics
    /// If it has fewer, or is a packed weight.
    #[doc(hidden)]
    #[must_use]
    pub fn part(self, from: usize, elements: usize) -> Arg<'a, D> {
        let end = from.checked_add(elements);
        assert!(
            self.packed.is_none() && end.is_some_and(|end| end <= self.elements),
            "generated code stays within its arrays"
        );
        Arg { pointer: D::advance(self.pointer, from * self.dtype.bytes()), elements, ..self }
    }
}

impl<D: Device> Arg<'_, D> {
    /// The same to read from, for one launch of several: generated networks pass what they are given to many.
    #[doc(hidden)]
    #[must_use]
    pub fn again(&self) -> Arg<'_, D> {
        let Arg { dtype, elements, packed, .. } = *self;
        Arg { pointer: D::lend(&self.pointer), dtype, elements, writable: false, packed, borrow: PhantomData }
    }

    /// The same to write to, for one launch of several.
    #[doc(hidden)]
    #[must_use]
    pub fn again_mut(&mut self) -> Arg<'_, D> {
        let Arg { dtype, elements, writable, packed, .. } = *self;
        Arg { pointer: D::lend(&self.pointer), dtype, elements, writable, packed, borrow: PhantomData }
    }
}

impl<D: Device> Arg<'_, D> {
    /// The part of one of `images`, all of which have parts of one size, one behind the other.
    ///
    /// # Safety
    /// Of an argument that is written, the part of an image may be used once at a time.
    pub(crate) unsafe fn of_image(&self, image: usize, images: usize) -> Arg<'_, D> {
        let Arg { dtype, elements, writable, packed, .. } = *self;
        let elements = elements / images;
        let pointer = D::advance(D::lend(&self.pointer), image * elements * dtype.bytes());
        Arg { pointer, dtype, elements, writable, packed, borrow: PhantomData }
    }
}

/// A shape and its data as an argument whose shape has yet to be compared.
pub struct DynArg<'a, D: Device = Cpu> {
    pub(crate) shape: &'a [usize],
    pub(crate) arg: Arg<'a, D>,
}

impl<'a> DynArg<'a> {
    /// Something to read. Data and shape must fit.
    pub fn read<T: Element>(view: DynView<'a, T>) -> Result<DynArg<'a>> {
        check_elements(view.shape, view.data.len())?;
        Ok(DynArg { shape: view.shape, arg: Arg::read(view.data) })
    }

    /// Something to write. Data and shape must fit.
    pub fn write<T: Element>(view: DynViewMut<'a, T>) -> Result<DynArg<'a>> {
        check_elements(view.shape, view.data.len())?;
        Ok(DynArg { shape: view.shape, arg: Arg::write(view.data) })
    }
}

impl<'a, D: Device> DynArg<'a, D> {
    /// The argument without its shape, for an entry whose shapes are known to be these.
    pub fn into_arg(self) -> Arg<'a, D> {
        self.arg
    }
}

/// Whether so many elements fill the shape.
pub(crate) fn check_elements(shape: &[usize], elements: usize) -> Result<()> {
    match shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)) {
        Some(n) if n == elements => Ok(()),
        _ => Err(Error::Length { shape: shape.to_vec(), elements }),
    }
}
