//! Statements that only a GPU has (see [`crate::ir::gpu`]).

use super::body::Body;
use super::ptx::Ptx;
use crate::emit::EmitError;
use crate::ir::{BufferId, Expr, Gpu, Group, LaneOp, MbarrierOp, Scope, Slot, Tile, Unit};
use crate::target::CudaFeature;

/// Registers of a multiprocessor, on every architecture that lets warps give some back.
const REGISTERS: u32 = 65536;

impl Body<'_> {
    pub(super) fn gpu(&mut self, g: &Gpu) -> Result<(), EmitError> {
        match g {
            Gpu::Fill { dst, value } => self.fill(dst, value),
            Gpu::Move { dst, src } if self.own.arch.has_opaque_fragments() => self.wmma_move(dst, src),
            Gpu::Move { dst, src } if matches!(self.kernel.buffer(src.buffer).scope, Scope::Fragment(_)) => {
                self.round_sums(dst, src)
            }
            Gpu::Move { dst, src } => self.load_operand(dst, src),
            Gpu::MoveRows { dst, src } => self.load_rows(dst, src),
            Gpu::Split { dst, src } => self.split(dst, src),
            Gpu::Mma { unit: Unit::Warp, acc, a, b } => self.warp_mma(acc, a, b),
            Gpu::Mma { unit: Unit::Warpgroup, acc, a, b } => self.warpgroup_mma(acc, a, b),
            Gpu::Lanes { op, dst, value } => self.lanes(op, dst, value),
            Gpu::CopyAsync { dst, src, guard } => self.copy_async(dst, src, guard.as_ref()),
            Gpu::Commit(group) => self.group(*group, None),
            Gpu::Wait(group, n) => self.group(*group, Some(*n)),
            Gpu::TensorLoad { dst, src, steps, on, multicast } => {
                self.tensor_load(dst, src, steps, on, multicast.as_ref())
            }
            Gpu::TensorStore { dst, src } => self.tensor_store(dst, src),
            Gpu::StoreAt { dst, values, rank, on } => self.store_at(dst, values, rank, on),
            Gpu::Mbarrier(slot, op) => self.mbarrier(slot, op),
            Gpu::FenceAsync => {
                self.need(CudaFeature::Tma, "a fence for the copy engine")?;
                if self.own.cluster != [1; 3] {
                    // Other blocks of the cluster arrive at these barriers too.
                    self.instruction("fence.mbarrier_init.release.cluster");
                }
                self.instruction("fence.proxy.async.shared::cta");
                Ok(())
            }
            Gpu::NamedBarrier { id, threads } => {
                self.instruction(&format!("bar.sync {id}, {threads}"));
                Ok(())
            }
            Gpu::ClusterBarrier => {
                self.need(CudaFeature::Cluster, "a barrier of a cluster")?;
                if self.own.stores_at && !self.own.exchanges {
                    // Blocks tell each other by what mbarriers count, so only the block's own memory has to be in order.
                    // Releasing to the cluster would wait for all stores to global memory.
                    self.instruction("bar.sync 0");
                    self.instruction("barrier.cluster.arrive.relaxed.aligned");
                } else {
                    self.instruction("barrier.cluster.arrive.release.aligned");
                }
                self.instruction("barrier.cluster.wait.acquire.aligned");
                Ok(())
            }
            Gpu::SetMaxRegisters(n) => {
                self.need(CudaFeature::Wgmma, "a change of the number of registers")?;
                let threads: u32 = self.own.block.iter().product();
                // What ptxas gives each thread at the start: a share of all registers, in units of eight.
                let share = (REGISTERS / threads.max(1)).min(255) / 8 * 8;
                let direction = if *n < share { "dec" } else { "inc" };
                self.instruction(&format!("setmaxnreg.{direction}.sync.aligned.u32 {n}"));
                Ok(())
            }
            Gpu::Prefetch { src } => self.prefetch(src),
            Gpu::DependencyWait => self.dependency("wait"),
            Gpu::DependencyLaunch => self.dependency("launch_dependents"),
        }
    }

    fn lanes(&mut self, op: &LaneOp, dst: &Tile, value: &Expr) -> Result<(), EmitError> {
        if self.is_unread(dst.buffer, &dst.origin)? {
            return Ok(());
        }
        let value = self.scalar(value)?.text;
        let to = self.element(dst.buffer, &dst.origin)?;
        self.line(&format!("asm volatile(\"{}\" : \"=f\"({to}) : \"f\"({value}));", op.ptx));
        Ok(())
    }

    /// An instruction without operands.
    pub(super) fn instruction(&mut self, text: &str) {
        self.line(&format!("asm volatile(\"{text};\" ::: \"memory\");"));
    }

    fn dependency(&mut self, what: &str) -> Result<(), EmitError> {
        // Launches overlap from the same architecture on that has clusters.
        self.need(CudaFeature::Cluster, "overlap of launches")?;
        self.instruction(&format!("griddepcontrol.{what}"));
        Ok(())
    }

    fn prefetch(&mut self, src: &Tile) -> Result<(), EmitError> {
        self.need(CudaFeature::Tma, "a prefetch")?;
        let prefetch = self.ptx(Ptx::Prefetch);
        let from = self.plain_pointer(src.buffer, &self.offset(src.buffer, &src.origin))?;
        let bytes = src.extents.iter().product::<i64>() * self.kernel.buffer(src.buffer).dtype.bytes() as i64;
        self.line(&format!("{prefetch}({from}, {bytes});"));
        Ok(())
    }

    /// Refuses what the architecture lacks.
    pub(super) fn need(&self, feature: CudaFeature, what: &str) -> Result<(), EmitError> {
        if self.own.arch.has(feature) {
            return Ok(());
        }
        let needs = match feature {
            CudaFeature::CpAsync => "sm_80",
            CudaFeature::Wgmma => "sm_90a",
            _ => "sm_90",
        };
        Err(EmitError::Architecture { what: what.to_string(), needs, arch: self.own.arch })
    }

    /// Closes a group, or waits until at most `left` are unfinished.
    fn group(&mut self, group: Group, left: Option<u32>) -> Result<(), EmitError> {
        let feature = match group {
            Group::Copy => CudaFeature::CpAsync,
            Group::Mma => CudaFeature::Wgmma,
            Group::Store => CudaFeature::Tma,
        };
        self.need(feature, "a group of asynchronous operations")?;
        let text = match (group, left) {
            (Group::Copy, None) => "cp.async.commit_group".to_string(),
            (Group::Copy, Some(n)) => format!("cp.async.wait_group {n}"),
            (Group::Mma, None) => "wgmma.commit_group.sync.aligned".to_string(),
            (Group::Mma, Some(n)) => format!("wgmma.wait_group.sync.aligned {n}"),
            (Group::Store, None) => "cp.async.bulk.commit_group".to_string(),
            (Group::Store, Some(n)) => format!("cp.async.bulk.wait_group.read {n}"),
        };
        self.instruction(&text);
        match (group, left) {
            (Group::Mma, None) => {
                let open = std::mem::take(&mut self.own.open_group);
                self.own.groups.push(open);
            }
            (Group::Mma, Some(left)) => self.settle(left as usize)?,
            _ => {}
        }
        Ok(())
    }

    fn copy_async(&mut self, dst: &Tile, src: &Tile, guard: Option<&Expr>) -> Result<(), EmitError> {
        self.need(CudaFeature::CpAsync, "an asynchronous copy")?;
        let bytes = dst.extents.iter().product::<i64>() * self.kernel.buffer(dst.buffer).dtype.bytes() as i64;
        if ![4, 8, 16].contains(&bytes) {
            let what = format!("an asynchronous copy of {bytes} bytes; copy 4, 8 or 16 at a time");
            return Err(EmitError::in_cuda(what));
        }
        let copy = self.ptx(Ptx::CpAsync(bytes));
        let (to, from) = (self.pointer(dst.buffer, &dst.origin)?, self.pointer(src.buffer, &src.origin)?);
        let guard = self.condition(guard)?;
        self.line(&format!("{copy}({to}, {from}, {guard});"));
        Ok(())
    }

    /// A condition as an argument; true where there is none.
    pub(super) fn condition(&mut self, cond: Option<&Expr>) -> Result<String, EmitError> {
        cond.map_or(Ok("true".to_string()), |e| Ok(self.scalar(e)?.text))
    }

    fn store_at(&mut self, dst: &Tile, values: &[Expr], rank: &Expr, on: &Slot) -> Result<(), EmitError> {
        self.need(CudaFeature::Cluster, "a store in another block")?;
        let store = self.ptx(Ptx::StoreAt(values.len(), self.kernel.buffer(dst.buffer).dtype));
        let to = self.pointer(dst.buffer, &dst.origin)?;
        let values = values.iter().map(|v| Ok(self.scalar(v)?.text)).collect::<Result<Vec<_>, EmitError>>()?.join(", ");
        let rank = self.index(rank)?;
        let on = self.slot(on)?;
        self.line(&format!("{store}({to}, {rank}, {on}, {values});"));
        Ok(())
    }

    /// The address of an element.
    pub(super) fn pointer(&mut self, b: BufferId, indices: &[Expr]) -> Result<String, EmitError> {
        let offset = self.offset(b, indices);
        if offset == Expr::Int(0) {
            return Ok(self.names.buffer(b).to_string());
        }
        self.address_of(b, offset)
    }

    /// The address of an mbarrier.
    pub(super) fn slot(&mut self, slot: &Slot) -> Result<String, EmitError> {
        self.pointer(slot.buffer, std::slice::from_ref(&slot.index))
    }

    fn mbarrier(&mut self, slot: &Slot, op: &MbarrierOp) -> Result<(), EmitError> {
        self.need(CudaFeature::Mbarrier, "a barrier that counts bytes")?;
        let on = self.slot(slot)?;
        let line = match op {
            MbarrierOp::Init(n) => format!("{}({on}, {n});", self.ptx(Ptx::MbarrierInit)),
            MbarrierOp::Arrive(None) => format!("{}({on});", self.ptx(Ptx::MbarrierArrive)),
            MbarrierOp::Arrive(Some(rank)) => {
                let rank = self.index(rank)?;
                format!("{}({on}, {rank});", self.ptx(Ptx::MbarrierArriveAt { releases: self.own.exchanges }))
            }
            MbarrierOp::Expect(n) => format!("{}({on}, {n});", self.ptx(Ptx::MbarrierExpect)),
            MbarrierOp::Wait(parity) => {
                let parity = self.index(parity)?;
                format!("{}({on}, {parity});", self.ptx(Ptx::MbarrierWait))
            }
        };
        self.line(&line);
        Ok(())
    }
}
