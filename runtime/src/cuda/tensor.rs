//! Arrays in a GPU's memory, with their shapes as types.

use super::driver::Driver;
use super::owned::{Claimed, Owned};
use super::{Cuda, CudaError};
use crate::device::{Input, Output};
use crate::dispatch::Arg;
use crate::tensor::size_in_bytes;
use crate::{AsView, AsViewMut, Bf16, BitsOf, E4m3, E5m2, Element, Error, F16, Result, Shape, Tensor};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut, DevicePtr, DeviceRepr, DeviceSlice, ValidAsZeroBits, result};
use std::fmt;
use std::marker::PhantomData;

// SAFETY: 16 bits of data, as a `u16`, which the kernels read as a half.
unsafe impl DeviceRepr for F16 {}
// SAFETY: as above.
unsafe impl DeviceRepr for Bf16 {}
// SAFETY: 8 bits of data, as a `u8`.
unsafe impl DeviceRepr for E4m3 {}
// SAFETY: as above.
unsafe impl DeviceRepr for E5m2 {}
// SAFETY: 0.
unsafe impl ValidAsZeroBits for F16 {}
// SAFETY: 0.
unsafe impl ValidAsZeroBits for Bf16 {}
// SAFETY: 0.
unsafe impl ValidAsZeroBits for E4m3 {}
// SAFETY: 0.
unsafe impl ValidAsZeroBits for E5m2 {}

/// An owned dense row-major array of shape `S` in a GPU's memory: a [`CudaSlice`] whose length is known to be right.
///
/// The slice is lent for reading only, and its elements for writing: with the slice itself another one of another length
/// could be put in its place, and launches and copies rely on the length.
///
/// A captured [`Graph`](super::Graph) that launches with a tensor keeps its memory: dropping the tensor frees nothing then.
///
/// ```compile_fail
/// # use kernel_gen_runtime::{cuda::DeviceTensor, D1};
/// fn shorten(mut big: DeviceTensor<f32, D1<1024>>, mut small: DeviceTensor<f32, D1<1>>) {
///     std::mem::swap(big.as_mut_slice(), small.as_mut_slice());
/// }
/// ```
pub struct DeviceTensor<T, S> {
    data: Owned<CudaSlice<T>>,
    shape: PhantomData<S>,
}

/// A borrowed dense row-major array of shape `S` in a GPU's memory.
pub struct DeviceView<'a, T, S> {
    data: CudaView<'a, T>,
    /// What a graph keeps; none where the memory belongs to a slice.
    memory: Option<&'a dyn Claimed>,
    shape: PhantomData<S>,
}

/// A mutably borrowed dense row-major array of shape `S` in a GPU's memory.
pub struct DeviceViewMut<'a, T, S> {
    data: CudaViewMut<'a, T>,
    /// As of a [`DeviceView`].
    memory: Option<&'a dyn Claimed>,
    shape: PhantomData<S>,
}

/// A dense row-major array in a GPU's memory with its shape, for the `_dyn` forms.
pub struct DeviceDynView<'a, T> {
    /// The elements.
    pub data: CudaView<'a, T>,
    /// Extents, outermost first.
    pub shape: &'a [usize],
}

/// A dense row-major array in a GPU's memory to write to, with its shape.
pub struct DeviceDynViewMut<'a, T> {
    /// The elements.
    pub data: CudaViewMut<'a, T>,
    /// Extents, outermost first.
    pub shape: &'a [usize],
}

fn check_length<S: Shape>(elements: usize) -> Result<()> {
    if elements == S::ELEMENTS { Ok(()) } else { Err(length::<S>(elements)) }
}

/// The error for so many elements.
fn length<S: Shape>(elements: usize) -> Error {
    Error::Length { shape: S::DIMS.to_vec(), elements }
}

fn copy_failed(call: &'static str) -> impl Fn(cudarc::driver::DriverError) -> CudaError {
    move |error| Driver::of_cudarc(call, error)
}

