//! Tensors side by side.

use super::dims::{Dims, MAX_RANK, RANKS, axis_of, check_axis, lists_and};
use super::operator::{FLOATS, Kind, OfBytes, OfI32, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Stage, input};
use super::{Op, Role, Workload, WorkloadError, reference};
use crate::ir::{DType, Expr};

/// Two to seven tensors behind each other along one dimension. Elements are those of the inputs exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Concat {
    /// The shape of the first input.
    pub input: Dims,
    /// The dimension along which the inputs follow each other.
    pub axis: i64,
    /// The extents of the other inputs along it.
    pub others: Dims,
}

/// `concat` in specs and keys.
pub(crate) static CONCAT: Kind = Kind {
    name: "concat",
    pattern: "{x}-{x}-a{}",
    sizes: &{
        const LISTS: [Size; 2] =
            [Size::new("input", "input", SizeRole::Dimension), Size::new("others", "others", SizeRole::Dimension)];
        lists_and::<{ 2 * MAX_RANK + 1 }>(&LISTS, &[Size::new("axis", "axis", SizeRole::Choice)])
    },
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| {
        vec![
            SpecKey::required("input", RANKS, "[the first input's shape]"),
            SpecKey::required("axis", &[], "1"),
            SpecKey::required("others", RANKS, "[the extents of the other inputs along the axis]"),
        ]
    },
    read: |_, values| {
        let list = |key| values.get(key).and_then(Dims::new).expect("its length was checked");
        let input = list("input");
        let axis = axis_of(values, &input)?;
        Ok(Op::Concat(Concat { input, axis, others: list("others") }))
    },
    of_sizes: |_, sizes| {
        let (axis, lists) = sizes.split_last()?;
        let [input, others] = Dims::of_sizes(lists)?;
        Some(Op::Concat(Concat { input, axis: *axis, others }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "others", .. } => "others",
        WorkloadError::Sizes { .. } => "axis",
        _ => "input",
    },
};

impl Concat {
    /// The extents of all inputs along the axis.
    fn parts(&self) -> impl Iterator<Item = i64> {
        let first = usize::try_from(self.axis).ok().and_then(|axis| self.input.get(axis).copied());
        [first.unwrap_or(0)].into_iter().chain(self.others.to_vec())
    }

    /// A shape like the inputs' with another extent along the axis.
    pub(super) fn shape(&self, extent: i64) -> Dims {
        let mut shape = self.input.to_vec();
        usize::try_from(self.axis)
            .ok()
            .and_then(|axis| shape.get_mut(axis))
            .into_iter()
            .for_each(|along| *along = extent);
        Dims::new(&shape).expect("as many dimensions as the input")
    }

    fn output_shape(&self) -> Dims {
        self.shape(self.parts().fold(0, i64::saturating_add))
    }
}

impl Operator for Concat {
    fn kind(&self) -> &'static Kind {
        &CONCAT
    }

    fn sizes(&self) -> Vec<i64> {
        [&self.input.sizes()[..], &self.others.sizes(), &[self.axis]].concat()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        check_axis(self.axis, &self.input)
    }

    fn inputs(&self) -> Vec<Operand> {
        const NAMES: [&str; MAX_RANK + 1] = ["x0", "x1", "x2", "x3", "x4", "x5", "x6"];
        let operand =
            |(name, extent): (&&'static str, i64)| Operand::new(name, Role::Input, self.shape(extent).to_vec());
        NAMES.iter().zip(self.parts()).map(operand).collect()
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
            let axis = self.axis as usize;
            let (mut value, mut first) = (Expr::zero_like_load(sums), 0);
            for (number, extent) in self.parts().enumerate() {
                let mut source = index.to_vec();
                source[axis] = index[axis].clone() - first;
                let inside = Expr::Int(first).le(index[axis].clone()).and(index[axis].clone().lt(first + extent));
                value = inside.select(Expr::load(input(number), source), value);
                first += extent;
            }
            value
        };
        vec![self.output_shape().stage(sums, value)]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::side_by_side(self, inputs)
    }
}
