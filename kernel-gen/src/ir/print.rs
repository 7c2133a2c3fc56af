//! The text form of a kernel.
//!
//! ```text
//! kernel relu {
//!   param x: f32[4, 8] global read
//!   param y: f32[4, 8] global write
//!   for i in 0..4 parallel {
//!     for j in 0..8 {
//!       y[i, j] = max(x[i, j], 0f32)
//!     }
//!   }
//! }
//! ```
//! Behind the parameters may stand `size n most 64 of x, y`: how many units these tensors have, which a launch says. Of a loop with
//! `first 49 of 16 times 4` behind its pragmas the first `ceil(n * 49 / 16) * 4` iterations run; with `by 132` behind that so many
//! of them are one iteration.
//!
//! Statements: `for v in 0..n [kind] [pragma...] {}`, `b[..] = e`, `b[..] += e init e over (v, ..)` (`*=`, `max=`, `min=`
//! likewise), `if e {} else {}`, `let v: type = e`, `alloc b: type[shape] scope [strides [..]]`, `barrier block`,
//! `transpose b[..: ..] = b[..: ..]`, where `i: n` is an origin and an extent;
//! and those of a GPU:
//!
//! ```text
//! fill acc[0: 64, 0: 128] = 0f32
//! move f[0: 16, 0: 16] = x_s[0: 16, k: 16]
//! mma.warpgroup acc[0: 64, 0: 128] += a_s[s: 1, 0: 64, 0: 64] * b_s[s: 1, 0: 128, 0: 64]^T
//! copy_async x_s[0: 4] = x[i: 4] if i < 100
//! commit copy
//! wait copy 1
//! tensor_load a_s[s: 1, 0: 64, 0: 64] = a[m: 64, k: 64] on full[s]
//! tensor_store c[m: 64, n: 64] = c_s[0: 64, 0: 64]
//! mbarrier init full[s] count 1
//! mbarrier arrive empty[s]
//! mbarrier expect full[s] bytes 8192
//! mbarrier wait full[s] parity p
//! fence async
//! barrier named 1 threads 256
//! set_max_registers 232
//! ```
//! Expressions are C's, with
//! `select(c, a, b)`, `min`, `max`, `pow`, `fmod`, `type(e)` for casts, `ramp(base, stride, lanes)` and `broadcast(e, lanes)`; `/`
//! and `%` are floor division on integers. Float literals carry their type: `0.5f32`.

use super::instruction::Part;
use super::{Access, BinOp, BufferId, Expr, First, For, Gpu, Kernel, LoopKind, Pragma, ReduceOp, Stmt, Tile, UnOp};
use std::fmt::{self, Display, Formatter, Write};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel {} {{", self.name)?;
        for p in &self.params {
            let access = match self.buffer(*p).access {
                Access::Read => "read",
                Access::Write => "write",
                Access::ReadWrite => "readwrite",
            };
            writeln!(f, "  param {} {access}", declaration(self, *p))?;
        }
        if let Some(size) = &self.size {
            let varying: Vec<&str> = size.varying.iter().map(|b| &*self.buffer(*b).name).collect();
            writeln!(f, "  size {} most {} of {}", self.var(size.var).name, size.most, varying.join(", "))?;
        }
        let mut out = String::new();
        block(self, &self.body, 1, &mut out);
        f.write_str(&out)?;
        f.write_str("}\n")
    }
}

/// `name: type[shape] scope`, with the strides where they are not row-major.
fn declaration(k: &Kernel, b: BufferId) -> String {
    let b = k.buffer(b);
    let mut s = format!("{}: {}{:?} {}", b.name, b.dtype, b.shape, b.scope);
    if !b.is_row_major() {
        let _ = write!(s, " strides {:?}", b.strides);
    }
    if b.offset != 0 {
        let _ = write!(s, " from {}", b.offset);
    }
    if b.swizzle != 0 {
        let _ = write!(s, " swizzle {}", b.swizzle);
    }
    s
}

fn block(k: &Kernel, stmts: &[Stmt], depth: usize, out: &mut String) {
    for s in stmts {
        stmt(k, s, depth, out);
    }
}