impl<T: Element, S: Shape> DeviceTensor<T, S> {
    /// All zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the GPU has not enough free memory.
    pub fn zeros(dev: &Cuda) -> Result<Self> {
        let bytes = size_in_bytes::<T, S>()?;
        let _turn = dev.outside("DeviceTensor::zeros")?;
        // The driver does not allocate nothing.
        let data = dev.stream().alloc_zeros(S::ELEMENTS.max(1)).map_err(|e| Driver::not_allocated(bytes, e))?;
        Ok(DeviceTensor { data: Owned::new(data), shape: PhantomData })
    }

    /// A copy of an array in the CPU's memory.
    pub fn from_host(dev: &Cuda, host: &impl AsView<Elem = T, Shape = S>) -> Result<Self> {
        let mut tensor = Self::zeros(dev)?;
        tensor.copy_from_host(dev, host)?;
        Ok(tensor)
    }

    /// Overwrites it with an array in the CPU's memory.
    pub fn copy_from_host(&mut self, dev: &Cuda, host: &impl AsView<Elem = T, Shape = S>) -> Result<()> {
        let host = host.view();
        let _turn = dev.outside("DeviceTensor::copy_from_host")?;
        dev.stream().memcpy_htod(host.as_slice(), self.data.get_mut()).map_err(copy_failed("cuMemcpyHtoDAsync"))?;
        // The host's memory may be gone when a copy that is only queued would read it.
        Ok(dev.wait()?)
    }

    /// Overwrites it through a shared reference, for who knows that nothing else uses it meanwhile.
    pub(super) fn overwrite(&self, dev: &Cuda, host: &impl AsView<Elem = T, Shape = S>) -> Result<()> {
        let host = host.view().as_slice();
        let _turn = dev.outside("Graph::write")?;
        let data = self.as_slice();
        if host.len() > data.len() {
            return Err(length::<S>(data.len()));
        }
        if !host.is_empty() {
            let stream = dev.stream();
            stream.context().bind_to_thread().map_err(copy_failed("cuCtxSetCurrent"))?;
            let (address, _ordered) = data.device_ptr(stream);
            // SAFETY: the tensor has as many elements at least, and the copy has ended before this returns.
            let copied = unsafe { result::memcpy_htod_async(address, host, stream.cu_stream()) };
            copied.map_err(copy_failed("cuMemcpyHtoDAsync"))?;
        }
        Ok(dev.wait()?)
    }

    /// A copy in the CPU's memory. Waits for the launches that write it.
    pub fn to_host(&self, dev: &Cuda) -> Result<Tensor<T, S>> {
        let mut host = Tensor::try_zeros()?;
        self.copy_to_host(dev, &mut host)?;
        Ok(host)
    }

    /// Copies it into an array in the CPU's memory. Waits for the launches that write it.
    pub fn copy_to_host(&self, dev: &Cuda, host: &mut impl AsViewMut<Elem = T, Shape = S>) -> Result<()> {
        let host = host.view_mut().into_mut_slice();
        let _turn = dev.outside("DeviceTensor::copy_to_host")?;
        if S::ELEMENTS > 0 {
            let data = self.as_slice().slice(..S::ELEMENTS);
            dev.stream().memcpy_dtoh(&data, host).map_err(copy_failed("cuMemcpyDtoHAsync"))?;
        }
        Ok(dev.wait()?)
    }
}

impl<T: Element, S: Shape> DeviceTensor<T, S> {
    /// Takes a slice of cudarc's, which must hold exactly the elements of the shape.
    pub fn from_slice(data: CudaSlice<T>) -> Result<Self> {
        check_length::<S>(data.len())?;
        Ok(DeviceTensor { data: Owned::new(data), shape: PhantomData })
    }

    /// The elements, row-major. A shape without elements has a slice of one, which nothing uses.
    pub fn as_slice(&self) -> &CudaSlice<T> {
        self.data.get()
    }

