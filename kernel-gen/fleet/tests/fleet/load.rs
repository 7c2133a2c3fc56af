//! How many replies a session takes.

use crate::server::{Server, ended, spec, text, trials};
use crate::stranger::{Stranger, gpu, runtime, time_us};
use async_nats::jetstream::AckKind;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Workers that answer at once leave nothing to wait for but the session, its tuners and the server.
#[test]
fn a_session_keeps_many_workers_busy() {
    let Some(server) = Server::start("load") else { return };
    let seconds = std::env::var("KERNEL_GEN_LOAD_S").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let given = std::env::var("KERNEL_GEN_LOAD_SPEC").ok();
    spec(&server, 20);
    let mut command = server.command(&["tune", "--quiet", "--target", "sm_90a", "--trials", "100000"]);
    command.args(["--patience", "100000", "--seconds", &seconds.to_string()]);
    command.args(["--log", "tuning.jsonl", "--tuned", "tuned"]).args(given);
    let session = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the session starts");
    let runtime = runtime();
    let until = Instant::now() + Duration::from_secs(seconds + 5);
    let replies = runtime.block_on(async {
        let mut worker = Stranger::at(server.port, "echo", gpu(0), 512).await;
        let mut replies = 0;
        while Instant::now() < until {
            for (request, acker) in worker.take(256).await {
                let reply = worker.reply(&request, time_us);
                worker.publish(request.id(), serde_json::to_vec(&reply).expect("it can be written")).await;
                let _ = acker.ack_with(AckKind::Ack).await;
                replies += 1;
            }
        }
        replies
    });
    let output = ended(session, 30);
    let (all, _) = trials(&server);
    println!("{replies} replies; {} trials\n{}", all.len(), text(&output));
    assert!(output.status.success(), "{}", text(&output));
    assert!(all.values().all(|n| *n == 1), "trials that count twice");
    assert!(all.len() as u64 >= 20 * seconds, "{} trials in {seconds} s", all.len());
}
