//! Reads a target file.

use super::device::{Cpu, Cuda, CudaFeature, Device, Target};
use crate::diagnostic::{self, Diagnostic, Report, Table};

/// The target that a file describes.
pub(super) fn target(file: &str, text: &str) -> Result<Target, Vec<Diagnostic>> {
    let mut report = Report::new(file, text);
    let document = diagnostic::parse(text, &mut report);
    let mut fields = Fields { table: Table::root(&document, "a target"), report: &mut report };
    let target = read(&mut fields);
    let Fields { table, .. } = fields;
    table.finish(&mut report);
    report.finish(target)
}

/// Every field of a target is required: a missing one is reported and reads as nothing.
struct Fields<'a, 't, 'i> {
    table: Table<'t, 'i>,
    report: &'a mut Report,
}

impl Fields<'_, '_, '_> {
    fn integer(&mut self, key: &'static str) -> Option<i64> {
        self.table.require(self.report, key, &format!("{key} = 1"));
        self.table.integer(self.report, key).map(|f| f.value)
    }

    fn number(&mut self, key: &'static str) -> Option<f64> {
        self.table.require(self.report, key, &format!("{key} = 1.0"));
        self.table.number(self.report, key).map(|f| f.value)
    }

    fn string(&mut self, key: &'static str) -> Option<String> {
        self.table.require(self.report, key, &format!("{key} = \"...\""));
        self.table.string(self.report, key).map(|f| f.value.to_string())
    }

    fn strings(&mut self, key: &'static str) -> Option<Vec<String>> {
        self.table.require(self.report, key, &format!("{key} = []"));
        let found = self.table.strings(self.report, key)?;
        Some(found.value.iter().map(|f| f.value.to_string()).collect())
    }

    fn triple(&mut self, key: &'static str) -> Option<[i64; 3]> {
        self.table.require(self.report, key, &format!("{key} = [1, 1, 1]"));
        self.table.integers(self.report, key, &[3])?.value.try_into().ok()
    }
}

fn read(f: &mut Fields<'_, '_, '_>) -> Option<Target> {
    let (name, description) = (f.string("name"), f.string("description"));
    f.table.require(f.report, "kind", "kind = \"cpu\"");
    let kind = f.table.choice(f.report, "kind", &[("cpu", false), ("cuda", true)])?.value;
    let device = if kind { cuda(f).map(Device::Cuda) } else { cpu(f).map(Device::Cpu) };
    Some(Target { name: name?, description: description?, device: device? })
}

fn cpu(f: &mut Fields<'_, '_, '_>) -> Option<Cpu> {
    f.table.require(f.report, "fma", "fma = true");
    let fma = f.table.boolean(f.report, "fma").map(|b| b.value);
    Some(Cpu {
        arch: f.string("arch")?,
        level: f.integer("level")?,
        features: f.strings("features")?,
        flags: f.strings("flags")?,
        integers_only: f.table.boolean(f.report, "integers_only").is_some_and(|b| b.value),
        vector_bytes: f.integer("vector_bytes")?,
        vector_registers: f.integer("vector_registers")?,
        fma: fma?,
        fma_units: f.integer("fma_units")?,
        fma_latency: f.integer("fma_latency")?,
        l1_bytes: f.integer("l1_bytes")?,
        l2_bytes: f.integer("l2_bytes")?,
        l3_bytes_per_core: f.integer("l3_bytes_per_core")?,
        cache_line_bytes: f.integer("cache_line_bytes")?,
        clock_mhz: f.integer("clock_mhz")?,
        bandwidth_gb_s: f.number("bandwidth_gb_s")?,
    })
}

fn cuda(f: &mut Fields<'_, '_, '_>) -> Option<Cuda> {
    f.table.require(f.report, "features", "features = []");
    let choices: Vec<(&str, CudaFeature)> = CudaFeature::ALL.iter().map(|c| (c.name(), *c)).collect();
    let features = f.table.choices(f.report, "features", &choices)?;
    Some(Cuda {
        features: features.value.into_iter().map(|c| c.value).collect(),
        shared_per_block: f.integer("shared_per_block")?,
        shared_per_block_optin: f.integer("shared_per_block_optin")?,
        shared_per_sm: f.integer("shared_per_sm")?,
        registers_per_sm: f.integer("registers_per_sm")?,
        registers_per_block: f.integer("registers_per_block")?,
        registers_per_thread: f.integer("registers_per_thread")?,
        threads_per_block: f.integer("threads_per_block")?,
        threads_per_sm: f.integer("threads_per_sm")?,
        blocks_per_sm: f.integer("blocks_per_sm")?,
        block_dim: f.triple("block_dim")?,
        grid_dim: f.triple("grid_dim")?,
        cluster_size: f.integer("cluster_size")?,
        cluster_size_nonportable: f.integer("cluster_size_nonportable")?,
        register_allocation_unit: f.integer("register_allocation_unit")?,
        warp_allocation_granularity: f.integer("warp_allocation_granularity")?,
        shared_allocation_unit: f.integer("shared_allocation_unit")?,
        shared_reserved_per_block: f.integer("shared_reserved_per_block")?,
        device: f.string("device")?,
        f32_flops_per_sm_clock: f.integer("f32_flops_per_sm_clock")?,
        tf32_flops_per_sm_clock: f.integer("tf32_flops_per_sm_clock")?,
        f16_flops_per_sm_clock: f.integer("f16_flops_per_sm_clock")?,
        sm_count: f.integer("sm_count")?,
        clock_mhz: f.integer("clock_mhz")?,
        bandwidth_gb_s: f.number("bandwidth_gb_s")?,
        l2_bytes: f.integer("l2_bytes")?,
    })
}
