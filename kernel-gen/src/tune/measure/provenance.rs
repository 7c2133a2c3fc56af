//! What was measured on.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The device and the tools of a measurement.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// The device's name, as it calls itself.
    pub device: String,
    /// The target that was measured for.
    pub target: String,
    /// Threads that kernels ran on; 1 on a GPU.
    pub threads: u32,
    /// The compiler and its version.
    pub compiler: String,
    /// Multiprocessors of a GPU, processors of a CPU.
    pub units: u32,
    /// Compute capability of a GPU: major, minor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<(u32, u32)>,
    /// The CUDA version that the driver supports: major, minor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<(u32, u32)>,
    /// The highest clock of the multiprocessors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<u32>,
    /// The GPU's own number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Version of the generator.
    pub generator: String,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} units, {} by {}", self.device, self.units, self.target, self.compiler)?;
        if let Some((major, minor)) = self.driver {
            write!(f, ", driver for CUDA {major}.{minor}")?;
        }
        if self.threads > 1 {
            write!(f, ", {} threads", self.threads)?;
        }
        Ok(())
    }
}
