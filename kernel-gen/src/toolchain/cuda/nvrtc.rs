//! NVRTC, the compiler as a library, in processes of its own.
//!
//! This crate holds no `unsafe`, and cudarc's safe face to NVRTC does not serve here: it opens the library by bare names
//! only (a wheel's folder is not on the loader's path), panics where it is missing, gives no machine code and no log. So
//! a small C program, compiled by the C compiler that kernels need anyway, opens the library by its path and compiles
//! what it is sent. That also bounds what a source can do: one that makes the compiler crash or run forever costs one
//! process, not the build. Each thread that compiles has a process, which is kept for the next source.

use super::arch::Version;
use super::environment::{entries, newest_first};
use super::error::CudaError;
use super::process::Scratch;
use super::request::{Made, Request};
use crate::files;
use crate::stable::fnv1a;
use crate::toolchain::{Compiler, ToolError, host_triple};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The program that opens the library.
const HELPER: &str = include_str!("nvrtc.c");

/// A libnvrtc that was opened.
#[derive(Debug)]
pub(super) struct Nvrtc {
    pub(super) library: PathBuf,
    pub(super) version: Version,
    builtins: Option<PathBuf>,
    helper: PathBuf,
    /// Holds the helper where there is no cache to keep it in.
    _folder: Option<Scratch>,
    archs: Vec<u32>,
    idle: Mutex<Vec<Worker>>,
}

impl Nvrtc {
    /// Opens a library, or the newest one in a folder.
    pub(super) fn open(path: &Path, cache: Option<&Path>) -> Result<Nvrtc, String> {
        if !cfg!(unix) {
            return Err("libnvrtc is opened through dlopen, which this platform does not have".to_string());
        }
        let library = library_at(path).ok_or_else(|| format!("there is no libnvrtc at {}", path.display()))?;
        let builtins = library.parent().and_then(|folder| builtins_beside(folder, &library));
        let built = |cache| helper(cache).map_err(|e| format!("the C program that opens it cannot be built: {e}"));
        let (mut helper, mut folder) = built(cache)?;
        // A cache may be of another C library, or in a folder from which no program is run.
        if folder.is_none() && !runs(&helper) {
            (helper, folder) = built(None)?;
        }
        let (worker, greeting) = Worker::start(&helper, &library, builtins.as_deref())?;
        let mut numbers = greeting.iter().copied();
        let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
            return Err("its version cannot be read".to_string());
        };
        Ok(Nvrtc {
            library,
            version: Version(major, minor),
            builtins,
            helper,
            _folder: folder,
            archs: numbers.collect(),
            idle: Mutex::new(vec![worker]),
        })
    }

    /// Whether it makes code for that compute capability.
    pub(super) fn knows(&self, compute: u32) -> bool {
        self.archs.contains(&compute)
    }

    /// What changes its output, besides the request. The library does not say its whole version, but its size tells
    /// releases apart.
    pub(super) fn identity(&self) -> String {
        let bytes = fs::metadata(&self.library).map_or(0, |m| m.len());
        format!("NVRTC {} {bytes}", self.version)
    }

    /// To PTX and machine code at once: for a real architecture, NVRTC gives both, and has its assembler check the
    /// instructions that are written as text.
    pub(super) fn make(&self, request: &Request, limit: Duration) -> Result<Made, CudaError> {
        let Request { kernel, source, arch, flags, .. } = request;
        let mut options = vec![format!("--gpu-architecture={arch}"), "--std=c++17".to_string()];
        options.push("--ptxas-options=-v".to_string());
        options.extend(flags.nvidia());
        let name = format!("{}.cu", request.stem());
        let failed = |output: String| CudaError::Failed {
            kernel: kernel.clone(),
            arch: *arch,
            command: format!("NVRTC {} {name} {}", self.version, options.join(" ")),
            output,
        };
        let idle = self.idle.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let mut worker = match idle {
            Some(worker) => worker,
            None => Worker::start(&self.helper, &self.library, self.builtins.as_deref()).map_err(failed)?.0,
        };
        let mut strings = vec![name.as_str(), source.as_str()];
        strings.extend(options.iter().map(String::as_str));
        match worker.compile(&strings, limit) {
            Answer::Done { result, ptx, cubin, log } => {
                self.idle.lock().unwrap_or_else(|e| e.into_inner()).push(worker);
                let log = String::from_utf8_lossy(&log).into_owned();
                if result != 0 {
                    return Err(failed(log));
                }
                let ptx = String::from_utf8(ptx).map_err(|_| failed("its PTX is not text".to_string()))?;
                let cubin = (!cubin.is_empty()).then_some(cubin);
                Ok(Made { ptx, cubin, log, compiler: format!("NVRTC {}", self.version) })
            }
            Answer::Died(status) => Err(match status.and_then(|status| crate::toolchain::ended_by(status, "")) {
                Some(by) => CudaError::Tool(ToolError::Killed { file: name.clone(), by }),
                None => {
                    let how = status.map_or("it no longer answers".to_string(), |status| status.to_string());
                    failed(format!("NVRTC's process died: {how}"))
                }
            }),
            Answer::Late => Err(CudaError::Timeout { kernel: kernel.clone(), arch: *arch, limit_s: limit.as_secs() }),
        }
    }
}

