//! The kernel that all products share: producer, consumers and the ring between them.

use super::{BK, Sizes, WARPGROUP, ceil_div};
use crate::ir::builder::KernelBuilder;
use crate::ir::{
    Axis, Barrier, BufferId, DType, Expr, Gpu, Group, Kernel, LoopKind, MbarrierOp, Operand, Scope, Slot, Stmt, Tile,
    Unit, VarId,
};
use crate::workload::naive::epilogue;
use crate::workload::{Param, Workload};

/// How an operand lies in memory, and so in its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// The reduction is its fast dimension: a slot holds one matrix with rows of 64.
    ReductionFast,
    /// The reduction is its slow dimension: a slot holds blocks of 64 columns, 64 deep, which are multiplied transposed.
    ReductionSlow,
}

/// A box of a tensor in global memory.
pub(super) struct Box {
    /// Its first element; outside of the tensor are zeros.
    pub(super) origin: Vec<Expr>,
    /// How many elements are taken along each dimension.
    pub(super) extents: Vec<i64>,
    /// Their distances; empty where all are 1.
    pub(super) steps: Vec<i64>,
}

/// Where an element of a tile belongs.
pub(super) struct Element {
    /// Its index in the output.
    pub(super) index: Vec<Expr>,
    /// Its output channel.
    pub(super) channel: Expr,
    /// The condition that it exists; none where tiles fit exactly.
    pub(super) exists: Option<Expr>,
}

/// A matrix product as its tiles see it. Coordinates of a tile and of a step are whatever the product makes of them.
pub(super) trait Product {
    /// What is computed.
    fn workload(&self) -> &Workload;

    /// Number of output tiles.
    fn tiles(&self) -> i64;

    /// How the left and the right operand lie in memory.
    fn layouts(&self) -> [Layout; 2];

    /// The coordinates of a tile.
    fn place(&self, b: &mut KernelBuilder, tile: VarId) -> Vec<Expr>;

    /// The steps of a tile's reduction: loops and conditions around `body`, which gets a step's coordinates. Producer
    /// and consumers go through the same ones.
    fn steps(&self, b: &mut KernelBuilder, place: &[Expr], body: &mut dyn FnMut(&mut KernelBuilder, &[Expr]));

    /// What a step multiplies from the left: all rows of the tile, or block `block` of 64 rows where the reduction is
    /// slow.
    fn left(&self, place: &[Expr], step: &[Expr], block: i64) -> Box;

    /// What a step multiplies from the right, likewise in columns.
    fn right(&self, place: &[Expr], step: &[Expr], block: i64) -> Box;

    /// Where an element of the tile belongs.
    fn element(&self, place: &[Expr], row: Expr, column: Expr) -> Element;
}

/// The kernel of a product for a device of so many multiprocessors.
pub(super) fn kernel(product: &dyn Product, sizes: Sizes, multiprocessors: i64) -> Kernel {
    let w = product.workload();
    let name: String = w.key().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut b = KernelBuilder::new(name);
    let params: Vec<(Param, BufferId)> = w
        .params()
        .into_iter()
        .map(|p| {
            let id = b.param(p.name, p.dtype, &p.shape, p.access);
            (p, id)
        })
        .collect();
    let tiles = product.tiles();
    let blocks = multiprocessors.min(tiles);
    b.loop_("block", blocks, LoopKind::Grid(Axis::X), |b, block| {
        b.loop_("t", sizes.threads(), LoopKind::Thread(Axis::X), |b, t| {
            let each_tile = |b: &mut KernelBuilder, body: &mut dyn FnMut(&mut KernelBuilder, &[Expr])| {
                b.for_("round", ceil_div(tiles, blocks), |b, round| {
                    let tile = b.let_("tile", round * blocks + block);
                    let mut run = |b: &mut KernelBuilder| {
                        let place = product.place(b, tile);
                        body(b, &place);
                    };
                    if tiles % blocks == 0 { run(b) } else { b.if_(Expr::from(tile).lt(tiles), run) }
                });
            };
            let ring = Ring::make(b, w.dtype, sizes, product.layouts(), t);
            b.if_else(
                Expr::from(t).lt(WARPGROUP),
                |b| {
                    sizes.registers().into_iter().for_each(|[producer, _]| b.gpu(Gpu::SetMaxRegisters(producer)));
                    b.if_(Expr::from(t).eq(0), |b| {
                        each_tile(b, &mut |b, place| {
                            product.steps(b, place, &mut |b, step| {
                                ring.produce(b, [params[0].1, params[1].1], |side, block| match side {
                                    0 => product.left(place, step, block),
                                    _ => product.right(place, step, block),
                                });
                            });
                        });
                    });
                },
                |b| {
                    sizes.registers().into_iter().for_each(|[_, consumer]| b.gpu(Gpu::SetMaxRegisters(consumer)));
                    let warpgroup = b.let_("warpgroup", Expr::from(t).floor_div(WARPGROUP) - 1);
                    let shape = [sizes.row_blocks, 64, sizes.bn];
                    let acc = b.alloc("acc", DType::F32, &shape, Scope::Fragment(Unit::Warpgroup));
                    each_tile(b, &mut |b, place| {
                        for h in 0..sizes.row_blocks {
                            b.gpu(Gpu::Fill { dst: sums(acc, h, sizes), value: Expr::f32(0.0) });
                        }
                        product.steps(b, place, &mut |b, _| ring.consume(b, acc, warpgroup, t));
                        store(b, product, &params, acc, sizes, place, warpgroup);
                    });
                },
            );
        });
    });
    b.finish()
}

