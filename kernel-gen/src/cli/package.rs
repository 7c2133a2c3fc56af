//! `kernel-gen package`: compiled CUDA beside the records, so that builds need no CUDA compiler.

use super::output::{Failure, Output};
use super::project::{Files, Project};
use crate::generate::{self, CodePolicy, CudaSource, generate, own_cuda, own_faults};
use crate::records::ARTIFACTS;
use crate::templates::Registry;
use crate::toolchain::cuda::{Artifact, Artifacts, Code, Environment, Missing, Request, SupplyOptions, supply};
use clap::Args;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Compiles the CUDA kernels of a spec and writes them beside its records, for builds without a CUDA compiler
///
/// The folder holds PTX and machine code of every kernel for each CUDA architecture of the spec, and an index. Keep it
/// in version control. A build looks into `artifacts` in its folder of records by itself; name the folder in build.rs,
/// `.artifacts("gpu")`, only if it is elsewhere. Code that is there already and was made from the same source is kept; what
/// no kernel needs any more is removed.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    files: Files,
    /// The folder of compiled code [default: artifacts, in the folder of records]
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// The device whose records come first, by its name, as `device` in build.rs says it
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Compile everything again, with the compiler that is here now
    #[arg(long)]
    again: bool,
    /// Write nothing: say what is missing or not needed, and fail if anything is. Needs no compiler
    #[arg(long, conflicts_with = "again")]
    check: bool,
    /// Write nothing: compile everything again, without a cache, and fail where the bytes are not those that are packaged.
    /// Takes the compiler that made them, by name and version
    #[arg(long, conflicts_with_all = ["again", "check"])]
    verify: bool,
}

pub(super) fn run(registry: &Registry, arguments: &Arguments) -> Result<Output, Failure> {
    package(registry, arguments, &Environment::of_process())
}

fn package(registry: &Registry, arguments: &Arguments, environment: &Environment) -> Result<Output, Failure> {
    let project = Project::load(&arguments.files)?;
    let folder = arguments.out.clone().unwrap_or_else(|| project.tuned.join(ARTIFACTS));
    let sources = sources(registry, arguments, &project)?;
    let requests = sources.iter().map(|source| source.request()).collect::<Result<Vec<_>, _>>();
    let requests = requests.map_err(|e| lines([e]))?;
    let old = Artifacts::open(&folder).map_err(|e| lines([e]))?;
    if arguments.check {
        return check(&old, &requests, &folder);
    }
    let options = SupplyOptions { missing: Missing::Refuse, ..SupplyOptions::default() };
    if arguments.verify {
        return verify(&old, &requests, &folder, environment, &options);
    }
    let kept = (!arguments.again).then_some(&old);
    let supplied = supply(&requests, kept, environment, &options).map_err(lines)?;
    let faults = own_faults(&sources, &supplied.code);
    if !faults.is_empty() {
        return Err(lines(faults));
    }
    let mut artifacts: Vec<Artifact> = vec![];
    for (request, code) in requests.iter().zip(&supplied.code) {
        match code.artifact() {
            // Kernels of two workloads may be the same code.
            Some(artifact) => artifacts.push(artifact.clone()),
            None => {
                let what = format!("{} for {}", request.kernel, request.arch);
                return Err(format!("{what} was not compiled, because KERNEL_GEN_CUDA says so; unset it").into());
            }
        }
    }
    let files = Artifacts::write(&folder, &artifacts).map_err(|e| lines([e]))?;
    let mut text = String::new();
    for (code, artifact) in supplied.code.iter().zip(&artifacts) {
        let _ = writeln!(text, "{}", row(code, artifact));
    }
    let bytes: u64 = files.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum();
    let shown = shown(&folder);
    let _ = writeln!(text, "{}; {shown} has {} files, {} KiB", supplied.summary, files.len(), bytes.div_ceil(1024));
    for warning in supplied.warnings {
        let _ = writeln!(text, "{warning}");
    }
    Ok(Output::success(text))
}

