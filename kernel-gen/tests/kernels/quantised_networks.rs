//! Networks on integers of eight bits: what ONNX publishes of its operators, and what is refused.

use crate::networks::evaluate;
use crate::random_network::{ints, model, node, tensor, value};
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network, Program, parse};
use kernel_gen::workload::ConvLayout;
use rten_onnx::onnx::{DataType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
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

/// The steps of a model as its nodes are, or what keeps it from being compiled.
pub(crate) fn read(model: &ModelProto) -> Result<Program, String> {
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

/// Padding stands for the zero point, so where there is some not every sum has all weights.
#[test]
fn a_zero_point_of_an_input_without_padding_goes_into_the_bias() {
    let all = cases();
    for (name, kept) in [("test_convinteger_without_padding", false), ("test_convinteger_with_padding", true)] {
        let case = all.case.iter().find(|case| case.name == name).expect("a published test");
        let program = read(&model_of(case, &[0])).unwrap_or_else(|e| panic!("{name}: {e}"));
        let convolution = program.steps.iter().find(|step| step.workload.conv2d().is_some()).expect("a convolution");
        let (quant, steps) = (convolution.workload.quant, &convolution.workload.epilogue);
        assert_eq!((quant.input_zero, steps.is_empty()), (kept, kept), "{name}: {}", convolution.workload.key());
        // Weights that come when the network runs have sums that nobody knows before.
        let program = read(&model_of(case, &[0, 1])).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(program.steps.iter().any(|step| step.workload.quant.input_zero), "{name}");
    }
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
        // In 16 bits scales of integers are `f32` all the same, and so is what they are computed from.
        for dtype in [DType::F32, DType::F16] {
            let network = Network::of("net", program.clone(), Form { dtype, layout: ConvLayout::Nhwc });
            let inputs: Vec<Vec<f64>> = vec![case.input[0].data.clone()];
            let result = evaluate(&network.plans[0].program, &inputs, Some(&network));
            assert_eq!(result.last().map(Vec::len), case.output.last().map(|t| t.data.len()), "{name} in {dtype}");
        }
    }
}

/// A model of a convolution between pairs, of a residual and of a pool: numbers in, numbers out.
fn model_of_pairs(scale_of_pool: f32) -> ModelProto {
    let number = |name: &str, v: f32| tensor(name, &[], DataType::FLOAT, v.to_le_bytes().to_vec());
    let byte = |name: &str, v: u8| tensor(name, &[], DataType::UINT8, vec![v]);
    let weights: Vec<u8> = (0..4 * 4 * 9).map(|i| (i * 37 % 251) as u8).collect();
    let scales: Vec<u8> = [0.01f32, 0.02, 0.015, 0.005].iter().flat_map(|s| s.to_le_bytes()).collect();
    let bias: Vec<u8> = [100i32, -2000, 7, 0].iter().flat_map(|b| b.to_le_bytes()).collect();
    // The scale of a bias is that of the sums.
    let of_bias: Vec<u8> = [0.01f32, 0.02, 0.015, 0.005].iter().flat_map(|s| (s * 0.05f32).to_le_bytes()).collect();
    let pair = |from: &str, scale: &str, zero: &str, to: &str| {
        let between = format!("{to}_q");
        let quantize = node("QuantizeLinear", &[from, scale, zero], &[&between], vec![]);
        [quantize, node("DequantizeLinear", &[&between, scale, zero], &[to], vec![])]
    };
    let axis = |at: i64| vec![crate::random_network::int("axis", at)];
    let mut nodes = vec![];
    nodes.extend(pair("x", "sx", "zx", "x1"));
    nodes.push(node("DequantizeLinear", &["w", "sw", "zw"], &["w1"], axis(0)));
    nodes.push(node("DequantizeLinear", &["b", "sb", "zb"], &["b1"], axis(0)));
    nodes.push(node("Conv", &["x1", "w1", "b1"], &["c"], vec![ints("pads", &[1; 4])]));
    nodes.extend(pair("c", "sc", "zc", "c1"));
    nodes.push(node("Add", &["c1", "x1"], &["a"], vec![]));
    nodes.push(node("Relu", &["a"], &["r"], vec![]));
    nodes.extend(pair("r", "sr", "zr", "r1"));
    nodes.push(node("MaxPool", &["r1"], &["p"], vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])]));
    nodes.extend(pair("p", "sp", "zr", "y"));
    let graph = GraphProto {
        node: nodes,
        input: vec![value("x", &[1, 4, 6, 6], DataType::FLOAT)],
        output: vec![value("y", &[1, 4, 3, 3], DataType::FLOAT)],
        initializer: vec![
            number("sx", 0.05),
            byte("zx", 128),
            tensor("w", &[4, 4, 3, 3], DataType::INT8, weights),
            tensor("sw", &[4], DataType::FLOAT, scales),
            tensor("zw", &[4], DataType::INT8, vec![0; 4]),
            tensor("b", &[4], DataType::INT32, bias),
            tensor("sb", &[4], DataType::FLOAT, of_bias),
            tensor("zb", &[4], DataType::INT32, vec![0; 16]),
            number("sc", 0.4),
            byte("zc", 120),
            number("sr", 0.3),
            byte("zr", 0),
            number("sp", scale_of_pool),
        ],
        ..Default::default()
    };
    model(graph)
}

