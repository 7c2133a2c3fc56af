//! Convolutions over three dimensions, and transposed convolutions over one to three.

use super::operator::{FLOATS, Fault, Kind, OfBytes, Operand, Operator, Size, SizeRole, SpecKey, Values, check_sizes};
use super::param::product;
use super::products::Sums;
use super::stage::{Axis, AxisRole, Combine, Loops, Padded, Stage, axis, input, result};
use super::windows::{Windows, array, between, each, keys, sizes};
use super::{Op, Role, Workload, WorkloadError, conv2d, reference};
use crate::ir::{DType, Expr};

/// A convolution (the kernel is not flipped) or a transposed one, in the order that PyTorch and ONNX have. `i` and `o` are the
/// places of a pixel of input and output along each dimension:
///
/// | | sum over the channels of a group and the taps `k` of | weight |
/// |---|---|---|
/// | convolution | `x[n, c, o*stride + k*dilation - before] * w[co, c, k]` | `[co, ci/groups, taps..]` |
/// | transposed | `x[n, c, i] * w[c, co, k]` where `o = i*stride + k*dilation - before` | `[ci, co/groups, taps..]` |
///
/// The input is `[n, ci, pixels..]`, the output `[n, co, pixels..]`; `x` is 0 outside of its bounds. A transposed convolution is the
/// convolution, with steps of 1 and the taps in reverse, of its input with `stride - 1` zeros between pixels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConvNd {
    /// Batch.
    pub n: i64,
    /// Input channels.
    pub ci: i64,
    /// Output channels.
    pub co: i64,
    /// The windows' way over the input, or, of a transposed convolution, over the output.
    pub windows: Windows,
    /// Number of independent groups of channels.
    pub groups: i64,
    /// Of a transposed convolution the pixels that its output has more along each dimension: which of the sizes it is that the
    /// stride rounds to that of the input.
    pub transposed: Option<[i64; 3]>,
}

const N: Size = Size::new("n", "n (the batch)", SizeRole::Images);
const CI: Size = Size::new("ci", "ci (the input channels)", SizeRole::Channels);
const CO: Size = Size::new("co", "co (the output channels)", SizeRole::Channels);
const GROUPS: Size = Size::new("groups", "groups", SizeRole::Groups);
const MORE: Size = Size::new("output_padding", "output_padding", SizeRole::Padding);

/// A kind of a convolution over some dimensions.
macro_rules! kind {
    ($name:literal, $rank:literal, $transposed:literal, $pattern:literal, $input:literal, $weight:literal) => {
        Kind {
            name: $name,
            pattern: $pattern,
            sizes: &{
                const BEHIND: &[Size] = if $transposed { &[MORE, MORE, MORE, GROUPS] } else { &[GROUPS] };
                const FIRST: usize = if $transposed { 3 - $rank } else { 0 };
                const BEHIND_COUNT: usize = if $transposed { $rank + 1 } else { 1 };
                between::<{ 3 + 6 * $rank + BEHIND_COUNT }>(
                    &[N, CI, CO],
                    &sizes::<{ 6 * $rank }>($rank),
                    BEHIND.split_at(FIRST).1,
                )
            },
            layouts: &[],
            flags: &[],
            between: &[],
            outputs: FLOATS,
            keys: |_| {
                let mut all = vec![
                    SpecKey::required("input", &[$rank + 2], $input),
                    SpecKey::required("weight", &[$rank + 2], $weight),
                    SpecKey::optional("groups", &[]),
                ];
                all.extend(keys($rank));
                all.extend($transposed.then(|| each("output_padding", $rank)));
                all
            },
            read: |_, values| read(values, $transposed),
            of_sizes: |_, numbers| of_sizes($rank, $transposed, numbers),
            guilty,
        }
    };
}

/// `conv3d` in specs and keys.
pub(crate) static CONV3D: Kind = kind!(
    "conv3d",
    3,
    false,
    "n{}c{}o{}-{}x{}x{}-k{}x{}x{}-s{}x{}x{}-p{}.{}.{}.{}.{}.{}-d{}x{}x{}-g{}",
    "[n, ci, d, h, w]",
    "[co, ci/groups, kd, kh, kw]"
);

/// `conv_transpose1d`.
pub(crate) static CONV_TRANSPOSE1D: Kind =
    kind!("conv_transpose1d", 1, true, "n{}c{}o{}-{}-k{}-s{}-p{}.{}-d{}-e{}-g{}", "[n, ci, w]", "[ci, co/groups, k]");

/// `conv_transpose2d`.
pub(crate) static CONV_TRANSPOSE2D: Kind = kind!(
    "conv_transpose2d",
    2,
    true,
    "n{}c{}o{}-{}x{}-k{}x{}-s{}x{}-p{}.{}.{}.{}-d{}x{}-e{}x{}-g{}",
    "[n, ci, h, w]",
    "[ci, co/groups, kh, kw]"
);

