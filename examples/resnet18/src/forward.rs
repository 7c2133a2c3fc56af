//! The forward pass on generated kernels. Every shape is a type here: a layer that is wired to the wrong tensor does
//! not compile.

use crate::kernels::{
    fc, layer1_conv1, layer1_conv2, layer2_conv1, layer2_conv2, layer2_down_conv1, layer2_shortcut, layer3_conv1,
    layer3_conv2, layer3_down_conv1, layer3_shortcut, layer4_conv1, layer4_conv2, layer4_down_conv1, layer4_shortcut,
    stem,
};
use crate::pool::{average_pool, max_pool};
use crate::weights::Weights;
use kernel_gen_runtime::{Cpu, Result, Shape, Tensor, View};
use std::time::Instant;

/// A layer's parameters: the weight as the chosen kernel wants it, and the bias.
struct Layer<W, B> {
    weight: W,
    bias: Tensor<f32, B>,
}

impl<W, B: Shape> Layer<W, B> {
    /// Packs the weight, once for all passes.
    fn new<S: Shape>(weight: &[f32], bias: &[f32], pack: impl FnOnce(View<'_, f32, S>) -> Result<W>) -> Result<Self> {
        Ok(Layer { weight: pack(View::new(weight)?)?, bias: Tensor::from_slice(bias)? })
    }
}

/// A block that keeps the shape: two convolutions, with the block's input added behind the second.
struct Block<W1, W2, B> {
    conv1: Layer<W1, B>,
    conv2: Layer<W2, B>,
}

/// A block that halves the resolution: what is added comes through a convolution of its own.
struct DownBlock<W0, W1, W2, B> {
    shortcut: Layer<W0, B>,
    conv1: Layer<W1, B>,
    conv2: Layer<W2, B>,
}

type Block1 = Block<layer1_conv1::PackedWeight, layer1_conv2::PackedWeight, layer1_conv1::Bias>;
type Block2 = Block<layer2_conv1::PackedWeight, layer2_conv2::PackedWeight, layer2_conv1::Bias>;
type Block3 = Block<layer3_conv1::PackedWeight, layer3_conv2::PackedWeight, layer3_conv1::Bias>;
type Block4 = Block<layer4_conv1::PackedWeight, layer4_conv2::PackedWeight, layer4_conv1::Bias>;
type Down2 = DownBlock<
    layer2_shortcut::PackedWeight,
    layer2_down_conv1::PackedWeight,
    layer2_conv2::PackedWeight,
    layer2_conv1::Bias,
>;
type Down3 = DownBlock<
    layer3_shortcut::PackedWeight,
    layer3_down_conv1::PackedWeight,
    layer3_conv2::PackedWeight,
    layer3_conv1::Bias,
>;
type Down4 = DownBlock<
    layer4_shortcut::PackedWeight,
    layer4_down_conv1::PackedWeight,
    layer4_conv2::PackedWeight,
    layer4_conv1::Bias,
>;

struct Layers {
    stem: Layer<stem::PackedWeight, stem::Bias>,
    layer1: [Block1; 2],
    layer2: (Down2, Block2),
    layer3: (Down3, Block3),
    layer4: (Down4, Block4),
    fc: Layer<fc::PackedWeight, fc::Bias>,
}

/// What a block writes: `inner` is the output of its first convolution.
struct Outputs<S> {
    inner: Tensor<f32, S>,
    out: Tensor<f32, S>,
}

impl<S: Shape> Outputs<S> {
    fn new() -> Self {
        Outputs { inner: Tensor::zeros(), out: Tensor::zeros() }
    }
}

/// The activations of a stage that halves the resolution.
struct Stage<S> {
    shortcut: Tensor<f32, S>,
    first: Outputs<S>,
    second: Outputs<S>,
}

impl<S: Shape> Stage<S> {
    fn new() -> Self {
        Stage { shortcut: Tensor::zeros(), first: Outputs::new(), second: Outputs::new() }
    }

