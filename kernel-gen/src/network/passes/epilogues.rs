//! Puts steps that only change elements into the epilogue of the step before, and constant factors into weights.

use crate::ir::DType;
use crate::network::program::{Program, Step, ValueId};
use crate::network::tensor::Tensor;
use crate::workload::binary::Function2;
use crate::workload::operator::Operand;
use crate::workload::stage::{Axis, AxisRole};
use crate::workload::unary::Function;
use crate::workload::{ConvLayout, Epilogue, Number, Op, Param, Role, Unary, Workload};

/// Most parameters of a kernel.
const MOST_PARAMETERS: usize = 12;

/// The largest factor in place of a division: any type holds it.
const LARGEST_FACTOR: f32 = 65504.0;

/// Most channels that one number is repeated for.
const MOST_CHANNELS: i64 = 1 << 16;

/// Fuses all that can be. Numbers will be stored as a type.
pub(super) fn fuse(program: &mut Program, stored: DType) {
    let mut at = 0;
    while at < program.steps.len() {
        match fused(program, at, stored) {
            Some((before, step)) => {
                program.steps[at] = step;
                program.steps.remove(before);
                // What was step `at` is one earlier; what follows it may fuse with it when its turn comes.
                at = before.max(at - 1);
            }
            None => at += 1,
        }
    }
}

/// A step that does what step `at` and one before it do, and which that is.
fn fused(program: &mut Program, at: usize, stored: DType) -> Option<(usize, Step)> {
    if operator_operands(&program.steps[at]) == 0 {
        return None;
    }
    let (uses, writers) = (program.uses(), program.writers());
    let step = program.steps[at].clone();
    // Of two operands the later is the better: what it waits for has run by then.
    let mut candidates: Vec<(usize, usize)> = vec![];
    for (i, id) in step.operands.iter().enumerate().take(operator_operands(&step)) {
        let root = program.root(*id);
        let alone = uses[root] == 1 && program.elements(*id) == program.elements(step.output);
        candidates.extend(writers[root].filter(|writer| alone && *writer < at).map(|writer| (writer, i)));
    }
    candidates.sort_unstable_by(|a, b| b.cmp(a));
    candidates.into_iter().find_map(|(before, operand)| {
        let fused = append(program, before, (&step, operand), stored)?;
        Some((before, fused))
    })
}

/// How many of a step's operands are those of its operator, if it only changes elements; else none.
fn operator_operands(step: &Step) -> usize {
    match &step.workload.op {
        Op::Unary(Unary { function: Function::Identity, .. }) => 1,
        Op::Binary(binary)
            if matches!(
                binary.function,
                Function2::Add | Function2::Subtract | Function2::Multiply | Function2::Divide
            ) =>
        {
            2
        }
        _ => 0,
    }
}

/// A convolution or a product of integers with the sum of its result and a residual, which another step computes: what it is rounded
/// to in between is left out.
fn with_residual(program: &mut Program, before: &Step, step: &Step) -> Option<Step> {
    let (of, sum) = (&before.workload, &step.workload);
    let adds = sum.is_quantised() && sum.epilogue == [Epilogue::RequantizeAdd] && matches!(sum.op, Op::Unary(_));
    let gives = of.is_quantised() && of.epilogue.last() == Some(&Epilogue::Requantize) && of.out_dtype == sum.dtype;
    if !adds || !gives || sum.out_dtype != of.out_dtype || !before.slices.is_empty() || !step.slices.is_empty() {
        return None;
    }
    // Multiplier and zero point of the result; zero point, if there is one, and multiplier of the summand.
    let (rest, ends) = before.operands.split_at(before.operands.len() - 2);
    let of_sum = &step.operands[sum.operator_params()..];
    let none = Some(vec![0]);
    let zero = |id: Option<&ValueId>| id.map_or(none.clone(), |id| program.constant(*id)?.to_integers());
    let of_summand = sum.quant.input_zero.then(|| &step.operands[1]);
    if zero(Some(&ends[1]))? != zero(of_summand)? {
        return None;
    }
    let (own, more) = (program.constant(ends[0])?.to_floats(), program.constant(of_sum[0])?.to_floats());
    let factor = more.first().copied().filter(|first| more.iter().all(|m| m == first))?;
    let multiplier: Vec<f32> = own.iter().map(|m| m * factor).collect();
    let multiplier = program.add_constant(Tensor::floats(&[multiplier.len() as i64], multiplier));
    let mut whole = before.clone();
    whole.operands = rest.iter().copied().chain([multiplier]).chain(of_sum[1..].iter().copied()).collect();
    *whole.workload.epilogue.last_mut()? = Epilogue::RequantizeAdd;
    whole.nodes.extend(step.nodes.iter().cloned());
    whole.output = step.output;
    fits(program, &whole).then_some(whole)
}