/// The library that a path means: itself, or the newest in a folder.
pub(super) fn library_at(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_path_buf());
    }
    newest_first(path.to_path_buf(), "libnvrtc.so").into_iter().find(|p| p.is_file())
}

/// libnvrtc-builtins of the library, which is of the same major version.
fn builtins_beside(folder: &Path, library: &Path) -> Option<PathBuf> {
    // The name of the library may be that of a link without a version.
    let real = fs::canonicalize(library).ok()?;
    let name = real.file_name()?.to_string_lossy().into_owned();
    let major = name.split_once(".so.").and_then(|(_, version)| version.split('.').next().map(String::from));
    let all = entries(folder);
    let named = |path: &&PathBuf| {
        let name = path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
        let version = name.strip_prefix("libnvrtc-builtins.so").map(|rest| rest.trim_start_matches('.'));
        version.is_some_and(|v| major.as_ref().is_none_or(|m| v.split('.').next() == Some(m)))
    };
    all.iter().find(named).cloned()
}

/// The compiled helper, and the folder that holds it if nobody else does. It is kept in the cache where there is one:
/// then a machine without a C compiler can use what another has compiled.
fn helper(cache: Option<&Path>) -> Result<(PathBuf, Option<Scratch>), CudaError> {
    let name = format!("nvrtc-helper-{}-{:016x}", host_triple(), fnv1a(HELPER.as_bytes()));
    if let Some(kept) = cache.map(|folder| folder.join(&name)).filter(|p| p.is_file()) {
        return Ok((kept, None));
    }
    let folder = Scratch::new()?;
    folder.write("nvrtc.c", HELPER)?;
    let made = folder.path().join("nvrtc");
    let hint = "take the folder KERNEL_GEN_CACHE from a machine that has one, with the helper in it";
    let compiler = Compiler::host().map_err(|e: ToolError| e.with_hint(hint))?;
    compiler.executable(&[&folder.path().join("nvrtc.c")], &[], &made)?;
    let Some(cache) = cache else { return Ok((made, Some(folder))) };
    let kept = cache.join(&name);
    match fs::create_dir_all(cache).and_then(|()| files::copy_whole(&made, &kept)) {
        Ok(()) => Ok((kept, None)),
        // A cache saves time and nothing else; what compiles says that it cannot be written.
        Err(_) => Ok((made, Some(folder))),
    }
}

/// Whether the system runs the helper at all. Without a library to open it ends at once.
fn runs(helper: &Path) -> bool {
    let ended = Command::new(helper).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ended.is_ok_and(|status| !matches!(status.code(), None | Some(126 | 127)))
}

