//! What a quantised model's file leaves to compute of constants, so that its pairs are seen as such: programs that train with rounded
//! weights write these as numbers, and a `QuantizeLinear` behind them.

use super::model::{Attribute, Model, Node};
use super::tensor::{Data, Tensor};
use crate::ir::DType;
use std::collections::BTreeMap;

/// Most elements of all constants that are made here.
const MOST_ELEMENTS: usize = 1 << 29;

/// Puts constants in the places of nodes that give them, and integers in those of numbers that are quantised. A `Transpose` of what
/// constant integers stand for becomes one of these, and a `Clip` of integers one in front of the `QuantizeLinear` that gives them.
pub(super) fn settle(model: &mut Model) {
    let mut kept: Vec<Node> = vec![];
    let mut place: BTreeMap<String, usize> = BTreeMap::new();
    // A small file may ask for terabytes.
    let mut elements = 0;
    for mut node in std::mem::take(&mut model.nodes) {
        let first = node.inputs.first();
        let writer = first.and_then(|name| place.get(name)).map(|at| &kept[*at]);
        if ["Cast", "QuantizeLinear", "Transpose"].contains(&node.op.as_str()) {
            let of = writer.and_then(|from| from.inputs.first()).or(first);
            elements += of.and_then(|name| model.constants.get(name)).map_or(0, |constant| constant.data.len());
        }
        if elements > MOST_ELEMENTS {
            kept.push(node);
            continue;
        }
        if let Some((name, tensor)) = node.outputs.first().zip(constant(model, &node)) {
            model.constants.insert(name.clone(), tensor);
            continue;
        }
        if let Some((tensor, dequantized)) = writer.and_then(|from| transposed(model, &node, from)) {
            let name = format!("{} as {}", dequantized.inputs[0], node.outputs[0]);
            let inputs = [vec![name.clone()], dequantized.inputs[1..].to_vec()].concat();
            model.constants.insert(name, tensor);
            node = Node { inputs, name: node.name, outputs: node.outputs, ..dequantized };
        } else if let Some([clip, quantizer]) = writer.and_then(|from| clipped(model, &node, from)) {
            kept.push(clip);
            node = quantizer;
        }
        place.extend(node.outputs.iter().map(|name| (name.clone(), kept.len())));
        kept.push(node);
    }
    model.nodes = kept;
}

/// What a node gives, if that is known from constants.
fn constant(model: &Model, node: &Node) -> Option<Tensor> {
    let known = |at: usize| node.inputs.get(at).and_then(|name| model.constants.get(name));
    match node.op.as_str() {
        "Constant" => node.tensor(),
        "Identity" => known(0).cloned(),
        "Cast" => known(0)?.cast(node.integer("to", 1)),
        "QuantizeLinear" => {
            let zero = match node.inputs.get(2).filter(|name| !name.is_empty()) {
                Some(name) => Some(model.constants.get(name)?),
                None => None,
            };
            quantized(node, known(0)?, known(1)?, zero)
        }
        _ => None,
    }
}

/// Numbers as integers of eight bits: `round(x / scale) + zero`, held to the type, with one scale, one for each index of `axis`, or one for
/// each block along it.
fn quantized(node: &Node, x: &Tensor, scale: &Tensor, zero: Option<&Tensor>) -> Option<Tensor> {
    let dtype = match zero {
        Some(zero) => zero.byte.filter(|_| !zero.four_bits)?,
        None => match node.integer("output_dtype", 0) {
            0 | 2 => DType::U8,
            3 => DType::I8,
            _ => return None,
        },
    };
    if x.is_integer() || scale.is_integer() {
        return None;
    }
    let (numbers, scales) = (x.to_floats(), scale.to_floats());
    let zeros = zero.map_or(Some(vec![0]), Tensor::to_integers)?;
    if scales.iter().any(|s| !(s.is_finite() && *s > 0.0)) {
        return None;
    }
    let (axis, blocks) = (node.axis(x.shape.len()), node.integer("block_size", 0));
    let at = match (blocks, scales.len()) {
        (0, 1) => None,
        (0, n) => {
            let at = usize::try_from(axis).ok().filter(|at| x.shape.get(*at) == Some(&(n as i64)))?;
            Some((at, x.shape[at] as usize, 1))
        }
        (block, _) => {
            let at = usize::try_from(axis).ok().filter(|at| *at < x.shape.len())?;
            let (block, extent) = (usize::try_from(block).ok()?, x.shape[at] as usize);
            let mut shape = x.shape.clone();
            shape[at] = extent.div_ceil(block) as i64;
            (scale.shape == shape).then_some((at, extent, block))?
        }
        .into(),
    };
    let place = |i: usize| match at {
        None => 0,
        Some((at, extent, block)) => {
            let inner = x.shape[at + 1..].iter().product::<i64>().max(1) as usize;
            let along = i / inner % extent;
            match blocks {
                0 => along,
                _ => (i / inner / extent * extent.div_ceil(block) + along / block) * inner + i % inner,
            }
        }
    };
    if zeros.len() != 1 && zeros.len() != scales.len() {
        return None;
    }
    let (least, most) = dtype.limits()?;
    let integer = |(i, number): (usize, &f32)| {
        let at = place(i);
        let whole = f64::from((number / scales[at]).round_ties_even()) + zeros[at.min(zeros.len() - 1)] as f64;
        whole.clamp(least as f64, most as f64) as i64
    };
    Some(Tensor::bytes(&x.shape, dtype, numbers.iter().enumerate().map(integer).collect::<Vec<i64>>()))
}

