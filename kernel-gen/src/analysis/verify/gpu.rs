//! Statements that only a GPU has, each on its own: operands, extents, and what the hardware takes.

use super::access::Site;
use super::fault::{Fault, FaultKind};
use super::types::Types;
use crate::analysis::simplify::{Sum, simplify};
use crate::ir::{DType, Expr, Gpu, Kernel, LANE_COLUMNS, MbarrierOp, Operand, Scope, Slot, Stmt, Tile, Unit};

/// Elements of a tensor's box along one dimension (CUDA Driver API, `cuTensorMapEncodeTiled`).
const MOST_BOX: i64 = 256;

/// Dimensions of a tensor that the copy engine knows, and its longest step (likewise).
const MOST_RANK: usize = 5;
const MOST_STEP: i64 = 8;

/// Bytes that an mbarrier counts, and arrivals (PTX ISA, "Contents of the mbarrier object").
const MOST_COUNT: i64 = (1 << 20) - 1;

/// Why a statement cannot be: the rule, what is wrong, and what to do about it.
pub(super) type Refusal = (FaultKind, String, &'static str);

/// Checks operands and extents of a statement.
pub(super) fn statement(kernel: &Kernel, types: &Types, g: &Gpu) -> Result<(), Refusal> {
    let c = Checker { kernel, types };
    let moves_bytes = matches!(g, Gpu::CopyAsync { .. });
    for t in g.all_tiles() {
        let checked = if moves_bytes { c.types.part(t) } else { c.types.tile(t) };
        let help = "name a tile of a buffer of floats, or of integers of 8 or 32 bits";
        checked.map_err(|cause| (FaultKind::TypeMismatch, cause, help))?;
    }
    match g {
        Gpu::Fill { dst, value } => {
            c.scope(dst, "fill is for", |s| matches!(s, Scope::Fragment(_)), "a fragment")?;
            let of = c.kernel.buffer(dst.buffer).dtype;
            c.scalar(value, "the value of fill", |d| d.is_float() == of.is_float() && d != DType::Bool)
        }
        Gpu::Move { dst, src } => c.movement(dst, src),
        Gpu::MoveRows { dst, src } => c.rows(dst, src),
        Gpu::Split { dst, src } => c.split(dst, src),
        Gpu::Mma { unit: Unit::Warp, acc, a, b } => c.warp_mma(acc, a, b),
        Gpu::Mma { unit: Unit::Warpgroup, acc, a, b } => c.warpgroup_mma(acc, a, b),
        Gpu::Lanes { op, dst, value } => {
            c.scope(dst, &format!("{} writes", op.name), Scope::is_private, "registers")?;
            c.scalar(value, &format!("the value of {}", op.name), |d| d == DType::F32)?;
            let element = c.kernel.buffer(dst.buffer).dtype;
            if element != DType::F32 || dst.extents.iter().any(|n| *n != 1) {
                let cause = format!("{} into {:?} of type {element}", op.name, dst.extents);
                return Err((FaultKind::TypeMismatch, cause, "name one element of f32"));
            }
            Ok(())
        }
        Gpu::CopyAsync { dst, src, guard } => {
            if let Some(guard) = guard {
                c.scalar(guard, "the guard of copy_async", |d| d == DType::Bool)?;
            }
            c.copy_async(dst, src)
        }
        Gpu::TensorLoad { dst, src, steps, on, multicast } => {
            c.tensor_box("tensor_load", dst, src, steps)?;
            c.mbarrier(on)?;
            multicast.iter().try_for_each(|m| c.scalar(m, "the mask of multicast", DType::is_int))
        }
        Gpu::TensorStore { dst, src } => c.tensor_box("tensor_store", src, dst, &[]),
        Gpu::StoreAt { dst, values, rank, on } => {
            c.scope(dst, "store_at writes", |s| s == Scope::Shared, "shared memory")?;
            let element = c.kernel.buffer(dst.buffer).dtype;
            values.iter().try_for_each(|v| c.scalar(v, "a value of store_at", |d| d == element))?;
            c.scalar(rank, "the rank of a block", DType::is_int)?;
            c.mbarrier(on)?;
            let known = matches!(element, DType::F32 | DType::I32);
            if !known || !matches!(values.len(), 1 | 2 | 4) || !are_neighbours(dst, values.len()) {
                let cause = format!("store_at of {} values in {:?} of type {element}", values.len(), dst.extents);
                return Err((FaultKind::TypeMismatch, cause, "store one, two or four neighbours of type f32 or i32"));
            }
            Ok(())
        }
        Gpu::Mbarrier(on, op) => {
            c.mbarrier(on)?;
            match op {
                MbarrierOp::Init(n) if !(1..=MOST_COUNT).contains(n) => {
                    let cause = format!("an mbarrier is to count {n} arrivals");
                    Err((FaultKind::BarrierMisuse, cause, "count between 1 and 2^20 - 1"))
                }
                MbarrierOp::Expect(n) if !(0..=MOST_COUNT).contains(n) => {
                    let cause = format!("an mbarrier is to count {n} bytes");
                    Err((FaultKind::BarrierMisuse, cause, "announce fewer than 2^20 bytes a phase"))
                }
                MbarrierOp::Init(_) | MbarrierOp::Expect(_) | MbarrierOp::Arrive(None) => Ok(()),
                MbarrierOp::Arrive(Some(e)) => c.scalar(e, "the rank of a block", DType::is_int),
                MbarrierOp::Wait(e) => c.scalar(e, "the parity of a phase", DType::is_int),
            }
        }
        Gpu::NamedBarrier { id, threads } => {
            if !(1..16).contains(id) {
                let cause = format!("there is no barrier {id}");
                return Err((FaultKind::BarrierMisuse, cause, "use 1 to 15; 0 is the block's"));
            }
            if threads % 32 != 0 || !(32..=1024).contains(threads) {
                let cause = format!("{threads} threads are to come to a barrier");
                return Err((FaultKind::BarrierMisuse, cause, "let whole warps come, up to 1024 threads"));
            }
            Ok(())
        }
        Gpu::Prefetch { src } => {
            c.scope(src, "prefetch is for", |s| s == Scope::Global, "global memory")?;
            let b = c.kernel.buffer(src.buffer);
            let whole =
                src.extents.iter().zip(&b.shape).rev().skip_while(|(n, of)| n == of).skip(1).all(|(n, _)| *n == 1);
            let bytes = src.extents.iter().product::<i64>() * b.dtype.bytes() as i64;
            if !whole || !b.is_row_major() || bytes % Gpu::PREFETCH_UNIT != 0 {
                let cause = format!("prefetch of {:?} elements of {:?}", src.extents, b.shape);
                return Err((FaultKind::TypeMismatch, cause, "name neighbours, a multiple of 16 bytes"));
            }
            Ok(())
        }
        Gpu::SetMaxRegisters(n) if n % 8 != 0 || !(24..=256).contains(n) => {
            let cause = format!("a thread is to have {n} registers");
            Err((FaultKind::ResourceLimit, cause, "use a multiple of 8 from 24 to 256"))
        }
        _ => Ok(()),
    }
}

struct Checker<'a, 'k> {
    kernel: &'k Kernel,
    types: &'a Types<'k>,
}

/// Elements of the reduction in one instruction: 32 bytes.
fn depth_of(operands: DType) -> i64 {
    32 / operands.bytes() as i64
}

/// Whether a product of a warpgroup has so many columns. Of bytes beyond 32 only multiples of 16. *(PTX ISA, "Asynchronous warpgroup-level
/// matrix shape".)*
fn takes_columns(n: i64, operands: DType) -> bool {
    let unit = if operands.is_byte() && n > 32 { 16 } else { 8 };
    (8..=256).contains(&n) && n % unit == 0
}

fn long(t: &Tile) -> Vec<i64> {
    t.extents.iter().copied().filter(|n| *n != 1).collect()
}

/// Whether a tile is `n` elements side by side.
fn are_neighbours(t: &Tile, n: usize) -> bool {
    t.extents.last() == Some(&(n as i64)) && t.extents.iter().product::<i64>() == n as i64
}

impl Checker<'_, '_> {
    fn scope(&self, t: &Tile, what: &str, fits: impl Fn(Scope) -> bool, wanted: &str) -> Result<(), Refusal> {
        let b = self.kernel.buffer(t.buffer);
        if fits(b.scope) {
            return Ok(());
        }
        let cause = format!("{what} {wanted}, and {} is {}", b.name, b.scope);
        Err((FaultKind::WrongScope, cause, "give the buffer that scope"))
    }

    fn scalar(&self, e: &Expr, what: &str, fits: impl Fn(DType) -> bool) -> Result<(), Refusal> {
        let mismatch = |cause| (FaultKind::TypeMismatch, cause, "convert it with a cast");
        match self.types.of(e).map_err(mismatch)? {
            t if t.lanes == 1 && fits(t.dtype) => Ok(()),
            t => Err(mismatch(format!("{what} has type {t}"))),
        }
    }

    fn mbarrier(&self, on: &Slot) -> Result<(), Refusal> {
        let b = self.kernel.buffer(on.buffer);
        if b.scope != Scope::Mbarrier || b.shape.len() != 1 || b.dtype != DType::I64 {
            let cause = format!("{} is {} {}, and not a list of mbarriers", b.name, b.scope, b.dtype);
            return Err((FaultKind::WrongScope, cause, "allocate i64[n] mbarrier"));
        }
        self.scalar(&on.index, "the index of an mbarrier", DType::is_int)
    }

    fn movement(&self, dst: &Tile, src: &Tile) -> Result<(), Refusal> {
        let [to, from] = [dst, src].map(|t| self.kernel.buffer(t.buffer));
        if let (Scope::Fragment(unit), Scope::Fragment(_)) = (to.scope, from.scope) {
            if to.scope != from.scope || from.dtype != DType::F32 || !matches!(to.dtype, DType::F16 | DType::Bf16) {
                let cause = format!("move of {} in {} into {} in {}", from.dtype, from.scope, to.dtype, to.scope);
                return Err((FaultKind::TypeMismatch, cause, "round sums of f32 to 16 bits in the same threads"));
            }
            let rows = if unit == Unit::Warpgroup { 64 } else { 16 };
            let whole = matches!(long(dst)[..], [m, k] if m % rows == 0 && k % 16 == 0);
            if !whole || long(dst) != long(src) {
                let cause = format!("move of extents {:?} = {:?}", dst.extents, src.extents);
                return Err((
                    FaultKind::TypeMismatch,
                    cause,
                    "move whole matrices of 16 x 16, or 64 x 16 of a warpgroup",
                ));
            }
            return Ok(());
        }
        let memory = |t: &Tile| matches!(self.kernel.buffer(t.buffer).scope, Scope::Shared | Scope::Global);
        let (fragment, other) = if memory(dst) { (src, dst) } else { (dst, src) };
        self.scope(
            fragment,
            "move is between memory and",
            |s| s == Scope::Fragment(Unit::Warp),
            "a fragment of a warp",
        )?;
        self.scope(other, "move is between a fragment and", |s| matches!(s, Scope::Shared | Scope::Global), "memory")?;
        if long(dst) != long(src) || long(dst).len() > 2 {
            let cause = format!("move of extents {:?} = {:?}", dst.extents, src.extents);
            return Err((FaultKind::TypeMismatch, cause, "give both tiles the extents of one matrix"));
        }
        Ok(())
    }

    fn rows(&self, dst: &Tile, src: &Tile) -> Result<(), Refusal> {
        self.scope(dst, "move_rows fills", |s| s == Scope::Fragment(Unit::Warp), "a fragment of a warp")?;
        self.scope(src, "move_rows reads what is", |s| s == Scope::Global, "global")?;
        let [to, from] = [dst, src].map(|t| self.kernel.buffer(t.buffer));
        if to.dtype != from.dtype || !matches!(to.dtype, DType::F16 | DType::Bf16) {
            let cause = format!("move_rows of {} into {}", from.dtype, to.dtype);
            return Err((FaultKind::TypeMismatch, cause, "move f16 or bf16 of one kind"));
        }
        let whole = matches!(dst.extents[..], [.., r, c] if r % 16 == 0 && c % LANE_COLUMNS == 0);
        if !whole || long(dst).len() != 2 || long(dst) != long(src) || src.extents.last() != dst.extents.last() {
            let cause = format!("move_rows of extents {:?} = {:?}", dst.extents, src.extents);
            return Err((FaultKind::TypeMismatch, cause, "move multiples of 16 rows by multiples of 32 columns"));
        }
        // Pieces of 16 bytes exist as a whole.
        let [strides @ .., 1] = &from.strides[..] else {
            let cause = format!("elements of a row of {} do not lie side by side", from.name);
            return Err((FaultKind::MisalignedVector, cause, "let the last dimension be the fast one"));
        };
        if strides.iter().chain(from.shape.last()).any(|n| n % 8 != 0) {
            let cause = format!("rows of {} are no whole pieces of 16 bytes", from.name);
            return Err((FaultKind::MisalignedVector, cause, "let rows have a multiple of 8 elements"));
        }
        Ok(())
    }

    fn split(&self, dst: &Tile, src: &Operand) -> Result<(), Refusal> {
        self.scope(dst, "split fills", |s| matches!(s, Scope::Fragment(_)), "a fragment")?;
        self.scope(&src.tile, "split reads", |s| matches!(s, Scope::Shared | Scope::Global), "memory")?;
        let [to, from] = [dst, &src.tile].map(|t| self.kernel.buffer(t.buffer));
        let Some(most) = Gpu::most_parts(to.dtype).filter(|_| from.dtype == DType::F32) else {
            let cause = format!("split of {} into {}", from.dtype, to.dtype);
            return Err((FaultKind::TypeMismatch, cause, "split f32 into f32 (for tf32) or bf16"));
        };
        let matrix = |r: i64, c: i64| if src.transposed { [c, r] } else { [r, c] };
        match dst.extents[..] {
            [parts, r, c] if (1..=most).contains(&parts) && long(&src.tile) == matrix(r, c) => Ok(()),
            _ => {
                let cause = format!("split of extents {:?} = {:?}", dst.extents, src.tile.extents);
                Err((FaultKind::TypeMismatch, cause, "name one or two parts of one matrix, in bf16 up to three"))
            }
        }
    }

    fn dtypes(&self, unit: Unit, acc: &Tile, [a, b]: [&Operand; 2], sums: &[DType]) -> Result<(), Refusal> {
        let of = |t: &Tile| self.kernel.buffer(t.buffer).dtype;
        let [c, x, y] = [of(acc), of(&a.tile), of(&b.tile)];
        let bytes = x.is_byte() && y.is_byte() && c == DType::I32;
        let f8 = x.is_f8() && y.is_f8() && c == DType::F32 && unit == Unit::Warpgroup;
        if bytes || f8 {
            if a.transposed || !b.transposed {
                let cause = format!("a product of {x} and {y} whose reduction is not the fast dimension of both");
                return Err((FaultKind::TypeMismatch, cause, "multiply m x k by a transposed n x k"));
            }
            return Ok(());
        }
        let known = matches!((c, x), (DType::F32, DType::F16 | DType::Bf16) | (DType::F16, DType::F16));
        if x != y || !known || !sums.contains(&c) {
            let cause = format!("tensor cores do not compute {c} += {x} * {y}");
            let help = "multiply f16 or bf16 of one kind into f32, i8 and u8 into i32, or, by a warpgroup, e4m3 and e5m2 into f32";
            return Err((FaultKind::TypeMismatch, cause, help));
        }
        Ok(())
    }

    fn warp_mma(&self, acc: &Tile, a: &Operand, b: &Operand) -> Result<(), Refusal> {
        for t in [acc, &a.tile, &b.tile] {
            self.scope(t, "an operand of mma.warp is", |s| s == Scope::Fragment(Unit::Warp), "a fragment of a warp")?;
        }
        self.dtypes(Unit::Warp, acc, [a, b], &[DType::F32, DType::F16])?;
        let shape = |t: &Tile, transposed: bool| match long(t)[..] {
            [r, c] if transposed => Some((c, r)),
            [r, c] => Some((r, c)),
            _ => None,
        };
        let unit = depth_of(self.kernel.buffer(a.tile.buffer).dtype);
        match (shape(acc, false), shape(&a.tile, a.transposed), shape(&b.tile, b.transposed)) {
            // An emitter says a larger product with several instructions.
            (Some((m, n)), Some((rows, k)), Some((depth, cols)))
                if (rows, cols, depth) == (m, n, k) && m % 16 == 0 && n % 8 == 0 && k % unit == 0 =>
            {
                Ok(())
            }
            _ => {
                let [c, x, y] = [acc, &a.tile, &b.tile].map(|t| &t.extents);
                let cause = format!("mma.warp of extents {c:?} += {x:?} * {y:?}");
                let help = "let rows be a multiple of 16, columns of 8, and the reduction of 32 bytes";
                Err((FaultKind::TypeMismatch, cause, help))
            }
        }
    }

    fn warpgroup_mma(&self, acc: &Tile, a: &Operand, b: &Operand) -> Result<(), Refusal> {
        self.scope(
            acc,
            "the sums of mma.warpgroup are",
            |s| s == Scope::Fragment(Unit::Warpgroup),
            "a fragment of a warpgroup",
        )?;
        // Elements of 32 bits run along the reduction only.
        let tf32 = self.kernel.buffer(b.tile.buffer).dtype == DType::F32;
        let held = Scope::Fragment(Unit::Warpgroup);
        let wanted = "shared, or a fragment of the warpgroup";
        self.scope(&a.tile, "the left operand of mma.warpgroup is", |s| s == Scope::Shared || s == held, wanted)?;
        self.scope(&b.tile, "the right operand of mma.warpgroup is", |s| s == Scope::Shared, "shared")?;
        if !tf32 {
            self.dtypes(Unit::Warpgroup, acc, [a, b], &[DType::F32])?;
        } else if [acc, &a.tile].iter().any(|t| self.kernel.buffer(t.buffer).dtype != DType::F32)
            || a.transposed
            || !b.transposed
        {
            let cause = "mma.warpgroup of f32 with other types or orders".to_string();
            return Err((FaultKind::TypeMismatch, cause, "multiply m x k by a transposed n x k, all in f32"));
        }
        let refuse = |cause: String, help| Err((FaultKind::TypeMismatch, cause, help));
        if a.transposed && self.kernel.buffer(a.tile.buffer).scope == held {
            let cause = "mma.warpgroup with a transposed left operand in registers".to_string();
            return refuse(cause, "hold the matrix itself, m x k");
        }
        // Blocks that stand side by side make the columns longer.
        let shape = |t: &Tile, transposed: bool| {
            let (rows, cols) = match long(t)[..] {
                [rows, cols] => (rows, cols),
                [blocks, rows, cols] => (rows, blocks * cols),
                _ => return None,
            };
            Some(if transposed { (cols, rows) } else { (rows, cols) })
        };
        let left = match (shape(acc, false), long(&a.tile).last()) {
            (Some((rows, _)), Some(depth)) if a.is_grouped(rows) => Some((rows, *depth)),
            _ => shape(&a.tile, a.transposed),
        };
        let shapes = (shape(acc, false), left, shape(&b.tile, b.transposed));
        let (Some((m, n)), Some((rows, k)), Some((depth, cols))) = shapes else {
            let [c, x, y] = [acc, &a.tile, &b.tile].map(|t| &t.extents);
            return refuse(format!("mma.warpgroup of extents {c:?} += {x:?} * {y:?}"), "name matrices");
        };
        // Blocks may bring more columns than are multiplied.
        if (rows, depth) != (m, k) || cols < n {
            return refuse(format!("mma.warpgroup of {m}x{n} += {rows}x{k} * {depth}x{cols}"), "let the extents fit");
        }
        let operands = self.kernel.buffer(b.tile.buffer).dtype;
        if m != 64 || !takes_columns(n, operands) || k % depth_of(operands) != 0 {
            let cause = format!("mma.warpgroup of {m}x{n} sums over {k} of {operands}");
            return refuse(
                cause,
                "multiply 64 rows, 8 to 256 columns in steps of 8 (of 16 beyond 32 in i8 and u8), over a multiple of 32 bytes",
            );
        }
        for t in [&a.tile, &b.tile] {
            let buffer = self.kernel.buffer(t.buffer);
            let row = buffer.shape.last().map_or(0, |n| n * buffer.dtype.bytes() as i64);
            if buffer.swizzle != 0 && row > i64::from(buffer.swizzle) {
                let cause = format!("rows of {} have {row} bytes, its swizzle {}", buffer.name, buffer.swizzle);
                return refuse(cause, "cut it into blocks of columns, or swizzle wider");
            }
        }
        Ok(())
    }

    fn copy_async(&self, dst: &Tile, src: &Tile) -> Result<(), Refusal> {
        self.scope(dst, "copy_async writes what is", |s| s == Scope::Shared, "shared")?;
        self.scope(src, "copy_async reads what is", |s| s == Scope::Global, "global")?;
        let [to, from] = [dst, src].map(|t| self.kernel.buffer(t.buffer));
        let bytes = dst.extents.iter().product::<i64>() * to.dtype.bytes() as i64;
        let row = |t: &Tile| long(t).len() <= 1 && (t.extents.last() != Some(&1) || long(t).is_empty());
        if to.dtype != from.dtype || long(dst) != long(src) || !row(dst) || !row(src) {
            let cause = format!("copy_async of {} {:?} = {} {:?}", to.dtype, dst.extents, from.dtype, src.extents);
            return Err((FaultKind::TypeMismatch, cause, "copy neighbouring elements of one type"));
        }
        if !matches!(bytes, 4 | 8 | 16) {
            let cause = format!("copy_async of {bytes} bytes");
            return Err((FaultKind::TypeMismatch, cause, "copy 4, 8 or 16 bytes at a time"));
        }
        Ok(())
    }

    /// A box of a tensor and its place in shared memory.
    fn tensor_box(&self, what: &str, shared: &Tile, global: &Tile, steps: &[i64]) -> Result<(), Refusal> {
        self.scope(shared, &format!("{what} is between global memory and what is"), |s| s == Scope::Shared, "shared")?;
        self.scope(global, &format!("{what} is between shared memory and what is"), |s| s == Scope::Global, "global")?;
        let [near, far] = [shared, global].map(|t| self.kernel.buffer(t.buffer));
        let refuse = |cause: String, help| Err((FaultKind::TypeMismatch, cause, help));
        if near.dtype != far.dtype || shared.extents.iter().product::<i64>() != global.extents.iter().product::<i64>() {
            let cause = format!("{what} of {} {:?} and {} {:?}", near.dtype, shared.extents, far.dtype, global.extents);
            return refuse(cause, "give both tiles one type and as many elements");
        }
        if global.extents.len() > MOST_RANK {
            let cause = format!("{} has {} dimensions", far.name, global.extents.len());
            return refuse(cause, "describe the tensor to the copy engine in at most 5 dimensions");
        }
        if let Some(n) = global.extents.iter().find(|n| **n > MOST_BOX) {
            return refuse(
                format!("a box has {n} elements along a dimension"),
                "load at most 256 along each dimension",
            );
        }
        let bytes = far.dtype.bytes() as i64;
        let inner = global.extents.last().map_or(0, |n| n * bytes);
        if inner % 16 != 0 {
            return refuse(format!("rows of the box have {inner} bytes"), "let them be a multiple of 16");
        }
        if far.offset * bytes % 16 != 0 {
            let cause = format!("{} begins {} bytes behind its memory", far.name, far.offset * bytes);
            return refuse(cause, "let a slice begin at a multiple of 16 bytes");
        }
        if let Some(stride) = far.strides.iter().rev().skip(1).find(|s| *s * bytes % 16 != 0) {
            let cause = format!("{} has a stride of {} bytes", far.name, stride * bytes);
            return refuse(cause, "let strides be multiples of 16 bytes");
        }
        if near.swizzle != 0 && inner > i64::from(near.swizzle) {
            let cause =
                format!("rows of the box have {inner} bytes, the swizzle of {} has {}", near.name, near.swizzle);
            return refuse(cause, "load narrower boxes");
        }
        let fits = |s: &i64| (1..=MOST_STEP).contains(s);
        if !steps.is_empty()
            && (steps.len() != global.extents.len() || !steps.iter().all(fits) || steps.last() != Some(&1))
        {
            return refuse(
                format!("a box with steps {steps:?}"),
                "give each dimension a step of 1 to 8, the last one 1",
            );
        }
        // Behind the first dimension that is longer than one, everything is whole: then the place has no gaps. But rows of an
        // address map are as long as that says, however much of one is moved.
        let first = shared.extents.iter().position(|n| *n != 1).unwrap_or(0);
        let rank = shared.extents.len();
        let whole = |(i, (n, all)): (usize, (&i64, &i64))| n == all || near.swizzle != 0 && i == rank - 1;
        let whole = shared.extents.iter().zip(&near.shape).enumerate().skip(first + 1).all(whole);
        if !whole || !near.is_row_major() {
            let cause = format!("the tile {:?} of {} with shape {:?} has gaps", shared.extents, near.name, near.shape);
            return refuse(cause, "let the copy engine fill or empty neighbouring elements");
        }
        Ok(())
    }
}

/// Checks that what the hardware moves at once is aligned: 4, 8 or 16 bytes of `copy_async` and `store_at`, 16 of `move_rows` and `prefetch`,
/// boxes in shared memory to 128 bytes or to the eight rows that a swizzle works on.
pub(super) fn alignment(kernel: &Kernel, sites: &[Site], faults: &mut Vec<Fault>) {
    for site in sites {
        let Stmt::Gpu(g) = site.stmt else { continue };
        let b = kernel.buffer(site.buffer);
        let bytes = b.dtype.bytes() as i64;
        let want = match g {
            Gpu::CopyAsync { dst, .. } => dst.extents.iter().product::<i64>() * bytes,
            Gpu::MoveRows { src, .. } if site.buffer == src.buffer => 16,
            Gpu::Prefetch { .. } => Gpu::PREFETCH_UNIT,
            Gpu::StoreAt { dst, .. } if site.buffer == dst.buffer => dst.extents.iter().product::<i64>() * bytes,
            Gpu::TensorLoad { .. } | Gpu::TensorStore { .. } if b.scope == Scope::Shared => match b.swizzle {
                0 => 128,
                rows => 8 * i64::from(rows),
            },
            _ => continue,
        };
        let sum = Sum::of(simplify(&b.address(&site.index), &site.facts.ranges));
        let within = |atom: &Expr| matches!(atom, Expr::Var(v) if v.0 as usize >= kernel.vars.len());
        let stray = sum.terms.iter().find(|(atom, c)| !within(atom) && c * bytes % want != 0);
        if stray.is_none() && sum.constant * bytes % want == 0 {
            continue;
        }
        let by = stray.map_or(sum.constant, |(_, c)| *c);
        let cause = format!("the place in {} moves by {by} elements, so it is not aligned to {want} bytes", b.name);
        let help = "pad its rows, or move the tile by whole pieces";
        faults.push(Fault::at(kernel, &site.loops, site.stmt, FaultKind::MisalignedVector, cause, help));
    }
}
