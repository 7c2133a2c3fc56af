//! Products on Hopper's tensor cores: a warp-specialised ring of tiles.
//!
//! One block a multiprocessor stays for the whole kernel and works through output tiles of `bm x bn`. Its first
//! warpgroup is the **producer**: one thread has the copy engine (TMA) fill a ring of `stages` slots, each the `bm x 64`
//! and `64 x bn` operands of one step (of 16 bits). The others are **consumers**: each multiplies its rows of the tile with `wgmma`
//! straight from shared memory, and gives the slot back. `full` and `empty` mbarriers are all they share, so loads of
//! the next tile run while the epilogue of this one is written.
//!
//! Rows of a slot are 128 bytes, swizzled as `wgmma` reads them without bank conflicts. Operands come as they lie in
//! memory: a matrix whose reduction is its slow dimension is cut into column blocks of 64 (of 32 or 16 where a tile has fewer)
//! and multiplied transposed. Weights whose blocks would lie across lines of memory are packed before (`cuda/turned.rs`). What a
//! reduction leaves for its last step is multiplied as far as it goes.
//! The copy engine takes as long for rows that do not exist: where a tap's channels leave 32 or 64 bytes, these have short rows
//! of their own in a slot, and come with the last whole step (96 channels are one step of 64 and 32).
//! In the class `tf32` elements are `f32`, a step is 32 of the reduction, and weights whose reduction is the slow dimension
//! are turned around when they are packed: tensor cores multiply elements of 16 bits transposed, and no others.
//! They cut activations off to tf32, which the class allows; weights are rounded.
//! Of `i8` and `u8` a step is 128 of the reduction, weights are turned around in the same way, and sums are `i32`.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `consumers`, `row_blocks`, `bn` | 1, 2; 1, 2; 64 to 256 | the tile: `consumers * row_blocks * 64` rows and `bn` columns, round numbers and equal parts of the outputs, and 16, 32 or 48 where there are no more outputs; `wgmma_gemm` offers three consumers for convolutions |
//! | `stages` | 2 to 8 | slots of the ring |
//! | `group` | 1 to 16 | rows of tiles that are worked on at the same time, for the L2 cache |
//! | `cluster` | `none`, `rows`, `columns` | two blocks, neighbours in that direction, share the other direction's operand: each loads half of it for both (multicast) |
//! | `schedule` | `cooperative`, `pingpong` | consumers share a tile, or each has its own, and one multiplies while the other stores |
//! | `store` | `registers`, `tma` | sums go to the output from where they are, or by way of shared memory and the copy engine |
//! | `pending` | 0, 1 | steps whose products may be under way when the next ones are issued; with 1 a slot is given back a step later |
//! | `split` | 1, 2, 4, 8 | blocks of a cluster that share a tile's reduction (`parts.rs`); where there are few tiles, which may then have 32 columns, too |
//!
//! Operands come step by step (`ring.rs`), or as windows of a convolution's input that serve all taps, beside weights that stay
//! (`window`); the rest of the kernel is the same (`kernel.rs`).
//!
//! The forms are CUTLASS's "persistent cooperative" and "ping-pong" ones; sizes of tiles and rings are those that its
//! profiler offers. See <https://docs.nvidia.com/cuda/parallel-thread-execution/> ("Asynchronous Warpgroup Level Matrix
//! Instructions").

mod apart;
mod block;
mod conv2d;
mod gemm;
mod kernel;
mod model;
mod parts;
mod plan;
mod residual;
mod ring;
mod stage;
mod store;
mod window;

pub use conv2d::WgmmaConv2d;
pub use gemm::WgmmaGemm;
pub use window::WgmmaWindow;
