//! Safetensors files: a length, a JSON header that names each tensor's type, shape and bytes, and the bytes.

use crate::json::Json;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// The format limits the header to 100 MB.
const MAX_HEADER: usize = 100_000_000;

/// Why a file cannot be used.
#[derive(Debug)]
pub enum SafetensorsError {
    /// It cannot be read.
    Io(String, std::io::Error),
    /// It is not a safetensors file.
    Malformed(String),
    /// A tensor that is needed is not there.
    Missing {
        /// Its name.
        name: String,
        /// A name that is there.
        example: Option<String>,
    },
    /// A tensor has another shape than the network needs.
    Shape {
        /// Its name.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that is needed.
        expected: Vec<usize>,
    },
    /// A tensor has a type that weights do not have.
    Type {
        /// Its name.
        name: String,
        /// Its type.
        found: String,
    },
}

impl fmt::Display for SafetensorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SafetensorsError::*;
        match self {
            Io(path, cause) => write!(f, "{path}: {cause}"),
            Malformed(why) => write!(f, "not a safetensors file: {why}"),
            Missing { name, example } => {
                write!(f, "the weights have no tensor `{name}`; they must be torchvision's resnet18")?;
                example.iter().try_for_each(|e| write!(f, " (the first tensor there is `{e}`)"))
            }
            Shape { name, found, expected } => {
                write!(f, "tensor `{name}` has the shape {found:?}; torchvision's resnet18 has {expected:?}")
            }
            Type { name, found } => write!(f, "tensor `{name}` is of type {found}; convert it to F32, F16 or BF16"),
        }
    }
}

impl std::error::Error for SafetensorsError {}

/// Where a tensor lies.
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

/// The tensors of a file.
pub struct Safetensors {
    data: Vec<u8>,
    entries: BTreeMap<String, Entry>,
}

impl Safetensors {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Safetensors, SafetensorsError> {
        let data = std::fs::read(path).map_err(|e| SafetensorsError::Io(path.display().to_string(), e))?;
        Safetensors::parse(data)
    }

    /// Takes the bytes of a file. Every entry is checked here, those that are never asked for included.
    pub fn parse(data: Vec<u8>) -> Result<Safetensors, SafetensorsError> {
        let malformed = |why: &str| SafetensorsError::Malformed(why.to_owned());
        let length =
            data.first_chunk().map(|b| u64::from_le_bytes(*b)).ok_or(malformed("it is shorter than 8 bytes"))?;
        let length = usize::try_from(length).ok().filter(|n| *n <= MAX_HEADER);
        let length = length.ok_or(malformed("its header claims to be longer than 100 MB"))?;
        let header = data.get(8..8 + length).ok_or(malformed("it ends within its header"))?;
        let header = std::str::from_utf8(header).map_err(|_| malformed("its header is not UTF-8"))?;
        let json = Json::parse(header).map_err(|at| malformed(&format!("its header is not JSON at byte {at}")))?;
        let Json::Object(members) = json else { return Err(malformed("its header is not a JSON object")) };
        let mut entries = BTreeMap::new();
        for (name, value) in members {
            if name == "__metadata__" {
                continue;
            }
            let entry = entry(&value, 8 + length, data.len())
                .ok_or_else(|| malformed(&format!("the entry of tensor `{name}` makes no sense")))?;
            entries.insert(name, entry);
        }
        Ok(Safetensors { data, entries })
    }

    /// The elements of a tensor that must have this shape.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, SafetensorsError> {
        let Some(entry) = self.entries.get(name) else {
            let example = self.entries.keys().next().cloned();
            return Err(SafetensorsError::Missing { name: name.to_owned(), example });
        };
        if entry.shape != shape {
            let (found, expected) = (entry.shape.clone(), shape.to_vec());
            return Err(SafetensorsError::Shape { name: name.to_owned(), found, expected });
        }
        let bytes = &self.data[entry.bytes.clone()];
        let halves = || bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b));
        match entry.dtype.as_str() {
            "F32" => Ok(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
            "F16" => Ok(halves().map(from_f16).collect()),
            "BF16" => Ok(halves().map(|b| f32::from_bits(u32::from(b) << 16)).collect()),
            _ => Err(SafetensorsError::Type { name: name.to_owned(), found: entry.dtype.clone() }),
        }
    }
}

