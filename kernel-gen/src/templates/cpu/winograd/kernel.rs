//! The loops of a Winograd convolution.
//!
//! ```text
//! for task (image, block of tile rows, group of channel tiles):
//!   image_rows[r, w, lane]        zeros, then the rows that the block needs, channels along the lanes
//!   data[k, cb, tile, lane]       = B^T d B of each tile               k: place in the tile, cb: block of channels
//!   for co_t of the group:
//!     products[k, tile, co]       = sum data[k, cb, tile, lane] * w[co_t, k, ci, co]      a small product a place
//!     for tile row:
//!       out_rows[i, ow, co]       = A^T products A
//!       y                         = epilogue(out_rows), through register transposes where lanes change
//! ```
//! Everything but `w` and `y` is private to the task and stays in the second-level cache. Groups of one block repeat its
//! transform, which costs less than fetching it from another core's cache.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, LoopKind, Scope, Stmt, Tile, VarId};
use crate::templates::cpu::tile::ceil_div;
use crate::templates::winograd::filter::Filter;
use crate::templates::winograd::transform::{Temporaries, apply, registers};
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::{Conv2d, ConvLayout, Param, Role, Workload};

/// How the work is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    /// Outputs of a tile in each dimension in which the filter has several taps.
    pub(super) m: i64,
    /// Tile rows of a block.
    pub(super) tile_rows: i64,
    /// Tiles of a register tile.
    pub(super) rows: i64,
    /// Vectors of output channels of a register tile.
    pub(super) vectors: i64,
    /// Tasks that share a block, each with its part of the output channels.
    pub(super) groups: i64,
    /// `f32` lanes of a vector.
    pub(super) lanes: i64,
}

/// A convolution cut that way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) conv: Conv2d,
    pub(super) sizes: Sizes,
    /// Outputs of a tile, along rows and along columns.
    pub(super) m: [i64; 2],
    /// Inputs of a tile, and as many products.
    pub(super) t: [i64; 2],
    /// Inputs between the beginnings of neighbouring tiles.
    pub(super) step: [i64; 2],
    /// Tiles in a row.
    pub(super) tiles_across: i64,
    /// Blocks of tile rows of an image.
    pub(super) blocks: i64,
    /// Tiles of a block.
    pub(super) tiles: i64,
    /// Vectors of input channels.
    pub(super) ci_blocks: i64,
    /// Output channels of a register tile.
    pub(super) co_tile: i64,
    /// Tiles of output channels.
    pub(super) co_tiles: i64,
}

impl Cut {
    pub(super) fn new(conv: Conv2d, sizes: Sizes) -> Cut {
        let m = [conv.kh, conv.kw].map(|taps| if taps == 1 { 1 } else { sizes.m });
        let t = [(m[0] - 1) * conv.stride[0] + conv.kh, (m[1] - 1) * conv.stride[1] + conv.kw];
        let tiles_across = ceil_div(conv.ow(), m[1]);
        let co_tile = sizes.vectors * sizes.lanes;
        Cut {
            conv,
            sizes,
            m,
            t,
            step: [m[0] * conv.stride[0], m[1] * conv.stride[1]],
            tiles_across,
            blocks: ceil_div(ceil_div(conv.oh(), m[0]), sizes.tile_rows),
            tiles: sizes.tile_rows * tiles_across,
            ci_blocks: ceil_div(conv.ci, sizes.lanes),
            co_tile,
            co_tiles: ceil_div(conv.co, co_tile),
        }
    }

    /// Places of a tile: products of an input and an output channel.
    pub(super) fn places(&self) -> i64 {
        self.t[0] * self.t[1]
    }

    /// Shape of the transformed weights: a tile of channels is read from its first element to its last.
    pub(super) fn packed_shape(&self) -> [i64; 4] {
        [self.co_tiles, self.places(), self.ci_blocks * self.sizes.lanes, self.co_tile]
    }

