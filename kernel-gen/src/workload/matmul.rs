//! Matrix products.

use super::WorkloadError;
use super::conv2d::positive;

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

    pub(super) fn validate(&self) -> Result<(), WorkloadError> {
        for (size, value) in [("batch", self.batch), ("m", self.m), ("n", self.n), ("k", self.k)] {
            positive(size, value)?;
        }
        Ok(())
    }
}
