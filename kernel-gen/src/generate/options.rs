//! What to generate, besides spec, records and templates.

use super::memo::Memo;
use crate::model;
use crate::spec::{Fallback, Spec};

/// What to generate, besides spec, records and templates.
#[derive(Clone, Debug)]
pub struct Options {
    /// The architecture to generate for, as Rust calls it.
    pub arch: String,
    /// What the C symbols start with. Two crates in one program must have different ones.
    pub prefix: String,
    /// How to choose.
    pub choose: model::Options,
    /// Whether there will be code for the CPU behind the wrappers.
    pub code: CodePolicy,
    /// Whether CUDA is emitted for the CUDA architectures of the spec.
    pub cuda: bool,
    /// The folder of compiled CUDA, below the `OUT_DIR` of the build script whose crate includes the wrappers.
    pub images: String,
    /// How many threads generate; the result does not depend on it.
    pub jobs: usize,
    /// Results of earlier runs; the result does not depend on it either.
    pub memo: Option<Memo>,
}

/// Whether there will be code behind the wrappers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodePolicy {
    /// Yes: C is emitted, to be compiled.
    Compile,
    /// No, and launches return an error with this reason.
    Absent(String),
    /// No, and a program that contains a launch does not link: it misses a symbol of this name.
    Unresolved(String),
}

/// How the spec and the options want templates to be chosen.
pub(super) fn choose_options(spec: &Spec, options: &Options) -> model::Options {
    model::Options {
        deny_fallback: options.choose.deny_fallback || spec.fallback == Fallback::Deny,
        threads: spec.threads.and_then(|t| u32::try_from(t).ok()).or(options.choose.threads),
        ..options.choose.clone()
    }
}
