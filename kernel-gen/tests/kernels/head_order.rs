//! Attention in networks: which of the orders of its tensors saves permutations.

use crate::networks::evaluate;
use crate::random_network::{float, floats, info, int, integers, ints, model, node};
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network, Program, parse};
use kernel_gen::stable::Rng;
use kernel_gen::workload::ConvLayout;
use rten_onnx::onnx::{AttributeProto, GraphProto, NodeProto, TensorProto};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn heads_are_read_and_written_where_products_have_them() {
    let turn = || vec![ints("perm", &[0, 2, 1, 3])];
    // Two images of six rows of 24 numbers; three heads of eight.
    let (apart, scale) = (list("apart", &[2, 6, 3, 8]), floats("s", &[], &[1.0 / 8f32.sqrt()]));
    let mut constants = vec![apart, scale, list("together", &[2, 6, 24]), list("whole", &[2, 6, 3, 3, 8])];
    constants.extend((0..4).map(|i| integers(&format!("c{i}"), &[1], &[24 * i])));
    constants.extend((0..3).map(|i| integers(&format!("i{i}"), &[], &[i])));
    constants.extend([integers("two", &[1], &[2]), floats("w", &[24, 72], &[0.1; 24 * 72])]);
    constants.extend(["wq", "wk", "wv"].map(|name| floats(name, &[24, 24], &[0.1; 24 * 24])));
    let behind = |keys_in: &str, keys_order: &[i64]| {
        vec![
            node("Transpose", &[keys_in], &["kt"], vec![ints("perm", keys_order)]),
            node("MatMul", &["q", "kt"], &["a"], vec![]),
            node("Mul", &["a", "s"], &["b"], vec![]),
            node("Softmax", &["b"], &["p"], vec![int("axis", -1)]),
            node("MatMul", &["p", "v"], &["o"], vec![]),
            node("Transpose", &["o"], &["t"], turn()),
            node("Reshape", &["t", "together"], &["y"], vec![]),
        ]
    };
    let turned = |from: &str, to: &str| {
        let rows = format!("{to}_rows");
        let reshape = node("Reshape", &[from, "apart"], &[&rows], vec![]);
        vec![reshape, node("Transpose", &[&rows], &[to], turn())]
    };
    let keys_of = |nodes: Vec<Vec<NodeProto>>, constants: &[TensorProto]| {
        launches(parsed(nodes.concat(), constants.to_vec(), &[("x", &[2, 6, 24])]).unwrap())
    };
    let product = |weight: &str, to: &str| vec![node("MatMul", &["x", weight], &[to], vec![])];
    let own = keys_of(
        vec![
            [product("wq", "a_q"), turned("a_q", "q")].concat(),
            [product("wk", "a_k"), vec![node("Reshape", &["a_k", "apart"], &["k_rows"], vec![])]].concat(),
            [product("wv", "a_v"), turned("a_v", "v")].concat(),
            behind("k_rows", &[0, 2, 3, 1]),
        ],
        &constants,
    );
    assert_eq!(own[1..], ["attention-f32-b2h3m6n6d8v8-g3-full.packed"], "{own:?}");
    let cut = |i: usize, to: &str| {
        let (start, end) = (format!("c{i}"), format!("c{}", i + 1));
        vec![node("Slice", &["qkv", &start, &end, "two"], &[to], vec![])]
    };
    let columns = keys_of(
        vec![
            product("w", "qkv"),
            [cut(0, "a_q"), turned("a_q", "q"), cut(1, "a_k"), turned("a_k", "k")].concat(),
            [cut(2, "a_v"), turned("a_v", "v")].concat(),
            behind("k", &[0, 1, 3, 2]),
        ],
        &constants,
    );
    assert_eq!(columns[1..], ["attention-f32-b2h3m6n6d8v8-g3-full.packed"], "{columns:?}");
    let gather = |i: &str, to: &str| node("Gather", &["all", i], &[to], vec![int("axis", 0)]);
    let whole = vec![
        node("Reshape", &["qkv", "whole"], &["five"], vec![]),
        node("Transpose", &["five"], &["all"], vec![ints("perm", &[2, 0, 3, 1, 4])]),
        gather("i0", "q"),
        gather("i1", "k"),
        gather("i2", "v"),
    ];
    let whole = keys_of(vec![product("w", "qkv"), whole, behind("k", &[0, 1, 3, 2])], &constants);
    assert_eq!(whole, columns);
}

