//! Products of tiles, the scheme that [`conv2d_hwcn`](super::conv2d_hwcn) and [`matmul_blocked`](super::matmul_blocked)
//! share.
//!
//! A block of threads computes a tile of `rows x columns` of the output. In each step of the reduction it fetches a slice
//! of both operands into shared memory, all threads together and in vectors; then each thread goes through the slice,
//! loads what it needs of it into registers, and adds an outer product to its sums. A thread's sums lie in `vthread`
//! places along each axis, so that neighbouring threads read neighbouring vectors of shared memory and no two banks
//! collide: the scheme of the tutorial "How to optimize convolution on GPU" (Haichen Shen, Apache TVM).

use super::family::{Field, Needs, Plan};
use super::model::{Launch, Unit, ceil_div, whole_sectors};
use super::schedules::{THREAD, extent, strided_fetch};
use crate::ir::{Axis, BufferId, Pragma, VarId};
use crate::schedule::{Schedule, ScheduleError, Tail};
use crate::space::{Config, ConfigError};
use crate::target::Cuda;
use crate::workload::Workload;

/// The smallest extent of a block that spaces offer.
const SMALLEST: i64 = 16;
/// What spaces offer: extents of a block, threads along one, places of a thread's sums, lengths of a step and of a vector.
pub(super) const BLOCKS: [i64; 5] = [16, 32, 64, 128, 256];
pub(super) const THREADS: [i64; 4] = [4, 8, 16, 32];
pub(super) const VTHREADS: [i64; 3] = [1, 2, 4];
pub(super) const STEPS: [i64; 4] = [4, 8, 16, 32];
pub(super) const VECTORS: [i64; 4] = [1, 2, 4, 8];

/// The tile of a block and how threads share it. Each pair is rows (the slower output dimension), then columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    /// Rows and columns of a block.
    pub(super) block: [i64; 2],
    /// Threads along them.
    pub(super) threads: [i64; 2],
    /// Places of a thread's sums along each.
    pub(super) vthread: i64,
    /// Length of the reduction in one step.
    pub(super) step: i64,
    /// Elements of a vector access, where rows divide by it.
    pub(super) vector: i64,
}

/// Its knobs are in the order of its fields.
impl Field for Tile {
    fn read(config: &Config, knobs: &[&str]) -> Result<Tile, ConfigError> {
        let [rows, columns, down, across, vthread, step, vector] = <[i64; 7]>::read(config, knobs)?;
        Ok(Tile { block: [rows, columns], threads: [down, across], vthread, step, vector })
    }

    fn write(&self, config: Config, knobs: &[&str]) -> Config {
        let Tile { block: [rows, columns], threads: [down, across], vthread, step, vector } = *self;
        [rows, columns, down, across, vthread, step, vector].write(config, knobs)
    }
}

impl Tile {
    /// Threads of a block.
    pub(super) fn thread_count(&self) -> i64 {
        self.threads[0] * self.threads[1]
    }

    /// Neighbouring sums of a thread in one place: rows, columns.
    pub(super) fn patch(&self) -> [i64; 2] {
        [0, 1].map(|i| self.block[i] / (self.vthread * self.threads[i]).max(1))
    }

    /// Sums of a thread.
    pub(super) fn sums(&self) -> i64 {
        self.patch().iter().product::<i64>() * self.vthread * self.vthread
    }

    /// Registers of a thread: sums, one slice of each operand, and addresses.
    pub(super) fn registers(&self) -> i64 {
        self.sums() + self.vthread * self.patch().iter().sum::<i64>() + 32
    }

    /// Bytes of shared memory.
    pub(super) fn shared_bytes(&self, element_bytes: i64) -> i64 {
        // Rows may be spaced out by up to two vectors of 16 bytes.
        self.step * (self.block[0] + self.block[1] + 64 / element_bytes) * element_bytes
    }

    /// Whether tiles divide and suit an output of `size` rows and columns, and a device can run it.
    pub(super) fn fits(&self, size: [i64; 2], element_bytes: i64, gpu: &Cuda) -> bool {
        let divides = (0..2).all(|i| {
            let patch = self.patch()[i];
            patch >= 1 && patch * self.vthread * self.threads[i] == self.block[i]
        });
        // Blocks are not mostly empty, and no place of a thread's sums is for nothing.
        let used = (0..2).all(|i| {
            let place = self.block[i] / self.vthread;
            (self.block[i] < 2 * size[i] || self.block[i] == SMALLEST) && (self.vthread - 1) * place < size[i]
        });
        let registers = self.registers();
        divides
            && used
            && (32..=gpu.threads_per_block).contains(&self.thread_count())
            && registers <= gpu.registers_per_thread - 8
            && self.thread_count() * registers <= gpu.registers_per_block
            && self.sums() >= 4
            && self.shared_bytes(element_bytes) <= gpu.shared_per_block
            && size[0].div_euclid(self.block[0]) < gpu.grid_dim[1]
    }

