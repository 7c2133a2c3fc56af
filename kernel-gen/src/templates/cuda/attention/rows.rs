//! Rows of scores that become weights, step by step, in the registers of the threads that hold them.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BinOp, BufferId, DType, Expr, Gpu, LaneOp, LoopKind, Scope, Tile, UnOp, VarId};
use crate::templates::cuda::guards::below;
use crate::templates::cuda::instructions::tile;
use crate::templates::cuda::launch::unrolled;
use crate::templates::cuda::outer::{LANES, VECTOR};
use crate::templates::cuda::outputs::finish;
use crate::workload::attention::{Mask, OfHeads};
use crate::workload::operands::Operands;
use crate::workload::{Attention, Workload};
use std::f64::consts::LOG2_E;

/// How threads hold scores and weighted values.
#[derive(Clone, Copy)]
pub(super) enum Held {
    /// In fragments of `height` rows: a thread has pairs of neighbours in two rows of each sixteen, eight apart, and four lanes have
    /// a row between them.
    Fragments { height: i64 },
    /// In registers: [`ACROSS`] lanes share a row. Lane `lane` of these has every eighth score from its own number on, and vectors of values.
    Registers { lane: VarId },
}

/// Lanes that have a row between them, if it is held in registers.
pub(super) const ACROSS: i64 = LANES[1];

impl Held {
    /// Rows of a thread that are told apart by the place of a fragment's element.
    fn halves(self) -> i64 {
        match self {
            Held::Fragments { .. } => 2,
            Held::Registers { .. } => 1,
        }
    }

    /// What lanes of a row exchange numbers by: each step halves how many different ones there are.
    fn steps(self) -> &'static [&'static str] {
        match self {
            Held::Fragments { .. } => &["shuffle_xor_1", "shuffle_xor_2"],
            // `lanes_of` has the bits between the lowest and the highest.
            Held::Registers { .. } => &["shuffle_xor_2", "shuffle_xor_4", "shuffle_xor_8"],
        }
    }
}

/// An element of scores or of weighted values, in the thread that has it.
struct Element {
    /// Its place in what holds it.
    at: Vec<Expr>,
    /// Its row behind the first of those with its number, and its column.
    row: Expr,
    column: Expr,
    /// The place of what the thread knows of its row, and of the part of that which is the column's.
    state: Vec<Expr>,
    part: Vec<Expr>,
}

/// The rows of a warp, or of a warpgroup: `count` times as many as are visited together.
pub(super) struct Rows<'a> {
    pub(super) w: &'a Workload,
    pub(super) of: Attention,
    pub(super) params: &'a Operands,
    pub(super) place: Place,
    pub(super) held: Held,
    /// Rows that a block has, by which it may go beyond the last query.
    pub(super) block_rows: i64,
    /// Keys of a step, and elements of a value with those that fill up a product.
    pub(super) keys: i64,
    pub(super) width: i64,
    /// Sums: scores `[count, height, keys]` and weighted values `[count, height, width]` of fragments, or a thread's own ones of them.
    pub(super) scores: BufferId,
    pub(super) mixed: BufferId,
    pub(super) state: State,
}

/// Where a block is: the image and the head of its queries, and their tile.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) image: VarId,
    pub(super) head: VarId,
    pub(super) tile: VarId,
}

impl Place {
    /// Names the place of block `number` of `tiles` of a head of the batch.
    pub(super) fn of(b: &mut KernelBuilder, of: &Attention, tiles: i64, [head, number]: [VarId; 2]) -> Place {
        // Of queries that see the keys before them alone the last ones take the longest: they begin first.
        let number = if of.causal { Expr::Int(tiles - 1) - Expr::from(number) } else { number.into() };
        let tile = b.let_("query_tile", number);
        let image = b.let_("image", Expr::from(head).floor_div(of.heads));
        Place { tile, image, head: b.let_("query_head", Expr::from(head).floor_mod(of.heads)) }
    }
}

