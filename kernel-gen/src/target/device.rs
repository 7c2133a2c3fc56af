//! What a target is: a device, its limits and its rates.

use crate::analysis::verify::Limits;
use crate::workload::Workload;

/// The first compute capability, times ten, whose tensor cores have documented fragments.
pub(crate) const FIRST_MMA_SYNC: u32 = 75;

/// What code is made for.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Its name in specs and records: `x86-64-v3`, `sm_90a`.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// The device itself.
    pub device: Device,
}

impl Target {
    /// Whether code of a workload is made for it: a level for integers has that of workloads on them alone.
    pub fn serves(&self, workload: &Workload) -> bool {
        self.cpu().is_none_or(|cpu| !cpu.integers_only || workload.is_quantised())
    }

    /// What the verifier holds kernels for this target against.
    ///
    /// Shared memory may be as large as a block can get on request: launches of kernels with more than
    /// [`Cuda::shared_per_block`] ask for it.
    pub fn limits(&self) -> Limits {
        match &self.device {
            Device::Cpu(cpu) => Limits { vector_bytes: cpu.vector_bytes, ..Limits::cpu() },
            Device::Cuda(cuda) => Limits {
                shared_bytes: cuda.shared_per_block_optin,
                threads_per_block: cuda.threads_per_block,
                block_dim: cuda.block_dim,
                grid_dim: cuda.grid_dim,
                registers_per_thread: Some(cuda.registers_per_thread),
                opaque_fragments: self.has_opaque_fragments(),
                ..Limits::cuda()
            },
        }
    }

    /// The CPU, if it is one.
    pub fn cpu(&self) -> Option<&Cpu> {
        if let Device::Cpu(cpu) = &self.device { Some(cpu) } else { None }
    }

    /// The compute capability of a CUDA architecture, times ten: 90 of `sm_90a`.
    pub fn capability(&self) -> Option<u32> {
        self.cuda()?;
        self.name.strip_prefix("sm_")?.trim_end_matches(char::is_alphabetic).parse().ok()
    }

    /// Whether tensor cores are there in `wmma` form only, in which the compiler decides which thread holds which element
    /// of a fragment. `mma.sync`, whose fragments are documented, multiplies `m16n8k8` and up from compute capability 7.5
    /// on. *(PTX ISA, "mma".)*
    pub fn has_opaque_fragments(&self) -> bool {
        self.capability().is_some_and(|c| c < FIRST_MMA_SYNC)
    }

    /// The CUDA architecture, if it is one.
    pub fn cuda(&self) -> Option<&Cuda> {
        if let Device::Cuda(cuda) = &self.device { Some(cuda) } else { None }
    }
}

/// A kind of device.
#[derive(Clone, PartialEq, Debug)]
pub enum Device {
    /// A level of a CPU architecture.
    Cpu(Cpu),
    /// A CUDA architecture.
    Cuda(Cuda),
}

/// A level of a CPU architecture.
#[derive(Clone, PartialEq, Debug)]
pub struct Cpu {
    /// The architecture as Rust calls it (`target_arch`).
    pub arch: String,
    /// Higher levels of an architecture are preferred where their features are there. Level 0 needs none.
    pub level: i64,
    /// Features to look for at run time, as `std::arch` names them.
    pub features: Vec<String>,
    /// What the C compiler is told.
    pub flags: Vec<String>,
    /// Whether it is another level with instructions for integers of eight bits: nothing else is compiled for it.
    pub integers_only: bool,
    /// Size of a vector register.
    pub vector_bytes: i64,
    /// Number of vector registers.
    pub vector_registers: i64,
    /// Whether multiply and add are one instruction.
    pub fma: bool,
    /// Vector multiply-adds that can start each cycle.
    pub fma_units: i64,
    /// Cycles until the result of one can be added to again.
    pub fma_latency: i64,
    /// First-level data cache of a core.
    pub l1_bytes: i64,
    /// Second-level cache of a core.
    pub l2_bytes: i64,
    /// A core's share of the last-level cache.
    pub l3_bytes_per_core: i64,
    /// Size of a cache line.
    pub cache_line_bytes: i64,
    /// Typical clock under load.
    pub clock_mhz: i64,
    /// Typical memory bandwidth of one core.
    pub bandwidth_gb_s: f64,
}

impl Cpu {
    /// `f32` lanes of a vector register.
    pub fn f32_lanes(&self) -> i64 {
        self.vector_bytes / 4
    }

    /// `f32` operations a cycle of one core, two a multiply-add.
    pub fn f32_flops_per_cycle(&self) -> i64 {
        2 * self.f32_lanes() * self.fma_units
    }
}

