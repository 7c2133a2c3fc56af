//! Two-dimensional convolution, grouped and depthwise included.

use super::operator::{
    FLOATS, Fault, Kind, Likeness, OfBytes, Operand, Operator, Shared, Size, SizeRole, SpecKey, Values, check_sizes,
};
use super::param::product;
use super::products::Sums;
use super::reference::convolve;
use super::stage::{Axis, Combine, Loops, Padded, Stage, axis, input, result};
use super::{ConvLayout, Op, Role, Workload, WorkloadError};
use crate::ir::{BufferId, DType, Expr};

/// A convolution, in the sense of neural networks (the kernel is not flipped):
///
/// ```text
/// y[n, o, oh, ow] = sum over c, kh, kw of
///     x[n, g*ci/groups + c, oh*stride[0] + kh*dilation[0] - top, ow*stride[1] + kw*dilation[1] - left]
///   * w[o, c, kh, kw]              where g = o / (co/groups), and x is 0 outside of its bounds
/// ```
///
/// A convolution with as many groups as input channels is depthwise ([`Conv2d::multiplier`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Conv2d {
    /// Order of the dimensions.
    pub layout: ConvLayout,
    /// Batch.
    pub n: i64,
    /// Input channels.
    pub ci: i64,
    /// Input height.
    pub h: i64,
    /// Input width.
    pub w: i64,
    /// Output channels.
    pub co: i64,
    /// Kernel height.
    pub kh: i64,
    /// Kernel width.
    pub kw: i64,
    /// Step of the window: vertical, horizontal.
    pub stride: [i64; 2],
    /// Rows and columns of zeros around the input: top, left, bottom, right.
    pub padding: [i64; 4],
    /// Distance between the kernel's taps: vertical, horizontal.
    pub dilation: [i64; 2],
    /// Number of independent groups of channels.
    pub groups: i64,
}

impl Conv2d {
    /// A square kernel in NCHW with the same stride and the same padding on all sides, one group.
    // The order is that of every table of layers: N CI H W -> CO K s p.
    #[allow(clippy::too_many_arguments)]
    pub fn nchw(n: i64, ci: i64, h: i64, w: i64, co: i64, k: i64, stride: i64, padding: i64) -> Conv2d {
        Conv2d {
            layout: ConvLayout::Nchw,
            n,
            ci,
            h,
            w,
            co,
            kh: k,
            kw: k,
            stride: [stride; 2],
            padding: [padding; 4],
            dilation: [1; 2],
            groups: 1,
        }
    }

    /// The depthwise form: one group a channel, `multiplier` output channels each.
    pub fn depthwise(self, multiplier: i64) -> Conv2d {
        Conv2d { groups: self.ci, co: self.ci.saturating_mul(multiplier), ..self }
    }

    /// Output channels per input channel if the convolution is depthwise: every input channel is a group of its own.
    /// A convolution of a single input channel is an ordinary one.
    pub fn multiplier(&self) -> Option<i64> {
        (self.groups == self.ci && self.ci > 1).then(|| self.co / self.ci)
    }

    /// Whether the convolution is depthwise.
    pub fn is_depthwise(&self) -> bool {
        self.multiplier().is_some()
    }

    /// Input channels of a group: the reduction's extent over channels.
    pub fn ci_per_group(&self) -> i64 {
        self.ci / self.groups
    }

    /// Output channels of a group.
    pub fn co_per_group(&self) -> i64 {
        self.co / self.groups
    }

    /// Height of the input with its padding.
    pub fn padded_h(&self) -> i64 {
        self.h.saturating_add(self.padding[0]).saturating_add(self.padding[2])
    }

    /// Width of the input with its padding.
    pub fn padded_w(&self) -> i64 {
        self.w.saturating_add(self.padding[1]).saturating_add(self.padding[3])
    }

    /// Whether any side is padded.
    pub fn has_padding(&self) -> bool {
        self.padding != [0; 4]
    }

    /// Rows that the dilated kernel spans.
    pub fn span_h(&self) -> i64 {
        span(self.kh, self.dilation[0])
    }

    /// Columns that the dilated kernel spans.
    pub fn span_w(&self) -> i64 {
        span(self.kw, self.dilation[1])
    }

    /// Output height.
    pub fn oh(&self) -> i64 {
        (self.padded_h() - self.span_h()) / self.stride[0] + 1
    }

