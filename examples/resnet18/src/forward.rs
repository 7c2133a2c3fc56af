//! The forward pass on generated kernels, on any device. Every shape is a type here: a layer that is wired to the wrong
//! tensor does not compile.

use crate::kernels::{
    fc, layer1_conv1, layer1_conv2, layer2_conv1, layer2_conv2, layer2_down_conv1, layer2_shortcut, layer3_conv1,
    layer3_conv2, layer3_down_conv1, layer3_shortcut, layer4_conv1, layer4_conv2, layer4_down_conv1, layer4_shortcut,
    stem,
};
use crate::place::{Array, Clock, Place, Result};
use crate::weights::Weights;
use kernel_gen_runtime::{Device, Shape, View};

/// A layer's parameters on a device: the weight as the chosen kernel wants it, and the bias.
struct Layer<Dev: Device, W, B: Shape> {
    weight: W,
    bias: Array<Dev, B>,
}

impl<Dev: Device, W, B: Shape> Layer<Dev, W, B> {
    /// Copies both to the device and packs the weight, once for all passes.
    fn new<S: Shape>(
        dev: &Dev,
        weight: &[f32],
        bias: &[f32],
        pack: impl FnOnce(&Array<Dev, S>) -> kernel_gen_runtime::Result<W>,
    ) -> Result<Self> {
        let weight = dev.upload(&View::<f32, S>::new(weight)?)?;
        Ok(Layer { weight: pack(&weight)?, bias: dev.upload(&View::<f32, B>::new(bias)?)? })
    }
}

/// A block that keeps the shape: two convolutions, with the block's input added behind the second.
struct Block<Dev: Device, W1, W2, B: Shape> {
    conv1: Layer<Dev, W1, B>,
    conv2: Layer<Dev, W2, B>,
}

/// A block that halves the resolution: what is added comes through a convolution of its own.
struct DownBlock<Dev: Device, W0, W1, W2, B: Shape> {
    shortcut: Layer<Dev, W0, B>,
    conv1: Layer<Dev, W1, B>,
    conv2: Layer<Dev, W2, B>,
}

type Block1<Dev> = Block<Dev, layer1_conv1::PackedWeight<Dev>, layer1_conv2::PackedWeight<Dev>, layer1_conv1::Bias>;
type Block2<Dev> = Block<Dev, layer2_conv1::PackedWeight<Dev>, layer2_conv2::PackedWeight<Dev>, layer2_conv1::Bias>;
type Block3<Dev> = Block<Dev, layer3_conv1::PackedWeight<Dev>, layer3_conv2::PackedWeight<Dev>, layer3_conv1::Bias>;
type Block4<Dev> = Block<Dev, layer4_conv1::PackedWeight<Dev>, layer4_conv2::PackedWeight<Dev>, layer4_conv1::Bias>;
type Down2<Dev> = DownBlock<
    Dev,
    layer2_shortcut::PackedWeight<Dev>,
    layer2_down_conv1::PackedWeight<Dev>,
    layer2_conv2::PackedWeight<Dev>,
    layer2_conv1::Bias,
>;
type Down3<Dev> = DownBlock<
    Dev,
    layer3_shortcut::PackedWeight<Dev>,
    layer3_down_conv1::PackedWeight<Dev>,
    layer3_conv2::PackedWeight<Dev>,
    layer3_conv1::Bias,
>;
type Down4<Dev> = DownBlock<
    Dev,
    layer4_shortcut::PackedWeight<Dev>,
    layer4_down_conv1::PackedWeight<Dev>,
    layer4_conv2::PackedWeight<Dev>,
    layer4_conv1::Bias,
>;

struct Layers<Dev: Device> {
    stem: Layer<Dev, stem::PackedWeight<Dev>, stem::Bias>,
    layer1: [Block1<Dev>; 2],
    layer2: (Down2<Dev>, Block2<Dev>),
    layer3: (Down3<Dev>, Block3<Dev>),
    layer4: (Down4<Dev>, Block4<Dev>),
    fc: Layer<Dev, fc::PackedWeight<Dev>, fc::Bias>,
}

/// What a block writes: `inner` is the output of its first convolution.
struct Outputs<Dev: Device, S: Shape> {
    inner: Array<Dev, S>,
    out: Array<Dev, S>,
}

