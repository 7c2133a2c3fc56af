//! Who takes part in a layer of a list.

use crate::contest::{Contest, Contestant, Ours};
use crate::layers::{self, Layer};
#[cfg(feature = "network")]
use crate::network::Task;
use crate::onednn::Variant;
use crate::options::Options;
use crate::table::Entry;
use crate::{check, crates, onednn, onnx, ort, torch};
use kernel_gen_runtime::{Cpu, Isa, Report};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The libraries that were named.
pub(crate) struct Peers {
    pub(crate) ort: Option<Rc<ort::Runtime>>,
    pub(crate) onednn: Option<Rc<onednn::Library>>,
    pub(crate) torch: Option<Rc<torch::Torch>>,
    pub(crate) crates: Option<Rc<crates::Library>>,
}

/// What a list computes on: it outlives everybody who takes part.
pub(crate) enum Data {
    /// Layers of a spec.
    Layers(Layers),
    /// The whole of `examples/resnet18`.
    #[cfg(feature = "network")]
    Network(Box<Task>),
}

/// The layers of a list that were asked for, with the arguments of each.
pub(crate) struct Layers {
    layers: Vec<(Layer, layers::Data)>,
    report: Report,
    strict: Option<layers::Class>,
}

impl Data {
    /// The list that the options name.
    pub(crate) fn new(options: &Options) -> Result<Data, String> {
        #[cfg(feature = "network")]
        if options.list == "network" {
            return Ok(Data::Network(Box::new(Task::new(options.onnx.clone()))));
        }
        let (fp32, strict) = layers::find(&options.list);
        let layers::Class { layers, report } = fp32.ok_or_else(|| {
            let built = layers::names().join(", ");
            format!("the list `{}` was not built (those that were: {built}); build with `--features {0}`", options.list)
        })?;
        let wanted = |l: &Layer| options.only.is_empty() || options.only.iter().any(|part| l.name.contains(&**part));
        let chosen = layers.into_iter().filter(wanted);
        let layers: Vec<(Layer, layers::Data)> = chosen
            .map(|l| {
                let data = layers::Data::new(&l.problem);
                (l, data)
            })
            .collect();
        if layers.is_empty() {
            return Err(format!("no layer of `{}` has a name with {}", options.list, options.only.join(" or ")));
        }
        Ok(Data::Layers(Layers { layers, report, strict }))
    }

    /// Makes everybody ready for every layer and compares their results.
    pub(crate) fn contests(&self, dev: &Cpu, cores: &[usize], peers: &Peers) -> Result<Vec<Contest<'_>>, String> {
        match self {
            Data::Layers(list) => {
                list.layers.iter().map(|(l, data)| list.contest(dev, cores, peers, l, data)).collect()
            }
            #[cfg(feature = "network")]
            Data::Network(task) => Ok(vec![task.contest(dev, peers.ort.as_ref(), cores)?]),
        }
    }
}

impl Layers {
    fn contest<'a>(
        &self,
        dev: &Cpu,
        cores: &[usize],
        peers: &Peers,
        layer: &Layer,
        data: &'a layers::Data,
    ) -> Result<Contest<'a>, String> {
        let mut ours = vec![("ours", layer, choice(&self.report, layer.name, dev.isa()))];
        if let Some(strict) = &self.strict {
            let twin = strict.layers.iter().find(|l| l.name == layer.name).expect("both classes have the same layers");
            let kernel = choice(&strict.report, layer.name, dev.isa());
            if kernel != ours[0].2 {
                ours.push(("ours strict", twin, kernel));
            }
        }
        contest(dev, cores, peers, ours, data)
    }
}

