//! The C compiler of a target: found by the rules of the `cc` crate, run here so that its messages can be shown.

use super::ToolError;
use super::flags::{self, Sorted};
use crate::stable::fnv1a;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Environment variables that decide which tools are used and how. Each may also be given for one target, see
/// [`settings_for`].
pub const SETTINGS: [&str; 6] = ["CC", "CFLAGS", "AR", "ARFLAGS", "RANLIB", "RANLIBFLAGS"];

/// What every emitted source is compiled with. The dialect and the contraction are not a matter of taste: in ISO mode
/// GCC forms no fused multiply-adds. Nor is it that loops are not if-converted: GCC 12 gives every masked load of an
/// interleaved group the mask of the first one, and so reads outside of a buffer and puts stale lanes into the result.
/// Masked loads that a schedule wants are written out in the source and need no help.
///
/// `-O2` with the vectoriser of `-O3` takes a fifth less time than `-O3`: tiles and vectors are written out in the source, and
/// what else `-O3` does is to copy loops. `docs/archive/perf-notes.md` has the kernels' times with both.
///
/// They stand behind what is used of the user's CFLAGS (`flags.rs`). Distributions set `-flto` there, and objects without
/// machine code have no symbols for rustc's archives.
pub const FLAGS: [&str; 12] = [
    "-std=gnu11",
    "-O2",
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-fno-lto",
    "-fno-fast-math",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-predictive-commoning",
    "-fno-tree-loop-if-convert",
    "-Wall",
    "-Wextra",
];

/// Those of [`FLAGS`] that Clang does not know.
const GCC_ONLY: [&str; 3] = ["-fvect-cost-model=dynamic", "-fno-predictive-commoning", "-fno-tree-loop-if-convert"];

/// The triple of the machine that this program was compiled for, as far as it is known at run time.
pub fn host_triple() -> String {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    match os {
        "linux" => format!("{arch}-unknown-linux-gnu"),
        "macos" => format!("{arch}-apple-darwin"),
        other => format!("{arch}-unknown-{other}"),
    }
}

/// Every form of [`SETTINGS`] that the `cc` crate reads for a target: `CC_x86_64-unknown-linux-gnu`,
/// `CC_x86_64_unknown_linux_gnu`, `TARGET_CC` or `HOST_CC`, `CC`; and what else changes a compilation.
pub fn settings_for(target: &str) -> Vec<String> {
    let underscored = target.replace(['-', '.'], "_");
    let mut all = vec![];
    for name in SETTINGS {
        all.extend([
            format!("{name}_{target}"),
            format!("{name}_{underscored}"),
            format!("HOST_{name}"),
            format!("TARGET_{name}"),
            name.to_string(),
        ]);
    }
    all.extend(
        ["CRATE_CC_NO_DEFAULTS", "CROSS_COMPILE", "RUSTC_LINKER", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET"]
            .map(String::from),
    );
    all
}

/// A C compiler and the archiver that goes with it.
#[derive(Debug)]
pub struct Compiler {
    program: PathBuf,
    args: Vec<std::ffi::OsString>,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    archiver: PathBuf,
    /// Whether it is clang, and not GCC.
    pub(super) clang: bool,
    told: Vec<String>,
}

/// What becomes of the compiler's warnings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warnings {
    /// They are errors.
    Deny,
    /// Nobody hears of them.
    Ignore,
}

/// A source to compile. Its text names all that it is made of, but for the compiler's own headers: where it includes a file, a hash of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// The source; its object goes beside it.
    pub source: PathBuf,
    /// Flags of this source, besides those that all have.
    pub flags: Vec<String>,
}

impl Compiler {
    /// The compiler for the machine that this runs on.
    pub fn host() -> Result<Compiler, ToolError> {
        let host = host_triple();
        Compiler::find(&host, &host)
    }

