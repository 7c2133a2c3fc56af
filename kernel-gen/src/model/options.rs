//! What a caller may ask of a choice.

/// How to choose.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Whether a workload without a usable record is an error: for releases, where every kernel is to be measured.
    pub deny_fallback: bool,
    /// The device whose record is preferred where a target has several.
    pub device: Option<String>,
    /// The number of threads whose record is preferred; see [`Query::threads`](crate::records::Query::threads).
    pub threads: Option<u32>,
    /// Only this template, if one is named.
    pub template: Option<String>,
}
