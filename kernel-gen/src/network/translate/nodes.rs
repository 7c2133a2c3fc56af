//! Makes steps of nodes: what is known of each operator, and the walk over the nodes of a model or of a graph within one.

use super::builder::{Builder, One};
use super::operands::{Bound, optional};
use super::{
    attention, by_numbers, bytes, composed, contraction, control_flow, einsum, element, few_bits, movement, quantised,
    recurrent, resize, row, sequences, shape, window,
};
use crate::network::model::{Node, SUMS, TABLE};
use crate::network::problem::{Fault, Problem};
use crate::network::program::ValueId;
use std::collections::BTreeSet;

/// What is known of ONNX's operators that have one output.
const OPERATORS: &[(&[&str], One)] = &[
    (&["Conv"], contraction::conv),
    (&["ConvTranspose"], contraction::conv_transpose),
    (&["ConvInteger", "MatMulInteger"], quantised::of_integers),
    (&["QLinearConv", "QLinearMatMul", "QGemm"], quantised::qlinear),
    (&[SUMS], quantised::as_numbers),
    (&["MatMulNBits"], few_bits::matmul_nbits),
    (&["QLinearAdd"], quantised::qlinear_add),
    (&["QLinearConcat"], by_numbers::concat),
    (&[TABLE], by_numbers::lookup),
    (&by_numbers::NAMES, by_numbers::by_numbers),
    (&["QuantizeLinear"], quantised::quantize),
    (&["DequantizeLinear"], quantised::dequantize),
    (&["Gemm"], contraction::gemm),
    (&["MatMul"], contraction::matmul),
    (&["MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"], window::pool),
    (&["Softmax", "LogSoftmax"], row::softmax),
    (&["LayerNormalization", "RMSNormalization"], row::norm),
    (&["GroupNormalization", "InstanceNormalization"], row::group_norm),
    (&["LRN"], row::lrn),
    (
        &[
            "ReduceSum",
            "ReduceMean",
            "ReduceProd",
            "ReduceMax",
            "ReduceMin",
            "ReduceL1",
            "ReduceL2",
            "ReduceSumSquare",
            "ReduceLogSum",
            "ReduceLogSumExp",
        ],
        row::reduce,
    ),
    (&["ArgMax", "ArgMin"], row::extreme),
    (
        &[
            "Abs",
            "Neg",
            "Sign",
            "Floor",
            "Ceil",
            "Round",
            "Reciprocal",
            "Sqrt",
            "Exp",
            "Log",
            "Sin",
            "Cos",
            "Erf",
            "Softplus",
            "Softsign",
            "Mish",
            "Tan",
            "Asin",
            "Acos",
            "Atan",
            "Sinh",
            "Cosh",
            "Asinh",
            "Acosh",
            "Atanh",
            "Not",
            "IsNaN",
            "IsInf",
            "Relu",
            "Sigmoid",
            "Tanh",
            "HardSwish",
            "HardSigmoid",
            "Swish",
            "Celu",
            "Elu",
            "LeakyRelu",
            "Gelu",
            "Selu",
            "ThresholdedRelu",
            "Shrink",
        ],
        element::unary,
    ),
    (&["Clip"], element::clip),
    (
        &[
            "Add",
            "Sum",
            "Mean",
            "Sub",
            "Mul",
            "Div",
            "Min",
            "Max",
            "PRelu",
            "Pow",
            "Mod",
            "Equal",
            "Less",
            "LessOrEqual",
            "Greater",
            "GreaterOrEqual",
            "And",
            "Or",
            "Xor",
        ],
        element::elementwise,
    ),
    (&["Where"], element::choose),
    (&["BatchNormalization"], composed::batch_norm),
    (&["Transpose"], movement::transpose),
    (&["Slice"], movement::slice),
    (&["Concat"], movement::concat),
    (&["Gather"], movement::gather),
    (&["ReverseSequence"], movement::reverse_sequences),
    (&["GatherElements"], composed::gather_elements),
    (&["GatherND"], composed::gather_nd),
    (&["ScatterElements", "ScatterND"], composed::scattered),
    (&["CumSum"], composed::cumulative_sum),
    (&["Trilu"], composed::triangle),
    (&["EyeLike"], composed::diagonal),
    (&["OneHot"], composed::one_hot),
    (&["Hardmax"], composed::hardmax),
    (&["LpNormalization"], composed::lp_norm),
    (&["GlobalLpPool"], composed::lp_pool),
    (&["MeanVarianceNormalization"], composed::mean_variance_norm),
    (&["CastLike"], composed::cast_like),
    (&["Einsum"], einsum::einsum),
    (&["Pad"], movement::pad),
    (&["Expand", "Tile"], movement::repeat),
    (&["GridSample"], movement::grid_sample),
    (&["DepthToSpace", "SpaceToDepth"], movement::blocks),
    (&["Resize", "Upsample"], resize::resize),
    (&["Identity", "Dropout"], shape::same),
    (&["Reshape"], shape::reshape),
    (&["Flatten"], shape::flatten),
    (&["Squeeze", "Unsqueeze"], shape::squeeze),
    (&["Shape"], shape::shape),
    (&["Size"], shape::size),
    (&["Constant"], shape::constant),
    (&["ConstantOfShape"], shape::filled),
    (&["Cast"], shape::cast),
    (&["Range"], shape::range),
];

