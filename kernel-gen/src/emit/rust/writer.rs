//! Lines of generated code, and the words of the runtime that they name.

use super::items::Choice;
use crate::emit::escape::rust_literal;
use crate::ir::{DType, First};
use std::fmt::Write;

/// The name of the runtime in generated code. The runtime's macro brings it in, and so does each inner module.
pub const RT: &str = "kernel_gen_runtime";

/// The module of the constructors of tables, where [`USE_RT`] stands.
pub(super) const V: &str = "v2";

/// Brings the runtime's name, and the module of constructors, into a module below the file's own.
pub const USE_RT: &str = "use super::kernel_gen_runtime::{self, generated::v2};";

/// Appends a line, indented by so many steps; an empty line has no indentation.
pub(super) fn line(out: &mut String, depth: usize, text: &str) {
    // Writing to a string cannot fail.
    let _ = if text.is_empty() { writeln!(out) } else { writeln!(out, "{:1$}{text}", "", 4 * depth) };
}

/// The shape type of an array.
pub(super) fn shape_type(shape: &[i64]) -> String {
    varying_shape_type(shape, false)
}

/// The same, of `UNITS` images or rows if their number varies.
pub(super) fn varying_shape_type(shape: &[i64], varies: bool) -> String {
    let units = varies.then_some("UNITS".to_string());
    let dims: Vec<String> =
        units.into_iter().chain(shape.iter().skip(usize::from(varies)).map(i64::to_string)).collect();
    format!("{RT}::D{}<{}>", shape.len(), dims.join(", "))
}

/// A shape for messages and docs: `[1, 512, 7, 7]`, or `[1..8, 512, 7, 7]` where the first extent is one of a range.
pub(super) fn shape_text(shape: &[i64], range: Option<(i64, i64)>) -> String {
    let first = range.map(|(least, most)| format!("{least}..{most}"));
    let fixed = shape.iter().skip(usize::from(first.is_some())).map(i64::to_string);
    format!("[{}]", first.into_iter().chain(fixed).collect::<Vec<String>>().join(", "))
}

/// The element type in the runtime.
pub(super) fn element_type(dtype: DType) -> String {
    match dtype {
        DType::F16 => format!("{RT}::F16"),
        DType::Bf16 => format!("{RT}::Bf16"),
        DType::E4m3 => format!("{RT}::E4m3"),
        DType::E5m2 => format!("{RT}::E5m2"),
        DType::Bool => "u8".to_string(),
        other => other.name().to_string(),
    }
}

/// Which kernel was chosen, as an argument.
pub(super) fn choice(out: &mut String, depth: usize, choice: &Choice) {
    let Choice { template, config, origin, origin_detail, cost_us } = choice;
    line(out, depth, &format!("{V}::Choice {{"));
    line(out, depth + 1, &format!("template: {},", rust_literal(template)));
    line(out, depth + 1, &format!("config: {},", rust_literal(config)));
    line(out, depth + 1, &format!("origin: {},", rust_literal(origin)));
    line(out, depth + 1, &format!("origin_detail: {},", rust_literal(origin_detail)));
    line(out, depth + 1, &format!("cost_us: {cost_us:?},"));
    line(out, depth, "},");
}

/// How many iterations of a loop run for a number of units.
pub(super) fn first(First { per, of, times, by }: First) -> String {
    debug_assert_eq!(by, 1, "rounds are loops inside of a kernel, which the runtime does not count");
    format!("{RT}::generated::{V}::First {{ per: {per}, of: {of}, times: {times} }}")
}
