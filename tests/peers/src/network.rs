//! The whole of `examples/resnet18` as one layer of the table: the example's forward pass, and the same network with the
//! same parameters as a model for ONNX Runtime.

use crate::check;
use crate::contest::{Aligned, Contest, Contestant};
use crate::onnx::{Attribute, Graph};
use crate::ort::{Runtime, Session};
use crate::table::Entry;
use kernel_gen_runtime::Cpu;
use resnet18::forward::Network;
use resnet18::network::{CLASSES, Conv, IMAGE, Step, resnet18};
use resnet18::place::{Place, Untimed};
use resnet18::reference;
use resnet18::weights::{EPSILON, Weights};
use std::fmt::Write;
use std::path::PathBuf;
use std::rc::Rc;

/// The network, its parameters and an image, which outlive everybody who computes it.
pub(crate) struct Task {
    steps: Vec<Step>,
    weights: Weights,
    image: Aligned,
    /// Where the model goes, if it is to be kept.
    onnx: Option<PathBuf>,
}

impl Task {
    /// The example's seeded parameters, and an image of noise as bright as a normalised picture.
    pub(crate) fn new(onnx: Option<PathBuf>) -> Task {
        let steps = resnet18();
        let weights = Weights::seeded(18, &steps);
        let image = (0..3 * IMAGE * IMAGE).map(|i| 2.0 * crate::layers::random(5, i)).collect();
        Task { steps, weights, image, onnx }
    }

    /// Makes everybody ready and compares the results.
    pub(crate) fn contest<'a>(
        &'a self,
        dev: &Cpu,
        runtime: Option<&Rc<Runtime>>,
        cores: &[usize],
    ) -> Result<Contest<'a>, String> {
        let mut all: Vec<(Box<dyn Contestant + 'a>, &str, String)> = vec![];
        let network = Network::new(dev, &self.weights, &self.image).map_err(|e| e.to_string())?;
        all.push((Box::new(Ours { network }), "ours", "examples/resnet18".into()));
        let model = model(&self.steps, &self.weights);
        if let Some(path) = &self.onnx {
            std::fs::write(path, &model).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        if let Some(runtime) = runtime {
            let (image, logits) = ([1, 3, IMAGE, IMAGE], [1, CLASSES]);
            let inputs: [(&str, &[usize], &[f32]); 1] = [("image", &image, &self.image)];
            let session = Session::new(runtime, &model, &inputs, ("logits", &logits), dev.threads(), cores)?;
            all.push((Box::new(session), "ONNX Runtime", runtime.version.clone()));
        }
        let expected = reference::forward(&self.steps, &self.weights, &self.image, dev.threads());
        let expected = &expected.last().ok_or("a network has layers")?.data;
        let largest = expected.iter().fold(f64::MIN_POSITIVE, |m, e| m.max(e.abs()));
        let mut contest = Contest {
            name: "resnet18".into(),
            shape: format!("3x{IMAGE}x{IMAGE} -> {CLASSES}"),
            count: 1,
            flops: self.steps.iter().filter_map(Step::flops).sum(),
            contestants: vec![],
            entries: vec![],
        };
        let mut first = vec![];
        for (mut contestant, label, implementation) in all {
            let result = contestant.result()?;
            if first.is_empty() {
                first.clone_from(&result);
            }
            let apart = result.iter().zip(expected).map(|(y, e)| (f64::from(*y) - e).abs());
            contest.entries.push(Entry {
                label: label.into(),
                // Not `f64::max`, which passes over values that are no numbers.
                error: apart.fold(0.0, |m, d| if d > m || d.is_nan() { d } else { m }) / largest,
                difference: check::difference(&result, &first),
                implementation,
                config: String::new(),
                plain: true,
            });
            contest.contestants.push(contestant);
        }
        Ok(contest)
    }
}

/// The median time of each step of our pass, in microseconds, one line a step. In a pass, unlike in a layer that is run
/// again and again, weights come from memory.
pub(crate) fn steps(dev: &Cpu, task: &Task) -> Result<String, String> {
    let network = Network::new(dev, &task.weights, &task.image).map_err(|e| e.to_string())?;
    let (_, measured) = dev.measure(network, 25).map_err(|e| e.to_string())?;
    let mut text = String::from("| step | shape | ours us |\n|---|---|--:|\n");
    for (step, us) in task.steps.iter().zip(measured.steps_us) {
        writeln!(text, "| {} | {} | {us:.0} |", step.name(), step.shape()).map_err(|e| e.to_string())?;
    }
    Ok(text)
}

