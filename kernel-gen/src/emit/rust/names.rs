//! Names in generated Rust.

use std::collections::BTreeSet;

/// Words that cannot name an item, in any edition.
const KEYWORDS: [&str; 52] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Whether a name can be a function or a module as it stands: lower case, digits and underscores, no keyword.
pub fn is_rust_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c == '_';
    name.starts_with(letter)
        && name.chars().all(|c| letter(c) || c.is_ascii_digit())
        && name.chars().any(|c| c != '_')
        && !KEYWORDS.contains(&name)
}

/// A name that can be a function or a module, made from any text: what cannot stand in it becomes `_`.
pub fn rust_name(text: &str) -> String {
    let mut name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') {
        name.insert(0, '_');
    }
    if !is_rust_name(&name) {
        name.push_str("_kernel");
    }
    name
}

/// `conv2d_nchw` as a type: `Conv2dNchw`; `_333`, as exporters number tensors, stays `_333`.
pub(super) fn camel(name: &str) -> String {
    let parts = name.split('_').filter(|p| !p.is_empty());
    let name: String = parts.map(|p| p[..1].to_ascii_uppercase() + &p[1..]).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// The static that holds a function's table. No user's name looks like it.
pub(super) fn table(index: usize) -> String {
    format!("KERNEL_GEN_TABLE_{index}")
}

/// Hands out names, adding a number to one that was given before.
#[derive(Default)]
pub(super) struct Unique {
    taken: BTreeSet<String>,
}

impl Unique {
    /// `wanted`, or `wanted2`, `wanted3`, ...
    pub(super) fn name(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_string();
        let mut number = 2;
        while !self.taken.insert(name.clone()) {
            name = format!("{wanted}{number}");
            number += 1;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_fit_for_rust() {
        assert_eq!(rust_name("conv2d-nchw-f32-n1c512"), "conv2d_nchw_f32_n1c512");
        assert_eq!(rust_name("3x3"), "_3x3");
        assert_eq!(rust_name("match"), "match_kernel");
        assert_eq!(camel("conv2d_nchw"), "Conv2dNchw");
        assert_eq!(camel("_333"), "_333");
        for bad in ["", "3x3", "type", "Upper", "a-b", "_", "a\u{e9}"] {
            assert!(!is_rust_name(bad), "{bad}");
            assert!(is_rust_name(&rust_name(bad)), "{bad} -> {}", rust_name(bad));
        }
    }

    #[test]
    fn a_name_is_given_once() {
        let mut names = Unique::default();
        assert_eq!([names.name("A"), names.name("A"), names.name("A2")], ["A", "A2", "A22"]);
    }
}
