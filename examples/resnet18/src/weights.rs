//! The network's parameters: from a file or seeded, and folded for the kernels.

use crate::network::{self, CLASSES, Conv, Step};
use crate::safetensors::{Safetensors, SafetensorsError};

/// What torchvision adds to a variance before the root.
pub const EPSILON: f64 = 1e-5;

/// The parameters of a convolution and the batch normalisation behind it, as a file has them.
pub struct ConvParams {
    /// Output channels, input channels, height, width.
    pub weight: Vec<f32>,
    /// Factor of each channel.
    pub gamma: Vec<f32>,
    /// Summand of each channel.
    pub beta: Vec<f32>,
    /// Mean of each channel before normalisation.
    pub mean: Vec<f32>,
    /// Variance of each channel before normalisation.
    pub variance: Vec<f32>,
}

/// A convolution with a bias that does the same as the convolution and its batch normalisation.
pub struct Folded {
    /// As the weight that it was made from.
    pub weight: Vec<f32>,
    /// One summand a channel.
    pub bias: Vec<f32>,
}

impl ConvParams {
    /// Factor and summand that the batch normalisation comes to for channel `c`.
    pub fn scale_and_shift(&self, c: usize) -> (f64, f64) {
        let scale = f64::from(self.gamma[c]) / (f64::from(self.variance[c]) + EPSILON).sqrt();
        (scale, f64::from(self.beta[c]) - f64::from(self.mean[c]) * scale)
    }

    /// Multiplies the scale into the weights; the shift becomes the bias.
    pub fn fold(&self) -> Folded {
        let per_channel = self.weight.len() / self.gamma.len();
        let mut folded = Folded { weight: Vec::with_capacity(self.weight.len()), bias: vec![] };
        for (c, weights) in self.weight.chunks_exact(per_channel).enumerate() {
            let (scale, shift) = self.scale_and_shift(c);
            folded.weight.extend(weights.iter().map(|w| (f64::from(*w) * scale) as f32));
            folded.bias.push(shift as f32);
        }
        folded
    }
}

/// All parameters.
pub struct Weights {
    /// Those of the convolutions, in the order of the network's steps.
    pub convs: Vec<ConvParams>,
    /// The last layer's matrix: classes, features.
    pub fc_weight: Vec<f32>,
    /// The last layer's bias.
    pub fc_bias: Vec<f32>,
}

/// Length of the vector that the last layer takes.
fn features(steps: &[Step]) -> usize {
    steps.iter().find_map(|s| if let Step::Fc { features, .. } = s { Some(*features) } else { None }).unwrap_or(0)
}

impl Weights {
    /// Takes torchvision's names from a file.
    pub fn load(file: &Safetensors, steps: &[Step]) -> Result<Weights, SafetensorsError> {
        let conv = |c: &Conv| {
            let norm = |part: &str| file.tensor(&format!("{}.{part}", c.norm), &[c.co]);
            Ok(ConvParams {
                weight: file.tensor(&format!("{}.weight", c.name), &c.weight_shape())?,
                gamma: norm("weight")?,
                beta: norm("bias")?,
                mean: norm("running_mean")?,
                variance: norm("running_var")?,
            })
        };
        Ok(Weights {
            convs: network::convs(steps).map(conv).collect::<Result<_, _>>()?,
            fc_weight: file.tensor("fc.weight", &[CLASSES, features(steps)])?,
            fc_bias: file.tensor("fc.bias", &[CLASSES])?,
        })
    }

    /// Random parameters, the same on every machine.
    ///
    /// Weights have the variance `2 / fan_in` (He et al., "Delving deep into rectifiers", 2015), with which a ReLU
    /// network keeps the size of its activations from layer to layer; normalisations scatter around the identity.
    pub fn seeded(seed: u64, steps: &[Step]) -> Weights {
        let mut random = Random { state: seed };
        let mut tensor = |elements: usize, centre: f64, deviation: f64| -> Vec<f32> {
            (0..elements).map(|_| (centre + deviation * random.normal()) as f32).collect()
        };
        let mut conv = |c: &Conv| {
            let fan_in = c.ci * c.k * c.k;
            ConvParams {
                weight: tensor(c.co * fan_in, 0.0, (2.0 / fan_in as f64).sqrt()),
                gamma: tensor(c.co, 0.8, 0.1),
                beta: tensor(c.co, 0.0, 0.1),
                mean: tensor(c.co, 0.0, 0.1),
                variance: tensor(c.co, 1.0, 0.1).into_iter().map(|v| v.max(0.1)).collect(),
            }
        };
        let convs = network::convs(steps).map(&mut conv).collect();
        let features = features(steps);
        let fc_weight = tensor(CLASSES * features, 0.0, (1.0 / features as f64).sqrt());
        Weights { convs, fc_weight, fc_bias: tensor(CLASSES, 0.0, 0.1) }
    }
}

/// SplitMix64.
struct Random {
    state: u64,
}

