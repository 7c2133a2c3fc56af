//! What is done to tiles before and after the products: a thread has a tile of a channel.

use super::plan::Plan;
use super::tiling::{Place, TAPS, Tiling};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, LoopKind, Scope};
use crate::templates::Pack;
use crate::templates::cuda::guards::{below, inside, or_zero};
use crate::templates::cuda::launch::{self, launch};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outputs;
use crate::templates::winograd::filter::{Filter, Matrix};
use crate::templates::winograd::transform::{Temporaries, apply};
use crate::workload::Workload;
use crate::workload::operands::Operands;

/// Threads of a block that transforms weights.
const PACK_THREADS: i64 = 32;

/// The registers in which a thread transforms a tile.
pub(super) struct Registers {
    /// What it reads.
    read: BufferId,
    /// Between columns and rows.
    half: BufferId,
    /// Partial sums of one row or column.
    partial: BufferId,
}

impl Registers {
    /// For a matrix of `t x t` or fewer elements.
    pub(super) fn new(b: &mut KernelBuilder, t: i64) -> Registers {
        let mut values = |name: &str, n: i64| b.alloc(name, DType::F32, &[n], Scope::Register);
        Registers {
            read: values("tap", t * t),
            half: values("half", t * t),
            partial: values("partial", Temporaries::wanted(t)),
        }
    }
}

/// `matrix * tile * matrix^T`, where the tile has `size` rows and columns that `read` gives: rows of the result go to `write`.
pub(super) fn both_sides(
    b: &mut KernelBuilder,
    registers: &Registers,
    matrix: &Matrix,
    size: i64,
    mut read: impl FnMut(i64, i64) -> Expr,
    mut write: impl FnMut(&mut KernelBuilder, i64, Vec<Expr>),
) {
    let mut taps = Temporaries::scalars(registers.read);
    let mut half = Temporaries::scalars(registers.half);
    let mut partial = Temporaries::scalars(registers.partial);
    // All loads first, so that they are under way together.
    let mut tile: Vec<Vec<Expr>> = vec![];
    for j in 0..size {
        tile.push((0..size).map(|i| taps.keep(b, read(i, j))).collect());
    }
    let mut columns: Vec<Vec<Expr>> = vec![];
    for column in &tile {
        partial.clear();
        let column = apply(b, &mut partial, matrix, column);
        columns.push(column.into_iter().map(|e| half.keep(b, e)).collect());
    }
    for i in 0..matrix.len() {
        partial.clear();
        let row: Vec<Expr> = columns.iter().map(|c| c[i].clone()).collect();
        let row = apply(b, &mut partial, matrix, &row);
        write(b, i as i64, row);
    }
}

/// Where transformed weights lie in memory.
pub(super) struct Packed {
    /// Shape of the packed tensor.
    pub(super) shape: Vec<i64>,
    /// Input and output channels with those that fill up steps and blocks.
    pub(super) padded: [i64; 2],
}

/// What transforms the weights, zeros beyond the last channels: `(G g G^T)[k]` of input channel `ci` and output channel
/// `channel(place)` comes to `index(k, ci, place)`, where `place` goes over all output channels.
pub(super) fn pack(
    tiling: &Tiling,
    filter: &Filter,
    packed: Packed,
    channel: impl Fn(Expr) -> Expr,
    index: impl Fn(i64, Expr, Expr) -> Vec<Expr>,
) -> Pack {
    let (c, t) = (&tiling.c, tiling.t());
    let Packed { shape, padded: [inputs, outputs] } = packed;
    let (from, to) = (("w", DType::F32, &c.weight_shape()[..]), (DType::F32, &shape[..]));
    let (loops, threads) = ([("ci", inputs), ("channels", outputs / PACK_THREADS)], [("thread", PACK_THREADS)]);
    launch::pack(from, to, loops, threads, |b, [w, packed], [ci, channels], [thread]| {
        let registers = Registers::new(b, t);
        let place = channels * PACK_THREADS + thread;
        let co = b.let_("co", channel(place.clone()));
        let exists = inside(&[co.into(), ci.into()], [c.co, c.ci], [outputs, inputs]);
        let read = |kh: i64, kw: i64| {
            let value = Expr::load(w, vec![co.into(), ci.into(), kh.into(), kw.into()]);
            or_zero(exists.clone(), value)
        };
        both_sides(b, &registers, &filter.weight, TAPS, read, |b, i, row| {
            for (j, value) in row.into_iter().enumerate() {
                b.store(packed, index(i * t + j as i64, ci.into(), place.clone()), value);
            }
        });
    })
}

