//! What all networks have in common, and the macro that makes one of a list of lines.

use ::resnet18::weights::Folded;
use kernel_gen_runtime::cuda::DeviceTensor;
use kernel_gen_runtime::{Cuda, Element, Result, Shape, View};
use std::error::Error;

/// The order of an image's dimensions in memory; batch and, of weights, output channels are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Channels, rows, columns; weights as torchvision has them, output channels first.
    ChannelsFirst,
    /// Rows, columns, channels; weights with output channels last.
    ChannelsLast,
}

impl Order {
    /// From planes to this order.
    pub fn image(self, planes: &[f32], channels: usize) -> Vec<f32> {
        match self {
            Order::ChannelsFirst => planes.to_vec(),
            Order::ChannelsLast => transposed(planes, channels),
        }
    }

    /// From this order to planes.
    pub fn planes(self, image: &[f32], channels: usize) -> Vec<f32> {
        match self {
            Order::ChannelsFirst => image.to_vec(),
            Order::ChannelsLast => transposed(image, image.len() / channels),
        }
    }

    /// Of a weight with so many output and input channels, from output channels, input channels, rows, columns.
    pub fn weight(self, weight: &[f32], co: usize, ci: usize) -> Vec<f32> {
        match self {
            Order::ChannelsFirst => weight.to_vec(),
            Order::ChannelsLast => {
                // Each filter's taps before its input channels, then the filters last.
                let filters = weight.chunks_exact(weight.len() / co);
                let by_tap: Vec<f32> = filters.flat_map(|f| transposed(f, ci)).collect();
                transposed(&by_tap, co)
            }
        }
    }
}

/// A matrix of so many rows, columns first.
fn transposed(matrix: &[f32], rows: usize) -> Vec<f32> {
    let columns = matrix.len() / rows;
    (0..matrix.len()).map(|i| matrix[i % rows * columns + i / rows]).collect()
}

/// The number of channels of an activation's shape.
pub fn channels<S: Shape>(order: Order) -> usize {
    match (S::DIMS, order) {
        ([_, c, _, _], Order::ChannelsFirst) | ([_, _, _, c], Order::ChannelsLast) => *c,
        (dims, _) => dims.last().copied().unwrap_or(1),
    }
}

/// An array on the device, of numbers that are converted to its type.
pub fn upload<E: Element + From<f32>, S: Shape>(dev: &Cuda, values: &[f32]) -> Result<DeviceTensor<E, S>> {
    let values: Vec<E> = values.iter().map(|v| E::from(*v)).collect();
    DeviceTensor::from_host(dev, &View::<E, S>::new(&values)?)
}

/// The elements of an activation as `f32`, planar.
pub fn download<E: Element + Into<f32>, S: Shape>(
    dev: &Cuda,
    order: Order,
    tensor: &DeviceTensor<E, S>,
) -> Result<Vec<f32>> {
    let values: Vec<f32> = tensor.to_host(dev)?.as_slice().iter().map(|v| (*v).into()).collect();
    Ok(order.planes(&values, channels::<S>(order)))
}

/// A layer's parameters on the device: the weight as the chosen kernel wants it, and the bias.
pub struct Layer<E, W, B> {
    /// The packed weight.
    pub weight: W,
    /// The bias.
    pub bias: DeviceTensor<E, B>,
}

impl<E: Element + From<f32>, W, B: Shape> Layer<E, W, B> {
    /// Copies both to the device and packs the weight, once for all passes.
    pub fn new<S: Shape>(
        dev: &Cuda,
        folded: &Folded,
        pack: impl FnOnce(&DeviceTensor<E, S>) -> Result<W>,
    ) -> Result<Layer<E, W, B>> {
        let weight = pack(&upload(dev, &folded.weight)?)?;
        Ok(Layer { weight, bias: upload(dev, &folded.bias)? })
    }
}

/// A network on a GPU: its parameters, an image, and room for its activations.
pub trait Network: Sized {
    /// The type of its elements.
    type Elem: Element;
    /// Largest error of an output that counts as correct, relative to the largest value of its layer.
    const TOLERANCE: f64;

    /// Folds the normalisations into the weights and brings everything to the device; takes a CHW image. The second of
    /// the arguments is the network as data, with the same layers in the same order.
    ///
    /// # Errors
    /// What the device says.
    fn new(
        dev: &Cuda,
        steps: &[::resnet18::network::Step],
        weights: &::resnet18::weights::Weights,
        image: &[f32],
    ) -> std::result::Result<Self, Box<dyn Error>>;

    /// Launches all layers.
    ///
    /// # Errors
    /// What the device says.
    fn forward(&mut self, dev: &Cuda) -> Result<()>;

    /// The outputs of all steps, planar.
    ///
    /// # Errors
    /// What the device says.
    fn outputs(&self, dev: &Cuda) -> Result<Vec<Vec<f32>>>;
}

