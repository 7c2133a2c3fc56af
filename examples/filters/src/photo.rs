//! The photo as a tensor, and results as pictures.

use crate::filters::Show;
use kernel_gen_runtime::{D4, Tensor};
use picture::Picture;

/// Width of the photo.
pub(crate) const WIDTH: usize = 320;
/// Height of the photo.
pub(crate) const HEIGHT: usize = 240;

/// Planes of the colours, as the filters write them.
pub(crate) type Planes<const C: usize> = D4<1, C, HEIGHT, WIDTH>;

/// Resizes a picture until it covers the size of the photo, and crops the middle.
pub(crate) fn fit(picture: &Picture) -> Picture {
    let (w, h) = (picture.width, picture.height);
    let (w, h) = if w * HEIGHT >= h * WIDTH { (w * HEIGHT / h, HEIGHT) } else { (WIDTH, h * WIDTH / w) };
    picture.resized(w, h).cropped((w - WIDTH) / 2, (h - HEIGHT) / 2, WIDTH, HEIGHT)
}

/// The photo in `H` rows and `W` columns, the outermost pixels repeated on all sides.
pub(crate) fn with_border<const H: usize, const W: usize>(photo: &Picture) -> Tensor<f32, D4<1, 3, H, W>> {
    let (top, left) = ((H - HEIGHT) / 2, (W - WIDTH) / 2);
    Tensor::from_fn(|i| {
        let (c, y, x) = (i / (H * W), i / W % H, i % W);
        let inside = |v: usize, before: usize, size: usize| v.saturating_sub(before).min(size - 1);
        f32::from(photo.at(inside(x, left, WIDTH), inside(y, top, HEIGHT))[c])
    })
}

/// Colours from three planes.
pub(crate) fn picture(planes: &Tensor<f32, Planes<3>>, show: Show) -> Picture {
    let plane = |c: usize| &planes.as_slice()[c * WIDTH * HEIGHT..];
    let tone = |v: f32| match show {
        Show::Plain => v,
        Show::Signed(factor) => 128.0 + v * factor,
        Show::Absolute(factor) => v.abs() * factor,
    };
    Picture::from_fn(WIDTH, HEIGHT, |x, y| {
        std::array::from_fn(|c| tone(plane(c)[y * WIDTH + x]).round().clamp(0.0, 255.0) as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_picture_fits() {
        for (w, h) in [(320, 240), (640, 100), (33, 500), (1, 1), (321, 241)] {
            let photo = fit(&Picture::filled(w, h, [1, 2, 3]));
            assert_eq!(photo, Picture::filled(WIDTH, HEIGHT, [1, 2, 3]));
        }
    }

    #[test]
    fn the_border_repeats_the_outermost_pixels() {
        let photo = Picture::from_fn(WIDTH, HEIGHT, |x, y| [(x % 256) as u8, y as u8, 5]);
        let tensor = with_border::<244, 324>(&photo);
        let at = |c: usize, y: usize, x: usize| tensor.as_slice()[(c * 244 + y) * 324 + x];
        assert_eq!((at(0, 0, 0), at(0, 9, 1), at(0, 9, 2), at(0, 9, 3)), (0.0, 0.0, 0.0, 1.0));
        assert_eq!((at(1, 1, 7), at(1, 2, 7), at(1, 3, 7), at(1, 243, 7)), (0.0, 0.0, 1.0, 239.0));
        assert_eq!((at(0, 0, 323), at(2, 100, 100)), (63.0, 5.0));
    }
}