#[test]
fn what_stands_between_pairs_is_computed_in_integers() {
    let given: Vec<f64> = (0..144).map(|i| f64::from(i * 7 % 41) * 0.1 - 2.0).collect();
    // The definition: each node in numbers.
    let by_hand = {
        let (x, at) = (&given, |c: usize, h: i64, w: i64| (h >= 0 && w >= 0 && h < 6 && w < 6).then_some((c, h, w)));
        let q = |v: f64, s: f64, z: f64| (v / s).round_ties_even().clamp(-z, 255.0 - z) * s;
        let image = |c: usize, h: i64, w: i64| {
            at(c, h, w).map_or(0.0, |(c, h, w)| q(x[c * 36 + (h * 6 + w) as usize], 0.05, 128.0))
        };
        let weight = |i: usize| f64::from((i * 37 % 251) as u8 as i8);
        let (scales, bias) = ([0.01, 0.02, 0.015, 0.005], [100.0, -2000.0, 7.0, 0.0]);
        let sum = |o: usize, h: i64, w: i64| {
            let taps = (0..36).map(|t| {
                let (c, kh, kw) = (t / 9, t as i64 / 3 % 3, t as i64 % 3);
                image(c, h + kh - 1, w + kw - 1) * weight(o * 36 + t) * scales[o]
            });
            let conv: f64 = taps.sum::<f64>() + bias[o] * scales[o] * 0.05;
            q((conv + image(o, h, w)).max(0.0), 0.3, 0.0)
        };
        let pooled = |i: usize| {
            let (o, h, w) = (i / 9, i as i64 / 3 % 3 * 2, i as i64 % 3 * 2);
            [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| sum(o, h + a, w + b)).into_iter().fold(0.0, f64::max)
        };
        (0..36).map(pooled).collect::<Vec<f64>>()
    };
    for (scale_of_pool, steps) in [(0.3, 5), (0.31, 7)] {
        let program = read(&model_of_pairs(scale_of_pool)).unwrap();
        for layout in [ConvLayout::Nchw, ConvLayout::Nhwc] {
            let network = Network::of("net", program.clone(), Form { dtype: DType::F32, layout });
            let keys: Vec<String> = network.plans[0].program.steps.iter().map(|step| step.workload.key()).collect();
            let conv =
                keys.iter().filter(|key| key.starts_with("conv2d-") && key.ends_with("-bias.requantize_add")).count();
            assert_eq!(conv, 1, "{keys:?}");
            let pool = keys.iter().any(|key| key.starts_with("max_pool2d-") && key.contains("-u8-"));
            assert_eq!(pool, scale_of_pool == 0.3, "{keys:?}");
            if layout == ConvLayout::Nchw {
                assert_eq!(keys.len(), if pool { 4 } else { steps - 1 }, "{keys:?}");
            }
            let result = evaluate(&network.plans[0].program, std::slice::from_ref(&given), Some(&network)).remove(0);
            // A step of the scale, and one of the pool's where that is another.
            let worst = result.iter().zip(&by_hand).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst <= 0.3 + 0.16 + 1e-6, "{worst}: {result:?} {by_hand:?}");
        }
    }
}

