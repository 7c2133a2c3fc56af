//! Branches and loops: nodes compute within them what they compute outside.

use crate::network_units::load_as;
use crate::networks::{evaluate, inputs, problems, read};
use crate::random_network::{floats, int, integers, ints, model, node, random, tensor, value};
use crate::sweep;
use kernel_gen::diagnostic::{Array, Element};
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network, Wanted};
use kernel_gen::stable::Rng;
use kernel_gen::workload::ConvLayout;
use rten_onnx::onnx::{AttributeProto, AttributeType, DataType, GraphProto, ModelProto, NodeProto, TensorProto};
use std::collections::BTreeSet;
use std::ops::Range;

/// A graph as an attribute.
pub(crate) fn graph(name: &str, graph: GraphProto) -> AttributeProto {
    let r#type = Some(AttributeType::GRAPH);
    AttributeProto { name: Some(name.into()), g: Some(graph), r#type, ..Default::default() }
}

/// A graph of nodes. Its inputs and results are declared as scalars of `f32`, whatever they are: nothing reads these types.
pub(crate) fn body(given: &[&str], results: &[&str], nodes: Vec<NodeProto>) -> GraphProto {
    let infos = |names: &[&str]| names.iter().map(|name| value(name, &[], DataType::FLOAT)).collect();
    GraphProto { input: infos(given), output: infos(results), node: nodes, ..Default::default() }
}

/// A truth value.
pub(crate) fn truth(name: &str, is_true: bool) -> TensorProto {
    tensor(name, &[], DataType::BOOL, vec![is_true.into()])
}

/// Where nodes are put.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Around {
    /// The branch that a constant chooses; the other one cannot be compiled.
    Branch,
    /// The branch that data chooses; the other one computes the same numbers with another sign.
    Choice,
    /// Three rounds of a loop, of which the second gives the results.
    Rounds,
    /// A scan of two elements, which gives them backwards.
    Scan,
}

