//! Tuning: finding the fastest config of a task by trying configs on the device.
//!
//! A [`Task`] is a workload on a target with one template. A [`tuner::Tuner`] proposes configs of its space and learns
//! from their outcomes; a [`measure::Measurer`] compiles, checks and times them.
//!
//! A tuner sees neither clocks nor cores: it proposes in batches of its own size and is told the outcomes in the order
//! in which it proposed, so the same seed and the same outcomes give the same proposals on any machine.

pub mod landscape;
pub mod measure;
mod task;
pub mod tuner;

pub use task::Task;
