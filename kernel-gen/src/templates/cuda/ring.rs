//! A thread's place in a ring of slots that producers fill and consumers empty.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Scope};

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
