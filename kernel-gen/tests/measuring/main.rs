//! What measures and what writes logs, end to end: `tune`, `bench`, faulty candidates, killed writers.
//!
//! One program, so that it is linked once. Apart from `kernels`, because a processor that is shared with compilers times nothing.
#![cfg(feature = "cli")]

mod bench;
#[path = "../folder/mod.rs"]
mod folder;
mod killed_logs;
mod measure_faults;
mod tune;