/// The model with the nodes of a range around which there is something.
fn within(mut model: ModelProto, range: Range<usize>, around: Around) -> ModelProto {
    let whole = model.graph.as_mut().unwrap();
    let behind = whole.node.split_off(range.end);
    let mut inner = whole.node.split_off(range.start);
    let given: BTreeSet<String> = inner.iter().flat_map(|node| node.output.iter().cloned()).collect();
    let outputs = whole.output.iter().filter_map(|info| info.name.clone());
    let wanted: BTreeSet<String> = behind.iter().flat_map(|node| node.input.iter().cloned()).chain(outputs).collect();
    let results: Vec<&String> = given.iter().filter(|name| !name.is_empty() && wanted.contains(*name)).collect();
    let renamed = |nodes: &mut [NodeProto], by: &str| {
        for name in nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output)) {
            if given.contains(name) && !name.is_empty() {
                *name = format!("{by}{name}");
            }
        }
    };
    let named = |by: &str| results.iter().map(|name| format!("{by}{name}")).collect::<Vec<String>>();
    fn refs(all: &[String]) -> Vec<&str> {
        all.iter().map(String::as_str).collect()
    }
    let mut other = inner.clone();
    renamed(&mut inner, "in_");
    let (inside, outside) = (named("in_"), named(""));
    let series = named("all_");
    match around {
        Around::Branch => {
            whole.initializer.push(truth("never", false));
            let unique = vec![node("Unique", &["x"], &["no"], vec![])];
            let branches = vec![
                graph("then_branch", body(&[], &vec!["no"; results.len()], unique)),
                graph("else_branch", body(&[], &refs(&inside), inner)),
            ];
            whole.node.push(node("If", &["never"], &refs(&outside), branches));
        }
        Around::Choice => {
            renamed(&mut other, "other_");
            let (from, to) = (named("other_"), named("minus_"));
            other.extend(from.iter().zip(&to).map(|(from, to)| node("Neg", &[from], &[to], vec![])));
            whole.initializer.push(floats("least", &[], &[-1e30]));
            whole.node.push(node("ReduceMax", &["x"], &["largest"], vec![int("keepdims", 0)]));
            whole.node.push(node("Greater", &["largest", "least"], &["always"], vec![]));
            // Either branch is the one that gives the results.
            let (yes, no) = (body(&[], &refs(&inside), inner), body(&[], &refs(&to), other));
            let (holds, [yes, no]) =
                if range.len().is_multiple_of(2) { ("always", [yes, no]) } else { ("never", [no, yes]) };
            whole.node.push(node("Not", &["always"], &["never"], vec![]));
            let branches = vec![graph("then_branch", yes), graph("else_branch", no)];
            whole.node.push(node("If", &[holds], &refs(&outside), branches));
        }
        Around::Rounds => {
            // It ends when its counter says so, as a loop with a condition does.
            whole.initializer.extend([
                integers("begin", &[], &[7]),
                integers("step", &[], &[1]),
                integers("end", &[], &[10]),
            ]);
            inner.push(node("Add", &["count", "step"], &["next"], vec![]));
            inner.push(node("Less", &["next", "end"], &["goes_on"], vec![]));
            let all = [vec!["goes_on", "next"], refs(&inside)].concat();
            let of_loop = body(&["round", "condition", "count"], &all, inner);
            let outputs = [vec!["last"], refs(&series)].concat();
            whole.node.push(node("Loop", &["", "", "begin"], &outputs, vec![graph("body", of_loop)]));
        }
        Around::Scan => {
            let of_scan = body(&["element"], &refs(&inside), inner);
            whole.initializer.push(integers("elements", &[3, 2], &[1, 2, 3, 4, 5, 6]));
            let attributes = vec![
                graph("body", of_scan),
                int("num_scan_inputs", 1),
                ints("scan_input_axes", &[1]),
                ints("scan_output_directions", &vec![1; results.len()]),
            ];
            whole.node.push(node("Scan", &["elements"], &refs(&series), attributes));
        }
    }
    if [Around::Rounds, Around::Scan].contains(&around) {
        whole.initializer.push(integers("second", &[], &[1]));
        whole.node.extend(series.iter().zip(&outside).map(|(s, name)| node("Gather", &[s, "second"], &[name], vec![])));
    }
    whole.node.extend(behind);
    model
}

/// The random model of a seed with something around some of its nodes: what it is, and around which.
pub(crate) fn random_with_graphs(seed: u64) -> (ModelProto, Around, Range<usize>) {
    let mut rng = Rng::new(seed);
    let plain = random(seed);
    let nodes = plain.graph.as_ref().unwrap().node.len() as i64;
    let start = rng.between(0, nodes - 1);
    let range = start as usize..rng.between(start + 1, nodes) as usize;
    let around = [Around::Branch, Around::Choice, Around::Rounds, Around::Scan][seed as usize % 4];
    (within(plain, range.clone(), around), around, range)
}

#[test]
fn nodes_compute_within_branches_and_loops_what_they_compute_outside() {
    let count = sweep::number("KERNEL_GEN_WORKLOADS", 120);
    let first = sweep::number("KERNEL_GEN_SEED", 0);
    for seed in first..first + count {
        let (wrapped, around, range) = random_with_graphs(seed);
        let before = read(&random(seed)).unwrap();
        let program = read(&wrapped).unwrap_or_else(|all| panic!("seed {seed}, {around:?} of {range:?}: {}", all[0]));
        let given = inputs(&before, seed);
        let expected = evaluate(&before, &given, None);
        assert_eq!(evaluate(&program, &given, None), expected, "seed {seed}, {around:?} of {range:?}: {program}");
        let network = Network::of("n", program, Form { dtype: DType::F32, layout: ConvLayout::Nchw });
        let planned = evaluate(&network.plans[0].program, &given, Some(&network));
        for (a, b) in expected.iter().zip(&planned) {
            let size = a.iter().fold(1.0f64, |m, v| m.max(v.abs()));
            let wrong = a.iter().zip(b).position(|(a, b)| b.is_nan() || (a - b).abs() > 1e-5 * size);
            assert_eq!(wrong, None, "seed {seed}, {around:?}: {}", network.plans[0].program);
        }
    }
}

