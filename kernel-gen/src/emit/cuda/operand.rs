//! Loads of a warp's operands from memory into registers.

use super::body::Body;
use super::fragment::{extents, spanned};
use super::multiple::is_multiple;
use super::ptx::Ptx;
use super::role::Role;
use crate::analysis::simplify::simplify;
use crate::emit::EmitError;
use crate::emit::clike::text::strength::SUM;
use crate::ir::{BufferId, DType, Expr, LANE_COLUMNS, Operand, Scope, Tile, Unit, VarId};
use crate::target::CudaFeature;

/// Bytes of a row of the matrices of eight rows that `ldmatrix` brings.
const ROW_BYTES: i64 = 16;

/// Where a tile lies in memory.
pub(super) struct Place {
    buffer: BufferId,
    pub(super) offset: Expr,
    /// Distances of rows and of columns.
    pub(super) strides: [i64; 2],
}

impl Place {
    /// The offset of an element.
    fn at(&self, row: Expr, column: Expr) -> Expr {
        self.offset.clone() + row * self.strides[0] + column * self.strides[1]
    }
}

impl Body<'_> {
    /// Where a tile of memory lies.
    pub(super) fn place(&self, t: &Tile) -> Place {
        let strides = spanned(t).map(|d| self.kernel.buffer(t.buffer).strides[d]);
        Place { buffer: t.buffer, offset: self.offset(t.buffer, &t.origin), strides }
    }

    /// Loads an operand from memory: by `ldmatrix` where rows of eight elements lie aligned in shared memory, else
    /// element by element.
    pub(super) fn load_operand(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let memory = self.kernel.buffer(src.buffer);
        if memory.dtype != self.kernel.buffer(dst.buffer).dtype {
            return Err(EmitError::in_cuda("an operand that is converted as it is loaded"));
        }
        let place = self.place(src);
        let strides = place.strides;
        let (rows, columns) = extents(dst);
        // Elements of the eight rows' 16 bytes.
        let row = ROW_BYTES / memory.dtype.bytes() as i64;
        let aligned = strides[1] == 1 && strides[0] % row == 0 && is_multiple(&place.offset, row);
        let fits = memory.scope == Scope::Shared && aligned && rows % 16 == 0;
        match self.role(dst.buffer)? {
            Role::Sums => Err(EmitError::NotLowered { what: "a move of sums".into(), pass: "distribute_fragments" }),
            role if fits && columns % (2 * row) == 0 => self.ldmatrix(dst, role, &place),
            _ if memory.dtype.is_byte() => {
                Err(EmitError::in_cuda("an operand of bytes, but from aligned rows of 16 bytes in shared memory"))
            }
            role @ Role::Left { transposed: false } if fits && columns == 8 => self.ldmatrix(dst, role, &place),
            role => self.load_elements(dst, role, &place),
        }
    }

    fn ldmatrix(&mut self, dst: &Tile, role: Role, place: &Place) -> Result<(), EmitError> {
        let lane = Expr::Var(self.own.lane);
        let (rows, columns) = extents(dst);
        let row_of = ROW_BYTES / self.kernel.buffer(dst.buffer).dtype.bytes() as i64;
        // Lane l points to row l % 8 of matrix l / 8, and matrix i becomes register i: of a left operand eight rows down
        // before eight along the reduction, of a right one the other way around and then the next eight columns.
        let low = lane.clone().floor_mod(8);
        let [second, third] = [lane.clone().floor_div(8).floor_mod(2) * 8, lane.clone().floor_div(16) * 8];
        let [second_along, third_along] =
            [second.clone(), third.clone()].map(|e| simplify(&(e * (row_of / 8)), &self.ranges));
        let (turned, down, along) = match role {
            // Eight columns of a left operand are the first or the last eight of a base matrix: what lies in memory need
            // not be one matrix of sixteen, as where the rows of a convolution's input overlap. Lanes from 16 on say
            // nothing; theirs are the rows of the others.
            Role::Left { transposed: false } if columns == 8 => (false, lane.floor_mod(16), Expr::Int(0)),
            Role::Left { transposed: false } => (false, low + second, third_along),
            Role::Left { transposed: true } => (true, low + third, second_along),
            Role::Right { transposed: false } => (true, low + second, third_along),
            Role::Right { transposed: true } | Role::Sums => (false, low + third, second_along),
        };
        let load = self.ptx(if columns == 8 { Ptx::LdmatrixHalf } else { Ptx::Ldmatrix { transposed: turned } });
        for row in (0..rows).step_by(16) {
            for column in (0..columns).step_by(2 * row_of as usize) {
                let from = self.address(place, down.clone() + row, along.clone() + column)?;
                let first = self.registers_at(dst, row, column)?;
                self.line(&format!("{load}({first}, {from});"));
            }
        }
        Ok(())
    }

    /// Loads rows of global memory into a left operand, 16 bytes a lane at a time, in
    /// [`lane_order`](crate::ir::lane_order).
    pub(super) fn load_rows(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        let Role::Left { transposed: false } = self.role(dst.buffer)? else {
            return Err(EmitError::in_cuda("rows moved into what is no left operand"));
        };
        let load = self.ptx(Ptx::LoadRow);
        let [down, across] = spanned(src);
        let shape = self.kernel.buffer(src.buffer).shape.clone();
        let (rows, columns) = extents(dst);
        let lane = Expr::Var(self.own.lane);
        let (quad, piece) = (lane.clone().floor_div(4), lane.floor_mod(4) * 8);
        for row in (0..rows).step_by(8) {
            for column in (0..columns).step_by(LANE_COLUMNS as usize) {
                let mut at = src.origin.clone();
                at[down] = at[down].clone() + quad.clone() + row;
                at[across] = at[across].clone() + piece.clone() + column;
                // Nothing is asked about what the ranges say.
                let asked = at.iter().zip(&shape).enumerate().flat_map(|(d, (i, n))| {
                    let last = if d == across { i.clone() + 7 } else { i.clone() };
                    [Expr::Int(0).le(i.clone()), last.lt(*n)].map(|e| simplify(&e, &self.ranges))
                });
                let exists = Expr::all(asked.filter(|e| *e != Expr::bool(true)));
                let exists = self.condition(exists.as_ref())?;
                let from = self.pointer(src.buffer, &at)?;
                // Of sixteen rows the lower eight are the odd registers.
                let [low, high] = [0, 16].map(|k| self.register(dst, row / 16 * 16, column + k, row / 8 % 2));
                let line = format!("{load}(&{}, &{}, {from}, {exists});", low?, high?);
                self.line(&line);
            }
        }
        Ok(())
    }

    /// Fills a left operand with the parts of what lies in memory. A thread holds of 16 rows and 32 bytes of columns those
    /// four registers whose row is its lane's quarter, modulo 8, and whose column, as numbers of 4 bytes, its place in that,
    /// modulo 4.
    pub(super) fn split(&mut self, dst: &Tile, src: &Operand) -> Result<(), EmitError> {
        self.need(CudaFeature::CpAsync, "an operand in tf32 or bf16")?;
        let memory = self.kernel.buffer(src.tile.buffer);
        let mut strides = spanned(&src.tile).map(|d| memory.strides[d]);
        if src.transposed {
            strides.reverse();
        }
        let place = Place { buffer: src.tile.buffer, offset: self.offset(src.tile.buffer, &src.tile.origin), strides };
        let (Role::Left { transposed: false }, [parts, rows, columns]) = (self.role(dst.buffer)?, &dst.extents[..])
        else {
            return Err(EmitError::in_cuda("a split into what is no left operand"));
        };
        let (parts, rows, columns) = (*parts, *rows, *columns);
        let warpgroup = self.kernel.buffer(dst.buffer).scope == Scope::Fragment(Unit::Warpgroup);
        let quad = Expr::Var(self.own.lane).floor_div(4);
        // The four warps of a warpgroup hold sixteen rows each.
        let (first, held) = if warpgroup { (Expr::Var(self.own.warp) * 16 + quad, rows / 4) } else { (quad, rows) };
        let pairs = self.kernel.buffer(dst.buffer).dtype == DType::Bf16;
        let width = if pairs { 2 } else { 1 };
        let column = Expr::Var(self.own.lane).floor_mod(4) * width;
        for row in (0..held).step_by(16) {
            for step in (0..columns).step_by(8 * width as usize) {
                for i in 0..4 {
                    let (down, along) = (row + i % 2 * 8, step + i / 2 * 4 * width);
                    let mut register = |part: i64| {
                        let mut tile = dst.clone();
                        tile.origin[0] = tile.origin[0].clone() + part;
                        self.register(&tile, row, step, i)
                    };
                    let registers = (0..parts).map(&mut register).collect::<Result<Vec<_>, _>>()?;
                    let (row, column) = (first.clone() + down, column.clone() + along);
                    match pairs {
                        true => self.split_pair(&registers, &place, row, column)?,
                        false => self.split_single(&registers, &place, row, column)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Fills a register for each part in tf32 of an element.
    fn split_single(&mut self, to: &[String], place: &Place, row: Expr, column: Expr) -> Result<(), EmitError> {
        let at = simplify(&place.at(row, column), &self.ranges);
        let value = self.single(place.buffer, &at)?;
        let line = match to {
            [whole, rest] => format!("{}({whole}, {rest}, {value});", self.ptx(Ptx::SplitTf32)),
            _ => format!("{} = __float_as_uint({}({value}));", to[0], self.ptx(Ptx::RoundTf32)),
        };
        self.line(&line);
        Ok(())
    }

    /// Fills a register for each part in bf16 of an element and the next one of its row.
    fn split_pair(&mut self, to: &[String], place: &Place, row: Expr, column: Expr) -> Result<(), EmitError> {
        let split = self.ptx(Ptx::SplitBf16 { parts: to.len() as i64 });
        let [down, along] = place.strides;
        // One load where they always lie in the same eight bytes; an address map moves sixteen.
        let [low, high] = if along == 1 && down % 2 == 0 && is_multiple(&place.offset, 2) {
            let address = self.address(place, row, column)?;
            let pair = self.names.fresh("pair");
            self.line(&format!("const float2 {pair} = *(const float2 *)({address});"));
            ["x", "y"].map(|half| format!("{pair}.{half}"))
        } else {
            let [low, high] = [0, 1].map(|next| place.at(row.clone(), column.clone() + next));
            [self.single(place.buffer, &low)?, self.single(place.buffer, &high)?]
        };
        self.line(&format!("{split}({}, {low}, {high});", to.join(", ")));
        Ok(())
    }

    fn load_elements(&mut self, dst: &Tile, role: Role, place: &Place) -> Result<(), EmitError> {
        let (r, c, registers) = self.base(dst.buffer)?;
        let (rows, columns) = extents(dst);
        let lane = Expr::Var(self.own.lane);
        let (quad, pair) = (lane.clone().floor_div(4), lane.floor_mod(4) * 2);
        // Whether the reduction runs down the tile's rows.
        let down = matches!(role, Role::Left { transposed: true } | Role::Right { transposed: false });
        let [inner, outer] = if down { place.strides } else { [place.strides[1], place.strides[0]] };
        // Of a left operand eight along the reduction may be wanted alone.
        let depth = if down { rows } else { columns };
        // Two neighbours along the reduction are one load where they lie so.
        let whole = inner == 1 && outer % 2 == 0 && is_multiple(&place.offset, 2);
        for row in (0..rows).step_by(r as usize) {
            for column in (0..columns).step_by(c as usize) {
                for i in 0..registers {
                    // Register i of four: rows 8 (i % 2) and reduction 8 (i / 2); of two: reduction 8 i.
                    let (other, along) = if registers == 4 { (i % 2 * 8, i / 2 * 8) } else { (0, i * 8) };
                    if along >= depth {
                        continue;
                    }
                    let (other, along) = (quad.clone() + other, pair.clone() + along);
                    let at = |plus: i64| match down {
                        true => place.at(along.clone() + (row + plus), other.clone() + column),
                        false => place.at(other.clone() + row, along.clone() + (column + plus)),
                    };
                    let value = if whole {
                        format!("*(const unsigned *)({})", self.address_of(place.buffer, at(0))?)
                    } else {
                        let [low, high] = [self.single(place.buffer, &at(0))?, self.single(place.buffer, &at(1))?];
                        format!("{low} | (unsigned){high} << 16")
                    };
                    let register = self.register(dst, row, column, i)?;
                    self.line(&format!("{register} = {value};"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn address(&mut self, place: &Place, row: Expr, column: Expr) -> Result<String, EmitError> {
        self.address_of(place.buffer, place.at(row, column))
    }

    /// The address of the element at an offset.
    pub(super) fn address_of(&mut self, b: BufferId, offset: Expr) -> Result<String, EmitError> {
        let offset = simplify(&offset, &self.ranges);
        let text = self.integer(&offset)?.text.at(SUM);
        let text = self.swizzled(b, text);
        Ok(format!("{} + {text}", self.names.buffer(b)))
    }

    /// The declaration of this thread's lane in its warp.
    pub(super) fn lane_declaration(&self, lane: VarId) -> String {
        let thread =
            if self.own.block[0].is_multiple_of(32) { "threadIdx.x".to_string() } else { self.thread_number() };
        format!("  const int {} = (int)({thread} % 32);\n", self.names.var(lane))
    }

    /// The declaration of the number of this thread's warp in its warpgroup.
    pub(super) fn warp_declaration(&self, warp: VarId) -> String {
        format!("  const int {} = (int)({} / 32 % 4);\n", self.names.var(warp), self.thread_number())
    }

    /// The number of this thread in its block.
    fn thread_number(&self) -> String {
        match self.own.block {
            [_, 1, 1] => "threadIdx.x".to_string(),
            [x, y, _] => format!("(threadIdx.x + {x} * (threadIdx.y + {y} * threadIdx.z))"),
        }
    }
}
