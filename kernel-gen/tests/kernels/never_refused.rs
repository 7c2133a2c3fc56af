//! What is chosen for a workload becomes code: no choice of ours is refused by our own verifier, lowering or emission.
//!
//! A build does not end where that happens, since another choice takes the place of the refused one. But it is a defect of a
//! template or a gap in the verifier's proofs, and the code that takes the place may be slow.
//!
//! The full sweep is ten thousand workloads on every target, in release:
//!
//! ```text
//! KERNEL_GEN_WORKLOADS=10000 KERNEL_GEN_SEED=1 cargo test --release -p kernel-gen --test kernels never_refused:: -- --nocapture
//! ```
//!
//! `KERNEL_GEN_SEED` draws others, and `KERNEL_GEN_TARGETS` (names with commas) leaves targets out. Every refusal is printed
//! with the workload's key, for `kernel-gen lower KEY --target TARGET`.

use crate::sweep::{for_each, number};
use kernel_gen::emit::cuda::{Arch, CudaOptions, emit};
use kernel_gen::generate::try_workload;
use kernel_gen::ir::DType;
use kernel_gen::lower::lower_for;
use kernel_gen::model::Options;
use kernel_gen::records::{BestRecords, Choice};
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::Task;
use kernel_gen::tune::landscape::Landscape;
use kernel_gen::workload::sample::{self, Rng};
use kernel_gen::workload::{Conv2d, ConvLayout, Matmul, Range, Workload, operator_names};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The longest that a check of one workload on one target may take in release.
const LONGEST: Duration = Duration::from_secs(2);

fn targets() -> Vec<&'static Target> {
    match std::env::var("KERNEL_GEN_TARGETS") {
        Ok(names) => names.split(',').map(|n| Target::find(n).unwrap_or_else(|| panic!("no target {n}"))).collect(),
        Err(_) => Target::all().iter().collect(),
    }
}

#[derive(Default)]
struct Seen {
    checks: usize,
    refused: Vec<String>,
    slow: Vec<(Duration, String)>,
}

impl Seen {
    fn add(&mut self, took: Duration, what: String, refusals: Vec<String>) {
        self.checks += 1;
        self.refused.extend(refusals.into_iter().map(|reason| format!("{what}: {reason}")));
        self.slow.push((took, what));
        self.slow.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        self.slow.truncate(12);
    }

    /// Prints what was seen, and fails where a choice was refused or, in release, a check took too long.
    fn report(mut self, what: &str) {
        self.refused.sort();
        let short = |text: &String| text.chars().take(600).collect::<String>();
        self.refused.iter().for_each(|text| println!("refused: {}", short(text)));
        self.slow.iter().for_each(|(took, text)| println!("slow: {took:?} {text}"));
        println!("{} checks of {what}, {} refused, {:?} at most", self.checks, self.refused.len(), self.slow[0].0);
        assert!(self.refused.is_empty(), "{} refused: {}", self.refused.len(), short(&self.refused[0]));
        assert!(cfg!(debug_assertions) || self.slow[0].0 < LONGEST, "{:?}", self.slow[0]);
    }
}

/// Checks a workload as a build does: the refusals, a panic among them.
fn check(workload: &Workload, target: &Target, registry: &Registry) -> Vec<String> {
    let refusals = |choice: &Choice| choice.unusable.iter().map(|p| format!("{}: {}", p.choice, p.reason)).collect();
    tried((workload, None), target, registry).map_or_else(|refused| vec![refused], |choice| refusals(&choice))
}

/// What a build would do, for each number of units if there is a range; else why nothing works, or the panic.
fn tried(of: (&Workload, Option<&Range>), target: &Target, registry: &Registry) -> Result<Choice, String> {
    let tried =
        catch_unwind(AssertUnwindSafe(|| try_workload(of, target, &BestRecords::new(), registry, &Options::default())));
    match tried {
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
        Ok(tried) => tried.map(|tried| tried.choice).map_err(|error| format!("no choice works: {error}")),
    }
}

