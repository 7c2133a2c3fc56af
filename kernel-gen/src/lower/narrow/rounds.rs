//! Rounds of blocks that stay: which of them have units, the same for all roles of a block.

use super::rows::{Fact, Narrow, Outer};
use crate::analysis::range::{Ranges, bounds};
use crate::analysis::simplify::simplify;
use crate::analysis::verify::keeps_protocols;
use crate::ir::visit::{self, mention};
use crate::ir::{BinOp, Expr, First, For, Gpu, Kernel, LoopKind, MbarrierOp, Size, Stmt, VarId};
use std::collections::BTreeSet;

/// What a role does in a round.
struct Round<'s> {
    /// The condition, with one name for the loop over rounds in all roles.
    key: Expr,
    cond: Expr,
    /// The number that decides the round's tile, and how many there are.
    item: VarId,
    items: i64,
    /// The loop over blocks.
    block: VarId,
    /// The loop over rounds, and how much larger the item is from one to the next, if it is at least that times the round.
    round: VarId,
    stride: Option<i64>,
    ranges: Ranges,
    body: &'s [Stmt],
}

/// What keeps rounds from running that have no unit.
pub(super) struct Guard {
    /// The condition that they had.
    pub(super) cond: Expr,
    pub(super) item: VarId,
    pub(super) items: i64,
    /// What holds in those that run.
    pub(super) fact: Fact,
    /// Present if only items that have units are numbered: the digit of an item that says so, and the new number.
    pub(super) packed: Option<(Digit, VarId)>,
    /// How many blocks have such an item, then, and how many rounds.
    pub(super) first: Vec<(VarId, First)>,
}

/// What of an item's number decides about its rows, which begin at `tile` times that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Digit {
    tile: i64,
    /// Items of each of its values.
    each: i64,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// A digit: `item / below % extent`.
    Digit { below: i64, extent: i64 },
    /// Strips of `group` rows of tiles, numbered column by column: `item / (group * each) * group + item % group`.
    Strips { group: i64 },
}

impl Digit {
    /// The item with the number `packed` where only those of the first `tiles` rows of tiles are numbered, in their order: what a launch
    /// reads at a time decides how long it takes. An H100 takes 20.4 us in place of 14.5 for a layer (512 channels to 2048, 64 images
    /// of 7x7) whose blocks share rows and not columns. A number behind the last one gives no item with rows, but one
    /// below `items` if any is numbered anew.
    fn unpack(self, packed: Expr, tiles: Expr, items: i64) -> Expr {
        let item = match self.place {
            Place::Digit { below, extent } if below * extent == items => return packed,
            Place::Digit { below, extent } => {
                let above = packed.clone().floor_div(below);
                above.clone().floor_div(tiles.clone()) * (below * extent)
                    + above.floor_mod(tiles) * below
                    + packed.floor_mod(below)
            }
            Place::Strips { group } => {
                let size = group * self.each;
                let (strip, within) = (packed.clone().floor_div(size), packed.floor_mod(size));
                // The last strip may have fewer rows of tiles.
                let rows = (tiles - strip.clone() * group).max(1).min(group);
                strip * size + within.clone().floor_div(rows.clone()) * group + within.floor_mod(rows)
            }
        };
        item.min(items - 1)
    }

    /// How many items have rows.
    fn first(self, rows: i64) -> First {
        First { per: rows, of: self.tile, times: self.each, by: 1 }
    }
}

