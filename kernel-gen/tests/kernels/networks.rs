//! Networks of models: the passes, the memory plan, and the errors for models that cannot be compiled.

use crate::control_flow::random_with_graphs;
use crate::random_network::{float, floats, info, int, integers, ints, model, node, random, tensor, text};
use crate::sweep;
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network, Place, Problem, Program, Source, parse};
use kernel_gen::stable::Rng;
use kernel_gen::workload::{ConvLayout, reference};
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataLocation, DataType, GraphProto, ModelProto, StringStringEntryProto, TensorProto,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The form of most models.
const F32: Form = Form { dtype: DType::F32, layout: ConvLayout::Nchw };

/// How many random networks there are; `KERNEL_GEN_WORKLOADS` says another number.
const NETWORKS: u64 = 300;

/// The steps of a model, before any pass.
pub(crate) fn read(model: &ModelProto) -> Result<Program, Vec<Problem>> {
    parse(&model.write_buf().unwrap(), Path::new("/nowhere"), &BTreeMap::new())
}

/// Where the elements of a step's output lie in the value that it is written into.
fn places_of(program: &Program, step: usize) -> Vec<usize> {
    let step = &program.steps[step];
    let shape = step.workload.output_shape();
    let elements = shape.iter().product::<i64>() as usize;
    let Some(into) = step.slices.into else { return (0..elements).collect() };
    let whole = step.slices.params(&step.workload).pop().unwrap().shape;
    let axis = (0..shape.len()).find(|i| shape[*i] != whole[*i]).unwrap_or(0);
    let behind = shape[axis + 1..].iter().product::<i64>() as usize;
    let (own, of, at) = (shape[axis] as usize * behind, whole[axis] as usize * behind, into.at as usize * behind);
    (0..elements).map(|i| i / own * of + at + i % own).collect()
}

/// Runs a program in `f64`: each value has memory of its own, or the place that the plan gives it. Memory that nothing wrote is NaN.
pub(crate) fn evaluate(program: &Program, inputs: &[Vec<f64>], network: Option<&Network>) -> Vec<Vec<f64>> {
    let home = |id: usize| match network.and_then(|n| n.plans[0].memory.places[id]) {
        Some(Place::Slot(slot)) => slot,
        Some(Place::Output(i)) => 1_000_000 + i,
        Some(Place::Input(i)) => 2_000_000 + i,
        Some(Place::Constant) | None => 3_000_000 + id,
    };
    let mut memory: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (value, (_, id)) in inputs.iter().zip(&program.inputs) {
        memory.insert(home(*id), value.clone());
    }
    for (id, value) in program.values.iter().enumerate() {
        if let Source::Constant(tensor) = &value.source {
            memory.insert(home(id), tensor.to_doubles());
        }
    }
    for (i, step) in program.steps.iter().enumerate() {
        // What a step reads has the type that its kernel wants; constants are made of any.
        for (param, id) in step.workload.params().iter().zip(&step.operands).filter(|_| network.is_some()) {
            let root = program.root(*id);
            let is_constant = matches!(program.values[root].source, Source::Constant(_));
            let types = [program.values[*id].dtype, program.values[root].dtype];
            assert!(is_constant || types == [param.dtype; 2], "{}: {} is {types:?}", step.workload.key(), param.name);
        }
        let operands: Vec<Vec<f64>> = step
            .operands
            .iter()
            .map(|id| {
                let (root, first) = program.place(*id);
                memory[&home(root)][first as usize..][..program.elements(*id) as usize].to_vec()
            })
            .collect();
        let output = program.values[step.output].dtype;
        assert_eq!(step.workload.out_dtype, output, "{}", step.workload.key());
        let result = reference(&step.workload, &operands.iter().map(|v| &v[..]).collect::<Vec<_>>());
        let (root, first) = program.place(step.output);
        let whole = memory.entry(home(root)).or_default();
        let elements = program.elements(root) as usize;
        whole.resize(whole.len().max(elements), f64::NAN);
        for (place, value) in places_of(program, i).into_iter().zip(result) {
            whole[first as usize + place] = value;
        }
    }
    let result = |id: usize| memory[&home(program.root(id))][..program.elements(id) as usize].to_vec();
    program.outputs.iter().map(|(_, id)| result(*id)).collect()
}

/// Random numbers for the inputs.
pub(crate) fn inputs(program: &Program, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Rng::new(seed);
    let each = program.inputs.iter().map(|(_, id)| program.elements(*id));
    each.map(|n| (0..n).map(|_| rng.unit() * 4.0 - 2.0).collect()).collect()
}

/// Writes a network with its inputs and results, for tests/networks/fuzz.py to compare with ONNX Runtime's.
fn write(folder: &Path, seed: u64, model: &ModelProto, inputs: &[Vec<f64>], results: &[Vec<f64>]) {
    let bytes = |all: &[f64]| all.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect::<Vec<u8>>();
    let put = |name: String, bytes: Vec<u8>| std::fs::write(folder.join(name), bytes).unwrap();
    put(format!("{seed}.onnx"), model.write_buf().unwrap());
    inputs.iter().enumerate().for_each(|(i, all)| put(format!("{seed}.{i}.in"), bytes(all)));
    results.iter().enumerate().for_each(|(i, all)| put(format!("{seed}.{i}.out"), bytes(all)));
}

#[test]
fn passes_and_memory_change_no_result() {
    let count = sweep::number("KERNEL_GEN_WORKLOADS", NETWORKS);
    let first = sweep::number("KERNEL_GEN_SEED", 0);
    let folder = std::env::var_os("KERNEL_GEN_NETWORKS").map(PathBuf::from);
    let (mut nodes, mut steps) = (0, 0);
    for seed in first..first + count {
        let model = random(seed);
        let before = read(&model).unwrap_or_else(|all| panic!("seed {seed}: {}", all[0]));
        let given = inputs(&before, seed);
        let expected = evaluate(&before, &given, None);
        let layout = if seed % 2 == 0 { ConvLayout::Nchw } else { ConvLayout::Nhwc };
        let network = Network::of("random", before.clone(), Form { layout, ..F32 });
        for step in &network.plans[0].program.steps {
            step.workload.validate().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            // What is written is borrowed for that alone.
            let root = |id: &usize| network.plans[0].program.root(*id);
            assert!(step.operands.iter().all(|id| root(id) != root(&step.output)), "seed {seed}: {step:#?}");
        }
        let alone = evaluate(&network.plans[0].program, &given, None);
        for (i, (a, b)) in expected.iter().zip(&alone).enumerate() {
            let size = a.iter().fold(1.0f64, |m, v| m.max(v.abs()));
            let wrong = a.iter().zip(b).position(|(a, b)| b.is_nan() || (a - b).abs() > 1e-5 * size);
            assert_eq!(wrong, None, "seed {seed}, result {i}: {before}becomes {}", network.plans[0].program);
        }
        let planned = evaluate(&network.plans[0].program, &given, Some(&network));
        assert_eq!(
            planned, alone,
            "seed {seed}: a slot was taken while its value was needed: {:#?}",
            network.plans[0].memory
        );
        if let Some(folder) = &folder {
            write(folder, seed, &model, &given, &alone);
        }
        nodes += model.graph.as_ref().unwrap().node.len();
        steps += network.plans[0].program.steps.len();
    }
    println!("{count} networks: {nodes} nodes became {steps} steps");
    assert!(steps * 5 < nodes * 4, "{nodes} nodes became {steps} steps");
}

