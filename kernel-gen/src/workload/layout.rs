//! In which order the dimensions of tensors lie in memory.

use super::stage::{Axis, AxisRole};
use crate::ir::Expr;

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

    /// A number that no other layout has.
    pub(super) fn number(self) -> i64 {
        match self {
            ConvLayout::Nchw => 0,
            ConvLayout::Nhwc => 1,
            ConvLayout::Hwcn => 2,
            ConvLayout::NchwC(block) => 2 * block + 1,
            ConvLayout::NhwcNc(block) => 2 * block + 2,
        }
    }

    /// The axes of an activation tensor as stored. `names` are those of images, channels, height and width, and of the images and
    /// the channels in a block.
    pub(super) fn axes(self, names: [&'static str; 6], [n, c, h, w]: [i64; 4]) -> Vec<Axis> {
        use AxisRole::*;
        let [image, channel, row, column, image_in, channel_in] = names;
        let axis = |name, role, extent| Axis::new(name, extent, role);
        let (row, column) = (axis(row, Space, h), axis(column, Space, w));
        match self {
            ConvLayout::Nchw => vec![axis(image, Batch, n), axis(channel, Channel, c), row, column],
            ConvLayout::Nhwc => vec![axis(image, Batch, n), row, column, axis(channel, Channel, c)],
            ConvLayout::Hwcn => vec![row, column, axis(channel, Channel, c), axis(image, Batch, n)],
            ConvLayout::NchwC(block) => {
                let (outer, inner) = (axis(channel, Channel, c / block.max(1)), axis(channel_in, ChannelBlock, block));
                vec![axis(image, Batch, n), outer, row, column, inner]
            }
            ConvLayout::NhwcNc(block) => {
                let blocks = |extent: i64| extent / block.max(1);
                let outer = [axis(image, Batch, blocks(n)), row, column, axis(channel, Channel, blocks(c))];
                [&outer[..], &[axis(image_in, Batch, block), axis(channel_in, ChannelBlock, block)]].concat()
            }
        }
    }

    /// Index of an activation tensor: `c` counts channels of the whole tensor.
    pub(crate) fn index(self, n: Expr, c: Expr, h: Expr, w: Expr) -> Vec<Expr> {
        match self {
            ConvLayout::Nchw => vec![n, c, h, w],
            ConvLayout::Nhwc => vec![n, h, w, c],
            ConvLayout::Hwcn => vec![h, w, c, n],
            ConvLayout::NchwC(block) => vec![n, c.clone().floor_div(block), h, w, c.floor_mod(block)],
            ConvLayout::NhwcNc(block) => {
                let (blocks, in_block) = (|e: &Expr| e.clone().floor_div(block), |e: Expr| e.floor_mod(block));
                vec![blocks(&n), h, w, blocks(&c), in_block(n), in_block(c)]
            }
        }
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