/// What of a round's item a row is a multiple of.
fn digit_of(row: &Expr, round: &Round<'_>) -> Option<Digit> {
    let (item, items) = (Expr::Var(round.item), round.items);
    // `x`, `x * by`.
    let times = |e: &Expr| match e {
        Expr::Binary(BinOp::Mul, x, by) => Some(((**x).clone(), by.as_int()?)),
        x => Some((x.clone(), 1)),
    };
    // `item op by`.
    let of_item = |op: BinOp, e: &Expr| match e {
        Expr::Binary(found, x, by) if *found == op && **x == item => by.as_int().filter(|by| *by > 0),
        _ => None,
    };
    if let Expr::Binary(BinOp::Add, a, b) = row {
        let ((strip, of_strip), (within, tile)) = (times(a)?, times(b)?);
        let (size, group) = (of_item(BinOp::Div, &strip)?, of_item(BinOp::Mod, &within)?);
        let fits = of_strip == group * tile && size % group == 0 && items % size == 0;
        return fits.then_some(Digit { tile, each: size / group, place: Place::Strips { group } });
    }
    let (digit, tile) = times(row)?;
    let (rest, extent) = match &digit {
        Expr::Binary(BinOp::Mod, rest, extent) => ((**rest).clone(), Some(extent.as_int()?)),
        rest => (rest.clone(), None),
    };
    let below = if rest == item { 1 } else { of_item(BinOp::Div, &rest)? };
    let extent = extent.unwrap_or(items / below);
    let whole = tile > 0 && extent > 0 && items % (below * extent) == 0;
    whole.then(|| Digit { tile, each: items / extent, place: Place::Digit { below, extent } })
}

impl Narrow {
    /// The conditions of what blocks that stay do in a round, each with what is to be added to it. A condition that several roles of
    /// a block have in common, and of whose rounds one role's stores are all behind the last unit, is false in all of them.
    pub(super) fn rounds(&mut self, launch: &Stmt) -> Vec<Guard> {
        let mut found: Vec<Round> = vec![];
        self.collect(launch, &mut vec![], &self.ranges, &mut found);
        let mut out = vec![];
        for (i, round) in found.iter().enumerate() {
            if found[..i].iter().any(|other| other.key == round.key) {
                continue;
            }
            let same: Vec<&Round> = found.iter().filter(|other| other.key == round.key).collect();
            // Rounds of which only the tile matters may be left out one by one, others from the last on: roles take turns, say.
            let is_alone = same.iter().all(|r| !mention(r.body, r.round));
            let mut facts = vec![];
            for r in &same {
                let mut written = vec![];
                r.body.iter().for_each(|s| {
                    let _ = self.collect_written(s, (&r.ranges, &BTreeSet::from([r.item])), &|_| false, &mut written);
                });
                if written.is_empty() {
                    continue;
                }
                let (of, none) = (BTreeSet::from([r.item]), BTreeSet::new());
                let exact = self.least_of(&written, &Outer { rising: none.clone(), fixed: of.clone() });
                let digit = exact.as_ref().and_then(|fact| digit_of(&fact.row, r));
                let fact = match is_alone || digit.is_some() {
                    true => exact,
                    false => self.least_of(&written, &Outer { rising: of, fixed: none }),
                };
                facts.push(fact.map(|fact| (fact, *r, digit)));
            }
            let facts = facts.into_iter().collect::<Option<Vec<(Fact, &Round, Option<Digit>)>>>();
            let Some((Some((fact, of, digit)), facts)) = facts.as_ref().map(|facts| (facts.first(), facts)) else {
                continue;
            };
            // The same in the words of another role.
            let to = |fact: &Fact, from: &Round, to: &Round| Fact {
                row: fact.row.clone().subst(from.item, &Expr::from(to.item)),
                ..*fact
            };
            if !fact.row.mentions(of.item) || facts.iter().any(|(other, by, _)| to(other, by, of) != *fact) {
                continue;
            }
            let mut guards = vec![];
            for r in &same {
                let packed = digit.map(|digit| (digit, self.kernel.fresh_var("packed")));
                let first = digit.map(|digit| digit.first(fact.rows));
                let blocks = first.map(|first| (r.block, first));
                let rounds = first.zip(r.stride).map(|(first, by)| (r.round, First { by, ..first }));
                guards.push(Guard {
                    cond: r.cond.clone(),
                    item: r.item,
                    items: r.items,
                    fact: to(fact, of, r),
                    packed,
                    first: blocks.into_iter().chain(rounds).collect(),
                });
            }
            // What threads wait for is in these rounds or made before them; else the last of them are left out to see.
            let inside: usize = same.iter().map(|r| waits(r.body)).sum();
            if inside == waits(std::slice::from_ref(launch))
                || self.all_waits_end(self.guarded(launch.clone(), &guards))
            {
                out.extend(guards);
            }
        }
        out
    }

