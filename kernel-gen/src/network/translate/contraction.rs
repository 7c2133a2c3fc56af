//! Convolutions and products of matrices.

use super::builder::{Builder, Call};
use super::element::binary;
use super::operands::{broadcast, required};
use super::window::Window;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use crate::workload::Epilogue;

/// `Conv`: of one, two or three dimensions, with groups.
pub(super) fn conv(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (x, w, bias) = operands(x)?;
    let (call, line) = convolution(b, node, x, w)?;
    let y = finish(b, call, bias)?;
    if line { without_row(b, y) } else { Ok(y) }
}

/// A convolution, and whether it is of one dimension, which is two here, of which the first has one pixel.
pub(super) fn convolution(b: &mut Builder, node: &Node, x: ValueId, w: ValueId) -> Result<(Call, bool), Fault> {
    let (mut image, mut weight) = (b.shape(x), b.shape(w));
    if image.len() != weight.len() || !(3..=5).contains(&image.len()) {
        let cause = format!("an input of {image:?} and a weight of {weight:?}");
        return Err(Fault::new(cause, "convolutions have one to three dimensions of pixels"));
    }
    let mut window = Window::of(node, &image[2..], &weight[2..])?;
    let line = image.len() == 3;
    if line {
        window.raise();
        image.insert(2, 1);
        weight.insert(2, 1);
    }
    let (x, w) = (b.view(x, &image)?, b.view(w, &weight)?);
    let groups = node.integer("group", 1);
    let kind = match image.len() {
        5 => "conv3d",
        _ if groups > 1 && groups == image[1] => "depthwise_conv2d",
        _ => "conv2d",
    };
    let call = Call::new(kind, &[x, w]).key("input", &image).key("weight", &weight).key("groups", &[groups]);
    Ok((window.keys(call), line))
}

/// The result of a convolution of one dimension as one of these.
pub(super) fn without_row(b: &mut Builder, y: ValueId) -> Result<ValueId, Fault> {
    let mut shape = b.shape(y);
    shape.remove(2);
    b.view(y, &shape)
}

/// `ConvTranspose`.
pub(super) fn conv_transpose(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (x, w, bias) = operands(x)?;
    let (image, weight) = (b.shape(x), b.shape(w));
    let rank = image.len().saturating_sub(2);
    let kind =
        *["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"].get(rank.wrapping_sub(1)).ok_or_else(|| {
            Fault::new(
                format!("an input of {image:?}"),
                "transposed convolutions have one to three dimensions of pixels",
            )
        })?;
    if weight.len() != image.len() {
        return Err(Fault::new(format!("a weight of {weight:?}"), "export the model again"));
    }
    let window = Window::transposed(node, &image[2..], &weight[2..])?;
    let call = Call::new(kind, &[x, w]).key("input", &image).key("weight", &weight);
    let call = call.key("output_padding", &window.more).key("groups", &[node.integer("group", 1)]);
    finish(b, window.keys(call), bias)
}

/// A convolution with its bias, if there is one.
fn finish(b: &mut Builder, call: Call, bias: Option<ValueId>) -> Result<ValueId, Fault> {
    b.compute(match bias {
        Some(bias) => call.then(Epilogue::Bias, &[bias]),
        None => call,
    })
}

