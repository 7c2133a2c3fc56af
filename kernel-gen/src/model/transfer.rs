//! What records of other shapes say about a workload that has none of its own.
//!
//! A record is a lesson in two ways. Its config, adapted into the space of the new shape, is a candidate: the same sizes
//! inside, clipped to what the shape allows. And the ratio of its time to what the template's cost function says of it
//! tells how far that function is off for shapes of this kind; predictions are multiplied by it, shapes that are alike
//! counting more. A template's default is also judged by what the record's time says of that template's default there:
//! the record is the best of all that was tried, so the default was no faster. How much slower it was the record does not
//! say, so this only ever makes a prediction worse: a template that nobody measured is never thought to be as fast as the
//! record because it was slower.
//!
//! The default that the cost functions prefer is displaced only by a template that was measured at a shape like this one, and
//! only where it is faster by more than noise; and a config only where its template's cost function holds no more against it here,
//! beside the template's default, than it did where it was measured. Of 194 layers of five networks that were never tuned, on an H200,
//! what was so chosen was 1.056 times as fast as the default in the geometric mean, and six layers were slower by more than 2 % (three by
//! more than 10 %, at worst 0.73); without the last rule ten (six, 0.60). `specs/landscapes/choices-h200.txt` has the times.
//!
//! Everything is a pure function of workload, target and records, and costs a few hundred evaluations of cost functions.

use super::defaults::{BY_RULES, Candidate, LAST_RESORTS, default_of};
use super::error::ModelError;
use super::options::Options;
use crate::records::{BestRecords, Entry, Preference, Record};
use crate::space::{Config, Space, Value};
use crate::target::Target;
use crate::templates::Template;
use crate::workload::Workload;
use std::collections::BTreeMap;

/// Records that are listened to: the most similar ones.
const MOST_LESSONS: usize = 8;
/// Values of a knob that are tried in the place of a record's.
const NEAR_VALUES: usize = 4;
/// Combinations of them that are tried.
const MOST_TRIED: usize = 300;
/// Octaves of shape by which a lesson's weight falls to 60 %.
const WIDTH: f64 = 1.5;
/// How much a config loses for each octave that it comes from afar.
const ESTRANGEMENT: f64 = 0.06;
/// How much of a config's own ratio of measured to predicted goes with it to another shape; the rest is the mean of its
/// template's. A search finds what the cost function underrates, and it underrates it at the next shape too.
const LOYALTY: f64 = 0.6;
/// Octaves from which on a template's records say too little of it to prefer it to the default.
const FAMILIAR: f64 = 2.0;
/// How much faster than the default another choice has to be expected.
const MARGIN: f64 = 1.03;
/// By how much more a cost function may hold against a config, beside a default, than it did where the config was measured.
const CONSENT: f64 = 1.0;
/// Lessons by which defaults are judged: the most similar ones, because a default has to be looked for at each.
const JUDGED: usize = 3;
/// How much slower a default is, at least, where a search found another config (a logarithm): a search takes another one
/// only where it is faster by more than the noise, and the default is what the cost function underrates the most.
const SEARCHED: f64 = 0.05;

/// A choice that was learned.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Learned {
    pub(super) template: String,
    pub(super) config: Config,
    /// The corrected prediction.
    pub(super) predicted_us: f64,
    /// How many records it was learned from.
    pub(super) records: usize,
}

/// A record of another shape that may be believed.
struct Lesson<'a> {
    workload: Workload,
    record: &'a Record,
    /// The record's config as its space writes it.
    config: Config,
    /// What the template's cost function says of it.
    said_us: f64,
    /// Octaves between the shapes.
    distance: f64,
}

impl Lesson<'_> {
    fn weight(&self) -> f64 {
        // The floor keeps the sum of weights from vanishing where all shapes are strange.
        (-self.distance * self.distance / (2.0 * WIDTH * WIDTH)).exp().max(1e-6)
    }

    /// What was measured, times the threads that shared it: cost functions speak of one core.
    fn core_us(&self) -> f64 {
        self.record.time_us * f64::from(self.record.threads)
    }

    /// The logarithm of measured / predicted.
    fn ratio(&self) -> f64 {
        (self.core_us() / self.said_us).ln()
    }
}

