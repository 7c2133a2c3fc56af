//! Reads ONNX files into a [`Model`].
//!
//! The file comes from anywhere, so nothing of it is believed: sizes are compared with the data that is there, and external
//! data must lie below the model's folder.

use super::model::{Attribute, Extent, Graph, Input, Model, Node, SUMS, TABLE};
use super::problem::{Fault, Problem};
use super::tensor::{Data, Tensor, is_shape};
use super::translate::BY_NUMBERS;
use super::wire;
use crate::integer::ceil_div;
use crate::ir::DType;
use crate::ir::bits::{bf16_value, f16_value};
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataLocation, DataType, GraphProto, ModelProto, TensorProto, ValueInfoProto,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Operators of ONNX Runtime's own that its quantiser writes.
const OF_ONNX_RUNTIME: [&str; 4] = ["MatMulNBits", "QGemm", "QLinearAdd", "QLinearConcat"];

/// The oldest version of the operators that is read.
const OLDEST: i64 = 7;

/// Help where a file is broken.
const AGAIN: &str = "export the model again, and check it with onnx.checker";

/// Reads the model of a file.
///
/// # Errors
/// All that is wrong with the file, or with parts of it.
pub(super) fn read(path: &Path) -> Result<Model, Vec<Problem>> {
    let bytes = fs::read(path).map_err(|e| vec![Problem::of_file(format!("cannot read it: {e}"), "check `model`")])?;
    let mut model = parse(&bytes, path.parent().unwrap_or(Path::new(".")))?;
    model.files.insert(path.to_path_buf());
    Ok(model)
}

/// Where external data lies, and the files that were read of it.
struct Folder<'a> {
    path: &'a Path,
    files: RefCell<BTreeSet<PathBuf>>,
}

/// Reads the model of a file's bytes; `folder` is where external data lies.
pub(super) fn parse(bytes: &[u8], folder: &Path) -> Result<Model, Vec<Problem>> {
    wire::check(bytes).map_err(|e| vec![Problem::of_file(format!("it is no ONNX model: {e}"), AGAIN)])?;
    let proto =
        ModelProto::parse_buf(bytes).map_err(|e| vec![Problem::of_file(format!("it is no ONNX model: {e}"), AGAIN)])?;
    let Some(graph) = proto.graph else {
        return Err(vec![Problem::of_file("it has no graph", AGAIN)]);
    };
    let standard = |domain: &Option<String>| domain.as_deref().is_none_or(|d| d.is_empty() || d == "ai.onnx");
    let opset = proto.opset_import.iter().find(|set| standard(&set.domain)).and_then(|set| set.version);
    let folder = &Folder { path: folder, files: RefCell::default() };
    let mut problems = vec![];
    let opset = opset.unwrap_or_else(|| {
        problems.push(Problem::of_file("it does not say which version of the operators it uses", AGAIN));
        OLDEST
    });
    if opset < OLDEST {
        let help = format!("convert it to version {OLDEST} or later with onnx.version_converter");
        problems.push(Problem::of_file(format!("it uses version {opset} of the operators"), help));
    }
    let constants = constants(&graph, folder, &mut problems);
    let nodes = nodes(&graph, folder, &mut problems);
    let (inputs, outputs) = ends(&graph, &constants, &mut problems);
    let files = folder.files.take();
    if problems.is_empty() { Ok(Model { opset, inputs, outputs, constants, nodes, files }) } else { Err(problems) }
}

/// The initialisers.
fn constants(graph: &GraphProto, folder: &Folder<'_>, problems: &mut Vec<Problem>) -> BTreeMap<String, Tensor> {
    let mut constants = BTreeMap::new();
    for proto in &graph.initializer {
        let name = proto.name.clone().unwrap_or_default();
        match tensor(proto, folder) {
            Ok(tensor) => drop(constants.insert(name, tensor)),
            Err(fault) => problems.push(Problem::at(format!("initialiser `{name}`"), fault)),
        }
    }
    constants
}

