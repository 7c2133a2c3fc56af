//! Which core a thread runs on, and whether it kept it.

/// The cores that this process may use.
#[cfg(target_os = "linux")]
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
#[cfg(target_os = "linux")]
pub(crate) fn pin(core: usize) -> bool {
    // SAFETY: as above; the call only reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

/// How often the system has taken a core away from a thread of this process that wanted to go on.
#[cfg(target_os = "linux")]
pub(crate) fn preemptions() -> i64 {
    // SAFETY: `rusage` is plain numbers, for which all zeros is a value; the call writes one of it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_nivcsw
    }
}

/// Unknown here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn preemptions() -> i64 {
    0
}

/// The cores that this process may use, as far as is known here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cores() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Threads cannot be pinned here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_core: usize) -> bool {
    false
}
