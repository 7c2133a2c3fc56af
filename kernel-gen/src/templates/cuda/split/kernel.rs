//! The kernel, and the one that packs the weights for it.

use super::walk::{Walk, Weights, roles, store};
use super::{DEPTH, PRODUCERS, Plan, Sizes, WARPGROUP};
use crate::ir::builder::KernelBuilder;
use crate::ir::{
    Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, LoopKind, MbarrierOp, Operand, Scope, Stmt, Tile, UnOp, Unit,
    VarId,
};
use crate::templates::Pack;
use crate::templates::cuda::launch::{self, launch};
use crate::templates::cuda::ring::Slots;
use crate::templates::cuda::source::{Fast, Pixel};
use crate::templates::cuda::{tile, unrolled};
use crate::workload::operands::Operands;
use crate::workload::{Param, Role, Workload};

/// Threads of a block of the kernel that packs.
const PACK_THREADS: i64 = 128;

/// The shape of the packed weights: for each tile of columns and each step the parts, each `columns x DEPTH`.
fn packed_shape(plan: &Plan) -> Vec<i64> {
    vec![plan.column_tiles(), plan.steps(), plan.parts.count(), plan.sizes.bn, DEPTH]
}

/// Brings the weights into the order in which blocks fetch them, as their parts; zeros stand beyond the last column and
/// the last term of the reduction.
pub(super) fn pack(plan: &Plan, weight: &Param) -> Pack {
    let (dtype, columns_at_once) = (plan.parts.dtype(), PACK_THREADS / DEPTH);
    let (from, to) = ((weight.name, DType::F32, &weight.shape[..]), (dtype, &packed_shape(plan)[..]));
    let loops = [("tile", plan.column_tiles()), ("step", plan.steps())];
    launch::pack(from, to, loops, [("t", PACK_THREADS)], |b, [w, packed], [tile, step], [t]| {
        b.for_("turn", plan.sizes.bn / columns_at_once, |b, turn| {
            let within = turn * columns_at_once + Expr::from(t).floor_div(DEPTH);
            let place = Expr::from(t).floor_mod(DEPTH);
            let column = tile * plan.sizes.bn + within.clone();
            let value = plan.weights(w).original(b, step, place.clone(), column);
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

impl Plan {
    /// The weights in a buffer, as they are or packed.
    fn weights(&self, buffer: BufferId) -> Weights<'_> {
        Weights { source: &self.source, buffer, chunks: self.chunks(), bn: self.sizes.bn, depth: DEPTH }
    }
}

/// The kernel of a workload for a device of so many multiprocessors.
pub(super) fn kernel(plan: &Plan, w: &Workload, multiprocessors: i64) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::typed(&mut b, w, |p| match p.role {
        Role::Weight => (plan.parts.dtype(), packed_shape(plan)),
        _ => (p.dtype, p.shape.clone()),
    });
    let blocks = multiprocessors.min(plan.tiles());
    launch(&mut b, [("block", blocks)], [("t", plan.sizes.threads())], |b, [first], [thread]| {
        Block { plan, w, params, thread }.run(b, first, blocks);
    });
    b.finish()
}

/// What a thread knows of its place.
struct Block<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    params: Operands,
    thread: VarId,
}

/// The ring of slots between the producers and the consumers, and this thread's place in it.
struct Ring {
    /// Elements of the left operand, as they lie in memory: `[rows, DEPTH]`, swizzled or padded, or `[DEPTH, rows]`.
    left: BufferId,
    /// Parts of the weights.
    right: BufferId,
    slots: Slots,
}

impl Ring {
    /// The rows of a slot from `first` on that a warpgroup multiplies, as an operand.
    fn rows(&self, fast: Fast, slot: &Expr, first: Expr) -> Operand {
        match fast {
            Fast::Reduction => {
                Operand { tile: tile(self.left, vec![slot.clone(), first, 0.into()], &[64, DEPTH]), transposed: false }
            }
            Fast::Rows => {
                Operand { tile: tile(self.left, vec![slot.clone(), 0.into(), first], &[DEPTH, 64]), transposed: true }
            }
        }
    }
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

impl Block<'_> {
    fn sizes(&self) -> Sizes {
        self.plan.sizes
    }

    fn walk(&self) -> Walk {
        let (tiles, columns) = (self.plan.tiles(), self.plan.column_tiles());
        Walk { tiles, columns, taps: self.plan.source.taps(), chunks: self.plan.chunks() }
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder, first: VarId, blocks: i64) {
        let ring = self.ring(b);
        b.push(Stmt::Barrier(Barrier::Block));
        let (consumers, registers) = (self.sizes().consumers, self.plan.shares());
        let consume = |b: &mut KernelBuilder| self.consume(b, &ring, first, blocks);
        roles(b, self.thread, consumers, registers, consume, |b| self.produce(b, &ring, first, blocks));
    }

    fn ring(&self, b: &mut KernelBuilder) -> Ring {
        let (sizes, stages) = (self.sizes(), self.sizes().stages);
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
        let slots = Slots::make(b, self.thread, stages, arrivals, |_| {});
        Ring { left, right, slots }
    }

    /// What the producers do. Copies of the pixels are waited for `lag` steps later, when those of further steps are under way.
    fn produce(&self, b: &mut KernelBuilder, ring: &Ring, first: VarId, blocks: i64) {
        let (parts, lag) = (self.plan.parts, self.sizes().lag);
        let weights = self.plan.weights(self.params.get(self.plan.source.operands()[1]));
        self.walk().tiles(b, first, blocks, &mut |b, [row, column]| {
            self.walk().all_steps(b, &mut |b, taps, chunk| {
                let slot = ring.slots.wait_empty(b);
                b.if_(Expr::from(self.thread).eq(self.sizes().consumers * WARPGROUP), |b| {
                    let bytes = parts.bytes() * parts.count() * self.sizes().bn * DEPTH;
                    ring.slots.expect(b, &slot, bytes);
                    weights.fetch(b, (ring.right, &ring.slots, &slot), parts.count(), column, (taps, chunk));
                });
                self.fetch(b, ring, &slot, row, taps, chunk);
                b.gpu(Gpu::Commit(Group::Copy));
                b.if_(Expr::Int(lag - 1).lt(ring.slots.place.steps()), |b| {
                    b.gpu(Gpu::Wait(Group::Copy, lag as u32));
                    self.announce(b, ring, lag);
                });
                ring.slots.place.advance(b);
            });
        });
        b.gpu(Gpu::Wait(Group::Copy, 0));
        for back in (1..=lag).rev() {
            // Of fewer steps than that, not all are there to be told of.
            b.if_(Expr::Int(back - 1).lt(ring.slots.place.steps()), |b| self.announce(b, ring, back));
        }
    }

    /// Tells the consumers that this thread's pixels are in the slot of so many steps ago.
    fn announce(&self, b: &mut KernelBuilder, ring: &Ring, back: i64) {
        b.gpu(Gpu::Mbarrier(ring.slots.full(&ring.slots.place.before(back)), MbarrierOp::Arrive(None)));
    }

    /// Has the pixels of a step brought to a slot.
    fn fetch(&self, b: &mut KernelBuilder, ring: &Ring, slot: &Expr, row: VarId, taps: [VarId; 2], chunk: VarId) {
        let (source, sizes, width) = (&self.plan.source, self.sizes(), self.plan.source.width());
        let x = self.params.get(source.operands()[0]);
        // The first producer is the first thread of a warpgroup.
        let t = Expr::from(self.thread).floor_mod(PRODUCERS);
        let copy = |b: &mut KernelBuilder, pixel: &Pixel, term: Expr, to: [Expr; 2]| {
            let (from, mut inside) = source.element(pixel, taps, term.clone());
            // What lies side by side exists together, so the last of them says it for all.
            let [side, deep] = if source.fast() == Fast::Rows { [width, 1] } else { [1, width] };
            inside.extend(source.exists(pixel, side, sizes.bm()));
            if source.depth() % DEPTH != 0 {
                inside.push((term + (deep - 1)).lt(source.depth()));
            }
            b.gpu(Gpu::CopyAsync {
                dst: neighbours(ring.left, [vec![slot.clone()], to.to_vec()].concat(), width),
                src: neighbours(x, from, width),
                guard: Expr::all(inside),
            });
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

    /// What the consumers do.
    fn consume(&self, b: &mut KernelBuilder, ring: &Ring, first: VarId, blocks: i64) {
        let (sizes, parts) = (self.sizes(), self.plan.parts);
        let consumer = b.let_("consumer", Expr::from(self.thread).floor_div(WARPGROUP));
        let unit = Scope::Fragment(Unit::Warpgroup);
        let total = b.alloc("total", DType::F32, &[sizes.row_blocks, 64, sizes.bn], unit);
        let added = (parts.count() > 1).then(|| b.alloc("added", DType::F32, &[1, 64, sizes.bn], unit));
        let rows = b.alloc("rows", parts.dtype(), &[parts.count(), 64, DEPTH], unit);
        let held = Held { total, added, rows };
        let own = consumer * (64 * sizes.row_blocks);
        self.walk().tiles(b, first, blocks, &mut |b, [row, column]| {
            for h in 0..sizes.row_blocks {
                b.gpu(Gpu::Fill { dst: sums(total, h, sizes.bn), value: Expr::f32(0.0) });
            }
            self.walk().all_steps(b, &mut |b, _, _| self.multiply(b, ring, &held, &own));
            for h in 0..sizes.row_blocks {
                self.store(b, &held, h, own.clone() + 64 * h, [row, column]);
            }
        });
    }

    /// One step: the sum of the products of parts, the small ones first, is added to what there is. Row blocks come one after
    /// the other, with the same registers: other consumers multiply while this one splits and adds.
    fn multiply(&self, b: &mut KernelBuilder, ring: &Ring, held: &Held, own: &Expr) {
        let (sizes, parts) = (self.sizes(), self.plan.parts);
        let slot = ring.slots.wait_full(b);
        for h in 0..sizes.row_blocks {
            let sum = match held.added {
                Some(added) => sums(added, 0, sizes.bn),
                None => sums(held.total, h, sizes.bn),
            };
            b.gpu(Gpu::Split {
                dst: tile(held.rows, vec![0.into(), 0.into(), 0.into()], &[parts.count(), 64, DEPTH]),
                src: ring.rows(self.plan.source.fast(), &slot, own.clone() + 64 * h),
            });
            if held.added.is_some() {
                b.gpu(Gpu::Fill { dst: sum.clone(), value: Expr::f32(0.0) });
            }
            for &[left, right] in parts.products() {
                b.gpu(Gpu::Mma {
                    unit: Unit::Warpgroup,
                    acc: sum.clone(),
                    a: Operand {
                        tile: tile(held.rows, vec![left.into(), 0.into(), 0.into()], &[64, DEPTH]),
                        transposed: false,
                    },
                    b: Operand {
                        tile: tile(
                            ring.right,
                            vec![slot.clone(), right.into(), 0.into(), 0.into()],
                            &[sizes.bn, DEPTH],
                        ),
                        transposed: true,
                    },
                });
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
        let (source, Sizes { bn, .. }, bm) = (&self.plan.source, self.sizes(), self.sizes().bm());
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

/// A tile of `width` neighbours along the dimension that they lie along.
fn neighbours(buffer: BufferId, origin: Vec<Expr>, width: i64) -> Tile {
    let extents = if width == 1 { vec![] } else { vec![width] };
    tile(buffer, origin, &extents)
}

/// Row block `h` of sums.
fn sums(buffer: BufferId, h: i64, bn: i64) -> Tile {
    tile(buffer, vec![h.into(), 0.into(), 0.into()], &[1, 64, bn])
}
