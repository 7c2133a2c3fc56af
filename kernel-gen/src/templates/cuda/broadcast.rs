//! Batches of products whose operands repeat: where a product of the batch has its matrices.
//!
//! Where the second operand repeats along the last dimensions of the batch, the first one's matrices stand below each other, and
//! are one matrix with more rows. What is left of the batch are numbers of both operands' matrices, which grow by a stride along each
//! dimension: none, where the operand repeats.

use super::product::{Column, Element, Gemm, Piece, Product};
use crate::ir::Expr;
use crate::ir::builder::KernelBuilder;
use crate::workload::dims::{Dims, MAX_RANK};
use crate::workload::{BroadcastMatmul, Matmul, Op, Param, Role, Workload};

/// Dimensions of a batch that there are at most.
const DIMENSIONS: usize = MAX_RANK - 2;

/// The products of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Products {
    /// Their sizes.
    pub m: Matmul,
    /// How the batch finds its matrices; none where it is that of a [`Matmul`].
    repeats: Option<Repeats>,
}

/// The batch of operands that repeat.
#[derive(Clone, Copy, Debug)]
struct Repeats {
    /// Extents of the batch; those that there are not are 1.
    batch: [i64; DIMENSIONS],
    /// Matrices of each operand from one place of a dimension to the next, 0 where it repeats.
    strides: [[i64; DIMENSIONS]; 2],
    /// Matrices of each operand.
    count: [i64; 2],
}

impl Products {
    /// The products that a workload is, or why not, as half a sentence.
    pub(super) fn of(w: &Workload) -> Result<Products, String> {
        match &w.op {
            Op::Matmul(m) => Ok(Products { m: *m, repeats: None }),
            Op::BroadcastMatmul(all) => Ok(Products::broadcast(all)),
            _ => Err("for matrix products".into()),
        }
    }

    fn broadcast(all: &BroadcastMatmul) -> Products {
        let [mut rows, k, n] = all.matrices();
        let shape = all.output_shape();
        let batch = &shape[..shape.len() - 2];
        // An operand's extents along the dimensions of the batch; it has none of the first.
        let extents = |shape: &Dims| {
            let own = BroadcastMatmul::batch(shape);
            [vec![1; batch.len() - own.len()], own.to_vec()].concat()
        };
        let (a, b) = (extents(&all.a), extents(&all.b));
        let folded = b.iter().rev().take_while(|extent| **extent == 1).count();
        let left = batch.len() - folded;
        rows *= batch[left..].iter().product::<i64>();
        let mut repeats = Repeats { batch: [1; DIMENSIONS], strides: [[0; DIMENSIONS]; 2], count: [1; 2] };
        for i in (0..left).rev() {
            repeats.batch[i] = batch[i];
            for (side, own) in [a[i], b[i]].into_iter().enumerate() {
                repeats.strides[side][i] = if own == 1 { 0 } else { repeats.count[side] };
                repeats.count[side] *= own;
            }
        }
        let m = Matmul { batch: batch[..left].iter().product(), ..Matmul::new(rows, n, k) };
        Products { m, repeats: Some(repeats) }
    }

    /// Calls `make` with the products.
    pub(super) fn with<T>(&self, gemm: Gemm<'_>, make: impl FnOnce(&dyn Product) -> T) -> T {
        match self.repeats {
            None => make(&gemm),
            Some(repeats) => make(&Repeated { gemm, repeats }),
        }
    }
}

/// A [`Gemm`] whose operands repeat.
struct Repeated<'w> {
    gemm: Gemm<'w>,
    repeats: Repeats,
}

impl Repeated<'_> {
    /// The number of an operand's matrix in a product of the batch.
    fn matrix(&self, side: usize, batch: &Expr) -> Expr {
        let (mut number, mut inner) = (Expr::Int(0), 1);
        for i in (0..DIMENSIONS).rev() {
            let (extent, stride) = (self.repeats.batch[i], self.repeats.strides[side][i]);
            if stride > 0 {
                number = number + batch.clone().floor_div(inner).floor_mod(extent) * stride;
            }
            inner *= extent;
        }
        number
    }
}

impl Product for Repeated<'_> {
    fn workload(&self) -> &Workload {
        self.gemm.workload
    }

    /// The dimensions of a batch are one.
    fn shape(&self, param: &Param) -> Vec<i64> {
        let m = &self.gemm.m;
        let several = |count: i64, matrix: [i64; 2]| match m.batch {
            1 => matrix.to_vec(),
            _ => [&[count], &matrix[..]].concat(),
        };
        match (param.role, param.name) {
            (Role::Input, "a") => several(self.repeats.count[0], [m.m, m.k]),
            (Role::Input, _) => several(self.repeats.count[1], [m.k, m.n]),
            (Role::Output | Role::Residual, _) => several(m.batch, [m.m, m.n]),
            _ => param.shape.clone(),
        }
    }

    fn units(&self) -> [i64; 2] {
        self.gemm.units
    }

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        self.gemm.left_row(b, row)
    }

    fn step(&self, b: &mut KernelBuilder, block: &[Expr], k: &Expr) -> Vec<Expr> {
        self.gemm.step(b, block, k)
    }

    fn left(&self, batch: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        self.gemm.left(&self.matrix(0, batch), row, step, within)
    }

    fn right(&self, batch: &Expr, column: &Column<'_>, step: &[Expr], within: Expr) -> Piece {
        self.gemm.right(&self.matrix(1, batch), column, step, within)
    }

    fn element(&self, batch: &Expr, row: Expr, column: Expr) -> Element {
        self.gemm.element(batch, row, column)
    }
}
