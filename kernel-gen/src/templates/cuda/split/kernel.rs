//! The kernel, and the one that packs the weights for it.

use super::block::{Block, Cut, Ring, Supply, product, store};
use super::parts::DEPTH;
use super::plan::{PRODUCERS, Plan};
use crate::ir::builder::KernelBuilder;
use crate::ir::{
    BufferId, DType, Expr, Gpu, Group, Kernel, LoopKind, MbarrierOp, Operand, Scope, Tile, UnOp, Unit, VarId,
};
use crate::templates::Pack;
use crate::templates::cuda::instructions::{clear, copy_async, multiply, tile};
use crate::templates::cuda::launch;
use crate::templates::cuda::launch::unrolled;
use crate::templates::cuda::ring::Slots;
use crate::templates::cuda::source::{Fast, Pixel};
use crate::templates::cuda::warpgroups::WARPGROUP;
use crate::workload::operands::Operands;
use crate::workload::{Param, Role, Workload};

/// Threads of a block of the kernel that packs.
const PACK_THREADS: i64 = 128;

/// Brings the weights into the order in which blocks fetch them, as their parts; zeros stand beyond the last column and
/// the last term of the reduction.
pub(super) fn pack(plan: &Plan, weight: &Param) -> Pack {
    let (cut, dtype, columns_at_once) = (plan.cut(), plan.parts.dtype(), PACK_THREADS / DEPTH);
    let (from, to) = ((weight.name, DType::F32, &weight.shape[..]), (dtype, &cut.packed_shape(cut.steps())[..]));
    let loops = [("tile", cut.column_tiles()), ("step", cut.steps())];
    launch::pack(from, to, loops, [("t", PACK_THREADS)], |b, [w, packed], [tile, step], [t]| {
        b.for_("turn", plan.sizes.bn / columns_at_once, |b, turn| {
            let within = turn * columns_at_once + Expr::from(t).floor_div(DEPTH);
            let place = Expr::from(t).floor_mod(DEPTH);
            let column = tile * plan.sizes.bn + within.clone();
            let value = cut.weight(b, w, step, place.clone(), column);
            let rest = b.alloc("rest", DType::F32, &[1], Scope::Register);
            b.store(rest, [0.into()], value);
            let nearest = (dtype == DType::Bf16).then(|| b.alloc("nearest", DType::Bf16, &[1], Scope::Register));
            for part in 0..plan.parts.count() {
                let left = Expr::load(rest, vec![0.into()]);
                let value = match nearest {
                    None => Expr::un(UnOp::Tf32, left),
                    Some(nearest) => {
                        b.store(nearest, [0.into()], left);
                        Expr::load(nearest, vec![0.into()])
                    }
                };
                let to = [tile.into(), step.into(), part.into(), within.clone(), place.clone()];
                b.store(packed, to, value.clone());
                if part + 1 < plan.parts.count() {
                    b.store(rest, [0.into()], Expr::load(rest, vec![0.into()]) - value);
                }
            }
        });
    })
}

/// The kernel of a workload for a device with `multiprocessors` multiprocessors.
pub(super) fn kernel(plan: &Plan, w: &Workload, multiprocessors: i64) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let cut = plan.cut();
    let params = Operands::typed(&mut b, w, |p| match p.role {
        Role::Weight => (plan.parts.dtype(), cut.packed_shape(cut.steps())),
        _ => (p.dtype, p.shape.clone()),
    });
    product(&mut b, multiprocessors, &Product { plan, w, params });
    b.finish()
}

/// A product whose producers bring elements as they lie, and whose consumers split them. In the ring they are
/// `[stages, rows, DEPTH]`, swizzled or padded, or `[stages, DEPTH, rows]`.
struct Product<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    params: Operands,
}

/// A consumer's registers.
struct Held {
    /// The sums of its row blocks.
    total: BufferId,
    /// What a step adds to those of one row block; none where the tensor cores add up everything.
    added: Option<BufferId>,
    /// The parts of a row block's elements.
    rows: BufferId,
}

