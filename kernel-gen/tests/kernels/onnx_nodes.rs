//! The ONNX project's published tests of nodes as networks: what the steps of each give is what is published, whether its operands are
//! given when it runs or are constants. `tests/onnx/nodes.py` wrote them.
//!
//! `KERNEL_GEN_NODES` names another file of them; `KERNEL_GEN_BLESS=1` writes `tests/onnx/nodes_refused.txt` anew.

use crate::networks::evaluate;
use crate::random_network::tensor;
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network, parse};
use kernel_gen::workload::ConvLayout;
use rten_onnx::onnx::{DataType, ModelProto};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// An input or an output of a test.
struct Tensor {
    name: String,
    dtype: String,
    shape: Vec<i64>,
    data: Vec<f64>,
}

fn tensors(of: &Value) -> Vec<Tensor> {
    let number = |v: &Value| v.as_f64().unwrap_or_else(|| v.as_str().unwrap().parse().unwrap());
    let one = |t: &Value| Tensor {
        name: t["name"].as_str().unwrap().into(),
        dtype: t["dtype"].as_str().unwrap().into(),
        shape: t["shape"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect(),
        data: t["data"].as_array().unwrap().iter().map(number).collect(),
    };
    of.as_array().unwrap().iter().map(one).collect()
}

/// The bytes of a tensor in its type, if it is one of those that constants have here.
fn raw(of: &Tensor) -> Option<(DataType, Vec<u8>)> {
    macro_rules! bytes {
        ($kind:ident, $t:ty) => {
            Some((DataType::$kind, of.data.iter().flat_map(|v| (*v as $t).to_le_bytes()).collect()))
        };
    }
    match of.dtype.as_str() {
        "float32" => bytes!(FLOAT, f32),
        "int64" => bytes!(INT64, i64),
        "int32" => bytes!(INT32, i32),
        "int8" => bytes!(INT8, i8),
        "uint8" => bytes!(UINT8, u8),
        "bool" => bytes!(BOOL, u8),
        _ => None,
    }
}

/// The model with some of its inputs as constants.
fn with_constants(mut model: ModelProto, inputs: &[Tensor], constant: &dyn Fn(usize) -> bool) -> Option<ModelProto> {
    let graph = model.graph.as_mut()?;
    for (_, input) in inputs.iter().enumerate().filter(|(i, _)| constant(*i)) {
        let (kind, bytes) = raw(input)?;
        graph.input.retain(|info| info.name.as_ref() != Some(&input.name));
        graph.initializer.push(tensor(&input.name, &input.shape, kind, bytes));
    }
    Some(model)
}

/// Whether a test's result is the published one; what differs, if not.
fn differs(case: &Value, given: &[Tensor], model: &ModelProto) -> Result<Option<String>, String> {
    let is_input = |name: &String| {
        let infos = model.graph.iter().flat_map(|graph| &graph.input);
        infos.clone().any(|info| info.name.as_ref() == Some(name))
    };
    let named = given.iter().filter(|t| is_input(&t.name));
    let shapes: BTreeMap<String, Vec<i64>> = named.map(|t| (t.name.clone(), t.shape.clone())).collect();
    let bytes = model.write_buf().map_err(|e| e.to_string())?;
    let program = parse(&bytes, Path::new("/nowhere"), &shapes).map_err(|all| all[0].to_string())?;
    let input = |name: &String| given.iter().find(|t| t.name == *name).expect("it is an input").data.clone();
    let values: Vec<Vec<f64>> = program.inputs.iter().map(|(name, _)| input(name)).collect();
    let network = Network::of("node", program, Form { dtype: DType::F32, layout: ConvLayout::Nchw });
    for step in &network.plans[0].program.steps {
        step.workload.validate().map_err(|e| e.to_string())?;
    }
    let results = evaluate(&network.plans[0].program, &values, Some(&network));
    let expected = tensors(&case["outputs"]);
    let [rtol, atol] = ["rtol", "atol"].map(|key| case[key].as_f64().unwrap());
    for ((name, id), found) in network.plans[0].program.outputs.iter().zip(results) {
        let wanted = expected.iter().find(|t| t.name == *name).expect("it is an output");
        let shape = &network.plans[0].program.values[*id].shape;
        if *shape != wanted.shape {
            return Ok(Some(format!("`{name}` is {shape:?}, not {:?}", wanted.shape)));
        }
        for (i, (a, b)) in found.iter().zip(&wanted.data).enumerate() {
            let near = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= atol + rtol * b.abs();
            // A number in f32 may be published as an infinity.
            let beyond = b.is_infinite() && a.abs() > f64::from(f32::MAX);
            if !(near || beyond) {
                return Ok(Some(format!("`{name}`[{i}] is {a}, not {b}")));
            }
        }
    }
    Ok(None)
}

#[test]
fn published_nodes_give_what_is_published() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/onnx");
    let other = std::env::var_os("KERNEL_GEN_NODES").map(PathBuf::from);
    let text = std::fs::read_to_string(other.clone().unwrap_or(own.join("nodes.jsonl"))).unwrap();
    let (mut runs, mut wrong, mut refused) = (0, String::new(), String::new());
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        let given = tensors(&case["inputs"]);
        let digits = case["model"].as_str().unwrap();
        let bytes: Vec<u8> =
            (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
        let is_integer = |i: usize| !given[i].dtype.starts_with("float");
        // All given when it runs, integers as constants, all but the first as constants.
        let ways: [&dyn Fn(usize) -> bool; 3] = [&|_| false, &|i| i > 0 && is_integer(i), &|i| i > 0];
        let (mut passed, mut why, mut before) = (0, None, None);
        for way in ways {
            let which: Vec<bool> = (0..given.len()).map(way).collect();
            if before.replace(which.clone()) == Some(which) {
                continue;
            }
            let model = ModelProto::parse_buf(&bytes).unwrap();
            let Some(model) = with_constants(model, &given, way) else { continue };
            match differs(&case, &given, &model) {
                Ok(None) => passed += 1,
                Ok(Some(difference)) => writeln!(wrong, "{name}: {difference}").unwrap(),
                Err(text) => why = Some(text),
            }
        }
        runs += passed;
        if passed == 0 {
            writeln!(refused, "{name}: {}", why.unwrap_or_default()).unwrap();
        }
    }
    println!("{} tests, {runs} runs, {} refused", text.lines().count(), refused.lines().count());
    assert!(wrong.is_empty(), "{wrong}");
    if other.is_some() {
        println!("{refused}");
        return;
    }
    let list = own.join("nodes_refused.txt");
    if std::env::var_os("KERNEL_GEN_BLESS").is_some() {
        std::fs::write(&list, &refused).unwrap();
    }
    assert_eq!(
        refused,
        std::fs::read_to_string(&list).unwrap_or_default(),
        "KERNEL_GEN_BLESS=1 writes {}",
        list.display()
    );
}
