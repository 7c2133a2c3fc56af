//! A real server on the loopback, and what runs around it: workers, sessions, and what they leave behind.

use kernel_gen::records::log::Log;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A server with its store, in a folder of the test's own.
pub(crate) struct Server {
    program: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    running: Option<Child>,
    /// Options of the server.
    more: Vec<String>,
}

impl Server {
    /// A server that runs, or a line that says that there is none.
    pub(crate) fn start(name: &str) -> Option<Server> {
        Server::start_with(name, |_| vec![])
    }

    /// The same with options, which may name files that are made in its folder.
    pub(crate) fn start_with(name: &str, more: impl Fn(&Path) -> Vec<String>) -> Option<Server> {
        let named = std::env::var_os("KERNEL_GEN_TEST_NATS").map(PathBuf::from);
        let on_path = || {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join("nats-server")).find(|file| file.exists())
        };
        let Some(program) = named.or_else(on_path) else {
            println!("[SKIP] no NATS server");
            return None;
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fleet-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("cargo's folder for tests is writable");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
        let more = more(&folder);
        let mut server = Server { program, folder, port, running: None, more };
        server.run();
        Some(server)
    }

    pub(crate) fn run(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("-js").arg("-sd").arg(self.folder.join("store")).args(["-a", "127.0.0.1", "-p"]);
        command.arg(self.port.to_string()).args(&self.more).stdout(Stdio::null()).stderr(Stdio::null());
        self.running = Some(command.spawn().expect("the server starts"));
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < until, "the server does not listen");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The command with a fleet at this server, in its folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernel-gen-fleet"));
        command.args(arguments).args(["--fleet", &format!("nats://127.0.0.1:{}", self.port), "--lease", "2"]);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// A command that says something and ends.
    pub(crate) fn said(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
    }

    pub(crate) fn worker(&self) -> Worker {
        let mut command = self.command(&["worker", "--build-jobs", "1"]);
        let said = std::fs::File::options().create(true).append(true).open(self.folder.join("workers.txt"));
        command.stdout(Stdio::null()).stderr(said.expect("the folder is writable"));
        Worker(command.spawn().expect("the worker starts"))
    }

    /// A session of a few short trials of each of the spec's workloads.
    pub(crate) fn session(&self, trials: &str) -> Command {
        let mut command = self.noisy(trials);
        command.arg("--quiet");
        command
    }

    /// The same, with its progress.
    pub(crate) fn noisy(&self, trials: &str) -> Command {
        let mut command = self.command(&["tune", "--tuner", "random", "--repeat", "3", "--min-repeat-ms", "0.1"]);
        command.args(["--trials", trials]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// A worker, which does not outlive its test.
pub(crate) struct Worker(pub(crate) Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Small products, each a workload.
pub(crate) fn spec(server: &Server, workloads: usize) {
    let mut text = "schema = 1\n[[kernel]]\nname = \"product\"\nop = \"matmul\"\n".to_string();
    for i in 0..workloads {
        let (m, k, n) = (16 + 8 * i, 32, 24 + 8 * (i % 3));
        text += &format!("[[kernel.workload]]\nname = \"w{i}\"\na = [{m}, {k}]\nb = [{k}, {n}]\n");
    }
    std::fs::write(server.folder.join("kernels.toml"), text).expect("the folder is writable");
}

/// Ends a process as a batch system does.
#[cfg(unix)]
pub(crate) fn terminate(child: &mut Child) -> std::process::ExitStatus {
    let said = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(said.is_ok_and(|status| status.success()));
    child.wait().expect("it ends")
}

/// Waits for a process to end, at most so long.
pub(crate) fn ended(mut child: Child, seconds: u64) -> Output {
    let until = Instant::now() + Duration::from_secs(seconds);
    while child.try_wait().expect("it can be asked").is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            panic!("it did not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.wait_with_output().expect("it has ended")
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Trials of each config in the log, and how many of them ran.
pub(crate) fn trials(server: &Server) -> (BTreeMap<(String, String, String), usize>, usize) {
    let log = Log::read(&[server.folder.join("tuning.jsonl")]).expect("the log can be read");
    let (mut all, mut timed) = (BTreeMap::new(), 0);
    for entry in &log.entries {
        let key = (entry.task.workload.clone(), entry.task.template.clone(), entry.trial.config.to_string());
        *all.entry(key).or_default() += 1;
        timed += usize::from(entry.trial.outcome.time_us().is_some());
    }
    (all, timed)
}
