//! Convolutions of few images, where there are fewer output elements than a GPU has threads to keep busy: the reduction is
//! split, over the blocks of a cluster and over the warps of a block.
//!
//! A block works on a tile of output pixels and `lanes * channels` output channels. A lane has `channels` of these and
//! *all* pixels of the tile, so that weights are read once, side by side, and an input pixel is a broadcast. With fewer
//! than 32 `lanes` the groups of a warp have different input channels: blocks become narrow enough to fill the machine
//! with less need of clusters, at the price of more pixels for each. Each warp has input channels of its own, whose weights and
//! pixels it fetches with `cp.async` into a ring of its own: warps do not wait for each other until their sums meet. Those of a block are added in shared memory, those of a
//! cluster by stores into the block that owns the output channel, whose mbarrier counts them. Every order of additions
//! is fixed, so results do not differ between runs.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `tile_h`, `tile_w` | up to 14 and 28 | output pixels of a tile, all of which a thread has |
//! | `lanes` | 4, 8, 16, 32 | lanes of a warp with different output channels; `32 / lanes` groups split the reduction |
//! | `channels` | 1, 2, 4; of a pair 8, too | output channels of a thread |
//! | `warps` | 2 to 16 | parts of the reduction in a block |
//! | `cluster` | 1, 2, 4, 8 | parts of the reduction among blocks; 1 where there are no clusters |
//! | `step` | 1, 2, 4, 8 | input channels that a warp waits for at a time |
//! | `stages` | 1 to 8 | steps that are fetched ahead |
//!
//! In NCHW neighbouring lanes fetch neighbouring columns of a channel, two or four of them each where the width and the tile are
//! aligned for that; in NHWC and HWCN they fetch neighbouring channels of a pixel, those of a step and of all groups. Of a tile
//! with all columns of the map they fetch the pixels of its rows in one run, nothing of the padding beside them; where it is the
//! whole map, without a condition. Elements of 16 bits come by way of registers, where they become `f32`: loaded before the
//! products of a step, stored behind them. Their weights are `f32` once they are packed, and so are all sums.
//!
//! Weights are packed once as `[co / tile][ci / groups][kh * kw][group, lane, channel]`. Taps that meet the padding are left out where a tile
//! covers the whole map along that direction: 18 % of the multiplications of a 7 x 7 map.
//!
//! [`SplitkPair`] is a depthwise convolution and the pointwise one behind it. What a warp fetches then is what the depthwise
//! one takes, with its filters; once it has come, the lanes compute the results of the step's channels into shared memory,
//! from where the pointwise one takes them as [`SplitkDirect`] takes pixels. With two stages and more that is done a step
//! ahead, between the products of the step before. Tiles of output channels compute the results anew each, which is a product
//! a tap for each of their `lanes * channels`.

mod conv2d;
mod depthwise;
mod kernel;
mod model;
mod pair;

pub use conv2d::SplitkDirect;
pub use pair::SplitkPair;

use crate::ir::DType;
use crate::space::Value;
use crate::target::{Cuda, CudaFeature, Target};
use crate::templates::cuda::family::{self, Needs, Search, built, knobs, up_to};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::requires;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, DepthwisePointwise, Workload};

/// Lanes of a warp.
const WARP: i64 = 32;
/// Most multiply-adds that are written out in one step of a warp: beyond that code no longer fits the caches for it.
const MOST_UNROLLED: i64 = 4096;
/// Registers of a thread beside sums and operands: addresses, counters, what is under way.
const OTHER_REGISTERS: i64 = 36;

/// The device's data, or why it cannot run these kernels for so many images.
fn device(t: &Target, images: i64) -> Result<&Cuda, String> {
    let gpu = requires::device(t)?;
    requires::needs_cp_async(gpu)?;
    if images > gpu.grid_dim[2] {
        return Err(format!("{images} images"));
    }
    Ok(gpu)
}

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Rows and columns of output pixels in a tile.
        tile: [i64; 2] = "tile_h" in [1, 2, 3, 4, 5, 7, 8, 14], "tile_w" in [1, 2, 4, 7, 8, 14, 16, 28];
        /// Lanes of a warp with different output channels.
        lanes: i64 = "lanes" in [4, 8, 16, 32];
        /// Output channels of a thread.
        channels: i64 = "channels" in [1, 2, 4, 8];
        /// Warps of a block.
        warps: i64 = "warps" in [1, 2, 4, 8, 16];
        /// Blocks of a cluster.
        cluster: i64 = "cluster" in [1, 2, 4, 8];
        /// Input channels of a step of a warp.
        step: i64 = "step" in [1, 2, 4, 8];
        /// Steps in the ring.
        stages: i64 = "stages" in [1, 2, 3, 4, 6, 8];
    }
}

