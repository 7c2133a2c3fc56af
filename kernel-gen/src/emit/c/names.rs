//! Words of C that no variable or buffer may be called.

use crate::emit::clike::names::Reserved;

/// What the emitted functions are given, functions of `<math.h>`, and helpers.
#[rustfmt::skip]
pub(super) const RESERVED: Reserved = Reserved {
    words: &[
        "ws", "worker", "begin", "end", "floor_div", "floor_mod", "M_PI", "y0", "y1", "yn", "j0", "j1", "jn", "gamma",
        "signgam",
    ],
    prefixes: &[
        "load_", "store_", "splat_", "gather_", "scatter_", "min_", "max_", "f32_to_", "f16_to_", "bf16_to_", "f32x",
        "f64x", "i32x", "i64x", "transpose_", "swap", "dot2", "dot4_", "choose_", "add_pairs_", "sub_pairs_", "vdotq_", "vusdotq_", "vld1_", "vst1_", "vcvt_", "vmov",
    ],
    parts: &["_f32x", "_f64x", "_i32x", "_i64x"],
};
