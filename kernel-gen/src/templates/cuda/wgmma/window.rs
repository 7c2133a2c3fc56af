//! Convolutions in NHWC whose weights stay in shared memory, and whose input comes once for all taps.
//!
//! [`conv2d`](super::conv2d) fetches a tile's pixels again for each tap, and with few channels that is what it waits for: the copy
//! engine takes two to three clocks for a row of 128 bytes, so nine taps of 128 pixels take longer than 64 output channels need
//! tensor cores. Here a tile is a box of output pixels of one image, and a slot of the ring holds the **window** of the
//! input that all its taps see, 64 channels deep: 18 x 10 pixels for 16 x 8 outputs of a 3 x 3. `wgmma` takes its left operand
//! as groups of eight rows, any distance apart, that begin at any row: eight neighbours along a row of the window make a group,
//! eight rows of it the 64 rows of a product, and each tap is the same window from another pixel on. Padding is what the copy
//! engine reads outside of the image.
//!
//! All weights of a block's output channels are brought once, before its first tile; a block keeps its channels for the whole
//! kernel. So this is for kernels of up to some 150 KB: 64 x 3 x 3 -> 64, 64 -> 96, 32 -> 64, 48 x 5 x 5 -> 64.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `consumers`, `row_blocks`, `bn` | 1 to 3; 1, 2; 16 to 256 | the tile, as in `wgmma_conv2d` |
//! | `stages` | 2 to 6 | windows in shared memory |
//! | `schedule` | `cooperative`, `pingpong` | consumers share a tile, or each has its own |
//! | `store` | `registers`, `tma` | how sums get to the output |
//! | `tile_w` | 8, 16, 24, 32 | columns of output pixels in a tile; its other factor is rows |

use super::kernel::{Behind, Block, Box, Element, Feed, Product, kernel};
use super::ring::block_of;
use super::{
    Cluster, MOST_BOX, ROW_BYTES, Schedule, Sizes, Store, WARPGROUP, ceil_div, choice, columns, device, multiplied,
    unit,
};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Gpu, Group, LoopKind, MbarrierOp, Operand, Scope, Slot, Unit, VarId};
use crate::schedule::Schedule as Loops;
use crate::space::{Config, Space};
use crate::target::{Cuda, Target};
use crate::templates::cuda::ring::Place;
use crate::templates::cuda::{fastest, tile};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload};

/// Convolutions in NHWC with one group and stride 1, of f16 and bf16, whose weights fit in shared memory. See the module's text.
pub struct WgmmaWindow;

/// Rows of a product, and of a group of its left operand.
const ROWS: i64 = 64;
const GROUP: i64 = 8;
/// What `tile_w` may be.
const WIDTHS: [i64; 4] = [8, 16, 24, 32];

/// What a window of the input and the weights of a block take of shared memory. The workload and the config say it together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Room {
    /// Bytes of a slot.
    slot: i64,
    /// Bytes of the weights.
    weights: i64,
}

impl Room {
    /// Bytes of so many slots, of the weights, and of the barriers of both.
    pub(super) fn bytes(&self, stages: i64) -> i64 {
        stages * (self.slot + 16) + self.weights + 16
    }
}

/// A convolution in tiles.
struct Convolution<'w> {
    workload: &'w Workload,
    c: Conv2d,
    sizes: Sizes,
    /// Output pixels of a tile.
    rows: i64,
    columns: i64,
}

/// The convolution and the device, or why it is none for this template.
fn problem<'t>(w: &Workload, t: &'t Target) -> Result<(Conv2d, &'t Cuda), String> {
    let cuda = device(w, t)?;
    let c = *w.conv2d().ok_or("for convolutions")?;
    if c.layout != ConvLayout::Nhwc || c.groups != 1 || w.dtype == DType::F32 {
        return Err("for 16 bits in NHWC with one group".into());
    }
    if c.stride != [1, 1] || c.kh * c.kw == 1 {
        return Err("for stride 1, and kernels of more than one tap".into());
    }
    // The copy engine wants rows of whole 16-byte units.
    let unit = unit(w);
    if let Some(n) = [c.ci, c.co].iter().find(|n| *n % unit != 0) {
        return Err(format!("{n} channels: their number must divide by {unit}"));
    }
    let fits =
        widths_of_tiles(&c).any(|bn| weight_bytes(w, &c, bn) + 2 * ROW_BYTES * ROWS < cuda.shared_per_block_optin);
    if !fits || c.kh * c.kw > MOST_TAPS {
        return Err(format!("weights of {} x {} x {} do not stay in shared memory", c.kh, c.kw, c.ci));
    }
    Ok((c, cuda))
}