    /// Rows and columns of the input, padding included, that a block reads.
    pub(super) fn image_rows(&self) -> [i64; 2] {
        let (c, lanes) = (&self.conv, self.sizes.lanes);
        let beyond = [self.t[0] - self.step[0], self.t[1] - self.step[1]];
        let read = self.tiles_across * self.step[1] + beyond[1];
        // Rows are turned in whole vectors, so the last one may reach further.
        let written = c.padding[1] + ceil_div(c.w, lanes) * lanes;
        [self.sizes.tile_rows * self.step[0] + beyond[0], read.max(written)]
    }

    /// Bytes of the transformed input of a block.
    pub(super) fn data_bytes(&self) -> i64 {
        4 * self.places() * self.ci_blocks * self.sizes.lanes * self.tiles
    }

    /// Bytes of the products of a block with a tile of output channels.
    pub(super) fn product_bytes(&self) -> i64 {
        4 * self.places() * self.tiles * self.co_tile
    }
}

/// Where a task is: expressions in its number.
struct Place {
    /// Image.
    n: Expr,
    /// Block of tile rows.
    block: Expr,
}

struct Parts<'a> {
    workload: &'a Workload,
    cut: Cut,
    /// How rows and how columns are filtered.
    filters: &'a [Filter; 2],
    params: Operands,
    b: KernelBuilder,
}

/// The kernel of a workload, whose convolution is `cut.conv`. Its weights are those that [`super::pack`] transforms.
pub(super) fn kernel(workload: &Workload, cut: Cut, filters: &[Filter; 2]) -> Kernel {
    let mut b = KernelBuilder::new(workload.kernel_name());
    let weights = |p: &Param| if p.role == Role::Weight { cut.packed_shape().to_vec() } else { p.shape.clone() };
    let params = Operands::shaped(&mut b, workload, weights);
    let mut parts = Parts { workload, cut, filters, params, b };
    parts.tasks();
    let mut kernel = parts.b.finish();
    for name in ["data", "products"] {
        if let Some(buffer) = kernel.find_buffer(name) {
            spread(&mut kernel, buffer, cut.sizes.lanes);
        }
    }
    kernel
}

/// Puts an odd number of vectors between places of a tile, so that the accesses of a transform spread over the sets of
/// the cache.
fn spread(kernel: &mut Kernel, buffer: BufferId, lanes: i64) {
    let stride = &mut kernel.buffer_mut(buffer).strides[0];
    if (*stride / lanes) % 2 == 0 {
        *stride += lanes;
    }
}

