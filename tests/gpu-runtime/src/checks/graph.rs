//! Launches captured in a CUDA graph.

use super::generated::{equal, product, value};
use crate::kernels;
use crate::suite::{Check, Checked, Outcome};
use kernel_gen_runtime::cuda::cudarc::driver::sys;
use kernel_gen_runtime::{Cuda, D1, D2, Device, Tensor};

pub(super) fn checks() -> Vec<Check> {
    vec![
        #[cfg(feature = "hand")]
        Check { name: "1000 launches in a graph, replayed", run: thousand },
        #[cfg(feature = "hand")]
        Check { name: "code that is not loaded cannot be captured", run: cold },
        Check { name: "a generated kernel in a graph", run: generated },
    ]
}

/// A device on a stream of its own, which can be captured: the default stream cannot.
fn on_a_stream(dev: &Cuda) -> Result<Cuda, Box<dyn std::error::Error>> {
    Ok(Cuda::from_stream(dev.stream().context().new_stream()?)?)
}

/// Captures what `launch` launches, and replays it.
fn replay(
    dev: &Cuda,
    times: usize,
    launch: impl FnOnce() -> kernel_gen_runtime::Result<()>,
) -> Result<(), Box<dyn std::error::Error>> {
    dev.stream().begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let launched = launch();
    // The capture has to end even if a launch failed.
    let graph =
        dev.stream().end_capture(sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    launched?;
    let graph = graph?.ok_or("nothing was captured")?;
    for _ in 0..times {
        graph.launch()?;
    }
    Ok(dev.synchronize()?)
}

#[cfg(feature = "hand")]
fn thousand(dev: &Cuda) -> Checked {
    use crate::hand;
    let dev = on_a_stream(dev)?;
    let x = dev.upload(&Tensor::<f32, D1<1000>>::from_fn(value))?;
    let mut y = dev.zeros::<f32, D1<1000>>()?;
    dev.preload(&hand::INCREMENT)?;
    let mut during = 0;
    replay(&dev, 3, || {
        let start = crate::counting::allocations();
        (0..1000).try_for_each(|_| hand::increment(&dev, &x, &mut y))?;
        during = crate::counting::allocations() - start;
        Ok(())
    })?;
    let expected: Vec<f32> = (0..1000).map(|i| 3000.0 * value(i)).collect();
    equal("after three replays", dev.download(&y)?.as_slice(), &expected)?;
    crate::suite::ensure(during == 0, || format!("{during} heap allocations while capturing"))?;
    Ok(Outcome::Passed("3 replays, 3000 launches, no heap allocation".into()))
}

#[cfg(feature = "hand")]
fn cold(dev: &Cuda) -> Checked {
    use crate::hand;
    use kernel_gen_runtime::{CudaError, Error};
    let dev = on_a_stream(dev)?;
    let x = dev.upload(&Tensor::<f32, D1<1000>>::from_fn(value))?;
    let mut y = dev.zeros::<f32, D1<1000>>()?;
    let mut refused = None;
    replay(&dev, 0, || {
        refused = hand::map(&hand::COLD, &dev, &x, &mut y).err();
        // The capture goes on: what is loaded can still be launched.
        Ok(())
    })?;
    dev.preload(&hand::COLD)?;
    replay(&dev, 1, || hand::map(&hand::COLD, &dev, &x, &mut y))?;
    equal("once preloaded", dev.download(&y)?.as_slice(), &(0..1000).map(value).collect::<Vec<_>>())?;
    match refused {
        Some(error @ Error::Cuda(CudaError::ColdCapture { .. })) => Ok(Outcome::Passed(error.to_string())),
        other => Err(format!("it gave {other:?}").into()),
    }
}

fn generated(dev: &Cuda) -> Checked {
    let dev = on_a_stream(dev)?;
    kernels::preload(&dev)?;
    let (a, b) = (Tensor::<f32, D2<64, 64>>::from_fn(value), Tensor::<f32, D2<64, 64>>::from_fn(|i| value(i + 1)));
    let bias = Tensor::<f32, D1<64>>::from_fn(value);
    let expected = product(a.as_slice(), b.as_slice(), bias.as_slice(), [64, 64, 64]);
    let (a, b, bias) = (dev.upload(&a)?, dev.upload(&b)?, dev.upload(&bias)?);
    let mut c = dev.zeros::<f32, D2<64, 64>>()?;
    replay(&dev, 2, || kernels::product(&dev, &a, &b, &bias, &mut c))?;
    equal("replayed", dev.download(&c)?.as_slice(), &expected)?;
    Ok(Outcome::Passed(String::new()))
}
