//! The module of one workload: constants, packing, launches, and the table with its C declarations.

use super::{Code, Item, Program, RT, Variant, cuda, element_type, function::borrowed_arg, line, names, shape_type};
use crate::ir::{Access, DType};
use crate::workload::{Param, Role};

/// Writes the module.
pub(super) fn emit(out: &mut String, item: &Item, images: &str) {
    let workload = &item.workload;
    let params = workload.params();
    line(out, 0, "");
    line(out, 0, &format!("/// `{}`", workload.key()));
    line(out, 0, &format!("pub mod {} {{", item.name));
    line(out, 1, "/// What is computed, in one line.");
    line(out, 1, &format!("pub const WORKLOAD: &str = {:?};", workload.key()));
    line(out, 1, "/// Floating-point operations of one launch.");
    line(out, 1, &format!("pub const FLOPS: u64 = {};", workload.flops()));
    line(out, 1, "/// Bytes that one launch must move at least: every argument once.");
    line(out, 1, &format!("pub const BYTES: u64 = {};", workload.bytes()));
    for p in &params {
        line(out, 1, &format!("/// Shape of `{}`.", p.name));
        line(out, 1, &format!("pub type {} = {};", names::camel(p.name), shape_type(&p.shape)));
    }
    line(out, 0, "");
    let weight = params.iter().position(|p| p.role == Role::Weight);
    if let Some(weight) = weight {
        packing(out, &params[weight]);
        launch(out, &params, Some(weight));
    }
    launch(out, &params, None);
    entry(out, item, &params, weight, images);
    line(out, 0, "}");
}

/// `impl Input` of a parameter's type and shape, as a function argument.
fn argument(p: &Param) -> String {
    let (reference, buffer) = if p.access == Access::Read { ("&", "Input") } else { ("&mut ", "Output") };
    let shape = names::camel(p.name);
    format!("{}: {reference}impl {RT}::{buffer}<Dev, Elem = {}, Shape = {shape}>", p.name, element_type(p.dtype))
}

fn packing(out: &mut String, weight: &Param) {
    let name = weight.name;
    line(out, 1, &format!("/// `{name}` in the layout that the kernel of this workload wants."));
    line(out, 1, "#[derive(Debug)]");
    line(out, 1, &format!("pub struct PackedWeight<Dev: {RT}::Device = {RT}::Cpu>(Dev::Packed);"));
    line(out, 0, "");
    line(
        out,
        1,
        &format!(
            "/// Packs `{name}` once, for many launches on devices that run the same code: of the same instruction set"
        ),
    );
    line(out, 1, "/// level, or the same GPU.");
    line(out, 1, &format!("pub fn pack_weight<Dev: {RT}::Device>("));
    line(out, 2, "dev: &Dev,");
    line(out, 2, &format!("{},", argument(weight)));
    line(out, 1, &format!(") -> {RT}::Result<PackedWeight<Dev>> {{"));
    line(out, 2, &format!("ENTRY.pack_weight(dev, {}).map(PackedWeight)", borrowed_arg(weight)));
    line(out, 1, "}");
    line(out, 0, "");
}

/// A launch, with the weight packed or as it is.
fn launch(out: &mut String, params: &[Param], packed: Option<usize>) {
    let name = if packed.is_some() { "launch" } else { "launch_unpacked" };
    let what = if packed.is_some() { "Runs the workload with a packed weight." } else { "Runs the workload." };
    line(out, 1, &format!("/// {what}"));
    line(out, 1, &format!("pub fn {name}<Dev: {RT}::Device>("));
    line(out, 2, "dev: &Dev,");
    for (i, p) in params.iter().enumerate() {
        let argument = if packed == Some(i) { format!("{}: &PackedWeight<Dev>", p.name) } else { argument(p) };
        line(out, 2, &format!("{argument},"));
    }
    line(out, 1, &format!(") -> {RT}::Result<()> {{"));
    line(out, 2, "ENTRY.launch(dev, &[");
    for (i, p) in params.iter().enumerate() {
        let arg = if packed == Some(i) { format!("dev.packed_arg(&{}.0)", p.name) } else { borrowed_arg(p) };
        line(out, 3, &format!("{arg},"));
    }
    line(out, 2, "])");
    line(out, 1, "}");
    line(out, 0, "");
}

