//! What a layer should have computed: some of its outputs as sums in `f64`.

use crate::layers::{Activation, Conv, Data, Op, Problem, Product};

/// Outputs that are compared with sums in `f64`, at most.
const OUTPUTS: usize = 400;

/// Largest error over the sampled outputs, relative to the largest of them. Infinite if any value of the whole result is
/// no number, as those are that nobody has written.
pub(crate) fn error(problem: &Problem, data: &Data, y: &[f32]) -> f64 {
    if y.iter().any(|v| v.is_nan()) {
        return f64::INFINITY;
    }
    let outputs = OUTPUTS.min(y.len());
    let (mut error, mut largest) = (0.0f64, f64::MIN_POSITIVE);
    for i in 0..outputs {
        // A prime step apart from the even spacing, so that every channel and every column gets its turn.
        let at = if i + 1 == outputs { y.len() - 1 } else { (i * y.len() / outputs + i * 7) % y.len() };
        let exact = output(problem, data, at);
        error = error.max((f64::from(y[at]) - exact).abs());
        largest = largest.max(exact.abs());
    }
    error / largest
}

/// Largest difference between two results, relative to the largest value of the second.
pub(crate) fn difference(y: &[f32], of: &[f32]) -> f64 {
    let largest = of.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let apart = y.iter().zip(of).map(|(a, b)| (a - b).abs());
    // Not `f32::max`, which passes over values that are no numbers.
    f64::from(apart.fold(0.0f32, |m, d| if d > m || d.is_nan() { d } else { m }) / largest)
}

/// One element of the result.
fn output(problem: &Problem, data: &Data, at: usize) -> f64 {
    let (sum, channel) = match &problem.op {
        Op::Conv(conv) => convolution(conv, data, at),
        Op::Product(product) => matrix_product(product, data, at),
    };
    let mut v = sum;
    if problem.bias {
        v += f64::from(data.bias[channel]);
    }
    if problem.residual {
        v += f64::from(data.residual[at]);
    }
    match problem.activation {
        Activation::None => v,
        Activation::Relu => v.max(0.0),
        Activation::Relu6 => v.clamp(0.0, 6.0),
        Activation::Gelu => unreachable!("no list has a GELU; its reference needs an error function"),
    }
}

/// The sum behind an output of a convolution, and the output's channel.
fn convolution(c: &Conv, data: &Data, at: usize) -> (f64, usize) {
    let [oh, ow] = c.out();
    let (column, row, channel, image) = (at % ow, at / ow % oh, at / ow / oh % c.co, at / ow / oh / c.co);
    let per_group = c.ci / c.groups;
    let first = channel / (c.co / c.groups) * per_group;
    let mut sum = 0.0;
    for k in 0..per_group {
        for i in 0..c.kh {
            for j in 0..c.kw {
                let inside = |at: usize, before: usize, extent: usize| at.checked_sub(before).filter(|p| *p < extent);
                let h = inside(row * c.stride[0] + i * c.dilation[0], c.padding[0], c.h);
                let w = inside(column * c.stride[1] + j * c.dilation[1], c.padding[1], c.w);
                let (Some(h), Some(w)) = (h, w) else { continue };
                let x = data.input[((image * c.ci + first + k) * c.h + h) * c.w + w];
                let weight = data.weight[((channel * per_group + k) * c.kh + i) * c.kw + j];
                sum += f64::from(x) * f64::from(weight);
            }
        }
    }
    (sum, channel)
}

/// An element of a product, and its column.
fn matrix_product(p: &Product, data: &Data, at: usize) -> (f64, usize) {
    let (column, row, batch) = (at % p.n, at / p.n % p.m, at / p.n / p.m);
    let a = |k: usize| data.input[batch * p.m * p.k + if p.trans_a { k * p.m + row } else { row * p.k + k }];
    let b = |k: usize| data.weight[batch * p.k * p.n + if p.trans_b { column * p.k + k } else { k * p.n + column }];
    ((0..p.k).map(|k| f64::from(a(k)) * f64::from(b(k))).sum(), column)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of a row and a column, and the same as a convolution of one pixel.
    #[test]
    fn a_product_and_a_convolution_of_one_pixel_agree() {
        let product = Op::Product(Product { batch: 1, m: 1, n: 2, k: 3, trans_a: false, trans_b: true });
        let conv = Op::Conv(Conv {
            n: 1,
            ci: 3,
            h: 1,
            w: 1,
            co: 2,
            kh: 1,
            kw: 1,
            stride: [1; 2],
            padding: [0; 4],
            dilation: [1; 2],
            groups: 1,
        });
        let data = Data {
            input: [1.0, 2.0, 3.0].into_iter().collect(),
            weight: [1.0, 0.5, 0.25, -1.0, -2.0, -3.0].into_iter().collect(),
            bias: [0.25, 10.0].into_iter().collect(),
            residual: std::iter::empty().collect(),
        };
        for op in [product, conv] {
            let problem = Problem { op, bias: true, residual: false, activation: Activation::Relu };
            assert_eq!(error(&problem, &data, &[3.0, 0.0]), 0.0);
            assert_eq!(error(&problem, &data, &[3.0, 1.5]), 0.5);
            assert_eq!(error(&problem, &data, &[f32::NAN, 0.0]), f64::INFINITY);
        }
    }

    #[test]
    fn a_difference_that_is_no_number_is_not_passed_over() {
        assert_eq!(difference(&[1.0, 3.0], &[2.0, 4.0]), 0.25);
        assert!(difference(&[f32::NAN, 3.0], &[2.0, 4.0]).is_nan());
    }
}