    /// Output width.
    pub fn ow(&self) -> i64 {
        (self.padded_w() - self.span_w()) / self.stride[1] + 1
    }

    /// Shape of the input as stored.
    pub fn input_shape(&self) -> Vec<i64> {
        self.layout.activation_shape(self.n, self.ci, self.h, self.w)
    }

    /// Shape of the input with its padding, in the input's layout.
    pub fn padded_shape(&self) -> Vec<i64> {
        self.layout.activation_shape(self.n, self.ci, self.padded_h(), self.padded_w())
    }

    /// Shape of the weights as stored.
    pub fn weight_shape(&self) -> Vec<i64> {
        match self.layout {
            ConvLayout::Nchw | ConvLayout::NchwC(_) => vec![self.co, self.ci_per_group(), self.kh, self.kw],
            ConvLayout::Nhwc | ConvLayout::Hwcn => vec![self.kh, self.kw, self.ci_per_group(), self.co],
            ConvLayout::NhwcNc(block) => {
                let block = block.max(1);
                vec![self.kh, self.kw, self.ci / block, self.co / block, block, block]
            }
        }
    }

    /// Shape of the output as stored.
    pub fn output_shape(&self) -> Vec<i64> {
        self.layout.activation_shape(self.n, self.co, self.oh(), self.ow())
    }
}

/// The sizes of a convolution in the order of its key.
pub(super) const SIZES: [Size; 16] = [
    Size::new("n", "n (the batch)", SizeRole::Images),
    Size::new("ci", "ci (the input channels)", SizeRole::Channels),
    Size::new("h", "h (the input height)", SizeRole::Extent),
    Size::new("w", "w (the input width)", SizeRole::Extent),
    Size::new("co", "co (the output channels)", SizeRole::Channels),
    Size::new("kh", "kh (the kernel height)", SizeRole::Taps),
    Size::new("kw", "kw (the kernel width)", SizeRole::Taps),
    Size::new("stride_h", "the vertical stride", SizeRole::Stride),
    Size::new("stride_w", "the horizontal stride", SizeRole::Stride),
    Size::new("top", "top", SizeRole::Padding),
    Size::new("left", "left", SizeRole::Padding),
    Size::new("bottom", "bottom", SizeRole::Padding),
    Size::new("right", "right", SizeRole::Padding),
    Size::new("dilation_h", "the vertical dilation", SizeRole::Dilation),
    Size::new("dilation_w", "the horizontal dilation", SizeRole::Dilation),
    Size::new("groups", "groups", SizeRole::Groups),
];

/// `conv2d` in specs and keys.
pub(crate) static CONV2D: Kind = CONV;

const CONV: Kind = Kind {
    name: "conv2d",
    pattern: "n{}c{}h{}w{}-o{}k{}x{}-s{}x{}-p{}.{}.{}.{}-d{}x{}-g{}",
    sizes: &SIZES,
    layouts: &ConvLayout::ALL,
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys,
    read: |shared, values| read(shared, values).map(Op::Conv2d),
    of_sizes: |layout, sizes| of_sizes(layout, sizes).map(Op::Conv2d),
    guilty: guilty_key,
};

/// `depthwise_conv2d`: the same operator, with one group for each input channel.
pub(crate) static DEPTHWISE_CONV2D: Kind = Kind { name: "depthwise_conv2d", ..CONV };

/// The convolution of these sizes.
pub(super) fn of_sizes(layout: ConvLayout, sizes: &[i64]) -> Option<Conv2d> {
    let [n, ci, h, w, co, kh, kw, sh, sw, top, left, bottom, right, dh, dw, groups] = *sizes else { return None };
    let (stride, padding, dilation) = ([sh, sw], [top, left, bottom, right], [dh, dw]);
    Some(Conv2d { layout, n, ci, h, w, co, kh, kw, stride, padding, dilation, groups })
}

