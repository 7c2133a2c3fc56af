//! From a picture to the network's input, as torchvision's weights expect it.

use crate::network::IMAGE;
use picture::Picture;

/// Mean of each colour over ImageNet, of values from 0 to 1.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviation of each colour.
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];
/// Length of the shorter side after resizing.
const SHORTER_SIDE: usize = 256;

/// Resizes the shorter side to 256, crops the middle 224 x 224, and normalises. The result is planar (CHW).
pub fn preprocess(picture: &Picture) -> Vec<f32> {
    let shorter = picture.width.min(picture.height);
    // Rounded down, as torchvision does.
    let scaled = |side: usize| side * SHORTER_SIDE / shorter;
    let resized = picture.resized(scaled(picture.width), scaled(picture.height));
    let crop = resized.cropped((resized.width - IMAGE) / 2, (resized.height - IMAGE) / 2, IMAGE, IMAGE);
    let colour = |c: usize| crop.pixels.iter().map(move |p| (f32::from(p[c]) / 255.0 - MEAN[c]) / DEVIATION[c]);
    (0..3).flat_map(colour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_aspect_ratio_becomes_a_normalised_square() {
        for (width, height) in [(320, 240), (100, 300), (256, 256), (640, 31)] {
            let grey = preprocess(&Picture::filled(width, height, [128, 128, 128]));
            assert_eq!(grey.len(), 3 * IMAGE * IMAGE);
            for c in 0..3 {
                let expected = (128.0 / 255.0 - MEAN[c]) / DEVIATION[c];
                assert!(grey[c * IMAGE * IMAGE..][..IMAGE * IMAGE].iter().all(|v| (v - expected).abs() < 1e-6));
            }
        }
    }

    #[test]
    fn the_crop_is_the_middle() {
        // Red grows to the right; in the crop its middle is the picture's middle.
        let picture = Picture::from_fn(512, 256, |x, _| [(x / 2) as u8, 0, 0]);
        let input = preprocess(&picture);
        let row = &input[..IMAGE];
        let red = |v: f32| (v * DEVIATION[0] + MEAN[0]) * 255.0;
        assert!((red(row[0]) - 72.0).abs() < 1.5 && (red(row[IMAGE - 1]) - 183.0).abs() < 1.5);
    }
}