fn stmt(k: &Kernel, s: &Stmt, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth);
    out.push_str(&pad);
    match s {
        Stmt::For(l) => {
            let _ = write!(out, "for {} in 0..{}", k.var(l.var).name, l.extent);
            if l.kind != LoopKind::Serial {
                let _ = write!(out, " {}", l.kind.name());
            }
            for p in &l.pragmas {
                let _ = match p {
                    Pragma::AutoUnrollMaxStep(n) => write!(out, " auto_unroll_max_step({n})"),
                    Pragma::UnrollExplicit(b) => write!(out, " unroll_explicit({})", i64::from(*b)),
                    Pragma::FetchAhead(n) => write!(out, " fetch_ahead({n})"),
                    Pragma::HoldVectors(b) => write!(out, " hold_vectors({})", i64::from(*b)),
                };
            }
            if let Some(First { per, of, times, by }) = k.first_of(l.var) {
                let _ = write!(out, " first {per} of {of} times {times}");
                if by != 1 {
                    let _ = write!(out, " by {by}");
                }
            }
            out.push_str(" {\n");
            block(k, &l.body, depth + 1, out);
            let _ = writeln!(out, "{pad}}}");
        }
        Stmt::Store { buffer, indices, value } => {
            let _ = writeln!(out, "{} = {}", element(k, *buffer, indices), expr(k, value));
        }
        Stmt::Reduce { buffer, indices, op, init, value, over } => {
            let op = match op {
                ReduceOp::Add => "+=",
                ReduceOp::Mul => "*=",
                ReduceOp::Max => "max=",
                ReduceOp::Min => "min=",
            };
            let _ = write!(out, "{} {op} {}", element(k, *buffer, indices), expr(k, value));
            let over: Vec<&str> = over.iter().map(|v| k.var(*v).name.as_str()).collect();
            let _ = writeln!(out, " init {} over ({})", expr(k, init), over.join(", "));
        }
        Stmt::If { cond, then, otherwise } => {
            let _ = writeln!(out, "if {} {{", expr(k, cond));
            block(k, then, depth + 1, out);
            if otherwise.is_empty() {
                let _ = writeln!(out, "{pad}}}");
            } else {
                let _ = writeln!(out, "{pad}}} else {{");
                block(k, otherwise, depth + 1, out);
                let _ = writeln!(out, "{pad}}}");
            }
        }
        Stmt::Let { var, value } => {
            let v = k.var(*var);
            let _ = writeln!(out, "let {}: {} = {}", v.name, v.dtype, expr(k, value));
        }
        Stmt::Alloc(b) => {
            let _ = writeln!(out, "alloc {}", declaration(k, *b));
        }
        Stmt::Barrier(b) => {
            let _ = writeln!(
                out,
                "barrier {}",
                match b {
                    super::Barrier::Block => "block",
                    super::Barrier::Warp => "warp",
                }
            );
        }
        Stmt::Transpose { dst, src } => {
            let _ = writeln!(out, "transpose {} = {}", tile(k, dst), tile(k, src));
        }
        Stmt::Gpu(g) => {
            out.push_str(&instruction(k, g));
            out.push('\n');
        }
    }
}

pub(super) fn tile(k: &Kernel, t: &Tile) -> String {
    let dims: Vec<String> = t.origin.iter().zip(&t.extents).map(|(o, n)| format!("{}: {n}", expr(k, o))).collect();
    format!("{}[{}]", k.buffer(t.buffer).name, dims.join(", "))
}

fn element(k: &Kernel, b: BufferId, indices: &[Expr]) -> String {
    let idx: Vec<String> = indices.iter().map(|i| expr(k, i)).collect();
    format!("{}[{}]", k.buffer(b).name, idx.join(", "))
}

/// An expression as text.
pub fn expr(k: &Kernel, e: &Expr) -> String {
    let mut s = String::new();
    write_expr(k, e, 0, &mut s);
    s
}

/// A statement and what it holds, as text.
pub fn statement(k: &Kernel, s: &Stmt) -> String {
    let mut out = String::new();
    stmt(k, s, 0, &mut out);
    out
}

/// Binding strength; `min`, `max`, `pow`, `fmod`, `dot` and `push` print as calls.
fn precedence(op: BinOp) -> u8 {
    match op {
        BinOp::Or => 1,
        BinOp::And => 2,
        BinOp::Lt | BinOp::Le | BinOp::Eq | BinOp::Ne => 3,
        BinOp::Add | BinOp::Sub => 4,
        BinOp::Mul | BinOp::Div | BinOp::Mod => 5,
        BinOp::Min | BinOp::Max | BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push => 9,
    }
}

