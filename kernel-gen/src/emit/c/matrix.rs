//! Sums that stand in tiles of registers (AMX).
//!
//! A register buffer of at most 16 rows of 16 `i32` is a tile if all that ever happens to it is that it is set to zero, that products of
//! tiles are added to it, and that it is copied:
//!
//! ```text
//! for word in 0..16 { sums[r, lanes] += dot(x[at + r * pitch + word], w[from + word * width + lanes]) for each row r }
//! ```
//! becomes, where the tiles of `x` and `w` are not there already,
//!
//! ```c
//! _tile_loadd(6, x + at, 4 * pitch);
//! _tile_loadd(7, w + from, 4 * width);
//! _tile_dpbusd(0, 6, 7);
//! ```
//! The shapes of all tiles of a block are one configuration, which is loaded when another one was. *(Intel, Architecture Instruction Set
//! Extensions Programming Reference, chapter 3.)*

use crate::analysis::affine::Affine;
use crate::emit::clike::walk::dot;
use crate::ir::{BufferId, DType, Expr, Kernel, LoopKind, Scope, Stmt, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// Tiles that there are.
const TILES: usize = 8;

/// Rows of a tile, and elements of 32 bits in a row of it.
const SIDE: i64 = 16;

/// Rows of words in memory that a tile is loaded from or stored to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rows {
    pub(super) buffer: BufferId,
    /// The first word.
    pub(super) first: Affine,
    /// Words from one row to the next.
    pub(super) pitch: i64,
    /// How many rows.
    pub(super) rows: i64,
    /// Words of each.
    pub(super) words: i64,
}

/// What is done with a tile of sums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Zero,
    /// The products of the rows of the first by the columns of the second are added; whether the bytes of each have signs.
    Products([Rows; 2], [bool; 2]),
    Copy(Rows),
}

/// The registers of the tiles of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The buffers of sums, in the order of their registers.
    pub(super) sums: Vec<BufferId>,
    /// For each shape of an operand, rows and words, the registers that hold such.
    pub(super) operands: Vec<([i64; 2], Vec<usize>)>,
    /// Rows and words of each register.
    shapes: Vec<[i64; 2]>,
}

/// The plans of a function, and what its tiles hold where the emitter is.
#[derive(Clone, Debug, Default)]
pub(super) struct Matrix {
    /// By the buffers of their sums.
    pub(super) plans: BTreeMap<BufferId, Plan>,
    /// The variable that says which configuration is loaded.
    pub(super) configuration: String,
    /// Operands that are loaded, those that were used last behind.
    pub(super) loaded: Vec<(usize, Rows)>,
}

/// The rows of a register buffer that may be a tile.
fn rows_of(kernel: &Kernel, b: BufferId) -> Option<i64> {
    let buffer = kernel.buffer(b);
    let fits = buffer.scope == Scope::Register && buffer.dtype == DType::I32 && buffer.is_row_major();
    match buffer.shape[..] {
        [rows, SIDE] if fits && (1..=SIDE).contains(&rows) => Some(rows),
        _ => None,
    }
}

/// All words of a row, from a multiple of 16 on.
fn is_row(e: &Expr) -> bool {
    matches!(e, Expr::Ramp { stride: 1, lanes, .. } if i64::from(*lanes) == SIDE)
}

/// Whether indices are those of a whole row of a tile.
fn is_row_of(indices: &[Expr], row: i64) -> bool {
    matches!(indices, [r, c] if r.as_int() == Some(row) && is_row(c) && matches!(c, Expr::Ramp { base, .. } if base.as_int() == Some(0)))
}

/// Where the first lane of an access lies.
fn first_of(kernel: &Kernel, b: BufferId, indices: &[Expr]) -> Option<Affine> {
    let scalar = |e: &Expr| match e {
        Expr::Ramp { base, .. } => (**base).clone(),
        other => other.clone(),
    };
    Affine::of(&kernel.buffer(b).address(&indices.iter().map(scalar).collect::<Vec<_>>()))
}

/// Rows that are loaded or stored one after the other, if they are the same number of words apart.
fn evenly(kernel: &Kernel, buffer: BufferId, firsts: &[Affine], words: i64) -> Option<Rows> {
    let memory = kernel.buffer(buffer);
    if memory.scope == Scope::Register || memory.strides.last() != Some(&1) || memory.dtype.bytes() != 4 {
        return None;
    }
    let first = firsts.first()?.clone();
    let apart = |other: &Affine| other.plus(&first, -1).filter(|a| a.terms.is_empty()).map(|a| a.constant);
    let pitch = firsts.get(1).map_or(Some(words), apart)?;
    let even = (0..).zip(firsts).all(|(i, other)| apart(other) == Some(i * pitch));
    (even && pitch > 0).then_some(Rows { buffer, first, pitch, rows: firsts.len() as i64, words })
}