    /// In the order of execution.
    fn in_order(&self) -> [&[f32]; 5] {
        [&self.shortcut, &self.first.inner, &self.first.out, &self.second.inner, &self.second.out].map(Tensor::as_slice)
    }
}

struct Activations {
    image: Tensor<f32, stem::X>,
    stem: Tensor<f32, stem::Y>,
    pooled: Tensor<f32, layer1_conv1::X>,
    layer1: [Outputs<layer1_conv1::Y>; 2],
    layer2: Stage<layer2_conv1::Y>,
    layer3: Stage<layer3_conv1::Y>,
    layer4: Stage<layer4_conv1::Y>,
    features: Tensor<f32, fc::A>,
    logits: Tensor<f32, fc::C>,
}

/// The time of each step of one pass.
struct Clock {
    times_us: Vec<f64>,
}

impl Clock {
    fn time<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = step();
        self.times_us.push(start.elapsed().as_secs_f64() * 1e6);
        result
    }
}

/// The network with its weights packed for a device, and room for its activations.
pub(crate) struct Network {
    dev: Cpu,
    layers: Layers,
    activations: Activations,
}

impl Network {
    /// Folds the batch normalisations into the weights and packs them.
    pub(crate) fn new(dev: &Cpu, weights: &Weights) -> Result<Network> {
        let mut convs = weights.convs.iter();
        let mut next = || convs.next().expect("a network has twenty convolutions").fold();
        // Packs the next convolution of the list with the packing function of a workload.
        macro_rules! layer {
            ($workload:ident) => {{
                let folded = next();
                Layer::new(&folded.weight, &folded.bias, |w| $workload::pack_weight(dev, &w))?
            }};
        }
        let layers = Layers {
            stem: layer!(stem),
            layer1: [
                Block { conv1: layer!(layer1_conv1), conv2: layer!(layer1_conv2) },
                Block { conv1: layer!(layer1_conv1), conv2: layer!(layer1_conv2) },
            ],
            layer2: (
                DownBlock {
                    shortcut: layer!(layer2_shortcut),
                    conv1: layer!(layer2_down_conv1),
                    conv2: layer!(layer2_conv2),
                },
                Block { conv1: layer!(layer2_conv1), conv2: layer!(layer2_conv2) },
            ),
            layer3: (
                DownBlock {
                    shortcut: layer!(layer3_shortcut),
                    conv1: layer!(layer3_down_conv1),
                    conv2: layer!(layer3_conv2),
                },
                Block { conv1: layer!(layer3_conv1), conv2: layer!(layer3_conv2) },
            ),
            layer4: (
                DownBlock {
                    shortcut: layer!(layer4_shortcut),
                    conv1: layer!(layer4_down_conv1),
                    conv2: layer!(layer4_conv2),
                },
                Block { conv1: layer!(layer4_conv1), conv2: layer!(layer4_conv2) },
            ),
            fc: Layer::new(&weights.fc_weight, &weights.fc_bias, |w| fc::pack_weight(dev, &w))?,
        };
        let activations = Activations {
            image: Tensor::zeros(),
            stem: Tensor::zeros(),
            pooled: Tensor::zeros(),
            layer1: [Outputs::new(), Outputs::new()],
            layer2: Stage::new(),
            layer3: Stage::new(),
            layer4: Stage::new(),
            features: Tensor::zeros(),
            logits: Tensor::zeros(),
        };
        Ok(Network { dev: dev.clone(), layers, activations })
    }