fn write_expr(k: &Kernel, e: &Expr, outer: u8, out: &mut String) {
    match e {
        Expr::Int(v) if *v < 0 && outer > 0 => {
            let _ = write!(out, "({v})");
        }
        Expr::Int(v) => {
            let _ = write!(out, "{v}");
        }
        Expr::Float(v, d) => {
            if v.is_sign_negative() && outer > 0 {
                let _ = write!(out, "({v:?}{d})");
            } else {
                let _ = write!(out, "{v:?}{d}");
            }
        }
        Expr::Var(v) => out.push_str(&k.var(*v).name),
        Expr::Binary(op @ (BinOp::Min | BinOp::Max | BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push), a, b) => {
            out.push_str(match op {
                BinOp::Min => "min(",
                BinOp::Max => "max(",
                BinOp::Fmod => "fmod(",
                BinOp::Dot => "dot(",
                BinOp::Push => "push(",
                _ => "pow(",
            });
            write_expr(k, a, 0, out);
            out.push_str(", ");
            write_expr(k, b, 0, out);
            out.push(')');
        }
        Expr::Binary(op, a, b) => {
            let sign = match op {
                BinOp::Add => " + ",
                BinOp::Sub => " - ",
                BinOp::Mul => " * ",
                BinOp::Div => " / ",
                BinOp::Mod => " % ",
                BinOp::Lt => " < ",
                BinOp::Le => " <= ",
                BinOp::Eq => " == ",
                BinOp::Ne => " != ",
                BinOp::And => " && ",
                BinOp::Or => " || ",
                BinOp::Min | BinOp::Max | BinOp::Pow | BinOp::Fmod | BinOp::Dot | BinOp::Push => {
                    unreachable!("printed as calls above")
                }
            };
            let p = precedence(*op);
            if p < outer {
                out.push('(');
            }
            write_expr(k, a, p, out);
            out.push_str(sign);
            write_expr(k, b, p + 1, out);
            if p < outer {
                out.push(')');
            }
        }
        Expr::Unary(op @ (UnOp::Neg | UnOp::Not), a) => {
            // Always bracketed inside, so that `-(1f32)` stays distinct from the literal.
            let _ = write!(out, "{}(", op.name());
            write_expr(k, a, 0, out);
            out.push(')');
        }
        Expr::Unary(op, a) => {
            let _ = write!(out, "{}(", op.name());
            write_expr(k, a, 0, out);
            out.push(')');
        }
        Expr::Select(c, a, b) => {
            out.push_str("select(");
            write_expr(k, c, 0, out);
            out.push_str(", ");
            write_expr(k, a, 0, out);
            out.push_str(", ");
            write_expr(k, b, 0, out);
            out.push(')');
        }
        Expr::Cast(d, a) => {
            let _ = write!(out, "{d}(");
            write_expr(k, a, 0, out);
            out.push(')');
        }
        Expr::Load(b, idx) => out.push_str(&element(k, *b, idx)),
        Expr::Ramp { base, stride, lanes } => {
            out.push_str("ramp(");
            write_expr(k, base, 0, out);
            let _ = write!(out, ", {stride}, {lanes})");
        }
        Expr::Broadcast(a, lanes) => {
            out.push_str("broadcast(");
            write_expr(k, a, 0, out);
            let _ = write!(out, ", {lanes})");
        }
    }
}

/// The first line of a statement's text, without printing what a loop holds.
pub fn first_line(kernel: &Kernel, stmt: &Stmt) -> String {
    let header = match stmt {
        Stmt::For(l) => Stmt::For(For { body: vec![], pragmas: l.pragmas.clone(), ..*l }),
        Stmt::If { cond, .. } => Stmt::if_(cond.clone(), vec![]),
        other => other.clone(),
    };
    statement(kernel, &header).lines().next().unwrap_or_default().to_string()
}

/// An instruction of a GPU by its [parts](super::instruction): one line, without its end.
fn instruction(k: &Kernel, g: &Gpu) -> String {
    let words = g.parts().into_iter().filter_map(|part| {
        Some(match part {
            Part::Word(word) => word.to_string(),
            Part::Write(t) | Part::Update(t) | Part::Read(t) => tile(k, t),
            Part::Matrix(o) => format!("{}{}", tile(k, &o.tile), if o.transposed { " transposed" } else { "" }),
            Part::Expr(e) => expr(k, e),
            Part::Exprs(all) => all.iter().map(|e| expr(k, e)).collect::<Vec<_>>().join(", "),
            Part::Optional(word, e) => format!("{word} {}", expr(k, e.as_ref()?)),
            Part::List(_, list) if list.is_empty() => return None,
            Part::List(word, list) => format!("{word} {list:?}"),
            Part::Slot(s) => format!("{}[{}]", k.buffer(s.buffer).name, expr(k, &s.index)),
            Part::Group(group) => group.name().to_string(),
            Part::Count(n) => n.to_string(),
            Part::Int(n) => n.to_string(),
        })
    });
    words.collect::<Vec<_>>().join(" ")
}
