//! The layers of known networks, in the order in which they run.

/// What a layer computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// `input` is channels, height and width; `filter` is output channels, height and width.
    Conv { input: [i64; 3], filter: [i64; 3], stride: i64, padding: [i64; 2] },
    /// One filter a channel, three by three.
    Depthwise { input: [i64; 3], stride: i64 },
    /// Inputs and outputs.
    Linear { k: i64, n: i64 },
}

/// What follows a layer, as a spec names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    Bias,
    Relu,
    Relu6,
    AddRelu,
}

/// A layer; equal ones are merged under the name of the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) op: Op,
    pub(super) ending: Ending,
    pub(super) count: u32,
}

/// A network.
pub(super) struct Network {
    pub(super) title: &'static str,
    pub(super) layers: Vec<Layer>,
}

/// The names of all networks.
pub(super) const NAMES: [&str; 12] = [
    "resnet-18",
    "resnet-34",
    "resnet-50",
    "resnet-101",
    "resnet-152",
    "vgg-11",
    "vgg-13",
    "vgg-16",
    "vgg-19",
    "mobilenet",
    "squeezenet",
    "inception_v3",
];

/// The network of a name; `resnet18` and the like, and AutoTVM's `squeezenet_v1.1`, are understood too.
pub(super) fn find(name: &str) -> Option<Network> {
    let mut layers = Layers::default();
    let plain = name.to_lowercase().replace(['-', '_', '.'], "");
    let title = match plain.as_str() {
        "resnet18" => layers.resnet("ResNet-18", [2, 2, 2, 2], false),
        "resnet34" => layers.resnet("ResNet-34", [3, 4, 6, 3], false),
        "resnet50" => layers.resnet("ResNet-50", [3, 4, 6, 3], true),
        "resnet101" => layers.resnet("ResNet-101", [3, 4, 23, 3], true),
        "resnet152" => layers.resnet("ResNet-152", [3, 8, 36, 3], true),
        "vgg11" => layers.vgg("VGG-11", [1, 1, 2, 2, 2]),
        "vgg13" => layers.vgg("VGG-13", [2, 2, 2, 2, 2]),
        "vgg16" => layers.vgg("VGG-16", [2, 2, 3, 3, 3]),
        "vgg19" => layers.vgg("VGG-19", [2, 2, 4, 4, 4]),
        "mobilenet" | "mobilenetv1" => layers.mobilenet(),
        "squeezenet" | "squeezenetv11" => layers.squeezenet(),
        "inceptionv3" => layers.inception(),
        _ => return None,
    };
    Some(Network { title, layers: layers.0 })
}

#[derive(Default)]
struct Layers(Vec<Layer>);

impl Layers {
    fn add(&mut self, name: String, op: Op, ending: Ending) {
        match self.0.iter_mut().find(|l| l.op == op && l.ending == ending) {
            Some(same) => same.count += 1,
            None => self.0.push(Layer { name, op, ending, count: 1 }),
        }
    }

    fn linear(&mut self, name: &str, k: i64, n: i64, ending: Ending) {
        self.add(name.into(), Op::Linear { k, n }, ending);
    }