/// The nodes in order.
fn nodes(graph: &GraphProto, folder: &Folder<'_>, problems: &mut Vec<Problem>) -> Vec<Node> {
    let (mut nodes, mut given) = (vec![], BTreeSet::new());
    for proto in &graph.node {
        let op = proto.op_type.clone().unwrap_or_default();
        let first = proto.output.first().cloned().unwrap_or_default();
        let name = proto.name.clone().filter(|name| !name.is_empty()).unwrap_or(first);
        let place = format!("node `{name}` ({op})");
        let mut wrong = |fault| problems.push(Problem::at(&place, fault));
        if [SUMS, TABLE].contains(&op.as_str()) {
            wrong(Fault::new("the operator is not supported", AGAIN));
        }
        let domain = proto.domain.clone().unwrap_or_default();
        let of_runtime = domain == "com.microsoft" && OF_ONNX_RUNTIME.iter().chain(&BY_NUMBERS).any(|name| *name == op);
        if !domain.is_empty() && domain != "ai.onnx" && !of_runtime {
            let help = "export the model with operators of the standard";
            wrong(Fault::new(format!("its operator is of the domain `{domain}`"), help));
            continue;
        }
        for output in proto.output.iter().filter(|name| !name.is_empty()) {
            if !given.insert(output.clone()) {
                wrong(Fault::new(format!("`{output}` is given by two nodes"), AGAIN));
            }
        }
        let (mut attributes, mut inputs) = (BTreeMap::new(), proto.input.clone());
        for proto in &proto.attribute {
            let value = match &proto.g {
                Some(graph) if proto.r#type == Some(AttributeType::GRAPH) => inner(graph, folder, problems),
                _ => attribute(proto, folder),
            };
            match value {
                Ok(value) => drop(attributes.insert(proto.name.clone().unwrap_or_default(), value)),
                Err(fault) => problems.push(Problem::at(&place, fault)),
            }
        }
        for graph in attributes.values() {
            let Attribute::Graph(graph) = graph else { continue };
            // The values of a graph's inputs come first: those that are not given have no names.
            inputs.resize(inputs.len().max(graph.inputs.len()), String::new());
            let known: BTreeSet<String> = inputs.iter().cloned().collect();
            inputs.extend(graph.captured().into_iter().filter(|name| !known.contains(*name)).cloned());
        }
        nodes.push(Node { name, op, inputs, outputs: proto.output.clone(), attributes });
    }
    nodes
}

/// A graph within a node.
fn inner(proto: &GraphProto, folder: &Folder<'_>, problems: &mut Vec<Problem>) -> Result<Attribute, Fault> {
    let names = |all: &[ValueInfoProto]| all.iter().map(|info| info.name.clone().unwrap_or_default()).collect();
    let constants = constants(proto, folder, problems);
    let nodes = nodes(proto, folder, problems);
    Ok(Attribute::Graph(Graph { inputs: names(&proto.input), outputs: names(&proto.output), constants, nodes }))
}

/// Inputs without initialisers, and the names of the outputs.
fn ends(
    graph: &GraphProto,
    constants: &BTreeMap<String, Tensor>,
    problems: &mut Vec<Problem>,
) -> (Vec<Input>, Vec<String>) {
    let mut inputs = vec![];
    for info in &graph.input {
        let name = info.name.clone().unwrap_or_default();
        if constants.contains_key(&name) {
            continue;
        }
        let Some(kind) = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()) else {
            problems.push(Problem::at(
                format!("input `{name}`"),
                Fault::new("it is no tensor", "export the model with tensors"),
            ));
            continue;
        };
        let dtype = match kind.elem_type {
            None | Some(DataType::FLOAT | DataType::DOUBLE) => DType::F32,
            Some(DataType::FLOAT16) => DType::F16,
            Some(DataType::BFLOAT16) => DType::Bf16,
            Some(DataType::INT8) => DType::I8,
            Some(DataType::UINT8) => DType::U8,
            Some(DataType::INT64 | DataType::INT32 | DataType::INT16 | DataType::BOOL) => DType::I32,
            Some(DataType::UINT64 | DataType::UINT32 | DataType::UINT16) => DType::I32,
            Some(other) => {
                let kind = other.name().unwrap_or("of an unknown type");
                let fault = Fault::new(
                    format!("its elements are {kind}"),
                    "export the model with inputs in f32, f16, bf16, i8, u8, i32, i64 or bool",
                );
                problems.push(Problem::at(format!("input `{name}`"), fault));
                DType::F32
            }
        };
        let shape = kind.shape.as_ref().map(|shape| {
            let extent = |d: &rten_onnx::onnx::Dimension| match d.dim_value {
                Some(value) if value > 0 => Extent::Known(value),
                _ => Extent::Named(d.dim_param.clone().unwrap_or_default()),
            };
            shape.dim.iter().map(extent).collect()
        });
        let limits = match kind.elem_type {
            Some(DataType::BOOL) => [0, 1],
            Some(DataType::INT8) => [i8::MIN.into(), i8::MAX.into()],
            Some(DataType::UINT8) => [0, u8::MAX.into()],
            Some(DataType::INT16) => [i16::MIN.into(), i16::MAX.into()],
            Some(DataType::UINT16) => [0, u16::MAX.into()],
            Some(DataType::INT32) => [i32::MIN.into(), i32::MAX.into()],
            Some(DataType::UINT32) => [0, u32::MAX.into()],
            Some(DataType::UINT64) => [0, i64::MAX],
            _ => [i64::MIN, i64::MAX],
        };
        inputs.push(Input { name, shape, dtype, truth: kind.elem_type == Some(DataType::BOOL), limits });
    }
    let outputs: Vec<String> = graph.output.iter().filter_map(|info| info.name.clone()).collect();
    if outputs.is_empty() {
        problems.push(Problem::of_file("it has no outputs", AGAIN));
    }
    (inputs, outputs)
}

