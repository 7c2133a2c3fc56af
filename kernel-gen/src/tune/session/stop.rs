//! How a session is asked to end early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A switch that many can hold. Once it is on, a session begins no more trials.
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A switch that is off.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Turns it on and says whether it was on before.
    pub fn ask(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// Whether it is on.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
