//! A process that runs one kernel, and does what it is told.

use super::HarnessError;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A sample of a timed kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Time of one call.
    pub ns: f64,
    /// FLOP per ns of a loop of fused multiply-adds on one core just behind it; 0 where it is unknown.
    pub peak_gflops: f64,
}

/// A process with a kernel in it. It ends with the value.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Session {
    pub(super) fn start(host: &Path, kernel: &Path, input: &Path, memory_bytes: u64) -> Result<Session, HarnessError> {
        let died = |e: std::io::Error| HarnessError::Died { cause: e.to_string() };
        let mut command = Command::new(host);
        command.arg(kernel).arg(input).arg(memory_bytes.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = crate::toolchain::apart(&mut command).spawn().map_err(died)?;
        let (tell, lines) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                // A session that is gone wants no more lines; one that ends its output has said all.
                BufReader::new(output).lines().map_while(Result::ok).all(|line| tell.send(line).is_ok())
            });
        }
        Ok(Session { input: child.stdin.take(), child, lines })
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Runs the kernel checked, in so many shares; what it computed goes to a file.
    pub fn check(&mut self, workers: usize, output: &Path, limit: Duration) -> Result<(), HarnessError> {
        self.ask(&format!("check {} {}", workers.max(1), output.display()), limit).map(drop)
    }

    /// Makes ready for samples of at least `min_sample`; gives the time of a call. What the kernel reads finds it where the
    /// call before left it if it is in the bit set `kept` (the first bit is the first parameter), and else in no cache: so
    /// it is called in a network, where each layer has weights of its own.
    pub fn prepare(
        &mut self,
        threads: usize,
        (min_sample, calls): (Duration, u64),
        kept: u64,
        limit: Duration,
    ) -> Result<f64, HarnessError> {
        let said =
            self.ask(&format!("time {} {} {kept} {}", threads.max(1), min_sample.as_nanos(), calls.max(1)), limit)?;
        let ns = said.iter().find_map(|l| l.strip_prefix("ready ")?.parse().ok());
        ns.ok_or_else(|| HarnessError::Died { cause: format!("it said: {}", said.join(" ")) })
    }

    /// Takes samples.
    pub fn sample(&mut self, count: usize, limit: Duration) -> Result<Vec<Sample>, HarnessError> {
        let said = self.ask(&format!("sample {}", count.max(1)), limit)?;
        let read = |line: &String| match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["sample", ns, peak] => Some(Sample { ns: ns.parse().ok()?, peak_gflops: peak.parse().ok()? }),
            _ => None,
        };
        Ok(said.iter().filter_map(read).collect())
    }

    /// Sends a line and waits for the verdict; gives the lines before it.
    fn ask(&mut self, line: &str, limit: Duration) -> Result<Vec<String>, HarnessError> {
        if let Some(input) = &mut self.input {
            // A process that is gone is noticed below, with what it has said last.
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
        let deadline = Instant::now() + limit;
        let mut said = vec![];
        loop {
            let line = match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    self.end();
                    return Err(HarnessError::Timeout { limit_s: limit.as_secs() });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.death(&said)),
            };
            let offset = |w: &str| w.parse().unwrap_or(0);
            let error = match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["ok"] => return Ok(said),
                ["fault", buffer, at] => HarnessError::OutOfBounds { buffer: buffer.into(), offset: offset(at) },
                ["stray"] => HarnessError::Stray,
                ["canary", buffer, at] => HarnessError::Canary { buffer: buffer.into(), offset: offset(at) },
                ["input_changed", buffer, _] => HarnessError::InputChanged { buffer: buffer.into() },
                ["unstable", buffer, at] => HarnessError::Unstable { buffer: buffer.into(), offset: offset(at) },
                ["error", "memory", ..] => HarnessError::Memory,
                _ => {
                    said.push(line);
                    continue;
                }
            };
            self.end();
            return Err(error);
        }
    }

    /// Ends the process.
    fn end(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended without a verdict.
    fn death(&mut self, said: &[String]) -> HarnessError {
        match self.child.wait() {
            Ok(status) if was_killed(status) => HarnessError::Killed,
            Ok(status) => HarnessError::Died { cause: format!("{status}; it said: {}", said.join(" ").trim()) },
            Err(e) => HarnessError::Died { cause: e.to_string() },
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a signal that no program sends itself has ended the process.
fn was_killed(status: std::process::ExitStatus) -> bool {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    #[cfg(not(unix))]
    return {
        let _ = status;
        false
    };
}
