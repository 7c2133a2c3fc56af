//! What a config of a direct convolution says.

use crate::space::Config;
use crate::target::Cpu;
use crate::templates::TemplateError;
use crate::templates::cpu::tile::{RegisterTile, ceil_div};
use crate::workload::{Conv2d, ConvLayout};

/// Where the padded input is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pad {
    /// In every task, of its own rows, in private memory.
    Task,
    /// In a phase of its own, whole.
    Image,
}

/// A config of the template, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Knobs {
    pub(super) vectors: i64,
    pub(super) ow_tile: i64,
    pub(super) rows: i64,
    pub(super) oh_tile: i64,
    pub(super) ci_tile: i64,
    pub(super) tiles: i64,
    pub(super) pad: Pad,
}

impl Knobs {
    pub(super) fn read(config: &Config) -> Result<Knobs, TemplateError> {
        Ok(Knobs {
            vectors: config.int("nv")?,
            ow_tile: config.int("ow_tile")?,
            rows: config.int("rows")?,
            oh_tile: config.int("oh_tile")?,
            ci_tile: config.int("ci_tile")?,
            tiles: config.int("tiles")?,
            pad: if config.str("pad")? == "image" { Pad::Image } else { Pad::Task },
        })
    }

    /// The config that reads as this.
    pub(super) fn config(self) -> Config {
        Config::new()
            .with("nv", self.vectors)
            .with("ow_tile", self.ow_tile)
            .with("rows", self.rows)
            .with("oh_tile", self.oh_tile)
            .with("ci_tile", self.ci_tile)
            .with("tiles", self.tiles)
            .with("pad", if self.pad == Pad::Image { "image" } else { "task" })
    }

    /// The tile of accumulators.
    pub(super) fn tile(self) -> RegisterTile {
        RegisterTile { rows: self.ow_tile * self.rows, vectors: self.vectors }
    }

    /// Output channels of a register tile: whole blocks where the layout has them, never more than a group.
    pub(super) fn channels(self, c: &Conv2d, cpu: &Cpu) -> i64 {
        let channels = self.vectors * cpu.f32_lanes();
        let whole = if let ConvLayout::NchwC(block) = c.layout { ceil_div(channels, block) * block } else { channels };
        whole.min(c.co_per_group())
    }

    /// Tiles of output channels of a group.
    pub(super) fn channel_tiles(self, c: &Conv2d, cpu: &Cpu) -> i64 {
        ceil_div(c.co_per_group(), self.channels(c, cpu))
    }

    /// Parts of the output channels, of all groups, that are tasks of their own.
    pub(super) fn channel_tasks(self, c: &Conv2d, cpu: &Cpu) -> i64 {
        c.groups * ceil_div(self.channel_tiles(c, cpu), self.tiles)
    }

    /// Iterations of the parallel loop.
    pub(super) fn tasks(self, c: &Conv2d, cpu: &Cpu) -> i64 {
        c.n * self.channel_tasks(c, cpu) * ceil_div(c.oh(), self.oh_tile)
    }

    /// What the space asks of a config besides the values of each knob; the space says it in words.
    pub(super) fn is_sane(self, c: &Conv2d, cpu: &Cpu) -> bool {
        let channels = self.channels(c, cpu);
        self.tile().fits(cpu)
            && (self.rows == 1 || self.ow_tile == c.ow())
            && self.rows <= self.oh_tile
            && (c.groups == 1 || c.co_per_group() % channels == 0)
            && self.tiles <= self.channel_tiles(c, cpu)
    }
}
