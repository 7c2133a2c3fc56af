//! Softmax and norms of rows, of groups of channels and of neighbours; reductions.

use super::builder::{Builder, Call};
use super::operands::{axis, required};
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::Epilogue;

/// `Softmax` and `LogSoftmax`. Before version 13 all dimensions from the axis on are one.
pub(super) fn softmax(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    let shape = b.shape(x);
    let modern = b.opset >= 13;
    let axis = axis(node.integer("axis", if modern { -1 } else { 1 }), shape.len())?;
    let product = |part: &[i64]| part.iter().product::<i64>();
    let (rows, behind) = (product(&shape[..axis]), product(&shape[axis + 1..]));
    let log = node.op == "LogSoftmax";
    let y = if !modern || behind == 1 {
        let matrix = [rows, product(&shape[axis..])];
        let view = b.view(x, &matrix)?;
        b.compute(Call::new(if log { "log_softmax" } else { "softmax" }, &[view]).key("input", &matrix))?
    } else {
        let planes = [rows, shape[axis], behind];
        let view = b.view(x, &planes)?;
        b.compute(
            Call::new(if log { "channel_log_softmax" } else { "channel_softmax" }, &[view]).key("input", &planes),
        )?
    };
    b.view(y, &shape)
}

/// The power of ten that an epsilon is.
fn digits(node: &Node) -> Result<i64, Fault> {
    let epsilon = node.float("epsilon", 1e-5);
    let digits = (1..=12).find(|d| (10f32.powi(-d) - epsilon).abs() <= 1e-3 * epsilon);
    digits.map(i64::from).ok_or_else(|| Fault::attribute("epsilon", epsilon, "an epsilon that is a power of ten"))
}

/// `LayerNormalization` and `RMSNormalization`, of the dimensions from the axis on.
pub(super) fn norm(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (image, scale) = (required(x, 0)?, required(x, 1)?);
    let shape = b.shape(image);
    let axis = axis(node.integer("axis", -1), shape.len())?;
    let columns: i64 = shape[axis..].iter().product();
    let matrix = [shape[..axis].iter().product(), columns];
    let scale = b.view(scale, &[columns])?;
    let shift = match x.get(2).copied().flatten() {
        Some(shift) => b.view(shift, &[columns])?,
        None => b.add_constant(Tensor::floats(&[columns], vec![0.0; columns.max(0) as usize])),
    };
    let view = b.view(image, &matrix)?;
    let kind = if node.op == "LayerNormalization" { "layer_norm" } else { "rms_norm" };
    let call = Call::new(kind, &[view]).key("input", &matrix).key("epsilon_digits", &[digits(node)?]);
    let y = b.compute(call.then(Epilogue::Scale, &[scale, shift]))?;
    b.view(y, &shape)
}

/// `GroupNormalization`, and `InstanceNormalization`: groups of one channel.
pub(super) fn group_norm(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let image = required(x, 0)?;
    let shape = b.shape(image);
    let [n, channels, pixels @ ..] = &shape[..] else {
        return Err(Fault::new(format!("an input of {shape:?}"), "norms of channels take images"));
    };
    let groups = node.integer("num_groups", *channels);
    let mut operands = vec![];
    for (i, what) in ["scale", "shift"].iter().enumerate() {
        let list = b.floats(what, required(x, i + 1)?)?;
        if list.is_empty() || !(*channels as usize).is_multiple_of(list.len()) {
            return Err(Fault::new(
                format!("{channels} channels and {} numbers as {what}", list.len()),
                "export the model again",
            ));
        }
        let repeats = *channels as usize / list.len();
        let each: Vec<f32> = list.iter().flat_map(|v| std::iter::repeat_n(*v, repeats)).collect();
        operands.push(b.add_constant(Tensor::floats(&[*channels], each)));
    }
    let planes = [*n, *channels, pixels.iter().product()];
    let view = b.view(image, &planes)?;
    let call = Call::new("group_norm", &[view]).key("input", &planes).key("groups", &[groups]);
    let call = call.key("epsilon_digits", &[digits(node)?]).then(Epilogue::Scale, &operands);
    let y = b.compute(call)?;
    b.view(y, &shape)
}

