//! The choice itself: a record, what records of other shapes teach, or the cheapest default.

use super::defaults::{Candidate, cheapest, templates_for};
use super::error::ModelError;
use super::options::Options;
use super::recorded::recorded;
use super::transfer;
use crate::records::{BestRecords, Choice, Found, Lookup, Origin, PassedOver, Unusable};
use crate::space::Config;
use crate::target::Target;
use crate::templates::{Registry, Template};
use crate::workload::Workload;

/// Chooses a template and a config. See [`model`](super) for the order. A template that fails on the workload is passed
/// over if there is another one.
pub fn choose(
    registry: &Registry,
    workload: &Workload,
    target: &Target,
    records: &BestRecords,
    options: &Options,
) -> Result<Choice, ModelError> {
    let mut defects = vec![];
    let choice = choose_usable(registry, workload, target, records, options, &mut defects)?;
    let mut all: Vec<Unusable> = defects.iter().filter_map(unusable).collect();
    all.dedup();
    Ok(Choice { unusable: all, ..choice })
}

/// The same; what templates fail on goes into `defects`.
fn choose_usable(
    registry: &Registry,
    workload: &Workload,
    target: &Target,
    records: &BestRecords,
    options: &Options,
    defects: &mut Vec<ModelError>,
) -> Result<Choice, ModelError> {
    let templates = templates_for(registry, workload, target, options)?;
    let Lookup { found, refusals } = recorded(&templates, workload, target, records, options, defects);
    let of_record = |found: Found, refusals| {
        let Found { record, config, origin } = found;
        Choice { template: record.template, config, origin, refusals, passed_over: None, unusable: vec![] }
    };
    let foreign = match found {
        // Whoever denies fallbacks wants what was measured somewhere, whatever a model says of it.
        Some(found) if !found.origin.is_foreign() || options.deny_fallback => return Ok(of_record(found, refusals)),
        other => other,
    };
    if options.deny_fallback {
        return Err(ModelError::NoRecord { workload: workload.key(), target: target.name.clone(), refusals });
    }
    let unrecorded = unrecorded(&templates, workload, target, records, options, defects);
    let Some(found) = foreign else {
        let Unrecorded { template, config, origin } = unrecorded?;
        return Ok(Choice { template, config, origin, refusals, passed_over: None, unusable: vec![] });
    };
    // Where nothing else can be had, the record is not held against anything.
    let Ok(Unrecorded { template, config, origin }) = unrecorded else { return Ok(of_record(found, refusals)) };
    let default = (template.as_str(), &config);
    Ok(match beaten_by_default(registry, workload, target, &found, default) {
        None => of_record(found, refusals),
        Some((predicted_us, default_us)) => {
            let Found { record, origin: of, .. } = found;
            let passed_over = PassedOver { template: record.template, origin: of, predicted_us, default_us };
            Choice { template, config, origin, refusals, passed_over: Some(passed_over), unusable: vec![] }
        }
    })
}

/// What is chosen where there is no record of the workload.
struct Unrecorded {
    template: String,
    config: Config,
    origin: Origin,
}

fn unrecorded(
    templates: &[&dyn Template],
    workload: &Workload,
    target: &Target,
    records: &BestRecords,
    options: &Options,
    defects: &mut Vec<ModelError>,
) -> Result<Unrecorded, ModelError> {
    if let Some(found) = transfer::learned(templates, workload, target, records, options, defects) {
        let transfer::Learned { template, config, predicted_us, records } = found;
        return Ok(Unrecorded { template, config, origin: Origin::Model { predicted_us, records } });
    }
    let mut reasons = vec![];
    match cheapest(templates, workload, target, &mut reasons, defects) {
        Some(Candidate { template, config, predicted_us }) => {
            Ok(Unrecorded { template, config, origin: Origin::Analytic { predicted_us } })
        }
        None => Err(defects.first().cloned().unwrap_or_else(|| ModelError::NoTemplate {
            workload: workload.key(),
            target: target.name.clone(),
            reasons,
        })),
    }
}

/// By how much more a model may hold against a record of another target than it did on the record's own.
const FOREIGN_SLACK: f64 = 1.05;

/// The predictions of a record of another target and of the default, if the default is to be preferred.
///
/// On its own target the record was measured to be the best, whatever the model expected there. Where the model holds no more
/// against it here than it did there, it is believed here too; where it does, the targets differ in what counts: a config for
/// vectors of half the width, say, that another default uses in full.
fn beaten_by_default(
    registry: &Registry,
    workload: &Workload,
    target: &Target,
    found: &Found,
    (template, config): (&str, &Config),
) -> Option<(f64, f64)> {
    let of_record = registry.find(&found.record.template)?;
    let of_default = registry.find(template)?;
    let here = (of_record.cost(workload, target, &found.config), of_default.cost(workload, target, config));
    let there = Target::find(&found.record.target).and_then(|there| {
        let able: Vec<&dyn Template> = registry.iter().filter(|t| t.admits(workload, there).is_ok()).collect();
        let default = cheapest(&able, workload, there, &mut vec![], &mut vec![])?;
        Some(of_record.cost(workload, there, &found.config) / default.predicted_us)
    });
    // A default that is faster there than the record was a fault of the model, which says as much here.
    let there = there.filter(|ratio| ratio.is_finite()).unwrap_or(1.0).max(1.0);
    let beaten = here.0 > here.1 * there * FOREIGN_SLACK || !here.0.is_finite();
    beaten.then_some(here)
}

fn unusable(defect: &ModelError) -> Option<Unusable> {
    match defect {
        ModelError::Template { template, error, .. } => {
            Some(Unusable { choice: template.clone(), reason: error.to_string() })
        }
        _ => None,
    }
}
