//! Weights whose reduction is made their fast dimension when they are packed.
//!
//! Tensor cores take elements of 32 bits from shared memory along the reduction only.

use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, Axis, Expr, Kernel, LoopKind, UnOp};
use crate::templates::cuda::share;
use crate::templates::cuda::weights;
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

/// Has the last two dimensions of the weights change places, and rounds them to tf32: tensor cores would cut off.
pub(super) fn pack(w: &Workload) -> Result<Pack, TemplateError> {
    let param = weights(w)?;
    Ok(Pack { kernel: kernel(&param), param: param.name.into() })
}

fn kernel(param: &Param) -> Kernel {
    let to = shape(&param.shape);
    let (outer, last) = (&to[..to.len() - 1], to[to.len() - 1]);
    let mut b = KernelBuilder::new(format!("pack_{}", param.name));
    let from = b.param(param.name, param.dtype, &param.shape, Access::Read);
    let packed = b.param("packed", param.dtype, &to, Access::Write);
    b.loop_("row", outer.iter().product::<i64>(), LoopKind::Grid(Axis::X), |b, row| {
        b.loop_("t", THREADS, LoopKind::Thread(Axis::X), |b, thread| {
            let mut rest = Expr::from(row);
            let mut index: Vec<Expr> = vec![];
            for n in outer.iter().rev() {
                index.insert(0, rest.clone().floor_mod(*n));
                rest = rest.floor_div(*n);
            }
            share(b, THREADS, thread.into(), last, |b, k| {
                let (before, own) = index.split_at(index.len() - 1);
                let source = [before, std::slice::from_ref(&k), own].concat();
                let value = Expr::un(UnOp::Tf32, Expr::load(from, source));
                b.store(packed, [&index[..], &[k]].concat(), value);
            });
        });
    });
    b.finish()
}