/// A model of nodes with an input of 1x4x6x6 and a result `y`.
fn of_nodes(nodes: Vec<rten_onnx::onnx::NodeProto>, constants: Vec<TensorProto>) -> ModelProto {
    let (input, output) = (vec![info("x", &[1, 4, 6, 6])], vec![info("y", &[1])]);
    model(GraphProto { node: nodes, initializer: constants, input, output, ..Default::default() })
}

/// The lines of a network's steps: nodes and key.
fn lines(network: &Network) -> Vec<String> {
    let line = |step: &kernel_gen::network::Step| format!("{} = {}", step.nodes.join("+"), step.workload.key());
    network.plans[0].program.steps.iter().map(line).collect()
}

#[test]
fn a_convolution_takes_in_its_norm_its_residual_and_its_activation() {
    let ones = |name: &str| floats(name, &[4], &[1.0, 2.0, 3.0, 4.0]);
    let nodes = vec![
        node("Conv", &["x", "w"], &["a"], vec![ints("pads", &[1; 4])]),
        node("BatchNormalization", &["a", "s", "t", "m", "v"], &["b"], vec![]),
        node("Add", &["b", "x"], &["c"], vec![]),
        node("Relu", &["c"], &["y"], vec![]),
    ];
    let constants = vec![floats("w", &[4, 4, 3, 3], &[0.5; 144]), ones("s"), ones("t"), ones("m"), ones("v")];
    let network = Network::of("n", read(&of_nodes(nodes, constants)).unwrap(), F32);
    let key = "conv2d-nchw-f32-n1c4h6w6-o4k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.residual_add.relu";
    assert_eq!(lines(&network), [format!("make_a+make_b+make_c+make_y = {key}")]);
}

#[test]
fn what_exporters_write_in_pieces_is_one_step() {
    let scalars = [
        ("three", 3.0),
        ("zero", 0.0),
        ("six", 6.0),
        ("root", std::f32::consts::SQRT_2),
        ("one", 1.0),
        ("half", 0.5),
        ("two", 2.0),
        ("tiny", 1e-5),
    ];
    let constants: Vec<TensorProto> = scalars.iter().map(|(name, value)| floats(name, &[], &[*value])).collect();
    let step = |nodes| {
        let network = Network::of("n", read(&of_nodes(nodes, constants.clone())).unwrap(), F32);
        lines(&network).iter().map(|line| line.split(" = ").nth(1).unwrap().to_string()).collect::<Vec<_>>()
    };
    let hard_swish = vec![
        node("Add", &["x", "three"], &["a"], vec![]),
        node("Clip", &["a", "zero", "six"], &["b"], vec![]),
        node("Mul", &["x", "b"], &["c"], vec![]),
        node("Div", &["c", "six"], &["y"], vec![]),
    ];
    assert_eq!(step(hard_swish), ["identity-f32-1x4x6x6-hard_swish"]);
    let gelu = vec![
        node("Div", &["x", "root"], &["a"], vec![]),
        node("Erf", &["a"], &["b"], vec![]),
        node("Add", &["b", "one"], &["c"], vec![]),
        node("Mul", &["x", "half"], &["d"], vec![]),
        node("Mul", &["d", "c"], &["y"], vec![]),
    ];
    assert_eq!(step(gelu), ["identity-f32-1x4x6x6-gelu"]);
    let norm = vec![
        node("ReduceMean", &["x"], &["m"], vec![ints("axes", &[-1])]),
        node("Sub", &["x", "m"], &["c"], vec![]),
        node("Pow", &["c", "two"], &["s"], vec![]),
        node("ReduceMean", &["s"], &["v"], vec![ints("axes", &[-1])]),
        node("Add", &["v", "tiny"], &["e"], vec![]),
        node("Sqrt", &["e"], &["d"], vec![]),
        node("Div", &["c", "d"], &["y"], vec![]),
    ];
    assert_eq!(step(norm), ["layer_norm-f32-m24n6-e5"]);
}

