//! Runs compiled kernels in a process of their own: checked or timed, never inside this one.
//!
//! A [`Program`] is the emitted C plus a small `main`. A checked run executes the kernel twice, with buffers against an
//! inaccessible page on the left and then on the right, canaries on the other side, different poison in outputs and
//! workspace, and iterations of parallel phases handed out in both orders; the two results must agree to the bit. A
//! timed run interleaves samples with a loop of fused multiply-adds, so that each sample has a measured peak beside it.

use super::values::{decode, encode};
use super::{Compiler, ToolError};
use crate::emit::c::CSource;
use crate::ir::{Access, DType, Kernel};
use std::fmt::{self, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Why a kernel's run gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HarnessError {
    /// It did not compile.
    Tool(ToolError),
    /// The number or size of the inputs is not the kernel's.
    Inputs {
        /// What was wrong.
        cause: String,
    },
    /// It touched memory outside of a buffer.
    OutOfBounds {
        /// The buffer.
        buffer: String,
        /// Bytes from its start.
        offset: i64,
    },
    /// It wrote beside a buffer.
    Canary {
        /// The buffer.
        buffer: String,
        /// Bytes from its start.
        offset: i64,
    },
    /// It wrote a parameter that it may only read.
    InputChanged {
        /// The parameter.
        buffer: String,
    },
    /// Two runs differ: it reads memory that nothing wrote, or its result depends on the order of parallel iterations.
    Unstable {
        /// The output.
        buffer: String,
        /// The first byte that differs.
        offset: i64,
    },
    /// It ran past the time limit.
    Timeout {
        /// The limit in seconds.
        limit_s: u64,
    },
    /// It ended in another way.
    Died {
        /// How.
        cause: String,
    },
}

impl fmt::Display for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HarnessError::Tool(e) => e.fmt(f),
            HarnessError::Inputs { cause } => f.write_str(cause),
            HarnessError::OutOfBounds { buffer, offset } => {
                write!(f, "the kernel touched memory {offset} bytes from the start of `{buffer}`, outside of it")
            }
            HarnessError::Canary { buffer, offset } => {
                write!(f, "the kernel wrote {offset} bytes from the start of `{buffer}`, outside of it")
            }
            HarnessError::InputChanged { buffer } => write!(f, "the kernel wrote `{buffer}`, which it may only read"),
            HarnessError::Unstable { buffer, offset } => write!(
                f,
                "two runs differ at byte {offset} of `{buffer}`: the kernel reads memory that nothing wrote, or depends on \
                 the order of parallel iterations"
            ),
            HarnessError::Timeout { limit_s } => write!(f, "the kernel did not end within {limit_s} s"),
            HarnessError::Died { cause } => write!(f, "the kernel's process died: {cause}"),
        }
    }
}

impl std::error::Error for HarnessError {}

impl From<ToolError> for HarnessError {
    fn from(e: ToolError) -> Self {
        HarnessError::Tool(e)
    }
}

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

impl Param {
    fn bytes(&self) -> usize {
        self.elements * self.dtype.bytes()
    }

    fn reads(&self) -> bool {
        self.access != Access::Write
    }

    fn writes(&self) -> bool {
        self.access != Access::Read
    }
}

