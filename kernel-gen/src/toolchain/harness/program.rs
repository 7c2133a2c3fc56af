//! A kernel's shared object.

use super::folder::{Folder, io_error};
use super::tables::{self, Buffer, PackSource};
use super::{HarnessError, Host, Session};
use crate::emit::c::CSource;
use crate::ir::{Access, DType, Kernel};
use crate::toolchain::values::{decode, encode};
use crate::toolchain::{Compiler, Warnings};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A parameter as the harness passes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name in the kernel.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Elements from first to last, padding included.
    pub elements: usize,
    /// How the kernel uses it.
    pub access: Access,
}

/// A kernel's shared object. Its files vanish with it.
#[derive(Debug)]
pub struct Program {
    folder: Folder,
    host: Arc<Host>,
    buffers: Vec<Buffer>,
    params: Vec<Param>,
}

/// What a timed run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Time of one call in each sample, in the order they were taken.
    pub samples_ns: Vec<f64>,
    /// FLOP per ns of a loop of fused multiply-adds on one core beside each sample; 0 where it is unknown.
    pub peak_gflops: Vec<f64>,
}

impl Timing {
    /// The median time of a call.
    pub fn median_ns(&self) -> f64 {
        median(&self.samples_ns)
    }

    /// The fastest sample.
    pub fn best_ns(&self) -> f64 {
        self.samples_ns.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The median peak of one core, in GFLOP/s.
    pub fn peak_gflops(&self) -> f64 {
        median(&self.peak_gflops)
    }
}

fn median(v: &[f64]) -> f64 {
    let mut v = v.to_vec();
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How to time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeOptions {
    /// Workers, pinned to a processor each.
    pub threads: usize,
    /// Samples to take.
    pub samples: usize,
    /// A sample repeats the call until it takes at least this long.
    pub min_sample: Duration,
    /// The process is ended after this time.
    pub timeout: Duration,
}

impl Default for TimeOptions {
    fn default() -> Self {
        TimeOptions { threads: 1, samples: 15, min_sample: Duration::from_millis(2), timeout: Duration::from_secs(60) }
    }
}

/// How to run checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// Into how many shares parallel phases are cut.
    pub workers: usize,
    /// The process is ended after this time.
    pub timeout: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { workers: 3, timeout: Duration::from_secs(60) }
    }
}

/// How long the compiler may take for a kernel of whoever sets no limit.
const BUILD_LIMIT: Duration = Duration::from_secs(600);

impl Program {
    /// Compiles the source. `kernel` is the kernel that the source was emitted from. What the compiler warns of is an error.
    pub fn build(compiler: &Compiler, source: &CSource, kernel: &Kernel) -> Result<Program, HarnessError> {
        let host = Host::of(compiler, source.isa)?;
        let mut program = Program::make(compiler, &host, source, kernel, &[], Warnings::Deny, BUILD_LIMIT)?;
        let access = |i: usize| kernel.buffer(kernel.params[i]).access;
        program.params = (program.buffers.iter().enumerate())
            .map(|(i, b)| Param { name: b.name.clone(), dtype: b.dtype, elements: b.elements, access: access(i) })
            .collect();
        Ok(program)
    }