    /// The elements to write, row-major.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.data.get_mut().slice_mut(..S::ELEMENTS)
    }

    /// The slice. A shape without elements has a slice of one.
    ///
    /// # Errors
    /// [`CudaError::InGraph`] while a captured [`Graph`](super::Graph) uses the memory: it would go with the slice. The
    /// graph keeps it then, and the tensor is gone; [`is_in_graph`](DeviceTensor::is_in_graph) asks first.
    pub fn into_slice(self) -> Result<CudaSlice<T>> {
        Ok(self.data.into_inner().ok_or(CudaError::InGraph)?)
    }

    /// Whether a captured [`Graph`](super::Graph) uses the memory.
    pub fn is_in_graph(&self) -> bool {
        self.data.is_claimed()
    }
}

impl<'a, T: Element, S: Shape> DeviceView<'a, T, S> {
    /// Views a slice, which must hold exactly the elements of the shape. With the feature `half`, a slice of
    /// `half::f16` is a view of [`F16`].
    pub fn new<U: BitsOf<T>>(slice: &'a CudaSlice<U>) -> Result<Self> {
        DeviceView::from_view(slice.as_view())
    }

    /// Gives a view of cudarc's a shape, whose elements it must have exactly.
    pub fn from_view<U: BitsOf<T>>(data: CudaView<'a, U>) -> Result<Self> {
        check_length::<S>(data.len())?;
        // SAFETY: `BitsOf` promises that the values are valid elements of the same size.
        let data = unsafe { data.transmute(S::ELEMENTS) }.ok_or_else(|| length::<S>(data.len()))?;
        Ok(DeviceView { data, memory: None, shape: PhantomData })
    }
}

impl<'a, T: Element, S: Shape> DeviceViewMut<'a, T, S> {
    /// Views a slice, which must hold exactly the elements of the shape. With the feature `half`, a slice of
    /// `half::f16` is a view of [`F16`].
    pub fn new<U: BitsOf<T>>(slice: &'a mut CudaSlice<U>) -> Result<Self> {
        let elements = slice.len();
        check_length::<S>(elements)?;
        // SAFETY: `BitsOf` promises that the values are valid elements of the same size, and the other way round.
        let data = unsafe { slice.transmute_mut(S::ELEMENTS) }.ok_or_else(|| length::<S>(elements))?;
        Ok(DeviceViewMut { data, memory: None, shape: PhantomData })
    }

    /// Gives a view of cudarc's a shape, whose elements it must have exactly.
    pub fn from_view(data: CudaViewMut<'a, T>) -> Result<Self> {
        check_length::<S>(data.len())?;
        Ok(DeviceViewMut { data, memory: None, shape: PhantomData })
    }
}

impl<'a, T> DeviceDynView<'a, T> {
    /// Puts data and shape together. Whether they fit is checked by the call that takes the view.
    pub fn new(data: CudaView<'a, T>, shape: &'a [usize]) -> Self {
        DeviceDynView { data, shape }
    }
}

impl<'a, T> DeviceDynViewMut<'a, T> {
    /// Puts data and shape together. Whether they fit is checked by the call that takes the view.
    pub fn new(data: CudaViewMut<'a, T>, shape: &'a [usize]) -> Self {
        DeviceDynViewMut { data, shape }
    }
}

/// Something that can be read as a dense array of known element type and shape in a GPU's memory: an argument of a
/// generated function on [`Cuda`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dense array in a GPU's memory",
    note = "on `Cuda`, arguments are a `DeviceTensor`, or a `DeviceView` of a `CudaSlice` or `CudaView`; \
            `DeviceTensor::from_host` copies what is in the CPU's memory"
)]
pub trait AsDeviceView {
    /// Element type.
    type Elem: Element;
    /// Shape.
    type Shape: Shape;
    /// Borrows it.
    fn device_view(&self) -> DeviceView<'_, Self::Elem, Self::Shape>;
}

/// Something that can be written as a dense array of known element type and shape in a GPU's memory.
pub trait AsDeviceViewMut: AsDeviceView {
    /// Borrows it.
    fn device_view_mut(&mut self) -> DeviceViewMut<'_, Self::Elem, Self::Shape>;
}

