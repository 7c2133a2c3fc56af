//! What the fragments of a kernel are for, and the base matrices that they are made of.

use crate::emit::EmitError;
use crate::ir::{BufferId, DType, Gpu, Kernel, Scope, Stmt};
use std::collections::BTreeMap;

/// What the first element of a tile in memory is aligned to for `wmma`, in bytes. *(PTX ISA, "Matrix Storage" of `wmma`.)*
pub(super) const WMMA_ALIGNMENT: i64 = 32;

/// Rows, columns and depth of a product of `wmma`: `m16n16k16`.
pub(super) const WMMA_TILE: i64 = 16;

/// What a fragment is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It is added to.
    Sums,
    /// Left operand; whether it holds the transposed matrix.
    Left { transposed: bool },
    /// Right operand; whether it holds the transposed matrix.
    Right { transposed: bool },
}

/// The role of each fragment of the kernel.
pub(super) fn roles(kernel: &Kernel) -> Result<BTreeMap<BufferId, Role>, EmitError> {
    let mut roles: BTreeMap<BufferId, Role> = BTreeMap::new();
    let mut clash = None;
    for s in &kernel.body {
        s.walk(&mut |s| {
            let Stmt::Gpu(Gpu::Mma { unit, acc, a, b }) = s else { return };
            let mut note = |b: BufferId, role: Role| {
                if *roles.entry(b).or_insert(role) != role {
                    clash = Some(b);
                }
            };
            note(acc.buffer, Role::Sums);
            for (operand, role) in
                [(a, Role::Left { transposed: a.transposed }), (b, Role::Right { transposed: b.transposed })]
            {
                if kernel.buffer(operand.tile.buffer).scope == Scope::Fragment(*unit) {
                    note(operand.tile.buffer, role);
                }
            }
        });
    }
    // What only loops over its elements touch is added to by them.
    for s in &kernel.body {
        s.walk(&mut |s| {
            if let Some(b) = s.written()
                && let Scope::Fragment(_) = kernel.buffer(b).scope
                && matches!(s, Stmt::Store { .. } | Stmt::Reduce { .. })
            {
                roles.entry(b).or_insert(Role::Sums);
            }
        });
    }
    match clash {
        Some(b) => Err(EmitError::in_cuda(format!(
            "fragment `{}` in two roles; use one fragment for each operand",
            kernel.buffer(b).name
        ))),
        None => Ok(roles),
    }
}

impl Role {
    /// Elements of a base matrix along the fragment's rows and columns, and registers that a thread has of one, for
    /// elements of a type.
    pub(super) fn base(self, dtype: DType) -> (i64, i64, i64) {
        match self {
            // As many bytes as of the others: elements are twice as wide.
            Role::Left { .. } if dtype == DType::F32 => (16, 8, 4),
            Role::Sums if dtype == DType::F16 => (16, 8, 2),
            Role::Sums => (16, 8, 4),
            // Half as wide, and along the reduction only.
            Role::Left { .. } if dtype.is_byte() => (16, 32, 4),
            Role::Right { .. } if dtype.is_byte() => (8, 32, 2),
            Role::Left { .. } => (16, 16, 4),
            // Both orders are cut into pieces of 16 along the reduction and 8 along the columns.
            Role::Right { transposed: false } => (16, 8, 2),
            Role::Right { transposed: true } => (8, 16, 2),
        }
    }

    /// A tile of `wmma`, and registers that a thread has of it. *(PTX ISA, "Matrix Fragments for WMMA".)*
    pub(super) fn wmma_base(self, dtype: DType) -> (i64, i64, i64) {
        (WMMA_TILE, WMMA_TILE, if self == Role::Sums && dtype == DType::F16 { 4 } else { 8 })
    }
}
