//! Sums of products in `f64`, of which both operators are made.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sums before the epilogue.
pub(crate) struct Sums {
    /// `sum x w` of each output element.
    pub(crate) values: Vec<f64>,
    /// `sum |x||w|` of each, which error bounds are made of.
    pub(crate) magnitudes: Vec<f64>,
    /// The sums that may be NaN as well, because a weight over the padding is no finite number.
    pub(crate) or_nan: Vec<usize>,
}

/// What a convolution and a product of matrices have in common: `y[pixel, channel] = sum_t x[pixel, t] * w[channel, t]`,
/// where an element of each of the three lies at the sum of two offsets. The channels come in groups of the same number, which
/// differ in the part of `x` that they read.
pub(super) struct Products<'a> {
    pub(super) x: &'a [f64],
    pub(super) x_pixels: Vec<usize>,
    /// For each group.
    pub(super) x_terms: Vec<Vec<usize>>,
    pub(super) w: &'a [f64],
    pub(super) w_channels: Vec<usize>,
    pub(super) w_terms: Vec<usize>,
    pub(super) y_pixels: Vec<usize>,
    pub(super) y_channels: Vec<usize>,
}

/// The sums of some neighbouring pixels and channels, which stay in registers while products are added: on any x86-64 four
/// of 16 take the values, four the magnitudes, and the rest is for operands and products.
#[derive(Clone, Copy, Default)]
struct Block {
    values: [[f64; Block::PIXELS]; Block::CHANNELS],
    magnitudes: [[f64; Block::PIXELS]; Block::CHANNELS],
}

impl Block {
    const PIXELS: usize = 4;
    const CHANNELS: usize = 2;

    /// Adds the products of some terms.
    fn add(&mut self, x: &[[f64; Block::PIXELS]], w: &[[f64; Block::CHANNELS]]) {
        let mut sums = *self;
        for (x, w) in x.iter().zip(w) {
            for (o, w) in w.iter().enumerate() {
                for (p, x) in x.iter().enumerate() {
                    let product = x * w;
                    sums.values[o][p] += product;
                    sums.magnitudes[o][p] += product.abs();
                }
            }
        }
        *self = sums;
    }
}

/// The elements of an operand at the given places, `N` at a time: for each `N` of them all terms, and zeros where the last are
/// fewer.
fn panels<const N: usize>(data: &[f64], places: &[usize], terms: &[usize]) -> Vec<[f64; N]> {
    // Neighbours in memory may be places or terms. So few terms at a time, either come while caches have their lines.
    const TERMS: usize = 8;
    let mut panels = vec![[0.0; N]; places.len().div_ceil(N) * terms.len()];
    for (number, some) in terms.chunks(TERMS).enumerate() {
        for (panel, places) in panels.chunks_mut(terms.len()).zip(places.chunks(N)) {
            for (to, term) in panel[number * TERMS..].iter_mut().zip(some) {
                to.iter_mut().zip(places).for_each(|(to, place)| *to = data[place + term]);
            }
        }
    }
    panels
}