/// The keys of a model's steps; the passes may not change its result.
fn unchanged(nodes: Vec<rten_onnx::onnx::NodeProto>, constants: Vec<TensorProto>) -> Vec<String> {
    let before = read(&of_nodes(nodes, constants)).unwrap_or_else(|all| panic!("{}", all[0]));
    let given = inputs(&before, 7);
    let network = Network::of("n", before.clone(), F32);
    let (expected, found) =
        (evaluate(&before, &given, None), evaluate(&network.plans[0].program, &given, Some(&network)));
    for (a, b) in expected[0].iter().zip(&found[0]) {
        assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{a} became {b}: {:#?}", lines(&network));
    }
    network.plans[0].program.steps.iter().map(|step| step.workload.key()).collect()
}

#[test]
fn parts_in_another_shape_are_not_written_into_a_concatenation() {
    let product = |w: &str, to: &str| node("MatMul", &["rows", w], &[to], vec![]);
    let nodes = vec![
        node("Reshape", &["x", "matrix"], &["rows"], vec![]),
        product("w1", "a"),
        product("w2", "b"),
        node("Reshape", &["a", "half"], &["c"], vec![]),
        node("Reshape", &["b", "half"], &["d"], vec![]),
        node("Concat", &["c", "d"], &["y"], vec![int("axis", 0)]),
    ];
    let weight = |name: &str, first: f32| floats(name, &[6, 2], &(0..12).map(|i| first + i as f32).collect::<Vec<_>>());
    let constants = vec![
        integers("matrix", &[2], &[24, 6]),
        integers("half", &[2], &[12, 4]),
        weight("w1", 0.0),
        weight("w2", 20.0),
    ];
    assert_eq!(unchanged(nodes, constants).len(), 3);
}

#[test]
fn means_that_broadcast_along_columns_are_no_norm_of_rows() {
    let mean = |from: &str, to: &str| node("ReduceMean", &[from], &[to], vec![ints("axes", &[-1]), int("keepdims", 0)]);
    let nodes = vec![
        node("Reshape", &["x", "square"], &["s"], vec![]),
        mean("s", "m"),
        node("Sub", &["s", "m"], &["c"], vec![]),
        node("Mul", &["c", "c"], &["q"], vec![]),
        mean("q", "v"),
        node("Add", &["v", "tiny"], &["e"], vec![]),
        node("Sqrt", &["e"], &["d"], vec![]),
        node("Div", &["c", "d"], &["y"], vec![]),
    ];
    let keys = unchanged(nodes, vec![integers("square", &[2], &[12, 12]), floats("tiny", &[], &[1e-5])]);
    assert!(keys.iter().all(|key| !key.starts_with("layer_norm")), "{keys:?}");
}

#[test]
fn what_divides_by_next_to_nothing_stays_a_division() {
    let nodes =
        vec![node("Conv", &["x", "w"], &["a"], vec![ints("pads", &[1; 4])]), node("Div", &["a", "c"], &["y"], vec![])];
    let constants = vec![floats("w", &[4, 4, 3, 3], &[0.5; 144]), floats("c", &[1, 4, 1, 1], &[1.0, 1e-39, 2.0, 3.0])];
    assert_eq!(unchanged(nodes, constants).len(), 2);
}

#[test]
fn arithmetic_of_shapes_is_of_integers_throughout() {
    // 5 is clipped, halved and doubled: 4.
    let nodes = vec![
        node("Shape", &["x"], &["s"], vec![]),
        node("Gather", &["s", "two"], &["six"], vec![]),
        node("Sub", &["six", "one"], &["five"], vec![]),
        node("Clip", &["five", "one", "six"], &["clipped"], vec![]),
        node("Div", &["clipped", "two"], &["half"], vec![]),
        node("Mul", &["half", "two"], &["four"], vec![]),
        node("Concat", &["four", "rest"], &["shape"], vec![int("axis", 0)]),
        node("Reshape", &["x", "shape"], &["r"], vec![]),
        node("Softmax", &["r"], &["y"], vec![int("axis", -1)]),
    ];
    let one = |name: &str, value| integers(name, &[1], &[value]);
    assert_eq!(unchanged(nodes, vec![one("one", 1), one("two", 2), one("rest", -1)]), ["softmax-f32-m4n36"]);
}

#[test]
fn a_long_chain_of_products_is_read_in_no_time() {
    let mut nodes = vec![node("Mul", &["x", "x"], &["v0"], vec![])];
    for i in 1..60 {
        let (from, to) = (format!("v{}", i - 1), if i == 59 { "y".to_string() } else { format!("v{i}") });
        nodes.push(node("Mul", &[&from, &from], &[&to], vec![]));
    }
    assert_eq!(
        read(&of_nodes(nodes, vec![])).map(|program| Network::of("n", program, F32).plans[0].program.steps.len()),
        Ok(60)
    );
}

#[test]
fn branches_of_a_concatenation_write_into_it() {
    let conv = |from: &str, to: &str| node("Conv", &[from, "w"], &[to], vec![ints("pads", &[1; 4])]);
    let nodes = vec![conv("x", "a"), conv("x", "b"), node("Concat", &["a", "b"], &["y"], vec![int("axis", 1)])];
    let network = Network::of("n", read(&of_nodes(nodes, vec![floats("w", &[4, 4, 3, 3], &[0.5; 144])])).unwrap(), F32);
    let into: Vec<(i64, i64)> =
        network.plans[0].program.steps.iter().map(|s| s.slices.into.map(|i| (i.of, i.at)).unwrap()).collect();
    assert_eq!(into, [(8, 0), (8, 4)]);
    assert_eq!(network.plans[0].memory.slots, []);
}

/// The keys of a network's steps.
fn keys(network: &Network) -> Vec<String> {
    network.plans[0].program.steps.iter().map(|step| step.workload.key()).collect()
}

#[test]
fn channels_come_last_with_permutations_at_the_ends_alone() {
    let nodes = vec![
        node("Conv", &["x", "w"], &["a"], vec![ints("pads", &[1; 4])]),
        node("Relu", &["a"], &["b"], vec![]),
        node("MaxPool", &["b"], &["c"], vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])]),
        node("Conv", &["c", "w"], &["d"], vec![ints("pads", &[1; 4])]),
        node("GlobalAveragePool", &["d"], &["mean"], vec![]),
        node("Sigmoid", &["mean"], &["gate"], vec![]),
        node("Mul", &["d", "gate"], &["e"], vec![]),
        node("Add", &["e", "c"], &["y"], vec![]),
    ];
    let constants = vec![floats("w", &[4, 4, 3, 3], &[0.5; 144])];
    let form = Form::of(DType::F16);
    assert_eq!(form.layout, ConvLayout::Nhwc);
    let network = Network::of("n", read(&of_nodes(nodes, constants)).unwrap(), form);
    let expected = [
        "permute-f16-1x4x36-o0x2x1",
        "conv2d-nhwc-f16-n1c4h6w6-o4k3x3-s1x1-p1.1.1.1-d1x1-g1-relu",
        "max_pool2d-nhwc-f16-n1c4h6w6-k2x2-s2x2-p0.0.0.0-d1x1",
        "conv2d-nhwc-f16-n1c4h3w3-o4k3x3-s1x1-p1.1.1.1-d1x1-g1",
        "reduce_mean-f16-1x9x4-r0x1x0-sigmoid",
        "multiply-f16-a1x3x3x4-b1x1x1x4-residual_add",
        "permute-f16-1x9x4-o0x2x1",
    ];
    assert_eq!(keys(&network), expected);
    assert!(
        network.plans[0].program.inputs.iter().all(|(_, id)| network.plans[0].program.values[*id].dtype == DType::F16)
    );
}

#[test]
fn attention_in_pieces_is_one_step() {
    let scale = |d: f32| floats("s", &[], &[1.0 / d.sqrt()]);
    let mask: Vec<f32> = (0..36).map(|i| if i % 6 > i / 6 { -1e9 } else { 0.0 }).collect();
    let nodes = |of: &str| {
        vec![
            node("Mul", &["x", "s"], &["q"], vec![]),
            node("Transpose", &["x"], &["k"], vec![ints("perm", &[0, 1, 3, 2])]),
            node("MatMul", &["q", "k"], &["a"], vec![]),
            node("Add", &["a", "mask"], &["b"], vec![]),
            node("Softmax", &[of], &["p"], vec![int("axis", -1)]),
            node("MatMul", &["p", "x"], &["y"], vec![]),
        ]
    };
    let network = |of: &str, d: f32| {
        let constants = vec![scale(d), floats("mask", &[6, 6], &mask)];
        Network::of("n", read(&of_nodes(nodes(of), constants)).unwrap(), F32)
    };
    assert_eq!(keys(&network("a", 6.0)), ["attention-f32-b1h4m6n6d6v6-g4-full"]);
    assert_eq!(keys(&network("b", 6.0)), ["attention-f32-b1h4m6n6d6v6-g4-full.mask"]);
    // Another factor is one of the queries.
    let scaled = ["multiply-f32-a1x4x6x6-b1", "attention-f32-b1h4m6n6d6v6-g4-full"];
    assert_eq!(keys(&network("a", 7.0)), scaled);
    let [given, of] = [network("a", 7.0), network("a", 6.0)].map(|network| network.plans[0].program.clone());
    let unscaled = inputs(&of, 3);
    let factor = (6.0f64 / 7.0).sqrt();
    let constant = |program: &Program| {
        program.steps[0].operands.iter().find_map(|id| program.constant(*id)).expect("a factor").to_floats()[0]
    };
    assert!((f64::from(constant(&given)) - factor).abs() < 1e-6, "{}", constant(&given));
    assert_ne!(evaluate(&given, &unscaled, None), evaluate(&of, &unscaled, None));
}

/// A model with an input `ids` of integers, of this shape, and a result `y`.
fn of_tokens(shape: &[i64], nodes: Vec<rten_onnx::onnx::NodeProto>, constants: Vec<TensorProto>) -> ModelProto {
    let mut ids = info("ids", shape);
    ids.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().elem_type = Some(DataType::INT64);
    let output = vec![info("y", &[1])];
    model(GraphProto { node: nodes, initializer: constants, input: vec![ids], output, ..Default::default() })
}

