//! The module of one workload: constants, packing, launches, and the table with its C declarations.

use super::function::{borrowed_arg, check_of_units, generics_of, shape_of};
use super::items::{CParam, Choice, Code, Item, Program, Variant};
use super::writer::{RT, USE_RT, V, choice, element_type, first, line};
use super::{cuda, names};
use crate::emit::c::Isa;
use crate::emit::escape::rust_literal;
use crate::ir::{Access, DType, First};
use crate::workload::{Param, Range, Role};
use std::collections::BTreeSet;

/// Writes the module. If it `shares` weights, what packs them has a name.
pub(super) fn emit(out: &mut String, item: &Item, images: &str, shares: bool) {
    let workload = &item.workload;
    let params = item.params();
    line(out, 0, "");
    line(out, 0, &format!("/// `{}`", workload.key()));
    line(out, 0, &format!("pub mod {} {{", item.name));
    line(out, 1, USE_RT);
    line(out, 0, "");
    line(out, 1, "/// What is computed, in one line.");
    line(out, 1, &format!("pub const WORKLOAD: &str = {};", rust_literal(&workload.key())));
    line(out, 1, "/// Floating-point operations of one launch.");
    line(out, 1, &format!("pub const FLOPS: u64 = {};", workload.flops()));
    line(out, 1, "/// Bytes that one launch must move at least: every argument once.");
    line(out, 1, &format!("pub const BYTES: u64 = {};", workload.bytes()));
    for (i, p) in params.iter().enumerate() {
        line(out, 1, &format!("/// Shape of `{}`.", p.name));
        let generics = if varies(item, i) { generics_of(item) } else { "" };
        line(out, 1, &format!("pub type {}{generics} = {};", names::camel(p.name), shape_of(item, i, p)));
    }
    line(out, 0, "");
    let weight = params.iter().position(|p| p.role == Role::Weight);
    if let Some(weight) = weight {
        packing(out, item, (weight, &params[weight]));
        launch(out, item, &params, Some(weight));
    }
    launch(out, item, &params, None);
    entry(out, item, &params, weight, (images, shares));
    line(out, 0, "}");
}

/// Whether a parameter has as many units as a launch says.
fn varies(item: &Item, index: usize) -> bool {
    item.units.as_ref().is_some_and(|units| units.params.contains(&index))
}

/// `impl Input` of a parameter's type and shape, as a function argument.
fn argument(item: &Item, index: usize, p: &Param) -> String {
    let (reference, buffer) = if p.access == Access::Read { ("&", "Input") } else { ("&mut ", "Output") };
    let shape = format!("{}{}", names::camel(p.name), if varies(item, index) { "<UNITS>" } else { "" });
    format!("{}: {reference}impl {RT}::{buffer}<Dev, Elem = {}, Shape = {shape}>", p.name, element_type(p.dtype))
}

fn packing(out: &mut String, item: &Item, (index, weight): (usize, &Param)) {
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
    line(out, 2, &format!("{},", argument(item, index, weight)));
    line(out, 1, &format!(") -> {RT}::Result<PackedWeight<Dev>> {{"));
    line(out, 2, &format!("ENTRY.pack_weight(dev, {}).map(PackedWeight)", borrowed_arg(weight)));
    line(out, 1, "}");
    line(out, 0, "");
}

/// A launch, with the weight packed or as it is.
fn launch(out: &mut String, item: &Item, params: &[Param], packed: Option<usize>) {
    let name = if packed.is_some() { "launch" } else { "launch_unpacked" };
    let what = if packed.is_some() { "Runs the workload with a packed weight." } else { "Runs the workload." };
    line(out, 1, &format!("/// {what}"));
    let units = if item.units.is_some() { ", const UNITS: usize" } else { "" };
    line(out, 1, &format!("pub fn {name}<Dev: {RT}::Device{units}>("));
    line(out, 2, "dev: &Dev,");
    for (i, p) in params.iter().enumerate() {
        let argument = if packed == Some(i) { format!("{}: &PackedWeight<Dev>", p.name) } else { argument(item, i, p) };
        line(out, 2, &format!("{argument},"));
    }
    line(out, 1, &format!(") -> {RT}::Result<()> {{"));
    if let Some(units) = &item.units {
        line(out, 2, &format!("const {{ {} }};", check_of_units(&item.name, units)));
    }
    line(out, 2, "ENTRY.launch(dev, &[");
    for (i, p) in params.iter().enumerate() {
        let arg = if packed == Some(i) { format!("dev.packed_arg(&{}.0)", p.name) } else { borrowed_arg(p) };
        line(out, 3, &format!("{arg},"));
    }
    line(out, 2, "])");
    line(out, 1, "}");
    line(out, 0, "");
}