impl<Dev: Device, S: Shape> Outputs<Dev, S> {
    fn new(dev: &Dev) -> Result<Self> {
        Ok(Outputs { inner: dev.zeros()?, out: dev.zeros()? })
    }
}

/// The activations of a stage that halves the resolution.
struct Stage<Dev: Device, S: Shape> {
    shortcut: Array<Dev, S>,
    first: Outputs<Dev, S>,
    second: Outputs<Dev, S>,
}

impl<Dev: Device, S: Shape> Stage<Dev, S> {
    fn new(dev: &Dev) -> Result<Self> {
        Ok(Stage { shortcut: dev.zeros()?, first: Outputs::new(dev)?, second: Outputs::new(dev)? })
    }

    /// In the order of execution.
    fn in_order(&self) -> [&Array<Dev, S>; 5] {
        [&self.shortcut, &self.first.inner, &self.first.out, &self.second.inner, &self.second.out]
    }
}

struct Activations<Dev: Device> {
    image: Array<Dev, stem::X>,
    stem: Array<Dev, stem::Y>,
    pooled: Array<Dev, layer1_conv1::X>,
    layer1: [Outputs<Dev, layer1_conv1::Y>; 2],
    layer2: Stage<Dev, layer2_conv1::Y>,
    layer3: Stage<Dev, layer3_conv1::Y>,
    layer4: Stage<Dev, layer4_conv1::Y>,
    features: Array<Dev, fc::A>,
    logits: Array<Dev, fc::C>,
}

impl<Dev: Device> Activations<Dev> {
    fn new(dev: &Dev, image: &[f32]) -> Result<Self> {
        Ok(Activations {
            image: dev.upload(&View::<f32, stem::X>::new(image)?)?,
            stem: dev.zeros()?,
            pooled: dev.zeros()?,
            layer1: [Outputs::new(dev)?, Outputs::new(dev)?],
            layer2: Stage::new(dev)?,
            layer3: Stage::new(dev)?,
            layer4: Stage::new(dev)?,
            features: dev.zeros()?,
            logits: dev.zeros()?,
        })
    }
}

/// The network on a device: its weights packed, an image, and room for its activations.
pub struct Network<Dev: Device> {
    dev: Dev,
    layers: Layers<Dev>,
    activations: Activations<Dev>,
}

