//! The tutorial's schedule for tensor cores, as it is emitted for each generation, and the template at the tutorial's config.
//!
//! Sources for a generation are compiled as PTX for it, or for 7.5, the oldest that NVRTC 13 knows, where it is older; the
//! driver makes the device's code of that. So an H100 runs the `wmma` form of compute capability 7.0, which no NVRTC of its
//! time could compile for 7.0 itself.

#[path = "../../../examples/tutorials/src/by_schedule.rs"]
mod by_schedule;

use crate::bench::{Data, repeats};
use crate::families::target_of;
use crate::gpu::Gpu;
use crate::kernel::Kernel;
use crate::{Options, prepare};
use anyhow::{Context, Result, anyhow, ensure};
use cudarc::driver::CudaGraph;
use kernel_gen::emit::cuda::{self, Arch, CudaOptions, CudaSource};
use kernel_gen::ir::DType;
use kernel_gen::lower::lower_for;
use kernel_gen::target::Target;
use kernel_gen::templates::cuda::conv2d_tensorcore::{Conv2dTensorcore, tutorial};
use kernel_gen::toolchain::cuda::Artifact;
use kernel_gen::workload::{Conv2d, ConvLayout, Workload};

/// Generations whose instructions differ: `wmma`, products over 8 and over 16 elements.
const FORMS: [&str; 3] = ["sm_70", "sm_75", "sm_80"];

/// The oldest target that NVRTC 13 compiles for.
const OLDEST: &str = "sm_75";

/// One kernel of the table.
struct Line {
    what: String,
    workload: Workload,
    source: CudaSource,
    /// The target that it is compiled for.
    code: &'static Target,
    /// What a sum's error may be of the magnitudes of its terms.
    allowed: f64,
}

/// The tutorial's layer, or one of the same tiling that takes a moment, with sums and output in a type.
fn layer(sums: DType, small: bool) -> Workload {
    let c = match small {
        true => Conv2d::nchw(128, 32, 3, 3, 128, 3, 1, 1),
        false => Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1),
    };
    let c = Conv2d { layout: ConvLayout::NhwcNc(16), ..c };
    Workload { out_dtype: sums, ..Workload::f32(c).with_dtype(DType::F16) }
}

/// What a sum's error may be of the magnitudes of its terms.
///
/// In `f32` that is what any order of `K` additions may lose. In `f16` a sum is rounded once an instruction, so once in four
/// terms at most, by up to 2^-11 of what it is then. Terms of both signs grow with the square root of their number, and so do
/// the roundings: `sqrt(K / 4)` of them, each of `sqrt(K)` terms, are `K / 2` terms times 2^-11. That is typical; four times
/// of it is allowed. A wrong term would be off by as much as it is large, `1 / sqrt(K)` of the magnitudes.
fn allowed(w: &Workload) -> f64 {
    match w.out_dtype {
        DType::F16 => 4.0 * 0.5 * 2f64.powi(-11),
        _ => w.reduction_length() as f64 * 2f64.powi(-23),
    }
}

/// Runs the suite; whether everything was right.
pub(crate) fn run(gpu: &Gpu, options: &Options) -> Result<bool> {
    let device = target_of(gpu)?;
    let small = options.flag("--small");
    let oldest = Target::find(OLDEST).context("a built-in target")?;
    let mut lines = vec![];
    for sums in [DType::F32, DType::F16] {
        let workload = layer(sums, small);
        for form in FORMS.into_iter().chain([device.name.as_str()]) {
            let target = prepare::older(form, device)?;
            let code = if target.capability() < oldest.capability() { oldest } else { target };
            let schedule = by_schedule::opt_conv_tensorcore(&workload).map_err(|e| anyhow!("{e}"))?;
            let mut line = |what: &str, source: CudaSource| {
                let (what, workload) = (format!("{what} for {form}"), workload.clone());
                lines.push(Line { what, source, code, allowed: allowed(&workload), workload });
            };
            line("schedule", emitted(schedule.kernel, target)?);
            // The template's sums are always f32.
            if sums == DType::F32 {
                line("template", prepare::source(&Conv2dTensorcore, &workload, target, &tutorial())?);
            }
        }
    }
    println!("| kernel | sums | PTX for | us | TFLOP/s | largest error | allowed | registers / spilled bytes |");
    println!("|---|---|---|--:|--:|--:|--:|---|");
    let mut all_right = true;
    for line in &lines {
        match measure(gpu, line) {
            Ok(row) => println!("{row}"),
            Err(error) => {
                all_right = false;
                println!("FAILED {} with sums in {}: {error:#}", line.what, line.workload.out_dtype);
            }
        }
    }
    println!("{}", if all_right { "all right" } else { "FAILED" });
    Ok(all_right)
}

fn emitted(kernel: kernel_gen::ir::Kernel, target: &Target) -> Result<CudaSource> {
    let lowered = lower_for(kernel, target).map_err(|e| anyhow!("{e}"))?;
    let arch = Arch::of(target).context("a CUDA target")?;
    let options = CudaOptions { arch, symbol: "kernel".into(), comment: "The tutorial.".into(), min_blocks: None };
    cuda::emit(&lowered, &options).map_err(|e| anyhow!("{e}"))
}

/// Checks a kernel and times it.
fn measure(gpu: &Gpu, line: &Line) -> Result<String> {
    let w = &line.workload;
    let compiler = prepare::compiler(line.code)?;
    let made = prepare::compile(&compiler, line.code, std::slice::from_ref(&line.source)).pop();
    let artifact: Artifact = made.context("one source")??;
    // The driver compiles the PTX for the device that is here.
    let by_driver = Artifact { cubin: None, ..artifact.clone() };
    let kernel = Kernel::load(gpu, &line.source, &by_driver)?;
    let mut data = Data::new(gpu, w)?;
    let error = data.run(gpu, w, &kernel)?;
    ensure!(error <= line.allowed, "wrong: an error of {error:.2e}, allowed are {:.2e}", line.allowed);
    let repeats = repeats(w);
    let bound = kernel.bind(gpu, &data.memory)?;
    let graph: CudaGraph = gpu.graph(repeats, || bound.launch(gpu))?;
    let us = gpu.time(&[&graph], repeats)?[0];
    let spills: u32 = artifact.log.kernels.iter().map(|k| k.spill_store_bytes).sum();
    let registers: Vec<String> = artifact.log.kernels.iter().map(|k| k.registers.to_string()).collect();
    Ok(format!(
        "| {} | {} | {} | {us:.1} | {:.1} | {error:.1e} | {:.1e} | {} / {spills} |",
        line.what,
        w.out_dtype,
        line.code.name,
        w.flops() as f64 / us * 1e-6,
        line.allowed,
        registers.join(" "),
    ))
}
