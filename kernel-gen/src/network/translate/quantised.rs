//! Operators on integers of eight bits, and what makes them of numbers and numbers of them.

use super::builder::{Builder, Call};
use super::contraction::{convolution, without_row};
use super::element::binary;
use super::operands::{axis, required};
use crate::ir::DType;
use crate::network::model::{Node, SUMS};
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::{Epilogue, Quant, WeightZero};

/// The integers of a value.
pub(super) fn bytes(b: &Builder, id: ValueId) -> Result<DType, Fault> {
    let dtype = b.program.values[id].dtype;
    match dtype.is_byte() {
        true => Ok(dtype),
        false => Err(Fault::new(format!("an operand is {dtype}, not i8 or u8"), "quantise the model to eight bits")),
    }
}

/// Scales that are known when the model is compiled: numbers above 0.
fn scales(b: &Builder, what: &str, id: ValueId) -> Result<Vec<f32>, Fault> {
    let scales = b.floats(what, id)?;
    match scales.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
        Some(wrong) => {
            let help = "a scale is a finite number above 0: quantise the model again";
            Err(Fault::new(format!("its {what} is {wrong}"), help))
        }
        None => Ok(scales),
    }
}

/// The one scale of a tensor of activations.
pub(super) fn scale(b: &Builder, what: &str, id: ValueId) -> Result<f32, Fault> {
    match scales(b, what, id)?[..] {
        [one] => Ok(one),
        _ => Err(Fault::new(format!("its {what} is a list"), "quantise activations with one scale")),
    }
}

/// A zero point that there is and that is not known to be 0 everywhere.
pub(super) fn zero(b: &Builder, x: &[Option<ValueId>], at: usize) -> Option<ValueId> {
    let id = x.get(at).copied().flatten()?;
    let known = b.constant(id).and_then(|tensor| tensor.to_integers());
    if known.is_some_and(|all| all.iter().all(|z| *z == 0)) { None } else { Some(id) }
}

/// One zero point, of which a list that is the same everywhere is one, too.
fn one_zero(b: &mut Builder, id: ValueId, what: &str) -> Result<ValueId, Fault> {
    if b.program.elements(id) == 1 {
        return Ok(id);
    }
    let all = b.integers(what, id)?;
    let dtype = bytes(b, id)?;
    match all.first().filter(|first| all.iter().all(|z| z == *first)) {
        Some(first) => Ok(b.add_constant(Tensor::bytes(&[1], dtype, [*first]))),
        None => Err(Fault::new(format!("it has {} {what}", all.len()), "quantise activations with one zero point")),
    }
}

/// The operator on integers, with its bias: `zeros` are where the zero points of input and weight stand, `axis` is that of the weights'
/// output channels.
fn integers(
    b: &mut Builder,
    call: Call,
    ([x, w], axis): ([ValueId; 2], usize),
    zeros: [Option<ValueId>; 2],
    mut bias: Option<ValueId>,
) -> Result<Call, Fault> {
    let (dtype, weight, channels) = (bytes(b, x)?, bytes(b, w)?, b.shape(w)[axis]);
    let mut input = zeros[0].map(|id| one_zero(b, id, "zero points of its input")).transpose()?;
    if let (Some(id), None, false) = (input, zeros[1], call.pads())
        && let Some(whole) = bias_with_zero(b, (w, axis), id, bias)
    {
        (input, bias) = (None, Some(whole));
    }
    let weight_zero = match zeros[1].map(|id| b.program.elements(id)) {
        None => WeightZero::None,
        Some(1) => WeightZero::Tensor,
        Some(n) if n == channels => WeightZero::Channel,
        Some(n) => {
            let cause = format!("its weights have {n} zero points, and there are {channels} output channels");
            return Err(Fault::new(cause, "quantise weights per tensor or per output channel"));
        }
    };
    let quant = Quant { weight, input_zero: input.is_some(), weight_zero };
    let call = call.integers(dtype, quant, input.into_iter().chain(zeros[1]));
    Ok(match bias {
        Some(bias) => call.then(Epilogue::Bias, &[bias]),
        None => call,
    })
}