fn entry(out: &mut String, item: &Item, params: &[Param], weight: Option<usize>, images: &str) {
    let unresolved = [unresolved_variant(params)];
    let (variants, no_code, stand_in): (&[Variant], &str, Option<&str>) = match &item.code {
        Code::Compiled(variants) => (variants, "", None),
        Code::Absent(reason) => (&[], reason, None),
        Code::Unresolved(symbol) => (&unresolved, "", Some(symbol)),
    };
    line(out, 1, &format!("pub(super) static ENTRY: {RT}::dispatch::Entry = {RT}::dispatch::Entry {{"));
    line(out, 2, &format!("name: {:?},", item.name));
    line(out, 2, "workload: WORKLOAD,");
    line(out, 2, "params: &[");
    for p in params {
        let access = if p.access == Access::Read { "Read" } else { "Write" };
        let shape = format!("<{} as {RT}::Shape>::DIMS", names::camel(p.name));
        line(out, 3, &format!("{RT}::dispatch::Param {{"));
        line(out, 4, &format!("name: {:?},", p.name));
        line(out, 4, &format!("dtype: <{} as {RT}::Element>::DTYPE,", element_type(p.dtype)));
        line(out, 4, &format!("shape: {shape},"));
        line(out, 4, &format!("access: {RT}::dispatch::Access::{access},"));
        line(out, 3, "},");
    }
    line(out, 2, "],");
    line(out, 2, &format!("weight: {weight:?},"));
    line(out, 2, "flops: FLOPS,");
    line(out, 2, "bytes: BYTES,");
    line(out, 2, "variants: &[");
    for (v, variant) in variants.iter().enumerate() {
        line(out, 3, &format!("{RT}::dispatch::Variant {{"));
        line(out, 4, &format!("isa: {RT}::Isa::{},", isa_variant(&variant.isa)));
        program(out, 4, &variant.program, &format!("v{v}"));
        line(out, 4, "packs: &[");
        for (i, (param, pack)) in variant.packs.iter().enumerate() {
            line(out, 5, &format!("{RT}::dispatch::Pack {{"));
            line(out, 6, &format!("param: {param},"));
            line(out, 6, &format!("bytes: {},", pack.bytes));
            program(out, 6, &pack.program, &format!("v{v}_pack{i}"));
            line(out, 5, "},");
        }
        line(out, 4, "],");
        line(out, 4, &format!("template: {:?},", variant.template));
        line(out, 4, &format!("config: {:?},", variant.config));
        line(out, 4, &format!("origin: {:?},", variant.origin));
        line(out, 4, &format!("origin_detail: {:?},", variant.origin_detail));
        line(out, 4, &format!("cost_us: {:?},", variant.cost_us));
        line(out, 4, &format!("symbol: {:?},", variant.program.symbol));
        line(out, 3, "},");
    }
    line(out, 2, "],");
    cuda::table(out, 2, &item.cuda, images);
    line(out, 2, &format!("no_code: {no_code:?},"));
    line(out, 1, "};");
    for (v, variant) in variants.iter().enumerate() {
        functions(out, &variant.program, &format!("v{v}"), stand_in);
        for (i, (_, pack)) in variant.packs.iter().enumerate() {
            functions(out, &pack.program, &format!("v{v}_pack{i}"), stand_in);
        }
    }
}

