//! Appends to a log.

use super::entry::{Compared, ComparedConfig, Machine, Run, RunId, Seed, TaskKey};
use super::line::dropped_line;
use crate::records::Trial;
use crate::stable::stable_hash;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A line reaches the disk at the latest this long after it was written, if another follows; [`LogWriter::sync`] is for the last one. A killed process loses
/// nothing that it wrote; this is for a machine that loses power.
const SYNC_EVERY: Duration = Duration::from_secs(2);

/// Why a log cannot be read or written.
#[derive(Debug)]
pub enum LogError {
    /// The file cannot be opened, locked, read or written.
    Io {
        /// The file.
        file: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        error: io::Error,
    },
    /// A trial that no reader would accept, such as one with a time that is not a number.
    Unfit {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |file: &Path| file.display().to_string().replace('\\', "/");
        match self {
            LogError::Io { file, doing: "lock", error } => {
                let help = "keep the log on a file system with locks";
                write!(f, "{}: the log cannot be locked: {error}; {help}", shown(file))
            }
            LogError::Io { file, doing, error } => {
                let help = match error.kind() {
                    io::ErrorKind::NotFound => "name a file that is there",
                    io::ErrorKind::StorageFull => "free some space; what was logged before is safe",
                    _ => "name another file, or change its permissions",
                };
                write!(f, "{}: cannot {doing} the log: {error}; {help}", shown(file))
            }
            LogError::Unfit { file, cause } => {
                write!(f, "{}: a trial cannot be logged: {cause}; that is a defect of the measurer", shown(file))
            }
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LogError::Io { error, .. } => Some(error),
            LogError::Unfit { .. } => None,
        }
    }
}

/// Appends the trials of one run to a log.
///
/// Each line is written at once and under an exclusive lock of the file, which is let go before the call returns: other
/// runs, of this process or of others, may append to the same log at the same time. Where a killed writer left half a
/// line, the next line begins on a line of its own.
///
/// ```
/// use kernel_gen::records::log::{Log, LogWriter, Machine, Run, TaskKey};
/// use kernel_gen::records::{Outcome, Timing, Trial};
/// use kernel_gen::space::{Config, Fingerprint};
/// # let file = std::env::temp_dir().join(format!("kernel-gen-doc-{}.jsonl", std::process::id()));
/// let run = Run::new("Some CPU", 1, Machine::Other, "random", 42);
/// let mut log = LogWriter::open(&file, run)?;
/// let task = TaskKey {
///     workload: "matmul-f32-m64n64k64-nn".into(),
///     target: "x86-64-v3".into(),
///     template: "gemm".into(),
///     template_version: 1,
///     space: Fingerprint(1),
/// };
/// let timing = Timing { samples_us: vec![2.5, 2.25], ..Timing::default() };
/// let trial = Trial { index: 3, config: Config::new().with("unroll", 4), outcome: Outcome::Timed(timing) };
/// log.append(&task, &trial)?;
/// let log = Log::read(&[&file])?;
/// assert_eq!(log.of_task(&task).next().map(|e| &e.trial), Some(&trial));
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
    own: Part,
    /// The runs of the workers of a fleet, by their names.
    workers: BTreeMap<String, Part>,
    started: Instant,
    started_unix: u64,
    synced: Instant,
}

/// A run, and what was written of it.
#[derive(Debug)]
struct Part {
    run: Run,
    id: RunId,
    /// Trials that were appended.
    appended: u64,
    /// Comparisons that were appended.
    compared: u64,
}

impl Part {
    fn new(run: Run) -> Part {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Part { id: new_run_id(&run, now), run, appended: 0, compared: 0 }
    }
}

impl LogWriter {
    /// Opens a log for a run, and makes the file and its folder if they are not there. Nothing is written before the
    /// first trial.
    pub fn open(path: &Path, run: Run) -> Result<LogWriter, LogError> {
        let file = open_for_appending(path)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (started, started_unix) = (Instant::now(), now.as_secs());
        let (path, own, workers) = (path.to_path_buf(), Part::new(run), BTreeMap::new());
        Ok(LogWriter { path, file, own, workers, started, started_unix, synced: started })
    }

    /// Appends a trial and flushes it. When this returns, a kill of the process cannot lose the line.
    pub fn append(&mut self, task: &TaskKey, trial: &Trial) -> Result<(), LogError> {
        self.append_costing(task, trial, None)
    }

    /// The same of a trial of which it is known how long it took to build, check and time it.
    pub fn append_costing(&mut self, task: &TaskKey, trial: &Trial, cost: Option<Duration>) -> Result<(), LogError> {
        self.append_trial(None, task, trial, cost)
    }

    /// The same of a trial that a worker of a fleet made, on a machine of its own: it belongs to a run of that worker.
    pub fn append_of_worker(
        &mut self,
        (worker, machine): (&str, impl FnOnce() -> Machine),
        task: &TaskKey,
        trial: &Trial,
        cost: Option<Duration>,
    ) -> Result<(), LogError> {
        if !self.workers.contains_key(worker) {
            let run = Run { machine: machine(), worker: Some(worker.to_string()), host: None, ..self.own.run.clone() };
            self.workers.insert(worker.to_string(), Part::new(run));
        }
        self.append_trial(Some(worker), task, trial, cost)
    }

