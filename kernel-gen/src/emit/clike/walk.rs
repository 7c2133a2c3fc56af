//! Questions about statements, and the `let`s at the top of a kernel, which stand outside of all emitted functions.

use crate::ir::visit::mention;
use crate::ir::{BinOp, Expr, Stmt, VarId};

/// Whether `f` holds for one of the statements, or for one inside of them.
pub(crate) fn any(stmts: &[Stmt], mut f: impl FnMut(&Stmt) -> bool) -> bool {
    let mut found = false;
    stmts.iter().for_each(|s| s.walk(&mut |s| found = found || f(s)));
    found
}

/// Whether `f` holds for the expression, or for a part of it.
pub(crate) fn has(e: &Expr, f: impl Fn(&Expr) -> bool) -> bool {
    let mut found = false;
    e.walk(&mut |e| found = found || f(e));
    found
}

/// The sum, if there is one, and the words of an expression that adds up products of words.
pub(crate) fn dot(e: &Expr) -> Option<(Option<&Expr>, &Expr, &Expr)> {
    match e {
        Expr::Binary(BinOp::Dot, x, y) => Some((None, x, y)),
        Expr::Binary(BinOp::Add, sum, dot) => match &**dot {
            Expr::Binary(BinOp::Dot, x, y) => Some((Some(sum), x, y)),
            _ => None,
        },
        _ => None,
    }
}

/// A variable and its value.
pub(crate) type Let<'k> = (VarId, &'k Expr);

/// The lets that statements use, directly or through each other, in their order.
pub(crate) fn used<'k>(lets: &[Let<'k>], stmts: &[Stmt]) -> Vec<Let<'k>> {
    let mut kept: Vec<Let> = vec![];
    for (var, value) in lets.iter().rev() {
        if kept.iter().any(|(_, e)| e.mentions(*var)) || mention(stmts, *var) {
            kept.insert(0, (*var, value));
        }
    }
    kept
}
