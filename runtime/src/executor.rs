//! Who runs the workers of a launch.

/// Runs a body on several workers at once. [`crate::Cpu`] brings its own pool; implement this to run kernels on
/// threads that the program already has.
pub trait Executor: Send + Sync {
    /// How many workers can run at the same time.
    fn workers(&self) -> usize;

    /// Calls `body` with each of `0..workers`, on any threads in any order, and returns when all calls have
    /// returned. `workers` is at most [`Executor::workers`]. A call that is left out is made up for by the caller of
    /// this function, so an executor can only lose time by breaking this contract.
    fn run(&self, workers: usize, body: &(dyn Fn(usize) + Sync));
}

/// Runs kernels on a rayon thread pool.
#[cfg(feature = "rayon")]
#[derive(Clone, Default)]
pub struct Rayon {
    pool: Option<std::sync::Arc<rayon::ThreadPool>>,
}

#[cfg(feature = "rayon")]
impl Rayon {
    /// Rayon's global pool.
    pub fn global() -> Rayon {
        Rayon { pool: None }
    }

    /// A pool of the caller's.
    pub fn pool(pool: std::sync::Arc<rayon::ThreadPool>) -> Rayon {
        Rayon { pool: Some(pool) }
    }
}

#[cfg(feature = "rayon")]
impl Executor for Rayon {
    fn workers(&self) -> usize {
        match &self.pool {
            Some(pool) => pool.current_num_threads(),
            None => rayon::current_num_threads(),
        }
    }

    fn run(&self, workers: usize, body: &(dyn Fn(usize) + Sync)) {
        fn fork<'s>(scope: &rayon::Scope<'s>, workers: usize, body: &'s (dyn Fn(usize) + Sync)) {
            for worker in 1..workers {
                scope.spawn(move |_| body(worker));
            }
            body(0);
        }
        match &self.pool {
            Some(pool) => pool.in_place_scope(|scope| fork(scope, workers, body)),
            None => rayon::in_place_scope(|scope| fork(scope, workers, body)),
        }
    }
}
