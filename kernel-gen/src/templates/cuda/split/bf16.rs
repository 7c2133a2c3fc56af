//! Products of `f32` on Hopper's tensor cores in parts of bf16, as exact as a sum in `f32`: each element is the sum of three
//! numbers of 8 bits.
//!
//! `x = x0 + x1 + x2` and `w = w0 + w1 + w2` hold exactly, and six of the nine products are multiplied, the smallest first:
//! `x2 w0 + x1 w1 + x0 w2 + x1 w0 + x0 w1 + x0 w0`. What is left out is at most 2^-24 of a product, an eighth of what two
//! parts in tf32 lose. Tensor cores multiply bf16 twice as fast as tf32, so it takes the time of three products there.
//!
//! All else is as in [`split_product`](super), its knobs too, of which `row_blocks` is 1. A slot of the ring has three quarters
//! of the bytes of weights, and a thread of the consumers holds its rows in 24 registers instead of 32.
//!
//! Range: bf16 has the exponents of `f32`, so nothing is scaled and no element is out of range. Elements from 3.396e38 on are
//! rounded to infinity, and give NaN as that does; NaN stays NaN. Elements below 2^-110 lose what is below the numbers of bf16,
//! at most 2^-134.

use super::family::Split;
use super::parts::Parts;

/// See the module's text.
pub struct SplitBf16;

impl Split for SplitBf16 {
    const NAME: &'static str = "split_bf16";
    const VERSION: u32 = 1;
    const FP32: Parts = Parts::ThreeBf16;
}
