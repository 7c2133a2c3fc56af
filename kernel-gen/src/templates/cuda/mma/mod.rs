//! Products on the tensor cores of a warp (`mma.sync`), for every device from sm_80 on: the portable fallback of
//! [`wgmma`](super::wgmma), and where little is to be done its rival.
//!
//! A block has a tile of `tile_m x tile_n` outputs and goes through the reduction in steps of `tile_k`. `cp.async` brings
//! both operands' tiles of a step into a ring of `stages` slots, `stages - 1` steps ahead, so that one barrier a step is
//! enough: behind it everybody sees the step's tiles, and nobody still reads the slot that is filled next. Warps, `warps_m`
//! down and `warps_n` across, take their part of a slot to registers with `ldmatrix`, sixteen of the reduction ahead of
//! the products that need it. Rows of a slot are 16 bytes longer than they need be, so that the eight rows of a matrix lie in
//! different banks.
//!
//! A convolution in NHWC is the product of pixels (rows) and output channels (columns) over taps and input channels. The
//! matrix of its left operand (`im2col`) is never made: a thread knows the pixel of each row that it copies, and for a step
//! adds the tap; what meets the padding is read as zeros by `cp.async` itself. Weights are packed once, in the order of
//! steps, and have no tails.
//!
//! `i8` and `u8` are multiplied along the reduction only, so their weights are packed with it as the fast dimension; sums are `i32`. The zero
//! point of the input is multiplied by all weights of a column as one more row of the product, and taken away from each sum.
//!
//! Convolutions over planes of pixels have output channels as rows and pixels as columns. Single pixels of 16 bits go through
//! registers to the ring, as do rows of products that no word divides.
//!
//! Where there are fewer tiles than multiprocessors, `split` blocks share a tile's reduction. Their sums are added in a
//! fixed order: in a cluster, each block those of the rows that it owns, which the others store into its shared memory
//! (`reduce = cluster`, from sm_90 on); or by a second launch behind the first (`reduce = launch`).
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `tile_m`, `tile_n` | 32 to 256 | the tile of a block |
//! | `tile_k` | 16, 32, 64 | the reduction's length in one step, in units of 16 bits |
//! | `warps_m`, `warps_n` | 1, 2, 4 | warps of a block |
//! | `stages` | 2 to 6 | slots of the ring |
//! | `split` | 1 to 16 | blocks that share a reduction |
//! | `reduce` | `cluster`, `launch` | how their sums meet |
//! | `group` | 1, 4, 8, 16 | rows of tiles that are worked on at the same time, for the L2 cache |
//! | `store` | `direct`, `rows` | pairs from registers, or rows by way of shared memory, 16 bytes at a time where they divide |

mod conv2d;
mod fragments;
mod gemm;
mod model;
mod plan;
mod planes;

pub use conv2d::MmaConv2d;
pub use gemm::MmaGemm;
pub use plan::{Reduce, Sizes, TensorCores, device};
pub use planes::MmaPlanes;
