//! The kernel, and the one that packs the weights for it.

use super::plan::{CELL, Plan, TILE};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, LoopKind, Scope, Stmt, Unit, VarId};
use crate::target::Cuda;
use crate::templates::Pack;
use crate::templates::cuda::family::Store;
use crate::templates::cuda::guards::inside;
use crate::templates::cuda::instructions::{copy_async, fetch_image, multiply, tile};
use crate::templates::cuda::launch::{LANE, launch, pack_rows, share, unrolled};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::source::Source;
use crate::templates::cuda::warp_sums::{Destination, Rows, WarpSums};
use crate::workload::operands::Operands;
use crate::workload::{Role, Workload};

/// Brings the weights into the order of the reduction's cells, as blocks have them in shared memory: zeros where a cell
/// has no tap or channel, where a channel is beyond the last, and at the end of each row.
pub(super) fn pack(plan: &Plan) -> Pack {
    let (c, shape @ [tiles, depth, _]) = (&plan.c, plan.packed_shape());
    let (from, to) = (("w", plan.dtype, &c.weight_shape()[..]), (plan.dtype, &shape[..]));
    let (loops, thread) = ([("tile", tiles), ("k", depth)], ("thread", Cuda::WARP));
    pack_rows(from, to, loops, thread, |b, [w, packed], [tile, k], column| {
        let run = plan.row_cells() * CELL;
        let (kh, within) = (Expr::from(k).floor_div(run), Expr::from(k).floor_mod(run));
        let (pixel, ci) = (within.clone().floor_div(plan.pixel()), within.floor_mod(plan.pixel()));
        let kw = pixel.clone() - plan.shift();
        let co = tile * plan.sizes.channels() + column.clone();
        let at = Source::Conv(*c).weight([kh.clone(), kw.clone()], ci.clone(), co.clone());
        let exists = [(kh, c.kh), (kw, c.kw), (ci, c.ci), (column.clone(), plan.sizes.channels()), (co, c.co)];
        let before = (plan.shift() > 0).then(|| Expr::Int(plan.shift()).le(pixel));
        let exists = Expr::all(before.into_iter().chain(exists.map(|(index, size)| index.lt(size))));
        let exists = exists.expect("five conditions");
        let place = vec![tile.into(), k.into(), column];
        b.if_else(
            exists,
            |b| b.store(packed, place.clone(), Expr::load(w, at)),
            |b| b.store(packed, place.clone(), Expr::f32(0.0)),
        );
    })
}

/// The kernel of a workload.
pub(super) fn kernel(plan: &Plan, w: &Workload) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::shaped(&mut b, w, |p| match p.role {
        Role::Weight => plan.packed_shape().to_vec(),
        // A row is a run of elements, whichever pixels they are of.
        Role::Input if plan.paired() => vec![plan.c.n, plan.c.h, plan.c.w * plan.c.ci],
        _ => p.shape.clone(),
    });
    let [down, along] = plan.tiles();
    let loops = [("image", plan.c.n), ("channels", plan.channel_tiles()), ("tile", down * along)];
    launch(&mut b, loops, [("warp", plan.sizes.warps()), LANE], |b, [image, channels, tile], [warp, lane]| {
        Block { plan, w, params, image, channels, tile, warp, lane }.run(b);
    });
    b.finish()
}

/// What a thread knows of its place.
struct Block<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    params: Operands,
    image: VarId,
    channels: VarId,
    tile: VarId,
    warp: VarId,
    lane: VarId,
}

