//! What a layer should have computed: some of its outputs as sums in `f64`, and how far `f32` may be from them.

use crate::spec::{Conv, Kind};

/// Outputs that are compared, at most.
const OUTPUTS: usize = 400;

/// A layer's arguments: data and shape of each.
pub(crate) struct Tensors<'a> {
    /// The activations, or the left matrix.
    pub(crate) x: (&'a [f32], &'a [usize]),
    /// The weights, or the right matrix.
    pub(crate) w: (&'a [f32], &'a [usize]),
    /// The result.
    pub(crate) y: (&'a [f32], &'a [usize]),
}

/// How a result compares with the reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// Largest error over the largest output.
    pub(crate) relative_error: f64,
    /// Largest error over what is allowed at that output; more than 1 is wrong.
    pub(crate) share_of_bound: f64,
}

/// Compares outputs spread over the whole tensor, the first and the last among them; a value that is no number
/// anywhere in the result is an infinite error, since the result is filled with such values beforehand.
///
/// An output is a sum of `k` products. Added up in `f32` in any order, with or without fused multiply-adds, it is off
/// by at most `gamma(k) * sum |x*w|`, with `gamma(k) = k*u / (1 - k*u)` and `u = 2^-24` (Higham, *Accuracy and Stability
/// of Numerical Algorithms*, section 3.1): that is the bound.
pub(crate) fn compare(kind: Kind, tensors: &Tensors) -> Comparison {
    let y = tensors.y.0;
    if y.iter().any(|v| v.is_nan()) {
        return Comparison { relative_error: f64::INFINITY, share_of_bound: f64::INFINITY };
    }
    let outputs = OUTPUTS.min(y.len());
    let (mut error, mut share, mut largest) = (0.0f64, 0.0f64, 0.0f64);
    for i in 0..outputs {
        // A prime step apart from the even spacing, so that every channel of a block and every column gets its turn.
        let at = if i + 1 == outputs { y.len() - 1 } else { (i * y.len() / outputs + i * 7) % y.len() };
        let terms = match kind {
            Kind::Conv(conv) => conv_terms(conv, tensors, at),
            Kind::Matmul => matmul_terms(tensors, at),
        };
        let exact: f64 = terms.iter().sum();
        let magnitude: f64 = terms.iter().map(|t| t.abs()).sum();
        let ku = terms.len() as f64 * 0.5f64.powi(24);
        let off = (f64::from(y[at]) - exact).abs();
        error = error.max(off);
        largest = largest.max(exact.abs());
        if off > 0.0 {
            share = share.max(off / (ku / (1.0 - ku) * magnitude));
        }
    }
    Comparison { relative_error: error / largest, share_of_bound: share }
}

/// Position of an element in a dense row-major tensor.
fn offset(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |offset, (extent, i)| offset * extent + i)
}

/// The index of the element at a position.
fn index(shape: &[usize], mut offset: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, extent) in index.iter_mut().zip(shape).rev() {
        *i = offset % extent;
        offset /= extent;
    }
    index
}

/// The products behind one output of a convolution, those that meet padding left out.
fn conv_terms(conv: Conv, tensors: &Tensors, at: usize) -> Vec<f64> {
    let ((x, x_shape), (w, w_shape), (_, y_shape)) = (tensors.x, tensors.w, tensors.y);
    let [n, co, oh, ow] = match (conv.blocked, index(y_shape, at)[..].to_vec().as_slice()) {
        (false, &[n, c, h, w]) => [n, c, h, w],
        (true, &[n, block, h, w, lane]) => [n, block * 16 + lane, h, w],
        _ => unreachable!("activations have four dimensions, or five in blocks"),
    };
    let channels_out = if conv.blocked { y_shape[1] * 16 } else { y_shape[1] };
    let (per_group, kh, kw) = (w_shape[1], w_shape[2], w_shape[3]);
    let first = co / (channels_out / conv.groups) * per_group;
    let mut terms = Vec::with_capacity(per_group * kh * kw);
    for c in 0..per_group {
        for i in 0..kh {
            for j in 0..kw {
                let (row, column) = (oh * conv.stride[0] + i, ow * conv.stride[1] + j);
                let inside = |position: usize, before: usize, extent: usize| {
                    position.checked_sub(before).filter(|p| *p < extent)
                };
                let Some(row) = inside(row, conv.top_left[0], x_shape[2]) else { continue };
                let Some(column) = inside(column, conv.top_left[1], x_shape[3]) else { continue };
                let channel = first + c;
                let from = if conv.blocked {
                    offset(x_shape, &[n, channel / 16, row, column, channel % 16])
                } else {
                    offset(x_shape, &[n, channel, row, column])
                };
                terms.push(f64::from(x[from]) * f64::from(w[offset(w_shape, &[co, c, i, j])]));
            }
        }
    }
    terms
}

/// The products behind one element of a matrix product.
fn matmul_terms(tensors: &Tensors, at: usize) -> Vec<f64> {
    let ((a, a_shape), (b, b_shape)) = (tensors.x, tensors.w);
    let (row, column) = (at / b_shape[1], at % b_shape[1]);
    (0..a_shape[1]).map(|k| f64::from(a[row * a_shape[1] + k]) * f64::from(b[k * b_shape[1] + column])).collect()
}
