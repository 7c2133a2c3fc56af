//! What is compared: whoever computes a layer, behind one interface.

use crate::layers::{Data, Launch, Layer};
use crate::table::Entry;
use kernel_gen_runtime::Cpu;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// Somebody who computes a layer.
pub(crate) trait Contestant {
    /// Computes the layer once.
    fn run(&mut self) -> Result<(), String>;
    /// How long that many runs take, one right behind the other.
    fn time(&mut self, runs: usize) -> Result<Duration, String> {
        let start = Instant::now();
        for _ in 0..runs {
            self.run()?;
        }
        Ok(start.elapsed())
    }
    /// Computes the layer into a buffer of values that are no numbers, and gives the result as a plain tensor.
    fn result(&mut self) -> Result<Vec<f32>, String>;
}

/// A layer with those who compute it.
pub(crate) struct Contest<'a> {
    pub(crate) name: String,
    pub(crate) shape: String,
    /// How often the network runs it.
    pub(crate) count: u32,
    /// Floating-point operations, those that meet padding included.
    pub(crate) flops: f64,
    /// Ours is the first.
    pub(crate) contestants: Vec<Box<dyn Contestant + 'a>>,
    /// What is known of each before it is timed, in the same order.
    pub(crate) entries: Vec<Entry>,
}

/// A cache line of values.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// A tensor that starts on a cache line, as every library allocates them.
pub(crate) struct Aligned {
    lines: Vec<Line>,
    length: usize,
}

impl FromIterator<f32> for Aligned {
    fn from_iter<I: IntoIterator<Item = f32>>(values: I) -> Aligned {
        let values: Vec<f32> = values.into_iter().collect();
        let line = |chunk: &[f32]| {
            let mut line = Line([0.0; 16]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            line
        };
        Aligned { lines: values.chunks(16).map(line).collect(), length: values.len() }
    }
}

impl Deref for Aligned {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: the lines are `16 * lines.len()` values without gaps, at least `length` of them; the pointer of an empty
        // vector is aligned and not null.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }
}

/// A tensor that a C library writes to: it is reached through a pointer only, which stays valid until it is dropped.
pub(crate) struct Pinned {
    data: *mut f32,
    lines: usize,
    length: usize,
}

impl Pinned {
    pub(crate) fn new(length: usize) -> Pinned {
        let lines = vec![Line([0.0; 16]); length.div_ceil(16)].into_boxed_slice();
        Pinned { lines: lines.len(), data: Box::into_raw(lines).cast(), length }
    }

    pub(crate) fn as_ptr(&self) -> *const f32 {
        self.data
    }

    /// Fills it with values that are no numbers.
    pub(crate) fn poison(&mut self) {
        for i in 0..self.length {
            // SAFETY: inside of the allocation; nobody reads it meanwhile, since whoever does borrows its owner.
            unsafe { self.data.add(i).write(f32::NAN) }
        }
    }

    pub(crate) fn to_vec(&self) -> Vec<f32> {
        // SAFETY: as above; all values are initialised.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }.to_vec()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the pointer and the length came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data.cast::<Line>(), self.lines)) });
    }
}

/// Our kernel.
pub(crate) struct Ours<'a> {
    dev: Cpu,
    data: &'a Data,
    launch: Launch,
    y: Vec<Line>,
    length: usize,
}

impl<'a> Ours<'a> {
    pub(crate) fn new(dev: &Cpu, layer: &Layer, data: &'a Data) -> Result<Ours<'a>, String> {
        let launch = (layer.prepare)(dev, data).map_err(|e| e.to_string())?;
        let length: usize = layer.problem.op.output().iter().product();
        Ok(Ours { dev: dev.clone(), data, launch, y: vec![Line([0.0; 16]); length.div_ceil(16)], length })
    }

    fn y(lines: &mut [Line], length: usize) -> &mut [f32] {
        // SAFETY: the lines are values without gaps, at least `length` of them, and borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), length) }
    }
}

impl Contestant for Ours<'_> {
    fn run(&mut self) -> Result<(), String> {
        (self.launch)(&self.dev, self.data, Ours::y(&mut self.y, self.length)).map_err(|e| e.to_string())
    }

    fn result(&mut self) -> Result<Vec<f32>, String> {
        Ours::y(&mut self.y, self.length).fill(f32::NAN);
        self.run()?;
        Ok(Ours::y(&mut self.y, self.length).to_vec())
    }
}
