//! The vendor's libraries in the process that holds the GPU: what of a workload they compute, and their fastest way.

use super::protocol::Stage;
use super::stop::Stop;
use super::task::{Task, Tell};
use super::timing::{LAUNCH_US, budget_s, calls, least_us};
use super::vendor::{PeerConv, PeerEpilogue, PeerError, PeerProduct, PeerType, PeerWay, Peers};
use crate::ir::DType;
use crate::records::FailureKind;
use crate::toolchain::values;
use crate::tune::measure::pipeline::failure;
use crate::tune::measure::{Peer, Sampling};
use crate::workload::bound::Accuracy;
use crate::workload::plain::PlainOrder;
use crate::workload::{Conv2d, ConvLayout, Epilogue, Math, Matmul, Op, Role, Workload};
use kernel_gen_runtime::cuda::candidate::{Bench, Guarded};
use std::collections::BTreeMap;

/// Replays by which the ways of a library are ranked.
const ROUNDS: usize = 5;
/// Replays of a single call.
const FEW: usize = 3;
/// A way that takes so many times as long as the best so far is not looked at closely.
const SLOW: f64 = 4.0;
/// Seconds in which a library brings what it needs to the GPU, which it does when that is first used.
const LOAD_S: f64 = 30.0;

/// The libraries that were asked for so far, or why they cannot be had.
#[derive(Debug, Default)]
pub(super) struct Libraries(BTreeMap<Peer, Result<Peers, String>>);

impl Libraries {
    /// Opens a library when it is first asked for.
    pub(super) fn open(&mut self, bench: &Bench, peer: Peer) {
        self.0.entry(peer).or_insert_with(|| Peers::open(bench, peer).map_err(|e| e.to_string()));
    }

    /// What a library can do of a workload: its operator, without the epilogue unless the library fuses it.
    pub(super) fn ways(&self, bench: &Bench, peer: Peer, workload: &Workload) -> Result<Vec<PeerWay<'_>>, String> {
        let library = self.0.get(&peer).ok_or("it was not opened")?.as_ref().map_err(Clone::clone)?;
        let dtype = dtype(workload)?;
        match (peer, &workload.op) {
            (Peer::Cudnn, Op::Conv2d(c)) => {
                library.convolutions(bench, &convolution(c, dtype)?).map_err(|e| e.to_string())
            }
            (Peer::CudnnFused, Op::Conv2d(c)) => {
                let conv = PeerConv { fused: Some(fused(&workload.epilogue)?), ..convolution(c, dtype)? };
                library.convolutions(bench, &conv).map_err(|e| e.to_string())
            }
            (Peer::Cublas, Op::Matmul(m)) => Ok(library.products(&product(m, dtype)?)),
            _ => Err("it has no such operator".to_string()),
        }
    }
}

fn dtype(w: &Workload) -> Result<PeerType, String> {
    match (w.dtype, w.out_dtype, w.math) {
        (DType::F32, DType::F32, Math::Tf32) => Ok(PeerType::Tf32),
        (DType::F32, DType::F32, _) => Ok(PeerType::F32),
        (DType::F16, DType::F16, _) => Ok(PeerType::F16),
        (DType::Bf16, DType::Bf16, _) => Ok(PeerType::Bf16),
        (from, to, _) => Err(format!("it is not asked for {from} to {to}")),
    }
}

fn number(value: i64) -> Result<i32, String> {
    i32::try_from(value).map_err(|_| format!("a size of {value} is more than it takes"))
}

/// The convolution in the layout that is nearest to the workload's: HWCN, which cuDNN has not, is timed as NCHW, and
/// blocked layouts as those that they are blocks of. The operands have as many bytes in each.
fn convolution(c: &Conv2d, dtype: PeerType) -> Result<PeerConv, String> {
    let [top, left, bottom, right] = c.padding;
    if (top, left) != (bottom, right) {
        return Err("it has no padding that differs between sides".to_string());
    }
    let pair = |[a, b]: [i64; 2]| Ok::<_, String>([number(a)?, number(b)?]);
    Ok(PeerConv {
        dtype,
        nhwc: channels_last(c.layout),
        input: [number(c.n)?, number(c.ci)?, number(c.h)?, number(c.w)?],
        filter: [number(c.co)?, number(c.ci / c.groups.max(1))?, number(c.kh)?, number(c.kw)?],
        output: pair([c.oh(), c.ow()])?,
        padding: pair([top, left])?,
        stride: pair(c.stride)?,
        dilation: pair(c.dilation)?,
        groups: number(c.groups)?,
        fused: None,
    })
}

/// Whether a layout is timed as NHWC.
fn channels_last(layout: ConvLayout) -> bool {
    matches!(layout, ConvLayout::Nhwc | ConvLayout::NhwcNc(_))
}

/// The epilogue as cuDNN's one call has it.
fn fused(epilogue: &[Epilogue]) -> Result<PeerEpilogue, String> {
    use Epilogue::{Bias, Relu, ResidualAdd};
    match epilogue {
        [Bias] => Ok(PeerEpilogue { residual: false, relu: false }),
        [Bias, Relu] => Ok(PeerEpilogue { residual: false, relu: true }),
        [Bias, ResidualAdd] => Ok(PeerEpilogue { residual: true, relu: false }),
        [Bias, ResidualAdd, Relu] => Ok(PeerEpilogue { residual: true, relu: true }),
        _ => Err("it fuses a bias, with a residual and ReLU behind it or without".to_string()),
    }
}

fn product(m: &Matmul, dtype: PeerType) -> Result<PeerProduct, String> {
    Ok(PeerProduct {
        dtype,
        batch: number(m.batch)?,
        size: [number(m.m)?, number(m.n)?, number(m.k)?],
        transposed: [m.trans_a, m.trans_b],
    })
}

