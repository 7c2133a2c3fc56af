//! How windows and weights get to shared memory, and are multiplied.

use super::super::ring::block_of;
use super::plan::{Convolution, ROWS, chunks, row_channels, weight_bytes};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, GROUP_ROWS, Gpu, Group, MbarrierOp, Scope, Slot, Unit, VarId};
use crate::templates::cuda::instructions::{load_box, multiply, tile};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::ring::{Place, Slots};
use crate::templates::cuda::warpgroups::WARPGROUP;
use crate::templates::cuda::wgmma::block::{Behind, Block, Feed, UnderWay};

/// The ring of windows, the weights, and this thread's place.
pub(super) struct Windows<'c> {
    conv: &'c Convolution<'c>,
    windows: BufferId,
    /// Of each slot of a tile's reduction the weights of all taps.
    weights: Vec<BufferId>,
    /// The barrier whose first phase ends when the weights have come.
    weights_full: BufferId,
    slots: Slots,
    thread: VarId,
}

impl<'c> Windows<'c> {
    pub(super) fn make(b: &mut KernelBuilder, block: &Block<'_>, conv: &'c Convolution<'c>) -> Windows<'c> {
        let (w, c, sizes, thread) = (conv.workload, &conv.c, conv.sizes, block.thread);
        let bytes = w.dtype.bytes() as u32;
        let (channels, [rows, columns]) = (row_channels(w, c), conv.slot());
        let shape = [sizes.stages, rows, columns, channels];
        let windows = b.alloc_swizzled("windows", w.dtype, &shape, channels as u32 * bytes);
        let wide = block_of(sizes.bn);
        let weights = chunks(w, c)
            .into_iter()
            .map(|depth| {
                let shape = [c.kh * c.kw, ceil_div(sizes.bn, wide), depth, wide];
                b.alloc_swizzled("weights", w.dtype, &shape, wide as u32 * bytes)
            })
            .collect();
        let weights_full = b.alloc("weights_full", DType::I64, &[1], Scope::Mbarrier);
        let users = sizes.consumers / sizes.tiles_at_once();
        let slots = Slots::make(b, thread, sizes.stages, [1, users], |b| {
            b.gpu(Gpu::Mbarrier(Slot { buffer: weights_full, index: 0.into() }, MbarrierOp::Init(1)));
        });
        Windows { conv, windows, weights, weights_full, slots, thread }
    }

    fn weights_there(&self) -> Slot {
        Slot { buffer: self.weights_full, index: 0.into() }
    }

    /// The products of all taps with what a slot holds, `depth` channels deep, onto the row blocks from the row `first` on.
    fn multiply(&self, b: &mut KernelBuilder, acc: BufferId, (chunk, depth): (usize, i64), [slot, first]: [&Expr; 2]) {
        let (c, sizes) = (&self.conv.c, self.conv.sizes);
        let wide = block_of(sizes.bn);
        for (kh, kw) in (0..c.kh).flat_map(|kh| (0..c.kw).map(move |kw| (kh, kw))) {
            let origin = vec![(kh * c.kw + kw).into(), 0.into(), 0.into(), 0.into()];
            let right = tile(self.weights[chunk], origin, &[1, ceil_div(sizes.bn, wide), depth, wide]);
            for h in 0..sizes.row_blocks {
                let [down, along] = self.conv.pixel(&(first.clone() + ROWS * h));
                let (down, along) = (down + kh * c.dilation[0], along + kw * c.dilation[1]);
                let left =
                    tile(self.windows, vec![slot.clone(), down, along, 0.into()], &[1, GROUP_ROWS, GROUP_ROWS, depth]);
                multiply(b, Unit::Warpgroup, sizes.sums(acc, h), (left, false), (right.clone(), false));
            }
        }
    }

    /// Gives the slot of the step before back: one thread a consumer.
    fn give_back(&self, b: &mut KernelBuilder, steps: i64) {
        b.if_(Expr::from(self.thread).floor_mod(WARPGROUP).eq(0), |b| {
            self.slots.give_back(b, self.place().before(steps), None);
        });
    }
}

impl Feed for Windows<'_> {
    fn place(&self) -> Place {
        self.slots.place
    }

