//! Operators that move elements: permutations, slices, padding, concatenation.

use super::builder::{Builder, Call};
use super::operands::{axis, broadcast, required};
use crate::ir::DType;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::Quant;

/// `Transpose`. One that leaves the order of the elements as it is, is a view.
pub(super) fn transpose(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    let shape = b.shape(x);
    let rank = shape.len();
    let order = node.integers("perm").unwrap_or_else(|| (0..rank as i64).rev().collect());
    let order = order.iter().map(|a| axis(*a, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank) {
        return Err(Fault::attribute("perm", format!("{order:?}"), "each dimension once"));
    }
    permuted(b, x, &order)
}

/// A tensor with its dimensions in another order, each once.
pub(super) fn permuted(b: &mut Builder, x: ValueId, order: &[usize]) -> Result<ValueId, Fault> {
    let shape = b.shape(x);
    let permuted: Vec<i64> = order.iter().map(|a| shape[*a]).collect();
    // Dimensions of extent 1 can stand anywhere.
    if order.iter().filter(|a| shape[**a] != 1).is_sorted() {
        return b.view(x, &permuted);
    }
    let order: Vec<i64> = order.iter().map(|a| *a as i64).collect();
    b.compute(Call::new("permute", &[x]).key("input", &shape).key("order", &order))
}

/// `Slice`: from version 10 on its numbers are operands.
pub(super) fn slice(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let list = |name: &str, at: usize| -> Result<Option<Vec<i64>>, Fault> {
        match x.get(at).copied().flatten() {
            Some(id) => b.integers(name, id).map(Some),
            None => Ok(node.integers(name)),
        }
    };
    let missing = || Fault::new("its bounds are missing", "export the model again");
    let (starts, ends) = (list("starts", 1)?.ok_or_else(missing)?, list("ends", 2)?.ok_or_else(missing)?);
    let axes = list("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = list("steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(Fault::new("its bounds are of different lengths", "export the model again"));
    }
    let rank = shape.len();
    let (mut start, mut size, mut step) = (vec![0; rank], shape.clone(), vec![1; rank]);
    for (i, at) in axes.iter().enumerate() {
        let at = axis(*at, rank)?;
        (start[at], size[at]) = bounds(starts[i], ends[i], steps[i], shape[at])?;
        // Between one element and no other there is no step.
        step[at] = if size[at] > 1 { steps[i] } else { 1 };
    }
    part(b, input, &start, &size, &step)
}

/// The first element and the number of elements of a slice with NumPy's bounds.
fn bounds(start: i64, end: i64, step: i64, extent: i64) -> Result<(i64, i64), Fault> {
    if step == 0 {
        return Err(Fault::attribute("steps", 0, "steps that are not 0"));
    }
    let clamp = |at: i64, low: i64, high: i64| (if at < 0 { at.saturating_add(extent) } else { at }).max(low).min(high);
    // Backwards, a slice begins at an element and may end in front of the first.
    let (first, last) = match step > 0 {
        true => (clamp(start, 0, extent), clamp(end, 0, extent)),
        false => (clamp(start, 0, extent - 1), clamp(end, -1, extent - 1)),
    };
    let span = if step > 0 { last - first } else { first - last };
    let count = if span <= 0 { 0 } else { (span - 1) / step.saturating_abs() + 1 };
    Ok((first, count))
}

/// A part of a tensor. All of it is the tensor itself.
pub(super) fn part(b: &mut Builder, x: ValueId, start: &[i64], size: &[i64], step: &[i64]) -> Result<ValueId, Fault> {
    let shape = b.shape(x);
    if size.contains(&0) && b.constant(x).is_some() {
        // Shapes are computed of lists that may be empty.
        return Ok(b.add_constant(Tensor::integers(size, [])));
    }
    if size.contains(&0) {
        return Err(Fault::new("its result has no elements", "leave the slice out"));
    }
    if size == shape && step.iter().all(|s| *s == 1) {
        return Ok(x);
    }
    b.compute(Call::new("slice", &[x]).key("input", &shape).key("start", start).key("size", size).key("step", step))
}

/// `Split`: one slice for each output.
pub(super) fn split(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<Vec<ValueId>, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let at = axis(node.integer("axis", 0), shape.len())?;
    let outputs = node.outputs.len() as i64;
    let each = (shape[at] + outputs - 1) / outputs.max(1);
    let sizes = match x.get(1).copied().flatten() {
        Some(id) => b.integers("sizes", id)?,
        None => {
            node.integers("split").unwrap_or_else(|| (0..outputs).map(|i| each.min(shape[at] - i * each)).collect())
        }
    };
    if sizes.len() as i64 != outputs
        || sizes.iter().fold(0i64, |n, size| n.saturating_add(*size)) != shape[at]
        || sizes.iter().any(|n| *n < 1)
    {
        return Err(Fault::new(format!("parts of {sizes:?} of an extent of {}", shape[at]), "export the model again"));
    }
    parts(b, input, at, &sizes)
}

/// The parts of a tensor that follow each other along a dimension, each of so many elements there.
pub(super) fn parts(b: &mut Builder, x: ValueId, at: usize, sizes: &[i64]) -> Result<Vec<ValueId>, Fault> {
    let shape = b.shape(x);
    let mut first = 0;
    let mut part_of = |b: &mut Builder, n: i64| {
        let (mut start, mut size) = (vec![0; shape.len()], shape.clone());
        (start[at], size[at]) = (first, n);
        first += n;
        part(b, x, &start, &size, &vec![1; shape.len()])
    };
    sizes.iter().map(|n| part_of(b, *n)).collect()
}

/// `Concat`.
pub(super) fn concat(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let all = (0..x.len()).map(|i| required(x, i)).collect::<Result<Vec<_>, _>>()?;
    // What has no elements adds none.
    let all: Vec<ValueId> = all.into_iter().filter(|id| b.program.elements(*id) != 0).collect();
    let first = *all.first().ok_or_else(|| Fault::new("it has no operands", "leave it out"))?;
    let at = axis(node.integer("axis", 0), b.shape(first).len())?;
    along(b, all, at)
}

/// Tensors side by side along a dimension: one at least, and none without elements.
pub(super) fn along(b: &mut Builder, mut all: Vec<ValueId>, at: usize) -> Result<ValueId, Fault> {
    let shape = b.shape(all[0]);
    for id in &all {
        let other = b.shape(*id);
        if other.len() != shape.len() || (0..shape.len()).any(|i| i != at && other[i] != shape[i]) {
            return Err(Fault::new(
                format!("{shape:?} beside {other:?}"),
                "check the extents that the spec gives the inputs",
            ));
        }
    }
    // A kernel takes a few operands at a time.
    while all.len() > 1 {
        let groups = all.chunks(MOST_OPERANDS);
        all = groups
            .map(|some| if some.len() > 1 { beside(b, some, at) } else { Ok(some[0]) })
            .collect::<Result<_, _>>()?;
    }
    Ok(all[0])
}

/// Most tensors that one kernel puts side by side: it has six lists of extents.
const MOST_OPERANDS: usize = 7;

/// A few of them.
fn beside(b: &mut Builder, all: &[ValueId], at: usize) -> Result<ValueId, Fault> {
    let shape = b.shape(all[0]);
    let others: Vec<i64> = all[1..].iter().map(|id| b.shape(*id)[at]).collect();
    b.compute(Call::new("concat", all).key("input", &shape).key("axis", &[at as i64]).key("others", &others))
}

/// `Gather`: by constant indices, which may be a slice, or by computed ones.
pub(super) fn gather(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (input, indices) = (required(x, 0)?, required(x, 1)?);
    let shape = b.shape(input);
    let at = axis(node.integer("axis", 0), shape.len())?;
    let places = b.shape(indices);
    if b.constant(indices).is_none() {
        let y = by_indices(b, input, at, indices)?;
        return b.view(y, &[&shape[..at], &places, &shape[at + 1..]].concat());
    }
    let mut list = b.integers("indices", indices)?;
    for index in &mut list {
        *index += if *index < 0 { shape[at] } else { 0 };
        if !(0..shape[at]).contains(index) {
            return Err(Fault::new(
                format!("an index of {index} into an extent of {}", shape[at]),
                "export the model again",
            ));
        }
    }
    let indices = b.add_constant(Tensor::integers(&[list.len() as i64], list.clone()));
    let result: Vec<i64> = [&shape[..at], &places, &shape[at + 1..]].concat();
    let y = if !list.is_empty() && list.windows(2).all(|pair| pair[1] == pair[0] + 1) && b.constant(input).is_none() {
        // Neighbours are a slice.
        let (mut start, mut size) = (vec![0; shape.len()], shape.clone());
        (start[at], size[at]) = (list[0], list.len() as i64);
        part(b, input, &start, &size, &vec![1; shape.len()])?
    } else {
        let call = Call::new("gather", &[input, indices]).key("input", &shape);
        b.compute(call.key("indices", &[list.len() as i64]).key("axis", &[at as i64]))?
    };
    b.view(y, &result)
}

/// `ReverseSequence`: of each sequence its elements in the other order, and what is behind them as it is. The lengths are known.
pub(super) fn reverse_sequences(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (input, lengths) = (required(x, 0)?, b.integers("lengths", required(x, 1)?)?);
    let shape = b.shape(input);
    let axes = (node.integer("time_axis", 0), node.integer("batch_axis", 1));
    let ([first, second], at) = match (&shape[..], axes) {
        ([first, second, ..], (0, 1)) => ([*first, *second], 0),
        ([first, second, ..], (1, 0)) => ([*first, *second], 1),
        _ => return Err(Fault::new(format!("of {shape:?}, axes {axes:?}"), "export the model with the axes 0 and 1")),
    };
    let (time, batch) = (shape[at], shape[1 - at]);
    if lengths.len() as i64 != batch || lengths.iter().any(|n| !(0..=time).contains(n)) {
        return Err(Fault::new(format!("lengths of {lengths:?} in {shape:?}"), "export the model again"));
    }
    if lengths.iter().all(|n| *n == time) {
        let (mut start, mut step) = (vec![0; shape.len()], vec![1; shape.len()]);
        (start[at], step[at]) = (time - 1, if time > 1 { -1 } else { 1 });
        return part(b, input, &start, &shape, &step);
    }
    let rows = [&[first * second], &shape[2..]].concat();
    b.allow(rows[0], 0)?;
    let source = |place: i64| {
        let mut indices = [place / second, place % second];
        let length = lengths[indices[1 - at] as usize];
        indices[at] = if indices[at] < length { length - 1 - indices[at] } else { indices[at] };
        indices[0] * second + indices[1]
    };
    let sources = Tensor::integers(&[rows[0]], (0..rows[0]).map(source).collect::<Vec<_>>());
    let (whole, sources) = (b.view(input, &rows)?, b.add_constant(sources));
    let y = gather(b, &Node::default(), &[Some(whole), Some(sources)])?;
    b.view(y, &shape)
}

/// The elements along a dimension that computed indices name; those stand in one dimension.
pub(super) fn by_indices(b: &mut Builder, input: ValueId, at: usize, indices: ValueId) -> Result<ValueId, Fault> {
    let (shape, count) = (b.shape(input), b.program.elements(indices));
    let around = [&shape[..at], &shape[at + 1..]].map(|some| some.iter().product::<i64>());
    let extents = [around[0], shape[at], around[1]];
    let (input, indices) = (b.view(input, &extents)?, b.as_integers(indices)?);
    let indices = b.view(indices, &[count])?;
    let call = Call::new("gather", &[input, indices]).key("input", &extents).key("indices", &[count]).key("axis", &[1]);
    let of_integers = b.constant(input).is_some_and(|constant| constant.is_integer() && constant.byte.is_none());
    b.compute(if of_integers { call.integers(DType::I32, Quant::default(), []) } else { call })
}

/// `Pad`: from version 11 on its numbers are operands.
pub(super) fn pad(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let shape = b.shape(input);
    let rank = shape.len();
    let pads = match x.get(1).copied().flatten() {
        Some(id) => b.integers("pads", id)?,
        None => node.integers("pads").unwrap_or_default(),
    };
    let value = match x.get(2).copied().flatten() {
        Some(id) => {
            let value = b.floats("value", id)?.first().copied().unwrap_or(0.0);
            let integer = b.constant(id).and_then(|constant| constant.to_integers()?.first().copied());
            if let Some(integer) = integer.filter(|integer| value as i64 != *integer) {
                return Err(Fault::new(
                    format!("its value is {integer}"),
                    "pad with an integer that f32 holds exactly",
                ));
            }
            value
        }
        None => node.float("value", 0.0),
    };
    let axes = match x.get(3).copied().flatten() {
        Some(id) => b.integers("axes", id)?,
        None => (0..rank as i64).collect(),
    };
    if pads.len() != 2 * axes.len() || pads.iter().any(|p| *p < 0) {
        return Err(Fault::attribute("pads", format!("{pads:?}"), "two numbers for each axis, none negative"));
    }
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (i, at) in axes.iter().enumerate() {
        let at = axis(*at, rank)?;
        (before[at], after[at]) = (pads[i], pads[axes.len() + i]);
    }
    if pads.iter().all(|p| *p == 0) {
        return Ok(input);
    }
    let call = match (node.text("mode", "constant"), value) {
        ("constant", 0.0) => Call::new("pad", &[input]),
        ("constant", value) => Call::new("pad_constant", &[input]).number("value", value)?,
        ("edge", _) => Call::new("pad_edge", &[input]),
        ("reflect", _) => Call::new("pad_reflect", &[input]),
        (mode, _) => return Err(Fault::attribute("mode", mode, "the mode constant, edge or reflect")),
    };
    b.compute(call.key("input", &shape).key("before", &before).key("after", &after))
}

/// `Expand`, and `Tile`: dimensions that are repeated.
pub(super) fn repeat(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let input = required(x, 0)?;
    let numbers = b.integers("numbers", required(x, 1)?)?;
    let mut shape = b.shape(input);
    let repeats = if node.op == "Tile" {
        numbers
    } else {
        let expanded = broadcast(&shape, &numbers)?;
        shape = [vec![1; expanded.len() - shape.len()], shape].concat();
        expanded.iter().zip(&shape).map(|(new, old)| if new == old { 1 } else { *new }).collect()
    };
    if repeats.len() != shape.len() || repeats.iter().any(|n| *n < 1) {
        return Err(Fault::new(format!("{repeats:?} repeats of {shape:?}"), "export the model again"));
    }
    let view = b.view(input, &shape)?;
    if repeats.iter().all(|n| *n == 1) {
        return Ok(view);
    }
    b.compute(Call::new("tile", &[view]).key("input", &shape).key("repeats", &repeats))
}

/// `GridSample` of images.
pub(super) fn grid_sample(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (image, grid) = (required(x, 0)?, required(x, 1)?);
    let (shape, places) = (b.shape(image), b.shape(grid));
    let ([n, ..], [images, height, width, 2]) = (&shape[..], &places[..]) else {
        return Err(Fault::new(format!("{shape:?} at {places:?}"), "images of four dimensions can be sampled"));
    };
    if shape.len() != 4 || n != images {
        return Err(Fault::new(
            format!("{shape:?} at {places:?}"),
            "use as many grids as images, of two numbers a place",
        ));
    }
    let kind = match node.text("mode", "bilinear") {
        "bilinear" | "linear" => "grid_sample_bilinear",
        "nearest" => "grid_sample_nearest",
        other => return Err(Fault::attribute("mode", other, "the mode linear or nearest")),
    };
    let call = Call::new(kind, &[image, grid]).key("input", &shape).key("size", &[*height, *width]);
    let call = call.flag("align_corners", node.flag("align_corners"));
    b.compute(match node.text("padding_mode", "zeros") {
        "zeros" => call,
        "border" => call.flag("border", true),
        "reflection" => call.flag("reflection", true),
        other => return Err(Fault::attribute("padding_mode", other, "zeros, border or reflection")),
    })
}

/// `DepthToSpace` and `SpaceToDepth`.
pub(super) fn blocks(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    let kind = match (node.op.as_str(), node.text("mode", "DCR")) {
        ("DepthToSpace", "CRD") => "pixel_shuffle",
        ("DepthToSpace", _) => "depth_to_space",
        (_, "CRD") => "pixel_unshuffle",
        _ => "space_to_depth",
    };
    let shape = b.shape(x);
    b.compute(Call::new(kind, &[x]).key("input", &shape).key("block", &[node.integer("blocksize", 0)]))
}
