//! The maximum of a window, as networks pool with it.

use super::operator::{Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::param::product;
use super::products::Sums;
use super::stage::{Axis, Combine, Stage, axis};
use super::{Conv2d, ConvLayout, Op, Role, Workload, WorkloadError, conv2d, reference};
use crate::ir::{DType, Expr};

/// The largest element of each window. A window that has a NaN gives NaN, as in PyTorch and in ONNX.
///
/// ```text
/// y[n, c, oh, ow] = max over kh, kw of x[n, c, oh*stride[0] + kh*dilation[0] - top, ow*stride[1] + kw*dilation[1] - left]
///     where x is minus infinity outside of its bounds
/// ```
///
/// Input and output are `[n, c, h, w]` or as the layout has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MaxPool2d {
    /// The window's way over the input: that of a depthwise convolution of these sizes.
    pub window: Conv2d,
}

/// `max_pool2d` in specs and keys.
pub(crate) static MAX_POOL2D: Kind = Kind {
    name: "max_pool2d",
    pattern: "n{}c{}h{}w{}-k{}x{}-s{}x{}-p{}.{}.{}.{}-d{}x{}",
    sizes: &[
        Size::new("n", "n (the batch)", SizeRole::Images),
        Size::new("c", "c (the channels)", SizeRole::Channels),
        Size::new("h", "h (the input height)", SizeRole::Extent),
        Size::new("w", "w (the input width)", SizeRole::Extent),
        Size::new("kh", "kh (the window's height)", SizeRole::Taps),
        Size::new("kw", "kw (the window's width)", SizeRole::Taps),
        Size::new("stride_h", "the vertical stride", SizeRole::Stride),
        Size::new("stride_w", "the horizontal stride", SizeRole::Stride),
        Size::new("top", "top", SizeRole::Padding),
        Size::new("left", "left", SizeRole::Padding),
        Size::new("bottom", "bottom", SizeRole::Padding),
        Size::new("right", "right", SizeRole::Padding),
        Size::new("dilation_h", "the vertical dilation", SizeRole::Dilation),
        Size::new("dilation_w", "the horizontal dilation", SizeRole::Dilation),
    ],
    layouts: &[ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn, ConvLayout::NchwC(16)],
    flags: &[],
    between: &[],
    keys: |shared| {
        let mut keys = conv2d::keys(shared);
        keys.retain(|key| !["weight", "groups"].contains(&key.name));
        keys.insert(1, SpecKey::required("window", &[2], "[kh, kw]"));
        keys
    },
    read: |shared, values| {
        let [n, c, h, w] = conv2d::activation(shared.layout, "input", values.get("input").unwrap_or_default())?;
        let [kh, kw] = values.shape("window");
        let ([sh, sw], [dh, dw]) = (values.sides("stride"), values.sides("dilation"));
        let [top, left, bottom, right] = values.padding();
        let sizes = [n, c, h, w, kh, kw, sh, sw, top, left, bottom, right, dh, dw];
        Ok(Op::MaxPool2d(of_sizes(shared.layout, sizes)))
    },
    of_sizes: |layout, sizes| Some(Op::MaxPool2d(of_sizes(layout, sizes.try_into().ok()?))),
    guilty: |error| match conv2d::guilty_key(error) {
        "weight" => "window",
        key => key,
    },
};

fn of_sizes(layout: ConvLayout, sizes: [i64; 14]) -> MaxPool2d {
    let [n, ci, h, w, kh, kw, sh, sw, top, left, bottom, right, dh, dw] = sizes;
    let (stride, padding, dilation) = ([sh, sw], [top, left, bottom, right], [dh, dw]);
    MaxPool2d { window: Conv2d { layout, n, ci, h, w, co: ci, kh, kw, stride, padding, dilation, groups: ci } }
}

impl Operator for MaxPool2d {
    fn kind(&self) -> &'static Kind {
        &MAX_POOL2D
    }

    fn sizes(&self) -> Vec<i64> {
        let Conv2d { n, ci, h, w, kh, kw, stride: s, padding: p, dilation: d, .. } = self.window;
        vec![n, ci, h, w, kh, kw, s[0], s[1], p[0], p[1], p[2], p[3], d[0], d[1]]
    }

    fn layout(&self) -> Option<ConvLayout> {
        Some(self.window.layout)
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        self.window.validate()?;
        let [top, left, bottom, right] = self.window.padding;
        let (span_h, span_w) = (self.window.span_h(), self.window.span_w());
        // A window beside the input would have no element at all.
        if top.max(bottom) >= span_h || left.max(right) >= span_w {
            let cause = format!("the padding is as large as the window of {span_h} x {span_w}");
            return Err(WorkloadError::Sizes {
                cause,
                help: "the padding must be smaller than the window with its dilation",
            });
        }
        Ok(())
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.window.input_shape())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        let c = &self.window;
        ("y", c.layout.axes(["n", "c", "oh", "ow", "n_in", "c_in"], [c.n, c.ci, c.oh(), c.ow()]))
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
        let (c, axes) = (&self.window, self.output().1);
        let mut stages = vec![];
        let x = conv2d::pad_before(c, dtype, f64::NEG_INFINITY, &mut stages);
        let (kh, kw) = (axis(axes.len()), axis(axes.len() + 1));
        let source = axes.iter().enumerate().map(|(i, a)| match a.name {
            "oh" => axis(i) * c.stride[0] + kh * c.dilation[0],
            "ow" => axis(i) * c.stride[1] + kw * c.dilation[1],
            _ => axis(i).into(),
        });
        stages.push(Stage {
            name: "acc",
            dtype: sums,
            shape: c.output_shape(),
            loops: axes.iter().map(|a| (a.name, a.extent)).chain([("kh", c.kh), ("kw", c.kw)]).collect(),
            reduce: 2,
            combine: Combine::Max,
            index: (0..axes.len()).map(|i| Expr::from(axis(i))).collect(),
            value: Expr::load(x, source.collect()),
        });
        stages
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::largest_of_windows(&self.window, inputs[0])
    }
}