/// Something that a CUDA architecture can do beyond the common ground.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CudaFeature {
    /// `cp.async`: copies from global to shared memory that do not pass through registers.
    CpAsync,
    /// Barriers in shared memory that count arrivals and bytes.
    Mbarrier,
    /// Clusters of blocks with distributed shared memory.
    Cluster,
    /// The tensor memory accelerator.
    Tma,
    /// Warpgroup matrix instructions of `sm_90a`.
    Wgmma,
}

impl CudaFeature {
    /// All of them.
    pub const ALL: [CudaFeature; 5] =
        [CudaFeature::CpAsync, CudaFeature::Mbarrier, CudaFeature::Cluster, CudaFeature::Tma, CudaFeature::Wgmma];

    /// The name in target files.
    pub fn name(self) -> &'static str {
        match self {
            CudaFeature::CpAsync => "cp_async",
            CudaFeature::Mbarrier => "mbarrier",
            CudaFeature::Cluster => "cluster",
            CudaFeature::Tma => "tma",
            CudaFeature::Wgmma => "wgmma",
        }
    }
}

/// A CUDA architecture: its limits, and the rates of a typical device.
#[derive(Clone, PartialEq, Debug)]
pub struct Cuda {
    /// What it can do beyond the common ground.
    pub features: Vec<CudaFeature>,
    /// Shared memory that a block can have without asking.
    pub shared_per_block: i64,
    /// Shared memory that a block can have on request.
    pub shared_per_block_optin: i64,
    /// Shared memory of a multiprocessor.
    pub shared_per_sm: i64,
    /// Registers of a multiprocessor, 32 bits each.
    pub registers_per_sm: i64,
    /// Registers that a block can have.
    pub registers_per_block: i64,
    /// Registers that a thread can have.
    pub registers_per_thread: i64,
    /// Threads that a block can have.
    pub threads_per_block: i64,
    /// Threads resident on a multiprocessor.
    pub threads_per_sm: i64,
    /// Blocks resident on a multiprocessor.
    pub blocks_per_sm: i64,
    /// Threads of a block along x, y, z.
    pub block_dim: [i64; 3],
    /// Blocks of a grid along x, y, z.
    pub grid_dim: [i64; 3],
    /// Blocks of a cluster that every device takes; 1 means that there are no clusters.
    pub cluster_size: i64,
    /// Blocks of a cluster that some devices take on request.
    pub cluster_size_nonportable: i64,
    /// A warp's registers are allocated in multiples of this.
    pub register_allocation_unit: i64,
    /// Warps are allocated in multiples of this.
    pub warp_allocation_granularity: i64,
    /// A block's shared memory is allocated in multiples of this.
    pub shared_allocation_unit: i64,
    /// Shared memory that the system takes from each block.
    pub shared_reserved_per_block: i64,
    /// The device that the rates are of.
    pub device: String,
    /// `f32` operations a clock of a multiprocessor, two a multiply-add.
    pub f32_flops_per_sm_clock: i64,
    /// The same of tf32 tensor products; 0 where there are none.
    pub tf32_flops_per_sm_clock: i64,
    /// The same of f16 tensor products that accumulate in `f32`.
    pub f16_flops_per_sm_clock: i64,
    /// Number of multiprocessors.
    pub sm_count: i64,
    /// Clock under load.
    pub clock_mhz: i64,
    /// Memory bandwidth.
    pub bandwidth_gb_s: f64,
    /// Second-level cache.
    pub l2_bytes: i64,
}

impl Cuda {
    /// Threads of a warp, on every architecture so far.
    pub const WARP: i64 = 32;

    /// Whether the architecture can do that.
    pub fn has(&self, feature: CudaFeature) -> bool {
        self.features.contains(&feature)
    }

    /// Blocks of so many threads, registers a thread and bytes of shared memory that one multiprocessor holds at the
    /// same time; 0 if not even one fits.
    pub fn blocks_resident(&self, threads: i64, registers: i64, shared_bytes: i64) -> i64 {
        let fits = (1..=self.threads_per_block).contains(&threads)
            && (0..=self.registers_per_thread).contains(&registers)
            && (0..=self.shared_per_block_optin).contains(&shared_bytes);
        if !fits {
            return 0;
        }
        let round_up = |value: i64, unit: i64| (value + unit - 1) / unit * unit;
        let warps = (threads + Self::WARP - 1) / Self::WARP;
        let by_threads = self.threads_per_sm / (warps * Self::WARP);
        let registers_per_warp = round_up(registers.max(1) * Self::WARP, self.register_allocation_unit);
        let warps_by_registers = self.registers_per_sm / registers_per_warp / self.warp_allocation_granularity
            * self.warp_allocation_granularity;
        let by_registers = warps_by_registers / warps;
        let shared = round_up(shared_bytes + self.shared_reserved_per_block, self.shared_allocation_unit);
        let by_shared = if shared == 0 { i64::MAX } else { self.shared_per_sm / shared };
        by_threads.min(by_registers).min(by_shared).min(self.blocks_per_sm)
    }
}
