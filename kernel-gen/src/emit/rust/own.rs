//! The module of CUDA code of the user's own.

use super::cuda::{arch, launch_table};
use super::items::Choice;
use super::writer::{RT, USE_RT, V, choice, line};
use crate::emit::cuda::{Arch, Launch};
use crate::emit::escape::{comment, rust_literal};

/// What `[[extern]]` makes of CUDA code.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnModule {
    /// The module's name.
    pub name: String,
    /// The source, as the spec has it; for documentation.
    pub source: String,
    /// Rust for the types and constants of the header.
    pub raw: String,
    /// The kernels.
    pub kernels: Vec<OwnKernel>,
    /// The compiled code, best architecture first: the architecture and its image's file.
    pub images: Vec<(Arch, String)>,
    /// The folder of these files, below the build script's `OUT_DIR`.
    pub folder: String,
}

/// A kernel and its launch.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnKernel {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Vec<OwnParam>,
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

/// A parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnParam {
    /// Its name; a word of Rust that may be one.
    pub name: String,
    /// What it takes.
    pub kind: OwnParamKind,
}

/// What a parameter takes.
#[derive(Clone, PartialEq, Debug)]
pub enum OwnParamKind {
    /// A dense array of constant extents.
    Array {
        /// The element type in Rust.
        element: String,
        /// Its extents, outermost first.
        extents: Vec<u64>,
        /// Whether it is written.
        written: bool,
    },
    /// A number by value: its type in Rust.
    Scalar(String),
}

/// Writes the module.
pub fn own_module(module: &OwnModule) -> String {
    let mut out = String::new();
    let w = &mut out;
    line(w, 0, "");
    line(
        w,
        0,
        &format!("/// CUDA code of the crate's own, from `[[extern]]` in the spec: `{}`.", comment(&module.source)),
    );
    line(w, 0, &format!("pub mod {} {{", module.name));
    line(w, 1, USE_RT);
    line(w, 0, "");
    line(w, 1, "/// The types and constants that the header declares.");
    line(w, 1, "#[allow(non_upper_case_globals, non_camel_case_types, non_snake_case, missing_docs)]");
    line(w, 1, &format!("pub mod raw {{ {} }}", module.raw));
    for (number, kernel) in module.kernels.iter().enumerate() {
        function(w, kernel, number);
        entry(w, module, kernel, number);
    }
    preload(w, module.kernels.len());
    line(w, 0, "}");
    out
}

