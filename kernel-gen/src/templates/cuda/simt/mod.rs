//! Products of `f32` by multiply-adds, without tensor cores, from sm_80 on: what the class `strict` is made of.
//!
//! A block has a tile of `tile_m x tile_n` outputs and goes through the reduction in steps of `tile_k`. `cp.async` brings both
//! operands' tiles of a step into a ring of `stages` slots, `stages - 1` steps ahead, with one barrier a step, as in
//! [`mma`](super::mma). In a slot the reduction is the slow dimension, so that what a thread needs of a term lies side by side.
//! An operand that lies so in memory, too, is copied 16 bytes at a time; another one is turned around on its way, element by
//! element: eight lanes take neighbours of the reduction, which are a sector, and rows are four elements longer than they need
//! be, so that the 32 elements of a warp fall into different banks.
//!
//! A convolution in NHWC is the product of all output pixels and output channels: a pixel's channels are neighbours of
//! the reduction, and turned around. One over planes of pixels has output channels as rows and pixels as columns. One in HWCN is a product of channels and images for each output pixel, of which
//! nothing is turned.
//!
//! A thread adds up outer products of `own_m` by `own_n`. Its rows and columns stand in groups of four, a part of the tile apart
//! for each group, and are read 16 bytes at a time, a term ahead of the products that need them. Lanes are numbered so that two
//! neighbours share columns and the next two rows: shared memory then serves half a warp at a time.
//!
//! Where there are fewer tiles than multiprocessors, `split` blocks share a tile's reduction, and another launch adds up what
//! they have. In the shared memory of a cluster, element by element, that took 20 to 160 us for tiles of this size.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `tile_m`, `tile_n` | 32 to 256 | the tile of a block |
//! | `tile_k` | 8, 16, 32 | the reduction's length in one step |
//! | `own_m`, `own_n` | 4, 8, 16; 4, 8 | rows and columns of a thread |
//! | `stages` | 2 to 4 | slots of the ring |
//! | `split` | 1 to 16 | blocks that share a reduction |
//! | `group` | 1, 4, 8, 16 | rows of tiles that are worked on at the same time, for the L2 cache |

mod conv2d;
mod fragments;
mod gemm;
mod hwcn;
mod integers;
mod model;
mod plan;
mod planes;

pub use conv2d::SimtConv2d;
pub use gemm::SimtGemm;
pub use integers::SimtIntegers;
pub use plan::{MultiplyAdds, Sizes, device};
pub use planes::SimtPlanes;
