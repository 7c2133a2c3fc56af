//! The kernel that all products share: a ring of tiles in shared memory, and what warps make of it.

use super::{PAIR, Plan, Reduce, TILE};
use crate::ir::builder::KernelBuilder;
use crate::ir::{
    Axis, Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, LoopKind, Operand, Scope, Stmt, Unit, VarId,
};
use crate::target::Cuda;
use crate::templates::cuda::exchange::Exchange;
use crate::templates::cuda::product::{self, Fetch, Layout, Product};
use crate::templates::cuda::warp_sums::WarpSums;
use crate::templates::cuda::{ceil_div, tile, unrolled};
use crate::workload::operands::Operands;

/// The kernel of a product.
pub(super) fn kernel(product: &dyn Product, plan: &Plan) -> Kernel {
    let w = product.workload();
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::shaped(&mut b, w, |p| product.shape(p));
    let partial = (plan.sizes.split > 1 && plan.sizes.reduce == Reduce::Launch).then(|| {
        b.alloc("partial", DType::F32, &[plan.sizes.split, plan.batch, plan.m, plan.partial_pitch()], Scope::Global)
    });
    let [down, across] = plan.tiles();
    let ranks = if partial.is_some() { plan.sizes.split } else { 1 };
    b.loop_("part", ranks, LoopKind::Grid(Axis::Z), |b, part| {
        b.loop_("batch", plan.batch, LoopKind::Grid(Axis::Y), |b, batch| {
            b.loop_("tile", down * across, LoopKind::Grid(Axis::X), |b, tile| {
                let threads = |b: &mut KernelBuilder, rank: Expr| {
                    b.loop_("warp", plan.sizes.warp_count(), LoopKind::Thread(Axis::Y), |b, warp| {
                        b.loop_("lane", Cuda::WARP, LoopKind::Thread(Axis::X), |b, lane| {
                            let batch = if plan.batch > 1 { batch.into() } else { Expr::Int(0) };
                            Block { product, plan, params: &params, partial, batch, tile, rank, warp, lane }.run(b);
                        });
                    });
                };
                match plan.clustered() {
                    true => b.loop_("rank", plan.sizes.split, LoopKind::Cluster(Axis::X), |b, r| threads(b, r.into())),
                    false => threads(b, if ranks > 1 { part.into() } else { Expr::Int(0) }),
                }
            });
        });
    });
    if let Some(partial) = partial {
        plan.outputs(product, &params).add_parts(&mut b, partial, plan.sizes.split, plan.piece().min(4));
    }
    b.finish()
}

/// What a thread knows of its place.
pub(super) struct Block<'a> {
    pub(super) product: &'a dyn Product,
    pub(super) plan: &'a Plan,
    pub(super) params: &'a Operands,
    /// Where the sums of parts of the reduction go, if another launch adds them up.
    pub(super) partial: Option<BufferId>,
    pub(super) batch: Expr,
    pub(super) tile: VarId,
    /// Which part of the reduction this block has.
    pub(super) rank: Expr,
    pub(super) warp: VarId,
    pub(super) lane: VarId,
}

/// The ring of tiles, and the registers of a warp.
struct Memory {
    ring: [BufferId; 2],
    operands: [BufferId; 2],
    sums: WarpSums,
}

/// What a thread copies of the left operand in each step: the place in the tile, what was named of it, and whether there
/// is something left to copy.
struct Copied {
    row: Expr,
    column: Expr,
    named: Vec<Expr>,
    within: Option<Expr>,
}

