//! The module of a network: what loads its weights, and what launches its steps in order.

use super::names::{self, Unique, rust_name};
use super::network_items::{ArgItem, ArgPlace, NetworkModule, Port};
use super::writer::{RT, USE_RT, element_type, line, shape_type};
use crate::emit::escape::{comment, rust_literal};

/// The shape of an array without a shape of its own.
fn line_shape(elements: i64) -> String {
    shape_type(&[elements])
}

/// Writes the module.
pub(super) fn emit(out: &mut String, network: &NetworkModule) {
    let mut unique = Unique::default();
    for taken in ["dev", "self", "weights", "network"] {
        unique.name(taken);
    }
    let mut named = |ports: &[Port]| ports.iter().map(|p| unique.name(&rust_name(&p.name))).collect::<Vec<_>>();
    let (inputs, outputs) = (named(&network.inputs), named(&network.outputs));
    let mut types = Unique::default();
    types.name("Network");
    let ports: Vec<(&Port, &str, String)> = network
        .inputs
        .iter()
        .zip(&inputs)
        .chain(network.outputs.iter().zip(&outputs))
        .map(|(port, name)| (port, name.as_str(), types.name(&names::camel(name))))
        .collect();
    line(out, 0, "");
    documentation(out, network);
    line(out, 0, &format!("pub mod {} {{", network.name));
    line(out, 1, USE_RT);
    line(out, 0, "");
    for (port, _, name) in &ports {
        line(out, 1, &format!("/// Shape of `{}`.", comment(&port.name)));
        line(out, 1, &format!("pub type {name} = {};", shape_type(&port.shape)));
    }
    let path =
        format!("concat!(env!(\"OUT_DIR\"), {})", rust_literal(&format!("/{}/{}", network.folder, network.file)));
    line(
        out,
        1,
        "/// The weights, as the build script took them from the model. A program that does not name them does not have them in it.",
    );
    line(out, 1, &format!("pub const WEIGHTS: &[u8] = include_bytes!({path});"));
    line(
        out,
        1,
        "/// The file of the weights where this was built, for programs that ship it beside them and call [`Network::load_file`].",
    );
    line(out, 1, &format!("pub const WEIGHTS_FILE: &str = {path};"));
    line(out, 1, "/// Bytes of memory for what lies between steps.");
    let bytes: i64 = network.slots.iter().map(|(dtype, n)| n * dtype.bytes() as i64).sum();
    line(out, 1, &format!("pub const ARENA_BYTES: usize = {bytes};"));
    line(out, 0, "");
    fields(out, network);
    line(out, 0, "");
    line(out, 1, &format!("impl<Dev: {RT}::Device> Network<Dev> {{"));
    load(out, network);
    line(out, 0, "");
    run(out, network, &ports);
    line(out, 1, "}");
    line(out, 0, "");
    report(out, network);
    line(out, 0, "}");
}

/// What the module is, with all steps.
fn documentation(out: &mut String, network: &NetworkModule) {
    line(out, 0, &format!("/// The network of `{}`, as these launches in order:", comment(&network.model)));
    line(out, 0, "///");
    line(out, 0, "/// | step | nodes | workload |");
    line(out, 0, "/// |--:|---|---|");
    for (i, step) in network.steps.iter().enumerate() {
        let nodes = comment(&step.nodes.join(", ")).replace('|', "\\|");
        line(out, 0, &format!("/// | {i} | {nodes} | `{}` |", step.key));
    }
}

fn fields(out: &mut String, network: &NetworkModule) {
    line(
        out,
        1,
        "/// An instance: weights in the layouts that the device's kernels want, and memory of its own. Instances can run at",
    );
    line(out, 1, "/// the same time.");
    line(out, 1, "#[derive(Debug)]");
    line(out, 1, &format!("pub struct Network<Dev: {RT}::Device = {RT}::Cpu> {{"));
    if !network.weights.is_empty() {
        line(out, 2, "packed: Vec<Dev::Packed>,");
    }
    for (i, section) in network.constants.iter().enumerate() {
        let (element, shape) = (element_type(section.dtype), line_shape(section.elements));
        line(out, 2, &format!("constants{i}: Dev::Tensor<{element}, {shape}>,"));
    }
    for (i, (dtype, elements)) in network.slots.iter().enumerate() {
        line(out, 2, &format!("slot{i}: Dev::Tensor<{}, {}>,", element_type(*dtype), line_shape(*elements)));
    }
    line(out, 2, "device: std::marker::PhantomData<Dev>,");
    line(out, 1, "}");
}

