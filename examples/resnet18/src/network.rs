//! ResNet-18 and ResNet-50 as data: the layers in the order of execution, their shapes, and which activation feeds which.
//!
//! Names are torchvision's, so the tensors of its weight files are found by them. The typed launches in `forward` say
//! the same network again in types; here it is in a form that weights, the reference and the table can walk.

/// Side of the square input image.
pub const IMAGE: usize = 224;
/// Number of classes.
pub const CLASSES: usize = 1000;

/// A convolution with the batch normalisation behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Prefix of its weight: `layer1.0.conv1`.
    pub name: String,
    /// Prefix of its batch normalisation: `layer1.0.bn1`.
    pub norm: String,
    /// The workload of the spec that computes it: `layer1_conv1`.
    pub workload: String,
    /// Input channels.
    pub ci: usize,
    /// Output channels.
    pub co: usize,
    /// Height and width of the input.
    pub size: usize,
    /// Height and width of the kernel.
    pub k: usize,
    /// Stride in both directions.
    pub stride: usize,
    /// Padding on all sides.
    pub padding: usize,
    /// Whether a ReLU follows.
    pub relu: bool,
}

impl Conv {
    /// Height and width of the output.
    pub fn out_size(&self) -> usize {
        (self.size + 2 * self.padding - self.k) / self.stride + 1
    }

    /// Shape of the weight: output channels, input channels, height, width.
    pub fn weight_shape(&self) -> [usize; 4] {
        [self.co, self.ci, self.k, self.k]
    }

    /// Floating-point operations, two a multiply-add, padding included, and the bias.
    pub fn flops(&self) -> f64 {
        let outputs = self.co * self.out_size() * self.out_size();
        (outputs * (2 * self.ci * self.k * self.k + 1)) as f64
    }
}

/// One step of the forward pass. Step `i` makes activation `i + 1`; activation 0 is the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A convolution of activation `from`, to which activation `residual` is added before the ReLU.
    Conv {
        /// The layer.
        conv: Conv,
        /// Its input.
        from: usize,
        /// What is added to its output.
        residual: Option<usize>,
    },
    /// The largest of 3 x 3 neighbours, stride 2, padding 1.
    MaxPool {
        /// Its input.
        from: usize,
        /// Channels.
        channels: usize,
        /// Height and width of the input.
        size: usize,
    },
    /// The mean of each channel.
    AveragePool {
        /// Its input.
        from: usize,
        /// Channels.
        channels: usize,
        /// Height and width of the input.
        size: usize,
    },
    /// The fully connected layer `fc`.
    Fc {
        /// Its input.
        from: usize,
        /// Length of the input.
        features: usize,
    },
}

impl Step {
    /// The layer's name in the table.
    pub fn name(&self) -> &str {
        match self {
            Step::Conv { conv, .. } => &conv.name,
            Step::MaxPool { .. } => "maxpool",
            Step::AveragePool { .. } => "avgpool",
            Step::Fc { .. } => "fc",
        }
    }

    /// The workload of the spec that computes it, if a generated kernel does.
    pub fn workload(&self) -> Option<&str> {
        match self {
            Step::Conv { conv, .. } => Some(&conv.workload),
            Step::Fc { .. } => Some("fc"),
            Step::MaxPool { .. } | Step::AveragePool { .. } => None,
        }
    }

    /// What the table says about the shape.
    pub fn shape(&self) -> String {
        match self {
            Step::Conv { conv: c, .. } => {
                format!(
                    "{}x{s}x{s} -> {}x{o}x{o}, {k}x{k} s{}",
                    c.ci,
                    c.co,
                    c.stride,
                    s = c.size,
                    o = c.out_size(),
                    k = c.k
                )
            }
            Step::MaxPool { channels: c, size: s, .. } => format!("{c}x{s}x{s} -> {c}x{o}x{o}", o = s / 2),
            Step::AveragePool { channels: c, size: s, .. } => format!("{c}x{s}x{s} -> {c}"),
            Step::Fc { features, .. } => format!("{features} -> {CLASSES}"),
        }
    }