    fn begin_producing(&self, b: &mut KernelBuilder, block: &Block<'_>) {
        let (conv, c) = (self.conv, &self.conv.c);
        let (source, wide) = (block.params.at(1), block_of(conv.sizes.bn));
        let blocks = ceil_div(conv.sizes.bn, wide);
        let bytes = weight_bytes(conv.workload, c, conv.sizes.bn);
        b.gpu(Gpu::Mbarrier(self.weights_there(), MbarrierOp::Expect(bytes)));
        let channel = b.let_("first_channel", Expr::from(block.index).floor_mod(conv.channel_tiles()) * conv.sizes.bn);
        let row = row_channels(conv.workload, c);
        for (chunk, depth) in chunks(conv.workload, c).into_iter().enumerate() {
            b.for_("kh", c.kh, |b, kh| {
                b.for_("kw", c.kw, |b, kw| {
                    let extents = [1, 1, depth, wide];
                    for i in 0..blocks {
                        let from = vec![kh.into(), kw.into(), (chunk as i64 * row).into(), channel + i * wide];
                        let to = vec![kh * c.kw + kw, i.into(), 0.into(), 0.into()];
                        let (to, from) = (tile(self.weights[chunk], to, &extents), tile(source, from, &extents));
                        load_box(b, to, from, self.weights_there());
                    }
                });
            });
        }
    }

    fn begin_consuming(&self, b: &mut KernelBuilder) {
        b.gpu(Gpu::Mbarrier(self.weights_there(), MbarrierOp::Wait(0.into())));
    }

    fn produce(&self, b: &mut KernelBuilder, block: &Block<'_>, place: &[Expr]) {
        let (c, w) = (&self.conv.c, self.conv.workload);
        let (channels, [high, wide]) = (row_channels(w, c), self.conv.window());
        for chunk in 0..chunks(w, c).len() as i64 {
            let slot = self.slots.wait_empty(b);
            self.slots.expect(b, &slot, high * wide * channels * w.dtype.bytes() as i64);
            let extents = [1, high, wide, channels];
            let from = vec![
                place[0].clone(),
                place[1].clone() - c.padding[0],
                place[2].clone() - c.padding[1],
                (chunk * channels).into(),
            ];
            let to = vec![slot.clone(), 0.into(), 0.into(), 0.into()];
            let (to, from) = (tile(self.windows, to, &extents), tile(block.params.at(0), from, &extents));
            load_box(b, to, from, self.slots.full(&slot));
            self.slots.place.advance(b);
        }
    }

    /// A slot is given back when the products of the next one are under way.
    fn consume(
        &self,
        b: &mut KernelBuilder,
        acc: BufferId,
        _: &[Expr],
        first: &Expr,
        behind: &Behind<'_>,
    ) -> Option<UnderWay> {
        for (chunk, depth) in chunks(self.conv.workload, &self.conv.c).into_iter().enumerate() {
            let slot = self.slots.wait_full(b);
            self.multiply(b, acc, (chunk, depth), [&slot, first]);
            b.gpu(Gpu::Commit(Group::Mma));
            self.slots.place.advance(b);
            if chunk > 0 {
                b.gpu(Gpu::Wait(Group::Mma, 1));
                self.give_back(b, 2);
            }
            behind(b, 1);
        }
        None
    }

    fn finish(&self, b: &mut KernelBuilder, _: BufferId, _: Option<UnderWay>) {
        b.gpu(Gpu::Wait(Group::Mma, 0));
        self.give_back(b, 1);
    }

    fn pass(&self, b: &mut KernelBuilder, _: &[Expr]) {
        for _ in chunks(self.conv.workload, &self.conv.c) {
            self.slots.place.advance(b);
        }
    }
}
