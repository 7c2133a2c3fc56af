//! 3x3 convolutions of many images by `F(2x2)` in one launch: neither transformed inputs nor products go through memory.
//!
//! A block has `block_channels x block_tiles` outputs of all 16 places of a tile. In each step, of so many input channels that a
//! thread transforms one tile of one of them:
//!
//! ```text
//! data[k, ci, tile]     = B^T d B          each thread a tile of a channel: loads one step ahead, then shared memory
//! weights[k, ci, co]                       transformed beforehand, by cp.async into one of two slots
//! sum[k, co, tile]     += weights * data   each of eight warps two places; in registers
//! y                     = epilogue(A^T sum A)   places meet in shared memory, half of the block's channels at a time
//! ```
//! The sums limit a block to 64 channels by 32 tiles, or the other way round: then each of 256 threads has 128.
//! (Lavin and Gray, arXiv:1509.09308; Yan, Wang and Chu, "Optimizing batched Winograd convolution on GPUs", PPoPP 2020.)
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `block_channels`, `block_tiles` | 32, 64 | output channels and tiles of a block |
//! | `together` | 2, 4 | input channels whose products are one piece of straight code |
//!
//! `F(2x2)` errs less than a sequential `f32` sum where operands are of one magnitude: it is of the class `fp32`.

mod kernel;
mod model;

use super::tiling::Tiling;
use super::transforms::{self, Packed};
use super::{TAPS, filter, problem};
use crate::ir::Expr;
use crate::space::Config;
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{self, Case, Family, Needs, built, knobs};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outer::VECTOR;
use crate::templates::winograd::filter::reach;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::special::Reach;
use crate::workload::{Conv2d, Workload};

/// See the module's text.
pub struct WinogradFused;

/// Outputs of a tile along each dimension.
const OUTPUTS: i64 = 2;
/// Products of a tile for each pair of channels.
const PLACES: i64 = (OUTPUTS + TAPS - 1) * (OUTPUTS + TAPS - 1);
/// Warps of a block, and places of each. With 16 warps, which have 128 registers a thread, there are spills.
const WARPS: i64 = 8;
const OWN_PLACES: i64 = PLACES / WARPS;
const THREADS: i64 = Cuda::WARP * WARPS;
/// Schedulers of a multiprocessor: warps go to them in turn.
const SCHEDULERS: i64 = 4;
/// Output channels of a thread.
const OWN_CHANNELS: i64 = 8;
/// Slots of the ring.
const SLOTS: i64 = 2;
/// Registers of a thread beside sums, operands and inputs under way, and those of operands that the compiler loads ahead for each input
/// channel of straight code.
const OTHER_REGISTERS: i64 = 18;
const AHEAD_REGISTERS: i64 = 9;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Output channels and tiles of a block.
        block: [i64; 2] = "block_channels" in BLOCKS, "block_tiles" in BLOCKS;
        /// Input channels whose products are written out together.
        together: i64 = "together" in [2, 4];
    }
}

impl Sizes {
    /// Input channels of a step.
    fn step(&self) -> i64 {
        THREADS / self.block[1]
    }

    /// Lanes of a warp along output channels and tiles.
    fn lanes(&self) -> [i64; 2] {
        let channels = self.block[0] / OWN_CHANNELS;
        [channels, Cuda::WARP / channels]
    }

    /// Output channels and tiles of a thread, for each of its places.
    fn own(&self) -> [i64; 2] {
        [OWN_CHANNELS, self.block[1] / self.lanes()[1]]
    }

    /// Output channels and tiles of a group of four of each lane: as far apart are a thread's groups.
    fn groups(&self) -> [i64; 2] {
        self.lanes().map(|lanes| lanes * VECTOR)
    }

