//! The kernels: words of the input, words of the weights, and sums of products in vectors of output channels.

use super::input::{Input, int, operands, word};
use super::problem::{Channels, Order, Problem, Words};
use crate::integer::ceil_div;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Access, BufferId, DType, Expr, Kernel, LoopKind, Scope, VarId};
use crate::workload::epilogue::StepOperand;
use crate::workload::naive::epilogue_from;
use crate::workload::operands::Operands;
use crate::workload::{Epilogue, WeightZero, Workload};

/// How the outputs are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tiles {
    /// Pixels of a tile.
    pub(super) rows: i64,
    /// Vectors of output channels of a tile.
    pub(super) vectors: i64,
    /// Tiles of pixels of a task.
    pub(super) block: i64,
    /// Lanes of a vector.
    pub(super) lanes: i64,
    /// Whether weights are asked for before they are needed.
    pub(super) ahead: bool,
}

/// The prefetch distance for the weights of `channels` output channels, in words: a page of 4096 bytes, where hardware prefetchers stop.
pub(super) fn fetch_ahead(channels: i64) -> i64 {
    (4096 / (4 * channels)).max(1)
}

impl Tiles {
    pub(super) fn channels(&self) -> i64 {
        self.vectors * self.lanes
    }
}

/// The kernel that packs weights.
pub(super) fn pack(w: &Workload, p: &Problem, tile: i64) -> Kernel {
    let mut b = KernelBuilder::new(format!("{}_pack_w", w.kernel_name()));
    let shape = p.packed_weights(tile);
    let from = b.param("w", w.quant.weight, &p.w_shape(), Access::Read);
    let [_, words] = p.word_types();
    let to = b.param("packed", words, &shape, Access::Write);
    let at = |set: &Expr, channel: &Expr, ci: Expr, tap: [VarId; 2]| {
        let [kh, kw] = tap.map(Expr::from);
        let (ci, kw) = match p.unfolded {
            Some(of) => (ci.clone().floor_mod(of.ci), ci.floor_div(of.ci)),
            None => (ci, kw),
        };
        let own = if p.batched { channel.clone() } else { set.clone() * p.co + channel.clone() };
        let index = match p.order {
            Order::OutputFirst => vec![own, ci, kh, kw],
            Order::OutputLast => vec![kh, kw, ci, own],
        };
        let set = p.batched.then(|| set.clone());
        let value = Expr::load(from, set.into_iter().chain(index).collect());
        if p.weight_offset == 0 { value } else { value - int(p.weight_offset) }
    };
    b.loop_("tile", shape[0] * shape[1], LoopKind::Parallel, |b, task| {
        let set = Expr::from(b.let_("set", Expr::from(task).floor_div(shape[1])));
        let of = Expr::from(b.let_("co_t", Expr::from(task).floor_mod(shape[1])));
        b.for_("lane", tile, |b, lane| {
            let channel = Expr::from(b.let_("channel", of.clone() * tile + lane));
            let total = b.alloc("total", DType::I32, &[1], Scope::Register);
            b.store(total, [Expr::Int(0)], int(0));
            let there = channel.clone().lt(p.co);
            let sets_whole = p.co % tile == 0;
            b.nest(&[("kh", p.taps[0]), ("kw", p.taps[1]), ("word", p.words())], |b, v| {
                let tap = [v[0], v[1]];
                let rest = p.ci % p.of_word();
                let integer = |i: i64| {
                    let ci = p.channel(v[2].into(), i);
                    let value = at(&set, &channel, ci.clone(), tap);
                    let beyond = (rest != 0 && i >= rest).then(|| ci.lt(p.ci));
                    let conditions = (!sets_whole).then(|| there.clone()).into_iter().chain(beyond);
                    match Expr::all(conditions) {
                        Some(condition) => condition.select(value, int(0)),
                        None => value,
                    }
                };
                let integers: Vec<Expr> = (0..p.of_word()).map(integer).collect();
                let sum = integers.iter().cloned().fold(Expr::load(total, vec![Expr::Int(0)]), |sum, i| sum + i);
                let place = (v[0] * p.taps[1] + v[1]) * p.words() + v[2];
                b.store(to, vec![set.clone(), of.clone(), place, lane.into()], word(words, integers));
                b.store(total, [Expr::Int(0)], sum);
            });
            let sum = Expr::load(total, vec![Expr::Int(0)]).cast(words);
            b.store(to, vec![set, of, Expr::Int(shape[2] - 1), lane.into()], sum);
        });
    });
    b.finish()
}