impl Block<'_> {
    fn thread(&self) -> Expr {
        self.warp * Cuda::WARP + self.lane
    }

    /// The first output row and column of the block.
    fn first(&self) -> [Expr; 2] {
        let (sizes, [_, along]) = (self.plan.sizes, self.plan.tiles());
        let tile = Expr::from(self.tile);
        [tile.clone().floor_div(along) * sizes.tile_h, tile.floor_mod(along) * (sizes.tile_w * TILE)]
    }

    /// The place of this warp's tile `i` in the block: its row, and its column in sixteens.
    fn place(&self, i: i64) -> [Expr; 2] {
        let sizes = self.plan.sizes;
        let position = Expr::from(self.warp).floor_div(sizes.across) * sizes.rows + i;
        [position.clone().floor_div(sizes.tile_w), position.floor_mod(sizes.tile_w)]
    }

    /// The first of this warp's channels in the block.
    fn first_channel(&self) -> Expr {
        Expr::from(self.warp).floor_mod(self.plan.sizes.across) * self.plan.sizes.warp_channels()
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let weights = b.alloc("weights", plan.dtype, &plan.packed_shape()[1..], Scope::Shared);
        let shape = [plan.in_rows(), plan.phases(), plan.in_cells(), CELL];
        let pixels = b.alloc("pixels", plan.dtype, &shape, Scope::Shared);
        let [_, depth, pitch] = plan.packed_shape();
        let image = (self.params.get("w"), self.channels);
        fetch_image(b, (self.thread(), sizes.threads()), [depth, pitch], image, weights);
        if plan.copied() {
            self.copy_pixels(b, pixels);
        }
        b.gpu(Gpu::Commit(Group::Copy));
        if !plan.copied() {
            self.gather_pixels(b, pixels);
        }
        let warp = Scope::Fragment(Unit::Warp);
        let n = sizes.warp_channels();
        let sums = b.alloc("sums", DType::F32, &[sizes.rows, TILE, n], warp);
        let sums = WarpSums { buffer: sums, count: sizes.rows, columns: n, names: ["pixel", "channel"] };
        sums.clear(b);
        b.gpu(Gpu::Wait(Group::Copy, 0));
        b.push(Stmt::Barrier(Barrier::Block));
        self.multiply(b, sums.buffer, weights, pixels);
        self.store(b, &sums);
    }

    /// Where a cell of the block goes, the input row that it is of, and its number along that row.
    fn cell(&self, index: Expr) -> ([Expr; 3], Expr, Expr) {
        let (phases, in_cells) = (self.plan.phases(), self.plan.in_cells());
        let row = index.clone().floor_div(phases * in_cells);
        let along = index.floor_mod(phases * in_cells);
        let to = [row.clone(), along.clone().floor_mod(phases), along.clone().floor_div(phases)];
        let [first, _] = self.first();
        (to, first * self.plan.c.stride[0] + row - self.plan.c.padding[0], along)
    }

    /// The input column of a pixel of the block.
    fn column(&self, pixel: Expr) -> Expr {
        let [_, first] = self.first();
        first * self.plan.c.stride[1] + pixel - (self.plan.c.padding[1] + self.plan.shift())
    }

    /// The index of an element of the input or of the output.
    fn index(&self, [row, column, channel]: [Expr; 3]) -> Vec<Expr> {
        self.plan.c.layout.index(self.image.into(), channel, row, column)
    }

    /// Has cells copied that lie in memory as they are wanted.
    fn copy_pixels(&self, b: &mut KernelBuilder, pixels: BufferId) {
        let (plan, c) = (self.plan, &self.plan.c);
        let wide = plan.pixel() / CELL;
        share(b, plan.sizes.threads(), self.thread(), plan.cells(), |b, index| {
            let ([r, phase, at], row, along) = self.cell(index);
            let column = self.column(along.clone().floor_div(wide));
            let inside = KernelBuilder::between(&row, 0, c.h).and(KernelBuilder::between(&column, 0, c.w));
            let from = self.index([row, column, along.floor_mod(wide) * CELL]);
            copy_async(b, (pixels, [r, phase, at, 0.into()]), (self.params.get("x"), from), CELL, Some(inside));
        });
    }

    /// Gathers cells: a thread reads the elements of several before it writes the first, because it is the time that
    /// they are under way which counts.
    fn gather_pixels(&self, b: &mut KernelBuilder, pixels: BufferId) {
        let plan = self.plan;
        let (threads, batch) = (plan.sizes.threads(), plan.batch());
        let cell = b.alloc("cell", plan.dtype, &[batch, CELL], Scope::Register);
        let run = plan.paired().then(|| b.alloc("run", plan.dtype, &[batch, plan.cell_values()], Scope::Register));
        let rounds = ceil_div(plan.cells(), threads * batch);
        let whole = plan.cells() % (threads * batch) == 0;
        let one_round = |b: &mut KernelBuilder, round: Expr| {
            let index = |u: VarId| (round.clone() * batch + u) * threads + self.thread();
            unrolled(b, "ahead", batch, |b, u| {
                unrolled(b, "element", CELL, |b, element| {
                    b.store(cell, vec![u.into(), element.into()], Expr::f32(0.0));
                });
                match run {
                    Some(run) => self.gather_run(b, run, u, index(u), !whole),
                    None => self.gather_cell(b, cell, u, index(u), !whole),
                }
            });
            unrolled(b, "now", batch, |b, u| {
                if let Some(run) = run {
                    for value in 0..plan.cell_values() {
                        let to = value / plan.c.ci * plan.pixel() + value % plan.c.ci;
                        b.store(cell, vec![u.into(), to.into()], Expr::load(run, vec![u.into(), value.into()]));
                    }
                }
                let put = |b: &mut KernelBuilder| {
                    let ([r, phase, at], ..) = self.cell(index(u));
                    b.loop_("element", CELL, LoopKind::Vectorized, |b, element| {
                        let to = vec![r.clone(), phase.clone(), at.clone(), element.into()];
                        b.store(pixels, to, Expr::load(cell, vec![u.into(), element.into()]));
                    });
                };
                b.when((!whole).then(|| index(u).lt(plan.cells())), put);
            });
        };
        match rounds {
            1 => one_round(b, 0.into()),
            n => b.for_("round", n, |b, round| one_round(b, round.into())),
        }
    }

    /// Reads the elements of a cell's pixels, two at a time.
    fn gather_run(&self, b: &mut KernelBuilder, run: BufferId, u: VarId, index: Expr, guard: bool) {
        let (plan, c) = (self.plan, &self.plan.c);
        unrolled(b, "element", plan.cell_values(), |b, element| {
            b.store(run, vec![u.into(), element.into()], Expr::f32(0.0));
        });
        let (_, row, along) = self.cell(index.clone());
        let column = self.column(along * plan.cell_pixels());
        let mut inside = KernelBuilder::between(&row, 0, c.h).and(KernelBuilder::between(&column, 0, c.w));
        if guard {
            inside = inside.and(index.lt(plan.cells()));
        }
        b.if_(inside, |b| {
            unrolled(b, "word", plan.cell_values() / 2, |b, word| {
                b.loop_("element", 2, LoopKind::Vectorized, |b, element| {
                    let value = word * 2 + element;
                    let from = vec![self.image.into(), row.clone(), column.clone() * c.ci + value.clone()];
                    b.store(run, vec![u.into(), value], Expr::load(self.params.get("x"), from));
                });
            });
        });
    }

    /// Reads the elements of a cell that exist.
    fn gather_cell(&self, b: &mut KernelBuilder, cell: BufferId, u: VarId, index: Expr, guard: bool) {
        let (plan, c) = (self.plan, &self.plan.c);
        let (_, row, along) = self.cell(index.clone());
        let (wide, pixels) = (plan.pixel() / CELL, plan.cell_pixels());
        for p in 0..pixels {
            let (pixel, first_channel) = match wide {
                0 => (along.clone() * pixels + p, Expr::Int(0)),
                _ => (along.clone().floor_div(wide), along.clone().floor_mod(wide) * CELL),
            };
            let column = self.column(pixel);
            let mut inside = KernelBuilder::between(&row, 0, c.h).and(KernelBuilder::between(&column, 0, c.w));
            if guard {
                inside = inside.and(index.clone().lt(plan.cells()));
            }
            b.if_(inside, |b| {
                for ci in 0..c.ci.min(CELL) {
                    let channel = first_channel.clone() + ci;
                    let from = self.index([row.clone(), column.clone(), channel.clone()]);
                    let to = vec![u.into(), Expr::Int(p * plan.pixel() + ci)];
                    let read = |b: &mut KernelBuilder| b.store(cell, to, Expr::load(self.params.get("x"), from));
                    // Of the last of several cells of a pixel not all channels exist.
                    if wide > 1 && c.ci % CELL <= ci && c.ci % CELL > 0 {
                        b.if_(channel.lt(c.ci), read);
                    } else {
                        read(b);
                    }
                }
            });
        }
    }

    /// The products of this warp: its outputs' cells by the weights of its channels.
    fn multiply(&self, b: &mut KernelBuilder, sums: BufferId, weights: BufferId, pixels: BufferId) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let warp = Scope::Fragment(Unit::Warp);
        let n = sizes.warp_channels();
        let left = b.alloc("left", plan.dtype, &[sizes.rows, TILE, TILE], warp);
        let right = b.alloc("right", plan.dtype, &[TILE, n], warp);
        let first_channel = b.let_("first_channel", self.first_channel());
        let places: Vec<[VarId; 2]> = (0..sizes.rows)
            .map(|i| {
                let [row, column] = self.place(i);
                [b.let_("row", row * plan.c.stride[0]), b.let_("column", column * TILE)]
            })
            .collect();
        for step in 0..plan.steps() {
            b.gpu(Gpu::Move {
                dst: tile(right, vec![0.into(), 0.into()], &[TILE, n]),
                src: tile(weights, vec![(step * TILE).into(), first_channel.into()], &[TILE, n]),
            });
            for (i, [row, column]) in (0..).zip(&places) {
                for half in 0..2 {
                    let at = plan.cell(2 * step + half);
                    let from = vec![*row + at.row, at.phase.into(), *column + at.along, 0.into()];
                    b.gpu(Gpu::Move {
                        dst: tile(left, vec![Expr::Int(i), 0.into(), (half * CELL).into()], &[TILE, CELL]),
                        src: tile(pixels, from, &[TILE, CELL]),
                    });
                }
            }
            for i in 0..sizes.rows {
                let [sums, left] =
                    [(sums, n), (left, TILE)].map(|(of, n)| tile(of, [i.into(), 0.into(), 0.into()], &[TILE, n]));
                multiply(b, Unit::Warp, sums, (left, false), (tile(right, [0.into(), 0.into()], &[TILE, n]), false));
            }
        }
    }

    /// Coordinates of an output, whether it exists, and whether its pixel does.
    fn output(&self, i: i64, pixel: Expr, channel: Expr) -> ([Expr; 3], Option<Expr>) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let ([y, x], [row, column]) = (self.first(), self.place(i));
        let channel = self.channels * sizes.channels() + self.first_channel() + channel;
        let at = [y + row, x + column * TILE + pixel, channel];
        let pieces = [sizes.tile_h, sizes.tile_w * TILE, sizes.channels()];
        let exists = inside(&at, [plan.c.oh(), plan.c.ow(), plan.c.co], pieces);
        (at, exists)
    }

    /// Stores the warp's tiles.
    fn store(&self, b: &mut KernelBuilder, sums: &WarpSums) {
        let (plan, c) = (self.plan, &self.plan.c);
        let to = Destination {
            w: self.w,
            params: &self.params,
            sizes: [c.oh(), c.ow(), c.co],
            at: &|i, [pixel, channel]| self.output(i, pixel, channel),
            index: &|at| self.index(at),
        };
        match plan.sizes.store {
            Store::Direct => (0..sums.count).for_each(|i| sums.store(b, i, &to)),
            Store::Rows => {
                let (warps, dtype) = (plan.sizes.warps(), self.w.out_dtype);
                let (pitch, piece) = (plan.sum_pitch(), plan.piece());
                sums.store_rows(b, &Rows { warps, warp: self.warp, lane: self.lane, dtype, pitch, piece }, &to);
            }
        }
    }
}
