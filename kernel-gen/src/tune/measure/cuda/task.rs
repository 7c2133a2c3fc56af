//! The data of workloads in the process that holds the GPU.

use super::protocol::Stage;
use super::stop::Stop;
use crate::records::FailureKind;
use crate::tune::measure::data::{Data, host_bytes};
use crate::tune::measure::pipeline::failure;
use crate::workload::Workload;
use kernel_gen_runtime::cuda::CudaError;
use kernel_gen_runtime::cuda::candidate::{Bench, Differ, Guarded};
use std::collections::BTreeMap;
use std::io;

/// Says what begins and how many seconds it may take besides the run limit.
pub(super) type Tell<'a> = dyn FnMut(Stage, f64) -> io::Result<()> + 'a;

/// A workload's data, on the host and on the GPU.
pub(super) struct Task {
    pub(super) data: Data,
    pub(super) inputs: Vec<Guarded>,
    /// What the inputs hold, out of the candidates' sight.
    pub(super) given: Vec<Guarded>,
    pub(super) output: Guarded,
}

/// The data of the workloads that were asked for so far.
pub(super) struct Tasks<'b> {
    pub(super) bench: &'b Bench,
    differ: Differ<'b>,
    all: BTreeMap<(String, u64), Task>,
}

impl<'b> Tasks<'b> {
    /// No data yet.
    pub(super) fn new(bench: &'b Bench) -> Result<Tasks<'b>, CudaError> {
        Ok(Tasks { bench, differ: Differ::new(bench)?, all: BTreeMap::new() })
    }

    /// The data of a workload, and what compares it.
    pub(super) fn get(
        &mut self,
        key: &str,
        seed: u64,
        tell: &mut Tell<'_>,
    ) -> Result<(&mut Task, &mut Differ<'b>), Stop> {
        let id = (key.to_string(), seed);
        if !self.all.contains_key(&id) {
            tell(Stage::Data, 600.0)?;
            let workload = Workload::from_key(key).map_err(|cause| failure(FailureKind::Worker, cause))?;
            // Networks are tuned a few tasks at a time, in turn: what goes is computed again.
            let used: usize = self.all.values().map(|t| t.data.bytes()).sum();
            if used > (self.bench.facts().memory_bytes / 3).min(host_bytes() / 4) {
                self.all.clear();
            }
            let data = Data::new(&workload, seed);
            let (inputs, output) = buffers(self.bench, &data)?;
            let given = inputs.iter().map(|input| self.bench.copy(input)).collect::<Result<_, _>>()?;
            self.all.insert(id.clone(), Task { data, inputs, given, output });
        }
        let task = self.all.get_mut(&id);
        let task = task.ok_or_else(|| failure(FailureKind::Worker, "the data of a task is gone"))?;
        Ok((task, &mut self.differ))
    }
}

/// The buffers of a workload on the GPU.
pub(super) fn buffers(bench: &Bench, data: &Data) -> Result<(Vec<Guarded>, Guarded), CudaError> {
    let inputs = data.inputs.iter().map(|bytes| bench.upload(bytes)).collect::<Result<_, _>>()?;
    Ok((inputs, bench.poisoned(data.output_bytes)?))
}
