//! The kernel: what a block does with its channels and tiles.

use super::super::tiling::{Place, Tiling};
use super::super::transforms::{Registers, both_sides, finish};
use super::plan::{OWN_CHANNELS, OWN_PLACES, PLACES, Plan, SCHEDULERS, SLOTS, THREADS, WARPS};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, LoopKind, Scope, Stmt, VarId};
use crate::target::Cuda;
use crate::templates::cuda::guards::below;
use crate::templates::cuda::instructions::copy_async;
use crate::templates::cuda::launch::{LANE, launch, unrolled};
use crate::templates::cuda::outer::{LANES, VECTOR, lanes_of, there_and_back};
use crate::templates::winograd::filter::Filter;
use crate::workload::operands::Operands;
use crate::workload::{Param, Role, Workload};

/// The kernel of a workload.
pub(super) fn kernel(plan: &Plan, w: &Workload, filter: &Filter) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let shape = |p: &Param| if p.role == Role::Weight { plan.weight_shape().to_vec() } else { p.shape.clone() };
    let params = Operands::shaped(&mut b, w, shape);
    let [channels, tiles] = plan.grid();
    // Blocks that run together have the same inputs, and pass through all weights at once.
    launch(&mut b, [("block", channels * tiles)], [("warp", WARPS), LANE], |b, [block], [warp, lane]| {
        let corner = [
            b.let_("channels", Expr::from(block).floor_mod(channels)),
            b.let_("tiles", Expr::from(block).floor_div(channels)),
        ];
        Block { plan, tiling: plan.tiling(), w, params: &params, filter, corner, warp, lane }.run(b);
    });
    b.finish()
}

/// What a thread knows of its place.
struct Block<'a> {
    plan: &'a Plan,
    tiling: Tiling,
    w: &'a Workload,
    params: &'a Operands,
    filter: &'a Filter,
    /// The block's number along channels and tiles.
    corner: [VarId; 2],
    warp: VarId,
    lane: VarId,
}

/// What a thread keeps while the block goes through its steps.
struct State {
    /// Transformed weights, two slots.
    weights: BufferId,
    /// Transformed inputs of even and of odd steps: buffers of their own, so that one is written while the other is read.
    data: [BufferId; 2],
    /// Inputs under way.
    taps: BufferId,
    sums: BufferId,
    operands: [BufferId; 2],
    registers: Registers,
    /// The tile that the thread transforms.
    place: Place,
    /// The thread's number among those along channels and tiles.
    own: [VarId; 2],
}

