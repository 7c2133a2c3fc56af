//! One run of a build script.

use crate::environment::{Environment, VARIABLES};
use crate::stamp::{self, Stamp};
use crate::{Config, Error, MissingCompiler, MissingCudaCompiler, Report};
use kernel_gen::diagnostic::Diagnostic;
use kernel_gen::emit::rust::{self, is_rust_name};
use kernel_gen::generate::{self, CodePolicy, CudaSupply, GenerateError, Generated, Memo, write_if_changed};
use kernel_gen::model;
use kernel_gen::records::{ARTIFACTS, BestRecords, REFUSED};
use kernel_gen::spec::Spec;
use kernel_gen::toolchain::cuda::{self, Artifacts, Cache};
use kernel_gen::toolchain::{Compiler, ToolError, resolve, settings_for};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn run(config: &Config) -> Result<Report, Error> {
    let environment = Environment::read()?;
    if !is_rust_name(&config.module) {
        return Err(Error::Module { name: config.module.clone() });
    }
    // First of all, and whatever happens later: what makes this run again.
    for line in rerun_lines(config, &environment) {
        tell(&line);
    }
    let stamp_path = environment.out_dir.join(format!("kernel-gen-{}.stamp", config.module));
    let known = Stamp::load(&stamp_path);
    let program = stamp::program(known.as_ref());
    let found = tools(config, &environment, known.as_ref());
    let facts = key(config, &environment, program.1, found.1);
    let all_records = hash_of_files(0, config.tuned.iter().flat_map(|folder| record_files(folder)));
    if let Some(mut stamp) = known.filter(|s| s.key == facts && s.holds()) {
        let same_records = || {
            let kinds = kinds(&Spec::load(&config.spec).ok()?);
            Some(hash_of_records(&own_records(config, &kinds).ok()?))
        };
        // The warning about a refused record names its line, and the line may have moved.
        let refuses = stamp.report.warnings.iter().any(|warning| warning.contains(REFUSED));
        let is_same = || !refuses && same_records() == Some(stamp.records.1);
        if stamp.records.0 == all_records || is_same() {
            if (stamp.tools, stamp.records.0) != (found, all_records) {
                // The same tools in another environment, the same records among others: the next run need not look for them.
                (stamp.tools, stamp.records.0) = (found, all_records);
                write_if_changed(&stamp_path, stamp.text().as_bytes())?;
            }
            return Ok(finish(config, &environment, stamp, true));
        }
    }
    // If this run fails half-way, the next one must not believe the old stamp.
    let _ = fs::remove_file(&stamp_path);
    // What is known of tools may be of an earlier compiler in the same place.
    let tools = tools(config, &environment, None);
    let key = key(config, &environment, program.1, tools.1);
    let made = make(config, &environment, program.1)?;
    let mut stamp = Stamp { key, program, tools, ..made };
    stamp.records.0 = all_records;
    write_if_changed(&stamp_path, stamp.text().as_bytes())?;
    Ok(finish(config, &environment, stamp, false))
}

/// Tells cargo what the stamp says, and reports.
fn finish(config: &Config, environment: &Environment, stamp: Stamp, fresh: bool) -> Report {
    for line in &stamp.lines {
        tell(line);
    }
    for warning in &stamp.report.warnings {
        tell(&format!("cargo::warning={warning}"));
    }
    // One line says where the choices came from. Cargo shows it with `-vv` only, unless it is a warning: that it is
    // where something was not tuned, which should not go unnoticed.
    let summary = stamp.report.summary();
    match config.quiet || stamp.report.is_tuned() {
        true => tell(&format!("kernel-gen: {summary}")),
        false => tell(&format!("cargo::warning=kernel-gen: {summary}")),
    }
    let library = stamp.files.iter().map(|(p, _)| p).find(|p| p.extension().is_some_and(|e| e == "a"));
    Report { wrappers: wrappers_path(config, environment), library: library.cloned(), choices: stamp.report, fresh }
}

/// Prints a line for cargo. Cargo obeys every line that begins with `cargo:`, so no text of a path, a record or a tool may
/// begin a line of its own.
pub(crate) fn tell(line: &str) {
    println!("{}", kernel_gen::diagnostic::one_line(line.to_string()));
}

fn wrappers_path(config: &Config, environment: &Environment) -> PathBuf {
    environment.out_dir.join(format!("{}.rs", config.module))
}

