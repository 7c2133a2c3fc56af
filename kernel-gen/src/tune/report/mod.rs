//! A report of trial logs: one HTML page that needs nothing else, no network and no library.
//!
//! [`Report`] holds what is said, ordered and without a clock: the same logs give the same page. [`Report::to_html`] says
//! it, with drawings as inline SVG that follow the reader's light or dark theme.

mod contents;
mod curve;
mod failures;
mod of_logs;
mod page;
mod roofs;
mod share;
mod svg;
#[cfg(test)]
mod tests;

pub use contents::{Bench, Best, Layer, RecordLine, Report, RunLine, TaskLine, WorkerLine};
pub use of_logs::Names;
