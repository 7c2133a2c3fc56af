//! Constants of a network: weights, and the integers that shapes are computed from.

use crate::ir::DType;
use crate::workload::MAX_ELEMENTS;
use crate::workload::lookup::ENTRIES;
use std::sync::Arc;

/// Whether a tensor may have a shape: no extent below 0, and few enough elements that no count of bytes overflows, whatever
/// part of the shape is looked at.
pub(super) fn is_shape(shape: &[i64]) -> bool {
    let count = shape.iter().try_fold(1i64, |n, extent| n.checked_mul((*extent).max(1)));
    shape.iter().all(|extent| *extent >= 0) && count.is_some_and(|n| n <= MAX_ELEMENTS)
}

/// ONNX's numbers of types of integers, truth values among them.
const INTEGERS: [i64; 9] = [2, 3, 4, 5, 6, 7, BOOLEAN, 12, 13];

/// ONNX's number of truth values.
pub(super) const BOOLEAN: i64 = 9;

/// ONNX's numbers of the types of eight bits.
const BYTES: [(i64, DType); 2] = [(2, DType::U8), (3, DType::I8)];

/// The type of eight bits that a number of ONNX stands for.
pub(super) fn byte_of(to: i64) -> Option<DType> {
    BYTES.iter().find(|(number, _)| *number == to).map(|(_, dtype)| *dtype)
}

/// ONNX's number of a type of eight bits.
pub(super) fn number_of(dtype: DType) -> Option<i64> {
    BYTES.iter().find(|(_, of)| *of == dtype).map(|(number, _)| *number)
}

/// Whether a number of ONNX stands for a type of floats.
pub(super) fn is_float(dtype: i64) -> bool {
    [1, 10, 11, 16].contains(&dtype)
}

/// Whether a number of ONNX stands for a type of numbers, or of truth values.
pub(super) fn is_number(dtype: i64) -> bool {
    is_float(dtype) || INTEGERS.contains(&dtype)
}

/// An integer in a type of ONNX: what does not fit wraps.
pub(super) fn wrapped(value: i64, to: i64) -> i64 {
    match to {
        2 => i64::from(value as u8),
        3 => i64::from(value as i8),
        4 => i64::from(value as u16),
        5 => i64::from(value as i16),
        6 => i64::from(value as i32),
        12 => i64::from(value as u32),
        _ => value,
    }
}

/// A dense constant, row-major.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// Its extents; a scalar has none.
    pub shape: Vec<i64>,
    /// Its elements.
    pub data: Data,
    /// The type of integers of eight bits, or of four.
    pub byte: Option<DType>,
    /// Whether they have four bits in the file, which is what integers that are made by such a zero point have.
    pub four_bits: bool,
}

/// The elements of a [`Tensor`]. Clones share them.
#[derive(Clone, Debug)]
pub enum Data {
    /// Numbers.
    Floats(Arc<[f32]>),
    /// Integers of any width, and truth values as 1 and 0.
    Integers(Arc<[i64]>),
}

