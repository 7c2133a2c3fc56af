//! Where the first of all elements are, in their order.

use super::arg::Extreme;
use super::dims::{Dims, MAX_RANK, RANKS, axis_of, check_axis, lists_and};
use super::operator::{INDICES, Kind, OfI32, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, Combine, Stage, axis, input, result};
use super::{Op, Role, Workload, WorkloadError, reference_elements};
use crate::ir::{BinOp, DType, Expr};

/// The indices of the `k` largest or smallest elements along a dimension, the first in the order first; of equal elements the one at
/// the lower index is. NaN is larger than all numbers.
///
/// The place of an element is the number of those before it, which is counted: `n^2` comparisons for `n` elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopK {
    /// The shape of the input.
    pub input: Dims,
    /// The dimension, counted from 0.
    pub axis: i64,
    /// How many there are.
    pub k: i64,
    /// At which end of the order they are.
    pub extreme: Extreme,
}

/// Indices from here on are not exact in `f32`, in which they are found.
const MOST_ELEMENTS: i64 = 1 << 24;

/// `top_k` in specs and keys.
pub(crate) static TOP_K: Kind = Kind {
    name: "top_k",
    pattern: "{x}-x{}-k{}-{largest|smallest}",
    sizes: &lists_and::<{ MAX_RANK + 3 }>(
        &[Size::new("input", "input", SizeRole::Dimension)],
        &[
            Size::new("axis", "axis", SizeRole::Choice),
            Size::new("k", "k", SizeRole::Taps),
            Size::new("smallest", "smallest", SizeRole::Choice),
        ],
    ),
    layouts: &[],
    flags: &["smallest"],
    between: &[],
    outputs: INDICES,
    keys: |_| {
        vec![
            SpecKey::required("input", RANKS, "[the input's shape]"),
            SpecKey::required("axis", &[], "1"),
            SpecKey::required("k", &[], "5"),
        ]
    },
    read: |shared, values| {
        let input = values.get("input").and_then(Dims::new).expect("its length was checked");
        let axis = axis_of(values, &input)?;
        let extreme = if shared.has("smallest") { Extreme::Smallest } else { Extreme::Largest };
        Ok(Op::TopK(TopK { input, axis, k: values.get("k").expect("it must be there")[0], extreme }))
    },
    of_sizes: |_, sizes| {
        let [lists @ .., axis, k, smallest] = sizes else { return None };
        let [input] = Dims::of_sizes(lists)?;
        let extreme = if *smallest == 1 { Extreme::Smallest } else { Extreme::Largest };
        Some(Op::TopK(TopK { input, axis: *axis, k: *k, extreme }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "k", .. } => "k",
        WorkloadError::Sizes { cause, .. } if cause.starts_with('k') => "k",
        WorkloadError::Sizes { cause, .. } if cause.contains("axis") => "axis",
        _ => "input",
    },
};

impl TopK {
    /// The shape of the output of a valid operator.
    pub fn output_shape(&self) -> Dims {
        let mut shape = self.input.to_vec();
        shape[self.axis as usize] = self.k;
        Dims::new(&shape).expect("as many dimensions as the input")
    }
}

impl Operator for TopK {
    fn kind(&self) -> &'static Kind {
        &TOP_K
    }

    fn sizes(&self) -> Vec<i64> {
        let smallest = i64::from(self.extreme == Extreme::Smallest);
        [&self.input.sizes()[..], &[self.axis, self.k, smallest]].concat()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        check_axis(self.axis, &self.input)?;
        let extent = self.input[self.axis as usize];
        if self.k > extent {
            let cause = format!("k is {} and there are {extent} elements along dimension {}", self.k, self.axis);
            return Err(WorkloadError::Sizes { cause, help: "it is at most as many as there are" });
        }
        if extent > MOST_ELEMENTS {
            let cause = format!("there are {extent} elements along dimension {}", self.axis);
            return Err(WorkloadError::Sizes { cause, help: "indices are exact among at most 2^24 elements" });
        }
        Ok(())
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("x", Role::Input, self.input.to_vec())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        ("y", self.output_shape().axes())
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![("the places of all elements", self.input.to_vec())]
    }

    fn of_i32(&self) -> OfI32 {
        OfI32::Numbers
    }

    /// Places that each output is looked for among.
    fn terms(&self) -> i64 {
        self.input[self.axis as usize]
    }

    /// All comparisons, and the search for each place.
    fn flops(&self) -> Option<i64> {
        let n = self.terms();
        let rows = self.input.iter().fold(1i64, |all, extent| all.saturating_mul(*extent)) / n.max(1);
        Some(rows.saturating_mul(n.saturating_mul(2 * n + self.k)))
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let along = self.axis as usize;
        let rank = self.input.len();
        let f = |value: f64| Expr::Float(value, sums.compute());
        let here = || -> Vec<Expr> { (0..rank).map(|i| axis(i).into()).collect() };
        let at = |place: Expr| {
            let mut index = here();
            index[along] = place;
            index
        };
        let names = |shape: &Dims| -> Vec<(&'static str, i64)> {
            shape.axes().iter().map(|axis| (axis.name, axis.extent)).chain([("k", self.terms())]).collect()
        };
        let (own, other) = (|| Expr::load(input(0), here()), || Expr::load(input(0), at(axis(rank).into())));
        let is_nan = |x: Expr| Expr::bin(BinOp::Ne, x.clone(), x);
        let is_number = |x: Expr| x.clone().eq(x);
        let before = match self.extreme {
            Extreme::Largest => own().lt(other()).or(is_nan(other()).and(is_number(own()))),
            Extreme::Smallest => other().lt(own()).or(is_nan(own()).and(is_number(other()))),
        };
        let same = own().eq(other()).or(is_nan(own()).and(is_nan(other())));
        let earlier = Expr::from(axis(rank)).lt(Expr::from(axis(along)));
        let counts = before.or(same.and(earlier)).select(f(1.0), f(0.0));
        let place = Expr::Cast(sums.compute(), Box::new(axis(along).into()));
        let candidate = Expr::Cast(sums.compute(), Box::new(axis(rank).into()));
        let is_there = Expr::load(result(0), at(axis(rank).into())).eq(place);
        let stage = |name, shape: Dims, value| Stage {
            name,
            dtype: sums,
            shape: shape.to_vec(),
            loops: names(&shape),
            reduce: 1,
            combine: Combine::Sum,
            index: here(),
            value,
        };
        vec![stage("places", self.input, counts), stage("acc", self.output_shape(), is_there.select(candidate, f(0.0)))]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_elements::first_of_all(self, inputs[0])
    }
}
