//! Messages that nobody of the fleet would send.

use crate::server::{Server, ended, spec, text, trials};
use crate::stranger::NAME;
use async_nats::Client;
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt;
use kernel_gen::stable::Rng;
use kernel_gen::tune::fleet::wire::MOST_BYTES;
use kernel_gen::tune::session::Stop;
use std::time::{Duration, Instant};

/// What was sent, by what it is.
#[derive(Default, Debug)]
struct Sent {
    subjects: usize,
    requests: usize,
    replies: usize,
    keys: usize,
    most_bytes: usize,
}

/// Something at the server, changed: what was heard there, cut, torn, with other bytes and numbers; or nothing but noise.
fn payload(rng: &mut Rng, heard: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = match heard.len() {
        0 => vec![],
        n => heard[rng.below(n as u64) as usize].clone(),
    };
    match rng.below(8) {
        0 => bytes = (0..rng.below(300)).map(|_| rng.below(256) as u8).collect(),
        1 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
        2 => bytes = [b"{\"wire\":1,".repeat(40_000), bytes].concat(),
        3 => bytes = [vec![b'['; 200_000], bytes].concat(),
        4 => {
            // A number that is none a session or a worker sends.
            let odd = ["-1", "1e999", "18446744073709551615", "0", "1e300", "null", "[]", "\"\""];
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let digits: Vec<(usize, &str)> = text.match_indices(|c: char| c.is_ascii_digit()).collect();
            if let Some((at, _)) = digits.get(rng.below(digits.len().max(1) as u64) as usize) {
                bytes =
                    [&text[..*at], odd[rng.below(odd.len() as u64) as usize], &text[at + 1..]].concat().into_bytes();
            }
        }
        _ => {
            for _ in 0..=rng.below(6) {
                if !bytes.is_empty() {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] = rng.below(256) as u8;
                }
            }
        }
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

/// A subject of the fleet's, of its queues and replies mostly, or one that looks like them.
fn subject(rng: &mut Rng, known: &[String]) -> String {
    let noise = |rng: &mut Rng| (0..=rng.below(12)).map(|_| char::from(b'a' + rng.below(26) as u8)).collect::<String>();
    match (rng.below(6), known.len()) {
        (0, _) => format!("{NAME}.jobs.{}.{}", noise(rng), noise(rng)),
        (1, _) => format!("{NAME}.results.{}", noise(rng)),
        (2, _) => format!("{NAME}.dead"),
        (_, 0) => format!("{NAME}.{}", noise(rng)),
        (_, n) => known[rng.below(n as u64) as usize].clone(),
    }
}

/// Listens to the fleet and sends it what it did not ask for, until it is told to end.
async fn attack(port: u16, seed: u64, end: Stop) -> Sent {
    let client: Client = async_nats::connect(format!("127.0.0.1:{port}")).await.expect("the server is there");
    let server: Context = jetstream::new(client.clone());
    let mut overheard = client.subscribe(format!("{NAME}.>")).await.expect("it can listen");
    let (mut rng, mut sent) = (Rng::new(seed), Sent::default());
    let (mut heard, mut subjects): (Vec<Vec<u8>>, Vec<String>) = (vec![], vec![]);
    while !end.is_asked() {
        while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(2), overheard.next()).await {
            if !subjects.contains(&message.subject.to_string()) && subjects.len() < 64 {
                subjects.push(message.subject.to_string());
            }
            if heard.len() < 200 && message.payload.len() < 100_000 {
                heard.push(message.payload.to_vec());
            }
        }
        let bytes = payload(&mut rng, &heard);
        sent.most_bytes = sent.most_bytes.max(bytes.len());
        if rng.below(10) == 0 {
            if let Ok(devices) = server.get_key_value(format!("{NAME}-devices")).await {
                let _ = devices.put(format!("key-{}", rng.below(50)), bytes.into()).await;
                sent.keys += 1;
            }
            continue;
        }
        let subject = subject(&mut rng, &subjects);
        match subject.split('.').nth(1) {
            Some("jobs") => sent.requests += 1,
            Some("results") => sent.replies += 1,
            _ => sent.subjects += 1,
        }
        let _ = client.publish(subject, bytes.into()).await;
        let _ = client.flush().await;
    }
    sent
}

/// The memory of a process in MiB.
fn memory_mib(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// However long it is sent nonsense, a fleet goes on: nobody panics or grows, and what nobody can read is counted.
#[cfg(target_os = "linux")]
#[test]
fn hostile_messages_neither_end_nor_fill_anybody() {
    let Some(server) = Server::start("hostile") else { return };
    let seconds: u64 = std::env::var("KERNEL_GEN_FUZZ_S").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    spec(&server, 3);
    let mut workers = [server.worker(), server.worker()];
    let runtime = crate::stranger::runtime();
    let (begun, end) = (Instant::now(), Stop::new());
    let (mut sessions, mut most_mib, mut attacking) = (0, 0.0f64, None);
    while begun.elapsed() < Duration::from_secs(seconds) || sessions == 0 {
        let _ = std::fs::remove_file(server.folder.join("tuning.jsonl"));
        let seed = sessions.to_string();
        let mut session = server.noisy("6").args(["--seed", &seed]).spawn().expect("the session starts");
        let (port, stop) = (server.port, end.clone());
        attacking.get_or_insert_with(|| runtime.spawn(attack(port, seconds, stop)));
        let until = Instant::now() + Duration::from_secs(120);
        while session.try_wait().expect("it can be asked").is_none() && Instant::now() < until {
            let all = [session.id(), workers[0].0.id(), workers[1].0.id()];
            most_mib = all.into_iter().map(memory_mib).fold(most_mib, f64::max);
            std::thread::sleep(Duration::from_millis(50));
        }
        if session.try_wait().expect("it can be asked").is_none() {
            let status = text(&ended(server.said(&["fleet", "status"]), 30));
            let _ = session.kill();
            panic!("session {sessions} does not end: {}\n{status}", text(&ended(session, 5)));
        }
        let output = ended(session, 1);
        let said = text(&output);
        assert!(output.status.success() && !said.contains("panicked"), "{said}");
        let (all, _) = trials(&server);
        assert!(all.len() == 18 && all.values().all(|n| *n == 1), "{} trials\n{said}", all.len());
        sessions += 1;
    }
    let status = text(&ended(server.said(&["fleet", "status"]), 30));
    end.ask();
    let sent = runtime.block_on(attacking.expect("it was attacked")).expect("it ends");
    for worker in &mut workers {
        assert!(worker.0.try_wait().expect("it can be asked").is_none(), "a worker has ended");
    }
    let said = std::fs::read_to_string(server.folder.join("workers.txt")).unwrap_or_default();
    assert!(!said.contains("panicked at"), "{said}");
    println!("{seconds} s, {sessions} sessions, {most_mib:.0} MiB at the most; {sent:?}\n{status}");
    assert!(most_mib < 1024.0, "{most_mib} MiB");
    let dead =
        status.lines().find_map(|l| l.strip_suffix(" messages that nobody could read")).and_then(|n| n.parse().ok());
    assert!(dead.is_some_and(|n: u64| n > 0), "{status}");
}
