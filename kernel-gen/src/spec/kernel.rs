//! `[[kernel]]` and `[[kernel.workload]]`.

use super::names::Names;
use crate::diagnostic::{Found, Report, Table};
use crate::ir::DType;
use crate::workload::{
    Conv2d, ConvLayout, DepthwisePointwise, Epilogue, Math, Matmul, Op, Workload, WorkloadError, epilogue,
};
use std::ops::Range;

/// An operator as a spec names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// `conv2d`.
    Conv2d,
    /// `depthwise_conv2d`.
    DepthwiseConv2d,
    /// `depthwise_pointwise`.
    DepthwisePointwise,
    /// `matmul`.
    Matmul,
    /// `batch_matmul`.
    BatchMatmul,
}

impl OpKind {
    /// All of them with their names.
    pub const ALL: [(&str, OpKind); 5] = [
        ("conv2d", OpKind::Conv2d),
        ("depthwise_conv2d", OpKind::DepthwiseConv2d),
        ("depthwise_pointwise", OpKind::DepthwisePointwise),
        ("matmul", OpKind::Matmul),
        ("batch_matmul", OpKind::BatchMatmul),
    ];

    /// The name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            OpKind::Conv2d => "conv2d",
            OpKind::DepthwiseConv2d => "depthwise_conv2d",
            OpKind::DepthwisePointwise => "depthwise_pointwise",
            OpKind::Matmul => "matmul",
            OpKind::BatchMatmul => "batch_matmul",
        }
    }

    fn is_conv(self) -> bool {
        matches!(self, OpKind::Conv2d | OpKind::DepthwiseConv2d | OpKind::DepthwisePointwise)
    }

    /// Whether the first convolution of the operator is depthwise.
    fn is_depthwise(self) -> bool {
        matches!(self, OpKind::DepthwiseConv2d | OpKind::DepthwisePointwise)
    }
}

/// A function that is generated: one operator at some shapes.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelSpec {
    /// Its name.
    pub name: String,
    /// The operator.
    pub op: OpKind,
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
    op: OpKind,
    layout: ConvLayout,
    trans: [bool; 2],
    dtype: DType,
    out_dtype: DType,
    math: Math,
    epilogue: Vec<Epilogue>,
    /// The steps between the two convolutions of a pair.
    between: Vec<Epilogue>,
}

const WORKLOAD: &str = "[[kernel.workload]]";

pub(super) fn read(table: &mut Table<'_, '_>, report: &mut Report, names: &mut Names) -> Option<KernelSpec> {
    let (span, before) = (table.span(), report.len());
    table.require(report, "name", "name = \"conv2d_nchw\"");
    let name = table.string(report, "name").and_then(|n| names.take(report, &n, true));
    table.require(report, "op", "op = \"conv2d\"");
    let op = table.choice(report, "op", &OpKind::ALL).map(|f| f.value);
    let common = common(table, report, op);
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
    Some(KernelSpec { name: name?, op: common.op, workloads, line: report.line(span.start) })
}

