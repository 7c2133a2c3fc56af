//! Numbers as they lie in memory, for programs that exchange files with compiled kernels.

use crate::ir::DType;
use crate::ir::bits::{bf16_bits, bf16_value, f8_bits, f8_value, f16_bits, f16_value};

/// The bytes of `values` as elements of the type, rounded to nearest even.
pub fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len() * dtype.bytes());
    for v in values {
        match dtype {
            DType::F64 => out.extend(v.to_ne_bytes()),
            DType::F32 => out.extend((*v as f32).to_ne_bytes()),
            DType::F16 => out.extend(f16_bits(*v as f32).to_ne_bytes()),
            DType::Bf16 => out.extend(bf16_bits(*v as f32).to_ne_bytes()),
            DType::E4m3 | DType::E5m2 => out.push(f8_bits(dtype, *v as f32)),
            DType::I64 => out.extend((*v as i64).to_ne_bytes()),
            DType::I32 | DType::I8x4 | DType::U8x4 | DType::I16x2 => out.extend((*v as i32).to_ne_bytes()),
            DType::I8 => out.extend((*v as i8).to_ne_bytes()),
            DType::U8 => out.push(*v as u8),
            DType::Bool => out.push(u8::from(*v != 0.0)),
        }
    }
    out
}

/// Elements as a kernel takes them that reads words where a tensor has bytes of type `dtype`: the words that they are in memory.
pub fn words(dtype: DType, bytes: &[f64]) -> Vec<f64> {
    decode(DType::I32, &encode(dtype, bytes))
}

/// The elements in `bytes`; an incomplete last one is left out.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes
            .chunks_exact(N)
            .map(|c| {
                let mut element = [0; N];
                element.copy_from_slice(c);
                f(element)
            })
            .collect()
    }
    match dtype {
        DType::F64 => each(bytes, f64::from_ne_bytes),
        DType::F32 => each(bytes, |b| f64::from(f32::from_ne_bytes(b))),
        DType::F16 => each(bytes, |b| f64::from(f16_value(u16::from_ne_bytes(b)))),
        DType::Bf16 => each(bytes, |b| f64::from(bf16_value(u16::from_ne_bytes(b)))),
        DType::E4m3 | DType::E5m2 => bytes.iter().map(|b| f64::from(f8_value(dtype, *b))).collect(),
        DType::I64 => each(bytes, |b| i64::from_ne_bytes(b) as f64),
        DType::I32 | DType::I8x4 | DType::U8x4 | DType::I16x2 => each(bytes, |b| f64::from(i32::from_ne_bytes(b))),
        DType::I8 => each(bytes, |b| f64::from(i8::from_ne_bytes(b))),
        DType::U8 => bytes.iter().map(|b| f64::from(*b)).collect(),
        DType::Bool => bytes.iter().map(|b| f64::from(u8::from(*b != 0))).collect(),
    }
}