/// The sums of a consumer's row block `h`.
fn sums(acc: BufferId, h: i64, sizes: Sizes) -> Tile {
    tile(acc, vec![h.into(), 0.into(), 0.into()], &[1, 64, sizes.bn])
}

fn tile(buffer: BufferId, origin: Vec<Expr>, extents: &[i64]) -> Tile {
    Tile { buffer, origin, extents: extents.to_vec() }
}

/// Writes a consumer's sums, with the epilogue, from the registers where they are.
fn store(
    b: &mut KernelBuilder,
    product: &dyn Product,
    params: &[(Param, BufferId)],
    acc: BufferId,
    sizes: Sizes,
    place: &[Expr],
    warpgroup: VarId,
) {
    let operand = |name: &str| {
        let found = params.iter().find(|p| p.0.name == name);
        found.expect("a workload's parameters hold the operands of its epilogue").1
    };
    let output = params.last().expect("every workload has an output").1;
    for h in 0..sizes.row_blocks {
        b.loop_("row", 64, LoopKind::FragmentRow, |b, row| {
            b.loop_("column", sizes.bn, LoopKind::FragmentCol, |b, column| {
                let sum = Expr::load(acc, vec![h.into(), row.into(), column.into()]);
                let row = warpgroup * (64 * sizes.row_blocks) + 64 * h + row;
                let at = product.element(place, row, column.into());
                let value = epilogue(product.workload(), sum, &at.channel, &at.index, &operand);
                match at.exists {
                    Some(exists) => b.if_(exists, |b| b.store(output, at.index, value)),
                    None => b.store(output, at.index, value),
                }
            });
        });
    }
}

/// The shared memory of a ring, and this thread's place in it.
struct Ring {
    sizes: Sizes,
    layouts: [Layout; 2],
    operands: [BufferId; 2],
    /// One barrier a slot, whose phases end when the slot's bytes have come.
    full: BufferId,
    /// One barrier a slot, whose phases end when all consumers are done with it.
    empty: BufferId,
    /// Steps that this thread has been through: a counter in a register.
    at: BufferId,
}

impl Ring {
    fn make(b: &mut KernelBuilder, dtype: DType, sizes: Sizes, layouts: [Layout; 2], t: VarId) -> Ring {
        let slots = |b: &mut KernelBuilder, name: &str, layout: Layout, rows: i64| {
            let shape = match layout {
                Layout::ReductionFast => vec![sizes.stages, rows, BK],
                Layout::ReductionSlow => vec![sizes.stages, rows / 64, BK, 64],
            };
            b.alloc_swizzled(name, dtype, &shape, 128)
        };
        let operands = [slots(b, "left_slots", layouts[0], sizes.bm()), slots(b, "right_slots", layouts[1], sizes.bn)];
        let full = b.alloc("full", DType::I64, &[sizes.stages], Scope::Mbarrier);
        let empty = b.alloc("empty", DType::I64, &[sizes.stages], Scope::Mbarrier);
        b.if_(Expr::from(t).eq(0), |b| {
            b.loop_("slot", sizes.stages, LoopKind::Unrolled, |b, slot| {
                b.gpu(Gpu::Mbarrier(Slot { buffer: full, index: slot.into() }, MbarrierOp::Init(1)));
                b.gpu(Gpu::Mbarrier(Slot { buffer: empty, index: slot.into() }, MbarrierOp::Init(sizes.consumers)));
            });
            b.gpu(Gpu::FenceAsync);
        });
        b.push(Stmt::Barrier(Barrier::Block));
        let at = b.alloc("at", DType::I64, &[1], Scope::Register);
        b.store(at, [0.into()], 0.into());
        Ring { sizes, layouts, operands, full, empty, at }
    }

