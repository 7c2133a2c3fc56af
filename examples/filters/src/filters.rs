//! The filters: small matrices that photo editors have had for decades.

/// How the result becomes colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Show {
    /// As it is.
    Plain,
    /// Around a middle grey, times a factor: for results of both signs.
    Signed(f32),
    /// The absolute value, times a factor.
    Absolute(f32),
}

/// A filter of `K` x `K` taps.
pub(crate) struct Filter<const K: usize> {
    /// For the caption.
    pub name: &'static str,
    /// The taps, from the top left.
    pub taps: [[f32; K]; K],
    /// How the result is shown.
    pub show: Show,
}

/// The mean of 9 x 9 pixels.
pub(crate) fn box_blur() -> Filter<9> {
    Filter { name: "box blur 9x9", taps: [[1.0 / 81.0; 9]; 9], show: Show::Plain }
}

/// A blur without corners: binomial numbers, which come close to a Gaussian with a deviation of one pixel.
pub(crate) fn gaussian() -> Filter<5> {
    let row = [1.0f32, 4.0, 6.0, 4.0, 1.0].map(|v| v / 16.0);
    Filter { name: "Gaussian 5x5", taps: row.map(|v| row.map(|h| v * h)), show: Show::Plain }
}

/// Adds what the neighbours lack.
pub(crate) fn sharpen() -> Filter<3> {
    Filter { name: "sharpen", taps: [[0.0, -1.0, 0.0], [-1.0, 5.0, -1.0], [0.0, -1.0, 0.0]], show: Show::Plain }
}

/// Light from the upper left on a relief.
pub(crate) fn emboss() -> Filter<3> {
    Filter { name: "emboss", taps: [[-2.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]], show: Show::Signed(0.5) }
}

/// The sum of the second derivatives: fine edges, of any direction.
pub(crate) fn laplacian() -> Filter<3> {
    Filter { name: "Laplacian", taps: [[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]], show: Show::Absolute(1.5) }
}

/// Sobel's slopes to the right and downwards.
pub(crate) fn sobel() -> [[[f32; 3]; 3]; 2] {
    let x = [[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]];
    [x, std::array::from_fn(|i| std::array::from_fn(|j| x[j][i]))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blurs_and_sharpening_keep_brightness_and_the_others_see_only_change() {
        let sum = |taps: &[f32]| taps.iter().sum::<f32>();
        for (name, taps, expected) in [
            ("box", sum(box_blur().taps.as_flattened()), 1.0),
            ("gaussian", sum(gaussian().taps.as_flattened()), 1.0),
            ("sharpen", sum(sharpen().taps.as_flattened()), 1.0),
            ("emboss", sum(emboss().taps.as_flattened()), 0.0),
            ("laplacian", sum(laplacian().taps.as_flattened()), 0.0),
            ("sobel x", sum(sobel()[0].as_flattened()), 0.0),
            ("sobel y", sum(sobel()[1].as_flattened()), 0.0),
        ] {
            assert!((taps - expected).abs() < 1e-5, "{name}: {taps}");
        }
    }
}
