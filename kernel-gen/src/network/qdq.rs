//! Quantised models that say so by pairs: `DequantizeLinear` in front of an operator on numbers and `QuantizeLinear` behind it.
//!
//! Such a convolution or product, with the integers that stand for its operands, is ONNX's operator on integers: it adds up exactly
//! what the pairs round. A ReLU between it and its `QuantizeLinear` does nothing where no integer stands for a number below 0.

use super::constants;
use super::model::{Attribute, Model, Node, SUMS, TABLE};
use super::tensor::Tensor;
use crate::ir::DType;
use crate::workload::quant::largest_sum;
use std::collections::{BTreeMap, BTreeSet};

/// Joins operators with the pairs around them, and leaves out what nothing needs any more.
pub(super) fn join(model: &mut Model) {
    if !model.nodes.iter().any(is_of_pair) {
        return;
    }
    constants::settle(model);
    join_all(model, "QuantizeLinear", |pairs, at| pairs.joined(at).or_else(|| pairs.table(at)));
    // What has no pair behind it: where training rounds inputs and weights alone, and where a sum of numbers follows.
    for op in ["Conv", "Gemm", "MatMul"] {
        join_all(model, op, |pairs, at| pairs.sums(at));
    }
}

/// Whether a node makes integers of numbers, or numbers of integers.
fn is_of_pair(node: &Node) -> bool {
    ["QuantizeLinear", "DequantizeLinear"].contains(&node.op.as_str())
}

/// Puts what is found for nodes of an operator in their places.
fn join_all(model: &mut Model, op: &str, find: impl Fn(&Pairs, usize) -> Option<Joined>) {
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for name in model.nodes.iter().flat_map(|node| &node.inputs).chain(&model.outputs) {
        *uses.entry(name).or_default() += 1;
    }
    let writers =
        model.nodes.iter().enumerate().flat_map(|(i, node)| node.outputs.iter().map(move |o| (o.as_str(), i)));
    let pairs = Pairs { model, writers: writers.collect(), uses };
    let nodes = (0..model.nodes.len()).filter(|at| model.nodes[*at].op == op);
    let found: Vec<(usize, Joined)> = nodes.filter_map(|at| Some((at, find(&pairs, at)?))).collect();
    replace(model, found);
}

/// Puts nodes in the places of others, and leaves out what nothing needs any more.
pub(super) fn replace(model: &mut Model, found: Vec<(usize, Joined)>) {
    if found.is_empty() {
        return;
    }
    let (mut before, mut given) = (vec![], BTreeSet::new());
    for (at, joined) in found {
        model.constants.extend(joined.constants);
        model.nodes[at] = joined.node;
        // What several take is added in front of the first.
        let new = joined.before.into_iter().filter(|node| given.insert(node.outputs.clone()));
        before.extend(new.map(|node| (at, node)));
    }
    // From the last on, so that places of those before stay what they are.
    before.into_iter().rev().for_each(|(at, node)| model.nodes.insert(at, node));
    keep_what_is_needed(model);
}

/// Leaves out nodes whose results nobody takes: what one took that has been replaced may have been for nobody else.
fn keep_what_is_needed(model: &mut Model) {
    let mut needed: BTreeSet<String> = model.outputs.iter().cloned().collect();
    let mut kept = vec![];
    for node in std::mem::take(&mut model.nodes).into_iter().rev() {
        if node.outputs.iter().any(|name| needed.contains(name)) {
            needed.extend(node.inputs.iter().cloned());
            kept.push(node);
        }
    }
    kept.reverse();
    model.nodes = kept;
}

/// Operators whose results are elements of their first input.
const MOVES: [&str; 13] = [
    "MaxPool",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Gather",
    "Expand",
    "Tile",
    "DepthToSpace",
    "SpaceToDepth",
    "Resize",
];

/// Operators between pairs that are operators of ONNX Runtime: these take each operand with scale and zero point, and those of the result.
const OF_RUNTIME: [(&str, &str); 3] =
    [("AveragePool", "QLinearAveragePool"), ("GlobalAveragePool", "QLinearGlobalAveragePool"), ("Mul", "QLinearMul")];

/// Whether a node's results are elements of its first input.
fn moves(node: &Node) -> bool {
    // Where a cut-out is larger than the image, a number stands beside it.
    let cuts = node.text("coordinate_transformation_mode", "") == "tf_crop_and_resize";
    let nearest = node.text("mode", "nearest") == "nearest" && !cuts;
    MOVES.contains(&node.op.as_str()) && (node.op != "Resize" || nearest)
}

