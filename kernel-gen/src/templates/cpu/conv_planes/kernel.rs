//! The loops of a convolution over planes.
//!
//! ```text
//! for plane:                        copy = image, taps: all slots of a channel, with their padding
//! for task (image, group, block of output channels, depth, block of rows, block of columns):
//!   slots                           copy = task: those of the task's rows
//!   for phase along depth and height:
//!     for phase along width, tile of channels, tile of places:
//!       acc[channel, place]         = sum over channels and taps of w * slots[ci, slot, place + shift]
//!       sums[phase, channel, place] = acc
//!     y                             = epilogue(sums), a row at a time
//! ```

use super::cut::Cut;
use super::knobs::Source;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel, LoopKind, Pragma, Scope, VarId};
use crate::templates::phases::Class;
use crate::templates::planes::DIMENSIONS;
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::{Param, Role, Workload};

/// The kernel, with weights as [`super::pack`] packs them.
pub(super) fn kernel(workload: &Workload, cut: Cut) -> Kernel {
    let mut b = KernelBuilder::new(workload.kernel_name());
    // Groups are a dimension of their own, so that their outputs are seen to be apart; all three dimensions are there.
    let planes = &cut.planes;
    let shape = |p: &Param| {
        let pixels = |channels: i64, of: [i64; DIMENSIONS]| [&[planes.n, planes.groups, channels][..], &of].concat();
        match p.role {
            Role::Weight => (DType::F32, cut.packed_shape().to_vec()),
            Role::Input if cut.knobs.source == Source::Input => {
                (p.dtype, vec![planes.n, planes.groups, planes.ci, planes.all(|d| d.input)])
            }
            Role::Input => (p.dtype, pixels(planes.ci, planes.dimensions.map(|d| d.input))),
            Role::Output | Role::Residual => (p.dtype, pixels(planes.co, planes.dimensions.map(|d| d.output))),
            _ => (p.dtype, p.shape.clone()),
        }
    };
    let params = Operands::typed(&mut b, workload, shape);
    let parts = Parts { workload, cut, params };
    let image = matches!(cut.knobs.source, Source::Image | Source::Taps).then(|| parts.image(&mut b));
    b.loop_("task", cut.tasks(), LoopKind::Parallel, |b, task| parts.task(b, task, image));
    b.finish()
}

struct Parts<'a> {
    workload: &'a Workload,
    cut: Cut,
    params: Operands,
}

/// Where a task is, and what it reads.
struct Task {
    n: VarId,
    group: VarId,
    /// Its first tile of channels.
    tile: VarId,
    /// The first output of each dimension, of each phase.
    from: [Expr; DIMENSIONS],
    /// What it reads: a buffer, and the index in front of a place of a slot without the input channel.
    slots: BufferId,
    outer: Vec<Expr>,
    /// The place of the first output.
    first: VarId,
}

/// A register tile of a task.
struct Tile<'a> {
    phase: VarId,
    classes: &'a [Class; DIMENSIONS],
    /// The tile of channels among those of the group.
    channels: &'a Expr,
    /// The place of its first output, from the task's on, and its vectors.
    place: Expr,
    vectors: i64,
}