/// `Gemm`.
pub(super) fn gemm(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (mut a, mut w, c) = operands(x)?;
    let (trans_a, trans_b) = (node.flag("transA"), node.flag("transB"));
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    if b.shape(a).len() != 2 || b.shape(w).len() != 2 {
        return Err(Fault::new("its operands are no matrices", "export the model again"));
    }
    // Factors go into what is constant.
    if alpha != 1.0 {
        match b.constant(w) {
            Some(_) => w = scaled(b, w, alpha)?,
            None => a = scaled(b, a, alpha)?,
        }
    }
    let (shape_a, shape_b) = (b.shape(a), b.shape(w));
    let (rows, columns) = (shape_a[usize::from(trans_a)], shape_b[usize::from(!trans_b)]);
    let call = Call::new("matmul", &[a, w]).key("a", &shape_a).key("b", &shape_b);
    let call = call.flag("trans_a", trans_a).flag("trans_b", trans_b);
    let Some(c) = c.filter(|_| beta != 0.0) else { return b.compute(call) };
    let c = if beta == 1.0 { c } else { scaled(b, c, beta)? };
    let shape = b.shape(c);
    match (b.constant(c), &shape[..]) {
        (_, [n] | [1, n]) if *n == columns => b.compute(call.then(Epilogue::Bias, &[c])),
        (Some(constant), _) if constant.data.len() == 1 => {
            let bias = vec![constant.to_floats()[0]; columns.max(0) as usize];
            let bias = b.add_constant(Tensor::floats(&[columns], bias));
            b.compute(call.then(Epilogue::Bias, &[bias]))
        }
        (_, [m, n]) if (*m, *n) == (rows, columns) => b.compute(call.then(Epilogue::ResidualAdd, &[c])),
        _ => {
            let y = b.compute(call)?;
            binary(b, "add", y, c)
        }
    }
}

/// A value times a factor.
fn scaled(b: &mut Builder, x: ValueId, factor: f32) -> Result<ValueId, Fault> {
    let factor = b.add_constant(Tensor::floats(&[1], [factor]));
    binary(b, "multiply", x, factor)
}

/// `MatMul`, as NumPy's: operands of one dimension are rows and columns, batches broadcast.
pub(super) fn matmul(b: &mut Builder, _: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let (a, w, _) = operands(x)?;
    let (mut left, mut right) = (b.shape(a), b.shape(w));
    if left.is_empty() || right.is_empty() {
        return Err(Fault::new("it takes a scalar", "export the model again"));
    }
    let (row, column) = (left.len() == 1, right.len() == 1);
    if row {
        left.insert(0, 1);
    }
    if column {
        right.push(1);
    }
    let (rows, columns) = (left[left.len() - 2], right[right.len() - 1]);
    let ([.., depth], [.., depth_of_b, _]) = (&left[..], &right[..]) else { unreachable!("both have two extents") };
    if depth != depth_of_b {
        return Err(Fault::new(format!("{left:?} by {right:?}"), "check the extents that the spec gives the inputs"));
    }
    let (batch_a, batch_b) = (left[..left.len() - 2].to_vec(), right[..right.len() - 2].to_vec());
    let mut shape = broadcast(&batch_a, &batch_b)?;
    let y = if batch_b.iter().all(|n| *n == 1) && batch_b.len() <= batch_a.len() {
        // One right factor for the whole batch: its rows are those of one product.
        let (m, k, n) = (batch_a.iter().product::<i64>() * rows, *depth, columns);
        let (a, w) = (b.view(a, &[m, k])?, b.view(w, &[k, n])?);
        b.compute(Call::new("matmul", &[a, w]).key("a", &[m, k]).key("b", &[k, n]))?
    } else if batch_a == batch_b {
        let batch = batch_a.iter().product::<i64>();
        let (sa, sb) = ([batch, rows, *depth], [batch, *depth, columns]);
        let (a, w) = (b.view(a, &sa)?, b.view(w, &sb)?);
        b.compute(Call::new("batch_matmul", &[a, w]).key("a", &sa).key("b", &sb))?
    } else {
        let (a, w) = (b.view(a, &left)?, b.view(w, &right)?);
        b.compute(Call::new("broadcast_matmul", &[a, w]).key("a", &left).key("b", &right))?
    };
    shape.extend((!row).then_some(rows));
    shape.extend((!column).then_some(columns));
    b.view(y, &shape)
}

/// The first two operands, which must be there, and the third.
fn operands(x: &[Option<ValueId>]) -> Result<(ValueId, ValueId, Option<ValueId>), Fault> {
    Ok((required(x, 0)?, required(x, 1)?, x.get(2).copied().flatten()))
}