/// Step `before` with all that `step` does to its result, operand `operand` of the latter.
fn append(program: &mut Program, before: usize, (step, operand): (&Step, usize), stored: DType) -> Option<Step> {
    let mut whole = program.steps[before].clone();
    if let Some(whole) = with_residual(program, &whole, step) {
        return Some(whole);
    }
    let fresh = program.values.len();
    // Functions of elements, and sums of integers that became numbers, may make integers of eight bits at once.
    let of_elements = matches!(whole.workload.op, Op::Binary(_) | Op::Unary(_)) || whole.workload.is_quantised();
    let quantizes = of_elements
        && whole.workload.out_dtype.is_float()
        && step.workload.epilogue.last() == Some(&Epilogue::Quantize);
    let same = whole.workload.out_dtype == step.workload.out_dtype;
    if !whole.slices.is_empty() || !step.slices.is_empty() || !(same || quantizes) || step.workload.is_quantised() {
        return None;
    }
    whole.workload.out_dtype = step.workload.out_dtype;
    let added = added(program, &whole, step, operand);
    let done = added.and_then(|added| {
        for (epilogue, operands) in added {
            push(program, &mut whole, epilogue, &operands);
        }
        whole.nodes.extend(step.nodes.iter().cloned());
        whole.output = step.output;
        (fits(program, &whole) && types_fit(program, &whole, stored)).then_some(whole)
    });
    if done.is_none() {
        // Constants that were made for it.
        program.values.truncate(fresh);
    }
    done
}

/// Whether the operands are those of the workload.
fn fits(program: &Program, step: &Step) -> bool {
    let params = step.workload.params();
    let given = step.operands.iter().map(|id| program.elements(*id));
    step.workload.validate().is_ok()
        && params.len() <= MOST_PARAMETERS
        && params[..params.len() - 1].iter().map(|p| p.elements()).eq(given)
}

/// Whether what is computed has the type that a step takes it as, once numbers are stored as a type: beside integers of eight bits some
/// operands are always `f32`.
fn types_fit(program: &Program, step: &Step, stored: DType) -> bool {
    let mut workload = step.workload.clone();
    let of = |dtype: DType| if dtype == DType::F32 { stored } else { dtype };
    (workload.dtype, workload.out_dtype) = (of(workload.dtype), of(workload.out_dtype));
    let fits = |(param, id): (Param, &ValueId)| {
        program.constant(*id).is_some() || param.dtype == of(program.values[*id].dtype)
    };
    workload.params().into_iter().zip(&step.operands).all(fits)
}

/// Steps of an epilogue with their operands.
type Added = Vec<(Epilogue, Vec<ValueId>)>;

/// What `step` does to its operand, in terms of the step before.
fn added(program: &mut Program, before: &Step, step: &Step, operand: usize) -> Option<Added> {
    let mut added: Added = vec![];
    if let Op::Binary(binary) = &step.workload.op {
        let other = step.operands[1 - operand];
        added.push(of_binary(program, before, step, binary.function, operand, other)?);
    }
    let mut operands = step.operands[operator_operands(step)..].iter().copied();
    for epilogue in &step.workload.epilogue {
        let of_step: Vec<ValueId> = operands.by_ref().take(epilogue.operands().len()).collect();
        let shape = step.workload.output_shape();
        let same_channels = channel(&before.workload) == channel(&step.workload);
        // Numbers of channels mean the same only where both have the same channels.
        if !epilogue.is_activation()
            && !matches!(epilogue, Epilogue::ResidualAdd | Epilogue::Multiply | Epilogue::Quantize)
            && !same_channels
        {
            return None;
        }
        if shape.iter().product::<i64>() != before.workload.output_shape().iter().product::<i64>() {
            return None;
        }
        added.push((*epilogue, of_step));
    }
    Some(added)
}

/// The channels of a workload's output: how many there are, and how many elements lie from one to the next.
fn channel(workload: &Workload) -> Option<(i64, i64)> {
    let axes = workload.op.get().output().1;
    let at = axes.iter().position(|axis| axis.role == AxisRole::Channel)?;
    let single = !axes.iter().any(|axis| axis.role == AxisRole::ChannelBlock);
    let one = axes.iter().filter(|axis| axis.role == AxisRole::Channel).count() == 1;
    (single && one).then(|| (axes[at].extent, axes[at + 1..].iter().map(|axis| axis.extent).product()))
}

