//! The depthwise convolution as its definition: plain loops in `f64`.

/// Convolves `x` of the shape `[channels, height, width]` with `w` of the shape `[outputs, k, k]`, where each channel has
/// as many outputs in a row as fit.
pub(crate) fn depthwise(x: &[f32], x_shape: [usize; 3], w: &[f32], w_shape: [usize; 3]) -> Vec<f64> {
    let [channels, height, width] = x_shape;
    let [outputs, kh, kw] = w_shape;
    let (oh, ow) = (height - kh + 1, width - kw + 1);
    let mut y = Vec::with_capacity(outputs * oh * ow);
    for o in 0..outputs {
        let c = o / (outputs / channels);
        for i in 0..oh * ow {
            let (top, left) = (i / ow, i % ow);
            let mut sum = 0.0;
            for v in 0..kh {
                for h in 0..kw {
                    let pixel = x[(c * height + top + v) * width + left + h];
                    sum += f64::from(pixel) * f64::from(w[(o * kh + v) * kw + h]);
                }
            }
            y.push(sum);
        }
    }
    y
}

#[cfg(test)]
mod tests {
    use super::depthwise;

    #[test]
    fn each_output_sees_its_own_channel() {
        let x = [1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0];
        let w = [1.0, 1.0, -1.0, 2.0];
        // Four outputs of 1 x 1 taps: two for each channel.
        let y = depthwise(&x, [2, 2, 2], &w, [4, 1, 1]);
        assert_eq!(y[..8], [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(y[8..], [-10.0, -20.0, -30.0, -40.0, 20.0, 40.0, 60.0, 80.0]);
        // One tap window over the whole plane.
        assert_eq!(depthwise(&x[..4], [1, 2, 2], &[1.0, 0.5, 0.25, 2.0], [1, 2, 2]), [1.0 + 1.0 + 0.75 + 8.0]);
    }
}
