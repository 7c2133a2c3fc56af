//! From the tree to the flat program: statements that only a GPU has.

use super::compile::Compiler;
use super::layout::used;
use super::program::{Block, GpuOp, Linear, Matrix, MbarrierAct, On, Op, Slot};
use super::{Cause, InterpError};
use crate::ir::{DType, Expr, Gpu, LANE_COLUMNS, MbarrierOp, Operand, Scope, Stmt, Tile, Unit};

/// Elements of a tile.
const MOST_ELEMENTS: i64 = 1 << 20;

/// Blocks of a cluster; no device has more.
const MOST_BLOCKS: i64 = 16;

/// What all threads of a cluster know of each other, in numbers.
const MOST_KNOWN: i64 = 1 << 27;

impl<'k> Compiler<'k> {
    pub(super) fn gpu(&mut self, g: &'k Gpu) -> Result<(), InterpError> {
        if !self.in_launch {
            return Err(InterpError::whole(Cause::BarrierOutsideBlock));
        }
        if self.in_lanes {
            return Err(InterpError::malformed("a statement that only a GPU has stands in a vectorized loop"));
        }
        let op = match g {
            Gpu::Fill { dst, value } => {
                let Scope::Fragment(unit) = self.p.kernel.buffer(dst.buffer).scope else {
                    return Err(InterpError::malformed("fill is for fragments"));
                };
                let value = self.number(value, dst)?;
                GpuOp::Fill { unit, dst: self.box_of(dst)?, value }
            }
            Gpu::Move { dst, src } => {
                let scopes = [dst, src].map(|t| self.p.kernel.buffer(t.buffer).scope);
                let unit = match scopes {
                    [Scope::Fragment(u), Scope::Shared | Scope::Global]
                    | [Scope::Shared | Scope::Global, Scope::Fragment(u)] => u,
                    [Scope::Fragment(u), Scope::Fragment(v)] if u == v => u,
                    _ => return Err(InterpError::malformed("move is between fragments of a unit, or one and memory")),
                };
                let (dst, src) = self.pair(dst, src)?;
                GpuOp::Move { unit, dst, src }
            }
            Gpu::MoveRows { dst, src } => {
                let [to, from] = [dst, src].map(|t| self.p.kernel.buffer(t.buffer).scope);
                let last = dst.extents.last().copied().unwrap_or(0);
                if (to, from) != (Scope::Fragment(Unit::Warp), Scope::Global) || last % LANE_COLUMNS != 0 {
                    return Err(InterpError::malformed(
                        "move_rows fills a fragment of a warp, in 32 columns, from global memory",
                    ));
                }
                let (dst, src) = self.pair(dst, src)?;
                GpuOp::MoveRows { dst, src }
            }
            Gpu::Split { dst, src } => {
                let [to, from] = [dst, &src.tile].map(|t| self.p.kernel.buffer(t.buffer));
                let (Scope::Fragment(unit), Scope::Shared | Scope::Global) = (to.scope, from.scope) else {
                    return Err(InterpError::malformed("split is from memory to a fragment"));
                };
                let most = Gpu::most_parts(to.dtype).filter(|_| from.dtype == DType::F32);
                let (dst, src) = (self.box_of(dst)?, self.matrix(&src.tile, src.transposed)?);
                let (rows, columns) = src.shape();
                let fits = |[parts, r, c]: [i64; 3]| {
                    most.is_some_and(|most| (1..=most).contains(&parts)) && [r, c] == [rows as i64, columns as i64]
                };
                if !<[i64; 3]>::try_from(&dst.extents[..]).is_ok_and(fits) {
                    let extents = &dst.extents;
                    return Err(InterpError::malformed(format!("a split of extents {extents:?} = {rows}x{columns}")));
                }
                GpuOp::Split { unit, dst, src }
            }
            Gpu::Mma { unit, acc, a, b } => self.unit_mma(*unit, acc, a, b)?,
            Gpu::Lanes { op, dst, value } => {
                let value = self.value(value, 0)?;
                let value = self.as_kind(value, DType::F32);
                GpuOp::Lanes { op, dst: self.box_of(dst)?, value }
            }
            Gpu::CopyAsync { dst, src, guard } => {
                self.check_scopes("copy_async", dst, src)?;
                let guard = guard.as_ref().map(|g| self.truth(g, 0)).transpose()?;
                self.check_extents(dst, src)?;
                GpuOp::CopyAsync { dst: self.part_of(dst)?, src: self.part_of(src)?, guard }
            }
            Gpu::Commit(group) => GpuOp::Commit(*group),
            Gpu::Wait(group, pending) => GpuOp::Wait(*group, *pending),
            Gpu::TensorLoad { dst, src, steps, on, multicast } => {
                self.check_scopes("tensor_load", dst, src)?;
                if steps.iter().any(|s| *s < 1) || !steps.is_empty() && steps.len() != src.extents.len() {
                    return Err(InterpError::malformed(format!("tensor_load with steps {steps:?}")));
                }
                let multicast = multicast.as_ref().map(|m| self.integer(m)).transpose()?;
                let on = self.on(on)?;
                let (dst, src) = self.boxes(dst, src)?;
                GpuOp::TensorLoad { dst, src, steps: steps.clone(), on, multicast }
            }
            Gpu::TensorStore { dst, src } => {
                self.check_scopes("tensor_store", src, dst)?;
                let (dst, src) = self.boxes(dst, src)?;
                GpuOp::TensorStore { dst, src }
            }
            Gpu::StoreAt { dst, values, rank, on } => {
                let count = dst.extents.iter().try_fold(1i64, |a, n| a.checked_mul(*n));
                if self.p.kernel.buffer(dst.buffer).scope != Scope::Shared || count != Some(values.len() as i64) {
                    return Err(InterpError::malformed(
                        "store_at writes elements of shared memory, one for each value",
                    ));
                }
                let values = values.iter().map(|v| self.number(v, dst)).collect::<Result<_, InterpError>>()?;
                let (rank, on) = (self.integer(rank)?, self.on(on)?);
                GpuOp::StoreAt { dst: self.box_of(dst)?, values, rank, on }
            }
            Gpu::Mbarrier(on, op) => {
                let act = match op {
                    MbarrierOp::Init(n) => MbarrierAct::Init(*n),
                    MbarrierOp::Arrive(rank) => {
                        MbarrierAct::Arrive(rank.as_ref().map(|r| self.integer(r)).transpose()?)
                    }
                    MbarrierOp::Expect(n) => MbarrierAct::Expect(*n),
                    MbarrierOp::Wait(parity) => MbarrierAct::Wait(self.integer(parity)?),
                };
                GpuOp::Mbarrier { on: self.on(on)?, act }
            }
            Gpu::FenceAsync => GpuOp::Fence,
            Gpu::NamedBarrier { id, threads } => GpuOp::Named { id: *id, threads: *threads },
            Gpu::ClusterBarrier => GpuOp::Cluster,
            Gpu::SetMaxRegisters(_) | Gpu::Prefetch { .. } | Gpu::DependencyWait | Gpu::DependencyLaunch => {
                GpuOp::Nothing
            }
        };
        self.p.gpu.push(op);
        self.emit(Op::Gpu { gpu: self.p.gpu.len() as u32 - 1 });
        Ok(())
    }