/// What the build of a crate with this spec will ask for.
fn sources(registry: &Registry, arguments: &Arguments, project: &Project) -> Result<Vec<CudaSource>, Failure> {
    let Some(spec) = &project.spec else {
        return Err("there is no kernels.toml here; name the spec".to_string().into());
    };
    if spec.targets.cuda.is_empty() {
        let help = "add cuda = [\"sm_90a\", \"sm_80\"], say, to [targets]";
        return Err(format!("{} asks for no code for GPUs; {help}", spec.file).into());
    }
    let mut choose = project.options();
    choose.device = arguments.device.clone();
    let options = generate::Options {
        arch: std::env::consts::ARCH.to_string(),
        // Neither is in CUDA sources, so that what is packaged here serves every crate.
        prefix: String::new(),
        images: String::new(),
        choose,
        code: CodePolicy::Absent("only CUDA is packaged".to_string()),
        cuda: true,
        jobs: std::thread::available_parallelism().map_or(1, |n| n.get()),
        memo: None,
    };
    let generated = generate(spec, &project.records, registry, &options).map_err(lines)?;
    let mut sources = generated.cuda;
    for item in spec.externs.iter().filter(|item| item.is_cuda()) {
        sources.extend(own_cuda(spec, item).map_err(|e| lines([e]))?.sources);
    }
    Ok(sources)
}

/// Whether the folder has just what is needed.
fn check(packaged: &Artifacts, requests: &[Request], folder: &Path) -> Result<Output, Failure> {
    let mut errors = vec![];
    for request in requests {
        match packaged.find(request) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let stale = packaged.has_other_source(&request.kernel, request.hash(), request.arch);
                let cause = if stale { "was packaged from another source" } else { "is not packaged" };
                let what = format!("{} for {} {cause}", request.kernel, request.arch);
                errors.push(format!("{}: {what}; run `kernel-gen package`", shown(folder)));
            }
            Err(e) => errors.push(e.to_string()),
        }
    }
    // What was made from another source has been told above.
    let replaced = |kernel: &str, arch| requests.iter().any(|r| r.kernel == kernel && r.arch == arch);
    for (kernel, arch) in packaged.unused(requests).iter().filter(|(kernel, arch)| !replaced(kernel, *arch)) {
        let what = format!("{kernel} for {arch} is packaged, but nothing needs it");
        errors.push(format!("{}: {what}; run `kernel-gen package`", shown(folder)));
    }
    let strays = packaged.strays();
    errors.extend(strays.iter().map(|file| format!("{}: the index does not name it; delete it", shown(file))));
    let success = errors.is_empty();
    let text = match success {
        true => format!("{}: {} kernels, all that are needed\n", shown(folder), packaged.len()),
        false => String::new(),
    };
    Ok(Output { text, errors, success })
}

/// Whether a compiler that is here makes the same bytes of the sources. That is what ties machine code to its source.
fn verify(
    packaged: &Artifacts,
    requests: &[Request],
    folder: &Path,
    environment: &Environment,
    options: &SupplyOptions,
) -> Result<Output, Failure> {
    // Others may have written a cache.
    let environment = environment.clone().without("KERNEL_GEN_CACHE");
    let supplied = supply(requests, None, &environment, options).map_err(lines)?;
    let mut errors = vec![];
    let mut same = 0;
    for (request, code) in requests.iter().zip(&supplied.code) {
        let what = format!("{}: {} for {}", shown(folder), request.kernel, request.arch);
        match (packaged.find(request), code.artifact()) {
            (Err(e), _) => errors.push(e.to_string()),
            (Ok(None), _) => errors.push(format!("{what} is not packaged from this source; run `kernel-gen package`")),
            (_, None) => errors.push(format!("{what} was not compiled, because KERNEL_GEN_CUDA says so; unset it")),
            (Ok(Some(old)), Some(new)) if old.compiler != new.compiler => errors.push(format!(
                "{what} was made by {}, and {} is here; only the same compiler makes the same bytes",
                old.compiler, new.compiler
            )),
            (Ok(Some(old)), Some(new)) if (&old.ptx, &old.cubin) != (&new.ptx, &new.cubin) => errors.push(format!(
                "{what} is not what {} makes of its source; do not use it before you know why",
                new.compiler
            )),
            _ => same += 1,
        }
    }
    let success = errors.is_empty();
    let text = match success {
        true => format!("{}: {same} kernels, each the bytes that its compiler makes of its source\n", shown(folder)),
        false => String::new(),
    };
    Ok(Output { text, errors, success })
}

