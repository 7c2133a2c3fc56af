//! Weights packed for kernels that are built loop by loop: `w[co / tile][ci][kh][kw][tile]`.

use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, DType, Expr, Kernel, LoopKind};
use crate::workload::{Conv2d, Workload};

/// Shape of the packed weights with tiles of so many output channels.
pub(super) fn shape(c: &Conv2d, tile: i64) -> [i64; 5] {
    [c.co.div_euclid(tile) + i64::from(c.co % tile > 0), c.ci, c.kh, c.kw, tile]
}

/// The kernel that packs NCHW's weights `[co][ci][kh][kw]`; zeros stand for channels beyond the last.
pub(super) fn pack(workload: &Workload, c: &Conv2d, tile: i64) -> Kernel {
    let shape = shape(c, tile);
    let mut b = KernelBuilder::new(format!("{}_pack_w", workload.kernel_name()));
    let from = b.param("w", DType::F32, &[c.co, c.ci, c.kh, c.kw], Access::Read);
    let to = b.param("w_packed", DType::F32, &shape, Access::Write);
    b.loop_("co_t", shape[0], LoopKind::Parallel, |b, co_t| {
        b.nest(&[("ci", c.ci), ("kh", c.kh), ("kw", c.kw), ("co", tile)], |b, v| {
            let channel = co_t * tile + v[3];
            let value = Expr::load(from, vec![channel.clone(), v[0].into(), v[1].into(), v[2].into()]);
            let value = match c.co % tile {
                0 => value,
                _ => channel.lt(c.co).select(value, Expr::f32(0.0)),
            };
            b.store(to, vec![co_t.into(), v[0].into(), v[1].into(), v[2].into(), v[3].into()], value);
        });
    });
    b.finish()
}
