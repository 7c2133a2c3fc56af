//! `[[kernel]]` and `[[kernel.workload]]`.

use super::names::Names;
use super::synonyms::{operator_help, step_help};
use crate::diagnostic::{Found, Report, Size, Table, choose};
use crate::integer::ceil_div;
use crate::ir::DType;
use crate::workload::operator::{Fault, INDICES, Kind, Shared, SizeRole, Values};
use crate::workload::operators::KINDS;
use crate::workload::{
    self, ConvLayout, Epilogue, Math, Number, Op, Quant, Slice, Slices, WeightZero, Workload, WorkloadError, epilogue,
};
use std::ops::Range;

/// A function that is generated: one operator at some shapes.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelSpec {
    /// Its name.
    pub name: String,
    /// The operator's name, such as `conv2d`.
    pub op: &'static str,
    /// The shapes, in the order of the file; at least one.
    pub workloads: Vec<WorkloadSpec>,
    /// The line of its header in the spec.
    pub line: usize,
}

/// One shape of an operator.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkloadSpec {
    /// Its own name, if it has one. Workloads that shapes alone do not tell apart always have one.
    pub name: Option<String>,
    /// What is computed.
    pub workload: Workload,
    /// Which of its tensors are slices of larger ones.
    pub slices: Slices,
    /// Present if callers say how many images or rows there are: the workload is that of the most.
    pub range: Option<workload::Range>,
    /// How often the network runs it, 1 if the spec does not say. Tuning spends its trials, and reports sum up times, by
    /// this; what is generated does not depend on it.
    pub count: u32,
    /// The line of its header in the spec.
    pub line: usize,
}

/// Most often that a network can be said to run a workload.
const MAX_COUNT: u32 = 1_000_000;

/// What the workloads of a kernel have in common.
struct Common {
    kind: &'static Kind,
    shared: Shared,
    dtype: DType,
    out_dtype: Option<DType>,
    math: Math,
    epilogue: Vec<Epilogue>,
    quant: Quant,
}

const WORKLOAD: &str = "[[kernel.workload]]";

