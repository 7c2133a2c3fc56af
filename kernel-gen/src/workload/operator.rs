//! Operators as data: what the rest of the library asks each.
//!
//! An operator is one file with a struct of sizes, the [`Kind`]s that specs and keys name, and an [`Operator`]: tensors, stages,
//! limits. Keys, spec keys, parameters, the naive kernel, counts of work, samples, error bounds and the distance between shapes
//! follow from these. Its line in `operators.rs` makes it known everywhere; its reference in `f64` is written by hand,
//! so that definition and check stay independent.

use super::definition::Workload;
use super::dims::ABSENT;
use super::epilogue::Epilogue;
use super::error::WorkloadError;
use super::layout::ConvLayout;
use super::number::Number;
use super::operators::Op;
use super::param::Role;
use super::products::Sums;
use super::stage::{Axis, Stage};
use crate::ir::{DType, Expr};
use std::fmt;

/// One size of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    /// Its name, by which the spec's keys refer to it.
    pub(crate) name: &'static str,
    /// What it is, in errors: `ci (the input channels)`.
    pub(crate) what: &'static str,
    /// What it counts.
    pub(crate) role: SizeRole,
}

impl Size {
    /// A size.
    pub(crate) const fn new(name: &'static str, what: &'static str, role: SizeRole) -> Size {
        Size { name, what, role }
    }
}

/// What a size counts. From it follow which values are valid, how samples are drawn, and how much two sizes that differ set two
/// shapes apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SizeRole {
    /// Images, rows of a product.
    Images,
    /// Channels, columns of a product, the length of its sums.
    Channels,
    /// Pixels in a direction.
    Extent,
    /// Taps of a window in a direction.
    Taps,
    /// Steps of a window.
    Stride,
    /// Pixels around the input on one side; may be 0.
    Padding,
    /// Distance between taps.
    Dilation,
    /// Groups of channels.
    Groups,
    /// One of the alternatives of the key's pattern, counted from 0.
    Choice,
    /// Digits of a small number that is added, of no account for the time.
    Digits,
    /// The extent of a tensor's dimension, by its place in a [list](super::dims::Dims).
    Dimension,
    /// The extent of the dimension of a second operand: that of the first operand's, or one of the two is 1.
    Broadcast,
    /// The same of the second factor of a product of matrices, which the last two dimensions are.
    Factor,
    /// Which dimension of another tensor one is.
    Order,
    /// Where a part of a dimension begins; may be 0.
    Offset,
    /// The distance of elements along a dimension; below 0 it leads backwards.
    Step,
    /// How often the elements of a dimension follow each other.
    Repeats,
    /// Whether something is done along a dimension: 0 or 1.
    Mark,
    /// No size: a [`Number`] by its bits, of no account for the time.
    Number,
}

/// What a spec and a key call an operator, and how they write it.
pub(crate) struct Kind {
    /// The name.
    pub(crate) name: &'static str,
    /// How a key writes the sizes: `{}` is a number, `{n|t}` one of several words, `{x}` a [list](super::dims::Dims) with `x` between its numbers, `{f}` a
    /// [`Number`].
    pub(crate) pattern: &'static str,
    /// The sizes in the order of the pattern.
    pub(crate) sizes: &'static [Size],
    /// The layouts that it has; empty where tensors have one form.
    pub(crate) layouts: &'static [ConvLayout],
    /// Keys of `[[kernel]]` that are `true` or `false`.
    pub(crate) flags: &'static [&'static str],
    /// The steps that `depthwise_epilogue` takes, if there is that key.
    pub(crate) between: &'static [Epilogue],
    /// The types that the output may have; the first where that of the inputs is none of them and nobody says.
    pub(crate) outputs: &'static [DType],
    /// The keys of `[[kernel.workload]]`.
    pub(crate) keys: fn(&Shared) -> Vec<SpecKey>,
    /// The operator that a spec asks for.
    pub(crate) read: fn(&Shared, &Values) -> Result<Op, Fault>,
    /// The operator of these sizes, in the order of the pattern, if a key may hold them.
    pub(crate) of_sizes: fn(ConvLayout, &[i64]) -> Option<Op>,
    /// The key of a spec that is to blame for an error.
    pub(crate) guilty: fn(&WorkloadError) -> &'static str,
}

/// The types of outputs that are numbers.
pub(crate) const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::Bf16];

/// Floats of eight bits: of inputs and outputs where an operator [takes](OfBytes) them.
pub(crate) const F8: &[DType] = &[DType::E4m3, DType::E5m2];

/// The types of outputs that are indices.
pub(crate) const INDICES: &[DType] = &[DType::I64, DType::I32];

/// What the workloads of a `[[kernel]]` have in common.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// The operator's name.
    pub(crate) name: &'static str,
    /// The layout.
    pub(crate) layout: ConvLayout,
    /// The flags, in the order of [`Kind::flags`].
    pub(crate) flags: Vec<bool>,
    /// The steps of `depthwise_epilogue`.
    pub(crate) between: Vec<Epilogue>,
}

