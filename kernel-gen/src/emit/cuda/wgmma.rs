//! Products of a warpgroup, straight from shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
//!
//! An operand is a descriptor: where the matrix starts and how far apart its pieces are. With the rows of `swizzle`
//! bytes that the copy engine writes, pieces are eight rows. If the reduction runs along rows, a step of 16 moves 32 bytes
//! into them; if it runs across them (*transposed* in the instruction's words), a step is 16 rows, and what does not fit
//! into a row lies in the next block of rows.

use super::body::Body;
use super::fragment::extents;
use super::multiple::is_multiple;
use super::ptx::Ptx;
use crate::emit::EmitError;
use crate::emit::clike::text::strength::SUM;
use crate::ir::{BufferId, DType, Expr, GROUP_ROWS, Operand, Scope, Stmt, Tile, Unit};
use crate::target::CudaFeature;
use std::collections::BTreeSet;

/// Bytes of an operand's row in one instruction.
const STEP_BYTES: i64 = 32;

/// An operand of all the steps of a product.
struct Descriptor {
    /// The variable that holds the descriptor of the first step.
    name: String,
    /// Its growth in each step, in units of 16 bytes, one a step.
    offsets: Vec<i64>,
    /// Whether the reduction runs across rows.
    across: bool,
}

impl Descriptor {
    /// The operand of a step.
    fn at(&self, step: usize) -> String {
        match self.offsets[step] {
            0 => self.name.clone(),
            offset => format!("{} + {offset}", self.name),
        }
    }
}