fn extents_text(extents: &[u64]) -> String {
    extents.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

fn function(out: &mut String, kernel: &OwnKernel, number: usize) {
    let OwnKernel { name, params, grid, block, .. } = kernel;
    line(out, 0, "");
    line(
        out,
        1,
        &format!("/// Launches `{name}`, a grid of {grid:?} blocks of {block:?} threads, with arguments as its"),
    );
    line(out, 1, "/// header declares them.");
    line(out, 1, "///");
    line(out, 1, "/// # Errors");
    line(out, 1, "/// If the device is no GPU, or there is no code for it.");
    line(out, 1, &format!("pub fn {name}<Dev: {RT}::Device>("));
    line(out, 2, "dev: &Dev,");
    for OwnParam { name, kind } in params {
        let ty = match kind {
            OwnParamKind::Scalar(ty) => ty.clone(),
            OwnParamKind::Array { element, extents, written } => {
                let (reference, buffer) = if *written { ("&mut ", "Output") } else { ("&", "Input") };
                let shape = format!("{RT}::D{}<{}>", extents.len(), extents_text(extents));
                format!("{reference}impl {RT}::{buffer}<Dev, Elem = {element}, Shape = {shape}>")
            }
        };
        line(out, 2, &format!("{name}: {ty},"));
    }
    line(out, 1, &format!(") -> {RT}::Result<()> {{"));
    let (mut arrays, mut scalars) = (vec![], vec![]);
    for OwnParam { name, kind } in params {
        match kind {
            OwnParamKind::Scalar(_) => scalars.push(format!("{RT}::dispatch::Scalar::bits({name})")),
            OwnParamKind::Array { written: true, .. } => arrays.push(format!("{RT}::Output::arg_mut({name}, dev)")),
            OwnParamKind::Array { .. } => arrays.push(format!("{RT}::Input::arg({name}, dev)")),
        }
    }
    let (arrays, scalars) = (arrays.join(", "), scalars.join(", "));
    line(out, 2, &format!("KERNEL_GEN_ENTRY_{number}.launch_with(dev, &[{arrays}], &[{scalars}])"));
    line(out, 1, "}");
}

fn entry(out: &mut String, module: &OwnModule, kernel: &OwnKernel, number: usize) {
    let name = rust_literal(&format!("{}::{}", module.name, kernel.name));
    let no_code = "it is CUDA, so it runs on GPUs only, and there where the build made code for them";
    line(out, 0, "");
    line(
        out,
        1,
        "// SAFETY: the header, which the source includes, declares these parameters, and the crate's own code keeps to it;",
    );
    line(out, 1, "// the launch is the one of the spec.");
    line(out, 1, &format!("static KERNEL_GEN_ENTRY_{number}: {RT}::dispatch::Entry = unsafe {{ {V}::entry("));
    let about = format!("name: {name}, workload: {name}, flops: 0, bytes: 0, no_code: {}", rust_literal(no_code));
    line(out, 2, &format!("{V}::About {{ {about} }},"));
    line(out, 2, "&[");
    let mut args = vec![];
    let (mut arrays, mut scalars) = (0, 0);
    for OwnParam { name, kind } in &kernel.params {
        match kind {
            OwnParamKind::Array { element, extents, written } => {
                let access = if *written { "Write" } else { "Read" };
                let (name, extents) = (rust_literal(name), extents_text(extents));
                let dtype = format!("<{element} as {RT}::Element>::DTYPE");
                line(out, 3, &format!("{V}::param({name}, {dtype}, &[{extents}], {RT}::dispatch::Access::{access}),"));
                args.push(format!("{RT}::cuda::KernelArg::Param({arrays})"));
                arrays += 1;
            }
            OwnParamKind::Scalar(_) => {
                args.push(format!("{RT}::cuda::KernelArg::Scalar({scalars})"));
                scalars += 1;
            }
        }
    }
    line(out, 2, "],");
    line(out, 2, "None,");
    line(out, 2, "&[],");
    variants(out, module, kernel, &args);
    line(out, 1, ") };");
    let table = format!("static KERNEL_GEN_TABLE_{number}: {RT}::dispatch::Function");
    line(out, 1, &format!("{table} = {V}::function({name}, &[&KERNEL_GEN_ENTRY_{number}]);"));
}

/// Buffers are aligned as the widest vector of CUDA is.
const ALIGN: u32 = 16;

fn variants(out: &mut String, module: &OwnModule, kernel: &OwnKernel, args: &[String]) {
    line(out, 2, &format!("{RT}::cuda_table!({{"));
    for v in 0..module.images.len() {
        line(out, 3, &format!("static SLOT_{v}: {RT}::cuda::Slot = {RT}::cuda::Slot::new();"));
    }
    line(out, 3, "&[");
    for (v, (target, image)) in module.images.iter().enumerate() {
        line(out, 4, &format!("{V}::cuda::variant("));
        let capability = (target.capability / 10, target.capability % 10);
        arch(out, 5, &target.to_string(), capability, target.specific);
        line(out, 5, &format!("{V}::cuda::program("));
        let path = format!("/{}/{image}", module.folder);
        line(out, 6, &format!("include_bytes!(concat!(env!(\"OUT_DIR\"), {})),", rust_literal(&path)));
        line(out, 6, &format!("&SLOT_{v},"));
        line(out, 6, "&[");
        let launch = Launch {
            symbol: kernel.name.clone(),
            grid: kernel.grid,
            block: kernel.block,
            cluster: [1; 3],
            dynamic_shared_bytes: kernel.shared_bytes,
            overlap: None,
            early_units: 1,
            first: None,
            params: vec![],
        };
        launch_table(out, 7, &launch, args);
        line(out, 6, "],");
        line(out, 6, "&[],");
        line(out, 6, "0,");
        line(out, 5, "),");
        line(out, 5, "&[],");
        line(out, 5, &format!("{ALIGN},"));
        choice(out, 5, &by_hand(module));
        line(out, 4, "),");
    }
    line(out, 3, "]");
    line(out, 2, "}),");
}

fn by_hand(module: &OwnModule) -> Choice {
    Choice {
        template: "none".into(),
        config: String::new(),
        origin: "extern".into(),
        origin_detail: format!("[[extern]] {}: {}", module.name, module.source),
        cost_us: None,
    }
}

fn preload(out: &mut String, kernels: usize) {
    line(out, 0, "");
    line(
        out,
        1,
        "/// Brings every kernel's code onto a device, which otherwise happens at the first launch of each. Call it before",
    );
    line(out, 1, "/// timing launches, and before capturing launches in a CUDA graph.");
    line(out, 1, "///");
    line(out, 1, "/// # Errors");
    line(out, 1, "/// If the device is no GPU, or there is no code for it.");
    line(out, 1, &format!("pub fn preload<Dev: {RT}::Device>(dev: &Dev) -> {RT}::Result<()> {{"));
    let tables: Vec<String> = (0..kernels).map(|k| format!("&KERNEL_GEN_TABLE_{k}")).collect();
    line(out, 2, &format!("{RT}::dispatch::preload(dev, &[{}])", tables.join(", ")));
    line(out, 1, "}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_become_buffers_and_numbers_go_by_value() {
        let array = |written| OwnParamKind::Array { element: "f32".into(), extents: vec![4, 64], written };
        let param = |name: &str, kind| OwnParam { name: name.into(), kind };
        let kernel = OwnKernel {
            name: "scale".into(),
            params: vec![
                param("factor", OwnParamKind::Scalar("f32".into())),
                param("x", array(false)),
                param("y", array(true)),
                param("n", OwnParamKind::Scalar("::std::os::raw::c_int".into())),
            ],
            grid: [4, 1, 1],
            block: [32, 2, 1],
            shared_bytes: 1024,
        };
        let module = OwnModule {
            name: "mine".into(),
            source: "src/mine.cu".into(),
            raw: "pub const N : u32 = 4 ;".into(),
            kernels: vec![kernel],
            images: vec![
                (Arch { capability: 90, specific: true }, "mine.sm_90a.kgi".into()),
                (Arch { capability: 80, specific: false }, "mine.sm_80.kgi".into()),
            ],
            folder: "kernel-gen-kernels".into(),
        };
        let text = own_module(&module);
        for part in [
            "pub fn scale<Dev: kernel_gen_runtime::Device>(\n        dev: &Dev,\n        factor: f32,\n        x: &impl \
             kernel_gen_runtime::Input<Dev, Elem = f32, Shape = kernel_gen_runtime::D2<4, 64>>,\n        y: &mut impl",
            "n: ::std::os::raw::c_int,",
            "KERNEL_GEN_ENTRY_0.launch_with(dev, &[kernel_gen_runtime::Input::arg(x, dev), \
             kernel_gen_runtime::Output::arg_mut(y, dev)], &[kernel_gen_runtime::dispatch::Scalar::bits(factor), \
             kernel_gen_runtime::dispatch::Scalar::bits(n)])",
            "args: &[kernel_gen_runtime::cuda::KernelArg::Scalar(0), kernel_gen_runtime::cuda::KernelArg::Param(0), \
             kernel_gen_runtime::cuda::KernelArg::Param(1), kernel_gen_runtime::cuda::KernelArg::Scalar(1)],",
            "grid: [4, 1, 1],",
            "block: [32, 2, 1],",
            "shared_bytes: 1024,",
            "Arch { name: \"sm_90a\", capability: (9, 0), exact: true }",
            "\"/kernel-gen-kernels/mine.sm_80.kgi\"",
            "v2::param(\"y\", <f32 as kernel_gen_runtime::Element>::DTYPE, &[4, 64], kernel_gen_runtime::dispatch::Access::Write)",
            "preload(dev, &[&KERNEL_GEN_TABLE_0])",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
