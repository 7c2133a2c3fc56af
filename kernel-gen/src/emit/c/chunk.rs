//! Cuts vectors of any number of lanes into registers.

use super::Isa;
use crate::emit::clike::lanes::lanes;
use crate::ir::{DType, Expr, Kernel, Stmt};

/// Lanes `start .. start + len` of a statement, computed in one register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    pub(super) start: u16,
    pub(super) len: u16,
}

/// The registers that the statement needs, in order; one of one lane for a scalar statement.
pub(super) fn chunks(kernel: &Kernel, isa: Isa, s: &Stmt) -> Vec<Chunk> {
    let lanes = lanes(kernel, s);
    if lanes == 1 {
        return vec![Chunk { start: 0, len: 1 }];
    }
    // Elements of different sizes take the same number of lanes, so the largest decides.
    let mut bytes = 4;
    let mut see = |d: DType| {
        if d.is_float() || d == DType::I32 {
            bytes = bytes.max(d.compute().bytes());
        }
    };
    if let Stmt::Store { buffer, .. } | Stmt::Reduce { buffer, .. } = s {
        see(kernel.buffer(*buffer).dtype);
    }
    s.own_exprs(&mut |e| {
        e.walk(&mut |e| match e {
            Expr::Load(b, _) => see(kernel.buffer(*b).dtype),
            Expr::Cast(d, _) | Expr::Float(_, d) => see(*d),
            _ => {}
        })
    });
    let native = (isa.vector_bytes() / bytes) as u16;
    (0..lanes).step_by(native as usize).map(|start| Chunk { start, len: native.min(lanes - start) }).collect()
}

/// The lanes at which those registers start.
pub(super) fn starts(kernel: &Kernel, isa: Isa, s: &Stmt) -> Vec<i64> {
    chunks(kernel, isa, s).iter().map(|c| i64::from(c.start)).collect()
}