impl Parts<'_> {
    fn tasks(&mut self) {
        let Cut { conv, blocks, tiles, ci_blocks, co_tiles, sizes, .. } = self.cut;
        let groups = sizes.groups;
        self.loop_("task", conv.n * blocks * groups, LoopKind::Parallel, |s, task| {
            let place = Place {
                n: Expr::from(task).floor_div(groups * blocks),
                block: Expr::from(task).floor_div(groups).floor_mod(blocks),
            };
            let data = s.b.alloc("data", DType::F32, &[s.cut.places(), ci_blocks, tiles, sizes.lanes], Scope::Local);
            let rows = s.cleared_rows();
            s.serial("cb", ci_blocks, |s, cb| {
                s.read_rows(&place, rows, cb);
                s.transform_input(rows, data, cb);
            });
            let of_group = co_tiles / groups;
            s.serial("co_t", of_group, |s, co_t| {
                s.outputs(&place, data, &(Expr::from(task).floor_mod(groups) * of_group + co_t));
            });
        });
    }

    /// A loop whose body is built with `self`.
    fn loop_(&mut self, name: &str, extent: i64, kind: LoopKind, body: impl FnOnce(&mut Self, VarId)) {
        // The builder moves into the closure's block and back.
        let mut b = std::mem::replace(&mut self.b, KernelBuilder::new(""));
        b.loop_(name, extent, kind, |b, v| {
            std::mem::swap(b, &mut self.b);
            body(self, v);
            std::mem::swap(b, &mut self.b);
        });
        self.b = b;
    }

    fn serial(&mut self, name: &str, extent: i64, body: impl FnOnce(&mut Self, VarId)) {
        self.loop_(name, extent, LoopKind::Serial, body);
    }

    fn unrolled(&mut self, name: &str, extent: i64, body: impl FnOnce(&mut Self, VarId)) {
        self.loop_(name, extent, LoopKind::Unrolled, body);
    }

    fn lanes(&mut self, name: &str, extent: i64, body: impl FnOnce(&mut Self, VarId)) {
        let kind = if extent > 1 { LoopKind::Vectorized } else { LoopKind::Serial };
        self.loop_(name, extent, kind, body);
    }

    fn if_(&mut self, cond: Option<Expr>, body: impl FnOnce(&mut Self)) {
        let Some(cond) = cond else { return body(self) };
        let mut b = std::mem::replace(&mut self.b, KernelBuilder::new(""));
        b.if_(cond, |b| {
            std::mem::swap(b, &mut self.b);
            body(self);
            std::mem::swap(b, &mut self.b);
        });
        self.b = b;
    }

    /// Rows of the input with one vector of channels at each place, all zeros: what lies in the padding stays so.
    fn cleared_rows(&mut self) -> BufferId {
        let ([rows, columns], lanes) = (self.cut.image_rows(), self.cut.sizes.lanes);
        let buffer = self.b.alloc("image_rows", DType::F32, &[rows, columns, lanes], Scope::Local);
        self.serial("r_zero", rows, |s, r| {
            s.serial("w_zero", columns, |s, w| {
                s.lanes("lane_zero", lanes, |s, lane| {
                    s.b.store(buffer, [r.into(), w.into(), lane.into()], Expr::f32(0.0));
                });
            });
        });
        buffer
    }

    /// Reads a block of channels of the rows, where they are not padding.
    fn read_rows(&mut self, place: &Place, buffer: BufferId, cb: VarId) {
        let Cut { conv: c, sizes, step, .. } = self.cut;
        let [rows, _] = self.cut.image_rows();
        let [top, left, ..] = c.padding;
        let (x, lanes) = (self.params.at(0), sizes.lanes);
        self.serial("r", rows, |s, r| {
            let h = place.block.clone() * (sizes.tile_rows * step[0]) + r - top;
            s.if_(Some(KernelBuilder::between(&h, 0, c.h)), |s| {
                if c.layout == ConvLayout::Nchw {
                    s.turned_row(place, buffer, [r, cb], &h);
                } else {
                    s.serial("w", c.w, |s, w| {
                        s.lanes("ci", lanes, |s, ci| {
                            let channel = cb * lanes + ci;
                            let at = c.layout.index(place.n.clone(), channel.clone(), h, w.into());
                            let value = Expr::load(x, at);
                            let value = match c.ci % lanes {
                                0 => value,
                                _ => channel.lt(c.ci).select(value, Expr::f32(0.0)),
                            };
                            s.b.store(buffer, [r.into(), w + left, ci.into()], value);
                        });
                    });
                }
            });
        });
    }

    /// Reads a row of a plain NCHW input: vectors of pixels become vectors of channels in registers.
    fn turned_row(&mut self, place: &Place, buffer: BufferId, [r, cb]: [VarId; 2], h: &Expr) {
        let Cut { conv: c, sizes, .. } = self.cut;
        let (x, lanes, left) = (self.params.at(0), sizes.lanes, c.padding[1]);
        self.serial("w_t", ceil_div(c.w, lanes), |s, w_t| {
            let pixels = registers(&mut s.b, "pixels", lanes, lanes);
            s.unrolled("ci", lanes, |s, ci| {
                s.lanes("w", lanes, |s, w| {
                    let (channel, column) = (cb * lanes + ci, w_t * lanes + w);
                    let value = Expr::load(x, vec![place.n.clone(), channel.clone(), h.clone(), column.clone()]);
                    let inside =
                        [(c.ci % lanes != 0).then(|| channel.lt(c.ci)), (c.w % lanes != 0).then(|| column.lt(c.w))];
                    let value = match Expr::all(inside.into_iter().flatten()) {
                        Some(inside) => inside.select(value, Expr::f32(0.0)),
                        None => value,
                    };
                    s.b.store(pixels, [ci.into(), w.into()], value);
                });
            });
            let src = Tile { buffer: pixels, origin: vec![Expr::Int(0); 2], extents: vec![lanes; 2] };
            let origin = vec![r.into(), w_t * lanes + left, Expr::Int(0)];
            s.b.push(Stmt::Transpose { dst: Tile { buffer, origin, extents: vec![1, lanes, lanes] }, src });
        });
    }

    /// `data = B^T d B` for each tile of a block of channels.
    fn transform_input(&mut self, rows: BufferId, data: BufferId, cb: VarId) {
        let Cut { t: [t_h, t_w], step, tiles_across, sizes, .. } = self.cut;
        let ([rows_by, columns_by], lanes) = (self.filters, sizes.lanes);
        self.serial("th", sizes.tile_rows, |s, th| {
            s.serial("tw", tiles_across, |s, tw| {
                let half = registers(&mut s.b, "half", t_h * t_w, lanes);
                let read = registers(&mut s.b, "pixel", t_h * t_w, lanes);
                let partial = registers(&mut s.b, "partial", Temporaries::wanted(t_h.max(t_w)), lanes);
                s.lanes("ci", lanes, |s, ci| {
                    let mut temp = Temporaries::new(partial, ci);
                    let mut pixels = Temporaries::new(read, ci);
                    let mut halves: Vec<Vec<Expr>> = vec![];
                    let mut half = Temporaries::new(half, ci);
                    for i in 0..t_h {
                        temp.clear();
                        let row: Vec<Expr> = (0..t_w)
                            .map(|j| {
                                let at = vec![th * step[0] + i, tw * step[1] + j, ci.into()];
                                pixels.keep(&mut s.b, Expr::load(rows, at))
                            })
                            .collect();
                        let row = apply(&mut s.b, &mut temp, &columns_by.input, &row);
                        halves.push(row.into_iter().map(|e| half.keep(&mut s.b, e)).collect());
                    }
                    for j in 0..t_w {
                        temp.clear();
                        let column: Vec<Expr> = halves.iter().map(|r| r[j as usize].clone()).collect();
                        let column = apply(&mut s.b, &mut temp, &rows_by.input, &column);
                        for (i, value) in column.into_iter().enumerate() {
                            let k = i as i64 * t_w + j;
                            let tile = th * tiles_across + tw;
                            s.b.store(data, [k.into(), cb.into(), tile, ci.into()], value);
                        }
                    }
                });
            });
        });
    }

    /// The outputs of a tile of channels.
    fn outputs(&mut self, place: &Place, data: BufferId, co_t: &Expr) {
        let Cut { tiles, co_tile, sizes, .. } = self.cut;
        let places = self.cut.places();
        let products = self.b.alloc("products", DType::F32, &[places, tiles, co_tile], Scope::Local);
        self.serial("k", places, |s, k| {
            let (whole, rest) = (tiles / sizes.rows, tiles % sizes.rows);
            if whole > 0 {
                s.serial("tile_t", whole, |s, tile_t| {
                    s.register_tile([data, products], [co_t.clone(), k.into(), tile_t * sizes.rows], sizes.rows);
                });
            }
            if rest > 0 {
                let first = Expr::Int(whole * sizes.rows);
                s.register_tile([data, products], [co_t.clone(), k.into(), first], rest);
            }
        });
        self.transform_output(place, products, co_t);
    }

    /// `products[k, first.. + rows, ..] = sum over input channels`.
    fn register_tile(&mut self, buffers: [BufferId; 2], at: [Expr; 3], rows: i64) {
        let Cut { ci_blocks, co_tile, sizes, .. } = self.cut;
        let ([data, products], [co_t, k, first], w) = (buffers, at, self.params.at(1));
        let acc = registers(&mut self.b, "acc", rows, co_tile);
        self.serial("cb", ci_blocks, |s, cb| {
            s.serial("ci", sizes.lanes, |s, ci| {
                s.over_tile(rows, |s, row, co| {
                    let value = vec![k.clone(), cb.into(), first.clone() + row, ci.into()];
                    let weight = vec![co_t.clone(), k.clone(), cb * sizes.lanes + ci, co.clone()];
                    let product = Expr::load(data, value) * Expr::load(w, weight);
                    s.b.sum(acc, [row.into(), co], product, &[cb, ci]);
                });
            });
        });
        self.over_tile(rows, |s, row, co| {
            let sum = Expr::load(acc, vec![row.into(), co.clone()]);
            s.b.store(products, [k.clone(), first.clone() + row, co], sum);
        });
    }

    /// The places of a register tile, copied out: tiles, vectors of channels, lanes.
    fn over_tile(&mut self, rows: i64, body: impl FnOnce(&mut Self, VarId, Expr)) {
        let Sizes { vectors, lanes, .. } = self.cut.sizes;
        self.unrolled("row", rows, |s, row| {
            s.unrolled("vector", vectors, |s, vector| {
                s.lanes("co", lanes, |s, co| body(s, row, vector * lanes + co));
            });
        });
    }

    /// `y = epilogue(A^T products A)`, a row of tiles at a time.
    fn transform_output(&mut self, place: &Place, products: BufferId, co_t: &Expr) {
        let Cut { conv: c, m: [m_h, m_w], tiles_across, co_tile, blocks, sizes, .. } = self.cut;
        // Rows beyond the output are computed with their tile, and tile rows beyond it with their block.
        let beyond = sizes.tile_rows * m_h * blocks - c.oh();
        self.serial("th", sizes.tile_rows, |s, th| {
            let first = (place.block.clone() * sizes.tile_rows + th) * m_h;
            let inside = (beyond >= m_h).then(|| first.clone().lt(c.oh()));
            s.if_(inside, |s| {
                let out = s.b.alloc("out_rows", DType::F32, &[m_h, tiles_across * m_w, co_tile], Scope::Local);
                s.serial("tw", tiles_across, |s, tw| {
                    s.serial("vector", sizes.vectors, |s, vector| {
                        s.transform_products([products, out], [th, tw], vector);
                    });
                });
                s.serial("i", m_h, |s, i| {
                    let oh = first + i;
                    let inside = (beyond > 0).then(|| oh.clone().lt(c.oh()));
                    s.if_(inside, |s| {
                        s.serial("vector", sizes.vectors, |s, vector| {
                            s.store_row(place, out, [co_t, &i.into(), &oh], vector);
                        });
                    });
                });
            });
        });
    }

    /// `out = A^T products A` for a vector of channels of one tile.
    fn transform_products(&mut self, [products, out]: [BufferId; 2], [th, tw]: [VarId; 2], vector: VarId) {
        let Cut { m: [m_h, m_w], t: [t_h, t_w], tiles_across, sizes, .. } = self.cut;
        let ([rows_by, columns_by], lanes) = (self.filters, sizes.lanes);
        let half = registers(&mut self.b, "half", m_h * t_w, lanes);
        let read = registers(&mut self.b, "product", t_h * t_w, lanes);
        let partial = registers(&mut self.b, "partial", Temporaries::wanted(t_h.max(t_w)), lanes);
        self.lanes("co", lanes, |s, co| {
            let mut temp = Temporaries::new(partial, co);
            let mut read = Temporaries::new(read, co);
            let mut half = Temporaries::new(half, co);
            let channel = vector * lanes + co;
            let mut columns: Vec<Vec<Expr>> = vec![];
            for j in 0..t_w {
                temp.clear();
                let mut product = |i: i64| {
                    let at = vec![Expr::Int(i * t_w + j), th * tiles_across + tw, channel.clone()];
                    read.keep(&mut s.b, Expr::load(products, at))
                };
                let column: Vec<Expr> = (0..t_h).map(&mut product).collect();
                let column = apply(&mut s.b, &mut temp, &rows_by.output, &column);
                columns.push(column.into_iter().map(|e| half.keep(&mut s.b, e)).collect());
            }
            for i in 0..m_h {
                temp.clear();
                let row: Vec<Expr> = columns.iter().map(|c| c[i as usize].clone()).collect();
                let row = apply(&mut s.b, &mut temp, &columns_by.output, &row);
                for (j, value) in row.into_iter().enumerate() {
                    s.b.store(out, [i.into(), tw * m_w + j as i64, channel.clone()], value);
                }
            }
        });
    }

    /// Stores a row of one vector of channels, as far as there are channels.
    fn store_row(&mut self, place: &Place, out: BufferId, [co_t, i, oh]: [&Expr; 3], vector: VarId) {
        let Cut { conv: c, co_tile, co_tiles, sizes, .. } = self.cut;
        let lanes = sizes.lanes;
        let first = co_t.clone() * co_tile + vector * lanes;
        let (padded, rest) = (co_tiles * co_tile, c.co % lanes);
        let at = [i.clone(), oh.clone(), vector * lanes, first.clone()];
        if c.co >= lanes {
            let whole = (padded > c.co).then(|| (first.clone() + (lanes - 1)).lt(c.co));
            self.if_(whole, |s| s.store_channels(place, out, &at, lanes));
        }
        if rest > 0 {
            // Of the last vector there are only `rest` channels.
            let last = Expr::Int(c.co).le(first.clone() + (lanes - 1)).and((first + (rest - 1)).lt(c.co));
            self.if_(Some(last), |s| s.store_channels(place, out, &at, rest));
        }
    }

    /// Stores a row of so many channels: `at` is the row of `out`, the output row, and the first channel in each.
    fn store_channels(&mut self, place: &Place, out: BufferId, at: &[Expr; 4], channels: i64) {
        let Cut { conv: c, sizes, .. } = self.cut;
        let [i, oh, from, to] = at;
        let lanes = sizes.lanes;
        if c.layout != ConvLayout::Nchw {
            self.serial("ow", c.ow(), |s, ow| {
                s.lanes("co", channels, |s, co| {
                    s.store_output(place, out, [i, oh, &ow.into()], [from.clone() + co, to.clone() + co]);
                });
            });
            return;
        }
        // Channels by pixels, in blocks that lowering turns by shuffles.
        let (whole, rest) = (c.ow() / lanes, c.ow() % lanes);
        let block = |s: &mut Self, first: Expr, pixels: i64| {
            s.unrolled("co", channels, |s, co| {
                s.lanes("ow", pixels, |s, ow| {
                    let channels = [from.clone() + co, to.clone() + co];
                    s.store_output(place, out, [i, oh, &(first.clone() + ow)], channels);
                });
            });
        };
        if whole > 0 {
            self.serial("ow_t", whole, |s, ow_t| block(s, ow_t * lanes, lanes));
        }
        if rest > 0 {
            block(self, Expr::Int(whole * lanes), rest);
        }
    }

    /// Stores one element.
    fn store_output(&mut self, place: &Place, out: BufferId, at: [&Expr; 3], [from, to]: [Expr; 2]) {
        let [i, oh, ow] = at.map(Clone::clone);
        let y = self.params.output();
        let sum = Expr::load(out, vec![i, ow.clone(), from]);
        let index = self.cut.conv.layout.index(place.n.clone(), to.clone(), oh, ow);
        let value = epilogue(self.workload, sum, &to, &index, &self.params);
        self.b.store(y, index, value);
    }
}
