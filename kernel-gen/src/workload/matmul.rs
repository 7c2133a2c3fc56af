//! Matrix products.

use super::operator::{
    FLOATS, Fault, Kind, Likeness, OfBytes, Operand, Operator, Shared, Size, SizeRole, SpecKey, Values, check_sizes,
};
use super::products::Sums;
use super::reference::multiply;
use super::stage::{Axis, AxisRole, Combine, Stage, axis, input};
use super::{Op, Role, Workload, WorkloadError};
use crate::ir::{DType, Expr, VarId};

/// `c[m, n] = sum_k a[m, k] * b[k, n]`, once for each of `batch` independent pairs.
///
/// A matrix that is marked transposed is stored as its transpose: `a` as `[k, m]`, `b` as `[n, k]`. With a batch of
/// 1 all shapes are two-dimensional; otherwise the batch is the first dimension of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Matmul {
    /// Number of independent products.
    pub batch: i64,
    /// Rows of `a` and `c`.
    pub m: i64,
    /// Columns of `b` and `c`.
    pub n: i64,
    /// Columns of `a`, rows of `b`: the length of the reduction.
    pub k: i64,
    /// Whether `a` is stored as `[k, m]`.
    pub trans_a: bool,
    /// Whether `b` is stored as `[n, k]`.
    pub trans_b: bool,
}

impl Matmul {
    /// One product of matrices stored as they stand.
    pub fn new(m: i64, n: i64, k: i64) -> Matmul {
        Matmul { batch: 1, m, n, k, trans_a: false, trans_b: false }
    }

    fn with_batch(&self, rows: i64, columns: i64) -> Vec<i64> {
        if self.batch == 1 { vec![rows, columns] } else { vec![self.batch, rows, columns] }
    }

    /// Shape of `a` as stored.
    pub fn a_shape(&self) -> Vec<i64> {
        if self.trans_a { self.with_batch(self.k, self.m) } else { self.with_batch(self.m, self.k) }
    }

    /// Shape of `b` as stored.
    pub fn b_shape(&self) -> Vec<i64> {
        if self.trans_b { self.with_batch(self.n, self.k) } else { self.with_batch(self.k, self.n) }
    }

    /// Shape of `c`.
    pub fn output_shape(&self) -> Vec<i64> {
        self.with_batch(self.m, self.n)
    }
}

const M: Size = Size::new("m", "m", SizeRole::Images);
const N: Size = Size::new("n", "n", SizeRole::Channels);
const K: Size = Size::new("k", "k", SizeRole::Channels);
const TRANS_A: Size = Size::new("trans_a", "trans_a", SizeRole::Choice);
const TRANS_B: Size = Size::new("trans_b", "trans_b", SizeRole::Choice);

/// `matmul` in specs and keys.
pub(crate) static MATMUL: Kind = PLAIN;

const PLAIN: Kind = Kind {
    name: "matmul",
    pattern: "m{}n{}k{}-{n|t}{n|t}",
    sizes: &[M, N, K, TRANS_A, TRANS_B],
    layouts: &[],
    flags: &["trans_a", "trans_b"],
    between: &[],
    outputs: FLOATS,
    keys,
    read,
    of_sizes: |_, sizes| {
        let [m, n, k, a, b] = *sizes else { return None };
        Some(Op::Matmul(Matmul { batch: 1, m, n, k, trans_a: a == 1, trans_b: b == 1 }))
    },
    guilty: |error| if matches!(error, WorkloadError::NotPositive { size: "n", .. }) { "b" } else { "a" },
};

/// `batch_matmul`: several independent products.
pub(crate) static BATCH_MATMUL: Kind = Kind {
    name: "batch_matmul",
    pattern: "b{}m{}n{}k{}-{n|t}{n|t}",
    sizes: &[Size::new("batch", "batch", SizeRole::Groups), M, N, K, TRANS_A, TRANS_B],
    of_sizes: |_, sizes| {
        let [batch, m, n, k, a, b] = *sizes else { return None };
        Some(Op::Matmul(Matmul { batch, m, n, k, trans_a: a == 1, trans_b: b == 1 }))
    },
    ..PLAIN
};