/// The bias of sums of `x w` that are to be sums of `(x - zero) w`, where every sum has all weights of its channel: less `zero` times the
/// sum of these. None where something is not known when the model is compiled, or an `i32` does not hold it.
fn bias_with_zero(
    b: &mut Builder,
    (w, axis): (ValueId, usize),
    zero: ValueId,
    bias: Option<ValueId>,
) -> Option<ValueId> {
    let known = |b: &Builder, id: ValueId| b.constant(id)?.to_integers();
    let (weights, zero, shape) = (known(b, w)?, *known(b, zero)?.first()?, b.shape(w));
    let (inner, channels) = (shape[axis + 1..].iter().product::<i64>() as usize, shape[axis] as usize);
    let mut all = match bias {
        Some(id) => known(b, id)?,
        None => vec![0; channels],
    };
    // The products of a batch have weights of their own.
    if axis > 1 || all.len() != channels {
        return None;
    }
    weights.iter().enumerate().for_each(|(i, weight)| all[i / inner % channels] -= zero * weight);
    all.iter().all(|value| i32::try_from(*value).is_ok()).then(|| b.add_constant(Tensor::integers(&[shape[axis]], all)))
}

/// What the scales of input and weights make of sums, for each output channel, and that of the output, if it has one.
fn multiplier(
    b: &mut Builder,
    factors: [ValueId; 2],
    output: Option<ValueId>,
    channels: i64,
) -> Result<ValueId, Fault> {
    let (x, w) = (scales(b, "scale of its input", factors[0])?, scales(b, "scale of its weights", factors[1])?);
    let y = output.map_or(Ok(vec![1.0]), |id| scales(b, "scale of its output", id))?;
    if x.len() != 1 || y.len() != 1 || (w.len() != 1 && w.len() as i64 != channels) {
        let cause = format!("it has {}, {} and {} scales of input, weights and output", x.len(), w.len(), y.len());
        return Err(Fault::new(cause, "quantise activations per tensor, and weights per tensor or output channel"));
    }
    let multiplier: Vec<f32> = (0..channels as usize).map(|c| x[0] * w[c.min(w.len() - 1)] / y[0]).collect();
    Ok(b.add_constant(Tensor::floats(&[channels], multiplier)))
}

/// `requantize` with what the scales of input, weights and output make of a sum.
fn requantized(
    b: &mut Builder,
    call: Call,
    factors: [ValueId; 2],
    output: [Option<ValueId>; 2],
    channels: i64,
) -> Result<Call, Fault> {
    let [scale, zero] = output;
    let scale = scale.ok_or_else(|| Fault::new("the scale of its output is missing", "export the model again"))?;
    let multiplier = multiplier(b, factors, Some(scale), channels)?;
    let (zero, dtype) = zero_of_output(b, zero)?;
    Ok(call.then(Epilogue::Requantize, &[multiplier, zero]).gives(dtype))
}

/// The zero point of an output, and its type: of one that is missing, 0 and `u8`.
pub(super) fn zero_of_output(b: &mut Builder, zero: Option<ValueId>) -> Result<(ValueId, DType), Fault> {
    match zero {
        Some(id) if b.constant(id).is_some_and(|zero| zero.four_bits) => {
            Err(Fault::new("its result has four bits", "quantise activations to eight bits"))
        }
        Some(id) => Ok((one_zero(b, id, "zero points of its output")?, bytes(b, id)?)),
        None => Ok((b.add_constant(Tensor::bytes(&[1], DType::U8, [0])), DType::U8)),
    }
}

