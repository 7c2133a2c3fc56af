//! Threads that meet in more ways than at barriers of the block: launches with statements that only a GPU has.
//!
//! No rule proves a protocol of mbarriers, so it is run: the threads of a block go through their statements with all
//! loops, without any data, as the interpreter does, and [`crate::analysis::order`] says what is ordered before what.
//! To stay fast at the sizes that kernels are made for,
//!
//! * a warp is one actor: what one of its threads knows, all know. Races within a warp are left to the interpreter;
//! * memory is looked at in the largest pieces that no tile cuts ([`units`]), and loops that touch nothing that
//!   threads share are passed by; an index that memory decides about is left to the interpreter;
//! * what does not depend on the thread is found out once, and what one thread of a warp has read and nothing has
//!   written since, the others need not read again ([`plan`]);
//! * of the clusters that do the same ([`kinds`]) one is run. Clusters meet on global memory only, which the rule on
//!   races of blocks covers for all of them;
//! * a cluster is stopped after [`run::STEPS`] statements, by when a ring has turned thousands of times, and no cluster is begun
//!   after [`ALL_STEPS`] of the launch. What was left out is said in [`Depth`](super::Depth).

mod effects;
mod kinds;
mod launch;
mod layout;
mod machine;
mod pieces;
mod plan;
mod run;
#[cfg(test)]
mod tests;

use super::access::is_hardware;
use super::depth::LaunchDepth;
use super::fault::Fault;
use crate::ir::{Kernel, LoopKind, Stmt};
use launch::Launch;
use machine::End;
use plan::Detail;

/// Statements of a launch after which no further cluster is run. Two clusters are.
const ALL_STEPS: u64 = 6_000_000;

/// Whether a launch has what only a GPU has.
pub(super) fn applies(launch: &Stmt) -> bool {
    let mut found = false;
    launch.walk(&mut |s| {
        found |= match s {
            Stmt::Gpu(_) => true,
            Stmt::For(l) => {
                matches!(l.kind, LoopKind::Cluster(_) | LoopKind::FragmentRow | LoopKind::FragmentCol)
            }
            _ => false,
        }
    });
    found
}

/// Checks the rules under "Protocols"; says how deep it looked at each launch.
pub(super) fn check(kernel: &Kernel, faults: &mut Vec<Fault>) -> Vec<LaunchDepth> {
    let mut depth = vec![];
    walk(kernel, &kernel.body, faults, &mut depth);
    depth
}

fn walk(kernel: &Kernel, block: &[Stmt], faults: &mut Vec<Fault>, depth: &mut Vec<LaunchDepth>) {
    for s in block {
        match s {
            Stmt::For(l) if is_hardware(l.kind) && applies(s) => {
                let launch = Launch::new(kernel, s, Detail::Full);
                let (fault, of_launch) = of_clusters(kernel, &launch, &mut 0);
                faults.extend(fault);
                depth.push(LaunchDepth { name: kernel.var(l.var).name.clone(), ..of_launch });
            }
            Stmt::For(l) => walk(kernel, &l.body, faults, depth),
            Stmt::If { then, otherwise, .. } => {
                walk(kernel, then, faults, depth);
                walk(kernel, otherwise, faults, depth);
            }
            _ => {}
        }
    }
}

/// The first fault of the clusters that are run, and which those are; adds their statements to `steps`.
fn of_clusters(kernel: &Kernel, launch: &Launch<'_>, steps: &mut u64) -> (Option<Fault>, LaunchDepth) {
    let mut depth = LaunchDepth::default();
    if launch.threads == 0 || launch.grid.contains(&0) {
        return (None, depth);
    }
    let kinds = kinds::of(kernel, launch);
    depth.clusters = launch.grid.iter().fold(1, |n: u64, extent| n.saturating_mul(*extent as u64));
    depth.kinds = kinds.count;
    let before = *steps;
    for cluster in kinds.clusters {
        if depth.run >= 2 && *steps - before > ALL_STEPS {
            break;
        }
        depth.run += 1;
        match run::run(kernel, launch, cluster, steps) {
            End::All => {}
            End::Stopped => {
                depth.stopped += 1;
                depth.statements = run::STEPS;
            }
            End::Fault(fault) => return (Some(*fault), depth),
        }
    }
    (None, depth)
}
