//! The kernel.

use super::plan::{Piece, Plan};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, LoopKind, Scope, VarId};
use crate::templates::cuda::guards::{below, or_zero};
use crate::templates::cuda::launch::{launch, unrolled};
use crate::templates::cuda::outputs::finish;
use crate::templates::cuda::source::Source;
use crate::workload::Workload;
use crate::workload::operands::Operands;

/// The kernel of a workload.
pub(super) fn kernel(plan: &Plan, w: &Workload) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::declare(&mut b, w);
    let threads = plan.sizes.threads;
    let blocks = [("image", plan.c.n), ("block", plan.blocks())];
    launch(&mut b, blocks, [("thread", threads)], |b, [image, block], [thread]| {
        let index = block * threads + thread;
        let all = |b: &mut KernelBuilder| Thread::at(b, plan, w, params, image, index.clone()).run(b);
        b.when(below(index.clone(), plan.work(), threads), all);
    });
    b.finish()
}

/// What a thread knows of its place.
struct Thread<'a> {
    plan: &'a Plan,
    w: &'a Workload,
    params: Operands,
    image: VarId,
    /// Its first output channel.
    channel: Expr,
    /// Its patch along rows and columns.
    patch: [VarId; 2],
}

/// What a thread holds.
struct Registers {
    /// `[row, column, channel]` of the input rows under way, each in the place of the one before it that is done.
    pixels: BufferId,
    /// `[tap, channel]`.
    weights: BufferId,
    /// `[row, column, channel]` of the patch's rows that are begun and not done, likewise.
    sums: BufferId,
}