impl Block<'_> {
    pub(super) fn thread(&self) -> Expr {
        self.warp * Cuda::WARP + self.lane
    }

    /// The first row and column of this warp in the tile.
    pub(super) fn corner(&self) -> [Expr; 2] {
        let sizes = self.plan.sizes;
        let warp = Expr::from(self.warp);
        [
            warp.clone().floor_div(sizes.warps[1]) * sizes.warp_tile()[0],
            warp.floor_mod(sizes.warps[1]) * sizes.warp_tile()[1],
        ]
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let sizes = self.plan.sizes;
        let place = product::place(b, self.tile, self.plan.tiles(), sizes.group);
        let memory = self.memory(b);
        let exchange = self.plan.clustered().then(|| Exchange::make(b, self.thread(), sizes.split, sizes.tile));
        let copied = self.copied(b, place[0]);
        let first = b.let_("first_step", self.rank.clone() * self.plan.steps());
        let ahead = sizes.stages - 1;
        for step in 0..ahead {
            self.fetch(b, &memory, &copied, place[1], Fetch { step: first + step, slot: step.into(), more: None });
            b.gpu(Gpu::Commit(Group::Copy));
        }
        if exchange.is_some() {
            // Blocks may store in each other's memory once all have started; the first tiles are under way meanwhile.
            b.gpu(Gpu::ClusterBarrier);
        }
        memory.sums.clear(b);
        let arrive = |b: &mut KernelBuilder| {
            b.gpu(Gpu::Wait(Group::Copy, (ahead - 1) as u32));
            // What was copied is seen by all, and all have read what the next tile goes over.
            b.push(Stmt::Barrier(Barrier::Block));
        };
        let parts = sizes.tile_k / TILE;
        arrive(b);
        self.bring(b, &memory, &Expr::Int(0), 0);
        b.for_("step", self.plan.steps(), |b, step| {
            let slot =
                |b: &mut KernelBuilder, name: &str, step: Expr| b.let_(name, step.floor_mod(sizes.stages)).into();
            let here = slot(b, "slot", step.into());
            let next = slot(b, "next_slot", step + 1);
            for k in 0..parts {
                if k + 1 < parts {
                    self.bring(b, &memory, &here, k + 1);
                }
                if k == 0 {
                    // No branch, so that compilers mix this with the products. Behind the last step come zeros, which are
                    // brought to registers and not multiplied.
                    let fetched = step + ahead;
                    let slot = fetched.clone().floor_mod(sizes.stages);
                    let more = Some(fetched.clone().lt(self.plan.steps()));
                    self.fetch(b, &memory, &copied, place[1], Fetch { step: first + fetched, slot, more });
                    b.gpu(Gpu::Commit(Group::Copy));
                }
                match (k + 1 == parts, parts > 1) {
                    // The first operands of the next step come while the last of this one are multiplied.
                    (true, true) => {
                        arrive(b);
                        self.bring(b, &memory, &next, 0);
                        self.multiply(b, &memory, k);
                    }
                    (true, false) => {
                        self.multiply(b, &memory, k);
                        arrive(b);
                        self.bring(b, &memory, &next, 0);
                    }
                    (false, _) => self.multiply(b, &memory, k),
                }
            }
        });
        match (exchange, self.partial) {
            (Some(exchange), _) => self.add_up(b, &memory.sums, place, &exchange),
            (None, Some(partial)) => self.store_partial(b, &memory.sums, place, partial),
            (None, None) => self.store(b, &memory.sums, place),
        }
    }

    /// The memory of the block.
    fn memory(&self, b: &mut KernelBuilder) -> Memory {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let dtype = self.product.workload().dtype;
        let layouts = self.product.layouts();
        let ring = |b: &mut KernelBuilder, name: &str, layout: Layout, length: i64| {
            let [rows, pitch] = plan.slot(layout, length);
            b.alloc(name, dtype, &[sizes.stages, rows, pitch], Scope::Shared)
        };
        let ring = [ring(b, "left_tile", layouts[0], sizes.tile[0]), ring(b, "right_tile", layouts[1], sizes.tile[1])];
        let warp = Scope::Fragment(Unit::Warp);
        let [m, n] = sizes.warp_tile();
        let left = match layouts[0] {
            Layout::ReductionFast => [PAIR, m, TILE],
            Layout::ReductionSlow => [PAIR, TILE, m],
        };
        let right = match layouts[1] {
            Layout::ReductionFast => [PAIR, n, TILE],
            Layout::ReductionSlow => [PAIR, TILE, n],
        };
        let operands = [b.alloc("left", dtype, &left, warp), b.alloc("right", dtype, &right, warp)];
        let sums = b.alloc("sums", DType::F32, &[m / TILE, TILE, n], warp);
        let sums = WarpSums { buffer: sums, count: m / TILE, columns: n, names: ["row", "column"] };
        Memory { ring, operands, sums }
    }

    /// Names what does not change from step to step of what this thread copies from the left.
    fn copied(&self, b: &mut KernelBuilder, row_tile: VarId) -> Vec<Copied> {
        let (sizes, threads) = (self.plan.sizes, self.plan.sizes.threads());
        let (layout, unit) = (self.product.layouts()[0], self.product.units()[0]);
        let per_row = if layout == Layout::ReductionFast { sizes.tile_k } else { sizes.tile[0] } / unit;
        let count = sizes.tile[0] * sizes.tile_k / unit;
        (0..ceil_div(count, threads))
            .map(|turn| {
                let piece = self.thread() + turn * threads;
                let within = ((turn + 1) * threads > count).then(|| piece.clone().lt(count));
                let row = Expr::from(b.let_("copy_row", piece.clone().floor_div(per_row)));
                let column = Expr::from(b.let_("copy_column", piece.floor_mod(per_row) * unit));
                let outer = if layout == Layout::ReductionFast { row.clone() } else { column.clone() };
                let named = self.product.left_row(b, row_tile * sizes.tile[0] + outer);
                Copied { row, column, named, within }
            })
            .collect()
    }

    /// Has the tiles of a step brought to a slot; zeros, where there is no such step.
    fn fetch(&self, b: &mut KernelBuilder, memory: &Memory, copied: &[Copied], tile_n: VarId, fetch: Fetch) {
        let Fetch { step, slot, more } = fetch;
        let guard = |exists: Option<Expr>| Expr::all(more.clone().into_iter().chain(exists));
        let sizes = self.plan.sizes;
        let (layouts, units) = (self.product.layouts(), self.product.units());
        let k = b.let_("k", step * sizes.tile_k);
        let step = self.product.step(b, &[], &k.into());
        for c in copied {
            let within = if layouts[0] == Layout::ReductionFast { &c.column } else { &c.row };
            let piece = self.product.left(&self.batch, &c.named, &step, within.clone());
            let copy = |b: &mut KernelBuilder| {
                b.gpu(Gpu::CopyAsync {
                    dst: tile(memory.ring[0], vec![slot.clone(), c.row.clone(), c.column.clone()], &units[..1]),
                    src: tile(self.params.at(0), piece.index, &units[..1]),
                    guard: guard(piece.exists),
                });
            };
            match &c.within {
                Some(within) => b.if_(within.clone(), copy),
                None => copy(b),
            }
        }
        let (layout, unit) = (layouts[1], units[1]);
        let per_row = if layout == Layout::ReductionFast { sizes.tile_k } else { sizes.tile[1] } / unit;
        let count = sizes.tile[1] * sizes.tile_k / unit;
        let threads = sizes.threads();
        unrolled(b, "turn", ceil_div(count, threads), |b, turn| {
            let piece = turn * threads + self.thread();
            let row = piece.clone().floor_div(per_row);
            let at = piece.clone().floor_mod(per_row) * unit;
            let (column, within) = match layout {
                Layout::ReductionFast => (row.clone(), at.clone()),
                Layout::ReductionSlow => (at.clone(), row.clone()),
            };
            let from = self.product.right(&self.batch, &tile_n.into(), &step, column, within);
            let copy = |b: &mut KernelBuilder| {
                b.gpu(Gpu::CopyAsync {
                    dst: tile(memory.ring[1], vec![slot.clone(), row, at], &[unit]),
                    src: tile(self.params.at(1), from.index, &[unit]),
                    guard: guard(from.exists),
                });
            };
            if count % threads == 0 { copy(b) } else { b.if_(piece.lt(count), copy) }
        });
    }

    /// Brings the operands of part `k` of a slot to registers.
    fn bring(&self, b: &mut KernelBuilder, memory: &Memory, slot: &Expr, k: i64) {
        let sizes = self.plan.sizes;
        let lengths = sizes.warp_tile();
        for (side, outer) in self.corner().into_iter().enumerate() {
            let (from, extents) = match self.product.layouts()[side] {
                Layout::ReductionFast => (vec![slot.clone(), outer, (k * TILE).into()], [lengths[side], TILE]),
                Layout::ReductionSlow => (vec![slot.clone(), (k * TILE).into(), outer], [TILE, lengths[side]]),
            };
            let dst = tile(memory.operands[side], vec![(k % PAIR).into(), 0.into(), 0.into()], &extents);
            b.gpu(Gpu::Move { dst, src: tile(memory.ring[side], from, &extents) });
        }
    }

    /// Multiplies the operands of part `k` of a step.
    fn multiply(&self, b: &mut KernelBuilder, memory: &Memory, k: i64) {
        let [m, n] = self.plan.sizes.warp_tile();
        let layouts = self.product.layouts();
        for i in 0..m / TILE {
            let at = match layouts[0] {
                Layout::ReductionFast => [i * TILE, 0],
                Layout::ReductionSlow => [0, i * TILE],
            };
            let right = match layouts[1] {
                Layout::ReductionFast => [n, TILE],
                Layout::ReductionSlow => [TILE, n],
            };
            let operand = |side: usize, at: [i64; 2], extents: &[i64], transposed: bool| Operand {
                tile: tile(memory.operands[side], vec![(k % PAIR).into(), at[0].into(), at[1].into()], extents),
                transposed,
            };
            b.gpu(Gpu::Mma {
                unit: Unit::Warp,
                acc: tile(memory.sums.buffer, vec![i.into(), 0.into(), 0.into()], &[TILE, n]),
                a: operand(0, at, &[TILE, TILE], layouts[0] == Layout::ReductionSlow),
                b: operand(1, [0, 0], &right, layouts[1] == Layout::ReductionFast),
            });
        }
    }
}