fn load(out: &mut String, network: &NetworkModule) {
    let numbers = format!("0x{:016x}, {}", network.mark, network.bytes);
    let name = rust_literal(&network.name);
    let mut public = |what: &str, function: &str, argument: &str, of: &str| {
        line(out, 2, what);
        line(out, 2, "///");
        line(out, 2, "/// # Errors");
        line(
            out,
            2,
            "/// If these are not the weights that the module was generated for, or the device runs none of its code.",
        );
        line(out, 2, &format!("pub fn {function}(dev: &Dev, {argument}) -> {RT}::Result<Self> {{"));
        line(out, 3, &format!("Self::of(dev, &{RT}::network::Weights::{of}({name}, weights, {numbers})?)"));
        line(out, 2, "}");
    };
    let bytes = "/// Makes an instance on a device of the bytes of a file of weights: [`WEIGHTS`], or the same read from elsewhere.";
    public(bytes, "load", "weights: &[u8]", "new");
    let file = "/// Makes an instance on a device of a file of weights, which is read a constant at a time: [`WEIGHTS_FILE`], or a copy.";
    public(file, "load_file", "weights: &std::path::Path", "open");
    line(out, 2, &format!("fn of(dev: &Dev, weights: &{RT}::network::Weights<'_>) -> {RT}::Result<Self> {{"));
    line(out, 3, "Ok(Network {");
    if !network.weights.is_empty() {
        line(out, 4, "packed: vec![");
        for (module, section) in &network.weights {
            let (element, shape) = (element_type(section.dtype), line_shape(section.elements));
            let tensor = format!("weights.upload::<Dev, {element}, {shape}>(dev, {})?", section.offset);
            // Its own block: what is packed already goes before the next one comes.
            line(out, 5, "{");
            line(out, 6, &format!("let weight = {tensor};"));
            let pack = format!("super::{module}::ENTRY.pack_weight(dev, {RT}::Input::arg(&weight, dev))?");
            line(out, 6, &format!("let packed = {pack};"));
            line(out, 6, "packed");
            line(out, 5, "},");
        }
        line(out, 4, "],");
    }
    for (i, section) in network.constants.iter().enumerate() {
        line(out, 4, &format!("constants{i}: weights.upload(dev, {})?,", section.offset));
    }
    for i in 0..network.slots.len() {
        line(out, 4, &format!("slot{i}: dev.zeros()?,"));
    }
    line(out, 4, "device: std::marker::PhantomData,");
    line(out, 3, "})");
    line(out, 2, "}");
}

fn run(out: &mut String, network: &NetworkModule, ports: &[(&Port, &str, String)]) {
    line(out, 2, "/// Runs the network. On a GPU this queues its launches, which can be captured in a graph.");
    line(out, 2, "pub fn run(");
    line(out, 3, "&mut self,");
    line(out, 3, "dev: &Dev,");
    for (i, (port, name, shape)) in ports.iter().enumerate() {
        let (reference, buffer) = if i < network.inputs.len() { ("&", "Input") } else { ("&mut ", "Output") };
        let element = element_type(port.dtype);
        line(out, 3, &format!("{name}: {reference}impl {RT}::{buffer}<Dev, Elem = {element}, Shape = {shape}>,"));
    }
    line(out, 2, &format!(") -> {RT}::Result<()> {{"));
    for (i, step) in network.steps.iter().enumerate() {
        line(out, 3, &format!("// Step {i}: {}.", comment(&step.nodes.join(", "))));
        line(out, 3, &format!("super::{}::ENTRY.launch(dev, &[", step.module));
        for arg in &step.args {
            line(out, 4, &format!("{},", argument(network, arg, ports)));
        }
        line(out, 3, "])?;");
    }
    line(out, 3, "Ok(())");
    line(out, 2, "}");
}

/// What lists the launches with their kernels.
fn report(out: &mut String, network: &NetworkModule) {
    line(
        out,
        1,
        "/// The launches in order, each with the kernel that this device runs, where that comes from, and its expected time.",
    );
    line(out, 1, &format!("pub fn report<Dev: {RT}::Device>(dev: &Dev) -> {RT}::network::Steps {{"));
    line(out, 2, &format!("{RT}::network::Steps::new(dev, &super::report(), &["));
    for step in &network.steps {
        let (nodes, module) = (rust_literal(&step.nodes.join(", ")), rust_literal(&step.module));
        line(out, 3, &format!("({nodes}, {module}),"));
    }
    line(out, 2, "])");
    line(out, 1, "}");
}

/// An argument as an expression.
fn argument(network: &NetworkModule, arg: &ArgItem, ports: &[(&Port, &str, String)]) -> String {
    let all = |shape: &[i64]| shape.iter().product::<i64>();
    let (name, offset, held) = match arg.from {
        ArgPlace::Packed(i) => return format!("dev.packed_arg(&self.packed[{i}])"),
        ArgPlace::Input(i) => (ports[i].1.to_string(), 0, all(&ports[i].0.shape)),
        ArgPlace::Output(i) => {
            let port = &ports[network.inputs.len() + i];
            // It is borrowed already, for the caller.
            (format!("*{}", port.1), 0, all(&port.0.shape))
        }
        ArgPlace::Slot(i) => (format!("self.slot{i}"), 0, network.slots[i].1),
        ArgPlace::Constant(i, offset) => (format!("self.constants{i}"), offset, network.constants[i].elements),
    };
    let place = match (arg.from, arg.written) {
        (ArgPlace::Input(_), _) => format!("{RT}::Input::arg({name}, dev)"),
        (_, false) => format!("{RT}::Input::arg(&{name}, dev)"),
        (_, true) => format!("{RT}::Output::arg_mut(&mut {name}, dev)"),
    };
    let offset = offset + arg.at;
    if (offset, arg.elements) == (0, held) { place } else { format!("{place}.part({offset}, {})", arg.elements) }
}
