//! Statements that both languages have.

use super::dialect::{Dialect, Printer};
use super::expr::Integer;
use super::lanes::{as_store, lanes};
use crate::analysis::range::bounds;
use crate::emit::EmitError;
use crate::ir::{BinOp, DType, Expr, For, LoopKind, ReduceOp, Stmt, VarId};
use std::fmt::Display;

impl<D: Dialect> Printer<'_, D> {
    /// Appends a line at the current depth.
    pub(crate) fn line(&mut self, text: &str) {
        self.out.push_str(&"  ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// What `body` prints, one step further in.
    pub(crate) fn indented(&mut self, body: impl FnOnce(&mut Self) -> Result<(), EmitError>) -> Result<(), EmitError> {
        self.depth += 1;
        body(self)?;
        self.depth -= 1;
        Ok(())
    }

    /// A head that opens a brace, what `body` prints, and the brace that closes.
    pub(crate) fn braces(
        &mut self,
        head: &str,
        body: impl FnOnce(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        self.line(head);
        self.indented(body)?;
        self.line("}");
        Ok(())
    }

    /// The head of a loop that counts from `from` to before `to`.
    pub(crate) fn for_head(ty: &str, var: &str, from: impl Display, to: impl Display) -> String {
        let [before, behind] = D::INCREMENT;
        format!("for ({ty} {var} = {from}; {var} < {to}; {before}{var}{behind}) {{")
    }

    /// The statements of a block.
    pub(crate) fn block(&mut self, stmts: &[Stmt]) -> Result<(), EmitError> {
        let outer = self.ranges.clone();
        D::statements(self, stmts)?;
        self.ranges = outer;
        Ok(())
    }

    /// A statement.
    pub(crate) fn stmt(&mut self, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::For(l) => self.loop_(l),
            Stmt::If { cond, then, otherwise } => {
                let text = self.scalar(cond)?.text;
                self.line(&format!("if ({text}) {{"));
                self.branch(then, cond, true)?;
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.branch(otherwise, cond, false)?;
                }
                self.line("}");
                Ok(())
            }
            Stmt::Store { .. } | Stmt::Reduce { .. } => self.update(s),
            Stmt::Let { var, value } => self.let_(*var, value),
            other => D::special(self, other),
        }
    }

    fn branch(&mut self, stmts: &[Stmt], cond: &Expr, truth: bool) -> Result<(), EmitError> {
        let outer = self.ranges.clone();
        self.ranges.assume(cond, truth);
        D::enter_branch(self);
        self.indented(|p| p.block(stmts))?;
        self.ranges = outer;
        Ok(())
    }

    /// Names a value.
    pub(crate) fn let_(&mut self, var: VarId, value: &Expr) -> Result<(), EmitError> {
        let (ty, text) = match self.kernel.var(var).dtype {
            DType::Bool => (D::BOOLEAN, self.scalar(value)?),
            d if d.is_int() => {
                let Integer { text, wide } = self.integer(value)?;
                if wide {
                    self.wide.insert(var);
                }
                (D::element_type(Self::width(d, wide)), text)
            }
            d => (D::element_type(d.compute()), self.scalar(value)?),
        };
        self.line(&format!("const {ty} {} = {};", self.names.var(var), text.text));
        if let Some((lo, hi)) = bounds(value, &self.ranges) {
            self.ranges.insert(var, lo, hi);
        }
        Ok(())
    }

    /// A loop.
    pub(crate) fn loop_(&mut self, l: &For) -> Result<(), EmitError> {
        let var = self.names.var(l.var).to_string();
        match l.kind {
            LoopKind::Grid(_) | LoopKind::Cluster(_) | LoopKind::Thread(_) => return D::hardware_loop(self, l),
            LoopKind::Vectorized => {
                return Err(EmitError::NotLowered { what: format!("vectorised loop `{var}`"), pass: "vectorize" });
            }
            LoopKind::VThread => {
                return Err(EmitError::NotLowered { what: format!("vthread loop `{var}`"), pass: "inject_vthread" });
            }
            _ => {
                if let Some(advice) = D::advice(self, l)? {
                    self.line(&advice);
                }
            }
        }
        let wide = l.extent > i64::from(i32::MAX);
        if wide {
            self.wide.insert(l.var);
        }
        let ty = D::element_type(Self::width(DType::I64, wide));
        let units = self.kernel.size.as_ref().map(|size| Expr::Var(size.var));
        let end = match units.zip(self.kernel.first_of(l.var)) {
            Some((units, first)) => self.scalar(&first.expr(units).min(l.extent))?.text,
            None => l.extent.to_string(),
        };
        self.ranges.insert_loop(l);
        self.braces(&Self::for_head(ty, &var, 0, end), |p| {
            D::enter_loop(p, l)?;
            p.block(&l.body)
        })
    }

    /// A store or an update.
    pub(crate) fn update(&mut self, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::Reduce { buffer, over, .. } if !over.is_empty() => Err(EmitError::NotLowered {
                what: format!("the initialisation of the reduction into `{}`", self.kernel.buffer(*buffer).name),
                pass: "decompose_reduction",
            }),
            s if lanes(self.kernel, s) == 1 => self.scalar_update(s),
            s => D::vector_update(self, s),
        }
    }

    /// One lane of a store or an update.
    pub(crate) fn scalar_update(&mut self, s: &Stmt) -> Result<(), EmitError> {
        match s {
            Stmt::Store { buffer, indices, .. } | Stmt::Reduce { buffer, indices, .. }
                if D::is_unread(self, *buffer, indices)? => {}
            Stmt::Store { buffer, indices, value } => {
                let text = D::stored(self, *buffer, value)?;
                let target = D::element(self, *buffer, indices)?;
                self.line(&format!("{target} = {text};"));
            }
            Stmt::Reduce { buffer, indices, op, value, .. } => {
                let dtype = self.kernel.buffer(*buffer).dtype;
                let is_dot = matches!(value, Expr::Binary(BinOp::Dot, ..));
                if *op != ReduceOp::Add || dtype != dtype.compute() || is_dot {
                    return self.scalar_update(&as_store(*buffer, indices, *op, value));
                }
                let text = self.scalar(value)?.text;
                let target = D::element(self, *buffer, indices)?;
                self.line(&format!("{target} += {text};"));
            }
            _ => {}
        }
        Ok(())
    }
}
