//! The average of a window, as networks pool with it.

use super::max_pool2d::{self as pool, SIZES};
use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, check_sizes};
use super::param::product;
use super::products::Sums;
use super::stage::{Axis, Combine, Stage};
use super::windows::Windows;
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
    /// Rows and columns of the padding, below and on the right, that do not count all the same: those that only make the last windows
    /// whole where their number is rounded up.
    pub beyond: [i64; 2],
}

/// `avg_pool2d` in specs and keys.
pub(crate) static AVG_POOL2D: Kind = Kind {
    name: "avg_pool2d",
    pattern: "n{}c{}h{}w{}-k{}x{}-s{}x{}-p{}.{}.{}.{}-d{}x{}-{inside|padded|rounded_up}",
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
    flags: &["count_include_pad", pool::CEIL],
    between: &[],
    outputs: FLOATS,
    keys: pool::keys,
    read: |shared, values| {
        let window = pool::read(shared, values)?;
        Ok(Op::AvgPool2d(AvgPool2d::new(window, shared.has("count_include_pad"), shared.has(pool::CEIL))))
    },
    of_sizes: |layout, sizes| {
        let (count, sizes) = sizes.split_last()?;
        Some(Op::AvgPool2d(AvgPool2d::new(pool::of_sizes(layout, sizes)?, *count > 0, *count == 2)))
    },
    guilty: pool::guilty,
};

impl AvgPool2d {
    /// The average of windows over an input with this padding. `count_padding` counts its elements, and `round_up` the number of windows
    /// up: the last ones may go beyond the padding, where nothing counts.
    pub fn new(window: Conv2d, count_padding: bool, round_up: bool) -> AvgPool2d {
        let whole = if round_up { pool::rounded_up(&window) } else { window };
        let beyond =
            std::array::from_fn(|i| if count_padding { whole.padding[2 + i] - window.padding[2 + i] } else { 0 });
        AvgPool2d { window: whole, count_padding, beyond }
    }
}

impl AvgPool2d {
    /// The windows over what counts.
    pub(super) fn counted(&self) -> Windows {
        let windows = pool::windows(&self.window);
        let [below, right] = self.beyond;
        if self.count_padding { windows.over_padding([below, right, 0]) } else { windows }
    }
}

impl Operator for AvgPool2d {
    fn kind(&self) -> &'static Kind {
        &AVG_POOL2D
    }

    fn sizes(&self) -> Vec<i64> {
        let [top, left, bottom, right] = self.window.padding;
        let padding = [top, left, bottom - self.beyond[0], right - self.beyond[1]];
        let count = if self.beyond == [0; 2] { self.count_padding.into() } else { 2 };
        [pool::sizes(&Conv2d { padding, ..self.window }), vec![count]].concat()
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
        let counted = self.counted();
        let along = |name, i: usize| counted.inside(i, place(name).expect("an output has pixels"));
        let count = along("oh", 0) * along("ow", 1);
        let count = match count.as_int() {
            Some(count) => Expr::f32(count as f64),
            None => Expr::Cast(DType::F32, Box::new(count)),
        };
        Expr::bin(BinOp::Div, sum, count)
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::averages_of_windows(self, inputs[0])
    }
}