    /// Refuses clusters that are too large to keep in mind what each thread knows, and blocks without a whole unit that
    /// acts in them.
    pub(super) fn check_launch(&self, s: &Stmt, block: [i64; 3], cluster: [i64; 3]) -> Result<(), InterpError> {
        let threads: i64 = block.iter().product();
        let blocks: i64 = cluster.iter().product();
        if blocks > MOST_BLOCKS {
            return Err(InterpError::malformed(format!("a cluster of {blocks} blocks")));
        }
        let mbarriers = self.p.kernel.buffers.iter().zip(&self.p.buffers);
        let mbarriers: i64 = mbarriers.filter(|(b, _)| b.scope == Scope::Mbarrier).map(|(_, m)| m.size as i64).sum();
        let all = threads.saturating_mul(blocks);
        let known = all.saturating_mul(all.saturating_mul(4).saturating_add(mbarriers.saturating_mul(blocks)));
        if known > MOST_KNOWN {
            return Err(InterpError::whole(Cause::TooLarge { elements: known }));
        }
        for b in used(std::slice::from_ref(s)) {
            let b = self.p.kernel.buffer(b);
            let Scope::Fragment(unit) = b.scope else { continue };
            if threads % 32 != 0 || threads < unit.threads() {
                let unit = unit.name();
                return Err(InterpError::malformed(format!("a block of {threads} threads has no whole {unit}")));
            }
        }
        Ok(())
    }