#[test]
fn a_branch_for_some_numbers_of_images_is_refused_in_a_range() {
    let of = |op: &str, limit: i64| {
        let one = |op: &str| body(&[], &["b"], vec![node(op, &["x"], &["b"], vec![])]);
        let nodes = vec![
            node("Shape", &["x"], &["shape"], vec![]),
            node("Gather", &["shape", "zero"], &["number"], vec![]),
            node(op, &["number", "limit"], &["c"], vec![]),
            node("If", &["c"], &["y"], vec![graph("then_branch", one("Sin")), graph("else_branch", one("Cos"))]),
        ];
        let batch = [-1, 4];
        model(GraphProto {
            node: nodes,
            initializer: vec![integers("zero", &[], &[0]), integers("limit", &[], &[limit])],
            input: vec![value("x", &batch, DataType::FLOAT)],
            output: vec![value("y", &batch, DataType::FLOAT)],
            ..Default::default()
        })
    };
    let load = |model: &ModelProto, name: &str| load_as(model, name, (1, 8), &[4], Wanted::default());
    for (op, limit) in [("Equal", 4), ("Less", 2), ("Less", 8)] {
        let refused = load(&of(op, limit), &format!("branch-{op}-{limit}")).expect_err("it depends on the number");
        let said = refused[0].to_string();
        assert!(
            said.ends_with("write a list of shapes in the place of the range: a network is made for each"),
            "{said}"
        );
    }
    assert!(load(&of("Less", 9), "branch-never").is_ok());
    // Which tensor of a sequence is taken is a decision as well.
    let mut of_sequence = of("Equal", 4);
    let nodes = &mut of_sequence.graph.as_mut().unwrap().node;
    nodes.truncate(3);
    nodes.extend([
        node("Sin", &["x"], &["sin"], vec![]),
        node("Cos", &["x"], &["cos"], vec![]),
        node("SequenceConstruct", &["sin", "cos"], &["both"], vec![]),
        node("Cast", &["c"], &["place"], vec![int("to", 7)]),
        node("SequenceAt", &["both", "place"], &["y"], vec![]),
    ]);
    let refused = load(&of_sequence, "sequence").expect_err("it depends on the number");
    assert!(refused[0].to_string().contains("are others for 4 images than for 8"), "{}", refused[0]);
}

/// A model of `x`, 1x4x6x6, with one node behind it that has these graphs.
fn of_one(
    op: &str,
    given: &[&str],
    outputs: &[&str],
    attributes: Vec<AttributeProto>,
    constants: Vec<TensorProto>,
) -> ModelProto {
    model(GraphProto {
        node: vec![node(op, given, outputs, attributes)],
        initializer: constants,
        input: vec![value("x", &[1, 4, 6, 6], DataType::FLOAT), value("flag", &[], DataType::BOOL)],
        output: vec![value("y", &[1], DataType::FLOAT)],
        ..Default::default()
    })
}

#[test]
fn a_loop_carries_values_from_round_to_round() {
    let nodes = vec![
        node("Cast", &["round"], &["number"], vec![int("to", 1)]),
        node("Add", &["state", "number"], &["sum"], vec![]),
        node("Mul", &["sum", "sum"], &["next"], vec![]),
        node("Identity", &["condition"], &["goes_on"], vec![]),
    ];
    let of_loop = body(&["round", "condition", "state"], &["goes_on", "next"], nodes);
    let three = vec![integers("three", &[], &[3]), truth("yes", true)];
    let program = read(&of_one("Loop", &["three", "yes", "x"], &["y"], vec![graph("body", of_loop)], three)).unwrap();
    let x: Vec<f64> = (0..144).map(|i| f64::from(i) / 64.0 - 1.0).collect();
    let expected: Vec<f64> = x.iter().map(|x| ((x * x + 1.0).powi(2) + 2.0).powi(2)).collect();
    let given = program.inputs.iter().map(|(name, _)| if name == "x" { x.clone() } else { vec![0.0] });
    let found = evaluate(&program, &given.collect::<Vec<_>>(), None);
    let wrong = found[0].iter().zip(&expected).position(|(a, b)| (a - b).abs() > 1e-5 * b.abs());
    assert_eq!(wrong, None, "{program}");
    assert!(program.steps.iter().any(|step| step.nodes[0] == "make_y:2/make_next"), "{program}");
}

