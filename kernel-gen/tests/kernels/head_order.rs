//! Attention in networks: which of the orders of its tensors saves permutations.

use crate::random_network::{float, floats, info, int, integers, ints, model, node};
use kernel_gen::ir::DType;
use kernel_gen::network::{Form, Network, parse};
use kernel_gen::workload::ConvLayout;
use rten_onnx::onnx::{AttributeProto, GraphProto, NodeProto, TensorProto};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn heads_are_read_and_written_where_products_have_them() {
    let list = |name: &str, numbers: &[i64]| integers(name, &[numbers.len() as i64], numbers);
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
    let keys_of = |nodes: Vec<Vec<NodeProto>>, constants: &[TensorProto]| -> Vec<String> {
        let (input, output) = (vec![info("x", &[2, 6, 24])], vec![info("y", &[2, 6, 24])]);
        let (node, initializer) = (nodes.into_iter().flatten().collect(), constants.to_vec());
        let bytes = model(GraphProto { node, initializer, input, output, ..Default::default() }).write_buf().unwrap();
        let program = parse(&bytes, Path::new("/nowhere"), &BTreeMap::new()).unwrap();
        let network = Network::of("n", program, Form { dtype: DType::F32, layout: ConvLayout::Nchw });
        network.plans[0].program.steps.iter().map(|step| step.workload.key()).collect()
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
    assert_eq!(own[3..], ["attention-f32-b2h3m6n6d8v8-g3-full.rows"], "{own:?}");
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

/// The keys of the steps of a model with one `Attention` node whose operands are inputs, but for the mask.
fn of_node(
    shapes: [&[i64]; 3],
    mask: Option<TensorProto>,
    attributes: Vec<AttributeProto>,
) -> Result<Vec<String>, String> {
    let names = ["q", "k", "v"];
    let input = names.iter().zip(shapes).map(|(name, shape)| info(name, shape)).collect();
    let operands = [&names[..], if mask.is_some() { &["mask"] } else { &[] }].concat();
    let node = vec![node("Attention", &operands, &["y"], attributes)];
    let (initializer, output) = (mask.into_iter().collect(), vec![info("y", &[1])]);
    let bytes = model(GraphProto { node, initializer, input, output, ..Default::default() }).write_buf().unwrap();
    match parse(&bytes, Path::new("/nowhere"), &BTreeMap::new()) {
        Ok(program) => Ok(program.steps.iter().map(|step| step.workload.key()).collect()),
        Err(problems) => Err(problems[0].cause.clone()),
    }
}

#[test]
fn attention_as_one_node() {
    let heads = |q, kv| vec![int("q_num_heads", q), int("kv_num_heads", kv)];
    let (four, three): ([&[i64]; 3], [&[i64]; 3]) =
        ([&[2, 4, 5, 8], &[2, 2, 7, 8], &[2, 2, 7, 6]], [&[2, 5, 32], &[2, 7, 16], &[2, 7, 12]]);
    let plain = "attention-f32-b2h4m5n7d8v6-g2-full";
    assert_eq!(of_node(four, None, vec![]).unwrap(), [plain]);
    assert_eq!(of_node(three, None, heads(4, 2)).unwrap(), [format!("{plain}.rows")]);
    let causal = [heads(4, 2), vec![int("is_causal", 1)]].concat();
    assert_eq!(of_node(three, None, causal).unwrap(), ["attention-f32-b2h4m5n7d8v6-g2-causal.rows"]);
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
        assert_eq!(of_node(four, mask(shape), vec![]).unwrap(), [format!("{plain}{word}")], "{shape:?}");
    }
    // A scale of its own is a step in front.
    let scaled = of_node(four, None, vec![float("scale", 0.5)]).unwrap();
    assert!(scaled.len() == 2 && scaled[0].starts_with("multiply-") && scaled[1] == plain, "{scaled:?}");
    let refused = |shapes, mask, attributes, cause: &str| {
        let found: String = of_node(shapes, mask, attributes).unwrap_err();
        assert!(found.contains(cause), "{found}");
    };
    refused(four, mask(&[3, 7]), vec![], "a mask of [3, 7] does not broadcast to scores of [2, 4, 5, 7]");
    refused(four, None, vec![float("softcap", 2.0)], "softcap");
    refused(three, None, heads(5, 2), "q_num_heads");
    refused(three, None, vec![], "q_num_heads");
    refused([&[2, 5], &[2, 5], &[2, 5]], None, vec![], "an operand of [2, 5]");
    refused([&[2, 3, 5, 8], &[2, 2, 7, 8], &[2, 2, 7, 6]], None, vec![], "2 heads of keys do not divide 3");
}
