//! The loop IR.
//!
//! A [`Kernel`] is a list of typed buffers and a tree of statements. It means one thing, whatever stage of the
//! pipeline it stands in:
//!
//! * **Shapes are constants.** Every extent and every buffer dimension is a number. Loops run from 0.
//! * **Expressions have no side effects** and no evaluation order. Integer expressions are exact (`i64`); `/` and
//!   `%` on integers are *floor* division and its remainder. Floating expressions may be contracted
//!   (`a * b + c` as one FMA) but not reassociated; a schedule is what reassociates a reduction.
//! * **`select`, `&&` and `||` do not evaluate what they do not need**: `select(c, t, f)` reads only the side that
//!   is chosen, so a load under a select needs to be in bounds only where its condition holds.
//! * **Statements run in order.** A loop's [`LoopKind`] says how iterations may overlap: `serial` and `unrolled`
//!   run one after the other, `vectorized` iterations run in lockstep, `parallel` and `grid` iterations in any
//!   order, `thread` loops are executed by one thread of a block per iteration, and `vthread` iterations are
//!   interleaved within a thread. Two thread loops with the same axis denote the same hardware index.
//! * **A reduction is one statement**, [`Stmt::Reduce`]: `acc[i] += value`, preceded by `acc[i] = init` in the first
//!   iteration of *its own* reduce loops (the `over` list). A schedule can therefore split, fuse and reorder reduce
//!   loops freely; the lowering pass `decompose_reduction` puts the initialisation where it belongs.
//! * **A buffer has a scope** ([`Scope`]) and lives from its [`Stmt::Alloc`] to the end of the enclosing block;
//!   parameters live throughout. Contents are undefined until written.
//!
//! Statements and expressions are owned trees; variables and buffers are dense ids into the kernel's tables. Loops
//! are named by their variable: each variable is bound by at most one `for` or `let`.
//!
//! The text form ([`mod@print`], [`mod@parse`]) holds everything and round-trips.

pub mod bits;
mod buffer;
pub mod builder;
pub mod expr;
pub mod gpu;
pub mod instruction;
mod kernel;
pub mod lanes;
mod lex;
pub mod parse;
mod parse_expr;
mod parse_gpu;
pub mod print;
pub mod stmt;
pub mod types;
pub mod visit;

pub use buffer::{Access, Buffer, Scope, Tile, row_major};
pub use expr::{BinOp, Expr, UnOp, float_max, float_min};
pub use gpu::{GROUP_ROWS, Gpu, Group, LANE_COLUMNS, MbarrierOp, Operand, Slot, holds_column, holds_row, lane_order};
pub use instruction::GpuTiles;
pub use kernel::{First, Kernel, Size, Var};
pub use lanes::LaneOp;
pub use stmt::{Axis, Barrier, For, LoopKind, Pragma, ReduceOp, Stmt};
pub use types::{BufferId, DType, FloatFormat, Type, Unit, VarId};
