//! Warp-specialised kernels: blocks that stay for many tiles, and warpgroups with roles of their own. The ring between them is
//! [`ring`](super::ring).

use super::model::ceil_div;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Gpu, LoopKind, MbarrierOp, Scope, Slot, VarId};

/// Threads of a warpgroup.
pub(super) const WARPGROUP: i64 = 128;

/// Threads of a warp, and rows of a warpgroup's 64 that it holds.
pub(super) const WARP: i64 = 32;
pub(super) const WARP_ROWS: i64 = 16;

/// Registers that a thread of the producer and a thread of the `consumers` consumer warpgroups ask for. A block of 384 threads starts
/// with 168 a thread, which the producer does not need, one of 512 with 128. One of 256 has enough for all from the start: none.
pub(super) fn registers(consumers: i64) -> Option<[u32; 2]> {
    match consumers {
        1 => None,
        2 => Some([40, 232]),
        _ => Some([32, 160]),
    }
}

/// Two roles: the threads of which `is_first` holds have the first one, all others the second. Each asks for its registers.
pub(super) fn roles(
    b: &mut KernelBuilder,
    is_first: Expr,
    registers: Option<[u32; 2]>,
    first: impl FnOnce(&mut KernelBuilder),
    second: impl FnOnce(&mut KernelBuilder),
) {
    let set = |b: &mut KernelBuilder, role: usize| {
        registers.into_iter().for_each(|registers| b.gpu(Gpu::SetMaxRegisters(registers[role])));
    };
    b.if_else(
        is_first,
        |b| {
            set(b, 0);
            first(b);
        },
        |b| {
            set(b, 1);
            second(b);
        },
    );
}

/// The items that block `first` of `blocks` goes through, one in each round: `body` gets the round and the item.
pub(super) fn each_round(
    b: &mut KernelBuilder,
    items: i64,
    (first, blocks): (VarId, i64),
    body: impl FnOnce(&mut KernelBuilder, VarId, VarId),
) {
    b.for_("round", ceil_div(items, blocks), |b, round| {
        let item = b.let_("item", round * blocks + first);
        // Also where all blocks have one in each round: the pass `narrow` finds rounds by the condition.
        b.if_(Expr::from(item).lt(items), |b| body(b, round, item));
    });
}

/// Who of the consumers may issue products: one after the other, so that one has the tensor cores while the others store their outputs or
/// compute with their sums. *(CUTLASS's "ping-pong".)*
pub(super) struct Turns {
    /// One barrier a consumer, whose phases end when its turn comes.
    turn: BufferId,
    count: i64,
}

impl Turns {
    pub(super) fn make(b: &mut KernelBuilder, thread: VarId, count: i64) -> Turns {
        let turn = b.alloc("turn", DType::I64, &[count], Scope::Mbarrier);
        b.if_(Expr::from(thread).eq(0), |b| {
            b.loop_("slot", count, LoopKind::Unrolled, |b, slot| {
                b.gpu(Gpu::Mbarrier(Slot { buffer: turn, index: slot.into() }, MbarrierOp::Init(1)));
            });
        });
        Turns { turn, count }
    }

    /// The condition that a round's tile is a consumer's.
    pub(super) fn has(&self, round: VarId, consumer: VarId) -> Expr {
        Expr::from(round).floor_mod(self.count).eq(consumer)
    }

    /// Waits for the turn of a consumer that has had `before` turns. The first consumer's first comes by itself: its barrier is one
    /// phase behind the others'.
    pub(super) fn take(&self, b: &mut KernelBuilder, before: Expr, consumer: VarId) {
        let own = Expr::from(consumer).eq(0);
        let parity = own.select((before.clone() + 1).floor_mod(2), before.floor_mod(2));
        b.gpu(Gpu::Mbarrier(Slot { buffer: self.turn, index: consumer.into() }, MbarrierOp::Wait(parity)));
    }

    /// Gives the next consumer its turn.
    pub(super) fn pass_on(&self, b: &mut KernelBuilder, thread: VarId, consumer: VarId) {
        b.if_(Expr::from(thread).floor_mod(WARPGROUP).eq(0), |b| {
            let index = (consumer + 1).floor_mod(self.count);
            b.gpu(Gpu::Mbarrier(Slot { buffer: self.turn, index }, MbarrierOp::Arrive(None)));
        });
    }
}
