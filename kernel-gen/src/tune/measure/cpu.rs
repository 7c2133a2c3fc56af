//! CPU kernels: C, compiled by the machine's compiler, each run in a process of its own.

use super::backend::{Builder, Job, Runner};
use super::cores::Cores;
use super::data::Data;
use super::pipeline::{self, failure};
use super::pool::Pool;
use super::{Attached, Comparison, MeasureError, Options, Peer, Provenance, Sampling};
use crate::emit::c::Isa;
use crate::records::{Failure, FailureKind, Outcome, Timing};
use crate::target::Target;
use crate::toolchain::harness::{Folder, HarnessError, Host, PackSource, Program, Session};
use crate::toolchain::{Compiler, ToolError};
use crate::workload::special::Reach;
use crate::workload::{Role, Workload};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

/// The measurer of a CPU level.
pub(super) fn attach<'scope, 'r: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    target: &Target,
    options: Options,
) -> Result<Attached<'scope, 'r>, MeasureError> {
    let isa = Isa::from_name(&target.name).filter(|isa| isa.runs_here()).ok_or_else(|| {
        let runs = |t: &&&Target| Isa::from_name(&t.name).is_some_and(Isa::runs_here);
        let levels = Target::cpu_levels(std::env::consts::ARCH);
        let best = levels.iter().find(runs).map_or("another target", |t| t.name.as_str()).to_string();
        MeasureError::NotThisCpu { target: target.name.clone(), best }
    })?;
    let compiler = Arc::new(Compiler::host()?);
    let host = Host::of(&compiler, isa)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.clamp(1, processors);
    let cores = Arc::new(Cores::new(processors));
    let provenance = Provenance {
        device: model_name(),
        target: target.name.clone(),
        threads: threads as u32,
        compiler: compiler.version()?,
        units: processors as u32,
        generator: env!("CARGO_PKG_VERSION").into(),
        ..Provenance::default()
    };
    let jobs = options.build_jobs.unwrap_or(processors).max(1);
    let builder = CpuBuilder {
        compiler,
        host,
        cores: Arc::clone(&cores),
        limit: options.build_limit.unwrap_or(Options::C_LIMIT),
        edit: options.edit.clone(),
        built: Mutex::default(),
    };
    let runner = CpuRunner { cores, threads, options, folder: Folder::new()?, tasks: BTreeMap::new() };
    Ok(Attached { measurer: Box::new(Pool::start(scope, jobs, builder, runner)), provenance })
}

/// The processor's name, as it calls itself.
fn model_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.split_once(':').map(|(_, v)| v.trim()));
    let model = named("model name").or_else(|| named("CPU part")).unwrap_or(std::env::consts::ARCH);
    // Several generations call themselves alike; family and model tell them apart.
    match (named("cpu family"), named("model\t")) {
        (Some(family), Some(number)) => format!("{model}, family {family}, model {number}"),
        _ => model.to_string(),
    }
}

struct CpuBuilder {
    compiler: Arc<Compiler>,
    host: Arc<Host>,
    cores: Arc<Cores>,
    limit: Duration,
    edit: Option<super::Edit>,
    /// What was built last, by workload, template and config, the oldest first: finalists are built in the search and timed in
    /// several rounds.
    built: Mutex<VecDeque<(String, CpuCode)>>,
}

/// How many candidates are kept.
const MOST_BUILT: usize = 256;

/// A candidate's shared object.
#[derive(Clone)]
struct CpuCode {
    program: Arc<Program>,
    /// Workspace and packed parameters, which come on top of the workload's own buffers.
    extra_bytes: u64,
    /// What its outputs depend on.
    reach: Reach,
}

impl Builder for CpuBuilder {
    type Code = CpuCode;

    fn build(&self, job: &Job<'_>) -> Result<CpuCode, Failure> {
        let made_for = job.made_for.as_ref().map(|of| of.workload.key());
        let key = format!("{} {made_for:?} {} {}", job.workload.key(), job.template.name(), job.config);
        let built = || self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, code)) = built().iter().find(|(known, _)| *known == key) {
            return Ok(code.clone());
        }
        let _core = self.cores.to_build();
        let code = pipeline::c(job, self.edit.as_ref())?;
        let packs: Vec<PackSource<'_>> =
            (code.packs.iter()).map(|(param, kernel, source)| PackSource { param: *param, source, kernel }).collect();
        let program = Program::build_with(&self.compiler, &self.host, &code.source, &code.kernel, &packs, self.limit)
            .map_err(|error| classify(&error))?;
        let packed = packs.iter().map(|p| p.kernel.buffer(p.kernel.params[1]).extent_bytes()).sum::<i64>();
        let extra = code.source.workspace_bytes.saturating_add(packed);
        let extra_bytes = u64::try_from(extra).unwrap_or(u64::MAX);
        let code = CpuCode { program: Arc::new(program), extra_bytes, reach: job.reach() };
        let mut built = built();
        if built.len() >= MOST_BUILT {
            built.pop_front();
        }
        built.push_back((key, code.clone()));
        Ok(code)
    }
}

