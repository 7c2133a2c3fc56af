//! kernel-gen: an ahead-of-time kernel generator.
//!
//! Data flows from left to right (`ARCHITECTURE.md` says what the modules are and what may import what):
//!
//! ```text
//! spec -> workload -> (records | model) -> config -> schedule -> verify -> lower -> emit -> compile -> wrap
//! ```
//!
//! [`ir`] is the one language of all of them: the naive kernel that defines an operator, every step of a
//! schedule, and the kernel that is emitted are all [`ir::Kernel`]s that print, parse and run in the interpreter.
#![cfg_attr(not(feature = "tune"), forbid(unsafe_code))]
// The tuner has one file that allows it: `tune/measure/cuda/vendor.rs` calls cuDNN and cuBLAS.
#![cfg_attr(feature = "tune", deny(unsafe_code))]

pub mod analysis;
mod cache;
#[cfg(feature = "cli")]
pub mod cli;
pub mod diagnostic;
pub mod emit;
mod files;
pub mod generate;
#[cfg(test)]
mod imports;
mod integer;
#[cfg(feature = "interp")]
pub mod interp;
pub mod ir;
pub mod lower;
pub mod model;
#[cfg(feature = "networks")]
pub mod network;
pub mod records;
pub mod schedule;
pub mod space;
pub mod spec;
pub mod stable;
mod stored;
pub mod target;
pub mod templates;
pub mod toolchain;
#[cfg(feature = "tune")]
pub mod tune;
pub mod workload;
