//! The page.

use super::contents::{Bench, Layer, Report, WorkerLine};
use super::svg::escaped;
use super::{curve, failures, roofs, share};
use crate::tune::progress::{percent, rate, span, us};
use std::fmt::Write;
use std::time::Duration;

impl Report {
    /// The page.
    pub fn to_html(&self) -> String {
        page(self)
    }
}

fn page(report: &Report) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>\n{1}</style>\n</head>\n<body>\n\
         <h1>{0}</h1>\n",
        escaped(&report.title),
        include_str!("page.css")
    );
    if report.benches.is_empty() {
        out.push_str("<p>The logs hold no trials.</p>\n");
    }
    for bench in &report.benches {
        section(&mut out, bench, report.benches.len() > 1);
    }
    provenance(&mut out, report);
    // Writing to a string cannot fail.
    let _ = write!(out, "<script>\n{}</script>\n</body>\n</html>\n", include_str!("page.js"));
    out
}

fn section(out: &mut String, bench: &Bench, several: bool) {
    let threads = if bench.threads == 1 { String::new() } else { format!(", {} threads", bench.threads) };
    let _ = writeln!(out, "<p class=\"soft\">{} on {}{threads}</p>", escaped(&bench.target), escaped(&bench.device),);
    tiles(out, bench);
    let on = if several { format!(" on {}", escaped(&bench.device)) } else { String::new() };
    let _ = writeln!(out, "<h2>Where the time goes{on}</h2>");
    let _ = writeln!(
        out,
        "<p class=\"soft\">Each workload's share of the network: its time, by how often the network runs it.</p>\n{}",
        share::bars(bench)
    );
    if let Some(drawing) = roofs::drawing(bench) {
        let _ = writeln!(
            out,
            "<h2>Roofline{on}</h2>\n<p class=\"soft\">The fastest config of each workload, by its number in the bars \
             above, under what the target's data say of its peak and its memory. Operands that stay in a cache may lie \
             above the slope; methods that need fewer operations than are counted, such as Winograd's, and clocks \
             that are faster than the data say, above the roof.</p>\n<div class=\"wide\">{drawing}</div>"
        );
    }
    let _ = writeln!(
        out,
        "<h2>Best so far{on}</h2>\n<p class=\"soft\">Microseconds of the fastest config after each trial, a line for each \
         template.</p>\n<div class=\"small\">"
    );
    for (at, layer) in bench.layers.iter().enumerate() {
        let drawing = curve::drawing(layer).unwrap_or_else(|| "<p>Nothing ran.</p>".to_string());
        let name = format!("{}. {}", at + 1, layer.name);
        let _ = writeln!(
            out,
            "<div class=\"card\"><h3 title=\"{}\">{}</h3>{drawing}{}</div>",
            escaped(&layer.key),
            escaped(&name),
            curve::legend(layer)
        );
    }
    let _ = writeln!(out, "</div>\n<h2>What failed, and why{on}</h2>\n{}", failures::table(bench));
    let _ = writeln!(out, "<h2>All workloads{on}</h2>\n{}", workloads(bench));
    if !bench.workers.is_empty() {
        let _ = writeln!(out, "<h2>Trials by worker{on}</h2>\n{}", workers(bench));
    }
}

/// The few numbers that a person wants first.
fn tiles(out: &mut String, bench: &Bench) {
    let (trials, failed) = bench.layers.iter().map(Layer::trials).fold((0, 0), |(n, f), (a, b)| (n + a, f + b));
    out.push_str("<div class=\"tiles\">");
    let mut tile = |value: String, what: &str| {
        let _ = write!(out, "<div class=\"tile\"><b>{value}</b><span>{what}</span></div>");
    };
    tile(bench.layers.len().to_string(), if bench.layers.len() == 1 { "workload" } else { "workloads" });
    tile(trials.to_string(), "trials");
    tile(percent((trials - failed) as f64 / trials.max(1) as f64), "of them valid");
    tile(format!("{} us", us(bench.network_us())), "all layers, as often as they occur");
    if let Some(gain) = over_default(bench) {
        tile(format!("{gain:.2} x"), "as fast as without records");
    }
    out.push_str("</div>\n");
}

/// How much faster the network is than with the defaults, if all layers were compared with theirs.
fn over_default(bench: &Bench) -> Option<f64> {
    let both = |l: &Layer| l.beside_default_us.map(|(default, used)| (default * l.weight, used * l.weight));
    let all: Vec<(f64, f64)> = bench.layers.iter().map(both).collect::<Option<_>>()?;
    let (default, used) = all.into_iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (used > 0.0).then(|| default / used)
}

