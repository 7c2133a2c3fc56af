//! What is chosen for a workload becomes code: no choice of ours is refused by our own verifier, lowering or emission.
//!
//! A build does not end where that happens, since another choice takes the place of the refused one. But it is a defect of a
//! template or a gap in the verifier's proofs, and the code that takes the place may be slow.
//!
//! The full sweep is ten thousand workloads on every target, in release:
//!
//! ```text
//! KERNEL_GEN_WORKLOADS=10000 KERNEL_GEN_SEED=1 cargo test --release -p kernel-gen --test never_refused -- --nocapture
//! ```
//!
//! `KERNEL_GEN_SEED` draws others, and `KERNEL_GEN_TARGETS` (names with commas) leaves targets out. Every refusal is printed
//! with the workload's key, for `kernel-gen lower KEY --target TARGET`.

use kernel_gen::generate::try_workload;
use kernel_gen::model::Options;
use kernel_gen::records::BestRecords;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::workload::Workload;
use kernel_gen::workload::sample::{self, Rng};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest that a check of one workload on one target may take in release.
const LONGEST: Duration = Duration::from_secs(2);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is no number: {n}")))
}

fn targets() -> Vec<&'static Target> {
    match std::env::var("KERNEL_GEN_TARGETS") {
        Ok(names) => names.split(',').map(|n| Target::find(n).unwrap_or_else(|| panic!("no target {n}"))).collect(),
        Err(_) => Target::all().iter().collect(),
    }
}

/// Does something with each number below `count`, on all processors.
fn for_each(count: usize, job: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    job(i);
                }
            });
        }
    });
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
    let tried = catch_unwind(AssertUnwindSafe(|| {
        try_workload(workload, target, &BestRecords::new(), registry, &Options::default())
    }));
    match tried {
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            vec![format!("panic: {}", text.unwrap_or_default())]
        }
        Ok(Err(error)) => vec![format!("no choice works: {error}")],
        Ok(Ok(tried)) => tried.choice.unusable.iter().map(|p| format!("{}: {}", p.choice, p.reason)).collect(),
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
