//! A model as its file says it: nodes by name, before anything is known of shapes.

use super::problem::{Fault, Problem};
use super::tensor::{Tensor, is_shape};
use crate::diagnostic::{Array, Element};
use crate::ir::DType;
use crate::ir::bits::{bf16_bits, bf16_value, f16_bits, f16_value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The operator that gives the entries of a table that integers stand for. No file has it.
pub(super) const TABLE: &str = "(table)";

/// A convolution or product whose operands are integers, and whose result is numbers: that in its attribute of this name. No file has it.
pub(super) const SUMS: &str = "(sums)";

/// A model.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// The version of the standard's operators.
    pub(super) opset: i64,
    /// What the caller gives, without initialisers.
    pub(super) inputs: Vec<Input>,
    /// The names of the results.
    pub(super) outputs: Vec<String>,
    /// Constants by name.
    pub(super) constants: BTreeMap<String, Tensor>,
    /// The files that it was read from: its own, and those of external data.
    pub(super) files: BTreeSet<PathBuf>,
    /// The nodes, each behind those whose results it takes.
    pub(super) nodes: Vec<Node>,
}

impl Model {
    /// The type of its numbers: that of the inputs, `f32` where they differ.
    pub(super) fn dtype(&self) -> DType {
        let mut types = self.inputs.iter().map(|input| input.dtype).filter(|dtype| dtype.is_float());
        let first = types.next().unwrap_or(DType::F32);
        if types.all(|dtype| dtype == first) { first } else { DType::F32 }
    }

    /// Makes constants of inputs, by name.
    ///
    /// # Errors
    /// Names that no input has, and values that it cannot have.
    pub(super) fn fix(&mut self, constants: &BTreeMap<String, Array>) -> Result<(), Vec<Problem>> {
        let mut problems = vec![];
        for (name, array) in constants {
            let Some(at) = self.inputs.iter().position(|input| input.name == *name) else {
                let known = Fault::new("the file gives it a value", "leave it out, or change it in the file");
                problems.push(match self.constants.contains_key(name) {
                    true => Problem::at(format!("input `{name}`"), known),
                    false => self.no_input(name),
                });
                continue;
            };
            match self.inputs[at].value(array) {
                Ok(tensor) => drop(self.constants.insert(self.inputs.remove(at).name, tensor)),
                Err(fault) => problems.push(Problem::at(format!("input `{name}`"), fault)),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// That the model has no input of a name.
    pub(super) fn no_input(&self, name: &str) -> Problem {
        let all: Vec<String> = self.inputs.iter().map(|input| format!("`{}`", input.name)).collect();
        let help = if all.is_empty() { "it has none".into() } else { format!("its inputs are {}", all.join(", ")) };
        let fault = Fault::new("the model has no such input", help);
        Problem::at(format!("input `{name}`"), fault)
    }

    /// Whether there are convolutions of integers of eight bits, or products that files say so.
    pub(super) fn is_quantised(&self) -> bool {
        let of_integers = ["QLinearConv", "QLinearMatMul", "QGemm", "ConvInteger", "MatMulInteger"];
        let sums = |node: &Node| node.op == SUMS && node.text(SUMS, "") == "Conv";
        self.nodes.iter().any(|node| of_integers.contains(&node.op.as_str()) || sums(node))
    }
}

/// A tensor that the caller gives.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Input {
    /// Its name.
    pub(super) name: String,
    /// Its extents, if the file says how many there are.
    pub(super) shape: Option<Vec<Extent>>,
    /// The type of its elements.
    pub(super) dtype: DType,
    /// Whether they are truth values.
    pub(super) truth: bool,
    /// The least and the largest that they can be, of integers.
    pub(super) limits: [i64; 2],
}

/// Most elements of an input that is a constant of the spec: one number may stand for all.
const MOST_OF_CONSTANT: usize = 1 << 26;

impl Input {
    /// The constant that it becomes. One number stands for all elements where the file says how many there are.
    fn value(&self, array: &Array) -> Result<Tensor, Fault> {
        let known = |extent: &Extent| if let Extent::Known(n) = extent { Some(*n) } else { None };
        let whole: Option<Vec<i64>> = self.shape.as_ref().map_or(Some(vec![]), |s| s.iter().map(known).collect());
        let fits = |shape: &Vec<Extent>| {
            shape.len() == array.shape.len()
                && shape.iter().zip(&array.shape).all(|(e, n)| known(e).is_none_or(|k| k == *n))
        };
        let repeats = array.shape.is_empty().then_some(whole).flatten().filter(|shape| is_shape(shape));
        let Some(shape) = repeats.or(self.shape.as_ref().is_none_or(fits).then_some(array.shape.clone())) else {
            let extents = self.shape.iter().flatten().map(|e| known(e).map_or("?".into(), |n| n.to_string()));
            let cause = format!(
                "its shape is [{}], and its constant has {:?}",
                extents.collect::<Vec<_>>().join(", "),
                array.shape
            );
            return Err(Fault::new(cause, "write an array of that shape"));
        };
        let number = shape.iter().product::<i64>() as usize;
        if number > MOST_OF_CONSTANT {
            let cause = format!("its constant has {number} elements");
            return Err(Fault::new(cause, format!("leave it an input, or give it at most {MOST_OF_CONSTANT}")));
        }
        let each = array.elements.iter().cycle().take(number);
        if self.dtype.is_float() {
            let float = |element: &Element| {
                let value = match element {
                    Element::Integer(n) => *n as f32,
                    Element::Float(v) => *v as f32,
                };
                match self.dtype {
                    DType::F16 => f16_value(f16_bits(value)),
                    DType::Bf16 => bf16_value(bf16_bits(value)),
                    _ => value,
                }
            };
            return Ok(Tensor::floats(&shape, each.map(float).collect::<Vec<_>>()));
        }
        let [least, largest] = self.limits;
        let (range, help) = (least..=largest, format!("write integers from {least} to {largest}"));
        let help = if self.truth { "write true or false".into() } else { help };
        let integer = |element: &Element| match element {
            Element::Integer(n) if range.contains(n) => Ok(*n),
            Element::Integer(n) => Err(format!("its constant holds {n}")),
            Element::Float(v) => Err(format!("its elements are integers, and its constant holds {v}")),
        };
        let all = each.map(integer).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|cause| Fault::new(cause, help))?;
        Ok(match self.dtype.is_byte() {
            true => Tensor::bytes(&shape, self.dtype, all),
            false => Tensor::integers(&shape, all),
        })
    }
}

/// An extent of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    /// A number.
    Known(i64),
    /// A name that the spec gives a number, or nothing.
    Named(String),
}

