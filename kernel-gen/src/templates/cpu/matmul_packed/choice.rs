//! The choices of a packed product: what a config says, what it is expected to take, and the default.

use crate::space::Config;
use crate::target::Cpu;
use crate::templates::TemplateError;
use crate::templates::cpu::tile::{
    MAX_VECTORS, RegisterTile, best_tile, ceil_div, cover_cycles, cycles_to_us, even_tiles, worth_trying,
};
use crate::workload::Matmul;

/// Most rows of a register tile.
pub(super) const MAX_ROWS: i64 = 24;

/// A config of the template, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Knobs {
    /// Accumulators of a register tile.
    pub(super) tile: RegisterTile,
    /// Steps of a block of the reduction.
    pub(super) k_tile: i64,
    /// Rows of A that a task takes.
    pub(super) m_tile: i64,
    /// Whether a task copies them and takes all panels of B.
    pub(super) by_rows: bool,
    /// Whether B is asked for ahead.
    pub(super) ahead: bool,
}

impl Knobs {
    pub(super) fn read(config: &Config) -> Result<Knobs, TemplateError> {
        Ok(Knobs {
            tile: RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? },
            k_tile: config.int("k_tile")?,
            m_tile: config.int("m_tile")?,
            by_rows: config.str("task")? == "rows",
            ahead: config.str("fetch")? == "ahead",
        })
    }

    pub(super) fn config(self) -> Config {
        Config::new()
            .with("mr", self.tile.rows)
            .with("nv", self.tile.vectors)
            .with("k_tile", self.k_tile)
            .with("m_tile", self.m_tile)
            .with("task", if self.by_rows { "rows" } else { "panel" })
            .with("fetch", if self.ahead { "ahead" } else { "demand" })
    }

    /// Rows of a task as the schedule cuts them: whole register tiles.
    pub(super) fn task_rows(self, m: &Matmul) -> i64 {
        let rows = self.tile.rows.min(m.m).max(1);
        (ceil_div(self.m_tile, rows) * rows).min(m.m)
    }
}

/// Rows of a task worth offering.
pub(super) fn m_tiles(m: i64) -> Vec<i64> {
    worth_trying(even_tiles(m, i64::MAX).into_iter().filter(|t| *t >= m.min(32)).collect())
}

/// Lengths of a block of the reduction worth offering.
pub(super) fn k_tiles(k: i64) -> Vec<i64> {
    worth_trying(even_tiles(k, i64::MAX).into_iter().filter(|t| *t >= k.min(128)).collect())
}

/// Rows of a task that a default takes, those that it takes where nothing speaks for others first.
const TASK_ROWS: [i64; 6] = [128, 64, 256, 512, 1024, 32];
/// Longest blocks of the reduction that a default is chosen from.
const K_TILES: usize = 6;
/// Register tiles that are looked at closely.
const TILES: usize = 8;

/// The config that is predicted to be fastest where one, two or some more threads may run it; none for a product of nothing.
pub(super) fn best_knobs(m: &Matmul, cpu: &Cpu) -> Option<Knobs> {
    if m.m < 1 || m.n < 1 || m.k < 1 {
        return None;
    }
    let mut k_tiles = k_tiles(m.k);
    k_tiles.reverse();
    k_tiles.truncate(K_TILES);
    let offered = m_tiles(m.m);
    let mut task_rows: Vec<i64> = vec![];
    for rows in TASK_ROWS {
        task_rows.extend(offered.iter().copied().min_by_key(|t| (t - rows).abs()).filter(|t| !task_rows.contains(t)));
    }
    let options = |tile: RegisterTile, k_tiles: &[i64], task_rows: &[i64]| {
        let panels = ceil_div(m.n, tile.vectors * cpu.f32_lanes());
        let mut all = vec![];
        for k_tile in k_tiles.iter().copied() {
            for m_tile in task_rows.iter().copied() {
                for by_rows in [false, true] {
                    if !by_rows || (!m.trans_a && panels >= 2) {
                        all.extend([false, true].map(|ahead| Knobs { tile, k_tile, m_tile, by_rows, ahead }));
                    }
                }
            }
        }
        all
    };
    // Tiles by what they promise at best, the others' choices at their usual values.
    let promise = |tile: &RegisterTile| {
        let usual = options(*tile, &k_tiles[..1], &task_rows[..1]);
        usual.into_iter().map(|k| estimate(m, cpu, k)).fold(f64::INFINITY, f64::min)
    };
    let mut tiles: Vec<(f64, RegisterTile)> = tiles(m, cpu).into_iter().map(|t| (promise(&t), t)).collect();
    tiles.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<(f64, Knobs)> = None;
    for (_, tile) in tiles.into_iter().take(TILES) {
        for knobs in options(tile, &k_tiles, &task_rows) {
            let us = estimate(m, cpu, knobs) * imbalance(m, cpu, knobs);
            if best.is_none_or(|(least, _)| us < least) {
                best = Some((us, knobs));
            }
        }
    }
    best.map(|b| b.1)
}