    /// The compiler for `target` on `host` (both as Rust's triples).
    pub fn find(target: &str, host: &str) -> Result<Compiler, ToolError> {
        let mut build = cc::Build::new();
        // `cc` guesses the compiler's family from its name where it can, and keeps what it finds out in the folder.
        build
            .target(target)
            .host(host)
            .opt_level(2)
            .debug(false)
            .warnings(false)
            .cargo_metadata(false)
            .cargo_warnings(false);
        let unusable = |e: cc::Error| ToolError::Unusable { reason: e.to_string() };
        let variable = format!("CC_{}", target.replace(['-', '.'], "_"));
        let tool = build.try_get_compiler().map_err(unusable)?;
        let program = resolve(tool.path()).ok_or_else(|| ToolError::Missing {
            what: "C compiler",
            tried: tool.path().display().to_string(),
            target: target.to_string(),
            variable: variable.clone(),
            hint: String::new(),
        })?;
        if !tool.is_like_gnu() && !tool.is_like_clang() {
            return Err(ToolError::NotGnu { compiler: program.display().to_string(), variable });
        }
        let archiver = build.try_get_archiver().map_err(unusable)?;
        let archiver = resolve(Path::new(archiver.get_program())).ok_or_else(|| ToolError::Missing {
            what: "archiver",
            tried: archiver.get_program().to_string_lossy().into_owned(),
            target: target.to_string(),
            variable: variable.replace("CC_", "AR_"),
            hint: String::new(),
        })?;
        let command = tool.to_command();
        // `cc` gives back what the compiler inherits anyway, PATH with it, whose text says nothing of the compiler.
        let given = command.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned())));
        let env = given.filter(|(k, v)| std::env::var_os(k).as_ref() != Some(v)).collect();
        let Sorted { kept: args, told } = flags::sort(tool.args(), target)?;
        Ok(Compiler { program, args, env, archiver, clang: tool.is_like_clang(), told })
    }

    /// Flags of the user's that kernels are not compiled with, a line for each kind: a user must be told.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// The compiler and the archiver.
    pub fn programs(&self) -> [&Path; 2] {
        [&self.program, &self.archiver]
    }

    /// The first line that the compiler says of its version.
    pub fn version(&self) -> Result<String, ToolError> {
        let output = self.command(&self.program).arg("--version").output();
        let output = output.map_err(|e| io_error(&self.program, &e))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().trim().to_string())
    }

    /// The folder of the headers that come with the compiler, if it says.
    pub fn include_folder(&self) -> Option<PathBuf> {
        let output = self.command(&self.program).arg("-print-file-name=include").output().ok()?;
        let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        folder.is_dir().then_some(folder)
    }

    /// A number that changes when the compiler, its arguments or the archiver change.
    pub fn identity(&self) -> u64 {
        let mut text = format!("{:?} {:?}", self.args, self.env);
        for program in [&self.program, &self.archiver] {
            text += &file_identity(program);
        }
        fnv1a(text.as_bytes())
    }

    /// Compiles one source to its object, after `headers` if there are some.
    pub(super) fn object(&self, unit: &Unit, headers: Option<&Path>) -> Result<(), ToolError> {
        // Run where the source is, with its bare name: the folder stays out of the object.
        let folder = unit.source.parent().unwrap_or(Path::new("."));
        let name = |p: &Path| p.file_name().map(PathBuf::from).unwrap_or_default();
        let mut command = self.command(&self.program);
        command.current_dir(folder);
        self.object_flags(&mut command, &unit.flags);
        if let Some(headers) = headers {
            command.arg("-include").arg(headers);
        }
        command.arg("-c").arg(name(&unit.source)).arg("-o").arg(name(&object_of(&unit.source)));
        run(command, &unit.source)
    }

    /// Compiles sources and links them to a program that runs here. Warnings are errors.
    pub fn executable(&self, sources: &[&Path], flags: &[&str], program: &Path) -> Result<(), ToolError> {
        let mut command = self.command(&self.program);
        // `cc` silences warnings where it is not asked for them.
        command.args(self.args.iter().filter(|a| *a != "-w"));
        command.args(FLAGS.iter().chain(flags).filter(|f| self.knows(f))).arg("-Werror").args(sources);
        command.arg("-o").arg(program).args(["-lm", "-pthread"]);
        // Where `dlopen` is until glibc 2.34; an empty library since.
        command.args(cfg!(target_os = "linux").then_some("-ldl"));
        run(command, program)
    }

    /// Compiles sources to a shared object that runs here, or one source to an object if that is what `made` ends in.
    /// `headers` were compiled beforehand with these flags ([`Compiler::precompile`]). A compilation that takes longer than
    /// `limit` is ended.
    pub fn shared(
        &self,
        sources: &[&Path],
        headers: Option<&Path>,
        flags: &[&str],
        warnings: Warnings,
        made: &Path,
        limit: Duration,
    ) -> Result<(), ToolError> {
        let mut command = self.command(&self.program);
        self.kernel_flags(&mut command, flags);
        match warnings {
            Warnings::Deny => command.arg("-Werror"),
            Warnings::Ignore => command.arg("-w"),
        };
        if let Some(headers) = headers {
            command.arg("-include").arg(headers);
        }
        command.args(sources).arg("-o").arg(made);
        match made.extension().is_some_and(|e| e == "o") {
            true => command.arg("-c"),
            false => command.args(["-shared", "-lm"]),
        };
        // What a compiler leaves behind when it is ended vanishes with the folder.
        command.envs(made.parent().map(|folder| ("TMPDIR", folder)));
        run_within(command, made, limit)
    }

    /// Compiles a header beforehand, beside it, for [`Compiler::shared`].
    pub fn precompile(&self, header: &Path, flags: &[&str], limit: Duration) -> Result<(), ToolError> {
        let mut command = self.command(&self.program);
        self.kernel_flags(&mut command, flags);
        self.add_header(&mut command, header);
        run_within(command, header, limit)
    }

    /// Compiles a header beforehand, beside it, for objects with these flags.
    pub(super) fn precompile_for_objects(&self, header: &Path, flags: &[String]) -> Result<(), ToolError> {
        let mut command = self.command(&self.program);
        self.object_flags(&mut command, flags);
        self.add_header(&mut command, header);
        run(command, header)
    }

    fn add_header(&self, command: &mut Command, header: &Path) {
        let mut made = header.as_os_str().to_owned();
        made.push(if self.clang { ".pch" } else { ".gch" });
        command.args(["-x", "c-header"]).arg(header).arg("-o").arg(&made);
    }

    /// The flags of kernels that are loaded into a running process.
    fn kernel_flags(&self, command: &mut Command, flags: &[&str]) {
        command.args(self.args.iter().filter(|a| *a != "-w"));
        command.args(FLAGS.iter().chain(flags).filter(|f| self.knows(f))).arg("-fPIC");
    }

    /// The flags of a unit.
    fn object_flags(&self, command: &mut Command, flags: &[String]) {
        command.args(&self.args).args(flags.iter().filter(|f| self.knows(f)));
    }

    /// Whether objects name the files that they were made from: the last such flag decides, as it does for the compiler.
    pub(super) fn writes_debug_information(&self) -> bool {
        let of_debugger = |a: &&std::ffi::OsString| a.to_str().is_some_and(|a| a.starts_with("-g"));
        self.args.iter().rfind(of_debugger).is_some_and(|a| a != "-g0")
    }

    /// Whether objects depend on more than the flags and the source: on the machine, or on files that flags or the environment name. Such
    /// objects are of no use elsewhere.
    pub(super) fn reads_more(&self) -> bool {
        let is_local = |a: &std::ffi::OsString| {
            let a = a.to_string_lossy();
            a.ends_with("=native")
                || ["-i", "-I", "-B", "@", "--config", "--sysroot", "-specs", "--specs"]
                    .iter()
                    .any(|f| a.starts_with(f))
        };
        let variables =
            ["CPATH", "C_INCLUDE_PATH", "SDKROOT", "GCC_EXEC_PREFIX", "COMPILER_PATH", "CCC_OVERRIDE_OPTIONS"];
        self.args.iter().any(is_local) || variables.iter().any(|v| std::env::var_os(v).is_some_and(|v| !v.is_empty()))
    }

    /// The files that a source includes, itself among them, but for those of the system. Empty if the compiler cannot tell: then it cannot
    /// compile the source either, and says why.
    pub fn included(&self, source: &Path) -> Vec<PathBuf> {
        let mut command = self.command(&self.program);
        self.object_flags(&mut command, &FLAGS.map(String::from));
        let output = command.arg("-MM").arg(source).output();
        let rule = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        let rule = String::from_utf8_lossy(rule.as_deref().unwrap_or_default()).replace("\\\n", " ");
        // A make rule: spaces in names are escaped.
        let files = rule.split_once(": ").map_or("", |(_, files)| files).replace("\\ ", "\0");
        files
            .split_whitespace()
            .map(|file| PathBuf::from(file.replace('\0', " ").replace("\\#", "#").replace("$$", "$")))
            .collect()
    }

    /// Whether the compiler takes the flag.
    fn knows(&self, flag: &str) -> bool {
        !(self.clang && GCC_ONLY.contains(&flag))
    }

    /// Puts objects into a static library.
    pub fn archive(&self, objects: &[PathBuf], library: &Path) -> Result<(), ToolError> {
        match fs::remove_file(library) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io_error(library, &e)),
            _ => {}
        }
        let mut command = self.command(&self.archiver);
        command.env("ZERO_AR_DATE", "1").arg("crs").arg(library).args(objects);
        run(command, library)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(self.env.iter().map(|(k, v)| (k, v))).stdin(Stdio::null());
        command
    }
}

