//! Networks whose number of images is known when they run: what the steps for the most images compute of fewer, and what is refused.

use crate::networks::{evaluate, inputs};
use crate::random_network::{float, floats, info, int, integers, ints, model, node, random};
use crate::sweep;
use kernel_gen::diagnostic::Size;
use kernel_gen::network::{Batch, Network, Plan, Problem, Program, Wanted, parse};
use kernel_gen::spec::Spec;
use rten_onnx::onnx::{GraphProto, ModelProto, NodeProto, TensorProto};
use std::collections::BTreeMap;
use std::path::Path;

/// How many random networks there are; `KERNEL_GEN_WORKLOADS` says another number.
const NETWORKS: u64 = 120;

/// Makes the first extent of the input one that the file leaves open, and keeps it in every `Reshape`.
fn open(model: &mut ModelProto) -> Option<Vec<i64>> {
    let graph = model.graph.as_mut()?;
    let x = graph.input.first_mut()?;
    let dims = &x.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?.dim;
    let shape: Vec<i64> = dims.iter().filter_map(|dim| dim.dim_value).collect();
    *x = info("x", &[&[-1], &shape[1..]].concat());
    let reshapes = graph.node.iter().filter(|node| node.op_type.as_deref() == Some("Reshape"));
    let names: Vec<String> = reshapes.filter_map(|node| node.input.get(1).cloned()).collect();
    for tensor in &mut graph.initializer {
        if tensor.name.as_ref().is_some_and(|name| names.contains(name)) {
            let raw = tensor.raw_data.as_ref()?.borrow();
            let mut numbers: Vec<i64> =
                raw.chunks(8).map(|b| i64::from_le_bytes(b.try_into().expect("they are of 8 bytes"))).collect();
            drop(raw);
            numbers[0] = 0;
            *tensor = integers(tensor.name.as_deref()?, &[numbers.len() as i64], &numbers);
        }
    }
    Some(shape)
}

/// The network of a model for a range of images, or one number of them, by way of a file.
fn load(model: &ModelProto, name: &str, images: (i64, i64), rest: &[i64]) -> Result<Network, Vec<Problem>> {
    load_as(model, name, images, rest, Wanted::default())
}

/// The same in a form.
pub(crate) fn load_as(
    model: &ModelProto,
    name: &str,
    (least, most): (i64, i64),
    rest: &[i64],
    wanted: Wanted,
) -> Result<Network, Vec<Problem>> {
    let file = std::env::temp_dir().join(format!("kernel-gen-units-{}-{name}.onnx", std::process::id()));
    std::fs::write(&file, model.write_buf().unwrap()).unwrap();
    let shape = [Size { least, most }].into_iter().chain(rest.iter().copied().map(Size::one)).collect();
    let network = Network::load("net", &file, &[BTreeMap::from([("x".to_string(), shape)])], wanted);
    std::fs::remove_file(&file).unwrap();
    network
}

/// The program of a plan as it runs for some number of images: each array is the beginning of that for the most.
fn of_units(plan: &Plan, number: i64) -> Program {
    let units = plan.units.as_ref().unwrap();
    let mut program = plan.program.clone();
    for id in 0..program.values.len() {
        if let Some(each) = units.per_unit(&plan.program, id) {
            program.values[id].shape = vec![each * number];
        }
    }
    for (step, range) in program.steps.iter_mut().zip(&units.ranges) {
        if let Some(range) = range {
            step.workload = range.at(&step.workload, range.most / units.most * number);
        }
    }
    program
}

/// Holds each number of images against the model with that number.
fn check(model: &ModelProto, network: &Network, rest: &[i64], seed: u64) {
    let plan = &network.plans[0];
    let units = plan.units.as_ref().unwrap();
    for number in units.least..=units.most {
        let shapes = BTreeMap::from([("x".to_string(), [&[number], rest].concat())]);
        let program = parse(&model.write_buf().unwrap(), Path::new("/nowhere"), &shapes).unwrap();
        let given = inputs(&program, seed);
        let expected = evaluate(&program, &given, None);
        let got = evaluate(&of_units(plan, number), &given, Some(network));
        agree(&expected, &got, &format!("seed {seed}, {number} images"), plan);
    }
}