/// Everything that is read before the spec is understood; what the spec names is added later.
fn rerun_lines(config: &Config, environment: &Environment) -> Vec<String> {
    let files = std::iter::once(&config.spec).chain(&config.tuned).chain(&config.artifacts);
    let files = files.map(|f| format!("cargo::rerun-if-changed={}", f.display()));
    let variables = variables(config, environment).into_iter();
    files.chain(variables.map(|v| format!("cargo::rerun-if-env-changed={v}"))).collect()
}

/// The variables that decide the result.
fn variables(config: &Config, environment: &Environment) -> Vec<String> {
    let mut all: Vec<String> = VARIABLES.iter().map(|v| v.to_string()).collect();
    all.extend(settings_for(&environment.target));
    all.push("PATH".to_string());
    if wants_cuda(config) {
        // OUT_DIR is cargo's own, and is among the facts of the key.
        let more = cuda::VARIABLES.iter().filter(|v| **v != "OUT_DIR").map(|v| v.to_string());
        all.extend(more.filter(|v| !all.contains(v)).collect::<Vec<_>>());
    }
    all
}

/// Whether CUDA is asked for: the builder does, and the spec says anything about it, as far as can be told before it is
/// understood. If only a comment does, the script runs more often than it has to.
fn wants_cuda(config: &Config) -> bool {
    config.cuda && fs::read(&config.spec).is_ok_and(|text| text.windows(4).any(|w| w == b"cuda"))
}

/// Variables that only say where tools are looked for. What decides the result is what is found there.
const SEARCHED: [&str; 5] = ["PATH", "LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"];

/// Programs that the tools themselves start by their names: the assembler of GCC, the host's compilers of nvcc, and what
/// bindgen asks where headers are.
const HELPERS: [&str; 5] = ["as", "gcc", "g++", "clang", "llvm-config"];

/// A hash of where tools are looked for, and one of those that are found: path, size and time of each. They are looked for
/// only if the former is not the one that is known.
fn tools(config: &Config, environment: &Environment, known: Option<&Stamp>) -> (u64, u64) {
    let Environment { target, host, docs_rs, no_cc, .. } = environment;
    let mut places = format!("{target} {host} {docs_rs} {no_cc} {}", wants_cuda(config));
    for variable in variables(config, environment) {
        places += &format!("\n{variable} {:?}", std::env::var_os(&variable));
    }
    let places = stamp::hash(0, places.as_bytes());
    if let Some(stamp) = known.filter(|stamp| stamp.tools.0 == places) {
        return stamp.tools;
    }
    let mut found = String::new();
    if !docs_rs && !no_cc {
        found += &match Compiler::find(target, host) {
            Ok(compiler) => format!("{:016x}\n", compiler.identity()),
            Err(error) => format!("{error}\n"),
        };
    }
    let helpers = HELPERS.iter().filter_map(|name| resolve(Path::new(name)));
    for tool in helpers.chain(cuda_tools(config)) {
        found += &stamp::identity_of(&tool);
        found += "\n";
    }
    (places, stamp::hash(0, found.as_bytes()))
}

/// The files that a CUDA compiler is looked for among.
fn cuda_tools(config: &Config) -> Vec<PathBuf> {
    if wants_cuda(config) { cuda::tools(&cuda::Environment::of_process()) } else { vec![] }
}

/// A hash of everything that decides the result and is known before the spec is read.
fn key(config: &Config, environment: &Environment, program: u64, tools: u64) -> u64 {
    let Config { spec, tuned, registry, module, deny_fallback, device, threads, missing_compiler, .. } = config;
    let Config { cuda, missing_cuda, artifacts, trust_artifacts, shipped_records, .. } = config;
    let Environment { out_dir, target, host, arch, package, version, .. } = environment;
    // A folder that is there and empty has no files below it, but no longer a warning that it is missing either.
    let missing = tuned.as_ref().is_some_and(|folder| !folder.exists());
    let mut facts = format!(
        "{} {program} {tools:016x} {spec:?} {tuned:?} {missing} {registry:?} {module} {deny_fallback} {device:?} {threads:?} {missing_compiler:?} \
         {cuda} {missing_cuda:?} {artifacts:?} {trust_artifacts} {shipped_records} {out_dir:?} {target} {host} {arch} {package} {version}",
        env!("CARGO_PKG_VERSION")
    );
    for variable in variables(config, environment).iter().filter(|v| !SEARCHED.contains(&v.as_str())) {
        facts += &format!("\n{variable} {:?}", std::env::var_os(variable));
    }
    let mut hash = stamp::hash(0, facts.as_bytes());
    let packaged = artifacts.clone().into_iter().chain(tuned.iter().map(|tuned| tuned.join(ARTIFACTS)));
    let files = packaged.flat_map(|folder| files_below(&folder));
    hash = hash_of_files(hash, std::iter::once(spec.clone()).chain(files));
    hash
}