impl Parts<'_> {
    /// Copies the whole input.
    fn image(&self, b: &mut KernelBuilder) -> BufferId {
        let planes = &self.cut.planes;
        let shape = [planes.n, planes.groups, planes.ci, self.cut.channel()];
        let copy = b.alloc("planes", DType::F32, &shape, Scope::Global);
        b.loop_("plane", planes.n * planes.groups * planes.ci, LoopKind::Parallel, |b, plane| {
            let plane = Expr::from(plane);
            let ci = plane.clone().floor_mod(planes.ci);
            let rest = plane.floor_div(planes.ci);
            let channel = vec![rest.clone().floor_div(planes.groups), rest.floor_mod(planes.groups), ci];
            let origins = self.cut.origins(&[0, 0, 0].map(Expr::Int));
            self.copy(b, copy, &channel, &channel, &origins);
        });
        copy
    }

    /// Copies a channel of the input to `to`, with zeros where there is none.
    fn copy(&self, b: &mut KernelBuilder, copy: BufferId, to: &[Expr], channel: &[Expr], origins: &[Expr; DIMENSIONS]) {
        let steps = &self.cut.steps;
        let [deep, down, along] = self.cut.lengths();
        let slots = steps.map(|s| s.slots());
        let x = self.params.at(0);
        let loops = [("slot_d", slots[0]), ("slot_h", slots[1]), ("slot_w", slots[2]), ("d", deep), ("h", down)];
        b.nest(&loops, |b, v| {
            let slot = [v[0], v[1], v[2]].map(Expr::from);
            let number = (slot[0].clone() * slots[1] + slot[1].clone()) * slots[2] + slot[2].clone();
            let row = number * self.cut.slot() + self.cut.flat([v[3].into(), v[4].into(), 0.into()]);
            let row = b.let_("row", row);
            let pixel = |i: usize, place: Expr| steps[i].pixel(&slot[i], origins[i].clone() + place);
            let outer = [pixel(0, v[3].into()), pixel(1, v[4].into())];
            let outer = outer.map(|pixel| Expr::from(b.let_("pixel", pixel)));
            self.in_vectors(b, along, |b, place| {
                let [d, h] = outer.clone();
                let index = [d, h, pixel(2, place.clone())];
                let inside = index.iter().zip(steps).map(|(at, s)| KernelBuilder::between(at, 0, s.of.input));
                let inside = Expr::all(inside).expect("three conditions");
                let value = Expr::load(x, [channel, &index].concat());
                let at = [to, &[row + place]].concat();
                b.store(copy, at, inside.select(value, Expr::f32(0.0)));
            });
        });
        // What lies behind: every element is written, which is simpler to show than that all that is read has been.
        let zeros = |b: &mut KernelBuilder, first: Expr, count: i64| {
            self.in_vectors(b, count, |b, place| {
                b.store(copy, [to, &[first.clone() + place]].concat(), Expr::f32(0.0));
            });
        };
        let (placed, all, slots) = (deep * down * along, self.cut.slot(), slots.iter().product::<i64>());
        if placed < all {
            b.for_("slot", slots, |b, slot| zeros(b, slot * all + placed, all - placed));
        }
        zeros(b, Expr::Int(slots * all), self.cut.channel() - slots * all);
    }

    /// Neighbours, in vectors.
    fn in_vectors(&self, b: &mut KernelBuilder, count: i64, body: impl Fn(&mut KernelBuilder, Expr)) {
        let lanes = self.cut.lanes;
        if count >= lanes {
            b.for_("vector", count / lanes, |b, t| {
                along_lanes(b, lanes, |b, lane| body(b, t * lanes + lane));
            });
        }
        if count % lanes > 0 {
            along_lanes(b, count % lanes, |b, lane| body(b, lane + count / lanes * lanes));
        }
    }

    fn task(&self, b: &mut KernelBuilder, task: VarId, image: Option<BufferId>) {
        let Cut { planes, steps, knobs: k, .. } = &self.cut;
        let [channels, rows, columns] = self.cut.blocks();
        // From the inside out: neighbouring tasks read the same weights.
        let mut rest = Expr::from(task);
        let mut digit = |b: &mut KernelBuilder, name: &str, count: i64| {
            let value = rest.clone().floor_mod(count);
            rest = rest.clone().floor_div(count);
            b.let_(name, value)
        };
        let column = digit(b, "column_block", columns);
        let row = digit(b, "row_block", rows);
        let deep = digit(b, "depth", steps[0].columns());
        let tile = digit(b, "channel_block", channels);
        let group = digit(b, "group", planes.groups);
        let n = digit(b, "n", planes.n);
        let from = [deep.into(), row * k.rows, column * k.columns];
        let tile = b.let_("first_tile", tile * k.tiles);
        let origins = self.cut.origins(&from);
        let (slots, outer) = match image {
            Some(image) => (image, vec![n.into(), group.into()]),
            None if k.source == Source::Input => (self.params.at(0), vec![n.into(), group.into()]),
            None => {
                let copy = b.alloc("slots", DType::F32, &[planes.ci, self.cut.channel()], Scope::Local);
                b.for_("ci", planes.ci, |b, ci| {
                    self.copy(b, copy, &[ci.into()], &[n.into(), group.into(), ci.into()], &origins);
                });
                (copy, vec![])
            }
        };
        let first = b.let_("first_place", self.cut.flat(self.cut.first(&from)));
        let task = Task { n, group, tile, from, slots, outer, first };
        let phases = steps.map(|s| s.of.phases());
        let width = self.cut.across() * self.cut.lanes;
        b.nest(&[("phase_d", phases[0]), ("phase_h", phases[1])], |b, outer| {
            let sums = b.alloc("sums", DType::F32, &[phases[2], k.tiles * k.mr, width], Scope::Local);
            b.for_("phase_w", phases[2], |b, inner| {
                let phase = [outer[0].into(), outer[1].into(), inner.into()];
                let number = (outer[0] * phases[1] + outer[1]) * phases[2] + inner;
                let number = b.let_("phase", number);
                let classes: [Class; DIMENSIONS] = std::array::from_fn(|i| {
                    let class = steps[i].class(&phase[i]);
                    let mut name = |name: &str, value: Expr| match phases[i] {
                        1 => value,
                        _ => b.let_(name, value).into(),
                    };
                    Class { start: name("start", class.start), first: class.first, count: name("taps", class.count) }
                });
                b.for_("tile", k.tiles, |b, t| {
                    let channels = task.tile + t;
                    let body =
                        |b: &mut KernelBuilder| self.channels(b, &task, number, &classes, &channels, (sums, inner, t));
                    match self.cut.channel_tiles() % k.tiles {
                        0 => body(b),
                        _ => b.if_(channels.clone().lt(self.cut.channel_tiles()), body),
                    }
                });
            });
            self.store(b, &task, [outer[0], outer[1]], sums);
        });
    }

    /// A tile of channels, at all places of the task.
    fn channels(
        &self,
        b: &mut KernelBuilder,
        task: &Task,
        phase: VarId,
        classes: &[Class; DIMENSIONS],
        channels: &Expr,
        (sums, phase_w, t): (BufferId, VarId, VarId),
    ) {
        let Cut { knobs: k, lanes, .. } = self.cut;
        let tile = |b: &mut KernelBuilder, place: Expr, vectors: i64| {
            let acc = self.tile(b, task, &Tile { phase, classes, channels, place: place.clone(), vectors });
            self.over_tile(b, vectors, |b, channel, lane| {
                let at = vec![phase_w.into(), t * k.mr + channel.clone(), place.clone() + lane.clone()];
                b.store(sums, at, Expr::load(acc, vec![channel, lane]));
            });
        };
        let (whole, rest) = (self.cut.across() / k.vectors, self.cut.across() % k.vectors);
        if whole > 0 {
            b.for_("vectors", whole, |b, v| tile(b, v * (k.vectors * lanes), k.vectors));
        }
        if rest > 0 {
            tile(b, Expr::Int(whole * k.vectors * lanes), rest);
        }
    }

    /// The sums of a register tile.
    fn tile(&self, b: &mut KernelBuilder, task: &Task, tile: &Tile<'_>) -> BufferId {
        let Cut { planes, steps, knobs: k, lanes } = &self.cut;
        let acc = b.alloc("acc", DType::F32, &[k.mr, tile.vectors * lanes], Scope::Register);
        let w = self.params.at(1);
        self.over_tile(b, tile.vectors, |b, channel, lane| b.store(acc, vec![channel, lane], Expr::f32(0.0)));
        let held = b.alloc("pixels", DType::F32, &[tile.vectors * lanes], Scope::Register);
        let place = b.let_("place", task.first + tile.place.clone());
        self.over_terms(b, "ci", planes.ci, |b, ci| {
            self.over_taps(b, tile.classes, 0, vec![], &|b, taps| {
                let met: [[Expr; 2]; DIMENSIONS] = std::array::from_fn(|i| steps[i].meets(&tile.classes[i], &taps[i]));
                let slots = steps.map(|s| s.slots());
                let [d, h, w_] = met.each_ref().map(|m| m[0].clone());
                let slot = (d * slots[1] + h) * slots[2] + w_;
                let at = Expr::from(place) + slot * self.cut.slot() + self.cut.flat(met.map(|[_, shift]| shift));
                let at = b.let_("at", at);
                let group: Expr = task.group.into();
                let weight = [&[group, tile.phase.into(), tile.channels.clone(), ci.into()][..], taps].concat();
                over_vectors(b, tile.vectors, *lanes, |b, lane| {
                    let value = Expr::load(task.slots, [&task.outer[..], &[ci.into(), at + lane.clone()]].concat());
                    b.store(held, vec![lane], value);
                });
                self.over_tile(b, tile.vectors, |b, channel, lane| {
                    let weight = Expr::load(w, [&weight[..], std::slice::from_ref(&channel)].concat());
                    let product = weight * Expr::load(held, vec![lane.clone()]);
                    b.sum(acc, [channel, lane], product, &[]);
                });
            });
        });
        acc
    }

    /// The taps that the outputs of a phase meet.
    fn over_taps(
        &self,
        b: &mut KernelBuilder,
        classes: &[Class; DIMENSIONS],
        i: usize,
        taps: Vec<Expr>,
        body: &dyn Fn(&mut KernelBuilder, &[Expr]),
    ) {
        const NAMES: [&str; DIMENSIONS] = ["kd", "kh", "kw"];
        if i == DIMENSIONS {
            return body(b, &taps);
        }
        let d = &self.cut.steps[i].of;
        self.over_terms(b, NAMES[i], d.most_taps(), |b, tap| {
            let exists = d.has_fewer().then(|| Expr::from(tap).lt(classes[i].count.clone()));
            let taps = [&taps[..], &[tap.into()]].concat();
            b.when(exists, |b| self.over_taps(b, classes, i + 1, taps, body));
        });
    }

    /// A loop over terms of sums: vectors of pixels, which serve all channels, are loaded once.
    fn over_terms(&self, b: &mut KernelBuilder, name: &str, extent: i64, body: impl FnOnce(&mut KernelBuilder, VarId)) {
        b.annotated(name, extent, &[Pragma::HoldVectors(true)], body);
    }

    /// The outputs of two phases' sums, with the epilogue.
    fn store(&self, b: &mut KernelBuilder, task: &Task, outer: [VarId; 2], sums: BufferId) {
        let Cut { planes, steps, knobs: k, .. } = &self.cut;
        let phases = steps.map(|s| s.of.phases());
        let pitch = self.cut.lengths()[DIMENSIONS - 1];
        let exists = |i: usize, at: &Expr| {
            let (outputs, cut) = (steps[i].of.output, [1, k.rows, k.columns][i]);
            (outputs % phases[i] != 0 || steps[i].columns() % cut != 0).then(|| at.clone().lt(outputs))
        };
        let deep = b.let_("deep", task.from[0].clone() * phases[0] + outer[0]);
        b.when(exists(0, &deep.into()), |b| {
            b.nest(&[("co", k.tiles * k.mr), ("row", k.rows)], |b, v| {
                let (channel, row) = (v[0], v[1]);
                let co = b.let_("channel", task.tile * k.mr + channel);
                let down = b.let_("down", (task.from[1].clone() + row) * phases[1] + outer[1]);
                let all = (planes.co % (k.tiles * k.mr) != 0).then(|| Expr::from(co).lt(planes.co));
                let inside = Expr::all([all, exists(1, &down.into())].into_iter().flatten());
                b.when(inside, |b| {
                    b.for_("phase_w", phases[2], |b, phase| {
                        self.in_vectors(b, k.columns, |b, column| {
                            let along = (task.from[2].clone() + column.clone()) * phases[2] + phase;
                            let sum = vec![phase.into(), channel.into(), row * pitch + column];
                            let pixels = [deep.into(), down.into(), along.clone()];
                            let index = [&[task.n.into(), task.group.into(), co.into()][..], &pixels].concat();
                            let channel = task.group * planes.co + co;
                            let sum = Expr::load(sums, sum);
                            let value = epilogue(self.workload, sum, &channel, &index, &self.params);
                            b.when(exists(2, &along), |b| b.store(self.params.output(), index, value));
                        });
                    });
                });
            });
        });
    }

    /// The places of a register tile, copied out.
    fn over_tile(&self, b: &mut KernelBuilder, vectors: i64, body: impl Fn(&mut KernelBuilder, Expr, Expr)) {
        let lanes = self.cut.lanes;
        b.loop_("channel", self.cut.knobs.mr, LoopKind::Unrolled, |b, channel| {
            over_vectors(b, vectors, lanes, |b, lane| body(b, channel.into(), lane));
        });
    }
}

/// Neighbours in vectors, copied out.
fn over_vectors(b: &mut KernelBuilder, vectors: i64, lanes: i64, body: impl Fn(&mut KernelBuilder, Expr)) {
    for vector in 0..vectors {
        along_lanes(b, lanes, |b, lane| body(b, Expr::from(lane) + vector * lanes));
    }
}

/// A loop over the lanes of a vector.
fn along_lanes(b: &mut KernelBuilder, extent: i64, body: impl FnOnce(&mut KernelBuilder, VarId)) {
    b.loop_("lane", extent, if extent > 1 { LoopKind::Vectorized } else { LoopKind::Serial }, body);
}