fn common(table: &mut Table<'_, '_>, report: &mut Report, op: Option<OpKind>) -> Option<Common> {
    let layouts: Vec<(String, ConvLayout)> = ConvLayout::ALL.iter().map(|l| (l.name(), *l)).collect();
    let layouts: Vec<(&str, ConvLayout)> = layouts.iter().map(|(n, l)| (n.as_str(), *l)).collect();
    let types = [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::Bf16)];
    let is_conv = op.map(OpKind::is_conv);
    // Where the operator is not known, the keys of all of them are taken without complaint.
    let layout = if is_conv != Some(false) { table.choice(report, "layout", &layouts) } else { None };
    let [trans_a, trans_b] = if is_conv != Some(true) {
        ["trans_a", "trans_b"].map(|key| table.boolean(report, key).is_some_and(|f| f.value))
    } else {
        [false; 2]
    };
    if let Some(op) = op {
        table.rename(format!("[[kernel]] with op = \"{}\"", op.name()));
    }
    let dtype = table.choice(report, "dtype", &types);
    let out_dtype = table.choice(report, "out_dtype", &types);
    let math = table.choice(report, "math", &Math::ALL.map(|m| (m.name(), m)));
    let epilogue = epilogue_steps(table, report, "epilogue", &Epilogue::ALL);
    let between = match op {
        None | Some(OpKind::DepthwisePointwise) => {
            epilogue_steps(table, report, "depthwise_epilogue", &DepthwisePointwise::BETWEEN)
        }
        Some(_) => vec![],
    };
    let dtype_value = dtype.as_ref().map_or(DType::F32, |f| f.value);
    let mut math_value = math.as_ref().map_or(Math::default(), |f| f.value);
    if let Some(found) =
        layout.as_ref().filter(|f| op == Some(OpKind::DepthwisePointwise) && f.value != ConvLayout::Nchw)
    {
        let error = WorkloadError::PairLayout { layout: found.value.name() };
        report.error(&found.span, error.cause(), error.mend());
        return None;
    }
    if let Some(math) = math.filter(|m| m.value == Math::Tf32 && dtype_value != DType::F32) {
        let error = WorkloadError::Tf32NeedsF32 { dtype: dtype_value.name() };
        report.error(&math.span, error.cause(), error.mend());
        math_value = Math::default();
    }
    Some(Common {
        op: op?,
        layout: layout.map_or(ConvLayout::Nchw, |f| f.value),
        trans: [trans_a, trans_b],
        dtype: dtype_value,
        out_dtype: out_dtype.map_or(dtype_value, |f| f.value),
        math: math_value,
        epilogue,
        between,
    })
}

/// The epilogue; empty if anything is wrong with it, so that it is reported once and not for each workload.
fn epilogue_steps(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    key: &'static str,
    all: &[Epilogue],
) -> Vec<Epilogue> {
    let mut choices: Vec<(&str, Option<Epilogue>)> = all.iter().map(|e| (e.name(), Some(*e))).collect();
    choices.push(("none", None));
    let before = report.len();
    let Some(found) = table.choices(report, key, &choices) else { return vec![] };
    if report.len() > before {
        return vec![];
    }
    if found.value.len() > 1 && found.value.iter().any(|f| f.value.is_none()) {
        report.error(&found.span, "the epilogue has `none` beside other steps", "leave `none` out");
        return vec![];
    }
    let steps: Vec<Epilogue> = found.value.iter().filter_map(|f| f.value).collect();
    if let Err(error) = epilogue::check_order(&steps) {
        report.error(&found.span, error.cause(), error.mend());
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
    table.rename(format!("{WORKLOAD} of a {}", common.op.name()));
    let span = table.span();
    let name = table.string(report, "name");
    // A name that is wrong must not count as missing.
    let named = name.is_some();
    let name = name.and_then(|n| names.take(report, &n, false));
    let count = count(table, report);
    let op = match common.op {
        OpKind::Conv2d | OpKind::DepthwiseConv2d => convolution(table, report, common).map(Op::Conv2d),
        OpKind::DepthwisePointwise => pair(table, report, common).map(Op::DepthwisePointwise),
        OpKind::Matmul | OpKind::BatchMatmul => product(table, report, common).map(Op::Matmul),
    };
    table.finish(report);
    let workload = Workload {
        op: op?,
        dtype: common.dtype,
        out_dtype: common.out_dtype,
        math: common.math,
        epilogue: common.epilogue.clone(),
    };
    if let Err(error) = workload.validate() {
        let key = guilty_key(&error, common.op);
        report.error(&table.span_of(key), error.cause(), error.mend());
        return None;
    }
    if named && name.is_none() {
        return None;
    }
    let line = report.line(span.start);
    Some((WorkloadSpec { name, workload, count, line }, span))
}

/// How often the network runs a workload. A count that is wrong is reported and read as 1, so that what follows it is
/// looked at too.
fn count(table: &mut Table<'_, '_>, report: &mut Report) -> u32 {
    let Some(found) = table.integer(report, "count") else { return 1 };
    let count = u32::try_from(found.value).ok().filter(|n| (1..=MAX_COUNT).contains(n));
    count.unwrap_or_else(|| {
        let mend = format!("say how often the network runs it, 1 to {MAX_COUNT}");
        report.error(&found.span, format!("`count` is {}", found.value), mend);
        1
    })
}

/// The key whose value is to blame for an error, so that the diagnostic points at its line.
fn guilty_key(error: &WorkloadError, op: OpKind) -> &'static str {
    if !op.is_conv() {
        return match error {
            WorkloadError::NotPositive { size: "n", .. } => "b",
            _ => "a",
        };
    }
    match error {
        WorkloadError::NotPositive { size, .. } => match *size {
            s if op == OpKind::DepthwisePointwise && s.starts_with("co") => "pointwise",
            s if s.contains("stride") => "stride",
            s if s.contains("dilation") => "dilation",
            s if s.starts_with("groups") => "groups",
            s if s.contains("kernel") || s.contains("output") => "weight",
            _ => "input",
        },
        WorkloadError::NegativePadding { .. } => "padding",
        WorkloadError::KernelTooLarge { .. } => "weight",
        WorkloadError::GroupsDoNotDivide { .. } => "groups",
        WorkloadError::BlockDoesNotDivide { which: "output", .. } => "weight",
        _ => "input",
    }
}

