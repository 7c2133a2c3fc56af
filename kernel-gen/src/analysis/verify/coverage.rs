//! Every element of an output is written.

use super::access::{Pseudo, Site, Touch};
use super::equal::Side;
use super::fault::{Fault, FaultKind};
use super::partition;
use super::vector_eval::Program;
use super::{enumerate, mixed_radix, reach};
use crate::analysis::affine::Affine;
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::Sum;
use crate::ir::{Access, BinOp, BufferId, Expr, Kernel, UnOp, VarId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Checks the rule on written elements under "Values".
pub(super) fn check(kernel: &Kernel, sites: &[Site], faults: &mut Vec<Fault>) {
    for b in &kernel.params {
        if kernel.buffer(*b).access == Access::Write {
            faults.extend(output(kernel, *b, sites));
        }
    }
}

/// An output with elements that no statement writes, or cannot be shown to.
fn output(kernel: &Kernel, id: BufferId, sites: &[Site]) -> Option<Fault> {
    let b = kernel.buffer(id);
    let writes: Vec<&Site> =
        sites.iter().filter(|s| s.buffer == id && matches!(s.touch, Touch::Write | Touch::Start)).collect();
    let help = "extend the loops that write it, or declare it readwrite";
    if writes.is_empty() {
        let cause = format!("nothing writes the output {}", b.name);
        return Some(Fault::whole(FaultKind::UnwrittenOutput, cause, help));
    }
    let found = hole(kernel, &writes, &b.shape, MOST_ELEMENTS);
    let (cause, site) = match found {
        Ok(None) => return None,
        Ok(Some(index)) => (format!("nothing writes {}{index:?}", b.name), writes[0]),
        Err(Unknown) => (format!("not every element of the output {} can be shown to be written", b.name), writes[0]),
    };
    Some(Fault::at(kernel, &site.loops, site.stmt, FaultKind::UnwrittenOutput, cause, help))
}

/// Whether each element is written, by accesses that are to be run to their ends.
pub(super) fn is_whole(kernel: &Kernel, writes: &[&Site], shape: &[i64]) -> bool {
    !writes.is_empty() && matches!(hole(kernel, writes, shape, FEW_ELEMENTS), Ok(None))
}

/// The first element that none of the accesses writes, where no group of dimensions has more than `most` elements.
fn hole(kernel: &Kernel, writes: &[&Site], whole: &[i64], most: i64) -> Result<Option<Vec<i64>>, Unknown> {
    let fresh = Pseudo::new(kernel).free(whole.len());
    // Of many writes, as unrolled ones are, each has a part.
    let one_does = |site: &&Site| reach::covers(&Side::of(site), whole, fresh);
    if writes.len() <= 4 && writes.iter().any(one_does) {
        return Ok(None);
    }
    let mut apart: Vec<Site> = writes.iter().map(|site| (*site).clone()).collect();
    for site in &mut apart {
        mixed_radix::number_form(&mut [(&mut site.index, &mut site.facts)], fresh, &BTreeSet::new());
    }
    let mut first = whole.to_vec();
    while first_of_tiles(&mut apart, &mut first) {}
    let (apart, shape): (Vec<&Site>, _) = (apart.iter().collect(), &first[..]);
    match missing(&apart, shape, FEW_ELEMENTS) {
        Err(_) if one_launch_covers(kernel, writes, whole) => Ok(None),
        Err(_) if most > FEW_ELEMENTS => missing(&apart, shape, most),
        found => found,
    }
}

/// Where all accesses write a dimension in tiles of one size, each tile alike, leaves the first tile of it: whether there was such
/// a dimension. The tiles are counted by a loop that decides nothing else; the last may reach beyond the end.
fn first_of_tiles(sites: &mut [Site], shape: &mut [i64]) -> bool {
    let Some(first) = sites.first() else { return false };
    for (d, extent) in shape.iter_mut().enumerate() {
        for (atom, size) in Sum::of(first.index[d].clone()).terms {
            let Expr::Var(v) = atom else { continue };
            let Some(rests) = sites.iter().map(|s| within_tile(s, d, v, size, *extent)).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            for (site, rest) in sites.iter_mut().zip(rests) {
                site.index[d] = rest;
                site.facts.guards.retain(|(g, _)| !g.mentions(v));
                site.facts.ranges.remove(v);
            }
            *extent = size;
            return true;
        }
    }
    false
}

/// The place in a tile that an access writes, where `v` counts tiles of this size along dimension `d` and does nothing else.
fn within_tile(site: &Site, d: usize, v: VarId, size: i64, extent: i64) -> Option<Expr> {
    let (0, last) = site.facts.ranges.get(v)? else { return None };
    let mut sum = Sum::of(site.index[d].clone());
    let all = sum.clone();
    let at = sum.terms.iter().position(|t| *t == (Expr::Var(v), size))?;
    sum.terms.remove(at);
    let rest = sum.to_expr();
    let (lo, hi) = bounds(&rest, &site.facts.ranges)?;
    // Each tile, as far as it is inside.
    let tiles = size > 0 && size < extent && lo >= 0 && hi < size && last >= (extent - 1 - lo).div_euclid(size);
    // The end of the dimension is the only condition that may mention it.
    let is_end = |(g, truth): &(Expr, bool)| match g {
        Expr::Binary(BinOp::Lt, a, b) if *truth => {
            let gap = Sum::of((**a).clone() - (**b).clone());
            gap.terms.len() == all.terms.len()
                && gap.terms.iter().all(|t| all.terms.contains(t))
                && gap.constant == all.constant - extent
        }
        _ => false,
    };
    let free = |g: &(Expr, bool)| !g.0.mentions(v) || is_end(g);
    let alone = !rest.mentions(v) && (0..site.index.len()).all(|o| o == d || !site.index[o].mentions(v));
    (tiles && alone && site.facts.guards.iter().all(free)).then_some(rest)
}

/// Whether the writes of one of the launches reach every element; others may write some of them again.
fn one_launch_covers(kernel: &Kernel, writes: &[&Site], shape: &[i64]) -> bool {
    let launch = |s: &Site| s.loops.first().map(|l| l.var);
    let launches: BTreeSet<_> = writes.iter().map(|s| launch(s)).collect();
    launches.into_iter().any(|l| {
        let own: Vec<&Site> = writes.iter().copied().filter(|s| launch(s) == l).collect();
        partition::writes_each_once(kernel, &own, shape)
    })
}

/// The question is too large, or depends on memory.
struct Unknown;

/// Elements of a group of dimensions that are enumerated before another proof is tried, some tenths of a second, and after it:
/// a product with 60 million rows is proved in seconds rather than refused.
const FEW_ELEMENTS: i64 = 1 << 22;
const MOST_ELEMENTS: i64 = 1 << 26;

/// The first element that none of the accesses writes, where no group of dimensions has more than `most` elements.
///
/// Dimensions whose indices share variables (or conditions) in any access form a group. An access writes the product
/// of what it writes in each group, and the union of these products is compared with the shape group by group.
fn missing(writes: &[&Site], shape: &[i64], most: i64) -> Result<Option<Vec<i64>>, Unknown> {
    let mut usable: Vec<(&Site, Vec<(Expr, bool)>)> = vec![];
    for site in writes {
        let mut guards = vec![];
        for (g, truth) in &site.facts.guards {
            conjuncts(g, *truth, &mut guards);
        }
        // A condition on memory may keep the statement from running, so it covers nothing for certain.
        let known = |e: &Expr| enumerate::variables([e]).is_some();
        if guards.iter().all(|(g, _)| known(g)) && site.index.iter().all(known) {
            usable.push((site, guards));
        }
    }
    if usable.is_empty() {
        return Err(Unknown);
    }
    let groups = groups(&usable, shape.len());
    let mut written: Vec<Vec<Runs>> = vec![];
    for (site, guards) in &usable {
        let mut sets = vec![];
        for dims in &groups {
            sets.push(image(site, guards, dims, shape, most)?);
        }
        // A condition that no group holds must be possible at all.
        let rest: Vec<&(Expr, bool)> =
            guards.iter().filter(|g| !groups.iter().any(|d| belongs(site, guards, d, g))).collect();
        if possible(site, &rest)? {
            written.push(sets);
        }
    }
    let sizes: Vec<i64> =
        groups.iter().map(|dims| dims.iter().fold(1, |n: i64, d| n.saturating_mul(shape[*d]))).collect();
    let all: Vec<usize> = (0..written.len()).collect();
    let hole = first_hole(&written, &all, &sizes);
    Ok(hole.map(|parts| {
        let mut index = vec![0; shape.len()];
        for (dims, mut at) in groups.iter().zip(parts) {
            for d in dims.iter().rev() {
                index[*d] = at % shape[*d];
                at /= shape[*d];
            }
        }
        index
    }))
}

/// A set of elements: from each first one to before the end, in order and apart.
type Runs = Vec<(i64, i64)>;

/// The runs of the elements that are marked.
fn runs_of(marked: &[bool]) -> Runs {
    let mut out = vec![];
    let mut at = 0;
    while let Some(first) = marked[at..].iter().position(|m| *m).map(|n| at + n) {
        let end = marked[first..].iter().position(|m| !*m).map_or(marked.len(), |n| first + n);
        out.push((first as i64, end as i64));
        at = end;
    }
    out
}

/// Splits a condition into parts that hold together.
fn conjuncts(cond: &Expr, truth: bool, out: &mut Vec<(Expr, bool)>) {
    match (cond, truth) {
        (Expr::Binary(BinOp::And, a, b), true) | (Expr::Binary(BinOp::Or, a, b), false) => {
            conjuncts(a, truth, out);
            conjuncts(b, truth, out);
        }
        (Expr::Unary(UnOp::Not, a), t) => conjuncts(a, !t, out),
        _ => out.push((cond.clone(), truth)),
    }
}

fn variables(e: &Expr) -> BTreeSet<VarId> {
    enumerate::variables([e]).unwrap_or_default()
}

/// The coarsest partition of the dimensions that no access crosses.
fn groups(sites: &[(&Site, Vec<(Expr, bool)>)], rank: usize) -> Vec<Vec<usize>> {
    let mut group: Vec<usize> = (0..rank).collect();
    for (site, guards) in sites {
        let vars = closure(site, guards);
        for a in 0..rank {
            for b in 0..a {
                if !vars[a].is_disjoint(&vars[b]) {
                    let (from, to) = (group[a], group[b]);
                    group.iter_mut().filter(|g| **g == from).for_each(|g| *g = to);
                }
            }
        }
    }
    let mut out: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (d, g) in group.iter().enumerate() {
        out.entry(*g).or_default().push(d);
    }
    out.into_values().collect()
}

/// For each dimension, the variables of its index and of the conditions that are linked to them.
fn closure(site: &Site, guards: &[(Expr, bool)]) -> Vec<BTreeSet<VarId>> {
    let guard_vars: Vec<BTreeSet<VarId>> = guards.iter().map(|(g, _)| variables(g)).collect();
    site.index
        .iter()
        .map(|e| {
            let mut vars = variables(e);
            loop {
                let before = vars.len();
                for g in &guard_vars {
                    if !g.is_disjoint(&vars) {
                        vars.extend(g);
                    }
                }
                if vars.len() == before {
                    return vars;
                }
            }
        })
        .collect()
}

/// Whether a condition takes part in a group of dimensions.
fn belongs(site: &Site, guards: &[(Expr, bool)], dims: &[usize], guard: &(Expr, bool)) -> bool {
    let vars = closure(site, guards);
    dims.iter().any(|d| !vars[*d].is_disjoint(&variables(&guard.0)))
}

/// Which elements of a group's dimensions an access writes, of `most` elements at most and by as many points at most.
fn image(site: &Site, guards: &[(Expr, bool)], dims: &[usize], shape: &[i64], most: i64) -> Result<Runs, Unknown> {
    let all = closure(site, guards);
    let vars: BTreeSet<VarId> = dims.iter().flat_map(|d| all[*d].iter().copied()).collect();
    let used: Vec<&(Expr, bool)> = guards.iter().filter(|g| belongs(site, guards, dims, g)).collect();
    if let [d] = dims
        && let Some((first, end)) = run(&site.index[*d], &site.facts.ranges)
        && let Some((first, end)) = clipped(&site.index[*d], (first, end), &used)
        && (site.clipped || 0 <= first && end <= shape[*d])
    {
        let (first, end) = (first.max(0), end.min(shape[*d]));
        return Ok(if first < end { vec![(first, end)] } else { vec![] });
    }
    let size = dims.iter().try_fold(1i64, |a, d| a.checked_mul(shape[*d])).ok_or(Unknown)?;
    if size > most {
        return Err(Unknown);
    }
    let space = enumerate::space(&vars, &site.facts.ranges, most).ok_or(Unknown)?;
    let mut out = vec![false; size as usize];
    let exprs = used.iter().map(|(g, _)| g).chain(dims.iter().map(|d| &site.index[*d]));
    if let Some(program) = Program::new(exprs, &space) {
        let mut inside = true;
        program.rows(|count, rows| {
            let (conditions, indices) = rows.split_at(used.len());
            'points: for i in 0..count {
                if conditions.iter().zip(&used).any(|(row, (_, truth))| row[i] != i64::from(*truth)) {
                    continue;
                }
                let mut at = 0;
                for (row, d) in indices.iter().zip(dims) {
                    match row[i] {
                        i if (0..shape[*d]).contains(&i) => at = at * shape[*d] + i,
                        _ if site.clipped => continue 'points,
                        _ => {
                            inside = false;
                            return false;
                        }
                    }
                }
                out[at as usize] = true;
            }
            true
        });
        return if inside { Ok(runs_of(&out)) } else { Err(Unknown) };
    }
    let outcome = enumerate::for_each(&space, |values| {
        if used.iter().any(|(g, truth)| enumerate::eval(g, values) != Some(i64::from(*truth))) {
            return ControlFlow::Continue(());
        }
        let mut at = 0;
        for d in dims {
            match enumerate::eval(&site.index[*d], values) {
                Some(i) if (0..shape[*d]).contains(&i) => at = at * shape[*d] + i,
                Some(_) if site.clipped => return ControlFlow::Continue(()),
                _ => return ControlFlow::Break(()),
            }
        }
        out[at as usize] = true;
        ControlFlow::Continue(())
    });
    if outcome.is_break() { Err(Unknown) } else { Ok(runs_of(&out)) }
}

