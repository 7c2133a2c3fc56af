//! Where trials are made.

use crate::records::log::{Host, Machine, Settings};
use crate::tune::measure::Provenance;

/// Where trials are made.
pub(super) struct Bench {
    pub(super) device: String,
    pub(super) threads: u32,
    pub(super) machine: Machine,
    /// How it measures, and the host; none of a recording.
    pub(super) settings: Option<Settings>,
    pub(super) host: Option<Host>,
}

impl Bench {
    /// A device that is there.
    pub(super) fn of(provenance: &Provenance) -> Bench {
        let version = |v: Option<(u32, u32)>| v.map(|(major, minor)| format!("{major}.{minor}")).unwrap_or_default();
        let machine = match provenance.capability {
            None => Machine::Cpu { isa: provenance.target.clone(), compiler: provenance.compiler.clone() },
            Some(_) => Machine::Cuda {
                capability: version(provenance.capability),
                sms: provenance.units,
                driver: version(provenance.driver),
                toolkit: provenance.compiler.clone(),
                sm_mhz: provenance.clock_mhz.unwrap_or_default(),
                memory_mhz: 0,
                uuid: provenance.uuid.clone().unwrap_or_default(),
            },
        };
        let (device, host) = (provenance.device.clone(), Some(provenance.host()));
        Bench { device, threads: provenance.threads, machine, settings: None, host }
    }
}
