//! The weights, in the order in which register tiles read them: `w[group, phase, tile, ci, taps.., channel]`.

use super::cut::Cut;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, DType, Expr, LoopKind};
use crate::templates::Pack;
use crate::templates::phases::Form;
use crate::templates::planes::{DIMENSIONS, Planes};
use crate::workload::{Role, Workload};

/// The kernel that packs the weights; zeros stand where a phase has no tap, and for channels beyond the last.
pub(super) fn pack(workload: &Workload, cut: &Cut) -> Option<Pack> {
    let param = workload.params().into_iter().find(|p| p.role == Role::Weight)?;
    let Planes { ci, co, rank, .. } = cut.planes;
    let shape @ [groups, phases, tiles, _, deep, down, along, mr] = cut.packed_shape();
    let mut b = KernelBuilder::new(format!("{}_pack_{}", workload.kernel_name(), param.name));
    let from = b.param(param.name, param.dtype, &param.shape, Access::Read);
    let to = b.param(&format!("{}_packed", param.name), DType::F32, &shape, Access::Write);
    b.loop_("tile", groups * phases * tiles, LoopKind::Parallel, |b, task| {
        let task = Expr::from(task);
        let tile = b.let_("channel_tile", task.clone().floor_mod(tiles));
        let phase = b.let_("phase", task.clone().floor_div(tiles).floor_mod(phases));
        let group = b.let_("group", task.floor_div(tiles * phases));
        let [_, middle, inner] = cut.steps.map(|s| s.of.phases());
        let place = Expr::from(phase);
        let rest = place.clone().floor_div(inner);
        let of = [rest.clone().floor_div(middle), rest.floor_mod(middle), place.floor_mod(inner)];
        b.nest(&[("ci", ci), ("kd", deep), ("kh", down), ("kw", along), ("co", mr)], |b, v| {
            let channel = Expr::from(b.let_("channel", tile * mr + v[4]));
            let mut exists = vec![channel.clone().lt(co)];
            let mut taps = vec![];
            for (i, steps) in cut.steps.iter().enumerate() {
                let class = steps.class(&of[i]);
                let tap = class.first + Expr::from(v[1 + i]) * steps.of.tap_stride();
                if steps.of.has_fewer() {
                    exists.push(Expr::from(v[1 + i]).lt(class.count));
                    exists.push(tap.clone().lt(steps.of.taps));
                }
                taps.push(tap);
            }
            let first = match cut.steps[DIMENSIONS - 1].of.form {
                Form::Convolution => [group * co + channel, v[0].into()],
                _ => [group * ci + v[0], channel],
            };
            let index = first.into_iter().chain(taps.into_iter().skip(DIMENSIONS - rank)).collect();
            let value = Expr::load(from, index);
            let value = Expr::all(exists).map_or(Expr::f32(0.0), |all| all.select(value, Expr::f32(0.0)));
            let at = [group, phase, tile].into_iter().chain(v.iter().copied()).map(Expr::from).collect::<Vec<_>>();
            b.store(to, at, value);
        });
    });
    Some(Pack { param: param.name.into(), kernel: b.finish() })
}