impl Supply for Product<'_> {
    fn cut(&self) -> Cut {
        self.plan.cut()
    }

    fn ring(&self, b: &mut KernelBuilder, thread: VarId) -> Ring {
        let (sizes, stages) = (self.plan.sizes, self.plan.sizes.stages);
        let (parts, pitch) = (self.plan.parts, self.plan.pitch());
        let row_bytes = (DEPTH * parts.bytes()) as u32;
        let right = b.alloc_swizzled("weights", parts.dtype(), &[stages, parts.count(), sizes.bn, DEPTH], row_bytes);
        let left = match self.plan.source.fast() {
            Fast::Reduction if pitch == DEPTH => {
                b.alloc_swizzled("pixels", DType::F32, &[stages, sizes.bm(), DEPTH], 128)
            }
            Fast::Reduction => b.alloc("pixels", DType::F32, &[stages, sizes.bm(), pitch], Scope::Shared),
            Fast::Rows => b.alloc("pixels", DType::F32, &[stages, DEPTH, pitch], Scope::Shared),
        };
        // Each producer tells of its pixels; one thread announces the weights.
        let arrivals = [PRODUCERS + 1, sizes.consumers * WARPGROUP];
        Ring { left, right, slots: Slots::make(b, thread, stages, arrivals, |_| {}) }
    }

    /// Copies of the pixels are waited for `lag` steps later, when those of further steps are under way.
    fn produce(&self, b: &mut KernelBuilder, block: &Block) {
        let (parts, lag, slots) = (self.plan.parts, self.plan.sizes.lag, &block.ring.slots);
        let weights = self.params.get(self.plan.source.operands()[1]);
        block.each_tile(b, |b, [row, column]| {
            self.cut().each_step(b, &|_, _| None, &mut |b, taps, chunk| {
                let slot = slots.wait_empty(b);
                b.if_(block.leads(), |b| {
                    slots.expect(b, &slot, parts.bytes() * parts.count() * self.plan.sizes.bn * DEPTH);
                    block.fetch_weights(b, (weights, &slot), column, (taps, chunk));
                });
                self.fetch(b, block, &slot, row, taps, chunk);
                b.gpu(Gpu::Commit(Group::Copy));
                b.if_(Expr::Int(lag - 1).lt(slots.place.steps()), |b| {
                    b.gpu(Gpu::Wait(Group::Copy, lag as u32));
                    announce(b, slots, lag);
                });
                slots.place.advance(b);
            });
        });
        b.gpu(Gpu::Wait(Group::Copy, 0));
        for back in (1..=lag).rev() {
            // Of fewer steps than that, not all are there to be told of.
            b.if_(Expr::Int(back - 1).lt(slots.place.steps()), |b| announce(b, slots, back));
        }
    }

    fn consume(&self, b: &mut KernelBuilder, block: &Block, consumer: VarId) {
        let (sizes, parts) = (self.plan.sizes, self.plan.parts);
        let unit = Scope::Fragment(Unit::Warpgroup);
        let total = b.alloc("total", DType::F32, &[sizes.row_blocks, 64, sizes.bn], unit);
        let added = (parts.count() > 1).then(|| b.alloc("added", DType::F32, &[1, 64, sizes.bn], unit));
        let rows = b.alloc("rows", parts.dtype(), &[parts.count(), 64, DEPTH], unit);
        let held = Held { total, added, rows };
        let own = consumer * (64 * sizes.row_blocks);
        block.each_tile(b, |b, [row, column]| {
            for h in 0..sizes.row_blocks {
                clear(b, sums(total, h, sizes.bn));
            }
            self.cut().each_step(b, &|_, _| None, &mut |b, _, _| self.multiply(b, &block.ring, &held, &own));
            for h in 0..sizes.row_blocks {
                self.store(b, &held, h, own.clone() + 64 * h, [row, column]);
            }
        });
    }
}

/// Tells the consumers that this thread's pixels are in the slot of `back` steps ago.
fn announce(b: &mut KernelBuilder, slots: &Slots, back: i64) {
    b.gpu(Gpu::Mbarrier(slots.full(&slots.place.before(back)), MbarrierOp::Arrive(None)));
}