/// Most taps: each is a product of its own in the program.
const MOST_TAPS: i64 = 49;

/// The columns of tiles.
fn widths_of_tiles(c: &Conv2d) -> impl Iterator<Item = i64> {
    columns(c.co).into_iter()
}

/// Channels in a row of a window: 64, or fewer where there are no more.
fn row_channels(w: &Workload, c: &Conv2d) -> i64 {
    let most = ROW_BYTES / w.dtype.bytes() as i64;
    [most / 4, most / 2].into_iter().find(|n| multiplied(w, c.ci) <= *n).unwrap_or(most)
}

/// Channels of each slot of a tile's reduction that are multiplied.
fn chunks(w: &Workload, c: &Conv2d) -> Vec<i64> {
    let (all, row) = (multiplied(w, c.ci), row_channels(w, c));
    (0..ceil_div(all, row)).map(|i| row.min(all - i * row)).collect()
}

/// Bytes of the weights of so many output channels.
fn weight_bytes(w: &Workload, c: &Conv2d, bn: i64) -> i64 {
    let held = ceil_div(bn, block_of(bn)) * block_of(bn);
    c.kh * c.kw * multiplied(w, c.ci) * held * w.dtype.bytes() as i64
}

/// The convolution as a config cuts it.
fn convolution<'w>(w: &'w Workload, c: &Conv2d, config: &Config) -> Result<Convolution<'w>, TemplateError> {
    let sizes = Sizes {
        consumers: config.int("consumers")?,
        row_blocks: config.int("row_blocks")?,
        bn: config.int("bn")?,
        stages: config.int("stages")?,
        group: 1,
        cluster: Cluster::None,
        schedule: choice(config, "schedule", &Schedule::ALL, Schedule::name)?,
        store: choice(config, "store", &Store::ALL, Store::name)?,
        pending: 0,
        split: 1,
        tail: 0,
        window: None,
    };
    let columns = config.int("tile_w")?;
    if sizes.bm() % (GROUP * columns) != 0 {
        let what = format!("{} pixels are no {GROUP} rows of {columns}, nor a multiple", sizes.bm());
        return Err(TemplateError::Limit(what));
    }
    let rows = sizes.bm() / columns;
    let mut found = Convolution { workload: w, c: *c, sizes, rows, columns };
    let row_bytes = row_channels(w, c) * w.dtype.bytes() as i64;
    let [high, wide] = found.slot();
    let room = Room { slot: high * wide * row_bytes, weights: weight_bytes(w, c, sizes.bn) };
    found.sizes.window = Some(room);
    Ok(found)
}

