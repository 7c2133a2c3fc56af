//! What an operator computes, as data: a list of stages, each of which writes one tensor.
//!
//! A [`Stage`] is what `te.compute` is in TVM and a `Func` in Halide: loops, an index map for each operand, how terms are
//! combined, and an expression. The expressions are those of the IR, in which [`axis`] stands for a loop of the stage,
//! [`input`] for an operand of the operator and [`result`] for what an earlier stage wrote.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, ReduceOp, Scope, Stmt, VarId};

/// What an axis of an output counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AxisRole {
    /// Images; the products of a batch or, of a single product, its rows; batches and heads of attention.
    Batch,
    /// Pixels in a direction; rows of the products of a batch.
    Space,
    /// Output channels, columns of a product; blocks of them where a [`AxisRole::ChannelBlock`] follows.
    Channel,
    /// The channels of a block.
    ChannelBlock,
}

/// An axis of an output as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Axis {
    /// Its loop's name.
    pub(crate) name: &'static str,
    /// Its extent.
    pub(crate) extent: i64,
    /// What it counts.
    pub(crate) role: AxisRole,
}

impl Axis {
    /// An axis.
    pub(crate) fn new(name: &'static str, extent: i64, role: AxisRole) -> Axis {
        Axis { name, extent, role }
    }
}

/// The axes of planes of pixels: images, channels, and the pixels of each as one dimension.
pub(crate) fn planes([n, c, pixels]: [i64; 3]) -> Vec<Axis> {
    use AxisRole::{Batch, Channel, Space};
    vec![Axis::new("n", n, Batch), Axis::new("c", c, Channel), Axis::new("p", pixels, Space)]
}

/// A loop nest that writes each element of one tensor once.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stage {
    /// The tensor's name. The last stage of an operator is `acc`, whose shape is the output's.
    pub(crate) name: &'static str,
    /// The type of its elements.
    pub(crate) dtype: DType,
    /// Its shape.
    pub(crate) shape: Vec<i64>,
    /// The loops with their extents, outermost first; the last [`Stage::reduce`] of them reduce.
    pub(crate) loops: Vec<(&'static str, i64)>,
    /// How many of the innermost loops reduce.
    pub(crate) reduce: usize,
    /// How the terms of an element are combined, where loops reduce.
    pub(crate) combine: Combine,
    /// Which element the loops outside of the reduction write.
    pub(crate) index: Vec<Expr>,
    /// The element, or a term of it.
    pub(crate) value: Expr,
}

/// How the terms of an element are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Combine {
    /// There is one term.
    One,
    /// Their sum, from 0.
    Sum,
    /// Their product, from 1.
    Product,
    /// Their maximum, from minus infinity; NaN if one of them is.
    Max,
    /// Their minimum, from infinity; NaN if one of them is.
    Min,
}

impl Combine {
    /// The reduction of the IR, and what it begins with, where there are several terms.
    pub(crate) fn reduction(self) -> Option<(ReduceOp, f64)> {
        match self {
            Combine::One => None,
            Combine::Sum => Some((ReduceOp::Add, 0.0)),
            Combine::Product => Some((ReduceOp::Mul, 1.0)),
            Combine::Max => Some((ReduceOp::Max, f64::NEG_INFINITY)),
            Combine::Min => Some((ReduceOp::Min, f64::INFINITY)),
        }
    }
}

/// A loop of a stage, by its position.
pub(crate) fn axis(position: usize) -> VarId {
    VarId(position as u32)
}

/// An operand of the operator, by its position.
pub(crate) fn input(position: usize) -> BufferId {
    BufferId(position as u32)
}

/// What a stage wrote, by its position.
pub(crate) fn result(position: usize) -> BufferId {
    BufferId(RESULTS + position as u32)
}

/// Numbers from here on are stages' results.
const RESULTS: u32 = 1 << 16;

/// An axis of a tensor that is padded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padded {
    /// The loop's name.
    pub(crate) name: &'static str,
    /// The extent with its padding.
    pub(crate) extent: i64,
    /// The padding before and after.
    pub(crate) padding: [i64; 2],
}

