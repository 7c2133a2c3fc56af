//! How long a ring takes: what ranks sizes that were not measured.

use super::plan::{ROW_BYTES, Schedule, Sizes, Store};
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

/// Bytes a clock of the L2 cache that one multiprocessor gets when all ask: of one round of tiles, which are all asked for at
/// once, and of several. Like the constants up to `MEMORY_RATE`, fitted to 2840 timings of 91 layers and products in f16 on
/// an H100, at one and at 64 images: of the configs that are near the best, 12 % off on average, and what the model likes
/// best takes 4 to 10 % longer than the best that was tried (geometric means, by template and number of images).
const ONE_ROUND_BYTES_PER_CLOCK: f64 = 80.0;
const L2_BYTES_PER_CLOCK: f64 = 46.0;
/// Bytes a clock of the output that leave by the copy engine, and that threads store from their registers: the next tile's
/// products wait for them.
const ENGINE_BYTES_PER_CLOCK: f64 = 25.0;
const REGISTER_BYTES_PER_CLOCK: f64 = 15.0;
/// Share of the tensor cores' rate that is reached with random data, where the clock drops, and how much longer one
/// warpgroup alone takes, which leaves the tensor cores idle meanwhile: if it waits for its own products, and if one step is
/// under way.
const TENSOR_RATE: f64 = 0.76;
const ALONE: f64 = 1.5;
const ALONE_PENDING: f64 = 1.3;
/// How much longer tiles take whose columns are no multiple of 64 (but for 16 and 32), and rings of two slots.
const RAGGED: f64 = 1.05;
const SHALLOW: f64 = 1.1;
/// Clocks until the first slot of a ring is filled.
const FILL_CLOCKS: f64 = 870.0;
/// Share of what runs below something longer that it still costs: of configs that all wait for memory, those are faster
/// that ask the multiprocessors for less.
const HIDDEN: f64 = 0.1;
/// Microseconds to launch a kernel, set up its barriers and end it; and what clusters add to that.
const LAUNCH_US: f64 = 1.4;
const CLUSTER_US: f64 = 3.0;
/// Share of the memory's rate that is reached; share of the L2 cache up to which data may still be there in the next call,
/// and what of its time is left then.
const MEMORY_RATE: f64 = 0.82;
const CACHED: f64 = 0.85;
const CACHED_TIME: f64 = 0.72;
/// The same of kernels whose blocks share reductions, of one tile each; the share of the multiprocessors that clusters of
/// four or eight reach (30 of four or 15 of eight run on the 132 of an H100); and clocks for each 16 bytes of sums that a
/// block takes in; and bytes a clock of the L2 cache, all of which are asked for at once. Fitted to five products, 64 x 1000 x 512
/// to 64 x 1000 x 4096 and 128 x 1000 x 2048: within 12 %.
const PARTS_US: f64 = 1.45;
const PARTS_BYTES_PER_CLOCK: f64 = 60.0;
const PARTS_TENSOR_RATE: f64 = 0.85;
const PARTS_FILL_CLOCKS: f64 = 1000.0;
const REACHED: f64 = 120.0 / 132.0;
const PIECE_CLOCKS: f64 = 0.6;
/// Registers of a thread beside sums.
const OTHER_REGISTERS: i64 = 32;

/// Microseconds that a product takes.
///
/// A block's step takes as long as its multiplications or its loads, whichever is longer; blocks go through their tiles
/// in equal rounds. Loads for the next tile run below an epilogue, so of that only the writing counts.
pub(super) fn us(shape: Shape, sizes: Sizes, cuda: &Cuda) -> f64 {
    let (bm, bn) = (sizes.bm() as f64, sizes.bn as f64);
    let shared = sizes.split > 1;
    // Of elements twice as long a step has half as many, which take the tensor cores as long.
    let tensor_rate = if shared { PARTS_TENSOR_RATE } else { TENSOR_RATE };
    let multiply = bm * bn * ROW_BYTES as f64 / (cuda.f16_flops_per_sm_clock as f64 * tensor_rate);
    // One warpgroup alone leaves the tensor cores idle while it waits for its own products.
    let alone = sizes.row_blocks == 1 && (sizes.consumers == 1 || sizes.schedule == Schedule::PingPong);
    let alone = match (alone, sizes.pending) {
        (true, 0) => ALONE,
        (true, _) if !shared => ALONE_PENDING,
        _ => 1.0,
    };
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
    let l2 = match (shared, rounds <= 1.0) {
        (true, _) => PARTS_BYTES_PER_CLOCK,
        (false, true) => ONE_ROUND_BYTES_PER_CLOCK,
        (false, false) => L2_BYTES_PER_CLOCK,
    };
    let load = (0..2).map(|side| sizes.loaded_bytes(side) as f64).sum::<f64>() / l2;
    let rate = if sizes.store == Store::Tma { ENGINE_BYTES_PER_CLOCK } else { REGISTER_BYTES_PER_CLOCK };
    let (fill, store) = match sizes.split {
        1 => (FILL_CLOCKS, shape.out_bytes as f64 * bm * bn / rate),
        _ => (PARTS_FILL_CLOCKS, bm * bn / 4.0 * PIECE_CLOCKS),
    };
    let clocks = fill + rounds * shape.steps * crowd * alone * multiply.max(load) + rounds * store;
    let block = clocks / cuda.clock_mhz as f64;
    let cached = shape.bytes as f64 <= CACHED * cuda.l2_bytes as f64;
    let memory =
        shape.bytes as f64 / (cuda.bandwidth_gb_s * 1e3 * MEMORY_RATE) * if cached { CACHED_TIME } else { 1.0 };
    let launch = match (sizes.split, sizes.cluster.blocks()) {
        (1, 1) => LAUNCH_US,
        (1, _) => LAUNCH_US + CLUSTER_US,
        _ => PARTS_US,
    };
    let ragged = if !shared && sizes.bn % 64 != 0 && sizes.bn > 32 { RAGGED } else { 1.0 };
    let shallow = if !shared && sizes.stages == 2 { SHALLOW } else { 1.0 };
    ragged * shallow * (launch + block.max(memory) + HIDDEN * block.min(memory))
}