/// The example's forward pass.
struct Ours {
    network: Network<Cpu>,
}

impl Contestant for Ours {
    fn run(&mut self) -> Result<(), String> {
        self.network.forward(&mut Untimed).map_err(|e| e.to_string())
    }

    fn result(&mut self) -> Result<Vec<f32>, String> {
        self.run()?;
        let outputs = self.network.outputs().map_err(|e| e.to_string())?;
        outputs.into_iter().last().ok_or("a network has layers".into())
    }
}

/// The network as a model, batch normalisations as they stand: ONNX Runtime folds them itself. Activation `i` is called
/// `a<i>`, the image and the result `image` and `logits`.
fn model(steps: &[Step], weights: &Weights) -> Vec<u8> {
    let mut graph = Graph::new("resnet18");
    graph.input("image", &[1, 3, IMAGE, IMAGE]);
    let name = |i: usize| match i {
        0 => "image".to_string(),
        i if i == steps.len() => "logits".into(),
        i => format!("a{i}"),
    };
    let mut parameters = weights.convs.iter();
    for (i, step) in steps.iter().enumerate() {
        let to = name(i + 1);
        match step {
            Step::Conv { conv, from, residual } => {
                let p = parameters.next().expect("one set of parameters a convolution");
                let constant = |part: &str| format!("{}.{part}", conv.name);
                graph.constant(&constant("weight"), &conv.weight_shape(), &p.weight);
                for (part, values) in
                    [("gamma", &p.gamma), ("beta", &p.beta), ("mean", &p.mean), ("variance", &p.variance)]
                {
                    graph.constant(&constant(part), &[conv.co], values);
                }
                let (sum, normal, added) = (constant("sum"), constant("normal"), constant("added"));
                graph.node("Conv", &[&name(*from), &constant("weight")], &sum, &attributes(conv));
                let norm = ["gamma", "beta", "mean", "variance"].map(constant);
                let inputs = [&sum, &norm[0], &norm[1], &norm[2], &norm[3]].map(String::as_str);
                let last = if conv.relu || residual.is_some() { &normal } else { &to };
                let epsilon = [("epsilon", Attribute::Float(EPSILON as f32))];
                graph.node("BatchNormalization", &inputs, last, &epsilon);
                let mut before = normal.clone();
                if let Some(residual) = residual {
                    let last = if conv.relu { &added } else { &to };
                    graph.node("Add", &[&before, &name(*residual)], last, &[]);
                    before = added.clone();
                }
                if conv.relu {
                    graph.node("Relu", &[&before], &to, &[]);
                }
            }
            Step::MaxPool { from, .. } => {
                let window = [("kernel_shape", vec![3, 3]), ("strides", vec![2, 2]), ("pads", vec![1; 4])];
                let window = window.map(|(name, v)| (name, Attribute::Ints(v)));
                graph.node("MaxPool", &[&name(*from)], &to, &window);
            }
            Step::AveragePool { from, .. } => {
                graph.node("GlobalAveragePool", &[&name(*from)], "means", &[]);
                graph.node("Flatten", &["means"], &to, &[]);
            }
            Step::Fc { from, features } => {
                graph.constant("fc.weight", &[CLASSES, *features], &weights.fc_weight);
                graph.constant("fc.bias", &[CLASSES], &weights.fc_bias);
                let inputs = [&name(*from), "fc.weight", "fc.bias"];
                graph.node("Gemm", &inputs, &to, &[("transB", Attribute::Int(1))]);
            }
        }
    }
    graph.output("logits", &[1, CLASSES]);
    graph.finish()
}

fn attributes(conv: &Conv) -> Vec<(&'static str, Attribute)> {
    vec![
        ("kernel_shape", Attribute::Ints(vec![conv.k; 2])),
        ("strides", Attribute::Ints(vec![conv.stride; 2])),
        ("pads", Attribute::Ints(vec![conv.padding; 4])),
    ]
}
