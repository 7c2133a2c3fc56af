//! Private arrays as single variables.
//!
//! An array of which every index is a constant lives in registers either way, but the compiler has to find that out: the
//! passes of LLVM before it does look at each of thousands of statements as an access of memory that may be the same as
//! any other. A variable for each element gives the same machine code in a fourth to three quarters of the time. An
//! element that nothing reads, such as the last ones of a wide load, gets none, and is not stored.

use super::counters::Counter;
use crate::analysis::range::Ranges;
use crate::analysis::simplify::simplify;
use crate::emit::clike::lanes::lane_of_expr;
use crate::emit::clike::names::Names;
use crate::ir::{BufferId, Expr, Kernel, Stmt};
use std::collections::{BTreeMap, BTreeSet};

/// The names of a buffer's elements; none for those that nothing reads.
pub(super) type Elements = Vec<Option<String>>;

/// What is known of a private buffer.
#[derive(Default)]
struct Use {
    /// Whether an index is computed at run time, or the buffer is used as a whole.
    whole: bool,
    read: BTreeSet<i64>,
}

/// The private buffers of a launch that become variables.
pub(super) fn of(
    kernel: &Kernel,
    launch: &Stmt,
    counters: &BTreeMap<BufferId, Counter>,
    names: &mut Names,
) -> BTreeMap<BufferId, Elements> {
    let mut uses: BTreeMap<BufferId, Use> = BTreeMap::new();
    launch.walk(&mut |s| {
        if let Stmt::Alloc(b) = s
            && kernel.buffer(*b).scope.is_private()
        {
            uses.entry(*b).or_default();
        }
        s.accesses(&mut |a| match a.extents {
            Some(extents) if extents.iter().any(|n| *n != 1) => uses.entry(a.buffer).or_default().whole = true,
            _ => note(kernel, &mut uses, a.buffer, a.index, !a.writes),
        });
    });
    let split =
        |(b, used): &(BufferId, Use)| kernel.buffer(*b).scope.is_private() && !used.whole && !counters.contains_key(b);
    uses.into_iter()
        .filter(split)
        .map(|(b, used)| {
            let name = names.buffer(b).to_string();
            let count = kernel.buffer(b).extent_elements().max(1);
            let element = |i: i64| match count {
                _ if !used.read.contains(&i) => None,
                1 => Some(name.clone()),
                _ => Some(names.fresh(&format!("{name}_{i}"))),
            };
            (b, (0..count).map(element).collect())
        })
        .collect()
}

/// Notes the elements that an access touches.
fn note(kernel: &Kernel, uses: &mut BTreeMap<BufferId, Use>, b: BufferId, indices: &[Expr], read: bool) {
    if !kernel.buffer(b).scope.is_private() {
        return;
    }
    let used = uses.entry(b).or_default();
    let lanes = indices.iter().map(|e| e.ty(kernel).lanes).max().unwrap_or(1);
    for lane in 0..i64::from(lanes) {
        match place(kernel, b, indices, lane) {
            Some(at) if read => drop(used.read.insert(at)),
            Some(_) => {}
            None => used.whole = true,
        }
    }
}

/// The place of an element from the start of its buffer, if it is the same in every execution.
fn place(kernel: &Kernel, b: BufferId, indices: &[Expr], lane: i64) -> Option<i64> {
    let nothing = Ranges::new();
    let count = kernel.buffer(b).extent_elements().max(1);
    let at = indices.iter().zip(&kernel.buffer(b).strides).try_fold(0i64, |at, (e, stride)| {
        let i = simplify(&lane_of_expr(e, &Expr::Int(lane)), &nothing).as_int()?;
        at.checked_add(i.checked_mul(*stride)?)
    })?;
    (0..count).contains(&at).then_some(at)
}
