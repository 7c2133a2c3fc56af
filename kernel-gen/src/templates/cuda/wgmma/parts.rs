//! A reduction that the blocks of a cluster share, where there are fewer tiles than multiprocessors: a product's, or the taps and
//! channels of a convolution.
//!
//! Each block multiplies a part of it by itself. Its sums go to its own shared memory as rows; a barrier of the cluster
//! later each block owns some rows of the tile, gets the others' sums of these ([`Exchange`]) and adds them in the order of
//! the parts, so results do not differ between runs.

use super::block::Block;
use super::plan::{Cluster, PART_PAD, PART_ROWS, SPLITS, Sizes, Store, columns, narrow};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, LoopKind, Scope};
use crate::space::Value;
use crate::target::Cuda;
use crate::templates::cuda::exchange::Exchange;
use crate::templates::cuda::family::{numbers, up_to};
use crate::templates::cuda::launch::share;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outputs::{each_element, finish};
use crate::templates::cuda::warpgroups::WARPGROUP;

/// Neighbours that are sent, and stored, at a time: 16 bytes.
const SENT: i64 = 4;
/// Columns of tiles that there are beside the others where reductions may be shared.
const NARROW: i64 = 32;
/// A product as those see it who cut its reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reduction {
    /// Steps of it.
    steps: i64,
    /// Columns of the product.
    columns: i64,
    /// Blocks of a cluster at most.
    cluster_size: i64,
    /// Whether even small tiles leave half of the multiprocessors idle, so that the reduction may be cut at all.
    few: bool,
}

impl Reduction {
    /// That of `batch` times `rows x columns` outputs.
    pub(super) fn new(steps: i64, [batch, rows, columns]: [i64; 3], cuda: &Cuda) -> Reduction {
        let tiles = batch * ceil_div(rows, PART_ROWS) * ceil_div(columns, PART_ROWS);
        Reduction { steps, columns, cluster_size: cuda.cluster_size, few: 2 * tiles <= cuda.sm_count }
    }

    /// The columns of tiles.
    fn tile_columns(&self) -> Vec<i64> {
        let shared = (self.few && narrow(self.columns) != Some(NARROW)).then_some(NARROW);
        shared.into_iter().chain(columns(self.columns)).collect()
    }

    /// Steps of a block's part.
    pub(super) fn part(&self, split: i64) -> i64 {
        ceil_div(self.steps, split)
    }

    /// Narrows the columns of tiles and the parts to those that are of use for it.
    pub(super) fn narrow(&self, knob: &str, values: &mut Vec<Value>) {
        match knob {
            "bn" => *values = numbers(self.tile_columns()),
            "split" if !self.few => values.clear(),
            "split" => up_to(values, self.cluster_size),
            _ => {}
        }
    }

    /// Whether the blocks of a cluster can share it as `sizes` say.
    pub(super) fn fits(&self, sizes: Sizes) -> bool {
        if sizes.split == 1 {
            return sizes.bn != NARROW || narrow(self.columns) == Some(NARROW);
        }
        let alone = sizes.consumers * sizes.row_blocks == 1 && sizes.cluster == Cluster::None;
        let none_empty = (sizes.split - 1) * self.part(sizes.split) < self.steps;
        // Sums are shared in rows of shared memory already.
        self.few && alone && none_empty && sizes.store == Store::Registers
    }

    /// The sizes with parts that defaults are chosen from: rings as deep as there are steps, up to 7, before shallower ones, of
    /// which two may fit on a multiprocessor.
    pub(super) fn sensible(self, cuda: &Cuda) -> impl Iterator<Item = Sizes> {
        let splits = SPLITS.into_iter().filter(move |split| self.few && (2..=self.cluster_size).contains(split));
        let all = self.tile_columns().into_iter().flat_map(move |bn| {
            splits.clone().flat_map(move |split| {
                let deepest = self.part(split).clamp(2, 7);
                (2..=deepest).rev().map(move |stages| Sizes { pending: 1, split, ..Sizes::alone(bn, stages) })
            })
        });
        all.filter(move |sizes| sizes.fits(cuda) && self.fits(*sizes))
    }
}

/// The shared memory of a block, and what the other blocks send.
pub(super) struct Parts {
    rows: BufferId,
    exchange: Exchange,
}

impl Parts {
    /// Its memory, if blocks share a reduction.
    pub(super) fn make(b: &mut KernelBuilder, block: &Block<'_>) -> Option<Parts> {
        let Sizes { bn, split, .. } = block.sizes;
        (split > 1).then(|| {
            let sums = block.product.workload().sums();
            let exchange = Exchange::make(b, block.thread.into(), split, [PART_ROWS, bn], sums);
            Parts { rows: b.alloc("rows", sums, &[PART_ROWS, bn + PART_PAD], Scope::Shared), exchange }
        })
    }

    /// Puts the consumer's sums into its block's memory.
    pub(super) fn keep(&self, b: &mut KernelBuilder, block: &Block<'_>, acc: BufferId) {
        b.loop_("row", PART_ROWS, LoopKind::FragmentRow, |b, row| {
            b.loop_("column", block.sizes.bn, LoopKind::FragmentCol, |b, column| {
                let sum = Expr::load(acc, vec![0.into(), row.into(), column.into()]);
                b.store(self.rows, vec![row.into(), column.into()], sum);
            });
        });
    }

    /// Adds what the blocks have, each block the sums of the rows that it owns, and stores the outputs. All blocks have
    /// kept their sums, and a barrier of the cluster is behind that.
    pub(super) fn add_up(&self, b: &mut KernelBuilder, block: &Block<'_>, place: &[Expr]) {
        let (Sizes { bn, .. }, rank, threads) = (block.sizes, &block.rank, 2 * WARPGROUP);
        let per_row = bn / SENT;
        share(b, threads, block.thread.into(), PART_ROWS * per_row, |b, at| {
            // Each begins with its own rows, so that not all blocks send to one at the same time.
            let row = (at.clone().floor_div(per_row) + rank.clone() * self.exchange.owned()).floor_mod(PART_ROWS);
            let column = at.floor_mod(per_row) * SENT;
            self.exchange.send(b, rank, [row.clone(), column.clone()], SENT, &|element| {
                Expr::load(self.rows, vec![row.clone(), column.clone() + element.clone()])
            });
        });
        let columns = block.output_shape().last().copied().unwrap_or(1);
        let piece = [SENT, 2].into_iter().find(|n| columns % n == 0).unwrap_or(1);
        self.exchange.add_up(b, rank, block.thread.into(), threads, piece, |b, [row, column], sum| {
            let store = |b: &mut KernelBuilder| {
                each_element(b, piece, |b, element| {
                    let at = block.product.element(place, row.clone(), column.clone() + element.clone());
                    finish(b, (block.product.workload(), &block.params), &at.channel, at.index, sum(&element));
                });
            };
            // Pieces exist as a whole.
            b.when(block.product.element(place, row.clone(), column.clone()).exists, store);
        });
    }
}
