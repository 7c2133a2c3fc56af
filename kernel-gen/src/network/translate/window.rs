//! Windows that slide over pixels: strides, dilations and padding of a node; and pooling.

use super::builder::{Builder, Call};
use super::operands::required;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;

/// How a window slides.
pub(super) struct Window {
    stride: Vec<i64>,
    dilation: Vec<i64>,
    /// Before in each dimension, then behind in each.
    pub(super) padding: Vec<i64>,
    /// Pixels that the output of a transposed convolution has more at its end.
    pub(super) more: Vec<i64>,
}

/// A list of integers with one for each dimension.
fn each(node: &Node, name: &str, rank: usize, otherwise: i64) -> Result<Vec<i64>, Fault> {
    match node.integers(name) {
        None => Ok(vec![otherwise; rank]),
        Some(list) if list.len() == rank && list.iter().all(|n| n.unsigned_abs() <= u32::MAX.into()) => Ok(list),
        Some(list) => Err(Fault::attribute(name, format!("{list:?}"), &format!("{rank} numbers of 32 bits"))),
    }
}

impl Window {
    fn read(node: &Node, rank: usize) -> Result<Window, Fault> {
        let padding = each(node, "pads", 2 * rank, 0)?;
        if padding.iter().any(|p| *p < 0) {
            return Err(Fault::attribute("pads", format!("{padding:?}"), "padding that is not negative"));
        }
        let (stride, dilation) = (each(node, "strides", rank, 1)?, each(node, "dilations", rank, 1)?);
        for (name, list) in [("strides", &stride), ("dilations", &dilation)] {
            if list.iter().any(|n| !(1..=i64::from(u32::MAX)).contains(n)) {
                return Err(Fault::attribute(name, format!("{list:?}"), "numbers from 1 on"));
            }
        }
        Ok(Window { stride, dilation, padding, more: vec![0; rank] })
    }

    /// The window of a convolution or of pooling.
    pub(super) fn of(node: &Node, pixels: &[i64], taps: &[i64]) -> Result<Window, Fault> {
        let mut window = Window::read(node, pixels.len())?;
        let total = |i: usize| {
            let outputs = (pixels[i] + window.stride[i] - 1) / window.stride[i];
            let spanned = (outputs - 1).saturating_mul(window.stride[i]).saturating_add(window.span(i, taps));
            spanned.saturating_sub(pixels[i]).max(0)
        };
        match node.text("auto_pad", "NOTSET") {
            "NOTSET" => {}
            "VALID" => window.padding.fill(0),
            how @ ("SAME_UPPER" | "SAME_LOWER") => {
                let total: Vec<i64> = (0..pixels.len()).map(total).collect();
                window.padding = halves(&total, how == "SAME_UPPER");
            }
            other => return Err(Fault::attribute("auto_pad", other, "explicit padding")),
        }
        Ok(window)
    }

    /// The window of a transposed convolution.
    pub(super) fn transposed(node: &Node, pixels: &[i64], taps: &[i64]) -> Result<Window, Fault> {
        let rank = pixels.len();
        let mut window = Window::read(node, rank)?;
        window.more = each(node, "output_padding", rank, 0)?;
        let natural = |i: usize| {
            (pixels[i] - 1).saturating_mul(window.stride[i]).saturating_add(window.span(i, taps)) + window.more[i]
        };
        let how = node.text("auto_pad", "NOTSET");
        let shape = node.integers("output_shape").map(|shape| shape[shape.len().saturating_sub(rank)..].to_vec());
        if shape.is_some() || how.starts_with("SAME") {
            let shape =
                shape.unwrap_or_else(|| (0..rank).map(|i| pixels[i].saturating_mul(window.stride[i])).collect());
            if shape.len() != rank || shape.iter().any(|n| !(1..=i64::from(u32::MAX)).contains(n)) {
                return Err(Fault::attribute("output_shape", format!("{shape:?}"), &format!("{rank} numbers")));
            }
            let total: Vec<i64> = (0..rank).map(|i| natural(i) - shape[i]).collect();
            window.padding = halves(&total, how == "SAME_UPPER");
        } else if how == "VALID" {
            window.padding.fill(0);
        }
        // A padding below zero at the end is pixels that the output has more.
        for i in 0..rank {
            window.more[i] += (-window.padding[rank + i]).max(0);
            window.padding[rank + i] = window.padding[rank + i].max(0);
        }
        if window.padding.iter().any(|p| *p < 0) {
            return Err(Fault::attribute("output_shape", "larger than what the input spans", "explicit padding"));
        }
        Ok(window)
    }