    /// He et al. 2015, table 1; blocks with a bottleneck stride in the 3 x 3, as torchvision's do.
    fn resnet(&mut self, title: &'static str, blocks: [i64; 4], bottleneck: bool) -> &'static str {
        let conv = |input, filter: [i64; 3], stride| {
            let padding = [(filter[1] - 1) / 2, (filter[2] - 1) / 2];
            Op::Conv { input, filter, stride, padding }
        };
        self.add("stem".into(), conv([3, 224, 224], [64, 7, 7], 2), Ending::Relu);
        let (mut channels, mut size) = (64, 56);
        for (stage, count) in blocks.into_iter().enumerate() {
            let (layer, width) = (stage + 1, 64 << stage);
            let out = if bottleneck { 4 * width } else { width };
            for block in 0..count {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                let (from, to) = ([channels, size, size], size / stride);
                let down = |changes: bool| if changes { "down_" } else { "" };
                if bottleneck {
                    let name = format!("layer{layer}_{}reduce", down(block == 0));
                    self.add(name, conv(from, [width, 1, 1], 1), Ending::Relu);
                    let name = format!("layer{layer}_{}conv", down(stride == 2));
                    self.add(name, conv([width, size, size], [width, 3, 3], stride), Ending::Relu);
                    let name = format!("layer{layer}_expand");
                    self.add(name, conv([width, to, to], [out, 1, 1], 1), Ending::AddRelu);
                } else {
                    let name = format!("layer{layer}_{}conv1", down(stride == 2));
                    self.add(name, conv(from, [width, 3, 3], stride), Ending::Relu);
                    let name = format!("layer{layer}_conv2");
                    self.add(name, conv([width, to, to], [width, 3, 3], 1), Ending::AddRelu);
                }
                if channels != out {
                    self.add(format!("layer{layer}_shortcut"), conv(from, [out, 1, 1], stride), Ending::Bias);
                }
                (channels, size) = (out, to);
            }
        }
        self.linear("fc", channels, 1000, Ending::Bias);
        title
    }

    /// Simonyan and Zisserman 2014, table 1: configurations A, B, D and E.
    fn vgg(&mut self, title: &'static str, blocks: [i64; 5]) -> &'static str {
        let (mut channels, mut size) = (3, 224);
        for (block, count) in blocks.into_iter().enumerate() {
            let width = 64 << block.min(3);
            for _ in 0..count {
                let first = if channels == width { "" } else { "_first" };
                let op = Op::Conv { input: [channels, size, size], filter: [width, 3, 3], stride: 1, padding: [1, 1] };
                self.add(format!("block{}{first}", block + 1), op, Ending::Relu);
                channels = width;
            }
            size /= 2;
        }
        self.linear("fc1", channels * size * size, 4096, Ending::Relu);
        self.linear("fc2", 4096, 4096, Ending::Relu);
        self.linear("fc3", 4096, 1000, Ending::Bias);
        title
    }

    /// Howard et al. 2017, table 1, width 1. Padding is symmetric, as in PyTorch's ports.
    fn mobilenet(&mut self) -> &'static str {
        let stem = Op::Conv { input: [3, 224, 224], filter: [32, 3, 3], stride: 2, padding: [1, 1] };
        self.add("stem".into(), stem, Ending::Relu6);
        let (mut channels, mut size) = (32, 112);
        let widths = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)];
        let last = [(512, 1); 5].into_iter().chain([(1024, 2), (1024, 1)]);
        for (width, stride) in widths.into_iter().chain(last) {
            let strided = if stride == 2 { "_s2" } else { "" };
            let depthwise = Op::Depthwise { input: [channels, size, size], stride };
            self.add(format!("depthwise_{channels}{strided}"), depthwise, Ending::Relu6);
            size /= stride;
            let input = [channels, size, size];
            let pointwise = Op::Conv { input, filter: [width, 1, 1], stride: 1, padding: [0, 0] };
            self.add(format!("pointwise_{channels}_{width}"), pointwise, Ending::Relu6);
            channels = width;
        }
        self.linear("fc", channels, 1000, Ending::Bias);
        "MobileNet v1"
    }

    /// Iandola et al. 2016, version 1.1 of the authors' repository.
    fn squeezenet(&mut self) -> &'static str {
        let stem = Op::Conv { input: [3, 224, 224], filter: [64, 3, 3], stride: 2, padding: [0, 0] };
        self.add("stem".into(), stem, Ending::Relu);
        let mut channels = 64;
        let fires = [(16, 64, 55), (16, 64, 55), (32, 128, 27), (32, 128, 27), (48, 192, 13), (48, 192, 13)];
        for (at, (squeeze, expand, size)) in fires.into_iter().chain([(64, 256, 13); 2]).enumerate() {
            let fire = at + 2;
            let conv = |ci: i64, co: i64, k: i64| {
                let padding = [(k - 1) / 2; 2];
                Op::Conv { input: [ci, size, size], filter: [co, k, k], stride: 1, padding }
            };
            self.add(format!("fire{fire}_squeeze"), conv(channels, squeeze, 1), Ending::Relu);
            self.add(format!("fire{fire}_expand1"), conv(squeeze, expand, 1), Ending::Relu);
            self.add(format!("fire{fire}_expand3"), conv(squeeze, expand, 3), Ending::Relu);
            channels = 2 * expand;
        }
        let last = Op::Conv { input: [channels, 13, 13], filter: [1000, 1, 1], stride: 1, padding: [0, 0] };
        self.add("classifier".into(), last, Ending::Relu);
        "SqueezeNet 1.1"
    }

    /// Szegedy et al. 2015, as torchvision has it, without the auxiliary classifier.
    fn inception(&mut self) -> &'static str {
        // Each branch is a row of convolutions: output channels, filter, and whether it strides by 2 and pads nothing.
        type Conv = (i64, [i64; 2], bool);
        const P: [i64; 2] = [1, 1];
        const S: [i64; 2] = [3, 3];
        const ROW: [i64; 2] = [1, 7];
        const COLUMN: [i64; 2] = [7, 1];
        let same = |co: i64, filter: [i64; 2]| -> Conv { (co, filter, false) };
        self.named(3, 299, [32, 3, 3], 2, [0, 0]);
        self.named(32, 149, [32, 3, 3], 1, [0, 0]);
        self.named(32, 147, [64, 3, 3], 1, [1, 1]);
        self.named(64, 73, [80, 1, 1], 1, [0, 0]);
        self.named(80, 73, [192, 3, 3], 1, [0, 0]);
        let mut block = |channels: i64, size: i64, branches: &[&[Conv]]| {
            for branch in branches {
                let mut ci = channels;
                for &(co, [kh, kw], strides) in *branch {
                    let padding = if strides { [0, 0] } else { [(kh - 1) / 2, (kw - 1) / 2] };
                    self.named(ci, size, [co, kh, kw], 1 + i64::from(strides), padding);
                    ci = co;
                }
            }
        };
        for (channels, pooled) in [(192, 32), (256, 64), (288, 64)] {
            let double = [same(64, P), same(96, S), same(96, S)];
            let five = [same(48, P), same(64, [5, 5])];
            block(channels, 35, &[&[same(64, P)], &five, &double, &[same(pooled, P)]]);
        }
        block(288, 35, &[&[(384, S, true)], &[same(64, P), same(96, S), (96, S, true)]]);
        for c in [128, 160, 160, 192] {
            let double = [same(c, P), same(c, COLUMN), same(c, ROW), same(c, COLUMN), same(192, ROW)];
            let once = [same(c, P), same(c, ROW), same(192, COLUMN)];
            block(768, 17, &[&[same(192, P)], &once, &double, &[same(192, P)]]);
        }
        let last = [same(192, P), same(192, ROW), same(192, COLUMN), (192, S, true)];
        block(768, 17, &[&[same(192, P), (320, S, true)], &last]);
        for channels in [1280, 2048] {
            block(channels, 8, &[&[same(320, P)], &[same(384, P)], &[same(448, P), same(384, S)], &[same(192, P)]]);
            // Both halves of a split branch read the same; there are two such branches.
            for _ in 0..2 {
                block(384, 8, &[&[same(384, [1, 3])], &[same(384, [3, 1])]]);
            }
        }
        self.linear("fc", 2048, 1000, Ending::Bias);
        "Inception v3"
    }

    /// A convolution with ReLU that is named by its sizes.
    fn named(&mut self, ci: i64, size: i64, filter: [i64; 3], stride: i64, padding: [i64; 2]) {
        let [co, kh, kw] = filter;
        let strided = if stride == 2 { "_s2" } else { "" };
        let op = Op::Conv { input: [ci, size, size], filter, stride, padding };
        self.add(format!("conv{kh}x{kw}_{ci}_{co}_{size}{strided}"), op, Ending::Relu);
    }
}