/// A product of matrices, or of a batch: the call, the operands, the columns, and the shape of the result.
fn product(b: &mut Builder, a: ValueId, w: ValueId) -> Result<(Call, [ValueId; 2], i64, Vec<i64>), Fault> {
    let (mut left, right) = (b.shape(a), b.shape(w));
    let row = left.len() == 1 && right.len() == 2;
    if row {
        left.insert(0, 1);
    }
    let ([.., rows, depth], [.., depth_of_b, columns]) = (&left[..], &right[..]) else {
        let help = "export the model with matrices";
        return Err(Fault::new(format!("{left:?} by {right:?}"), help));
    };
    let (batch_a, batch_b) = (&left[..left.len() - 2], &right[..right.len() - 2]);
    if depth != depth_of_b {
        return Err(Fault::new(format!("{left:?} by {right:?}"), "check the extents that the spec gives the inputs"));
    }
    let shape = if row { vec![*columns] } else { [batch_a, &[*rows, *columns]].concat() };
    if batch_b.iter().all(|n| *n == 1) && batch_b.len() <= batch_a.len() {
        let (sa, sb) = ([batch_a.iter().product::<i64>() * rows, *depth], [*depth, *columns]);
        let (a, w) = (b.view(a, &sa)?, b.view(w, &sb)?);
        return Ok((Call::new("matmul", &[a, w]).key("a", &sa).key("b", &sb), [a, w], *columns, shape));
    }
    if batch_a != batch_b {
        let help = "integers are multiplied with one right factor, or with as many as left ones";
        return Err(Fault::new(format!("batches of {batch_a:?} and {batch_b:?}"), help));
    }
    let batch = batch_a.iter().product::<i64>();
    let (sa, sb) = ([batch, *rows, *depth], [batch, *depth, *columns]);
    let (a, w) = (b.view(a, &sa)?, b.view(w, &sb)?);
    Ok((Call::new("batch_matmul", &[a, w]).key("a", &sa).key("b", &sb), [a, w], *columns, shape))
}

/// A convolution or product that adds up integers.
struct Sums {
    /// The operator, without what makes it one of integers.
    call: Call,
    /// Input and weights, in the shapes that it takes.
    operands: [ValueId; 2],
    /// The axis of the weights' output channels, and how many there are.
    axis: usize,
    channels: i64,
    /// The shape of the result, where it is another than the operator's; a convolution of lines loses a dimension.
    shape: Option<Vec<i64>>,
    line: bool,
}

impl Sums {
    /// What `Conv`, `Gemm` or `MatMul` adds up.
    fn of(b: &mut Builder, node: &Node, op: &str, operands: [ValueId; 2]) -> Result<Sums, Fault> {
        match op {
            "Conv" => {
                let (call, line) = convolution(b, node, operands[0], operands[1])?;
                let channels = b.shape(operands[1])[0];
                Ok(Sums { call, operands, axis: 0, channels, shape: None, line })
            }
            "Gemm" => Sums::gemm(b, node, operands),
            _ => {
                let (call, operands, channels, shape) = product(b, operands[0], operands[1])?;
                let axis = b.shape(operands[1]).len() - 1;
                Ok(Sums { call, operands, axis, channels, shape: Some(shape), line: false })
            }
        }
    }

    fn gemm(b: &Builder, node: &Node, operands @ [a, w]: [ValueId; 2]) -> Result<Sums, Fault> {
        if node.float("alpha", 1.0) != 1.0 {
            return Err(Fault::attribute("alpha", node.float("alpha", 1.0), "1"));
        }
        let (trans_a, trans_b) = (node.flag("transA"), node.flag("transB"));
        let (left, right) = (b.shape(a), b.shape(w));
        if left.len() != 2 || right.len() != 2 {
            return Err(Fault::new("its operands are no matrices", "export the model again"));
        }
        let axis = usize::from(!trans_b);
        let call = Call::new("matmul", &operands).key("a", &left).key("b", &right);
        let call = call.flag("trans_a", trans_a).flag("trans_b", trans_b);
        Ok(Sums { call, operands, axis, channels: right[axis], shape: None, line: false })
    }

    /// The result, of integers, with a bias of integers, and with what is done to the sums.
    fn compute(
        self,
        b: &mut Builder,
        zeros: [Option<ValueId>; 2],
        bias: Option<ValueId>,
        then: impl FnOnce(&mut Builder, Call) -> Result<Call, Fault>,
    ) -> Result<ValueId, Fault> {
        let call = integers(b, self.call, (self.operands, self.axis), zeros, bias)?;
        let call = then(b, call)?;
        let y = b.compute(call)?;
        match self.shape {
            Some(shape) => b.view(y, &shape),
            None if self.line => without_row(b, y),
            None => Ok(y),
        }
    }
}

