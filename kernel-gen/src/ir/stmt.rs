//! Statements: what runs, in order.

pub use super::buffer::{Access, Tile};
use super::{BufferId, Expr, Gpu, VarId};

/// A hardware index axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Axis {
    /// The fastest.
    X,
    /// The middle one.
    Y,
    /// The slowest.
    Z,
}

/// How the iterations of a loop relate. See [`crate::ir`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LoopKind {
    /// One after the other.
    Serial,
    /// One after the other, copied out.
    Unrolled,
    /// In lockstep, as the lanes of a vector.
    Vectorized,
    /// In any order, on the threads of a CPU.
    Parallel,
    /// One block of a grid each.
    Grid(Axis),
    /// One thread of a block each.
    Thread(Axis),
    /// Interleaved within one thread.
    VThread,
    /// One block of a cluster each.
    Cluster(Axis),
    /// One row of a fragment each, in the threads that hold it; see [`crate::ir::gpu`].
    FragmentRow,
    /// One column of a fragment each, in the thread that holds its element of the row.
    FragmentCol,
}

impl LoopKind {
    /// The word in the text form.
    pub fn name(self) -> &'static str {
        match self {
            LoopKind::Serial => "serial",
            LoopKind::Unrolled => "unrolled",
            LoopKind::Vectorized => "vectorized",
            LoopKind::Parallel => "parallel",
            LoopKind::Grid(Axis::X) => "grid.x",
            LoopKind::Grid(Axis::Y) => "grid.y",
            LoopKind::Grid(Axis::Z) => "grid.z",
            LoopKind::Thread(Axis::X) => "thread.x",
            LoopKind::Thread(Axis::Y) => "thread.y",
            LoopKind::Thread(Axis::Z) => "thread.z",
            LoopKind::VThread => "vthread",
            LoopKind::Cluster(Axis::X) => "cluster.x",
            LoopKind::Cluster(Axis::Y) => "cluster.y",
            LoopKind::Cluster(Axis::Z) => "cluster.z",
            LoopKind::FragmentRow => "fragment.row",
            LoopKind::FragmentCol => "fragment.col",
        }
    }

    /// All of them.
    pub const ALL: [LoopKind; 16] = [
        LoopKind::Serial,
        LoopKind::Unrolled,
        LoopKind::Vectorized,
        LoopKind::Parallel,
        LoopKind::Grid(Axis::X),
        LoopKind::Grid(Axis::Y),
        LoopKind::Grid(Axis::Z),
        LoopKind::Thread(Axis::X),
        LoopKind::Thread(Axis::Y),
        LoopKind::Thread(Axis::Z),
        LoopKind::VThread,
        LoopKind::Cluster(Axis::X),
        LoopKind::Cluster(Axis::Y),
        LoopKind::Cluster(Axis::Z),
        LoopKind::FragmentRow,
        LoopKind::FragmentCol,
    ];

    /// Whether iterations may run at the same time in different threads.
    pub fn is_concurrent(self) -> bool {
        matches!(self, LoopKind::Parallel | LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_))
    }
}

/// Advice attached to a loop by the `pragma` primitive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pragma {
    /// Unroll loops below this one as long as the unrolled body has at most this many steps.
    AutoUnrollMaxStep(i64),
    /// Whether the unroller copies bodies out itself (true) or leaves `#pragma unroll` to the compiler.
    UnrollExplicit(bool),
    /// On a CPU, each iteration asks the caches for what the iteration this many later will read in vectors: where a loop
    /// streams memory once, processors fetch ahead within a page of 4 KiB only, and start again at each.
    FetchAhead(i64),
    /// On a CPU, vectors that the body loads into register buffers stay in registers for all that uses them. Compilers else read
    /// them from memory again where an instruction takes an operand from there, as if a vector that lies across two cache lines
    /// cost nothing.
    HoldVectors(bool),
}

/// A loop over `0..extent`.
#[derive(Clone, PartialEq, Debug)]
pub struct For {
    /// Its variable, which is also its name.
    pub var: VarId,
    /// Number of iterations.
    pub extent: i64,
    /// How they relate.
    pub kind: LoopKind,
    /// Advice for lowering.
    pub pragmas: Vec<Pragma>,
    /// What each iteration runs.
    pub body: Vec<Stmt>,
}

/// How a reduction combines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// Maximum; of floats NaN if one of them is.
    Max,
    /// Minimum; of floats NaN if one of them is.
    Min,
}

/// Who waits at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Barrier {
    /// All threads of the block.
    Block,
    /// The threads of a warp.
    Warp,
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// A loop.
    For(For),
    /// `buffer[indices] = value`. With a vector index, lane by lane.
    Store {
        /// Destination.
        buffer: BufferId,
        /// One a dimension.
        indices: Vec<Expr>,
        /// What is stored, converted to the buffer's type.
        value: Expr,
    },
    /// `buffer[indices] = init` if all of `over` are 0, then `buffer[indices] = buffer[indices] op value`.
    Reduce {
        /// Destination.
        buffer: BufferId,
        /// One a dimension.
        indices: Vec<Expr>,
        /// How values combine.
        op: ReduceOp,
        /// What the sum starts from.
        init: Expr,
        /// What is added.
        value: Expr,
        /// The reduce loops of this reduction: they enclose it, and no index mentions them. Empty means that the
        /// initialisation has already been separated.
        over: Vec<VarId>,
    },
    /// A conditional.
    If {
        /// A scalar truth value.
        cond: Expr,
        /// Runs where it holds.
        then: Vec<Stmt>,
        /// Runs where it does not.
        otherwise: Vec<Stmt>,
    },
    /// Names a value for the rest of the block.
    Let {
        /// Its name.
        var: VarId,
        /// Its value.
        value: Expr,
    },
    /// Makes a buffer for the rest of the block.
    Alloc(BufferId),
    /// Threads wait for each other; memory written before is visible after.
    Barrier(Barrier),
    /// The tile intrinsic `dst[j, i] = src[i, j]` on the last two dimensions of both operands, whose other extents are
    /// 1: how vectors of channels become rows of pixels without going lane by lane.
    Transpose {
        /// Destination, n x m.
        dst: Tile,
        /// Source, m x n; another buffer.
        src: Tile,
    },
    /// What only a GPU has.
    Gpu(Gpu),
}

impl Stmt {
    /// A serial loop.
    pub fn for_(var: VarId, extent: i64, body: Vec<Stmt>) -> Stmt {
        Stmt::For(For { var, extent, kind: LoopKind::Serial, pragmas: vec![], body })
    }

    /// A store.
    pub fn store(buffer: BufferId, indices: Vec<Expr>, value: Expr) -> Stmt {
        Stmt::Store { buffer, indices, value }
    }

    /// `if cond { then }`.
    pub fn if_(cond: Expr, then: Vec<Stmt>) -> Stmt {
        Stmt::If { cond, then, otherwise: vec![] }
    }

    /// A sum that starts from zero.
    pub fn sum(buffer: BufferId, indices: Vec<Expr>, value: Expr, over: Vec<VarId>) -> Stmt {
        Stmt::Reduce { buffer, indices, op: ReduceOp::Add, init: Expr::f32(0.0), value, over }
    }
}
