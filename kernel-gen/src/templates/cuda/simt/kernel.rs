//! The kernel: a ring of tiles in shared memory, and outer products in the registers of threads.

use super::{LANES, Plan, TURNED, VECTOR};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Axis, Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, LoopKind, Scope, Stmt, VarId};
use crate::target::Cuda;
use crate::templates::cuda::outer::{lanes_of, there_and_back};
use crate::templates::cuda::product::{self, Fetch, Layout, Product};
use crate::templates::cuda::{tile, unrolled};
use crate::workload::operands::Operands;

/// The kernel of a product.
pub(super) fn kernel(product: &dyn Product, plan: &Plan) -> Kernel {
    let w = product.workload();
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::shaped(&mut b, w, |p| product.shape(p));
    let partial = (plan.sizes.split > 1).then(|| {
        b.alloc("partial", DType::F32, &[plan.sizes.split, plan.batch, plan.m, plan.partial_pitch()], Scope::Global)
    });
    let [down, across] = plan.tiles();
    b.loop_("part", plan.sizes.split, LoopKind::Grid(Axis::Z), |b, part| {
        b.loop_("batch", plan.batch, LoopKind::Grid(Axis::Y), |b, batch| {
            b.loop_("tile", down * across, LoopKind::Grid(Axis::X), |b, tile| {
                b.loop_("warp", plan.sizes.warps(0) * plan.sizes.warps(1), LoopKind::Thread(Axis::Y), |b, warp| {
                    b.loop_("lane", Cuda::WARP, LoopKind::Thread(Axis::X), |b, lane| {
                        let batch = if plan.batch > 1 { batch.into() } else { Expr::Int(0) };
                        let part = if plan.sizes.split > 1 { part.into() } else { Expr::Int(0) };
                        Block { product, plan, params: &params, partial, batch, tile, part, warp, lane }.run(b);
                    });
                });
            });
        });
    });
    if let Some(partial) = partial {
        plan.outputs(product, &params).add_parts(&mut b, partial, plan.sizes.split, plan.piece());
    }
    b.finish()
}

/// What a thread knows of its place.
struct Block<'a> {
    product: &'a dyn Product,
    plan: &'a Plan,
    params: &'a Operands,
    /// Where the sums of parts of the reduction go, if another launch adds them up.
    partial: Option<BufferId>,
    batch: Expr,
    tile: VarId,
    /// Which part of the reduction this block has.
    part: Expr,
    warp: VarId,
    lane: VarId,
}

/// The ring of tiles, and the registers of a thread.
struct Memory {
    ring: [BufferId; 2],
    /// Operands of two terms.
    operands: [BufferId; 2],
    sums: BufferId,
    /// The thread's number among those of the block down and across.
    own: [VarId; 2],
}

/// What a block and a thread of it copy in each step.
struct Copies {
    /// What the product named of the block.
    block: Vec<Expr>,
    /// Those of this thread, of both operands.
    own: [Vec<Copied>; 2],
    /// The tile of columns.
    tile_n: VarId,
    /// The block's first step.
    first: VarId,
}

/// What a thread copies of an operand in each step: the place in the tile, what was named of it, and whether there is
/// something left to copy.
struct Copied {
    /// Along the output.
    outer: Expr,
    /// Along the reduction.
    term: Expr,
    named: Vec<Expr>,
    within: Option<Expr>,
}

