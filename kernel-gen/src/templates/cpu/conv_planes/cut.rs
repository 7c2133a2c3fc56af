//! A convolution over planes, cut up by a config: what a task computes, and what it reads.

use super::knobs::{Knobs, Source};
use super::steps::Steps;
use crate::integer::ceil_div;
use crate::ir::Expr;
use crate::templates::planes::{DIMENSIONS, Planes};

/// Most bytes of a copy of all images, and of one with the pixels of each tap for themselves.
const MOST_BYTES: i64 = 1 << 40;
const MOST_EXPANDED: i64 = 1 << 25;

/// Elements of a cache line.
const LINE: i64 = 16;

/// A product that ends at the largest number.
fn product(numbers: impl IntoIterator<Item = i64>) -> i64 {
    numbers.into_iter().fold(1, i64::saturating_mul)
}

/// A convolution over planes that is cut up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) planes: Planes,
    pub(super) steps: [Steps; DIMENSIONS],
    pub(super) knobs: Knobs,
    pub(super) lanes: i64,
}

impl Cut {
    pub(super) fn new(planes: Planes, knobs: Knobs, lanes: i64) -> Cut {
        let steps = if knobs.source == Source::Taps { Steps::expanded } else { Steps::of };
        Cut { planes, steps: planes.dimensions.map(steps), knobs, lanes }
    }

    /// The product of the dimensions' numbers.
    pub(super) fn all(&self, of: impl Fn(&Steps) -> i64) -> i64 {
        product(self.steps.iter().map(of))
    }

    /// Phases of the outputs.
    pub(super) fn phases(&self) -> i64 {
        self.all(|s| s.of.phases())
    }

    /// Tiles of output channels of a group.
    pub(super) fn channel_tiles(&self) -> i64 {
        ceil_div(self.planes.co, self.knobs.mr)
    }

    /// Parts of a group's output channels, blocks of rows and blocks of columns.
    pub(super) fn blocks(&self) -> [i64; 3] {
        let [_, rows, columns] = self.steps.map(|s| s.columns());
        [
            ceil_div(self.channel_tiles(), self.knobs.tiles),
            ceil_div(rows, self.knobs.rows),
            ceil_div(columns, self.knobs.columns),
        ]
    }

    /// Iterations of the parallel loop.
    pub(super) fn tasks(&self) -> i64 {
        let [channels, rows, columns] = self.blocks();
        product([self.planes.n, self.planes.groups, channels, self.steps[0].columns(), rows, columns])
    }

    /// Pixels that a row of a slot has along each dimension.
    pub(super) fn lengths(&self) -> [i64; DIMENSIONS] {
        let [deep, down, along] = &self.steps;
        let reach = |s: &Steps, outputs: i64| outputs + s.shifts[1] - s.shifts[0];
        match self.knobs.source {
            Source::Input => self.steps.map(|s| s.of.input),
            Source::Image | Source::Taps => self.steps.map(|s| s.pitch()),
            Source::Task if self.cuts_rows() => {
                [reach(deep, 1), reach(down, self.knobs.rows), reach(along, self.knobs.columns)]
            }
            Source::Task => [reach(deep, 1), reach(down, self.knobs.rows), along.pitch()],
        }
    }

    /// Whether a task has a part of a row.
    fn cuts_rows(&self) -> bool {
        self.knobs.columns < self.steps[2].columns()
    }

    /// Along each dimension whether what is read begins with the task's own outputs.
    fn is_own(&self) -> [bool; DIMENSIONS] {
        match self.knobs.source {
            Source::Task => [true, true, self.cuts_rows()],
            _ => [false; DIMENSIONS],
        }
    }

    /// The place of a slot's first element, for the outputs that begin at `from`.
    pub(super) fn origins(&self, from: &[Expr; DIMENSIONS]) -> [Expr; DIMENSIONS] {
        let own = self.is_own();
        std::array::from_fn(|i| match own[i] {
            true => from[i].clone() + self.steps[i].shifts[0],
            false => Expr::Int(-self.steps[i].front()),
        })
    }

    /// The first of these outputs, counted from there.
    pub(super) fn first(&self, from: &[Expr; DIMENSIONS]) -> [Expr; DIMENSIONS] {
        let own = self.is_own();
        std::array::from_fn(|i| match own[i] {
            true => Expr::Int(-self.steps[i].shifts[0]),
            false => from[i].clone() + self.steps[i].front(),
        })
    }

