//! The side of the measurer: starts the process that holds the GPU, waits for it as long as it may take, ends it when it
//! takes longer, and starts it anew.

use super::build::CudaCode;
use super::protocol::{self, Device, Reply, Request, Stage};
use crate::records::{Failure, FailureKind, Outcome};
use crate::target::Target;
use crate::tune::measure::backend::Runner;
use crate::tune::measure::pipeline::failure;
use crate::tune::measure::{Comparison, MeasureError, Options, Peer};
use crate::workload::Workload;
use std::ffi::OsString;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a worker may take until it has the device: a GPU that was reset a moment ago takes seconds.
const START: Duration = Duration::from_secs(60);

/// The measurer's end of the worker.
pub(super) struct Client {
    program: PathBuf,
    arguments: Vec<OsString>,
    worker: Option<Worker>,
    options: Options,
}

/// A process that holds a GPU. It ends with the value.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    replies: Receiver<Reply>,
}

/// Why a request has no answer.
enum Lost {
    /// The worker took too long in a stage, and was ended.
    Late(Stage, f64),
    /// It was killed from outside.
    Killed,
    /// It ended in another way.
    Died(Stage, String),
    /// It did not start.
    NotStarted(String),
}

impl Client {
    /// Starts a worker; also says which device it holds.
    pub(super) fn start(target: &Target, options: &Options) -> Result<(Client, Device), MeasureError> {
        let (program, mut arguments) = match &options.worker {
            Some((program, arguments)) => (program.clone(), arguments.clone()),
            None => {
                let program = std::env::current_exe()
                    .map_err(|e| MeasureError::Worker { command: "this program".into(), cause: e.to_string() })?;
                (program, vec!["worker".into()])
            }
        };
        arguments.extend(["--device".into(), options.device.to_string().into()]);
        let mut client = Client { program, arguments, worker: None, options: options.clone() };
        match client.ready() {
            Ok(Reply::Ready(device)) => Ok((client, device)),
            Ok(Reply::NoDevice(cause)) => Err(MeasureError::NoDevice { target: target.name.clone(), cause }),
            Ok(other) => Err(client.unusable(format!("it says {other:?}"))),
            Err(cause) => Err(client.unusable(cause)),
        }
    }

    fn unusable(&self, cause: String) -> MeasureError {
        let words = std::iter::once(self.program.as_os_str()).chain(self.arguments.iter().map(OsString::as_os_str));
        let command = words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
        MeasureError::Worker { command, cause }
    }

    /// Starts a worker and waits for its greeting.
    fn ready(&mut self) -> Result<Reply, String> {
        let mut worker = Worker::start(&self.program, &self.arguments).map_err(|e| e.to_string())?;
        match worker.replies.recv_timeout(START) {
            Ok(reply) => {
                if matches!(reply, Reply::Ready(_)) {
                    self.worker = Some(worker);
                }
                Ok(reply)
            }
            Err(RecvTimeoutError::Timeout) => Err(format!("it says nothing for {START:?}")),
            Err(RecvTimeoutError::Disconnected) => Err(worker.end()),
        }
    }

    /// Asks, and asks once more where the worker was killed from outside: that says nothing of the candidate.
    fn ask(&mut self, request: &Request, images: &[u8]) -> Result<Comparison, Failure> {
        let first = self.ask_once(request, images);
        let again = matches!(first, Err(Lost::Killed | Lost::NotStarted(_)));
        let answer = if again { self.ask_once(request, images) } else { first };
        answer.map_err(|lost| match lost {
            Lost::Late(Stage::Data, s) => {
                failure(FailureKind::Worker, format!("the reference took more than {s:.1} s"))
            }
            Lost::Late(stage, s) => {
                let doing = match stage {
                    Stage::Load => "was not loaded",
                    Stage::Time => "was not timed",
                    _ => "did not end",
                };
                failure(FailureKind::RunTimeout, format!("it {doing} within {s:.1} s"))
            }
            Lost::Killed => failure(FailureKind::Crash, "its process was killed twice"),
            Lost::Died(Stage::Data, how) => failure(FailureKind::Worker, how),
            Lost::Died(_, how) => failure(FailureKind::Crash, how),
            Lost::NotStarted(why) => failure(FailureKind::Worker, why),
        })
    }

    fn ask_once(&mut self, request: &Request, images: &[u8]) -> Result<Comparison, Lost> {
        if self.worker.is_none() {
            match self.ready().map_err(Lost::NotStarted)? {
                Reply::Ready(_) => {}
                other => return Err(Lost::NotStarted(format!("the worker did not start: {other:?}"))),
            }
        }
        let Some(worker) = &mut self.worker else { return Err(Lost::NotStarted("there is no worker".into())) };
        if let Some(input) = &mut worker.input {
            // A worker that is gone is noticed below.
            let _ = protocol::write(input, request, images);
        }
        let run_limit = self.options.run_limit.as_secs_f64();
        let (mut stage, mut limit_s) = (Stage::Load, 30.0);
        let lost = loop {
            let deadline = Instant::now() + Duration::from_secs_f64(limit_s);
            match worker.replies.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Reply::Begins(next, seconds)) => (stage, limit_s) = (next, seconds + run_limit),
                Ok(Reply::Done { outcomes, peers, lost }) => {
                    if lost {
                        self.worker = None;
                    }
                    let outcomes = outcomes.into_iter().map(Outcome::from).collect();
                    return Ok(Comparison { outcomes, peers });
                }
                Ok(Reply::Ready(_) | Reply::NoDevice(_)) => {}
                Err(RecvTimeoutError::Timeout) => break Lost::Late(stage, limit_s),
                Err(RecvTimeoutError::Disconnected) => {
                    break if worker.was_killed() { Lost::Killed } else { Lost::Died(stage, worker.end()) };
                }
            }
        };
        self.worker = None;
        Err(lost)
    }

    fn request(&self, workload: &Workload, best_us: Option<f64>, compare: bool) -> Request {
        Request {
            workload: workload.key(),
            seed: self.options.seed,
            candidates: vec![],
            compare,
            best_us,
            sampling: self.options.sampling,
            peers: vec![],
        }
    }
}

