//! Which taps of a convolution meet its input, for tiles of output pixels that a copy engine fetches as boxes.

use super::model::ceil_div;
use crate::ir::Expr;
use crate::workload::Conv2d;

/// The longest side of a box that the copy engine takes, what a stride leaves out counted, and its widest stride.
pub(super) const MOST_BOX: i64 = 256;
pub(super) const MOST_STRIDE: i64 = 8;

/// Whether the copy engine fetches pixels of these extents, so far apart, at once.
pub(super) fn is_one_box(extents: [i64; 3], strides: [i64; 3]) -> bool {
    extents.into_iter().zip(strides).all(|(n, stride)| (n - 1) * stride < MOST_BOX)
}

/// Where tap `tap` of output pixel `pixel` lies in the input, along rows (0) or columns (1).
pub(super) fn first(c: &Conv2d, dim: usize, pixel: &Expr, tap: impl Into<Expr>) -> Expr {
    pixel.clone() * c.stride[dim] + tap.into() * c.dilation[dim] - c.padding[dim]
}

/// The condition that a tap, which lies at `first` for the first of `tile` pixels, meets the input for some of them; none
/// where it always does.
pub(super) fn meets(c: &Conv2d, dim: usize, first: &Expr, tile: i64) -> Option<Expr> {
    let size = if dim == 0 { c.h } else { c.w };
    let padded = c.padding[dim] > 0 || c.padding[dim + 2] > 0;
    let last = first.clone() + (tile - 1) * c.stride[dim];
    padded.then(|| Expr::Int(0).le(last).and(first.clone().lt(size)))
}

/// Taps along one dimension that a tile of so many pixels meets, summed over `tiles` tiles.
pub(super) fn taps_met(c: &Conv2d, dim: usize, tile: i64, tiles: i64) -> i64 {
    let (size, taps) = if dim == 0 { (c.h, c.kh) } else { (c.w, c.kw) };
    let (stride, dilation, padding) = (c.stride[dim], c.dilation[dim], c.padding[dim]);
    let met = |i: i64| {
        let place = i * tile * stride - padding;
        // The first tap with which the last pixel is not before the input, and the first with which the first one is behind it.
        let first = ceil_div(-place - (tile - 1) * stride, dilation).max(0);
        let end = ceil_div(size - place, dilation).min(taps);
        (end - first).max(0)
    };
    (0..tiles).map(met).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_are_counted_as_one_by_one() {
        for (size, taps, stride, dilation, padding) in
            [(14, 3, 1, 1, 1), (9, 7, 2, 1, 20), (1, 1, 1, 1, 9), (5, 9, 1, 3, 12), (30, 4, 3, 11, 2), (8, 2, 8, 1, 0)]
        {
            let mut c = Conv2d::nchw(1, 1, size, size, 1, taps, stride, padding);
            c.dilation = [dilation; 2];
            for tile in 1..=c.oh() {
                let tiles = ceil_div(c.oh(), tile);
                let meets = |i: i64, tap: i64| {
                    let first = i * tile * stride + tap * dilation - padding;
                    first < size && first + (tile - 1) * stride >= 0
                };
                let all = (0..tiles).flat_map(|i| (0..taps).map(move |tap| (i, tap)));
                let met = all.filter(|(i, tap)| meets(*i, *tap)).count() as i64;
                assert_eq!(taps_met(&c, 0, tile, tiles), met, "{c:?} in tiles of {tile}");
            }
        }
    }
}
