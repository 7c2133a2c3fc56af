//! The tables that generated code makes for GPUs.
//!
//! A workload has *variants*, one an architecture; a variant is a *program*: an image of compiled code and the kernel
//! launches that run one after the other on a stream. Everything that could make a launch unsound is said by an
//! `unsafe` constructor, so launching is safe.

use super::arch::Arch;
use super::slot::Slot;
use crate::dispatch::MAX_PARAMS;

/// Most parameters that one kernel launch can have.
pub const MAX_KERNEL_ARGS: usize = MAX_PARAMS + 8;
/// Most tensor maps that a program can have.
pub const MAX_TENSOR_MAPS: usize = 8;

/// The code of a workload for one architecture, and where it came from.
pub struct Variant {
    /// The architecture.
    pub arch: Arch,
    /// The kernels.
    pub program: Program,
    /// Parameters that it takes in packed form.
    pub packs: &'static [Pack],
    /// What the address of every buffer must be a multiple of.
    pub align: u64,
    /// The template that made it.
    pub template: &'static str,
    /// The config of the template.
    pub config: &'static str,
    /// Where the config came from, in one word.
    pub origin: &'static str,
    /// The same in a sentence.
    pub origin_detail: &'static str,
    /// What the record measured or the model expects, in microseconds.
    pub cost_us: Option<f64>,
}

/// How a kernel wants one of its parameters: rearranged by a program of two arguments, original and packed.
pub struct Pack {
    /// Which parameter.
    pub param: usize,
    /// Size of the packed form.
    pub bytes: usize,
    /// What packs.
    pub program: Program,
}

/// Compiled code and the launches that run it.
pub struct Program {
    pub(super) image: &'static [u8],
    pub(super) slot: &'static Slot,
    pub(super) launches: &'static [Launch],
    pub(super) maps: &'static [TensorMapSpec],
    pub(super) workspace_bytes: usize,
}

impl Program {
    /// A program. `image` is a bundle of compiled code as the generator writes it, and `slot` a static that no other
    /// program has.
    ///
    /// # Safety
    /// The kernels of the image that the launches name, run with these grids and blocks and with the arguments that
    /// the [`Variant`]'s entry (or the [`Pack`]) states, must take exactly the parameters that each launch lists, and
    /// must access only these arguments (writing only those that are not read-only) and the `workspace_bytes` at the
    /// start of the workspace. The tensor maps must lie within what they are based on. A launch with an `overlap` must
    /// keep to what that says.
    pub const unsafe fn new(
        image: &'static [u8],
        slot: &'static Slot,
        launches: &'static [Launch],
        maps: &'static [TensorMapSpec],
        workspace_bytes: usize,
    ) -> Program {
        assert!(maps.len() <= MAX_TENSOR_MAPS, "the generator keeps to the limit");
        let mut i = 0;
        while i < launches.len() {
            assert!(launches[i].args.len() <= MAX_KERNEL_ARGS, "the generator keeps to the limit");
            i += 1;
        }
        Program { image, slot, launches, maps, workspace_bytes }
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
    /// Its parameters.
    pub args: &'static [KernelArg],
}

/// A parameter of a kernel launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelArg {
    /// The address of an argument.
    Param(usize),
    /// An address in the workspace, so many bytes behind its start.
    Workspace(u64),
    /// A tensor map, by value.
    Map(usize),
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
    /// Bytes from one element to the next along each dimension but the innermost.
    pub strides: [u64; 4],
    /// Elements of a box along each dimension.
    pub box_dims: [u32; 5],
    /// Elements between two that are loaded, along each dimension.
    pub steps: [u32; 5],
    /// `CUtensorMapSwizzle`: 0, 1 (32 bytes), 2 (64 bytes), 3 (128 bytes).
    pub swizzle: u32,
}