/// What a network of tokens gives, before the passes and behind them.
fn of_ids(model: &ModelProto, ids: &[f64], form: Form) -> Vec<f64> {
    let before = read(model).unwrap_or_else(|all| panic!("{}", all[0]));
    let network = Network::of("n", before.clone(), form);
    let given = [ids.to_vec()];
    let found = evaluate(&network.plans[0].program, &given, Some(&network));
    assert_eq!(evaluate(&before, &given, None), found);
    found.concat()
}

#[test]
fn integers_that_are_computed_stay_integers() {
    let f16 = Form { dtype: DType::F16, ..F32 };
    let one = |value: i64| integers("c", &[], &[value]);
    // A choice between integers is one, and half of it is cut off: in any type that numbers are stored as.
    let nodes = vec![
        node("Less", &["ids", "c"], &["m"], vec![]),
        node("Where", &["m", "a", "b"], &["w"], vec![]),
        node("Div", &["w", "two"], &["y"], vec![]),
    ];
    let of = |name, value| integers(name, &[], &[value]);
    let constants = vec![one(3), of("a", 7), of("b", 4099), of("two", 2)];
    let chosen = of_tokens(&[4], nodes, constants);
    for form in [F32, f16] {
        assert_eq!(of_ids(&chosen, &[1.0, 5.0, 2.0, 3.0], form), [3.0, 2049.0, 3.0, 2049.0]);
    }
    // Beside constants in one tensor, whose copies are integers, too.
    let more: Vec<i64> = (0..8).map(|i| 70_000 + i).collect();
    let nodes =
        vec![node("Add", &["ids", "c"], &["a"], vec![]), node("Concat", &["a", "more"], &["y"], vec![int("axis", 0)])];
    let beside = of_tokens(&[32], nodes, vec![one(1), integers("more", &[8], &more)]);
    let ids: Vec<f64> = (0..32).map(f64::from).collect();
    let found = of_ids(&beside, &ids, f16);
    assert_eq!((found[31], found[32], found[39]), (32.0, 70_000.0, 70_007.0));
    // Powers of integers are integers; with a base that is none they are numbers.
    let power = |base: &str, exponent: &str, constants| {
        of_tokens(&[3], vec![node("Pow", &[base, exponent], &["y"], vec![])], constants)
    };
    assert_eq!(of_ids(&power("ids", "c", vec![one(3)]), &[5.0, -2.0, 0.0], F32), [125.0, -8.0, 0.0]);
    assert_eq!(of_ids(&power("c", "ids", vec![floats("c", &[], &[0.5])]), &[1.0, -1.0, 0.0], F32), [0.5, 2.0, 1.0]);
    // Indices count from the end, too, and the last of a table of bytes are bytes.
    let table = floats("t", &[5, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let rows = of_tokens(&[3], vec![node("Gather", &["t", "ids"], &["y"], vec![])], vec![table]);
    assert_eq!(of_ids(&rows, &[4.0, -5.0, -1.0], F32), [8.0, 9.0, 0.0, 1.0, 8.0, 9.0]);
    let bytes = tensor("t", &[4], DataType::INT8, vec![1, 255, 127, 128]);
    let rows = of_tokens(&[3], vec![node("Gather", &["t", "ids"], &["y"], vec![])], vec![bytes]);
    assert_eq!(of_ids(&rows, &[1.0, -1.0, 2.0], F32), [-1.0, -128.0, 127.0]);
    let network = Network::of("n", read(&rows).unwrap(), F32);
    assert_eq!(network.plans[0].program.values[network.plans[0].program.outputs[0].1].dtype, DType::I8);
    // Numbers are no integers.
    let mixed = of_tokens(
        &[2],
        vec![node("Concat", &["ids", "f"], &["y"], vec![int("axis", 0)])],
        vec![floats("f", &[1], &[0.5])],
    );
    let said = problems(&mixed);
    assert!(said[0].contains("is computed as f32 where i32 is needed"), "{said:?}");
}

#[test]
fn what_only_looks_like_a_norm_or_a_mask_is_left_as_it_is() {
    // Columns are scaled by what the rows have.
    let nodes = vec![
        node("Reshape", &["x", "square"], &["s"], vec![]),
        node("Pow", &["s", "two"], &["p"], vec![]),
        node("ReduceMean", &["p", "last"], &["m"], vec![]),
        node("Add", &["m", "e"], &["v"], vec![]),
        node("Sqrt", &["v"], &["r"], vec![]),
        node("Div", &["one", "r"], &["i"], vec![]),
        node("Transpose", &["i"], &["t"], vec![ints("perm", &[1, 0])]),
        node("Mul", &["s", "t"], &["y"], vec![]),
    ];
    let constants = vec![
        integers("square", &[2], &[12, 12]),
        floats("two", &[], &[2.0]),
        integers("last", &[1], &[-1]),
        floats("e", &[], &[1e-6]),
        floats("one", &[], &[1.0]),
    ];
    let of_rows = of_nodes(
        nodes[..6].iter().cloned().chain([node("Mul", &["s", "i"], &["y"], vec![])]).collect(),
        constants.clone(),
    );
    assert_eq!(keys(&Network::of("n", read(&of_rows).unwrap(), F32)), ["rms_norm-f32-m12n12-e6"]);
    let of_columns = Network::of("n", read(&of_nodes(nodes, constants)).unwrap(), F32);
    assert!(!keys(&of_columns).iter().any(|key| key.starts_with("rms_norm")), "{:?}", keys(&of_columns));
    // A mask for the scores in another shape.
    let nodes = vec![
        node("Reshape", &["x", "heads"], &["q"], vec![]),
        node("Transpose", &["q"], &["k"], vec![ints("perm", &[0, 2, 1])]),
        node("MatMul", &["q", "k"], &["a"], vec![]),
        node("Reshape", &["a", "flat"], &["b"], vec![]),
        node("Add", &["b", "mask"], &["c"], vec![]),
        node("Softmax", &["c"], &["p"], vec![int("axis", -1)]),
        node("Reshape", &["p", "back"], &["w"], vec![]),
        node("MatMul", &["w", "q"], &["y"], vec![]),
    ];
    let constants =
        vec![integers("heads", &[3], &[4, 6, 6]), integers("flat", &[2], &[24, 6]), integers("back", &[3], &[4, 6, 6])];
    let mut flat = of_nodes(nodes, constants);
    flat.graph.as_mut().unwrap().input.push(info("mask", &[24, 6]));
    let before = read(&flat).unwrap();
    let network = Network::of("n", before.clone(), F32);
    let given = inputs(&before, 9);
    let [expected, found] =
        [&before, &network.plans[0].program].map(|program| evaluate(program, &given, None).concat());
    assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-5), "{:?}", keys(&network));
}

