//! Emitted kernels as one program with AddressSanitizer and UndefinedBehaviorSanitizer.

use crate::sweep::for_each;
use kernel_gen::emit::c::{CSource, Phase};
use kernel_gen::ir::{Access, DType, Kernel};
use kernel_gen::toolchain::{Compiler, FLAGS};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// What kernels are compiled with beside [`FLAGS`]. Nothing is optimised: what is sanitized is what the source says.
const SANITIZE: [&str; 5] =
    ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// What the driver says before it runs a case, whose number follows.
const CASE: &str = "driver: case ";

/// A kernel, the kernels that pack its parameters, and what they are given.
pub(crate) struct Case {
    /// What it is, for messages.
    pub(crate) what: String,
    /// The kernel with its C.
    pub(crate) kernel: (Kernel, CSource),
    /// Which parameter is packed, and by what.
    pub(crate) packs: Vec<(usize, Kernel, CSource)>,
    /// The bytes of the parameters that are read, as they are before they are packed.
    pub(crate) given: Vec<Vec<u8>>,
}

/// A program of all cases, which are of one level.
pub(crate) struct Program<'a> {
    cases: &'a [Case],
    folder: PathBuf,
}

impl Program<'_> {
    /// Compiles the cases in a folder. None if this machine's compiler has no sanitizers.
    pub(crate) fn build(cases: &[Case], folder: PathBuf) -> Option<Program<'_>> {
        let compiler = Compiler::host().expect("a C compiler");
        let gcc = compiler.programs()[0].to_path_buf();
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("probe.c"), "int main(void) { return 0; }\n").expect("a file");
        let probe = Command::new(&gcc).current_dir(&folder).args(SANITIZE).args(["probe.c", "-o", "probe"]).output();
        probe.ok().filter(|o| o.status.success())?;
        let program = Program { cases, folder };
        program.compile(&gcc);
        Some(program)
    }

    fn compile(&self, gcc: &Path) {
        let mut files = vec![("main.c".to_string(), vec![])];
        self.write("main.c", driver(self.cases).as_bytes());
        for (i, case) in self.cases.iter().enumerate() {
            for source in case.sources() {
                self.write(&format!("{}.c", source.symbol), source.source.as_bytes());
                files.push((format!("{}.c", source.symbol), flags(source)));
            }
            self.write(&format!("{i}.in"), &case.given.concat());
        }
        // The headers take longer to read than most kernels; each level has them compiled once.
        let sources = || self.cases.iter().flat_map(Case::sources);
        self.write("headers.h", headers(sources()).as_bytes());
        let levels: BTreeSet<Vec<&str>> = sources().map(flags).collect();
        let levels: Vec<Vec<&str>> = levels.into_iter().collect();
        for_each(levels.len(), |i| {
            let made = format!("headers.h.gch/{i}");
            fs::create_dir_all(self.folder.join("headers.h.gch")).expect("a folder");
            self.gcc(gcc, &levels[i], &["-x", "c-header", "headers.h", "-o", &made]);
        });
        for_each(files.len(), |i| {
            let (file, flags) = &files[i];
            let include: &[&str] = if file == "main.c" { &[] } else { &["-include", "headers.h"] };
            self.gcc(gcc, flags, &[include, &["-c", file]].concat());
        });
        let objects: Vec<String> = files.iter().map(|(file, _)| file.replace(".c", ".o")).collect();
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        self.gcc(gcc, &[], &[&objects[..], &["-lm", "-o", "program"]].concat());
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.folder.join(name), bytes).expect("a file in the folder");
    }

    fn gcc(&self, gcc: &Path, flags: &[&str], args: &[&str]) {
        let mut command = Command::new(gcc);
        command.current_dir(&self.folder).args(FLAGS.iter().filter(|f| **f != "-O2")).args(SANITIZE);
        let output = command.args(flags).args(args).output().expect("the compiler");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs the cases from one on, until one is reported: which, and the report.
    fn run_from(&self, first: usize, last: usize, short: bool) -> Option<(usize, String)> {
        let mut command = Command::new(self.folder.join("program"));
        command.arg(&self.folder).args([first, last, usize::from(short)].map(|n| n.to_string()));
        // Where a process is traced, leaks cannot be looked for; there is little to leak.
        let command = command.env("ASAN_OPTIONS", "detect_leaks=0").env("UBSAN_OPTIONS", "print_stacktrace=1");
        let output = command.output().expect("the program was linked");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return None;
        }
        let at = text.rfind(CASE).unwrap_or_else(|| panic!("the driver failed: {text}"));
        let number: String = text[at + CASE.len()..].chars().take_while(char::is_ascii_digit).collect();
        let report: Vec<&str> = text[at..].lines().skip(1).take(40).collect();
        Some((number.parse().expect("the driver numbers cases"), report.join("\n")))
    }

    /// Runs every case: what each wrote, or what was reported of it.
    pub(crate) fn run(&self) -> Vec<Result<Vec<u8>, String>> {
        let mut outputs: Vec<Result<Vec<u8>, String>> = self.cases.iter().map(|_| Ok(vec![])).collect();
        let mut first = 0;
        while let Some((case, report)) = self.run_from(first, self.cases.len(), false) {
            outputs[case] = Err(report);
            first = case + 1;
        }
        for (i, output) in outputs.iter_mut().enumerate().filter(|(_, o)| o.is_ok()) {
            let read = |pass: usize| fs::read(self.folder.join(format!("{i}.{pass}"))).expect("it was run");
            let [once, again] = [read(0), read(1)];
            *output = if once == again { Ok(once) } else { Err("two runs differ".into()) };
        }
        outputs
    }

    /// The cases of which nothing is reported although their output is an element too short.
    pub(crate) fn unseen(&self) -> Vec<&str> {
        let unseen = Mutex::new(vec![]);
        for_each(self.cases.len(), |i| {
            let report = self.run_from(i, i + 1, true);
            if !report.is_some_and(|(_, text)| text.contains("ERROR: AddressSanitizer")) {
                unseen.lock().expect("no panic").push(self.cases[i].what.as_str());
            }
        });
        unseen.into_inner().expect("no panic")
    }
}

