//! Candidates that do what a candidate must not do: each is recorded by name, none is ever chosen, and the run goes on.
//!
//! Faults are planted between emitter and compiler: the config decides which. CPU only; `gpu-suite faults` does the same
//! on a GPU.

use kernel_gen::emit::c::CSource;
use kernel_gen::records::{FailureKind, Outcome};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::Task;
use kernel_gen::tune::measure::{self, Emitted, JobId, MeasureError, Options};
use kernel_gen::workload::{Conv2d, Matmul, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The level that this machine has, at least.
fn target() -> &'static Target {
    let levels = Target::cpu_levels(std::env::consts::ARCH);
    levels.into_iter().rev().find(|t| t.cpu().is_some()).expect("every architecture has a lowest level")
}

/// Puts a statement at the beginning of the kernel's first phase. `{out}` is its output parameter, `{in}` its first input.
fn insert(source: &mut CSource, statement: &str) {
    let head = format!("void {}(", source.phases[0].symbol);
    // The prototype ends in a semicolon, the definition in a brace.
    let definition = source.source.match_indices(&head).map(|(at, _)| at).find(|at| {
        let rest = &source.source[*at..];
        rest.find('{') < rest.find(';')
    });
    let at = definition.expect("the phase is defined");
    let brace = at + source.source[at..].find('{').expect("a definition has a body") + 1;
    let params = &source.source[at + head.len()..brace];
    let names: Vec<&str> =
        params.split(',').filter_map(|p| p.trim_end_matches([')', ' ', '{']).split_whitespace().last()).collect();
    let bare = |name: &str| name.trim_start_matches('*').to_string();
    let statement = statement.replace("{in}", &bare(names[0])).replace("{out}", &bare(names[names.len() - 5]));
    source.source.insert_str(brace, &format!("\n  {statement}\n"));
    source.source.insert_str(0, "#include <stdlib.h>\n");
}

/// A fault, and what it is recorded as.
const FAULTS: [(&str, FailureKind); 9] = [
    ("for (volatile int forever = 1; forever;) {}", FailureKind::RunTimeout),
    ("{ volatile float probe = {in}[1ll << 40]; (void)probe; }", FailureKind::IllegalAccess),
    ("{ volatile float probe = {in}[-1]; (void)probe; }", FailureKind::IllegalAccess),
    ("((volatile float *){out})[-1] = 1;", FailureKind::IllegalAccess),
    // Behind the output's last element, where no inaccessible page is near.
    ("((volatile float *){out})[16 * 9 * 9] = 1;", FailureKind::OutsideWrite),
    ("((volatile float *){in})[1] = 7;", FailureKind::OutsideWrite),
    ("if (begin >= 0) { for (int i = 0; i < 9; i++) {out}[i] = 0; return; }", FailureKind::WrongAnswer),
    ("abort();", FailureKind::Crash),
    ("nonsense;", FailureKind::Build),
];

#[test]
fn planted_faults_are_recorded_by_name_and_the_run_goes_on() {
    let (registry, target) = (Registry::builtin(), target());
    let workload = Workload::f32(Conv2d::nchw(1, 8, 9, 9, 16, 3, 1, 1));
    let task = Task::new(workload, target, registry.find("conv2d_direct").unwrap()).unwrap();
    let configs: Vec<(u64, Config)> = task.space.sample(5).take(FAULTS.len() + 5).collect();
    assert_eq!(configs.len(), FAULTS.len() + 5);
    let faulty: BTreeMap<String, &str> =
        configs.iter().zip(FAULTS).map(|((_, config), (fault, _))| (config.to_string(), fault)).collect();
    // One more that wants more memory than there is.
    let greedy = configs[FAULTS.len()].1.to_string();
    let edit = move |config: &Config, emitted: Emitted<'_>| {
        let Emitted::C(source) = emitted else { return };
        if let Some(fault) = faulty.get(&config.to_string()) {
            insert(source, fault);
        }
        if config.to_string() == greedy {
            source.workspace_bytes = 1 << 45;
        }
    };
    let options = Options {
        run_limit: Duration::from_millis(500),
        build_limit: Some(Duration::from_secs(60)),
        edit: Some(Arc::new(edit)),
        ..Options::default()
    };
    let mut outcomes: BTreeMap<u64, Outcome> = BTreeMap::new();
    std::thread::scope(|scope| {
        let mut attached = measure::for_target(scope, target, options).unwrap();
        for (i, (_, config)) in configs.iter().enumerate() {
            attached.measurer.submit(JobId(i as u64), &task, config);
        }
        while let Some((JobId(i), outcome)) = attached.measurer.next(Duration::from_secs(300)) {
            outcomes.insert(i, outcome);
        }
        // A comparison with a fault in it goes on as well.
        let compared = attached.measurer.compare(&[(&task, &configs[1].1), (&task, &configs[FAULTS.len() + 1].1)]);
        assert!(matches!(&compared[0], Outcome::Failed(why) if why.kind == FailureKind::IllegalAccess), "{compared:?}");
        assert!(compared[1].time_us().is_some_and(|us| us > 0.0), "{compared:?}");
    });
    assert_eq!(outcomes.len(), configs.len());
    for (i, (fault, kind)) in FAULTS.iter().enumerate() {
        let Outcome::Failed(why) = &outcomes[&(i as u64)] else { panic!("`{fault}` was timed") };
        assert_eq!(why.kind, *kind, "`{fault}`: {}", why.detail);
        assert!(!why.detail.is_empty() && !why.detail.contains('\n'), "{}", why.detail);
    }
    let at = FAULTS.len() as u64;
    assert!(matches!(&outcomes[&at], Outcome::Failed(why) if why.kind == FailureKind::Resource), "{:?}", outcomes[&at]);
    for i in at + 1..configs.len() as u64 {
        let Outcome::Timed(timing) = &outcomes[&i] else { panic!("{:?}", outcomes[&i]) };
        assert!(timing.median_us() > 0.0 && timing.max_error <= 1.0, "{timing:?}");
    }
}

