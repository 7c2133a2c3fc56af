//! The kernel, and the one that packs the weights for it.

use super::block::Block;
use super::depthwise::Depthwise;
use super::plan::{Plan, Sizes, WARP, Window, ahead, filter_shape};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, LoopKind, MbarrierOp, Scope, Slot, Stmt, VarId};
use crate::templates::cuda::exchange::arrival;
use crate::templates::cuda::family::built;
use crate::templates::cuda::guards::{inside, or_zero};
use crate::templates::cuda::instructions::{copy_async, tile};
use crate::templates::cuda::launch;
use crate::templates::cuda::launch::{LANE, cluster, grid, share, threads, unrolled};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outputs::finish;
use crate::templates::cuda::source::Source;
use crate::templates::{Pack, Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::{Conv2d, Param, Role, Workload};

/// Additions of the sums of warps and lanes that do not wait for each other.
const SUM_CHAINS: i64 = 4;

/// Brings the weights into the order in which warps fetch them; zeros stand where channels are beyond the last ones.
pub(super) fn pack(plan: &Plan) -> Pack {
    let (c, block, groups) = (&plan.c, plan.sizes.block_channels(), plan.sizes.groups());
    let (from, to) = (("w", plan.dtype, &c.weight_shape()[..]), (DType::F32, &packed_shape(plan)[..]));
    let loops = [("tile", plan.channel_tiles()), ("together", plan.padded_channels() / groups)];
    let threads = [("thread", plan.sizes.side_by_side())];
    launch::pack(from, to, loops, threads, |b, [w, packed], [tile, together], [thread]| {
        b.for_("tap", plan.taps(), |b, tap| {
            let place = vec![tile.into(), together.into(), tap.into(), thread.into()];
            let (tap, thread) = (Expr::from(tap), Expr::from(thread));
            let ci = together * groups + thread.clone().floor_div(block);
            let co = tile * block + thread.floor_mod(block);
            let taps = [tap.clone().floor_div(c.kw), tap.floor_mod(c.kw)];
            let from = Source::Conv(*c).weight(taps, ci.clone(), co.clone());
            let padded = [plan.channel_tiles() * block, plan.padded_channels()];
            let exists = inside(&[co, ci], [c.co, c.ci], padded);
            b.store(packed, place, or_zero(exists, Expr::load(w, from)));
        });
    })
}

/// The shape of the packed weights.
fn packed_shape(plan: &Plan) -> Vec<i64> {
    let together = plan.padded_channels() / plan.sizes.groups();
    vec![plan.channel_tiles(), together, plan.taps(), plan.sizes.side_by_side()]
}

/// The convolution whose input lies as that of `c`, with all pixels in one row.
fn flat(c: Conv2d) -> Conv2d {
    Conv2d { h: 1, w: c.h * c.w, ..c }
}

/// The kernel of a workload.
pub(super) fn kernel(plan: &Plan, w: &Workload) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let packed = |p: &Param| match (p.role, plan.pair) {
        (Role::Weight, _) => (DType::F32, packed_shape(plan)),
        (Role::DepthwiseWeight, Some(pair)) => (p.dtype, filter_shape(plan, &pair)),
        (Role::Input, None) if plan.fetched().flat() => (p.dtype, flat(plan.c).input_shape()),
        _ => (p.dtype, p.shape.clone()),
    };
    let params = Operands::typed(&mut b, w, packed);
    let loops = [("image", plan.c.n), ("channels", plan.channel_tiles()), ("tile", plan.tiles(0) * plan.tiles(1))];
    grid(&mut b, loops, |b, [image, channels, tile]| {
        cluster(b, plan.sizes.cluster, |b, rank| {
            threads(b, [("warp", plan.sizes.warps), LANE], |b, [warp, lane]| {
                Block { plan, w, params, image, channels, tile, rank, warp, lane }.run(b);
            });
        });
    });
    b.finish()
}

