//! What a launch does before it has waited for the launches in front of it.
//!
//! A launch that holds a [`Gpu::DependencyWait`] may be started while those in front of it still run. What it reads before
//! the wait must not be something that they write; what it writes before, they may still read. So this is the whole
//! condition under which such a launch may begin early, and it can be read off the kernel:
//!
//! * before the wait it writes nothing that other launches see;
//! * what it reads before the wait is known, so that whoever starts it can see that nobody in front writes that;
//! * all its threads reach the wait, so that "this launch has ended" still means "all before it have ended".

use crate::ir::{BufferId, For, Gpu, Kernel, LoopKind, Scope, Stmt};
use std::collections::BTreeSet;
use std::fmt;

/// Why a launch may not begin early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DependencyFault {
    /// Not every thread comes to the wait: it is below a condition or a loop, or stands there twice.
    NotByAll,
    /// The next launch is let go before the wait: it would begin while those in front of this one still run, of which whoever
    /// starts it looks at this one only.
    LetGoEarly,
    /// Memory that other launches see is written, or workspace is read, before the wait.
    TooEarly {
        /// The buffer.
        buffer: String,
        /// Whether it is written.
        written: bool,
    },
}

impl fmt::Display for DependencyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DependencyFault::NotByAll => f.write_str(
                "not all threads wait once for the launches in front: put one `dependency wait` directly below the \
                 loops over the hardware's indices",
            ),
            DependencyFault::LetGoEarly => f.write_str(
                "it lets the next launch begin before it has waited for those in front of it; move the `dependency launch` \
                 behind the `dependency wait`",
            ),
            DependencyFault::TooEarly { buffer, written } => {
                let (does, whom) = if *written { ("writes", "read it") } else { ("reads", "write it") };
                write!(
                    f,
                    "it {does} `{buffer}` before it has waited for the launches in front, which may still {whom}; move \
                     the `dependency wait` up"
                )
            }
        }
    }
}

impl std::error::Error for DependencyFault {}

/// Whether a loop is over an index of the hardware, so that its body is run by all blocks and threads that there are.
pub(crate) fn is_hardware(l: &For) -> bool {
    matches!(l.kind, LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_))
}

/// Buffers that every launch sees, among those that a statement touches: read, and written.
pub(crate) fn shared_with_others(kernel: &Kernel, s: &Stmt) -> [BTreeSet<BufferId>; 2] {
    let mut touched = [BTreeSet::new(), BTreeSet::new()];
    s.walk(&mut |s| {
        // A hint takes nothing of what it names; its indices may.
        let hint = matches!(s, Stmt::Gpu(Gpu::Prefetch { .. }));
        s.accesses(&mut |a| {
            if hint && a.extents.is_some() {
                return;
            }
            if kernel.buffer(a.buffer).scope == Scope::Global {
                touched[usize::from(a.writes)].insert(a.buffer);
            }
        });
    });
    touched
}

/// Parameters, by their position, that a launch reads before its `dependency wait`; none if it does not wait.
///
/// # Errors
/// Why it may not be started before the launches in front of it have ended.
pub fn read_early(kernel: &Kernel, launch: &Stmt) -> Result<Option<Vec<usize>>, DependencyFault> {
    let wait = Stmt::Gpu(Gpu::DependencyWait);
    let mut waits = 0;
    launch.walk(&mut |s| waits += usize::from(*s == wait));
    if waits == 0 {
        return Ok(None);
    }
    let mut read = BTreeSet::new();
    let mut list = std::slice::from_ref(launch);
    loop {
        let here = list.iter().position(|s| {
            let mut found = false;
            s.walk(&mut |s| found |= *s == wait);
            found
        });
        let here = here.ok_or(DependencyFault::NotByAll)?;
        for s in &list[..here] {
            let mut let_go = false;
            s.walk(&mut |s| let_go |= *s == Stmt::Gpu(Gpu::DependencyLaunch));
            if let_go {
                return Err(DependencyFault::LetGoEarly);
            }
            let [reads, writes] = shared_with_others(kernel, s);
            if let Some(b) = writes.first() {
                return Err(DependencyFault::TooEarly { buffer: kernel.buffer(*b).name.clone(), written: true });
            }
            read.extend(reads);
        }
        match &list[here] {
            s if *s == wait => break,
            Stmt::For(l) if is_hardware(l) => list = &l.body,
            _ => return Err(DependencyFault::NotByAll),
        }
    }
    if waits > 1 {
        return Err(DependencyFault::NotByAll);
    }
    let position = |b: BufferId| {
        let fault = || DependencyFault::TooEarly { buffer: kernel.buffer(b).name.clone(), written: false };
        kernel.params.iter().position(|p| *p == b).ok_or_else(fault)
    };
    Ok(Some(read.into_iter().map(position).collect::<Result<_, _>>()?))
}
