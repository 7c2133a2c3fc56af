//! "How to optimize convolution using TensorCores" (Siyuan Feng, Apache TVM).
//!
//! The library's template `conv2d_tensorcore` has knobs for the tutorial's constants, epilogues and strides.
//!
//! `--steps` prints the loops after each call: scalar loops, caches in fragments, and what each `tensorize` makes of a nest.
//! `--target sm_70` prints the `wmma` form of compute capability 7.0 in place of `mma.sync`, `--f16-sums` the same schedule
//! with sums in `f16`.

#[path = "../by_schedule.rs"]
mod by_schedule;

use by_schedule::opt_conv_tensorcore;
use kernel_gen::ir::DType;
use kernel_gen::workload::{Conv2d, ConvLayout, Workload};
use kernel_gen_runtime::{D6, Device, F16};
use std::process::ExitCode;
use tutorials::{as_written, asked, chosen, numbers, on_gpu, show, template, time};

fn main() -> ExitCode {
    tutorials::main(|| {
        // The sizes of inputs and filters: batch 256, 256 channels to 512, 14 x 14, 3 x 3; fp16 in, fp32 out
        let conv = Conv2d { layout: ConvLayout::NhwcNc(16), ..Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1) };
        // With --f16-sums, accumulators of fp16 and fp16 out
        let sums = if asked("--f16-sums") { DType::F16 } else { DType::F32 };
        let workload = Workload { out_dtype: sums, ..Workload::f32(conv).with_dtype(DType::F16) };
        show("opt_conv_tensorcore", opt_conv_tensorcore(&workload)?)?;
        on_gpu(|dev| {
            let x = numbers::<F16, D6<16, 14, 14, 16, 16, 16>>(dev, F16::from_f32)?;
            let w = numbers::<F16, D6<3, 3, 16, 32, 16, 16>>(dev, F16::from_f32)?;
            let mut y = dev.zeros::<f32, D6<16, 14, 14, 32, 16, 16>>()?;
            let mut half = dev.zeros::<F16, D6<16, 14, 14, 32, 16, 16>>()?;
            let macs = 14 * 14 * 512 * 256 * 256 * 9;
            time(dev, "as written", macs, || as_written::opt_conv_tensorcore(dev, &x, &w, &mut y))?;
            time(dev, "template", macs, || template::opt_conv_tensorcore(dev, &x, &w, &mut y))?;
            time(dev, "chosen", macs, || chosen::opt_conv_tensorcore(dev, &x, &w, &mut y))?;
            time(dev, "f16 sums", macs, || as_written::opt_conv_tensorcore_f16(dev, &x, &w, &mut half))?;
            time(dev, "chosen, f16", macs, || chosen::opt_conv_tensorcore_f16(dev, &x, &w, &mut half))
        })
    })
}
