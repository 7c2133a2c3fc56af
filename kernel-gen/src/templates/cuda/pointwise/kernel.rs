//! The kernel, and the one that packs the weights for it.

use super::plan::{CHUNK, DEPTH, Plan, ROWS};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, Scope, Stmt, Unit, VarId};
use crate::target::Cuda;
use crate::templates::Pack;
use crate::templates::cuda::guards::{below, inside};
use crate::templates::cuda::instructions::{fetch_image, multiply, tile};
use crate::templates::cuda::launch::{LANE, launch, pack_rows};
use crate::templates::cuda::warp_sums::{Destination, Rows, WarpSums};
use crate::workload::operands::Operands;
use crate::workload::{Param, Role, Workload};

/// Brings the weights into the order in which lanes have the terms, as blocks have them in shared memory: zeros beyond
/// the last term and column, and at the end of each row.
pub(super) fn pack(plan: &Plan, w: &Workload, weight: &Param) -> Pack {
    let shape @ [tiles, columns, _] = plan.packed_shape();
    let (from, to) = ((weight.name, w.dtype, &weight.shape[..]), (w.dtype, &shape[..]));
    let (loops, thread) = ([("tile", tiles), ("within", columns)], ("thread", Cuda::WARP));
    pack_rows(from, to, loops, thread, |b, [weights, packed], [tile, within], place| {
        let (term, column) = (b.let_("term", term_at(&place)), tile * columns + within);
        let mut inside = vec![place.clone().lt(plan.chunks() * CHUNK)];
        inside.extend(below(term, plan.source.depth(), CHUNK));
        inside.extend(below(column.clone(), plan.source.columns(), columns));
        let to = vec![tile.into(), within.into(), place];
        let value = Expr::load(weights, plan.source.weight([0.into(), 0.into()], term.into(), column));
        b.if_else(
            Expr::all(inside).expect("one condition at least"),
            |b| b.store(packed, to.clone(), value),
            |b| b.store(packed, to.clone(), Expr::f32(0.0)),
        );
    })
}

/// The term that [`lane_order`](crate::ir::lane_order) puts at a place.
fn term_at(place: &Expr) -> Expr {
    let part = |of: i64, by: i64| place.clone().floor_mod(of).floor_div(by);
    let group = place.clone().floor_div(CHUNK) * CHUNK;
    group + part(8, 2) * 8 + part(32, 16) * 4 + part(16, 8) * 2 + place.clone().floor_mod(2)
}

/// The kernel of a workload.
pub(super) fn kernel(plan: &Plan, w: &Workload) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::shaped(&mut b, w, |p| match p.role {
        Role::Weight => plan.packed_shape().to_vec(),
        // Pixels are rows, whichever image they are of.
        Role::Output | Role::Residual => vec![plan.source.rows(), plan.source.columns()],
        Role::Input => vec![plan.source.rows(), plan.source.depth()],
        _ => p.shape.clone(),
    });
    let (loops, threads) =
        ([("columns", plan.column_tiles()), ("block", plan.blocks())], [("warp", plan.sizes.warps), LANE]);
    launch(&mut b, loops, threads, |b, [columns, block], [warp, lane]| {
        Block { plan, w, params, columns, block, warp, lane }.run(b);
    });
    b.finish()
}

/// What a thread knows of its place.
struct Block<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    params: Operands,
    columns: VarId,
    block: VarId,
    warp: VarId,
    lane: VarId,
}

/// What a warp multiplies.
struct Held {
    /// The rows of a tile: `[chunks, ROWS, CHUNK]`.
    left: BufferId,
    /// The weights of one product.
    right: BufferId,
    /// All weights of the block.
    weights: BufferId,
    sums: WarpSums,
}

