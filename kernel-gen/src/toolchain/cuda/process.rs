//! Runs a compiler with a time limit, in a folder of its own.

use super::CudaError;
use crate::toolchain::ToolError;
use crate::toolchain::temporary::Temporary;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A folder that vanishes with its value.
#[derive(Debug)]
pub(super) struct Scratch(Temporary);

impl Scratch {
    pub(super) fn new() -> Result<Scratch, CudaError> {
        Temporary::new().map(Scratch).map_err(|e| CudaError::io(&std::env::temp_dir(), &e))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), CudaError> {
        let path = self.path().join(name);
        fs::write(&path, text).map_err(|e| CudaError::io(&path, &e))
    }

    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, CudaError> {
        let path = self.path().join(name);
        fs::read(&path).map_err(|e| CudaError::io(&path, &e))
    }
}

/// How a command ended.
pub(super) enum Ended {
    /// With status 0; what it printed.
    Well(String),
    /// Otherwise; what it printed, or its status if that was nothing.
    Badly(String),
    /// It was still running at the limit, and was ended.
    Late,
}

/// Runs a command inside the folder. What it prints goes to files there: a pipe would wait for children of children
/// that outlive the command.
pub(super) fn run(mut command: Command, folder: &Scratch, limit: Duration) -> Result<Ended, CudaError> {
    let open = |name: &str| {
        let path = folder.path().join(name);
        File::create(&path).map_err(|e| CudaError::io(&path, &e))
    };
    let shown = format!("`{}`", shown(&command));
    // What a compiler leaves behind when it is ended vanishes with the folder.
    command.env("TMPDIR", folder.path());
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(open("stdout")?).stderr(open("stderr")?);
    let mut child = match crate::toolchain::apart(&mut command).spawn() {
        Ok(child) => child,
        Err(e) => return Ok(Ended::Badly(e.to_string())),
    };
    let group = child.id();
    let mut ended = None;
    let is_over = |longer| {
        let until = Instant::now() + longer;
        loop {
            ended = child.try_wait().transpose();
            if ended.is_some() || Instant::now() >= until {
                return ended.is_some();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    crate::toolchain::is_over_in_time(group, limit, is_over);
    let status = match ended {
        Some(Ok(status)) => status,
        Some(Err(e)) => return Ok(Ended::Badly(e.to_string())),
        None => {
            // It may have ended just now; then there is nothing to end.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(Ended::Late);
        }
    };
    let said = [folder.read("stdout")?, folder.read("stderr")?].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if let Some(by) = crate::toolchain::ended_by(status, &said) {
        return Err(CudaError::Tool(ToolError::Killed { file: shown, by }));
    }
    Ok(match status.success() {
        true => Ended::Well(said),
        false if said.trim().is_empty() => Ended::Badly(status.to_string()),
        false => Ended::Badly(said),
    })
}

/// A command as a person would type it.
pub(super) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// What a program says of itself when it is asked shortly: `--version` and the like.
pub(super) fn ask(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let folder = Scratch::new().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.args(arguments);
    match run(command, &folder, Duration::from_secs(60)).map_err(|e| e.to_string())? {
        Ended::Well(said) => Ok(said),
        Ended::Badly(said) => {
            let line = said.lines().find(|l| !l.trim().is_empty()).unwrap_or_default().trim().to_string();
            Err(format!("`{} {}` fails: {line}", program.display(), arguments.join(" ")))
        }
        Ended::Late => Err(format!("`{} {}` does not end", program.display(), arguments.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Folder;
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let folder = Folder::new("late");
        let tool = folder.script("tool", "sleep 60");
        let started = Instant::now();
        let scratch = Scratch::new().unwrap();
        let ended = run(Command::new(tool), &scratch, Duration::from_millis(50)).unwrap();
        assert!(matches!(ended, Ended::Late));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_command_that_is_ended_from_outside_did_not_fail() {
        let folder = Folder::new("killed");
        let tool = folder.script("tool", "echo warning; kill -KILL $$");
        let scratch = Scratch::new().unwrap();
        let error = run(Command::new(&tool), &scratch, Duration::from_secs(20)).err().unwrap();
        let ToolError::Killed { file, by } = (match error {
            CudaError::Tool(error) => error,
            other => panic!("{other}"),
        }) else {
            panic!("it failed")
        };
        assert_eq!((file, by.as_str()), (format!("`{}`", tool.display()), "signal: 9 (SIGKILL)"));
    }

    #[test]
    fn what_a_failing_command_says_comes_back() {
        let folder = Folder::new("fails");
        let tool = folder.script("tool", "echo one; echo two >&2; exit 3");
        assert_eq!(ask(&tool, &["--version"]).unwrap_err(), format!("`{} --version` fails: one", tool.display()));
        let silent = folder.script("silent", "exit 3");
        assert!(ask(&silent, &[]).unwrap_err().contains("exit status: 3"));
        assert!(ask(&folder.join("nothing"), &[]).is_err());
    }
}