/// `conv_transpose3d`.
pub(crate) static CONV_TRANSPOSE3D: Kind = kind!(
    "conv_transpose3d",
    3,
    true,
    "n{}c{}o{}-{}x{}x{}-k{}x{}x{}-s{}x{}x{}-p{}.{}.{}.{}.{}.{}-d{}x{}x{}-e{}x{}x{}-g{}",
    "[n, ci, d, h, w]",
    "[ci, co/groups, kd, kh, kw]"
);

fn read(values: &Values, transposed: bool) -> Result<Op, Fault> {
    let list = |key| values.get(key).expect("a key that must be there");
    let ([n, ci, pixels @ ..], [first, second, taps @ ..]) = (list("input"), list("weight")) else {
        unreachable!("the numbers of dimensions were checked")
    };
    let groups = values.get("groups").map_or(1, |groups| groups[0]);
    let windows = Windows::read(values, pixels, taps);
    let more = transposed.then(|| array(values.get("output_padding").unwrap_or_default(), 0));
    let fits = if transposed { first == ci } else { second.checked_mul(groups) == Some(*ci) };
    if !fits {
        let cause = match transposed {
            true => format!("the weight takes {first} channels, but the input has {ci}"),
            false => format!("the weight takes {second} channels in each of {groups} groups, but the input has {ci}"),
        };
        let shape = if transposed { "[ci, co/groups, taps..]" } else { "[co, ci/groups, taps..]" };
        return Err(Fault::new("weight", cause, format!("write weight = {shape}")));
    }
    let co = if transposed { second.saturating_mul(groups) } else { *first };
    Ok(Op::ConvNd(ConvNd { n: *n, ci: *ci, co, windows, groups, transposed: more }))
}

fn of_sizes(rank: usize, transposed: bool, numbers: &[i64]) -> Option<Op> {
    let ([n, ci, co, rest @ ..], groups) = (numbers, *numbers.last()?) else { return None };
    let (windows, more) = rest.split_at_checked(6 * rank)?;
    let transposed = transposed.then(|| array(&more[..more.len() - 1], 0));
    Some(Op::ConvNd(ConvNd { n: *n, ci: *ci, co: *co, windows: Windows::of_sizes(rank, windows)?, groups, transposed }))
}

fn guilty(error: &WorkloadError) -> &'static str {
    match error {
        WorkloadError::NegativePadding { side: "output_padding", .. } | WorkloadError::Sizes { .. } => "output_padding",
        WorkloadError::NotPositive { size, .. } if size.contains("window") || size.starts_with("co") => "weight",
        error => conv2d::guilty_key(error),
    }
}

impl ConvNd {
    /// Pixels of the output along a dimension.
    pub fn output(&self, i: usize) -> i64 {
        let w = &self.windows;
        match self.transposed {
            None => w.windows(i),
            Some(more) => (w.pixels[i] - 1)
                .saturating_mul(w.stride[i])
                .saturating_sub(w.before[i].saturating_add(w.after[i]))
                .saturating_add(w.span(i))
                .saturating_add(more[i]),
        }
    }

    /// Pixels of the padded input along a dimension, of a transposed convolution with the zeros between them.
    fn padded(&self, i: usize) -> i64 {
        match self.transposed {
            None => self.windows.padded(i),
            Some(_) => self.output(i).saturating_add(self.windows.span(i) - 1),
        }
    }

    /// The stage that pads the input, if there is any need.
    fn pad(&self, dtype: DType) -> Option<Stage> {
        const NAMES: [&str; 3] = ["p0_pad", "p1_pad", "p2_pad"];
        let w = &self.windows;
        let images =
            [("n_pad", self.n), ("ci_pad", self.ci)].map(|(name, extent)| Padded { name, extent, padding: [0; 2] });
        let along = |i: usize| Padded { name: NAMES[i], extent: self.padded(i), padding: [w.before[i], w.after[i]] };
        let axes: Vec<Padded> = images.into_iter().chain(w.dimensions().map(along)).collect();
        if self.transposed.is_none() {
            let padded = axes.iter().any(|axis| axis.padding != [0; 2]);
            return padded.then(|| Stage::pad(dtype, input(0), &axes, 0.0));
        }
        let (mut source, mut inside) = (vec![axis(0).into(), axis(1).into()], vec![]);
        for i in w.dimensions() {
            let from = axis(i + 2) + (w.before[i] - (w.span(i) - 1));
            // Bounds are those of the index itself, which is what they are needed for.
            let at = from.clone().floor_div(w.stride[i]);
            inside.push(Expr::Int(0).le(at.clone()).and(at.clone().lt(w.pixels[i])));
            if w.stride[i] > 1 {
                inside.push(from.floor_mod(w.stride[i]).eq(Expr::Int(0)));
            }
            source.push(at);
        }
        let value = Expr::load(input(0), source);
        Some(Stage {
            name: "pad",
            dtype,
            shape: axes.iter().map(|axis| axis.extent).collect(),
            loops: axes.iter().map(|axis| (axis.name, axis.extent)).collect(),
            reduce: 0,
            combine: Combine::One,
            index: (0..axes.len()).map(|i| axis(i).into()).collect(),
            value: Expr::all(inside)
                .expect("every dimension has bounds")
                .select(value, Expr::Float(0.0, dtype.compute())),
        })
    }

