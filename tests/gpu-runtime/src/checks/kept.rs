//! The memory that a graph keeps when its tensors are dropped, and the arguments that it refuses because it cannot keep theirs.

use super::capture::refusal;
use super::generated::{equal, product, value};
use super::graph::{Chain, LENGTH, Square, on_a_stream};
use crate::kernels;
use crate::suite::{Check, Checked, Outcome, ensure, passed};
use kernel_gen_runtime::cuda::cudarc::driver::{CudaSlice, DevicePtr};
use kernel_gen_runtime::cuda::{DeviceTensor, DeviceView, DeviceViewMut, Overlap};
use kernel_gen_runtime::{Cuda, CudaError, D1, D2, Device, Result, Tensor};
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check { name: "a graph keeps what is taken out of it", run: taken },
        Check { name: "a graph keeps a packed weight", run: packed },
        Check { name: "a graph of views has to be asked for", run: views },
        Check { name: "a slice that a graph uses is not given away", run: given_away },
    ]
}

/// Buffers that safe code can free while a graph uses them, were they not kept.
struct Loose {
    x: Square,
    bias: DeviceTensor<f32, D1<64>>,
    /// Can be taken out of the graph's buffers.
    weight: RefCell<Option<Square>>,
    /// Is replaced while the capture goes on.
    replaced: Square,
    spare: Option<Square>,
    last: RefCell<Option<Square>>,
}

/// A buffer outside of the graph's: what the first product writes and the second reads.
static OUTSIDE: Mutex<Option<Square>> = Mutex::new(None);

impl Loose {
    fn run(dev: &Cuda, b: &mut Loose) -> Result<()> {
        let mut outside = OUTSIDE.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(middle), Some(weight)) = (outside.as_mut(), b.weight.get_mut()) else { return Ok(()) };
        let Some(last) = b.last.get_mut() else { return Ok(()) };
        kernels::product(dev, &b.x, &*weight, &b.bias, middle)?;
        kernels::product(dev, &*middle, &b.replaced, &b.bias, last)?;
        if let Some(spare) = b.spare.take() {
            b.replaced = spare;
        }
        Ok(())
    }
}

fn square(of: impl Fn(usize) -> f32) -> Tensor<f32, D2<64, 64>> {
    Tensor::from_fn(of)
}

/// Where a buffer lies.
fn address(tensor: &Square) -> u64 {
    tensor.as_slice().device_ptr(tensor.as_slice().stream()).0
}

/// As many buffers as find memory that was freed before, all of sevens.
fn others(dev: &Cuda) -> Result<Vec<Square>> {
    (0..64).map(|_| dev.upload(&square(|_| 7.0))).collect()
}

fn taken(dev: &Cuda) -> Checked {
    // Buffers of another stream are freed at once, also while this one is captured.
    let (dev, other) = (on_a_stream(dev)?, on_a_stream(dev)?);
    kernels::preload(&dev)?;
    let (x, first, second) = (square(value), square(|i| value(i * 3 + 1) / 2.0), square(|i| value(i + 5) / 2.0));
    let bias = Tensor::<f32, D1<64>>::from_fn(value);
    *OUTSIDE.lock().unwrap_or_else(PoisonError::into_inner) = Some(other.zeros()?);
    let buffers = Loose {
        x: other.zeros()?,
        bias: other.upload(&bias)?,
        weight: RefCell::new(Some(other.upload(&first)?)),
        replaced: other.upload(&second)?,
        spare: Some(other.zeros()?),
        last: RefCell::new(Some(other.zeros()?)),
    };
    let replaced = address(&buffers.replaced);
    let mut graph = dev.capture(buffers, Loose::run)?;
    let weight = graph.buffers().weight.take().ok_or("the weight is gone")?;
    let last = graph.buffers().last.take().ok_or("the last buffer is gone")?;
    let middle = OUTSIDE.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or("the middle is gone")?;
    let used = [replaced, address(&weight), address(&middle), address(&last)];
    drop((weight, middle));
    let others = others(&other)?;
    let again = others.iter().filter(|o| used.contains(&address(o))).count();
    ensure(again == 0, || format!("{again} buffers of the graph were freed and handed out again"))?;
    let step = |a: &[f32], b: &Tensor<f32, D2<64, 64>>| product(a, b.as_slice(), bias.as_slice(), [64, 64, 64]);
    for round in 0..3 {
        let x = square(|i| x.as_slice()[(i + round) % x.as_slice().len()]);
        graph.write(|b| &b.x, &x)?;
        graph.launch()?;
        equal("the last product", dev.download(&last)?.as_slice(), &step(&step(x.as_slice(), &first), &second))?;
        for other_buffer in &others {
            equal("a buffer that is not the graph's", other.download(other_buffer)?.as_slice(), &[7.0; 64 * 64])?;
        }
    }
    let kept = last.is_in_graph();
    drop(graph);
    ensure(kept && !last.is_in_graph(), || "the graph keeps a buffer as long as it lives, and no longer".into())?;
    ensure(last.into_slice()?.len() == 64 * 64, || "the slice has another length".into())?;
    Ok(Outcome::Passed(format!("{} other buffers untouched", others.len())))
}