fn entry(out: &mut String, item: &Item, params: &[Param], weight: Option<usize>, (images, shares): (&str, bool)) {
    let unresolved = [unresolved_variant(params, item.units.as_ref().map_or(1, |units| units.most))];
    let (variants, no_code, stand_in): (&[Variant], &str, Option<&str>) = match &item.code {
        Code::Compiled(variants) => (variants, "", None),
        Code::Absent(reason) => (&[], reason, None),
        Code::Unresolved(symbol) => (&unresolved, "", Some(symbol)),
    };
    line(
        out,
        1,
        "// SAFETY: the generator verified that every kernel keeps to these parameters and sizes, and emitted the C",
    );
    line(out, 1, "// functions, the GPU code and these numbers from the verified kernels.");
    line(out, 1, &format!("pub(super) static ENTRY: {RT}::dispatch::Entry = unsafe {{ {V}::entry("));
    line(out, 2, &format!("{V}::About {{"));
    line(
        out,
        3,
        &format!(
            "name: {}, workload: WORKLOAD, flops: FLOPS, bytes: BYTES, no_code: {},",
            rust_literal(&item.name),
            rust_literal(no_code)
        ),
    );
    line(out, 2, "},");
    line(out, 2, "&[");
    for (i, p) in params.iter().enumerate() {
        let access = if p.access == Access::Read { "Read" } else { "Write" };
        let most = item.units.as_ref().filter(|_| varies(item, i)).map_or(String::new(), |u| format!("<{}>", u.most));
        let shape = format!("{}{most}", names::camel(p.name));
        let (name, element) = (rust_literal(p.name), element_type(p.dtype));
        let (dtype, dims) = (format!("<{element} as {RT}::Element>::DTYPE"), format!("<{shape} as {RT}::Shape>::DIMS"));
        let access = format!("{RT}::dispatch::Access::{access}");
        line(out, 3, &format!("{V}::param({name}, {dtype}, {dims}, {access}),"));
    }
    line(out, 2, "],");
    line(out, 2, &format!("{weight:?},"));
    line(out, 2, &item.units.as_ref().map_or("None,".into(), units));
    line(out, 2, "&[");
    for (v, variant) in variants.iter().enumerate() {
        line(out, 3, &format!("{V}::variant("));
        line(out, 4, &format!("{RT}::Isa::{}, {},", isa_variant(variant.isa), variant.most));
        program(out, 4, &variant.program, &format!("v{v}"));
        line(out, 4, "&[");
        for (i, (param, pack)) in variant.packs.iter().enumerate() {
            // One symbol is one function: it is made of what it does.
            let name = shares.then(|| format!("{V}::named({}, ", rust_literal(&pack.program.symbol)));
            line(out, 5, &format!("{}{V}::pack({param}, {},", name.as_deref().unwrap_or_default(), pack.bytes));
            program(out, 6, &pack.program, &format!("v{v}_pack{i}"));
            line(out, 5, if shares { "))," } else { ")," });
        }
        line(out, 4, "],");
        choice(out, 4, &variant.choice);
        line(out, 4, &format!("{},", rust_literal(&variant.program.symbol)));
        line(out, 3, "),");
    }
    line(out, 2, "],");
    cuda::table(out, 2, &item.cuda, images);
    line(out, 1, ") };");
    // Kernels for several numbers of units share what packs their weights.
    let mut declared = BTreeSet::new();
    for (v, variant) in variants.iter().enumerate() {
        functions(out, &variant.program, &format!("v{v}"), stand_in, &mut declared);
        for (i, (_, pack)) in variant.packs.iter().enumerate() {
            functions(out, &pack.program, &format!("v{v}_pack{i}"), stand_in, &mut declared);
        }
    }
}

