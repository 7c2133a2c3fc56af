//! The two tuners that learn nothing.

use super::driver::{Known, Method};

/// Configs that are planned at once.
const BATCH: usize = 64;

/// All configs in a random order, each once, without remembering that order.
pub(super) struct Random;

impl Method for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64> {
        known.fresh(BATCH)
    }

    fn learns(&self) -> bool {
        false
    }
}

/// All configs in order of their indices.
pub(super) struct Grid {
    next: u64,
}

impl Grid {
    pub(super) fn new() -> Grid {
        Grid { next: 0 }
    }
}

impl Method for Grid {
    fn name(&self) -> &'static str {
        "grid"
    }

    fn plan(&mut self, known: &mut Known<'_>) -> Vec<u64> {
        let mut out = vec![];
        while out.len() < BATCH && self.next < known.space.range_len() {
            if !known.is_seen(self.next) && known.space.is_valid(self.next) {
                out.push(self.next);
            }
            self.next += 1;
        }
        out
    }

    fn learns(&self) -> bool {
        false
    }
}
