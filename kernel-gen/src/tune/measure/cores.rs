//! Processors, shared between compilers and the kernel that is timed.

use std::sync::{Condvar, Mutex, PoisonError};

/// Processors that are free. Whoever times waits for few at most: no compilation begins while it waits.
pub(super) struct Cores {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: usize,
    timing_waits: bool,
}

/// Processors that are in use until this is dropped.
pub(super) struct Lease<'a> {
    cores: &'a Cores,
    count: usize,
}

impl Cores {
    pub(super) fn new(count: usize) -> Cores {
        Cores { state: Mutex::new(State { free: count.max(1), timing_waits: false }), changed: Condvar::new() }
    }

    /// One for a compilation.
    pub(super) fn to_build(&self) -> Lease<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |s: &mut State| s.free == 0 || s.timing_waits;
        let mut state = self.changed.wait_while(state, busy).unwrap_or_else(PoisonError::into_inner);
        state.free -= 1;
        Lease { cores: self, count: 1 }
    }

    /// So many to time on. Only one thread times.
    pub(super) fn to_time(&self, count: usize) -> Lease<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.timing_waits = true;
        let mut state = self.changed.wait_while(state, |s| s.free < count).unwrap_or_else(PoisonError::into_inner);
        state.timing_waits = false;
        state.free -= count;
        drop(state);
        self.changed.notify_all();
        Lease { cores: self, count }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.cores.state.lock().unwrap_or_else(PoisonError::into_inner).free += self.count;
        self.cores.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn nothing_is_compiled_while_all_processors_time() {
        let (cores, building) = (Cores::new(2), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _core = cores.to_build();
                        assert!(building.fetch_add(1, Ordering::SeqCst) < 2);
                        std::thread::yield_now();
                        building.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..50 {
                let both = cores.to_time(2);
                assert_eq!(building.load(Ordering::SeqCst), 0);
                drop(both);
                let _one = cores.to_time(1);
                assert!(building.load(Ordering::SeqCst) < 2);
            }
        });
    }
}
