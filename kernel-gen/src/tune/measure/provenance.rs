//! What was measured on.

use crate::records::log::Host;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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

impl Provenance {
    /// The host that this runs on, and the versions of what made and ran the code.
    pub fn host(&self) -> Host {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let release = read("/etc/os-release");
        let os = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let kernel = read("/proc/sys/kernel/osrelease");
        let name = match std::env::consts::OS {
            "linux" => "Linux",
            other => other,
        };
        let mut packages = BTreeMap::from([("kernel-gen".to_string(), self.generator.clone())]);
        let mut add = |name: &str, version: String| {
            if !version.is_empty() {
                packages.insert(name.to_string(), version);
            }
        };
        add("compiler", self.compiler.clone());
        add("cuda_driver", self.driver.map(|(major, minor)| format!("CUDA {major}.{minor}")).unwrap_or_default());
        Host {
            os: os.map_or(name.to_string(), |os| os.trim_matches('"').to_string()),
            kernel: format!("{name} {}", kernel.trim()).trim().to_string(),
            arch: std::env::consts::ARCH.to_string(),
            processors: std::thread::available_parallelism().map_or(0, usize::from) as u32,
            memory_mib: super::data::known_host_bytes().map_or(0, |bytes| (bytes >> 20) as u64),
            packages,
        }
    }
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