/// A graph within a node: a branch, or what a loop does in each round.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Graph {
    /// The names of what the node gives it. It takes values from around the node as well.
    pub(super) inputs: Vec<String>,
    /// The names of the results.
    pub(super) outputs: Vec<String>,
    /// Constants by name.
    pub(super) constants: BTreeMap<String, Tensor>,
    /// The nodes, each behind those whose results it takes.
    pub(super) nodes: Vec<Node>,
}

impl Graph {
    /// The names of its inputs, constants and of what its nodes give.
    pub(super) fn own(&self) -> impl Iterator<Item = &String> {
        self.nodes.iter().flat_map(|node| &node.outputs).chain(&self.inputs).chain(self.constants.keys())
    }

    /// The names that it takes from around its node.
    pub(super) fn captured(&self) -> BTreeSet<&String> {
        let given: BTreeSet<&String> = self.own().collect();
        let taken = self.nodes.iter().flat_map(|node| &node.inputs).chain(&self.outputs);
        taken.filter(|name| !name.is_empty() && !given.contains(name)).collect()
    }
}

/// A node.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Node {
    /// Its name, or the name of its first output.
    pub(super) name: String,
    /// The operator.
    pub(super) op: String,
    /// The values that it takes; one that is left out has no name. What its graphs take stands behind what it takes itself.
    pub(super) inputs: Vec<String>,
    /// The values that it gives.
    pub(super) outputs: Vec<String>,
    /// The attributes by name.
    pub(super) attributes: BTreeMap<String, Attribute>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Attribute {
    /// An integer.
    Integer(i64),
    /// A number.
    Float(f32),
    /// A text.
    Text(String),
    /// Integers.
    Integers(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Texts.
    Texts(Vec<String>),
    /// A tensor.
    Tensor(Tensor),
    /// A graph.
    Graph(Graph),
    /// Anything else.
    Other(&'static str),
}

impl Node {
    /// An integer, or what stands for it where it is missing.
    pub(super) fn integer(&self, name: &str, otherwise: i64) -> i64 {
        match self.attributes.get(name) {
            Some(Attribute::Integer(value)) => *value,
            _ => otherwise,
        }
    }

    /// Whether an integer is there and not 0.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.integer(name, 0) != 0
    }

    /// Whether an integer is not 0, or what stands for it where it is missing.
    pub(super) fn flag_or(&self, name: &str, otherwise: bool) -> bool {
        self.integer(name, otherwise.into()) != 0
    }

    /// `axis` of a pair, counted from the front of so many dimensions; it may be none of them.
    pub(super) fn axis(&self, rank: usize) -> i64 {
        let axis = self.integer("axis", 1);
        if axis < 0 { axis + rank as i64 } else { axis }
    }

    /// A number, or what stands for it where it is missing.
    pub(super) fn float(&self, name: &str, otherwise: f32) -> f32 {
        match self.attributes.get(name) {
            Some(Attribute::Float(value)) => *value,
            _ => otherwise,
        }
    }

    /// What a `Constant` is.
    pub(super) fn tensor(&self) -> Option<Tensor> {
        Some(match self.attributes.values().next()? {
            Attribute::Tensor(tensor) => tensor.clone(),
            Attribute::Float(value) => Tensor::floats(&[], [*value]),
            Attribute::Integer(value) => Tensor::integers(&[], [*value]),
            Attribute::Floats(list) => Tensor::floats(&[list.len() as i64], list.clone()),
            Attribute::Integers(list) => Tensor::integers(&[list.len() as i64], list.clone()),
            _ => return None,
        })
    }

    /// A list of integers, if it is there.
    pub(super) fn integers(&self, name: &str) -> Option<Vec<i64>> {
        match self.attributes.get(name) {
            Some(Attribute::Integers(values)) => Some(values.clone()),
            _ => None,
        }
    }

    /// A text, or what stands for it where it is missing.
    pub(super) fn text<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        match self.attributes.get(name) {
            Some(Attribute::Text(value)) => value,
            _ => otherwise,
        }
    }
}
