//! The network in plain Rust and `f64`, layer by layer with the normalisations where the definition has them: what
//! the generated kernels are held against. It shares nothing with them but the weights.

use crate::network::{CLASSES, Conv, Step};
use crate::weights::{ConvParams, Weights};

/// An activation: channels, rows, columns.
pub struct Volume {
    channels: usize,
    size: usize,
    /// The elements, CHW.
    pub data: Vec<f64>,
}

impl Volume {
    /// A volume of square planes.
    pub fn new(channels: usize, size: usize, data: Vec<f64>) -> Volume {
        assert_eq!(data.len(), channels * size * size, "the elements fill the shape");
        Volume { channels, size, data }
    }

    fn plane(&self, c: usize) -> &[f64] {
        &self.data[c * self.size * self.size..][..self.size * self.size]
    }

    /// With zeros around every plane.
    fn padded(&self, padding: usize) -> Volume {
        let size = self.size + 2 * padding;
        let mut data = vec![0.0; self.channels * size * size];
        for (i, row) in self.data.chunks_exact(self.size).enumerate() {
            let (c, y) = (i / self.size, i % self.size);
            data[(c * size + y + padding) * size + padding..][..self.size].copy_from_slice(row);
        }
        Volume { channels: self.channels, size, data }
    }
}

/// Runs the network on a CHW image; the result holds every activation, the image included.
pub fn forward(steps: &[Step], weights: &Weights, image: &[f32], threads: usize) -> Vec<Volume> {
    let mut made = vec![Volume::new(3, crate::network::IMAGE, image.iter().map(|v| f64::from(*v)).collect())];
    let mut params = weights.convs.iter();
    for step in steps {
        let next = match step {
            Step::Conv { conv, from, residual } => {
                let params = params.next().expect("every convolution has its parameters");
                convolution(conv, params, &made[*from], residual.map(|r| &made[r]), threads)
            }
            Step::MaxPool { from, .. } => max_pool(&made[*from]),
            Step::AveragePool { from, .. } => {
                let x = &made[*from];
                let mean = |c| x.plane(c).iter().sum::<f64>() / (x.size * x.size) as f64;
                Volume::new(x.channels, 1, (0..x.channels).map(mean).collect())
            }
            Step::Fc { from, .. } => {
                let x = &made[*from].data;
                let logit = |(row, bias): (&[f32], &f32)| {
                    f64::from(*bias) + row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>()
                };
                let rows = weights.fc_weight.chunks_exact(x.len());
                Volume::new(CLASSES, 1, rows.zip(&weights.fc_bias).map(logit).collect())
            }
        };
        made.push(next);
    }
    made
}

/// Convolution, batch normalisation, residual and ReLU, the output channels shared out to threads.
fn convolution(conv: &Conv, params: &ConvParams, x: &Volume, residual: Option<&Volume>, threads: usize) -> Volume {
    let padded = x.padded(conv.padding);
    let size = conv.out_size();
    let plane = size * size;
    let mut data = vec![0.0; conv.co * plane];
    let share = conv.co.div_ceil(threads);
    std::thread::scope(|scope| {
        for (part, channels) in data.chunks_mut(share * plane).enumerate() {
            let padded = &padded;
            scope.spawn(move || {
                for (i, out) in channels.chunks_exact_mut(plane).enumerate() {
                    let c = part * share + i;
                    sum_of_products(conv, &params.weight[c * conv.ci * conv.k * conv.k..], padded, out);
                    let (scale, shift) = params.scale_and_shift(c);
                    for (p, v) in out.iter_mut().enumerate() {
                        *v = *v * scale + shift + residual.map_or(0.0, |r| r.plane(c)[p]);
                        *v = if conv.relu { v.max(0.0) } else { *v };
                    }
                }
            });
        }
    });
    Volume::new(conv.co, size, data)
}

/// Adds one output channel's sum to `out`; `weights` begins with that channel's.
fn sum_of_products(conv: &Conv, weights: &[f32], x: &Volume, out: &mut [f64]) {
    let size = conv.out_size();
    for ci in 0..conv.ci {
        let plane = x.plane(ci);
        for kh in 0..conv.k {
            for kw in 0..conv.k {
                let w = f64::from(weights[(ci * conv.k + kh) * conv.k + kw]);
                for (y, row) in out.chunks_exact_mut(size).enumerate() {
                    let line = &plane[(y * conv.stride + kh) * x.size + kw..];
                    if conv.stride == 1 {
                        row.iter_mut().zip(line).for_each(|(o, x)| *o += w * x);
                    } else {
                        row.iter_mut().zip(line.iter().step_by(conv.stride)).for_each(|(o, x)| *o += w * x);
                    }
                }
            }
        }
    }
}