/// What a failure of the harness says of a candidate.
fn classify(error: &HarnessError) -> Failure {
    let kind = match error {
        HarnessError::Tool(ToolError::Timeout { .. }) => FailureKind::BuildTimeout,
        HarnessError::Tool(ToolError::Failed { .. }) => FailureKind::Build,
        HarnessError::Tool(_) | HarnessError::Inputs { .. } => FailureKind::Worker,
        HarnessError::OutOfBounds { .. } | HarnessError::Stray => FailureKind::IllegalAccess,
        HarnessError::Canary { .. } | HarnessError::InputChanged { .. } => FailureKind::OutsideWrite,
        HarnessError::Unstable { .. } => FailureKind::WrongAnswer,
        HarnessError::Timeout { .. } => FailureKind::RunTimeout,
        HarnessError::Memory => FailureKind::Resource,
        HarnessError::Killed | HarnessError::Died { .. } => FailureKind::Crash,
    };
    match error {
        // The command is the same for all; what it said is not.
        HarnessError::Tool(ToolError::Failed { output, .. }) => failure(kind, output),
        other => failure(kind, other),
    }
}

/// Why a candidate was not timed: what its process ran into, or what was found out about it.
enum Trouble {
    Process(HarnessError),
    Candidate(Failure),
}

impl From<HarnessError> for Trouble {
    fn from(error: HarnessError) -> Self {
        Trouble::Process(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Trouble::Candidate(failure)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Process(error) => classify(&error),
            Trouble::Candidate(failure) => failure,
        }
    }
}

/// A workload's data, and the file that candidates read their inputs from.
struct TaskData {
    data: Data,
    input: PathBuf,
    bytes: u64,
}

struct CpuRunner {
    cores: Arc<Cores>,
    threads: usize,
    options: Options,
    folder: Folder,
    tasks: BTreeMap<String, TaskData>,
}

/// What candidates may map besides their buffers: the host, its libraries and the stacks of its threads.
const SPARE_BYTES: u64 = 2 << 30;

/// Time that a process may take besides its calls: to start, to read, to write.
const MARGIN: Duration = Duration::from_secs(2);

/// Bytes that a process gets, fills, packs and looks through in a second, at the least. Of memory that a virtual machine
/// has to get from its host first it is not many more.
const TOUCHED_A_SECOND: u64 = 64 << 20;

impl CpuRunner {
    fn task(&mut self, workload: &Workload) -> Result<&mut TaskData, Failure> {
        let key = workload.key();
        if !self.tasks.contains_key(&key) {
            // Networks are tuned a few tasks at a time.
            const MOST_BYTES: u64 = 1 << 30;
            if self.tasks.values().map(|t| t.data.bytes() as u64).sum::<u64>() > MOST_BYTES {
                self.tasks.values().for_each(|t| drop(fs::remove_file(&t.input)));
                self.tasks.clear();
            }
            let data = Data::new(workload, self.options.seed);
            let name = format!("input-{:016x}", crate::stable::stable_hash(&key));
            let written = self.folder.write(&name, &data.inputs.concat());
            let input = written.map_err(|error| failure(FailureKind::Worker, error))?;
            let bytes = data.bytes() as u64;
            self.tasks.insert(key.clone(), TaskData { data, input, bytes });
        }
        self.tasks.get_mut(&key).ok_or_else(|| failure(FailureKind::Worker, "the data of a task is gone"))
    }

    /// Starts a candidate's process and checks it. Its timing has no sample yet.
    fn checked(&mut self, workload: &Workload, code: &CpuCode) -> Result<(Session, Timing), Trouble> {
        if code.extra_bytes > MOST_EXTRA_BYTES {
            let text = format!("it wants {} bytes of workspace and packed parameters", code.extra_bytes);
            return Err(failure(FailureKind::Resource, text).into());
        }
        let (threads, run_limit) = (self.threads, self.options.run_limit);
        let task = self.task(workload)?;
        // Both passes run the shares of all threads one after the other, and parameters are packed before.
        let touched = Duration::from_secs((task.bytes + code.extra_bytes) / TOUCHED_A_SECOND);
        let limit = run_limit * (2 * threads as u32) + touched + MARGIN;
        let memory = (4 * task.bytes).saturating_add(code.extra_bytes.saturating_mul(2)).saturating_add(SPARE_BYTES);
        let mut session = code.program.start(&task.input, memory)?;
        let output = code.program.scratch("output");
        session.check(threads.max(3), &output, limit)?;
        let bytes = fs::read(&output).unwrap_or_default();
        let _ = fs::remove_file(&output);
        let timing = task.data.check(&bytes, code.reach);
        let timing = timing.map_err(|mismatch| failure(FailureKind::WrongAnswer, mismatch))?;
        Ok((session, timing))
    }

