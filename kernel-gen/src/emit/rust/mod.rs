//! The generated Rust: one file with a typed function for each `[[kernel]]` of a spec, a module for each workload,
//! and the tables that the runtime dispatches on.
//!
//! The file refers to nothing but `kernel_gen_runtime` and the C symbols that it declares. It is included by the
//! runtime's macro into a module of the consumer's crate, so it holds items only and no inner attributes. That macro also
//! brings the runtime's name into the module, so the consumer may call the dependency as it likes.
//!
//! A workload whose shapes no other workload of its function has can be called through the function; the others
//! (same shapes, another stride, say) only by name, through their module.

mod cuda;
mod function;
mod module;
mod names;

pub use names::{is_rust_name, rust_name};

use crate::emit::c::Isa;
use crate::emit::cuda::Launch;
use crate::emit::escape;
use crate::ir::DType;
use crate::workload::Workload;
use std::fmt::Write;

/// Everything that the generated file says.
#[derive(Clone, Debug)]
pub struct Module {
    /// The spec, as the user named it; for comments.
    pub spec: String,
    /// The functions, in the spec's order.
    pub functions: Vec<Function>,
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
    /// The code that there is for it on the CPU.
    pub code: Code,
    /// The code that there is for it on GPUs, best architecture first.
    pub cuda: Vec<CudaVariant>,
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
    /// Extent of each phase's parallel loop.
    pub extents: Vec<i64>,
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

impl CParam {
    /// The Rust type of the pointer.
    fn rust_type(&self) -> String {
        let element = match self.dtype {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 | DType::Bf16 => "u16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::Bool => "u8",
        };
        format!("*{} {element}", if self.written { "mut" } else { "const" })
    }
}

/// The name of the runtime in generated code. The runtime's macro brings it in, and so does each inner module.
pub const RT: &str = "kernel_gen_runtime";

/// The format of generated code: the number of the runtime's module of constructors that it names.
const FORMAT: u32 = 1;

/// The module of the constructors of tables, where [`USE_RT`] stands.
const V: &str = "v1";

/// Brings the runtime's name, and the module of constructors, into a module below the file's own.
pub const USE_RT: &str = "use super::kernel_gen_runtime::{self, generated::v1};";

/// The file of these items: what the runtime's macro includes. A runtime that reads another format says so, and nothing else.
pub fn file(items: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let start = format!("{RT}::generated! {{ format {FORMAT}, by \"kernel-gen {version}\";\n");
    format!("// Do not edit: change the spec or the tuned records, and build again.\n\n{start}\n{items}\n}}\n")
}

/// Writes the items of the file.
pub fn emit(module: &Module) -> String {
    let mut out = String::new();
    let w = &mut out;
    line(
        w,
        0,
        &format!("// Generated by kernel-gen {} from {}.", env!("CARGO_PKG_VERSION"), escape::comment(&module.spec)),
    );
    line(w, 0, "");
    line(w, 0, "/// Where the choice for each workload and instruction set level came from, as the build printed it.");
    line(w, 0, &format!("pub const BUILD_REPORT: &str = {};", escape::rust_literal(&module.report)));
    line(w, 0, "");
    line(w, 0, "/// Where the choice for each workload and instruction set level came from, as a table.");
    line(w, 0, &format!("pub fn report() -> {RT}::Report {{"));
    let tables: Vec<String> = (0..module.functions.len()).map(|i| format!("&{}", names::table(i))).collect();
    line(w, 1, &format!("{RT}::Report::of(&[{}])", tables.join(", ")));
    line(w, 0, "}");
    preload(w, &tables);
    let mut traits = names::Unique::default();
    // Modules of workloads, whose names the spec chose, and traits are in one namespace.
    for item in module.functions.iter().flat_map(|f| &f.items) {
        traits.name(&item.name);
    }
    for (i, function) in module.functions.iter().enumerate() {
        let shapes = traits.name(&format!("{}Shapes", names::camel(&function.name)));
        function::emit(w, function, &shapes, &names::table(i));
    }
    for item in module.functions.iter().flat_map(|f| &f.items) {
        module::emit(w, item, &module.images);
    }
    out
}

/// The function that does what first launches would do.
fn preload(out: &mut String, tables: &[String]) {
    line(out, 0, "");
    line(
        out,
        0,
        "/// Brings every workload's code onto a device, which otherwise happens at the first launch of each. Call it before",
    );
    line(out, 0, "/// timing launches, and before capturing launches in a CUDA graph.");
    line(out, 0, "///");
    line(out, 0, "/// # Errors");
    line(out, 0, "/// If the device runs none of a workload's code.");
    line(out, 0, &format!("pub fn preload<Dev: {RT}::Device>(dev: &Dev) -> {RT}::Result<()> {{"));
    line(out, 1, &format!("{RT}::dispatch::preload(dev, &[{}])", tables.join(", ")));
    line(out, 0, "}");
}

/// Appends a line, indented by so many steps; an empty line has no indentation.
fn line(out: &mut String, depth: usize, text: &str) {
    // Writing to a string cannot fail.
    let _ = if text.is_empty() { writeln!(out) } else { writeln!(out, "{:1$}{text}", "", 4 * depth) };
}

/// The shape type of an array.
fn shape_type(shape: &[i64]) -> String {
    let dims: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("{RT}::D{}<{}>", shape.len(), dims.join(", "))
}

/// The element type in the runtime.
fn element_type(dtype: DType) -> String {
    match dtype {
        DType::F16 => format!("{RT}::F16"),
        DType::Bf16 => format!("{RT}::Bf16"),
        DType::Bool => "u8".to_string(),
        other => other.name().to_string(),
    }
}

#[cfg(test)]
mod tests;
