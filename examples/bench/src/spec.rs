//! What `kernels.toml` says about each layer: what the reference needs and the wrappers do not tell.

use serde::Deserialize;
use std::error::Error;

/// The spec that the kernels were generated from.
const SPEC: &str = include_str!("../kernels.toml");

#[derive(Deserialize)]
struct Spec {
    kernel: Vec<Kernel>,
}

#[derive(Deserialize)]
struct Kernel {
    op: String,
    layout: Option<String>,
    workload: Vec<Workload>,
}

#[derive(Deserialize)]
struct Workload {
    name: String,
    stride: Option<[usize; 2]>,
    padding: Option<Vec<usize>>,
    groups: Option<usize>,
}

/// What a layer computes; sizes come with the tensors.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    /// The layer's name.
    pub(crate) name: String,
    /// The operator.
    pub(crate) kind: Kind,
}

/// The operators of the spec.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A convolution.
    Conv(Conv),
    /// A product of row-major matrices.
    Matmul,
}

/// What the shapes do not say of a convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    /// Whether activations are in blocks of 16 channels, `[n, c/16, h, w, 16]`, instead of `[n, c, h, w]`.
    pub(crate) blocked: bool,
    /// Vertical and horizontal step.
    pub(crate) stride: [usize; 2],
    /// Rows above and columns to the left.
    pub(crate) top_left: [usize; 2],
    /// Groups of channels.
    pub(crate) groups: usize,
}

/// The layers of the spec, in its order.
pub(crate) fn operators() -> Result<Vec<Operator>, Box<dyn Error>> {
    let spec: Spec = toml::from_str(SPEC)?;
    let mut operators = vec![];
    for kernel in spec.kernel {
        for w in kernel.workload {
            let kind = if kernel.op.contains("matmul") {
                Kind::Matmul
            } else {
                let padding = w.padding.unwrap_or_else(|| vec![0, 0]);
                Kind::Conv(Conv {
                    blocked: kernel.layout.as_deref() == Some("NCHW16c"),
                    stride: w.stride.unwrap_or([1, 1]),
                    top_left: [padding[0], padding[1]],
                    groups: w.groups.unwrap_or(1),
                })
            };
            operators.push(Operator { name: w.name, kind });
        }
    }
    Ok(operators)
}
