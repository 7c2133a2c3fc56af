//! How many replies a session takes.

use crate::server::{Server, ended, spec, text, trials};
use crate::stranger::{Stranger, gpu, runtime, time_us};
use kernel_gen::tune::session::Stop;
use std::process::Stdio;

async fn work(port: u16, end: Stop) {
    let worker = Stranger::at(port, "echo", gpu(0), 512).await;
    worker.answer(end, |worker, request| vec![worker.reply(request, time_us)]).await;
}

/// Workers that answer at once leave nothing to wait for but the session, its tuners and the server.
#[test]
fn a_session_keeps_many_workers_busy() {
    let Some(server) = Server::start("load") else { return };
    let seconds = std::env::var("KERNEL_GEN_LOAD_S").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let given = std::env::var("KERNEL_GEN_LOAD_ARGS").unwrap_or_default();
    spec(&server, 20);
    let mut command = server.command(&["tune", "--quiet", "--target", "sm_90a", "--trials", "100000"]);
    command.args(["--patience", "100000", "--seconds", &seconds.to_string()]);
    command.args(["--log", "tuning.jsonl", "--tuned", "tuned"]).args(given.split_whitespace());
    let session = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the session starts");
    let runtime = runtime();
    let end = Stop::new();
    let working = runtime.spawn(work(server.port, end.clone()));
    let output = ended(session, seconds + 60);
    end.ask();
    drop(runtime.block_on(working));
    let (all, _) = trials(&server);
    println!("{} trials\n{}", all.len(), text(&output));
    assert!(output.status.success(), "{}", text(&output));
    assert!(all.values().all(|n| *n == 1), "trials that count twice");
    assert!(all.len() as u64 >= 20 * seconds, "{} trials in {seconds} s", all.len());
}
