//! The knobs of a convolution in one launch, and what a block, a warp and a thread have by them.

use crate::ir::Expr;
use crate::target::Cuda;
use crate::templates::cuda::family::knobs;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outer::VECTOR;
use crate::templates::cuda::winograd::tiling::{TAPS, Tiling};
use crate::workload::Conv2d;

/// Outputs of a tile along each dimension.
pub(super) const OUTPUTS: i64 = 2;
/// Products of a tile for each pair of channels.
pub(super) const PLACES: i64 = (OUTPUTS + TAPS - 1) * (OUTPUTS + TAPS - 1);
/// Warps of a block, and places of each. With 16 warps, which have 128 registers a thread, there are spills.
pub(super) const WARPS: i64 = 8;
pub(super) const OWN_PLACES: i64 = PLACES / WARPS;
pub(super) const THREADS: i64 = Cuda::WARP * WARPS;
/// Schedulers of a multiprocessor: warps go to them in turn.
pub(super) const SCHEDULERS: i64 = 4;
/// Output channels of a thread.
pub(super) const OWN_CHANNELS: i64 = 8;
/// Slots of the ring.
pub(super) const SLOTS: i64 = 2;
/// Registers of a thread beside sums, operands and inputs under way, and those of operands that the compiler loads ahead for each input
/// channel of straight code.
const OTHER_REGISTERS: i64 = 18;
const AHEAD_REGISTERS: i64 = 9;
pub(super) const BLOCKS: [i64; 2] = [32, 64];

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Output channels and tiles of a block.
        pub(super) block: [i64; 2] = "block_channels" in BLOCKS, "block_tiles" in BLOCKS;
        /// Input channels whose products are written out together.
        pub(super) together: i64 = "together" in [2, 4];
    }
}

impl Sizes {
    /// Input channels of a step.
    pub(super) fn step(&self) -> i64 {
        THREADS / self.block[1]
    }

    /// Lanes of a warp along output channels and tiles.
    pub(super) fn lanes(&self) -> [i64; 2] {
        let channels = self.block[0] / OWN_CHANNELS;
        [channels, Cuda::WARP / channels]
    }

    /// Output channels and tiles of a thread, for each of its places.
    pub(super) fn own(&self) -> [i64; 2] {
        [OWN_CHANNELS, self.block[1] / self.lanes()[1]]
    }

    /// Output channels and tiles of a group of four of each lane: as far apart are a thread's groups.
    pub(super) fn groups(&self) -> [i64; 2] {
        self.lanes().map(|lanes| lanes * VECTOR)
    }

    /// Shape of what meets in shared memory at a time: all places of a group of output channels and of all tiles, group by group of
    /// these. Rows of a group are neighbours, and one more than there are keeps lanes with tiles of two groups in different banks.
    pub(super) fn meeting(&self) -> [i64; 4] {
        let [channels, tiles] = self.groups();
        [PLACES, self.block[1] / tiles, channels + 1, tiles]
    }

    /// Bytes of shared memory of a block.
    pub(super) fn shared_bytes(&self) -> i64 {
        let steps = SLOTS * PLACES * self.step() * (self.block[0] + self.block[1]);
        4 * (steps + self.meeting().iter().product::<i64>())
    }

    /// Registers of a thread, as far as they can be told beforehand.
    pub(super) fn registers(&self) -> i64 {
        let [channels, tiles] = self.own();
        OWN_PLACES * channels * tiles + channels + tiles + PLACES + OTHER_REGISTERS + AHEAD_REGISTERS * self.together
    }
}

/// A convolution cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) c: Conv2d,
    pub(super) sizes: Sizes,
}

impl Plan {
    /// How outputs are cut into tiles.
    pub(super) fn tiling(&self) -> Tiling {
        Tiling { c: self.c, m: OUTPUTS }
    }

    /// Tiles of all images.
    pub(super) fn tiles(&self) -> i64 {
        self.c.n * self.tiling().image_tiles()
    }

    /// Blocks along output channels and tiles.
    pub(super) fn grid(&self) -> [i64; 2] {
        [ceil_div(self.c.co, self.sizes.block[0]), ceil_div(self.tiles(), self.sizes.block[1])]
    }

    /// Steps of a block.
    pub(super) fn steps(&self) -> i64 {
        ceil_div(self.c.ci, self.sizes.step())
    }

    /// Shape of the transformed weights: what a block copies in a step stands together.
    pub(super) fn weight_shape(&self) -> [i64; 4] {
        [self.grid()[0], self.steps(), PLACES * self.sizes.step(), self.sizes.block[0]]
    }

    /// The output channel that stands at a place of the transformed weights: among the channels of a group, the lane's number changes
    /// faster than which of the lane's four it is, so that what lanes write for their places to meet lies side by side.
    pub(super) fn channel_at(&self, place: Expr) -> Expr {
        let [group, lanes] = [self.sizes.groups()[0], self.sizes.lanes()[0]];
        let within = place.clone().floor_mod(group);
        place.floor_div(group) * group + within.clone().floor_mod(VECTOR) * lanes + within.floor_div(VECTOR)
    }
}
