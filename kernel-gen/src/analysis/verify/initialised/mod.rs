//! Nothing is read before it is written: for each read of a buffer that nobody gives, every element that it can touch has
//! been written before, whatever the loop values are.
//!
//! Three ways to show it. **By a write** ([`reach`]): a write that stands before the read, in the same iteration of the loops
//! that both are in, reaches the element that is read, because its own loops can be solved for the index that the read has,
//! and its conditions follow from those of the read. Most buffers are read as they are written, so this says nearly all, at
//! any size. **By all writes**: a workspace of which the statements before have written every element. **By walking**
//! ([`walk`]): what is left (rings, peeled loops, conditions that only some iterations pass) is
//! run, with loops and conditions but without data, on one bit an element. What can be shown in no way is a fault; of a walk
//! that is longer than is run, [`Depth`] says how far it went.
//!
//! Threads of a block go through each statement together, which is one of the orders that barriers allow: the rule on races
//! says that all of them are alike. Shared memory and fragments of launches that meet in more ways than at barriers are the
//! affair of [`super::protocol`].

mod launches;
mod walk;

use super::access::{Pseudo, Site, Touch};
use super::depth::{Depth, ReadDepth};
use super::fault::{Fault, FaultKind, MOST_FAULTS};
use super::{coverage, reach};
use crate::ir::{Access, BufferId, Kernel, Scope, VarId};
use launches::{Launches, Touching, starts_late};
use std::collections::BTreeMap;

/// Checks the rule on reads under "Values".
pub(super) fn check(kernel: &Kernel, sites: &[Site], depth: &mut Depth, faults: &mut Vec<Fault>) {
    let launches = Launches::of(kernel);
    for (i, b) in kernel.buffers.iter().enumerate() {
        let id = BufferId(i as u32);
        let given = kernel.is_param(id) && b.access != Access::Write;
        if given || b.scope == Scope::Mbarrier || faults.len() > MOST_FAULTS {
            continue;
        }
        let own: Vec<&Site> = sites.iter().filter(|s| s.buffer == id).collect();
        if own.iter().any(|s| reads(s)) && !launches.run_apart(b.scope, &own) {
            let own: Vec<Touching> = own.into_iter().map(|s| launches.touching(kernel, s)).collect();
            faults.extend(buffer(kernel, id, &own, &launches, depth));
        }
    }
}

/// Whether an access may read what it does not write first.
fn reads(site: &Site) -> bool {
    site.touch.reads() || starts_late(site)
}

fn buffer(kernel: &Kernel, id: BufferId, own: &[Touching], launches: &Launches, depth: &mut Depth) -> Option<Fault> {
    let b = kernel.buffer(id);
    let fresh = Pseudo::new(kernel).free(b.shape.len());
    let usable = |t: &Touching| matches!(t.site.touch, Touch::Write | Touch::Start) && !starts_late(t.site);
    let shown = |(at, read): (usize, &Touching)| {
        own[..at].iter().rev().filter(|t| usable(t)).any(|write| {
            let (fixed, held) = launches.fixed(write, read, b.scope);
            reach::reaches(&write.side, &read.side, &fixed, held, fresh)
        })
    };
    // What statements at the top have written they have written before the next.
    let mut whole: BTreeMap<VarId, bool> = BTreeMap::new();
    let mut written = |(at, read): (usize, &Touching)| {
        let Some(outer) = read.site.loops.first() else { return false };
        let before =
            || own[..at].iter().filter(|t| usable(t) && t.site.loops.first().is_none_or(|l| l.var != outer.var));
        b.scope == Scope::Global
            && *whole
                .entry(outer.var)
                .or_insert_with(|| coverage::is_whole(kernel, &before().map(|t| t.site).collect::<Vec<_>>(), &b.shape))
    };
    let open: Vec<usize> =
        (0..own.len()).filter(|i| reads(own[*i].site) && !shown((*i, &own[*i])) && !written((*i, &own[*i]))).collect();
    let (at, cause) = match open.first() {
        None => return None,
        Some(first) => match walk::walk(kernel, id, own, &open, launches) {
            walk::Outcome::Written => return None,
            walk::Outcome::Unwritten { at, index, with } => {
                let with = if with.is_empty() { String::new() } else { format!(" with {}", with.join(", ")) };
                (at, format!("{}{index:?} is read, but nothing has written it{with}", b.name))
            }
            walk::Outcome::Stopped { reads } if own[..*first].iter().any(usable) => {
                depth.reads.push(ReadDepth { buffer: b.name.clone(), followed: reads });
                return None;
            }
            walk::Outcome::Unknown | walk::Outcome::Stopped { .. } => {
                let known = own[..*first].iter().any(usable) || own.iter().any(usable);
                let cause = match known {
                    true => format!("what is read of {} cannot be shown to be written before", b.name),
                    false => format!("{} is read, but nothing has written it", b.name),
                };
                (*first, cause)
            }
        },
    };
    let site = own[at].site;
    let help = format!("initialise {} before", b.name);
    Some(Fault::at(kernel, &site.loops, site.stmt, FaultKind::UnwrittenRead, cause, help))
}
