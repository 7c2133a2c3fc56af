//! Sessions and workers as processes around a real server, which are killed at random moments.
//!
//! The server is `nats-server`, or what `KERNEL_GEN_TEST_NATS` names; `tests/nats.sh` fetches one. Where it is missing the tests
//! say so. `KERNEL_GEN_KILLS=20 cargo test -p kernel-gen-fleet --test fleet -- --nocapture` kills more.

use kernel_gen::records::log::Log;
use kernel_gen::stable::Rng;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A server with its store, in a folder of the test's own.
struct Server {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    running: Option<Child>,
}

impl Server {
    /// A server that runs, or a line that says that there is none.
    fn start(name: &str) -> Option<Server> {
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
        let mut server = Server { program, folder, port, running: None };
        server.run();
        Some(server)
    }

    fn run(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("-js").arg("-sd").arg(self.folder.join("store")).args(["-a", "127.0.0.1", "-p"]);
        command.arg(self.port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        self.running = Some(command.spawn().expect("the server starts"));
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < until, "the server does not listen");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The command with a fleet at this server, in its folder.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernel-gen-fleet"));
        command.args(arguments).args(["--fleet", &format!("nats://127.0.0.1:{}", self.port), "--lease", "2"]);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    fn worker(&self) -> Worker {
        let mut command = self.command(&["worker", "--build-jobs", "1"]);
        let said = std::fs::File::options().create(true).append(true).open(self.folder.join("workers.txt"));
        command.stdout(Stdio::null()).stderr(said.expect("the folder is writable"));
        Worker(command.spawn().expect("the worker starts"))
    }

    /// A session of a few short trials of each of the spec's workloads.
    fn session(&self, trials: &str) -> Command {
        let mut command =
            self.command(&["tune", "--quiet", "--tuner", "random", "--repeat", "3", "--min-repeat-ms", "0.1"]);
        command.args(["--trials", trials]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// A worker, which does not outlive its test.
struct Worker(Child);

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
fn spec(server: &Server, workloads: usize) {
    let mut text = "schema = 1\n[[kernel]]\nname = \"product\"\nop = \"matmul\"\n".to_string();
    for i in 0..workloads {
        let (m, k, n) = (16 + 8 * i, 32, 24 + 8 * (i % 3));
        text += &format!("[[kernel.workload]]\nname = \"w{i}\"\na = [{m}, {k}]\nb = [{k}, {n}]\n");
    }
    std::fs::write(server.folder.join("kernels.toml"), text).expect("the folder is writable");
}

/// Ends a process as a batch system does.
#[cfg(unix)]
fn terminate(child: &mut Child) -> std::process::ExitStatus {
    let said = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(said.is_ok_and(|status| status.success()));
    child.wait().expect("it ends")
}

/// Waits for a process to end, at most so long.
fn ended(mut child: Child, seconds: u64) -> Output {
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

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Trials of each config in the log, and how many of them ran.
fn trials(server: &Server) -> (BTreeMap<(String, String, String), usize>, usize) {
    let log = Log::read(&[server.folder.join("tuning.jsonl")]).expect("the log can be read");
    let (mut all, mut timed) = (BTreeMap::new(), 0);
    for entry in &log.entries {
        let key = (entry.task.workload.clone(), entry.task.template.clone(), entry.trial.config.to_string());
        *all.entry(key).or_default() += 1;
        timed += usize::from(entry.trial.outcome.time_us().is_some());
    }
    (all, timed)
}

#[cfg(unix)]
#[test]
fn every_trial_counts_once_whoever_is_killed() {
    let Some(mut server) = Server::start("killed") else { return };
    let kills: u64 = std::env::var("KERNEL_GEN_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    spec(&server, if kills > 10 { 20 } else { 4 });
    let mut rng = Rng::new(kills);
    let mut workers: Vec<Worker> = (0..if kills > 10 { 8 } else { 3 }).map(|_| server.worker()).collect();
    let mut session = server.session("12").spawn().expect("the session starts");
    let (mut killed, mut sessions, mut servers) = (0, 0, 0);
    let begun = Instant::now();
    let output = loop {
        std::thread::sleep(Duration::from_millis(300 + rng.below(500)));
        if let Some(status) = session.try_wait().expect("it can be asked") {
            let output = session.wait_with_output().expect("it has ended");
            assert!(status.success(), "{}", text(&output));
            break output;
        }
        let said = || std::fs::read_to_string(server.folder.join("workers.txt")).unwrap_or_default();
        assert!(begun.elapsed() < Duration::from_secs(60 + 5 * kills), "the session does not end:\n{}", said());
        if killed >= kills {
            continue;
        }
        let at = rng.below(workers.len() as u64) as usize;
        workers[at] = server.worker();
        killed += 1;
        if killed == kills / 3 || killed == 2 * kills / 3 {
            server.kill();
            server.run();
            servers += 1;
        }
        if killed % (kills / 3).max(2) == 1 && sessions < 3 {
            let _ = session.kill();
            let _ = session.wait();
            session = server.session("12").spawn().expect("the session starts");
            sessions += 1;
        }
    };
    for worker in &mut workers {
        assert!(terminate(&mut worker.0).success(), "a worker that is told to end does so in order");
    }
    let (all, timed) = trials(&server);
    println!(
        "{killed} workers, {sessions} sessions and {servers} servers killed in {:.0} s: {} trials, {timed} timed\n{}",
        begun.elapsed().as_secs_f64(),
        all.len(),
        text(&output)
    );
    assert!(killed >= 1, "the session ended before anything was killed");
    let twice: Vec<_> = all.iter().filter(|(_, n)| **n != 1).collect();
    assert!(twice.is_empty(), "trials that count twice: {twice:?}");
    assert!(timed * 10 >= all.len() * 8, "{timed} of {} ran", all.len());
    assert!(text(&output).contains("wrote "), "{}", text(&output));
}

#[test]
fn a_session_without_workers_or_server_says_so() {
    let Some(mut server) = Server::start("alone") else { return };
    spec(&server, 1);
    server.kill();
    let session = server.session("1").spawn().expect("the session starts");
    let mut worker = Command::new(env!("CARGO_BIN_EXE_kernel-gen-fleet"));
    worker.args(["worker", "--fleet", "nats://me:secret@127.0.0.1:1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Both try for a while.
    let worker = worker.spawn().expect("the worker starts");
    let said = text(&ended(session, 60));
    assert!(said.contains("no connection") && said.contains("is a NATS server there"), "{said}");
    let output = ended(worker, 60);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("nats://127.0.0.1:1: no connection"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}
