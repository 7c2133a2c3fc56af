//! gemm computes products. It packs what it wants packed in every call, and has
//! no epilogue: where a layer has one, it takes no part.

use crate::interface::Layer;
use crate::{Peer, copy, values};
use gemm::Parallelism;

/// A matrix: where it is, its rows and columns, and the distances from column to column and from row to row.
struct Matrix {
    data: &'static [f32],
    rows: usize,
    columns: usize,
    strides: [isize; 2],
}

impl Matrix {
    /// A matrix in row-major order, or the transposed of one.
    fn new(data: &'static [f32], [rows, columns]: [usize; 2], transposed: bool) -> Matrix {
        if transposed {
            Matrix { data, rows: columns, columns: rows, strides: [columns as isize, 1] }
        } else {
            Matrix { data, rows, columns, strides: [1, columns as isize] }
        }
    }
}

pub(crate) fn peer(layer: &Layer, threads: usize) -> Result<Peer, String> {
    if layer.bias.rank > 0 || layer.residual.rank > 0 || layer.activation != 0 {
        return Err("it has no epilogue".into());
    }
    if layer.convolution || layer.x.rank != 2 {
        return Err("it has products of two matrices only".into());
    }
    let of = |shape: [usize; 4]| [shape[0], shape[1]];
    let a = Matrix::new(values(&layer.x), of(layer.x.shape), layer.trans_a);
    let b = Matrix::new(values(&layer.w), of(layer.w.shape), layer.trans_b);
    let mut y = vec![0.0f32; a.rows * b.columns];
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    Ok(Box::new(move |out| {
        let [(a_column, a_row), (b_column, b_row)] = [&a, &b].map(|m| (m.strides[0], m.strides[1]));
        let (m, n, k) = (a.rows, b.columns, a.columns);
        // SAFETY: the matrices have those sizes and strides, and the result overlaps neither. The result is not read.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                y.as_mut_ptr(),
                1,
                n as isize,
                false,
                a.data.as_ptr(),
                a_column,
                a_row,
                b.data.as_ptr(),
                b_column,
                b_row,
                0.0f32,
                1.0f32,
                false,
                false,
                false,
                parallelism,
            );
        }
        copy(out, &y)
    }))
}