/// The value of an attribute.
fn attribute(proto: &AttributeProto, folder: &Folder<'_>) -> Result<Attribute, Fault> {
    let kind = proto.r#type.unwrap_or(AttributeType::UNDEFINED);
    Ok(match kind {
        AttributeType::FLOAT => Attribute::Float(proto.f.unwrap_or_default()),
        AttributeType::INT => Attribute::Integer(proto.i.unwrap_or_default()),
        AttributeType::STRING => Attribute::Text(proto.s.clone().unwrap_or_default()),
        AttributeType::TENSOR => match &proto.t {
            Some(proto) => Attribute::Tensor(tensor(proto, folder)?),
            None => Attribute::Other("nothing"),
        },
        AttributeType::INTS => Attribute::Integers(proto.ints.clone()),
        AttributeType::FLOATS => Attribute::Floats(proto.floats.clone()),
        AttributeType::STRINGS => Attribute::Texts(proto.strings.clone()),
        _ => Attribute::Other("another type"),
    })
}

/// A constant.
fn tensor(proto: &TensorProto, folder: &Folder<'_>) -> Result<Tensor, Fault> {
    if !is_shape(&proto.dims) {
        return Err(Fault::new(format!("its shape is {:?}", proto.dims), AGAIN));
    }
    let elements: i64 = proto.dims.iter().product();
    let kind = proto.data_type.unwrap_or(DataType(0));
    let external;
    let inside;
    let raw: Option<&[u8]> = if proto.data_location == Some(DataLocation::EXTERNAL) {
        external = read_external(proto, folder)?;
        Some(&external)
    } else {
        inside = proto.raw_data.as_ref().map(|cell| cell.borrow());
        inside.as_ref().map(|bytes| &bytes[..])
    };
    let data = match (raw, four_bits(kind)) {
        (Some(raw), Some(signed)) => Some(of_halves(raw.iter().copied(), signed, elements)),
        (None, Some(signed)) => Some(of_halves(proto.int32_data.iter().map(|v| *v as u8), signed, elements)),
        (Some(raw), None) => of_bytes(kind, raw),
        (None, None) => of_lists(kind, proto),
    };
    let data = data.ok_or_else(|| {
        let name = kind.name().map_or_else(|| kind.0.to_string(), str::to_string);
        Fault::new(
            format!("its elements are of the type {name}"),
            "export the model with f32 weights and integer shapes",
        )
    })?;
    if data.len() as i64 != elements {
        let cause = format!("its shape {:?} has {elements} elements, and the file has {}", proto.dims, data.len());
        return Err(Fault::new(cause, AGAIN));
    }
    let byte = match (kind, four_bits(kind)) {
        (DataType::INT8, _) | (_, Some(true)) => Some(DType::I8),
        (DataType::UINT8, _) | (_, Some(false)) => Some(DType::U8),
        _ => None,
    };
    Ok(Tensor { shape: proto.dims.clone(), data, byte, four_bits: four_bits(kind).is_some() })
}

/// Whether integers have four bits, and if so whether they have signs.
fn four_bits(kind: DataType) -> Option<bool> {
    match kind.0 {
        21 => Some(false),
        22 => Some(true),
        _ => None,
    }
}

/// Integers of four bits, of which the lower half of a byte comes first; the last byte may have one.
fn of_halves(bytes: impl ExactSizeIterator<Item = u8>, signed: bool, elements: i64) -> Data {
    let value = |half: u8| if signed && half > 7 { i64::from(half) - 16 } else { i64::from(half) };
    // Of as many bytes as there have to be, the last half may be none.
    let there = if bytes.len() as i64 == ceil_div(elements, 2) { elements as usize } else { 2 * bytes.len() };
    let all = bytes.flat_map(|byte| [byte & 15, byte >> 4]).map(value);
    Data::Integers(all.take(there).collect())
}

