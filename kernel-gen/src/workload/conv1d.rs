//! One-dimensional convolution, grouped and depthwise included.

use super::operator::{FLOATS, Fault, Kind, OfBytes, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::param::product;
use super::products::Sums;
use super::stage::{Axis, AxisRole, Combine, Loops, Padded, Stage, input, result};
use super::{Op, Role, Workload, WorkloadError, conv2d, reference};
use crate::ir::{DType, Expr};

/// A convolution along one axis (the kernel is not flipped), in the order that PyTorch and ONNX have:
///
/// ```text
/// y[n, o, ow] = sum over c, k of x[n, g*ci/groups + c, ow*stride + k*dilation - left] * w[o, c, k]
///     where g = o / (co/groups), and x is 0 outside of its bounds
/// ```
///
/// The input is `[n, ci, w]`, the weight `[co, ci/groups, k]`, the output `[n, co, ow]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Conv1d {
    /// Batch.
    pub n: i64,
    /// Input channels.
    pub ci: i64,
    /// Input length.
    pub w: i64,
    /// Output channels.
    pub co: i64,
    /// Taps of the kernel.
    pub k: i64,
    /// Step of the window.
    pub stride: i64,
    /// Zeros around the input: left, right.
    pub padding: [i64; 2],
    /// Distance between the kernel's taps.
    pub dilation: i64,
    /// Number of independent groups of channels.
    pub groups: i64,
}

impl Conv1d {
    /// Length of the input with its padding.
    pub fn padded_w(&self) -> i64 {
        self.w.saturating_add(self.padding[0]).saturating_add(self.padding[1])
    }

    /// Elements that the dilated kernel spans.
    pub fn span(&self) -> i64 {
        conv2d::span(self.k, self.dilation)
    }

    /// Output length.
    pub fn ow(&self) -> i64 {
        (self.padded_w() - self.span()) / self.stride + 1
    }
}

/// `conv1d` in specs and keys.
pub(crate) static CONV1D: Kind = Kind {
    name: "conv1d",
    pattern: "n{}c{}w{}-o{}k{}-s{}-p{}.{}-d{}-g{}",
    sizes: &[
        Size::new("n", "n (the batch)", SizeRole::Images),
        Size::new("ci", "ci (the input channels)", SizeRole::Channels),
        Size::new("w", "w (the input length)", SizeRole::Extent),
        Size::new("co", "co (the output channels)", SizeRole::Channels),
        Size::new("k", "k (the kernel's taps)", SizeRole::Taps),
        Size::new("stride", "the stride", SizeRole::Stride),
        Size::new("left", "left", SizeRole::Padding),
        Size::new("right", "right", SizeRole::Padding),
        Size::new("dilation", "the dilation", SizeRole::Dilation),
        Size::new("groups", "groups", SizeRole::Groups),
    ],
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| {
        vec![
            SpecKey::required("input", &[3], "[n, ci, w]"),
            SpecKey::required("weight", &[3], "[co, ci/groups, k]"),
            SpecKey::optional("stride", &[]),
            SpecKey::optional("padding", &[2]),
            SpecKey::optional("dilation", &[]),
            SpecKey::optional("groups", &[]),
        ]
    },
    read: |_, values| {
        let (input, weight) = (values.shape::<3>("input"), values.shape::<3>("weight"));
        let ([n, ci, w], [co, per_group, k]) = (input, weight);
        let [stride, dilation, groups] =
            ["stride", "dilation", "groups"].map(|key| values.get(key).map_or(1, |v| v[0]));
        let padding = values.get("padding").map_or([0; 2], |p| [p[0], p[1]]);
        if per_group.checked_mul(groups) != Some(ci) {
            let cause =
                format!("the weight takes {per_group} channels in each of {groups} groups, but the input has {ci}");
            return Err(Fault::new("weight", cause, "write weight = [co, ci/groups, k]"));
        }
        Ok(Op::Conv1d(Conv1d { n, ci, w, co, k, stride, padding, dilation, groups }))
    },
    of_sizes: |_, sizes| {
        let [n, ci, w, co, k, stride, left, right, dilation, groups] = *sizes else { return None };
        Some(Op::Conv1d(Conv1d { n, ci, w, co, k, stride, padding: [left, right], dilation, groups }))
    },
    guilty: conv2d::guilty_key,
};

impl Operator for Conv1d {
    fn kind(&self) -> &'static Kind {
        &CONV1D
    }

    fn sizes(&self) -> Vec<i64> {
        let Conv1d { n, ci, w, co, k, stride, padding: [left, right], dilation, groups } = *self;
        vec![n, ci, w, co, k, stride, left, right, dilation, groups]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        for (which, channels) in [("input", self.ci), ("output", self.co)] {
            if channels % self.groups != 0 {
                return Err(WorkloadError::GroupsDoNotDivide { groups: self.groups, which, channels });
            }
        }
        let (kernel, padded) = (self.span(), self.padded_w());
        if kernel > padded { Err(WorkloadError::KernelTooLarge { axis: "length", kernel, padded }) } else { Ok(()) }
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![
            Operand::new("x", Role::Input, vec![self.n, self.ci, self.w]),
            Operand::new("w", Role::Weight, vec![self.co, self.ci / self.groups, self.k]),
        ]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        let (n, co, ow) = (self.n, self.co, self.ow());
        use AxisRole::{Batch, Channel, Space};
        ("y", vec![Axis::new("n", n, Batch), Axis::new("co", co, Channel), Axis::new("ow", ow, Space)])
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![("the padded input", vec![self.n, self.ci, self.padded_w()])]
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Sums
    }

    fn terms(&self) -> i64 {
        product(&[self.ci / self.groups, self.k])
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        let (per_group, co_per_group) = (self.ci / self.groups, self.co / self.groups);
        let mut stages = vec![];
        let mut x = input(0);
        if self.padding != [0; 2] {
            let whole = |name, extent| Padded { name, extent, padding: [0; 2] };
            let last = Padded { name: "w_pad", extent: self.padded_w(), padding: self.padding };
            stages.push(Stage::pad(dtype, x, &[whole("n_pad", self.n), whole("ci_pad", self.ci), last], 0.0));
            x = result(0);
        }
        // A loop over one group, or over one channel, is left out.
        let all = [
            ("n", self.n),
            ("g", self.groups),
            ("co", co_per_group),
            ("ow", self.ow()),
            ("ci", per_group),
            ("k", self.k),
        ];
        let kept = |(name, extent): &(&str, i64)| *extent > 1 || !["g", "ci"].contains(name);
        let loops: Vec<(&'static str, i64)> = all.into_iter().filter(kept).collect();
        let named = Loops(&loops);
        let var = |name: &str| named.get(name);
        let channel = var("g") * co_per_group + var("co");
        let source =
            vec![var("n"), var("g") * per_group + var("ci"), var("ow") * self.stride + var("k") * self.dilation];
        stages.push(Stage {
            name: "acc",
            dtype: sums,
            shape: vec![self.n, self.co, self.ow()],
            reduce: loops.iter().filter(|(name, _)| ["ci", "k"].contains(name)).count(),
            combine: Combine::Sum,
            index: vec![var("n"), channel.clone(), var("ow")],
            value: Expr::load(x, source) * Expr::load(input(1), vec![channel, var("ci"), var("k")]),
            loops,
        });
        stages
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::convolve_1d(self, inputs[0], inputs[1])
    }
}
