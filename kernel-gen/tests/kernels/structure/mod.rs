//! What a lowered kernel of CUDA does, told from its statements and not from its text.

use crate::checked;
use kernel_gen::ir::{Expr, Gpu, Kernel, LoopKind, Stmt};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::workload::Workload;
use std::collections::BTreeSet;

/// The lowered kernel of a config.
pub(crate) fn lowered(template: &dyn Template, workload: &Workload, target: &str, config: &str) -> Kernel {
    let target = Target::find(target).expect("a built-in target");
    let space = template.space(workload, target).expect("it applies");
    let config =
        Config::parse(config).and_then(|config| space.normalise(&config)).unwrap_or_else(|e| panic!("{config}: {e}"));
    let scheduled = template.schedule(workload, target, &config).expect("it is in the space");
    checked::lowered(scheduled.schedule.kernel, target).1.kernel().clone()
}

/// The buffers that are read and written as vectors: `load a x4`, `store b x2`, each once.
pub(crate) fn vectors(kernel: &Kernel) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let lanes = |indices: &[Expr]| {
        indices.iter().find_map(|i| if let Expr::Ramp { stride: 1, lanes, .. } = i { Some(*lanes) } else { None })
    };
    for s in &kernel.body {
        s.walk(&mut |s| {
            if let Stmt::Store { buffer, indices, .. } | Stmt::Reduce { buffer, indices, .. } = s
                && let Some(lanes) = lanes(indices)
            {
                found.insert(format!("store {} x{lanes}", kernel.buffer(*buffer).name));
            }
        });
        s.exprs(&mut |e| {
            e.walk(&mut |e| {
                if let Expr::Load(buffer, indices) = e
                    && let Some(lanes) = lanes(indices)
                {
                    found.insert(format!("load {} x{lanes}", kernel.buffer(*buffer).name));
                }
            });
        });
    }
    found
}

/// What touches memory and what computes, in the order of the kernel: copies, waits, barriers, products, sums and stores to
/// outputs, and the serial loops around them. What is the same as the one before is said once.
pub(crate) fn order(kernel: &Kernel) -> Vec<String> {
    let mut found = vec![];
    events(kernel, &kernel.body, &mut found);
    found.dedup_by(|a, b| a == b && *a != "loop" && *a != "end");
    found
}

fn events(kernel: &Kernel, block: &[Stmt], found: &mut Vec<String>) {
    let name = |buffer| &kernel.buffer(buffer).name;
    for s in block {
        match s {
            Stmt::For(l) => {
                let mut inside = vec![];
                events(kernel, &l.body, &mut inside);
                let serial = matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) && !inside.is_empty();
                found.extend(serial.then(|| "loop".into()));
                found.append(&mut inside);
                found.extend(serial.then(|| "end".into()));
            }
            Stmt::If { then, otherwise, .. } => {
                events(kernel, then, found);
                events(kernel, otherwise, found);
            }
            Stmt::Store { buffer, .. } if kernel.params.contains(buffer) => {
                found.push(format!("store {}", name(*buffer)))
            }
            Stmt::Reduce { buffer, .. } => found.push(format!("sum {}", name(*buffer))),
            Stmt::Barrier(_) => found.push("barrier".into()),
            Stmt::Gpu(Gpu::CopyAsync { dst, .. }) => found.push(format!("copy {}", name(dst.buffer))),
            Stmt::Gpu(Gpu::MoveRows { dst, .. }) => found.push(format!("rows {}", name(dst.buffer))),
            Stmt::Gpu(Gpu::Commit(_)) => found.push("commit".into()),
            Stmt::Gpu(Gpu::Wait(_, pending)) => found.push(format!("wait {pending}")),
            Stmt::Gpu(Gpu::Mma { acc, .. }) => found.push(format!("mma {}", name(acc.buffer))),
            Stmt::Gpu(Gpu::DependencyWait) => found.push("dependency wait".into()),
            _ => {}
        }
    }
}
