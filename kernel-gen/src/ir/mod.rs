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

pub mod builder;
pub mod expr;
pub mod gpu;
pub mod instruction;
pub mod lanes;
mod lex;
pub mod parse;
mod parse_expr;
mod parse_gpu;
pub mod print;
mod print_gpu;
pub mod stmt;
pub mod types;
pub mod visit;

pub use expr::{BinOp, Expr, UnOp, float_max, float_min};
pub use gpu::{GROUP_ROWS, Gpu, Group, LANE_COLUMNS, MbarrierOp, Operand, Slot, Unit, lane_order};
pub use instruction::GpuTiles;
pub use lanes::LaneOp;
pub use stmt::{Access, Axis, Barrier, For, LoopKind, Pragma, ReduceOp, Stmt, Tile};
pub use types::{DType, Type};

use std::collections::BTreeSet;

/// A loop variable or a `let`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VarId(pub u32);

/// A buffer: a parameter or something allocated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferId(pub u32);

/// What a variable is called and holds. Names are unique within a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Var {
    /// Name, as printed and as emitted.
    pub name: String,
    /// Its type; loop variables are `i64`.
    pub dtype: DType,
}

/// Where a buffer lives, and who sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// Memory that all threads of all blocks see. An allocation here is workspace the caller provides.
    Global,
    /// Memory of one thread block.
    Shared,
    /// Memory of one thread (of one iteration of a parallel loop on the CPU), indexed freely.
    Local,
    /// Registers of one thread: every index must be a constant once loops are unrolled and vectorised.
    Register,
    /// Registers of a warp or warpgroup, which hold a tile between them; see [`gpu`].
    Fragment(Unit),
    /// Barriers in the memory of one thread block; see [`gpu`].
    Mbarrier,
}

impl Scope {
    /// The word used in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Global => "global",
            Scope::Shared => "shared",
            Scope::Local => "local",
            Scope::Register => "register",
            Scope::Fragment(Unit::Warp) => "fragment.warp",
            Scope::Fragment(Unit::Warpgroup) => "fragment.warpgroup",
            Scope::Mbarrier => "mbarrier",
        }
    }

    /// All of them.
    pub const ALL: [Scope; 7] = [
        Scope::Global,
        Scope::Shared,
        Scope::Local,
        Scope::Register,
        Scope::Fragment(Unit::Warp),
        Scope::Fragment(Unit::Warpgroup),
        Scope::Mbarrier,
    ];

    /// Whether each thread has a copy of its own.
    pub fn is_private(self) -> bool {
        matches!(self, Scope::Local | Scope::Register)
    }
}

/// A dense array of known shape.
#[derive(Clone, PartialEq, Debug)]
pub struct Buffer {
    /// Name, unique within the kernel.
    pub name: String,
    /// Element type in memory.
    pub dtype: DType,
    /// Extents, outermost first. A scalar has shape `[1]`.
    pub shape: Vec<i64>,
    /// Distance in elements between neighbours along each dimension; row-major unless a schedule padded it.
    pub strides: Vec<i64>,
    /// Where it lives.
    pub scope: Scope,
    /// How a parameter is used; allocated buffers are [`Access::ReadWrite`].
    pub access: Access,
    /// Bytes in a row of the address map of shared memory, see [`gpu`]: 0 (none), 32, 64 or 128.
    pub swizzle: u32,
}

/// Row-major strides of a shape, in elements.
pub fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

impl Buffer {
    /// A row-major buffer.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[i64], scope: Scope) -> Self {
        Buffer {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            strides: row_major(shape),
            scope,
            access: Access::ReadWrite,
            swizzle: 0,
        }
    }

    /// Elements from the first to one past the last, padding between rows included.
    pub fn extent_elements(&self) -> i64 {
        if self.shape.contains(&0) {
            return 0;
        }
        1 + self.shape.iter().zip(&self.strides).map(|(n, s)| (n - 1) * s).sum::<i64>()
    }

    /// Bytes from the first to one past the last element.
    pub fn extent_bytes(&self) -> i64 {
        self.extent_elements() * self.dtype.bytes() as i64
    }

    /// Whether the strides are those of a dense row-major array.
    pub fn is_row_major(&self) -> bool {
        self.strides == row_major(&self.shape)
    }
}

/// A function over buffers. See the module's text for what it means.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Name of the function.
    pub name: String,
    /// All variables; indexed by [`VarId`].
    pub vars: Vec<Var>,
    /// All buffers; indexed by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// The buffers that the caller passes, in order.
    pub params: Vec<BufferId>,
    /// What runs.
    pub body: Vec<Stmt>,
}

impl Kernel {
    /// An empty kernel.
    pub fn new(name: impl Into<String>) -> Self {
        Kernel { name: name.into(), vars: vec![], buffers: vec![], params: vec![], body: vec![] }
    }

    /// The variable behind an id.
    pub fn var(&self, v: VarId) -> &Var {
        &self.vars[v.0 as usize]
    }

    /// The buffer behind an id.
    pub fn buffer(&self, b: BufferId) -> &Buffer {
        &self.buffers[b.0 as usize]
    }

    /// The buffer behind an id, to change it.
    pub fn buffer_mut(&mut self, b: BufferId) -> &mut Buffer {
        &mut self.buffers[b.0 as usize]
    }

    /// The buffer called `name`.
    pub fn find_buffer(&self, name: &str) -> Option<BufferId> {
        self.buffers.iter().position(|b| b.name == name).map(|i| BufferId(i as u32))
    }

    /// The variable called `name`.
    pub fn find_var(&self, name: &str) -> Option<VarId> {
        self.vars.iter().position(|v| v.name == name).map(|i| VarId(i as u32))
    }

    /// A new `i64` variable whose name starts with `hint` and is unique.
    pub fn fresh_var(&mut self, hint: &str) -> VarId {
        self.fresh_typed_var(hint, DType::I64)
    }

    /// A new variable of a given type.
    pub fn fresh_typed_var(&mut self, hint: &str, dtype: DType) -> VarId {
        let name = self.unique(hint);
        self.vars.push(Var { name, dtype });
        VarId(self.vars.len() as u32 - 1)
    }

    /// Adds a buffer, making its name unique.
    pub fn add_buffer(&mut self, mut buffer: Buffer) -> BufferId {
        buffer.name = self.unique(&buffer.name);
        self.buffers.push(buffer);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// `hint`, or `hint_1`, `hint_2`, ... : the first that is not taken.
    fn unique(&self, hint: &str) -> String {
        let names = || self.vars.iter().map(|v| &v.name).chain(self.buffers.iter().map(|b| &b.name));
        if !names().any(|n| n == hint) {
            return hint.to_string();
        }
        // Unrolled loops make thousands of one name: all are looked at once.
        let number = |name: &String| {
            let digits = name.strip_prefix(hint)?.strip_prefix('_')?;
            // `_01` and `_+1` are other names than `_1`.
            if digits.starts_with(['0', '+']) { None } else { digits.parse::<u64>().ok() }
        };
        let taken: BTreeSet<u64> = names().filter_map(number).collect();
        let free = (1..).zip(&taken).find(|(i, n)| i != *n).map_or(taken.len() as u64 + 1, |(i, _)| i);
        format!("{hint}_{free}")
    }

    /// Whether the buffer is a parameter.
    pub fn is_param(&self, b: BufferId) -> bool {
        self.params.contains(&b)
    }
}
