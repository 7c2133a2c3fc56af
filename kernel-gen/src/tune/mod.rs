//! Tuning: finding the fastest config of a task by trying configs on the device.
//!
//! A [`Task`] is a workload on a target with one template. A [`tuner::Tuner`] proposes configs of its space and learns
//! from their outcomes; a [`measure::Measurer`] compiles, checks and times them.
//!
//! A tuner sees neither clocks nor cores: it proposes in batches of its own size and is told the outcomes in the order
//! in which it proposed, so the same seed and the same outcomes give the same proposals on any machine.

pub mod bench;
pub mod fleet;
pub mod landscape;
pub mod measure;
pub mod progress;
pub mod replay;
pub mod report;
mod scheduler;
pub mod session;
mod task;
pub mod tuner;

pub use crate::model::roofline::{Roofline, gflops};
pub use task::{MadeFor, Task};
