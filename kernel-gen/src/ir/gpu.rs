//! What only a GPU does: tiles in the registers of a warp, asynchronous copies, barriers in memory.
//!
//! A GPU kernel is said from the point of view of one thread, as in CUDA: below the `thread` loops every statement is
//! run by each thread. A *collective* statement is run by all threads of its [`Unit`] together: they must reach it
//! together, with operands that do not differ among them.
//!
//! | statement | runs | completes |
//! |---|---|---|
//! | `fill`, `move`, `move_rows`, `split`, `mma.warp`, `shuffle_xor_*` | collectively, by a warp (`fill` and `split` by the fragment's unit) | at once |
//! | `mma.warpgroup` | collectively, by a warpgroup | at `wait mma` |
//! | `copy_async` | in each thread | at `wait copy` for the thread, at a barrier behind it for others |
//! | `tensor_load` | in one thread | when the mbarrier's phase ends |
//! | `tensor_store` | in one thread | at `wait store` (the source may be overwritten) |
//! | `prefetch` | in each thread | never: it is a hint |
//! | `store_at` | in each thread | when the phase of the other block's mbarrier ends |
//! | `mbarrier`, `fence`, `barrier named` | in each thread | at once, or when others have come |
//!
//! `mma.warp` names the product, not the instruction: CUDA has two families for it that use the same tensor cores. From
//! compute capability 7.5 on it is emitted as `ldmatrix` and `mma.sync`, and not as the `wmma` of the C++ API and of the
//! tutorials, because `wmma` leaves it to the compiler which thread holds which element. Loops over a fragment's elements
//! need to know, and so do epilogues in registers; `ldmatrix` reads swizzled rows, which `wmma.load` cannot.
//!
//! Compute capability 7.0 has `mma.sync` on other shapes only, so there `fill`, `move` and `mma.warp` are `wmma` in PTX, on
//! tiles of 16 x 16. Nothing else touches a fragment there (`analysis/verify/opaque.rs`): no loop over elements, no `move`
//! that converts, no `move_rows` and no `split`.
//!
//! Sums are `f32`, or `f16` where operands are. Those in `f16` are added up in `f32` for the depth of one `mma.warp`, and
//! rounded then; hardware may round more often, once in four products.
//!
//! An **mbarrier** counts arrivals and bytes. A phase ends when as many arrivals came as `init` said and no byte that
//! an `expect` announced is missing; the next begins at once. `wait b[i] parity p` waits until the phase of parity `p`
//! has ended: a fresh barrier is in phase 0, so waiting for parity 1 does not wait. *(PTX ISA, "mbarrier".)*
//!
//! A **fragment** (scope [`Scope::Fragment`](super::Scope::Fragment)) is a tile that the registers of a unit hold
//! between them. Accumulators are laid out as the tensor cores leave them: element `(i, j)` is held by lane
//! `i % 8 * 4 + j % 8 / 2` of warp `i / 16` of the unit. Loops of kind `fragment.row` and, inside, `fragment.col` visit
//! each element in the thread that holds it; that is how an epilogue is said.
//!
//! Tensor cores want two neighbours along the reduction in a register, and from a row of global memory a lane brings
//! eight at a time. In which order a product adds up is of no importance, so `move_rows` leaves each lane what it brought: of
//! each 32 columns, column `j` of memory becomes column [`lane_order`]`(j)` of the fragment, and the right operand's rows
//! must be in that order, too.
//!
//! An operand of `mma.warpgroup` is a matrix whose rows are `swizzle` bytes of shared memory; a wider one is said with
//! three extents `[blocks, rows, columns]` above 1, blocks that stand side by side: the matrix `rows x (blocks * columns)`.
//! The right operand may have more columns than the accumulator, where its blocks are not all needed: these are not multiplied.
//! Of a left operand that is not transposed the blocks may be groups of eight rows, as many as make the accumulator's rows: these
//! stand one below the other, and both they and the first row may begin at any row of the buffer. So a convolution's pixels are
//! read for every tap from where they lie, 8 neighbours of a row to a group.
//!
//! The left operand of `mma.warpgroup` may be a fragment of the warpgroup instead. Of elements that are `f32` tensor cores
//! multiply the first 10 fraction bits (**tf32**) and ignore the others. `split` fills such a fragment from `f32` in memory,
//! each part with what those before it leave over, which is exact in `f32`:
//! * in tf32 (a fragment of `f32`): part 0 is the value rounded, and part 1 loses at most its last bit. The sum of the
//!   products of two parts is then an `f32` product but for about 2^-22 of it. *(PTX ISA, "Alternate floating point"; Ootomo
//!   and Yokota, arXiv:2203.03341.)*
//! * in bf16: every part is rounded to nearest even. Three parts of 8 bits each are all of an `f32` whose last bit bf16 can
//!   hold, which is so from 2^-110 on. *(Henry, Tang and Heinecke, arXiv:1904.06376.)*
//!
//! Infinite elements give NaN, since the rest of infinity is one. An asynchronous product reads its fragment until it is
//! waited for: it must not be filled again before.
//!
//! A shared buffer's **swizzle** is an address map: within each 8 rows of `swizzle` bytes, the 16-byte units of row `r`
//! are exchanged by XOR with `r`. Indices do not know of it.