impl Products<'_> {
    /// All of them. Every sum has its terms added in their order, however many threads there are.
    pub(super) fn sums(&self) -> Sums {
        // What a thread computes at a time: panels of so many pixels and terms stay in its caches for all of the channels.
        const PIXELS: usize = 256;
        const CHANNELS: usize = 32;
        let (pixels, channels) = (self.y_pixels.len(), self.y_channels.len());
        let groups = self.x_terms.len();
        let group_channels = channels / groups;
        let (strips, stacks) = (pixels.div_ceil(PIXELS), group_channels.div_ceil(CHANNELS));
        let zeros = || vec![0.0; pixels * channels];
        let y = Mutex::new(Sums { values: zeros(), magnitudes: zeros(), or_nan: vec![] });
        let macs = PIXELS.min(pixels) * CHANNELS.min(group_channels) * self.w_terms.len();
        for_each_part(strips * groups * stacks, macs, |number| {
            // Tiles of the same pixels follow each other: in many layouts their elements are neighbours.
            let (strip, of_strip) = (number / (stacks * groups), number % (stacks * groups));
            let (group, stack) = (of_strip / stacks, of_strip % stacks);
            let pixels = strip * PIXELS..pixels.min((strip + 1) * PIXELS);
            let first = group * group_channels;
            let channels = first + stack * CHANNELS..first + group_channels.min((stack + 1) * CHANNELS);
            let blocks = self.tile(pixels.clone(), channels.clone(), &self.x_terms[group]);
            let mut y = y.lock().expect("a part panics only where the whole would");
            let across = pixels.len().div_ceil(Block::PIXELS);
            // Neighbours in memory may be pixels or channels, so a few of each at a time here, too.
            for (column, y_pixels) in self.y_pixels[pixels].chunks(Block::PIXELS).enumerate() {
                for (o, y_channel) in self.y_channels[channels.clone()].iter().enumerate() {
                    let block = &blocks[o / Block::CHANNELS * across + column];
                    for (p, y_pixel) in y_pixels.iter().enumerate() {
                        y.values[y_channel + y_pixel] = block.values[o % Block::CHANNELS][p];
                        y.magnitudes[y_channel + y_pixel] = block.magnitudes[o % Block::CHANNELS][p];
                    }
                }
            }
        });
        y.into_inner().expect("a part panics only where the whole would")
    }

    /// The sums, where the padding, for which `inside` is `false`, has no terms whatever the weights are. A sum that has a weight there
    /// that is no finite number may be NaN as well.
    pub(super) fn sums_inside(&self, inside: &[bool]) -> Sums {
        let mut sums = self.sums();
        let group_channels = self.y_channels.len() / self.x_terms.len();
        for (channel, w_channel) in self.w_channels.iter().enumerate() {
            let weights: Vec<f64> = self.w_terms.iter().map(|term| self.w[w_channel + term]).collect();
            if weights.iter().all(|w| w.is_finite()) {
                continue;
            }
            for (x_pixel, y_pixel) in self.x_pixels.iter().zip(&self.y_pixels) {
                let (mut value, mut magnitude, mut absent) = (0.0, 0.0, false);
                for (w, x_term) in weights.iter().zip(&self.x_terms[channel / group_channels]) {
                    let x = x_pixel + x_term;
                    if inside[x] {
                        value += self.x[x] * w;
                        magnitude += (self.x[x] * w).abs();
                    } else {
                        absent |= !w.is_finite();
                    }
                }
                let y = self.y_channels[channel] + y_pixel;
                (sums.values[y], sums.magnitudes[y]) = (value, magnitude);
                sums.or_nan.extend(absent.then_some(y));
            }
        }
        sums
    }

    /// The sums of some pixels and of some channels of a group, whose terms are given: rows of blocks.
    fn tile(&self, pixels: Range<usize>, channels: Range<usize>, x_terms: &[usize]) -> Vec<Block> {
        const TERMS: usize = 128;
        let (across, down) = (pixels.len().div_ceil(Block::PIXELS), channels.len().div_ceil(Block::CHANNELS));
        let mut blocks = vec![Block::default(); across * down];
        for (x_terms, w_terms) in x_terms.chunks(TERMS).zip(self.w_terms.chunks(TERMS)) {
            let x = panels(self.x, &self.x_pixels[pixels.clone()], x_terms);
            let w = panels(self.w, &self.w_channels[channels.clone()], w_terms);
            for (w, blocks) in w.chunks(w_terms.len()).zip(blocks.chunks_mut(across)) {
                for (x, block) in x.chunks(x_terms.len()).zip(blocks) {
                    block.add(x, w);
                }
            }
        }
        blocks
    }
}

/// Computes the parts `0..count`, each about `macs` products, on all processors. Every part is computed as it would be alone,
/// so the result does not depend on how many threads there are.
pub(super) fn for_each_part(count: usize, macs: usize, part: impl Fn(usize) + Sync) {
    // A thread costs as much as some ten thousand products.
    const WORTH_A_THREAD: usize = 1_000_000;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(count.saturating_mul(macs) / WORTH_A_THREAD).min(count).max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        numbers.take_while(|number| *number < count).for_each(&part);
    };
    std::thread::scope(|scope| {
        // If the system gives fewer threads, those that there are do the work.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        (1..threads).map_while(spawn).for_each(drop);
        work();
    });
}
