//! How the sums of a tile get to the output, with the epilogue.
//!
//! From the registers each thread stores the pairs that it holds: a warp writes 16 bytes to each of eight rows at a time.
//! By way of the copy engine, each warp puts its 16 rows of 128 bytes into shared memory, swizzled so that its threads
//! meet no bank twice, and has the engine take them to the output while it goes on; with two such pieces in turns, it
//! waits only for the last but one. Warps do not wait for each other. Where a residual is added, that comes by the engine
//! too, into the same pieces before ([`residual`](super::residual)).

use super::block::{Block, Box, Element};
use super::plan::BUFFERS;
use super::residual::Residual;
use super::stage::{Piece, Stage};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, Expr, Gpu, Group, LoopKind, Stmt, VarId};
use crate::templates::cuda::instructions::tile;
use crate::templates::cuda::warpgroups::{WARP, WARP_ROWS, WARPGROUP};
use crate::workload::Workload;
use crate::workload::epilogue::StepOperand;
use crate::workload::naive::epilogue_of;

/// What the epilogue reads.
#[derive(Clone, Copy)]
struct Read<'a> {
    /// Whose epilogue it is: of the workload, or of a part of it.
    workload: &'a Workload,
    /// Whether an element that does not exist reads what the nearest one that does would, so that nothing has to be asked.
    clamped: bool,
    /// The shared memory where the residual is, and which of its pieces; if absent, it is read from the parameter.
    residual: Option<(BufferId, &'a [Expr; 2])>,
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
    /// What brings the residual into the stage, if the epilogue adds one.
    pub(super) residual: Option<&'a Residual>,
}

impl Sums<'_> {
    /// Stores all of them.
    pub(super) fn store(&self, b: &mut KernelBuilder, stage: Option<&Stage>) {
        let sizes = self.block.sizes;
        let Some(stage) = stage else {
            return (0..sizes.row_blocks).for_each(|h| self.thread_by_thread(b, h));
        };
        let pieces: Vec<Piece> = stage.pieces(sizes).collect();
        for (i, piece) in pieces.iter().enumerate() {
            match self.residual {
                Some(residual) => self.onto_residual(b, stage, residual, *piece, i == 0),
                None => {
                    // Of an odd number of pieces the last is where the next tile's first goes.
                    let alone = i == 0 && pieces.len() as i64 % BUFFERS != 0;
                    let under_way = if alone { 0 } else { BUFFERS as u32 - 1 };
                    self.by_engine(b, stage, *piece, i as i64 % BUFFERS, under_way);
                }
            }
        }
    }

    /// Visits `columns` columns from `start` on of row block `h`, with the value that the epilogue of `read` makes of each
    /// element, where in the block it is, and where in the output.
    fn each(&self, b: &mut KernelBuilder, [h, start]: [i64; 2], columns: i64, read: Read<'_>, body: &Visit<'_>) {
        let output = self.block.output_shape();
        b.loop_("row", 64, LoopKind::FragmentRow, |b, row| {
            b.loop_("column", columns, LoopKind::FragmentCol, |b, column| {
                let sum = Expr::load(self.acc, vec![h.into(), row.into(), column + start]);
                let product = self.block.product;
                let at = product.element(self.place, self.first.clone() + 64 * h + row, column + start);
                let inside = |index: &Expr, size: i64| match at.exists {
                    Some(_) if read.clamped => index.clone().min(size - 1),
                    _ => index.clone(),
                };
                let index: Vec<Expr> = at.index.iter().zip(&output).map(|(i, n)| inside(i, *n)).collect();
                let channel = inside(&at.channel, *output.last().expect("an output has channels"));
                let operand = |operand: &StepOperand| match read.residual {
                    Some((buffer, piece)) if operand.name == "residual" => {
                        Expr::load(buffer, [&piece[..], &[row.into(), column.into()]].concat())
                    }
                    _ => self.block.params.read(read.workload, operand, &channel, &index),
                };
                let value = epilogue_of(read.workload, sum, &index, &operand);
                body(b, value, [row, column], at);
            });
        });
    }

    /// Stores row block `h` from the registers.
    fn thread_by_thread(&self, b: &mut KernelBuilder, h: i64) {
        let output = self.block.params.output();
        let read = Read { workload: self.block.product.workload(), clamped: false, residual: None };
        self.each(b, [h, 0], self.block.sizes.bn, read, &|b, value, _, at| {
            b.when(at.exists, |b| b.store(output, at.index, value));
        });
    }

    /// Stores a piece by way of buffer `number`, where another was before, of which the engine has read all when no more
    /// than `under_way` are.
    fn by_engine(&self, b: &mut KernelBuilder, stage: &Stage, piece: Piece, number: i64, under_way: u32) {
        stage.one(b, |b| b.gpu(Gpu::Wait(Group::Store, under_way)));
        b.push(Stmt::Barrier(Barrier::Warp));
        self.hand_over(b, stage, piece, &[self.consumer.into(), number.into()], self.block.product.workload());
    }

    /// Stores a piece by way of the buffer where its residual is. That is added to the sums in their registers: loads that
    /// take turns with stores would wait for each other.
    fn onto_residual(&self, b: &mut KernelBuilder, stage: &Stage, residual: &Residual, piece: Piece, is_first: bool) {
        let buffer = [self.consumer.into(), residual.wait(b, self.consumer)];
        let Piece { h, start, columns } = piece;
        let read = Read { workload: &residual.with_it, clamped: true, residual: Some((stage.buffer, &buffer)) };
        self.each(b, [h, start], columns, read, &|b, value, [row, column], _| {
            b.store(self.acc, vec![h.into(), row.into(), column + start], value);
        });
        if !is_first {
            residual.give_back_last(b, stage, self.consumer);
        }
        self.hand_over(b, stage, piece, &buffer, &residual.behind_it);
        residual.place.advance(b);
    }

    /// Puts a piece into a `buffer` of a consumer, and has the engine store it.
    fn hand_over(
        &self,
        b: &mut KernelBuilder,
        stage: &Stage,
        Piece { h, start, columns }: Piece,
        buffer: &[Expr; 2],
        workload: &Workload,
    ) {
        let read = Read { workload, clamped: true, residual: None };
        self.each(b, [h, start], columns, read, &|b, value, [row, column], _| {
            b.store(stage.buffer, [&buffer[..], &[row.into(), column.into()]].concat(), value);
        });
        b.gpu(Gpu::FenceAsync);
        b.push(Stmt::Barrier(Barrier::Warp));
        stage.one(b, |b| {
            let row = Expr::from(stage.thread).floor_div(WARP).floor_mod(WARPGROUP / WARP) * WARP_ROWS;
            let source = [&buffer[..], &[row.clone(), 0.into()]].concat();
            let row = self.first.clone() + 64 * h + row;
            let Box { origin, extents, .. } =
                self.block.product.piece(self.place, row, start.into(), WARP_ROWS, columns);
            b.gpu(Gpu::TensorStore {
                dst: tile(self.block.params.output(), origin, &extents),
                src: tile(stage.buffer, source, &[1, 1, WARP_ROWS, columns]),
            });
            b.gpu(Gpu::Commit(Group::Store));
        });
    }
}
