//! The second launch: the product of the parts.

use super::super::block::{Block, Cut, Ring, Supply, store};
use super::plan::{Context, DEPTH, PARTS, REST, SCALE};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Gpu, Group, LoopKind, Scope, Tile, Unit, VarId};
use crate::templates::cuda::instructions::{clear, multiply, tile};
use crate::templates::cuda::ring::Slots;
use crate::templates::cuda::warpgroups::WARPGROUP;

/// The parts of the left and of the right operand whose products are small.
const SMALL: [[i64; 2]; 2] = [[1, 0], [0, 1]];

/// A consumer's registers.
struct Held {
    /// The sum of the large products.
    total: BufferId,
    /// What a step adds to it.
    added: BufferId,
    /// The sum of the small products, which are `REST` times too large; none where `added` takes them in turn.
    small: Option<BufferId>,
}

/// A product of parts that the copy engine brings: in the ring they are `[stages, PARTS, rows, DEPTH]`; behind a tile's rows may be
/// some of the next one's.
impl Supply for Context<'_> {
    fn cut(&self) -> Cut {
        self.plan.cut()
    }

    fn ring(&self, b: &mut KernelBuilder, thread: VarId) -> Ring {
        let (sizes, stages) = (self.plan.sizes, self.plan.sizes.stages);
        let room = self.plan.rows().room();
        let left = b.alloc_swizzled("pixels", DType::F16, &[stages, PARTS, room, DEPTH], 128);
        let right = b.alloc_swizzled("weights", DType::F16, &[stages, PARTS, sizes.bn, DEPTH], 128);
        Ring { left, right, slots: Slots::make(b, thread, stages, [1, sizes.consumers], |_| {}) }
    }

    /// One thread has all brought.
    fn produce(&self, b: &mut KernelBuilder, block: &Block) {
        let (plan, rows, Ring { left, slots, .. }) = (self.plan, self.plan.rows(), &block.ring);
        let weights = self.operands()[1];
        let strides = plan.source.strides();
        let steps = if strides == [1; 3] { vec![] } else { [strides.to_vec(), vec![1, 1]].concat() };
        b.if_(block.leads(), |b| {
            block.each_tile(b, |b, [row, column]| {
                let origin = rows.first(b, row);
                let pixel = plan.source.row(origin.clone());
                self.steps(b, &origin, &mut |b, taps, chunk| {
                    let slot = slots.wait_empty(b);
                    slots.expect(b, &slot, 2 * PARTS * DEPTH * (rows.fetched() + plan.sizes.bn));
                    // Zeros lie around the map.
                    let (place, _) = plan.source.place(&pixel, taps);
                    for part in 0..PARTS {
                        let to = vec![slot.clone(), part.into(), 0.into(), 0.into()];
                        let from = [place.to_vec(), vec![part.into(), chunk * DEPTH]].concat();
                        b.gpu(Gpu::TensorLoad {
                            dst: tile(*left, to, &[rows.fetched(), DEPTH]),
                            src: tile(self.space.parts, from, &[rows.extents().to_vec(), vec![1, DEPTH]].concat()),
                            steps: steps.clone(),
                            on: slots.full(&slot),
                            multicast: None,
                        });
                    }
                    block.fetch_weights(b, (weights, &slot), column, (taps, chunk));
                    slots.place.advance(b);
                });
            });
        });
    }

    fn consume(&self, b: &mut KernelBuilder, block: &Block, consumer: VarId) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let mut sums = |name| b.alloc(name, DType::F32, &[64, sizes.bn], Scope::Fragment(Unit::Warpgroup));
        let (total, added) = (sums("total"), sums("added"));
        let small = (sizes.sums > 2).then(|| sums("small"));
        let held = Held { total, added, small };
        let own = consumer * 64;
        block.each_tile(b, |b, [row, column]| {
            let origin = plan.rows().first(b, row);
            for sum in std::iter::once(total).chain(small) {
                clear(b, self.whole(sum));
            }
            self.steps(b, &origin, &mut |b, _, _| self.multiply(b, block, &held, &own));
            self.store(b, &held, &own, &origin, column);
        });
    }
}

