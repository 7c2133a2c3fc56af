//! The tables that generated code makes for GPUs.
//!
//! A workload has *variants*, one an architecture; a variant is a *program*: an image of compiled code and the kernel
//! launches that run one after the other on a stream. As on the CPU the fields of tables are private, and generated code
//! makes them with the `unsafe` constructors of the hidden module `generated`. What is public here ([`Launch`],
//! [`TensorMapSpec`]) is a description, which does nothing by itself.

use super::arch::Arch;
use super::slot::Slot;
use crate::dispatch::{Choice, First, MAX_PARAMS};

/// Most parameters that one kernel launch can have.
pub const MAX_KERNEL_ARGS: usize = MAX_PARAMS + 8;
/// Most tensor maps that a program can have.
pub const MAX_TENSOR_MAPS: usize = 8;

/// The code of a workload for one architecture, and where it came from.
pub struct Variant {
    /// The architecture.
    pub(crate) arch: Arch,
    /// The most units that its kernels are for.
    pub(crate) most: usize,
    /// The kernels.
    pub(crate) program: Program,
    /// Parameters that it takes in packed form.
    pub(crate) packs: &'static [Pack],
    /// What the address of every buffer must be a multiple of; not 0.
    pub(crate) align: u64,
    /// Why it is this kernel.
    pub(crate) choice: Choice,
}

impl Variant {
    /// The architecture that it is compiled for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Why it is this kernel.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// How a kernel wants one of its parameters: rearranged by a program of two arguments, original and packed.
pub struct Pack {
    /// Which parameter.
    pub(crate) param: usize,
    /// Size of the packed form.
    pub(crate) bytes: usize,
    /// What packs.
    pub(crate) program: Program,
}

/// Compiled code and the launches that run it.
pub struct Program {
    pub(crate) image: &'static [u8],
    pub(crate) slot: &'static Slot,
    pub(crate) launches: &'static [Launch],
    pub(crate) maps: &'static [TensorMapSpec],
    pub(crate) workspace_bytes: usize,
}

impl Program {
    /// Whether both are the same launches of the same code.
    pub(crate) fn is(&self, other: &Program) -> bool {
        let launch = |launch: &Launch| (launch.kernel, launch.grid, launch.block);
        self.image == other.image
            && self.launches.iter().map(launch).eq(other.launches.iter().map(launch))
            && self.workspace_bytes == other.workspace_bytes
    }
}

/// One kernel launch.
pub struct Launch {
    /// The kernel's symbol.
    pub kernel: &'static str,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster along x, y, z; all 1 if there are no clusters.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Present if the kernel waits by itself (`griddepcontrol.wait`, all its threads) for what is in front of it on the
    /// stream, and lets the next kernel go behind that: the arguments that it reads before. Everything else it reads, and
    /// all that it writes, behind the wait. So it may start before the kernel in front of it has ended, if that one
    /// does not write these arguments.
    pub overlap: Option<&'static [usize]>,
    /// The most units with which it starts so: a longer launch does not gain by it.
    pub early_units: usize,
    /// Present if the grid has fewer blocks where there are fewer units: the axis, and how many clusters.
    pub first: Option<(usize, First)>,
    /// Its parameters.
    pub args: &'static [KernelArg],
}

impl Launch {
    /// The grid for `units` units.
    #[inline]
    pub(super) fn grid_of(&self, units: usize) -> [u32; 3] {
        let mut grid = self.grid;
        if let Some((axis, first)) = self.first {
            let blocks = first.iterations(units).saturating_mul(self.cluster[axis] as usize);
            grid[axis] = grid[axis].min(u32::try_from(blocks).unwrap_or(u32::MAX));
        }
        grid
    }
}

/// A parameter of a kernel launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelArg {
    /// The address of an argument.
    Param(usize),
    /// An address in an argument: its index, and the distance from its start in bytes.
    Within(usize, u64),
    /// An address in the workspace, so many bytes behind its start.
    Workspace(u64),
    /// A tensor map, by value.
    Map(usize),
    /// A number that the launch was given, by value.
    Scalar(usize),
    /// This number, by value.
    Int(i32),
    /// How many units the launch has, by value.
    Units,
}

/// A tensor map: how TMA sees a buffer. Dimensions come innermost first, as the driver takes them.
pub struct TensorMapSpec {
    /// Where it starts; not a map.
    pub base: KernelArg,
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// Number of dimensions, 1 to 5.
    pub rank: u32,
    /// Elements along each dimension.
    pub dims: [u64; 5],
    /// If their number along the last dimension depends on the number of units: elements a unit; else 0.
    pub rows: u64,
    /// Bytes from one element to the next along each dimension but the innermost.
    pub strides: [u64; 4],
    /// Elements of a box along each dimension.
    pub box_dims: [u32; 5],
    /// Elements between two that are loaded, along each dimension.
    pub steps: [u32; 5],
    /// `CUtensorMapSwizzle`: 0, 1 (32 bytes), 2 (64 bytes), 3 (128 bytes).
    pub swizzle: u32,
}