/// What a function of two tensors does to the result of the step before, whose place among its operands is `operand`.
fn of_binary(
    program: &mut Program,
    before: &Step,
    step: &Step,
    function: Function2,
    operand: usize,
    other: ValueId,
) -> Option<(Epilogue, Vec<ValueId>)> {
    let elements = program.elements(step.output);
    let constant = program.constant(other);
    if let Some(constant) = &constant
        && let Some(numbers) = by_channel(&before.workload, &program.values[step.output].shape, constant)
    {
        let count = [numbers.len() as i64];
        let mut add = |list: Vec<f32>| program.add_constant(Tensor::floats(&count, list));
        let same = |value: f32| vec![value; numbers.len()];
        return Some(match (function, operand) {
            (Function2::Add, _) => (Epilogue::Bias, vec![add(numbers)]),
            (Function2::Subtract, 0) => (Epilogue::Bias, vec![add(numbers.iter().map(|v| -v).collect())]),
            (Function2::Subtract, _) => {
                let minus = same(-1.0);
                (Epilogue::Scale, vec![add(minus), add(numbers)])
            }
            (Function2::Multiply, _) => {
                let zeros = same(0.0);
                (Epilogue::Scale, vec![add(numbers), add(zeros)])
            }
            (Function2::Divide, 0) => {
                // What has no finite inverse would spread over sums.
                let inverse: Vec<f32> = numbers.iter().map(|v| 1.0 / v).collect();
                if inverse.iter().any(|v| v.abs() > LARGEST_FACTOR || v.is_nan()) {
                    return None;
                }
                let zeros = same(0.0);
                (Epilogue::Scale, vec![add(inverse), add(zeros)])
            }
            _ => return None,
        });
    }
    let whole = program.elements(other) == elements;
    let of_images = constant.is_none()
        && is_of_images(&before.workload, &program.values[step.output].shape, &program.values[other].shape);
    let epilogue = match function {
        Function2::Add if whole => Epilogue::ResidualAdd,
        Function2::Multiply if whole => Epilogue::Multiply,
        Function2::Add if of_images => Epilogue::ImageBias,
        Function2::Multiply if of_images => Epilogue::Gate,
        _ => return None,
    };
    Some((epilogue, vec![other]))
}

/// The numbers of a constant for each channel of a workload's output, if it has one for each or one for all. `shape` is the
/// shape that the output has for the constant, which broadcasts to it.
fn by_channel(workload: &Workload, shape: &[i64], constant: &Tensor) -> Option<Vec<f32>> {
    let (channels, inner) = channel(workload)?;
    let numbers = constant.to_floats();
    if numbers.len() == 1 {
        // One number for each of very many channels is memory for nothing.
        return (channels <= MOST_CHANNELS).then(|| vec![numbers[0]; channels as usize]);
    }
    let at = shape.len().checked_sub(constant.shape.len())?;
    let mut wide = constant.shape.iter().enumerate().filter(|(_, n)| **n != 1);
    let (axis, extent) = wide.next().filter(|_| wide.next().is_none())?;
    let elements_behind: i64 = shape[at + axis + 1..].iter().product();
    (*extent == channels && elements_behind == inner).then(|| numbers.to_vec())
}

/// Whether a tensor has one number for each image and channel of a workload's output, in this order.
fn is_of_images(workload: &Workload, shape: &[i64], other: &[i64]) -> bool {
    let axes = workload.op.get().output().1;
    let of_axis = |axis: &Axis| if matches!(axis.role, AxisRole::Batch | AxisRole::Channel) { axis.extent } else { 1 };
    let starts_with_images = axes.first().is_some_and(|axis| axis.role == AxisRole::Batch);
    if starts_with_images && axes.iter().map(|axis| axis.extent).eq(shape.iter().copied()) {
        return axes.iter().map(of_axis).eq(other.iter().copied());
    }
    let Some((channels, inner)) = channel(workload) else { return false };
    let Some(at) = axes.iter().position(|axis| axis.role == AxisRole::Channel) else { return false };
    let images: i64 = axes[..at].iter().map(|axis| axis.extent).product();
    let leading = axes[..at].iter().all(|axis| axis.role == AxisRole::Batch);
    if !leading || other.len() != shape.len() || other.iter().product::<i64>() != images * channels {
        return false;
    }
    // Its extents are those of the output, and then 1.
    let same = shape.iter().zip(other).take_while(|(a, b)| a == b).count();
    other[same..].iter().all(|n| *n == 1) && shape[same..].iter().product::<i64>() == inner
}

/// Two steps that hold numbers between bounds, one behind the other, as one.
fn clamps(first: Epilogue, second: Epilogue) -> Option<Epilogue> {
    let bounds = |step: Epilogue| match step {
        Epilogue::Relu => Some([0.0, f32::INFINITY]),
        Epilogue::Relu6 => Some([0.0, 6.0]),
        Epilogue::Clip(low, high) => Some([low.get() as f32, high.get() as f32]),
        _ => None,
    };
    let (inner, [low, high]) = (bounds(first)?, bounds(second)?);
    Some(match inner.map(|bound| bound.clamp(low, high)) {
        [0.0, f32::INFINITY] => Epilogue::Relu,
        [0.0, 6.0] => Epilogue::Relu6,
        [low, high] => Epilogue::Clip(Number::new(low)?, Number::new(high)?),
    })
}

