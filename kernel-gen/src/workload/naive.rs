//! The naive kernel of a workload: its definition as loops, and what every schedule starts from.
//!
//! It has up to three stages, each a loop nest that writes one buffer:
//!
//! * `pad` (convolutions with padding only): `pad[..] = select(inside, x[..], 0)`, in the input's layout and type.
//! * `acc`: the sum, one [`Stmt::Reduce`](crate::ir::Stmt::Reduce) into an `f32` buffer of the output's shape. Spatial
//!   loops come in the order of the output's dimensions, then the reduce loops `ci, kh, kw` (`k` of a product).
//! * the output (`y`, `c`): the epilogue applied to `acc`, converted to the output's type. It is a stage of its own
//!   even where there is no epilogue.
//!
//! Loops of `acc` carry the operator's names: `n, co, oh, ow, ci, kh, kw`; with groups `g, co` in place of `co`, for
//! depthwise `c` and, where the multiplier is above 1, `m`. A blocked layout has `co` (`c`) for the block and
//! `co_in` (`c_in`) inside of it; with tiles, `n` and `ci` have `n_in` and `ci_in` (the last reduce loop) too. Products have `bt` (only for batches), `i, j, k`. Loops of the other stages carry
//! those names with `_pad` and `_out` behind them.

use super::epilogue::{StepOperand, applied};
use super::integers;
use super::operands::Operands;
use super::operator::OfBytes;
use super::stage::{AxisRole, Loaded};
use super::{Role, WeightZero, Workload};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, Kernel};

/// The naive kernel of a valid workload.
///
/// Its name is the workload's [`kernel_name`](Workload::kernel_name).
pub fn naive(workload: &Workload) -> Kernel {
    naive_with_sums(workload, workload.sums())
}

/// [`naive`] with sums in another type, such as the `f16` that tensor cores can add up in: what a user's schedule starts from
/// who accepts its error. The first half of a fused pair stays in `f32`.
pub fn naive_with_sums(workload: &Workload, sums: DType) -> Kernel {
    let mut b = KernelBuilder::new(workload.kernel_name());
    let params = Operands::declare(&mut b, workload);
    let inputs: Vec<BufferId> = (0..workload.operator_params()).map(|i| params.at(i)).collect();
    let mut results: Vec<BufferId> = vec![];
    for stage in workload.op.get().stages(workload.dtype, sums) {
        let stage = integers::as_numbers(workload, stage);
        results.push(stage.build(&mut b, &inputs, &results, &|buffer, of| number(workload, &params, buffer, of)));
    }
    let acc = *results.last().expect("every operator has a stage");
    let axes = workload.op.get().output().1;
    let names: Vec<String> = axes.iter().map(|axis| format!("{}_out", axis.name)).collect();
    let loops: Vec<(&str, i64)> = names.iter().map(String::as_str).zip(axes.iter().map(|axis| axis.extent)).collect();
    b.nest(&loops, |b, v| {
        let index: Vec<Expr> = v.iter().map(|v| (*v).into()).collect();
        let channel = channel_at(workload, &index);
        let value = epilogue(workload, Expr::load(acc, index.clone()), &channel, &index, &params);
        b.store(params.output(), index, value);
    });
    b.finish()
}

/// A sum, finished, with the steps of a workload's epilogue applied; an index as an integer. `channel` is the output channel,
/// `index` the place in the output in the shape that the kernel takes it in.
pub(crate) fn epilogue(workload: &Workload, sum: Expr, channel: &Expr, index: &[Expr], params: &Operands) -> Expr {
    epilogue_of(workload, sum, index, &|operand| params.read(workload, operand, channel, index))
}

/// [`epilogue`] with operands of steps that `read` gives.
pub(crate) fn epilogue_of(workload: &Workload, sum: Expr, index: &[Expr], read: &dyn Fn(&StepOperand) -> Expr) -> Expr {
    epilogue_from(0, workload, sum, index, read)
}

/// [`epilogue_of`] from a step on: those before it are done.
pub(crate) fn epilogue_from(
    step: usize,
    workload: &Workload,
    sum: Expr,
    index: &[Expr],
    read: &dyn Fn(&StepOperand) -> Expr,
) -> Expr {
    let finished = workload.op.get().finish(sum, index);
    let value = applied(&workload.epilogue[step..], workload.out_dtype, finished, read);
    if workload.rounds_to_i32() {
        return integers::rounded(value);
    }
    if workload.out_dtype.is_int() { Expr::Cast(workload.out_dtype, Box::new(value)) } else { value }
}

/// The zero point of what a stage of a workload on integers reads, where it writes the output at `index`; of what is outside of the
/// input that itself. None where there is none.
fn number(w: &Workload, params: &Operands, loaded: Loaded, index: &[Expr]) -> Option<Expr> {
    if !w.is_quantised() || w.op.get().of_bytes() == OfBytes::Bytes {
        return None;
    }
    if w.op.get().of_bytes() == OfBytes::Moves {
        let least = w.dtype.limits().map_or(0, |(least, _)| least);
        return (loaded == Loaded::Outside).then(|| Expr::Int(least).cast(DType::I32));
    }
    let role = match loaded {
        Loaded::Input(place) => w.op.get().inputs()[place].role,
        Loaded::Padded | Loaded::Outside => Role::Input,
    };
    let zero = |name: &str, at: Expr| Expr::load(params.get(name), vec![at]);
    match (role, w.quant.weight_zero) {
        (Role::Input, _) if w.quant.input_zero => Some(zero("input_zero", Expr::Int(0))),
        (Role::Input, _) if loaded == Loaded::Outside => Some(Expr::Int(0).cast(DType::I32)),
        (Role::Weight, WeightZero::Tensor) => Some(zero("weight_zero", Expr::Int(0))),
        (Role::Weight, WeightZero::Channel) => Some(zero("weight_zero", channel_at(w, index))),
        _ => None,
    }
}

/// The output channel of an element.
fn channel_at(w: &Workload, index: &[Expr]) -> Expr {
    let axes = w.op.get().output().1;
    let find = |role: AxisRole| axes.iter().position(|axis| axis.role == role);
    let outer = index[find(AxisRole::Channel).expect("every output has channels")].clone();
    match find(AxisRole::ChannelBlock) {
        Some(inner) => outer * axes[inner].extent + index[inner].clone(),
        None => outer,
    }
}
