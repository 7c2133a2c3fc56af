//! Weights of few bits that a model says by a `DequantizeLinear` with scales of blocks in front of a product.
//!
//! Such a pair is `MatMulNBits` of ONNX Runtime, which reads the integers as they are: a kernel that waits for its weights takes as
//! long as their bytes do.

use super::model::{Attribute, Model, Node};
use super::qdq::{Joined, replace};
use super::tensor::Tensor;
use crate::ir::DType;
use crate::workload::matmul_nbits::{Bits, GROUPS, MatmulNbits};
use std::collections::BTreeMap;

/// Joins products with what makes numbers of their weights.
pub(super) fn join(model: &mut Model) {
    let products = (0..model.nodes.len()).filter(|at| model.nodes[*at].op == "MatMul");
    let found: Vec<(usize, Joined)> = products.filter_map(|at| Some((at, joined(model, at)?))).collect();
    replace(model, found);
}

/// Most weights that are added so that rows are whole runs.
const MOST_PADDING: i64 = 1 << 24;

/// The product with the integers of its weights, if these are constants, `[k, n]`, with scales of blocks along `k`.
fn joined(model: &Model, at: usize) -> Option<Joined> {
    let product = &model.nodes[at];
    let [a, weights] = &product.inputs[..] else { return None };
    let from = model.nodes.iter().find(|node| node.outputs.contains(weights))?;
    let group = from.integer("block_size", 0);
    if from.op != "DequantizeLinear" || ![0, -2].contains(&from.integer("axis", 1)) {
        return None;
    }
    let constant = |at: usize| from.inputs.get(at).and_then(|name| model.constants.get(name));
    let (integers, scales) = (constant(0)?, constant(1)?);
    let [k, n] = integers.shape[..] else { return None };
    // Runs of a length that the operator does not take are numbers.
    if !GROUPS.contains(&group) || k < 1 || n < 1 {
        return None;
    }
    let with = |bits| MatmulNbits { m: 1, n, k, bits, group, asymmetric: true };
    let groups = with(Bits::Four).groups();
    // Rows are whole runs: short ones would be much longer than they are.
    if scales.shape != [groups, n] || n.saturating_mul(groups * group - k) > MOST_PADDING {
        return None;
    }
    let offset = if integers.byte? == DType::I8 { 128 } else { 0 };
    let zeros = match from.inputs.get(2).filter(|name| !name.is_empty()) {
        Some(name) => {
            let zeros = model.constants.get(name)?;
            Some((zeros.shape == [groups, n] && zeros.byte == integers.byte).then_some(zeros)?.to_integers()?)
        }
        None => None,
    };
    let integers = integers.to_integers()?;
    let zero = |at: usize| zeros.as_ref().map_or(0, |zeros| zeros[at]);
    // Four bits are enough where all integers, and what stands for 0 among them, lie within 16 numbers that begin at 0 or at -8.
    let all = || integers.iter().copied().chain((0..(groups * n) as usize).map(zero));
    let least = if offset == 0 { 0 } else { -8 };
    let few = all().all(|q| (least..least + 16).contains(&q));
    if !all().all(|q| (-offset..256 - offset).contains(&q)) {
        return None;
    }
    let (bits, offset) = if few { (Bits::Four, -least) } else { (Bits::Eight, offset) };
    let of = with(bits);
    let (row, groups) = (n as usize, groups as usize);
    let padded = groups * group as usize;
    let packed = |elements: usize, at: &dyn Fn(usize, usize) -> i64| -> Vec<i64> {
        let in_byte = bits.in_byte() as usize;
        let bytes = |column: usize| {
            (0..elements.div_ceil(in_byte)).map(move |byte| {
                let parts = (0..in_byte).map(|part| byte * in_byte + part).filter(|i| *i < elements);
                parts.enumerate().map(|(part, i)| at(column, i) << (4 * part)).sum::<i64>()
            })
        };
        (0..row).flat_map(bytes).collect()
    };
    let weight = |column: usize, i: usize| if i < k as usize { integers[i * row + column] + offset } else { 0 };
    let zero_point = |column: usize, group: usize| zero(group * row + column) + offset;
    let floats = scales.to_floats();
    let scale = |i: usize| floats[i % groups * row + i / groups];
    let name = |what: &str| format!("{weights} as {what}");
    let shape = |of_row: i64| [n, of_row];
    let (weight, zero) = (packed(padded, &weight), packed(groups, &zero_point));
    let constants = vec![
        (name("bytes"), Tensor::bytes(&shape(of.row_bytes()), DType::U8, weight)),
        (name("scales"), Tensor::floats(&shape(groups as i64), (0..groups * row).map(scale).collect::<Vec<f32>>())),
        (name("zero points"), Tensor::bytes(&shape(of.row_zeros()), DType::U8, zero)),
    ];
    let inputs = std::iter::once(a.clone()).chain(constants.iter().map(|(name, _)| name.clone())).collect();
    let attributes = [("K", k), ("N", n), ("bits", bits.count()), ("block_size", group)];
    let attributes: BTreeMap<String, Attribute> =
        attributes.map(|(name, value)| (name.to_string(), Attribute::Integer(value))).into();
    let (name, outputs) = (product.name.clone(), product.outputs.clone());
    Some(Joined {
        node: Node { name, op: "MatMulNBits".into(), inputs, outputs, attributes },
        before: vec![],
        constants,
    })
}
