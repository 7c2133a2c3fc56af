//! Elements of a tensor, chosen by indices.

use super::dims::{Dims, MAX_RANK, RANKS, axis_of, check_axis, lists_and};
use super::operator::{FLOATS, Kind, OfBytes, OfI32, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Stage, input};
use super::{Op, Role, Workload, WorkloadError, reference_elements};
use crate::ir::{DType, Expr};

/// `y[a.., i.., c..] = x[a.., indices[i..], c..]`: along one dimension the elements that indices name, as ONNX's Gather.
///
/// An index counts modulo the extent: -1 is the last element. One that ONNX refuses, outside of `[-extent, extent)`, goes around
/// the tensor, so that nothing outside of it is ever read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Gather {
    /// The shape of the input.
    pub input: Dims,
    /// The shape of the indices, which are `i32`.
    pub indices: Dims,
    /// The dimension of the input along which they count.
    pub axis: i64,
}

/// `gather` in specs and keys.
pub(crate) static GATHER: Kind = Kind {
    name: "gather",
    pattern: "{x}-i{x}-a{}",
    sizes: &{
        const LISTS: [Size; 2] =
            [Size::new("input", "input", SizeRole::Dimension), Size::new("indices", "indices", SizeRole::Dimension)];
        lists_and::<{ 2 * MAX_RANK + 1 }>(&LISTS, &[Size::new("axis", "axis", SizeRole::Choice)])
    },
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| {
        vec![
            SpecKey::required("input", RANKS, "[the input's shape]"),
            SpecKey::required("indices", RANKS, "[the shape of the indices]"),
            SpecKey::required("axis", &[], "0"),
        ]
    },
    read: |_, values| {
        let list = |key| values.get(key).and_then(Dims::new).expect("its length was checked");
        let input = list("input");
        let axis = axis_of(values, &input)?;
        Ok(Op::Gather(Gather { input, indices: list("indices"), axis }))
    },
    of_sizes: |_, sizes| {
        let (axis, lists) = sizes.split_last()?;
        let [input, indices] = Dims::of_sizes(lists)?;
        Some(Op::Gather(Gather { input, indices, axis: *axis }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "indices", .. } => "indices",
        WorkloadError::Sizes { .. } => "indices",
        _ => "input",
    },
};

impl Gather {
    /// The dimensions of the input before the axis, and those behind it.
    fn around(&self) -> [&[i64]; 2] {
        let axis = usize::try_from(self.axis).unwrap_or(0).min(self.input.len() - 1);
        [&self.input[..axis], &self.input[axis + 1..]]
    }

    /// The extent of the dimension along which indices count.
    pub(super) fn extent(&self) -> i64 {
        self.input[self.around()[0].len()]
    }

    /// The shape of the output of a valid operator.
    pub fn output_shape(&self) -> Dims {
        let [before, behind] = self.around();
        let shape = [before, &self.indices, behind].concat();
        Dims::new(&shape[..shape.len().min(MAX_RANK)]).expect("one dimension or more")
    }
}

impl Operator for Gather {
    fn kind(&self) -> &'static Kind {
        &GATHER
    }

    fn sizes(&self) -> Vec<i64> {
        [&self.input.sizes()[..], &self.indices.sizes(), &[self.axis]].concat()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        check_axis(self.axis, &self.input)?;
        let rank = self.input.len() + self.indices.len() - 1;
        if rank > MAX_RANK {
            let cause = format!("the output has {rank} dimensions");
            let help = "write the indices with fewer dimensions: tensors have at most six";
            return Err(WorkloadError::Sizes { cause, help });
        }
        Ok(())
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![
            Operand::new("x", Role::Input, self.input.to_vec()),
            Operand::new("indices", Role::Index, self.indices.to_vec()).of_type(DType::I32),
        ]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.output_shape().axes())
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Moves
    }

    fn of_i32(&self) -> OfI32 {
        OfI32::Moves
    }

    fn terms(&self) -> i64 {
        1
    }

    /// An element that is moved counts as one operation, so that what is faster has a higher rate here too.
    fn flops_per_term(&self) -> i64 {
        1
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let value = |index: &[Expr]| {
            let (before, rest) = index.split_at(self.around()[0].len());
            let (chosen, behind) = rest.split_at(self.indices.len());
            let chosen = Expr::Cast(DType::I64, Box::new(Expr::load(input(1), chosen.to_vec())));
            let along = [chosen.floor_mod(self.extent())];
            Expr::load(input(0), [before, &along, behind].concat())
        };
        vec![self.output_shape().stage(sums, value)]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_elements::gathered(self, inputs[0], inputs[1])
    }
}
