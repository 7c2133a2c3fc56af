//! The engine of products with a ring of `cp.async`: [`mma`](super::mma) and [`simt`](super::simt) are this with their own
//! registers.
//!
//! A block has a tile of the output and goes through the reduction in steps. `cp.async` brings both operands' tiles of a step into
//! a ring of slots, as many steps ahead as there are slots but one, so that one barrier a step is enough: behind it everybody
//! sees the step's tiles, and nobody still reads the slot that is filled next. Operands go to registers one part of a step ahead
//! of the products that need them. Where blocks share a reduction, each has its own steps, and their sums meet in a second
//! launch or as the [`Fragments`] have it.
//!
//! Elements that lie in no piece of four bytes, which is the least that `cp.async` copies, go to the same slots by way of registers:
//! loaded when the other operand's copies are issued, and stored behind the step's products, in front of its barrier.
//!
//! The parts: a [`Product`] says where operands and outputs lie (source and epilogue), this module is the transport, and
//! [`Fragments`] multiply and keep the sums. How a thread's copies lie in a slot is theirs as well: `mma` copies the right
//! operand in a loop, `simt` turns operands around.
//!
//! What keeps a loop of its own would emit other code here: Winograd's products leave out copies behind the last step by a branch
//! and hold the operands of one term; `splitk` has a ring for each warp and no barrier of the block; `split`, `wgmma` and their
//! kin have producers and consumers, whose barriers are [`ring`](super::ring); `stem` and `pointwise` have no ring.

use super::cut::{Cut, Whole, is_narrow};
use super::guards::inside;
use super::instructions::copy_async;
use super::launch::{LANE, cluster, grid, threads};
use super::product::{Column, Outputs, Product, place};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, Expr, Gpu, Group, Kernel, Scope, Stmt, VarId};
use crate::target::Cuda;
use crate::workload::operands::Operands;

/// What multiplies: the registers of threads or of warps.
pub(super) trait Fragments {
    /// The ring, and the registers.
    type Memory;

    /// Parts of a step that are multiplied one after the other.
    fn parts(&self) -> i64;

    /// Of a slot of each operand the lines, and the elements of a line.
    fn lines(&self) -> [[i64; 2]; 2];

