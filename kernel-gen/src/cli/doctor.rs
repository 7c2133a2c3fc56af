//! `kernel-gen doctor`: which tools are here, whether they work, and how to get those that are not.

use super::output::{Failure, Output, json_text};
use crate::emit::c::Isa;
use crate::templates::Registry;
use crate::toolchain::cuda::{CudaError, Environment, Found, GET_NVCC, GET_NVRTC, GET_PTXAS, Missing, find, survey};
use crate::toolchain::{Compiler, Temporary, host_triple};
use clap::Args;
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Says which compilers are found and work, and how to get those that are missing
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Something that was looked for.
struct Finding {
    name: String,
    /// Whether a build for this machine fails without it.
    required: bool,
    /// What was found, or what is wrong and what helps.
    state: Result<String, String>,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    let host = host_triple();
    let mut findings = vec![];
    let compiler = Compiler::host();
    findings.push(Finding {
        name: format!("C compiler for {host}"),
        required: true,
        state: describe(&compiler).map_err(|e| format!("{e}; {}", how_to_get_cc())),
    });
    if let Ok(compiler) = &compiler {
        let levels = Isa::ALL.into_iter().filter(|isa| isa.is_for(std::env::consts::ARCH));
        findings.extend(levels.map(|isa| level(compiler, isa)));
        let told = |line: &String| Finding { name: "CFLAGS".to_string(), required: false, state: Err(line.clone()) };
        findings.extend(compiler.told().iter().map(told));
    }
    for other in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        if other.split('-').next() != host.split('-').next() {
            let package = other.replace("-unknown", "").replace('_', "-");
            let get = format!("only needed to build for it; on Debian and Ubuntu: apt install gcc-{package}");
            findings.push(Finding {
                name: format!("C compiler for {other}"),
                required: false,
                state: describe(&Compiler::find(other, &host)).map_err(|e| format!("{e}; {get}")),
            });
        }
    }
    findings.extend(cuda(&Environment::of_process()));
    findings.push(Finding { name: "libclang".to_string(), required: false, state: libclang() });
    let success = findings.iter().all(|f| !f.required || f.state.is_ok());
    let templates: Vec<String> = registry.iter().map(|t| format!("{} v{}", t.name(), t.version())).collect();
    let text = if arguments.json {
        let entry = |f: &Finding| {
            let text = f.state.as_ref().unwrap_or_else(|e| e);
            json!({ "name": f.name, "required": f.required, "ok": f.state.is_ok(), "text": text })
        };
        json_text(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": host,
            "templates": templates,
            "findings": findings.iter().map(entry).collect::<Vec<Json>>(),
            "success": success,
        }))
    } else {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "kernel-gen {} on {host}", env!("CARGO_PKG_VERSION"));
        let _ =
            writeln!(text, "templates: {}", if templates.is_empty() { "none".into() } else { templates.join(", ") });
        for finding in &findings {
            let mark = match (&finding.state, finding.required) {
                (Ok(_), _) => "ok      ",
                (Err(_), true) => "MISSING ",
                (Err(_), false) => "optional",
            };
            let what = finding.state.as_ref().unwrap_or_else(|e| e);
            let _ = writeln!(text, "{mark} {}: {}", finding.name, what.lines().next().unwrap_or_default());
        }
        text
    };
    Ok(Output { text, errors: vec![], success })
}

fn describe(compiler: &Result<Compiler, crate::toolchain::ToolError>) -> Result<String, String> {
    let compiler = compiler.as_ref().map_err(|e| e.to_string())?;
    let version = compiler.version().map_err(|e| e.to_string())?;
    Ok(format!("{}, {version}", compiler.programs()[0].display()))
}

/// Every CUDA compiler that works, which of them builds use, what is wrong with others, and how to get what is missing.
fn cuda(environment: &Environment) -> Vec<Finding> {
    let finding = |name: &str, state| Finding { name: name.to_string(), required: false, state };
    let survey = survey(environment);
    let mut all = vec![finding(
        "CUDA in builds",
        match find(environment, &[], Missing::Embed) {
            Ok(Found::Compiler(compiler)) => Ok(format!("compiled by {}", compiler.name())),
            Ok(Found::CpuOnly) => Ok("none, because KERNEL_GEN_CUDA is `off`".to_string()),
            Ok(Found::Embed { why }) => Err(format!("{why}: what is not packaged is compiled by NVRTC at first use")),
            Err(CudaError::NoCompiler { looked }) if !looked.iter().any(|looked| looked.present) => {
                Err("none of the kind that KERNEL_GEN_CUDA asks for was found".to_string())
            }
            Err(error) => Err(error.to_string()),
        },
    )];
    for (how, compiler) in &survey.compilers {
        let text = format!("{}, {} ({how})", compiler.name(), compiler.path().display());
        all.push(finding("CUDA compiler", Ok(text)));
    }
    if let Some((program, version)) = &survey.ptxas {
        all.push(finding("CUDA assembler", Ok(format!("ptxas {version}, {}", program.display()))));
    }
    all.extend(survey.errors.iter().map(|e| finding("CUDA settings", Err(e.to_string()))));
    for looked in &survey.looked {
        // A place that is just empty is worth a line only to a person who finds no compiler in any.
        if survey.compilers.is_empty() || looked.present {
            all.push(finding("CUDA compiler", Err(looked.to_string())));
        }
    }
    if survey.compilers.is_empty() {
        let get = |what: &str, how: &str| finding(&format!("how to get {what}"), Err(how.to_string()));
        all.extend([get("NVRTC, the smaller one", GET_NVRTC), get("nvcc", GET_NVCC)]);
    } else if survey.compilers.iter().all(|(_, compiler)| compiler.assembler().is_none()) {
        let why = "only needed so that PTX takes drivers older than the compiler";
        all.push(finding("CUDA assembler", Err(format!("no ptxas; {why}: {GET_PTXAS}"))));
    }
    let driver = environment.driver();
    all.push(finding(
        "CUDA driver",
        driver.map(|path| path.display().to_string()).ok_or_else(|| {
            "libcuda.so.1 is not in the loader's folders; only needed where kernels run, and comes with NVIDIA's driver"
                .to_string()
        }),
    ));
    all
}

