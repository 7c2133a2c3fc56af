//! Launches captured in a CUDA graph.

use super::generated::{equal, product, value};
use crate::kernels;
use crate::suite::{Check, Checked, Outcome, ensure, passed};
use kernel_gen_runtime::cuda::cudarc::driver::sys;
use kernel_gen_runtime::cuda::{DeviceTensor, Overlap};
use kernel_gen_runtime::{Cuda, CudaError, D1, D2, Device, Error, Result, Tensor};

pub(super) fn checks() -> Vec<Check> {
    vec![
        #[cfg(feature = "hand")]
        Check { name: "1000 launches in a graph, replayed", run: thousand },
        #[cfg(feature = "hand")]
        Check { name: "code that is not loaded cannot be captured", run: cold },
        Check { name: "a generated kernel in a graph", run: generated },
        Check { name: "a recorded graph takes new inputs", run: recorded },
        Check { name: "launches that begin early", run: early },
        Check { name: "captures that are refused", run: refused },
    ]
}

/// A device on a stream of its own, which can be captured: the default stream cannot.
pub(super) fn on_a_stream(dev: &Cuda) -> std::result::Result<Cuda, Box<dyn std::error::Error>> {
    Ok(Cuda::from_stream(dev.stream().context().new_stream()?)?)
}

/// Captures what `launch` launches, and replays it.
fn replay(
    dev: &Cuda,
    times: usize,
    launch: impl FnOnce() -> Result<()>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
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

pub(super) type Square = DeviceTensor<f32, D2<64, 64>>;

/// Products one behind the other, each with the one before it as its left operand.
pub(super) struct Chain {
    pub(super) x: Square,
    pub(super) weight: Square,
    pub(super) bias: DeviceTensor<f32, D1<64>>,
    /// What each product writes; those after the first take the one before.
    pub(super) made: Vec<Square>,
    /// Whether every second product takes what the one before made as its weight.
    crossed: bool,
}

/// Products in a chain.
pub(super) const LENGTH: usize = 40;

/// A permutation of columns, so that numbers stay small and exact.
fn permutation() -> Tensor<f32, D2<64, 64>> {
    Tensor::from_fn(|i| if i / 64 * 5 % 64 == i % 64 { 1.0 } else { 0.0 })
}

impl Chain {
    pub(super) fn new(dev: &Cuda, crossed: bool) -> Result<Chain> {
        let made = (0..LENGTH).map(|_| dev.zeros()).collect::<Result<_>>()?;
        let bias = Tensor::<f32, D1<64>>::from_fn(|i| if i % 16 == 0 { 1.0 } else { 0.0 });
        Ok(Chain { x: dev.zeros()?, weight: dev.upload(&permutation())?, bias: dev.upload(&bias)?, made, crossed })
    }

    pub(super) fn run(dev: &Cuda, c: &mut Chain) -> Result<()> {
        for i in 0..LENGTH {
            let (before, here) = c.made.split_at_mut(i);
            let last = before.last().unwrap_or(&c.x);
            match c.crossed && i % 2 == 1 {
                // The weight is what the launch in front writes.
                true => kernels::product(dev, &c.weight, last, &c.bias, &mut here[0])?,
                false => kernels::product(dev, last, &c.weight, &c.bias, &mut here[0])?,
            }
        }
        Ok(())
    }

    /// What the last product is, by plain loops.
    pub(super) fn expected(x: &[f32], crossed: bool) -> Vec<f32> {
        let (weight, mut last) = (permutation(), x.to_vec());
        let bias: Vec<f32> = (0..64).map(|i| if i % 16 == 0 { 1.0 } else { 0.0 }).collect();
        for i in 0..LENGTH {
            let (a, b) =
                if crossed && i % 2 == 1 { (weight.as_slice(), &last[..]) } else { (&last[..], weight.as_slice()) };
            last = product(a, b, &bias, [64, 64, 64]);
        }
        last
    }
}

fn recorded(dev: &Cuda) -> Checked {
    let dev = on_a_stream(dev)?;
    kernels::preload(&dev)?;
    let mut graph = dev.capture(Chain::new(&dev, false)?, Chain::run)?;
    for round in 0..3 {
        let x = Tensor::<f32, D2<64, 64>>::from_fn(|i| value(i + round));
        graph.write(|c| &c.x, &x)?;
        graph.launch()?;
        let last = dev.download(&graph.buffers().made[LENGTH - 1])?;
        equal("the last product", last.as_slice(), &Chain::expected(x.as_slice(), false))?;
    }
    let detail = format!("{graph:?}");
    let chain = graph.into_buffers()?;
    equal("the buffers that come back", dev.download(&chain.weight)?.as_slice(), permutation().as_slice())?;
    Ok(Outcome::Passed(detail))
}

fn early(dev: &Cuda) -> Checked {
    let dev = on_a_stream(dev)?;
    kernels::preload(&dev)?;
    let x = Tensor::<f32, D2<64, 64>>::from_fn(value);
    let mut details = vec![];
    for crossed in [false, true] {
        let expected = Chain::expected(x.as_slice(), crossed);
        for overlap in [Overlap::Never, Overlap::Allowed] {
            let mut graph = dev.capture_with(overlap, Chain::new(&dev, crossed)?, Chain::run)?;
            graph.write(|c| &c.x, &x)?;
            for _ in 0..50 {
                graph.launch()?;
                let last = dev.download(&graph.buffers().made[LENGTH - 1])?;
                equal("the last product", last.as_slice(), &expected)?;
            }
            let none = graph.overlapped() == 0;
            ensure(none || overlap == Overlap::Allowed, || format!("{graph:?} although nothing may overlap"))?;
            details.push(format!("{} of {}", graph.overlapped(), graph.launches()));
        }
    }
    Ok(Outcome::Passed(format!("early: {}", details.join(", "))))
}

fn refused(dev: &Cuda) -> Checked {
    kernels::preload(dev)?;
    let refusal = |result: Result<kernel_gen_runtime::cuda::Graph<Chain>>| match result {
        Err(Error::Cuda(error)) => Ok(error),
        other => Err(format!("it gave {other:?}")),
    };
    let default = refusal(dev.capture(Chain::new(dev, false)?, Chain::run))?;
    ensure(default == CudaError::CaptureDefaultStream, || default.to_string())?;
    let dev = &on_a_stream(dev)?;
    let empty = refusal(dev.capture(Chain::new(dev, false)?, |_, _| Ok(())))?;
    ensure(empty == CudaError::EmptyCapture, || empty.to_string())?;
    let allocates = refusal(dev.capture(Chain::new(dev, false)?, |dev, chain| {
        let made: Square = dev.zeros()?;
        kernels::product(dev, &chain.x, &made, &chain.bias, &mut chain.made[0])
    }))?;
    ensure(allocates == CudaError::NotCapturable, || allocates.to_string())?;
    // The device is of use after all of that.
    passed(recorded(dev).map(|_| ()))
}
