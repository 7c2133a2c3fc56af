//! Tiles that a warp or warpgroup holds, as register arrays of each thread.
//!
//! What a fragment is for decides how its elements lie: sums as described in [`crate::ir::gpu`], operands of a warp as
//! `mma.m16n8k16` takes them (PTX ISA, "Matrix Fragments for mma.m16n8k16"): 32-bit registers of two neighbours along
//! the reduction, the base matrices of a tile one behind the other. Sums in `f16` are registers of two neighbours in a row.
//!
//! Before compute capability 7.5 the base matrices are those of [`super::wmma`].

use super::body::Body;
use super::prelude::Helper;
use super::ptx::Ptx;
use super::role::Role;
use crate::analysis::simplify::simplify;
use crate::emit::EmitError;
use crate::emit::clike::text::strength::SUM;
use crate::ir::{Buffer, BufferId, DType, Expr, Operand, Scope, Tile, Unit};
use crate::target::CudaFeature;

/// Rows, columns and the number of matrices that a fragment holds: its last two dimensions, and all others.
fn matrices(b: &Buffer) -> (i64, i64, i64) {
    match b.shape[..] {
        [ref outer @ .., rows, columns] => (rows, columns, outer.iter().product()),
        _ => (1, 1, 1),
    }
}

/// The number of the matrix at outer indices.
fn matrix(b: &Buffer, outer: &[Expr]) -> Expr {
    outer.iter().zip(&b.shape).fold(Expr::Int(0), |matrix, (i, n)| matrix * *n + i.clone())
}