/// Elements that are shared are the same, and need not be looked at.
impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        match (self, other) {
            (Data::Floats(a), Data::Floats(b)) => Arc::ptr_eq(a, b) || a == b,
            (Data::Integers(a), Data::Integers(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

impl Data {
    /// Whether these begin with the others, to the bit.
    pub fn starts_with(&self, other: &Data) -> bool {
        match (self, other) {
            (Data::Floats(a), Data::Floats(b)) => {
                let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
                Arc::ptr_eq(a, b) || a.len() >= b.len() && a.iter().zip(b.iter()).all(same)
            }
            (Data::Integers(a), Data::Integers(b)) => Arc::ptr_eq(a, b) || a.starts_with(b),
            _ => false,
        }
    }

    /// Whether these are the others again and again, to the bit.
    pub(super) fn repeats(&self, of: &Data) -> bool {
        let n = of.len().max(1);
        match (self, of) {
            (Data::Floats(a), Data::Floats(b)) => {
                let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
                a.chunks(n).all(|part| part.iter().zip(b.iter()).all(same))
            }
            (Data::Integers(a), Data::Integers(b)) => a.chunks(n).all(|part| part.iter().eq(b.iter())),
            _ => false,
        }
    }

    /// Where the elements lie, which clones share.
    pub(super) fn address(&self) -> usize {
        match self {
            Data::Floats(all) => all.as_ptr().addr(),
            Data::Integers(all) => all.as_ptr().addr(),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::Floats(all) => all.len(),
            Data::Integers(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Tensor {
    /// A tensor of numbers.
    pub fn floats(shape: &[i64], data: impl Into<Arc<[f32]>>) -> Tensor {
        Tensor { shape: shape.to_vec(), data: Data::Floats(data.into()), byte: None, four_bits: false }
    }

    /// A tensor of integers.
    pub fn integers(shape: &[i64], data: impl Into<Arc<[i64]>>) -> Tensor {
        Tensor { shape: shape.to_vec(), data: Data::Integers(data.into()), byte: None, four_bits: false }
    }

    /// A tensor of integers of eight bits.
    pub fn bytes(shape: &[i64], dtype: DType, data: impl Into<Arc<[i64]>>) -> Tensor {
        Tensor { byte: Some(dtype), ..Tensor::integers(shape, data) }
    }

    /// All integers of a type of eight bits, as tables have them: those below 0 behind the others.
    pub fn every_byte(dtype: DType) -> Tensor {
        let integer = |byte: u8| if dtype == DType::I8 { i64::from(byte as i8) } else { i64::from(byte) };
        Tensor::bytes(&[ENTRIES], dtype, (0..=u8::MAX).map(integer).collect::<Vec<i64>>())
    }

    /// The elements in a type of ONNX, if that is one of numbers: of integers what does not fit wraps.
    pub(super) fn cast(&self, to: i64) -> Option<Tensor> {
        let data = match (&self.data, to) {
            (_, to) if is_float(to) => Data::Floats(self.to_floats()),
            (_, BOOLEAN) => Data::Integers(self.to_doubles().iter().map(|v| i64::from(*v != 0.0)).collect()),
            (_, to) if !is_number(to) => return None,
            (Data::Integers(all), to) => Data::Integers(all.iter().map(|v| wrapped(*v, to)).collect()),
            (Data::Floats(all), to) => Data::Integers(all.iter().map(|v| wrapped(*v as i64, to)).collect()),
        };
        Some(Tensor { shape: self.shape.clone(), data, byte: byte_of(to), four_bits: false })
    }

    /// The same elements in another shape.
    pub fn with_shape(&self, shape: &[i64]) -> Tensor {
        Tensor { shape: shape.to_vec(), data: self.data.clone(), ..*self }
    }

    /// Its first elements, in a row.
    pub(super) fn first(&self, n: usize) -> Tensor {
        let data = match &self.data {
            Data::Floats(all) => Data::Floats(all[..n].into()),
            Data::Integers(all) => Data::Integers(all[..n].into()),
        };
        Tensor { shape: vec![n as i64], data, ..self.clone() }
    }

    /// Whether the elements are integers.
    pub fn is_integer(&self) -> bool {
        matches!(self.data, Data::Integers(_))
    }

    /// The elements as numbers.
    pub fn to_floats(&self) -> Arc<[f32]> {
        match &self.data {
            Data::Floats(all) => Arc::clone(all),
            Data::Integers(all) => all.iter().map(|v| *v as f32).collect(),
        }
    }

    /// The elements in the precision of references.
    pub fn to_doubles(&self) -> Vec<f64> {
        match &self.data {
            Data::Floats(all) => all.iter().map(|v| f64::from(*v)).collect(),
            Data::Integers(all) => all.iter().map(|v| *v as f64).collect(),
        }
    }

    /// The elements as integers, if they are.
    pub fn to_integers(&self) -> Option<Vec<i64>> {
        match &self.data {
            Data::Integers(all) => Some(all.to_vec()),
            Data::Floats(_) => None,
        }
    }
}