fn how_to_get_cc() -> &'static str {
    match std::env::consts::OS {
        "macos" => "on macOS: xcode-select --install",
        "windows" => "on Windows: install LLVM and set CC to clang",
        _ => "on Debian and Ubuntu: apt install gcc; on Fedora: dnf install gcc",
    }
}

/// Whether the compiler takes vector code for a level, and whether this machine could run it.
fn level(compiler: &Compiler, isa: Isa) -> Finding {
    let runs =
        if isa.runs_here() { "compiles, and runs on this machine" } else { "compiles; this machine cannot run it" };
    let state = match try_compile(compiler, isa) {
        Ok(()) => Ok(runs.to_string()),
        Err(error) => Err(format!("{error}; a newer gcc (11) or clang (12) has this level")),
    };
    Finding { name: format!("level {}", isa.name()), required: isa == Isa::Portable, state }
}

fn try_compile(compiler: &Compiler, isa: Isa) -> Result<(), String> {
    let folder = Temporary::new().map_err(|e| format!("no temporary folder can be made: {e}"))?;
    let (source, program) = (folder.path().join("try.c"), folder.path().join("try"));
    let bytes = isa.vector_bytes();
    let text = format!(
        "typedef float vec __attribute__((vector_size({bytes})));\n\
         static vec fma_all(vec a, vec b, vec c) {{ return a * b + c; }}\n\
         int main(int argc, char **argv) {{\n    (void)argv;\n    vec v = {{0}};\n    v += (float)argc;\n    \
         v = fma_all(v, v, v);\n    return v[0] == 0.0f;\n}}\n"
    );
    fs::write(&source, text).map_err(|e| format!("{} cannot be written: {e}", source.display()))?;
    compiler.executable(&[&source], isa.flags(), &program).map_err(|e| e.to_string())
}

/// Looks for libclang where the loader and its packages put it: LIBCLANG_PATH first.
fn libclang() -> Result<String, String> {
    // `libclang.so.1`, `libclang-14.so.1`, `libclang.dylib`; not `libclang-cpp.so`, which is another library.
    let is_it = |name: &str| {
        let rest = name.strip_prefix("libclang").unwrap_or_default();
        let rest = rest.strip_prefix('-').map_or(rest, |r| r.trim_start_matches(|c: char| c.is_ascii_digit()));
        rest.starts_with(".so") || rest == ".dylib" || rest == ".dll"
    };
    let mut folders: Vec<PathBuf> = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect();
    let arch = std::env::consts::ARCH;
    folders.extend(["/usr/lib".into(), format!("/usr/lib/{arch}-linux-gnu"), "/usr/lib64".into()].map(PathBuf::from));
    folders.extend(["/usr/local/lib", "/opt/homebrew/opt/llvm/lib"].map(PathBuf::from));
    let mut versions: Vec<PathBuf> = entries(Path::new("/usr/lib"))
        .into_iter()
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("llvm-")))
        .map(|p| p.join("lib"))
        .collect();
    versions.reverse();
    folders.extend(versions);
    let found =
        folders.iter().flat_map(|f| entries(f)).find(|p| p.file_name().is_some_and(|n| is_it(&n.to_string_lossy())));
    found.map(|p| p.display().to_string()).ok_or_else(|| {
        "not found; only needed to wrap [[extern]] sources; on Debian and Ubuntu: apt install libclang-dev, elsewhere \
         set LIBCLANG_PATH"
            .to_string()
    })
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(folder).map(|all| all.filter_map(|e| e.ok().map(|e| e.path())).collect()).unwrap_or_default();
    all.sort();
    all
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn lines(environment: &Environment) -> Vec<String> {
        let text = |f: &Finding| match &f.state {
            Ok(text) => format!("ok {}: {text}", f.name),
            Err(text) => format!("no {}: {text}", f.name),
        };
        cuda(environment).iter().map(text).collect()
    }

    #[test]
    fn without_cuda_every_place_is_listed_and_the_ways_to_get_it() {
        let folder = Temporary::new().unwrap();
        let lines = lines(&Environment::new([], folder.path()));
        assert!(lines[0].starts_with("no CUDA in builds: no CUDA compiler was found"), "{lines:?}");
        for expected in [
            "no CUDA compiler: KERNEL_GEN_NVRTC: not set".to_string(),
            format!("no how to get NVRTC, the smaller one: {GET_NVRTC}"),
            format!("no how to get nvcc: {GET_NVCC}"),
        ] {
            assert!(lines.contains(&expected), "{expected} in {lines:?}");
        }
        assert!(lines.last().unwrap().starts_with("no CUDA driver: libcuda.so.1 is not"));
    }

    #[test]
    fn what_is_wrong_with_a_variable_is_said() {
        let folder = Temporary::new().unwrap();
        let all = [("KERNEL_GEN_NVCC", folder.path().join("gone").into()), ("KERNEL_GEN_CUDA", "clang".into())];
        let lines = lines(&Environment::new(all, folder.path()));
        assert_eq!(lines[0], "no CUDA in builds: none of the kind that KERNEL_GEN_CUDA asks for was found");
        let wrong = |l: &&String| l.starts_with("no CUDA settings: KERNEL_GEN_NVCC is `");
        assert_eq!(lines.iter().filter(wrong).count(), 1, "{lines:?}");
    }
}