/// What conditions that bound an index leave of its values; none where one says something else.
fn clipped(index: &Expr, values: (i64, i64), guards: &[&(Expr, bool)]) -> Option<(i64, i64)> {
    let index = Affine::of(index)?;
    let (mut first, mut end) = values;
    for (guard, truth) in guards {
        let Expr::Binary(op, a, b) = guard else { return None };
        // `room >= 0`
        let room =
            |a: &Expr, b: &Expr, less: i64| Affine::of(b)?.plus(&Affine::of(a)?, -1)?.plus(&Affine::constant(less), -1);
        let room = match (op, truth) {
            (BinOp::Lt, true) => room(a, b, 1)?,
            (BinOp::Le, true) => room(a, b, 0)?,
            (BinOp::Lt, false) => room(b, a, 0)?,
            (BinOp::Le, false) => room(b, a, 1)?,
            _ => return None,
        };
        // The terms of the index are a multiple of those of the condition, or the other way around.
        let (var, of_room) = room.terms.iter().next()?;
        let of_index = index.coefficient(*var);
        let (scale_room, scale_index) = (of_index.checked_abs()?, of_room.checked_abs()?);
        if of_index == 0 {
            return None;
        }
        let upper = (of_index > 0) != (*of_room > 0);
        // `scale_room * room +- scale_index * index` is a constant.
        let both =
            room.times(scale_room)?.plus(&index, if upper { scale_index } else { scale_index.checked_neg()? })?;
        if !both.terms.is_empty() {
            return None;
        }
        if upper {
            // scale_index * index <= both
            end = end.min(both.constant.div_euclid(scale_index).checked_add(1)?);
        } else {
            // scale_index * index >= -both
            first = first.max(both.constant.div_euclid(scale_index).checked_neg()?);
        }
    }
    Some((first, end.max(first)))
}

