//! What is the same for all devices: a device runs entries, and buffers are its arguments.

use crate::dispatch::{Arg, Checked, CheckedWeight, DynArg, Entry};
use crate::{AsView, AsViewMut, Cpu, Element, Result, Shape, Tensor, report::Row};
use std::fmt;

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Something that generated kernels run on: [`Cpu`], or (feature `cuda`) a CUDA stream.
///
/// Generated functions are generic over it, so one function serves every device, and a buffer of another kind of
/// device does not compile. Code that is generic over it as well keeps its arrays in [`Device::Tensor`]s:
///
/// ```
/// use kernel_gen_runtime::{Cpu, D1, Device, Result, Tensor};
///
/// fn round_trip<Dev: Device>(dev: &Dev) -> Result<()> {
///     let x = dev.upload(&[1.0f32, 2.0, 3.0])?;
///     let mut y = dev.zeros::<f32, D1<3>>()?;
///     // kernels::double(dev, &x, &mut y)?;
///     assert_eq!(dev.download(&x)?.as_slice(), [1.0, 2.0, 3.0]);
///     Ok(())
/// }
/// round_trip(&Cpu::new())?;
/// # Ok::<(), kernel_gen_runtime::Error>(())
/// ```
pub trait Device: sealed::Sealed + fmt::Debug + Send + Sync + Sized + 'static {
    /// An owned array in the device's memory.
    type Tensor<T: Element, S: Shape>: Input<Self, Elem = T, Shape = S> + Output<Self> + fmt::Debug + Send + Sync;
    /// A borrowed array whose shape is known at run time, for the `_dyn` forms.
    type DynView<'a, T: Element>
    where
        Self: 'a;
    /// A borrowed array to write to whose shape is known at run time.
    type DynViewMut<'a, T: Element>
    where
        Self: 'a;
    /// What a launch needs of a borrowed buffer.
    #[doc(hidden)]
    type Pointer<'a>
    where
        Self: 'a;
    /// A weight in the layout that a kernel wants.
    #[doc(hidden)]
    type Packed: fmt::Debug + Send + Sync;

    /// An array of zeros in the device's memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the memory cannot be allocated, also of `upload` and `download`.
    fn zeros<T: Element, S: Shape>(&self) -> Result<Self::Tensor<T, S>>;
    /// A copy in the device's memory of an array in the CPU's.
    fn upload<T: Element, S: Shape>(&self, host: &impl AsView<Elem = T, Shape = S>) -> Result<Self::Tensor<T, S>>;
    /// The same array in the device's memory; on a CPU nothing is copied.
    #[doc(hidden)]
    fn take<T: Element, S: Shape>(&self, host: Tensor<T, S>) -> Result<Self::Tensor<T, S>>;
    /// A copy in the CPU's memory of an array in the device's. Waits for the launches that write it.
    fn download<T: Element, S: Shape>(&self, tensor: &Self::Tensor<T, S>) -> Result<Tensor<T, S>>;
    /// Waits until everything that was launched has ended.
    fn finish(&self) -> Result<()>;

    /// Runs an entry.
    #[doc(hidden)]
    fn launch(&self, launch: Checked<'_, '_, Self>) -> Result<()>;
    /// Packs the weight of an entry.
    #[doc(hidden)]
    fn pack(&self, weight: CheckedWeight<'_, Self>) -> Result<Self::Packed>;
    /// A packed weight as that of another entry, if that takes it in the same form.
    #[doc(hidden)]
    fn share(&self, packed: &Self::Packed, entry: &'static Entry) -> Option<Self::Packed>;
    /// A packed weight as an argument.
    #[doc(hidden)]
    fn packed_arg<'a>(&'a self, packed: &'a Self::Packed) -> Arg<'a, Self>;
    /// The pointer moved forward by `bytes`, within its buffer.
    #[doc(hidden)]
    fn advance<'a>(pointer: Self::Pointer<'a>, bytes: usize) -> Self::Pointer<'a>
    where
        Self: 'a;
    /// The same pointer, for as long as it is lent.
    #[doc(hidden)]
    fn lend<'a: 'b, 'b>(pointer: &'b Self::Pointer<'a>) -> Self::Pointer<'b>
    where
        Self: 'a;
    /// A view as an argument.
    #[doc(hidden)]
    fn read_arg<'a, T: Element>(&'a self, view: Self::DynView<'a, T>) -> Result<DynArg<'a, Self>>;
    /// A view to write to as an argument.
    #[doc(hidden)]
    fn write_arg<'a, T: Element>(&'a self, view: Self::DynViewMut<'a, T>) -> Result<DynArg<'a, Self>>;
    /// Devices of one thread each, one for each of this one's threads, which run `most` images or fewer at the same time: none where
    /// that is fewer than there are threads, or one after the other is as fast.
    #[doc(hidden)]
    fn apart(&self, most: usize) -> Vec<Self> {
        let _ = most;
        vec![]
    }
    /// Runs `body(at, device, image)` for images from the first on, several at a time, each on the device of its place among
    /// those that [`Device::apart`] made; what has the same place runs one after the other. Says how many it ran: a
    /// multiple of the number of threads, so that none waits.
    #[doc(hidden)]
    fn run_apart(&self, apart: &[Self], images: usize, body: &(dyn Fn(usize, &Self, usize) + Sync)) -> usize {
        let _ = (apart, images, body);
        0
    }
    /// Does what the first launch of an entry would do once.
    #[doc(hidden)]
    fn preload(&self, entry: &'static Entry) -> Result<()>;
    /// Whether this is code that the device can run.
    #[doc(hidden)]
    fn runs(&self, row: &Row) -> bool;
}

/// A buffer that a device can read as a dense array of known element type and shape: an argument of a generated
/// function. For [`Cpu`] that is everything that is [`AsView`].
pub trait Input<D: Device> {
    /// Element type.
    type Elem: Element;
    /// Shape.
    type Shape: Shape;
    /// Lends it to a launch.
    #[doc(hidden)]
    fn arg<'a>(&'a self, dev: &'a D) -> Arg<'a, D>;
}

/// A buffer that a device can write as a dense array of known element type and shape. For [`Cpu`] that is everything
/// that is [`AsViewMut`].
pub trait Output<D: Device>: Input<D> {
    /// Lends it to a launch.
    #[doc(hidden)]
    fn arg_mut<'a>(&'a mut self, dev: &'a D) -> Arg<'a, D>;
}

impl<V: AsView + ?Sized> Input<Cpu> for V {
    type Elem = V::Elem;
    type Shape = V::Shape;
    fn arg<'a>(&'a self, _: &'a Cpu) -> Arg<'a, Cpu> {
        Arg::read(self.view().as_slice())
    }
}

impl<V: AsViewMut + ?Sized> Output<Cpu> for V {
    fn arg_mut<'a>(&'a mut self, _: &'a Cpu) -> Arg<'a, Cpu> {
        Arg::write(self.view_mut().into_mut_slice())
    }
}