impl Operator for Conv2d {
    fn kind(&self) -> &'static Kind {
        if self.is_depthwise() { &DEPTHWISE_CONV2D } else { &CONV2D }
    }

    fn sizes(&self) -> Vec<i64> {
        let Conv2d { n, ci, h, w, co, kh, kw, stride: s, padding: p, dilation: d, groups, .. } = *self;
        vec![n, ci, h, w, co, kh, kw, s[0], s[1], p[0], p[1], p[2], p[3], d[0], d[1], groups]
    }

    fn layout(&self) -> Option<ConvLayout> {
        Some(self.layout)
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        for (which, channels) in [("input", self.ci), ("output", self.co)] {
            if channels % self.groups != 0 {
                return Err(WorkloadError::GroupsDoNotDivide { groups: self.groups, which, channels });
            }
            if let ConvLayout::NchwC(block) | ConvLayout::NhwcNc(block) = self.layout {
                if block < 1 {
                    return Err(WorkloadError::NotPositive { size: "the channel block", value: block });
                }
                if channels % block != 0 {
                    return Err(WorkloadError::BlockDoesNotDivide { block, which, channels });
                }
            }
        }
        if let ConvLayout::NhwcNc(block) = self.layout {
            if self.n % block != 0 {
                return Err(WorkloadError::BlockDoesNotDivideBatch { block, batch: self.n });
            }
            if self.groups != 1 {
                return Err(WorkloadError::LayoutWithGroups { layout: self.layout.name(), groups: self.groups });
            }
        }
        for (axis, kernel, padded) in
            [("height", self.span_h(), self.padded_h()), ("width", self.span_w(), self.padded_w())]
        {
            if kernel > padded {
                return Err(WorkloadError::KernelTooLarge { axis, kernel, padded });
            }
        }
        Ok(())
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.input_shape()), Operand::new("w", Role::Weight, self.weight_shape())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.layout.axes(["n", "co", "oh", "ow", "n_in", "co_in"], [self.n, self.co, self.oh(), self.ow()]))
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![("the padded input", self.padded_shape())]
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Sums
    }

    fn terms(&self) -> i64 {
        product(&[self.ci_per_group(), self.kh, self.kw])
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        let mut stages = vec![];
        let padded = pad_before(self, dtype, 0.0, &mut stages);
        stages.push(self.sums("acc", sums, padded, input(1)));
        stages
    }

    fn likeness(&self) -> Likeness {
        let class = (self.layout, self.is_depthwise(), self.groups == 1);
        Likeness {
            class: vec![class.0.number(), class.1.into(), class.2.into()],
            sizes: vec![
                (self.n * self.oh() * self.ow(), 1.0),
                (self.ow(), 1.0),
                (self.co, 1.0),
                (self.ci / self.groups.max(1), 1.0),
                (self.kh, 1.5),
                (self.kw, 1.5),
                (self.stride[0] * self.stride[1], 1.5),
            ],
        }
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        convolve(self, inputs[0], inputs[1])
    }
}

/// Adds the stage `pad` of a convolution's input, if it has padding, and returns what the windows read.
pub(super) fn pad_before(c: &Conv2d, dtype: DType, outside: f64, stages: &mut Vec<Stage>) -> BufferId {
    if !c.has_padding() {
        return input(0);
    }
    stages.push(c.pad(dtype, outside));
    result(stages.len() - 1)
}

impl Conv2d {
    /// The stage `pad` of the input.
    pub(crate) fn pad(&self, dtype: DType, outside: f64) -> Stage {
        let [top, left, bottom, right] = self.padding;
        let names = ["n_pad", "ci_pad", "h_pad", "w_pad", "n_in_pad", "ci_in_pad"];
        let axes = self.layout.axes(names, [self.n, self.ci, self.padded_h(), self.padded_w()]);
        let padding = |name: &str| match name {
            "h_pad" => [top, bottom],
            "w_pad" => [left, right],
            _ => [0; 2],
        };
        let padded = |a: &Axis| Padded { name: a.name, extent: a.extent, padding: padding(a.name) };
        Stage::pad(dtype, input(0), &axes.iter().map(padded).collect::<Vec<_>>(), outside)
    }

