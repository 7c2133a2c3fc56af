//! The roofline plot: how fast each workload runs, against what the target allows at its arithmetic intensity.

use super::contents::Bench;
use super::svg::{Scale, axes, escaped, px};
use crate::model::roofline::Roofline;
use crate::tune::progress::{percent, rate, us};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
/// Room for labels: left, right, top, bottom.
const MARGIN: [f64; 4] = [60.0, 20.0, 24.0, 44.0];

/// The drawing of a machine; none where no workload of it has a roofline and a time.
pub(super) fn drawing(bench: &Bench) -> Option<String> {
    let mut roofs: Vec<Roofline> = vec![];
    let mut points = vec![];
    for (at, layer) in bench.layers.iter().enumerate() {
        let (Some(roofline), Some(best)) = (layer.roofline, layer.used_us()) else { continue };
        if !roofs.contains(&roofline) {
            roofs.push(roofline);
        }
        points.push((at + 1, layer, layer.flops / layer.bytes.max(1.0), layer.gflops(best), best));
    }
    let lowest = points.iter().map(|p| p.3).min_by(f64::total_cmp)?;
    let peak = roofs.iter().map(|r| r.peak_gflops).max_by(f64::total_cmp)?;
    // What computes with fewer operations than are counted, as Winograd does, may be above the roof.
    let highest = points.iter().map(|p| p.3).chain([peak]).max_by(f64::total_cmp)?;
    let knees = || roofs.iter().map(|r| r.peak_gflops / r.bandwidth_gb_s);
    let intensities = || points.iter().map(|p| p.2).chain(knees());
    let (low, high) = (intensities().min_by(f64::total_cmp)? / 2.0, intensities().max_by(f64::total_cmp)? * 3.0);
    let [left, right, top, bottom] = MARGIN;
    let x = Scale::log(low, high, left, WIDTH - right);
    let y = Scale::log(lowest / 2.0, highest * 1.6, HEIGHT - bottom, top);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Roofline of {} on {}\">",
        escaped(&bench.target),
        escaped(&bench.device)
    );
    out.push_str(&axes(&x, &y, &x.ticks(7), &y.ticks(6)));
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">FLOP a byte that must move</text>\
         <text class=\"axis\" x=\"{}\" y=\"14\">GFLOP/s</text>",
        px((left + WIDTH - right) / 2.0),
        px(HEIGHT - 6.0),
        px(4.0),
    );
    for (row, roof) in roofs.iter().enumerate() {
        let knee = roof.peak_gflops / roof.bandwidth_gb_s;
        // Where the slope enters the drawing: at its left edge or from below.
        let start = low.max(lowest / 2.0 / roof.bandwidth_gb_s);
        let _ = write!(
            out,
            "<path class=\"roof\" d=\"M{} {}L{} {}H{}\"/><text class=\"label\" x=\"{}\" y=\"{}\" \
             text-anchor=\"end\">{} GFLOP/s peak, {} GB/s</text>",
            px(x.at(start)),
            px(y.at(start * roof.bandwidth_gb_s)),
            px(x.at(knee)),
            px(y.at(roof.peak_gflops)),
            px(x.end()),
            px(x.end()),
            // Above the drawing, where no point hides it.
            px(14.0 + 13.0 * row as f64),
            rate(roof.peak_gflops),
            rate(roof.bandwidth_gb_s),
        );
    }
    let places: Vec<(f64, f64)> = points.iter().map(|p| (x.at(p.2), y.at(p.3))).collect();
    let labels = labels(&places, (left, WIDTH - right, top, HEIGHT - bottom));
    for (((number, layer, _, gflops, best), (cx, cy)), (lx, ly)) in points.into_iter().zip(places).zip(labels) {
        let share = layer.share_of_roof(best).map(percent).unwrap_or_default();
        let title =
            format!("{number}. {}: {} us, {} GFLOP/s, {share} of the roofline", layer.name, us(best), rate(gflops));
        let _ = write!(
            out,
            "<g class=\"point\"><title>{}</title><line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/><circle cx=\"{}\" \
             cy=\"{}\" r=\"4\"/><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{number}</text></g>",
            escaped(&title),
            px(cx),
            px(cy),
            px(lx),
            px(ly),
            px(cx),
            px(cy),
            px(lx),
            px(ly + 4.0),
        );
    }
    out.push_str("</svg>");
    Some(out)
}

/// Half the width and half the height of a number beside its point.
const LABEL: (f64, f64) = (9.0, 7.0);

/// Where to write the numbers of points so that they cover neither each other nor a point: as near as there is room
/// within left, right, top and bottom.
fn labels(points: &[(f64, f64)], (left, right, top, bottom): (f64, f64, f64, f64)) -> Vec<(f64, f64)> {
    let mut placed: Vec<(f64, f64)> = vec![];
    for &(x, y) in points {
        let inside = |(a, b): (f64, f64)| a > left && a < right && b > top && b < bottom;
        let free = |(a, b): (f64, f64)| {
            let far = |(c, d): &(f64, f64), dx: f64, dy: f64| (a - c).abs() >= dx || (b - d).abs() >= dy;
            placed.iter().all(|p| far(p, 2.0 * LABEL.0, 2.0 * LABEL.1))
                && points.iter().all(|p| far(p, LABEL.0 + 4.0, LABEL.1 + 4.0))
        };
        // Rings around the point, above it first.
        let ring = |r: usize| (0..16).map(move |i| (r, f64::from((i + 1) / 2 * if i % 2 == 0 { 1 } else { -1 }) / 8.0));
        let at = |(r, turn): (usize, f64)| {
            let (sin, cos) = (turn * std::f64::consts::PI).sin_cos();
            let radius = 15.0 + 9.0 * r as f64;
            (x + radius * sin, y - radius * cos)
        };
        let spot = (0..12).flat_map(ring).map(at).find(|spot| inside(*spot) && free(*spot));
        placed.push(spot.unwrap_or((x, y - 15.0)));
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_points_that_lie_together_can_be_told_apart() {
        let points: Vec<(f64, f64)> =
            (0..20).map(|i| (300.0 + f64::from(i % 5) * 4.0, 100.0 + f64::from(i / 5) * 2.0)).collect();
        let labels = labels(&points, (0.0, 700.0, 0.0, 380.0));
        for (i, (a, b)) in labels.iter().enumerate() {
            assert!((0.0..700.0).contains(a) && (0.0..380.0).contains(b));
            let overlaps = labels[..i].iter().any(|(c, d)| (a - c).abs() < 18.0 && (b - d).abs() < 14.0);
            assert!(!overlaps, "the number of point {i} covers another");
        }
    }
}