    /// Names the slot of this step and the parity of its phase.
    fn slot(&self, b: &mut KernelBuilder) -> (Expr, Expr) {
        let at = || Expr::load(self.at, vec![0.into()]);
        let slot = b.let_("slot", at().floor_mod(self.sizes.stages));
        let parity = b.let_("parity", at().floor_div(self.sizes.stages).floor_mod(2));
        (slot.into(), parity.into())
    }

    fn advance(&self, b: &mut KernelBuilder) {
        b.store(self.at, [0.into()], Expr::load(self.at, vec![0.into()]) + 1);
    }

    /// One step of the producer: has the slot filled from `sources` when it is free.
    fn produce(&self, b: &mut KernelBuilder, sources: [BufferId; 2], from: impl Fn(usize, i64) -> Box) {
        let (slot, parity) = self.slot(b);
        let on = |buffer| Slot { buffer, index: slot.clone() };
        // The phase before the first counts as ended: the ring begins empty.
        b.gpu(Gpu::Mbarrier(on(self.empty), MbarrierOp::Wait(Expr::Int(1) - parity)));
        b.gpu(Gpu::Mbarrier(on(self.full), MbarrierOp::Expect(self.sizes.slot_bytes())));
        for (side, rows) in [self.sizes.bm(), self.sizes.bn].into_iter().enumerate() {
            let blocks = if self.layouts[side] == Layout::ReductionSlow { rows / 64 } else { 1 };
            for block in 0..blocks {
                let Box { origin, extents, steps } = from(side, block);
                let dst = match self.layouts[side] {
                    Layout::ReductionFast => {
                        tile(self.operands[side], vec![slot.clone(), 0.into(), 0.into()], &[1, rows, BK])
                    }
                    Layout::ReductionSlow => {
                        let origin = vec![slot.clone(), block.into(), 0.into(), 0.into()];
                        tile(self.operands[side], origin, &[1, 1, BK, 64])
                    }
                };
                let src = tile(sources[side], origin, &extents);
                b.gpu(Gpu::TensorLoad { dst, src, steps, on: on(self.full), multicast: None });
            }
        }
        self.advance(b);
    }

    /// One step of a consumer: multiplies what the slot holds, and gives it back.
    fn consume(&self, b: &mut KernelBuilder, acc: BufferId, warpgroup: VarId, t: VarId) {
        let (slot, parity) = self.slot(b);
        let on = |buffer| Slot { buffer, index: slot.clone() };
        let sizes = self.sizes;
        b.gpu(Gpu::Mbarrier(on(self.full), MbarrierOp::Wait(parity)));
        let right = match self.layouts[1] {
            Layout::ReductionFast => tile(self.operands[1], vec![slot.clone(), 0.into(), 0.into()], &[1, sizes.bn, BK]),
            Layout::ReductionSlow => {
                let origin = vec![slot.clone(), 0.into(), 0.into(), 0.into()];
                tile(self.operands[1], origin, &[1, sizes.bn / 64, BK, 64])
            }
        };
        for h in 0..sizes.row_blocks {
            let left = match self.layouts[0] {
                Layout::ReductionFast => {
                    let row = warpgroup * (64 * sizes.row_blocks) + 64 * h;
                    tile(self.operands[0], vec![slot.clone(), row, 0.into()], &[1, 64, BK])
                }
                Layout::ReductionSlow => {
                    let block = warpgroup * sizes.row_blocks + h;
                    tile(self.operands[0], vec![slot.clone(), block, 0.into(), 0.into()], &[1, 1, BK, 64])
                }
            };
            b.gpu(Gpu::Mma {
                unit: Unit::Warpgroup,
                acc: sums(acc, h, sizes),
                a: Operand { tile: left, transposed: self.layouts[0] == Layout::ReductionSlow },
                b: Operand { tile: right.clone(), transposed: self.layouts[1] == Layout::ReductionFast },
            });
        }
        b.gpu(Gpu::Commit(Group::Mma));
        b.gpu(Gpu::Wait(Group::Mma, 0));
        b.if_(Expr::from(t).floor_mod(WARPGROUP).eq(0), |b| {
            b.gpu(Gpu::Mbarrier(on(self.empty), MbarrierOp::Arrive(None)));
        });
        self.advance(b);
    }
}
