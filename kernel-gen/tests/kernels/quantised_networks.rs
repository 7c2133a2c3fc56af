//! Networks on integers of eight bits: what ONNX publishes of its operators, and what is refused.

use crate::networks::evaluate;
use crate::random_network::{ints, model, node, tensor};
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network, Program, parse};
use kernel_gen::workload::ConvLayout;
use rten_onnx::onnx::{DataType, Dimension, GraphProto, ModelProto, OperatorSetIdProto, TensorShapeProto, TypeProto};
use rten_onnx::onnx::{TypeProtoTensor, ValueInfoProto};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A line of the file.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Case(Case),
    LeftOut(LeftOut),
}

struct Cases {
    case: Vec<Case>,
    left_out: Vec<LeftOut>,
}

/// A published test of one node.
#[derive(Deserialize)]
struct Case {
    name: String,
    op: String,
    opset: i64,
    attributes: BTreeMap<String, Vec<i64>>,
    inputs: Vec<String>,
    input: Vec<Tensor>,
    output: Vec<Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    r#type: String,
    shape: Vec<i64>,
    data: Vec<f64>,
}

#[derive(Deserialize)]
struct LeftOut {
    name: String,
    reason: String,
}

impl Tensor {
    fn kind(&self) -> DataType {
        match self.r#type.as_str() {
            "float32" => DataType::FLOAT,
            "uint8" => DataType::UINT8,
            "int8" => DataType::INT8,
            other => {
                assert_eq!(other, "int32");
                DataType::INT32
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let bytes = |v: &f64| match self.r#type.as_str() {
            "float32" => (*v as f32).to_le_bytes().to_vec(),
            "uint8" => vec![*v as u8],
            "int8" => vec![*v as i8 as u8],
            _ => (*v as i32).to_le_bytes().to_vec(),
        };
        self.data.iter().flat_map(bytes).collect()
    }
}

