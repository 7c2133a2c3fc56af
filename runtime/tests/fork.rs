//! A device in a forked process, where the threads of its pool are not.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a process is forked")]

use kernel_gen_runtime::Cpu;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

/// Runs something in a forked process. How that ends is its exit status, or the negated signal: -14 if it takes 5 seconds.
fn in_a_child(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls nothing but `body` and then ends; glibc's allocator works in it.
    let process = unsafe { fork() };
    if process == 0 {
        // SAFETY: it has no pointers.
        unsafe { alarm(5) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: as above. Nothing of the parent's is dropped.
        unsafe { _exit(i32::from(!done.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { waitpid(process, &mut status, 0) }, process);
    // The lowest seven bits are the signal, and the status is above them.
    if status & 0x7f == 0 { status >> 8 } else { -(status & 0x7f) }
}

/// Whether a split covers its extent.
fn works(dev: &Cpu) -> bool {
    let done = AtomicUsize::new(0);
    (0..50).for_each(|_| {
        dev.split(1000, &|_, range| {
            done.fetch_add(range.len(), Ordering::Relaxed);
        });
    });
    done.into_inner() == 50_000
}

#[test]
fn a_forked_process_launches_calls_each_worker_and_drops_the_device() {
    for nap in [0, 20] {
        let dev = Cpu::with_threads(3);
        assert!(works(&dev));
        // Awake, and asleep.
        std::thread::sleep(Duration::from_millis(nap));
        assert_eq!(in_a_child(|| works(&dev)), 0, "launches");
        let calls = || {
            let calls = AtomicUsize::new(0);
            dev.on_each_thread(&|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            calls.into_inner() == 3
        };
        assert_eq!(in_a_child(calls), 0, "a body for each thread");
        assert_eq!(in_a_child(|| works(&Cpu::with_threads(3))), 0, "a new device");
        // The one that drops the last handle, after it was used and before.
        let mut last = Some(dev);
        assert_eq!(in_a_child(|| works(&last.take().unwrap())), 0, "the device is dropped after a launch");
        assert_eq!(in_a_child(|| last.take().is_some()), 0, "the device is dropped at once");
        assert!(works(&last.unwrap()), "the parent's goes on");
    }
}