fn convolution(table: &mut Table<'_, '_>, report: &mut Report, common: &Common) -> Option<Conv2d> {
    let layout = common.layout;
    let (activation, weights) = match layout {
        ConvLayout::Nchw => ("[n, ci, h, w]", "[co, ci/groups, kh, kw]"),
        ConvLayout::Nhwc => ("[n, h, w, ci]", "[kh, kw, ci/groups, co]"),
        ConvLayout::Hwcn => ("[h, w, ci, n]", "[kh, kw, ci/groups, co]"),
        ConvLayout::NchwC(_) => ("[n, ci/16, h, w, 16]", "[co, ci/groups, kh, kw]"),
        ConvLayout::NhwcNc(_) => ("[n/16, h, w, ci/16, 16, 16]", "[kh, kw, ci/16, co/16, 16, 16]"),
    };
    table.require(report, "input", &format!("input = {activation}"));
    table.require(report, "weight", &format!("weight = {weights}"));
    let (rank, weight_rank) = match layout {
        ConvLayout::NchwC(_) => (5, 4),
        ConvLayout::NhwcNc(_) => (6, 6),
        _ => (4, 4),
    };
    let input = table.integers(report, "input", &[rank]);
    let weight = table.integers(report, "weight", &[weight_rank]);
    let mut pair = |key| match table.integers(report, key, &[2]) {
        Some(found) => [found.value[0], found.value[1]],
        None => [1, 1],
    };
    let (stride, dilation) = (pair("stride"), pair("dilation"));
    let padding = match table.integers(report, "padding", &[2, 4]).map(|f| f.value).as_deref() {
        Some([vertical, horizontal]) => [*vertical, *horizontal, *vertical, *horizontal],
        Some([top, left, bottom, right]) => [*top, *left, *bottom, *right],
        _ => [0; 4],
    };
    let groups = table.integer(report, "groups");
    let (input, weight) = (input?, weight?);
    let (x, w) = (&input.value, &weight.value);
    let (n, ci, height, width) = match layout {
        ConvLayout::Nchw => (x[0], x[1], x[2], x[3]),
        ConvLayout::Nhwc => (x[0], x[3], x[1], x[2]),
        ConvLayout::Hwcn => (x[3], x[2], x[0], x[1]),
        ConvLayout::NchwC(block) => {
            if x[4] != block {
                let cause =
                    format!("the blocks of the input have {} channels, but the layout is {}", x[4], layout.name());
                report.error(&input.span, cause, format!("end it with {block}"));
                return None;
            }
            (x[0], x[1].saturating_mul(block), x[2], x[3])
        }
        ConvLayout::NhwcNc(block) => {
            for (what, found) in [("input", &input), ("weight", &weight)] {
                if found.value[4..] != [block, block] {
                    let cause = format!(
                        "the tiles of the {what} are {} x {}, but the layout is {}",
                        found.value[4],
                        found.value[5],
                        layout.name()
                    );
                    report.error(&found.span, cause, format!("end it with {block}, {block}"));
                    return None;
                }
            }
            (x[0].saturating_mul(block), x[3].saturating_mul(block), x[1], x[2])
        }
    };
    let (co, ci_per_group, kh, kw) = match layout {
        ConvLayout::Nchw | ConvLayout::NchwC(_) => (w[0], w[1], w[2], w[3]),
        ConvLayout::Nhwc | ConvLayout::Hwcn => (w[3], w[2], w[0], w[1]),
        ConvLayout::NhwcNc(block) => (w[3].saturating_mul(block), w[2].saturating_mul(block), w[0], w[1]),
    };
    let depthwise = common.op.is_depthwise();
    let groups = match groups {
        Some(g) if depthwise && g.value != ci => {
            let cause = format!("a {} of {ci} channels has {ci} groups, not {}", common.op.name(), g.value);
            report.error(&g.span, cause, "leave `groups` out, or use op = \"conv2d\"");
            return None;
        }
        Some(g) => g.value,
        None if depthwise => ci,
        None => 1,
    };
    if ci_per_group.checked_mul(groups) != Some(ci) && groups > 0 && ci > 0 {
        let cause = if depthwise {
            format!("the weight of a {} takes 1 channel, this one takes {ci_per_group}", common.op.name())
        } else {
            let each = if groups == 1 { String::new() } else { format!(" in each of {groups} groups") };
            format!("the weight takes {ci_per_group} channels{each}, but the input has {ci}")
        };
        let mend = match other_order(&w[..4], ci, groups).filter(|_| w.len() == 4 && !depthwise) {
            Some((order, co, kernel)) => {
                let meant = suggested_weight(layout, &[co, ci, groups, kernel, kernel]);
                format!("write weight = {weights}{meant}; it stands in the order {order}")
            }
            None => format!("write weight = {weights}{}", suggested_weight(layout, &[co, ci, groups, kh, kw])),
        };
        report.error(&weight.span, cause, mend);
        return None;
    }
    Some(Conv2d { layout, n, ci, h: height, w: width, co, kh, kw, stride, padding, dilation, groups })
}