impl Sizes {
    /// Output channels of a block.
    fn block_channels(&self) -> i64 {
        self.lanes * self.channels
    }

    /// Groups of lanes in a warp, each with input channels of its own.
    fn groups(&self) -> i64 {
        WARP / self.lanes
    }

    /// Neighbours among a thread's output channels: what it reads at a time. A thread with more has groups of them, each as
    /// far behind the one before as the lanes have together.
    fn quad(&self) -> i64 {
        self.channels.min(4)
    }

    /// Elements that a warp's lanes have side by side: weights of a tap, sums of a pixel.
    fn side_by_side(&self) -> i64 {
        WARP * self.channels
    }

    /// Threads of a block.
    fn threads(&self) -> i64 {
        WARP * self.warps
    }

    /// Output pixels of a tile.
    fn pixels(&self) -> i64 {
        self.tile[0] * self.tile[1]
    }

    /// Sums of a thread.
    fn sums(&self) -> i64 {
        self.pixels() * self.channels
    }
}

/// The pixels of an input channel that a tile of outputs needs, as they lie in shared memory.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The convolution that takes them.
    c: Conv2d,
    sizes: Sizes,
    /// Neighbours that come at a time: rows begin where these are aligned.
    unit: i64,
    /// Whether the tile has all rows (0) or columns (1) of the map. The window then has none of the padding along that direction,
    /// where no tap is multiplied; and where it has all columns, its rows lie one after the other as they do in the map.
    whole: [bool; 2],
}

impl Window {
    /// Whether its rows lie one after the other: it is one run of pixels.
    fn flat(&self) -> bool {
        self.whole[1]
    }

    /// Where a position of the padded input, counted from the first that the tile needs, is among the rows (0) or columns (1).
    fn shift(&self, dim: usize) -> i64 {
        match (self.whole[dim], dim) {
            (true, _) => -self.c.padding[dim],
            (false, 0) => 0,
            (false, _) => self.lead(),
        }
    }

    /// Columns before those that a tile needs.
    fn lead(&self) -> i64 {
        if self.flat() { 0 } else { (-self.c.padding[1]).rem_euclid(self.unit) }
    }

    /// Rows (0) or columns (1) of the padded input that a tile needs.
    fn needed(&self, dim: usize) -> i64 {
        let taps = if dim == 0 { self.c.kh } else { self.c.kw };
        (self.sizes.tile[dim] - 1) * self.c.stride[dim] + (taps - 1) * self.c.dilation[dim] + 1
    }

    /// Input rows (0) or columns (1) that it has for the tile.
    fn reach(&self, dim: usize) -> i64 {
        match (self.whole[dim], dim) {
            (true, 0) => self.c.h,
            (true, _) => self.c.w,
            (false, _) => self.needed(dim),
        }
    }

    /// Elements between rows: whole vectors, but where rows lie as in the map.
    fn pitch(&self) -> i64 {
        if self.flat() { self.c.w } else { ceil_div(self.lead() + self.reach(1), 4) * 4 }
    }

    /// Elements of a plane that are fetched.
    fn held(&self) -> i64 {
        self.reach(0) * self.pitch()
    }

    /// Elements between the pixels of two groups: an odd number of vectors, so that the groups' broadcasts come from
    /// different banks.
    fn plane(&self) -> i64 {
        let vectors = ceil_div(self.held(), 4);
        4 * if self.sizes.groups() > 1 { vectors | 1 } else { vectors }
    }

    /// Elements of one input channel for each group, in shared memory.
    fn elements(&self) -> i64 {
        self.sizes.groups() * self.plane()
    }

    /// What is fetched of one input channel for each group, in units.
    fn pieces(&self) -> i64 {
        self.sizes.groups() * (self.held() / self.unit)
    }

    /// Loads in which a lane takes one input channel from shared memory: of vectors, and of what is left.
    fn loads(&self) -> i64 {
        self.held() / 4 + self.held() % 4
    }

    /// Registers for pixels that are multiplied: a row, and what comes with its vectors.
    fn registers(&self) -> i64 {
        if self.pitch() % 4 == 0 { self.pitch() } else { ceil_div(self.pitch(), 4) * 4 + 4 }
    }
}

/// A convolution cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The convolution whose reduction is split.
    c: Conv2d,
    /// The pair that it is the second half of, if its input is computed on the way.
    pair: Option<DepthwisePointwise>,
    /// The type of input and weights.
    dtype: DType,
    sizes: Sizes,
}