fn value(name: &str, shape: &[i64], kind: DataType) -> ValueInfoProto {
    let dim = |n: &i64| Dimension { dim_value: Some(*n), dim_param: None };
    let shape = TensorShapeProto { dim: shape.iter().map(dim).collect() };
    let tensor_type = Some(TypeProtoTensor { elem_type: Some(kind), shape: Some(shape) });
    ValueInfoProto { name: Some(name.into()), r#type: Some(TypeProto { tensor_type, ..Default::default() }) }
}

/// The model of a case, in which the tensors at these places of its node are inputs and the others constants.
fn model_of(case: &Case, at_run_time: &[usize]) -> ModelProto {
    let attributes = case.attributes.iter().map(|(name, values)| match &values[..] {
        [one] => crate::random_network::int(name, *one),
        all => ints(name, all),
    });
    let inputs: Vec<&str> = case.inputs.iter().map(String::as_str).collect();
    let outputs: Vec<&str> = case.output.iter().map(|t| t.name.as_str()).collect();
    let runs = |t: &&Tensor| at_run_time.iter().any(|at| case.inputs[*at] == t.name);
    let graph = GraphProto {
        node: vec![node(&case.op, &inputs, &outputs, attributes.collect())],
        input: case.input.iter().filter(runs).map(|t| value(&t.name, &t.shape, t.kind())).collect(),
        initializer: case
            .input
            .iter()
            .filter(|t| !runs(t))
            .map(|t| tensor(&t.name, &t.shape, t.kind(), t.bytes()))
            .collect(),
        output: case.output.iter().map(|t| value(&t.name, &t.shape, t.kind())).collect(),
        ..Default::default()
    };
    let version = OperatorSetIdProto { domain: Some(String::new()), version: Some(case.opset) };
    ModelProto { opset_import: vec![version], ..model(graph) }
}

fn cases() -> Cases {
    let mut cases = Cases { case: vec![], left_out: vec![] };
    for line in include_str!("quantised_networks.json").lines() {
        match serde_json::from_str(line).expect("what tests/onnx/quantised.py writes") {
            Line::Case(case) => cases.case.push(case),
            Line::LeftOut(test) => cases.left_out.push(test),
        }
    }
    cases
}

fn read(model: &ModelProto) -> Result<Program, String> {
    let bytes = model.write_buf().unwrap();
    parse(&bytes, Path::new("/nowhere"), &BTreeMap::new()).map_err(|all| all[0].to_string())
}

/// Published tests that need a scale for each channel of activations, or for blocks.
const REFUSED: [&str; 3] =
    ["test_dequantizelinear_blocked", "test_quantizelinear_axis", "test_quantizelinear_blocked_asymmetric"];

#[test]
fn published_tests_on_integers_give_the_published_results() {
    let all = cases();
    let mut run = 0;
    for case in all.case.iter().filter(|case| !REFUSED.contains(&case.name.as_str())) {
        // The first operand comes when the network runs, and the second factor of products once more.
        let second = case.inputs.iter().position(|name| ["B", "b"].contains(&name.as_str()));
        for at_run_time in [vec![0], second.map_or(vec![0], |at| vec![0, at])] {
            let what = format!("{} with operands {at_run_time:?}", case.name);
            let program = read(&model_of(case, &at_run_time)).unwrap_or_else(|e| panic!("{what}: {e}"));
            let inputs: Vec<Vec<f64>> = (program.inputs.iter())
                .map(|(name, _)| case.input.iter().find(|t| t.name == *name).expect("its input").data.clone())
                .collect();
            for (result, expected) in evaluate(&program, &inputs, None).iter().zip(&case.output) {
                let tolerance = if expected.r#type == "float32" { 1e-6 } else { 0.0 };
                let near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * b.abs();
                let same = result.len() == expected.data.len() && result.iter().zip(&expected.data).all(near);
                assert!(same, "{what}: {} is {result:?} and should be {:?}", expected.name, expected.data);
            }
            run += 1;
        }
    }
    println!("{run} networks of {} published tests; {} are of other types", all.case.len(), all.left_out.len());
    assert_eq!((all.case.len(), run, all.left_out.len()), (17, 28, 25));
    assert!(all.left_out.iter().all(|test| !test.reason.is_empty() && !test.name.is_empty()));
}

#[test]
fn what_scales_and_zero_points_cannot_be_is_said_in_one_line() {
    let all = cases();
    let find = |name: &str| all.case.iter().find(|case| case.name == name).expect("a published test");
    for name in REFUSED {
        let error = read(&model_of(find(name), &[0])).unwrap_err();
        assert!(!error.contains('\n') && error.contains("scale") || error.contains("block_size"), "{error}");
    }
    // The scale of the input, of a weight, and of the output.
    let scaled = |at: &str, by: f64| {
        let case = find("test_qlinearconv");
        let mut model = model_of(case, &[0]);
        let constants = &mut model.graph.as_mut().expect("it has one").initializer;
        let found = constants.iter_mut().find(|t| t.name.as_deref() == Some(at)).expect("a scale");
        let t = case.input.iter().find(|t| t.name == at).expect("a scale");
        *found = tensor(at, &t.shape, DataType::FLOAT, (by as f32).to_le_bytes().to_vec());
        read(&model).unwrap_err()
    };
    for (at, by, cause) in [
        ("x_scale", 0.0, "its scale of its input is 0; a scale is a finite number above 0"),
        ("w_scale", f64::NAN, "its scale of its weights is NaN; a scale is a finite number above 0"),
        ("y_scale", -1.0, "its scale of its output is -1; a scale is a finite number above 0"),
    ] {
        let error = scaled(at, by);
        assert!(error.contains(cause), "{error}");
    }
}

#[test]
fn a_network_of_integers_is_planned_as_others_are() {
    let all = cases();
    for name in ["test_qlinearconv", "test_dynamicquantizelinear", "test_matmulinteger"] {
        let case = all.case.iter().find(|case| case.name == name).expect("a published test");
        let program = read(&model_of(case, &[0])).unwrap_or_else(|e| panic!("{name}: {e}"));
        let network = Network::of("net", program, Form { dtype: DType::F32, layout: ConvLayout::Nhwc });
        let inputs: Vec<Vec<f64>> = vec![case.input[0].data.clone()];
        let result = evaluate(&network.program, &inputs, Some(&network));
        assert_eq!(result.last().map(Vec::len), case.output.last().map(|t| t.data.len()), "{name}");
    }
}
