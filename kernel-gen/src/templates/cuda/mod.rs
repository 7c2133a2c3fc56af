//! Templates for CUDA devices.

pub mod wgmma;
