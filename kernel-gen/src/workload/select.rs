//! Elements of two tensors, chosen by a mask.

use super::binary::{broadcast, check_broadcast, repeated};
use super::dims::{Dims, RANKS, lists};
use super::operator::{FLOATS, Kind, OfI32, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Stage};
use super::{Op, Role, Workload, WorkloadError, reference_elements};
use crate::ir::{BinOp, DType, Expr};

/// `y = condition != 0 ? a : b` element by element; NaN is not 0. The three shapes broadcast as those of a
/// [`Binary`](super::Binary) do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Where {
    /// The shape of the mask.
    pub condition: Dims,
    /// The shape of what is taken where the mask is not 0.
    pub a: Dims,
    /// The shape of what is taken where it is.
    pub b: Dims,
}

/// `where` in specs and keys.
pub(crate) static WHERE: Kind = Kind {
    name: "where",
    pattern: "c{x}-a{x}-b{x}",
    sizes: &lists::<18>(&[
        Size::new("condition", "condition", SizeRole::Dimension),
        Size::new("a", "a", SizeRole::Broadcast),
        Size::new("b", "b", SizeRole::Broadcast),
    ]),
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| ["condition", "a", "b"].map(|key| SpecKey::required(key, RANKS, "[the shape]")).to_vec(),
    read: |_, values| {
        let shape = |key| values.get(key).and_then(Dims::new).expect("its length was checked");
        Ok(Op::Where(Where { condition: shape("condition"), a: shape("a"), b: shape("b") }))
    },
    of_sizes: |_, sizes| {
        let [condition, a, b] = Dims::of_sizes(sizes)?;
        Some(Op::Where(Where { condition, a, b }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size, .. } => size,
        _ => "b",
    },
};

impl Where {
    /// The shape of the output of valid operands.
    pub fn output_shape(&self) -> Dims {
        let both = broadcast(&self.a, &self.b);
        Dims::new(&broadcast(&self.condition, &both)).expect("no more dimensions than an operand")
    }
}

impl Operator for Where {
    fn kind(&self) -> &'static Kind {
        &WHERE
    }

    fn sizes(&self) -> Vec<i64> {
        [self.condition, self.a, self.b].iter().flat_map(Dims::sizes).collect()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        check_broadcast(&self.a, &self.b)?;
        check_broadcast(&self.condition, &broadcast(&self.a, &self.b))
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![
            Operand::new("condition", Role::Mask, self.condition.to_vec()),
            Operand::new("a", Role::Input, self.a.to_vec()),
            Operand::new("b", Role::Input, self.b.to_vec()),
        ]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.output_shape().axes())
    }

    fn of_i32(&self) -> OfI32 {
        OfI32::Numbers
    }

    fn terms(&self) -> i64 {
        1
    }

    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let value = |index: &[Expr]| {
            let condition = repeated(0, &self.condition, index);
            let holds = Expr::bin(BinOp::Ne, condition, Expr::Float(0.0, sums.compute()));
            holds.select(repeated(1, &self.a, index), repeated(2, &self.b, index))
        };
        vec![self.output_shape().stage(sums, value)]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_elements::selected(self, inputs[0], inputs[1], inputs[2])
    }
}