impl Product<'_> {
    /// The rows of a slot from `first` on that a warpgroup multiplies, as an operand.
    fn rows(&self, ring: &Ring, slot: &Expr, first: Expr) -> Operand {
        let (transposed, origin, extents) = match self.plan.source.fast() {
            Fast::Reduction => (false, vec![slot.clone(), first, 0.into()], [64, DEPTH]),
            Fast::Rows => (true, vec![slot.clone(), 0.into(), first], [DEPTH, 64]),
        };
        Operand { tile: tile(ring.left, origin, &extents), transposed }
    }

    /// Has the pixels of a step brought to a slot.
    fn fetch(&self, b: &mut KernelBuilder, block: &Block, slot: &Expr, row: VarId, taps: [VarId; 2], chunk: VarId) {
        let (source, sizes, width) = (&self.plan.source, self.plan.sizes, self.plan.source.width());
        let x = self.params.get(source.operands()[0]);
        // The first producer is the first thread of a warpgroup.
        let t = Expr::from(block.thread).floor_mod(PRODUCERS);
        let copy = |b: &mut KernelBuilder, pixel: &Pixel, term: Expr, to: [Expr; 2]| {
            let (from, mut inside) = source.element(pixel, taps, term.clone());
            // What lies side by side exists together, so the last of them says it for all.
            let [side, deep] = if source.fast() == Fast::Rows { [width, 1] } else { [1, width] };
            inside.extend(source.exists(pixel, side, sizes.bm()));
            if source.depth() % DEPTH != 0 {
                inside.push((term + (deep - 1)).lt(source.depth()));
            }
            let to = [vec![slot.clone()], to.to_vec()].concat();
            copy_async(b, (block.ring.left, to), (x, from), width, Expr::all(inside));
        };
        match source.fast() {
            // A thread has rows of its own, and some of the terms of each.
            Fast::Rows => {
                let groups = sizes.bm() / width;
                let side_by_side = groups.min(PRODUCERS);
                let lanes = PRODUCERS / side_by_side;
                unrolled(b, "turn", groups / side_by_side, |b, turn| {
                    let group = turn * side_by_side + t.clone().floor_mod(side_by_side);
                    let pixel = source.pixel(b, row * groups + group.clone(), width);
                    unrolled(b, "term", DEPTH / lanes, |b, term| {
                        let within = term * lanes + t.clone().floor_div(side_by_side);
                        copy(b, &pixel, chunk * DEPTH + within.clone(), [within, group.clone() * width]);
                    });
                });
            }
            // Neighbouring threads have neighbouring terms of a row.
            Fast::Reduction => {
                let vectors = DEPTH / width;
                let rows = PRODUCERS / vectors;
                // As a loop: where each of a thread's rows is would take too many registers.
                b.for_("turn", sizes.bm() / rows, |b, turn| {
                    let within = turn * rows + t.clone().floor_div(vectors);
                    let pixel = source.pixel(b, row * sizes.bm() + within.clone(), 1);
                    let term = t.clone().floor_mod(vectors) * width;
                    copy(b, &pixel, chunk * DEPTH + term.clone(), [within, term]);
                });
            }
        }
    }

    /// One step: the sum of the products of parts, the small ones first, is added to what there is. Row blocks come one after
    /// the other, with the same registers: other consumers multiply while this one splits and adds.
    fn multiply(&self, b: &mut KernelBuilder, ring: &Ring, held: &Held, own: &Expr) {
        let (sizes, parts) = (self.plan.sizes, self.plan.parts);
        let slot = ring.slots.wait_full(b);
        for h in 0..sizes.row_blocks {
            let sum = match held.added {
                Some(added) => sums(added, 0, sizes.bn),
                None => sums(held.total, h, sizes.bn),
            };
            b.gpu(Gpu::Split {
                dst: tile(held.rows, vec![0.into(), 0.into(), 0.into()], &[parts.count(), 64, DEPTH]),
                src: self.rows(ring, &slot, own.clone() + 64 * h),
            });
            if held.added.is_some() {
                clear(b, sum.clone());
            }
            for &[left, right] in parts.products() {
                let left = tile(held.rows, [left.into(), 0.into(), 0.into()], &[64, DEPTH]);
                let right = tile(ring.right, [slot.clone(), right.into(), 0.into(), 0.into()], &[sizes.bn, DEPTH]);
                multiply(b, Unit::Warpgroup, sum.clone(), (left, false), (right, true));
            }
            b.gpu(Gpu::Commit(Group::Mma));
            b.gpu(Gpu::Wait(Group::Mma, 0));
            if h + 1 == sizes.row_blocks {
                // Each thread for itself: that the products are done tells it nothing of what the others have read. One lane for
                // its warp would do, but is no faster, and race checkers do not follow it.
                ring.slots.give_back(b, slot.clone(), None);
            }
            if let Some(added) = held.added {
                b.loop_("row", 64, LoopKind::FragmentRow, |b, row| {
                    b.loop_("column", sizes.bn, LoopKind::FragmentCol, |b, column| {
                        let at = vec![h.into(), row.into(), column.into()];
                        let more = Expr::load(added, vec![0.into(), row.into(), column.into()]);
                        b.store(held.total, at.clone(), Expr::load(held.total, at) + more);
                    });
                });
            }
        }
        ring.slots.place.advance(b);
    }

    /// Stores row block `h`, whose first row in the tile is `first`.
    fn store(&self, b: &mut KernelBuilder, held: &Held, h: i64, first: Expr, [row_tile, column_tile]: [VarId; 2]) {
        let (source, bn, bm) = (&self.plan.source, self.plan.sizes.bn, self.plan.sizes.bm());
        let pixel = |b: &mut KernelBuilder, row: VarId| {
            let pixel = source.pixel(b, row_tile * bm + first + row, 1);
            let exists = source.exists(&pixel, 1, bm);
            (pixel, exists)
        };
        store(b, (self.w, &self.params, source), (column_tile, bn), pixel, |[row, column], _| {
            Expr::load(held.total, vec![h.into(), row.into(), column.into()])
        });
    }
}

/// Row block `h` of sums.
fn sums(buffer: BufferId, h: i64, bn: i64) -> Tile {
    tile(buffer, vec![h.into(), 0.into(), 0.into()], &[1, 64, bn])
}
