//! Makes steps of nodes: what every operator's translation is written with.

use super::operands::Bound;
use crate::ir::DType;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::{Program, Said, Source, Step, ValueId};
use crate::network::tensor::{Data, Tensor, is_shape};
use crate::workload::operator::{OfBytes, Shared, Values};
use crate::workload::operators::kind;
use crate::workload::{ConvLayout, Epilogue, Math, Number, Op, Quant, Role, Slices, Workload, reference};
use std::collections::{BTreeMap, BTreeSet};

/// Most elements of all constants that are computed.
const MOST_ELEMENTS: i64 = 1 << 29;

/// Most terms that these are computed of.
const MOST_WORK: i64 = 1 << 32;

/// Operators whose results are truth values.
const TRUTHS: [&str; 11] = [
    "equal",
    "less",
    "less_or_equal",
    "greater",
    "greater_or_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "is_nan",
    "is_inf",
];

/// Makes the result of a node.
pub(super) type One = fn(&mut Builder, &Node, &[Option<ValueId>]) -> Result<ValueId, Fault>;

/// The steps so far, and the values by their names.
#[derive(Default)]
pub(super) struct Builder {
    /// The steps and values.
    pub(super) program: Program,
    /// Values by name.
    pub(super) names: BTreeMap<String, Bound>,
    /// The version of the standard's operators.
    pub(super) opset: i64,
    /// The node that is translated.
    pub(super) node: String,
    /// The nodes around it, whose graphs hold it, each with what tells its rounds and branches apart; ends in `/` if there are any.
    pub(super) scope: String,
    /// Nodes in the places of loops and branches.
    pub(super) nodes: usize,
    /// The inputs that are truth values.
    pub(super) truths: BTreeSet<ValueId>,
    /// Constants of the model by where their elements lie, which they hold on to, and by shape and type.
    shared: BTreeMap<(usize, Vec<i64>, Option<DType>), ValueId>,
    /// Elements of all constants that were computed.
    computed: i64,
    /// Terms that they were computed of.
    work: i64,
}

/// An operator with its operands, as a spec would say it.
#[derive(Default)]
pub(super) struct Call {
    /// The operator.
    kind: &'static str,
    /// The flags that are set.
    flags: Vec<&'static str>,
    /// The keys of its workload.
    keys: Vec<(&'static str, Vec<i64>)>,
    /// What is done to the result.
    epilogue: Vec<Epilogue>,
    /// The operands: zero points behind those of the operator, those of the epilogue last.
    operands: Vec<ValueId>,
    /// The type of inputs that are integers, and what goes with it.
    integers: Option<(DType, Quant)>,
    /// The type of the result, if it is not that of the operator.
    out: Option<DType>,
}

impl Call {
    /// An operator without keys.
    pub(super) fn new(kind: &'static str, operands: &[ValueId]) -> Call {
        Call { kind, operands: operands.to_vec(), ..Call::default() }
    }

    /// Of these operands.
    pub(super) fn of(self, operands: &[ValueId]) -> Call {
        Call { operands: operands.to_vec(), ..self }
    }

    /// With a key of one integer or several.
    pub(super) fn key(mut self, name: &'static str, value: &[i64]) -> Call {
        self.keys.push((name, value.to_vec()));
        self
    }

    /// Whether it has padding around its input.
    pub(super) fn pads(&self) -> bool {
        self.keys.iter().any(|(name, all)| *name == "padding" && all.iter().any(|n| *n != 0))
    }

    /// With a key of a number.
    pub(super) fn number(self, name: &'static str, value: f32) -> Result<Call, Fault> {
        Ok(self.key(name, &[number(name, value)?.to_size()]))
    }

    /// With a flag, if it is set.
    pub(super) fn flag(mut self, name: &'static str, is_set: bool) -> Call {
        self.flags.extend(is_set.then_some(name));
        self
    }

    /// Of inputs that are integers of eight bits, whose zero points are operands behind those there are.
    pub(super) fn integers(mut self, dtype: DType, quant: Quant, zeros: impl IntoIterator<Item = ValueId>) -> Call {
        self.integers = Some((dtype, quant));
        self.operands.extend(zeros);
        self
    }

    /// With a result of another type.
    pub(super) fn gives(self, dtype: DType) -> Call {
        Call { out: Some(dtype), ..self }
    }

