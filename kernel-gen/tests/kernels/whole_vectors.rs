//! Tails that no vector divides keep vectors whole: no template's default for a CPU sums lane by lane what a guard keeps
//! off.
//!
//! Such a kernel is right and an order of magnitude slower than its cost says, so only its code shows it. CI takes a
//! sample; `KERNEL_GEN_WORKLOADS` (of each operator) and `KERNEL_GEN_SEED` draw more.

use crate::sweep::{for_each, number};
use kernel_gen::ir::{Kernel, LoopKind, Stmt, VarId};
use kernel_gen::lower::lower_for;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Matmul, Workload, operator_names};
use std::sync::Mutex;

/// Sums that a guard keeps off some lanes of a vector, so that each lane has a test and an instruction of its own.
fn lanes_apart(kernel: &Kernel) -> Vec<String> {
    fn sums(block: &[Stmt]) -> bool {
        let mut any = false;
        block.iter().for_each(|s| s.walk(&mut |s| any |= matches!(s, Stmt::Reduce { .. })));
        any
    }
    fn guards(block: &[Stmt], lanes: &[VarId], of: &Kernel, out: &mut Vec<String>) {
        for s in block {
            match s {
                Stmt::For(l) if l.kind == LoopKind::Vectorized => {
                    guards(&l.body, &[lanes, &[l.var]].concat(), of, out);
                }
                Stmt::For(l) => guards(&l.body, lanes, of, out),
                Stmt::If { cond, then, otherwise } => {
                    if lanes.iter().any(|v| cond.mentions(*v)) && (sums(then) || sums(otherwise)) {
                        let name = |v: &VarId| of.var(*v).name.clone();
                        out.push(format!("a guard of {}", lanes.iter().map(name).collect::<Vec<_>>().join(", ")));
                    }
                    guards(then, lanes, of, out);
                    guards(otherwise, lanes, of, out);
                }
                _ => {}
            }
        }
    }
    let mut out = vec![];
    guards(&kernel.body, &[], kernel, &mut out);
    out
}

/// Products and convolutions of which no extent is a multiple of a vector, and some of which one is.
fn ragged() -> Vec<Workload> {
    let mut all = vec![];
    for (m, n, k) in
        [(196, 196, 48), (197, 197, 64), (77, 77, 64), (196, 200, 48), (784, 196, 48), (49, 50257, 64), (5, 13, 7)]
    {
        for (batch, trans_b) in [(1, false), (4, false), (1, true)] {
            all.push(Workload::f32(Matmul { batch, trans_b, ..Matmul::new(m, n, k) }));
        }
    }
    for (ci, side, co) in [(21, 13, 37), (64, 14, 197), (3, 55, 50), (130, 7, 131)] {
        for (taps, pad) in [(1, 0), (3, 1)] {
            let c = Conv2d::nchw(1, ci, side, side, co, taps, 1, pad);
            all.extend([ConvLayout::Nchw, ConvLayout::Nhwc].map(|layout| Workload::f32(Conv2d { layout, ..c })));
        }
    }
    all
}

#[test]
fn no_default_sums_lane_by_lane() {
    let (count, seed) = (number("KERNEL_GEN_WORKLOADS", 1), number("KERNEL_GEN_SEED", 1));
    let targets: Vec<&Target> = Target::all().iter().filter(|t| t.cpu().is_some()).collect();
    let names: Vec<&str> = operator_names().collect();
    let mut all = ragged();
    for i in 0..names.len() * count as usize {
        let mut rng = Rng::new(seed.wrapping_mul(1 << 32).wrapping_add(i as u64));
        all.push(sample::of_network_size(names[i % names.len()], &mut rng));
    }
    let (registry, found, checked) = (Registry::builtin(), Mutex::new(vec![]), Mutex::new(0));
    // A workload on every other target, the next one on the others.
    let pairs: Vec<(usize, usize)> = (0..all.len())
        .flat_map(|i| (0..targets.len()).filter(move |j| (i + j) % 2 == 0).map(move |j| (i, j)))
        .collect();
    for_each(pairs.len(), |at| {
        let (workload, target) = (&all[pairs[at].0], targets[pairs[at].1]);
        for template in registry.applicable(workload, target) {
            let Ok(config) = template.default_config(workload, target) else { continue };
            let Ok(scheduled) = template.schedule(workload, target, &config) else { continue };
            let Ok(lowered) = lower_for(scheduled.schedule.kernel, target) else { continue };
            let trace = lowered.trace();
            let at = trace.iter().position(|s| s.pass == "vectorize").expect("the pass runs");
            *checked.lock().unwrap() += 1;
            if let Some(what) = lanes_apart(&trace[at - 1].kernel).first() {
                let name = template.name();
                found.lock().unwrap().push(format!("{} {} {name} {config}: {what}", workload.key(), target.name));
            }
        }
    });
    let (found, checked) = (found.into_inner().unwrap(), checked.into_inner().unwrap());
    println!("{checked} defaults of {} workloads of seed {seed}", all.len());
    // Nearly each of them has a template that is no plain one.
    assert!(checked >= 2 * pairs.len() / 3, "{checked} of {}", pairs.len());
    assert!(found.is_empty(), "{} of {checked} sum lane by lane:\n{}", found.len(), found.join("\n"));
}