impl Convolution<'_> {
    /// Whether the copy engine takes a window at once, and registers and shared memory suffice.
    fn fits(&self, cuda: &Cuda) -> bool {
        let turns = self.sizes.schedule == Schedule::Cooperative || self.sizes.consumers == 2;
        turns && self.window().iter().all(|n| *n <= MOST_BOX) && self.sizes.fits(cuda)
    }

    /// Rows and columns of a window.
    fn window(&self) -> [i64; 2] {
        let [vertical, horizontal] = self.c.dilation;
        [self.rows + (self.c.kh - 1) * vertical, self.columns + (self.c.kw - 1) * horizontal]
    }

    /// Rows and columns of a slot, which begins where the address map does: after a multiple of eight of its rows of channels.
    fn slot(&self) -> [i64; 2] {
        let [high, wide] = self.window();
        let rows = (high..).find(|rows| rows * wide % GROUP == 0).unwrap_or(high);
        [rows, wide]
    }

    /// Tiles along rows and columns.
    fn pixel_tiles(&self) -> [i64; 2] {
        [ceil_div(self.c.oh(), self.rows), ceil_div(self.c.ow(), self.columns)]
    }

    fn channel_tiles(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.bn)
    }

    /// Where a row of the tile, the first of a group or any, lies in it: its row and column of pixels.
    fn pixel(&self, row: &Expr) -> [Expr; 2] {
        let across = self.columns / GROUP;
        let (block, within) = (row.clone().floor_div(ROWS), row.clone().floor_mod(ROWS));
        let (down, along) = (block.clone().floor_div(across), block.floor_mod(across));
        [down * GROUP + within.clone().floor_div(GROUP), along * GROUP + within.floor_mod(GROUP)]
    }

    /// Microseconds that it takes: a tile costs the longest of its products, its window and its output, where others run
    /// meanwhile; else its output comes on top.
    fn us(&self, cuda: &Cuda) -> f64 {
        let (c, sizes, w) = (&self.c, &self.sizes, self.workload);
        let tiles = self.tiles() as f64;
        let channels = self.channel_tiles();
        let blocks = ((cuda.sm_count / channels).max(1) * channels) as f64;
        let rounds = (tiles / blocks).ceil();
        let terms = (c.kh * c.kw * multiplied(w, c.ci)) as f64;
        // A product of few columns waits for its left operand, 64 rows from shared memory.
        let columns = (sizes.bn as f64).max(LEAST_COLUMNS);
        let multiply = 2.0 * sizes.bm() as f64 * columns * terms / (cuda.f16_flops_per_sm_clock as f64 * TENSOR_RATE);
        let slot = sizes.window.map_or(0, |room| room.slot) as f64;
        let load = slot * chunks(w, c).len() as f64 / L2_BYTES_PER_CLOCK;
        let rate = if sizes.store == Store::Tma { ENGINE_BYTES_PER_CLOCK } else { REGISTER_BYTES_PER_CLOCK };
        let store = (sizes.bm() * sizes.bn * w.out_dtype.bytes() as i64) as f64 / rate;
        let tile = match (sizes.schedule, sizes.consumers) {
            (Schedule::PingPong, _) => multiply.max(load).max(store),
            (Schedule::Cooperative, 1) => ALONE * multiply.max(load) + store,
            (Schedule::Cooperative, _) => multiply.max(load) + store,
        };
        let fill = sizes.window.map_or(0, |room| room.weights) as f64 / L2_BYTES_PER_CLOCK;
        let block = (fill + FILL_CLOCKS + rounds * tile) / cuda.clock_mhz as f64;
        let memory = w.bytes() as f64 / (cuda.bandwidth_gb_s * 1e3 * MEMORY_RATE);
        LAUNCH_US + block.max(memory) + HIDDEN * block.min(memory)
    }
}

/// As in [`model`](super::model), where they are fitted; the rest is not.
const TENSOR_RATE: f64 = 0.76;
const L2_BYTES_PER_CLOCK: f64 = 46.0;
const ENGINE_BYTES_PER_CLOCK: f64 = 25.0;
const REGISTER_BYTES_PER_CLOCK: f64 = 15.0;
const FILL_CLOCKS: f64 = 870.0;
const ALONE: f64 = 1.5;
const HIDDEN: f64 = 0.1;
const LAUNCH_US: f64 = 1.4;
const MEMORY_RATE: f64 = 0.82;
const LEAST_COLUMNS: f64 = 64.0;

