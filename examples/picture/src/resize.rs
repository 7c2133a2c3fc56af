//! Resizing with a triangle filter, one axis after the other.

use crate::Picture;

/// For each target position the first source position and the weights from there on.
///
/// The triangle is one target pixel wide on each side and at least one source pixel: enlarging interpolates linearly,
/// shrinking averages (what other libraries call bilinear with antialiasing).
fn weights(from: usize, to: usize) -> Vec<(usize, Vec<f32>)> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    (0..to)
        .map(|i| {
            let centre = (i as f64 + 0.5) * scale;
            let first = (centre - reach).max(0.0) as usize;
            let last = ((centre + reach).ceil() as usize).clamp(first + 1, from);
            let raw: Vec<f64> =
                (first..last).map(|s| (1.0 - ((s as f64 + 0.5 - centre) / reach).abs()).max(0.0)).collect();
            let sum: f64 = raw.iter().sum();
            (first, raw.iter().map(|w| (w / sum) as f32).collect())
        })
        .collect()
}

pub(crate) fn resized(picture: &Picture, width: usize, height: usize) -> Picture {
    let columns = weights(picture.width, width);
    let rows = weights(picture.height, height);
    let mut wide: Vec<[f32; 3]> = Vec::with_capacity(width * picture.height);
    for row in picture.pixels.chunks_exact(picture.width) {
        wide.extend(columns.iter().map(|(first, weights)| {
            blend(weights.iter().zip(&row[*first..]).map(|(w, pixel)| (*w, pixel.map(f32::from))))
        }));
    }
    Picture::from_fn(width, height, |x, y| {
        let (first, weights) = &rows[y];
        let pixel = blend(weights.iter().enumerate().map(|(i, w)| (*w, wide[(first + i) * width + x])));
        pixel.map(|v| v.round().clamp(0.0, 255.0) as u8)
    })
}

fn blend(parts: impl Iterator<Item = (f32, [f32; 3])>) -> [f32; 3] {
    parts.fold([0.0; 3], |sum, (w, p)| [sum[0] + w * p[0], sum[1] + w * p[1], sum[2] + w * p[2]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resizing_to_the_same_size_changes_nothing() {
        let picture = Picture::from_fn(9, 5, |x, y| [(x * 25) as u8, (y * 50) as u8, 3]);
        assert_eq!(resized(&picture, 9, 5), picture);
    }

    #[test]
    fn shrinking_averages_and_enlarging_interpolates() {
        let stripes = Picture::from_fn(64, 4, |x, _| if x % 2 == 0 { [0; 3] } else { [200; 3] });
        let small = resized(&stripes, 8, 2);
        assert!(small.pixels.iter().all(|p| (95..=105).contains(&p[0])), "{:?}", small.pixels);
        let ramp = Picture::from_fn(2, 1, |x, _| [100 * x as u8; 3]);
        let wide = resized(&ramp, 4, 1);
        assert_eq!(wide.pixels.iter().map(|p| p[0]).collect::<Vec<_>>(), [0, 25, 75, 100]);
    }

    #[test]
    fn one_pixel_fills_any_size() {
        let dot = Picture::filled(1, 1, [9, 8, 7]);
        assert_eq!(resized(&dot, 3, 2), Picture::filled(3, 2, [9, 8, 7]));
    }
}