/// The best choice by what records of other shapes say; none if there is no such record.
pub(super) fn learned(
    templates: &[&dyn Template],
    workload: &Workload,
    target: &Target,
    records: &BestRecords,
    options: &Options,
    defects: &mut Vec<ModelError>,
) -> Option<Learned> {
    let lessons = lessons(templates, workload, target, records, options);
    // A template made by rules that has no record takes the place of a last resort only.
    let known =
        |t: &&dyn Template| !BY_RULES.contains(&t.name()) || lessons.iter().any(|l| l.record.template == t.name());
    let (known, by_rules): (Vec<&dyn Template>, Vec<&dyn Template>) = templates.iter().partition(|t| known(t));
    let mut all = proposals(&known, workload, target, &lessons, defects);
    if best_of(&all).is_none_or(|best| LAST_RESORTS.contains(&best.template.as_str())) {
        all.extend(proposals(&by_rules, workload, target, &lessons, defects));
    }
    let records = lessons.len();
    let learned = |p: &Proposal| Learned {
        template: p.template.clone(),
        config: p.config.clone(),
        predicted_us: p.predicted_us,
        records,
    };
    best_of(&all).filter(|best| best.predicted_us.is_finite()).map(learned)
}

/// The default that the cost functions prefer, or what is expected to be faster by more than [`MARGIN`]. Of equal ones the
/// first: a template's default stands before what is adapted to it.
fn best_of(all: &[Proposal]) -> Option<&Proposal> {
    let least = |of: fn(&Proposal) -> f64| move |a: &&Proposal, b: &&Proposal| of(a).total_cmp(&of(b));
    let default = all.iter().filter(|p| p.said_us.is_some()).min_by(least(|p| p.said_us.unwrap_or(f64::INFINITY)))?;
    let familiar = all.iter().filter(|p| p.distance <= FAMILIAR).min_by(least(|p| p.predicted_us));
    familiar.filter(|p| p.predicted_us * MARGIN < default.predicted_us).or(Some(default))
}

/// A config that may be chosen.
struct Proposal {
    template: String,
    config: Config,
    /// What the template's cost function says, of its default only.
    said_us: Option<f64>,
    /// The corrected prediction; infinite where nobody asks for it.
    predicted_us: f64,
    /// Octaves to the most similar shape at which the template has a record; infinite if there is none.
    distance: f64,
}

