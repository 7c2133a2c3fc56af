//! Compares memory where it lies.
//!
//! A candidate must leave its inputs as they were. Bringing them back to look costs more than everything else where
//! they are large: the weights of a fully connected layer have 400 MB.

use super::{Bench, Code, Guarded, Start};
use crate::cuda::CudaError;

/// Tells whether memory has changed.
pub struct Differ<'b> {
    bench: &'b Bench,
    code: Code<'b>,
    start: Start,
    flag: Guarded,
}

const CODE: &str = include_str!("differ.ptx");

impl<'b> Differ<'b> {
    /// Loads the kernel that compares.
    ///
    /// # Errors
    /// If the driver does not take it, or there is no memory left.
    pub fn new(bench: &'b Bench) -> Result<Differ<'b>, CudaError> {
        let start = Start {
            kernel: "differ".into(),
            grid: [8 * bench.facts().multiprocessors.max(1), 1, 1],
            block: [256, 1, 1],
            cluster: [1; 3],
            shared_bytes: 0,
            overlap: false,
            args: vec![],
        };
        let code = bench.load(CODE.as_bytes(), std::slice::from_ref(&start))?;
        Ok(Differ { bench, code, start, flag: bench.poisoned(4)? })
    }

    /// Whether two stretches of memory of the same size, or their canaries, differ once everything that was launched has
    /// ended. Those of different sizes do.
    ///
    /// # Errors
    /// What the driver says, of what was launched before too.
    pub fn differ(&mut self, one: &Guarded, other: &Guarded) -> Result<bool, CudaError> {
        let ((a, steps), (b, others)) = (one.steps(), other.steps());
        if one.bytes() != other.bytes() || steps != others {
            return Ok(true);
        }
        self.bench.poison(&mut self.flag)?;
        let words = [a, b, steps, self.flag.address()];
        self.bench.launch(&self.bench.bind_words(&self.code, &self.start, &words))?;
        // The flag is poison where nothing was found.
        Ok(self.bench.download(&self.flag)?.data == 1_u32.to_ne_bytes())
    }
}