/// The sums of windows of each channel of images, as a depthwise convolution whose weights are 1; a pixel is a window, too.
pub(super) fn of_windows(
    b: &mut Builder,
    x: ValueId,
    zero: Option<ValueId>,
    taps: &[i64],
    keys: impl FnOnce(Call) -> Call,
) -> Result<Call, Fault> {
    let image = b.shape(x);
    let weight = [&[image[1], 1], taps].concat();
    let count = weight.iter().product::<i64>();
    b.allow(count, 0)?;
    let ones = b.add_constant(Tensor::bytes(&weight, DType::I8, vec![1; count as usize]));
    let call = Call::new("depthwise_conv2d", &[x, ones]).key("input", &image).key("weight", &weight);
    let call = keys(call.key("groups", &[image[1]]));
    integers(b, call, ([x, ones], 0), [zero, None], None)
}

/// `ConvInteger` and `MatMulInteger`: input, weights and their zero points.
pub(super) fn of_integers(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let op = if node.op == "ConvInteger" { "Conv" } else { "MatMul" };
    let sums = Sums::of(b, node, op, [required(x, 0)?, required(x, 1)?])?;
    let zeros = [2, 3].map(|at| zero(b, x, at));
    sums.compute(b, zeros, None, |_, call| Ok(call))
}

/// `QLinearConv`, `QLinearMatMul`, and `QGemm` of ONNX Runtime: input, weights and output with their scales and zero points, and a bias of
/// integers, which `QGemm` has in front of the output's.
pub(super) fn qlinear(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (op, output, bias) = match node.op.as_str() {
        "QLinearConv" => ("Conv", [6, 7], 8),
        "QGemm" => ("Gemm", [7, 8], 6),
        _ => ("MatMul", [6, 7], 8),
    };
    let sums = Sums::of(b, node, op, [required(x, 0)?, required(x, 3)?])?;
    let (zeros, channels) = ([2, 5].map(|at| zero(b, x, at)), sums.channels);
    let factors = [required(x, 1)?, required(x, 4)?];
    let output = output.map(|at| x.get(at).copied().flatten());
    sums.compute(b, zeros, x.get(bias).copied().flatten(), |b, call| requantized(b, call, factors, output, channels))
}

/// [`SUMS`](crate::network::model::SUMS): a `Conv`, `Gemm` or `MatMul` of integers whose result is numbers. Input and weights with their
/// scales and zero points, and a bias of integers.
pub(super) fn as_numbers(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let sums = Sums::of(b, node, node.text(SUMS, ""), [required(x, 0)?, required(x, 3)?])?;
    let (zeros, channels) = ([2, 5].map(|at| zero(b, x, at)), sums.channels);
    let factors = [required(x, 1)?, required(x, 4)?];
    sums.compute(b, zeros, x.get(6).copied().flatten(), |b, call| {
        let multiplier = multiplier(b, factors, None, channels)?;
        Ok(call.then(Epilogue::Dequantize, &[multiplier]).gives(DType::F32))
    })
}

