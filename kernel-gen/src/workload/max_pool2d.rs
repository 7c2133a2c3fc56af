//! The maximum of a window, as networks pool with it, and what pooling operators share.

use super::operator::{
    FLOATS, Fault, Kind, OfBytes, Operand, Operator, Shared, Size, SizeRole, SpecKey, Values, check_sizes,
};
use super::param::product;
use super::products::Sums;
use super::stage::{Axis, Combine, Stage, axis};
use super::windows::Windows;
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
    sizes: &SIZES,
    layouts: &[ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn, ConvLayout::NchwC(16)],
    flags: &[CEIL],
    between: &[],
    outputs: FLOATS,
    keys,
    read: |shared, values| {
        let window = read(shared, values)?;
        Ok(Op::MaxPool2d(MaxPool2d { window: if shared.has(CEIL) { rounded_up(&window) } else { window } }))
    },
    of_sizes: |layout, sizes| Some(Op::MaxPool2d(MaxPool2d { window: of_sizes(layout, sizes)? })),
    guilty,
};

/// The flag of pooling whose number of windows is rounded up.
pub(super) const CEIL: &str = "ceil_mode";

/// The window with more padding behind, so that as many windows are whole as there are when their number is rounded up.
pub(super) fn rounded_up(window: &Conv2d) -> Conv2d {
    let [top, left, ..] = window.padding;
    let [bottom, right, _] = windows(window).rounded_up().after;
    Conv2d { padding: [top, left, bottom, right], ..*window }
}

/// The sizes of a pooling operator.
pub(super) const SIZES: [Size; 14] = [
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
];

/// The spec keys of one.
pub(super) fn keys(shared: &Shared) -> Vec<SpecKey> {
    let mut keys = conv2d::keys(shared);
    keys.retain(|key| !["weight", "groups"].contains(&key.name));
    keys.insert(1, SpecKey::required("window", &[2], "[kh, kw]"));
    keys
}

/// The window that a spec asks for.
pub(super) fn read(shared: &Shared, values: &Values) -> Result<Conv2d, Fault> {
    let [n, c, h, w] = conv2d::activation(shared.layout, "input", values.get("input").unwrap_or_default())?;
    let [kh, kw] = values.shape("window");
    let ([sh, sw], [dh, dw]) = (values.sides("stride"), values.sides("dilation"));
    let [top, left, bottom, right] = values.padding();
    let sizes = [n, c, h, w, kh, kw, sh, sw, top, left, bottom, right, dh, dw];
    Ok(of_sizes(shared.layout, &sizes).expect("these are all sizes"))
}

/// The window of these sizes.
pub(super) fn of_sizes(layout: ConvLayout, sizes: &[i64]) -> Option<Conv2d> {
    let [n, ci, h, w, kh, kw, sh, sw, top, left, bottom, right, dh, dw] = *sizes else { return None };
    let (stride, padding, dilation) = ([sh, sw], [top, left, bottom, right], [dh, dw]);
    Some(Conv2d { layout, n, ci, h, w, co: ci, kh, kw, stride, padding, dilation, groups: ci })
}

/// The sizes of a window.
pub(super) fn sizes(window: &Conv2d) -> Vec<i64> {
    let Conv2d { n, ci, h, w, kh, kw, stride: s, padding: p, dilation: d, .. } = *window;
    vec![n, ci, h, w, kh, kw, s[0], s[1], p[0], p[1], p[2], p[3], d[0], d[1]]
}

/// The key that is to blame for an error.
pub(super) fn guilty(error: &WorkloadError) -> &'static str {
    match conv2d::guilty_key(error) {
        "weight" => "window",
        key => key,
    }
}

/// Refuses a window that may lie beside the input, where it would have no element at all.
pub(super) fn check_window(window: &Conv2d) -> Result<(), WorkloadError> {
    window.validate()?;
    windows(window).check_elements()
}

/// The window's way over height and width.
pub(super) fn windows(c: &Conv2d) -> Windows {
    let [top, left, bottom, right] = c.padding;
    Windows::new([&[c.h, c.w], &[c.kh, c.kw], &c.stride, &[top, left], &[bottom, right], &c.dilation])
}

/// The axes of the output.
pub(super) fn axes(c: &Conv2d) -> Vec<Axis> {
    c.layout.axes(["n", "c", "oh", "ow", "n_in", "c_in"], [c.n, c.ci, c.oh(), c.ow()])
}

/// The elements of each window combined, with `outside` around the input.
pub(super) fn stages(c: &Conv2d, dtype: DType, sums: DType, combine: Combine, outside: f64) -> Vec<Stage> {
    let (axes, mut stages) = (axes(c), vec![]);
    let x = conv2d::pad_before(c, dtype, outside, &mut stages);
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
        combine,
        index: (0..axes.len()).map(|i| Expr::from(axis(i))).collect(),
        value: Expr::load(x, source.collect()),
    });
    stages
}

impl Operator for MaxPool2d {
    fn kind(&self) -> &'static Kind {
        &MAX_POOL2D
    }

    fn sizes(&self) -> Vec<i64> {
        sizes(&self.window)
    }

    fn layout(&self) -> Option<ConvLayout> {
        Some(self.window.layout)
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        check_window(&self.window)
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.window.input_shape())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", axes(&self.window))
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        self.window.inner_tensors()
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Moves
    }

    fn terms(&self) -> i64 {
        product(&[self.window.kh, self.window.kw])
    }

    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        stages(&self.window, dtype, sums, Combine::Max, f64::NEG_INFINITY)
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::largest_of_windows(&self.window, inputs[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_without_an_element_is_refused() {
        let pool = |h: i64, padding: i64, dilation: i64, stride: i64| {
            let sizes = [1, 1, h, 4, 3, 1, stride, 1, padding, 0, padding, 0, dilation, 1];
            check_window(&of_sizes(ConvLayout::Nchw, &sizes).unwrap())
        };
        // Taps at -3, -1 and 1 of one row, and at -2, 0 and 2.
        assert!(pool(1, 3, 2, 1).unwrap_err().to_string().contains("lie on both sides of the 1 pixels"));
        assert_eq!(pool(1, 2, 2, 4), Ok(()));
        assert_eq!(pool(2, 2, 2, 1), Ok(()));
        assert!(pool(2, 3, 2, 1).is_ok() && pool(2, 5, 2, 1).is_err());
    }
}
