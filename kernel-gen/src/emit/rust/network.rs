//! The module of a network: what loads its weights, and what launches its steps in order.

use super::names::{self, Unique, rust_name};
use super::network_items::{ArgItem, ArgPlace, NetworkModule, PlanItem, Port, Section};
use super::writer::{RT, USE_RT, element_type, line, shape_text, shape_type, varying_shape_type};
use crate::emit::escape::{comment, rust_literal};
use crate::ir::DType;
use std::collections::BTreeSet;

/// The shape of an array without a shape of its own.
fn line_shape(elements: i64) -> String {
    shape_type(&[elements])
}

/// Writes the module.
pub(super) fn emit(out: &mut String, network: &NetworkModule) {
    let mut unique = Unique::default();
    for taken in ["dev", "self", "weights", "network", "plan", "units", "args", "lane", "lanes", "packed"] {
        unique.name(taken);
    }
    (0..network.constants.len()).for_each(|i| drop(unique.name(&format!("constants{i}"))));
    let Some(first) = network.plans.first() else { return };
    let mut types = Unique::default();
    for taken in ["Network", "Shapes", "Dev", "Vec", "Lane"] {
        types.name(taken);
    }
    let ports: Vec<Named<'_>> = first
        .ports()
        .enumerate()
        .map(|(i, port)| {
            let name = unique.name(&rust_name(&port.name));
            let shape = types.name(&names::camel(&name));
            Named { port, name, shape, written: i >= first.inputs.len() }
        })
        .collect();
    line(out, 0, "");
    documentation(out, network);
    line(out, 0, &format!("pub mod {} {{", network.name));
    line(out, 1, USE_RT);
    line(out, 0, "");
    for (i, Named { port, shape, .. }) in ports.iter().enumerate() {
        if network.plans.iter().any(|plan| plan.ports().nth(i).is_none_or(|other| shape_of(other) != shape_of(port))) {
            continue;
        }
        line(out, 1, &format!("/// Shape of `{}`.", comment(&port.name)));
        let generics = if port.varies { "<const UNITS: usize>" } else { "" };
        line(out, 1, &format!("pub type {shape}{generics} = {};", shape_of(port)));
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
    let each = if has_lanes(network) { ", with that of one image where they run one by one" } else { "" };
    line(out, 1, &format!("/// Bytes of memory for what lies between steps{each}."));
    let slots = network.slots.iter().chain(&network.lane);
    let bytes: i64 = slots.map(|(dtype, n)| n * dtype.bytes() as i64).sum();
    line(out, 1, &format!("pub const ARENA_BYTES: usize = {bytes};"));
    line(out, 0, "");
    fields(out, network);
    line(out, 0, "");
    if has_lanes(network) {
        lane(out, network);
        line(out, 0, "");
    }
    if let [PlanItem { units: None, .. }] = &network.plans[..] {
        line(out, 1, &format!("impl<Dev: {RT}::Device> Network<Dev> {{"));
        load(out, network);
        line(out, 0, "");
        run(out, network, &ports);
    } else {
        shapes_trait(out, network);
        line(out, 0, "");
        line(out, 1, &format!("impl<Dev: {RT}::Device> Network<Dev> {{"));
        load(out, network);
        line(out, 0, "");
        run_of_shapes(out, network, &ports);
    }
    line(out, 1, "}");
    line(out, 0, "");
    report(out, network);
    line(out, 0, "}");
}

/// An input or a result, with its names in Rust.
struct Named<'a> {
    port: &'a Port,
    name: String,
    /// The name of its shape's type.
    shape: String,
    written: bool,
}

/// The type of a port's shape, of `UNITS` images if their number varies.
fn shape_of(port: &Port) -> String {
    varying_shape_type(&port.shape, port.varies)
}

/// The shapes of a plan for messages: `x [1..8, 3, 224, 224], y [1..8, 1000]`.
fn signature(plan: &PlanItem) -> String {
    let shape = |port: &Port| {
        format!("{} {}", comment(&port.name), shape_text(&port.shape, plan.units.filter(|_| port.varies)))
    };
    plan.ports().map(shape).collect::<Vec<_>>().join(", ")
}