impl<T: Element, S: Shape> AsDeviceView for DeviceTensor<T, S> {
    type Elem = T;
    type Shape = S;
    fn device_view(&self) -> DeviceView<'_, T, S> {
        let data = self.as_slice().slice(..S::ELEMENTS);
        DeviceView { data, memory: Some(&self.data), shape: PhantomData }
    }
}

impl<T: Element, S: Shape> AsDeviceViewMut for DeviceTensor<T, S> {
    fn device_view_mut(&mut self) -> DeviceViewMut<'_, T, S> {
        let (slice, memory) = self.data.parts();
        DeviceViewMut { data: slice.slice_mut(..S::ELEMENTS), memory: Some(memory), shape: PhantomData }
    }
}

impl<T: Element, S: Shape> AsDeviceView for DeviceView<'_, T, S> {
    type Elem = T;
    type Shape = S;
    fn device_view(&self) -> DeviceView<'_, T, S> {
        DeviceView { data: self.data.slice(..), memory: self.memory, shape: PhantomData }
    }
}

impl<T: Element, S: Shape> AsDeviceView for DeviceViewMut<'_, T, S> {
    type Elem = T;
    type Shape = S;
    fn device_view(&self) -> DeviceView<'_, T, S> {
        DeviceView { data: self.data.as_view(), memory: self.memory, shape: PhantomData }
    }
}

impl<T: Element, S: Shape> AsDeviceViewMut for DeviceViewMut<'_, T, S> {
    fn device_view_mut(&mut self) -> DeviceViewMut<'_, T, S> {
        DeviceViewMut { data: self.data.slice_mut(..), memory: self.memory, shape: PhantomData }
    }
}

impl<V: AsDeviceView + ?Sized> AsDeviceView for &V {
    type Elem = V::Elem;
    type Shape = V::Shape;
    fn device_view(&self) -> DeviceView<'_, V::Elem, V::Shape> {
        (**self).device_view()
    }
}

impl<V: AsDeviceView + ?Sized> AsDeviceView for &mut V {
    type Elem = V::Elem;
    type Shape = V::Shape;
    fn device_view(&self) -> DeviceView<'_, V::Elem, V::Shape> {
        (**self).device_view()
    }
}

impl<V: AsDeviceViewMut + ?Sized> AsDeviceViewMut for &mut V {
    fn device_view_mut(&mut self) -> DeviceViewMut<'_, V::Elem, V::Shape> {
        (**self).device_view_mut()
    }
}

impl<V: AsDeviceView + ?Sized> Input<Cuda> for V {
    type Elem = V::Elem;
    type Shape = V::Shape;
    fn arg<'a>(&'a self, dev: &'a Cuda) -> Arg<'a, Cuda> {
        let DeviceView { data, memory, .. } = self.device_view();
        Arg::of_view(dev, data, memory)
    }
}

impl<V: AsDeviceViewMut + ?Sized> Output<Cuda> for V {
    fn arg_mut<'a>(&'a mut self, dev: &'a Cuda) -> Arg<'a, Cuda> {
        let DeviceViewMut { data, memory, .. } = self.device_view_mut();
        Arg::of_view_mut(dev, data, memory)
    }
}

impl<T: Element, S: Shape> fmt::Debug for DeviceTensor<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceTensor<{}>{:?} on GPU {}", T::DTYPE, S::DIMS, self.as_slice().ordinal())
    }
}

impl<T: Element, S: Shape> fmt::Debug for DeviceView<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceView<{}>{:?} on GPU {}", T::DTYPE, S::DIMS, self.data.stream().context().ordinal())
    }
}

impl<T: Element, S: Shape> fmt::Debug for DeviceViewMut<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceViewMut<{}>{:?} on GPU {}", T::DTYPE, S::DIMS, self.data.stream().context().ordinal())
    }
}

impl<T: Element> fmt::Debug for DeviceDynView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceDynView<{}>{:?}", T::DTYPE, self.shape)
    }
}

impl<T: Element> fmt::Debug for DeviceDynViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceDynViewMut<{}>{:?}", T::DTYPE, self.shape)
    }
}