    /// The stage that sums up the products of `x`, which is padded already, and the weights `w`.
    pub(super) fn sums(&self, name: &'static str, dtype: DType, x: BufferId, w: BufferId) -> Stage {
        let c = self;
        if let ConvLayout::NhwcNc(block) = c.layout {
            return c.sums_of_tiles(name, dtype, block, [x, w]);
        }
        // Loops over channels, outermost first, and how many of them stand before space; what follows is inside.
        let block = if let ConvLayout::NchwC(block) = c.layout { block } else { 1 };
        let split_group = c.co_per_group() % block == 0;
        let channels: Vec<(&'static str, i64)> = match c.multiplier() {
            Some(m) if block > 1 => {
                debug_assert!(m >= 1, "a depthwise convolution has at least one output channel per input channel");
                vec![("c", c.co / block)]
            }
            Some(1) => vec![("c", c.ci)],
            Some(m) => vec![("c", c.ci), ("m", m)],
            None if c.groups > 1 && split_group => vec![("g", c.groups), ("co", c.co_per_group() / block)],
            None => vec![("co", c.co / block)],
        };
        let space = [("oh", c.oh()), ("ow", c.ow())];
        let inner = if c.is_depthwise() { "c_in" } else { "co_in" };
        let mut loops: Vec<(&'static str, i64)> = match c.layout {
            ConvLayout::Nchw | ConvLayout::NchwC(_) => [&[("n", c.n)], &channels[..], &space].concat(),
            ConvLayout::Nhwc | ConvLayout::NhwcNc(_) => [&[("n", c.n)], &space[..], &channels].concat(),
            ConvLayout::Hwcn => [&space[..], &channels, &[("n", c.n)]].concat(),
        };
        if block > 1 {
            loops.push((inner, block));
        }
        let spatial = loops.len();
        if !c.is_depthwise() {
            loops.push(("ci", c.ci_per_group()));
        }
        loops.extend([("kh", c.kh), ("kw", c.kw)]);
        let named = Loops(&loops);
        let (find, var) = (|name: &str| named.find(name), |name: &str| named.get(name));
        // Output channel within its group, and in the whole tensor; input channel likewise.
        let in_block = |e: Expr| e * block + var(inner);
        let (out_channel, in_channel, reduced) = match c.multiplier() {
            Some(m) if block > 1 => {
                let o = in_block(var("c"));
                (o.clone(), o.floor_div(m), Expr::Int(0))
            }
            Some(m) => (var("c") * m + var("m"), var("c"), Expr::Int(0)),
            None if c.groups > 1 && split_group => {
                (var("g") * c.co_per_group() + in_block(var("co")), var("g") * c.ci_per_group() + var("ci"), var("ci"))
            }
            None => {
                // A block may span groups: the group follows from the channel.
                let o = in_block(var("co"));
                let group = if c.groups > 1 { o.clone().floor_div(c.co_per_group()) } else { Expr::Int(0) };
                (o, group * c.ci_per_group() + var("ci"), var("ci"))
            }
        };
        let ih = var("oh") * c.stride[0] + var("kh") * c.dilation[0];
        let iw = var("ow") * c.stride[1] + var("kw") * c.dilation[1];
        let out_index = match c.layout {
            // The block index is affine as it stands; dividing the channel again would only hide that.
            ConvLayout::NchwC(_) => {
                let outer = match find("g") {
                    Some(g) => g * (c.co_per_group() / block) + var("co"),
                    None if c.is_depthwise() => var("c"),
                    None => var("co"),
                };
                vec![var("n"), outer, var("oh"), var("ow"), var(inner)]
            }
            layout => layout.index(var("n"), out_channel.clone(), var("oh"), var("ow")),
        };
        // One output channel per input channel and the same blocks: no division is needed either.
        let in_index = match (c.layout, c.multiplier()) {
            (ConvLayout::NchwC(_), Some(1)) => vec![var("n"), var("c"), ih, iw, var(inner)],
            (layout, _) => layout.index(var("n"), in_channel, ih, iw),
        };
        let w_index = match c.layout {
            ConvLayout::Nchw | ConvLayout::NchwC(_) => vec![out_channel, reduced, var("kh"), var("kw")],
            ConvLayout::Nhwc | ConvLayout::Hwcn | ConvLayout::NhwcNc(_) => {
                vec![var("kh"), var("kw"), reduced, out_channel]
            }
        };
        Stage {
            name,
            dtype,
            shape: c.output_shape(),
            reduce: loops.len() - spatial,
            combine: Combine::Sum,
            index: out_index,
            value: Expr::load(x, in_index) * Expr::load(w, w_index),
            loops,
        }
    }

