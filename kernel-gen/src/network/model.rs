//! A model as its file says it: nodes by name, before anything is known of shapes.

use super::tensor::Tensor;
use crate::ir::DType;
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
}

/// An extent of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    /// A number.
    Known(i64),
    /// A name that the spec gives a number, or nothing.
    Named(String),
}

/// A node.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// Its name, or the name of its first output.
    pub(super) name: String,
    /// The operator.
    pub(super) op: String,
    /// The values that it takes; one that is left out has no name.
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
    /// Anything else, such as a graph.
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