    /// Floating-point operations that count: those of convolutions and of the matrix product.
    pub fn flops(&self) -> Option<f64> {
        match self {
            Step::Conv { conv, residual, .. } => {
                let per_output = usize::from(conv.relu) + usize::from(residual.is_some());
                let outputs = conv.co * conv.out_size() * conv.out_size();
                Some(conv.flops() + (per_output * outputs) as f64)
            }
            Step::Fc { features, .. } => Some(((2 * features + 1) * CLASSES) as f64),
            Step::MaxPool { .. } | Step::AveragePool { .. } => None,
        }
    }
}

/// The convolutions of the network.
pub fn convs(steps: &[Step]) -> impl Iterator<Item = &Conv> {
    steps.iter().filter_map(|s| if let Step::Conv { conv, .. } = s { Some(conv) } else { None })
}

/// ResNet-18.
pub fn resnet18() -> Vec<Step> {
    residual([2, 2, 2, 2], 1, |b| {
        let conv3x3 = |part: usize, ci, size, stride| Conv {
            workload: format!("layer{}{}_conv{part}", b.stage, if stride == 2 { "_down" } else { "" }),
            ..b.conv(part, 3, [ci, b.width], size, stride)
        };
        vec![conv3x3(1, b.channels, b.size, b.stride), conv3x3(2, b.width, b.size / b.stride, 1)]
    })
}

/// ResNet-50, with the stride on the 3 x 3 convolutions, as in torchvision.
pub fn resnet50() -> Vec<Step> {
    residual([3, 4, 6, 3], 4, |b| {
        let workload = |first: bool, what: &str| format!("layer{}{}_{what}", b.stage, if first { "_down" } else { "" });
        let out = b.size / b.stride;
        vec![
            Conv { workload: workload(b.first, "reduce"), ..b.conv(1, 1, [b.channels, b.width], b.size, 1) },
            Conv { workload: workload(b.stride == 2, "conv"), ..b.conv(2, 3, [b.width; 2], b.size, b.stride) },
            Conv { workload: workload(false, "expand"), ..b.conv(3, 1, [b.width, 4 * b.width], out, 1) },
        ]
    })
}

/// A block of convolutions around which its input is added to its output.
struct BlockShape {
    stage: usize,
    /// Its number in the stage, and whether that is 0.
    number: usize,
    first: bool,
    /// Channels and size of its input.
    channels: usize,
    size: usize,
    /// Channels of its 3 x 3 convolutions, and what the resolution is divided by.
    width: usize,
    stride: usize,
}

impl BlockShape {
    /// The convolution `part` of the block, counted from 1, with padding that keeps the size and a ReLU behind it.
    fn conv(&self, part: usize, k: usize, [ci, co]: [usize; 2], size: usize, stride: usize) -> Conv {
        let prefix = format!("layer{}.{}", self.stage, self.number);
        Conv {
            name: format!("{prefix}.conv{part}"),
            norm: format!("{prefix}.bn{part}"),
            workload: String::new(),
            ci,
            co,
            size,
            k,
            stride,
            padding: k / 2,
            relu: true,
        }
    }

    /// What is added where the block changes the shape: a 1 x 1 convolution of its input.
    fn shortcut(&self, co: usize) -> Conv {
        let prefix = format!("layer{}.{}.downsample", self.stage, self.number);
        Conv {
            name: format!("{prefix}.0"),
            norm: format!("{prefix}.1"),
            workload: format!("layer{}_shortcut", self.stage),
            relu: false,
            ..self.conv(0, 1, [self.channels, co], self.size, self.stride)
        }
    }
}