/// `QLinearAdd` of ONNX Runtime: both summands and the sum with their scales and zero points.
pub(super) fn qlinear_add(b: &mut Builder, _: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (first, second) = ([required(x, 0)?, required(x, 1)?], [required(x, 3)?, required(x, 4)?]);
    let (zero_of_first, zero_of_second) = (zero(b, x, 2), x.get(5).copied().flatten());
    let output = required(x, 6)?;
    let (out_zero, out_dtype) = zero_of_output(b, x.get(7).copied().flatten())?;
    let (shape, types) = (b.shape(first[0]), [bytes(b, first[0])?, bytes(b, second[0])?]);
    if shape != b.shape(second[0]) || types != [out_dtype; 2] {
        // In numbers.
        let a = dequantized(b, first[0], first[1], zero_of_first)?;
        let c = dequantized(b, second[0], second[1], zero_of_second)?;
        let sum = binary(b, "add", a, c)?;
        return quantized(b, sum, output, (out_zero, out_dtype));
    }
    let of_output = scale(b, "scale of its output", output)?;
    let [m, r] = [
        scale(b, "scale of its first summand", first[1])? / of_output,
        scale(b, "scale of its second summand", second[1])? / of_output,
    ];
    let elements = as_it_is(&shape);
    let channels = elements[elements.len().min(2) - 1];
    let none = |b: &mut Builder| b.add_constant(Tensor::bytes(&[1], out_dtype, [0]));
    let residual_zero = match zero_of_second {
        Some(id) => one_zero(b, id, "zero points of its second summand")?,
        None => none(b),
    };
    let input_zero = zero_of_first.map(|id| one_zero(b, id, "zero points of its first summand")).transpose()?;
    let multiplier = b.add_constant(Tensor::floats(&[channels], vec![m; channels.max(0) as usize]));
    let factor = b.add_constant(Tensor::floats(&[1], [r]));
    let (a, c) = (b.view(first[0], &elements)?, b.view(second[0], &elements)?);
    let quant = Quant { input_zero: input_zero.is_some(), ..Quant::default() };
    let call = Call::new("identity", &[a]).key("input", &elements).integers(types[0], quant, input_zero);
    let call = call.then(Epilogue::RequantizeAdd, &[multiplier, c, residual_zero, factor, out_zero]).gives(out_dtype);
    let y = b.compute(call)?;
    b.view(y, &shape)
}

/// The numbers that integers with one scale stand for.
pub(super) fn dequantized(
    b: &mut Builder,
    of: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
) -> Result<ValueId, Fault> {
    dequantize(b, &Node::default(), &[Some(of), Some(scale), zero])
}

/// The integers that numbers are with one scale.
pub(super) fn quantized(
    b: &mut Builder,
    of: ValueId,
    scale: ValueId,
    (zero, dtype): (ValueId, DType),
) -> Result<ValueId, Fault> {
    let shape = b.shape(of);
    let elements = as_it_is(&shape);
    let (of, scale) = (b.view(of, &elements)?, b.view(scale, &[1])?);
    let call = Call::new("identity", &[of]).key("input", &elements);
    let y = b.compute(call.then(Epilogue::Quantize, &[scale, zero]).gives(dtype))?;
    b.view(y, &shape)
}

/// A tensor as images, channels and pixels, of which the channels are an axis; all of an image is one channel where there is none.
fn by_channel(shape: &[i64], axis: Option<usize>) -> [i64; 3] {
    match axis {
        Some(at) => [shape[..at].iter().product(), shape[at], shape[at + 1..].iter().product()],
        None => match shape {
            [] => [1, 1, 1],
            [images, of_one @ ..] => [*images, 1, of_one.iter().product()],
        },
    }
}

/// The axis of scales that are a list; none of a single one.
fn axis_of(b: &Builder, node: &Node, x: ValueId, scale: ValueId) -> Result<Option<usize>, Fault> {
    let (shape, count) = (b.shape(x), b.program.elements(scale));
    if node.integer("block_size", 0) != 0 {
        let help = "0, or constant integers, as weights are";
        return Err(Fault::attribute("block_size", node.integer("block_size", 0), help));
    }
    if count == 1 {
        return Ok(None);
    }
    let at = axis(node.integer("axis", 1), shape.len())?;
    match shape[at] == count {
        true => Ok(Some(at)),
        false => {
            let cause = format!("it has {count} scales, and axis {at} of {shape:?} is not as long");
            Err(Fault::new(cause, "export the model again"))
        }
    }
}

/// `QuantizeLinear` with one scale.
pub(super) fn quantize(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (of, scale) = (required(x, 0)?, required(x, 1)?);
    if b.constant(scale).is_some() {
        scales(b, "scale", scale)?;
    }
    if axis_of(b, node, of, scale)?.is_some() {
        return Err(Fault::new("it has a scale for each channel", "quantise activations with one scale"));
    }
    let zero = match (x.get(2).copied().flatten(), node.integer("output_dtype", 0)) {
        // ONNX's types: none, UINT8, INT8.
        (None, 0 | 2) => None,
        (None, 3) => Some(b.add_constant(Tensor::bytes(&[1], DType::I8, [0]))),
        (None, other) => return Err(Fault::attribute("output_dtype", other, "2 (uint8) or 3 (int8)")),
        (zero, _) => zero,
    };
    let output = zero_of_output(b, zero)?;
    quantized(b, of, scale, output)
}

