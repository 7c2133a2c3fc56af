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

use super::model::{Straight, ceil_div};
use super::{BLOCK, THREAD, device, extent, least};
use crate::ir::{Axis, Scope};
use crate::schedule::{Schedule, Tail};
use crate::space::{Config, Space, Split, divisors};
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Matmul, Workload, naive};

/// Constant tiles: the tutorial's `matmul_v0`.
pub struct MatmulV0;

/// Listed tiles: the tutorial's `matmul_v1`. Knobs: `tile_y`, `tile_x`.
pub struct MatmulV1;

/// Tiles that divide: the tutorial's `matmul`, with `define_split`. Knobs: `tile_y`, `tile_x`.
pub struct MatmulSplit;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Matmul, &'a Cuda), String> {
    let gpu = device(t)?;
    let m = w.matmul().copied().ok_or("for products")?;
    if m.batch > gpu.grid_dim[2] || m.m > gpu.grid_dim[1] {
        return Err(format!("for at most {} rows and batches", gpu.grid_dim[1].min(gpu.grid_dim[2])));
    }
    if m.n > gpu.grid_dim[0] {
        return Err(format!("for at most {} columns", gpu.grid_dim[0]));
    }
    Ok((m, gpu))
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

/// Predicted microseconds: each product loads both of its factors, the caches serve what the tile shares.
fn estimate(w: &Workload, m: &Matmul, gpu: &Cuda, [rows, columns]: [i64; 2]) -> f64 {
    let [rows, columns] = [rows.min(m.m), columns.min(m.n)];
    // A guard around the sum keeps the compiler from loading several terms ahead. A transposed right matrix gives each
    // column's thread a row of its own to read.
    let guarded = m.m % rows != 0 || m.n % columns != 0;
    let alone = if guarded { 110.0 } else { 30.0 };
    let alone = if m.trans_b { alone + 0.9 * columns as f64 } else { alone };
    let blocks = m.batch * ceil_div(m.m, rows) * ceil_div(m.n, columns);
    Straight { blocks, threads: rows * columns, terms: m.k, alone, spread: 1.0 }.microseconds(w, gpu)
}

fn cost(w: &Workload, t: &Target, tile: Option<[i64; 2]>) -> f64 {
    match (problem(w, t), tile) {
        (Ok((m, gpu)), Some(tile)) => estimate(w, &m, gpu, tile),
        _ => f64::INFINITY,
    }
}

impl Template for MatmulV0 {
    fn name(&self) -> &str {
        "matmul_v0"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, _: &Workload, _: &Target) -> Result<Space, TemplateError> {
        Ok(Space::builder().build()?)
    }

    fn default_config(&self, _: &Workload, _: &Target) -> Result<Config, TemplateError> {
        Ok(Config::new())
    }

    fn cost(&self, w: &Workload, t: &Target, _: &Config) -> f64 {
        cost(w, t, Some([8, 8]))
    }

    fn schedule(&self, w: &Workload, t: &Target, _: &Config) -> Result<Scheduled, TemplateError> {
        problem(w, t).map_err(TemplateError::Limit)?;
        blocked(w, [8, 8])
    }
}

impl Template for MatmulV1 {
    fn name(&self) -> &str {
        "matmul_v1"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, _: &Workload, _: &Target) -> Result<Space, TemplateError> {
        Ok(Space::builder().knob("tile_y", [1, 2, 4, 8, 16]).knob("tile_x", [1, 2, 4, 8, 16]).build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        // Where others are no better, the one that the notes found best.
        let best = Config::new().with("tile_y", 16).with("tile_x", 16);
        Ok(least(&self.space(w, t)?, &best, &|config| self.cost(w, t, config))?)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        cost(w, t, config.int("tile_y").ok().zip(config.int("tile_x").ok()).map(<[i64; 2]>::from))
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        problem(w, t).map_err(TemplateError::Limit)?;
        blocked(w, [config.int("tile_y")?, config.int("tile_x")?])
    }
}

/// The inner size of a split knob.
fn inner(config: &Config, knob: &str) -> Option<i64> {
    config.split(knob).ok().and_then(|sizes| sizes.get(1).copied())
}

impl Template for MatmulSplit {
    fn name(&self) -> &str {
        "matmul_split"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (m, gpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let most = gpu.threads_per_block;
        Ok(Space::builder()
            .split("tile_y", Split::factors(m.m, 2))
            .split("tile_x", Split::factors(m.n, 2))
            .filter("threads of a block", move |config| {
                matches!((inner(config, "tile_y"), inner(config, "tile_x")), (Some(y), Some(x)) if y * x <= most)
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (m, _) = problem(w, t).map_err(TemplateError::Limit)?;
        // Where others are no better, as square as the factors allow, up to 256 threads.
        let largest = |n: i64| divisors(n).into_iter().filter(|d| *d <= 16).max().unwrap_or(1);
        let square = Config::new().with_split("tile_y", &[-1, largest(m.m)]).with_split("tile_x", &[-1, largest(m.n)]);
        Ok(least(&self.space(w, t)?, &square, &|config| self.cost(w, t, config))?)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        cost(w, t, inner(config, "tile_y").zip(inner(config, "tile_x")).map(<[i64; 2]>::from))
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        problem(w, t).map_err(TemplateError::Limit)?;
        blocked(w, [config.split("tile_y")?[1], config.split("tile_x")?[1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