/// A model with one `Attention` node whose operands are inputs, but for the mask.
fn of_node(shapes: [&[i64]; 3], mask: Option<TensorProto>, attributes: Vec<AttributeProto>) -> Result<Program, String> {
    let names = ["q", "k", "v"];
    let operands = [&names[..], if mask.is_some() { &["mask"] } else { &[] }].concat();
    program(vec![node("Attention", &operands, &["y"], attributes)], mask.into_iter().collect(), shapes)
}

/// The steps of a model with inputs `q`, `k` and `v`, before any pass.
fn program(node: Vec<NodeProto>, initializer: Vec<TensorProto>, shapes: [&[i64]; 3]) -> Result<Program, String> {
    let [q, k, v] = shapes;
    parsed(node, initializer, &[("q", q), ("k", k), ("v", v)])
}

/// The same of a model with these inputs.
fn parsed(node: Vec<NodeProto>, initializer: Vec<TensorProto>, inputs: &[(&str, &[i64])]) -> Result<Program, String> {
    let input = inputs.iter().map(|(name, shape)| info(name, shape)).collect();
    let output = vec![info("y", &[1])];
    let bytes = model(GraphProto { node, initializer, input, output, ..Default::default() }).write_buf().unwrap();
    parse(&bytes, Path::new("/nowhere"), &BTreeMap::new()).map_err(|problems| problems[0].cause.clone())
}

/// A network of steps, behind all passes.
fn network(program: Program) -> Network {
    Network::of("n", program, Form { dtype: DType::F32, layout: ConvLayout::Nchw })
}

/// The keys of what it launches.
fn launches(program: Program) -> Vec<String> {
    keys(&network(program).plans[0].program)
}

/// A constant list of integers.
fn list(name: &str, numbers: &[i64]) -> TensorProto {
    integers(name, &[numbers.len() as i64], numbers)
}

fn keys(program: &Program) -> Vec<String> {
    program.steps.iter().map(|step| step.workload.key()).collect()
}

#[test]
fn attention_as_one_node() {
    let heads = |q, kv| vec![int("q_num_heads", q), int("kv_num_heads", kv)];
    let (four, three): ([&[i64]; 3], [&[i64]; 3]) =
        ([&[2, 4, 5, 8], &[2, 2, 7, 8], &[2, 2, 7, 6]], [&[2, 5, 32], &[2, 7, 16], &[2, 7, 12]]);
    let plain = "attention-f32-b2h4m5n7d8v6-g2-full";
    let of = |shapes, mask, attributes| keys(&of_node(shapes, mask, attributes).unwrap());
    assert_eq!(of(four, None, vec![]), [plain]);
    assert_eq!(of(three, None, heads(4, 2)), [format!("{plain}.rows")]);
    let causal = [heads(4, 2), vec![int("is_causal", 1)]].concat();
    assert_eq!(of(three, None, causal), ["attention-f32-b2h4m5n7d8v6-g2-causal.rows"]);
    // A mask in the shapes that the operator has, or repeated.
    let mask = |shape: &[i64]| Some(floats("mask", shape, &vec![0.5; shape.iter().product::<i64>() as usize]));
    for (shape, word) in [
        (&[5, 7][..], ".mask"),
        (&[7], ".mask"),
        (&[4, 5, 7], ".headmasks"),
        (&[1, 4, 1, 7], ".headmasks"),
        (&[2, 4, 5, 7], ".masks"),
        (&[2, 1, 5, 7], ".masks"),
    ] {
        assert_eq!(of(four, mask(shape), vec![]), [format!("{plain}{word}")], "{shape:?}");
    }
    let refused = |shapes, mask, attributes, cause: &str| {
        let found: String = of_node(shapes, mask, attributes).unwrap_err();
        assert!(found.contains(cause), "{found}");
    };
    refused(four, mask(&[3, 7]), vec![], "a mask of [3, 7] does not say");
    refused(four, mask(&[5, 1]), vec![], "a mask of [5, 1] does not say which of 7 keys each of 5 queries sees");
    refused(four, mask(&[1, 1, 1, 5, 7]), vec![], "a mask of [1, 1, 1, 5, 7] does not say");
    let long: [&[i64]; 3] = [&[1, 1, 200_000, 1]; 3];
    refused(
        long,
        None,
        vec![int("left_window_size", 1)],
        "which of 200000 keys each of 200000 queries sees is written out",
    );
    refused(three, None, heads(5, 2), "q_num_heads");
    refused(three, None, vec![], "q_num_heads");
    refused([&[2, 5], &[2, 5], &[2, 5]], None, vec![], "operands of [[2, 5], [2, 5], [2, 5]]");
    refused([four[0], three[1], four[2]], None, vec![], "operands of [[2, 4, 5, 8], [2, 7, 16], [2, 2, 7, 6]]");
    refused([&[2, 3, 5, 8], &[2, 2, 7, 8], &[2, 2, 7, 6]], None, vec![], "2 heads of keys do not divide 3");
    // Truth values that are computed are numbers to the steps, and must not be added: they choose between zero and minus infinity.
    let computed = vec![
        node("Greater", &["q", "zero"], &["t"], vec![]),
        node("Transpose", &["t"], &["mask"], vec![ints("perm", &[0, 1, 3, 2])]),
        node("Attention", &["q", "k", "v", "mask"], &["y"], vec![]),
    ];
    let square: [&[i64]; 3] = [&[2, 4, 8, 8]; 3];
    let chosen = program(computed, vec![floats("zero", &[], &[0.0])], square).expect("a mask of truth values");
    let names: Vec<&str> = chosen.steps.iter().map(|step| step.workload.op_name()).collect();
    assert_eq!(names, ["greater", "permute", "where", "attention"]);
}

