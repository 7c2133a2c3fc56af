//! Quantised models that say so by pairs: `DequantizeLinear` in front of an operator on numbers and `QuantizeLinear` behind it.
//!
//! Such a convolution or product, with the integers that stand for its operands, is ONNX's operator on integers: it adds up exactly
//! what the pairs round. A ReLU between it and its `QuantizeLinear` does nothing where no integer stands for a number below 0.

use super::model::{Attribute, Model, Node};
use super::tensor::Tensor;
use crate::ir::DType;
use crate::workload::quant::largest_sum;
use std::collections::{BTreeMap, BTreeSet};

/// The operator that gives the entries of a table that integers stand for. No file has it.
pub(super) const TABLE: &str = "(table)";

/// Joins operators with the pairs around them, and leaves out what nothing needs any more.
pub(super) fn join(model: &mut Model) {
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for name in model.nodes.iter().flat_map(|node| &node.inputs).chain(&model.outputs) {
        *uses.entry(name).or_default() += 1;
    }
    let writers =
        model.nodes.iter().enumerate().flat_map(|(i, node)| node.outputs.iter().map(move |o| (o.as_str(), i)));
    let pairs = Pairs { model, writers: writers.collect(), uses };
    let quantizers = (0..model.nodes.len()).filter(|at| model.nodes[*at].op == "QuantizeLinear");
    let found: Vec<(usize, Joined)> =
        quantizers.filter_map(|at| Some((at, pairs.joined(at).or_else(|| pairs.table(at))?))).collect();
    replace(model, found);
}

/// Puts nodes in the places of others, and leaves out what nothing needs any more.
pub(super) fn replace(model: &mut Model, found: Vec<(usize, Joined)>) {
    if found.is_empty() {
        return;
    }
    let mut before = vec![];
    for (at, joined) in found {
        model.constants.extend(joined.constants);
        model.nodes[at] = joined.node;
        before.extend(joined.before.into_iter().map(|node| (at, node)));
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
const MOVES: [&str; 6] = ["MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"];

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
    /// Nodes that make its constants.
    pub(super) before: Vec<Node>,
    /// Constants that it takes.
    pub(super) constants: Vec<(String, Tensor)>,
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
        if MOVES.contains(&node.op.as_str()) {
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
        let (op, columns) = match node.op.as_str() {
            "Conv" => ("QLinearConv", 0),
            "MatMul" => ("QLinearMatMul", 1),
            "Gemm" if node.float("alpha", 1.0) == 1.0 && node.float("beta", 1.0) == 1.0 => {
                ("QGemm", usize::from(!node.flag("transB")))
            }
            _ => return None,
        };
        let x = self.quantised(node.inputs.first()?)?;
        let w = self.quantised(node.inputs.get(1)?)?;
        if !self.has_one_scale(&x[1]) || !self.sums_fit(&w, columns) {
            return None;
        }
        self.weights_fit(node.inputs.get(1)?, &w, columns)?;
        let mut constants = vec![];
        let bias = match node.inputs.get(2).filter(|name| !name.is_empty()) {
            None => None,
            Some(name) => Some(self.bias(name, &x[1], &w[1], &mut constants)?),
        };
        let output = [quantizer.inputs.get(1)?.clone(), zero];
        let mut inputs: Vec<String> = x.into_iter().chain(w).collect();
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
        Some(Joined { node: Node { name, op: op.into(), inputs, outputs, attributes }, constants, before: vec![] })
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
        let is_pair = |at: &usize| ["QuantizeLinear", "DequantizeLinear"].contains(&self.model.nodes[*at].op.as_str());
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
        let is_pair = ["QuantizeLinear", "DequantizeLinear"].contains(&node.op.as_str());
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
        if !same(&scale, other(1)) || !same(&zero, other(2)) {
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

    /// Whether sums by weights fit an i32, whatever the inputs; numbers take longer ones.
    fn sums_fit(&self, [weight, _, zero]: &[String; 3], channels: usize) -> bool {
        let Some(weight) = self.model.constants.get(weight) else { return false };
        let zeros = self.model.constants.get(zero).and_then(Tensor::to_integers);
        let has_zeros = !zero.is_empty() && zeros.is_none_or(|all| all.iter().any(|z| *z != 0));
        let columns = weight.shape.get(channels).copied().unwrap_or(1).max(1);
        let terms = weight.data.len() as i64 / columns;
        largest_sum(terms, weight.byte.map(|dtype| (dtype, has_zeros))) <= i64::from(i32::MAX)
    }

    /// Whether weights are constants with one scale, or with one for each output channel, which is an axis of them.
    fn weights_fit(&self, name: &str, [weight, scale, _]: &[String; 3], channels: usize) -> Option<()> {
        let (weight, scale) = (self.model.constants.get(weight)?, self.model.constants.get(scale)?);
        let axis = match self.writer(name)?.attributes.get("axis") {
            Some(Attribute::Integer(axis)) => *axis,
            _ => 1,
        };
        let rank = weight.shape.len() as i64;
        let of_channels = (if axis < 0 { axis + rank } else { axis }) == channels as i64
            && weight.shape.get(channels) == Some(&(scale.data.len() as i64));
        (weight.byte.is_some() && (scale.data.len() == 1 || of_channels)).then_some(())
    }

    /// A bias as integers whose scale is that of the sums: the one that the model has, or a constant of numbers, rounded.
    fn bias(&self, name: &str, of_x: &str, of_w: &str, constants: &mut Vec<(String, Tensor)>) -> Option<String> {
        let floats = |name: &str| self.model.constants.get(name).map(|tensor| tensor.to_floats());
        let (x, w) = (floats(of_x)?, floats(of_w)?);
        let of_sums = |c: usize| x[0] * w[c.min(w.len() - 1)];
        if let Some([bias, scale, zero]) = self.quantised(name) {
            let (scale, count) = (floats(&scale)?, self.model.constants.get(&bias)?.data.len());
            if scale.is_empty() {
                return None;
            }
            let near = |c: usize| (scale[c.min(scale.len() - 1)] - of_sums(c)).abs() <= 1e-6 * of_sums(c).abs();
            let none = self.model.constants.get(&zero).and_then(Tensor::to_integers);
            let zero_is_0 = zero.is_empty() || none.is_some_and(|all| all.iter().all(|z| *z == 0));
            return (zero_is_0 && (0..count).all(near)).then_some(bias);
        }
        let bias = self.model.constants.get(name)?;
        let rounded = bias
            .to_floats()
            .iter()
            .enumerate()
            .map(|(c, b)| (b / of_sums(c)).round_ties_even() as i64)
            .collect::<Vec<_>>();
        let within = |b: &i64| i32::try_from(*b).is_ok();
        let quantised = format!("{name} in {of_x} and {of_w}");
        rounded
            .iter()
            .all(within)
            .then(|| constants.push((quantised.clone(), Tensor::integers(&bias.shape, rounded))))?;
        Some(quantised)
    }
}
