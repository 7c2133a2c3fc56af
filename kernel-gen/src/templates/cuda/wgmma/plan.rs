//! The knobs of products on warpgroups: tiles, their ring, clusters and parts, and what these take of a block.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Tile};
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{knobs, words};
use crate::templates::cuda::instructions::tile;
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::requires;
use crate::templates::cuda::warpgroups::WARPGROUP;
use crate::workload::{Epilogue, Math, Op, Workload};

/// [`Template::longest_early_us`](crate::templates::Template::longest_early_us) of both templates. Measured on an H100, of captured
/// calls that begin early over others, by that floor (`docs/archive/perf-notes.md`): below 1.5 us 0.80 to 1.0, up to 4 us 0.92 to 1.26.
pub(super) const LONGEST_EARLY_US: f64 = 1.5;
/// What refused configs of both are told.
pub(super) const LIMITS: &str = "sums fit in registers, the ring in shared memory; turns are for two; clusters divide the tiles, parts the \
                                 reduction, and a tile's rows are boxes of pixels; the copy engine stores rows of whole 16-byte units";
/// Bytes of an operand's row in one step, and of a row of output in shared memory: the widest swizzle.
pub(super) const ROW_BYTES: i64 = 128;
/// Bytes of a line of memory.
const LINE_BYTES: i64 = 128;
/// Bytes of the reduction that an instruction multiplies.
const INSTRUCTION_BYTES: i64 = 32;
/// Elements along a dimension that the copy engine brings at a time.
pub(super) const MOST_BOX: i64 = 256;
/// The columns of tiles.
pub(super) const COLUMNS: [i64; 4] = [64, 128, 192, 256];
/// Columns of an instruction's sums come in multiples of 8, those of a block of an operand in multiples of 16.
pub(super) const FEWEST_COLUMNS: i64 = 16;
/// The most columns whose sums are made [apart](super::apart) at a time: a tile of 256 has 128 sums in a thread, and room for 64 more.
const WIDEST_APART: i64 = 128;
/// What parts of the outputs are rounded to.
const COLUMN_UNIT: i64 = 16;
/// Into how many parts a reduction may be cut.
pub(super) const SPLITS: [i64; 4] = [1, 2, 4, 8];
/// Rows of a tile whose reduction blocks share.
pub(super) const PART_ROWS: i64 = 64;
/// Elements by which rows of sums are longer than they need be, so that pairs of four rows lie in different banks.
pub(super) const PART_PAD: i64 = 8;
/// Pieces that a warp has in shared memory.
pub(super) const BUFFERS: i64 = 2;
/// Most buffers of a consumer: those of two on each multiprocessor hold what the memory of an H100 moves in 3 us.
pub(super) const MOST_BUFFERS: i64 = 4;

/// The device's data, or why it cannot run these kernels.
pub(super) fn device<'t>(w: &Workload, t: &'t Target) -> Result<&'t Cuda, String> {
    let cuda = requires::device(t)?;
    requires::needs_wgmma(cuda)?;
    match (w.dtype, w.math) {
        (DType::F16 | DType::Bf16, _) | (DType::F32, Math::Tf32) => Ok(cuda),
        (DType::I8 | DType::U8, _) => requires::no_zero_points(w).map(|()| cuda),
        (DType::E4m3 | DType::E5m2, math) if !math.is_local() => Ok(cuda),
        (dtype, math) => Err(format!(
            "multiplies f16 and bf16, f32 in the class tf32, i8 and u8, and e4m3 and e5m2 in the class fp32, not {dtype} in {}",
            math.name()
        )),
    }
}

/// Whether tensor cores multiply operands of the type as they lie, whatever their fast dimension: those of 16 bits. Of others the
/// reduction must be the fast dimension.
pub(super) fn takes_any_order(dtype: DType) -> bool {
    dtype.bytes() == 2
}

/// Whether weights are turned around when they are packed ([`turned`]), for tiles of `columns` columns, where in memory a row has `outputs`
/// elements. Of elements of 16 bits the copy engine brings rows of 128 bytes, and takes twice as long for those that lie across two
/// lines of memory: the weights of 1000 outputs, whose rows begin anywhere, or of tiles of 112 columns.
///
/// [`turned`]: crate::templates::cuda::turned
pub(super) fn turns(w: &Workload, columns: i64, outputs: i64) -> bool {
    let line = LINE_BYTES / w.dtype.bytes() as i64;
    !takes_any_order(w.dtype) || columns >= line && (columns % line != 0 || outputs % line != 0)
}

/// How many levels of sums there are: see [`Sizes::levels`].
fn levels(w: &Workload) -> i64 {
    if w.dtype.is_f8() || matches!(w.op, Op::ScaledMatmul(_)) { 2 } else { 1 }
}