pub use super::types::Unit;
use super::{BufferId, DType, Expr, LaneOp, Tile};

/// Asynchronous operations that are committed in groups and waited for in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// `copy_async` of this thread.
    Copy,
    /// `mma.warpgroup` of this warpgroup.
    Mma,
    /// `tensor_store` of this thread.
    Store,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 3] = [Group::Copy, Group::Mma, Group::Store];

    /// The word in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Group::Copy => "copy",
            Group::Mma => "mma",
            Group::Store => "store",
        }
    }
}

/// An operand of a tensor-core product.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// Where it is.
    pub tile: Tile,
    /// Whether the tile holds the transposed matrix: `k x m` instead of `m x k`, `n x k` instead of `k x n`.
    pub transposed: bool,
}

/// Rows of a group: what the address map of a swizzle repeats after.
pub const GROUP_ROWS: i64 = 8;

impl Operand {
    /// Whether this left operand of `mma.warpgroup` is groups of eight rows one below the other, for so many rows of sums. See the
    /// module's text.
    pub fn is_grouped(&self, rows: i64) -> bool {
        let long: Vec<i64> = self.tile.extents.iter().copied().filter(|n| *n != 1).collect();
        !self.transposed && matches!(long[..], [groups, GROUP_ROWS, _] if groups * GROUP_ROWS == rows)
    }
}

/// An element of a buffer of mbarriers.
#[derive(Clone, PartialEq, Debug)]
pub struct Slot {
    /// The buffer, of scope `mbarrier` and rank 1.
    pub buffer: BufferId,
    /// Which of its barriers.
    pub index: Expr,
}

/// What is done with an mbarrier.
#[derive(Clone, PartialEq, Debug)]
pub enum MbarrierOp {
    /// Makes it: a phase ends after so many arrivals. By one thread, before all others use it.
    Init(i64),
    /// Counts one arrival, at this barrier in the block of that rank of the cluster, or in one's own.
    Arrive(Option<Expr>),
    /// Counts one arrival and announces bytes of `tensor_load`s and `store_at`s.
    Expect(i64),
    /// Waits until the phase of this parity has ended.
    Wait(Expr),
}

/// Whether a thread holds elements of a row of an accumulator that so many warps hold between them (the PTX manual's
/// figures of `mma` and `wgmma` accumulators).
pub fn holds_row(thread: i64, row: i64, warps: i64) -> bool {
    row / 16 % warps == thread / 32 % warps && row % 8 == thread % 32 / 4
}

/// Whether a thread holds elements of a column, in the rows that it holds.
pub fn holds_column(thread: i64, column: i64) -> bool {
    column % 8 / 2 == thread % 4
}

/// Columns that [`Gpu::MoveRows`] orders among themselves: four lanes bring eight each.
pub const LANE_COLUMNS: i64 = 32;

/// The column of a fragment in which [`Gpu::MoveRows`] puts column `j` of memory.
///
/// Lane `c` of four brings columns `8 c` to `8 c + 7`, in four registers. The first two are what it holds of one base matrix
/// of 16 columns, `2 c` and `2 c + 8` with their neighbours, the other two of the next. *(PTX ISA, "Matrix fragments for
/// mma.m16n8k16".)*
pub fn lane_order(j: i64) -> i64 {
    let (group, lane, register, element) = (j.div_euclid(32), j / 8 % 4, j / 2 % 4, j % 2);
    32 * group + 16 * (register / 2) + 8 * (register % 2) + 2 * lane + element
}