impl Operator for Matmul {
    fn kind(&self) -> &'static Kind {
        if self.batch > 1 { &BATCH_MATMUL } else { &MATMUL }
    }

    fn sizes(&self) -> Vec<i64> {
        let Matmul { batch, m, n, k, trans_a, trans_b } = *self;
        let sizes = [batch, m, n, k, trans_a.into(), trans_b.into()];
        sizes[usize::from(batch <= 1)..].to_vec()
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        if self.batch < 1 {
            return Err(WorkloadError::NotPositive { size: "batch", value: self.batch });
        }
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        vec![Operand::new("a", Role::Input, self.a_shape()), Operand::new("b", Role::Weight, self.b_shape())]
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        let rows = if self.batch > 1 { AxisRole::Space } else { AxisRole::Batch };
        let axes = [
            Axis::new("bt", self.batch, AxisRole::Batch),
            Axis::new("i", self.m, rows),
            Axis::new("j", self.n, AxisRole::Channel),
        ];
        ("c", axes[usize::from(self.batch == 1)..].to_vec())
    }

    fn of_bytes(&self) -> OfBytes {
        OfBytes::Sums
    }

    fn terms(&self) -> i64 {
        self.k
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let m = self;
        let batch = usize::from(m.batch > 1);
        let loops = [("bt", m.batch), ("i", m.m), ("j", m.n), ("k", m.k)];
        let (i, j, k) = (axis(batch), axis(batch + 1), axis(batch + 2));
        let index = |rows: VarId, columns: VarId| -> Vec<Expr> {
            (0..batch).map(axis).chain([rows, columns]).map(Expr::from).collect()
        };
        let a = if m.trans_a { index(k, i) } else { index(i, k) };
        let b = if m.trans_b { index(j, k) } else { index(k, j) };
        vec![Stage {
            name: "acc",
            dtype: sums,
            shape: m.output_shape(),
            loops: loops[1 - batch..].to_vec(),
            reduce: 1,
            combine: Combine::Sum,
            index: index(i, j),
            value: Expr::load(input(0), a) * Expr::load(input(1), b),
        }]
    }

    fn likeness(&self) -> Likeness {
        // A product with a vector reads its matrix once and is as fast as memory: that says nothing of one with rows that
        // share what is read.
        let class = [self.trans_a, self.trans_b, self.m == 1, self.n == 1];
        let sizes = [self.batch, self.m, self.n, self.k];
        Likeness { class: class.map(i64::from).to_vec(), sizes: sizes.map(|size| (size, 1.0)).to_vec() }
    }

    fn reference(&self, _: &Workload, inputs: &[&[f64]]) -> Sums {
        multiply(self, inputs[0], inputs[1])
    }
}

/// How the shapes of both operands are written.
fn written(shared: &Shared) -> [String; 2] {
    let batch = if shared.name == BATCH_MATMUL.name { "batch, " } else { "" };
    let shape = |rows: &str, columns: &str, trans: bool| {
        if trans { format!("[{batch}{columns}, {rows}]") } else { format!("[{batch}{rows}, {columns}]") }
    };
    [shape("m", "k", shared.flags[0]), shape("k", "n", shared.flags[1])]
}

/// `m`, `n` and `k` of a product of `a`, `[m, k]`, and a transposed `b`, `[n, k]`, which are keys that were checked to have two integers.
pub(super) fn transposed(values: &Values, help: &str) -> Result<[i64; 3], Fault> {
    let [[m, k], [n, k_of_b]] = ["a", "b"].map(|key| values.shape(key));
    match k == k_of_b {
        true => Ok([m, n, k]),
        false => Err(Fault::new("b", format!("`a` has k = {k} but `b` has k = {k_of_b}"), help)),
    }
}

fn keys(shared: &Shared) -> Vec<SpecKey> {
    let [a, b] = written(shared);
    let rank: &[usize] = if shared.name == BATCH_MATMUL.name { &[3] } else { &[2] };
    vec![SpecKey::required("a", rank, &a), SpecKey::required("b", rank, &b)]
}

fn read(shared: &Shared, values: &Values) -> Result<Op, Fault> {
    let (trans_a, trans_b) = (shared.flags[0], shared.flags[1]);
    let batched = shared.name == BATCH_MATMUL.name;
    let (a, b) = (values.get("a").unwrap_or_default(), values.get("b").unwrap_or_default());
    let oriented = |shape: &[i64], trans: bool| {
        let [rows, columns] = [shape[shape.len() - 2], shape[shape.len() - 1]];
        if trans { (columns, rows) } else { (rows, columns) }
    };
    let ((m, k), (k_of_b, n)) = (oriented(a, trans_a), oriented(b, trans_b));
    if k != k_of_b {
        let cause = format!("`a` has k = {k} but `b` has k = {k_of_b}");
        let [a, b] = written(shared);
        return Err(Fault::new("b", cause, format!("the shapes are a = {a} and b = {b}, as stored")));
    }
    let batch = if batched { a[0] } else { 1 };
    if batched && b[0] != batch {
        let cause = format!("`a` has a batch of {batch} but `b` has one of {}", b[0]);
        return Err(Fault::new("b", cause, "both must have the same"));
    }
    if batched && batch == 1 {
        let help = "use op = \"matmul\" and leave the first extent out";
        return Err(Fault::new("a", "a batch of 1 is a plain product", help));
    }
    Ok(Op::Matmul(Matmul { batch, m, n, k, trans_a, trans_b }))
}
