//! The three blocked products of AutoTVM's introductory tutorial ("Writing Tunable Templates and Using the Auto-tuner",
//! Lianmin Zheng), on a GPU.
//!
//! All of them are one schedule: rows and columns of the product are cut into tiles, and the loops become
//! `yo, xo, k, yi, xi`. On a CPU the tutorial leaves it at that; here a tile is a block of the grid and each element of it
//! a thread, so that the threads of a block share rows and columns through the caches. They differ in how the tile is said:
//!
//! | template | tile | space |
//! |---|---|---|
//! | [`MatmulV0`] | 8 x 8 | one config |
//! | [`MatmulV1`] | `tile_y`, `tile_x` from 1, 2, 4, 8, 16 | 25 configs |
//! | [`MatmulSplit`] | `tile_y`, `tile_x` are factors of the extents | all of them |
//!
//! They are here to be read and compared with; [`matmul_blocked`](super::matmul_blocked) is what to use.

use super::family::{self, Case, Family, Needs, Search, knobs};
use super::model::{Straight, ceil_div};
use super::requires::device;
use super::schedules::{BLOCK, THREAD, extent};
use crate::ir::{Axis, Scope};
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, SpaceBuilder, Split, divisors};
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Workload, naive};

/// Constant tiles: the tutorial's `matmul_v0`.
pub struct MatmulV0;

/// Listed tiles: the tutorial's `matmul_v1`. Knobs: `tile_y`, `tile_x`.
pub struct MatmulV1;

/// Tiles that divide: the tutorial's `matmul`, with `define_split`. Knobs: `tile_y`, `tile_x`.
pub struct MatmulSplit;

/// The product, or why these templates do not take it.
fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
    let gpu = device(t)?;
    let m = w.matmul().copied().ok_or("for products")?;
    if m.batch > gpu.grid_dim[2] || m.m > gpu.grid_dim[1] {
        return Err(format!("for at most {} rows and batches", gpu.grid_dim[1].min(gpu.grid_dim[2])));
    }
    if m.n > gpu.grid_dim[0] {
        return Err(format!("for at most {} columns", gpu.grid_dim[0]));
    }
    Ok(m)
}

/// The tutorial's schedule with a tile of that many rows and columns.
#[allow(non_snake_case, reason = "the tutorial's names")]
fn blocked(w: &Workload, [tile_y, tile_x]: [i64; 2]) -> Result<Scheduled, TemplateError> {
    let mut s = Schedule::new(naive(w));
    let [sum, C] = [s.stage("acc")?, s.stage("c")?];
    let loops = s.loops_of(C);
    let (batch, axes) = loops.split_at(loops.len() - 2);
    let [y, x] = [axes[0], axes[1]];

    let tile = [tile_y.min(extent(&s, y)), tile_x.min(extent(&s, x))];
    let [yo, yi] = s.split(y, tile[0], Tail::Guard)?;
    let [xo, xi] = s.split(x, tile[1], Tail::Guard)?;
    let order: Vec<_> = batch.iter().copied().chain([yo, xo, yi, xi]).collect();
    s.reorder(&order)?;

    for z in batch {
        s.bind(*z, BLOCK(Axis::Z))?;
    }
    s.bind(yo, BLOCK(Axis::Y))?;
    s.bind(xo, BLOCK(Axis::X))?;
    s.bind(yi, THREAD(Axis::Y))?;
    s.bind(xi, THREAD(Axis::X))?;
    s.set_scope(sum, Scope::Register)?;
    s.compute_at(sum, xi)?;
    Ok(Scheduled { schedule: s, packs: vec![] })
}

/// A product cut into tiles; `tile` is their rows and columns.
pub struct Tiles {
    m: Matmul,
    tile: [i64; 2],
}

impl family::Plan for Tiles {
    fn needs(&self) -> Needs {
        Needs { threads: self.tile.iter().product(), registers: 0, shared_bytes: 0 }
    }

    fn suits(&self, _: &Cuda) -> bool {
        true
    }

    /// Each product loads both of its factors, the caches serve what the tile shares.
    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let (m, [rows, columns]) = (&self.m, self.tile);
        let [rows, columns] = [rows.min(m.m), columns.min(m.n)];
        // A guard around the sum keeps the compiler from loading several terms ahead. A transposed right matrix gives each
        // column's thread a row of its own to read.
        let guarded = m.m % rows != 0 || m.n % columns != 0;
        let alone = if guarded { 110.0 } else { 30.0 };
        let alone = if m.trans_b { alone + 0.9 * columns as f64 } else { alone };
        let blocks = m.batch * ceil_div(m.m, rows) * ceil_div(m.n, columns);
        Straight { blocks, threads: rows * columns, terms: m.k, alone, spread: 1.0 }.microseconds(w, gpu)
    }
}