/// For each template its default and the records' configs, adapted, with corrected predictions; nothing without lessons.
fn proposals(
    templates: &[&dyn Template],
    workload: &Workload,
    target: &Target,
    lessons: &[Lesson<'_>],
    defects: &mut Vec<ModelError>,
) -> Vec<Proposal> {
    let mut all = vec![];
    // How far the cost functions are off where they were measured, whatever the template.
    let Some(common) = mean(lessons.iter().map(|l| (l.weight(), l.ratio()))) else { return all };
    let mut here: Vec<(&dyn Template, Candidate)> = vec![];
    for template in templates {
        match default_of(*template, workload, target) {
            Ok(Ok(default)) => here.push((*template, default)),
            Ok(Err(_)) => {}
            Err(defect) => defects.push(defect),
        }
    }
    let default_at = |template: &dyn Template, lesson: &Lesson<'_>| {
        template.admits(&lesson.workload, target).ok()?;
        default_of(template, &lesson.workload, target).ok()?.ok()
    };
    let cheapest = here.iter().map(|(_, default)| default.predicted_us).enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    for (at, (template, default)) in here.iter().enumerate() {
        let own: Vec<(usize, &Lesson<'_>)> =
            lessons.iter().enumerate().filter(|(_, l)| l.record.template == template.name()).collect();
        let factor = mean(own.iter().map(|(_, l)| (l.weight(), l.ratio()))).unwrap_or(common);
        let distance = own.first().map_or(f64::INFINITY, |(_, lesson)| lesson.distance);
        let is_familiar = distance <= FAMILIAR;
        let proposal = |config, said_us, predicted_us| Proposal {
            template: default.template.clone(),
            config,
            said_us,
            predicted_us,
            distance,
        };
        // Judging a default takes several searches. `best_of` uses only the cost function's time of all other templates.
        if !is_familiar && cheapest.is_some_and(|(cheapest, _)| at != cheapest) {
            all.push(proposal(default.config.clone(), Some(default.predicted_us), f64::INFINITY));
            continue;
        }
        // The template's defaults at the most similar shapes.
        let judged: Vec<Option<Candidate>> =
            lessons.iter().take(JUDGED).map(|lesson| default_at(*template, lesson)).collect();
        // A lesson whose record is of another config says that this template's default took no less time there: that bounds
        // its ratio from below. It says nothing of how much slower it was, so a default that is slow by its own cost
        // function must not be taken for one that is as fast as the record.
        let of_default = mean(lessons.iter().zip(&judged).filter_map(|(l, there)| {
            let there = there.as_ref()?;
            let is_record = there.template == l.record.template && there.config == l.config;
            let least = (l.core_us() / there.predicted_us).ln();
            let ratio = if is_record { least } else { factor.max(least + SEARCHED) };
            Some((l.weight(), ratio))
        }));
        let predicted_us = default.predicted_us * of_default.unwrap_or(factor).exp();
        all.push(proposal(default.config.clone(), Some(default.predicted_us), predicted_us));
        if !is_familiar {
            continue;
        }
        let Ok(space) = template.space(workload, target) else { continue };
        for (rank, lesson) in own {
            let Some(config) = adapted(&space, &lesson.config) else { continue };
            let said = template.cost(workload, target, &config);
            let ratio = factor + LOYALTY * (lesson.ratio() - factor);
            let predicted_us = said * ratio.exp() * (1.0 + ESTRANGEMENT * lesson.distance);
            // What loses in any case need not be judged.
            if all.iter().any(|p: &Proposal| p.distance <= FAMILIAR && p.predicted_us <= predicted_us) {
                continue;
            }
            // A config is believed to beat the default here as it did there only where the cost function agrees: where it holds more
            // against the config than it did there, the shapes differ in what counts, by rows that do not fill its tiles, say.
            let of_template = match judged.get(rank) {
                Some(there) => there.clone(),
                None => default_at(*template, lesson),
            };
            let agrees =
                |there: Candidate| said / default.predicted_us <= lesson.said_us / there.predicted_us * CONSENT;
            if of_template.is_none_or(agrees) {
                all.push(proposal(config, None, predicted_us));
            }
        }
    }
    all
}

/// The weighted mean of the ratios, which are logarithms; none if there is none.
fn mean(ratios: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (weights, sum) = ratios
        .filter(|(_, ratio)| ratio.is_finite())
        .fold((0.0, 0.0), |(weights, sum), (weight, ratio)| (weights + weight, sum + weight * ratio));
    (weights > 0.0).then(|| sum / weights)
}

/// The records of other shapes on this target that may be believed, the most similar first; of several records of a
/// shape the one that suits the options best. What a record must satisfy is what lookup demands of one for its own
/// workload: checked, and made for this version of the template in the space that it still has.
fn lessons<'a>(
    templates: &[&dyn Template],
    workload: &Workload,
    target: &Target,
    records: &'a BestRecords,
    options: &Options,
) -> Vec<Lesson<'a>> {
    let key = workload.key();
    let preference = Preference::new(records, &target.name, options.device.as_deref(), options.threads);
    let mut by_workload: BTreeMap<&str, &Entry> = BTreeMap::new();
    let of_others = |r: &Record| r.verified && r.target == target.name && r.workload != key;
    for entry in records.entries().filter(|e| of_others(&e.record)) {
        let workload = entry.record.workload.as_str();
        if by_workload.get(workload).is_none_or(|old| preference.order(entry, old).is_lt()) {
            by_workload.insert(workload, entry);
        }
    }
    let mut near: Vec<(f64, Workload, &Record)> = by_workload
        .into_values()
        .filter_map(|Entry { record: r, .. }| {
            let other = Workload::from_key(&r.workload).ok()?;
            Some((distance(workload, &other)?, other, r))
        })
        .collect();
    // Equal distances are settled by the keys, in whose order they are.
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    let believed = near.into_iter().filter_map(|(distance, other, record)| {
        let template =
            templates.iter().find(|t| t.name() == record.template && t.version() == record.template_version)?;
        template.admits(&other, target).ok()?;
        let space = template.space(&other, target).ok()?;
        let config = space.normalise(&record.config).ok().filter(|_| space.fingerprint() == record.space)?;
        let said_us = template.cost(&other, target, &config);
        Some(Lesson { workload: other, record, config, said_us, distance })
    });
    believed.take(MOST_LESSONS).collect()
}

