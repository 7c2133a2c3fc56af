//! A network as steps: workloads in order, and the values between them.

use super::tensor::Tensor;
use crate::ir::DType;
use crate::workload::{Slices, Workload};
use std::fmt;

/// A value, by its place in [`Program::values`].
pub type ValueId = usize;

/// A network as steps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// All values.
    pub values: Vec<Value>,
    /// The steps in the order in which they run: each behind those whose results it takes.
    pub steps: Vec<Step>,
    /// What the caller gives: names and values.
    pub inputs: Vec<(String, ValueId)>,
    /// The results: names and values.
    pub outputs: Vec<(String, ValueId)>,
    /// What shapes and constants decided of its steps, node by node: which branch, how many rounds, which tensor of a sequence.
    pub(crate) decisions: Vec<(String, i64)>,
}

/// A tensor between steps.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// What the model calls it; empty if it has no name there.
    pub name: String,
    /// Its extents.
    pub shape: Vec<i64>,
    /// The type of its elements.
    pub dtype: DType,
    /// Where it comes from.
    pub source: Source,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Debug)]
pub enum Source {
    /// The caller.
    Input,
    /// The file.
    Constant(Tensor),
    /// A step.
    Step,
    /// Another value, whose elements it has in the same order.
    View(ValueId),
    /// Neighbouring elements of another value, from this one on.
    Part {
        /// The other value.
        of: ValueId,
        /// Its first element that is one of these.
        at: i64,
    },
}

/// One launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The nodes of the model that it computes.
    pub nodes: Vec<String>,
    /// What it computes.
    pub workload: Workload,
    /// How a spec says its operator.
    pub said: Said,
    /// Which of its tensors are slices of larger ones.
    pub slices: Slices,
    /// What it reads, in the order of the workload's parameters.
    pub operands: Vec<ValueId>,
    /// What it writes.
    pub output: ValueId,
}

/// How a spec says an operator: what stands in its `[[kernel]]` and in its `[[kernel.workload]]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Said {
    /// The flags that are set.
    pub flags: Vec<&'static str>,
    /// The keys of the workload, with their values as a spec writes them.
    pub keys: Vec<(&'static str, String)>,
}

/// One line a step: what it writes, its workload, and what it reads.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |id: &ValueId| {
            let (root, first) = self.place(*id);
            let mark = if matches!(self.values[root].source, Source::Constant(_)) { "c" } else { "v" };
            let part = if first == 0 { String::new() } else { format!("+{first}") };
            format!("{mark}{root}{part}")
        };
        let ports = |ports: &[(String, ValueId)]| {
            let ports = ports.iter().map(|(name, id)| format!("{name} = {}{:?}", value(id), self.values[*id].shape));
            ports.collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "inputs {}", ports(&self.inputs))?;
        for step in &self.steps {
            let operands: Vec<String> = step.operands.iter().map(value).collect();
            let shape = &self.values[step.output].shape;
            let (output, key) = (value(&step.output), step.workload.key());
            let into = step.slices.into.map_or(String::new(), |into| format!(" at {} of {}", into.at, into.of));
            writeln!(f, "{output}{shape:?}{into} = {key}({})  # {}", operands.join(", "), step.nodes.join(", "))?;
        }
        writeln!(f, "outputs {}", ports(&self.outputs))
    }
}

impl Program {
    /// Adds a value.
    pub(super) fn add(&mut self, shape: &[i64], dtype: DType, source: Source) -> ValueId {
        self.values.push(Value { name: String::new(), shape: shape.to_vec(), dtype, source });
        self.values.len() - 1
    }

    /// Adds a constant.
    pub(super) fn add_constant(&mut self, tensor: Tensor) -> ValueId {
        let whole = tensor.byte.unwrap_or(DType::I64);
        let dtype = if tensor.is_integer() { whole } else { DType::F32 };
        let shape = tensor.shape.clone();
        self.add(&shape, dtype, Source::Constant(tensor))
    }

    /// The value whose elements a value has: itself, unless it is a view or a part.
    pub fn root(&self, id: ValueId) -> ValueId {
        self.place(id).0
    }

    /// The value whose elements a value has, and the first of them.
    pub fn place(&self, mut id: ValueId) -> (ValueId, i64) {
        let mut first = 0;
        loop {
            match self.values[id].source {
                Source::View(of) => id = of,
                Source::Part { of, at } => (id, first) = (of, first + at),
                _ => return (id, first),
            }
        }
    }

    /// The constant that a value is, in the value's shape.
    pub fn constant(&self, id: ValueId) -> Option<Tensor> {
        let (root, _) = self.place(id);
        match &self.values[root].source {
            Source::Constant(tensor) if self.elements(root) == self.elements(id) => {
                Some(tensor.with_shape(&self.values[id].shape))
            }
            _ => None,
        }
    }

    /// Number of elements of a value.
    pub fn elements(&self, id: ValueId) -> i64 {
        self.values[id].shape.iter().product()
    }

    /// How often each value is read, through views and as a result of the network.
    pub(super) fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.values.len()];
        let read = self.steps.iter().flat_map(|step| &step.operands).chain(self.outputs.iter().map(|(_, id)| id));
        for id in read {
            uses[self.root(*id)] += 1;
        }
        uses
    }

    /// The step that writes each value.
    pub(super) fn writers(&self) -> Vec<Option<usize>> {
        let mut writers = vec![None; self.values.len()];
        for (i, step) in self.steps.iter().enumerate() {
            writers[step.output] = Some(i);
        }
        writers
    }
}