/// A model with a mask of keys that is given when it runs, or with what exporters of masks write around it.
fn masked(mask: &[i64], safe: bool) -> ModelProto {
    let mut nodes = vec![
        node("Transpose", &["x"], &["k"], vec![ints("perm", &[0, 1, 3, 2])]),
        node("MatMul", &["x", "k"], &["a"], vec![]),
        node("Div", &["a", "s"], &["b"], vec![]),
        node("Add", &["b", "mask"], &["c"], vec![]),
        node("Add", &["c", "bias"], &["d"], vec![]),
        node("Softmax", &["d"], &["p"], vec![int("axis", -1)]),
    ];
    if safe {
        nodes.push(node("IsNaN", &["p"], &["n"], vec![]));
        nodes.push(node("Where", &["n", "zero", "p"], &["weights"], vec![]));
    }
    nodes.push(node("MatMul", &[if safe { "weights" } else { "p" }, "x"], &["y"], vec![]));
    let bias: Vec<f32> = (0..144).map(|i| (i % 7) as f32 / 4.0).collect();
    let constants =
        vec![floats("s", &[], &[6f32.sqrt()]), floats("zero", &[], &[0.0]), floats("bias", &[1, 4, 6, 6], &bias)];
    let mut model = of_nodes(nodes, constants);
    model.graph.as_mut().unwrap().input.push(info("mask", mask));
    model
}

#[test]
fn queries_keys_and_values_are_columns_of_one_product() {
    let turned = |from: &str, to: &str| {
        let shape = format!("{to}_rows");
        vec![
            node("Reshape", &[from, "shape"], &[&shape], vec![]),
            node("Transpose", &[&shape], &[to], vec![ints("perm", &[0, 2, 1, 3])]),
        ]
    };
    let of = |weights: [&str; 3], biased: bool| {
        let mut nodes = vec![node("Reshape", &["x", "rows"], &["r"], vec![])];
        for (to, weight) in ["q", "k", "v"].iter().zip(weights) {
            let (product, sum) = (format!("{to}_product"), format!("{to}_sum"));
            nodes.push(match weight {
                "" => node("Tanh", &["r"], &[&product], vec![]),
                _ => node("MatMul", &["r", weight], &[&product], vec![]),
            });
            // Keys often have no bias.
            let has_bias = biased && *to != "k";
            nodes.extend(has_bias.then(|| node("Add", &[&product, "bias"], &[&sum], vec![])));
            nodes.extend(turned(if has_bias { &sum } else { &product }, to));
        }
        nodes.extend([
            node("Transpose", &["k"], &["kt"], vec![ints("perm", &[0, 1, 3, 2])]),
            node("MatMul", &["q", "kt"], &["s"], vec![]),
            node("Mul", &["s", "half"], &["t"], vec![]),
            node("Softmax", &["t"], &["p"], vec![int("axis", -1)]),
            node("MatMul", &["p", "v"], &["h"], vec![]),
            node("Transpose", &["h"], &["o"], vec![ints("perm", &[0, 2, 1, 3])]),
            node("Reshape", &["o", "rows"], &["y"], vec![]),
        ]);
        let numbers =
            |seed: usize| (0..64).map(|i| ((i * 37 + seed * 11) % 29) as f32 / 29.0 - 0.5).collect::<Vec<f32>>();
        let constants = vec![
            integers("rows", &[3], &[2, 9, 8]),
            integers("shape", &[4], &[2, 9, 2, 4]),
            floats("half", &[], &[0.5]),
            floats("bias", &[8], &numbers(9)[..8]),
            floats("a", &[8, 8], &numbers(1)),
            floats("b", &[8, 8], &numbers(2)),
            floats("c", &[8, 8], &numbers(3)),
        ];
        let model = of_nodes(nodes, constants);
        let before = read(&model).unwrap();
        let network = Network::of("n", before.clone(), F32);
        let given = inputs(&before, 7);
        let [expected, found] =
            [&before, &network.plans[0].program].map(|program| evaluate(program, &given, None).concat());
        assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-5), "{:?}", keys(&network));
        keys(&network)
    };
    let packed = "attention-f32-b2h2m9n9d4v4-g2-full.packed";
    assert_eq!(of(["a", "b", "c"], true), ["matmul-f32-m18n24k8-nn-bias", packed]);
    assert_eq!(of(["a", "b", "c"], false), ["matmul-f32-m18n24k8-nn", packed]);
    // A function of the rows is no product of them.
    assert_eq!(of(["a", "b", ""], false).len(), 4);
}

#[test]
fn masks_that_are_computed_are_masks_of_attention() {
    for (mask, safe) in [(&[1, 1, 1, 6][..], true), (&[6, 6], false), (&[1, 4, 6, 6], true), (&[4, 1, 6], true)] {
        let network = Network::of("n", read(&masked(mask, safe)).unwrap(), F32);
        let before = read(&masked(mask, safe)).unwrap();
        let given = inputs(&before, 5);
        let [expected, found] =
            [&before, &network.plans[0].program].map(|program| evaluate(program, &given, None).concat());
        let off = expected.iter().zip(&found).any(|(a, b)| (a - b).abs() > 1e-5);
        assert!(!off && keys(&network).len() == 2, "{mask:?}: {:?}", keys(&network));
        assert_eq!(keys(&network)[1], "attention-f32-b1h4m6n6d6v6-g4-full.headmasks");
    }
}

#[test]
fn tensors_that_follow_each_other_as_a_whole_are_not_copied() {
    let conv = |from: &str, weight: &str, to: &str| node("Conv", &[from, weight], &[to], vec![ints("pads", &[1; 4])]);
    let nodes = vec![
        conv("x", "w", "a"),
        conv("x", "w", "b"),
        node("Concat", &["a", "b"], &["ab"], vec![int("axis", 1)]),
        conv("ab", "w16", "narrow"),
        conv("narrow", "w", "c"),
        node("Concat", &["a", "b", "c"], &["y"], vec![int("axis", 1)]),
    ];
    let constants = vec![floats("w", &[8, 4, 3, 3], &[0.5; 288]), floats("w16", &[4, 16, 3, 3], &[0.5; 4 * 16 * 9])];
    let network = Network::of("n", read(&of_nodes(nodes, constants)).unwrap(), F32);
    let program = &network.plans[0].program;
    let whole = program.root(program.outputs[0].1);
    let written: Vec<_> = program.steps.iter().map(|step| program.place(step.output)).collect();
    let narrow = program.root(program.steps[2].output);
    assert_eq!(written, [(whole, 0), (whole, 288), (narrow, 0), (whole, 576)]);
    assert!(program.steps.iter().all(|step| step.slices.is_empty()));
    assert_eq!(program.place(program.steps[2].operands[0]), (whole, 0));
}

#[test]
fn what_reads_a_part_of_a_concatenation_is_copied_into_it() {
    let conv = |from: &str, weight: &str, to: &str| node("Conv", &[from, weight], &[to], vec![ints("pads", &[1; 4])]);
    let nodes =
        vec![conv("x", "w", "a"), conv("a", "w8", "b"), node("Concat", &["a", "b"], &["y"], vec![int("axis", 1)])];
    let constants = vec![floats("w", &[8, 4, 3, 3], &[0.5; 288]), floats("w8", &[8, 8, 3, 3], &[0.5; 576])];
    let network = Network::of("n", read(&of_nodes(nodes, constants)).unwrap(), F32);
    let nodes: Vec<String> = network.plans[0].program.steps.iter().map(|step| step.nodes.join("+")).collect();
    assert_eq!(nodes, ["make_a", "make_b", "copy of b"]);
}

