//! What templates by schedule share: how loops are cut and bound, and how the threads of a block fetch together.

use super::model::ceil_div;
use crate::ir::visit::find_loop;
use crate::ir::{Axis, BufferId, LoopKind, VarId};
use crate::schedule::{Schedule, ScheduleError, Tail};
use crate::templates::TemplateError;

/// Blocks of a grid along an axis, as the tutorials call it.
pub(super) const BLOCK: fn(Axis) -> LoopKind = LoopKind::Grid;

/// Threads of a block along an axis.
pub(super) const THREAD: fn(Axis) -> LoopKind = LoopKind::Thread;

/// Iterations of a loop.
pub(super) fn extent(s: &Schedule, v: VarId) -> i64 {
    find_loop(&s.kernel.body, v).map_or(0, |l| l.extent)
}

/// Splits a loop by a piece size, guarding what is too much; the inner loop is never longer than the loop itself.
pub(in crate::templates) fn pieces(s: &mut Schedule, v: VarId, size: i64) -> Result<[VarId; 2], TemplateError> {
    let size = size.min(extent(s, v));
    Ok(s.split(v, size, Tail::Guard)?)
}

/// Inlines the padded copy of the input, if there is one: padding is then a condition of the loads. Returns the buffer
/// that holds the input as the sums read it, to be given to `cache_read`.
pub(super) fn inline_padding(s: &mut Schedule) -> Result<BufferId, ScheduleError> {
    match s.stage("pad") {
        Ok(pad) => s.compute_inline(pad).map(|()| pad),
        Err(_) => s.stage("x"),
    }
}

/// Lets the threads of a block copy together, as the tutorials do: the loops of a copy become one, which is cut into as
/// many parts as there are threads along each axis, from the slowest axis to the fastest. A thread copies neighbours.
///
/// Where threads and elements divide so badly that the guards of three uneven cuts hide from the checks that parts are
/// disjoint, the threads walk over the elements together instead, as [`strided_fetch`] has it.
pub(super) fn cooperative_fetch(
    s: &mut Schedule,
    loops: &[VarId],
    threads: &[(Axis, i64)],
) -> Result<(), ScheduleError> {
    let mut cut = s.clone();
    let in_parts = |s: &mut Schedule| -> Result<(), ScheduleError> {
        let mut rest = s.fuse_all(loops)?;
        for (axis, n) in threads {
            let [bound, inside] = s.split_nparts(rest, *n)?;
            s.bind(bound, THREAD(*axis))?;
            rest = inside;
        }
        Ok(())
    };
    match in_parts(&mut cut) {
        Ok(()) => {
            *s = cut;
            Ok(())
        }
        Err(_) => strided_fetch(s, loops, threads),
    }
}

/// Lets the threads of a block copy together: in each round all of them take one element each, neighbouring threads
/// neighbouring elements, so that accesses of a warp fall together.
pub(in crate::templates) fn strided_fetch(
    s: &mut Schedule,
    loops: &[VarId],
    threads: &[(Axis, i64)],
) -> Result<(), ScheduleError> {
    let all = s.fuse_all(loops)?;
    // Of fewer elements than threads, each is one thread's: the fastest axes are used up first.
    let mut left = extent(s, all);
    let mut used: Vec<(Axis, i64)> = threads.to_vec();
    for (_, n) in used.iter_mut().rev() {
        *n = left.min(*n);
        left = ceil_div(left, *n);
    }
    let [_, mut rest] = s.split(all, used.iter().map(|t| t.1).product(), Tail::Guard)?;
    for (axis, n) in used {
        let inner = extent(s, rest) / n;
        let [bound, inside] = s.split(rest, inner, Tail::Perfect)?;
        s.bind(bound, THREAD(axis))?;
        rest = inside;
    }
    Ok(())
}

/// The extent that an axis is cut by: the axis itself, or the next number without a prime factor above 7, so that there
/// are always pieces of a useful size.
pub(super) fn tiled_extent(n: i64) -> i64 {
    let n = n.max(1);
    // Most extents are round numbers themselves, and a search asks for each config that it looks at.
    if [2, 3, 5, 7].into_iter().fold(n, without) == 1 {
        return n;
    }
    // Of each product of odd factors the least multiple by a power of two that is enough. Above it, larger products do not help.
    let powers = |p: i64| std::iter::successors(Some(1), move |q: &i64| (*q < n).then(|| q.saturating_mul(p)));
    let odd = powers(3)
        .flat_map(|a| powers(5).map(move |b| a.saturating_mul(b)).take_while(move |m| *m < n.saturating_mul(5)));
    let odd =
        odd.flat_map(|m| powers(7).map(move |c| m.saturating_mul(c)).take_while(move |m| *m < n.saturating_mul(7)));
    odd.map(|m| m.saturating_mul(ceil_div(n, m).unsigned_abs().next_power_of_two() as i64)).min().unwrap_or(n)
}

/// A number without a prime factor.
fn without(mut n: i64, factor: i64) -> i64 {
    while n % factor == 0 {
        n /= factor;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awkward_extents_are_cut_as_the_next_round_number() {
        assert_eq!([1, 7, 13, 23, 56, 113, 512].map(tiled_extent), [1, 7, 14, 24, 56, 120, 512]);
        let smooth = |n: i64| {
            [2, 3, 5, 7].iter().fold(n, |n, p| (0..14).fold(n, |n, _| if n % p == 0 { n / p } else { n })) == 1
        };
        for n in 1..3000 {
            assert_eq!(Some(tiled_extent(n)), (n..).find(|n| smooth(*n)), "{n}");
        }
        // Round numbers are rare among large ones: they are not looked for one by one.
        let large = tiled_extent((1 << 34) + 1);
        assert!(large > 1 << 34 && large < (1 << 34) + (1 << 28), "{large}");
    }
}