/// A kernel compiled with its harness. Its files vanish with it.
#[derive(Debug)]
pub struct Program {
    dir: PathBuf,
    exe: PathBuf,
    params: Vec<Param>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // Left-over files in the temporary folder harm nobody.
        let _ = fs::remove_dir_all(&self.dir);
    }
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

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Program {
    /// Compiles the source with its harness. `kernel` is the kernel that the source was emitted from.
    pub fn build(compiler: &Compiler, source: &CSource, kernel: &Kernel) -> Result<Program, HarnessError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("kernel-gen-{}-{number}", std::process::id()));
        let params: Vec<Param> = kernel
            .params
            .iter()
            .map(|p| {
                let b = kernel.buffer(*p);
                Param {
                    name: b.name.clone(),
                    dtype: b.dtype,
                    elements: usize::try_from(b.extent_elements()).unwrap_or(0),
                    access: b.access,
                }
            })
            .collect();
        let program = Program { exe: dir.join("harness"), dir, params };
        let file = |name: &str, text: &str| write_file(&program.dir.join(name), text.as_bytes());
        fs::create_dir_all(&program.dir).map_err(|e| io_error(&program.dir, &e))?;
        file("kernel.c", &source.source)?;
        file("kernel.h", &source.header)?;
        file("main.c", &main_text(source, &program.params))?;
        compiler.executable(
            &[&program.dir.join("kernel.c"), &program.dir.join("main.c")],
            source.isa.flags(),
            &program.exe,
        )?;
        Ok(program)
    }

    /// The kernel's parameters.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    fn write_inputs(&self, inputs: &[Vec<u8>]) -> Result<PathBuf, HarnessError> {
        if inputs.len() != self.params.len() {
            return Err(HarnessError::Inputs {
                cause: format!("the kernel has {} parameters, but {} were given", self.params.len(), inputs.len()),
            });
        }
        let mut all = vec![];
        for (p, data) in self.params.iter().zip(inputs) {
            if p.reads() {
                if data.len() != p.bytes() {
                    return Err(HarnessError::Inputs {
                        cause: format!("`{}` has {} bytes, but {} were given", p.name, p.bytes(), data.len()),
                    });
                }
                all.extend_from_slice(data);
            }
        }
        let path = self.dir.join(format!("input-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        write_file(&path, &all)?;
        Ok(path)
    }

    /// Runs checked. One entry a parameter, in order; entries of parameters that are only written are ignored. The result
    /// has the bytes of those that are written, and nothing for the others.
    pub fn run_bytes(&self, inputs: &[Vec<u8>], options: &RunOptions) -> Result<Vec<Vec<u8>>, HarnessError> {
        let input = self.write_inputs(inputs)?;
        let output = input.with_extension("out");
        let workers = options.workers.max(1).to_string();
        let mut command = Command::new(&self.exe);
        command.arg("run").arg(&input).arg(&output).arg(workers);
        self.verdict(&mut command, options.timeout)?;
        let bytes = fs::read(&output).map_err(|e| io_error(&output, &e))?;
        // Large inputs would pile up until the program is dropped.
        let _ = fs::remove_file(&input);
        let _ = fs::remove_file(&output);
        let mut rest = bytes.as_slice();
        let mut out = vec![];
        for p in &self.params {
            let n = if p.writes() { p.bytes().min(rest.len()) } else { 0 };
            out.push(rest[..n].to_vec());
            rest = &rest[n..];
        }
        Ok(out)
    }

    /// [`Program::run_bytes`] with numbers.
    pub fn run(&self, inputs: &[Vec<f64>], options: &RunOptions) -> Result<Vec<Vec<f64>>, HarnessError> {
        let out = self.run_bytes(&self.encode(inputs), options)?;
        Ok(self.params.iter().zip(out).map(|(p, b)| decode(p.dtype, &b)).collect())
    }

    /// Times calls with these inputs.
    pub fn time(&self, inputs: &[Vec<f64>], options: &TimeOptions) -> Result<Timing, HarnessError> {
        let input = self.write_inputs(&self.encode(inputs))?;
        let mut command = Command::new(&self.exe);
        command.arg("time").arg(&input).args([
            options.threads.max(1).to_string(),
            options.samples.max(1).to_string(),
            options.min_sample.as_nanos().to_string(),
        ]);
        let text = self.verdict(&mut command, options.timeout)?;
        let _ = fs::remove_file(&input);
        let mut timing = Timing { samples_ns: vec![], peak_gflops: vec![] };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["sample", ns, peak] = words[..]
                && let (Ok(ns), Ok(peak)) = (ns.parse(), peak.parse())
            {
                timing.samples_ns.push(ns);
                timing.peak_gflops.push(peak);
            }
        }
        Ok(timing)
    }

    fn encode(&self, inputs: &[Vec<f64>]) -> Vec<Vec<u8>> {
        // Too few inputs are reported when they are written.
        inputs
            .iter()
            .enumerate()
            .map(|(i, v)| self.params.get(i).map(|p| encode(p.dtype, v)).unwrap_or_default())
            .collect()
    }

    /// Runs the process and reads its last line.
    fn verdict(&self, command: &mut Command, timeout: Duration) -> Result<String, HarnessError> {
        let died = |cause: String| HarnessError::Died { cause };
        let log = self.dir.join(format!("log-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let file = fs::File::create(&log).map_err(|e| io_error(&log, &e))?;
        let mut child =
            command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null()).spawn().map_err(|e| died(e.to_string()))?;
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        let status = loop {
            match child.try_wait().map_err(|e| died(e.to_string()))? {
                Some(status) => break status,
                None if start.elapsed() > timeout => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(HarnessError::Timeout { limit_s: timeout.as_secs() });
                }
                None => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(10));
                }
            }
        };
        let text = fs::read_to_string(&log).map_err(|e| died(e.to_string()))?;
        let _ = fs::remove_file(&log);
        let words: Vec<&str> = text.lines().last().unwrap_or_default().split_whitespace().collect();
        let offset = |w: &str| w.parse().unwrap_or(0);
        match words[..] {
            ["ok"] if status.success() => Ok(text),
            ["fault", buffer, at] => Err(HarnessError::OutOfBounds { buffer: buffer.into(), offset: offset(at) }),
            ["canary", buffer, at] => Err(HarnessError::Canary { buffer: buffer.into(), offset: offset(at) }),
            ["input_changed", buffer, _] => Err(HarnessError::InputChanged { buffer: buffer.into() }),
            ["unstable", buffer, at] => Err(HarnessError::Unstable { buffer: buffer.into(), offset: offset(at) }),
            _ => Err(died(format!("{status}; it said: {}", text.trim()))),
        }
    }
}