/// Makes the results of a node.
type Many = fn(&mut Builder, &Node, &[Option<ValueId>]) -> Result<Vec<ValueId>, Fault>;

/// Those that have several outputs.
const OF_SEVERAL: &[(&[&str], Many)] = &[
    (&["Split"], movement::split),
    (&["Attention"], attention::attention),
    (&["DynamicQuantizeLinear"], quantised::dynamic_quantize),
    (&["TopK"], composed::top_k),
    (&["LSTM", "GRU", "RNN"], recurrent::layer),
];

/// The operators of ONNX that can be compiled.
pub fn operators() -> Vec<&'static str> {
    let of_several = OF_SEVERAL.iter().flat_map(|(names, _)| names.iter().copied());
    let mut names: Vec<&str> = OPERATORS
        .iter()
        .flat_map(|(names, _)| names.iter().copied())
        .chain(of_several)
        .chain(control_flow::names())
        .chain(sequences::names())
        .filter(|name| ![SUMS, TABLE].contains(name))
        .collect();
    names.sort_unstable();
    names
}

/// Makes steps of nodes. What takes values that are `lost` is lost as well, and says nothing of its own.
pub(super) fn walk(b: &mut Builder, nodes: &[Node], lost: &mut BTreeSet<String>) -> Vec<Problem> {
    let mut problems = vec![];
    for node in nodes {
        if node.inputs.iter().any(|name| lost.contains(name)) {
            lost.extend(node.outputs.iter().cloned());
            continue;
        }
        b.node = b.scoped(&node.name);
        let of_node = |b: &Builder, fault| vec![Problem::at(b.place(node), fault)];
        let made = taken(b, node).map_err(|fault| of_node(b, fault)).and_then(|operands| {
            if let Some(flow) = control_flow::of(node) {
                return flow(b, node, &operands);
            }
            let all = match sequences::of(node, &operands) {
                Some(make) => make(b, node, &operands).map(|bound| vec![bound]),
                None => tensors(&operands)
                    .and_then(|ids| results(b, node, &ids))
                    .map(|ids| ids.into_iter().map(Bound::Tensor).collect()),
            };
            all.map_err(|fault| of_node(b, fault))
        });
        match made {
            Ok(all) => {
                for (name, bound) in node.outputs.iter().zip(all).filter(|(name, _)| !name.is_empty()) {
                    if let Bound::Tensor(id) = bound
                        && b.program.values[id].name.is_empty()
                    {
                        b.program.values[id].name = b.scoped(name);
                    }
                    b.names.insert(name.clone(), bound);
                }
            }
            Err(all) => {
                problems.extend(all);
                lost.extend(node.outputs.iter().cloned());
            }
        }
    }
    problems
}

/// The values that a node takes.
fn taken(b: &Builder, node: &Node) -> Result<Vec<Option<Bound>>, Fault> {
    let operand = |name: &String| match b.names.get(name) {
        _ if name.is_empty() => Ok(None),
        Some(bound) => Ok(Some(bound.clone())),
        None => Err(Fault::new(
            format!("nothing before it gives `{name}`"),
            "a node must stand behind those whose results it takes, and an initialiser in the file",
        )),
    };
    node.inputs.iter().map(operand).collect()
}

/// The tensors that operands are.
fn tensors(operands: &[Option<Bound>]) -> Result<Vec<Option<ValueId>>, Fault> {
    (0..operands.len()).map(|at| optional(operands, at)).collect()
}

/// What a node gives.
pub(super) fn results(b: &mut Builder, node: &Node, operands: &[Option<ValueId>]) -> Result<Vec<ValueId>, Fault> {
    let on_bytes = bytes::computed(b, node, operands);
    if let Some((_, make)) = OF_SEVERAL.iter().find(|(names, _)| names.contains(&node.op.as_str())) {
        let Some((dtype, _)) = on_bytes else { return make(b, node, operands) };
        let wide = bytes::widened(b, operands)?;
        let mut all = make(b, node, &wide)?;
        // Without a name the values are nobody's, and the indices may be first.
        if node.outputs.first().is_some_and(|name| !name.is_empty()) {
            all[0] = b.as_byte(all[0], dtype, false)?;
        }
        return Ok(all);
    }
    let Some((_, make)) = OPERATORS.iter().find(|(names, _)| names.contains(&node.op.as_str())) else {
        let help = "export the model with other operators; docs/networks.md lists those that can be compiled";
        return Err(Fault::new("the operator is not supported", help));
    };
    let at_inference = matches!(node.op.as_str(), "Dropout" | "BatchNormalization") && !node.flag("training_mode");
    if node.outputs.iter().skip(1).any(|name| !name.is_empty()) && !at_inference {
        return Err(Fault::new("more than one of its results is used", "export the model for inference"));
    }
    match on_bytes {
        Some(of) => bytes::result(b, node, operands, *make, of),
        None => make(b, node, operands),
    }
    .map(|id| vec![id])
}