/// The largest of 3 x 3 neighbours inside of the plane, stride 2, padding 1.
fn max_pool(x: &Volume) -> Volume {
    let size = (x.size + 2 - 3) / 2 + 1;
    let mut data = Vec::with_capacity(x.channels * size * size);
    for c in 0..x.channels {
        let plane = x.plane(c);
        for i in 0..size * size {
            let (y, x0) = (i / size * 2, i % size * 2);
            let rows = y.saturating_sub(1)..(y + 2).min(x.size);
            let row_max = |y: usize| {
                let columns = x0.saturating_sub(1)..(x0 + 2).min(x.size);
                plane[y * x.size..][columns].iter().copied().fold(f64::NEG_INFINITY, f64::max)
            };
            data.push(rows.map(row_max).fold(f64::NEG_INFINITY, f64::max));
        }
    }
    Volume::new(x.channels, size, data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::EPSILON;

    fn conv(ci: usize, co: usize, size: usize, k: usize, stride: usize, padding: usize) -> Conv {
        Conv { name: "c".into(), norm: "b".into(), workload: "w".into(), ci, co, size, k, stride, padding, relu: false }
    }

    #[test]
    fn a_convolution_is_its_definition_on_any_number_of_threads() {
        for (k, stride, padding) in [(3, 1, 1), (3, 2, 1), (1, 2, 0), (5, 2, 3)] {
            let c = conv(2, 3, 7, k, stride, padding);
            let weight: Vec<f32> = (0..3 * 2 * k * k).map(|i| (i % 7) as f32 - 3.0).collect();
            let norm = |v: f32| vec![v; 3];
            let params = ConvParams {
                weight: weight.clone(),
                gamma: norm(1.0),
                beta: norm(0.0),
                mean: norm(0.0),
                variance: norm(1.0 - EPSILON as f32),
            };
            let x = Volume::new(2, 7, (0..98).map(|i| (i % 11) as f64 - 5.0).collect());
            let out = c.out_size();
            let mut expected = vec![];
            for i in 0..3 * out * out {
                let (co, y, x0) = (i / (out * out), i / out % out, i % out);
                let mut sum = 0.0;
                for j in 0..2 * k * k {
                    let (ci, kh, kw) = (j / (k * k), j / k % k, j % k);
                    let (h, w) = ((y * stride + kh).wrapping_sub(padding), (x0 * stride + kw).wrapping_sub(padding));
                    if h < 7 && w < 7 {
                        sum += f64::from(weight[co * 2 * k * k + j]) * x.plane(ci)[h * 7 + w];
                    }
                }
                expected.push(sum);
            }
            for threads in [1, 2, 5] {
                let found = convolution(&c, &params, &x, None, threads).data;
                assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{k} {stride} {padding}");
            }
        }
    }

    #[test]
    fn residual_and_relu_come_after_the_normalisation() {
        let c = Conv { relu: true, ..conv(1, 1, 2, 1, 1, 0) };
        let params =
            ConvParams { weight: vec![2.0], gamma: vec![3.0], beta: vec![-1.0], mean: vec![0.5], variance: vec![4.0] };
        let x = Volume::new(1, 2, vec![1.0, -1.0, 0.0, 2.0]);
        let r = Volume::new(1, 2, vec![10.0, 1.0, 0.0, -1.0]);
        let found = convolution(&c, &params, &x, Some(&r), 1).data;
        for (v, expected) in found.iter().zip([11.25, 0.0, 0.0, 3.25]) {
            assert!((v - expected).abs() < 1e-4, "{found:?}");
        }
    }

    #[test]
    fn pooling_ignores_what_lies_outside() {
        let x = Volume::new(1, 4, (0..16).map(|i| -f64::from(i)).collect());
        assert_eq!(max_pool(&x).data, [0.0, -1.0, -4.0, -5.0]);
    }
}
