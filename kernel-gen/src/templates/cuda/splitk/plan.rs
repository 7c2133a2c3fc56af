//! The knobs of convolutions whose lanes share the reduction, and what a block and a warp have by them.

use crate::ir::DType;
use crate::space::Value;
use crate::target::{Cuda, CudaFeature, Target};
use crate::templates::cuda::family::{Search, knobs, up_to};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::product::widest;
use crate::templates::cuda::requires;
use crate::workload::{Conv2d, ConvLayout, DepthwisePointwise};
use std::collections::BTreeSet;

/// Lanes of a warp.
pub(super) const WARP: i64 = 32;
/// Most multiply-adds that are written out in one step of a warp: beyond that code no longer fits the caches for it.
pub(super) const MOST_UNROLLED: i64 = 4096;
/// Registers of a thread beside sums and operands: addresses, counters, what is under way.
const OTHER_REGISTERS: i64 = 36;
/// What refused configs are told.
pub(super) const LIMITS: &str = "registers, shared memory and the reduction suffice";
/// Most results that a lane computes at a time.
const MOST_RUN: i64 = 8;
/// Instructions of a result beside its taps, and of a turn beside results and loads.
const RESULT_REST: i64 = 4;
const TURN_REST: i64 = 8;
/// Registers of a thread for taps, pixels and places under way.
const TAP_REGISTERS: i64 = 16;

/// The device's data, or why it cannot run these kernels for so many images.
pub(super) fn device(t: &Target, images: i64) -> Result<&Cuda, String> {
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
        pub(super) tile: [i64; 2] = "tile_h" in [1, 2, 3, 4, 5, 7, 8, 14], "tile_w" in [1, 2, 4, 7, 8, 14, 16, 28];
        /// Lanes of a warp with different output channels.
        pub(super) lanes: i64 = "lanes" in [4, 8, 16, 32];
        /// Output channels of a thread.
        pub(super) channels: i64 = "channels" in [1, 2, 4, 8];
        /// Warps of a block.
        pub(super) warps: i64 = "warps" in [1, 2, 4, 8, 16];
        /// Blocks of a cluster.
        pub(super) cluster: i64 = "cluster" in [1, 2, 4, 8];
        /// Input channels of a step of a warp.
        pub(super) step: i64 = "step" in [1, 2, 4, 8];
        /// Steps in the ring.
        pub(super) stages: i64 = "stages" in [1, 2, 3, 4, 6, 8];
    }
}

impl Sizes {
    /// Output channels of a block.
    pub(super) fn block_channels(&self) -> i64 {
        self.lanes * self.channels
    }

    /// Groups of lanes in a warp, each with input channels of its own.
    pub(super) fn groups(&self) -> i64 {
        WARP / self.lanes
    }

    /// Neighbours among a thread's output channels: what it reads at a time. A thread with more has groups of them, each as
    /// far behind the one before as the lanes have together.
    pub(super) fn quad(&self) -> i64 {
        self.channels.min(4)
    }

    /// Elements that a warp's lanes have side by side: weights of a tap, sums of a pixel.
    pub(super) fn side_by_side(&self) -> i64 {
        WARP * self.channels
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> i64 {
        WARP * self.warps
    }

    /// Output pixels of a tile.
    pub(super) fn pixels(&self) -> i64 {
        self.tile[0] * self.tile[1]
    }

    /// Sums of a thread.
    pub(super) fn sums(&self) -> i64 {
        self.pixels() * self.channels
    }
}

/// The pixels of an input channel that a tile of outputs needs, as they lie in shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The convolution that takes them.
    pub(super) c: Conv2d,
    pub(super) sizes: Sizes,
    /// Neighbours that come at a time: rows begin where these are aligned.
    pub(super) unit: i64,
    /// Whether the tile has all rows (0) or columns (1) of the map. The window then has none of the padding along that direction,
    /// where no tap is multiplied; and where it has all columns, its rows lie one after the other as they do in the map.
    pub(super) whole: [bool; 2],
}

impl Window {
    /// Whether its rows lie one after the other: it is one run of pixels.
    pub(super) fn flat(&self) -> bool {
        self.whole[1]
    }

    /// Where a position of the padded input, counted from the first that the tile needs, is among the rows (0) or columns (1).
    pub(super) fn shift(&self, dim: usize) -> i64 {
        match (self.whole[dim], dim) {
            (true, _) => -self.c.padding[dim],
            (false, 0) => 0,
            (false, _) => self.lead(),
        }
    }