/// `LRN`.
pub(super) fn lrn(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    let shape = b.shape(x);
    let [n, channels, pixels @ ..] = &shape[..] else {
        return Err(Fault::new(format!("an input of {shape:?}"), "norms of channels take images"));
    };
    let planes = [*n, *channels, pixels.iter().product()];
    let view = b.view(x, &planes)?;
    let mut call = Call::new("lrn", &[view]).key("input", &planes).key("size", &[node.integer("size", 0)]);
    for (name, usual) in [("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)] {
        call = call.number(name, node.float(name, usual))?;
    }
    let y = b.compute(call)?;
    b.view(y, &shape)
}

/// Reductions.
const REDUCTIONS: &[(&str, &str)] = &[
    ("ReduceSum", "reduce_sum"),
    ("ReduceMean", "reduce_mean"),
    ("ReduceProd", "reduce_prod"),
    ("ReduceMax", "reduce_max"),
    ("ReduceMin", "reduce_min"),
    ("ReduceL1", "reduce_l1"),
    ("ReduceL2", "reduce_l2"),
    ("ReduceSumSquare", "reduce_sum_square"),
    ("ReduceLogSum", "reduce_log_sum"),
    ("ReduceLogSumExp", "reduce_log_sum_exp"),
];

/// A reduction along axes, which are an attribute or an operand.
pub(super) fn reduce(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let kind = REDUCTIONS.iter().find(|(op, _)| *op == node.op).map_or("reduce_sum", |(_, kind)| *kind);
    let input = required(x, 0)?;
    let shape = b.extents(input);
    let listed = match x.get(1).copied().flatten() {
        Some(id) => b.integers("axes", id)?,
        None => node.integers("axes").unwrap_or_default(),
    };
    if listed.is_empty() && node.flag("noop_with_empty_axes") {
        // Nothing is reduced, but what is done to each element is done.
        let same = ["ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceLogSumExp"];
        let help = "a list of axes";
        return if same.contains(&node.op.as_str()) {
            Ok(input)
        } else {
            Err(Fault::attribute("noop_with_empty_axes", 1, help))
        };
    }
    let mut axes = listed.iter().map(|a| axis(*a, shape.len())).collect::<Result<Vec<_>, _>>()?;
    if axes.is_empty() {
        axes = (0..shape.len()).collect();
    }
    axes.sort_unstable();
    axes.dedup();
    reduced(b, kind, input, &axes, node.integer("keepdims", 1) != 0)
}

/// A reduction along axes in ascending order.
pub(super) fn reduced(
    b: &mut Builder,
    kind: &'static str,
    input: ValueId,
    axes: &[usize],
    keep: bool,
) -> Result<ValueId, Fault> {
    let (shape, keys) = (b.extents(input), axes.iter().map(|a| *a as i64).collect::<Vec<_>>());
    let y = b.compute(Call::new(kind, &[input]).key("input", &shape).key("axes", &keys))?;
    b.view(y, &without(&shape, axes, keep))
}

/// A shape whose reduced extents are 1, or left out.
fn without(shape: &[i64], axes: &[usize], keep: bool) -> Vec<i64> {
    let extents = shape.iter().enumerate().filter(|(i, _)| keep || !axes.contains(i));
    extents.map(|(i, n)| if axes.contains(&i) { 1 } else { *n }).collect()
}

/// `ArgMax` and `ArgMin`.
pub(super) fn extreme(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    let shape = b.extents(x);
    let at = axis(node.integer("axis", 0), shape.len())?;
    let kind = if node.op == "ArgMax" { "arg_max" } else { "arg_min" };
    let call = Call::new(kind, &[x]).key("input", &shape).key("axis", &[at as i64]);
    let y = b.compute(call.flag("select_last_index", node.flag("select_last_index")))?;
    let kept = without(&shape, &[at], node.integer("keepdims", 1) != 0);
    b.view(y, &kept)
}
