//! The text of a record: a hand-written TOML writer, so that the bytes are ours to keep, and a reader that names the
//! file and the line of whatever is wrong.

use super::record::{Record, SCHEMA, is_file_word};
use crate::diagnostic::{Diagnostic, Report, Table, leaves_its_line, parse};
use crate::space::{Annotation, Config, Fingerprint, Value, is_knob_name};
use std::fmt::Write;
use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

impl Record {
    /// The text of the record's file. Knobs are sorted by name, and measurements are rounded to what they can mean,
    /// so that a re-measured record makes a small difference.
    pub fn to_toml(&self) -> String {
        let mut t = String::from(
            "# The fastest verified kernel for one workload. Written by kernel-gen; keep it in version control.\n",
        );
        // Writing to a string cannot fail.
        let _ = writeln!(t, "schema = {SCHEMA}");
        let _ = writeln!(t, "workload = {}", quoted(&self.workload));
        let _ = writeln!(t, "target = {}", quoted(&self.target));
        let _ = writeln!(t, "device = {}", quoted(&self.device));
        let _ = writeln!(t, "threads = {}", self.threads);
        let _ = writeln!(t, "template = {}", quoted(&self.template));
        let _ = writeln!(t, "template_version = {}", self.template_version);
        let _ = writeln!(t, "space = \"{}\"", self.space);
        let _ = writeln!(t, "generator = {}", quoted(&self.generator));
        let _ = writeln!(t, "time_us = {}", rounded(self.time_us, 4));
        let _ = writeln!(t, "gflops = {}", rounded(self.gflops, 4));
        if let Some(core_gflops) = self.core_gflops {
            let _ = writeln!(t, "core_gflops = {}", rounded(core_gflops, 4));
        }
        if let Some(floor_us) = self.floor_us {
            let _ = writeln!(t, "floor_us = {}", rounded(floor_us, 4));
        }
        let _ = writeln!(t, "max_error = {}", rounded(self.max_error, 2));
        let _ = writeln!(t, "verified = {}", self.verified);
        let mut entries: Vec<(&str, &Value)> = self.config.entries().collect();
        entries.sort_unstable();
        t.push_str("\n[config]\n");
        for (knob, value) in entries {
            // A knob's name may hold a dot, which TOML would take for a path.
            let key = if knob.contains('.') { quoted(knob) } else { knob.to_string() };
            let _ = writeln!(t, "{key} = {}", toml_value(value));
        }
        t
    }

    /// The line of its file, as it is written, that begins with a key; the first one if none does.
    pub(super) fn line_of(&self, key: &str) -> usize {
        let begins = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ="));
        self.to_toml().lines().position(begins).map_or(1, |i| i + 1)
    }

    /// Reads a record; `file` is its name in messages.
    pub fn parse(text: &str, file: &str) -> Result<Record, Vec<Diagnostic>> {
        let mut report = Report::new(file, text);
        // Two things that happen to files under version control, before the TOML parser tells its own story of them.
        if text.trim().is_empty() {
            report.error(&(0..0), "the file is empty", "delete it, or restore it from version control");
            return report.finish(None);
        }
        if let Some(marker) = text.match_indices("<<<<<<< ").map(|(at, _)| at).find(|at| starts_line(text, *at)) {
            let help = "keep the side whose time_us is smaller, or tune again";
            report.error(&(marker..marker), "a merge conflict is not resolved", help);
            return report.finish(None);
        }
        let document = parse(text, &mut report);
        // What follows a syntax error would be complaints about keys that the parser lost.
        if !report.is_clean() {
            return report.finish(None);
        }
        let record = read(Table::root(&document, "the record"), &mut report);
        report.finish(record)
    }
}

fn starts_line(text: &str, at: usize) -> bool {
    at == 0 || text.as_bytes()[at - 1] == b'\n'
}

/// A number with that many significant digits, in the shortest form that reads back.
fn rounded(x: f64, digits: usize) -> String {
    let text = format!("{x:.*e}", digits.saturating_sub(1));
    // Rounding the very largest number up would make it infinite.
    let rounded = text.parse().ok().filter(|r: &f64| r.is_finite()).unwrap_or(x);
    format!("{rounded:?}")
}

