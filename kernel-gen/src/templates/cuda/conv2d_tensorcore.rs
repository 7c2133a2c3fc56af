//! The convolution of the tutorial "How to optimize convolution using TensorCores" (Siyuan Feng, Apache TVM): NHWCnc,
//! 16-bit operands and `f32` sums.
//!
//! Batch and channels come in tiles of 16 x 16, so that at each pixel and tap of the kernel a tile of the input times a
//! tile of the weights is one product of tensor cores. A block has `block_row_warps x block_col_warps` warps; each has
//! `warp_row_tiles x warp_col_tiles` tiles of sums (images by output channels). For each row of the kernel and `chunk`
//! tiles of input channels the block fetches what its warps need of one row of taps into shared memory; the warps load
//! tiles from there into fragments and multiply. The tutorial's constants are the config [`tutorial`].
//!
//! The tutorials' program `opt_conv_tensorcore` (`examples/tutorials`) makes the same kernel by schedule: scalar loops, caches in
//! fragments and [`tensorize`](crate::schedule::tensorize). Here it is built, which leaves room for what a rewrite of one
//! statement cannot do. Loops, their order and what lies where are the tutorial's. Where it differs:
//!
//! * Epilogues are computed on the sums in their registers, and the output may be 16-bit. Compute capability 7.0 does not say
//!   where the sums are: there they go to the output as they are, or to shared memory, where lanes read them for the epilogue.
//! * With a stride or dilation, shared memory holds the columns that taps meet, and no others.
//! * `vector` elements of the input are fetched at a time (the tutorial has 1; weights are always fetched 8 at a time).

use super::family::{self, Case, Family, Knobs, Needs, Search, built, knobs};
use super::guards::below;
use super::instructions::{self, clear, multiply};
use super::model::{Launch, Unit as Units, ceil_div};
use super::outputs::finish;
use super::requires::{convolution, device, needs_16_bits};
use super::schedules::{BLOCK, THREAD};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Axis, BufferId, DType, Expr, Gpu, Kernel, LoopKind, Scope, Tile, Unit, VarId};
use crate::space::Config;
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::{Conv2d, ConvLayout, Workload};

/// See the module's text. Knobs: `block_row_warps`, `block_col_warps`, `warp_row_tiles`, `warp_col_tiles`, `chunk`,
/// `vector`.
pub struct Conv2dTensorcore;

/// Images and channels of a tile.
const TILE: i64 = 16;

/// Elements of the weights that a thread fetches at a time: 16 bytes.
const WEIGHTS: i64 = 8;

/// The config that is the tutorial's schedule.
pub fn tutorial() -> Config {
    Sizes { row_warps: 4, col_warps: 2, row_tiles: 2, col_tiles: 4, chunk: 2, vector: 1 }.config()
}

/// How sums become the output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum End {
    /// In the registers where they are.
    Registers,
    /// As they are: no thread knows which it has, and nothing is done to them.
    Whole,
    /// By way of shared memory, a tile of each warp at a time: no thread knows which it has.
    Shared,
}

impl End {
    fn of(w: &Workload, t: &Target) -> End {
        match t.has_opaque_fragments() {
            false => End::Registers,
            true if w.epilogue.is_empty() && w.out_dtype == DType::F32 => End::Whole,
            true => End::Shared,
        }
    }
}

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Warps along images and along output channels.
        row_warps: i64 = "block_row_warps" in [1, 2, 4, 8];
        col_warps: i64 = "block_col_warps" in [1, 2, 4, 8];
        /// Tiles of a warp along them.
        row_tiles: i64 = "warp_row_tiles" in [1, 2, 4, 8];
        col_tiles: i64 = "warp_col_tiles" in [1, 2, 4, 8];
        /// Tiles of input channels in a step.
        chunk: i64 = "chunk" in [1, 2, 4, 8];
        /// Elements of the input that are fetched at a time.
        vector: i64 = "vector" in [1, 2, 4, 8];
    }
}

/// The fewest warps and tiles.
const SMALLEST: Sizes = Sizes { row_warps: 1, col_warps: 1, row_tiles: 1, col_tiles: 1, chunk: 1, vector: 1 };

impl Sizes {
    fn warps(&self) -> i64 {
        self.row_warps * self.col_warps
    }

    /// Tiles of images and of output channels in a block.
    fn block(&self) -> [i64; 2] {
        [self.row_warps * self.row_tiles, self.col_warps * self.col_tiles]
    }

