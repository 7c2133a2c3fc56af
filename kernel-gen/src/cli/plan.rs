//! What `kernel-gen explain` says of a network: its passes, its memory, and its launches on each target.

use super::output::{Failure, Output, json_text};
use super::project::{Project, chosen_json, word};
use crate::network::{Network, Plan};
use crate::spec::NetworkSpec;
use crate::target::Target;
use crate::templates::Registry;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// The plans of a network on targets, as text or as JSON. It fails where a workload gets no kernel.
pub(super) fn explain(
    registry: &Registry,
    project: &Project,
    spec: &NetworkSpec,
    targets: &[&Target],
    as_json: bool,
) -> Result<Output, Failure> {
    let network = &spec.network;
    let choices = |target: &&Target| -> Vec<Json> {
        network.tasks.iter().map(|task| chosen_json(registry, project, &task.workload, target)).collect()
    };
    let choices: Vec<Vec<Json>> = targets.iter().map(choices).collect();
    let success = choices.iter().flatten().all(Json::is_object);
    let plan = |plan: &Plan| {
        let on_targets =
            targets.iter().zip(&choices).map(|(target, choices)| on_target(network, plan, target, choices));
        let program = &plan.program;
        let shapes = program.inputs.iter().map(|(name, id)| (name.clone(), json!(program.values[*id].shape)));
        json!({
            "inputs": shapes.collect::<serde_json::Map<String, Json>>(),
            "units": plan.units.as_ref().map(|units| [units.least, units.most]),
            "one_by_one": plan.apart.as_ref().map(|apart| [apart.least, apart.most]),
            "passes": plan.passes,
            "launches": program.steps.len(),
            "slots": plan.memory.slots.len(),
            "memory_bytes": plan.memory.bytes(),
            "targets": on_targets.collect::<Vec<Json>>(),
        })
    };
    let plans = json!({
        "network": spec.name,
        "model": spec.model.display().to_string(),
        "workloads": network.tasks.len(),
        "plans": network.plans.iter().map(plan).collect::<Vec<Json>>(),
    });
    let text = if as_json { json_text(&plans) } else { describe(&plans) };
    Ok(Output { text, errors: vec![], success })
}

fn on_target(network: &Network, plan: &Plan, target: &Target, choices: &[Json]) -> Json {
    let steps = plan.program.steps.iter().zip(&plan.step_tasks).map(|(step, task)| {
        json!({
            "nodes": step.nodes,
            "task": network.tasks[*task].name,
            "workload": step.workload.key(),
            "choice": choices[*task],
        })
    });
    let steps: Vec<Json> = steps.collect();
    let sum: f64 = steps.iter().filter_map(|step| step["choice"]["time_us"].as_f64()).sum();
    json!({ "target": target.name, "steps": steps, "sum_us": sum })
}

fn describe(plans: &Json) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "{} of {}: {} workloads", word(&plans["network"]), word(&plans["model"]), plans["workloads"]);
    for plan in plans["plans"].as_array().into_iter().flatten() {
        describe_plan(&mut text, plan);
    }
    text
}

fn describe_plan(text: &mut String, plan: &Json) {
    let inputs = plan["inputs"].as_object().into_iter().flatten().map(|(name, shape)| format!("{name} {shape}"));
    let units = match (&plan["units"], &plan["one_by_one"]) {
        (Json::Null, Json::Null) => String::new(),
        (Json::Null, images) if images[0] == images[1] => format!(", {} images one by one", images[0]),
        (Json::Null, images) => format!(", {} to {} images one by one", images[0], images[1]),
        (units, _) => format!(", {} to {} images (each step as for {1} alone)", units[0], units[1]),
    };
    let inputs: Vec<String> = inputs.collect();
    let _ = writeln!(text, "{}{units}: {} launches", inputs.join(", "), plan["launches"]);
    for pass in plan["passes"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "  {}", word(pass));
    }
    let kib = plan["memory_bytes"].as_f64().unwrap_or(0.0) / 1024.0;
    let _ = writeln!(text, "  memory between launches: {kib:.1} KiB in {} slots", plan["slots"]);
    for target in plan["targets"].as_array().into_iter().flatten() {
        let sum = target["sum_us"].as_f64().unwrap_or(0.0);
        let _ = writeln!(text, "\n{}: {sum:.1} us expected", word(&target["target"]));
        for (i, step) in target["steps"].as_array().into_iter().flatten().enumerate() {
            let choice = &step["choice"];
            let kernel = match choice["time_us"].as_f64() {
                Some(us) => format!("{us:9.1} us  {:18} {}", word(&choice["template"]), word(&choice["origin"])),
                None if choice.is_object() => {
                    format!("{:>12}  {:18} {}", "?", word(&choice["template"]), word(&choice["origin"]))
                }
                None => format!("no kernel: {}", word(choice)),
            };
            let nodes: Vec<&str> = step["nodes"].as_array().into_iter().flatten().map(word).collect();
            let _ = writeln!(text, "  {i:4}  {kernel:44}  {}  ({})", word(&step["workload"]), nodes.join(", "));
        }
    }
}