impl Shared {
    /// Whether a flag is set.
    pub(crate) fn has(&self, flag: &str) -> bool {
        let flags = super::operators::kind(self.name).map_or(&[][..], |kind| kind.flags);
        flags.iter().zip(&self.flags).any(|(name, set)| *name == flag && *set)
    }
}

/// A key of `[[kernel.workload]]`, which holds one integer or several, or a [`Number`].
#[derive(Clone, Debug)]
pub(crate) struct SpecKey {
    /// The key.
    pub(crate) name: &'static str,
    /// How many integers it may have; none for a plain integer.
    pub(crate) lengths: &'static [usize],
    /// Whether it holds a number that need not be whole; `inf` and `-inf` are some.
    pub(crate) fractional: bool,
    /// What to write, if it must be there.
    pub(crate) example: Option<String>,
}

impl SpecKey {
    /// A key that must be there.
    pub(crate) fn required(name: &'static str, lengths: &'static [usize], shape: &str) -> SpecKey {
        SpecKey { name, lengths, fractional: false, example: Some(format!("{name} = {shape}")) }
    }

    /// A key that may be left out.
    pub(crate) fn optional(name: &'static str, lengths: &'static [usize]) -> SpecKey {
        SpecKey { name, lengths, fractional: false, example: None }
    }

    /// A key of a number.
    pub(crate) fn number(name: &'static str, example: Option<&str>) -> SpecKey {
        let example = example.map(|number| format!("{name} = {number}"));
        SpecKey { name, lengths: &[], fractional: true, example }
    }
}

/// The integers of the keys that are there; numbers by their bits.
pub(crate) struct Values(pub(crate) Vec<(&'static str, Vec<i64>)>);

impl Values {
    /// The integers of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&[i64]> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, values)| &values[..])
    }

    /// The integers of a key that must be there, whose number was checked.
    pub(crate) fn shape<const N: usize>(&self, key: &str) -> [i64; N] {
        let values = self.get(key).and_then(|values| values.try_into().ok());
        values.unwrap_or_else(|| panic!("`{key}` was checked to have {N} integers"))
    }

    /// The number of a key, if it is there.
    pub(crate) fn number(&self, key: &str) -> Option<Number> {
        self.get(key).map(|size| Number::of_size(size[0]).expect("it was read as a number"))
    }

    /// The two sides of a window, 1 where the key is missing.
    pub(crate) fn sides(&self, key: &str) -> [i64; 2] {
        self.get(key).map_or([1, 1], |v| [v[0], v[1]])
    }

    /// Padding as top, left, bottom, right; two numbers are those of height and width.
    pub(crate) fn padding(&self) -> [i64; 4] {
        match self.get("padding") {
            Some([vertical, horizontal]) => [*vertical, *horizontal, *vertical, *horizontal],
            Some([top, left, bottom, right]) => [*top, *left, *bottom, *right],
            _ => [0; 4],
        }
    }
}

/// What is wrong with the value of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    /// The key.
    pub(crate) key: &'static str,
    /// What is wrong.
    pub(crate) cause: String,
    /// What to write instead.
    pub(crate) help: String,
}

impl Fault {
    /// A fault.
    pub(crate) fn new(key: &'static str, cause: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault { key, cause: cause.into(), help: help.into() }
    }
}

/// An operand of an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operand {
    /// Its name in the naive kernel and in generated code.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) role: Role,
    /// Its shape as stored.
    pub(crate) shape: Vec<i64>,
    /// Its type in memory, where it is not that of the inputs.
    pub(crate) dtype: Option<DType>,
}

impl Operand {
    /// An operand.
    pub(crate) fn new(name: &'static str, role: Role, shape: Vec<i64>) -> Operand {
        Operand { name, role, shape, dtype: None }
    }

    /// The same with a type of its own.
    pub(crate) fn of_type(self, dtype: DType) -> Operand {
        Operand { dtype: Some(dtype), ..self }
    }
}

/// What an operator does with integers of eight bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfBytes {
    /// It does not take them.
    Nothing,
    /// Its stages but `pad` are sums of products of the input and the weight, or the input itself: numbers, of which zero points are
    /// taken away.
    Sums,
    /// Its elements are elements of the input, whatever they stand for.
    Moves,
    /// It takes nothing else, and gives integers of eight bits: its elements are those of a table of the output's type.
    Bytes,
    /// It takes floats of eight bits, as those of sums do, but no integers.
    Floats,
}

/// What an operator does with integers of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfI32 {
    /// It does not take them.
    Nothing,
    /// Its elements are elements of the input.
    Moves,
    /// It computes with them as `f32`, and gives integers again or floats.
    Numbers,
    /// The same, and of floats it gives integers, too.
    Converts,
}

/// What sets shapes of one operator apart.
pub(crate) struct Likeness {
    /// Shapes that differ in one of these say nothing of each other.
    pub(crate) class: Vec<i64>,
    /// Sizes, and how much an octave between two of them counts.
    pub(crate) sizes: Vec<(i64, f64)>,
}