/// A string as TOML writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn toml_value(value: &Value) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match value {
        Value::Split(sizes) => list(sizes.iter().map(i64::to_string).collect()),
        Value::Perm(axes) => format!("{{ perm = {} }}", list(axes.iter().map(usize::to_string).collect())),
        Value::Annotate(all) => list(all.iter().map(|a| format!("\"{a}\"")).collect()),
        Value::Int(x) => x.to_string(),
        Value::Str(s) => quoted(s),
        Value::Bool(b) => b.to_string(),
    }
}

/// Everything about a record but what its values are worth: all keys are read, so that a person sees all mistakes.
fn read(mut table: Table<'_, '_>, report: &mut Report) -> Option<Record> {
    if let Some(schema) = required(&mut table, report, "schema", "schema = 1", Table::integer)
        && schema.0 != SCHEMA
    {
        let help = format!("update kernel-gen, or tune again with this version, which writes schema {SCHEMA}");
        report.error(&schema.1, format!("the record has schema {}", schema.0), help);
        // Another schema has other keys; complaints about them would help nobody.
        return None;
    }
    let workload = required(&mut table, report, "workload", "workload = \"<key of the workload>\"", Table::string);
    let target = required(&mut table, report, "target", "target = \"x86-64-v3\"", Table::string);
    for (key, found) in [("workload", &workload), ("target", &target)] {
        if let Some((text, span)) = found
            && !is_file_word(text)
        {
            let cause = format!("`{key}` is not a name: \"{text}\"");
            report.error(span, cause, "use letters, digits, `-`, `_`, `.` and `+`, as `kernel-gen explain` prints it");
        }
    }
    let device = required(&mut table, report, "device", "device = \"<name of the device>\"", Table::string);
    let device = device.and_then(|found| plain(report, "device", found));
    let threads = required(&mut table, report, "threads", "threads = 1", Table::integer);
    let threads = threads.and_then(|found| small(report, "threads", found, 1));
    let template = required(&mut table, report, "template", "template = \"<name of the template>\"", Table::string);
    let template = template.and_then(|found| plain(report, "template", found));
    let version = required(&mut table, report, "template_version", "template_version = 1", Table::integer);
    let version = version.and_then(|found| small(report, "template_version", found, 0));
    let space = required(&mut table, report, "space", "space = \"<fingerprint of the space>\"", Table::string);
    let space = space.and_then(|(text, span)| {
        let fingerprint = Fingerprint::parse(text);
        if fingerprint.is_none() {
            let help = "write sixteen hexadecimal digits, as `kernel-gen space` prints them, or tune again";
            report.error(&span, format!("`space` is not a fingerprint: \"{text}\""), help);
        }
        fingerprint
    });
    let generator = required(&mut table, report, "generator", "generator = \"<version of kernel-gen>\"", Table::string);
    let generator = generator.and_then(|found| plain(report, "generator", found));
    let time = required(&mut table, report, "time_us", "time_us = 1.5", Table::number);
    let time = time.and_then(|found| measurement(report, "time_us", found, true));
    let gflops = required(&mut table, report, "gflops", "gflops = 100.0", Table::number);
    let gflops = gflops.and_then(|found| measurement(report, "gflops", found, false));
    let core_gflops = optional_measurement(&mut table, report, "core_gflops");
    let floor_us = optional_measurement(&mut table, report, "floor_us");
    let max_error = required(&mut table, report, "max_error", "max_error = 1e-6", Table::number);
    let max_error = max_error.and_then(|found| measurement(report, "max_error", found, false));
    let verified = required(&mut table, report, "verified", "verified = true", Table::boolean);
    let config = if table.require(report, "config", "a table [config] with a value for every knob") {
        table.table(report, "config").and_then(|t| read_config(&t, report))
    } else {
        None
    };
    table.finish(report);
    Some(Record {
        workload: workload?.0.to_string(),
        target: target?.0.to_string(),
        device: device?.0.to_string(),
        threads: threads?,
        template: template?.0.to_string(),
        template_version: version?,
        space: space?,
        config: config?,
        time_us: time?,
        gflops: gflops?,
        core_gflops: core_gflops?,
        floor_us: floor_us?,
        max_error: max_error?,
        verified: verified?.0,
        generator: generator?.0.to_string(),
    })
}

