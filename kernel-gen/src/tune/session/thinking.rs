//! Threads on which tuners think, so that a session can serve its measurer meanwhile.

use super::feed::Thought;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

/// What came of thinking: the entry, and what its tuner thought of, unless it panicked.
type Answer<'t> = (usize, thread::Result<Thought<'t>>);

/// Threads that think.
pub(super) struct Thinkers<'t> {
    ask: Sender<(usize, Thought<'t>)>,
    answers: Receiver<Answer<'t>>,
    /// How many tuners are away.
    pub(super) away: usize,
}

impl<'t> Thinkers<'t> {
    /// Starts the threads. They end when this is dropped.
    pub(super) fn start<'scope>(scope: &'scope Scope<'scope, '_>, threads: usize) -> Thinkers<'t>
    where
        't: 'scope,
    {
        let (ask, asked) = channel::<(usize, Thought<'t>)>();
        let (tell, answers) = channel();
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..threads {
            let (asked, tell) = (Arc::clone(&asked), tell.clone());
            scope.spawn(move || {
                loop {
                    let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((entry, mut thought)) = next else { return };
                    let thought = catch_unwind(AssertUnwindSafe(|| {
                        thought.think();
                        thought
                    }));
                    if tell.send((entry, thought)).is_err() {
                        return;
                    }
                }
            });
        }
        Thinkers { ask, answers, away: 0 }
    }

    /// Has the tuner of an entry think.
    pub(super) fn ask(&mut self, entry: usize, thought: Thought<'t>) {
        // The threads live as long as this does.
        self.away += usize::from(self.ask.send((entry, thought)).is_ok());
    }

    /// A tuner that comes back within `wait`.
    pub(super) fn answer(&mut self, wait: Duration) -> Option<(usize, Thought<'t>)> {
        if self.away == 0 {
            return None;
        }
        let (entry, thought) = self.answers.recv_timeout(wait).ok()?;
        self.away -= 1;
        Some((entry, thought.unwrap_or_else(|panic| resume_unwind(panic))))
    }
}