impl Body<'_> {
    /// The role of a fragment.
    pub(super) fn role(&self, b: BufferId) -> Result<Role, EmitError> {
        self.own.roles.get(&b).copied().ok_or_else(|| {
            EmitError::in_cuda(format!("fragment `{}`, which no product uses", self.kernel.buffer(b).name))
        })
    }

    /// The base matrix of a fragment: rows, columns, and registers that a thread has of it.
    pub(super) fn base(&self, b: BufferId) -> Result<(i64, i64, i64), EmitError> {
        let (role, dtype) = (self.role(b)?, self.kernel.buffer(b).dtype);
        Ok(if self.own.arch.has_opaque_fragments() { role.wmma_base(dtype) } else { role.base(dtype) })
    }

    /// The unit that holds a fragment.
    fn unit(&self, b: BufferId) -> Unit {
        match self.kernel.buffer(b).scope {
            Scope::Fragment(unit) => unit,
            _ => Unit::Warp,
        }
    }

    /// Registers that a thread has of one of a fragment's matrices.
    fn registers_of_matrix(&self, b: BufferId) -> Result<i64, EmitError> {
        let buffer = self.kernel.buffer(b);
        let (rows, columns, _) = matrices(buffer);
        let (r, c, registers) = self.base(b)?;
        let fits = match self.unit(b) {
            // The four warps hold sixteen rows each.
            Unit::Warpgroup => rows == 64 && columns % c == 0,
            Unit::Warp => rows % r == 0 && columns % c == 0,
        };
        let dtype_fits = match self.role(b)? {
            Role::Sums if buffer.dtype == DType::F16 => self.unit(b) == Unit::Warp,
            Role::Sums => matches!(buffer.dtype, DType::F32 | DType::I32),
            Role::Left { transposed: false } if buffer.dtype == DType::F32 => true,
            // Bytes lie along the reduction.
            Role::Left { transposed: false } | Role::Right { transposed: true } if buffer.dtype.is_byte() => {
                self.unit(b) == Unit::Warp
            }
            _ => matches!(buffer.dtype, DType::F16 | DType::Bf16),
        };
        if !fits || !dtype_fits {
            let what = format!(
                "fragment `{}` of {rows} x {columns} {}: tensor cores hold it in pieces of {r} x {c}, sums in f32, i32 \
                 or, of a warp, in f16, operands in f16, bf16, i8, u8, or the left one in f32",
                buffer.name, buffer.dtype
            );
            return Err(EmitError::in_cuda(what));
        }
        let threads = if self.unit(b) == Unit::Warpgroup { 4 } else { 1 };
        Ok(rows / r * (columns / c) * registers / threads)
    }

    /// Registers that a thread has of a fragment.
    pub(super) fn registers(&self, b: BufferId) -> Result<i64, EmitError> {
        let (_, _, count) = matrices(self.kernel.buffer(b));
        Ok(count * self.registers_of_matrix(b)?)
    }

    /// The declaration of a fragment.
    pub(super) fn fragment_alloc(&mut self, b: BufferId) -> Result<(), EmitError> {
        if !self.own.roles.contains_key(&b) {
            return Ok(());
        }
        let n = self.registers(b)?;
        if self.role(b)? == Role::Sums {
            self.own.live_sums.insert(b);
        }
        let ty = match (self.role(b)?, self.kernel.buffer(b).dtype) {
            (Role::Sums, DType::F16) => self.ptx(Ptx::HalfPair),
            (Role::Sums, DType::I32) => "int".to_string(),
            (Role::Sums, _) => "float".to_string(),
            _ => "unsigned".to_string(),
        };
        self.line(&format!("{ty} {}[{n}];", self.names.buffer(b)));
        Ok(())
    }

    /// The lvalue of an element of sums in the thread that holds it.
    pub(super) fn sums_element(&mut self, b: BufferId, indices: &[Expr]) -> Result<String, EmitError> {
        let element = self.sums_place(b, indices)?;
        if self.kernel.buffer(b).dtype != DType::F16 {
            let register = self.index(&element)?;
            return Ok(format!("{}[{register}]", self.names.buffer(b)));
        }
        let [pair, half] = [element.clone().floor_div(2), element.floor_mod(2)].map(|e| simplify(&e, &self.ranges));
        let [pair, half] = [self.index(&pair)?, self.index(&half)?];
        Ok(format!("{}[{pair}].half[{half}]", self.names.buffer(b)))
    }

    /// Which of the elements of sums that a thread holds an element is.
    fn sums_place(&self, b: BufferId, indices: &[Expr]) -> Result<Expr, EmitError> {
        if self.own.arch.has_opaque_fragments() {
            let what = format!(
                "single elements of the fragment `{}` on {}, where no thread knows which it holds; move tiles to memory",
                self.kernel.buffer(b).name,
                self.own.arch
            );
            return Err(EmitError::in_cuda(what));
        }
        if self.role(b)? != Role::Sums {
            return Err(EmitError::in_cuda(format!(
                "single elements of the operand `{}`; copy it with `move`",
                self.kernel.buffer(b).name
            )));
        }
        let buffer = self.kernel.buffer(b);
        let [outer @ .., row, column] = indices else { return Ok(Expr::Int(0)) };
        let (_, columns, _) = matrices(buffer);
        let matrix = matrix(buffer, outer);
        let held = row.clone().floor_mod(16).floor_div(8) * 2 + column.clone().floor_mod(2);
        let per_register = if buffer.dtype == DType::F16 { 2 } else { 1 };
        let of_matrix = self.registers_of_matrix(b)? * per_register;
        let mut element = matrix * of_matrix + column.clone().floor_div(8) * 4 + held;
        if self.unit(b) == Unit::Warp {
            element = element + row.clone().floor_div(16) * (columns / 8 * 4);
        }
        Ok(simplify(&element, &self.ranges))
    }

    /// The first register of the base matrix at an origin, as an index into the array.
    fn base_register(&self, b: BufferId, origin: &[Expr], row: i64, column: i64) -> Result<Expr, EmitError> {
        let buffer = self.kernel.buffer(b);
        let (rows, columns, _) = matrices(buffer);
        let (r, c, registers) = self.base(b)?;
        let [outer @ .., first_row, first_column] = origin else { return Ok(Expr::Int(0)) };
        let matrix = matrix(buffer, outer);
        let row = (first_row.clone() + row).floor_div(r);
        let row = if self.unit(b) == Unit::Warpgroup { Expr::Int(0) } else { row };
        let given = column;
        let column = (first_column.clone() + column).floor_div(c);
        // Base matrices that are neighbours along the product's columns lie one behind the other, so that one `ldmatrix`
        // loads two of them.
        let base = match self.role(b)? {
            Role::Right { transposed: true } => column * (rows / r) + row,
            _ => row * (columns / c) + column,
        };
        // The last eight columns of a left operand's base matrix are its last two registers.
        let half = match self.role(b)? {
            Role::Left { transposed: false } if c == 16 && !self.own.arch.has_opaque_fragments() => {
                (first_column.clone() + given).floor_mod(16).floor_div(8) * 2
            }
            _ => Expr::Int(0),
        };
        let register = matrix * self.registers_of_matrix(b)? + base * registers + half;
        Ok(simplify(&register, &self.ranges))
    }

    /// A register of the base matrix at an origin.
    pub(super) fn register(&mut self, t: &Tile, row: i64, column: i64, i: i64) -> Result<String, EmitError> {
        let index = simplify(&(self.base_register(t.buffer, &t.origin, row, column)? + i), &self.ranges);
        let index = self.index(&index)?;
        Ok(format!("{}[{index}]", self.names.buffer(t.buffer)))
    }

    /// A pointer to registers of a fragment.
    pub(super) fn registers_at(&mut self, t: &Tile, row: i64, column: i64) -> Result<String, EmitError> {
        let register = self.base_register(t.buffer, &t.origin, row, column)?;
        self.plain_pointer(t.buffer, &register)
    }

    /// Sets all registers of a tile.
    pub(super) fn fill(&mut self, dst: &Tile, value: &Expr) -> Result<(), EmitError> {
        let (role, is_byte) = (self.role(dst.buffer)?, self.kernel.buffer(dst.buffer).dtype.is_byte());
        let zero = matches!(value, Expr::Float(v, _) if *v == 0.0);
        if role != Role::Sums && !zero && !is_byte {
            return Err(EmitError::in_cuda("an operand filled with other than zero"));
        }
        let (rows, columns) = extents(dst);
        let (r, c, registers) = self.base(dst.buffer)?;
        let unit = self.unit(dst.buffer);
        let rows = if unit == Unit::Warpgroup { 1 } else { rows / r };
        let (member, text) = match (role, self.kernel.buffer(dst.buffer).dtype) {
            (Role::Sums, DType::F16) if zero => (".both", "0".to_string()),
            (Role::Sums, DType::F16) => {
                let value = self.scalar(value)?.text;
                (".both", format!("{}({value}, {value})", self.prelude.call(Helper::NarrowPair(DType::F16))))
            }
            (Role::Sums, _) => ("", self.scalar(value)?.text),
            // The same byte four times.
            _ if is_byte => ("", format!("((unsigned)({}) & 255) * 0x01010101u", self.integer(value)?.text.text)),
            _ => ("", "0".to_string()),
        };
        // The base matrices of a row of sums lie one behind the other.
        let run = if role == Role::Sums { columns } else { c };
        let i = self.names.fresh("i");
        for row in 0..rows {
            for column in (0..columns).step_by(run as usize) {
                let first = self.base_register(dst.buffer, &dst.origin, row * r, column)?;
                let index = match first {
                    Expr::Int(0) => i.clone(),
                    first => format!("{} + {i}", self.integer(&first)?.text.at(SUM)),
                };
                let (n, name) = (run / c * registers, self.names.buffer(dst.buffer).to_string());
                self.line("#pragma unroll");
                self.line(&format!("for (int {i} = 0; {i} < {n}; ++{i}) {name}[{index}]{member} = {text};"));
            }
        }
        Ok(())
    }

    /// Rounds sums to a left operand of the same shape: the elements of a base matrix lie in the same threads.
    pub(super) fn round_sums(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let roles = (self.role(dst.buffer)?, self.role(src.buffer)?);
        if roles != (Role::Left { transposed: false }, Role::Sums) {
            return Err(EmitError::in_cuda("a move between fragments, but for sums that become a left operand"));
        }
        let narrow = self.prelude.call(Helper::NarrowPair(self.kernel.buffer(dst.buffer).dtype));
        let (rows, columns) = extents(dst);
        // Of a warpgroup's 64 rows each warp has sixteen.
        let rows = if self.unit(dst.buffer) == Unit::Warpgroup { 16 } else { rows };
        for row in (0..rows).step_by(16) {
            for column in (0..columns).step_by(16) {
                for i in 0..4 {
                    // Register i has eight rows further down if it is odd, eight columns further right in the second half.
                    let [low, high] = [0, 1].map(|next| self.register(src, row, column + i / 2 * 8, i % 2 * 2 + next));
                    let (low, high, to) = (low?, high?, self.register(dst, row, column, i)?);
                    self.line(&format!("{to} = {narrow}({low}, {high});"));
                }
            }
        }
        Ok(())
    }

    /// Refuses operands that the architecture's tensor cores do not take in a warp: before 8.0 all but `f16`.
    pub(super) fn need_operands(&self, dtype: DType) -> Result<(), EmitError> {
        if dtype == DType::F16 {
            return Ok(());
        }
        // The same architectures have both.
        self.need(CudaFeature::CpAsync, &format!("a product of a warp in {dtype}"))
    }

    /// `sums += a * b` of a warp, as `mma.sync` on base matrices of 16 x 8 sums and a reduction of 16, of bytes of 32. That is what
    /// `wmma`, on 16 x 16, becomes, too, but here it is known which register of which thread holds an element (see
    /// [`crate::ir::gpu`]).
    pub(super) fn warp_mma(&mut self, acc: &Tile, a: &Operand, b: &Operand) -> Result<(), EmitError> {
        let [left, right, sums] = [a.tile.buffer, b.tile.buffer, acc.buffer].map(|b| self.kernel.buffer(b).dtype);
        self.need_operands(left)?;
        let step = 32 / left.bytes();
        let (m, n) = extents(acc);
        let depth = if a.transposed { extents(&a.tile).0 } else { extents(&a.tile).1 };
        let (product, columns) = if self.own.arch.has_opaque_fragments() {
            [acc, &a.tile, &b.tile].into_iter().try_for_each(|t| self.whole(t).map(drop))?;
            (Ptx::Wmma { sums, transposed: [a.transposed, b.transposed] }, 16)
        } else {
            (Ptx::Mma { dtypes: [left, right], sums }, 8)
        };
        let product = self.ptx(product);
        let order = |transposed: bool, i: i64, j: i64| if transposed { (j, i) } else { (i, j) };
        for k in (0..depth).step_by(step) {
            for i in (0..m).step_by(16) {
                let (row, column) = order(a.transposed, i, k);
                let left = self.registers_at(&a.tile, row, column)?;
                for j in (0..n).step_by(columns) {
                    let (row, column) = order(b.transposed, k, j);
                    let right = self.registers_at(&b.tile, row, column)?;
                    let sums = self.registers_at(acc, i, j)?;
                    self.line(&format!("{product}({sums}, {left}, {right});"));
                }
            }
        }
        Ok(())
    }
}

/// The two dimensions that a tile spans: those longer than 1 if there are two, the last two otherwise.
pub(super) fn spanned(t: &Tile) -> [usize; 2] {
    let long: Vec<usize> = (0..t.extents.len()).filter(|d| t.extents[*d] > 1).collect();
    match long[..] {
        [a, b] => [a, b],
        _ => [t.extents.len().saturating_sub(2), t.extents.len().saturating_sub(1)],
    }
}

/// Rows and columns of a tile.
pub(super) fn extents(t: &Tile) -> (i64, i64) {
    let [r, c] = spanned(t);
    (t.extents.get(r).copied().unwrap_or(1), t.extents.get(c).copied().unwrap_or(1))
}
