//! The products: for each place of a tile a matrix of output channels by tiles.
//!
//! A block has `block_channels x block_tiles` of one place. Both operands come with `cp.async` into a ring of slots, a step
//! of input channels at a time and as they lie in memory. A thread adds up outer products of vectors of four: its channels
//! and tiles stand in groups of four, a block apart for each group, so that the lanes of a warp read 64 and 128 bytes side by
//! side. There is one barrier a step: behind it all have seen what came, and all are done with the slot that is filled next.

use super::plan::Plan;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Group, LoopKind, Scope, Stmt, VarId};
use crate::target::Cuda;
use crate::templates::cuda::instructions::copy_async;
use crate::templates::cuda::launch::{LANE, launch, unrolled};
use crate::templates::cuda::outer::{LANES, VECTOR, lanes_of, there_and_back};

/// `products[k, co, tile] = sum over ci of weights[k, ci, co] * data[k, ci, tile]`; `buffers` are weights, data, products.
pub(super) fn multiply(b: &mut KernelBuilder, plan: &Plan, buffers: [BufferId; 3]) {
    let sizes = plan.sizes;
    let [_, channels, tiles] = plan.product_shape();
    let loops = [("k", sizes.places()), ("channels", channels / sizes.block[0]), ("tiles", tiles / sizes.block[1])];
    let threads = [("warp", sizes.warps(0) * sizes.warps(1)), LANE];
    launch(b, loops, threads, |b, [place, row, column], [warp, lane]| {
        Block { plan, buffers, place, corner: [row, column], warp, lane }.run(b);
    });
}

/// What a thread knows of its place.
struct Block<'a> {
    plan: &'a Plan,
    /// Weights, data, products.
    buffers: [BufferId; 3],
    place: VarId,
    /// The block's number along channels and tiles.
    corner: [VarId; 2],
    warp: VarId,
    lane: VarId,
}

impl Block<'_> {
    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let names = ["weights", "pixels"];
        let ring =
            [0, 1].map(|i| b.alloc(names[i], DType::F32, &[sizes.stages, sizes.step, sizes.block[i]], Scope::Shared));
        let own = self.own(b);
        let ahead = sizes.stages - 1;
        for step in 0..ahead.min(plan.steps()) {
            self.fetch(b, ring, step.into(), step.into());
            b.gpu(Gpu::Commit(Group::Copy));
        }
        for _ in plan.steps()..ahead {
            b.gpu(Gpu::Commit(Group::Copy));
        }
        let sums = b.alloc("sum", DType::F32, &sizes.own, Scope::Register);
        self.each(b, |b, index| b.store(sums, index, Expr::f32(0.0)));
        let names = ["weight", "pixel"];
        let operands = [0, 1].map(|i| b.alloc(names[i], DType::F32, &[sizes.own[i]], Scope::Register));
        b.for_("at", plan.steps(), |b, at| {
            b.gpu(Gpu::Wait(Group::Copy, (ahead - 1) as u32));
            b.push(Stmt::Barrier(Barrier::Block));
            if plan.steps() > ahead {
                b.if_((at + ahead).lt(plan.steps()), |b| {
                    self.fetch(b, ring, at + ahead, (at + ahead).floor_mod(sizes.stages));
                });
            }
            b.gpu(Gpu::Commit(Group::Copy));
            let slot = b.let_("slot", Expr::from(at).floor_mod(sizes.stages));
            unrolled(b, "ci", sizes.step, |b, ci| {
                for dim in 0..2 {
                    self.quads(b, dim, |b, quad| {
                        b.loop_("element", VECTOR, LoopKind::Vectorized, |b, element| {
                            let from = self.within(own[dim], dim, quad) + element;
                            let value = Expr::load(ring[dim], vec![slot.into(), ci.into(), from]);
                            b.store(operands[dim], [quad * VECTOR + element], value);
                        });
                    });
                }
                for [i, j] in there_and_back(sizes.own) {
                    let operand = |dim: usize, at: i64| Expr::load(operands[dim], vec![at.into()]);
                    b.sum(sums, [i.into(), j.into()], operand(0, i) * operand(1, j), &[]);
                }
            });
        });
        self.store(b, own, sums);
    }

    /// Names the thread's number among those of the block along channels and along tiles.
    fn own(&self, b: &mut KernelBuilder) -> [VarId; 2] {
        let across = self.plan.sizes.warps(1);
        let (warp, [short, long]) = (Expr::from(self.warp), lanes_of(self.lane));
        let row = warp.clone().floor_div(across) * LANES[0] + short;
        let column = warp.floor_mod(across) * LANES[1] + long;
        [b.let_("own_channels", row), b.let_("own_tiles", column)]
    }

    /// The first element in the block of a thread's group of four.
    fn within(&self, own: VarId, dim: usize, quad: VarId) -> Expr {
        let groups = self.plan.sizes.own[dim] / VECTOR;
        quad * (self.plan.sizes.block[dim] / groups) + own * VECTOR
    }

    /// Visits the thread's groups of four.
    fn quads(&self, b: &mut KernelBuilder, dim: usize, body: impl FnOnce(&mut KernelBuilder, VarId)) {
        unrolled(b, "quad", self.plan.sizes.own[dim] / VECTOR, body);
    }

    /// Visits the thread's sums.
    fn each(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, [Expr; 2])) {
        let own = self.plan.sizes.own;
        unrolled(b, "i", own[0], |b, i| unrolled(b, "j", own[1], |b, j| body(b, [i.into(), j.into()])));
    }

    /// Has the operands of a step brought to a slot.
    fn fetch(&self, b: &mut KernelBuilder, ring: [BufferId; 2], step: Expr, slot: Expr) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let thread = self.warp * Cuda::WARP + self.lane;
        for (dim, to) in ring.into_iter().enumerate() {
            let row = sizes.block[dim] / VECTOR;
            unrolled(b, "turn", sizes.step * row / sizes.threads(), |b, turn| {
                let number = turn * sizes.threads() + thread.clone();
                let (ci, within) = (number.clone().floor_div(row), number.floor_mod(row) * VECTOR);
                let channel = step.clone() * sizes.step + ci.clone();
                // The weights of channels beyond the last one are zeros; there are no pixels of them.
                let beyond = dim == 1 && plan.c.ci % sizes.step != 0;
                let guard = beyond.then(|| channel.clone().lt(plan.c.ci));
                let from = [self.place.into(), channel, self.corner[dim] * sizes.block[dim] + within.clone()];
                copy_async(b, (to, [slot.clone(), ci, within]), (self.buffers[dim], from), VECTOR, guard);
            });
        }
    }

    /// Stores the thread's sums.
    fn store(&self, b: &mut KernelBuilder, own: [VarId; 2], sums: BufferId) {
        let block = self.plan.sizes.block;
        self.quads(b, 0, |b, above| {
            unrolled(b, "i", VECTOR, |b, i| {
                self.quads(b, 1, |b, beside| {
                    b.loop_("j", VECTOR, LoopKind::Vectorized, |b, j| {
                        let channel = self.corner[0] * block[0] + self.within(own[0], 0, above) + i;
                        let tile = self.corner[1] * block[1] + self.within(own[1], 1, beside) + j;
                        let sum = Expr::load(sums, vec![above * VECTOR + i, beside * VECTOR + j]);
                        b.store(self.buffers[2], [self.place.into(), channel, tile], sum);
                    });
                });
            });
        });
    }
}
