//! Authentication and TLS: names, passwords and certificates.

use crate::server::{Server, ended, spec, text};
use std::path::Path;
use std::process::{Command, Stdio};

const PASSWORD: &str = "s3cret@word";

/// The command at an address of the server's.
fn said(server: &Server, address: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernel-gen-fleet"));
    command.args(arguments).args(["--fleet", &address.replace("PORT", &server.port.to_string())]);
    command.current_dir(&server.folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = ended(command.spawn().expect("the command starts"), 60);
    let text = text(&output);
    assert!(!text.contains(PASSWORD) && !text.contains("s3cret%40word"), "{text}");
    text
}

#[test]
fn a_name_and_a_password_open_a_server_and_nothing_else_does() {
    let options = ["--user", "tuner", "--pass", PASSWORD].map(str::to_string);
    let Some(server) = Server::start_with("password", |_| options.to_vec()) else { return };
    spec(&server, 1);
    let right = said(&server, "nats://tuner:s3cret%40word@127.0.0.1:PORT", &["fleet", "status"]);
    assert!(right.contains("no workers"), "{right}");
    let wrong = said(&server, "nats://tuner:other@127.0.0.1:PORT", &["fleet", "status"]);
    assert!(wrong.contains("no connection: authorization violation") && !wrong.contains("other"), "{wrong}");
}

/// A certificate of an authority of its own, and what the server is told of it; none without `openssl`.
fn certified(folder: &Path) -> Option<Vec<String>> {
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        .expect("the folder is writable");
    for line in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout own.key -out own.csr -subj /CN=localhost",
        "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out own.pem -days 2 -extfile names",
    ] {
        let done = Command::new("openssl").args(line.split(' ')).current_dir(folder).stderr(Stdio::null()).status();
        if !done.is_ok_and(|status| status.success()) {
            return None;
        }
    }
    let file = |name: &str| folder.join(name).display().to_string();
    Some(vec!["--tls".into(), "--tlscert".into(), file("own.pem"), "--tlskey".into(), file("own.key")])
}

#[test]
fn a_server_with_a_certificate_is_met_by_who_knows_its_authority() {
    let server = Server::start_with("tls", |folder| {
        let mut options = certified(folder).unwrap_or_default();
        options.extend(["--user", "tuner", "--pass", PASSWORD].map(str::to_string));
        options
    });
    let Some(server) = server else { return };
    if !server.folder.join("own.pem").exists() {
        println!("[SKIP] no openssl");
        return;
    }
    let address = "tls://tuner:s3cret%40word@localhost:PORT";
    let right = said(&server, address, &["fleet", "status", "--ca", "ca.pem"]);
    assert!(right.contains("no workers"), "{right}");
    let stranger = said(&server, address, &["fleet", "status"]);
    assert!(stranger.contains("invalid peer certificate"), "{stranger}");
}