/// Octaves from which on a shape is too strange for its config to be worth a trial.
#[cfg(feature = "cli")]
const STRANGE: f64 = 4.0;

/// Configs that were the best for other workloads with the same template, adapted into a space: those of the most similar
/// workload first, each once, at most so many. Of equally similar ones the first of `others` comes first.
#[cfg(feature = "cli")]
pub(crate) fn neighbours(
    space: &Space,
    workload: &Workload,
    others: impl IntoIterator<Item = (Workload, Config)>,
    most: usize,
) -> Vec<Config> {
    let near = others.into_iter().filter_map(|(other, config)| Some((distance(workload, &other)?, config)));
    let mut near: Vec<(f64, Config)> = near.filter(|(distance, _)| *distance <= STRANGE).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut configs: Vec<Config> = vec![];
    for config in near.iter().filter_map(|(_, config)| adapted(space, config)) {
        if configs.len() < most && !configs.contains(&config) {
            configs.push(config);
        }
    }
    configs
}

/// The kinds of some workloads: what tells, before a record is read, whether it may decide anything about them.
#[derive(Clone, Debug)]
pub struct Kinds(Vec<Workload>);

impl Kinds {
    /// The kinds of these workloads.
    pub fn of<'w>(workloads: impl IntoIterator<Item = &'w Workload>) -> Kinds {
        let mut kinds = Kinds(vec![]);
        for workload in workloads {
            if !kinds.has(workload) {
                kinds.0.push(workload.clone());
            }
        }
        kinds
    }

    /// Whether a record of the workload with this key is one of these workloads, or of a shape that says something about one of
    /// them.
    pub fn has_key(&self, key: &str) -> bool {
        Workload::from_key(key).is_ok_and(|workload| self.has(&workload))
    }

    fn has(&self, workload: &Workload) -> bool {
        self.position(workload).is_some()
    }

    /// The number of a workload's kind, below [`Kinds::len`].
    pub(crate) fn position(&self, workload: &Workload) -> Option<usize> {
        self.0.iter().position(|kind| distance(kind, workload).is_some())
    }

    /// How many kinds there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Octaves between two shapes, or none if they are of different kinds, of which neither says anything about the other.
fn distance(a: &Workload, b: &Workload) -> Option<f64> {
    if (a.dtype, a.out_dtype, a.math) != (b.dtype, b.out_dtype, b.math) {
        return None;
    }
    let octaves = |a: i64, b: i64| (a.max(1) as f64 / b.max(1) as f64).log2().abs();
    // One operator under two names, as a convolution and a depthwise one, differs in its class.
    if std::mem::discriminant(&a.op) != std::mem::discriminant(&b.op) {
        return None;
    }
    let (x, y) = (a.op.get().likeness(), b.op.get().likeness());
    if x.class != y.class {
        return None;
    }
    let sides = x.sizes.iter().zip(&y.sizes).map(|((x, weight), (y, _))| weight * octaves(*x, *y));
    let epilogue = if a.epilogue == b.epilogue { 0.0 } else { 0.25 };
    Some(sides.map(|s| s * s).sum::<f64>().sqrt() + epilogue)
}