#[test]
fn a_kernel_with_packed_weights_is_checked_and_timed() {
    let (registry, target) = (Registry::builtin(), target());
    let workload = Workload::f32(Matmul::new(24, 40, 32));
    let task = Task::new(workload.clone(), target, registry.find("matmul_packed").unwrap()).unwrap();
    let config = task.template.default_config(&workload, target).unwrap();
    assert!(!task.template.schedule(&workload, target, &config).unwrap().packs.is_empty(), "it packs nothing");
    std::thread::scope(|scope| {
        let mut attached = measure::for_target(scope, target, Options::default()).unwrap();
        assert!(!attached.provenance.device.is_empty() && attached.provenance.units >= 1);
        attached.measurer.submit(JobId(7), &task, &config);
        let (id, outcome) = attached.measurer.next(Duration::from_secs(300)).unwrap();
        assert_eq!(id, JobId(7));
        assert!(outcome.time_us().is_some_and(|us| us > 0.0), "{outcome:?}");
        assert!(attached.measurer.next(Duration::ZERO).is_none());
    });
}

#[test]
fn a_build_that_takes_too_long_is_given_up() {
    let (registry, target) = (Registry::builtin(), target());
    let workload = Workload::f32(Matmul::new(24, 40, 32));
    let task = Task::new(workload.clone(), target, registry.find("plain").unwrap()).unwrap();
    let config = task.template.default_config(&workload, target).unwrap();
    let options = Options { build_limit: Some(Duration::ZERO), ..Options::default() };
    std::thread::scope(|scope| {
        let mut attached = measure::for_target(scope, target, options).unwrap();
        attached.measurer.submit(JobId(0), &task, &config);
        let (_, outcome) = attached.measurer.next(Duration::from_secs(300)).unwrap();
        assert!(matches!(&outcome, Outcome::Failed(why) if why.kind == FailureKind::BuildTimeout), "{outcome:?}");
    });
}

#[test]
fn what_the_machine_lacks_is_named_with_help() {
    let options = || Options { worker: Some(("/no/such/program".into(), vec![])), ..Options::default() };
    let error = |target: &str, options| {
        let target = Target::find(target).unwrap();
        std::thread::scope(|scope| measure::for_target(scope, target, options).err())
    };
    let foreign = if cfg!(target_arch = "aarch64") { "x86-64-v3" } else { "aarch64" };
    let text = error(foreign, options()).unwrap().to_string();
    assert!(
        text.starts_with(&format!("this machine does not execute {foreign}")) && text.contains("tune for "),
        "{text}"
    );
    let wrong = error("sm_90a", options()).unwrap();
    assert!(
        matches!(&wrong, MeasureError::Worker { command, .. } if command.starts_with("/no/such/program")),
        "{wrong}"
    );
    assert!(wrong.to_string().contains("kernel_gen::cli::main"), "{wrong}");
    // The command itself, which on most machines finds no GPU.
    let worker = Some((env!("CARGO_BIN_EXE_kernel-gen").into(), vec!["worker".into()]));
    match error("sm_90a", Options { worker, ..Options::default() }) {
        Some(MeasureError::NoDevice { cause, .. }) => {
            println!("[SKIP] part: no GPU: {cause}");
            assert!(cause.contains("driver") && cause.contains("; "), "{cause}");
        }
        // There is a device; it has no compiler, or another capability, or all is well.
        Some(MeasureError::Worker { cause, .. }) => panic!("{cause}"),
        _ => {}
    }
}