/// A line on one kernel.
fn row(code: &Code, artifact: &Artifact) -> String {
    let ptx = artifact.ptx_version().map_or("PTX".to_string(), |version| format!("PTX {version}"));
    let size = artifact.cubin.as_ref().map_or("no machine code".to_string(), |c| format!("{} bytes", c.len()));
    let origin = match code {
        Code::Packaged(_) => format!("kept, by {}", artifact.compiler),
        _ => artifact.compiler.clone(),
    };
    let mut text = format!("{:7} {}: {ptx}, {size}, {origin}", artifact.arch.to_string(), artifact.kernel);
    for kernel in &artifact.log.kernels {
        let _ = write!(text, "; {} registers", kernel.registers);
        if kernel.spills() {
            let _ = write!(text, ", SPILLS {} bytes", kernel.spill_store_bytes + kernel.spill_load_bytes);
        }
    }
    for remark in &artifact.log.remarks {
        let _ = write!(text, "; {remark}");
    }
    text
}

fn shown(path: &Path) -> String {
    path.display().to_string().replace('\\', "/")
}

/// Errors as lines, complete as they are.
fn lines<E: ToString>(errors: impl IntoIterator<Item = E>) -> Failure {
    Failure::Lines(
        errors.into_iter().flat_map(|e| e.to_string().lines().map(String::from).collect::<Vec<_>>()).collect(),
    )
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::cli::project::{RecordFiles, SpecFile};
    use crate::toolchain::cuda::testing::{Folder, calls, fake_nvcc};
    use std::fs;

    const SPEC: &str = "\
schema = 1
[targets]
cuda = [\"sm_80\", \"sm_90\"]
[[kernel]]
name = \"product\"
op = \"matmul\"
[[kernel.workload]]
name = \"small\"
a = [64, 16]
b = [16, 32]
";

    fn arguments(folder: &Folder, check: bool) -> Arguments {
        let files = Files { spec: SpecFile::of(Some(&folder.join("kernels.toml"))), records: RecordFiles::default() };
        Arguments { files, out: None, device: None, again: false, check, verify: false }
    }

    fn failure(result: Result<Output, Failure>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_spec_is_packaged_once_and_then_needs_no_compiler() {
        let folder = Folder::new("package");
        let nvcc = fake_nvcc(&folder, "nvcc", "13.0.88");
        let with = Environment::new([("NVCC", nvcc.into_os_string())], &folder.path());
        let without = Environment::new([], &folder.path());
        let registry = Registry::builtin();
        fs::write(folder.join("kernels.toml"), SPEC).unwrap();
        let check = |expected: &[&str]| {
            let output = package(&registry, &arguments(&folder, true), &without).unwrap();
            assert_eq!((output.success, output.errors.len()), (expected.is_empty(), expected.len()), "{output:?}");
            for (error, part) in output.errors.iter().zip(expected) {
                assert!(error.contains(part) && error.ends_with("run `kernel-gen package`"), "{error}");
            }
        };
        check(&["small.sm_90 for sm_90 is not packaged", "small.sm_80 for sm_80 is not packaged"]);
        let text = failure(package(&registry, &arguments(&folder, false), &without));
        assert!(text.starts_with("no CUDA compiler was found. Looked at"), "{text}");
        let output = package(&registry, &arguments(&folder, false), &with).unwrap();
        assert!(output.success && output.text.contains("sm_80   small.sm_80: PTX 7.4, 12 bytes, nvcc"), "{output:?}");
        assert!(output.text.contains("CUDA: 2 kernels compiled by nvcc 13.0.88"), "{output:?}");
        check(&[]);
        // The records are read although compiled code lies beside them.
        let files = Artifacts::open(&folder.join("tuned/artifacts")).unwrap().files();
        assert_eq!(files.len(), 5);
        let bytes = || files.iter().map(|f| fs::read(f).unwrap()).collect::<Vec<_>>();
        let (before, count) = (bytes(), calls(&folder));
        let again = package(&registry, &arguments(&folder, false), &without).unwrap();
        assert!(again.text.contains("kept, by nvcc 13.0.88") && again.text.contains("CUDA: 2 kernels packaged"));
        assert_eq!((bytes(), calls(&folder)), (before, count));
        // Another workload: what was there is not needed any more.
        let deeper = SPEC.replace("[64, 16]", "[64, 24]").replace("[16, 32]", "[24, 32]");
        fs::write(folder.join("kernels.toml"), deeper).unwrap();
        check(&["was packaged from another source", "was packaged from another source"]);
        fs::write(folder.join("kernels.toml"), SPEC.replace("\"sm_80\", ", "")).unwrap();
        check(&["small.sm_80 for sm_80 is packaged, but nothing needs it"]);
        package(&registry, &arguments(&folder, false), &without).unwrap();
        assert_eq!(Artifacts::open(&folder.join("tuned/artifacts")).unwrap().files().len(), 3);
        let mut everything = arguments(&folder, false);
        everything.again = true;
        package(&registry, &everything, &with).unwrap();
        assert!(calls(&folder) > count);
    }

    #[test]
    fn packaged_code_is_verified_by_the_compiler_that_made_it() {
        let folder = Folder::new("package-verify");
        let nvcc = |name: &str, release: &str| {
            let nvcc = fake_nvcc(&folder, name, release).into_os_string();
            Environment::new([("NVCC", nvcc)], &folder.path())
        };
        let with = nvcc("nvcc", "13.0.88");
        let registry = Registry::builtin();
        fs::write(folder.join("kernels.toml"), SPEC).unwrap();
        let arguments = arguments(&folder, false);
        package(&registry, &arguments, &with).unwrap();
        let verify = |environment: &Environment| {
            let output = package(&registry, &Arguments { verify: true, ..arguments.clone() }, environment).unwrap();
            assert_eq!(output.success, output.errors.is_empty());
            output
        };
        assert!(verify(&with).text.contains("2 kernels, each the bytes that its compiler makes"));
        let errors = verify(&nvcc("newer", "13.1.5")).errors;
        assert!(errors[0].contains("was made by nvcc 13.0.88, and nvcc 13.1.5 is here"), "{errors:?}");
        // One is forged, with hashes that fit; a build without a compiler could not tell.
        let artifacts = folder.join("tuned/artifacts");
        let project = Project::load(&arguments.files).unwrap();
        let sources = sources(&registry, &arguments, &project).unwrap();
        let requests: Vec<Request> = sources.iter().map(|source| source.request().unwrap()).collect();
        let old = Artifacts::open(&artifacts).unwrap();
        let mut all: Vec<Artifact> = requests.iter().map(|r| old.find(r).unwrap().unwrap()).collect();
        all[0].ptx += "// forged\n";
        Artifacts::write(&artifacts, &all).unwrap();
        let errors = verify(&with).errors;
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("is not what nvcc 13.0.88 makes of its source"), "{errors:?}");
    }

    #[test]
    fn a_spec_without_gpus_and_a_user_without_cuda_are_told() {
        let folder = Folder::new("package-none");
        let registry = Registry::builtin();
        let without = Environment::new([], &folder.path());
        fs::write(folder.join("kernels.toml"), SPEC.replace("\"sm_80\", \"sm_90\"", "")).unwrap();
        let text = failure(package(&registry, &arguments(&folder, false), &without));
        assert!(text.contains("kernels.toml asks for no code for GPUs; add cuda = [\"sm_90a\""), "{text}");
        fs::write(folder.join("kernels.toml"), SPEC).unwrap();
        for value in ["off", "embed"] {
            let with = Environment::new([("KERNEL_GEN_CUDA", value.into())], &folder.path());
            let text = failure(package(&registry, &arguments(&folder, false), &with));
            assert!(text.contains("was not compiled, because KERNEL_GEN_CUDA says so"), "{text}");
        }
        fs::write(folder.join("kernels.toml"), SPEC.replace("\"sm_80\", \"sm_90\"", "\"sm_90a\"")).unwrap();
        let text = failure(package(&registry, &arguments(&folder, false), &without));
        assert!(text.contains("add a portable one"), "{text}");
    }
}
