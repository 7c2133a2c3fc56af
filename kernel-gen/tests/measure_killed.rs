//! Processes of candidates that are killed from outside, at moments that nobody chose. A program of its own, because it
//! kills whatever candidate it has.
#![cfg(all(feature = "tune", target_os = "linux"))]

use kernel_gen::records::{FailureKind, Outcome};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::tune::Task;
use kernel_gen::tune::measure::{self, JobId, Options};
use kernel_gen::workload::{Conv2d, Workload};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The processes of this one that run candidates.
fn harnesses() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children: String =
        threads.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default() + " ").collect();
    let is_harness = |id: &&str| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|c| c == "harness\n");
    children.split_whitespace().filter(is_harness).map(String::from).collect()
}

#[test]
fn processes_that_are_killed_cost_at_most_the_trial_in_flight() {
    const KILLS: usize = 20;
    let registry = Registry::builtin();
    let levels = Target::cpu_levels(std::env::consts::ARCH);
    let target = levels.into_iter().rev().find(|t| t.cpu().is_some()).expect("every architecture has a lowest level");
    // Large enough that a candidate runs for some time.
    let workload = Workload::f32(Conv2d::nchw(1, 64, 28, 28, 64, 3, 1, 1));
    let task = Task::new(workload, target, registry.find("conv2d_direct").unwrap()).unwrap();
    let configs: Vec<Config> = task.space.sample(2).map(|(_, c)| c).take(3).collect();
    let (done, kills) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut submitted, mut timed, mut crashed) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pause = 1;
            while !done.load(Ordering::Relaxed) && kills.load(Ordering::Relaxed) < KILLS {
                // Moments that are spread over what a candidate's process does.
                pause = pause * 7 % 31;
                std::thread::sleep(Duration::from_millis(pause));
                for id in harnesses() {
                    let killed = std::process::Command::new("kill")
                        .args(["-9", &id])
                        .stderr(std::process::Stdio::null())
                        .status();
                    kills.fetch_add(usize::from(killed.is_ok_and(|s| s.success())), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(40));
                }
            }
        });
        let options = Options { build_limit: Some(Duration::from_secs(60)), ..Options::default() };
        let mut attached = measure::for_target(scope, target, options).unwrap();
        let mut configs = configs.iter().cycle();
        let mut under_way = 0;
        loop {
            while submitted < 200 && kills.load(Ordering::Relaxed) < KILLS && under_way < 3 {
                attached.measurer.submit(JobId(submitted), &task, configs.next().unwrap());
                submitted += 1;
                under_way += 1;
            }
            let Some((_, outcome)) = attached.measurer.next(Duration::from_secs(300)) else { break };
            under_way -= 1;
            match outcome {
                Outcome::Timed(_) => timed += 1,
                Outcome::Failed(why) if why.kind == FailureKind::Crash => crashed += 1,
                other => panic!("{other:?}"),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let kills = kills.load(Ordering::Relaxed);
    assert_eq!(timed + crashed, submitted, "every trial has an outcome");
    assert!(kills >= KILLS && 2 * crashed <= kills as u64, "{kills} kills, {crashed} of {submitted} trials lost");
}
