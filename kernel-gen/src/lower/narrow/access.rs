//! What is read and written of tensors that vary stays within what there is.

use super::rows::{Fact, Narrow, divisor};
use crate::analysis::range::bounds;
use crate::analysis::simplify::simplify;
use crate::integer::gcd;
use crate::ir::{BinOp, BufferId, Expr, For, Gpu, Stmt, Tile};
use crate::lower::pass::LowerError;

impl Narrow {
    /// Whether what is known says that the rows `row..row + width` exist.
    fn exists(&self, row: &Expr, width: i64, rows: i64, facts: &[Fact]) -> bool {
        let last = self.plain(&(row.clone() + (width - 1)));
        let wanted = Fact { row: last, rows }.undivided();
        facts.iter().any(|fact| {
            let fact = fact.clone().undivided();
            // Where both count in the same steps, being below means being below by a step.
            let step = gcd(fact.rows, divisor(&fact.row));
            let beyond = bounds(&simplify(&(wanted.row.clone() - fact.row.clone()), &self.ranges), &self.ranges);
            fact.rows == wanted.rows && beyond.is_some_and(|(_, most)| most < step)
        })
    }

    /// The row and the number of rows that an index along the dimension of units names.
    fn span(&self, b: BufferId, index: &Expr) -> Result<(Expr, i64), LowerError> {
        match index {
            Expr::Ramp { base, stride: 1, lanes } => Ok(((**base).clone(), i64::from(*lanes))),
            Expr::Ramp { .. } => self.refuse(b, "a vector lies across its units"),
            Expr::Broadcast(row, _) => Ok(((**row).clone(), 1)),
            row => Ok((row.clone(), 1)),
        }
    }

    /// Whether an access must be made sure of: nothing where its rows exist, else whether it may be.
    fn doubtful(&self, b: BufferId, row: &Expr, width: i64, facts: &[Fact]) -> Result<bool, LowerError> {
        let rows = self.rows(b).expect("it varies");
        let lanes = self.vectorized.iter().filter(|v| self.depends(row, **v)).collect::<Vec<_>>();
        let reach: i64 = lanes.iter().map(|v| self.ranges.get(**v).map_or(1, |(_, most)| most + 1)).product();
        if self.exists(row, width, rows, facts) {
            return Ok(false);
        }
        let base = lanes.iter().fold(self.plain(row), |row, v| row.subst(**v, &Expr::Int(0)));
        let whole = width * reach;
        if whole > 1 && (rows % whole != 0 || divisor(&simplify(&base, &self.ranges)) % whole != 0) {
            return self.refuse(b, format!("{whole} of its rows are taken together, of {rows} a unit"));
        }
        Ok(true)
    }

    /// An index that stays within the units that there are.
    fn clamped(&self, b: BufferId, index: &Expr, width: i64, facts: &[Fact]) -> Result<Expr, LowerError> {
        let rows = self.rows(b).expect("it varies");
        let (row, lanes) = self.span(b, index)?;
        if !self.doubtful(b, &row, lanes * width, facts)? {
            return Ok(index.clone());
        }
        let row = row.min(self.limit(rows) - lanes * width);
        Ok(match index {
            Expr::Ramp { stride, lanes, .. } => Expr::Ramp { base: Box::new(row), stride: *stride, lanes: *lanes },
            Expr::Broadcast(_, lanes) => Expr::Broadcast(Box::new(row), *lanes),
            _ => row,
        })
    }

    /// Makes sure of the loads in an expression.
    fn expr(&self, e: Expr, facts: &[Fact]) -> Result<Expr, LowerError> {
        let mut fault = None;
        let e = e.map(&mut |e| match e {
            Expr::Load(b, mut index) if self.rows(b).is_some() => {
                let dim = self.kernel.units_dim(b);
                match self.clamped(b, &index[dim], 1, facts) {
                    Ok(row) => index[dim] = row,
                    Err(error) => fault = Some(error),
                }
                Expr::Load(b, index)
            }
            other => other,
        });
        fault.map_or(Ok(e), Err)
    }

