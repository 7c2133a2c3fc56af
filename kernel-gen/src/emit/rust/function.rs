//! The typed function of a `[[kernel]]`, its `_dyn` form, and the trait that knows the declared shapes.

use super::items::{Function, Item};
use super::names;
use super::writer::{RT, V, element_type, line, shape_text, varying_shape_type};
use crate::emit::escape::rust_literal;
use crate::ir::Access;
use crate::workload::{Param, Range};

/// The shapes of a workload's parameters.
fn shapes(item: &Item) -> Vec<Vec<i64>> {
    item.params().into_iter().map(|p| p.shape).collect()
}

/// Whether there are arguments whose types both workloads have: their shapes are the same but for the first extent of what varies.
fn share_shapes(a: &Item, b: &Item) -> bool {
    let varies =
        |i: usize| [a, b].iter().any(|item| item.units.as_ref().is_some_and(|units| units.params.contains(&i)));
    let same = |(i, (a, b)): (usize, (&Vec<i64>, &Vec<i64>))| {
        let fixed = usize::from(varies(i));
        a.len() == b.len() && a[fixed..] == b[fixed..]
    };
    shapes(a).iter().zip(&shapes(b)).enumerate().all(same)
}

/// A workload and its shapes for messages and docs: `layer4_conv: x [1, 512, 7, 7], ...`.
fn signature(item: &Item) -> String {
    let shape = |(i, p): (usize, &Param)| {
        let range =
            item.units.as_ref().filter(|units| units.params.contains(&i)).map(|units| (units.least, units.most));
        format!("{} {}", p.name, shape_text(&p.shape, range))
    };
    let params: Vec<String> = item.params().iter().enumerate().map(shape).collect();
    format!("{}: {}", item.name, params.join(", "))
}

/// Writes the function, its `_dyn` form and its table.
pub(super) fn emit(out: &mut String, function: &Function, trait_name: &str, table_name: &str) {
    let Some(first) = function.items.first() else { return };
    let params = first.params();
    let alone = |item: &&Item| function.items.iter().filter(|other| share_shapes(item, other)).count() == 1;
    let (typed, named): (Vec<&Item>, Vec<&Item>) = function.items.iter().partition(alone);
    line(out, 0, "");
    if !typed.is_empty() {
        shapes_trait(out, function, trait_name, &typed, &named);
        typed_function(out, function, trait_name, &params, &typed, &named);
    }
    dyn_function(out, function, &params, &named, table_name);
    table(out, function, table_name);
}

/// The trait that tuples of declared shapes implement; the compiler prints its notes for all others.
fn shapes_trait(out: &mut String, function: &Function, trait_name: &str, typed: &[&Item], named: &[&Item]) {
    let name = &function.name;
    line(out, 0, &format!("/// The shapes that [`{name}()`] is declared for."));
    line(out, 0, "#[diagnostic::on_unimplemented(");
    line(out, 1, &format!("message = \"`{name}` is not declared for these shapes\","));
    line(out, 1, &format!("label = \"no workload of `{name}` has the shapes {{Self}}\","));
    for item in typed {
        line(out, 1, &format!("note = \"declared: {}\",", signature(item)));
    }
    for item in named {
        line(out, 1, &format!("note = \"by name only, `{}::launch_unpacked`: {}\",", item.name, signature(item)));
    }
    line(
        out,
        1,
        "note = \"declare the shapes as a [[kernel.workload]] in the spec, or view the data with declared ones\",",
    );
    line(out, 0, ")]");
    line(out, 0, &format!("pub trait {trait_name} {{"));
    line(out, 1, "/// The workload with these shapes.");
    line(out, 1, &format!("const ENTRY: &'static {RT}::dispatch::Entry;"));
    line(out, 0, "}");
    for item in typed {
        let tuple: Vec<String> = item.params().iter().enumerate().map(|(i, p)| shape_of(item, i, p)).collect();
        let entry = match &item.units {
            Some(units) => format!("{{ {}; &{}::ENTRY }}", check_of_units(&item.name, units), item.name),
            None => format!("&{}::ENTRY", item.name),
        };
        line(out, 0, &format!("impl{} {trait_name} for ({}) {{", generics_of(item), tuple.join(", ")));
        line(out, 1, &format!("const ENTRY: &'static {RT}::dispatch::Entry = {entry};"));
        line(out, 0, "}");
    }
    line(out, 0, "");
}

/// The number of units as a parameter of an item of Rust, if it varies.
pub(super) fn generics_of(item: &Item) -> &'static str {
    if item.units.is_some() { "<const UNITS: usize>" } else { "" }
}

/// The shape type of a parameter, of `UNITS` units if their number varies.
pub(super) fn shape_of(item: &Item, index: usize, param: &Param) -> String {
    let varies = item.units.as_ref().is_some_and(|units| units.params.contains(&index));
    varying_shape_type(&param.shape, varies)
}