#[test]
fn pairs_that_operators_on_integers_do_not_take_are_computed_in_numbers() {
    let floats = |of: &[f32]| of.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    // Of activations with a scale for each channel, and of a sum that an i32 may not hold.
    for (terms, scales) in [(4, vec![0.5, 0.25, 2.0, 1.0]), (66_000, vec![0.5])] {
        let axis = match scales.len() {
            1 => vec![],
            _ => vec![crate::random_network::int("axis", 1)],
        };
        let byte = |name: &str, of: DataType| tensor(name, &[], of, vec![0]);
        let weights: Vec<u8> = (0..terms).map(|i| (i % 5) as u8).collect();
        let graph = GraphProto {
            node: vec![
                node("DequantizeLinear", &["x", "sx"], &["x1"], axis),
                node("DequantizeLinear", &["w", "sw"], &["w1"], vec![]),
                node("MatMul", &["x1", "w1"], &["sum"], vec![]),
                node("QuantizeLinear", &["sum", "sy", "zy"], &["y"], vec![]),
            ],
            input: vec![value("x", &[1, terms], DataType::UINT8)],
            output: vec![value("y", &[1, 1], DataType::UINT8)],
            initializer: vec![
                tensor("sx", if scales.len() == 1 { &[] } else { &[4] }, DataType::FLOAT, floats(&scales)),
                tensor("w", &[terms, 1], DataType::INT8, weights),
                tensor("sw", &[], DataType::FLOAT, floats(&[0.125])),
                tensor("sy", &[], DataType::FLOAT, floats(&[terms as f32 / 8.0])),
                byte("zy", DataType::UINT8),
            ],
            ..Default::default()
        };
        let program = read(&model(graph)).unwrap_or_else(|e| panic!("{terms}: {e}"));
        assert!(program.steps.iter().all(|step| !step.workload.key().contains("requantize")), "{terms}");
        let given: Vec<f64> = (0..terms).map(|i| (i * 7 % 64) as f64).collect();
        let by_hand: f64 =
            (0..terms as usize).map(|i| given[i] * f64::from(scales[i % scales.len()]) * (i % 5) as f64 * 0.125).sum();
        let expected = (by_hand / (terms as f64 / 8.0)).round_ties_even().min(255.0);
        let result = evaluate(&program, &[given], None).remove(0);
        assert!((result[0] - expected).abs() <= 1.0 && expected > 0.0, "{terms}: {result:?}, not {expected}");
    }
}