/// The config of the space that is closest to one of another shape: knob by knob the nearest values, and of their
/// combinations the nearest that the space's constraints let pass. None if the knobs are not the same, or nothing near
/// passes.
fn adapted(space: &Space, config: &Config) -> Option<Config> {
    // For each knob the ranks of the nearest values, and how far they are.
    let mut knobs: Vec<Vec<(f64, u64)>> = vec![];
    for (name, knob) in space.knobs() {
        let wanted = config.value(name).ok()?;
        let mut ranks: Vec<(f64, u64)> = (0..knob.len()).map(|r| (apart(wanted, &knob.get(r)), r)).collect();
        ranks.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        ranks.truncate(NEAR_VALUES);
        knobs.push(ranks);
    }
    // Combinations in the order of their distance: each step takes one knob to its next value. That it is not a knob
    // before the last one changed makes every combination come up once.
    let mut open: Vec<(f64, Vec<usize>, usize)> = vec![(knobs.iter().map(|k| k[0].0).sum(), vec![0; knobs.len()], 0)];
    for _ in 0..MOST_TRIED {
        let nearest = (0..open.len()).min_by(|a, b| {
            let (a, b) = (&open[*a], &open[*b]);
            a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1))
        })?;
        let (far, choice, last) = open.swap_remove(nearest);
        let point: Vec<u64> = knobs.iter().zip(&choice).map(|(k, c)| k[*c].1).collect();
        if let Some(found) = space.get(space.index_of_point(&point)) {
            return Some(found);
        }
        for knob in last..knobs.len() {
            let (from, to) = (knobs[knob][choice[knob]].0, knobs[knob].get(choice[knob] + 1));
            if let Some((next, _)) = to {
                let mut choice = choice.clone();
                choice[knob] += 1;
                open.push((far - from + next, choice, knob));
            }
        }
    }
    None
}

