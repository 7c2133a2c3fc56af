//! The flat form that a kernel is compiled to.

use super::Mode;
use super::arithmetic::{CompareOp, FloatOp, IntOp};
use crate::ir::{BufferId, DType, Group, Kernel, LaneOp, ReduceOp, Stmt, Unit};

/// A slot of the integer or the floating register file.
pub(super) type Slot = u32;

/// A kernel ready to run, any number of times.
pub struct Program<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) mode: Mode,
    pub(super) ops: Vec<Op>,
    pub(super) accesses: Vec<Access>,
    pub(super) terms: Vec<Term>,
    pub(super) dims: Vec<Dim>,
    pub(super) overs: Vec<Vec<Slot>>,
    pub(super) launches: Vec<Launch>,
    pub(super) gpu: Vec<GpuOp>,
    pub(super) privates: Vec<Vec<BufferId>>,
    pub(super) buffers: Vec<Memory>,
    /// Elements of all buffers, instances included.
    pub(super) pool: usize,
    pub(super) races_tracked: bool,
    pub(super) lanes_tracked: bool,
    /// Register files at the start: constants in place.
    pub(super) ints: Vec<i64>,
    pub(super) floats: Vec<f64>,
    /// First slot of each variable.
    pub(super) slots: Vec<Slot>,
    /// For every operation, the statement it belongs to.
    pub(super) place_of: Vec<u32>,
    pub(super) places: Vec<Place<'k>>,
}

/// Where a buffer's elements are, and what is watched about them.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// First element in the pool.
    pub(super) base: usize,
    /// Elements of one instance.
    pub(super) size: usize,
    /// How many copies of it there are.
    pub(super) instances: usize,
    /// Who has a copy each.
    pub(super) copies: Copies,
    /// Whether its contents become undefined by counting allocations in each thread, as in launches whose threads run
    /// apart, and not by generations.
    pub(super) counted: bool,
    /// The unit between whose threads its elements are spread.
    pub(super) unit: Option<Unit>,
    pub(super) dtype: DType,
    pub(super) is_private: bool,
    pub(super) is_shared: bool,
    /// Whether reads must find written elements.
    pub(super) check_written: bool,
    /// Whether concurrent iterations may meet on it.
    pub(super) check_races: bool,
    /// Whether the lanes of a vectorised loop may meet on it.
    pub(super) check_lanes: bool,
}

/// Who has a copy of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copies {
    /// There is one.
    One,
    /// Each thread, in launches whose threads wait for each other.
    Thread,
    /// Each block of a cluster.
    Block,
    /// Each warp.
    Warp,
    /// Each warpgroup.
    Warpgroup,
}

/// One summand of an index: `factor * ints[slot]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) factor: i64,
    pub(super) slot: Slot,
}

/// `constant + sum of terms`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    pub(super) constant: i64,
    pub(super) first: u32,
    pub(super) count: u32,
}

/// An index whose bounds must be checked at run time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dim {
    pub(super) index: Linear,
    pub(super) extent: i64,
    pub(super) stride: i64,
}

/// An element of a buffer, as statements address it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) buffer: u32,
    /// The parts of the address that are known to be in bounds.
    pub(super) linear: Linear,
    /// The parts that are not.
    pub(super) first_dim: u32,
    pub(super) dims: u32,
}

/// A grid of blocks of threads.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// Blocks along x, y and z.
    pub(super) grid: [i64; 3],
    /// Threads of a block along x, y and z.
    pub(super) block: [i64; 3],
    /// Blocks of a cluster along x, y and z.
    pub(super) cluster: [i64; 3],
    /// Whether any thread may have to wait for another.
    pub(super) has_barrier: bool,
    /// Whether it has statements that only a GPU has, so that its threads are ordered by clocks.
    pub(super) has_gpu: bool,
    /// Private buffers that the threads use.
    pub(super) privates: u32,
    /// Shared buffers that the threads use.
    pub(super) shared: Vec<BufferId>,
    /// The operation behind the launch's last.
    pub(super) end: u32,
}

/// A statement and the statement it is inside of.
#[derive(Clone, Copy)]
pub(super) struct Place<'k> {
    pub(super) stmt: &'k Stmt,
    pub(super) parent: Option<u32>,
}

