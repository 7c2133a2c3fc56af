//! Products with weights of few bits.

use super::builder::{Builder, Call};
use super::operands::required;
use crate::ir::DType;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::workload::Epilogue;
use crate::workload::matmul_nbits::{Bits, GROUPS, MatmulNbits};

/// `MatMulNBits` of ONNX Runtime: weights, scales, zero points and a bias.
pub(super) fn matmul_nbits(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let [a, weights, scales] = [required(x, 0)?, required(x, 1)?, required(x, 2)?];
    let optional = |at: usize| x.get(at).copied().flatten();
    if optional(4).is_some() {
        let help = "quantise the model without an order of activations";
        return Err(Fault::new("it has `g_idx`, groups that are no runs", help));
    }
    let [k, n, group] = ["K", "N", "block_size"].map(|name| node.integer(name, 0));
    let bits = match node.integer("bits", 4) {
        4 => Bits::Four,
        8 => Bits::Eight,
        other => return Err(Fault::attribute("bits", other, "4 or 8")),
    };
    let shape = b.shape(a);
    if k < 1 || n < 1 || shape.last() != Some(&k) {
        let cause = format!("an input of {shape:?} and weights of {n} by {k}");
        return Err(Fault::new(cause, "check the extents that the spec gives the inputs"));
    }
    if !GROUPS.contains(&group) {
        return Err(Fault::attribute("block_size", group, "16, 32, 64, 128 or 256"));
    }
    let m = shape[..shape.len() - 1].iter().product::<i64>();
    let of = MatmulNbits { m, n, k, bits, group, asymmetric: false };
    for (what, id) in [("weights", Some(weights)), ("zero points", optional(3))] {
        let dtype = id.map(|id| b.program.values[id].dtype);
        if dtype.is_some_and(|dtype| dtype != DType::U8) {
            let help = "quantise the model with packed integers, u8";
            return Err(Fault::new(format!("its {what} are no u8"), help));
        }
    }
    let zeros = optional(3).filter(|id| !are_middle(b, *id, &of));
    let mut operands = vec![b.view(a, &[m, k])?, b.view(weights, &[n, of.row_bytes()])?];
    operands.push(b.view(scales, &[n, of.groups()])?);
    if let Some(id) = zeros {
        operands.push(b.view(id, &[n, of.row_zeros()])?);
    }
    let call = Call::new("matmul_nbits", &operands).flag("asymmetric", zeros.is_some());
    let call = call.key("a", &[m, k]).key("b", &[n, k]).key("bits", &[bits.count()]).key("group", &[group]);
    let y = b.compute(match optional(5) {
        Some(bias) => call.then(Epilogue::Bias, &[bias]),
        None => call,
    })?;
    b.view(y, &[&shape[..shape.len() - 1], &[n]].concat())
}

/// Whether zero points are known, and are what they would be if there were none.
fn are_middle(b: &Builder, id: ValueId, of: &MatmulNbits) -> bool {
    let Some(bytes) = b.constant(id).and_then(|tensor| tensor.to_integers()) else { return false };
    let in_byte = of.bits.in_byte();
    let row = of.row_zeros() as usize;
    if bytes.len() as i64 != of.n.saturating_mul(row as i64) {
        return false;
    }
    (0..of.groups()).all(|group| {
        let rows = bytes.chunks(row.max(1));
        rows.map(|row| {
            row.get((group / in_byte) as usize)
                .map(|byte| byte >> (4 * (group % in_byte)) & ((1 << of.bits.count()) - 1))
        })
        .all(|zero| zero == Some(of.bits.middle()))
    })
}