/// What a thread knows of its rows.
pub(super) struct State {
    /// The largest score so far, times what makes exponents of two of scores.
    largest: BufferId,
    /// What sums so far are multiplied by.
    factor: BufferId,
    /// The largest score of a step, and the sum of weights, of the even and of the odd columns that the thread has.
    partial: BufferId,
    total: BufferId,
    /// What another lane of the row has.
    other: BufferId,
}

impl State {
    /// Of `rows` of each thread: their numbers, and those with one number.
    pub(super) fn make(b: &mut KernelBuilder, rows: [i64; 2]) -> State {
        let [count, halves] = rows;
        let mut register = |name: &str, shape: &[i64]| b.alloc(name, DType::F32, shape, Scope::Register);
        let [largest, factor] = ["largest", "factor"].map(|name| register(name, &[count, halves]));
        let [partial, total] = ["partial", "total"].map(|name| register(name, &[count, halves, 2]));
        State { largest, factor, partial, total, other: register("other", &[1]) }
    }

    /// Registers of a thread with `rows` rows.
    pub(super) fn registers(rows: i64) -> i64 {
        6 * rows + 1
    }
}

/// One of the two columns of a thread's pair.
fn of_pair(place: &[Expr], pair: Expr) -> Vec<Expr> {
    [place, &[pair]].concat()
}

