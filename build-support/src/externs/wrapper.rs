//! Writes the module of an `[[extern]]`.

use super::signature::{Function, Type};

/// Element types that views can have.
pub(super) const ELEMENTS: [&str; 5] = ["f32", "f64", "i32", "i64", "u8"];

/// The last parameters of a function that runs one part of a parallel launch.
const PART: [&str; 3] = ["worker", "begin", "end"];

use kernel_gen::emit::rust::{RT, USE_RT};

/// The module with the bindings and a launch for each function that can have one.
pub(super) fn module(name: &str, bindings: &str, functions: &[Function]) -> String {
    let mut out =
        format!("\n/// C code of the crate's own, from `[[extern]]` in the spec.\npub mod {name} {{\n    {USE_RT}\n");
    out += "    /// Everything that the header declares.\n";
    out += "    #[allow(non_upper_case_globals, non_camel_case_types, non_snake_case, missing_docs)]\n";
    out += &format!("    pub mod raw {{\n        {bindings}\n    }}\n");
    for function in functions {
        out += &launch(function).unwrap_or_default();
    }
    out + "}\n"
}

/// The launch of a function, if each of its pointers is an array that can be viewed.
fn launch(function: &Function) -> Option<String> {
    let name = &function.name;
    let count = function.params.len().saturating_sub(PART.len());
    let is_part = |(param, ty): &(String, Type), part: &str| param == part && *ty == Type::Value("i64".into());
    let parallel = function.params.len() >= PART.len()
        && function.returns.is_none()
        && function.params[count..].iter().zip(PART).all(|(p, part)| is_part(p, part));
    let own = if parallel { &function.params[..count] } else { &function.params[..] };
    let (mut arguments, mut prologue, mut values) = (vec![], String::new(), vec![]);
    for (i, (param, ty)) in own.iter().enumerate() {
        // Names of C may be words of Rust; a raw identifier is not worth it where a number does.
        let param = if ["dev", "extent"].contains(&param.as_str()) { format!("{param}_{i}") } else { param.clone() };
        match ty {
            Type::Pointer => return None,
            Type::Value(path) => {
                // A type of the header's own lies in `raw`; paths and primitive types are known everywhere.
                let known =
                    path.starts_with("::") || path.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
                arguments.push(format!("{param}: {}{path}", if known { "" } else { "raw::" }));
                values.push(param);
            }
            Type::Array { element, extents, written } => {
                if !ELEMENTS.contains(&element.as_str()) || !(1..=5).contains(&extents.len()) {
                    return None;
                }
                let extents: Vec<String> = extents.iter().map(u64::to_string).collect();
                let shape = format!("{RT}::D{}<{}>", extents.len(), extents.join(", "));
                let (reference, view) = if *written { ("&mut ", "AsViewMut") } else { ("&", "AsView") };
                arguments.push(format!("{param}: {reference}impl {RT}::{view}<Elem = {element}, Shape = {shape}>"));
                let pointer = match written {
                    true => format!("{RT}::AsViewMut::view_mut({param}).as_mut_slice().as_mut_ptr()"),
                    false => format!("{RT}::AsView::view({param}).as_slice().as_ptr().cast_mut()"),
                };
                prologue += &format!("        let {param} = {RT}::dispatch::Pointer({pointer});\n");
                values.push(format!("{param}.get().cast()"));
            }
        }
    }
    let arguments = arguments.iter().map(|a| format!(", {a}")).collect::<String>();
    let values = values.join(", ");
    let doc = format!("\n    /// `{name}`, with arguments of the shapes that its header declares.\n");
    Some(match parallel {
        true => format!(
            "{doc}    ///\n    /// Runs on all workers of the device, each with a part of `0..extent`.\n    ///\n    /// # Safety\n    \
             /// The function must keep to its arrays for every part of `0..extent`, and calls for different parts must \
             not race.\n    pub unsafe fn {name}(dev: &{RT}::Cpu, extent: usize{arguments}) -> {RT}::Result<()> {{\n\
             {prologue}        dev.split(extent, &|worker, range| {{\n            \
             // SAFETY: the caller's word, and the header's for the arrays.\n            \
             unsafe {{ raw::{name}({values}{} worker as i64, range.start as i64, range.end as i64) }};\n        \
             }});\n        Ok(())\n    }}\n",
            if values.is_empty() { "" } else { "," }
        ),
        false => {
            let returned = match &function.returns {
                None => "()".to_string(),
                Some(Type::Value(path)) => path.clone(),
                Some(_) => return None,
            };
            format!(
                "{doc}    pub fn {name}(_dev: &{RT}::Cpu{arguments}) -> {RT}::Result<{returned}> {{\n{prologue}        \
                 // SAFETY: the header declares these arrays, and the crate's own code keeps to its header.\n        \
                 Ok(unsafe {{ raw::{name}({values}) }})\n    }}\n"
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(extents: &[u64], written: bool) -> Type {
        Type::Array { element: "f32".into(), extents: extents.to_vec(), written }
    }

    #[test]
    fn arrays_become_views_and_values_stay() {
        let params = vec![
            ("x".into(), array(&[3, 8], false)),
            ("y".into(), array(&[24], true)),
            ("n".into(), Type::Value("i32".into())),
            ("c".into(), Type::Value("Config".into())),
        ];
        let text = launch(&Function { name: "blur".into(), params, returns: None, mangled: false }).unwrap();
        assert!(text.contains("pub fn blur(_dev: &kernel_gen_runtime::Cpu, x: &impl kernel_gen_runtime::AsView<"));
        assert!(text.contains("Shape = kernel_gen_runtime::D2<3, 8>>, y: &mut impl"), "{text}");
        assert!(
            text.contains("n: i32, c: raw::Config)")
                && text.contains("raw::blur(x.get().cast(), y.get().cast(), n, c)")
        );
    }

    #[test]
    fn parts_become_a_parallel_launch_and_bare_pointers_none() {
        let value = |name: &str| (name.to_string(), Type::Value("i64".into()));
        let params = vec![("y".into(), array(&[24], true)), value("worker"), value("begin"), value("end")];
        let text = launch(&Function { name: "fill".into(), params, returns: None, mangled: false }).unwrap();
        assert!(
            text.contains("pub unsafe fn fill(dev: &kernel_gen_runtime::Cpu, extent: usize, y: &mut impl"),
            "{text}"
        );
        let bare = vec![("y".into(), Type::Pointer)];
        assert_eq!(launch(&Function { name: "raw_only".into(), params: bare, returns: None, mangled: false }), None);
    }
}
