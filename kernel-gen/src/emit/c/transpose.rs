//! Transpositions of tiles: rows are loaded, shuffled in registers and stored as columns.

use super::chunk::Chunk;
use super::prelude::{Helper, Vector};
use super::registers::RegisterFile;
use super::vector::{NoVector, Value};
use super::{Body, EmitError};
use crate::ir::{DType, Expr, Stmt, Tile};

/// The rows and columns of the source: its last two extents.
pub(super) fn extents(src: &Tile) -> (i64, i64) {
    let d = src.extents.len();
    match d {
        0 => (1, 1),
        1 => (1, src.extents[0]),
        _ => (src.extents[d - 2], src.extents[d - 1]),
    }
}

/// The indices of an element of a tile.
pub(super) fn at(t: &Tile, row: i64, column: Expr) -> Vec<Expr> {
    let mut idx = t.origin.clone();
    let d = idx.len();
    if d >= 2 {
        idx[d - 2] = idx[d - 2].clone() + row;
    }
    if d >= 1 {
        idx[d - 1] = column + idx[d - 1].clone();
    }
    idx
}

/// The indices of a row of a tile, as vectors of its whole length.
pub(super) fn row(t: &Tile, row: i64, lanes: i64) -> Vec<Expr> {
    let mut idx = at(t, row, Expr::Int(0));
    if let Some(last) = idx.last_mut() {
        let base = std::mem::replace(last, Expr::Int(0));
        *last = Expr::Ramp { base: Box::new(base), stride: 1, lanes: u16::try_from(lanes).unwrap_or(1) };
    }
    idx
}

impl Body<'_> {
    pub(super) fn transpose(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let (m, n) = extents(src);
        let native = (self.isa.vector_bytes() / 4) as i64;
        let contiguous = |t: &Tile| self.kernel.buffer(t.buffer).strides.last() == Some(&1);
        let f32s = [dst, src].iter().all(|t| self.kernel.buffer(t.buffer).dtype == DType::F32);
        let to_registers = matches!(self.registers.get(&dst.buffer), Some(RegisterFile::Variables(_)));
        // Below four lanes there is nothing to gain.
        if !f32s || !contiguous(dst) || !contiguous(src) || to_registers || n < 4 || n > i64::from(u16::MAX) {
            return self.transpose_elements(dst, src, 0, m, 0, n);
        }
        for j in (0..n).step_by(native as usize) {
            let columns = native.min(n - j);
            let v = Vector::holding(DType::F32, columns as usize);
            for i in (0..m).step_by(v.width) {
                let rows = (v.width as i64).min(m - i);
                self.transpose_block(dst, src, [i, rows], [j, columns], v)?;
            }
        }
        Ok(())
    }

    /// One square of registers: `rows` and `columns` are the first and the number of each.
    fn transpose_block(
        &mut self,
        dst: &Tile,
        src: &Tile,
        rows: [i64; 2],
        columns: [i64; 2],
        v: Vector,
    ) -> Result<(), EmitError> {
        let (_, n) = extents(src);
        let chunk = Chunk { start: columns[0] as u16, len: columns[1] as u16 };
        let mut texts = vec![];
        for i in rows[0]..rows[0] + rows[1] {
            let load = Expr::Load(src.buffer, row(src, i, n));
            match self.vector(&load, chunk) {
                Ok(Value::Vector(t, w)) if w == v => texts.push(t.text),
                Err(NoVector::Error(e)) => return Err(e),
                _ => return self.transpose_elements(dst, src, rows[0], rows[1], columns[0], columns[1]),
            }
        }
        let ty = self.prelude.call(Helper::Type(v));
        let name = self.names.fresh("rows");
        self.line("{");
        self.depth += 1;
        self.line(&format!("{ty} {name}[{}] = {{", v.width));
        for t in texts {
            self.line(&format!("  {t},"));
        }
        self.line("};");
        let f = self.prelude.call(Helper::Transpose(v));
        self.line(&format!("{f}({name});"));
        let to = Chunk { start: rows[0] as u16, len: rows[1] as u16 };
        for j in 0..columns[1] {
            let (m, _) = extents(src);
            let target = row(dst, columns[0] + j, m);
            let run = match self.run(dst.buffer, &target, to) {
                Ok(run) => run,
                Err(NoVector::Error(e)) => return Err(e),
                Err(NoVector::Lanes) => return Err(EmitError::Unsupported { what: "a transposition".into() }),
            };
            let line = if rows[1] == v.width as i64 || self.has_spare_lanes(dst.buffer, &target, to, v) {
                format!("{}({}, {name}[{j}]);", self.prelude.call(Helper::Store(v, DType::F32)), run.pointer)
            } else {
                let f = self.prelude.call(Helper::StorePart(v, DType::F32));
                format!("{f}({}, {name}[{j}], {});", run.pointer, rows[1])
            };
            self.line(&line);
        }
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    /// Element by element.
    fn transpose_elements(
        &mut self,
        dst: &Tile,
        src: &Tile,
        row: i64,
        rows: i64,
        column: i64,
        columns: i64,
    ) -> Result<(), EmitError> {
        for i in row..row + rows {
            for j in column..column + columns {
                let value = Expr::Load(src.buffer, at(src, i, Expr::Int(j)));
                self.update(&Stmt::store(dst.buffer, at(dst, j, Expr::Int(i)), value))?;
            }
        }
        Ok(())
    }
}