/// What operators of ONNX Runtime give, and pairs that say the same: functions of elements are tables, and the rest is computed in numbers.
#[test]
fn functions_of_integers_become_tables_and_neighbours_stay_integers() {
    let number = |name: &str, v: f32| tensor(name, &[], DataType::FLOAT, v.to_le_bytes().to_vec());
    let byte = |name: &str, v: u8| tensor(name, &[], DataType::UINT8, vec![v]);
    let constants = || {
        vec![
            number("sx", 0.05),
            byte("zx", 128),
            number("ss", 1.0 / 256.0),
            byte("zs", 0),
            number("sy", 0.025),
            byte("zy", 12),
        ]
    };
    let pair = |from: &str, scale: &str, zero: &str, to: &str| {
        let between = format!("{to}_q");
        let quantize = node("QuantizeLinear", &[from, scale, zero], &[&between], vec![]);
        [quantize, node("DequantizeLinear", &[&between, scale, zero], &[to], vec![])]
    };
    let of_runtime = |op: &str, inputs: &[&str], output: &str, attributes: Vec<_>| {
        let mut made = node(op, inputs, &[output], attributes);
        made.domain = Some("com.microsoft".into());
        made
    };
    let whole = |nodes: Vec<_>, shape: &[i64]| {
        model(GraphProto {
            node: nodes,
            input: vec![value("x", &[1, 2, 4, 32], DataType::UINT8)],
            output: vec![value("y", shape, DataType::UINT8)],
            initializer: constants(),
            ..Default::default()
        })
    };
    let x: Vec<f64> = (0..256).map(|i| f64::from(i * 37 % 256)).collect();
    let of_x = |q: f64| (q - 128.0) * f64::from(0.05f32);
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    let stands = |v: f64, scale: f32, zero: f64| ((v / f64::from(scale)).round_ties_even() + zero).clamp(0.0, 255.0);
    let rounded = |v: f64| stands(v, 1.0 / 256.0, 0.0) / 256.0;
    let start = node("DequantizeLinear", &["x", "sx", "zx"], &["n"], vec![]);
    let end = node("QuantizeLinear", &["f", "sy", "zy"], &["y"], vec![]);
    let leaky = crate::random_network::float("alpha", 0.25);
    // x sigmoid(x), whose factor is rounded between a pair.
    let mut silu = vec![start.clone(), node("Sigmoid", &["n"], &["s"], vec![])];
    silu.extend(pair("s", "ss", "zs", "s1"));
    silu.extend([node("Mul", &["n", "s1"], &["f"], vec![]), end.clone()]);
    type Function<'a> = &'a dyn Fn(f64) -> f64;
    let tables: [(&str, Vec<_>, Function<'_>); 4] = [
        ("silu", silu, &|v| v * rounded(sigmoid(v))),
        ("hard swish", vec![start.clone(), node("HardSwish", &["n"], &["f"], vec![]), end.clone()], &|v| {
            v * (v / 6.0 + 0.5).clamp(0.0, 1.0)
        }),
        ("QLinearSigmoid", vec![of_runtime("QLinearSigmoid", &["x", "sx", "zx", "sy", "zy"], "y", vec![])], &sigmoid),
        (
            "QLinearLeakyRelu",
            vec![of_runtime("QLinearLeakyRelu", &["x", "sx", "zx", "sy", "zy"], "y", vec![leaky])],
            &|v| if v < 0.0 { 0.25 * v } else { v },
        ),
    ];
    for (what, nodes, function) in tables {
        let program = read(&whole(nodes, &[1, 2, 4, 32])).unwrap_or_else(|e| panic!("{what}: {e}"));
        let keys: Vec<String> = program.steps.iter().map(|step| step.workload.key()).collect();
        assert_eq!(keys, ["lookup-u8-1x2x4x32"], "{what}");
        let expected: Vec<f64> = x.iter().map(|q| stands(function(of_x(*q)), 0.025, 12.0)).collect();
        let form = Form { dtype: DType::F32, layout: ConvLayout::Nhwc };
        let network = Network::of("net", program, form);
        let result = evaluate(&network.plans[0].program, std::slice::from_ref(&x), Some(&network)).remove(0);
        // Numbers half way between two integers are such in f64 and not in f32.
        let near = result.iter().zip(&expected).filter(|(a, b)| (**a - **b).abs() == 1.0).count();
        let same = result.iter().zip(&expected).filter(|(a, b)| a == b).count();
        assert!(same + near == 256 && near <= 4, "{what}: {result:?} and should be {expected:?}");
    }
    // What has the scale of the result stays as it is, and the other integers become such.
    let mut beside = vec![start.clone(), node("Sigmoid", &["n"], &["s"], vec![])];
    beside.extend(pair("s", "ss", "zs", "s1"));
    beside.push(node("Concat", &["s1", "n"], &["f"], vec![crate::random_network::int("axis", 1)]));
    beside.push(node("QuantizeLinear", &["f", "ss", "zs"], &["y"], vec![]));
    let program = read(&whole(beside, &[1, 4, 4, 32])).unwrap();
    let keys: Vec<String> = program.steps.iter().map(|step| step.workload.key()).collect();
    let expected = ["lookup-u8-1x2x4x32", "lookup-u8-1x2x4x32", "concat-u8-1x2x4x32-2-a1"];
    assert_eq!(keys, expected);
    let network = Network::of("net", program, Form { dtype: DType::F32, layout: ConvLayout::Nhwc });
    let result = evaluate(&network.plans[0].program, std::slice::from_ref(&x), Some(&network)).remove(0);
    let parts = x.iter().map(|q| stands(sigmoid(of_x(*q)), 1.0 / 256.0, 0.0));
    let expected: Vec<f64> = parts.chain(x.iter().map(|q| stands(of_x(*q), 1.0 / 256.0, 0.0))).collect();
    assert!(result.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1.0), "{result:?} and should be {expected:?}");
    // By numbers.
    let shape = [1, 2, 2, 16];
    let attributes = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
    let pool = of_runtime("QLinearAveragePool", &["x", "sx", "zx", "sy", "zy"], "y", attributes);
    let program = read(&whole(vec![pool], &shape)).unwrap();
    let keys: Vec<String> = program.steps.iter().map(|step| step.workload.key()).collect();
    assert!(keys.len() == 1 && keys[0].starts_with("depthwise_conv2d-"), "{keys:?}");
    let result = evaluate(&program, std::slice::from_ref(&x), None).remove(0);
    let mean = |i: usize| {
        let at = i / 32 * 128 + i % 32 / 16 * 64 + i % 16 * 2;
        [0, 1, 32, 33].iter().map(|by| of_x(x[at + by])).sum::<f64>() / 4.0
    };
    assert!((0..64).all(|i| (result[i] - stands(mean(i), 0.025, 12.0)).abs() <= 1.0), "{result:?}");
    // A factor for each channel, between pairs: one launch of integers behind what makes numbers of the factors.
    let pooled = node("QLinearGlobalAveragePool", &["x", "sx", "zx", "ss", "zs"], &["g"], vec![]);
    let pooled = NodeProto { domain: Some("com.microsoft".into()), ..pooled };
    let gated = vec![
        pooled,
        start.clone(),
        node("DequantizeLinear", &["g", "ss", "zs"], &["gate"], vec![]),
        node("Mul", &["gate", "n"], &["f"], vec![]),
        end.clone(),
    ];
    let program = read(&whole(gated, &[1, 2, 4, 32])).unwrap();
    let expected = |i: usize| {
        let mean = x[i / 128 * 128..][..128].iter().map(|q| of_x(*q)).sum::<f64>() / 128.0;
        stands(of_x(x[i]) * stands(mean, 1.0 / 256.0, 0.0) / 256.0, 0.025, 12.0)
    };
    for (dtype, layout) in
        [(DType::F32, ConvLayout::Nchw), (DType::F32, ConvLayout::Nhwc), (DType::F16, ConvLayout::Nhwc)]
    {
        let network = Network::of("net", program.clone(), Form { dtype, layout });
        let plan = &network.plans[0].program;
        let keys: Vec<String> = plan.steps.iter().map(|step| step.workload.key()).collect();
        let one = |key: &&String| key.starts_with("depthwise_conv2d-") && key.ends_with(".dequantize.gate.quantize");
        assert_eq!(keys.iter().filter(one).count(), 1, "{keys:?}");
        let result = evaluate(plan, std::slice::from_ref(&x), Some(&network)).remove(0);
        assert!((0..256).all(|i| (result[i] - expected(i)).abs() <= 1.0), "{dtype}, {layout:?}: {result:?}");
    }
    let product = ["x", "sx", "zx", "x", "sx", "zx", "sy", "zy"];
    let square = of_runtime("QLinearMul", &product, "y", vec![]);
    let result =
        evaluate(&read(&whole(vec![square], &[1, 2, 4, 32])).unwrap(), std::slice::from_ref(&x), None).remove(0);
    let of_square = |q: &f64| stands(of_x(*q) * of_x(*q), 0.025, 12.0);
    assert!(result.iter().zip(&x).all(|(a, q)| (a - of_square(q)).abs() <= 1.0), "{result:?}");
    let mut other = of_runtime("QLinearAveragePool", &["x", "sx", "zx", "sy", "zy"], "y", vec![]);
    other.attribute = vec![ints("kernel_shape", &[2, 2]), crate::random_network::int("channels_last", 1)];
    assert!(read(&whole(vec![other], &shape)).unwrap_err().contains("channels_last"));
}