impl Case {
    fn sources(&self) -> impl Iterator<Item = &CSource> {
        self.packs.iter().map(|(_, _, source)| source).chain([&self.kernel.1])
    }
}

fn flags(source: &CSource) -> Vec<&'static str> {
    source.isa.flags().to_vec()
}

/// All headers that the sources include; where there are intrinsics, with what makes them visible to the sanitizers.
fn headers<'a>(sources: impl Iterator<Item = &'a CSource>) -> String {
    let lines = sources.flat_map(|s| s.source.lines()).filter(|l| l.starts_with("#include"));
    let lines: BTreeSet<String> = lines.map(|l| format!("{l}\n")).collect();
    let lines: String = lines.into_iter().collect();
    let masked = if lines.contains("immintrin.h") { include_str!("masked.h") } else { "" };
    lines + masked
}

/// Name, bytes, bytes of an element, whether it is given, whether it is wanted.
fn buffer(kernel: &Kernel, param: usize, given: bool, wanted: bool) -> String {
    let b = kernel.buffer(kernel.params[param]);
    let element = DType::bytes(b.dtype);
    format!("{{{}, {element}, {}, {}}}", b.extent_elements() * element as i64, u8::from(given), u8::from(wanted))
}

/// The tables of all cases, and what runs them.
fn driver(cases: &[Case]) -> String {
    let mut t = String::from(
        "#define _GNU_SOURCE\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\n\
         struct buffer { size_t bytes, element; int given, wanted; };\n\
         struct phase { int64_t extent; int parallel; void (*call)(void **, unsigned char *, int64_t, int64_t, int64_t); };\n\
         struct program { int phases; const struct phase *phase; int64_t shared, worker; };\n\
         struct test { int buffers; const struct buffer *buffer; int programs; const struct program *program; };\n\
         enum { MAX_BUFFERS = 32 };\n\n",
    );
    let mut tests = String::new();
    for (i, case) in cases.iter().enumerate() {
        let (kernel, source) = &case.kernel;
        let count = kernel.params.len();
        assert!(count + case.packs.len() <= 32, "the driver has places for 32 buffers");
        let mut arguments: Vec<usize> = (0..count).collect();
        let mut buffers: Vec<String> = (0..count)
            .map(|p| {
                let access = kernel.buffer(kernel.params[p]).access;
                buffer(kernel, p, access != Access::Write, access != Access::Read)
            })
            .collect();
        let mut programs = vec![];
        for (at, (param, pack, packer)) in case.packs.iter().enumerate() {
            // The original takes the parameter's place in the file, and the packed one stands behind all.
            buffers[*param] = buffer(pack, 0, true, false);
            buffers.push(buffer(kernel, *param, false, false));
            arguments[*param] = count + at;
            programs.push((packer, vec![*param, count + at]));
        }
        programs.push((source, arguments));
        let mut table = String::new();
        for (j, (source, arguments)) in programs.iter().enumerate() {
            t += &source.header.lines().filter(|l| l.starts_with("void ")).fold(String::new(), |t, l| t + l + "\n");
            let args: String = arguments.iter().map(|k| format!("p[{k}], ")).collect();
            let mut phases = String::new();
            for Phase { symbol, extent, parallel, .. } in &source.phases {
                let _ = writeln!(
                    t,
                    "static void run_{symbol}(void **p, unsigned char *ws, int64_t w, int64_t b, int64_t e) {{ {symbol}({args}ws, w, b, e); }}"
                );
                let _ = write!(phases, "{{{extent}, {}, run_{symbol}}}, ", u8::from(*parallel));
            }
            let _ = writeln!(t, "static const struct phase phases_{i}_{j}[] = {{{phases}}};");
            let (count, shared, worker) = (source.phases.len(), source.workspace_bytes, source.worker_bytes);
            let _ = write!(table, "{{{count}, phases_{i}_{j}, {shared}, {worker}}}, ");
        }
        let _ = writeln!(t, "static const struct program programs_{i}[] = {{{table}}};");
        let _ = writeln!(t, "static const struct buffer buffers_{i}[] = {{{}}};", buffers.join(", "));
        let _ = writeln!(tests, "  {{{}, buffers_{i}, {}, programs_{i}}},", buffers.len(), programs.len());
    }
    t + "static const struct test tests[] = {\n" + &tests + "};\n\n" + include_str!("main.c")
}
