//! Products of matrices whose blocks have scales.

use super::matmul::{Matmul, transposed};
use super::operator::{
    FLOATS, Fault, Kind, OfBytes, Operand, Operator, Shared, Size, SizeRole, SpecKey, Values, check_sizes,
};
use super::products::Sums;
use super::reference::multiply;
use super::stage::{Axis, Stage, axis, input};
use super::{Op, Role, Workload, WorkloadError};
use crate::integer::ceil_div;
use crate::ir::{DType, Expr};

/// `c[i, j] = sum_k (a[i, k] * a_scale[i, k / s]) * (b[j, k] * b_scale[j / s, k / s])`: numbers of few bits, each run of `s` of a row of
/// `a` and each block of `s x s` of `b` with a scale of its own, as networks of `e4m3` have them (DeepSeek-AI, arXiv:2412.19437, section
/// 3.3.2, where `s` is 128).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScaledMatmul {
    /// Rows of `a` and `c`.
    pub m: i64,
    /// Rows of `b`, columns of `c`.
    pub n: i64,
    /// Columns of `a` and `b`: the length of the reduction.
    pub k: i64,
    /// Elements that share a scale along a dimension.
    pub block: i64,
}

/// `scaled_matmul` in specs and keys.
pub(crate) static SCALED_MATMUL: Kind = Kind {
    name: "scaled_matmul",
    pattern: "m{}n{}k{}-s{}",
    sizes: &[
        Size::new("m", "m", SizeRole::Images),
        Size::new("n", "n", SizeRole::Channels),
        Size::new("k", "k", SizeRole::Channels),
        Size::new("block", "block", SizeRole::Dilation),
    ],
    layouts: &[],
    flags: &[],
    between: &[],
    outputs: FLOATS,
    keys,
    read,
    of_sizes: |_, sizes| {
        let [m, n, k, block] = *sizes else { return None };
        Some(Op::ScaledMatmul(ScaledMatmul { m, n, k, block }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "n", .. } => "b",
        WorkloadError::NotPositive { size: "block", .. } => "block",
        _ => "a",
    },
};

/// What `block` is where nobody says.
const BLOCK: i64 = 128;

fn keys(_: &Shared) -> Vec<SpecKey> {
    vec![
        SpecKey::required("a", &[2], "[m, k]"),
        SpecKey::required("b", &[2], "[n, k]"),
        SpecKey::optional("block", &[]),
    ]
}

fn read(_: &Shared, values: &Values) -> Result<Op, Fault> {
    let [m, n, k] = transposed(values, "the shapes are a = [m, k] and b = [n, k], as stored")?;
    let block = values.get("block").map_or(BLOCK, |value| value[0]);
    Ok(Op::ScaledMatmul(ScaledMatmul { m, n, k, block }))
}

impl ScaledMatmul {
    /// The product without scales.
    pub fn product(&self) -> Matmul {
        Matmul { trans_b: true, ..Matmul::new(self.m, self.n, self.k) }
    }

    /// The shapes of `a_scale` and `b_scale`.
    pub fn scales(&self) -> [[i64; 2]; 2] {
        let blocks = |n| ceil_div(n, self.block.max(1));
        [[self.m, blocks(self.k)], [blocks(self.n), blocks(self.k)]]
    }
}

impl Operator for ScaledMatmul {
    fn kind(&self) -> &'static Kind {
        &SCALED_MATMUL
    }

    fn sizes(&self) -> Vec<i64> {
        vec![self.m, self.n, self.k, self.block]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        let [a, b] = self.product().inputs().try_into().expect("a product has two operands");
        let [of_a, of_b] = self.scales().map(|shape| shape.to_vec());
        let scale = |name, shape| Operand::new(name, Role::Input, shape).of_type(DType::F32);
        vec![a, b, scale("a_scale", of_a), scale("b_scale", of_b)]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        self.product().output()
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Floats
    }

    fn terms(&self) -> i64 {
        self.k
    }

    /// Two roundings more than a product: of both scales' product, and of the product with that.
    fn roundings(&self) -> i64 {
        self.k + 2
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        let [i, j, k] = [0, 1, 2].map(|at| Expr::from(axis(at)));
        let block = |e: &Expr| e.clone().floor_div(self.block);
        let left = Expr::load(input(2), vec![i, block(&k)]);
        let right = Expr::load(input(3), vec![block(&j), block(&k)]);
        let plain = self.product().stages(dtype, sums);
        let scaled = |stage: Stage| Stage { value: stage.value * (left.clone() * right.clone()), ..stage };
        plain.into_iter().map(scaled).collect()
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        let (k, block) = (self.k as usize, self.block as usize);
        let scaled = |values: &[f64], scales: &[f64], rows: usize| -> Vec<f64> {
            let blocks = k.div_ceil(block);
            let scale = |at: usize| scales[at / k / rows * blocks + at % k / block];
            values.iter().enumerate().map(|(at, value)| value * scale(at)).collect()
        };
        multiply(&self.product(), &scaled(inputs[0], inputs[2], 1), &scaled(inputs[1], inputs[3], block))
    }
}
