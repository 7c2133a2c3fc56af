//! A line of text in a picture: a rectangle, which may be rotated.

use image::{Rgb, RgbImage};
use imageproc::geometric_transformations::{Border, Interpolation, Projection, warp_into};
use imageproc::geometry::min_area_rect;
use imageproc::point::Point;

/// From this ratio of height to width a rectangle is a line that is written upright.
const UPRIGHT: f32 = 1.5;

/// A rectangle around a line of text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Line {
    centre: (f32, f32),
    /// The direction of reading, of length 1.
    along: (f32, f32),
    /// Extents along and across it, in pixels.
    size: (f32, f32),
}

impl Line {
    /// The smallest rectangle around the points of an outline.
    pub(crate) fn around(outline: &[Point<i32>]) -> Line {
        // An outline comes back along what is one pixel wide; the hull wants each point once.
        let mut points = outline.to_vec();
        points.sort_by_key(|p| (p.x, p.y));
        points.dedup();
        let [a, b, c, _] = min_area_rect(&points).map(|p| (p.x as f32, p.y as f32));
        let side = |from: (f32, f32), to: (f32, f32)| (to.0 - from.0, to.1 - from.1);
        let [first, second] = [side(a, b), side(b, c)];
        // What lies nearer to the horizontal is read along, to the right.
        let (along, across) = if first.0.abs() >= second.0.abs() { (first, second) } else { (second, first) };
        let [width, height] = [along, across].map(|(x, y)| x.hypot(y));
        let length = if along.0 < 0.0 { -width } else { width };
        let direction = if width > 0.0 { (along.0 / length, along.1 / length) } else { (1.0, 0.0) };
        let line = Line {
            centre: ((a.0 + c.0) / 2.0, (a.1 + c.1) / 2.0),
            along: direction,
            // Points are pixels, which have an extent themselves.
            size: (width + 1.0, height + 1.0),
        };
        if line.size.1 < UPRIGHT * line.size.0 { line } else { line.rotated() }
    }

    /// The same rectangle, read downwards.
    fn rotated(self) -> Line {
        Line { along: self.across(), size: (self.size.1, self.size.0), ..self }
    }

    /// The direction across the line, downwards if it is read to the right.
    fn across(&self) -> (f32, f32) {
        (-self.along.1, self.along.0)
    }

    /// The rectangle with the margin that the detector leaves away: area over circumference times a ratio, on each side.
    pub(crate) fn grown(self, ratio: f32) -> Line {
        let (width, height) = self.size;
        let margin = ratio * width * height / (2.0 * (width + height));
        Line { size: (width + 2.0 * margin, height + 2.0 * margin), ..self }
    }

    /// The rectangle in a picture that is larger by a factor.
    pub(crate) fn scaled(self, factor: f32) -> Line {
        let [centre, size] = [self.centre, self.size].map(|(a, b)| (a * factor, b * factor));
        Line { centre, size, ..self }
    }

    /// Extents along and across the line, in pixels.
    pub(crate) fn size(&self) -> (f32, f32) {
        self.size
    }

    /// Where the middle of the line is: column and row.
    pub(crate) fn centre(&self) -> (f32, f32) {
        self.centre
    }

    /// The corners, from where the line starts, around with the clock.
    pub(crate) fn corners(&self) -> [(f32, f32); 4] {
        let ((x, y), (w, h)) = (self.centre, (self.size.0 / 2.0, self.size.1 / 2.0));
        let ((ax, ay), (bx, by)) = (self.along, self.across());
        [(-w, -h), (w, -h), (w, h), (-w, h)].map(|(s, t)| (x + s * ax + t * bx, y + s * ay + t * by))
    }

    /// The line alone, straight, in pixels of a height. It is as wide as it has to be, but no wider than `widest`.
    pub(crate) fn cut(&self, picture: &RgbImage, height: u32, widest: u32) -> RgbImage {
        let width = (self.size.0 * height as f32 / self.size.1).ceil().clamp(1.0, widest as f32);
        let (w, h) = (width, height as f32);
        let mut cut = RgbImage::new(width as u32, height);
        // A rectangle without an extent has no projection; the picture of it stays black.
        if let Some(onto) = Projection::from_control_points(self.corners(), [(0.0, 0.0), (w, 0.0), (w, h), (0.0, h)]) {
            warp_into(picture, onto, Interpolation::Bilinear, Border::Constant(Rgb([0; 3])), &mut cut);
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(points: [(i32, i32); 4]) -> Vec<Point<i32>> {
        points.map(|(x, y)| Point::new(x, y)).to_vec()
    }

    #[test]
    fn a_line_is_read_to_the_right_or_down() {
        let flat = Line::around(&outline([(10, 10), (109, 10), (109, 29), (10, 29)]));
        assert_eq!((flat.size(), flat.centre()), ((100.0, 20.0), (59.5, 19.5)));
        assert_eq!(flat.corners()[0], (9.5, 9.5));
        let upright = Line::around(&outline([(10, 10), (29, 10), (29, 109), (10, 109)]));
        assert_eq!(upright.size(), (100.0, 20.0));
        assert_eq!(upright.corners()[0], (29.5, 9.5), "it starts above and has its upper side on the right");
    }

    #[test]
    fn an_outline_may_come_back_along_itself() {
        let there = (0..30).map(|i| Point::new(i, i / 3));
        let outline: Vec<Point<i32>> = there.clone().chain(there.rev()).collect();
        assert!(Line::around(&outline).size().0 > 25.0);
        assert_eq!(Line::around(&[Point::new(3, 4); 5]).centre(), (3.0, 4.0));
    }

    #[test]
    fn a_cut_has_the_pixels_of_the_rectangle() {
        let picture = RgbImage::from_fn(40, 20, |x, y| Rgb([x as u8, y as u8, 0]));
        let cut = Line::around(&outline([(8, 4), (23, 4), (23, 11), (8, 11)])).cut(&picture, 8, 100);
        assert_eq!(cut.dimensions(), (16, 8));
        let [first, last] = [cut.get_pixel(0, 0).0, cut.get_pixel(15, 7).0].map(|p| [p[0].into(), p[1].into()]);
        let near = |a: [i32; 2], b: [i32; 2]| a[0].abs_diff(b[0]) <= 1 && a[1].abs_diff(b[1]) <= 1;
        assert!(near(first, [8, 4]) && near(last, [23, 11]), "{first:?} {last:?}");
    }
}