impl Template for WgmmaWindow {
    fn name(&self) -> &str {
        "wgmma_window"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (c, cuda) = problem(w, t).map_err(TemplateError::Limit)?;
        let (w, cuda) = (w.clone(), cuda.clone());
        Ok(Space::builder()
            .knob("consumers", [1, 2, 3])
            .knob("row_blocks", [1, 2])
            .knob("bn", widths_of_tiles(&c).collect::<Vec<_>>())
            .knob("stages", 2..=6)
            .knob("schedule", Schedule::ALL.map(Schedule::name))
            .knob("store", Store::ALL.map(Store::name))
            .knob("tile_w", WIDTHS)
            .filter("sums fit in registers, weights and windows in shared memory; turns are for two", move |config| {
                convolution(&w, &c, config).is_ok_and(|found| found.fits(&cuda))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let (c, cuda) = problem(w, t).map_err(TemplateError::Limit)?;
        let mut candidates = vec![];
        let tall = [
            (1, 1, Schedule::Cooperative),
            (2, 1, Schedule::PingPong),
            (2, 2, Schedule::PingPong),
            (2, 1, Schedule::Cooperative),
            (2, 2, Schedule::Cooperative),
        ];
        for (consumers, row_blocks, schedule) in tall {
            for (bn, width) in widths_of_tiles(&c).flat_map(|bn| WIDTHS.map(|width| (bn, width))) {
                let deepest = [4, 3, 2].into_iter().find_map(|stages| {
                    let config = Config::new()
                        .with("consumers", consumers)
                        .with("row_blocks", row_blocks)
                        .with("bn", bn)
                        .with("stages", stages)
                        .with("schedule", schedule.name())
                        .with("store", Store::Tma.name())
                        .with("tile_w", width);
                    let found = convolution(w, &c, &config).ok()?;
                    found.fits(cuda).then(|| (found.us(cuda), config))
                });
                candidates.extend(deepest);
            }
        }
        fastest(candidates)
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        let found = || -> Option<f64> {
            let (c, cuda) = problem(w, t).ok()?;
            Some(convolution(w, &c, config).ok()?.us(cuda))
        };
        found().unwrap_or(f64::INFINITY)
    }

    fn longest_early_us(&self) -> f64 {
        super::LONGEST_EARLY_US
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (c, cuda) = problem(w, t).map_err(TemplateError::Limit)?;
        let product = convolution(w, &c, config)?;
        Ok(Scheduled { schedule: Loops::new(kernel(&product, product.sizes, cuda)), packs: vec![] })
    }
}

impl Product for Convolution<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn tiles(&self) -> i64 {
        self.c.n * self.pixel_tiles().iter().product::<i64>() * self.channel_tiles()
    }

    fn column_period(&self) -> i64 {
        self.channel_tiles()
    }

    fn feed<'f>(&'f self, b: &mut KernelBuilder, block: &Block<'_>) -> std::boxed::Box<dyn Feed + 'f> {
        std::boxed::Box::new(Windows::make(b, block, self))
    }

    /// Image, first row, column and channel. Channels go fastest, so that a block keeps its own; then columns and rows, whose
    /// windows overlap.
    fn place(&self, b: &mut KernelBuilder, item: VarId, _: &Expr) -> Vec<Expr> {
        let ([rows, columns], channels) = (self.pixel_tiles(), self.channel_tiles());
        let pixels = Expr::from(item).floor_div(channels);
        let channel = b.let_("channel_tile", Expr::from(item).floor_mod(channels));
        let column = b.let_("column_tile", pixels.clone().floor_mod(columns));
        let pixels = pixels.floor_div(columns);
        let row = b.let_("row_tile", pixels.clone().floor_mod(rows));
        let image = b.let_("image", pixels.floor_div(rows).floor_mod(self.c.n));
        // The factors stay visible: they say how stores are aligned.
        vec![image.into(), row * self.rows, column * self.columns, channel * self.sizes.bn]
    }

    fn element(&self, place: &[Expr], row: Expr, column: Expr) -> Element {
        let [down, along] = self.pixel(&row);
        let index = [
            (place[1].clone() + down, self.c.oh(), self.rows),
            (place[2].clone() + along, self.c.ow(), self.columns),
            (place[3].clone() + column, self.c.co, self.sizes.bn),
        ];
        let inside = index.iter().filter(|(_, size, tile)| size % tile != 0);
        Element {
            exists: Expr::all(inside.map(|(index, size, _)| index.clone().lt(*size))),
            channel: index[2].0.clone(),
            index: [place[0].clone()].into_iter().chain(index.into_iter().map(|(index, ..)| index)).collect(),
        }
    }

    fn piece(&self, place: &[Expr], row: Expr, column: Expr, rows: i64, columns: i64) -> Box {
        let [down, along] = self.pixel(&row);
        let at = |i: usize, within: Expr| place[i].clone() + within;
        Box {
            origin: vec![place[0].clone(), at(1, down), at(2, along), at(3, column)],
            extents: vec![1, rows / GROUP, GROUP, columns],
            steps: vec![],
        }
    }
}

/// The ring of windows, the weights, and this thread's place.
struct Windows<'c> {
    conv: &'c Convolution<'c>,
    windows: BufferId,
    /// Of each slot of a tile's reduction the weights of all taps.
    weights: Vec<BufferId>,
    /// The barrier whose first phase ends when the weights have come.
    weights_full: BufferId,
    /// One barrier a slot, whose phases end when its window has come, and when all its consumers are done with it.
    full: BufferId,
    empty: BufferId,
    place: Place,
    thread: VarId,
}

impl<'c> Windows<'c> {
    fn make(b: &mut KernelBuilder, block: &Block<'_>, conv: &'c Convolution<'c>) -> Windows<'c> {
        let (w, c, sizes, thread) = (conv.workload, &conv.c, conv.sizes, block.thread);
        let bytes = w.dtype.bytes() as u32;
        let (channels, [rows, columns]) = (row_channels(w, c), conv.slot());
        let shape = [sizes.stages, rows, columns, channels];
        let windows = b.alloc_swizzled("windows", w.dtype, &shape, channels as u32 * bytes);
        let wide = block_of(sizes.bn);
        let weights = chunks(w, c)
            .into_iter()
            .map(|depth| {
                let shape = [c.kh * c.kw, ceil_div(sizes.bn, wide), depth, wide];
                b.alloc_swizzled("weights", w.dtype, &shape, wide as u32 * bytes)
            })
            .collect();
        let barriers = |b: &mut KernelBuilder, name, count| b.alloc(name, DType::I64, &[count], Scope::Mbarrier);
        let weights_full = barriers(b, "weights_full", 1);
        let (full, empty) = (barriers(b, "full", sizes.stages), barriers(b, "empty", sizes.stages));
        let users = sizes.consumers / sizes.tiles_at_once();
        b.if_(Expr::from(thread).eq(0), |b| {
            let init = |b: &mut KernelBuilder, buffer, index: Expr, arrivals| {
                b.gpu(Gpu::Mbarrier(Slot { buffer, index }, MbarrierOp::Init(arrivals)));
            };
            init(b, weights_full, 0.into(), 1);
            b.loop_("slot", sizes.stages, LoopKind::Unrolled, |b, slot| {
                init(b, full, slot.into(), 1);
                init(b, empty, slot.into(), users);
            });
            b.gpu(Gpu::FenceAsync);
        });
        let place = Place::start(b, sizes.stages);
        Windows { conv, windows, weights, weights_full, full, empty, place, thread }
    }

    fn weights_there(&self) -> Slot {
        Slot { buffer: self.weights_full, index: 0.into() }
    }

    /// The products of all taps with what a slot holds, `depth` channels deep, onto the row blocks from the row `first` on.
    fn multiply(&self, b: &mut KernelBuilder, acc: BufferId, (chunk, depth): (usize, i64), [slot, first]: [&Expr; 2]) {
        let (c, sizes) = (&self.conv.c, self.conv.sizes);
        let wide = block_of(sizes.bn);
        for (kh, kw) in (0..c.kh).flat_map(|kh| (0..c.kw).map(move |kw| (kh, kw))) {
            let origin = vec![(kh * c.kw + kw).into(), 0.into(), 0.into(), 0.into()];
            let right = tile(self.weights[chunk], origin, &[1, ceil_div(sizes.bn, wide), depth, wide]);
            for h in 0..sizes.row_blocks {
                let [down, along] = self.conv.pixel(&(first.clone() + ROWS * h));
                let (down, along) = (down + kh * c.dilation[0], along + kw * c.dilation[1]);
                let left = tile(self.windows, vec![slot.clone(), down, along, 0.into()], &[1, GROUP, GROUP, depth]);
                b.gpu(Gpu::Mma {
                    unit: Unit::Warpgroup,
                    acc: super::kernel::sums(acc, h, sizes),
                    a: Operand { tile: left, transposed: false },
                    b: Operand { tile: right.clone(), transposed: false },
                });
            }
        }
    }

    /// Gives the slot of the step before back: one thread a consumer.
    fn give_back(&self, b: &mut KernelBuilder, steps: i64) {
        b.if_(Expr::from(self.thread).floor_mod(WARPGROUP).eq(0), |b| {
            let on = Slot { buffer: self.empty, index: self.place.before(steps) };
            b.gpu(Gpu::Mbarrier(on, MbarrierOp::Arrive(None)));
        });
    }
}

impl Feed for Windows<'_> {
    fn place(&self) -> Place {
        self.place
    }