/// A statement that only a GPU has. See the module's text.
#[derive(Clone, PartialEq, Debug)]
pub enum Gpu {
    /// `dst = value` for every element of a fragment's tile.
    Fill {
        /// Tile of a fragment.
        dst: Tile,
        /// A scalar, the same in all threads of the unit.
        value: Expr,
    },
    /// Copies a tile between memory and a fragment of the warp, or rounds sums in `f32` to a left operand of 16 bits.
    ///
    /// Tensor cores leave sums in the threads that hold the elements of a left operand, so the latter exchanges nothing. *(PTX ISA,
    /// "Matrix fragments for mma.m16n8k16".)*
    Move {
        /// Destination.
        dst: Tile,
        /// Source, of the same extents apart from ones. One of the two is a fragment, or both are fragments of one unit.
        src: Tile,
    },
    /// Copies rows of global memory into a left operand of the warp, 16 bytes a lane at a time, with the columns in
    /// [`lane_order`]; the part outside of the tensor is read as zeros, in pieces of 16 bytes.
    MoveRows {
        /// Tile of a fragment: a multiple of 16 rows by a multiple of 32 columns, of 16 bits.
        dst: Tile,
        /// Source, of the same extents apart from ones; rows of whole pieces, the last dimension fast.
        src: Tile,
    },
    /// Copies a matrix from memory into a fragment as parts: the value rounded, and what each part leaves over.
    Split {
        /// Tile `[parts, rows, columns]` of a fragment, a left operand; 1 or 2 parts in `f32` (taken as tf32), 1 to 3 in
        /// `bf16`.
        dst: Tile,
        /// Source, `f32`, `rows x columns`.
        src: Operand,
    },
    /// `acc += a * b` on tensor cores, accumulated in the accumulator's type.
    Mma {
        /// Who: the warp with operands in fragments, the warpgroup with operands in shared memory or the left one in a
        /// fragment.
        unit: Unit,
        /// Accumulator: a fragment, `m x n`.
        acc: Tile,
        /// Left operand, `m x k`.
        a: Operand,
        /// Right operand, `k x n`.
        b: Operand,
    },
    /// Each lane of a warp gives a value and receives one, see [`lanes`](super::lanes).
    Lanes {
        /// What the lanes do.
        op: &'static LaneOp,
        /// One element of registers, `f32`.
        dst: Tile,
        /// What this lane gives, `f32`.
        value: Expr,
    },
    /// Copies 4, 8 or 16 bytes from global to shared memory without passing registers; zeros where the guard fails.
    CopyAsync {
        /// Destination in shared memory.
        dst: Tile,
        /// Source in global memory; in bounds where the guard holds.
        src: Tile,
        /// Whether to read; always, if absent.
        guard: Option<Expr>,
    },
    /// Closes the group of the asynchronous operations since the last `commit`.
    Commit(Group),
    /// Waits until at most so many of the latest groups are unfinished.
    Wait(Group, u32),
    /// Copies a box of a tensor in global memory to shared memory, with the copy engine.
    TensorLoad {
        /// Destination, dense but for the swizzle, whose rows need not be full; as many elements as the source, in the same
        /// row-major order.
        dst: Tile,
        /// Source; the part of it outside of the tensor is read as zeros.
        src: Tile,
        /// Distance between neighbours of the box along each dimension; empty means 1 everywhere.
        steps: Vec<i64>,
        /// The barrier that counts the bytes.
        on: Slot,
        /// The blocks of the cluster that receive it, one bit a rank, each at the same place; only this block, if absent.
        multicast: Option<Expr>,
    },
    /// Copies a box from shared memory to a tensor in global memory; the part outside of the tensor is dropped.
    TensorStore {
        /// Destination.
        dst: Tile,
        /// Source, as the destination of [`Gpu::TensorLoad`].
        src: Tile,
    },
    /// `dst = values` in the shared memory of another block of the cluster (or in one's own): the bytes count at that
    /// block's barrier `on`, and the values can be read there when its phase has ended.
    StoreAt {
        /// One, two or four neighbours in shared memory, of type f32; their place is the same in all blocks.
        dst: Tile,
        /// A scalar for each.
        values: Vec<Expr>,
        /// The block that receives it, by its rank in the cluster.
        rank: Expr,
        /// The barrier of that block which counts the bytes.
        on: Slot,
    },
    /// An operation on an mbarrier.
    Mbarrier(Slot, MbarrierOp),
    /// What this thread wrote to shared memory is visible to the copy engine and the tensor cores behind it.
    FenceAsync,
    /// Waits until so many threads are at the barrier of this number (1 to 15).
    NamedBarrier {
        /// Which.
        id: u32,
        /// Threads that come, a multiple of 32.
        threads: i64,
    },
    /// All threads of the cluster wait for each other.
    ClusterBarrier,
    /// Asks for this many registers a thread from here on, for this warpgroup.
    SetMaxRegisters(u32),
    /// Asks for neighbouring elements of global memory to be brought into the second-level cache, which all blocks share: a hint, which
    /// may run before the launches in front have ended, whatever they write.
    Prefetch {
        /// Whole rows of a dense tensor, or a part of one.
        src: Tile,
    },
    /// Waits until the launches before this one in the stream have completed.
    DependencyWait,
    /// The next launch in the stream may begin.
    DependencyLaunch,
}

impl Gpu {
    /// What addresses and bytes of a [`Gpu::Prefetch`] are multiples of (PTX ISA, "cp.async.bulk.prefetch").
    pub const PREFETCH_UNIT: i64 = 16;

    /// The most parts that `split` makes, in a fragment of a type that can hold parts.
    pub fn most_parts(dtype: DType) -> Option<i64> {
        match dtype {
            DType::F32 => Some(2),
            DType::Bf16 => Some(3),
            _ => None,
        }
    }
}
