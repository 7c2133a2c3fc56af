//! Transpositions of tiles: rows are loaded, shuffled in registers and stored as columns.

use super::body::Body;
use super::chunk::Chunk;
use super::prelude::Helper;
use super::tile::{at, extents, row};
use super::types::Vector;
use super::vector::{NoVector, Value};
use crate::emit::EmitError;
use crate::ir::{DType, Expr, Stmt, Tile};

impl Body<'_> {
    pub(super) fn transpose(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let (m, n) = extents(src);
        let native = (self.own.isa.vector_bytes() / 4) as i64;
        let contiguous = |t: &Tile| self.kernel.buffer(t.buffer).strides.last() == Some(&1);
        let f32s = [dst, src].iter().all(|t| self.kernel.buffer(t.buffer).dtype == DType::F32);
        // Below four lanes there is nothing to gain.
        if !f32s
            || !contiguous(dst)
            || !contiguous(src)
            || self.in_variables(dst.buffer)
            || n < 4
            || n > i64::from(u16::MAX)
        {
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
        let to = Chunk { start: rows[0] as u16, len: rows[1] as u16 };
        let (m, _) = extents(src);
        self.braces("{", |p| {
            p.line(&format!("{ty} {name}[{}] = {{", v.width));
            texts.iter().for_each(|t| p.line(&format!("  {t},")));
            p.line("};");
            let f = p.prelude.call(Helper::Transpose(v));
            p.line(&format!("{f}({name});"));
            for j in 0..columns[1] {
                let target = row(dst, columns[0] + j, m);
                let run = p.run(dst.buffer, &target, to).map_err(|no| no.or("a transposition"))?;
                let line = if rows[1] == v.width as i64 || p.has_spare_lanes(dst.buffer, &target, to, v) {
                    format!("{}({}, {name}[{j}]);", p.prelude.call(Helper::Store(v, DType::F32)), run.pointer)
                } else {
                    let f = p.prelude.call(Helper::StorePart(v, DType::F32));
                    format!("{f}({}, {name}[{j}], {});", run.pointer, rows[1])
                };
                p.line(&line);
            }
            Ok(())
        })
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