/// Elements of raw bytes, in little-endian order; a number of bytes that is no multiple of the size loses the rest.
fn of_bytes(kind: DataType, raw: &[u8]) -> Option<Data> {
    fn each<const N: usize, T>(raw: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
        raw.chunks_exact(N).map(|bytes| value(bytes.try_into().expect("chunks have this size"))).collect()
    }
    Some(match kind {
        DataType::FLOAT => Data::Floats(each(raw, f32::from_le_bytes).into()),
        DataType::DOUBLE => Data::Floats(each(raw, |b| f64::from_le_bytes(b) as f32).into()),
        DataType::FLOAT16 => Data::Floats(each(raw, |b| f16_value(u16::from_le_bytes(b))).into()),
        DataType::BFLOAT16 => Data::Floats(each(raw, |b| bf16_value(u16::from_le_bytes(b))).into()),
        DataType::INT64 => Data::Integers(each(raw, i64::from_le_bytes).into()),
        DataType::INT32 => Data::Integers(each(raw, |b| i64::from(i32::from_le_bytes(b))).into()),
        DataType::INT16 => Data::Integers(each(raw, |b| i64::from(i16::from_le_bytes(b))).into()),
        DataType::INT8 => Data::Integers(each(raw, |b| i64::from(i8::from_le_bytes(b))).into()),
        DataType::UINT32 => Data::Integers(each(raw, |b| i64::from(u32::from_le_bytes(b))).into()),
        DataType::UINT16 => Data::Integers(each(raw, |b| i64::from(u16::from_le_bytes(b))).into()),
        DataType::UINT8 | DataType::BOOL => Data::Integers(each(raw, |b| i64::from(u8::from_le_bytes(b))).into()),
        _ => return None,
    })
}

/// Elements of the lists of numbers.
fn of_lists(kind: DataType, proto: &TensorProto) -> Option<Data> {
    let halves = |value: fn(u16) -> f32| proto.int32_data.iter().map(|bits| value(*bits as u16)).collect();
    Some(match kind {
        DataType::FLOAT => Data::Floats(proto.float_data.clone().into()),
        DataType::DOUBLE => Data::Floats(proto.double_data.iter().map(|v| *v as f32).collect()),
        DataType::FLOAT16 => Data::Floats(halves(f16_value)),
        DataType::BFLOAT16 => Data::Floats(halves(bf16_value)),
        DataType::INT64 => Data::Integers(proto.int64_data.clone().into()),
        DataType::INT32 | DataType::INT16 | DataType::INT8 | DataType::UINT16 | DataType::UINT8 | DataType::BOOL => {
            Data::Integers(proto.int32_data.iter().map(|v| i64::from(*v)).collect())
        }
        _ => return None,
    })
}
/// The bytes of a constant that lies in another file. Its folder must be the model's, or one below.
fn read_external(proto: &TensorProto, folder: &Folder<'_>) -> Result<Vec<u8>, Fault> {
    let entry = |key: &str| {
        let found = proto.external_data.iter().find(|entry| entry.key.as_deref() == Some(key));
        found.and_then(|entry| entry.value.clone())
    };
    let location = entry("location").ok_or_else(|| Fault::new("it lies in a file that is not named", AGAIN))?;
    let outside = || {
        let cause = format!("it lies in `{location}`, which is not below the model's folder");
        Fault::new(cause, "put external data beside the model")
    };
    let relative = Path::new(&location);
    if location.is_empty() || !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(outside());
    }
    let path = folder.path.join(relative);
    let unreadable =
        |e: std::io::Error| Fault::new(format!("it lies in `{location}`: {e}"), "put external data beside the model");
    // A link may lead elsewhere.
    let folder_path = if folder.path.as_os_str().is_empty() { Path::new(".") } else { folder.path };
    let (real, root) =
        (fs::canonicalize(&path).map_err(unreadable)?, fs::canonicalize(folder_path).map_err(unreadable)?);
    if !real.starts_with(root) {
        return Err(outside());
    }
    let number = |key: &str| match entry(key) {
        Some(text) => {
            text.trim().parse::<usize>().map(Some).map_err(|_| Fault::new(format!("its {key} is `{text}`"), AGAIN))
        }
        None => Ok(None),
    };
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
    let bytes = fs::read(&real).map_err(unreadable)?;
    folder.files.borrow_mut().insert(path);
    let end = length.map_or(Some(bytes.len()), |length| offset.checked_add(length));
    let part = end.and_then(|end| bytes.get(offset..end)).map(<[u8]>::to_vec);
    part.ok_or_else(|| {
        let cause = format!("it lies behind the end of `{location}`, which has {} bytes", bytes.len());
        Fault::new(cause, "copy the whole file")
    })
}