pub(super) fn read(table: &mut Table<'_, '_>, report: &mut Report, names: &mut Names) -> Option<KernelSpec> {
    let (span, before) = (table.span(), report.len());
    table.require(report, "name", "name = \"conv2d_nchw\"");
    let name = table.string(report, "name").and_then(|n| names.take(report, &n, true));
    table.require(report, "op", "op = \"conv2d\"");
    let kinds: Vec<(&str, &'static Kind)> = KINDS.iter().map(|kind| (kind.name, *kind)).collect();
    let kind = table.string(report, "op").and_then(|op| choose(report, "op", &op, &kinds, operator_help));
    let common = common(table, report, kind);
    let mut tables = table.tables(report, "workload", WORKLOAD);
    table.finish(report);
    if tables.is_empty() && report.len() == before {
        report.error(&span, "[[kernel]] has no workload", format!("add a {WORKLOAD} with its shapes"));
    }
    // Without an operator there is no telling what its workloads should hold.
    let common = common?;
    let workloads: Vec<Option<(WorkloadSpec, Range<usize>)>> =
        tables.iter_mut().map(|t| workload(t, report, names, &common)).collect();
    ambiguous(report, &workloads.iter().flatten().collect::<Vec<_>>());
    let workloads = workloads.into_iter().map(|w| w.map(|(w, _)| w)).collect::<Option<_>>()?;
    Some(KernelSpec { name: name?, op: common.kind.name, workloads, line: report.line(span.start) })
}

fn common(table: &mut Table<'_, '_>, report: &mut Report, kind: Option<&'static Kind>) -> Option<Common> {
    let layouts: Vec<(String, ConvLayout)> = ConvLayout::ALL.iter().map(|l| (l.name(), *l)).collect();
    let layouts: Vec<(&str, ConvLayout)> = layouts.iter().map(|(n, l)| (n.as_str(), *l)).collect();
    let types = [
        ("f32", DType::F32),
        ("f16", DType::F16),
        ("bf16", DType::Bf16),
        ("e4m3", DType::E4m3),
        ("e5m2", DType::E5m2),
        ("i8", DType::I8),
        ("u8", DType::U8),
        ("i32", DType::I32),
    ];
    let bytes = &types[5..7];
    // Where the operator is not known, the keys of all of them are taken without complaint.
    let known: Vec<&Kind> = kind.map_or(KINDS.to_vec(), |kind| vec![kind]);
    let has = |test: &dyn Fn(&Kind) -> bool| known.iter().any(|kind| test(kind));
    let layout = if has(&|k| !k.layouts.is_empty()) { table.choice(report, "layout", &layouts) } else { None };
    let names = known.iter().flat_map(|kind| kind.flags);
    let flags: Vec<bool> = names.map(|key| table.boolean(report, key).is_some_and(|f| f.value)).collect();
    if let Some(kind) = kind {
        table.rename(format!("[[kernel]] with op = \"{}\"", kind.name));
    }
    let dtype = table.choice(report, "dtype", &types);
    let quant = quant(table, report, bytes);
    let indices = known.iter().all(|kind| kind.outputs == INDICES);
    let outputs: &[(&str, DType)] = if indices { &[("i64", DType::I64), ("i32", DType::I32)] } else { &types };
    let out_dtype = table.choice(report, "out_dtype", outputs).map(|f| f.value);
    let math = table.choice(report, "math", &Math::ALL.map(|m| (m.name(), m)));
    let steps: Vec<Epilogue> = Epilogue::ALL.into_iter().chain(Epilogue::QUANTISED).collect();
    let epilogue = epilogue_steps(table, report, "epilogue", &steps);
    let steps = known.iter().map(|kind| kind.between).find(|steps| !steps.is_empty());
    let between = steps.map_or(vec![], |steps| epilogue_steps(table, report, "depthwise_epilogue", steps));
    let kind = kind?;
    let quant = quant?;
    if let Some(found) = layout.as_ref().filter(|f| !kind.layouts.contains(&f.value)) {
        let all: Vec<String> = kind.layouts.iter().map(|l| l.name()).collect();
        let help = format!("a {} takes {}", kind.name, all.join(" or "));
        report.error(&found.span, format!("the layout is {}", found.value.name()), help);
        return None;
    }
    let dtype = dtype.map_or(DType::F32, |f| f.value);
    let math = match math {
        Some(found) if found.value == Math::Tf32 && dtype != DType::F32 => {
            let error = WorkloadError::Tf32NeedsF32 { dtype: dtype.name() };
            report.error(&found.span, error.cause(), error.help());
            Math::default()
        }
        found => found.map_or(Math::default(), |f| f.value),
    };
    let layout = layout.map_or(ConvLayout::Nchw, |f| f.value);
    let shared = Shared { name: kind.name, layout, flags, between };
    Some(Common { kind, shared, dtype, out_dtype, math, epilogue, quant })
}

/// The type and zero points of operands that are integers of eight bits. None if they are wrong.
fn quant(table: &mut Table<'_, '_>, report: &mut Report, bytes: &[(&str, DType)]) -> Option<Quant> {
    const ZERO_POINTS: [&str; 3] = ["input", "weight", "weight_per_channel"];
    let before = report.len();
    let weight = table.choice(report, "weight_dtype", bytes).map_or(DType::I8, |f| f.value);
    let mut quant = Quant { weight, ..Quant::default() };
    let choices = ZERO_POINTS.map(|name| (name, name));
    for found in table.choices(report, "zero_points", &choices).map_or(vec![], |f| f.value) {
        let zero = match found.value {
            "input" => {
                quant.input_zero = true;
                continue;
            }
            "weight" => WeightZero::Tensor,
            _ => WeightZero::Channel,
        };
        if quant.weight_zero != WeightZero::None {
            report.error(&found.span, "`zero_points` says twice which the weights have", "leave one out");
        }
        quant.weight_zero = zero;
    }
    (report.len() == before).then_some(quant)
}

/// The epilogue; empty if anything is wrong with it, so that it is reported once and not for each workload.
fn epilogue_steps(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    key: &'static str,
    all: &[Epilogue],
) -> Vec<Epilogue> {
    // One name may be that of two steps, which their numbers tell apart.
    let named = all.iter().filter(|e| Epilogue::from_name(e.name()) == Some(**e));
    let mut choices: Vec<(&str, Option<Epilogue>)> = named.map(|e| (e.name(), Some(*e))).collect();
    choices.push(("none", None));
    let before = report.len();
    let step = |report: &mut Report, text: &Found<&str>| match Epilogue::read(text.value) {
        Ok(step) if all.iter().any(|e| e.name() == step.name()) => Some(Some(step)),
        Err(Some((cause, help))) => {
            report.error(&text.span, cause, help);
            None
        }
        _ => choose(report, key, text, &choices, step_help),
    };
    let Some(found) = table.strings(report, key) else { return vec![] };
    let value: Vec<Option<Epilogue>> = found.value.iter().filter_map(|text| step(report, text)).collect();
    if report.len() > before {
        return vec![];
    }
    if value.len() > 1 && value.contains(&None) {
        report.error(&found.span, "the epilogue has `none` beside other steps", "leave `none` out");
        return vec![];
    }
    let steps: Vec<Epilogue> = value.into_iter().flatten().collect();
    if let Err(error) = epilogue::check_order(&steps) {
        report.error(&found.span, error.cause(), error.help());
        return vec![];
    }
    steps
}

fn workload(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    names: &mut Names,
    common: &Common,
) -> Option<(WorkloadSpec, Range<usize>)> {
    let kind = common.kind;
    table.rename(format!("{WORKLOAD} of a {}", kind.name));
    let span = table.span();
    let name = table.string(report, "name");
    // A name that is wrong must not count as missing.
    let named = name.is_some();
    let name = name.and_then(|n| names.take(report, &n, false));
    let count = count(table, report);
    let op = operator(table, report, common);
    let before = report.len();
    let slices = Slices { from: slice(table, report, "from"), into: slice(table, report, "into") };
    let sliced = report.len() == before;
    table.finish(report);
    let Wanted { op, range } = op?;
    let of = |op: Op| Workload {
        dtype: common.dtype,
        out_dtype: common.out_dtype.unwrap_or(op.output_type(common.dtype)),
        op,
        math: common.math,
        epilogue: common.epilogue.clone(),
        quant: common.quant,
    };
    let workload = of(op);
    if let Err(error) = workload.validate() {
        report.error(&table.span_of((kind.guilty)(&error)), error.cause(), error.help());
        return None;
    }
    if let Err((key, cause, help)) = slices.check(&workload) {
        report.error(&table.span_of(key), cause, help);
        return None;
    }
    if !sliced || named && name.is_none() {
        return None;
    }
    let range = match range {
        None => None,
        Some((key, Size { least, most }, fewer)) => {
            let range = workload::Range::of(least, most, &workload, &of(fewer));
            let help = format!("write one number in the place of \"{least}..{most}\", or several workloads");
            let fault = |why| report.error(&table.span_of(key), format!("`{key}` cannot be a range: {why}"), help);
            Some(range.map_err(fault).ok()?)
        }
    };
    let line = report.line(span.start);
    Some((WorkloadSpec { name, workload, slices, range, count, line }, span))
}

/// A part of a larger tensor: `{ of = 256, at = 64 }`.
fn slice(table: &mut Table<'_, '_>, report: &mut Report, key: &'static str) -> Option<Slice> {
    let mut inner = table.table(report, key)?;
    inner.rename(format!("`{key}`"));
    let mut number = |name: &'static str| {
        inner.require(report, name, &format!("{key} = {{ of = 256, at = 64 }}"));
        inner.integer(report, name).map(|found| found.value)
    };
    let (of, at) = (number("of"), number("at"));
    inner.finish(report);
    Some(Slice { of: of?, at: at? })
}

