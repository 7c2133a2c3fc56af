//! What workloads and devices must have: refusals that several families share, as half a sentence each.

use crate::ir::DType;
use crate::target::{Cuda, CudaFeature, Target};
use crate::templates::TemplateError;
use crate::workload::{Conv2d, Param, Role, Workload};

/// The device, or why not.
pub fn device(t: &Target) -> Result<&Cuda, String> {
    t.cuda().ok_or_else(|| "for CUDA devices".to_string())
}

/// Refuses a device without `cp.async`.
pub(super) fn needs_cp_async(gpu: &Cuda) -> Result<(), String> {
    if gpu.has(CudaFeature::CpAsync) { Ok(()) } else { Err("needs cp.async (sm_80)".into()) }
}

/// Refuses a device without `wgmma`.
pub(super) fn needs_wgmma(gpu: &Cuda) -> Result<(), String> {
    if gpu.has(CudaFeature::Wgmma) { Ok(()) } else { Err("needs wgmma (sm_90a)".into()) }
}

/// Refuses integers with zero points.
pub(super) fn no_zero_points(w: &Workload) -> Result<(), String> {
    match w.quant.zero_points().next() {
        Some(of) => Err(format!("for integers without zero points, not with one of the {}", of.replace('_', " "))),
        None => Ok(()),
    }
}

/// Refuses operands or outputs that are no `f32`.
pub(super) fn needs_f32(w: &Workload) -> Result<(), String> {
    match (w.dtype, w.out_dtype) {
        (DType::F32, DType::F32) => Ok(()),
        (from, to) => Err(format!("multiplies f32 into f32, not {from} into {to}")),
    }
}

/// Refuses operands that tensor cores do not take in 16 bits.
pub(super) fn needs_16_bits(w: &Workload) -> Result<(), String> {
    match w.dtype {
        DType::F16 | DType::Bf16 => Ok(()),
        other => Err(format!("tensor cores multiply f16 and bf16, not {other}")),
    }
}

/// The convolution that a workload is, or why not.
pub(super) fn convolution(w: &Workload) -> Result<Conv2d, String> {
    w.conv2d().copied().ok_or_else(|| "for convolutions".to_string())
}

/// Refuses a convolution with groups.
pub(super) fn without_groups(c: &Conv2d) -> Result<(), String> {
    if c.groups == 1 { Ok(()) } else { Err("for convolutions without groups".into()) }
}

/// The weights of a workload.
pub(super) fn weights(w: &Workload) -> Result<Param, TemplateError> {
    let found = w.params().into_iter().find(|p| p.role == Role::Weight);
    found.ok_or_else(|| TemplateError::Limit("a product without weights".into()))
}