    fn shared_bytes(&self, c: &Conv2d, end: End) -> i64 {
        let [rows, columns] = self.block();
        let sums = if end == End::Shared { self.warps() * TILE * TILE * 4 } else { 0 };
        (rows + columns) * c.kw * self.chunk * TILE * TILE * 2 + sums
    }

    /// Eight registers for the sums of a tile, four for an operand's, twice as many in the form of compute capability 7.0.
    fn registers(&self, end: End) -> i64 {
        let operand = if end == End::Registers { 4 } else { 8 };
        8 * self.row_tiles * self.col_tiles + operand * (self.row_tiles + self.col_tiles) + 40
    }
}

/// A convolution cut up as a config says.
#[derive(Clone, Copy)]
pub struct Plan {
    c: Conv2d,
    end: End,
    sizes: Sizes,
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs {
            threads: self.sizes.warps() * Cuda::WARP,
            registers: self.sizes.registers(self.end),
            shared_bytes: self.sizes.shared_bytes(&self.c, self.end),
        }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Plan { c, end, sizes } = *self;
        let [rows, columns] = sizes.block();
        (c.n / TILE) % rows == 0
            && (c.co / TILE) % columns == 0
            && (c.ci / TILE) % sizes.chunk == 0
            && sizes.shared_bytes(&c, end) <= gpu.shared_per_block
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let (c, s, end, [rows, columns]) = (&self.c, &self.sizes, self.end, self.sizes.block());
        // Tiles, in bytes: one of each operand for each tap of a row and input channel tile.
        let taps = (c.kw * s.chunk) as f64;
        let tile = (TILE * TILE * 2) as f64;
        let launch = Launch {
            blocks: c.oh() * c.ow() * (c.n / TILE / rows) * (c.co / TILE / columns),
            threads: s.warps() * Cuda::WARP,
            registers: s.registers(end),
            shared_bytes: s.shared_bytes(c, end),
            unit: Units::Tensor,
            sums: 8 * s.row_tiles * s.col_tiles,
            steps: (ceil_div(c.ci / TILE, s.chunk) * c.kh) as f64,
            step_flops: (2 * TILE * TILE * TILE * rows * columns) as f64 * taps,
            step_shared_bytes: (s.warps() * (s.row_tiles + s.col_tiles)) as f64 * tile * taps,
            step_fetched_bytes: (rows + columns) as f64 * tile * taps,
            bytes: w.bytes() as f64,
        };
        // Instructions of a fetch, against the products that they are for.
        let accesses = TILE * TILE * (rows / s.vector.max(1) + columns / WEIGHTS) / Cuda::WARP;
        let fetch = accesses as f64 / (8 * rows * columns) as f64;
        launch.microseconds(gpu) * (1.0 + fetch)
    }
}

impl Family for Conv2dTensorcore {
    const NAME: &'static str = "conv2d_tensorcore";
    const LIMITS: &'static str = "tiles divide; threads, registers and shared memory within the device's limits";
    const SMALLEST: Option<Sizes> = Some(SMALLEST);
    type Problem = (Conv2d, End);
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<(Conv2d, End), String> {
        let gpu = device(t)?;
        let c = convolution(w)?;
        if c.layout != ConvLayout::NhwcNc(TILE) {
            return Err("for NHWC16n16c".into());
        }
        needs_16_bits(w)?;
        // Volta and Turing have tensor cores for f16 alone.
        let least = if w.dtype == DType::F16 { 70 } else { 80 };
        if t.capability().is_none_or(|c| c < least) {
            return Err(format!("for compute capability {}.{} and later in {}", least / 10, least % 10, w.dtype));
        }
        if c.oh() * c.ow() > gpu.grid_dim[2] || c.co / TILE > gpu.grid_dim[1] {
            return Err(format!("for at most {} pixels", gpu.grid_dim[2]));
        }
        Ok((c, End::of(w, t)))
    }

    fn too_large(_: &Case<'_, (Conv2d, End)>) -> String {
        "a row of the kernel does not fit in shared memory".into()
    }

    fn plan(case: &Case<'_, (Conv2d, End)>, sizes: Sizes) -> Result<Plan, TemplateError> {
        let (c, end) = case.problem;
        Ok(Plan { c, end, sizes })
    }

    fn search(_: &Case<'_, (Conv2d, End)>) -> Search<Sizes> {
        Search::Descent(Sizes { vector: 8, ..SMALLEST }, 0)
    }

    fn kernel(case: &Case<'_, (Conv2d, End)>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        built(kernel(case.w, &plan.c, plan.sizes, plan.end), [])
    }
}