/// The object of a source.
pub(super) fn object_of(source: &Path) -> PathBuf {
    source.with_extension("o")
}

/// The program's full path, if it is there: a path as it stands, a bare name by PATH. Links of folders are followed, so that
/// `/bin` and `/usr/bin` are one place; a link in the program's own place is not, since tools go by the name that they are
/// called by.
pub fn resolve(program: &Path) -> Option<PathBuf> {
    let found = which::which(program).ok()?;
    let folder = found.parent().and_then(|folder| fs::canonicalize(folder).ok());
    Some(folder.zip(found.file_name()).map(|(folder, name)| folder.join(name)).unwrap_or(found))
}

/// A file's path, size and time of change: enough to see that a tool was updated, and quick.
pub fn file_identity(path: &Path) -> String {
    let facts = fs::metadata(path).ok().map(|m| (m.len(), m.modified().ok()));
    format!("{} {facts:?}\n", path.display())
}

pub(super) fn io_error(file: &Path, error: &std::io::Error) -> ToolError {
    ToolError::Io { file: file.display().to_string(), reason: error.to_string() }
}

/// Runs a command on a file; what it prints is part of the error.
fn run(mut command: Command, file: &Path) -> Result<(), ToolError> {
    let shown = shown(&command);
    let failed = |output| ToolError::Failed { file: file.display().to_string(), command: shown.clone(), output };
    let output = command.output().map_err(|e| failed(e.to_string()))?;
    killed(&output, file).map_or(Ok(()), Err)?;
    check_output(&output).map_err(failed)
}