    /// Whether nothing in a launch waits for ever, of few units and of many.
    fn all_waits_end(&self, launch: Stmt) -> bool {
        let Some(Size { var, most, .. }) = self.kernel.size else { return false };
        [1, 2, most / 3, most / 2, most - 1].into_iter().filter(|units| (1..=most).contains(units)).all(|units| {
            let body = vec![launch.clone().subst(var, &Expr::Int(units))];
            keeps_protocols(&Kernel { size: None, body, ..self.kernel.clone() })
        })
    }

    /// The rounds of a launch.
    fn collect<'s>(&self, s: &'s Stmt, loops: &mut Vec<&'s For>, ranges: &Ranges, found: &mut Vec<Round<'s>>) {
        match s {
            Stmt::For(l) => {
                loops.push(l);
                l.body.iter().for_each(|s| self.collect(s, loops, ranges, found));
                loops.pop();
            }
            Stmt::If { cond, then, otherwise } => {
                let holds = self.assuming(ranges, cond, true);
                if let Some(round) = self.round(cond, then, loops, &holds).filter(|_| otherwise.is_empty()) {
                    found.push(round);
                    return;
                }
                let not = self.assuming(ranges, cond, false);
                then.iter().for_each(|s| self.collect(s, loops, &holds, found));
                otherwise.iter().for_each(|s| self.collect(s, loops, &not, found));
            }
            _ => {}
        }
    }

    /// A condition on a number that follows from the block and a serial loop as that of a round.
    fn round<'s>(&self, cond: &Expr, body: &'s [Stmt], loops: &[&For], ranges: &Ranges) -> Option<Round<'s>> {
        let Expr::Binary(BinOp::Lt, item, items) = cond else { return None };
        let (Expr::Var(item), Some(items)) = (&**item, items.as_int()) else { return None };
        let inlined = self.inline(self.lets.get(item)?.clone(), &BTreeSet::new());
        let free = inlined.variables();
        let mentioned: Vec<&&For> = loops.iter().filter(|l| free.contains(&l.var)).collect();
        let (blocks, others): (Vec<&&&For>, Vec<&&&For>) =
            mentioned.iter().partition(|l| matches!(l.kind, LoopKind::Grid(_)));
        let ([block], [serial]) = (&blocks[..], &others[..]) else { return None };
        if serial.kind != LoopKind::Serial || mentioned.len() != free.len() {
            return None;
        }
        // Rounds behind the last item are left out where nothing else is in them.
        let is_alone = serial.body.iter().all(|s| match s {
            Stmt::If { cond: other, otherwise, .. } => other == cond && otherwise.is_empty(),
            s => matches!(s, Stmt::Let { .. }),
        });
        let stride = self.stride(&inlined, serial.var).filter(|_| is_alone);
        // One name for the loop of all roles.
        let key = inlined.lt(items).subst(serial.var, &Expr::Int(-serial.extent));
        let (item, block, round, ranges) = (*item, block.var, serial.var, ranges.clone());
        Some(Round { key, cond: cond.clone(), item, items, block, round, stride, ranges, body })
    }

    /// By how much an expression grows with a variable, if it is at least that times the variable.
    fn stride(&self, e: &Expr, var: VarId) -> Option<i64> {
        let at = |value: i64| simplify(&e.clone().subst(var, &Expr::Int(value)), &self.ranges);
        let by = simplify(&(at(1) - at(0)), &self.ranges).as_int().filter(|by| *by > 0)?;
        let rest = simplify(&(e.clone() - Expr::Var(var) * by), &self.ranges);
        let is_linear = !rest.mentions(var) && bounds(&rest, &self.ranges).is_some_and(|(least, _)| least >= 0);
        is_linear.then_some(by)
    }

    /// Adds to conditions of rounds, and numbers their items anew where that is how they are guarded.
    pub(super) fn guarded(&self, s: Stmt, guards: &[Guard]) -> Stmt {
        let mut all = visit::rewrite(vec![s], &mut |s| match s {
            Stmt::If { cond, then, otherwise } => {
                let Some(guard) = guards.iter().find(|guard| guard.cond == cond) else {
                    return vec![Stmt::If { cond, then, otherwise }];
                };
                let exists = guard.fact.row.clone().lt(self.limit(guard.fact.rows));
                let cond = match guard.packed {
                    Some((digit, packed)) => {
                        let count = self.tiles(digit, guard.fact.rows) * digit.each;
                        Expr::from(packed).lt(count).and(exists)
                    }
                    None => cond.and(exists),
                };
                vec![Stmt::If { cond, then, otherwise }]
            }
            Stmt::Let { var, value } => match guards.iter().find(|guard| guard.item == var) {
                Some(Guard { packed: Some((digit, packed)), items, fact, .. }) => {
                    let item = digit.unpack((*packed).into(), self.tiles(*digit, fact.rows), *items);
                    vec![Stmt::Let { var: *packed, value }, Stmt::Let { var, value: item }]
                }
                _ => vec![Stmt::Let { var, value }],
            },
            other => vec![other],
        });
        all.pop().expect("one statement stays one")
    }

    /// How many values of a digit have rows.
    fn tiles(&self, digit: Digit, rows: i64) -> Expr {
        match digit.tile {
            1 => self.limit(rows),
            tile => (self.limit(rows) + (tile - 1)).floor_div(tile),
        }
    }
}

