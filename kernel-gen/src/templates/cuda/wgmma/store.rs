//! How the sums of a tile get to the output, with the epilogue.
//!
//! From the registers each thread stores the pairs that it holds: a warp writes 16 bytes to each of eight rows at a time.
//! By way of the copy engine, each warp puts its 16 rows of 128 bytes into shared memory, swizzled so that its threads
//! meet no bank twice, and has the engine take them to the output while it goes on; with two such pieces in turns, it
//! waits only for the last but one. Warps do not wait for each other.

use super::kernel::{Block, Box, Element};
use super::{Store, WARPGROUP};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, Expr, Gpu, Group, LoopKind, Stmt, VarId};
use crate::templates::cuda::tile;
use crate::workload::naive::epilogue;

/// Pieces that a warp has in shared memory, and bytes of their rows: the widest swizzle.
pub(super) const BUFFERS: i64 = 2;
pub(super) const ROW_BYTES: i64 = 128;

/// Threads, and rows of a tile, of a warp.
const WARP: i64 = 32;
const WARP_ROWS: i64 = 16;

/// Where sums wait for the copy engine.
pub(super) struct Stage {
    buffer: BufferId,
    columns: i64,
    thread: VarId,
}

impl Stage {
    /// Its memory, if the copy engine is to store.
    pub(super) fn make(b: &mut KernelBuilder, block: &Block<'_>) -> Option<Stage> {
        let (sizes, dtype) = (block.sizes, block.product.workload().out_dtype);
        let columns = ROW_BYTES / dtype.bytes() as i64;
        (sizes.store == Store::Tma).then(|| {
            let shape = [sizes.consumers, BUFFERS, 64, columns];
            let buffer = b.alloc_swizzled("output_rows", dtype, &shape, ROW_BYTES as u32);
            Stage { buffer, columns, thread: block.thread }
        })
    }

    /// Done by the thread of each warp that talks to the engine.
    fn one(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder)) {
        b.if_(Expr::from(self.thread).floor_mod(WARP).eq(0), body);
    }

    /// At the end: shared memory must stay until it has been read.
    pub(super) fn finish(&self, b: &mut KernelBuilder) {
        self.one(b, |b| b.gpu(Gpu::Wait(Group::Store, 0)));
    }
}

/// What is done with an element: its value, its row and column in a piece, and where it belongs.
type Visit<'a> = dyn Fn(&mut KernelBuilder, Expr, [VarId; 2], Element) + 'a;

/// The sums of a consumer, and where they belong.
pub(super) struct Sums<'a> {
    pub(super) block: &'a Block<'a>,
    /// The fragment that holds them.
    pub(super) acc: BufferId,
    /// Coordinates of the tile.
    pub(super) place: &'a [Expr],
    /// The first row of the tile that is this consumer's.
    pub(super) first: &'a Expr,
    /// Its number.
    pub(super) consumer: VarId,
}

impl Sums<'_> {
    /// Stores all of them.
    pub(super) fn store(&self, b: &mut KernelBuilder, stage: Option<&Stage>) {
        let sizes = self.block.sizes;
        match stage {
            None => (0..sizes.row_blocks).for_each(|h| self.thread_by_thread(b, h)),
            Some(stage) => {
                let across = sizes.bn / stage.columns;
                let pieces = sizes.row_blocks * across;
                for piece in 0..pieces {
                    // Of an odd number of pieces the last is where the next tile's first goes.
                    let under_way = if piece == 0 && pieces % BUFFERS != 0 { 0 } else { BUFFERS as u32 - 1 };
                    self.by_engine(b, stage, [piece / across, piece % across * stage.columns], under_way);
                }
            }
        }
    }

    /// Visits `columns` columns from `start` on of row block `h`, with the value of each element, where in the block it
    /// is, and where in the output. Where `clamped`, an element that does not exist reads what the nearest one that does
    /// would, so that nothing has to be asked.
    fn each(&self, b: &mut KernelBuilder, [h, start]: [i64; 2], columns: i64, clamped: bool, body: &Visit<'_>) {
        let params = &self.block.params;
        let operand = |name: &str| {
            let found = params.iter().find(|p| p.0.name == name);
            found.expect("a workload's parameters hold the operands of its epilogue").1
        };
        b.loop_("row", 64, LoopKind::FragmentRow, |b, row| {
            b.loop_("column", columns, LoopKind::FragmentCol, |b, column| {
                let sum = Expr::load(self.acc, vec![h.into(), row.into(), column + start]);
                let product = self.block.product;
                let at = product.element(self.place, self.first.clone() + 64 * h + row, column + start);
                let output = &params.last().expect("every workload has an output").0.shape;
                let inside = |index: &Expr, size: i64| match at.exists {
                    Some(_) if clamped => index.clone().min(size - 1),
                    _ => index.clone(),
                };
                let index: Vec<Expr> = at.index.iter().zip(output).map(|(i, n)| inside(i, *n)).collect();
                let channel = inside(&at.channel, *output.last().expect("an output has channels"));
                let value = epilogue(product.workload(), sum, &channel, &index, &operand);
                body(b, value, [row, column], at);
            });
        });
    }

    fn output(&self) -> BufferId {
        self.block.params.last().expect("every workload has an output").1
    }

    /// Stores row block `h` from the registers.
    fn thread_by_thread(&self, b: &mut KernelBuilder, h: i64) {
        let output = self.output();
        self.each(b, [h, 0], self.block.sizes.bn, false, &|b, value, _, at| match at.exists {
            Some(exists) => b.if_(exists, |b| b.store(output, at.index, value)),
            None => b.store(output, at.index, value),
        });
    }

    /// Stores a piece: row block `h`, as many columns from `start` on as the engine takes at once. It goes where another
    /// was before, of which the engine has read all when no more than `under_way` are.
    fn by_engine(&self, b: &mut KernelBuilder, stage: &Stage, [h, start]: [i64; 2], under_way: u32) {
        let number = h * (self.block.sizes.bn / stage.columns) + start / stage.columns;
        let place = [self.consumer.into(), Expr::Int(number % BUFFERS)];
        stage.one(b, |b| b.gpu(Gpu::Wait(Group::Store, under_way)));
        b.push(Stmt::Barrier(Barrier::Warp));
        self.each(b, [h, start], stage.columns, true, &|b, value, [row, column], _| {
            b.store(stage.buffer, [&place[..], &[row.into(), column.into()]].concat(), value);
        });
        b.gpu(Gpu::FenceAsync);
        b.push(Stmt::Barrier(Barrier::Warp));
        stage.one(b, |b| {
            let row = Expr::from(stage.thread).floor_div(WARP).floor_mod(WARPGROUP / WARP) * WARP_ROWS;
            let source = [&place[..], &[row.clone(), 0.into()]].concat();
            let row = self.first.clone() + 64 * h + row;
            let Box { origin, extents, .. } =
                self.block.product.piece(self.place, row, start.into(), WARP_ROWS, stage.columns);
            b.gpu(Gpu::TensorStore {
                dst: tile(self.output(), origin, &extents),
                src: tile(stage.buffer, source, &[1, 1, WARP_ROWS, stage.columns]),
            });
            b.gpu(Gpu::Commit(Group::Store));
        });
    }
}
