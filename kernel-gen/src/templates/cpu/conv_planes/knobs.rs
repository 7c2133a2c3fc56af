//! What a config of a convolution over planes says.

use crate::space::Config;
use crate::target::Cpu;
use crate::templates::TemplateError;
use crate::templates::cpu::tile::RegisterTile;

/// Where a task reads the input from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The input itself: nothing is padded, and no output meets several pixels.
    Input,
    /// A copy with the padding, which a phase beforehand makes of all images.
    Image,
    /// Such a copy with the pixels of each tap for themselves, in which nothing lies between rows.
    Taps,
    /// A copy of what the task needs, which it makes for itself.
    Task,
}

impl Source {
    pub(super) const ALL: [Source; 4] = [Source::Input, Source::Image, Source::Taps, Source::Task];

    pub(super) fn name(self) -> &'static str {
        match self {
            Source::Input => "input",
            Source::Image => "image",
            Source::Taps => "taps",
            Source::Task => "task",
        }
    }
}

/// A config of the template, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Knobs {
    /// Output channels of the register tile.
    pub(super) mr: i64,
    /// Vectors of pixels of the register tile.
    pub(super) vectors: i64,
    /// Rows of outputs of a task, of each phase.
    pub(super) rows: i64,
    /// Outputs of a row of a task: all, where it has several rows.
    pub(super) columns: i64,
    /// Tiles of `mr` channels of a task.
    pub(super) tiles: i64,
    pub(super) source: Source,
}

impl Knobs {
    pub(super) fn read(config: &Config) -> Result<Knobs, TemplateError> {
        let source = config.str("copy")?;
        let source = Source::ALL.into_iter().find(|s| s.name() == source);
        Ok(Knobs {
            mr: config.int("mr")?,
            vectors: config.int("nv")?,
            rows: config.int("rows")?,
            columns: config.int("columns")?,
            tiles: config.int("tiles")?,
            source: source.ok_or_else(|| TemplateError::Limit(format!("`{config}` copies where nobody does")))?,
        })
    }

    /// The config that reads as this.
    pub(super) fn config(self) -> Config {
        Config::new()
            .with("mr", self.mr)
            .with("nv", self.vectors)
            .with("rows", self.rows)
            .with("columns", self.columns)
            .with("tiles", self.tiles)
            .with("copy", self.source.name())
    }

    pub(super) fn fits(self, cpu: &Cpu) -> bool {
        RegisterTile { rows: self.mr, vectors: self.vectors }.fits(cpu)
    }
}