/// `data[k, ci, tile] = (B^T d B)[k]` for the images from `first` on; zeros stand for tiles beyond the last one.
pub(super) fn input(b: &mut KernelBuilder, plan: &Plan, filter: &Filter, first: i64, x: BufferId, data: BufferId) {
    let (tiling, threads) = (plan.tiling(), plan.transform_threads());
    let t = tiling.t();
    let loops = [("ci", plan.c.ci), ("tiles", plan.padded_tiles() / threads)];
    launch(b, loops, [("thread", threads)], |b, [ci, tiles], [thread]| {
        let registers = Registers::new(b, t);
        let place = Place::of(b, &tiling, tiles * threads + thread);
        let exists = (plan.images() * plan.image_tiles() < plan.padded_tiles())
            .then(|| Expr::from(place.image).lt(plan.images()));
        let read = |i: i64, j: i64| tiling.pixel(x, [place.image + first, ci.into()], &place, [i, j], exists.clone());
        both_sides(b, &registers, &filter.input, t, read, |b, i, row| {
            for (j, value) in row.into_iter().enumerate() {
                b.store(data, [Expr::Int(i * t + j as i64), ci.into(), place.tile.into()], value);
            }
        });
    });
}

/// `y = epilogue(A^T products A)` for the images from `first` on.
pub(super) fn output(
    b: &mut KernelBuilder,
    plan: &Plan,
    filter: &Filter,
    first: i64,
    w: &Workload,
    params: &Operands,
    products: BufferId,
) {
    let (tiling, threads) = (plan.tiling(), plan.transform_threads());
    let t = tiling.t();
    let all = plan.images() * plan.image_tiles();
    let loops = [("co", plan.c.co), ("tiles", ceil_div(all, threads))];
    launch(b, loops, [("thread", threads)], |b, [co, tiles], [thread]| {
        let place = Place::of(b, &tiling, tiles * threads + thread);
        let body = |b: &mut KernelBuilder| {
            let read = |i: i64, j: i64| Expr::load(products, vec![Expr::Int(i * t + j), co.into(), place.tile.into()]);
            finish(b, &tiling, filter, (w, params), [place.image + first, co.into()], &place, read);
        };
        b.when((all % threads != 0).then(|| Expr::from(place.image).lt(plan.images())), body);
    });
}

/// Stores `epilogue(A^T products A)` of one tile: its image and output channel in `y`, its place, and what gives its products.
pub(super) fn finish(
    b: &mut KernelBuilder,
    tiling: &Tiling,
    filter: &Filter,
    (w, params): (&Workload, &Operands),
    [image, co]: [Expr; 2],
    place: &Place,
    read: impl FnMut(i64, i64) -> Expr,
) {
    let (c, m, t) = (&tiling.c, tiling.m, tiling.t());
    let corner = place.corner;
    // Neighbours that always exist together are stored together.
    let width = (1..=m).rev().find(|width| m % width == 0 && c.ow() % width == 0).unwrap_or(1);
    let registers = Registers::new(b, t);
    let sums = b.alloc("sum", DType::F32, &[m], Scope::Register);
    both_sides(b, &registers, &filter.output, t, read, |b, i, row| {
        for (j, value) in row.into_iter().enumerate() {
            b.store(sums, [Expr::Int(j as i64)], value);
        }
        let row = corner[0] + i;
        let write = |b: &mut KernelBuilder| {
            for from in (0..m).step_by(width as usize) {
                let column = corner[1] + from;
                let write = |b: &mut KernelBuilder| {
                    b.loop_("column", width, LoopKind::Vectorized, |b, lane| {
                        let index = [image.clone(), co.clone(), row.clone(), column.clone() + lane];
                        let sum = Expr::load(sums, vec![lane + from]);
                        outputs::finish(b, (w, params), &co, index, sum);
                    });
                };
                b.when(below(column.clone(), c.ow(), m).filter(|_| from > 0), write);
            }
        };
        b.when(below(row.clone(), c.oh(), m).filter(|_| i > 0), write);
    });
}