/// A shape that functions of elements take: images stay images, whose order a later pass may choose.
pub(super) fn as_it_is(shape: &[i64]) -> Vec<i64> {
    if (1..=4).contains(&shape.len()) { shape.to_vec() } else { by_channel(shape, None).to_vec() }
}

/// Most channels that one scale is repeated for.
const MOST_CHANNELS: i64 = 1 << 16;

/// `DequantizeLinear`, also of a bias, whose integers have 32 bits and are constants.
pub(super) fn dequantize(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (of, scale) = (required(x, 0)?, required(x, 1)?);
    let zeros = zero(b, x, 2);
    if let (Some(tensor), Some(known), 1..) = (b.constant(of), b.constant(scale), node.integer("block_size", 0)) {
        return of_blocks(b, node, (&tensor, &known), zeros);
    }
    let (shape, along) = (b.shape(of), axis_of(b, node, of, scale)?);
    let groups = by_channel(&shape, along);
    if let (Some(tensor), Some(known)) = (b.constant(of), b.constant(scale)) {
        let (numbers, known) = (tensor.to_integers(), known.to_floats());
        let numbers = numbers.ok_or_else(|| Fault::new("it takes integers", "export the model again"))?;
        let zeros = zeros.map_or(Ok(vec![0]), |id| b.integers("zero points", id))?;
        if ![1, known.len()].contains(&zeros.len()) {
            let cause = format!("it has {} scales and {} zero points", known.len(), zeros.len());
            return Err(Fault::new(cause, "export the model again"));
        }
        let [_, channels, inner] = groups;
        let channel = |i: usize| (i as i64 / inner.max(1) % channels.max(1)) as usize;
        let value = |(i, q): (usize, &i64)| {
            let at = |count: usize| if count == 1 { 0 } else { channel(i) };
            (q - zeros[at(zeros.len())]) as f32 * known[at(known.len())]
        };
        b.allow(numbers.len() as i64, numbers.len() as i64)?;
        let values: Vec<f32> = numbers.iter().enumerate().map(value).collect();
        return Ok(b.add_constant(Tensor::floats(&shape, values)));
    }
    let dtype = bytes(b, of)?;
    // One for each channel is a bias that is taken away.
    let (zero, each) = match zeros {
        Some(id) if along.is_some() && b.program.elements(id) == groups[1] => (None, Some(id)),
        zeros => (zeros.map(|id| one_zero(b, id, "zero points")).transpose()?, None),
    };
    // One scale that is known is one for each channel of an image, too.
    let (elements, scale) = match (along, b.constant(scale)) {
        (None, Some(known)) if shape.len() == 4 && shape[1] <= MOST_CHANNELS => {
            let each = vec![known.to_floats()[0]; shape[1].max(0) as usize];
            (shape.clone(), b.add_constant(Tensor::floats(&[shape[1]], each)))
        }
        _ => (groups.to_vec(), b.view(scale, &[groups[1]])?),
    };
    let of = b.view(of, &elements)?;
    let quant = Quant { input_zero: zero.is_some(), ..Quant::default() };
    let mut call = Call::new("identity", &[of]).key("input", &elements).integers(dtype, quant, zero);
    if let Some(id) = each {
        let less: Vec<i64> = b.integers("zero points", id)?.iter().map(|z| -z).collect();
        let less = b.add_constant(Tensor::integers(&[groups[1]], less));
        call = call.then(Epilogue::Bias, &[less]);
    }
    let y = b.compute(call.then(Epilogue::Dequantize, &[scale]).gives(DType::F32))?;
    b.view(y, &shape)
}

