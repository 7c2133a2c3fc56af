//! Templates for the CPU.
//!
//! All of them end in the same micro-kernel shape: a tile of accumulators in vector registers, a loop over the
//! reduction that loads one row of vectors and broadcasts one scalar per accumulator row, and an epilogue on the tile
//! before it leaves for memory. They differ in which operator dimension runs along the lanes:
//!
//! | template | lanes | rows of the tile | for |
//! |---|---|---|---|
//! | [`conv2d_direct`] | output channels | pixels of an output row | any convolution that sums over channels |
//! | [`conv2d_pixels`] | pixels of a row | output channels | few input channels, NCHW, f32 |
//! | [`conv2d_skip`] | output channels | pixels of output rows | padding on small maps, NCHW, f32 |
//! | [`conv_planes`] | pixels of a plane | output channels | 1-D, 3-D, grouped and transposed convolutions |
//! | [`winograd`] | output channels | tiles of pixels | 3, 5 or 7 taps a side, 3 with stride 2, f32 |
//! | [`conv2d_pointwise`] | pixels | output channels | 1x1, stride 1, NCHW |
//! | [`conv2d_panels`] | pixels | output channels | the same, where many channels are summed up |
//! | [`matmul_packed`] | columns of B | rows of A | products |
//! | [`matmul_dot`] | the reduction | rows of A and columns of B | products with few columns |
//! | [`depthwise_rows`] | pixels (NCHW) or channels | output rows | depthwise |
//! | [`depthwise_pointwise`] | pixels | output channels | a depthwise convolution and the 1x1 after it, NCHW |
//! | [`attention_rows`] | queries | keys, then queries | attention |
//! | [`integers`] | output channels | pixels | products and convolutions of integers of eight bits |
//! | [`rows`] | neighbours of a row | - | norms and softmax of rows, reductions over the last dimensions |
//! | [`windows`] | columns | - | pooling, NCHW |
//! | [`resize`] | columns | - | bilinear resizing, NCHW |
//! | [`plain`] | - | - | everything, correctly |
//!
//! [`sketch`](super::sketch) derives such a schedule for any kernel by rules.

pub mod attention_rows;
pub mod conv2d_direct;
pub mod conv2d_panels;
pub mod conv2d_pixels;
pub mod conv2d_pointwise;
pub mod conv2d_skip;
pub mod conv_planes;
pub mod depthwise_pointwise;
pub mod depthwise_rows;
pub mod integers;
pub mod matmul_dot;
pub mod matmul_nbits;
pub mod matmul_packed;
mod pack_weights;
pub mod plain;
pub mod resize;
pub mod rows;
mod steps;
pub mod tile;
pub mod windows;
pub mod winograd;

pub(super) use steps::{extent, pieces, vectorize};

#[cfg(test)]
mod tests {
    use crate::target::Target;
    use crate::templates::Registry;
    use crate::workload::{Conv2d, ConvLayout, Matmul, Workload};

    #[test]
    fn of_the_products_those_with_few_columns_are_expected_to_do_best_with_lanes_along_the_reduction() {
        let registry = Registry::builtin();
        let target = Target::find("x86-64-v4").expect("a built-in target");
        let us = |m: Matmul, name: &str| {
            let (w, t) = (Workload::f32(m), registry.find(name).expect("a built-in template"));
            t.cost(&w, target, &t.default_config(&w, target).unwrap())
        };
        let transposed = Matmul { trans_b: true, ..Matmul::new(8, 1000, 2048) };
        for (m, packed) in
            [(transposed, true), (Matmul::new(1024, 1, 1024), false), (Matmul::new(1024, 4, 1024), false)]
        {
            assert_eq!(us(m, "matmul_packed") < us(m, "matmul_dot"), packed, "{m:?}");
        }
    }

    #[test]
    fn the_default_of_every_template_is_in_its_space() {
        let layouts = [ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::NchwC(16)];
        let convs = [
            Conv2d::nchw(1, 64, 56, 56, 64, 3, 1, 1),
            Conv2d::nchw(1, 32, 1, 1, 512, 1, 1, 0),
            Conv2d::nchw(1, 32, 7, 7, 1024, 1, 1, 0),
            Conv2d::nchw(2, 48, 13, 9, 48, 3, 2, 1).depthwise(1),
        ];
        let products = [[1, 1000, 512], [1, 4096, 512], [2, 7, 3], [512, 512, 512]];
        let mut workloads: Vec<Workload> =
            products.iter().map(|&[m, n, k]| Workload::f32(Matmul::new(m, n, k))).collect();
        for layout in layouts {
            workloads.extend(convs.iter().map(|c| Workload::f32(Conv2d { layout, ..*c })));
        }
        let registry = Registry::builtin();
        for target in Target::all().iter().filter(|t| t.cpu().is_some()) {
            for w in &workloads {
                for t in registry.applicable(w, target) {
                    let config = t.default_config(w, target).unwrap();
                    let index = t.space(w, target).unwrap().index_of(&config);
                    assert!(index.is_ok(), "{} of {} on {}: {config}: {index:?}", t.name(), w.key(), target.name);
                }
            }
        }
    }
}