impl Plan {
    /// What is multiplied.
    fn multiplied(&self) -> Window {
        let window = Window { c: self.c, sizes: self.sizes, unit: 1, whole: [false; 2] };
        if self.pair.is_some() {
            return window;
        }
        let window = Window { whole: [0, 1].map(|dim| self.whole(dim)), ..window };
        if self.side_by_side() || self.by_registers() {
            return window;
        }
        let units = [1, 2, 4].map(|unit| Window { unit, ..window }).into_iter().filter(|window| self.aligned(window));
        // What comes with a lead costs loads of vectors; a round of copies is as expensive as four.
        let cost = |window: &Window| 4 * ceil_div(window.pieces(), WARP) + window.loads();
        units.min_by_key(cost).unwrap_or(window)
    }

    /// Whether units of a window's pixels are aligned in the input, and in the padding as a whole or not at all.
    fn aligned(&self, window: &Window) -> bool {
        let (c, [rows, columns]) = (&self.c, self.sizes.tile);
        if window.flat() {
            // The pixels of a channel, of a tile's rows, of the rows of padding above, and of what is held.
            let beginnings = [rows * c.stride[0] * c.w, c.padding[0] * c.w];
            let beginnings = beginnings.into_iter().filter(|_| !window.whole[0]);
            beginnings.chain([c.h * c.w, window.held()]).all(|elements| elements % window.unit == 0)
        } else {
            c.w % window.unit == 0 && columns * c.stride[1] % window.unit == 0
        }
    }

    /// What is fetched.
    fn fetched(&self) -> Window {
        self.pair.map_or(self.multiplied(), |pair| depthwise::window(&pair, self.sizes))
    }

    /// Taps of the kernel.
    fn taps(&self) -> i64 {
        self.c.kh * self.c.kw
    }

    /// Output rows (0) or columns (1).
    fn outputs(&self, dim: usize) -> i64 {
        if dim == 0 { self.c.oh() } else { self.c.ow() }
    }

    /// Tiles along the rows (0) or columns (1).
    fn tiles(&self, dim: usize) -> i64 {
        ceil_div(self.outputs(dim), self.sizes.tile[dim])
    }

    /// Whether a tile has all output rows (0) or columns (1).
    fn whole(&self, dim: usize) -> bool {
        self.tiles(dim) == 1
    }