/// Makes everybody ready for a layer and compares their results.
fn contest<'a>(
    dev: &Cpu,
    cores: &[usize],
    peers: &Peers,
    ours: Vec<(&str, &Layer, Choice)>,
    data: &'a layers::Data,
) -> Result<Contest<'a>, String> {
    let layer = ours[0].1;
    let problem = &layer.problem;
    let mut all: Vec<(Box<dyn Contestant + 'a>, String, String, bool)> = vec![];
    let mut configs = vec![];
    for (label, layer, (kernel, config)) in ours {
        all.push((Box::new(Ours::new(dev, layer, data)?), label.into(), kernel, true));
        configs.push(config);
    }
    if let Some(runtime) = &peers.ort {
        let (input, output) = (problem.op.input(), problem.op.output());
        let mut inputs: Vec<(&str, &[usize], &[f32])> = vec![("x", &input, &data.input)];
        if problem.residual {
            inputs.push(("residual", &output, &data.residual));
        }
        let model = onnx::layer(problem, data);
        let session = ort::Session::new(runtime, &model, &inputs, ("y", &output), dev.threads(), cores)?;
        all.push((Box::new(session), "ONNX Runtime".into(), runtime.version.clone(), true));
    }
    if let Some(library) = &peers.onednn {
        // With plain tensors at the call it may be faster to reorder them around a blocked convolution.
        let lines: &[(&str, &[Variant])] = match problem.op {
            layers::Op::Product(_) => &[("oneDNN", &[Variant::Plain])],
            layers::Op::Conv(_) => {
                &[("oneDNN blocked", &[Variant::Blocked]), ("oneDNN plain", &[Variant::Plain, Variant::Reordered])]
            }
        };
        for (label, variants) in lines {
            match fastest(library, problem, data, variants) {
                Ok(peer) => {
                    let implementation = peer.implementation.clone();
                    all.push((Box::new(peer), label.to_string(), implementation, *label != "oneDNN blocked"));
                }
                Err(why) => eprintln!("{}: {label} does not take part: {why}", layer.name),
            }
        }
    }
    if let Some(child) = &peers.torch {
        let lines: &[_] = match problem.op {
            layers::Op::Product(_) => &[("PyTorch", torch::Layout::Plain)],
            layers::Op::Conv(_) => {
                &[("PyTorch", torch::Layout::Plain), ("PyTorch channels last", torch::Layout::ChannelsLast)]
            }
        };
        for (label, layout) in lines {
            match torch::Layer::new(child, problem, data, *layout) {
                Ok(peer) => {
                    let implementation = peer.implementation.clone();
                    all.push((Box::new(peer), label.to_string(), implementation, *layout == torch::Layout::Plain));
                }
                Err(why) => eprintln!("{}: {label} does not take part: {why}", layer.name),
            }
        }
    }
    if let Some(library) = &peers.crates {
        for (which, name) in crates::NAMES.into_iter().enumerate() {
            match crates::Peer::new(library, which, problem, data) {
                Ok(peer) => all.push((Box::new(peer), name.into(), String::new(), true)),
                Err(why) => eprintln!("{}: {name} does not take part: {why}", layer.name),
            }
        }
    }
    let (mut contestants, mut entries, mut first) = (vec![], vec![], vec![]);
    let mut configs = configs.into_iter();
    for (mut contestant, label, implementation, plain) in all {
        let result = contestant.result()?;
        if entries.is_empty() {
            first.clone_from(&result);
        }
        let (error, difference) = (check::error(problem, data, &result), check::difference(&result, &first));
        let config = configs.next().unwrap_or_default();
        entries.push(Entry { label, error, difference, implementation, config, plain });
        contestants.push(contestant);
    }
    Ok(Contest {
        name: layer.name.into(),
        shape: problem.op.describe(),
        count: layer.count,
        flops: problem.flops(),
        contestants,
        entries,
    })
}

/// The fastest of oneDNN's variants, by a few runs of each.
fn fastest(
    library: &Rc<onednn::Library>,
    problem: &layers::Problem,
    data: &layers::Data,
    variants: &[Variant],
) -> Result<onednn::Layer, String> {
    let mut best: Option<(Duration, onednn::Layer)> = None;
    for variant in variants {
        let mut peer = onednn::Layer::new(library, problem, data, *variant)?;
        let mut time = Duration::MAX;
        for _ in 0..if variants.len() > 1 { 6 } else { 0 } {
            let start = Instant::now();
            peer.run()?;
            time = time.min(start.elapsed());
        }
        if best.as_ref().is_none_or(|(least, _)| time < *least) {
            best = Some((time, peer));
        }
    }
    best.map(|(_, peer)| peer).ok_or_else(|| "no variant".into())
}

/// A template and where its config came from, and the config.
type Choice = (String, String);

/// What a build chose for a layer.
fn choice(report: &Report, layer: &str, isa: Isa) -> Choice {
    let row = report.rows().iter().find(|r| r.workload == layer && r.isa == Some(isa));
    row.map_or_else(Default::default, |r| {
        let template = r.template.split(' ').next().unwrap_or_default();
        (format!("{template} ({})", r.origin), r.config.to_string())
    })
}
