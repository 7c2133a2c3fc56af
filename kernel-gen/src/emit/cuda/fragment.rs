//! Tiles that a warp or warpgroup holds, as register arrays of each thread.
//!
//! What a fragment is for decides how its elements lie: sums as described in [`crate::ir::gpu`], operands of a warp as
//! `mma.m16n8k16` takes them (PTX ISA, "Matrix Fragments for mma.m16n8k16"): 32-bit registers of two neighbours along
//! the reduction, the base matrices of a tile one behind the other.

use super::ptx::Ptx;
use super::{Body, EmitError};
use crate::analysis::simplify::simplify;
use crate::emit::text::strength::SUM;
use crate::ir::{Buffer, BufferId, DType, Expr, Gpu, Kernel, Operand, Scope, Stmt, Tile, Unit};
use crate::target::CudaFeature;
use std::collections::BTreeMap;

/// What a fragment is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It is added to.
    Sums,
    /// Left operand; whether it holds the transposed matrix.
    Left { transposed: bool },
    /// Right operand; whether it holds the transposed matrix.
    Right { transposed: bool },
}

/// The role of each fragment of the kernel.
pub(super) fn roles(kernel: &Kernel) -> Result<BTreeMap<BufferId, Role>, EmitError> {
    let mut roles: BTreeMap<BufferId, Role> = BTreeMap::new();
    let mut clash = None;
    for s in &kernel.body {
        s.walk(&mut |s| {
            let Stmt::Gpu(Gpu::Mma { unit, acc, a, b }) = s else { return };
            let mut note = |b: BufferId, role: Role| {
                if *roles.entry(b).or_insert(role) != role {
                    clash = Some(b);
                }
            };
            note(acc.buffer, Role::Sums);
            if *unit == Unit::Warp {
                note(a.tile.buffer, Role::Left { transposed: a.transposed });
                note(b.tile.buffer, Role::Right { transposed: b.transposed });
            }
        });
    }
    match clash {
        Some(b) => Err(EmitError::Unsupported {
            what: format!("fragment `{}` in two roles; use one fragment for each operand", kernel.buffer(b).name),
        }),
        None => Ok(roles),
    }
}

/// Rows, columns and the number of matrices that a fragment holds: its last two dimensions, and all others.
fn matrices(b: &Buffer) -> (i64, i64, i64) {
    match b.shape[..] {
        [ref outer @ .., rows, columns] => (rows, columns, outer.iter().product()),
        _ => (1, 1, 1),
    }
}

impl Role {
    /// Elements of a base matrix along the fragment's rows and columns, and registers that a thread has of one.
    fn base(self) -> (i64, i64, i64) {
        match self {
            Role::Sums => (16, 8, 4),
            Role::Left { .. } => (16, 16, 4),
            // Both orders are cut into pieces of 16 along the reduction and 8 along the columns.
            Role::Right { transposed: false } => (16, 8, 2),
            Role::Right { transposed: true } => (8, 16, 2),
        }
    }
}

