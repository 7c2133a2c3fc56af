//! Which convolutions the transforms take, their knobs, and the grid of products that they lead to.

use super::tiling::{TAPS, Tiling};
use crate::target::{Cuda, Target};
use crate::templates::TemplateError;
use crate::templates::cuda::family::knobs;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outer::LANES;
use crate::templates::cuda::requires::{convolution, device, needs_cp_async, needs_f32};
use crate::templates::winograd::filter::{Filter, NOT_LOCAL, tile_sizes};
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Largest tile that is offered.
pub(super) const MOST_OUTPUTS: i64 = 4;
/// Registers of a thread of the products beside sums and operands.
const OTHER_REGISTERS: i64 = 30;
/// Most threads of a block of the transforms.
const TRANSFORM_THREADS: i64 = 128;
pub(super) const BLOCK_CHANNELS: [i64; 3] = [32, 64, 128];
pub(super) const BLOCK_TILES: [i64; 4] = [32, 64, 128, 256];
pub(super) const STEPS: [i64; 2] = [8, 16];
pub(super) const STAGES: [i64; 3] = [2, 3, 4];

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Outputs of a tile along each dimension.
        pub(super) m: i64 = "m" in [2, 4];
        /// Groups of images. Each is code of its own, and has a last wave of blocks in each of its launches.
        pub(super) rounds: i64 = "rounds" in [1, 2, 4];
        /// Output channels and tiles of a block of the products.
        pub(super) block: [i64; 2] = "block_channels" in BLOCK_CHANNELS, "block_tiles" in BLOCK_TILES;
        /// Output channels and tiles of a thread of it.
        pub(super) own: [i64; 2] = "own_channels" in [4, 8], "own_tiles" in [4, 8];
        /// Input channels of a step.
        pub(super) step: i64 = "step" in STEPS;
        /// Slots of the ring.
        pub(super) stages: i64 = "stages" in STAGES;
    }
}

impl Sizes {
    /// Products of a tile for each pair of channels.
    pub(super) fn places(&self) -> i64 {
        (self.m + TAPS - 1) * (self.m + TAPS - 1)
    }

    /// Warps of a block of the products along output channels (0) and tiles (1).
    pub(super) fn warps(&self, dim: usize) -> i64 {
        self.block[dim] / self.own[dim] / LANES[dim]
    }

    /// Threads of a block of the products.
    pub(super) fn threads(&self) -> i64 {
        Cuda::WARP * self.warps(0) * self.warps(1)
    }

    /// Bytes of shared memory of a block of the products.
    pub(super) fn shared_bytes(&self) -> i64 {
        4 * self.stages * self.step * (self.block[0] + self.block[1])
    }

    /// Registers of a thread of the products, as far as they can be told beforehand: operands are loaded one term ahead.
    pub(super) fn registers(&self) -> i64 {
        self.own[0] * self.own[1] + 2 * (self.own[0] + self.own[1]) + OTHER_REGISTERS
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
        Tiling { c: self.c, m: self.sizes.m }
    }

    /// Images of a round.
    pub(super) fn images(&self) -> i64 {
        self.c.n / self.sizes.rounds
    }

    /// Tiles of an image.
    pub(super) fn image_tiles(&self) -> i64 {
        self.tiling().image_tiles()
    }

    /// Tiles of a round, and those that fill up its last block.
    pub(super) fn padded_tiles(&self) -> i64 {
        ceil_div(self.images() * self.image_tiles(), self.sizes.block[1]) * self.sizes.block[1]
    }

    /// Output channels, and those that fill up the last block.
    fn padded_channels(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.block[0]) * self.sizes.block[0]
    }

    /// Steps of a block of the products.
    pub(super) fn steps(&self) -> i64 {
        ceil_div(self.c.ci, self.sizes.step)
    }

    /// Threads of a block of the transforms.
    pub(super) fn transform_threads(&self) -> i64 {
        self.sizes.block[1].min(TRANSFORM_THREADS)
    }

    /// Shape of the transformed input of a round.
    pub(super) fn data_shape(&self) -> [i64; 3] {
        [self.sizes.places(), self.c.ci, self.padded_tiles()]
    }

    /// Shape of the transformed weights.
    pub(super) fn weight_shape(&self) -> [i64; 3] {
        [self.sizes.places(), self.steps() * self.sizes.step, self.padded_channels()]
    }

    /// Shape of the products of a round.
    pub(super) fn product_shape(&self) -> [i64; 3] {
        [self.sizes.places(), self.padded_channels(), self.padded_tiles()]
    }

    /// Blocks of the products of a round.
    pub(super) fn blocks(&self) -> i64 {
        let [channels, tiles] = self.sizes.block;
        self.sizes.places() * (self.padded_channels() / channels) * (self.padded_tiles() / tiles)
    }
}

/// The convolution, or why it is none for these templates.
pub(super) fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
    let gpu = device(t)?;
    let c = convolution(w)?;
    if w.math.is_local() {
        return Err(NOT_LOCAL.into());
    }
    if [c.kh, c.kw] != [TAPS; 2] || c.stride != [1, 1] {
        return Err("for 3x3 filters with stride 1".into());
    }
    if c.dilation != [1, 1] {
        return Err("dilated taps do not overlap as minimal filtering needs them to".into());
    }
    if c.groups != 1 {
        return Err("for one group: with several there are too few channels to add up".into());
    }
    if c.layout != ConvLayout::Nchw {
        return Err(format!("for NCHW, not {}", c.layout.name()));
    }
    // Farther out an output sees nothing but padding and is exactly zero, which sums and differences are not.
    if c.padding.iter().any(|p| *p >= TAPS) {
        return Err("for less padding than taps".into());
    }
    needs_f32(w)?;
    needs_cp_async(gpu)?;
    if c.ci.max(c.co) > gpu.grid_dim[1] {
        return Err(format!("for at most {} channels", gpu.grid_dim[1]));
    }
    Ok(c)
}

/// The matrices of a plan, or the reason why its class has none.
pub(super) fn filter(w: &Workload, m: i64) -> Result<Filter, TemplateError> {
    let class = methods(w);
    Filter::of(TAPS, 1, m).filter(|_| class.contains(&m)).ok_or_else(|| {
        let math = w.math.name();
        TemplateError::Limit(format!("F({m}x{m}, 3x3) is not of the class `{math}`; there are m = {class:?}"))
    })
}

/// Output tiles that keep the precision class.
pub(super) fn methods(w: &Workload) -> Vec<i64> {
    tile_sizes([TAPS; 2], [1, 1], w.math).into_iter().filter(|m| *m <= MOST_OUTPUTS).collect()
}