    fn block(&mut self, block: Vec<Stmt>, facts: &[Fact]) -> Result<Vec<Stmt>, LowerError> {
        block.into_iter().map(|s| self.stmt(s, facts)).collect()
    }

    /// Makes sure of all accesses of a statement, under what is known.
    pub(super) fn stmt(&mut self, s: Stmt, facts: &[Fact]) -> Result<Stmt, LowerError> {
        let mut fault = None;
        let s = match s {
            Stmt::For(l) => return Ok(Stmt::For(For { body: self.block(l.body, facts)?, ..l })),
            Stmt::If { cond, then, otherwise } => {
                let cond = self.expr(cond, facts)?;
                let mut known = facts.to_vec();
                self.assume(&cond, &mut known);
                let then = self.block(then, &known)?;
                return Ok(Stmt::If { cond, then, otherwise: self.block(otherwise, facts)? });
            }
            other => other.map_exprs(&mut |e| match self.expr(e.clone(), facts) {
                Ok(e) => e,
                Err(error) => {
                    fault = Some(error);
                    e
                }
            }),
        };
        if let Some(error) = fault {
            return Err(error);
        }
        match s {
            Stmt::Store { buffer, ref indices, .. } | Stmt::Reduce { buffer, ref indices, .. } => {
                let Some(rows) = self.rows(buffer) else { return Ok(s) };
                let (row, width) = self.span(buffer, &indices[self.kernel.units_dim(buffer)])?;
                if !self.doubtful(buffer, &row, width, facts)? {
                    return Ok(s);
                }
                // Of rows that are stored together the first exists if all do.
                let lanes = self.vectorized.iter().fold(row, |row, v| row.subst(*v, &Expr::Int(0)));
                Ok(Stmt::if_(lanes.lt(self.limit(rows)), vec![s]))
            }
            Stmt::Transpose { ref dst, ref src } => {
                self.must_exist(dst, facts)?;
                self.must_exist(src, facts)?;
                Ok(s)
            }
            Stmt::Gpu(Gpu::CopyAsync { dst, mut src, guard }) => {
                if self.rows(src.buffer).is_some() {
                    let dim = self.kernel.units_dim(src.buffer);
                    src.origin[dim] = self.clamped(src.buffer, &src.origin[dim], src.extents[dim], facts)?;
                }
                Ok(Stmt::Gpu(Gpu::CopyAsync { dst, src, guard }))
            }
            Stmt::Gpu(Gpu::TensorLoad { .. } | Gpu::TensorStore { .. }) => Ok(s),
            Stmt::Gpu(ref gpu) => {
                gpu.all_tiles().into_iter().try_for_each(|tile| self.must_exist(tile, facts))?;
                Ok(s)
            }
            other => Ok(other),
        }
    }

    /// What a condition says of rows.
    fn assume(&self, cond: &Expr, facts: &mut Vec<Fact>) {
        let units = self.kernel.size.as_ref().map(|size| size.var);
        match cond {
            Expr::Binary(BinOp::And, a, b) => {
                self.assume(a, facts);
                self.assume(b, facts);
            }
            Expr::Binary(BinOp::Lt, row, limit) => {
                let rows = match &**limit {
                    Expr::Var(v) if Some(*v) == units => Some(1),
                    Expr::Binary(BinOp::Mul, v, rows) if units.is_some_and(|u| **v == Expr::Var(u)) => rows.as_int(),
                    _ => None,
                };
                let row = self.plain(row);
                facts.extend(rows.map(|rows| Fact { row, rows }));
            }
            _ => {}
        }
    }

    /// Refuses a tile of a tensor that varies whose rows may not all exist.
    fn must_exist(&self, tile: &Tile, facts: &[Fact]) -> Result<(), LowerError> {
        let dim = self.kernel.units_dim(tile.buffer);
        match self.rows(tile.buffer) {
            Some(rows) if !self.exists(&tile.origin[dim], tile.extents[dim], rows, facts) => {
                self.refuse(tile.buffer, format!("{} of its rows are taken together", tile.extents[dim]))
            }
            _ => Ok(()),
        }
    }
}
