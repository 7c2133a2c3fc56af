//! `kernel-gen explain`: what is chosen for a workload, where that comes from, and what else there was.

use super::output::{Failure, Output, json_text};
use super::plan;
use super::project::{Files, Project, chosen_json, config_json, target, word};
use crate::model::default_of;
use crate::target::Target;
use crate::templates::Registry;
use crate::workload::Workload;
use clap::Args;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// Says which template and config a workload gets on each target, and why
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// A workload's name in the spec, a kernel's or a network's name, or a workload's key
    workload: String,
    /// Only this target
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    #[command(flatten)]
    files: Files,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let (files, name) = arguments.files.beside(&arguments.workload)?;
    let project = Project::load(&files)?;
    let targets = match &arguments.target {
        Some(name) => vec![target(&project, Some(name))?],
        None => project.targets(std::env::consts::ARCH),
    };
    let mut networks = project.spec.iter().flat_map(|spec| &spec.networks);
    if let Some(network) = networks.find(|network| network.name == name) {
        return plan::explain(registry, &project, network, &targets, arguments.json);
    }
    let workload = project.workload(&name)?;
    let all: Vec<Json> = targets.iter().map(|t| on_target(registry, &project, &workload, t)).collect();
    let intensity = workload.flops() as f64 / workload.bytes().max(1) as f64;
    let chosen = all.iter().all(|t| t["choice"].is_object());
    let text = if arguments.json {
        json_text(&json!({
            "workload": workload.key(),
            "flops": workload.flops(),
            "bytes": workload.bytes(),
            "flops_per_byte": intensity,
            "targets": all,
        }))
    } else {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", workload.key());
        let _ = writeln!(
            text,
            "  {:.3} MFLOP, at least {:.3} MB to move, {intensity:.1} FLOP a byte",
            workload.flops() as f64 / 1e6,
            workload.bytes() as f64 / 1e6,
        );
        all.iter().for_each(|t| describe(t, &mut text));
        text
    };
    Ok(Output { text, errors: vec![], success: chosen })
}

fn on_target(registry: &Registry, project: &Project, workload: &Workload, target: &Target) -> Json {
    let choice = chosen_json(registry, project, workload, target);
    let templates: Vec<Json> = registry
        .iter()
        .map(|template| {
            let (name, version) = (template.name(), template.version());
            let default = template
                .admits(workload, target)
                .and_then(|()| default_of(template, workload, target).unwrap_or_else(|error| Err(error.to_string())));
            match default {
                Err(reason) => json!({ "name": name, "version": version, "does_not_apply": reason }),
                Ok(c) => json!({
                    "name": name, "version": version, "predicted_us": c.predicted_us, "default": config_json(&c.config),
                }),
            }
        })
        .collect();
    json!({ "target": target.name, "choice": choice, "templates": templates })
}

fn describe(target: &Json, text: &mut String) {
    let _ = writeln!(text, "\n{}", word(&target["target"]));
    let choice = &target["choice"];
    if choice.is_object() {
        let config = &choice["config"];
        let _ = writeln!(text, "  template  {}", word(&choice["template"]));
        let _ = writeln!(text, "  config    {} (id {})", word(&config["text"]), word(&config["id"]));
        let _ = writeln!(text, "  origin    {}", word(&choice["origin_text"]));
        if let Some(passed_over) = choice["passed_over"].as_str() {
            let _ = writeln!(text, "  not       {passed_over}");
        }
        for refusal in choice["refused"].as_array().into_iter().flatten() {
            let _ = writeln!(text, "  refused   {}", word(refusal));
        }
    } else {
        let _ = writeln!(text, "  no choice: {}", word(choice));
    }
    // What templates say of a target that is not of their kind.
    let is_other =
        |template: &&Json| matches!(template["does_not_apply"].as_str(), Some("for CPUs" | "for CUDA devices"));
    let (others, own): (Vec<&Json>, Vec<&Json>) =
        target["templates"].as_array().into_iter().flatten().partition(is_other);
    for template in own {
        let name = format!("{} v{}", word(&template["name"]), template["version"]);
        let what = match template["does_not_apply"].as_str() {
            Some(reason) => format!("does not apply: {reason}"),
            None => {
                let us = template["predicted_us"].as_f64().unwrap_or(f64::NAN);
                format!("{us:10.1} us predicted for {}", word(&template["default"]["text"]))
            }
        };
        let _ = writeln!(text, "  - {name:24} {what}");
    }
    if !others.is_empty() {
        let _ = writeln!(text, "  - {} templates for other devices", others.len());
    }
}