impl Body<'_> {
    pub(super) fn warpgroup_mma(&mut self, acc: &Tile, a: &Operand, b: &Operand) -> Result<(), EmitError> {
        self.need(CudaFeature::Wgmma, "a product of a warpgroup")?;
        let dtypes = [a, b].map(|operand| self.kernel.buffer(operand.tile.buffer).dtype);
        let [dtype, other] = dtypes;
        let one_kind = matches!(dtype, DType::F16 | DType::Bf16 | DType::F32) && other == dtype;
        if !one_kind && !dtypes.iter().all(|d| d.is_byte()) && !dtypes.iter().all(|d| d.is_f8()) {
            let types = "f16, bf16 or f32, i8 and u8, or e4m3 and e5m2";
            let what = format!("a product of {dtype} and {other} in a warpgroup; use {types}");
            return Err(EmitError::in_cuda(what));
        }
        let (m, n) = extents(acc);
        if m != 64 || n % 8 != 0 || !(8..=256).contains(&n) {
            let what = format!("a product of {m} x {n} sums; a warpgroup has 64 rows and 8 to 256 columns");
            return Err(EmitError::in_cuda(what));
        }
        if dtype.bytes() != 2 && (a.transposed || !b.transposed) {
            let what = format!("a product of {dtype} in a warpgroup, but for operands whose reduction runs along rows");
            return Err(EmitError::in_cuda(what));
        }
        // The left operand may be in registers.
        let held = self.kernel.buffer(a.tile.buffer).scope == Scope::Fragment(Unit::Warpgroup);
        if held && dtype.bytes() == 1 {
            return Err(EmitError::in_cuda(format!("a product of a warpgroup with {dtype} in registers")));
        }
        let (left, depth) = match held {
            true => (None, extents(&a.tile).1),
            false => self.descriptor(&a.tile, m, (a.transposed, a.is_grouped(m))).map(|(d, depth)| (Some(d), depth))?,
        };
        let (right, other) = self.descriptor(&b.tile, n, (!b.transposed, false))?;
        if depth != other {
            return Err(EmitError::in_cuda(format!("a product whose reductions are {depth} and {other} long")));
        }
        self.own.open_group.insert(acc.buffer);
        let sums = self.registers_at(acc, 0, 0)?;
        let mma = self.ptx(match &left {
            Some(left) => Ptx::Wgmma { columns: n, dtypes, transposed: [left.across, right.across], adds: true },
            None => Ptx::WgmmaHeld { columns: n, dtype, transposed: right.across },
        });
        let first = match (&left, std::mem::take(&mut self.own.from_zero)) {
            (Some(left), true) => {
                let transposed = [left.across, right.across];
                self.ptx(Ptx::Wgmma { columns: n, dtypes, transposed, adds: false })
            }
            _ => mma.clone(),
        };
        for step in 0..right.offsets.len() {
            let left = match &left {
                Some(left) => left.at(step),
                None => self.registers_at(&a.tile, 0, step as i64 * (STEP_BYTES / dtype.bytes() as i64))?,
            };
            let mma = if step == 0 { &first } else { &mma };
            self.line(&format!("{mma}({sums}, {left}, {});", right.at(step)));
        }
        Ok(())
    }

    /// Declares the descriptor of a tile with `outer` elements beside the reduction, which runs across the tile's rows or
    /// along them, and whose groups of rows may stand one below the other; and how long the reduction is.
    fn descriptor(
        &mut self,
        t: &Tile,
        outer: i64,
        (across, below): (bool, bool),
    ) -> Result<(Descriptor, i64), EmitError> {
        let buffer = self.kernel.buffer(t.buffer);
        let (bytes, swizzle) = (buffer.dtype.bytes() as i64, i64::from(buffer.swizzle));
        let refuse =
            |why: String| Err(EmitError::in_cuda(format!("the operand `{}` of a warpgroup: {why}", buffer.name)));
        let [.., rows, columns] = t.extents[..] else { return refuse("it has fewer than two dimensions".into()) };
        let [.., row_stride, column_stride] = buffer.strides[..] else { return refuse("it has no rows".into()) };
        if swizzle == 0 || row_stride * bytes != swizzle || column_stride != 1 {
            return refuse(format!("its rows have {} bytes, and not a swizzle of that size", row_stride * bytes));
        }
        if rows % GROUP_ROWS != 0 || columns > row_stride {
            return refuse(format!("{rows} x {columns} elements are not whole pieces of eight rows"));
        }
        // Blocks of rows, by at most one further dimension.
        let blocks: Vec<(i64, i64)> = t.extents[..t.extents.len() - 2]
            .iter()
            .zip(&buffer.strides)
            .filter(|(n, _)| **n != 1)
            .map(|(n, s)| (*n, s * bytes))
            .collect();
        let (blocks, block_bytes) = match blocks[..] {
            [] => (1, 0),
            [one] => one,
            _ => return refuse("it has more than one dimension of blocks".into()),
        };
        // Groups one below the other may begin at any row: the address map is made of an address's bits, whatever row the
        // descriptor calls the first (seen on an H100, for every shift, distance of groups and swizzle).
        let (own, depth) = match (across, below) {
            (true, _) => (columns * blocks, rows),
            (false, true) => (rows * blocks, columns),
            (false, false) => (rows, columns * blocks),
        };
        // Elements of the reduction in one instruction.
        let step = STEP_BYTES / bytes;
        // Blocks may hold more columns than are multiplied.
        let enough = if across { own >= outer } else { own == outer };
        if !enough || depth % step != 0 {
            return refuse(format!(
                "{own} elements by a reduction of {depth}, where {outer} by a multiple of {step} fit"
            ));
        }
        // Where the row starts, and where in it: the address map depends on the former only.
        let (last, outer_origin) =
            t.origin.split_last().map_or((Expr::Int(0), vec![]), |(l, o)| (l.clone(), o.to_vec()));
        let start = self.offset(t.buffer, &outer_origin);
        let within = if across { columns } else { step };
        let starts = below || is_multiple(&start, GROUP_ROWS * row_stride);
        if !starts || !is_multiple(&last, within) {
            return refuse("it does not start with a piece of eight rows".into());
        }
        if blocks > 1 && !below && columns != row_stride {
            return refuse("its blocks are not whole rows".into());
        }
        let offset = self.offset(t.buffer, &t.origin);
        // Along rows only the distance of pieces counts; across them also that of the blocks which hold further columns.
        let leading = if across { block_bytes.max(16) } else { 16 };
        let piece = if below { block_bytes } else { GROUP_ROWS * swizzle };
        let mode: u64 = match swizzle {
            128 => 1,
            64 => 2,
            _ => 3,
        };
        let layout = (leading as u64 / 16) << 16 | (piece as u64 / 16) << 32 | mode << 62;
        let offsets = (0..depth / step)
            .map(|i| {
                let k = i * step;
                let at = if across { k * swizzle } else { k / columns * block_bytes + k % columns * bytes };
                at / 16
            })
            .collect();
        let make = self.ptx(Ptx::WgmmaOperand);
        let address = self.plain_pointer(t.buffer, &offset)?;
        let hint = format!("{}_operand", self.kernel.buffer(t.buffer).name);
        let name = self.names.fresh(&hint);
        self.line(&format!("const unsigned long long {name} = {make}({address}, {layout:#x}ULL);"));
        Ok((Descriptor { name, offsets, across }, depth))
    }

    /// The address of an element that begins a piece, which the address map leaves where it is.
    pub(super) fn plain_pointer(&mut self, b: BufferId, offset: &Expr) -> Result<String, EmitError> {
        let offset = match offset {
            Expr::Int(0) => return Ok(self.names.buffer(b).to_string()),
            offset => self.integer(offset)?.text.at(SUM),
        };
        Ok(format!("{} + {offset}", self.names.buffer(b)))
    }

    /// Before the first of a run of products: what the registers hold must be there.
    pub(super) fn begin_products(&mut self, run: &[Stmt]) -> Result<(), EmitError> {
        let (mut sums, mut operands) = (BTreeSet::new(), BTreeSet::new());
        for s in run {
            if let Stmt::Gpu(crate::ir::Gpu::Mma { acc, a, .. }) = s {
                sums.insert(acc.buffer);
                if self.kernel.buffer(a.tile.buffer).scope == Scope::Fragment(Unit::Warpgroup) {
                    operands.insert(a.tile.buffer);
                }
            }
        }
        for b in operands {
            let (n, settle) = (self.registers(b)?, self.ptx(Ptx::SettleOperand));
            self.line(&format!("{settle}<{n}>({});", self.names.buffer(b)));
        }
        self.settle_all(&sums)?;
        self.instruction("wgmma.fence.sync.aligned");
        Ok(())
    }

    /// After a wait for all but the `left` last groups of products: what reads the sums comes behind. Sums of products that are under
    /// way are left alone, or the assembler would have them waited for, too.
    pub(super) fn settle(&mut self, left: usize) -> Result<(), EmitError> {
        let under_way = self.own.groups.split_off(self.own.groups.len().saturating_sub(left));
        // A group that a loop's last iteration has left is none of these.
        let done = |b: &&BufferId| self.own.read_next.contains(b) && under_way.iter().all(|group| !group.contains(b));
        let done: BTreeSet<BufferId> = match left {
            0 => self.own.live_sums.clone(),
            _ => self.own.live_sums.iter().filter(done).copied().collect(),
        };
        self.own.groups = under_way;
        self.settle_all(&done)
    }

    fn settle_all(&mut self, sums: &BTreeSet<BufferId>) -> Result<(), EmitError> {
        for b in sums {
            if self.kernel.buffer(*b).scope == Scope::Fragment(Unit::Warpgroup) {
                let n = self.registers(*b)?;
                let settle = self.ptx(Ptx::Settle { sums: self.kernel.buffer(*b).dtype });
                self.line(&format!("{settle}<{n}>({});", self.names.buffer(*b)));
            }
        }
        Ok(())
    }
}