    /// Columns before those that a tile needs.
    pub(super) fn lead(&self) -> i64 {
        if self.flat() { 0 } else { (-self.c.padding[1]).rem_euclid(self.unit) }
    }

    /// Rows (0) or columns (1) of the padded input that a tile needs.
    pub(super) fn needed(&self, dim: usize) -> i64 {
        let taps = if dim == 0 { self.c.kh } else { self.c.kw };
        (self.sizes.tile[dim] - 1) * self.c.stride[dim] + (taps - 1) * self.c.dilation[dim] + 1
    }

    /// Input rows (0) or columns (1) that it has for the tile.
    pub(super) fn reach(&self, dim: usize) -> i64 {
        match (self.whole[dim], dim) {
            (true, 0) => self.c.h,
            (true, _) => self.c.w,
            (false, _) => self.needed(dim),
        }
    }

    /// Elements between rows: whole vectors, but where rows lie as in the map.
    pub(super) fn pitch(&self) -> i64 {
        if self.flat() { self.c.w } else { ceil_div(self.lead() + self.reach(1), 4) * 4 }
    }

    /// Elements of a plane that are fetched.
    pub(super) fn held(&self) -> i64 {
        self.reach(0) * self.pitch()
    }

    /// Elements between the pixels of two groups: an odd number of vectors, so that the groups' broadcasts come from
    /// different banks.
    pub(super) fn plane(&self) -> i64 {
        let vectors = ceil_div(self.held(), 4);
        4 * if self.sizes.groups() > 1 { vectors | 1 } else { vectors }
    }

    /// Elements of one input channel for each group, in shared memory.
    pub(super) fn elements(&self) -> i64 {
        self.sizes.groups() * self.plane()
    }

    /// What is fetched of one input channel for each group, in units.
    pub(super) fn pieces(&self) -> i64 {
        self.sizes.groups() * (self.held() / self.unit)
    }

    /// Loads in which a lane takes one input channel from shared memory: of vectors, and of what is left.
    pub(super) fn loads(&self) -> i64 {
        self.held() / 4 + self.held() % 4
    }

    /// Registers for pixels that are multiplied: a row, and what comes with its vectors.
    pub(super) fn registers(&self) -> i64 {
        if self.pitch() % 4 == 0 { self.pitch() } else { ceil_div(self.pitch(), 4) * 4 + 4 }
    }
}

/// A convolution cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The convolution whose reduction is split.
    pub(super) c: Conv2d,
    /// The pair that it is the second half of, if its input is computed on the way.
    pub(super) pair: Option<DepthwisePointwise>,
    /// The type of input and weights.
    pub(super) dtype: DType,
    pub(super) sizes: Sizes,
}