    /// Compiles the source for a host, with what packs its parameters, within a time limit.
    pub fn build_with(
        compiler: &Compiler,
        host: &Arc<Host>,
        source: &CSource,
        kernel: &Kernel,
        packs: &[PackSource<'_>],
        limit: Duration,
    ) -> Result<Program, HarnessError> {
        Program::make(compiler, host, source, kernel, packs, Warnings::Ignore, limit)
    }

    fn make(
        compiler: &Compiler,
        host: &Arc<Host>,
        source: &CSource,
        kernel: &Kernel,
        packs: &[PackSource<'_>],
        warnings: Warnings,
        limit: Duration,
    ) -> Result<Program, HarnessError> {
        let folder = Folder::new()?;
        let (buffers, arguments) = tables::buffers(kernel, packs);
        let mut text = source.source.clone();
        text += &tables::tables(source, packs, &buffers, &arguments);
        let main = folder.write("kernel.c", text.as_bytes())?;
        let mut sources = vec![main];
        for pack in packs {
            sources.push(host.object(compiler, &pack.source.source, limit)?);
        }
        let paths: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        host.compile(compiler, &paths, warnings, &folder.join("kernel.so"), limit)?;
        Ok(Program { folder, host: Arc::clone(host), buffers, params: vec![] })
    }

    /// The kernel's parameters.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Starts a process for the kernel. The file holds the parameters that it reads, one after the other, those that are
    /// packed as they are before. It may map so many bytes of memory, 0 for any number.
    pub fn start(&self, input: &Path, memory_bytes: u64) -> Result<Session, HarnessError> {
        Session::start(&self.host.program(), &self.folder.join("kernel.so"), input, memory_bytes)
    }

    /// A file in the program's folder that vanishes with it.
    pub fn scratch(&self, name: &str) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.folder.join(&format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    fn write_inputs(&self, inputs: &[Vec<u8>]) -> Result<PathBuf, HarnessError> {
        if inputs.len() != self.buffers.len() {
            return Err(HarnessError::Inputs {
                cause: format!("the kernel has {} parameters, but {} were given", self.buffers.len(), inputs.len()),
            });
        }
        let mut all = vec![];
        for (b, data) in self.buffers.iter().zip(inputs).filter(|(b, _)| b.given) {
            if data.len() != b.bytes() {
                return Err(HarnessError::Inputs {
                    cause: format!("`{}` has {} bytes, but {} were given", b.name, b.bytes(), data.len()),
                });
            }
            all.extend_from_slice(data);
        }
        let path = self.scratch("input");
        fs::write(&path, &all).map_err(|e| io_error(&path, &e))?;
        Ok(path)
    }

    /// Runs checked. One entry a parameter, in order; entries of parameters that are only written are ignored. The result
    /// has the bytes of those that are written, and nothing for the others.
    pub fn run_bytes(&self, inputs: &[Vec<u8>], options: &RunOptions) -> Result<Vec<Vec<u8>>, HarnessError> {
        let (input, output) = (self.write_inputs(inputs)?, self.scratch("output"));
        self.start(&input, 0)?.check(options.workers, &output, options.timeout)?;
        let bytes = fs::read(&output).map_err(|e| io_error(&output, &e))?;
        // Large inputs would pile up until the program is dropped.
        let _ = fs::remove_file(&input);
        let _ = fs::remove_file(&output);
        let mut rest = bytes.as_slice();
        let mut out = vec![];
        for b in &self.buffers {
            let n = if b.wanted { b.bytes().min(rest.len()) } else { 0 };
            out.push(rest[..n].to_vec());
            rest = &rest[n..];
        }
        Ok(out)
    }

    /// [`Program::run_bytes`] with numbers.
    pub fn run(&self, inputs: &[Vec<f64>], options: &RunOptions) -> Result<Vec<Vec<f64>>, HarnessError> {
        let out = self.run_bytes(&self.encode(inputs), options)?;
        Ok(self.buffers.iter().zip(out).map(|(b, bytes)| decode(b.dtype, &bytes)).collect())
    }

    /// Times calls with these inputs, the same in all calls.
    pub fn time(&self, inputs: &[Vec<f64>], options: &TimeOptions) -> Result<Timing, HarnessError> {
        let input = self.write_inputs(&self.encode(inputs))?;
        let mut session = self.start(&input, 0)?;
        session.prepare(options.threads, (options.min_sample, 1), u64::MAX, options.timeout)?;
        let samples = session.sample(options.samples, options.timeout)?;
        let _ = fs::remove_file(&input);
        Ok(Timing {
            samples_ns: samples.iter().map(|s| s.ns).collect(),
            peak_gflops: samples.iter().map(|s| s.peak_gflops).collect(),
        })
    }

    fn encode(&self, inputs: &[Vec<f64>]) -> Vec<Vec<u8>> {
        // Too few inputs are reported when they are written.
        let bytes = |(i, v): (usize, &Vec<f64>)| self.buffers.get(i).map(|b| encode(b.dtype, v)).unwrap_or_default();
        inputs.iter().enumerate().map(bytes).collect()
    }
}