/// Holds the results of a plan against those of the model.
fn agree(expected: &[Vec<f64>], got: &[Vec<f64>], of: &str, plan: &Plan) {
    for (i, (a, b)) in expected.iter().zip(got).enumerate() {
        assert_eq!(a.len(), b.len(), "{of}, result {i}");
        let size = a.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        let wrong = a.iter().zip(b).position(|(a, b)| b.is_nan() || (a - b).abs() > 1e-5 * size);
        assert_eq!(wrong, None, "{of}, result {i}: {}", plan.program);
    }
}

#[test]
fn a_network_of_a_range_computes_what_the_model_computes_of_each_number_of_images() {
    let count = sweep::number("KERNEL_GEN_WORKLOADS", NETWORKS);
    let first = sweep::number("KERNEL_GEN_SEED", 0);
    let (mut made, mut refused) = (0, BTreeMap::<String, u64>::new());
    for seed in first..first + count {
        let mut model = random(seed);
        let shape = open(&mut model).unwrap();
        let most = [2, 3, 5][(seed % 3) as usize];
        match load(&model, &seed.to_string(), (1, most), &shape[1..]) {
            Ok(network) => {
                check(&model, &network, &shape[1..], seed);
                made += 1;
            }
            Err(problems) => {
                let kind = problems[0].cause.split(['[', '`']).next().unwrap_or_default().to_string();
                *refused.entry(kind).or_default() += 1;
            }
        }
    }
    println!("{made} networks of {count} have ranges; refused: {refused:?}");
    assert!(made * 2 > count, "{made} of {count}: {refused:?}");
}

/// What a plan of one image computes of several, one after the other.
fn one_by_one(network: &Network, given: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let plan = &network.plans[0];
    let apart = plan.apart.as_ref().unwrap();
    let mut results: Vec<Vec<f64>> = vec![vec![]; plan.program.outputs.len()];
    for image in 0..apart.most as usize {
        let part = |(all, has_images): (&Vec<f64>, &bool)| match has_images {
            true => all.chunks(all.len() / apart.most as usize).nth(image).unwrap().to_vec(),
            false => all.clone(),
        };
        let own: Vec<Vec<f64>> = given.iter().zip(&apart.inputs).map(part).collect();
        let found = evaluate(&plan.program, &own, Some(network));
        results.iter_mut().zip(found).for_each(|(all, own)| all.extend(own));
    }
    results
}

#[test]
fn images_one_by_one_are_computed_as_together() {
    let count = sweep::number("KERNEL_GEN_WORKLOADS", NETWORKS);
    let first = sweep::number("KERNEL_GEN_SEED", 0);
    let (mut made, mut refused) = (0, BTreeMap::<String, u64>::new());
    let wanted = Wanted { images: Batch::Apart, ..Wanted::default() };
    for seed in first..first + count {
        let mut model = random(seed);
        let shape = open(&mut model).unwrap();
        let images = [2, 3, 5][(seed % 3) as usize];
        let network = match load_as(&model, &format!("apart-{seed}"), (images, images), &shape[1..], wanted.clone()) {
            Ok(network) => network,
            Err(problems) => {
                let kind = problems[0].cause.split(['[', '`']).next().unwrap_or_default().to_string();
                *refused.entry(kind).or_default() += 1;
                continue;
            }
        };
        let plan = &network.plans[0];
        let shapes = BTreeMap::from([("x".to_string(), [&[images], &shape[1..]].concat())]);
        let program = parse(&model.write_buf().unwrap(), Path::new("/nowhere"), &shapes).unwrap();
        let given = inputs(&program, seed);
        let expected = evaluate(&program, &given, None);
        agree(&expected, &one_by_one(&network, &given), &format!("seed {seed}, {images} images"), plan);
        made += 1;
    }
    println!("of {count} networks {made} run images one by one; refused: {refused:?}");
    assert!(made * 2 > count, "{made} of {count}: {refused:?}");
}