    fn append_trial(
        &mut self,
        worker: Option<&str>,
        task: &TaskKey,
        trial: &Trial,
        cost: Option<Duration>,
    ) -> Result<(), LogError> {
        let at_s = self.started.elapsed().as_secs_f64();
        let seconds = (at_s, cost.map(|cost| cost.as_secs_f64()));
        let part = worker.and_then(|name| self.workers.get_mut(name)).unwrap_or(&mut self.own);
        let line = part.run.trial_line(part.id, part.appended, seconds, task, trial);
        let is_first = part.appended + part.compared == 0;
        let head = is_first.then(|| part.run.to_line(part.id, self.started_unix));
        write_lines(&mut self.file, &self.path, head, line)?;
        part.appended += 1;
        self.sync_now_and_then()
    }

    /// Appends the comparison of a workload; the run and the times of writing are this writer's.
    pub fn append_compared(
        &mut self,
        (workload, target): (&str, &str),
        candidates: Vec<ComparedConfig>,
    ) -> Result<(), LogError> {
        let part = &mut self.own;
        let compared = Compared {
            workload: workload.to_string(),
            target: target.to_string(),
            device: part.run.device.clone(),
            threads: part.run.threads,
            candidates,
            run: part.id,
            number: part.compared,
            at_s: self.started.elapsed().as_secs_f64(),
        };
        let line = part.run.compared_line(&compared);
        let is_first = part.appended + part.compared == 0;
        let head = is_first.then(|| part.run.to_line(part.id, self.started_unix));
        write_lines(&mut self.file, &self.path, head, line)?;
        part.compared += 1;
        self.sync_now_and_then()
    }

    fn sync_now_and_then(&mut self) -> Result<(), LogError> {
        if self.synced.elapsed() >= SYNC_EVERY { self.sync() } else { Ok(()) }
    }

    /// Waits until everything that was appended is on the disk.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.synced = Instant::now();
        self.file.sync_data().map_err(|error| LogError::Io { file: self.path.clone(), doing: "write", error })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of this run in the log.
    pub fn run_id(&self) -> RunId {
        self.own.id
    }

    /// Trials that were appended by this writer, those of workers included.
    pub fn appended(&self) -> u64 {
        self.own.appended + self.workers.values().map(|part| part.appended).sum::<u64>()
    }
}

/// Appends seeds to a log, all in one step.
pub fn append_seeds(path: &Path, seeds: &[Seed]) -> Result<(), LogError> {
    let unfit = |cause| LogError::Unfit { file: path.to_path_buf(), cause };
    let text: String = seeds.iter().map(Seed::to_line).collect::<Result<_, _>>().map_err(unfit)?;
    append_locked(&mut open_for_appending(path)?, path, &text)
}

/// Appends that what a worker measured counts no more.
pub fn append_dropped(path: &Path, worker: &str) -> Result<(), LogError> {
    let line = dropped_line(worker).map_err(|cause| LogError::Unfit { file: path.to_path_buf(), cause })?;
    append_locked(&mut open_for_appending(path)?, path, &line)
}

fn open_for_appending(path: &Path) -> Result<File, LogError> {
    let failed = |error| LogError::Io { file: path.to_path_buf(), doing: "open", error };
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)
}

/// Appends a line, the first one of a run behind its head.
fn write_lines(
    file: &mut File,
    path: &Path,
    head: Option<Result<String, String>>,
    line: Result<String, String>,
) -> Result<(), LogError> {
    let unfit = |cause| LogError::Unfit { file: path.to_path_buf(), cause };
    let text = head.transpose().map_err(unfit)?.unwrap_or_default() + &line.map_err(unfit)?;
    append_locked(file, path, &text)
}

/// Writes whole lines at the end of the file, on a line of their own.
fn append_locked(file: &mut File, path: &Path, lines: &str) -> Result<(), LogError> {
    let failed = |doing| move |error| LogError::Io { file: path.to_path_buf(), doing, error };
    file.lock().map_err(failed("lock"))?;
    let written = write_at_end(file, lines).map_err(failed("write"));
    let unlocked = file.unlock().map_err(failed("lock"));
    written.and(unlocked)
}

fn write_at_end(file: &mut File, lines: &str) -> io::Result<()> {
    let end = file.seek(SeekFrom::End(0))?;
    let mut torn = false;
    if end > 0 {
        file.seek(SeekFrom::Start(end - 1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        torn = last != *b"\n";
    }
    let text = if torn { format!("\n{lines}") } else { lines.to_string() };
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        // Half a line on a full disk would be one more thing to report later; the error that counts is the first.
        let _ = file.set_len(end);
    }
    written
}

/// A name that no other run has: of the run, the time, the process, and how many it began.
fn new_run_id(run: &Run, now: Duration) -> RunId {
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    let begun = BEGUN.fetch_add(1, Ordering::Relaxed);
    let text = format!("{}\n{}\n{}\n{}\n{begun}", run.device, run.tuner, now.as_nanos(), std::process::id());
    RunId(stable_hash(&text) >> 16)
}