/// Elements of the reduction in one step.
pub(super) fn depth(w: &Workload) -> i64 {
    ROW_BYTES / w.dtype.bytes() as i64
}

/// Elements of a reduction that are multiplied: whole instructions.
pub(super) fn multiplied(w: &Workload, reduction: i64) -> i64 {
    let instruction = INSTRUCTION_BYTES / w.dtype.bytes() as i64;
    ceil_div(reduction, instruction) * instruction
}

/// Elements of the reduction that a step brings and multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Depth {
    /// Of a slot's rows.
    pub(super) whole: i64,
    /// Of its short rows.
    pub(super) tail: i64,
}

/// The steps of a reduction, `tail` bytes of which lie in short rows: `body` gets where one begins, and how deep it is.
pub(super) fn each_step(
    b: &mut KernelBuilder,
    name: &str,
    w: &Workload,
    (reduction, tail): (i64, i64),
    body: &mut dyn FnMut(&mut KernelBuilder, Expr, Depth),
) {
    let depth = depth(w);
    let (whole, left) = (multiplied(w, reduction) / depth, multiplied(w, reduction) % depth);
    let with_tail = i64::from(tail > 0);
    if whole > with_tail {
        b.for_(name, whole - with_tail, |b, step| body(b, step * depth, Depth { whole: depth, tail: 0 }));
    }
    if tail > 0 {
        body(b, Expr::Int((whole - 1) * depth), Depth { whole: depth, tail: left });
    } else if left > 0 {
        body(b, Expr::Int(whole * depth), Depth { whole: left, tail: 0 });
    }
}

/// Elements of which rows in memory have whole numbers: 16 bytes, the unit of the copy engine.
pub(super) fn unit(w: &Workload) -> i64 {
    16 / w.dtype.bytes() as i64
}

/// Refuses rows in memory that are no whole units.
pub(super) fn whole_units(w: &Workload, channels: [i64; 2]) -> Result<(), String> {
    match (unit(w), channels.into_iter().find(|n| n % unit(w) != 0)) {
        (unit, Some(n)) => Err(format!("{n} channels: their number must divide by {unit}")),
        _ => Ok(()),
    }
}

words! {
    /// What the two blocks of a cluster share, each loading its half for both. Without clusters a block loads everything.
    enum Cluster {
        /// There are no clusters.
        None = "none",
        /// The blocks' tiles are neighbours along the rows, so they share the right operand.
        Rows = "rows",
        /// The blocks' tiles are neighbours along the columns, so they share the left operand.
        Columns = "columns",
    }
}

impl Cluster {
    /// Blocks of a cluster.
    pub(super) fn blocks(self) -> i64 {
        self.tiles().iter().product()
    }

    /// Tiles of a cluster along the rows and along the columns.
    pub(super) fn tiles(self) -> [i64; 2] {
        match self {
            Cluster::None => [1, 1],
            Cluster::Rows => [2, 1],
            Cluster::Columns => [1, 2],
        }
    }

    /// Whether its blocks share the left (0) or the right (1) operand.
    pub(super) fn shares(self, side: usize) -> bool {
        self.tiles()[1 - side] > 1
    }
}

words! {
    /// How consumers divide the work.
    enum Schedule {
        /// Each has some rows of one tile.
        Cooperative = "cooperative",
        /// Each has a tile of its own. One multiplies while the other stores.
        PingPong = "pingpong",
    }
}

words! {
    /// How sums get to the output.
    enum Store {
        /// Each thread stores the pairs that it holds.
        Registers = "registers",
        /// By way of shared memory, from where the copy engine takes them while the next tile is multiplied.
        Tma = "tma",
    }
}

knobs! {
    /// Sizes of a tile and its ring, and who does what, as a config has them.
    struct Sizes {
        /// Consumer warpgroups.
        pub(super) consumers: i64 = "consumers" in [1, 2, 3];
        /// Blocks of 64 rows of each.
        pub(super) row_blocks: i64 = "row_blocks" in [1, 2];
        /// Columns of a tile, as the outputs allow.
        pub(super) bn: i64 = "bn" in COLUMNS;
        /// Slots of the ring.
        pub(super) stages: i64 = "stages" in 2..=8;
        /// Tiles along the rows that are worked on at the same time, so that neighbours share what the L2 cache holds.
        pub(super) group: i64 = "group" in [1, 4, 8, 16];
        pub(super) cluster: Cluster = "cluster" in Cluster::ALL;
        pub(super) schedule: Schedule = "schedule" in Schedule::ALL;
        pub(super) store: Store = "store" in Store::ALL;
        /// Steps whose products may be under way when the next ones are issued.
        pub(super) pending: i64 = "pending" in [0, 1];
        /// Blocks that share a tile's reduction; a knob only where tiles are few.
        pub(super) split: i64 = "split" in SPLITS, or 1;
    }
    beside {
        /// Bytes of a slot's short rows.
        pub(super) tail: i64 = 0;
        /// Levels of sums: 2 where those of a step are made [apart](super::apart).
        pub(super) levels: i64 = 1;
        /// What the operands take where a ring of windows brings the left one, and the right one stays.
        pub(super) window: Option<Room> = None;
    }
}