#[test]
fn a_scan_goes_both_ways_along_any_axis() {
    // The columns of x from the last to the first, and the rows of z; the results side by side, the last on the left.
    let nodes = vec![
        node("Mul", &["state", "half"], &["less"], vec![]),
        node("Add", &["less", "column"], &["next"], vec![]),
        node("Mul", &["row", "ten"], &["more"], vec![]),
        node("Add", &["next", "more"], &["both"], vec![]),
    ];
    let mut of_scan = body(&["state", "column", "row"], &["next", "both"], nodes);
    of_scan.initializer = vec![floats("half", &[], &[0.5]), floats("ten", &[], &[10.0])];
    for (backwards, axis) in [(1, 1), (0, -1), (1, -2), (0, 0)] {
        let attributes = vec![
            graph("body", of_scan.clone()),
            int("num_scan_inputs", 2),
            ints("scan_input_axes", &[-1, 0]),
            ints("scan_input_directions", &[1, 0]),
            ints("scan_output_axes", &[axis]),
            ints("scan_output_directions", &[backwards]),
        ];
        let program = read(&model(GraphProto {
            node: vec![node("Scan", &["first", "x", "z"], &["last", "y"], attributes)],
            initializer: vec![floats("first", &[2], &[3.0, -5.0])],
            input: vec![value("x", &[2, 3], DataType::FLOAT), value("z", &[3, 2], DataType::FLOAT)],
            output: vec![value("last", &[2], DataType::FLOAT), value("y", &[2, 3], DataType::FLOAT)],
            ..Default::default()
        }))
        .unwrap_or_else(|all| panic!("{}", all[0]));
        let x: Vec<f64> = [1, 2, 3, 4, 5, 6].map(f64::from).to_vec();
        let z: Vec<f64> = [7, 8, 9, 10, 11, 12].map(f64::from).to_vec();
        let (mut state, mut rounds) = ([3.0, -5.0], vec![]);
        for round in 0..3 {
            state = [0, 1].map(|i| state[i] * 0.5 + x[i * 3 + 2 - round]);
            rounds.push([0, 1].map(|i| state[i] + 10.0 * z[round * 2 + i]));
        }
        if backwards == 1 {
            rounds.reverse();
        }
        let across = [1, -1].contains(&axis);
        let expected: Vec<f64> = match across {
            true => (0..2).flat_map(|i| rounds.iter().map(move |round| round[i])).collect(),
            false => rounds.concat(),
        };
        assert_eq!(evaluate(&program, &[x, z], None), [state.to_vec(), expected], "{program}");
        let shape = if across { [2, 3] } else { [3, 2] };
        assert_eq!(program.values[program.outputs[1].1].shape, shape);
    }
}

