//! Weights in the order of NHWC.

use crate::ir::visit::map_exprs;
use crate::ir::{Access, Buffer, Expr, Kernel, Scope};
use crate::templates::cuda::launch::pack_rows;
use crate::templates::cuda::requires::weights;
use crate::templates::{Pack, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Threads of a block that packs.
const THREADS: i64 = 128;

/// What packs the weights of a convolution for a kernel in NHWC, which has `packs` for weights in that order.
pub(super) fn packs(packs: Vec<Pack>, kernel: &Kernel, w: &Workload, c: &Conv2d) -> Result<Vec<Pack>, TemplateError> {
    // HWCN has its weights in the same order.
    if c.layout == ConvLayout::Hwcn {
        return Ok(packs);
    }
    if packs.is_empty() {
        let name = weights(w)?.name;
        let wanted = kernel.params.iter().map(|p| kernel.buffer(*p)).find(|b| b.name == name);
        let wanted = wanted.ok_or_else(|| TemplateError::Limit("a product without weights".into()))?;
        return Ok(vec![reorder(wanted, c)]);
    }
    Ok(packs.into_iter().map(|pack| Pack { kernel: from_nchw(pack.kernel, c), ..pack }).collect())
}

/// The place in NCHW of a weight of NHWC.
fn place(mut index: Vec<Expr>) -> Vec<Expr> {
    let [co, ci] = [index.pop(), index.pop()].map(|i| i.expect("weights have an input and an output channel"));
    let mut taps = index;
    taps.splice(0..0, [co, ci]);
    taps
}

/// A kernel that packs weights in the order of NHWC, for those in the order of NCHW.
fn from_nchw(mut pack: Kernel, c: &Conv2d) -> Kernel {
    let from = pack.params[0];
    let Buffer { name, dtype, .. } = pack.buffer(from).clone();
    *pack.buffer_mut(from) =
        Buffer { access: Access::Read, ..Buffer::new(name, dtype, &c.weight_shape(), Scope::Global) };
    let mut in_nchw = |e: Expr| match e {
        Expr::Load(buffer, index) if buffer == from => Expr::Load(buffer, place(index)),
        other => other,
    };
    pack.body = map_exprs(pack.body, &mut |e| e.map(&mut in_nchw));
    pack
}

/// What brings weights from the order of NCHW into that of `wanted`: of NHWC, the two taps perhaps left out.
fn reorder(wanted: &Buffer, c: &Conv2d) -> Pack {
    let (from, to) = ((&wanted.name[..], wanted.dtype, &c.weight_shape()[..]), (wanted.dtype, &wanted.shape[..]));
    let loops = [("tap", c.kh * c.kw), ("ci", c.ci)];
    pack_rows(from, to, loops, ("t", THREADS), |b, [from, packed], [tap, ci], co| {
        let taps = [Expr::from(tap).floor_div(c.kw), Expr::from(tap).floor_mod(c.kw)];
        let index = [&taps[..], &[ci.into(), co]].concat();
        let value = Expr::load(from, place(index.clone()));
        b.store(packed, index[4 - wanted.shape.len()..].to_vec(), value);
    })
}
