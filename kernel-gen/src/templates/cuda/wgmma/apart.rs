//! Sums of steps, apart from those of the tile.
//!
//! Tensor cores add products of eight bits with fewer bits than an `f32` has (see [`bound`](crate::workload::bound)), and blocks of a
//! reduction may have scales of their own. So the sums of a step, 128 terms at most, are made by themselves, and then added to the tile's in
//! `f32`. *(DeepSeek-AI, arXiv:2412.19437, section 3.3.2.)*
//!
//! A tile with many columns has registers for the sums of half of them beside its own, so those of its halves are made one after the other. Where
//! one may be under way while the other is added there are two banks of them: the products of a half are waited for when those of the next
//! have been issued.

use super::plan::Sizes;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, LoopKind, Scope, Tile, Unit};
use crate::templates::cuda::instructions::{clear, tile};
use crate::templates::cuda::warpgroups::{WARP, WARP_ROWS, WARPGROUP};
use crate::workload::Workload;
use crate::workload::operands::Operands;

/// A thread holds rows of both halves of a warp's sixteen: element `(i, j)` is held by lane `i % 8 * 4 + j % 8 / 2` ([`crate::ir::gpu`]).
const HALVES: i64 = 2;
const HALF_ROWS: i64 = WARP_ROWS / HALVES;

/// Numbers that the sums of a step are multiplied by.
pub(super) trait StepScales {
    /// That of a row of the tile.
    fn of_row(&self, params: &Operands, place: &[Expr], step: &[Expr], row: Expr) -> Expr;

    /// That of the columns of a part of the tile, the first of which has the number `first`.
    fn of_columns(&self, params: &Operands, place: &[Expr], step: &[Expr], first: i64) -> Expr;
}

/// Where a consumer multiplies: the tile, its first row, and the step.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) place: &'a [Expr],
    pub(super) first: &'a Expr,
    pub(super) step: &'a [Expr],
}

/// The banks of a consumer for a tile.
pub(super) struct Apart {
    sizes: Sizes,
    banks: Vec<BufferId>,
    /// What the sums of each bank are multiplied by, of each row that this thread holds some of; empty without scales.
    scales: Vec<BufferId>,
}

impl Apart {
    /// The banks, if sums of steps are apart.
    pub(super) fn make(b: &mut KernelBuilder, w: &Workload, sizes: Sizes, scaled: bool) -> Option<Apart> {
        if sizes.levels == 1 {
            return None;
        }
        let count = 1 + sizes.pending as usize;
        let shape = [sizes.row_blocks, 64, sizes.columns_apart()];
        let names = ["of_step", "of_next"].into_iter().take(count);
        let banks = names.map(|name| b.alloc(name, w.sums(), &shape, Scope::Fragment(Unit::Warpgroup))).collect();
        let names = ["step_scales", "next_scales"].into_iter().take(if scaled { count } else { 0 });
        let rows = [sizes.row_blocks, HALVES];
        let scales = names.map(|name| b.alloc(name, DType::F32, &rows, Scope::Register)).collect();
        let apart = Apart { sizes, banks, scales };
        if count > 1 {
            // The first step adds what would be the second half of the one before.
            let before = apart.bank(apart.before(0));
            for h in 0..sizes.row_blocks {
                clear(b, apart.sums(before, h));
            }
            if scaled {
                apart.each_scale(b, |b, index, _| b.store(apart.scales[before], index, Expr::zero(DType::F32)));
            }
        }
        Some(apart)
    }

    /// Parts of the columns.
    pub(super) fn parts(&self) -> usize {
        (self.sizes.bn / self.sizes.columns_apart()) as usize
    }

    /// The part before a part, which is the last of the step before where that is the first.
    pub(super) fn before(&self, part: usize) -> usize {
        (part + self.parts() - 1) % self.parts()
    }

    /// The bank of a part.
    pub(super) fn bank(&self, part: usize) -> usize {
        part % self.banks.len()
    }

    /// The sums of a bank's row block.
    fn sums(&self, bank: usize, h: i64) -> Tile {
        tile(self.banks[bank], vec![h.into(), 0.into(), 0.into()], &[1, 64, self.sizes.columns_apart()])
    }

    /// Makes the sums of a step by `product`, row block by row block.
    pub(super) fn multiply(&self, b: &mut KernelBuilder, bank: usize, product: impl Fn(&mut KernelBuilder, i64, Tile)) {
        for h in 0..self.sizes.row_blocks {
            let sums = self.sums(bank, h);
            clear(b, sums.clone());
            product(b, h, sums);
        }
    }

    /// Reads what the sums of the columns from `first` on are multiplied by.
    pub(super) fn read_scales(
        &self,
        b: &mut KernelBuilder,
        bank: usize,
        (of, columns): (&dyn StepScales, i64),
        (params, thread): (&Operands, Expr),
        At { place, first, step }: At<'_>,
    ) {
        let thread = thread.floor_mod(WARPGROUP);
        let own = thread.clone().floor_div(WARP) * WARP_ROWS + thread.floor_mod(WARP).floor_div(WARP / HALF_ROWS);
        self.each_scale(b, |b, index, row| {
            let row = first.clone() + own.clone() + row;
            let scale = of.of_row(params, place, step, row) * of.of_columns(params, place, step, columns);
            b.store(self.scales[bank], index, scale);
        });
    }

    /// Visits the scales of a bank: their indices, and how far their rows are below the first that a thread holds.
    fn each_scale(&self, b: &mut KernelBuilder, visit: impl Fn(&mut KernelBuilder, Vec<Expr>, i64)) {
        for h in 0..self.sizes.row_blocks {
            (0..HALVES).for_each(|half| visit(b, vec![h.into(), half.into()], 64 * h + HALF_ROWS * half));
        }
    }

    /// Adds the sums of a part to those of the tile.
    pub(super) fn add(&self, b: &mut KernelBuilder, acc: BufferId, part: usize) {
        let (bank, columns) = (self.bank(part), self.sizes.columns_apart());
        for h in 0..self.sizes.row_blocks {
            b.loop_("row", 64, LoopKind::FragmentRow, |b, row| {
                b.loop_("column", columns, LoopKind::FragmentCol, |b, column| {
                    let of_step = Expr::load(self.banks[bank], vec![h.into(), row.into(), column.into()]);
                    let half = Expr::from(row).floor_mod(WARP_ROWS).floor_div(HALF_ROWS);
                    let scaled = match self.scales.get(bank) {
                        Some(scales) => of_step * Expr::load(*scales, vec![h.into(), half]),
                        None => of_step,
                    };
                    let at = vec![h.into(), row.into(), column + part as i64 * columns];
                    b.store(acc, at.clone(), Expr::load(acc, at) + scaled);
                });
            });
        }
    }
}
