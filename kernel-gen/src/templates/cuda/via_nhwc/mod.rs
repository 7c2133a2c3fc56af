//! 16-bit convolutions in NCHW and HWCN by way of NHWC, where tensor cores find the terms of a reduction side by side.
//!
//! In NCHW neighbours in memory are pixels, and maps of 7 or 14 columns have rows that are no multiple of 16 bytes, which the
//! copy engine does not take. So pixels are turned once, and not for each tap and tile that reads them. Launches:
//! 1. **turn**: the activations, and the residual if one is added, from planes of pixels to rows of channels;
//! 2. the kernel that another template makes of the same convolution in NHWC, with the whole epilogue;
//! 3. **turn**: its output from rows to planes.
//!
//! One image in HWCN, and maps of one pixel in NCHW, are rows of channels as they lie: there the second launch is all.
//! Weights are brought into the order of NHWC when they are packed. Knobs, space and limits are those of the other template.

mod model;
mod turn;
mod weights;

use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, Buffer, DType, Kernel, Scope, Stmt};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::Target;
use crate::templates::cuda::mma::MmaConv2d;
use crate::templates::cuda::requires::{convolution, device, without_groups};
use crate::templates::cuda::wgmma::{WgmmaConv2d, WgmmaGemm};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Op, Role, Workload};
use turn::{Activations, SIDE, Turn};

/// A template for NHWC, for other layouts. See the module's text.
pub struct ViaNhwc<T> {
    inner: T,
    name: &'static str,
}

/// Pixels at most in HWCN where they do not divide tiles: the verifier sees that no two of them share a row by trying them all.
const MOST_TRIED: i64 = 1 << 18;

/// Counted up whenever the turning launches change.
const VERSION: u32 = 1;

impl ViaNhwc<WgmmaGemm> {
    /// 1x1 convolutions by [`WgmmaGemm`].
    pub fn wgmma_gemm() -> Self {
        ViaNhwc { inner: WgmmaGemm, name: "via_nhwc_wgmma_gemm" }
    }
}

impl ViaNhwc<WgmmaConv2d> {
    /// By [`WgmmaConv2d`].
    pub fn wgmma_conv2d() -> Self {
        ViaNhwc { inner: WgmmaConv2d, name: "via_nhwc_wgmma_conv2d" }
    }
}

impl ViaNhwc<MmaConv2d> {
    /// By [`MmaConv2d`], from sm_80 on.
    pub fn mma_conv2d() -> Self {
        ViaNhwc { inner: MmaConv2d, name: "via_nhwc_mma_conv2d" }
    }
}

/// The convolution, and the workload that it is in NHWC, or why it is none for these templates.
fn in_nhwc(w: &Workload) -> Result<(Conv2d, Workload), String> {
    let c = convolution(w)?;
    if !matches!(c.layout, ConvLayout::Nchw | ConvLayout::Hwcn) {
        return Err(format!("for NCHW and HWCN, not {}", c.layout.name()));
    }
    if !matches!(w.dtype, DType::F16 | DType::Bf16) {
        return Err(format!("for f16 and bf16, not {}", w.dtype));
    }
    without_groups(&c)?;
    Ok((c, Workload { op: Op::Conv2d(Conv2d { layout: ConvLayout::Nhwc, ..c }), ..w.clone() }))
}

/// Puts the turning launches around the kernel of the same workload in NHWC: what that has of the tensors with pixels becomes
/// workspace.
fn around(mut kernel: Kernel, w: &Workload, c: &Conv2d) -> Kernel {
    kernel.name = w.kernel_name();
    let inner = std::mem::take(&mut kernel.params);
    let mut turned: Vec<(Role, Turn)> = vec![];
    for (param, rows) in w.params().into_iter().zip(inner) {
        let activations = match Activations::of(c, param.role) {
            Some(activations) if !activations.are_rows() => activations,
            _ => {
                kernel.params.push(rows);
                continue;
            }
        };
        let buffer = kernel.buffer_mut(rows);
        buffer.name = format!("{}_rows", param.name);
        buffer.access = Access::ReadWrite;
        let dimensions = buffer.shape.len();
        let outer = Buffer::new(param.name, param.dtype, &param.shape, Scope::Global);
        let planes = kernel.add_buffer(Buffer { access: param.access, ..outer });
        kernel.params.push(planes);
        turned.push((param.role, Turn { activations, planes, rows, dimensions, dtype: param.dtype }));
    }
    let (mut b, product) = KernelBuilder::reopen(kernel);
    turned.iter().for_each(|(_, turn)| b.push(Stmt::Alloc(turn.rows)));
    let (outputs, inputs): (Vec<_>, Vec<_>) = turned.into_iter().partition(|(role, _)| *role == Role::Output);
    inputs.iter().for_each(|(_, turn)| turn.to_rows(&mut b));
    product.into_iter().for_each(|stmt| b.push(stmt));
    outputs.iter().for_each(|(_, turn)| turn.to_planes(&mut b));
    b.finish()
}

impl<T: Template> ViaNhwc<T> {
    /// The convolution, and the workload in NHWC, if this template takes it.
    fn problem(&self, w: &Workload, t: &Target) -> Result<(Conv2d, Workload), String> {
        let gpu = device(t)?;
        let (c, nhwc) = in_nhwc(w)?;
        if c.kh * c.kw > gpu.grid_dim[1] {
            return Err(format!("for at most {} taps", gpu.grid_dim[1]));
        }
        if c.ci.max(c.co) > SIDE * gpu.grid_dim[1] {
            return Err(format!("for at most {} channels", SIDE * gpu.grid_dim[1]));
        }
        self.inner.applies(&nhwc, t)?;
        let tensors = [Role::Input, Role::Output].into_iter().filter_map(|role| Activations::of(&c, role));
        match tensors.map(|a| a.tried()).max() {
            Some(pixels) if pixels > MOST_TRIED => Err(format!("{pixels} pixels do not divide tiles")),
            _ => Ok((c, nhwc)),
        }
    }

    /// The same, as an error of a template.
    fn taken(&self, w: &Workload, t: &Target) -> Result<(Conv2d, Workload), TemplateError> {
        self.problem(w, t).map_err(TemplateError::Limit)
    }
}

impl<T: Template> Template for ViaNhwc<T> {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> u32 {
        100 * VERSION + self.inner.version()
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        self.problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        self.inner.space(&self.taken(w, t)?.1, t)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        self.inner.default_config(&self.taken(w, t)?.1, t)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (self.problem(w, t), device(t)) {
            (Ok((c, nhwc)), Ok(cuda)) => self.inner.cost(&nhwc, t, config) + model::us(w, &c, cuda),
            _ => f64::INFINITY,
        }
    }

    fn features(&self, w: &Workload, t: &Target, config: &Config) -> Vec<f64> {
        self.problem(w, t).map_or(vec![], |(_, nhwc)| self.inner.features(&nhwc, t, config))
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, nhwc) = self.taken(w, t)?;
        let made = self.inner.schedule(&nhwc, t, config)?;
        let kernel = made.schedule.kernel;
        let packs = weights::packs(made.packs, &kernel, w, &c)?;
        Ok(Scheduled { schedule: Schedule::new(around(kernel, w, &c)), packs })
    }
}