/// A tile of the last two dimensions.
fn tile(buffer: BufferId, outer: &[Expr]) -> Tile {
    instructions::tile(buffer, [outer, &[0.into(), 0.into()]].concat(), &[TILE, TILE])
}

/// Where a thread of a block is.
#[derive(Clone, Copy)]
struct Thread {
    /// Row of the warp, column of the warp.
    warp: [VarId; 2],
    lane: VarId,
}

/// What a block has.
struct Block<'a> {
    c: &'a Conv2d,
    sizes: Sizes,
    thread: Thread,
    /// Shared memory: the tutorial's `AS` and `WS`.
    shared: [BufferId; 2],
}

#[allow(non_snake_case, reason = "the tutorial's names")]
fn kernel(w: &Workload, c: &Conv2d, s: Sizes, end: End) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::declare(&mut b, w);
    let (A, W) = (params.at(0), params.at(1));
    let [rows, columns] = s.block();
    // One pixel a block; images along x, output channels along y.
    b.loop_("block_k", c.oh() * c.ow(), BLOCK(Axis::Z), |b, pixel| {
        b.loop_("block_i", c.n / TILE / rows, BLOCK(Axis::X), |b, block_i| {
            b.loop_("block_j", c.co / TILE / columns, BLOCK(Axis::Y), |b, block_j| {
                let AS = b.alloc("AS", w.dtype, &[rows, c.kw, s.chunk, TILE, TILE], Scope::Shared);
                let WS = b.alloc("WS", w.dtype, &[c.kw, s.chunk, columns, TILE, TILE], Scope::Shared);
                b.loop_("nc", s.row_warps, THREAD(Axis::Y), |b, nc| {
                    b.loop_("oc", s.col_warps, THREAD(Axis::Z), |b, oc| {
                        b.loop_("lane", Cuda::WARP, THREAD(Axis::X), |b, lane| {
                            let warp = Scope::Fragment(Unit::Warp);
                            let ConvF = b.alloc("ConvF", DType::F32, &[s.row_tiles, s.col_tiles, TILE, TILE], warp);
                            let thread = Thread { warp: [nc, oc], lane };
                            let block = Block { c, sizes: s, thread, shared: [AS, WS] };
                            for_tiles(s, |n, o| clear(b, tile(ConvF, &[n.into(), o.into()])));
                            b.for_("ko", c.ci / TILE / s.chunk, |b, ko| {
                                b.for_("kh", c.kh, |b, kh| {
                                    block.fetch_input(b, A, pixel, block_i * rows, ko, kh);
                                    block.fetch_weights(b, W, block_j * columns, ko, kh);
                                    block.multiply(b, ConvF, w.dtype);
                                });
                            });
                            let first = [block_i * rows + nc * s.row_tiles, block_j * columns + oc * s.col_tiles];
                            block.finish(b, w, &params, ConvF, (pixel, first), end);
                        });
                    });
                });
            });
        });
    });
    b.finish()
}

/// Calls `f` for each tile of a warp's sums.
fn for_tiles(s: Sizes, mut f: impl FnMut(i64, i64)) {
    for n in 0..s.row_tiles {
        for o in 0..s.col_tiles {
            f(n, o);
        }
    }
}

