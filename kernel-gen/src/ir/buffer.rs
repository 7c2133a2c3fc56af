//! Memory: buffers, their scopes, and pieces of them.

use super::{BufferId, DType, Expr, Unit};
use std::fmt;

/// How the caller's buffer is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Only read.
    Read,
    /// Only written, every element of it.
    Write,
    /// Both.
    ReadWrite,
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
    /// Registers of a warp or warpgroup, which hold a tile between them; see [`gpu`](super::gpu).
    Fragment(Unit),
    /// Barriers in the memory of one thread block; see [`gpu`](super::gpu).
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

    /// The threads that hold a fragment between them.
    pub fn unit(self) -> Option<Unit> {
        match self {
            Scope::Fragment(unit) => Some(unit),
            _ => None,
        }
    }

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
    /// Elements before the first one, in memory: a parameter may be a part of a larger tensor.
    pub offset: i64,
    /// Where it lives.
    pub scope: Scope,
    /// How a parameter is used; allocated buffers are [`Access::ReadWrite`].
    pub access: Access,
    /// Bytes in a row of the address map of shared memory, see [`gpu`](super::gpu): 0 (none), 32, 64 or 128.
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
            offset: 0,
            scope,
            access: Access::ReadWrite,
            swizzle: 0,
        }
    }

    /// Elements from the beginning of the memory to one past the last, padding between rows included.
    pub fn extent_elements(&self) -> i64 {
        if self.shape.contains(&0) {
            return 0;
        }
        self.offset + 1 + self.shape.iter().zip(&self.strides).map(|(n, s)| (n - 1) * s).sum::<i64>()
    }

    /// Bytes from the first to one past the last element.
    pub fn extent_bytes(&self) -> i64 {
        self.extent_elements() * self.dtype.bytes() as i64
    }

    /// Where an element lies, in elements from the beginning of the memory.
    pub fn address(&self, index: &[Expr]) -> Expr {
        let first = (self.offset != 0).then_some(Expr::Int(self.offset));
        let terms = index.iter().zip(&self.strides).map(|(i, stride)| i.clone() * *stride);
        terms.chain(first).reduce(|a, b| a + b).unwrap_or(Expr::Int(0))
    }

    /// Whether the strides are those of a dense row-major array.
    pub fn is_row_major(&self) -> bool {
        self.strides == row_major(&self.shape)
    }
}

/// A rectangular piece of a buffer: `buffer[origin .. origin + extents]`, an operand of a tile intrinsic.
#[derive(Clone, PartialEq, Debug)]
pub struct Tile {
    /// The buffer.
    pub buffer: BufferId,
    /// Index of its first element, one expression a dimension.
    pub origin: Vec<Expr>,
    /// Its extent in each dimension.
    pub extents: Vec<i64>,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
