//! What safe code cannot say: each file of `tests/refused` would let a launch read or write outside of its buffers, and does not
//! compile. The file's `//~` lines are its errors, all of them; `accepted.rs` has none and compiles.

use kernel_gen_tests::consumer::{Consumer, repository};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The errors that a file expects: each line is a code, or `error:`, and words that the message has.
fn expected(text: &str) -> Vec<Vec<&str>> {
    text.lines().filter_map(|line| Some(line.strip_prefix("//~ ")?.split(' ').collect())).collect()
}

/// The errors that cargo printed of a file: each begins with a line of its own, and the next names the place.
fn printed<'a>(stderr: &'a str, file: &str) -> BTreeSet<&'a str> {
    let place = format!("--> src/bin/{file}.rs:");
    let lines: Vec<&str> = stderr.lines().collect();
    let pairs = lines.windows(2).filter(|pair| pair[0].starts_with("error") && pair[1].trim().starts_with(&place));
    pairs.map(|pair| pair[0]).collect()
}

#[test]
fn safe_code_cannot_make_a_launch_leave_its_buffers() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refused");
    let consumer = Consumer::empty(&root, "refused");
    let runtime = repository().join("runtime");
    consumer.write(
        "Cargo.toml",
        &format!(
            "[package]\nname = \"refused\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
             kernel-gen-runtime = {{ path = {runtime:?}, features = [\"cuda\"] }}\n\n[workspace]\n"
        ),
    );
    let mut files = vec![];
    for entry in fs::read_dir(repository().join("tests/refused")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let text = fs::read_to_string(&path).unwrap();
        consumer.write(format!("src/bin/{name}.rs"), &text);
        files.push((name, text));
    }
    files.sort();
    consumer.lock();
    let ran = consumer.cargo(&["check", "--bins", "--keep-going", "--offline", "--locked"]).failed();
    let mut wrong = vec![];
    for (name, text) in &files {
        let (expected, printed) = (expected(text), printed(&ran.stderr, name));
        assert_eq!(expected.is_empty(), name == "accepted", "{name} states what it expects");
        let is = |line: &str, words: &[&str]| words.iter().all(|word| line.contains(word));
        let missed: Vec<_> = expected.iter().filter(|words| !printed.iter().any(|line| is(line, words))).collect();
        let others: Vec<_> = printed.iter().filter(|line| !expected.iter().any(|words| is(line, words))).collect();
        if !(missed.is_empty() && others.is_empty()) {
            wrong.push(format!("{name}:\n  not printed: {missed:?}\n  not expected: {others:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), ran.stderr);
    // No file may be refused for what this does not see.
    assert!(files.len() > 10 && !ran.stderr.contains("`refused` (bin \"accepted\")"), "{}", ran.stderr);
}