/// How often the network runs a workload. A count that is wrong is reported and read as 1, so that what follows it is
/// looked at too.
fn count(table: &mut Table<'_, '_>, report: &mut Report) -> u32 {
    let Some(found) = table.integer(report, "count") else { return 1 };
    let count = u32::try_from(found.value).ok().filter(|n| (1..=MAX_COUNT).contains(n));
    count.unwrap_or_else(|| {
        let help = format!("say how often the network runs it, 1 to {MAX_COUNT}");
        report.error(&found.span, format!("`count` is {}", found.value), help);
        1
    })
}

/// An operator at a shape.
struct Wanted {
    op: Op,
    /// If that is the largest of several: the key that says so, which they are, and the operator with one unit less.
    range: Option<(&'static str, Size, Op)>,
}

/// Keys of a window, in which one integer stands for all dimensions.
const EACH: [&str; 5] = ["stride", "padding", "dilation", "window", "output_padding"];

/// The key of paddings.
const PADDING: &str = "padding";

/// The padding of `padding = "same"`: the number of windows becomes `ceil(extent / stride)`. An odd element goes behind, as in
/// TensorFlow's `same` and ONNX's `SAME_UPPER`. `op` has no padding yet. None if the operator has no such windows.
fn same_padding(op: &Op) -> Option<Vec<i64>> {
    let (roles, sizes) = (op.get().kind().sizes, op.get().sizes());
    let of = |role: SizeRole| -> Vec<i64> {
        roles.iter().zip(&sizes).filter(|(size, _)| size.role == role).map(|(_, value)| *value).collect()
    };
    let [extents, taps, strides] = [SizeRole::Extent, SizeRole::Taps, SizeRole::Stride].map(of);
    let (dilations, rank) = (of(SizeRole::Dilation), taps.len());
    if rank == 0 || extents.len() != rank || strides.len() != rank || of(SizeRole::Padding).len() != 2 * rank {
        return None;
    }
    // What is no size is refused as one, and not computed with.
    let is_size = |sizes: &[i64]| sizes.iter().all(|size| (1..=1 << 36).contains(size));
    if ![&extents, &taps, &strides, &dilations].into_iter().all(|sizes| is_size(sizes)) {
        return Some(vec![0; 2 * rank]);
    }
    let total = |i: usize| {
        let (extent, stride) = (extents[i], strides[i].max(1));
        let span = (taps[i] - 1).saturating_mul(dilations.get(i).copied().unwrap_or(1)).saturating_add(1);
        let last = (ceil_div(extent, stride) - 1).saturating_mul(stride);
        last.saturating_add(span).saturating_sub(extent).max(0)
    };
    let before = (0..rank).map(|i| total(i) / 2);
    Some(before.chain((0..rank).map(|i| total(i) - total(i) / 2)).collect())
}

/// The operator that a workload's keys ask for.
fn operator(table: &mut Table<'_, '_>, report: &mut Report, common: &Common) -> Option<Wanted> {
    let keys = (common.kind.keys)(&common.shared);
    for key in &keys {
        if let Some(example) = &key.example {
            table.require(report, key.name, example);
        }
    }
    let (mut values, mut fewer) = (Values(vec![]), Values(vec![]));
    let mut ranges: Vec<(&'static str, Size)> = vec![];
    let mut complete = true;
    // The padding follows from the other keys.
    let word = if keys.iter().any(|key| key.name == PADDING) { table.word(PADDING) } else { None };
    let is_same = word == Some("same");
    for key in keys.iter().filter(|key| !(is_same && key.name == PADDING)) {
        let found = match key.lengths {
            _ if key.name == PADDING && word.is_some() => {
                let cause = format!("`padding` cannot be \"{}\"", word.unwrap_or_default());
                report.error(&table.span_of(PADDING), cause, "write padding = \"same\", or numbers: padding = 1");
                None
            }
            _ if key.fractional => number(table, report, key.name).map(|number| vec![number.to_size()]),
            [] => table.integer(report, key.name).map(|f| vec![f.value]),
            lengths => {
                let sizes = match EACH.contains(&key.name) {
                    true => table.each(report, key.name, lengths),
                    false => table.sizes(report, key.name, lengths, true),
                };
                sizes.and_then(|found| largest(report, key.name, &found, &mut ranges))
            }
        };
        complete &= found.is_some() || key.example.is_none();
        values.0.extend(found.map(|found| (key.name, found)));
    }
    if !complete {
        return None;
    }
    let read = |values: &Values| (common.kind.read)(&common.shared, values);
    let mut fault = |fault: Fault| report.error(&table.span_of(fault.key), fault.cause, fault.help);
    if is_same {
        let unpadded = read(&values).map_err(&mut fault).ok()?;
        let Some(padding) = same_padding(&unpadded) else {
            let cause = format!("`padding` is \"same\", which a {} has not", common.kind.name);
            report.error(&table.span_of(PADDING), cause, "write the elements on each side: padding = [1, 1]");
            return None;
        };
        values.0.push((PADDING, padding));
    }
    let op = read(&values).map_err(&mut fault).ok()?;
    let Some(&(key, size)) = ranges.first() else { return Some(Wanted { op, range: None }) };
    for (key, mut value) in values.0 {
        value[0] -= i64::from(ranges.iter().any(|(of, _)| *of == key));
        fewer.0.push((key, value));
    }
    let fewer = read(&fewer).map_err(&mut fault).ok()?;
    Some(Wanted { op, range: Some((key, size, fewer)) })
}

/// The largest sizes of a key; a range among them goes to `ranges`, and is to be that of the other keys.
fn largest(
    report: &mut Report,
    key: &'static str,
    found: &Found<Vec<Size>>,
    ranges: &mut Vec<(&'static str, Size)>,
) -> Option<Vec<i64>> {
    for size in found.value.iter().filter(|size| size.is_range()) {
        is_range_of_units(report, key, &found.span, *size).then_some(())?;
        if let Some((other, first)) = ranges.first().filter(|(_, first)| first != size) {
            let cause = format!("`{key}` has another range than `{other}`, \"{}..{}\"", first.least, first.most);
            report.error(&found.span, cause, "a launch has one number of images or rows: write the same range");
            return None;
        }
        ranges.push((key, *size));
    }
    Some(found.value.iter().map(|size| size.most).collect())
}

/// Most images or rows of a range.
const MAX_UNITS: i64 = 65_536;

/// Reports a range that no number of images or rows can be.
pub(super) fn is_range_of_units(report: &mut Report, key: &str, span: &Range<usize>, size: Size) -> bool {
    let Size { least, most } = size;
    let fits = least >= 1 && most >= least && most <= MAX_UNITS;
    if !fits {
        let help = format!("write at least 1 and at most {MAX_UNITS}, the least first: \"1..64\"");
        report.error(span, format!("`{key}` has the range \"{least}..{most}\""), help);
    }
    fits
}

/// A number that an operator holds.
fn number(table: &mut Table<'_, '_>, report: &mut Report, key: &'static str) -> Option<Number> {
    let found = table.number_or_infinity(report, key)?;
    let number = Number::or_infinite(found.value as f32).filter(|n| n.get().is_finite() || found.value.is_infinite());
    if number.is_none() {
        let help = format!("write a number of at most {:e}, or inf or -inf", f32::MAX);
        report.error(&found.span, format!("`{key}` is {:e}, which is beyond the numbers of an f32", found.value), help);
    }
    number
}

/// The generated function picks a workload by the shapes of its arguments: those that share them all need names, and
/// two that are equal are one too many.
fn ambiguous(report: &mut Report, workloads: &[&(WorkloadSpec, Range<usize>)]) {
    let shapes = |w: &WorkloadSpec| w.slices.params(&w.workload).into_iter().map(|p| p.shape).collect::<Vec<_>>();
    // Shapes without the units of either.
    let meets = |a: &WorkloadSpec, b: &WorkloadSpec| {
        let varies = |i: &usize| [a, b].iter().any(|w| w.range.as_ref().is_some_and(|r| r.params.contains(i)));
        let (all_a, all_b) = (shapes(a), shapes(b));
        (a.range.is_some() || b.range.is_some())
            && all_a.len() == all_b.len()
            && all_a.iter().zip(&all_b).enumerate().all(|(i, (a, b))| a == b || varies(&i) && a[1..] == b[1..])
    };
    for (i, (w, span)) in workloads.iter().enumerate() {
        let same = |(other, _): &&&(WorkloadSpec, Range<usize>)| shapes(other) == shapes(w);
        if let Some((first, _)) =
            workloads[..i].iter().find(|(o, _)| (&o.workload, o.slices) == (&w.workload, w.slices))
        {
            report.error(span, format!("the same workload stands in line {}", first.line), "leave one out");
        } else if let Some((first, _)) = workloads[..i].iter().find(|(o, _)| meets(o, w)) {
            let other = if first.range.is_some() { "the range" } else { "that" };
            let line = first.line;
            let cause = format!("this workload and {other} in line {line} differ in the number of images or rows only");
            report.error(span, cause, "let one range hold all sizes, or give one of them a [[kernel]] of its own");
        } else if let Some((first, _)) = workloads[..i].iter().find(same)
            && (w.name.is_none() || first.name.is_none())
        {
            let cause = format!(
                "this workload has the same shapes as the one in line {} and differs only in stride, padding, \
                 dilation, groups or slices",
                first.line
            );
            report.error(span, cause, "give both a `name`, by which they are called");
        }
    }
}