    /// The same on tiles.
    fn sums_of_tiles(&self, name: &'static str, dtype: DType, block: i64, [x, w]: [BufferId; 2]) -> Stage {
        let c = self;
        let loops = [
            ("n", c.n / block),
            ("oh", c.oh()),
            ("ow", c.ow()),
            ("co", c.co / block),
            ("n_in", block),
            ("co_in", block),
            ("ci", c.ci / block),
            ("kh", c.kh),
            ("kw", c.kw),
            ("ci_in", block),
        ];
        let [n, oh, ow, co, n_in, co_in, ci, kh, kw, ci_in] = std::array::from_fn(axis);
        let ih = oh * c.stride[0] + kh * c.dilation[0];
        let iw = ow * c.stride[1] + kw * c.dilation[1];
        let source = Expr::load(x, vec![n.into(), ih, iw, ci.into(), n_in.into(), ci_in.into()]);
        let weight = Expr::load(w, [kh, kw, ci, co, ci_in, co_in].map(Expr::from).to_vec());
        Stage {
            name,
            dtype,
            shape: c.output_shape(),
            loops: loops.to_vec(),
            reduce: 4,
            combine: Combine::Sum,
            index: [n, oh, ow, co, n_in, co_in].map(Expr::from).to_vec(),
            value: source * weight,
        }
    }
}

/// Extent of `k` taps that are `dilation` apart.
pub(super) fn span(k: i64, dilation: i64) -> i64 {
    (k - 1).saturating_mul(dilation).saturating_add(1)
}

/// How the shapes of the input and of the weights are written in a layout.
fn written(layout: ConvLayout) -> (&'static str, &'static str) {
    match layout {
        ConvLayout::Nchw => ("[n, ci, h, w]", "[co, ci/groups, kh, kw]"),
        ConvLayout::Nhwc => ("[n, h, w, ci]", "[kh, kw, ci/groups, co]"),
        ConvLayout::Hwcn => ("[h, w, ci, n]", "[kh, kw, ci/groups, co]"),
        ConvLayout::NchwC(_) => ("[n, ci/16, h, w, 16]", "[co, ci/groups, kh, kw]"),
        ConvLayout::NhwcNc(_) => ("[n/16, h, w, ci/16, 16, 16]", "[kh, kw, ci/16, co/16, 16, 16]"),
    }
}

pub(super) fn keys(shared: &Shared) -> Vec<SpecKey> {
    let (activation, weights) = written(shared.layout);
    let (rank, weight_rank): (&[usize], &[usize]) = match shared.layout {
        ConvLayout::NchwC(_) => (&[5], &[4]),
        ConvLayout::NhwcNc(_) => (&[6], &[6]),
        _ => (&[4], &[4]),
    };
    vec![
        SpecKey::required("input", rank, activation),
        SpecKey::required("weight", weight_rank, weights),
        SpecKey::optional("stride", &[2]),
        SpecKey::optional("dilation", &[2]),
        SpecKey::optional("padding", &[2, 4]),
        SpecKey::optional("groups", &[]),
    ]
}

/// Images, channels, height and width of an activation tensor that stands in a key as it is stored. Weights in tiles end as
/// activations do.
pub(super) fn activation(layout: ConvLayout, key: &'static str, x: &[i64]) -> Result<[i64; 4], Fault> {
    Ok(match (layout, x) {
        (ConvLayout::Nchw, [n, c, h, w]) => [*n, *c, *h, *w],
        (ConvLayout::Nhwc, [n, h, w, c]) => [*n, *c, *h, *w],
        (ConvLayout::Hwcn, [h, w, c, n]) => [*n, *c, *h, *w],
        (ConvLayout::NchwC(block), [n, c, h, w, last]) if *last == block => [*n, c.saturating_mul(block), *h, *w],
        (ConvLayout::NhwcNc(block), [n, h, w, c, rows, columns]) if [*rows, *columns] == [block, block] => {
            [n.saturating_mul(block), c.saturating_mul(block), *h, *w]
        }
        (ConvLayout::NhwcNc(block), [.., rows, columns]) => {
            let cause = format!("the tiles of the {key} are {rows} x {columns}, but the layout is {}", layout.name());
            return Err(Fault::new(key, cause, format!("end it with {block}, {block}")));
        }
        (_, [.., last]) => {
            let cause = format!("the blocks of the {key} have {last} channels, but the layout is {}", layout.name());
            let block = if let ConvLayout::NchwC(block) = layout { block } else { 1 };
            return Err(Fault::new(key, cause, format!("end it with {block}")));
        }
        (_, []) => {
            return Err(Fault::new(key, format!("`{key}` is empty"), format!("write {key} = {}", written(layout).0)));
        }
    })
}