    /// Places of a slot by their numbers along the dimensions.
    pub(super) fn flat(&self, [deep, down, along]: [Expr; DIMENSIONS]) -> Expr {
        let [_, rows, columns] = self.lengths();
        (deep * rows + down) * columns + along
    }

    /// [`flat`](Cut::flat) of numbers.
    fn flat_number(&self, [deep, down, along]: [i64; DIMENSIONS]) -> i64 {
        let [_, rows, columns] = self.lengths();
        deep.saturating_mul(rows).saturating_add(down).saturating_mul(columns).saturating_add(along)
    }

    /// Neighbouring places that a task computes outputs for, those between its rows included.
    fn places(&self) -> i64 {
        self.flat_number([0, self.knobs.rows - 1, self.knobs.columns])
    }

    /// Vectors of these.
    pub(super) fn across(&self) -> i64 {
        ceil_div(self.places(), self.lanes)
    }

    /// Elements of a slot: those that have a place, and zeros as far as the last vector of outputs looks.
    pub(super) fn slot(&self) -> i64 {
        let whole = product(self.lengths());
        if self.knobs.source == Source::Input {
            return whole;
        }
        let [_, rows, columns] = self.blocks();
        let last = [self.steps[0].columns() - 1, (rows - 1) * self.knobs.rows, (columns - 1) * self.knobs.columns];
        let own = self.is_own();
        let first = std::array::from_fn(|i| match own[i] {
            true => -self.steps[i].shifts[0],
            false => last[i] + self.steps[i].front(),
        });
        let shift = self.flat_number(self.steps.map(|s| s.shifts[1]));
        let vectors = self.across().saturating_mul(self.lanes);
        whole.max(self.flat_number(first).saturating_add(shift).saturating_add(vectors))
    }

    /// Elements from channel to channel: of a copy an odd number of cache lines, so that a step's pixels of all channels do not fall
    /// into a few sets of the first-level cache.
    pub(super) fn channel(&self) -> i64 {
        let elements = self.slot().saturating_mul(self.all(Steps::slots));
        match self.knobs.source {
            Source::Input => elements,
            _ => ((elements.saturating_add(LINE - 1) / LINE) | 1).saturating_mul(LINE),
        }
    }

    /// Bytes of a task's sums.
    pub(super) fn sums_bytes(&self) -> i64 {
        product([4, self.steps[2].of.phases(), self.knobs.tiles, self.knobs.mr, self.across(), self.lanes])
    }

    /// Shape of the packed weights: group, phase, tile of channels, input channel, taps, channel of the tile.
    pub(super) fn packed_shape(&self) -> [i64; 8] {
        let [deep, down, along] = self.steps.map(|s| s.of.most_taps());
        let Planes { groups, ci, .. } = self.planes;
        [groups, self.phases(), self.channel_tiles(), ci, deep, down, along, self.knobs.mr]
    }

    /// Whether the input is read as it is: its planes are what outputs lie over, and blocks of them are whole vectors.
    fn is_direct(&self) -> bool {
        let Knobs { rows, columns, .. } = self.knobs;
        self.steps.iter().all(Steps::is_same)
            && self.steps[1].columns() % rows == 0
            && self.steps[2].columns() % columns == 0
            && self.places() % self.lanes == 0
    }

    /// What the space asks of a config beside the values of each knob and the registers; the space says it in words.
    pub(super) fn is_sane(&self, most_bytes: i64) -> bool {
        let k = self.knobs;
        let copied = product([4, self.planes.ci, self.channel()]);
        let all_copied = product([self.planes.n, self.planes.groups, copied]);
        (k.rows == 1 || k.columns == self.steps[2].columns())
            && k.tiles <= self.channel_tiles()
            && k.vectors <= self.across()
            && (k.source != Source::Input || self.is_direct())
            && (k.source != Source::Taps || self.all(Steps::slots) > 1 && all_copied <= MOST_EXPANDED)
            && (k.source != Source::Image || all_copied <= MOST_BYTES)
            && (k.source != Source::Task || copied <= most_bytes)
            && self.sums_bytes() <= most_bytes
    }
}