impl Block<'_> {
    fn thread(&self) -> Expr {
        self.warp * Cuda::WARP + self.lane
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let place = product::place(b, self.tile, plan.tiles(), sizes.group);
        let memory = self.memory(b);
        let own = [0, 1].map(|side| self.copied(b, side, place[side]));
        let block = self.product.block(b, &self.batch);
        let first = b.let_("first_step", self.part.clone() * plan.steps());
        let copies = Copies { block, own, tile_n: place[1], first };
        let ahead = sizes.stages - 1;
        for step in 0..ahead {
            self.fetch(b, &memory, &copies, Fetch { step: first + step, slot: step.into(), more: None });
            b.gpu(Gpu::Commit(Group::Copy));
        }
        self.each(b, |b, index| b.store(memory.sums, index, Expr::f32(0.0)));
        self.arrive(b);
        self.bring(b, &memory, &Expr::Int(0), 0);
        let last = self.product.steps(&copies.block);
        b.for_("step", plan.steps(), |b, step| {
            let steps = last.clone().unwrap_or(plan.steps().into());
            let all = |b: &mut KernelBuilder| self.step(b, &memory, &copies, step, &steps);
            match &last {
                Some(last) => b.if_(Expr::from(step).lt(last.clone()), all),
                None => all(b),
            }
        });
        match self.partial {
            Some(partial) => self.store_partial(b, &memory, place, partial),
            None => self.store(b, &memory, place),
        }
    }

    /// Waits until the tiles of the next step have come.
    fn arrive(&self, b: &mut KernelBuilder) {
        b.gpu(Gpu::Wait(Group::Copy, (self.plan.sizes.stages - 2) as u32));
        // What was copied is seen by all, and all have read what the next tile goes over.
        b.push(Stmt::Barrier(Barrier::Block));
    }

    /// Step `step` of `steps` behind the block's first.
    fn step(&self, b: &mut KernelBuilder, memory: &Memory, copies: &Copies, step: VarId, steps: &Expr) {
        let sizes = self.plan.sizes;
        let slot = |b: &mut KernelBuilder, name: &str, step: Expr| b.let_(name, step.floor_mod(sizes.stages)).into();
        let here = slot(b, "slot", step.into());
        let next = slot(b, "next_slot", step + 1);
        for k in 0..sizes.tile_k {
            if k + 1 < sizes.tile_k {
                self.bring(b, memory, &here, k + 1);
            }
            if k == 0 {
                // No branch, so that compilers mix this with the products. Behind the last step come zeros, which are
                // brought to registers and not multiplied.
                let fetched = step + (sizes.stages - 1);
                let slot = fetched.clone().floor_mod(sizes.stages);
                let more = Some(fetched.clone().lt(steps.clone()));
                self.fetch(b, memory, copies, Fetch { step: copies.first + fetched, slot, more });
                b.gpu(Gpu::Commit(Group::Copy));
            }
            if k + 1 == sizes.tile_k {
                // The first operands of the next step come while the last of this one are multiplied.
                self.arrive(b);
                self.bring(b, memory, &next, 0);
            }
            self.multiply(b, memory, k);
        }
    }

    /// The memory of the block.
    fn memory(&self, b: &mut KernelBuilder) -> Memory {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let names = ["left_tile", "right_tile"];
        let ring = [0, 1].map(|side| {
            b.alloc(names[side], DType::F32, &[sizes.stages, sizes.tile_k, plan.pitch(side)], Scope::Shared)
        });
        let names = ["left", "right"];
        let operands = [0, 1].map(|side| b.alloc(names[side], DType::F32, &[2, sizes.own[side]], Scope::Register));
        let sums = b.alloc("sum", DType::F32, &sizes.own, Scope::Register);
        let warp = Expr::from(self.warp);
        let [down, across] = [warp.clone().floor_div(sizes.warps(1)), warp.floor_mod(sizes.warps(1))];
        let [row, column] = lanes_of(self.lane);
        let own = [b.let_("own_rows", down * LANES[0] + row), b.let_("own_columns", across * LANES[1] + column)];
        Memory { ring, operands, sums, own }
    }

    /// The first row (0) or column (1) in the tile of a thread's group of four.
    fn within(&self, memory: &Memory, side: usize, quad: i64) -> Expr {
        let sizes = self.plan.sizes;
        memory.own[side] * VECTOR + quad * (sizes.tile[side] / sizes.quads(side))
    }

    /// Visits the thread's sums.
    fn each(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, [Expr; 2])) {
        let own = self.plan.sizes.own;
        unrolled(b, "i", own[0], |b, i| unrolled(b, "j", own[1], |b, j| body(b, [i.into(), j.into()])));
    }

    /// Names what does not change from step to step of what this thread copies of an operand.
    fn copied(&self, b: &mut KernelBuilder, side: usize, at: VarId) -> Vec<Copied> {
        let (sizes, threads) = (self.plan.sizes, self.plan.sizes.threads());
        let (layout, unit, length) = (self.plan.layouts[side], self.plan.units[side], sizes.tile[side]);
        let count = length * sizes.tile_k / unit;
        (0..self.plan.pieces(side))
            .map(|turn| {
                let piece = self.thread() + turn * threads;
                let within = ((turn + 1) * threads > count).then(|| piece.clone().lt(count));
                let (outer, term) = match layout {
                    Layout::ReductionSlow => {
                        (piece.clone().floor_mod(length / unit) * unit, piece.floor_div(length / unit))
                    }
                    // Eight lanes have neighbours of the reduction, and all rows of these come before the next.
                    Layout::ReductionFast => (
                        piece.clone().floor_div(TURNED).floor_mod(length),
                        piece.clone().floor_div(TURNED * length) * TURNED + piece.floor_mod(TURNED),
                    ),
                };
                let outer = Expr::from(b.let_("copy_outer", outer));
                let term = Expr::from(b.let_("copy_term", term));
                let named = match side {
                    0 => self.product.left_row(b, at * length + outer.clone()),
                    _ => vec![],
                };
                Copied { outer, term, named, within }
            })
            .collect()
    }

    /// Has the tiles of a step brought to a slot; zeros, where there is no such step.
    fn fetch(&self, b: &mut KernelBuilder, memory: &Memory, copies: &Copies, fetch: Fetch) {
        let Fetch { step, slot, more } = fetch;
        let k = b.let_("k", step * self.plan.sizes.tile_k);
        let step = self.product.step(b, &copies.block, &k.into());
        for (side, own) in copies.own.iter().enumerate() {
            let unit = [self.plan.units[side]];
            for Copied { outer, term, named, within } in own {
                let piece = match side {
                    0 => self.product.left(&self.batch, named, &step, term.clone()),
                    _ => self.product.right(&self.batch, &copies.tile_n.into(), &step, outer.clone(), term.clone()),
                };
                let copy = |b: &mut KernelBuilder| {
                    b.gpu(Gpu::CopyAsync {
                        dst: tile(memory.ring[side], vec![slot.clone(), term.clone(), outer.clone()], &unit),
                        src: tile(self.params.at(self.product.operands()[side]), piece.index, &unit),
                        guard: Expr::all(more.clone().into_iter().chain(piece.exists)),
                    });
                };
                match within {
                    Some(within) => b.if_(within.clone(), copy),
                    None => copy(b),
                }
            }
        }
    }

    /// Brings the operands of term `k` of a slot to registers.
    fn bring(&self, b: &mut KernelBuilder, memory: &Memory, slot: &Expr, k: i64) {
        for side in 0..2 {
            for quad in 0..self.plan.sizes.quads(side) {
                b.loop_("element", VECTOR, LoopKind::Vectorized, |b, element| {
                    let from = self.within(memory, side, quad) + element;
                    let value = Expr::load(memory.ring[side], vec![slot.clone(), k.into(), from]);
                    b.store(memory.operands[side], [(k % 2).into(), Expr::from(element) + quad * VECTOR], value);
                });
            }
        }
    }

    /// Multiplies the operands of term `k` of a step.
    fn multiply(&self, b: &mut KernelBuilder, memory: &Memory, k: i64) {
        for [i, j] in there_and_back(self.plan.sizes.own) {
            let operand = |side: usize, at: i64| Expr::load(memory.operands[side], vec![(k % 2).into(), at.into()]);
            b.sum(memory.sums, [i.into(), j.into()], operand(0, i) * operand(1, j), &[]);
        }
    }

    /// Visits the thread's rows of each group of four columns: where it is in the tile, and where its sums are.
    fn each_row(
        &self,
        b: &mut KernelBuilder,
        memory: &Memory,
        body: impl Fn(&mut KernelBuilder, [Expr; 2], [Expr; 2]),
    ) {
        let sizes = self.plan.sizes;
        for above in 0..sizes.quads(0) {
            unrolled(b, "i", VECTOR, |b, i| {
                for beside in 0..sizes.quads(1) {
                    let at = [self.within(memory, 0, above) + i, self.within(memory, 1, beside)];
                    body(b, at, [i + above * VECTOR, Expr::Int(beside * VECTOR)]);
                }
            });
        }
    }

    /// Stores the thread's sums.
    fn store(&self, b: &mut KernelBuilder, memory: &Memory, place: [VarId; 2]) {
        let (outputs, piece) = (self.plan.outputs(self.product, self.params), self.plan.piece());
        self.each_row(b, memory, |b, [row, column], [i, j]| {
            for first in (0..VECTOR).step_by(piece as usize) {
                let at = [row.clone(), column.clone() + first];
                outputs.write(b, &self.batch, place, at, piece, &|element| {
                    Expr::load(memory.sums, vec![i.clone(), j.clone() + first + element.clone()])
                });
            }
        });
    }

    /// Gives the thread's sums to the launch behind.
    fn store_partial(&self, b: &mut KernelBuilder, memory: &Memory, place: [VarId; 2], partial: BufferId) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        self.each_row(b, memory, |b, at, [i, j]| {
            let [row, column] = at;
            let [row, column] = [place[0] * sizes.tile[0] + row, place[1] * sizes.tile[1] + column];
            // Rows are padded, so that vectors exist as a whole.
            let beyond = [(&row, plan.m, sizes.tile[0]), (&column, plan.partial_pitch(), sizes.tile[1])];
            let beyond = beyond.into_iter().filter(|(_, size, tile)| size % tile != 0);
            let exists = Expr::all(beyond.map(|(at, size, _)| at.clone().lt(size)));
            let store = |b: &mut KernelBuilder| {
                b.loop_("element", VECTOR, LoopKind::Vectorized, |b, element| {
                    let to = vec![self.part.clone(), self.batch.clone(), row, column + element];
                    b.store(partial, to, Expr::load(memory.sums, vec![i, j + element]));
                });
            };
            match exists {
                Some(exists) => b.if_(exists, store),
                None => store(b),
            }
        });
    }
}
