//! Weights whose reduction is made their fast dimension when they are packed.
//!
//! Tensor cores take elements of 32 and of 8 bits from shared memory along the reduction only.

use super::launch::pack_rows;
use super::requires::weights;
use crate::ir::{DType, Expr, UnOp};
use crate::templates::{Pack, TemplateError};
use crate::workload::{Param, Workload};

/// Threads of a block that packs.
const THREADS: i64 = 128;

/// A shape whose last two dimensions have changed places.
pub(super) fn shape(of: &[i64]) -> Vec<i64> {
    match of {
        [outer @ .., rows, columns] => [outer, &[*columns, *rows]].concat(),
        _ => of.to_vec(),
    }
}

/// Has the last two dimensions of the weights change places, and rounds those of 32 bits to tf32: tensor cores would cut off.
/// The kernel takes them in `dimensions` dimensions: the taps of a pointwise convolution may be left out.
pub(super) fn pack(w: &Workload, dimensions: usize) -> Result<Pack, TemplateError> {
    let Param { name, dtype, shape: original, .. } = weights(w)?;
    let to = shape(&original);
    let left_out = to.len() - dimensions;
    let (outer, rows) = (&to[..to.len() - 1], to[..to.len() - 1].iter().product::<i64>());
    let (from, to) = ((name, dtype, &original[..]), (dtype, &to[left_out..]));
    Ok(pack_rows(from, to, [("row", rows)], ("t", THREADS), |b, [from, packed], [row], k| {
        let mut rest = Expr::from(row);
        let mut index: Vec<Expr> = vec![];
        for n in outer.iter().rev() {
            index.insert(0, rest.clone().floor_mod(*n));
            rest = rest.floor_div(*n);
        }
        let (before, own) = index.split_at(index.len() - 1);
        let source = [before, std::slice::from_ref(&k), own].concat();
        let value = match Expr::load(from, source) {
            value if dtype == DType::F32 => Expr::un(UnOp::Tf32, value),
            value => value,
        };
        b.store(packed, [&index[left_out..], &[k]].concat(), value);
    }))
}