/// The error of a command that something else ended.
fn killed(output: &Output, file: &Path) -> Option<ToolError> {
    let by = super::ended_by(output.status, &String::from_utf8_lossy(&output.stderr))?;
    Some(ToolError::Killed { file: file.display().to_string(), by })
}

/// A command as a person would type it.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// What a command that failed said, or its status if that was nothing.
fn check_output(output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(if text.trim().is_empty() { output.status.to_string() } else { text.into_owned() })
}

/// What tools say where a file cannot be written for want of space.
const DISK_IS_FULL: &str = "No space left on device";

/// [`run`] with a limit of processor time. A compiler's driver starts other programs, so all of its group of processes are ended.
fn run_within(mut command: Command, file: &Path, limit: Duration) -> Result<(), ToolError> {
    let shown = shown(&command);
    let failed = |output| ToolError::Failed { file: file.display().to_string(), command: shown.clone(), output };
    let child = super::apart(&mut command)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let id = child.id();
    let (done, wait) = channel::<()>();
    let (output, late) = std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let is_over = |longer| !matches!(wait.recv_timeout(longer), Err(RecvTimeoutError::Timeout));
            let late = !super::is_over_in_time(id, limit, is_over);
            if late {
                end_group(id);
            }
            late
        });
        let output = child.wait_with_output();
        drop(done);
        (output, watch.join().unwrap_or(false))
    });
    let output = output.map_err(|e| failed(e.to_string()))?;
    match check_output(&output) {
        Err(_) if late => Err(ToolError::Timeout { file: file.display().to_string(), limit }),
        Err(_) if killed(&output, file).is_some() => killed(&output, file).map_or(Ok(()), Err),
        // It says nothing of the source.
        Err(said) if said.contains(DISK_IS_FULL) => {
            let folder = std::env::temp_dir().display().to_string();
            Err(ToolError::Io {
                file: folder,
                reason: format!("{DISK_IS_FULL}; free some, or name a folder with TMPDIR"),
            })
        }
        verdict => verdict.map_err(failed),
    }
}

