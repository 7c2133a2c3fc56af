//! What takes the place of a choice that cannot be carried out.

use super::defaults::{BY_RULES, Candidate, LAST_RESORTS, default_of, templates_for};
use super::options::Options;
use crate::records::{Choice, Origin};
use crate::space::Config;
use crate::target::Target;
use crate::templates::{Registry, Template};
use crate::workload::Workload;

/// What may take the place of a choice that cannot be carried out, the best first: the default of its template and the
/// cheapest of a few other configs, then the defaults of the other templates, cheapest first, and at the end all configs of
/// the templates that run everything.
pub fn instead_of<'a>(
    refused: &Choice,
    registry: &'a Registry,
    workload: &'a Workload,
    target: &'a Target,
    options: &Options,
) -> impl Iterator<Item = Choice> + use<'a> {
    /// Configs that are drawn from the space of the refused template, and those of them that are tried.
    const DRAWN: usize = 64;
    const LOOKED_AT: u64 = 10_000;
    const TRIED: usize = 3;
    let templates = templates_for(registry, workload, target, options).unwrap_or_default();
    let priced = |template: &dyn Template, config: Config| Candidate {
        predicted_us: template.cost(workload, target, &config),
        template: template.name().to_string(),
        config,
    };
    let sort = |all: &mut Vec<Candidate>| all.sort_by(|a, b| a.predicted_us.total_cmp(&b.predicted_us));
    let mut all = vec![];
    if let Some(own) = templates.iter().find(|t| t.name() == refused.template) {
        all.extend(default_of(*own, workload, target).ok().and_then(Result::ok));
        if let Ok(space) = own.space(workload, target) {
            let configs = space.sample(1).within(LOOKED_AT).take(DRAWN);
            let mut drawn: Vec<_> = configs.map(|(_, config)| priced(*own, config)).collect();
            sort(&mut drawn);
            all.extend(drawn.into_iter().take(TRIED));
        }
    }
    let others = templates.iter().filter(|t| t.name() != refused.template);
    let mut others: Vec<_> =
        others.filter_map(|t| default_of(*t, workload, target).ok().and_then(Result::ok)).collect();
    sort(&mut others);
    // One made by rules comes right before a last resort, or right behind it.
    let (by_rules, mut others): (Vec<Candidate>, Vec<Candidate>) =
        others.into_iter().partition(|c| BY_RULES.contains(&c.template.as_str()));
    for candidate in by_rules {
        let resort = others.iter().position(|c| LAST_RESORTS.contains(&c.template.as_str()));
        let at = resort.map_or(others.len(), |at| at + usize::from(others[at].predicted_us < candidate.predicted_us));
        others.insert(at, candidate);
    }
    all.extend(others);
    for plain in templates.iter().filter(|t| LAST_RESORTS.contains(&t.name())) {
        if let Ok(space) = plain.space(workload, target) {
            all.extend((0..space.range_len()).filter_map(|i| space.get(i)).map(|config| priced(*plain, config)));
        }
    }
    let mut tried = vec![(refused.template.clone(), refused.config.clone())];
    all.into_iter().filter_map(move |Candidate { template, config, predicted_us }| {
        let this = (template.clone(), config.clone());
        if tried.contains(&this) {
            return None;
        }
        tried.push(this);
        let origin = Origin::Analytic { predicted_us };
        Some(Choice { template, config, origin, refusals: vec![], passed_over: None, unusable: vec![] })
    })
}
