//! How long a ring takes: what ranks sizes that were not measured.

use super::{ROW_BYTES, Schedule, Sizes, Store};
use crate::target::Cuda;

/// A product cut into tiles.
pub(super) struct Shape {
    /// Number of output tiles.
    pub(super) tiles: i64,
    /// Steps of a block in the reduction of a tile, on average.
    pub(super) steps: f64,
    /// Bytes of all parameters.
    pub(super) bytes: i64,
    /// Bytes of an output.
    pub(super) out_bytes: i64,
}

/// Bytes a clock of the L2 cache that one multiprocessor is charged when all ask. An H100 was seen to give 58, but small
/// tiles that need so much are slower than that: with this figure tiles rank as they were measured.
const L2_BYTES_PER_CLOCK: f64 = 36.0;
/// Bytes a clock that threads store from their registers, which the next tile's products wait for; fitted likewise.
const REGISTER_BYTES_PER_CLOCK: f64 = 7.0;
/// Share of the tensor cores' rate that is reached with random data, where the clock drops.
const TENSOR_RATE: f64 = 0.85;
/// Clocks until the first slot of a ring is filled.
const FILL_CLOCKS: f64 = 1000.0;
/// Share of what runs below something longer that it still costs: of configs that all wait for memory, those are faster
/// that ask the multiprocessors for less.
const HIDDEN: f64 = 0.05;
/// Microseconds to launch a kernel, set up its barriers and end it; and what clusters add to that.
const LAUNCH_US: f64 = 2.0;
const CLUSTER_US: f64 = 2.0;
/// The same of kernels whose blocks share reductions, of one tile each; the share of the multiprocessors that clusters of
/// four or eight reach (30 of four or 15 of eight run on the 132 of an H100); and clocks for each 16 bytes of sums that a
/// block takes in; and bytes a clock of the L2 cache, all of which are asked for at once. Fitted to five products, 64 x 1000 x 512
/// to 64 x 1000 x 4096 and 128 x 1000 x 2048: within 12 %.
const PARTS_US: f64 = 1.45;
const PARTS_BYTES_PER_CLOCK: f64 = 60.0;
const REACHED: f64 = 120.0 / 132.0;
const PIECE_CLOCKS: f64 = 0.6;
/// Registers of a thread beside sums.
const OTHER_REGISTERS: i64 = 32;

/// Microseconds that a product takes.
///
/// A block's step takes as long as its multiplications or its loads, whichever is longer; blocks go through their tiles
/// in equal rounds. Loads for the next tile run below an epilogue, so of that only the writing counts, and only once
/// where another consumer multiplies meanwhile.
pub(super) fn us(shape: Shape, sizes: Sizes, cuda: &Cuda) -> f64 {
    let (bm, bn) = (sizes.bm() as f64, sizes.bn as f64);
    // Of elements twice as long a step has half as many, which take the tensor cores as long.
    let multiply = bm * bn * ROW_BYTES as f64 / (cuda.f16_flops_per_sm_clock as f64 * TENSOR_RATE);
    // One warpgroup alone leaves the tensor cores idle while it waits for its own products.
    let alone = sizes.row_blocks == 1 && (sizes.consumers == 1 || sizes.schedule == Schedule::PingPong);
    let multiply = if alone && sizes.pending == 0 { 1.3 * multiply } else { multiply };
    let load = (0..2).map(|side| sizes.loaded_bytes(side) as f64).sum::<f64>();
    let load = load / if sizes.split > 1 { PARTS_BYTES_PER_CLOCK } else { L2_BYTES_PER_CLOCK };
    let rate = if sizes.store == Store::Tma { L2_BYTES_PER_CLOCK } else { REGISTER_BYTES_PER_CLOCK };
    let (rounds, crowd) = match sizes.split {
        1 => ((shape.tiles as f64 / cuda.sm_count as f64).ceil(), 1.0),
        split => {
            let reached = cuda.sm_count as f64 * if split > 2 { REACHED } else { 1.0 };
            let registers = sizes.accumulators() + OTHER_REGISTERS;
            let resident = cuda.blocks_resident(sizes.threads(), registers, sizes.shared_bytes(0)).max(1) as f64;
            let each = (shape.tiles * split) as f64 / reached;
            // One block too many for as many multiprocessors leaves two of them to one.
            ((each / resident).ceil(), each.ceil().min(resident))
        }
    };
    let epilogues = if sizes.schedule == Schedule::PingPong { 1.0 } else { rounds };
    let store = match sizes.split {
        1 => shape.out_bytes as f64 * bm * bn / rate,
        _ => bm * bn / 4.0 * PIECE_CLOCKS,
    };
    let clocks = FILL_CLOCKS + rounds * shape.steps * crowd * multiply.max(load) + epilogues * store;
    let block = clocks / cuda.clock_mhz as f64;
    let memory = shape.bytes as f64 / (cuda.bandwidth_gb_s * 1e3);
    let launch = match (sizes.split, sizes.cluster.blocks()) {
        (1, 1) => LAUNCH_US,
        (1, _) => LAUNCH_US + CLUSTER_US,
        _ => PARTS_US,
    };
    launch + block.max(memory) + HIDDEN * block.min(memory)
}