/// Of zeros alone there is no range; ONNX Runtime's scale is 1 then.
#[test]
fn zeros_alone_are_quantised_to_zeros() {
    let all = cases();
    let case = all.case.iter().find(|case| case.name == "test_dynamicquantizelinear").expect("a published test");
    let program = read(&model_of(case, &[0])).unwrap();
    let zeros = vec![0.0; case.input[0].data.len()];
    let result = evaluate(&program, std::slice::from_ref(&zeros), None);
    assert_eq!(result, [zeros, vec![1.0], vec![0.0]]);
}

/// Integers that no step may write where a concatenation has them: inputs of the network, constants, and what others read.
#[test]
fn integers_side_by_side_are_copied_as_integers() {
    let byte = |name: &str, v: u8| tensor(name, &[], DataType::UINT8, vec![v]);
    let scale = |name: &str| tensor(name, &[], DataType::FLOAT, 0.5f32.to_le_bytes().to_vec());
    let constant = tensor("c", &[1, 16], DataType::UINT8, (0..16).collect());
    let attributes = vec![crate::random_network::int("axis", 1)];
    let mut beside =
        node("QLinearConcat", &["s", "z", "x", "s", "z", "c", "s", "z", "x", "s", "z"], &["y"], attributes);
    beside.domain = Some("com.microsoft".into());
    let graph = GraphProto {
        node: vec![beside],
        input: vec![value("x", &[1, 16], DataType::UINT8)],
        output: vec![value("y", &[1, 48], DataType::UINT8)],
        initializer: vec![scale("s"), byte("z", 7), constant],
        ..Default::default()
    };
    let program = read(&model(graph)).unwrap();
    let x: Vec<f64> = (0..16).map(|i| f64::from(200 + i)).collect();
    let all: Vec<f64> = x.iter().copied().chain((0..16).map(f64::from)).chain(x.iter().copied()).collect();
    for layout in [ConvLayout::Nchw, ConvLayout::Nhwc] {
        let network = Network::of("net", program.clone(), Form { dtype: DType::F32, layout });
        assert_eq!(evaluate(&network.plans[0].program, std::slice::from_ref(&x), Some(&network))[0], all);
    }
}