    /// Allocates the memory of a block beside its ring.
    fn memory(&self, b: &mut KernelBuilder, block: &Block<'_>, ring: [BufferId; 2]) -> Self::Memory;

    /// Names what does not change from step to step of what a thread copies of an operand, whose tile is number `at`. All pieces
    /// of an operand that [`is_narrow`] are here.
    fn copied(&self, b: &mut KernelBuilder, block: &Block<'_>, side: usize, at: VarId) -> Vec<Copied>;

    /// Has `copy` bring what a thread copies of the right operand and has no names for.
    fn copy_right(&self, b: &mut KernelBuilder, block: &Block<'_>, copy: &dyn Fn(&mut KernelBuilder, Copied)) {
        let _ = (b, block, copy);
    }

    /// Sets the sums to zero; the first tiles are under way.
    fn clear(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Self::Memory);

    /// Brings the operands of part `k` of a slot to registers.
    fn bring(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Self::Memory, slot: &Expr, k: i64);

    /// Multiplies the operands of part `k` of a step.
    fn multiply(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Self::Memory, k: i64);

    /// Stores the outputs of the tile at `place`.
    fn store(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Self::Memory, place: [VarId; 2]);

    /// Gives the sums to the launch behind, with [`Block::give`].
    fn give(&self, b: &mut KernelBuilder, block: &Block<'_>, memory: &Self::Memory, place: [VarId; 2]);
}

/// The kernel of a product.
pub(super) fn kernel<F: Fragments>(product: &dyn Product, cut: Cut, fragments: &F) -> Kernel {
    let (w, Whole { batch: batches, size: [m, _], .. }) = (product.workload(), cut.whole);
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::typed(&mut b, w, |p| (product.dtype(p), product.shape(p)));
    let ranks = if cut.clustered { 1 } else { cut.split };
    let shape = [ranks, batches, m, cut.partial_pitch()];
    let partial = (ranks > 1).then(|| b.alloc("partial", product.sums(), &shape, Scope::Global));
    let [down, across] = cut.tiles();
    grid(&mut b, [("part", ranks), ("batch", batches), ("tile", down * across)], |b, [part, batch, tile]| {
        let batch = if batches > 1 { batch.into() } else { Expr::Int(0) };
        cluster(b, if cut.clustered { cut.split } else { 1 }, |b, rank| {
            let rank = if ranks > 1 { part.into() } else { rank };
            threads(b, [("warp", cut.warps), LANE], |b, [warp, lane]| {
                Block { product, cut, params: &params, partial, batch, tile, rank, warp, lane }.run(b, fragments);
            });
        });
    });
    if let Some(partial) = partial {
        Outputs { product, params: &params, cut }.add_parts(&mut b, partial);
    }
    b.finish()
}

/// What a thread knows of its place.
pub(super) struct Block<'a> {
    pub(super) product: &'a dyn Product,
    pub(super) cut: Cut,
    params: &'a Operands,
    /// Where the sums of parts of the reduction go, if another launch adds them up.
    partial: Option<BufferId>,
    batch: Expr,
    tile: VarId,
    /// Which part of the reduction this block has.
    pub(super) rank: Expr,
    pub(super) warp: VarId,
    pub(super) lane: VarId,
}

/// A piece that a thread copies in each step.
pub(super) struct Copied {
    /// Where it goes in a slot.
    pub(super) at: [Expr; 2],
    /// Where its first element is in the tile along the output, and along the reduction.
    pub(super) outer: Expr,
    pub(super) term: Expr,
    /// What the product named of its row or column.
    pub(super) named: Vec<Expr>,
    /// The condition that there is such a piece; none where there always is.
    pub(super) within: Option<Expr>,
}

/// What a block and a thread of it copy in each step.
struct Copies {
    ring: [BufferId; 2],
    /// What the product named of the block.
    block: Vec<Expr>,
    /// What this thread has names for, of both operands.
    own: [Vec<Copied>; 2],
    /// The registers of an operand whose pieces are too narrow for `cp.async`.
    held: [Option<BufferId>; 2],
    /// The tile of columns.
    tile_n: VarId,
}

/// Which step's tiles are brought where.
struct Fetch {
    /// Among those of the whole reduction.
    step: Expr,
    slot: Expr,
    /// The condition that there is such a step; none where there always is.
    more: Option<Expr>,
}

impl Block<'_> {
    /// This thread's number in the block.
    pub(super) fn thread(&self) -> Expr {
        self.warp * Cuda::WARP + self.lane
    }

    /// The element of an operand that stands for 0.
    pub(super) fn zero(&self, side: usize) -> Expr {
        match side == 0 && self.product.workload().quant.input_zero {
            true => Expr::load(self.params.get("input_zero"), vec![0.into()]),
            false => Expr::zero(self.product.operand_types()[side]),
        }
    }

    /// All that a thread does.
    fn run<F: Fragments>(&self, b: &mut KernelBuilder, fragments: &F) {
        let Cut { stages, group, .. } = self.cut;
        let (steps, parts, ahead) = (self.cut.steps(), fragments.parts(), stages - 1);
        let place = place(b, self.tile, self.cut.tiles(), group);
        let ring = self.cut.ring(b, self.product.operand_types(), fragments.lines());
        let memory = fragments.memory(b, self, ring);
        let own = [0, 1].map(|side| fragments.copied(b, self, side, place[side]));
        let block = self.product.block(b, &self.batch);
        let held = self.held(b, &own);
        let copies = Copies { ring, block, own, held, tile_n: place[1] };
        let first = b.let_("first_step", self.rank.clone() * steps);
        for step in 0..ahead {
            let slot = Expr::Int(step);
            self.fetch(b, fragments, &copies, Fetch { step: first + step, slot: slot.clone(), more: None });
            self.land(b, &copies, &slot);
        }
        fragments.clear(b, self, &memory);
        let arrive = |b: &mut KernelBuilder| {
            b.gpu(Gpu::Wait(Group::Copy, (ahead - 1) as u32));
            // What was copied is seen by all, and all have read what the next tile goes over.
            b.push(Stmt::Barrier(Barrier::Block));
        };
        arrive(b);
        fragments.bring(b, self, &memory, &Expr::Int(0), 0);
        let met = self.product.steps(&copies.block);
        let met = met.map(|met| if self.cut.split > 1 { met - first } else { met });
        b.for_("step", steps, |b, step| {
            let all = |b: &mut KernelBuilder| {
                let slot = |b: &mut KernelBuilder, name: &str, step: Expr| b.let_(name, step.floor_mod(stages)).into();
                let here = slot(b, "slot", step.into());
                let next = slot(b, "next_slot", step + 1);
                let fetched = step + ahead;
                let filled = fetched.clone().floor_mod(stages);
                for k in 0..parts {
                    if k + 1 < parts {
                        fragments.bring(b, self, &memory, &here, k + 1);
                    }
                    if k == 0 {
                        // No branch, so that compilers mix this with the products. Behind the last step come zeros, which
                        // are brought to registers and not multiplied.
                        let more = Some(fetched.clone().lt(met.clone().unwrap_or(steps.into())));
                        let (step, slot) = (first + fetched.clone(), filled.clone());
                        self.fetch(b, fragments, &copies, Fetch { step, slot, more });
                    }
                    // The first operands of the next step come while the last of this one are multiplied, if it has several.
                    let last = k + 1 == parts;
                    let bring_next = |b: &mut KernelBuilder| {
                        self.land(b, &copies, &filled);
                        arrive(b);
                        fragments.bring(b, self, &memory, &next, 0);
                    };
                    if last && parts > 1 {
                        bring_next(b);
                    }
                    fragments.multiply(b, self, &memory, k);
                    if last && parts == 1 {
                        bring_next(b);
                    }
                }
            };
            match &met {
                Some(met) => b.if_(Expr::from(step).lt(met.clone()), all),
                None => all(b),
            }
        });
        match self.partial {
            Some(_) => fragments.give(b, self, &memory, place),
            None => fragments.store(b, self, &memory, place),
        }
    }

    /// The registers of operands whose pieces have fewer bytes than `cp.async` copies.
    fn held(&self, b: &mut KernelBuilder, own: &[Vec<Copied>; 2]) -> [Option<BufferId>; 2] {
        let (units, types) = (self.product.units(), self.product.operand_types());
        let names = ["left_held", "right_held"];
        [0, 1].map(|side| {
            let narrow = is_narrow(units[side] * types[side].bytes() as i64);
            narrow.then(|| b.alloc(names[side], types[side], &[own[side].len() as i64], Scope::Register))
        })
    }

    /// Has the tiles of a step brought to a slot; zeros, where there is no such step. What is too narrow for `cp.async` comes to
    /// registers, and [`land`](Block::land) stores it.
    fn fetch<F: Fragments>(&self, b: &mut KernelBuilder, fragments: &F, copies: &Copies, fetch: Fetch) {
        let Fetch { step, slot, more } = fetch;
        let (units, operands) = (self.product.units(), self.product.operands());
        let k = b.let_("k", step * self.cut.tile_k);
        let step = self.product.step(b, &copies.block, &k.into());
        let copy = |b: &mut KernelBuilder, side: usize, number: usize, copied: &Copied| {
            let Copied { at: [line, column], outer, term, named, within } = copied;
            let piece = match side {
                0 => self.product.left(&self.batch, named, &step, term.clone()),
                _ => {
                    let column = Column { tile: &copies.tile_n.into(), within: outer.clone(), named };
                    self.product.right(&self.batch, &column, &step, term.clone())
                }
            };
            let to = (copies.ring[side], [slot.clone(), line.clone(), column.clone()]);
            let from = (self.params.at(operands[side]), piece.index);
            let guard = Expr::all(more.clone().into_iter().chain(piece.exists));
            match copies.held[side] {
                None => b.when(within.clone(), |b| copy_async(b, to, from, units[side], guard)),
                Some(held) => {
                    let guard = Expr::all(within.clone().into_iter().chain(guard));
                    let number = Expr::Int(number as i64);
                    b.store(held, vec![number.clone()], self.zero(side));
                    b.when(guard, |b| b.store(held, vec![number], Expr::load(from.0, from.1)));
                }
            }
        };
        for (side, own) in copies.own.iter().enumerate() {
            own.iter().enumerate().for_each(|(number, copied)| copy(b, side, number, copied));
        }
        fragments.copy_right(b, self, &|b, copied| copy(b, 1, 0, &copied));
        if copies.held == [None; 2] {
            b.gpu(Gpu::Commit(Group::Copy));
        }
    }

    /// Stores to a slot what [`fetch`](Block::fetch) brought to registers, and ends the step's group of copies.
    fn land(&self, b: &mut KernelBuilder, copies: &Copies, slot: &Expr) {
        for (side, held) in copies.held.into_iter().enumerate() {
            let Some(held) = held else { continue };
            for (number, copied) in copies.own[side].iter().enumerate() {
                let [line, column] = copied.at.clone();
                let value = Expr::load(held, vec![Expr::Int(number as i64)]);
                let to = vec![slot.clone(), line, column];
                b.when(copied.within.clone(), |b| b.store(copies.ring[side], to, value));
            }
        }
        if copies.held != [None; 2] {
            b.gpu(Gpu::Commit(Group::Copy));
        }
    }

    /// Writes neighbours of a row of the tile: `count` sums that `value` gives, by their distance from the first.
    pub(super) fn write(
        &self,
        b: &mut KernelBuilder,
        place: [VarId; 2],
        at: [Expr; 2],
        count: i64,
        value: &dyn Fn(&Expr) -> Expr,
    ) {
        let outputs = Outputs { product: self.product, params: self.params, cut: self.cut };
        outputs.write(b, &self.batch, place, at, count, value);
    }

    /// Writes four neighbours of rows that are woven: see [`Outputs::write_woven`].
    pub(super) fn write_woven(
        &self,
        b: &mut KernelBuilder,
        place: [VarId; 2],
        at: [Expr; 2],
        first: i64,
        value: &dyn Fn(&Expr) -> Expr,
    ) {
        let outputs = Outputs { product: self.product, params: self.params, cut: self.cut };
        outputs.write_woven(b, &self.batch, place, at, first, value);
    }

    /// Gives neighbours of a row of the tile to the launch behind: `store` gets the buffer, and the index of the first. Rows are
    /// padded, so that they exist as a whole.
    pub(super) fn give(
        &self,
        b: &mut KernelBuilder,
        place: [VarId; 2],
        at: [Expr; 2],
        store: impl FnOnce(&mut KernelBuilder, BufferId, [Expr; 4]),
    ) {
        let Some(partial) = self.partial else { return };
        let (sizes, tile, [row, column]) = ([self.cut.whole.size[0], self.cut.partial_pitch()], self.cut.tile, at);
        let at = [place[0] * tile[0] + row, place[1] * tile[1] + column];
        let exists = inside(&at, sizes, tile);
        let [row, column] = at;
        let to = [self.rank.clone(), self.batch.clone(), row, column];
        b.when(exists, |b| store(b, partial, to));
    }
}
