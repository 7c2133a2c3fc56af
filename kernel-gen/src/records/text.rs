//! The text of records: a hand-written TOML writer, so that the bytes are ours to keep, and a reader that names the file and the
//! line of whatever is wrong.

use super::record::{Record, SCHEMA, Slot, is_file_word};
use crate::diagnostic::{Diagnostic, Report, Table, leaves_its_line, parse as toml_document};
use crate::space::{Annotation, Config, Fingerprint, Value, is_knob_name};
use std::fmt::Write;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The first lines of a file of records.
const HEADER: &str = "# The fastest verified kernel for each workload: `\"workload\".threads`. Written by kernel-gen; keep it in version control.\n";

/// The forms of a file of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A line a record, all of one target and device.
    List,
    /// One record, its keys a line each: schema 1. Whatever is not a list is taken for it.
    Single,
}

/// The form of a text, as far as can be told before it is parsed.
pub(super) fn form(text: &str) -> Form {
    let schema = text.lines().find(|line| line.starts_with("schema"));
    let is_list = schema.is_some_and(|line| {
        let value = line.split('#').next().and_then(|line| line.split_once('='));
        value.is_some_and(|(_, version)| version.trim() == "2")
    });
    if is_list { Form::List } else { Form::Single }
}

/// A file of records: all are of one target and device.
pub(super) struct List {
    pub(super) target: String,
    pub(super) device: String,
    /// The records that were wanted, each with its line.
    pub(super) records: Vec<(usize, Record)>,
    /// How many others there are.
    pub(super) unread: usize,
}

/// The text of a file with these records of a target and device, in the order of their slots. Knobs are sorted by name, and
/// measurements are rounded to what they can mean, so that a re-measured record makes a small difference.
pub(super) fn list<'r>(target: &str, device: &str, records: impl IntoIterator<Item = &'r Record>) -> String {
    let (target, device) = (quoted(target), quoted(device));
    let head = format!("{HEADER}schema = {SCHEMA}\ntarget = {target}\ndevice = {device}\n\n[records]\n");
    records.into_iter().fold(head, |text, record| text + &record.to_line() + "\n")
}

/// Reads the records of a file of either form; `file` is its name in messages.
pub fn parse(text: &str, file: &str) -> Result<Vec<Record>, Vec<Diagnostic>> {
    match form(text) {
        Form::List => Ok(parse_list(text, file, &|_| true)?.records.into_iter().map(|(_, record)| record).collect()),
        Form::Single => Ok(vec![Record::parse(text, file)?]),
    }
}

/// Reads a list; of its records those whose workload's key is wanted.
pub(super) fn parse_list(text: &str, file: &str, wanted: &dyn Fn(&str) -> bool) -> Result<List, Vec<Diagnostic>> {
    // A line that is not wanted is left empty, so that those behind it keep their numbers. It takes a hundredth of the time that
    // parsing it would: a build script, which is not optimised, reads thousands of records for the few that it needs. A record that
    // somebody's editor spread over several lines is read whatever it is of.
    let is_unwanted = |line: &str| match line.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some((workload, _)) => line.trim_end().ends_with('}') && !wanted(workload),
        None => false,
    };
    let mut unread = 0;
    let mut kept = String::with_capacity(text.len());
    for line in text.split('\n') {
        if is_unwanted(line) {
            unread += 1;
        } else {
            kept += line;
        }
        kept.push('\n');
    }
    let mut report = Report::new(file, &kept);
    let document = parse_document(&kept, &mut report);
    if !report.is_clean() {
        return report.finish(None);
    }
    let list = read_list(Table::root(&document, "the file"), &mut report);
    report.finish(list.map(|list| List { unread, ..list }))
}

impl Record {
    /// The line of the record in its file, without the end of the line: TOML by itself.
    pub fn to_line(&self) -> String {
        let mut line = format!("{}.{} = {{ ", quoted(&self.workload), self.threads);
        // Writing to a string cannot fail.
        let _ = write!(line, "template = {}, template_version = {}", quoted(&self.template), self.template_version);
        let mut entries: Vec<(&str, &Value)> = self.config.entries().collect();
        entries.sort_unstable();
        let entries = entries.into_iter().map(|(knob, value)| {
            // A knob's name may hold a dot, which TOML would take for a path.
            let key = if knob.contains('.') { quoted(knob) } else { knob.to_string() };
            format!("{key} = {}", toml_value(value))
        });
        let _ = write!(line, ", config = {{ {} }}", entries.collect::<Vec<_>>().join(", "));
        let measured = [("time_us", Some(self.time_us)), ("gflops", Some(self.gflops))];
        let more = [("core_gflops", self.core_gflops), ("floor_us", self.floor_us), ("spread", self.spread)];
        for (key, value) in measured.into_iter().chain(more) {
            if let Some(value) = value {
                let _ = write!(line, ", {key} = {}", rounded(value, 4));
            }
        }
        let _ = write!(line, ", max_error = {}, verified = {}", rounded(self.max_error, 2), self.verified);
        let _ = write!(line, ", space = \"{}\", generator = {} }}", self.space, quoted(&self.generator));
        line
    }

    /// Reads a file of schema 1, which has one record; `file` is its name in messages.
    pub fn parse(text: &str, file: &str) -> Result<Record, Vec<Diagnostic>> {
        let mut report = Report::new(file, text);
        let document = parse_document(text, &mut report);
        // What follows a syntax error would be complaints about keys that the parser lost.
        if !report.is_clean() {
            return report.finish(None);
        }
        let record = read_single(Table::root(&document, "the record"), &mut report);
        report.finish(record)
    }
}

