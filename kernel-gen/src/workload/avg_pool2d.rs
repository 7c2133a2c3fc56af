//! The average of a window, as networks pool with it.

use super::max_pool2d::{self as pool, SIZES};
use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, check_sizes};
use super::param::product;
use super::products::Sums;
use super::stage::{Axis, Combine, Stage};
use super::{Conv2d, ConvLayout, Op, Role, Workload, WorkloadError, reference};
use crate::ir::{BinOp, DType, Expr};

/// The average of each window. A window as large as the input gives the global average of each channel.
///
/// ```text
/// y[n, c, oh, ow] = sum over kh, kw of x[n, c, oh*stride[0] + kh*dilation[0] - top, ow*stride[1] + kw*dilation[1] - left]
///                   / how many of these are inside of x, or kh*kw
///     where x is 0 outside of its bounds
/// ```
///
/// Input and output are `[n, c, h, w]` or as the layout has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AvgPool2d {
    /// The window's way over the input: that of a depthwise convolution of these sizes.
    pub window: Conv2d,
    /// Whether elements of the padding count, as zeros: `count_include_pad` of PyTorch and ONNX.
    pub count_padding: bool,
}

/// `avg_pool2d` in specs and keys.
pub(crate) static AVG_POOL2D: Kind = Kind {
    name: "avg_pool2d",
    pattern: "n{}c{}h{}w{}-k{}x{}-s{}x{}-p{}.{}.{}.{}-d{}x{}-{inside|padded}",
    sizes: &{
        let mut all = [Size::new("padded", "padded", SizeRole::Choice); 15];
        let mut i = 0;
        while i < SIZES.len() {
            all[i] = SIZES[i];
            i += 1;
        }
        all
    },
    layouts: &[ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn, ConvLayout::NchwC(16)],
    flags: &["count_include_pad"],
    between: &[],
    outputs: FLOATS,
    keys: pool::keys,
    read: |shared, values| {
        Ok(Op::AvgPool2d(AvgPool2d { window: pool::read(shared, values)?, count_padding: shared.flags[0] }))
    },
    of_sizes: |layout, sizes| {
        let (count_padding, sizes) = sizes.split_last()?;
        Some(Op::AvgPool2d(AvgPool2d { window: pool::of_sizes(layout, sizes)?, count_padding: *count_padding == 1 }))
    },
    guilty: pool::guilty,
};

impl Operator for AvgPool2d {
    fn kind(&self) -> &'static Kind {
        &AVG_POOL2D
    }

    fn sizes(&self) -> Vec<i64> {
        [pool::sizes(&self.window), vec![self.count_padding.into()]].concat()
    }

    fn layout(&self) -> Option<ConvLayout> {
        Some(self.window.layout)
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        pool::check_window(&self.window)
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.window.input_shape())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", pool::axes(&self.window))
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        self.window.inner_tensors()
    }

    fn terms(&self) -> i64 {
        product(&[self.window.kh, self.window.kw])
    }

    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        pool::stages(&self.window, dtype, sums, Combine::Sum, 0.0)
    }

    /// A sum of `n` terms is rounded `n - 1` times, and its division once: as often as a sum of `n` products.
    fn finish(&self, sum: Expr, index: &[Expr]) -> Expr {
        let c = &self.window;
        let place = |name| pool::axes(c).iter().position(|axis| axis.name == name).map(|at| index[at].clone());
        let along = |name, i: usize, taps: i64| match self.count_padding {
            true => Expr::Int(taps),
            false => pool::windows(c).inside(i, place(name).expect("an output has pixels")),
        };
        let count = along("oh", 0, c.kh) * along("ow", 1, c.kw);
        let count = match count.as_int() {
            Some(count) => Expr::f32(count as f64),
            None => Expr::Cast(DType::F32, Box::new(count)),
        };
        Expr::bin(BinOp::Div, sum, count)
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::averages_of_windows(&self.window, self.count_padding, inputs[0])
    }
}