/// What a file may say of types and lists: results of four bits, of an `output_dtype`, lists of nothing, blocks of any length.
#[test]
fn odd_types_and_empty_lists_are_taken_as_they_are_or_refused() {
    let number = |name: &str, v: f32| tensor(name, &[], DataType::FLOAT, v.to_le_bytes().to_vec());
    let whole = |nodes: Vec<_>, constants: Vec<_>, input: DataType, output: DataType| {
        model(GraphProto {
            node: nodes,
            input: vec![value("x", &[1, 4], input)],
            output: vec![value("y", &[1, 4], output)],
            initializer: constants,
            ..Default::default()
        })
    };
    let int = crate::random_network::int;
    let quantise = |zero: &str, attributes: Vec<_>| node("QuantizeLinear", &["f", "s", zero], &["y"], attributes);
    // Four bits are saturated to four bits, which nothing here does.
    let four = tensor("z", &[], DataType(22), vec![0]);
    let program = whole(
        vec![node("Identity", &["x"], &["f"], vec![]), quantise("z", vec![])],
        vec![number("s", 1.0), four],
        DataType::FLOAT,
        DataType::INT8,
    );
    assert!(read(&program).unwrap_err().contains("four bits"));
    let asked = |dtype: i64| {
        whole(
            vec![node("Identity", &["x"], &["f"], vec![]), quantise("", vec![int("output_dtype", dtype)])],
            vec![number("s", 1.0)],
            DataType::FLOAT,
            DataType::INT8,
        )
    };
    assert!(read(&asked(21)).unwrap_err().contains("output_dtype"));
    let signed = read(&asked(3)).unwrap();
    assert_eq!(evaluate(&signed, &[vec![-3.0, 2.0, 200.0, -0.4]], None)[0], [-3.0, 2.0, 127.0, 0.0]);
    // A residual of signed integers, whose result has no zero point.
    let sum = |dtype: i64| {
        let nodes = vec![
            node("DequantizeLinear", &["x", "s", "z"], &["a"], vec![]),
            node("Add", &["a", "a"], &["f"], vec![]),
            quantise("", vec![int("output_dtype", dtype)]),
        ];
        let constants = vec![number("s", 1.0), tensor("z", &[], DataType::INT8, vec![0])];
        read(&whole(nodes, constants, DataType::INT8, DataType::INT8)).unwrap()
    };
    assert_eq!(evaluate(&sum(3), &[vec![-3.0, 2.0, 100.0, -100.0]], None)[0], [-6.0, 4.0, 127.0, -128.0]);
    // Lists of nothing, and blocks longer than anything.
    let empty = |name: &str, kind: DataType| tensor(name, &[0], kind, vec![]);
    let nothing = whole(
        vec![node("Identity", &["x"], &["f"], vec![]), quantise("z", vec![])],
        vec![number("s", 1.0), empty("z", DataType::UINT8)],
        DataType::FLOAT,
        DataType::UINT8,
    );
    assert!(read(&nothing).unwrap_err().contains("zero points"));
    for (shape, scales, block) in [(vec![4], vec![0], i64::MAX), (vec![32, 0], vec![1, 0], 32), (vec![4], vec![2], 3)] {
        let count = |shape: &[i64]| shape.iter().product::<i64>() as usize;
        let weights = tensor("w", &shape, DataType::UINT8, vec![3; count(&shape)]);
        let floats = tensor("s", &scales, DataType::FLOAT, vec![0; 4 * count(&scales)]);
        let numbers = node("DequantizeLinear", &["w", "s"], &["f"], vec![int("axis", 0), int("block_size", block)]);
        let product = node("MatMul", &["x", "f"], &["y"], vec![]);
        let program = whole(vec![numbers, product], vec![weights, floats], DataType::FLOAT, DataType::FLOAT);
        // The last one is right.
        assert_eq!(read(&program).is_ok(), block == 3, "{shape:?}");
    }
    // Beside integers of 32 bits, which are numbers.
    let wide = tensor("w", &[1, 4], DataType::INT32, (0..16).map(|i| u8::from(i % 4 == 0)).collect());
    let nodes = vec![
        node("DequantizeLinear", &["x", "s"], &["a"], vec![]),
        node("DequantizeLinear", &["w", "s"], &["b"], vec![]),
        node("Concat", &["a", "b"], &["f"], vec![int("axis", 1)]),
        quantise("", vec![]),
    ];
    let graph = GraphProto {
        output: vec![value("y", &[1, 8], DataType::UINT8)],
        ..whole(nodes, vec![number("s", 1.0), wide], DataType::UINT8, DataType::UINT8).graph.unwrap()
    };
    let result = evaluate(&read(&model(graph)).unwrap(), &[vec![5.0; 4]], None).remove(0);
    assert_eq!(result, [5.0, 5.0, 5.0, 5.0, 1.0, 1.0, 1.0, 1.0]);
}
