//! The parameters of a workload's kernel as buffers.

use super::{Param, Workload};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType};

/// The buffers of a workload's parameters, found by the names that [`Workload::params`] gives them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Operands(Vec<(&'static str, BufferId)>);

impl Operands {
    /// Declares the parameters in their order, each in the shape that the workload gives it.
    pub(crate) fn declare(b: &mut KernelBuilder, workload: &Workload) -> Operands {
        Operands::shaped(b, workload, |p| p.shape.clone())
    }

    /// Declares the parameters in their order, each in the shape that `shape` gives it: packed ones differ from the workload's.
    pub(crate) fn shaped(b: &mut KernelBuilder, workload: &Workload, shape: impl Fn(&Param) -> Vec<i64>) -> Operands {
        Operands::typed(b, workload, |p| (p.dtype, shape(p)))
    }

    /// As [`shaped`](Operands::shaped), with the type, too.
    pub(crate) fn typed(
        b: &mut KernelBuilder,
        workload: &Workload,
        as_packed: impl Fn(&Param) -> (DType, Vec<i64>),
    ) -> Operands {
        let declared = workload.params().into_iter().map(|p| {
            let (dtype, shape) = as_packed(&p);
            (p.name, b.param(p.name, dtype, &shape, p.access))
        });
        Operands(declared.collect())
    }

    /// The parameter of that name, which must be one of the workload's.
    pub(crate) fn get(&self, name: &str) -> BufferId {
        let found = self.0.iter().find(|p| p.0 == name);
        found.unwrap_or_else(|| panic!("{name} is none of the workload's parameters")).1
    }

    /// The parameter at a place of the workload's order, which must be one of them.
    pub(crate) fn at(&self, place: usize) -> BufferId {
        self.0[place].1
    }

    /// The output, which is the last one.
    pub(crate) fn output(&self) -> BufferId {
        self.0[self.0.len() - 1].1
    }
}