impl Block<'_> {
    /// All that a thread does.
    fn run(&self, b: &mut KernelBuilder) {
        let (sizes, steps) = (self.plan.sizes, self.plan.steps());
        let state = self.state(b);
        self.fetch(b, &state, 0.into(), 0);
        b.gpu(Gpu::Commit(Group::Copy));
        self.load(b, &state, 0.into());
        self.transform(b, &state, 0);
        self.each_sum(b, |b, index| b.store(state.sums, index, Expr::f32(0.0)));
        let arrive = |b: &mut KernelBuilder| {
            b.gpu(Gpu::Wait(Group::Copy, 0));
            b.push(Stmt::Barrier(Barrier::Block));
        };
        // Two steps together, so that slots are constants. What is loaded behind the last step is zeros.
        b.for_("pair", steps / 2, |b, pair| {
            for half in 0..2 {
                arrive(b);
                let next = b.let_("next", pair * 2 + (half + 1));
                let last = half == 1 && steps % 2 == 0;
                let ahead = |b: &mut KernelBuilder| {
                    b.when(last.then(|| Expr::from(next).lt(steps)), |b| self.fetch(b, &state, next.into(), 1 - half));
                    self.load(b, &state, next.into());
                };
                self.multiply(b, &state, half, Some(&ahead));
                b.gpu(Gpu::Commit(Group::Copy));
                self.transform(b, &state, 1 - half);
            }
        });
        if steps % 2 == 1 {
            arrive(b);
            self.multiply(b, &state, 0, None);
        }
        let products = b.alloc("products", DType::F32, &sizes.meeting(), Scope::Shared);
        for group in 0..OWN_CHANNELS / VECTOR {
            self.meet(b, &state, products, group);
            self.store(b, &state, products, group);
        }
    }

    fn state(&self, b: &mut KernelBuilder) -> State {
        let (block, own) = (self.plan.sizes.block, self.plan.sizes.own());
        let rows = PLACES * self.plan.sizes.step();
        let tile = self.corner[1] * block[1] + self.thread().floor_mod(block[1]);
        State {
            weights: b.alloc("weights", DType::F32, &[SLOTS, rows, block[0]], Scope::Shared),
            data: ["even", "odd"].map(|name| b.alloc(name, DType::F32, &[rows, block[1]], Scope::Shared)),
            taps: b.alloc("ahead", DType::F32, &[PLACES], Scope::Register),
            sums: b.alloc("sums", DType::F32, &[OWN_PLACES, own[0], own[1]], Scope::Register),
            operands: [("weight", own[0]), ("pixel", own[1])]
                .map(|(name, n)| b.alloc(name, DType::F32, &[n], Scope::Register)),
            registers: Registers::new(b, self.tiling.t()),
            place: Place::of(b, &self.tiling, tile),
            own: self.own(b),
        }
    }

    fn thread(&self) -> Expr {
        self.warp * Cuda::WARP + self.lane
    }

    /// Names the thread's number among those of its warp along channels and along tiles.
    fn own(&self, b: &mut KernelBuilder) -> [VarId; 2] {
        let [short, long] = lanes_of(self.lane);
        let [channels, tiles] = if self.plan.sizes.lanes()[0] == LANES[1] { [long, short] } else { [short, long] };
        [b.let_("own_channels", channels), b.let_("own_tiles", tiles)]
    }

    /// The first element in the block of a thread's group of four along channels (0) or tiles (1).
    fn group(&self, own: VarId, dim: usize, group: Expr) -> Expr {
        group * self.plan.sizes.groups()[dim] + own * VECTOR
    }

    fn each_sum(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, Vec<Expr>)) {
        let own = self.plan.sizes.own();
        unrolled(b, "k", OWN_PLACES, |b, k| {
            unrolled(b, "i", own[0], |b, i| {
                unrolled(b, "j", own[1], |b, j| body(b, vec![k.into(), i.into(), j.into()]));
            });
        });
    }

    /// Has the weights of a step brought to a slot.
    fn fetch(&self, b: &mut KernelBuilder, state: &State, step: Expr, slot: i64) {
        let sizes = self.plan.sizes;
        let row = sizes.block[0] / VECTOR;
        unrolled(b, "turn", PLACES * sizes.step() * row / THREADS, |b, turn| {
            let number = turn * THREADS + self.thread();
            let [at, within] = [number.clone().floor_div(row), number.floor_mod(row) * VECTOR];
            let from = [self.corner[0].into(), step, at.clone(), within.clone()];
            let to = [slot.into(), at, within];
            copy_async(b, (state.weights, to), (self.params.get("w"), from), VECTOR, None);
        });
    }

    /// The thread's place among those that share a tile, and the tile of the block: it transforms an input channel of a step there.
    fn input(&self) -> [Expr; 2] {
        let tiles = self.plan.sizes.block[1];
        [self.thread().floor_div(tiles), self.thread().floor_mod(tiles)]
    }

    /// Loads the thread's inputs of a step into registers.
    fn load(&self, b: &mut KernelBuilder, state: &State, step: Expr) {
        let (plan, t) = (self.plan, self.tiling.t());
        let [channel, _] = self.input();
        let ci = b.let_("ci", step * plan.sizes.step() + channel);
        let within = Expr::from(ci).lt(plan.c.ci);
        let exists = (plan.tiles() % plan.sizes.block[1] != 0).then(|| Expr::from(state.place.image).lt(plan.c.n));
        let exists = Expr::all([within].into_iter().chain(exists));
        for (k, [i, j]) in (0..t).flat_map(|i| (0..t).map(move |j| [i, j])).enumerate() {
            let from = [state.place.image.into(), ci.into()];
            let value = self.tiling.pixel(self.params.get("x"), from, &state.place, [i, j], exists.clone());
            b.store(state.taps, [Expr::Int(k as i64)], value);
        }
    }

    /// Transforms what was loaded, for the step after this one.
    fn transform(&self, b: &mut KernelBuilder, state: &State, parity: i64) {
        let t = self.tiling.t();
        let to = state.data[parity as usize];
        let [channel, tile] = self.input();
        let read = |i: i64, j: i64| Expr::load(state.taps, vec![Expr::Int(i * t + j)]);
        both_sides(b, &state.registers, &self.filter.input, t, read, |b, i, row| {
            for (j, value) in row.into_iter().enumerate() {
                let at = channel.clone() + (i * t + j as i64) * self.plan.sizes.step();
                b.store(to, [at, tile.clone()], value);
            }
        });
    }

    /// The number of one of the warp's places.
    fn number(&self, k: VarId) -> Expr {
        self.warp * OWN_PLACES + k
    }

    /// Adds the products of a step, and does what is to be done `ahead` of the next one. Of longer straight code the compiler loads
    /// operands so far ahead that it spills. Of two warps that share a scheduler one asks for the next step's inputs while the other
    /// multiplies: if all ask at once, operands wait behind that in the queue to shared memory.
    fn multiply(&self, b: &mut KernelBuilder, state: &State, parity: i64, ahead: Option<&dyn Fn(&mut KernelBuilder)>) {
        let (step, together) = (self.plan.sizes.step(), self.plan.sizes.together);
        b.for_("part", step / together, |b, part| {
            if let Some(ahead) = ahead {
                b.if_(Expr::from(part).eq(Expr::from(self.warp).floor_div(SCHEDULERS)), ahead);
            }
            unrolled(b, "k", OWN_PLACES, |b, k| {
                unrolled(b, "ci", together, |b, ci| {
                    let row = self.number(k) * step + part * together + ci;
                    self.multiply_channel(b, state, parity, k, &row);
                });
            });
        });
    }

    /// Adds the products of one place of one input channel, which is a row of both operands.
    fn multiply_channel(&self, b: &mut KernelBuilder, state: &State, parity: i64, k: VarId, row: &Expr) {
        let own = self.plan.sizes.own();
        for (dim, count) in own.into_iter().enumerate() {
            unrolled(b, "group", count / VECTOR, |b, group| {
                b.loop_("element", VECTOR, LoopKind::Vectorized, |b, element| {
                    let from = self.group(state.own[dim], dim, group.into()) + element;
                    let value = match dim {
                        0 => Expr::load(state.weights, vec![parity.into(), row.clone(), from]),
                        _ => Expr::load(state.data[parity as usize], vec![row.clone(), from]),
                    };
                    b.store(state.operands[dim], [group * VECTOR + element], value);
                });
            });
        }
        for [i, j] in there_and_back(own) {
            let operand = |dim: usize, at: i64| Expr::load(state.operands[dim], vec![at.into()]);
            b.sum(state.sums, [k.into(), i.into(), j.into()], operand(0, i) * operand(1, j), &[]);
        }
    }

    /// Brings all places of a group of output channels to shared memory.
    fn meet(&self, b: &mut KernelBuilder, state: &State, products: BufferId, group: i64) {
        let sizes = self.plan.sizes;
        unrolled(b, "k", OWN_PLACES, |b, k| {
            unrolled(b, "i", VECTOR, |b, i| {
                unrolled(b, "tiles", sizes.own()[1] / VECTOR, |b, tiles| {
                    b.loop_("j", VECTOR, LoopKind::Vectorized, |b, j| {
                        // The output channel, as `Plan::channel_at` has it.
                        let channel = i * sizes.lanes()[0] + state.own[0];
                        let sum = Expr::load(state.sums, vec![k.into(), i + group * VECTOR, tiles * VECTOR + j]);
                        b.store(products, [self.number(k), tiles.into(), channel, state.own[1] * VECTOR + j], sum);
                    });
                });
            });
        });
    }

    /// Stores the outputs of what met: each thread those of its tile and of some channels.
    fn store(&self, b: &mut KernelBuilder, state: &State, products: BufferId, group: i64) {
        let (plan, sizes, place) = (self.plan, self.plan.sizes, &state.place);
        let [channels, tiles] = sizes.groups();
        let [first, within] = self.input();
        let at_once = THREADS / sizes.block[1];
        b.for_("turn", channels / at_once, |b, turn| {
            let channel = turn * at_once + first;
            let co = b.let_("co", self.corner[0] * sizes.block[0] + group * channels + channel.clone());
            let exists = [
                below(co, plan.c.co, sizes.block[0]),
                (plan.tiles() % sizes.block[1] != 0).then(|| Expr::from(place.image).lt(plan.c.n)),
            ];
            let write = |b: &mut KernelBuilder| {
                let t = self.tiling.t();
                let read = |i: i64, j: i64| {
                    let [tile, column] = [within.clone().floor_div(tiles), within.clone().floor_mod(tiles)];
                    Expr::load(products, vec![Expr::Int(i * t + j), tile, channel.clone(), column])
                };
                let to = [place.image.into(), co.into()];
                finish(b, &self.tiling, self.filter, (self.w, self.params), to, place, read);
            };
            b.when(Expr::all(exists.into_iter().flatten()), write);
        });
    }
}