/// Which parameters have how many units, as an argument.
fn units(Range { least, most, params, .. }: &Range) -> String {
    format!("{V}::units({least}, {most}, &{params:?}),")
}

/// The table entry of code that is not there: it matches every machine of the target, and its one phase calls a
/// symbol that does not exist.
fn unresolved_variant(params: &[Param], most: i64) -> Variant {
    let program = Program {
        symbol: "unresolved".into(),
        params: params
            .iter()
            .map(|p| CParam { name: p.name.into(), dtype: DType::F32, written: p.access != Access::Read })
            .collect(),
        extents: vec![(1, None)],
        takes_units: false,
        workspace_bytes: 0,
        worker_bytes: 0,
    };
    let choice = Choice {
        template: "none".into(),
        config: String::new(),
        origin: "none".into(),
        origin_detail: "built without a C compiler".into(),
        cost_us: None,
    };
    Variant { isa: Isa::Portable, most, program, packs: vec![], choice }
}

/// The name of the level in the runtime's enum. Portable C is compiled for the lowest machine of the architecture.
fn isa_variant(isa: Isa) -> &'static str {
    match isa {
        Isa::Portable => "LOWEST",
        Isa::X86_64 => "X86_64",
        Isa::X86_64V3 => "X86_64V3",
        Isa::X86_64V4 => "X86_64V4",
        Isa::Aarch64 => "Aarch64",
        Isa::Aarch64Dotprod => "Aarch64Dotprod",
        Isa::Aarch64I8mm => "Aarch64I8mm",
        Isa::X86_64V3Vnni => "X86_64V3Vnni",
        Isa::X86_64V4Vnni => "X86_64V4Vnni",
        Isa::X86_64V4Amx => "X86_64V4Amx",
    }
}

/// The program of a variant or a pack, as an argument.
fn program(out: &mut String, depth: usize, program: &Program, prefix: &str) {
    let phases = program.extents.iter().enumerate();
    let some = |of: &Option<First>| of.map_or("None".into(), |of| format!("Some({})", first(of)));
    let phase =
        |(i, (extent, first)): (usize, &(i64, _))| format!("{V}::phase({prefix}_p{i}, {extent}, {})", some(first));
    let phases: Vec<String> = phases.map(phase).collect();
    let sizes = format!("{}, {}", program.workspace_bytes, program.worker_bytes);
    line(out, depth, &format!("{V}::program(&[{}], {sizes}),", phases.join(", ")));
}

/// The C declarations of a program, and a function for each that takes its pointers from the argument list.
fn functions<'p>(
    out: &mut String,
    program: &'p Program,
    prefix: &str,
    stand_in: Option<&str>,
    declared: &mut BTreeSet<&'p str>,
) {
    if declared.insert(&program.symbol) {
        line(out, 0, "");
        line(out, 1, "unsafe extern \"C\" {");
        match stand_in {
            Some(symbol) => line(out, 2, &format!("fn {symbol}();")),
            None => (0..program.extents.len()).for_each(|i| line(out, 2, &declaration(program, i))),
        }
        line(out, 1, "}");
    }
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
            line(out, 2, "// SAFETY: the caller passes the arguments of the kernel, as the table promises.");
            line(out, 2, "unsafe {");
            line(out, 3, &format!("{}_p{i}(", program.symbol));
            for p in 0..program.params.len() {
                line(out, 4, &format!("(*args.add({p})).cast(),"));
            }
            if program.takes_units {
                line(out, 4, &format!("(*args.add({RT}::dispatch::MAX_PARAMS)).addr() as i64,"));
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
    let units = if program.takes_units { ", units: i64" } else { "" };
    format!(
        "fn {}_p{phase}({}{units}, ws: *mut u8, worker: i64, begin: i64, end: i64);",
        program.symbol,
        params.join(", ")
    )
}

/// The name of a C parameter in the Rust declaration, where it only documents.
fn c_name(name: &str) -> String {
    if names::is_rust_name(name) { name.to_string() } else { names::rust_name(name) }
}
