//! Windows over one, two or three dimensions of pixels.

use super::conv2d::span;
use super::error::WorkloadError;
use super::operator::{Size, SizeRole, SpecKey, Values};
use crate::ir::Expr;

/// The way of a window over pixels. Of each array the first [`Windows::rank`] numbers count, in the order of the dimensions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Windows {
    /// Number of dimensions of pixels, 1 to 3.
    pub rank: usize,
    /// Pixels of the input.
    pub pixels: [i64; 3],
    /// Taps.
    pub taps: [i64; 3],
    /// Steps from window to window.
    pub stride: [i64; 3],
    /// Pixels before the input.
    pub before: [i64; 3],
    /// Pixels behind it.
    pub after: [i64; 3],
    /// Distance between taps.
    pub dilation: [i64; 3],
}

/// What the dimensions are called, the last first.
const NAMES: [&str; 3] = ["width", "height", "depth"];

/// The sizes of a window over `rank` dimensions in the order of [`Windows::sizes`]: pixels, taps, strides, paddings before and behind,
/// dilations.
pub(super) const fn sizes<const N: usize>(rank: usize) -> [Size; N] {
    assert!(N == 6 * rank);
    let roles =
        [SizeRole::Extent, SizeRole::Taps, SizeRole::Stride, SizeRole::Padding, SizeRole::Padding, SizeRole::Dilation];
    const WHAT: [[&str; 3]; 6] = [
        ["the input width", "the input height", "the input depth"],
        ["the window's width", "the window's height", "the window's depth"],
        ["the stride along the width", "the stride along the height", "the stride along the depth"],
        ["left", "top", "front"],
        ["right", "bottom", "back"],
        ["the dilation along the width", "the dilation along the height", "the dilation along the depth"],
    ];
    let mut all = [Size::new(NAMES[0], NAMES[0], SizeRole::Extent); N];
    let mut i = 0;
    while i < N {
        let what = WHAT[i / rank][rank - 1 - i % rank];
        all[i] = Size::new(what, what, roles[i / rank]);
        i += 1;
    }
    all
}

/// `sizes` between what stands before and behind them.
pub(super) const fn between<const N: usize>(before: &[Size], sizes: &[Size], behind: &[Size]) -> [Size; N] {
    assert!(N == before.len() + sizes.len() + behind.len());
    let mut all = [sizes[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = match i {
            i if i < before.len() => before[i],
            i if i < before.len() + sizes.len() => sizes[i - before.len()],
            i => behind[i - before.len() - sizes.len()],
        };
        i += 1;
    }
    all
}

/// How many integers a key with one for each of `rank` dimensions has, and the key of paddings.
fn lengths(rank: usize) -> [&'static [usize]; 2] {
    match rank {
        1 => [&[], &[2]],
        2 => [&[2], &[2, 4]],
        _ => [&[3], &[3, 6]],
    }
}

/// The spec's keys of the way of a window.
pub(super) fn keys(rank: usize) -> [SpecKey; 3] {
    let [each, padding] = lengths(rank);
    [("stride", each), ("padding", padding), ("dilation", each)].map(|(key, lengths)| SpecKey::optional(key, lengths))
}

/// A spec's key with one integer for each dimension.
pub(super) fn each(key: &'static str, rank: usize) -> SpecKey {
    SpecKey::optional(key, lengths(rank)[0])
}

/// An array of the numbers that are there.
pub(super) fn array(numbers: &[i64], otherwise: i64) -> [i64; 3] {
    std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(otherwise))
}

impl Windows {
    /// The windows of a spec.
    pub(super) fn read(values: &Values, pixels: &[i64], taps: &[i64]) -> Windows {
        let rank = pixels.len();
        let list = |key| values.get(key).unwrap_or_default();
        let padding = list("padding");
        let (before, after) = if padding.len() == 2 * rank { padding.split_at(rank) } else { (padding, padding) };
        Windows::new([pixels, taps, list("stride"), before, after, list("dilation")])
    }

    /// The windows of lists in the order of [`Windows::sizes`]; what is behind the end of one is 1, of paddings 0.
    pub(super) fn new([pixels, taps, stride, before, after, dilation]: [&[i64]; 6]) -> Windows {
        Windows {
            rank: pixels.len(),
            pixels: array(pixels, 1),
            taps: array(taps, 1),
            stride: array(stride, 1),
            before: array(before, 0),
            after: array(after, 0),
            dilation: array(dilation, 1),
        }
    }

    /// Windows over one dimension as such over two, the first of one pixel.
    pub(super) fn of_rows(&self) -> Windows {
        let of = |list: [i64; 3], first: i64| [first, list[0]];
        let [pixels, taps, stride] = [self.pixels, self.taps, self.stride].map(|list| of(list, 1));
        Windows::new([&pixels, &taps, &stride, &of(self.before, 0), &of(self.after, 0), &of(self.dilation, 1)])
    }