/// One node gives what the products, the sums and the softmax give that it stands for.
#[test]
fn attention_as_one_node_is_what_its_pieces_are() {
    let shapes: [&[i64]; 3] = [&[2, 3, 5, 8], &[2, 3, 7, 8], &[2, 3, 7, 6]];
    let mut rng = Rng::new(3);
    let mut numbers = |shape: &[i64]| -> Vec<f64> {
        (0..shape.iter().product::<i64>()).map(|_| rng.between(-64, 64) as f64 / 64.0).collect()
    };
    let inputs: Vec<Vec<f64>> = shapes.iter().map(|shape| numbers(shape)).collect();
    let least = f32::NEG_INFINITY;
    let truths: Vec<i64> = (0..35).map(|i| i64::from(i % 7 <= i / 7)).collect();
    let hidden: Vec<f32> = truths.iter().map(|seen| if *seen == 0 { least } else { 0.0 }).collect();
    let near: Vec<f32> = (0..35i64).map(|at| if (-1..=2).contains(&(at % 7 - at / 7)) { 0.0 } else { least }).collect();
    let biases: Vec<f32> = numbers(&[3, 5, 7]).into_iter().map(|v| v as f32).collect();
    let both: Vec<f32> = biases.iter().enumerate().map(|(i, bias)| bias + near[i % 35]).collect();
    let usual = 1.0 / 8f32.sqrt();
    let window = || vec![int("left_window_size", 1), int("right_window_size", 2)];
    let cases = [
        (None, vec![], usual, None),
        (None, vec![float("scale", 0.7)], 0.7, None),
        (Some(floats("mask", &[3, 5, 7], &biases)), vec![], usual, Some(floats("m", &[3, 5, 7], &biases))),
        (Some(integers("mask", &[5, 7], &truths)), vec![], usual, Some(floats("m", &[5, 7], &hidden))),
        (
            Some(integers("mask", &[7], &[0, -3, 2, 0, 1, 0, 0])),
            vec![],
            usual,
            Some(floats("m", &[7], &[0.0, -3.0, 2.0, 0.0, 1.0, 0.0, 0.0])),
        ),
        (None, vec![int("is_causal", 1)], usual, Some(floats("m", &[5, 7], &hidden))),
        (None, window(), usual, Some(floats("m", &[5, 7], &near))),
        (Some(floats("mask", &[3, 5, 7], &biases)), window(), usual, Some(floats("m", &[3, 5, 7], &both))),
    ];
    for (i, (mask, attributes, scale, added)) in cases.into_iter().enumerate() {
        let one = of_node(shapes, mask, attributes).unwrap();
        let pieces = vec![
            node("Transpose", &["k"], &["kt"], vec![ints("perm", &[0, 1, 3, 2])]),
            node("MatMul", &["q", "kt"], &["a"], vec![]),
            node("Mul", &["a", "s"], &["b"], vec![]),
            node("Add", &["b", "m"], &["c"], vec![]),
            node("Softmax", &["c"], &["p"], vec![int("axis", -1)]),
            node("MatMul", &["p", "v"], &["y"], vec![]),
        ];
        let added = added.unwrap_or(floats("m", &[1], &[0.0]));
        let pieces = program(pieces, vec![floats("s", &[], &[scale]), added], shapes).unwrap();
        let [found, expected] = [one, pieces].map(|program| evaluate(&program, &inputs, None).remove(0));
        let same = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(same && found.len() == 2 * 3 * 5 * 6, "case {i}: {found:?} and {expected:?}");
    }
}

