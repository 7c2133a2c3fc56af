//! What reading an image at any place gives, in plain Rust and `f64`. The magnitudes are errors in units of roundoff of `f32`.

use super::grid_sample::{Beyond, GridSample};
use super::products::Sums;

/// The coordinate of a sample along an axis, in pixels, and a bound of its error in units of roundoff.
fn place(op: &GridSample, number: f64, pixels: i64) -> (f64, f64) {
    let size = pixels as f64;
    let place =
        if op.align_corners { (number + 1.0) / 2.0 * (size - 1.0) } else { ((number + 1.0) * size - 1.0) / 2.0 };
    let error = 4.0 * (number.abs() + 2.0) * size;
    let within = |place: f64| if place.is_nan() { place } else { place.clamp(0.0, size - 1.0) };
    let found = match op.beyond {
        Beyond::Zeros => place,
        Beyond::Border => within(place),
        Beyond::Reflection => {
            // To and fro between the edges, which is periodic.
            let [low, high] = op.edges(pixels);
            let span = high - low;
            let along = if span > 0.0 { (place - low).rem_euclid(2.0 * span) } else { 0.0 * place };
            within(low + if along <= span { along } else { 2.0 * span - along })
        }
    };
    (found, error)
}

/// Each image at the places of its grid.
pub(super) fn sampled(op: &GridSample, x: &[f64], grid: &[f64]) -> Sums {
    let ([h, w], [oh, ow]) = (op.pixels, op.places);
    let places = (oh * ow) as usize;
    let (mut values, mut magnitudes, mut or_nan) = (vec![], vec![], vec![]);
    for (plane, pixels) in x.chunks((h * w) as usize).enumerate() {
        let own = &grid[plane / op.c as usize * places * 2..][..places * 2];
        for number in own.chunks(2) {
            let ((row, row_error), (column, column_error)) = (place(op, number[1], h), place(op, number[0], w));
            let pixel = |y: f64, x: f64| {
                let inside = (0.0..h as f64).contains(&y) && (0.0..w as f64).contains(&x);
                if inside { pixels[y as usize * w as usize + x as usize] } else { 0.0 }
            };
            // What may be read, if the place is a little off.
            let around = (-1..=2).flat_map(|dy| (-1..=2).map(move |dx| (f64::from(dy), f64::from(dx))));
            let around = around.map(|(dy, dx)| pixel(row.floor() + dy, column.floor() + dx));
            let (mut largest, mut is_finite) = (0f64, true);
            for value in around {
                is_finite &= value.is_finite();
                largest = if value.is_finite() { largest.max(value.abs()) } else { largest };
            }
            let (value, magnitude) = if op.nearest {
                let off =
                    |place: f64, error: f64| (place - place.floor() - 0.5).abs() <= 2.0 * error / f64::from(1 << 24);
                let may_differ = off(row, row_error) || off(column, column_error);
                let value = pixel(row.round_ties_even(), column.round_ties_even());
                (value, if may_differ { 2.0 * largest * f64::from(1 << 24) } else { 0.0 })
            } else {
                let (top, left) = (row.floor(), column.floor());
                let (below, behind) = (row - top, column - left);
                let line = |y: f64| (1.0 - behind) * pixel(y, left) + behind * pixel(y, left + 1.0);
                let value = (1.0 - below) * line(top) + below * line(top + 1.0);
                (value, 2.0 * largest * (row_error + column_error) + 8.0 * largest)
            };
            if !is_finite {
                or_nan.push(values.len());
            }
            values.push(value);
            magnitudes.push(magnitude);
        }
    }
    Sums { values, magnitudes, or_nan }
}