/// A residual network (He et al. 2015, table 1): four stages of blocks, whose last convolutions have `expansion` times the
/// channels of the others. `block` gives the convolutions of a block.
fn residual(depths: [usize; 4], expansion: usize, block: impl Fn(&BlockShape) -> Vec<Conv>) -> Vec<Step> {
    let mut steps = vec![];
    let stem = Conv {
        name: "conv1".into(),
        norm: "bn1".into(),
        workload: "stem".into(),
        ci: 3,
        co: 64,
        size: IMAGE,
        k: 7,
        stride: 2,
        padding: 3,
        relu: true,
    };
    steps.push(Step::Conv { conv: stem, from: 0, residual: None });
    steps.push(Step::MaxPool { from: 1, channels: 64, size: IMAGE / 2 });
    let (mut channels, mut size) = (64, IMAGE / 4);
    for (stage, depth) in (1..).zip(depths) {
        for number in 0..depth {
            let (first, width) = (number == 0, 32 << stage);
            let stride = if stage > 1 && first { 2 } else { 1 };
            let shape = BlockShape { stage, number, first, channels, size, width, stride };
            let input = steps.len();
            // The shortcut comes first, so that the block's last step is the one whose output the next block reads.
            let mut shortcut = input;
            if stride > 1 || channels != expansion * width {
                steps.push(Step::Conv { conv: shape.shortcut(expansion * width), from: input, residual: None });
                shortcut = steps.len();
            }
            let convs = block(&shape);
            let (last, mut from) = (convs.len() - 1, input);
            for (i, conv) in convs.into_iter().enumerate() {
                steps.push(Step::Conv { conv, from, residual: (i == last).then_some(shortcut) });
                from = steps.len();
            }
            (channels, size) = (expansion * width, size / stride);
        }
    }
    steps.push(Step::AveragePool { from: steps.len(), channels, size });
    steps.push(Step::Fc { from: steps.len(), features: channels });
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_has_the_published_size() {
        let steps = resnet18();
        assert_eq!(steps.len(), 23);
        assert_eq!(convs(&steps).count(), 20);
        // torchvision counts 11 689 512 parameters, two a channel of each batch normalisation among them.
        let fc = 512 * CLASSES + CLASSES;
        let parameters: usize = convs(&steps).map(|c| c.weight_shape().iter().product::<usize>() + 2 * c.co).sum();
        assert_eq!(parameters + fc, 11_689_512);
        // And 1.814 * 10^9 multiply-adds.
        let flops: f64 = steps.iter().filter_map(Step::flops).sum();
        assert!((flops / 2.0 / 1.814e9 - 1.0).abs() < 0.005, "{flops}");
    }

    #[test]
    fn resnet_50_has_the_published_size() {
        let steps = resnet50();
        assert_eq!((steps.len(), convs(&steps).count()), (56, 53));
        let fc = 2048 * CLASSES + CLASSES;
        let parameters: usize = convs(&steps).map(|c| c.weight_shape().iter().product::<usize>() + 2 * c.co).sum();
        assert_eq!(parameters + fc, 25_557_032);
        let flops: f64 = steps.iter().filter_map(Step::flops).sum();
        assert!((flops / 2.0 / 4.09e9 - 1.0).abs() < 0.005, "{flops}");
    }

    #[test]
    fn shapes_fit_together() {
        [resnet18(), resnet50()].iter().for_each(|steps| fits_together(steps));
    }

    fn fits_together(steps: &[Step]) {
        // Channels and size of each activation.
        let mut made = vec![(3, IMAGE)];
        for step in steps {
            made.push(match step {
                Step::Conv { conv, from, residual } => {
                    assert_eq!(made[*from], (conv.ci, conv.size), "{}", conv.name);
                    let out = (conv.co, conv.out_size());
                    assert!(residual.is_none_or(|r| made[r] == out), "{}", conv.name);
                    out
                }
                Step::MaxPool { from, channels, size } => {
                    assert_eq!(made[*from], (*channels, *size));
                    (*channels, size / 2)
                }
                Step::AveragePool { from, channels, size } => {
                    assert_eq!(made[*from], (*channels, *size));
                    (*channels, 1)
                }
                Step::Fc { from, features } => {
                    assert_eq!(made[*from], (*features, 1));
                    (CLASSES, 1)
                }
            });
        }
    }
}
