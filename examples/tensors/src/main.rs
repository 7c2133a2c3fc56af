//! Runs a generated kernel on tensors of candle and of burn. Both lend the memory of their tensors and take a vector as that of a new one, so
//! nothing is copied on the way.

kernel_gen_runtime::include_kernels!();

use kernel_gen_runtime::{Cpu, D2, View, ViewMut};
use kernels::layer;
use std::error::Error;

/// Numbers for a tensor.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 17) as f32 * 0.25 - 2.0).collect()
}

/// One layer: x w + b, and no negative numbers. Its weight is packed once.
struct Dense {
    dev: Cpu,
    packed: layer::PackedWeight,
    bias: Vec<f32>,
}

impl Dense {
    fn new(weight: &[f32], bias: Vec<f32>) -> Result<Dense, Box<dyn Error>> {
        let dev = Cpu::new();
        let packed = layer::pack_weight(&dev, &View::new(weight)?)?;
        Ok(Dense { dev, packed, bias })
    }

    /// Of a tensor of candle in the CPU's memory.
    fn candle(&self, tensor: &candle_core::Tensor) -> Result<candle_core::Tensor, Box<dyn Error>> {
        let (storage, layout) = tensor.storage_and_layout(); // keeps the tensor locked for reading
        let candle_core::Storage::Cpu(memory) = &*storage else { return Err("not in the CPU's memory".into()) };
        let (from, to) = layout.contiguous_offsets().ok_or("call `contiguous()` first")?;
        let x = View::<f32, D2<32, 512>>::new(&memory.as_slice()?[from..to])?;
        let mut y = vec![0.0; 32 * 64];
        layer::launch(&self.dev, &x, &self.packed, &View::new(&self.bias)?, &mut ViewMut::new(&mut y)?)?;
        Ok(candle_core::Tensor::from_vec(y, (32, 64), &candle_core::Device::Cpu)?)
    }

    /// Of a tensor of burn on a device in the CPU's memory.
    fn burn(&self, tensor: burn_tensor::Tensor<2>) -> Result<burn_tensor::Tensor<2>, Box<dyn Error>> {
        let device = tensor.device();
        let data = tensor.into_data(); // copies where another tensor has the same memory
        let x = View::<f32, D2<32, 512>>::new(data.as_slice()?)?;
        let mut y = vec![0.0; 32 * 64];
        layer::launch(&self.dev, &x, &self.packed, &View::new(&self.bias)?, &mut ViewMut::new(&mut y)?)?;
        Ok(burn_tensor::Tensor::from_data(burn_tensor::TensorData::new(y, [32, 64]), &device))
    }
}

/// The largest distance of two results.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(if a.len() == b.len() { 0.0 } else { f32::INFINITY }, f32::max)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (x, w, bias) = (numbers(32 * 512), numbers(512 * 64), numbers(64));
    let dense = Dense::new(&w, bias.clone())?;

    let tensor =
        |v: &[f32], shape: (usize, usize)| candle_core::Tensor::from_slice(v, shape, &candle_core::Device::Cpu);
    let theirs =
        tensor(&x, (32, 512))?.matmul(&tensor(&w, (512, 64))?)?.broadcast_add(&tensor(&bias, (1, 64))?)?.relu()?;
    let ours = dense.candle(&tensor(&x, (32, 512))?)?;
    let off = distance(&ours.flatten_all()?.to_vec1()?, &theirs.flatten_all()?.to_vec1()?);
    println!("candle: {:?}, largest difference {off:.1e}", ours.shape());
    assert!(off < 1e-2, "the sums are near 1000");

    let device = burn_tensor::Device::flex();
    let tensor = |v: &[f32], shape: [usize; 2]| {
        burn_tensor::Tensor::<2>::from_data(burn_tensor::TensorData::new(v.to_vec(), shape), &device)
    };
    let theirs = tensor(&x, [32, 512]).matmul(tensor(&w, [512, 64])).add(tensor(&bias, [1, 64])).clamp_min(0.0);
    let ours = dense.burn(tensor(&x, [32, 512]))?;
    let shape = ours.shape();
    let off = distance(ours.into_data().as_slice()?, theirs.into_data().as_slice()?);
    println!("burn: {shape:?}, largest difference {off:.1e}");
    assert!(off < 1e-2, "the sums are near 1000");
    Ok(())
}
