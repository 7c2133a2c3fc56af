//! Conditions that what tiles and pieces go beyond exists, and what becomes of it.

use crate::ir::Expr;

/// The condition that an index is below `size`, which pieces of `piece` elements may go beyond; none where they never do.
pub(super) fn below(at: impl Into<Expr>, size: i64, piece: i64) -> Option<Expr> {
    (size % piece != 0).then(|| at.into().lt(size))
}

/// The condition that indices are below `sizes` that pieces of these extents may go beyond; none where they never do.
pub fn inside<const N: usize>(at: &[Expr; N], sizes: [i64; N], pieces: [i64; N]) -> Option<Expr> {
    Expr::all((0..N).filter_map(|i| below(at[i].clone(), sizes[i], pieces[i])))
}

/// A number, or zero where a condition does not hold.
pub(super) fn or_zero(exists: Option<Expr>, value: Expr) -> Expr {
    or(exists, value, Expr::f32(0.0))
}

/// A value, or another one where a condition does not hold.
pub(super) fn or(exists: Option<Expr>, value: Expr, other: Expr) -> Expr {
    match exists {
        Some(exists) => exists.select(value, other),
        None => value,
    }
}
