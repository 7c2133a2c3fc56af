//! What divides an index, which tells how it is aligned.

use crate::integer::gcd;
use crate::ir::{BinOp, Expr, UnOp};

/// Whether the expression is certainly a multiple of `unit`.
pub(super) fn is_multiple(e: &Expr, unit: i64) -> bool {
    multiple(e) % unit == 0
}

/// A number that divides the expression whatever its variables are; 0 if the expression is zero.
pub(super) fn multiple(e: &Expr) -> i64 {
    match e {
        Expr::Int(v) => v.saturating_abs(),
        Expr::Binary(op, a, b) => {
            let (x, y) = (multiple(a), multiple(b));
            match op {
                BinOp::Add | BinOp::Sub | BinOp::Mod | BinOp::Min | BinOp::Max => gcd(x, y),
                BinOp::Mul => x.saturating_mul(y),
                BinOp::Div if b.as_int().is_some_and(|d| d > 0 && x % d == 0) => x / b.as_int().unwrap_or(1),
                _ => 1,
            }
        }
        Expr::Unary(UnOp::Neg, a) => multiple(a),
        Expr::Select(_, a, b) => gcd(multiple(a), multiple(b)),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::VarId;

    #[test]
    fn what_divides_an_index_is_known_from_its_form() {
        let [i, j] = [VarId(0), VarId(1)];
        assert_eq!(multiple(&(i * 64 + j * 4)), 4);
        assert_eq!(multiple(&(i * 64 + j * 4 + 2)), 2);
        assert_eq!(multiple(&((i * 12).floor_mod(8) + 16)), 4);
        assert_eq!(multiple(&(i * 12).floor_div(4)), 3);
        assert_eq!(multiple(&Expr::from(i).floor_div(4)), 1);
        assert_eq!(multiple(&Expr::Int(0)), 0);
    }
}
