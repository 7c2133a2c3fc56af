//! The choices of a convolution over planes: which values are worth offering, and the default.

use super::cost::{cycles_of_channels, rank_us};
use super::cut::Cut;
use super::knobs::{Knobs, Source};
use crate::integer::ceil_div;
use crate::space::{Config, Space};
use crate::target::Cpu;
use crate::templates::TemplateError;
use crate::templates::cpu::tile::{MAX_VECTORS, even_tiles, worth_trying};
use crate::templates::planes::Planes;

/// Most output channels of a register tile.
const MAX_CHANNELS: i64 = 24;
/// Most rows and most vectors of columns of a task.
const MAX_ROWS: i64 = 64;
const MAX_COLUMNS: i64 = 64;

/// Bytes of a task's sums, and of its copy: half of a core's second-level cache each.
pub(super) fn most_bytes(cpu: &Cpu) -> i64 {
    cpu.l2_bytes / 2
}

/// Outputs of a phase along a row that a task may take: whole vectors, or all of them.
fn columns(planes: &Planes, cpu: &Cpu) -> Vec<i64> {
    let (all, lanes) = (planes.dimensions[2].columns(), cpu.f32_lanes());
    let mut some = even_tiles(ceil_div(all, lanes), MAX_COLUMNS).into_iter().map(|v| v * lanes).collect::<Vec<_>>();
    some.retain(|c| *c < all);
    some.push(all);
    some
}

fn rows(planes: &Planes) -> Vec<i64> {
    even_tiles(planes.dimensions[1].columns(), MAX_ROWS)
}

/// Tiles of channels that a task may take: powers of two.
fn tile_counts(planes: &Planes) -> Vec<i64> {
    (0..62).map(|i| 1 << i).take_while(|t| *t <= planes.co).collect()
}

/// The space of a workload.
pub(super) fn space(planes: &Planes, cpu: &Cpu) -> Result<Space, TemplateError> {
    let (of, target) = (*planes, cpu.clone());
    Ok(Space::builder()
        .knob("mr", even_tiles(planes.co, MAX_CHANNELS))
        .knob("nv", 1..=MAX_VECTORS)
        .knob("rows", rows(planes))
        .knob("columns", worth_trying(columns(planes, cpu)))
        .knob("tiles", tile_counts(planes))
        .knob("copy", Source::ALL.map(Source::name))
        .filter(
            "accumulators fit in the vector registers, sums and copies of a task in half of the second-level cache; several rows \
             are whole rows; a task has as many tiles and vectors as its knobs say; the input is read as it is only where \
             outputs lie over it",
            move |config| {
                Knobs::read(config).is_ok_and(|k| {
                    k.fits(&target) && Cut::new(of, k, target.f32_lanes()).is_sane(most_bytes(&target))
                })
            },
        )
        .build()?)
}

/// The config of least predicted time.
pub(super) fn default_config(planes: &Planes, cpu: &Cpu) -> Option<Config> {
    let lanes = cpu.f32_lanes();
    let mut best: Option<(f64, Knobs)> = None;
    let all = *columns(planes, cpu).last()?;
    let blocks = rows(planes).into_iter().flat_map(|rows| {
        let some = if rows == 1 { columns(planes, cpu) } else { vec![all] };
        some.into_iter().map(move |columns| (rows, columns))
    });
    for (rows, columns) in blocks {
        for source in Source::ALL {
            let block = Knobs { mr: 1, vectors: 1, rows, columns, tiles: 1, source };
            for k in register_tiles(&Cut::new(*planes, block, lanes), cpu) {
                for tiles in tile_counts(planes) {
                    let cut = Cut::new(*planes, Knobs { tiles, ..k }, lanes);
                    if !cut.is_sane(most_bytes(cpu)) {
                        continue;
                    }
                    let us = rank_us(&cut, cpu);
                    if best.is_none_or(|(least, _)| us < least) {
                        best = Some((us, cut.knobs));
                    }
                }
            }
        }
    }
    best.map(|(_, k)| k.config())
}

/// The register tiles that take the fewest cycles for a block of outputs: a few, of which larger ones read less.
fn register_tiles(block: &Cut, cpu: &Cpu) -> Vec<Knobs> {
    let (co, across) = (block.planes.co, block.across());
    let mut all: Vec<(f64, Knobs)> = vec![];
    for mr in even_tiles(co, MAX_CHANNELS) {
        for vectors in 1..=MAX_VECTORS.min(across) {
            let k = Knobs { mr, vectors, ..block.knobs };
            if k.fits(cpu) {
                all.push((ceil_div(co, mr) as f64 * cycles_of_channels(mr, vectors, across, cpu), k));
            }
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.truncate(4);
    all.into_iter().map(|(_, k)| k).collect()
}
