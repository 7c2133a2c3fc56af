//! Boxes of tensors that the copy engine (TMA) moves.
//!
//! The engine knows a tensor by a map that the host makes of it: its type, extents and strides, and the box that is
//! moved at a time. A launch is given one map for each different box.

use super::body::Body;
use super::multiple::is_multiple;
use super::ptx::Ptx;
use super::tensor_map::{NamedMap, TensorBase, TensorMap, alignment};
use crate::analysis::simplify::simplify;
use crate::emit::EmitError;
use crate::emit::clike::text::strength::UNARY;
use crate::ir::{Expr, Slot, Tile};
use crate::target::CudaFeature;

/// The engine's limits: dimensions, elements of a box along one, and bytes that strides and rows are multiples of.
const MOST_DIMS: usize = 5;
const MOST_BOX: i64 = 256;
const UNIT_BYTES: i64 = 16;

impl Body<'_> {
    pub(super) fn tensor_load(
        &mut self,
        dst: &Tile,
        src: &Tile,
        steps: &[i64],
        on: &Slot,
        multicast: Option<&Expr>,
    ) -> Result<(), EmitError> {
        self.need(CudaFeature::Tma, "a load of a box")?;
        let map = self.map(src, steps, dst)?;
        let load = self.ptx(Ptx::TensorLoad { rank: src.origin.len(), multicast: multicast.is_some() });
        let to = self.pointer_to_box(dst)?;
        let on = self.slot(on)?;
        let mask = match multicast {
            Some(e) => format!(", {}", self.index(e)?),
            None => String::new(),
        };
        let at = self.coordinates(src)?;
        self.line(&format!("{load}({to}, {map}, {on}{mask}{at});"));
        Ok(())
    }

    pub(super) fn tensor_store(&mut self, dst: &Tile, src: &Tile) -> Result<(), EmitError> {
        self.need(CudaFeature::Tma, "a store of a box")?;
        let map = self.map(dst, &[], src)?;
        let store = self.ptx(Ptx::TensorStore { rank: dst.origin.len() });
        let from = self.pointer_to_box(src)?;
        let at = self.coordinates(dst)?;
        self.line(&format!("{store}({map}, {from}{at});"));
        Ok(())
    }

    /// The origin of a box, fastest dimension first, each with a comma before it.
    fn coordinates(&mut self, global: &Tile) -> Result<String, EmitError> {
        let mut out = String::new();
        for e in global.origin.iter().rev() {
            let e = simplify(e, &self.ranges);
            let text = self.integer(&e)?;
            // Coordinates are 32 bits wide, which every tensor's extents fit.
            let text = if text.wide { format!("(int){}", text.text.at(UNARY)) } else { text.text.text };
            out.push_str(&format!(", {text}"));
        }
        Ok(out)
    }

    /// The address of a box in shared memory, which must start where the address map starts anew.
    fn pointer_to_box(&mut self, shared: &Tile) -> Result<String, EmitError> {
        let buffer = self.kernel.buffer(shared.buffer);
        let unit = alignment(buffer.swizzle) / buffer.dtype.bytes() as i64;
        let offset = self.offset(shared.buffer, &shared.origin);
        if !is_multiple(&offset, unit) {
            return Err(EmitError::in_cuda(format!(
                "a box in `{}` that does not start at a multiple of {unit} elements",
                buffer.name
            )));
        }
        self.plain_pointer(shared.buffer, &offset)
    }

    /// The name of the map for a box of `global`, which lies in `shared` as that says.
    fn map(&mut self, global: &Tile, steps: &[i64], shared: &Tile) -> Result<String, EmitError> {
        let (tensor, memory) = (self.kernel.buffer(global.buffer), self.kernel.buffer(shared.buffer));
        let refuse =
            |why: String| Err(EmitError::in_cuda(format!("a box of `{}` in `{}`: {why}", tensor.name, memory.name)));
        let bytes = tensor.dtype.bytes() as i64;
        let rank = tensor.shape.len();
        if rank == 0 || rank > MOST_DIMS {
            return refuse(format!("the tensor has {rank} dimensions, the copy engine knows 1 to {MOST_DIMS}"));
        }
        if tensor.dtype != memory.dtype || !tensor.dtype.is_in_tiles() {
            return refuse(format!("{} becomes {}", tensor.dtype, memory.dtype));
        }
        if tensor.offset * bytes % UNIT_BYTES != 0 {
            return refuse(format!("it begins {} elements behind its memory", tensor.offset));
        }
        if tensor.strides[rank - 1] != 1 || tensor.strides[..rank - 1].iter().any(|s| s * bytes % UNIT_BYTES != 0) {
            return refuse(format!("rows of {:?} elements are not multiples of {UNIT_BYTES} bytes", tensor.strides));
        }
        let step = |d: usize| steps.get(d).copied().unwrap_or(1);
        let covered: Vec<i64> = (0..rank).map(|d| (global.extents[d] - 1) * step(d) + 1).collect();
        if covered.iter().any(|n| *n > MOST_BOX) || step(rank - 1) != 1 || (0..rank).any(|d| step(d) > 8) {
            return refuse(format!(
                "it covers {covered:?} elements, at most {MOST_BOX} along each dimension are possible"
            ));
        }
        let row = global.extents[rank - 1] * bytes;
        if row % UNIT_BYTES != 0 || (memory.swizzle != 0 && row > i64::from(memory.swizzle)) {
            return refuse(format!("its rows have {row} bytes, where the address map has {}", memory.swizzle));
        }
        // The engine writes a box row by row, whatever dimensions the shared buffer says it in.
        let count = |t: &Tile| t.extents.iter().product::<i64>();
        if count(global) != count(shared)
            || global.extents.last() != shared.extents.last()
            || !is_dense(shared, &memory.strides, i64::from(memory.swizzle) / bytes)
        {
            return refuse(format!("{:?} elements are not a dense piece of the shared buffer", shared.extents));
        }
        let base =
            match (self.kernel.params.iter().position(|p| *p == global.buffer), self.own.workspace.get(&global.buffer))
            {
                (Some(index), _) => TensorBase::Buffer(index),
                (None, Some(offset)) => TensorBase::Workspace(*offset),
                (None, None) => return refuse("the tensor is not in global memory".into()),
            };
        let unsigned = |v: i64| u32::try_from(v).unwrap_or(0);
        let rows = self.kernel.rows_a_unit(global.buffer);
        if rows.is_some() && self.kernel.units_dim(global.buffer) != 0 {
            return refuse("a tensor map has its units in the first dimension".into());
        }
        let map = TensorMap {
            base,
            offset: (tensor.offset * bytes).unsigned_abs(),
            dtype: tensor.dtype,
            dims: tensor.shape.iter().rev().map(|n| n.unsigned_abs()).collect(),
            rows: rows.unwrap_or(0).unsigned_abs(),
            strides: tensor.strides[..rank - 1].iter().rev().map(|s| (s * bytes).unsigned_abs()).collect(),
            box_dims: covered.iter().rev().map(|n| unsigned(*n)).collect(),
            steps: (0..rank).rev().map(|d| unsigned(step(d))).collect(),
            swizzle: memory.swizzle,
        };
        if let Some(known) = self.own.maps.iter().find(|m| m.map == map) {
            return Ok(known.name.clone());
        }
        let hint = format!("{}_map", tensor.name);
        let name = self.names.fresh(&hint);
        self.ptx(Ptx::TensorMap);
        self.own.maps.push(NamedMap { name: name.clone(), map });
        Ok(name)
    }
}

/// Whether a tile has no gaps, but at the ends of rows of so many elements where there is an address map: the engine goes on
/// with the next of its rows, however many elements of one it moves.
fn is_dense(t: &Tile, strides: &[i64], row: i64) -> bool {
    let mut next = 1;
    for (i, (n, stride)) in t.extents.iter().zip(strides).rev().enumerate() {
        if *n != 1 {
            if *stride != next {
                return false;
            }
            next *= n;
        }
        if i == 0 {
            next = next.max(row);
        }
    }
    true
}