    /// Makes ready for samples, each of a row of calls as in a network: activations are where the call before left them,
    /// weights and what else is known ahead of time come from memory. Kernels whose weights have many bytes
    /// (Winograd's larger tiles) or are read twice win by far where they stay in a cache, and nobody calls them so.
    fn prepare(&self, workload: &Workload, session: &mut Session) -> Result<f64, Trouble> {
        let sample = Duration::from_secs_f64(self.options.sampling.sample_us * 1e-6);
        let computed = |role| matches!(role, Role::Input | Role::Residual | Role::Gate);
        let kept = workload.params().iter().enumerate().filter(|(_, p)| computed(p.role)).map(|(i, _)| 1 << i).sum();
        let calls = self.options.sampling.number;
        let limit = self.limit(2 * calls.clamp(2, 1 << 20), 4);
        let ns = session.prepare(self.threads, (sample, calls as u64), kept, limit)?;
        Ok(ns * 1e-3)
    }

    /// How long `calls` calls may take that are repeated for as long as `samples` samples take.
    fn limit(&self, calls: usize, samples: usize) -> Duration {
        let seconds = |number: usize, each: f64| number as f64 * each;
        let all = seconds(calls, self.options.run_limit.as_secs_f64())
            + seconds(samples, self.options.sampling.sample_us * 1e-6);
        MARGIN + Duration::from_secs_f64(all.min(1e9))
    }

    fn sample(&self, session: &mut Session, count: usize, timing: &mut Timing) -> Result<(), Trouble> {
        let calls = self.options.sampling.number.clamp(4, 1 << 20);
        for sample in session.sample(count, self.limit(1 + calls * count, 2 * count))? {
            timing.samples_us.push(sample.ns * 1e-3);
            // 0 stands for unknown.
            timing.core_gflops.extend(Some(sample.peak_gflops).filter(|g| *g > 0.0));
        }
        Ok(())
    }

    fn timed(&mut self, workload: &Workload, code: &CpuCode, best_us: Option<f64>) -> Result<Timing, Trouble> {
        let (mut session, mut timing) = self.checked(workload, code)?;
        let _cores = self.cores.to_time(self.threads);
        std::thread::sleep(self.options.cooldown);
        let us = self.prepare(workload, &mut session)?;
        let sampling = self.options.sampling;
        if sampling.is_slow(us, best_us) {
            self.sample(&mut session, Sampling::FEW, &mut timing)?;
        } else {
            self.sample(&mut session, Sampling::LEAST_LONG.min(sampling.most), &mut timing)?;
            while !sampling.is_enough(&timing.samples_us) {
                let left = sampling.most.saturating_sub(timing.samples_us.len()).max(1);
                self.sample(&mut session, left.min(2), &mut timing)?;
            }
        }
        Ok(timing)
    }
}

/// More workspace than this is not measured: the machine would begin to swap.
const MOST_EXTRA_BYTES: u64 = 4 << 30;

impl Runner for CpuRunner {
    type Code = CpuCode;

    fn run(&mut self, workload: &Workload, code: CpuCode, best_us: Option<f64>) -> Outcome {
        let timed = match self.timed(workload, &code, best_us) {
            // Whoever kills a process from outside does not judge what ran in it.
            Err(Trouble::Process(HarnessError::Killed)) => self.timed(workload, &code, best_us),
            other => other,
        };
        timed.map_or_else(|trouble| Outcome::Failed(trouble.into()), Outcome::Timed)
    }

    fn compare(&mut self, workload: &Workload, codes: Vec<Result<CpuCode, Failure>>, peers: &[Peer]) -> Comparison {
        // All processes live until the end: a sample of each in turn.
        let mut sessions: Vec<Result<(Session, Timing), Failure>> = vec![];
        for code in &codes {
            let mut begin = || -> Result<(Session, Timing), Trouble> {
                let code = code.as_ref().map_err(Failure::clone)?;
                let (mut session, timing) = self.checked(workload, code)?;
                self.prepare(workload, &mut session)?;
                Ok((session, timing))
            };
            sessions.push(begin().map_err(Failure::from));
        }
        let _cores = self.cores.to_time(self.threads);
        std::thread::sleep(self.options.cooldown);
        let compared = |s: &Result<(Session, Timing), Failure>| {
            s.as_ref().is_ok_and(|(_, timing)| self.options.sampling.is_compared(&timing.samples_us))
        };
        for round in 0..self.options.sampling.compare {
            // All have as many samples.
            if sessions.iter().any(&compared) {
                break;
            }
            for i in 0..sessions.len() {
                // The first in a round is another one each time.
                let at = (i + round) % sessions.len();
                let Ok((session, timing)) = &mut sessions[at] else { continue };
                if let Err(trouble) = self.sample(session, 1, timing) {
                    sessions[at] = Err(trouble.into());
                }
            }
        }
        let outcome = |s: Result<_, _>| s.map_or_else(Outcome::Failed, |(_, timing)| Outcome::Timed(timing));
        let of_gpus = |peer: &Peer| Err(format!("{} is a library for GPUs", peer.name()));
        Comparison { outcomes: sessions.into_iter().map(outcome).collect(), peers: peers.iter().map(of_gpus).collect() }
    }
}
