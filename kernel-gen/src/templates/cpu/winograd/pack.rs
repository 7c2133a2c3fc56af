//! The weights, transformed once: `w[co_t, k, ci, co] = (G g G^T)[k]`.

use super::kernel::Cut;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, DType, Expr, Kernel, LoopKind};
use crate::templates::winograd::filter::Filter;
use crate::templates::winograd::transform::{Temporaries, apply, registers};
use crate::workload::{ConvLayout, Role, Workload};

/// The kernel that transforms the weights; zeros stand for channels beyond the last.
pub(super) fn pack(workload: &Workload, cut: &Cut, filters: &[Filter; 2]) -> Option<Kernel> {
    let param = workload.params().into_iter().find(|p| p.role == Role::Weight)?;
    let mut b = KernelBuilder::new(format!("{}_pack_{}", workload.kernel_name(), param.name));
    let from = b.param(param.name, DType::F32, &param.shape, Access::Read);
    let to = b.param(&format!("{}_packed", param.name), DType::F32, &cut.packed_shape(), Access::Write);
    let (c, [t_h, t_w], lanes, vectors) = (cut.conv, cut.t, cut.sizes.lanes, cut.sizes.vectors);
    let [rows_by, columns_by] = filters;
    b.loop_("co_t", cut.co_tiles, LoopKind::Parallel, |b, co_t| {
        b.nest(&[("ci", cut.ci_blocks * lanes), ("vector", vectors)], |b, v| {
            let (ci, vector) = (v[0], v[1]);
            let half = registers(b, "half", t_h * c.kw, lanes);
            let read = registers(b, "tap", c.kh * c.kw, lanes);
            let partial = registers(b, "partial", Temporaries::wanted(t_h.max(t_w)), lanes);
            b.loop_("co", lanes, LoopKind::Vectorized, |b, lane| {
                let mut temp = Temporaries::new(partial, lane);
                let mut taps = Temporaries::new(read, lane);
                let mut half = Temporaries::new(half, lane);
                let co = co_t * cut.co_tile + vector * lanes + lane;
                let inside = [
                    (cut.co_tiles * cut.co_tile > c.co).then(|| co.clone().lt(c.co)),
                    (cut.ci_blocks * lanes > c.ci).then(|| Expr::from(ci).lt(c.ci)),
                ];
                let inside = Expr::all(inside.into_iter().flatten());
                let mut tap = |b: &mut KernelBuilder, kh: i64, kw: i64| {
                    let (kh, kw) = (Expr::Int(kh), Expr::Int(kw));
                    let at = match c.layout {
                        ConvLayout::Nchw | ConvLayout::NchwC(_) => vec![co.clone(), ci.into(), kh, kw],
                        ConvLayout::Nhwc | ConvLayout::Hwcn | ConvLayout::NhwcNc(_) => {
                            vec![kh, kw, ci.into(), co.clone()]
                        }
                    };
                    let value = Expr::load(from, at);
                    let value = match &inside {
                        Some(inside) => inside.clone().select(value, Expr::f32(0.0)),
                        None => value,
                    };
                    taps.keep(b, value)
                };
                // G g, a column at a time; then (G g) G^T, a row at a time.
                let mut columns: Vec<Vec<Expr>> = vec![];
                for kw in 0..c.kw {
                    temp.clear();
                    let column: Vec<Expr> = (0..c.kh).map(|kh| tap(b, kh, kw)).collect();
                    let column = apply(b, &mut temp, &rows_by.weight, &column);
                    columns.push(column.into_iter().map(|e| half.keep(b, e)).collect());
                }
                for i in 0..t_h {
                    temp.clear();
                    let row: Vec<Expr> = columns.iter().map(|c| c[i as usize].clone()).collect();
                    let row = apply(b, &mut temp, &columns_by.weight, &row);
                    for (j, value) in row.into_iter().enumerate() {
                        let k = Expr::Int(i * t_w + j as i64);
                        b.store(to, [co_t.into(), k, ci.into(), vector * lanes + lane], value);
                    }
                }
            });
        });
    });
    Some(b.finish())
}