    /// Runs the network on a CHW image; the result is the time of each step in microseconds.
    pub(crate) fn forward(&mut self, image: &[f32]) -> Result<Vec<f64>> {
        let Network { dev, layers, activations: a } = self;
        let dev = &*dev;
        let mut clock = Clock { times_us: vec![] };
        a.image = Tensor::from_slice(image)?;

        let l = &layers.stem;
        clock.time(|| stem::launch(dev, &a.image, &l.weight, &l.bias, &mut a.stem))?;
        clock.time(|| max_pool(dev, &a.stem, &mut a.pooled));

        let [first, second] = &layers.layer1;
        let [o1, o2] = &mut a.layer1;
        block1(dev, &mut clock, first, &a.pooled, o1)?;
        block1(dev, &mut clock, second, &o1.out, o2)?;

        let (down, block) = &layers.layer2;
        let (x, s) = (&a.layer1[1].out, &mut a.layer2);
        let (l0, l1, l2) = (&down.shortcut, &down.conv1, &down.conv2);
        clock.time(|| layer2_shortcut::launch(dev, x, &l0.weight, &l0.bias, &mut s.shortcut))?;
        clock.time(|| layer2_down_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut s.first.inner))?;
        clock
            .time(|| layer2_conv2::launch(dev, &s.first.inner, &l2.weight, &l2.bias, &s.shortcut, &mut s.first.out))?;
        let (l1, l2, x, o) = (&block.conv1, &block.conv2, &s.first.out, &mut s.second);
        clock.time(|| layer2_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut o.inner))?;
        clock.time(|| layer2_conv2::launch(dev, &o.inner, &l2.weight, &l2.bias, x, &mut o.out))?;

        let (down, block) = &layers.layer3;
        let (x, s) = (&a.layer2.second.out, &mut a.layer3);
        let (l0, l1, l2) = (&down.shortcut, &down.conv1, &down.conv2);
        clock.time(|| layer3_shortcut::launch(dev, x, &l0.weight, &l0.bias, &mut s.shortcut))?;
        clock.time(|| layer3_down_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut s.first.inner))?;
        clock
            .time(|| layer3_conv2::launch(dev, &s.first.inner, &l2.weight, &l2.bias, &s.shortcut, &mut s.first.out))?;
        let (l1, l2, x, o) = (&block.conv1, &block.conv2, &s.first.out, &mut s.second);
        clock.time(|| layer3_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut o.inner))?;
        clock.time(|| layer3_conv2::launch(dev, &o.inner, &l2.weight, &l2.bias, x, &mut o.out))?;

        let (down, block) = &layers.layer4;
        let (x, s) = (&a.layer3.second.out, &mut a.layer4);
        let (l0, l1, l2) = (&down.shortcut, &down.conv1, &down.conv2);
        clock.time(|| layer4_shortcut::launch(dev, x, &l0.weight, &l0.bias, &mut s.shortcut))?;
        clock.time(|| layer4_down_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut s.first.inner))?;
        clock
            .time(|| layer4_conv2::launch(dev, &s.first.inner, &l2.weight, &l2.bias, &s.shortcut, &mut s.first.out))?;
        let (l1, l2, x, o) = (&block.conv1, &block.conv2, &s.first.out, &mut s.second);
        clock.time(|| layer4_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut o.inner))?;
        clock.time(|| layer4_conv2::launch(dev, &o.inner, &l2.weight, &l2.bias, x, &mut o.out))?;

        clock.time(|| average_pool(&a.layer4.second.out, &mut a.features));
        let l = &layers.fc;
        clock.time(|| fc::launch(dev, &a.features, &l.weight, &l.bias, &mut a.logits))?;
        Ok(clock.times_us)
    }

    /// The output of each step of the last pass.
    pub(crate) fn outputs(&self) -> Vec<&[f32]> {
        let a = &self.activations;
        let mut outputs = vec![a.stem.as_slice(), a.pooled.as_slice()];
        outputs.extend(a.layer1.iter().flat_map(|b| [b.inner.as_slice(), b.out.as_slice()]));
        outputs.extend(a.layer2.in_order());
        outputs.extend(a.layer3.in_order());
        outputs.extend(a.layer4.in_order());
        outputs.extend([a.features.as_slice(), a.logits.as_slice()]);
        outputs
    }
}

/// A block of the first stage, which has two of them.
fn block1(
    dev: &Cpu,
    clock: &mut Clock,
    block: &Block1,
    x: &Tensor<f32, layer1_conv1::X>,
    o: &mut Outputs<layer1_conv1::Y>,
) -> Result<()> {
    let (l1, l2) = (&block.conv1, &block.conv2);
    clock.time(|| layer1_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut o.inner))?;
    clock.time(|| layer1_conv2::launch(dev, &o.inner, &l2.weight, &l2.bias, x, &mut o.out))
}
