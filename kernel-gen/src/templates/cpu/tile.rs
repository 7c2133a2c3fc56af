//! Arithmetic about register tiles and caches, shared by the CPU templates.

pub use crate::integer::ceil_div;
use crate::target::Cpu;

/// Most vectors of a register tile that spaces offer and defaults take.
pub const MAX_VECTORS: i64 = 8;

/// Tasks that a default should have, if the output is large enough: some for each of a few cores.
pub const WANTED_TASKS: i64 = 8;

/// A tile of accumulators: `rows` broadcast operands times `vectors` vector operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterTile {
    /// Scalars broadcast per step of the reduction.
    pub rows: i64,
    /// Vectors loaded per step.
    pub vectors: i64,
}

impl RegisterTile {
    /// Vector registers in use: the accumulators, the loaded vectors, and one broadcast scalar, which AVX-512 takes
    /// from memory within the multiply-add.
    pub fn registers(self, cpu: &Cpu) -> i64 {
        let broadcast = i64::from(cpu.vector_bytes < 64);
        self.rows * self.vectors + self.vectors + broadcast
    }

    /// Whether the accumulators stay in registers. GCC begins to spill before the last register is taken.
    pub fn fits(self, cpu: &Cpu) -> bool {
        let sums = self.rows * self.vectors;
        sums >= 1 && sums <= cpu.vector_registers * 7 / 8 && self.registers(cpu) <= cpu.vector_registers
    }

    /// Cycles of one step of the reduction: multiply-adds against loads (two a cycle), and never less than the latency
    /// of a multiply-add, since each accumulator is updated once a step.
    pub fn cycles_per_step(self, cpu: &Cpu) -> f64 {
        let units = cpu.fma_units.max(1) as f64;
        let multiply_adds = (self.rows * self.vectors) as f64 / units * if cpu.fma { 1.0 } else { 2.0 };
        let loads = (self.rows + self.vectors) as f64 / 2.0;
        // Where a multiply-add does not broadcast by itself, each scalar is an instruction as each vector is. They take
        // places beside the multiply-adds: 14 x 1 reaches 68 % of AVX2's peak on a Zen 5, 6 x 2 reaches 89 %.
        let beside = if cpu.vector_registers < 32 { 0.4 * loads / (self.rows * self.vectors) as f64 } else { 0.0 };
        multiply_adds.max(loads).max(cpu.fma_latency as f64) * (1.0 + beside)
    }
}

/// Sizes of pieces worth offering for an extent: everything up to `limit` that wastes little, i.e. where cutting the
/// extent evenly into the same number of pieces would not give smaller ones. There are at most `2 sqrt(extent)`.
pub fn even_tiles(extent: i64, limit: i64) -> Vec<i64> {
    let mut sizes = vec![];
    let mut most = limit.min(extent);
    while most >= 1 {
        // The largest piece of at most that size, by the least number of pieces that are no larger.
        let size = ceil_div(extent, ceil_div(extent, most));
        sizes.push(size);
        most = size - 1;
    }
    sizes.reverse();
    sizes
}

/// Some of the sizes where there are very many: those of an extent of billions differ by less than anyone can measure. The least
/// and the largest are kept.
pub fn worth_trying(sizes: Vec<i64>) -> Vec<i64> {
    /// A layer of a network has far fewer.
    const MOST: usize = 4096;
    if sizes.len() <= MOST {
        return sizes;
    }
    let (mut out, mut least) = (vec![], i64::MAX);
    for size in sizes.iter().rev().copied() {
        if size <= least || Some(&size) == sizes.first() {
            out.push(size);
            // By one 64th each time.
            least = size - 1 - size / 64;
        }
    }
    out.reverse();
    out
}

/// Whether [`even_tiles`] has a size, whatever the limit.
pub fn is_even_tile(extent: i64, size: i64) -> bool {
    (1..=extent).contains(&size) && ceil_div(extent, ceil_div(extent, size)) == size
}

/// The largest of `sizes` that `fits`, if possible one that divides `extent`, so that no piece is short.
pub fn largest(extent: i64, sizes: &[i64], fits: impl Fn(i64) -> bool) -> Option<i64> {
    let most = sizes.iter().copied().filter(|t| fits(*t)).max()?;
    // A divisor half as large still beats a ragged cut.
    Some(sizes.iter().copied().filter(|t| fits(*t) && extent % t == 0 && 2 * t >= most).max().unwrap_or(most))
}

/// Total cycles of covering `rows x columns` (columns in lanes) by register tiles, tails included: a tail of rows costs
/// its own rows, a tail of lanes costs whole vectors.
pub fn cover_cycles(rows: i64, columns: i64, tile: RegisterTile, cpu: &Cpu) -> f64 {
    let lanes = cpu.f32_lanes();
    let cost = |rows: i64, vectors: i64| {
        if rows == 0 || vectors == 0 { 0.0 } else { RegisterTile { rows, vectors }.cycles_per_step(cpu) }
    };
    let vectors = ceil_div(columns, lanes);
    let (full_rows, rest_rows) = (rows / tile.rows, rows % tile.rows);
    let (full_vectors, rest_vectors) = (vectors / tile.vectors, vectors % tile.vectors);
    full_rows as f64 * (full_vectors as f64 * cost(tile.rows, tile.vectors) + cost(tile.rows, rest_vectors))
        + full_vectors as f64 * cost(rest_rows, tile.vectors)
        + cost(rest_rows, rest_vectors)
}

