//! The kernel that all products share: which block, warpgroup and thread does what.

use super::parts::Parts;
use super::residual::Residual;
use super::{Sizes, WARPGROUP, store};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Kernel, Scope, Stmt, Tile, Unit, VarId};
use crate::target::Cuda;
use crate::templates::cuda::guards::below;
use crate::templates::cuda::instructions::{clear, tile};
use crate::templates::cuda::launch::{cluster, grid, threads};
use crate::templates::cuda::ring::Place;
use crate::templates::cuda::warpgroups::{self, Turns, each_round, roles};
use crate::workload::operands::Operands;
use crate::workload::{Param, Workload};

/// A box of a tensor in global memory.
pub(super) struct Box {
    /// Its first element; outside of the tensor are zeros.
    pub(super) origin: Vec<Expr>,
    /// How many elements are taken along each dimension.
    pub(super) extents: Vec<i64>,
    /// Their distances; empty where all are 1.
    pub(super) steps: Vec<i64>,
}

/// Where an element of a tile belongs.
pub(super) struct Element {
    /// Its index in the output.
    pub(super) index: Vec<Expr>,
    /// Its output channel.
    pub(super) channel: Expr,
    /// The condition that it exists; none where tiles fit exactly.
    pub(super) exists: Option<Expr>,
}

impl Element {
    /// The element at coordinates, the channel last. Each comes with the output's extent and the tile's extent along it.
    pub(super) fn new<const N: usize>(at: [(Expr, i64, i64); N]) -> Element {
        let exists = Expr::all(at.iter().filter_map(|(index, size, tile)| below(index.clone(), *size, *tile)));
        let index: Vec<Expr> = at.into_iter().map(|(index, ..)| index).collect();
        Element { channel: index[N - 1].clone(), index, exists }
    }
}

/// A matrix product as its tiles see it. Coordinates of a tile are whatever the product makes of them.
pub(super) trait Product {
    /// What is computed.
    fn workload(&self) -> &Workload;

    /// The shape in which the kernel takes a parameter.
    fn shape(&self, param: &Param) -> Vec<i64> {
        param.shape.clone()
    }

    /// Number of output tiles.
    fn tiles(&self) -> i64;

    /// The number of blocks is a multiple of this: tiles so far apart have the same columns.
    fn column_period(&self) -> i64 {
        1
    }

    /// Sets up what brings a tile's operands into shared memory.
    fn feed<'f>(&'f self, b: &mut KernelBuilder, block: &Block<'_>) -> std::boxed::Box<dyn Feed + 'f>;

    /// The coordinates of a tile: of the block `rank` of the cluster that works on item `item`. Without clusters an item
    /// is a tile, and the rank is zero.
    fn place(&self, b: &mut KernelBuilder, item: VarId, rank: &Expr) -> Vec<Expr>;

    /// Where an element of the tile belongs.
    fn element(&self, place: &[Expr], row: Expr, column: Expr) -> Element;

    /// Where `rows` rows from `row` on belong, a multiple of their number, of `columns` columns from `column` on.
    fn piece(&self, place: &[Expr], row: Expr, column: Expr, rows: i64, columns: i64) -> Box;
}

/// What is done behind each step of a consumer; it gets how many steps that was.
pub(super) type Behind<'a> = dyn Fn(&mut KernelBuilder, i64) + 'a;

/// What brings the operands of tiles into shared memory, slot by slot, and multiplies them from there. Producer and
/// consumers go through the same steps.
pub(super) trait Feed {
    /// Where this thread is.
    fn place(&self) -> Place;

