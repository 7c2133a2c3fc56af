//! What numbers are stored as, in memory and in the file of weights. Kernels add in `f32` all the same.

use crate::ir::DType;
use crate::network::program::Program;

/// Stores all numbers as a type.
pub(super) fn store(program: &mut Program, dtype: DType) {
    let stored = |found: DType| if found == DType::F32 { dtype } else { found };
    for step in &mut program.steps {
        step.workload.dtype = stored(step.workload.dtype);
        step.workload.out_dtype = stored(step.workload.out_dtype);
    }
    for value in &mut program.values {
        value.dtype = stored(value.dtype);
    }
}