    /// With one more step of the epilogue, and its operands.
    pub(super) fn then(mut self, step: Epilogue, operands: &[ValueId]) -> Call {
        self.epilogue.push(step);
        self.operands.extend(operands);
        self
    }
}

/// A number of an operator or a step.
pub(super) fn number(name: &str, value: f32) -> Result<Number, Fault> {
    Number::or_infinite(value).ok_or_else(|| Fault::new(format!("`{name}` is not a number"), "export the model again"))
}

impl Builder {
    /// Nothing yet, of a model with this version of the operators.
    pub(super) fn new(opset: i64) -> Builder {
        Builder { opset, ..Builder::default() }
    }

    /// The name of a node or value with those of the nodes around it.
    pub(super) fn scoped(&self, name: &str) -> String {
        format!("{}{name}", self.scope)
    }

    /// Notes what shapes and constants decide of a node.
    pub(super) fn decide(&mut self, node: &Node, decision: i64) {
        let place = self.place(node);
        self.program.decisions.push((place, decision));
    }

    /// A node in messages.
    pub(super) fn place(&self, node: &Node) -> String {
        format!("node `{}` ({})", self.scoped(&node.name), node.op)
    }

    /// The extents of a value.
    pub(super) fn shape(&self, id: ValueId) -> Vec<i64> {
        self.program.values[id].shape.clone()
    }

    /// The same; a scalar has one extent of 1, as operators want it.
    pub(super) fn extents(&self, id: ValueId) -> Vec<i64> {
        let shape = self.shape(id);
        if shape.is_empty() { vec![1] } else { shape }
    }

    /// The constant that a value is.
    pub(super) fn constant(&self, id: ValueId) -> Option<Tensor> {
        self.program.constant(id)
    }

    /// The integers of an operand that must be known when the model is compiled.
    pub(super) fn integers(&self, what: &str, id: ValueId) -> Result<Vec<i64>, Fault> {
        self.constant(id).and_then(|c| c.to_integers()).ok_or_else(|| {
            Fault::new(
                format!("its {what} are computed from the data of an input"),
                "export the model with shapes that do not depend on data",
            )
        })
    }

    /// The numbers of an operand that must be known when the model is compiled.
    pub(super) fn floats(&self, what: &str, id: ValueId) -> Result<Vec<f32>, Fault> {
        self.constant(id).map(|c| c.to_floats().to_vec()).ok_or_else(|| {
            Fault::new(
                format!("its {what} is computed when the network runs"),
                format!("export the model with a constant {what}"),
            )
        })
    }

    /// A new constant.
    pub(super) fn add_constant(&mut self, tensor: Tensor) -> ValueId {
        self.program.add_constant(tensor)
    }

    /// A constant of the model: once, however often its node is translated.
    pub(super) fn share_constant(&mut self, tensor: &Tensor) -> ValueId {
        let key = (tensor.data.address(), tensor.shape.clone(), tensor.byte);
        if let Some(id) = self.shared.get(&key) {
            return *id;
        }
        let id = self.add_constant(tensor.clone());
        self.shared.insert(key, id);
        id
    }

    /// A constant of numbers, or of integers as numbers.
    pub(super) fn numbers(&mut self, id: ValueId) -> ValueId {
        match self.constant(id) {
            Some(tensor) if tensor.is_integer() => {
                let floats = Tensor::floats(&tensor.shape, tensor.to_floats());
                self.add_constant(floats)
            }
            _ => id,
        }
    }

    /// Whether a value that is computed when the network runs holds truth values, as far as moving, joining and choosing them does not hide
    /// it.
    pub(super) fn is_truth(&self, id: ValueId) -> bool {
        let (mut all, mut seen, mut computed) = (vec![id], BTreeSet::new(), false);
        while let Some(id) = all.pop() {
            if let Some(tensor) = self.constant(id) {
                if !tensor.is_integer() || tensor.to_floats().iter().any(|v| ![0.0, 1.0].contains(v)) {
                    return false;
                }
                continue;
            }
            let (root, Some(step)) = self.origin(id) else { return false };
            if !seen.insert(root) {
                continue;
            }
            match step.workload.op_name() {
                name if TRUTHS.contains(&name) => computed = true,
                "where" => all.extend(&step.operands[1..]),
                "concat" => all.extend(&step.operands),
                _ => return false,
            }
        }
        computed
    }

    /// Whether a value holds truth values that the caller gives, in the same way.
    pub(super) fn is_given_truth(&self, id: ValueId) -> bool {
        self.truths.contains(&self.origin(id).0)
    }