    /// The cheapest of the sensible tiles that fit.
    pub(super) fn best(product: &Product, gpu: &Cuda) -> Option<Tile> {
        let size = [product.size[0], product.size[1]];
        let mut best: Option<(f64, Tile)> = None;
        for rows in BLOCKS {
            for columns in BLOCKS {
                for threads in [[8, 8], [8, 16], [16, 8], [16, 16], [8, 32], [4, 8], [8, 4]] {
                    for vthread in [1, 2] {
                        for step in [8, 16] {
                            let vector = product.widest();
                            let tile = Tile { block: [rows, columns], threads, vthread, step, vector };
                            if !tile.fits(size, product.element_bytes, gpu) {
                                continue;
                            }
                            let found = product.estimate(&tile, gpu);
                            if best.is_none_or(|(least, _)| found < least) {
                                best = Some((found, tile));
                            }
                        }
                    }
                }
            }
        }
        best.map(|b| b.1)
    }
}

/// A product in tiles.
pub struct Tiled {
    pub(super) product: Product,
    pub(super) tile: Tile,
}

impl Plan for Tiled {
    fn needs(&self) -> Needs {
        Needs {
            threads: self.tile.thread_count(),
            registers: self.tile.registers(),
            shared_bytes: self.tile.shared_bytes(self.product.element_bytes),
        }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let [rows, columns, _] = self.product.size;
        self.tile.fits([rows, columns], self.product.element_bytes, gpu)
    }

    fn us(&self, _: &Workload, gpu: &Cuda) -> f64 {
        self.product.estimate(&self.tile, gpu)
    }
}

/// What a product of tiles is about, for its cost.
pub(crate) struct Product {
    /// Independent products: images of a batch, pixels.
    pub(super) count: i64,
    /// Rows, columns and length of the reduction.
    pub(super) size: [i64; 3],
    /// Bytes of an element of the operands.
    pub(super) element_bytes: i64,
    /// Whether the fetched rows run along the output's dimension (true) or along the reduction, for both operands.
    pub(super) along: [bool; 2],
    /// Bytes that have to move.
    pub(super) bytes: f64,
}

/// Clocks of a multiprocessor that a step takes beside its arithmetic, for each warp.
const STEP_CLOCKS_PER_WARP: f64 = 25.0;
/// What the defaults of three products (512, 1024, 4096) and of a convolution with 256 images took on an H100, as a share of
/// what is said of them otherwise: 1.3, 2.3, 1.29 and 1.29. It ranks no config otherwise, but the templates among others.
const MEASURED: f64 = 1.3;

impl Product {
    /// Elements of 16 bytes.
    pub(super) fn widest(&self) -> i64 {
        16 / self.element_bytes
    }

    /// Predicted microseconds.
    pub(super) fn estimate(&self, tile: &Tile, gpu: &Cuda) -> f64 {
        let [rows, columns, depth] = self.size;
        let step = tile.step as f64;
        let patch = tile.patch();
        let loads: i64 = patch.iter().map(|p| p * tile.vthread).sum();
        // A patch is best one vector of 16 bytes: neighbouring threads then read neighbouring vectors. Shorter ones take
        // more accesses, longer ones fall into the same banks.
        let conflicts = |i: usize| -> f64 {
            match patch[i] * self.element_bytes {
                16 => 1.0,
                bytes if bytes > 16 => 1.6,
                _ => 1.3,
            }
        };
        let fetched = |i: usize| {
            let (length, lines) = if self.along[i] { (tile.block[i], tile.step) } else { (tile.step, tile.block[i]) };
            lines as f64 * whole_sectors(length * self.element_bytes)
        };
        let launch = Launch {
            blocks: self.count * ceil_div(rows, tile.block[0]) * ceil_div(columns, tile.block[1]),
            threads: tile.thread_count(),
            registers: tile.registers().min(gpu.registers_per_thread),
            shared_bytes: tile.shared_bytes(self.element_bytes),
            unit: Unit::Fma,
            sums: tile.sums(),
            steps: ceil_div(depth, tile.step) as f64,
            step_flops: 2.0 * (tile.block[0] * tile.block[1]) as f64 * step,
            step_shared_bytes: (tile.thread_count() * loads) as f64 * 4.0 * step * conflicts(0).max(conflicts(1)),
            step_fetched_bytes: fetched(0) + fetched(1),
            bytes: self.bytes,
        };
        // Fetching in single elements costs instructions and addresses.
        let elements = (tile.block[0] + tile.block[1]) as f64 / tile.thread_count() as f64;
        let scalar = 1.0 + 3.0 * elements / (tile.sums() * tile.vector) as f64;
        // Barriers and addresses of a step, which every warp computes: on an H100 steps of 16 instead of 8 save 9 to 12 %.
        let warps = ceil_div(tile.thread_count(), Cuda::WARP) as f64;
        let arithmetic = launch.step_flops / gpu.f32_flops_per_sm_clock.max(1) as f64;
        MEASURED * launch.microseconds(gpu) * scalar * (1.0 + STEP_CLOCKS_PER_WARP * warps / arithmetic)
    }
}