#[test]
fn truth_values_that_a_branch_chooses_or_a_sequence_joins_are_masks() {
    let compare = |op: &str, name: &str| node(op, &["a", "b"], &[name], vec![]);
    let branch = |op: &str| body(&[], &["c"], vec![compare(op, "c")]);
    let chosen = vec![
        node("ReduceMax", &["flag"], &["largest"], vec![int("keepdims", 0)]),
        node("Greater", &["largest", "zero"], &["is_first"], vec![]),
        node(
            "If",
            &["is_first"],
            &["m"],
            vec![graph("then_branch", branch("Less")), graph("else_branch", branch("Greater"))],
        ),
    ];
    let joined = vec![
        compare("Less", "both"),
        node("SplitToSequence", &["both"], &["rows"], vec![int("axis", 0)]),
        node("ConcatFromSequence", &["rows"], &["m"], vec![int("axis", 0)]),
    ];
    let of = |nodes: Vec<NodeProto>| {
        let attention = node("Attention", &["q", "k", "v", "m"], &["y"], vec![]);
        let info = |name: &str, shape: &[i64]| value(name, shape, DataType::FLOAT);
        let of_heads = ["q", "k", "v"].map(|name| info(name, &[1, 2, 3, 4]));
        let mut model = model(GraphProto {
            node: [nodes, vec![attention]].concat(),
            initializer: vec![floats("zero", &[], &[0.0])],
            input: [&of_heads[..], &[info("a", &[3, 3]), info("b", &[3, 3]), info("flag", &[1])]].concat(),
            output: vec![info("y", &[1, 2, 3, 4])],
            ..Default::default()
        });
        model.opset_import[0].version = Some(23);
        read(&model).unwrap_or_else(|all| panic!("{}", all[0]))
    };
    let plain = ["Less", "Greater"].map(|op| of(vec![compare(op, "m")]));
    for seed in 0..4 {
        let mut given = inputs(&plain[0], seed);
        // Each key is seen by some query.
        given[3][..9].copy_from_slice(&[-1.0, 1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, -1.0]);
        given[4][..9].fill(0.0);
        given[5] = vec![f64::from(u8::from(seed % 2 == 0)) - 0.5];
        let expected = evaluate(&plain[seed as usize % 2], &given, None);
        assert_eq!(evaluate(&of(chosen.clone()), &given, None), expected, "seed {seed}");
        assert_eq!(evaluate(&of(joined.clone()), &given, None), evaluate(&plain[0], &given, None), "seed {seed}");
    }
}

#[test]
fn constants_of_the_spec_take_the_place_of_inputs() {
    let of = |kind: DataType, shape: &[i64]| {
        model(GraphProto {
            node: vec![
                node("Cast", &["gain"], &["number"], vec![int("to", 1)]),
                node("Mul", &["x", "number"], &["y"], vec![]),
            ],
            input: vec![value("x", &[-1, 2], DataType::FLOAT), value("gain", shape, kind)],
            output: vec![value("y", &[-1, 2], DataType::FLOAT)],
            ..Default::default()
        })
    };
    let array = |shape: &[i64], elements: &[Element]| Array { shape: shape.to_vec(), elements: elements.to_vec() };
    let load = |kind: DataType, shape: &[i64], name: &str, constant: Array| {
        let wanted = Wanted { constants: [(name.to_string(), constant)].into(), ..Wanted::default() };
        let file = format!("constants-{kind:?}-{}-{name}", shape.len());
        load_as(&of(kind, shape), &file, (1, 1), &[2], wanted)
    };
    let one = |n: i64| array(&[], &[Element::Integer(n)]);
    for (kind, shape, constant, factors) in [
        (DataType::INT16, &[][..], one(-32768), [-32768.0; 2]),
        (DataType::UINT8, &[2], one(255), [255.0; 2]),
        (DataType::BOOL, &[2], array(&[2], &[Element::Integer(1), Element::Integer(0)]), [1.0, 0.0]),
        (DataType::FLOAT, &[2], array(&[2], &[Element::Float(0.5), Element::Integer(3)]), [0.5, 3.0]),
        (DataType::FLOAT16, &[], array(&[], &[Element::Float(1.0 + 1.0 / 4096.0)]), [1.0; 2]),
    ] {
        let network = load(kind, shape, "gain", constant).unwrap_or_else(|all| panic!("{kind:?}: {}", all[0]));
        let program = &network.plans[0].program;
        assert_eq!(program.inputs.len(), 1);
        assert_eq!(evaluate(program, &[vec![3.0, 7.0]], None), [[3.0 * factors[0], 7.0 * factors[1]]], "{kind:?}");
    }
    let halves = || array(&[2], &[Element::Float(0.5); 2]);
    for (kind, shape, name, constant, said) in [
        (DataType::INT16, &[][..], "gain", one(32768), "write integers from -32768 to 32767"),
        (DataType::UINT32, &[], "gain", one(-1), "write integers from 0 to 4294967295"),
        (DataType::INT64, &[2], "gain", halves(), "its elements are integers, and its constant holds 0.5"),
        (DataType::FLOAT, &[3], "gain", halves(), "its shape is [3], and its constant has [2]"),
        (DataType::BOOL, &[], "gain", one(2), "write true or false"),
        (DataType::FLOAT, &[2], "loss", halves(), "its inputs are `x`, `gain`"),
    ] {
        let problems = load(kind, shape, name, constant).expect_err(said);
        assert!(problems[0].to_string().contains(said), "{}", problems[0]);
    }
}