/// Ends a process and those that it started.
fn end_group(id: u32) {
    // The standard library ends single processes only. Where there is no such program the compiler ends by itself, late.
    let target = if cfg!(unix) { format!("-{id}") } else { id.to_string() };
    let _ = Command::new("kill").args(["-KILL", "--", &target]).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> String {
        // The triple only steers which compiler is asked for; tests run on the platforms that these name.
        let rest = if cfg!(target_os = "macos") { "apple-darwin" } else { "unknown-linux-gnu" };
        format!("{}-{rest}", std::env::consts::ARCH)
    }

    #[test]
    fn a_compiler_that_is_not_there_is_named_with_the_variable_that_helps() {
        let error = Compiler::find("riscv64gc-unknown-linux-gnu", "s390x-unknown-linux-gnu").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("no C compiler for riscv64gc-unknown-linux-gnu: `"), "{text}");
        assert!(text.ends_with("or name it with CC_riscv64gc_unknown_linux_gnu"), "{text}");
    }

    #[test]
    fn what_a_source_includes_is_found_by_way_of_its_headers() {
        let folder = crate::toolchain::Temporary::new().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let headers = [
            file("with space#/a long name for a rule that goes on in the next line.h", "#include \"b.h\"\n"),
            file("with space#/b.h", "int b;\n"),
        ];
        let source = file(
            "mine.c",
            "#include <stddef.h>\n#include \"with space#/a long name for a rule that goes on in the next line.h\"\n",
        );
        let compiler = Compiler::host().unwrap();
        let canonical = |path: &PathBuf| std::fs::canonicalize(path).unwrap();
        let found: Vec<PathBuf> = compiler.included(&source).iter().map(canonical).collect();
        assert_eq!(found, [&source, &headers[0], &headers[1]].map(canonical));
        assert_eq!(compiler.included(&file("wrong.c", "#include \"missing.h\"\n")), Vec::<PathBuf>::new());
    }

    #[test]
    fn objects_of_one_machine_are_told_from_those_of_flags() {
        let with = |arg: &str| {
            let mut compiler = Compiler::host().unwrap();
            compiler.args.push(arg.into());
            compiler.reads_more()
        };
        for arg in ["-march=native", "-mtune=native", "-include", "-I/usr/local/include", "@flags"] {
            assert!(with(arg), "{arg}");
        }
        assert!(!with("-march=x86-64-v3") || std::env::var_os("CPATH").is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_full_disk_is_not_the_fault_of_a_source() {
        let said = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo \"$0\" >&2; exit 1", text]);
            run_within(command, Path::new("kernel.so"), Duration::from_secs(20)).unwrap_err()
        };
        let full = said("/tmp/cc.s: Fatal error: can't write 3887 bytes: 'No space left on device'");
        assert!(matches!(full, ToolError::Io { .. }) && full.to_string().contains("TMPDIR"), "{full}");
        assert!(matches!(said("kernel.c:1: error: no such thing"), ToolError::Failed { .. }));
        // Nor is it that the system ended the compiler for want of memory.
        let killed = said("gcc: fatal error: Killed signal terminated program cc1");
        assert_eq!(
            killed.to_string(),
            "the compiler was ended from outside while it compiled kernel.so (gcc: fatal error: Killed signal terminated \
             program cc1); this is no fault of the source: free memory or run fewer compilers at a time, and try again"
        );
    }

    #[test]
    fn flags_of_distributions_change_neither_objects_nor_numbers() {
        let mut compiler = Compiler::host().unwrap();
        let instrumented =
            "-fsanitize=address,undefined --coverage -ffinite-math-only -Werror -Wall -Wconversion -pedantic-errors";
        let flags = ["-flto", "-ffast-math", "-Ofast"].into_iter().chain(instrumented.split(' '));
        compiler.args.extend(flags::sort(&flags.map(Into::into).collect::<Vec<_>>(), &host()).unwrap().kept);
        let folder = super::super::temporary::Temporary::new().unwrap();
        let source = folder.path().join("f.c");
        fs::write(&source, "#if defined __FAST_MATH__ || __FINITE_MATH_ONLY__ || defined __SANITIZE_ADDRESS__\n#error changed\n#endif\n\
             short f_p0(int x) { int unused; return x + 1; }\n").unwrap();
        let flags = FLAGS.iter().map(|f| f.to_string()).collect();
        let objects = compiler.compile(&[Unit { source, flags }], 1, None).unwrap();
        let object = fs::read(&objects[0]).unwrap();
        let has = |text: &[u8]| object.windows(text.len()).any(|w| w == text);
        assert!(has(b"f_p0") && !has(b".gnu.lto_") && !object.starts_with(b"BC"));
        for symbol in ["__asan", "__ubsan", "__gcov"] {
            assert!(!has(symbol.as_bytes()), "{symbol}");
        }
    }
}