fn io_error(file: &Path, error: &std::io::Error) -> ToolError {
    ToolError::Io { file: file.display().to_string(), reason: error.to_string() }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ToolError> {
    fs::write(path, bytes).map_err(|e| io_error(path, &e))
}

/// The `main` of a program: tables of its parameters and phases, then the fixed part.
fn main_text(source: &CSource, params: &[Param]) -> String {
    let mut t = String::from(
        "#define _GNU_SOURCE\n#include \"kernel.h\"\n#include <pthread.h>\n#include <sched.h>\n#include <signal.h>\n\
         #include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <time.h>\n\
         #include <unistd.h>\n\n",
    );
    let _ = writeln!(t, "enum {{ PARAM_COUNT = {}, PHASE_COUNT = {} }};", params.len(), source.phases.len());
    let _ = writeln!(t, "static const int64_t WORKSPACE_BYTES = {};", source.workspace_bytes);
    let _ = writeln!(t, "static const int64_t WORKER_BYTES = {};", source.worker_bytes);
    t.push_str("static const struct {\n  const char *name;\n  size_t bytes;\n  int reads, writes;\n} PARAMS[] = {\n");
    for p in params {
        let _ = writeln!(t, "  {{\"{}\", {}, {}, {}}},", p.name, p.bytes(), u8::from(p.reads()), u8::from(p.writes()));
    }
    t.push_str("};\nstatic const struct {\n  int64_t extent;\n  int parallel;\n} PHASES[] = {\n");
    for p in &source.phases {
        let _ = writeln!(t, "  {{{}, {}}},", p.extent, u8::from(p.parallel));
    }
    t.push_str(
        "};\nstatic void call(int phase, void **p, unsigned char *ws, int64_t worker, int64_t begin, int64_t end) {\n",
    );
    t.push_str("  switch (phase) {\n");
    for (i, p) in source.phases.iter().enumerate() {
        let args: String = (0..params.len()).map(|k| format!("p[{k}], ")).collect();
        let _ = writeln!(t, "    case {i}: {}({args}ws, worker, begin, end); break;", p.symbol);
    }
    t.push_str("  }\n}\n\n");
    t.push_str(include_str!("peak.c"));
    t.push('\n');
    t.push_str(include_str!("harness.c"));
    t
}
