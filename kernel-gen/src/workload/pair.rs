//! A depthwise convolution and the pointwise convolution of its result, as one operator.

use super::conv2d::positive;
use super::{Conv2d, ConvLayout, Epilogue, WorkloadError};

/// A depthwise convolution whose result a 1x1 convolution mixes: the block that MobileNets are made of.
///
/// ```text
/// mid[n, c, oh, ow] = f(sum over kh, kw of x[n, c, ..] * dw[c, 0, kh, kw] + dw_bias[c])
/// y[n, o, oh, ow]   = sum over c of mid[n, c, oh, ow] * w[o, c, 0, 0], and the workload's epilogue
/// ```
///
/// `mid` is never stored, so it is not rounded to the storage type either: it is `f32` whatever the tensors are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DepthwisePointwise {
    /// The depthwise convolution: in NCHW, with as many groups and output channels as it has input channels.
    pub depthwise: Conv2d,
    /// Output channels of the pointwise convolution.
    pub co: i64,
    /// Whether a bias is added to the depthwise sums: the parameter `dw_bias`.
    pub bias: bool,
    /// What is done to them after that: one of the steps that are activations.
    pub activation: Option<Epilogue>,
}

impl DepthwisePointwise {
    /// A pair without anything between the two. Of `conv` its layout, sizes, stride, padding and dilation count.
    pub fn new(conv: Conv2d, co: i64) -> DepthwisePointwise {
        let depthwise = Conv2d { groups: conv.ci, co: conv.ci, ..conv };
        DepthwisePointwise { depthwise, co, bias: false, activation: None }
    }

    /// The same with these steps between the two: at most a bias, then at most one activation. Anything else makes a
    /// pair that [`super::Workload::validate`] refuses or leaves the surplus out; a spec is refused before.
    pub fn with_between(self, steps: &[Epilogue]) -> DepthwisePointwise {
        let activation = steps.iter().copied().find(|s| *s != Epilogue::Bias);
        DepthwisePointwise { bias: steps.contains(&Epilogue::Bias), activation, ..self }
    }

    /// The steps that [`DepthwisePointwise::with_between`] takes, in an order that is right.
    pub const BETWEEN: [Epilogue; 4] = [Epilogue::Bias, Epilogue::Relu, Epilogue::Relu6, Epilogue::Gelu];

    /// The steps between the two convolutions.
    pub fn between(&self) -> Vec<Epilogue> {
        self.bias.then_some(Epilogue::Bias).into_iter().chain(self.activation).collect()
    }

    /// The pointwise convolution.
    pub fn pointwise(&self) -> Conv2d {
        let (d, [oh, ow]) = (&self.depthwise, self.output_pixels());
        Conv2d { n: d.n, layout: d.layout, ..Conv2d::nchw(d.n, d.ci, oh, ow, self.co, 1, 1, 0) }
    }

    /// Rows and columns of the output.
    pub fn output_pixels(&self) -> [i64; 2] {
        [self.depthwise.oh(), self.depthwise.ow()]
    }

    pub(super) fn validate(&self) -> Result<(), WorkloadError> {
        let d = &self.depthwise;
        if d.layout != ConvLayout::Nchw {
            return Err(WorkloadError::PairLayout { layout: d.layout.name() });
        }
        d.validate()?;
        if d.groups != d.ci || d.co != d.ci {
            return Err(WorkloadError::PairNotDepthwise { groups: d.groups, ci: d.ci, co: d.co });
        }
        if let Some(step) = self.activation.filter(|a| !a.is_activation()) {
            return Err(WorkloadError::PairStep { step: step.name() });
        }
        positive("co (the output channels)", self.co)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointwise_half_takes_what_the_depthwise_half_gives() {
        let pair = DepthwisePointwise::new(Conv2d::nchw(2, 8, 9, 7, 8, 3, 2, 1), 24);
        assert_eq!(pair.depthwise.output_shape(), pair.pointwise().input_shape());
        assert_eq!(pair.pointwise().output_shape(), [2, 24, 5, 4]);
        assert_eq!(pair.validate(), Ok(()));
        assert_eq!(pair.with_between(&[Epilogue::Bias, Epilogue::Relu6]).between(), [Epilogue::Bias, Epilogue::Relu6]);
    }

    #[test]
    fn what_is_no_pair_is_refused() {
        let pair = DepthwisePointwise::new(Conv2d::nchw(2, 8, 9, 7, 8, 3, 2, 1), 24);
        let nhwc = Conv2d { layout: ConvLayout::Nhwc, ..pair.depthwise };
        for (bad, text) in [
            (DepthwisePointwise { co: 0, ..pair }, "co (the output channels) is 0"),
            (DepthwisePointwise { depthwise: nhwc, ..pair }, "the layout is NHWC; a depthwise_pointwise takes NCHW"),
            (DepthwisePointwise { depthwise: Conv2d { groups: 4, ..pair.depthwise }, ..pair }, "4 groups"),
            (pair.with_between(&[Epilogue::Scale]), "`scale` between the two convolutions; only a bias"),
        ] {
            let message = bad.validate().unwrap_err().to_string();
            assert!(message.contains(text), "{message}");
        }
    }
}