impl Worker {
    fn start(program: &PathBuf, arguments: &[OsString]) -> std::io::Result<Worker> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = crate::toolchain::apart(&mut command).spawn()?;
        let (tell, replies) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut output = BufReader::with_capacity(1 << 16, output);
                // A worker that is gone, or that nobody listens to any more, ends the thread.
                while let Ok(Some((reply, _))) = protocol::read::<Reply>(&mut output) {
                    if tell.send(reply).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Worker { input: child.stdin.take(), child, replies })
    }

    /// Whether a signal that no program sends itself has ended it. It has closed its output.
    fn was_killed(&mut self) -> bool {
        #[cfg(unix)]
        return self.child.wait().is_ok_and(|status| std::os::unix::process::ExitStatusExt::signal(&status) == Some(9));
        #[cfg(not(unix))]
        return false;
    }

    /// Ends it and says how it ended.
    fn end(&mut self) -> String {
        let _ = self.child.kill();
        self.child.wait().map_or_else(|e| e.to_string(), |status| format!("its process ended with {status}"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that is idle ends by itself when its input does; one that hangs does not.
        drop(self.input.take());
        self.end();
    }
}

impl Runner for Client {
    type Code = CudaCode;

    fn run(&mut self, workload: &Workload, code: CudaCode, best_us: Option<f64>) -> Outcome {
        std::thread::sleep(self.options.cooldown);
        let mut request = self.request(workload, best_us, false);
        request.candidates.push(code.candidate);
        match self.ask(&request, &code.images) {
            Ok(mut answer) if answer.outcomes.len() == 1 => answer.outcomes.remove(0),
            Ok(answer) => {
                Outcome::Failed(failure(FailureKind::Worker, format!("{} outcomes of one", answer.outcomes.len())))
            }
            Err(why) => Outcome::Failed(why),
        }
    }

    fn compare(&mut self, workload: &Workload, codes: Vec<Result<CudaCode, Failure>>, peers: &[Peer]) -> Comparison {
        let good: Vec<&CudaCode> = codes.iter().flatten().collect();
        let mut measured = self.compared(workload, &good, peers);
        // A library that hangs or loses the context is not to be timed here, and the candidates are not to blame.
        if !peers.is_empty() && measured.outcomes.iter().any(|o| o.time_us().is_none()) {
            let failed = std::mem::take(&mut measured.peers);
            measured = Comparison { peers: failed, ..self.compared(workload, &good, &[]) };
        }
        // One that hangs or loses the context takes the others with it: they are not to blame.
        if good.len() > 1 && measured.outcomes.iter().any(|o| o.time_us().is_none()) {
            let alone = |code| self.compared(workload, &[code], &[]).outcomes.remove(0);
            let mut alone: Vec<Outcome> = good.iter().copied().map(alone).collect();
            let timed: Vec<&CudaCode> =
                good.iter().zip(&alone).filter(|(_, o)| o.time_us().is_some()).map(|(code, _)| *code).collect();
            let mut outcomes = self.compared(workload, &timed, &[]).outcomes.into_iter();
            for outcome in alone.iter_mut().filter(|o| o.time_us().is_some()) {
                *outcome = outcomes.next().unwrap_or_else(|| outcome.clone());
            }
            measured.outcomes = alone;
        }
        let mut outcomes = measured.outcomes.into_iter();
        let lost = || Outcome::Failed(failure(FailureKind::Worker, "the worker left it out"));
        let outcome = |code: &Result<CudaCode, Failure>| match code {
            Err(why) => Outcome::Failed(why.clone()),
            Ok(_) => outcomes.next().unwrap_or_else(lost),
        };
        Comparison { outcomes: codes.iter().map(outcome).collect(), peers: measured.peers }
    }
}

impl Client {
    /// Compares candidates and libraries; as many outcomes as there are.
    fn compared(&mut self, workload: &Workload, codes: &[&CudaCode], peers: &[Peer]) -> Comparison {
        let all_fail = |why: Failure| Comparison {
            outcomes: codes.iter().map(|_| Outcome::Failed(why.clone())).collect(),
            peers: peers.iter().map(|_| Err(why.detail.clone())).collect(),
        };
        if codes.is_empty() {
            return all_fail(failure(FailureKind::Worker, "there is nothing that it stands beside"));
        }
        std::thread::sleep(self.options.cooldown);
        let mut request = self.request(workload, None, true);
        request.candidates = codes.iter().map(|code| code.candidate.clone()).collect();
        request.peers = peers.iter().map(|peer| peer.name().to_string()).collect();
        let images = codes.iter().map(|code| code.images.as_slice()).collect::<Vec<_>>().concat();
        match self.ask(&request, &images) {
            Ok(answer) if (answer.outcomes.len(), answer.peers.len()) == (codes.len(), peers.len()) => answer,
            Ok(answer) => {
                all_fail(failure(FailureKind::Worker, format!("{} outcomes of {}", answer.outcomes.len(), codes.len())))
            }
            Err(why) => all_fail(why),
        }
    }
}
