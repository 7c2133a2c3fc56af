//! Boxes of tensors that the copy engine (TMA) moves.
//!
//! The engine knows a tensor by a map that the host makes of it: its type, extents and strides, and the box that is
//! moved at a time. A launch is given one map for each different box.

use super::ptx::Ptx;
use super::{Body, EmitError};
use crate::analysis::simplify::simplify;
use crate::ir::{DType, Expr, Slot, Tile};
use crate::target::CudaFeature;

/// What a tensor map says. Lists begin with the fastest dimension, as the driver's do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub struct TensorMap {
    /// The buffer that it is a map of: an index into the kernel's list of parameters, or an offset in the workspace.
    pub base: TensorBase,
    /// Type of the elements.
    pub dtype: DType,
    /// Elements along each dimension, 1 to 5 of them.
    pub dims: Vec<u64>,
    /// Bytes from one element to the next along each dimension but the fastest.
    pub strides: Vec<u64>,
    /// Elements of the box along each dimension, skipped ones counted.
    pub box_dims: Vec<u32>,
    /// Elements from one that is moved to the next, along each dimension.
    pub steps: Vec<u32>,
    /// Bytes in a row of the address map in shared memory: 0, 32, 64 or 128.
    pub swizzle: u32,
}

impl TensorMap {
    /// The driver's number of the element type (`CUtensorMapDataType`).
    pub fn driver_type(&self) -> u32 {
        match self.dtype {
            DType::F16 => 6,
            DType::F32 => 7,
            DType::F64 => 8,
            DType::Bf16 => 9,
            DType::Bool => 0,
            DType::I32 => 3,
            DType::I64 => 5,
        }
    }

    /// What it says of each dimension, as the driver takes it: extents, strides, extents of the box and steps, with 1 (of
    /// strides, 0) for the dimensions that it does not have.
    pub fn driver_lists(&self) -> ([u64; 5], [u64; 4], [u32; 5], [u32; 5]) {
        fn padded<T: Copy, const N: usize>(values: &[T], rest: T) -> [T; N] {
            std::array::from_fn(|i| values.get(i).copied().unwrap_or(rest))
        }
        (padded(&self.dims, 1), padded(&self.strides, 0), padded(&self.box_dims, 1), padded(&self.steps, 1))
    }

    /// The driver's number of the swizzle (`CUtensorMapSwizzle`).
    pub fn driver_swizzle(&self) -> u32 {
        match self.swizzle {
            32 => 1,
            64 => 2,
            128 => 3,
            _ => 0,
        }
    }
}

/// Where the tensor of a map starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub enum TensorBase {
    /// A parameter of the kernel, by its place in the list.
    Buffer(usize),
    /// At an offset in the workspace.
    Workspace(i64),
}

/// The engine's limits: dimensions, elements of a box along one, and bytes that strides and rows are multiples of.
const MOST_DIMS: usize = 5;
const MOST_BOX: i64 = 256;
const UNIT_BYTES: i64 = 16;

/// A map that a function takes, and its name there.
pub(super) struct NamedMap {
    pub(super) name: String,
    pub(super) map: TensorMap,
}

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
            Some(e) => format!(", {}", self.integer(e)?.text.text),
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
            let text = if text.wide {
                format!("(int){}", text.text.at(crate::emit::text::strength::UNARY))
            } else {
                text.text.text
            };
            out.push_str(&format!(", {text}"));
        }
        Ok(out)
    }

    /// The address of a box in shared memory, which must start where the address map starts anew.
    fn pointer_to_box(&mut self, shared: &Tile) -> Result<String, EmitError> {
        let buffer = self.kernel.buffer(shared.buffer);
        let unit = alignment(buffer.swizzle) / buffer.dtype.bytes() as i64;
        let offset = self.offset(shared.buffer, &shared.origin);
        if !super::vector::is_multiple(&offset, unit) {
            return Err(EmitError::Unsupported {
                what: format!("a box in `{}` that does not start at a multiple of {unit} elements", buffer.name),
            });
        }
        self.plain_pointer(shared.buffer, &offset)
    }

    /// The name of the map for a box of `global`, which lies in `shared` as that says.
    fn map(&mut self, global: &Tile, steps: &[i64], shared: &Tile) -> Result<String, EmitError> {
        let (tensor, memory) = (self.kernel.buffer(global.buffer), self.kernel.buffer(shared.buffer));
        let refuse = |why: String| {
            Err(EmitError::Unsupported { what: format!("a box of `{}` in `{}`: {why}", tensor.name, memory.name) })
        };
        let bytes = tensor.dtype.bytes() as i64;
        let rank = tensor.shape.len();
        if rank == 0 || rank > MOST_DIMS {
            return refuse(format!("the tensor has {rank} dimensions, the copy engine knows 1 to {MOST_DIMS}"));
        }
        if tensor.dtype != memory.dtype || !matches!(tensor.dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64) {
            return refuse(format!("{} becomes {}", tensor.dtype, memory.dtype));
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
            match (self.kernel.params.iter().position(|p| *p == global.buffer), self.workspace.get(&global.buffer)) {
                (Some(index), _) => TensorBase::Buffer(index),
                (None, Some(offset)) => TensorBase::Workspace(*offset),
                (None, None) => return refuse("the tensor is not in global memory".into()),
            };
        let unsigned = |v: i64| u32::try_from(v).unwrap_or(0);
        let map = TensorMap {
            base,
            dtype: tensor.dtype,
            dims: tensor.shape.iter().rev().map(|n| n.unsigned_abs()).collect(),
            strides: tensor.strides[..rank - 1].iter().rev().map(|s| (s * bytes).unsigned_abs()).collect(),
            box_dims: covered.iter().rev().map(|n| unsigned(*n)).collect(),
            steps: (0..rank).rev().map(|d| unsigned(step(d))).collect(),
            swizzle: memory.swizzle,
        };
        if let Some(known) = self.maps.iter().find(|m| m.map == map) {
            return Ok(known.name.clone());
        }
        let hint = format!("{}_map", tensor.name);
        let name = self.names.fresh(&hint);
        self.ptx(Ptx::TensorMap);
        self.maps.push(NamedMap { name: name.clone(), map });
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

/// What a buffer of boxes is aligned to: eight rows of its address map, or what the engine asks for.
pub(super) fn alignment(swizzle: u32) -> i64 {
    (8 * i64::from(swizzle)).max(128)
}
