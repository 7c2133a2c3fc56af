//! Integers that a network computes: tokens, indices, lengths. They are `i32`, whatever the model has, and truth values are numbers.

use super::builder::{Builder, Call};
use crate::ir::DType;
use crate::network::problem::Fault;
use crate::network::program::{Step, ValueId};
use crate::network::tensor::Tensor;
use crate::workload::Quant;

impl Builder {
    /// Whether a value is computed when the network runs, or given, and holds integers. Sums of integers of eight bits are not among
    /// them: they may be too large for arithmetic in `f32`.
    pub(super) fn is_integer(&self, id: ValueId) -> bool {
        let root = self.program.root(id);
        let is_sum = || {
            let of_bytes = |step: &Step| step.workload.op_name() == "identity" && step.workload.epilogue.is_empty();
            let mut steps = self.program.steps.iter();
            steps.any(|step| step.output == root && step.workload.is_quantised() && !of_bytes(step))
        };
        let dtype = self.program.values[root].dtype;
        self.constant(id).is_none() && matches!(dtype, DType::I32 | DType::I64) && !is_sum()
    }

    /// Whether a value holds integers, be it a constant or computed.
    pub(super) fn holds_integers(&self, id: ValueId) -> bool {
        self.constant(id).map_or_else(|| self.is_integer(id), |constant| constant.is_integer())
    }

    /// Lets a step that gives indices in 64 bits give them in 32, which is what others take.
    pub(super) fn narrow(&mut self, id: ValueId) {
        let root = self.program.root(id);
        if self.constant(id).is_some() || self.program.values[root].dtype != DType::I64 {
            return;
        }
        for step in self.program.steps.iter_mut().filter(|step| step.output == root) {
            step.workload.out_dtype = DType::I32;
        }
        for value in 0..self.program.values.len() {
            if self.program.root(value) == root {
                self.program.values[value].dtype = DType::I32;
            }
        }
    }

    /// A value as integers: numbers are cut off towards zero.
    pub(super) fn as_integers(&mut self, id: ValueId) -> Result<ValueId, Fault> {
        if let Some(tensor) = self.constant(id) {
            let integers: Vec<i64> = tensor.to_doubles().iter().map(|v| *v as i64).collect();
            return Ok(if tensor.is_integer() {
                id
            } else {
                self.add_constant(Tensor::integers(&tensor.shape, integers))
            });
        }
        if self.is_integer(id) {
            self.narrow(id);
            return Ok(id);
        }
        let from = self.byte(id).unwrap_or(DType::F32);
        self.converted(id, from, DType::I32)
    }

    /// A value as numbers.
    pub(super) fn as_floats(&mut self, id: ValueId) -> Result<ValueId, Fault> {
        if self.byte(id).is_some() {
            return self.bytes_as_floats(id);
        }
        if !self.is_integer(id) {
            return Ok(self.numbers(id));
        }
        self.narrow(id);
        self.converted(id, DType::I32, DType::F32)
    }

    /// A computed value in another type.
    fn converted(&mut self, id: ValueId, from: DType, to: DType) -> Result<ValueId, Fault> {
        let (shape, extents) = (self.shape(id), self.extents(id));
        let call = Call::new("identity", &[id]).key("input", &extents).integers(from, Quant::default(), []);
        let made = self.compute(call.gives(to))?;
        self.view(made, &shape)
    }

    /// 1 where a value is not 0, else 0.
    pub(super) fn as_truth(&mut self, mut id: ValueId) -> Result<ValueId, Fault> {
        if self.is_truth(id) {
            return Ok(id);
        }
        let (shape, extents) = (self.shape(id), self.extents(id));
        for _ in 0..2 {
            id = self.compute(Call::new("logical_not", &[id]).key("input", &extents))?;
        }
        self.view(id, &shape)
    }
}