/// The loops of an output stage after it was cut: blocks, virtual threads, threads and what is left to a thread.
pub(super) struct Cut {
    /// Blocks along rows and columns.
    pub(super) blocks: [VarId; 2],
    /// Threads along rows and columns.
    pub(super) threads: [VarId; 2],
    /// A thread's own rows and columns.
    pub(super) patch: [VarId; 2],
}

/// Cuts rows and columns of an output stage as the tile says and binds threads. `outer` are the loops around, which stay
/// outermost; the loops over blocks are left for the caller to bind.
pub(super) fn cut(s: &mut Schedule, outer: &[VarId], axes: [VarId; 2], tile: &Tile) -> Result<Cut, ScheduleError> {
    let [rows, columns] = axes;
    let [by, fi] = s.split(rows, tile.block[0], Tail::Guard)?;
    let [bx, ni] = s.split(columns, tile.block[1], Tail::Guard)?;
    let [tyz, fi] = s.split_nparts(fi, tile.vthread)?;
    let [txz, ni] = s.split_nparts(ni, tile.vthread)?;
    let [ty, fi] = s.split_nparts(fi, tile.threads[0])?;
    let [tx, ni] = s.split_nparts(ni, tile.threads[1])?;
    let order: Vec<VarId> = outer.iter().copied().chain([by, bx, tyz, txz, ty, tx, fi, ni]).collect();
    s.reorder(&order)?;
    s.vthread(tyz)?;
    s.vthread(txz)?;
    s.bind(ty, THREAD(Axis::Y))?;
    s.bind(tx, THREAD(Axis::X))?;
    Ok(Cut { blocks: [by, bx], threads: [ty, tx], patch: [fi, ni] })
}

/// The largest vector of up to `vector` elements that divides every one of `extents`.
pub(super) fn vector_of(vector: i64, extents: &[i64]) -> i64 {
    let mut v = vector.max(1);
    while extents.iter().any(|n| n % v != 0) {
        v /= 2;
    }
    v.max(1)
}

/// Lets all threads of a block fetch the tile that `stage` copies: its innermost loop in vectors of `vector` elements, and
/// the vectors shared out in rounds, neighbouring threads neighbouring vectors.
pub(super) fn fetch(s: &mut Schedule, stage: BufferId, tile: &Tile, vector: i64) -> Result<(), ScheduleError> {
    let mut loops = s.loops_of(stage);
    let mut lane = None;
    if let Some(last) = loops.pop() {
        let vector = vector_of(vector, &[extent(s, last)]);
        let [outer, inner] = s.split(last, vector, Tail::Perfect)?;
        loops.push(outer);
        lane = Some(inner).filter(|_| vector > 1);
    }
    strided_fetch(s, &loops, &[(Axis::Y, tile.threads[0]), (Axis::X, tile.threads[1])])?;
    lane.map_or(Ok(()), |lane| s.vectorize(lane))
}

/// Makes a thread's copy between shared memory or the output and its registers straight code: `along` in vectors of up to
/// `vector` elements, everything else unrolled.
pub(super) fn copy(s: &mut Schedule, loops: &[VarId], along: VarId, vector: i64) -> Result<(), ScheduleError> {
    let vector = vector_of(vector, &[extent(s, along)]);
    for v in loops.iter().filter(|v| **v != along) {
        s.unroll(*v)?;
    }
    let [outer, lane] = s.split(along, vector, Tail::Perfect)?;
    s.unroll(outer)?;
    // The loop over a vector must be innermost.
    let inside: Vec<VarId> = loops.iter().copied().skip_while(|v| *v != along).skip(1).collect();
    if vector > 1 && !inside.is_empty() {
        s.reorder(&[&[outer][..], &inside, &[lane]].concat())?;
    }
    if vector > 1 { s.vectorize(lane) } else { s.unroll(lane) }
}

/// Advice for the loops of a step: the compiler unrolls what is short.
pub(super) fn advise(s: &mut Schedule, step: VarId) -> Result<(), ScheduleError> {
    s.pragma(step, Pragma::AutoUnrollMaxStep(1500))?;
    s.pragma(step, Pragma::UnrollExplicit(false))
}