impl Rows<'_> {
    /// The sums of rows with number `i`.
    pub(super) fn sums(&self, buffer: BufferId, i: i64, columns: i64) -> Tile {
        let Held::Fragments { height } = self.held else { unreachable!("registers are no fragments") };
        tile(buffer, [i.into(), 0.into(), 0.into()], &[height, columns])
    }

    /// The places of what a thread knows of the rows with number `i`.
    fn states(&self, i: i64) -> impl Iterator<Item = Vec<Expr>> + use<> {
        (0..self.held.halves()).map(move |half| vec![i.into(), half.into()])
    }

    /// No key was seen yet.
    pub(super) fn begin(&self, b: &mut KernelBuilder, i: i64) {
        for place in self.states(i) {
            b.store(self.state.largest, place.clone(), Expr::f32(f64::NEG_INFINITY));
            (0..2).for_each(|pair| b.store(self.state.total, of_pair(&place, pair.into()), Expr::f32(0.0)));
        }
    }

    /// Visits elements of fragments, each in the thread that has it.
    fn each_of_fragments(
        b: &mut KernelBuilder,
        (i, height, columns): (i64, i64, i64),
        body: impl FnOnce(&mut KernelBuilder, Element),
    ) {
        b.loop_("row", height, LoopKind::FragmentRow, |b, row| {
            b.loop_("column", columns, LoopKind::FragmentCol, |b, column| {
                let state = vec![i.into(), Expr::from(row).floor_mod(16).floor_div(8)];
                let part = of_pair(&state, Expr::from(column).floor_mod(2));
                let at = vec![i.into(), row.into(), column.into()];
                body(b, Element { at, row: row.into(), column: column.into(), state, part });
            });
        });
    }

    /// Visits scores of the rows with number `i`.
    fn each_score(&self, b: &mut KernelBuilder, i: i64, body: impl FnOnce(&mut KernelBuilder, Element)) {
        match self.held {
            Held::Fragments { height } => Self::each_of_fragments(b, (i, height, self.keys), body),
            Held::Registers { lane } => unrolled(b, "score", self.keys / ACROSS, |b, j| {
                let state = vec![i.into(), 0.into()];
                let part = of_pair(&state, Expr::from(j).floor_mod(2));
                let at = vec![i.into(), j.into()];
                body(b, Element { at, row: 0.into(), column: j * ACROSS + lane, state, part });
            }),
        }
    }

    /// Visits weighted values of the rows with number `i`; `vectors` of registers, if they are to be.
    fn each_value(
        &self,
        b: &mut KernelBuilder,
        (i, vectors): (i64, bool),
        body: impl FnOnce(&mut KernelBuilder, Element),
    ) {
        match self.held {
            Held::Fragments { height } => Self::each_of_fragments(b, (i, height, self.width), body),
            Held::Registers { lane } => unrolled(b, "vector", self.width / (ACROSS * VECTOR), |b, vector| {
                let kind = if vectors { LoopKind::Vectorized } else { LoopKind::Unrolled };
                b.loop_("element", VECTOR, kind, |b, element| {
                    let state = vec![i.into(), 0.into()];
                    let part = of_pair(&state, 0.into());
                    let at = vec![i.into(), vector * VECTOR + element];
                    let column = vector * (ACROSS * VECTOR) + lane * VECTOR + element;
                    body(b, Element { at, row: 0.into(), column, state, part });
                });
            }),
        }
    }

    /// What the lanes of a row have, combined into what each of them has.
    fn combine(&self, b: &mut KernelBuilder, at: (BufferId, Vec<Expr>), with: impl Fn(Expr, Expr) -> Expr) {
        let (buffer, index) = at;
        for name in self.held.steps() {
            let op = LaneOp::find(name).expect("an instruction of the table");
            let own = Expr::load(buffer, index.clone());
            b.gpu(Gpu::Lanes { op, dst: tile(self.state.other, [0.into()], &[1]), value: own.clone() });
            b.store(buffer, index.clone(), with(own, Expr::load(self.state.other, vec![0.into()])));
        }
    }

    /// What makes an exponent of two of a score: the scale, unless that and a mask are in it already.
    fn exponent(&self) -> f64 {
        if self.of.mask == Mask::None { self.of.scale() * LOG2_E } else { LOG2_E }
    }

    /// Masks the scores of a step that begins with key `first_key`, of the rows from `first_row` on.
    fn mask(&self, b: &mut KernelBuilder, i: i64, first_row: &Expr, first_key: &Expr) {
        let of = &self.of;
        self.each_score(b, i, |b, Element { at, row, column, .. }| {
            let (query, key) = (first_row.clone() + row, first_key.clone() + column);
            let score = Expr::load(self.scores, at.clone());
            let (last_query, last_key) = (query.clone().min(of.m - 1), key.clone().min(of.n - 1));
            let added = of.mask_index([self.place.image.into(), self.place.head.into(), last_query, last_key]);
            let score = match added {
                Some(index) => score * Expr::f32(of.scale()) + Expr::load(self.params.get("mask"), index),
                None => score,
            };
            let seen = of.causal.then(|| key.clone().le(query));
            let seen = Expr::all(below(key, of.n, self.keys).into_iter().chain(seen));
            let least = Expr::f32(f64::NEG_INFINITY);
            b.store(self.scores, at, seen.map_or(score.clone(), |seen| seen.select(score, least)));
        });
    }

    /// Makes weights of the scores of the rows with number `i`, and adds them up. What they have so far is yet to be multiplied by
    /// [`rescale`](Rows::rescale).
    pub(super) fn weigh(&self, b: &mut KernelBuilder, i: i64, first_row: &Expr, first_key: &Expr) {
        let (of, state, exponent) = (&self.of, &self.state, Expr::f32(self.exponent()));
        let ragged = of.n % self.keys != 0;
        if of.mask != Mask::None {
            self.mask(b, i, first_row, first_key);
        } else if ragged || of.causal {
            // Most steps have keys that all of these queries see.
            let last = first_key.clone() + (self.keys - 1);
            let beyond = ragged.then(|| Expr::Int(of.n).le(last.clone()));
            let ahead = of.causal.then(|| first_row.clone().lt(last));
            let some = beyond.into_iter().chain(ahead).reduce(|a, b| a.or(b)).expect("there is a reason");
            b.if_(some, |b| self.mask(b, i, first_row, first_key));
        }
        for place in self.states(i) {
            let before = Expr::load(state.largest, place.clone());
            // Without a mask scores are compared before they are scaled.
            (0..2).for_each(|pair| b.store(state.partial, of_pair(&place, pair.into()), Expr::f32(f64::NEG_INFINITY)));
            b.store(state.factor, place, before);
        }
        self.each_score(b, i, |b, Element { at, part, .. }| {
            let score = Expr::load(self.scores, at);
            b.store(state.partial, part.clone(), Expr::load(state.partial, part).max(score));
        });
        for place in self.states(i) {
            let (first, second) = (of_pair(&place, 0.into()), of_pair(&place, 1.into()));
            let load = |buffer: BufferId, at: &[Expr]| Expr::load(buffer, at.to_vec());
            b.store(state.partial, first.clone(), load(state.partial, &first).max(load(state.partial, &second)));
            self.combine(b, (state.partial, first.clone()), |own, other| own.max(other));
            let step = load(state.partial, &first) * exponent.clone();
            b.store(state.largest, place.clone(), load(state.factor, &place).max(step));
            // Where no key was seen yet, nothing is subtracted from scores of minus infinity, whose weights are zeros.
            let now = load(state.largest, &place);
            let least = Expr::f32(f64::NEG_INFINITY);
            b.store(state.partial, first.clone(), now.clone().eq(least).select(Expr::f32(0.0), now));
            let apart = load(state.factor, &place) - load(state.partial, &first);
            b.store(state.factor, place.clone(), Expr::un(UnOp::Exp2, apart));
            for pair in [first, second] {
                b.store(state.total, pair.clone(), load(state.total, &pair) * load(state.factor, &place));
            }
        }
        self.each_score(b, i, |b, Element { at, state: of, .. }| {
            let largest = Expr::load(state.partial, of_pair(&of, 0.into()));
            let apart = Expr::load(self.scores, at.clone()) * exponent - largest;
            b.store(self.scores, at, Expr::un(UnOp::Exp2, apart));
        });
        self.each_score(b, i, |b, Element { at, part, .. }| {
            let weight = Expr::load(self.scores, at);
            b.store(state.total, part.clone(), Expr::load(state.total, part) + weight);
        });
    }

    /// Multiplies what the rows have so far by what the last step's scores make of it.
    pub(super) fn rescale(&self, b: &mut KernelBuilder, i: i64) {
        self.each_value(b, (i, false), |b, Element { at, state, .. }| {
            let factor = Expr::load(self.state.factor, state);
            b.store(self.mixed, at.clone(), Expr::load(self.mixed, at) * factor);
        });
    }

    /// Stores the outputs of the rows with number `i`.
    pub(super) fn store(&self, b: &mut KernelBuilder, i: i64, first_row: &Expr) {
        let (of, total) = (&self.of, self.state.total);
        for place in self.states(i) {
            let (first, second) = (of_pair(&place, 0.into()), of_pair(&place, 1.into()));
            b.store(total, first.clone(), Expr::load(total, first.clone()) + Expr::load(total, second));
            self.combine(b, (total, first), |own, other| own + other);
        }
        self.each_value(b, (i, of.dv % VECTOR == 0), |b, Element { at, row, column, state, .. }| {
            let query = first_row.clone() + row;
            let exists = below(query.clone(), of.m, self.block_rows).into_iter();
            let exists = Expr::all(exists.chain(below(column.clone(), of.dv, self.width)));
            let total = Expr::load(total, of_pair(&state, 0.into()));
            let value = Expr::load(self.mixed, at);
            let at = [self.place.image.into(), self.place.head.into(), query, column.clone()];
            let index = of.index(OfHeads::Outputs, at);
            // A row that sees no key is 0, whatever the values are.
            let none = total.clone().eq(Expr::f32(0.0));
            let mean = none.select(Expr::f32(0.0), Expr::bin(BinOp::Div, value, total));
            b.when(exists, |b| finish(b, (self.w, self.params), &column, index, mean));
        });
    }
}
