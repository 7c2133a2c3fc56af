//! Networks on integers of eight bits that no scale belongs to, and those whose weights are numbers that the file rounds itself, as
//! training with rounded numbers writes them.

use crate::networks::evaluate;
use crate::quantised_networks::read;
use crate::random_network::{float, floats, int, integers, ints, model, node, tensor, text, value};
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network};
use kernel_gen::workload::ConvLayout;
use rten_onnx::onnx::{AttributeProto, AttributeType, DataType, GraphProto, ModelProto, NodeProto, TensorProto};

fn byte(name: &str, shape: &[i64], kind: DataType, values: &[i64]) -> TensorProto {
    tensor(name, shape, kind, values.iter().map(|v| *v as u8).collect())
}

/// An integer in a type: what does not fit wraps.
fn wrap(value: i64, kind: DataType) -> i64 {
    if kind == DataType::UINT8 { i64::from(value as u8) } else { i64::from(value as i8) }
}

const SHAPE: [i64; 4] = [1, 2, 4, 6];

/// A model of `x`, which has `SHAPE` and a type, and its results, called `y` and `z`.
fn of_bytes(kind: DataType, nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> ModelProto {
    let given: Vec<&str> = nodes
        .iter()
        .flat_map(|node| &node.output)
        .map(String::as_str)
        .filter(|name| ["y", "z"].contains(name))
        .collect();
    model(GraphProto {
        input: vec![value("x", &SHAPE, kind)],
        output: given.iter().map(|name| value(name, &[1], kind)).collect(),
        node: nodes,
        initializer: constants,
        ..Default::default()
    })
}

/// One operator: what it is called here, its nodes and constants for a type, and its result by the definition.
type Case = (&'static str, fn(DataType) -> (Vec<NodeProto>, Vec<TensorProto>), fn(&[i64], DataType) -> Vec<f64>);

fn each(x: &[i64], f: impl Fn(i64) -> i64) -> Vec<f64> {
    x.iter().map(|v| f(*v) as f64).collect()
}

/// The pixel of a plane at a row and a column.
fn pixel(x: &[i64], plane: i64, row: i64, column: i64) -> i64 {
    x[(plane * 24 + row * 6 + column) as usize]
}

/// An image whose pixels are functions of plane, row and column.
fn image(rows: i64, columns: i64, f: impl Fn(i64, i64, i64) -> f64) -> Vec<f64> {
    let f = &f;
    (0..2).flat_map(|c| (0..rows).flat_map(move |h| (0..columns).map(move |w| f(c, h, w)))).collect()
}

const CASES: &[Case] = &[
    ("cast to numbers", |_| (vec![node("Cast", &["x"], &["y"], vec![int("to", 1)])], vec![]), |x, _| each(x, |v| v)),
    (
        "an image as numbers",
        |_| {
            let cast = node("Cast", &["x"], &["f"], vec![int("to", 1)]);
            let nodes = vec![cast, node("Mul", &["f", "s"], &["g"], vec![]), node("Sub", &["g", "m"], &["y"], vec![])];
            (nodes, vec![floats("s", &[], &[0.5]), floats("m", &[2, 1, 1], &[0.25, 8.0])])
        },
        |x, _| x.iter().enumerate().map(|(i, v)| *v as f64 * 0.5 - [0.25, 8.0][i / 24]).collect(),
    ),
    (
        "cast to integers and back",
        |kind| {
            let back = node("Cast", &["i"], &["y"], vec![int("to", i64::from(kind.0))]);
            let nodes = vec![
                node("Cast", &["x"], &["w"], vec![int("to", 6)]),
                node("Mul", &["w", "three"], &["i"], vec![]),
                back,
            ];
            (nodes, vec![tensor("three", &[], DataType::INT32, 3i32.to_le_bytes().to_vec())])
        },
        |x, kind| each(x, |v| wrap(3 * v, kind)),
    ),
    (
        "cast of numbers",
        |kind| {
            let nodes = vec![
                node("Cast", &["x"], &["f"], vec![int("to", 1)]),
                node("Mul", &["f", "s"], &["g"], vec![]),
                node("Cast", &["g"], &["y"], vec![int("to", i64::from(kind.0))]),
            ];
            (nodes, vec![floats("s", &[], &[-1.75])])
        },
        |x, kind| each(x, |v| wrap((v as f64 * -1.75) as i64, kind)),
    ),
    (
        "cast to the other type",
        |kind| (vec![node("Cast", &["x"], &["y"], vec![int("to", 5 - i64::from(kind.0))])], vec![]),
        |x, kind| each(x, |v| wrap(v, if kind == DataType::UINT8 { DataType::INT8 } else { DataType::UINT8 })),
    ),
    (
        "cast to truth values and to bytes",
        |kind| {
            let to = i64::from(kind.0);
            let nodes = vec![
                node("Cast", &["x"], &["t"], vec![int("to", 9)]),
                node("Cast", &["t"], &["y"], vec![int("to", to)]),
            ];
            (nodes, vec![])
        },
        |x, _| each(x, |v| i64::from(v != 0)),
    ),
    (
        "clip",
        |kind| {
            let bounds = vec![byte("a", &[], kind, &[3]), byte("b", &[], kind, &[100])];
            (vec![node("Clip", &["x", "a", "b"], &["y"], vec![])], bounds)
        },
        |x, _| each(x, |v| v.clamp(3, 100)),
    ),
    (
        "arithmetic that wraps",
        |kind| {
            let nodes = vec![
                node("Add", &["x", "c"], &["a"], vec![]),
                node("Mul", &["a", "x"], &["b"], vec![]),
                node("Sub", &["b", "c"], &["y"], vec![]),
            ];
            (nodes, vec![byte("c", &[], kind, &[90])])
        },
        |x, kind| each(x, |v| wrap(wrap(wrap(v + 90, kind) * v, kind) - 90, kind)),
    ),
    (
        "the larger of two",
        |kind| {
            let flipped = node("Slice", &["x", "from", "to", "axes", "by"], &["r"], vec![]);
            let list = |name: &str, v: i64| integers(name, &[1], &[v]);
            let constants = vec![list("from", -1), list("to", i64::MIN), list("axes", 3), list("by", -1)];
            (
                vec![flipped, node("Max", &["x", "r"], &["y"], vec![])],
                [constants, vec![byte("c", &[], kind, &[1])]].concat(),
            )
        },
        |x, _| image(4, 6, |c, h, w| pixel(x, c, h, w).max(pixel(x, c, h, 5 - w)) as f64),
    ),
    (
        "a choice",
        |kind| {
            let nodes =
                vec![node("Greater", &["x", "c"], &["t"], vec![]), node("Where", &["t", "x", "c"], &["y"], vec![])];
            (nodes, vec![byte("c", &[], kind, &[40])])
        },
        |x, _| each(x, |v| v.max(40)),
    ),
    (
        "the largest of a row",
        |_| (vec![node("ReduceMax", &["x", "a"], &["y"], vec![int("keepdims", 0)])], vec![integers("a", &[1], &[3])]),
        |x, _| x.chunks(6).map(|row| *row.iter().max().unwrap() as f64).collect(),
    ),
    (
        "the place of the largest",
        |_| (vec![node("ArgMax", &["x"], &["y"], vec![int("axis", 3), int("keepdims", 0)])], vec![]),
        |x, _| {
            let first = |row: &[i64]| row.iter().position(|v| v == row.iter().max().unwrap()).unwrap() as f64;
            x.chunks(6).map(first).collect()
        },
    ),
    (
        "the largest two",
        |_| (vec![node("TopK", &["x", "k"], &["y", "z"], vec![int("axis", 3)])], vec![integers("k", &[1], &[2])]),
        |x, _| {
            let two = |row: &[i64]| {
                let mut row = row.to_vec();
                row.sort_unstable_by(|a, b| b.cmp(a));
                [row[0] as f64, row[1] as f64]
            };
            x.chunks(6).flat_map(two).collect()
        },
    ),
    (
        "resized to the nearest",
        |_| {
            let attributes = vec![
                text("mode", "nearest"),
                text("coordinate_transformation_mode", "asymmetric"),
                text("nearest_mode", "floor"),
            ];
            (vec![node("Resize", &["x", "", "s"], &["y"], attributes)], vec![floats("s", &[4], &[1.0, 1.0, 2.0, 3.0])])
        },
        |x, _| image(8, 18, |c, h, w| pixel(x, c, h / 2, w / 3) as f64),
    ),
    (
        "resized by lines",
        |_| {
            let attributes = vec![text("mode", "linear"), text("coordinate_transformation_mode", "asymmetric")];
            (vec![node("Resize", &["x", "", "s"], &["y"], attributes)], vec![floats("s", &[4], &[1.0, 1.0, 1.0, 2.0])])
        },
        |x, _| {
            image(4, 12, |c, h, w| {
                let [left, right] = [w / 2, (w / 2 + w % 2).min(5)].map(|w| pixel(x, c, h, w) as f64);
                ((left + right) / 2.0).trunc()
            })
        },
    ),
    (
        "padded with a number",
        |kind| {
            let pads = integers("p", &[8], &[0, 0, 1, 2, 0, 0, 0, 1]);
            (vec![node("Pad", &["x", "p", "v"], &["y"], vec![])], vec![pads, byte("v", &[], kind, &[7])])
        },
        |x, _| {
            image(5, 9, |c, h, w| {
                let inside = h >= 1 && (2..8).contains(&w);
                if inside { pixel(x, c, h - 1, w - 2) as f64 } else { 7.0 }
            })
        },
    ),
    (
        "padded by reflection",
        |_| {
            let pads = integers("p", &[8], &[0, 0, 1, 2, 0, 0, 0, 0]);
            (vec![node("Pad", &["x", "p"], &["y"], vec![text("mode", "reflect")])], vec![pads])
        },
        |x, _| image(5, 8, |c, h, w| pixel(x, c, (h - 1).abs(), (w - 2).abs()) as f64),
    ),
];

#[test]
fn integers_of_eight_bits_are_tensors_as_others() {
    for kind in [DataType::UINT8, DataType::INT8] {
        let x: Vec<i64> = (0..48).map(|i| wrap(i * 37 + i / 7, kind)).collect();
        let given: Vec<f64> = x.iter().map(|v| *v as f64).collect();
        for (name, nodes, by_definition) in CASES {
            let (nodes, constants) = nodes(kind);
            let program = read(&of_bytes(kind, nodes, constants)).unwrap_or_else(|e| panic!("{name}: {e}"));
            let expected = by_definition(&x, kind);
            let result = evaluate(&program, std::slice::from_ref(&given), None).remove(0);
            assert_eq!(result, expected, "{name} of {kind:?}");
            for layout in [ConvLayout::Nchw, ConvLayout::Nhwc] {
                let network = Network::of("net", program.clone(), Form { dtype: DType::F32, layout });
                let plan = &network.plans[0].program;
                let result = evaluate(plan, std::slice::from_ref(&given), Some(&network)).remove(0);
                assert_eq!(result, expected, "{name} of {kind:?}, {layout:?}");
            }
        }
    }
}

/// An image of a camera becomes numbers in one launch, and a function of integers is a table.
#[test]
fn a_function_of_integers_is_one_launch() {
    for (name, launches) in [("an image as numbers", 1), ("clip", 1), ("cast to the other type", 1)] {
        let (_, nodes, _) = CASES.iter().find(|case| case.0 == name).expect("a case");
        let (nodes, constants) = nodes(DataType::UINT8);
        let program = read(&of_bytes(DataType::UINT8, nodes, constants)).unwrap();
        let network = Network::of("net", program, Form { dtype: DType::F32, layout: ConvLayout::Nchw });
        assert_eq!(network.plans[0].program.steps.len(), launches, "{name}");
    }
}

#[test]
fn padding_that_is_no_integer_is_refused() {
    let pads = integers("p", &[8], &[0, 0, 1, 1, 0, 0, 1, 1]);
    let nodes = vec![node("Pad", &["x", "p", "v"], &["y"], vec![])];
    for number in [0.5, 256.0, -1.0] {
        let error = read(&of_bytes(DataType::UINT8, nodes.clone(), vec![pads.clone(), floats("v", &[], &[number])]))
            .unwrap_err();
        assert!(error.contains("padding") && !error.contains('\n'), "{error}");
    }
}

/// How training with rounded numbers writes a network.
struct Trained {
    /// A scale of weights for each output channel, or one.
    each: bool,
    /// Activations that are held to seven bits by a `Clip` of integers.
    seven_bits: bool,
    /// Zero points and scales as nodes, and not as initialisers.
    nodes: bool,
}

const WEIGHT: [i64; 4] = [3, 2, 3, 3];

fn weight(i: usize) -> f64 {
    f64::from((i * 29 % 53) as f32 * 0.03 - 0.8)
}

fn model_of_training(of: &Trained) -> ModelProto {
    let (mut nodes, mut constants) = (vec![], vec![]);
    let mut constant = |name: &str, tensor: TensorProto, nodes: &mut Vec<NodeProto>| match of.nodes {
        true => {
            let (name_of, r#type) = (Some("value".into()), Some(AttributeType::TENSOR));
            let attribute = AttributeProto { name: name_of, t: Some(tensor), r#type, ..Default::default() };
            nodes.push(node("Constant", &[], &[name], vec![attribute]));
        }
        false => constants.push(tensor),
    };
    for (name, scale) in [("sx", 0.05), ("sh", 0.125)] {
        constant(name, floats(name, &[], &[scale]), &mut nodes);
    }
    constant("zx", byte("zx", &[], DataType::UINT8, &[60]), &mut nodes);
    constant("zh", byte("zh", &[], DataType::UINT8, &[0]), &mut nodes);
    let (scales, shape): (&[f32], &[i64]) = if of.each { (&SCALES, &[3]) } else { (&SCALES[..1], &[]) };
    constant("sw", floats("sw", shape, scales), &mut nodes);
    constant("zw", byte("zw", shape, DataType::INT8, &vec![0; scales.len()]), &mut nodes);
    constants.push(floats("w", &WEIGHT, &(0..54).map(|i| weight(i) as f32).collect::<Vec<f32>>()));
    constants.push(floats("b", &[3], &[0.5, -0.25, 0.0]));
    constants.push(floats("v", &[4, 3], &(0..12).map(|i| weight(i + 7) as f32).collect::<Vec<f32>>()));
    constants.push(floats("c", &[4], &[0.125, -1.0, 0.0, 2.0]));
    constants.push(integers("rows", &[3], &[1, 3, -1]));
    let pair = |from: &str, scale: &str, zero: &str, to: &str, attributes: Vec<_>| {
        let [integers, clipped] = [format!("{to}_q"), format!("{to}_c")];
        let mut all = vec![node("QuantizeLinear", &[from, scale, zero], &[&integers], attributes)];
        let clips = of.seven_bits && zero != "zw";
        if clips {
            all.push(node("Clip", &[&integers, "zh", "most"], &[&clipped], vec![]));
        }
        let last = if clips { &clipped } else { &integers };
        let attributes = all[0].attribute.clone();
        all.push(node("DequantizeLinear", &[last, scale, zero], &[to], attributes));
        all
    };
    constants.push(byte("most", &[], DataType::UINT8, &[127]));
    let axis = || if of.each { vec![int("axis", 0)] } else { vec![] };
    nodes.extend(pair("x", "sx", "zx", "x1", vec![]));
    nodes.extend(pair("w", "sw", "zw", "w1", axis()));
    nodes.push(node("Conv", &["x1", "w1", "b"], &["conv"], vec![ints("pads", &[1; 4])]));
    nodes.push(node("Relu", &["conv"], &["h"], vec![]));
    nodes.extend(pair("h", "sh", "zh", "h1", vec![]));
    // A linear layer of each pixel, whose weights are turned around behind their pair.
    nodes.push(node("Reshape", &["h1", "rows"], &["r"], vec![]));
    nodes.push(node("Transpose", &["r"], &["t"], vec![ints("perm", &[0, 2, 1])]));
    constants.push(floats("sv", &[], &[0.01]));
    constants.push(byte("zv", &[], DataType::INT8, &[0]));
    nodes.push(node("QuantizeLinear", &["v", "sv", "zv"], &["v_q"], vec![]));
    nodes.push(node("DequantizeLinear", &["v_q", "sv", "zv"], &["v1"], vec![]));
    nodes.push(node("Transpose", &["v1"], &["v2"], vec![ints("perm", &[1, 0])]));
    nodes.push(node("MatMul", &["t", "v2"], &["sum"], vec![]));
    nodes.push(node("Add", &["c", "sum"], &["a"], vec![]));
    nodes.push(node("LeakyRelu", &["a"], &["y"], vec![float("alpha", 0.25)]));
    model(GraphProto {
        node: nodes,
        input: vec![value("x", &[1, 2, 5, 5], DataType::FLOAT)],
        output: vec![value("y", &[1, 25, 4], DataType::FLOAT)],
        initializer: constants,
        ..Default::default()
    })
}

const SCALES: [f32; 3] = [0.01, 0.0075, 0.02];

/// What the model says, node by node, in numbers.
fn by_definition(of: &Trained, x: &[f64]) -> Vec<f64> {
    let most = if of.seven_bits { 127.0 } else { 255.0 };
    let rounded = |v: f64, scale: f32, zero: f64, [low, high]: [f64; 2]| {
        let scale = f64::from(scale);
        ((f64::from(v as f32 / scale as f32).round_ties_even() + zero).clamp(low, high) - zero) * scale
    };
    let x: Vec<f64> = x.iter().map(|v| rounded(*v, 0.05, 60.0, [0.0, most])).collect();
    let scale = |channel: usize| SCALES[if of.each { channel } else { 0 }];
    let w = |i: usize| rounded(weight(i), scale(i / 18), 0.0, [-128.0, 127.0]);
    let hidden = |o: usize, h: i64, v: i64| {
        let taps = (0..18).map(|t| {
            let (c, row, column) = (t / 9, h + t as i64 / 3 % 3 - 1, v + t as i64 % 3 - 1);
            let inside = (0..5).contains(&row) && (0..5).contains(&column);
            if inside { x[c * 25 + (row * 5 + column) as usize] * w(o * 18 + t) } else { 0.0 }
        });
        let sum: f64 = taps.sum::<f64>() + [0.5, -0.25, 0.0][o];
        rounded(sum.max(0.0), 0.125, 0.0, [0.0, most])
    };
    let linear = |row: usize, column: usize| {
        let terms = (0..3).map(|k| {
            hidden(k, row as i64 / 5, row as i64 % 5) * rounded(weight(column * 3 + k + 7), 0.01, 0.0, [-128.0, 127.0])
        });
        let sum = terms.sum::<f64>() + [0.125, -1.0, 0.0, 2.0][column];
        if sum < 0.0 { 0.25 * sum } else { sum }
    };
    (0..100).map(|i| linear(i / 4, i % 4)).collect()
}

#[test]
fn what_training_rounds_is_computed_in_integers() {
    let x: Vec<f64> = (0..50).map(|i| f64::from((i * 17 % 43) as f32 * 0.19 - 3.1)).collect();
    for (each, seven_bits, nodes) in
        [(true, false, false), (true, true, true), (false, true, false), (false, false, true)]
    {
        let of = Trained { each, seven_bits, nodes };
        let what = format!("each channel {each}, seven bits {seven_bits}, nodes {nodes}");
        let program = read(&model_of_training(&of)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let expected = by_definition(&of, &x);
        // A hidden number half way between two integers may become either.
        let one_step = 0.125 * 0.8;
        let near = |result: &[f64]| {
            let worst = result.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            let off = result.iter().zip(&expected).filter(|(a, b)| (*a - *b).abs() > 1e-4).count();
            result.len() == expected.len() && worst <= one_step + 1e-4 && off <= 4
        };
        let plain = evaluate(&program, std::slice::from_ref(&x), None).remove(0);
        assert!(near(&plain), "{what}: {plain:?} and should be {expected:?}");
        for layout in [ConvLayout::Nchw, ConvLayout::Nhwc] {
            let network = Network::of("net", program.clone(), Form { dtype: DType::F32, layout });
            let plan = &network.plans[0].program;
            let keys: Vec<String> = plan.steps.iter().map(|step| step.workload.key()).collect();
            let of_integers =
                |kind: &str| keys.iter().filter(|key| key.starts_with(kind) && key.contains("u8")).count();
            assert_eq!([of_integers("conv2d-"), of_integers("matmul-")], [1, 1], "{what}: {keys:?}");
            assert!(keys.iter().any(|key| key.starts_with("conv2d-") && key.ends_with("quantize")), "{what}: {keys:?}");
            let result = evaluate(plan, std::slice::from_ref(&x), Some(&network)).remove(0);
            assert!(near(&result), "{what}, {layout:?}: {result:?} and should be {expected:?}");
            // In 16 bits each step reads what the one in front stores; that is looked at as it is evaluated.
            let network = Network::of("net", program.clone(), Form { dtype: DType::F16, layout });
            evaluate(&network.plans[0].program, std::slice::from_ref(&x), Some(&network));
        }
    }
}
