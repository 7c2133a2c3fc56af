//! How a residual gets to the epilogue that adds it.
//!
//! As in the ring of the operands, the copy engine brings it, ahead of its use: for each consumer one more thread of the
//! producer's warpgroup asks for a piece as soon as a buffer of the output's way through shared memory is free, so that
//! the first pieces of a tile come while its products are made, and those of the next while this one is stored. A
//! consumer finds the residual where it is going to put the sum, and from there the engine stores. Asked for element by
//! element from the epilogue, each piece took as long as memory takes to answer, and its warp had nothing else to do.

use super::block::{Block, Box};
use super::plan::{Sizes, residual_step};
use super::stage::{Piece, Stage};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Gpu, Group, LoopKind, MbarrierOp, Scope, Slot, VarId};
use crate::templates::cuda::instructions::{load_box, tile};
use crate::templates::cuda::ring::Place;
use crate::templates::cuda::warpgroups::{WARP, WARPGROUP};
use crate::workload::{Epilogue, Workload};

/// The thread that sets up the barriers and asks for the first consumer's pieces; those of the others are a warp apart.
const FIRST: i64 = WARP;

/// What brings a residual.
pub(super) struct Residual {
    source: BufferId,
    /// Buffers of a consumer.
    buffers: i64,
    /// One barrier a buffer, whose phases end when its bytes have come.
    full: BufferId,
    /// One barrier a buffer, whose phases end when the engine has read all four warps' parts of what was stored from it.
    empty: BufferId,
    /// Pieces that this thread has been through.
    pub(super) place: Place,
    /// The workload with its epilogue up to the residual, and with what comes behind.
    pub(super) with_it: Workload,
    pub(super) behind_it: Workload,
}

impl Residual {
    /// Its barriers, if the epilogue adds a residual.
    pub(super) fn make(b: &mut KernelBuilder, block: &Block<'_>) -> Option<Residual> {
        let w = block.product.workload();
        let at = residual_step(w)?;
        let part = |steps: &[Epilogue]| Workload { epilogue: steps.to_vec(), ..w.clone() };
        let (with_it, behind_it) = w.epilogue.split_at(at + 1);
        let (buffers, consumers) = (block.buffers, block.sizes.consumers);
        let barriers = |b: &mut KernelBuilder, name| b.alloc(name, DType::I64, &[consumers * buffers], Scope::Mbarrier);
        let (full, empty) = (barriers(b, "residual_full"), barriers(b, "residual_empty"));
        b.if_(Expr::from(block.thread).eq(FIRST), |b| {
            b.loop_("buffer", consumers * buffers, LoopKind::Unrolled, |b, buffer| {
                b.gpu(Gpu::Mbarrier(Slot { buffer: full, index: buffer.into() }, MbarrierOp::Init(1)));
                let warps = WARPGROUP / WARP;
                b.gpu(Gpu::Mbarrier(Slot { buffer: empty, index: buffer.into() }, MbarrierOp::Init(warps)));
            });
            b.gpu(Gpu::FenceAsync);
        });
        let place = Place::start(b, buffers);
        let (source, with_it, behind_it) = (block.params.get("residual"), part(with_it), part(behind_it));
        Some(Residual { source, buffers, full, empty, place, with_it, behind_it })
    }

    /// The condition that a thread of the producer's warpgroup asks for a consumer's pieces, and that consumer.
    pub(super) fn asks(thread: VarId, sizes: Sizes) -> (Expr, Expr) {
        let consumer = (thread - FIRST).floor_div(WARP);
        let one = Expr::from(thread).floor_mod(WARP).eq(0);
        (one.and(Expr::Int(FIRST).le(thread)).and(consumer.clone().lt(sizes.consumers)), consumer)
    }

    /// The barrier of a consumer's buffer.
    fn slot(&self, barriers: BufferId, consumer: VarId, buffer: Expr) -> Slot {
        Slot { buffer: barriers, index: consumer * self.buffers + buffer }
    }

    /// Has all pieces of a tile brought that are a consumer's, each when its buffer is free.
    pub(super) fn produce(
        &self,
        b: &mut KernelBuilder,
        block: &Block<'_>,
        stage: &Stage,
        place: &[Expr],
        (consumer, first): (VarId, &Expr),
    ) {
        for Piece { h, start, .. } in stage.pieces(block.sizes) {
            let (buffer, parity) = self.place.slot(b);
            let on = |barriers| self.slot(barriers, consumer, buffer.clone());
            // The phase before the first counts as ended: buffers begin empty.
            b.gpu(Gpu::Mbarrier(on(self.empty), MbarrierOp::Wait(Expr::Int(1) - parity)));
            b.gpu(Gpu::Mbarrier(on(self.full), MbarrierOp::Expect(64 * stage.row_bytes)));
            let Box { origin, extents, .. } =
                block.product.piece(place, first.clone() + 64 * h, start.into(), 64, stage.columns);
            let to = [consumer.into(), buffer.clone(), 0.into(), 0.into()];
            let to = tile(stage.buffer, to, &[1, 1, 64, stage.columns]);
            load_box(b, to, tile(self.source, origin, &extents), on(self.full));
            self.place.advance(b);
        }
    }

    /// Waits for a consumer's next piece, and names its buffer.
    pub(super) fn wait(&self, b: &mut KernelBuilder, consumer: VarId) -> Expr {
        let (buffer, parity) = self.place.slot(b);
        let on = self.slot(self.full, consumer, buffer.clone());
        b.gpu(Gpu::Mbarrier(on, MbarrierOp::Wait(parity)));
        buffer
    }

    /// Gives the buffer of the piece before back, when the engine has read what was stored from it.
    pub(super) fn give_back_last(&self, b: &mut KernelBuilder, stage: &Stage, consumer: VarId) {
        stage.one(b, |b| {
            b.gpu(Gpu::Wait(Group::Store, 0));
            let on = self.slot(self.empty, consumer, self.place.before(1));
            b.gpu(Gpu::Mbarrier(on, MbarrierOp::Arrive(None)));
        });
    }

    /// The condition that this thread has been through a piece.
    pub(super) fn has_begun(&self) -> Expr {
        Expr::Int(0).lt(self.place.steps())
    }
}
