//! What is chosen for a layer whose own records are withheld, by the checked-in records of an H100 of all other layers.
//!
//! How fast such a choice is only a device can tell (`kernel-gen bench --others`). What needs none is tested here: that it
//! is a kernel, and that predictions which other layers' records have corrected are nearer to what was measured than those
//! of the cost functions alone.

use kernel_gen::lower::lower_for;
use kernel_gen::model::{Options, choose};
use kernel_gen::records::{BestRecords, Choice, Origin};
use kernel_gen::spec::Spec;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::bench::without_shape;
use kernel_gen::workload::Workload;
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

#[test]
fn a_layer_without_a_record_gets_a_kernel_that_was_predicted_better_than_without_any() {
    let (registry, target) = (Registry::builtin(), Target::find("sm_90a").unwrap());
    let mut errors: Vec<(f64, f64)> = vec![];
    for (workload, recorded, others, default) in choices("resnet18.toml", target) {
        let key = workload.key();
        let Origin::Exact { time_us, .. } = recorded.origin else { panic!("{key}: {:?}", recorded.origin) };
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
        let away = |us: f64| (us / time_us).ln().abs();
        errors.push((away(predicted_us), away(default.origin.time_us())));
    }
    assert!(errors.len() >= 12, "{} layers have others of their kind", errors.len());
    let mean = |at: fn(&(f64, f64)) -> f64| errors.iter().map(at).sum::<f64>() / errors.len() as f64;
    let (corrected, alone) = (mean(|e| e.0), mean(|e| e.1));
    println!("predictions are off by {:.3}x with other layers' records, {:.3}x without", corrected.exp(), alone.exp());
    assert!(corrected < alone, "{corrected:.3} with other layers' records, {alone:.3} without");
}