impl Context<'_> {
    /// The steps of the tile that begins at `first`.
    fn steps(
        &self,
        b: &mut KernelBuilder,
        first: &[Expr; 3],
        body: &mut dyn FnMut(&mut KernelBuilder, [VarId; 2], VarId),
    ) {
        let plan = self.plan;
        plan.cut().each_step(b, &|dim, tap| plan.source.meets(dim, first, plan.rows().own, tap), body);
    }

    /// All of a consumer's sums.
    fn whole(&self, sums: BufferId) -> Tile {
        tile(sums, vec![0.into(), 0.into()], &[64, self.plan.sizes.bn])
    }

    /// One step: the large products are added to what there is by the threads, the small ones by the tensor cores if they
    /// have sums of their own.
    fn multiply(&self, b: &mut KernelBuilder, block: &Block, held: &Held, own: &Expr) {
        let ring = &block.ring;
        let slot = ring.slots.wait_full(b);
        let parts = |b: &mut KernelBuilder, sum: BufferId, [left, right]: [i64; 2]| {
            let rows = [slot.clone(), left.into(), own.clone(), 0.into()];
            let columns = [slot.clone(), right.into(), 0.into(), 0.into()];
            let (left, right) =
                (tile(ring.left, rows, &[64, DEPTH]), tile(ring.right, columns, &[self.plan.sizes.bn, DEPTH]));
            multiply(b, Unit::Warpgroup, self.whole(sum), (left, false), (right, true));
        };
        let done = |b: &mut KernelBuilder| {
            b.gpu(Gpu::Commit(Group::Mma));
            b.gpu(Gpu::Wait(Group::Mma, 0));
        };
        if held.small.is_none() {
            clear(b, self.whole(held.added));
            SMALL.into_iter().for_each(|p| parts(b, held.added, p));
            done(b);
            self.add(b, held, 1.0 / REST);
        }
        clear(b, self.whole(held.added));
        parts(b, held.added, [0, 0]);
        if let Some(small) = held.small {
            SMALL.into_iter().for_each(|p| parts(b, small, p));
        }
        done(b);
        b.if_(Expr::from(block.thread).floor_mod(WARPGROUP).eq(0), |b| {
            ring.slots.give_back(b, slot.clone(), None);
        });
        self.add(b, held, 1.0);
        ring.slots.place.advance(b);
    }

    /// Adds what was added up in this step to the total.
    fn add(&self, b: &mut KernelBuilder, held: &Held, scale: f64) {
        b.loop_("row", 64, LoopKind::FragmentRow, |b, row| {
            b.loop_("column", self.plan.sizes.bn, LoopKind::FragmentCol, |b, column| {
                let at = vec![row.into(), column.into()];
                let more = Expr::load(held.added, at.clone());
                let more = if scale == 1.0 { more } else { more * Expr::f32(scale) };
                b.store(held.total, at.clone(), Expr::load(held.total, at) + more);
            });
        });
    }

    /// Stores this consumer's rows of the tile that begins at `origin`; the first of them is its row `own`.
    fn store(&self, b: &mut KernelBuilder, held: &Held, own: &Expr, origin: &[Expr; 3], column_tile: VarId) {
        let Context { plan, w, params, space } = self;
        let pixel = |b: &mut KernelBuilder, row: VarId| {
            let number = b.let_("number", own.clone() + row);
            plan.rows().row(origin, number.into())
        };
        store(b, (w, params, &plan.source), (column_tile, plan.sizes.bn), pixel, |[row, column], channel| {
            let sum = |buffer| Expr::load(buffer, vec![row.into(), column.into()]);
            let sum = match held.small {
                Some(small) => sum(held.total) + sum(small) * Expr::f32(1.0 / REST),
                None => sum(held.total),
            };
            let unscale = Expr::load(space.unscale, vec![channel.clone()]) * Expr::f32(1.0 / SCALE);
            sum * unscale
        });
    }
}
