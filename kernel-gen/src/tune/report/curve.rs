//! Best so far against trials, a small drawing for each workload with a line for each template.

use super::contents::{Layer, TaskLine};
use super::svg::{Scale, axes, escaped, px};
use crate::tune::progress::us;
use std::fmt::Write;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 190.0;
/// Room for labels: left, right, top, bottom.
const MARGIN: [f64; 4] = [46.0, 12.0, 10.0, 36.0];

/// Colours there are for lines; more templates than that share the last.
pub(super) const COLOURS: usize = 6;

/// The drawing of a workload; none where nothing ran.
pub(super) fn drawing(layer: &Layer) -> Option<String> {
    let ran: Vec<&TaskLine> = layer.tasks.iter().filter(|t| !t.curve.is_empty()).collect();
    let times = || ran.iter().flat_map(|t| t.curve.iter().map(|(_, us)| *us));
    let best = times().min_by(f64::total_cmp)?;
    let worst = times().max_by(f64::total_cmp)?;
    let trials = ran.iter().map(|t| t.trials).max()?;
    let [left, right, top, bottom] = MARGIN;
    let x = Scale::linear(0.0, trials as f64, left, WIDTH - right);
    let y = Scale::log(best * 0.95, worst.max(best * 1.2) * 1.05, HEIGHT - bottom, top);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Best time of {} after each trial\">",
        escaped(&layer.name)
    );
    out.push_str(&axes(&x, &y, &x.ticks(4), &y.ticks(4)));
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">trials</text>",
        px((left + WIDTH - right) / 2.0),
        px(HEIGHT - 4.0)
    );
    // The fastest is drawn last, on top.
    for (at, task) in ran.iter().enumerate().rev() {
        let mut path = String::new();
        let mut last = None;
        for (trial, us) in &task.curve {
            let (px_x, px_y) = (px(x.at(*trial as f64)), px(y.at(*us)));
            let _ = match last {
                None => write!(path, "M{px_x} {px_y}"),
                Some(_) => write!(path, "H{px_x}V{px_y}"),
            };
            last = Some(*us);
        }
        let _ = write!(path, "H{}", px(x.at(task.trials as f64)));
        let title = format!("{}: {} us after {} trials", task.template, us(last.unwrap_or(best)), task.trials);
        let colour = at.min(COLOURS - 1);
        let _ = write!(out, "<path class=\"curve c{colour}\" d=\"{path}\"><title>{}</title></path>", escaped(&title));
        if let Some((trial, us)) = task.curve.last() {
            let _ = write!(
                out,
                "<circle class=\"dot c{colour}\" cx=\"{}\" cy=\"{}\" r=\"3\"><title>{}</title></circle>",
                px(x.at(*trial as f64)),
                px(y.at(*us)),
                escaped(&title)
            );
        }
    }
    out.push_str("</svg>");
    Some(out)
}

/// The names of a drawing's lines.
pub(super) fn legend(layer: &Layer) -> String {
    let ran = layer.tasks.iter().filter(|t| !t.curve.is_empty()).enumerate();
    let items = ran.map(|(at, task)| {
        let best = task.best.as_ref().map_or(f64::NAN, |b| b.us);
        let colour = at.min(COLOURS - 1);
        format!("<li><i class=\"key c{colour}\"></i>{} <b>{} us</b></li>", escaped(&task.template), us(best))
    });
    let none = layer.tasks.iter().filter(|t| t.curve.is_empty());
    let none = none.map(|t| format!("<li><i class=\"key none\"></i>{} ran nothing</li>", escaped(&t.template)));
    format!("<ul class=\"legend\">{}</ul>", items.chain(none).collect::<String>())
}
