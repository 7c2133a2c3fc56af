//! What becomes of a capture in which something else happens than launches on its device.

use super::generated::{equal, value};
use super::graph::{Chain, LENGTH, on_a_stream};
use crate::kernels;
use crate::suite::{Check, Checked, Outcome, ensure, passed};
use kernel_gen_runtime::cuda::cudarc::driver::result;
use kernel_gen_runtime::cuda::{Graph, Overlap};
use kernel_gen_runtime::{Cuda, CudaError, D2, Device, Error, Result, Tensor};

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check { name: "captures keep others out", run: others },
        Check { name: "a copy in a capture", run: foreign },
        Check { name: "a graph dropped in a capture", run: dropped },
        #[cfg(feature = "hand")]
        Check { name: "no early launch within a program", run: never },
    ]
}

/// A chain of products, and what has no place in its capture.
struct Odd {
    chain: Chain,
    /// A device of the same stream, or of another.
    other: Cuda,
    graph: Option<Graph<Chain>>,
    /// Where the weight lies.
    weight: u64,
}

impl Odd {
    fn new(dev: &Cuda, other: Cuda) -> Result<Odd> {
        use kernel_gen_runtime::cuda::cudarc::driver::DevicePtr;
        let chain = Chain::new(dev, false)?;
        let weight = chain.weight.as_slice().device_ptr(dev.stream()).0;
        Ok(Odd { chain, other, graph: None, weight })
    }
}

pub(super) fn refusal<T>(result: Result<T>) -> std::result::Result<CudaError, String> {
    match result {
        Err(Error::Cuda(error)) => Ok(error),
        Err(other) => Err(format!("it failed with {other}")),
        Ok(_) => Err("it was captured".into()),
    }
}

fn others(dev: &Cuda) -> Checked {
    let dev = &on_a_stream(dev)?;
    kernels::preload(dev)?;
    let elsewhere = |other: Cuda| -> std::result::Result<CudaError, Box<dyn std::error::Error>> {
        Ok(refusal(dev.capture(Odd::new(dev, other)?, |_, odd| Chain::run(&odd.other, &mut odd.chain)))?)
    };
    for other in [Cuda::from_stream(dev.stream().clone())?, on_a_stream(dev)?] {
        let error = elsewhere(other)?;
        ensure(matches!(error, CudaError::LaunchElsewhere { .. }), || format!("another device gave {error}"))?;
    }
    let thread = refusal(dev.capture(Chain::new(dev, false)?, |dev, chain| {
        std::thread::scope(|s| s.spawn(|| Chain::run(dev, chain)).join().unwrap_or(Ok(())))
    }))?;
    ensure(matches!(thread, CudaError::Captured { .. }), || format!("another thread gave {thread}"))?;
    let mut odd = Odd::new(dev, dev.clone())?;
    odd.graph = Some(dev.capture(Chain::new(dev, false)?, Chain::run)?);
    let replayed = refusal(dev.capture(odd, |_, odd| odd.graph.as_mut().map_or(Ok(()), Graph::launch)))?;
    ensure(replayed == CudaError::NotCapturable, || format!("a replay gave {replayed}"))?;
    let waited = refusal(dev.capture(Chain::new(dev, false)?, |dev, _| Ok(dev.synchronize()?)))?;
    ensure(waited == CudaError::NotCapturable, || format!("waiting gave {waited}"))?;
    // The device is of use after all of that.
    let mut graph = dev.capture(Chain::new(dev, false)?, Chain::run)?;
    graph.launch()?;
    dev.synchronize()?;
    Ok(Outcome::Passed(thread.to_string()))
}