/// A warp's ring of pixels and weights.
struct Ring {
    pixels: BufferId,
    weights: BufferId,
    /// What else a pair has.
    depthwise: Option<Depthwise>,
    /// The first input channels of this warp, one for each group: this many of all warps' before it.
    first: VarId,
}

/// Pixels that a lane brings at a time.
struct Piece {
    /// Which of a step's pieces of the lane it is.
    turn: Expr,
    /// The part of the step, and the first element of what that has of a slot.
    place: [Expr; 2],
    /// Where it lies in the input.
    from: Vec<Expr>,
    /// What is so if it is not in the padding; else zeros come.
    inside: Vec<Expr>,
    /// What is so if it has a place at all, if it may have none.
    exists: Option<Expr>,
}

/// Where the sums of other blocks of the cluster come to.
struct Exchange {
    /// One row a block; elements are those of the output channels that this block owns.
    received: BufferId,
    arrived: Slot,
}

impl Block<'_> {
    fn sizes(&self) -> Sizes {
        self.plan.sizes
    }

    /// The tile's row (0) or column (1).
    fn tile_at(&self, dim: usize) -> Expr {
        let columns = self.plan.tiles(1);
        let tile = Expr::from(self.tile);
        if dim == 0 { tile.floor_div(columns) } else { tile.floor_mod(columns) }
    }

    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (plan, sizes) = (self.plan, self.sizes());
        let ring = self.ring(b);
        let exchange = (sizes.cluster > 1).then(|| self.exchange(b));
        // As a loop, because all that is written out has to come through the caches for code.
        b.for_("ahead", sizes.stages, |b, ahead| {
            if plan.by_registers() {
                let pixels = self.load(b, &ring, ahead.into());
                self.keep(b, &ring, pixels, ahead.into());
            }
            self.fetch(b, &ring, ahead.into(), ahead.into());
            b.gpu(Gpu::Commit(Group::Copy));
        });
        if exchange.is_some() {
            // Blocks may store in each other's memory once all have started; the first pixels are under way meanwhile.
            b.gpu(Gpu::ClusterBarrier);
        }
        if let Some(depthwise) = &ring.depthwise {
            depthwise.clear(b, self);
        }
        let acc = b.alloc("acc", DType::F32, &[sizes.tile[0], sizes.tile[1], sizes.channels], Scope::Register);
        self.each_sum(b, |b, index| b.store(acc, index, Expr::f32(0.0)));
        let arrive = |b: &mut KernelBuilder, under_way: i64| {
            b.gpu(Gpu::Wait(Group::Copy, under_way as u32));
            b.push(Stmt::Barrier(Barrier::Warp));
        };
        let ahead = ring.depthwise.is_some() && ahead(plan);
        if let Some(depthwise) = ring.depthwise.as_ref().filter(|_| ahead) {
            arrive(b, sizes.stages - 1);
            let results = depthwise.compute(b, self, ring.pixels, &0.into());
            depthwise.keep(b, self, results, &0.into());
        }
        b.for_("k", plan.steps(), |b, k| {
            let turns = plan.steps() > sizes.stages;
            let slot = if turns { b.let_("slot", Expr::from(k).floor_mod(sizes.stages)) } else { k };
            arrive(b, sizes.stages - 1 - i64::from(ahead));
            // Products cover what these wait for.
            let coming = (turns && plan.by_registers()).then(|| self.load(b, &ring, k + sizes.stages));
            let multiply = |b: &mut KernelBuilder| {
                unrolled(b, "part", sizes.step, |b, part| self.multiply(b, &ring, acc, [k, slot], part));
            };
            match &ring.depthwise {
                None => multiply(b),
                Some(depthwise) if ahead => {
                    // Behind the last step are old pixels, whose results nobody takes.
                    let next = b.let_("next_slot", (k + 1).floor_mod(sizes.stages));
                    let results = depthwise.compute(b, self, ring.pixels, &next.into());
                    multiply(b);
                    depthwise.keep(b, self, results, &(k + 1));
                }
                Some(depthwise) => {
                    let results = depthwise.compute(b, self, ring.pixels, &slot.into());
                    depthwise.keep(b, self, results, &k.into());
                    b.push(Stmt::Barrier(Barrier::Warp));
                    multiply(b);
                }
            }
            if turns {
                // All lanes have read what the next pixels go over.
                b.push(Stmt::Barrier(Barrier::Warp));
                b.if_((k + sizes.stages).lt(plan.steps()), |b| {
                    if let Some(pixels) = coming {
                        self.keep(b, &ring, pixels, slot.into());
                    }
                    self.fetch(b, &ring, k + sizes.stages, slot.into());
                });
            }
            b.gpu(Gpu::Commit(Group::Copy));
        });
        self.reduce(b, acc, exchange);
    }

    /// The warp's shared memory.
    fn ring(&self, b: &mut KernelBuilder) -> Ring {
        let (plan, Sizes { warps, stages, step, .. }) = (self.plan, self.sizes());
        let shape = [warps, stages, step, plan.slot_elements()];
        let pixels = b.alloc("pixels", DType::F32, &shape, Scope::Shared);
        let shape = [warps, stages, step, plan.taps(), self.sizes().side_by_side()];
        let weights = b.alloc("weights", DType::F32, &shape, Scope::Shared);
        let depthwise = plan.pair.map(|pair| Depthwise::alloc(b, plan, pair));
        let first = b.let_("first", (self.rank.clone() * warps + self.warp) * plan.group_channels());
        Ring { pixels, weights, depthwise, first }
    }

    /// The memory for what other blocks send, and the barrier that counts its bytes.
    fn exchange(&self, b: &mut KernelBuilder) -> Exchange {
        let Sizes { cluster, .. } = self.sizes();
        let owned = self.owned();
        let received = b.alloc("received", DType::F32, &[cluster, owned], Scope::Shared);
        Exchange { received, arrived: arrival(b, self.thread(), 4 * cluster * owned) }
    }

    /// Sums that a block of the cluster owns in the end: those of its share of the output channels.
    fn owned(&self) -> i64 {
        self.sizes().block_channels() / self.sizes().cluster * self.sizes().pixels()
    }

    fn thread(&self) -> Expr {
        self.warp * WARP + self.lane
    }

    /// The first of each group of a thread's output channels, among those of the warp's lanes.
    fn quads(&self) -> impl Iterator<Item = Expr> + use<> {
        let Sizes { channels, .. } = self.sizes();
        let (quad, lane) = (self.sizes().quad(), self.lane);
        (0..channels / quad).map(move |group| lane * quad + group * WARP * quad)
    }

    /// Has the weights of a step, and those pixels that need no registers on the way, brought to a slot.
    fn fetch(&self, b: &mut KernelBuilder, ring: &Ring, k: Expr, slot: Expr) {
        let (plan, step) = (self.plan, self.sizes().step);
        unrolled(b, "part", step, |b, part| {
            if !plan.by_registers() && !plan.side_by_side() {
                unrolled(b, "round", plan.rounds(), |b, round| {
                    let piece = self.of_a_channel(ring, &k, part, round);
                    self.copy(b, ring, piece, slot.clone());
                });
            }
            let together = Expr::from(ring.first) + k.clone() * step + part;
            let quad = self.sizes().quad();
            unrolled(b, "tap", plan.taps(), |b, tap| {
                for own in self.quads() {
                    let to = [self.warp.into(), slot.clone(), part.into(), tap.into(), own.clone()];
                    let from = [self.channels.into(), together.clone(), tap.into(), own];
                    copy_async(b, (ring.weights, to), (self.params.get("w"), from), quad, None);
                }
            });
        });
        if !plan.by_registers() && plan.side_by_side() {
            self.each_piece(b, ring, &k, |b, piece| self.copy(b, ring, piece, slot.clone()));
        }
        if let Some(depthwise) = &ring.depthwise {
            depthwise.fetch(b, self, &k, &slot);
        }
    }

    /// Visits the pieces of pixels that a lane brings in a step.
    fn each_piece(&self, b: &mut KernelBuilder, ring: &Ring, k: &Expr, body: impl FnOnce(&mut KernelBuilder, Piece)) {
        let plan = self.plan;
        if plan.side_by_side() {
            unrolled(b, "round", plan.step_rounds(), |b, round| body(b, self.of_all_channels(ring, k, round)));
        } else {
            unrolled(b, "part", self.sizes().step, |b, part| {
                unrolled(b, "round", plan.rounds(), |b, round| body(b, self.of_a_channel(ring, k, part, round)));
            });
        }
    }

    /// The pixels that a lane brings in a round of one of a step's parts: neighbours of a channel's plane are neighbours.
    fn of_a_channel(&self, ring: &Ring, k: &Expr, part: VarId, round: VarId) -> Piece {
        let (plan, window, groups) = (self.plan, self.plan.fetched(), self.sizes().groups());
        let together = Expr::from(ring.first) + k.clone() * self.sizes().step + part;
        let (piece, pieces) = (round * WARP + self.lane, window.pieces());
        let (group, pixel) = match groups {
            1 => (Expr::Int(0), piece.clone()),
            n => (piece.clone().floor_div(pieces / n), piece.clone().floor_mod(pieces / n)),
        };
        let pixel = pixel * window.unit;
        // Beyond the last group nothing is read; which channel it is then does not matter.
        let (from, mut inside) = self.pixel(&window, together * groups + group.clone(), pixel.clone());
        inside.extend((pieces < plan.rounds() * WARP).then(|| piece.lt(pieces)));
        Piece {
            turn: part * plan.rounds() + round,
            place: [part.into(), group * window.plane() + pixel],
            from,
            inside,
            exists: None,
        }
    }

    /// The pixel that a lane brings in a round of a step where channels are neighbours: lanes take those of a step and of all
    /// groups one after the other, then the next pixel.
    fn of_all_channels(&self, ring: &Ring, k: &Expr, round: VarId) -> Piece {
        let (plan, window, groups) = (self.plan, self.plan.fetched(), self.sizes().groups());
        let (step, channels) = (self.sizes().step, self.sizes().step * groups);
        let element = round * WARP + self.lane;
        let channel = element.clone().floor_mod(channels);
        let pixel = element.clone().floor_div(channels);
        let ci = (Expr::from(ring.first) + k.clone() * step) * groups + channel.clone();
        let (from, inside) = self.pixel(&window, ci, pixel.clone());
        let elements = step * window.pieces();
        let exists = (elements < plan.step_rounds() * WARP).then(|| element.lt(elements));
        let place = [channel.clone().floor_div(groups), channel.floor_mod(groups) * window.plane() + pixel];
        Piece { turn: round.into(), place, from, inside, exists }
    }

    /// Where a pixel of the window, or the first of a unit of them, lies in the input, and what is so if it is there: that its
    /// row, its column and its channel are, as far as they may not be. Units are aligned: they are inside as a whole, or not at
    /// all.
    fn pixel(&self, window: &Window, ci: Expr, pixel: Expr) -> (Vec<Expr>, Vec<Expr>) {
        let (plan, c) = (self.plan, &window.c);
        let first = |dim: usize| match window.whole[dim] {
            true => Expr::Int(0),
            false => self.tile_at(dim) * (self.sizes().tile[dim] * c.stride[dim]) - c.padding[dim],
        };
        let between = |at: &Expr, size: i64| KernelBuilder::between(at, 0, size - (window.unit - 1));
        let (at, mut inside) = if window.flat() {
            let at = first(0) * c.w + pixel;
            let inside = (!window.whole[0]).then(|| between(&at, c.h * c.w));
            ([0.into(), at], Vec::from_iter(inside))
        } else {
            let row = first(0) + pixel.clone().floor_div(window.pitch());
            let column = first(1) + pixel.floor_mod(window.pitch()) - window.lead();
            let inside = (!window.whole[0]).then(|| KernelBuilder::between(&row, 0, c.h));
            let inside = inside.into_iter().chain([between(&column, c.w)]).collect();
            ([row, column], inside)
        };
        // Registers are loaded behind the last step, too.
        if plan.padded_channels() > c.ci || plan.by_registers() {
            inside.push(ci.clone().lt(c.ci));
        }
        let [row, column] = at;
        (c.layout.index(self.image.into(), ci, row, column), inside)
    }

    /// Has a piece copied to a slot.
    fn copy(&self, b: &mut KernelBuilder, ring: &Ring, piece: Piece, slot: Expr) {
        let unit = self.plan.fetched().unit;
        let Piece { place: [part, element], from, inside, exists, .. } = piece;
        let to = (ring.pixels, [self.warp.into(), slot, part, element]);
        b.when(exists, |b| copy_async(b, to, (self.params.get("x"), from), unit, Expr::all(inside)));
    }

    /// Loads the pixels of a step, as `f32`.
    fn load(&self, b: &mut KernelBuilder, ring: &Ring, k: Expr) -> BufferId {
        let pixels = b.alloc("coming", DType::F32, &[self.plan.step_rounds()], Scope::Register);
        self.each_piece(b, ring, &k, |b, piece| {
            let value = Expr::load(self.params.get("x"), piece.from);
            let conditions = piece.exists.into_iter().chain(piece.inside);
            let value = or_zero(Expr::all(conditions), value);
            b.store(pixels, vec![piece.turn], value);
        });
        pixels
    }

    /// Stores them to a slot.
    fn keep(&self, b: &mut KernelBuilder, ring: &Ring, pixels: BufferId, slot: Expr) {
        self.each_piece(b, ring, &0.into(), |b, Piece { turn, place: [part, element], exists, .. }| {
            let to = vec![self.warp.into(), slot, part, element];
            let store = |b: &mut KernelBuilder| b.store(ring.pixels, to, Expr::load(pixels, vec![turn]));
            b.when(exists, store);
        });
    }

    /// Adds the products of one input channel of step `k`.
    fn multiply(&self, b: &mut KernelBuilder, ring: &Ring, acc: BufferId, [k, slot]: [VarId; 2], part: VarId) {
        let (plan, c, window) = (self.plan, &self.plan.c, self.plan.multiplied());
        let (Sizes { tile: size, channels, .. }, quad) = (self.sizes(), self.sizes().quad());
        let weight = b.alloc("weight", DType::F32, &[plan.taps(), channels], Scope::Register);
        unrolled(b, "tap", plan.taps(), |b, tap| {
            for (place, first) in (0..).zip(self.quads()) {
                b.loop_("own", quad, LoopKind::Vectorized, |b, own| {
                    let from = vec![self.warp.into(), slot.into(), part.into(), tap.into(), first + own];
                    b.store(weight, vec![tap.into(), own + place * quad], Expr::load(ring.weights, from));
                });
            }
        });
        // A ring: elements of a row are needed no longer than the row is.
        let row_registers = window.registers();
        let pixels = b.alloc("pixel", DType::F32, &[row_registers], Scope::Register);
        let mut loaded = 0;
        for y in 0..window.needed(0) {
            // Which taps meet this row, and for which row of outputs.
            let meeting: Vec<(i64, i64)> = (0..c.kh)
                .filter_map(|kh| {
                    let above = y - kh * c.dilation[0];
                    let output = above.div_euclid(c.stride[0]);
                    let meets = above.rem_euclid(c.stride[0]) == 0 && (0..size[0]).contains(&output);
                    (meets && plan.met(0, kh).any(|o| o == output)).then_some((kh, output))
                })
                .collect();
            if meeting.is_empty() {
                continue;
            }
            let row = (y + window.shift(0)) * window.pitch();
            // Vectors of flat windows end in the next row; behind the last one there is none.
            let end = (ceil_div(row + window.pitch(), 4) * 4).min(window.held());
            let start = loaded.max(row / 4 * 4).min(end);
            loaded = end;
            let take = |b: &mut KernelBuilder, from: Expr| {
                let group = Expr::from(self.lane).floor_div(self.sizes().lanes);
                let place = group * window.plane() + from.clone();
                let value = match &ring.depthwise {
                    Some(depthwise) => depthwise.result(self, k, part, place),
                    None => Expr::load(ring.pixels, vec![self.warp.into(), slot.into(), part.into(), place]),
                };
                b.store(pixels, vec![from.floor_mod(row_registers)], value);
            };
            unrolled(b, "vector", (end - start) / 4, |b, vector| {
                b.loop_("within", 4, LoopKind::Vectorized, |b, within| take(b, vector * 4 + within + start));
            });
            unrolled(b, "rest", (end - start) % 4, |b, rest| take(b, rest + (end / 4 * 4)));
            for (kh, output) in meeting {
                for kw in 0..c.kw {
                    let outputs: Vec<i64> = plan.met(1, kw).collect();
                    let (Some(start), count) = (outputs.first().copied(), outputs.len() as i64) else { continue };
                    unrolled(b, "x", count, |b, x| {
                        unrolled(b, "own", channels, |b, own| {
                            let x = x + start;
                            let from = x.clone() * c.stride[1] + (row + kw * c.dilation[1] + window.shift(1));
                            let tap = kh * c.kw + kw;
                            let pixel = Expr::load(pixels, vec![from.floor_mod(row_registers)]);
                            let product = Expr::load(weight, vec![tap.into(), own.into()]) * pixel;
                            b.sum(acc, vec![output.into(), x, own.into()], product, &[]);
                        });
                    });
                }
            }
        }
    }

    /// Visits the thread's sums.
    fn each_sum(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, Vec<Expr>)) {
        let Sizes { tile, channels, .. } = self.sizes();
        unrolled(b, "y", tile[0], |b, y| {
            unrolled(b, "x", tile[1], |b, x| {
                unrolled(b, "own", channels, |b, own| body(b, vec![y.into(), x.into(), own.into()]));
            });
        });
    }

    /// Visits the elements `0..count` with the threads of the block.
    fn share(&self, b: &mut KernelBuilder, count: i64, body: impl FnOnce(&mut KernelBuilder, Expr)) {
        share(b, self.sizes().threads(), self.thread(), count, body);
    }

    /// Adds what the warps have, then what the blocks of the cluster have, and stores it.
    fn reduce(&self, b: &mut KernelBuilder, acc: BufferId, exchange: Option<Exchange>) {
        let (sizes, pixels) = (self.sizes(), self.sizes().pixels());
        // Channels that a block of the cluster owns in the end.
        let share = sizes.block_channels() / sizes.cluster;
        // Lanes stand side by side: channel `lane * channels + own` of a group is at `own * 32 + group * lanes + lane`, where a
        // thread's channels are neighbours.
        let partial = b.alloc("partial", DType::F32, &[sizes.warps, pixels, self.plan.sum_pitch()], Scope::Shared);
        self.each_sum(b, |b, index| {
            let [y, x, own] = [0, 1, 2].map(|i| index[i].clone());
            let place = vec![self.warp.into(), y * sizes.tile[1] + x, own * WARP + self.lane];
            b.store(partial, place, Expr::load(acc, index));
        });
        b.push(Stmt::Barrier(Barrier::Block));
        let add = |b: &mut KernelBuilder, count: i64, from: &dyn Fn(VarId) -> Expr| {
            // Several at a time, because additions that wait for each other take longer than the loads.
            let chains = if count < 2 * SUM_CHAINS { 1 } else { SUM_CHAINS };
            let sums = b.alloc("sum", DType::F32, &[chains], Scope::Register);
            (0..chains).for_each(|chain| b.store(sums, vec![chain.into()], Expr::f32(0.0)));
            unrolled(b, "other", count, |b, other| {
                b.sum(sums, vec![Expr::from(other).floor_mod(chains)], from(other), &[]);
            });
            let sums = (0..chains).map(|chain| Expr::load(sums, vec![chain.into()]));
            sums.reduce(|a, b| a + b).unwrap_or(Expr::f32(0.0))
        };
        self.share(b, sizes.block_channels() * pixels, |b, element| {
            let [channel, pixel] = self.taken_apart(element.clone(), sizes.block_channels());
            let (quad, lanes) = (sizes.quad(), sizes.lanes * sizes.quad());
            let (own, within) = match sizes.channels / quad {
                1 => (Expr::Int(0), channel.clone()),
                _ => (channel.clone().floor_div(lanes) * quad, channel.clone().floor_mod(lanes)),
            };
            let place = (own + within.clone().floor_mod(quad)) * WARP + within.floor_div(quad);
            let sum = add(b, sizes.warps * sizes.groups(), &|part| {
                let (warp, group) =
                    (Expr::from(part).floor_div(sizes.groups()), Expr::from(part).floor_mod(sizes.groups()));
                Expr::load(partial, vec![warp, pixel.clone(), place.clone() + group * sizes.lanes])
            });
            match &exchange {
                None => self.store(b, channel, pixel, sum),
                Some(Exchange { received, arrived }) => {
                    let (place, rank) = if self.plan.side_by_side() {
                        let own = channel.clone().floor_mod(share);
                        (pixel * share + own, channel.floor_div(share))
                    } else {
                        (element.clone().floor_mod(self.owned()), element.floor_div(self.owned()))
                    };
                    b.gpu(Gpu::StoreAt {
                        dst: tile(*received, vec![self.rank.clone(), place], &[1]),
                        values: vec![sum],
                        rank,
                        on: arrived.clone(),
                    });
                }
            }
        });
        let Some(Exchange { received, arrived }) = exchange else { return };
        b.gpu(Gpu::Mbarrier(arrived, MbarrierOp::Wait(0.into())));
        self.share(b, self.owned(), |b, element| {
            let sum = add(b, sizes.cluster, &|block| Expr::load(received, vec![block.into(), element.clone()]));
            let [channel, pixel] = self.taken_apart(element, share);
            self.store(b, self.rank.clone() * share + channel, pixel, sum);
        });
    }

    /// The channel and the pixel of an element of so many channels of the tile: neighbours are what is side by side in the
    /// output.
    fn taken_apart(&self, element: Expr, channels: i64) -> [Expr; 2] {
        if self.plan.side_by_side() {
            [element.clone().floor_mod(channels), element.floor_div(channels)]
        } else {
            let pixels = self.sizes().pixels();
            [element.clone().floor_div(pixels), element.floor_mod(pixels)]
        }
    }

    /// Stores an element: its channel of the block, its pixel of the tile, and its sum.
    fn store(&self, b: &mut KernelBuilder, channel: Expr, pixel: Expr, sum: Expr) {
        let (plan, c, sizes) = (self.plan, &self.plan.c, self.sizes());
        let [y, x] = [pixel.clone().floor_div(sizes.tile[1]), pixel.floor_mod(sizes.tile[1])];
        let at = [
            Expr::from(self.channels) * sizes.block_channels() + channel,
            self.tile_at(0) * sizes.tile[0] + y,
            self.tile_at(1) * sizes.tile[1] + x,
        ];
        let pieces = [sizes.block_channels(), sizes.tile[0], sizes.tile[1]];
        let exists = inside(&at, [c.co, plan.outputs(0), plan.outputs(1)], pieces);
        let [channel, row, column] = at;
        let index = c.layout.index(self.image.into(), channel.clone(), row, column);
        b.when(exists, |b| finish(b, (self.w, &self.params), &channel, index, sum));
    }
}

/// The kernel of a plan, and what packs its weights.
pub(super) fn scheduled(plan: &Plan, w: &Workload) -> Result<Scheduled, TemplateError> {
    built(kernel(plan, w), [pack(plan)])
}
