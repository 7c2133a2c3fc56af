//! Threads and cores, as Linux has them.

/// The cores that this process may use.
pub(crate) fn cores() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is a plain array of bits, for which all zeros is a value; the call writes at most the size
    // it is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|core| libc::CPU_ISSET(*core, &set)).collect()
    }
}

/// Keeps the calling thread on one core; whether that was possible.
pub(crate) fn pin(core: usize) -> bool {
    // SAFETY: as above; the call only reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

/// How often the system has taken a core away from a thread of this process that wanted to go on.
pub(crate) fn preemptions() -> i64 {
    // SAFETY: `rusage` is plain numbers, for which all zeros is a value; the call writes one of it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_nivcsw
    }
}

/// Whether another thread of this process is on a core or waits for one, by the state that the system shows. Processor
/// times would not say: those of other threads are brought up to date at the system's ticks only.
pub(crate) fn others_run() -> bool {
    // SAFETY: the call takes nothing and always succeeds.
    let own = unsafe { libc::gettid() }.to_string();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    tasks.flatten().filter(|task| task.file_name().to_str() != Some(&own)).any(|task| {
        // `id (name) state ...`, and the name may hold anything.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_thread_that_spins_is_seen() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
            let seen = (0..1000).any(|_| others_run());
            stop.store(true, Ordering::Relaxed);
            assert!(seen);
        });
    }
}