impl Sizes {
    /// One consumer with `bn` columns and a ring of `stages` slots, in a block that shares nothing and stores from registers.
    pub(super) fn alone(bn: i64, stages: i64) -> Sizes {
        let (cluster, schedule, store) = (Cluster::None, Schedule::Cooperative, Store::Registers);
        let (consumers, row_blocks, group, pending, split, tail, levels, window) = (1, 1, 1, 0, 1, 0, 1, None);
        Sizes {
            consumers,
            row_blocks,
            bn,
            stages,
            group,
            cluster,
            schedule,
            store,
            pending,
            split,
            tail,
            levels,
            window,
        }
    }

    /// Blocks of a cluster, whatever they share.
    pub(super) fn blocks(&self) -> i64 {
        self.cluster.blocks() * self.split
    }

    /// Tiles that a block works on at the same time.
    pub(super) fn tiles_at_once(&self) -> i64 {
        match self.schedule {
            Schedule::Cooperative => 1,
            Schedule::PingPong => self.consumers,
        }
    }

    /// Rows of a tile.
    pub(super) fn bm(&self) -> i64 {
        64 * self.row_blocks * self.consumers / self.tiles_at_once()
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> i64 {
        WARPGROUP * (1 + self.consumers)
    }

    /// The same with short rows. Blocks that share a reduction share it in whole steps, and have none.
    pub(super) fn with_tail(self, tail: i64) -> Sizes {
        Sizes { tail: if self.split == 1 { tail } else { 0 }, ..self }
    }

    /// The same with the [levels](Sizes::levels) of sums that a workload needs.
    pub(super) fn with_levels(self, w: &Workload) -> Sizes {
        Sizes { levels: levels(w), ..self }
    }

    /// The same for a workload, as defaults are: steps whose sums are apart wait for their products.
    pub(super) fn sensible_for(self, w: &Workload) -> Sizes {
        let levels = levels(w);
        Sizes { levels, pending: if levels == 1 { self.pending } else { 0 }, ..self }
    }

    /// The sums of a consumer's row block `h`.
    pub(super) fn sums(&self, acc: BufferId, h: i64) -> Tile {
        tile(acc, vec![h.into(), 0.into(), 0.into()], &[1, 64, self.bn])
    }

    /// Columns whose sums are made [apart](super::apart) at a time: half of a tile's where it has many, or where the other half is under
    /// way meanwhile.
    pub(super) fn columns_apart(&self) -> i64 {
        if self.bn > WIDEST_APART || self.pending > 0 { self.bn / 2 } else { self.bn }
    }

    /// Bytes of one slot, with its short rows or without.
    pub(super) fn slot_bytes(&self, with_tail: bool) -> i64 {
        (ROW_BYTES + if with_tail { self.tail } else { 0 }) * (self.bm() + self.bn)
    }

    /// Bytes that this block loads of one operand in a step; of one that the blocks of a cluster share only its part.
    pub(super) fn loaded_bytes(&self, side: usize) -> i64 {
        let blocks = if self.cluster.shares(side) { self.cluster.blocks() } else { 1 };
        ROW_BYTES * [self.bm(), self.bn][side] / blocks
    }

    /// Registers that the sums of a consumer thread take.
    pub(super) fn accumulators(&self) -> i64 {
        let apart = if self.levels > 1 { (1 + self.pending) * self.columns_apart() } else { 0 };
        self.row_blocks * (self.bn + apart) / 2
    }

    /// The sizes with so many consumers at most, for so many outputs, that defaults are chosen from: as many stages as fit,
    /// up to 7.
    pub(super) fn sensible(
        cuda: &Cuda,
        most_consumers: i64,
        outputs: i64,
        store: Store,
        tail: i64,
    ) -> impl Iterator<Item = Sizes> {
        let deepest = move |consumers: i64, row_blocks: i64, bn: i64| {
            (2..=7)
                .rev()
                .map(move |stages| {
                    // One warpgroup alone has nobody else to multiply while it waits.
                    let pending = i64::from(consumers * row_blocks == 1);
                    Sizes { consumers, row_blocks, group: 8, store, pending, tail, ..Sizes::alone(bn, stages) }
                })
                .find(|sizes| sizes.fits(cuda))
        };
        let tall = [(1, 1), (2, 1), (2, 2), (3, 1)].into_iter().filter(move |(c, _)| *c <= most_consumers);
        let columns = columns(outputs);
        tall.flat_map(move |(c, r)| columns.clone().into_iter().map(move |bn| deepest(c, r, bn))).flatten()
    }

    /// Bytes of shared memory, with so many pieces of output for each consumer.
    pub(super) fn shared_bytes(&self, buffers: i64) -> i64 {
        // 16 bytes of barriers a slot and a piece and 8 a consumer, and up to 1024 bytes before the first slot, which must
        // be aligned to that.
        let pieces = match self.store {
            Store::Registers => 0,
            Store::Tma => self.consumers * buffers,
        };
        let sums = self.shared_sums_bytes();
        let operands = self.window.map_or(self.stages * (self.slot_bytes(true) + 16), |room| room.bytes(self.stages));
        operands + pieces * (64 * ROW_BYTES + 16) + sums + 16 + 1024
    }

    /// Bytes of shared memory beside the ring, where blocks share a reduction.
    fn shared_sums_bytes(&self) -> i64 {
        let rows = |pad: i64| 4 * PART_ROWS * (self.bn + pad);
        if self.split == 1 { 0 } else { rows(PART_PAD) + rows(4) + 16 }
    }

    /// Pieces of output that a consumer has in shared memory: two, of which one is written while the other is read; where a
    /// residual is brought there before, more, as many as find room.
    pub(super) fn buffers(&self, w: &Workload, cuda: &Cuda) -> i64 {
        let most = if adds_residual(w) { MOST_BUFFERS } else { BUFFERS };
        let fitting = (BUFFERS..=most).rev().find(|n| self.shared_bytes(*n) <= cuda.shared_per_block_optin);
        fitting.unwrap_or(BUFFERS)
    }

    /// Whether registers and shared memory suffice, the copy engine brings an operand at once, and turns are for two.
    pub(super) fn fits(&self, cuda: &Cuda) -> bool {
        // Beside them a thread needs some eighty registers.
        let most = match (self.consumers, self.levels) {
            (3.., _) => 80,
            (_, 1) => 128,
            _ => 192,
        };
        (self.schedule == Schedule::Cooperative || self.consumers == 2)
            && self.accumulators() <= most
            && self.bm() <= MOST_BOX
            && self.shared_bytes(BUFFERS) <= cuda.shared_per_block_optin
    }
}

/// The columns of tiles that so many outputs may be cut into: round numbers, and equal parts of the outputs. Of 3136 x 512 outputs
/// 25 x 5 tiles of 112 columns keep 125 of 132 multiprocessors busy for 7/8 of the time that 25 x 4 of 128 take.
pub(super) fn columns(outputs: i64) -> Vec<i64> {
    let mut columns = COLUMNS.to_vec();
    let (fewest, most) = (COLUMNS[0], COLUMNS[COLUMNS.len() - 1]);
    let parts = ceil_div(outputs, most)..=ceil_div(outputs, fewest);
    let even = parts.map(|n| ceil_div(ceil_div(outputs, n), COLUMN_UNIT) * COLUMN_UNIT);
    columns.extend(even.filter(|n| (fewest..=most).contains(n)));
    columns.extend(narrow(outputs));
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The columns of a tile that has all of few outputs: of 16, 32 or 48 tiles of 64 would be empty for a part, whose weights come
/// all the same, as rows of 128 bytes.
pub(super) fn narrow(outputs: i64) -> Option<i64> {
    let columns = ceil_div(outputs, FEWEST_COLUMNS) * FEWEST_COLUMNS;
    (columns < COLUMNS[0]).then_some(columns)
}

/// What a window of the input and the weights of a block take of shared memory. The workload and the config say it together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Room {
    /// Bytes of a slot.
    pub(super) slot: i64,
    /// Bytes of the weights.
    pub(super) weights: i64,
}

impl Room {
    /// Bytes of `stages` slots, of the weights, and of the barriers of both.
    pub(super) fn bytes(&self, stages: i64) -> i64 {
        stages * (self.slot + 16) + self.weights + 16
    }
}

/// The step of the epilogue that adds a residual and leaves what fits where the sums were: numbers, or integers that are rounded. Sums of
/// integers that became numbers do not.
pub(super) fn residual_step(w: &Workload) -> Option<usize> {
    let adds = if w.is_quantised() { Epilogue::RequantizeAdd } else { Epilogue::ResidualAdd };
    // The residual of an output in eight bits is an `f32`, and does not fit where that goes.
    w.epilogue.iter().position(|step| *step == adds).filter(|_| !w.out_dtype.is_f8())
}

/// Whether the copy engine brings a residual.
pub(super) fn adds_residual(w: &Workload) -> bool {
    residual_step(w).is_some()
}