#[test]
fn sequences_hold_tensors_in_order() {
    // Parts of three channels and one, their negatives, one more in front, and all but the second side by side.
    let minus = body(&["part"], &["m"], vec![node("Neg", &["part"], &["m"], vec![])]);
    let nodes = vec![
        node("SplitToSequence", &["x", "three"], &["parts"], vec![int("axis", 1)]),
        node("SequenceMap", &["parts"], &["minus"], vec![graph("body", minus)]),
        // In front of the first of two: counted from behind, places are those of what is there.
        node("SequenceInsert", &["minus", "x", "first"], &["all"], vec![]),
        node("Identity", &["all"], &["same"], vec![]),
        node("SequenceErase", &["same", "one"], &["some"], vec![]),
        node("ConcatFromSequence", &["some"], &["y"], vec![int("axis", 1)]),
        node("SequenceLength", &["some"], &["n"], vec![]),
        node("Sub", &["n", "one"], &["at"], vec![]),
        node("SequenceAt", &["some", "at"], &["z"], vec![]),
    ];
    let constants = vec![integers("three", &[], &[3]), integers("first", &[], &[-2]), integers("one", &[], &[1])];
    let of = |nodes: Vec<NodeProto>, constants: Vec<TensorProto>, results: &[&str]| {
        let infos = |names: &[&str]| names.iter().map(|name| value(name, &[1], DataType::FLOAT)).collect();
        let input = vec![value("x", &[1, 4, 6, 6], DataType::FLOAT)];
        read(&model(GraphProto {
            node: nodes,
            initializer: constants,
            input,
            output: infos(results),
            ..Default::default()
        }))
        .unwrap_or_else(|all| panic!("{}", all[0]))
    };
    let x: Vec<f64> = (0..144).map(|i| f64::from(i) - 70.5).collect();
    let last: Vec<f64> = x[108..].iter().map(|v| -v).collect();
    let program = of(nodes, constants, &["y", "z"]);
    assert_eq!(evaluate(&program, std::slice::from_ref(&x), None), [[&x[..], &last].concat(), last]);
    // A loop that makes a sequence: each row of x doubled once more than the one before, as a new dimension.
    let nodes = vec![
        node("Gather", &["x", "round"], &["row"], vec![int("axis", 2)]),
        node("Cast", &["round"], &["factor"], vec![int("to", 1)]),
        node("Mul", &["row", "factor"], &["scaled"], vec![]),
        node("SequenceInsert", &["so_far", "scaled"], &["longer"], vec![]),
    ];
    let of_loop = body(&["round", "condition", "so_far"], &["condition", "longer"], nodes);
    let nodes = vec![
        node("SequenceEmpty", &[], &["none"], vec![]),
        node("Loop", &["three", "", "none"], &["rows"], vec![graph("body", of_loop)]),
        node("ConcatFromSequence", &["rows"], &["y"], vec![int("axis", -1), int("new_axis", 1)]),
    ];
    let program = of(nodes, vec![integers("three", &[], &[3])], &["y"]);
    let at = |c: usize, w: usize, round: usize| x[c * 36 + round * 6 + w] * round as f64;
    let expected: Vec<f64> =
        (0..4).flat_map(|c| (0..6).flat_map(move |w| (0..3).map(move |round| at(c, w, round)))).collect();
    assert_eq!(evaluate(&program, std::slice::from_ref(&x), None), [expected]);
    assert_eq!(program.values[program.outputs[0].1].shape, [1, 4, 6, 3]);
}

