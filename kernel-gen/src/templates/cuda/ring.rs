//! A thread's place in a ring of slots that producers fill and consumers empty.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Gpu, LoopKind, MbarrierOp, Scope, Slot, VarId};

/// A counter in a register: the steps that this thread has been through. Step `n` uses slot `n % stages`, for the
/// `n / stages`-th time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    at: BufferId,
    stages: i64,
}

impl Place {
    /// The beginning of a ring of so many slots.
    pub(super) fn start(b: &mut KernelBuilder, stages: i64) -> Place {
        let at = b.alloc("at", DType::I64, &[1], Scope::Register);
        b.store(at, [0.into()], 0.into());
        Place { at, stages }
    }

    /// Steps so far.
    pub(super) fn steps(&self) -> Expr {
        Expr::load(self.at, vec![0.into()])
    }

    /// Names the slot of this step and the parity of its phase.
    pub(super) fn slot(&self, b: &mut KernelBuilder) -> (Expr, Expr) {
        let slot = b.let_("slot", self.steps().floor_mod(self.stages));
        let parity = b.let_("parity", self.steps().floor_div(self.stages).floor_mod(2));
        (slot.into(), parity.into())
    }

    /// The slot of so many steps ago, at most as many as there are slots.
    pub(super) fn before(&self, steps: i64) -> Expr {
        (self.steps() + (self.stages - steps)).floor_mod(self.stages)
    }

    /// Goes to the next step.
    pub(super) fn advance(&self, b: &mut KernelBuilder) {
        b.store(self.at, [0.into()], self.steps() + 1);
    }
}

/// The barriers of a ring of slots, and this thread's place in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    /// One barrier a slot, whose phases end when all that goes into it has come.
    full: BufferId,
    /// One barrier a slot, whose phases end when all consumers are done with it.
    empty: BufferId,
    pub(super) place: Place,
}

impl Slots {
    /// The barriers of `stages` slots, whose phases end after `filled` and `emptied` arrivals. Thread 0 of the block initialises
    /// them, and what `also` does.
    pub(super) fn make(
        b: &mut KernelBuilder,
        thread: VarId,
        stages: i64,
        [filled, emptied]: [i64; 2],
        also: impl FnOnce(&mut KernelBuilder),
    ) -> Slots {
        let [full, empty] = ["full", "empty"].map(|name| b.alloc(name, DType::I64, &[stages], Scope::Mbarrier));
        b.if_(Expr::from(thread).eq(0), |b| {
            also(b);
            b.loop_("slot", stages, LoopKind::Unrolled, |b, slot| {
                b.gpu(Gpu::Mbarrier(Slot { buffer: full, index: slot.into() }, MbarrierOp::Init(filled)));
                b.gpu(Gpu::Mbarrier(Slot { buffer: empty, index: slot.into() }, MbarrierOp::Init(emptied)));
            });
            b.gpu(Gpu::FenceAsync);
        });
        Slots { full, empty, place: Place::start(b, stages) }
    }

    /// A producer waits until the slot of this step is free; names it.
    pub(super) fn wait_empty(&self, b: &mut KernelBuilder) -> Expr {
        let (slot, parity) = self.place.slot(b);
        // The phase before the first counts as ended: the ring begins empty.
        let on = Slot { buffer: self.empty, index: slot.clone() };
        b.gpu(Gpu::Mbarrier(on, MbarrierOp::Wait(Expr::Int(1) - parity)));
        slot
    }

    /// A consumer waits until the slot of this step is full; names it.
    pub(super) fn wait_full(&self, b: &mut KernelBuilder) -> Expr {
        let (slot, parity) = self.place.slot(b);
        b.gpu(Gpu::Mbarrier(self.full(&slot), MbarrierOp::Wait(parity)));
        slot
    }

    /// The barrier that tells that a slot is full.
    pub(super) fn full(&self, slot: &Expr) -> Slot {
        Slot { buffer: self.full, index: slot.clone() }
    }

    /// Says how many bytes are under way to a slot.
    pub(super) fn expect(&self, b: &mut KernelBuilder, slot: &Expr, bytes: i64) {
        b.gpu(Gpu::Mbarrier(self.full(slot), MbarrierOp::Expect(bytes)));
    }

    /// Gives a slot back to the producers, those of block `rank` of the cluster.
    pub(super) fn give_back(&self, b: &mut KernelBuilder, slot: Expr, rank: Option<Expr>) {
        b.gpu(Gpu::Mbarrier(Slot { buffer: self.empty, index: slot }, MbarrierOp::Arrive(rank)));
    }
}
