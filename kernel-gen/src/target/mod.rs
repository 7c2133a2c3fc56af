//! Targets: what code is made for, as data.
//!
//! Each target is a TOML file in `target/data` with the limits that code must keep and the rates that cost models
//! use, their sources beside them. No device is ever asked. The limits hold for every device of the target; rates
//! and cache sizes are those of a typical one, on the low side.

mod built_in;
mod device;
mod read;

pub(crate) use device::FIRST_MMA_SYNC;
pub use device::{Cpu, Cuda, CudaFeature, Device, Target};