/// Makes a network of its lines:
///
/// ```text
/// network!(ResNet18, module of the kernels, element, tolerance, order; pooled like layer1_conv1, ends with b7;
///     b0_conv1 = layer1_conv1(pooled);
///     b0 = layer1_conv2(b0_conv1, pooled);
///     ..
/// );
/// ```
/// A line names an output, the workload that makes it, its input, and what is added to it. The stem and the two pooling layers
/// at both ends, and the classifier, are in every network.
#[macro_export]
macro_rules! network {
    ($Name:ident, $kernels:path, $E:ty, $tolerance:literal, $order:expr;
     pooled like $first:ident, ends with $last:ident;
     $($y:ident = $workload:ident($x:ident $(, $residual:ident)?);)*) => {
        /// The network.
        pub struct $Name {
            layers: Layers,
            activations: Activations,
        }

        struct Layers {
            stem: Layer<$E, k::stem::PackedWeight<Cuda>, k::stem::Bias>,
            $($y: Layer<$E, k::$workload::PackedWeight<Cuda>, k::$workload::Bias>,)*
            fc: Layer<$E, k::fc::PackedWeight<Cuda>, k::fc::Bias>,
        }

        struct Activations {
            image: DeviceTensor<$E, k::stem::X>,
            stem: DeviceTensor<$E, k::stem::Y>,
            pooled: DeviceTensor<$E, k::$first::X>,
            $($y: DeviceTensor<$E, k::$workload::Y>,)*
            features: DeviceTensor<$E, k::fc::A>,
            logits: DeviceTensor<$E, k::fc::C>,
        }

        use $kernels as k;
        use $crate::network::{Layer, Network, Order, download, upload};
        use ::resnet18::pools::pool;
        use kernel_gen_runtime::Cuda;
        use kernel_gen_runtime::cuda::DeviceTensor;
        use ::resnet18::network::{Step, convs};
        use ::resnet18::weights::{Folded, Weights};

        impl Network for $Name {
            type Elem = $E;
            const TOLERANCE: f64 = $tolerance;

            fn new(
                dev: &Cuda,
                steps: &[Step],
                weights: &Weights,
                image: &[f32],
            ) -> Result<Self, Box<dyn std::error::Error>> {
                let order: Order = $order;
                let mut next = convs(steps).zip(&weights.convs).map(|(conv, params)| {
                    let folded = params.fold();
                    (conv.workload.as_str(), Folded { weight: order.weight(&folded.weight, conv.co, conv.ci), ..folded })
                });
                // The lines stand in the order of the steps.
                let mut folded = |workload: &str| match next.next() {
                    Some((wanted, folded)) if wanted == workload => Ok(folded),
                    other => Err(format!("`{workload}` stands where the network has {:?}", other.map(|o| o.0))),
                };
                let fc = Folded { weight: weights.fc_weight.clone(), bias: weights.fc_bias.clone() };
                let layers = Layers {
                    stem: Layer::new(dev, &folded("stem")?, |w| k::stem::pack_weight(dev, w))?,
                    $($y: Layer::new(dev, &folded(stringify!($workload))?, |w| k::$workload::pack_weight(dev, w))?,)*
                    fc: Layer::new(dev, &fc, |w| k::fc::pack_weight(dev, w))?,
                };
                let activations = Activations {
                    image: upload(dev, &order.image(image, 3))?,
                    stem: DeviceTensor::zeros(dev)?,
                    pooled: DeviceTensor::zeros(dev)?,
                    $($y: DeviceTensor::zeros(dev)?,)*
                    features: DeviceTensor::zeros(dev)?,
                    logits: DeviceTensor::zeros(dev)?,
                };
                Ok($Name { layers, activations })
            }

            fn forward(&mut self, dev: &Cuda) -> kernel_gen_runtime::Result<()> {
                let (l, a) = (&self.layers, &mut self.activations);
                k::stem::launch(dev, &a.image, &l.stem.weight, &l.stem.bias, &mut a.stem)?;
                pool(dev, &a.stem, &mut a.pooled)?;
                $(k::$workload::launch(dev, &a.$x, &l.$y.weight, &l.$y.bias, $(&a.$residual,)? &mut a.$y)?;)*
                pool(dev, &a.$last, &mut a.features)?;
                k::fc::launch(dev, &a.features, &l.fc.weight, &l.fc.bias, &mut a.logits)
            }

            fn outputs(&self, dev: &Cuda) -> kernel_gen_runtime::Result<Vec<Vec<f32>>> {
                let (order, a): (Order, _) = ($order, &self.activations);
                Ok(vec![
                    download(dev, order, &a.stem)?,
                    download(dev, order, &a.pooled)?,
                    $(download(dev, order, &a.$y)?,)*
                    download(dev, order, &a.features)?,
                    download(dev, order, &a.logits)?,
                ])
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_gen_runtime::{D2, D4};

    #[test]
    fn channels_last_and_back() {
        let planes: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let image = Order::ChannelsLast.image(&planes, 2);
        assert_eq!(image[..6], [0.0, 12.0, 1.0, 13.0, 2.0, 14.0]);
        assert_eq!(Order::ChannelsLast.planes(&image, 2), planes);
        assert_eq!(Order::ChannelsFirst.image(&planes, 2), planes);
    }

    #[test]
    fn a_weight_with_output_channels_last_has_the_same_elements() {
        let (co, ci, taps) = (3, 2, 4);
        let weight: Vec<f32> = (0..co * ci * taps).map(|i| i as f32).collect();
        let last = Order::ChannelsLast.weight(&weight, co, ci);
        for o in 0..co {
            for i in 0..ci {
                for t in 0..taps {
                    assert_eq!(last[(t * ci + i) * co + o], weight[(o * ci + i) * taps + t], "{o} {i} {t}");
                }
            }
        }
    }

    #[test]
    fn channels_are_where_the_order_has_them() {
        assert_eq!(channels::<D4<1, 64, 7, 5>>(Order::ChannelsFirst), 64);
        assert_eq!(channels::<D4<1, 7, 5, 64>>(Order::ChannelsLast), 64);
        assert_eq!(channels::<D2<1, 1000>>(Order::ChannelsFirst), 1000);
    }
}