/// Adds a step to an epilogue. A factor of the channels goes into constant weights, and summands are added up.
fn push(program: &mut Program, step: &mut Step, epilogue: Epilogue, operands: &[ValueId]) {
    let numbers = |program: &Program, id: ValueId| program.constant(id).map(|c| c.to_floats().to_vec());
    let count = step.workload.channels();
    let add = |program: &mut Program, list: Vec<f32>| program.add_constant(Tensor::floats(&[count], list));
    let constants: Option<Vec<Vec<f32>>> = operands.iter().map(|id| numbers(program, *id)).collect();
    let last = step.workload.epilogue.last().copied();
    // Weights and biases that are integers stay what they are.
    let constants = constants.filter(|_| !step.workload.is_quantised() || last == Some(Epilogue::Scale));
    if let Some(both) = last.and_then(|last| clamps(last, epilogue)) {
        *step.workload.epilogue.last_mut().expect("it was looked at") = both;
        return;
    }
    match (epilogue, constants.as_deref()) {
        (Epilogue::Bias, Some([more])) if matches!(last, Some(Epilogue::Bias | Epilogue::Scale)) => {
            // The summand is the last operand of both.
            let at = step.operands.len() - 1;
            if let Some(old) = numbers(program, step.operands[at]) {
                step.operands[at] = add(program, old.iter().zip(more).map(|(a, b)| a + b).collect());
                return;
            }
        }
        (Epilogue::Scale, Some([scale, shift])) if matches!(step.workload.epilogue[..], [] | [Epilogue::Bias]) => {
            let inputs = step.workload.op.get().inputs();
            let bias = match last {
                None => Some(vec![0.0; scale.len()]),
                Some(_) => numbers(program, step.operands[inputs.len()]),
            };
            if let Some((at, weight)) = scaled_weight(program, step, &inputs, scale)
                && let Some(bias) = bias
            {
                let bias = bias.iter().zip(scale).zip(shift).map(|((b, s), t)| b * s + t).collect();
                step.operands[at] = weight;
                step.operands.truncate(inputs.len());
                step.operands.push(add(program, bias));
                step.workload.epilogue = vec![Epilogue::Bias];
                return;
            }
        }
        (Epilogue::Scale, Some([scale, shift])) if last == Some(Epilogue::Scale) => {
            let at = step.operands.len() - 2;
            if let (Some(s), Some(t)) = (numbers(program, step.operands[at]), numbers(program, step.operands[at + 1])) {
                step.operands[at] = add(program, s.iter().zip(scale).map(|(a, b)| a * b).collect());
                let shifts = t.iter().zip(scale).zip(shift).map(|((t, s), more)| t * s + more);
                step.operands[at + 1] = add(program, shifts.collect());
                return;
            }
        }
        // A bias belongs to sums of integers; behind them it is the shift of a factor of 1.
        (Epilogue::Bias, _) if step.workload.epilogue.contains(&Epilogue::Dequantize) => {
            let ones = add(program, vec![1.0; count.max(0) as usize]);
            step.operands.extend([ones, operands[0]]);
            step.workload.epilogue.push(Epilogue::Scale);
            return;
        }
        _ => {}
    }
    step.workload.epilogue.push(epilogue);
    step.operands.extend(operands);
}

/// The constant weight of a convolution or a product with a factor for each output channel, and which operand it is.
fn scaled_weight(program: &mut Program, step: &Step, inputs: &[Operand], scale: &[f32]) -> Option<(usize, ValueId)> {
    let at = inputs.iter().position(|operand| operand.role == Role::Weight)?;
    let weight = program.constant(step.operands[at])?;
    let numbers = weight.to_floats();
    // How many elements of a channel lie side by side, and in which order.
    let channel_of: Box<dyn Fn(usize) -> usize> = match (&step.workload.op, &inputs[at].shape[..]) {
        (Op::Conv2d(conv), [.., channels]) if conv.layout == ConvLayout::Nhwc => {
            let channels = *channels as usize;
            Box::new(move |i| i % channels)
        }
        (Op::Conv2d(_) | Op::Conv1d(_), _) => {
            let each = numbers.len() / scale.len();
            Box::new(move |i| i / each)
        }
        (Op::Matmul(m), [_, columns]) if !m.trans_b => {
            let columns = *columns as usize;
            Box::new(move |i| i % columns)
        }
        (Op::Matmul(m), [_, depth]) if m.trans_b => {
            let depth = *depth as usize;
            Box::new(move |i| i / depth)
        }
        _ => return None,
    };
    let scaled: Vec<f32> = numbers.iter().enumerate().map(|(i, w)| w * scale[channel_of(i)]).collect();
    Some((at, program.add_constant(Tensor::floats(&weight.shape, scaled))))
}