/// A model of nodes with an input of any number of images, 4x6x6 each, and a result `y`.
fn of_nodes(nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> ModelProto {
    let (input, output) = (vec![info("x", &[-1, 4, 6, 6])], vec![info("y", &[1])]);
    model(GraphProto { node: nodes, initializer: constants, input, output, ..Default::default() })
}

#[test]
fn what_depends_on_another_image_or_on_their_number_is_refused() {
    let refused = |name: &str, nodes: Vec<NodeProto>, constants: Vec<TensorProto>| {
        let found = load(&of_nodes(nodes, constants), name, (1, 4), &[4, 6, 6]);
        found.map(|network| network.plans[0].program.to_string()).unwrap_err()[0].to_string()
    };
    let help = "; write a list of shapes in the place of the range: a network is made for each";
    let mean = vec![node("ReduceMean", &["x", "axes"], &["y"], vec![])];
    let said = refused("mean", mean, vec![integers("axes", &[1], &[0])]);
    assert_eq!(said, format!("node `make_y` (reduce_mean): no output has them{help}"));
    let moved = vec![node("Transpose", &["x"], &["y"], vec![ints("perm", &[1, 0, 2, 3])])];
    let said = refused("moved", moved, vec![]);
    assert!(said.starts_with("node `make_y` (permute): ") && said.ends_with(help), "{said}");
    // Numbers that are computed of the number of images.
    let shape = vec![
        node("Shape", &["x"], &["s"], vec![int("end", 1)]),
        node("Cast", &["s"], &["n"], vec![int("to", 1)]),
        node("Div", &["x", "n"], &["y"], vec![]),
    ];
    let said = refused("share", shape, vec![]);
    assert!(said.contains("it is a constant whose elements are others for 4 images than for "), "{said}");
    // Numbers that only one image has.
    let alone = vec![
        node("Shape", &["x"], &["s"], vec![int("end", 1)]),
        node("Equal", &["s", "one"], &["is_one"], vec![]),
        node("Where", &["is_one", "a", "b"], &["c"], vec![]),
        node("Mul", &["x", "c"], &["y"], vec![]),
    ];
    let numbers = vec![integers("one", &[1], &[1]), floats("a", &[1], &[0.5]), floats("b", &[1], &[2.0])];
    let said = refused("alone", alone, numbers);
    assert_eq!(said, format!("`c`: it is a constant whose elements are others for 4 images than for 1{help}"));
    // With one image it has another shape.
    let squeezed = vec![node("ReduceSum", &["x", "axes"], &["s"], vec![]), node("Squeeze", &["s"], &["y"], vec![])];
    let said = refused("squeezed", squeezed, vec![integers("axes", &[2], &[2, 3])]);
    assert_eq!(said, format!("output `y`: it is [4, 4] for 4 images and [4] for 1{help}"));
    // Softmax over images.
    let softmax = vec![node("Softmax", &["x"], &["y"], vec![int("axis", 0)])];
    let said = refused("softmax", softmax, vec![]);
    assert!(said.ends_with(help), "{said}");
}

#[test]
fn images_that_depend_on_each_other_stay_together() {
    let reason = |name: &str, nodes: Vec<NodeProto>, constants: Vec<TensorProto>| {
        let wanted = Wanted { images: Batch::Apart, ..Wanted::default() };
        let refused = load_as(&of_nodes(nodes, constants), name, (4, 4), &[4, 6, 6], wanted);
        refused.map(|network| network.plans[0].program.to_string()).unwrap_err()[0].to_string()
    };
    let says = |said: &str, what: &str| {
        let start = said.starts_with("its images cannot run one by one: ");
        assert!(start && said.ends_with(&format!("{what}; leave `images` out: they run together")), "{said}");
    };
    let softmax = vec![node("Softmax", &["x"], &["y"], vec![int("axis", 0)])];
    says(&reason("apart-softmax", softmax, vec![]), "`x` is [1, 4, 144] of 4 and [1, 3, 144] of 3");
    // The first image is added to all.
    let first = vec![
        node("Slice", &["x", "zero", "one", "zero"], &["first"], vec![]),
        node("Add", &["x", "first"], &["y"], vec![]),
    ];
    let numbers = || vec![integers("zero", &[1], &[0]), integers("one", &[1], &[1])];
    says(&reason("apart-first", first, numbers()), "no output has them");
    // Halves of all elements, which are not halves of each image.
    let halves = vec![
        node("Reshape", &["x", "halves"], &["h"], vec![]),
        node("Slice", &["h", "zero", "one", "zero"], &["a"], vec![]),
        node("LayerNormalization", &["a", "scale"], &["b"], vec![]),
        node("Reshape", &["b", "rows"], &["y"], vec![]),
    ];
    let shapes = vec![
        integers("halves", &[3], &[2, -1, 72]),
        integers("rows", &[2], &[-1, 72]),
        floats("scale", &[72], &[1.5; 72]),
    ];
    // Behind the passes it is a part of several images, which is refused as well.
    says(&reason("apart-halves", halves, [shapes, numbers()].concat()), "`x` is [2, 4, 72] of 4 and [2, 3, 72] of 3");
    // Numbers of their own for each image.
    let own = vec![
        node("Shape", &["x"], &["s"], vec![int("end", 1)]),
        node("Squeeze", &["s"], &["n"], vec![]),
        node("Range", &["start", "n", "step"], &["i"], vec![]),
        node("Cast", &["i"], &["f"], vec![int("to", 1)]),
        node("Reshape", &["f", "column"], &["c"], vec![]),
        node("Add", &["x", "c"], &["y"], vec![]),
    ];
    let numbers =
        vec![integers("start", &[], &[0]), integers("step", &[], &[1]), integers("column", &[4], &[-1, 1, 1, 1])];
    says(&reason("apart-own", own, numbers), "has other numbers for each image");
}

/// A product of 144 numbers of an image and a matrix.
fn product(columns: i64) -> ModelProto {
    let nodes = vec![node("Reshape", &["x", "rows"], &["r"], vec![]), node("MatMul", &["r", "w"], &["y"], vec![])];
    let weight = vec![0.25; 144 * columns as usize];
    of_nodes(nodes, vec![integers("rows", &[2], &[0, -1]), floats("w", &[144, columns], &weight)])
}

#[test]
fn images_run_one_by_one_where_that_is_faster() {
    let plan = |name: &str, model: &ModelProto, rest: &[i64], images: Batch| {
        let network = load_as(model, name, (4, 4), rest, Wanted { images, ..Wanted::default() });
        network.map(|mut network| network.plans.remove(0)).map_err(|problems| problems[0].to_string())
    };
    let together = |name: &str, model: &ModelProto, rest: &[i64]| {
        let plan = plan(name, model, rest, Batch::Faster).unwrap();
        assert_eq!((plan.apart, plan.units), (None, None), "{name}");
        plan.passes.last().unwrap().clone()
    };
    let said = together("small", &product(10), &[4, 6, 6]);
    assert_eq!(said, "images stay together: launches of one image are small, 1440 multiply-adds in the mean");
    let said = together("few-rows", &product(1000), &[4, 6, 6]);
    let expected = "of 144000 multiply-adds 144000 are of weights with fewer than 16 rows of an image";
    assert_eq!(said, format!("images stay together: {expected}"));
    let convolution = vec![node("Conv", &["x", "w"], &["y"], vec![])];
    let convolution = of_nodes(convolution, vec![floats("w", &[128, 4, 3, 3], &[0.5; 4608])]);
    let faster = plan("convolution", &convolution, &[4, 6, 6], Batch::Faster).unwrap();
    let apart = faster.apart.unwrap();
    assert_eq!((apart.least, apart.most, apart.inputs), (4, 4, vec![true]));
    assert_eq!(faster.program.steps[0].workload.output_shape(), [1, 128, 4, 4]);
    // Who asks for it gets it, or an error.
    assert!(plan("asked", &product(10), &[4, 6, 6], Batch::Apart).unwrap().apart.is_some());
    let softmax = of_nodes(vec![node("Softmax", &["x"], &["y"], vec![int("axis", 0)])], vec![]);
    let error = plan("asked-softmax", &softmax, &[4, 6, 6], Batch::Apart).unwrap_err();
    assert!(
        error.starts_with("its images cannot run one by one: ")
            && error.ends_with("; leave `images` out: they run together"),
        "{error}"
    );
}

#[test]
fn a_constant_that_is_repeated_for_each_image_is_no_obstacle() {
    // The class token of a vision transformer: it is expanded to the images, and joined to their patches.
    let nodes = vec![
        node("Reshape", &["x", "rows"], &["r"], vec![]),
        node("Shape", &["x"], &["n"], vec![int("end", 1)]),
        node("Concat", &["n", "rest"], &["s"], vec![int("axis", 0)]),
        node("Expand", &["token", "s"], &["t"], vec![]),
        node("Concat", &["t", "r"], &["j"], vec![int("axis", 1)]),
        node("LayerNormalization", &["j", "scale"], &["y"], vec![float("epsilon", 1e-5)]),
    ];
    let constants = vec![
        integers("rows", &[3], &[0, 4, 36]),
        integers("rest", &[2], &[1, 36]),
        floats("token", &[1, 1, 36], &(0..36).map(|i| i as f32 / 9.0).collect::<Vec<_>>()),
        floats("scale", &[36], &[1.5; 36]),
    ];
    let model = of_nodes(nodes, constants);
    let network = load(&model, "token", (1, 4), &[4, 6, 6]).unwrap_or_else(|all| panic!("{}", all[0]));
    check(&model, &network, &[4, 6, 6], 7);
    let wanted = Wanted { images: Batch::Apart, ..Wanted::default() };
    let apart = load_as(&model, "token-apart", (1, 4), &[4, 6, 6], wanted).unwrap();
    assert_eq!(apart.plans[0].apart.as_ref().map(|apart| (apart.least, apart.most)), Some((1, 4)));
}

/// What a spec says of the shapes of a sum of two images, by faults.
fn faults(inputs: &str) -> Vec<String> {
    let name = format!("kernel-gen-shapes-{}-{:x}", std::process::id(), kernel_gen::stable::fnv1a(inputs.as_bytes()));
    let file = std::env::temp_dir().join(format!("{name}.onnx"));
    let ports = |names: &[&str]| names.iter().map(|name| info(name, &[-1, 4, -1, 6])).collect();
    let sum = model(GraphProto {
        node: vec![node("Add", &["x", "z"], &["y"], vec![])],
        input: ports(&["x", "z"]),
        output: ports(&["y"]),
        ..Default::default()
    });
    std::fs::write(&file, sum.write_buf().unwrap()).unwrap();
    let spec =
        format!("schema = 1\n[[network]]\nname = \"sum\"\nmodel = \"{}\"\ninputs = {{ {inputs} }}\n", file.display());
    let found = Spec::parse(&spec, "kernels.toml").err().unwrap_or_default();
    std::fs::remove_file(&file).unwrap();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn shapes_of_a_spec_that_do_not_go_together_are_refused() {
    let two = "x = [[1, 4, 6, 6], [\"2..8\", 4, 6, 6]], z = [[1, 4, 6, 6], [\"2..8\", 4, 6, 6]]";
    assert_eq!(faults(two), [""; 0]);
    assert_eq!(faults("x = [[1, 4, 6, 6], [1, 4, 8, 6]], z = [1, 4, 1, 6]"), [""; 0]);
    let wrong = [
        ("x = [\"0..4\", 4, 6, 6], z = [1, 4, 6, 6]", "`x` has the range \"0..4\"; write at least 1"),
        ("x = [\"1..4\", 4, 6, 6], z = [\"1..5\", 4, 6, 6]", "`z` has the range \"1..5\" and `x` \"1..4\"; a run has"),
        (
            "x = [1, \"1..4\", 6, 6], z = [1, 4, 6, 6]",
            "`x` cannot be an array with an integer and a string; write a shape, inputs = { \"x\" = [1, 3",
        ),
        (
            "x = [[1, 4, 6, 6], 3], z = [1, 4, 6, 6]",
            "`x` cannot be an array with an array and an integer; write a shape",
        ),
        (
            "x = [[1, 4, 6, 6], [1, 4, 7, 6], [1, 4, 8, 6]], z = [[1, 4, 6, 6], [1, 4, 7, 6]]",
            "`z` has 2 shapes, and `x` has 3; give each input one shape for each call, or one for all calls",
        ),
        (
            "x = [[1, 4, 6, 6], [\"1..4\", 4, 6, 6]], z = [1, 4, 6, 6]",
            "the shapes 1 and 2 fit the same inputs; leave one out",
        ),
        (
            "x = [[\"2..8\", 4, 6, 6], [1, 4, 6, 6]], z = [[1, 4, 6, 6], [\"2..8\", 4, 6, 6]]",
            "of the shapes 1 and 2 different inputs have a range, and nothing else differs; make a [[network]] of each",
        ),
        ("x = [[1, 4, 6, 6], [2, 4, 6, 6]], z = [3, 4, 6, 6]", "node `make_y` (Add): "),
        ("x = [\"1..4\", 4, 6, 6], z = [4, 4, 6, 6]", "node `make_y` (Add): with 2 images "),
    ];
    for (inputs, said) in wrong {
        let faults = faults(inputs);
        assert!(faults.len() == 1 && faults[0].starts_with("kernels.toml:"), "{inputs}: {faults:?}");
        assert!(faults[0].contains(said), "{inputs}: {faults:?}");
    }
    let many: Vec<String> = (1..=65).map(|n| format!("[1, 4, {n}, 6]")).collect();
    let faults = faults(&format!("x = [{}], z = [1, 4, 1, 6]", many.join(", ")));
    assert!(faults[0].contains("`x` has 65 shapes; give it at most 64"), "{faults:?}");
}
