//! Processes that work for this one: apart from it, and for a limited time.

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Has a command run in a group of processes of its own. A terminal's Ctrl-C goes to every process of the group in front:
/// it must end what is tuned when the tuner says so, and not the compiler and the kernel that are at work, whose end would
/// be taken for a failure of the config.
pub(crate) fn apart(command: &mut Command) -> &mut Command {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command
}

/// What ended a tool that did not end by itself, from its status and from what it said: a signal that the system or a person
/// sends, to it or to a program that it had started, or want of memory. None where the tool failed by itself. A compiler that
/// crashes does so on every such source, so signals of crashes are failures like any other.
pub(crate) fn ended_by(status: ExitStatus, said: &str) -> Option<String> {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        /// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
        const CRASHES: [i32; 7] = [4, 5, 6, 7, 8, 11, 31];
        return (!CRASHES.contains(&signal)).then(|| status.to_string());
    }
    if status.success() {
        return None;
    }
    // A shell that runs a tool, as wrappers of compilers do, says so by its own status: 128 and SIGHUP, SIGINT, SIGKILL or
    // SIGTERM.
    if let Some(signal) = status.code().map(|code| code - 128).filter(|signal| [1, 2, 9, 15].contains(signal)) {
        return Some(format!("a status of {}, which stands for signal {signal}", 128 + signal));
    }
    // GCC's and Clang's drivers, nvcc, and the C library of a program without memory.
    const SIGNS: [&str; 8] = [
        "Killed signal terminated program",
        "Terminated signal terminated program",
        "unable to execute command: Killed",
        "unable to execute command: Terminated",
        "died due to signal 9",
        "died due to signal 15",
        "virtual memory exhausted",
        "out of memory allocating",
    ];
    let line = said.lines().find(|line| SIGNS.iter().any(|sign| line.contains(sign)))?;
    Some(line.trim().chars().take(200).collect())
}

/// How many times as long as its limit something may take that is hardly given a processor.
const STALLED: u32 = 10;

/// Whether what a group of processes does is over before it has used up so much time of a processor. `is_over` waits for as
/// long as it is told and says whether it is. On a busy machine, or one that was suspended, a minute may pass while a
/// compiler has worked for a second: what is held against a config must be the second. Where the system does not say how
/// much that is, and in any case after ten times the limit, the clock decides.
pub(crate) fn is_over_in_time(group: u32, limit: Duration, mut is_over: impl FnMut(Duration) -> bool) -> bool {
    let began = Instant::now();
    let before = processor_time(group).unwrap_or_default();
    let mut wait = limit;
    while !is_over(wait) {
        let used = processor_time(group).map_or(limit, |now| now.saturating_sub(before));
        if used >= limit || began.elapsed() >= limit * STALLED {
            return false;
        }
        wait = (limit - used).clamp(Duration::from_millis(10), limit);
    }
    true
}

/// The time of a processor that the processes of a group have used, those included that ended in it; none where the system
/// does not say.
fn processor_time(group: u32) -> Option<Duration> {
    let mut ticks = 0;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        // Whatever is no process has no such file, or ended just now.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        ticks += ticks_of(&stat, group).unwrap_or(0);
    }
    // Linux counts these in hundredths of a second, whatever its own clock does.
    Some(Duration::from_millis(ticks * 10))
}

/// The ticks of a process and of its children that ended, from what the system says of it; none if it is of another group.
fn ticks_of(stat: &str, group: u32) -> Option<u64> {
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.get(2)?.parse() != Ok(group) {
        return None;
    }
    fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::{Child, Stdio};

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null());
        apart(&mut command).spawn().unwrap()
    }

    /// Whether the child ended within a limit, and after how long that was known.
    fn watched(mut child: Child, limit: Duration) -> (bool, Duration) {
        let began = Instant::now();
        let over = is_over_in_time(child.id(), limit, |wait| {
            let until = Instant::now() + wait;
            loop {
                if child.try_wait().unwrap().is_some() {
                    return true;
                }
                if Instant::now() >= until {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        // A shell's children are of its group.
        let group = format!("-{}", child.id());
        Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status().unwrap();
        child.wait().unwrap();
        (over, began.elapsed())
    }

    #[test]
    fn only_the_time_of_a_processor_is_held_against_a_process() {
        // It sleeps for longer than the limit, as one does that a busy machine lets wait.
        let (over, took) = watched(shell("sleep 0.5"), Duration::from_millis(200));
        assert!(over && took >= Duration::from_millis(400), "{over} after {took:?}");
        // One that works without end is given up, its child's work included.
        let (over, _) = watched(shell("sh -c 'while :; do :; done' & wait"), Duration::from_millis(200));
        assert!(!over);
        // And so is one that waits without end.
        let (over, took) = watched(shell("sleep 60"), Duration::from_millis(50));
        assert!(!over && took < Duration::from_secs(30), "{took:?}");
    }

    #[test]
    fn a_tool_that_was_ended_from_outside_is_told_from_one_that_failed() {
        let ended = |script: &str, said: &str| ended_by(shell(script).wait().unwrap(), said);
        assert_eq!(ended("kill -KILL $$", "").unwrap(), "signal: 9 (SIGKILL)");
        assert!(ended("kill -TERM $$", "").unwrap().starts_with("signal: 15"));
        assert!(ended("sh -c 'kill -KILL $$'; exit $?", "").unwrap().contains("stands for signal 9"));
        let gcc =
            "a.c: In function f:\ngcc: fatal error: Killed signal terminated program cc1\ncompilation terminated.";
        assert_eq!(ended("exit 1", gcc).unwrap(), "gcc: fatal error: Killed signal terminated program cc1");
        assert!(ended("exit 1", "cc1: out of memory allocating 65536 bytes after a total of 1048576 bytes").is_some());
        assert!(ended("exit 255", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)").is_some());
        // It crashed, it complained, it did well.
        let ice = "gcc: internal compiler error: Segmentation fault signal terminated program cc1";
        for (script, said) in [("kill -SEGV $$", ""), ("exit 4", ice), ("exit 1", "a.c:1: error: no"), ("exit 0", gcc)]
        {
            assert_eq!(ended(script, said), None, "{script}: {said}");
        }
    }

    #[test]
    fn ticks_are_read_whatever_a_program_is_called() {
        let stat = "7 (a) b (c) R 1 42 42 0 -1 4194304 100 0 0 0 3 4 5 6 20 0 1 0 100 1000 10";
        assert_eq!(ticks_of(stat, 42), Some(18));
        assert_eq!(ticks_of(stat, 41), None);
        assert_eq!(ticks_of("7 (a", 42), None);
    }
}
