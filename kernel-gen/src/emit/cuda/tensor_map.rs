//! Tensor maps: what the copy engine (TMA) is told of a tensor.

use crate::ir::DType;
use crate::stored::{Stored, stored};

/// What a tensor map says. Lists begin with the fastest dimension, as the driver's do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tune", derive(serde::Serialize, serde::Deserialize))]
pub struct TensorMap {
    /// The buffer that it is a map of: an index into the kernel's list of parameters, or an offset in the workspace.
    pub base: TensorBase,
    /// Bytes from there to the tensor's first element.
    pub offset: u64,
    /// Type of the elements.
    pub dtype: DType,
    /// Elements along each dimension, 1 to 5 of them.
    pub dims: Vec<u64>,
    /// If their number along the last dimension depends on the number of units: elements a unit; else 0.
    pub rows: u64,
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
            DType::U8 | DType::I8 | DType::E4m3 | DType::E5m2 | DType::Bool => 0,
            DType::U8x4 | DType::I8x4 | DType::I16x2 => 2,
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

stored! {
    TensorMap { base, offset, dtype, dims, rows, strides, box_dims, steps, swizzle }
}

impl Stored for TensorBase {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            TensorBase::Buffer(index) => (0u8, *index).put(out),
            TensorBase::Workspace(offset) => (1u8, *offset).put(out),
        }
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::get(from)? {
            0 => TensorBase::Buffer(Stored::get(from)?),
            1 => TensorBase::Workspace(Stored::get(from)?),
            _ => return None,
        })
    }
}

/// A map that a function takes, and its name there.
pub(super) struct NamedMap {
    pub(super) name: String,
    pub(super) map: TensorMap,
}

/// What a buffer of boxes is aligned to: eight rows of its address map, or what the engine asks for.
pub(super) fn alignment(swizzle: u32) -> i64 {
    (8 * i64::from(swizzle)).max(128)
}