impl Plan {
    /// What is multiplied.
    pub(super) fn multiplied(&self) -> Window {
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
    pub(super) fn aligned(&self, window: &Window) -> bool {
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
    pub(super) fn fetched(&self) -> Window {
        self.pair.map_or(self.multiplied(), |pair| window(&pair, self.sizes))
    }

    /// Taps of the kernel.
    pub(super) fn taps(&self) -> i64 {
        self.c.kh * self.c.kw
    }

    /// Output rows (0) or columns (1).
    pub(super) fn outputs(&self, dim: usize) -> i64 {
        if dim == 0 { self.c.oh() } else { self.c.ow() }
    }

    /// Tiles along the rows (0) or columns (1).
    pub(super) fn tiles(&self, dim: usize) -> i64 {
        ceil_div(self.outputs(dim), self.sizes.tile[dim])
    }

    /// Whether a tile has all output rows (0) or columns (1).
    pub(super) fn whole(&self, dim: usize) -> bool {
        self.tiles(dim) == 1
    }

    /// Tiles of output channels.
    pub(super) fn channel_tiles(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.block_channels())
    }

    /// Whether channels are neighbours, or as near as images let them be: not the columns of a row.
    pub(super) fn side_by_side(&self) -> bool {
        self.c.layout != ConvLayout::Nchw
    }

    /// Whether pixels come by way of registers: `cp.async` copies no less than four bytes, and converts nothing.
    pub(super) fn by_registers(&self) -> bool {
        self.dtype != DType::F32
    }

    /// Elements of shared memory for the pixels of one input channel for each group. Lanes of the last round have places, too, as
    /// if there were more groups. Where the channels of a step come side by side, an odd number of vectors is between them, so
    /// that they go to different banks.
    pub(super) fn slot_elements(&self) -> i64 {
        let window = self.fetched();
        if self.side_by_side() {
            return 4 * ((window.elements() / 4) | 1);
        }
        let last = (self.rounds() * WARP - 1) * window.unit;
        let place = last / window.held() * window.plane() + last % window.held();
        ceil_div(place + window.unit, 4).max(window.elements() / 4) * 4
    }

    /// Rounds in which the lanes of a warp fetch the pixels of one input channel for each group.
    pub(super) fn rounds(&self) -> i64 {
        ceil_div(self.fetched().pieces(), WARP)
    }

    /// Rounds in which they fetch those of a step.
    pub(super) fn step_rounds(&self) -> i64 {
        if self.side_by_side() {
            ceil_div(self.sizes.step * self.fetched().pieces(), WARP)
        } else {
            self.sizes.step * self.rounds()
        }
    }

    /// Steps of a warp.
    pub(super) fn steps(&self) -> i64 {
        ceil_div(self.c.ci, self.sizes.cluster * self.sizes.warps * self.sizes.groups() * self.sizes.step)
    }

    /// Input channels of a group of lanes, those beyond the last one included.
    pub(super) fn group_channels(&self) -> i64 {
        self.steps() * self.sizes.step
    }

    /// Input channels of all groups of all warps, likewise.
    pub(super) fn padded_channels(&self) -> i64 {
        self.group_channels() * self.sizes.groups() * self.sizes.warps * self.sizes.cluster
    }

    /// Elements between the rows of sums in shared memory: one more than there are, against conflicts of banks.
    pub(super) fn sum_pitch(&self) -> i64 {
        self.sizes.side_by_side() + 1
    }

    /// Blocks of the grid.
    pub(super) fn blocks(&self) -> i64 {
        self.c.n * self.tiles(0) * self.tiles(1) * self.channel_tiles() * self.sizes.cluster
    }

    /// Multiply-adds of a thread for one input channel.
    pub(super) fn macs(&self) -> i64 {
        let along = |dim: usize| -> i64 {
            let taps = if dim == 0 { self.c.kh } else { self.c.kw };
            (0..taps).map(|tap| self.met(dim, tap).count() as i64).sum()
        };
        along(0) * along(1) * self.sizes.channels
    }

    /// The tile's output rows (columns) for which a tap has to be multiplied: where the tile is the whole map, those that
    /// do not meet the padding.
    pub(super) fn met(&self, dim: usize, tap: i64) -> impl Iterator<Item = i64> + use<> {
        let (c, whole) = (self.c, self.whole(dim));
        let size = if dim == 0 { c.h } else { c.w };
        (0..self.sizes.tile[dim]).filter(move |o| {
            let at = o * c.stride[dim] + tap * c.dilation[dim] - c.padding[dim];
            !whole || (0..size).contains(&at)
        })
    }

    /// Bytes of shared memory.
    pub(super) fn shared_bytes(&self) -> i64 {
        let Sizes { warps, stages, step, cluster, .. } = self.sizes;
        let ring = warps * stages * step * (self.slot_elements() + self.taps() * self.sizes.side_by_side());
        let depthwise = self.pair.map_or(0, |pair| shared_elements(self, &pair));
        let sums = warps * self.sizes.pixels() * self.sum_pitch();
        let received = if cluster > 1 { self.sizes.pixels() * self.sizes.block_channels() + 4 } else { 0 };
        // Each buffer is aligned to 16 bytes.
        4 * (ring + depthwise + sums + received) + 64
    }

    /// Registers of a thread, as far as they can be told beforehand.
    pub(super) fn registers(&self) -> i64 {
        let depthwise = self.pair.map_or(0, |pair| registers(self, &pair));
        let operands = self.taps() * self.sizes.channels + self.multiplied().registers();
        let coming = if self.by_registers() { self.step_rounds() } else { 0 };
        self.sizes.sums() + operands + 2 * self.rounds() + coming + depthwise + OTHER_REGISTERS
    }
}

/// What fits everywhere.
pub(super) const SMALLEST: Sizes =
    Sizes { tile: [1, 1], lanes: WARP, channels: 1, warps: 1, cluster: 1, step: 1, stages: 1 };

/// Leaves the values of a knob that are of use for the convolution; a thread has at most `channels` output channels.
pub(super) fn narrow(c: &Conv2d, channels: i64, gpu: &Cuda, knob: &str, values: &mut Vec<Value>) {
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
pub(super) const SEARCH: Search<Sizes> = Search::Descent(SMALLEST, 16);

/// Whether results are computed a step ahead of the products that take them.
pub(super) fn ahead(plan: &Plan) -> bool {
    plan.sizes.stages > 1
}

/// Halves of the results' memory.
pub(super) fn halves(plan: &Plan) -> i64 {
    1 + i64::from(ahead(plan))
}

/// The pixels that the first half takes. Its results do not depend on where rows begin, so these are as wide as rows and
/// tiles are aligned.
pub(super) fn window(pair: &DepthwisePointwise, sizes: Sizes) -> Window {
    let c = pair.depthwise;
    let unit = widest(c.w, 4).min(widest(sizes.tile[1] * c.stride[1], 4));
    Window { c, sizes, unit, whole: [false; 2] }
}

/// Input channels of a step of a warp, those of all groups.
pub(super) fn step_channels(plan: &Plan) -> i64 {
    plan.sizes.step * plan.sizes.groups()
}

/// Taps of a channel.
pub(super) fn taps(pair: &DepthwisePointwise) -> i64 {
    pair.depthwise.kh * pair.depthwise.kw
}

/// Channels of a row of the filters as the kernel takes them: those of a step, so that rows are long and aligned, where they
/// divide all.
pub(super) fn row_channels(plan: &Plan, pair: &DepthwisePointwise) -> i64 {
    let together = step_channels(plan);
    if pair.depthwise.ci % together == 0 { together } else { 1 }
}

/// The shape in which the kernel takes the filters, which lie as the workload has them.
pub(super) fn filter_shape(plan: &Plan, pair: &DepthwisePointwise) -> Vec<i64> {
    let row = row_channels(plan, pair);
    vec![pair.depthwise.ci / row, row * taps(pair)]
}

/// Elements of shared memory.
pub(super) fn shared_elements(plan: &Plan, pair: &DepthwisePointwise) -> i64 {
    let (sizes, together) = (plan.sizes, step_channels(plan));
    let of_slot = together * taps(pair) + if pair.bias { together } else { 0 };
    // Each buffer is aligned to 16 bytes.
    sizes.warps * (sizes.stages * of_slot + halves(plan) * sizes.step * plan.multiplied().elements()) + 8
}

/// How lanes share the results of a step.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// Results below each other that a lane computes at a time: they have filters and rows of pixels in common.
    pub(super) run: i64,
    /// Turns of a warp.
    pub(super) turns: i64,
    /// Loads from shared memory in a turn.
    pub(super) loads: i64,
    /// Instructions of a turn.
    pub(super) instructions: i64,
}

impl Work {
    /// Of all runs that divide the rows of a tile the one with the fewest instructions.
    pub(super) fn of(plan: &Plan, pair: &DepthwisePointwise) -> Work {
        let rows = plan.sizes.tile[0];
        (2..=rows.min(MOST_RUN))
            .filter(|run| rows % run == 0)
            .map(|run| Work::in_runs(plan, pair, run))
            .fold(Work::in_runs(plan, pair, 1), |best, next| if next.all() < best.all() { next } else { best })
    }