#[test]
fn what_is_wrong_with_branches_and_loops_is_said_in_one_line() {
    let same = |given: &[&str], results: &[&str]| body(given, results, vec![node("Relu", &["x"], &["r"], vec![])]);
    let branches = |yes: GraphProto, no: GraphProto| vec![graph("then_branch", yes), graph("else_branch", no)];
    let of_loop =
        |results: &[&str], nodes: Vec<NodeProto>| vec![graph("body", body(&["round", "condition"], results, nodes))];
    let many = || vec![integers("many", &[], &[1000]), truth("yes", true)];
    let summed =
        || vec![node("ReduceSum", &["x"], &["s"], vec![int("keepdims", 0)]), node("Less", &["s", "s"], &["c"], vec![])];
    let inner = of_loop(&["condition", "r"], vec![node("Relu", &["x"], &["r"], vec![])]);
    let nested = of_loop(&["condition", "a"], vec![node("Loop", &["many", "yes"], &["a"], inner)]);
    let all = [
        (
            of_one("If", &["flag"], &["y"], vec![graph("then_branch", same(&[], &["r"]))], vec![]),
            "it has no graph `else_branch`",
        ),
        (
            of_one("If", &["flag"], &["y"], branches(same(&[], &["r"]), body(&[], &["flag"], vec![])), vec![]),
            "its branches give [[1, 4, 6, 6], []]; give the input that decides it a value, constants = ",
        ),
        (
            of_one("If", &["flag"], &["y"], branches(same(&[], &["q"]), same(&[], &["r"])), vec![]),
            "nothing before it gives `q`",
        ),
        (
            of_one("Loop", &["", "flag"], &["y"], of_loop(&["condition", "x"], vec![]), vec![]),
            "whether it begins is computed from the data of an input; give the input",
        ),
        (
            of_one("Loop", &["many", "yes"], &["y"], of_loop(&["c", "x"], summed()), many()),
            "whether it goes on is computed from the data of an input; give the input",
        ),
        (
            of_one("Loop", &["", "yes"], &["y"], of_loop(&["condition", "x"], vec![]), many()),
            "it goes round more than 1024 times",
        ),
        (
            of_one("Loop", &["many", "yes"], &["y"], of_loop(&[], vec![]), many()),
            "its graph takes 2 values and gives 0",
        ),
        (of_one("Loop", &["many", "yes"], &["y"], nested, many()), "loops and branches are more than 16384 nodes"),
        (
            of_one(
                "Loop",
                &["none", "yes"],
                &["y"],
                of_loop(&["condition", "x"], vec![]),
                vec![integers("none", &[], &[0]), truth("yes", true)],
            ),
            "it goes round no times",
        ),
        (of_one("Scan", &["x"], &["y"], vec![graph("body", same(&["e"], &["r"]))], vec![]), "`num_scan_inputs` is 0"),
        (
            of_one(
                "Scan",
                &["x"],
                &["y"],
                vec![graph("body", same(&["e"], &["r"])), int("num_scan_inputs", 1), ints("scan_input_axes", &[4])],
                vec![],
            ),
            "axis",
        ),
        (
            of_one("SequenceMap", &["x"], &["y"], vec![graph("body", same(&["e"], &["r"]))], vec![]),
            "its first operand is no sequence of tensors",
        ),
    ];
    for (model, expected) in all {
        let said = problems(&model);
        assert_eq!(said.len(), 1, "{expected}: {said:#?}");
        assert!(said[0].contains(expected) && said[0].contains("; "), "{expected}: {}", said[0]);
    }
    // Errors within a branch come after the one that says why both branches are compiled.
    let unique = body(&[], &["u"], vec![node("Unique", &["x"], &["u"], vec![])]);
    let said = problems(&of_one("If", &["flag"], &["y"], branches(same(&[], &["r"]), unique), vec![]));
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(
        said[0].contains("so both branches are computed")
            && said[1].starts_with("node `make_y:else/make_u` (Unique): ")
    );
}
