//! Reductions start where and from what they must.

use super::fault::{Fault, FaultKind};
use crate::ir::{BufferId, DType, Expr, For, Kernel, ReduceOp, Stmt, print};

/// Checks the reduction rule under "Values".
pub(super) fn check(kernel: &Kernel, faults: &mut Vec<Fault>) {
    Checker { kernel, loops: vec![], allocs: vec![], faults }.block(&kernel.body);
}

struct Checker<'k, 'f> {
    kernel: &'k Kernel,
    loops: Vec<&'k For>,
    /// Live buffers and how many loops are around their allocation.
    allocs: Vec<(BufferId, usize)>,
    faults: &'f mut Vec<Fault>,
}

impl<'k> Checker<'k, '_> {
    fn block(&mut self, stmts: &'k [Stmt]) {
        let live = self.allocs.len();
        for s in stmts {
            match s {
                Stmt::For(l) => {
                    self.loops.push(l);
                    self.block(&l.body);
                    self.loops.pop();
                }
                Stmt::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Stmt::Alloc(b) => self.allocs.push((*b, self.loops.len())),
                Stmt::Reduce { over, .. } if !over.is_empty() => self.reduction(s),
                _ => {}
            }
        }
        self.allocs.truncate(live);
    }

    fn fault(&mut self, s: &Stmt, cause: String, help: String) {
        self.faults.push(Fault::at(self.kernel, &self.loops, s, FaultKind::WrongReductionInit, cause, help));
    }

    fn reduction(&mut self, s: &Stmt) {
        let Stmt::Reduce { buffer, indices, op, init, value, over } = s else { return };
        let name = |k: &Kernel, v| k.var(v).name.clone();
        for v in over {
            if !self.loops.iter().any(|l| l.var == *v) {
                let v = name(self.kernel, *v);
                self.fault(
                    s,
                    format!("the reduction over {v} is not inside that loop"),
                    format!("put it inside, or drop {v} from the list"),
                );
            } else if indices.iter().any(|i| i.mentions(*v)) {
                let v = name(self.kernel, *v);
                self.fault(
                    s,
                    format!(
                        "the destination of the reduction over {v} depends on {v}, so most of its elements never start"
                    ),
                    format!("drop {v} from the list or from the index"),
                );
            }
        }
        if !is_identity(*op, init, self.kernel.buffer(*buffer).dtype) {
            let (identity, word) = match op {
                ReduceOp::Add => ("0", "sum"),
                ReduceOp::Mul => ("1", "product"),
                ReduceOp::Max => ("-inf", "maximum"),
                ReduceOp::Min => ("inf", "minimum"),
            };
            let init = print::expr(self.kernel, init);
            self.fault(
                s,
                format!("the {word} starts from {init}, not from {identity}"),
                format!("start from {identity}, and combine with {init} afterwards"),
            );
        }
        // A loop that repeats the sum on the same element starts it anew each time, and what it added before is lost.
        let outside = self.allocs.iter().find(|(b, _)| b == buffer).map_or(0, |(_, depth)| *depth);
        let lost: Vec<_> = self.loops[outside..]
            .iter()
            .map(|l| (l.var, l.extent))
            .filter(|(v, n)| {
                *n > 1 && !over.contains(v) && value.mentions(*v) && !indices.iter().any(|i| i.mentions(*v))
            })
            .collect();
        // An index may reach a loop through a `let`; then nothing is known here, and the race check decides.
        let mentions_let = indices.iter().any(|i| {
            let mut found = false;
            i.walk(&mut |e| {
                if let Expr::Var(v) = e {
                    found |= !self.loops.iter().any(|l| l.var == *v);
                }
            });
            found
        });
        if let (Some((v, _)), false) = (lost.first(), mentions_let) {
            let v = name(self.kernel, *v);
            self.fault(
                s,
                format!("the value depends on the loop {v}, which is neither reduced over nor in the destination, so each of its iterations starts anew"),
                format!("add {v} to the list of reduce loops"),
            );
        }
    }
}

fn is_identity(op: ReduceOp, init: &Expr, dtype: DType) -> bool {
    let value = match init {
        Expr::Float(v, _) => *v,
        Expr::Int(v) => *v as f64,
        Expr::Broadcast(a, _) | Expr::Cast(_, a) => return is_identity(op, a, dtype),
        _ => return false,
    };
    let lowest = match dtype {
        DType::F64 => f64::MIN,
        DType::F32 | DType::Bf16 => f64::from(f32::MIN),
        DType::F16 | DType::E4m3 | DType::E5m2 => dtype.format().map_or(0.0, |of| -of.largest),
        DType::I64 => i64::MIN as f64,
        DType::I32 | DType::I8x4 | DType::U8x4 | DType::I16x2 | DType::Bool => f64::from(i32::MIN),
        DType::I8 => f64::from(i8::MIN),
        DType::U8 => 0.0,
    };
    match op {
        ReduceOp::Add => value == 0.0,
        ReduceOp::Mul => value == 1.0,
        ReduceOp::Max => value <= lowest,
        ReduceOp::Min => value >= dtype.limits().map_or(-lowest, |(_, most)| most as f64),
    }
}
