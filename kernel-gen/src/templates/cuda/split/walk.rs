//! What kernels of products in parts share: the order in which blocks go through tiles, and tiles through their reduction; who
//! produces and who consumes; how weights come and outputs go.

use super::{WARPGROUP, or_zero};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, Expr, Gpu, LoopKind, VarId};
use crate::templates::cuda::ring::Slots;
use crate::templates::cuda::source::{Pixel, Source};
use crate::templates::cuda::{ceil_div, tile};
use crate::workload::Workload;
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;

/// What there is to go through. Producers and consumers go through the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// Tiles of the output, and how many of them stand side by side in a row of tiles.
    pub(super) tiles: i64,
    pub(super) columns: i64,
    /// Taps along rows and columns.
    pub(super) taps: [i64; 2],
    /// Steps of a tap.
    pub(super) chunks: i64,
}

impl Walk {
    /// Visits the tiles of block `first` of `blocks`: the numbers of its row tile and its column tile. Columns go fastest, so
    /// that blocks which run at the same time share pixels.
    pub(super) fn tiles(
        &self,
        b: &mut KernelBuilder,
        first: VarId,
        blocks: i64,
        body: &mut dyn FnMut(&mut KernelBuilder, [VarId; 2]),
    ) {
        let Walk { tiles, columns, .. } = *self;
        b.for_("round", ceil_div(tiles, blocks), |b, round| {
            let item = b.let_("item", round * blocks + first);
            let run = |b: &mut KernelBuilder| {
                // The remainder changes nothing, and says that there are no more tiles than these.
                let row = b.let_("row_tile", Expr::from(item).floor_div(columns).floor_mod(tiles / columns));
                let column = b.let_("column_tile", Expr::from(item).floor_mod(columns));
                body(b, [row, column]);
            };
            b.when((tiles % blocks != 0).then(|| Expr::from(item).lt(tiles)), run);
        });
    }

    /// The steps of a tile: the taps along each dimension of which `meets` holds, and the chunk of the reduction.
    pub(super) fn steps(
        &self,
        b: &mut KernelBuilder,
        meets: &dyn Fn(usize, VarId) -> Option<Expr>,
        body: &mut dyn FnMut(&mut KernelBuilder, [VarId; 2], VarId),
    ) {
        let [kh, kw] = self.taps;
        b.for_("kh", kh, |b, y| {
            b.when(meets(0, y), |b| {
                b.for_("kw", kw, |b, x| {
                    b.when(meets(1, x), |b| {
                        b.for_("chunk", self.chunks, |b, chunk| body(b, [y, x], chunk));
                    });
                });
            });
        });
    }

    /// All steps of all taps.
    pub(super) fn all_steps(&self, b: &mut KernelBuilder, body: &mut dyn FnMut(&mut KernelBuilder, [VarId; 2], VarId)) {
        self.steps(b, &|_, _| None, body);
    }
}

/// Consumers are the first warpgroups of a block, producers the last one; each asks for its `registers`: producers, consumers.
pub(super) fn roles(
    b: &mut KernelBuilder,
    thread: VarId,
    consumers: i64,
    registers: Option<[u32; 2]>,
    consume: impl FnOnce(&mut KernelBuilder),
    produce: impl FnOnce(&mut KernelBuilder),
) {
    let set = |b: &mut KernelBuilder, role: usize| {
        registers.into_iter().for_each(|registers| b.gpu(Gpu::SetMaxRegisters(registers[role])));
    };
    b.if_else(
        Expr::from(thread).lt(consumers * WARPGROUP),
        |b| {
            set(b, 1);
            consume(b);
        },
        |b| {
            set(b, 0);
            produce(b);
        },
    );
}

/// The weights of a product, packed for each tile of columns and each step as parts of `bn x depth`.
pub(super) struct Weights<'a> {
    pub(super) source: &'a Source,
    pub(super) buffer: BufferId,
    pub(super) chunks: i64,
    pub(super) bn: i64,
    pub(super) depth: i64,
}

impl Weights<'_> {
    /// Before they are packed: the weight of a column and of a place in a step; zero beyond the last column and the last term.
    pub(super) fn original(&self, b: &mut KernelBuilder, step: VarId, place: Expr, column: Expr) -> Expr {
        let (source, [_, kw]) = (self.source, self.source.taps());
        let tap = b.let_("tap", Expr::from(step).floor_div(self.chunks));
        let term = Expr::from(step).floor_mod(self.chunks) * self.depth + place;
        let mut inside = vec![];
        if source.columns() % self.bn != 0 {
            inside.push(column.clone().lt(source.columns()));
        }
        if source.depth() % self.depth != 0 {
            inside.push(term.clone().lt(source.depth()));
        }
        let taps = [Expr::from(tap).floor_div(kw), Expr::from(tap).floor_mod(kw)];
        or_zero(Expr::all(inside), Expr::load(self.buffer, source.weight(taps, term, column)))
    }

    /// Has the copy engine bring a step's `parts` parts for a tile of columns to a slot of `to`.
    pub(super) fn fetch(
        &self,
        b: &mut KernelBuilder,
        (to, slots, slot): (BufferId, &Slots, &Expr),
        parts: i64,
        column: VarId,
        ([y, x], chunk): ([VarId; 2], VarId),
    ) {
        let extents = [parts, self.bn, self.depth];
        let step = (y * self.source.taps()[1] + x) * self.chunks + chunk;
        let from = vec![column.into(), step, 0.into(), 0.into(), 0.into()];
        b.gpu(Gpu::TensorLoad {
            dst: tile(to, vec![slot.clone(), 0.into(), 0.into(), 0.into()], &extents),
            src: tile(self.buffer, from, &extents),
            steps: vec![],
            on: slots.full(slot),
            multicast: None,
        });
    }
}

/// Stores 64 rows of sums for a tile of `bn` columns: `pixel` gives a row's pixel and the condition that it exists, `sum` what
/// belongs to a row, a column and its channel.
pub(super) fn store(
    b: &mut KernelBuilder,
    (w, params, source): (&Workload, &Operands, &Source),
    (column_tile, bn): (VarId, i64),
    pixel: impl FnOnce(&mut KernelBuilder, VarId) -> (Pixel, Option<Expr>),
    sum: impl FnOnce([VarId; 2], &Expr) -> Expr,
) {
    b.loop_("row", 64, LoopKind::FragmentRow, |b, row| {
        let (pixel, exists) = pixel(b, row);
        b.when(exists, |b| {
            b.loop_("column", bn, LoopKind::FragmentCol, |b, column| {
                let channel = column_tile * bn + column;
                let index = source.output(&pixel, channel.clone());
                let sum = sum([row, column], &channel);
                b.when((source.columns() % bn != 0).then(|| channel.clone().lt(source.columns())), |b| {
                    let value = epilogue(w, sum, &channel, &index, &|name| params.get(name));
                    b.store(params.output(), index, value);
                });
            });
        });
    });
}
