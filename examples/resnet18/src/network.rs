//! ResNet-18 as data: the layers in the order of execution, their shapes, and which activation feeds which.
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
    for stage in 1..=4 {
        for block in 0..2 {
            let stride = if stage > 1 && block == 0 { 2 } else { 1 };
            let co = 32 << stage;
            let prefix = format!("layer{stage}.{block}");
            let input = steps.len();
            let conv3x3 = |part: usize, ci, size, stride| Conv {
                name: format!("{prefix}.conv{part}"),
                norm: format!("{prefix}.bn{part}"),
                workload: format!("layer{stage}{}_conv{part}", if stride == 2 { "_down" } else { "" }),
                ci,
                co,
                size,
                k: 3,
                stride,
                padding: 1,
                relu: true,
            };
            // The shortcut of a block that changes the shape is a 1 x 1 convolution. It comes first, so that the
            // block's last step is the one whose output the next block reads.
            let shortcut = if stride == 1 {
                input
            } else {
                let conv = Conv {
                    name: format!("{prefix}.downsample.0"),
                    norm: format!("{prefix}.downsample.1"),
                    workload: format!("layer{stage}_shortcut"),
                    k: 1,
                    padding: 0,
                    relu: false,
                    ..conv3x3(0, channels, size, stride)
                };
                steps.push(Step::Conv { conv, from: input, residual: None });
                steps.len()
            };
            steps.push(Step::Conv { conv: conv3x3(1, channels, size, stride), from: input, residual: None });
            let middle = steps.len();
            (channels, size) = (co, size / stride);
            steps.push(Step::Conv { conv: conv3x3(2, channels, size, 1), from: middle, residual: Some(shortcut) });
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
    fn shapes_fit_together() {
        let steps = resnet18();
        // Channels and size of each activation.
        let mut made = vec![(3, IMAGE)];
        for step in &steps {
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