/// Continues a hash by the names and the contents of files. A file that cannot be read is reported when it is used.
fn hash_of_files(hash: u64, files: impl IntoIterator<Item = PathBuf>) -> u64 {
    files.into_iter().fold(hash, |hash, file| {
        let hash = stamp::hash(hash, file.to_string_lossy().as_bytes());
        stamp::hash(hash, &fs::read(&file).unwrap_or_default())
    })
}

/// The files below the folder of records that are not packaged code.
fn record_files(folder: &Path) -> Vec<PathBuf> {
    let packaged = folder.join(ARTIFACTS);
    files_below(folder).into_iter().filter(|file| !file.starts_with(&packaged)).collect()
}

/// The user's records that may decide something about workloads of these kinds.
fn own_records(config: &Config, kinds: &model::Kinds) -> Result<BestRecords, Vec<Diagnostic>> {
    let Some(folder) = &config.tuned else { return Ok(BestRecords::new()) };
    BestRecords::load_some(folder, &|workload| kinds.has_key(workload))
}

fn kinds(spec: &Spec) -> model::Kinds {
    model::Kinds::of(spec.workloads().map(|(_, w)| &w.workload))
}

/// A hash of records, wherever they stand, and of the devices that come first.
fn hash_of_records(records: &BestRecords) -> u64 {
    let main = stamp::hash(0, format!("{:?}", records.main_devices()).as_bytes());
    records.iter().fold(main, |hash, record| {
        let hash = stamp::hash(hash, format!("{} {}", record.target, record.device).as_bytes());
        stamp::hash(hash, record.to_line().as_bytes())
    })
}

/// All files below a folder, in a fixed order.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).map(|all| all.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    entries.sort();
    entries.into_iter().flat_map(|e| if e.is_dir() { files_below(&e) } else { vec![e] }).collect()
}

/// Generates and compiles. `program` is the hash of the program that does.
fn make(config: &Config, environment: &Environment, program: u64) -> Result<Stamp, Error> {
    let mut errors: Vec<GenerateError> = vec![];
    let mut collect = |wrong: Vec<Diagnostic>| errors.extend(wrong.into_iter().map(GenerateError::from));
    let spec = Spec::load(&config.spec).map_err(&mut collect).ok();
    let kinds = spec.as_ref().map(kinds);
    let own = match (&kinds, &config.tuned) {
        (Some(kinds), _) => own_records(config, kinds).map_err(&mut collect).ok(),
        // What is wrong with the records is worth knowing all the same.
        (None, Some(folder)) => BestRecords::load(folder).map_err(&mut collect).ok(),
        (None, None) => None,
    };
    let (Some(spec), Some(kinds), Some(own)) = (spec, kinds, own) else { return Err(errors.into()) };
    let used = hash_of_records(&own);
    let records = match config.shipped_records {
        true => {
            let shipped = BestRecords::shipped(kernel_gen_records::FILES, &|workload| kinds.has_key(workload));
            own.over(shipped.map_err(|wrong| wrong.into_iter().map(GenerateError::from).collect::<Vec<_>>())?)
        }
        false => own,
    };
    let (compiler, code, mut warnings) = compiler(config, environment)?;
    let cache = cuda::cache::of(&cuda::Environment::of_process());
    // A kernel from the cache goes through no pass, so there would be nothing to print.
    let memo = cache.clone().filter(|_| !environment.dumps_passes).map(|cache| Memo::open(cache, program));
    let options = generate::Options {
        arch: environment.arch.clone(),
        prefix: prefix(config, environment),
        choose: model::Options {
            deny_fallback: config.deny_fallback || environment.deny_fallback,
            device: config.device.clone(),
            threads: config.threads,
            ..model::Options::default()
        },
        code,
        cuda: config.cuda && !environment.docs_rs && !environment.no_cuda,
        images: folder_name(config),
        jobs: environment.jobs,
        memo,
    };
    let mut generated = generate::generate(&spec, &records, &config.registry, &options)?;
    if let Some(folder) = config.tuned.as_ref().filter(|f| !f.exists()) {
        warnings.push(format!(
            "the folder of records {} does not exist; create it, so that cargo need not run build.rs every time",
            folder.display()
        ));
    }
    generated.report.warnings.append(&mut warnings);
    let mut inputs: Vec<PathBuf> = spec.networks.iter().flat_map(|network| network.files()).collect();
    inputs.extend(add_externs(&spec, compiler.as_ref(), &options, &mut generated)?);
    let library = library(&options.prefix, &generated);
    let mut stamp = write(config, environment, &generated, compiler.as_ref(), &library, cache.as_ref())?;
    cache.iter().for_each(Cache::forget);
    // Compiled CUDA is kept in the same folder, and may have told of it: once is enough. It is of this run only, as the stamp is not.
    stamp.report.warnings.retain(|warning| !warning.starts_with("the cache "));
    let refused = cuda::cache::refused(&cuda::Environment::of_process());
    if let Some(warning) = refused.or_else(|| cuda::cache::trouble(cache.as_ref()?)) {
        tell(&format!("cargo::warning={warning}"));
    }
    stamp.records.1 = used;
    for input in inputs {
        stamp.lines.push(format!("cargo::rerun-if-changed={}", input.display()));
        stamp.inputs.push((input.clone(), stamp::hash_file(&input).unwrap_or_default()));
    }
    Ok(stamp)
}