/// An operator at one shape.
pub(crate) trait Operator: fmt::Debug {
    /// What it is called.
    fn kind(&self) -> &'static Kind;

    /// Its sizes, in the order of the kind.
    fn sizes(&self) -> Vec<i64>;

    /// In which order the dimensions of its tensors lie, if there are several.
    fn layout(&self) -> Option<ConvLayout> {
        None
    }

    /// What is wrong with its sizes beside [`check_sizes`].
    fn validate(&self) -> Result<(), WorkloadError>;

    /// Its operands, in the order of the kernel's parameters.
    fn inputs(&self) -> Vec<Operand>;

    /// The output's name, and its axes as stored.
    fn output(&self) -> (&'static str, Vec<Axis>);

    /// The tensors that are neither: what they are called in errors, and their shapes.
    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![]
    }

    /// What it does with integers of eight bits.
    fn of_bytes(&self) -> OfBytes {
        OfBytes::Nothing
    }

    /// What it does with integers of 32 bits.
    fn of_i32(&self) -> OfI32 {
        OfI32::Nothing
    }

    /// Number of terms behind each element of the last stage, those that meet padding included.
    fn terms(&self) -> i64;

    /// The most roundings in `f32` that a term passes through: those of its product and of sums.
    fn roundings(&self) -> i64 {
        self.terms()
    }

    /// Floating-point operations for each of these terms: 2 for a product that is added.
    fn flops_per_term(&self) -> i64 {
        2
    }

    /// Floating-point operations before the epilogue, where they are not [`Operator::flops_per_term`] for each term of each element.
    fn flops(&self) -> Option<i64> {
        None
    }

    /// What it computes: tensors of the given type in, sums of a given type. The last stage is `acc`, before the epilogue.
    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage>;

    /// What is done to a sum before the epilogue, in the same expression: an average divides it. `index` is its place in the output.
    fn finish(&self, sum: Expr, _index: &[Expr]) -> Expr {
        sum
    }

    /// What sets two shapes apart, by the roles of their sizes.
    fn likeness(&self) -> Likeness {
        likeness(self.kind(), &self.sizes())
    }

    /// The terms of each output in `f64`, combined, by plain Rust that knows nothing of the stages. `inputs` are the operands of the
    /// operator, row-major as stored.
    fn reference(&self, workload: &Workload, inputs: &[&[f64]]) -> Sums;
}

/// What sets shapes of a kind apart by what their sizes count.
pub(super) fn likeness(kind: &Kind, all: &[i64]) -> Likeness {
    let (mut class, mut sizes) = (vec![], vec![]);
    for (size, value) in kind.sizes.iter().zip(all.iter().copied()) {
        match size.role {
            SizeRole::Images | SizeRole::Channels | SizeRole::Extent => sizes.push((value, 1.0)),
            SizeRole::Taps | SizeRole::Stride => sizes.push((value, 1.5)),
            SizeRole::Padding | SizeRole::Digits | SizeRole::Offset | SizeRole::Number => {}
            SizeRole::Step | SizeRole::Repeats if value == ABSENT => {}
            SizeRole::Step => sizes.push((value.abs(), 1.5)),
            SizeRole::Repeats => sizes.push((value, 1.5)),
            SizeRole::Dilation | SizeRole::Groups | SizeRole::Choice => class.push(value),
            SizeRole::Order | SizeRole::Mark => class.push(value),
            // Of lists the number of dimensions sets shapes apart, too.
            SizeRole::Dimension | SizeRole::Broadcast | SizeRole::Factor => match value {
                ABSENT => class.push(ABSENT),
                extent => sizes.push((extent, 1.0)),
            },
        }
    }
    Likeness { class, sizes }
}

/// Refuses sizes that are below 1, and padding below 0.
pub(super) fn check_sizes(op: &dyn Operator) -> Result<(), WorkloadError> {
    let all = || op.kind().sizes.iter().zip(op.sizes()).filter(|(_, value)| *value != ABSENT);
    for (size, value) in all() {
        let what = size.what;
        match size.role {
            SizeRole::Choice | SizeRole::Number => {}
            SizeRole::Step if value == 0 => {
                let help = "write 1 or more, or a number below 0 to go backwards";
                return Err(WorkloadError::Sizes { cause: format!("{what} is 0"), help });
            }
            SizeRole::Step => {}
            SizeRole::Padding if value < 0 => return Err(WorkloadError::NegativePadding { side: what, value }),
            SizeRole::Order | SizeRole::Offset | SizeRole::Mark if value < 0 => {
                return Err(WorkloadError::Negative { size: what, value });
            }
            SizeRole::Padding | SizeRole::Order | SizeRole::Offset | SizeRole::Mark => {}
            _ if value < 1 => return Err(WorkloadError::NotPositive { size: what, value }),
            _ => {}
        }
    }
    Ok(())
}
