//! Which template with which config runs a workload: what was measured if there is a record, and otherwise what the
//! templates' own cost functions say.
//!
//! The order is: a record of this workload on this target; then what records of other shapes on this target teach; then the
//! default config of each template that applies, the one with the least predicted time. Templates made by rules
//! ([`sketch`](crate::templates::sketch)) are considered only where that would be a plain one. A record of the workload on a related
//! target competes with the latter two: it is used where the model holds no more against it here than on its own target.
//! Where the choice comes from is part of it, and so is every record that had to
//! be refused.

#[cfg(feature = "tune")]
pub mod learned;
pub mod roofline;
mod transfer;
#[cfg(feature = "cli")]
pub(crate) use transfer::neighbours;

use crate::records::{BestRecords, Choice, Found, Lookup, Offer, Origin, PassedOver, Query, Refusal, Unusable, lookup};
use crate::space::{Config, Space};
use crate::target::Target;
use crate::templates::{Registry, Template, TemplateError};
use crate::workload::Workload;
use std::fmt;

/// How to choose.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Whether a workload without a usable record is an error: for releases, where every kernel is to be measured.
    pub deny_fallback: bool,
    /// The device whose record is preferred where a target has several.
    pub device: Option<String>,
    /// The number of threads whose record is preferred; see [`Query::threads`].
    pub threads: Option<u32>,
    /// Only this template, if one is named.
    pub template: Option<String>,
}

/// Why nothing could be chosen.
#[derive(Clone, PartialEq, Debug)]
pub enum ModelError {
    /// No template can run the workload on the target.
    NoTemplate {
        /// The workload's key.
        workload: String,
        /// The target's name.
        target: String,
        /// Each template and why it does not apply.
        reasons: Vec<(String, String)>,
    },
    /// There is no usable record, and fallback is denied.
    NoRecord {
        /// The workload's key.
        workload: String,
        /// The target's name.
        target: String,
        /// The records that could not be used.
        refusals: Vec<Refusal>,
    },
    /// A template failed on a workload that it says it applies to: a defect of the template.
    Template {
        /// The template.
        template: String,
        /// The workload's key.
        workload: String,
        /// What it said.
        error: Box<TemplateError>,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::NoTemplate { workload, target, reasons } if reasons.is_empty() => {
                write!(f, "no template is registered that could run {workload} on {target}")
            }
            ModelError::NoTemplate { workload, target, reasons } => {
                let reasons: Vec<String> = reasons.iter().map(|(t, why)| format!("{t}: {why}")).collect();
                write!(f, "no template can run {workload} on {target} ({})", reasons.join("; "))
            }
            ModelError::NoRecord { workload, target, refusals } => {
                write!(f, "there is no record of {workload} on {target}, and fallback is denied")?;
                match refusals.len() {
                    0 => write!(f, "; tune it, or allow the fallback"),
                    _ => {
                        let all: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
                        write!(f, " ({})", all.join("; "))
                    }
                }
            }
            ModelError::Template { template, workload, error } => {
                write!(f, "the template {template} failed on {workload}: {error}")
            }
        }
    }
}

impl std::error::Error for ModelError {}

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

/// Chooses a template and a config. See the module's text for the order. A template that fails on the workload is passed
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

/// The default with the least predicted time; who has none, and why, goes into `reasons`. Templates made by rules are asked
/// only where it would be a last resort.
fn cheapest(
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
        let able: Vec<&dyn Template> = registry.iter().filter(|t| t.applies(workload, there).is_ok()).collect();
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

/// The templates that run every workload.
const LAST_RESORTS: [&str; 2] = ["plain", "plain_cuda"];

/// The templates whose schedules are derived by rules. Their costs know loops and not machines as well as those of a template
/// that was made for an operator, so without a record they take the place of a last resort only.
const BY_RULES: [&str; 2] = ["sketch", "sketch_cuda"];

/// The default of every template that applies and has one, cheapest first: what [`choose`] compares when there is no record.
pub fn candidates(registry: &Registry, workload: &Workload, target: &Target) -> Result<Vec<Candidate>, ModelError> {
    let templates = templates_for(registry, workload, target, &Options::default())?;
    let defaults = templates.into_iter().map(|t| default_of(t, workload, target));
    let mut all: Vec<Candidate> = defaults.filter_map(|d| d.ok().and_then(Result::ok)).collect();
    all.sort_by(|a, b| a.predicted_us.total_cmp(&b.predicted_us));
    Ok(all)
}

fn templates_for<'a>(
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
        match template.applies(workload, target) {
            Ok(()) => able.push(template),
            Err(reason) => reasons.push((template.name().to_string(), reason)),
        }
    }
    if able.is_empty() {
        return Err(ModelError::NoTemplate { workload: workload.key(), target: target.name.clone(), reasons });
    }
    Ok(able)
}

