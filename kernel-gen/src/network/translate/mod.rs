//! Operators of ONNX as workloads.
//!
//! One walk over the nodes does what other compilers do in three passes, since each needs the others: the shapes that a node
//! takes are known from those before, the operands that are constant are computed here and now, and what is left becomes a
//! workload whose output has the shape that comes next.

mod attention;
mod builder;
mod by_numbers;
mod bytes;
mod composed;
mod contraction;
mod einsum;
mod element;
mod few_bits;
mod integers;
mod movement;
mod operands;
mod quantised;
mod recurrent;
mod resize;
mod row;
mod shape;
mod window;

pub(super) use by_numbers::NAMES as BY_NUMBERS;

use super::model::{Extent, Model, Node, SUMS, TABLE};
use super::problem::{Fault, Problem};
use super::program::{Program, Source, ValueId};
use super::tensor::is_shape;
use crate::ir::DType;
use builder::{Builder, One};
use std::collections::{BTreeMap, BTreeSet};

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
        .filter(|name| ![SUMS, TABLE].contains(name))
        .collect();
    names.sort_unstable();
    names
}

/// Makes steps of a model. `extents` are the shapes that the spec gives inputs, by name.
///
/// # Errors
/// All nodes that cannot be compiled. What only follows from these is not among them.
pub(super) fn translate(model: &Model, extents: &BTreeMap<String, Vec<i64>>) -> Result<Program, Vec<Problem>> {
    let mut b = Builder::new(model.opset);
    let mut problems = vec![];
    for (name, shape) in input_shapes(model, extents, &mut problems) {
        if !is_shape(&shape) || shape.contains(&0) {
            let fault = Fault::new(format!("its shape is {shape:?}"), "give it extents from 1 on, and fewer elements");
            problems.push(Problem::at(format!("input `{name}`"), fault));
            continue;
        }
        let found = model.inputs.iter().find(|input| input.name == name);
        let dtype = found.map(|input| input.dtype).filter(|dtype| dtype.is_int()).unwrap_or(DType::F32);
        let id = b.program.add(&shape, dtype, Source::Input);
        b.truths.extend(found.filter(|input| input.truth).map(|_| id));
        b.program.inputs.push((name.clone(), id));
        b.names.insert(name, id);
    }
    for (name, tensor) in &model.constants {
        let id = b.add_constant(tensor.clone());
        b.names.insert(name.clone(), id);
    }
    // Inputs without a shape and values of nodes that failed: what takes them says nothing of its own.
    let inputs = model.inputs.iter().map(|input| input.name.clone());
    let mut lost: BTreeSet<String> = inputs.filter(|name| !b.names.contains_key(name)).collect();
    for node in &model.nodes {
        if node.inputs.iter().any(|name| lost.contains(name)) {
            lost.extend(node.outputs.iter().cloned());
            continue;
        }
        let made = taken(&b, node).and_then(|operands| {
            b.node = node.name.clone();
            results(&mut b, node, &operands)
        });
        match made {
            Ok(ids) => {
                for (name, id) in node.outputs.iter().zip(ids).filter(|(name, _)| !name.is_empty()) {
                    if b.program.values[id].name.is_empty() {
                        b.program.values[id].name = name.clone();
                    }
                    b.names.insert(name.clone(), id);
                }
            }
            Err(fault) => {
                problems.push(Problem::at(format!("node `{}` ({})", node.name, node.op), fault));
                lost.extend(node.outputs.iter().cloned());
            }
        }
    }
    for name in &model.outputs {
        match b.names.get(name) {
            Some(id)
                if b.program.values[*id].dtype == DType::I64
                    && b.program.outputs.iter().any(|(_, other)| b.program.root(*other) == b.program.root(*id)) =>
            {
                let fault = Fault::new("its indices are another output, too", "leave one of them out");
                problems.push(Problem::at(format!("output `{name}`"), fault));
            }
            Some(id) if b.constant(*id).is_some_and(|constant| constant.is_integer()) => {
                let fault = Fault::new("it is the same integers whatever the inputs are", "leave it out");
                problems.push(Problem::at(format!("output `{name}`"), fault));
            }
            Some(id) => b.program.outputs.push((name.clone(), *id)),
            None if lost.contains(name) || !problems.is_empty() => {}
            None => problems.push(Problem::at(
                format!("output `{name}`"),
                Fault::new("no node gives it", "export the model again"),
            )),
        }
    }
    if problems.is_empty() { Ok(b.program) } else { Err(problems) }
}

/// The shapes of all inputs.
fn input_shapes(
    model: &Model,
    extents: &BTreeMap<String, Vec<i64>>,
    problems: &mut Vec<Problem>,
) -> Vec<(String, Vec<i64>)> {
    let mut found = vec![];
    for input in &model.inputs {
        let place = format!("input `{}`", input.name);
        let mut wrong = |cause: String, help: String| problems.push(Problem::at(&place, Fault::new(cause, help)));
        let example = |shape: &[Extent]| {
            let extents = shape.iter().map(|e| match e {
                Extent::Known(n) => n.to_string(),
                Extent::Named(_) => "1".into(),
            });
            format!("write inputs = {{ \"{}\" = [{}] }}", input.name, extents.collect::<Vec<_>>().join(", "))
        };
        match (&input.shape, extents.get(&input.name)) {
            (None, None) => wrong("its shape is not in the file".into(), example(&[])),
            (Some(shape), None) => {
                let known = shape.iter().map(|e| if let Extent::Known(n) = e { Some(*n) } else { None });
                match known.collect::<Option<Vec<i64>>>() {
                    Some(shape) => found.push((input.name.clone(), shape)),
                    None => {
                        let named = |e: &Extent| match e {
                            Extent::Named(name) if !name.is_empty() => Some(format!("`{name}`")),
                            Extent::Named(_) => Some("an extent without a name".into()),
                            Extent::Known(_) => None,
                        };
                        let names: Vec<String> = shape.iter().filter_map(named).collect();
                        wrong(format!("{} is not known", names.join(", ")), example(shape));
                    }
                }
            }
            (None, Some(given)) => found.push((input.name.clone(), given.clone())),
            (Some(shape), Some(given)) => {
                let fits = |(e, n): (&Extent, &i64)| !matches!(e, Extent::Known(known) if known != n);
                if shape.len() == given.len() && shape.iter().zip(given).all(fits) {
                    found.push((input.name.clone(), given.clone()));
                } else {
                    wrong(format!("the spec says {given:?}, which the model does not take"), example(shape));
                }
            }
        }
    }
    for name in extents.keys().filter(|name| !model.inputs.iter().any(|input| input.name == **name)) {
        let all: Vec<String> = model.inputs.iter().map(|input| format!("`{}`", input.name)).collect();
        let fault = Fault::new("the model has no such input", format!("its inputs are {}", all.join(", ")));
        problems.push(Problem::at(format!("input `{name}`"), fault));
    }
    found
}

/// The values that a node takes.
fn taken(b: &Builder, node: &Node) -> Result<Vec<Option<ValueId>>, Fault> {
    let operand = |name: &String| match b.names.get(name) {
        _ if name.is_empty() => Ok(None),
        Some(id) => Ok(Some(*id)),
        None => Err(Fault::new(
            format!("nothing before it gives `{name}`"),
            "a node must stand behind those whose results it takes, and an initialiser in the file",
        )),
    };
    node.inputs.iter().map(operand).collect()
}

/// What a node gives.
fn results(b: &mut Builder, node: &Node, operands: &[Option<ValueId>]) -> Result<Vec<ValueId>, Fault> {
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
