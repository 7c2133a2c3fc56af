//! The list of templates.

use super::template::Template;
use super::{cpu, cuda, sketch};
use crate::target::Target;
use crate::workload::Workload;
use std::fmt;

/// The templates there are, in order. Where two are predicted to be equally fast, the first wins.
#[derive(Default)]
pub struct Registry {
    templates: Vec<Box<dyn Template>>,
    /// Whether these are the library's templates, all of them and no others.
    is_builtin: bool,
}

impl Registry {
    /// No templates.
    pub fn empty() -> Registry {
        Registry::default()
    }

    /// The templates that come with the library.
    pub fn builtin() -> Registry {
        let all = Registry::empty()
            .with(cpu::conv2d_direct::Conv2dDirect)
            .with(cpu::winograd::Conv2dWinograd)
            .with(cpu::conv2d_skip::Conv2dSkip)
            .with(cpu::conv2d_pixels::Conv2dPixels)
            .with(cpu::conv2d_pointwise::Conv2dPointwise)
            .with(cpu::conv2d_panels::Conv2dPanels)
            .with(cpu::matmul_packed::MatmulPacked)
            .with(cpu::matmul_dot::MatmulDot)
            .with(cpu::matmul_nbits::MatmulNbitsCpu)
            .with(cpu::depthwise_rows::DepthwiseRows)
            .with(cpu::depthwise_pointwise::DepthwisePointwiseBlock)
            .with(cpu::conv_planes::ConvPlanes)
            .with(cpu::attention_rows::AttentionRows)
            .with(cpu::integers::depthwise::DepthwiseIntegers)
            .with(cpu::integers::winograd::WinogradIntegers)
            .with(cpu::integers::tiles::IntegersTiles)
            .with(cpu::integers::IntegersCpu)
            .with(cpu::rows::RowsCpu)
            .with(cpu::windows::WindowsCpu)
            .with(cpu::resize::ResizeCpu)
            .with(sketch::SketchCpu)
            .with(cpu::plain::Plain)
            .with(cuda::wgmma::WgmmaGemm)
            .with(cuda::wgmma::WgmmaConv2d)
            .with(cuda::wgmma::WgmmaWindow)
            .with(cuda::mma::MmaGemm)
            .with(cuda::mma::MmaConv2d)
            .with(cuda::mma::MmaPlanes)
            .with(cuda::via_nhwc::ViaNhwc::wgmma_gemm())
            .with(cuda::via_nhwc::ViaNhwc::wgmma_conv2d())
            .with(cuda::via_nhwc::ViaNhwc::mma_conv2d())
            .with(cuda::split::SplitProduct)
            .with(cuda::split::SplitBf16)
            .with(cuda::split::SplitHalves)
            .with(cuda::splitk::SplitkDirect)
            .with(cuda::splitk::SplitkPair)
            .with(cuda::winograd::WinogradConv2d)
            .with(cuda::winograd::fused::WinogradFused)
            .with(cuda::pointwise::PointwiseRows)
            .with(cuda::stem::Conv2dStem)
            .with(cuda::simt::SimtGemm)
            .with(cuda::simt::SimtIntegers)
            .with(cuda::simt::SimtConv2d)
            .with(cuda::simt::SimtPlanes)
            .with(cuda::gemv::Gemv)
            .with(cuda::attention::AttentionWgmma)
            .with(cuda::attention::AttentionMma)
            .with(cuda::attention::AttentionSimt)
            .with(cuda::rows::Rows)
            .with(cuda::columns::Columns)
            .with(cuda::elements::ElementsCuda)
            .with(cuda::conv2d_no_batching::Conv2dNoBatching)
            .with(cuda::conv2d_hwcn::Conv2dHwcn)
            .with(cuda::conv2d_tensorcore::Conv2dTensorcore)
            .with(cuda::matmul_blocked::MatmulBlocked)
            .with(cuda::depthwise_direct::DepthwiseDirect)
            .with(cuda::depthwise::DepthwiseCuda)
            .with(cuda::matmul_notes::MatmulSplit)
            .with(cuda::matmul_notes::MatmulV1)
            .with(cuda::matmul_notes::MatmulV0)
            .with(sketch::SketchCuda)
            .with(cuda::plain::PlainCuda);
        Registry { is_builtin: true, ..all }
    }

    /// Whether these are the library's templates, all of them and no others.
    pub(crate) fn is_builtin(&self) -> bool {
        self.is_builtin
    }

    /// Adds a template at the end. One with the same name loses its place to it and is returned: that is how a
    /// built-in template is replaced.
    pub fn register(&mut self, template: impl Template + 'static) -> Option<Box<dyn Template>> {
        self.is_builtin = false;
        let old = self.templates.iter().position(|t| t.name() == template.name());
        let old = old.map(|i| self.templates.remove(i));
        self.templates.push(Box::new(template));
        old
    }

    /// The registry with one more template; see [`register`](Registry::register).
    pub fn with(mut self, template: impl Template + 'static) -> Registry {
        self.register(template);
        self
    }

    /// All templates.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &dyn Template> {
        self.templates.iter().map(|t| &**t)
    }

    /// The template of that name.
    pub fn find(&self, name: &str) -> Option<&dyn Template> {
        self.iter().find(|t| t.name() == name)
    }

    /// The templates that can run a workload on a target.
    pub fn applicable<'a>(
        &'a self,
        workload: &'a Workload,
        target: &'a Target,
    ) -> impl Iterator<Item = &'a dyn Template> {
        self.iter().filter(move |t| t.admits(workload, target).is_ok())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|t| format!("{} v{}", t.name(), t.version()))).finish()
    }
}