/// The values of an index, from the first to before the last, where they are all that lie between: a sum of variables, none of
/// which steps over what those with smaller factors reach together.
fn run(index: &Expr, ranges: &Ranges) -> Option<(i64, i64)> {
    let sum = Affine::of(index)?;
    let mut terms = sum.terms.iter().map(|(v, factor)| Some((*factor, ranges.get(*v)?))).collect::<Option<Vec<_>>>()?;
    terms.sort_unstable();
    let (mut first, mut length) = (sum.constant, 1i64);
    for (factor, (low, high)) in terms {
        if factor < 0 || high < low || (factor > length && high > low) {
            return None;
        }
        first = first.checked_add(factor.checked_mul(low)?)?;
        length = length.checked_add(factor.checked_mul(high.checked_sub(low)?)?)?;
    }
    Some((first, first.checked_add(length)?))
}

/// Whether all of these conditions hold for some values.
fn possible(site: &Site, guards: &[&(Expr, bool)]) -> Result<bool, Unknown> {
    let vars = guards.iter().flat_map(|(g, _)| variables(g)).collect();
    let space = enumerate::space(&vars, &site.facts.ranges, enumerate::BUDGET).ok_or(Unknown)?;
    let found = enumerate::for_each(&space, |values| {
        let holds = guards.iter().all(|(g, truth)| enumerate::eval(g, values) == Some(i64::from(*truth)));
        if holds { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok(found.is_break())
}

/// The first combination of elements of the groups, of which there are so many in each, that no member of `active` writes.
fn first_hole(written: &[Vec<Runs>], active: &[usize], sizes: &[i64]) -> Option<Vec<i64>> {
    if active.is_empty() {
        return Some(vec![0; sizes.len()]);
    }
    let (size, rest) = sizes.split_first()?;
    let group = written[active[0]].len() - sizes.len();
    // Between two ends of runs, all elements have the same writers.
    let ends_of = |(i, s): (usize, &usize)| {
        let runs = written[*s][group].iter();
        runs.flat_map(move |(first, end)| [(*first, i), (*end, i)]).collect::<Vec<_>>()
    };
    let mut ends: Vec<(i64, usize)> = active.iter().enumerate().flat_map(ends_of).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut writes = vec![false; active.len()];
    // Elements with the same writers have the same holes further on.
    let mut seen: BTreeSet<Vec<usize>> = BTreeSet::new();
    let mut at = 0;
    while at < *size {
        while let Some((_, i)) = ends.next_if(|(end, _)| *end <= at) {
            writes[i] = !writes[i];
        }
        let here: Vec<usize> = active.iter().zip(&writes).filter_map(|(s, writes)| writes.then_some(*s)).collect();
        if !seen.contains(&here) {
            if let Some(mut found) = first_hole(written, &here, rest) {
                found.insert(0, at);
                return Some(found);
            }
            seen.insert(here);
        }
        at = ends.peek().map_or(*size, |(end, _)| *end);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_what_enumeration_finds() {
        let [x, y, z] = [VarId(0), VarId(1), VarId(2)];
        let sum = |[a, b, c]: [i64; 3], constant: i64| {
            Expr::Var(x) * Expr::Int(a)
                + Expr::Var(y) * Expr::Int(b)
                + Expr::Var(z) * Expr::Int(c)
                + Expr::Int(constant)
        };
        let mut runs = 0;
        for factors in [[12, 4, 1], [4, 12, 1], [13, 4, 1], [11, 3, 1], [2, 2, 2], [1, 1, 1], [-1, 4, 1], [0, 5, 1]] {
            for ends in [[2, 2, 3], [0, 2, 3], [5, 0, 0], [1, 3, 4]] {
                let mut ranges = Ranges::default();
                [x, y, z].into_iter().zip(ends).for_each(|(v, end)| ranges.insert(v, v.0 as i64, v.0 as i64 + end));
                let mut values = BTreeSet::new();
                for i in 0..=ends[0] {
                    for j in 1..=1 + ends[1] {
                        values.extend((2..=2 + ends[2]).map(|k| factors[0] * i + factors[1] * j + factors[2] * k + 7));
                    }
                }
                let (first, last) = (*values.first().unwrap(), *values.last().unwrap());
                let whole = (last - first + 1 == values.len() as i64).then_some((first, last + 1));
                // What is no run by its factors may be one by chance; what is said to be one is.
                if let Some(found) = run(&sum(factors, 7), &ranges) {
                    assert_eq!(Some(found), whole, "{factors:?} {ends:?}");
                    runs += 1;
                }
            }
        }
        assert!(runs >= 12, "{runs}");
        assert_eq!(run(&Expr::Var(x), &Ranges::default()), None);
    }
}