/// What the module is, with all steps.
fn documentation(out: &mut String, network: &NetworkModule) {
    let many = network.plans.len() > 1;
    line(out, 0, &format!("/// The network of `{}`, as these launches in order:", comment(&network.model)));
    for plan in &network.plans {
        line(out, 0, "///");
        let of = if plan.apart.is_some() { ", each image by itself" } else { "" };
        if many || plan.units.is_some() || plan.apart.is_some() {
            line(out, 0, &format!("/// For `{}`{of}:", signature(plan)));
            line(out, 0, "///");
        }
        line(out, 0, "/// | step | nodes | workload |");
        line(out, 0, "/// |--:|---|---|");
        for (i, step) in plan.steps.iter().enumerate() {
            let nodes = comment(&step.nodes.join(", ")).replace('|', "\\|");
            line(out, 0, &format!("/// | {i} | {nodes} | `{}` |", step.key));
        }
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
    slots(out, &network.slots);
    if has_lanes(network) {
        line(out, 2, &format!("lanes: {RT}::network::Lanes<Dev, Lane<Dev>>,"));
    }
    line(out, 2, "device: std::marker::PhantomData<Dev>,");
    line(out, 1, "}");
}

/// Whether images run one by one in some plan, so that what lies between steps is there for several at the same time.
fn has_lanes(network: &NetworkModule) -> bool {
    network.plans.iter().any(|plan| plan.apart.is_some())
}

/// What lies between steps, for one image.
fn lane(out: &mut String, network: &NetworkModule) {
    line(out, 1, "/// What lies between the steps of one image.");
    line(out, 1, "#[derive(Debug)]");
    line(out, 1, &format!("struct Lane<Dev: {RT}::Device> {{"));
    slots(out, &network.lane);
    line(out, 2, "device: std::marker::PhantomData<Dev>,");
    line(out, 1, "}");
}

fn slots(out: &mut String, slots: &[(DType, i64)]) {
    for (i, (dtype, elements)) in slots.iter().enumerate() {
        line(out, 2, &format!("slot{i}: Dev::Tensor<{}, {}>,", element_type(*dtype), line_shape(*elements)));
    }
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
    let shares = network.plans.len() > 1;
    if shares && !network.weights.is_empty() {
        packed_once(out, network);
    }
    line(out, 3, "Ok(Network {");
    if shares && !network.weights.is_empty() {
        line(out, 4, "packed,");
    } else if !network.weights.is_empty() {
        line(out, 4, "packed: vec![");
        for (module, section) in &network.weights {
            // Its own block: what is packed already goes before the next one comes.
            line(out, 5, "{");
            line(out, 6, &format!("let weight = {};", upload(section)));
            line(out, 6, &format!("let packed = {};", pack(module)));
            line(out, 6, "packed");
            line(out, 5, "},");
        }
        line(out, 4, "],");
    }
    for (i, section) in network.constants.iter().enumerate() {
        line(out, 4, &format!("constants{i}: weights.upload(dev, {})?,", section.offset));
    }
    let slots = |out: &mut String, depth, slots: &[(DType, i64)]| {
        (0..slots.len()).for_each(|i| line(out, depth, &format!("slot{i}: dev.zeros()?,")));
    };
    slots(out, 4, &network.slots);
    if let Some(most) = network.plans.iter().filter_map(|plan| plan.apart).max() {
        line(out, 4, &format!("lanes: {RT}::network::Lanes::new(dev, {most}, || Ok(Lane {{"));
        slots(out, 5, &network.lane);
        line(out, 5, "device: std::marker::PhantomData,");
        line(out, 4, "}))?,");
    }
    line(out, 4, "device: std::marker::PhantomData,");
    line(out, 3, "})");
    line(out, 2, "}");
}

/// What reads a weight.
fn upload(section: &Section) -> String {
    let (element, shape) = (element_type(section.dtype), line_shape(section.elements));
    format!("weights.upload::<Dev, {element}, {shape}>(dev, {})?", section.offset)
}

/// What packs `weight` for a workload.
fn pack(module: &str) -> String {
    format!("super::{module}::ENTRY.pack_weight(dev, {RT}::Input::arg(&weight, dev))?")
}

/// Packs all weights, each once for all plans that take it in one form.
fn packed_once(out: &mut String, network: &NetworkModule) {
    line(out, 3, &format!("let mut packed: Vec<Dev::Packed> = Vec::with_capacity({});", network.weights.len()));
    for (i, (module, section)) in network.weights.iter().enumerate() {
        let same = network.weights[..i].iter().enumerate().filter(|(_, (_, known))| known == section);
        let same: Vec<String> = same.map(|(i, _)| format!("&packed[{i}]")).collect();
        let made = |out: &mut String, depth| {
            line(out, depth, &format!("let weight = {};", upload(section)));
            line(out, depth, &format!("packed.push({});", pack(module)));
        };
        if same.is_empty() {
            line(out, 3, "{");
            made(out, 4);
            line(out, 3, "}");
            continue;
        }
        line(out, 3, &format!("let same = super::{module}::ENTRY.share_weight(dev, &[{}]);", same.join(", ")));
        line(out, 3, "match same {");
        line(out, 4, "Some(same) => packed.push(same),");
        line(out, 4, "None => {");
        made(out, 5);
        line(out, 4, "}");
        line(out, 3, "}");
    }
}

/// What stands before each form of `run`.
const RUNS: &str = "/// Runs the network. On a GPU this queues its launches, which can be captured in a graph.";

fn run(out: &mut String, network: &NetworkModule, ports: &[Named<'_>]) {
    line(out, 2, RUNS);
    line(out, 2, "pub fn run(");
    line(out, 3, "&mut self,");
    line(out, 3, "dev: &Dev,");
    ports.iter().for_each(|named| line(out, 3, &parameter(named, &named.shape)));
    line(out, 2, &format!(") -> {RT}::Result<()> {{"));
    let plan = &network.plans[0];
    if let Some(most) = plan.apart {
        for Named { name, written, .. } in ports {
            let (arg, changes) = if *written { ("Output::arg_mut", "mut ") } else { ("Input::arg", "") };
            line(out, 3, &format!("let {changes}{name} = {RT}::{arg}({name}, dev);"));
        }
        each_image(out, network, plan, ports, &most.to_string());
    } else {
        launches(out, network, plan, &|place, written| match place {
            ArgPlace::Input(i) => format!("{RT}::Input::arg({}, dev)", ports[i].name),
            // It is borrowed already, for the caller.
            ArgPlace::Output(i) => own(&format!("*{}", ports[plan.inputs.len() + i].name), written),
            _ => unreachable!("others are the network's own"),
        });
    }
    line(out, 2, "}");
}

/// What runs the launches of a plan for each image. All ports are arguments by their names.
fn each_image(out: &mut String, network: &NetworkModule, plan: &PlanItem, ports: &[Named<'_>], images: &str) {
    let mut fields: Vec<String> = (0..network.constants.len()).map(|i| format!("constants{i}, ")).collect();
    if !network.weights.is_empty() {
        fields.insert(0, "packed, ".into());
    }
    line(out, 3, &format!("let Network {{ {}lanes, .. }} = self;", fields.concat()));
    let with = |named: &Named<'_>, apart: bool| {
        let again = if named.written { "again_mut" } else { "again" };
        format!("({}.{again}(), {apart})", named.name)
    };
    let given: Vec<String> = ports.iter().zip(plan.ports()).map(|(named, port)| with(named, port.apart)).collect();
    line(out, 3, &format!("lanes.run(dev, {images}, [{}], |dev, lane, args| {{", given.join(", ")));
    let args = plan.steps.iter().flat_map(|step| &step.args);
    let written: BTreeSet<usize> = args
        .filter_map(|arg| match arg.from {
            ArgPlace::Output(i) if arg.written => Some(plan.inputs.len() + i),
            _ => None,
        })
        .collect();
    let bound =
        |(i, named): (usize, &Named<'_>)| format!("{}{}", if written.contains(&i) { "mut " } else { "" }, named.name);
    let bound: Vec<String> = ports.iter().enumerate().map(bound).collect();
    line(out, 4, &format!("let [{}] = args;", bound.join(", ")));
    launches(out, network, plan, &|place, written| again(place, written, plan, ports));
    line(out, 3, "})");
}

/// A port that is an argument already, for one launch of several.
fn again(place: ArgPlace, written: bool, plan: &PlanItem, ports: &[Named<'_>]) -> String {
    match place {
        ArgPlace::Input(i) => format!("{}.again()", ports[i].name),
        ArgPlace::Output(i) => {
            let name = &ports[plan.inputs.len() + i].name;
            if written { format!("{name}.again_mut()") } else { format!("{name}.again()") }
        }
        _ => unreachable!("others are the network's own"),
    }
}

/// The trait that tuples of declared shapes implement.
fn shapes_trait(out: &mut String, network: &NetworkModule) {
    line(out, 1, "/// The shapes of inputs and results, in this order, that the network is made for.");
    line(out, 1, "#[diagnostic::on_unimplemented(");
    line(out, 2, &format!("message = \"`{}` is not made for these shapes\",", network.name));
    line(out, 2, "label = \"the spec has no such shapes\",");
    for plan in &network.plans {
        line(out, 2, &format!("note = {},", rust_literal(&format!("declared: {}", signature(plan)))));
    }
    line(out, 1, ")]");
    line(out, 1, "pub trait Shapes {");
    line(out, 2, "/// Which of the network's lists of shapes they are, and how many images there are.");
    line(out, 2, "#[doc(hidden)]");
    line(out, 2, "const PLAN: (usize, usize);");
    line(out, 1, "}");
    // Types with any number of images hold those with one: both are one implementation.
    let holder = |plan: &PlanItem| network.plans.iter().position(|other| other.units.is_some() && holds(other, plan));
    for (i, plan) in network.plans.iter().enumerate() {
        let tuple: String = plan.ports().map(|port| format!("{}, ", shape_of(port))).collect();
        match holder(plan) {
            None => {
                line(out, 1, &format!("impl Shapes for ({tuple}) {{"));
                line(out, 2, &format!("const PLAN: (usize, usize) = ({i}, 1);"));
            }
            Some(first) if first == i => {
                line(out, 1, &format!("impl<const UNITS: usize> Shapes for ({tuple}) {{"));
                line(out, 2, "const PLAN: (usize, usize) = match UNITS {");
                for (j, plan) in network.plans.iter().enumerate().filter(|(_, plan)| holder(plan) == Some(i)) {
                    match plan.units {
                        Some((least, most)) => line(out, 3, &format!("{least}..={most} => ({j}, UNITS),")),
                        None => line(out, 3, &format!("{} => ({j}, 1),", images(&network.plans[i], plan).unwrap_or(1))),
                    }
                }
                let name = &network.name;
                line(out, 3, &format!("_ => panic!(\"`{name}` is not made for this number of images\"),"));
                line(out, 2, "};");
            }
            Some(_) => continue,
        }
        line(out, 1, "}");
    }
}

/// How many images a plan has by the ports of another, if its ports differ from that's in nothing else.
fn images(ranged: &PlanItem, plan: &PlanItem) -> Option<i64> {
    let mut found = None;
    let ports = |plan: &PlanItem| plan.ports().map(|port| port.shape.clone()).collect::<Vec<_>>();
    let varies = ranged.ports().map(|port| port.varies);
    for ((of, shape), varies) in ports(ranged).iter().zip(&ports(plan)).zip(varies) {
        let fixed = usize::from(varies);
        if of.len() != shape.len()
            || of[fixed..] != shape[fixed..]
            || varies && *found.get_or_insert(shape[0]) != shape[0]
        {
            return None;
        }
    }
    found
}

/// Whether the types of a plan's shapes are those of another with some number of images, or with any if both have a range. (What varies
/// in one of two ranges alone, the spec has refused.)
fn holds(ranged: &PlanItem, plan: &PlanItem) -> bool {
    let varies = |plan: &PlanItem| plan.ports().map(|port| port.varies).collect::<Vec<_>>();
    images(ranged, plan).is_some() && (plan.units.is_none() || varies(ranged) == varies(plan))
}

/// The forms of `run` of a network whose shapes vary, and the launches of each plan.
fn run_of_shapes(out: &mut String, network: &NetworkModule, ports: &[Named<'_>]) {
    let (types, bounds): (Vec<String>, Vec<String>) =
        (0..ports.len()).map(|i| (format!("S{i}, "), format!("S{i}: {RT}::Shape"))).unzip();
    let names: Vec<&str> = ports.iter().map(|named| named.name.as_str()).collect();
    let arguments = names.join(", ");
    line(out, 2, RUNS);
    line(out, 2, &format!("pub fn run<{}>(", bounds.join(", ")));
    line(out, 3, "&mut self,");
    line(out, 3, "dev: &Dev,");
    ports.iter().enumerate().for_each(|(i, named)| line(out, 3, &parameter(named, &format!("S{i}"))));
    line(out, 2, &format!(") -> {RT}::Result<()>"));
    line(out, 2, "where");
    line(out, 3, &format!("({}): Shapes,", types.concat()));
    line(out, 2, "{");
    line(out, 3, &format!("let (plan, units) = const {{ <({}) as Shapes>::PLAN }};", types.concat()));
    for Named { name, written, .. } in ports {
        let arg = if *written { "Output::arg_mut" } else { "Input::arg" };
        line(out, 3, &format!("let {name} = {RT}::{arg}({name}, dev);"));
    }
    line(out, 3, &format!("self.launch(dev, plan, units, {arguments})"));
    line(out, 2, "}");
    line(out, 0, "");
    line(out, 2, "/// The same with shapes that are known at run time only.");
    line(out, 2, "///");
    line(out, 2, "/// # Errors");
    line(
        out,
        2,
        "/// If the network is not made for these shapes, the error lists those that it is made for. No images are no work.",
    );
    line(out, 2, "pub fn run_dyn<'a>(");
    line(out, 3, "&mut self,");
    line(out, 3, "dev: &'a Dev,");
    for Named { port, name, written, .. } in ports {
        let view = if *written { "DynViewMut" } else { "DynView" };
        line(out, 3, &format!("{name}: Dev::{view}<'a, {}>,", element_type(port.dtype)));
    }
    line(out, 2, &format!(") -> {RT}::Result<()> {{"));
    let args: Vec<String> = ports
        .iter()
        .map(|Named { name, written, .. }| format!("dev.{}({name})?", if *written { "write_arg" } else { "read_arg" }))
        .collect();
    line(out, 3, &format!("let args = [{}];", args.join(", ")));
    line(out, 3, &format!("let (plan, units) = {RT}::network::find({}, PLANS, &args)?;", rust_literal(&network.name)));
    line(out, 3, &format!("let [{arguments}] = args.map({RT}::dispatch::DynArg::into_arg);"));
    line(out, 3, &format!("self.launch(dev, plan, units, {arguments})"));
    line(out, 2, "}");
    line(out, 0, "");
    let parameters = |changed: &dyn Fn(usize) -> bool| -> String {
        let parameter = |(i, named): (usize, &Named<'_>)| {
            format!("{}{}: {RT}::dispatch::Arg<'_, Dev>", if changed(i) { "mut " } else { "" }, named.name)
        };
        ports.iter().enumerate().map(parameter).collect::<Vec<_>>().join(", ")
    };
    let result = format!("-> {RT}::Result<()>");
    let given = parameters(&|_| false);
    line(out, 2, &format!("fn launch(&mut self, dev: &Dev, plan: usize, units: usize, {given}) {result} {{"));
    line(out, 3, "if units == 0 {");
    line(out, 4, "return Ok(());");
    line(out, 3, "}");
    line(out, 3, "match plan {");
    let units_of = |plan: &PlanItem| if plan.units.is_some() { "units, " } else { "" };
    for (i, plan) in network.plans.iter().enumerate() {
        let number = if i + 1 == network.plans.len() { "_".to_string() } else { i.to_string() };
        line(out, 4, &format!("{number} => self.plan{i}(dev, {}{arguments}),", units_of(plan)));
    }
    line(out, 3, "}");
    line(out, 2, "}");
    for (i, plan) in network.plans.iter().enumerate() {
        let args = || plan.steps.iter().flat_map(|step| &step.args);
        let is_output =
            |arg: &ArgItem, port: usize| matches!(arg.from, ArgPlace::Output(o) if plan.inputs.len() + o == port);
        let changed = parameters(&|port| match plan.apart {
            Some(_) => ports[port].written,
            None => args().any(|arg| arg.written && is_output(arg, port)),
        });
        let units = if plan.units.is_some() { "units: usize, " } else { "" };
        line(out, 0, "");
        line(out, 2, &format!("fn plan{i}(&mut self, dev: &Dev, {units}{changed}) {result} {{"));
        match plan.apart {
            Some(most) => {
                let images = if plan.units.is_some() { "units".to_string() } else { most.to_string() };
                each_image(out, network, plan, ports, &images);
            }
            None => launches(out, network, plan, &|place, written| again(place, written, plan, ports)),
        }
        line(out, 2, "}");
    }
}

/// A parameter of `run`.
fn parameter(Named { port, name, written, .. }: &Named<'_>, shape: &str) -> String {
    let (reference, buffer) = if *written { ("&mut ", "Output") } else { ("&", "Input") };
    format!("{name}: {reference}impl {RT}::{buffer}<Dev, Elem = {}, Shape = {shape}>,", element_type(port.dtype))
}

/// The launches of a plan. `ported` writes an input or a result as an argument, which is written or not.
fn launches(out: &mut String, network: &NetworkModule, plan: &PlanItem, ported: &dyn Fn(ArgPlace, bool) -> String) {
    let depth = if plan.apart.is_some() { 4 } else { 3 };
    for (i, step) in plan.steps.iter().enumerate() {
        line(out, depth, &format!("// Step {i}: {}.", comment(&step.nodes.join(", "))));
        line(out, depth, &format!("super::{}::ENTRY.launch(dev, &[", step.module));
        for arg in &step.args {
            line(out, depth + 1, &format!("{},", argument(network, plan, arg, ported)));
        }
        line(out, depth, "])?;");
    }
    line(out, depth, "Ok(())");
}

/// What lists the launches with their kernels, and the shapes of each plan.
fn report(out: &mut String, network: &NetworkModule) {
    let steps = |out: &mut String, plan: &PlanItem, end: &str| {
        line(out, 2, &format!("{RT}::network::Steps::new(dev, &super::report(), &["));
        for step in &plan.steps {
            let (nodes, module) = (rust_literal(&step.nodes.join(", ")), rust_literal(&step.module));
            line(out, 3, &format!("({nodes}, {module}),"));
        }
        line(out, 2, &format!("]){end}"));
    };
    let what = "/// The launches in order, each with the kernel that this device runs, where that comes from, and its expected time.";
    line(out, 1, what);
    if let [plan] = &network.plans[..] {
        line(out, 1, &format!("pub fn report<Dev: {RT}::Device>(dev: &Dev) -> {RT}::network::Steps {{"));
        steps(out, plan, "");
        line(out, 1, "}");
    } else {
        line(out, 1, "/// One list for each list of shapes, in the spec's order.");
        line(out, 1, &format!("pub fn report<Dev: {RT}::Device>(dev: &Dev) -> Vec<{RT}::network::Steps> {{"));
        line(out, 2, "vec![");
        network.plans.iter().for_each(|plan| steps(out, plan, ","));
        line(out, 2, "]");
        line(out, 1, "}");
    }
    if matches!(&network.plans[..], [PlanItem { units: None, .. }]) {
        return;
    }
    line(out, 0, "");
    line(out, 1, &format!("const PLANS: &[{RT}::network::Plan] = &["));
    for plan in &network.plans {
        let (least, most) = plan.units.unwrap_or((1, 1));
        line(out, 2, &format!("{RT}::network::Plan {{ least: {least}, most: {most}, ports: &["));
        for port in plan.ports() {
            let (name, shape) = (rust_literal(&port.name), &port.shape);
            line(
                out,
                3,
                &format!("{RT}::network::Port {{ name: {name}, shape: &{shape:?}, varies: {} }},", port.varies),
            );
        }
        line(out, 2, "] },");
    }
    line(out, 1, "];");
}

/// A tensor of the network as an argument.
fn own(name: &str, written: bool) -> String {
    if written { format!("{RT}::Output::arg_mut(&mut {name}, dev)") } else { format!("{RT}::Input::arg(&{name}, dev)") }
}

/// An argument as an expression.
fn argument(
    network: &NetworkModule,
    plan: &PlanItem,
    arg: &ArgItem,
    ported: &dyn Fn(ArgPlace, bool) -> String,
) -> String {
    let ((held_by, behind), (slots_of, slots)) = match plan.apart {
        Some(_) => (("", "*"), ("lane", &network.lane)),
        None => (("self.", ""), ("self", &network.slots)),
    };
    let (place, offset, held) = match arg.from {
        ArgPlace::Packed(i) => return format!("dev.packed_arg(&{held_by}packed[{i}])"),
        ArgPlace::Input(i) => (ported(arg.from, false), 0, plan.inputs[i].elements()),
        ArgPlace::Output(i) => (ported(arg.from, arg.written), 0, plan.outputs[i].elements()),
        ArgPlace::Slot(i) => (own(&format!("{slots_of}.slot{i}"), arg.written), 0, slots[i].1),
        ArgPlace::Constant(i, offset) => {
            (own(&format!("{behind}{held_by}constants{i}"), arg.written), offset, network.constants[i].elements)
        }
    };
    let offset = offset + arg.at;
    match arg.varies {
        true => format!("{place}.part({offset}, {} * units)", arg.elements),
        false if (offset, arg.elements) == (0, held) => place,
        false => format!("{place}.part({offset}, {})", arg.elements),
    }
}