impl Block<'_> {
    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let warp = Scope::Fragment(Unit::Warp);
        let weights = b.alloc("weights", self.w.dtype, &plan.packed_shape()[1..], Scope::Shared);
        let left = b.alloc("left", self.w.dtype, &[plan.chunks(), ROWS, CHUNK], warp);
        let threads = (self.warp * Cuda::WARP + self.lane, sizes.threads());
        fetch_image(b, threads, [sizes.bn, plan.weight_pitch()], (self.params.at(1), self.columns), weights);
        b.gpu(Gpu::Commit(Group::Copy));
        // The first rows are under way while the weights are.
        let first = self.first_row(0.into());
        self.bring_all(b, left, &first);
        b.gpu(Gpu::Wait(Group::Copy, 0));
        b.push(Stmt::Barrier(Barrier::Block));
        let right = b.alloc("right", self.w.dtype, &[sizes.bn, DEPTH], warp);
        let sums = b.alloc("sums", DType::F32, &[1, ROWS, sizes.bn], warp);
        let sums = WarpSums { buffer: sums, count: 1, columns: sizes.bn, names: ["row", "column"] };
        let held = Held { left, right, weights, sums };
        b.for_("turn", plan.turns(), |b, turn| {
            let first = Expr::from(b.let_("first_row", self.first_row(turn.into())));
            // Behind the last tile there are no rows, and nothing is read.
            let next = (plan.turns() > 1).then(|| Expr::from(b.let_("next_row", self.first_row(turn + 1))));
            held.sums.clear(b);
            for chunk in 0..plan.chunks() {
                self.multiply(b, &held, chunk);
                if let (Some(next), true) = (&next, sizes.ahead) {
                    self.bring(b, left, chunk, next);
                }
            }
            self.store(b, &held.sums, &first);
            if let (Some(next), false) = (&next, sizes.ahead) {
                self.bring_all(b, left, next);
            }
        });
    }

    /// The first row of this warp's tile in a turn. Neighbours are in different blocks, so that in the last turn, too, all
    /// multiprocessors have about as much to do.
    fn first_row(&self, turn: Expr) -> Expr {
        let blocks = self.plan.blocks();
        ((turn * self.plan.sizes.warps + self.warp) * blocks + self.block) * ROWS
    }

    /// Brings a chunk of a tile's rows.
    fn bring(&self, b: &mut KernelBuilder, left: BufferId, chunk: i64, first: &Expr) {
        b.gpu(Gpu::MoveRows {
            dst: tile(left, vec![chunk.into(), 0.into(), 0.into()], &[ROWS, CHUNK]),
            src: tile(self.params.at(0), vec![first.clone(), (chunk * CHUNK).into()], &[ROWS, CHUNK]),
        });
    }

    /// Brings a tile's rows.
    fn bring_all(&self, b: &mut KernelBuilder, left: BufferId, first: &Expr) {
        (0..self.plan.chunks()).for_each(|chunk| self.bring(b, left, chunk, first));
    }

    /// Multiplies a chunk of the rows.
    fn multiply(&self, b: &mut KernelBuilder, held: &Held, chunk: i64) {
        let bn = self.plan.sizes.bn;
        for step in (0..CHUNK).step_by(DEPTH as usize) {
            let place = chunk * CHUNK + step;
            let right = tile(held.right, [0.into(), 0.into()], &[bn, DEPTH]);
            b.gpu(Gpu::Move { dst: right.clone(), src: tile(held.weights, [0.into(), place.into()], &[bn, DEPTH]) });
            let sums = tile(held.sums.buffer, [0.into(), 0.into(), 0.into()], &[ROWS, bn]);
            let left = tile(held.left, [chunk.into(), 0.into(), step.into()], &[ROWS, DEPTH]);
            multiply(b, Unit::Warp, sums, (left, false), (right, true));
        }
    }

    /// The index of an output, and whether it exists.
    fn output(&self, first: &Expr, row: Expr, column: Expr) -> ([Expr; 2], Option<Expr>) {
        let (plan, bn) = (self.plan, self.plan.sizes.bn);
        let at = [first.clone() + row, self.columns * bn + column];
        let beyond = [plan.turns() * plan.blocks() * plan.sizes.warps * ROWS, plan.column_tiles() * bn];
        let exists = inside(&at, [plan.source.rows(), plan.source.columns()], beyond);
        (at, exists)
    }

    /// Stores a tile.
    fn store(&self, b: &mut KernelBuilder, sums: &WarpSums, first: &Expr) {
        let (plan, source) = (self.plan, &self.plan.source);
        let to = Destination {
            w: self.w,
            params: &self.params,
            sizes: [source.rows(), source.columns()],
            at: &|_, [row, column]| self.output(first, row, column),
            index: &|at| at.to_vec(),
        };
        if !plan.sizes.staged() {
            return sums.store(b, 0, &to);
        }
        let (warps, dtype) = (plan.sizes.warps, self.w.out_dtype);
        let (pitch, piece) = (plan.sum_pitch(), plan.piece());
        sums.store_rows(b, &Rows { warps, warp: self.warp, lane: self.lane, dtype, pitch, piece }, &to);
        if plan.turns() > 1 {
            // The next tile's sums go over this one's.
            b.push(Stmt::Barrier(Barrier::Warp));
        }
    }
}