    fn in_runs(plan: &Plan, pair: &DepthwisePointwise, run: i64) -> Work {
        let c = &pair.depthwise;
        let rows = (0..run).flat_map(|y| (0..c.kh).map(move |kh| y * c.stride[0] + kh * c.dilation[0]));
        let rows = rows.collect::<BTreeSet<i64>>().len() as i64;
        let loads = rows * c.kw + taps(pair) + i64::from(pair.bias);
        let instructions = loads + run * (taps(pair) + RESULT_REST) + TURN_REST;
        Work { run, turns: ceil_div(step_channels(plan) * plan.sizes.pixels() / run, WARP), loads, instructions }
    }

    /// Instructions of a step.
    fn all(&self) -> i64 {
        self.turns * self.instructions
    }
}

/// Registers of a thread that the first half takes: its values, and of each turn where they go, too.
pub(super) fn registers(plan: &Plan, pair: &DepthwisePointwise) -> i64 {
    let work = Work::of(plan, pair);
    TAP_REGISTERS + work.turns * (work.run + 1)
}

/// Turns in which a warp fetches the filters of a step.
pub(super) fn filter_turns(plan: &Plan, pair: &DepthwisePointwise) -> i64 {
    ceil_div(step_channels(plan) * taps(pair), WARP * filter_width(plan, pair))
}

/// Elements of the filters that a lane copies at a time.
pub(super) fn filter_width(plan: &Plan, pair: &DepthwisePointwise) -> i64 {
    let row = row_channels(plan, pair);
    if row == step_channels(plan) { widest(row * taps(pair), 4) } else { 1 }
}