    /// Tiles of output channels.
    fn channel_tiles(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.block_channels())
    }

    /// Whether channels are neighbours, or as near as images let them be: not the columns of a row.
    fn side_by_side(&self) -> bool {
        self.c.layout != ConvLayout::Nchw
    }

    /// Whether pixels come by way of registers: `cp.async` copies no less than four bytes, and converts nothing.
    fn by_registers(&self) -> bool {
        self.dtype != DType::F32
    }

    /// Elements of shared memory for the pixels of one input channel for each group. Lanes of the last round have places, too, as
    /// if there were more groups. Where the channels of a step come side by side, an odd number of vectors is between them, so
    /// that they go to different banks.
    fn slot_elements(&self) -> i64 {
        let window = self.fetched();
        if self.side_by_side() {
            return 4 * ((window.elements() / 4) | 1);
        }
        let last = (self.rounds() * WARP - 1) * window.unit;
        let place = last / window.held() * window.plane() + last % window.held();
        ceil_div(place + window.unit, 4).max(window.elements() / 4) * 4
    }

    /// Rounds in which the lanes of a warp fetch the pixels of one input channel for each group.
    fn rounds(&self) -> i64 {
        ceil_div(self.fetched().pieces(), WARP)
    }

    /// Rounds in which they fetch those of a step.
    fn step_rounds(&self) -> i64 {
        if self.side_by_side() {
            ceil_div(self.sizes.step * self.fetched().pieces(), WARP)
        } else {
            self.sizes.step * self.rounds()
        }
    }

    /// Steps of a warp.
    fn steps(&self) -> i64 {
        ceil_div(self.c.ci, self.sizes.cluster * self.sizes.warps * self.sizes.groups() * self.sizes.step)
    }

    /// Input channels of a group of lanes, those beyond the last one included.
    fn group_channels(&self) -> i64 {
        self.steps() * self.sizes.step
    }

    /// Input channels of all groups of all warps, likewise.
    fn padded_channels(&self) -> i64 {
        self.group_channels() * self.sizes.groups() * self.sizes.warps * self.sizes.cluster
    }

    /// Elements between the rows of sums in shared memory: one more than there are, against conflicts of banks.
    fn sum_pitch(&self) -> i64 {
        self.sizes.side_by_side() + 1
    }

    /// Blocks of the grid.
    fn blocks(&self) -> i64 {
        self.c.n * self.tiles(0) * self.tiles(1) * self.channel_tiles() * self.sizes.cluster
    }

    /// Multiply-adds of a thread for one input channel.
    fn macs(&self) -> i64 {
        let along = |dim: usize| -> i64 {
            let taps = if dim == 0 { self.c.kh } else { self.c.kw };
            (0..taps).map(|tap| self.met(dim, tap).count() as i64).sum()
        };
        along(0) * along(1) * self.sizes.channels
    }

    /// The tile's output rows (columns) for which a tap has to be multiplied: where the tile is the whole map, those that
    /// do not meet the padding.
    fn met(&self, dim: usize, tap: i64) -> impl Iterator<Item = i64> + use<> {
        let (c, whole) = (self.c, self.whole(dim));
        let size = if dim == 0 { c.h } else { c.w };
        (0..self.sizes.tile[dim]).filter(move |o| {
            let at = o * c.stride[dim] + tap * c.dilation[dim] - c.padding[dim];
            !whole || (0..size).contains(&at)
        })
    }

    /// Bytes of shared memory.
    fn shared_bytes(&self) -> i64 {
        let Sizes { warps, stages, step, cluster, .. } = self.sizes;
        let ring = warps * stages * step * (self.slot_elements() + self.taps() * self.sizes.side_by_side());
        let depthwise = self.pair.map_or(0, |pair| depthwise::shared_elements(self, &pair));
        let sums = warps * self.sizes.pixels() * self.sum_pitch();
        let received = if cluster > 1 { self.sizes.pixels() * self.sizes.block_channels() + 4 } else { 0 };
        // Each buffer is aligned to 16 bytes.
        4 * (ring + depthwise + sums + received) + 64
    }

    /// Registers of a thread, as far as they can be told beforehand.
    fn registers(&self) -> i64 {
        let depthwise = self.pair.map_or(0, |pair| depthwise::registers(self, &pair));
        let operands = self.taps() * self.sizes.channels + self.multiplied().registers();
        let coming = if self.by_registers() { self.step_rounds() } else { 0 };
        self.sizes.sums() + operands + 2 * self.rounds() + coming + depthwise + OTHER_REGISTERS
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { warps, stages, step, cluster, tile, lanes, channels } = self.sizes;
        let useful = (0..2).all(|dim| tile[dim] <= self.outputs(dim))
            && cluster * warps * self.sizes.groups() * step <= self.c.ci
            && stages <= self.steps()
            && (channels == 1 || self.c.co > lanes * (channels - 1))
            // Groups of neighbours and groups of lanes are not in one warp.
            && (channels <= 4 || lanes == WARP);
        useful
            && self.macs() * step <= MOST_UNROLLED
            && self.channel_tiles() <= gpu.grid_dim[1]
            && self.padded_channels() / self.sizes.groups() <= gpu.grid_dim[0]
            && lanes * channels % cluster == 0
            && (cluster == 1 || gpu.has(CudaFeature::Cluster) && cluster <= gpu.cluster_size)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(self, w, gpu)
    }
}

/// What fits everywhere.
const SMALLEST: Sizes = Sizes { tile: [1, 1], lanes: WARP, channels: 1, warps: 1, cluster: 1, step: 1, stages: 1 };

/// What refused configs are told.
const LIMITS: &str = "registers, shared memory and the reduction suffice";

/// Leaves the values of a knob that are of use for the convolution; a thread has at most `channels` output channels.
fn narrow(c: &Conv2d, channels: i64, gpu: &Cuda, knob: &str, values: &mut Vec<Value>) {
    let clusters = if gpu.has(CudaFeature::Cluster) { gpu.cluster_size } else { 1 };
    let most = match knob {
        "tile_h" => c.oh(),
        "tile_w" => c.ow(),
        "lanes" => WARP,
        "channels" => channels,
        "cluster" => clusters.min(c.ci),
        _ => c.ci,
    };
    up_to(values, most);
}

/// Descents to the config that costs least: tiles, lanes and channels have to change together, so one ends in many places. Of
/// 139 layers' costs 16 leave 1 % of what 200 find, four left 3 %.
const SEARCH: Search<Sizes> = Search::Descent(SMALLEST, 16);

/// The kernel of a plan, and what packs its weights.
fn scheduled(plan: &Plan, w: &Workload) -> Result<Scheduled, TemplateError> {
    built(kernel::kernel(plan, w), [kernel::pack(plan)])
}