/// Register tiles that a default may have: with few registers those that cover c in the fewest cycles, one of them with
/// rows that do not evict each other from L1.
fn tiles(m: &Matmul, cpu: &Cpu) -> Vec<RegisterTile> {
    if cpu.vector_registers < MANY_REGISTERS {
        return [MAX_ROWS, WAYS].map(|rows| best_tile(m.m, m.n, rows, cpu)).to_vec();
    }
    let rows = even_tiles(m.m, MAX_ROWS);
    let widest = ceil_div(m.n, cpu.f32_lanes()).clamp(1, MAX_VECTORS);
    let all = (1..=widest).flat_map(|vectors| rows.iter().map(move |rows| RegisterTile { rows: *rows, vectors }));
    all.filter(|t| t.fits(cpu)).collect()
}

/// How much each number of threads counts in the choice of a default.
const THREADS: [(i64, f64); 4] = [(1, 0.35), (2, 0.45), (4, 0.1), (8, 0.1)];
/// With more tasks than this no share is far from the others.
const MANY_TASKS: i64 = 256;

/// How much longer than their even share threads take for what the runtime's split gives them, as a mean over numbers
/// of threads: neighbouring tasks, as many to each as to the others, and the first get those that are left over.
fn imbalance(m: &Matmul, cpu: &Cpu, k: Knobs) -> f64 {
    let (rows, nr) = (k.task_rows(m), (k.tile.vectors * cpu.f32_lanes()).min(m.n));
    let (row_tasks, panels) = (ceil_div(m.m, rows), ceil_div(m.n, nr));
    let one = if k.by_rows { row_tasks } else { row_tasks * panels };
    let count = one.saturating_mul(m.batch);
    if count > MANY_TASKS {
        return 1.0;
    }
    let left = |extent: i64, piece: i64, i: i64| piece.min(extent - i * piece);
    let cycles: Vec<f64> = (0..count)
        .map(|task| {
            let task = task % one;
            let columns = if k.by_rows { m.n } else { left(m.n, nr, task / row_tasks) };
            cover_cycles(left(m.m, rows, task % row_tasks), columns, k.tile, cpu)
        })
        .collect();
    let total: f64 = cycles.iter().sum();
    let longest = |threads: i64| {
        let workers = threads.min(count);
        let mut begin = 0;
        let share = |worker: i64| {
            let end = begin + (count / workers + i64::from(worker < count % workers)) as usize;
            let share: f64 = cycles[begin..end].iter().sum();
            begin = end;
            share
        };
        (0..workers).map(share).fold(0.0, f64::max)
    };
    THREADS.iter().map(|(n, weight)| (longest(*n) * *n as f64 / total).powf(*weight)).product()
}

/// From this many on, registers are not what limits a tile of usual size.
const MANY_REGISTERS: i64 = 32;
/// Cycles that a step of the reduction costs beside its multiply-adds and loads.
const STEP: f64 = 0.2;
/// Cycles of a request for a vector ahead.
const REQUEST: f64 = 0.04;
/// Of the time that a line of B takes: what the arithmetic cannot hide if it was asked for ahead, and what it takes where
/// there is no arithmetic to hide it.
const SHOWN: f64 = 0.4;
const REQUESTED: f64 = 0.6;
/// Cycles that a line from L2 and from L3 delays what is computed meanwhile.
const L2_LINE: f64 = 0.2;
const L3_LINE: f64 = 0.5;
/// Rows of A that L1 holds where all of them fall on the same set.
const WAYS: i64 = 8;
/// Cycles for a vector of sums that waits in memory between two blocks of the reduction.
const PARTIAL_SUM: f64 = 5.0;

