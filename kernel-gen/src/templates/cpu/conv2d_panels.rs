//! 1x1 convolution in NCHW with pixels along the lanes, of copies of the pixels.
//!
//! [`super::conv2d_pointwise`] reads its pixels where they lie, one row of a strip in each channel's plane. Where there are
//! many channels these rows fall on more lines than the first cache has, and each step of the sum waits for the second. Here
//! a task copies its strips first, so that the rows of one lie one behind the other, as Goto and van de Geijn pack the
//! panels of a product ("Anatomy of High-Performance Matrix Multiplication", 2008). All channels' weights then pass by all
//! strips of the task: a block of them is read from the first cache for all strips but one.

use super::conv2d_pointwise::{problem, scheduled};
use super::tile::{
    MAX_VECTORS, RegisterTile, WANTED_TASKS, best_tile, ceil_div, cover_cycles, cycles_to_us, even_tiles,
};
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, Workload};

/// See the module's text. Knobs: `mr` output channels and `nv` vectors of pixels of the register tile, `strips` of as many
/// pixels that a task takes.
pub struct Conv2dPanels;

/// What a strip may have of the second cache, so that strips and weights are there together.
const SHARE_OF_L2: i64 = 2;

/// Strips of an image.
fn strips(c: &Conv2d, vectors: i64, cpu: &Cpu) -> i64 {
    ceil_div(c.h * c.w, vectors * cpu.f32_lanes())
}

impl Template for Conv2dPanels {
    fn name(&self) -> &str {
        "conv2d_panels"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let registers = cpu.clone();
        Ok(Space::builder()
            .knob("mr", even_tiles(c.co, 24))
            .knob("nv", 1..=ceil_div(c.h * c.w, cpu.f32_lanes()).min(MAX_VECTORS))
            .knob("strips", even_tiles(strips(&c, 1, cpu), 32))
            .filter(
                "accumulators fit in the vector registers, and a task has no more strips than there are",
                move |config| {
                    let (Ok(rows), Ok(vectors), Ok(taken)) = (config.int("mr"), config.int("nv"), config.int("strips"))
                    else {
                        return false;
                    };
                    RegisterTile { rows, vectors }.fits(&registers) && taken <= strips(&c, vectors, &registers)
                },
            )
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let tile = best_tile(c.co, c.h * c.w, 24, cpu);
        let all = strips(&c, tile.vectors, cpu);
        let bytes = c.ci * tile.vectors * cpu.vector_bytes;
        let fit = (cpu.l2_bytes / SHARE_OF_L2 / bytes).max(1);
        let tasks = (2 * all * c.n / WANTED_TASKS).max(1);
        let taken = even_tiles(strips(&c, 1, cpu), 32).into_iter().filter(|n| *n <= fit.min(tasks).min(all)).max();
        Ok(Config::new().with("mr", tile.rows).with("nv", tile.vectors).with("strips", taken.unwrap_or(1)))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        estimate(w, t, config).unwrap_or(f64::INFINITY)
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let tile = RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? };
        scheduled(w, t, tile, Some(config.int("strips")?))
    }
}

/// Predicted microseconds on one core.
fn estimate(w: &Workload, t: &Target, config: &Config) -> Result<f64, TemplateError> {
    let (c, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
    let tile = RegisterTile { rows: config.int("mr")?, vectors: config.int("nv")? };
    let compute = cover_cycles(c.co, c.h * c.w, tile, cpu) * (c.n * c.ci) as f64;
    // Each pixel is loaded and stored once more than the outputs are stored.
    let moved = (c.n * (c.co + 2 * c.ci) * c.h * c.w) as f64 / cpu.f32_lanes() as f64;
    Ok(cycles_to_us(compute + moved, cpu))
}
