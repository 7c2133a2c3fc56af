//! Rows and elements of the tiles that are transposed.

use crate::ir::{Expr, Tile};

/// The rows and columns of the source: its last two extents.
pub(super) fn extents(src: &Tile) -> (i64, i64) {
    let d = src.extents.len();
    match d {
        0 => (1, 1),
        1 => (1, src.extents[0]),
        _ => (src.extents[d - 2], src.extents[d - 1]),
    }
}

/// The indices of an element of a tile.
pub(super) fn at(t: &Tile, row: i64, column: Expr) -> Vec<Expr> {
    let mut idx = t.origin.clone();
    let d = idx.len();
    if d >= 2 {
        idx[d - 2] = idx[d - 2].clone() + row;
    }
    if d >= 1 {
        idx[d - 1] = column + idx[d - 1].clone();
    }
    idx
}

/// The indices of a row of a tile, as vectors of its whole length.
pub(super) fn row(t: &Tile, row: i64, lanes: i64) -> Vec<Expr> {
    let mut idx = at(t, row, Expr::Int(0));
    if let Some(last) = idx.last_mut() {
        let base = std::mem::replace(last, Expr::Int(0));
        *last = Expr::Ramp { base: Box::new(base), stride: 1, lanes: u16::try_from(lanes).unwrap_or(1) };
    }
    idx
}