/// Adds the user's own code; gives the files that were read for it.
#[cfg(feature = "bindgen")]
fn add_externs(
    spec: &Spec,
    compiler: Option<&Compiler>,
    options: &generate::Options,
    generated: &mut Generated,
) -> Result<Vec<PathBuf>, Vec<GenerateError>> {
    let documentation = matches!(options.code, CodePolicy::Absent(_));
    let wrapped = crate::externs::wrap(spec, compiler, documentation, options)?;
    generated.rust += &wrapped.rust;
    generated.sources.extend(wrapped.sources);
    generated.cuda.extend(wrapped.cuda);
    Ok(wrapped.inputs)
}

/// Refuses the user's own code: wrapping it takes the feature.
#[cfg(not(feature = "bindgen"))]
fn add_externs(
    spec: &Spec,
    _: Option<&Compiler>,
    _: &generate::Options,
    _: &mut Generated,
) -> Result<Vec<PathBuf>, Vec<GenerateError>> {
    let errors = spec.externs.iter().map(|item| {
        GenerateError::Input(Diagnostic {
            file: spec.file.clone(),
            line: item.line,
            cause: format!("[[extern]] `{}` needs the feature `bindgen` of kernel-gen-build", item.name),
            help: "add features = [\"bindgen\"] to that build-dependency".into(),
        })
    });
    let errors: Vec<GenerateError> = errors.collect();
    if errors.is_empty() { Ok(vec![]) } else { Err(errors) }
}

/// Writes, compiles, and notes what was made.
fn write(
    config: &Config,
    environment: &Environment,
    generated: &Generated,
    compiler: Option<&Compiler>,
    library: &str,
    cache: Option<&Cache>,
) -> Result<Stamp, Error> {
    let folder = environment.out_dir.join(folder_name(config));
    let beside = config.tuned.as_ref().map(|tuned| tuned.join(ARTIFACTS));
    let packaged = match config.artifacts.as_ref().or(beside.as_ref()) {
        Some(folder) if !generated.cuda.is_empty() => Some(Artifacts::open(folder).map_err(GenerateError::Cuda)?),
        _ => None,
    };
    let environment_of_cuda = cuda::Environment::of_process();
    let mut warnings = vec![];
    let is_trusted = config.trust_artifacts || environment_of_cuda.trusts_artifacts();
    // Cargo runs build scripts in the package's folder.
    let packaged = packaged.and_then(|all| match is_trusted {
        true => Some(all),
        false => all.within(Path::new(".")).map_err(|told| warnings.push(told)).ok(),
    });
    let missing = match config.missing_cuda {
        MissingCudaCompiler::EmbedSource => cuda::Missing::Embed,
        MissingCudaCompiler::Error => cuda::Missing::Refuse,
    };
    let compile = cuda::Options { jobs: environment.jobs, ..cuda::Options::default() };
    let supply = CudaSupply {
        packaged: packaged.as_ref(),
        environment: &environment_of_cuda,
        options: &cuda::SupplyOptions { missing, compile },
    };
    let built = generate::build(generated, compiler, supply, &folder, library, environment.jobs, cache)?;
    let wrappers = wrappers_path(config, environment);
    write_if_changed(&wrappers, rust::file(&generated.rust).as_bytes())?;
    let mut stamp = Stamp { report: generated.report.clone(), ..Stamp::default() };
    stamp.report.warnings.extend(warnings);
    stamp.report.warnings.extend(built.warnings);
    if !built.cuda.is_empty() {
        // No instruction to cargo: shown with `-vv`.
        stamp.lines.push(format!("kernel-gen: {}", built.cuda));
    }
    if built.library.is_some() {
        stamp.lines.push(format!("cargo::rustc-link-search=native={}", folder.display()));
        stamp.lines.push(format!("cargo::rustc-link-lib=static={library}"));
        // Cargo passes that on to the package's library only, if it has one. Binaries, tests and examples beside a library
        // get the archive by its path: behind everything else, so that a linker takes of it what the library does not bring.
        if let Some(archive) = built.library.as_ref().filter(|_| environment.unix) {
            stamp.lines.push(format!("cargo::rustc-link-arg={}", archive.display()));
            stamp.lines.push("cargo::rustc-link-arg=-lm".into());
        }
        if environment.unix {
            // `erff` and its like; other systems have them in the C library.
            stamp.lines.push("cargo::rustc-link-lib=m".into());
        }
    }
    let mut files = vec![wrappers];
    files.extend(built.files);
    files.extend(compiler.iter().flat_map(|c| c.programs()).map(Path::to_path_buf));
    files.extend(cuda_tools(config));
    stamp.files = files.into_iter().map(|f| (stamp::identity_of(&f), f)).map(|(identity, f)| (f, identity)).collect();
    Ok(stamp)
}

