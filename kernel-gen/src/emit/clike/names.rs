//! Identifiers for variables and buffers in languages of the C family.

use crate::ir::{BufferId, Kernel, VarId};
use std::collections::BTreeSet;

/// Words that both languages have, and macros that compilers define or headers bring.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "asm", "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "typeof", "union", "unsigned", "void", "volatile", "while",
    "main", "linux", "unix", "i386", "INFINITY", "NAN",
];

/// What a kernel's names must not become in a language.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// Further words of the language, and what the emitted functions are given.
    pub(crate) words: &'static [&'static str],
    /// How names of helper functions begin.
    pub(crate) prefixes: &'static [&'static str],
    /// What names of vector helpers contain.
    pub(crate) parts: &'static [&'static str],
}

impl Reserved {
    fn is_word(&self, n: &str) -> bool {
        WORDS.contains(&n) || self.words.contains(&n)
    }

    /// Whether a name could be that of a function of the prelude.
    fn is_helper(&self, n: &str) -> bool {
        self.prefixes.iter().any(|p| n.starts_with(p)) || self.parts.iter().any(|p| n.contains(p))
    }
}

/// One identifier a variable and buffer, all distinct.
pub(crate) struct Names {
    vars: Vec<String>,
    buffers: Vec<String>,
    taken: BTreeSet<String>,
    reserved: &'static Reserved,
}

impl Names {
    pub(crate) fn of(kernel: &Kernel, reserved: &'static Reserved) -> Names {
        let mut names = Names { vars: vec![], buffers: vec![], taken: BTreeSet::new(), reserved };
        // Buffers first: they stand in the prototypes, so they should keep their names.
        names.buffers = kernel.buffers.iter().map(|b| names.fresh(&b.name)).collect();
        names.vars = kernel.vars.iter().map(|v| names.fresh(&v.name)).collect();
        names
    }

    pub(crate) fn var(&self, v: VarId) -> &str {
        &self.vars[v.0 as usize]
    }

    pub(crate) fn buffer(&self, b: BufferId) -> &str {
        &self.buffers[b.0 as usize]
    }

    /// Says something else for a variable.
    pub(crate) fn rename(&mut self, v: VarId, text: String) {
        self.vars[v.0 as usize] = text;
    }

    /// A further identifier: the one nearest to `hint` that is legal and free.
    pub(crate) fn fresh(&mut self, hint: &str) -> String {
        let reserved = self.reserved;
        let mut base: String =
            hint.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit()) {
            base.insert(0, 'v');
        }
        // Identifiers that start with an underscore belong to the implementation, and helper names contain a type.
        if base.starts_with('_') {
            base.insert(0, 'v');
        }
        let free = |n: &str| !self.taken.contains(n) && !reserved.is_word(n) && !reserved.is_helper(n);
        if reserved.is_word(&base) {
            base.push('_');
        } else if reserved.is_helper(&base) {
            base = format!("v_{}", base.replace("f32x", "f32_x").replace("f64x", "f64_x"));
        }
        let name = if free(&base) {
            base
        } else {
            (1..).map(|i| format!("{base}_{i}")).find(|n| free(n)).expect("an unbounded range has a free name")
        };
        self.taken.insert(name.clone());
        name
    }
}