/// Statements that may wait for others, or that others may wait for.
fn waits(body: &[Stmt]) -> usize {
    let mut count = 0;
    body.iter().for_each(|s| {
        s.walk(&mut |s| {
            let Stmt::Gpu(gpu) = s else { return };
            let makes = matches!(gpu, Gpu::Mbarrier(_, MbarrierOp::Init(_)));
            count += usize::from(!makes && (gpu.slot().is_some() || matches!(gpu, Gpu::NamedBarrier { .. })));
        });
    });
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items with rows have the first numbers, in the order of a kernel of one size.
    #[test]
    fn items_with_rows_are_numbered_in_their_order() {
        let digit = |each: i64, place: Place| Digit { tile: 64, each, place };
        let places = [
            (28 * 16, digit(16, Place::Strips { group: 7 })),
            (28 * 5, digit(5, Place::Strips { group: 4 })),
            (3 * 9 * 4, digit(12, Place::Digit { below: 4, extent: 9 })),
            (6 * 10, digit(6, Place::Digit { below: 6, extent: 10 })),
            (6 * 10, digit(6, Place::Digit { below: 1, extent: 10 })),
        ];
        for (items, digit) in places {
            let value = |item: i64| match digit.place {
                Place::Digit { below, extent } => item / below % extent,
                Place::Strips { group } => item / (group * digit.each) * group + item % group,
            };
            for tiles in 1..=items / digit.each {
                let wanted: Vec<i64> = (0..items).filter(|item| value(*item) < tiles).collect();
                let item = |packed: usize| digit.unpack(Expr::Int(packed as i64), Expr::Int(tiles), items);
                let item = |packed: usize| simplify(&item(packed), &Ranges::default()).as_int().expect("a number");
                let found: Vec<i64> = (0..wanted.len()).map(item).collect();
                assert_eq!(found, wanted, "{digit:?}, {tiles} tiles");
                // Numbers behind the last item stay small; where items come tile by tile they are as they are.
                let is_changed = !matches!(digit.place, Place::Digit { below, extent } if below * extent == items);
                let mut behind = wanted.len()..wanted.len() + 300;
                assert!(!is_changed || behind.all(|packed| (0..items).contains(&item(packed))));
            }
        }
    }
}
