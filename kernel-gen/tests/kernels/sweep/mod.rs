//! Suites that CI takes a sample of: how large the sample is, and all processors for it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of the environment (`KERNEL_GEN_WORKLOADS`, `KERNEL_GEN_SEED`, `KERNEL_GEN_CONFIGS`), or else what CI takes.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is no number: {n}")))
}

/// Does something with each number below `count`, on all processors.
pub(crate) fn for_each(count: usize, job: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count) {
                    job(i);
                }
            });
        }
    });
}
