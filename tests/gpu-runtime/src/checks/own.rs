//! CUDA of the crate's own, wrapped by `[[extern]]`.

use super::generated::{Done, equal, value};
use super::graph::on_a_stream;
use crate::own::mine;
use crate::suite::{Check, Checked, Outcome, ensure, passed};
use kernel_gen_runtime::cuda::DeviceTensor;
use kernel_gen_runtime::{Cpu, Cuda, CudaError, D1, D2, Device, Error, Result, Tensor};

pub(super) fn checks() -> Vec<Check> {
    vec![
        // First, before anything has loaded its code.
        Check { name: "extern: code that is not loaded in a capture", run: cold },
        Check { name: "extern: arrays and numbers", run: scale },
        Check { name: "extern: dynamic shared memory", run: reverse },
        Check { name: "extern: numbers of every size", run: by_value },
        Check { name: "extern: captured and replayed", run: captured },
    ]
}

/// What the kernel `scale` computes.
fn scaled(x: &[f32], factor: f32, shift: i32) -> Vec<f32> {
    x.iter().map(|x| x * factor + shift as f32).collect()
}

/// On a CPU the launch is an error, which says why.
pub(crate) fn on_cpu(dev: &Cpu) -> Done {
    let (x, mut y) = (Tensor::<f32, D2<6, 50>>::zeros(), Tensor::zeros());
    match mine::scale(dev, &x, &mut y, 1.0, 0) {
        Err(Error::NoCode { workload: "mine::scale", reason }) if reason.contains("it runs on GPUs only") => Ok(()),
        other => Err(format!("a launch on a CPU gave {other:?}").into()),
    }
}

fn scale(dev: &Cuda) -> Checked {
    mine::preload(dev)?;
    let x = Tensor::<f32, D2<6, 50>>::from_fn(value);
    let mut y = dev.zeros::<f32, D2<6, 50>>()?;
    for (factor, shift) in [(2.0, 0), (-0.5, -7), (0.25, 1 << 20)] {
        mine::scale(dev, &dev.upload(&x)?, &mut y, factor, shift)?;
        equal("scaled", dev.download(&y)?.as_slice(), &scaled(x.as_slice(), factor, shift))?;
    }
    passed(on_cpu(&Cpu::new()))
}

fn reverse(dev: &Cuda) -> Checked {
    let x = Tensor::<f64, D2<4, 12800>>::from_fn(|i| i as f64 * 1.000_000_1);
    let mut y = dev.zeros::<f64, D2<4, 12800>>()?;
    mine::reverse(dev, &dev.upload(&x)?, &mut y)?;
    let expected: Vec<f64> = x.as_slice().chunks(12800).flat_map(|part| part.iter().rev().copied()).collect();
    passed(ensure(dev.download(&y)?.as_slice() == expected, || "the parts are not reversed".into()))
}

fn by_value(dev: &Cuda) -> Checked {
    let mut out = dev.zeros::<i64, D1<8>>()?;
    mine::by_value(dev, true, 200, &mut out, -3, 1e15, i64::MIN + 5, u32::MAX, -2.25)?;
    let expected = [1, 200, -3, 1_000_000_000_000_000, i64::MIN + 5, i64::from(u32::MAX), -9, 0];
    let out = dev.download(&out)?;
    passed(ensure(out.as_slice() == expected, || format!("{:?} instead of {expected:?}", out.as_slice())))
}

fn cold(dev: &Cuda) -> Checked {
    let dev = on_a_stream(dev)?;
    let buffers = (dev.zeros::<f32, D2<6, 50>>()?, dev.zeros::<f32, D2<6, 50>>()?);
    let refused = dev.capture(buffers, |dev, (x, y)| mine::scale(dev, x, y, 1.0, 0));
    match refused {
        Err(Error::Cuda(CudaError::ColdCapture { .. })) => Ok(Outcome::Passed(String::new())),
        Err(other) => Err(other.into()),
        Ok(_) => Err("a kernel was captured whose code was never loaded".into()),
    }
}

type Buffers = [DeviceTensor<f32, D2<6, 50>>; 3];

/// Two launches, the second on what the first wrote. Their numbers are those of the capture.
fn twice(dev: &Cuda, [x, between, y]: &mut Buffers) -> Result<()> {
    mine::scale(dev, x, between, 2.0, 1)?;
    mine::scale(dev, between, y, 3.0, -1)
}

fn captured(dev: &Cuda) -> Checked {
    let dev = on_a_stream(dev)?;
    mine::preload(&dev)?;
    let mut graph = dev.capture([dev.zeros()?, dev.zeros()?, dev.zeros()?], twice)?;
    for round in 0..3 {
        let x = Tensor::<f32, D2<6, 50>>::from_fn(|i| value(i + round));
        graph.write(|[input, ..]| input, &x)?;
        graph.launch()?;
        let expected = scaled(&scaled(x.as_slice(), 2.0, 1), 3.0, -1);
        equal("scaled twice", dev.download(&graph.buffers()[2])?.as_slice(), &expected)?;
    }
    Ok(Outcome::Passed(format!("{graph:?}")))
}