    fn begin_producing(&self, b: &mut KernelBuilder, block: &Block<'_>) {
        let (conv, c) = (self.conv, &self.conv.c);
        let (source, wide) = (block.params[1].1, block_of(conv.sizes.bn));
        let blocks = ceil_div(conv.sizes.bn, wide);
        let bytes = weight_bytes(conv.workload, c, conv.sizes.bn);
        b.gpu(Gpu::Mbarrier(self.weights_there(), MbarrierOp::Expect(bytes)));
        let channel = b.let_("first_channel", Expr::from(block.index).floor_mod(conv.channel_tiles()) * conv.sizes.bn);
        let row = row_channels(conv.workload, c);
        for (chunk, depth) in chunks(conv.workload, c).into_iter().enumerate() {
            b.for_("kh", c.kh, |b, kh| {
                b.for_("kw", c.kw, |b, kw| {
                    for i in 0..blocks {
                        let from = vec![kh.into(), kw.into(), (chunk as i64 * row).into(), channel + i * wide];
                        let to = vec![kh * c.kw + kw, i.into(), 0.into(), 0.into()];
                        b.gpu(Gpu::TensorLoad {
                            dst: tile(self.weights[chunk], to, &[1, 1, depth, wide]),
                            src: tile(source, from, &[1, 1, depth, wide]),
                            steps: vec![],
                            on: self.weights_there(),
                            multicast: None,
                        });
                    }
                });
            });
        }
    }

