//! A depthwise convolution and the pointwise convolution of its result, as one operator.

use super::conv2d::{self, pad_before};
use super::epilogue::applied;
use super::operator::{FLOATS, Fault, Kind, Likeness, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::reference::{convolve, reference};
use super::stage::{Axis, Combine, Stage, axis, input, result};
use super::{Conv2d, ConvLayout, Epilogue, Op, Role, Workload, WorkloadError};
use crate::ir::{BufferId, DType, Expr};

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

    /// The stage that finishes the depthwise sums `sums`: a bias and an activation, as far as there are any.
    fn finish(&self, sums: BufferId) -> Stage {
        let shape = self.depthwise.output_shape();
        let index: Vec<Expr> = (0..4).map(|i| axis(i).into()).collect();
        Stage {
            name: "mid",
            dtype: DType::F32,
            loops: ["n_mid", "c_mid", "oh_mid", "ow_mid"].into_iter().zip(shape.iter().copied()).collect(),
            shape,
            reduce: 0,
            combine: Combine::One,
            value: self.finished(Expr::load(sums, index.clone()), &index[1], &|_| input(2)),
            index,
        }
    }

    /// A depthwise sum with the steps that follow it; `buffer` gives the buffer of a parameter's name.
    pub(crate) fn finished(&self, sum: Expr, channel: &Expr, buffer: &dyn Fn(&str) -> BufferId) -> Expr {
        applied(&self.between(), DType::F32, sum, &|_| Expr::load(buffer("dw_bias"), vec![channel.clone()]))
    }
}

/// The sizes in the order of the key.
const SIZES: [Size; 16] = {
    let mut sizes = conv2d::SIZES;
    sizes[15] = Size::new("between", "between", SizeRole::Choice);
    sizes
};

/// What may stand between the two convolutions, in the order of the key's alternatives.
const BETWEEN: [&[Epilogue]; 8] = {
    use Epilogue::*;
    [&[], &[Bias], &[Relu], &[Relu6], &[Gelu], &[Bias, Relu], &[Bias, Relu6], &[Bias, Gelu]]
};

/// `depthwise_pointwise` in specs and keys.
pub(crate) static DEPTHWISE_POINTWISE: Kind = Kind {
    name: "depthwise_pointwise",
    pattern: "n{}c{}h{}w{}-o{}k{}x{}-s{}x{}-p{}.{}.{}.{}-d{}x{}-dw{|.bias|.relu|.relu6|.gelu|.bias.relu|.bias.relu6|.bias.gelu}",
    sizes: &SIZES,
    layouts: &[ConvLayout::Nchw],
    flags: &[],
    between: &DepthwisePointwise::BETWEEN,
    outputs: FLOATS,
    keys: |shared| {
        let mut keys = conv2d::keys(shared);
        keys.insert(0, SpecKey::required("pointwise", &[4], "[co, ci, 1, 1]"));
        keys
    },
    read: |shared, values| {
        let depthwise = conv2d::read(shared, values)?;
        let ci = depthwise.ci;
        if depthwise.co != ci {
            let cause = format!("the depthwise weight gives {} channels, but the input has {ci}", depthwise.co);
            let help = format!("write weight = [{ci}, 1, {}, {}]", depthwise.kh, depthwise.kw);
            return Err(Fault::new("weight", cause, help));
        }
        let Some([co, takes, kh, kw]) = values.get("pointwise") else {
            return Err(Fault::new("pointwise", "`pointwise` is missing", "write pointwise = [co, ci, 1, 1]"));
        };
        let help = format!("write pointwise = [{co}, {ci}, 1, 1]");
        if [*kh, *kw] != [1, 1] {
            return Err(Fault::new("pointwise", format!("the pointwise weight is {kh} x {kw}"), help));
        }
        if *takes != ci {
            let cause =
                format!("the pointwise weight takes {takes} channels, but the depthwise convolution gives {ci}");
            return Err(Fault::new("pointwise", cause, help));
        }
        Ok(Op::DepthwisePointwise(DepthwisePointwise::new(depthwise, *co).with_between(&shared.between)))
    },
    of_sizes: |layout, sizes| {
        let between = BETWEEN.get(usize::try_from(*sizes.last()?).ok()?)?;
        let mut sizes = sizes.to_vec();
        sizes[15] = 1;
        let conv = conv2d::of_sizes(layout, &sizes)?;
        Some(Op::DepthwisePointwise(DepthwisePointwise::new(conv, conv.co).with_between(between)))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size, .. } if size.starts_with("co") => "pointwise",
        error => conv2d::guilty_key(error),
    },
};

impl Operator for DepthwisePointwise {
    fn kind(&self) -> &'static Kind {
        &DEPTHWISE_POINTWISE
    }

    fn sizes(&self) -> Vec<i64> {
        let between = self.between();
        let mut sizes = self.depthwise.sizes();
        sizes[4] = self.co;
        sizes[15] = BETWEEN.iter().position(|steps| *steps == between).map_or(0, |at| at as i64);
        sizes
    }

    fn layout(&self) -> Option<ConvLayout> {
        Some(self.depthwise.layout)
    }

    fn validate(&self) -> Result<(), WorkloadError> {
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
        check_sizes(self)
    }

    fn inputs(&self) -> Vec<Operand> {
        let d = &self.depthwise;
        let mut inputs = vec![
            Operand::new("x", Role::Input, d.input_shape()),
            Operand::new("dw", Role::DepthwiseWeight, d.weight_shape()),
        ];
        inputs.extend(self.bias.then(|| Operand::new("dw_bias", Role::Bias, vec![d.ci])));
        inputs.push(Operand::new("w", Role::Weight, self.pointwise().weight_shape()));
        inputs
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        self.pointwise().output()
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![
            ("the padded input", self.depthwise.padded_shape()),
            ("what the depthwise convolution gives", self.depthwise.output_shape()),
        ]
    }

    fn terms(&self) -> i64 {
        self.depthwise.ci
    }

    fn stages(&self, dtype: DType, sums: DType) -> Vec<Stage> {
        let mut stages = vec![];
        let padded = pad_before(&self.depthwise, dtype, 0.0, &mut stages);
        stages.push(self.depthwise.sums("dw_acc", DType::F32, padded, input(1)));
        stages.push(self.finish(result(stages.len() - 1)));
        let weight = input(2 + usize::from(self.bias));
        stages.push(self.pointwise().sums("acc", sums, result(stages.len() - 1), weight));
        stages
    }

    fn likeness(&self) -> Likeness {
        let d = &self.depthwise;
        Likeness {
            class: vec![],
            sizes: vec![
                (d.n * d.oh() * d.ow(), 1.0),
                (d.ow(), 1.0),
                (self.co, 1.0),
                (d.ci, 1.0),
                (d.kh * d.kw, 1.5),
                (d.stride[0] * d.stride[1], 1.5),
            ],
        }
    }

    fn reference(&self, workload: &Workload, inputs: &[&[f64]]) -> Sums {
        let [first, _] = workload.parts().expect("a pair has two parts");
        let weight = workload.operator_params() - 1;
        convolve(&self.pointwise(), &reference(&first, &inputs[..weight]), inputs[weight])
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