/// A weight that is cleared between two launches: the second takes the cleared one, so it does not begin early.
fn foreign(dev: &Cuda) -> Checked {
    let dev = &on_a_stream(dev)?;
    kernels::preload(dev)?;
    let run: fn(&Cuda, &mut Odd) -> Result<()> = |dev, odd| {
        Chain::run(dev, &mut odd.chain)?;
        // SAFETY: the weight is as large, and used on this stream only.
        let cleared = unsafe { result::memset_d8_async(odd.weight, 0, 4 * 64 * 64, dev.stream().cu_stream()) };
        cleared.map_err(|e| CudaError::Driver { call: "cuMemsetD8Async", code: e.0 as u32, name: e.to_string() })?;
        let chain = &mut odd.chain;
        kernels::product(dev, &chain.x, &chain.weight, &chain.bias, &mut chain.made[LENGTH - 1])
    };
    let refused = refusal(dev.capture(Odd::new(dev, dev.clone())?, run))?;
    ensure(refused == CudaError::ForeignNodes { nodes: 1 }, || format!("it gave {refused}"))?;
    // SAFETY: the weight that is cleared is one of the graph's buffers, and nobody takes it out.
    let mut graph = unsafe { dev.capture_unowned(Overlap::Allowed, Odd::new(dev, dev.clone())?, run)? };
    let plain = dev.capture(Chain::new(dev, false)?, Chain::run)?;
    graph.write(|odd| &odd.chain.x, &Tensor::<f32, D2<64, 64>>::from_fn(value))?;
    graph.launch()?;
    let last = dev.download(&graph.buffers().chain.made[LENGTH - 1])?;
    let bias = dev.download(&graph.buffers().chain.bias)?;
    let expected: Vec<f32> = (0..64 * 64).map(|i| bias.as_slice()[i % 64].max(0.0)).collect();
    equal("a product with a cleared weight", last.as_slice(), &expected)?;
    let early = [graph.overlapped(), plain.overlapped()];
    ensure(early[0] == early[1], || format!("{early:?} launches begin early, with and without the cleared weight"))?;
    Ok(Outcome::Passed(format!("{graph:?}")))
}

/// The driver frees no graph while one is captured: what is dropped then is kept for good, and the capture is refused.
fn dropped(dev: &Cuda) -> Checked {
    let dev = &on_a_stream(dev)?;
    kernels::preload(dev)?;
    let mut odd = Odd::new(dev, dev.clone())?;
    let mut inner = dev.capture(Chain::new(dev, false)?, Chain::run)?;
    inner.launch()?;
    odd.graph = Some(inner);
    let refused = refusal(dev.capture(odd, |dev, odd| {
        odd.graph = None;
        Chain::run(dev, &mut odd.chain)
    }))?;
    ensure(refused == CudaError::NotCapturable, || format!("it gave {refused}"))?;
    // The device is of use after that.
    let mut graph = dev.capture(Chain::new(dev, false)?, Chain::run)?;
    let x = Tensor::<f32, D2<64, 64>>::from_fn(value);
    graph.write(|chain| &chain.x, &x)?;
    graph.launch()?;
    let last = dev.download(&graph.buffers().made[LENGTH - 1])?;
    passed(equal("the last product", last.as_slice(), &Chain::expected(x.as_slice(), false)))
}

#[cfg(feature = "hand")]
fn never(dev: &Cuda) -> Checked {
    use crate::hand;
    use kernel_gen_runtime::{D1, cuda::DeviceTensor};
    type Pair = (DeviceTensor<f32, D1<1000>>, DeviceTensor<f32, D1<1000>>);
    if dev.compute_capability() < (9, 0) {
        return Ok(Outcome::Skipped("needs 9.0".into()));
    }
    let dev = &on_a_stream(dev)?;
    dev.preload(&hand::PROGRAMMATIC)?;
    let mut details = vec![];
    for (overlap, early) in [(Overlap::Never, 0), (Overlap::Allowed, 1)] {
        let x = dev.upload(&Tensor::<f32, D1<1000>>::from_fn(|i| i as f32))?;
        let pair: Pair = (x, dev.zeros()?);
        let mut graph = dev.capture_with(overlap, pair, |dev, (x, y)| hand::map(&hand::PROGRAMMATIC, dev, &*x, y))?;
        graph.launch()?;
        let expected: Vec<f32> = (0..1000).rev().map(|i| 0.5 * i as f32).collect();
        equal("halved and reversed", dev.download(&graph.buffers().1)?.as_slice(), &expected)?;
        let right = graph.launches() == 2 && graph.overlapped() == early;
        ensure(right, || format!("{overlap:?} gave {graph:?}"))?;
        details.push(format!("{overlap:?}: {}", graph.overlapped()));
    }
    Ok(Outcome::Passed(details.join(", ")))
}