fn packed(dev: &Cuda) -> Checked {
    type Small = (DeviceTensor<f32, D2<6, 5>>, DeviceTensor<f32, D1<7>>, DeviceTensor<f32, D2<6, 7>>);
    let (dev, other) = (on_a_stream(dev)?, on_a_stream(dev)?);
    kernels::preload(&dev)?;
    let (a, b) = (Tensor::<f32, D2<6, 5>>::from_fn(value), Tensor::<f32, D2<5, 7>>::from_fn(|i| value(i + 3)));
    let bias: [f32; 7] = std::array::from_fn(|i| value(i + 1));
    let weight = kernels::small::pack_weight(&other, &other.upload(&b)?)?;
    other.synchronize()?;
    let small: Small = (dev.upload(&a)?, dev.upload(&bias)?, dev.zeros()?);
    let mut graph = dev.capture((small, RefCell::new(Some(weight))), |dev, ((a, bias, c), weight)| {
        let Some(weight) = weight.get_mut() else { return Ok(()) };
        kernels::small::launch(dev, &*a, &*weight, &*bias, c)
    })?;
    drop(graph.buffers().1.take());
    let others: Vec<_> =
        (0..64).map(|_| other.upload(&Tensor::<f32, D1<35>>::from_fn(|_| 7.0))).collect::<Result<_>>()?;
    graph.launch()?;
    let expected = product(a.as_slice(), b.as_slice(), &bias, [6, 7, 5]);
    equal("with a weight that is dropped", dev.download(&graph.buffers().0.2)?.as_slice(), &expected)?;
    drop(others);
    Ok(Outcome::Passed(String::new()))
}

fn views(dev: &Cuda) -> Checked {
    /// A chain whose last product is written to a slice.
    type Sliced = (Chain, CudaSlice<f32>);
    fn run(dev: &Cuda, (chain, slice): &mut Sliced) -> Result<()> {
        Chain::run(dev, chain)?;
        let mut last = DeviceViewMut::<f32, D2<64, 64>>::new(slice)?;
        kernels::product(dev, &chain.made[LENGTH - 1], &chain.weight, &chain.bias, &mut last)
    }
    let dev = &on_a_stream(dev)?;
    kernels::preload(dev)?;
    let sliced = || -> Result<Sliced> { Ok((Chain::new(dev, false)?, dev.zeros::<f32, D2<64, 64>>()?.into_slice()?)) };
    let error = refusal(dev.capture(sliced()?, run))?;
    ensure(matches!(error, CudaError::Unowned { param: "c", .. }), || format!("a view gave {error}"))?;
    // SAFETY: the slice lies in the graph's buffers, where nobody exchanges it.
    let mut graph = unsafe { dev.capture_unowned(Overlap::Allowed, sliced()?, run)? };
    let x = square(value);
    graph.write(|b| &b.0.x, &x)?;
    graph.launch()?;
    let chain = &graph.buffers().0;
    let last = DeviceView::<f32, D2<64, 64>>::new(&graph.buffers().1)?;
    let mut copy = dev.zeros::<f32, D2<64, 64>>()?;
    kernels::product(dev, &last, &chain.weight, &chain.bias, &mut copy)?;
    let (weight, bias) = (dev.download(&chain.weight)?, dev.download(&chain.bias)?);
    let step = |a: &[f32]| product(a, weight.as_slice(), bias.as_slice(), [64, 64, 64]);
    let expected = step(&step(&Chain::expected(x.as_slice(), false)));
    passed(equal("through a slice", dev.download(&copy)?.as_slice(), &expected))
}

fn given_away(dev: &Cuda) -> Checked {
    let dev = &on_a_stream(dev)?;
    kernels::preload(dev)?;
    let pair = || -> Result<_> { Ok((Chain::new(dev, false)?, RefCell::new(None))) };
    let mut graph = dev.capture(pair()?, |dev, (chain, last): &mut (Chain, RefCell<Option<Square>>)| {
        Chain::run(dev, chain)?;
        *last.get_mut() = chain.made.pop();
        Ok(())
    })?;
    graph.launch()?;
    let last = graph.buffers().1.take().ok_or("the last buffer is gone")?;
    let error = refusal(last.into_slice())?;
    ensure(error == CudaError::InGraph, || error.to_string())?;
    let (chain, _) = graph.into_buffers()?;
    ensure(chain.x.into_slice()?.len() == 64 * 64, || "the slice has another length".into())?;
    Ok(Outcome::Passed(error.to_string()))
}