/// The table entry of code that is not there: it matches every machine of the target, and its one phase calls a
/// symbol that does not exist.
fn unresolved_variant(params: &[Param]) -> Variant {
    let program = Program {
        symbol: "unresolved".into(),
        params: params
            .iter()
            .map(|p| super::CParam { name: p.name.into(), dtype: DType::F32, written: p.access != Access::Read })
            .collect(),
        extents: vec![1],
        workspace_bytes: 0,
        worker_bytes: 0,
    };
    Variant {
        isa: "any".into(),
        program,
        packs: vec![],
        template: "none".into(),
        config: String::new(),
        origin: "none".into(),
        origin_detail: "built without a C compiler".into(),
        cost_us: None,
    }
}

/// The name of the level in the runtime's enum. A level that is not one of its is whatever the machine has, so that
/// the entry is always found.
fn isa_variant(isa: &str) -> &'static str {
    match isa {
        "x86-64" => "X86_64",
        "x86-64-v3" => "X86_64V3",
        "x86-64-v4" => "X86_64V4",
        "aarch64" => "Aarch64",
        _ => "LOWEST",
    }
}

/// The `program:` field of a table entry.
fn program(out: &mut String, depth: usize, program: &Program, prefix: &str) {
    line(out, depth, &format!("program: {RT}::dispatch::Program {{"));
    line(
        out,
        depth + 1,
        "// SAFETY: the generator verified the kernel's accesses against its parameters and workspace, and emitted",
    );
    line(out, depth + 1, "// the C functions and these numbers from it.");
    line(out, depth + 1, "phases: unsafe {");
    let phases: Vec<String> = program
        .extents
        .iter()
        .enumerate()
        .map(|(i, extent)| format!("{RT}::dispatch::Phase::new({prefix}_p{i}, {extent})"))
        .collect();
    line(out, depth + 2, &format!("&[{}]", phases.join(", ")));
    line(out, depth + 1, "},");
    line(out, depth + 1, &format!("workspace_bytes: {},", program.workspace_bytes));
    line(out, depth + 1, &format!("worker_bytes: {},", program.worker_bytes));
    line(out, depth, "},");
}

/// The C declarations of a program, and a function for each that takes its pointers from the argument list.
fn functions(out: &mut String, program: &Program, prefix: &str, stand_in: Option<&str>) {
    line(out, 0, "");
    line(out, 1, "unsafe extern \"C\" {");
    if let Some(symbol) = stand_in {
        line(out, 2, &format!("fn {symbol}();"));
    } else {
        for i in 0..program.extents.len() {
            line(out, 2, &declaration(program, i));
        }
    }
    line(out, 1, "}");
    for i in 0..program.extents.len() {
        line(out, 0, "");
        line(
            out,
            1,
            &format!(
                "unsafe fn {prefix}_p{i}(args: *const *mut u8, ws: *mut u8, worker: i64, begin: i64, end: i64) {{"
            ),
        );
        if let Some(symbol) = stand_in {
            line(out, 2, "let _ = (args, ws, worker, begin, end);");
            line(out, 2, "// SAFETY: never runs: the symbol does not exist, so no program links.");
            line(out, 2, &format!("unsafe {{ {symbol}() }}"));
        } else {
            line(out, 2, "// SAFETY: the caller passes the arguments of the kernel, as `Phase::new` demands.");
            line(out, 2, "unsafe {");
            line(out, 3, &format!("{}_p{i}(", program.symbol));
            for p in 0..program.params.len() {
                line(out, 4, &format!("(*args.add({p})).cast(),"));
            }
            line(out, 4, "ws, worker, begin, end,");
            line(out, 3, ")");
            line(out, 2, "}");
        }
        line(out, 1, "}");
    }
}

/// The Rust declaration of the C function of a phase.
pub(super) fn declaration(program: &Program, phase: usize) -> String {
    let params: Vec<String> =
        program.params.iter().map(|p| format!("{}: {}", c_name(&p.name), p.rust_type())).collect();
    format!("fn {}_p{phase}({}, ws: *mut u8, worker: i64, begin: i64, end: i64);", program.symbol, params.join(", "))
}

/// The name of a C parameter in the Rust declaration, where it only documents.
fn c_name(name: &str) -> String {
    if names::is_rust_name(name) { name.to_string() } else { names::rust_name(name) }
}