/// `DequantizeLinear` of constants whose blocks along an axis have scales.
fn of_blocks(
    b: &mut Builder,
    node: &Node,
    (tensor, scales): (&Tensor, &Tensor),
    zeros: Option<ValueId>,
) -> Result<ValueId, Fault> {
    let (shape, block) = (&tensor.shape, node.integer("block_size", 0));
    let at = axis(node.integer("axis", 1), shape.len())?;
    let blocks = shape[at] / block + i64::from(shape[at] % block != 0);
    let mut expected = shape.clone();
    expected[at] = blocks;
    if scales.shape != expected {
        let cause = format!(
            "blocks of {block} of {shape:?} along axis {at} have scales of {expected:?}, not {:?}",
            scales.shape
        );
        return Err(Fault::new(cause, "export the model again"));
    }
    let integers = tensor.to_integers().ok_or_else(|| Fault::new("it takes integers", "export the model again"))?;
    if zeros.is_some_and(|id| b.shape(id) != scales.shape) {
        return Err(Fault::new("its zero points have another shape than its scales", "export the model again"));
    }
    let zeros = zeros.map(|id| b.integers("zero points", id)).transpose()?;
    b.allow(integers.len() as i64, integers.len() as i64)?;
    let (floats, inner) = (scales.to_floats(), shape[at + 1..].iter().product::<i64>());
    let value = |(i, q): (usize, &i64)| {
        let (outer, along, within) = (i as i64 / inner / shape[at], i as i64 / inner % shape[at], i as i64 % inner);
        let scale = ((outer * blocks + along / block) * inner + within) as usize;
        q.saturating_sub(zeros.as_ref().map_or(0, |zeros| zeros[scale])) as f32 * floats[scale]
    };
    let values: Vec<f32> = integers.iter().enumerate().map(value).collect();
    Ok(b.add_constant(Tensor::floats(shape, values)))
}

/// `DynamicQuantizeLinear`: integers, scale and zero point of what the input turns out to be.
pub(super) fn dynamic_quantize(b: &mut Builder, _: &Node, x: &[Option<ValueId>]) -> Result<Vec<ValueId>, Fault> {
    let x = required(x, 0)?;
    let shape = b.shape(x);
    let elements = shape.iter().product::<i64>();
    let row = b.view(x, &[1, elements])?;
    let number = |b: &mut Builder, value: f32| b.add_constant(Tensor::floats(&[1], [value]));
    let zero = number(b, 0.0);
    let mut extreme = |reduce: &'static str, with: &'static str| {
        let call = Call::new(reduce, &[row]).key("input", &[1, elements]).key("axes", &[1]);
        let found = b.compute(call)?;
        let found = b.view(found, &[1])?;
        binary(b, with, found, zero)
    };
    let (least, most) = (extreme("reduce_min", "minimum")?, extreme("reduce_max", "maximum")?);
    let range = binary(b, "subtract", most, least)?;
    let steps = number(b, 255.0);
    let scale = binary(b, "divide", range, steps)?;
    // Of zeros alone the scale is 1, as ONNX Runtime has it: any would do, and 0 would make NaN of them.
    let is_nothing = binary(b, "equal", range, zero)?;
    let scale = binary(b, "add", scale, is_nothing)?;
    // The zero point is that of a quantisation by itself: round(0 - least / scale).
    let below = binary(b, "subtract", zero, least)?;
    let (one, none) = (number(b, 1.0), b.add_constant(Tensor::bytes(&[1], DType::U8, [0])));
    let quotient = binary(b, "divide", below, scale)?;
    let quotient = b.view(quotient, &[1, 1, 1])?;
    let call = Call::new("identity", &[quotient]).key("input", &[1, 1, 1]);
    let zero_point = b.compute(call.then(Epilogue::Quantize, &[one, none]).gives(DType::U8))?;
    let zero_point = b.view(zero_point, &[1])?;
    let image = b.view(x, &[1, 1, elements])?;
    let call = Call::new("identity", &[image]).key("input", &[1, 1, elements]);
    let y = b.compute(call.then(Epilogue::Quantize, &[scale, zero_point]).gives(DType::U8))?;
    let (y, scale, zero_point) = (b.view(y, &shape)?, b.view(scale, &[])?, b.view(zero_point, &[])?);
    Ok(vec![y, scale, zero_point])
}