/// The folder of sources, objects and images, below `OUT_DIR`.
fn folder_name(config: &Config) -> String {
    format!("kernel-gen-{}", config.module)
}

/// What every symbol and the library start with: the package's name, and a hash of it, its version and the module's name.
/// A person who reads a symbol sees whose it is. That no two functions collide is the work of the hashes of code that follow.
fn prefix(config: &Config, environment: &Environment) -> String {
    let Environment { package, version, .. } = environment;
    let unique = kernel_gen::stable::fnv1a(format!("{package} {version} {}", config.module).as_bytes()) as u32;
    let package: String = package.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("kg_{package}_{unique:08x}")
}

/// The name of the library. It depends on what is in it: two revisions of one crate may be in one program, and a linker
/// takes the first library of a name.
fn library(prefix: &str, generated: &Generated) -> String {
    let hash = generated.sources.iter().fold(0, |hash, source| {
        let flags = source.flags.join(" ");
        [&source.name, &flags, &source.text].iter().fold(hash, |hash, text| stamp::hash(hash, text.as_bytes()))
    });
    format!("{prefix}_{hash:016x}")
}

/// The compiler, or what takes its place, and what a user should know about that.
fn compiler(
    config: &Config,
    environment: &Environment,
) -> Result<(Option<Compiler>, CodePolicy, Vec<String>), GenerateError> {
    let absent = |reason: &str| Ok((None, CodePolicy::Absent(reason.to_string()), vec![]));
    if environment.docs_rs {
        return absent("the crate was built for documentation only (DOCS_RS is set)");
    }
    if environment.no_cc {
        return absent("the crate was built with KERNEL_GEN_NO_CC=1");
    }
    let error = match Compiler::find(&environment.target, &environment.host) {
        Ok(compiler) => {
            let told = compiler.told().to_vec();
            return Ok((Some(compiler), CodePolicy::Compile, told));
        }
        Err(error) => error,
    };
    let native = environment.target == environment.host;
    match (config.missing_compiler, &error) {
        (MissingCompiler::Wrappers, ToolError::Missing { .. }) => absent(&format!("{error}, and build again")),
        (MissingCompiler::Auto | MissingCompiler::LinkError, ToolError::Missing { target, .. })
            if !(native && config.missing_compiler == MissingCompiler::Auto) =>
        {
            let variable = format!("CC_{}", target.replace(['-', '.'], "_"));
            let symbol =
                format!("kernel_gen_found_no_C_compiler_for_{}__set_{variable}", target.replace(['-', '.'], "_"));
            let warning = format!("{error}. The crate can be checked, but a program with it will not link");
            Ok((None, CodePolicy::Unresolved(symbol), vec![warning]))
        }
        (_, ToolError::Missing { .. }) => {
            Err(GenerateError::Tool(error.with_hint("build wrappers without code with KERNEL_GEN_NO_CC=1")))
        }
        _ => Err(GenerateError::Tool(error)),
    }
}
