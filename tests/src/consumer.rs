//! Crates that use kernel-gen as a stranger would: made in a folder of their own, built by cargo.
//!
//! They share one target folder, that of the repository's own consumers, so the generator is compiled once for all tests,
//! and every build is offline: what the workspace itself needs is all that they may need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the repository").to_path_buf()
}

/// A crate in a folder of its own.
pub struct Consumer {
    /// Its folder.
    pub folder: PathBuf,
    /// Its package name.
    pub name: String,
    /// The folder that it is built into.
    pub target: PathBuf,
}

/// What cargo printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// Whether it succeeded.
    pub ok: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { ok: output.status.success(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

impl Ran {
    /// Fails the test unless the command succeeded.
    #[track_caller]
    pub fn passed(self) -> Ran {
        assert!(self.ok, "{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails the test unless the command failed.
    #[track_caller]
    pub fn failed(self) -> Ran {
        assert!(!self.ok, "this should have failed:\n{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails the test unless standard error holds the text.
    #[track_caller]
    pub fn says(self, text: &str) -> Ran {
        assert!(self.stderr.contains(text), "`{text}` is not in:\n{}", self.stderr);
        self
    }
}

impl Ran {
    /// Whether the build failed because cargo has not downloaded what it needs; says so.
    pub fn skipped_without_download(&self, what: &str) -> bool {
        let signs = ["you may remove the `--offline` flag", "attempting to make an HTTP request"];
        let skipped = !self.ok && signs.iter().any(|sign| self.stderr.contains(sign));
        if skipped {
            eprintln!("[SKIP] part: cargo has not downloaded {what}; `cargo fetch` brings it");
        }
        skipped
    }

    /// Whether the build failed because libclang is missing; says so.
    pub fn skipped_without_libclang(&self) -> bool {
        let skipped = !self.ok && self.stderr.contains("libclang is needed");
        if skipped {
            eprintln!("[SKIP] part: needs libclang; that its absence is one clear error was tested");
        }
        skipped
    }
}

/// The manifest of a package that generates kernels.
pub fn manifest(name: &str) -> String {
    let root = repository();
    let root = root.display();
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nkernel-gen-runtime = {{ path = \"{root}/runtime\" }}\n\n\
         [build-dependencies]\nkernel-gen-build = {{ path = \"{root}/build-support\" }}\n"
    )
}

impl Consumer {
    /// The crate of `tests/consumer` under another name, below `root`, which also holds what is built.
    pub fn new(root: &Path, name: &str) -> Consumer {
        let consumer = Consumer::empty(root, name);
        consumer.copy("");
        consumer.write("Cargo.toml", &(manifest(name) + "\n[workspace]\n"));
        consumer.lock();
        consumer
    }

    /// A folder without a package, to be filled by the test; `root` lies in cargo's folder for what tests write.
    pub fn empty(root: &Path, name: &str) -> Consumer {
        let folder = root.join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the tests' folder is writable");
        let target = root.ancestors().find(|folder| folder.ends_with("tmp")).and_then(Path::parent);
        let target = target.expect("cargo's folder for what tests write is `tmp` of the target folder").to_path_buf();
        Consumer { folder, name: name.to_string(), target }
    }

    /// The same crate, built into a target folder of its own.
    pub fn with_target(mut self, target: &Path) -> Consumer {
        self.target = target.to_path_buf();
        self
    }

    /// Copies the files of `tests/consumer` into a folder of this crate.
    pub fn copy(&self, into: &str) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("consumer");
        for file in ["kernels.toml", "build.rs", "plain.rs", "src/main.rs"] {
            let text = fs::read_to_string(from.join(file)).expect("the consumer is part of the repository");
            self.write(Path::new(into).join(file), &text);
        }
    }

    /// Writes a file of the crate.
    pub fn write(&self, file: impl AsRef<Path>, text: &str) {
        let path = self.folder.join(file);
        fs::create_dir_all(path.parent().expect("it lies in the crate")).expect("the tests' folder is writable");
        fs::write(path, text).expect("the tests' folder is writable");
    }

    /// Changes a file of the crate: the one occurrence of `from` becomes `to`.
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.folder.join(file)).expect("the file is there");
        assert_eq!(text.matches(from).count(), 1, "`{from}` in {file}");
        self.write(file, &text.replace(from, to));
    }

    /// Makes the lock file from the repository's, without the network.
    pub fn lock(&self) {
        self.try_lock().passed();
    }

    /// As [`Consumer::lock`], where it may fail: the repository's lock file may name what cargo has not downloaded.
    pub fn try_lock(&self) -> Ran {
        fs::copy(repository().join("Cargo.lock"), self.folder.join("Cargo.lock"))
            .expect("the repository has a lock file");
        self.cargo(&["update", "--workspace", "--offline"])
    }

    /// Cargo in this crate, with an environment of its own. It is called by its full path, so PATH may be anything.
    pub fn command(&self, args: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        let mut command = Command::new(&cargo);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let of_this_test = text.starts_with("CARGO_") && text != "CARGO_HOME";
            let steers =
                ["RUSTFLAGS", "CC", "CFLAGS", "AR", "DOCS_RS", "OUT_DIR", "TARGET", "HOST"].contains(&text.as_ref());
            if of_this_test || steers || text.starts_with("KERNEL_GEN_") {
                command.env_remove(&name);
            }
        }
        let rustc = cargo.with_file_name(format!("rustc{}", std::env::consts::EXE_SUFFIX));
        if rustc.exists() {
            command.env("RUSTC", rustc);
        }
        command.current_dir(&self.folder).args(args);
        command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_TERM_COLOR", "never").env("CARGO_NET_OFFLINE", "true");
        // A stranger's crate has kernel-gen from a registry or from git, and cargo compiles what comes from there all at once; here
        // it comes from a path, as what one works on does, and would be compiled in hundreds of pieces that can be kept.
        command.env("CARGO_INCREMENTAL", "0");
        command
    }

    /// Runs cargo.
    pub fn cargo(&self, args: &[&str]) -> Ran {
        self.command(args).output().map(Ran::from).expect("cargo runs")
    }

    /// Runs cargo with additional environment variables.
    pub fn cargo_with(&self, env: &[(&str, &str)], args: &[&str]) -> Ran {
        self.command(args).envs(env.iter().copied()).output().map(Ran::from).expect("cargo runs")
    }

    /// Builds, and gives the `OUT_DIR` of this package's build script.
    pub fn build(&self, env: &[(&str, &str)], args: &[&str]) -> PathBuf {
        let args = [&["build", "--offline", "--locked", "--message-format=json-render-diagnostics"], args].concat();
        let ran = self.cargo_with(env, &args).passed();
        let package = format!("{}#", self.name);
        let ours = |line: &&str| {
            line.contains("\"reason\":\"build-script-executed\"")
                && (line.contains(&package) || line.contains(&format!("#{}@", self.name)))
        };
        let line = ran.stdout.lines().find(ours).unwrap_or_else(|| panic!("no build script ran:\n{}", ran.stdout));
        let out = line.split_once("\"out_dir\":\"").and_then(|(_, rest)| rest.split_once('"'));
        PathBuf::from(out.expect("cargo says where the build script writes").0)
    }

    /// The build script that made an `OUT_DIR`: the newest of this package.
    pub fn build_script(&self) -> PathBuf {
        let entries = fs::read_dir(self.target.join("debug/build")).expect("something was built").flatten();
        let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with(&format!("{}-", self.name)));
        let name = format!("build-script-build{}", std::env::consts::EXE_SUFFIX);
        let scripts = ours.map(|e| e.path().join(&name)).filter(|p| p.exists());
        scripts.max_by_key(|p| fs::metadata(p).and_then(|m| m.modified()).ok()).expect("the package has a build script")
    }
}