/// How far two values of a knob are apart. Sizes count in octaves; the outermost of a split is what is left.
fn apart(a: &Value, b: &Value) -> f64 {
    let octaves = |a: i64, b: i64| match a > 0 && b > 0 {
        true => (a as f64 / b as f64).log2().abs(),
        false => f64::from(u8::from(a != b)),
    };
    match (a, b) {
        (Value::Split(a), Value::Split(b)) if a.len() == b.len() => {
            a.iter().zip(b).skip(1).map(|(a, b)| octaves(*a, *b)).sum()
        }
        (Value::Int(a), Value::Int(b)) => octaves(*a, *b),
        _ => f64::from(u8::from(a != b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::choose;
    use crate::records::Origin;
    use crate::templates::Registry;
    use crate::templates::cpu::{conv2d_direct::Conv2dDirect, conv2d_pointwise::Conv2dPointwise, plain::Plain};
    use crate::workload::{Conv2d, Matmul, Op};

    fn conv(ci: i64, size: i64, co: i64) -> Workload {
        Workload::f32(Op::Conv2d(Conv2d::nchw(1, ci, size, size, co, 3, 1, 1)))
    }

    fn record(workload: &Workload, target: &Target, template: &dyn Template, config: &str, time_us: f64) -> Record {
        let space = template.space(workload, target).expect("it applies");
        Record {
            workload: workload.key(),
            target: target.name.clone(),
            device: "a device".into(),
            threads: 1,
            template: template.name().into(),
            template_version: template.version(),
            space: space.fingerprint(),
            config: space.normalise(&Config::parse(config).expect("a config")).expect("inside"),
            time_us,
            gflops: workload.flops() as f64 / time_us * 1e-3,
            core_gflops: None,
            floor_us: None,
            spread: None,
            max_error: 0.0,
            verified: true,
            generator: "0.1.0".into(),
        }
    }

    #[test]
    fn a_split_keeps_its_inner_sizes_and_is_clipped_where_it_must_be() {
        let space = Space::builder()
            .split("f", crate::space::Split::factors(256, 3))
            .split("x", crate::space::Split::factors(14, 3))
            .knob("step", [0, 512, 1500])
            .filter("small", |c| matches!((c.split("f"), c.split("x")), (Ok(f), Ok(x)) if f[1] * x[1] <= 64))
            .build()
            .expect("a space");
        let adapt = |text: &str| adapted(&space, &Config::parse(text).expect("a config")).map(|c| c.to_string());
        assert_eq!(adapt("f=[-1,16,2] x=[-1,2,1] step=1500").as_deref(), Some("f=[-1,16,2] x=[-1,2,1] step=1500"));
        // 28 is no divisor of 14; 14 is the nearest.
        assert_eq!(adapt("f=[-1,4,2] x=[-1,28,1] step=512").as_deref(), Some("f=[-1,4,2] x=[-1,14,1] step=512"));
        // The constraint lets 32 x 2 pass, but not 64 x 2.
        assert_eq!(adapt("f=[-1,64,1] x=[-1,2,1] step=0").as_deref(), Some("f=[-1,64,1] x=[-1,1,1] step=0"));
        assert_eq!(adapt("f=[-1,64,1] step=0"), None);
    }

    #[test]
    #[cfg(feature = "cli")]
    fn neighbours_come_in_the_order_of_their_likeness_and_each_once() {
        let target = Target::find("x86-64-v4").expect("a built-in target");
        let template = Conv2dDirect;
        let here = conv(128, 28, 128);
        let space = template.space(&here, target).expect("it applies");
        let config = |workload: &Workload| template.default_config(workload, target).expect("it applies");
        let bias = Workload { epilogue: vec![crate::workload::Epilogue::Bias], ..here.clone() };
        let (far, near, strange) = (conv(512, 14, 256), conv(128, 28, 256), conv(1, 1024, 1));
        let matmul = Workload::f32(Op::Matmul(Matmul::new(64, 64, 64)));
        let all = [far.clone(), strange, near.clone(), matmul, bias.clone(), bias.clone()];
        let others = || all.iter().map(|w| (w.clone(), if w.op == far.op { config(&far) } else { config(&near) }));
        let found = neighbours(&space, &here, others(), 3);
        let adapt = |w: &Workload| adapted(&space, &config(w)).expect("it fits");
        assert_ne!(adapt(&near), adapt(&far), "the test needs two that differ");
        assert_eq!(found, [adapt(&near), adapt(&far)]);
        assert_eq!(neighbours(&space, &here, others(), 1), [adapt(&near)]);
    }

    #[test]
    fn shapes_of_other_kinds_say_nothing() {
        let a = conv(64, 28, 64);
        assert_eq!(distance(&a, &a), Some(0.0));
        assert!(distance(&a, &conv(128, 28, 64)) < distance(&a, &conv(256, 28, 128)));
        assert_eq!(distance(&a, &Workload::f32(Op::Matmul(Matmul::new(64, 64, 64)))), None);
        let nhwc = Conv2d { layout: crate::workload::ConvLayout::Nhwc, ..Conv2d::nchw(1, 64, 28, 28, 64, 3, 1, 1) };
        assert_eq!(distance(&a, &Workload::f32(Op::Conv2d(nhwc))), None);
    }

    /// The record of a neighbour whose config the cost function likes as well as its own default, and that took as long as
    /// the function says of it; the default is told to be slower than predicted by the same record.
    #[test]
    fn the_config_of_a_neighbour_is_taken_where_the_default_is_known_to_be_no_faster() {
        let registry = Registry::builtin();
        let target = Target::find("x86-64-v4").expect("a built-in target");
        let template = registry.find("conv2d_direct").expect("a built-in template");
        let (near, new) = (conv(128, 28, 128), conv(128, 28, 256));
        let config = "nv=1 ow_tile=14 rows=1 oh_tile=7 ci_tile=64 tiles=1 pad=task";
        let record = record(&near, target, template, config, 5000.0);
        let mut records = BestRecords::new();
        records.insert(record.clone());
        let choice = choose(&registry, &new, target, &records, &Options::default()).expect("a choice");
        let Origin::Model { predicted_us, records: 1 } = choice.origin else { panic!("{:?}", choice.origin) };
        assert_eq!(
            choice.origin.to_string(),
            format!("model, from 1 record of other shapes, {predicted_us:.1} us predicted")
        );
        // Twice the output channels take about twice as long, whatever the config.
        assert!((6000.0..16000.0).contains(&predicted_us), "{predicted_us}");
        let again = choose(&registry, &new, target, &records, &Options::default()).expect("a choice");
        assert_eq!((again.config, again.template), (choice.config, choice.template));
        // A record that was not checked, or of another target, teaches nothing.
        for useless in [
            Record { verified: false, ..record.clone() },
            Record { target: "x86-64-v3".into(), ..record.clone() },
            Record { template_version: 99, ..record.clone() },
        ] {
            let mut records = BestRecords::new();
            records.insert(useless);
            let choice = choose(&registry, &new, target, &records, &Options::default()).expect("a choice");
            assert!(matches!(choice.origin, Origin::Analytic { .. }), "{:?}", choice.origin);
        }
    }

    /// A record says that the defaults of all other templates were no faster. It does not say that they were as fast.
    #[test]
    fn a_template_that_nobody_measured_is_not_as_fast_as_the_record_because_it_was_slower() {
        let registry = Registry::empty().with(Conv2dDirect).with(Conv2dPointwise).with(Plain);
        let target = Target::find("x86-64-v4").expect("a built-in target");
        let template = registry.find("conv2d_direct").expect("a built-in template");
        let near = conv(128, 28, 128);
        let default = default_of(template, &near, target).expect("it applies").expect("it has one");
        let mut records = BestRecords::new();
        records.insert(record(&near, target, template, &default.config.to_string(), 1.2 * default.predicted_us));
        for (ci, size, co) in [(64, 56, 64), (64, 56, 128), (128, 28, 256), (256, 14, 256), (512, 7, 512)] {
            let new = conv(ci, size, co);
            let alone = choose(&registry, &new, target, &BestRecords::new(), &Options::default()).expect("a choice");
            let choice = choose(&registry, &new, target, &records, &Options::default()).expect("a choice");
            assert!(matches!(choice.origin, Origin::Model { .. }), "{:?}", choice.origin);
            assert_eq!((alone.template.as_str(), choice.template.as_str()), ("conv2d_direct", "conv2d_direct"));
            // What all cost functions are off by is in what is predicted.
            let ratio = choice.origin.time_us() / template.cost(&new, target, &choice.config);
            assert!((1.1..1.6).contains(&ratio), "{ratio} at {}", new.key());
        }
    }

    /// A record of two threads took half the time that one core takes.
    #[test]
    fn a_record_of_several_threads_teaches_what_one_core_takes() {
        let (registry, target) = (Registry::builtin(), Target::find("x86-64-v4").expect("a built-in target"));
        let template = registry.find("conv2d_direct").expect("a built-in template");
        let (near, new) = (conv(128, 28, 128), conv(128, 28, 256));
        let default = default_of(template, &near, target).expect("it applies").expect("it has one");
        let predicted = |threads: u32| {
            let mut records = BestRecords::new();
            let time_us = default.predicted_us / f64::from(threads);
            let one = record(&near, target, template, &default.config.to_string(), time_us);
            records.insert(Record { threads, ..one });
            let choice = choose(&registry, &new, target, &records, &Options::default()).expect("a choice");
            (choice.template, choice.config, choice.origin.time_us())
        };
        assert_eq!(predicted(1), predicted(2));
    }

    /// Two records far from a shape, of which one says that its template is ten times as fast as its cost function thinks.
    #[test]
    fn a_template_takes_the_place_of_the_default_only_where_it_was_measured() {
        let registry = Registry::empty().with(Conv2dDirect).with(Conv2dPointwise).with(Plain);
        let target = Target::find("x86-64-v4").expect("a built-in target");
        let pointwise = |ci, size, co| Workload::f32(Op::Conv2d(Conv2d::nchw(1, ci, size, size, co, 1, 1, 0)));
        let new = pointwise(128, 28, 128);
        let alone = choose(&registry, &new, target, &BestRecords::new(), &Options::default()).expect("a choice");
        let other = if alone.template == "conv2d_direct" { "conv2d_pointwise" } else { "conv2d_direct" };
        let chosen = |channels: i64| {
            let mut records = BestRecords::new();
            for (name, ratio) in [(alone.template.as_str(), 1.0), (other, 0.1)] {
                let template = registry.find(name).expect("it is there");
                // Not the same shape twice: a workload has one record.
                let at = if name == other { pointwise(channels, 28, 128) } else { pointwise(channels, 28, 256) };
                let default = default_of(template, &at, target).expect("it applies").expect("it has one");
                let time_us = ratio * default.predicted_us;
                records.insert(record(&at, target, template, &default.config.to_string(), time_us));
            }
            choose(&registry, &new, target, &records, &Options::default()).expect("a choice").template
        };
        assert_eq!(chosen(256), other);
        assert_eq!(chosen(2048), alone.template);
    }
}
