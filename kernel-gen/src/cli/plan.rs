//! What `kernel-gen explain` says of a network: its passes, its memory, and its launches on each target.

use super::output::{Failure, Output, json_text};
use super::project::{Project, chosen_json};
use crate::spec::NetworkSpec;
use crate::target::Target;
use crate::templates::Registry;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// The plan of a network on targets, as text or as JSON. It fails where a workload gets no kernel.
pub(super) fn explain(
    registry: &Registry,
    project: &Project,
    spec: &NetworkSpec,
    targets: &[&Target],
    as_json: bool,
) -> Result<Output, Failure> {
    let network = &spec.network;
    let on_targets: Vec<Json> = targets.iter().map(|target| on_target(registry, project, spec, target)).collect();
    let success =
        on_targets.iter().all(|t| t["steps"].as_array().is_some_and(|all| all.iter().all(|s| s["choice"].is_object())));
    let plan = json!({
        "network": spec.name,
        "model": spec.model.display().to_string(),
        "passes": network.passes,
        "launches": network.program.steps.len(),
        "workloads": network.tasks.len(),
        "slots": network.memory.slots.len(),
        "memory_bytes": network.memory.bytes(),
        "targets": on_targets,
    });
    let text = if as_json { json_text(&plan) } else { describe(&plan) };
    Ok(Output { text, errors: vec![], success })
}

fn on_target(registry: &Registry, project: &Project, spec: &NetworkSpec, target: &Target) -> Json {
    let network = &spec.network;
    let tasks = network.tasks.iter();
    let choices: Vec<Json> = tasks.map(|task| chosen_json(registry, project, &task.workload, target)).collect();
    let steps = network.program.steps.iter().zip(&network.step_tasks).map(|(step, task)| {
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

fn describe(plan: &Json) -> String {
    let word = |json: &Json| json.as_str().unwrap_or_default().to_string();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let (launches, workloads) = (&plan["launches"], &plan["workloads"]);
    let _ = writeln!(
        text,
        "{} of {}: {launches} launches, {workloads} workloads",
        word(&plan["network"]),
        word(&plan["model"])
    );
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
            let nodes: Vec<String> = step["nodes"].as_array().into_iter().flatten().map(word).collect();
            let _ = writeln!(text, "  {i:4}  {kernel:44}  {}  ({})", word(&step["workload"]), nodes.join(", "));
        }
    }
    text
}