/// Constant integers in the order of a `Transpose` of what they stand for, and the `DequantizeLinear` of these.
fn transposed(model: &Model, node: &Node, from: &Node) -> Option<(Tensor, Node)> {
    if node.op != "Transpose" || from.op != "DequantizeLinear" || from.integer("block_size", 0) != 0 {
        return None;
    }
    let of = model.constants.get(from.inputs.first()?)?;
    let (rank, all) = (of.shape.len(), of.to_integers()?);
    let order = node.integers("perm").unwrap_or_else(|| (0..rank as i64).rev().collect());
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..rank as i64) {
        return None;
    }
    let axis = from.axis(rank);
    let axis = order.iter().position(|at| *at == axis).unwrap_or(0);
    let shape: Vec<i64> = order.iter().map(|at| of.shape[*at as usize]).collect();
    let strides: Vec<usize> =
        order.iter().map(|at| of.shape[*at as usize + 1..].iter().product::<i64>() as usize).collect();
    let source = |i: usize| {
        let mut rest = i;
        let along = |(extent, stride): (&i64, &usize)| {
            let at = rest % *extent as usize;
            rest /= *extent as usize;
            at * stride
        };
        shape.iter().zip(&strides).rev().map(along).sum::<usize>()
    };
    let data: Vec<i64> = (0..all.len()).map(|i| all[source(i)]).collect();
    let tensor = Tensor { shape: shape.clone(), data: Data::Integers(data.into()), ..of.clone() };
    let mut dequantized = from.clone();
    dequantized.attributes.insert("axis".into(), Attribute::Integer(axis as i64));
    Some((tensor, dequantized))
}

/// A `Clip` of integers that a `QuantizeLinear` gives as one of its numbers, and the `QuantizeLinear` behind it.
fn clipped(model: &Model, node: &Node, from: &Node) -> Option<[Node; 2]> {
    if node.op != "Clip" || from.op != "QuantizeLinear" || from.integer("block_size", 0) != 0 {
        return None;
    }
    let known = |name: &String| model.constants.get(name).filter(|constant| constant.data.len() == 1);
    let scale = known(from.inputs.get(1)?)?.to_floats()[0];
    let zero = known(from.inputs.get(2)?)?;
    let (least, most) = zero.byte?.limits()?;
    let zero = *zero.to_integers()?.first()?;
    let bound = |at: usize, name: &str, otherwise: i64| match node.inputs.get(at).filter(|name| !name.is_empty()) {
        Some(name) => known(name)?.to_integers()?.first().copied(),
        None => (!node.attributes.contains_key(name)).then_some(otherwise),
    };
    let bounds = [bound(1, "min", least)?, bound(2, "max", most)?].map(|bound| bound.clamp(least, most));
    let name = format!("{} in front of {}", node.outputs[0], from.outputs[0]);
    let mut clip = Node {
        name: node.name.clone(),
        op: "Clip".into(),
        inputs: vec![from.inputs[0].clone()],
        outputs: vec![name.clone()],
        attributes: BTreeMap::new(),
    };
    for (name, bound) in ["min", "max"].into_iter().zip(bounds) {
        clip.attributes.insert(name.into(), Attribute::Float((bound - zero) as f32 * scale));
    }
    let mut quantizer = Node { outputs: node.outputs.clone(), ..from.clone() };
    quantizer.inputs[0] = name;
    Some([clip, quantizer])
}