/// A process that holds the library open.
#[derive(Debug)]
struct Worker {
    child: Arc<Mutex<Child>>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What a worker made of a request.
enum Answer {
    Done {
        result: i32,
        ptx: Vec<u8>,
        cubin: Vec<u8>,
        log: Vec<u8>,
    },
    /// With this status; none where it did not end by itself.
    Died(Option<ExitStatus>),
    Late,
}

impl Worker {
    /// Starts the helper; gives the numbers of its greeting: version and architectures.
    fn start(helper: &Path, library: &Path, builtins: Option<&Path>) -> Result<(Worker, Vec<u32>), String> {
        let mut command = Command::new(helper);
        command.arg(library).args(builtins).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = crate::toolchain::apart(&mut command)
            .spawn()
            .map_err(|e| format!("{} cannot be run: {e}", helper.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{} has no input or output", helper.display()));
        };
        let mut worker = Worker { child: Arc::new(Mutex::new(child)), input, output: BufReader::new(output) };
        let mut line = String::new();
        let read = worker.output.read_line(&mut line);
        let line = line.trim_end();
        if let Some(numbers) = line.strip_prefix("nvrtc ") {
            return Ok((worker, numbers.split(' ').filter_map(|n| n.parse().ok()).collect()));
        }
        Err(match (line.strip_prefix("error "), read) {
            (Some(why), _) => why.to_string(),
            (None, Err(e)) => e.to_string(),
            (None, Ok(_)) => format!("opening it ends the process ({})", worker.end()),
        })
    }

    /// Compiles; the strings are the name, the source and the options.
    fn compile(&mut self, strings: &[&str], limit: Duration) -> Answer {
        let child = self.child.clone();
        let (done, wait) = channel::<()>();
        let (answer, late) = std::thread::scope(|scope| {
            let watch = scope.spawn(move || {
                let id = child.lock().unwrap_or_else(|e| e.into_inner()).id();
                let is_over = |longer| !matches!(wait.recv_timeout(longer), Err(RecvTimeoutError::Timeout));
                let late = !crate::toolchain::is_over_in_time(id, limit, is_over);
                if late {
                    // It may have ended just now; then there is nothing to end.
                    let _ = child.lock().unwrap_or_else(|e| e.into_inner()).kill();
                }
                late
            });
            let answer = self.exchange(strings);
            drop(done);
            (answer, watch.join().unwrap_or(false))
        });
        match answer {
            Ok(answer) => answer,
            Err(_) if late => Answer::Late,
            Err(_) => Answer::Died(self.ended()),
        }
    }

    fn exchange(&mut self, strings: &[&str]) -> io::Result<Answer> {
        let mut request = format!("compile {}\n", strings.len()).into_bytes();
        for text in strings {
            request.extend(format!("{}\n", text.len()).bytes());
            request.extend(text.bytes());
        }
        self.input.write_all(&request)?;
        self.input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not an answer");
        let numbers = line.trim_end().strip_prefix("done ").ok_or_else(wrong)?;
        let (result, sizes) = numbers.split_once(' ').ok_or_else(wrong)?;
        let result = result.parse().map_err(|_| wrong())?;
        let mut parts = vec![];
        for size in sizes.split(' ') {
            let mut part = vec![0; size.parse().map_err(|_| wrong())?];
            self.output.read_exact(&mut part)?;
            parts.push(part);
        }
        let [ptx, cubin, log] = <[Vec<u8>; 3]>::try_from(parts).map_err(|_| wrong())?;
        Ok(Answer::Done { result, ptx, cubin, log })
    }

    /// How a process ended that closed its output, if it did.
    fn ended(&mut self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(|e| e.into_inner());
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                status => return status.ok().flatten(),
            }
        }
    }

    /// Ends the process and says how it ended.
    fn end(&mut self) -> String {
        let mut child = self.child.lock().unwrap_or_else(|e| e.into_inner());
        let _ = child.kill();
        child.wait().map_or_else(|e| e.to_string(), |status| status.to_string())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}
