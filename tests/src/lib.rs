//! The suites that cross crates live in `tests/`; this library holds what they share.
#![forbid(unsafe_code)]

pub mod consumer;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// What `count.awk` says of a log.
    fn counted(log: &str) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/count.awk");
        let pipes = |command: &mut Command| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut awk = pipes(Command::new("awk").args(["-f", script])).expect("awk");
        awk.stdin.take().expect("a pipe").write_all(log.as_bytes()).expect("awk reads");
        String::from_utf8(awk.wait_with_output().expect("awk ends").stdout).expect("text")
    }

    #[test]
    fn what_skips_is_listed_and_not_counted_as_passed() {
        // A suite of five: one test says twice that it skips, one skips a part, one only quotes the text, one fails with it.
        let log = "running 5 tests\n\
                   test a ... ok\ntest b ... ok\ntest c ... ok\ntest d ... ok\ntest e ... FAILED\n\n\
                   successes:\n\n\
                   ---- a stdout ----\nnote\n[SKIP] no GPU\n[SKIP] no GPU\n\n\
                   ---- b stdout ----\n[SKIP] part: no git\n\n\
                   ---- c stdout ----\nit said `[SKIP] no GPU`\n\n\n\
                   successes:\n    a\n    b\n    c\n    d\n\n\
                   failures:\n\n---- e stdout ----\n[SKIP] quoted by an assertion\n\n\nfailures:\n    e\n\n\
                   test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                   successes:\n\n---- a stdout ----\n[SKIP] another suite\n\nsuccesses:\n    a\n\n\
                   test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                   [SKIP] no GPU: a program that is no test\n";
        let expected = "\nSkipped:\nno GPU  (a)\nno GPU  (a)\npart: no git  (b)\nanother suite  (a)\n\
                        no GPU: a program that is no test\n\n\
                        4 passed, 1 failed, 3 skipped, 1 skipped in part\n";
        assert_eq!(counted(log), expected);
        assert_eq!(counted(""), "\n0 passed, 0 failed, 0 skipped, 0 skipped in part\n");
    }
}