#[test]
fn shapes_are_computed_when_the_model_is_read() {
    // Shape, Gather, Mul, Unsqueeze, Concat and Reshape: how exporters flatten.
    let nodes = vec![
        node("Shape", &["x"], &["s"], vec![]),
        node("Gather", &["s", "zero"], &["n"], vec![]),
        node("Gather", &["s", "one"], &["c"], vec![]),
        node("Mul", &["c", "nine"], &["m"], vec![]),
        node("Unsqueeze", &["n", "first"], &["n1"], vec![]),
        node("Unsqueeze", &["m", "first"], &["m1"], vec![]),
        node("Concat", &["n1", "m1", "rest"], &["shape"], vec![int("axis", 0)]),
        node("Reshape", &["x", "shape"], &["r"], vec![]),
        node("Softmax", &["r"], &["y"], vec![int("axis", -1)]),
    ];
    let scalar = |name: &str, value| integers(name, &[], &[value]);
    let constants = vec![
        scalar("zero", 0),
        scalar("one", 1),
        scalar("nine", 9),
        integers("first", &[1], &[0]),
        integers("rest", &[1], &[-1]),
    ];
    let network = Network::of("n", read(&of_nodes(nodes, constants)).unwrap(), F32);
    assert_eq!(lines(&network), ["make_y = softmax-f32-m36n4"]);
}

/// All problems of a model, one line each.
pub(crate) fn problems(model: &ModelProto) -> Vec<String> {
    read(model).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn the_documentation_lists_the_operators_that_can_be_compiled() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/networks.md")).unwrap();
    let list = page.split("\n## ").find(|part| part.starts_with("Operators")).unwrap();
    let listed: Vec<&str> = list.split("\n\n").nth(1).unwrap().split('`').skip(1).step_by(2).collect();
    assert_eq!(listed, kernel_gen::network::operators());
}

/// What is wrong, a model with that one fault, and a part of the error message.
type Wrong = (&'static str, ModelProto, &'static str);