/// One operation. `d` is the destination, `a` and `b` are operands, `to` is an operation's index.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// An integer operation.
    Int { op: IntOp, d: Slot, a: Slot, b: Slot },
    /// `d = linear form`.
    Linear { d: Slot, form: Linear },
    /// A floating operation; `single` rounds the result to `f32`.
    Float { op: FloatOp, single: bool, d: Slot, a: Slot, b: Slot },
    /// A comparison of floats into an integer slot.
    FloatCompare { op: CompareOp, d: Slot, a: Slot, b: Slot },
    /// Copies.
    IntMove { d: Slot, a: Slot },
    /// Copies.
    FloatMove { d: Slot, a: Slot },
    /// Conversions.
    IntToFloat { d: Slot, a: Slot, dtype: DType },
    /// Conversions, toward zero.
    FloatToInt { d: Slot, a: Slot, dtype: DType },
    /// Rounds.
    FloatToFloat { d: Slot, a: Slot, dtype: DType },
    /// Conversions.
    IntToInt { d: Slot, a: Slot, dtype: DType },
    /// Reads an element of a floating buffer.
    FloatLoad { d: Slot, access: u32 },
    /// Reads an element of an integer buffer.
    IntLoad { d: Slot, access: u32 },
    /// Writes.
    FloatStore { a: Slot, access: u32 },
    /// Writes.
    IntStore { a: Slot, access: u32 },
    /// `access = (all of over are 0 ? init : access) op a`. `over` is `u32::MAX` when there is no initialisation.
    FloatReduce { op: ReduceOp, a: Slot, init: Slot, access: u32, over: u32 },
    /// Likewise.
    IntReduce { op: ReduceOp, a: Slot, init: Slot, access: u32, over: u32 },
    /// Goes on at `to`.
    Jump { to: u32 },
    /// Goes on at `to` when the slot is 0.
    JumpIfZero { a: Slot, to: u32 },
    /// Sets a loop variable to 0, or goes on at `to` when there is no iteration.
    LoopBegin { v: Slot, extent: i64, to: u32 },
    /// Counts up and repeats from `to`, or falls through.
    LoopEnd { v: Slot, extent: i64, to: u32 },
    /// Sets a loop variable to the hardware index of an axis, or goes on at `to` if it is not less than the extent.
    /// Axes 0 to 2 are the grid's, 3 to 5 the block's, 6 to 8 the cluster's.
    HardwareIndex { v: Slot, axis: u8, extent: i64, to: u32 },
    /// A parallel loop begins.
    ParallelBegin,
    /// One of its iterations begins.
    ParallelIteration { v: Slot, privates: u32 },
    /// It ends.
    ParallelEnd { privates: u32 },
    /// A vectorised loop begins.
    LanesBegin,
    /// One of its lanes begins.
    Lane { v: Slot },
    /// It ends.
    LanesEnd,
    /// Makes a buffer's contents undefined.
    Alloc { buffer: u32 },
    /// Waits.
    Barrier { warp: bool },
    /// A statement that only a GPU has.
    Gpu { gpu: u32 },
    /// Goes on at `to` unless this thread holds the row (or column) of a fragment with so many warps.
    FragmentIndex { v: Slot, column: bool, warps: u8, to: u32 },
    /// What follows is run by one thread for its unit of so many warps; the others go on at `to`.
    UnitBegin { warps: u8, to: u32 },
    /// Its end.
    UnitEnd,
    /// Starts a grid.
    Launch { launch: u32 },
    /// The thread, or the kernel, ends.
    Halt,
}

/// A tile, ready to run.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) buffer: u32,
    /// Index of its first element.
    pub(super) origin: Vec<Linear>,
    pub(super) extents: Vec<i64>,
    /// Its elements in row-major order, relative to the first.
    pub(super) offsets: Vec<usize>,
}

/// An operand of a product: the tile as a matrix.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    pub(super) tile: Block,
    /// Of the tile as it is stored.
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Columns of one of the blocks that stand side by side; all of them where there is one block.
    pub(super) block_cols: usize,
    pub(super) transposed: bool,
}

impl Matrix {
    /// Rows and columns as the product sees them.
    pub(super) fn shape(&self) -> (usize, usize) {
        if self.transposed { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }

    /// The element's place among the tile's.
    pub(super) fn at(&self, row: usize, col: usize) -> usize {
        let (row, col) = if self.transposed { (col, row) } else { (row, col) };
        (col / self.block_cols * self.rows + row) * self.block_cols + col % self.block_cols
    }
}

/// An mbarrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct On {
    pub(super) buffer: u32,
    pub(super) index: Linear,
}

/// An operation on an mbarrier.
#[derive(Clone, Copy, Debug)]
pub(super) enum MbarrierAct {
    Init(i64),
    Arrive(Option<Slot>),
    Expect(i64),
    Wait(Slot),
}

/// A statement that only a GPU has, ready to run.
#[derive(Clone, Debug)]
pub(super) enum GpuOp {
    Fill {
        unit: Unit,
        dst: Block,
        value: Slot,
    },
    Move {
        unit: Unit,
        dst: Block,
        src: Block,
    },
    MoveRows {
        dst: Block,
        src: Block,
    },
    Split {
        unit: Unit,
        /// `[parts, rows, columns]`.
        dst: Block,
        src: Matrix,
    },
    Mma {
        unit: Unit,
        acc: Matrix,
        a: Matrix,
        b: Matrix,
    },
    Lanes {
        op: &'static LaneOp,
        dst: Block,
        value: Slot,
    },
    CopyAsync {
        dst: Block,
        src: Block,
        guard: Option<Slot>,
    },
    Commit(Group),
    Wait(Group, u32),
    TensorLoad {
        dst: Block,
        src: Block,
        steps: Vec<i64>,
        on: On,
        multicast: Option<Slot>,
    },
    TensorStore {
        dst: Block,
        src: Block,
    },
    StoreAt {
        dst: Block,
        values: Vec<Slot>,
        rank: Slot,
        on: On,
    },
    Mbarrier {
        on: On,
        act: MbarrierAct,
    },
    Fence,
    Named {
        id: u32,
        threads: i64,
    },
    Cluster,
    /// Without effect on what is computed.
    Nothing,
}