    fn with_pixels(&self, first: i64, second: i64, pixels: impl Fn(usize) -> i64) -> Vec<i64> {
        [first, second].into_iter().chain(self.windows.dimensions().map(pixels)).collect()
    }
}

impl Operator for ConvNd {
    fn kind(&self) -> &'static Kind {
        match (self.transposed, self.windows.rank) {
            (None, _) => &CONV3D,
            (Some(_), 1) => &CONV_TRANSPOSE1D,
            (Some(_), 2) => &CONV_TRANSPOSE2D,
            (Some(_), _) => &CONV_TRANSPOSE3D,
        }
    }

    fn sizes(&self) -> Vec<i64> {
        let more = self.transposed.iter().flat_map(|more| &more[..self.windows.rank]).copied();
        let first = [self.n, self.ci, self.co].into_iter().chain(self.windows.sizes());
        first.chain(more).chain([self.groups]).collect()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        for (which, channels) in [("input", self.ci), ("output", self.co)] {
            if channels % self.groups != 0 {
                return Err(WorkloadError::GroupsDoNotDivide { groups: self.groups, which, channels });
            }
        }
        let Some(more) = self.transposed else { return self.windows.check() };
        for i in self.windows.dimensions() {
            if self.output(i) < 1 {
                let cause = format!("the output has {} pixels along dimension {}", self.output(i), i + 2);
                return Err(WorkloadError::Sizes {
                    cause,
                    help: "padding takes pixels off the output: it must leave some",
                });
            }
            // PyTorch's and ONNX's limit: more would be pixels that no stride rounds away.
            if more[i] >= self.windows.stride[i].max(self.windows.dilation[i]) {
                let cause = format!("`output_padding` is {} along dimension {}", more[i], i + 2);
                return Err(WorkloadError::Sizes { cause, help: "it must be smaller than the stride or the dilation" });
            }
        }
        Ok(())
    }

    fn inputs(&self) -> Vec<Operand> {
        let (outer, inner) = match self.transposed {
            None => (self.co, self.ci / self.groups),
            Some(_) => (self.ci, self.co / self.groups),
        };
        vec![
            Operand::new("x", Role::Input, self.with_pixels(self.n, self.ci, |i| self.windows.pixels[i])),
            Operand::new("w", Role::Weight, self.with_pixels(outer, inner, |i| self.windows.taps[i])),
        ]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        const NAMES: [&str; 3] = ["o0", "o1", "o2"];
        let pixels = self.windows.dimensions().map(|i| Axis::new(NAMES[i], self.output(i), AxisRole::Space));
        let first = [Axis::new("n", self.n, AxisRole::Batch), Axis::new("co", self.co, AxisRole::Channel)];
        ("y", first.into_iter().chain(pixels).collect())
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![("the padded input", self.with_pixels(self.n, self.ci, |i| self.padded(i)))]
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Sums
    }

    fn terms(&self) -> i64 {
        product(&[&[self.ci / self.groups], &self.windows.taps[..]].concat())
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        const OUTER: [&str; 3] = ["o0", "o1", "o2"];
        const TAPS: [&str; 3] = ["k0", "k1", "k2"];
        let (w, mut stages) = (&self.windows, vec![]);
        let (per_group, co_per_group) = (self.ci / self.groups, self.co / self.groups);
        stages.extend(self.pad(dtype));
        let x = if stages.is_empty() { input(0) } else { result(0) };
        // A loop over one group, or over one channel, is left out.
        let mut all = vec![("n", self.n), ("g", self.groups), ("co", co_per_group)];
        all.extend(w.dimensions().map(|i| (OUTER[i], self.output(i))));
        all.push(("ci", per_group));
        all.extend(w.dimensions().map(|i| (TAPS[i], w.taps[i])));
        all.retain(|(name, extent)| *extent > 1 || !["g", "ci"].contains(name));
        let named = Loops(&all);
        let var = |name: &str| named.get(name);
        let co = var("g") * co_per_group + var("co");
        let ci = var("g") * per_group + var("ci");
        let (mut source, mut index) = (vec![var("n"), ci.clone()], vec![var("n"), co.clone()]);
        let mut weight = if self.transposed.is_some() { vec![ci, var("co")] } else { vec![co, var("ci")] };
        for i in w.dimensions() {
            let (out, tap) = (var(OUTER[i]), var(TAPS[i]));
            let (step, at) = match self.transposed {
                None => (w.stride[i], tap.clone()),
                Some(_) => (1, Expr::Int(w.taps[i] - 1) - tap.clone()),
            };
            source.push(out.clone() * step + tap * w.dilation[i]);
            index.push(out);
            weight.push(at);
        }
        stages.push(Stage {
            name: "acc",
            dtype: sums,
            shape: self.with_pixels(self.n, self.co, |i| self.output(i)),
            reduce: usize::from(per_group > 1) + w.rank,
            combine: Combine::Sum,
            index,
            value: Expr::load(x, source) * Expr::load(input(1), weight),
            loops: all,
        });
        stages
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::convolve_nd(self, inputs[0], inputs[1])
    }
}