fn wrong_models() -> Vec<Wrong> {
    let one = |op: &str, inputs: &[&str], attributes: Vec<AttributeProto>| {
        of_nodes(vec![node(op, inputs, &["y"], attributes)], vec![])
    };
    let with = |op: &str, constants: Vec<TensorProto>, attributes: Vec<AttributeProto>| {
        let names: Vec<String> = constants.iter().map(|c| c.name.clone().unwrap()).collect();
        let inputs: Vec<&str> = std::iter::once("x").chain(names.iter().map(String::as_str)).collect();
        of_nodes(vec![node(op, &inputs, &["y"], attributes)], constants.clone())
    };
    let weight = |dims: &[i64]| floats("w", dims, &vec![0.5; dims.iter().product::<i64>() as usize]);
    let changed = |change: &dyn Fn(&mut ModelProto)| {
        let mut model = one("Relu", &["x"], vec![]);
        change(&mut model);
        model
    };
    let graph = |change: &dyn Fn(&mut GraphProto)| changed(&|m| change(m.graph.as_mut().unwrap()));
    let external = |location: &str| {
        let entry = StringStringEntryProto { key: Some("location".into()), value: Some(location.into()) };
        let data_location = Some(DataLocation::EXTERNAL);
        with("Add", vec![TensorProto { external_data: vec![entry], data_location, ..weight(&[1]) }], vec![])
    };
    let body = AttributeProto {
        name: Some("then_branch".into()),
        g: Some(GraphProto::default()),
        r#type: Some(AttributeType::GRAPH),
        ..Default::default()
    };
    vec![
        ("no graph", changed(&|m| m.graph = None), "it has no graph"),
        ("no version", changed(&|m| m.opset_import.clear()), "does not say which version"),
        ("an old version", changed(&|m| m.opset_import[0].version = Some(3)), "it uses version 3 of the operators"),
        ("no outputs", graph(&|g| g.output.clear()), "it has no outputs"),
        ("an output that nothing gives", graph(&|g| g.output.push(info("z", &[1]))), "output `z`: no node gives it"),
        (
            "an operator that is not there",
            one("Unique", &["x"], vec![]),
            "node `make_y` (Unique): the operator is not supported",
        ),
        ("a sum of no terms", one("Einsum", &["x"], vec![]), "`` for a tensor of [1, 4, 6, 6]"),
        (
            "a sum along a diagonal",
            one("Einsum", &["x"], vec![text("equation", "abcc->ab")]),
            "a letter twice in one term",
        ),
        (
            "a sum of a letter that is not there",
            one("Einsum", &["x"], vec![text("equation", "abcd->abe")]),
            "or one that no term has",
        ),
        (
            "a sum of terms that are not there",
            one("Einsum", &["x"], vec![text("equation", "abcd,d->ab")]),
            "2 terms and 1 operands",
        ),
        (
            "a sum of extents that differ",
            with("Einsum", vec![weight(&[5])], vec![text("equation", "abcd,d->ab")]),
            "`d` is 6 and 5",
        ),
        (
            "indices of another rank",
            with("GatherElements", vec![integers("w", &[2], &[0, 1])], vec![]),
            "indices of [2] into [1, 4, 6, 6]",
        ),
        (
            "lists of too many indices",
            with("GatherND", vec![integers("w", &[5], &[0; 5])], vec![]),
            "indices of [5] into [1, 4, 6, 6]",
        ),
        (
            "places that are not there",
            with("ScatterND", vec![integers("w", &[1, 1], &[1]), floats("u", &[1, 4, 6, 6], &[0.0; 144])], vec![]),
            "its operands do not go together",
        ),
        (
            "more of the first than there are",
            with("TopK", vec![integers("w", &[1], &[7])], vec![]),
            "as a top_k, k is 7 and there are 6 elements along dimension 3",
        ),
        (
            "a layer that has no steps",
            with("LSTM", vec![weight(&[1, 8, 6])], vec![]),
            "an input of [1, 4, 6, 6] and weights of [1, 8, 6]",
        ),
        ("a grid of another rank", with("GridSample", vec![weight(&[1, 6, 2])], vec![]), "[1, 4, 6, 6] at [1, 6, 2]"),
        (
            "a place in a grid by a cubic",
            with("GridSample", vec![weight(&[1, 6, 6, 2])], vec![text("mode", "cubic")]),
            "`mode` is cubic",
        ),
        (
            "a layer of too many steps",
            {
                let mut long =
                    with("RNN", vec![floats("w", &[1, 1, 1], &[0.5]), floats("r", &[1, 1, 1], &[0.5])], vec![]);
                long.graph.as_mut().unwrap().input[0] = info("x", &[1_000_000, 1, 1]);
                long
            },
            "it has 1000000 steps of time",
        ),
        (
            "a layer with too few weights",
            {
                let mut odd =
                    with("LSTM", vec![floats("w", &[1, 6, 6], &[0.5; 36]), floats("r", &[1, 4, 1], &[0.5; 4])], vec![]);
                odd.graph.as_mut().unwrap().input[0] = info("x", &[2, 1, 6]);
                odd
            },
            "6 rows of weights for 4 gates",
        ),
        (
            "a dimension of fewer than none",
            of_nodes(
                vec![node("ArgMax", &["x"], &["i"], vec![]), node("OneHot", &["i", "d", "v"], &["y"], vec![])],
                vec![integers("d", &[], &[i64::MIN]), floats("v", &[2], &[0.0, 1.0])],
            ),
            "places among [1, 1, 1, 1, -9223372036854775808]",
        ),
        ("a norm by a third power", one("LpNormalization", &["x"], vec![int("p", 3)]), "`p` is 3"),
        ("a diagonal of an image", one("EyeLike", &["x"], vec![]), "diagonals are of matrices"),
        (
            "a domain of its own",
            graph(&|g| g.node[0].domain = Some("com.microsoft".into())),
            "of the domain `com.microsoft`",
        ),
        ("control flow", one("If", &["x"], vec![body]), "it has no graph `else_branch`"),
        ("a missing initialiser", one("Add", &["x", "w"], vec![]), "nothing before it gives `w`"),
        (
            "a cycle",
            of_nodes(
                vec![
                    node("Add", &["x", "b"], &["a"], vec![]),
                    node("Relu", &["a"], &["b"], vec![]),
                    node("Relu", &["b"], &["y"], vec![]),
                ],
                vec![],
            ),
            "nothing before it gives `b`",
        ),
        ("two nodes with one result", graph(&|g| g.node.push(g.node[0].clone())), "`y` is given by two nodes"),
        (
            "an open extent",
            graph(&|g| g.input[0] = info("x", &[-1, 4])),
            "input `x`: `batch` is not known; write inputs = { \"x\" = [1, 4] }",
        ),
        (
            "no shape",
            graph(&|g| g.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().shape = None),
            "input `x`: its shape is not in the file",
        ),
        (
            "an input of complex numbers",
            graph(&|g| {
                g.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().elem_type = Some(DataType::COMPLEX64)
            }),
            "input `x`: its elements are COMPLEX64",
        ),
        ("an input that is no tensor", graph(&|g| g.input[0].r#type = None), "input `x`: it is no tensor"),
        ("a missing operand", one("Conv", &["x"], vec![]), "operand 1 is missing"),
        ("a weight of another rank", with("Conv", vec![weight(&[4, 4])], vec![]), "a weight of [4, 4]"),
        ("other channels", with("Conv", vec![weight(&[4, 3, 1, 1])], vec![]), "node `make_y` (Conv)"),
        (
            "groups that do not divide",
            with("Conv", vec![weight(&[4, 2, 1, 1])], vec![int("group", 3)]),
            "node `make_y` (Conv)",
        ),
        ("no groups", with("Conv", vec![weight(&[4, 4, 1, 1])], vec![int("group", 0)]), "node `make_y` (Conv)"),
        ("a window larger than the image", with("Conv", vec![weight(&[4, 4, 9, 9])], vec![]), "node `make_y` (Conv)"),
        (
            "a stride of 0",
            with("Conv", vec![weight(&[4, 4, 1, 1])], vec![ints("strides", &[0, 1])]),
            "`strides` is [0, 1]",
        ),
        (
            "a huge stride",
            with("Conv", vec![weight(&[4, 4, 1, 1])], vec![ints("strides", &[i64::MAX, 1])]),
            "`strides` is",
        ),
        (
            "a huge dilation",
            with("Conv", vec![weight(&[4, 4, 2, 2])], vec![ints("dilations", &[u32::MAX.into(), 1])]),
            "node `make_y` (Conv)",
        ),
        (
            "huge padding",
            with("Conv", vec![weight(&[4, 4, 1, 1])], vec![ints("pads", &[i64::MAX / 2; 4])]),
            "node `make_y` (Conv)",
        ),
        (
            "negative padding",
            with("Conv", vec![weight(&[4, 4, 1, 1])], vec![ints("pads", &[-1; 4])]),
            "`pads` is [-1, -1, -1, -1]",
        ),
        (
            "padding of another rank",
            with("Conv", vec![weight(&[4, 4, 1, 1])], vec![ints("pads", &[1; 3])]),
            "`pads` is [1, 1, 1]",
        ),
        (
            "an unknown padding",
            with("Conv", vec![weight(&[4, 4, 1, 1])], vec![crate::random_network::text("auto_pad", "MAGIC")]),
            "`auto_pad` is MAGIC",
        ),
        ("no window", one("MaxPool", &["x"], vec![]), "`kernel_shape` is missing"),
        (
            "pooling in columns",
            one("MaxPool", &["x"], vec![ints("kernel_shape", &[2, 2]), int("storage_order", 1)]),
            "`storage_order` is 1",
        ),
        (
            "the places of the largest",
            of_nodes(vec![node("MaxPool", &["x"], &["y", "places"], vec![ints("kernel_shape", &[2, 2])])], vec![]),
            "more than one of its results is used",
        ),
        ("shapes that do not broadcast", with("Add", vec![weight(&[5])], vec![]), "do not broadcast"),
        ("matrices that do not fit", with("MatMul", vec![weight(&[5, 3])], vec![]), "[1, 4, 6, 6] by [5, 3]"),
        ("a product of no matrices", with("Gemm", vec![weight(&[6, 3])], vec![]), "its operands are no matrices"),
        (
            "another number of elements",
            with("Reshape", vec![integers("w", &[2], &[5, 5])], vec![]),
            "cannot take the shape [5, 5]",
        ),
        (
            "an extent that is not there",
            with("Reshape", vec![integers("w", &[5], &[1, 4, 6, 6, 0])], vec![]),
            "it keeps an extent that is not there",
        ),
        (
            "a shape of computed numbers",
            of_nodes(vec![node("Relu", &["x"], &["a"], vec![]), node("Reshape", &["x", "a"], &["y"], vec![])], vec![]),
            "its extents are computed from the data of an input",
        ),
        ("an axis beyond the rank", one("Softmax", &["x"], vec![int("axis", 4)]), "`axis` is 4"),
        (
            "a norm by no power of ten",
            with("LayerNormalization", vec![weight(&[6])], vec![float("epsilon", 0.3)]),
            "`epsilon` is 0.3",
        ),
        (
            "a norm of other channels",
            with("BatchNormalization", ["a", "b", "c", "d"].map(|n| floats(n, &[3], &[1.0; 3])).to_vec(), vec![]),
            "4 channels, and not as many numbers",
        ),
        (
            "a permutation that is none",
            one("Transpose", &["x"], vec![ints("perm", &[0, 1, 1, 3])]),
            "`perm` is [0, 1, 1, 3]",
        ),
        ("a slice without bounds", one("Slice", &["x"], vec![]), "its bounds are missing"),
        (
            "a slice of steps of 0",
            with(
                "Slice",
                vec![
                    integers("a", &[1], &[0]),
                    integers("b", &[1], &[2]),
                    integers("c", &[1], &[1]),
                    integers("d", &[1], &[0]),
                ],
                vec![],
            ),
            "`steps` is 0",
        ),
        (
            "an empty slice",
            with(
                "Slice",
                vec![integers("a", &[1], &[2]), integers("b", &[1], &[2]), integers("c", &[1], &[1])],
                vec![],
            ),
            "its result has no elements",
        ),
        (
            "parts that are not the whole",
            of_nodes(
                vec![node("Split", &["x", "w"], &["y", "z"], vec![int("axis", 1)])],
                vec![integers("w", &[2], &[1, 2])],
            ),
            "parts of [1, 2] of an extent of 4",
        ),
        (
            "concatenation of other extents",
            with("Concat", vec![weight(&[1, 4, 5, 6])], vec![int("axis", 1)]),
            "beside [1, 4, 5, 6]",
        ),
        (
            "an index beyond the extent",
            with("Gather", vec![integers("w", &[1], &[7])], vec![int("axis", 1)]),
            "an index of 7 into an extent of 4",
        ),
        (
            "a mode of padding",
            with(
                "Pad",
                vec![integers("w", &[8], &[0, 0, 1, 1, 0, 0, 1, 1])],
                vec![crate::random_network::text("mode", "wrap")],
            ),
            "`mode` is wrap",
        ),
        (
            "a resize to nothing",
            with("Resize", vec![floats("r", &[0], &[]), floats("w", &[4], &[1.0, 0.01, 1.0, 1.0])], vec![]),
            "let each extent be 1 to 1048576",
        ),
        (
            "a type of computed numbers",
            one("Cast", &["x"], vec![int("to", 5)]),
            "it makes other types of a computed tensor",
        ),
        ("a cast to text", one("Cast", &["x"], vec![int("to", 8)]), "`to` is 8"),
        (
            "too large a constant",
            of_nodes(
                vec![node("ConstantOfShape", &["w"], &["a"], vec![]), node("Add", &["x", "a"], &["y"], vec![])],
                vec![integers("w", &[2], &[1 << 40, 1 << 40])],
            ),
            "a shape of [",
        ),
        (
            "fewer bytes than elements",
            with("Add", vec![tensor("w", &[4], DataType::FLOAT, vec![0; 8])], vec![]),
            "its shape [4] has 4 elements, and the file has 2",
        ),
        (
            "a claim of 2 GB",
            with("Add", vec![tensor("w", &[1 << 29], DataType::FLOAT, vec![0; 4])], vec![]),
            "has 536870912 elements, and the file has 1",
        ),
        (
            "a shape beyond 64 bits",
            with("Add", vec![tensor("w", &[1 << 40, 1 << 40], DataType::FLOAT, vec![])], vec![]),
            "its shape is [1099511627776, 1099511627776]",
        ),
        (
            "a negative extent",
            with("Add", vec![tensor("w", &[-4], DataType::FLOAT, vec![])], vec![]),
            "its shape is [-4]",
        ),
        (
            "texts as weights",
            with("Add", vec![tensor("w", &[1], DataType::STRING, vec![0])], vec![]),
            "its elements are of the type STRING",
        ),
        (
            "complex weights",
            with("Add", vec![tensor("w", &[1], DataType::COMPLEX64, vec![0; 8])], vec![]),
            "its elements are of the type COMPLEX64",
        ),
        ("external data above", external("../weights.bin"), "which is not below the model's folder"),
        ("external data anywhere", external("/etc/passwd"), "which is not below the model's folder"),
        ("external data nowhere", external("weights.bin"), "it lies in `weights.bin`: "),
        ("external data without a name", external(""), "which is not below the model's folder"),
        ("seven dimensions", with("Reshape", vec![integers("w", &[7], &[1, 4, 6, 6, 1, 1, 1])], vec![]), ""),
        (
            "an epilogue of bounds in the wrong order",
            with("Clip", vec![floats("a", &[], &[2.0]), floats("b", &[], &[1.0])], vec![]),
            "its lower bound 2 is above its upper bound 1",
        ),
        (
            "an expansion by nothing",
            with("Expand", vec![integers("w", &[5], &[i64::MIN, 1, 4, 6, 6])], vec![]),
            "node `make_y` (Expand)",
        ),
        (
            "a window of no size",
            one("MaxPool", &["x"], vec![ints("kernel_shape", &[i64::MIN, 1])]),
            "`kernel_shape` is missing",
        ),
        ("an activation without a slope", one("Celu", &["x"], vec![float("alpha", 0.0)]), "`alpha` is 0"),
        (
            "a range without end",
            of_nodes(
                vec![node("Range", &["a", "b", "c"], &["r"], vec![]), node("Relu", &["x"], &["y"], vec![])],
                vec![floats("a", &[], &[0.0]), floats("b", &[], &[1.0]), floats("c", &[], &[0.0])],
            ),
            "a range from 0 to 1 by 0",
        ),
        ("integers as a result", one("Shape", &["x"], vec![]), "output `y`: it is the same integers whatever"),
        (
            "a constant of a gigabyte of a few bytes",
            of_nodes(
                vec![node("Expand", &["one", "to"], &["large"], vec![]), node("Add", &["x", "large"], &["y"], vec![])],
                vec![floats("one", &[1], &[1.0]), integers("to", &[1], &[1 << 30])],
            ),
            "with it, constants of 1073741824 elements are computed from the file",
        ),
    ]
}

#[test]
fn what_cannot_be_compiled_is_said_in_one_line() {
    let all = wrong_models();
    assert!(all.len() >= 60, "{}", all.len());
    for (what, model, expected) in all {
        let said = problems(&model);
        if expected.is_empty() {
            continue;
        }
        assert_eq!(said.len(), 1, "{what}: {said:#?}");
        assert!(said[0].contains(expected), "{what}: {}", said[0]);
        assert!(said[0].contains("; ") && !said[0].contains('\n'), "{what}: {}", said[0]);
    }
}

#[test]
fn all_that_cannot_be_compiled_is_said_at_once() {
    let nodes = vec![
        node("Unique", &["x"], &["a"], vec![]),
        node("Relu", &["a"], &["b"], vec![]),
        node("NonZero", &["x"], &["c"], vec![]),
        node("Add", &["b", "c"], &["y"], vec![]),
    ];
    let said = problems(&of_nodes(nodes, vec![]));
    assert_eq!(said.len(), 2, "what only follows is not said: {said:#?}");
    assert!(said[0].starts_with("node `make_a` (Unique)") && said[1].starts_with("node `make_c` (NonZero)"));
}

#[test]
fn bytes_that_are_cut_or_changed_are_an_error_or_a_model_and_never_a_panic() {
    let count = sweep::number("KERNEL_GEN_WORKLOADS", 400);
    let first = sweep::number("KERNEL_GEN_SEED", 0);
    let mut read_anyway = 0;
    for seed in first..first + count {
        let mut rng = Rng::new(seed);
        let model = if seed % 2 == 0 { random(seed % 50) } else { random_with_graphs(seed % 50).0 };
        let mut bytes = model.write_buf().unwrap();
        if rng.one_in(3) {
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        }
        for _ in 0..rng.between(1, 4) {
            if !bytes.is_empty() {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
        }
        // A claim of a large size must not be believed before the bytes are there.
        if let Ok(program) = parse(&bytes, Path::new("/nowhere"), &BTreeMap::new()) {
            Network::of("changed", program, F32);
            read_anyway += 1;
        }
    }
    println!("{count} changed files, of which {read_anyway} are models");
    assert!(read_anyway < count);
}
