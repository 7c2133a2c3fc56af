//! What a workload's candidates are checked on.

use crate::records::Timing;
use crate::stable::stable_hash;
use crate::toolchain::values;
use crate::workload::Workload;
use crate::workload::bound::{Accuracy, Mismatch, Reference};
use crate::workload::reference::apply_epilogue;
use crate::workload::sample::{self, Rng};
use crate::workload::special::Reach;
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
    workload: Workload,
    reference: Reference,
    /// Those of methods whose outputs depend on more than their own operands, as far as they were asked for.
    wider: Vec<(Reach, Reference)>,
}

impl Data {
    pub(super) fn new(workload: &Workload, seed: u64) -> Data {
        let params = workload.params();
        let mut rng = Rng::new(seed ^ stable_hash(&workload.key()));
        let values = sample::inputs(workload, &mut rng);
        let views: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        let reference = Reach::Own.reference(workload, &views);
        let inputs = values.iter().zip(&params).map(|(v, p)| values::encode(p.dtype, v)).collect();
        let output_bytes = params.last().map_or(0, |p| p.bytes() as usize);
        Data { inputs, output_bytes, workload: workload.clone(), reference, wider: vec![] }
    }

    /// Holds an output of a method of this reach against the reference; gives a timing that knows its errors and has no sample yet.
    pub(super) fn check(&mut self, output: &[u8], reach: Reach) -> Result<Timing, String> {
        if output.len() != self.output_bytes {
            return Err(format!("the output has {} bytes instead of {}", output.len(), self.output_bytes));
        }
        // No reach has narrower bounds, and those of one that is not an output's own take as long as all else: few need them.
        let (max_error, accuracy) = match self.reference.check_parts(self.parts(output)) {
            Err(_) if reach != Reach::Own => self.check_wider(output, reach),
            checked => checked,
        }
        .map_err(|mismatch| mismatch.to_string())?;
        // Beside exact values that are all zero nothing is a share.
        let accuracy = Some(accuracy).filter(|a| a.max.is_finite() && a.rms.is_finite());
        Ok(Timing { max_error, accuracy, ..Timing::default() })
    }

    /// Holds an output against the bounds of a reach.
    fn check_wider(&mut self, output: &[u8], reach: Reach) -> Result<(f64, Accuracy), Mismatch> {
        let at = self.wider.iter().position(|(known, _)| *known == reach).unwrap_or_else(|| {
            let params = self.workload.params();
            let inputs = self.inputs.iter().zip(&params).map(|(bytes, p)| values::decode(p.dtype, bytes));
            let inputs: Vec<Vec<f64>> = inputs.collect();
            let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
            self.wider.push((reach, reach.reference(&self.workload, &views)));
            self.wider.len() - 1
        });
        self.wider[at].1.check_parts(self.parts(output))
    }

    /// The elements of an output, range by range.
    fn parts<'a>(&self, output: &'a [u8]) -> impl Fn(Range<usize>) -> Vec<f64> + Sync + use<'a> {
        let dtype = self.workload.out_dtype;
        let size = dtype.bytes();
        move |elements| values::decode(dtype, &output[elements.start * size..elements.end * size])
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
        self.inputs.iter().map(Vec::len).sum::<usize>() + 16 * (1 + self.wider.len()) * self.reference.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Conv2d;

    #[test]
    fn an_output_is_held_to_the_bounds_of_its_methods_reach() {
        let workload = Workload::f32(Conv2d::nchw(1, 1, 8, 8, 1, 3, 1, 1));
        let mut data = Data::new(&workload, 1);
        let encoded = |values: &[f64]| values::encode(workload.out_dtype, values);
        let (exact, bounds) = (data.reference.values.clone(), data.reference.bounds.clone());
        for reach in [Reach::Own, Reach::Tile([4, 4])] {
            assert!(data.check(&encoded(&exact), reach).is_ok_and(|timing| timing.max_error < 1.0));
        }
        assert!(data.wider.is_empty(), "nothing was outside of the bounds of an output's own operands");
        // The last pixel's window has four pixels, its tile sixteen.
        let off_by =
            |by: f64| encoded(&exact.iter().map(|v| v + if *v == exact[63] { by } else { 0.0 }).collect::<Vec<_>>());
        let spread = off_by(2.0 * bounds[63]);
        let bytes = data.bytes();
        assert!(data.check(&spread, Reach::Own).is_err());
        for _ in 0..2 {
            assert!(data.check(&spread, Reach::Tile([4, 4])).is_ok_and(|timing| timing.max_error < 1.0));
            assert_eq!((data.wider.len(), data.bytes()), (1, bytes + 16 * 64));
        }
        assert!(data.check(&off_by(1e-3), Reach::Tile([4, 4])).is_err());
    }
}