/// A depthwise convolution like any other, and `pointwise`, the weight of the one that follows.
fn pair(table: &mut Table<'_, '_>, report: &mut Report, common: &Common) -> Option<DepthwisePointwise> {
    table.require(report, "pointwise", "pointwise = [co, ci, 1, 1]");
    let pointwise = table.integers(report, "pointwise", &[4]);
    let depthwise = convolution(table, report, common)?;
    let pointwise = pointwise?;
    let ci = depthwise.ci;
    if depthwise.co != ci {
        let cause = format!("the depthwise weight gives {} channels, but the input has {ci}", depthwise.co);
        let mend = format!("write weight = [{ci}, 1, {}, {}]", depthwise.kh, depthwise.kw);
        report.error(&table.span_of("weight"), cause, mend);
        return None;
    }
    let [co, takes, kh, kw] = pointwise.value[..] else { return None };
    if [kh, kw] != [1, 1] {
        let cause = format!("the pointwise weight is {kh} x {kw}");
        report.error(&pointwise.span, cause, format!("write pointwise = [{co}, {ci}, 1, 1]"));
        return None;
    }
    if takes != ci {
        let cause = format!("the pointwise weight takes {takes} channels, but the depthwise convolution gives {ci}");
        report.error(&pointwise.span, cause, format!("write pointwise = [{co}, {ci}, 1, 1]"));
        return None;
    }
    Some(DepthwisePointwise::new(depthwise, co).with_between(&common.between))
}

/// The order of another framework in which these sizes are a square filter's for this input, with its output channels and
/// its height.
fn other_order(w: &[i64], ci: i64, groups: i64) -> Option<(&'static str, i64, i64)> {
    let orders = [
        ("[co, ci/groups, kh, kw]", [w[0], w[1], w[2], w[3]]),
        ("[co, kh, kw, ci/groups]", [w[0], w[3], w[1], w[2]]),
        ("[kh, kw, ci/groups, co]", [w[3], w[2], w[0], w[1]]),
    ];
    let fits = |[_, c, kh, kw]: &[i64; 4]| c.checked_mul(groups) == Some(ci) && kh == kw;
    orders.into_iter().find(|(_, sizes)| fits(sizes)).map(|(order, [co, _, kh, _])| (order, co, kh))
}