impl Block<'_> {
    /// The epilogue, and the way of a warp's sums to the output: at a pixel, from the first tiles of images and of channels on.
    fn finish(
        &self,
        b: &mut KernelBuilder,
        w: &Workload,
        params: &Operands,
        sums: BufferId,
        (pixel, [images, channels]): (VarId, [Expr; 2]),
        end: End,
    ) {
        let output = params.output();
        let [h, v] = [Expr::from(pixel).floor_div(self.c.ow()), Expr::from(pixel).floor_mod(self.c.ow())];
        let tile_at = |n: i64, o: i64| vec![images.clone() + n, h.clone(), v.clone(), channels.clone() + o];
        let one = |b: &mut KernelBuilder, n: i64, o: i64, [nn, oo]: [Expr; 2], sum: Expr| {
            let channel = (channels.clone() + o) * TILE + oo.clone();
            let at = [tile_at(n, o), vec![nn, oo]].concat();
            finish(b, (w, params), &channel, at, sum);
        };
        if end == End::Whole {
            return for_tiles(self.sizes, |n, o| {
                let src = tile(sums, &[n.into(), o.into()]);
                b.gpu(Gpu::Move { dst: tile(output, &tile_at(n, o)), src });
            });
        }
        if end == End::Registers {
            return for_tiles(self.sizes, |n, o| {
                b.loop_("nnc", TILE, LoopKind::FragmentRow, |b, nn| {
                    b.loop_("ooc", TILE, LoopKind::FragmentCol, |b, oo| {
                        let sum = Expr::load(sums, vec![n.into(), o.into(), nn.into(), oo.into()]);
                        one(b, n, o, [nn.into(), oo.into()], sum);
                    });
                });
            });
        }
        let [nc, oc] = self.thread.warp;
        let shared =
            b.alloc("CS", DType::F32, &[self.sizes.row_warps, self.sizes.col_warps, TILE, TILE], Scope::Shared);
        for_tiles(self.sizes, |n, o| {
            let dst = tile(shared, &[nc.into(), oc.into()]);
            b.gpu(Gpu::Move { dst, src: tile(sums, &[n.into(), o.into()]) });
            b.loop_("part", TILE * TILE / Cuda::WARP, LoopKind::Unrolled, |b, part| {
                let place = part * Cuda::WARP + self.thread.lane;
                let [nn, oo] = [place.clone().floor_div(TILE), place.floor_mod(TILE)];
                let sum = Expr::load(shared, vec![nc.into(), oc.into(), nn.clone(), oo.clone()]);
                one(b, n, o, [nn, oo], sum);
            });
        });
    }

    /// Has each warp fetch every so many of `tiles` tiles in vectors of `vector` elements: `copy` gets the tile, and a
    /// vector's row and first column.
    fn fetch(
        &self,
        b: &mut KernelBuilder,
        name: &str,
        tiles: i64,
        vector: i64,
        copy: impl Fn(&mut KernelBuilder, &Expr, Expr, Expr),
    ) {
        let warps = self.sizes.warps();
        let [nc, oc] = self.thread.warp;
        let warp = nc * self.sizes.col_warps + oc;
        b.for_(&format!("{name}_tile"), ceil_div(tiles, warps), |b, i| {
            let at = i * warps + warp.clone();
            let one = |b: &mut KernelBuilder| {
                let per_row = TILE / vector;
                b.loop_(
                    &format!("{name}_part"),
                    ceil_div(TILE * per_row, Cuda::WARP),
                    LoopKind::Unrolled,
                    |b, part| {
                        let place = part * Cuda::WARP + self.thread.lane;
                        copy(b, &at, place.clone().floor_div(per_row), place.floor_mod(per_row) * vector);
                    },
                );
            };
            // The condition is the same for all threads of a warp.
            b.when(below(at.clone(), tiles, warps), one);
        });
    }

    /// `AS`: the input's tiles for one row of taps.
    fn fetch_input(&self, b: &mut KernelBuilder, input: BufferId, pixel: VarId, first: Expr, ko: VarId, kh: VarId) {
        let (c, s) = (self.c, self.sizes);
        let [top, left, bottom, right] = c.padding;
        b.for_("kw_a", c.kw, |b, kw| {
            b.for_("ki_a", s.chunk, |b, ki| {
                self.fetch(b, "n", s.block()[0], s.vector, |b, n, row, column| {
                    let h = Expr::from(pixel).floor_div(c.ow()) * c.stride[0] + kh * c.dilation[0] - top;
                    let v = Expr::from(pixel).floor_mod(c.ow()) * c.stride[1] + kw * c.dilation[1] - left;
                    let mut inside = vec![];
                    for (at, before, after, size) in [(&h, top, bottom, c.h), (&v, left, right, c.w)] {
                        if before > 0 {
                            inside.push(Expr::Int(0).le(at.clone()));
                        }
                        if after > 0 {
                            inside.push(at.clone().lt(size));
                        }
                    }
                    // Whether a tap meets the padding is the same for all threads: a branch, and otherwise plain copies.
                    let one = |b: &mut KernelBuilder, lane: Expr, padding: bool| {
                        let column = column.clone() + lane;
                        let channel = ko * s.chunk + ki;
                        let source =
                            vec![first.clone() + n.clone(), h.clone(), v.clone(), channel, row.clone(), column.clone()];
                        let value = if padding { Expr::f32(0.0) } else { Expr::load(input, source) };
                        b.store(self.shared[0], [n.clone(), kw.into(), ki.into(), row.clone(), column], value);
                    };
                    let copy = |b: &mut KernelBuilder, padding: bool| {
                        if s.vector > 1 {
                            let lanes = LoopKind::Vectorized;
                            b.loop_("lane_a", s.vector, lanes, |b, lane| one(b, lane.into(), padding));
                        } else {
                            one(b, Expr::Int(0), padding);
                        }
                    };
                    match Expr::all(inside) {
                        Some(inside) => b.if_else(inside, |b| copy(b, false), |b| copy(b, true)),
                        None => copy(b, false),
                    }
                });
            });
        });
    }

    /// `WS`: the weights' tiles for one row of taps.
    fn fetch_weights(&self, b: &mut KernelBuilder, weights: BufferId, first: Expr, ko: VarId, kh: VarId) {
        let (c, s) = (self.c, self.sizes);
        b.for_("kw_w", c.kw, |b, kw| {
            b.for_("ki_w", s.chunk, |b, ki| {
                self.fetch(b, "o", s.block()[1], WEIGHTS, |b, o, row, column| {
                    b.loop_("lane_w", WEIGHTS, LoopKind::Vectorized, |b, lane| {
                        let column = column.clone() + lane;
                        let channel = ko * s.chunk + ki;
                        let source =
                            vec![kh.into(), kw.into(), channel, first.clone() + o.clone(), row.clone(), column.clone()];
                        let value = Expr::load(weights, source);
                        b.store(self.shared[1], [kw.into(), ki.into(), o.clone(), row.clone(), column], value);
                    });
                });
            });
        });
    }

    /// What a warp makes of what is fetched: tiles into fragments, and their products.
    #[allow(non_snake_case, reason = "the tutorial's names")]
    fn multiply(&self, b: &mut KernelBuilder, sums: BufferId, dtype: DType) {
        let (c, s) = (self.c, self.sizes);
        let [nc, oc] = self.thread.warp;
        b.for_("ki", s.chunk, |b, ki| {
            b.for_("kw", c.kw, |b, kw| {
                let warp = Scope::Fragment(Unit::Warp);
                let AF = b.alloc("AF", dtype, &[s.row_tiles, TILE, TILE], warp);
                let WF = b.alloc("WF", dtype, &[s.col_tiles, TILE, TILE], warp);
                for n in 0..s.row_tiles {
                    let from = [nc * s.row_tiles + n, kw.into(), ki.into()];
                    b.gpu(Gpu::Move { dst: tile(AF, &[n.into()]), src: tile(self.shared[0], &from) });
                }
                for o in 0..s.col_tiles {
                    let from = [kw.into(), ki.into(), oc * s.col_tiles + o];
                    b.gpu(Gpu::Move { dst: tile(WF, &[o.into()]), src: tile(self.shared[1], &from) });
                }
                for_tiles(s, |n, o| {
                    let (left, right) = ((tile(AF, &[n.into()]), false), (tile(WF, &[o.into()]), false));
                    multiply(b, Unit::Warp, tile(sums, &[n.into(), o.into()]), left, right);
                });
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::Template;

    #[test]
    fn volta_and_turing_take_f16_and_ampere_bf16_too() {
        let c = Conv2d { layout: ConvLayout::NhwcNc(16), ..Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1) };
        let applies = |dtype, target: &str| {
            Conv2dTensorcore.applies(&Workload::f32(c).with_dtype(dtype), Target::find(target).unwrap())
        };
        assert_eq!(applies(DType::F16, "sm_70"), Ok(()));
        assert_eq!(applies(DType::Bf16, "sm_70"), Err("for compute capability 8.0 and later in bf16".to_string()));
        assert_eq!(applies(DType::F16, "sm_75"), Ok(()));
        assert_eq!(applies(DType::Bf16, "sm_75"), Err("for compute capability 8.0 and later in bf16".to_string()));
        assert_eq!(applies(DType::Bf16, "sm_80"), Ok(()));
    }

    #[test]
    fn the_tutorials_schedule_is_a_config_and_uses_all_of_its_shared_memory() {
        let c = Conv2d { layout: ConvLayout::NhwcNc(16), ..Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1) };
        let w = Workload { out_dtype: DType::F32, ..Workload::f32(c).with_dtype(DType::F16) };
        let t = Target::find("sm_90a").unwrap();
        assert!(Conv2dTensorcore.space(&w, t).unwrap().index_of(&tutorial()).is_ok());
        let sizes = Sizes::of(&tutorial()).unwrap();
        // The tutorial allocates 12288 elements of each operand.
        assert_eq!(sizes.shared_bytes(&c, End::Registers), 2 * 12288 * 2);
        let text = Conv2dTensorcore.schedule(&w, t, &tutorial()).unwrap().schedule.kernel.to_string();
        for line in ["in 0..196 grid.z", "in 0..2 grid.x", "in 0..4 grid.y", "in 0..4 thread.y", "in 0..2 thread.z"] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