/// Checks an entry of the header; `start` is where the tensors' bytes begin, `end` the length of the file.
fn entry(value: &Json, start: usize, end: usize) -> Option<Entry> {
    let dtype = value.get("dtype")?.as_text()?.to_owned();
    let shape = value.get("shape")?.as_sizes()?;
    let offsets = value.get("data_offsets")?.as_sizes()?;
    let [from, to] = offsets[..] else { return None };
    let (from, to) = (from.checked_add(start)?, to.checked_add(start)?);
    let size = match dtype.as_str() {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        _ => 1,
    };
    let bytes = shape.iter().try_fold(size, |n: usize, d| n.checked_mul(*d))?;
    (from <= to && to <= end && to - from == bytes).then_some(Entry { dtype, shape, bytes: from..to })
}

/// The value of a half-precision number.
fn from_f16(bits: u16) -> f32 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

/// The bytes of a file with these tensors, for tests.
#[cfg(test)]
pub fn file(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let mut header = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
    let mut data = vec![];
    for (name, dtype, shape, bytes) in tensors {
        let (from, to) = (data.len(), data.len() + bytes.len());
        header += &format!(",\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{from},{to}]}}");
        data.extend(bytes);
    }
    header.push('}');
    // Padded with spaces, as the format recommends.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_all_weight_types_are_read() {
        let f32s: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let f16s: Vec<u8> = [0x3c00u16, 0xc000, 0x0001, 0x7bff].iter().flat_map(|v| v.to_le_bytes()).collect();
        let bf16s: Vec<u8> = [0x3fc0u16, 0xc000].iter().flat_map(|v| v.to_le_bytes()).collect();
        let bytes = file(&[
            ("a", "F32", &[2, 1], f32s),
            ("b", "F16", &[4], f16s),
            ("c", "BF16", &[2], bf16s),
            ("n", "I64", &[], vec![0; 8]),
        ]);
        let tensors = Safetensors::parse(bytes).unwrap();
        assert_eq!(tensors.tensor("a", &[2, 1]).unwrap(), [1.5, -2.0]);
        assert_eq!(tensors.tensor("b", &[4]).unwrap(), [1.0, -2.0, 5.9604645e-8, 65504.0]);
        assert_eq!(tensors.tensor("c", &[2]).unwrap(), [1.5, -2.0]);
        for (name, shape, text) in [
            ("z", &[1][..], "no tensor `z`; they must be torchvision's resnet18 (the first tensor there is `a`)"),
            ("a", &[2], "tensor `a` has the shape [2, 1]; torchvision's resnet18 has [2]"),
            ("n", &[], "tensor `n` is of type I64; convert it to F32, F16 or BF16"),
        ] {
            let message = tensors.tensor(name, shape).unwrap_err().to_string();
            assert!(message.ends_with(text), "{message}");
        }
    }

    #[test]
    fn malformed_files_are_refused_with_a_reason() {
        let with_header = |header: &str| [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
        for (bytes, text) in [
            (vec![1, 2], "shorter than 8 bytes"),
            (vec![255; 16], "longer than 100 MB"),
            (vec![9, 0, 0, 0, 0, 0, 0, 0, b'{'], "ends within its header"),
            (with_header("{\"a\":"), "not JSON at byte 5"),
            (with_header("[]"), "not a JSON object"),
            (
                with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"),
                "tensor `a` makes no sense",
            ),
            (
                with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,0]}}"),
                "tensor `a` makes no sense",
            ),
        ] {
            let message = Safetensors::parse(bytes).err().unwrap().to_string();
            assert!(message.contains(text), "{message}");
        }
    }
}