impl Random {
    /// Uniform in 0..1.
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly normal with mean 0 and variance 1: a sum of four uniform numbers. It needs no logarithm, which machines
    /// round differently.
    fn normal(&mut self) -> f64 {
        let sum: f64 = (0..4).map(|_| self.uniform()).sum();
        (sum - 2.0) * 3f64.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safetensors::file;

    #[test]
    fn random_numbers_have_mean_0_and_variance_1() {
        let mut random = Random { state: 1 };
        let values: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn folding_does_what_convolution_and_normalisation_do() {
        let params = ConvParams {
            weight: vec![2.0, -1.0, 0.5, 3.0],
            gamma: vec![1.5, 2.0],
            beta: vec![0.25, -1.0],
            mean: vec![0.5, -2.0],
            variance: vec![4.0, 0.25],
        };
        let folded = params.fold();
        let x = [0.75, -1.25];
        for c in 0..2 {
            let dot = |w: &[f32]| f64::from(w[2 * c]) * x[0] + f64::from(w[2 * c + 1]) * x[1];
            let deviation = (f64::from(params.variance[c]) + EPSILON).sqrt();
            let normalised = (dot(&params.weight) - f64::from(params.mean[c])) / deviation;
            let expected = normalised * f64::from(params.gamma[c]) + f64::from(params.beta[c]);
            let found = dot(&folded.weight) + f64::from(folded.bias[c]);
            assert!((found - expected).abs() < 1e-6, "channel {c}: {found} {expected}");
        }
    }

    /// A network of one tiny convolution, in a file with torchvision's names.
    #[test]
    fn a_file_is_loaded_by_torchvisions_names() {
        let conv = Conv {
            name: "layer1.0.conv1".into(),
            norm: "layer1.0.bn1".into(),
            workload: "layer1_conv1".into(),
            ci: 2,
            co: 3,
            size: 4,
            k: 1,
            stride: 1,
            padding: 0,
            relu: true,
        };
        let steps = [Step::Conv { conv, from: 0, residual: None }, Step::Fc { from: 1, features: 3 }];
        let f32s = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let norm = |v: f32| f32s(&[v, v + 1.0, v + 2.0]);
        let mut tensors = vec![
            ("fc.bias", "F32", &[CLASSES][..], f32s(&[0.5; CLASSES])),
            ("fc.weight", "F32", &[CLASSES, 3], f32s(&[0.25; CLASSES * 3])),
            ("layer1.0.bn1.bias", "F32", &[3], norm(1.0)),
            ("layer1.0.bn1.num_batches_tracked", "I64", &[], vec![0; 8]),
            ("layer1.0.bn1.running_mean", "F32", &[3], norm(10.0)),
            ("layer1.0.bn1.running_var", "F32", &[3], norm(4.0)),
            ("layer1.0.bn1.weight", "F32", &[3], norm(2.0)),
            ("layer1.0.conv1.weight", "F32", &[3, 2, 1, 1], f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ];
        let weights = Weights::load(&Safetensors::parse(file(&tensors)).unwrap(), &steps).unwrap();
        let [c] = &weights.convs[..] else { panic!("one convolution") };
        assert_eq!((c.weight[5], c.gamma[0], c.beta[1], c.mean[2], c.variance[0]), (6.0, 2.0, 2.0, 12.0, 4.0));
        assert_eq!((weights.fc_weight.len(), weights.fc_bias[999]), (3000, 0.5));
        tensors.remove(4);
        let error = Weights::load(&Safetensors::parse(file(&tensors)).unwrap(), &steps).err().unwrap().to_string();
        assert!(error.contains("no tensor `layer1.0.bn1.running_mean`"), "{error}");
    }

    /// The whole network through a file of its full size.
    #[test]
    fn seeded_weights_survive_a_file() {
        let steps = network::resnet18();
        let weights = Weights::seeded(5, &steps);
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = vec![];
        for (c, p) in network::convs(&steps).zip(&weights.convs) {
            tensors.push((format!("{}.weight", c.name), c.weight_shape().to_vec(), bytes(&p.weight)));
            for (part, values) in
                [("weight", &p.gamma), ("bias", &p.beta), ("running_mean", &p.mean), ("running_var", &p.variance)]
            {
                tensors.push((format!("{}.{part}", c.norm), vec![c.co], bytes(values)));
            }
        }
        tensors.push(("fc.weight".into(), vec![CLASSES, 512], bytes(&weights.fc_weight)));
        tensors.push(("fc.bias".into(), vec![CLASSES], bytes(&weights.fc_bias)));
        let tensors: Vec<(&str, &str, &[usize], Vec<u8>)> =
            tensors.iter().map(|(n, s, b)| (n.as_str(), "F32", s.as_slice(), b.clone())).collect();
        let loaded = Weights::load(&Safetensors::parse(file(&tensors)).unwrap(), &steps).unwrap();
        for (a, b) in weights.convs.iter().zip(&loaded.convs) {
            assert!(a.weight == b.weight && a.gamma == b.gamma && a.beta == b.beta);
            assert!(a.mean == b.mean && a.variance == b.variance);
        }
        assert!(weights.fc_weight == loaded.fc_weight && weights.fc_bias == loaded.fc_bias);
    }
}
