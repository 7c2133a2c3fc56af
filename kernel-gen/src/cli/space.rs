//! `kernel-gen space`: the choices that templates offer for a workload.

use super::output::{Failure, Output, json_text};
use super::project::{Files, Project, config_json, target};
use crate::space::{Config, Space};
use crate::templates::{Registry, Template};
use clap::Args;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// Prints the config space of each template that can run a workload
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// A workload's name in the spec, a kernel's name, or a workload's key
    workload: String,
    /// Only this template
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Target [default: the best of this machine's architecture that the spec asks for]
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Print the config at this index as well
    #[arg(long, value_name = "N")]
    index: Option<u64>,
    /// Say the index of this config, or why it is not in the space: "tile=8 order=(0,1)"
    #[arg(long, value_name = "CONFIG")]
    config: Option<String>,
    /// Print this many random configs as well
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    sample: usize,
    /// Seed of the random configs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    files: Files,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let (files, name) = arguments.files.beside(&arguments.workload)?;
    let project = Project::load(&files)?;
    let workload = project.workload(&name)?;
    let target = target(&project, arguments.target.as_deref())?;
    let templates: Vec<&dyn Template> = match &arguments.template {
        Some(name) => {
            let template = find_template(registry, name)?;
            template.admits(&workload, target).map_err(|why| format!("the template {name} does not apply: {why}"))?;
            vec![template]
        }
        None => registry.applicable(&workload, target).collect(),
    };
    if templates.is_empty() {
        return Err(format!("no template can run {} on {}", workload.key(), target.name).into());
    }
    let wanted = arguments.config.as_deref().map(Config::parse).transpose()?;
    let mut all = vec![];
    let mut text = String::new();
    for template in templates {
        let space = template.space(&workload, target)?;
        let default = space.normalise(&template.default_config(&workload, target)?)?;
        let entry = |index: u64, config: &Config| json!({ "index": index, "config": config_json(config) });
        let default = entry(space.index_of(&default)?, &default);
        let mut picked = vec![];
        if let Some(index) = arguments.index {
            let config = space.get(index).ok_or_else(|| no_config(&space, index))?;
            picked.push(entry(index, &config));
        }
        if let Some(config) = &wanted {
            let index = space.index_of(config)?;
            picked.push(entry(index, &space.normalise(config)?));
        }
        picked.extend(space.sample(arguments.seed).take(arguments.sample).map(|(i, c)| entry(i, &c)));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} v{} on {}", template.name(), template.version(), target.name);
        let _ = writeln!(text, "{space}");
        for constraint in space.constraints() {
            let _ = writeln!(text, "where {constraint}");
        }
        let _ = writeln!(text, "fingerprint {}", space.fingerprint());
        let line = |e: &Json| format!("{} {}", e["index"], e["config"]["text"].as_str().unwrap_or_default());
        let _ = writeln!(text, "default {}", line(&default));
        for pick in &picked {
            let _ = writeln!(text, "config {}", line(pick));
        }
        text.push('\n');
        all.push(json!({
            "template": template.name(),
            "version": template.version(),
            "fingerprint": space.fingerprint().to_string(),
            "range_len": space.range_len(),
            "len": space.estimated_len(),
            "knobs": space.knobs().map(|(name, knob)| json!({
                "name": name, "kind": knob.kind(), "len": knob.len(), "text": knob.to_string(),
            })).collect::<Vec<_>>(),
            "constraints": space.constraints().collect::<Vec<_>>(),
            "default": default,
            "configs": picked,
        }));
    }
    let json = json!({ "workload": workload.key(), "target": target.name, "templates": all });
    Ok(Output::success(if arguments.json { json_text(&json) } else { text.trim_end().to_string() + "\n" }))
}

/// The template of that name, or the names there are.
pub(super) fn find_template<'a>(registry: &'a Registry, name: &str) -> Result<&'a dyn Template, Failure> {
    registry.find(name).ok_or_else(|| {
        let all: Vec<&str> = registry.iter().map(|t| t.name()).collect();
        let list = if all.is_empty() { "none is registered".to_string() } else { all.join(", ") };
        format!("there is no template `{name}`; the templates: {list}").into()
    })
}

fn no_config(space: &Space, index: u64) -> Failure {
    match space.refused_by(index) {
        Some(constraint) => format!("the config at index {index} breaks the constraint `{constraint}`").into(),
        None => format!("the space has the indices 0 to {}, not {index}", space.range_len() - 1).into(),
    }
}
