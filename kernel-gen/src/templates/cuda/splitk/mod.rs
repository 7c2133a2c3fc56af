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

mod block;
mod conv2d;
mod depthwise;
mod kernel;
mod model;
mod pair;
mod plan;

pub use conv2d::SplitkDirect;
pub use pair::SplitkPair;
