//! Where the network's time goes: a bar for each workload.

use super::contents::Bench;
use super::svg::escaped;
use crate::tune::progress::{percent, us};
use std::fmt::Write;

/// Characters of a name that there is room for beside long bars.
const LONG: usize = 28;

/// The bars of a machine, the longest first.
pub(super) fn bars(bench: &Bench) -> String {
    let total = bench.network_us();
    let longest = bench.layers.iter().filter_map(|l| Some(l.used_us()? * l.weight)).fold(0.0, f64::max);
    // Keys of workloads differ behind the place where a name would end.
    let long = if bench.layers.iter().any(|l| l.name.chars().count() > LONG) { " long" } else { "" };
    let mut out = format!("<div class=\"bars{long}\">");
    for (at, layer) in bench.layers.iter().enumerate() {
        let name = format!("{}. {}", at + 1, layer.name);
        let Some(best) = layer.used_us() else {
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "<div class=\"bar\"><span title=\"{1}\">{0}</span><div></div><span>nothing ran</span></div>",
                escaped(&name),
                escaped(&layer.key)
            );
            continue;
        };
        let time = best * layer.weight;
        let times = if layer.weight == 1.0 { String::new() } else { format!("{} x ", layer.weight) };
        let _ = write!(
            out,
            "<div class=\"bar\"><span title=\"{}\">{}</span><div><i style=\"width:{:.1}%\"></i></div><span>{} · {times}{} \
             us</span></div>",
            escaped(&layer.key),
            escaped(&name),
            time / longest * 100.0,
            percent(time / total),
            us(best),
        );
    }
    out.push_str("</div>");
    out
}