    /// The test at the start of an iteration of a fragment's loop.
    pub(super) fn fragment_index(&mut self, l: &'k crate::ir::For, v: Slot) -> Result<usize, InterpError> {
        let unit = used(&l.body).into_iter().filter_map(|b| match self.p.kernel.buffer(b).scope {
            Scope::Fragment(u) => Some(u),
            _ => None,
        });
        let Some(unit) = unit.max() else {
            let (name, kind) = (&self.p.kernel.var(l.var).name, l.kind.name());
            return Err(InterpError::malformed(format!("no fragment is in the {kind} loop {name}")));
        };
        let column = l.kind == crate::ir::LoopKind::FragmentCol;
        Ok(self.emit(Op::FragmentIndex { v, column, warps: unit.warps() as u8, to: 0 }))
    }

    fn integer(&mut self, e: &Expr) -> Result<Slot, InterpError> {
        let v = self.value(e, 0)?;
        if v.dtype.is_float() {
            return Err(InterpError::malformed(format!("an index has type {}", v.dtype)));
        }
        Ok(v.slot)
    }

    fn index(&mut self, e: &Expr) -> Result<Linear, InterpError> {
        let sum = self.sum(e, 0)?;
        Ok(self.linear(&sum))
    }

    fn on(&mut self, slot: &crate::ir::Slot) -> Result<On, InterpError> {
        let b = self.p.kernel.buffer(slot.buffer);
        if b.scope != Scope::Mbarrier || b.shape.len() != 1 {
            return Err(InterpError::malformed(format!("{} is not a list of mbarriers", b.name)));
        }
        self.check_live(slot.buffer)?;
        Ok(On { buffer: slot.buffer.0, index: self.index(&slot.index)? })
    }

    fn check_scopes(&self, what: &str, shared: &Tile, global: &Tile) -> Result<(), InterpError> {
        let scope = |t: &Tile| self.p.kernel.buffer(t.buffer).scope;
        if scope(shared) != Scope::Shared || scope(global) != Scope::Global {
            return Err(InterpError::malformed(format!("{what} is between global and shared memory")));
        }
        Ok(())
    }

    /// A value that goes into a tile, as an `f64` has it: all integers of 32 bits are among its numbers.
    fn number(&mut self, e: &Expr, into: &Tile) -> Result<Slot, InterpError> {
        let value = self.value(e, 0)?;
        let wide = !self.p.kernel.buffer(into.buffer).dtype.is_float();
        Ok(self.as_kind(value, if wide { DType::F64 } else { DType::F32 }))
    }

    /// A tile of numbers, or of integers of 8 or 32 bits.
    fn box_of(&mut self, t: &Tile) -> Result<Block, InterpError> {
        let b = self.p.kernel.buffer(t.buffer);
        if !b.dtype.is_in_tiles() {
            return Err(InterpError::malformed(format!("a tile of {}, whose elements are {}", b.name, b.dtype)));
        }
        self.part_of(t)
    }

