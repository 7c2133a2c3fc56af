//! The table of a workload's GPU code.
//!
//! It stands inside the runtime's `cuda_table!`, so a crate whose runtime has no feature `cuda` compiles nothing of it
//! in, the images included.

use super::items::{CudaProgram, CudaVariant};
use super::writer::{RT, V, choice, first, line};
use crate::emit::cuda::{Launch, Param, TensorBase, TensorMap, tensor_maps};
use crate::emit::escape::rust_literal;

/// Writes the table as an argument of the entry's constructor. Images lie in `folder`, below the build script's `OUT_DIR`.
pub(super) fn table(out: &mut String, depth: usize, variants: &[CudaVariant], folder: &str) {
    if variants.is_empty() {
        line(out, depth, &format!("{RT}::cuda_table!(&[]),"));
        return;
    }
    line(out, depth, &format!("{RT}::cuda_table!({{"));
    for (v, variant) in variants.iter().enumerate() {
        for p in 0..=variant.packs.len() {
            line(out, depth + 1, &format!("static SLOT_{v}_{p}: {RT}::cuda::Slot = {RT}::cuda::Slot::new();"));
        }
    }
    line(out, depth + 1, "&[");
    for (v, variant) in variants.iter().enumerate() {
        self::variant(out, depth + 2, v, variant, folder);
    }
    line(out, depth + 1, "]");
    line(out, depth, "}),");
}

fn variant(out: &mut String, depth: usize, number: usize, variant: &CudaVariant, folder: &str) {
    line(out, depth, &format!("{V}::cuda::variant("));
    arch(out, depth + 1, &variant.arch, variant.capability, variant.exact);
    line(out, depth + 1, &format!("{},", variant.most));
    program(out, depth + 1, &variant.program, &format!("SLOT_{number}_0"), folder);
    line(out, depth + 1, "&[");
    for (i, (param, pack)) in variant.packs.iter().enumerate() {
        line(out, depth + 2, &format!("{V}::cuda::pack({param}, {},", pack.bytes));
        program(out, depth + 3, &pack.program, &format!("SLOT_{number}_{}", i + 1), folder);
        line(out, depth + 2, "),");
    }
    line(out, depth + 1, "],");
    line(out, depth + 1, &format!("{},", variant.align));
    choice(out, depth + 1, &variant.choice);
    line(out, depth, "),");
}

/// An architecture, as an argument.
pub(super) fn arch(out: &mut String, depth: usize, name: &str, (major, minor): (u32, u32), exact: bool) {
    let name = rust_literal(name);
    let fields = format!("name: {name}, capability: ({major}, {minor}), exact: {exact}");
    line(out, depth, &format!("{RT}::cuda::Arch {{ {fields} }},"));
}

/// The program of a variant or a pack, as an argument.
fn program(out: &mut String, depth: usize, program: &CudaProgram, slot: &str, folder: &str) {
    line(out, depth, &format!("{V}::cuda::program("));
    let path = format!("/{folder}/{}", program.image);
    line(out, depth + 1, &format!("include_bytes!(concat!(env!(\"OUT_DIR\"), {})),", rust_literal(&path)));
    line(out, depth + 1, &format!("&{slot},"));
    line(out, depth + 1, "&[");
    let maps = tensor_maps(&program.launches);
    for launch in &program.launches {
        self::launch(out, depth + 2, launch, &maps);
    }
    line(out, depth + 1, "],");
    line(out, depth + 1, "&[");
    for map in maps {
        self::map(out, depth + 2, map);
    }
    line(out, depth + 1, "],");
    line(out, depth + 1, &format!("{},", program.workspace_bytes));
    line(out, depth, "),");
}

fn launch(out: &mut String, depth: usize, launch: &Launch, maps: &[&TensorMap]) {
    let arg = |param: &Param| match param {
        Param::Buffer { index, .. } => format!("{RT}::cuda::KernelArg::Param({index})"),
        Param::Workspace { offset, .. } => format!("{RT}::cuda::KernelArg::Workspace({offset})"),
        Param::Units(_) => format!("{RT}::cuda::KernelArg::Units"),
        Param::TensorMap(map) => {
            let at = maps.iter().position(|m| *m == map).expect("the maps are those of the launches");
            format!("{RT}::cuda::KernelArg::Map({at})")
        }
    };
    let args: Vec<String> = launch.params.iter().map(arg).collect();
    launch_table(out, depth, launch, &args);
}

/// The table of a launch; its arguments are text.
pub(super) fn launch_table(out: &mut String, depth: usize, launch: &Launch, args: &[String]) {
    line(out, depth, &format!("{RT}::cuda::Launch {{"));
    line(out, depth + 1, &format!("kernel: {},", rust_literal(&launch.symbol)));
    line(out, depth + 1, &format!("grid: {:?},", launch.grid));
    line(out, depth + 1, &format!("block: {:?},", launch.block));
    line(out, depth + 1, &format!("cluster: {:?},", launch.cluster));
    line(out, depth + 1, &format!("shared_bytes: {},", launch.dynamic_shared_bytes));
    let overlap = launch.overlap.as_ref().map_or("None".into(), |early| format!("Some(&{early:?})"));
    line(out, depth + 1, &format!("overlap: {overlap},"));
    line(out, depth + 1, &format!("early_units: {},", launch.early_units));
    let first = launch.first.map_or("None".into(), |(axis, of)| format!("Some(({axis}, {}))", self::first(of)));
    line(out, depth + 1, &format!("first: {first},"));
    line(out, depth + 1, &format!("args: &[{}],", args.join(", ")));
    line(out, depth, "},");
}

fn map(out: &mut String, depth: usize, map: &TensorMap) {
    let base = match map.base {
        TensorBase::Buffer(index) if map.offset > 0 => format!("Within({index}, {})", map.offset),
        TensorBase::Buffer(index) => format!("Param({index})"),
        TensorBase::Workspace(offset) => format!("Workspace({offset})"),
    };
    let (dims, strides, box_dims, steps) = map.driver_lists();
    line(out, depth, &format!("{RT}::cuda::TensorMapSpec {{"));
    line(out, depth + 1, &format!("base: {RT}::cuda::KernelArg::{base},"));
    line(out, depth + 1, &format!("data_type: {},", map.driver_type()));
    line(out, depth + 1, &format!("rank: {},", map.dims.len()));
    line(out, depth + 1, &format!("dims: {dims:?},"));
    line(out, depth + 1, &format!("rows: {},", map.rows));
    line(out, depth + 1, &format!("strides: {strides:?},"));
    line(out, depth + 1, &format!("box_dims: {box_dims:?},"));
    line(out, depth + 1, &format!("steps: {steps:?},"));
    line(out, depth + 1, &format!("swizzle: {},", map.driver_swizzle()));
    line(out, depth, "},");
}