#[test]
fn heads_stay_where_they_are_if_their_order_is_of_use_elsewhere() {
    let shape: [&[i64]; 3] = [&[2, 6, 3, 8]; 3];
    let turn = |from: &str, to: &str| node("Transpose", &[from], &[to], vec![ints("perm", &[0, 2, 1, 3])]);
    let attention = || {
        let before = [("q", "qt"), ("k", "kt"), ("v", "vt")].map(|(from, to)| turn(from, to));
        before.into_iter().chain([node("Attention", &["qt", "kt", "vt"], &["o"], vec![])]).collect::<Vec<_>>()
    };
    let orders = |behind: Vec<NodeProto>, constants: Vec<TensorProto>| {
        let all = launches(program([attention(), behind].concat(), constants, shape).unwrap());
        (all.iter().any(|key| key.ends_with("-full.rows")), all)
    };
    let (kept, all) = orders(vec![turn("o", "y")], vec![]);
    assert!(kept && all.len() == 1, "{all:?}");
    // The result is read twice.
    let twice =
        vec![turn("o", "t"), node("Reshape", &["o", "s"], &["r"], vec![]), node("Add", &["t", "r"], &["y"], vec![])];
    let (kept, all) = orders(twice, vec![list("s", &[2, 6, 3, 8])]);
    assert!(!kept, "{all:?}");
    // A part of it is permuted.
    let part = vec![node("Slice", &["o", "from", "to", "axis"], &["t"], vec![]), turn("t", "y")];
    let (kept, all) = orders(part, vec![list("from", &[0]), list("to", &[1]), list("axis", &[0])]);
    assert!(!kept, "{all:?}");
    // What it reads and what it writes are parts of one result.
    let shapes: [&[i64]; 3] = [&[1, 64, 24]; 3];
    let beside = vec![
        node("Relu", &["q"], &["x"], vec![]),
        node("Reshape", &["x", "apart"], &["rows"], vec![]),
        turn("rows", "t"),
        node("Attention", &["t", "t", "t"], &["o"], vec![]),
        turn("o", "back"),
        node("Reshape", &["back", "together"], &["z"], vec![]),
        node("Concat", &["x", "z"], &["y"], vec![int("axis", 1)]),
    ];
    let constants = vec![list("apart", &[1, 64, 3, 8]), list("together", &[1, 64, 24])];
    let program = network(program(beside, constants, shapes).unwrap()).plans.remove(0).program;
    for step in &program.steps {
        let written = program.root(step.output);
        assert!(step.operands.iter().all(|id| program.root(*id) != written), "{program}");
    }
}

/// A slice of columns whose rows are turned around is not the columns of a product.
#[test]
fn rows_that_are_reversed_are_not_read_as_they_lie() {
    let shapes: [&[i64]; 3] = [&[1, 6, 72], &[1], &[1]];
    let of = |reversed: bool| {
        let mut constants = vec![list("axes", &[2, 1]), list("steps", &[1, if reversed { -1 } else { 1 }])];
        let mut nodes = vec![];
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            let (from, i) = (if reversed { 5 } else { 0 }, i as i64);
            let to = if reversed { i64::MIN } else { 6 };
            constants.push(list(&format!("from_{name}"), &[24 * i, from]));
            constants.push(list(&format!("to_{name}"), &[24 * (i + 1), to]));
            let operands = ["q", &format!("from_{name}"), &format!("to_{name}"), "axes", "steps"];
            nodes.push(node("Slice", &operands, &[name], vec![]));
        }
        let heads = vec![int("q_num_heads", 3), int("kv_num_heads", 3)];
        nodes.push(node("Attention", &["a", "b", "c"], &["y"], heads));
        launches(program(nodes, constants, shapes).unwrap())
    };
    assert_eq!(of(false), ["attention-f32-b1h3m6n6d8v8-g3-full.packed"]);
    assert_eq!(of(true).last().map(String::as_str), Some("attention-f32-b1h3m6n6d8v8-g3-full.rows"));
}