/// The act on a tile that statements begin with: the tile, what is done, and how many statements that takes.
pub(super) fn act(kernel: &Kernel, stmts: &[Stmt]) -> Option<(BufferId, Act, usize)> {
    let zero_or_copy = || -> Option<(BufferId, Act, usize)> {
        let Stmt::Store { buffer, value, .. } = stmts.first()? else { return None };
        let of = |stmt: &Stmt| match stmt {
            Stmt::Store { buffer, indices, value } => Some((*buffer, indices.clone(), value.clone())),
            _ => None,
        };
        if let (Some(rows), Expr::Broadcast(zero, _)) = (rows_of(kernel, *buffer), value) {
            let is_zero = matches!(&**zero, Expr::Cast(DType::I32, e) if e.as_int() == Some(0));
            let all = stmts.get(..rows as usize)?.iter().zip(0..).all(|(stmt, row)| {
                of(stmt).is_some_and(|(to, at, v)| to == *buffer && is_row_of(&at, row) && v == *value)
            });
            return (is_zero && all).then_some((*buffer, Act::Zero, rows as usize));
        }
        let Expr::Load(sums, _) = value else { return None };
        let rows = rows_of(kernel, *sums)?;
        let mut firsts = vec![];
        for (stmt, row) in stmts.get(..rows as usize)?.iter().zip(0..) {
            let (to, at, v) = of(stmt)?;
            let Expr::Load(from, place) = v else { return None };
            let runs = at.last().is_some_and(is_row) && at.iter().rev().skip(1).all(|e| e.ty(kernel).lanes == 1);
            if to != *buffer || from != *sums || !is_row_of(&place, row) || !runs {
                return None;
            }
            firsts.push(first_of(kernel, to, &at)?);
        }
        let to = evenly(kernel, *buffer, &firsts, SIDE).filter(|_| kernel.buffer(*buffer).dtype == DType::I32)?;
        Some((*sums, Act::Copy(to), rows as usize))
    };
    match stmts.first()? {
        Stmt::For(l) if l.kind == LoopKind::Serial && l.extent <= SIDE => {
            let (sums, act) = products(kernel, &l.body, Some((l.var, l.extent)))?;
            Some((sums, act, 1))
        }
        Stmt::Store { buffer, value: Expr::Binary(..), .. } => {
            let rows = rows_of(kernel, *buffer)? as usize;
            let (sums, act) = products(kernel, stmts.get(..rows)?, None)?;
            Some((sums, act, rows))
        }
        _ => zero_or_copy(),
    }
}

/// The products of tiles that statements add up, with the variable of their words.
fn products(kernel: &Kernel, body: &[Stmt], word: Option<(VarId, i64)>) -> Option<(BufferId, Act)> {
    let Some(Stmt::Store { buffer: sums, .. }) = body.first() else { return None };
    if rows_of(kernel, *sums) != Some(body.len() as i64) {
        return None;
    }
    // Where words of a place lie, without the variable of the words, and how far they are apart.
    let place = |b: BufferId, indices: &[Expr]| {
        let mut first = first_of(kernel, b, indices)?;
        let apart = word.map_or(0, |(var, _)| first.terms.remove(&var).unwrap_or(0));
        Some((first, apart))
    };
    let words = word.map_or(1, |(_, words)| words);
    let (mut pixels, mut channels) = (vec![], None);
    for (stmt, row) in body.iter().zip(0..) {
        let Stmt::Store { buffer, indices, value } = stmt else { return None };
        let (Some(Expr::Load(sum, at)), Expr::Load(x, x_at), Expr::Load(w, w_at)) = dot(value)? else { return None };
        let is_sum = buffer == sums && sum == sums && is_row_of(indices, row) && is_row_of(at, row);
        let scalar = x_at.iter().all(|e| e.ty(kernel).lanes == 1);
        let runs = w_at.last().is_some_and(is_row) && w_at.iter().rev().skip(1).all(|e| e.ty(kernel).lanes == 1);
        let (pixel, step) = place(*x, x_at)?;
        let channel = (*w, place(*w, w_at)?);
        let same = pixels.first().is_none_or(|(first, _)| first == x)
            && channels.get_or_insert_with(|| channel.clone()) == &channel;
        if !is_sum || !scalar || !runs || !same || (word.is_some() && step != 1) {
            return None;
        }
        pixels.push((*x, pixel));
    }
    let (w, (first, pitch)) = channels?;
    let x = pixels[0].0;
    let signed = [x, w].map(|b| kernel.buffer(b).dtype);
    if !signed.iter().all(|d| [DType::I8x4, DType::U8x4].contains(d)) || kernel.buffer(w).strides.last() != Some(&1) {
        return None;
    }
    let firsts: Vec<Affine> = pixels.into_iter().map(|(_, first)| first).collect();
    let x = evenly(kernel, x, &firsts, words)?;
    let w = Rows { buffer: w, first, pitch: if word.is_some() { pitch } else { SIDE }, rows: words, words: SIDE };
    (w.pitch > 0).then(|| (*sums, Act::Products([x, w], signed.map(|d| d == DType::I8x4))))
}