impl<'a> Thread<'a> {
    /// The place of thread number `index` of an image, along the output's memory.
    fn at(
        b: &mut KernelBuilder,
        plan: &'a Plan,
        w: &'a Workload,
        params: Operands,
        image: VarId,
        index: Expr,
    ) -> Thread<'a> {
        let vectors = plan.c.co / plan.sizes.vector;
        let [down, along] = [0, 1].map(|dim| plan.patches(dim));
        let (channels, patch) = if plan.channels_last() {
            let channels = b.let_("channels", index.clone().floor_mod(vectors));
            let column = b.let_("patch_column", index.clone().floor_div(vectors).floor_mod(along));
            (channels, [b.let_("patch_row", index.floor_div(vectors * along)), column])
        } else {
            let column = b.let_("patch_column", index.clone().floor_mod(along));
            let row = b.let_("patch_row", index.clone().floor_div(along).floor_mod(down));
            (b.let_("channels", index.floor_div(along * down)), [row, column])
        };
        // Not a name of its own: that it is a multiple of the vector is seen from its form.
        Thread { plan, w, params, image, channel: channels * plan.sizes.vector, patch }
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let [rows, columns] = sizes.patch;
        let [in_rows, in_columns] = [0, 1].map(|dim| plan.reach(dim));
        let (ahead, open) = (plan.ahead(), plan.open());
        let waiting = if plan.waiting_bytes() < 4 { self.w.dtype } else { DType::F32 };
        let registers = Registers {
            pixels: b.alloc("pixels", waiting, &[ahead, in_columns, sizes.vector], Scope::Register),
            weights: b.alloc("weights", DType::F32, &[plan.c.kh * plan.c.kw, sizes.vector], Scope::Register),
            sums: b.alloc("sums", DType::F32, &[open, columns, sizes.vector], Scope::Register),
        };
        (0..ahead).for_each(|row| self.read_row(b, registers.pixels, row));
        self.read_weights(b, registers.weights);
        for row in 0..in_rows {
            for output in (0..rows).filter(|output| plan.rows_of(*output)[0] == row) {
                self.each_sum(b, |b, x, own| {
                    b.store(registers.sums, vec![(output % open).into(), x, own], Expr::f32(0.0));
                });
            }
            self.multiply_row(b, &registers, row);
            if row + ahead < in_rows {
                self.read_row(b, registers.pixels, row + ahead);
            }
            for output in (0..rows).filter(|output| plan.rows_of(*output)[1] == row) {
                self.store_row(b, registers.sums, output);
            }
        }
    }

    /// Visits the columns and channels of a row of sums.
    fn each_sum(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, Expr, Expr)) {
        unrolled(b, "x", self.plan.sizes.patch[1], |b, x| {
            unrolled(b, "own", self.plan.sizes.vector, |b, own| body(b, x.into(), own.into()));
        });
    }

    /// The index of an element of an activation.
    fn index(&self, channel: Expr, row: Expr, column: Expr) -> Vec<Expr> {
        self.plan.c.layout.index(self.image.into(), channel, row, column)
    }

    fn read_weights(&self, b: &mut KernelBuilder, weights: BufferId) {
        let c = &self.plan.c;
        for tap in 0..c.kh * c.kw {
            let (kh, kw) = (Expr::Int(tap / c.kw), Expr::Int(tap % c.kw));
            b.loop_("own", self.plan.sizes.vector, LoopKind::Vectorized, |b, own| {
                let channel = self.channel.clone() + own;
                let from = Source::Conv(*c).weight([kh, kw], 0.into(), channel);
                b.store(weights, vec![tap.into(), own.into()], Expr::load(self.params.get("w"), from));
            });
        }
    }

    /// The place of input row or column `at` of the patch, and when `width` from there exist; always, if there is no
    /// condition.
    fn input(&self, dim: usize, at: i64, width: i64) -> (Expr, Option<Expr>) {
        let (plan, size) = (self.plan, self.plan.input(dim));
        let step = plan.sizes.patch[dim] * plan.c.stride[dim];
        let place = self.patch[dim] * step + (at - plan.c.padding[dim]);
        let [first, last] = plan.place(dim, at);
        let end = place.clone() + (width - 1);
        let conditions =
            [(first < 0).then(|| Expr::Int(0).le(place.clone())), (last + width > size).then(|| end.lt(size))];
        (place, Expr::all(conditions.into_iter().flatten()))
    }

    /// Asks for a row of the input.
    fn read_row(&self, b: &mut KernelBuilder, pixels: BufferId, at: i64) {
        let (plan, vector) = (self.plan, self.plan.sizes.vector);
        if plan.meeting(0, at).is_empty() {
            return;
        }
        let (slot, multiplier) = (at % plan.ahead(), plan.c.co / plan.c.ci);
        let (row, row_exists) = self.input(0, at, 1);
        for Piece { first, width } in plan.pieces() {
            // A piece is aligned, and so are rows: it is inside of one as a whole, or not at all.
            let (column, column_exists) = self.input(1, first, width);
            let exists = Expr::all([row_exists.clone(), column_exists].into_iter().flatten());
            b.loop_("v", width * vector, LoopKind::Vectorized, |b, v| {
                let (pixel, own) =
                    if plan.channels_last() { (Expr::Int(0), v.into()) } else { (v.into(), Expr::Int(0)) };
                let channel = self.channel.clone().floor_div(multiplier) + own.clone();
                let value = Expr::load(self.params.get("x"), self.index(channel, row.clone(), column + pixel.clone()));
                let value = or_zero(exists, value);
                b.store(pixels, vec![slot.into(), pixel + first, own], value);
            });
        }
    }

    /// Adds the products of a row of the input.
    fn multiply_row(&self, b: &mut KernelBuilder, registers: &Registers, at: i64) {
        let (plan, c) = (self.plan, &self.plan.c);
        for (kh, y) in plan.meeting(0, at) {
            for kw in 0..c.kw {
                self.each_sum(b, |b, x, own| {
                    let column = x.clone() * c.stride[1] + kw * c.dilation[1];
                    let weight = Expr::load(registers.weights, vec![(kh * c.kw + kw).into(), own.clone()]);
                    let pixel = Expr::load(registers.pixels, vec![(at % plan.ahead()).into(), column, own.clone()]);
                    b.sum(registers.sums, vec![(y % plan.open()).into(), x, own], weight * pixel, &[]);
                });
            }
        }
    }

    /// Stores a row of the patch.
    fn store_row(&self, b: &mut KernelBuilder, sums: BufferId, y: i64) {
        let (plan, sizes) = (self.plan, self.plan.sizes);
        let [rows, columns] = sizes.patch;
        let width = if plan.channels_last() { 1 } else { plan.store_width() };
        let row = self.patch[0] * rows + y;
        for first in (0..columns).step_by(width as usize) {
            let column = self.patch[1] * columns + first;
            // The last patch may be cut; rows and patches are whole numbers of vectors.
            let beyond = |place: &Expr, dim: usize, within: i64, width: i64| {
                let last = (plan.patches(dim) - 1) * sizes.patch[dim] + within;
                (last + width > plan.output(dim)).then(|| (place.clone() + (width - 1)).lt(plan.output(dim)))
            };
            let exists = Expr::all([beyond(&row, 0, y, 1), beyond(&column, 1, first, width)].into_iter().flatten());
            let row = row.clone();
            let write = |b: &mut KernelBuilder| {
                b.loop_("v", width * sizes.vector, LoopKind::Vectorized, |b, v| {
                    let (pixel, own) =
                        if plan.channels_last() { (Expr::Int(0), v.into()) } else { (v.into(), Expr::Int(0)) };
                    let channel = self.channel.clone() + own.clone();
                    let to = self.index(channel.clone(), row, column + pixel.clone());
                    let sum = Expr::load(sums, vec![(y % plan.open()).into(), pixel + first, own]);
                    finish(b, (self.w, &self.params), &channel, to, sum);
                });
            };
            b.when(exists, write);
        }
    }
}