/// The register tile that covers `rows x columns` in the fewest cycles; larger tiles win ties, since they read less.
pub fn best_tile(rows: i64, columns: i64, max_rows: i64, cpu: &Cpu) -> RegisterTile {
    best_of(rows, columns, max_rows, cpu, |_| true).unwrap_or(RegisterTile { rows: 1, vectors: 1 })
}

/// [`best_tile`] of those whose lanes divide the columns, if there is one: for templates in which a ragged last tile has
/// conditions on each lane, and so is scalar code.
pub fn best_whole_tile(rows: i64, columns: i64, max_rows: i64, cpu: &Cpu) -> RegisterTile {
    let whole = |vectors: i64| columns % (vectors * cpu.f32_lanes()) == 0;
    best_of(rows, columns, max_rows, cpu, whole).unwrap_or_else(|| best_tile(rows, columns, max_rows, cpu))
}

/// The best tile with a number of vectors that is allowed.
fn best_of(rows: i64, columns: i64, max_rows: i64, cpu: &Cpu, allowed: impl Fn(i64) -> bool) -> Option<RegisterTile> {
    let mut best: Option<(f64, RegisterTile)> = None;
    for vectors in (1..=MAX_VECTORS).filter(|v| allowed(*v)) {
        for tile_rows in even_tiles(rows, max_rows) {
            let tile = RegisterTile { rows: tile_rows, vectors };
            // With few registers a wide tile is a low one, which reads its vectors again for every few rows: 2 x 5 reaches
            // 55 % where 6 x 2 reaches 92 %.
            let low = cpu.vector_registers < 32 && tile_rows < vectors && tile_rows < rows.min(max_rows);
            if low || !tile.fits(cpu) || (vectors > 1 && (vectors - 1) * cpu.f32_lanes() >= columns) {
                continue;
            }
            let cycles = cover_cycles(rows, columns, tile, cpu);
            let area = tile_rows * vectors;
            let better =
                best.is_none_or(|(c, t)| cycles < c * 0.99 || (cycles < c * 1.01 && area > t.rows * t.vectors));
            if better {
                best = Some((cycles, tile));
            }
        }
    }
    best.map(|b| b.1)
}

/// Microseconds of `cycles` on one core.
pub fn cycles_to_us(cycles: f64, cpu: &Cpu) -> f64 {
    cycles / cpu.clock_mhz.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn avx2_takes_tiles_that_leave_room_for_broadcasts_and_divide_the_channels() {
        let cpu = Target::find("x86-64-v3").and_then(Target::cpu).expect("a built-in target");
        let tile = |rows, vectors| RegisterTile { rows, vectors };
        assert_eq!(best_whole_tile(56, 64, 30, cpu), tile(6, 2));
        // 14 x 1 would cover the row exactly, 4 x 3 does not divide the channels.
        assert_eq!(best_whole_tile(14, 256, 30, cpu), tile(5, 2));
        assert_eq!(best_whole_tile(7, 512, 30, cpu).vectors, 2);
        assert_eq!(best_tile(256, 196, 24, cpu), tile(6, 2));
        for n in [512, 1024] {
            assert_eq!(best_whole_tile(n, n, 24, cpu), tile(6, 2));
        }
    }

    #[test]
    fn the_best_tile_covers_seven_pixels_and_fourteen_pixels_exactly() {
        let cpu = Target::find("x86-64-v4").and_then(Target::cpu).expect("a built-in target");
        assert_eq!(best_tile(7, 512, 30, cpu), RegisterTile { rows: 7, vectors: 4 });
        assert_eq!(best_tile(14, 256, 30, cpu), RegisterTile { rows: 14, vectors: 2 });
        assert_eq!(even_tiles(56, 16), [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14]);
    }

    #[test]
    fn sizes_of_a_huge_extent_are_few_and_those_of_a_layer_all() {
        assert_eq!(worth_trying(even_tiles(1 << 22, i64::MAX)), even_tiles(1 << 22, i64::MAX));
        let all = even_tiles(1 << 36, i64::MAX);
        let some = worth_trying(all.clone());
        assert!(some.len() < 2048 && some.iter().all(|s| all.binary_search(s).is_ok()), "{}", some.len());
        assert_eq!((some[0], some.last()), (1, Some(&(1 << 36))));
    }

    #[test]
    fn even_tiles_are_what_even_cuts_leave() {
        for extent in 1..=200 {
            for limit in [1, 7, 30, i64::MAX] {
                let mut cuts: Vec<i64> = (1..=extent).map(|n| ceil_div(extent, n)).filter(|t| *t <= limit).collect();
                cuts.sort_unstable();
                cuts.dedup();
                assert_eq!(even_tiles(extent, limit), cuts, "{extent} {limit}");
                assert!((0..=extent + 1).all(|t| (is_even_tile(extent, t) && t <= limit) == cuts.contains(&t)));
            }
        }
    }
}