/// Functions of each element, of one operand or of several.
const OF_ELEMENTS: [&str; 34] = [
    "Abs",
    "Add",
    "Celu",
    "Clip",
    "Cos",
    "Div",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Log",
    "Max",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sin",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Swish",
    "Tanh",
];

/// Most nodes that move elements one behind the other.
const MOST_MOVES: usize = 16;

/// Most nodes of a function.
const MOST_NODES: usize = 64;

/// A function of the elements of integers.
#[derive(Default)]
struct Function {
    /// The nodes that it is made of, in their order.
    nodes: BTreeSet<usize>,
    /// The integers that these read.
    of: BTreeSet<String>,
}

/// An operator in the place of several nodes, of which it takes the place of the last.
pub(super) struct Joined {
    pub(super) node: Node,
    /// Nodes that make its operands.
    pub(super) before: Vec<Node>,
    /// Constants that it takes.
    pub(super) constants: Vec<(String, Tensor)>,
}

/// What a convolution or product of integers takes.
struct Operands {
    /// Input and weights, with scale and zero point behind each.
    inputs: Vec<String>,
    /// The bias of integers, if there is one.
    bias: Option<String>,
    /// Constants among these that the file does not have.
    constants: Vec<(String, Tensor)>,
    /// Nodes that move the input's integers.
    before: Vec<Node>,
}

/// A model, and who writes and reads its values.
struct Pairs<'a> {
    model: &'a Model,
    writers: BTreeMap<&'a str, usize>,
    uses: BTreeMap<&'a str, usize>,
}