impl Stage {
    /// The copy `pad` of a tensor: what lies outside of it is `outside`.
    pub(crate) fn pad(dtype: DType, from: BufferId, axes: &[Padded], outside: f64) -> Stage {
        let mut inside = vec![];
        let mut source: Vec<Expr> = vec![];
        for (i, Padded { extent, padding: [before, after], .. }) in axes.iter().copied().enumerate() {
            if before > 0 {
                inside.push(Expr::Int(before).le(axis(i)));
            }
            if after > 0 {
                inside.push(Expr::from(axis(i)).lt(extent - after));
            }
            source.push(axis(i) - before);
        }
        let value = Expr::load(from, source);
        Stage {
            name: "pad",
            dtype,
            shape: axes.iter().map(|a| a.extent).collect(),
            loops: axes.iter().map(|a| (a.name, a.extent)).collect(),
            reduce: 0,
            combine: Combine::One,
            index: (0..axes.len()).map(|i| axis(i).into()).collect(),
            value: match Expr::all(inside) {
                Some(inside) => inside.select(value, Expr::Float(outside, dtype.compute())),
                None => value,
            },
        }
    }

    /// Adds the stage to a kernel that has the operator's operands and the results of the stages before it; returns its tensor.
    /// `number` makes of a load of an operand, or of the padded one, the number that it stands for; of the padding's outside, too.
    pub(crate) fn build(
        &self,
        b: &mut KernelBuilder,
        inputs: &[BufferId],
        results: &[BufferId],
        number: &dyn Fn(Loaded, &[Expr]) -> Option<Expr>,
    ) -> BufferId {
        let to = b.alloc(self.name, self.dtype, &self.shape, Scope::Global);
        b.nest(&self.loops, |b, v| {
            let buffer = |n: u32| if n < RESULTS { inputs[n as usize] } else { results[(n - RESULTS) as usize] };
            let moved = |e: Expr| match e {
                Expr::Var(VarId(i)) => v[i as usize].into(),
                Expr::Load(BufferId(n), indices) => Expr::Load(buffer(n), indices),
                other => other,
            };
            let indices: Vec<Expr> = self.index.iter().map(|e| e.clone().map(&mut |e| moved(e))).collect();
            let value = self.value.clone().map(&mut |e| {
                let loaded = match &e {
                    Expr::Load(BufferId(n), _) if self.name != "pad" && *n < RESULTS => {
                        Some(Loaded::Input(*n as usize))
                    }
                    Expr::Load(..) if self.name != "pad" => Some(Loaded::Padded),
                    Expr::Float(..) => Some(Loaded::Outside),
                    _ => None,
                };
                let zero = loaded.and_then(|loaded| number(loaded, &indices));
                match (loaded, zero) {
                    (Some(Loaded::Outside), Some(zero)) => zero,
                    (_, Some(zero)) => moved(e) - zero,
                    _ => moved(e),
                }
            });
            let Some((op, first)) = self.combine.reduction() else { return b.store(to, indices, value) };
            let over = v[v.len() - self.reduce..].to_vec();
            b.push(Stmt::Reduce { buffer: to, indices, op, init: identity(first, self.dtype), value, over });
        });
        to
    }
}

/// What an expression of a stage reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loaded {
    /// The operand of that position.
    Input(usize),
    /// The result of a stage before, which is the padded input.
    Padded,
    /// What is outside of the input.
    Outside,
}

/// What a combination begins with, in a type.
fn identity(first: f64, dtype: DType) -> Expr {
    match dtype.limits() {
        Some((low, high)) => Expr::Int((first as i64).clamp(low, high)).cast(dtype),
        None => Expr::Float(first, dtype.compute()),
    }
}

/// The loops of a stage by their names.
pub(super) struct Loops<'a>(pub(super) &'a [(&'static str, i64)]);

impl Loops<'_> {
    /// The loop of that name, if there is one.
    pub(super) fn find(&self, name: &str) -> Option<Expr> {
        self.0.iter().position(|l| l.0 == name).map(|i| axis(i).into())
    }

    /// The loop of that name, or 0.
    pub(super) fn get(&self, name: &str) -> Expr {
        self.find(name).unwrap_or(Expr::Int(0))
    }
}