    /// Shape of what meets in shared memory at a time: all places of a group of output channels and of all tiles, group by group of
    /// these. Rows of a group are neighbours, and one more than there are keeps lanes with tiles of two groups in different banks.
    fn meeting(&self) -> [i64; 4] {
        let [channels, tiles] = self.groups();
        [PLACES, self.block[1] / tiles, channels + 1, tiles]
    }

    /// Bytes of shared memory of a block.
    fn shared_bytes(&self) -> i64 {
        let steps = SLOTS * PLACES * self.step() * (self.block[0] + self.block[1]);
        4 * (steps + self.meeting().iter().product::<i64>())
    }

    /// Registers of a thread, as far as they can be told beforehand.
    fn registers(&self) -> i64 {
        let [channels, tiles] = self.own();
        OWN_PLACES * channels * tiles + channels + tiles + PLACES + OTHER_REGISTERS + AHEAD_REGISTERS * self.together
    }
}

/// A convolution cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    c: Conv2d,
    sizes: Sizes,
}

impl Plan {
    /// How outputs are cut into tiles.
    fn tiling(&self) -> Tiling {
        Tiling { c: self.c, m: OUTPUTS }
    }

    /// Tiles of all images.
    fn tiles(&self) -> i64 {
        self.c.n * self.tiling().image_tiles()
    }

    /// Blocks along output channels and tiles.
    fn grid(&self) -> [i64; 2] {
        [ceil_div(self.c.co, self.sizes.block[0]), ceil_div(self.tiles(), self.sizes.block[1])]
    }

    /// Steps of a block.
    fn steps(&self) -> i64 {
        ceil_div(self.c.ci, self.sizes.step())
    }

    /// Shape of the transformed weights: what a block copies in a step stands together.
    fn weight_shape(&self) -> [i64; 4] {
        [self.grid()[0], self.steps(), PLACES * self.sizes.step(), self.sizes.block[0]]
    }

    /// The output channel that stands at a place of the transformed weights: among the channels of a group, the lane's number changes
    /// faster than which of the lane's four it is, so that what lanes write for their places to meet lies side by side.
    fn channel_at(&self, place: Expr) -> Expr {
        let [group, lanes] = [self.sizes.groups()[0], self.sizes.lanes()[0]];
        let within = place.clone().floor_mod(group);
        place.floor_div(group) * group + within.clone().floor_mod(VECTOR) * lanes + within.floor_div(VECTOR)
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: THREADS, registers: self.sizes.registers(), shared_bytes: self.sizes.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { block, together } = self.sizes;
        let useful = [(block[0], self.c.co), (block[1], self.tiles())];
        let useful = useful.into_iter().all(|(size, all)| size == BLOCKS[0] || size / 2 < all);
        useful
            && together * WARPS / SCHEDULERS <= self.sizes.step()
            && self.grid().iter().product::<i64>() <= gpu.grid_dim[0]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(self, w, gpu)
    }
}

const BLOCKS: [i64; 2] = [32, 64];

impl Family for WinogradFused {
    const NAME: &'static str = "winograd_fused";
    const LIMITS: &'static str = "each warp of a scheduler has a part of a step; registers and shared memory suffice";
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        problem(w, t)
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { c: case.problem, sizes })
    }

    fn beside(w: &Workload, _: &Config) -> Reach {
        reach(w, OUTPUTS)
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let filter = filter(case.w, OUTPUTS)?;
        let [blocks, steps, _, channels] = plan.weight_shape();
        let step = plan.sizes.step();
        let packed = Packed { shape: plan.weight_shape().to_vec(), padded: [steps * step, blocks * channels] };
        let index = |k: i64, ci: Expr, place: Expr| {
            let row = ci.clone().floor_mod(step) + k * step;
            vec![place.clone().floor_div(channels), ci.floor_div(step), row, place.floor_mod(channels)]
        };
        let pack = transforms::pack(&plan.tiling(), &filter, packed, |place| plan.channel_at(place), index);
        built(kernel::kernel(plan, case.w, &filter), [pack])
    }
}