fn failed(template: &dyn Template, workload: &Workload, error: impl Into<TemplateError>) -> ModelError {
    let (template, workload) = (template.name().to_string(), workload.key());
    ModelError::Template { template, workload, error: Box::new(error.into()) }
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

fn recorded(
    templates: &[&dyn Template],
    workload: &Workload,
    target: &Target,
    records: &BestRecords,
    options: &Options,
    defects: &mut Vec<ModelError>,
) -> Lookup {
    let key = workload.key();
    // Spaces are not made for workloads that nobody measured.
    if !records.iter().any(|(_, r)| r.workload == key) {
        return Lookup { found: None, refusals: vec![] };
    }
    let mut spaces: Vec<(&dyn Template, Space)> = vec![];
    for t in templates {
        match t.space(workload, target) {
            Ok(space) => spaces.push((*t, space)),
            Err(error) => defects.push(failed(*t, workload, error)),
        }
    }
    let offers: Vec<Offer<'_>> =
        spaces.iter().map(|(t, space)| Offer { template: t.name(), version: t.version(), space }).collect();
    let related = related_targets(target);
    let query = Query {
        workload: &key,
        target: &target.name,
        related_targets: &related,
        device: options.device.as_deref(),
        threads: options.threads,
    };
    lookup(records, &query, &offers)
}

/// Targets whose records may serve for another: the other levels of a CPU's architecture, the nearest first, and the
/// other CUDA architectures of the same major version, those of the same capability first.
pub fn related_targets(target: &Target) -> Vec<&'static str> {
    let mut related: Vec<(i64, &'static str)> = Target::all()
        .iter()
        .filter(|other| other.name != target.name)
        .filter_map(|other| {
            let distance = match (target.cpu(), other.cpu()) {
                (Some(a), Some(b)) => (a.arch == b.arch).then(|| (a.level - b.level).abs()),
                _ => {
                    let (a, b) = (capability(&target.name)?, capability(&other.name)?);
                    (a / 10 == b / 10).then(|| (a - b).abs())
                }
            };
            distance.map(|d| (d, other.name.as_str()))
        })
        .collect();
    related.sort();
    related.into_iter().map(|(_, name)| name).collect()
}

/// 89 for `sm_89`, 90 for `sm_90a`.
fn capability(name: &str) -> Option<i64> {
    name.strip_prefix("sm_")?.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Record;
    use crate::templates::testing::Rows;
    use crate::workload::{Conv2d, Matmul};

    fn workload() -> Workload {
        Workload::f32(Matmul::new(64, 32, 16))
    }

    fn target() -> &'static Target {
        Target::find("x86-64-v3").unwrap()
    }

    fn registry() -> Registry {
        Registry::empty().with(Rows { name: "slow", version: 1, cost: 9.0 }).with(Rows {
            name: "fast",
            version: 3,
            cost: 2.0,
        })
    }

    fn record() -> Record {
        let template = registry();
        let template = template.find("slow").unwrap();
        Record {
            workload: workload().key(),
            target: "x86-64-v3".into(),
            device: "CPU".into(),
            threads: 1,
            template: "slow".into(),
            template_version: 1,
            space: template.space(&workload(), target()).unwrap().fingerprint(),
            config: Config::new().with_split("rows", &[-1, 8]),
            time_us: 1.5,
            gflops: 43.7,
            core_gflops: None,
            floor_us: None,
            max_error: 0.0,
            verified: true,
            generator: "0.1.0".into(),
        }
    }

    fn choose_with(records: &[Record], options: &Options) -> Result<Choice, ModelError> {
        let mut best = BestRecords::new();
        for r in records {
            best.insert(r.clone());
        }
        choose(&registry(), &workload(), target(), &best, options)
    }

    #[test]
    fn a_template_made_by_rules_takes_the_place_of_a_last_resort_only() {
        let rows = |name, cost| Rows { name, version: 1, cost };
        let chosen = |sketch: f64, plain: f64, fast: f64| {
            let registry =
                Registry::empty().with(rows("sketch", sketch)).with(rows("plain", plain)).with(rows("fast", fast));
            let options = Options::default();
            let records = BestRecords::new();
            let choice = choose(&registry, &workload(), target(), &records, &options).unwrap();
            // Where its config cannot be carried out, what is asked next is what would have been chosen otherwise.
            let next = instead_of(&choice, &registry, &workload(), target(), &options)
                .map(|c| c.template)
                .find(|t| *t != choice.template);
            (choice.template, next.unwrap())
        };
        let said = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(chosen(1.0, 5.0, 2.0), said("fast", "sketch"));
        assert_eq!(chosen(1.0, 5.0, 9.0), said("sketch", "plain"));
        assert_eq!(chosen(6.0, 5.0, 9.0), said("plain", "fast"));
        assert_eq!(chosen(6.0, 5.0, 2.0), said("fast", "plain"));
    }

    #[test]
    fn without_a_record_the_cheapest_default_wins() {
        let choice = choose_with(&[], &Options::default()).unwrap();
        assert_eq!((choice.template.as_str(), choice.origin), ("fast", Origin::Analytic { predicted_us: 2.0 }));
        let all = candidates(&registry(), &workload(), target()).unwrap();
        assert_eq!(all.iter().map(|c| c.template.as_str()).collect::<Vec<_>>(), ["fast", "slow"]);
        let only = Options { template: Some("slow".into()), ..Options::default() };
        assert_eq!(choose_with(&[], &only).unwrap().template, "slow");
    }

    #[test]
    fn a_record_beats_any_prediction() {
        let choice = choose_with(&[record()], &Options::default()).unwrap();
        assert_eq!((choice.template.as_str(), choice.config.to_string().as_str()), ("slow", "rows=[-1,8]"));
        assert!(matches!(choice.origin, Origin::SameTarget { .. }));
        let named = Options { device: Some("CPU".into()), ..Options::default() };
        assert!(matches!(choose_with(&[record()], &named).unwrap().origin, Origin::Exact { .. }));
        // The space does not depend on the target here, so a record of another level serves.
        let other = Record { target: "x86-64-v4".into(), ..record() };
        let origin = choose_with(&[other], &Options::default()).unwrap().origin;
        assert!(matches!(origin, Origin::OtherTarget { .. }));
    }

    /// Rows as wide as the target's vectors are what its model wants; the machine may know better.
    struct Wide;

    impl Template for Wide {
        fn name(&self) -> &str {
            "wide"
        }

        fn version(&self) -> u32 {
            1
        }

        fn applies(&self, _: &Workload, _: &Target) -> Result<(), String> {
            Ok(())
        }

        fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
            Rows { name: "wide", version: 1, cost: 0.0 }.space(w, t)
        }

        fn default_config(&self, _: &Workload, t: &Target) -> Result<Config, TemplateError> {
            Ok(Config::new().with_split("rows", &[-1, if t.name == "x86-64-v4" { 16 } else { 8 }]))
        }

        fn cost(&self, _: &Workload, t: &Target, config: &Config) -> f64 {
            let rows = config.split("rows").map_or(1, |sizes| sizes[1]);
            match (t.name.as_str(), rows) {
                ("x86-64-v4", 16) => 5.0,
                (_, 8) => 10.0,
                (_, 4) => 11.0,
                _ => 20.0,
            }
        }

        fn schedule(&self, _: &Workload, _: &Target, _: &Config) -> Result<crate::templates::Scheduled, TemplateError> {
            Err(TemplateError::Limit("nobody asks".into()))
        }
    }

    #[test]
    fn a_record_of_another_target_competes_with_the_default() {
        let registry = Registry::empty().with(Wide);
        let choice = |rows: i64, of: &str, on: &str, options: &Options| {
            let mut best = BestRecords::new();
            let space = Wide.space(&workload(), target()).unwrap().fingerprint();
            let config = Config::new().with_split("rows", &[-1, rows]);
            best.insert(Record { target: of.into(), template: "wide".into(), space, config, ..record() });
            choose(&registry, &workload(), Target::find(on).unwrap(), &best, options).unwrap()
        };
        let options = Options::default();
        // What was found for half the vectors does not stand in the way of the default for whole ones; and that is said.
        for rows in [4, 8] {
            let narrow = choice(rows, "x86-64-v3", "x86-64-v4", &options);
            assert!(matches!(narrow.origin, Origin::Analytic { predicted_us: 5.0 }), "{narrow:?}");
            let over = narrow.passed_over.unwrap().to_string();
            assert!(over.starts_with("wide by record matmul-f32-m64n32k16-nn-"), "{over}");
            assert!(over.contains(" of the target x86-64-v3, 1.5 us on CPU: here 1"), "{over}");
            assert!(over.ends_with(" us expected, 5.0 us of the default"), "{over}");
        }
        // Where the model holds no more against it than it did where it was measured, it is used.
        let below = choice(4, "x86-64-v3", "x86-64", &options);
        assert!(matches!(&below.origin, Origin::OtherTarget { target, .. } if target == "x86-64-v3"), "{below:?}");
        assert_eq!((below.config.to_string().as_str(), below.passed_over), ("rows=[-1,4]", None));
        // Wide rows on narrow vectors are no better than the default, whatever they were on wide ones.
        let wide = choice(16, "x86-64-v4", "x86-64-v3", &options);
        assert_eq!(wide.config.to_string(), "rows=[-1,8]");
        // Whoever allows no fallback gets what was measured anywhere.
        let deny = Options { deny_fallback: true, ..Options::default() };
        assert!(choice(8, "x86-64-v3", "x86-64-v4", &deny).origin.is_foreign());
        // A record of the target itself competes with nothing.
        assert_eq!(choice(4, "x86-64-v4", "x86-64-v4", &options).origin.word(), "same-target");
    }

    #[test]
    fn denied_fallback_is_an_error_that_names_what_was_refused() {
        let deny = Options { deny_fallback: true, ..Options::default() };
        assert!(choose_with(&[record()], &deny).is_ok());
        assert_eq!(
            choose_with(&[], &deny).unwrap_err().to_string(),
            "there is no record of matmul-f32-m64n32k16-nn on x86-64-v3, and fallback is denied; tune it, or allow \
             the fallback"
        );
        let stale = Record { template_version: 7, ..record() };
        let message = choose_with(std::slice::from_ref(&stale), &deny).unwrap_err().to_string();
        assert!(message.contains("version 7 of the template `slow`, which is now 1"), "{message}");
        let choice = choose_with(&[stale], &Options::default()).unwrap();
        assert_eq!((choice.template.as_str(), choice.refusals.len()), ("fast", 1));
    }

    /// A template that says it applies and then has no config.
    struct Unfit(fn() -> TemplateError);

    impl Template for Unfit {
        fn name(&self) -> &str {
            "none"
        }

        fn version(&self) -> u32 {
            1
        }

        fn applies(&self, _: &Workload, _: &Target) -> Result<(), String> {
            Ok(())
        }

        fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
            Rows { name: "rows", version: 1, cost: 0.0 }.space(w, t)
        }

        fn default_config(&self, _: &Workload, _: &Target) -> Result<Config, TemplateError> {
            Err(self.0())
        }

        fn cost(&self, _: &Workload, _: &Target, _: &Config) -> f64 {
            0.0
        }

        fn schedule(&self, _: &Workload, _: &Target, _: &Config) -> Result<crate::templates::Scheduled, TemplateError> {
            Err(self.0())
        }
    }

    #[test]
    fn a_template_none_of_whose_configs_fits_leaves_the_workload_to_others() {
        let limit = || Unfit(|| TemplateError::Limit("the grid is too small".into()));
        let (w, none, options) = (workload(), BestRecords::new(), Options::default());
        assert_eq!(choose(&registry().with(limit()), &w, target(), &none, &options).unwrap().template, "fast");
        let mut lesson = BestRecords::new();
        lesson.insert(Record { workload: Workload::f32(Matmul::new(64, 32, 32)).key(), ..record() });
        assert!(choose(&registry().with(limit()), &w, target(), &lesson, &options).is_ok());
        let error = choose(&Registry::empty().with(limit()), &w, target(), &none, &options).unwrap_err();
        assert!(error.to_string().ends_with("on x86-64-v3 (none: the grid is too small)"), "{error}");
        // What is wrong with the template itself is said, and ends nothing where another one works.
        let wrong = Unfit(|| TemplateError::Config(crate::space::ConfigError::Missing { knob: "rows".into() }));
        let choice = choose(&registry().with(wrong), &w, target(), &none, &options).unwrap();
        let over = Unusable { choice: "none".into(), reason: "the config has no value for the knob `rows`".into() };
        assert_eq!((choice.template.as_str(), choice.unusable), ("fast", vec![over]));
        let wrong = Unfit(|| TemplateError::Config(crate::space::ConfigError::Missing { knob: "rows".into() }));
        let error = choose(&Registry::empty().with(wrong), &w, target(), &none, &options).unwrap_err();
        assert!(error.to_string().contains("the template none failed"), "{error}");
    }

    #[test]
    fn a_workload_that_no_template_takes_is_named_with_the_reasons() {
        let conv = Workload::f32(Conv2d::nchw(1, 4, 8, 8, 4, 3, 1, 1));
        let error = choose(&registry(), &conv, target(), &BestRecords::new(), &Options::default()).unwrap_err();
        let reasons = "(slow: it takes only matrix products; fast: it takes only matrix products)";
        assert_eq!(error.to_string(), format!("no template can run {} on x86-64-v3 {reasons}", conv.key()));
    }

    #[test]
    fn related_targets_are_of_the_same_family() {
        let related = |name: &str| related_targets(Target::find(name).unwrap());
        assert_eq!(related("x86-64-v4"), ["x86-64-v3", "x86-64"]);
        assert_eq!(related("sm_86"), ["sm_87", "sm_89", "sm_80"]);
        assert_eq!(related("sm_90"), ["sm_90a"]);
        assert!(related("aarch64").is_empty());
    }
}