#[test]
fn what_is_chosen_for_random_workloads_becomes_code() {
    let (count, seed) = (number("KERNEL_GEN_WORKLOADS", 60), number("KERNEL_GEN_SEED", 1));
    let (targets, registry, seen) = (targets(), Registry::builtin(), Mutex::new(Seen::default()));
    // A small sample draws targets, too.
    let every = std::env::var("KERNEL_GEN_WORKLOADS").is_ok();
    for_each(count as usize, |i| {
        let mut rng = Rng::new(seed.wrapping_mul(1 << 32).wrapping_add(i as u64));
        let workload = sample::any_size(&mut rng);
        let drawn = [*rng.pick(&targets), *rng.pick(&targets)];
        for target in if every { &targets[..] } else { &drawn } {
            let start = Instant::now();
            let refusals = check(&workload, target, &registry);
            let what = format!("{} {}", workload.key(), target.name);
            seen.lock().unwrap().add(start.elapsed(), what, refusals);
        }
    });
    seen.into_inner().unwrap().report(&format!("{count} workloads of seed {seed} on {} targets", targets.len()));
}

#[test]
fn what_is_chosen_for_every_operator_becomes_code() {
    let (count, seed) = (number("KERNEL_GEN_WORKLOADS", 2), number("KERNEL_GEN_SEED", 1));
    let (targets, registry, seen) = (targets(), Registry::builtin(), Mutex::new(Seen::default()));
    let names: Vec<&str> = operator_names().collect();
    for_each(names.len() * count as usize, |i| {
        let mut rng = Rng::new(seed.wrapping_mul(1 << 32).wrapping_add(i as u64));
        let workload = sample::of_network_size(names[i % names.len()], &mut rng);
        for target in [*rng.pick(&targets), *rng.pick(&targets)] {
            let start = Instant::now();
            let refusals = check(&workload, target, &registry);
            seen.lock().unwrap().add(start.elapsed(), format!("{} {}", workload.key(), target.name), refusals);
        }
    });
    seen.into_inner().unwrap().report(&format!("{count} workloads of each operator, seed {seed}"));
}

