//! What a workload's candidates are checked on.

use crate::ir::DType;
use crate::records::Timing;
use crate::stable::stable_hash;
use crate::toolchain::values;
use crate::workload::Workload;
use crate::workload::bound::{Accuracy, Reference, reference_with_bounds};
use crate::workload::reference::apply_epilogue;
use crate::workload::sample::{self, Rng};
use std::ops::Range;

/// Memory of this machine, or what machines have at the least where it is not known.
pub(super) fn host_bytes() -> usize {
    const LEAST: usize = 8 << 30;
    known_host_bytes().unwrap_or(LEAST)
}

/// Memory of this machine, where that is known.
pub(super) fn known_host_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    total.and_then(|kb| kb.parse::<usize>().ok()).map(|kb| kb << 10)
}

/// Inputs and the reference output of a workload: the same for the same seed, wherever it is made.
pub(super) struct Data {
    /// The bytes of each parameter but the output.
    pub(super) inputs: Vec<Vec<u8>>,
    /// Bytes of the output.
    pub(super) output_bytes: usize,
    out_dtype: DType,
    reference: Reference,
}

impl Data {
    pub(super) fn new(workload: &Workload, seed: u64) -> Data {
        let params = workload.params();
        let mut rng = Rng::new(seed ^ stable_hash(&workload.key()));
        let values = sample::inputs(workload, &mut rng);
        let views: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        let reference = reference_with_bounds(workload, &views);
        let inputs = values.iter().zip(&params).map(|(v, p)| values::encode(p.dtype, v)).collect();
        let output_bytes = params.last().map_or(0, |p| p.bytes() as usize);
        Data { inputs, output_bytes, out_dtype: workload.out_dtype, reference }
    }

    /// Holds an output against the reference; gives a timing that knows its errors and has no sample yet.
    pub(super) fn check(&self, output: &[u8]) -> Result<Timing, String> {
        if output.len() != self.output_bytes {
            return Err(format!("the output has {} bytes instead of {}", output.len(), self.output_bytes));
        }
        let size = self.out_dtype.bytes();
        let part = |elements: Range<usize>| {
            values::decode(self.out_dtype, &output[elements.start * size..elements.end * size])
        };
        let (max_error, accuracy) = self.reference.check_parts(part).map_err(|mismatch| mismatch.to_string())?;
        // Beside exact values that are all zero nothing is a share.
        let accuracy = Some(accuracy).filter(|a| a.max.is_finite() && a.rms.is_finite());
        Ok(Timing { max_error, accuracy, ..Timing::default() })
    }

    /// How far the sums of the operator, before the epilogue and in the workload's order, are from the exact ones: by the result
    /// of an exact epilogue on them.
    pub(super) fn accuracy_of_sums(&self, workload: &Workload, mut sums: Vec<f64>) -> Accuracy {
        let first = workload.operator_params();
        let params = workload.params();
        // The epilogue does not look at the operands of the sums.
        let inputs = self.inputs.iter().zip(&params).enumerate();
        let decoded = inputs.map(|(i, (bytes, p))| if i < first { vec![] } else { values::decode(p.dtype, bytes) });
        let decoded: Vec<Vec<f64>> = decoded.collect();
        let views: Vec<&[f64]> = decoded.iter().map(Vec::as_slice).collect();
        apply_epilogue(workload, &views, &mut sums);
        self.reference.accuracy(&sums)
    }

    /// How far a result is from the exact one, in the workload's order.
    pub(super) fn accuracy(&self, result: &[f64]) -> Accuracy {
        self.reference.accuracy(result)
    }

    /// Bytes that it takes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.inputs.iter().map(Vec::len).sum::<usize>() + 16 * self.reference.values.len()
    }
}