/// Calls `f` with each act on a tile, and notes what else is done with buffers that might be tiles.
fn acts(kernel: &Kernel, stmts: &[Stmt], others: &mut BTreeSet<BufferId>, f: &mut impl FnMut(BufferId, &Act)) {
    let mut at = 0;
    while at < stmts.len() {
        if let Some((sums, act, count)) = act(kernel, &stmts[at..]) {
            f(sums, &act);
            at += count;
            continue;
        }
        match &stmts[at] {
            Stmt::For(l) => acts(kernel, &l.body, others, f),
            Stmt::If { cond, then, otherwise } => {
                note(kernel, |b| cond.reads(b), others);
                acts(kernel, then, others, f);
                acts(kernel, otherwise, others, f);
            }
            Stmt::Alloc(_) => {}
            other => note(kernel, |b| other.reads(b) || other.writes(b), others),
        }
        at += 1;
    }
}

/// Notes the buffers that might be tiles and are touched.
fn note(kernel: &Kernel, touched: impl Fn(BufferId) -> bool, others: &mut BTreeSet<BufferId>) {
    let all = (0..kernel.buffers.len()).map(|i| BufferId(i as u32));
    others.extend(all.filter(|b| rows_of(kernel, *b).is_some() && touched(*b)));
}

impl Plan {
    /// The registers of the sums that a block makes, if there are enough for them and for the operands of each product: `operands` says
    /// of each shape how many of it a product has.
    fn of(kernel: &Kernel, sums: Vec<BufferId>, operands: &BTreeMap<[i64; 2], usize>) -> Option<Plan> {
        let mut shapes: Vec<[i64; 2]> = sums.iter().map(|b| [rows_of(kernel, *b).unwrap_or(SIDE), SIDE]).collect();
        let mut plan: Vec<([i64; 2], Vec<usize>)> = operands.keys().map(|shape| (*shape, vec![])).collect();
        if plan.is_empty() || shapes.len() + operands.values().sum::<usize>() > TILES {
            return None;
        }
        // What a product needs comes first; what is left over goes around.
        let second = operands.values().enumerate().filter(|(_, count)| **count > 1).map(|(at, _)| at);
        let order = (0..plan.len()).chain(second).chain((0..plan.len()).cycle());
        for (register, at) in (shapes.len()..TILES).zip(order) {
            plan[at].1.push(register);
            shapes.push(plan[at].0);
        }
        Some(Plan { sums, operands: plan, shapes })
    }

    /// The 64 bytes of the configuration: a palette, and for each register the bytes of a row and the number of rows.
    pub(super) fn configuration(&self) -> String {
        let bytes = self.shapes.iter().enumerate().map(|(i, [_, words])| format!("[{}] = {}", 16 + 2 * i, 4 * words));
        let rows = self.shapes.iter().enumerate().map(|(i, [rows, _])| format!("[{}] = {rows}", 48 + i));
        let all: Vec<String> = ["1".to_string()].into_iter().chain(bytes).chain(rows).collect();
        all.join(", ")
    }
}

impl Matrix {
    /// What of the body of a function is done by tiles.
    pub(super) fn of(kernel: &Kernel, body: &[Stmt]) -> Matrix {
        let mut matrix = Matrix::default();
        let mut others = BTreeSet::new();
        acts(kernel, body, &mut others, &mut |_, _| {});
        matrix.plan(kernel, body, &others);
        matrix
    }

    fn plan(&mut self, kernel: &Kernel, stmts: &[Stmt], others: &BTreeSet<BufferId>) {
        let of_block = stmts.iter().filter_map(|stmt| match stmt {
            Stmt::Alloc(b) if rows_of(kernel, *b).is_some() && !others.contains(b) => Some(*b),
            _ => None,
        });
        let sums: Vec<BufferId> = of_block.collect();
        if sums.is_empty() {
            for stmt in stmts {
                match stmt {
                    Stmt::For(l) => self.plan(kernel, &l.body, others),
                    Stmt::If { then, otherwise, .. } => {
                        self.plan(kernel, then, others);
                        self.plan(kernel, otherwise, others);
                    }
                    _ => {}
                }
            }
            return;
        }
        // Tiles of a block within it would take the same registers.
        let (mut operands, mut nested) = (BTreeMap::<[i64; 2], usize>::new(), false);
        acts(kernel, stmts, &mut BTreeSet::new(), &mut |b, act| {
            nested |= !sums.contains(&b) && !others.contains(&b);
            if let Act::Products(both, _) = act
                && sums.contains(&b)
            {
                let [x, w] = [0, 1].map(|i| [both[i].rows, both[i].words]);
                for shape in [x, w] {
                    let most = operands.entry(shape).or_default();
                    *most = (*most).max(if x == w { 2 } else { 1 });
                }
            }
        });
        if let Some(plan) = Plan::of(kernel, sums.clone(), &operands).filter(|_| !nested) {
            self.plans.extend(sums.into_iter().map(|b| (b, plan.clone())));
        }
    }

    /// Whether a buffer is a tile.
    pub(super) fn has(&self, b: BufferId) -> bool {
        self.plans.contains_key(&b)
    }
}
