//! What is refused, and what does nothing.

use super::generated::equal;
use crate::kernels;
use crate::suite::{Check, Checked, Outcome, ensure, passed};
use kernel_gen_runtime::cuda::cudarc::driver::{CudaContext, sys};
use kernel_gen_runtime::cuda::{DeviceDynView, DeviceDynViewMut, DeviceTensor, DeviceView};
use kernel_gen_runtime::{Cuda, CudaError, D1, D2, Device, Error, Tensor};

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check { name: "shapes at run time", run: dynamic },
        Check { name: "an empty batch does nothing", run: empty_batch },
        Check { name: "a slice of another length is no view", run: wrong_length },
        Check { name: "a view that is not aligned is refused", run: misaligned },
        Check { name: "a buffer of another context is refused", run: foreign },
        Check { name: "a device that does not exist is refused", run: no_such_device },
        Check { name: "more memory than there is is an error", run: out_of_memory },
    ]
}

/// The text of the error that a call should have given.
fn refused(result: Result<(), Error>, fits: impl FnOnce(&Error) -> bool) -> Checked {
    match result {
        Err(error) if fits(&error) => Ok(Outcome::Passed(error.to_string().lines().next().unwrap_or("").into())),
        other => Err(format!("it gave {other:?}").into()),
    }
}

fn dynamic(dev: &Cuda) -> Checked {
    let a = dev.upload(&Tensor::<f32, D2<6, 5>>::from_fn(|i| i as f32))?;
    let b = dev.upload(&Tensor::<f32, D2<5, 7>>::from_fn(|i| (i % 3) as f32))?;
    let bias = dev.zeros::<f32, D1<7>>()?;
    let mut c = dev.zeros::<f32, D2<6, 7>>()?;
    kernels::product(dev, &a, &b, &bias, &mut c)?;
    let product = dev.download(&c)?;
    let bias_view = || DeviceDynView::new(bias.as_slice().as_view(), &[7]);
    let b_view = || DeviceDynView::new(b.as_slice().as_view(), &[5, 7]);
    let a_view = |shape| DeviceDynView::new(a.as_slice().as_view(), shape);
    let mut c = dev.zeros::<f32, D2<6, 7>>()?;
    let c_view = DeviceDynViewMut::new(c.as_view_mut(), &[6, 7]);
    kernels::product_dyn(dev, a_view(&[6, 5]), b_view(), bias_view(), c_view)?;
    equal("dynamic", dev.download(&c)?.as_slice(), product.as_slice())?;
    let c_view = DeviceDynViewMut::new(c.as_view_mut(), &[6, 7]);
    let wrong = kernels::product_dyn(dev, a_view(&[5, 6]), b_view(), bias_view(), c_view);
    refused(wrong, |e| matches!(e, Error::NoWorkload { .. }))
}

fn empty_batch(dev: &Cuda) -> Checked {
    let w = dev.zeros::<f32, kernel_gen_runtime::D4<4, 3, 3, 3>>()?;
    let bias = dev.zeros::<f32, D1<4>>()?;
    let (x, mut y) = (dev.zeros::<f32, D1<1>>()?, dev.upload(&[7.0f32])?);
    kernels::conv_dyn(
        dev,
        DeviceDynView::new(x.as_slice().slice(..0), &[0, 3, 8, 8]),
        DeviceDynView::new(w.as_slice().as_view(), &[4, 3, 3, 3]),
        DeviceDynView::new(bias.as_slice().as_view(), &[4]),
        DeviceDynViewMut::new(y.as_view_mut().slice_mut(..0), &[0, 4, 8, 8]),
    )?;
    passed(equal("what lies behind the empty output", dev.download(&y)?.as_slice(), &[7.0]))
}

fn wrong_length(dev: &Cuda) -> Checked {
    let x = dev.zeros::<f32, D1<29>>()?;
    let view = DeviceView::<f32, D2<6, 5>>::new(x.as_slice()).map(|_| ());
    refused(view, |e| matches!(e, Error::Length { .. }))
}

fn misaligned(dev: &Cuda) -> Checked {
    let a = dev.zeros::<f32, D1<31>>()?;
    let (b, bias) = (dev.zeros::<f32, D2<5, 7>>()?, dev.zeros::<f32, D1<7>>()?);
    let mut c = dev.zeros::<f32, D2<6, 7>>()?;
    let shifted = DeviceView::<f32, D2<6, 5>>::from_view(a.as_slice().slice(1..))?;
    refused(kernels::product(dev, &shifted, &b, &bias, &mut c), |e| {
        matches!(e, Error::Cuda(CudaError::Misaligned { param: "a", .. }))
    })
}

/// A second context on the same GPU: its buffers are as foreign as those of a second GPU.
fn foreign(dev: &Cuda) -> Checked {
    let (driver, _) = Cuda::probe()?.driver;
    if driver < 13 {
        return Ok(Outcome::Skipped("needs a driver with cuCtxCreate_v4".into()));
    }
    let device = dev.stream().context().cu_device();
    let mut raw = std::ptr::null_mut();
    // SAFETY: no parameters and no flags; the context is given to cudarc, which destroys it.
    let context = unsafe {
        sys::cuCtxCreate_v4(&mut raw, std::ptr::null_mut(), 0, device).result()?;
        CudaContext::from_raw_context(0, device, raw)?
    };
    let other = Cuda::from_stream(context.default_stream())?;
    let a = DeviceTensor::<f32, D2<6, 5>>::zeros(&other)?;
    let (b, bias) = (dev.zeros::<f32, D2<5, 7>>()?, dev.zeros::<f32, D1<7>>()?);
    let mut c = dev.zeros::<f32, D2<6, 7>>()?;
    let error = kernels::product(dev, &a, &b, &bias, &mut c);
    ensure(dev.synchronize().is_ok(), || "the refusal left an error behind".into())?;
    // In its own context the same code is loaded a second time, and runs.
    let (b, bias) = (other.zeros::<f32, D2<5, 7>>()?, other.upload(&[1.0f32; 7])?);
    let mut c = other.zeros::<f32, D2<6, 7>>()?;
    kernels::product(&other, &a, &b, &bias, &mut c)?;
    equal("in the other context", other.download(&c)?.as_slice(), &[1.0; 42])?;
    refused(error, |e| matches!(e, Error::Cuda(CudaError::ForeignBuffer { param: "a", .. })))
}

fn no_such_device(_: &Cuda) -> Checked {
    refused(Cuda::new(1000).map(|_| ()).map_err(Error::from), |e| {
        matches!(e, Error::Cuda(CudaError::NoSuchDevice { ordinal: 1000, .. }))
    })
}

/// The device allocates as before afterwards.
fn out_of_memory(dev: &Cuda) -> Checked {
    let error = dev.zeros::<f32, D1<{ usize::MAX / 2 }>>().err();
    ensure(error == Some(Error::OutOfMemory { bytes: usize::MAX }), || format!("it gave {error:?}"))?;
    let refused =
        refused(dev.zeros::<f32, D1<{ 1 << 44 }>>().map(drop), |e| *e == Error::OutOfMemory { bytes: 1 << 46 });
    equal("new zeros", dev.download(&dev.zeros::<f32, D1<3>>()?)?.as_slice(), &[0.0; 3])?;
    refused
}
