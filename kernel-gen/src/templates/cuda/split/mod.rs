//! Products of `f32` on Hopper's tensor cores, exact but for about one part in four million: each element is the sum of
//! two numbers in tf32.
//!
//! Tensor cores multiply tf32, of which an `f32` has twice the bits. So `x = x0 + x1` and `w = w0 + w1`, and three of the
//! four products, `x1 w0 + x0 w1 + x0 w0`, are all that an `f32` sum keeps. A step's sum of them is added to the total by the
//! threads: tensor cores cut off what does not fit into a sum where threads round, which over a long reduction is the
//! larger error. In the class `tf32` it is the first product alone. [`SplitBf16`] is the same in three parts of bf16.
//!
//! Rows are output pixels and columns output channels, as in [`wgmma`](super::wgmma); but the left operand comes to the
//! tensor cores from **registers**, where the consumers split it. So the order of the activations is of no importance:
//! producers (the block's last warpgroup) bring elements as they lie to shared memory with `cp.async`, zeros where there is
//! padding, and the consumers pick theirs. Weights are split and laid out as `wgmma` wants them when they are packed: one
//! bulk copy a step.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `consumers`, `row_blocks`, `bn` | 1 to 3; 1, 2; 32 to 256 | the tile: `consumers * row_blocks * 64` rows and `bn` columns; 2 row blocks in the class `tf32` only |
//! | `stages` | 3 to 8 | slots of the ring |
//! | `lag` | 1 to 3 | steps whose pixels are under way while those before them are waited for |
//!
//! Range: elements up to 3.4e38 as in `f32`; infinities become NaN, and NaN stays NaN. Subnormals are numbers as others are.

mod bf16;
mod block;
mod family;
mod halves;
mod kernel;
mod model;
mod parts;
mod plan;

pub use bf16::SplitBf16;
pub use halves::SplitHalves;

use family::Split;
use parts::Parts;

/// See the module's text.
pub struct SplitProduct;

impl Split for SplitProduct {
    const NAME: &'static str = "split_product";
    const VERSION: u32 = 2;
    const FP32: Parts = Parts::TwoTf32;
}
