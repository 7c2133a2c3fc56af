//! C identifiers for variables and buffers.

use crate::ir::{BufferId, Kernel, VarId};
use std::collections::BTreeSet;

/// Words that a kernel's names must not become: C's own, what the emitted functions are given, and helpers.
const RESERVED: &[&str] = &[
    "auto",
    "break",
    "case",
    "char",
    "const",
    "continue",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "extern",
    "float",
    "for",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "register",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "void",
    "volatile",
    "while",
    "asm",
    "typeof",
    "ws",
    "worker",
    "begin",
    "end",
    "floor_div",
    "floor_mod",
    "main",
    "linux",
    "unix",
    "i386",
    "INFINITY",
    "NAN",
    "M_PI",
    "y0",
    "y1",
    "yn",
    "j0",
    "j1",
    "jn",
    "gamma",
    "signgam",
];

/// One identifier a variable and buffer, all distinct.
pub(super) struct Names {
    vars: Vec<String>,
    buffers: Vec<String>,
    taken: BTreeSet<String>,
}

impl Names {
    pub(super) fn of(kernel: &Kernel) -> Names {
        let mut names = Names { vars: vec![], buffers: vec![], taken: BTreeSet::new() };
        // Buffers first: they stand in the prototypes, so they should keep their names.
        names.buffers = kernel.buffers.iter().map(|b| take(&mut names.taken, &b.name)).collect();
        names.vars = kernel.vars.iter().map(|v| take(&mut names.taken, &v.name)).collect();
        names
    }

    pub(super) fn var(&self, v: VarId) -> &str {
        &self.vars[v.0 as usize]
    }

    pub(super) fn buffer(&self, b: BufferId) -> &str {
        &self.buffers[b.0 as usize]
    }

    /// A further identifier.
    pub(super) fn fresh(&mut self, hint: &str) -> String {
        take(&mut self.taken, hint)
    }
}

/// The identifier nearest to `hint` that is legal and free.
fn take(taken: &mut BTreeSet<String>, hint: &str) -> String {
    let mut base: String = hint.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit()) {
        base.insert(0, 'v');
    }
    // Identifiers that start with an underscore belong to the implementation, and helper names contain a type.
    if base.starts_with('_') {
        base.insert(0, 'v');
    }
    let helper = |n: &str| -> bool {
        [
            "load_",
            "store_",
            "splat_",
            "gather_",
            "scatter_",
            "min_",
            "max_",
            "f32_to_",
            "f16_to_",
            "bf16_to_",
            "f32x",
            "f64x",
            "transpose_",
            "swap",
        ]
        .iter()
        .any(|p| n.starts_with(p))
            || n.contains("_f32x")
            || n.contains("_f64x")
    };
    let free = |n: &str| !taken.contains(n) && !RESERVED.contains(&n) && !helper(n);
    if RESERVED.contains(&base.as_str()) {
        base.push('_');
    } else if helper(&base) {
        base = format!("v_{}", base.replace("f32x", "f32_x").replace("f64x", "f64_x"));
    }
    let name = if free(&base) {
        base
    } else {
        (1..).map(|i| format!("{base}_{i}")).find(|n| free(n)).expect("an unbounded range has a free name")
    };
    taken.insert(name.clone());
    name
}
