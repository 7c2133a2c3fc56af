//! The templates' defaults for a workload, by predicted time.

use super::error::{ModelError, failed};
use super::options::Options;
use crate::space::Config;
use crate::target::Target;
use crate::templates::{Registry, Template};
use crate::workload::Workload;

/// A template's default for a workload, with the time that it predicts.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// The template's name.
    pub template: String,
    /// Its default config, as its space writes it.
    pub config: Config,
    /// The predicted time.
    pub predicted_us: f64,
}

/// The default of every template that applies and has one, cheapest first: what [`choose`](super::choose()) compares when there is no record.
pub fn candidates(registry: &Registry, workload: &Workload, target: &Target) -> Result<Vec<Candidate>, ModelError> {
    let templates = templates_for(registry, workload, target, &Options::default())?;
    let defaults = templates.into_iter().map(|t| default_of(t, workload, target));
    let mut all: Vec<Candidate> = defaults.filter_map(|d| d.ok().and_then(Result::ok)).collect();
    all.sort_by(|a, b| a.predicted_us.total_cmp(&b.predicted_us));
    Ok(all)
}

/// A template's default, or why it has none: no config of it is within the target's limits.
pub(crate) fn default_of(
    template: &dyn Template,
    workload: &Workload,
    target: &Target,
) -> Result<Result<Candidate, String>, ModelError> {
    let space = template.space(workload, target).map_err(|e| failed(template, workload, e))?;
    let config = match template.default_config(workload, target) {
        // A default outside its own space would be a choice that no record and no tuner can ever express.
        Ok(config) => space.normalise(&config).map_err(|e| failed(template, workload, e))?,
        Err(error) if error.is_of_limits() => return Ok(Err(error.to_string())),
        Err(error) => return Err(failed(template, workload, error)),
    };
    let predicted_us = template.cost(workload, target, &config);
    Ok(Ok(Candidate { template: template.name().to_string(), config, predicted_us }))
}

/// The default with the least predicted time; who has none, and why, goes into `reasons`. Templates made by rules are asked
/// only where it would be a last resort.
pub(super) fn cheapest(
    templates: &[&dyn Template],
    workload: &Workload,
    target: &Target,
    reasons: &mut Vec<(String, String)>,
    defects: &mut Vec<ModelError>,
) -> Option<Candidate> {
    let (by_rules, by_hand): (Vec<&dyn Template>, Vec<&dyn Template>) =
        templates.iter().partition(|t| BY_RULES.contains(&t.name()));
    let best = cheaper(None, &by_hand, workload, target, reasons, defects);
    if best.as_ref().is_some_and(|b| !LAST_RESORTS.contains(&b.template.as_str())) {
        return best;
    }
    cheaper(best, &by_rules, workload, target, reasons, defects)
}

/// The cheapest of `best` and the defaults of templates; of equally cheap ones the first.
fn cheaper(
    mut best: Option<Candidate>,
    templates: &[&dyn Template],
    workload: &Workload,
    target: &Target,
    reasons: &mut Vec<(String, String)>,
    defects: &mut Vec<ModelError>,
) -> Option<Candidate> {
    for template in templates {
        match default_of(*template, workload, target) {
            Ok(Ok(candidate)) => {
                if best.as_ref().is_none_or(|b| candidate.predicted_us.total_cmp(&b.predicted_us).is_lt()) {
                    best = Some(candidate);
                }
            }
            Ok(Err(reason)) => reasons.push((template.name().to_string(), reason)),
            Err(defect) => defects.push(defect),
        }
    }
    best
}

/// The templates that run every workload.
pub(super) const LAST_RESORTS: [&str; 2] = ["plain", "plain_cuda"];

/// The templates whose schedules are derived by rules. Their costs know loops and not machines as well as those of a template
/// that was made for an operator, so without a record they take the place of a last resort only.
pub(super) const BY_RULES: [&str; 2] = ["sketch", "sketch_cuda"];

/// The templates that can run a workload on a target, of those that the options allow.
pub(super) fn templates_for<'a>(
    registry: &'a Registry,
    workload: &Workload,
    target: &Target,
    options: &Options,
) -> Result<Vec<&'a dyn Template>, ModelError> {
    let mut able = vec![];
    let mut reasons = vec![];
    for template in registry.iter() {
        if options.template.as_ref().is_some_and(|wanted| wanted != template.name()) {
            continue;
        }
        match template.admits(workload, target) {
            Ok(()) => able.push(template),
            Err(reason) => reasons.push((template.name().to_string(), reason)),
        }
    }
    if able.is_empty() {
        return Err(ModelError::NoTemplate { workload: workload.key(), target: target.name.clone(), reasons });
    }
    Ok(able)
}
