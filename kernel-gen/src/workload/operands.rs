//! The parameters of a workload's kernel as buffers.

use super::epilogue::{Per, StepOperand};
use super::stage::AxisRole;
use super::{Param, Workload};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr};

/// The buffers of a workload's parameters, found by the names that [`Workload::params`] gives them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Operands {
    buffers: Vec<(&'static str, BufferId)>,
    /// The shape of the output: it has the workload's elements in their order, but may be cut into other dimensions.
    output: Vec<i64>,
}

impl Operands {
    /// Declares the parameters in their order, each in the shape that the workload gives it.
    pub(crate) fn declare(b: &mut KernelBuilder, workload: &Workload) -> Operands {
        Operands::shaped(b, workload, |p| p.shape.clone())
    }

    /// Declares the parameters in their order, each in the shape that `shape` gives it: packed ones differ from the workload's.
    pub(crate) fn shaped(b: &mut KernelBuilder, workload: &Workload, shape: impl Fn(&Param) -> Vec<i64>) -> Operands {
        Operands::typed(b, workload, |p| (p.dtype, shape(p)))
    }

    /// As [`shaped`](Operands::shaped), with the type, too.
    pub(crate) fn typed(
        b: &mut KernelBuilder,
        workload: &Workload,
        as_packed: impl Fn(&Param) -> (DType, Vec<i64>),
    ) -> Operands {
        let mut output = vec![];
        let declared = workload.params().into_iter().map(|p| {
            let (dtype, shape) = as_packed(&p);
            let buffer = b.param(p.name, dtype, &shape, p.access);
            output = shape;
            (p.name, buffer)
        });
        Operands { buffers: declared.collect(), output }
    }

    /// The parameter of that name, which must be one of the workload's.
    pub(crate) fn get(&self, name: &str) -> BufferId {
        let found = self.buffers.iter().find(|p| p.0 == name);
        found.unwrap_or_else(|| panic!("{name} is none of the workload's parameters")).1
    }

    /// The parameter at a place of the workload's order, which must be one of them.
    pub(crate) fn at(&self, place: usize) -> BufferId {
        self.buffers[place].1
    }

    /// The output, which is the last one.
    pub(crate) fn output(&self) -> BufferId {
        self.buffers[self.buffers.len() - 1].1
    }

    /// The number that the operand of a step has for the output at `index`, whose channel is `channel`.
    pub(crate) fn read(&self, workload: &Workload, operand: &StepOperand, channel: &Expr, index: &[Expr]) -> Expr {
        let index = match operand.per {
            Per::Channel => vec![channel.clone()],
            Per::Image => vec![self.image(workload, index), channel.clone()],
            Per::Element => index.to_vec(),
            Per::Tensor => vec![Expr::Int(0)],
        };
        Expr::load(self.get(operand.name), index)
    }

    /// The image of the output at `index`: what its axes of images count together.
    fn image(&self, workload: &Workload, index: &[Expr]) -> Expr {
        let axes = workload.op.get().output().1;
        let mut stride: i64 = self.output.iter().product();
        let mut image = None;
        for axis in axes {
            stride /= axis.extent;
            if axis.role != AxisRole::Batch || axis.extent == 1 {
                continue;
            }
            let at = coordinate(&self.output, index, stride, axis.extent);
            image = Some(match image {
                None => at,
                Some(outer) => outer * axis.extent + at,
            });
        }
        image.unwrap_or(Expr::Int(0))
    }
}

/// The coordinate along an axis of the element at `index` of a tensor of `shape`: its number, divided by the axis's `stride`, modulo
/// its `extent`. It is put together from the dimensions of which the axis is a part or that are parts of it.
fn coordinate(shape: &[i64], index: &[Expr], stride: i64, extent: i64) -> Expr {
    let end = stride * extent;
    let nested = |a: i64, b: i64| a % b == 0 || b % a == 0;
    let mut number = Expr::Int(0);
    let mut sum = Expr::Int(0);
    let (mut above, mut apart) = (shape.iter().product::<i64>(), true);
    for (size, at) in shape.iter().zip(index).filter(|(size, _)| **size > 1) {
        let own = above / size;
        apart &= [own, above].iter().all(|own| nested(*own, stride) && nested(*own, end));
        number = number + at.clone() * own;
        if own < end && above > stride {
            let digits = if own < stride { at.clone().floor_div(stride / own) } else { at.clone() };
            let within = if above > end { digits.floor_mod(end / own.max(stride)) } else { digits };
            sum = sum + within * (own.max(stride) / stride);
        }
        above = own;
    }
    if apart { sum } else { number.floor_div(stride).floor_mod(extent) }
}

#[cfg(test)]
mod tests {
    use super::coordinate;
    use crate::ir::{BinOp, Expr, VarId};

    fn value(e: &Expr, at: &[i64]) -> i64 {
        match e {
            Expr::Int(n) => *n,
            Expr::Var(VarId(i)) => at[*i as usize],
            Expr::Binary(op, a, b) => {
                let (a, b) = (value(a, at), value(b, at));
                match op {
                    BinOp::Add => a + b,
                    BinOp::Mul => a * b,
                    BinOp::Div => a.div_euclid(b),
                    BinOp::Mod => a.rem_euclid(b),
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_image_is_found_whatever_the_shape_is_cut_into() {
        // Twelve images of 5 channels by 6 pixels, and the same with images last or in the middle.
        for (stride, extent) in [(30, 12), (1, 12), (6, 5), (5, 12)] {
            for shape in [
                &[360][..],
                &[12, 5, 6],
                &[12, 1, 30],
                &[4, 3, 5, 2, 3],
                &[72, 5],
                &[2, 180],
                &[7, 60],
                &[6, 5, 12],
                &[8, 45],
            ] {
                let total: i64 = shape.iter().product();
                let index: Vec<Expr> = (0..shape.len() as u32).map(|i| VarId(i).into()).collect();
                let found = coordinate(shape, &index, stride, extent);
                for flat in 0..total {
                    let mut rest = flat;
                    let mut at: Vec<i64> = shape
                        .iter()
                        .rev()
                        .map(|n| {
                            let d = rest % n;
                            rest /= n;
                            d
                        })
                        .collect();
                    at.reverse();
                    assert_eq!(value(&found, &at), flat / stride % extent, "{shape:?}, {stride} x {extent}: {found:?}");
                }
            }
        }
    }
}
