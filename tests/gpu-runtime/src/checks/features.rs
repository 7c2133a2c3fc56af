//! What a launch can ask for, each tried by a kernel written by hand.

use super::generated::{equal, value};
use crate::hand;
use crate::suite::{Check, Checked, Outcome, ensure, passed};
use kernel_gen_runtime::{Cuda, D1, D2, Device, Error, Tensor};

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check { name: "workspace and packed weights", run: workspace },
        Check { name: "100 KiB of shared memory", run: big_shared },
        Check { name: "clusters", run: cluster },
        Check { name: "tensor maps", run: tensor_map },
        Check { name: "programmatic dependent launch", run: programmatic },
        Check { name: "an image without the kernel", run: wrong_image },
    ]
}

/// Skips what came with compute capability 9.0.
fn hopper(dev: &Cuda, run: impl FnOnce() -> Checked) -> Checked {
    let (major, minor) = dev.compute_capability();
    if major >= 9 { run() } else { Ok(Outcome::Skipped(format!("needs 9.0, this device has {major}.{minor}"))) }
}

fn workspace(dev: &Cuda) -> Checked {
    let x = Tensor::<f32, D1<1000>>::from_fn(|i| i as f32);
    let w = Tensor::<f32, D1<1000>>::from_fn(value);
    let expected: Vec<f32> = (0..1000).map(|i| 2.0 * value(i) + i as f32).collect();
    let (x, w) = (dev.upload(&x)?, dev.upload(&w)?);
    let mut y = dev.zeros::<f32, D1<1000>>()?;
    use kernel_gen_runtime::{Input, Output};
    hand::ADD.launch(dev, &[x.arg(dev), w.arg(dev), y.arg_mut(dev)])?;
    equal("unpacked", dev.download(&y)?.as_slice(), &expected)?;
    let packed = hand::ADD.pack_weight(dev, w.arg(dev))?;
    let mut y = dev.zeros::<f32, D1<1000>>()?;
    hand::ADD.launch(dev, &[x.arg(dev), dev.packed_arg(&packed), y.arg_mut(dev)])?;
    equal("packed", dev.download(&y)?.as_slice(), &expected)?;
    let held = dev.workspace_bytes();
    hand::ADD.launch(dev, &[x.arg(dev), w.arg(dev), y.arg_mut(dev)])?;
    ensure(dev.workspace_bytes() == held, || "a launch that was seen before allocated workspace".into())?;
    Ok(Outcome::Passed(format!("{held} bytes of workspace")))
}

fn big_shared(dev: &Cuda) -> Checked {
    let x = Tensor::<f32, D1<25600>>::from_fn(|i| i as f32);
    let mut y = dev.zeros::<f32, D1<25600>>()?;
    hand::map(&hand::BIG_SHARED, dev, &dev.upload(&x)?, &mut y)?;
    let expected: Vec<f32> = (0..25600).rev().map(|i| i as f32).collect();
    passed(equal("reversed", dev.download(&y)?.as_slice(), &expected))
}

fn cluster(dev: &Cuda) -> Checked {
    hopper(dev, || {
        let x = Tensor::<f32, D1<1000>>::from_fn(value);
        let mut y = dev.zeros::<f32, D1<1000>>()?;
        hand::map(&hand::CLUSTER, dev, &dev.upload(&x)?, &mut y)?;
        let expected: Vec<f32> = (0..1000).map(|i| value(i) + (i / 125 % 4) as f32 + 400.0).collect();
        passed(equal("ranks", dev.download(&y)?.as_slice(), &expected))
    })
}

fn tensor_map(dev: &Cuda) -> Checked {
    hopper(dev, || {
        let inside = |row: usize, column: usize| row < 32 && column < 64;
        // Several buffers, several times each: maps are encoded anew for each address, and remembered.
        let xs: Vec<_> = (0..40)
            .map(|n| dev.upload(&Tensor::<f32, D2<32, 64>>::from_fn(|i| (i + n) as f32)))
            .collect::<Result<_, _>>()?;
        for (n, x) in xs.iter().chain(&xs).enumerate().map(|(i, x)| (i % 40, x)) {
            let mut y = dev.zeros::<f32, D2<8, 32>>()?;
            hand::map(&hand::TENSOR_MAP, dev, x, &mut y)?;
            let expected: Vec<f32> = (0..8 * 32)
                .map(|i| (28 + i / 32, 40 + i % 32))
                .map(|(row, column)| if inside(row, column) { (row * 64 + column + n) as f32 } else { 0.0 })
                .collect();
            equal("box", dev.download(&y)?.as_slice(), &expected)?;
        }
        passed(Ok(()))
    })
}

fn programmatic(dev: &Cuda) -> Checked {
    hopper(dev, || {
        let x = Tensor::<f32, D1<1000>>::from_fn(|i| i as f32);
        let x = dev.upload(&x)?;
        let mut y = dev.zeros::<f32, D1<1000>>()?;
        for _ in 0..20 {
            hand::map(&hand::PROGRAMMATIC, dev, &x, &mut y)?;
        }
        let expected: Vec<f32> = (0..1000).rev().map(|i| 0.5 * i as f32).collect();
        passed(equal("halved and reversed", dev.download(&y)?.as_slice(), &expected))
    })
}

fn wrong_image(dev: &Cuda) -> Checked {
    let x = dev.zeros::<f32, D1<32>>()?;
    let mut y = dev.zeros::<f32, D1<32>>()?;
    match hand::map(&hand::WRONG_IMAGE, dev, &x, &mut y) {
        Err(Error::Cuda(error)) => Ok(Outcome::Passed(error.to_string())),
        other => Err(format!("it gave {other:?}").into()),
    }
}
