//! The text form of [`super::gpu`].

use super::print::{expr, tile};
use super::{Gpu, Kernel, MbarrierOp, Operand, Slot};

/// One line, without its end.
pub(super) fn statement(k: &Kernel, g: &Gpu) -> String {
    match g {
        Gpu::Fill { dst, value } => format!("fill {} = {}", tile(k, dst), expr(k, value)),
        Gpu::Move { dst, src } => format!("move {} = {}", tile(k, dst), tile(k, src)),
        Gpu::MoveRows { dst, src } => format!("move_rows {} = {}", tile(k, dst), tile(k, src)),
        Gpu::Split { dst, src } => format!("split {} = {}", tile(k, dst), operand(k, src)),
        Gpu::Mma { unit, acc, a, b } => {
            format!("mma.{} {} += {} * {}", unit.name(), tile(k, acc), operand(k, a), operand(k, b))
        }
        Gpu::CopyAsync { dst, src, guard } => {
            let guard = guard.as_ref().map_or(String::new(), |g| format!(" if {}", expr(k, g)));
            format!("copy_async {} = {}{guard}", tile(k, dst), tile(k, src))
        }
        Gpu::Commit(group) => format!("commit {}", group.name()),
        Gpu::Wait(group, pending) => format!("wait {} {pending}", group.name()),
        Gpu::TensorLoad { dst, src, steps, on, multicast } => {
            let steps = if steps.is_empty() { String::new() } else { format!(" step {steps:?}") };
            let multicast = multicast.as_ref().map_or(String::new(), |m| format!(" multicast {}", expr(k, m)));
            format!("tensor_load {} = {}{steps} on {}{multicast}", tile(k, dst), tile(k, src), slot(k, on))
        }
        Gpu::TensorStore { dst, src } => format!("tensor_store {} = {}", tile(k, dst), tile(k, src)),
        Gpu::StoreAt { dst, values, rank, on } => {
            let values = values.iter().map(|v| expr(k, v)).collect::<Vec<String>>().join(", ");
            format!("store_at {} = {values} rank {} on {}", tile(k, dst), expr(k, rank), slot(k, on))
        }
        Gpu::Mbarrier(on, op) => {
            let on = slot(k, on);
            match op {
                MbarrierOp::Init(count) => format!("mbarrier init {on} count {count}"),
                MbarrierOp::Arrive(None) => format!("mbarrier arrive {on}"),
                MbarrierOp::Arrive(Some(rank)) => format!("mbarrier arrive {on} rank {}", expr(k, rank)),
                MbarrierOp::Expect(bytes) => format!("mbarrier expect {on} bytes {bytes}"),
                MbarrierOp::Wait(parity) => format!("mbarrier wait {on} parity {}", expr(k, parity)),
            }
        }
        Gpu::FenceAsync => "fence async".into(),
        Gpu::NamedBarrier { id, threads } => format!("barrier named {id} threads {threads}"),
        Gpu::ClusterBarrier => "barrier cluster".into(),
        Gpu::SetMaxRegisters(n) => format!("set_max_registers {n}"),
        Gpu::DependencyWait => "dependency wait".into(),
        Gpu::DependencyLaunch => "dependency launch".into(),
    }
}

fn operand(k: &Kernel, o: &Operand) -> String {
    format!("{}{}", tile(k, &o.tile), if o.transposed { " transposed" } else { "" })
}

fn slot(k: &Kernel, s: &Slot) -> String {
    format!("{}[{}]", k.buffer(s.buffer).name, expr(k, &s.index))
}