    /// What a value is moved from, and the step that computes it.
    pub(super) fn origin(&self, id: ValueId) -> (ValueId, Option<&Step>) {
        let mut root = self.program.root(id);
        // Steps stand behind those whose results they take.
        for step in self.program.steps.iter().rev() {
            match step.workload.op {
                _ if step.output != root => {}
                Op::Movement(_) => root = self.program.root(step.operands[0]),
                _ => return (root, Some(step)),
            }
        }
        (root, None)
    }

    /// A value with the same elements in another shape.
    pub(super) fn view(&mut self, id: ValueId, shape: &[i64]) -> Result<ValueId, Fault> {
        let old = self.shape(id);
        if old == shape {
            return Ok(id);
        }
        if !is_shape(shape) || old.iter().product::<i64>() != shape.iter().product::<i64>() {
            let cause = format!("a tensor of {old:?} cannot take the shape {shape:?}");
            return Err(Fault::new(cause, "check the extents that the spec gives the inputs"));
        }
        let dtype = self.program.values[id].dtype;
        let source = match self.constant(id) {
            Some(tensor) => Source::Constant(tensor.with_shape(shape)),
            None => Source::View(id),
        };
        Ok(self.program.add(shape, dtype, source))
    }

    /// The result of an operator, in the shape that it has there. Of constants alone it is a constant.
    pub(super) fn compute(&mut self, call: Call) -> Result<ValueId, Fault> {
        let kind =
            kind(call.kind).ok_or_else(|| Fault::new(format!("there is no operator {}", call.kind), "report it"))?;
        let flags = kind.flags.iter().map(|name| call.flags.contains(name)).collect();
        let shared = Shared { name: kind.name, layout: ConvLayout::Nchw, flags, between: vec![] };
        let mut said = Said { flags: call.flags.clone(), keys: vec![] };
        for key in (kind.keys)(&shared) {
            let found = call.keys.iter().find(|(name, _)| *name == key.name);
            let fits =
                |values: &[i64]| key.lengths.is_empty() && values.len() == 1 || key.lengths.contains(&values.len());
            if found.map_or(key.example.is_some(), |(_, values)| !fits(values)) {
                let cause = format!("{} takes no {} of {:?}", kind.name, key.name, found.map(|(_, v)| &v[..]));
                return Err(Fault::new(cause, "use tensors of at most six dimensions"));
            }
            let text = |values: &[i64]| match Number::of_size(values[0]).filter(|_| key.fractional) {
                Some(number) => format!("{number:?}"),
                None if key.lengths.is_empty() => values[0].to_string(),
                None => format!("{values:?}"),
            };
            said.keys.extend(found.map(|(_, values)| (key.name, text(values))));
        }
        let invalid = |cause: String, help: String| Fault::new(format!("as a {}, {cause}", kind.name), help);
        let op = (kind.read)(&shared, &Values(call.keys)).map_err(|fault| invalid(fault.cause, fault.help))?;
        op.get().validate().map_err(|error| invalid(error.cause(), error.help()))?;
        let (dtype, quant) = call.integers.unwrap_or((self.type_of(&op, &call.operands), Quant::default()));
        let truths = (dtype == DType::I32 && TRUTHS.contains(&kind.name)).then_some(DType::F32);
        let out_dtype = call.out.or(truths).unwrap_or(op.output_type(dtype));
        let workload = Workload { op, dtype, out_dtype, math: Math::default(), epilogue: call.epilogue, quant };
        workload.validate().map_err(|error| invalid(error.cause(), error.help()))?;
        let params = workload.params();
        let expected: Vec<i64> = params.iter().map(|p| p.elements()).collect();
        let given: Vec<i64> = call.operands.iter().map(|id| self.program.elements(*id)).collect();
        if expected[..expected.len() - 1] != given {
            let cause = format!("the operands have {given:?} elements, not {:?}", &expected[..expected.len() - 1]);
            return Err(invalid(cause, "check the shapes of the model's weights".into()));
        }
        let constants: Option<Vec<Tensor>> = call.operands.iter().map(|id| self.constant(*id)).collect();
        if let Some(constants) = constants {
            let read = given.iter().fold(0i64, |sum, elements| sum.saturating_add(*elements));
            self.allow(workload.output_shape().iter().product(), workload.macs().saturating_add(read))?;
            return Ok(self.fold(&workload, &constants));
        }
        for (param, id) in params.iter().zip(&call.operands) {
            let dtype = self.program.values[*id].dtype;
            let fits = match self.constant(*id) {
                Some(constant) => constant.is_integer() || !param.dtype.is_int(),
                None => dtype == param.dtype,
            };
            if !fits {
                let cause =
                    format!("`{}` is computed as {} where {} is needed", param.name, dtype.name(), param.dtype.name());
                return Err(invalid(cause, "cast it, or let it be a constant".into()));
            }
        }
        let output = self.program.add(&workload.output_shape(), out_dtype, Source::Step);
        let step = Step {
            nodes: vec![self.node.clone()],
            workload,
            said,
            slices: Slices::default(),
            operands: call.operands,
            output,
        };
        self.program.steps.push(step);
        Ok(output)
    }