fn workloads(bench: &Bench) -> String {
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
    for (name, number) in [
        ("workload", false),
        ("us", true),
        ("GFLOP/s", true),
        ("roofline", true),
        ("vs default", true),
        ("trials", true),
        ("failed", true),
        ("template and config", false),
        ("from", false),
    ] {
        let class = if number { " class=\"n\"" } else { "" };
        let _ = write!(out, "<th{class} data-sort>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for (at, layer) in bench.layers.iter().enumerate() {
        row(&mut out, at + 1, layer);
    }
    out.push_str("</tbody></table></div>");
    out
}

fn row(out: &mut String, number: usize, layer: &Layer) {
    let (trials, failed) = layer.trials();
    let used = layer.used_us();
    let cell = |value: Option<f64>, text: Option<String>| {
        let value = value.map(|v| format!(" data-value=\"{v:.4}\"")).unwrap_or_default();
        format!("<td class=\"n\"{value}>{}</td>", text.unwrap_or_else(|| "-".to_string()))
    };
    let gflops = used.map(|t| layer.gflops(t));
    let share = used.and_then(|t| layer.share_of_roof(t));
    let gain = layer.beside_default_us.map(|(default, used)| default / used);
    let key = if layer.name == layer.key { String::new() } else { format!("<br><code>{}</code>", escaped(&layer.key)) };
    let _ = write!(
        out,
        "<tr><td class=\"name\" data-value=\"{number}\">{number}. {}{key}</td>{}{}{}{}<td class=\"n\">{trials}</td><td \
         class=\"n\">{failed}</td>",
        escaped(&layer.name),
        cell(used, used.map(us)),
        cell(gflops, gflops.map(rate)),
        cell(share, share.map(percent)),
        cell(gain, gain.map(|g| format!("{g:.2} x"))),
    );
    let best = layer.tasks.first().and_then(|t| Some((t, t.best.as_ref()?)));
    let searched =
        best.map(|(_, b)| format!("{} us ± {} in {}, run {}, {}", us(b.us), us(b.spread_us), b.place, b.run, b.tuner));
    let _ = match (&layer.record, best) {
        (Some(record), _) => {
            let search = searched.map(|s| format!("<br>fastest trial: {}", escaped(&s)));
            let spread = record.spread.map(|x| format!(", {x:.2} times from machine to machine")).unwrap_or_default();
            write!(
                out,
                "<td class=\"config\">{}<br><code>{}</code></td><td class=\"detail\">record <code title=\"{}\">…{}</code>{spread}{}</td></tr>",
                escaped(&record.template),
                escaped(&record.config),
                escaped(&record.file),
                // The rest of its name is the workload, which stands in the same row.
                escaped(record.file.rsplit('-').next().unwrap_or(&record.file)),
                search.unwrap_or_default(),
            )
        }
        (None, Some((task, best))) => write!(
            out,
            "<td class=\"config\">{}<br><code>{}</code></td><td class=\"detail\">{}</td></tr>",
            escaped(&task.template),
            escaped(&best.config.to_string()),
            escaped(&searched.unwrap_or_default()),
        ),
        (None, None) => write!(out, "<td>-</td><td class=\"detail\">nothing ran</td></tr>"),
    };
}

fn workers(bench: &Bench) -> String {
    let mut out = String::from(
        "<div class=\"scroll\"><table><thead><tr><th data-sort>worker</th><th>machine</th><th class=\"n\" \
         data-sort>trials</th><th class=\"n\" data-sort>failed</th><th class=\"n\" data-sort>seconds a \
         trial</th></tr></thead><tbody>",
    );
    for WorkerLine { name, machine, trials, failed, seconds } in &bench.workers {
        let each = seconds / (*trials).max(1) as f64;
        let _ = write!(
            out,
            "<tr><td class=\"name\">{}</td><td>{}</td><td class=\"n\">{trials}</td><td class=\"n\">{failed}</td><td \
             class=\"n\">{each:.2}</td></tr>",
            escaped(name),
            escaped(machine),
        );
    }
    out.push_str("</tbody></table></div>");
    out
}

fn provenance(out: &mut String, report: &Report) {
    out.push_str(
        "<h2>Where this comes from</h2>\n<div class=\"scroll\"><table><thead><tr><th>run</th><th>began \
         (UTC)</th><th>device</th><th>machine</th><th>tuner</th><th>generator</th><th class=\"n\">trials</th><th \
         class=\"n\">for</th></tr></thead><tbody>",
    );
    for run in &report.runs {
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td \
             class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            run.id,
            escaped(&run.started),
            escaped(&run.device),
            escaped(&run.machine),
            escaped(&run.tuner),
            escaped(&run.generator),
            run.trials,
            span(Duration::from_secs_f64(run.seconds.clamp(0.0, 1e9))),
        );
    }
    out.push_str("</tbody></table></div>\n");
    if !report.notes.is_empty() {
        out.push_str("<h3>What is odd in the logs</h3>\n<ul>");
        for note in &report.notes {
            let _ = write!(out, "<li>{}</li>", escaped(note));
        }
        out.push_str("</ul>\n");
    }
}