impl Pairs<'_> {
    /// The node that writes a value.
    fn writer(&self, name: &str) -> Option<&Node> {
        self.writers.get(name).map(|at| &self.model.nodes[*at])
    }

    /// The same, of a value that one node reads.
    fn only_writer(&self, name: &str) -> Option<&Node> {
        self.writer(name).filter(|_| self.uses.get(name) == Some(&1))
    }

    /// The `DequantizeLinear` that writes a value: what it takes, its scale and its zero point, which is no name where there is none.
    fn quantised(&self, name: &str) -> Option<[String; 3]> {
        let node =
            self.writer(name).filter(|node| node.op == "DequantizeLinear" && node.integer("block_size", 0) == 0)?;
        let input = |at: usize| node.inputs.get(at).cloned().unwrap_or_default();
        Some([input(0), input(1), input(2)])
    }

    /// The same of what nodes that move elements make of these: on the integers, by nodes that are added.
    fn behind_moves(&self, name: &str, added: &mut Vec<Node>) -> Option<[String; 3]> {
        let (mut at, mut moved) = (name, vec![]);
        while moved.len() <= MOST_MOVES {
            if let Some([x, scale, zero]) = self.quantised(at) {
                let mut x = x;
                for node in moved.into_iter().rev() {
                    let mut node: Node = Node::clone(node);
                    let output = format!("{} in integers", node.outputs[0]);
                    node.inputs[0] = std::mem::replace(&mut x, output.clone());
                    // Somebody else may have asked for it.
                    if self.writer(&output).is_none() {
                        node.outputs[0] = output;
                        added.push(node);
                    }
                }
                return Some([x, scale, zero]);
            }
            let node = self.writer(at).filter(|node| moves(node) && node.outputs.len() == 1)?;
            moved.push(node);
            at = node.inputs.first()?;
        }
        None
    }

    /// The operator whose result a `QuantizeLinear` takes, joined with it.
    fn joined(&self, at: usize) -> Option<Joined> {
        let quantizer = &self.model.nodes[at];
        let zero = quantizer.inputs.get(2).cloned().unwrap_or_default();
        // Without a zero point operators on integers give UINT8.
        let is_usual = !zero.is_empty() || [0, 2].contains(&quantizer.integer("output_dtype", 0));
        if !is_usual || !self.has_one_scale(quantizer.inputs.get(1)?) {
            return None;
        }
        let mut node = self.only_writer(quantizer.inputs.first()?)?;
        if node.op == "Relu" && self.is_least(&zero) {
            node = self.only_writer(node.inputs.first()?)?;
        }
        if moves(node) {
            return self.moved(node, quantizer);
        }
        if node.op == "Add" {
            let summands = [self.quantised(node.inputs.first()?)?, self.quantised(node.inputs.get(1)?)?];
            if !summands.iter().all(|summand| self.is_of_bytes(summand)) {
                return None;
            }
            let mut inputs: Vec<String> = summands.into_iter().flatten().collect();
            inputs.extend([quantizer.inputs.get(1)?.clone(), zero]);
            let (name, outputs) = (node.name.clone(), quantizer.outputs.clone());
            let node = Node { name, op: "QLinearAdd".into(), inputs, outputs, attributes: BTreeMap::new() };
            return Some(Joined { node, constants: vec![], before: vec![] });
        }
        if node.op == "Concat" {
            let operands = node.inputs.iter().map(|name| self.quantised(name)).collect::<Option<Vec<_>>>()?;
            if !operands.iter().all(|operand| self.is_of_bytes(operand)) {
                return None;
            }
            let output = [quantizer.inputs.get(1)?.clone(), zero];
            let inputs = output.into_iter().chain(operands.into_iter().flatten()).collect();
            let node = Node { op: "QLinearConcat".into(), inputs, outputs: quantizer.outputs.clone(), ..node.clone() };
            return Some(Joined { node, before: vec![], constants: vec![] });
        }
        if let Some((_, op)) = OF_RUNTIME.iter().find(|(op, _)| *op == node.op) {
            // A function of one tensor is a table.
            let operands = node.inputs.iter().map(|name| self.quantised(name)).collect::<Option<Vec<_>>>()?;
            if !operands.iter().all(|operand| self.is_of_bytes(operand)) || self.table(at).is_some() {
                return None;
            }
            let inputs = operands.into_iter().flatten().chain([quantizer.inputs.get(1)?.clone(), zero]).collect();
            let node = Node { op: (*op).into(), inputs, outputs: quantizer.outputs.clone(), ..node.clone() };
            return Some(Joined { node, before: vec![], constants: vec![] });
        }
        let op = match node.op.as_str() {
            "Conv" => "QLinearConv",
            "MatMul" => "QLinearMatMul",
            "Gemm" => "QGemm",
            _ => return None,
        };
        let Operands { mut inputs, bias, constants, before } = self.operands(node)?;
        let output = [quantizer.inputs.get(1)?.clone(), zero];
        match op {
            "QGemm" => {
                inputs.push(bias.unwrap_or_default());
                inputs.extend(output);
            }
            _ => {
                inputs.extend(output);
                inputs.extend(bias);
            }
        }
        let (name, outputs, attributes) = (node.name.clone(), quantizer.outputs.clone(), node.attributes.clone());
        Some(Joined { node: Node { name, op: op.into(), inputs, outputs, attributes }, constants, before })
    }

    /// A convolution or product of integers whose result is numbers.
    fn sums(&self, at: usize) -> Option<Joined> {
        let node = &self.model.nodes[at];
        let Operands { mut inputs, bias, constants, before } = self.operands(node)?;
        // Volumes of integers have no kernel but the plain one.
        if self.model.constants.get(&inputs[3]).is_none_or(|weight| weight.shape.len() > 4) {
            return None;
        }
        inputs.extend(bias);
        let mut joined = Node { op: SUMS.into(), inputs, ..node.clone() };
        joined.attributes.insert(SUMS.into(), Attribute::Text(node.op.clone()));
        Some(Joined { node: joined, constants, before })
    }

    /// The operands of a convolution or product, if they are integers.
    fn operands(&self, node: &Node) -> Option<Operands> {
        let (ranks, at) = match node.op.as_str() {
            "Conv" => (3..=5, 0),
            "MatMul" => (2..=2, 1),
            _ if node.float("alpha", 1.0) == 1.0 && node.float("beta", 1.0) == 1.0 => {
                (2..=2, usize::from(!node.flag("transB")))
            }
            _ => return None,
        };
        let mut before = vec![];
        let x = self.behind_moves(node.inputs.first()?, &mut before)?;
        let w = self.quantised(node.inputs.get(1)?)?;
        let shape = &self.model.constants.get(&w[0])?.shape;
        let channels = *shape.get(at).filter(|n| **n > 0 && ranks.contains(&shape.len()))?;
        // Numbers have a scale of 0, too, as that of a channel that is never used.
        let usable = |scale: &String| {
            let known = self.model.constants.get(scale);
            known.is_some_and(|all| all.to_floats().iter().all(|s| s.is_finite() && *s > 0.0))
        };
        let most = i64::from(i32::MAX) - self.largest_sum(&w, channels)?;
        if !self.has_one_scale(&x[1]) || ![&x[1], &w[1]].into_iter().all(usable) || most < 0 {
            return None;
        }
        self.weights_fit(node.inputs.get(1)?, &w, at)?;
        let mut constants = vec![];
        let bias = match node.inputs.get(2).filter(|name| !name.is_empty()) {
            None => None,
            Some(name) => Some(self.bias(name, [&x[1], &w[1]], (channels, most), &mut constants)?),
        };
        Some(Operands { inputs: x.into_iter().chain(w).collect(), bias, constants, before })
    }

    /// What a `QuantizeLinear` makes of one tensor of integers, element by element, as a table: what the nodes between make of all integers
    /// there are. A pair within is one of these nodes where that leaves one tensor, as between the factors of `x sigmoid(x)`.
    fn table(&self, at: usize) -> Option<Joined> {
        let mut function = Function::default();
        self.function(at, &mut function)?;
        while function.of.len() > 1 {
            let writer = |name: &String| self.writers.get(name.as_str()).copied();
            let last = function.of.iter().filter_map(writer).max()?;
            function.of.retain(|name| writer(name) != Some(last));
            self.function(last, &mut function)?;
        }
        let (of, nodes) = (function.of.pop_first()?, function.nodes);
        let is_pair = |at: &usize| is_of_pair(&self.model.nodes[*at]);
        if nodes.iter().all(is_pair) {
            return None;
        }
        let reads = |at: &&usize| self.model.nodes[**at].inputs.first() == Some(&of);
        let zero = self.model.nodes[*nodes.iter().find(reads)?].inputs.get(2)?;
        let dtype = self.model.constants.get(zero)?.byte?;
        let quantizer = &self.model.nodes[at];
        let name = |name: &str| format!("{name} of every {of} for {}", quantizer.name);
        let made: BTreeSet<&String> = nodes.iter().flat_map(|at| &self.model.nodes[*at].outputs).chain([&of]).collect();
        let renamed = |node: &Node| {
            let other = |own: &String| if made.contains(own) { name(own) } else { own.clone() };
            let [inputs, outputs] = [&node.inputs, &node.outputs].map(|names| names.iter().map(other).collect());
            Node { inputs, outputs, ..node.clone() }
        };
        let before: Vec<Node> = nodes.iter().map(|at| renamed(&self.model.nodes[*at])).collect();
        let inputs = vec![of.clone(), name(quantizer.outputs.first()?)];
        let (own, outputs) = (quantizer.name.clone(), quantizer.outputs.clone());
        let node = Node { name: own, op: TABLE.into(), inputs, outputs, attributes: BTreeMap::new() };
        Some(Joined { node, before, constants: vec![(name(&of), Tensor::every_byte(dtype))] })
    }

    /// Adds a node to a function of the elements of integers, if it is one, with those before it.
    fn function(&self, at: usize, function: &mut Function) -> Option<()> {
        if !function.nodes.insert(at) {
            return Some(());
        }
        let node = &self.model.nodes[at];
        let is_pair = is_of_pair(node);
        let of_elements = is_pair && node.integer("block_size", 0) == 0 || OF_ELEMENTS.contains(&node.op.as_str());
        if !of_elements || node.outputs.len() != 1 || function.nodes.len() > MOST_NODES {
            return None;
        }
        for (place, name) in node.inputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            match (self.model.constants.get(name), self.writers.get(name.as_str())) {
                // One number, which leaves the shape as it is.
                (Some(constant), _) => (constant.data.len() == 1 && constant.shape.len() <= 1).then_some(())?,
                (None, _) if node.op == "DequantizeLinear" && place == 0 => drop(function.of.insert(name.clone())),
                (None, Some(writer)) => self.function(*writer, function)?,
                (None, None) => return None,
            }
        }
        Some(())
    }

    /// An operator that moves or compares elements, on the integers that stand for them: scale and zero point stay what they are.
    fn moved(&self, node: &Node, quantizer: &Node) -> Option<Joined> {
        let [x, scale, zero] = self.quantised(node.inputs.first()?)?;
        let same = |a: &str, b: &str| {
            a == b || self.model.constants.get(a).is_some_and(|a| self.model.constants.get(b) == Some(a))
        };
        let other = |at: usize| quantizer.inputs.get(at).map_or("", String::as_str);
        // Without a zero point the types of both are not known to be one.
        if zero.is_empty() || !same(&scale, other(1)) || !same(&zero, other(2)) {
            return None;
        }
        let mut node = node.clone();
        node.inputs[0] = x;
        node.outputs = quantizer.outputs.clone();
        Some(Joined { node, constants: vec![], before: vec![] })
    }

    /// Whether a zero point is the least number of its type, so that nothing stands for a number below 0.
    fn is_least(&self, zero: &str) -> bool {
        let Some(tensor) = self.model.constants.get(zero) else { return zero.is_empty() };
        let (dtype, all) = (tensor.byte.unwrap_or(DType::U8), tensor.to_integers().unwrap_or_default());
        dtype.limits().is_some_and(|(least, _)| !all.is_empty() && all.iter().all(|z| *z == least))
    }

    /// Whether a scale is known and is that of a whole tensor. Operators on integers take no others; those on numbers do.
    fn has_one_scale(&self, name: &str) -> bool {
        self.model.constants.get(name).is_some_and(|scale| scale.data.len() == 1)
    }

    /// Whether integers have one scale, and eight bits as far as the file says.
    fn is_of_bytes(&self, [of, scale, _]: &[String; 3]) -> bool {
        self.has_one_scale(scale) && self.model.constants.get(of).is_none_or(|constant| constant.byte.is_some())
    }

    /// The largest sum by weights, whatever the inputs.
    fn largest_sum(&self, [weight, _, zero]: &[String; 3], channels: i64) -> Option<i64> {
        let weight = self.model.constants.get(weight)?;
        let zeros = self.model.constants.get(zero).and_then(Tensor::to_integers);
        let has_zeros = !zero.is_empty() && zeros.is_none_or(|all| all.iter().any(|z| *z != 0));
        let terms = weight.data.len() as i64 / channels;
        Some(largest_sum(terms, weight.byte.map(|dtype| (dtype, has_zeros))))
    }

    /// Whether weights are constants with one scale, or with one for each output channel, which is an axis of them.
    fn weights_fit(&self, name: &str, [weight, scale, _]: &[String; 3], channels: usize) -> Option<()> {
        let (weight, scale) = (self.model.constants.get(weight)?, self.model.constants.get(scale)?);
        let of_channels = self.writer(name)?.axis(weight.shape.len()) == channels as i64
            && weight.shape.get(channels) == Some(&(scale.data.len() as i64));
        (weight.byte.is_some() && (scale.data.len() == 1 || of_channels)).then_some(())
    }

    /// A bias as integers whose scale is that of the sums, one for each output channel and none beyond `most`: the one that the model has,
    /// or a constant of numbers, rounded.
    fn bias(
        &self,
        name: &str,
        of: [&String; 2],
        (channels, most): (i64, i64),
        constants: &mut Vec<(String, Tensor)>,
    ) -> Option<String> {
        let floats = |name: &str| self.model.constants.get(name).map(|tensor| tensor.to_floats());
        let (x, w) = (floats(of[0])?, floats(of[1])?);
        let of_sums = |c: usize| x[0] * w[c.min(w.len() - 1)];
        let fits = |tensor: &Tensor, integers: &[i64]| {
            let each = tensor.shape.last() == Some(&channels) && integers.len() as i64 == channels;
            each && integers.iter().all(|b| b.saturating_abs() <= most)
        };
        if let Some([bias, scale, zero]) = self.quantised(name) {
            let (scale, tensor) = (floats(&scale)?, self.model.constants.get(&bias)?);
            let integers = tensor.to_integers()?;
            if scale.is_empty() || !fits(tensor, &integers) {
                return None;
            }
            let near = |c: usize| (scale[c.min(scale.len() - 1)] - of_sums(c)).abs() <= 1e-6 * of_sums(c).abs();
            let none = self.model.constants.get(&zero).and_then(Tensor::to_integers);
            let zero_is_0 = zero.is_empty() || none.is_some_and(|all| all.iter().all(|z| *z == 0));
            return (zero_is_0 && (0..integers.len()).all(near)).then_some(bias);
        }
        let bias = self.model.constants.get(name)?;
        let numbers = bias.to_floats();
        let rounded = numbers.iter().enumerate().map(|(c, b)| (b / of_sums(c)).round_ties_even() as i64);
        let rounded: Vec<i64> = rounded.collect();
        let quantised = format!("{name} in {} and {}", of[0], of[1]);
        fits(bias, &rounded).then(|| constants.push((quantised.clone(), Tensor::integers(&[channels], rounded))))?;
        Some(quantised)
    }
}