    /// The type of an operator's inputs: integers of eight bits are moved as what they are, those of 32 bits stay so.
    fn type_of(&mut self, op: &Op, operands: &[ValueId]) -> DType {
        let of_first = operands.first().map_or(DType::F32, |id| self.program.values[*id].dtype);
        if matches!(op.get().of_bytes(), OfBytes::Moves | OfBytes::Bytes) && of_first.is_byte() {
            return of_first;
        }
        let mut dtype = DType::F32;
        for (operand, id) in op.get().inputs().iter().zip(operands) {
            if self.is_integer(*id) {
                self.narrow(*id);
                dtype = if operand.role == Role::Index { dtype } else { DType::I32 };
            }
        }
        dtype
    }

    /// The sums of integers that a value is, as numbers: computed by a step like the one that gives the integers. None of other values.
    pub(super) fn as_numbers(&mut self, id: ValueId) -> Result<Option<ValueId>, Fault> {
        let root = self.program.root(id);
        let step = self.program.steps.iter().find(|step| step.output == root);
        let Some(step) = step.filter(|step| step.workload.is_quantised() && step.workload.out_dtype == DType::I32)
        else {
            return Ok(None);
        };
        let mut step = step.clone();
        let channels = step.workload.channels();
        let ones = vec![1.0; channels.max(0) as usize];
        step.operands.push(self.add_constant(Tensor::floats(&[channels], ones)));
        step.workload.epilogue.push(Epilogue::Dequantize);
        step.workload.out_dtype = DType::F32;
        let invalid = |error: crate::workload::WorkloadError| Fault::new(error.cause(), error.help());
        step.workload.validate().map_err(invalid)?;
        step.nodes.push(self.node.clone());
        let whole = self.program.add(&step.workload.output_shape(), DType::F32, Source::Step);
        step.output = whole;
        self.program.steps.push(step);
        let shape = self.shape(id);
        self.view(whole, &shape).map(Some)
    }

    /// Adds the elements and terms of a computed constant to the totals, and refuses more than the limits: a small file may ask for
    /// terabytes.
    pub(super) fn allow(&mut self, elements: i64, work: i64) -> Result<(), Fault> {
        self.computed = self.computed.saturating_add(elements.max(0));
        self.work = self.work.saturating_add(work.max(0));
        if self.computed <= MOST_ELEMENTS && self.work <= MOST_WORK {
            return Ok(());
        }
        let cause = format!("with it, constants of {} elements are computed from the file", self.computed);
        Err(Fault::new(cause, "let the network compute them: give it inputs, or export the constants"))
    }

    /// What an operator gives for constants. Of integers it gives integers, rounded towards zero.
    fn fold(&mut self, workload: &Workload, operands: &[Tensor]) -> ValueId {
        let inputs: Vec<Vec<f64>> = operands.iter().map(Tensor::to_doubles).collect();
        let inputs: Vec<&[f64]> = inputs.iter().map(|v| &v[..]).collect();
        let result = reference(workload, &inputs);
        let values = if workload.op_name() == "where" { &operands[1..] } else { operands };
        let is_truth = TRUTHS.contains(&workload.op_name());
        let made = workload.out_dtype.is_float() && workload.is_quantised();
        let integer = !made && (workload.out_dtype.is_int() || is_truth || values.iter().all(Tensor::is_integer));
        let data = match integer {
            true => Data::Integers(result.iter().map(|v| *v as i64).collect()),
            false => Data::Floats(result.iter().map(|v| *v as f32).collect()),
        };
        let byte = Some(workload.out_dtype).filter(|dtype| dtype.is_byte());
        self.add_constant(Tensor { shape: workload.output_shape(), data, byte, four_bits: false })
    }
}