impl Family for MatmulV0 {
    const NAME: &'static str = "matmul_v0";
    const LIMITS: &'static str = "";
    type Problem = Matmul;
    type Knobs = Config;
    type Plan<'a> = Tiles;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        problem(w, t)
    }

    fn plan(case: &Case<'_, Matmul>, _: Config) -> Result<Tiles, TemplateError> {
        Ok(Tiles { m: case.problem, tile: [8, 8] })
    }

    fn kernel(case: &Case<'_, Matmul>, tiles: &Tiles) -> Result<Scheduled, TemplateError> {
        blocked(case.w, tiles.tile)
    }
}

knobs! {
    /// A config of [`MatmulV1`] with a type.
    struct Listed {
        tile: [i64; 2] = "tile_y" in [1, 2, 4, 8, 16], "tile_x" in [1, 2, 4, 8, 16];
    }
}

impl Family for MatmulV1 {
    const NAME: &'static str = "matmul_v1";
    const LIMITS: &'static str = "";
    type Problem = Matmul;
    type Knobs = Listed;
    type Plan<'a> = Tiles;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        problem(w, t)
    }

    fn plan(case: &Case<'_, Matmul>, Listed { tile }: Listed) -> Result<Tiles, TemplateError> {
        Ok(Tiles { m: case.problem, tile })
    }

    fn search(_: &Case<'_, Matmul>) -> Search<Listed> {
        // Where others are no better, the one that the notes found best.
        Search::Near(Listed { tile: [16, 16] })
    }

    fn kernel(case: &Case<'_, Matmul>, tiles: &Tiles) -> Result<Scheduled, TemplateError> {
        blocked(case.w, tiles.tile)
    }
}

impl Family for MatmulSplit {
    const NAME: &'static str = "matmul_split";
    const LIMITS: &'static str = "threads of a block";
    type Problem = Matmul;
    type Knobs = Config;
    type Plan<'a> = Tiles;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        problem(w, t)
    }

    fn space(case: &Case<'_, Matmul>, space: SpaceBuilder) -> SpaceBuilder {
        let Matmul { m, n, .. } = case.problem;
        space.split("tile_y", Split::factors(m, 2)).split("tile_x", Split::factors(n, 2))
    }

    fn plan(case: &Case<'_, Matmul>, config: Config) -> Result<Tiles, TemplateError> {
        let inner = |knob: &str| Ok::<i64, TemplateError>(config.split(knob)?.get(1).copied().unwrap_or(1));
        Ok(Tiles { m: case.problem, tile: [inner("tile_y")?, inner("tile_x")?] })
    }

    fn search(case: &Case<'_, Matmul>) -> Search<Config> {
        // Where others are no better, as square as the factors allow, up to 256 threads.
        let largest = |n: i64| divisors(n).into_iter().filter(|d| *d <= 16).max().unwrap_or(1);
        let [rows, columns] = [case.problem.m, case.problem.n].map(largest);
        Search::Near(Config::new().with_split("tile_y", &[-1, rows]).with_split("tile_x", &[-1, columns]))
    }

    fn kernel(case: &Case<'_, Matmul>, tiles: &Tiles) -> Result<Scheduled, TemplateError> {
        blocked(case.w, tiles.tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::Template;

    #[test]
    fn the_spaces_are_the_tutorials() {
        let (w, t) = (Workload::f32(Matmul::new(512, 512, 512)), Target::find("sm_80").unwrap());
        let space = MatmulV1.space(&w, t).unwrap();
        let text = "ConfigSpace (len=25, range_length=25, space_map=\n   0 tile_y: OtherOption([1, 2, 4, 8, 16]) len=5\n   \
                    1 tile_x: OtherOption([1, 2, 4, 8, 16]) len=5\n)";
        assert_eq!(space.to_string(), text);
        // The best one that the notes report, on a CPU, is the last.
        assert_eq!(space.get(24).unwrap(), MatmulV1.default_config(&w, t).unwrap());
        assert_eq!(MatmulSplit.space(&w, t).unwrap().range_len(), 100);
        assert_eq!(MatmulV0.space(&w, t).unwrap().len(), 1);
    }
}
