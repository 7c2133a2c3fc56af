//! Owned dense arrays.

use crate::arena::AlignedBytes;
use crate::{AsView, AsViewMut, Element, Error, Result, Shape, View, ViewMut};
use std::fmt;
use std::marker::PhantomData;

/// An owned dense row-major array of shape `S`, aligned to a cache line.
///
/// Generated kernels take any view; a tensor is the convenient owner of one.
///
/// ```
/// use kernel_gen_runtime::{Tensor, D2};
/// let eye = Tensor::<f32, D2<3, 3>>::from_fn(|i| if i % 4 == 0 { 1.0 } else { 0.0 });
/// assert_eq!(eye.as_slice()[8], 1.0);
/// ```
pub struct Tensor<T, S> {
    bytes: AlignedBytes,
    kind: PhantomData<(T, S)>,
}

impl<T: Element, S: Shape> Tensor<T, S> {
    /// All zero.
    ///
    /// # Panics
    /// If the memory cannot be allocated; [`try_zeros`](Tensor::try_zeros) returns the error.
    pub fn zeros() -> Self {
        Self::try_zeros().unwrap_or_else(|e| panic!("{e}"))
    }

    /// All zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the memory cannot be allocated.
    pub fn try_zeros() -> Result<Self> {
        let bytes = size_in_bytes::<T, S>()?;
        Ok(Tensor { bytes: AlignedBytes::zeroed(bytes)?, kind: PhantomData })
    }

    /// A copy of a slice, which must hold exactly the elements of the shape.
    ///
    /// # Errors
    /// [`Error::Length`] if it does not, [`Error::OutOfMemory`] if the memory cannot be allocated.
    pub fn from_slice(data: &[T]) -> Result<Self> {
        if data.len() != S::ELEMENTS {
            return Err(Error::Length { shape: S::DIMS.to_vec(), elements: data.len() });
        }
        let mut tensor = Self::try_zeros()?;
        tensor.as_mut_slice().copy_from_slice(data);
        Ok(tensor)
    }

    /// Lets something write its elements as bytes in little-endian order.
    pub(crate) fn fill_bytes<E>(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let size = size_of::<T>();
        // SAFETY: the allocation holds this many bytes, which are initialised, and any bits are a valid element.
        let own = unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), S::ELEMENTS * size) };
        let filled = fill(own);
        if cfg!(target_endian = "big") {
            own.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        filled
    }

    /// Each element from its position in row-major order.
    ///
    /// # Panics
    /// As [`zeros`](Tensor::zeros).
    pub fn from_fn(value: impl FnMut(usize) -> T) -> Self {
        let mut tensor = Self::zeros();
        let mut value = value;
        for (i, e) in tensor.as_mut_slice().iter_mut().enumerate() {
            *e = value(i);
        }
        tensor
    }

    /// The elements, row-major.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the allocation holds `ELEMENTS` initialised values of `T` (any bits are a valid element), is aligned
        // to 64 bytes, more than any element needs, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), S::ELEMENTS) }
    }

    /// The elements, row-major.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr().cast(), S::ELEMENTS) }
    }
}

/// Bytes of the elements of a shape.
pub(crate) fn size_in_bytes<T: Element, S: Shape>() -> Result<usize> {
    S::ELEMENTS.checked_mul(size_of::<T>()).ok_or(Error::OutOfMemory { bytes: usize::MAX })
}

impl<T: Element, S: Shape> AsView for Tensor<T, S> {
    type Elem = T;
    type Shape = S;
    fn view(&self) -> View<'_, T, S> {
        View::new(self.as_slice()).expect("a tensor has the length of its shape")
    }
}

impl<T: Element, S: Shape> AsViewMut for Tensor<T, S> {
    fn view_mut(&mut self) -> ViewMut<'_, T, S> {
        ViewMut::new(self.as_mut_slice()).expect("a tensor has the length of its shape")
    }
}

impl<T: Element, S: Shape> Clone for Tensor<T, S> {
    fn clone(&self) -> Self {
        Self::from_slice(self.as_slice()).unwrap_or_else(|e| panic!("{e}"))
    }
}

impl<T: Element, S: Shape> Default for Tensor<T, S> {
    fn default() -> Self {
        Self::zeros()
    }
}

impl<T: Element, S: Shape> fmt::Debug for Tensor<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}>{:?} ", T::DTYPE, S::DIMS)?;
        f.debug_list().entries(self.as_slice().iter().take(16)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::D2;

    #[test]
    fn a_tensor_is_zero_aligned_and_copies_deeply() {
        let mut a = Tensor::<f32, D2<3, 5>>::zeros();
        assert_eq!(a.as_slice(), [0.0; 15]);
        assert_eq!(a.as_slice().as_ptr() as usize % 64, 0);
        let b = a.clone();
        a.as_mut_slice()[0] = 1.0;
        assert_eq!(b.as_slice()[0], 0.0);
        assert!(Tensor::<f32, D2<3, 5>>::from_slice(&[0.0; 14]).is_err());
        assert!(Tensor::<f64, D2<0, 5>>::zeros().as_slice().is_empty());
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_tensor_that_does_not_fit_in_memory_is_an_error_on_a_device_too() {
        use crate::{Cpu, D1, Device};
        const EXBIBYTE: usize = 1 << 60;
        let out = |bytes| Error::OutOfMemory { bytes };
        assert_eq!(Tensor::<f32, D1<{ usize::MAX / 2 }>>::try_zeros().err(), Some(out(usize::MAX)));
        assert_eq!(Tensor::<u8, D1<{ usize::MAX / 2 }>>::try_zeros().err(), Some(out(usize::MAX / 2)));
        assert_eq!(Tensor::<u8, D1<EXBIBYTE>>::try_zeros().err(), Some(out(EXBIBYTE)));
        assert_eq!(Cpu::with_threads(1).zeros::<u8, D1<EXBIBYTE>>().err(), Some(out(EXBIBYTE)));
        // An address space has room for 64 TiB: some systems promise such memory without having it.
        if let Err(error) = Tensor::<f32, D1<{ 1 << 44 }>>::try_zeros() {
            assert_eq!(error, out(1 << 46));
        }
    }
}