/// ` = [64, 3, 7, 7]`, if the groups divide the channels.
fn suggested_weight(layout: ConvLayout, [co, ci, groups, kh, kw]: &[i64; 5]) -> String {
    if ci % groups != 0 {
        return String::new();
    }
    let c = ci / groups;
    match layout {
        ConvLayout::Nchw | ConvLayout::NchwC(_) => format!(" = [{co}, {c}, {kh}, {kw}]"),
        ConvLayout::Nhwc | ConvLayout::Hwcn => format!(" = [{kh}, {kw}, {c}, {co}]"),
        ConvLayout::NhwcNc(b) => format!(" = [{kh}, {kw}, {}, {}, {b}, {b}]", c / b, co / b),
    }
}

fn product(table: &mut Table<'_, '_>, report: &mut Report, common: &Common) -> Option<Matmul> {
    let [trans_a, trans_b] = common.trans;
    let batched = common.op == OpKind::BatchMatmul;
    let batch = if batched { "batch, " } else { "" };
    let shape = |rows: &str, columns: &str, trans: bool| {
        if trans { format!("[{batch}{columns}, {rows}]") } else { format!("[{batch}{rows}, {columns}]") }
    };
    let (a_shape, b_shape) = (shape("m", "k", trans_a), shape("k", "n", trans_b));
    table.require(report, "a", &format!("a = {a_shape}"));
    table.require(report, "b", &format!("b = {b_shape}"));
    let rank = if batched { 3 } else { 2 };
    let (a, b) = (table.integers(report, "a", &[rank]), table.integers(report, "b", &[rank]));
    let (a, b) = (a?, b?);
    let oriented = |found: &Found<Vec<i64>>, trans: bool| {
        let [rows, columns] = [found.value[rank - 2], found.value[rank - 1]];
        if trans { (columns, rows) } else { (rows, columns) }
    };
    let ((m, k), (k_of_b, n)) = (oriented(&a, trans_a), oriented(&b, trans_b));
    if k != k_of_b {
        let cause = format!("`a` has k = {k} but `b` has k = {k_of_b}");
        report.error(&b.span, cause, format!("the shapes are a = {a_shape} and b = {b_shape}, as stored"));
        return None;
    }
    let batch = if batched { a.value[0] } else { 1 };
    if batched && b.value[0] != batch {
        let cause = format!("`a` has a batch of {batch} but `b` has one of {}", b.value[0]);
        report.error(&b.span, cause, "both must have the same");
        return None;
    }
    if batched && batch == 1 {
        report.error(&a.span, "a batch of 1 is a plain product", "use op = \"matmul\" and leave the first extent out");
        return None;
    }
    Some(Matmul { batch, m, n, k, trans_a, trans_b })
}

/// The generated function picks a workload by the shapes of its arguments: those that share them all need names, and
/// two that are equal are one too many.
fn ambiguous(report: &mut Report, workloads: &[&(WorkloadSpec, Range<usize>)]) {
    let shapes = |w: &WorkloadSpec| w.workload.params().into_iter().map(|p| p.shape).collect::<Vec<_>>();
    for (i, (w, span)) in workloads.iter().enumerate() {
        let same = |(other, _): &&&(WorkloadSpec, Range<usize>)| shapes(other) == shapes(w);
        if let Some((first, _)) = workloads[..i].iter().find(|(o, _)| o.workload == w.workload) {
            report.error(span, format!("the same workload stands in line {}", first.line), "leave one out");
        } else if let Some((first, _)) = workloads[..i].iter().find(same)
            && (w.name.is_none() || first.name.is_none())
        {
            let cause = format!(
                "this workload has the same shapes as the one in line {} and differs only in stride, padding, \
                 dilation or groups",
                first.line
            );
            report.error(span, cause, "give both a `name`, by which they are called");
        }
    }
}