/// Parses a document. Two things that happen to files under version control are named before the parser tells its own story of
/// them.
fn parse_document<'t>(text: &'t str, report: &mut Report) -> Spanned<DeTable<'t>> {
    if text.trim().is_empty() {
        report.error(&(0..0), "the file is empty", "delete it, or restore it from version control");
    } else if let Some(marker) = text.match_indices("<<<<<<< ").map(|(at, _)| at).find(|at| starts_line(text, *at)) {
        let help = "keep the side whose time_us is smaller, or tune again";
        report.error(&(marker..marker), "a merge conflict is not resolved", help);
    }
    match report.is_clean() {
        true => toml_document(text, report),
        false => Spanned::new(0..0, DeTable::new()),
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

/// The records of a list. All keys are read, so that a person sees all mistakes.
fn read_list(mut table: Table<'_, '_>, report: &mut Report) -> Option<List> {
    read_schema(&mut table, report, SCHEMA)?;
    let target = read_word(&mut table, report, "target", "target = \"x86-64-v3\"");
    let device = required(&mut table, report, "device", "device = \"<name of the device>\"", Table::string);
    let device = device.and_then(|found| plain(report, "device", found)).map(|(device, _)| device);
    let mut all = vec![];
    let by_workload = match table.require(report, "records", "a table [records] with a line a record") {
        true => table.table(report, "records"),
        false => None,
    };
    table.finish(report);
    let (target, device, by_workload) = (target?, device?, by_workload?);
    for (workload, by_threads) in by_workload.named_tables(report, "records") {
        check_word(report, "workload", workload.value, &workload.span);
        for (threads, mut record) in by_threads.named_tables(report, "records") {
            let Some(number) = threads.value.parse().ok().filter(|number: &u32| *number > 0) else {
                let help = "write \"workload\".threads = { .. }, or tune again";
                report.error(&threads.span, format!("`{}` is no number of threads", threads.value), help);
                continue;
            };
            record.rename(format!("the record of `{}`", workload.value));
            let workload = workload.value;
            let slot =
                Slot { target: target.into(), device: device.into(), workload: workload.into(), threads: number };
            all.extend(read_record(record, slot, report).map(|record| (report.line(threads.span.start), record)));
        }
    }
    all.sort_by_key(|(line, _)| *line);
    Some(List { target: target.to_string(), device: device.to_string(), records: all, unread: 0 })
}

/// A record in the form of schema 1.
fn read_single(mut table: Table<'_, '_>, report: &mut Report) -> Option<Record> {
    read_schema(&mut table, report, 1)?;
    let workload = read_word(&mut table, report, "workload", "workload = \"<key of the workload>\"");
    let target = read_word(&mut table, report, "target", "target = \"x86-64-v3\"");
    let device = required(&mut table, report, "device", "device = \"<name of the device>\"", Table::string);
    let device = device.and_then(|found| plain(report, "device", found));
    let threads = required(&mut table, report, "threads", "threads = 1", Table::integer);
    let threads = threads.and_then(|found| small(report, "threads", found, 1));
    // What is wrong with the rest is told, whether its slot can be read or not.
    let word = |found: Option<&str>| found.unwrap_or_default().to_string();
    let slot = Slot {
        target: word(target),
        device: word(device.as_ref().map(|(device, _)| *device)),
        workload: word(workload),
        threads: threads.unwrap_or(1),
    };
    let record = read_record(table, slot, report);
    workload.and(target).and(device).and(threads).and(record)
}

/// Checks the schema. A file of another schema has other keys, so nothing further is read from it.
fn read_schema(table: &mut Table<'_, '_>, report: &mut Report, schema: i64) -> Option<()> {
    match required(table, report, "schema", &format!("schema = {schema}"), Table::integer) {
        Some((found, span)) if found != schema => {
            let help = format!("update kernel-gen, or tune again with this version, which writes schema {SCHEMA}");
            report.error(&span, format!("the record has schema {found}"), help);
            None
        }
        _ => Some(()),
    }
}

/// A key whose value may be part of a path.
fn read_word<'t>(table: &mut Table<'t, '_>, report: &mut Report, key: &'static str, example: &str) -> Option<&'t str> {
    let (text, span) = required(table, report, key, example, Table::string)?;
    check_word(report, key, text, &span);
    Some(text)
}

fn check_word(report: &mut Report, key: &str, text: &str, span: &Range<usize>) {
    if !is_file_word(text) {
        let help = "use letters, digits, `-`, `_`, `.` and `+`, as `kernel-gen explain` prints it";
        report.error(span, format!("`{key}` is not a name: \"{text}\""), help);
    }
}

/// Everything about a record but its slot, and but what its values are worth: all keys are read, so that a person sees all
/// mistakes.
fn read_record(mut table: Table<'_, '_>, slot: Slot, report: &mut Report) -> Option<Record> {
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
    let spread = optional_measurement(&mut table, report, "spread");
    let max_error = required(&mut table, report, "max_error", "max_error = 1e-6", Table::number);
    let max_error = max_error.and_then(|found| measurement(report, "max_error", found, false));
    let verified = required(&mut table, report, "verified", "verified = true", Table::boolean);
    let config = if table.require(report, "config", "a table [config] with a value for every knob") {
        table.table(report, "config").and_then(|t| read_config(&t, report))
    } else {
        None
    };
    table.finish(report);
    let Slot { target, device, workload, threads } = slot;
    Some(Record {
        workload,
        target,
        device,
        threads,
        template: template?.0.to_string(),
        template_version: version?,
        space: space?,
        config: config?,
        time_us: time?,
        gflops: gflops?,
        core_gflops: core_gflops?,
        floor_us: floor_us?,
        spread: spread?,
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
