//! Two-dimensional convolution, grouped and depthwise included.

use super::WorkloadError;

/// In which order the dimensions of a convolution's tensors lie in memory. The layout of the weights goes with it.
///
/// | layout | input | weights | output |
/// |---|---|---|---|
/// | `Nchw` | `[n, ci, h, w]` | `[co, ci/groups, kh, kw]` | `[n, co, oh, ow]` |
/// | `Nhwc` | `[n, h, w, ci]` | `[kh, kw, ci/groups, co]` | `[n, oh, ow, co]` |
/// | `Hwcn` | `[h, w, ci, n]` | `[kh, kw, ci/groups, co]` | `[oh, ow, co, n]` |
/// | `NchwC(b)` | `[n, ci/b, h, w, b]` | `[co, ci/groups, kh, kw]` | `[n, co/b, oh, ow, b]` |
/// | `NhwcNc(b)` | `[n/b, h, w, ci/b, b, b]` | `[kh, kw, ci/b, co/b, b, b]` | `[n/b, oh, ow, co/b, b, b]` |
///
/// `NchwC` blocks activations only: how weights are packed for a kernel is a template's affair. In `NhwcNc` everything
/// is a matrix of `b x b` tiles (images by channels, input by output channels), the operands of tensor cores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConvLayout {
    /// Channels before space, as PyTorch and ONNX have it.
    Nchw,
    /// Channels last, as TensorFlow has it.
    Nhwc,
    /// Batch last, as TVM's CUDA tutorials have it.
    Hwcn,
    /// Channels in blocks of that many, the block innermost; the blocks divide the channels.
    NchwC(i64),
    /// Tiles of that many images by as many channels innermost, as TVM's tensor-core tutorial has it; the tiles divide
    /// batch and channels, and there are no groups.
    NhwcNc(i64),
}

impl ConvLayout {
    /// The layouts that a spec can name.
    pub const ALL: [ConvLayout; 5] =
        [ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn, ConvLayout::NchwC(16), ConvLayout::NhwcNc(16)];

    /// The name in specs: `NCHW`, `NHWC`, `HWCN`, `NCHW16c`, `NHWC16n16c`.
    pub fn name(self) -> String {
        match self {
            ConvLayout::Nchw => "NCHW".into(),
            ConvLayout::Nhwc => "NHWC".into(),
            ConvLayout::Hwcn => "HWCN".into(),
            ConvLayout::NchwC(block) => format!("NCHW{block}c"),
            ConvLayout::NhwcNc(block) => format!("NHWC{block}n{block}c"),
        }
    }

    /// The layout with that name, if it is one of [`ConvLayout::ALL`].
    pub fn from_name(name: &str) -> Option<ConvLayout> {
        ConvLayout::ALL.into_iter().find(|l| l.name() == name)
    }

    /// The shape of an activation tensor in this layout.
    pub fn activation_shape(self, n: i64, c: i64, h: i64, w: i64) -> Vec<i64> {
        match self {
            ConvLayout::Nchw => vec![n, c, h, w],
            ConvLayout::Nhwc => vec![n, h, w, c],
            ConvLayout::Hwcn => vec![h, w, c, n],
            ConvLayout::NchwC(block) => vec![n, c / block.max(1), h, w, block],
            ConvLayout::NhwcNc(block) => vec![n / block.max(1), h, w, c / block.max(1), block, block],
        }
    }
}

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

    pub(super) fn validate(&self) -> Result<(), WorkloadError> {
        for (size, value) in [
            ("n (the batch)", self.n),
            ("ci (the input channels)", self.ci),
            ("h (the input height)", self.h),
            ("w (the input width)", self.w),
            ("co (the output channels)", self.co),
            ("kh (the kernel height)", self.kh),
            ("kw (the kernel width)", self.kw),
            ("the vertical stride", self.stride[0]),
            ("the horizontal stride", self.stride[1]),
            ("the vertical dilation", self.dilation[0]),
            ("the horizontal dilation", self.dilation[1]),
            ("groups", self.groups),
        ] {
            positive(size, value)?;
        }
        for (side, value) in ["top", "left", "bottom", "right"].into_iter().zip(self.padding) {
            if value < 0 {
                return Err(WorkloadError::NegativePadding { side, value });
            }
        }
        for (which, channels) in [("input", self.ci), ("output", self.co)] {
            if channels % self.groups != 0 {
                return Err(WorkloadError::GroupsDoNotDivide { groups: self.groups, which, channels });
            }
            if let ConvLayout::NchwC(block) | ConvLayout::NhwcNc(block) = self.layout {
                positive("the channel block", block)?;
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
}

/// Extent of `k` taps that are `dilation` apart.
fn span(k: i64, dilation: i64) -> i64 {
    (k - 1).saturating_mul(dilation).saturating_add(1)
}

/// Refuses what is below 1.
pub(super) fn positive(size: &'static str, value: i64) -> Result<(), WorkloadError> {
    if value < 1 { Err(WorkloadError::NotPositive { size, value }) } else { Ok(()) }
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
    fn faults_are_refused_with_the_size_and_the_mend() {
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
