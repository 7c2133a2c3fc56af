//! Templates for CUDA devices.
//!
//! All of them cut the output into blocks of a grid and those into threads, and keep a thread's sums in registers. They
//! differ in what the threads of a block share:
//!
//! | template | from | shared memory holds | for |
//! |---|---|---|---|
//! | [`conv2d_no_batching`] | the tutorial `tune_conv2d_cuda` | the input's tile and the weights | NCHW |
//! | [`conv2d_hwcn`] | the tutorial `opt_conv_cuda` | slices of both operands | HWCN |
//! | [`conv2d_tensorcore`] | the tutorial `opt_conv_tensorcore` | tiles for one row of taps | NHWC16n16c; f16 from sm_70 on, bf16 from sm_80 |
//! | [`depthwise`] | the article on depthwise convolutions | the input's piece and the filter | NCHW, depthwise |
//! | [`depthwise_direct`] | - | nothing | NCHW and NHWC, depthwise, of many images |
//! | [`matmul_blocked`] | the same scheme | slices of both operands | products |
//! | [`elements`] | - | nothing | movement, and functions of elements |
//! | [`columns`] | - | what its threads have added up | reductions over dimensions before the last |
//! | [`gemv`] | - | what lanes have added up | products with few rows |
//! | [`matmul_notes`] | AutoTVM's introduction | nothing | products, to compare with |
//! | [`wgmma`] | - | a ring of tiles that the TMA fills | Hopper's `wgmma`, products and NHWC convolutions |
//! | [`mma`] | - | a ring of tiles that `cp.async` fills | 16 bits from sm_80 on: products, NHWC; in NCHW 1d, 3d, grouped, transposed |
//! | [`split`] | - | a ring of pixels and of weights in parts | `f32` on Hopper's `wgmma`, in parts of tf32, bf16 or f16 |
//! | [`simt`] | - | a ring of tiles that `cp.async` fills | `f32` without tensor cores: products, NHWC, HWCN; in NCHW as `mma` |
//! | [`splitk`] | - | a ring for each warp, then sums | any layout, of few images; in NCHW, depthwise with the 1x1 behind it |
//! | [`via_nhwc`] | - | tiles that are turned | 16-bit convolutions in NCHW and HWCN, by templates for NHWC |
//! | [`stem`] | - | pixels in cells of 16 bytes, and all weights | 16-bit images of few channels |
//! | [`pointwise`] | - | all weights; rows go to registers | 16-bit products with few columns, 1x1 in NHWC |
//! | [`winograd`] | - | a ring of transformed tiles and weights | 3x3 in NCHW, `f32`, of many images, in three launches or [one](winograd::fused) |
//! | [`attention`] | - | the block's queries, and a ring of keys and values | attention in 16 bits, from sm_80 on |
//! | [`plain`] | - | nothing | everything, correctly |
//! | [`sketch`](super::sketch) | - | what its threads share | any kernel, by rules |
//!
//! Nearly all of them are a `Family` (`family.rs`): problem, knobs, plan, fits, cost, kernel. One [`Template`](super::Template) for
//! all families makes space, default and checks from these steps. `pipeline.rs` is the engine of [`mma`] and [`simt`]: a ring
//! of `cp.async`, with a product (where operands and outputs lie) and fragments (what multiplies) as parts. `ring.rs` and
//! `warpgroups.rs` are for kernels whose producers and consumers are different warps. `launch.rs`, `instructions.rs`, `guards.rs` and
//! `outputs.rs` have what all kernels are made of that are built, not scheduled.
//!
//! [`blocks`] has those of them that templates outside of this library may use.
//!
//! Kernels come without barriers: [`insert_barriers`](crate::lower::insert_barriers::insert_barriers()) puts them where
//! shared memory changes hands, before `verify`.

pub mod attention;
mod block;
pub mod blocks;
mod broadcast;
pub mod columns;
mod conv2d_cost;
pub mod conv2d_hwcn;
pub mod conv2d_no_batching;
pub mod conv2d_tensorcore;
mod cut;
pub mod depthwise;
pub mod depthwise_direct;
pub mod elements;
mod exchange;
mod family;
pub mod gemv;
mod guards;
mod instructions;
mod launch;
pub mod matmul_blocked;
pub mod matmul_notes;
pub mod mma;
pub(super) mod model;
mod outer;
mod outputs;
mod pipeline;
mod pixels;
pub mod plain;
mod planes;
pub mod pointwise;
mod product;
mod requires;
mod ring;
pub mod rows;
mod schedules;
mod search;
pub mod simt;
mod source;
pub mod split;
pub mod splitk;
pub mod stem;
mod taps;
mod turned;
pub mod via_nhwc;
mod warp_sums;
mod warpgroups;
pub mod wgmma;
pub mod winograd;

pub(super) use schedules::{pieces, strided_fetch};
pub(super) use search::{descend, descend_from};