impl Body<'_> {
    /// The role of a fragment.
    fn role(&self, b: BufferId) -> Result<Role, EmitError> {
        self.roles.get(&b).copied().ok_or_else(|| EmitError::Unsupported {
            what: format!("fragment `{}`, which no product uses", self.kernel.buffer(b).name),
        })
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
        let (r, c, registers) = self.role(b)?.base();
        let fits = match self.unit(b) {
            // The four warps hold sixteen rows each.
            Unit::Warpgroup => rows == 64 && columns % c == 0,
            Unit::Warp => rows % r == 0 && columns % c == 0,
        };
        let dtype_fits = match self.role(b)? {
            Role::Sums => buffer.dtype == DType::F32,
            _ => matches!(buffer.dtype, DType::F16 | DType::Bf16),
        };
        if !fits || !dtype_fits {
            let what = format!(
                "fragment `{}` of {rows} x {columns} {}: tensor cores hold it in pieces of {r} x {c}, sums in f32, \
                 operands in f16 or bf16",
                buffer.name, buffer.dtype
            );
            return Err(EmitError::Unsupported { what });
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
        if !self.roles.contains_key(&b) {
            return Ok(());
        }
        let n = self.registers(b)?;
        if self.role(b)? == Role::Sums {
            self.live_sums.insert(b);
        }
        let ty = if self.role(b)? == Role::Sums { "float" } else { "unsigned" };
        let line = format!("{ty} {}[{n}];", self.names.buffer(b));
        self.line(&line);
        Ok(())
    }

    /// The register of an element of sums in the thread that holds it.
    pub(super) fn sums_register(&self, b: BufferId, indices: &[Expr]) -> Result<Expr, EmitError> {
        if self.role(b)? != Role::Sums {
            return Err(EmitError::Unsupported {
                what: format!("single elements of the operand `{}`; copy it with `move`", self.kernel.buffer(b).name),
            });
        }
        let buffer = self.kernel.buffer(b);
        let [outer @ .., row, column] = indices else { return Ok(Expr::Int(0)) };
        let (_, columns, _) = matrices(buffer);
        let mut matrix = Expr::Int(0);
        for (i, n) in outer.iter().zip(&buffer.shape) {
            matrix = matrix * *n + i.clone();
        }
        let held = row.clone().floor_mod(16).floor_div(8) * 2 + column.clone().floor_mod(2);
        let mut register = matrix * self.registers_of_matrix(b)? + column.clone().floor_div(8) * 4 + held;
        if self.unit(b) == Unit::Warp {
            register = register + row.clone().floor_div(16) * (columns / 8 * 4);
        }
        Ok(simplify(&register, &self.ranges))
    }

    /// The first register of the base matrix at an origin, as an index into the array.
    fn base_register(&self, b: BufferId, origin: &[Expr], row: i64, column: i64) -> Result<Expr, EmitError> {
        let buffer = self.kernel.buffer(b);
        let (_, columns, _) = matrices(buffer);
        let (r, c, registers) = self.role(b)?.base();
        let [outer @ .., first_row, first_column] = origin else { return Ok(Expr::Int(0)) };
        let mut matrix = Expr::Int(0);
        for (i, n) in outer.iter().zip(&buffer.shape) {
            matrix = matrix * *n + i.clone();
        }
        let row = (first_row.clone() + row).floor_div(r);
        let row = if self.unit(b) == Unit::Warpgroup { Expr::Int(0) } else { row };
        let column = (first_column.clone() + column).floor_div(c);
        let register = matrix * self.registers_of_matrix(b)? + (row * (columns / c) + column) * registers;
        Ok(simplify(&register, &self.ranges))
    }

    /// A pointer to registers of a fragment.
    pub(super) fn registers_at(&mut self, t: &Tile, row: i64, column: i64) -> Result<String, EmitError> {
        let register = self.base_register(t.buffer, &t.origin, row, column)?;
        let name = self.names.buffer(t.buffer).to_string();
        Ok(match register {
            Expr::Int(0) => name,
            other => format!("{name} + {}", self.integer(&other)?.text.at(SUM)),
        })
    }

    /// Sets all registers of a tile.
    pub(super) fn fill(&mut self, dst: &Tile, value: &Expr) -> Result<(), EmitError> {
        let role = self.role(dst.buffer)?;
        let zero = matches!(value, Expr::Float(v, _) if *v == 0.0);
        if role != Role::Sums && !zero {
            return Err(EmitError::Unsupported { what: "an operand filled with other than zero".into() });
        }
        let (rows, columns) = extents(dst);
        let (r, c, registers) = role.base();
        let unit = self.unit(dst.buffer);
        let rows = if unit == Unit::Warpgroup { 1 } else { rows / r };
        let text = if role == Role::Sums { self.scalar(value)?.text } else { "0".to_string() };
        let i = self.names.fresh("i");
        for row in 0..rows {
            let first = self.base_register(dst.buffer, &dst.origin, row * r, 0)?;
            let index = match first {
                Expr::Int(0) => i.clone(),
                first => format!("{} + {i}", self.integer(&first)?.text.at(SUM)),
            };
            let (n, name) = (columns / c * registers, self.names.buffer(dst.buffer).to_string());
            self.line("#pragma unroll");
            self.line(&format!("for (int {i} = 0; {i} < {n}; ++{i}) {name}[{index}] = {text};"));
        }
        Ok(())
    }

    /// `sums += a * b` of a warp.
    pub(super) fn warp_mma(&mut self, acc: &Tile, a: &Operand, b: &Operand) -> Result<(), EmitError> {
        self.need(CudaFeature::CpAsync, "a product of a warp")?;
        let dtype = self.kernel.buffer(a.tile.buffer).dtype;
        let (m, n) = extents(acc);
        let depth = if a.transposed { extents(&a.tile).0 } else { extents(&a.tile).1 };
        let mma = self.ptx(Ptx::Mma(dtype));
        let order = |transposed: bool, i: i64, j: i64| if transposed { (j, i) } else { (i, j) };
        for k in (0..depth).step_by(16) {
            for i in (0..m).step_by(16) {
                let (row, column) = order(a.transposed, i, k);
                let left = self.registers_at(&a.tile, row, column)?;
                for j in (0..n).step_by(8) {
                    let (row, column) = order(b.transposed, k, j);
                    let right = self.registers_at(&b.tile, row, column)?;
                    let sums = self.registers_at(acc, i, j)?;
                    self.line(&format!("{mma}({sums}, {left}, {right});"));
                }
            }
        }
        Ok(())
    }

    /// Loads an operand from memory.
    pub(super) fn load_operand(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let role = self.role(dst.buffer)?;
        let (rows, columns) = extents(dst);
        let memory = self.kernel.buffer(src.buffer);
        let [row_dim, column_dim] = spanned(src);
        let shared = memory.scope == Scope::Shared;
        let offset = self.offset(src.buffer, &src.origin);
        let dense = memory.strides[column_dim] == 1;
        let row_stride = memory.strides[row_dim];
        // A row of eight elements is what one lane of ldmatrix points to: it must start at a multiple of 16 bytes.
        let aligned = super::vector::is_multiple(&offset, 8) && row_stride % 8 == 0;
        let pairs = rows % 16 == 0 && columns % 16 == 0;
        if !shared || !dense || !aligned || !pairs {
            return self.load_operand_elements(dst, src);
        }
        if memory.dtype != self.kernel.buffer(dst.buffer).dtype {
            return Err(EmitError::Unsupported { what: "an operand that is converted as it is loaded".into() });
        }
        let lane = self.lane();
        // Where the eight rows of each of the four matrices start, so that register i of an operand is matrix i; and
        // whether the reduction runs along memory's rows, so that the matrices are turned on the way.
        let (turned, down) = match role {
            Role::Left { transposed: false } => (false, (format!("{lane} % 16"), format!("{lane} / 16 * 8"))),
            Role::Left { transposed: true } => {
                (true, (format!("({lane} % 8 + {lane} / 16 * 8)"), format!("{lane} / 8 % 2 * 8")))
            }
            // Two neighbouring base matrices at once.
            Role::Right { transposed: false } => (true, (format!("{lane} % 16"), format!("{lane} / 16 * 8"))),
            Role::Right { transposed: true } => {
                (false, (format!("({lane} % 8 + {lane} / 16 * 8)"), format!("{lane} / 8 % 2 * 8")))
            }
            Role::Sums => {
                return Err(EmitError::NotLowered { what: "a move of sums".into(), pass: "distribute_fragments" });
            }
        };
        let load = self.ptx(Ptx::Ldmatrix { transposed: turned });
        for row in (0..rows).step_by(16) {
            for column in (0..columns).step_by(16) {
                let to = self.ldmatrix_target(dst, role, row, column)?;
                let at = simplify(&(offset.clone() + (row * row_stride + column)), &self.ranges);
                let at = self.integer(&at)?.text.text;
                let element = self.swizzled(src.buffer, format!("{at} + {} * {row_stride} + {}", down.0, down.1));
                let name = self.names.buffer(src.buffer).to_string();
                match to {
                    Target::Direct(to) => self.line(&format!("{load}({to}, {name} + {element});")),
                    Target::Split(first, second) => {
                        // The two base matrices do not lie behind each other.
                        let four = self.names.fresh("four");
                        self.line(&format!("unsigned {four}[4];"));
                        self.line(&format!("{load}({four}, {name} + {element});"));
                        self.line(&format!("({first})[0] = {four}[0], ({first})[1] = {four}[1];"));
                        self.line(&format!("({second})[0] = {four}[2], ({second})[1] = {four}[3];"));
                    }
                }
            }
        }
        Ok(())
    }

    /// The registers that one `ldmatrix` fills.
    fn ldmatrix_target(&mut self, dst: &Tile, role: Role, row: i64, column: i64) -> Result<Target, EmitError> {
        let first = self.registers_at(dst, row, column)?;
        let (rows, columns) = extents(dst);
        Ok(match role {
            Role::Right { transposed: false } if columns >= 16 => Target::Direct(first),
            Role::Right { transposed: true } if rows >= 16 => {
                let (_, c, _) = matrices(self.kernel.buffer(dst.buffer));
                // Base matrices go along the columns first: those of the next eight rows follow a whole row of them.
                if c == 16 {
                    Target::Direct(first)
                } else {
                    Target::Split(first, self.registers_at(dst, row + 8, column)?)
                }
            }
            _ => Target::Direct(first),
        })
    }

    /// Loads an operand element by element: from global memory, or where rows are not aligned.
    fn load_operand_elements(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let role = self.role(dst.buffer)?;
        let (r, c, registers) = role.base();
        let (rows, columns) = extents(dst);
        let memory = self.kernel.buffer(src.buffer);
        if memory.dtype != self.kernel.buffer(dst.buffer).dtype {
            return Err(EmitError::Unsupported { what: "an operand that is converted as it is loaded".into() });
        }
        let [row_dim, column_dim] = spanned(src);
        let strides = [memory.strides[row_dim], memory.strides[column_dim]];
        let offset = self.offset(src.buffer, &src.origin);
        let lane = self.lane();
        // Rows and columns of the product's operand: along the other dimension, and along the reduction.
        let transposed = matches!(role, Role::Left { transposed: true } | Role::Right { transposed: false });
        let [outer, inner] = if transposed { [strides[1], strides[0]] } else { strides };
        let whole = inner == 1 && outer % 2 == 0 && super::vector::is_multiple(&offset, 2) && memory.swizzle == 0;
        for row in (0..rows).step_by(r as usize) {
            for column in (0..columns).step_by(c as usize) {
                let to = self.registers_at(dst, row, column)?;
                let at = simplify(&(offset.clone() + (row * strides[0] + column * strides[1])), &self.ranges);
                let at = self.integer(&at)?.text.text;
                let name = self.names.buffer(src.buffer).to_string();
                for i in 0..registers {
                    // Register i of four: rows 8 (i % 2) and reduction 8 (i / 2); of two: reduction 8 i.
                    let (down, along) = if registers == 4 { (i % 2 * 8, i / 2 * 8) } else { (0, i * 8) };
                    let first =
                        format!("{at} + ({lane} / 4 + {down}) * {outer} + ({lane} % 4 * 2 + {along}) * {inner}");
                    let value = if whole {
                        format!("*(const unsigned *)({name} + {first})")
                    } else {
                        let (low, high) = (
                            self.swizzled(src.buffer, first.clone()),
                            self.swizzled(src.buffer, format!("{first} + {inner}")),
                        );
                        format!("{name}[{low}] | (unsigned){name}[{high}] << 16")
                    };
                    self.line(&format!("({to})[{i}] = {value};"));
                }
            }
        }
        Ok(())
    }

    /// The name of this thread's lane in its warp, which the function declares at its top.
    fn lane(&mut self) -> String {
        if self.lane.is_none() {
            self.lane = Some(self.names.fresh("lane"));
        }
        self.lane.clone().unwrap_or_default()
    }

    /// The declaration of the lane, if something asked for it.
    pub(super) fn lane_declaration(&self) -> Option<String> {
        let name = self.lane.as_ref()?;
        let [x, y, z] = self.block;
        let thread = if (y == 1 && z == 1) || x % 32 == 0 {
            "threadIdx.x".to_string()
        } else {
            format!("(threadIdx.x + {x} * (threadIdx.y + {y} * threadIdx.z))")
        };
        Some(format!("const int {name} = (int)({thread} % 32);"))
    }
}

/// Where `ldmatrix` puts its four registers.
enum Target {
    Direct(String),
    Split(String, String),
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
