//! What is chosen for a layer whose own records are withheld, by the checked-in records of an H100 of all other layers.
//!
//! How fast such a choice is only a device can tell (`kernel-gen bench --others`). What needs none is tested here: that it
//! is a kernel of a template that is worth a try, and that what other layers' records predict of it is near to what was
//! measured of the layer's own record.

use kernel_gen::lower::lower_for;
use kernel_gen::model::{Options, choose};
use kernel_gen::records::{BestRecords, Choice, Measurement, Origin};
use kernel_gen::spec::Spec;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::bench::without_shape;
use kernel_gen::workload::Workload;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs")
}

/// The different workloads of a network.
fn workloads(spec: &str) -> Vec<Workload> {
    let spec = Spec::load(&specs().join(spec)).unwrap();
    let mut all: Vec<Workload> = vec![];
    for (_, w) in spec.workloads() {
        if !all.contains(&w.workload) {
            all.push(w.workload.clone());
        }
    }
    all
}

/// The choice for each workload with its record, and with the records of other shapes only; on several threads.
fn choices(spec: &str, target: &Target) -> Vec<(Workload, Choice, Choice, Choice)> {
    let (registry, records) = (Registry::builtin(), BestRecords::load(&specs().join("tuned")).unwrap());
    let all = workloads(spec);
    let choice = |workload: &Workload| {
        let with = |records: &BestRecords| choose(&registry, workload, target, records, &Options::default()).unwrap();
        let others = with(&without_shape(&records, workload));
        (workload.clone(), with(&records), others, with(&BestRecords::new()))
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = all.iter().map(|workload| scope.spawn(|| choice(workload))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Geometric means of how far predictions are from what was measured: with other layers' records, and with none.
struct Off {
    corrected: f64,
    alone: f64,
}

/// Looks at the choices for a network's layers whose own records are withheld.
fn off(spec: &str) -> Off {
    let (registry, target) = (Registry::builtin(), Target::find("sm_90a").unwrap());
    let mut errors: Vec<(f64, f64)> = vec![];
    for (workload, recorded, others, default) in choices(spec, target) {
        let key = workload.key();
        let Origin::SameTarget(Measurement { time_us, .. }) = recorded.origin else {
            panic!("{key}: {:?}", recorded.origin)
        };
        let template = registry.find(&others.template).unwrap();
        let space = template.space(&workload, target).unwrap();
        assert!(space.index_of(&others.config).is_ok(), "{key}: {} is not in the space", others.config);
        let scheduled = template.schedule(&workload, target, &others.config).unwrap();
        let lowered = lower_for(scheduled.schedule.kernel, target);
        assert!(lowered.is_ok(), "{key}: {}: {:?}", others.config, lowered.err());
        // A product with one row has no other layer of its kind.
        let Origin::Model { predicted_us, records } = others.origin else {
            assert!(workload.matmul().is_some() && others.config == default.config, "{key}: {:?}", others.origin);
            continue;
        };
        assert!(records > 0, "{key}");
        // A template that its own cost function finds hopeless beside the default is not worth a try.
        let said = template.cost(&workload, target, &others.config);
        assert!(said < 6.0 * default.origin.time_us(), "{key}: {} {} at {said} us", others.template, others.config);
        let away = |us: f64| (us / time_us).ln().abs();
        errors.push((away(predicted_us), away(default.origin.time_us())));
    }
    assert!(errors.len() >= 12, "{} layers of {spec} have others of their kind", errors.len());
    let mean = |at: fn(&(f64, f64)) -> f64| (errors.iter().map(at).sum::<f64>() / errors.len() as f64).exp();
    let (corrected, alone) = (mean(|e| e.0), mean(|e| e.1));
    println!("{spec}: predictions are off by {corrected:.3}x with other layers' records, {alone:.3}x without");
    Off { corrected, alone }
}

#[test]
fn a_layer_without_a_record_gets_a_kernel_whose_time_others_foretell() {
    // The cost functions were fitted to layers like these; what other layers teach must not spoil that.
    let Off { corrected, .. } = off("resnet18.toml");
    assert!(corrected < 1.25, "{corrected:.3}");
}

#[test]
fn records_of_others_mend_a_cost_function_that_is_off() {
    let Off { corrected, alone } = off("mobilenet_v1_f16.toml");
    assert!(corrected < 1.25 && corrected < alone, "{corrected:.3} with other layers' records, {alone:.3} without");
}

/// What `kernel-gen check --tuned specs/tuned` says of the records, for all specs at once and without making sources.
#[test]
fn every_record_that_is_checked_in_still_applies() {
    let (registry, records) = (Registry::builtin(), BestRecords::load(&specs().join("tuned")).unwrap());
    let recorded: BTreeSet<(&str, &str)> = records.iter().map(|r| (r.workload.as_str(), r.target.as_str())).collect();
    assert!(records.len() > 1000, "there are {} records", records.len());
    let mut wrong = vec![];
    for (key, target) in recorded {
        let (workload, target) = (Workload::from_key(key).unwrap(), Target::find(target).unwrap());
        let choice = choose(&registry, &workload, target, &records, &Options::default()).unwrap();
        wrong.extend(choice.refusals.iter().map(|refusal| refusal.to_string()));
        if choice.origin.measured_here().is_none() {
            wrong.push(format!("{key} on {}: its record is not used, but {} is", target.name, choice.template));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Measured times of choices, of each workload the default first: `specs/landscapes/choices-h200.txt` says of what.
fn measured_choices() -> Vec<(Workload, Vec<(String, f64)>)> {
    let text = std::fs::read_to_string(specs().join("landscapes/choices-h200.txt")).unwrap();
    let mut all: Vec<(Workload, Vec<(String, f64)>)> = vec![];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [_, _, workload, template, config, us] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let workload = Workload::from_key(workload).unwrap();
        let time = (format!("{template} {config}"), us.parse().unwrap());
        match all.last_mut().filter(|(last, _)| *last == workload) {
            Some((_, times)) => times.push(time),
            None => all.push((workload, vec![time])),
        }
    }
    all
}

/// What the records that ship choose for layers of networks that were never tuned, beside the default. Of layers whose default was
/// chosen, a third: choosing takes a quarter of a second.
#[test]
fn choices_for_networks_that_nobody_tuned_are_hardly_ever_slower_than_the_default() {
    let (registry, records) = (Registry::builtin(), BestRecords::load(&specs().join("tuned")).unwrap());
    let target = Target::find("sm_90a").unwrap();
    let options = Options { device: Some("NVIDIA H200".into()), ..Options::default() };
    let all = measured_choices();
    let layers = all.len();
    let some = all.into_iter().enumerate().filter(|(i, (_, times))| times.len() > 1 || i % 3 == 0);
    let some: Vec<(Workload, Vec<(String, f64)>)> = some.map(|(_, layer)| layer).collect();
    let chosen = |(workload, times): &(Workload, Vec<(String, f64)>)| {
        let choice = choose(&registry, workload, target, &records, &options).unwrap();
        let name = format!("{} {}", choice.template, choice.config);
        let us = times.iter().find(|(of, _)| *of == name)?.1;
        Some((times[0].1 / us, format!("{} by {name}, default {}", workload.key(), times[0].0)))
    };
    let (one, other) = some.split_at(some.len() / 2);
    let ratios: Vec<Option<(f64, String)>> = std::thread::scope(|scope| {
        let other = scope.spawn(|| other.iter().map(chosen).collect::<Vec<_>>());
        let one: Vec<_> = one.iter().map(chosen).collect();
        one.into_iter().chain(other.join().unwrap()).collect()
    });
    let known: Vec<&(f64, String)> = ratios.iter().flatten().collect();
    let mean = (known.iter().map(|(r, _)| r.ln()).sum::<f64>() / known.len() as f64).exp();
    // Differences of two percent are noise.
    let mut slower: Vec<&&(f64, String)> = known.iter().filter(|(ratio, _)| *ratio < 0.98).collect();
    slower.sort_by(|a, b| a.0.total_cmp(&b.0));
    let list: String = slower.iter().map(|(ratio, of)| format!("{ratio:.2} {of}\n")).collect();
    println!("{} of {layers} layers, {mean:.4} times as fast as by defaults; slower:\n{list}", known.len());
    assert!(
        known.len() * 100 >= some.len() * 95,
        "{} of {} choices were not measured",
        some.len() - known.len(),
        some.len()
    );
    assert!(slower.len() * 100 <= layers * 5 && slower.iter().all(|(ratio, _)| *ratio >= 0.7), "{list}");
    // The goal is none.
    assert!(slower.iter().filter(|(ratio, _)| *ratio < 0.9).count() <= 3, "{list}");
    assert!(mean > 1.03, "{mean}");
}