/// Workloads of every operator whose number of images or rows varies: there is a kernel that can run each of them.
#[test]
fn what_is_chosen_for_ranges_becomes_code() {
    let (count, seed) = (number("KERNEL_GEN_WORKLOADS", 1), number("KERNEL_GEN_SEED", 1));
    let (targets, registry, refused) = (targets(), Registry::builtin(), Mutex::new(vec![]));
    let names: Vec<&str> = operator_names().collect();
    for_each(names.len() * count as usize, |i| {
        let mut rng = Rng::new(seed.wrapping_mul(1 << 32).wrapping_add(i as u64));
        let workload = sample::of_network_size(names[i % names.len()], &mut rng);
        let Some((workload, range)) = Range::up_to(&workload, *rng.pick(&[2, 5, 16])) else { return };
        let target = *rng.pick(&targets);
        if let Err(why) = tried((&workload, Some(&range)), target, &registry) {
            refused.lock().unwrap().push(format!("{} of 1 to {} {}: {why}", workload.key(), range.most, target.name));
        }
    });
    let refused = refused.into_inner().unwrap();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Workloads of which a choice was refused once, with the target, by kinds.
const ONCE_REFUSED: [(&str, &str); 10] = [
    // Loops too long to try all iterations of, whose guards keep them apart.
    ("conv2d-nchw-bf16-n1c32h1920w38-o80k3x5-s3x3-p3.3.0.1-d1x2-g2-bias", "x86-64-v3"),
    ("batch_matmul-f32-b384m24n33k1536-nt", "x86-64-v3"),
    ("conv2d-nhwc-f32-n3c21h38w38-o672k3x3-s1x1-p1.1.1.1-d1x1-g3", "x86-64-v3"),
    // A copy of the padding, larger than what is left of it once it is inlined.
    ("conv2d-hwcn-f32-local-n1c384h5w5-o16k1x1-s4x4-p4.3.3.3-d1x1-g1", "sm_75"),
    // Copies in shared memory for a sum of one term.
    ("depthwise_pointwise-nchw-f16-n64c240h28w28-o96k1x1-s1x1-p1.0.0.3-d4x3-dw.gelu", "sm_89"),
    ("depthwise_pointwise-nchw-f32-n1c816h38w38-o384k1x1-s1x1-p0.0.0.0-d1x1-dw.bias.relu", "sm_75"),
    // An output of more rows than are marked one by one.
    ("conv2d-nhwc-f32-n128c192h1024w1024-o256k6x6-s1x1-p3.3.3.3-d1x1-g1", "sm_90"),
    // Copies in shared memory that one number counts: it took seconds to follow the elements.
    ("conv2d-nhwc16n16c-f32.bf16-n64c336h39w39-o176k3x3-s1x1-p1.3.4.1-d4x3-g1", "sm_110"),
    // A row behind the last one, which a condition keeps the others off, of more rows than are tried.
    ("conv2d-nchw-f32-n1c64h14w14-o64k3x131071-s1x1-p1.65535.1.65535-d1x1-g1", "sm_90a"),
    // A condition that only one of 1277 blocks meets, so that a column's place in the padded input lost the block's part.
    ("conv2d-nchw-f32-n1c528h263w2-o7k15x17-s4x4-p1.229636.24.2-d1x1-g1-relu6", "sm_70"),
];

/// Workloads that a check once took longer than [`LONGEST`] for, with the target.
const ONCE_SLOW: [(&str, &str); 6] = [
    // A default that was looked for among configs of which nearly none is valid.
    ("depthwise_pointwise-nchw-f32-n1c5h6w6-o6k2x2-s3x3-p2.2.3.0-d1x1-dw.bias.relu", "sm_70"),
    // Tiles and taps that were counted one by one.
    ("conv2d-nchw-f32-n1c1h1w1-o1k1x1-s1x1-p131071.131071.131071.131071-d1x1-g1", "x86-64-v4"),
    ("conv2d-nchw-f32-n1c1h1w1-o1k8191x8191-s1x1-p8190.8190.8190.8190-d1x1-g1", "x86-64-v4"),
    ("conv2d-nchw-f32-n1c1h8191w8191-o1k8191x8191-s1x1-p8190.8190.8190.8190-d1x1-g1", "sm_90a"),
    ("matmul-f32-m1n1k68719476736-nn", "x86-64-v4"),
    ("matmul-f32-m34359738368n1k1-nn", "sm_90a"),
];

#[test]
fn what_was_refused_or_slow_once_becomes_code() {
    let (registry, mut seen) = (Registry::builtin(), Seen::default());
    for (key, target) in ONCE_REFUSED.into_iter().chain(ONCE_SLOW) {
        let workload = Workload::from_key(key).unwrap_or_else(|e| panic!("{key}: {e}"));
        let target = Target::find(target).unwrap_or_else(|| panic!("no target {target}"));
        let start = Instant::now();
        let refusals = check(&workload, target, &registry);
        seen.add(start.elapsed(), format!("{key} {}", target.name), refusals);
    }
    seen.report("workloads that were refused or slow once");
}

/// Workloads of every operator of which one extent is as large as it can be, beside small ones.
fn one_large_extent() -> Vec<Workload> {
    let mut all = vec![];
    let exponents: [u32; 7] = [12, 16, 17, 21, 29, 31, 34];
    for (small, large) in [1, 64].into_iter().flat_map(|small| exponents.map(|e| (small, (1i64 << e) + small / 64))) {
        let extent = |of: usize, i: usize| if of == i { large } else { small };
        for at in 0..6 {
            let [n, ci, side, co] = [0, 1, 2, 4].map(|i| extent(at, i));
            let taps = if at == 5 { large } else { 1 };
            let c = Conv2d::nchw(n, ci, side, side, co, 1, 1, 0);
            let c = Conv2d { w: extent(at, 3), h: extent(at, 2), kh: taps, padding: [taps - 1, 0, taps - 1, 0], ..c };
            let layouts = [ConvLayout::Nchw, ConvLayout::Nhwc, ConvLayout::Hwcn];
            all.extend(layouts.map(|layout| Workload::f32(Conv2d { layout, ..c })));
            all.extend(layouts[..2].iter().map(|layout| Workload::f32(Conv2d { layout: *layout, ..c }.depthwise(1))));
        }
        for at in 0..4 {
            let [batch, m, n, k] = [0, 1, 2, 3].map(|i| extent(at, i));
            for (trans_a, trans_b) in [(false, false), (false, true), (true, false)] {
                all.push(Workload::f32(Matmul { batch, trans_a, trans_b, ..Matmul::new(m, n, k) }));
            }
        }
    }
    let sizes = || [16, 29, 34].map(|e: u32| 1i64 << e);
    all.extend(
        operator_names().flat_map(|name| sizes().into_iter().flat_map(|size| sample::one_large_size(name, size))),
    );
    all.extend(all.clone().into_iter().map(|w| w.with_dtype(DType::F16)));
    all.retain(|w| w.validate().is_ok());
    all
}

#[test]
fn one_large_extent_becomes_code() {
    let (targets, registry, seen) = (targets(), Registry::builtin(), Mutex::new(Seen::default()));
    let all = one_large_extent();
    assert!(all.len() > 300, "{}", all.len());
    let every = std::env::var("KERNEL_GEN_WORKLOADS").is_ok();
    for_each(all.len(), |i| {
        for (j, target) in targets.iter().enumerate().filter(|(j, _)| every || (i + j) % 50 == 0) {
            let start = Instant::now();
            let refusals = check(&all[i], target, &registry);
            seen.lock().unwrap().add(start.elapsed(), format!("{} {}", all[i].key(), targets[j].name), refusals);
        }
    });
    seen.into_inner().unwrap().report("workloads with one large extent");
}

/// Makes the source of one config, verified: why it cannot be.
fn becomes_code(task: &Task<'_>, index: u64) -> Result<(), String> {
    let config = task.space.get(index).ok_or("it is not in the space")?;
    let made = task.template.schedule(&task.workload, task.target, &config).map_err(|e| e.to_string())?;
    let lowered = lower_for(made.schedule.kernel, task.target).map_err(|e| e.to_string())?;
    let arch = Arch::of(task.target).ok_or("its target has no CUDA")?;
    let options = CudaOptions { arch, symbol: "kernel".into(), comment: config.to_string(), min_blocks: None };
    emit(&lowered, &options).map(drop).map_err(|e| e.to_string())
}

/// A part of them, or all where the full sweep is asked for.
#[test]
fn configs_of_recorded_landscapes_become_code() {
    let every = if std::env::var("KERNEL_GEN_WORKLOADS").is_ok() { 1 } else { 64 };
    let (registry, seen) = (Registry::builtin(), Mutex::new(Seen::default()));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../specs/landscapes");
    let files = std::fs::read_dir(folder).expect("the landscapes are there").map(|entry| entry.unwrap().path());
    for file in files.filter(|file| file.extension().is_some_and(|e| e == "gz")) {
        let landscape = Landscape::load(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let task = landscape.task(&registry).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let indices: Vec<u64> = landscape.outcomes.keys().copied().step_by(every).collect();
        for_each(indices.len(), |i| {
            let start = Instant::now();
            let refusal = becomes_code(&task, indices[i]).err();
            let what = format!("{} index {} {}", task.workload.key(), indices[i], task.target.name);
            seen.lock().unwrap().add(start.elapsed(), what, refusal.into_iter().collect());
        });
    }
    seen.into_inner().unwrap().report("configs of recorded landscapes");
}