/// Predicted microseconds on one core: the arithmetic, and what the lines of both operands cost where they come from.
pub(super) fn estimate(m: &Matmul, cpu: &Cpu, knobs: Knobs) -> f64 {
    let Knobs { tile, k_tile, m_tile, by_rows, ahead } = knobs;
    let (lanes, line) = (cpu.f32_lanes() as f64, cpu.cache_line_bytes.max(1) as f64);
    let nr = (tile.vectors * cpu.f32_lanes()).min(m.n);
    let many = cpu.vector_registers >= MANY_REGISTERS;
    // With all registers in use, compilers begin to move values between them and memory.
    let crowded = match cpu.vector_registers - (tile.rows * tile.vectors + tile.vectors + 1) {
        _ if !many => 1.0,
        2.. => 1.0,
        0..=1 => 1.025,
        _ => 1.06,
    };
    let compute = cover_cycles(m.m, m.n, tile, cpu) * m.k as f64 * crowded;
    let row_tiles = ceil_div(m.m, tile.rows) as f64;
    let panels = ceil_div(m.n, nr) as f64;
    let steps = row_tiles * panels * m.k as f64;
    let blocks = ceil_div(m.k, k_tile);
    let partial_sums = if blocks > 1 { PARTIAL_SUM * (m.m * m.n * blocks) as f64 / lanes } else { 0.0 };

    // Half of what memory takes is hidden behind arithmetic. Other cores leave some of their L3.
    let memory_line = 0.5 * line / cpu.bandwidth_gb_s.max(1.0) * cpu.clock_mhz as f64 / 1000.0;
    let level = |bytes: i64| {
        if bytes <= cpu.l1_bytes / 2 {
            0.0
        } else if bytes <= cpu.l2_bytes * 3 / 4 {
            L2_LINE
        } else if bytes <= 8 * cpu.l3_bytes_per_core {
            L3_LINE
        } else {
            memory_line
        }
    };
    // B: each task brings a panel, and each of its row tiles reads a block of it again. Where vectors are short, several
    // lines a step are in each other's way.
    let b_lines = panels * (4 * nr * m.k) as f64 / line;
    let fetches = if by_rows { ceil_div(m.m, m_tile) as f64 } else { 1.0 };
    let again = if many { 0.5 } else { tile.vectors as f64 / 2.0 };
    let first = b_lines * fetches * level(4 * m.n * m.k);
    let first = if ahead { first * SHOWN + (first * REQUESTED - compute).max(0.0) } else { first };
    let b = first + b_lines * (row_tiles - fetches).max(0.0) * again * level(4 * nr * k_tile);
    let requests = if ahead { steps * tile.vectors as f64 * REQUEST } else { 0.0 };
    // A: every panel passes the rows of a task, or all rows. Rows a multiple of 4 KiB apart evict each other in place.
    let a_lines = (4 * m.m * m.k) as f64 / line;
    let again = level(if by_rows { 4 * m_tile * m.k } else { 4 * m.m * m.k });
    let conflict = match tile.rows {
        _ if by_rows || m.trans_a || (4 * m.k) % 4096 != 0 => 0.0,
        rows if rows <= WAYS => 0.0,
        rows if rows <= WAYS * 3 / 2 => 0.3,
        rows if rows < 2 * WAYS - 1 => 0.7,
        rows if rows <= 2 * WAYS => 0.45 * rows as f64,
        rows => 1.4 * rows as f64,
    };
    let copied = if by_rows { (m.m * m.k) as f64 / lanes * 3.0 } else { 0.0 };
    let a = a_lines * panels * again + steps * conflict + copied;
    cycles_to_us(m.batch as f64 * (compute + steps * STEP + partial_sums + b + requests + a), cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn default(m: i64, n: i64, k: i64) -> Knobs {
        let cpu = Target::find("x86-64-v4").and_then(Target::cpu).expect("a built-in target");
        best_knobs(&Matmul::new(m, n, k), cpu).expect("a product")
    }

    #[test]
    fn square_products_are_cut_into_tasks_that_come_out_even() {
        let cpu = Target::find("x86-64-v4").and_then(Target::cpu).expect("a built-in target");
        for n in [512, 1024, 2048] {
            let knobs = default(n, n, n);
            assert!(imbalance(&Matmul::new(n, n, n), cpu, knobs) < 1.01, "{n}: {knobs:?}");
        }
        // Eight tasks of 140 rows are seven and a third: one thread has 560 rows, the other 464.
        let uneven = Knobs { tile: RegisterTile { rows: 14, vectors: 2 }, m_tile: 128, ..default(1024, 1024, 1024) };
        assert_eq!(uneven.task_rows(&Matmul::new(1024, 1024, 1024)), 140);
        assert!(imbalance(&Matmul::new(1024, 1024, 1024), cpu, Knobs { by_rows: true, ..uneven }) > 1.04);
    }

    #[test]
    fn what_streams_past_few_rows_is_asked_for_ahead_and_what_stays_is_not() {
        for m in [1, 4, 16] {
            assert!(default(m, 1024, 1024).ahead, "{m} rows");
        }
        assert!(!default(512, 512, 512).ahead);
        assert!(!default(64, 64, 64).ahead);
    }

    #[test]
    fn arithmetic_hides_what_is_asked_for_ahead() {
        let cpu = Target::find("x86-64-v4").and_then(Target::cpu).expect("a built-in target");
        let us = |m: i64, n: i64, k: i64, ahead: bool| {
            let m = Matmul::new(m, n, k);
            let knobs = Knobs { ahead, ..best_knobs(&m, cpu).expect("a product") };
            (estimate(&m, cpu, knobs), cycles_to_us(cover_cycles(m.m, m.n, knobs.tile, cpu) * m.k as f64, cpu))
        };
        let ((ahead, arithmetic), (demand, _)) = (us(8, 1000, 2048, true), us(8, 1000, 2048, false));
        assert!(ahead < 1.2 * arithmetic && ahead < demand, "{ahead} {demand} {arithmetic}");
        // A row has nothing to hide it behind.
        let (ahead, arithmetic) = us(1, 4096, 4096, true);
        assert!(ahead > 2.0 * arithmetic, "{ahead} {arithmetic}");
    }

    #[test]
    fn no_default_keeps_more_rows_in_one_set_of_l1_than_it_holds() {
        for (m, n) in [(1024, 16), (1024, 1024), (16, 1024)] {
            let knobs = default(m, n, 1024);
            assert!(knobs.by_rows || knobs.tile.rows <= WAYS * 3 / 2, "{m} x {n}: {knobs:?}");
        }
    }
}