/// The convolution that a spec asks for.
pub(super) fn read(shared: &Shared, values: &Values) -> Result<Conv2d, Fault> {
    let layout = shared.layout;
    let (x, w) = (values.get("input").unwrap_or_default(), values.get("weight").unwrap_or_default());
    let (stride, dilation, padding) = (values.sides("stride"), values.sides("dilation"), values.padding());
    let [n, ci, height, width] = activation(layout, "input", x)?;
    if let ConvLayout::NhwcNc(_) = layout {
        activation(layout, "weight", w)?;
    }
    let (co, ci_per_group, kh, kw) = match layout {
        ConvLayout::Nchw | ConvLayout::NchwC(_) => (w[0], w[1], w[2], w[3]),
        ConvLayout::Nhwc | ConvLayout::Hwcn => (w[3], w[2], w[0], w[1]),
        ConvLayout::NhwcNc(block) => (w[3].saturating_mul(block), w[2].saturating_mul(block), w[0], w[1]),
    };
    let depthwise = shared.name != CONV2D.name;
    let groups = match values.get("groups").map(|g| g[0]) {
        Some(g) if depthwise && g != ci => {
            let cause = format!("a {} of {ci} channels has {ci} groups, not {}", shared.name, g);
            return Err(Fault::new("groups", cause, "leave `groups` out, or use op = \"conv2d\""));
        }
        Some(g) => g,
        None if depthwise => ci,
        None => 1,
    };
    if ci_per_group.checked_mul(groups) != Some(ci) && groups > 0 && ci > 0 {
        let cause = if depthwise {
            format!("the weight of a {} takes 1 channel, this one takes {ci_per_group}", shared.name)
        } else {
            let each = if groups == 1 { String::new() } else { format!(" in each of {groups} groups") };
            format!("the weight takes {ci_per_group} channels{each}, but the input has {ci}")
        };
        let (_, weights) = written(layout);
        let help = match other_order(&w[..4], ci, groups).filter(|_| w.len() == 4 && !depthwise) {
            Some((order, co, kernel)) => {
                let meant = suggested_weight(layout, &[co, ci, groups, kernel, kernel]);
                format!("write weight = {weights}{meant}; it stands in the order {order}")
            }
            None => format!("write weight = {weights}{}", suggested_weight(layout, &[co, ci, groups, kh, kw])),
        };
        return Err(Fault::new("weight", cause, help));
    }
    Ok(Conv2d { layout, n, ci, h: height, w: width, co, kh, kw, stride, padding, dilation, groups })
}

/// The order of another framework in which these sizes are a square filter's for this input, with its output channels and
/// its height.
fn other_order(w: &[i64], ci: i64, groups: i64) -> Option<(&'static str, i64, i64)> {
    let orders = [
        ("[co, ci/groups, kh, kw]", [w[0], w[1], w[2], w[3]]),
        ("[co, kh, kw, ci/groups]", [w[0], w[3], w[1], w[2]]),
        ("[kh, kw, ci/groups, co]", [w[3], w[2], w[0], w[1]]),
    ];
    let fits = |[_, c, kh, kw]: &[i64; 4]| c.checked_mul(groups) == Some(ci) && kh == kw;
    orders.into_iter().find(|(_, sizes)| fits(sizes)).map(|(order, [co, _, kh, _])| (order, co, kh))
}

/// ` = [64, 3, 7, 7]`, if the groups divide the channels.
fn suggested_weight(layout: ConvLayout, [co, ci, groups, kh, kw]: &[i64; 5]) -> String {
    if ci % groups != 0 {
        return String::new();
    }
    let c = ci / groups;
    match layout {
        ConvLayout::Nchw | ConvLayout::NchwC(_) => format!(" = [{co}, {c}, {kh}, {kw}]"),
        ConvLayout::Nhwc | ConvLayout::Hwcn => format!(" = [{kh}, {kw}, {c}, {co}]"),
        ConvLayout::NhwcNc(b) => format!(" = [{kh}, {kw}, {}, {}, {b}, {b}]", c / b, co / b),
    }
}