type Spot<T> = (T, Range<usize>);
type Reader<'t, 'i, T> = fn(&mut Table<'t, 'i>, &mut Report, &'static str) -> Option<crate::diagnostic::Found<T>>;

/// A measurement that may be left out: none where its key is there and its value is none.
fn optional_measurement(table: &mut Table<'_, '_>, report: &mut Report, key: &'static str) -> Option<Option<f64>> {
    match table.number(report, key) {
        Some(found) => measurement(report, key, (found.value, found.span), true).map(Some),
        None => Some(None),
    }
}

/// The value of a key that must be there.
fn required<'t, 'i, T>(
    table: &mut Table<'t, 'i>,
    report: &mut Report,
    key: &'static str,
    example: &str,
    reader: Reader<'t, 'i, T>,
) -> Option<Spot<T>> {
    if !table.require(report, key, example) {
        return None;
    }
    reader(table, report, key).map(|found| (found.value, found.span))
}

/// Text that stays on its line, wherever it is printed.
fn plain<'t>(report: &mut Report, key: &str, (text, span): Spot<&'t str>) -> Option<Spot<&'t str>> {
    match not_plain(key, text) {
        None => Some((text, span)),
        Some(cause) => {
            report.error(&span, cause, "delete the character, or tune again: a record's names are one line of text");
            None
        }
    }
}

/// Why a text is no name of a device, a template, a version: it holds a control character or its like.
pub(super) fn not_plain(key: &str, text: &str) -> Option<String> {
    let c = text.chars().find(|c| leaves_its_line(*c))?;
    Some(format!("`{key}` holds the control character U+{:04X}", c as u32))
}

/// A count that is at least `least` and fits 32 bits.
fn small(report: &mut Report, key: &str, (value, span): Spot<i64>, least: u32) -> Option<u32> {
    let small = u32::try_from(value).ok().filter(|v| *v >= least);
    if small.is_none() {
        report.error(
            &span,
            format!("`{key}` cannot be {value}"),
            format!("write a count from {least} to {}", u32::MAX),
        );
    }
    small
}

/// A measured number: not negative, and not zero where that is impossible.
fn measurement(report: &mut Report, key: &str, (value, span): Spot<f64>, positive: bool) -> Option<f64> {
    let fine = value >= 0.0 && !(positive && value == 0.0);
    if !fine {
        let least = if positive { "above 0" } else { "of at least 0" };
        report.error(&span, format!("`{key}` cannot be {value}"), format!("write a number {least}, or tune again"));
    }
    fine.then_some(value)
}

fn read_config(table: &Table<'_, '_>, report: &mut Report) -> Option<Config> {
    let mut config = Config::new();
    let mut complete = true;
    for (knob, key_span, value) in table.entries() {
        if !is_knob_name(knob) {
            let help = "use the knobs that `kernel-gen space` prints";
            report.error(&key_span, format!("`{knob}` is not the name of a knob"), help);
            complete = false;
            continue;
        }
        match read_value(value.get_ref()) {
            Some(value) => config.set(knob, value),
            None => {
                let help = "write 8, true, \"word\", a split [-1, 8], an order { perm = [1, 0] } or annotations [\"none\", \"vec\"]";
                report.error(&value.span(), format!("`{knob}` has a value that no knob takes"), help);
                complete = false;
            }
        }
    }
    complete.then_some(config)
}

fn read_value(value: &DeValue<'_>) -> Option<Value> {
    fn integer(value: &DeValue<'_>) -> Option<i64> {
        let i = value.as_integer()?;
        i64::from_str_radix(i.as_str(), i.radix()).ok()
    }
    fn list<T>(items: &[Spanned<DeValue<'_>>], read: impl Fn(&DeValue<'_>) -> Option<T>) -> Option<Vec<T>> {
        if items.is_empty() { None } else { items.iter().map(|item| read(item.get_ref())).collect() }
    }
    match value {
        DeValue::Integer(_) => integer(value).map(Value::Int),
        DeValue::Boolean(b) => Some(Value::Bool(*b)),
        DeValue::String(s) => Some(Value::Str(s.to_string())),
        DeValue::Array(items) => list(items, integer)
            .map(Value::Split)
            .or_else(|| list(items, |v| Annotation::from_name(v.as_str()?)).map(Value::Annotate)),
        DeValue::Table(table) => {
            let mut entries = table.iter();
            let (key, order) = entries.next()?;
            if entries.next().is_some() || key.get_ref() != "perm" {
                return None;
            }
            list(order.get_ref().as_array()?, |v| usize::try_from(integer(v)?).ok()).map(Value::Perm)
        }
        _ => None,
    }
}