    /// The windows of these sizes.
    pub(super) fn of_sizes(rank: usize, sizes: &[i64]) -> Option<Windows> {
        let lists: Vec<&[i64]> = sizes.chunks(rank).collect();
        lists.try_into().ok().map(Windows::new)
    }

    /// The sizes.
    pub(super) fn sizes(&self) -> Vec<i64> {
        let all = [self.pixels, self.taps, self.stride, self.before, self.after, self.dilation];
        all.iter().flat_map(|list| &list[..self.rank]).copied().collect()
    }

    /// The dimensions' numbers.
    pub(crate) fn dimensions(&self) -> std::ops::Range<usize> {
        0..self.rank
    }

    /// Pixels with the padding along a dimension.
    pub fn padded(&self, i: usize) -> i64 {
        self.pixels[i].saturating_add(self.before[i]).saturating_add(self.after[i])
    }

    /// Pixels that a window spans along a dimension.
    pub fn span(&self, i: usize) -> i64 {
        span(self.taps[i], self.dilation[i])
    }

    /// Windows along a dimension.
    pub fn windows(&self, i: usize) -> i64 {
        (self.padded(i) - self.span(i)) / self.stride[i] + 1
    }

    /// The same with so much padding behind that the last windows are whole where they would go beyond it, as `ceil_mode` of PyTorch
    /// and ONNX has it. A window that begins behind the input and the padding before it is none.
    pub(super) fn rounded_up(&self) -> Windows {
        let mut all = *self;
        for i in self.dimensions() {
            let beyond = self.padded(i) - self.span(i);
            // Sizes that are wrong are refused as they are.
            if self.stride[i] < 1 || self.pixels[i] < 1 || beyond < 0 {
                continue;
            }
            let mut windows = (beyond + self.stride[i] - 1) / self.stride[i] + 1;
            if (windows - 1).saturating_mul(self.stride[i]) >= self.pixels[i].saturating_add(self.before[i]) {
                windows -= 1;
            }
            let end = (windows - 1).saturating_mul(self.stride[i]).saturating_add(self.span(i));
            all.after[i] = self.after[i].max(end.saturating_sub(self.pixels[i]).saturating_sub(self.before[i]));
        }
        all
    }

    /// The windows over what counts in an average that counts the padding, but not the last `beyond` pixels of it.
    pub(super) fn over_padding(&self, beyond: [i64; 3]) -> Windows {
        let counted = std::array::from_fn(|i| self.padded(i).saturating_sub(beyond[i]));
        Windows { pixels: counted, before: [0; 3], after: beyond, ..*self }
    }

    /// How many taps of a window are inside of the input along a dimension.
    pub(crate) fn inside(&self, i: usize, window: Expr) -> Expr {
        let (taps, step, extent) = (self.taps[i], self.dilation[i], self.pixels[i]);
        if self.before[i] + self.after[i] == 0 {
            return Expr::Int(taps);
        }
        // The first tap, counted from the input's edge; taps from `-first / step`, rounded up, to `(extent - 1 - first) / step`.
        let first = window * self.stride[i] - self.before[i];
        let from = (Expr::Int(step - 1) - first.clone()).floor_div(step).max(Expr::Int(0));
        let to = (Expr::Int(extent - 1 + step) - first).floor_div(step).min(Expr::Int(taps));
        to - from
    }

    /// Refuses windows that do not fit into the padded input.
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let large = self.dimensions().find(|i| self.span(*i) > self.padded(*i));
        large.map_or(Ok(()), |i| {
            let axis = NAMES[self.rank - 1 - i];
            Err(WorkloadError::KernelTooLarge { axis, kernel: self.span(i), padded: self.padded(i) })
        })
    }

    /// Refuses a window that may lie beside the input, where it would have no element at all.
    pub(super) fn check_elements(&self) -> Result<(), WorkloadError> {
        self.check()?;
        for i in self.dimensions() {
            let (before, stride, dilation) = (self.before[i], self.stride[i], self.dilation[i]);
            if before.max(self.after[i]) >= self.span(i) {
                let cause = format!("the padding is as large as the window of {}", self.span(i));
                let help = "the padding must be smaller than the window with its dilation";
                return Err(WorkloadError::Sizes { cause, help });
            }
            // A window that begins before the input meets it at its first tap from there on, if that is not behind it.
            let early = (before + stride - 1) / stride;
            if (0..early.min(dilation)).any(|out| (out * stride - before).rem_euclid(dilation) >= self.pixels[i]) {
                let cause = format!("the taps of a window lie on both sides of the {} pixels", self.pixels[i]);
                return Err(WorkloadError::Sizes { cause, help: "the dilation must not be larger than the input" });
            }
        }
        Ok(())
    }
}