/// Words before images, and the heads of all images counted as one's.
#[test]
fn permutations_around_products_of_rows_are_joined() {
    let swap = |from: &str, to: &str| node("Transpose", &[from], &[to], vec![ints("perm", &[1, 0, 2])]);
    let reshape = |from: &str, shape: &str, to: &str| node("Reshape", &[from, shape], &[to], vec![]);
    let cut = |i: &str, of: &str| {
        let (rows, heads) = (format!("{of}_rows"), format!("{of}_heads"));
        let gather = node("Gather", &["three", i], &[&rows], vec![int("axis", 0)]);
        vec![gather, reshape(&rows, "heads", &heads), swap(&heads, of)]
    };
    // Two images of six words with 24 numbers; three heads of eight.
    let nodes = [
        vec![
            swap("q", "words"),
            node("MatMul", &["words", "w"], &["p"], vec![]),
            node("Add", &["bias", "p"], &["pb"], vec![]),
        ],
        vec![reshape("pb", "apart", "four")],
        vec![node("Transpose", &["four"], &["three"], vec![ints("perm", &[2, 0, 1, 3])])],
        [cut("i0", "qh"), cut("i1", "kh"), cut("i2", "vh")].concat(),
        vec![
            node("Transpose", &["kh"], &["kt"], vec![ints("perm", &[0, 2, 1])]),
            node("MatMul", &["qh", "kt"], &["a"], vec![]),
            node("Mul", &["a", "s"], &["b"], vec![]),
            node("Softmax", &["b"], &["weights"], vec![int("axis", -1)]),
            node("MatMul", &["weights", "vh"], &["o"], vec![]),
            swap("o", "t"),
            reshape("t", "together", "u"),
            node("MatMul", &["u", "wo"], &["out"], vec![]),
            swap("out", "back"),
            node("Add", &["back", "q"], &["y"], vec![]),
        ],
    ];
    let constants = vec![
        list("apart", &[6, 2, 3, 24]),
        list("heads", &[6, 6, 8]),
        list("together", &[6, 2, 24]),
        integers("i0", &[], &[0]),
        integers("i1", &[], &[1]),
        integers("i2", &[], &[2]),
        floats("w", &[24, 72], &[0.1; 24 * 72]),
        floats("wo", &[24, 24], &[0.1; 24 * 24]),
        floats("bias", &[72], &[0.1; 72]),
        floats("s", &[], &[1.0 / 8f32.sqrt()]),
    ];
    let program = program(nodes.concat(), constants, [&[2, 6, 24], &[1], &[1]]).unwrap();
    let found = launches(program);
    let expected = [
        "matmul-f32-m12n72k24-nn-bias",
        "attention-f32-b2h3m6n6d8v8-g3-full.packed",
        "matmul-f32-m12n24k24-nn-residual_add",
    ];
    assert_eq!(found, expected);
}

/// Windows that are put back to where they were in their image, behind the product behind attention: joined with that permutation, heads
/// could no longer be written where the product has them, which is one launch for two.
#[test]
fn permutations_are_not_joined_where_that_costs_more_than_it_saves() {
    let gather = |i: &str, to: &str| node("Gather", &["all", i], &[to], vec![int("axis", 0)]);
    let nodes = vec![
        node("MatMul", &["q", "w"], &["qkv"], vec![]),
        node("Reshape", &["qkv", "whole"], &["five"], vec![]),
        node("Transpose", &["five"], &["all"], vec![ints("perm", &[2, 0, 3, 1, 4])]),
        gather("i0", "qh"),
        gather("i1", "kh"),
        gather("i2", "vh"),
        node("Attention", &["qh", "kh", "vh"], &["o"], vec![]),
        node("Transpose", &["o"], &["t"], vec![ints("perm", &[0, 2, 1, 3])]),
        node("Reshape", &["t", "together"], &["u"], vec![]),
        node("MatMul", &["u", "wo"], &["out"], vec![]),
        node("Reshape", &["out", "windows"], &["apart"], vec![]),
        node("Transpose", &["apart"], &["y"], vec![ints("perm", &[0, 2, 1, 3, 4])]),
    ];
    let constants = vec![
        list("whole", &[4, 6, 3, 3, 8]),
        list("together", &[4, 6, 24]),
        list("windows", &[2, 2, 2, 3, 24]),
        integers("i0", &[], &[0]),
        integers("i1", &[], &[1]),
        integers("i2", &[], &[2]),
        floats("w", &[24, 72], &[0.1; 24 * 72]),
        floats("wo", &[24, 24], &[0.1; 24 * 24]),
    ];
    let program = program(nodes, constants, [&[4, 6, 24], &[1], &[1]]).unwrap();
    let found = launches(program);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[1].ends_with("-full.packed") && found[3].starts_with("permute-"), "{found:?}");
}