    /// The producer, before its first tile.
    fn begin_producing(&self, _: &mut KernelBuilder, _: &Block<'_>) {}

    /// A consumer, before its first tile.
    fn begin_consuming(&self, _: &mut KernelBuilder) {}

    /// The producer has a tile's operands brought, each into a slot when that is free.
    fn produce(&self, b: &mut KernelBuilder, block: &Block<'_>, tile: &[Expr]);

    /// A consumer multiplies its rows of a tile, from the row `first` on. Returns what [`Feed::finish`] wants.
    fn consume(
        &self,
        b: &mut KernelBuilder,
        acc: BufferId,
        tile: &[Expr],
        first: &Expr,
        behind: &Behind<'_>,
    ) -> Option<VarId>;

    /// After a consumer's last step of a tile: its products are done, and all slots are given back.
    fn finish(&self, b: &mut KernelBuilder, start: Option<VarId>);

    /// The slots of another consumer's tile go by.
    fn pass(&self, b: &mut KernelBuilder, tile: &[Expr]);
}

/// The threads of a block, and what they share.
pub(super) struct Block<'p> {
    pub(super) product: &'p dyn Product,
    pub(super) params: Operands,
    pub(super) sizes: Sizes,
    /// Pieces of output that a consumer has in shared memory.
    pub(super) buffers: i64,
    /// This thread, and its block, or cluster, in the grid.
    pub(super) thread: VarId,
    pub(super) index: VarId,
    /// Its block's rank in the cluster.
    pub(super) rank: Expr,
}

/// The kernel of a product for a device.
pub(super) fn kernel(product: &dyn Product, sizes: Sizes, cuda: &Cuda) -> Kernel {
    let w = product.workload();
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::shaped(&mut b, w, |p| product.shape(p));
    let buffers = sizes.buffers(w, cuda);
    let blocks = sizes.blocks();
    let items = product.tiles() / sizes.cluster.blocks();
    // Blocks that share a reduction meet once, so they have one tile.
    let period = product.column_period();
    let most = (cuda.sm_count / blocks / period).max(1) * period;
    let clusters = if sizes.split > 1 { items } else { most.min(items) };
    grid(&mut b, [("block", clusters)], |b, [index]| {
        cluster(b, blocks, |b, rank| {
            threads(b, [("t", sizes.threads())], |b, [thread]| {
                Block { product, params, sizes, buffers, thread, index, rank }.run(b, items, clusters);
            });
        });
    });
    b.finish()
}

impl Block<'_> {
    /// The shape in which the kernel takes the output.
    pub(super) fn output_shape(&self) -> Vec<i64> {
        let params = self.product.workload().params();
        params.last().map_or(vec![], |output| self.product.shape(output))
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder, items: i64, clusters: i64) {
        let sizes = self.sizes;
        let each_tile = |b: &mut KernelBuilder, body: &mut dyn FnMut(&mut KernelBuilder, VarId, &[Expr])| {
            each_round(b, items, (self.index, clusters), |b, round, item| {
                let place = self.product.place(b, item, &self.rank);
                body(b, round, &place);
            });
        };
        let feed = self.product.feed(b, self);
        let turns = (sizes.tiles_at_once() > 1).then(|| Turns::make(b, self.thread, sizes.tiles_at_once()));
        let stage = store::Stage::make(b, self);
        let residual = stage.as_ref().and_then(|s| Some((s, s.residual.as_ref()?)));
        let parts = Parts::make(b, self);
        // The rows of the tile that are a consumer's.
        let first = |consumer: VarId| match &turns {
            None => consumer * (64 * sizes.row_blocks),
            Some(_) => Expr::Int(0),
        };
        b.push(match sizes.cluster.blocks() {
            1 => Stmt::Barrier(Barrier::Block),
            // Other blocks arrive at the barriers of this one too.
            _ => Stmt::Gpu(Gpu::ClusterBarrier),
        });
        let produce = |b: &mut KernelBuilder| {
            b.if_(Expr::from(self.thread).eq(0), |b| {
                feed.begin_producing(b, self);
                each_tile(b, &mut |b, _, place| feed.produce(b, self, place));
            });
            if let Some((stage, residual)) = residual {
                let (asks, consumer) = Residual::asks(self.thread, sizes);
                b.if_(asks, |b| {
                    let consumer = b.let_("asker", consumer);
                    each_tile(b, &mut |b, round, place| {
                        let of = (consumer, &first(consumer));
                        let produce = |b: &mut KernelBuilder| residual.produce(b, self, stage, place, of);
                        match &turns {
                            None => produce(b),
                            Some(turns) => b.if_(turns.has(round, consumer), produce),
                        }
                    });
                });
            }
        };
        let consume = |b: &mut KernelBuilder| {
            let consumer = b.let_("consumer", Expr::from(self.thread).floor_div(WARPGROUP) - 1);
            let shape = [sizes.row_blocks, 64, sizes.bn];
            let acc = b.alloc("acc", DType::F32, &shape, Scope::Fragment(Unit::Warpgroup));
            let first = first(consumer);
            feed.begin_consuming(b);
            let multiply = |b: &mut KernelBuilder, place: &[Expr], after: &dyn Fn(&mut KernelBuilder)| {
                for h in 0..sizes.row_blocks {
                    clear(b, sums(acc, h, sizes));
                }
                let before = residual.map(|r| (r, b.let_("before", feed.place().steps())));
                // The tile before has been read by the time of this one's first step; a tile may have none.
                let behind = |b: &mut KernelBuilder, steps: i64| {
                    if let Some(((stage, residual), before)) = before {
                        let now = feed.place().steps().eq(before + steps);
                        b.if_(now.and(residual.has_begun()), |b| residual.give_back_last(b, stage, consumer));
                    }
                };
                let start = feed.consume(b, acc, place, &first, &behind);
                behind(b, 0);
                after(b);
                feed.finish(b, start);
                match &parts {
                    Some(parts) => parts.keep(b, self, acc),
                    None => store::Sums { block: self, acc, place, first: &first, consumer }.store(b, stage.as_ref()),
                }
            };
            match &turns {
                None => each_tile(b, &mut |b, _, place| multiply(b, place, &|_| {})),
                Some(turns) => each_tile(b, &mut |b, round, place| {
                    b.if_else(
                        turns.has(round, consumer),
                        |b| {
                            turns.take(b, Expr::from(round).floor_div(sizes.tiles_at_once()), consumer);
                            multiply(b, place, &|b| turns.pass_on(b, self.thread, consumer));
                        },
                        // The slots of another consumer's tile go by.
                        |b| feed.pass(b, place),
                    );
                }),
            }
            stage.iter().for_each(|stage| stage.finish(b));
        };
        let produces = Expr::from(self.thread).lt(WARPGROUP);
        roles(b, produces, warpgroups::registers(sizes.consumers), produce, consume);
        if sizes.blocks() > 1 {
            // A block that has ended cannot be arrived at, nor one that has not begun.
            b.gpu(Gpu::ClusterBarrier);
        }
        if let Some(parts) = parts {
            each_tile(b, &mut |b, _, place| parts.add_up(b, self, place));
        }
    }
}

/// The sums of a consumer's row block `h`.
pub(super) fn sums(acc: BufferId, h: i64, sizes: Sizes) -> Tile {
    tile(acc, vec![h.into(), 0.into(), 0.into()], &[1, 64, sizes.bn])
}