/// The kernel.
pub(super) fn build(w: &Workload, p: &Problem, tiles: Tiles) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = operands(&mut b, w, p, &p.x_shape(), &p.packed_weights(tiles.channels()));
    let input = Input { p, params: &params, lanes: tiles.lanes };
    let build = Build { w, p, tiles, params: &params, input };
    let x = if p.reads_in_place() { params.at(0) } else { build.input.pack(&mut b, false) };
    build.sums(&mut b, x);
    b.finish()
}

/// What kernels are built of.
pub(super) struct Build<'a> {
    pub(super) w: &'a Workload,
    pub(super) p: &'a Problem,
    pub(super) tiles: Tiles,
    pub(super) params: &'a Operands,
    pub(super) input: Input<'a>,
}

impl Build<'_> {
    /// The zero point of the weight of a channel, as it is once weights have signs.
    fn weight_zero(&self, channel: &Expr) -> Expr {
        let at = match self.p.weight_zero {
            WeightZero::None => return int(-self.p.weight_offset),
            WeightZero::Tensor => Expr::Int(0),
            WeightZero::Channel => channel.clone(),
        };
        let zero = Expr::load(self.params.get("weight_zero"), vec![at]);
        if self.p.weight_offset == 0 { zero } else { zero - int(self.p.weight_offset) }
    }

    /// Whether sums begin with the bias: where a tile has channels beyond the last, these have none.
    fn adds_bias_first(&self) -> bool {
        self.w.epilogue.first() == Some(&Epilogue::Bias) && self.p.co % self.tiles.channels() == 0
    }

    /// What the sums of a channel of a tile begin with: its bias, and what the zero point of the input takes from it.
    pub(super) fn first(&self, task: &Task, c: &Expr) -> Expr {
        let (p, width) = (self.p, self.tiles.channels());
        let Task { set, channel_tile, .. } = task;
        let bias = self.adds_bias_first().then(|| Expr::load(self.params.get("bias"), vec![self.channel(task, c)]));
        let zero = self.input.zero().map(|zero| {
            let last = Expr::Int(p.packed_weights(width)[2] - 1);
            let index = vec![set.clone(), channel_tile.clone(), last, c.clone()];
            Expr::load(self.params.at(1), index).cast(DType::I32) * zero
        });
        match (bias, zero) {
            (None, None) => int(0),
            (Some(bias), None) => bias,
            (bias, Some(zero)) => bias.unwrap_or(int(0)) - zero,
        }
    }

    /// Visits `count` neighbours in vectors, the last of which may have fewer lanes: which neighbour, and which lane it is.
    pub(super) fn each_vector(&self, b: &mut KernelBuilder, count: i64, body: impl Fn(&mut KernelBuilder, Expr, Expr)) {
        let lanes = self.tiles.lanes;
        let (whole, rest) = (count / lanes, count % lanes);
        if whole > 0 {
            b.loop_("vector", whole, LoopKind::Unrolled, |b, vector| {
                b.loop_("lane", lanes, LoopKind::Vectorized, |b, lane| body(b, vector * lanes + lane, lane.into()));
            });
        }
        let first = Expr::Int(whole * lanes);
        match rest {
            0 => {}
            1 => body(b, first, Expr::Int(0)),
            rest => b.loop_("rest", rest, LoopKind::Vectorized, |b, lane| body(b, first + lane, lane.into())),
        }
    }

    /// Whether tasks that follow one another have their pixels in common, or their weights; the others come from farther away each time.
    pub(super) fn shares_pixels(&self, parts: i64, channel_tiles: i64) -> bool {
        let [inputs, weights] = [self.p.packed_shape(), self.p.packed_weights(self.tiles.channels()).to_vec()]
            .map(|shape| shape.into_iter().fold(1, i64::saturating_mul));
        weights.saturating_mul(parts) <= inputs.saturating_mul(channel_tiles)
    }

    /// What a number of a task stands for, and which part of its set's pixels it has, of which an image has `of_image`.
    pub(super) fn task(
        &self,
        b: &mut KernelBuilder,
        task: VarId,
        x: BufferId,
        [channel_tiles, parts]: [i64; 2],
        shares_pixels: bool,
        of_image: i64,
    ) -> (Task, Expr) {
        let set = Expr::from(b.let_("set", Expr::from(task).floor_div(channel_tiles * parts)));
        let of_set = Expr::from(task).floor_mod(channel_tiles * parts);
        let (channel_tile, part) = match shares_pixels {
            true => (of_set.clone().floor_mod(channel_tiles), of_set.floor_div(channel_tiles)),
            false => (of_set.clone().floor_div(parts), of_set.floor_mod(parts)),
        };
        let channel_tile = Expr::from(b.let_("co_t", channel_tile));
        let part = Expr::from(b.let_("part", part));
        let image = match self.p.batched {
            true => set.clone(),
            false => Expr::from(b.let_("image", part.clone().floor_div(of_image))),
        };
        (Task { x, set, channel_tile, image, scalars: vec![] }, part)
    }

    /// The sums of all outputs, and what becomes of them.
    fn sums(&self, b: &mut KernelBuilder, x: BufferId) {
        let (p, tiles) = (self.p, self.tiles);
        let images = if p.batched { 1 } else { p.n };
        let (all, channel_tiles) = (ceil_div(p.pixels(), tiles.rows), ceil_div(p.co, tiles.channels()));
        let blocks = ceil_div(all, tiles.block);
        let parts = images * blocks;
        let shares_pixels = self.shares_pixels(parts, channel_tiles);
        b.loop_("task", p.sets() * channel_tiles * parts, LoopKind::Parallel, |b, task| {
            let (task, part) = self.task(b, task, x, [channel_tiles, parts], shares_pixels, blocks);
            let first = Expr::from(b.let_("first", part.floor_mod(blocks) * tiles.block));
            b.for_("of_block", tiles.block, |b, of| {
                let tile = Expr::from(b.let_("tile", first.clone() + of));
                let place = Place { task: &task, first: tile.clone() * tiles.rows };
                let (whole, rest) = (p.pixels() / tiles.rows, p.pixels() % tiles.rows);
                let body = |b: &mut KernelBuilder| match (whole, rest) {
                    (0, rest) => self.tile(b, &place, rest),
                    (_, 0) => self.tile(b, &place, tiles.rows),
                    _ => b.if_else(
                        tile.clone().lt(whole),
                        |b| self.tile(b, &place, tiles.rows),
                        |b| self.tile(b, &place, rest),
                    ),
                };
                b.when((all % tiles.block != 0).then(|| tile.clone().lt(all)), body);
            });
        });
    }

    /// The sums of some pixels by a tile of channels.
    fn tile(&self, b: &mut KernelBuilder, place: &Place, rows: i64) {
        let (p, width, lanes) = (self.p, self.tiles.channels(), self.tiles.lanes);
        let sums = b.alloc("sums", DType::I32, &[rows, width], Scope::Register);
        let of_inputs = p.sums_inputs().then(|| b.alloc("input_sums", DType::I32, &[rows, lanes], Scope::Register));
        let sums = Sums { rows, sums, of_inputs };
        self.each_sum(b, rows, width, |b, r, c, _| {
            b.store(sums.sums, vec![r.into(), c.clone()], self.first(place.task, &c));
        });
        if let Some(inputs) = of_inputs {
            self.each_sum(b, rows, lanes, |b, r, c, _| b.store(inputs, vec![r.into(), c], int(0)));
        }
        self.terms(b, place, &sums);
        self.finish(b, place, &sums);
    }

    /// Visits `count` neighbours of each row of a tile in vectors.
    fn each_sum(
        &self,
        b: &mut KernelBuilder,
        rows: i64,
        count: i64,
        body: impl Fn(&mut KernelBuilder, VarId, Expr, Expr),
    ) {
        b.loop_("pixel", rows, LoopKind::Unrolled, |b, r| {
            self.each_vector(b, count, |b, c, lane| body(b, r, c, lane));
        });
    }

    /// Adds all products.
    fn terms(&self, b: &mut KernelBuilder, place: &Place, sums: &Sums) {
        let (p, width, weights) = (self.p, self.tiles.channels(), self.params.at(1));
        let Task { x, set, channel_tile, image, .. } = place.task;
        // Where the pixels of the output lie: once for all terms.
        let pixels: Vec<[Expr; 2]> = (0..sums.rows)
            .map(|r| {
                let pixel = place.first.clone() + r;
                if p.oh == 1 {
                    return [Expr::Int(0), pixel];
                }
                let pixel = Expr::from(b.let_("pixel", pixel));
                [("oh", pixel.clone().floor_div(p.ow)), ("ow", pixel.floor_mod(p.ow))]
                    .map(|(name, value)| b.let_(name, value).into())
            })
            .collect();
        let step = |b: &mut KernelBuilder, [kh, kw, q]: [VarId; 3]| {
            let term = (kh * p.taps[1] + kw) * p.words() + q;
            let of_group = if p.batched { Expr::from(q) } else { set.clone() * p.words() + q };
            for (r, [oh, ow]) in pixels.iter().enumerate() {
                let r = Expr::Int(r as i64);
                let ih = oh.clone() * p.stride[0] + kh * p.dilation[0];
                let iw = ow.clone() * p.stride[1] + kw * p.dilation[1];
                let index = match p.x {
                    Channels::First => vec![image.clone(), ih, of_group.clone(), iw],
                    Channels::Last => vec![image.clone(), ih, iw, of_group.clone()],
                };
                let pixel = Expr::load(*x, index);
                self.each_vector(b, width, |b, c, _| {
                    let weight = Expr::load(weights, vec![set.clone(), channel_tile.clone(), term.clone(), c.clone()]);
                    let at = vec![r.clone(), c];
                    b.store(sums.sums, at.clone(), Expr::load(sums.sums, at) + pixel.clone().dot(weight));
                });
                if let Some(inputs) = sums.of_inputs {
                    let ones = match p.words {
                        Words::Bytes(_) => Expr::Int(0x0101_0101).cast(DType::I8x4),
                        Words::Pairs => Expr::Int(0x0001_0001).cast(DType::I16x2),
                    };
                    self.each_vector(b, self.tiles.lanes, |b, c, _| {
                        let at = vec![r.clone(), c];
                        b.store(inputs, at.clone(), Expr::load(inputs, at) + pixel.clone().dot(ones.clone()));
                    });
                }
            }
        };
        b.nest(&[("kh", p.taps[0]), ("kw", p.taps[1])], |b, v| match self.tiles.ahead {
            true => b.for_fetching("word", p.words(), fetch_ahead(width), |b, q| step(b, [v[0], v[1], q])),
            false => b.for_("word", p.words(), |b, q| step(b, [v[0], v[1], q])),
        });
    }

    /// Makes outputs of whole sums.
    fn finish(&self, b: &mut KernelBuilder, place: &Place, sums: &Sums) {
        let (p, width) = (self.p, self.tiles.channels());
        let task = place.task;
        // What is taken from the sums of inputs, once for each pixel.
        if let (Some(inputs), Some(zero)) = (sums.of_inputs, self.input.zero()) {
            self.each_sum(b, sums.rows, self.tiles.lanes, |b, r, c, _| {
                let at = vec![r.into(), c];
                b.store(inputs, at.clone(), Expr::load(inputs, at) - zero.clone() * int(p.terms()));
            });
        }
        let outputs = |b: &mut KernelBuilder, count: i64| {
            self.each_sum(b, sums.rows, count, |b, r, c, lane| {
                let at = vec![r.into(), c.clone()];
                if let Some(inputs) = sums.of_inputs {
                    let less = Expr::load(inputs, vec![r.into(), lane]) * self.weight_zero(&self.channel(task, &c));
                    b.store(sums.sums, at.clone(), Expr::load(sums.sums, at.clone()) - less);
                }
                self.output(b, task, &(place.first.clone() + r), &c, Expr::load(sums.sums, at));
            });
        };
        let (whole, rest) = (p.co / width, p.co % width);
        match (whole, rest) {
            (0, rest) => outputs(b, rest),
            (_, 0) => outputs(b, width),
            _ => b.if_else(task.channel_tile.clone().lt(whole), |b| outputs(b, width), |b| outputs(b, rest)),
        }
    }

    /// The output channel that is number `c` of a task's tile.
    fn channel(&self, task: &Task, c: &Expr) -> Expr {
        let of_set = task.channel_tile.clone() * self.tiles.channels() + c.clone();
        if self.p.batched { of_set } else { task.set.clone() * self.p.co + of_set }
    }

    /// Makes an output of its sum, the first part of which [`Build::first`] says.
    pub(super) fn output(&self, b: &mut KernelBuilder, task: &Task, pixel: &Expr, c: &Expr, sum: Expr) {
        let (image, channel) = (task.image.clone(), self.channel(task, c));
        let index = match self.p.y {
            Channels::First => vec![image, channel.clone(), pixel.clone()],
            Channels::Last => vec![image, pixel.clone(), channel.clone()],
        };
        let scalar = |operand: &StepOperand| task.scalars.iter().find(|(name, _)| *name == operand.name);
        let read = |operand: &StepOperand| match scalar(operand) {
            Some((_, value)) => value.clone(),
            None => self.params.read(self.w, operand, &channel, &index),
        };
        let result = epilogue_from(usize::from(self.adds_bias_first()), self.w, sum, &index, &read);
        b.store(self.params.output(), index, result);
    }
}

/// What all tiles of a task have in common.
pub(super) struct Task {
    /// The words of the input.
    x: BufferId,
    /// The set of weights.
    pub(super) set: Expr,
    pub(super) channel_tile: Expr,
    pub(super) image: Expr,
    /// Operands of the epilogue that are one number, by their names, where these are read but once.
    pub(super) scalars: Vec<(&'static str, Expr)>,
}

/// Where a tile of outputs lies.
struct Place<'a> {
    task: &'a Task,
    /// The first pixel.
    first: Expr,
}

/// The registers of a tile.
struct Sums {
    /// Pixels.
    rows: i64,
    sums: BufferId,
    /// Sums of the inputs of each pixel.
    of_inputs: Option<BufferId>,
}