    fn begin_consuming(&self, b: &mut KernelBuilder) {
        b.gpu(Gpu::Mbarrier(self.weights_there(), MbarrierOp::Wait(0.into())));
    }

    fn produce(&self, b: &mut KernelBuilder, block: &Block<'_>, place: &[Expr]) {
        let (c, w) = (&self.conv.c, self.conv.workload);
        let (channels, [high, wide]) = (row_channels(w, c), self.conv.window());
        for chunk in 0..chunks(w, c).len() as i64 {
            let (slot, parity) = self.place.slot(b);
            let on = |buffer| Slot { buffer, index: slot.clone() };
            // The phase before the first counts as ended: the ring begins empty.
            b.gpu(Gpu::Mbarrier(on(self.empty), MbarrierOp::Wait(Expr::Int(1) - parity)));
            b.gpu(Gpu::Mbarrier(on(self.full), MbarrierOp::Expect(high * wide * channels * w.dtype.bytes() as i64)));
            let extents = [1, high, wide, channels];
            let from = vec![
                place[0].clone(),
                place[1].clone() - c.padding[0],
                place[2].clone() - c.padding[1],
                (chunk * channels).into(),
            ];
            let to = vec![slot.clone(), 0.into(), 0.into(), 0.into()];
            b.gpu(Gpu::TensorLoad {
                dst: tile(self.windows, to, &extents),
                src: tile(block.params[0].1, from, &extents),
                steps: vec![],
                on: on(self.full),
                multicast: None,
            });
            self.place.advance(b);
        }
    }

    /// A slot is given back when the products of the next one are under way.
    fn consume(
        &self,
        b: &mut KernelBuilder,
        acc: BufferId,
        _: &[Expr],
        first: &Expr,
        behind: &Behind<'_>,
    ) -> Option<VarId> {
        for (chunk, depth) in chunks(self.conv.workload, &self.conv.c).into_iter().enumerate() {
            let (slot, parity) = self.place.slot(b);
            b.gpu(Gpu::Mbarrier(Slot { buffer: self.full, index: slot.clone() }, MbarrierOp::Wait(parity)));
            self.multiply(b, acc, (chunk, depth), [&slot, first]);
            b.gpu(Gpu::Commit(Group::Mma));
            self.place.advance(b);
            if chunk > 0 {
                b.gpu(Gpu::Wait(Group::Mma, 1));
                self.give_back(b, 2);
            }
            behind(b, 1);
        }
        None
    }

    fn finish(&self, b: &mut KernelBuilder, _: Option<VarId>) {
        b.gpu(Gpu::Wait(Group::Mma, 0));
        self.give_back(b, 1);
    }

    fn pass(&self, b: &mut KernelBuilder, _: &[Expr]) {
        for _ in chunks(self.conv.workload, &self.conv.c) {
            self.place.advance(b);
        }
    }
}
