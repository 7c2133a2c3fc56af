//! Outer products of multiply-adds: which lanes of a warp read what, and in which order a thread multiplies.

use crate::ir::{Expr, VarId};

/// Lanes of a warp along the shorter and along the longer side of what it multiplies.
pub(super) const LANES: [i64; 2] = [4, 8];
/// Elements of a vector of 16 bytes.
pub(super) const VECTOR: i64 = 4;

/// A lane's number along either side of [`LANES`]. Neighbours share what they read along the longer side, and so do the next two,
/// so that shared memory serves half a warp's vectors in one pass.
pub(super) fn lanes_of(lane: VarId) -> [Expr; 2] {
    let lane = Expr::from(lane);
    [lane.clone().floor_div(16) * 2 + lane.clone().floor_mod(2), lane.floor_mod(16).floor_div(2)]
}

/// The elements of a tile along its rows, there and back, so that each product shares an operand with the one before, which
/// compilers then need not read from the registers again.
pub(super) fn there_and_back([rows, columns]: [i64; 2]) -> impl Iterator<Item = [i64; 2]> {
    (0..rows).flat_map(move |i| (0..columns).map(move |at| [i, if i % 2 == 0 { at } else { columns - 1 - at }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_an_operand_and_all_elements_come_once() {
        let mut all: Vec<[i64; 2]> = there_and_back([3, 4]).collect();
        assert!(all.windows(2).all(|pair| pair[0][0] == pair[1][0] || pair[0][1] == pair[1][1]), "{all:?}");
        all.sort_unstable();
        assert_eq!(all, (0..12).map(|n| [n / 4, n % 4]).collect::<Vec<_>>());
    }
}