impl From<PeerError> for Stop {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Cuda(error) => error.into(),
            other => Stop::Failed(failure(FailureKind::Worker, other)),
        }
    }
}

/// A library's fastest way.
pub(super) struct Pick<'p> {
    pub(super) way: PeerWay<'p>,
    /// What each of its ways took, or why it did not run, for people.
    pub(super) tried: Vec<String>,
    /// How far its result is from the exact one.
    pub(super) accuracy: Accuracy,
}

/// A library's fastest way on a workload's own buffers; or, for people, why there is none.
///
/// A way is timed in recorded graphs only. Between two events a call by itself also takes what the library needs to queue it,
/// which for cuDNN may be many times the kernel's own: its fastest way would look slow beside another that was replayed.
pub(super) fn fastest<'p>(
    bench: &Bench,
    task: &Task,
    workload: &Workload,
    ways: Vec<PeerWay<'p>>,
    sampling: &Sampling,
    tell: &mut Tell<'_>,
) -> Result<Result<Pick<'p>, String>, Stop> {
    let buffers = operands(workload, &task.inputs, &task.output);
    let mut best: Option<(f64, PeerWay<'p>)> = None;
    let mut tried = vec![];
    for way in ways {
        tell(Stage::Run, LOAD_S)?;
        // A way that the library offers and then refuses is none. The first call also prepares what the library wants.
        match way.launch(bench, &buffers) {
            Ok(()) => bench.synchronize()?,
            Err(PeerError::Cuda(error)) => return Err(error.into()),
            Err(why) => {
                tried.push(format!("{}: {why}", way.name()));
                continue;
            }
        }
        let graph = |calls| way.graph(bench, std::slice::from_ref(&buffers), calls);
        let us = least_us(bench, &graph(1)?, FEW)?;
        let slow = best.as_ref().is_some_and(|(least, _)| us - LAUNCH_US > SLOW * least);
        let us = if slow {
            us
        } else {
            let calls = calls(us, sampling);
            tell(Stage::Time, LOAD_S + budget_s(us, calls, ROUNDS))?;
            least_us(bench, &graph(calls)?, ROUNDS)?
        };
        tried.push(format!("{}: {us:.4} us", way.name()));
        if best.as_ref().is_none_or(|(least, _)| us < *least) {
            best = Some((us, way));
        }
    }
    let Some((_, way)) = best else {
        let why: String = tried.iter().map(|tried| format!("; {tried}")).collect();
        return Ok(Err(format!("none of its ways does this{why}")));
    };
    tell(Stage::Check, 120.0)?;
    let accuracy = accuracy(bench, task, workload, &way)?;
    if !accuracy.max.is_finite() {
        return Ok(Err(format!("{} has results that are no numbers", way.name())));
    }
    Ok(Ok(Pick { way, tried, accuracy }))
}

/// Runs a way once on the workload's operands in the library's own order, and holds the result against the reference.
fn accuracy(bench: &Bench, task: &Task, workload: &Workload, way: &PeerWay<'_>) -> Result<Accuracy, Stop> {
    let order = match &workload.op {
        Op::Conv2d(c) => PlainOrder::of(c, channels_last(c.layout)),
        _ => PlainOrder { input: None, filter: None, output: None },
    };
    let params = workload.params();
    // What has to lie in another order, by its place among the parameters.
    let mut ordered = vec![];
    for (at, param) in params.iter().enumerate() {
        let order = match param.role {
            Role::Input => &order.input,
            Role::Weight => &order.filter,
            Role::Residual => &order.output,
            _ => &None,
        };
        let (Some(order), Some(bytes)) = (order, task.data.inputs.get(at)) else { continue };
        let size = param.dtype.bytes();
        let gathered: Vec<u8> = order.iter().flat_map(|i| &bytes[i * size..(i + 1) * size]).copied().collect();
        ordered.push((at, bench.upload(&gathered)?));
    }
    let inputs: Vec<&Guarded> = task.inputs.iter().enumerate().map(|(i, given)| of_order(&ordered, i, given)).collect();
    let output = bench.poisoned(task.data.output_bytes)?;
    way.launch(bench, &operands_of(workload, &inputs, &output))?;
    bench.synchronize()?;
    let mut result = values::decode(workload.out_dtype, &bench.download(&output)?.data);
    if let Some(order) = &order.output {
        let mut back = vec![f64::NAN; result.len()];
        order.iter().zip(result).for_each(|(at, value)| back[*at] = value);
        result = back;
    }
    Ok(if way.is_fused() { task.data.accuracy(&result) } else { task.data.accuracy_of_sums(workload, result) })
}

/// An operand in the library's order, where that is another one.
fn of_order<'a>(ordered: &'a [(usize, Guarded)], at: usize, given: &'a Guarded) -> &'a Guarded {
    ordered.iter().find(|(i, _)| *i == at).map_or(given, |(_, buffer)| buffer)
}

/// What a library reads and writes: the operator's two operands, the result, and what a fused call adds.
pub(super) fn operands<'a>(workload: &Workload, inputs: &'a [Guarded], output: &'a Guarded) -> Vec<&'a Guarded> {
    operands_of(workload, &inputs.iter().collect::<Vec<_>>(), output)
}

fn operands_of<'a>(workload: &Workload, inputs: &[&'a Guarded], output: &'a Guarded) -> Vec<&'a Guarded> {
    let params = workload.params();
    let of = |role| params.iter().position(|p| p.role == role).and_then(|at| inputs.get(at).copied());
    let (operands, added) = ([Role::Input, Role::Weight].map(of), [Role::Bias, Role::Residual].map(of));
    operands.into_iter().flatten().chain([output]).chain(added.into_iter().flatten()).collect()
}
