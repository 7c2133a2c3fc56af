//! What is done to tiles before and after the products: a thread has a tile of a channel.

use super::{Plan, TAPS, ceil_div};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, Axis, BufferId, DType, Expr, Kernel, LoopKind, Scope, VarId};
use crate::templates::winograd::filter::{Filter, Matrix};
use crate::templates::winograd::transform::{Temporaries, apply};
use crate::workload::Workload;
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;

/// Threads of a block that transforms weights.
const PACK_THREADS: i64 = 32;

/// The registers in which a thread transforms a tile.
struct Registers {
    /// What it reads.
    read: BufferId,
    /// Between columns and rows.
    half: BufferId,
    /// Partial sums of one row or column.
    partial: BufferId,
}

impl Registers {
    /// For a matrix of `t x t` or fewer elements.
    fn new(b: &mut KernelBuilder, t: i64) -> Registers {
        let mut values = |name: &str, n: i64| b.alloc(name, DType::F32, &[n], Scope::Register);
        Registers {
            read: values("tap", t * t),
            half: values("half", t * t),
            partial: values("partial", Temporaries::wanted(t)),
        }
    }
}

/// `matrix * tile * matrix^T`, where the tile has `size` rows and columns that `read` gives: rows of the result go to `write`.
fn both_sides(
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

/// The kernel that transforms the weights: `packed[k, ci, co] = (G g G^T)[k]`, zeros beyond the last channels.
pub(super) fn pack(plan: &Plan, filter: &Filter) -> Kernel {
    let (c, t) = (&plan.c, plan.sizes.t());
    let [_, inputs, outputs] = plan.weight_shape();
    let mut b = KernelBuilder::new("pack_w");
    let w = b.param("w", DType::F32, &c.weight_shape(), Access::Read);
    let packed = b.param("packed", DType::F32, &plan.weight_shape(), Access::Write);
    b.loop_("ci", inputs, LoopKind::Grid(Axis::Y), |b, ci| {
        b.loop_("channels", outputs / PACK_THREADS, LoopKind::Grid(Axis::X), |b, channels| {
            b.loop_("thread", PACK_THREADS, LoopKind::Thread(Axis::X), |b, thread| {
                let registers = Registers::new(b, t);
                let co = b.let_("co", channels * PACK_THREADS + thread);
                let inside = [(co, c.co, outputs), (ci, c.ci, inputs)];
                let inside = inside.into_iter().filter(|(_, size, padded)| size < padded);
                let exists = Expr::all(inside.map(|(index, size, _)| Expr::from(index).lt(size)));
                let read = |kh: i64, kw: i64| {
                    let value = Expr::load(w, vec![co.into(), ci.into(), kh.into(), kw.into()]);
                    match &exists {
                        Some(exists) => exists.clone().select(value, Expr::f32(0.0)),
                        None => value,
                    }
                };
                both_sides(b, &registers, &filter.weight, TAPS, read, |b, i, row| {
                    for (j, value) in row.into_iter().enumerate() {
                        b.store(packed, [Expr::Int(i * t + j as i64), ci.into(), co.into()], value);
                    }
                });
            });
        });
    });
    b.finish()
}

/// Where a tile is.
struct Place {
    /// Its number in the round.
    tile: VarId,
    /// Its image in the round.
    image: VarId,
    /// Its first output row and column.
    corner: [VarId; 2],
}

impl Place {
    fn of(b: &mut KernelBuilder, plan: &Plan, number: Expr) -> Place {
        let [down, across] = [0, 1].map(|dim| plan.tiles(dim));
        let m = plan.sizes.m;
        let tile = b.let_("tile", number);
        let image = b.let_("image", Expr::from(tile).floor_div(down * across));
        let row = b.let_("first_row", Expr::from(tile).floor_div(across).floor_mod(down) * m);
        let column = b.let_("first_column", Expr::from(tile).floor_mod(across) * m);
        Place { tile, image, corner: [row, column] }
    }
}

/// `data[k, ci, tile] = (B^T d B)[k]` for the images from `first` on; zeros stand for tiles beyond the last one.
pub(super) fn input(b: &mut KernelBuilder, plan: &Plan, filter: &Filter, first: i64, x: BufferId, data: BufferId) {
    let (c, t, threads) = (&plan.c, plan.sizes.t(), plan.transform_threads());
    b.loop_("ci", c.ci, LoopKind::Grid(Axis::Y), |b, ci| {
        b.loop_("tiles", plan.padded_tiles() / threads, LoopKind::Grid(Axis::X), |b, tiles| {
            b.loop_("thread", threads, LoopKind::Thread(Axis::X), |b, thread| {
                let registers = Registers::new(b, t);
                let Place { tile, image, corner } = Place::of(b, plan, tiles * threads + thread);
                let exists = (plan.images() * plan.image_tiles() < plan.padded_tiles())
                    .then(|| Expr::from(image).lt(plan.images()));
                let along = |dim: usize, within: i64| {
                    let (size, padding) = ([c.h, c.w][dim], c.padding[dim]);
                    let at = corner[dim] + (within - padding);
                    // The first and the last tile's places.
                    let all = within - padding..(plan.tiles(dim) - 1) * plan.sizes.m + within - padding + 1;
                    let meets = all.start < 0 || all.end > size;
                    (at.clone(), meets.then(|| KernelBuilder::between(&at, 0, size)))
                };
                let read = |i: i64, j: i64| {
                    let ((row, in_rows), (column, in_columns)) = (along(0, i), along(1, j));
                    let value = Expr::load(x, vec![image + first, ci.into(), row, column]);
                    match Expr::all([exists.clone(), in_rows, in_columns].into_iter().flatten()) {
                        Some(inside) => inside.select(value, Expr::f32(0.0)),
                        None => value,
                    }
                };
                both_sides(b, &registers, &filter.input, t, read, |b, i, row| {
                    for (j, value) in row.into_iter().enumerate() {
                        b.store(data, [Expr::Int(i * t + j as i64), ci.into(), tile.into()], value);
                    }
                });
            });
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
    let (c, m, t, threads) = (&plan.c, plan.sizes.m, plan.sizes.t(), plan.transform_threads());
    let all = plan.images() * plan.image_tiles();
    // Neighbours that always exist together are stored together.
    let width = (1..=m).rev().find(|width| m % width == 0 && c.ow() % width == 0).unwrap_or(1);
    b.loop_("co", c.co, LoopKind::Grid(Axis::Y), |b, co| {
        b.loop_("tiles", ceil_div(all, threads), LoopKind::Grid(Axis::X), |b, tiles| {
            b.loop_("thread", threads, LoopKind::Thread(Axis::X), |b, thread| {
                let registers = Registers::new(b, t);
                let sums = b.alloc("sum", DType::F32, &[m], Scope::Register);
                let Place { tile, image, corner } = Place::of(b, plan, tiles * threads + thread);
                let body = |b: &mut KernelBuilder| {
                    let read =
                        |i: i64, j: i64| Expr::load(products, vec![Expr::Int(i * t + j), co.into(), tile.into()]);
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
                                        let index = [image + first, co.into(), row.clone(), column.clone() + lane];
                                        let sum = Expr::load(sums, vec![lane + from]);
                                        let value = epilogue(w, sum, &co.into(), &index, &|name| params.get(name));
                                        b.store(params.output(), index, value);
                                    });
                                };
                                when(b, c.ow() % m != 0 && from > 0, column.clone().lt(c.ow()), write);
                            }
                        };
                        when(b, c.oh() % m != 0 && i > 0, row.clone().lt(c.oh()), write);
                    });
                };
                when(b, all % threads != 0, Expr::from(image).lt(plan.images()), body);
            });
        });
    });
}

/// Does something where a condition holds, or always if it `may` not fail.
fn when(b: &mut KernelBuilder, may: bool, condition: Expr, body: impl FnOnce(&mut KernelBuilder)) {
    if may { b.if_(condition, body) } else { body(b) }
}