    /// Pixels from the first tap to the last.
    fn span(&self, i: usize, taps: &[i64]) -> i64 {
        (taps[i] - 1).saturating_mul(self.dilation[i]).saturating_add(1)
    }

    /// The same with one more dimension in front, of one pixel.
    pub(super) fn raise(&mut self) {
        self.stride.insert(0, 1);
        self.dilation.insert(0, 1);
        self.padding.insert(self.padding.len() / 2, 0);
        self.padding.insert(0, 0);
        self.more.insert(0, 0);
    }

    /// An operator with these keys.
    pub(super) fn keys(&self, call: Call) -> Call {
        call.key("stride", &self.stride).key("dilation", &self.dilation).key("padding", &self.padding)
    }
}

/// A total padding as that before and that behind; the larger half is behind, or before.
fn halves(total: &[i64], behind: bool) -> Vec<i64> {
    let small = total.iter().map(|t| t.div_euclid(2));
    let large = total.iter().map(|t| t - t.div_euclid(2));
    if behind { small.chain(large).collect() } else { large.chain(small).collect() }
}

/// `MaxPool`, `AveragePool`, `GlobalMaxPool` and `GlobalAveragePool`.
pub(super) fn pool(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let x = required(x, 0)?;
    let mut image = b.shape(x);
    let rank = image.len().saturating_sub(2);
    if !(1..=3).contains(&rank) {
        return Err(Fault::new(format!("an input of {image:?}"), "pooling has one to three dimensions of pixels"));
    }
    let global = node.op.starts_with("Global");
    let (average, mut taps) = (node.op.contains("Average"), image[2..].to_vec());
    if global && average {
        // A mean over whole images: rows of a matrix.
        let (rows, columns) = (image[0] * image[1], taps.iter().product());
        let view = b.view(x, &[rows, columns])?;
        let y = b.compute(Call::new("reduce_mean", &[view]).key("input", &[rows, columns]).key("axes", &[1]))?;
        let mut shape = vec![1; image.len()];
        shape[..2].copy_from_slice(&image[..2]);
        return b.view(y, &shape);
    }
    if !global {
        taps = node
            .integers("kernel_shape")
            .filter(|taps| taps.len() == rank && taps.iter().all(|n| (1..=i64::from(u32::MAX)).contains(n)))
            .ok_or_else(|| {
                Fault::new("`kernel_shape` is missing", format!("give the size of the window, {rank} numbers"))
            })?;
    }
    if node.integer("storage_order", 0) != 0 {
        return Err(Fault::attribute("storage_order", 1, "row-major order"));
    }
    let mut window = if global { Window::read(&Node::default(), rank)? } else { Window::of(node, &image[2..], &taps)? };
    let line = rank == 1;
    if line {
        window.raise();
        image.insert(2, 1);
        taps.insert(0, 1);
    }
    let kind = match (average, image.len()) {
        (true, 4) => "avg_pool2d",
        (true, _) => "avg_pool3d",
        (false, 4) => "max_pool2d",
        (false, _) => "max_pool3d",
    };
    let view = b.view(x, &image)?;
    let call = Call::new(kind, &[view]).key("input", &image).key("window", &taps);
    let call = call.flag("ceil_mode", node.flag("ceil_mode"));
    let call = call.flag("count_include_pad", average && node.flag("count_include_pad"));
    let y = b.compute(window.keys(call))?;
    if !line {
        return Ok(y);
    }
    let mut shape = b.shape(y);
    shape.remove(2);
    b.view(y, &shape)
}
