use super::*;
use crate::records::{BestRecords, Choice, Origin, Record, Unusable};
use crate::space::{Config, Space};
use crate::target::Target;
use crate::templates::testing::Rows;
use crate::templates::{Registry, Template, TemplateError};
use crate::workload::{Conv2d, Matmul, Workload};

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
        spread: None,
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
    assert!(matches!(choice.origin, Origin::SameTarget(_)));
    let named = Options { device: Some("CPU".into()), ..Options::default() };
    assert!(matches!(choose_with(&[record()], &named).unwrap().origin, Origin::Exact(_)));
    // The space does not depend on the target here, so a record of another level serves.
    let other = Record { target: "x86-64-v4".into(), ..record() };
    let origin = choose_with(&[other], &Options::default()).unwrap().origin;
    assert!(matches!(origin, Origin::OtherTarget(_)));
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
    // A record for vectors of half the width gives way to the default for the full width, and the choice says so.
    for rows in [4, 8] {
        let narrow = choice(rows, "x86-64-v3", "x86-64-v4", &options);
        assert!(matches!(narrow.origin, Origin::Analytic { predicted_us: 5.0 }), "{narrow:?}");
        let over = narrow.passed_over.unwrap().to_string();
        let begins = "wide by record of the target x86-64-v3, 1.5 us on CPU with 1 thread: here 1";
        assert!(over.starts_with(begins), "{over}");
        assert!(over.ends_with(" us expected, 5.0 us of the default"), "{over}");
    }
    // Where the model holds no more against it than it did where it was measured, it is used.
    let below = choice(4, "x86-64-v3", "x86-64", &options);
    assert!(matches!(&below.origin, Origin::OtherTarget(m) if m.target == "x86-64-v3"), "{below:?}");
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
    // A defect of one template is reported, and another template takes the workload.
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
    assert_eq!(related("x86-64-v4"), ["x86-64-v4-vnni", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4-amx", "x86-64"]);
    assert_eq!(related("sm_86"), ["sm_87", "sm_89", "sm_80"]);
    assert_eq!(related("sm_90"), ["sm_90a"]);
    assert_eq!(related("aarch64"), ["aarch64-dotprod", "aarch64-i8mm"]);
}
