//! What the generated file is made of.

use super::network_items::NetworkModule;
use crate::emit::c::Isa;
use crate::emit::cuda::Launch;
use crate::ir::{DType, First};
use crate::stored::stored;
use crate::workload::{Param, Range, Slices, Workload};

/// Everything that the generated file says.
#[derive(Clone, Debug)]
pub struct Module {
    /// The spec, as the user named it; for comments.
    pub spec: String,
    /// The functions, in the spec's order.
    pub functions: Vec<Function>,
    /// The networks, whose workloads are among those of the functions.
    pub networks: Vec<NetworkModule>,
    /// Where each choice came from, one line a workload and level; becomes `BUILD_REPORT`.
    pub report: String,
    /// The folder of GPU images, below the build script's `OUT_DIR`.
    pub images: String,
}

/// One `[[kernel]]`: a function and its workloads, which all have the same parameters but for the shapes.
#[derive(Clone, Debug)]
pub struct Function {
    /// The function's name.
    pub name: String,
    /// Its workloads, in the spec's order.
    pub items: Vec<Item>,
}

/// One workload.
#[derive(Clone, Debug)]
pub struct Item {
    /// The workload's module.
    pub name: String,
    /// What is computed.
    pub workload: Workload,
    /// Which of its tensors are slices of larger ones, which the caller has.
    pub slices: Slices,
    /// Present if a launch says how many units there are: the workload is that of the most.
    pub units: Option<Range>,
    /// The code that there is for it on the CPU.
    pub code: Code,
    /// The code that there is for it on GPUs, best architecture first.
    pub cuda: Vec<CudaVariant>,
}

impl Item {
    /// The parameters as the caller has them.
    pub fn params(&self) -> Vec<Param> {
        self.slices.params(&self.workload)
    }
}

/// What a launch of a workload can run.
#[derive(Clone, Debug)]
pub enum Code {
    /// Compiled C, best level first.
    Compiled(Vec<Variant>),
    /// Nothing: a launch returns an error with this reason.
    Absent(String),
    /// Nothing yet: a launch calls a symbol of this name, which does not exist. The crate compiles, so it can be
    /// checked; linking it into a program fails with the name in the message.
    Unresolved(String),
}

/// The code of one instruction set level.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The level.
    pub isa: Isa,
    /// The most units that the kernel is for; 1 where their number does not vary.
    pub most: i64,
    /// The kernel.
    pub program: Program,
    /// Parameters that the kernel takes packed: position in the workload's parameters, and what packs them.
    pub packs: Vec<(usize, Pack)>,
    /// Which kernel it is, and why.
    pub choice: Choice,
}

/// Which kernel was chosen, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Name and version of the template.
    pub template: String,
    /// The config.
    pub config: String,
    /// Where the config came from, in one word.
    pub origin: String,
    /// The same in a sentence.
    pub origin_detail: String,
    /// Measured or expected time.
    pub cost_us: Option<f64>,
}

/// How a parameter is packed.
#[derive(Clone, Debug)]
pub struct Pack {
    /// Size of the packed form.
    pub bytes: i64,
    /// What packs: two parameters, original and packed.
    pub program: Program,
}

/// C functions `<symbol>_p0`, `<symbol>_p1`, ... and the memory they need.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The symbol without the phase.
    pub symbol: String,
    /// The pointers that each function takes first.
    pub params: Vec<CParam>,
    /// Extent of each phase's parallel loop, and how much of that is run if it depends on the number of units.
    pub extents: Vec<(i64, Option<First>)>,
    /// Whether the functions are told the number of units.
    pub takes_units: bool,
    /// Workspace that all workers share.
    pub workspace_bytes: i64,
    /// Workspace of each worker.
    pub worker_bytes: i64,
}

/// The GPU code of one architecture.
#[derive(Clone, PartialEq, Debug)]
pub struct CudaVariant {
    /// The architecture's name.
    pub arch: String,
    /// Its compute capability: major, minor.
    pub capability: (u32, u32),
    /// Whether its code runs on this capability only.
    pub exact: bool,
    /// The most units that the kernels are for; 1 where their number does not vary.
    pub most: i64,
    /// The kernels.
    pub program: CudaProgram,
    /// Parameters that the kernel takes packed: position in the workload's parameters, and what packs them.
    pub packs: Vec<(usize, CudaPack)>,
    /// What the address of every buffer must be a multiple of.
    pub align: u32,
    /// Which kernel it is, and why.
    pub choice: Choice,
}

/// How a parameter is packed on a GPU.
#[derive(Clone, PartialEq, Debug)]
pub struct CudaPack {
    /// Size of the packed form.
    pub bytes: i64,
    /// What packs: two parameters, original and packed.
    pub program: CudaProgram,
}

/// An image of compiled code and the launches that run it.
#[derive(Clone, PartialEq, Debug)]
pub struct CudaProgram {
    /// The file that holds the image.
    pub image: String,
    /// Run in this order.
    pub launches: Vec<Launch>,
    /// Workspace that the launches share.
    pub workspace_bytes: i64,
}

/// A pointer parameter of a C function.
#[derive(Clone, PartialEq, Debug)]
pub struct CParam {
    /// Its name.
    pub name: String,
    /// What it points to.
    pub dtype: DType,
    /// Whether the function writes through it.
    pub written: bool,
}

stored! {
    Variant { isa, most, program, packs, choice }
    Choice { template, config, origin, origin_detail, cost_us }
    Pack { bytes, program }
    Program { symbol, params, extents, takes_units, workspace_bytes, worker_bytes }
    CParam { name, dtype, written }
    CudaVariant { arch, capability, exact, most, program, packs, align, choice }
    CudaPack { bytes, program }
    CudaProgram { image, launches, workspace_bytes }
}

impl CParam {
    /// The Rust type of the pointer.
    pub(super) fn rust_type(&self) -> String {
        let element = match self.dtype {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 | DType::Bf16 => "u16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I8 => "i8",
            DType::U8 | DType::E4m3 | DType::E5m2 => "u8",
            DType::I8x4 | DType::U8x4 | DType::I16x2 => "u32",
            DType::Bool => "u8",
        };
        format!("*{} {element}", if self.written { "mut" } else { "const" })
    }
}