/// The key whose value is to blame for an error.
pub(super) fn guilty_key(error: &WorkloadError) -> &'static str {
    match error {
        WorkloadError::NotPositive { size, .. } => match *size {
            s if s.contains("stride") => "stride",
            s if s.contains("dilation") => "dilation",
            s if s.starts_with("groups") => "groups",
            s if s.contains("kernel") || s.contains("output") => "weight",
            _ => "input",
        },
        WorkloadError::NegativePadding { .. } => "padding",
        WorkloadError::KernelTooLarge { .. } => "weight",
        WorkloadError::GroupsDoNotDivide { .. } => "groups",
        WorkloadError::BlockDoesNotDivide { which: "output", .. } => "weight",
        _ => "input",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_sizes_follow_stride_padding_and_dilation() {
        let stem = Conv2d::nchw(1, 3, 224, 224, 64, 7, 2, 3);
        assert_eq!(stem.output_shape(), [1, 64, 112, 112]);
        let odd = Conv2d { padding: [0, 1, 2, 3], dilation: [2, 3], ..Conv2d::nchw(2, 4, 9, 10, 6, 3, 2, 0) };
        assert_eq!((odd.oh(), odd.ow()), ((11 - 5) / 2 + 1, (14 - 7) / 2 + 1));
    }

    #[test]
    fn every_layout_has_the_documented_shapes() {
        let c = Conv2d { groups: 2, ..Conv2d::nchw(2, 32, 8, 9, 64, 3, 1, 1) };
        let shapes = |layout| {
            let c = Conv2d { layout, ..c };
            (c.input_shape(), c.weight_shape(), c.output_shape())
        };
        assert_eq!(shapes(ConvLayout::Nchw), (vec![2, 32, 8, 9], vec![64, 16, 3, 3], vec![2, 64, 8, 9]));
        assert_eq!(shapes(ConvLayout::Nhwc), (vec![2, 8, 9, 32], vec![3, 3, 16, 64], vec![2, 8, 9, 64]));
        assert_eq!(shapes(ConvLayout::Hwcn), (vec![8, 9, 32, 2], vec![3, 3, 16, 64], vec![8, 9, 64, 2]));
        let tiles = Conv2d { layout: ConvLayout::NhwcNc(16), n: 32, groups: 1, ..c };
        assert_eq!(tiles.input_shape(), [2, 8, 9, 2, 16, 16]);
        assert_eq!(tiles.weight_shape(), [3, 3, 2, 4, 16, 16]);
        assert_eq!(tiles.output_shape(), [2, 8, 9, 4, 16, 16]);
        assert_eq!(shapes(ConvLayout::NchwC(16)), (vec![2, 2, 8, 9, 16], vec![64, 16, 3, 3], vec![2, 4, 8, 9, 16]));
    }

    #[test]
    fn faults_are_refused_with_the_size_and_help() {
        let good = Conv2d::nchw(1, 8, 5, 5, 8, 3, 1, 0);
        assert_eq!(good.validate(), Ok(()));
        for (bad, text) in [
            (Conv2d { ci: 0, ..good }, "ci (the input channels) is 0; it must be at least 1"),
            (Conv2d { stride: [1, -1], ..good }, "the horizontal stride is -1"),
            (Conv2d { padding: [0, 0, -2, 0], ..good }, "the bottom padding is -2"),
            (Conv2d { kh: 7, ..good }, "the kernel's height with its dilation is 7 but the padded input's is only 5"),
            (Conv2d { dilation: [1, 3], ..good }, "the kernel's width with its dilation is 7"),
            (Conv2d { groups: 3, ..good }, "3 groups do not divide the 8 input channels"),
            (Conv2d { groups: 8, co: 12, ..good }, "8 groups do not divide the 12 output channels"),
            (Conv2d { layout: ConvLayout::NchwC(16), ..good }, "blocks of 16 do not divide the 8 input channels"),
            (Conv2d { dilation: [i64::MAX, 1], ..good }, "height"),
            (
                Conv2d { layout: ConvLayout::NhwcNc(8), ..good },
                "blocks of 8 do not divide the batch of 1; pad the batch to a multiple of 8",
            ),
            (
                Conv2d { layout: ConvLayout::NhwcNc(8), n: 8, groups: 2, ..good },
                "the layout NHWC8n8c has no groups, but there are 2",
            ),
        ] {
            let message = bad.validate().unwrap_err().to_string();
            assert!(message.contains(text), "{message}");
        }
    }
}
