//! The roofline plot: how fast each workload runs, against what the target allows at its arithmetic intensity.

use super::Bench;
use super::svg::{Scale, axes, escaped, px};
use crate::tune::progress::{percent, rate, us};
use crate::tune::roofline::Roofline;
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
    let knees = || roofs.iter().map(|r| r.peak_gflops / r.bandwidth_gb_s);
    let intensities = || points.iter().map(|p| p.2).chain(knees());
    let (low, high) = (intensities().min_by(f64::total_cmp)? / 2.0, intensities().max_by(f64::total_cmp)? * 3.0);
    let [left, right, top, bottom] = MARGIN;
    let x = Scale::log(low, high, left, WIDTH - right);
    let y = Scale::log(lowest / 2.0, peak * 1.6, HEIGHT - bottom, top);
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
    for roof in &roofs {
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
            px(x.end() - 4.0),
            px(y.at(roof.peak_gflops) - 6.0),
            rate(roof.peak_gflops),
            rate(roof.bandwidth_gb_s),
        );
    }
    for (number, layer, intensity, gflops, best) in points {
        let share = layer.share_of_roof(best).map(percent).unwrap_or_default();
        let title =
            format!("{number}. {}: {} us, {} GFLOP/s, {share} of the roofline", layer.name, us(best), rate(gflops));
        let (cx, cy) = (px(x.at(intensity)), y.at(gflops));
        let _ = write!(
            out,
            "<g class=\"point\"><title>{}</title><circle cx=\"{cx}\" cy=\"{}\" r=\"9\"/><text x=\"{cx}\" y=\"{}\" \
             text-anchor=\"middle\">{number}</text></g>",
            escaped(&title),
            px(cy),
            px(cy + 3.5),
        );
    }
    out.push_str("</svg>");
    Some(out)
}