    /// A tile of elements of any type.
    fn part_of(&mut self, t: &Tile) -> Result<Block, InterpError> {
        self.check_live(t.buffer)?;
        let b = self.p.kernel.buffer(t.buffer);
        let count = t.extents.iter().try_fold(1i64, |a, n| a.checked_mul(*n));
        if t.extents.iter().any(|n| *n < 1) || count.is_none_or(|n| n > MOST_ELEMENTS) {
            return Err(InterpError::malformed(format!("a tile of extents {:?}", t.extents)));
        }
        let strides = crate::ir::row_major(&b.shape);
        let mut offsets = vec![0usize];
        for (n, stride) in t.extents.iter().zip(strides) {
            offsets = offsets.iter().flat_map(|o| (0..*n).map(move |i| o + (i * stride) as usize)).collect();
        }
        let origin = t.origin.iter().map(|e| self.index(e)).collect::<Result<_, _>>()?;
        Ok(Block { buffer: t.buffer.0, origin, extents: t.extents.clone(), offsets })
    }

    /// Two tiles of as many elements, which correspond in row-major order.
    fn boxes(&mut self, dst: &Tile, src: &Tile) -> Result<(Block, Block), InterpError> {
        let count = |t: &Tile| t.extents.iter().try_fold(1i64, |a, n| a.checked_mul(*n));
        if count(dst).is_none() || count(dst) != count(src) {
            let (dst, src) = (&dst.extents, &src.extents);
            return Err(InterpError::malformed(format!("a copy of extents {dst:?} = {src:?}")));
        }
        Ok((self.box_of(dst)?, self.box_of(src)?))
    }

    /// Two tiles of the same extents apart from ones.
    fn pair(&mut self, dst: &Tile, src: &Tile) -> Result<(Block, Block), InterpError> {
        self.check_extents(dst, src)?;
        Ok((self.box_of(dst)?, self.box_of(src)?))
    }

    fn check_extents(&self, dst: &Tile, src: &Tile) -> Result<(), InterpError> {
        let long = |t: &Tile| t.extents.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
        if long(dst) != long(src) {
            let (dst, src) = (&dst.extents, &src.extents);
            return Err(InterpError::malformed(format!("a copy of extents {dst:?} = {src:?}")));
        }
        Ok(())
    }

    fn matrix(&mut self, t: &Tile, transposed: bool) -> Result<Matrix, InterpError> {
        let long: Vec<i64> = t.extents.iter().copied().filter(|n| *n != 1).collect();
        let (blocks, rows, block_cols) = match long[..] {
            [rows, cols] => (1, rows as usize, cols as usize),
            [blocks, rows, cols] => (blocks as usize, rows as usize, cols as usize),
            _ => return Err(InterpError::malformed(format!("a tile of extents {:?} is not a matrix", t.extents))),
        };
        let cols = blocks.saturating_mul(block_cols);
        Ok(Matrix { tile: self.box_of(t)?, rows, cols, block_cols, transposed })
    }

    fn unit_mma(&mut self, unit: Unit, acc: &Tile, a: &Operand, b: &Operand) -> Result<GpuOp, InterpError> {
        let scope = |t: &Tile| self.p.kernel.buffer(t.buffer).scope;
        let fits = match unit {
            Unit::Warp => [a, b].iter().all(|o| scope(&o.tile) == Scope::Fragment(unit)),
            Unit::Warpgroup => {
                [Scope::Shared, Scope::Fragment(unit)].contains(&scope(&a.tile)) && scope(&b.tile) == Scope::Shared
            }
        };
        if scope(acc) != Scope::Fragment(unit) || !fits {
            return Err(InterpError::malformed(format!("mma.{} with operands of the wrong scope", unit.name())));
        }
        let acc = self.matrix(acc, false)?;
        let grouped = unit == Unit::Warpgroup && a.is_grouped(acc.rows as i64);
        let (mut a, b) = (self.matrix(&a.tile, a.transposed)?, self.matrix(&b.tile, b.transposed)?);
        if grouped {
            (a.rows, a.cols) = (acc.rows, a.block_cols);
        }
        let ((m, n), (rows, k), (depth, cols)) = (acc.shape(), a.shape(), b.shape());
        // Of a right operand in shared memory further columns may be there.
        let enough = if unit == Unit::Warpgroup { cols >= n } else { cols == n };
        if rows != m || !enough || depth != k {
            return Err(InterpError::malformed(format!("mma of {m}x{n} += {rows}x{k} * {depth}x{cols}")));
        }
        Ok(GpuOp::Mma { unit, acc, a, b })
    }
}
