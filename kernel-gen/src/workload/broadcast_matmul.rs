//! Batches of matrix products whose batches differ in shape.

use super::binary::broadcast;
use super::dims::{Dims, MAX_RANK, lists};
use super::operator::{FLOATS, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, AxisRole, Combine, Stage, axis, input};
use super::{Op, Role, Workload, WorkloadError, reference};
use crate::ir::{DType, Expr};

/// `c[.., i, j] = sum_k a[.., i, k] * b[.., k, j]`, matrices being the last two dimensions of each tensor, and the dimensions before
/// them repeated as [`Binary`](super::Binary) has it. A batch of as many of both is a [`Matmul`](super::Matmul), which is faster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BroadcastMatmul {
    /// The shape of the first operand, of two dimensions or more.
    pub a: Dims,
    /// The shape of the second.
    pub b: Dims,
}

const RANKS: &[usize] = &[2, 3, 4, 5, 6];

/// `broadcast_matmul` in specs and keys.
pub(crate) static BROADCAST_MATMUL: Kind = Kind {
    name: "broadcast_matmul",
    pattern: "a{x}-b{x}",
    sizes: &lists::<{ 2 * MAX_RANK }>(&[
        Size::new("a", "a", SizeRole::Dimension),
        Size::new("b", "b", SizeRole::Factor),
    ]),
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys: |_| vec![SpecKey::required("a", RANKS, "[.., m, k]"), SpecKey::required("b", RANKS, "[.., k, n]")],
    read: |_, values| {
        let shape = |key| values.get(key).and_then(Dims::new).expect("its length was checked");
        Ok(Op::BroadcastMatmul(BroadcastMatmul { a: shape("a"), b: shape("b") }))
    },
    of_sizes: |_, sizes| {
        let [a, b] = Dims::of_sizes(sizes)?;
        Some(Op::BroadcastMatmul(BroadcastMatmul { a, b }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "a", .. } => "a",
        _ => "b",
    },
};

impl BroadcastMatmul {
    /// Rows of `a`, the length of sums, and columns of `b`.
    pub(crate) fn matrices(&self) -> [i64; 3] {
        [self.a[self.a.len() - 2], self.a[self.a.len() - 1], self.b[self.b.len() - 1]]
    }

    /// The dimensions of an operand before its matrices.
    pub(crate) fn batch(shape: &Dims) -> &[i64] {
        &shape[..shape.len() - 2]
    }

    /// The shape of the output of valid operands.
    pub(crate) fn output_shape(&self) -> Vec<i64> {
        let [m, _, n] = self.matrices();
        let batch = broadcast(Self::batch(&self.a), Self::batch(&self.b));
        batch.into_iter().chain([m, n]).collect()
    }
}

impl Operator for BroadcastMatmul {
    fn kind(&self) -> &'static Kind {
        &BROADCAST_MATMUL
    }

    fn sizes(&self) -> Vec<i64> {
        [self.a.sizes(), self.b.sizes()].concat()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        let help = "matrices are the last two dimensions, [m, k] and [k, n]; those before are equal, or one of them 1";
        let refuse =
            || Err(WorkloadError::Sizes { cause: format!("{:?} times {:?} is no product", self.a, self.b), help });
        if self.a.len() < 2 || self.b.len() < 2 || self.b[self.b.len() - 2] != self.matrices()[1] {
            return refuse();
        }
        let mut both = Self::batch(&self.a).iter().rev().zip(Self::batch(&self.b).iter().rev());
        if both.any(|(a, b)| a != b && *a != 1 && *b != 1) { refuse() } else { Ok(()) }
    }

    fn inputs(&self) -> Vec<Operand> {
        [("a", self.a), ("b", self.b)].map(|(name, shape)| Operand::new(name, Role::Input, shape.to_vec())).to_vec()
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        const NAMES: [&str; MAX_RANK - 2] = ["b0", "b1", "b2", "b3"];
        let shape = self.output_shape();
        let (batch, [m, n]) = shape.split_last_chunk().expect("two dimensions or more");
        let rows = if batch.is_empty() { AxisRole::Batch } else { AxisRole::Space };
        let batch = batch.iter().zip(NAMES).map(|(extent, name)| Axis::new(name, *extent, AxisRole::Batch));
        let matrix = [Axis::new("i", *m, rows), Axis::new("j", *n, AxisRole::Channel)];
        ("c", batch.chain(matrix).collect())
    }

    fn terms(&self) -> i64 {
        self.matrices()[1]
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let axes = self.output().1;
        let batch = axes.len() - 2;
        let load = |number: usize, shape: &Dims, matrix: [Expr; 2]| {
            let own = Self::batch(shape).iter().enumerate().map(|(i, extent)| match extent {
                1 => Expr::Int(0),
                _ => axis(batch - Self::batch(shape).len() + i).into(),
            });
            Expr::load(input(number), own.chain(matrix).collect())
        };
        let [i, j, k] = [batch, batch + 1, batch + 2].map(|at| Expr::from(axis(at)));
        vec![Stage {
            name: "acc",
            dtype: sums,
            shape: self.output_shape(),
            loops: axes.iter().map(|axis| (axis.name, axis.extent)).chain([("k", self.terms())]).collect(),
            reduce: 1,
            combine: Combine::Sum,
            index: (0..axes.len()).map(|i| axis(i).into()).collect(),
            value: load(0, &self.a, [i, k.clone()]) * load(1, &self.b, [k, j]),
        }]
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        reference::multiply_batches(self, inputs[0], inputs[1])
    }
}