impl<Dev: Place + Clone> Network<Dev> {
    /// Folds the batch normalisations into the weights and packs them; takes a CHW image.
    pub fn new(dev: &Dev, weights: &Weights, image: &[f32]) -> Result<Network<Dev>> {
        let mut convs = weights.convs.iter();
        let mut next = || convs.next().expect("a network has twenty convolutions").fold();
        // Packs the next convolution of the list with the packing function of a workload.
        macro_rules! layer {
            ($workload:ident) => {{
                let folded = next();
                Layer::new(dev, &folded.weight, &folded.bias, |w| $workload::pack_weight(dev, w))?
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
            fc: Layer::new(dev, &weights.fc_weight, &weights.fc_bias, |w| fc::pack_weight(dev, w))?,
        };
        Ok(Network { dev: dev.clone(), layers, activations: Activations::new(dev, image)? })
    }

    /// Runs the network on its image. The device may still be at it when this returns.
    pub fn forward(&mut self, clock: &mut impl Clock) -> kernel_gen_runtime::Result<()> {
        let Network { dev, layers, activations: a } = self;
        let dev = &*dev;

        let l = &layers.stem;
        clock.step(|| stem::launch(dev, &a.image, &l.weight, &l.bias, &mut a.stem))?;
        clock.step(|| dev.max_pool(&a.stem, &mut a.pooled))?;

        let [first, second] = &layers.layer1;
        let [o1, o2] = &mut a.layer1;
        block1(dev, clock, first, &a.pooled, o1)?;
        block1(dev, clock, second, &o1.out, o2)?;

        let (down, block) = &layers.layer2;
        let (x, s) = (&a.layer1[1].out, &mut a.layer2);
        let (l0, l1, l2) = (&down.shortcut, &down.conv1, &down.conv2);
        clock.step(|| layer2_shortcut::launch(dev, x, &l0.weight, &l0.bias, &mut s.shortcut))?;
        clock.step(|| layer2_down_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut s.first.inner))?;
        clock
            .step(|| layer2_conv2::launch(dev, &s.first.inner, &l2.weight, &l2.bias, &s.shortcut, &mut s.first.out))?;
        let (l1, l2, x, o) = (&block.conv1, &block.conv2, &s.first.out, &mut s.second);
        clock.step(|| layer2_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut o.inner))?;
        clock.step(|| layer2_conv2::launch(dev, &o.inner, &l2.weight, &l2.bias, x, &mut o.out))?;

        let (down, block) = &layers.layer3;
        let (x, s) = (&a.layer2.second.out, &mut a.layer3);
        let (l0, l1, l2) = (&down.shortcut, &down.conv1, &down.conv2);
        clock.step(|| layer3_shortcut::launch(dev, x, &l0.weight, &l0.bias, &mut s.shortcut))?;
        clock.step(|| layer3_down_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut s.first.inner))?;
        clock
            .step(|| layer3_conv2::launch(dev, &s.first.inner, &l2.weight, &l2.bias, &s.shortcut, &mut s.first.out))?;
        let (l1, l2, x, o) = (&block.conv1, &block.conv2, &s.first.out, &mut s.second);
        clock.step(|| layer3_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut o.inner))?;
        clock.step(|| layer3_conv2::launch(dev, &o.inner, &l2.weight, &l2.bias, x, &mut o.out))?;

        let (down, block) = &layers.layer4;
        let (x, s) = (&a.layer3.second.out, &mut a.layer4);
        let (l0, l1, l2) = (&down.shortcut, &down.conv1, &down.conv2);
        clock.step(|| layer4_shortcut::launch(dev, x, &l0.weight, &l0.bias, &mut s.shortcut))?;
        clock.step(|| layer4_down_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut s.first.inner))?;
        clock
            .step(|| layer4_conv2::launch(dev, &s.first.inner, &l2.weight, &l2.bias, &s.shortcut, &mut s.first.out))?;
        let (l1, l2, x, o) = (&block.conv1, &block.conv2, &s.first.out, &mut s.second);
        clock.step(|| layer4_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut o.inner))?;
        clock.step(|| layer4_conv2::launch(dev, &o.inner, &l2.weight, &l2.bias, x, &mut o.out))?;

        clock.step(|| dev.average_pool(&a.layer4.second.out, &mut a.features))?;
        let l = &layers.fc;
        clock.step(|| fc::launch(dev, &a.features, &l.weight, &l.bias, &mut a.logits))?;
        Ok(())
    }

    /// Copies of the outputs of each step of the last pass.
    pub fn outputs(&self) -> Result<Vec<Vec<f32>>> {
        let (dev, a) = (&self.dev, &self.activations);
        let mut outputs = vec![host(dev, &a.stem)?, host(dev, &a.pooled)?];
        for block in &a.layer1 {
            outputs.extend([host(dev, &block.inner)?, host(dev, &block.out)?]);
        }
        for y in a.layer2.in_order() {
            outputs.push(host(dev, y)?);
        }
        for y in a.layer3.in_order() {
            outputs.push(host(dev, y)?);
        }
        for y in a.layer4.in_order() {
            outputs.push(host(dev, y)?);
        }
        outputs.extend([host(dev, &a.features)?, host(dev, &a.logits)?]);
        Ok(outputs)
    }
}

/// The elements of an array, in the CPU's memory.
fn host<Dev: Device, S: Shape>(dev: &Dev, array: &Array<Dev, S>) -> Result<Vec<f32>> {
    Ok(dev.download(array)?.as_slice().to_vec())
}

/// A block of the first stage, which has two of them.
fn block1<Dev: Device>(
    dev: &Dev,
    clock: &mut impl Clock,
    block: &Block1<Dev>,
    x: &Array<Dev, layer1_conv1::X>,
    o: &mut Outputs<Dev, layer1_conv1::Y>,
) -> kernel_gen_runtime::Result<()> {
    let (l1, l2) = (&block.conv1, &block.conv2);
    clock.step(|| layer1_conv1::launch(dev, x, &l1.weight, &l1.bias, &mut o.inner))?;
    clock.step(|| layer1_conv2::launch(dev, &o.inner, &l2.weight, &l2.bias, x, &mut o.out))
}
