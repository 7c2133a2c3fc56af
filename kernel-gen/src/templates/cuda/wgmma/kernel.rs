//! The kernel that all products share: which block, warpgroup and thread does what.

use super::block::{Block, Product};
use super::parts::Parts;
use super::plan::Sizes;
use super::residual::Residual;
use super::stage::Stage;
use super::store::Sums;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, Expr, Gpu, Kernel, Scope, Stmt, Unit, VarId};
use crate::target::Cuda;
use crate::templates::cuda::instructions::clear;
use crate::templates::cuda::launch::{cluster, grid, threads};
use crate::templates::cuda::warpgroups;
use crate::templates::cuda::warpgroups::{Turns, WARPGROUP, each_round, roles};
use crate::workload::operands::Operands;

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
    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder, items: i64, clusters: i64) {
        let (sizes, w) = (self.sizes, self.product.workload());
        let each_tile = |b: &mut KernelBuilder, body: &mut dyn FnMut(&mut KernelBuilder, VarId, &[Expr])| {
            each_round(b, items, (self.index, clusters), |b, round, item| {
                let place = self.product.place(b, item, &self.rank);
                body(b, round, &place);
            });
        };
        let feed = self.product.feed(b, self);
        let turns = (sizes.tiles_at_once() > 1).then(|| Turns::make(b, self.thread, sizes.tiles_at_once()));
        let stage = Stage::make(b, self);
        let residual = stage.as_ref().and_then(|_| Residual::make(b, self));
        let residual = stage.as_ref().zip(residual.as_ref());
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
            let acc = b.alloc("acc", w.sums(), &shape, Scope::Fragment(Unit::Warpgroup));
            let first = first(consumer);
            feed.begin_consuming(b);
            let multiply = |b: &mut KernelBuilder, place: &[Expr], after: &dyn Fn(&mut KernelBuilder)| {
                for h in 0..sizes.row_blocks {
                    clear(b, sizes.sums(acc, h));
                }
                let before = residual.map(|r| (r, b.let_("before", feed.place().steps())));
                // The tile before has been read by the time of this one's first step; a tile may have none.
                let behind = |b: &mut KernelBuilder, steps: i64| {
                    if let Some(((stage, residual), before)) = before {
                        let now = feed.place().steps().eq(before + steps);
                        b.if_(now.and(residual.has_begun()), |b| residual.give_back_last(b, stage, consumer));
                    }
                };
                let last = feed.consume(b, acc, place, &first, &behind);
                behind(b, 0);
                after(b);
                feed.finish(b, acc, last);
                match &parts {
                    Some(parts) => parts.keep(b, self, acc),
                    None => {
                        let residual = residual.map(|(_, residual)| residual);
                        Sums { block: self, acc, place, first: &first, consumer, residual }.store(b, stage.as_ref());
                    }
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