/// What refuses other numbers of units when a program is compiled.
pub(super) fn check_of_units(name: &str, Range { least, most, .. }: &Range) -> String {
    format!(
        "assert!({least} <= UNITS && UNITS <= {most}, \"`{name}` is declared for {least} to {most} images or rows\")"
    )
}

/// What docs say of the workloads.
fn workload_docs(out: &mut String, typed: &[&Item], named: &[&Item]) {
    if !typed.is_empty() {
        line(out, 0, "///");
        line(out, 0, "/// Declared shapes:");
        for item in typed {
            line(out, 0, &format!("/// * `{}`", signature(item)));
        }
    }
    if !named.is_empty() {
        line(out, 0, "///");
        line(
            out,
            0,
            "/// These workloads share their shapes with another, so they are called by name, through their module:",
        );
        for item in named {
            line(out, 0, &format!("/// * [`{}::launch_unpacked`]: `{}`", item.name, item.workload.key()));
        }
    }
}

/// The pair `(generic name, parameter)` of each parameter.
fn generics(params: &[Param]) -> Vec<(String, &Param)> {
    params.iter().map(|p| (names::camel(p.name), p)).collect()
}

fn typed_function(
    out: &mut String,
    function: &Function,
    trait_name: &str,
    params: &[Param],
    typed: &[&Item],
    named: &[&Item],
) {
    let name = &function.name;
    let generics = generics(params);
    line(out, 0, &format!("/// The workload of `{name}` that has the shapes of the arguments."));
    workload_docs(out, typed, named);
    let list: Vec<&str> = generics.iter().map(|g| g.0.as_str()).collect();
    line(out, 0, &format!("pub fn {name}<Dev, {}>(", list.join(", ")));
    line(out, 1, "dev: &Dev,");
    for (generic, p) in &generics {
        let reference = if p.access == Access::Read { "&" } else { "&mut " };
        line(out, 1, &format!("{}: {reference}{generic},", p.name));
    }
    line(out, 0, &format!(") -> {RT}::Result<()>"));
    line(out, 0, "where");
    line(out, 1, &format!("Dev: {RT}::Device,"));
    for (generic, p) in &generics {
        let buffer = if p.access == Access::Read { "Input" } else { "Output" };
        line(out, 1, &format!("{generic}: {RT}::{buffer}<Dev, Elem = {}>,", element_type(p.dtype)));
    }
    let tuple: Vec<String> = list.iter().map(|g| format!("<{g} as {RT}::Input<Dev>>::Shape")).collect();
    line(out, 1, &format!("({}): {trait_name},", tuple.join(", ")));
    line(out, 0, "{");
    line(out, 1, &format!("<({}) as {trait_name}>::ENTRY.launch(dev, &[", tuple.join(", ")));
    for p in params {
        line(out, 2, &format!("{},", borrowed_arg(p)));
    }
    line(out, 1, "])");
    line(out, 0, "}");
    line(out, 0, "");
}

/// The argument of a launch from a value of a buffer trait.
pub(super) fn borrowed_arg(p: &Param) -> String {
    let name = p.name;
    match p.access {
        Access::Read => format!("{RT}::Input::arg({name}, dev)"),
        Access::Write | Access::ReadWrite => format!("{RT}::Output::arg_mut({name}, dev)"),
    }
}

fn dyn_function(out: &mut String, function: &Function, params: &[Param], named: &[&Item], table: &str) {
    let name = &function.name;
    line(
        out,
        0,
        &format!(
            "/// The workload of `{name}` that has the shapes of the arguments, which are known at run time only."
        ),
    );
    line(out, 0, "///");
    line(out, 0, "/// # Errors");
    line(out, 0, "/// If no workload has these shapes, the error lists those that exist. An empty batch does nothing.");
    workload_docs(out, &[], named);
    line(out, 0, &format!("pub fn {name}_dyn<'a, Dev: {RT}::Device>("));
    line(out, 1, "dev: &'a Dev,");
    for p in params {
        let view = if p.access == Access::Read { "DynView" } else { "DynViewMut" };
        line(out, 1, &format!("{}: Dev::{view}<'a, {}>,", p.name, element_type(p.dtype)));
    }
    line(out, 0, &format!(") -> {RT}::Result<()> {{"));
    line(out, 1, &format!("{table}.launch_dyn(dev, ["));
    for p in params {
        let kind = if p.access == Access::Read { "read_arg" } else { "write_arg" };
        line(out, 2, &format!("dev.{kind}({})?,", p.name));
    }
    line(out, 1, "])");
    line(out, 0, "}");
    line(out, 0, "");
}

fn table(out: &mut String, function: &Function, table: &str) {
    let entries: Vec<String> = function.items.iter().map(|i| format!("&{}::ENTRY", i.name)).collect();
    line(out, 0, &format!("static {table}: {RT}::dispatch::Function = {RT}::generated::{V}::function("));
    line(out, 1, &format!("{},", rust_literal(&function.name)));
    line(out, 1, &format!("&[{}],", entries.join(", ")));
    line(out, 0, ");");
}
